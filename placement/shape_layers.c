/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_layers.c - layer by layer: how far it looks back, and whether its MLP is
 * one or many; equal layers become one kind.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "placement/shape_read.h"

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

typedef struct layer_rules {
    berthi_layer_words types; /* "layer_types" */
    berthi_layer_words mlps;  /* "mlp_layer_types" */
    const berthi_json_value *dense; /* "mlp_only_layers": numbers of layers */
    const berthi_json_value *listed_sparse; /* "moe_layers": the same */
    bool has_listed_sparse;
    uint64_t window;  /* 0: none */
    bool has_no_windows; /* by "use_sliding_window" */
    uint64_t pattern; /* all but every n-th layer; 0: not by pattern */
    uint64_t first;   /* windows from this layer on */
    uint64_t attention_every; /* of so many layers one, the others have a state; 0: all */
    uint64_t attention_at;    /* the remainder of its number */
    bool has_listed; /* attention is where `attending` says, the others have a state */
    const berthi_json_value *attending; /* numbers of layers */
    uint64_t attending_from;            /* that of the first layer there */
    uint64_t first_shared; /* layers from this one on have no keys and values */
    bool doubles_shared;   /* the MLP of those is twice as wide */
    bool has_equal_values; /* where all is seen */
    uint64_t global_dim;   /* of heads where all is seen; 0: as elsewhere */
    uint64_t global_kv;    /* of them, keys; 0: as elsewhere */
    const berthi_json_value *own; /* objects of layers that differ, by their numbers */
    berthi_layer sparse; /* the numbers of the MLP with experts */
    uint64_t first_sparse;
    uint64_t last_sparse;
    uint64_t sparse_every; /* layers whose number divides by it */
    uint64_t sparse_step;  /* of so many layers one */
    uint64_t sparse_at;    /* the remainder of its number */
} layer_rules;

/* ----------------------------------------------------------------------- rules */

static void
read_windows(berthi_shape_reading *r, layer_rules *rules)
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
read_ranked_attending(berthi_shape_reading *r, layer_rules *rules)
{
    const berthi_json_value *const model = r->model;

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
read_attending(berthi_shape_reading *r, layer_rules *rules)
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
read_shared(berthi_shape_reading *r, layer_rules *rules)
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

/* Of the layers with experts: numbers of the MLP, and which layers they are. */
static void
read_experts(berthi_shape_reading *r, layer_rules *rules)
{
    const uint64_t most = BERTHI_SHAPE_HEADS;
    const uint64_t width = BERTHI_SHAPE_WIDTH;
    const bool is_one = r->shape->family->flags & BERTHI_FAMILY_SHARED_IS_EXPERT;
    berthi_layer *const sparse = &rules->sparse;
    uint64_t shared;

    /* Gemma 4 may have the number of them without them. */
    if (berthi_shape_flag(r, "enable_moe_block",
                          (r->shape->family->flags & BERTHI_FAMILY_BESIDE) == 0)
        && berthi_shape_flag(r, "is_moe", true))
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

/* -------------------------------------------------------------------- one layer */

static bool
is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

ALIASES(whole_words, "full_attention", "attention", "global_attention", "indexed_attention");
ALIASES(window_words, "sliding_attention", "chunked_attention", "local_attention");
ALIASES(state_words, "linear_attention", "conv", "mamba", "mamba2", "recurrent");

/* As the list has it. */
static void
make_listed(berthi_shape_reading *r, const layer_rules *rules, const char *word,
            berthi_layer *layer)
{
    if (is_one_of(word, window_words)) {
        if (layer->attention == BERTHI_ATTENTION_NONE)
            return; /* nothing is kept, however far it looks */
        layer->window = rules->window;
        if (layer->window == 0 && rules->has_no_windows)
            berthi_shape_refuse(r, "use_sliding_window",
                                berthi_json_find(r->model, "use_sliding_window"),
                                "true, and \"layer_types\" has windows");
        else if (layer->window == 0)
            berthi_shape_refuse(r, "sliding_window",
                                berthi_json_find(r->model, "sliding_window"),
                                "a number of tokens, and \"layer_types\" has windows");
    } else if (is_one_of(word, state_words)
               && (r->shape->is_known || r->shape->state.kind != BERTHI_STATE_ABSENT)) {
        if (r->shape->state.kind == BERTHI_STATE_ABSENT)
            berthi_shape_refuse(r, "linear_num_value_heads", NULL,
                                "a whole number, and \"layer_types\" has such layers");
        berthi_shape_make_state(r->shape, layer);
    } else if (strcmp(word, "minimax_m3_sparse") == 0
               && layer->attention == BERTHI_ATTENTION_HEADS) {
        if (r->shape->index_heads == 0)
            berthi_shape_read_block_index(r);
        layer->has_index = true;
    } else if (!is_one_of(word, whole_words)) {
        r->shape->has_unknown_layers = true;
    }
}

/* By the rule of its family. */
static void
make_ruled(const berthi_shape_reading *r, const layer_rules *rules, uint64_t number,
           berthi_layer *layer)
{
    const uint64_t flags = r->shape->family->flags;
    const bool differs = flags & BERTHI_FAMILY_FIRST_DIFFERS && number == 0;
    const bool has_turn = rules->attention_every == 0
                          || number % rules->attention_every == rules->attention_at;

    if (flags & BERTHI_FAMILY_ALL_STATE
        || (rules->has_listed
            && !berthi_shape_is_listed(rules->attending, number + rules->attending_from))
        || (rules->attention_every > 0 && has_turn == differs))
        berthi_shape_make_state(r->shape, layer);
    else if (number >= rules->first && !differs
             && (rules->pattern == 0 || (number + 1) % rules->pattern != 0))
        layer->window = rules->window;
}

ALIASES(sparse_words, "sparse", "moe", "hash_moe");

static bool
is_sparse(const layer_rules *rules, const char *word, uint64_t number)
{
    if (rules->sparse.experts == 0)
        return false;
    if (word[0] != '\0')
        return is_one_of(word, sparse_words);
    if (rules->has_listed_sparse)
        return berthi_shape_is_listed(rules->listed_sparse, number);
    return number >= rules->first_sparse && number <= rules->last_sparse
           && number % rules->sparse_every == 0
           && number % rules->sparse_step == rules->sparse_at
           && !berthi_shape_is_listed(rules->dense, number);
}

/*
 * Later releases write what is different in a layer's own object, under its number with a 0 before
 * it or without.
 */
static void
take_own(berthi_shape_reading *r, const layer_rules *rules, uint64_t number,
         berthi_layer *layer)
{
    const berthi_json_value *const model = r->model;
    char key[24];

    for (int width = 1; width <= 4 && r->model == model; width++) {
        const berthi_json_value *own;

        snprintf(key, sizeof key, "%0*" PRIu64, width, number);
        own = berthi_json_find(rules->own, key);
        if (own != NULL)
            r->model = own;
    }
    if (r->model == model)
        return;
    layer->key_dim = layer->value_dim =
        berthi_shape_member(r, "head_dim", 1, BERTHI_SHAPE_HEADS, layer->key_dim);
    layer->kv_heads =
        berthi_shape_member(r, "num_key_value_heads", 1, layer->heads, layer->kv_heads);
    r->model = model;
}

/* Behind what the layer's kind of attention and its MLP have decided. */
static void
share(berthi_shape_reading *r, const layer_rules *rules, uint64_t number, berthi_layer *layer)
{
    if (layer->attention != BERTHI_ATTENTION_HEADS)
        return;
    /* The last one of Gemma 4 does, whatever its list or rule says. */
    if (rules->global_dim > 0 && number + 1 == r->shape->layers)
        layer->window = 0;
    if (layer->window == 0 && rules->global_dim > 0)
        layer->key_dim = layer->value_dim = rules->global_dim;
    if (layer->window == 0 && rules->global_kv > 0)
        layer->kv_heads = rules->global_kv;
    if (layer->window > 0 && r->shape->family->flags & BERTHI_FAMILY_WINDOW_HEADS)
        layer->kv_heads *= 2;
    take_own(r, rules, number, layer);
    layer->has_equal_values = layer->window == 0 && rules->has_equal_values;
    layer->shares_cache = number >= rules->first_shared;
    if (layer->shares_cache && rules->doubles_shared) {
        layer->intermediate *= 2;
        layer->shared_intermediate *= 2;
    }
}

/* Gives a layer its experts instead of its MLP. */
static void
make_sparse(const berthi_layer *sparse, berthi_layer *layer)
{
    layer->intermediate = 0;
    layer->experts = sparse->experts;
    layer->experts_used = sparse->experts_used;
    layer->expert_intermediate = sparse->expert_intermediate;
    layer->shared_intermediate = sparse->shared_intermediate;
}

/* Nemotron H's layers are an MLP, experts, attention or a state, each by itself. */
static berthi_layer
make_half(berthi_shape_reading *r, layer_rules *rules, const char *word)
{
    const bool is_sparse_half = strcmp(word, "moe") == 0;
    berthi_layer layer = r->layer;

    layer.count = 1;
    if (is_sparse_half || strcmp(word, "mlp") == 0) {
        layer.attention = BERTHI_ATTENTION_NONE;
        layer.heads = layer.kv_heads = layer.key_dim = layer.value_dim = 0;
        if (is_sparse_half)
            make_sparse(&rules->sparse, &layer);
        return layer;
    }
    make_listed(r, rules, word, &layer);
    layer.intermediate = 0;
    return layer;
}

/* All look back through a window; what is behind it is another matter. */
static void
make_compressed(berthi_shape_reading *r, const layer_rules *rules, const char *word,
                uint64_t number, berthi_layer *layer)
{
    layer->window = rules->window;
    berthi_shape_compress(r, word, number, layer);
}

static berthi_layer
make_layer(berthi_shape_reading *r, layer_rules *rules, uint64_t number)
{
    const uint64_t flags = r->shape->family->flags;
    const char *const word = berthi_shape_take_word(r, &rules->types);
    const char *const mlp = berthi_shape_take_word(r, &rules->mlps);
    berthi_layer layer = r->layer;

    if (flags & BERTHI_FAMILY_HALVES)
        return make_half(r, rules, word);
    layer.count = 1;
    /* A cycle says what has a state; how far the others look is a number. */
    if (flags & BERTHI_FAMILY_COMPRESSED)
        make_compressed(r, rules, word, number, &layer);
    else if (word[0] != '\0' && !(rules->types.is_cycle && is_one_of(word, whole_words)))
        make_listed(r, rules, word, &layer);
    else
        make_ruled(r, rules, number, &layer);
    if (is_sparse(rules, mlp, number))
        make_sparse(&rules->sparse, &layer);
    if (flags & BERTHI_FAMILY_COMPRESSED)
        layer.has_word_experts = mlp[0] != '\0' ? strcmp(mlp, "hash_moe") == 0
                                                : number < r->shape->compression.looked_up;
    if (flags & BERTHI_FAMILY_BESIDE_STATE)
        berthi_shape_add_kept(r->shape, &layer);
    share(r, rules, number, &layer);
    return layer;
}

/* ------------------------------------------------------------------------ kinds */

static bool
is_alike(const berthi_layer *a, const berthi_layer *b)
{
    return a->attention == b->attention && a->is_encoder == b->is_encoder
           && a->intermediate == b->intermediate
           && a->window == b->window && a->experts == b->experts
           && a->entry_tokens == b->entry_tokens && a->has_index == b->has_index
           && a->has_word_experts == b->has_word_experts
           && a->shares_cache == b->shares_cache && a->key_dim == b->key_dim
           && a->kv_heads == b->kv_heads;
}

/* Returns its kind. No class has as many as there is room for, but a file may say so. */
static uint32_t
add_layer(berthi_shape_reading *r, const berthi_layer *layer)
{
    berthi_shape *const shape = r->shape;

    for (uint32_t i = 0; i < shape->kind_count; i++) {
        if (!is_alike(&shape->kinds[i], layer))
            continue;
        shape->kinds[i].count += layer->count;
        return i;
    }
    if (shape->kind_count == BERTHI_LAYER_KINDS) {
        berthi_shape_refuse(r, "per_layer_config", berthi_json_find(r->model, "per_layer_config"),
                            "for as few different layers as a model has");
        return 0;
    }
    shape->kinds[shape->kind_count] = *layer;
    return shape->kind_count++;
}

void
berthi_shape_read_layers(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    layer_rules rules = { .types = berthi_shape_open_words(r),
                          .mlps = berthi_shape_open_mlps(r) };

    read_windows(r, &rules);
    read_attending(r, &rules);
    read_shared(r, &rules);
    read_experts(r, &rules);
    if (shape->encoder_layers > 0) {
        berthi_layer encoder = r->layer;

        encoder.intermediate =
            berthi_shape_member(r, "encoder_ffn_dim", 1, BERTHI_SHAPE_WIDTH, encoder.intermediate);
        encoder.count = shape->encoder_layers;
        encoder.is_encoder = true;
        encoder.attention = BERTHI_ATTENTION_NONE;
        (void)add_layer(r, &encoder);
        r->layer.has_cross = true;
    }
    if (shape->family->flags & BERTHI_FAMILY_CLASSIC && r->layer.attention == BERTHI_ATTENTION_HEADS
        && berthi_shape_flag(r, "add_cross_attention", false))
        r->layer.has_cross = true; /* of an encoder in another file */
    for (uint64_t i = 0; i < shape->layers && r->status == BERTH_OK; i++) {
        const berthi_layer layer = make_layer(r, &rules, i);

        shape->layer_kinds[i] = (uint8_t)add_layer(r, &layer);
    }
}
