/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - the tensors of all shards in one table.
 *
 * One text, one array of entries (40 bytes each), one order by name (4 bytes
 * each). The only shard of a model hands its arrays over; those of several are
 * appended one by one, so that never more than one header exists beside the
 * table. Numbers of entries are those of berth.h: shard by shard, in the order
 * of their bytes.
 */
#ifndef BERTH_LOADER_TABLE_H
#define BERTH_LOADER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/safetensors.h"

typedef struct berthi_table {
    berth_context *context;
    char *text;
    berthi_entry *entries;
    /*
     * Numbers of entries: while shards are taken, those of each shard in
     * bytewise order of names (unless is_as_listed), shard after shard; afterwards of
     * all of them.
     */
    uint32_t *by_name;
    uint64_t text_bytes;
    uint64_t text_capacity;
    uint64_t entry_count;
    uint64_t entry_capacity;
    uint64_t tensor_bytes;
} berthi_table;

void berthi_table_init(berthi_table *table, berth_context *context);
/* All-zero is allowed. */
void berthi_table_fini(berthi_table *table);

/* Makes room in a table that is empty. False: out of memory. */
bool berthi_table_make_room(berthi_table *table, uint64_t entries, uint64_t text_bytes);

/*
 * Takes names, shapes and extents out of `header`, whose `pairs` stay, and
 * gives the entries the shard's number. *out_text is where the header's text
 * now begins.
 */
berth_status berthi_table_take(berthi_table *table, berthi_header *header, uint32_t shard,
                               uint64_t *out_text, berth_error *error);

/*
 * Puts by_name in order by sorting, for models without an index. The caller
 * looks for neighbours of the same name.
 */
berth_status berthi_table_sort(berthi_table *table, berth_error *error);

/* Name of an entry by its number. */
static inline const char *
berthi_table_name(const berthi_table *table, uint64_t number)
{
    return table->text + table->entries[number].text;
}

/* Compares two entries by name. */
int berthi_table_compare(const berthi_table *table, uint32_t a, uint32_t b);

/* Number of the entry of this name, or BERTH_NO_TENSOR. by_name is in order. */
uint64_t berthi_table_find(const berthi_table *table, const char *name,
                           uint64_t name_length);

#endif
