/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pinned.c - where pinning is not allowed, a context says so once, and everything
 * goes on without.
 */
#define _DEFAULT_SOURCE /* RLIMIT_MEMLOCK */

#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "kernels/memory.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

/* What a context says of pinning. */
typedef struct notices {
    _Atomic uint32_t count;
    char line[512];
} notices;

static void
note(void *user, int32_t level, const char *line)
{
    notices *const n = user;

    if (strstr(line, "pinned") == NULL)
        return;
    CHECK_EQ(level, BERTH_LOG_WARNING);
    if (atomic_fetch_add(&n->count, 1) == 0)
        strncpy(n->line, line, sizeof n->line - 1);
}

static void
begin(loaded *l, notices *n, const char *source, const char *memory, const char *words)
{
    berth_plan_options options = loaded_options(memory);

    memset(n, 0, sizeof *n);
    loaded_begin(l, source, &options, words);
    l->p.context->log = note;
    l->p.context->log_user = n;
}

/* Loads, looks at every byte, passes over it three times, twice; then moves it. */
static void
use(loaded *l, const char *source, bool is_pinned)
{
    for (uint32_t i = 0; i < 2; i++) {
        berth_job *job = NULL;

        loaded_load(l);
        T_REQUIRE(l->status == BERTH_OK);
        CHECK_EQ(l->report.is_pinned, is_pinned);
        loaded_check(l, source);
        CHECK_GT(passed(l, 3), 0);
        CHECK_EQ(berth_model_sleep_start(l->model, NULL, &job, &l->error), BERTH_OK);
        CHECK_EQ(berth_job_finish(job, &l->error), BERTH_OK);
        CHECK_EQ(berth_model_wake_start(l->model, NULL, &job, &l->error), BERTH_OK);
        CHECK_EQ(berth_job_finish(job, &l->error), BERTH_OK);
        loaded_check(l, source);
        CHECK_GT(passed(l, 1), 0);
        loaded_unload(l);
    }
}

/* What is streamed from host memory and from the disk: slab, ring, hold. */
static void
test_one_notice_for_a_context(void)
{
    static const char *const memories[] = {"0=32MiB,cpu=64MiB",
                                           "0=32MiB,cpu=2MiB,disk=inf"};
    static const char *const words[] = {"sim:32MiB,pin=0B", "sim:32MiB,pin=64KiB"};
    const char *const source = loaded_large(6, 2);

    for (uint32_t i = 0; i < 4; i++) {
        notices n;
        loaded l;

        begin(&l, &n, source, memories[i / 2], words[i % 2]);
        use(&l, source, false);
        CHECK_EQ(n.count, 1);
        CHECK_CONTAINS(n.line, "host memory is not pinned, copies to devices are slower: "
                               "sim:0: host memory of ");
        CHECK_CONTAINS(n.line, "is more than may be pinned");
        loaded_end(&l);
    }
}

static void
test_no_notice_where_it_is_allowed(void)
{
    const char *const source = loaded_large(6, 2);
    notices n;
    loaded l;

    begin(&l, &n, source, "0=32MiB,cpu=2MiB,disk=inf", "sim:32MiB");
    use(&l, source, true);
    CHECK_EQ(n.count, 0);
    loaded_end(&l);
    begin(&l, &n, source, "cpu=64MiB,disk=inf", NULL); /* nobody copies */
    use(&l, source, false);
    CHECK_EQ(n.count, 0);
    loaded_end(&l);
}

/* Two loads at once are one context, too. */
static void
test_one_notice_for_loads_at_once(void)
{
    static const char words[] = "sim:64MiB,pin=0B";
    const char *const source = loaded_llama(6, "BF16", 2);
    berth_devices *others = NULL;
    berth_job *jobs[2] = {NULL, NULL};
    berth_model *models[2] = {NULL, NULL};
    notices n;
    loaded l;

    begin(&l, &n, source, "0=64MiB,cpu=64MiB", words);
    T_REQUIRE(berth_devices_open(l.p.context, words, &others, &l.error) == BERTH_OK);
    l.options.report = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        l.options.devices = i == 0 ? l.devices : others;
        CHECK_EQ(berth_load_start(l.p.context, l.p.checkpoint, l.p.plan, &l.options,
                                  &jobs[i], &l.error),
                 BERTH_OK);
    }
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_load_finish(jobs[i], &models[i], &l.error), BERTH_OK);
    CHECK_EQ(n.count, 1);
    for (uint32_t i = 0; i < 2; i++)
        berth_model_destroy(models[i]);
    berth_devices_close(others);
    loaded_end(&l);
}

/* Layers and experts come through one ring, which their device pins once. */
static void
test_lines_of_a_device_share_pins(void)
{
    static const char *const pins[] = {"model.layers=disk"};
    berth_plan_options options = loaded_options("0=8MiB,cpu=8MiB,disk=inf");
    notices n = {.count = 0};
    loaded l;

    options.pins = pins;
    options.pin_count = 1;
    loaded_begin(&l, leased_moe(4, 8, false), &options, "sim:8MiB");
    l.p.context->log = note;
    l.p.context->log_user = &n;
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    for (uint32_t layer = 0; layer < l.p.summary.layer_count; layer++) {
        static const uint32_t experts[] = {1, 6};

        CHECK_EQ(berth_layer_acquire(l.model, layer, NULL, &l.error), BERTH_OK);
        CHECK_EQ(berth_layer_release(l.model, layer, NULL, &l.error), BERTH_OK);
        if (layer == 0 || layer > 4)
            continue;
        CHECK_EQ(berth_experts_acquire(l.model, layer, experts, 2, NULL, &l.error),
                 BERTH_OK);
        CHECK_EQ(berth_experts_release(l.model, layer, experts, 2, NULL, &l.error),
                 BERTH_OK);
    }
    CHECK_EQ(n.count, 0);
    loaded_end(&l);
}

/* The kernel's limit is about rings of the kernel: they are done without. */
static void
test_nothing_may_be_locked(void)
{
    const char *const source = loaded_large(2, 1);
    struct rlimit before;
    struct rlimit none;
    notices n;
    loaded l;

    T_REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    T_REQUIRE(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    begin(&l, &n, source, "0=32MiB,cpu=64MiB", "sim:32MiB");
    use(&l, source, true);
    CHECK_EQ(n.count, 0);
    loaded_end(&l);
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_one_notice_for_a_context);
    T_RUN(test_no_notice_where_it_is_allowed);
    T_RUN(test_one_notice_for_loads_at_once);
    T_RUN(test_lines_of_a_device_share_pins);
    T_RUN(test_nothing_may_be_locked);
    T_MAIN_END;
}
