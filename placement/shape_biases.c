/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_biases.c - which biases and norms a model has: what its class does, and what
 * a file says against it; see shape_read.h.
 */
#include "placement/shape_read.h"

/* ----------------------------------------------------------------------- biases */

static void
read_layer_biases(berthi_shape_reading *r, uint64_t flags)
{
    berthi_shape *const shape = r->shape;
    const bool has_all =
        flags & BERTHI_FAMILY_USE_BIAS
        && berthi_shape_flag(
            r, "use_bias", berthi_shape_flag(r, "bias", flags & BERTHI_FAMILY_MLP_BIAS));
    const bool has_usual = berthi_shape_flag(r, "enable_bias", true);
    const bool is_asked =
        (r->shape->family->traits & BERTHI_TRAIT_ASKED_QKV) == 0
        || berthi_shape_flag(r, "use_bias", (flags & BERTHI_FAMILY_ENCODER) == 0);
    const bool has_qkv = berthi_shape_flag(
        r, "use_qkv_bias",
        berthi_shape_flag(r, "qkv_bias",
                          flags & BERTHI_FAMILY_QKV_BIAS && has_usual && is_asked));

    shape->has_attention_bias = flags & BERTHI_FAMILY_USE_BIAS
                                    ? has_all
                                    : berthi_shape_flag(r, "attention_bias", has_qkv);
    shape->has_output_bias = berthi_shape_flag(
        r, "attention_out_bias",
        (shape->has_attention_bias && (flags & BERTHI_FAMILY_BIAS_QKV_ONLY) == 0)
            || flags & BERTHI_FAMILY_OUTPUT_BIAS);
    shape->has_mlp_bias =
        flags & BERTHI_FAMILY_USE_BIAS
            ? has_all
            : berthi_shape_flag(r, "mlp_bias", flags & BERTHI_FAMILY_MLP_BIAS && has_usual);
    if (flags & BERTHI_FAMILY_BARE_ATTENTION)
        shape->has_attention_bias = shape->has_output_bias = false;
    if (flags & BERTHI_FAMILY_BARE_MLP)
        shape->has_mlp_bias = false;
}

/* One number a word: what fills gaps keeps it twice where its head is not tied. */
static uint64_t
head_biases(berthi_shape_reading *r, uint64_t flags)
{
    const bool is_filling =
        r->shape->family->traits & BERTHI_TRAIT_TRANSFORM
        || (flags & BERTHI_FAMILY_BOTH_WAYS && (flags & BERTHI_FAMILY_PLAIN_HEAD) == 0);

    if (r->shape->family->traits & BERTHI_TRAIT_PATCHES)
        return 0;
    if (flags & BERTHI_FAMILY_PLAIN_HEAD)
        return r->shape->has_mlp_bias;
    if (flags & BERTHI_FAMILY_ENCODER && r->shape->encoder_layers == 0)
        return 0; /* a decoder by itself */
    if (!is_filling)
        return berthi_shape_flag(r, "lm_head_bias",
                                 flags & BERTHI_FAMILY_HEAD_BIAS
                                     && ((flags & BERTHI_FAMILY_USE_BIAS) == 0
                                         || r->shape->has_mlp_bias));
    if (!berthi_shape_flag(r, "decoder_bias", true))
        return 0;
    return flags & BERTHI_FAMILY_TWO_BIASES && !r->shape->ties_embeddings ? 2 : 1;
}

/* ------------------------------------------------------------------------ norms */

/* On the hidden state, in a layer: fewer where its halves stand side by side. */
static uint64_t
layer_norms(berthi_shape_reading *r, const berthi_family *family)
{
    /* Falcon's later models have one for each half, unless they say one for both. */
    const bool is_later = berthi_shape_flag(r, "new_decoder_architecture", false);
    uint64_t norms =
        berthi_shape_member(r, "num_ln_in_parallel_attn", 1, 2, is_later ? 2 : family->norms);

    if (!berthi_shape_flag(r, "parallel_attn", true))
        norms = 2;
    if (family->traits & BERTHI_TRAIT_SANDWICH
        && !berthi_shape_flag(r, "use_sandwich_norm", true))
        norms -= berthi_min_u64(norms, 2);
    if (berthi_shape_flag(r, "use_post_norm", false)) /* HyperCLOVA X */
        norms += 2;
    if (family->flags & BERTHI_FAMILY_BESIDE_HALVES && norms > 0)
        norms -= berthi_shape_flag(r, "use_parallel_residual", false);
    return berthi_shape_flag(r, "layer_norm_elementwise_affine", true) ? norms : 0;
}

static void
read_norms(berthi_shape_reading *r, const berthi_family *family)
{
    const uint64_t flags = family->flags;
    berthi_shape *const shape = r->shape;

    shape->has_norm_bias = berthi_shape_flag(
        r, "norm_bias",
        flags & BERTHI_FAMILY_NORM_BIAS
            || (family->state == BERTHI_STATE_MEMORY && shape->has_mlp_bias));
    shape->layer_norms = layer_norms(r, family);
    shape->has_final_norm =
        (flags & (BERTHI_FAMILY_BARE_NORMS | BERTHI_FAMILY_NO_LAST_NORM)) == 0
        && berthi_shape_flag(r, "layer_norm_elementwise_affine", true)
        && berthi_shape_flag(r, "do_layer_norm_before", true)
        && !berthi_shape_flag(r, "_remove_final_layer_norm", false);
    shape->has_word_norm =
        berthi_shape_flag(r, "emb_layer_norm_before", flags & BERTHI_FAMILY_WORD_NORM);
    if (flags & (BERTHI_FAMILY_HEAD_NORMS | BERTHI_FAMILY_WIDE_NORMS))
        shape->has_head_norms = berthi_shape_flag(
            r, "qk_layernorm",
            berthi_shape_flag(r, "use_qk_norm", (flags & BERTHI_FAMILY_ASKED_NORMS) == 0));
}

void
berthi_shape_read_biases(berthi_shape_reading *r)
{
    read_layer_biases(r, r->shape->family->flags);
    r->shape->head_biases = head_biases(r, r->shape->family->flags);
    r->shape->has_transform_bias = berthi_shape_flag(
        r, "classifier_bias", (r->shape->family->flags & BERTHI_FAMILY_BARE_TRANSFORM) == 0);
    read_norms(r, r->shape->family);
}
