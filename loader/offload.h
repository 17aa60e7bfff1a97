/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload.h - a file with the berths of the disk that the checkpoint does not have as
 * a slot wants them, and their digests.
 *
 *   create ──▶ write, write, ... ──▶ end ──▶ read by leases, moves and checks ──▶ destroy
 *
 *   the file   [ berth | berth | ... ]   in the order of the plan, each as in a slab
 *
 * It has no name (nameless.h): a process that dies leaves nothing.
 */
#ifndef BERTH_LOADER_OFFLOAD_H
#define BERTH_LOADER_OFFLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/file.h"
#include "loader/job.h"
#include "loader/model.h"

#define BERTHI_NOT_OFFLOADED UINT64_MAX

typedef struct berthi_offload {
    berth_context *context;
    char *path;             /* of the folder, as the caller writes it; in messages */
    uint64_t path_bytes;
    berthi_file file;       /* its identity is that of the end */
    uint64_t *offsets;      /* of berths, in the file; NOT_OFFLOADED */
    _Atomic uint32_t *crcs; /* of berths, as they were written */
    uint64_t berth_count;
    uint64_t bytes;
} berthi_offload;

/*
 * A file below `folder`, which is made (0700) where it is not there, for all berths of
 * the plan that lie on the disk and are not in the checkpoint as they have to be. *out
 * is NULL where there is none. DISK_FULL: no room for them, by so many bytes.
 */
berth_status berthi_offload_create(berth_context *context,
                                   const berth_checkpoint *checkpoint,
                                   const berth_plan *plan, const char *folder,
                                   berthi_offload **out, berth_error *error);
/* The file is gone with this. NULL is allowed. */
void berthi_offload_destroy(berthi_offload *offload);

/* Where a berth lies in the file; NOT_OFFLOADED. `offload` may be NULL. */
uint64_t berthi_offload_find(const berthi_offload *offload, uint64_t berth);

/* Bytes of a berth: `behind` follow them in its parts, padding not counted. */
typedef struct berthi_offload_bytes {
    uint64_t berth;
    uint64_t offset; /* in the berth */
    uint64_t behind;
    const void *bytes;
    uint64_t size;
} berthi_offload_bytes;

/* Each byte of a part once, in any order, on any thread. */
berth_status berthi_offload_write(berthi_offload *offload,
                                  const berthi_offload_bytes *bytes, berth_error *error);
/* All is written: on the disk, and no longer in memory. `job` can be cancelled. */
berth_status berthi_offload_end(berthi_offload *offload, const berth_job *job,
                                berth_error *error);
/* The digest of what the file has of a berth. */
berth_status berthi_offload_digest(const berthi_offload *offload, uint64_t berth,
                                   const berthi_cargo *cargo, uint32_t *out_crc,
                                   berth_error *error);

/* The same as it was when it was written; `otherwise` where the file has none of it. */
uint32_t berthi_offload_crc(const berthi_offload *offload, uint64_t berth,
                            uint32_t otherwise);

/*
 * Files that a model is read from: shards, and behind them (number shard_count) that of
 * its offload, where it has one.
 */
static inline uint32_t
berthi_offload_file_count(const berth_model *model)
{
    return model->checkpoint->shard_count + (model->offload != NULL);
}

#endif
