/* SPDX-License-Identifier: Apache-2.0 */
/* load_memory.c - see load_memory.h. */
#include "tools/load_memory.h"

#include <stdlib.h>
#include <string.h>

void
load_memory_print(output *out, const berth_context *context)
{
    const size_t length = berth_memory_print(context, BERTH_MEMORY_TEXT, NULL, 0);
    char *const text = malloc(length + 1);

    if (text == NULL)
        return;
    (void)berth_memory_print(context, BERTH_MEMORY_TEXT, text, length + 1);
    output_text(out, text);
    free(text);
}

static void
write_account(json_writer *w, const berth_memory *m)
{
    json_object_begin(w, NULL);
    json_text(w, "tier", m->tier);
    json_text(w, "purpose", berth_memory_purpose_name(m->purpose));
    json_number(w, "current", m->current_bytes);
    json_number(w, "peak", m->peak_bytes);
    json_number(w, "allocated", m->allocated_bytes);
    json_number(w, "freed", m->freed_bytes);
    if (m->purpose == BERTH_MEMORY_ALL)
        json_number(w, "fragmented", m->fragmented_bytes);
    json_object_end(w);
}

void
load_memory_write(json_writer *w, const berth_context *context)
{
    json_array_begin(w, "memory");
    for (uint32_t t = 0; t < berth_memory_tiers(context); t++)
        for (int32_t p = 0; p < BERTH_MEMORY_PURPOSE_COUNT; p++) {
            berth_memory m;

            (void)berth_memory_get(context, t, p, &m);
            if (m.allocated_bytes > 0)
                write_account(w, &m);
        }
    json_array_end(w);
}

berth_memory
load_memory_find(const berth_context *context, const char *tier)
{
    berth_memory m;

    for (uint32_t t = 0; t < berth_memory_tiers(context); t++)
        if (berth_memory_get(context, t, BERTH_MEMORY_ALL, &m) == BERTH_OK
            && strcmp(m.tier, tier) == 0)
            return m;
    memset(&m, 0, sizeof m);
    return m;
}
