/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_job.h - the job behind berth_convert_start(), and what its parts
 * share. Only for convert*.c.
 *
 *   recipe ─▶ layout ─▶ shard after shard:  runs ─▶ units ─▶ conveyor ─▶ writer
 *
 * A run is one weight on its way: read in units, each a piece of its values,
 * decoded, encoded and written by whichever worker gets it. Runs of a shard
 * begin in the order of their place in it. A place that hangs on a length which
 * a run before it has yet to find out is waited for; nobody waits for a later
 * run, so somebody can always go on.
 */
#ifndef BERTH_LOADER_CONVERT_JOB_H
#define BERTH_LOADER_CONVERT_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel.h"
#include "loader/conveyor.h"
#include "loader/job.h"
#include "loader/layout.h"
#include "loader/recipe.h"
#include "loader/writer.h"
#include "quant/dequantize.h"
#include "quant/quantize.h"

#define BERTHI_CONVERT_RING (UINT64_C(128) << 20)
#define BERTHI_CONVERT_INDEX "model.safetensors.index.json"

/* Bytes for a tensor of a later shard: kept until that shard is finished. */
typedef struct berthi_convert_parcel berthi_convert_parcel;
struct berthi_convert_parcel {
    berthi_convert_parcel *next;
    uint32_t output;
    uint32_t home; /* shard of the run that sent it */
    uint64_t offset;
    uint64_t size; /* of the bytes, which lie behind this struct */
};

/* A finished shard. */
typedef struct berthi_convert_done {
    berthi_writer_file *file;
    uint32_t header_crc;
} berthi_convert_done;

typedef struct berthi_convert {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berth_convert_options options; /* texts are copied into `recipe` and `job_text` */
    berthi_recipe recipe;
    berthi_layout *layout;
    berthi_writer *writer;
    berth_job *job;
    berthi_operations operations;
    berthi_arena texts;
    const char *output;    /* the folder */
    char *identity;        /* what a resume must be the same in */
    uint64_t identity_bytes;
    uint32_t workers;
    uint64_t total;        /* bytes to read */
    uint64_t unit_memory;  /* of one worker */
    uint64_t run_memory;   /* of all runs under way */
    _Atomic uint32_t *crcs; /* one an output: crc32 so far */
    berthi_convert_done *done; /* one a shard */
    uint32_t done_capacity;
    berthi_convert_parcel *parcels;
    berth_convert_report report;
    _Atomic uint64_t write_ns;
    _Atomic uint64_t written;
    uint64_t wait_ns; /* reading waited for a free buffer */
    uint64_t work_ns;
    uint64_t path_bytes; /* read on the way that report.io_path names */
} berthi_convert;

/* ------------------------------------------------------------- convert_shard.c */

/*
 * Converts what belongs to a shard into a new file, whose payload begins at
 * *out_payload; its header is the caller's. With `is_finished` there is no file:
 * only what its weights have in later shards is made. Afterwards the lengths of
 * the shard's late tensors are known.
 */
berth_status berthi_convert_shard(berthi_convert *convert, uint32_t shard,
                                  bool is_finished, berthi_writer_file **out_file,
                                  uint64_t *out_payload, berth_error *error);
/* Fills total, unit_memory and run_memory. UNSUPPORTED: a weight cannot be cut. */
berth_status berthi_convert_measure(berthi_convert *convert, berth_error *error);
/* Those that a shard sent, or those for a shard. */
void berthi_convert_drop_parcels(berthi_convert *convert, bool is_home, uint32_t shard);

/* ------------------------------------------------------------- convert_files.c */

/* config.json, index, side files and manifest; their shards are finished. */
berth_status berthi_convert_add_files(berthi_convert *convert, berth_error *error);

#endif
