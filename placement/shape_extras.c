/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_extras.c - what one class, or a few, have in a layer or beside the words that
 * others do not: gates of heads, scales, layers that look at pictures; see
 * shape_read.h, shape_making.h. A new class that is another's but for a few numbers
 * has a trait and its lines here.
 */
#include <string.h>

#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

/* Numbers that weigh what one head finds: one, unless a file says that each of its own. */
static uint64_t
count_gates(berthi_shape_reading *r)
{
    const berthi_json_value *const said = berthi_json_find(r->model, "gating");
    const char *word = "";

    if (!berthi_shape_flag(r, "use_attention_gate", true))
        return 0;
    if (berthi_json_can_read_string(said, &word))
        return strcmp(word, "per-head") == 0 ? 1 : r->layer.key_dim;
    return berthi_shape_flag(r, "gating", true) ? 1 : r->layer.key_dim;
}

static void
read_mixed_heads(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const uint64_t most = BERTHI_SHAPE_HEADS;

    shape->router_width = berthi_shape_member(r, "router_hidden_size", 1, most, 256);
    shape->head_steps[0] = berthi_shape_member(r, "cca_time0", 1, 4096, 2);
    shape->head_steps[1] = berthi_shape_member(r, "cca_time1", 1, 4096, 2);
}

static void
read_adapters(berthi_shape_reading *r)
{
    const berthi_json_value *const languages = berthi_json_find(r->model, "languages");
    const bool is_said =
        languages != NULL && berthi_json_kind_of(languages) != BERTHI_JSON_NULL;
    berthi_shape *const shape = r->shape;

    if (is_said && berthi_json_kind_of(languages) != BERTHI_JSON_ARRAY)
        berthi_shape_refuse(r, "languages", languages, "a list");
    shape->adapters =
        is_said ? berthi_min_u64(berthi_json_count(languages), BERTHI_SHAPE_HEADS) : 1;
    shape->adapter_width = berthi_shape_member(r, "adapter_reduction_factor", 1, shape->hidden, 2);
    shape->adapter_width = shape->hidden / berthi_max_u64(shape->adapter_width, 1);
    shape->has_adapter_norm = berthi_shape_flag(r, "adapter_layer_norm", false);
    shape->has_final_norm = berthi_shape_flag(r, "pre_norm", false);
}

void
berthi_shape_read_extras(berthi_shape_reading *r)
{
    const uint64_t traits = r->shape->family->traits;

    if (traits & BERTHI_TRAIT_BOTTLENECK)
        berthi_shape_read_bottleneck(r);
    if (traits & BERTHI_TRAIT_HEAD_GATES)
        r->shape->head_gates = count_gates(r);
    if (traits & BERTHI_TRAIT_KEY_STEPS && berthi_shape_flag(r, "is_moe", false))
        r->shape->single_experts =
            berthi_shape_member(r, "num_experts", 1, BERTHI_SHAPE_HEADS, 16384);
    if (traits & BERTHI_TRAIT_MIXED_HEADS)
        read_mixed_heads(r);
    if (traits & (BERTHI_TRAIT_GROUPED | BERTHI_TRAIT_SPANS))
        berthi_shape_read_convolved(r);
    berthi_shape_read_lookup(r);
    if (traits & BERTHI_TRAIT_ADAPTERS)
        read_adapters(r);
    if (traits & BERTHI_TRAIT_STREAMS)
        r->shape->compression.streams = berthi_shape_member(r, "hc_mult", 1, 64, 4);
    if (traits & BERTHI_TRAIT_BLOCKS)
        r->shape->token_types = 0; /* its layers tell parts of a text apart */
    if (traits & BERTHI_TRAIT_LAST_BIAS)
        r->layer.intermediate =
            r->shape->hidden * berthi_shape_member(r, "intermediate_multiple_size", 1, 64, 4);
    if (traits & BERTHI_TRAIT_GLOBAL_ROWS)
        r->shape->global_rows =
            berthi_shape_member(r, "num_global_tokens", 0, BERTHI_SHAPE_HEADS, 32);
    if (traits & BERTHI_TRAIT_AHEAD) {
        r->shape->tokens_ahead = berthi_shape_member(r, "ngram", 1, 4096, 2);
        r->shape->distance_rows = berthi_shape_member(r, "num_buckets", 1, 4096, 32);
    }
    if (traits & BERTHI_TRAIT_LOOKS)
        r->shape->unsaid_words = 8;
    if (traits & BERTHI_TRAIT_UNSAID_WORD)
        r->shape->unsaid_words = 1;
}

/* By a list or, without one, as the class has them. */
bool
berthi_shape_looks(berthi_shape_reading *r, const berthi_json_value *looking, uint64_t number)
{
    if ((r->shape->family->traits & BERTHI_TRAIT_LOOKS) == 0)
        return false;
    return berthi_json_find(r->model, "cross_attention_layers") != NULL
               ? berthi_shape_is_listed(looking, number)
               : number % 5 == 3 && number < 40;
}

/* --------------------------------------------------------------------- weights */

/*
 * Doge's: how far a key is seen is made of its value, and what goes around each half is
 * scaled. Its experts are one column and one row each, found by keys for two halves of
 * their number.
 */
static void
add_steps(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t experts = m->shape->single_experts;
    uint64_t keys = 1;

    m->has_bias = m->shape->has_attention_bias;
    berthi_shape_add_linear(m, "dt_proj", layer->kv_heads, layer->kv_heads * layer->value_dim);
    berthi_shape_add_vector(m, "A", layer->kv_heads);
    berthi_shape_add_vector(m, "residual", 2 * hidden);
    if (experts == 0)
        return;
    while ((keys + 1) * (keys + 1) <= experts)
        keys++;
    berthi_shape_add_matrix(m, "router_gate", BERTHI_WEIGHT_OTHER, 2 * keys, hidden);
    berthi_shape_add_matrix(m, "down_embed", BERTHI_WEIGHT_EMBEDDING, experts, hidden);
    berthi_shape_add_matrix(m, "up_embed", BERTHI_WEIGHT_EMBEDDING, experts, hidden);
}

/* XLNet's: of distances; biases of three kinds of queries; two parts of a text. Funnel's, too. */
static void
add_segments(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t width = layer->heads * layer->key_dim;
    const bool is_bare = berthi_shape_has_trait(m, BERTHI_TRAIT_BLOCKS);

    berthi_shape_add_matrix(m, "r", is_bare ? BERTHI_WEIGHT_OTHER : m->role, width,
                            m->shape->hidden);
    berthi_shape_add_vector(m, "r_bias", 3 * width);
    berthi_shape_add_vector(m, "seg_embed", 2 * width);
}

/*
 * Zaya's queries and keys are mixed with those of tokens before, each number by itself, then each
 * head; keys have a scale. What goes around both halves has scales and biases of its own.
 */
static void
add_mixed_heads(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t channels = (layer->heads + layer->kv_heads) * layer->key_dim;

    berthi_shape_add_vector(m, "conv_qk_depthwise", channels * (shape->head_steps[0] + 1));
    berthi_shape_add_vector(m, "conv_qk_grouped",
                            channels * (layer->key_dim * shape->head_steps[1] + 1));
    berthi_shape_add_vector(m, "temp", layer->kv_heads);
    berthi_shape_add_vector(m, "residual_scale", 8 * shape->hidden);
}

/* It sees what the layer before chose by, too, and may choose no expert. */
void
berthi_shape_add_router(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t width = shape->router_width;
    const uint64_t choices = layer->experts + 1;
    const uint64_t layers = m->count;

    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    berthi_shape_add_linear(m, "down_proj", width, shape->hidden);
    berthi_shape_add_linear(m, "fc1", width, width);
    berthi_shape_add_linear(m, "fc2", width, width);
    m->has_bias = false;
    berthi_shape_add_linear(m, "out_proj", choices, width);
    berthi_shape_add_vector(m, "norm", width);
    berthi_shape_add_vector(m, "balancing_biases", choices);
    m->count = layers - (shape->layer_kinds[0] == m->layer ? 1 : 0);
    if (m->count > 0)
        berthi_shape_add_vector(m, "router_states_scale", width);
    m->count = layers;
}

/* X-MOD's: behind the MLP, one for each language; the norm, if any, is one for all. */
static void
add_adapters(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t layers = m->count;

    m->has_bias = true;
    m->count = layers * shape->adapters;
    berthi_shape_add_linear(m, "dense1", shape->adapter_width, shape->hidden);
    berthi_shape_add_linear(m, "dense2", shape->hidden, shape->adapter_width);
    m->count = layers;
    berthi_shape_add_norms(m, shape->hidden, shape->has_adapter_norm);
}

/* Of tokens that stand for none: those all see, and places of those predicted at once. */
static void
add_more_rows(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;

    if (shape->global_rows > 0)
        berthi_shape_add_matrix(m, "embed_global", BERTHI_WEIGHT_EMBEDDING,
                                shape->global_rows, shape->hidden);
    if (shape->tokens_ahead > 0)
        berthi_shape_add_matrix(m, "ngram_embeddings", BERTHI_WEIGHT_EMBEDDING,
                                shape->tokens_ahead, shape->hidden);
    /* FSMT's decoder has one, whatever its class, which calls the words beside it the head. */
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_TWO_LANGUAGES) && !shape->ties_embeddings)
        (void)berthi_shape_add_derived(m, "output_projection", shape->vocabulary,
                                       shape->hidden);
}

void
berthi_shape_add_outer_extras(berthi_shape_making *m)
{
    berthi_shape_add_word_parts(m);
    berthi_shape_add_lookup(m);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_NO_HEADS))
        berthi_shape_add_linear(m, "projection", m->shape->hidden, m->shape->hidden);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_SEGMENTS)
        && !berthi_shape_has_trait(m, BERTHI_TRAIT_BLOCKS))
        berthi_shape_add_vector(m, "mask_emb", m->shape->hidden);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_LAST_BIAS))
        berthi_shape_add_vector(m, "dense_bias", m->shape->hidden);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_STACKS))
        berthi_shape_add_vector(m, "z_L_init", m->shape->hidden);
    /* Without a bias, unlike the others. */
    if (m->shape->state.kind == BERTHI_STATE_MEMORY
        || berthi_shape_has_trait(m, BERTHI_TRAIT_BARE_LAST))
        berthi_shape_add_vector(m, "out_norm", m->shape->hidden);
    add_more_rows(m);
    if (m->shape->router_width > 0)
        berthi_shape_add_vector(m, "input_hidden_states_scale", 2 * m->shape->hidden);
}

void
berthi_shape_add_extras(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;

    if (shape->head_gates > 0 && layer->heads > 0)
        berthi_shape_add_matrix(m, "g_proj", m->role, layer->heads * shape->head_gates,
                                shape->hidden);
    if (shape->patch_numbers > 0) /* how much of the first hidden state, and of own values */
        berthi_shape_add_vector(m, "lambdas", 2 + layer->heads);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_LAMBDAS))
        berthi_shape_add_vector(m, "lambda", 4 * layer->key_dim);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_SEGMENTS))
        add_segments(m, layer);
    berthi_shape_add_entity_queries(m, layer);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_STREAMS))
        berthi_shape_add_stream_gates(m);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_STACKS) && shape->has_attention_bias)
        berthi_shape_add_vector(m, "gate_proj", layer->heads * layer->key_dim);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_GLOBAL_ROWS) && layer->is_encoder)
        berthi_shape_add_norms(m, shape->hidden, 1);
    if (shape->distance_rows > 0 && !layer->is_encoder) {
        m->has_bias = true;
        berthi_shape_add_linear(m, "relative_pos_embeddings",
                                shape->distance_rows * layer->heads, shape->hidden);
    }
    if (shape->adapters > 0)
        add_adapters(m);
    if (shape->router_width > 0)
        add_mixed_heads(m, layer);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_KEY_STEPS))
        add_steps(m, layer);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_SPARSE_NORM) && layer->experts > 0)
        berthi_shape_add_norms(m, shape->hidden, 1);
    if (!layer->looks)
        return;
    /* Of queries and keys; how much of attention and of the MLP is taken. */
    berthi_shape_add_norms(m, layer->key_dim, 2);
    berthi_shape_add_vector(m, "cross_attn_gate", 2);
}
