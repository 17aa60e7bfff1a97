/* SPDX-License-Identifier: Apache-2.0 */
/* llama_run.c - see llama_run.h. */
#include "tools/llama_run.h"

#include <stdlib.h>

#include "tools/llama_engine.h"
#include "tools/llama_error.h"
#include "tools/llama_lease.h"
#include "tools/llama_math.h"

#define BATCH 512u

struct llama_run {
    llama_run_options options;
    llama_weights weights;
    llama_engine *engine;
    void **streams;        /* of the devices, and NULL; NULL: not made */
    uint32_t device_count;
    uint32_t *experts;     /* leased together */
    uint64_t token_bytes;
    uint32_t length;       /* tokens so far */
    llama_pass pass;       /* under way */
};

/* ------------------------------------------------------------------------ creating */

static berth_status
open_streams(llama_run *run, berth_error *error)
{
    berth_devices *const devices = run->options.devices;
    berth_status status = BERTH_OK;

    run->device_count = devices != NULL ? berth_devices_count(devices) : 0;
    run->streams = calloc(run->device_count + 1, sizeof *run->streams);
    run->experts = calloc(run->options.config->experts + 1u, sizeof *run->experts);
    if (run->streams == NULL || run->experts == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for streams");
    for (uint32_t i = 0; i < run->device_count && status == BERTH_OK; i++)
        status = berth_stream_create(devices, i, &run->streams[i], error);
    return status;
}

/* Host memory, or a device of those that the run has. */
static bool
is_within_reach(const llama_run *run, uint32_t device)
{
    return device == BERTH_NO_INDEX || device < run->device_count;
}

/* A load opens devices of its own where it is given none: nobody here computes on those. */
static berth_status
check_reach(const llama_run *run, berth_error *error)
{
    berth_model_tensor embedding;
    bool is_good = berth_model_get_tensor(run->options.model, run->weights.embedding.berth,
                                          &embedding)
                       != BERTH_OK
                   || !embedding.is_resident || is_within_reach(run, embedding.device);

    for (uint32_t i = 0; i < run->weights.stage_count; i++)
        is_good = is_good && is_within_reach(run, run->weights.stages[i].device);
    return is_good ? BERTH_OK
                   : llama_fail(error, BERTH_EUNSUPPORTED, NULL,
                                "the plan computes on GPUs: give them with --devices, as "
                                "`--devices cuda`");
}

static berth_status
create(llama_run *run, berth_error *error)
{
    llama_engine from = { .options = &run->options, .weights = &run->weights };
    berth_status status = llama_weights_find(run->options.model, run->options.config,
                                             &run->weights, error);

    if (status == BERTH_OK)
        status = open_streams(run, error);
    if (status == BERTH_OK)
        status = check_reach(run, error);
    for (uint32_t i = 0; i < run->weights.stage_count && status == BERTH_OK; i++)
        run->token_bytes += run->weights.stages[i].bytes;
    from.streams = run->streams;
    from.device_count = run->device_count;
    from.pass = &run->pass;
    if (status != BERTH_OK)
        return status;
    return run->options.compute == LLAMA_COMPUTE_DEVICE
               ? llama_device_create(&from, &run->engine, error)
               : llama_host_create(&from, &run->engine, error);
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
    if (run->engine != NULL)
        run->engine->table->destroy(run->engine);
    llama_weights_free(&run->weights);
    free(run->streams);
    free(run->experts);
    free(run);
}

/* --------------------------------------------------------------------------- stages */

/* The experts in [first, end) that are used: leased, found, computed, given back. */
static berth_status
run_group(llama_run *run, llama_stage *stage, uint32_t first, uint32_t end, uint32_t count,
          berth_error *error)
{
    llama_engine *const engine = run->engine;
    berth_model *const model = run->options.model;
    void *const stream = llama_stream(engine, stage->device);
    berth_status status = berth_experts_acquire(model, stage->expert_layer, run->experts,
                                                count, stream, error);
    berth_status released;

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = llama_weights_take_expert(&run->weights, stage, run->experts[i], error);
    if (status == BERTH_OK)
        status = engine->table->experts(engine, stage, first, end, error);
    released = berth_experts_release(model, stage->expert_layer, run->experts, count,
                                     stream, status == BERTH_OK ? error : NULL);
    return status != BERTH_OK ? status : released;
}

/*
 * Which experts are used is known when the router has been computed. As many as there
 * are slots at a time, in their order: sums come out the same, however many that are.
 */
static berth_status
run_experts(llama_run *run, llama_stage *stage, berth_error *error)
{
    const uint32_t experts = run->options.config->experts;
    berth_status status = run->engine->table->settle(run->engine, error);

    for (uint32_t i = 0, end; i < experts && status == BERTH_OK; i = end) {
        uint32_t count = 0;

        for (end = i; end < experts && count < stage->expert_slots; end++)
            if (run->engine->counts[end] > 0)
                run->experts[count++] = end;
        if (count > 0)
            status = run_group(run, stage, i, end, count, error);
    }
    return status;
}

static berth_status
run_stage(llama_run *run, uint32_t number, berth_error *error)
{
    llama_engine *const engine = run->engine;
    llama_stage *const stage = &run->weights.stages[number];
    void *const stream = llama_stream(engine, stage->device);
    berth_status status = llama_lease_acquire(run->options.model, stage->layers,
                                              stage->layer_count, stream, error);

    if (status != BERTH_OK)
        return status;
    status = llama_weights_take(&run->weights, stage, error);
    if (status == BERTH_OK)
        status = engine->table->compute(engine, stage, number, error);
    if (status == BERTH_OK && stage->expert_slots > 0)
        status = run_experts(run, stage, error);
    return llama_lease_release(run->options.model, stage->layers, stage->layer_count,
                               stream, status, error);
}

/* ----------------------------------------------------------------------- interface */

/* Tokens of one batch: through all layers, and the head where it is wanted. */
static berth_status
run_pass(llama_run *run, const llama_pass *pass, berth_error *error)
{
    llama_engine *const engine = run->engine;
    const bool has_head = pass->logits != NULL || pass->next != NULL;
    const uint32_t stages = has_head ? run->weights.stage_count : run->options.config->layers;
    berth_status status;

    run->pass = *pass;
    status = engine->table->begin(engine, error);
    for (uint32_t i = 0; i < stages && status == BERTH_OK; i++)
        status = run_stage(run, i, error);
    if (status == BERTH_OK)
        status = engine->table->settle(engine, error);
    else
        engine->table->settle(engine, NULL); /* nothing of ours may be used when this returns */
    if (status == BERTH_OK)
        run->length += pass->count;
    return status;
}

static berth_status
check_tokens(const llama_run *run, const uint32_t *tokens, uint32_t count,
             berth_error *error)
{
    const llama_run_options *const o = &run->options;

    if (count == 0 || count > o->capacity - run->length)
        return llama_fail(error, BERTH_EINVAL, "tokens",
                          "%u behind %u others: the sequence has room for 1 to %u",
                          (unsigned)count, (unsigned)run->length,
                          (unsigned)(o->capacity - run->length));
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
        const llama_pass pass = {
            .tokens = tokens + i,
            .count = part,
            .position = run->length,
            .wants_all = wants_all,
            .logits = wants_all ? logits + (uint64_t)i * run->options.config->vocab
                      : is_last ? logits
                                : NULL,
        };

        status = run_pass(run, &pass, error);
    }
    return status;
}

berth_status
llama_run_step(llama_run *run, uint32_t token, float *room, uint32_t *next,
               berth_error *error)
{
    const bool is_device = run->options.compute == LLAMA_COMPUTE_DEVICE;
    const llama_pass pass = {
        .tokens = &token,
        .count = 1,
        .position = run->length,
        .logits = is_device ? NULL : room,
        .next = is_device ? next : NULL,
    };
    berth_status status = check_tokens(run, &token, 1, error);

    if (status == BERTH_OK)
        status = run_pass(run, &pass, error);
    if (status == BERTH_OK && !is_device)
        *next = llama_math_largest(room, run->options.config->vocab);
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
    return run->engine->threads;
}
