/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home_parts.h - what the files of the search for homes share; home.h is its
 * interface.
 *
 *   home.c         sums, loads and costs: what homes are worth
 *   home_partial.c homes of the first layers: given and taken back, one at a time
 *   home_bound.c   what homes that begin so cost at least
 *   home_ranges.c  good homes to begin with: one range of layers on each device
 *   home_split.c   the same, where not all of them fit
 *   home_search.c  all homes, but for those that a bound rules out
 */
#ifndef BERTH_PLACEMENT_HOME_PARTS_H
#define BERTH_PLACEMENT_HOME_PARTS_H

#include "placement/home.h"

/* ---------------------------------------------------------------- home.c */

/* Binary digits of a tick behind the nanosecond. */
#define BERTHI_HOME_TICK_BITS 56

berthi_home_sums berthi_home_sums_of(const berthi_home_problem *problem, uint32_t device);
void berthi_home_sums_add(berthi_home_sums *sums, const berthi_home_layer *layer);
/* Below, at, or above 0 as `a` is better than, as good as, or worse than `b`. */
int berthi_home_compare(const berthi_home_cost *a, const berthi_home_cost *b);
/* In whole grains. */
uint64_t berthi_home_nanoseconds(berthi_home_ticks ticks);
/* Ticks of one byte brought to a device, times 2^32. */
uint64_t berthi_home_weight(const berthi_home_device *device);

/* To bring these bytes in a pass, of experts a share. */
static inline berthi_home_ticks
berthi_home_ticks_of(const berthi_home_problem *problem, uint64_t weight, uint64_t dense,
                     uint64_t experts)
{
    return (((berthi_home_ticks)dense << 32)
            + (berthi_home_ticks)experts * problem->expert_share)
           * weight;
}

/* The most that are so many nanoseconds, in whole grains. */
static inline berthi_home_ticks
berthi_home_most_ticks(uint64_t nanoseconds)
{
    return (berthi_home_ticks)nanoseconds << BERTHI_HOME_TICK_BITS;
}

static inline uint64_t
berthi_home_excess(uint64_t bytes, uint64_t room)
{
    return bytes > room ? bytes - room : 0;
}

/* Slots for units of such a size. */
static inline uint64_t
berthi_home_dense_slots(const berthi_home_problem *problem, uint64_t unit)
{
    return (problem->slots > 0 ? problem->slots : 2) * unit;
}

/* Nothing tells these devices apart; `pinned`: bit by bit, what layers are pinned to. */
static inline bool
berthi_home_is_twin(const berthi_home_problem *problem, uint64_t pinned, uint32_t a,
                    uint32_t b)
{
    const berthi_home_device *const one = &problem->devices[a];
    const berthi_home_device *const other = &problem->devices[b];

    return ((pinned >> a | pinned >> b) & 1) == 0 && one->room == other->room
           && one->overhead == other->overhead && one->rate == other->rate;
}

/* Bytes of a layer that are at home unless they are brought; idle ones need not be. */
static inline uint64_t
berthi_home_need(const berthi_home_layer *layer)
{
    if (layer->is_kept)
        return layer->fixed + layer->dense + layer->experts + layer->idle;
    return layer->fixed + (layer->is_away ? 0 : layer->dense + layer->experts);
}

/* Some of its layers has to be brought. */
static inline bool
berthi_home_is_full(const berthi_home_problem *problem, uint32_t device,
                    const berthi_home_sums *sums, const berthi_home_load *load)
{
    return sums->fixed + sums->kept + sums->dense + sums->experts + load->slots
           > problem->devices[device].room;
}

/* -------------------------------------------------------- home_partial.c */

/* Of free bytes what layers of `unit` bytes can use: see berthi_home_partial. */
static inline uint64_t
berthi_home_useful(uint64_t free, uint64_t unit, uint64_t slot)
{
    return berthi_max_u64(free - free % unit, berthi_home_excess(free, slot));
}

/* One device, with the layers it has been given so far. */
typedef struct berthi_home_state {
    berthi_home_sums sums;
    berthi_home_load load;
    uint64_t free;   /* bytes that layers to come find, before anything is brought */
    uint64_t useful; /* of them; see berthi_home_partial */
    uint32_t layers; /* how many it has */
    bool is_bringing; /* what could stay, were there room */
} berthi_home_state;

/*
 * Homes of the layers before `position`, and what they cost so far.
 *
 * Useful is what layers can use of the free bytes, if they are all of `unit` bytes:
 * a whole number of them, or, once the device is brought some, all but `slot`.
 */
typedef struct berthi_home_partial {
    const berthi_home_problem *problem;
    uint64_t unit;    /* 1: any size */
    uint64_t slot;    /* on a device that is brought something, at least */
    berthi_home_state devices[BERTHI_HOME_DEVICES];
    uint32_t position;
    uint32_t last;    /* home of the layer before; BERTHI_NO_DEVICE at first */
    uint32_t cuts;
    uint64_t missing; /* of devices */
    uint64_t away;
    uint64_t free;    /* of all devices */
    uint64_t useful;
    uint32_t bringing; /* devices that are brought what could stay, were there room */
    berthi_home_ticks ticks;
} berthi_home_partial;

/* What giving one layer has changed. */
typedef struct berthi_home_undo {
    berthi_home_state state;
    uint32_t device;
    uint32_t last;
    uint32_t cuts;
} berthi_home_undo;

void berthi_home_partial_init(berthi_home_partial *partial,
                              const berthi_home_problem *problem, uint64_t unit,
                              uint64_t slot);
void berthi_home_partial_give(berthi_home_partial *partial, uint32_t device,
                              berthi_home_undo *undo);
void berthi_home_partial_take(berthi_home_partial *partial, const berthi_home_undo *undo);
berthi_home_cost berthi_home_partial_cost(const berthi_home_partial *partial);

/* ---------------------------------------------------------- home_bound.c */

/* Sizes of layers whose multiples are counted; see home_bound.c. */
#define BERTHI_HOME_UNITS 3u

/* Of the layers from a position on. */
typedef struct berthi_home_rest {
    uint64_t need;
    uint64_t odd;       /* of it: what is beyond whole multiples of the first unit */
    uint64_t most_odd;  /* of one layer */
    uint64_t odd_slots; /* that bringing takes where that layer is, at least */
    uint64_t alone;     /* missing, if the worst layer had the best device for itself */
    uint64_t mandatory; /* bit by bit: devices that layers are pinned to */
    berthi_home_ticks ticks; /* at least: of what may not lie at home */
    uint64_t units[BERTHI_HOME_UNITS];
} berthi_home_rest;

typedef struct berthi_home_bound {
    const berthi_home_problem *problem;
    berthi_home_rest *rest; /* layer_count + 1 */
    uint64_t missing;       /* if all devices were one */
    uint64_t experts;       /* that may lie elsewhere */
    uint64_t weight;        /* the smallest of a device */
    uint64_t unit[BERTHI_HOME_UNITS]; /* 0: not used */
    uint64_t slot;          /* the least that bringing takes of a device */
    uint32_t order[BERTHI_HOME_DEVICES]; /* devices, most free bytes first */
} berthi_home_bound;

/* What bringing so many bytes takes at least: experts first, to the fastest device. */
berthi_home_ticks berthi_home_cheapest(const berthi_home_bound *bound, uint64_t bytes);
/* `rest` has room for layer_count + 1. */
void berthi_home_bound_init(berthi_home_bound *bound, const berthi_home_problem *problem,
                            berthi_home_rest *rest);
/*
 * No homes that begin as `partial` does cost less than this, or else they are no
 * better than `best`.
 */
berthi_home_cost berthi_home_bound_of(berthi_home_bound *bound,
                                      const berthi_home_partial *partial,
                                      const berthi_home_cost *best);

/* --------------------------------------------------------- home_ranges.c */

/* The best homes so far. */
typedef struct berthi_home_best {
    uint32_t *homes;
    uint32_t *tried; /* room for other ones */
    berthi_home_cost cost;
} berthi_home_best;

/* Takes `tried` if they are better, or as good and come first. */
void berthi_home_best_offer(const berthi_home_problem *problem, berthi_home_best *best);
/* Devices that nothing tells apart. */
typedef struct berthi_home_kind {
    berthi_home_sums base; /* of the layers pinned to it, and its overhead */
    uint32_t device;       /* the first of them */
    uint32_t count;
    uint32_t stride;       /* of the set with one more of them */
} berthi_home_kind;

typedef struct berthi_home_ranges {
    berth_context *context;
    const berthi_home_problem *problem;
    const berthi_home_bound *bound;
    berthi_home_best *best;
    berthi_home_kind kinds[BERTHI_HOME_DEVICES];
    uint32_t kind_count;
    uint32_t kind_of[BERTHI_HOME_DEVICES];
} berthi_home_ranges;

/* Adds the layer, unless it is pinned: then it lies in a base. */
void berthi_home_ranges_add(const berthi_home_ranges *ranges, berthi_home_sums *sums,
                            uint32_t layer);
/* Layers from `begin` to `end` go to a device, in the homes that are tried. */
void berthi_home_ranges_put(const berthi_home_ranges *ranges, uint32_t device,
                            uint32_t begin, uint32_t end);
/* Tries homes of one range on each device. Fails only with NO_MEMORY. */
berth_status berthi_home_ranges_find(berth_context *context,
                                     const berthi_home_bound *bound,
                                     berthi_home_best *best, berth_error *error);

/* ---------------------------------------------------------- home_split.c */

/*
 * Offers the best split over the devices in this order; none where there are too
 * many ranges. Fails only with NO_MEMORY.
 */
berth_status berthi_home_split_find(const berthi_home_ranges *ranges,
                                    const uint32_t *order, berth_error *error);

#endif
