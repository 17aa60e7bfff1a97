/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_device.c - an engine on the devices that the plan computes layers on. What goes from
 * layer to layer lies in memory of the device that computes the layer, and goes through host
 * memory where the next one is another's.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/llama_embedding.h"
#include "tools/llama_engine.h"
#include "tools/llama_error.h"
#include "tools/llama_lease.h"
#include "tools/llama_place.h"

typedef struct device_engine {
    llama_engine base;
    llama_embedding embedding;
    berth_devices *processor; /* for stages in host memory */
    llama_place *places;      /* of the devices, and of the processor behind them */
    llama_place *at;          /* where hidden is; NULL: nowhere yet */
    float *hidden;            /* on its way to another place */
    uint32_t *numbers;        /* of experts, of the sparse stage computed last */
    uint32_t *slots;
    uint32_t *counts;         /* tokens of each expert */
} device_engine;

/* What berth.h says of berth_attend and berth_choose. */
#define HEAD_WIDTH_MAX   256u
#define EXPERTS_MAX      1024u
#define EXPERTS_USED_MAX 64u

/* ------------------------------------------------------------------------ creating */

berth_status
llama_device_check(const llama_config *config, berth_error *error)
{
    const struct {
        const char *key; /* of config.json; of several the first that some family has */
        uint32_t value;
        uint32_t most;
    } limits[] = { { "head_dim", config->head_dim, HEAD_WIDTH_MAX },
                   { "num_experts", config->experts, EXPERTS_MAX },
                   { "num_experts_per_tok", config->experts_used, EXPERTS_USED_MAX } };

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].value > limits[i].most)
            return llama_fail(error, BERTH_EUNSUPPORTED, limits[i].key,
                              "is %" PRIu32 ", and devices compute %" PRIu32 " at most: take "
                              "--compute host",
                              limits[i].value, limits[i].most);
    return BERTH_OK;
}

static bool
is_used(const llama_engine *engine, const berth_model_tensor *embedding, uint32_t device)
{
    const llama_weights *const w = engine->weights;

    for (uint32_t i = 0; i < w->stage_count; i++)
        if (w->stages[i].device == device)
            return true;
    return embedding->device == device;
}

static berth_status
make_places(device_engine *e, berth_error *error)
{
    llama_engine *const engine = &e->base;
    const llama_run_options *const o = engine->options;
    berth_model_tensor embedding;
    bool is_away;
    berth_status status = llama_embedding_find(&e->embedding, &embedding, &is_away, error);

    e->places = calloc(engine->device_count + 1, sizeof *e->places);
    if (status == BERTH_OK && e->places == NULL)
        status = llama_fail(error, BERTH_ENOMEM, NULL, "no memory for places");
    for (uint32_t i = 0; i < engine->device_count && status == BERTH_OK; i++)
        if (is_used(engine, &embedding, i))
            status = llama_place_init(&e->places[i], engine, o->devices, i, i,
                                      o->activations, error);
    if (status != BERTH_OK || !is_used(engine, &embedding, BERTH_NO_INDEX))
        return status;
    status = berth_devices_open(o->context, "cpu", &e->processor, error);
    return status == BERTH_OK
               ? llama_place_init(&e->places[engine->device_count], engine, e->processor, 0,
                                  BERTH_NO_INDEX, o->activations, error)
               : status;
}

static berth_status
create(device_engine *e, berth_error *error)
{
    const llama_run_options *const o = e->base.options;
    const uint64_t slots = (uint64_t)o->batch * o->config->experts_used + 1;
    berth_status status = llama_embedding_init(&e->embedding, o,
                                               e->base.weights->embedding.berth, error);

    if (status != BERTH_OK)
        return status;
    e->hidden = malloc((uint64_t)o->batch * o->config->hidden * sizeof *e->hidden);
    e->numbers = calloc(slots, sizeof *e->numbers);
    e->slots = calloc(slots, sizeof *e->slots);
    e->counts = calloc(o->config->experts + 1u, sizeof *e->counts);
    e->base.counts = e->counts;
    if (e->hidden == NULL || e->numbers == NULL || e->slots == NULL || e->counts == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for %u tokens at once",
                          (unsigned)o->batch);
    return make_places(e, error);
}

static void
device_destroy(llama_engine *engine)
{
    device_engine *const e = (device_engine *)engine;

    for (uint32_t i = 0; i <= engine->device_count && e->places != NULL; i++)
        llama_place_free(&e->places[i]);
    berth_devices_close(e->processor);
    llama_embedding_free(&e->embedding);
    free(e->places);
    free(e->hidden);
    free(e->numbers);
    free(e->slots);
    free(e->counts);
    free(e);
}

/* -------------------------------------------------------------------------- places */

static llama_place *
place_of(const device_engine *e, uint32_t device)
{
    const uint32_t count = e->base.device_count;

    return &e->places[device < count ? device : count];
}

static uint64_t
hidden_bytes(const device_engine *e)
{
    return (uint64_t)e->base.pass->count * e->base.options->config->hidden
           * sizeof *e->hidden;
}

/* From where it is; the processor is none of the devices. */
static berth_status
hand_on(device_engine *e, const llama_place *place, berth_error *error)
{
    const uint64_t bytes = hidden_bytes(e);
    berth_status status = e->at != NULL ? llama_place_settle(e->at, error) : BERTH_OK;

    if (status != BERTH_OK)
        return status;
    if (e->at != NULL && e->at->devices == place->devices)
        return llama_place_send(e->at, place, bytes, error);
    if (e->at != NULL)
        status = llama_place_read(e->at, e->hidden, e->at->hidden, bytes, error);
    return status == BERTH_OK
               ? llama_place_write(place, place->hidden, e->hidden, bytes, error)
               : status;
}

/* What the layer before has left is where this one is computed. */
static berth_status
go_to(device_engine *e, llama_place *place, berth_error *error)
{
    const berth_status status = e->at != place ? hand_on(e, place, error) : BERTH_OK;

    if (status == BERTH_OK)
        e->at = place;
    return status;
}

static berth_status
device_settle(llama_engine *engine, berth_error *error)
{
    const device_engine *const e = (const device_engine *)engine;

    return e->at != NULL ? berth_stream_wait(e->at->devices, e->at->number, e->at->stream,
                                             -1, error)
                         : BERTH_OK;
}

/* --------------------------------------------------------------------------- stages */

/* Rows that lie on a device are taken there, others are brought. */
static berth_status
device_begin(llama_engine *engine, berth_error *error)
{
    device_engine *const e = (device_engine *)engine;
    berth_model *const model = engine->options->model;
    berth_model_tensor tensor;
    bool is_away;
    berth_status status = llama_embedding_find(&e->embedding, &tensor, &is_away, error);

    if (e->at != NULL)
        e->at->is_owed = false; /* by a pass that is over */
    e->at = NULL;
    if (status != BERTH_OK)
        return status;
    if (!is_away)
        return llama_embedding_fetch(&e->embedding, engine->pass->tokens,
                                     engine->pass->count, e->hidden, error);
    e->at = place_of(e, tensor.device);
    status = llama_lease_acquire(model, &tensor.layer, 1, e->at->stream, error);
    if (status != BERTH_OK)
        return status;
    status = llama_place_take(e->at, &tensor, error);
    return llama_lease_release(model, &tensor.layer, 1, e->at->stream, status, error);
}

/* Who is whose: slots in the order of the experts. */
static void
sort_slots(device_engine *e)
{
    const llama_config *const c = e->base.options->config;
    const uint32_t slots = e->base.pass->count * c->experts_used;
    uint32_t used = 0;

    for (uint32_t expert = 0; expert < c->experts; expert++) {
        const uint32_t first = used;

        for (uint32_t i = 0; i < slots; i++)
            if (e->numbers[i] == expert)
                e->slots[used++] = i;
        e->counts[expert] = used - first;
    }
}

static berth_status
device_experts(llama_engine *engine, const llama_stage *stage, uint32_t first, uint32_t end,
               berth_error *error)
{
    const device_engine *const e = (const device_engine *)engine;
    uint64_t slot = 0;

    for (uint32_t i = 0; i < first; i++)
        slot += e->counts[i];
    return llama_place_experts(e->at, stage, first, end, slot, error);
}

static berth_status
compute_sparse(device_engine *e, const llama_stage *stage, berth_error *error)
{
    berth_status status = llama_place_route(e->at, stage, e->numbers, error);

    if (status != BERTH_OK)
        return status;
    sort_slots(e);
    status = llama_place_gather(e->at, e->slots, error);
    return status == BERTH_OK && stage->expert_slots == 0
               ? device_experts(&e->base, stage, 0, e->base.options->config->experts, error)
               : status;
}

static berth_status
device_compute(llama_engine *engine, const llama_stage *stage, uint32_t number,
               berth_error *error)
{
    device_engine *const e = (device_engine *)engine;
    const llama_config *const c = engine->options->config;
    berth_status status = go_to(e, place_of(e, stage->device), error);

    if (status != BERTH_OK)
        return status;
    if (number >= c->layers)
        return llama_stage_has(stage, LLAMA_HEAD) ? llama_place_head(e->at, stage, error)
                                                  : llama_place_norm(e->at, stage, error);
    status = llama_place_attend(e->at, stage, number, error);
    if (status != BERTH_OK)
        return status;
    return c->is_sparse[number] ? compute_sparse(e, stage, error)
                                : llama_place_dense(e->at, stage, error);
}

/* ----------------------------------------------------------------------- interface */

static const llama_engine_table device_table = {
    .destroy = device_destroy,
    .begin = device_begin,
    .compute = device_compute,
    .experts = device_experts,
    .settle = device_settle,
};

berth_status
llama_device_create(const llama_engine *from, llama_engine **out, berth_error *error)
{
    device_engine *const e = calloc(1, sizeof *e);
    berth_status status;

    *out = NULL;
    if (e == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for a run");
    e->base = *from;
    e->base.table = &device_table;
    status = create(e, error);
    if (status == BERTH_OK)
        *out = &e->base;
    else
        device_destroy(&e->base);
    return status;
}
