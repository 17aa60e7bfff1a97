/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_estimate.h - between the command (cmd_estimate.c) and its arguments in the
 * words of the library (cmd_estimate_options.c).
 */
#ifndef BERTH_TOOLS_CMD_ESTIMATE_H
#define BERTH_TOOLS_CMD_ESTIMATE_H

#include "tools/encoding.h"
#include "tools/session.h"
#include "tools/train_arguments.h"

#define ESTIMATE_MAX_LIST 64

/* Every word of a choice; cmd_estimate_options.c has a table for each. */
#define ESTIMATE_TYPES       "native|none|int8|nf4|fp4|" ENCODING_DTYPE_WORDS
#define ESTIMATE_CACHE_TYPES "dtype|fp8|int8|int4|" ENCODING_DTYPE_WORDS

typedef struct estimate_arguments {
    cli_common common;
    model_arguments model;
    int32_t type;       /* in ESTIMATE_TYPES */
    int32_t dtype;      /* in ENCODING_DTYPES */
    int32_t cache_type; /* in ESTIMATE_CACHE_TYPES */
    bool is_double;
    uint32_t block_size;
    bool keeps_experts;
    const char *contexts;
    const char *prompt;
    const char *source;
    const char *batch;
    bool expands_latents;
    bool is_eager;
    bool has_all_logits;
    const char *budgets;
    const char *reserve;
    uint64_t host_bytes;
    const char *tokens;
    train_arguments train;
    uint32_t accumulation;
    bool is_packed;
    const char *prefetch;
    const char *workers;
    uint32_t prefetch_factor;
    uint64_t runtime_bytes;
    uint64_t workspace_bytes;
    const char *fragmentation;
    const char *svg;
    bool may_overwrite;
    bool wants_json;
} estimate_arguments;

/* What a run owns. */
typedef struct estimate_call {
    session *s;
    const estimate_arguments *a;
    berth_estimate_options options;
    berth_train_options train;
    uint64_t contexts[ESTIMATE_MAX_LIST];
    uint64_t budgets[ESTIMATE_MAX_LIST];
    char *tokens;
    berth_shape *shape;
    berth_estimate *estimate;
} estimate_call;

/* Fills options and train of `r` from its arguments; what is wrong is printed. */
berth_status estimate_take_arguments(estimate_call *r);

#endif
