/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_api.h - a model's numbers as users hold them, between the files that
 * read them (estimate_api_shape.c, estimate_api_weights.c) and those that ask
 * (estimate_api_options.c, estimate_api.c). Only for them.
 */
#ifndef BERTH_LOADER_ESTIMATE_API_H
#define BERTH_LOADER_ESTIMATE_API_H

#include "kernels/memory.h"
#include "loader/checkpoint.h"
#include "placement/estimate.h"
#include "placement/estimate_tokens.h"
#include "placement/train.h"

/* Immutable after opening. */
struct berth_shape {
    berth_context *context;
    berthi_arena arena; /* of texts */
    const char *path;
    const char *model_type;
    const char *absence; /* which of the weights are missing, in words; NULL: none */
    berthi_shape numbers;
    berthi_estimate_model model; /* of numbers and weights */
    berthi_weight *weights;
    uint64_t weight_capacity;
    uint64_t parameters;
    uint64_t tensor_bytes; /* 0: unknown */
    uint64_t outside;      /* weights of layers that config.json does not count */
};

/*
 * Lists the weights of an open checkpoint: those of a kind of layer that are alike
 * become one, in an order of their own. `config` is its config.json. On failure
 * nothing is kept but what berth_shape_close() frees.
 */
berth_status berthi_shape_take_weights(berth_shape *shape,
                                       const berth_checkpoint *checkpoint,
                                       const berthi_json_value *config,
                                       const char *config_file, berth_error *error);

struct berth_estimate {
    berth_context *context;
    berth_estimate_summary summary;
    berthi_estimate lines;
    berthi_claim claims[BERTHI_CLAIMS];
    berthi_fit_type rows[BERTHI_TYPE_COUNT];
    uint64_t *cells; /* rows * columns */
    uint64_t cell_count;
    berthi_advice_list advice;
    berthi_tokens_summary tokens;
};

/* One being made: options as the modules below take them. */
typedef struct berthi_estimating {
    berth_estimate *e;
    const berth_shape *shape;
    berth_estimate_options options;
    berth_train_options train_options;
    bool is_training;
    berthi_train_options train; /* `base` is used for inference, too */
    berthi_fit_budget budget;
    berthi_tokens tokens;
    berth_error *error;
} berthi_estimating;

/* Checks the caller's options and turns them into those of the modules. */
berth_status berthi_estimate_take_options(berthi_estimating *m);

#endif
