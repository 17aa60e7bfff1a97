/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_job.h - a model while it is filled. Only for load*.c.
 *
 *   load.c        options, the job, the report
 *   load_units.c  berths -> units: what is read, in the order of the files
 *   load_padding.c what lies between the parts of berths
 *   load_memory.c what of it devices copy from
 *   load_hand.c   what a worker has of it, and what it has asked for
 *   load_place.c  the consumer of the conveyor: bytes -> berth, on any worker
 *   load_lane.c   streams of a device; values, and what encodes them there
 *   load_run.c    the first and the last unit of a weight that is encoded
 *   load_offload.c  the same of weights that are written to a file
 *   load_verify.c what a manifest promises of the bytes that pass
 *   load_end.c    what filling needed is given back, or kept while copies hang
 *
 * A unit is a stretch of one stored tensor that goes to its place whole. What is copied has
 * units of bytes of a part; what is encoded has units of values, so cut that their codes are
 * whole bytes and their blocks whole: units may be placed in any order.
 *
 * Host memory: a worker copies or encodes from the staging buffer into the slab.
 * A device: the worker asks its stream for copies and operations and then waits for
 * an event of its own, so that the staging buffer is free when it returns; the other
 * workers keep the stream busy meanwhile. A piece of values and the operation that
 * reads it are asked for together, under the tier's lock: all share two places on the
 * device.
 *
 * Who waits for whom: units are given to workers in order, several at once. One that begins
 * a weight waits for scratch until weights before it have taken theirs, and have ended where
 * it does not fit beside them. Scratch is taken in order because a worker may have units of
 * several weights: a later weight that took it first could have units left behind one that
 * waits for it. So weights before the first that has not begun never wait, and end.
 */
#ifndef BERTH_LOADER_LOAD_JOB_H
#define BERTH_LOADER_LOAD_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/pages.h"
#include "kernels/sys.h"
#include "loader/conveyor.h"
#include "loader/model.h"
#include "loader/once.h"
#include "loader/promises.h"
#include "loader/stranded.h"
#include "quant/dequantize.h"
#include "quant/quantize.h"

#define BERTHI_NO_RUN UINT32_MAX

/* Whole pages of host memory that devices may copy from; `at` NULL: none. */
typedef struct berthi_load_memory {
    uint8_t *at;
    uint64_t bytes;
    bool is_pinned; /* or else copies from it are waited for when they are asked for */
} berthi_load_memory;

/* A weight that is not copied: decoded, cast, encoded. */
typedef struct berthi_load_run {
    uint64_t berth;
    uint32_t tier;
    int32_t dtype;              /* of the values: as they are encoded */
    bool is_direct;             /* stored as such values: no decoding */
    bool is_double;
    const berthi_quantized *record; /* NULL: plain numbers */
    berthi_decoder decoder;
    berthi_quantizer quantizer;
    uint64_t elements;
    berthi_cut cut;             /* of the stored tensor: where the values lie */
    uint64_t unit;              /* elements of a unit, at most */
    uint64_t together;          /* no unit goes on behind so many that lie so; 0: one may */
    uint64_t piece;             /* elements that are encoded at a time */
    uint64_t values_bytes;      /* of decoded values of a unit; 0: is_direct */
    berthi_turning turning;     /* rows 0: it is not turned */
    berthi_load_memory turned;  /* all its values in their new order, while it is filled */
    uint64_t turned_bytes;
    uint32_t turned_turn;       /* of those that are turned */
    uint64_t quantized_bytes;   /* of its berth; 0: it is copied */
    uint8_t *codes;             /* where the parts of its berth lie */
    float *absmax;              /* first level: its part, or scratch where doubled */
    uint8_t *absmax_codes;      /* doubly quantized */
    float *absmax2;
    uint64_t absmax_bytes;      /* in scratch */
    uint32_t turn;              /* of those of its tier that take scratch */
    uint8_t *statistics;        /* of the record, prepared */
    uint64_t statistics_bytes;
    bool is_offloaded;          /* to a file: what of the above is not codes, in pieces */
    uint64_t part_offset[BERTHI_SLAB_PARTS]; /* of an offloaded one, in its berth, */
    uint64_t part_behind[BERTHI_SLAB_PARTS]; /* and bytes of it and the parts behind it */
    uint8_t *statistics_out;    /* doubly quantized: all of its own, until it ends */
    uint64_t statistics_out_bytes;
    berthi_once once;           /* under the load's lock */
    uint64_t units_left;        /* the same */
} berthi_load_run;

typedef struct berthi_load_unit {
    uint32_t run;    /* NO_RUN: bytes of a part */
    uint32_t tier;
    uint32_t entry;  /* of the checkpoint: the stored tensor that it is of */
    uint32_t berth;
    uint64_t first;  /* elements; of bytes: where they go in the slab */
    uint64_t count;  /* elements; bytes */
    uint32_t columns; /* of a part: in the load's list; BERTHI_NO_COLUMNS: all it reads */
} berthi_load_unit;

#define BERTHI_NO_COLUMNS UINT32_MAX

/* A part that is columns of its tensor, or absmax out of stored codes. */
typedef struct berthi_load_columns {
    berthi_cut cut;
    uint64_t place; /* in the slab */
    const berthi_quantized *record; /* whose second level absmax are made with; NULL: bytes */
} berthi_load_columns;

/* A weight's first-level absmax in the scratch of a tier. */
typedef struct berthi_load_region {
    uint64_t begin;
    uint64_t bytes; /* 0: none */
} berthi_load_region;

#define BERTHI_LOAD_REGIONS 64u

#define BERTHI_LOAD_PLACES 2u

/* Values that a device encodes: they come by a stream of their own, to places in turn. */
typedef struct berthi_load_values {
    berthi_stream *stream; /* NULL: there are none */
    berthi_event *filled[BERTHI_LOAD_PLACES];
    berthi_event *emptied[BERTHI_LOAD_PLACES];
    bool was_used[BERTHI_LOAD_PLACES]; /* emptied has been recorded */
    uint32_t next;
} berthi_load_values;

typedef struct berthi_load_tier {
    berthi_stream *stream;  /* NULL: host memory */
    berthi_load_values values; /* under `lock` */
    berthi_pages pages;     /* of the slab in host memory */
    pthread_mutex_t lock;   /* order of what the streams are asked for */
    /* Under the load's lock. */
    berthi_load_region regions[BERTHI_LOAD_REGIONS];
    uint32_t turns;         /* weights that take scratch; */
    uint32_t turn;          /* so many have, in the order of the files */
    uint32_t waiting;       /* workers, for their copies */
    uint64_t moved_ns;      /* when one's had ended, or the first began to wait */
    bool is_late;           /* one has waited for too long */
    _Atomic uint64_t copy_ns; /* workers copied, or waited for copies */
    berthi_stream_end end;  /* of the stream, once nobody asks it for more */
    berthi_stream_end values_end;
} berthi_load_tier;

/* What a worker needs at a time. */
typedef struct berthi_load_hand berthi_load_hand;
struct berthi_load_hand {
    berthi_load_hand *next; /* free ones */
    berthi_load_memory own; /* none where nothing is decoded and nothing gathered */
    uint8_t *values;        /* in it: decoded ones */
    uint8_t *gathered;      /* in it: of columns */
    berthi_load_memory turned; /* of a weight; none unless copies from it have failed */
    bool is_copied;         /* devices copy from these, and nobody has waited for that */
    uint8_t *packed;        /* a piece for a file; NULL: nothing is offloaded */
    berthi_event **events;  /* of tiers; NULL where one is host memory */
    bool *is_used;          /* of tiers: something was asked for */
    berthi_copy pending;    /* not asked for yet: the next may go on behind it */
    uint32_t pending_tier;
    uint32_t layer;         /* of what is placed now, and 1: for copies */
    uint32_t berth;         /* the same */
};

/* crc32 of what passes, held against a manifest. */
typedef struct berthi_load_verify {
    berthi_promises promises; /* where these are not on, nothing below is there */
    berthi_crcs actual;
    _Atomic uint64_t *left; /* of stored tensors: bytes to come; 0: none is promised */
    uint64_t left_count;
} berthi_load_verify;

typedef struct berthi_load {
    berthi_kept kept; /* first: what the context has of a load that hangs is this */
    berth_context *context;
    const berth_checkpoint *checkpoint;
    const berth_plan *plan;
    berth_load_options options;
    berth_slab_memory slab_memory; /* what options point to */
    char *offload_dir;             /* the same, the model's at the end; NULL: nothing is
                                      written */
    uint64_t offload_dir_bytes;
    struct berthi_offload *offload; /* the model's, as soon as there is one */
    berth_load_report report;
    berth_job *job;
    berth_model *model;
    berthi_operations operations;
    uint64_t start_ns;
    berthi_load_tier *tiers;
    berthi_load_run *runs;
    uint32_t run_count;
    berthi_load_unit *units;
    uint64_t unit_count;
    berthi_piece *pieces;
    berthi_load_columns *columns;
    uint32_t columns_count;
    uint64_t total;         /* bytes of all pieces */
    uint64_t pinned;        /* of slabs in host memory */
    uint64_t gathered_max;  /* of a unit */
    uint64_t piece_max;     /* the largest */
    uint64_t chunk_bytes;
    uint64_t ring_bytes;
    uint64_t values_max;    /* of a hand */
    uint64_t packed_max;    /* the same */
    uint64_t turned_max;    /* of a weight that is turned */
    uint64_t turned_sum;    /* of all of them */
    uint32_t turned_count;
    berthi_file *files;
    berthi_conveyor_stats stats;
    _Atomic uint64_t first_ns;
    _Atomic uint64_t placed;    /* of `total` */
    _Atomic uint64_t stored;    /* the same without what lies between columns */
    _Atomic uint64_t quantized; /* as they lie in berths */
    _Atomic uint64_t encode_ns; /* workers decoded and encoded */
    _Atomic bool has_unpinned; /* a staging buffer was refused */
    _Atomic bool is_unsettled; /* something was asked for that nobody could wait for */
    bool is_hung;              /* it hangs: streams, buffers and model are kept for it */
    berthi_lefts left;         /* buffers of the ring that are the load's own now */
    berthi_load_verify verify;

    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    bool is_stopped;
    berth_status failure;    /* of the first worker that failed and had copies to wait for */
    berth_error error;       /* the same */
    uint32_t turned_turn;    /* weights that have memory to be turned in, or had it; */
    uint64_t turned_used;    /* so much is in use */
    berthi_load_hand *hands; /* free */
} berthi_load;

/* ----------------------------------------------------------------- load_units.c */

/* What is to be read, and where it goes. Allocates runs, units and pieces. */
berth_status berthi_load_list(berthi_load *load, berth_error *error);

/* --------------------------------------------------------------- load_padding.c */

/* Slabs are there, nothing is in them; streams are asked for it before all else. */
berth_status berthi_load_clear_padding(berthi_load *load, berth_error *error);

/* ---------------------------------------------------------------- load_memory.c */

/*
 * Of this size, as scratch. `is_copied`: devices will copy from it, so it is pinned; refused,
 * it is not, and that is noted. False: there is none.
 */
bool berthi_load_memory_take(berthi_load *load, uint64_t bytes, bool is_copied,
                             berthi_load_memory *memory);
/* Nothing copies from it any more. None is allowed. */
void berthi_load_memory_give(berthi_load *load, berthi_load_memory *memory);

/* ------------------------------------------------------------------ load_hand.c */

/*
 * One that is free, or a new one: never more than there are workers, but where copies from
 * some have not ended, and the load has failed.
 */
berth_status berthi_load_hand_take(berthi_load *load, berthi_load_hand **out,
                                   berth_error *error);
void berthi_load_hand_give(berthi_load *load, berthi_load_hand *hand);
/* Where the load hangs, those that are copied from stay. */
void berthi_load_free_hands(berthi_load *load);
/* Bytes of a staging buffer into a slab; a device is asked, now or with their neighbours. */
berth_status berthi_load_hand_put(berthi_load *load, berthi_load_hand *hand, uint32_t tier,
                                  void *to, const uint8_t *bytes, uint64_t size,
                                  berth_error *error);
/* The same of what has been put together here; `copy` says from where, and whether pinned. */
berth_status berthi_load_hand_put_own(berthi_load *load, berthi_load_hand *hand,
                                      uint32_t tier, berthi_copy copy, berth_error *error);
/*
 * The staging buffer, and the hand's own memory, are free again when all that was asked for
 * here is done: after a failure, too, or else they stay with the load (load_end.c). `status`
 * is how it went until here.
 */
berth_status berthi_load_hand_settle(berthi_load *load, berthi_load_hand *hand,
                                     berth_status status, berth_error *error);
/* Its own memory is about to be written to. */
berth_status berthi_load_hand_empty(berthi_load *load, berthi_load_hand *hand,
                                    berth_error *error);

/* Time since then, by the clock of the machine. */
static inline void
berthi_load_count_since(_Atomic uint64_t *sum, uint64_t begin_ns)
{
    atomic_fetch_add_explicit(sum, berthi_sys_now_ns() - begin_ns, memory_order_relaxed);
}

/* ----------------------------------------------------------------- load_place.c */

berth_status berthi_load_consume(void *load, const berthi_chunk *chunk,
                                 const berthi_span *spans, const uint8_t *bytes,
                                 berth_error *error);
void berthi_load_stop(void *load);
/* For errors about a weight. */
berthi_about berthi_load_about(const berthi_load *load, uint64_t berth);

/* ------------------------------------------------------------------ load_lane.c */

/* Opens the lane of a device's tier; a failure leaves what berthi_load_lane_close() closes. */
berth_status berthi_load_lane_open(berthi_load *load, uint32_t tier, berth_error *error);
void berthi_load_lane_close(berthi_load *load, uint32_t tier);
/* Where the next values go, so many bytes. The tier's lock is held from here to _encode(). */
uint8_t *berthi_load_values_place(const berthi_load *load, uint32_t tier, uint64_t bytes);
/* `copy` brings them there, `request` reads them. */
berth_status berthi_load_values_encode(berthi_load *load, uint32_t tier,
                                       const berthi_copy *copy,
                                       const berthi_request *request, berth_error *error);
/* The stream was asked for what uses all places. The tier's lock is held. */
berth_status berthi_load_values_clear(berthi_load *load, uint32_t tier, berth_error *error);
/*
 * Waits for the ends of the tier's streams, from `now_ns` on, which is one for all tiers; `*event`
 * is for one of them, and NULL then.
 */
bool berthi_load_lane_hangs(berthi_load *load, uint32_t tier, uint64_t now_ns,
                            berthi_event **event);
/* They hung: true when both have ended meanwhile, or never will. */
bool berthi_load_lane_is_over(berthi_load *load, uint32_t tier);

/* ---------------------------------------------------------------- load_levels.c */

/* Memory for the absmax of so many codes of the cut from `at` on, and for their second levels. */
uint64_t berthi_load_levels_bytes(const berthi_cut *cut, uint64_t at, uint64_t count);
/* Reads the second levels of a unit's codes and makes its absmax. */
berth_status berthi_load_levels(const berthi_load *load, const berthi_load_unit *unit,
                                const uint8_t *codes, float *absmax, berth_error *error);

/* ------------------------------------------------------------------- load_run.c */

/* Cuts the weight, and finds where its parts lie. UNSUPPORTED where it cannot. */
berth_status berthi_load_run_init(const berthi_load *load, berthi_load_run *run,
                                  uint64_t berth, const berthi_cargo *cargo,
                                  berth_error *error);
/* Elements of the unit that begins there. */
uint64_t berthi_load_run_fit(const berthi_load_run *run, uint64_t at);
/* The first unit of a weight begins it, the others wait for that. */
berth_status berthi_load_run_begin(berthi_load *load, berthi_load_run *run,
                                   berth_error *error);
/* After its last unit; what the tier's stream is asked for counts as done. */
berth_status berthi_load_run_end(berthi_load *load, berthi_load_run *run,
                                 berthi_load_hand *hand, berth_error *error);
void berthi_load_run_fini(berthi_load *load, berthi_load_run *run);
/* The most host memory that weights which are turned take together. */
uint64_t berthi_load_turned_room(const berthi_load *load);

/* --------------------------------------------------------------- load_offload.c */

/* Opens the file of what has to be written, if anything; sizes are reported. */
berth_status berthi_load_offload_open(berthi_load *load, berth_error *error);
/* Where parts of the weight go; memory of hands grows with it. */
void berthi_load_offload_cut(berthi_load *load, berthi_load_run *run,
                             const berthi_cargo *cargo);
/* As encode_piece() and put_values() of load_place.c. */
berth_status berthi_load_offload_piece(berthi_load *load, berthi_load_hand *hand,
                                       const berthi_load_run *run, const uint8_t *values,
                                       uint64_t first, uint64_t count,
                                       berth_error *error);
berth_status berthi_load_offload_values(berthi_load *load, const berthi_load_run *run,
                                        const uint8_t *values, uint64_t first,
                                        uint64_t count, berth_error *error);
/* For double quantization: memory before the first piece, the second level behind the last. */
berth_status berthi_load_offload_begin(berthi_load *load, berthi_load_run *run,
                                       berth_error *error);
berth_status berthi_load_offload_finish(berthi_load *load, const berthi_load_run *run,
                                        berth_error *error);

/* ------------------------------------------------------------------- load_end.c */

/* As keep() of berthi_ring_pins. */
bool berthi_load_keep(void *load, uint8_t *memory, uint64_t bytes, bool is_pinned);
/*
 * What only filling needs; the model stays. Where copies hang, so do streams and buffers:
 * `is_hung`.
 */
void berthi_load_end(berthi_load *load);
/* All of it: of what hangs, when it has come back. */
void berthi_load_free(void *load);

/* ---------------------------------------------------------------- load_verify.c */

/* Which manifest: the options' texts are the caller's. */
berth_status berthi_load_verify_choose(berthi_load *load, berth_error *error);
/* Reads it, if there is one. Fails with what it says of other files. */
berth_status berthi_load_verify_init(berthi_load *load, berth_error *error);
/* All-zero is allowed. */
void berthi_load_verify_fini(berthi_load *load);
/* Bytes of a stored tensor have come; its last ones decide. EINTEGRITY (DIGEST). */
berth_status berthi_load_verify_add(berthi_load *load, uint64_t entry, uint64_t offset,
                                    const uint8_t *bytes, uint64_t size,
                                    berth_error *error);

#endif
