/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_lookup.c - tables that tokens are looked up in beside that of words: entities
 * (LUKE), how a character sounds and looks (RoCBERT), places in a table (TAPAS); and
 * what is made of them; see shape_read.h, shape_making.h.
 */
#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

static void
read_entities(berthi_shape_reading *r)
{
    berthi_lookup *const lookup = &r->shape->lookup;

    lookup->rows[0] = berthi_shape_member(r, "entity_vocab_size", 1, UINT32_MAX, 500000);
    lookup->width[0] =
        berthi_shape_member(r, "entity_emb_size", 1, BERTHI_SHAPE_WIDTH / 16, 256);
    lookup->has_queries = berthi_shape_flag(r, "use_entity_aware_attention", true);
}

/* All are joined, or added to each other, where they are used at all. */
static void
read_signs(berthi_shape_reading *r)
{
    const uint64_t most = BERTHI_SHAPE_WIDTH / 16;
    berthi_lookup *const lookup = &r->shape->lookup;

    lookup->rows[0] = berthi_shape_member(r, "pronunciation_vocab_size", 1, UINT32_MAX, 910);
    lookup->rows[1] = berthi_shape_member(r, "shape_vocab_size", 1, UINT32_MAX, 24858);
    lookup->width[0] = berthi_shape_member(r, "pronunciation_embed_dim", 1, most, 768);
    lookup->width[1] = berthi_shape_member(r, "shape_embed_dim", 1, most, 512);
    if (!berthi_shape_flag(r, "concat_input", true))
        return;
    lookup->joined = r->shape->hidden;
    if (berthi_shape_flag(r, "enable_pronunciation", true))
        lookup->joined += lookup->width[0];
    if (berthi_shape_flag(r, "enable_shape", true))
        lookup->joined += lookup->width[1];
}

void
berthi_shape_read_lookup(berthi_shape_reading *r)
{
    const uint64_t traits = r->shape->family->traits;

    if (traits & BERTHI_TRAIT_ENTITIES)
        read_entities(r);
    if (traits & BERTHI_TRAIT_SIGNS)
        read_signs(r);
    if (traits & BERTHI_TRAIT_PLACES) /* a table for each kind of them, as good as one */
        r->shape->token_types = berthi_shape_sum_list(r, "type_vocab_sizes", UINT32_MAX,
                                                      3 + 4 * 256 + 2 + 10);
}

/* --------------------------------------------------------------------- weights */

/* As narrow tables of words are; which entity a gap stands for is predicted as a word is. */
static void
add_entities(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t rows = shape->lookup.rows[0];
    const uint64_t width = shape->lookup.width[0];
    const uint64_t hidden = shape->hidden;

    if (width != hidden)
        berthi_shape_add_matrix(m, "entity_embedding_dense", BERTHI_WEIGHT_LINEAR, hidden,
                                width);
    if (shape->learned_positions + shape->token_types > 0)
        berthi_shape_add_matrix(m, "position_embeddings", BERTHI_WEIGHT_EMBEDDING,
                                shape->learned_positions + shape->token_types, hidden);
    berthi_shape_add_norms(m, hidden, 1);
    if (!shape->has_head)
        return;
    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    berthi_shape_add_linear(m, "dense", width, hidden);
    berthi_shape_add_norms(m, width, 1);
    berthi_shape_add_linear(m, "pooler", hidden, hidden);
    berthi_shape_add_vector(m, "bias", rows);
    /* Its class ties that of entities, and never that of words. */
    if (shape->ties_embeddings)
        berthi_shape_add_matrix(m, "decoder", BERTHI_WEIGHT_HEAD, shape->vocabulary, hidden);
    else
        berthi_shape_add_matrix(m, "decoder", BERTHI_WEIGHT_HEAD, rows, width);
}

void
berthi_shape_add_lookup(berthi_shape_making *m)
{
    const berthi_lookup *const lookup = &m->shape->lookup;

    for (uint32_t i = 0; i < 2; i++)
        if (lookup->rows[i] > 0)
            berthi_shape_add_matrix(m, "embeddings", BERTHI_WEIGHT_EMBEDDING,
                                    lookup->rows[i], lookup->width[i]);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_ENTITIES))
        add_entities(m);
    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    if (lookup->joined > 0)
        berthi_shape_add_linear(m, "map_inputs_layer", m->shape->hidden, lookup->joined);
}

/* Words ask for entities, entities for words and for each other, in ways of their own. */
void
berthi_shape_add_entity_queries(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t width = layer->heads * layer->key_dim;
    const uint64_t hidden = m->shape->hidden;

    if (!m->shape->lookup.has_queries)
        return;
    m->has_bias = m->shape->has_attention_bias;
    berthi_shape_add_linear(m, "w2e_query", width, hidden);
    berthi_shape_add_linear(m, "e2w_query", width, hidden);
    berthi_shape_add_linear(m, "e2e_query", width, hidden);
}
