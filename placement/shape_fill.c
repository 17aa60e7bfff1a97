/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_fill.c - models that fill gaps, as BERT and those after it: what their files
 * say of words and distances, and the weights beside the layers' usual ones; see
 * shape_read.h, shape_making.h.
 */
#include <string.h>

#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* RemBERT has its words narrower on the way in than on the way out. */
static const char *const narrow_keys[] = { "embedding_size", "input_embedding_size", NULL };

/* -------------------------------------------------------------------- reading */

/* "p2c|c2p", or a list of such words. */
static bool
has_word(const berthi_json_value *value, const char *word)
{
    const berthi_json_value *item = berthi_json_first(value);
    const char *text = "";

    if (berthi_json_can_read_string(value, &text))
        return strstr(text, word) != NULL;
    for (; item != NULL; item = berthi_json_next(item))
        if (berthi_json_can_read_string(item, &text) && strcmp(text, word) == 0)
            return true;
    return false;
}

/* DeBERTa's: a table of them for all layers, and what each layer makes of it. */
static void
read_distances(berthi_shape_reading *r)
{
    const bool is_second = (r->shape->family->flags & BERTHI_FAMILY_FUSED_QKV) == 0;
    const berthi_json_value *const ways = berthi_json_find(r->model, "pos_att_type");
    berthi_distances *const distances = &r->shape->distances;
    const uint64_t most = BERTHI_SHAPE_TOKENS;

    distances->kernel =
        is_second ? berthi_shape_member(r, "conv_kernel_size", 0, 4096, 0) : 0;
    distances->has_norm =
        is_second && has_word(berthi_json_find(r->model, "norm_rel_ebd"), "layer_norm");
    if (!berthi_shape_flag(r, "relative_attention", false))
        return;
    if (is_second)
        distances->rows = 2 * berthi_shape_member_if_any(r, "position_buckets", most, 0);
    if (distances->rows == 0)
        distances->rows =
            2 * berthi_shape_member_if_any(r, "max_relative_positions", most, 0);
    if (distances->rows == 0)
        distances->rows = 2 * r->shape->positions;
    if (is_second && berthi_shape_flag(r, "share_att_key", false))
        return;
    distances->has_keys = has_word(ways, "c2p");
    distances->has_queries = has_word(ways, "p2c");
}

/* NeoMME's: of three colours; its words are narrow, and a head's are no wider. */
static void
read_patches(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const uint64_t side = berthi_shape_member(r, "patch_size", 1, 4096, 32);

    shape->patch_numbers = 3 * side * side;
    shape->embedding = berthi_shape_member(r, "embedding_rank", 1, BERTHI_SHAPE_WIDTH / 16, 256);
}

/* What few of them have beside the layers, or in them. */
static void
read_rare(berthi_shape_reading *r)
{
    const uint64_t traits = r->shape->family->traits;

    if (traits & BERTHI_TRAIT_BOXES)
        r->shape->box_rows = berthi_shape_member(r, "max_2d_position_embeddings", 1,
                                                 BERTHI_SHAPE_TOKENS, 1024);
    if (traits & BERTHI_TRAIT_PATCHES)
        read_patches(r);
    if (traits & BERTHI_TRAIT_KERNELS)
        r->shape->head_kernel = berthi_shape_member(r, "conv_kernel_size", 0, 4096, 65);
}

/* Of one there is no table. The head may be cut by how rare words are: not counted so. */
static uint64_t
count_languages(berthi_shape_reading *r)
{
    const uint64_t languages = berthi_shape_member(r, "n_langs", 1, BERTHI_SHAPE_HEADS, 1);

    if (berthi_shape_flag(r, "asm", false))
        r->shape->has_unknown_layers = true;
    return languages > 1 && berthi_shape_flag(r, "use_lang_emb", true) ? languages : 0;
}

void
berthi_shape_read_filling(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const uint64_t flags = shape->family->flags;

    shape->token_types = berthi_shape_member(r, "type_vocab_size", 0, BERTHI_SHAPE_HEADS,
                                             flags & BERTHI_FAMILY_NO_TYPES ? 0 : 2);
    if (berthi_shape_flag(r, "use_task_id", false)) /* ERNIE 3: a table of tasks, too */
        shape->token_types +=
            berthi_shape_member(r, "task_type_vocab_size", 0, BERTHI_SHAPE_HEADS, 3);
    if (shape->family->traits & BERTHI_TRAIT_LANGUAGES)
        shape->token_types = count_languages(r);
    if (flags & BERTHI_FAMILY_NARROW)
        shape->embedding =
            berthi_shape_number(r, narrow_keys, 1, BERTHI_SHAPE_WIDTH / 16,
                                shape->family->narrow > 0 ? shape->family->narrow : 128);
    read_rare(r);
    if (flags & BERTHI_FAMILY_SHARED_LAYERS)
        shape->layer_sets = berthi_shape_member(r, "num_hidden_groups", 1, 4096, 1)
                            * berthi_shape_member(r, "inner_group_num", 1, 4096, 1);
    if (flags & BERTHI_FAMILY_DISTANCES)
        read_distances(r);
}

/* --------------------------------------------------------------------- weights */

/*
 * Longformer, and LED's encoder, has all three twice, for tokens that see all; DeBERTa asks where
 * they stand.
 */
void
berthi_shape_add_asking(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_distances *const distances = &m->shape->distances;
    const uint64_t width = layer->heads * layer->key_dim;
    const uint64_t hidden = m->shape->hidden;

    m->has_bias = m->shape->has_attention_bias;
    if (berthi_shape_has(m, BERTHI_FAMILY_GLOBAL_QKV)
        && layer->attention == BERTHI_ATTENTION_NONE) {
        berthi_shape_add_linear(m, "query_global", width, hidden);
        berthi_shape_add_linear(m, "key_global", width, hidden);
        berthi_shape_add_linear(m, "value_global", width, hidden);
    }
    if (distances->has_queries)
        berthi_shape_add_linear(m, "pos_query_proj", width, hidden);
    m->has_bias = m->has_bias && !berthi_shape_has(m, BERTHI_FAMILY_PLAIN_KEYS);
    if (distances->has_keys)
        berthi_shape_add_linear(m, "pos_key_proj", width, hidden);
    if (m->shape->head_kernel > 0)
        berthi_shape_add_vector(m, "conv", layer->heads * m->shape->head_kernel);
}

/*
 * NeoMME's: pictures, how words are widened and, in a head that is not tied, narrowed (else with
 * the same matrix, which stays plain then); and what the first and the last layer that see all add
 * to values.
 */
static void
add_patches(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const berthi_layer *const layer = &shape->kinds[0];
    const uint64_t hidden = shape->hidden;

    berthi_shape_add_vector(m, "norm", 2 * shape->patch_numbers);
    berthi_shape_add_matrix(m, "up_proj", BERTHI_WEIGHT_LINEAR, 2 * hidden,
                            shape->patch_numbers);
    berthi_shape_add_matrix(m, "down_proj", BERTHI_WEIGHT_LINEAR, hidden, 2 * hidden);
    berthi_shape_add_vector(m, "down_proj", hidden);
    berthi_shape_add_matrix(m, "value_embeddings", BERTHI_WEIGHT_EMBEDDING,
                            shape->vocabulary, layer->kv_heads * layer->key_dim);
    m->count = shape->has_head && !shape->ties_embeddings ? 2 : 1;
    if (shape->has_head && shape->ties_embeddings)
        (void)berthi_shape_add_derived(m, "embedding_projection", hidden, shape->embedding);
    else
        berthi_shape_add_matrix(m, "embedding_projection", BERTHI_WEIGHT_LINEAR, hidden,
                                shape->embedding);
    m->count = 1;
}

/* What stands before the layers or beside them all. */
void
berthi_shape_add_beside(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t hidden = shape->hidden;

    if (berthi_shape_has(m, BERTHI_FAMILY_NARROW)
        && (shape->embedding != hidden || shape->layer_sets > 0
            || shape->family->narrow > 0)) {
        berthi_shape_add_matrix(m, "embeddings_project", BERTHI_WEIGHT_LINEAR, hidden,
                                shape->embedding);
        berthi_shape_add_vector(m, "embeddings_project", hidden);
    }
    if (shape->patch_numbers > 0)
        add_patches(m);
    if (berthi_shape_has_trait(m, BERTHI_TRAIT_SAVED_PLACES)) {
        berthi_shape_add_vector(m, "position_ids", shape->positions);
        m->out->items[m->out->count - 1].dtype = BERTH_I64;
    }
    m->count = 4;
    if (shape->box_rows > 0)
        berthi_shape_add_matrix(m, "box_embeddings", BERTHI_WEIGHT_EMBEDDING, shape->box_rows,
                                hidden);
    m->count = 1;
    if (shape->distances.rows > 0)
        berthi_shape_add_matrix(m, "rel_embeddings", BERTHI_WEIGHT_EMBEDDING,
                                shape->distances.rows, hidden);
    if (shape->distances.has_norm)
        berthi_shape_add_norms(m, hidden, 1);
    if (shape->distances.kernel > 0) {
        berthi_shape_add_vector(m, "conv",
                                hidden * hidden * shape->distances.kernel + hidden);
        berthi_shape_add_norms(m, hidden, 1);
    }
    /* A number for each head of each layer, and one more. */
    m->role = BERTHI_WEIGHT_LINEAR;
    m->has_bias = true;
    if (berthi_shape_has(m, BERTHI_FAMILY_CONTACTS))
        berthi_shape_add_linear(m, "regression", 1, shape->layers * shape->kinds[0].heads);
}

/* A layer of its own before the words. */
void
berthi_shape_add_filling_head(berthi_shape_making *m)
{
    const berthi_shape *const shape = m->shape;

    berthi_shape_add_matrix(m, "transform", BERTHI_WEIGHT_LINEAR, shape->head_width,
                            shape->hidden);
    if (shape->has_transform_bias)
        berthi_shape_add_vector(m, "transform", shape->head_width);
    berthi_shape_add_norms(m, shape->head_width, 1);
}
