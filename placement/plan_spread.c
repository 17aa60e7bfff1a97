/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_spread.c - when layers are streamed to several devices: is a pass shorter when
 * every device has its share of them?
 *
 * The search for homes adds up what is brought to each device, as if one link worked at
 * a time. Slots are filled while other devices compute, though: what a device streams
 * beyond its slots is what counts. So homes in proportion to the devices' room are
 * tried, too, with everything that follows from them, and the shorter pass is taken.
 */
#include <string.h>

#include "placement/plan.h"

/* A pass that is shorter by less is not worth other homes. */
#define WORTH 0.99

static bool
has_pins(const berthi_plan_input *input)
{
    for (uint32_t i = 0; i < input->tensor_count; i++)
        if (input->tensors[i].tier != BERTHI_NO_TIER)
            return true;
    return false;
}

/* Experts are brought when they are known: no link works ahead for them. */
static bool
has_slots(const berthi_plan_work *work)
{
    for (uint32_t d = 0; d < work->device_count; d++)
        if (work->settled[d].slots > 0)
            return true;
    return false;
}

/* Bytes of a layer that take room or a link. */
static double
weight_of(const berthi_plan_work *work, uint32_t layer)
{
    const berthi_home_layer *const sums = &work->sums[layer];

    return (double)(sums->fixed + sums->dense + sums->experts);
}

/* One range of layers for each device, as long as its room is of all rooms. */
static void
share_out(const berthi_plan_work *work, uint32_t *homes)
{
    const uint32_t layers = work->input->layer_count;
    double all = 0;
    double room = 0;
    double begin = 0;  /* bytes of the layers before */
    double border = 0; /* where the device's range ends */
    uint32_t device = 0;

    for (uint32_t l = 0; l < layers; l++)
        all += weight_of(work, l);
    for (uint32_t d = 0; d < work->device_count; d++)
        room += (double)work->usable[d];
    border = all * (double)work->usable[0] / room;
    for (uint32_t l = 0; l < layers; l++) {
        const double bytes = weight_of(work, l);

        while (begin + bytes / 2 > border && device + 1 < work->device_count) {
            device++;
            border += all * (double)work->usable[device] / room;
        }
        homes[l] = device;
        begin += bytes;
    }
}

/* What a pass takes with these homes, in a plan of its own: offsets do not matter. */
static berth_status
time_homes(berthi_plan_work *work, uint32_t *homes, berth_error *error)
{
    berth_status status;

    berthi_plan_pass_on(work->input, work->plan);
    work->homes = homes;
    memset(work->settled, 0, work->input->tier_count * sizeof *work->settled);
    status = berthi_plan_place(work, error);
    return status == BERTH_OK ? berthi_plan_predict(work, error) : status;
}

static berth_status
try_homes(berthi_plan_work *work, uint32_t *homes, berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    berth_plan *const before = work->plan;
    berth_status status =
        berthi_plan_alloc(work->context, input->tier_count, input->layer_count,
                          input->tensor_count, &work->plan, error);
    bool is_better = false;

    if (status != BERTH_OK) {
        work->plan = before;
        return status;
    }
    status = time_homes(work, homes, error);
    if (status == BERTH_OK)
        is_better = work->plan->summary.seconds < WORTH * before->summary.seconds;
    if (is_better)
        status = berthi_plan_lay(work, error);
    if (is_better && status == BERTH_OK)
        status = berthi_plan_predict(work, error);
    if (is_better && status == BERTH_OK) {
        berthi_plan_free(before);
        return BERTH_OK;
    }
    berthi_plan_free(work->plan);
    work->plan = before;
    return status == BERTH_ENOFIT ? BERTH_OK : status;
}

berth_status
berthi_plan_spread(berthi_plan_work *work, berth_error *error)
{
    const uint64_t bytes = work->input->layer_count * sizeof *work->homes;
    berth_error unused;
    uint32_t *homes;
    berth_status status;

    if (work->device_count < 2 || !has_slots(work) || work->input->is_mapped
        || has_pins(work->input))
        return BERTH_OK;
    homes = berthi_arena_alloc(&work->arena, bytes, 4);
    if (homes == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    share_out(work, homes);
    if (memcmp(homes, work->homes, bytes) == 0)
        return BERTH_OK;
    status = try_homes(work, homes, &unused);
    if (status != BERTH_OK && error != NULL)
        *error = unused;
    return status;
}
