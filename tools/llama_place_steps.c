/* SPDX-License-Identifier: Apache-2.0 */
/* llama_place_steps.c - attention, head and what goes between, as steps of a device. */
#include "tools/llama_place.h"

/* ------------------------------------------------------------------------ products */

/* A vector in another dtype, at a place of its own. */
static berth_status
take_vector(const llama_place *p, const void *vector, int32_t vector_dtype, uint64_t columns,
            int32_t dtype, void *to, berth_error *error)
{
    const berth_take step = {
        .table = vector,
        .table_dtype = vector_dtype,
        .dtype = dtype,
        .numbers = p->zero,
        .rows = 1,
        .columns = columns,
        .count = 1,
        .outputs = to,
    };

    return berth_device_take(p->devices, p->number, &step, p->stream, error);
}

berth_status
llama_place_bias(const llama_place *p, const llama_tensor *t, int32_t dtype, uint32_t number,
                 const void **out, berth_error *error)
{
    const llama_matrix *const m = &t->matrix;
    void *const to = (float *)p->bias + number * p->bias_rows;

    *out = NULL;
    if (t->bias == BERTH_NO_TENSOR)
        return BERTH_OK;
    *out = to;
    return take_vector(p, m->bias, m->bias_dtype, m->rows,
                       m->encoding == BERTH_ENCODING_INT8 ? BERTH_F16 : dtype, to, error);
}

berth_status
llama_place_multiply(const llama_place *p, const llama_output *outputs, uint32_t tensors,
                     int32_t dtype, const void *inputs, uint32_t count, berth_error *error)
{
    uint64_t berths[LLAMA_TOGETHER];
    berth_multiply steps[LLAMA_TOGETHER];
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < tensors && status == BERTH_OK; i++) {
        const llama_tensor *const t = outputs[i].tensor;

        berths[i] = t->berth;
        steps[i] = (berth_multiply){
            .inputs = inputs,
            .outputs = outputs[i].to,
            .scratch = p->scratch,
            .scratch_bytes = p->scratch_bytes,
            .dtype = dtype,
            .count = count,
            .threshold = t->matrix.encoding == BERTH_ENCODING_INT8
                             ? p->engine->options->config->int8_threshold
                             : 0,
        };
        status = llama_place_bias(p, t, dtype, i, &steps[i].bias, error);
    }
    return status == BERTH_OK
               ? berth_model_multiply_together(p->engine->options->model, berths, steps,
                                               tensors, p->stream, error)
               : status;
}

/* --------------------------------------------------------------------------- steps */

uint64_t
llama_place_width(const llama_place *p)
{
    return berth_dtype_bits(p->dtype) / 8;
}

/*
 * `count` of the pass's tokens from `first` on: p->hidden, to which what is owed to it comes
 * on the way.
 */
static berth_status
normalise(const llama_place *p, const llama_tensor *weight, void *outputs, int32_t dtype,
          uint32_t first, uint32_t count, berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    float *const hidden = p->hidden + (uint64_t)first * c->hidden;
    const berth_norm step = {
        .inputs = hidden,
        .weight = weight->matrix.codes,
        .outputs = outputs,
        .inputs_dtype = BERTH_F32,
        .weight_dtype = weight->matrix.dtype,
        .dtype = dtype,
        .epsilon = c->norm_epsilon,
        .count = count,
        .added_dtype = p->dtype,
        .columns = c->hidden,
        .sums = p->is_owed ? hidden : NULL,
        .added = (char *)p->normed + (uint64_t)first * c->hidden * llama_place_width(p),
    };

    return berth_device_norm(p->devices, p->number, &step, p->stream, error);
}

/* The same of all tokens, into p->normed: then nothing is owed any more. */
static berth_status
normalise_all(llama_place *p, const llama_tensor *weight, berth_error *error)
{
    const berth_status status = normalise(p, weight, p->normed, p->dtype, 0,
                                          p->engine->pass->count, error);

    p->is_owed = false;
    return status;
}

berth_status
llama_place_settle(llama_place *p, berth_error *error)
{
    const uint32_t count = p->engine->pass->count;
    const berth_add step = {
        .sums = p->hidden,
        .values = p->normed,
        .dtype = p->dtype,
        .count = count,
        .sum_rows = count,
        .columns = p->engine->options->config->hidden,
    };

    if (!p->is_owed)
        return BERTH_OK;
    p->is_owed = false;
    return berth_device_add(p->devices, p->number, &step, p->stream, error);
}

/* One that has been chosen here lies there already. */
static berth_status
write_tokens(llama_place *p, berth_error *error)
{
    const llama_pass *const pass = p->engine->pass;
    const bool is_chosen = p->has_chosen && pass->count == 1 && pass->tokens[0] == p->chosen;

    p->has_chosen = false;
    return is_chosen ? BERTH_OK
                     : llama_place_write(p, p->tokens, pass->tokens,
                                         pass->count * sizeof *pass->tokens, error);
}

berth_status
llama_place_take(llama_place *p, const berth_model_tensor *embedding, berth_error *error)
{
    const llama_pass *const pass = p->engine->pass;
    const berth_take step = {
        .table = embedding->parts[0].memory,
        .table_dtype = embedding->dtype,
        .dtype = BERTH_F32,
        .numbers = p->tokens,
        .rows = embedding->shape[0],
        .columns = embedding->shape[1],
        .count = pass->count,
        .outputs = p->hidden,
    };
    const berth_status status = write_tokens(p, error);

    return status == BERTH_OK
               ? berth_device_take(p->devices, p->number, &step, p->stream, error)
               : status;
}

/* ----------------------------------------------------------------------- attention */

static const void *
vector_of(const llama_tensor *tensor)
{
    return tensor->berth != BERTH_NO_TENSOR ? tensor->matrix.codes : NULL;
}

/* Keys, or values, of a layer. */
static void *
cache_of(const llama_place *p, uint32_t layer, uint32_t which)
{
    return p->caches
           + (2 * (uint64_t)p->layer_of[layer] + which) * llama_place_cache_bytes(p);
}

/* The step has one dtype for both norms of heads: where they have two it gets them as f32. */
static berth_status
take_norms(const llama_place *p, const llama_tensor *t, berth_rotate *step, berth_error *error)
{
    const llama_matrix *const query = &t[LLAMA_QUERY_NORM].matrix;
    const llama_matrix *const key = &t[LLAMA_KEY_NORM].matrix;
    berth_status status;

    step->query_norm = vector_of(&t[LLAMA_QUERY_NORM]);
    step->key_norm = vector_of(&t[LLAMA_KEY_NORM]);
    step->norm_dtype = query->dtype;
    if (step->query_norm == NULL || step->key_norm == NULL || query->dtype == key->dtype)
        return BERTH_OK;
    step->norm_dtype = BERTH_F32;
    status = take_vector(p, query->codes, query->dtype, step->width, BERTH_F32, p->norms, error);
    if (status == BERTH_OK)
        status = take_vector(p, key->codes, key->dtype, step->width, BERTH_F32,
                             p->norms + step->width, error);
    step->query_norm = p->norms;
    step->key_norm = p->norms + step->width;
    return status;
}

static berth_status
rotate(const llama_place *p, const llama_tensor *t, uint32_t layer, berth_error *error)
{
    const llama_run_options *const o = p->engine->options;
    const llama_config *const c = o->config;
    const llama_pass *const pass = p->engine->pass;
    berth_rotate step = {
        .queries = p->queries,
        .keys = p->keys,
        .values = p->values,
        .angles = p->angles + (uint64_t)pass->position * c->head_dim,
        .key_cache = cache_of(p, layer, 0),
        .value_cache = cache_of(p, layer, 1),
        .dtype = p->dtype,
        .cache_dtype = o->cache_dtype,
        .epsilon = c->norm_epsilon,
        .count = pass->count,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .width = c->head_dim,
        .position = pass->position,
        .capacity = o->capacity,
    };
    const berth_status status = take_norms(p, t, &step, error);

    return status == BERTH_OK
               ? berth_device_rotate(p->devices, p->number, &step, p->stream, error)
               : status;
}

static berth_status
look_back(const llama_place *p, uint32_t layer, berth_error *error)
{
    const llama_run_options *const o = p->engine->options;
    const llama_config *const c = o->config;
    const berth_attend step = {
        .queries = p->queries,
        .key_cache = cache_of(p, layer, 0),
        .value_cache = cache_of(p, layer, 1),
        .outputs = p->queries,
        .dtype = p->dtype,
        .cache_dtype = o->cache_dtype,
        .count = p->engine->pass->count,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .width = c->head_dim,
        .position = p->engine->pass->position,
        .capacity = o->capacity,
        .window = c->slides[layer] ? c->window : 0,
    };

    return berth_device_attend(p->devices, p->number, &step, p->stream, error);
}

berth_status
llama_place_attend(llama_place *p, const llama_stage *stage, uint32_t layer,
                   berth_error *error)
{
    const llama_tensor *const t = stage->tensors;
    const uint32_t count = p->engine->pass->count;
    const llama_output outputs[] = { { &t[LLAMA_QUERY], p->queries },
                                     { &t[LLAMA_KEY], p->keys },
                                     { &t[LLAMA_VALUE], p->values } };
    berth_status status = normalise_all(p, &t[LLAMA_ATTENTION_NORM], error);

    if (status == BERTH_OK)
        status = llama_place_multiply(p, outputs, 3, p->dtype, p->normed, count, error);
    if (status == BERTH_OK)
        status = rotate(p, t, layer, error);
    if (status == BERTH_OK)
        status = look_back(p, layer, error);
    if (status == BERTH_OK)
        status = llama_place_multiply(p, &(llama_output){ &t[LLAMA_OUTPUT], p->normed }, 1,
                                      p->dtype, p->queries, count, error);
    p->is_owed = true;
    return status == BERTH_OK ? normalise_all(p, &t[LLAMA_MLP_NORM], error) : status;
}

/* ---------------------------------------------------------------------------- head */

berth_status
llama_place_norm(llama_place *p, const llama_stage *stage, berth_error *error)
{
    const berth_status status = llama_place_settle(p, error);

    return status == BERTH_OK ? normalise(p, &stage->tensors[LLAMA_FINAL_NORM], p->hidden,
                                          BERTH_F32, 0, p->engine->pass->count, error)
                              : status;
}

/* Logits of `count` of the pass's tokens from `first` on. */
static berth_status
compute_logits(const llama_place *p, const llama_stage *stage, uint32_t first, uint32_t count,
               berth_error *error)
{
    const bool has_norm = llama_stage_has(stage, LLAMA_FINAL_NORM);
    const llama_output output = { &stage->tensors[LLAMA_HEAD], p->logits };
    const float *const inputs =
        has_norm ? p->last : p->hidden + (uint64_t)first * p->engine->options->config->hidden;
    const berth_status status =
        has_norm ? normalise(p, &stage->tensors[LLAMA_FINAL_NORM], p->last, BERTH_F32, first,
                             count, error)
                 : BERTH_OK;

    return status == BERTH_OK
               ? llama_place_multiply(p, &output, 1, BERTH_F32, inputs, count, error)
               : status;
}

/* The likeliest token: its number alone is brought to the host. */
static berth_status
choose_next(llama_place *p, const llama_stage *stage, berth_error *error)
{
    const llama_pass *const pass = p->engine->pass;
    const berth_largest step = {
        .values = p->logits,
        .numbers = p->tokens,
        .dtype = BERTH_F32,
        .count = 1,
        .columns = p->engine->options->config->vocab,
    };
    berth_status status = compute_logits(p, stage, pass->count - 1, 1, error);

    if (status == BERTH_OK)
        status = berth_device_largest(p->devices, p->number, &step, p->stream, error);
    if (status == BERTH_OK)
        status = llama_place_read(p, pass->next, p->tokens, sizeof *pass->next, error);
    if (status != BERTH_OK)
        return status;
    p->has_chosen = true;
    p->chosen = *pass->next;
    return BERTH_OK;
}

berth_status
llama_place_head(llama_place *p, const llama_stage *stage, berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    const llama_pass *const pass = p->engine->pass;
    float *logits = pass->logits;
    berth_status status = BERTH_OK;

    if (pass->next != NULL)
        return choose_next(p, stage, error);
    for (uint32_t i = pass->wants_all ? 0 : pass->count - 1, count;
         i < pass->count && status == BERTH_OK; i += count) {
        const uint32_t left = pass->count - i;

        count = left < LLAMA_LOGIT_ROWS ? left : LLAMA_LOGIT_ROWS;
        status = compute_logits(p, stage, i, count, error);
        if (status == BERTH_OK)
            status = llama_place_read(p, logits, p->logits,
                                      (uint64_t)count * c->vocab * sizeof *logits, error);
        logits += (uint64_t)count * c->vocab;
    }
    return status;
}
