/* SPDX-License-Identifier: Apache-2.0 */
/* shape_weights.c - the tensors a shape makes; see shape.h. */
#include <string.h>

#include "placement/shape.h"

typedef struct making {
    const berthi_shape *shape;
    berthi_weight_list *out;
    uint32_t layer; /* BERTHI_NO_LAYER: outside the layers */
    uint64_t count; /* of a weight added now */
    int32_t role;   /* of a matrix added now */
    bool has_bias;
} making;

static bool
has(const making *m, uint64_t flag)
{
    return m->shape->family->flags & flag;
}

/* ---------------------------------------------------------------------- adding */

static berthi_weight *
add(making *m, const char *module, int32_t role)
{
    berthi_weight *const weight = &m->out->items[m->out->count++];

    memset(weight, 0, sizeof *weight);
    weight->module = module;
    weight->role = role;
    weight->dtype = m->shape->dtype;
    weight->layer = m->layer;
    weight->count = m->count;
    return weight;
}

static void
add_vector(making *m, const char *module, uint64_t elements)
{
    berthi_weight *const weight = add(m, module, BERTHI_WEIGHT_OTHER);

    weight->rank = 1;
    weight->shape[0] = elements;
}

static void
add_matrix(making *m, const char *module, int32_t role, uint64_t rows, uint64_t columns)
{
    berthi_weight *const weight = add(m, module, role);

    weight->rank = 2;
    weight->shape[0] = rows;
    weight->shape[1] = columns;
}

/* A linear layer, and its bias when `has_bias`. */
static void
add_linear(making *m, const char *module, uint64_t outputs, uint64_t inputs)
{
    add_matrix(m, module, m->role, outputs, inputs);
    if (m->has_bias)
        add_vector(m, module, outputs);
}

static void
add_norm(making *m, const char *module, uint64_t elements)
{
    add_vector(m, module, elements);
    if (has(m, BERTHI_FAMILY_NORM_BIAS))
        add_vector(m, module, elements);
}

/* `count` norms of one width; with their biases where the family has them. */
static void
add_norms(making *m, uint64_t elements, uint64_t norms)
{
    const uint64_t count = m->count;

    m->count *= norms * (has(m, BERTHI_FAMILY_NORM_BIAS) ? 2 : 1);
    if (m->count > 0)
        add_vector(m, "norm", elements);
    m->count = count;
}

/* ------------------------------------------------------------------- attention */

static void
add_head_norms(making *m, const berthi_layer *layer)
{
    const bool is_wide = has(m, BERTHI_FAMILY_WIDE_NORMS);

    if (!is_wide && !has(m, BERTHI_FAMILY_HEAD_NORMS))
        return;
    add_norm(m, "q_norm", layer->key_dim * (is_wide ? layer->heads : 1));
    if (!layer->shares_cache)
        add_norm(m, "k_norm", layer->key_dim * (is_wide ? layer->kv_heads : 1));
}

/* Queries, keys, values and output of one attention. */
static void
add_heads(making *m, const berthi_layer *layer)
{
    const berthi_family_names *const names = m->shape->family->names;
    const uint64_t hidden = m->shape->hidden;
    const uint64_t queries = layer->heads * layer->key_dim;
    const uint64_t keys = layer->kv_heads * layer->key_dim;
    const uint64_t values = layer->kv_heads * layer->value_dim;

    m->has_bias = m->shape->has_attention_bias;
    if (has(m, BERTHI_FAMILY_FUSED_QKV)) {
        add_linear(m, names->query, queries + keys + values, hidden);
    } else {
        add_linear(m, names->query, queries * (has(m, BERTHI_FAMILY_QUERY_GATE) ? 2 : 1),
                   hidden);
        m->has_bias = m->has_bias && !has(m, BERTHI_FAMILY_PLAIN_KEYS);
        if (!layer->shares_cache)
            add_linear(m, names->key, keys, hidden);
        m->has_bias = m->shape->has_attention_bias;
        if (!layer->shares_cache && !layer->has_equal_values)
            add_linear(m, names->value, values, hidden);
    }
    m->has_bias = (m->has_bias && !has(m, BERTHI_FAMILY_BIAS_QKV_ONLY))
                  || has(m, BERTHI_FAMILY_OUTPUT_BIAS);
    add_linear(m, names->output, hidden, layer->heads * layer->value_dim);
    add_head_norms(m, layer);
    if (has(m, BERTHI_FAMILY_SINKS))
        add_vector(m, "sinks", layer->heads);
}

static void
add_latent(making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t queries = layer->heads * layer->key_dim;
    const uint64_t nope = layer->key_dim - shape->rope_dim;

    m->has_bias = shape->has_attention_bias;
    if (shape->query_rank > 0) {
        add_linear(m, "q_a_proj", shape->query_rank, shape->hidden);
        add_vector(m, "q_a_layernorm", shape->query_rank);
        add_matrix(m, "q_b_proj", m->role, queries, shape->query_rank);
    } else {
        add_matrix(m, "q_proj", m->role, queries, shape->hidden);
    }
    add_linear(m, "kv_a_proj_with_mqa", shape->latent_rank + shape->rope_dim,
               shape->hidden);
    add_vector(m, "kv_a_layernorm", shape->latent_rank);
    add_matrix(m, "kv_b_proj", m->role, layer->heads * (nope + layer->value_dim),
               shape->latent_rank);
    add_linear(m, "o_proj", shape->hidden, layer->heads * layer->value_dim);
}

/* ------------------------------------------------------- layers with a state */

static void
add_delta(making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t keys = state->key_heads * state->key_dim;

    if (has(m, BERTHI_FAMILY_SPLIT_DELTA)) {
        add_linear(m, "in_proj_qkv", 2 * keys + state->inner, hidden);
        add_linear(m, "in_proj_z", state->inner, hidden);
        add_linear(m, "in_proj_b", state->value_heads, hidden);
        add_linear(m, "in_proj_a", state->value_heads, hidden);
    } else {
        add_linear(m, "in_proj_qkvz", 2 * keys + 2 * state->inner, hidden);
        add_linear(m, "in_proj_ba", 2 * state->value_heads, hidden);
    }
    add_vector(m, "conv1d", (2 * keys + state->inner) * state->kernel);
    add_vector(m, "dt_bias", state->value_heads);
    add_vector(m, "A_log", state->value_heads);
    add_vector(m, "norm", state->inner / state->value_heads);
    add_linear(m, "out_proj", hidden, state->inner);
}

static void
add_mamba(making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t inner = state->inner;

    add_linear(m, "in_proj", 2 * inner, hidden);
    add_vector(m, "conv1d", inner * state->kernel + inner);
    add_linear(m, "x_proj", state->step_rank + 2 * state->key_dim, inner);
    add_linear(m, "dt_proj", inner, state->step_rank);
    add_vector(m, "dt_proj", inner);
    add_vector(m, "A_log", inner * state->key_dim);
    add_vector(m, "D", inner);
    add_linear(m, "out_proj", hidden, inner);
}

static void
add_mamba2(making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t channels = state->inner + 2 * state->key_heads * state->key_dim;

    add_linear(m, "in_proj", state->inner + channels + state->value_heads, hidden);
    add_vector(m, "conv1d", channels * state->kernel + channels);
    add_vector(m, "norm", state->inner);
    add_vector(m, "A_log", 3 * state->value_heads); /* with D and dt_bias */
    add_linear(m, "out_proj", hidden, state->inner);
}

static void
add_state(making *m)
{
    const berthi_state_layer *const state = &m->shape->state;
    const uint64_t hidden = m->shape->hidden;

    m->has_bias = false;
    switch (state->kind) {
    case BERTHI_STATE_DELTA: add_delta(m, state); break;
    case BERTHI_STATE_MAMBA: add_mamba(m, state); break;
    case BERTHI_STATE_MAMBA2: add_mamba2(m, state); break;
    default:
        add_linear(m, "in_proj", 3 * hidden, hidden);
        add_vector(m, "conv", hidden * state->kernel);
        add_linear(m, "out_proj", hidden, hidden);
        break;
    }
}

/* ------------------------------------------------------------------------ MLPs */

static void
add_mlp(making *m, uint64_t width)
{
    const berthi_family_names *const names = m->shape->family->names;
    const uint64_t hidden = m->shape->hidden;

    if (has(m, BERTHI_FAMILY_FUSED_UP)) {
        add_linear(m, names->up, 2 * width, hidden);
    } else {
        if (m->shape->mlp_matrices == 3)
            add_linear(m, names->gate, width, hidden);
        add_linear(m, names->up, width, hidden);
    }
    add_linear(m, names->down, hidden, width);
}

static void
add_experts(making *m, const berthi_layer *layer)
{
    const uint64_t layers = m->count;
    const uint64_t hidden = m->shape->hidden;

    add_matrix(m, "gate", BERTHI_WEIGHT_OTHER, layer->experts, hidden);
    if (has(m, BERTHI_FAMILY_CORRECTION) || has(m, BERTHI_FAMILY_EXPERT_BIAS))
        add_vector(m, "gate", layer->experts);
    m->role = BERTHI_WEIGHT_EXPERT;
    m->count = layers * layer->experts;
    m->has_bias = has(m, BERTHI_FAMILY_EXPERT_BIAS);
    add_mlp(m, layer->expert_intermediate);
    m->role = BERTHI_WEIGHT_LINEAR;
    m->count = layers;
    m->has_bias = false;
    if (layer->shared_intermediate > 0)
        add_mlp(m, layer->shared_intermediate);
    if (has(m, BERTHI_FAMILY_BESIDE)) {
        add_vector(m, "scale", hidden);
        add_vector(m, "per_expert_scale", layer->experts);
        add_norms(m, hidden, 3);
    }
    if (layer->shared_intermediate > 0 && has(m, BERTHI_FAMILY_SHARED_GATE))
        add_vector(m, "shared_expert_gate", hidden);
}

/* What a layer makes of its part of that table. */
static void
add_layer_words(making *m)
{
    const uint64_t width = m->shape->layer_width;

    m->has_bias = false;
    if (width == 0)
        return;
    add_linear(m, "per_layer_input_gate", width, m->shape->hidden);
    add_linear(m, "per_layer_projection", m->shape->hidden, width);
    add_vector(m, "post_per_layer_input_norm", m->shape->hidden);
}

/* Gemma 3n predicts its states from each other, and has a way of low rank around attention. */
static void
add_side_states(making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t states = shape->side_states;

    if (states == 0)
        return;
    add_matrix(m, "correction_coefs", m->role, states, states);
    add_matrix(m, "prediction_coefs", m->role, states * states, states);
    add_matrix(m, "modality_router", m->role, states, shape->hidden);
    add_norms(m, shape->hidden, 3); /* with the scale of what is corrected */
    add_matrix(m, "linear_left", m->role, shape->side_rank, shape->hidden);
    add_matrix(m, "linear_right", m->role, shape->hidden, shape->side_rank);
}

/* ---------------------------------------------------------------------- the model */

static void
add_layers(making *m, uint32_t kind)
{
    const berthi_layer *const layer = &m->shape->kinds[kind];

    m->layer = kind;
    m->count = layer->count;
    m->role = BERTHI_WEIGHT_LINEAR;
    if (layer->attention == BERTHI_ATTENTION_STATE)
        add_state(m);
    else if (layer->attention == BERTHI_ATTENTION_LATENT)
        add_latent(m, layer);
    else
        add_heads(m, layer);
    if (layer->has_cross)
        add_heads(m, layer);
    m->has_bias = m->shape->has_mlp_bias;
    if (layer->experts > 0)
        add_experts(m, layer);
    else if (layer->intermediate > 0)
        add_mlp(m, layer->intermediate);
    add_layer_words(m);
    add_side_states(m);
    if (m->shape->family->numbers > 0)
        add_vector(m, "act_fn", m->shape->family->numbers);
    add_norms(m, m->shape->hidden, m->shape->layer_norms + layer->has_cross);
}

/* Two convolutions over time, of three steps each, and the positions behind them. */
static void
add_ear(making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;

    add_vector(m, "conv1", hidden * shape->sound_bands * 3 + hidden);
    add_vector(m, "conv2", hidden * hidden * 3 + hidden);
    add_matrix(m, "embed_positions", BERTHI_WEIGHT_EMBEDDING, shape->encoder_positions,
               hidden);
}

/*
 * What an encoder reads words with is the decoder's, but for positions and norms. T5 has
 * positions as one small table of 32 rows in each.
 */
static void
add_outer(making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;
    const uint64_t readers = has(m, BERTHI_FAMILY_ENCODER) && shape->sound_bands == 0 ? 2 : 1;

    add_matrix(m, "embed_tokens", BERTHI_WEIGHT_EMBEDDING, shape->vocabulary,
               shape->embedding);
    if (shape->embedding != hidden) {
        add_matrix(m, "project_in", BERTHI_WEIGHT_LINEAR, hidden, shape->embedding);
        add_matrix(m, "project_out", BERTHI_WEIGHT_LINEAR, shape->embedding, hidden);
    }
    if (shape->token_types > 0)
        add_matrix(m, "token_type_embeddings", BERTHI_WEIGHT_EMBEDDING, shape->token_types,
                   hidden);
    m->count = readers;
    if (has(m, BERTHI_FAMILY_WORD_NORM))
        add_norms(m, hidden, 1);
    if (shape->learned_positions > 0)
        add_matrix(m, "embed_positions", BERTHI_WEIGHT_EMBEDDING,
                   shape->learned_positions, hidden);
    if (has(m, BERTHI_FAMILY_RELATIVE))
        add_matrix(m, "relative_attention_bias", BERTHI_WEIGHT_EMBEDDING, 32,
                   shape->kinds[0].heads);
    m->count = 1;
    if (shape->layer_width > 0) {
        const uint64_t width = shape->layers * shape->layer_width;

        add_matrix(m, "embed_tokens_per_layer", BERTHI_WEIGHT_EMBEDDING, shape->layer_words,
                   width);
        add_matrix(m, "per_layer_model_projection", BERTHI_WEIGHT_LINEAR, width, hidden);
        add_vector(m, "per_layer_projection_norm", shape->layer_width);
    }
    m->count = shape->side_states > 1 ? 2 * (shape->side_states - 1) : 0;
    if (m->count > 0)
        add_matrix(m, "altup_projections", BERTHI_WEIGHT_LINEAR, hidden, hidden);
    m->count = 1;
    if (has(m, BERTHI_FAMILY_AUDIO))
        add_ear(m);
}

/* Of a model that fills gaps: a layer of its own before the words, which have a bias each. */
static void
add_filling_head(making *m)
{
    const uint64_t hidden = m->shape->hidden;

    add_matrix(m, "transform", BERTHI_WEIGHT_LINEAR, hidden, hidden);
    add_vector(m, "transform", hidden);
    add_vector(m, "decoder", m->shape->vocabulary);
}

static void
add_end(making *m)
{
    const berthi_shape *const shape = m->shape;

    m->layer = BERTHI_NO_LAYER;
    m->count = 1;
    if (has(m, BERTHI_FAMILY_BOTH_WAYS)) {
        add_filling_head(m);
        add_norms(m, shape->hidden, 1);
    } else if (shape->has_final_norm)
        add_norms(m, shape->hidden, shape->encoder_layers > 0 ? 2 : 1);
    if (!shape->ties_embeddings)
        add_matrix(m, "lm_head", BERTHI_WEIGHT_HEAD, shape->vocabulary, shape->embedding);
    if (!shape->ties_embeddings && has(m, BERTHI_FAMILY_HEAD_BIAS))
        add_vector(m, "lm_head", shape->vocabulary);
}

void
berthi_shape_weights(const berthi_shape *shape, berthi_weight_list *out)
{
    making m = { .shape = shape, .out = out, .layer = BERTHI_NO_LAYER, .count = 1 };

    out->count = 0;
    add_outer(&m);
    for (uint32_t i = 0; i < shape->kind_count; i++)
        add_layers(&m, i);
    add_end(&m);
}
