/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_input.h - what the planner is told of a checkpoint: its tensors as berths,
 * its layers in the order of execution, the tiers that may be used.
 *
 *   plan_input.c    the order of these
 *   plan_tensors.c  recipe and architecture -> tensors and layers
 *   plan_measure.c  bytes of each
 *   plan_slices.c   what of each tensor one rank holds, stacks that are taken apart
 *   plan_tiers.c    budgets, reserves, links, what lies beside the weights
 *   plan_free.c     what is free: budgets that are shares
 *   plan_pins.c     "model.layers.0-9=cpu"
 *   plan_map.c      a device map that is followed
 *   plan_train.c    what is trained, and what that keeps in each layer
 */
#ifndef BERTH_LOADER_PLAN_INPUT_H
#define BERTH_LOADER_PLAN_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/recipe.h"
#include "placement/device_map.h"
#include "placement/plan.h"
#include "placement/plan_train.h"
#include "placement/shape.h"

/* The optimizer that a plan for training is made for, unless another is asked for. */
#define BERTHI_PLAN_OPTIMIZER "paged_adamw_8bit"

/* All that hangs together while a plan is made. */
typedef struct berthi_plan_source {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    const berth_plan_options *options;
    berthi_arena arena;      /* all lists of `input` */
    berthi_recipe recipe;
    berthi_device_map map;
    bool has_map;
    berthi_shape *shape;     /* NULL: no config.json */
    berthi_slice *slices;    /* of the recipe's weights; NULL: all whole */
    bool takes_apart;        /* stacks of experts, where they can be; no rank does */
    uint32_t *tensor_of;     /* of the recipe's weights: numbers in `tensors`, the first */
    berthi_plan_tensor *tensors;
    berthi_plan_layer_input *layers;
    const berthi_module **modules; /* of layers; NULL: outside of all */
    berthi_plan_tier_input *tiers;
    berthi_train_input train;
    berthi_plan_input input; /* borrows all of the above */
} berthi_plan_source;

/* Fills `out->input`. Free with berthi_plan_source_fini(); failures leave nothing. */
berth_status berthi_plan_source_init(berthi_plan_source *out, berth_context *context,
                                     const berth_checkpoint *checkpoint,
                                     const berth_plan_options *options,
                                     berth_error *error);
void berthi_plan_source_fini(berthi_plan_source *source);

/* ------------------------------------------------------------------------ parts */

/* Slices, where there are ranks; `shape` is that of one rank then. */
berth_status berthi_plan_list_slices(berthi_plan_source *source, berth_error *error);
/* Experts of a weight that is a stack of them; 0: it is none, or not treated as one. */
uint32_t berthi_plan_stack(const berthi_plan_source *source, uint32_t weight);
/* Whether each expert of such a stack can have a berth of its own. */
bool berthi_plan_can_take_apart(const berthi_plan_source *source, uint32_t weight);
/* The tensors of a weight: one, or one for each expert. */
uint32_t berthi_plan_tensor_count(const berthi_plan_source *source, uint32_t weight);
/* The n-th of them, a number in `tensors`. */
uint32_t berthi_plan_tensor_of(const berthi_plan_source *source, uint32_t weight,
                               uint32_t number);
/* Whether the weight, which is stored quantized, is loaded as it is stored. */
bool berthi_plan_is_kept(const berthi_plan_source *source,
                         const berthi_recipe_weight *weight);
/* Encoding, bytes and scratch of what the tensor is of that weight: of its slice. */
void berthi_plan_measure(const berthi_plan_source *source, uint32_t weight,
                         berthi_plan_tensor *tensor);
/* Tensors and layers, in the order of execution. */
berth_status berthi_plan_list_tensors(berthi_plan_source *source, berth_error *error);
/* What is free for this process; UINT64_MAX: not known, of a GPU: it is not here. */
uint64_t berthi_plan_free_host(void);
berth_status berthi_plan_free_gpu(berth_context *context, const berthi_tier *tier,
                                  uint64_t *out, berth_error *error);
/* Shares in a list of budgets, as bytes. ARGUMENT: what there is of one is not known. */
berth_status berthi_plan_take_shares(const berthi_plan_source *source,
                                     berthi_tier_list *list, berth_error *error);
/* Budgets, reserves, rates; KV cache, activations, staging. */
berth_status berthi_plan_list_tiers(berthi_plan_source *source, berth_error *error);
berth_status berthi_plan_measure_use(berthi_plan_source *source, berth_error *error);
/*
 * Where the map puts a weight of the recipe. What its class leaves out of maps, and
 * buffers that maps of transformers lose, are loaded into host memory.
 */
berthi_tier berthi_plan_mapped_tier(const berthi_plan_source *source, uint32_t weight);
/* Sets `tier` of the tensors that pins name; tiers and tensors are listed. */
berth_status berthi_plan_pin(berthi_plan_source *source, berth_error *error);
/* Options of training alone; the caller's are checked first. */
berth_status berthi_plan_check_training(const berth_plan_options *options,
                                        berth_error *error);
/* Whether weights are f32 and cast for use. */
bool berthi_plan_is_cast(const berth_plan_options *options);
/* What is trained; tensors and use are known. */
berth_status berthi_plan_take_training(berthi_plan_source *source, berth_error *error);
/* Pins and maps leave on devices what is trained. */
berth_status berthi_plan_check_trained(const berthi_plan_source *source,
                                       berth_error *error);
/* The number of a tier in the input; BERTHI_NO_TIER: it is not there. */
uint32_t berthi_plan_find_tier(const berthi_plan_source *source, const berthi_tier *tier);
/* A warning for the caller. */
__attribute__((format(printf, 3, 4))) void
berthi_plan_warn(const berth_plan_options *options, berth_reason reason,
                 const char *format, ...);

/*
 * Whether the plan, which has the checkpoint's digest, is one of it, budgets apart: what
 * berth_plan_check() finds wrong first. For plans that were read; one that was made here has
 * the tensors of its checkpoint.
 */
berth_status berthi_plan_hold(const berth_plan *plan, berth_context *context,
                              const berth_checkpoint *checkpoint, berth_error *error);

/* crc32 of names, dtypes and shapes of all tensors, in bytewise order of names. */
uint32_t berthi_plan_digest(const berth_checkpoint *checkpoint);
/* PLAN_CHECKPOINT, unless that of the checkpoint, `digest`, is the plan's. */
berth_status berthi_plan_check_digest(const berth_plan *plan,
                                      const berth_checkpoint *checkpoint, uint32_t digest,
                                      berth_error *error);

#endif
