/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.h - what cmd_plan.c and cmd_plan_options.c share. */
#ifndef BERTH_TOOLS_CMD_PLAN_H
#define BERTH_TOOLS_CMD_PLAN_H

#include "tools/encoding.h"
#include "tools/session.h"
#include "tools/train_arguments.h"

#define PLAN_TYPES "none|nf4|fp4|int8"
#define PLAN_TYPE_NF4 1
#define PLAN_STACKS "auto|whole|apart" /* in the order of berth_stacks */
#define PLAN_MODES "auto|balanced|balanced_low_0|sequential"

typedef struct plan_arguments {
    cli_common common;
    model_arguments model;
    encoding_arguments encoding; /* its type in PLAN_TYPES */
    const char *max_memory;
    const char *reserve;
    const char *reserve_percent;
    cli_list pins;
    bool no_offload;
    int32_t mode; /* in PLAN_MODES */
    bool has_cpu_offload;
    bool has_buffer_offload;
    const char *device_map;
    const char *architectures;
    const char *parallel;
    int32_t stacks; /* in PLAN_STACKS */
    const char *context;
    const char *batch;
    int32_t cache_dtype; /* in ENCODING_DTYPES */
    uint32_t slots;
    const char *expert_hits;
    const char *links;
    const char *link_file;
    train_arguments train;
    const char *check;
    const char *layer;
    const char *output;
    bool may_overwrite;
    bool is_quiet;
    bool wants_map;
    bool wants_json;
} plan_arguments;

#define PLAN_LACKS 128u /* more than there are tiers */

/* A tier that is short. */
typedef struct plan_lack {
    char tier[32];
    uint64_t needed;
    uint64_t budget;
} plan_lack;

/* What a run owns. */
typedef struct planning {
    session *s;
    const plan_arguments *a;
    berth_plan_options options;
    berth_train_options train;
    encoding_skips skips;
    berth_checkpoint *checkpoint;
    berth_plan *plan;
    uint32_t first_layer; /* of --explain */
    uint32_t last_layer;
    plan_lack lacks[PLAN_LACKS]; /* of a plan that does not fit */
    uint32_t lack_count;
} planning;

/* Options that go together; nothing has been opened. */
berth_status plan_check_arguments(const cli_call *call);
/* Numbers of the command line, into p->options. */
berth_status plan_take_numbers(planning *p);
/* All else, once p->skips and p->train are filled. */
void plan_fill_options(planning *p, int32_t type);

#endif
