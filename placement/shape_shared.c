/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_shared.c - Zamba: each layer has a state, and some read a whole layer of
 * attention and MLP before it, of which there are only one or two that all of them
 * share; see shape_read.h, shape_making.h.
 */
#include <string.h>

#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

/*
 * Attention reads the words, too, so it is twice as wide, unless a file says else. Layers share
 * as words and head do: where those are not tied, each layer has its own.
 */
void
berthi_shape_read_shared(berthi_shape_reading *r)
{
    berthi_shape *const shape = r->shape;
    const bool is_second = shape->family->flags & BERTHI_FAMILY_FUSED_UP;

    if (r->layer.heads == 0)
        return;
    shape->shared_blocks = berthi_shape_member(r, "num_mem_blocks", 1, BERTHI_SHAPE_LAYERS, 1);
    shape->shared_width = berthi_shape_member(r, "attention_hidden_size", 1,
                                              BERTHI_SHAPE_WIDTH, 2 * shape->hidden);
    r->layer.key_dim = r->layer.value_dim =
        berthi_shape_member(r, "attention_head_dim", 1, BERTHI_SHAPE_HEADS,
                            berthi_max_u64(2 * shape->hidden / r->layer.heads, 1));
    if (!is_second)
        return;
    shape->has_mlp_bias = berthi_shape_flag(r, "add_bias_linear", false);
    shape->adapter_rank = berthi_shape_member(r, "adapter_rank", 1, BERTHI_SHAPE_HEADS, 128);
    (void)berthi_shape_open_numbers(r, "hybrid_layer_ids");
    shape->adapter_slots = berthi_json_count(berthi_json_find(r->model, "hybrid_layer_ids"));
    shape->adapts_attention = berthi_shape_flag(r, "use_shared_attention_adapter", false);
}

/* "mamba" in earlier files. */
void
berthi_shape_make_shared(berthi_shape_reading *r, const char *word, berthi_layer *layer)
{
    if (strcmp(word, "linear_attention") == 0 || strcmp(word, "mamba") == 0) {
        berthi_shape_make_state(r->shape, layer);
        layer->intermediate = 0;
        return;
    }
    if (strcmp(word, "hybrid") != 0)
        r->shape->has_unknown_layers = true;
    berthi_shape_add_kept(r->shape, layer);
}

/* --------------------------------------------------------------------- weights */

/* What tells apart layers that share one: added to what each of its matrices makes. */
static void
add_adapter(berthi_shape_making *m, const char *module, uint64_t outputs, uint64_t inputs)
{
    berthi_shape_add_matrix(m, module, m->role, m->shape->adapter_rank, inputs);
    berthi_shape_add_matrix(m, module, m->role, outputs, m->shape->adapter_rank);
}

static void
add_block(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t hidden = m->shape->hidden;
    const uint64_t wide = m->shape->shared_width;
    const uint64_t queries = layer->heads * layer->key_dim;
    const uint64_t keys = layer->kv_heads * layer->key_dim;

    m->has_bias = false;
    berthi_shape_add_linear(m, "q_proj", queries, wide);
    berthi_shape_add_linear(m, "k_proj", keys, wide);
    berthi_shape_add_linear(m, "v_proj", keys, wide);
    berthi_shape_add_linear(m, "o_proj", hidden, queries);
    m->has_bias = m->shape->has_mlp_bias;
    berthi_shape_add_mlp(m, layer->intermediate, hidden);
    berthi_shape_add_vector(m, "input_layernorm", wide);
    berthi_shape_add_norms(m, hidden, 1);
}

/*
 * A block has one for each layer that it stands before, in turn; so has each copy of it, where
 * layers do not share. A list in the file says how many there are, whatever layers there are.
 */
static uint64_t
count_adapters(const berthi_shape *shape, uint64_t layers, uint64_t first, uint64_t end)
{
    const uint64_t blocks = shape->shared_blocks;
    const uint64_t all = shape->adapter_slots > 0 ? shape->adapter_slots : layers;
    uint64_t sum = 0;

    for (uint64_t i = first; i < end; i++) {
        const uint64_t copies = layers / blocks + (i < layers % blocks ? 1 : 0);

        sum += (all / blocks + (i < all % blocks ? 1 : 0))
               * (shape->ties_embeddings ? 1 : copies);
    }
    return sum;
}

/* Blocks from `first` on, with what tells the layers apart that share them. */
static void
add_blocks(berthi_shape_making *m, const berthi_layer *layer, uint64_t first, uint64_t end)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t wide = shape->shared_width;
    const uint64_t layers = m->count;

    m->count =
        shape->adapter_rank > 0 ? count_adapters(shape, layers, first, end) : 0;
    if (m->count > 0)
        add_adapter(m, "gate_up_proj_adapter", 2 * layer->intermediate, shape->hidden);
    if (m->count > 0 && shape->adapts_attention) {
        add_adapter(m, "linear_q_adapter", wide, wide);
        add_adapter(m, "linear_k_adapter", wide, wide);
        add_adapter(m, "linear_v_adapter", wide, wide);
    }
    m->count = shape->ties_embeddings ? end - first : layers;
    if (end > first)
        add_block(m, layer);
    m->count = layers;
}

/* What several layers hold is tied, which quantizers leave as it is. */
static void
leave_tied(berthi_weight_list *list, uint32_t first)
{
    for (uint32_t i = first; i < list->count; i++) {
        berthi_weight *const weight = &list->items[i];

        weight->is_derived = weight->role == BERTHI_WEIGHT_LINEAR;
        weight->role = BERTHI_WEIGHT_OTHER;
    }
}

void
berthi_shape_add_shared(berthi_shape_making *m, const berthi_layer *layer)
{
    const berthi_shape *const shape = m->shape;
    const uint64_t layers = m->count;
    const uint64_t blocks = berthi_min_u64(shape->shared_blocks, layers);
    /* They take turns: the first ones stand before a second layer, too. */
    const uint64_t tied =
        shape->ties_embeddings ? berthi_min_u64(blocks, layers - blocks) : 0;
    uint32_t first;

    berthi_shape_add_state(m);
    berthi_shape_add_norms(m, shape->hidden, 1);
    if (layer->attention == BERTHI_ATTENTION_STATE)
        return;
    berthi_shape_add_matrix(m, "linear", m->role, shape->hidden, shape->hidden);
    first = m->out->count;
    add_blocks(m, layer, 0, tied);
    leave_tied(m->out, first);
    add_blocks(m, layer, tied, blocks);
}
