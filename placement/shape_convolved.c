/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_convolved.c - layers of BERT's kind whose matrices are convolutions of groups
 * (SqueezeBERT), or half of whose heads are (ConvBERT); see shape_read.h,
 * shape_making.h.
 */
#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

static void
read_grouped(berthi_shape_reading *r)
{
    static const struct {
        const char *key;
        uint64_t fallback;
    } members[BERTHI_CONVOLVED_PARTS] = {
        { "q_groups", 4 },
        { "k_groups", 4 },
        { "v_groups", 4 },
        { "post_attention_groups", 1 },
        { "intermediate_groups", 4 },
        { "output_groups", 4 },
    };

    for (uint32_t i = 0; i < BERTHI_CONVOLVED_PARTS; i++)
        r->shape->convolved.groups[i] = berthi_shape_member(
            r, members[i].key, 1, BERTHI_SHAPE_HEADS, members[i].fallback);
}

/* So many heads are left of those that are said; what is left out is convolutions. */
static void
read_spans(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const uint64_t ratio = berthi_shape_member(r, "head_ratio", 1, BERTHI_SHAPE_HEADS, 2);
    const uint64_t heads = berthi_max_u64(r->layer.heads / berthi_max_u64(ratio, 1), 1);

    shape->embedding =
        berthi_shape_member(r, "embedding_size", 1, BERTHI_SHAPE_WIDTH / 16, 768);
    shape->convolved.kernel = berthi_shape_member(r, "conv_kernel_size", 1, 4096, 9);
    shape->convolved.mlp_groups =
        berthi_shape_member(r, "num_groups", 1, BERTHI_SHAPE_HEADS, 1);
    r->layer.heads = r->layer.kv_heads = heads;
    r->layer.key_dim = r->layer.value_dim = berthi_max_u64(shape->hidden / heads / 2, 1);
}

void
berthi_shape_read_convolved(berthi_shape_reading *r)
{
    if (r->layer.heads == 0)
        return;
    if (r->shape->family->traits & BERTHI_TRAIT_GROUPED)
        read_grouped(r);
    else
        read_spans(r);
}

/* --------------------------------------------------------------------- weights */

/* A matrix of so many blocks, and its bias: no linear layer to who quantizes those. */
static void
add_blocks(berthi_shape_making *m, const char *module, uint64_t outputs, uint64_t inputs,
           uint64_t groups)
{
    if (inputs >= groups)
        berthi_shape_add_vector(m, module, outputs * (inputs / groups));
    berthi_shape_add_vector(m, module, outputs);
}

static void
add_grouped(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t *const groups = m->shape->convolved.groups;
    const uint64_t hidden = m->shape->hidden;

    add_blocks(m, "query", hidden, hidden, groups[0]);
    add_blocks(m, "key", hidden, hidden, groups[1]);
    add_blocks(m, "value", hidden, hidden, groups[2]);
    add_blocks(m, "conv1d", hidden, hidden, groups[3]);
    add_blocks(m, "conv1d", layer->intermediate, hidden, groups[4]);
    add_blocks(m, "conv1d", hidden, layer->intermediate, groups[5]);
}

static void
add_spans(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_convolved *const convolved = &m->shape->convolved;
    const uint64_t hidden = m->shape->hidden;
    const uint64_t width = layer->heads * layer->key_dim;

    m->has_bias = true;
    berthi_shape_add_linear(m, "query", width, hidden);
    berthi_shape_add_linear(m, "key", width, hidden);
    berthi_shape_add_linear(m, "value", width, hidden);
    berthi_shape_add_vector(m, "depthwise", hidden * convolved->kernel);
    berthi_shape_add_vector(m, "pointwise", width * (hidden + 1));
    berthi_shape_add_linear(m, "conv_kernel_layer", layer->heads * convolved->kernel, width);
    berthi_shape_add_linear(m, "conv_out_layer", width, hidden);
    berthi_shape_add_linear(m, "dense", hidden, hidden);
    if (convolved->mlp_groups == 1) {
        berthi_shape_add_mlp(m, layer->intermediate, hidden);
        return;
    }
    add_blocks(m, "dense", layer->intermediate, hidden, convolved->mlp_groups);
    add_blocks(m, "dense", hidden, layer->intermediate, convolved->mlp_groups);
}

void
berthi_shape_add_convolved(berthi_shape_making *m, const berthi_layer *layer)
{
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_GROUPED))
        add_grouped(m, layer);
    else
        add_spans(m, layer);
    berthi_shape_add_norms(m, m->shape->hidden, m->shape->layer_norms);
}
