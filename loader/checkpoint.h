/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - the opened model: one table of tensors over all shards.
 *
 * Owns names, shapes and extents (one text, one array of entries, one order by
 * name), the shards' files, and what config.json says. Immutable once open
 * has returned.
 */
#ifndef BERTH_LOADER_CHECKPOINT_H
#define BERTH_LOADER_CHECKPOINT_H

#include "loader/file.h"
#include "loader/safetensors.h"

/* The shard's open file, valid until the checkpoint is closed. */
berth_status berthi_checkpoint_file(const berth_checkpoint *checkpoint, uint32_t shard,
                                    const berthi_file **out_file, berth_error *error);

#endif
