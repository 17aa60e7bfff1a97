/* SPDX-License-Identifier: Apache-2.0 */
/* train_lines.h - between train.c and the files that know parts of it. */
#ifndef BERTH_PLACEMENT_TRAIN_LINES_H
#define BERTH_PLACEMENT_TRAIN_LINES_H

#include <stdint.h>

#include "placement/train.h"

/* How sure the activations of these layers are: berthi_basis. */
int32_t berthi_train_layer_basis(const berthi_shape *shape,
                                 const berthi_train_options *options);

/* What is trained. */
typedef struct berthi_trainable {
    uint64_t parameters;
    uint64_t matrices;         /* parameters of matrices: what autocast casts      */
    uint64_t adapted[BERTHI_LAYER_KINDS]; /* matrices a token meets, in one layer  */
    uint64_t adapted_total;    /* adapted matrices                                 */
    berthi_optimizer_bytes states;
} berthi_trainable;

/* Every name of the targets is one of a matrix of the model; ARGUMENT if not. */
berth_status berthi_train_check_targets(const berthi_estimate_model *model,
                                        const berthi_train_options *options,
                                        berth_error *error);

/* Bytes a token keeps in one layer of the kind, adapters included. */
uint64_t berthi_trainable_layer(const berthi_shape *shape,
                                const berthi_train_options *options,
                                const berthi_trainable *trainable, uint32_t kind);

/* Options have been checked. */
void berthi_trainable_sum(const berthi_estimate_model *model,
                          const berthi_train_options *options, berthi_trainable *out);

/* Bytes of a parameter that is trained: as it is kept, and as the optimizer sees it. */
uint64_t berthi_train_kept_bytes(const berthi_train_options *options);
uint64_t berthi_train_master_bytes(const berthi_train_options *options);

/* Tokens of a micro-batch. */
uint64_t berthi_train_tokens(const berthi_train_options *options);

berth_status berthi_train_check(const berthi_train_options *options, berth_error *error);

#endif
