/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hung_moves.c - models that sleep, wake, move and take turns on devices whose copies
 * hang: the jobs end with a status in time, a model is what it was or asleep, what the
 * copies still use is given back when they end, and then the model goes on with every byte.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/lease_state.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/leased.h"
#include "tests/moved.h"
#include "tests/t.h"

#define WAIT_MS 100u
#define WAIT_MS_MAX 20000u /* a machine on which something else takes so long is broken */
#define PLACES 100u        /* no test has so many copies */
#define PATIENCE_NS (UINT64_C(60000) * HUNG_MS_NS)
#define ASKED_NS    (UINT64_C(8000) * HUNG_MS_NS)

/* --------------------------------------------------------------------------- journeys */

/* What is done with a model. */
typedef struct journey {
    const char *words;
    const char *memory;
    const char *pin;       /* of the plan it is loaded with; NULL: none */
    const char *other_pin; /* of the plan it moves to; NULL: it does not */
    bool is_small;         /* of layers that need little room, and so more copies */
    bool discards;
    bool wakes;            /* it sleeps before that */
    int32_t state;         /* where a copy hangs; -1: whatever has been given back by then */
    bool is_encoded;       /* by the load, which has a folder for what the files do not have */
} journey;

static const journey journeys[] = {
    /* sleep */
    { "sim:64MiB,clock=real", "0=64MiB,cpu=96MiB", NULL, NULL, false, false, false,
      BERTH_MODEL_AWAKE, false },
    { "sim:64MiB,h2d=5GB/s", "0=64MiB,cpu=96MiB", "model.layers=cpu", NULL, true, false,
      false, BERTH_MODEL_AWAKE, false },
    { "sim:64MiB,clock=real", "0=64MiB,cpu=96MiB,disk=inf", "model.layers=disk", NULL, true,
      false, false, BERTH_MODEL_AWAKE, false },
    /* wake: from holds, and from the files */
    { "sim:64MiB,clock=real", "0=64MiB,cpu=96MiB", NULL, NULL, false, false, true,
      BERTH_MODEL_ASLEEP, false },
    { "sim:64MiB,h2d=5GB/s", "0=64MiB,cpu=96MiB", "model.layers=cpu", NULL, true, false,
      true, BERTH_MODEL_ASLEEP, false },
    { "sim:64MiB,clock=real", "0=64MiB,cpu=96MiB", NULL, NULL, false, true, true,
      BERTH_MODEL_ASLEEP, false },
    /* move: with room for both slabs, through host memory, between devices, from files */
    { "sim:256MiB,clock=real", "0=64MiB,cpu=96MiB", NULL, "model.layers.1=cpu", false, false,
      false, BERTH_MODEL_AWAKE, false },
    { "sim:24MiB,clock=real", "0=24MiB,cpu=96MiB", NULL, "model.layers.1=cpu", false, false,
      false, -1, false },
    { "sim:64MiB,clock=real;sim:64MiB,clock=real", "0=64MiB,1=64MiB,cpu=64MiB",
      "model.layers.0=cuda:0", "model.layers.0=cuda:1", false, false, false,
      BERTH_MODEL_AWAKE, false },
    { "sim:64MiB,clock=real", "0=64MiB,cpu=96MiB,disk=inf", "model.layers=disk",
      "model.layers=cuda:0", true, false, false, BERTH_MODEL_AWAKE, false },
    /* move: to a file */
    { "sim:64MiB,clock=real", "0=64MiB,cpu=96MiB,disk=inf", "model.layers=cuda:0",
      "model.layers.0.mlp=disk", true, false, false, BERTH_MODEL_AWAKE, true },
};

#define JOURNEYS (sizeof journeys / sizeof journeys[0])

/* Returns the other plan, or NULL. */
static berth_plan *
begin(moved *m, const char *folder, const journey *j)
{
    const char *pins[] = { j->pin };
    berth_plan_options options = loaded_options(j->memory);

    options.pins = pins;
    options.pin_count = j->pin != NULL;
    options.slots = 2;
    options.type = j->is_encoded ? BERTH_ENCODING_NF4 : BERTH_ENCODING_NATIVE;
    moved_begin_with(m, folder, &options, j->words,
                     j->is_encoded ? fixture_folder() : NULL);
    m->options.discards = j->discards;
    if (j->wakes)
        CHECK_EQ(moved_sleep(m), BERTH_OK);
    if (j->other_pin == NULL)
        return NULL;
    pins[0] = j->other_pin;
    options.pin_count = 1;
    options.finding = NULL;
    return moved_plan(m, &options);
}

static berth_status
go(moved *m, const journey *j, const berth_plan *plan)
{
    if (plan != NULL)
        return moved_move(m, plan);
    return j->wakes ? moved_wake(m) : moved_sleep(m);
}

/* ----------------------------------------------------------------------- what is told */

typedef enum outcome {
    NONE,  /* there are not so many copies */
    LATER, /* nobody had to wait for it: a layer that nobody has asked for */
    HANGS,
    SLOW   /* something else took so long: once more, with more patience */
} outcome;

static outcome
outcome_of(const moved *m, berth_status status)
{
    const bool has_hung = hung_has(m->l.devices);

    if (status == BERTH_OK)
        return has_hung ? LATER : NONE;
    return has_hung && strstr(m->error.message, "has not finished its copies") != NULL
               ? HANGS
               : SLOW;
}

static void
check_told(const moved *m, uint32_t wait_ms, uint64_t spent_ns)
{
    CHECK_EQ(m->error.status, BERTH_EIO);
    CHECK_EQ(m->error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(m->error.message,
                   fixture_format("has not finished its copies for %llu milliseconds",
                                  (unsigned long long)wait_ms));
    CHECK_GE(spent_ns, wait_ms * HUNG_MS_NS);
    CHECK_LT(spent_ns, 3 * wait_ms * HUNG_MS_NS + HUNG_SLACK_NS);
}

/* It can be used, or not, and is not moved. */
static void
check_state(moved *m, int32_t state)
{
    const int32_t is = berth_model_get_state(m->l.model);
    berth_error error;
    uint32_t crc;

    CHECK(is == BERTH_MODEL_AWAKE || is == BERTH_MODEL_ASLEEP);
    if (state >= 0)
        CHECK_EQ(is, state);
    if (is == BERTH_MODEL_AWAKE) { /* the embedding is resident */
        CHECK_EQ(berth_layer_acquire(m->l.model, 0, NULL, &error), BERTH_OK);
        CHECK_EQ(berth_layer_release(m->l.model, 0, NULL, &error), BERTH_OK);
        CHECK_EQ(berth_model_digest(m->l.model, 0, &crc, &error), BERTH_EIO);
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
        CHECK_EQ(moved_sleep(m), BERTH_EIO);
    } else {
        CHECK_EQ(moved_wake(m), BERTH_EIO);
    }
    CHECK_EQ(m->error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(m->error.message, "copies of the model's last move have not ended");
    CHECK_EQ(berth_model_get_state(m->l.model), is);
}

/* Slabs and holds; rings grow whenever their thread comes to it. */
typedef struct weights {
    uint64_t used; /* of host memory */
    uint64_t free; /* of all devices */
} weights;

static weights
weights_of(const moved *m)
{
    weights all = { .used = moved_used(m) };

    for (uint32_t i = 0; i < berth_devices_count(m->l.devices); i++)
        all.free += moved_free(m, i);
    return all;
}

static bool
is_same(const weights *a, const weights *b)
{
    return a->used == b->used && a->free == b->free;
}

/* What is used stays, and is counted. */
static void
check_stranded(const moved *m, const weights *before, bool has_more)
{
    const weights first = weights_of(m);
    weights later;

    CHECK_EQ(atomic_load(&m->l.model->stranded), 1);
    if (has_more)
        CHECK(first.used > before->used || first.free < before->free);
    berthi_context_sweep(m->l.p.context);
    later = weights_of(m);
    CHECK(is_same(&later, &first));
    CHECK_EQ(atomic_load(&m->l.model->stranded), 1);
}

/* ---------------------------------------------------------------------- what comes then */

/* The device has come back. */
static void
release(const moved *m)
{
    const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;

    berthi_sim_release(berthi_devices_at(m->l.devices, 0));
    do {
        berthi_context_sweep(m->l.p.context);
    } while (atomic_load(&m->l.model->stranded) > 0 && berthi_sys_now_ns() < end_ns);
    CHECK_EQ(atomic_load(&m->l.model->stranded), 0);
}

/* The model goes on, as if nothing had been. */
static void
check_goes_on(moved *m, const journey *j, const berth_plan *plan, const weights *before)
{
    weights now;

    m->l.model->wait_ns = PATIENCE_NS;
    release(m);
    now = weights_of(m);
    if ((berth_model_get_state(m->l.model) == BERTH_MODEL_ASLEEP) == j->wakes)
        CHECK(is_same(&now, before));
    else if (!j->wakes)
        (void)moved_is_ok(m, moved_wake(m));
    if (berth_model_get_state(m->l.model) == BERTH_MODEL_AWAKE)
        moved_check(m);
    if ((berth_model_get_state(m->l.model) == BERTH_MODEL_ASLEEP) == j->wakes
        && moved_is_ok(m, go(m, j, plan))
        && berth_model_get_state(m->l.model) == BERTH_MODEL_ASLEEP)
        (void)moved_is_ok(m, moved_wake(m));
    moved_check(m);
}

/* It goes although its copies hang: what they use stays. So does the device, by and by. */
static void
check_goes(moved *m)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_device device;

    loaded_unload(&m->l);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
    moved_free_plans();
    CHECK_EQ(berth_devices_get(m->l.devices, 0, &device), BERTH_OK);
    CHECK_LT(device.free_bytes, device.memory_bytes);
}

static void
end(moved *m)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    moved_free_plans();
    moved_end(m);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
}

/* The copy after `place` others hangs. */
static outcome
see(const journey *j, const char *folder, uint64_t place, uint32_t wait_ms, bool comes_back)
{
    weights before;
    uint64_t begin_ns;
    uint64_t spent_ns;
    berth_plan *plan;
    outcome is;
    moved m;

    plan = begin(&m, folder, j);
    before = weights_of(&m);
    m.l.model->wait_ns = wait_ms * HUNG_MS_NS;
    hung_copy(m.l.devices, place);
    begin_ns = berthi_sys_now_ns();
    is = outcome_of(&m, go(&m, j, plan));
    spent_ns = berthi_sys_now_ns() - begin_ns;
    if (is == HANGS) {
        check_told(&m, wait_ms, spent_ns);
        check_state(&m, j->state);
        check_stranded(&m, &before, j->state >= 0 && !j->is_encoded);
        if (comes_back)
            check_goes_on(&m, j, plan, &before);
        else
            check_goes(&m);
    } else if (is == LATER && comes_back) {
        berthi_sim_release(berthi_devices_at(m.l.devices, 0));
        m.l.model->wait_ns = PATIENCE_NS;
        moved_check(&m);
    }
    end(&m);
    return is;
}

static outcome
see_patiently(const journey *j, const char *folder, uint64_t place, bool comes_back)
{
    outcome is = SLOW;

    for (uint32_t ms = HUNG_FIRST_MS; is == SLOW && ms < WAIT_MS_MAX; ms *= 2)
        is = see(j, folder, place, ms, comes_back);
    CHECK(is != SLOW);
    return is;
}

static void
test_journeys(void)
{
    const char *const large = loaded_large(2, 2);
    const char *const small = leased_llama(6, 2);

    for (uint32_t i = 0; i < JOURNEYS; i++) {
        const journey *const j = &journeys[i];
        const char *const folder = j->is_small ? small : large;
        uint32_t hung = 0;
        uint64_t place = 0;
        outcome is;

        while (place < PLACES
               && (is = see_patiently(j, folder, place, place % 2 == 0)) != NONE) {
            hung += is == HANGS;
            place += 1 + place / (T_HAS_THREADS_WATCHED ? 2 : 5);
        }
        CHECK_GE(hung, 1);
        CHECK_LT(place, PLACES);
        CHECK_EQ(see_patiently(j, folder, 0, false), HANGS);
    }
}

/* ------------------------------------------------------------------------------- swap */

/* One of two models sleeps; `m` has the one that is awake. */
static berth_model *
begin_swap(moved *m, const char *folder)
{
    berth_plan_options options = loaded_options("0=24MiB,cpu=96MiB");
    berth_model *other;

    moved_begin(m, folder, &options, "sim:24MiB,clock=real");
    CHECK_EQ(moved_sleep(m), BERTH_OK);
    other = m->l.model;
    loaded_load(&m->l);
    CHECK_EQ(m->l.status, BERTH_OK);
    return other;
}

static outcome
see_swap(const char *folder, uint64_t place, uint32_t wait_ms)
{
    uint64_t begin_ns;
    uint64_t spent_ns;
    berth_model *first;
    outcome is;
    moved m;

    berth_model *const other = begin_swap(&m, folder);

    first = m.l.model;
    if (first == NULL) {
        berth_model_destroy(other);
        moved_end(&m);
        return NONE;
    }
    first->wait_ns = wait_ms * HUNG_MS_NS;
    other->wait_ns = wait_ms * HUNG_MS_NS;
    hung_copy(m.l.devices, place);
    begin_ns = berthi_sys_now_ns();
    is = outcome_of(&m, moved_swap(&m, other));
    spent_ns = berthi_sys_now_ns() - begin_ns;
    first->wait_ns = PATIENCE_NS;
    other->wait_ns = PATIENCE_NS;
    if (is == HANGS) {
        check_told(&m, wait_ms, spent_ns);
        CHECK_EQ(berth_model_get_state(other), BERTH_MODEL_ASLEEP);
        CHECK_EQ(atomic_load(&first->stranded) + atomic_load(&other->stranded), 1);
        berthi_sim_release(berthi_devices_at(m.l.devices, 0));
        m.l.model = other;
        release(&m);
        m.l.model = first;
        release(&m);
        if (berth_model_get_state(first) == BERTH_MODEL_ASLEEP)
            (void)moved_is_ok(&m, moved_wake(&m));
        moved_check(&m);
        (void)moved_is_ok(&m, moved_swap(&m, other));
        m.l.model = other;
        moved_check(&m);
        m.l.model = first;
    }
    berth_model_destroy(other);
    moved_end(&m);
    return is;
}

static void
test_swap(void)
{
    const char *const folder = loaded_large(2, 2);
    uint64_t place = 0;
    outcome is = HANGS;

    for (; place < PLACES && is != NONE; place++) {
        is = SLOW;
        for (uint32_t ms = HUNG_FIRST_MS; is == SLOW && ms < WAIT_MS_MAX; ms *= 2)
            is = see_swap(folder, place, ms);
        CHECK(is != SLOW && is != LATER);
    }
    CHECK_GE(place, 8); /* some of each model */
    CHECK_LT(place, PLACES);
}

/* -------------------------------------------------------------------------- otherwise */

/* However patient the model is: the job ends a few seconds after the cancel at most. */
static void
check_cancelled(moved *m, berth_job *job)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    berth_job_cancel(job);
    CHECK_EQ(berth_job_finish(job, &m->error), BERTH_ECANCELLED);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_PATIENCE_NS + HUNG_SLACK_NS);
}

/* `place`: of the copy that hangs; what hangs is not known to hang yet. */
static void
check_cancel(const journey *j, const char *folder, uint64_t place)
{
    const uint64_t end_ns = berthi_sys_now_ns() + 2 * HUNG_SLACK_NS;
    berth_status status;
    berth_plan *plan;
    berth_job *job;
    moved m;

    plan = begin(&m, folder, j);
    m.l.model->wait_ns = PATIENCE_NS;
    m.l.p.context->hung_ns = HUNG_PATIENCE_NS;
    hung_copy(m.l.devices, place);
    status = plan != NULL
                 ? berth_model_move_start(m.l.model, plan, &m.options, &job, &m.error)
             : j->wakes ? berth_model_wake_start(m.l.model, &m.options, &job, &m.error)
                        : berth_model_sleep_start(m.l.model, &m.options, &job, &m.error);
    T_REQUIRE(status == BERTH_OK);
    while (!hung_has(m.l.devices) && berthi_sys_now_ns() < end_ns)
        berthi_sys_sleep(HUNG_MS_NS);
    CHECK(hung_has(m.l.devices));
    check_cancelled(&m, job);
    CHECK_EQ(berth_model_get_state(m.l.model), j->state);
    release(&m);
    if (j->wakes)
        (void)moved_is_ok(&m, moved_wake(&m));
    moved_check(&m);
    end(&m);
}

/* In the first pieces, in the last ones, in those of a file. */
static void
test_cancel(void)
{
    const char *const large = loaded_large(2, 2);

    check_cancel(&journeys[0], large, 0);
    check_cancel(&journeys[0], large, 2);
    check_cancel(&journeys[3], large, 0);
    check_cancel(&journeys[5], large, 0);
    check_cancel(&journeys[6], large, 0);
}

/* Uses layers until a copy into a slot hangs. */
static void
hang_a_fill(moved *m)
{
    berth_error error;

    hung_copy(m->l.devices, 0);
    for (uint32_t i = 0; !hung_has(m->l.devices) && i < m->l.model->layer_count; i++) {
        CHECK_EQ(berth_layer_acquire(m->l.model, i, NULL, &error), BERTH_OK);
        CHECK_EQ(berth_layer_release(m->l.model, i, NULL, &error), BERTH_OK);
    }
    CHECK(hung_has(m->l.devices));
}

/* Before the model is the job's: a call that does not end, a layer whose copy hangs. */
static void
test_cancel_before(void)
{
    berth_error error;
    berth_job *job;
    moved m;

    CHECK(begin(&m, leased_llama(6, 2), &journeys[1]) == NULL);
    m.l.p.context->hung_ns = HUNG_PATIENCE_NS;
    CHECK_EQ(berthi_model_enter(m.l.model, &error), BERTH_OK);
    T_REQUIRE(berth_model_sleep_start(m.l.model, &m.options, &job, &m.error) == BERTH_OK);
    check_cancelled(&m, job);
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_AWAKE);
    berthi_model_leave(m.l.model);

    hang_a_fill(&m);
    T_REQUIRE(berth_model_sleep_start(m.l.model, &m.options, &job, &m.error) == BERTH_OK);
    (void)berth_job_wait(job, 20);
    check_cancelled(&m, job);
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_AWAKE);
    release(&m);
    CHECK(moved_is_ok(&m, moved_sleep(&m)));
    CHECK(moved_is_ok(&m, moved_wake(&m)));
    moved_check(&m);
    end(&m);
}

/* What was leased can be asked for at any time, also while a move waits for a device. */
static void
test_asked_meanwhile(void)
{
    berth_lease_summary summary;
    uint64_t asked_ns;
    berth_job *job;
    moved m;

    CHECK(begin(&m, leased_llama(6, 2), &journeys[1]) == NULL);
    m.l.model->wait_ns = ASKED_NS;
    hang_a_fill(&m);
    T_REQUIRE(berth_model_sleep_start(m.l.model, &m.options, &job, &m.error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, 50), BERTH_PENDING);
    asked_ns = berthi_sys_now_ns();
    berth_model_leases(m.l.model, &summary);
    CHECK_LT(berthi_sys_now_ns() - asked_ns, ASKED_NS / 2);
    CHECK_GE(summary.acquired, 1);
    release(&m);
    CHECK_EQ(berth_job_finish(job, &m.error), BERTH_OK);
    CHECK(moved_is_ok(&m, moved_wake(&m)));
    moved_check(&m);
    end(&m);
}

/* A device that only the model has is given up with it. */
static void
test_own_devices(void)
{
    berth_plan_options options = loaded_options("0=8MiB,cpu=64MiB");
    uint64_t before;
    uint64_t begin_ns;
    moved m;

    memset(&m, 0, sizeof m);
    berth_move_options_init(&m.options);
    loaded_begin(&m.l, loaded_llama(2, "BF16", 2), &options, NULL);
    (void)snprintf(m.l.p.plan->tiers[0].name, sizeof m.l.p.plan->tiers[0].name,
                   "sim:8MiB,clock=real");
    before = loaded_bytes(m.l.p.context);
    loaded_load(&m.l);
    T_REQUIRE(m.l.status == BERTH_OK);
    m.l.model->wait_ns = WAIT_MS * HUNG_MS_NS;
    hung_copy(m.l.model->devices, 0);
    CHECK_EQ(moved_sleep(&m), BERTH_EIO);
    CHECK(hung_has(m.l.model->devices));
    CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_AWAKE);
    begin_ns = berthi_sys_now_ns();
    loaded_unload(&m.l);
    CHECK_LT(berthi_sys_now_ns() - begin_ns, HUNG_SLACK_NS);
    CHECK_EQ(loaded_bytes(m.l.p.context), before);
    loaded_end(&m.l);
}

/* One of the same context on another device does not notice. */
static void
test_other_models(void)
{
    const char *const folder = loaded_large(2, 2);
    weights before;
    weights after;
    berth_devices *hung_devices;
    berth_model *hung;
    moved m;

    CHECK(begin(&m, folder, &journeys[0]) == NULL);
    hung = m.l.model;
    before = weights_of(&m);
    hung->wait_ns = WAIT_MS * HUNG_MS_NS;
    hung_copy(m.l.devices, 0);
    CHECK_EQ(moved_sleep(&m), BERTH_EIO);

    hung_devices = m.l.devices;
    T_REQUIRE(berth_devices_open(m.l.p.context, "sim:64MiB,clock=real", &m.l.devices,
                                 &m.error)
              == BERTH_OK);
    m.l.options.devices = m.l.devices;
    loaded_load(&m.l);
    if (CHECK_EQ(m.l.status, BERTH_OK)) {
        CHECK_EQ(moved_sleep(&m), BERTH_OK);
        CHECK_EQ(moved_wake(&m), BERTH_OK);
        moved_check(&m);
    }
    CHECK_EQ(atomic_load(&hung->stranded), 1);
    loaded_unload(&m.l);
    berth_devices_close(m.l.devices);

    m.l.devices = hung_devices;
    m.l.model = hung;
    hung->wait_ns = PATIENCE_NS;
    release(&m);
    after = weights_of(&m);
    CHECK(is_same(&after, &before));
    moved_check(&m);
    end(&m);
}

/*
 * A call fails while layers begin to be streamed again, and a copy of theirs hangs: the
 * model sleeps, and nothing is put into its slots again before that copy is over. True:
 * no call was left to fail.
 */
static bool
check_begin(const char *folder, uint64_t carried, uint64_t call, uint32_t *hung)
{
    const journey *const j = &journeys[4];
    berth_status status;
    bool has_hung;
    moved m;

    CHECK(begin(&m, folder, j) == NULL);
    m.l.model->wait_ns = WAIT_MS * HUNG_MS_NS;
    hung_copy(m.l.devices, carried);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, call, false);
    status = moved_wake(&m);
    berthi_fault_disarm();
    has_hung = hung_has(m.l.devices);
    if (status != BERTH_OK) {
        CHECK_EQ(berth_model_get_state(m.l.model), BERTH_MODEL_ASLEEP);
        CHECK_EQ(atomic_load(&m.l.model->stranded), has_hung);
        *hung += has_hung;
    }
    m.l.model->wait_ns = PATIENCE_NS;
    release(&m);
    if (status != BERTH_OK)
        (void)moved_is_ok(&m, moved_wake(&m));
    moved_check(&m);
    end(&m);
    return status == BERTH_OK;
}

static void
test_leases_that_do_not_begin(void)
{
    const char *const folder = leased_llama(6, 2);
    uint64_t carried;
    uint64_t call = 0;
    uint32_t hung = 0;
    bool is_over = false;
    moved m;

    /* Of a wake, copies before those of layers. */
    CHECK(begin(&m, folder, &journeys[4]) == NULL);
    carried = hung_copies(m.l.devices);
    atomic_store(&berthi_lease_without, BERTHI_LEASE_NO_PREFETCH);
    CHECK_EQ(moved_wake(&m), BERTH_OK);
    atomic_store(&berthi_lease_without, 0);
    carried = hung_copies(m.l.devices) - carried;
    end(&m);
    for (; !is_over && call < 4 * PLACES; call++)
        is_over = check_begin(folder, carried, call, &hung);
    CHECK(is_over);
    CHECK_GE(hung, 2);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_journeys);
    T_RUN(test_swap);
    T_RUN(test_cancel);
    T_RUN(test_cancel_before);
    T_RUN(test_asked_meanwhile);
    T_RUN(test_own_devices);
    T_RUN(test_other_models);
    T_RUN(test_leases_that_do_not_begin);
    return t_end();
}
