/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_bottleneck.c - MobileBERT: layers that are narrower than the hidden state
 * between them, each with several MLPs; see shape_read.h, shape_making.h.
 */
#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

/*
 * Values read the hidden state itself, unless a file says else; queries and keys have what
 * narrows it to themselves, unless they read what the MLPs do.
 */
void
berthi_shape_read_bottleneck(berthi_shape_reading *r)
{
    const uint64_t most = BERTHI_SHAPE_WIDTH / 16;
    berthi_shape *const shape = r->shape;
    berthi_bottleneck *const bottleneck = &shape->bottleneck;

    if (r->layer.heads == 0)
        return;
    shape->embedding = berthi_shape_member(r, "embedding_size", 1, most, 128);
    bottleneck->word_parts = berthi_shape_flag(r, "trigram_input", true) ? 3 : 1;
    bottleneck->is_narrower = berthi_shape_flag(r, "use_bottleneck", true);
    bottleneck->narrowed = berthi_shape_member(r, "intra_bottleneck_size", 1, most, 128);
    bottleneck->width = berthi_shape_member(
        r, "true_hidden_size", 1, most,
        bottleneck->is_narrower ? bottleneck->narrowed : shape->hidden);
    bottleneck->mlps = berthi_shape_member(r, "num_feedforward_networks", 1, 4096, 4);
    bottleneck->has_narrow_values = berthi_shape_flag(r, "use_bottleneck_attention", false);
    bottleneck->has_queries = berthi_shape_flag(r, "key_query_shared_bottleneck", true);
    bottleneck->has_pooler = berthi_shape_flag(r, "classifier_activation", true);
    r->layer.key_dim = r->layer.value_dim =
        berthi_max_u64(bottleneck->width / r->layer.heads, 1);
    if (shape->embedding > shape->hidden)
        berthi_shape_refuse(r, "embedding_size", berthi_json_find(r->model, "embedding_size"),
                            "a width up to that of the hidden state");
}

/* --------------------------------------------------------------------- weights */

/* A linear layer and the norm behind it. */
static void
add_step(berthi_shape_making *m, const char *module, uint64_t outputs, uint64_t inputs)
{
    berthi_shape_add_linear(m, module, outputs, inputs);
    berthi_shape_add_norms(m, outputs, 1);
}

void
berthi_shape_add_narrow(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_bottleneck *const bottleneck = &m->shape->bottleneck;
    const uint64_t layers = m->count;
    const uint64_t hidden = m->shape->hidden;
    const uint64_t width = bottleneck->width;
    const uint64_t heads = layer->heads * layer->key_dim;

    m->has_bias = true;
    berthi_shape_add_linear(m, "query", heads, width);
    berthi_shape_add_linear(m, "key", heads, width);
    berthi_shape_add_linear(m, "value", heads, bottleneck->has_narrow_values ? width : hidden);
    add_step(m, "dense", width, width);
    m->count = layers * bottleneck->mlps;
    berthi_shape_add_linear(m, "dense", layer->intermediate, width);
    add_step(m, "dense", width, layer->intermediate);
    m->count = layers;
    if (!bottleneck->is_narrower)
        return;
    add_step(m, "dense", hidden, width);
    add_step(m, "dense", bottleneck->narrowed, hidden);
    if (bottleneck->has_queries)
        add_step(m, "dense", bottleneck->narrowed, hidden);
}

void
berthi_shape_add_word_parts(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;

    if (shape->bottleneck.width == 0)
        return;
    m->has_bias = true;
    m->role = BERTHI_WEIGHT_LINEAR;
    berthi_shape_add_linear(m, "embedding_transformation", shape->hidden,
                            shape->bottleneck.word_parts * shape->embedding);
}
