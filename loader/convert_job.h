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

#include "kernels/device.h"
#include "loader/convert.h"
#include "loader/conveyor.h"
#include "loader/job.h"
#include "loader/layout.h"
#include "loader/manifest.h"
#include "loader/promises.h"
#include "loader/recipe.h"
#include "loader/side_files.h"
#include "loader/writer.h"
#include "quant/dequantize.h"
#include "quant/quantize.h"

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
    uint64_t size;     /* of the bytes, which lie behind this struct */
    uint64_t capacity; /* that many could */
};

/* A weight with NaN or infinities: told once, however often it is converted. */
typedef struct berthi_convert_nonfinite berthi_convert_nonfinite;
struct berthi_convert_nonfinite {
    berthi_convert_nonfinite *next;
    uint32_t weight;
    uint64_t nan;
    uint64_t infinite;
};

/* A part (part.h) and a shard with which it converts something. */
typedef struct berthi_part_share {
    uint32_t shard;
    uint32_t part;
    uint32_t places_crc; /* of the lengths that it went by, as its notes say */
} berthi_part_share;

/* What is known of the source's tensors, by number. */
typedef struct berthi_convert_sources {
    berthi_crcs crcs; /* so far; of copied ones when their shard is finished */
    bool *is_read;    /* something of the output is made of it */
    berthi_promises promises;
} berthi_convert_sources;

/* What a worker has for a unit: bytes of its values, and of what a piece becomes. */
typedef struct berthi_scratch_sizes {
    uint64_t values; /* with those that a decoder leads in with */
    uint64_t packed; /* codes, and behind them maxima; 0: the processor decodes alone */
    uint64_t device; /* both, of a piece, on the device that encodes or decodes; 0: none does */
} berthi_scratch_sizes;

/* Where one lies behind the other. */
static inline uint64_t
berthi_scratch_round(uint64_t bytes)
{
    return berthi_round_up(bytes, 256);
}

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
    berthi_location location;     /* the source's folder */
    berthi_side_files side_files; /* as they were at the start, in there */
    uint32_t *file_crcs;          /* of them as they were copied; last of config.json    */
    uint64_t config_bytes;        /* of the new config.json; 0: there is none            */
    uint32_t config_crc;          /* of it                                               */
    berthi_layout *layout;
    berthi_writer *writer;
    bool has_kept; /* a writer that was closed has left something for a resume */
    berth_job *job;
    berthi_operations operations;
    berthi_device *device; /* that encodes and decodes, borrowed; NULL: the processor does */
    uint64_t patience_ns; /* at most: for the device, and for headers before there is a job */
    berthi_arena texts;
    char *identity;        /* what a resume must be the same in */
    uint64_t identity_bytes;
    uint32_t workers;
    uint64_t total;        /* bytes to read */
    berthi_scratch_sizes scratch; /* of any weight */
    uint64_t unit_memory;  /* of one worker */
    uint64_t run_memory;   /* of all runs under way */
    uint64_t ring_memory;
    uint64_t table_memory; /* runs and units of a shard, parcels */
    _Atomic uint32_t *crcs; /* one an output: crc32 so far */
    berthi_convert_sources sources;
    berthi_convert_done *done; /* one a shard */
    uint32_t done_capacity;
    uint32_t *part_of; /* one a weight: who converts it, from 1; NULL: this job does */
    uint32_t *guesses; /* one an output: of late ones what they were guessed at, else 0 */
    uint32_t *lengths; /* one an output: of late ones what they have, once it is known */
    bool *is_mixed;    /* one a shard: several parts have tensors in it */
    bool is_exchanging; /* parts tell each other those lengths (part_lengths.h) */
    uint64_t begun_ns;  /* when this part began */
    uint64_t asked_ns;  /* when it last looked for lengths */
    uint64_t heard_ns;  /* when it last heard of a length, or began a shard */
    berthi_part_share *shares; /* all pairs, by shard */
    uint32_t share_count;
    uint32_t share_capacity;
    uint32_t mixed_capacity;
    berthi_convert_parcel *parcels;
    berthi_convert_parcel *spare_parcels; /* for the next bytes to be kept */
    uint64_t spare_bytes;                 /* they have capacity for */
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

/* The most bytes of parcels that are kept for the next ones, which then need no new memory. */
#define BERTHI_CONVERT_SPARE_BYTES (UINT64_C(16) << 20)

/* So much a late length can be longer than its guess. */
#define BERTHI_CONVERT_LATE_SLACK 32u

/* True unless the weight is another part's. */
static inline bool
berthi_convert_is_mine(const berthi_convert *convert, uint32_t weight)
{
    return convert->part_of == NULL || convert->part_of[weight] == convert->options.part;
}

/* -------------------------------------------------------------------- convert.c */

/* The first division, by the lengths that `recipe.tensors` has now. */
berth_status berthi_convert_divide_anew(berthi_convert *convert, berth_error *error);

/* ---------------------------------------------------------------- convert_job.c */

/* What a job runs, and what it runs instead where nothing is to be written: the report alone. */
berth_status berthi_convert_run(berth_job *job, void *user, berth_error *error);
berth_status berthi_convert_run_dry(berth_job *job, void *user, berth_error *error);
/* Room in `done` for that many shards. */
berth_status berthi_convert_reserve_done(berthi_convert *convert, uint32_t shards,
                                         berth_error *error);

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

/* ------------------------------------------------------------- convert_output.c */

/*
 * ARGUMENT: the output is the source's folder, or one lies in the other, or files of the
 * source lie in the output, to which links lead, or a manifest that is read would be replaced.
 * NOT_REGULAR: something stands where a file is to be. Of a dry run also what the
 * writer would refuse. Fills report.free_bytes of one; there are side files and
 * report.output_bytes.
 */
berth_status berthi_convert_check_output(berthi_convert *convert,
                                         berth_error *error);

/* -------------------------------------------------------------- convert_stale.c */

/*
 * Where the new files replace an older model: what berth wrote with that one and nobody
 * has changed since goes when the new one is published. Other files that loaders
 * would take for the new model's are remarked upon. All files are written.
 */
berth_status berthi_convert_note_stale(berthi_convert *convert, berth_error *error);

/* ------------------------------------------------------------ convert_remarks.c */

/* Tells what succeeds, and may not be what was meant. */
void berthi_convert_remark(berthi_convert *convert);

/* ---------------------------------------------------------------- convert_put.c */

/* Where a shard is written: its file, and where the payload begins in it. */
typedef struct berthi_convert_target {
    berthi_writer_file *file;
    uint64_t payload;
} berthi_convert_target;

/* The file of a shard that parts share. */
berth_status berthi_convert_share(berthi_convert *convert, uint32_t shard,
                                  berthi_convert_target *out, berth_error *error);
/* True while a parcel for the shard has no place. */
bool berthi_convert_has_unplaced(const berthi_convert *convert, uint32_t shard);
/* What has been left for a shard. All its places are known now. */
berth_status berthi_convert_write_parcels(berthi_convert *convert, uint32_t shard,
                                          const berthi_convert_target *target,
                                          berth_error *error);
/*
 * A part: writes the parcels for shards with which it converts nothing into the
 * files that parts share, and flushes them.
 */
berth_status berthi_convert_send_parcels(berthi_convert *convert, berth_error *error);
/* Those that a shard sent. */
void berthi_convert_drop_parcels_from(berthi_convert *convert, uint32_t shard);
/* Those for a shard. */
void berthi_convert_drop_parcels_for(berthi_convert *convert, uint32_t shard);
void berthi_convert_drop_all_parcels(berthi_convert *convert);

/* -------------------------------------------------------------- convert_shard.c */

/*
 * Converts what belongs to a shard into a new file, whose payload begins at
 * *out_payload; its header is the caller's. Afterwards the lengths of all late
 * tensors of these weights are known.
 */
berth_status berthi_convert_shard(berthi_convert *convert, uint32_t shard,
                                  berthi_writer_file **out_file, uint64_t *out_payload,
                                  berth_error *error);
/* Of a shard that is finished: only what its weights have in later shards is made. */
berth_status berthi_convert_later(berthi_convert *convert, uint32_t shard,
                                  berth_error *error);
/*
 * Reads the weights of another part whose lengths in this shard are not known,
 * and finds these out; nothing is written.
 */
berth_status berthi_convert_measure_states(berthi_convert *convert, uint32_t shard,
                                           uint32_t part, berth_error *error);

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

/* The journal of an earlier run does not fit this file. */
berth_status berthi_convert_fail_adoption(const char *file,
                                          berth_error *error);

/* -------------------------------------------------------------- convert_notes.c */

/* What the journal keeps of a finished shard, beside its name and size. */
typedef struct berthi_convert_notes {
    uint32_t *words;
    uint64_t count;
} berthi_convert_notes;

/* The shard's bytes are complete. To be freed when it succeeds. */
berth_status berthi_convert_make_notes(berthi_convert *convert, uint32_t shard,
                                       berthi_convert_notes *out, berth_error *error);
void berthi_convert_free_notes(const berthi_convert *convert,
                               berthi_convert_notes *notes);
/*
 * Makes everything as it was when the notes of this finished shard were made: the
 * layout is divided again. All shards before it are taken over. JOURNAL: they are
 * no notes of such a shard.
 */
berth_status berthi_convert_take_notes(berthi_convert *convert, uint32_t shard,
                                       const berthi_writer_file *file,
                                       berth_error *error);

/* ------------------------------------------------------------ convert_sources.c */

/* There is a recipe. */
berth_status berthi_convert_init_sources(berthi_convert *convert, berth_error *error);
void berthi_convert_fini_sources(berthi_convert *convert);
/* Reads the source's manifest, if there is one; fails with what it says of other files. */
berth_status berthi_convert_read_promises(berthi_convert *convert, berth_error *error);
/* Holds a tensor that is read to its end against it. */
berth_status berthi_convert_hold_source(berthi_convert *convert, uint64_t tensor,
                                        berth_error *error);
/* The crc of an output is complete; that of a copied tensor is its source's, too. */
berth_status berthi_convert_hold_copied(berthi_convert *convert, uint32_t output,
                                        berth_error *error);
/*
 * The tensors, 0 and on, whose crcs are computed while the weight is converted;
 * BERTH_NO_TENSOR behind the last.
 */
uint64_t berthi_convert_source(const berthi_convert *convert,
                               const berthi_recipe_weight *weight, uint32_t number);
/* Everything is converted. */
berth_status berthi_convert_list_sources(berthi_convert *convert,
                                         berthi_manifest_writer *writer, berth_error *error);

/* ------------------------------------------------------------- convert_result.c */

/*
 * What the manifest says of the job: the identity, and how many weights have NaN
 * or infinities, if there are some. NULL: out of memory.
 */
const char *berthi_convert_job_text(berthi_convert *convert);
/*
 * True when the output is complete, and the same job has made it. With `resume` a finished model
 * that is not this job's, or not whole any more, is BERTH_EINVAL, and why.
 */
berth_status berthi_convert_find_result(berthi_convert *convert, bool *out_is_there,
                                        berth_error *error);

/* ------------------------------------------------------------- convert_copied.c */

/* A file beside the weights, as a manifest has it. */
typedef struct berthi_convert_entry {
    bool is_there;
    uint64_t bytes;
    uint32_t crc;
} berthi_convert_entry;

/* What the manifest of an output says of the source's files, which are in there. */
typedef struct berthi_convert_copied {
    berthi_convert *convert;
    berthi_convert_entry *entries; /* of side_files; last of config.json */
    uint32_t next;                 /* of them that is to be expected     */
} berthi_convert_copied;

berth_status berthi_convert_begin_copied(berthi_convert *convert, berthi_convert_copied *out,
                                         berth_error *error);
/* Takes a file of the manifest, in its order. */
void berthi_convert_note_copied(berthi_convert_copied *copied,
                                const berthi_manifest_file *file);
/* Reads those of the source: that some are others is a finding, a warning. */
berth_status berthi_convert_compare_copied(const berthi_convert_copied *copied,
                                           berth_error *error);

/* -------------------------------------------------------------- convert_files.c */

/* For config.json: as asked for, else as a quantized source says. */
const char *berthi_convert_compute_dtype(const berthi_convert *convert);
/*
 * Finds what goes along, and that it can be read. Fills side_files, and
 * report.output_bytes with what everything takes on the disk; there is a layout.
 */
berth_status berthi_convert_find_files(berthi_convert *convert, berth_error *error);
/* How many of report.output_bytes no earlier run has finished. There is a writer. */
uint64_t berthi_convert_missing_bytes(const berthi_convert *convert);
/* config.json, index, side files and manifest; their shards are finished. */
berth_status berthi_convert_add_files(berthi_convert *convert, berth_error *error);

#endif
