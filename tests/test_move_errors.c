/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_move_errors.c - moves that fail or are cancelled at any place: no byte is lost,
 * and the model is what it was, or asleep.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/model.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/moved.h"
#include "tests/passed.h"
#include "tests/t.h"

#define LAYERS 3u
#define KIB    UINT64_C(1024)
#define MIB    (KIB * KIB)

/* What a device still does for a job that was cancelled: two pieces of 4 MiB at 100 MB/s. */
#define CANCEL_WORK_NS UINT64_C(100000000)
/* What a cancel may take of the clock, on a machine that is busy with other things, too. */
#define CANCEL_CLOCK_NS UINT64_C(10000000000)

/* -------------------------------------------------------------------- what is failed */

/* Two models of one plan, and another plan for the first one. */
typedef struct scene {
    moved m;
    berth_plan *other_plan;
    berth_model *other; /* asleep */
} scene;

typedef berth_status (*scene_function)(scene *s);

static void
scene_begin(scene *s, const char *memory, const char *other_memory, const char *words)
{
    berth_plan_options options = loaded_options(memory);
    berth_load_options load;
    berth_job *job;

    memset(s, 0, sizeof *s);
    moved_begin(&s->m, loaded_llama(LAYERS, "BF16", 2), &options, words);
    options.finding = NULL;
    options.max_memory = other_memory;
    s->other_plan = moved_plan(&s->m, &options);
    CHECK_EQ(moved_sleep(&s->m), BERTH_OK);
    berth_load_options_init(&load);
    load.devices = s->m.l.devices;
    CHECK_EQ(berth_load_start(s->m.l.p.context, s->m.l.p.checkpoint, s->m.l.p.plan, &load,
                              &job, NULL),
             BERTH_OK);
    CHECK_EQ(berth_load_finish(job, &s->other, NULL), BERTH_OK);
    if (s->other == NULL)
        abort();
    CHECK_EQ(berth_model_sleep_start(s->other, NULL, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    CHECK_EQ(moved_wake(&s->m), BERTH_OK);
}

static void
scene_end(scene *s)
{
    berth_model_destroy(s->other);
    berth_model_destroy(s->m.l.model);
    s->m.l.model = NULL;
    moved_free_plans();
    moved_end(&s->m);
}

static berth_status
sleep_other(scene *s)
{
    berth_job *job;
    const berth_status status =
        berth_model_sleep_start(s->other, NULL, &job, &s->m.error);

    return moved_finish(&s->m, status, job);
}

/* The first model as it was, whatever has happened. Returns how often it was asleep. */
static uint32_t
repair(scene *s)
{
    uint32_t count = 0;

    if (berth_model_get_state(s->other) == BERTH_MODEL_AWAKE)
        CHECK_EQ(sleep_other(s), BERTH_OK);
    if (berth_model_get_state(s->m.l.model) == BERTH_MODEL_ASLEEP) {
        count++;
        moved_is_ok(&s->m, moved_wake(&s->m));
    }
    CHECK_EQ(berth_model_get_state(s->other), BERTH_MODEL_ASLEEP);
    moved_check(&s->m);
    return count;
}

static berth_status
sleep_and_wake(scene *s)
{
    const berth_status status = moved_sleep(&s->m);

    return status == BERTH_OK ? moved_wake(&s->m) : status;
}

static berth_status
sleep_without(scene *s)
{
    berth_status status;

    s->m.options.discards = 1;
    status = sleep_and_wake(s);
    s->m.options.discards = 0;
    return status;
}

static berth_status
move_and_back(scene *s)
{
    const berth_status status = moved_move(&s->m, s->other_plan);

    return status == BERTH_OK ? moved_move(&s->m, s->m.l.p.plan) : status;
}

static berth_status
swap(scene *s)
{
    return moved_swap(&s->m, s->other);
}

/* Sanitizers make it ten times slower, and see in some of the calls what there is. */
static uint64_t
step_to_next(void)
{
    if (getenv("T_THOROUGH") != NULL)
        return 1;
    return T_HAS_THREADS_WATCHED ? 5 : T_IS_SANITIZED ? 3 : 1;
}

/* With the n-th call of a kind failing, for all n. Returns how many runs failed. */
static uint64_t
fail_each(scene *s, scene_function function, berthi_fault_kind kind, bool persistent)
{
    const uint64_t memory = moved_used(&s->m);
    uint64_t failed = 0;
    uint32_t asleep = 0;
    berth_status status;

    for (uint64_t nth = 0;; nth += step_to_next()) {
        bool is_due;

        berthi_fault_arm(kind, nth, persistent);
        status = function(s);
        is_due = berthi_fault_failures(kind) > 0;
        berthi_fault_disarm();
        failed += status != BERTH_OK;
        if (status != BERTH_OK && kind == BERTHI_FAULT_MEMORY)
            CHECK_EQ(status, BERTH_ENOMEM);
        asleep += repair(s);
        if (berth_model_get_state(s->m.l.model) == BERTH_MODEL_AWAKE)
            (void)moved_move(&s->m, s->m.l.p.plan); /* it may have got to the other */
        CHECK_EQ(moved_used(&s->m), memory);
        if (!is_due)
            break;
    }
    CHECK_EQ(status, BERTH_OK);
    T_NOTE("%llu failures, asleep after %u", (unsigned long long)failed, asleep);
    return failed;
}

static void
fail_all(scene *s, scene_function function, uint64_t least)
{
    for (uint32_t persistent = 0; persistent < 2; persistent++) {
        CHECK_GT(fail_each(s, function, BERTHI_FAULT_MEMORY, persistent), 2);
        (void)fail_each(s, function, BERTHI_FAULT_SYSTEM, persistent);
        CHECK_GT(fail_each(s, function, BERTHI_FAULT_DEVICE, persistent), least);
    }
}

static void
test_calls_fail(void)
{
    static const scene_function functions[] = {sleep_and_wake, sleep_without,
                                               move_and_back, swap};
    scene s;

    scene_begin(&s, "0=6MiB,cpu=16MiB", "0=5MiB,cpu=16MiB", "sim:6MiB,h2d=25GB/s");
    for (uint32_t i = 0; i < 4; i++)
        fail_all(&s, functions[i], 3);
    scene_end(&s);
}

static void
test_calls_fail_on_two_devices(void)
{
    scene s;

    scene_begin(&s, "0=4MiB,1=4MiB,cpu=16MiB", "0=2MiB,1=5MiB,cpu=16MiB",
                "sim:64MiB;sim:64MiB");
    fail_all(&s, move_and_back, 6);
    fail_all(&s, swap, 6);
    scene_end(&s);
}

/* ---------------------------------------------------------------------------- cancel */

/* At 0 ms before anything was done; later whenever it is, or when all has been. */
static berth_status
cancel_after(scene *s, berth_status status, berth_job *job, uint32_t ms)
{
    CHECK_EQ(status, BERTH_OK);
    (void)berth_job_wait(job, ms);
    berth_job_cancel(job);
    if (ms == 0) /* the call that hold() began */
        berthi_model_leave(s->m.l.model);
    status = moved_finish(&s->m, status, job);
    CHECK(status == BERTH_ECANCELLED || (status == BERTH_OK && ms > 0));
    return status;
}

/* A job that is started now waits for a call about the model. */
static void
hold(scene *s, uint32_t ms)
{
    if (ms == 0)
        atomic_fetch_add(&s->m.l.model->gate, 1);
}

static void
test_cancelled(void)
{
    berth_model *model;
    scene s;

    scene_begin(&s, "0=6MiB,cpu=16MiB", "0=5MiB,cpu=16MiB",
                "sim:6MiB,clock=real,h2d=200MB/s,d2h=200MB/s");
    model = s.m.l.model;
    for (uint32_t ms = 0; ms < 48; ms += (getenv("T_THOROUGH") != NULL) ? 2 : 12) {
        berth_job *job = NULL;
        berth_status status;

        hold(&s, ms);
        status = berth_model_sleep_start(model, NULL, &job, &s.m.error);
        status = cancel_after(&s, status, job, ms);
        CHECK_EQ(berth_model_get_state(model) == BERTH_MODEL_ASLEEP, status == BERTH_OK);
        if (berth_model_get_state(model) == BERTH_MODEL_AWAKE)
            CHECK_EQ(moved_sleep(&s.m), BERTH_OK);
        hold(&s, ms);
        status = berth_model_wake_start(model, NULL, &job, &s.m.error);
        status = cancel_after(&s, status, job, ms);
        CHECK_EQ(berth_model_get_state(model) == BERTH_MODEL_AWAKE, status == BERTH_OK);
        (void)repair(&s);
        hold(&s, ms);
        status = berth_model_swap_start(model, s.other, NULL, &job, &s.m.error);
        status = cancel_after(&s, status, job, ms);
        CHECK_EQ(berth_model_get_state(model) == BERTH_MODEL_AWAKE,
                 status == BERTH_ECANCELLED);
        (void)repair(&s);
        hold(&s, ms);
        status = berth_model_move_start(model, s.other_plan, NULL, &job, &s.m.error);
        status = cancel_after(&s, status, job, ms);
        CHECK_EQ(repair(&s), 0);
        CHECK_EQ(moved_move(&s.m, s.m.l.p.plan), BERTH_OK);
    }
    scene_end(&s);
}

/* Copies that put the first model to sleep. */
static uint64_t
count_copies_down(scene *s)
{
    const uint64_t before = hung_copies(s->m.l.devices);
    uint64_t count;

    CHECK_EQ(moved_sleep(&s->m), BERTH_OK);
    count = hung_copies(s->m.l.devices) - before;
    CHECK_EQ(moved_wake(&s->m), BERTH_OK);
    CHECK_GT(count, 0);
    return count;
}

/*
 * Until the copy hangs that hung_copy() has named: from then on the job gets no further, however
 * late this thread is. Whoever gives up waits for it as long as for everything else here.
 */
static void
await_hung(moved *m, berth_job *job)
{
    m->l.p.context->hung_ns = CANCEL_CLOCK_NS;
    while (!hung_has(m->l.devices) && berth_job_wait(job, 1) == BERTH_PENDING)
        continue;
    CHECK(hung_has(m->l.devices));
}

/*
 * A cancel promises that nothing has changed. Here the device is given back, then it fails, so
 * that neither model can be woken: whatever of cancel and failure is seen first, the job says
 * that its model is asleep.
 */
static void
lose_after(bool cancels_first)
{
    berth_job *job = NULL;
    berth_status status;
    uint64_t down;
    scene s;

    scene_begin(&s, "0=6MiB,cpu=16MiB", "0=5MiB,cpu=16MiB",
                "sim:6MiB,clock=real,h2d=200MB/s,d2h=200MB/s");
    down = count_copies_down(&s);
    hung_copy(s.m.l.devices, down); /* the first one of the other model, on its way up */
    status = berth_model_swap_start(s.m.l.model, s.other, NULL, &job, &s.m.error);
    T_REQUIRE(CHECK_EQ(status, BERTH_OK));
    await_hung(&s.m, job);
    if (cancels_first)
        berth_job_cancel(job);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, 0, true);
    berth_job_cancel(job);
    berthi_sim_release(berthi_devices_at(s.m.l.devices, 0));
    status = moved_finish(&s.m, status, job);
    berthi_fault_disarm();
    CHECK(status != BERTH_OK && status != BERTH_ECANCELLED);
    CHECK_CONTAINS(s.m.error.message, "is asleep");
    CHECK_EQ(berth_model_get_state(s.m.l.model), BERTH_MODEL_ASLEEP);
    CHECK_EQ(repair(&s), 1);
    scene_end(&s);
}

static void
test_cancelled_and_lost(void)
{
    lose_after(false);
    lose_after(true);
}

typedef berth_status (*starter)(moved *m, const berth_plan *other, berth_job **out);

static berth_status
start_sleep(moved *m, const berth_plan *other, berth_job **out)
{
    (void)other;
    return berth_model_sleep_start(m->l.model, NULL, out, &m->error);
}

static berth_status
start_wake(moved *m, const berth_plan *other, berth_job **out)
{
    (void)other;
    return berth_model_wake_start(m->l.model, NULL, out, &m->error);
}

static berth_status
start_move(moved *m, const berth_plan *other, berth_job **out)
{
    return berth_model_move_start(m->l.model, other, NULL, out, &m->error);
}

/*
 * For how long copies have kept the device at work, in all. It counts when they begin, by what
 * they have to copy: no machine is too busy for it.
 */
static uint64_t
device_ns(moved *m)
{
    berthi_sim *const sim = berthi_sim_of(berthi_devices_at(m->l.devices, 0))->sim;
    uint64_t ns = 0;

    pthread_mutex_lock(&sim->lock);
    for (uint32_t i = 0; i < sim->engine_count; i++)
        ns += sim->engines[i].busy_ns;
    pthread_mutex_unlock(&sim->lock);
    return ns;
}

/* At the copy after `before` others. The model is as it was. */
static void
cancel_under_way(moved *m, starter start, const berth_plan *other, uint64_t before)
{
    uint64_t cancel_ns;
    uint64_t now_ns;
    berth_job *job = NULL;
    berth_status status;

    hung_copy(m->l.devices, before);
    status = start(m, other, &job);
    CHECK_EQ(status, BERTH_OK);
    await_hung(m, job);
    cancel_ns = device_ns(m);
    now_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    berthi_sim_release(berthi_devices_at(m->l.devices, 0));
    CHECK_EQ(moved_finish(m, status, job), BERTH_ECANCELLED);
    CHECK_LE(berthi_sys_now_ns() - now_ns, CANCEL_CLOCK_NS);
    CHECK_LE(device_ns(m) - cancel_ns, CANCEL_WORK_NS);
}

static void
check_cancelled_in_time(moved *m, starter start, const berth_plan *other)
{
    for (uint64_t before = 0; before < 3; before++)
        cancel_under_way(m, start, other, before);
}

/* 38 MB, or 14 of them: whoever cancels does not wait for the rest of them. */
static void
test_cancelled_in_time(void)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    berth_plan_options other_options = loaded_options("0=26MiB,cpu=64MiB");
    berth_plan *other;
    moved m;

    moved_begin(&m, loaded_large(4, 1), &options,
                "sim:64MiB,clock=real,h2d=100MB/s,d2h=100MB/s");
    other = moved_plan(&m, &other_options);
    check_cancelled_in_time(&m, start_move, other);
    check_cancelled_in_time(&m, start_sleep, NULL);
    moved_check(&m);
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    check_cancelled_in_time(&m, start_wake, NULL);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    moved_check(&m);
    berth_model_destroy(m.l.model);
    m.l.model = NULL;
    moved_free_plans();
    moved_end(&m);
}

/* ---------------------------------------------------------------------------- misuse */

static void
test_arguments(void)
{
    berth_plan_options options = loaded_options("0=6MiB,cpu=16MiB");
    berth_move_options wrong;
    berth_error error;
    berth_job *job;
    scene s;

    scene_begin(&s, "0=6MiB,cpu=16MiB", "0=5MiB,cpu=16MiB", "sim:16MiB");
    berth_move_options_init(&wrong);
    wrong.struct_size = sizeof wrong + 8;
    CHECK_EQ(berth_model_sleep_start(NULL, NULL, &job, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "is NULL");
    CHECK(job == NULL);
    CHECK_EQ(berth_model_wake_start(s.m.l.model, NULL, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_model_move_start(s.m.l.model, NULL, NULL, &job, &error), BERTH_EINVAL);
    CHECK_EQ(berth_model_swap_start(s.m.l.model, NULL, NULL, &job, &error), BERTH_EINVAL);
    CHECK_EQ(berth_model_swap_start(s.m.l.model, s.m.l.model, NULL, &job, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT); /* no job is at it that could be waited for */
    CHECK_CONTAINS(error.message, "`other` is the model");
    CHECK_EQ(berth_model_swap_start(s.other, s.m.l.model, NULL, &job, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    CHECK_STR(error.message, "the model is asleep");
    CHECK_EQ(berth_model_move_start(s.other, s.other_plan, NULL, &job, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    CHECK_STR(berth_reason_advice(error.reason), "wake the model first");
    /* Others than those that were loaded. */
    options.finding = NULL;
    options.type = BERTH_ENCODING_NF4;
    CHECK_EQ(moved_move(&s.m, moved_plan(&s.m, &options)), BERTH_EINVAL);
    CHECK_CONTAINS(s.m.error.message, "other encodings");
    options.type = BERTH_ENCODING_NATIVE;
    options.max_memory = "0=6MiB,1=6MiB,cpu=16MiB";
    CHECK_EQ(moved_move(&s.m, moved_plan(&s.m, &options)), BERTH_EINVAL);
    CHECK_CONTAINS(s.m.error.message, "has 2 GPUs, and the model 1 devices");
    moved_check(&s.m);
    scene_end(&s);
}

/* Both have errors in common: a caller with many models has to know which of two is meant. */
static void
test_which_model_of_a_swap(void)
{
    berth_error error;
    berth_job *moving;
    berth_job *job;
    scene s;

    scene_begin(&s, "0=6MiB,cpu=16MiB", "0=5MiB,cpu=16MiB", "sim:16MiB");
    CHECK_EQ(berth_model_wake_start(s.other, NULL, &moving, &error), BERTH_OK);
    CHECK_EQ(berth_job_finish(moving, &error), BERTH_OK);
    CHECK_EQ(berth_model_swap_start(s.m.l.model, s.other, NULL, &job, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "the other model is awake");
    /* The job waits for a call that does not end before it is told to. */
    CHECK_EQ(berthi_model_enter(s.other, &error), BERTH_OK);
    CHECK_EQ(berth_model_sleep_start(s.other, NULL, &moving, &error), BERTH_OK);
    CHECK_EQ(berth_model_swap_start(s.m.l.model, s.other, NULL, &job, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "the other model is being moved");
    CHECK_EQ(berth_model_swap_start(s.other, s.m.l.model, NULL, &job, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "the model is being moved");
    berthi_model_leave(s.other);
    CHECK_EQ(berth_job_finish(moving, &error), BERTH_OK);
    moved_check(&s.m);
    scene_end(&s);
}

/* A plan's text. */
typedef struct plan_text {
    char bytes[65536];
    size_t length;
} plan_text;

static int
put_text(void *user, const char *bytes, size_t length)
{
    plan_text *const text = user;

    if (length >= sizeof text->bytes - text->length)
        return 1;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
    return 0;
}

/* A plan of a file in which a weight has left its home, and nobody brings it. */
static void
test_edited_plan(void)
{
    static const char home[] = "\"tier\": \"cuda:0\", ";
    static const char away[] = "\"tier\": \"cpu\",    ";
    static plan_text text;
    berth_plan_options options = loaded_options("0=24MiB,cpu=64MiB");
    berth_plan *edited = NULL;
    moved m;
    char *at;
    char *offset;

    moved_begin(&m, loaded_llama(LAYERS, "BF16", 1), &options, "sim:32MiB");
    text.length = 0;
    CHECK_EQ(berth_plan_print(m.l.p.plan, put_text, &text, NULL), BERTH_OK);
    at = strstr(text.bytes, "\"mlp.up_proj.weight\"");
    T_REQUIRE(at != NULL && (at = strstr(at, home)) != NULL);
    memcpy(at, away, sizeof away - 1);
    offset = strstr(at, "\"offset\"");
    T_REQUIRE(offset != NULL);
    memset(offset, ' ', (size_t)(strchr(offset, ',') - offset) + 1);
    CHECK_EQ(berth_plan_parse(m.l.p.context, text.bytes, text.length, "edited", &edited,
                              &m.error),
             BERTH_OK);
    CHECK_EQ(moved_move(&m, edited), BERTH_EFORMAT);
    CHECK_EQ(m.error.reason, BERTH_REASON_PLAN_JSON);
    CHECK_CONTAINS(m.error.message, "has other link_bytes");
    moved_check(&m);
    berth_plan_destroy(edited);
    moved_free_plans();
    moved_end(&m);
}

static void
test_no_room(void)
{
    berth_plan_options options = loaded_options("0=24MiB,cpu=64MiB");
    berth_plan *large;
    moved m;

    moved_begin(&m, loaded_large(LAYERS, 1), &options, "sim:24MiB");
    options.finding = NULL;
    options.max_memory = "0=64MiB,cpu=64MiB";
    large = moved_plan(&m, &options);
    CHECK_EQ(moved_move(&m, large), BERTH_ENOFIT);
    CHECK_CONTAINS(m.error.message, "cuda:0 has no room for its part of the plan");
    CHECK_EQ(m.error.has & BERTH_HAS_BYTES, BERTH_HAS_BYTES);
    CHECK_EQ(m.error.actual, 24 * MIB);
    CHECK_GT(m.error.expected, 24 * MIB);
    moved_check(&m);
    moved_free_plans();
    moved_end(&m);
}

/* What was encoded lies in no file, and there is no folder for one. */
static void
test_encoded_weights_stay_in_memory(void)
{
    static const char *const pins[] = {"model.layers.1=disk"};
    berth_plan_options options = loaded_options("0=32MiB,cpu=64MiB,disk=inf");
    moved m;

    options.type = BERTH_ENCODING_NF4;
    moved_begin(&m, loaded_large(6, 1), &options, "sim:32MiB");
    options.finding = NULL;
    options.pins = pins;
    options.pin_count = 1;
    CHECK_EQ(moved_move(&m, moved_plan(&m, &options)), BERTH_EUNSUPPORTED);
    CHECK_CONTAINS(m.error.message, "was made while it was loaded: no file has it; demote it "
                                    "to host memory, or load the model with an offload_dir "
                                    "that it can be written to");
    moved_check(&m);
    moved_free_plans();
    moved_end(&m);
}

static void
test_leased_layers_keep_it_awake(void)
{
    berth_plan_options options = loaded_options("0=32MiB,cpu=64MiB");
    berth_lease_summary leases;
    uint32_t leased = 0;
    berth_error error;
    moved m;

    moved_begin(&m, loaded_large(6, 1), &options, "sim:32MiB");
    for (uint32_t i = 0; i < m.l.p.summary.layer_count; i++) {
        berth_plan_layer layer;

        CHECK_EQ(berth_plan_get_layer(m.l.p.plan, i, &layer), BERTH_OK);
        if (layer.cause == BERTH_PLAN_SHORT && layer.link_bytes > 0)
            leased = i;
    }
    CHECK_EQ(berth_layer_acquire(m.l.model, leased, NULL, NULL), BERTH_OK);
    berth_model_leases(m.l.model, &leases);
    CHECK_GT(leases.acquired, 0);
    CHECK_EQ(moved_sleep(&m), BERTH_EINVAL);
    CHECK_EQ(m.error.reason, BERTH_REASON_LEASED);
    CHECK_EQ(moved_move(&m, m.l.p.plan), BERTH_EINVAL);
    CHECK_EQ(m.error.reason, BERTH_REASON_LEASED);
    CHECK_EQ(berth_layer_release(m.l.model, leased, NULL, &error), BERTH_OK);
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_EQ(passed(&m.l, 1), m.looked);
    moved_end(&m);
}

/* While a job has the model. */
/* Leases that were out when a job began are given back while it is under way. */
static void
test_released_meanwhile(void)
{
    static const char *const layers[] = {"model.layers=cpu"};
    berth_plan_options options = loaded_options("0=16MiB,cpu=32MiB");
    berth_lease_summary before;
    berth_lease_summary leases;
    berth_error error;
    berth_job *job;
    moved m;

    options.pins = layers;
    options.pin_count = 1;
    moved_begin(&m, loaded_llama(LAYERS, "BF16", 1), &options, "sim:16MiB");
    berth_model_leases(m.l.model, &before);
    CHECK_EQ(berth_layer_acquire(m.l.model, 1, NULL, &error), BERTH_OK);
    /* The job waits for a call that does not end before it is told to. */
    CHECK_EQ(berthi_model_enter(m.l.model, &error), BERTH_OK);
    CHECK_EQ(berth_model_sleep_start(m.l.model, NULL, &job, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(m.l.model, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_MOVING);
    CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASE);
    berth_model_leases(m.l.model, &leases);
    CHECK_EQ(leases.acquired, before.acquired + 1);
    berthi_model_leave(m.l.model);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    moved_end(&m);
}

/* Of layers with nothing streamed leases are counted, too. */
static void
test_resident_layers_are_leased(void)
{
    berth_plan_options options = loaded_options("0=16MiB,cpu=16MiB");
    berth_error error;
    moved m;

    moved_begin(&m, loaded_llama(LAYERS, "BF16", 1), &options, "sim:16MiB");
    CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASE);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_acquire(m.l.model, 1, NULL, &error), BERTH_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(moved_sleep(&m), BERTH_EINVAL);
        CHECK_EQ(m.error.reason, BERTH_REASON_LEASED);
        CHECK_CONTAINS(m.error.message, "layer 1 is leased");
        CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_AWAKE);
        CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_OK);
    }
    CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    CHECK_EQ(berth_layer_release(m.l.model, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    moved_end(&m);
}

static void
test_refused_meanwhile(void)
{
    berth_plan_options options = loaded_options("0=16MiB,cpu=16MiB");
    berth_error error;
    berth_job *second;
    berth_job *job;
    uint32_t crc;
    moved m;

    moved_begin(&m, loaded_llama(LAYERS, "BF16", 1), &options, "sim:16MiB");
    CHECK_EQ(berth_layer_acquire(m.l.model, 0, NULL, &error), BERTH_OK);
    /* The job waits for a call that does not end before it is told to. */
    CHECK_EQ(berthi_model_enter(m.l.model, &error), BERTH_OK);
    CHECK_EQ(berth_model_sleep_start(m.l.model, NULL, &job, &error), BERTH_OK);
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_MOVING);
    CHECK_EQ(berth_layer_acquire(m.l.model, 0, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_MOVING);
    CHECK_EQ(berth_layer_release(m.l.model, 0, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_model_digest(m.l.model, 0, &crc, &error), BERTH_EINVAL);
    CHECK_EQ(berth_model_wake_start(m.l.model, NULL, &second, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_MOVING);
    CHECK_EQ(berth_model_sleep_start(m.l.model, NULL, &second, &error), BERTH_EINVAL);
    CHECK(second == NULL);
    berthi_model_leave(m.l.model);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_ASLEEP);
    moved_end(&m);
}

/*
 * A check is a use like any other, also of layers that lie in files, which neither sleep nor
 * moves touch.
 */
static void
test_checked_meanwhile(void)
{
    static const char *const pins[] = {"model.layers=disk", "model.embed_tokens=disk",
                                       "model.norm=disk", "lm_head=disk"};
    berth_plan_options options = loaded_options("0=16MiB,cpu=16MiB,disk=inf");
    berth_check_report report;
    berth_job *job;
    moved m;

    options.pins = pins;
    options.pin_count = 4;
    moved_begin(&m, loaded_llama(LAYERS, "BF16", 1), &options, "sim:16MiB");
    CHECK_EQ(berthi_model_enter(m.l.model, &m.error), BERTH_OK);
    CHECK_EQ(berth_model_sleep_start(m.l.model, NULL, &job, &m.error), BERTH_OK);
    CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_EINVAL);
    CHECK_EQ(m.l.error.reason, BERTH_REASON_MOVING);
    CHECK_EQ(report.tensors, 0);
    berthi_model_leave(m.l.model);
    CHECK_EQ(berth_job_finish(job, &m.error), BERTH_OK);
    CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_EINVAL);
    CHECK_EQ(m.l.error.reason, BERTH_REASON_ASLEEP);
    CHECK_EQ(report.bytes_read, 0);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    CHECK_EQ(loaded_see_checked(&m.l, &report), BERTH_OK);
    CHECK_GT(report.tensors, 0);
    moved_end(&m);
}

/* What was left in the checkpoint has to be there. */
static void
test_files_that_change(void)
{
    const char *const folder = loaded_llama(LAYERS, "BF16", 1);
    berth_plan_options options = loaded_options("0=16MiB,cpu=16MiB");
    moved m;

    moved_begin(&m, folder, &options, "sim:16MiB");
    m.options.discards = 1;
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    fixture_truncate(fixture_format("%s/model.safetensors", folder), 100000);
    CHECK_EQ(moved_wake(&m), BERTH_EIO);
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_ASLEEP);
    CHECK_EQ(moved_free(&m, 0), 16 * MIB);
    CHECK_EQ(moved_wake(&m), BERTH_EIO);
    moved_end(&m);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_calls_fail);
    T_RUN(test_calls_fail_on_two_devices);
    T_RUN(test_cancelled);
    T_RUN(test_cancelled_and_lost);
    T_RUN(test_cancelled_in_time);
    T_RUN(test_arguments);
    T_RUN(test_which_model_of_a_swap);
    T_RUN(test_edited_plan);
    T_RUN(test_no_room);
    T_RUN(test_encoded_weights_stay_in_memory);
    T_RUN(test_leased_layers_keep_it_awake);
    T_RUN(test_resident_layers_are_leased);
    T_RUN(test_refused_meanwhile);
    T_RUN(test_released_meanwhile);
    T_RUN(test_checked_meanwhile);
    T_RUN(test_files_that_change);
    return t_end();
}
