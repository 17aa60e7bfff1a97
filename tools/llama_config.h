/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_config.h - what config.json says of a decoder: Llama, Mistral, Qwen2, Qwen3,
 * Mixtral, Qwen3-MoE.
 */
#ifndef BERTH_TOOLS_LLAMA_CONFIG_H
#define BERTH_TOOLS_LLAMA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

#define LLAMA_LAYERS_MAX 1024u
#define LLAMA_EXPERTS_MAX 65536u /* of a layer */

/* How positions beyond those of the training are brought back into them. */
typedef enum llama_scaling {
    LLAMA_SCALING_NONE,
    LLAMA_SCALING_LINEAR,
    LLAMA_SCALING_LLAMA3,
    LLAMA_SCALING_YARN
} llama_scaling;

/* Rotary positions, as in rope_scaling or else rope_parameters, and rope_theta. */
typedef struct llama_rope {
    llama_scaling scaling;
    double theta;
    double factor;
    double positions;       /* of the training: original_max_position_embeddings */
    double low_factor;      /* llama3: low_freq_factor, high_freq_factor */
    double high_factor;
    double beta_fast;       /* yarn */
    double beta_slow;
    double attention;       /* yarn: what cosines and sines are multiplied by */
    bool is_truncated;      /* yarn: bounds are whole dimensions */
} llama_rope;

/* Where the weights of experts are called what. */
typedef enum llama_experts {
    LLAMA_EXPERTS_NONE,
    LLAMA_EXPERTS_MIXTRAL, /* block_sparse_moe.experts.3.w1, .w3, .w2 */
    LLAMA_EXPERTS_QWEN     /* mlp.experts.3.gate_proj, .up_proj, .down_proj */
} llama_experts;

typedef struct llama_config {
    uint32_t layers;
    uint32_t hidden;
    uint32_t heads;
    uint32_t kv_heads;   /* divides `heads`: queries share keys and values */
    uint32_t head_dim;
    uint32_t inner;      /* of dense layers */
    uint32_t vocab;
    uint32_t positions;  /* longest sequence; 0: not said */
    float norm_epsilon;
    float int8_threshold; /* what inputs are apart from on: quantization_config; 0: none */
    bool has_head_norms; /* queries and keys are normalised, head by head */
    bool is_tied;        /* the embedding is the output head, too */
    llama_rope rope;
    llama_experts expert_names;
    uint32_t experts;    /* of a sparse layer */
    uint32_t experts_used;
    uint32_t expert_inner;
    bool is_renormalised; /* weights of the experts used add up to 1 */
    uint32_t window;     /* positions that a sliding layer sees, itself included */
    bool slides[LLAMA_LAYERS_MAX];    /* the layer sees `window` positions only */
    bool is_sparse[LLAMA_LAYERS_MAX]; /* the layer has experts */
} llama_config;

/*
 * Reads config.json of the checkpoint. BERTH_EUNSUPPORTED: another family, what none of
 * these models has, or weights that berth does not decode; BERTH_EFORMAT: numbers that
 * describe no model; and what berth_config_open() returns.
 */
berth_status llama_config_read(berth_context *context, const berth_checkpoint *checkpoint,
                               llama_config *out, berth_error *error);

#endif
