/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_checking.h - a plan while it is held against a checkpoint and memories; only for
 * the files plan_check*.c.
 */
#ifndef BERTH_LOADER_PLAN_CHECKING_H
#define BERTH_LOADER_PLAN_CHECKING_H

#include "loader/findings.h"
#include "loader/plan_input.h"

/* What a plan is held against, and the first thing that is wrong with it. */
typedef struct checking {
    const berth_plan *plan;
    bool has_budgets; /* those that were given or found count, beside the plan's own */
    uint64_t turned_most; /* of berths that are turned while they are filled: the largest */
    uint64_t turned_all;
    berthi_findings findings;
    berth_error *error;
    berth_status status;
} checking;

/* Tells it, and keeps the first one. */
void berthi_checking_tell_error(checking *c, const berth_error *details);
void berthi_checking_tell(checking *c, berth_reason reason, const berthi_about *about,
                          const char *message);

/* All but budgets, of a plan that has the checkpoint's digest. */
berth_status berthi_checking_contents(checking *c, berthi_plan_source *source);

#endif
