/* SPDX-License-Identifier: Apache-2.0 */
/* llama_place.c - memory of a device that computes stages; see llama_place.h. */
#include "tools/llama_place.h"

#include <stdlib.h>

#include "tools/llama_divide.h"
#include "tools/llama_error.h"
#include "tools/llama_math.h"

#define ALIGNMENT 256u

/* ------------------------------------------------------------------------ what for */

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What products with a weight need beside. */
static void
count_tensor(llama_place *p, const llama_tensor *t, int32_t dtype, uint32_t count)
{
    const berth_model *const model = p->engine->options->model;
    berth_model_tensor tensor;

    if (t->berth == BERTH_NO_TENSOR
        || berth_model_get_tensor(model, t->berth, &tensor) != BERTH_OK || tensor.rank != 2)
        return;
    p->scratch_bytes = larger(p->scratch_bytes, berth_model_multiply_scratch(model, t->berth,
                                                                             dtype, count));
    if (t->bias != BERTH_NO_TENSOR)
        p->bias_rows = larger(p->bias_rows, tensor.shape[0]);
}

/* The same of an expert's: of all of them at once, gates and what goes up. */
static void
count_expert(llama_place *p, const llama_tensor *t, uint32_t count)
{
    count_tensor(p, t, p->dtype, count);
    p->scratch_bytes = larger(
        p->scratch_bytes, berth_model_multiply_experts_scratch(p->engine->options->model,
                                                               t->berth, p->dtype, count));
    if (t->bias != BERTH_NO_TENSOR)
        p->biases = (uint32_t)larger(p->biases, 2u * p->engine->options->config->experts);
}

/* Experts that are used where they lie in host memory are out of a device's reach. */
static berth_status
check_experts(const llama_place *p, const llama_stage *stage, berth_error *error)
{
    for (uint32_t i = LLAMA_WEIGHT_COUNT; i < stage->tensor_count; i++) {
        berth_model_tensor tensor;
        const berth_status status = berth_model_get_tensor(
            p->engine->options->model, stage->tensors[i].berth, &tensor);

        if (status != BERTH_OK)
            return llama_fail(error, status, NULL, "an expert cannot be found again");
        if (!tensor.is_resident && stage->expert_slots == 0)
            return llama_fail(error, BERTH_EUNSUPPORTED, tensor.name,
                              "is an expert for which its device has no slot");
    }
    return BERTH_OK;
}

static berth_status
count_stage(llama_place *p, const llama_stage *stage, uint32_t number, berth_error *error)
{
    const llama_config *const c = p->engine->options->config;
    const uint32_t batch = p->engine->options->batch;

    if (number >= c->layers) {
        count_tensor(p, &stage->tensors[LLAMA_HEAD], BERTH_F32, LLAMA_LOGIT_ROWS);
        return BERTH_OK;
    }
    p->layer_of[number] = p->layer_count++;
    for (uint32_t i = 0; i < stage->tensor_count; i++)
        if (i < LLAMA_WEIGHT_COUNT)
            count_tensor(p, &stage->tensors[i], p->dtype, batch);
        else
            count_expert(p, &stage->tensors[i], batch);
    return c->is_sparse[number] ? check_experts(p, stage, error) : BERTH_OK;
}

/* -------------------------------------------------------------------------- memory */

uint64_t
llama_place_cache_bytes(const llama_place *p)
{
    const llama_run_options *const o = p->engine->options;

    return (uint64_t)o->config->kv_heads * o->capacity * o->config->head_dim
           * berth_dtype_bits(o->cache_dtype) / 8;
}

static void
divide_place(llama_place *p, llama_divider *d)
{
    const llama_run_options *const o = p->engine->options;
    const llama_config *const c = o->config;
    const uint64_t width = berth_dtype_bits(p->dtype) / 8;
    const uint64_t batch = o->batch;
    const uint64_t slots = batch * c->experts_used;
    const uint64_t inner = larger(batch * c->inner, slots * c->expert_inner);

    p->hidden = llama_divide(d, batch * c->hidden, sizeof(float));
    p->normed = llama_divide(d, batch * c->hidden, width);
    p->queries = llama_divide(d, batch * c->heads * c->head_dim, width);
    p->keys = llama_divide(d, batch * c->kv_heads * c->head_dim, width);
    p->values = llama_divide(d, batch * c->kv_heads * c->head_dim, width);
    p->gate = llama_divide(d, inner, width);
    p->up = llama_divide(d, inner, width);
    p->bias = llama_divide(d, p->biases * p->bias_rows, sizeof(float));
    p->norms = llama_divide(d, 2 * (uint64_t)c->head_dim, sizeof(float));
    p->angles = llama_divide(d, (uint64_t)o->capacity * c->head_dim, sizeof(float));
    p->caches = llama_divide(d, 2 * (uint64_t)p->layer_count, llama_place_cache_bytes(p));
    p->tokens = llama_divide(d, batch, sizeof(uint32_t));
    p->zero = llama_divide(d, 1, sizeof(uint32_t));
    p->last = llama_divide(d, LLAMA_LOGIT_ROWS * (uint64_t)c->hidden, sizeof(float));
    p->logits = llama_divide(d, LLAMA_LOGIT_ROWS * (uint64_t)c->vocab, sizeof(float));
    p->scratch = llama_divide(d, p->scratch_bytes, 1);
    p->router = llama_divide(d, batch * c->experts, width);
    p->gathered = llama_divide(d, slots * c->hidden, width);
    p->weights = llama_divide(d, slots, sizeof(float));
    p->numbers = llama_divide(d, slots, sizeof(uint32_t));
    p->slots = llama_divide(d, slots, sizeof(uint32_t));
}

/* What never changes. */
static berth_status
fill(const llama_place *p, berth_error *error)
{
    const llama_run_options *const o = p->engine->options;
    const llama_config *const c = o->config;
    const uint32_t half = c->head_dim / 2;
    const uint64_t bytes = (uint64_t)o->capacity * c->head_dim * sizeof(float);
    float *const frequencies = malloc(half * sizeof *frequencies);
    float *const angles = malloc(bytes);
    const uint32_t zero = 0;
    float scale;
    berth_status status;

    if (frequencies == NULL || angles == NULL) {
        free(angles);
        free(frequencies);
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for angles");
    }
    llama_math_frequencies(c, frequencies, &scale);
    for (uint32_t i = 0; i < o->capacity; i++)
        llama_math_angles(frequencies, scale, half, i, angles + (uint64_t)i * c->head_dim);
    status = llama_place_write(p, p->angles, angles, bytes, error);
    if (status == BERTH_OK)
        status = llama_place_write(p, p->zero, &zero, sizeof zero, error);
    free(angles);
    free(frequencies);
    return status;
}

/* Lists of the host. */
static berth_status
allocate(llama_place *p, berth_error *error)
{
    const uint32_t experts = p->engine->options->config->experts + 1u;
    llama_grouped *const g = &p->grouped;

    p->layer_of = calloc(p->engine->weights->stage_count, sizeof *p->layer_of);
    g->berths = calloc(2u * experts, sizeof *g->berths);
    g->biases = calloc(2u * experts, sizeof *g->biases);
    g->ranges = calloc(experts, sizeof *g->ranges);
    return p->layer_of != NULL && g->berths != NULL && g->biases != NULL && g->ranges != NULL
               ? BERTH_OK
               : llama_fail(error, BERTH_ENOMEM, NULL, "no memory for stages");
}

berth_status
llama_place_init(llama_place *place, const llama_engine *engine, berth_devices *devices,
                 uint32_t number, uint32_t device, int32_t dtype, berth_error *error)
{
    const llama_weights *const weights = engine->weights;
    llama_divider d = { .alignment = ALIGNMENT };
    void *memory;
    berth_status status;

    *place = (llama_place){ .engine = engine, .devices = devices, .number = number,
                            .stream = llama_stream(engine, device), .dtype = dtype,
                            .biases = LLAMA_TOGETHER };
    status = allocate(place, error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < weights->stage_count && status == BERTH_OK; i++)
        if (weights->stages[i].device == device)
            status = count_stage(place, &weights->stages[i], i, error);
    if (status != BERTH_OK)
        return status;
    divide_place(place, &d);
    status = berth_device_alloc(devices, number, d.used, &memory, error);
    if (status != BERTH_OK)
        return status;
    place->memory = memory;
    place->bytes = d.used;
    d = (llama_divider){ .memory = memory, .alignment = ALIGNMENT };
    divide_place(place, &d);
    return fill(place, error);
}

void
llama_place_free(llama_place *place)
{
    berth_device_free(place->devices, place->number, place->memory, place->bytes);
    free(place->layer_of);
    free(place->grouped.berths);
    free(place->grouped.biases);
    free(place->grouped.ranges);
    *place = (llama_place){ .memory = NULL };
}

berth_status
llama_place_write(const llama_place *place, void *to, const void *from, uint64_t bytes,
                  berth_error *error)
{
    return berth_device_write(place->devices, place->number, to, from, bytes, place->stream,
                              error);
}

berth_status
llama_place_read(const llama_place *place, void *to, const void *from, uint64_t bytes,
                 berth_error *error)
{
    return berth_device_read(place->devices, place->number, to, from, bytes, place->stream,
                             error);
}

berth_status
llama_place_send(const llama_place *place, const llama_place *other, uint64_t bytes,
                 berth_error *error)
{
    return berth_device_send(place->devices, place->number,
                             &(berth_send){ .from = place->hidden,
                                            .to = other->hidden,
                                            .bytes = bytes,
                                            .stream = place->stream,
                                            .other_stream = other->stream,
                                            .other = other->number },
                             error);
}
