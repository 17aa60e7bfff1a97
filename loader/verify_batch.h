/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_batch.h - some neighbouring shards, read as a whole by one run of the
 * conveyor and digested on the way.
 *
 * A table of the chunks of the whole model would grow with the model: verify
 * takes one batch after the other.
 */
#ifndef BERTH_LOADER_VERIFY_BATCH_H
#define BERTH_LOADER_VERIFY_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/conveyor.h"
#include "loader/crcs.h"
#include "loader/sha256.h"

/* The SHA-256 of a shard that is a hub blob. */
typedef struct berthi_blob {
    const char *promised; /* by its name; NULL: not to be checked */
    berthi_sha256_digest *digest;
    uint64_t bytes; /* digested */
    char hex[BERTHI_SHA256_DIGITS + 1];
} berthi_blob;

typedef struct berthi_verify_batch {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    const berthi_crcs *crcs; /* where digests go; NULL: none are made */
    berthi_sha256 *sha256;   /* NULL: no blobs are checked */
    uint32_t first_shard;
    uint32_t count;
    uint64_t bytes;     /* of the files */
    berthi_file *files; /* copies: the checkpoint keeps the descriptors */
    berthi_blob *blobs;
    bool has_blobs;
    berthi_chunks chunks;
} berthi_verify_batch;

/*
 * Shards from `first_shard` on, at least one. `crcs` and `sha256` may be NULL.
 * On failure as after fini.
 */
berth_status berthi_verify_batch_init(berthi_verify_batch *batch, berth_context *context,
                                      const berth_checkpoint *checkpoint,
                                      uint32_t first_shard, const berthi_crcs *crcs,
                                      berthi_sha256 *sha256, uint64_t ring_bytes,
                                      berth_error *error);
void berthi_verify_batch_fini(berthi_verify_batch *batch);

/* Reads everything: crcs and the hex digits of the blobs are then complete. */
berth_status berthi_verify_batch_run(berthi_verify_batch *batch, berth_job *job,
                                     const berthi_conveyor_options *options,
                                     berthi_conveyor_stats *stats, berth_error *error);

#endif
