/* SPDX-License-Identifier: Apache-2.0 */
/* test_load_errors.c - loads that fail: nothing is kept, and what went wrong is said. */
#define _DEFAULT_SOURCE

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

/* ---------------------------------------------------------------- everything fails */

static void
test_all_calls_can_fail(void)
{
    const char *const plain = loaded_llama(1, "BF16", 2);
    loaded_attempt attempts[] = {{.folder = plain,
                                  .max_memory = "cpu=64MiB",
                                  .type = BERTH_ENCODING_NF4,
                                  .is_double = true},
                                 {.folder = plain,
                                  .words = "sim:64MiB",
                                  .max_memory = "0=64MiB,cpu=64MiB",
                                  .type = BERTH_ENCODING_NF4,
                                  .is_double = true},
                                 {.folder = plain,
                                  .words = "sim:64MiB",
                                  .max_memory = "0=64MiB,cpu=64MiB"}};

    for (uint32_t i = 0; i < 3; i++) {
        fault_counts counts;

        attempts[i].has_passes = true;
        counts = fault_loop("load", loaded_once, &attempts[i]);
        CHECK_GT(counts.memory, 60);
        CHECK_GT(counts.system, 30);
        CHECK_GT(fault_loop_devices("load", loaded_once, &attempts[i]).device, 10);
    }
}

/* Layers that come from host memory and from the disk: some hundred loads of 38 MB. */
static void
test_calls_of_passes_can_fail(void)
{
    static const char *const budgets[] = {"0=26MiB,cpu=64MiB",
                                          "0=26MiB,cpu=2MiB,disk=inf"};

    if (T_IS_SANITIZED && getenv("T_THOROUGH") == NULL)
        T_SKIP("takes minutes under sanitizers: T_THOROUGH=1");
    for (uint32_t i = 0; i < 2; i++) {
        loaded_attempt a = {.folder = loaded_large(4, 1),
                            .words = "sim:26MiB",
                            .max_memory = budgets[i],
                            .has_passes = true};

        CHECK_GT(fault_loop_devices("passes", loaded_once, &a).device, 30);
    }
}

/* --------------------------------------------------------------------------- misuse */

static void
test_arguments(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    berth_model *model = (berth_model *)&options;
    berth_job *job = (berth_job *)&options;
    loaded l;

    loaded_begin(&l, folder, &options, "sim:64MiB;sim:64MiB");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EINVAL); /* two devices for one GPU */
    CHECK_CONTAINS(l.error.message, "are 2, and the plan has 1 GPU: give one for each");
    l.options.devices = NULL;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_ENODEV);
    loaded_end(&l);
    options = loaded_options("cpu=64MiB");
    loaded_begin(&l, folder, &options, "sim:64MiB");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EINVAL);
    CHECK_CONTAINS(l.error.message, "are 1, and the plan has no GPU: give none, or a plan with");
    CHECK_EQ(berth_load_start(NULL, l.p.checkpoint, l.p.plan, NULL, &job, &l.error),
             BERTH_EINVAL);
    CHECK(job == NULL);
    CHECK_EQ(berth_load_start(l.p.context, NULL, l.p.plan, NULL, &job, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_load_start(l.p.context, l.p.checkpoint, NULL, NULL, &job, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, NULL, NULL, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_load_finish(NULL, &model, &l.error), BERTH_EINVAL);
    CHECK(model == NULL);
    loaded_end(&l);
}

static void
test_other_jobs_are_no_loads(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_verify_options verify;
    berth_model *model;
    berth_job *job;
    loaded l;

    berth_verify_options_init(&verify);
    loaded_begin(&l, folder, &options, NULL);
    T_REQUIRE(berth_verify_start(l.p.context, l.p.checkpoint, &verify, &job, NULL)
              == BERTH_OK);
    CHECK_EQ(berth_load_finish(job, &model, &l.error), BERTH_EINVAL);
    CHECK_CONTAINS(l.error.message, "is not a load");
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    loaded_end(&l);
}

static void
test_a_load_for_nothing(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    berth_job *job;
    loaded l;

    loaded_begin(&l, folder, &options, "sim:64MiB");
    T_REQUIRE(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options, &job,
                               NULL) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    loaded_end(&l);
}

static void
test_no_room(void)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    loaded l;

    loaded_begin(&l, folder, &options, "sim:2MiB");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_ENOFIT);
    CHECK_EQ(l.error.actual, UINT64_C(2) << 20);
    loaded_end(&l);
}

static void
test_another_checkpoint(void)
{
    const char *const folder = loaded_llama(2, "BF16", 1);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_checkpoint *other;
    berth_job *job;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    T_REQUIRE(berth_checkpoint_open(l.p.context, loaded_llama(1, "BF16", 1), NULL, &other,
                                    NULL) == BERTH_OK);
    CHECK_EQ(berth_load_start(l.p.context, other, l.p.plan, NULL, &job, &l.error),
             BERTH_EINTEGRITY);
    CHECK_EQ(l.error.reason, BERTH_REASON_PLAN_CHECKPOINT);
    berth_checkpoint_close(other);
    loaded_end(&l);
}

/* A load of the plan's text with `to` in place of the first `from` behind `behind`. */
static void
see_refused(loaded *l, const char *behind, const char *from, const char *to)
{
    char *const text = planned_text(l->p.plan, NULL);
    char *const begin = strstr(text, behind);
    char *const at = begin != NULL ? strstr(begin, from) : NULL;
    berth_plan *const made = l->p.plan;
    berth_plan *plan = NULL;
    berth_error check;
    const char *edited;

    T_REQUIRE(at != NULL);
    edited = fixture_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    T_REQUIRE(CHECK_EQ(berth_plan_parse(l->p.context, edited, strlen(edited), "edited", &plan,
                                        &check),
                       BERTH_OK));
    CHECK_EQ(berth_plan_check(plan, l->p.context, l->p.checkpoint, "", NULL, NULL, &check),
             BERTH_EINTEGRITY);
    l->p.plan = plan;
    loaded_load(l);
    CHECK_EQ(l->status, BERTH_EINTEGRITY);
    CHECK_EQ(l->error.reason, BERTH_REASON_PLAN_CHECKPOINT);
    CHECK_STR(l->error.message, check.message);
    CHECK_STR(l->error.tensor, check.tensor);
    l->p.plan = made;
    berth_plan_destroy(plan);
}

/* What berth_plan_check() says of a plan from a file is what a load of it fails with. */
static void
test_edited_plans(void)
{
    static const char key[] = "\"tensor\": \"self_attn.k_proj.weight\"";
    static const char norm[] = "\"tensor\": \"input_layernorm.weight\"";
    const char *const folder = loaded_llama(2, "BF16", 1);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_berth berth;
    uint64_t i = 0;
    char name[64];
    const char *number;
    const char *next;
    const char *tied;
    loaded l;

    loaded_begin(&l, folder, &options, NULL);
    do
        CHECK_EQ(berth_plan_get_berth(l.p.plan, i++, &berth, name, sizeof name), BERTH_OK);
    while (strcmp(name, "model.layers.0.self_attn.k_proj.weight") != 0);
    number = fixture_format("\"number\": %d}", (int)berth.tensor);
    next = fixture_format("\"number\": %d}", (int)berth.tensor + 3);
    tied = fixture_format("\"number\": %d, \"tied\": true}", (int)berth.tensor);
    see_refused(&l, key, number, tied); /* what is tied is not read */
    see_refused(&l, key, number, next); /* v_proj is as large, and has two berths now */
    see_refused(&l, norm, "input_layernorm.weight", "zzz");
    see_refused(&l, "\"mlp.up_proj.weight\"", "\"native\"", "\"nf4\"");
    see_refused(&l, "\"use\"", "\"context\": 0", "\"context\": 512");
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    loaded_end(&l);
}

/* ----------------------------------------------------------------------------- files */

/* Behind the back of an open checkpoint. */
static void
test_files_that_change(void)
{
    for (uint32_t way = 0; way < 3; way++) {
        const char *const folder = loaded_llama(1, "BF16", 2);
        const char *const shard =
            fixture_format("%s/model-00002-of-00002.safetensors", folder);
        berth_plan_options options = loaded_options("cpu=64MiB");
        loaded l;

        options.type = way == 2 ? BERTH_ENCODING_NF4 : BERTH_ENCODING_NATIVE;
        loaded_begin(&l, folder, &options, NULL);
        if (way == 0)
            fixture_truncate(shard, 100000);
        else
            fixture_flip(shard, 200000, 1);
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_EIO);
        CHECK_CONTAINS(l.error.file, "model-00002");
        loaded_end(&l);
    }
}

/* ---------------------------------------------------------------------------- cancel */

static int
cancel_at_once(void *user, const berth_progress *progress)
{
    (void)user;
    (void)progress;
    return 1;
}

static void
test_cancelled(void)
{
    const char *const folder = loaded_large(3, 1);
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    uint32_t done = 0;

    /* Two workers' buffers of 8 MiB are on a link that brings them in 80 ms. A machine that is
       busy may be too late to cancel: it gets more tries. */
    for (uint32_t tries = 0; done < 12 && tries < 60; tries++) {
        const uint32_t i = done;
        uint64_t taken_ns;
        bool is_done;
        berth_job *job;
        loaded l;

        options.type = i % 2 == 0 ? BERTH_ENCODING_NATIVE : BERTH_ENCODING_NF4;
        loaded_begin(&l, folder, &options, "sim:64MiB,clock=real,h2d=200MB/s");
        if (i == 0)
            l.options.progress = cancel_at_once;
        T_REQUIRE(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options,
                                   &job, NULL) == BERTH_OK);
        (void)berth_job_wait(job, i * 3);
        taken_ns = berthi_sys_now_ns();
        if (i > 0)
            berth_job_cancel(job);
        l.status = berth_load_finish(job, &l.model, &l.error);
        taken_ns = berthi_sys_now_ns() - taken_ns;
        CHECK(l.status == BERTH_OK || l.status == BERTH_ECANCELLED);
        CHECK_EQ(l.model != NULL, l.status == BERTH_OK);
        is_done = l.status == BERTH_ECANCELLED && (i == 0 || taken_ns <= T_CANCEL_NS);
        done += is_done;
        loaded_end(&l);
    }
    CHECK_EQ(done, 12);
}

/* Workers stand still behind their first buffer until the load has been cancelled. */
typedef struct gate {
    _Atomic uint32_t chunks; /* that have been consumed */
    _Atomic bool is_open;
} gate;

static void
stop_at_gate(void *user, const berth_trace_event *event)
{
    gate *const g = user;

    if (event->kind != BERTH_TRACE_CHUNK)
        return;
    atomic_fetch_add(&g->chunks, 1);
    while (!atomic_load(&g->is_open))
        (void)usleep(500);
}

#define GATE_RING (UINT64_C(16) << 20)

/*
 * What comes after a cancel is counted, not timed: no worker begins another buffer, and
 * no more is read than what the ring held, and what was given back to it in that moment.
 * How long that takes is noted all the same.
 */
static void
check_nothing_begins(const char *folder, uint32_t workers, const loaded_attempt *a,
                     uint64_t *out_ns)
{
    berth_plan_options options = loaded_options(a->max_memory);
    const uint64_t bytes = fixture_size(fixture_format("%s/model.safetensors", folder));
    gate g = {.chunks = 0};
    const berth_context_options hooks = {
        .struct_size = sizeof hooks, .trace = stop_at_gate, .trace_user = &g};
    const uint64_t most = GATE_RING + workers * GATE_RING / 4;
    berth_checkpoint *checkpoint;
    berth_devices *devices = NULL;
    berth_model *model;
    berth_load_options load;
    berth_load_report report;
    berth_context *context;
    berth_plan *plan;
    berth_error error;
    berth_job *job;

    options.type = a->type;
    berth_load_options_init(&load);
    load.workers = workers;
    load.ring_bytes = GATE_RING;
    load.report = &report;
    memset(&report, 0, sizeof report);
    T_REQUIRE(berth_context_create(&hooks, &context, NULL) == BERTH_OK);
    T_REQUIRE(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL) == BERTH_OK);
    T_REQUIRE(berth_plan_create(context, checkpoint, &options, &plan, NULL) == BERTH_OK);
    if (a->words != NULL)
        T_REQUIRE(berth_devices_open(context, a->words, &devices, NULL) == BERTH_OK);
    load.devices = devices;
    T_REQUIRE(berth_load_start(context, checkpoint, plan, &load, &job, NULL) == BERTH_OK);
    while (atomic_load(&g.chunks) == 0 && berth_job_wait(job, 1) == BERTH_PENDING)
        continue;
    *out_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    atomic_store(&g.is_open, true);
    CHECK_EQ(berth_load_finish(job, &model, &error), BERTH_ECANCELLED);
    *out_ns = berthi_sys_now_ns() - *out_ns;
    CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    CHECK(model == NULL);
    CHECK_GE(atomic_load(&g.chunks), 1);
    CHECK_LE(atomic_load(&g.chunks), workers);
    CHECK_LE(report.bytes_read, most);
    CHECK_LT(most, bytes);
    berth_devices_close(devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

static void
test_cancel_begins_nothing(void)
{
    static const loaded_attempt attempts[] = {
        {.max_memory = "cpu=128MiB"},
        {.max_memory = "cpu=128MiB", .type = BERTH_ENCODING_NF4},
        {.max_memory = "0=128MiB,cpu=64MiB", .words = "sim:128MiB"},
        {.max_memory = "0=128MiB,cpu=64MiB",
         .words = "sim:128MiB",
         .type = BERTH_ENCODING_NF4}};
    const char *const folder = loaded_large(6, 1);

    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t workers = 1; workers <= 4; workers += 3) {
            uint64_t ns = UINT64_MAX;

            for (int tries = 0; tries < T_CANCEL_TRIES && ns > T_CANCEL_NS; tries++)
                check_nothing_begins(folder, workers, &attempts[i], &ns);
            CHECK_LE(ns, T_CANCEL_NS);
        }
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_all_calls_can_fail);
    T_RUN(test_calls_of_passes_can_fail);
    T_RUN(test_arguments);
    T_RUN(test_other_jobs_are_no_loads);
    T_RUN(test_a_load_for_nothing);
    T_RUN(test_no_room);
    T_RUN(test_another_checkpoint);
    T_RUN(test_edited_plans);
    T_RUN(test_files_that_change);
    T_RUN(test_cancelled);
    T_RUN(test_cancel_begins_nothing);
    return t_end();
}
