/* SPDX-License-Identifier: Apache-2.0 */
/* json_error.c - see json_error.h. */
#include "tools/json_error.h"

static void
write_number(json_writer *w, const char *key, const berth_error *e, uint32_t bit,
             uint64_t number)
{
    if (e->has & bit)
        json_number(w, key, number);
    else
        json_null(w, key);
}

void
json_error(json_writer *w, const berth_error *e, const char *name, size_t name_length)
{
    json_text(w, "status", berth_status_name(e->status));
    json_text(w, "reason", berth_reason_name(e->reason));
    json_text(w, "file", e->file);
    json_bytes(w, "tensor", name, name_length);
    json_text(w, "message", e->message);
    write_number(w, "position", e, BERTH_HAS_POSITION, e->position);
    write_number(w, "expected", e, BERTH_HAS_EXPECTED, e->expected);
    write_number(w, "actual", e, BERTH_HAS_ACTUAL, e->actual);
    json_signed(w, "system_error", e->system_error);
    json_text(w, "advice", berth_reason_advice(e->reason));
}
