/* SPDX-License-Identifier: Apache-2.0 */
/* load_tier.h - what a load takes of each tier of its plan, and what plays the tier. */
#ifndef BERTH_TOOLS_LOAD_TIER_H
#define BERTH_TOOLS_LOAD_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/json.h"

#define LOAD_BUDGETS_CAPACITY 8192
/*
 * The max_memory of a plan for `devices`, where nobody has said it: all of each simulated one,
 * of others and of the host what is free. Returns `text`; NULL: they have no memory of their own.
 */
const char *load_budgets(berth_context *context, const berth_devices *devices,
                         char text[LOAD_BUDGETS_CAPACITY]);
/* Bytes of the one allocation that the plan makes on a tier; 0: the disk has none. */
uint64_t load_slab_bytes(const berth_plan_tier *tier);
/*
 * The device that plays the tier of this number; false: no GPU, or not one of `devices`,
 * which may be NULL: the plan names its own.
 */
bool load_has_device(const berth_plan *plan, const berth_devices *devices, uint32_t tier,
                     berth_device *out);

#define LOAD_SLOWEST_CAPACITY 64
/* What the load waited for, for people: "copies to cuda:0". Returns `text`. */
const char *load_slowest(const berth_plan *plan, const berth_load_report *report,
                         char text[LOAD_SLOWEST_CAPACITY]);
/* The same as members "bottleneck" and "bottleneck_tier". */
void load_bottleneck_write(json_writer *w, const berth_plan *plan,
                           const berth_load_report *report);

#endif
