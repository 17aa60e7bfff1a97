/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.h - do index and shards say the same?
 *
 * Works on names only, after all headers were read. Both sides are in bytewise
 * order, so one pass compares them, and the order of the index becomes the
 * order of the whole table: linear in the number of tensors.
 */
#ifndef BERTH_LOADER_PREFLIGHT_H
#define BERTH_LOADER_PREFLIGHT_H

#include "loader/findings.h"
#include "loader/index.h"
#include "loader/shard.h"
#include "loader/table.h"

/*
 * Compares the index with the shards that were read, and puts table->by_name
 * in order. The number of a shard in the index is its number in `shards`.
 *
 *   in the index, not in its shard      error INDEX_TENSOR
 *   in a shard, in no index             warning INDEX_EXTRA, an error when strict
 *   in two shards, the index names one  warning DUPLICATE, the other is dropped
 *   in two shards, it names neither     error DUPLICATE
 */
berth_status berthi_preflight_index(const berthi_index *index, berthi_shard *shards,
                                    uint32_t shard_count, berthi_table *table,
                                    berthi_findings *findings, berth_error *error);

/* Without an index: sorts, and refuses a name that two files have. */
berth_status berthi_preflight_files(const berthi_shard *shards, berthi_table *table,
                                    berthi_findings *findings, berth_error *error);

#endif
