/* SPDX-License-Identifier: Apache-2.0 */
/* json_error.c - see json_error.h. */
#include "tools/json_error.h"

#include <errno.h>
#include <string.h>

bool
json_is_asked(int count, char *const *words)
{
    for (int i = 0; i < count && strcmp(words[i], "--") != 0; i++)
        if (strcmp(words[i], "--json") == 0 || strncmp(words[i], "--json=", 7) == 0)
            return true;
    return false;
}

static int32_t
reason_of(berth_status status)
{
    switch (status) {
    case BERTH_EINVAL:
        return BERTH_REASON_ARGUMENT;
    case BERTH_EFORMAT:
        return BERTH_REASON_ARCHITECTURE;
    case BERTH_EUNSUPPORTED:
        return BERTH_REASON_UNSUPPORTED;
    case BERTH_ENOMEM:
        return BERTH_REASON_NO_MEMORY;
    case BERTH_EIO:
        return BERTH_REASON_IO;
    case BERTH_ENOENT:
        return BERTH_REASON_NOT_FOUND;
    default:
        return BERTH_REASON_INTERNAL;
    }
}

berth_error
json_error_of(berth_status status)
{
    return (berth_error){ .status = status, .reason = reason_of(status) };
}

int32_t
json_reason_of_file(berth_status status, int system_error)
{
    switch (system_error) {
    case EEXIST:
        return BERTH_REASON_EXISTS;
    case EACCES:
        return BERTH_REASON_PERMISSION;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return BERTH_REASON_DISK_FULL;
    default:
        return reason_of(status);
    }
}

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

/* Exit codes are negated statuses. */
void
json_status(json_writer *w, berth_status status)
{
    json_number(w, "schema_version", 1);
    json_text(w, "status", berth_status_name(status));
    json_number(w, "exit_code", (uint64_t)-(int64_t)status);
}

void
json_error_object(json_writer *w, const berth_error *e)
{
    json_object_begin(w, "error");
    json_error(w, e, e->tensor, strlen(e->tensor));
    json_object_end(w);
}

void
json_failure(output *out, berth_status status, const berth_error *e)
{
    json_writer w;

    json_begin(&w, out, false);
    json_object_begin(&w, NULL);
    json_status(&w, status);
    json_error_object(&w, e);
    json_object_end(&w);
    json_end(&w);
}
