/* SPDX-License-Identifier: Apache-2.0 */
/* test_load_errors.c - loads that fail: nothing is kept, and what went wrong is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"

/* ---------------------------------------------------------------- everything fails */

typedef struct attempt {
    const char *folder;
    const char *words; /* devices; NULL: host memory alone */
    const char *max_memory;
    int32_t type;
} attempt;

/* Opens, plans, loads, leases each layer once, gives everything back. */
static berth_status
load_once(void *user, berth_context *context, berth_error *error)
{
    const attempt *const a = user;
    berth_plan_options options = loaded_options(a->max_memory);
    berth_checkpoint *checkpoint = NULL;
    berth_devices *devices = NULL;
    berth_model *model = NULL;
    berth_load_options load;
    berth_plan_summary summary;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    options.type = a->type;
    options.double_quant = a->type == BERTH_ENCODING_NF4;
    berth_load_options_init(&load);
    load.workers = 2;
    load.ring_bytes = UINT64_C(16) << 20;
    status = berth_checkpoint_open(context, a->folder, NULL, &checkpoint, error);
    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, &options, &plan, error);
    if (status == BERTH_OK && a->words != NULL)
        status = berth_devices_open(context, a->words, &devices, error);
    load.devices = devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, plan, &load, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    if (status == BERTH_OK)
        berth_plan_get(plan, &summary);
    for (uint32_t i = 0; status == BERTH_OK && i < summary.layer_count; i++) {
        status = berth_layer_acquire(model, i, NULL, error);
        if (status == BERTH_OK)
            status = berth_layer_release(model, i, NULL, error);
    }
    berth_model_destroy(model);
    berth_devices_close(devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_all_calls_can_fail(void)
{
    const char *const plain = loaded_llama(1, "BF16", 2);
    attempt attempts[] = {
        {plain, NULL, "cpu=64MiB", BERTH_ENCODING_NF4},
        {plain, "sim:64MiB", "0=64MiB,cpu=64MiB", BERTH_ENCODING_NF4},
        {plain, "sim:64MiB", "0=64MiB,cpu=64MiB", BERTH_ENCODING_NATIVE}};

    for (uint32_t i = 0; i < 3; i++) {
        const fault_counts counts = fault_loop("load", load_once, &attempts[i]);

        CHECK_GT(counts.memory, 60);
        CHECK_GT(counts.system, 30);
        CHECK_GT(fault_loop_devices("load", load_once, &attempts[i]).device, 10);
    }
}

/* Layers that come from host memory and from the disk: some hundred loads of 38 MB. */
static void
test_calls_of_passes_can_fail(void)
{
    static const char *const budgets[] = {"0=26MiB,cpu=64MiB",
                                          "0=26MiB,cpu=2MiB,disk=inf"};

    if (getenv("T_THOROUGH") == NULL)
        T_SKIP("takes minutes: T_THOROUGH=1");
    for (uint32_t i = 0; i < 2; i++) {
        attempt a = {loaded_large(4, 1), "sim:26MiB", budgets[i], BERTH_ENCODING_NATIVE};

        CHECK_GT(fault_loop_devices("passes", load_once, &a).device, 30);
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
    CHECK_CONTAINS(l.error.message, "are 2, and the plan has 1 GPUs");
    l.options.devices = NULL;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_ENODEV);
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
    T_REQUIRE(berth_verify_start(l.p.context, l.p.checkpoint, &verify, &job, NULL) ==
              BERTH_OK);
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

    /* A machine that is busy may be too late to cancel: it gets more tries. */
    for (uint32_t tries = 0; done < 12 && tries < 60; tries++) {
        const uint32_t i = done;
        uint64_t taken_ns;
        bool is_done;
        berth_job *job;
        loaded l;

        options.type = i % 2 == 0 ? BERTH_ENCODING_NATIVE : BERTH_ENCODING_NF4;
        loaded_begin(&l, folder, &options, "sim:64MiB,clock=real,h2d=100MB/s");
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
        is_done = l.status == BERTH_ECANCELLED && (i == 0 || taken_ns < 1000000000);
        done += is_done;
        loaded_end(&l);
    }
    CHECK_EQ(done, 12);
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
    T_RUN(test_files_that_change);
    T_RUN(test_cancelled);
    return t_end();
}
