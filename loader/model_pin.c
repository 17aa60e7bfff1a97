/* SPDX-License-Identifier: Apache-2.0 */
/* model_pin.c - host memory that a model's devices copy from: pinned, and near them. */
#include "kernels/node.h"
#include "loader/job.h"
#include "loader/model.h"
#include "loader/stage.h"

static uint32_t
device_count(const berth_model *model)
{
    return model->devices != NULL ? berthi_devices_count(model->devices) : 0;
}

static void
unpin_from(const berth_model *model, void *memory, uint64_t bytes, uint32_t count)
{
    while (count > 0) {
        berthi_device *const device = berthi_devices_at(model->devices, --count);

        berthi_device_unpin(device, memory, bytes);
    }
}

/* Pages come, and are registered, for the first device: the others are told of them. */
static berth_status
pin(const berth_model *model, void *memory, uint64_t bytes, const berthi_pin_watch *watch,
    berth_error *error)
{
    const uint32_t count = device_count(model);
    berth_status status = BERTH_OK;

    for (uint32_t pinned = 0; pinned < count && status == BERTH_OK; pinned++) {
        berthi_device *const device = berthi_devices_at(model->devices, pinned);

        status = berthi_device_pin(device, memory, bytes, pinned == 0 ? watch : NULL, error);
        if (status != BERTH_OK)
            unpin_from(model, memory, bytes, pinned);
    }
    return status;
}

void
berthi_model_unpin(const berth_model *model, void *memory, uint64_t bytes)
{
    unpin_from(model, memory, bytes, device_count(model));
}

bool
berthi_model_try_pin(const berth_model *model, void *memory, uint64_t bytes)
{
    berth_error error;

    if (device_count(model) == 0)
        return false;
    if (pin(model, memory, bytes, NULL, &error) == BERTH_OK)
        return true;
    berthi_device_note_unpinned(model->context, &error);
    return false;
}

bool
berthi_model_pin_stage(berth_model *model, void *memory, uint64_t bytes)
{
    const uint32_t count = device_count(model);
    berth_error error;

    if (count > 0)
        berthi_node_bring(berthi_devices_at(model->devices,
                                            atomic_fetch_add(&model->staged, 1) % count),
                          memory, bytes, BERTHI_STAGE_ALIGNMENT);
    if (pin(model, memory, bytes, NULL, &error) == BERTH_OK)
        return true;
    berthi_device_note_unpinned(model->context, &error);
    return false;
}

/* -------------------------------------------------------------------------- slabs */

/* Refused, it is copied as it is; only a cancel is a failure. */
static berth_status
pin_slab(const berth_model *model, void *memory, uint64_t bytes,
         const berthi_pin_watch *watch, bool *out_is_pinned, berth_error *error)
{
    berth_error refusal;
    berth_status status;

    *out_is_pinned = device_count(model) > 0;
    if (device_count(model) == 0 || model->memory.is_pinned != 0)
        return BERTH_OK;
    status = pin(model, memory, bytes, watch, &refusal);
    *out_is_pinned = status == BERTH_OK;
    if (status == BERTH_ECANCELLED)
        return berthi_job_fail_cancelled(error);
    if (status != BERTH_OK)
        berthi_device_note_unpinned(model->context, &refusal);
    return BERTH_OK;
}

uint64_t
berthi_model_pin_bytes(const berth_model *model)
{
    uint64_t bytes = 0;

    if (device_count(model) == 0 || model->memory.is_pinned != 0)
        return 0;
    for (uint32_t t = 0; t < model->tier_count; t++)
        if (model->tiers[t].kind == BERTH_TIER_CPU && model->tiers[t].slab != NULL)
            bytes += model->tiers[t].bytes;
    return bytes;
}

berth_status
berthi_model_pin_slab(const berth_model *model, berthi_model_tier *tier,
                      const berthi_pin_watch *watch, berth_error *error)
{
    if (tier->kind != BERTH_TIER_CPU || tier->slab == NULL)
        return BERTH_OK;
    return pin_slab(model, tier->slab, tier->bytes, watch, &tier->is_pinned, error);
}

berth_status
berthi_model_pin_hold(const berth_model *model, berthi_model_tier *tier,
                      const berthi_pin_watch *watch, berth_error *error)
{
    if (tier->kind != BERTH_TIER_GPU || tier->hold == NULL)
        return BERTH_OK;
    return pin_slab(model, tier->hold, tier->hold_bytes, watch, &tier->is_hold_pinned, error);
}
