/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_swap_contexts.c - two models of different contexts take turns on one device, and a copy
 * of either hangs: its own context sees the end, whatever becomes of the other one.
 */
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/model.h"
#include "tests/hung.h"
#include "tests/moved.h"
#include "tests/t.h"

#define WAIT_MS_MAX 20000u /* a machine on which something else takes so long is broken */
#define PLACES 64u /* a swap has not so many copies */
#define PATIENCE_NS (UINT64_C(60000) * HUNG_MS_NS)

/* A model that sleeps in a context of its own, on the devices of `m`. */
static void
begin_other(loaded *other, const moved *m, const char *folder, berth_plan_options *options)
{
    berth_job *job = NULL;

    loaded_begin(other, folder, options, NULL);
    other->options.devices = m->l.devices;
    loaded_load(other);
    T_REQUIRE(CHECK_EQ(other->status, BERTH_OK));
    T_REQUIRE(berth_model_sleep_start(other->model, NULL, &job, NULL) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
}

/* Only this context looks. */
static void
sweep(const berth_model *model, berth_context *context)
{
    const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;

    do {
        berthi_context_sweep(context);
    } while (atomic_load(&model->stranded) > 0 && berthi_sys_now_ns() < end_ns);
    CHECK_EQ(atomic_load(&model->stranded), 0);
}

typedef enum outcome {
    NONE, /* there is no such copy */
    SLOW, /* something else was late before, as a busy machine is */
    HANGS,
    OTHER_HANGS
} outcome;

/* Of a swap of `m` that has ended. */
static outcome
outcome_of(const moved *m, const berth_model *other, berth_status status)
{
    if (!hung_has(m->l.devices))
        return status == BERTH_OK ? NONE : SLOW;
    return atomic_load(&other->stranded) > 0 ? OTHER_HANGS : HANGS;
}

/* The copy after `place` others hangs. */
static outcome
see_swap(const char *folder, uint64_t place, uint32_t wait_ms)
{
    berth_plan_options options = loaded_options("0=24MiB,cpu=96MiB");
    loaded other;
    outcome is;
    moved m;

    moved_begin(&m, folder, &options, "sim:24MiB,clock=real");
    CHECK_EQ(moved_sleep(&m), BERTH_OK);
    options.finding = NULL;
    begin_other(&other, &m, folder, &options);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    m.l.model->wait_ns = other.model->wait_ns = wait_ms * HUNG_MS_NS;
    hung_copy(m.l.devices, place);
    is = outcome_of(&m, other.model, moved_swap(&m, other.model));
    m.l.model->wait_ns = other.model->wait_ns = PATIENCE_NS;
    berthi_sim_release(berthi_devices_at(m.l.devices, 0));
    sweep(other.model, other.p.context);
    loaded_end(&other); /* its context, too, before the first model is looked at */
    sweep(m.l.model, m.l.p.context);
    if (berth_model_get_state(m.l.model) == BERTH_MODEL_ASLEEP)
        (void)moved_is_ok(&m, moved_wake(&m));
    moved_check(&m);
    moved_end(&m);
    return is;
}

static outcome
see_patiently(const char *folder, uint64_t place)
{
    outcome is = SLOW;

    for (uint32_t ms = HUNG_FIRST_MS; is == SLOW && ms < WAIT_MS_MAX; ms *= 2)
        is = see_swap(folder, place, ms);
    CHECK(is != SLOW);
    return is;
}

static void
test_swap(void)
{
    const char *const folder = loaded_large(2, 2);
    bool has_seen[OTHER_HANGS + 1] = { false };
    uint64_t place = 0;

    while (place < PLACES && !has_seen[NONE]) {
        has_seen[see_patiently(folder, place)] = true;
        place += 1 + place / 4;
    }
    CHECK(has_seen[NONE]);
    CHECK(has_seen[HANGS]);
    CHECK(has_seen[OTHER_HANGS]);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_swap);
    return t_end();
}
