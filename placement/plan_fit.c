/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fit.c - homes of layers. */
#include <string.h>

#include "placement/plan.h"

/* -------------------------------------------------------------------------- homes */

uint64_t
berthi_plan_room_elsewhere(const berthi_plan_work *work, uint64_t host)
{
    if (work->input->no_offload)
        return 0;
    return work->disk != BERTHI_NO_TIER
               ? berthi_add_capped(host, work->usable[work->disk])
               : host;
}

/* The same layers with embeddings that stay; false: not all can. */
static bool
can_stay(const berthi_home_problem *problem, berthi_home_layer *layers)
{
    uint64_t needed = 0;
    uint64_t room = 0;

    for (uint32_t l = 0; l < problem->layer_count; l++) {
        berthi_home_layer *const layer = &layers[l];

        *layer = problem->layers[l];
        if (layer->is_away)
            return false;
        layer->fixed += layer->idle;
        layer->idle = 0;
        needed += layer->fixed + layer->dense + layer->experts;
    }
    for (uint32_t d = 0; d < problem->device_count; d++)
        room = berthi_add_capped(room, problem->devices[d].room);
    return needed <= room;
}

/*
 * Rows cost next to nothing to fetch, so that homes are found with embeddings outside.
 * Where all stays on as few devices, with nothing to bring, those homes are taken.
 */
static berth_status
bring_home(berthi_plan_work *work, const berthi_home_problem *given,
           const berthi_homes *found, berth_error *error)
{
    const uint64_t bytes = given->layer_count * sizeof *work->homes;
    berthi_home_layer *const layers = berthi_arena_alloc(
        &work->arena, given->layer_count * sizeof *layers, sizeof(uint64_t));
    berthi_homes all = { .homes = berthi_arena_alloc(&work->arena, bytes, 4) };
    berthi_home_problem problem = *given;
    berth_status status;

    if (layers == NULL || all.homes == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    if (found->cost.nanoseconds > 0 || !can_stay(given, layers))
        return BERTH_OK;
    problem.layers = layers;
    problem.elsewhere = 0;
    status = berthi_home_find(work->context, &problem, &all, error);
    if (status == BERTH_OK && all.is_feasible && all.cost.cuts <= found->cost.cuts)
        memcpy(work->homes, all.homes, bytes);
    return status;
}

/* What homes are searched for; `devices` has BERTHI_HOME_DEVICES. */
static berthi_home_problem
describe(const berthi_plan_work *work, berthi_home_device *devices)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t host =
        work->host != BERTHI_NO_TIER ? work->usable[work->host] : 0;
    berthi_home_problem problem = { .layers = work->sums,
                                    .layer_count = input->layer_count,
                                    .devices = devices,
                                    .device_count = work->device_count,
                                    .elsewhere = berthi_plan_room_elsewhere(work, host),
                                    .slots = input->slots };

    for (uint32_t d = 0; d < work->device_count; d++)
        devices[d] = (berthi_home_device){ .room = work->usable[d],
                                           .overhead = input->activations + work->own[d],
                                           .rate = input->tiers[d].link_rate };
    if (input->expert_count > 0)
        problem.expert_share = (uint32_t)berthi_min_u64(
            ((uint64_t)berthi_plan_experts(input) << 32) / input->expert_count,
            UINT32_MAX);
    return problem;
}

static berth_status
take(berthi_plan_work *work, const berthi_home_problem *problem, const berthi_homes *found,
     berth_error *error)
{
    work->plan->summary.is_proved = found->is_proved;
    return bring_home(work, problem, found, error);
}

berth_status
berthi_plan_probe_homes(berthi_plan_work *work, bool *out_all_stay, berth_error *error)
{
    berthi_home_device devices[BERTHI_HOME_DEVICES];
    const berthi_home_problem problem = describe(work, devices);
    berthi_homes found = { .homes = work->homes };
    const berth_status status = berthi_home_find(work->context, &problem, &found, error);

    *out_all_stay =
        status == BERTH_OK && found.is_feasible && found.cost.nanoseconds == 0;
    return *out_all_stay ? take(work, &problem, &found, error) : status;
}

berth_status
berthi_plan_find_homes(berthi_plan_work *work, berth_error *error)
{
    berthi_home_device devices[BERTHI_HOME_DEVICES];
    berthi_home_problem problem = describe(work, devices);
    berthi_homes found = { .homes = work->homes };
    berth_status status = berthi_home_find(work->context, &problem, &found, error);

    if (status == BERTH_OK && !found.is_feasible && problem.slots == 0) {
        problem.slots = 1; /* nothing is brought ahead, but it runs */
        status = berthi_home_find(work->context, &problem, &found, error);
    }
    if (status != BERTH_OK)
        return status;
    if (!found.is_feasible)
        return berthi_plan_refuse_homes(work, &problem, error);
    return take(work, &problem, &found, error);
}
