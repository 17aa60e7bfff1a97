/* SPDX-License-Identifier: Apache-2.0 */
/* memory_api.c - the accounts of a context, told by tier and purpose, as text and JSON. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/memory.h"

static const char *const purpose_names[] = {
    [BERTH_MEMORY_WEIGHTS] = "weights", [BERTH_MEMORY_STAGING] = "staging",
    [BERTH_MEMORY_SLOTS] = "slots",     [BERTH_MEMORY_SCRATCH] = "scratch",
    [BERTH_MEMORY_TABLES] = "tables",   [BERTH_MEMORY_STATES] = "states",
    [BERTH_MEMORY_COMPUTING] = "computing",
    [BERTH_MEMORY_ALL] = "all",
};

const char *
berth_memory_purpose_name(int32_t purpose)
{
    return purpose >= 0 && purpose < BERTH_MEMORY_PURPOSE_COUNT ? purpose_names[purpose]
                                                                : "unknown";
}

uint32_t
berth_memory_tiers(const berth_context *context)
{
    return atomic_load(&context->ledger.books.count);
}

berth_status
berth_memory_get(const berth_context *context, uint32_t tier, int32_t purpose,
                 berth_memory *out)
{
    const berthi_book *book;
    const berthi_account *account;

    memset(out, 0, sizeof *out);
    if (tier >= berth_memory_tiers(context) || purpose < 0
        || purpose >= BERTH_MEMORY_PURPOSE_COUNT)
        return BERTH_EINVAL;
    book = &context->ledger.books.books[tier];
    account = &book->accounts[purpose];
    snprintf(out->tier, sizeof out->tier, "%s", book->tier);
    out->purpose = purpose;
    /* In this order nothing is given back that was not taken; the peak follows a moment later. */
    out->current_bytes = atomic_load(&account->current);
    out->peak_bytes = berthi_max_u64(atomic_load(&account->peak), out->current_bytes);
    out->allocated_bytes = berthi_max_u64(atomic_load(&account->allocated),
                                          out->current_bytes);
    out->freed_bytes = out->allocated_bytes - out->current_bytes;
    if (purpose == BERTH_MEMORY_ALL) {
        uint64_t parts = 0;

        out->slabs = atomic_load(&book->slabs);
        out->slab_bytes = atomic_load(&book->slab_bytes);
        parts = atomic_load(&book->slab_parts);
        out->fragmented_bytes = out->slab_bytes > parts ? out->slab_bytes - parts : 0;
    }
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- printing */

/* Counts what does not fit, too. */
typedef struct text {
    char *out;
    size_t capacity;
    size_t length;
} text;

__attribute__((format(printf, 2, 3))) static void
put(text *t, const char *format, ...)
{
    const size_t room = t->length < t->capacity ? t->capacity - t->length : 0;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(room > 0 ? t->out + t->length : NULL, room, format, arguments);
    va_end(arguments);
    t->length += length > 0 ? (size_t)length : 0;
}

static bool
has_any(const berth_memory *memory)
{
    return memory->allocated_bytes > 0;
}

static void
put_row(text *t, const berth_memory *m, const char *name)
{
    char sizes[4][BERTH_SIZE_CAPACITY];

    put(t, "%-8s %-9s %12s %12s %12s %12s\n", name, berth_memory_purpose_name(m->purpose),
        berth_size_format(m->current_bytes, sizes[0]),
        berth_size_format(m->peak_bytes, sizes[1]),
        berth_size_format(m->allocated_bytes, sizes[2]),
        berth_size_format(m->freed_bytes, sizes[3]));
}

static void
put_tier(text *t, const berth_context *context, uint32_t tier)
{
    const char *name = context->ledger.books.books[tier].tier;
    berth_memory m;

    for (int32_t p = 0; p < BERTH_MEMORY_PURPOSE_COUNT; p++) {
        (void)berth_memory_get(context, tier, p, &m);
        if (!has_any(&m))
            continue;
        put_row(t, &m, name);
        name = "";
    }
}

static void
put_slabs(text *t, const berth_context *context)
{
    uint64_t slabs = 0;
    uint64_t fragmented = 0;
    char size[BERTH_SIZE_CAPACITY];

    for (uint32_t i = 0; i < berth_memory_tiers(context); i++) {
        berth_memory m;

        (void)berth_memory_get(context, i, BERTH_MEMORY_ALL, &m);
        slabs += m.slabs;
        fragmented += m.fragmented_bytes;
    }
    put(t, "%" PRIu64 " slab%s, one a model and tier; fragmented: %s\n", slabs,
        slabs == 1 ? "" : "s", berth_size_format(fragmented, size));
}

static void
put_text(text *t, const berth_context *context)
{
    put(t, "%-8s %-9s %12s %12s %12s %12s\n", "tier", "purpose", "current", "peak",
        "allocated", "freed");
    for (uint32_t i = 0; i < berth_memory_tiers(context); i++)
        put_tier(t, context, i);
    put_slabs(t, context);
}

/* ASCII; what JSON or a terminal would not take as it is becomes "?". */
static void
put_name(text *t, const char *name)
{
    put(t, "\"");
    for (; *name != '\0'; name++)
        put(t, "%c", *name < ' ' || *name > '~' || *name == '"' || *name == '\\' ? '?'
                                                                               : *name);
    put(t, "\"");
}

static void
put_account(text *t, const berth_memory *m)
{
    put(t, "{\"tier\":");
    put_name(t, m->tier);
    put(t,
        ",\"purpose\":\"%s\",\"current\":%" PRIu64 ",\"peak\":%" PRIu64
        ",\"allocated\":%" PRIu64 ",\"freed\":%" PRIu64,
        berth_memory_purpose_name(m->purpose), m->current_bytes, m->peak_bytes,
        m->allocated_bytes, m->freed_bytes);
    if (m->purpose == BERTH_MEMORY_ALL)
        put(t,
            ",\"slabs\":%" PRIu64 ",\"slab_bytes\":%" PRIu64
            ",\"fragmented\":%" PRIu64,
            m->slabs, m->slab_bytes, m->fragmented_bytes);
    put(t, "}");
}

static void
put_json(text *t, const berth_context *context)
{
    const char *between = "";

    put(t, "{\"schema_version\":1,\"memory\":[");
    for (uint32_t i = 0; i < berth_memory_tiers(context); i++)
        for (int32_t p = 0; p < BERTH_MEMORY_PURPOSE_COUNT; p++) {
            berth_memory m;

            (void)berth_memory_get(context, i, p, &m);
            if (!has_any(&m))
                continue;
            put(t, "%s", between);
            put_account(t, &m);
            between = ",";
        }
    put(t, "]}\n");
}

size_t
berth_memory_print(const berth_context *context, int32_t format, char *out,
                   size_t capacity)
{
    text t = { .out = out, .capacity = out != NULL ? capacity : 0 };

    if (t.capacity > 0)
        out[0] = '\0';
    if (format == BERTH_MEMORY_JSON)
        put_json(&t, context);
    else if (format == BERTH_MEMORY_TEXT)
        put_text(&t, context);
    return t.length;
}
