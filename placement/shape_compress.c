/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_compress.c - DeepSeek V4: layers that see a window, and behind it entries that
 * stand for many tokens each; how a file describes them, and their weights; see
 * shape_read.h, shape_making.h.
 */
#include <string.h>

#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

/* By the name of its layers, in an object; earlier files have a name for each. */
static uint64_t
tokens_of_entry(berthi_shape_reading *r, const char *word, const char *earlier,
                uint64_t fallback)
{
    const berthi_json_value *const model = r->model;
    uint64_t tokens = berthi_shape_member(r, earlier, 1, BERTHI_SHAPE_HEADS, fallback);

    r->model = berthi_json_find(model, "compress_rates");
    tokens = berthi_shape_member(r, word, 1, BERTHI_SHAPE_HEADS, tokens);
    r->model = model;
    return tokens;
}

void
berthi_shape_read_compression(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    berthi_compression *const compression = &shape->compression;

    compression->index_tokens =
        tokens_of_entry(r, "compressed_sparse_attention", "compress_rate_csa", 4);
    compression->tokens =
        tokens_of_entry(r, "heavily_compressed_attention", "compress_rate_hca", 128);
    compression->groups = berthi_shape_member(r, "o_groups", 1, r->layer.heads, 8);
    compression->group_rank =
        berthi_shape_member(r, "o_lora_rank", 1, BERTHI_SHAPE_HEADS, 1024);
    compression->streams = berthi_shape_member(r, "hc_mult", 1, 64, 4);
    compression->looked_up =
        berthi_shape_member(r, "num_hash_layers", 0, BERTHI_SHAPE_LAYERS, 3);
    shape->query_rank = berthi_shape_member(r, "q_lora_rank", 1, BERTHI_SHAPE_HEADS, 1024);
    shape->index_heads = berthi_shape_member(r, "index_n_heads", 1, BERTHI_SHAPE_HEADS, 64);
    shape->index_dim = berthi_shape_member(r, "index_head_dim", 1, BERTHI_SHAPE_HEADS, 128);
}

/* Published files have a number for each layer, and for those behind that predict. */
static uint64_t
listed_tokens(berthi_shape_reading *r, uint64_t number)
{
    const berthi_json_value *const list = berthi_json_find(r->model, "compress_ratios");
    const berthi_json_value *item = berthi_json_first(list);
    uint64_t tokens = 0;

    for (; number > 0 && item != NULL; number--)
        item = berthi_json_next(item);
    if (!berthi_json_can_read_unsigned(item, &tokens) || tokens > BERTHI_SHAPE_HEADS)
        berthi_shape_refuse(r, "compress_ratios", list, "a list of tokens for each layer");
    return tokens;
}

void
berthi_shape_compress(berthi_shape_reading *r, const char *word, uint64_t number,
                      berthi_layer *layer)
{
    const berthi_compression *const compression = &r->shape->compression;

    if (strcmp(word, "compressed_sparse_attention") == 0)
        layer->entry_tokens = compression->index_tokens;
    else if (strcmp(word, "heavily_compressed_attention") == 0)
        layer->entry_tokens = compression->tokens;
    else if (word[0] != '\0' && strcmp(word, "sliding_attention") != 0)
        r->shape->has_unknown_layers = true;
    else if (word[0] == '\0' && berthi_json_find(r->model, "compress_ratios") != NULL)
        layer->entry_tokens = listed_tokens(r, number);
    else if (word[0] == '\0') /* two of one kind, then each in turn */
        layer->entry_tokens = number > 2 && number % 2 == 1 ? compression->index_tokens
                                                            : compression->tokens;
    layer->has_index =
        layer->entry_tokens > 0 && layer->entry_tokens == compression->index_tokens;
}

/* --------------------------------------------------------------------- weights */

/* The class keeps it so from quantizers, and in f32 in f16. */
static void
add_kept(berthi_shape_making *m, const char *module, uint64_t outputs)
{
    berthi_shape_add_derived(m, module, outputs, m->shape->hidden)->is_f32_in_f16 = true;
}

/*
 * What makes an entry of `width` numbers. Where an index chooses, each token is part of two
 * entries.
 */
static void
add_compressor(berthi_shape_making *m, const berthi_layer *layer, uint64_t width)
{
    const uint64_t parts = layer->has_index ? 2 * width : width;

    add_kept(m, "kv_proj", parts);
    add_kept(m, "gate_proj", parts);
    berthi_shape_add_vector(m, "position_bias", layer->entry_tokens * parts);
    berthi_shape_add_vector(m, "kv_norm", width);
}

/* Keys are values, of one head; its output goes by groups of heads through a rank. */
static void
add_attention(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;
    const uint64_t queries = layer->heads * layer->key_dim;
    const uint64_t ranks = shape->compression.groups * shape->compression.group_rank;

    berthi_shape_add_linear(m, "q_a_proj", shape->query_rank, hidden);
    berthi_shape_add_vector(m, "q_a_norm", shape->query_rank);
    berthi_shape_add_linear(m, "q_b_proj", queries, shape->query_rank);
    berthi_shape_add_linear(m, "kv_proj", layer->key_dim, hidden);
    berthi_shape_add_vector(m, "kv_norm", layer->key_dim);
    (void)berthi_shape_add_derived(m, "o_a_proj", ranks, queries / shape->compression.groups);
    berthi_shape_add_linear(m, "o_b_proj", hidden, ranks);
    berthi_shape_add_vector(m, "sinks", layer->heads);
}

/* How attention, or the MLP, reads all streams of the hidden state and writes them. */
static void
add_connections(berthi_shape_making *m)
{
    const uint64_t streams = m->shape->compression.streams;
    const uint64_t mixes = (2 + streams) * streams;
    const uint64_t layers = m->count;

    m->count = 2 * layers;
    berthi_shape_add_vector(m, "fn", mixes * streams * m->shape->hidden);
    berthi_shape_add_vector(m, "base", mixes + 3);
    m->count = layers;
}

/* HY V4's are mixed by no more than a number for each, of reading and of writing. */
void
berthi_shape_add_stream_gates(berthi_shape_making *m)
{
    const uint64_t streams = m->shape->compression.streams;
    const uint64_t layers = m->count;

    m->count = 2 * layers;
    berthi_shape_add_vector(m, "fn", 2 * streams * streams * m->shape->hidden);
    berthi_shape_add_vector(m, "base", 2 * streams + 2);
    m->count = layers;
}

void
berthi_shape_add_compressed(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;

    m->has_bias = false;
    add_attention(m, layer);
    if (layer->entry_tokens > 0)
        add_compressor(m, layer, layer->key_dim);
    if (layer->has_index) {
        add_compressor(m, layer, shape->index_dim);
        berthi_shape_add_linear(m, "q_b_proj", shape->index_heads * shape->index_dim,
                                shape->query_rank);
        add_kept(m, "weights_proj", shape->index_heads);
    }
    add_connections(m);
}

void
berthi_shape_add_streams(berthi_shape_making *m)
{
    const uint64_t streams = m->shape->compression.streams;

    if (streams > 0)
        berthi_shape_add_vector(m, "hc_head",
                                streams * streams * m->shape->hidden + streams + 1);
}

void
berthi_shape_add_choice(berthi_shape_making *m, const berthi_layer *layer)
{
    if (!layer->has_word_experts) {
        berthi_shape_add_vector(m, "correction", layer->experts);
        return;
    }
    berthi_shape_add_matrix(m, "tid2eid", BERTHI_WEIGHT_OTHER, m->shape->vocabulary,
                            layer->experts_used)
        ->dtype = BERTH_I64;
}
