/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_advice.h - what would make a load fit that did not: more of what is short, or
 * another plan. Whether there is such a plan is tried, with the fewest changes first.
 */
#ifndef BERTH_TOOLS_LOAD_ADVICE_H
#define BERTH_TOOLS_LOAD_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

/* A load, or its plan, that failed. Everything is borrowed. */
typedef struct load_failure {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    const berth_plan *plan;          /* NULL: it was the plan that did not fit           */
    const berth_plan_options *asked; /* what it was made of; NULL: it came from a file   */
    const berth_devices *devices;    /* NULL: the plan has no GPUs, or names its own     */
    uint64_t ring_bytes;             /* of the load's report                             */
    const berth_error *error;        /* of status ENOFIT or ENOMEM                       */
} load_failure;

#define LOAD_OPTIONS_CAPACITY 2560
#define LOAD_PLANS_MAX        2u /* that are told: each of them does it alone */

/* Another plan: options of `berth plan`, of the command itself where that made the plan. */
typedef struct load_other_plan {
    bool is_encoded; /* weights, that were not */
    bool has_disk;   /* as a tier, that was none */
    bool needs_file; /* what goes to the disk is not stored so: --offload-dir */
    char options[LOAD_OPTIONS_CAPACITY];
} load_other_plan;

typedef struct load_advice {
    uint64_t host_room;  /* of the plan's budget for host memory: what there is; UINT64_MAX:
                            nobody knows */
    bool has_shortage;   /* of a tier, in numbers */
    uint32_t plan_count; /* 0: `refusal` says what is missing, of the last that was tried */
    load_other_plan plans[LOAD_PLANS_MAX];
    bool is_refused;
    load_other_plan refused;
    berth_error refusal;
} load_advice;

void load_advise(const load_failure *failure, load_advice *out);

/* What the load takes of the tier, beside it in host memory, too. */
uint64_t load_need(const load_failure *failure, const berth_plan_tier *tier);
/* What there is for it: UINT64_MAX where nobody knows. */
uint64_t load_room(const load_failure *failure, const load_advice *advice, uint32_t number,
                   const berth_plan_tier *tier);

#endif
