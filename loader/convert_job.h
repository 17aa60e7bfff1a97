/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_job.h - the job behind berth_convert_start(), and what its parts
 * share. Only for convert*.c.
 *
 *   recipe ─▶ layout ─▶ shard after shard:  runs ─▶ units ─▶ conveyor ─▶ writer
 *
 * A run is one weight on its way: read in units, each a piece of its values,
 * decoded, encoded and written by whichever worker gets it. Runs of a shard
 * begin in the order of their place in it; convert_batch.h says who waits for
 * whom.
 */
#ifndef BERTH_LOADER_CONVERT_JOB_H
#define BERTH_LOADER_CONVERT_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel.h"
#include "loader/convert.h"
#include "loader/conveyor.h"
#include "loader/job.h"
#include "loader/layout.h"
#include "loader/recipe.h"
#include "loader/writer.h"
#include "quant/dequantize.h"
#include "quant/quantize.h"

#define BERTHI_CONVERT_INDEX "model.safetensors.index.json"

/*
 * Bytes whose place is not known yet, mostly statistics for a later shard: kept
 * until everything else of that shard is written.
 */
typedef struct berthi_convert_parcel berthi_convert_parcel;
struct berthi_convert_parcel {
    berthi_convert_parcel *next;
    uint32_t output;
    uint32_t home; /* shard of the run that sent it */
    uint64_t offset;
    uint64_t size; /* of the bytes, which lie behind this struct */
};

/* A weight with NaN or infinities: told once, however often it is converted. */
typedef struct berthi_convert_nonfinite berthi_convert_nonfinite;
struct berthi_convert_nonfinite {
    berthi_convert_nonfinite *next;
    uint32_t weight;
    uint64_t nan;
    uint64_t infinite;
};

/* A finished shard. */
typedef struct berthi_convert_done {
    berthi_writer_file *file;
    uint32_t header_crc;
} berthi_convert_done;

typedef struct berthi_convert {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berth_convert_options options; /* texts are copied into `texts` */
    berthi_convert_sizes sizes;
    berthi_recipe recipe;
    berthi_layout *layout;
    berthi_writer *writer;
    berth_job *job;
    berthi_operations operations;
    berthi_arena texts;
    char *identity;        /* what a resume must be the same in */
    uint64_t identity_bytes;
    uint32_t workers;
    uint64_t total;        /* bytes to read */
    uint64_t unit_memory;  /* of one worker */
    uint64_t run_memory;   /* of all runs under way */
    uint64_t ring_memory;
    uint64_t table_memory; /* runs and units of a shard, parcels */
    _Atomic uint32_t *crcs; /* one an output: crc32 so far */
    berthi_convert_done *done; /* one a shard */
    uint32_t done_capacity;
    berthi_convert_parcel *parcels;
    berthi_convert_nonfinite *nonfinite;
    bool *is_nonfinite; /* one a weight: it is in that list */
    berth_convert_report report;
    _Atomic uint64_t write_ns;
    _Atomic uint64_t written;
    _Atomic uint64_t companions_read;
    uint64_t wait_ns; /* reading waited for a free buffer */
    uint64_t work_ns;
    uint64_t path_bytes; /* read on the way that report.io_path names */
} berthi_convert;

/* ----------------------------------------------------------- convert_identity.c */

/* What a resume must be the same in, a line each. */
berth_status berthi_convert_identify(berthi_convert *convert, berth_error *error);

/* --------------------------------------------------------------- convert_plan.c */

/*
 * Fills total and unit_memory, run_memory, ring_memory, table_memory. There is a
 * layout. UNSUPPORTED: a weight cannot be cut.
 */
berth_status berthi_convert_measure(berthi_convert *convert, berth_error *error);
/*
 * The shards that hold something of a weight: it is converted with the first;
 * the last one.
 */
void berthi_convert_find_shards(const berthi_convert *convert,
                                const berthi_recipe_weight *weight, uint32_t *first,
                                uint32_t *last);
/* ARGUMENT: the output is the source's folder, or one lies in the other. */
berth_status berthi_convert_check_output(berthi_convert *convert,
                                         berth_error *error);

/* -------------------------------------------------------------- convert_shard.c */

/*
 * Converts what belongs to a shard into a new file, whose payload begins at
 * *out_payload; its header is the caller's. With `is_finished` there is no file:
 * only what its weights have in later shards is made. Afterwards the lengths of
 * all late tensors of these weights are known.
 */
berth_status berthi_convert_shard(berthi_convert *convert, uint32_t shard,
                                  bool is_finished, berthi_writer_file **out_file,
                                  uint64_t *out_payload, berth_error *error);
/* Those that a shard sent, or those for a shard. */
void berthi_convert_drop_parcels(berthi_convert *convert, bool is_home, uint32_t shard);
void berthi_convert_drop_all_parcels(berthi_convert *convert);

/* ---------------------------------------------------------------- convert_end.c */

/*
 * Notes a weight's NaN and infinities, unless that was done before, and tells
 * them. NONFINITE: they are to be refused. Lock held, or alone.
 */
berth_status berthi_convert_note_nonfinite(berthi_convert *convert, uint32_t weight,
                                           uint64_t nan, uint64_t infinite,
                                           berth_error *error);

/* ------------------------------------------------------------- convert_finish.c */

/* Until all shards are there nobody knows how many: "model-00001.safetensors". */
void berthi_convert_name_shard(uint32_t shard, char out_name[BERTHI_LAYOUT_NAME]);
/* The shard that an earlier run has finished; NULL: it has not. */
berthi_writer_file *berthi_convert_find_finished(const berthi_convert *convert,
                                                 uint32_t shard);
/* Takes it over, with the lengths that it was made with. */
berth_status berthi_convert_adopt(berthi_convert *convert, uint32_t shard,
                                  berthi_writer_file *file, berth_error *error);
/* The payload lies at `payload`: puts the header before it and finishes the file. */
berth_status berthi_convert_complete(berthi_convert *convert, uint32_t shard,
                                     berthi_writer_file *file, uint64_t payload,
                                     berth_error *error);

/* ------------------------------------------------------------- convert_result.c */

/*
 * What the manifest says of the job: the identity, and how many weights have NaN
 * or infinities, if there are some. NULL: out of memory.
 */
const char *berthi_convert_job_text(berthi_convert *convert);
/* True when the output is complete, and the same job has made it. */
berth_status berthi_convert_find_result(berthi_convert *convert, bool *out_is_there,
                                        berth_error *error);

/* -------------------------------------------------------------- convert_files.c */

/* config.json, index, side files and manifest; their shards are finished. */
berth_status berthi_convert_add_files(berthi_convert *convert, berth_error *error);

#endif
