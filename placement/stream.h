/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - what of a device's layers stays on it, what is brought for each pass,
 * through which slots, and how long a pass takes.
 *
 *   pieces of layers ──settle──▶ resident or streamed, slots ──time──▶ a pass
 *
 * A piece is what stays or goes as one: a tensor, or the tensors of one expert.
 * The streamed pieces of one layer are its unit: copied at once into a slot, before
 * the layer is computed. Passes repeat: what is streamed is the same in each.
 *
 * Pure. Seconds are doubles computed in one order: the same input gives the same
 * times everywhere.
 */
#ifndef BERTH_PLACEMENT_STREAM_H
#define BERTH_PLACEMENT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

#define BERTHI_STREAM_SLOTS_MAX 8u

typedef enum berthi_piece_kind {
    BERTHI_PIECE_FIXED,  /* stays: norms, biases, routers, what is pinned        */
    BERTHI_PIECE_DENSE,  /* all of it in every pass                              */
    BERTHI_PIECE_EXPERT, /* one of a layer's experts: brought when it is chosen  */
    BERTHI_PIECE_IDLE,   /* rows are fetched one by one: an embedding; no slot   */
    BERTHI_PIECE_AWAY    /* dense, and may not stay                              */
} berthi_piece_kind;

#define BERTHI_PIECE_KINDS 5u

typedef struct berthi_stream_piece {
    uint64_t bytes;
    uint32_t layer;   /* of the device's, in the order of execution: ascending */
    uint8_t kind;     /* berthi_piece_kind */
    bool is_resident; /* out */
} berthi_stream_piece;

/* One device, and the layers whose home it is. Sums of bytes stay below 2^62. */
typedef struct berthi_stream_device {
    berthi_stream_piece *pieces;
    uint32_t piece_count;
    uint32_t layer_count;
    const double *compute; /* seconds of each layer; NULL: unknown, bytes instead */
    uint64_t room;         /* bytes for resident pieces and slots */
    uint64_t rate;         /* bytes a second that can be brought; never 0 */
    uint32_t expert_count; /* of a layer, all alike; 0: no pieces of experts */
    uint32_t experts_used; /* of them in a pass */
    uint32_t slots;        /* of dense units, 1 to the maximum; 0: as many as are best */
    uint64_t alignment;    /* of a unit or expert in a slot: a power of two */
} berthi_stream_device;

/* What has been settled. */
typedef struct berthi_stream_result {
    uint64_t resident;     /* bytes, fixed ones included */
    uint64_t streamed;     /* bytes of dense and away pieces: all of them each pass */
    uint64_t experts;      /* bytes of experts that are not resident */
    uint64_t idle;         /* bytes of idle pieces that are not */
    uint64_t slot_bytes;   /* of one; the largest unit, aligned */
    uint64_t expert_slot_bytes; /* for all experts of one pass through one layer; more
                                   are added when all else has its place (plan.h), */
    uint32_t expert_slots;      /* so many then, for so many experts, */
    uint32_t experts_away;
    double expert_hits;         /* which of them find theirs, 0 to 1 */
    uint32_t slots;        /* 0: nothing dense is streamed */
    uint32_t unit_count;   /* layers with streamed bytes */
    uint64_t missing;      /* bytes; 0: it fits. Else nothing but fixed pieces stays */
    double seconds;        /* of a pass over these layers alone, all from host memory */
} berthi_stream_result;

/*
 * Decides `is_resident` of every piece. Fixed ones first, then dense ones, then
 * experts, the same number in each layer while that goes, then idle ones. Less room is
 * left over than the smallest dense piece that is streamed, unless experts' slots
 * take it.
 *
 * Dense pieces: the fewest bytes are streamed that make room, or a few more where that
 * makes a pass shorter, spread by compute time; in each prefix of layers that are
 * alike, they are within a unit of an even share. 1 to 4 slots, and layers parted or
 * whole, whatever makes the shortest pass. When `compute` is NULL the layers' bytes
 * are their weights, and there are two slots, or one where two do not fit.
 *
 * `missing` > 0: even with everything streamed that may be it does not fit.
 * Fails only with NO_MEMORY.
 */
berth_status berthi_stream_settle(berth_context *context, berthi_stream_device *device,
                                  berthi_stream_result *out, berth_error *error);

/* One layer as a pass meets it. */
typedef struct berthi_stream_step {
    uint32_t device;
    uint64_t host_bytes;   /* of its unit, from host memory */
    uint64_t disk_bytes;   /* of its unit, from the disk through host memory */
    uint64_t demand_host;  /* when its experts are known: nothing hides these */
    uint64_t demand_disk;
    double compute;        /* seconds */
} berthi_stream_step;

typedef struct berthi_stream_line {
    uint64_t rate;         /* bytes a second from host memory */
    uint32_t slots;        /* 0 and 1 are the same */
} berthi_stream_line;

typedef struct berthi_stream_passes {
    const berthi_stream_step *steps; /* in the order of execution */
    uint32_t step_count;
    const berthi_stream_line *lines; /* by device */
    uint32_t line_count;
    uint64_t disk_rate;
    uint64_t ring_bytes;   /* read from the disk ahead of the copies; 0: one unit */
} berthi_stream_passes;

typedef struct berthi_stream_time {
    double seconds;        /* of a pass, when passes follow one another */
    double first_seconds;  /* of the first one: nothing was brought ahead */
    double compute_seconds;
    double link_seconds;   /* the busiest link */
    double disk_seconds;
    uint32_t busiest_line;
    int32_t bound;         /* berth_plan_bound */
} berthi_stream_time;

/*
 * Runs passes step by step: a device's link fills its slots in the order of its
 * units, across the end of a pass, as soon as the slot's last layer was computed; a
 * layer begins when the one before has ended and its unit is there; the disk reads
 * units in the order of the layers, at most `ring_bytes` ahead of the copies. Experts
 * are brought once their layer has begun, before what is on its way. Until passes
 * repeat; passes that alternate are averaged. Fails only with NO_MEMORY.
 */
berth_status berthi_stream_run(berth_context *context,
                               const berthi_stream_passes *passes,
                               berthi_stream_time *out, berth_error *error);

#endif
