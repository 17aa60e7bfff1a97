/* SPDX-License-Identifier: Apache-2.0 */
/* train_activations.c - what the backward pass needs of a layer; see train.h. */
#include "placement/estimate_lines.h"
#include "placement/train.h"
#include "placement/train_lines.h"

#define NORM 8u       /* an f32 and two 16-bit copies of h */
#define FUSED_NORM 5u /* 3h less each, as measured: 6h to 8h a layer */
#define NORM_ROW 4u   /* one f32 a token */

/* GPT-2's layer with dropout; published for i = 4h as 34h + 5 nq s. */
static uint64_t
classic_layer(uint64_t hidden, const berthi_layer *layer, bool is_eager, uint64_t length)
{
    const uint64_t bytes =
        berthi_add_capped(18 * hidden, berthi_times(4, layer->intermediate));
    const uint64_t scores = is_eager ? berthi_times(5, length) : 4;

    return berthi_add_capped(bytes, berthi_times(layer->heads, scores));
}

static uint64_t
attention(const berthi_shape *shape, const berthi_layer *layer, bool is_eager,
          uint64_t length)
{
    const uint64_t width = berthi_layer_attention_width(shape, layer);
    const uint64_t queries = layer->heads * (layer->key_dim + layer->value_dim);
    /* The latents and their norms. */
    const uint64_t latents = layer->attention == BERTHI_ATTENTION_LATENT
                                 ? 10 * (shape->query_rank + shape->latent_rank)
                                 : 0;

    /* Without a fused kernel keys and values are repeated for every query head. */
    if (is_eager && layer->heads > 0)
        return berthi_add_capped(4 * queries + latents,
                                 berthi_times(6 * layer->heads, length));
    return 2 * width + 4 * layer->heads + latents;
}

static uint64_t
mlp(const berthi_shape *shape, const berthi_layer *layer)
{
    const uint64_t copies = 4 * shape->hidden * layer->experts_used; /* in and out */
    const uint64_t each = shape->mlp_matrices == 3 ? 8 : 4;

    return berthi_add_capped(copies, berthi_times(each, berthi_layer_mlp_width(layer)));
}

uint64_t
berthi_train_layer(const berthi_shape *shape, const berthi_layer *layer,
                   const berthi_train_options *options)
{
    const uint64_t norm = shape->hidden * (options->has_fused_norms ? FUSED_NORM : NORM);
    const bool is_eager = options->base.is_eager;
    const uint64_t length = options->base.context;
    uint64_t bytes;

    if (berthi_shape_is_classic(shape))
        bytes = classic_layer(shape->hidden, layer, is_eager, length);
    else
        bytes = berthi_add_capped(shape->layer_norms * (norm + NORM_ROW),
                                  berthi_add_capped(attention(shape, layer, is_eager, length),
                                                    mlp(shape, layer)));
    /* 16-bit copies are twice as wide; f32 ones are not: an upper bound. */
    return options->base.dtype == BERTH_F32 ? berthi_times(bytes, 2) : bytes;
}

int32_t
berthi_train_layer_basis(const berthi_shape *shape, const berthi_train_options *options)
{
    if (berthi_shape_is_classic(shape))
        return BERTHI_BASIS_FORMULA;
    if (shape->layer_norms != 2 || shape->mlp_matrices != 3 || options->has_fused_norms
        || options->method == BERTHI_METHOD_LORA || options->base.dtype == BERTH_F32)
        return BERTHI_BASIS_ESTIMATE;
    for (uint32_t i = 0; i < shape->kind_count; i++)
        if (shape->kinds[i].attention != BERTHI_ATTENTION_HEADS
            || shape->kinds[i].experts > 0)
            return BERTHI_BASIS_ESTIMATE;
    return BERTHI_BASIS_MEASURED;
}
