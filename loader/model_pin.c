/* SPDX-License-Identifier: Apache-2.0 */
/* model_pin.c - host memory that a model's devices copy from: pinned, and near them. */
#include "kernels/node.h"
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

        device->table->unpin(device, memory, bytes);
    }
}

bool
berthi_model_can_pin(const berth_model *model, void *memory, uint64_t bytes,
                     berth_error *error)
{
    const uint32_t count = device_count(model);

    for (uint32_t pinned = 0; pinned < count; pinned++) {
        berthi_device *const device = berthi_devices_at(model->devices, pinned);

        if (device->table->pin(device, memory, bytes, error) == BERTH_OK)
            continue;
        unpin_from(model, memory, bytes, pinned);
        return false;
    }
    return true;
}

void
berthi_model_unpin(const berth_model *model, void *memory, uint64_t bytes)
{
    unpin_from(model, memory, bytes, device_count(model));
}

bool
berthi_model_is_pinned(const berth_model *model, void *memory, uint64_t bytes)
{
    berth_error error;

    if (device_count(model) == 0)
        return false;
    if (berthi_model_can_pin(model, memory, bytes, &error))
        return true;
    berthi_device_note_unpinned(model->context, &error);
    return false;
}

bool
berthi_model_can_stage(berth_model *model, void *memory, uint64_t bytes)
{
    const uint32_t count = device_count(model);
    berth_error error;

    if (count > 0)
        berthi_node_bring(berthi_devices_at(model->devices,
                                            atomic_fetch_add(&model->staged, 1) % count),
                          memory, bytes, BERTHI_STAGE_ALIGNMENT);
    if (berthi_model_can_pin(model, memory, bytes, &error))
        return true;
    berthi_device_note_unpinned(model->context, &error);
    return false;
}
