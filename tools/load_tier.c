/* SPDX-License-Identifier: Apache-2.0 */
/* load_tier.c - see load_tier.h. */
#include "tools/load_tier.h"

#include <inttypes.h>
#include <stdio.h>

const char *
load_budgets(berth_context *context, const berth_devices *devices,
             char text[LOAD_BUDGETS_CAPACITY])
{
    berth_host host;
    size_t used = 0;

    if (berth_host_get(context, &host, NULL) != BERTH_OK)
        return NULL;
    for (uint32_t i = 0; i < berth_devices_count(devices) && used < LOAD_BUDGETS_CAPACITY;
         i++) {
        berth_device device;

        berth_devices_get(devices, i, &device);
        if (!device.is_simulated && device.free_bytes < device.memory_bytes)
            device.memory_bytes = device.free_bytes;
        if (!device.is_host)
            used += (size_t)snprintf(text + used, LOAD_BUDGETS_CAPACITY - used,
                                     "%u=%" PRIu64 ",", (unsigned)i, device.memory_bytes);
    }
    if (used > 0 && used < LOAD_BUDGETS_CAPACITY)
        snprintf(text + used, LOAD_BUDGETS_CAPACITY - used, "cpu=%" PRIu64 ",disk=inf",
                 host.memory_available);
    return used > 0 ? text : NULL;
}

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

/* The tier whose link it was; false: none's. */
static bool
has_link(const berth_plan *plan, const berth_load_report *report, berth_plan_tier *out)
{
    return report->bottleneck == BERTH_LOAD_BY_COPIES
           && berth_plan_get_tier(plan, report->bottleneck_tier, out) == BERTH_OK;
}

const char *
load_slowest(const berth_plan *plan, const berth_load_report *report,
             char text[LOAD_SLOWEST_CAPACITY])
{
    berth_plan_tier tier;

    snprintf(text, LOAD_SLOWEST_CAPACITY, "%s%s",
             report->bottleneck == BERTH_LOAD_BY_COPIES     ? "copies to "
             : report->bottleneck == BERTH_LOAD_BY_ENCODING ? "encoding"
                                                            : "reads of the files",
             has_link(plan, report, &tier) ? tier.name : "");
    return text;
}

void
load_bottleneck_write(json_writer *w, const berth_plan *plan,
                      const berth_load_report *report)
{
    berth_plan_tier tier;

    json_text(w, "bottleneck",
              report->bottleneck == BERTH_LOAD_BY_COPIES     ? "copy"
              : report->bottleneck == BERTH_LOAD_BY_ENCODING ? "encode"
                                                             : "read");
    if (has_link(plan, report, &tier))
        json_text(w, "bottleneck_tier", tier.name);
    else
        json_null(w, "bottleneck_tier");
}
