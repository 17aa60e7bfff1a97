/* SPDX-License-Identifier: Apache-2.0 */
/* home.c - what homes of layers are worth; see home.h. */
#include "placement/home_parts.h"

/* Binary digits of a tick's weight behind the nanosecond; share has the other 32. */
#define WEIGHT_BITS 24
#define NANOSECONDS_A_SECOND UINT64_C(1000000000)
#define SLOWEST_RATE UINT64_C(1000000)

berthi_home_sums
berthi_home_sums_of(const berthi_home_problem *problem, uint32_t device)
{
    return (berthi_home_sums){ .fixed = problem->devices[device].overhead };
}

void
berthi_home_sums_add(berthi_home_sums *sums, const berthi_home_layer *layer)
{
    sums->fixed += layer->fixed;
    if (layer->is_kept) {
        sums->kept += layer->dense + layer->experts + layer->idle;
        return;
    }
    if (layer->is_away) {
        sums->away_dense += layer->dense;
        sums->away_experts += layer->experts;
        sums->away_idle += layer->idle;
    } else {
        sums->dense += layer->dense;
        sums->experts += layer->experts;
        sums->idle += layer->idle;
    }
    sums->largest_dense = berthi_max_u64(sums->largest_dense, layer->dense);
    sums->largest_expert_slot =
        berthi_max_u64(sums->largest_expert_slot, layer->expert_slot);
}

/* ---------------------------------------------------------------------- time */

uint64_t
berthi_home_weight(const berthi_home_device *device)
{
    const uint64_t rate = berthi_max_u64(device->rate, SLOWEST_RATE);

    return ((NANOSECONDS_A_SECOND << WEIGHT_BITS) - 1) / rate + 1;
}

uint64_t
berthi_home_nanoseconds(berthi_home_ticks ticks)
{
    const berthi_home_ticks one = (berthi_home_ticks)1 << BERTHI_HOME_TICK_BITS;
    const berthi_home_ticks whole = (ticks + (one - 1)) >> BERTHI_HOME_TICK_BITS;
    const uint64_t most = UINT64_MAX - UINT64_MAX % BERTHI_HOME_GRAIN;

    if (whole > most - BERTHI_HOME_GRAIN)
        return most;
    return berthi_divide_up((uint64_t)whole, BERTHI_HOME_GRAIN) * BERTHI_HOME_GRAIN;
}

/* --------------------------------------------------------------------- loads */

/* Moves up to `bytes` of what is too much away. */
static void
move_away(uint64_t bytes, uint64_t *too_much, uint64_t *away)
{
    const uint64_t moved = berthi_min_u64(bytes, *too_much);

    *too_much -= moved;
    *away += moved;
}

berthi_home_load
berthi_home_weigh(const berthi_home_problem *problem, uint32_t device,
                  const berthi_home_sums *sums)
{
    const berthi_home_device *const d = &problem->devices[device];
    const uint64_t dense_slots = berthi_home_dense_slots(problem, sums->largest_dense);
    uint64_t dense = sums->away_dense;
    uint64_t experts = sums->away_experts;
    uint64_t idle = sums->away_idle;
    berthi_home_load load = { .slots = 0 };
    uint64_t too_much;

    if (dense > 0)
        load.slots += dense_slots;
    if (experts > 0)
        load.slots += sums->largest_expert_slot;
    too_much = berthi_home_excess(sums->fixed + sums->kept + sums->dense + sums->experts
                                      + sums->idle + load.slots,
                                  d->room);
    move_away(sums->idle, &too_much, &idle);
    if (too_much > 0 && sums->experts > 0) {
        const uint64_t slot = experts > 0 ? 0 : sums->largest_expert_slot;

        load.slots += slot;
        too_much += slot;
        move_away(sums->experts, &too_much, &experts);
    }
    if (too_much > 0 && sums->dense > 0) {
        const uint64_t slots = dense > 0 ? 0 : dense_slots;

        /* Slots larger than what they would free are of no use. */
        if (slots < sums->dense) {
            load.slots += slots;
            too_much += slots;
            move_away(sums->dense, &too_much, &dense);
        } else {
            dense += sums->dense;
        }
    }
    load.missing = too_much;
    load.away = dense + experts + idle;
    if (dense + experts > 0)
        load.ticks =
            berthi_home_ticks_of(problem, berthi_home_weight(d), dense, experts);
    return load;
}

/* --------------------------------------------------------------------- costs */

int
berthi_home_compare(const berthi_home_cost *a, const berthi_home_cost *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing ? -1 : 1;
    if (a->nanoseconds != b->nanoseconds)
        return a->nanoseconds < b->nanoseconds ? -1 : 1;
    return (a->cuts > b->cuts) - (a->cuts < b->cuts);
}

berthi_home_cost
berthi_home_evaluate(const berthi_home_problem *problem, const uint32_t *homes,
                     uint64_t *out_missing, uint32_t *out_short_of)
{
    berthi_home_sums sums[BERTHI_HOME_DEVICES];
    uint64_t used = 0; /* bit by bit */
    berthi_home_cost cost = { .missing = 0 };
    berthi_home_ticks ticks = 0;
    uint64_t away = 0;

    *out_missing = 0;
    *out_short_of = BERTHI_NO_DEVICE;
    for (uint32_t i = 0; i < problem->layer_count; i++) {
        const uint32_t home = homes[i];

        if ((used >> home & 1) == 0)
            sums[home] = berthi_home_sums_of(problem, home);
        used |= UINT64_C(1) << home;
        berthi_home_sums_add(&sums[home], &problem->layers[i]);
        cost.cuts += i > 0 && home != homes[i - 1];
    }
    for (uint32_t d = 0; d < problem->device_count; d++) {
        berthi_home_load load;

        if ((used >> d & 1) == 0)
            continue;
        load = berthi_home_weigh(problem, d, &sums[d]);
        ticks += load.ticks;
        away += load.away;
        cost.missing += load.missing;
        if (load.missing > *out_missing) {
            *out_missing = load.missing;
            *out_short_of = d;
        }
    }
    away = berthi_home_excess(away, problem->elsewhere);
    cost.missing += away;
    if (away > *out_missing) {
        *out_missing = away;
        *out_short_of = BERTHI_NO_DEVICE;
    }
    cost.nanoseconds = berthi_home_nanoseconds(ticks);
    return cost;
}
