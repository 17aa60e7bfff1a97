/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_rules.c - what a file says of layers that differ: windows, states, experts,
 * keys and values of others; see shape_rules.h.
 */
#include "placement/shape_rules.h"

#define ALIASES(name, ...) static const char *const name[] = { __VA_ARGS__, NULL }

ALIASES(expert_keys, "n_routed_experts", "num_local_experts", "num_experts",
        "moe_num_experts");
ALIASES(used_keys, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k",
        "top_k_experts");
ALIASES(expert_width_keys, "moe_intermediate_size", "expert_ffn_hidden_size");
/* Llama 4 and MiniMax M3 give the dense layers' width a name of its own. */
ALIASES(dense_width_keys, "intermediate_size_mlp", "dense_intermediate_size");
ALIASES(shared_count_keys, "n_shared_experts", "moe_num_shared_experts",
        "num_shared_experts");
ALIASES(first_sparse_keys, "first_k_dense_replace", "num_dense_layers",
        "moe_layer_start_index");
ALIASES(sparse_step_keys, "decoder_sparse_step", "interleave_moe_layer_step",
        "moe_layer_interval", "expert_layer_period");
ALIASES(shared_keys, "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size", "shared_intermediate_size");
ALIASES(window_keys, "sliding_window", "attention_window_size");
ALIASES(pattern_keys, "sliding_window_pattern", "_sliding_window_pattern");

static void
read_windows(berthi_shape_reading *r, berthi_layer_rules *rules)
{
    const berthi_family *const family = r->shape->family;
    const uint64_t chunk =
        berthi_shape_member(r, "attention_chunk_size", 1, BERTHI_SHAPE_TOKENS, 0);

    rules->window =
        berthi_shape_number(r, window_keys, 0, BERTHI_SHAPE_TOKENS, chunk);
    /* With layer_types the list decides, layer by layer; so does the family without. */
    if (family->window == BERTHI_WINDOW_PATTERN)
        rules->pattern = berthi_shape_number(r, pattern_keys, 1, BERTHI_SHAPE_LAYERS,
                                             family->pattern);
    /* LFM3's begins one layer earlier. */
    rules->pattern_from = family->traits & BERTHI_TRAIT_SANDWICH ? 2 : 1;
    if (family->window == BERTHI_WINDOW_UPPER) {
        rules->first =
            berthi_shape_member(r, "max_window_layers", 0, BERTHI_SHAPE_LAYERS, 28);
        rules->has_no_windows = !berthi_shape_flag(r, "use_sliding_window", false);
        if (rules->has_no_windows)
            rules->window = 0;
    }
    if (family->window == BERTHI_WINDOW_NEVER && rules->types.next == NULL)
        rules->window = 0;
}

/* Kimi's files count them from 1, in an object of its own. */
static void
read_ranked_attending(berthi_shape_reading *r, berthi_layer_rules *rules)
{
    const berthi_json_value *const model = r->model;

    if (r->shape->family->traits & BERTHI_TRAIT_KEY_GATES) { /* Ling's: the last of a group */
        rules->attention_every =
            berthi_shape_member(r, "layer_group_size", 1, BERTHI_SHAPE_LAYERS, 6);
        rules->attention_at = rules->attention_every - 1;
        return;
    }

    r->model = berthi_json_find(model, "linear_attn_config");
    rules->attending = berthi_shape_open_numbers(r, "full_attn_layers");
    r->model = model;
    rules->attending_from = 1;
    rules->has_listed = rules->attending != NULL;
    if (!rules->has_listed)
        rules->attention_every = 4;
}

/* Where a file has no words for its layers: which of them are attention. */
static void
read_attending(berthi_shape_reading *r, berthi_layer_rules *rules)
{
    const uint64_t most = BERTHI_SHAPE_LAYERS;

    switch (r->shape->state.kind) {
    case BERTHI_STATE_DELTA:
    case BERTHI_STATE_APART:
        rules->attention_every =
            berthi_shape_member(r, "full_attention_interval", 1, most, 4);
        rules->attention_at = rules->attention_every - 1;
        break;
    case BERTHI_STATE_RANKED: read_ranked_attending(r, rules); break;
    case BERTHI_STATE_CONVOLUTION: /* LFM3's first one has none */
        if (r->shape->family->flags & BERTHI_FAMILY_FIRST_DIFFERS)
            rules->attention_every = 2;
        break;
    case BERTHI_STATE_LIGHTNING: rules->attention_every = 2; break;
    case BERTHI_STATE_MAMBA:
        rules->attention_every = berthi_shape_member(r, "attn_layer_period", 1, most, 0);
        rules->attention_at = berthi_shape_member(r, "attn_layer_offset", 0, most, 0);
        break;
    default: break;
    }
    if ((r->shape->family->flags & BERTHI_FAMILY_LISTED) == 0)
        return;
    rules->attending = berthi_shape_open_numbers(r, "attn_layer_indices");
    if (rules->attending == NULL)
        rules->attending = berthi_shape_open_numbers(r, "full_attn_idxs");
    rules->has_listed =
        rules->attending != NULL || r->shape->state.kind == BERTHI_STATE_MAMBA2;
}

/* Each layer looks for itself in it: no larger than models are deep. */
static const berthi_json_value *
open_own(berthi_shape_reading *r)
{
    const berthi_json_value *const value = berthi_json_find(r->model, "per_layer_config");
    uint64_t count = 0;

    for (const berthi_json_value *v = berthi_json_first(value); v != NULL;
         v = berthi_json_next(v))
        if (++count > BERTHI_SHAPE_LAYERS)
            berthi_shape_refuse(r, "per_layer_config", value, "for as few layers as a model has");
    return value;
}

/* What Gemma's layers share with others, and what is different where they see all. */
static void
read_shared(berthi_shape_reading *r, berthi_layer_rules *rules)
{
    const uint64_t layers = r->shape->layers;

    rules->first_shared =
        layers - berthi_shape_member(r, "num_kv_shared_layers", 0, layers, 0);
    rules->doubles_shared = berthi_shape_flag(r, "use_double_wide_mlp", false);
    rules->has_equal_values = berthi_shape_flag(r, "attention_k_eq_v", false);
    rules->own = open_own(r);
    if ((r->shape->family->flags & BERTHI_FAMILY_GLOBAL_HEADS) == 0)
        return;
    rules->global_dim = berthi_shape_member(r, "global_head_dim", 1, BERTHI_SHAPE_HEADS, 512);
    if (rules->has_equal_values)
        rules->global_kv = berthi_shape_member(r, "num_global_key_value_heads", 1,
                                               r->layer.heads, 0);
}

/* What classes whose layers are made in a way of their own are told of experts, they ignore. */
static bool
can_have_experts(berthi_shape_reading *r)
{
    const uint64_t traits = r->shape->family->traits;
    const bool is_beside = r->shape->family->flags & BERTHI_FAMILY_BESIDE;

    if (traits
        & (BERTHI_TRAIT_KEY_STEPS | BERTHI_TRAIT_BOTTLENECK | BERTHI_TRAIT_GROUPED
           | BERTHI_TRAIT_SPANS))
        return false;
    /* Gemma 4 may have the number of them without them. */
    return berthi_shape_flag(r, "enable_moe_block", !is_beside)
           && berthi_shape_flag(r, "is_moe", true);
}

/* Of the layers with experts: numbers of the MLP, and which layers they are. */
static void
read_experts(berthi_shape_reading *r, berthi_layer_rules *rules)
{
    const uint64_t most = BERTHI_SHAPE_HEADS;
    const uint64_t width = BERTHI_SHAPE_WIDTH;
    const bool is_one = r->shape->family->flags & BERTHI_FAMILY_SHARED_IS_EXPERT;
    berthi_layer *const sparse = &rules->sparse;
    uint64_t shared;

    if (can_have_experts(r))
        sparse->experts = berthi_shape_number(r, expert_keys, 0, most, 0);
    /* Jamba's one expert is an MLP. */
    if (sparse->experts == 1 && berthi_json_find(r->model, "expert_layer_period") != NULL)
        sparse->experts = 0;
    if (sparse->experts == 0) {
        if (r->shape->family->flags & BERTHI_FAMILY_SHARED_IS_DENSE)
            r->layer.intermediate =
                berthi_shape_number(r, shared_keys, 1, width, r->layer.intermediate);
        return;
    }
    sparse->experts_used = berthi_shape_number(r, used_keys, 1, sparse->experts, 1);
    sparse->expert_intermediate =
        berthi_shape_number(r, expert_width_keys, 1, width, r->layer.intermediate);
    shared = r->shape->family->flags & BERTHI_FAMILY_COMPRESSED
                 ? 1 /* whatever DeepSeek V4's files say */
                 : berthi_shape_number(r, shared_count_keys, 0, most, is_one);
    sparse->shared_intermediate =
        berthi_shape_number(r, shared_keys, 0, width,
                            shared * sparse->expert_intermediate);
    r->layer.intermediate =
        berthi_shape_number(r, dense_width_keys, 1, width, r->layer.intermediate);
    if (r->shape->family->flags & BERTHI_FAMILY_BESIDE || r->shape->family->parts > 0)
        sparse->shared_intermediate = r->layer.intermediate;
    rules->first_sparse =
        berthi_shape_number(r, first_sparse_keys, 0, BERTHI_SHAPE_LAYERS,
                            r->shape->family->dense);
    rules->last_sparse = berthi_shape_member_if_any(r, "moe_layer_end_index",
                                                    BERTHI_SHAPE_LAYERS, BERTHI_SHAPE_LAYERS);
    rules->sparse_every =
        rules->mlps.next != NULL
            ? 1
            : berthi_shape_member(r, "moe_layer_freq", 1, BERTHI_SHAPE_LAYERS, 1);
    if ((r->shape->family->traits & BERTHI_TRAIT_SPARSE_PAIR) == 0)
        rules->sparse_step =
            berthi_shape_number(r, sparse_step_keys, 1, BERTHI_SHAPE_LAYERS,
                                berthi_max_u64(r->shape->family->parts, 1));
    rules->sparse_at = berthi_shape_member(
        r, "expert_layer_offset", 0, BERTHI_SHAPE_LAYERS,
        r->shape->family->parts > 0 ? 0 : rules->sparse_step - 1);
    rules->dense = berthi_shape_open_numbers(r, "mlp_only_layers");
    rules->listed_sparse = berthi_shape_open_numbers(r, "moe_layers");
    rules->has_listed_sparse = berthi_json_find(r->model, "moe_layers") != NULL;
    r->shape->idle_experts = berthi_shape_member(r, "zero_expert_num", 0, most, 0);
    r->shape->expert_latent = berthi_shape_member(r, "moe_latent_size", 1, width, 0);
    r->shape->has_correction = r->shape->family->flags & BERTHI_FAMILY_CORRECTION
                               && berthi_shape_flag(r, "use_expert_bias", true);
}

/* Of how many layers one has experts, where a file says only how many have. */
static uint64_t
part_of_layers(berthi_shape_reading *r, const char *key, uint64_t layers)
{
    const uint64_t count = berthi_shape_member(r, key, 0, BERTHI_SHAPE_LAYERS, 3);

    return count > 0 ? layers / count : layers;
}

/*
 * An encoder and a decoder, each with experts in one of so many layers: NLLB's in the last of
 * them, Switch's in the second.
 */
static void
read_sparse_pair(berthi_shape_reading *r, berthi_layer_rules *rules)
{
    const berthi_shape *const shape = r->shape;
    const bool is_switch = shape->family->flags & BERTHI_FAMILY_RELATIVE;
    const uint64_t most = BERTHI_SHAPE_LAYERS;
    const uint64_t step = berthi_shape_member(
        r, "decoder_sparse_step", 0, most,
        is_switch ? part_of_layers(r, "num_sparse_decoder_layers", shape->layers) : 4);

    rules->encoder_step = berthi_shape_member(
        r, "encoder_sparse_step", 0, most,
        is_switch ? part_of_layers(r, "num_sparse_encoder_layers", shape->encoder_layers) : 4);
    rules->encoder_at = is_switch ? rules->encoder_step > 1 : rules->encoder_step - 1;
    rules->sparse_step = step > 0 ? step : most + 1; /* which no layer's number is */
    rules->sparse_at = step == 0 ? most : is_switch ? step > 1 : step - 1;
    if (!is_switch)
        rules->sparse.experts_used = berthi_min_u64(2, rules->sparse.experts);
    r->shape->has_router_bias = berthi_shape_flag(r, "router_bias", false);
}

berthi_layer_rules
berthi_shape_read_rules(berthi_shape_reading *r)
{
    berthi_layer_rules rules = {
        .types = berthi_shape_open_words(r),
        .mlps = berthi_shape_open_mlps(r),
        .indexers = berthi_shape_open_indexers(r),
        .index_every = berthi_shape_member(
            r, "index_topk_freq", 0, BERTHI_SHAPE_LAYERS,
            r->shape->family->traits & BERTHI_TRAIT_FEW_INDEXES ? 4 : 1),
        .index_from =
            berthi_shape_member(r, "index_skip_topk_offset", 0, BERTHI_SHAPE_LAYERS, 2),
        .heads = berthi_shape_open_list(r, "num_attention_heads_per_layer"),
        .looking = berthi_shape_open_numbers(r, "cross_attention_layers"),
    };

    read_windows(r, &rules);
    read_attending(r, &rules);
    read_shared(r, &rules);
    read_experts(r, &rules);
    if (r->shape->family->traits & BERTHI_TRAIT_SPARSE_PAIR)
        read_sparse_pair(r, &rules);
    return rules;
}
