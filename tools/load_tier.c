/* SPDX-License-Identifier: Apache-2.0 */
/* load_tier.c - see load_tier.h. */
#include "tools/load_tier.h"

uint64_t
load_slab_bytes(const berth_plan_tier *tier)
{
    return tier->kind == BERTH_TIER_DISK
               ? 0
               : tier->weights + tier->slots + tier->expert_slots + tier->scratch;
}

bool
load_has_device(const berth_plan *plan, const berth_devices *devices, uint32_t tier,
                berth_device *out)
{
    uint32_t gpus = 0;
    berth_plan_tier t;

    for (uint32_t i = 0; i < tier; i++)
        if (berth_plan_get_tier(plan, i, &t) == BERTH_OK)
            gpus += t.kind == BERTH_TIER_GPU;
    return devices != NULL && berth_plan_get_tier(plan, tier, &t) == BERTH_OK
           && t.kind == BERTH_TIER_GPU
           && berth_devices_get(devices, gpus, out) == BERTH_OK;
}
