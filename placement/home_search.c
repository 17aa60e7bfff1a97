/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home_search.c - all homes of layers, but for those that cannot be better.
 *
 * Layer by layer, from good homes (home_ranges.c) on: first for less cost, leaving
 * all homes that begin as the ones in hand where the bound (home_bound.c) says that
 * none of them costs less than the best found. Then, the least cost known, for the
 * smallest list: the first that is met, since the first devices are tried first.
 * Ended when the steps are used up.
 */
#include <string.h>

#include "placement/home_parts.h"

/*
 * Steps of about 100 ns each. Few layers may take all that there are; with many the
 * search either ends soon or finds nothing more in any time one would wait. To look
 * at every device for every layer takes one step each.
 */
#define EFFORT_OF_ALL UINT64_C(4000000) /* over the square of the layers */
#define EFFORT_LEAST UINT64_C(1000)

typedef struct level {
    berthi_home_undo undo;
    uint32_t next; /* the device to try next */
} level;

typedef struct search {
    const berthi_home_problem *problem;
    berthi_home_partial partial;
    berthi_home_partial nothing; /* has been given yet */
    berthi_home_bound bound;
    berthi_home_best best;
    level *levels;      /* layer_count */
    uint32_t twin[BERTHI_HOME_DEVICES]; /* the one before that is the same; or none */
    berthi_home_cost floor; /* nothing costs less */
    bool is_cheapest;   /* the best homes: now for the smallest list */
    uint64_t steps;     /* that are left */
} search;

/* ---------------------------------------------------------------------- best */

void
berthi_home_best_offer(const berthi_home_problem *problem, berthi_home_best *best)
{
    uint64_t missing;
    uint32_t short_of;
    const berthi_home_cost cost =
        berthi_home_evaluate(problem, best->tried, &missing, &short_of);
    int order = berthi_home_compare(&cost, &best->cost);

    for (uint32_t i = 0; i < problem->layer_count && order == 0; i++)
        order = (best->tried[i] > best->homes[i]) - (best->tried[i] < best->homes[i]);
    if (order < 0) {
        best->cost = cost;
        memcpy(best->homes, best->tried, problem->layer_count * sizeof *best->homes);
    }
}

/* The bound of all homes is closer, the better the best ones are. */
static void
raise_floor(search *s)
{
    const berthi_home_cost floor =
        berthi_home_bound_of(&s->bound, &s->nothing, &s->best.cost);

    if (berthi_home_compare(&floor, &s->floor) > 0)
        s->floor = floor;
}

/* The path is complete, and better than the best homes. True when nothing is better. */
static bool
is_last_path(search *s)
{
    s->best.cost = berthi_home_partial_cost(&s->partial);
    for (uint32_t i = 0; i < s->problem->layer_count; i++)
        s->best.homes[i] = s->levels[i].undo.device;
    raise_floor(s);
    return s->is_cheapest || berthi_home_compare(&s->best.cost, &s->floor) <= 0;
}

/* ----------------------------------------------------------------- the search */

/* Devices that nothing tells apart: of those that have no layer the first will do. */
static void
find_twins(search *s)
{
    const berthi_home_problem *const problem = s->problem;
    const uint64_t pinned = s->bound.rest[0].mandatory;

    for (uint32_t d = 0; d < problem->device_count; d++) {
        uint32_t e = d;

        while (e > 0 && !berthi_home_is_twin(problem, pinned, d, e - 1))
            e--;
        s->twin[d] = e > 0 ? e - 1 : BERTHI_NO_DEVICE;
    }
}

/* The next device for the layer at hand; false when all have been tried. */
static bool
has_next(search *s, uint32_t *out)
{
    const uint32_t pin = s->problem->layers[s->partial.position].pin;
    level *const l = &s->levels[s->partial.position];

    for (; l->next < s->problem->device_count; l->next++) {
        const uint32_t twin = s->twin[l->next];

        if (pin != BERTHI_NO_DEVICE && pin != l->next)
            continue;
        if (twin != BERTHI_NO_DEVICE && s->partial.devices[twin].layers == 0)
            continue;
        *out = l->next++;
        return true;
    }
    return false;
}

/* Goes one layer on; false when nothing better begins so: the layer is taken back. */
static bool
can_step(search *s, uint32_t device)
{
    level *const l = &s->levels[s->partial.position];
    berthi_home_cost bound;
    int compared;

    berthi_home_partial_give(&s->partial, device, &l->undo);
    bound = berthi_home_bound_of(&s->bound, &s->partial, &s->best.cost);
    compared = berthi_home_compare(&bound, &s->best.cost);
    if (compared < 0 || (compared == 0 && s->is_cheapest))
        return true;
    berthi_home_partial_take(&s->partial, &l->undo);
    return false;
}

static void
take_back(search *s)
{
    berthi_home_partial_take(&s->partial, &s->levels[s->partial.position - 1].undo);
}

/* True when all homes have been looked at or ruled out. */
static bool
is_complete(search *s)
{
    s->levels[0].next = 0;
    for (;;) {
        uint32_t device;

        if (s->partial.position == s->problem->layer_count) {
            if (is_last_path(s))
                return true;
        } else if (has_next(s, &device)) {
            if (s->steps == 0)
                return false;
            s->steps--;
            if (can_step(s, device) && s->partial.position < s->problem->layer_count)
                s->levels[s->partial.position].next = 0;
            continue;
        }
        if (s->partial.position == 0)
            return true;
        take_back(s);
    }
}

/* Looks for the least cost, then for the smallest list that has it. */
static bool
is_proved(search *s, uint64_t effort)
{
    s->steps = effort;
    raise_floor(s);
    s->is_cheapest = berthi_home_compare(&s->best.cost, &s->floor) <= 0;
    if (!s->is_cheapest) {
        s->is_cheapest = is_complete(s);
        while (s->partial.position > 0)
            take_back(s);
    }
    return s->is_cheapest && is_complete(s);
}

/* ---------------------------------------------------------------------- find */

static uint64_t
default_effort(const berthi_home_problem *problem)
{
    const uint64_t layers = problem->layer_count;
    const uint64_t least = berthi_max_u64(layers * problem->device_count, EFFORT_LEAST);

    return berthi_max_u64(EFFORT_OF_ALL / ((layers + 1) * (layers + 1)), least);
}

static berth_status
run(berth_context *context, search *s, berthi_homes *out, berth_error *error)
{
    const berthi_home_problem *const problem = s->problem;
    berth_status status;

    for (uint32_t i = 0; i < problem->layer_count; i++) {
        const uint32_t pin = problem->layers[i].pin;

        s->best.homes[i] = pin == BERTHI_NO_DEVICE ? 0 : pin;
    }
    s->best.cost = berthi_home_evaluate(problem, s->best.homes, &out->missing,
                                        &out->short_of);
    status = berthi_home_ranges_find(context, &s->bound, &s->best, error);
    if (status != BERTH_OK)
        return status;
    berthi_home_partial_init(&s->partial, problem, berthi_max_u64(s->bound.unit[0], 1),
                             s->bound.slot);
    find_twins(s);
    s->nothing = s->partial;
    out->is_proved = problem->layer_count == 0
                     || is_proved(s, problem->effort > 0 ? problem->effort
                                                         : default_effort(problem))
                     || s->floor.missing > 0;
    out->cost = berthi_home_evaluate(problem, s->best.homes, &out->missing,
                                     &out->short_of);
    out->is_feasible = out->cost.missing == 0;
    return BERTH_OK;
}

berth_status
berthi_home_find(berth_context *context, const berthi_home_problem *problem,
                 berthi_homes *out, berth_error *error)
{
    const uint64_t count = problem->layer_count;
    const uint64_t level_bytes = count * sizeof(level);
    const uint64_t rest_bytes = (count + 1) * sizeof(berthi_home_rest);
    const uint64_t tried_bytes = count * sizeof(uint32_t);
    const uint64_t bytes = sizeof(search) + rest_bytes + level_bytes + tried_bytes;
    unsigned char *const memory =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, bytes);
    search *const s = (search *)(void *)memory;
    berth_status status;

    if (memory == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    s->problem = problem;
    berthi_home_bound_init(&s->bound, problem,
                           (berthi_home_rest *)(void *)(memory + sizeof *s));
    s->levels = (level *)(void *)(memory + sizeof *s + rest_bytes);
    s->best.homes = out->homes;
    s->best.tried =
        (uint32_t *)(void *)(memory + sizeof *s + rest_bytes + level_bytes);
    status = run(context, s, out, error);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, memory, bytes);
    return status;
}
