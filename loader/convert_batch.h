/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_batch.h - the runs and units of one shard while they are converted.
 * Only for convert_shard.c, which makes and drives them, and convert_unit.c,
 * which does the work of one, with convert_encode.c for what becomes of values,
 * convert_line.c for what a device makes of them and convert_scratch.c for what
 * that takes, convert_begin.c and convert_end.c for the first and the last of a
 * run, and convert_keep.c for statistics that stay.
 *
 * Who waits for whom. Units lie in the order of their runs, and are given to
 * workers in that order (is_in_turn). A worker waits inside a unit
 *   - for the memory of its run, until all runs before have theirs, and so many
 *     of them have ended that there is room;
 *   - for another unit of its run that has begun it, and is in the case above;
 *   - for the strip before, when a weight is turned: for earlier units;
 *   - for a place, until all runs before have announced their late lengths,
 *     which they do when they end. A place that hangs on a later run even then
 *     is not waited for: the bytes are kept as a parcel;
 *   - for the lengths of other parts, when too much is kept so (part_lengths.h).
 * So all wait for earlier units only: of the units that are not done the first
 * waits for nothing, it is in a worker's hands or will be given to the next one,
 * and after a failure `is_stopped` ends every wait. Nobody waits for ever.
 */
#ifndef BERTH_LOADER_CONVERT_BATCH_H
#define BERTH_LOADER_CONVERT_BATCH_H

#include "loader/convert_job.h"
#include "loader/once.h"
#include "loader/stranded.h"

#define BERTHI_RUN_ALIGNMENT 64u /* of each array in the memory of a run */

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
    uint64_t read_max;    /* bytes that a unit reads                           */
    berthi_scratch_sizes scratch;
} berthi_run_plan;

typedef struct berthi_run {
    const berthi_recipe_weight *weight;
    const berthi_quantized *record; /* NULL: plain numbers */
    uint64_t stored_bytes;      /* of the weight's own tensor */
    berthi_run_plan plan;
    berthi_decoder decoder;     /* not of copied weights */
    berthi_quantizer quantizer; /* the same */
    berthi_once once;           /* it is begun; under the batch's lock */
    uint64_t units_left;        /* of all; under the lock */
    bool is_announced;          /* nobody waits for its lengths any more; the lock */
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

/* A worker's line of work on the device that encodes or decodes: one piece at a time. */
typedef struct berthi_convert_line {
    berthi_stream_end end; /* its device, NULL: the processor does it; stream and event */
    uint8_t *memory;       /* of the device: values, and behind them what is packed */
    uint64_t bytes;
    bool is_pinned;        /* the worker's scratch is */
    bool is_unsettled;     /* the last piece was not seen to have ended ... */
    bool is_late;          /* ... for as long as anything is waited for */
    const uint8_t *from;   /* what the last piece was copied from */
    berthi_left left;      /* the ring's buffer that this lies in: it may still be copied */
} berthi_convert_line;

/* What one worker needs at a time. */
typedef struct berthi_unit_scratch berthi_unit_scratch;
struct berthi_unit_scratch {
    berthi_kept kept;          /* first: what the context has of a line that hangs */
    berth_context *context;
    berthi_unit_scratch *next; /* free ones */
    uint8_t *values;           /* one allocation with what follows */
    uint8_t *packed;
    uint64_t bytes;
    berthi_convert_line line;
};

/* Values to be encoded at a time, and where the results belong. */
typedef struct berthi_convert_piece {
    const uint8_t *values;
    uint64_t count;
    berthi_quantized_part part;
} berthi_convert_piece;

typedef struct berthi_batch {
    berthi_convert *convert;
    uint32_t shard;
    bool is_finished;        /* nothing is written to this shard */
    bool is_measuring;       /* nothing is written at all: only lengths are wanted */
    berthi_writer_file *file;
    uint64_t payload;        /* where the payload begins in the file */
    berthi_run *runs;
    uint64_t run_count;
    uint64_t run_capacity;
    berthi_unit *units;
    uint64_t unit_count;
    berthi_file *files;      /* of the checkpoint */
    berthi_scratch_sizes scratch_sizes; /* of any of its runs */

    _Atomic bool has_unpinned; /* not all of the ring is pinned */

    pthread_mutex_t lock;    /* the layout, parcels and everything below */
    pthread_cond_t has_changed;
    bool is_stopped;
    uint64_t pool_used;
    uint64_t next_to_begin;  /* run: all before it have their memory */
    uint64_t announced;      /* runs before this one have announced their lengths */
    uint64_t parcel_bytes;   /* sent by this shard */
    berthi_unit_scratch *scratch; /* free */
} berthi_batch;

/* A device decodes it, and nobody encodes what comes of that. */
static inline bool
berthi_run_is_decoded_there(const berthi_run *run)
{
    return run->plan.scratch.device > 0
           && run->weight->storage.encoding == BERTH_ENCODING_NATIVE;
}

/* The unit of this number; `run` is set. */
berthi_unit berthi_run_unit(const berthi_run *run, uint32_t number_of_run,
                            uint64_t number);
/* Bytes of the weight's tensor that the unit needs. */
berthi_decoder_span berthi_unit_span(const berthi_run *run, const berthi_unit *unit);
/* Cuts a weight; allocates nothing. UNSUPPORTED: it has no pieces that are small enough. */
berth_status berthi_run_init(const berthi_convert *convert, berthi_run *run,
                             const berthi_recipe_weight *weight, berth_error *error);

/* The entry of the record's companion of this number. */
const berthi_entry *berthi_run_companion(const berthi_batch *batch, const berthi_run *run,
                                         uint32_t number);
/* Bytes of it; the file is as it was when it was opened. */
berth_status berthi_companion_read(berthi_batch *batch, const berthi_entry *entry,
                                   uint64_t offset, void *memory, uint64_t bytes,
                                   berth_error *error);

/* The first unit of a run begins it: memory, companions, statistics. */
berth_status berthi_run_begin(berthi_batch *batch, berthi_run *run, berth_error *error);
/* After its last unit: second level, state, constants. */
berth_status berthi_run_end(berthi_batch *batch, berthi_run *run, berth_error *error);
void berthi_run_free(berthi_batch *batch, berthi_run *run);
/*
 * Ends a weight that is kept as it is stored, after its last unit: copies its statistics, in
 * pieces of the run's memory, and counts what is not finite among them.
 */
berth_status berthi_run_keep(berthi_batch *batch, berthi_run *run, berth_error *error);

/* For errors. */
berthi_about berthi_run_about(const berthi_batch *batch, const berthi_run *run);
/* The output of this role; UINT32_MAX: the run has none. */
uint32_t berthi_run_output(const berthi_batch *batch, const berthi_run *run,
                           berthi_role role);

/* The zeroed line of scratch that has its memory; closed after a failure, too. */
berth_status berthi_line_open(berthi_device *device, uint64_t bytes,
                              berthi_unit_scratch *scratch, berth_error *error);
/* Encodes a piece into `packed` of the scratch; returns when it is there. */
berth_status berthi_line_encode(berthi_batch *batch, const berthi_run *run,
                                berthi_unit_scratch *scratch,
                                const berthi_convert_piece *piece, berth_error *error);
/*
 * Decodes a unit of which these are the bytes into `values` of the scratch, those that lead
 * in first; returns when they are there.
 */
berth_status berthi_line_decode(berthi_batch *batch, const berthi_run *run,
                                berthi_unit_scratch *scratch, const berthi_unit *unit,
                                const uint8_t *bytes, berth_error *error);
/* True: its last piece has not ended, and may never do. */
bool berthi_line_hangs(berthi_convert_line *line, uint64_t wait_ns);
/* A zeroed line is allowed. The scratch keeps its memory. */
void berthi_line_close(berthi_unit_scratch *scratch);
/* The ring's buffers for the device of the batch's lines. */
berthi_ring_pins berthi_line_pins(berthi_batch *batch);

/* The consumer of the conveyor: `spans[0].tag` is the unit. */
berth_status berthi_unit_consume(void *batch, const berthi_chunk *chunk,
                                 const berthi_span *spans, const uint8_t *bytes,
                                 berth_error *error);
void berthi_unit_stop(void *batch);

/* Widened to what a run with this plan needs. */
void berthi_scratch_widen(berthi_scratch_sizes *sizes, const berthi_run_plan *plan);
/* What a worker allocates. */
uint64_t berthi_scratch_bytes(const berthi_scratch_sizes *sizes);
/* One that is free, or a new one: never more than there are workers. */
berth_status berthi_scratch_take(berthi_batch *batch, berthi_unit_scratch **out,
                                 berth_error *error);
void berthi_scratch_give(berthi_batch *batch, berthi_unit_scratch *scratch);
void berthi_batch_free_scratch(berthi_batch *batch);

/* A piece that is packed: codes, and behind them its maxima. */
uint64_t berthi_packed_bytes(const berthi_quantized_part *part);
float *berthi_packed_maxima(uint8_t *packed, const berthi_quantized_part *part);
/*
 * Encodes values of a run, from its element `first` on, piece by piece, and puts what
 * comes out; plain numbers are put as they are.
 */
berth_status berthi_values_encode(berthi_batch *batch, berthi_run *run,
                                  berthi_unit_scratch *scratch, const uint8_t *values,
                                  uint64_t first, uint64_t count, berth_error *error);

/* It is converted, perhaps once more: its crc begins anew. Alone. */
void berthi_run_forget_source(const berthi_batch *batch, const berthi_run *run);
/* `bytes` are the unit's, once each. */
void berthi_unit_digest(const berthi_batch *batch, const berthi_run *run,
                        const berthi_unit *unit, const uint8_t *bytes);
/* A companion has been read, and this is its crc. */
void berthi_companion_digest(const berthi_batch *batch, const berthi_entry *entry,
                             uint32_t crc);
/* The run has read all that its weight is made of; copied bytes come later. */
berth_status berthi_run_hold_sources(const berthi_batch *batch, const berthi_run *run,
                                     berth_error *error);

/*
 * Bytes of the output in which the run has this role; nothing when it has none.
 * Written now, or kept as a parcel where the place is not known.
 */
berth_status berthi_batch_put(berthi_batch *batch, const berthi_run *run, berthi_role role,
                              uint64_t offset, const void *bytes, uint64_t size,
                              berth_error *error);
/* The run's lengths are known; `state_bytes` is that of its state, if it has one. */
berth_status berthi_batch_announce(berthi_batch *batch, berthi_run *run,
                                   uint64_t state_bytes, berth_error *error);

#endif
