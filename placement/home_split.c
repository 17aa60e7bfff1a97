/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home_split.c - one range of layers on each device, devices in a given order: of
 * all ways the one that takes the shortest time, range by range.
 *
 * Where the best homes so far miss nothing, only ways are followed that may be as good:
 * nothing is missing, and their time, with what the layers behind them take at least, is
 * no longer. A longer range on a device never misses less, nor does it take less.
 */
#include <string.h>

#include "placement/home_parts.h"

/* Ranges that are weighed. */
#define SPLIT_LIMIT 100000u

/* The first layers on the first devices: the best way to do it. */
typedef struct cell {
    berthi_home_ticks ticks;
    uint64_t missing;
    uint32_t used;  /* devices; 0 with layers: not reached */
    uint32_t begin; /* of the last device's range; its end: it has none */
} cell;

typedef struct splitting {
    const berthi_home_ranges *ranges;
    const uint32_t *order;
    cell *cells;               /* by layers and, within, by devices */
    berthi_home_ticks *limits; /* of cells: no better homes pass through what is above */
    bool has_limits;
} splitting;

/* Devices that can take a range: which of the order. */
typedef struct places {
    uint32_t of[BERTHI_HOME_DEVICES];
    uint32_t count;
} places;

static bool
is_better(const cell *a, const cell *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing;
    if (a->ticks != b->ticks)
        return a->ticks < b->ticks;
    return a->used < b->used;
}

/* The first cell of so many layers. */
static uint64_t
row_of(const splitting *s, uint32_t layers)
{
    return layers * (s->ranges->problem->device_count + UINT64_C(1));
}

/* -------------------------------------------------------------------- limits */

/* What a device has for layers that are not pinned, before anything is brought. */
static uint64_t
free_of(const berthi_home_ranges *r, uint32_t device)
{
    const berthi_home_problem *const problem = r->problem;
    const berthi_home_sums *const base = &r->kinds[r->kind_of[device]].base;

    return berthi_home_excess(problem->devices[device].room,
                              base->fixed + base->kept + base->dense + base->experts);
}

/* What the best homes take, less what the layers behind a cell take at least. */
static void
set_limits(const splitting *s)
{
    const berthi_home_ranges *const r = s->ranges;
    const berthi_home_problem *const problem = r->problem;
    const berthi_home_ticks most = berthi_home_most_ticks(r->best->cost.nanoseconds);
    const uint64_t unit = berthi_max_u64(r->bound->unit[0], 1);
    uint64_t need = 0;
    uint64_t odd = 0; /* of it, beyond whole units */

    for (uint32_t l = problem->layer_count; l > 0; l--) {
        uint64_t free = 0;
        uint64_t useful = 0;

        for (uint32_t i = problem->device_count + 1; i-- > 0;) {
            const uint64_t away = berthi_max_u64(berthi_home_excess(need, free),
                                                 berthi_home_excess(need - odd, useful));
            const berthi_home_ticks behind = berthi_home_cheapest(r->bound, away);

            s->limits[row_of(s, l) + i] = behind < most ? most - behind : 0;
            if (i > 0) {
                free += free_of(r, s->order[i - 1]);
                useful += berthi_home_useful(free_of(r, s->order[i - 1]), unit,
                                             r->bound->slot);
            }
        }
        if (problem->layers[l - 1].pin == BERTHI_NO_DEVICE) {
            need += berthi_home_need(&problem->layers[l - 1]);
            odd += berthi_home_need(&problem->layers[l - 1]) % unit;
        }
    }
}

/* -------------------------------------------------------------------- ranges */

/* Those of a kind that come next to layers before `begin`. */
static void
find_places(const splitting *s, uint32_t kind, uint32_t begin, places *out)
{
    const berthi_home_ranges *const r = s->ranges;
    const cell *const before = &s->cells[row_of(s, begin)];

    out->count = 0;
    for (uint32_t i = 0; i < r->problem->device_count; i++)
        if (r->kind_of[s->order[i]] == kind && (begin == 0 || before[i].used > 0))
            out->of[out->count++] = i;
}

/*
 * Takes a range for each place. Those beyond the limit are left out of the places where
 * longer ranges are, too.
 */
static void
put_range(const splitting *s, places *at, const cell *range, uint32_t end, bool is_full)
{
    const cell *const before = &s->cells[row_of(s, range->begin)];
    const uint64_t row = row_of(s, end) + 1;
    uint32_t left = 0;

    for (uint32_t p = 0; p < at->count; p++) {
        const uint32_t i = at->of[p];
        cell *const after = &s->cells[row + i];
        const cell with = { before[i].ticks + range->ticks,
                            before[i].missing + range->missing, before[i].used + 1,
                            range->begin };
        const bool is_beyond = s->has_limits && with.ticks > s->limits[row + i];

        if (!is_beyond && (after->used == 0 || is_better(&with, after)))
            *after = with;
        if (!is_beyond || !is_full)
            at->of[left++] = i;
    }
    at->count = left;
}

/*
 * All ranges of a kind that begin at `begin`. Once a device is full a layer more adds to
 * its time what the layers behind take less, at least: as dense bytes, or as experts
 * which then are none of theirs.
 */
static void
split_from(const splitting *s, uint32_t kind, uint32_t begin)
{
    const berthi_home_ranges *const r = s->ranges;
    const berthi_home_problem *const problem = r->problem;
    const uint32_t device = r->kinds[kind].device;
    berthi_home_sums sums = r->kinds[kind].base;
    const berthi_home_load base = berthi_home_weigh(problem, device, &sums);
    places at;

    find_places(s, kind, begin, &at);
    for (uint32_t end = begin + 1; at.count > 0 && end <= problem->layer_count; end++) {
        berthi_home_load load;

        berthi_home_ranges_add(r, &sums, end - 1);
        load = berthi_home_weigh(problem, device, &sums);
        if (s->has_limits && load.missing > base.missing)
            break;
        put_range(s, &at,
                  &(cell){ load.ticks - base.ticks, load.missing - base.missing, 0, begin },
                  end, berthi_home_is_full(problem, device, &sums, &load));
    }
}

static void
split(const splitting *s)
{
    const berthi_home_problem *const problem = s->ranges->problem;

    for (uint32_t begin = 0; begin <= problem->layer_count; begin++) {
        cell *const row = &s->cells[row_of(s, begin)];

        for (uint32_t i = 0; i < problem->device_count; i++) /* it has no range */
            if (row[i].used > 0
                && (row[i + 1].used == 0 || is_better(&row[i], &row[i + 1]))) {
                row[i + 1] = row[i];
                row[i + 1].begin = begin;
            }
        for (uint32_t k = 0; k < s->ranges->kind_count; k++)
            split_from(s, k, begin);
    }
}

static void
offer(const splitting *s)
{
    const berthi_home_problem *const problem = s->ranges->problem;
    uint32_t end = problem->layer_count;

    if (s->cells[row_of(s, end) + problem->device_count].used == 0)
        return; /* no way is as good as the best */
    for (uint32_t i = problem->device_count; i > 0; i--) {
        const uint32_t begin = s->cells[row_of(s, end) + i].begin;

        berthi_home_ranges_put(s->ranges, s->order[i - 1], begin, end);
        end = begin;
    }
    berthi_home_best_offer(problem, s->ranges->best);
}

berth_status
berthi_home_split_find(const berthi_home_ranges *r, const uint32_t *order,
                       berth_error *error)
{
    const uint64_t layers = r->problem->layer_count;
    const uint64_t cells = (layers + 1) * (r->problem->device_count + UINT64_C(1));
    const uint64_t bytes = cells * (sizeof(cell) + sizeof(berthi_home_ticks));
    splitting s = { .ranges = r,
                    .order = order,
                    .has_limits = r->best->cost.missing == 0 };

    if (layers * layers / 2 * r->kind_count > SPLIT_LIMIT)
        return BERTH_OK;
    s.cells = berthi_memory_zalloc(r->context, BERTHI_PURPOSE_SCRATCH, bytes);
    if (s.cells == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    s.limits = (berthi_home_ticks *)(void *)&s.cells[cells];
    set_limits(&s);
    split(&s);
    offer(&s);
    berthi_memory_free(r->context, BERTHI_PURPOSE_SCRATCH, s.cells, bytes);
    return BERTH_OK;
}
