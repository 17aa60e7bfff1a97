/* SPDX-License-Identifier: Apache-2.0 */
/* shape_weights.c - the tensors a shape makes; see shape.h. */
#include <string.h>

#include "placement/shape_making.h"

bool
berthi_shape_has(const berthi_shape_making *m, uint64_t flags)
{
    return m->shape->family->flags & flags;
}

bool
berthi_shape_has_trait(const berthi_shape_making *m, uint64_t traits)
{
    return m->shape->family->traits & traits;
}

/* ---------------------------------------------------------------------- adding */

/*
 * Numbers of a file need not go together, like layers without attention where another table
 * goes by their heads.
 */
static berthi_weight *
add(berthi_shape_making *m, const berthi_weight *made)
{
    berthi_weight_list *const list = m->out;
    berthi_weight *weight;

    if (m->count == 0 || made->shape[0] == 0 || (made->rank == 2 && made->shape[1] == 0))
        return &m->absent;
    list->is_cut |= list->count == BERTHI_WEIGHT_KINDS;
    list->count -= list->is_cut;
    weight = &list->items[list->count++];
    *weight = *made;
    weight->dtype = m->shape->dtype;
    weight->layer = m->layer;
    weight->count = m->count;
    return weight;
}

berthi_weight *
berthi_shape_add_vector(berthi_shape_making *m, const char *module, uint64_t elements)
{
    const berthi_weight made = { .module = module, .role = BERTHI_WEIGHT_OTHER, .rank = 1,
                                 .shape = { elements } };

    return add(m, &made);
}

berthi_weight *
berthi_shape_add_matrix(berthi_shape_making *m, const char *module, int32_t role,
                        uint64_t rows, uint64_t columns)
{
    const berthi_weight made = { .module = module, .role = role, .rank = 2,
                                 .shape = { rows, columns } };

    return add(m, &made);
}

void
berthi_shape_add_linear(berthi_shape_making *m, const char *module, uint64_t outputs,
                        uint64_t inputs)
{
    berthi_shape_add_matrix(m, module, m->role, outputs, inputs);
    if (m->has_bias)
        berthi_shape_add_vector(m, module, outputs);
}

berthi_weight *
berthi_shape_add_derived(berthi_shape_making *m, const char *module, uint64_t outputs,
                         uint64_t inputs)
{
    berthi_weight *const weight =
        berthi_shape_add_matrix(m, module, BERTHI_WEIGHT_OTHER, outputs, inputs);

    weight->is_derived = true;
    return weight;
}

static void
add_norm(berthi_shape_making *m, const char *module, uint64_t elements, bool has_bias)
{
    berthi_shape_add_vector(m, module, elements);
    if (has_bias)
        berthi_shape_add_vector(m, module, elements);
}

void
berthi_shape_add_norms(berthi_shape_making *m, uint64_t elements, uint64_t norms)
{
    const uint64_t count = m->count;

    m->count *= norms * (m->shape->has_norm_bias ? 2 : 1);
    berthi_shape_add_vector(m, "norm", elements);
    m->count = count;
}

/* ------------------------------------------------------------------- attention */

/* Those that are all heads wide have no biases. */
static void
add_head_norms(berthi_shape_making *m, const berthi_layer *layer)
{
    const bool is_wide = berthi_shape_has(m, BERTHI_FAMILY_WIDE_NORMS);
    const bool has_bias = m->shape->has_norm_bias && !is_wide;

    if (!m->shape->has_head_norms)
        return;
    add_norm(m, "q_norm", layer->key_dim * (is_wide ? layer->heads : 1), has_bias);
    if (!layer->shares_cache)
        add_norm(m, "k_norm", layer->key_dim * (is_wide ? layer->kv_heads : 1), has_bias);
}

/* Queries and one key, each with a norm: they choose blocks of tokens. */
static void
add_block_index(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;

    m->has_bias = false;
    berthi_shape_add_linear(m, "q_proj", shape->index_heads * shape->index_dim, shape->hidden);
    berthi_shape_add_linear(m, "k_proj", shape->index_dim, shape->hidden);
    berthi_shape_add_norms(m, shape->index_dim, 2);
}

/* Zaya's are of this token and of the one before, half of them each. */
static void
add_values(berthi_shape_making *m, uint64_t values, uint64_t inputs)
{
    if (!berthi_shape_has_trait(m, BERTHI_TRAIT_MIXED_HEADS)) {
        berthi_shape_add_linear(m, m->shape->family->names->value, values, inputs);
        return;
    }
    berthi_shape_add_linear(m, "v_proj_current", values / 2, inputs);
    berthi_shape_add_linear(m, "v_proj_delayed", values / 2, inputs);
}

/* Queries, keys, values and output of one attention, which looks at what is `source` wide. */
static void
add_heads(berthi_shape_making *m, const berthi_layer *layer, uint64_t hidden, uint64_t source)
{
    const berthi_family_names *const names = m->shape->family->names;
    const uint64_t queries = layer->heads * layer->key_dim;
    const uint64_t keys = layer->kv_heads * layer->key_dim;
    const uint64_t values = layer->kv_heads * layer->value_dim;

    m->has_bias = m->shape->has_attention_bias;
    if (berthi_shape_has(m, BERTHI_FAMILY_FUSED_QKV)) {
        m->has_bias = m->has_bias && !berthi_shape_has(m, BERTHI_FAMILY_PLAIN_KEYS);
        berthi_shape_add_linear(m, names->query, queries + keys + values, hidden);
        if (berthi_shape_has(m, BERTHI_FAMILY_PLAIN_KEYS))
            berthi_shape_add_vector(m, "qv_bias", queries + values);
    } else {
        m->has_bias = m->has_bias && !berthi_shape_has_trait(m, BERTHI_TRAIT_PLAIN_QUERIES);
        berthi_shape_add_linear(
            m, names->query,
            queries * (berthi_shape_has(m, BERTHI_FAMILY_QUERY_GATE) ? 2 : 1), hidden);
        if (berthi_shape_has(m, BERTHI_FAMILY_GATE_APART))
            berthi_shape_add_matrix(m, "gate_proj", m->role, queries, hidden);
        m->has_bias = m->shape->has_attention_bias
                      && !berthi_shape_has(m, BERTHI_FAMILY_PLAIN_KEYS);
        if (!layer->shares_cache)
            berthi_shape_add_linear(m, names->key, keys, source);
        m->has_bias = m->shape->has_attention_bias;
        if (!layer->shares_cache && !layer->has_equal_values)
            add_values(m, values, source);
    }
    m->has_bias = m->shape->has_output_bias;
    berthi_shape_add_linear(m, names->output, hidden, layer->heads * layer->value_dim);
    berthi_shape_add_asking(m, layer);
    add_head_norms(m, layer);
    if (layer->has_index)
        add_block_index(m);
    if (berthi_shape_has(m, BERTHI_FAMILY_SINKS)
        && (layer->window > 0 || !berthi_shape_has(m, BERTHI_FAMILY_WINDOW_HEADS)))
        berthi_shape_add_vector(m, "sinks", layer->heads);
}

/* JetMoE's: experts ask and answer, of keys and values that all of them share. */
static void
add_expert_heads(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t layers = m->count;
    const uint64_t hidden = m->shape->hidden;
    const uint64_t width = layer->kv_heads * layer->key_dim;
    const uint32_t first = m->out->count;

    m->has_bias = false;
    berthi_shape_add_linear(m, "kv_proj", 2 * width, hidden);
    berthi_shape_add_linear(m, m->shape->family->router, layer->experts, hidden);
    m->count = layers * layer->experts;
    berthi_shape_add_matrix(m, "input_linear", BERTHI_WEIGHT_EXPERT, width, hidden);
    berthi_shape_add_matrix(m, "output_linear", BERTHI_WEIGHT_EXPERT, hidden, width);
    berthi_shape_mark_experts(m, first, layer->experts);
    m->count = layers;
    berthi_shape_add_vector(m, "experts", 2 * hidden); /* a bias, and that of the MLP */
}

/* Those that choose tokens: their queries are of the latents, their one key has a norm. */
static void
add_index(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t latents = shape->query_rank > 0 ? shape->query_rank : shape->hidden;

    berthi_shape_add_matrix(m, "wq_b", m->role, shape->index_heads * shape->index_dim, latents);
    berthi_shape_add_matrix(m, "wk", m->role, shape->index_dim, shape->hidden);
    add_norm(m, "k_norm", shape->index_dim, true);
    berthi_shape_add_matrix(m, "weights_proj", m->role, shape->index_heads, shape->hidden);
}

static void
add_latent(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t queries = layer->heads * layer->key_dim;
    const uint64_t nope = layer->key_dim - shape->rope_dim;

    m->has_bias = shape->has_attention_bias;
    if (shape->query_rank > 0) {
        berthi_shape_add_linear(m, "q_a_proj", shape->query_rank, shape->hidden);
        berthi_shape_add_vector(m, "q_a_layernorm", shape->query_rank);
        berthi_shape_add_matrix(m, "q_b_proj", m->role, queries, shape->query_rank);
    } else {
        berthi_shape_add_matrix(m, "q_proj", m->role, queries, shape->hidden);
    }
    berthi_shape_add_linear(m, "kv_a_proj_with_mqa", shape->latent_rank + shape->rope_dim,
                            shape->hidden);
    berthi_shape_add_vector(m, "kv_a_layernorm", shape->latent_rank);
    berthi_shape_add_matrix(m, "kv_b_proj", m->role,
                            layer->heads * (nope + layer->value_dim), shape->latent_rank);
    berthi_shape_add_linear(m, "o_proj", shape->hidden, layer->heads * layer->value_dim);
    if (layer->has_index)
        add_index(m);
    if (berthi_shape_has(m, BERTHI_FAMILY_GATE_APART))
        berthi_shape_add_matrix(m, "gate_proj", m->role, layer->heads * layer->value_dim,
                                shape->hidden);
    if (berthi_shape_has(m, BERTHI_FAMILY_SINKS))
        berthi_shape_add_vector(m, "sinks", layer->heads);
}

/* ------------------------------------------------------------------------ MLPs */

/* Gate and up are one matrix: as the class has its experts or MLPs, or for want of a name. */
static bool
is_fused(const berthi_shape_making *m)
{
    const bool has_gate = m->shape->mlp_matrices == 3;

    if (has_gate && m->shape->family->names->gate == NULL)
        return true;
    return m->role == BERTHI_WEIGHT_EXPERT
               ? has_gate && berthi_shape_has_trait(m, BERTHI_TRAIT_ONE_TENSOR)
               : berthi_shape_has(m, BERTHI_FAMILY_FUSED_UP);
}

void
berthi_shape_add_mlp(berthi_shape_making *m, uint64_t width, uint64_t hidden)
{
    const berthi_family_names *const names = m->shape->family->names;

    if (is_fused(m)) {
        berthi_shape_add_linear(m, names->up, 2 * width, hidden);
    } else {
        if (m->shape->mlp_matrices == 3)
            berthi_shape_add_linear(m, names->gate, width, hidden);
        berthi_shape_add_linear(m, names->up, width, hidden);
    }
    berthi_shape_add_linear(m, names->down, hidden, width);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_DOWN_BIAS))
        berthi_shape_add_vector(m, names->down, hidden);
}

/* What a layer makes of its part of that table. */
static void
add_layer_words(berthi_shape_making *m)
{
    const uint64_t width = m->shape->layer_width;

    m->has_bias = false;
    if (width == 0)
        return;
    berthi_shape_add_linear(m, "per_layer_input_gate", width, m->shape->hidden);
    berthi_shape_add_linear(m, "per_layer_projection", m->shape->hidden, width);
    berthi_shape_add_vector(m, "post_per_layer_input_norm", m->shape->hidden);
}

/* Gemma 3n predicts its states from each other, and has a way of low rank around attention. */
static void
add_side_states(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t states = shape->side_states;

    if (states == 0)
        return;
    berthi_shape_add_matrix(m, "correction_coefs", m->role, states, states);
    berthi_shape_add_matrix(m, "prediction_coefs", m->role, states * states, states);
    berthi_shape_add_matrix(m, "modality_router", m->role, states, shape->hidden);
    berthi_shape_add_norms(m, shape->hidden, 3); /* with the scale of what is corrected */
    berthi_shape_add_matrix(m, "linear_left", m->role, shape->side_rank, shape->hidden);
    berthi_shape_add_matrix(m, "linear_right", m->role, shape->hidden, shape->side_rank);
}

/* ---------------------------------------------------------------------- the model */

static void
add_layers(berthi_shape_making *m, uint32_t kind)
{
    const berthi_layer *const layer = &m->shape->kinds[kind];

    const uint64_t source =
        m->shape->encoder_hidden > 0 ? m->shape->encoder_hidden : m->shape->hidden;
    const uint64_t hidden = layer->is_encoder ? source : m->shape->hidden;
    const uint64_t cross_norms =
        layer->looks ? 0 : berthi_shape_has_trait(m, BERTHI_TRAIT_NESTED_PAIR) ? 2 : 1;

    m->layer = kind;
    m->count = m->shape->layer_sets > 0 ? m->shape->layer_sets : layer->count;
    m->role = BERTHI_WEIGHT_LINEAR;
    if (m->shape->shared_blocks > 0) {
        berthi_shape_add_shared(m, layer);
        return;
    }
    if (m->shape->bottleneck.width > 0) {
        berthi_shape_add_narrow(m, layer);
        return;
    }
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_GROUPED | BERTHI_TRAIT_SPANS)) {
        berthi_shape_add_convolved(m, layer);
        return;
    }
    if (layer->attention == BERTHI_ATTENTION_STATE)
        berthi_shape_add_state(m);
    else if (layer->attention == BERTHI_ATTENTION_LATENT)
        add_latent(m, layer);
    else if (berthi_shape_has(m, BERTHI_FAMILY_COMPRESSED))
        berthi_shape_add_compressed(m, layer);
    else if (berthi_shape_has(m, BERTHI_FAMILY_EXPERT_HEADS))
        add_expert_heads(m, layer);
    else if (layer->heads > 0 && !layer->looks)
        add_heads(m, layer, hidden, hidden);
    if (berthi_shape_has(m, BERTHI_FAMILY_BESIDE_STATE)
        && layer->attention != BERTHI_ATTENTION_STATE)
        berthi_shape_add_state(m);
    if (layer->has_cross)
        add_heads(m, layer, hidden, source);
    m->has_bias = m->shape->has_mlp_bias;
    if (layer->experts > 0)
        berthi_shape_add_experts(m, layer);
    else if (layer->intermediate > 0)
        berthi_shape_add_mlp(m, layer->intermediate, hidden);
    add_layer_words(m);
    add_side_states(m);
    berthi_shape_add_extras(m, layer);
    if (berthi_shape_has(m, BERTHI_FAMILY_SUB_NORMS) && layer->heads > 0) {
        berthi_shape_add_vector(m, "attn_sub_norm", layer->heads * layer->value_dim);
        if (layer->intermediate > 0)
            berthi_shape_add_vector(m, "ffn_sub_norm", layer->intermediate);
    }
    if ((layer->is_encoder || m->shape->is_encoder_alone) && m->shape->has_global_tokens)
        berthi_shape_add_vector(m, "global_input_layer_norm", m->shape->hidden);
    if (m->shape->family->numbers > 0)
        berthi_shape_add_vector(m, "act_fn", m->shape->family->numbers);
    berthi_shape_add_norms(m, hidden,
                           m->shape->layer_norms + (layer->has_cross ? cross_norms : 0));
}

/*
 * What an encoder reads words with is the decoder's, but for positions and norms. T5 has
 * positions as one small table in each.
 */
static void
add_outer(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;
    /* Electra looks up all it knows of a token in tables as narrow as that of words. */
    const uint64_t wide =
        berthi_shape_has(m, BERTHI_FAMILY_NARROW) ? shape->embedding : hidden;
    const uint64_t readers = shape->encoder_layers > 0 && shape->sound_bands == 0 ? 2 : 1;

    berthi_shape_add_words(m);
    if (shape->embedding != wide && shape->bottleneck.width == 0
        && shape->patch_numbers == 0) {
        berthi_shape_add_matrix(m, "project_in", BERTHI_WEIGHT_LINEAR, hidden,
                                shape->embedding);
        berthi_shape_add_matrix(m, "project_out", BERTHI_WEIGHT_LINEAR, shape->embedding,
                                hidden);
    }
    if (shape->token_types > 0)
        berthi_shape_add_matrix(m, "token_type_embeddings", BERTHI_WEIGHT_EMBEDDING,
                                shape->token_types, wide);
    m->count = readers;
    if (shape->has_word_norm)
        berthi_shape_add_norms(m, wide, 1);
    if (shape->encoder_rows > 0)
        m->count = 1;
    if (shape->learned_positions > 0)
        berthi_shape_add_matrix(m, "embed_positions", BERTHI_WEIGHT_EMBEDDING,
                                shape->learned_positions,
                                berthi_shape_has_trait(m, BERTHI_TRAIT_TURNS)
                                    ? shape->kinds[0].key_dim
                                    : wide);
    if (berthi_shape_has(m, BERTHI_FAMILY_RELATIVE_EACH))
        m->count = shape->encoder_layers + shape->layers;
    if (shape->relative_rows > 0)
        berthi_shape_add_matrix(m, "relative_attention_bias", BERTHI_WEIGHT_EMBEDDING,
                                shape->relative_rows, shape->kinds[0].heads);
    m->count = 1;
    if (shape->relative_rows > 0 && shape->has_global_tokens)
        berthi_shape_add_matrix(m, "global_relative_attention_bias", BERTHI_WEIGHT_EMBEDDING,
                                shape->relative_rows, shape->kinds[0].heads);
    if (shape->layer_width > 0) {
        const uint64_t width = shape->layers * shape->layer_width;

        berthi_shape_add_matrix(m, "embed_tokens_per_layer", BERTHI_WEIGHT_EMBEDDING,
                                shape->layer_words, width);
        berthi_shape_add_matrix(m, "per_layer_model_projection", BERTHI_WEIGHT_LINEAR,
                                width, hidden);
        berthi_shape_add_vector(m, "per_layer_projection_norm", shape->layer_width);
    }
    m->count = shape->side_states > 1 ? 2 * (shape->side_states - 1) : 0;
    if (m->count > 0)
        berthi_shape_add_matrix(m, "altup_projections", BERTHI_WEIGHT_LINEAR, hidden,
                                hidden);
    m->count = 1;
    berthi_shape_add_pair(m);
    berthi_shape_add_beside(m);
    berthi_shape_add_outer_extras(m);
}

static void
add_end(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;

    m->layer = BERTHI_NO_LAYER;
    m->count = 1;
    if (shape->has_final_norm)
        berthi_shape_add_norms(m, shape->hidden, 1);
    if (shape->has_final_norm && shape->encoder_layers > 0)
        berthi_shape_add_norms(
            m, shape->encoder_hidden > 0 ? shape->encoder_hidden : shape->hidden, 1);
    berthi_shape_add_streams(m);
    berthi_shape_add_ending(m);
}

void
berthi_shape_weights(const berthi_shape *shape, berthi_weight_list *out)
{
    berthi_shape_making m = {
        .shape = shape, .out = out, .layer = BERTHI_NO_LAYER, .count = 1
    };

    out->count = 0;
    out->is_cut = false;
    add_outer(&m);
    for (uint32_t i = 0; i < shape->kind_count; i++)
        add_layers(&m, i);
    add_end(&m);
    if (berthi_shape_has_trait(&m, BERTHI_TRAIT_INTEGERS))
        berthi_shape_add_integers(&m);
    berthi_shape_leave_plain(out, shape->family);
}
