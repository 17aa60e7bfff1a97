/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_state.c - layers with a state instead of a cache that grows: how a file
 * describes them, what they keep, and their weights; see shape_read.h, shape_making.h.
 */
#include "placement/shape_making.h"
#include "placement/shape_read.h"

static const char *const state_heads_keys[] = { "linear_num_value_heads", NULL };

/* -------------------------------------------------------------------- reading */

static uint64_t
mamba_width(berthi_shape_reading *r)
{
    const uint64_t expand = berthi_shape_member(r, "expand", 1, 64, 2);

    return berthi_shape_member(r, "intermediate_size", 1, BERTHI_SHAPE_WIDTH,
                               expand * r->shape->hidden);
}

/* "auto" is a sixteenth of the hidden size. */
static uint64_t
step_rank(berthi_shape_reading *r, const char *key)
{
    const berthi_json_value *const value = berthi_json_find(r->model, key);
    const uint64_t usual = (r->shape->hidden + 15) / 16;
    const char *text;

    return berthi_json_can_read_string(value, &text)
               ? usual
               : berthi_shape_member(r, key, 1, BERTHI_SHAPE_WIDTH, usual);
}

static void
read_delta(berthi_shape_reading *r, berthi_state_layer *state)
{
    const uint64_t most = BERTHI_SHAPE_HEADS;
    const uint64_t dim = berthi_shape_member(r, "linear_value_head_dim", 1, 4096, 128);

    state->kind = BERTHI_STATE_DELTA;
    state->value_heads = berthi_shape_need(r, state_heads_keys, 4096, 0);
    state->inner = state->value_heads * dim;
    state->key_heads = berthi_shape_member(r, "linear_num_key_heads", 1, 4096, 16);
    state->key_dim = berthi_shape_member(r, "linear_key_head_dim", 1, 4096, 128);
    state->kernel = berthi_shape_member(r, "linear_conv_kernel_dim", 1, most, 4);
}

/* Kimi's are all of one width; published files have them in an object of their own. */
static void
read_ranked(berthi_shape_reading *r, berthi_state_layer *state)
{
    const berthi_json_value *const model = r->model;
    const berthi_json_value *const inner = berthi_json_find(model, "linear_attn_config");

    state->kind = BERTHI_STATE_RANKED;
    state->value_heads = berthi_shape_member(r, "linear_num_heads", 1, 4096, 32);
    state->key_dim = berthi_shape_member(r, "linear_head_dim", 1, 4096, 128);
    state->kernel = berthi_shape_member(r, "linear_conv_kernel_dim", 1, 4096, 4);
    r->model = inner;
    state->value_heads = berthi_shape_member(r, "num_heads", 1, 4096, state->value_heads);
    state->key_dim = berthi_shape_member(r, "head_dim", 1, 4096, state->key_dim);
    state->kernel =
        berthi_shape_member(r, "short_conv_kernel_size", 1, 4096, state->kernel);
    r->model = model;
    state->key_heads = state->value_heads;
    state->inner = state->value_heads * state->key_dim;
    state->step_rank = state->key_dim;
    state->has_key_steps = true;
}

/* Ling's are as many and as wide as the heads of attention, unless a later file says else. */
static void
read_key_gates(berthi_shape_reading *r, berthi_state_layer *state)
{
    const uint64_t heads = berthi_shape_member(r, "num_attention_heads", 1, 4096, 32);
    const uint64_t dim = berthi_shape_member(r, "head_dim", 1, 4096, 128);
    const uint64_t kernel = berthi_shape_member(r, "short_conv_kernel_size", 1, 4096, 4);

    state->kind = BERTHI_STATE_RANKED;
    state->value_heads = berthi_shape_member(r, "linear_num_heads", 1, 4096, heads);
    state->key_dim = berthi_shape_member(r, "linear_head_dim", 1, 4096, dim);
    state->kernel = berthi_shape_member(r, "linear_conv_kernel_dim", 1, 4096, kernel);
    state->key_heads = state->value_heads;
    state->inner = state->value_heads * state->key_dim;
    state->has_key_steps = true;
}

/* RWKV's: a sum, its scale and its largest for each value; each half mixes two tokens. */
static void
read_mixed(berthi_shape_reading *r, berthi_state_layer *state)
{
    const uint64_t hidden = r->shape->hidden;

    state->kind = BERTHI_STATE_MIXED;
    state->inner = berthi_shape_member(r, "attention_hidden_size", 1, BERTHI_SHAPE_WIDTH, hidden);
    state->key_dim = 3;
    state->kernel = 2;
    r->layer.intermediate =
        berthi_shape_member(r, "intermediate_size", 1, BERTHI_SHAPE_WIDTH, 4 * hidden);
}

/* As wide as attention, and with no convolution. */
static void
read_lightning(berthi_shape_reading *r, berthi_state_layer *state)
{
    state->kind = BERTHI_STATE_LIGHTNING;
    state->value_heads = berthi_shape_member(r, "num_attention_heads", 1, 4096, 32);
    if (state->value_heads == 0)
        return;
    state->key_dim = berthi_shape_member(r, "head_dim", 1, 4096,
                                         r->shape->hidden / state->value_heads);
    state->inner = state->value_heads * state->key_dim;
    state->block = berthi_shape_member(r, "block_size", 1, 4096, 256);
}

static void
read_mamba2(berthi_shape_reading *r, berthi_state_layer *state)
{
    state->kind = BERTHI_STATE_MAMBA2;
    state->value_heads = berthi_shape_member(r, "mamba_n_heads", 1, 4096, 128);
    state->key_heads = berthi_shape_member(r, "mamba_n_groups", 1, 4096, 1);
    state->key_dim = berthi_shape_member(r, "mamba_d_state", 1, 65536, 256);
    state->kernel = berthi_shape_member(r, "mamba_d_conv", 1, 4096, 4);
    state->inner = berthi_shape_member(
        r, "mamba_d_ssm", 1, BERTHI_SHAPE_WIDTH,
        berthi_shape_member(r, "mamba_expand", 1, 64, 2) * r->shape->hidden);
    state->has_bias = berthi_shape_flag(r, "mamba_proj_bias", false);
    state->has_output_bias = berthi_shape_flag(r, "projectors_bias", state->has_bias);
    state->has_kernel_bias = berthi_shape_flag(r, "mamba_conv_bias", true);
    state->has_norm = berthi_shape_flag(
        r, "mamba_rms_norm", (r->shape->family->flags & BERTHI_FAMILY_BESIDE_STATE) == 0);
}

/* Jamba's, the first kind by the names of the second. */
static void
read_mamba(berthi_shape_reading *r, berthi_state_layer *state)
{
    state->kind = BERTHI_STATE_MAMBA;
    state->key_dim = berthi_shape_member(r, "mamba_d_state", 1, 65536, 16);
    state->kernel = berthi_shape_member(r, "mamba_d_conv", 1, 4096, 4);
    state->inner = berthi_shape_member(r, "mamba_expand", 1, 64, 2) * r->shape->hidden;
    state->step_rank = step_rank(r, "mamba_dt_rank");
    state->has_bias = berthi_shape_flag(r, "mamba_proj_bias", false);
    state->has_output_bias = state->has_bias;
    state->has_kernel_bias = berthi_shape_flag(r, "mamba_conv_bias", true);
    state->has_norm = true;
}

/* Zamba 2's: the second kind by names of its own. */
static void
read_shared_state(berthi_shape_reading *r, berthi_state_layer *state)
{
    state->kind = BERTHI_STATE_MAMBA2;
    state->value_heads = berthi_shape_member(r, "n_mamba_heads", 1, 4096, 8);
    state->key_heads = berthi_shape_member(r, "mamba_ngroups", 1, 4096, 1);
    state->key_dim = berthi_shape_member(r, "mamba_d_state", 1, 65536, 64);
    state->kernel = berthi_shape_member(r, "mamba_d_conv", 1, 4096, 4);
    state->inner = berthi_shape_member(r, "mamba_expand", 1, 64, 2) * r->shape->hidden;
    state->has_bias = state->has_output_bias = berthi_shape_flag(r, "add_bias_linear", false);
    state->has_kernel_bias = state->has_norm = true;
}

static void
read_gated(berthi_shape_reading *r, berthi_state_layer *state)
{
    state->kind = BERTHI_STATE_GATED;
    state->inner =
        berthi_shape_member(r, "lru_width", 1, BERTHI_SHAPE_WIDTH, r->shape->hidden);
    state->value_heads = berthi_shape_member(r, "num_attention_heads", 1, 4096, 10);
    state->key_dim = 1;
    state->kernel = berthi_shape_member(r, "conv1d_width", 1, 4096, 4);
    state->has_bias = state->has_output_bias = state->has_kernel_bias = true;
}

/* Nemotron H's: the second kind by names of its own. */
static void
read_half_state(berthi_shape_reading *r, berthi_state_layer *state)
{
    state->kind = BERTHI_STATE_MAMBA2;
    state->value_heads = berthi_shape_member(r, "mamba_num_heads", 1, 4096, 128);
    state->inner = state->value_heads * berthi_shape_member(r, "mamba_head_dim", 1, 4096, 64);
    state->key_heads = berthi_shape_member(
        r, "n_groups", 1, 4096, berthi_shape_member(r, "mamba_n_groups", 1, 4096, 8));
    state->key_dim = berthi_shape_member(r, "ssm_state_size", 1, 65536, 128);
    state->kernel = berthi_shape_member(r, "conv_kernel", 1, 4096,
                                        berthi_shape_member(r, "mamba_d_conv", 1, 4096, 4));
    state->has_bias = state->has_output_bias = berthi_shape_flag(r, "use_bias", false);
    state->has_kernel_bias = berthi_shape_flag(r, "use_conv_bias", true);
    state->has_norm = true;
}

/* Every layer has a state, and its sizes plain names. */
static void
read_all_state(berthi_shape_reading *r, uint64_t flags)
{
    berthi_state_layer *const state = &r->shape->state;

    state->kernel = berthi_shape_member(r, "conv_kernel", 1, 4096, 4);
    state->has_bias = state->has_output_bias = berthi_shape_flag(r, "use_bias", false);
    state->has_kernel_bias = berthi_shape_flag(r, "use_conv_bias", true);
    state->has_norm = flags & BERTHI_FAMILY_MAMBA2;
    if (flags & BERTHI_FAMILY_MAMBA2) {
        state->kind = BERTHI_STATE_MAMBA2;
        state->inner = berthi_shape_member(r, "expand", 1, 64, 2) * r->shape->hidden;
        state->value_heads = berthi_shape_member(r, "num_heads", 1, 4096, 128);
        state->key_heads = berthi_shape_member(r, "n_groups", 1, 4096, 8);
        state->key_dim = berthi_shape_member(r, "state_size", 1, 65536, 128);
    } else {
        state->kind = BERTHI_STATE_MAMBA;
        state->inner = mamba_width(r);
        state->key_dim = berthi_shape_member(r, "state_size", 1, 65536, 16);
        state->step_rank = step_rank(r, "time_step_rank");
    }
}

void
berthi_shape_read_state(berthi_shape_reading *r)
{
    const uint64_t family_flags = r->shape->family->flags;
    berthi_state_layer *const state = &r->shape->state;

    if (r->shape->family->state == BERTHI_STATE_MIXED) {
        read_mixed(r, state);
    } else if (r->shape->family->state == BERTHI_STATE_MEMORY) {
        berthi_shape_read_memory(r);
    } else if (family_flags & BERTHI_FAMILY_ALL_STATE) {
        read_all_state(r, family_flags);
    } else if (family_flags & BERTHI_FAMILY_HALVES) {
        read_half_state(r, state);
    } else if (family_flags & BERTHI_FAMILY_CYCLE) {
        read_gated(r, state);
    } else if (r->shape->family->state == BERTHI_STATE_MAMBA2) {
        read_shared_state(r, state);
    } else if (r->shape->family->state == BERTHI_STATE_MAMBA) {
        read_mamba(r, state);
        state->has_norm = false;
    } else if (r->shape->family->traits & BERTHI_TRAIT_KEY_GATES) {
        read_key_gates(r, state);
    } else if (r->shape->family->state == BERTHI_STATE_RANKED) {
        read_ranked(r, state);
    } else if (r->shape->family->state == BERTHI_STATE_LIGHTNING) {
        read_lightning(r, state);
    } else if (berthi_json_find(r->model, "mamba_dt_rank") != NULL) {
        read_mamba(r, state);
    } else if (berthi_json_find(r->model, state_heads_keys[0]) != NULL) {
        read_delta(r, state);
        if (r->shape->family->state == BERTHI_STATE_APART)
            state->kind = BERTHI_STATE_APART;
    } else if (berthi_json_find(r->model, "conv_L_cache") != NULL) {
        state->kind = BERTHI_STATE_CONVOLUTION;
        state->inner = r->shape->hidden;
        state->kernel = berthi_shape_member(r, "conv_L_cache", 1, 4096, 3);
        state->has_bias = state->has_output_bias = state->has_kernel_bias =
            berthi_shape_flag(r, "conv_bias", false);
    } else if (family_flags & BERTHI_FAMILY_BESIDE_STATE
               || berthi_json_find(r->model, "mamba_d_state") != NULL) {
        read_mamba2(r, state);
    }
}

/* ------------------------------------------------------------- what is kept */

void
berthi_shape_make_state(const berthi_shape *shape, berthi_layer *layer)
{
    layer->attention = BERTHI_ATTENTION_STATE;
    layer->heads = layer->kv_heads = layer->key_dim = layer->value_dim = 0;
    berthi_shape_add_kept(shape, layer);
}

void
berthi_shape_add_kept(const berthi_shape *shape, berthi_layer *layer)
{
    const berthi_state_layer *const state = &shape->state;
    /* What a kind does not have is 0. */
    const uint64_t channels = state->inner + 2 * state->key_heads * state->key_dim;

    layer->state_elements = state->inner * state->key_dim;
    if (state->kind == BERTHI_STATE_MEMORY) /* and how far it has forgotten */
        layer->state_elements += state->step_rank + state->value_heads;
    layer->convolution_elements =
        (state->kind == BERTHI_STATE_MIXED ? shape->hidden : channels) * state->kernel;
}

/* --------------------------------------------------------------------- weights */

/* One filter a channel. */
static void
add_convolution(berthi_shape_making *m, uint64_t channels)
{
    const berthi_state_layer *const state = &m->shape->state;

    berthi_shape_add_vector(m, "conv1d",
                            channels * (state->kernel + (state->has_kernel_bias ? 1 : 0)));
}

static void
add_delta(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t keys = state->key_heads * state->key_dim;

    if (berthi_shape_has(m, BERTHI_FAMILY_SPLIT_DELTA)) {
        berthi_shape_add_linear(m, "in_proj_qkv", 2 * keys + state->inner, hidden);
        berthi_shape_add_linear(m, "in_proj_z", state->inner, hidden);
        berthi_shape_add_linear(m, "in_proj_b", state->value_heads, hidden);
        berthi_shape_add_linear(m, "in_proj_a", state->value_heads, hidden);
    } else {
        berthi_shape_add_linear(m, "in_proj_qkvz", 2 * keys + 2 * state->inner, hidden);
        berthi_shape_add_linear(m, "in_proj_ba", 2 * state->value_heads, hidden);
    }
    berthi_shape_add_vector(m, "conv1d", (2 * keys + state->inner) * state->kernel);
    berthi_shape_add_vector(m, "dt_bias", state->value_heads);
    berthi_shape_add_vector(m, "A_log", state->value_heads);
    berthi_shape_add_vector(m, "norm", state->inner / state->value_heads);
    berthi_shape_add_linear(m, "out_proj", hidden, state->inner);
}

/* The gates of values and of what is kept are one matrix each, or two of low rank. */
static void
add_gate_apart(berthi_shape_making *m, const char *whole, const char *first,
               const char *second, uint64_t width)
{
    const uint64_t rank = m->shape->state.step_rank;

    if (rank == 0) {
        berthi_shape_add_linear(m, whole, width, m->shape->hidden);
        return;
    }
    berthi_shape_add_linear(m, first, rank, m->shape->hidden);
    berthi_shape_add_linear(m, second, width, rank);
}

static void
add_apart(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t keys = state->key_heads * state->key_dim;
    /* How fast it forgets: a number for each head, or each part of a key. */
    const uint64_t steps = state->has_key_steps ? keys : state->value_heads;

    berthi_shape_add_linear(m, "q_proj", keys, hidden);
    berthi_shape_add_linear(m, "k_proj", keys, hidden);
    berthi_shape_add_linear(m, "v_proj", state->inner, hidden);
    berthi_shape_add_linear(m, "b_proj", state->value_heads, hidden);
    add_gate_apart(m, "a_proj", "f_a_proj", "f_b_proj", steps);
    add_gate_apart(m, "g_proj", "g_a_proj", "g_b_proj", state->inner);
    add_convolution(m, 2 * keys + state->inner);
    berthi_shape_add_vector(m, "dt_bias", steps);
    berthi_shape_add_vector(m, "A_log", state->value_heads);
    berthi_shape_add_vector(m, "o_norm", state->inner / state->value_heads);
    berthi_shape_add_linear(m, "o_proj", hidden, state->inner);
}

/* How much is left of a token within a block is kept as tables. */
static void
add_lightning(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t block = state->block;

    berthi_shape_add_linear(m, "qkv_proj", 3 * state->inner, hidden);
    berthi_shape_add_linear(m, "output_gate", state->inner, hidden);
    berthi_shape_add_linear(m, "out_proj", hidden, state->inner);
    berthi_shape_add_vector(m, "norm", state->inner);
    berthi_shape_add_vector(m, "decays",
                            state->value_heads * (1 + 2 * block + block * block));
}

/* What steps depend on: two layers, or of Zamba a matrix of each head in one tensor, no layer. */
static void
add_steps(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t outputs = state->step_rank + 2 * state->key_dim;

    if (berthi_shape_has_trait(m, BERTHI_TRAIT_SHARED_BLOCKS)) {
        berthi_shape_add_vector(m, "x_proj", outputs * state->inner);
        berthi_shape_add_vector(m, "dt_proj", state->inner * state->step_rank);
        berthi_shape_add_vector(m, "dt_proj", state->inner);
        return;
    }
    m->has_bias = false;
    berthi_shape_add_linear(m, "x_proj", outputs, state->inner);
    m->has_bias = true;
    berthi_shape_add_linear(m, "dt_proj", state->inner, state->step_rank);
}

static void
add_mamba(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t inner = state->inner;

    berthi_shape_add_linear(m, "in_proj", 2 * inner, hidden);
    add_convolution(m, inner);
    add_steps(m, state);
    berthi_shape_add_vector(m, "A_log", inner * state->key_dim);
    berthi_shape_add_vector(m, "D", inner);
    if (state->has_norm)
        berthi_shape_add_vector(m, "norm", state->step_rank + 2 * state->key_dim);
    m->has_bias = state->has_output_bias;
    berthi_shape_add_linear(m, "out_proj", hidden, inner);
}

static void
add_mamba2(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t channels = state->inner + 2 * state->key_heads * state->key_dim;

    berthi_shape_add_linear(m, "in_proj", state->inner + channels + state->value_heads,
                            hidden);
    add_convolution(m, channels);
    if (state->has_norm)
        berthi_shape_add_vector(m, "norm", state->inner);
    berthi_shape_add_vector(m, "A_log", 3 * state->value_heads); /* with D and dt_bias */
    m->has_bias = state->has_output_bias;
    berthi_shape_add_linear(m, "out_proj", hidden, state->inner);
}

/* Its gates are blocks beside each other, each with a bias. */
static void
add_gated(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t inner = state->inner;
    const uint64_t block = inner / state->value_heads;

    berthi_shape_add_linear(m, "linear_y", inner, m->shape->hidden);
    berthi_shape_add_linear(m, "linear_x", inner, m->shape->hidden);
    berthi_shape_add_linear(m, "linear_out", m->shape->hidden, inner);
    add_convolution(m, inner);
    berthi_shape_add_vector(m, "rg_lru", inner);
    berthi_shape_add_vector(m, "rg_lru", 2 * (block * block * state->value_heads + inner));
}

/* What a token and the one before it are mixed by, and how fast is forgotten. */
static void
add_mixed(berthi_shape_making *m, const berthi_state_layer *state)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t inner = state->inner;

    berthi_shape_add_linear(m, "key", inner, hidden);
    berthi_shape_add_linear(m, "value", inner, hidden);
    berthi_shape_add_linear(m, "receptance", inner, hidden);
    berthi_shape_add_linear(m, "output", hidden, inner);
    berthi_shape_add_vector(m, "time_decay", 2 * inner); /* and that of the first token */
    berthi_shape_add_vector(m, "time_mix", 5 * hidden);  /* three here, two of the MLP */
    berthi_shape_add_linear(m, "receptance", hidden, hidden); /* the MLP's gate */
}

void
berthi_shape_add_state(berthi_shape_making *m)
{
    const berthi_state_layer *const state = &m->shape->state;
    const uint64_t hidden = m->shape->hidden;

    m->has_bias = state->has_bias;
    switch (state->kind) {
    case BERTHI_STATE_DELTA: add_delta(m, state); break;
    case BERTHI_STATE_GATED: add_gated(m, state); break;
    case BERTHI_STATE_MAMBA: add_mamba(m, state); break;
    case BERTHI_STATE_MAMBA2: add_mamba2(m, state); break;
    case BERTHI_STATE_APART:
    case BERTHI_STATE_RANKED: add_apart(m, state); break;
    case BERTHI_STATE_LIGHTNING: add_lightning(m, state); break;
    case BERTHI_STATE_MIXED: add_mixed(m, state); break;
    case BERTHI_STATE_MEMORY: berthi_shape_add_memory(m); break;
    default:
        berthi_shape_add_linear(m, "in_proj", 3 * hidden, hidden);
        add_convolution(m, hidden);
        berthi_shape_add_linear(m, "out_proj", hidden, hidden);
        break;
    }
}
