/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/vacant.h"

#include "kernels/device.h"
#include "kernels/sim.h"
#include "tests/t.h"

static void
check_tier(const berth_context *context, uint32_t tier)
{
    for (int32_t p = 0; p < BERTH_MEMORY_PURPOSE_COUNT; p++) {
        berth_memory memory;

        CHECK_EQ(berth_memory_get(context, tier, p, &memory), BERTH_OK);
        CHECK_EQ(memory.current_bytes, 0);
        CHECK_EQ(memory.slabs, 0);
        CHECK_EQ(memory.slab_bytes, 0);
    }
}

void
vacant_check_tiers(const berth_context *context)
{
    for (uint32_t tier = 0; tier < berth_memory_tiers(context); tier++)
        check_tier(context, tier);
}

/* What nobody but the simulation knows. */
static void
check_simulated(const berthi_sim_device *device)
{
    CHECK_EQ(device->streams, 0);
    CHECK_EQ(device->memory.pin_count, 0);
    CHECK_EQ(device->memory.pin_bytes, 0);
    CHECK_EQ(device->memory.allocation_count, 0);
    CHECK_EQ(device->misuses, 0);
}

static void
check_device(berthi_device *device)
{
    berthi_device_properties properties;

    device->table->describe(device, &properties);
    if (properties.free_bytes != UINT64_MAX && !properties.is_host)
        CHECK_EQ(properties.free_bytes, properties.memory_bytes);
    if (device->table == &berthi_sim_table)
        check_simulated((const berthi_sim_device *)device);
}

void
vacant_check(const berth_devices *devices)
{
    const uint32_t count = devices != NULL ? berthi_devices_count(devices) : 0;

    for (uint32_t i = 0; i < count; i++) {
        const berth_context *const context = berthi_devices_at(devices, i)->context;

        if (context->kept != NULL)
            continue;
        for (uint32_t tier = 1; tier < berth_memory_tiers(context); tier++)
            check_tier(context, tier);
        check_device(berthi_devices_at(devices, i));
    }
}

void
vacant_close(berth_devices *devices)
{
    vacant_check(devices);
    berth_devices_close(devices);
}
