/* SPDX-License-Identifier: Apache-2.0 */
/* vacant.c - contexts and devices that nobody has left anything in; see vacant.h. */
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
vacant_check_memory(const berth_context *context)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    CHECK_EQ(memory.allocations, memory.frees);
}

void
vacant_check_tiers(const berth_context *context)
{
    for (uint32_t tier = 0; tier < berth_memory_tiers(context); tier++)
        check_tier(context, tier);
}

/* What nobody but the simulation knows. What `steal` takes is nobody's. */
static void
check_simulated(const berthi_sim_device *device)
{
    const uint64_t stolen = berthi_divide_up(device->words.steal_bytes, BERTHI_SIM_GRANULE);

    CHECK_EQ(device->memory.used, berthi_min_u64(stolen, device->memory.granules));
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

    if (device->context->kept != NULL)
        return;
    if (device->table == &berthi_sim_table) {
        check_simulated((const berthi_sim_device *)device);
        return;
    }
    device->table->describe(device, &properties);
    if (properties.free_bytes != UINT64_MAX && !properties.is_host)
        CHECK_EQ(properties.free_bytes, properties.memory_bytes);
}

void
vacant_check_devices(const berth_devices *devices)
{
    const uint32_t count = devices != NULL ? berthi_devices_count(devices) : 0;

    for (uint32_t i = 0; i < count; i++)
        check_device(berthi_devices_at(devices, i));
}

void
vacant_check(const berth_devices *devices)
{
    const berth_context *const context =
        devices != NULL && berthi_devices_count(devices) > 0
            ? berthi_devices_at(devices, 0)->context
            : NULL;

    for (uint32_t tier = 1; context != NULL && context->kept == NULL
                            && tier < berth_memory_tiers(context);
         tier++)
        check_tier(context, tier);
    vacant_check_devices(devices);
}

void
vacant_close(berth_devices *devices)
{
    vacant_check(devices);
    berth_devices_close(devices);
}
