/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home.h - which device computes each layer: the exact planner's search.
 *
 * A layer stays whole and has one home. What of its bytes does not lie on its
 * home is brought there for each pass through slots; what of them that is, is
 * decided afterwards, tensor by tensor (stream.h). Homes are chosen for
 *
 *   1. feasible: on every device that has a layer `fixed` of its layers, its slots
 *      and `overhead` fit; what lies elsewhere fits into `elsewhere`. Where nothing
 *      is feasible: the fewest bytes missing, over all devices and `elsewhere`
 *   2. the shortest time to bring it, summed over devices, in whole grains: what a
 *      cut costs itself is no reason to cut
 *   3. the fewest cuts: neighbours in the order of execution on two devices
 *   4. the smallest list of devices, compared from the first layer on
 *
 * A device that was left may be used again. Integers only, so that the same
 * input gives the same homes everywhere.
 */
#ifndef BERTH_PLACEMENT_HOME_H
#define BERTH_PLACEMENT_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

/* Devices that compute. */
#define BERTHI_HOME_DEVICES 64u
#define BERTHI_NO_DEVICE UINT32_MAX /* any; none of the caller's */

/* Nanoseconds that count as one: about what it takes to hand over to a device. */
#define BERTHI_HOME_GRAIN UINT64_C(50000)

/* Time, summed without rounding: 2^-56 nanoseconds. */
__extension__ typedef unsigned __int128 berthi_home_ticks;

/* Bytes of one layer. Sums over all layers and overheads stay below 2^60. */
typedef struct berthi_home_layer {
    uint64_t fixed;    /* always at home: norms, routers, its share of the KV cache  */
    uint64_t dense;    /* all of it is needed in every pass                          */
    uint64_t experts;  /* `expert_share` of it is needed in a pass                   */
    uint64_t idle;     /* next to nothing of it is needed: rows of an embedding      */
    uint64_t expert_slot; /* room to bring the experts of one pass; 0: no experts    */
    uint32_t pin;      /* the device that must be its home; BERTHI_NO_DEVICE: any    */
    bool is_away;      /* none of `dense`, `experts`, `idle` may lie at home         */
    bool is_kept;      /* all of them must lie at home; counts before is_away        */
} berthi_home_layer;

typedef struct berthi_home_device {
    uint64_t room;     /* bytes for layers and slots                                 */
    uint64_t overhead; /* taken from `room` by the first layer: activations          */
    uint64_t rate;     /* bytes a second that can be brought there; below a million
                          counts as a million                                        */
} berthi_home_device;

typedef struct berthi_home_problem {
    const berthi_home_layer *layers; /* in the order of execution */
    uint32_t layer_count;
    const berthi_home_device *devices; /* 1 to BERTHI_HOME_DEVICES */
    uint32_t device_count;
    uint32_t expert_share; /* 2^-32ths of the experts' bytes that a pass takes */
    uint64_t elsewhere;    /* room for what does not lie at home; UINT64_MAX: enough */
    uint32_t slots;        /* for dense bytes, on each device, at most 8; 0: two */
    uint64_t effort;       /* steps of the search at most; 0: a few milliseconds */
} berthi_home_problem;

/* Compared in this order. */
typedef struct berthi_home_cost {
    uint64_t missing;     /* bytes, all devices and `elsewhere` together; 0: feasible */
    uint64_t nanoseconds; /* to bring what a pass needs, in whole grains, rounded up */
    uint32_t cuts;
} berthi_home_cost;

/*
 * What is brought to a device with these sums of its layers, and the slots for it.
 * Away go idle bytes first, then experts, then dense ones. Slots: as many
 * as the problem says of the largest `dense` of its layers when dense bytes are away,
 * the largest `expert_slot` when experts are. The one home of this rule: search and tests.
 */
typedef struct berthi_home_sums {
    uint64_t fixed;       /* overhead included */
    uint64_t kept;        /* of layers with is_kept: in none of those below */
    uint64_t away_dense;  /* of layers with is_away: in none of those below */
    uint64_t away_experts;
    uint64_t away_idle;
    uint64_t dense;
    uint64_t experts;
    uint64_t idle;
    uint64_t largest_dense;  /* layers that may be away, those with is_away too */
    uint64_t largest_expert_slot;
} berthi_home_sums;

typedef struct berthi_home_load {
    uint64_t away;        /* bytes that lie elsewhere  */
    uint64_t slots;       /* bytes of the device       */
    uint64_t missing;     /* 0: it fits */
    berthi_home_ticks ticks; /* to bring a pass's part of what is away */
} berthi_home_load;

berthi_home_load berthi_home_weigh(const berthi_home_problem *problem, uint32_t device,
                                   const berthi_home_sums *sums);

/*
 * The cost of given homes; `missing` is 0 where they are feasible, otherwise the
 * bytes that the device `short_of` is short of (BERTHI_NO_DEVICE: `elsewhere`): the
 * one that is short of most. All of them together are in the cost.
 */
berthi_home_cost berthi_home_evaluate(const berthi_home_problem *problem,
                                      const uint32_t *homes, uint64_t *out_missing,
                                      uint32_t *out_short_of);

typedef struct berthi_homes {
    uint32_t *homes;        /* the caller's, one a layer */
    berthi_home_cost cost;
    bool is_feasible;       /* false: `homes` miss the fewest bytes of those tried */
    bool is_proved;         /* no better ones exist, or where nothing is feasible: that
                               is so; else the search ran out of effort */
    uint64_t missing;       /* as berthi_home_evaluate() says it of `homes` */
    uint32_t short_of;
} berthi_homes;

/*
 * Finds the best homes. Where one range of layers on each device is enough for
 * nothing to be brought, and the devices are of at most 12 kinds, or make at most
 * 4096 sets, homes as good are found whatever the effort. Fails only with NO_MEMORY.
 */
berth_status berthi_home_find(berth_context *context, const berthi_home_problem *problem,
                              berthi_homes *out, berth_error *error);

#endif
