/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_draft.h - between the two halves of the index's parser: the JSON, read
 * once from front to back, and the tables built from it.
 *
 * As with headers, sizes are not known beforehand, so what is read is packed
 * into records at the front of the text that has been read:
 *
 *   length of the name (32 bits, any alignment), name, NUL,
 *   shard, NUL                 the shard left out when it is the one before
 *
 * which is no longer than the text of the member and the comma behind it,
 * `"NAME":"SHARD",`; the last member lacks the comma, but `{` stands before.
 */
#ifndef BERTH_LOADER_INDEX_DRAFT_H
#define BERTH_LOADER_INDEX_DRAFT_H

#include <string.h>

#include "loader/index.h"
#include "quant/scan.h"

/* The first name to refuse, once the whole text has proved to be JSON. */
typedef struct berthi_index_refusal {
    bool is_set;
    uint64_t position;
    berthi_scan_text name;  /* of the tensor */
    berthi_scan_text shard; /* what `problem` is about, if any */
    const char *problem;    /* NULL: the name contains U+0000 */
} berthi_index_refusal;

/* Records and what has been counted about them. */
typedef struct berthi_index_records {
    uint64_t bytes;
    uint64_t entry_count;
    uint64_t name_bytes; /* NULs included */
    uint64_t run_count;  /* stretches of names in the same shard */
    berthi_scan_text shard; /* of the last record that names one */
    bool is_plain;          /* the shard: nothing in it was escaped */
    berthi_index_refusal refusal;
} berthi_index_records;

typedef struct berthi_index_draft {
    berthi_scan scan;
    berthi_scan_text tensor; /* being read; bytes NULL: none */
    berthi_index_records records;
    bool has_map;
    bool has_other; /* a root member that is no string: no bare map */
    bool has_total;
    uint64_t total;
} berthi_index_draft;

/*
 * Reads well-formed UTF-8 into records. False when it is not the JSON of an
 * index; draft->scan then knows what is wrong and where.
 */
bool berthi_index_draft_can_read(berthi_index_draft *draft, char *text, uint64_t bytes);

/* The name of the record at `at`, and what stands behind it: the shard. */
static inline const char *
berthi_index_draft_name(const char *at, const char **out_name, uint32_t *out_length)
{
    memcpy(out_length, at, sizeof *out_length);
    *out_name = at + sizeof *out_length;
    return *out_name + *out_length + 1;
}

#endif
