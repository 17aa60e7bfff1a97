/* SPDX-License-Identifier: Apache-2.0 */
/* load_tier.h - what a load takes of each tier of its plan, and what plays the tier. */
#ifndef BERTH_TOOLS_LOAD_TIER_H
#define BERTH_TOOLS_LOAD_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

/* Of a tier, as allocated; 0: the disk. */
uint64_t load_slab_bytes(const berth_plan_tier *tier);
/*
 * The device that plays the tier of this number; false: no GPU, or not one of `devices`,
 * which may be NULL: the plan names its own.
 */
bool load_has_device(const berth_plan *plan, const berth_devices *devices, uint32_t tier,
                     berth_device *out);

#endif
