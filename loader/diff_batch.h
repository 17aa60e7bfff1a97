/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_batch.h - the runs and units that one run of the conveyor compares. Only
 * for diff_batch.c, which makes and drives them, and diff_unit.c, which does
 * the work of one.
 */
#ifndef BERTH_LOADER_DIFF_BATCH_H
#define BERTH_LOADER_DIFF_BATCH_H

#include "loader/diff.h"
#include "loader/once.h"

/* Units of a batch, and runs: some megabytes of tables. */
#define BERTHI_DIFF_BATCH 2048u

/* One weight, or as much of it as the batch has room for. */
typedef struct berthi_diff_run {
    berthi_diff_pair pair;
    uint64_t first_unit; /* number in the weight */
    uint64_t unit_count; /* of the batch; 0: nothing is compared */
    berthi_once once;         /* it is begun; under the lock, as the next */
    uint64_t units_left;
    uint8_t *memory;     /* statistics of both sides */
    uint64_t memory_bytes;
    bool has_same_statistics;
    bool is_same;        /* the same companions, byte for byte */
} berthi_diff_run;

typedef struct berthi_diff_unit {
    uint32_t run;
    uint64_t first; /* element */
    uint64_t count;
    berthi_once once;        /* one side is parked; under the lock */
    uint8_t *parked;
    bool is_same;
} berthi_diff_unit;

/* What one worker needs at a time. */
typedef struct berthi_diff_scratch berthi_diff_scratch;
struct berthi_diff_scratch {
    berthi_diff_scratch *next; /* free ones */
    float *tiles[2];
    float *whole[2];
    float *strip;
    float *row;
    uint8_t *raw;
};

/* A buffer for what came first; they have all the same size. */
typedef struct berthi_diff_parking berthi_diff_parking;
struct berthi_diff_parking {
    berthi_diff_parking *next; /* free ones */
};

typedef struct berthi_diff_batch {
    berthi_diff *diff;
    berthi_diff_run *runs;
    berthi_diff_unit *units;
    berthi_diff_found *found; /* one a unit */
    berthi_piece *pieces;     /* two a unit at most; tag: unit * 2 + side */
    uint64_t run_capacity;
    uint64_t unit_capacity;
    uint64_t run_count;
    uint64_t unit_count;
    uint64_t piece_count;

    pthread_mutex_t lock; /* everything below, once and counters */
    pthread_cond_t has_changed;
    bool is_stopped;
    berthi_diff_scratch *scratch; /* free */
    berthi_diff_parking *parking; /* free */
} berthi_diff_batch;

/* ----------------------------------------------------------------- diff_run.c */

/* Bytes of a file of the job, on the thread that wants them. */
berth_status berthi_diff_read(berthi_diff_batch *batch, uint32_t file, void *buffer,
                              uint64_t bytes, uint64_t offset, berth_error *error);
/* Reads, compares and prepares the statistics of both sides. */
berth_status berthi_diff_begin_run(berthi_diff_batch *batch, berthi_diff_run *run,
                                   berth_error *error);
/* The same on the first call for a run; the others wait until that is done. */
berth_status berthi_diff_enter_run(berthi_diff_batch *batch, berthi_diff_run *run,
                                   berth_error *error);
/* Gives the statistics back; once more is allowed. */
void berthi_diff_end_run(berthi_diff_batch *batch, berthi_diff_run *run);

/* ---------------------------------------------------------------- diff_unit.c */

/* The consumer of the conveyor. */
berth_status berthi_diff_unit_consume(void *batch, const berthi_chunk *chunk,
                                      const berthi_span *spans, const uint8_t *bytes,
                                      berth_error *error);
void berthi_diff_unit_stop(void *batch);
void berthi_diff_free_scratch(berthi_diff_batch *batch);
/* Bytes of scratch that a worker allocates. */
uint64_t berthi_diff_scratch_bytes(const berthi_diff_needs *needs);

#endif
