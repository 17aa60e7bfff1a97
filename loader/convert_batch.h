/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_batch.h - the runs and units of one shard while they are converted.
 * Only for convert_shard.c, which makes and drives them, and convert_unit.c,
 * which does the work of one.
 */
#ifndef BERTH_LOADER_CONVERT_BATCH_H
#define BERTH_LOADER_CONVERT_BATCH_H

#include "loader/convert_job.h"

/* Memory of runs that are under way; a larger one comes alone. */
#define BERTHI_CONVERT_POOL (UINT64_C(64) << 20)
/* Turned weights are put together in strips of at most so many bytes. */
#define BERTHI_CONVERT_STRIP (UINT64_C(48) << 20)

typedef enum berthi_run_phase {
    BERTHI_RUN_IDLE,
    BERTHI_RUN_BEGINNING,
    BERTHI_RUN_READY
} berthi_run_phase;

/* How a weight is cut: the same whether or not its memory is there. */
typedef struct berthi_run_plan {
    uint64_t unit;        /* elements of a unit; bytes of copied weights       */
    uint64_t strip;       /* turned: new rows that are put together at a time  */
    uint64_t strip_count; /* 1 for all others                                  */
    uint64_t strip_units; /* units that each strip reads                       */
    uint64_t piece;       /* elements that are encoded at a time               */
    uint64_t companion_bytes;
    uint64_t statistics_bytes;
    uint64_t double_bytes; /* doubly quantized: both levels                    */
    uint64_t memory;      /* all that the run allocates                        */
    uint64_t values_max;  /* bytes of values of one unit, its lead included    */
    uint64_t codes_max;   /* bytes and first-level absmax of one piece         */
    uint64_t maxima_max;
} berthi_run_plan;

typedef struct berthi_run {
    const berthi_recipe_weight *weight;
    const berthi_quantized *record; /* NULL: plain numbers */
    uint64_t stored_bytes;      /* of the weight's own tensor */
    berthi_run_plan plan;
    berthi_decoder decoder;     /* not of copied weights */
    berthi_quantizer quantizer; /* the same */
    berthi_run_phase phase;     /* under the batch's lock */
    uint64_t units_left;        /* of all; under the lock */
    uint64_t strip_number;      /* the one under way; under the lock */
    uint64_t strip_left;        /* units of it; under the lock */
    uint8_t *memory;            /* plan.memory bytes: what follows lies in it */
    uint8_t *strip;             /* turned: values in their new order */
    float *absmax;              /* doubly quantized: first level of all */
    uint8_t *codes;             /* doubly quantized: of the first level */
    float *absmax2;
    float *scratch;
    _Atomic uint64_t nan;
    _Atomic uint64_t infinite;
} berthi_run;

typedef struct berthi_unit {
    uint32_t run;
    uint64_t first; /* elements of the values as read; bytes of copied weights */
    uint64_t count;
    uint64_t strip; /* number */
} berthi_unit;

/* What one worker needs at a time. */
typedef struct berthi_unit_scratch berthi_unit_scratch;
struct berthi_unit_scratch {
    berthi_unit_scratch *next; /* free ones */
    uint8_t *values;
    uint8_t *codes;
    float *maxima;
};

typedef struct berthi_batch {
    berthi_convert *convert;
    uint32_t shard;
    bool is_finished;        /* nothing is written to this shard */
    berthi_writer_file *file;
    uint64_t payload;        /* where the payload begins in the file */
    berthi_run *runs;
    uint64_t run_count;
    uint64_t run_capacity;
    berthi_unit *units;
    uint64_t unit_count;
    berthi_file *files;      /* of the checkpoint */
    uint64_t values_max;     /* of scratch */
    uint64_t codes_max;
    uint64_t maxima_max;

    pthread_mutex_t lock;    /* the layout, parcels and everything below */
    pthread_cond_t has_changed;
    bool is_stopped;
    uint64_t pool_used;
    berthi_unit_scratch *scratch; /* free */
} berthi_batch;

/* The unit of this number; `run` is set. */
berthi_unit berthi_run_unit(const berthi_run *run, uint32_t number_of_run,
                            uint64_t number);
/* Bytes of the weight's tensor that the unit needs. */
berthi_decoder_span berthi_unit_span(const berthi_run *run, const berthi_unit *unit);
/* Cuts a weight; allocates nothing. UNSUPPORTED: it has no pieces that are small enough. */
berth_status berthi_run_init(const berthi_convert *convert, berthi_run *run,
                             const berthi_recipe_weight *weight, berth_error *error);

/* The consumer of the conveyor: `spans[0].tag` is the unit. */
berth_status berthi_unit_consume(void *batch, const berthi_chunk *chunk,
                                 const berthi_span *spans, const uint8_t *bytes,
                                 berth_error *error);
void berthi_unit_stop(void *batch);

void berthi_batch_free_scratch(berthi_batch *batch);
void berthi_batch_free_run(berthi_batch *batch, berthi_run *run);

/* Writes to an output of the shard, now, or keeps a parcel for a later shard. */
berth_status berthi_batch_put(berthi_batch *batch, uint32_t output, uint64_t offset,
                              const void *bytes, uint64_t size, berth_error *error);
/* The length of a late tensor. */
void berthi_batch_set_bytes(berthi_batch *batch, uint32_t output, uint64_t bytes);

#endif
