/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home_ranges.c - good homes to begin with: one range of layers on each device.
 *
 * Pinned layers lie where they must, whatever range they are in. Of the others
 *   filled   each device, in some order, takes what it can from the front or the
 *            back; one of them takes what is left, and brings it
 *   packed   where nothing needs to be brought: every set of devices, and how far
 *            it gets; equal devices count as one kind, of which so many are used
 *   split    where something does: home_split.c
 * The search goes on from the best of them.
 */
#include <string.h>

#include "placement/home_parts.h"

/* Sets of devices that are looked at; 12 that are all different, or 64 equal ones. */
#define SETS_LIMIT 4096u

/* --------------------------------------------------------------------- kinds */

static void
find_kinds(berthi_home_ranges *r)
{
    const berthi_home_problem *const problem = r->problem;
    berthi_home_sums bases[BERTHI_HOME_DEVICES];
    uint64_t pinned = 0;

    for (uint32_t d = 0; d < problem->device_count; d++)
        bases[d] = berthi_home_sums_of(problem, d);
    for (uint32_t i = 0; i < problem->layer_count; i++) {
        const uint32_t pin = problem->layers[i].pin;

        if (pin == BERTHI_NO_DEVICE)
            continue;
        berthi_home_sums_add(&bases[pin], &problem->layers[i]);
        pinned |= UINT64_C(1) << pin;
    }
    for (uint32_t d = 0; d < problem->device_count; d++) {
        uint32_t k = 0;

        while (k < r->kind_count
               && !berthi_home_is_twin(problem, pinned, d, r->kinds[k].device))
            k++;
        if (k == r->kind_count)
            r->kinds[r->kind_count++] = (berthi_home_kind){ bases[d], d, 0, 0 };
        r->kinds[k].count++;
        r->kind_of[d] = k;
    }
}

/* -------------------------------------------------------------------- ranges */

void
berthi_home_ranges_add(const berthi_home_ranges *r, berthi_home_sums *sums,
                       uint32_t layer)
{
    if (r->problem->layers[layer].pin == BERTHI_NO_DEVICE)
        berthi_home_sums_add(sums, &r->problem->layers[layer]);
}

/* Nothing has to be brought but what may not stay. */
static bool
has_room(const berthi_home_ranges *r, uint32_t device, const berthi_home_sums *sums)
{
    const berthi_home_load load = berthi_home_weigh(r->problem, device, sums);

    return load.missing == 0
           && !berthi_home_is_full(r->problem, device, sums, &load);
}

/* The end of the range that begins here and just has room. */
static uint32_t
reach(const berthi_home_ranges *r, const berthi_home_kind *k, uint32_t begin)
{
    berthi_home_sums sums = k->base;
    uint32_t end = begin;

    for (; end < r->problem->layer_count; end++) {
        berthi_home_ranges_add(r, &sums, end);
        if (!has_room(r, k->device, &sums))
            break;
    }
    return end;
}

/* The beginning of the range that ends here and just has room. */
static uint32_t
reach_back(const berthi_home_ranges *r, const berthi_home_kind *k, uint32_t end)
{
    berthi_home_sums sums = k->base;
    uint32_t begin = end;

    for (; begin > 0; begin--) {
        berthi_home_ranges_add(r, &sums, begin - 1);
        if (!has_room(r, k->device, &sums))
            break;
    }
    return begin;
}

void
berthi_home_ranges_put(const berthi_home_ranges *r, uint32_t device, uint32_t begin,
                       uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t pin = r->problem->layers[i].pin;

        r->best->tried[i] = pin == BERTHI_NO_DEVICE ? device : pin;
    }
}

/* -------------------------------------------------------------------- filled */

/* Devices in this order: those before the one that brings fill the front, others the
 * back. */
static void
fill(const berthi_home_ranges *r, const uint32_t *order)
{
    const uint32_t count = r->problem->device_count;
    uint32_t front[BERTHI_HOME_DEVICES + 1] = { 0 };
    uint32_t back[BERTHI_HOME_DEVICES + 1];

    back[count] = r->problem->layer_count;
    for (uint32_t i = 0; i < count; i++)
        front[i + 1] = reach(r, &r->kinds[r->kind_of[order[i]]], front[i]);
    for (uint32_t i = count; i-- > 1;) /* nothing ends where the first begins */
        back[i] = reach_back(r, &r->kinds[r->kind_of[order[i]]], back[i + 1]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t end = front[i];

        for (uint32_t j = 0; j < i; j++)
            berthi_home_ranges_put(r, order[j], front[j], front[j + 1]);
        end = end > back[i + 1] ? end : back[i + 1];
        berthi_home_ranges_put(r, order[i], front[i], end);
        for (uint32_t j = i + 1; j < count; j++) {
            const uint32_t begin = end;

            end = end > back[j + 1] ? end : back[j + 1];
            berthi_home_ranges_put(r, order[j], begin, end);
        }
        berthi_home_best_offer(r->problem, r->best);
    }
}

/* -------------------------------------------------------------------- packed */

typedef struct set {
    uint32_t reached; /* layers it takes at most */
    uint32_t used;    /* devices */
    uint32_t last;    /* kind of the one that was added last */
} set;

/* The k-th device of a kind. */
static uint32_t
device_of(const berthi_home_ranges *r, uint32_t k, uint32_t nth)
{
    uint32_t d = r->kinds[k].device;

    for (; nth > 0 || r->kind_of[d] != k; d++)
        nth -= r->kind_of[d] == k;
    return d;
}

/* Homes of a set that reaches the end, from the last range to the first. */
static void
offer_set(const berthi_home_ranges *r, const set *sets, uint32_t s)
{
    uint32_t end = r->problem->layer_count;

    while (sets[s].used > 0) {
        const uint32_t k = sets[s].last;
        const uint32_t nth = s / r->kinds[k].stride % (r->kinds[k].count + 1) - 1;

        s -= r->kinds[k].stride;
        berthi_home_ranges_put(r, device_of(r, k, nth), sets[s].reached, end);
        end = sets[s].reached;
    }
    berthi_home_best_offer(r->problem, r->best);
}

/* One more device of each kind; `ends` keeps what was worked out, plus 1. */
static void
grow(const berthi_home_ranges *r, set *sets, uint32_t s, uint32_t *ends)
{
    const uint32_t begin = sets[s].reached;

    for (uint32_t k = 0; k < r->kind_count; k++) {
        const berthi_home_kind *const with = &r->kinds[k];
        uint32_t *const end = &ends[(uint64_t)k * (r->problem->layer_count + 1) + begin];
        set *const next = &sets[s + with->stride];

        if (s / with->stride % (with->count + 1) == with->count)
            continue;
        if (*end == 0)
            *end = reach(r, with, begin) + 1;
        if (next->used == 0 || *end - 1 > next->reached)
            *next = (set){ *end - 1, sets[s].used + 1, k };
    }
}

/* `sets` and `ends` are zero. */
static void
pack(const berthi_home_ranges *r, set *sets, uint32_t set_count, uint32_t *ends)
{
    uint32_t best = set_count;

    for (uint32_t s = 0; s < set_count; s++) {
        if (s > 0 && sets[s].used == 0) /* a smaller one is enough */
            continue;
        if (sets[s].reached < r->problem->layer_count)
            grow(r, sets, s, ends);
        else if (best == set_count || sets[s].used < sets[best].used)
            best = s;
    }
    if (best < set_count)
        offer_set(r, sets, best);
}

/* Numbers sets: digits of mixed base. 0: there are too many. */
static uint32_t
number_sets(berthi_home_ranges *r)
{
    uint32_t sets = 1;

    for (uint32_t k = 0; k < r->kind_count; k++) {
        r->kinds[k].stride = sets;
        sets *= r->kinds[k].count + 1;
        if (sets > SETS_LIMIT)
            return 0;
    }
    return sets;
}

static berth_status
try_packed(berthi_home_ranges *r, berth_error *error)
{
    const uint32_t count = number_sets(r);
    const uint64_t set_bytes = count * sizeof(set);
    const uint64_t bytes =
        set_bytes
        + (uint64_t)r->kind_count * (r->problem->layer_count + 1) * sizeof(uint32_t);
    set *sets;

    if (count == 0)
        return BERTH_OK;
    sets = berthi_memory_zalloc(r->context, BERTHI_PURPOSE_SCRATCH, bytes);
    if (sets == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    pack(r, sets, count, (uint32_t *)(void *)&sets[count]);
    berthi_memory_free(r->context, BERTHI_PURPOSE_SCRATCH, sets, bytes);
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- find */

/* Devices as they are given, or the largest first. */
static void
sort_devices(const berthi_home_problem *problem, bool is_by_room, uint32_t *order)
{
    for (uint32_t i = 0; i < problem->device_count; i++) {
        uint32_t at = i;

        for (; is_by_room && at > 0
               && problem->devices[order[at - 1]].room < problem->devices[i].room;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

berth_status
berthi_home_ranges_find(berth_context *context, const berthi_home_bound *bound,
                        berthi_home_best *best, berth_error *error)
{
    const berthi_home_problem *const problem = bound->problem;
    berthi_home_ranges r = {
        .context = context, .problem = problem, .bound = bound, .best = best
    };
    uint32_t order[BERTHI_HOME_DEVICES];
    berth_status status;
    int orders;

    find_kinds(&r);
    orders = r.kind_count > 1 ? 2 : 1;
    for (int by_room = 0; by_room < orders; by_room++) {
        sort_devices(problem, by_room == 1, order);
        fill(&r, order);
    }
    status = try_packed(&r, error);
    for (int by_room = 0; by_room < orders && status == BERTH_OK; by_room++) {
        if (best->cost.missing == 0 && best->cost.nanoseconds == 0)
            break;
        sort_devices(problem, by_room == 1, order);
        status = berthi_home_split_find(&r, order, error);
    }
    return status;
}
