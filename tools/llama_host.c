/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_host.c - an engine on the processor, for weights in memory that it reaches: the
 * host's, and that of simulated devices, in the order of whose streams it computes.
 */
#include <stdlib.h>

#include "tools/llama_embedding.h"
#include "tools/llama_engine.h"
#include "tools/llama_error.h"
#include "tools/llama_layer.h"
#include "tools/llama_lease.h"
#include "tools/llama_math.h"

#define NO_DEVICE UINT32_MAX /* host memory: computed by whoever calls */

typedef struct host_engine host_engine;

/* What a stage is computed from; lives until its stream has come to it. */
typedef struct call {
    host_engine *host;
    const llama_stage *stage;
    uint32_t number;
    uint32_t first; /* experts [first, end), where they are computed by themselves */
    uint32_t end;
} call;

struct host_engine {
    llama_engine base;
    llama_pool *pool;
    llama_multiplier *multiplier;
    llama_cache cache;
    llama_scratch scratch;
    llama_embedding embedding;
    llama_matrix table;  /* the embedding, where it is on a device */
    double *seconds;     /* of stages, modelled, on devices that are simulated */
    call *calls;         /* of stages */
    call *expert_calls;  /* of one stage, by the first expert */
    uint32_t device;     /* where the last stage was asked for */
    berth_status status; /* of what was computed */
    berth_error error;
};

/* ------------------------------------------------------------------------ creating */

/* The arithmetic reaches host memory only. */
static berth_status
check_devices(const llama_engine *engine, berth_error *error)
{
    for (uint32_t i = 0; i < engine->device_count; i++) {
        berth_device device;

        berth_devices_get(engine->options->devices, i, &device);
        if (!device.is_host && !device.is_simulated)
            return llama_fail(error, BERTH_EUNSUPPORTED, device.name,
                              "computes where the decoder's arithmetic does not reach");
    }
    return BERTH_OK;
}

/* How long a stage takes where it is simulated: its home's memory is read once. */
static berth_status
model_seconds(host_engine *host, berth_error *error)
{
    const llama_weights *const weights = host->base.weights;
    const berth_plan *const plan = host->base.options->plan;
    const uint32_t experts = host->base.options->config->experts;

    host->seconds = calloc(weights->stage_count, sizeof *host->seconds);
    host->calls = calloc(weights->stage_count, sizeof *host->calls);
    host->expert_calls = calloc(experts + 1u, sizeof *host->calls);
    if (host->seconds == NULL || host->calls == NULL || host->expert_calls == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for stages");
    for (uint32_t i = 0; i < weights->stage_count; i++) {
        const llama_stage *const stage = &weights->stages[i];
        berth_plan_layer layer;
        berth_plan_tier tier;

        if (berth_plan_get_layer(plan, stage->layers[0], &layer) == BERTH_OK
            && berth_plan_get_tier(plan, layer.home, &tier) == BERTH_OK
            && tier.memory_rate > 0)
            host->seconds[i] = (double)stage->bytes / (double)tier.memory_rate;
    }
    return BERTH_OK;
}

static berth_status
create(host_engine *host, berth_error *error)
{
    const llama_run_options *const o = host->base.options;
    const llama_multiplier_options options = { .has_int8_inputs = o->has_int8_inputs,
                                               .int8_threshold =
                                                   o->config->int8_threshold };
    berth_host machine;
    berth_status status = check_devices(&host->base, error);

    if (status == BERTH_OK)
        status = berth_host_get(o->context, &machine, error);
    if (status == BERTH_OK)
        status = llama_pool_create(o->threads, machine.cores, &host->pool, error);
    if (status == BERTH_OK)
        status = llama_multiplier_create(o->context, host->pool, &options, &host->multiplier,
                                         error);
    if (status == BERTH_OK)
        status = llama_cache_init(&host->cache, o->config, o->cache_dtype, o->capacity,
                                  host->pool, error);
    host->scratch = (llama_scratch){ .config = o->config, .pool = host->pool,
                                     .multiplier = host->multiplier,
                                     .cache = &host->cache, .batch = o->batch };
    if (status == BERTH_OK)
        status = llama_scratch_init(&host->scratch, error);
    if (status == BERTH_OK)
        status = llama_embedding_init(&host->embedding, o,
                                      host->base.weights->embedding.berth, error);
    if (status == BERTH_OK)
        status = model_seconds(host, error);
    return status;
}

static void
host_destroy(llama_engine *engine)
{
    host_engine *const host = (host_engine *)engine;

    llama_embedding_free(&host->embedding);
    llama_scratch_free(&host->scratch);
    llama_cache_free(&host->cache);
    llama_multiplier_destroy(host->multiplier);
    llama_pool_destroy(host->pool);
    free(host->seconds);
    free(host->calls);
    free(host->expert_calls);
    free(host);
}

/* ------------------------------------------------------------------------- waiting */

/* Waits for what the last device was asked for. What it computed may have failed. */
static berth_status
host_settle(llama_engine *engine, berth_error *error)
{
    host_engine *const host = (host_engine *)engine;
    berth_status status = BERTH_OK;

    if (host->device < engine->device_count)
        status = berth_stream_wait(engine->options->devices, host->device,
                                   llama_stream(engine, host->device), -1, error);
    host->device = NO_DEVICE;
    if (status == BERTH_OK && host->status != BERTH_OK) {
        status = host->status;
        if (error != NULL)
            *error = host->error;
    }
    return status;
}

/*
 * In the stream's order, or at once where there is none. Another device than the last
 * one's must not begin before that one is done: what goes from layer to layer lies in
 * host memory.
 */
static berth_status
ask(host_engine *host, uint32_t device, void (*function)(void *), void *user,
    double seconds, berth_error *error)
{
    const llama_engine *const engine = &host->base;
    berth_status status = BERTH_OK;

    if (device >= engine->device_count)
        device = NO_DEVICE;
    if (host->device != device)
        status = host_settle(&host->base, error);
    host->device = device;
    if (status != BERTH_OK)
        return status;
    if (device != NO_DEVICE)
        return berth_stream_call(engine->options->devices, device,
                                 llama_stream(engine, device), function, user, seconds,
                                 error);
    function(user);
    return host_settle(&host->base, error);
}

/* ----------------------------------------------------------------------- computing */

static void
compute_stage(void *user)
{
    const call *const c = user;
    host_engine *const host = c->host;
    const llama_pass *const pass = host->base.pass;

    if (host->status != BERTH_OK)
        return;
    if (c->stage->expert_slots > 0)
        host->status = llama_layer_begin(&host->scratch, c->stage, c->number, pass->count,
                                         &host->error);
    else if (c->number < host->base.options->config->layers)
        host->status = llama_layer_run(&host->scratch, c->stage, c->number, pass->count,
                                       &host->error);
    else
        host->status = llama_head_run(&host->scratch, c->stage, pass->count,
                                      pass->wants_all, pass->logits, &host->error);
}

static void
compute_experts(void *user)
{
    const call *const c = user;
    host_engine *const host = c->host;

    if (host->status == BERTH_OK)
        host->status = llama_layer_experts(&host->scratch, c->stage, c->first, c->end,
                                           &host->error);
}

static berth_status
host_compute(llama_engine *engine, const llama_stage *stage, uint32_t number,
             berth_error *error)
{
    host_engine *const host = (host_engine *)engine;

    host->calls[number] = (call){ .host = host, .stage = stage, .number = number };
    return ask(host, stage->device, compute_stage, &host->calls[number],
               host->seconds[number], error);
}

static berth_status
host_experts(llama_engine *engine, const llama_stage *stage, uint32_t first, uint32_t end,
             berth_error *error)
{
    host_engine *const host = (host_engine *)engine;
    call *const group = &host->expert_calls[first];

    *group = (call){ .host = host, .stage = stage, .first = first, .end = end };
    return ask(host, stage->device, compute_experts, group, 0, error);
}

/* ----------------------------------------------------------------------- embedding */

static void
gather_rows(void *user)
{
    host_engine *const host = user;
    const llama_pass *const pass = host->base.pass;
    const uint64_t hidden = host->base.options->config->hidden;
    const llama_matrix *const m = &host->table;
    const uint64_t bytes = hidden * berth_dtype_bits(m->dtype) / 8;

    for (uint32_t i = 0; i < pass->count; i++)
        llama_math_widen(m->dtype, (const char *)m->codes + pass->tokens[i] * bytes, hidden,
                         host->scratch.hidden + i * hidden);
}

/* Where it is all on the device that computes it: there, else from where it lies. */
static berth_status
host_begin(llama_engine *engine, berth_error *error)
{
    host_engine *const host = (host_engine *)engine;
    berth_model *const model = engine->options->model;
    berth_model_tensor tensor;
    bool is_away;
    berth_status status;

    host->cache.length = engine->pass->position;
    host->device = NO_DEVICE;
    host->status = BERTH_OK;
    status = llama_embedding_find(&host->embedding, &tensor, &is_away, error);
    if (status != BERTH_OK)
        return status;
    if (!is_away)
        return llama_embedding_fetch(&host->embedding, engine->pass->tokens,
                                     engine->pass->count, host->scratch.hidden, error);
    status = llama_lease_acquire(model, &tensor.layer, 1, llama_stream(engine, tensor.device),
                                 error);
    if (status != BERTH_OK)
        return status;
    status = llama_matrix_take(&tensor, &host->table, error);
    if (status == BERTH_OK)
        status = ask(host, tensor.device, gather_rows, host, 0, error);
    return llama_lease_release(model, &tensor.layer, 1, llama_stream(engine, tensor.device),
                               status, error);
}

/* ----------------------------------------------------------------------- interface */

static const llama_engine_table host_table = {
    .destroy = host_destroy,
    .begin = host_begin,
    .compute = host_compute,
    .experts = host_experts,
    .settle = host_settle,
};

berth_status
llama_host_create(const llama_engine *from, llama_engine **out, berth_error *error)
{
    host_engine *const host = calloc(1, sizeof *host);
    berth_status status;

    *out = NULL;
    if (host == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for a run");
    host->base = *from;
    host->base.table = &host_table;
    host->device = NO_DEVICE;
    status = create(host, error);
    if (status != BERTH_OK) {
        host_destroy(&host->base);
        return status;
    }
    host->base.threads = llama_pool_threads(host->pool);
    host->base.counts = host->scratch.counts;
    *out = &host->base;
    return BERTH_OK;
}
