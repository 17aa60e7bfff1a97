/* SPDX-License-Identifier: Apache-2.0 */
/* llama_layer.c - see llama_layer.h. */
#include <stdlib.h>
#include <string.h>

#include "tools/llama_divide.h"
#include "tools/llama_error.h"
#include "tools/llama_layer.h"
#include "tools/llama_math.h"

#define PIECE 1024u /* elements of a thread's turn */
#define ALIGNMENT 64u

/* ------------------------------------------------------------------------- memory */

static void
divide_scratch(llama_scratch *s, llama_divider *d)
{
    const llama_config *const c = s->config;
    const uint64_t queries = (uint64_t)s->batch * c->heads * c->head_dim;
    const uint64_t keys = (uint64_t)s->batch * c->kv_heads * c->head_dim;
    const uint64_t slots = (uint64_t)s->batch * c->experts_used;
    const uint64_t dense = (uint64_t)s->batch * c->inner;
    const uint64_t sparse = slots * c->expert_inner;
    const uint64_t inner = dense > sparse ? dense : sparse;

    s->hidden = llama_divide(d, (uint64_t)s->batch * c->hidden, sizeof(float));
    s->normed = llama_divide(d, (uint64_t)s->batch * c->hidden, sizeof(float));
    s->queries = llama_divide(d, queries, sizeof(float));
    s->keys = llama_divide(d, keys, sizeof(float));
    s->values = llama_divide(d, keys, sizeof(float));
    s->attended = llama_divide(d, queries, sizeof(float));
    s->gate = llama_divide(d, inner, sizeof(float));
    s->up = llama_divide(d, inner, sizeof(float));
    s->norm = llama_divide(d, c->hidden, sizeof(float));
    s->head_norms = llama_divide(d, 2 * (uint64_t)c->head_dim, sizeof(float));
    s->router = llama_divide(d, (uint64_t)s->batch * c->experts, sizeof(float));
    s->gathered = llama_divide(d, slots * c->hidden, sizeof(float));
    s->weights = llama_divide(d, slots, sizeof(float));
    s->numbers = llama_divide(d, slots, sizeof(uint32_t));
    s->slots = llama_divide(d, slots, sizeof(uint32_t));
    s->counts = llama_divide(d, c->experts, sizeof(uint32_t));
    s->products = llama_divide(d, 2 * (uint64_t)c->experts, sizeof(llama_product));
}

berth_status
llama_scratch_init(llama_scratch *scratch, berth_error *error)
{
    llama_divider d = { .alignment = ALIGNMENT };

    divide_scratch(scratch, &d);
    scratch->memory = aligned_alloc(ALIGNMENT, d.used);
    if (scratch->memory == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for %u tokens at once",
                          (unsigned)scratch->batch);
    d = (llama_divider){ .memory = scratch->memory, .alignment = ALIGNMENT };
    divide_scratch(scratch, &d);
    return BERTH_OK;
}

void
llama_scratch_free(llama_scratch *scratch)
{
    free(scratch->memory);
    *scratch = (llama_scratch){ .config = NULL };
}

/* -------------------------------------------------------------------------- steps */

static const float *
take_vector(const llama_tensor *tensor, float *out)
{
    const llama_matrix *const m = &tensor->matrix;

    if (tensor->berth == BERTH_NO_TENSOR)
        return NULL;
    llama_math_widen(m->dtype, m->codes, m->columns, out);
    return out;
}

/* Rows of `from`, each normalised, into scratch->normed. */
typedef struct norm_rows {
    const llama_scratch *scratch;
    const float *from;
} norm_rows;

static void
norm_row(void *user, uint32_t worker, uint32_t row)
{
    const norm_rows *const n = user;
    const llama_config *const c = n->scratch->config;
    const uint64_t at = (uint64_t)row * c->hidden;

    (void)worker;
    llama_math_norm(n->from + at, n->scratch->norm, c->norm_epsilon, c->hidden,
                    n->scratch->normed + at);
}

static void
normalise(llama_scratch *s, const llama_tensor *weight, const float *from, uint32_t count)
{
    norm_rows n = { s, from };

    take_vector(weight, s->norm);
    llama_pool_run(s->pool, count, norm_row, &n);
}

/* gate and up of `elements` into gate. */
typedef struct swiglu {
    float *gate;
    const float *up;
    uint64_t elements;
} swiglu;

static void
swiglu_piece(void *user, uint32_t worker, uint32_t part)
{
    const swiglu *const w = user;
    const uint64_t first = (uint64_t)part * PIECE;
    const uint64_t left = w->elements - first;

    (void)worker;
    llama_math_swiglu(w->gate + first, w->up + first, left < PIECE ? left : PIECE);
}

/* Elements from the one at `first` on. */
static void
activate(llama_scratch *s, uint64_t first, uint64_t elements)
{
    swiglu w = { s->gate + first, s->up + first, elements };

    llama_pool_run(s->pool, (uint32_t)((elements + PIECE - 1) / PIECE), swiglu_piece, &w);
}

/* scratch->hidden += from */
static void
add_to_hidden(llama_scratch *s, const float *from, uint32_t count)
{
    llama_math_add_scaled(BERTH_F32, from, 1.0f, (uint64_t)count * s->config->hidden,
                          s->hidden);
}

/* ---------------------------------------------------------------------- attention */

static berth_status
attend(llama_scratch *s, const llama_stage *stage, uint32_t layer, uint32_t count,
       berth_error *error)
{
    const llama_tensor *const t = stage->tensors;
    const llama_product inputs[] = {
        { &t[LLAMA_QUERY].matrix, s->normed, s->queries, count },
        { &t[LLAMA_KEY].matrix, s->normed, s->keys, count },
        { &t[LLAMA_VALUE].matrix, s->normed, s->values, count },
    };
    const llama_product output = { &t[LLAMA_OUTPUT].matrix, s->attended, s->normed, count };
    const llama_attention attention = {
        .cache = s->cache,
        .layer = layer,
        .count = count,
        .queries = s->queries,
        .keys = s->keys,
        .values = s->values,
        .query_norm = take_vector(&t[LLAMA_QUERY_NORM], s->head_norms),
        .key_norm = take_vector(&t[LLAMA_KEY_NORM], s->head_norms + s->config->head_dim),
        .outputs = s->attended,
    };
    berth_status status;

    normalise(s, &t[LLAMA_ATTENTION_NORM], s->hidden, count);
    status = llama_matrix_multiply(s->multiplier, inputs, 3, error);
    if (status != BERTH_OK)
        return status;
    llama_attention_run(&attention, s->pool);
    status = llama_matrix_multiply(s->multiplier, &output, 1, error);
    if (status == BERTH_OK)
        add_to_hidden(s, s->normed, count);
    return status;
}

/* ---------------------------------------------------------------------------- MLP */

static berth_status
run_dense(llama_scratch *s, const llama_stage *stage, uint32_t count, berth_error *error)
{
    const llama_tensor *const t = stage->tensors;
    const llama_product inputs[] = {
        { &t[LLAMA_GATE].matrix, s->normed, s->gate, count },
        { &t[LLAMA_UP].matrix, s->normed, s->up, count },
    };
    const llama_product output = { &t[LLAMA_DOWN].matrix, s->gate, s->normed, count };
    berth_status status = llama_matrix_multiply(s->multiplier, inputs, 2, error);

    if (status != BERTH_OK)
        return status;
    activate(s, 0, (uint64_t)count * s->config->inner);
    status = llama_matrix_multiply(s->multiplier, &output, 1, error);
    if (status == BERTH_OK)
        add_to_hidden(s, s->normed, count);
    return status;
}

/* Which tokens an expert gets: slots [first, first + count). */
static uint32_t
gather_slots(llama_scratch *s, uint32_t expert, uint32_t tokens, uint32_t first)
{
    const uint32_t used = s->config->experts_used;
    const uint64_t hidden = s->config->hidden;
    uint32_t count = 0;

    for (uint32_t i = 0; i < tokens * used; i++) {
        if (s->numbers[i] != expert)
            continue;
        s->slots[first + count] = i;
        memcpy(s->gathered + (first + count) * hidden, s->normed + i / used * hidden,
               hidden * sizeof(float));
        count++;
    }
    return count;
}

/*
 * Products of the experts in [first, end) that have slots, from `slot` on: in the first
 * walk gate and up, then down.
 */
static uint32_t
list_products(llama_scratch *s, const llama_stage *stage, uint32_t first, uint32_t end,
              uint64_t slot, bool is_down)
{
    const llama_config *const c = s->config;
    const uint32_t *const counts = s->counts;
    uint32_t listed = 0;

    for (uint32_t i = first; i < end; slot += counts[i++]) {
        const llama_tensor *const t = llama_expert(stage, i);
        float *const outside = s->gathered + slot * c->hidden;
        float *const gate = s->gate + slot * c->expert_inner;
        float *const up = s->up + slot * c->expert_inner;

        if (counts[i] == 0)
            continue;
        if (is_down) {
            s->products[listed++] = (llama_product){ &t[2].matrix, gate, outside, counts[i] };
        } else {
            s->products[listed++] = (llama_product){ &t[0].matrix, outside, gate, counts[i] };
            s->products[listed++] = (llama_product){ &t[1].matrix, outside, up, counts[i] };
        }
    }
    return listed;
}

/* Which experts each token gets, and with which weight. */
static berth_status
route(llama_scratch *s, const llama_stage *stage, uint32_t count, berth_error *error)
{
    const llama_config *const c = s->config;
    const llama_product router = { &stage->tensors[LLAMA_ROUTER].matrix, s->normed,
                                   s->router, count };
    uint32_t slots = 0;
    const berth_status status = llama_matrix_multiply(s->multiplier, &router, 1, error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t token = 0; token < count; token++)
        llama_math_choose(s->router + (uint64_t)token * c->experts, c->experts,
                          c->experts_used, c->is_renormalised,
                          s->numbers + token * c->experts_used,
                          s->weights + token * c->experts_used);
    for (uint32_t i = 0; i < c->experts; i++) {
        s->counts[i] = gather_slots(s, i, count, slots);
        slots += s->counts[i];
    }
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- interface */

berth_status
llama_layer_begin(llama_scratch *scratch, const llama_stage *stage, uint32_t layer,
                  uint32_t count, berth_error *error)
{
    berth_status status = attend(scratch, stage, layer, count, error);

    if (status != BERTH_OK)
        return status;
    normalise(scratch, &stage->tensors[LLAMA_MLP_NORM], scratch->hidden, count);
    return scratch->config->is_sparse[layer] ? route(scratch, stage, count, error)
                                             : run_dense(scratch, stage, count, error);
}

berth_status
llama_layer_experts(llama_scratch *scratch, const llama_stage *stage, uint32_t first,
                    uint32_t end, berth_error *error)
{
    llama_scratch *const s = scratch;
    const llama_config *const c = s->config;
    uint64_t begin = 0; /* their slots */
    uint64_t slots = 0;
    uint32_t listed;
    berth_status status;

    for (uint32_t i = 0; i < end; i++)
        *(i < first ? &begin : &slots) += s->counts[i];
    listed = list_products(s, stage, first, end, begin, false);
    status = llama_matrix_multiply(s->multiplier, s->products, listed, error);
    if (status != BERTH_OK)
        return status;
    activate(s, begin * c->expert_inner, slots * c->expert_inner);
    listed = list_products(s, stage, first, end, begin, true);
    status = llama_matrix_multiply(s->multiplier, s->products, listed, error);
    for (uint64_t i = begin; i < begin + slots && status == BERTH_OK; i++)
        llama_math_add_scaled(BERTH_F32, s->gathered + i * c->hidden,
                              s->weights[s->slots[i]], c->hidden,
                              s->hidden
                                  + (uint64_t)(s->slots[i] / c->experts_used) * c->hidden);
    return status;
}

berth_status
llama_layer_run(llama_scratch *scratch, const llama_stage *stage, uint32_t layer,
                uint32_t count, berth_error *error)
{
    berth_status status = llama_layer_begin(scratch, stage, layer, count, error);

    if (status == BERTH_OK && scratch->config->is_sparse[layer])
        status = llama_layer_experts(scratch, stage, 0, scratch->config->experts, error);
    return status;
}

berth_status
llama_head_run(llama_scratch *scratch, const llama_stage *stage, uint32_t count,
               bool wants_all, float *logits, berth_error *error)
{
    const uint32_t first = wants_all ? 0 : count - 1;
    const llama_product head = { &stage->tensors[LLAMA_HEAD].matrix, scratch->normed, logits,
                                 count - first };

    if (llama_stage_has(stage, LLAMA_FINAL_NORM))
        normalise(scratch, &stage->tensors[LLAMA_FINAL_NORM],
                  scratch->hidden + (uint64_t)first * scratch->config->hidden, count - first);
    return llama_stage_has(stage, LLAMA_HEAD)
               ? llama_matrix_multiply(scratch->multiplier, &head, 1, error)
               : BERTH_OK;
}
