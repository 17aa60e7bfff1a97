/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home_split.c - one range of layers on each device, devices in a given order: of
 * all ways the one that takes the shortest time, range by range.
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

static bool
is_better(const cell *a, const cell *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing;
    if (a->ticks != b->ticks)
        return a->ticks < b->ticks;
    return a->used < b->used;
}

/*
 * All ranges that begin at `begin`, on every device behind those that have the
 * layers before. Cells are by layers and, within, by devices.
 */
static void
split_from(const berthi_home_ranges *r, const uint32_t *order, uint32_t begin,
           cell *cells)
{
    const uint32_t count = r->problem->device_count;
    const uint64_t row = count + 1;

    for (uint32_t k = 0; k < r->kind_count; k++) {
        const uint32_t device = r->kinds[k].device;
        berthi_home_sums sums = r->kinds[k].base;
        const berthi_home_load base = berthi_home_weigh(r->problem, device, &sums);

        for (uint32_t end = begin + 1; end <= r->problem->layer_count; end++) {
            berthi_home_load load;

            berthi_home_ranges_add(r, &sums, end - 1);
            load = berthi_home_weigh(r->problem, device, &sums);
            for (uint32_t i = 0; i < count; i++) {
                const cell *const before = &cells[begin * row + i];
                cell *const after = &cells[end * row + i + 1];
                const cell with = { before->ticks + load.ticks - base.ticks,
                                    before->missing + load.missing - base.missing,
                                    before->used + 1, begin };

                if (r->kind_of[order[i]] == k && (begin == 0 || before->used > 0)
                    && (after->used == 0 || is_better(&with, after)))
                    *after = with;
            }
        }
    }
}

static void
split(const berthi_home_ranges *r, const uint32_t *order, cell *cells)
{
    const uint32_t layers = r->problem->layer_count;
    const uint32_t count = r->problem->device_count;
    const uint64_t row = count + 1;
    uint32_t end = layers;

    memset(cells, 0, (layers + 1) * row * sizeof *cells);
    for (uint32_t begin = 0; begin <= layers; begin++) {
        for (uint32_t i = 0; i < count; i++) { /* the next device has no range */
            const cell *const without = &cells[begin * row + i];
            cell *const after = &cells[begin * row + i + 1];

            if (without->used > 0 && (after->used == 0 || is_better(without, after))) {
                *after = *without;
                after->begin = begin;
            }
        }
        split_from(r, order, begin, cells);
    }
    for (uint32_t i = count; i > 0; i--) {
        const uint32_t begin = cells[end * row + i].begin;

        berthi_home_ranges_put(r, order[i - 1], begin, end);
        end = begin;
    }
    berthi_home_best_offer(r->problem, r->best);
}

berth_status
berthi_home_split_find(const berthi_home_ranges *r, const uint32_t *order,
                       berth_error *error)
{
    const uint64_t layers = r->problem->layer_count;
    const uint64_t bytes =
        (layers + 1) * (r->problem->device_count + 1) * sizeof(cell);
    cell *cells;

    if (layers * layers / 2 * r->kind_count > SPLIT_LIMIT)
        return BERTH_OK;
    cells = berthi_memory_alloc(r->context, BERTHI_PURPOSE_SCRATCH, bytes);
    if (cells == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    split(r, order, cells);
    berthi_memory_free(r->context, BERTHI_PURPOSE_SCRATCH, cells, bytes);
    return BERTH_OK;
}
