/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - the job behind berth_diff_start(), and what its parts share. Only
 * for diff*.c.
 *
 *   two recipes ─▶ pairs by name ─▶ batches of units ─▶ conveyor ─▶ sums in order
 *
 *   diff.c        the plan, the verdicts on weights, the report
 *   diff_pair.c   which weights belong together, and how each pair is cut
 *   diff_batch.c  batches of units: compared, and added up (diff_batch.h)
 *   diff_run.c    the statistics of both sides of a weight
 *   diff_unit.c   the work of one unit
 *   diff_sum.c    sums of differences, in a fixed order (diff_sum.h)
 *
 * A unit is a stretch of one weight's values, and the conveyor brings the bytes
 * of both sides, one after the other in the list. Whichever comes second finds
 * the first one parked: nobody ever waits for a read. What is parked is bounded
 * by the ring, because its other half is in the ring or next to be read. So both
 * checkpoints are read as one is: by the readers, at the speed of the disk.
 *
 * Two kinds of weights have stretches that do not correspond: MXFP4, whose
 * values are transposed expert by expert, against anything else; and the turned
 * weights of bitsandbytes against plain ones. There the conveyor brings one
 * side, the leader, and the worker itself reads what belongs to it of the other.
 */
#ifndef BERTH_LOADER_DIFF_H
#define BERTH_LOADER_DIFF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel.h"
#include "loader/conveyor.h"
#include "loader/diff_sum.h"
#include "loader/job.h"
#include "loader/recipe.h"
#include "quant/dequantize.h"

/* Values that are decoded and compared at a time: whole blocks of diff_sum.h. */
#define BERTHI_DIFF_TILE 16384u
/* Values of a unit, unless they can only be decoded in larger pieces. */
#define BERTHI_DIFF_UNIT (UINT64_C(1) << 20)

/* One side of a pair. */
typedef struct berthi_diff_side {
    const berthi_recipe_weight *weight; /* NULL: not there */
    const berthi_quantized *record;     /* NULL: plain numbers */
    const berthi_entry *entry;
    berthi_decoder decoder;             /* not for BYTES */
    uint64_t offset;                    /* of the tensor in its file */
    uint32_t file;                      /* in the job's list */
} berthi_diff_side;

typedef enum berthi_diff_mode {
    BERTHI_DIFF_BYTES,  /* numbers without common values: a unit counts bytes */
    BERTHI_DIFF_PAIRED, /* both sides come through the conveyor */
    BERTHI_DIFF_LED,    /* one does, whole units of it are decoded at a time */
    BERTHI_DIFF_TURNED  /* one does, its rows are columns of the other */
} berthi_diff_mode;

typedef struct berthi_diff_pair {
    berthi_diff_side sides[2];
    int32_t kind; /* berth_diff_kind: what follows only where it is COMPARED */
    berthi_diff_mode mode;
    uint32_t leader;     /* LED, TURNED: side that the conveyor brings */
    bool has_codes;      /* the same encoding on both sides */
    uint64_t elements;   /* to be cut; bytes in BYTES */
    uint64_t unit;       /* elements of a unit; the last one may be short */
    uint64_t unit_count;
} berthi_diff_pair;

/* What one worker needs for a unit, in floats and bytes. */
typedef struct berthi_diff_needs {
    uint64_t tile;   /* of each side */
    uint64_t whole[2];
    uint64_t strip;
    uint64_t row;
    uint64_t raw;    /* bytes */
    uint64_t parked; /* bytes */
    uint64_t chunk;  /* bytes that the conveyor brings at a time */
} berthi_diff_needs;

/* Where the merge of both lists of weights stands. */
typedef struct berthi_diff_cursor {
    uint32_t at[2];
} berthi_diff_cursor;

typedef struct berthi_diff {
    berth_context *context;
    const berth_checkpoint *checkpoints[2];
    berth_diff_options options;
    berth_job *job;
    berthi_operations operations;
    berthi_recipe recipes[2];
    uint32_t *order[2];     /* weights by the names of their values */
    berthi_file *files;     /* A's shards, then B's */
    uint32_t file_count;
    berthi_diff_needs needs;
    uint32_t workers;
    uint64_t ring_bytes;
    uint64_t total;         /* bytes that the conveyor brings */
    uint64_t pair_total;
    uint64_t unit_total;
    berthi_diff_cursor cursor; /* of the run */
    berthi_diff_found current; /* of the weight under way */
    bool is_current_same;      /* so far: the bytes of its units */
    berthi_diff_found all;
    berth_diff_report report;
    berth_error first;         /* of the weights that were rejected */
    _Atomic uint64_t read;     /* bytes that workers have read themselves */
    uint64_t path_bytes;       /* read on the way that report.io_path names */
} berthi_diff;

/* --------------------------------------------------------------- diff_pair.c */

/* Sorts both lists. */
berth_status berthi_diff_sort(berthi_diff *diff, berth_error *error);
/*
 * The next pair in the order of names; *out_has false behind the last.
 * UNSUPPORTED: a weight that can be decoded in pieces of too many values only.
 */
berth_status berthi_diff_next(const berthi_diff *diff, berthi_diff_cursor *cursor,
                              berthi_diff_pair *out, bool *out_has, berth_error *error);
/* Bytes of a side's tensor that hold elements [first, first + count). */
berthi_decoder_span berthi_diff_extent(const berthi_diff_pair *pair, uint32_t side,
                                       uint64_t first, uint64_t count);
/* Widens `needs` to what units of this pair take. */
void berthi_diff_add_needs(const berthi_diff_pair *pair, berthi_diff_needs *needs);
/* True where bytes hold numbers of 6 bits: units are whole groups of them. */
bool berthi_diff_has_sixes(const berthi_diff_pair *pair);
/* True where the conveyor brings this side. */
bool berthi_diff_is_carried(const berthi_diff_pair *pair, uint32_t side);
uint64_t berthi_diff_unit_elements(const berthi_diff_pair *pair, uint64_t number);

/* -------------------------------------------------------------- diff_batch.c */

/*
 * Compares everything, batch by batch, and calls `tell` for each pair in order,
 * with what was found; on the calling thread.
 */
typedef struct berthi_diff_verdict {
    const berthi_diff_pair *pair;
    const berthi_diff_found *found;
    bool is_same;            /* all bytes */
    bool has_same_statistics;
} berthi_diff_verdict;

typedef void (*berthi_diff_tell)(berthi_diff *diff, const berthi_diff_verdict *verdict);

berth_status berthi_diff_compare(berthi_diff *diff, berthi_diff_tell tell,
                                 berth_error *error);
/* Bytes of the tables of a batch. */
uint64_t berthi_diff_table_bytes(const berthi_diff *diff);

#endif
