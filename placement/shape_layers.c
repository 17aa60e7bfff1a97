/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_layers.c - layer by layer: how far it looks back, and whether its MLP is
 * one or many; equal layers become one kind.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "placement/shape_rules.h"

#define ALIASES(name, ...) static const char *const name[] = { __VA_ARGS__, NULL }

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
make_listed(berthi_shape_reading *r, const berthi_layer_rules *rules, const char *word,
            berthi_layer *layer)
{
    if (r->shape->family->traits & BERTHI_TRAIT_MIXED_HEADS)
        word = strcmp(word, "hybrid") == 0           ? "full_attention"
               : strcmp(word, "hybrid_sliding") == 0 ? "sliding_attention"
                                                     : word;
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
make_ruled(const berthi_shape_reading *r, const berthi_layer_rules *rules, uint64_t number,
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
             && (rules->pattern == 0 || (number + rules->pattern_from) % rules->pattern != 0))
        layer->window = rules->window;
}

ALIASES(sparse_words, "sparse", "moe", "hash_moe");

static bool
is_sparse(const berthi_layer_rules *rules, const char *word, uint64_t number)
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
take_own(berthi_shape_reading *r, const berthi_layer_rules *rules, uint64_t number,
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
share(berthi_shape_reading *r, const berthi_layer_rules *rules, uint64_t number,
      berthi_layer *layer)
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

/* Laguna's layers have as many as a list says; no other file has one. */
static void
take_heads(berthi_shape_reading *r, berthi_layer_words *heads, berthi_layer *layer)
{
    uint64_t number = 0;

    if (heads->next == NULL)
        return;
    if (!berthi_json_can_read_unsigned(heads->next, &number) || number == 0
        || number > BERTHI_SHAPE_HEADS)
        berthi_shape_refuse(r, heads->key, heads->next, "a list of whole numbers");
    else if (layer->heads > 0)
        layer->heads = number;
    heads->next = berthi_json_next(heads->next);
}

/* Layers that do not choose tokens take those that the last one before them chose. */
static bool
has_own_index(berthi_shape_reading *r, const berthi_layer_rules *rules, const char *word,
              uint64_t number)
{
    const uint64_t behind =
        number + 1 > rules->index_from ? number + 1 - rules->index_from : 0;

    if (word[0] == '\0')
        return behind % berthi_max_u64(rules->index_every, 1) == 0;
    if (strcmp(word, "full") != 0 && strcmp(word, "shared") != 0)
        r->shape->has_unknown_layers = true;
    return strcmp(word, "shared") != 0;
}

/* What it sees is of another model, and as long for all texts. */
static void
make_looking(berthi_layer *layer)
{
    layer->attention = BERTHI_ATTENTION_NONE;
    layer->has_cross = layer->looks = true;
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
make_half(berthi_shape_reading *r, berthi_layer_rules *rules, const char *word)
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
make_compressed(berthi_shape_reading *r, const berthi_layer_rules *rules, const char *word,
                uint64_t number, berthi_layer *layer)
{
    layer->window = rules->window;
    berthi_shape_compress(r, word, number, layer);
}

static berthi_layer
make_layer(berthi_shape_reading *r, berthi_layer_rules *rules, uint64_t number)
{
    const uint64_t flags = r->shape->family->flags;
    const char *const word = berthi_shape_take_word(r, &rules->types);
    const char *const mlp = berthi_shape_take_word(r, &rules->mlps);
    const char *const indexer = berthi_shape_take_word(r, &rules->indexers);
    berthi_layer layer = r->layer;

    if (flags & BERTHI_FAMILY_HALVES)
        return make_half(r, rules, word);
    layer.count = 1;
    if (r->shape->shared_blocks > 0) {
        berthi_shape_make_shared(r, word, &layer);
        return layer;
    }
    /* A cycle says what has a state; how far the others look is a number. */
    if (flags & BERTHI_FAMILY_COMPRESSED)
        make_compressed(r, rules, word, number, &layer);
    else if (word[0] != '\0' && !(rules->types.is_cycle && is_one_of(word, whole_words)))
        make_listed(r, rules, word, &layer);
    else
        make_ruled(r, rules, number, &layer);
    if (layer.attention == BERTHI_ATTENTION_LATENT && r->shape->index_heads > 0)
        layer.has_index = has_own_index(r, rules, indexer, number);
    if (is_sparse(rules, mlp, number))
        make_sparse(&rules->sparse, &layer);
    if (flags & BERTHI_FAMILY_COMPRESSED)
        layer.has_word_experts = mlp[0] != '\0' ? strcmp(mlp, "hash_moe") == 0
                                                : number < r->shape->compression.looked_up;
    if (flags & BERTHI_FAMILY_BESIDE_STATE)
        berthi_shape_add_kept(r->shape, &layer);
    share(r, rules, number, &layer);
    take_heads(r, &rules->heads, &layer);
    if (berthi_shape_looks(r, rules->looking, number))
        make_looking(&layer);
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
           && a->heads == b->heads && a->kv_heads == b->kv_heads
           && a->looks == b->looks;
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
        const char *const key = berthi_json_find(r->model, "per_layer_config") != NULL
                                    ? "per_layer_config"
                                    : "num_attention_heads_per_layer";

        berthi_shape_refuse(r, key, berthi_json_find(r->model, key),
                            "for as few different layers as a model has");
        return 0;
    }
    shape->kinds[shape->kind_count] = *layer;
    return shape->kind_count++;
}

static void
add_encoder(berthi_shape_reading *r, const berthi_layer_rules *rules)
{
    berthi_layer encoder = r->encoder.count > 0 ? r->encoder : r->layer;
    berthi_layer sparse;

    if (r->encoder.count == 0)
        encoder.intermediate = berthi_shape_member(r, "encoder_ffn_dim", 1, BERTHI_SHAPE_WIDTH,
                                                   encoder.intermediate);
    encoder.count = 1;
    encoder.is_encoder = true;
    encoder.attention = BERTHI_ATTENTION_NONE;
    sparse = encoder;
    make_sparse(&rules->sparse, &sparse);
    sparse.expert_intermediate = encoder.intermediate;
    for (uint64_t i = 0; i < r->shape->encoder_layers; i++) {
        const bool is_sparse_one =
            rules->sparse.experts > 0 && rules->encoder_step > 0
            && i % rules->encoder_step == rules->encoder_at;

        r->shape->encoder_kinds[i] =
            (uint8_t)add_layer(r, is_sparse_one ? &sparse : &encoder);
    }
}

void
berthi_shape_read_layers(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    berthi_layer_rules rules = berthi_shape_read_rules(r);

    if (shape->encoder_layers > 0)
        add_encoder(r, &rules);
    if (shape->encoder_layers > 0
        || (shape->family->flags & BERTHI_FAMILY_ENCODER && !shape->is_encoder_alone))
        r->layer.has_cross = (shape->family->traits & BERTHI_TRAIT_AHEAD) == 0
                             || berthi_shape_flag(r, "add_cross_attention", true);
    if (shape->family->flags & BERTHI_FAMILY_CLASSIC && r->layer.attention == BERTHI_ATTENTION_HEADS
        && berthi_shape_flag(r, "add_cross_attention", false))
        r->layer.has_cross = true; /* of an encoder in another file */
    for (uint64_t i = 0; i < shape->layers && r->status == BERTH_OK; i++) {
        const berthi_layer layer = make_layer(r, &rules, i);

        shape->layer_kinds[i] = (uint8_t)add_layer(r, &layer);
    }
}
