/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_threads.c - sixteen threads that load, lease, ask and give back at once: each
 * its own model of one checkpoint, plan and machine, and all of them the same one.
 */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/digest.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define THREADS 16u
#define LAYERS 6u
#define DEVICE "sim:512MiB,h2d=2GB/s,clock=real"

static const char *const pins[] = {"model.layers.0-2=disk", "model.layers.3=cpu"};

typedef struct crowd {
    loaded l; /* its model: the one that all use */
    pthread_t threads[THREADS];
    uint32_t crcs[512]; /* of berths */
    _Atomic uint32_t number;
    _Atomic uint64_t compared;
    _Atomic uint64_t wrong;
    _Atomic uint64_t refused; /* all slots were leased */
} crowd;

/* A tensor while its layer is leased: in the order of the stream. */
typedef struct comparison {
    crowd *all;
    uint64_t berth;
    berth_model_tensor tensor;
} comparison;

static void
compare(void *user)
{
    comparison *const c = user;
    uint32_t crc = 0;

    for (uint32_t i = 0; i < c->tensor.part_count; i++)
        crc = berthi_digest_crc32(crc, c->tensor.parts[i].memory,
                                  (size_t)c->tensor.parts[i].bytes);
    atomic_fetch_add(&c->all->compared, 1);
    if (crc != c->all->crcs[c->berth])
        atomic_fetch_add(&c->all->wrong, 1);
}

/* The tensors of a layer that is leased. */
static berth_status
compare_layer(crowd *all, berth_model *model, uint32_t layer, void *stream,
              comparison *room, berth_error *error)
{
    berth_status status = BERTH_OK;
    uint32_t count = 0;

    for (uint64_t i = 0; i < all->l.p.summary.berth_count && status == BERTH_OK; i++) {
        comparison *const c = &room[count];

        c->all = all;
        c->berth = i;
        if (!CHECK_EQ(berth_model_get_tensor(model, i, &c->tensor), BERTH_OK)
            || c->tensor.layer != layer || c->tensor.elements == 0 || count == 15)
            continue;
        count++;
        status = berth_stream_call(all->l.devices, 0, stream, compare, c, 0, error);
    }
    return status;
}

/* One layer: BERTH_ENOFIT where others have all slots. */
static berth_status
use(crowd *all, berth_model *model, uint32_t layer, void *stream, comparison *room,
    berth_error *error)
{
    berth_status status = berth_layer_acquire(model, layer, stream, error);

    if (status != BERTH_OK)
        return status;
    status = compare_layer(all, model, layer, stream, room, error);
    CHECK_EQ(berth_layer_release(model, layer, stream, error), BERTH_OK);
    /* `room` is used by what was asked for. */
    CHECK_EQ(berth_stream_wait(all->l.devices, 0, stream, -1, error), BERTH_OK);
    return status;
}

static void
pass(crowd *all, berth_model *model, void *stream, comparison *room)
{
    berth_error error;

    for (uint32_t i = 0; i < all->l.p.summary.layer_count; i++)
        if (!CHECK_EQ(use(all, model, i, stream, room, &error), BERTH_OK))
            T_NOTE("%s", error.message);
}

/* ------------------------------------------------------------------ a model for each */

static void *
load_and_lease(void *argument)
{
    crowd *const all = argument;
    const uint32_t number = atomic_fetch_add(&all->number, 1);
    comparison *const room = calloc(16, sizeof *room);
    berth_load_options options = all->l.options;
    void *stream = NULL;
    berth_model *model;
    berth_error error;
    berth_job *job;

    options.report = NULL;
    options.workers = 1 + number % 3;
    options.no_uring = number % 2 == 0;
    CHECK_EQ(berth_stream_create(all->l.devices, 0, &stream, &error), BERTH_OK);
    for (uint32_t i = 0; i < 3; i++) {
        if (!CHECK_EQ(berth_load_start(all->l.p.context, all->l.p.checkpoint,
                                       all->l.p.plan, &options, &job, &error),
                      BERTH_OK))
            break;
        if ((number + i) % 5 == 4)
            berth_job_cancel(job);
        if (berth_load_finish(job, &model, &error) != BERTH_OK) {
            CHECK_EQ(error.status, BERTH_ECANCELLED);
            continue;
        }
        for (uint32_t p = 0; p < 2; p++)
            pass(all, model, stream, room);
        berth_model_destroy(model);
    }
    berth_stream_destroy(all->l.devices, 0, stream);
    free(room);
    return NULL;
}

/* --------------------------------------------------------------------- one for all */

static void *
lease_together(void *argument)
{
    crowd *const all = argument;
    uint32_t random = atomic_fetch_add(&all->number, 1) + 1;
    comparison *const room = calloc(16, sizeof *room);
    void *stream = NULL;
    berth_lease_summary summary;
    berth_error error;

    CHECK_EQ(berth_stream_create(all->l.devices, 0, &stream, &error), BERTH_OK);
    for (uint32_t i = 0; i < 40; i++) {
        const uint32_t count = all->l.p.summary.layer_count;
        berth_status status;

        random = random * 1664525u + 1013904223u;
        status = use(all, all->l.model, (random >> 8) % count, stream, room, &error);
        if (status == BERTH_ENOFIT)
            atomic_fetch_add(&all->refused, 1);
        else if (!CHECK_EQ(status, BERTH_OK))
            T_NOTE("%s", error.message);
        berth_model_leases(all->l.model, &summary);
    }
    berth_stream_destroy(all->l.devices, 0, stream);
    free(room);
    return NULL;
}

/* --------------------------------------------------------------------------- together */

static void
run_crowd(crowd *all, void *(*work)(void *argument))
{
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&all->threads[i], NULL, work, all), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(all->threads[i], NULL), 0);
    CHECK_EQ(all->wrong, 0);
    CHECK_GT(all->compared, 1000);
    T_NOTE("%llu tensors compared, %llu leases refused",
           (unsigned long long)all->compared, (unsigned long long)all->refused);
}

/* A crowd with its own model, and what lies in that. */
static void
begin(crowd *all)
{
    berth_plan_options options = loaded_options("0=8MiB,cpu=64MiB,disk=inf");

    memset(all, 0, sizeof *all);
    options.pins = pins;
    options.pin_count = 2;
    options.slots = 3;
    loaded_begin(&all->l, leased_llama(LAYERS, 2), &options, DEVICE);
    loaded_load(&all->l);
    T_REQUIRE(all->l.status == BERTH_OK && all->l.p.summary.berth_count <= 512);
    for (uint64_t i = 0; i < all->l.p.summary.berth_count; i++)
        CHECK_EQ(berth_model_digest(all->l.model, i, &all->crcs[i], NULL), BERTH_OK);
}

static void
test_a_model_for_each_thread(void)
{
    crowd all;

    begin(&all);
    run_crowd(&all, load_and_lease);
    loaded_end(&all.l);
}

static void
test_one_model_for_all_threads(void)
{
    crowd all;

    begin(&all);
    run_crowd(&all, lease_together);
    loaded_end(&all.l);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_a_model_for_each_thread);
    T_RUN(test_one_model_for_all_threads);
    return t_end();
}
