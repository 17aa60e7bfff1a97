/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_weight.h - what estimates and plans for training ask alike: what a tensor is
 * in the model (its kind of layer, its role, rows and columns), and how it is trained.
 */
#ifndef BERTH_LOADER_ESTIMATE_WEIGHT_H
#define BERTH_LOADER_ESTIMATE_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/memory.h"
#include "placement/shape.h"
#include "placement/train.h"
#include "quant/architecture.h"
#include "quant/rules.h"

typedef struct berthi_weight_source {
    const berthi_architecture *architecture;
    const berthi_shape *numbers;
    berthi_arena *texts;  /* of names of modules */
    uint64_t outside;     /* layers that config.json does not count, so far */
} berthi_weight_source;

/* What today's transformers quantizes, experts that it fuses included. */
berthi_rules_options berthi_weight_rules(int32_t dtype);
/*
 * The tensor at this position of the architecture's source, one matrix or several
 * (`count`) of a stack. False: no memory.
 */
bool berthi_weight_can_describe(berthi_weight_source *source,
                                const berthi_model_tensor *tensor, uint32_t position,
                                const berthi_decision *decision, berthi_weight *out);
/* Whether what is called so belongs to a tower for images or sound: it has no KV cache. */
bool berthi_weight_is_of_tower(const char *name, uint64_t length);
/* Those of a kind of layer that are alike become one; returns how many are left. */
uint32_t berthi_weight_merge(berthi_weight *weights, uint32_t count);
/*
 * A second copy of what the model holds once: the tie's target. Where it is the only
 * copy, the source has been given the target's tensor.
 */
bool berthi_weight_is_second(const berthi_parameter *parameter, uint32_t position);
/* What users ask for, but for packed batches; `to` has its defaults. */
void berthi_train_fill(berthi_train_options *to, const berth_train_options *from);

#endif
