/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload.h - files with the berths of the disk that the checkpoint does not have as
 * a slot wants them, and their digests.
 *
 *   create ──▶ write, write, ... ──▶ end ──▶ read by leases, moves and checks ──▶ destroy
 *
 *   a file   [ berth | berth | ... ]   in the order of the plan, each as in a slab
 *
 * A load writes the first one. Each move that takes more to the disk adds one with just
 * that: what is written is never written again, and a move that fails has nothing to undo
 * but a file that nobody reads yet. A berth lies in one of them, whichever plan wants it.
 *
 * They have no names (nameless.h): a process that dies leaves nothing.
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
    struct berthi_offload *before; /* written earlier; NULL: the first one */
    uint32_t number;        /* of files before */
} berthi_offload;

/*
 * A file below `folder`, which is made (0700) where it is not there, for all berths of the
 * model that lie on the disk in `plan`, are not in the checkpoint as they have to be, and
 * are in none of the model's files. *out is NULL where there is none; it is the model's
 * with berthi_offload_add(). DISK_FULL: no room for them, by so many bytes.
 */
berth_status berthi_offload_create(const berth_model *model, const berth_plan *plan,
                                   const char *folder, berthi_offload **out,
                                   berth_error *error);
/* The file is gone with this, and those before it. NULL is allowed. */
void berthi_offload_destroy(berthi_offload *offload);

/* It becomes the model's newest file. NULL: nothing. */
void berthi_offload_add(berth_model *model, berthi_offload *offload);
/* That which was added last is not the model's any more. NULL: nothing. */
void berthi_offload_remove(berth_model *model, berthi_offload *offload);

/* The file that has the berth, at its offsets[berth]; NULL: none. `newest` may be NULL. */
const berthi_offload *berthi_offload_find(const berthi_offload *newest, uint64_t berth);

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
/* All is written: on the disk, and no longer in memory. `job` can be cancelled, and moves on. */
berth_status berthi_offload_end(berthi_offload *offload, berth_job *job,
                                berth_error *error);
/* The digest of what this very file has of a berth. */
berth_status berthi_offload_digest(const berthi_offload *offload, uint64_t berth,
                                   const berthi_cargo *cargo, uint32_t *out_crc,
                                   berth_error *error);

/* The same as it was when it was written; `otherwise` where no file has it. */
uint32_t berthi_offload_crc(const berthi_offload *newest, uint64_t berth,
                            uint32_t otherwise);

/* Files that a model is read from: shards, and behind them those it has written. */
static inline uint32_t
berthi_offload_file_count(const berth_model *model)
{
    return model->checkpoint->shard_count
           + (model->offload != NULL ? model->offload->number + 1 : 0);
}
/* The number of one of them. */
static inline uint32_t
berthi_offload_file_number(const berth_model *model, const berthi_offload *offload)
{
    return model->checkpoint->shard_count + offload->number;
}

#endif
