/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home_bound.c - what homes cost at least that begin in a given way.
 *
 * Missing and time: what the layers to come need, against all bytes that are free.
 * Cuts: how many devices it takes, those with most free bytes first. Bytes alone
 * are a weak measure where layers are large: eleven tenths of a device are two
 * devices, but a device of 10.9 layers takes ten. So the same is asked in units:
 * every layer counts as the unit's multiples in it, rounded down, and so does what
 * is free on a device. What fits in bytes fits in units, because rounded parts
 * never add up to more than the rounded whole.
 */
#include <string.h>

#include "placement/home_parts.h"

/* Sizes of layers that are looked at, when units are chosen. */
#define SIZES_LIMIT 16u

/* --------------------------------------------------------------------- units */

typedef struct size_count {
    uint64_t size;
    uint64_t bytes; /* of all layers of this size */
} size_count;

/* The sizes that most bytes come in, most first; at most SIZES_LIMIT are looked at. */
static void
choose_units(berthi_home_bound *bound)
{
    const berthi_home_problem *const problem = bound->problem;
    size_count sizes[SIZES_LIMIT];
    uint32_t count = 0;

    for (uint32_t i = 0; i < problem->layer_count; i++) {
        const uint64_t size = berthi_home_need(&problem->layers[i]);
        uint32_t at = 0;

        while (at < count && sizes[at].size != size)
            at++;
        if (at == SIZES_LIMIT)
            continue;
        if (at == count)
            sizes[count++] = (size_count){ size, 0 };
        sizes[at].bytes += size;
    }
    for (uint32_t u = 0; u < BERTHI_HOME_UNITS; u++) {
        uint32_t most = 0;

        for (uint32_t i = 1; i < count; i++)
            if (sizes[i].bytes > sizes[most].bytes)
                most = i;
        bound->unit[u] = count > 0 && sizes[most].bytes > 0 ? sizes[most].size : 0;
        if (count > 0)
            sizes[most].bytes = 0;
    }
}

/* ---------------------------------------------------------------------- init */

/* What has to be brought of a layer, wherever it is. */
static berthi_home_ticks
least_ticks(const berthi_home_bound *bound, const berthi_home_layer *layer)
{
    if (!layer->is_away || layer->is_kept)
        return 0;
    return berthi_home_ticks_of(bound->problem, bound->weight, layer->dense,
                                layer->experts);
}

/* Missing on the device that is best for this layer, if it had no other one. */
static uint64_t
missing_alone(const berthi_home_bound *bound, uint32_t i)
{
    const berthi_home_problem *const problem = bound->problem;
    const uint32_t pin = problem->layers[i].pin;
    uint64_t least = UINT64_MAX;

    for (uint32_t d = 0; d < problem->device_count && least > 0; d++) {
        berthi_home_sums sums = berthi_home_sums_of(problem, d);

        if (pin != BERTHI_NO_DEVICE && pin != d)
            continue;
        berthi_home_sums_add(&sums, &problem->layers[i]);
        least = berthi_min_u64(least, berthi_home_weigh(problem, d, &sums).missing);
    }
    return least;
}

/*
 * The least that bringing takes: one slot for experts, or those for a dense layer.
 * Where layers may not stay, slots may be there already.
 */
static uint64_t
least_slot(const berthi_home_problem *problem)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < problem->layer_count; i++) {
        const berthi_home_layer *const layer = &problem->layers[i];

        if (layer->is_kept)
            continue;
        if (layer->is_away)
            return 0;
        if (layer->experts > 0)
            least = berthi_min_u64(least, layer->expert_slot);
        if (layer->dense > 0)
            least = berthi_min_u64(least, berthi_home_dense_slots(problem, layer->dense));
    }
    return least;
}

static void
add_odd(const berthi_home_bound *bound, const berthi_home_layer *layer,
        berthi_home_rest *rest)
{
    const uint64_t odd = berthi_home_need(layer) % berthi_max_u64(bound->unit[0], 1);

    rest->odd += odd;
    if (odd > rest->most_odd) {
        rest->most_odd = odd;
        rest->odd_slots =
            layer->is_kept ? 0 : berthi_home_dense_slots(bound->problem, layer->dense);
    }
}

static void
add_layer(berthi_home_bound *bound, uint32_t i)
{
    const berthi_home_layer *const layer = &bound->problem->layers[i];
    const uint64_t need = berthi_home_need(layer);
    const berthi_home_rest *const after = &bound->rest[i + 1];
    berthi_home_rest *const rest = &bound->rest[i];

    *rest = *after;
    rest->need += need;
    add_odd(bound, layer, rest);
    rest->alone = berthi_max_u64(rest->alone, missing_alone(bound, i));
    rest->ticks += least_ticks(bound, layer);
    if (layer->pin != BERTHI_NO_DEVICE)
        rest->mandatory |= UINT64_C(1) << layer->pin;
    for (uint32_t u = 0; u < BERTHI_HOME_UNITS; u++)
        if (bound->unit[u] > 0)
            rest->units[u] += need / bound->unit[u];
    if (!layer->is_kept && !layer->is_away)
        bound->experts += layer->experts;
}

/* Missing, if all devices were one: at home, or of all places there are. */
static uint64_t
missing_together(const berthi_home_problem *problem)
{
    uint64_t places = 0;
    uint64_t bytes = 0;
    uint64_t must = 0; /* what can lie nowhere but at home */
    uint64_t missing;

    for (uint32_t d = 0; d < problem->device_count; d++)
        places += berthi_home_excess(problem->devices[d].room,
                                     problem->devices[d].overhead);
    for (uint32_t i = 0; i < problem->layer_count; i++) {
        const berthi_home_layer *const layer = &problem->layers[i];

        bytes += layer->fixed + layer->dense + layer->experts + layer->idle;
        must += layer->is_kept ? berthi_home_need(layer) : layer->fixed;
    }
    missing = berthi_home_excess(must, places);
    if (berthi_can_add(places, problem->elsewhere, &places))
        missing = berthi_max_u64(missing, berthi_home_excess(bytes, places));
    return missing;
}

void
berthi_home_bound_init(berthi_home_bound *bound, const berthi_home_problem *problem,
                       berthi_home_rest *rest)
{
    memset(bound, 0, sizeof *bound);
    bound->problem = problem;
    bound->rest = rest;
    bound->weight = UINT64_MAX;
    for (uint32_t d = 0; d < problem->device_count; d++) {
        bound->weight =
            berthi_min_u64(bound->weight, berthi_home_weight(&problem->devices[d]));
        bound->order[d] = d;
    }
    choose_units(bound);
    bound->slot = least_slot(problem);
    bound->missing = missing_together(problem);
    memset(&rest[problem->layer_count], 0, sizeof *rest);
    for (uint32_t i = problem->layer_count; i-- > 0;)
        add_layer(bound, i);
}

/* ---------------------------------------------------------------------- time */

berthi_home_ticks
berthi_home_cheapest(const berthi_home_bound *bound, uint64_t bytes)
{
    const uint64_t experts = berthi_min_u64(bytes, bound->experts);

    return berthi_home_ticks_of(bound->problem, bound->weight, bytes - experts, experts);
}

/*
 * What the layer of most odd bytes takes beyond its own bytes, at least, where no
 * device has a place for them between whole units: one more unit, or slots of its
 * own size on a device that is brought something. Only where slots have one cause.
 */
static uint64_t
loss_of_odd(const berthi_home_bound *bound, const berthi_home_partial *partial)
{
    const berthi_home_rest *const rest = &bound->rest[partial->position];
    uint64_t loss = partial->unit - rest->most_odd;

    if (bound->experts > 0 || partial->slot == 0)
        return 0;
    loss = berthi_min_u64(loss, berthi_home_excess(rest->odd_slots, partial->slot));
    for (uint32_t d = 0; d < bound->problem->device_count; d++) {
        const berthi_home_state *const state = &partial->devices[d];

        if (state->is_bringing)
            loss = berthi_min_u64(
                loss, berthi_home_excess(rest->odd_slots, state->load.slots));
    }
    return loss;
}

/* Bytes that layers to come find at most on all devices, if none may be missing. */
static uint64_t
places_of(const berthi_home_bound *bound, const berthi_home_partial *partial)
{
    const berthi_home_rest *const rest = &bound->rest[partial->position];
    const uint32_t count = bound->problem->device_count;
    uint64_t places = berthi_min_u64(partial->free, partial->useful + rest->odd);
    uint64_t slot_loss = UINT64_MAX;
    uint64_t gap = 0; /* the largest between whole units */

    if (places >= rest->need)
        return places;
    for (uint32_t d = 0; d < count; d++) {
        const berthi_home_state *const state = &partial->devices[d];
        const uint64_t with_slot = berthi_home_excess(state->free, partial->slot);

        gap = berthi_max_u64(gap, state->free % partial->unit);
        slot_loss = berthi_min_u64(slot_loss, state->useful - with_slot);
    }
    places = partial->useful + rest->odd;
    if (partial->bringing == 0) /* one device will be brought something */
        places = berthi_min_u64(places - slot_loss,
                                berthi_home_excess(partial->free, partial->slot));
    if (rest->most_odd > gap)
        places = berthi_min_u64(
            places, berthi_home_excess(
                        partial->useful - (partial->bringing == 0 ? slot_loss : 0)
                            + rest->odd - rest->most_odd,
                        loss_of_odd(bound, partial)));
    return berthi_min_u64(places, partial->free);
}

/* ---------------------------------------------------------------------- cuts */

/* Almost sorted from the call before: few have to be inserted. */
static void
sort_by_free(berthi_home_bound *bound, const berthi_home_partial *partial)
{
    const berthi_home_state *const states = partial->devices;
    const uint32_t count = bound->problem->device_count;
    uint32_t *const order = bound->order;
    uint64_t least = UINT64_MAX; /* of those that are sorted */

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t device = order[i];
        const uint64_t free = states[device].free;
        uint32_t at = i;

        if (free <= least) {
            least = free;
            continue;
        }
        for (; at > 0 && states[order[at - 1]].free < free; at--)
            order[at] = order[at - 1];
        order[at] = device;
    }
}

/*
 * How many more ranges `need` takes, in units of `unit` bytes: on the last device
 * as it is, then on those that layers are pinned to, then on those with most free.
 * UINT32_MAX: more than all devices can take.
 */
static uint32_t
count_ranges(const berthi_home_bound *bound, const berthi_home_partial *partial,
             uint64_t need, uint64_t unit, uint64_t mandatory)
{
    const uint32_t last = partial->last;
    uint32_t ranges = 0;
    uint64_t found = 0;

    if (last != BERTHI_NO_DEVICE) {
        found = partial->devices[last].free / unit;
        mandatory |= UINT64_C(1) << last;
    }
    for (uint64_t rest = mandatory; rest != 0; rest &= rest - 1) {
        const uint32_t device = (uint32_t)__builtin_ctzll(rest);

        if (device != last) {
            found += partial->devices[device].free / unit;
            ranges++;
        }
    }
    for (uint32_t i = 0; found < need; i++) {
        if (i == bound->problem->device_count)
            return UINT32_MAX;
        if ((mandatory >> bound->order[i] & 1) == 0) {
            found += partial->devices[bound->order[i]].free / unit;
            ranges++;
        }
    }
    return ranges;
}

/*
 * Ranges at least that follow when at most `spare` bytes of what the layers to come
 * need are brought or missing.
 */
static uint32_t
ranges_to_come(berthi_home_bound *bound, const berthi_home_partial *partial,
               uint64_t spare)
{
    const berthi_home_problem *const problem = bound->problem;
    const berthi_home_rest *const rest = &bound->rest[partial->position];
    const uint32_t last = partial->last;
    uint32_t ranges;

    sort_by_free(bound, partial);
    ranges = count_ranges(bound, partial, berthi_home_excess(rest->need, spare), 1,
                          rest->mandatory);
    for (uint32_t u = 0; u < BERTHI_HOME_UNITS && spare == 0; u++)
        if (bound->unit[u] > 0) {
            const uint32_t more = count_ranges(bound, partial, rest->units[u],
                                               bound->unit[u], rest->mandatory);

            ranges = ranges > more ? ranges : more;
        }
    if (last == BERTHI_NO_DEVICE)
        return ranges > 0 ? ranges : 1;
    /* Where the end is pinned to the last device, one comes back to it. */
    if (ranges > 0 && ranges != UINT32_MAX
        && problem->layers[problem->layer_count - 1].pin == last)
        ranges++;
    return ranges;
}

/* Bytes that can be brought within so many ticks: at most, and not one too few. */
static uint64_t
bytes_within(const berthi_home_bound *bound, berthi_home_ticks ticks)
{
    const berthi_home_ticks dense = (ticks >> 32) / bound->weight + 1;
    const uint64_t all = bound->rest[0].need;

    if (ticks == 0)
        return bound->problem->expert_share == 0 ? bound->experts : 0;
    return (dense < all ? (uint64_t)dense : all) + bound->experts;
}

berthi_home_cost
berthi_home_bound_of(berthi_home_bound *bound, const berthi_home_partial *partial,
                     const berthi_home_cost *best)
{
    const berthi_home_rest *const rest = &bound->rest[partial->position];
    const berthi_home_ticks known = partial->ticks + rest->ticks;
    const berthi_home_ticks allowed = berthi_home_most_ticks(best->nanoseconds);
    berthi_home_cost cost = berthi_home_partial_cost(partial);
    uint64_t places;
    uint32_t ranges;

    cost.missing = berthi_max_u64(cost.missing, rest->alone);
    cost.missing = berthi_max_u64(cost.missing, bound->missing);
    if (cost.missing != best->missing)
        return cost;
    places = best->missing > 0 ? partial->free + best->missing
                               : places_of(bound, partial);
    cost.nanoseconds = berthi_home_nanoseconds(
        known + berthi_home_cheapest(bound, berthi_home_excess(rest->need, places)));
    if (cost.nanoseconds != best->nanoseconds)
        return cost;
    ranges = ranges_to_come(bound, partial,
                            bytes_within(bound, allowed - known) + best->missing);
    cost.cuts = ranges == UINT32_MAX ? UINT32_MAX : partial->cuts + ranges;
    if (partial->last == BERTHI_NO_DEVICE && ranges != UINT32_MAX)
        cost.cuts--;
    return cost;
}
