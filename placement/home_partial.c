/* SPDX-License-Identifier: Apache-2.0 */
/* home_partial.c - homes of the first layers, one given or taken at a time. */
#include <string.h>

#include "placement/home_parts.h"

/* Of a device as it is: what its layers leave. */
static void
set_free(const berthi_home_partial *partial, uint32_t device, berthi_home_state *state)
{
    const berthi_home_device *const d = &partial->problem->devices[device];
    const berthi_home_sums *const s = &state->sums;
    const uint64_t need = s->fixed + s->kept + s->dense + s->experts + state->load.slots;

    state->free = berthi_home_excess(d->room, need);
    state->useful = berthi_home_useful(state->free, partial->unit, partial->slot);
    state->is_bringing = state->layers > 0 && need > d->room;
}

void
berthi_home_partial_init(berthi_home_partial *partial,
                         const berthi_home_problem *problem, uint64_t unit,
                         uint64_t slot)
{
    memset(partial, 0, sizeof *partial);
    partial->problem = problem;
    partial->unit = unit;
    partial->slot = slot;
    partial->last = BERTHI_NO_DEVICE;
    for (uint32_t d = 0; d < problem->device_count; d++) {
        berthi_home_state *const state = &partial->devices[d];

        state->sums = berthi_home_sums_of(problem, d);
        set_free(partial, d, state);
        partial->free += state->free;
        partial->useful += state->useful;
    }
}

/* Puts `after` in the place of what a device was. */
static void
replace(berthi_home_partial *partial, uint32_t device, const berthi_home_state *after)
{
    berthi_home_state *const state = &partial->devices[device];

    partial->missing += after->load.missing - state->load.missing;
    partial->away += after->load.away - state->load.away;
    partial->ticks += after->load.ticks - state->load.ticks;
    partial->free += after->free - state->free;
    partial->useful += after->useful - state->useful;
    partial->bringing += (uint32_t)after->is_bringing - (uint32_t)state->is_bringing;
    *state = *after;
}

void
berthi_home_partial_give(berthi_home_partial *partial, uint32_t device,
                         berthi_home_undo *undo)
{
    const berthi_home_problem *const problem = partial->problem;
    berthi_home_state after = partial->devices[device];

    *undo = (berthi_home_undo){ after, device, partial->last, partial->cuts };
    berthi_home_sums_add(&after.sums, &problem->layers[partial->position]);
    after.load = berthi_home_weigh(problem, device, &after.sums);
    after.layers++;
    set_free(partial, device, &after);
    replace(partial, device, &after);
    partial->cuts += partial->position > 0 && partial->last != device;
    partial->last = device;
    partial->position++;
}

void
berthi_home_partial_take(berthi_home_partial *partial, const berthi_home_undo *undo)
{
    replace(partial, undo->device, &undo->state);
    partial->cuts = undo->cuts;
    partial->last = undo->last;
    partial->position--;
}

berthi_home_cost
berthi_home_partial_cost(const berthi_home_partial *partial)
{
    const uint64_t elsewhere = partial->problem->elsewhere;

    return (berthi_home_cost){
        .missing = partial->missing + berthi_home_excess(partial->away, elsewhere),
        .nanoseconds = berthi_home_nanoseconds(partial->ticks),
        .cuts = partial->cuts,
    };
}
