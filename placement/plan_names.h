/* SPDX-License-Identifier: Apache-2.0 */
/* plan_names.h - ends of tensors' names, each kept once. Only for plan*.c. */
#ifndef BERTH_PLACEMENT_PLAN_NAMES_H
#define BERTH_PLACEMENT_PLAN_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/plan.h"

/* A table with open addresses, which grows; all of it lies in `arena`. */
typedef struct berthi_plan_names {
    berthi_arena *arena;
    char *text;
    uint64_t used;
    uint64_t capacity;
    uint32_t *slots; /* offset in `text` + 1; 0: free */
    uint64_t mask;
    uint64_t count;
    bool is_failed;  /* out of memory, or more than offsets of 32 bits reach */
} berthi_plan_names;

/* Nothing fails before the end. */
void berthi_plan_names_init(berthi_plan_names *names, berthi_arena *arena);
/* Where it is. */
uint32_t berthi_plan_names_keep(berthi_plan_names *names, const char *text,
                                uint64_t length);
/* The same, where it is likely to be the one at `like`, which was kept before. */
uint32_t berthi_plan_names_keep_like(berthi_plan_names *names, const char *text,
                                     uint64_t length, uint32_t like);
/* Copies the text into the plan. False: this failed, or something before. */
bool berthi_plan_names_can_finish(const berthi_plan_names *names, berth_plan *plan);

#endif
