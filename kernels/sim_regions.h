/* SPDX-License-Identifier: Apache-2.0 */
/* sim_regions.h - what sim_work.c and sim_steps.c list regions by. For these files alone. */
#ifndef BERTH_KERNELS_SIM_REGIONS_H
#define BERTH_KERNELS_SIM_REGIONS_H

#include <string.h>

#include "kernels/number.h"
#include "kernels/sim.h"

#define SLOT(member) offsetof(berthi_request, arguments.member)

static inline void
add_region(berthi_sim_regions *list, const berthi_sim_region *region)
{
    if (region->bytes > 0)
        list->items[list->count++] = *region;
}

/* One of a request; `slot` is where the pointer stands in it. */
static inline berthi_sim_region
region_at(const berthi_request *request, size_t slot, uint64_t bytes)
{
    berthi_sim_region region = { .bytes = bytes, .slot = slot };

    memcpy(&region.memory, (const char *)request + slot, sizeof region.memory);
    return region;
}

static inline void
add_read(berthi_sim_regions *list, const berthi_request *request, size_t slot, uint64_t bytes)
{
    berthi_sim_region region = region_at(request, slot, bytes);

    region.is_read = true;
    add_region(list, &region);
}

static inline void
add_written(berthi_sim_regions *list, const berthi_request *request, size_t slot,
            uint64_t bytes)
{
    berthi_sim_region region = region_at(request, slot, bytes);

    region.is_written = true;
    add_region(list, &region);
}

/* Also what is written in parts, of which the rest stays. */
static inline void
add_both(berthi_sim_regions *list, const berthi_request *request, size_t slot, uint64_t bytes)
{
    berthi_sim_region region = region_at(request, slot, bytes);

    region.is_read = true;
    region.is_written = true;
    add_region(list, &region);
}

#endif
