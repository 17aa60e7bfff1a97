/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fold.h - layers of a plan that follow each other and are treated alike. */
#ifndef BERTH_TOOLS_PLAN_FOLD_H
#define BERTH_TOOLS_PLAN_FOLD_H

#include <stdbool.h>

#include "loader/berth.h"

#define PLAN_FOLD_NAME 192

typedef struct plan_fold {
    char name[PLAN_FOLD_NAME]; /* "model.layers.0-31" */
    uint32_t first;            /* layers first to first + count - 1 */
    uint32_t count;
    uint32_t home;
    uint32_t away; /* the tier that most of the rest comes from; BERTH_NO_INDEX: none */
    int32_t cause;
    uint64_t bytes;
    uint64_t resident_bytes;
    uint64_t link_bytes;
} plan_fold;

/* The range that begins with layer *at, which moves behind it; false at `count`. */
bool plan_fold_has_next(const berth_plan *plan, uint32_t count, uint32_t *at,
                        plan_fold *out);

/* The 3 of "cuda:3". */
uint32_t plan_gpu_number(const berth_plan_tier *tier);

#endif
