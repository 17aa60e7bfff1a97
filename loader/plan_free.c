/* SPDX-License-Identifier: Apache-2.0 */
/* plan_free.c - what is free of a memory now, for this process: budgets may be shares of it. */
#include <string.h>

#include "kernels/device.h"
#include "kernels/host.h"
#include "loader/plan_input.h"

uint64_t
berthi_plan_free_host(void)
{
    berthi_host_process process;
    berth_host host;

    berthi_host_process_get(&process);
    berthi_host_read("/", &process, &host);
    return host.memory_available;
}

static uint64_t
free_of(const berthi_devices *devices, uint32_t number)
{
    berthi_device_properties properties;
    berthi_device *device;

    if (number >= berthi_devices_count(devices))
        return UINT64_MAX;
    device = berthi_devices_at(devices, number);
    device->table->describe(device, &properties);
    return properties.free_bytes;
}

berth_status
berthi_plan_free_gpu(berth_context *context, const berthi_tier *tier, uint64_t *out,
                     berth_error *error)
{
    char name[BERTHI_TIER_NAME];
    berthi_devices *devices;
    berth_error failure; /* that there is none is no error of the caller's */
    berth_status status;

    *out = UINT64_MAX;
    status = berthi_devices_open(context, berthi_tier_name(tier, name), &devices, &failure);
    if (status == BERTH_ENODEV)
        return BERTH_OK;
    if (status != BERTH_OK) {
        if (error != NULL)
            *error = failure;
        return status;
    }
    *out = free_of(devices, 0);
    berthi_devices_close(devices);
    return BERTH_OK;
}

/* `number`: of the GPU among those that have a budget, as devices are in their order. */
static berth_status
find_free(const berthi_plan_source *source, const berthi_tier *tier, uint32_t number,
          uint64_t *out, berth_error *error)
{
    const berth_devices *const devices = source->options->devices;

    *out = UINT64_MAX; /* the disk: which folder may be written to is not known here */
    if (tier->kind == BERTHI_TIER_CPU)
        *out = berthi_plan_free_host();
    else if (tier->kind == BERTHI_TIER_GPU && devices != NULL)
        *out = free_of(devices, number);
    else if (tier->kind == BERTHI_TIER_GPU)
        return berthi_plan_free_gpu(source->context, tier, out, error);
    return BERTH_OK;
}

static berth_status
refuse_share(const berthi_tier *tier, berth_error *error)
{
    char name[BERTHI_TIER_NAME];
    berthi_about about = { .tensor = berthi_tier_name(tier, name) };

    about.tensor_length = strlen(name);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                       "has a share of what is free there, which is not known here: give "
                       "bytes, as in %s=20GiB",
                       name);
}

berth_status
berthi_plan_take_shares(const berthi_plan_source *source, berthi_tier_list *list,
                        berth_error *error)
{
    uint32_t gpus = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        berthi_tier_bytes *const item = &list->items[i];
        const uint32_t number = gpus;
        uint64_t bytes;
        berth_status status;

        gpus += item->tier.kind == BERTHI_TIER_GPU;
        if (item->share == 0)
            continue;
        status = find_free(source, &item->tier, number, &bytes, error);
        if (status == BERTH_OK && bytes == UINT64_MAX)
            status = refuse_share(&item->tier, error);
        if (status != BERTH_OK)
            return status;
        item->bytes = berthi_share_of(bytes, item->share);
    }
    return BERTH_OK;
}
