/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model_storm.c - a model that threads lease, lend out and ask about while one of them
 * puts it to sleep, wakes it and moves it from plan to plan, and others load, cancel and give
 * memory back beside it: each call is served or refused, no byte is wrong, nothing is kept. So it
 * is where allocations, system calls and calls of the device fail meanwhile, at random.
 *
 * A plan that the model has left is destroyed at once: nobody may still look at it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "loader/dlpack.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define LAYERS 6u
#define MS     UINT64_C(1000000)
#define MET    20u /* layers used, and calls failed: more have to be */

/* The first half of the layers is streamed by each plan; the second where it is. */
static const char *const pins[2][3] = {
    { "model.layers.0-1=cpu", "model.layers.2=disk", "model.layers.3-5=cuda:0" },
    { "model.layers.0=disk", "model.layers.1-2=cpu", "model.layers.3-4=cpu" },
};

typedef struct storm {
    loaded l;
    uint32_t crcs[512]; /* of berths */
    _Atomic bool is_over;
    _Atomic uint32_t number; /* of threads */
    _Atomic uint64_t used;   /* layers */
    _Atomic uint64_t wrong;
    _Atomic uint64_t refused;
    _Atomic uint64_t failed;
    bool has_failures;       /* calls fail, until it is over */
    uint32_t rounds;         /* of moves */
    uint64_t moves;
} storm;

static bool
is_over(storm *s)
{
    return atomic_load(&s->is_over);
}

/* Of a model that is moved, or whose slots others have. */
static bool
is_refusal(const berth_error *error)
{
    return error->reason == BERTH_REASON_MOVING || error->reason == BERTH_REASON_ASLEEP
           || error->reason == BERTH_REASON_SLOTS || error->reason == BERTH_REASON_LEASED
           || error->reason == BERTH_REASON_EXPORTED;
}

/* What a call that was made to fail ends with, be it by another thread's part in it. */
static bool
is_failure(const storm *s, const berth_error *error)
{
    return s->has_failures && error->status != BERTH_OK && error->status != BERTH_EINTERNAL
           && error->status != BERTH_EINVAL && error->status != BERTH_EINTEGRITY
           && error->message[0] != '\0';
}

/* True where it was served; refusals are counted, and failures; nothing else is allowed. */
static bool
is_served(storm *s, berth_status status, const berth_error *error)
{
    if (status == BERTH_OK)
        return true;
    if (is_refusal(error))
        atomic_fetch_add(&s->refused, 1);
    else if (CHECK(is_failure(s, error)))
        atomic_fetch_add(&s->failed, 1);
    else
        t_note("%s", error->message);
    berthi_sys_sleep(MS / 5);
    return false;
}

/* ------------------------------------------------------------------------- leases */

typedef struct comparison {
    storm *storm;
    uint64_t berth;
    berth_model_tensor tensor;
} comparison;

static void
compare(void *user)
{
    comparison *const c = user;
    uint32_t crc = 0;

    for (uint32_t i = 0; i < c->tensor.part_count; i++)
        if (CHECK(c->tensor.parts[i].memory != NULL))
            crc = berthi_digest_crc32(crc, c->tensor.parts[i].memory,
                                      (size_t)c->tensor.parts[i].bytes);
    atomic_fetch_add(&c->storm->wrong, crc != c->storm->crcs[c->berth]);
}

/* A matrix of a layer that is streamed by every plan, and leased now. */
static void
use_layer(storm *s, uint32_t layer, void *stream, comparison *c)
{
    static const char *const matrices[] = { "self_attn.q_proj", "mlp.up_proj", "mlp.down_proj" };
    const char *const name = matrices[atomic_fetch_add(&s->used, 1) % 3];
    char text[64];
    berth_error error;

    snprintf(text, sizeof text, "model.layers.%u.%s.weight", layer, name);
    *c = (comparison){ .storm = s,
                       .berth = berth_model_find(s->l.model, text, strlen(text)) };
    CHECK_EQ(berth_model_get_tensor(s->l.model, c->berth, &c->tensor), BERTH_OK);
    (void)is_served(s, berth_stream_call(s->l.devices, 0, stream, compare, c, 1e-5, &error),
                    &error);
}

/* What has failed is as it was: it is done again until it is done. */
static void
give_back(storm *s, uint32_t layer, void *stream)
{
    berth_error error;

    while (!is_served(s, berth_layer_release(s->l.model, layer, stream, &error), &error))
        CHECK(is_failure(s, &error));
    while (!is_served(s, berth_stream_wait(s->l.devices, 0, stream, -1, &error), &error))
        CHECK(is_failure(s, &error));
}

static void *
lease(void *argument)
{
    storm *const s = argument;
    uint32_t random = 7 * atomic_fetch_add(&s->number, 1) + 1;
    void *stream = NULL;
    berth_error error;
    comparison c;

    while (!is_served(s, berth_stream_create(s->l.devices, 0, &stream, &error), &error))
        continue;
    while (!is_over(s)) {
        uint32_t layer; /* of the plan: the embedding is the first */

        random = random * 1664525u + 1013904223u;
        layer = (random >> 8) % 3;
        CHECK_EQ(berth_layer_acquire(s->l.model, UINT32_MAX, stream, &error), BERTH_EINVAL);
        if (!is_served(s, berth_layer_acquire(s->l.model, layer + 1, stream, &error), &error))
            continue;
        use_layer(s, layer, stream, &c);
        give_back(s, layer + 1, stream);
        if (random % 4 == 0)
            berthi_sys_sleep(MS);
    }
    berth_stream_destroy(s->l.devices, 0, stream);
    return NULL;
}

/* -------------------------------------------------------------------------- asking */

/* Digests, and tensors that others have for a moment. */
static void *
look(void *argument)
{
    storm *const s = argument;
    const uint64_t count = s->l.p.summary.berth_count;
    struct DLManagedTensorVersioned *lent;
    berth_error error;
    uint32_t crc;

    for (uint64_t i = 0; !is_over(s); i++) {
        const uint64_t berth = i * 7 % count;

        if (is_served(s, berth_model_digest(s->l.model, berth, &crc, &error), &error))
            atomic_fetch_add(&s->wrong, crc != s->crcs[berth]);
        if (berth_model_dlpack(s->l.model, berth, 0, &lent, &error) == BERTH_OK)
            lent->deleter(lent);
        else
            CHECK(is_refusal(&error) || is_failure(s, &error)
                  || error.status == BERTH_EUNSUPPORTED);
        CHECK_EQ(berth_model_digest(s->l.model, count, &crc, &error), BERTH_EINVAL);
        berthi_sys_sleep(MS / 2);
    }
    return NULL;
}

/* What "any thread" may ask at any time. */
static void *
account(void *argument)
{
    storm *const s = argument;
    berth_context *const context = s->l.p.context;
    berth_lease_summary before = { .acquired = 0 };
    berth_lease_summary leases;
    char text[4096];

    while (!is_over(s)) {
        berth_memory memory;

        (void)berth_context_trim(context);
        CHECK_GT(berth_memory_print(context, BERTH_MEMORY_JSON, text, sizeof text), 0);
        for (uint32_t t = 0; t < berth_memory_tiers(context); t++) {
            CHECK_EQ(berth_memory_get(context, t, BERTH_MEMORY_ALL, &memory), BERTH_OK);
            CHECK_LE(memory.current_bytes, memory.peak_bytes);
        }
        CHECK_LE(berth_model_get_state(s->l.model), BERTH_MODEL_MOVING);
        berth_model_leases(s->l.model, &leases);
        CHECK_GE(leases.acquired, before.acquired); /* what was counted stays counted */
        CHECK_GE(leases.copied_bytes, before.copied_bytes);
        before = leases;
        berthi_sys_sleep(MS / 10);
    }
    return NULL;
}

/* A second model on the same device; every other load is cancelled somewhere. */
static void *
load_beside(void *argument)
{
    storm *const s = argument;
    berth_load_options options = s->l.options;

    options.report = NULL;
    for (uint32_t i = 0; !is_over(s); i++) {
        berth_model *model = NULL;
        berth_progress progress;
        berth_error error;
        berth_job *job;

        if (!is_served(s,
                       berth_load_start(s->l.p.context, s->l.p.checkpoint, s->l.p.plan,
                                        &options, &job, &error),
                       &error))
            continue;
        berth_job_poll(job, &progress);
        berthi_sys_sleep(i % 8 * MS / 4);
        if (i % 2 == 0)
            berth_job_cancel(job);
        if (berth_load_finish(job, &model, &error) != BERTH_OK)
            CHECK(error.status == BERTH_ECANCELLED || is_failure(s, &error));
        berth_model_destroy(model);
    }
    return NULL;
}

/* --------------------------------------------------------------------------- moves */

static berth_plan *
plan_of(storm *s, uint32_t which)
{
    berth_plan_options options = loaded_options("0=16MiB,cpu=64MiB,disk=inf");
    berth_plan *plan = NULL;
    berth_error error;

    options.pins = pins[which];
    options.pin_count = 3;
    options.slots = 2 + which;
    while (!is_served(s,
                      berth_plan_create(s->l.p.context, s->l.p.checkpoint, &options, &plan,
                                        &error),
                      &error))
        CHECK(is_failure(s, &error));
    return plan;
}

static bool
has_moved(storm *s, berth_status status, berth_job *job, berth_error *error, bool is_cancelled)
{
    if (status == BERTH_OK) {
        if (is_cancelled)
            berth_job_cancel(job);
        status = berth_job_finish(job, error);
    }
    if (status == BERTH_ECANCELLED && is_cancelled)
        return false;
    s->moves += status == BERTH_OK;
    return is_served(s, status, error);
}

/* Away and back; where it cannot sleep it stays awake, and the other way round. */
static void
sleep_and_wake(storm *s, uint32_t round)
{
    berth_job *job = NULL;
    berth_error error;
    berth_status status = berth_model_sleep_start(s->l.model, NULL, &job, &error);
    bool is_asleep = has_moved(s, status, job, &error, round % 5 == 1);

    for (uint32_t i = 0; is_asleep; i++) {
        status = berth_model_wake_start(s->l.model, NULL, &job, &error);
        is_asleep = !has_moved(s, status, job, &error, i < round % 3);
    }
}

/* A move that has failed may have left it asleep. */
static void
wake_up(storm *s)
{
    berth_job *job = NULL;
    berth_error error;

    while (berth_model_get_state(s->l.model) == BERTH_MODEL_ASLEEP) {
        const berth_status status = berth_model_wake_start(s->l.model, NULL, &job, &error);

        CHECK(has_moved(s, status, job, &error, false) || s->has_failures);
    }
}

/* The plan that it has left is gone at once. */
static void
move(storm *s, uint32_t round, berth_plan **now, uint32_t *which)
{
    berth_plan *const next = plan_of(s, 1 - *which);
    berth_job *job = NULL;
    berth_error error;
    const berth_status status = berth_model_move_start(s->l.model, next, NULL, &job, &error);

    if (!has_moved(s, status, job, &error, round % 7 == 3)) {
        wake_up(s);
        berth_plan_destroy(next);
        return;
    }
    berth_plan_destroy(*now);
    *now = next;
    *which = 1 - *which;
}

/* Calls fail: one of the next hundreds, or all of them for a while. */
static void *
fail_calls(void *argument)
{
    storm *const s = argument;
    uint32_t random = 1;

    while (!is_over(s)) {
        random = random * 1664525u + 1013904223u;
        berthi_fault_arm((berthi_fault_kind)((random >> 8) % BERTHI_FAULT_KIND_COUNT),
                         (random >> 16) % 300, (random >> 12) % 8 == 0);
        berthi_sys_sleep(MS * ((random >> 20) % 4 + 1) / 2);
    }
    berthi_fault_disarm();
    return NULL;
}

static void
begin(storm *s, const char *words, bool has_failures)
{
    berth_plan_options options = loaded_options("0=16MiB,cpu=64MiB,disk=inf");

    memset(s, 0, sizeof *s);
    s->has_failures = has_failures;
    s->rounds = getenv("T_THOROUGH") != NULL ? 800 : T_HAS_THREADS_WATCHED ? 24 : 80;
    options.pins = pins[0];
    options.pin_count = 3;
    loaded_begin(&s->l, loaded_llama(LAYERS, "BF16", 2), &options, words);
    loaded_load(&s->l);
    T_REQUIRE(s->l.status == BERTH_OK && s->l.p.summary.berth_count <= 512);
    for (uint64_t i = 0; i < s->l.p.summary.berth_count; i++)
        CHECK_EQ(berth_model_digest(s->l.model, i, &s->crcs[i], NULL), BERTH_OK);
}

static void
move_to(storm *s, const berth_plan *plan)
{
    berth_job *job = NULL;
    berth_error error;
    berth_status status = berth_model_move_start(s->l.model, plan, NULL, &job, &error);

    while (!has_moved(s, status, job, &error, false)) {
        wake_up(s);
        status = berth_model_move_start(s->l.model, plan, NULL, &job, &error);
    }
}

/* All rounds, and more until as much has been met as tells something. */
static bool
is_enough(const storm *s, uint32_t round)
{
    const bool has_met = s->moves > s->rounds / 4 && atomic_load(&s->used) > MET
                         && (!s->has_failures || atomic_load(&s->failed) > MET);

    return round >= s->rounds && (has_met || round >= 20 * s->rounds);
}

/* Which begins and ends with the first plan, that of `loaded`. Nothing fails any more then. */
static void
move_about(storm *s)
{
    berth_plan *now = plan_of(s, 0);
    uint32_t which = 0;

    move_to(s, now);
    for (uint32_t round = 0; !is_enough(s, round); round++) {
        if (round % 2 == 0)
            sleep_and_wake(s, round);
        else
            move(s, round, &now, &which);
        berthi_sys_sleep(MS);
    }
    atomic_store(&s->is_over, true);
    move_to(s, s->l.p.plan);
    berth_plan_destroy(now);
}

static void
check_end(const storm *s)
{
    CHECK_EQ(s->wrong, 0);
    CHECK_GT(s->moves, s->rounds / 4);
    CHECK_GT(s->used, MET);
    for (uint64_t i = 0; i < s->l.p.summary.berth_count; i++) {
        uint32_t crc;

        CHECK_EQ(berth_model_digest(s->l.model, i, &crc, NULL), BERTH_OK);
        CHECK_EQ(crc, s->crcs[i]);
    }
    T_NOTE("%llu moves, %llu layers used, %llu calls refused, %llu failed",
           (unsigned long long)s->moves, (unsigned long long)s->used,
           (unsigned long long)s->refused, (unsigned long long)s->failed);
}

static void
run(const char *words, bool has_failures)
{
    void *(*const works[])(void *) = { lease, lease, lease, lease, look, account, load_beside,
                                       fail_calls };
    const size_t count = sizeof works / sizeof *works - !has_failures;
    pthread_t threads[sizeof works / sizeof *works];
    storm s;

    begin(&s, words, has_failures);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, works[i], &s), 0);
    move_about(&s);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_end(&s);
    if (has_failures)
        CHECK_GT(s.failed, MET);
    loaded_end(&s.l);
}

static void
test_storm(void)
{
    run("sim:64MiB,h2d=2GB/s,clock=real", false);
}

static void
test_calls_fail(void)
{
    run("sim:64MiB,h2d=2GB/s,clock=real", true);
}

/* Staging is not pinned, nor what lies in host memory: copies wait for the device. */
static void
test_calls_fail_unpinned(void)
{
    run("sim:64MiB,h2d=2GB/s,clock=real,pin=0B", true);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_storm);
    T_RUN(test_calls_fail);
    T_RUN(test_calls_fail_unpinned);
    T_MAIN_END;
}
