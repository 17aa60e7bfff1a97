/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_pair.c - models that read with an encoder and write with a decoder: what their
 * files say of the two, and the weights beside the layers; see shape_read.h,
 * shape_making.h.
 */
#include "kernels/text.h"
#include "placement/shape_making.h"
#include "placement/shape_read.h"

static const char *const encoder_keys[] = { "encoder_layers", "num_layers", "num_encoder_layers",
                                            NULL };

/* -------------------------------------------------------------------- reading */

/*
 * One table of words serves both readers and, where they are not tied to it, each has its own,
 * too. Where they share none, the decoder, and what it predicts, may have words of its own.
 */
static void
read_words(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const uint64_t flags = shape->family->flags;
    const uint64_t words = shape->vocabulary;
    const uint64_t written =
        berthi_shape_member(r, "decoder_vocab_size", 1, UINT32_MAX, words);

    if (shape->family->traits & BERTHI_TRAIT_TWO_LANGUAGES) {
        if (!shape->ties_embeddings)
            shape->other_words =
                berthi_shape_member(r, "src_vocab_size", 1, UINT32_MAX, words);
    } else if (!berthi_shape_flag(r, "share_encoder_decoder_embeddings", true)) {
        shape->other_words = words;
        shape->vocabulary = written;
    } else if (!shape->ties_embeddings
               && ((flags & (BERTHI_FAMILY_RELATIVE | BERTHI_FAMILY_AUDIO)) == 0
                   || shape->family->traits & BERTHI_TRAIT_SPARSE_PAIR)) {
        shape->word_tables = 2;
        shape->other_words = written;
    }
}

/* MVP's: for each layer of the decoder, before its own tokens and before the encoder's output. */
static void
read_prompts(berthi_shape_reading *r)
{
    if (!berthi_shape_flag(r, "use_prompt", false))
        return;
    r->shape->prompt_rows = berthi_shape_member(r, "prompt_length", 1, BERTHI_SHAPE_WIDTH, 100);
    r->shape->prompt_width =
        berthi_shape_member(r, "prompt_mid_dim", 1, BERTHI_SHAPE_WIDTH, 800);
}

/* T5's, which pictures are made from, too. */
static bool
is_encoder_alone(const berthi_shape_reading *r)
{
    return berthi_shape_is_encoder_class(r)
           || (r->shape->family->flags & BERTHI_FAMILY_RELATIVE
               && r->shape->ending == BERTHI_ENDING_TOKEN_LABELS);
}

/*
 * An encoder whose numbers are all its own, but for what its class does. Biases are the decoder's
 * here: a file of two kinds is counted as one that is not known.
 */
void
berthi_shape_read_nested(berthi_shape_reading *r)
{
    static const char *const layers[] = { "num_hidden_layers", NULL };
    static const char *const hidden[] = { "hidden_size", NULL };
    static const char *const heads[] = { "num_attention_heads", NULL };
    static const char *const width[] = { "intermediate_size", NULL };
    static const char *const words[] = { "vocab_size", NULL };
    const berthi_json_value *const model = r->model;
    berthi_shape *const shape = r->shape;

    shape->is_inner = false; /* what is around it is counted */
    r->model = berthi_json_find(r->root, "encoder");
    r->encoder = r->layer;
    shape->encoder_layers = r->encoder.count =
        berthi_shape_need(r, layers, BERTHI_SHAPE_LAYERS, 0);
    shape->encoder_hidden = berthi_shape_need(r, hidden, BERTHI_SHAPE_WIDTH / 16, 0);
    shape->other_words = berthi_shape_need(r, words, UINT32_MAX, shape->vocabulary);
    r->encoder.heads = berthi_shape_need(r, heads, BERTHI_SHAPE_HEADS, 0);
    r->encoder.kv_heads = berthi_shape_member(r, "num_key_value_heads", 1,
                                              berthi_max_u64(r->encoder.heads, 1),
                                              r->encoder.heads);
    r->encoder.key_dim = r->encoder.value_dim =
        berthi_shape_member(r, "head_dim", 1, BERTHI_SHAPE_HEADS, 256);
    r->encoder.intermediate = berthi_shape_need(r, width, BERTHI_SHAPE_WIDTH, 0);
    if (berthi_shape_flag(r, "attention_bias", false) != shape->has_attention_bias)
        shape->has_unknown_layers = true;
    r->model = model;
}

void
berthi_shape_read_pair(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;

    if (is_encoder_alone(r)) {
        shape->is_encoder_alone = true;
        shape->layers = berthi_shape_need(r, encoder_keys, BERTHI_SHAPE_LAYERS, 0);
        return;
    }
    /* The decoder by itself, which reads another encoder's output. */
    if (berthi_text_ends(berthi_text_of(r->class_name), "ForCausalLM")) {
        if (shape->family->traits & BERTHI_TRAIT_ALONE_APART)
            shape->ties_embeddings = false;
        if (shape->family->traits & BERTHI_TRAIT_AHEAD && !shape->ties_embeddings)
            shape->word_tables = 2; /* one that is read, and one around it */
        return;
    }
    shape->encoder_layers = berthi_shape_need(r, encoder_keys, BERTHI_SHAPE_LAYERS, 0);
    read_words(r);
    read_prompts(r);
    shape->encoder_rows = berthi_shape_member(r, "max_encoder_position_embeddings", 0,
                                              BERTHI_SHAPE_TOKENS, 0);
    if ((shape->family->flags & BERTHI_FAMILY_AUDIO) == 0)
        return;
    shape->encoder_positions =
        berthi_shape_member(r, "max_source_positions", 1, BERTHI_SHAPE_TOKENS, 1500);
    shape->sound_bands = berthi_shape_member(r, "num_mel_bins", 1, BERTHI_SHAPE_HEADS, 80);
}

/* --------------------------------------------------------------------- weights */

void
berthi_shape_add_words(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;

    m->count = shape->word_tables;
    berthi_shape_add_matrix(m, "embed_tokens", BERTHI_WEIGHT_EMBEDDING,
                            shape->vocabulary + shape->unsaid_words, shape->embedding);
    m->count = 1;
    if (shape->other_words > 0)
        berthi_shape_add_matrix(m, "embed_tokens", BERTHI_WEIGHT_EMBEDDING, shape->other_words,
                                shape->encoder_hidden > 0 ? shape->encoder_hidden
                                                          : shape->embedding);
}

/* Two convolutions over time, of three steps each, and the positions behind them. */
static void
add_ear(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;

    berthi_shape_add_vector(m, "conv1", hidden * shape->sound_bands * 3 + hidden);
    berthi_shape_add_vector(m, "conv2", hidden * hidden * 3 + hidden);
    berthi_shape_add_matrix(m, "embed_positions", BERTHI_WEIGHT_EMBEDDING,
                            shape->encoder_positions, hidden);
}

/*
 * As many numbers a row as keys and values of all layers. The class makes none for the encoder,
 * whatever earlier checkpoints have.
 */
static void
add_prompts(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;

    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    m->count = 2;
    berthi_shape_add_matrix(m, "prompt_embedding", BERTHI_WEIGHT_EMBEDDING,
                            shape->prompt_rows, hidden);
    berthi_shape_add_linear(m, "prompt_trans", shape->prompt_width, hidden);
    berthi_shape_add_linear(m, "prompt_trans", 2 * shape->layers * hidden,
                            shape->prompt_width);
    m->count = 1;
}

void
berthi_shape_add_pair(berthi_shape_making *m)
{
    if (m->shape->sound_bands > 0)
        add_ear(m);
    if (m->shape->encoder_rows > 0)
        berthi_shape_add_matrix(m, "embed_positions", BERTHI_WEIGHT_EMBEDDING,
                                m->shape->encoder_rows, m->shape->hidden);
    if (m->shape->prompt_rows > 0)
        add_prompts(m);
}
