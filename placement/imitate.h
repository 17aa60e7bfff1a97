/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate.h - the device map that a release of transformers makes for a model
 * and a max_memory, its refusals included.
 *
 * Known mistakes of upstream are imitated, not mended: a map from here is the
 * one that from_pretrained() would use. Pure functions: the same input gives the
 * same map on every machine. Upstream's maps have no order; here they have that
 * of the model's modules.
 *
 *   imitate_tree.c     modules, tensors, sums
 *   imitate_count.c    architecture -> tree: what a release counts for a tensor
 *   imitate_balance.c  budgets of the balanced modes
 *   imitate_assign.c   modules -> devices
 *   imitate_queue.c    modules that wait, the largest of them, ties among them
 *   imitate_search.c   accelerate's fallback_allocation
 *   imitate_map.c      devices of modules -> the shortest map
 *   imitate.c          the order of these; what quantizers refuse; remarks
 */
#ifndef BERTH_PLACEMENT_IMITATE_H
#define BERTH_PLACEMENT_IMITATE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "placement/budget.h"
#include "placement/imitate_tree.h"
#include "quant/architecture.h"
#include "quant/era.h"

/* BERTHI_PLAN_MODES(X): X(IDENTIFIER, "word of device_map="). */
#define BERTHI_PLAN_MODES(X)                                                               \
    X(AUTO, "auto")                                                                        \
    X(BALANCED, "balanced")                                                                \
    X(BALANCED_LOW_0, "balanced_low_0")                                                    \
    X(SEQUENTIAL, "sequential")

typedef enum berthi_plan_mode {
#define BERTHI_PLAN_MODE_ENUM(identifier, word) BERTHI_PLAN_MODE_##identifier,
    BERTHI_PLAN_MODES(BERTHI_PLAN_MODE_ENUM)
#undef BERTHI_PLAN_MODE_ENUM
        BERTHI_PLAN_MODE_COUNT
} berthi_plan_mode;

/*
 * What upstream raises instead of making a map. Sizes and devices that it does not know
 * fail in berthi_budgets_parse().
 */
typedef enum berthi_refusal {
    BERTHI_REFUSAL_NONE,
    BERTHI_REFUSAL_CLASS,  /* no module has a class that is never split */
    BERTHI_REFUSAL_NUMBER, /* balanced_low_0 and a gap in the GPUs' numbers */
    BERTHI_REFUSAL_DISK,   /* balanced modes of 4.x and a budget for disk */
    BERTHI_REFUSAL_TIE,    /* a tied name whose module no longer waits */
    BERTHI_REFUSAL_OFFLOAD /* quantized weights on cpu or disk */
} berthi_refusal;

/* How a model is counted. Strings and lists are borrowed for the call. */
typedef struct berthi_count_options {
    berthi_era era;
    int32_t dtype;    /* that the model is loaded as */
    int32_t encoding; /* BERTH_ENCODING_NATIVE, _NF4, _FP4 or _INT8 */
    bool has_skips;   /* `skips` replaces the automatic list, even when empty */
    const char *const *skips;
    uint32_t skip_count;
} berthi_count_options;

/*
 * Makes the tree of a model; names are borrowed from it. On success and on
 * failure free with berthi_tree_fini(). Fails with NO_MEMORY or RULES (an entry
 * of the skip list that is no pattern).
 */
berth_status berthi_tree_count(berth_context *context, const berthi_architecture *model,
                               const berthi_count_options *options, berthi_tree *out,
                               berth_error *error);
/* One of the class's _no_placement_params, by its name within its block. */
bool berthi_count_is_escaping(const berthi_architecture *model,
                              const berthi_parameter *parameter);

typedef struct berthi_imitate_options {
    berthi_era era;
    berthi_plan_mode mode;
    const berthi_budgets *budgets;
    bool is_quantized;        /* by bitsandbytes: the cut and the check are its */
    bool has_cpu_offload;     /* llm_int8_enable_fp32_cpu_offload */
    bool has_buffer_offload;  /* offload_buffers */
    bool has_fallback;        /* accelerate's fallback_allocation; 4.x only */
} berthi_imitate_options;

/* One line of a device map: a module with all below it, or one tensor. */
typedef struct berthi_placed {
    const char *path; /* "" for the whole model; borrowed, not ended by a NUL */
    uint64_t path_length;
    double bytes;     /* as counted */
    uint32_t device;  /* of berthi_imitation.budgets */
} berthi_placed;

typedef struct berthi_imitation {
    berth_context *context;
    berthi_refusal refusal;
    uint32_t refused;            /* OFFLOAD: the line refused; NUMBER: the number */
    berthi_budgets balanced;     /* after balancing */
    berthi_budgets budgets;      /* as planned with: cut, the disk always the last one */
    berthi_placed *placed;       /* with OFFLOAD the map that was refused */
    uint32_t placed_count;
    double total_bytes;
    double minimum[BERTHI_BUDGET_LIMIT]; /* what a device that stayed empty had needed */
    double buffer_bytes;  /* of offloaded modules, when no GPU has room for them; else 0 */
    uint32_t lost_buffer; /* a buffer in no line of the map, or BERTHI_NO_NODE */
} berthi_imitation;

/*
 * Plans. BERTH_OK with `refusal` set where upstream raises an error; otherwise
 * only NO_MEMORY fails. Free with berthi_imitation_fini(), after failures, too.
 * The names are those of the tree, which is needed no longer.
 */
berth_status berthi_imitate(berth_context *context, const berthi_tree *tree,
                            const berthi_imitate_options *options, berthi_imitation *out,
                            berth_error *error);
void berthi_imitation_fini(berthi_imitation *imitation);

/* BERTH_OK, or the refusal as a failure: NO_FIT for OFFLOAD, else ARGUMENT. */
berth_status berthi_imitation_check(const berthi_imitation *imitation, berth_error *error);
/*
 * What upstream would say beside the map, line by line: `number` from 0. False
 * when there are no more. Escaped, cut at `capacity`, ended by a NUL.
 */
bool berthi_imitation_has_remark(const berthi_imitation *imitation, const berthi_tree *tree,
                                 uint32_t number, char *text, size_t capacity);

/* "auto", ... */
const char *berthi_plan_mode_name(berthi_plan_mode mode);
bool berthi_plan_mode_can_parse(const char *word, berthi_plan_mode *out);

#endif
