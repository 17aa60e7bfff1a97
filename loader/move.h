/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.h - a model that is loaded, on its way to other places. Only for move*.c.
 *
 *   move.c        the jobs: sleep, wake, move to another plan, swap; who may use the
 *                 model meanwhile
 *   move_plan.c   from one plan to another: what may move, what lies where
 *   move_check.c  whether a plan is one that the model can move to
 *   move_hold.c   sleep and wake: slabs <-> holds
 *   move_carry.c  bytes from one memory to another, piece by piece
 *   move_read.c   bytes from the checkpoint
 *   move_write.c  bytes to a file that has what the checkpoint does not
 *   move_left.c   what copies that hang still use
 *
 *   awake    each tier has its slab
 *   held     a copy of what is in the slab, berth behind berth, lies in host memory too
 *   asleep   a tier that is held has given its slab back
 *
 * Nothing is given back before its bytes lie elsewhere: in a hold, in a new slab, in a file
 * of the model's, or in the checkpoint as the berth holds them. What was encoded is never
 * encoded again.
 *
 * All or nothing: every step that can fail comes before the one that cannot be undone.
 * Only where a device has no room for the old and the new slab of a plan at once, and
 * where one model makes room for another, something is given back before: going back
 * then takes memory that was just given back. Should even that fail, the model is
 * asleep: its bytes are in the hold, and it can be woken when there is room.
 *
 * Copies that hang are waited for no longer than anything else. What the move would give
 * back then stays with its job, which the context keeps (stranded.h); what they use of the
 * model stays with the model, which is not moved, nor given back, before they are over.
 */
#ifndef BERTH_LOADER_MOVE_H
#define BERTH_LOADER_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/conveyor.h"
#include "loader/lease.h"
#include "loader/model.h"
#include "loader/stranded.h"

/* -------------------------------------------------------------- bytes (move_carry.c) */

/* Where bytes lie. */
typedef struct berthi_spot {
    uint8_t *memory;
    uint32_t device; /* of the model's; NO_DEVICE: host memory */
    bool is_pinned;  /* host memory */
} berthi_spot;

typedef struct berthi_transfer {
    berthi_spot from;
    berthi_spot to;
    uint64_t bytes;
} berthi_transfer;

typedef struct berthi_transfers {
    berth_context *context;
    berthi_transfer *at;
    uint64_t count;
    uint64_t capacity;
} berthi_transfers;

/* For `capacity` of them at most. */
berth_status berthi_transfers_init(berthi_transfers *transfers, berth_context *context,
                                   uint64_t capacity, berth_error *error);
void berthi_transfers_fini(berthi_transfers *transfers);
/* Behind the others; one that goes on where the last one ends becomes part of it. */
void berthi_transfers_add(berthi_transfers *transfers, const berthi_spot *from,
                          const berthi_spot *to, uint64_t bytes);

/* What one copy is asked for at most. */
#define BERTHI_CARRY_BYTES (UINT64_C(4) << 20)
/* Pieces of one transfer that a device has been asked for and has not done, at most. */
#define BERTHI_CARRY_DEPTH 4u
/* What they may take: a cancel waits for all of them. */
#define BERTHI_CARRY_NS UINT64_C(40000000)

typedef struct berthi_lane {
    berthi_device *device;
    berthi_stream *stream;
    berthi_event *events[BERTHI_CARRY_DEPTH];
    uint32_t depth; /* pieces at a time: more where they take less than CARRY_NS, or fewer */
    uint64_t asked; /* pieces */
    uint64_t done;  /* of them, that were waited for */
    bool is_unsettled; /* something was asked for that no event tells of */
    bool is_hung;      /* nobody asks it for anything more */
    berthi_stream_end end; /* of what hangs */
} berthi_lane;

/* Carries for one model, on one thread. */
typedef struct berthi_carrier {
    berth_model *model;
    berth_job *job;
    bool is_undoing;     /* a cancel does not stop it, and it is no progress */
    berthi_lane *lanes;  /* of the model's devices */
    uint32_t lane_count;
    uint64_t carried_bytes; /* in all */
    uint64_t read_bytes;
    uint64_t written_bytes;
    uint8_t *bounce;     /* on the way from a device; NULL: not needed so far */
    bool is_bounce_pinned;
    /* Where something hangs: see move_left.c. */
    bool is_hung;              /* a lane, or leases */
    berthi_leases *leases;     /* that could not begin, and whose copies hang */
    berthi_model_tier *left;   /* slabs and holds that are the model's no more */
    uint32_t left_count;
    uint32_t left_capacity;
    berthi_lefts buffers;      /* of the ring of what was read */
} berthi_carrier;

berth_status berthi_carrier_init(berthi_carrier *carrier, berth_model *model,
                                 berth_job *job, berth_error *error);
/* Nothing is under way, or it is over. A carrier that is zero is allowed. */
void berthi_carrier_fini(berthi_carrier *carrier);
/*
 * All of them, and waits until they are done; after a failure nothing is under way, or
 * the carrier is hung.
 */
berth_status berthi_carrier_carry(berthi_carrier *carrier,
                                  const berthi_transfers *transfers, berth_error *error);
/* Asks for one copy of a piece's size at most; the caller settles. */
berth_status berthi_carrier_ask(berthi_carrier *carrier, const berthi_spot *from,
                                const berthi_spot *to, uint64_t bytes,
                                berth_error *error);
/* One piece of `from` in host memory, where it is until the next one; waits for it. */
berth_status berthi_carrier_fetch(berthi_carrier *carrier, const berthi_spot *from,
                                  uint64_t bytes, berthi_spot *out, berth_error *error);
/* Zeroes, beside what was asked for. */
berth_status berthi_carrier_clear(berthi_carrier *carrier, const berthi_spot *at,
                                  uint64_t bytes, berth_error *error);
/*
 * Waits for all that was asked for, after a failure not for long: what does not end is
 * hung. `status`: of the work so far, which comes first.
 */
berth_status berthi_carrier_settle(berthi_carrier *carrier, berth_status status,
                                   berth_error *error);
bool berthi_carrier_is_cancelled(const berthi_carrier *carrier);
/* While memory is pinned for it: a cancel is heard, and what is pinned is no stall. */
berthi_pin_watch berthi_carrier_pin_watch(berthi_carrier *carrier);
/* A slab of its model, pinned where that is due. On failure there is none. */
berth_status berthi_carrier_create_slab(berthi_carrier *carrier, berthi_model_tier *tier,
                                        berth_error *error);

/* --------------------------------------------------------- what hangs (move_left.c) */

/* Gives back what the tier has; of a carrier that is hung, it stays with that. */
void berthi_carrier_free_slab(berthi_carrier *carrier, berthi_model_tier *tier);
void berthi_carrier_free_hold(berthi_carrier *carrier, berthi_model_tier *tier);
/* As keep() of berthi_ring_pins. */
bool berthi_carrier_keep(berthi_carrier *carrier, uint8_t *memory, uint64_t bytes,
                         bool is_pinned);
/* Hung: true when nothing is under way any more. Zero: true. Does not wait. */
bool berthi_carrier_is_over(berthi_carrier *carrier);
/* The memory of what was left, when that is over. */
void berthi_carrier_free_left(berthi_carrier *carrier);

/* --------------------------------------------------------- checkpoint (move_read.c) */

/* What of a file is read, and where it is put. */
typedef struct berthi_fetch {
    berthi_spot to;
    uint64_t offset;  /* in the file */
    uint64_t bytes;
    uint64_t padding; /* behind it, in its berth: zeroed */
    uint32_t file;    /* a shard of the checkpoint, behind them those of the offload */
} berthi_fetch;

/* In any order; several may be of one tensor. */
typedef struct berthi_reads {
    berth_context *context;
    berthi_fetch *at;
    uint64_t count;
    uint64_t capacity;
    uint64_t bytes;
} berthi_reads;

void berthi_reads_init(berthi_reads *reads, berth_context *context);
void berthi_reads_fini(berthi_reads *reads);
/* The parts of a berth that is as it is stored, or all of it, to its new place. */
berth_status berthi_reads_add(berthi_reads *reads, const berth_model *model,
                              uint64_t berth, const berthi_spot *to, berth_error *error);
/* One pass over the files, in the order of their bytes. */
berth_status berthi_reads_run(const berthi_reads *reads, berthi_carrier *carrier,
                              berth_error *error);

/* True where the checkpoint, or the offload, has the very bytes of the berth. */
bool berthi_move_is_stored(const berth_model *model, uint64_t berth);
/* A berth with bytes of its own. */
static inline bool
berthi_move_has_bytes(const berthi_berth *berth)
{
    return !berth->is_tied && berth->bytes > 0;
}
/* In the slab of its tier, or what is in its place there. */
berthi_spot berthi_move_spot(const berthi_model_tier *tier, uint64_t offset);

/* -------------------------------------------------------------- holds (move_hold.c) */

/* What of the model a hold of the tier takes, without what is discarded. */
uint64_t berthi_hold_bytes(const berth_model *model, uint32_t tier, bool discards);
/* True where the tier gives its slab back when the model sleeps. */
bool berthi_hold_is_due(const berth_model *model, uint32_t tier, bool discards);

/* A hold for the tier, and what has to be carried into it. */
berth_status berthi_hold_create(berthi_carrier *carrier, uint32_t tier, bool discards,
                                berthi_transfers *transfers, berth_error *error);
/* Frees the holds of all tiers that have their slab. */
void berthi_hold_free(berthi_carrier *carrier);
/* The berth in the hold of its tier; `at` is where the tier's last one ended. */
berthi_spot berthi_hold_spot(const berthi_model_tier *tier, uint64_t at);

/* Holds for all tiers that are to sleep, filled. On failure there are none. */
berth_status berthi_model_hold(berthi_carrier *carrier, bool discards,
                               berth_error *error);
/* Ends leases, gives the slabs of held tiers back. Cannot fail. */
void berthi_model_drop(berth_model *model);
/*
 * Slabs for all tiers without one, filled from holds and checkpoint; leases begin, when it
 * is too late to cancel. On failure as before. Holds stay: berthi_hold_free() makes it
 * final.
 */
berth_status berthi_model_raise(berthi_carrier *carrier, berth_error *error);

/* Bytes that waking carries and reads. */
uint64_t berthi_model_asleep_bytes(const berth_model *model);
/* Leases end, which nothing uses; what they did stays counted. */
void berthi_model_stop_leases(berth_model *model);
/*
 * Every byte is there: from here on the move cannot be cancelled, and leases begin. On
 * failure there are none, or they are left behind where their copies hang.
 */
berth_status berthi_carrier_begin_leases(berthi_carrier *carrier, berth_error *error);

/* --------------------------------------------------------------- plans (move_plan.c) */

/* From the model's plan to another. */
typedef struct berthi_replan {
    berth_model *model;
    const berth_plan *plan;   /* the new one */
    berthi_model_tier *tiers; /* of it */
    uint32_t tier_count;
    uint32_t flag_count;      /* tiers of the new plan, for these: */
    uint32_t *old_of;         /* the old plan's same memory; NO_TIER */
    bool *is_kept;            /* the slab stays as it is */
    bool *is_tight;           /* its device has no room for both slabs */
    berthi_reads reads;
    struct berthi_offload *offload; /* its file; NULL: none is made, or it is the model's */
    uint64_t bytes;           /* carried, read and written */
} berthi_replan;

/*
 * EINVAL: not the same tensors in the same encodings, or other devices; UNSUPPORTED: a
 * berth that was encoded would have to lie on the disk, for which the model has no folder,
 * or be encoded; NO_FIT.
 */
berth_status berthi_replan_init(berthi_replan *replan, berth_model *model,
                                const berth_plan *plan, berth_error *error);
void berthi_replan_fini(berthi_replan *replan);
/* Carries the model over; leases begin. On failure it has its old plan and no leases. */
berth_status berthi_replan_run(berthi_replan *replan, berthi_carrier *carrier,
                               berth_error *error);

/* ------------------------------------------------------------ checks (move_check.c) */

/* The plan has the same tensors in the same encodings. */
berth_status berthi_move_check_same(const berthi_replan *replan, berth_error *error);
/* Its GPUs are devices of the model. */
berth_status berthi_move_check_devices(const berthi_replan *replan, berth_error *error);
/* Fails with this reason, and names the tensor. */
berth_status berthi_move_refuse(const berthi_replan *replan, uint64_t berth,
                                berth_reason reason, const char *why, berth_error *error);

/* -------------------------------------------------------------- files (move_write.c) */

/*
 * What has to be written, from the slabs that the model still has, to a file that is the
 * replan's then. DISK_FULL: nothing has been written.
 */
berth_status berthi_replan_write(berthi_replan *replan, berthi_carrier *carrier,
                                 berth_error *error);

#endif
