/* SPDX-License-Identifier: Apache-2.0 */
/* server_engine.c - see server_engine.h. */
#include "tests/server_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a layer's bytes come to, on the device and in its order. */
typedef struct layer_work {
    uint64_t sum;
    uint32_t count;
    berth_model_part parts[16];
} layer_work;

/* ------------------------------------------------------------------ what there is */

/*
 * What the stream was asked for is done, and reads neither work nor layers any more. Where
 * that cannot be said, the work stays until it can, or the devices are closed.
 */
static berth_status
settle(server_engine *e, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (e->work != NULL)
        status = berth_stream_wait(e->devices, 0, NULL, e->wait_ms, error);
    if (status != BERTH_OK)
        return status;
    free(e->work);
    e->work = NULL;
    return BERTH_OK;
}

static void
close_devices(server_engine *e)
{
    berth_devices_close(e->devices);
    e->devices = NULL;
    free(e->work);
    e->work = NULL;
}

static void
open_devices(server_engine *e)
{
    close_devices(e);
    e->status = berth_devices_open(e->context, e->argument, &e->devices, &e->error);
}

static void
give_back(server_engine *e, server_seat *seat)
{
    (void)settle(e, NULL);
    berth_model_destroy(seat->model);
    berth_plan_destroy(seat->plan);
    berth_checkpoint_close(seat->checkpoint);
    *seat = (server_seat){ .model = NULL };
}

static void
open_model(server_engine *e)
{
    server_seat *const seat = e->seat;
    berth_plan_options options;

    give_back(e, seat);
    berth_plan_options_init(&options);
    options.max_memory = e->memory;
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 0;
    e->status =
        berth_checkpoint_open(e->context, e->argument, NULL, &seat->checkpoint, &e->error);
    if (e->status == BERTH_OK)
        e->status = berth_plan_create(e->context, seat->checkpoint, &options, &seat->plan,
                                      &e->error);
    if (e->status != BERTH_OK)
        give_back(e, seat);
}

/* ------------------------------------------------------------------------- passes */

static void
add_part(layer_work *work, const berth_model_part *part)
{
    const uint8_t *const bytes = part->memory;
    uint64_t sum = work->sum;

    for (uint64_t i = 0; bytes != NULL && i < part->bytes; i += 64)
        sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    work->sum = sum;
}

static void
sum_layer(void *user)
{
    layer_work *const work = user;

    for (uint32_t i = 0; i < work->count; i++)
        add_part(work, &work->parts[i]);
}

/* The first tensors of the layer: reading every byte would only take time. */
static void
find_parts(const server_seat *seat, uint32_t layer, layer_work *work)
{
    berth_plan_summary summary;

    berth_plan_get(seat->plan, &summary);
    work->count = 0;
    for (uint64_t i = 0; i < summary.berth_count && work->count < 16; i++) {
        berth_model_tensor tensor;

        if (berth_model_get_tensor(seat->model, i, &tensor) == BERTH_OK
            && tensor.layer == layer && tensor.part_count > 0)
            work->parts[work->count++] = tensor.parts[0];
    }
}

static void
use_layer(server_engine *e, layer_work *work, uint32_t layer)
{
    e->status = berth_layer_acquire(e->seat->model, layer, NULL, &e->error);
    if (e->status != BERTH_OK)
        return;
    find_parts(e->seat, layer, work);
    e->status = berth_stream_call(e->devices, 0, NULL, sum_layer, work, 1e-5, &e->error);
    if (e->status == BERTH_OK)
        e->status = berth_layer_release(e->seat->model, layer, NULL, &e->error);
    else
        (void)berth_layer_release(e->seat->model, layer, NULL, NULL);
    if (e->status == BERTH_OK)
        e->status = berth_stream_wait(e->devices, 0, NULL, e->wait_ms, &e->error);
}

static void
pass(server_engine *e)
{
    const long count = strtol(e->argument, NULL, 10);
    berth_plan_summary summary;

    e->status = e->seat->model != NULL ? settle(e, &e->error) : BERTH_ENOENT;
    if (e->status != BERTH_OK)
        return;
    e->work = calloc(1, sizeof *e->work);
    e->status = e->work != NULL ? BERTH_OK : BERTH_ENOMEM;
    berth_plan_get(e->seat->plan, &summary);
    for (long i = 0; i < count && e->status == BERTH_OK; i++) {
        e->work->sum = UINT64_C(14695981039346656037);
        for (uint32_t k = 0; k < summary.layer_count && e->status == BERTH_OK; k++)
            use_layer(e, e->work, k);
    }
    if (e->status == BERTH_OK)
        (void)snprintf(e->answer, sizeof e->answer, "passed %llu",
                       (unsigned long long)e->work->sum);
    (void)settle(e, NULL);
}

static void
digest(server_engine *e)
{
    berth_plan_summary summary;
    uint64_t sum = 0;

    e->status = e->seat->model != NULL ? BERTH_OK : BERTH_ENOENT;
    if (e->seat->model == NULL)
        return;
    berth_plan_get(e->seat->plan, &summary);
    for (uint64_t i = 0; i < summary.berth_count && e->status == BERTH_OK; i++) {
        uint32_t crc;

        e->status = berth_model_digest(e->seat->model, i, &crc, &e->error);
        sum = sum * 31 + crc;
    }
    (void)snprintf(e->answer, sizeof e->answer, "digest %llu", (unsigned long long)sum);
}

/* ------------------------------------------------------------------------- misuse */

static const char *
reason_of(berth_status status, const berth_error *error)
{
    return status == BERTH_OK ? "ok" : berth_reason_name(error->reason);
}

/*
 * A lease that is given back without having been taken, or once more than it was, and one
 * of a layer that there is not. A model that cannot be leased says so each time.
 */
static void
misuse(server_engine *e)
{
    berth_model *const model = e->seat->model;
    const char *reasons[3];
    berth_plan_summary summary;
    berth_error error;
    berth_status status;

    e->status = model != NULL ? BERTH_OK : BERTH_ENOENT;
    if (model == NULL)
        return;
    berth_plan_get(e->seat->plan, &summary);
    reasons[0] = reason_of(berth_layer_release(model, 1, NULL, &error), &error);
    status = berth_layer_acquire(model, 1, NULL, &error);
    if (status == BERTH_OK)
        status = berth_layer_release(model, 1, NULL, &error);
    if (status == BERTH_OK)
        status = berth_layer_release(model, 1, NULL, &error);
    reasons[1] = reason_of(status, &error);
    reasons[2] =
        reason_of(berth_layer_acquire(model, summary.layer_count, NULL, &error), &error);
    (void)snprintf(e->answer, sizeof e->answer, "misused %s %s %s", reasons[0], reasons[1],
                   reasons[2]);
}

/* ------------------------------------------------------------------------- orders */

static void
obey(server_engine *e, server_order what)
{
    e->status = BERTH_OK;
    memset(&e->error, 0, sizeof e->error);
    (void)snprintf(e->answer, sizeof e->answer, "ok");
    switch (what) {
    case ORDER_DEVICES: open_devices(e); break;
    case ORDER_OPEN: open_model(e); break;
    case ORDER_PASS: pass(e); break;
    case ORDER_DIGEST: digest(e); break;
    case ORDER_MISUSE: misuse(e); break;
    case ORDER_UNLOAD: give_back(e, e->seat); break;
    case ORDER_NONE:
    case ORDER_END: break;
    }
}

static void *
run_engine(void *argument)
{
    server_engine *const e = argument;
    server_order what = ORDER_NONE;

    while (what != ORDER_END) {
        char name;

        pthread_mutex_lock(&e->lock);
        while (e->given == ORDER_NONE)
            pthread_cond_wait(&e->has_order, &e->lock);
        what = e->given;
        pthread_mutex_unlock(&e->lock);
        obey(e, what);
        pthread_mutex_lock(&e->lock);
        e->given = ORDER_NONE;
        pthread_mutex_unlock(&e->lock);
        name = (char)what;
        if (write(e->done, &name, 1) != 1)
            break;
    }
    return NULL;
}

void
server_engine_order(server_engine *engine, server_order what)
{
    pthread_mutex_lock(&engine->lock);
    engine->given = what;
    pthread_cond_signal(&engine->has_order);
    pthread_mutex_unlock(&engine->lock);
}

int
server_engine_begin(server_engine *engine, int done)
{
    engine->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    engine->has_order = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    engine->done = done;
    engine->wait_ms = SERVER_WAIT_MS;
    engine->seat = &engine->seats[0];
    if (berth_context_create(NULL, &engine->context, NULL) != BERTH_OK)
        return -1;
    if (pthread_create(&engine->thread, NULL, run_engine, engine) == 0)
        return 0;
    berth_context_destroy(engine->context);
    return -1;
}

uint64_t
server_engine_end(server_engine *engine)
{
    berth_memory_summary memory;

    server_engine_order(engine, ORDER_END);
    (void)pthread_join(engine->thread, NULL);
    give_back(engine, &engine->seats[0]);
    give_back(engine, &engine->seats[1]);
    close_devices(engine);
    berth_context_memory(engine->context, &memory);
    berth_context_destroy(engine->context);
    return memory.current_bytes;
}
