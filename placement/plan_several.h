/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_several.h - how much more memory several tiers need, where more of one would not do;
 * only for plan_refuse.c.
 */
#ifndef BERTH_PLACEMENT_PLAN_SEVERAL_H
#define BERTH_PLACEMENT_PLAN_SEVERAL_H

#include "placement/plan.h"

/* Bytes that are enough for any tier: all that there is, with slots for all of it. */
uint64_t berthi_plan_most(const berthi_plan_work *work);

/* By how much budgets grow, in the order of the input's tiers. */
typedef struct berthi_plan_growth {
    uint64_t raise[BERTHI_TIER_LIMIT];
} berthi_plan_growth;

/* Whether all of the plan fits then. */
berth_status berthi_plan_try(const berthi_plan_work *work, const berthi_plan_growth *growth,
                             bool *out_does, berth_error *error);

/*
 * The least that each tier has to grow by, however large the others are; all 0: no budgets are
 * large enough. *out_is_enough: with these together all fits. Otherwise what one tier needs
 * depends on what another one gets.
 */
berth_status berthi_plan_find_several(const berthi_plan_work *work, berthi_plan_growth *found,
                                      bool *out_is_enough, berth_error *error);

#endif
