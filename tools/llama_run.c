/* SPDX-License-Identifier: Apache-2.0 */
/* llama_run.c - see llama_run.h. */
#include <stdlib.h>
#include <string.h>

#include "tools/llama_error.h"
#include "tools/llama_layer.h"
#include "tools/llama_math.h"
#include "tools/llama_run.h"

#define BATCH 512u
#define NO_DEVICE UINT32_MAX /* host memory: computed by whoever calls */

/* What a stage is computed from; lives until its stream has come to it. */
typedef struct call {
    llama_run *run;
    const llama_stage *stage;
    uint32_t number;
    uint32_t first; /* experts [first, end), where they are computed by themselves */
    uint32_t end;
} call;

struct llama_run {
    llama_run_options options;
    llama_pool *pool;
    llama_multiplier *multiplier;
    llama_cache cache;
    llama_weights weights;
    llama_scratch scratch;
    void **streams;        /* of the devices; NULL: not made */
    uint32_t device_count;
    double *seconds;       /* of stages, modelled, on devices that are simulated */
    call *calls;           /* of stages */
    call *expert_calls;    /* of one stage */
    uint32_t *experts;     /* leased together */
    char *row;             /* of the embedding, as the checkpoint has it */
    uint64_t row_bytes;
    uint64_t token_bytes;
    /* The pass under way. */
    const uint32_t *tokens;
    uint32_t count;
    bool wants_all;
    float *logits;
    llama_matrix embedding;
    uint32_t device;       /* where the last stage was asked for */
    berth_status status;   /* of what was computed */
    berth_error error;
};

/* ------------------------------------------------------------------------ creating */

/* Streams of all devices; the arithmetic reaches host memory only. */
static berth_status
open_streams(llama_run *run, berth_error *error)
{
    berth_devices *const devices = run->options.devices;
    berth_status status = BERTH_OK;

    run->device_count = devices != NULL ? berth_devices_count(devices) : 0;
    run->streams = calloc(run->device_count + 1, sizeof *run->streams);
    if (run->streams == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for streams");
    for (uint32_t i = 0; i < run->device_count && status == BERTH_OK; i++) {
        berth_device device;

        berth_devices_get(devices, i, &device);
        if (!device.is_host && !device.is_simulated)
            return llama_fail(error, BERTH_EUNSUPPORTED, device.name,
                              "computes where the decoder's arithmetic does not reach");
        status = berth_stream_create(devices, i, &run->streams[i], error);
    }
    return status;
}

/* How long a stage takes where it is simulated: its home's memory is read once. */
static berth_status
model_seconds(llama_run *run, berth_error *error)
{
    const berth_plan *const plan = run->options.plan;

    run->seconds = calloc(run->weights.stage_count, sizeof *run->seconds);
    run->calls = calloc(run->weights.stage_count, sizeof *run->calls);
    run->expert_calls = calloc(run->options.config->experts + 1u, sizeof *run->calls);
    run->experts = calloc(run->options.config->experts + 1u, sizeof *run->experts);
    if (run->seconds == NULL || run->calls == NULL || run->expert_calls == NULL
        || run->experts == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for stages");
    for (uint32_t i = 0; i < run->weights.stage_count; i++) {
        const llama_stage *const stage = &run->weights.stages[i];
        berth_plan_layer layer;
        berth_plan_tier tier;

        run->token_bytes += stage->bytes;
        if (berth_plan_get_layer(plan, stage->layers[0], &layer) == BERTH_OK
            && berth_plan_get_tier(plan, layer.home, &tier) == BERTH_OK
            && tier.memory_rate > 0)
            run->seconds[i] = (double)stage->bytes / (double)tier.memory_rate;
    }
    return BERTH_OK;
}

/* Room for one row of the embedding as the checkpoint has it. */
static berth_status
make_row(llama_run *run, berth_error *error)
{
    berth_model_tensor tensor;
    berth_tensor stored;
    berth_status status
        = berth_model_get_tensor(run->options.model, run->weights.embedding.berth, &tensor);

    if (status == BERTH_OK)
        status = berth_checkpoint_tensor(run->options.checkpoint, tensor.tensor, &stored);
    if (status != BERTH_OK)
        return llama_fail(error, status, NULL, "the embedding cannot be found again");
    if (tensor.encoding != BERTH_ENCODING_NATIVE || !llama_math_has_dtype(tensor.dtype)
        || !llama_math_has_dtype(stored.dtype))
        return llama_fail(error, BERTH_EUNSUPPORTED, tensor.name,
                          "is an embedding that is no plain numbers");
    run->row_bytes
        = (uint64_t)run->options.config->hidden * berth_dtype_bits(stored.dtype) / 8;
    run->row = malloc(run->options.config->hidden * sizeof(float)); /* whatever the dtype */
    return run->row != NULL
               ? BERTH_OK
               : llama_fail(error, BERTH_ENOMEM, NULL, "no memory for a row");
}

static berth_status
create(llama_run *run, berth_error *error)
{
    const llama_run_options *const o = &run->options;
    const llama_config *const c = o->config;
    berth_host host;
    berth_status status = berth_host_get(o->context, &host, error);

    if (status == BERTH_OK)
        status = llama_pool_create(o->threads, host.cores, &run->pool, error);
    if (status == BERTH_OK)
        status = llama_weights_find(o->model, c, &run->weights, error);
    if (status == BERTH_OK)
        status = llama_multiplier_create(o->context, run->pool, run->weights.columns,
                                         run->weights.block_size, o->has_int8_inputs,
                                         &run->multiplier, error);
    if (status == BERTH_OK)
        status = llama_cache_init(&run->cache, c, o->cache_dtype, o->capacity, run->pool,
                                  error);
    run->scratch = (llama_scratch){ .config = c, .pool = run->pool,
                                    .multiplier = run->multiplier, .cache = &run->cache,
                                    .batch = o->batch };
    if (status == BERTH_OK)
        status = llama_scratch_init(&run->scratch, error);
    if (status == BERTH_OK)
        status = make_row(run, error);
    if (status == BERTH_OK)
        status = open_streams(run, error);
    if (status == BERTH_OK)
        status = model_seconds(run, error);
    return status;
}

berth_status
llama_run_create(const llama_run_options *options, llama_run **out, berth_error *error)
{
    llama_run *const run = calloc(1, sizeof *run);
    berth_status status;

    *out = NULL;
    if (run == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for a run");
    run->options = *options;
    if (run->options.batch == 0)
        run->options.batch = BATCH;
    if (run->options.batch > options->capacity)
        run->options.batch = options->capacity;
    status = create(run, error);
    if (status == BERTH_OK)
        *out = run;
    else
        llama_run_destroy(run);
    return status;
}

void
llama_run_destroy(llama_run *run)
{
    if (run == NULL)
        return;
    for (uint32_t i = 0; i < run->device_count && run->streams != NULL; i++)
        berth_stream_destroy(run->options.devices, i, run->streams[i]);
    llama_scratch_free(&run->scratch);
    llama_cache_free(&run->cache);
    llama_multiplier_destroy(run->multiplier);
    llama_weights_free(&run->weights);
    llama_pool_destroy(run->pool);
    free(run->streams);
    free(run->seconds);
    free(run->calls);
    free(run->expert_calls);
    free(run->experts);
    free(run->row);
    free(run);
}

/* ----------------------------------------------------------------------- computing */

static void *
stream_of(const llama_run *run, uint32_t device)
{
    return device < run->device_count ? run->streams[device] : NULL;
}

/* Waits for what the last device was asked for. What it computed may have failed. */
static berth_status
settle(llama_run *run, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (run->device < run->device_count)
        status = berth_stream_wait(run->options.devices, run->device,
                                   stream_of(run, run->device), -1, error);
    run->device = NO_DEVICE;
    if (status == BERTH_OK && run->status != BERTH_OK) {
        status = run->status;
        if (error != NULL)
            *error = run->error;
    }
    return status;
}

/*
 * In the stream's order, or at once where there is none. Another device than the last
 * one's must not begin before that one is done: what goes from layer to layer lies in
 * host memory.
 */
static berth_status
ask(llama_run *run, uint32_t device, void (*function)(void *), void *user, double seconds,
    berth_error *error)
{
    berth_status status = BERTH_OK;

    if (device >= run->device_count)
        device = NO_DEVICE;
    if (run->device != device)
        status = settle(run, error);
    run->device = device;
    if (status != BERTH_OK)
        return status;
    if (device != NO_DEVICE)
        return berth_stream_call(run->options.devices, device, stream_of(run, device),
                                 function, user, seconds, error);
    function(user);
    return settle(run, error);
}

/* Acquires all layers, or none. */
static berth_status
acquire(llama_run *run, const uint32_t *layers, uint32_t count, void *stream,
        berth_error *error)
{
    berth_status status = BERTH_OK;
    uint32_t held = 0;

    while (held < count
           && (status = berth_layer_acquire(run->options.model, layers[held], stream, error))
                  == BERTH_OK)
        held++;
    while (status != BERTH_OK && held > 0)
        berth_layer_release(run->options.model, layers[--held], stream, NULL);
    return status;
}

/* Releases all; the first failure counts unless something failed before. */
static berth_status
release(llama_run *run, const uint32_t *layers, uint32_t count, void *stream,
        berth_status before, berth_error *error)
{
    for (uint32_t i = count; i-- > 0;) {
        const berth_status status
            = berth_layer_release(run->options.model, layers[i], stream,
                                  before == BERTH_OK ? error : NULL);

        if (before == BERTH_OK)
            before = status;
    }
    return before;
}

static void
compute_stage(void *user)
{
    const call *const c = user;
    llama_run *const run = c->run;

    if (run->status != BERTH_OK)
        return;
    if (c->stage->expert_slots > 0)
        run->status = llama_layer_begin(&run->scratch, c->stage, c->number, run->count,
                                        &run->error);
    else if (c->number < run->options.config->layers)
        run->status = llama_layer_run(&run->scratch, c->stage, c->number, run->count,
                                      &run->error);
    else
        run->status = llama_head_run(&run->scratch, c->stage, run->count, run->wants_all,
                                     run->logits, &run->error);
}

static void
compute_experts(void *user)
{
    const call *const c = user;
    llama_run *const run = c->run;

    if (run->status == BERTH_OK)
        run->status = llama_layer_experts(&run->scratch, c->stage, c->first, c->end,
                                          &run->error);
}

/* The experts of one call: leased, found, computed, given back. */
static berth_status
run_group(llama_run *run, llama_stage *stage, call *group, uint32_t count, void *stream,
          berth_error *error)
{
    berth_model *const model = run->options.model;
    berth_status status = berth_experts_acquire(model, stage->expert_layer, run->experts,
                                                count, stream, error);
    berth_status released;

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = llama_weights_take_expert(&run->weights, stage, run->experts[i], error);
    if (status == BERTH_OK)
        status = ask(run, stage->device, compute_experts, group, 0, error);
    released = berth_experts_release(model, stage->expert_layer, run->experts, count,
                                     stream, status == BERTH_OK ? error : NULL);
    return status != BERTH_OK ? status : released;
}

/*
 * Which experts are used is known when the router has been computed. As many as there
 * are slots at a time, in their order: sums come out the same, however many that are.
 */
static berth_status
run_experts(llama_run *run, llama_stage *stage, void *stream, berth_error *error)
{
    const uint32_t experts = run->options.config->experts;
    berth_status status = settle(run, error);

    for (uint32_t i = 0, end; i < experts && status == BERTH_OK; i = end) {
        call *const group = &run->expert_calls[i];
        uint32_t count = 0;

        for (end = i; end < experts && count < stage->expert_slots; end++)
            if (run->scratch.counts[end] > 0)
                run->experts[count++] = end;
        *group = (call){ .run = run, .stage = stage, .first = i, .end = end };
        if (count > 0)
            status = run_group(run, stage, group, count, stream, error);
    }
    return status;
}

static berth_status
run_stage(llama_run *run, uint32_t number, berth_error *error)
{
    llama_stage *const stage = &run->weights.stages[number];
    void *const stream = stream_of(run, stage->device);
    berth_status status
        = acquire(run, stage->layers, stage->layer_count, stream, error);

    if (status != BERTH_OK)
        return status;
    run->calls[number] = (call){ .run = run, .stage = stage, .number = number };
    status = llama_weights_take(&run->weights, stage, error);
    if (status == BERTH_OK)
        status = ask(run, stage->device, compute_stage, &run->calls[number],
                     run->seconds[number], error);
    if (status == BERTH_OK && stage->expert_slots > 0)
        status = run_experts(run, stage, stream, error);
    return release(run, stage->layers, stage->layer_count, stream, status, error);
}

/* ----------------------------------------------------------------------- embedding */

static void
gather_rows(void *user)
{
    llama_run *const run = user;
    const uint64_t hidden = run->options.config->hidden;
    const llama_matrix *const m = &run->embedding;
    const uint64_t bytes = hidden * berth_dtype_bits(m->dtype) / 8;

    for (uint32_t i = 0; i < run->count; i++)
        llama_math_widen(m->dtype, (const char *)m->codes + run->tokens[i] * bytes, hidden,
                         run->scratch.hidden + i * hidden);
}

/* Row by row from the files, rounded as the plan has them. */
static berth_status
read_rows(llama_run *run, const berth_model_tensor *tensor, berth_error *error)
{
    berth_checkpoint *const checkpoint = run->options.checkpoint;
    const uint64_t hidden = run->options.config->hidden;
    berth_tensor stored;
    berth_status status = berth_checkpoint_tensor(checkpoint, tensor->tensor, &stored);

    for (uint32_t i = 0; i < run->count && status == BERTH_OK; i++) {
        float *const out = run->scratch.hidden + i * hidden;

        status = berth_checkpoint_read(checkpoint, tensor->tensor, run->tokens[i], 1,
                                       run->row, run->row_bytes, error);
        if (status != BERTH_OK)
            break;
        llama_math_widen(stored.dtype, run->row, hidden, out);
        if (tensor->dtype != stored.dtype && tensor->dtype != BERTH_F32) {
            llama_math_narrow(tensor->dtype, out, hidden, run->row);
            llama_math_widen(tensor->dtype, run->row, hidden, out);
        }
    }
    return status;
}

/* Where it is all on the device that computes it: there, else from where it lies. */
static berth_status
gather(llama_run *run, berth_error *error)
{
    const berth_model *const model = run->options.model;
    const uint64_t berth = run->weights.embedding.berth;
    berth_model_tensor tensor;
    berth_status status = berth_model_get_host(model, berth, &tensor);

    if (status == BERTH_OK) {
        status = llama_matrix_take(&tensor, &run->embedding, error);
        if (status == BERTH_OK)
            gather_rows(run);
        return status;
    }
    status = berth_model_get_tensor(model, berth, &tensor);
    if (status != BERTH_OK)
        return llama_fail(error, status, NULL, "the embedding cannot be found again");
    if (!tensor.is_resident)
        return read_rows(run, &tensor, error);
    status = acquire(run, &tensor.layer, 1, stream_of(run, tensor.device), error);
    if (status != BERTH_OK)
        return status;
    status = llama_matrix_take(&tensor, &run->embedding, error);
    if (status == BERTH_OK)
        status = ask(run, tensor.device, gather_rows, run, 0, error);
    return release(run, &tensor.layer, 1, stream_of(run, tensor.device), status, error);
}

/* ----------------------------------------------------------------------- interface */

/* Tokens of one batch: through all layers, and the head where it is wanted. */
static berth_status
run_pass(llama_run *run, const uint32_t *tokens, uint32_t count, bool wants_all,
         float *logits, berth_error *error)
{
    const uint32_t stages = run->weights.stage_count - (logits == NULL ? 1 : 0);
    berth_status status;

    run->tokens = tokens;
    run->count = count;
    run->wants_all = wants_all;
    run->logits = logits;
    run->device = NO_DEVICE;
    run->status = BERTH_OK;
    status = gather(run, error);
    for (uint32_t i = 0; i < stages && status == BERTH_OK; i++)
        status = run_stage(run, i, error);
    if (status == BERTH_OK)
        status = settle(run, error);
    else
        settle(run, NULL); /* nothing of ours may be used when this returns */
    if (status == BERTH_OK)
        run->cache.length += count;
    return status;
}

static berth_status
check_tokens(const llama_run *run, const uint32_t *tokens, uint32_t count,
             berth_error *error)
{
    const llama_run_options *const o = &run->options;

    if (count == 0 || count > o->capacity - run->cache.length)
        return llama_fail(error, BERTH_EINVAL, "tokens",
                          "%u behind %u others: the sequence has room for 1 to %u",
                          (unsigned)count, (unsigned)run->cache.length,
                          (unsigned)(o->capacity - run->cache.length));
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] >= o->config->vocab)
            return llama_fail(error, BERTH_EINVAL, "tokens",
                              "%u is none: the vocabulary ends before %u",
                              (unsigned)tokens[i], (unsigned)o->config->vocab);
    return BERTH_OK;
}

berth_status
llama_run_feed(llama_run *run, const uint32_t *tokens, uint32_t count, bool wants_all,
               float *logits, berth_error *error)
{
    const uint32_t batch = run->options.batch;
    berth_status status = check_tokens(run, tokens, count, error);

    for (uint32_t i = 0; i < count && status == BERTH_OK; i += batch) {
        const uint32_t part = count - i < batch ? count - i : batch;
        const bool is_last = i + part == count;

        status = run_pass(run, tokens + i, part, wants_all,
                          wants_all ? logits + (uint64_t)i * run->options.config->vocab
                          : is_last ? logits
                                    : NULL,
                          error);
    }
    return status;
}

uint64_t
llama_run_token_bytes(const llama_run *run)
{
    return run->token_bytes;
}

uint32_t
llama_run_threads(const llama_run *run)
{
    return llama_pool_threads(run->pool);
}
