/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - a table that grows by whole shards; see table.h. */
#include "loader/table.h"

#include <string.h>

#include "kernels/grow.h"
#include "loader/sort.h"

/* Numbers of entries have 32 bits, and classify.h needs one of them for itself. */
#define ENTRIES_LIMIT (UINT64_C(0xffffffff) - 1)

void
berthi_table_init(berthi_table *table, berth_context *context)
{
    memset(table, 0, sizeof *table);
    table->context = context;
}

void
berthi_table_fini(berthi_table *table)
{
    berth_context *const context = table->context;

    if (context == NULL)
        return;
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, table->text,
                       table->text_capacity);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, table->entries,
                       table->entry_capacity * sizeof *table->entries);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, table->by_name,
                       table->entry_capacity * sizeof *table->by_name);
    berthi_table_init(table, context);
}

/* ------------------------------------------------------------------- growing */

/* `bytes` are not fewer than the text has. False: out of memory. */
static bool
grow_text(berthi_table *table, uint64_t bytes)
{
    char *const text = berthi_memory_grow(table->context, BERTHI_PURPOSE_TENSORS, table->text,
                                          &(berthi_growth){ .size = 1,
                                                            .used = table->text_bytes,
                                                            .before = table->text_capacity,
                                                            .after = bytes });

    if (text == NULL)
        return false;
    table->text = text;
    table->text_capacity = bytes;
    return true;
}

/* False, as above: out of memory. */
static bool
grow_entries(berthi_table *table, uint64_t count)
{
    berth_context *const context = table->context;
    berthi_growth growth = { .size = sizeof *table->by_name,
                             .used = table->entry_count,
                             .before = table->entry_capacity,
                             .after = count };
    uint32_t *const by_name =
        berthi_memory_copy(context, BERTHI_PURPOSE_TENSORS, table->by_name, &growth);
    berthi_entry *entries;

    /* Both or none: the two share one capacity. */
    if (by_name == NULL)
        return false;
    growth.size = sizeof *entries;
    entries = berthi_memory_grow(context, BERTHI_PURPOSE_TENSORS, table->entries, &growth);
    if (entries == NULL) {
        berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, by_name,
                           count * sizeof *by_name);
        return false;
    }
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, table->by_name,
                       table->entry_capacity * sizeof *by_name);
    table->entries = entries;
    table->by_name = by_name;
    table->entry_capacity = count;
    return true;
}

bool
berthi_table_make_room(berthi_table *table, uint64_t entries, uint64_t text_bytes)
{
    return grow_text(table, text_bytes) && grow_entries(table, entries);
}

/* Room for so much more; half as much again, so that few shards cause a copy. */
static bool
make_room(berthi_table *table, uint64_t entries, uint64_t text_bytes)
{
    const uint64_t more_text = table->text_bytes + text_bytes;
    const uint64_t more_entries = table->entry_count + entries;

    if (more_text > table->text_capacity
        && !grow_text(table, more_text + table->text_bytes / 2))
        return false;
    return more_entries <= table->entry_capacity
           || grow_entries(table, more_entries + table->entry_count / 2);
}

/* -------------------------------------------------------------------- taking */

/* The first header is the table. */
static void
move(berthi_table *table, berthi_header *header)
{
    table->text = header->text;
    table->text_bytes = header->text_bytes;
    table->text_capacity = header->text_bytes;
    table->entries = header->entries;
    table->by_name = header->by_name;
    table->entry_count = header->entry_count;
    table->entry_capacity = header->entry_count;
    header->text = NULL;
    header->entries = NULL;
    header->by_name = NULL;
}

static void
append(berthi_table *table, const berthi_header *header)
{
    const uint64_t first = table->entry_count;
    berthi_entry *const entries = table->entries + first;

    if (header->text_bytes > 0)
        memcpy(table->text + table->text_bytes, header->text, (size_t)header->text_bytes);
    for (uint64_t i = 0; i < header->entry_count; i++) {
        entries[i] = header->entries[i];
        entries[i].text += table->text_bytes;
        table->by_name[first + i] = header->by_name[i] + (uint32_t)first;
    }
    table->text_bytes += header->text_bytes;
    table->entry_count += header->entry_count;
}

berth_status
berthi_table_take(berthi_table *table, berthi_header *header, uint32_t shard,
                  uint64_t *out_text, berth_error *error)
{
    const uint64_t first = table->entry_count;
    const bool is_empty = table->text == NULL && table->entries == NULL;

    *out_text = table->text_bytes;
    if (header->entry_count > ENTRIES_LIMIT - first)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "more tensors than berth can number");
    if (!is_empty && !make_room(table, header->entry_count, header->text_bytes))
        return berthi_fail_memory(error, "the table of tensors");
    table->tensor_bytes += header->tensor_bytes;
    if (is_empty)
        move(table, header);
    else
        append(table, header);
    for (uint64_t i = first; i < table->entry_count; i++)
        table->entries[i].shard = shard;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- by name */

int
berthi_table_compare(const berthi_table *table, uint32_t a, uint32_t b)
{
    return berthi_name_compare(
        berthi_table_name(table, a), table->entries[a].name_length,
        berthi_table_name(table, b), table->entries[b].name_length);
}

static int
compare_entries(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    (void)shared;
    return berthi_table_compare(user, a, b);
}

berth_status
berthi_table_sort(berthi_table *table, berth_error *error)
{
    if (!berthi_sort_arrange(table->context, table->by_name, table->entry_count,
                             compare_entries, table))
        return berthi_fail_memory(error, "the table of tensors");
    return BERTH_OK;
}

uint64_t
berthi_table_find(const berthi_table *table, const char *name, uint64_t name_length)
{
    uint64_t low = 0;
    uint64_t high = table->entry_count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const uint32_t number = table->by_name[middle];
        const int order = berthi_name_compare(berthi_table_name(table, number),
                                              table->entries[number].name_length, name,
                                              name_length);

        if (order == 0)
            return number;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return BERTH_NO_TENSOR;
}
