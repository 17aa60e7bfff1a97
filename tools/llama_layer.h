/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_layer.h - what a decoder layer and the head compute, from weights that have
 * been taken. No berth beyond products: this is where another engine has its kernels.
 */
#ifndef BERTH_TOOLS_LLAMA_LAYER_H
#define BERTH_TOOLS_LLAMA_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/llama_attention.h"
#include "tools/llama_config.h"
#include "tools/llama_matrix.h"
#include "tools/llama_weights.h"

/* Memory for a pass of up to `batch` tokens: allocated once. */
typedef struct llama_scratch {
    const llama_config *config;
    llama_pool *pool;
    llama_multiplier *multiplier;
    llama_cache *cache;
    uint32_t batch;
    float *hidden;     /* batch x hidden: what goes from layer to layer */
    float *normed;     /* the same */
    float *queries;
    float *keys;
    float *values;
    float *attended;
    float *gate;       /* tokens, or tokens with each of their experts, x inner */
    float *up;
    float *norm;       /* hidden: a norm's weight as floats */
    float *head_norms; /* 2 x head_dim */
    /* Sparse layers: a slot is a token with one of its experts, in the experts' order. */
    float *router;     /* batch x experts */
    float *gathered;   /* slots x hidden: what goes in, then what comes out */
    float *weights;    /* batch x experts used */
    uint32_t *numbers; /* the same: of experts */
    uint32_t *slots;   /* token x experts used + which, of a slot */
    uint32_t *counts;  /* experts: slots of each */
    llama_product *products; /* two an expert */
    void *memory;      /* in which all of this lies */
} llama_scratch;

/* Allocates for scratch->config and ->batch, which are set. BERTH_ENOMEM. */
berth_status llama_scratch_init(llama_scratch *scratch, berth_error *error);
void llama_scratch_free(llama_scratch *scratch);

/*
 * scratch->hidden through one layer, for `count` tokens: first all but a sparse layer's
 * experts, then those in [first, end) that scratch->counts says are used. All of them,
 * in their order, make up the layer.
 */
berth_status llama_layer_begin(llama_scratch *scratch, const llama_stage *stage,
                               uint32_t layer, uint32_t count, berth_error *error);
berth_status llama_layer_experts(llama_scratch *scratch, const llama_stage *stage,
                                 uint32_t first, uint32_t end, berth_error *error);
/* Both. */
berth_status llama_layer_run(llama_scratch *scratch, const llama_stage *stage,
                             uint32_t layer, uint32_t count, berth_error *error);
/*
 * Final norm and head, or the one of them that the stage has: logits of the last of `count`
 * tokens, or of all.
 */
berth_status llama_head_run(llama_scratch *scratch, const llama_stage *stage,
                            uint32_t count, bool wants_all, float *logits,
                            berth_error *error);

#endif
