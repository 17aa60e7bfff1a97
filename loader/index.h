/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - model.safetensors.index.json -> which tensor is in which shard.
 *
 * No I/O. Names of shards obey the path rule (paths.h), and no tensor is named
 * twice. Everything else in the document is skipped, but must be JSON. Linear in
 * the size of the text, whatever the order of names.
 */
#ifndef BERTH_LOADER_INDEX_H
#define BERTH_LOADER_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/safetensors.h"

#define BERTHI_INDEX_LIMIT UINT64_C(100000000)

typedef struct berthi_index_entry {
    uint32_t name; /* offset in `text`; ends in NUL */
    uint32_t name_length;
    uint32_t shard;
    uint32_t place; /* among the names of its shard, as the index lists them */
} berthi_index_entry;

typedef struct berthi_index {
    berth_context *context;
    char *text; /* names of tensors and shards, packed */
    uint64_t text_bytes;
    berthi_index_entry *entries; /* bytewise order of names */
    uint64_t entry_count;
    uint64_t *shards; /* offsets in `text`, NUL-terminated; bytewise order */
    uint32_t shard_count;
    uint32_t *listed; /* names as the index lists them, shard after shard: offsets */
    uint32_t *firsts; /* place in `listed` of each shard's first; one more: the end */
    bool has_total_size; /* an exact unsigned integer, or a float without fraction */
    uint64_t total_size;
    berthi_blamed blamed; /* after a failure */
} berthi_index;

/*
 * Parses `bytes` of text, which are changed. An empty weight_map, a value that
 * is no string, a repeated name (reason DUPLICATE) or a shard name that breaks
 * the path rule (reason PATH) is an error. A bare map without "weight_map" is
 * accepted. Free with berthi_index_fini(). After a failure `out` is all zero,
 * but for the name that is to blame, which lies in `text`; NULL when there is
 * none.
 */
berth_status berthi_index_parse(berth_context *context, char *text, uint64_t bytes,
                                const char *file, berthi_index *out,
                                berth_error *error);
void berthi_index_fini(berthi_index *index);

/* What the index lists for a shard, borrowed from it. */
berthi_name_list berthi_index_list(const berthi_index *index, uint32_t shard);

/* The path rule for one shard name; NULL when it holds, else what is wrong. */
const char *berthi_shard_name_problem(const char *name, uint64_t length);

#endif
