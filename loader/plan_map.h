/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_map.h - the device map that a plan has to follow: imitated, or read from a
 * file.
 */
#ifndef BERTH_LOADER_PLAN_MAP_H
#define BERTH_LOADER_PLAN_MAP_H

#include <stdbool.h>

#include "loader/recipe.h"
#include "placement/device_map.h"

/*
 * Fills `out` from options->mode with options->like and options->max_memory (NULL:
 * what that release finds on this machine), or from options->device_map, which is
 * checked against the model. Remarks of upstream go to options->finding. Fails with
 * ARGUMENT, DEVICE_MAP, NO_FIT (the release refuses, in our words), NO_MEMORY, or as
 * reading a file does. Free with berthi_device_map_fini(), after failures, too.
 */
berth_status berthi_plan_map(const berthi_recipe *recipe,
                             const berth_plan_options *options, berthi_device_map *out,
                             berth_error *error);

/* Tells that the order of layers is a guess, where it is one. */
void berthi_plan_remark_model(const berthi_recipe *recipe,
                              const berth_plan_options *options);
/* Tells of modules to skip that the model has not. */
void berthi_plan_remark_skips(const berthi_recipe *recipe,
                              const berth_plan_options *options);

#endif
