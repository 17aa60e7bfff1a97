/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hung_update.c - a device whose copies hang while it updates parameters: steps and the
 * end of an optimizer take no longer than they are told, and what the copies still use is
 * given back when they end, or with the devices.
 */
#include <math.h>
#include <pthread.h>
#include <time.h>

#include "kernels/fault.h"
#include "kernels/memory.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/optimizer.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/t.h"
#include "tests/trained.h"

/* A machine on which something else takes that long gets twice the patience, up to the most. */
#define WAIT_MS 100u
#define WAIT_MS_MOST 12800u
#define OPEN_MS 60000u
#define HUNG_MS 1u /* for what is known to hang: no patience is rewarded */
#define PLACES 64u /* no step has so many copies */

static const char *folder;

static const trained_parameter parameters[] = {
    { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
    { 4096, BERTH_F32, BERTH_F32, 0, 0 },
};

/* From now on; it was opened in no hurry. */
static void
be_patient(trained *t, uint64_t wait_ms)
{
    t->optimizer->wait_ns = wait_ms * HUNG_MS_NS;
}

/* What hangs comes back, and is waited for in no hurry: a loaded machine takes a while. */
static void
come_back(trained *t, uint32_t device)
{
    be_patient(t, OPEN_MS);
    berthi_sim_release(berthi_devices_at(t->devices, device));
}

static bool
open_patient(trained *t, berth_context *context, int32_t place, const char *words,
             uint64_t wait_ms)
{
    berth_optimizer_group group;
    berth_optimizer_options options;

    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    group.place = place;
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.page_elements = 4096;
    options.wait_ms = OPEN_MS;
    if (!trained_open(t, context,
                      &(trained_options){ .devices = words,
                                          .groups = &group,
                                          .group_count = 1,
                                          .parameters = parameters,
                                          .count = 2,
                                          .optimizer = &options,
                                          .seed = 1 }))
        return false;
    CHECK_EQ(t->optimizer->wait_ns, OPEN_MS * HUNG_MS_NS);
    be_patient(t, wait_ms);
    return true;
}

/* In no hurry: be_patient() comes with what hangs. */
static bool
open_at(trained *t, berth_context *context, int32_t place)
{
    return open_patient(t, context, place, "sim:64MiB,clock=real", OPEN_MS);
}

static uint64_t
bytes_of(const berth_context *context)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    return memory.current_bytes;
}

/* Where sums of gradients come to. */
static uint64_t
scratch_of(const berth_context *context)
{
    berth_memory memory;

    CHECK_EQ(berth_memory_get(context, 0, BERTH_MEMORY_SCRATCH, &memory), BERTH_OK);
    return memory.current_bytes;
}

/* What the books have for states, for the places in which they visit, for their buffers. */
static uint64_t
states_of(const berth_context *context)
{
    static const int32_t purposes[] =
        { BERTH_MEMORY_STATES, BERTH_MEMORY_SLOTS, BERTH_MEMORY_STAGING };
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < 3 * berth_memory_tiers(context); i++) {
        berth_memory memory;

        CHECK_EQ(berth_memory_get(context, i / 3, purposes[i % 3], &memory), BERTH_OK);
        bytes += memory.current_bytes;
    }
    return bytes;
}

/* Ends the optimizer: in time, hung or not. */
static void
destroy(trained *t)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    berth_optimizer_destroy(t->optimizer);
    t->optimizer = NULL;
    CHECK_LT(berthi_sys_now_ns() - begin_ns, WAIT_MS * HUNG_MS_NS + HUNG_SLACK_NS);
}

/* The device comes back, and the context looks until nothing is left of the states. */
static void
recover(const trained *t)
{
    const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;

    berthi_sim_release(berthi_devices_at(t->devices, 0));
    do {
        berthi_context_sweep(t->context);
    } while (states_of(t->context) > 0 && berthi_sys_now_ns() < end_ns);
    CHECK_EQ(states_of(t->context), 0);
}

/*
 * True where the copy after `before` others is one of the step's. `*out_is_late`: another
 * one took too long before.
 */
static bool
step_hung(int32_t place, uint64_t before, bool comes_back, uint64_t wait_ms,
          bool *out_is_late)
{
    berth_context *context;
    berth_gradient gradients[2];
    berth_error error;
    berth_status status;
    bool hung;
    trained t;

    *out_is_late = false;
    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    if (!open_patient(&t, context, place, "sim:64MiB,clock=real", wait_ms)) {
        trained_close(&t);
        berth_context_destroy(context);
        return false;
    }
    trained_draw(&t, 3, false);
    trained_gradients(&t, 3, gradients);
    hung_copy(t.devices, before);
    status = berth_optimizer_step(t.optimizer, gradients, NULL, &error);
    if (status != BERTH_OK)
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    hung = hung_has(t.devices);
    *out_is_late = status != BERTH_OK && !hung;
    be_patient(&t, hung ? HUNG_MS : OPEN_MS);
    destroy(&t);
    if (hung) {
        CHECK_GT(states_of(context), 0);
        berthi_context_sweep(context);
        CHECK_GT(states_of(context), 0); /* too early */
    }
    if (hung && comes_back)
        recover(&t);
    CHECK(hung || states_of(context) == 0);
    trained_close(&t); /* with a device that hangs, or that has come back */
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
    return hung;
}

static bool
check_step(int32_t place, uint64_t before, bool comes_back)
{
    uint64_t wait_ms = WAIT_MS;
    bool is_late;
    bool hung = step_hung(place, before, comes_back, wait_ms, &is_late);

    while (is_late && CHECK_LT(wait_ms, WAIT_MS_MOST)) {
        wait_ms *= 2;
        hung = step_hung(place, before, comes_back, wait_ms, &is_late);
    }
    return hung;
}

static void
check_place(int32_t place)
{
    uint64_t before = 0;

    while (before < PLACES && check_step(place, before, true))
        before++;
    CHECK_GE(before, 2);
    CHECK_LT(before, PLACES);
    CHECK(check_step(place, 0, false));
    CHECK(check_step(place, before - 1, false));
}

static void
test_states_on_the_host(void)
{
    check_place(BERTH_STATES_HOST);
}

static void
test_states_on_the_disk(void)
{
    check_place(BERTH_STATES_DISK);
}

/*
 * The first page hangs on its way, and the step's n-th call of the device fails, be it before
 * anything is behind that page: it is waited for all the same. False: no call failed.
 */
static bool
refuse_behind(int32_t place, uint64_t nth, uint64_t *hung)
{
    const int32_t elsewhere = place == BERTH_STATES_HOST ? BERTH_STATES_DISK
                                                         : BERTH_STATES_HOST;
    berth_gradient gradients[2];
    berth_context *context;
    bool has_failed = false;
    trained t;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    if (open_at(&t, context, place)) {
        trained_draw(&t, 3, false);
        trained_gradients(&t, 3, gradients);
        hung_copy(t.devices, 0);
        be_patient(&t, WAIT_MS);
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        (void)berth_optimizer_step(t.optimizer, gradients, NULL, NULL);
        has_failed = berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0;
        berthi_fault_disarm();
        if (hung_has(t.devices)) {
            berth_error error;

            ++*hung;
            be_patient(&t, HUNG_MS);
            CHECK_EQ(berth_optimizer_move(t.optimizer, 0, elsewhere, &error), BERTH_EIO);
            CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
            destroy(&t);
            CHECK_GT(states_of(context), 0);
            recover(&t);
        }
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
    return has_failed;
}

static void
test_calls_that_fail_behind_a_page(void)
{
    for (int32_t place = BERTH_STATES_HOST; place <= BERTH_STATES_DISK; place++) {
        uint64_t hung = 0;
        uint64_t nth = 0;

        while (nth < PLACES && refuse_behind(place, nth, &hung))
            nth++;
        CHECK_GT(hung, 4);
    }
}

/* How long a step takes whose first copy hangs, with four pages under way. */
static uint64_t
step_patiently(uint64_t wait_ms)
{
    uint64_t taken_ns = UINT64_MAX;
    berth_gradient gradients[2];
    berth_context *context;
    uint64_t begin_ns;
    berth_error error;
    trained t;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return taken_ns;
    if (open_patient(&t, context, BERTH_STATES_DISK, "sim:64MiB,clock=real", wait_ms)) {
        trained_draw(&t, 3, false);
        trained_gradients(&t, 3, gradients);
        hung_copy(t.devices, 0);
        begin_ns = berthi_sys_now_ns();
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, NULL, &error), BERTH_EIO);
        taken_ns = berthi_sys_now_ns() - begin_ns;
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
    return taken_ns;
}

/* They are waited for once, together. */
static void
test_patience_of_a_step(void)
{
    uint64_t wait_ms = 5 * WAIT_MS;
    uint64_t taken_ns = step_patiently(wait_ms);

    while (taken_ns >= 3 * wait_ms * HUNG_MS_NS && wait_ms < WAIT_MS_MOST / 2) {
        wait_ms *= 2;
        taken_ns = step_patiently(wait_ms);
    }
    CHECK_LT(taken_ns, 3 * wait_ms * HUNG_MS_NS);
}

/* The status of the step before the one in which a device is lost. */
static berth_status
lose_while_measuring(uint64_t wait_ms)
{
    static const trained_parameter on_two[] = {
        { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 4096, BERTH_F32, BERTH_F32, 0, 1 },
    };
    berth_optimizer_group group;
    berth_optimizer_options options;
    berth_step_options clipped;
    berth_gradient gradients[2];
    berth_status status = BERTH_EINVAL;
    berth_context *context;
    berth_error error;
    trained t;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return status;
    CHECK_EQ(berth_optimizer_group_init(&group, BERTH_UPDATE_ADAMW), BERTH_OK);
    berth_optimizer_options_init(&options);
    options.wait_ms = OPEN_MS;
    berth_step_options_init(&clipped);
    clipped.max_norm = 1;
    if (trained_open(&t, context,
                     &(trained_options){ .devices = "sim:64MiB,clock=real*2",
                                         .groups = &group,
                                         .group_count = 1,
                                         .parameters = on_two,
                                         .count = 2,
                                         .optimizer = &options,
                                         .seed = 1 })) {
        be_patient(&t, wait_ms);
        trained_draw(&t, 3, false);
        trained_gradients(&t, 3, gradients);
        status = berth_optimizer_step(t.optimizer, gradients, &clipped, &error);
    }
    if (status == BERTH_OK) {
        hung_copy(t.devices, 0);
        hung_lose(t.devices, 1, 1); /* which waits for its own work first */
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &clipped, &error), BERTH_ENODEV);
        CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
        CHECK(hung_has(t.devices));
        destroy(&t);
        CHECK_GT(scratch_of(context), 0); /* a copy will still write there */
        recover(&t);
        CHECK_EQ(scratch_of(context), 0);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
    return status;
}

/*
 * Sums of one device's gradients come to the host when another device is lost: nothing more
 * is asked for, and what was asked for is still waited for.
 */
static void
test_lost_while_measuring(void)
{
    uint64_t wait_ms = WAIT_MS;
    berth_status status = lose_while_measuring(wait_ms);

    while (status == BERTH_EIO && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        status = lose_while_measuring(wait_ms);
    }
    CHECK_EQ(status, BERTH_OK);
}

static void *
release_later(void *user)
{
    const struct timespec some = { .tv_nsec = WAIT_MS * (long)HUNG_MS_NS };

    (void)nanosleep(&some, NULL);
    berthi_sim_release(berthi_devices_at(user, 0));
    return NULL;
}

static double
norm_of(const trained *t, uint32_t i)
{
    double sum = 0;

    for (uint64_t k = 0; k < t->parameters[i].count; k++) {
        const double g = (double)((const float *)t->twins[i].host_gradient)[k];

        sum += g * g;
    }
    return sqrt(sum);
}

/*
 * Sums of a step that gave up on them come while the next one has others brought to the same
 * place. Its status; of the first one EIO.
 */
static berth_status
measure_behind(uint64_t wait_ms)
{
    static const trained_parameter on_two[] = {
        { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 4096, BERTH_F32, BERTH_F32, 0, 1 },
    };
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8,
                                                      BERTH_STATES_DEVICE);
    berth_optimizer_options options;
    berth_step_options measured;
    berth_gradient gradients[2];
    berth_step_report report;
    berth_status status = BERTH_EINVAL;
    berth_context *context;
    pthread_t thread;
    trained t;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return status;
    berth_optimizer_options_init(&options);
    options.wait_ms = OPEN_MS;
    berth_step_options_init(&measured);
    measured.has_norm = 1;
    measured.report = &report;
    if (trained_open(&t, context, &(trained_options){ .devices = "sim:64MiB,clock=real*2",
                                                      .groups = &group,
                                                      .group_count = 1,
                                                      .parameters = on_two,
                                                      .count = 2,
                                                      .optimizer = &options,
                                                      .seed = 1 })) {
        be_patient(&t, wait_ms);
        trained_draw(&t, 3, false);
        trained_gradients(&t, 3, gradients);
        hung_copy(t.devices, 0);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &measured, NULL), BERTH_EIO);
        CHECK_EQ(report.updated, 0);
        trained_gradients(&t, 2, gradients);
        CHECK_EQ(pthread_create(&thread, NULL, release_later, t.devices), 0);
        status = berth_optimizer_step(t.optimizer, gradients, &measured, NULL);
        pthread_join(thread, NULL);
    }
    if (status == BERTH_OK) {
        CHECK_EQ(report.step, 1);
        CHECK(fabs(report.norm - norm_of(&t, 1)) < 1e-9 * report.norm);
        trained_expect(&t, 2, 1.0f);
        trained_check(&t);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
    return status;
}

static void
test_sums_that_come_late(void)
{
    uint64_t wait_ms = 4 * WAIT_MS;
    berth_status status = measure_behind(wait_ms);

    while (status == BERTH_EIO && wait_ms < WAIT_MS_MOST) {
        wait_ms *= 2;
        status = measure_behind(wait_ms);
    }
    CHECK_EQ(status, BERTH_OK);
}

/* What the device has counted hangs on its way to a report; the next one says it. */
static void
check_report(bool comes_back)
{
    berth_step_options reported;
    berth_gradient gradients[2];
    berth_step_report report;
    berth_context *context;
    berth_error error;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    berth_step_options_init(&reported);
    reported.report = &report;
    if (open_at(&t, context, BERTH_STATES_DEVICE)) {
        trained_draw(&t, 3, true); /* some are not finite */
        trained_gradients(&t, 3, gradients);
        hung_copy(t.devices, 0);
        be_patient(&t, WAIT_MS);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &reported, &error), BERTH_EIO);
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
        CHECK(hung_has(t.devices));
        if (comes_back)
            come_back(&t, 0);
        destroy(&t);
        CHECK_EQ(states_of(context) == 0, comes_back);
        CHECK_EQ(scratch_of(context) == 0, comes_back);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
}

static void
test_reports(void)
{
    check_report(false);
    check_report(true);
}

/* The caller's own copy hangs, on the device's first stream. */
static void
hang_first(const trained *t)
{
    berthi_device *const device = berthi_devices_at(t->devices, 0);
    const uint8_t bytes[64] = { 0 };

    hung_copy(t->devices, 0);
    CHECK_EQ(device->table->copy(device,
                                 &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE,
                                                 .to = t->twins[0].gradient,
                                                 .from = bytes,
                                                 .bytes = sizeof bytes },
                                 NULL, NULL),
             BERTH_OK);
}

/* The caller's own stream hangs, before the updates that it was asked for. */
static void
test_the_callers_stream(void)
{
    berth_gradient gradients[2];
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, BERTH_STATES_DEVICE)) {
        trained_draw(&t, 3, false);
        trained_gradients(&t, 3, gradients);
        hang_first(&t);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, NULL, NULL), BERTH_OK);
        be_patient(&t, WAIT_MS);
        destroy(&t);
        CHECK_GT(states_of(context), 0);
        recover(&t);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
}

/*
 * Slots and buffers have to grow for what is moved: not those that a copy still uses. The
 * status of the move when it has come back.
 */
static berth_status
move_hung(int32_t place, berth_context *context)
{
    static const trained_parameter small_and_large[] = {
        { 4096, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 20000, BERTH_BF16, BERTH_BF16, 1, 0 },
    };
    berth_optimizer_group groups[2];
    berth_optimizer_options options;
    berth_gradient gradients[2];
    berth_status status = BERTH_EINVAL;
    berth_error error;
    trained t;

    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_optimizer_group_init(&groups[i], BERTH_UPDATE_ADAMW), BERTH_OK);
    groups[0].place = place;
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.wait_ms = OPEN_MS;
    if (trained_open(&t, context,
                     &(trained_options){ .devices = "sim:64MiB,clock=real",
                                         .groups = groups,
                                         .group_count = 2,
                                         .parameters = small_and_large,
                                         .count = 2,
                                         .optimizer = &options,
                                         .seed = 1 })) {
        be_patient(&t, WAIT_MS);
        trained_draw(&t, 3, false);
        trained_gradients(&t, 3, gradients);
        hung_copy(t.devices, 0);
        (void)berth_optimizer_step(t.optimizer, gradients, NULL, NULL);
        CHECK(hung_has(t.devices));
        CHECK_EQ(berth_optimizer_move(t.optimizer, 1, place, &error), BERTH_EIO);
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
        come_back(&t, 0);
        status = berth_optimizer_move(t.optimizer, 1, place, &error);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    return status;
}

static void
test_moves(void)
{
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    CHECK_EQ(move_hung(BERTH_STATES_HOST, context), BERTH_OK);
    CHECK_EQ(move_hung(BERTH_STATES_DISK, context), BERTH_OK);
    berth_context_destroy(context);
}

/* A call that waits for the device gives up in time; what it took is still counted. */
static void
check_late(berth_status status, const berth_error *error, uint64_t begin_ns)
{
    CHECK_EQ(status, BERTH_EIO);
    CHECK_EQ(error->reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error->message, "for 100 milliseconds");
    CHECK_LT(berthi_sys_now_ns() - begin_ns, WAIT_MS * HUNG_MS_NS + HUNG_SLACK_NS);
}

/*
 * States come to the device while its first stream hangs: what zeroes their memory is behind
 * that, so it is given back later, by the next move or with the optimizer.
 */
static void
check_move_behind(int32_t from, int32_t to, bool comes_back)
{
    berth_context *context;
    berth_error error;
    float number;
    uint64_t states;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, from)) {
        trained_step(&t, 3, false);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, &number, &error), BERTH_OK);
        states = states_of(context);
        hang_first(&t);
        be_patient(&t, WAIT_MS);
        for (uint32_t i = 0; i < 2; i++) {
            const uint64_t begin_ns = berthi_sys_now_ns();

            check_late(berth_optimizer_move(t.optimizer, i, to, &error), &error, begin_ns);
        }
        CHECK_GT(states_of(context), states);
        if (comes_back) {
            come_back(&t, 0);
            for (uint32_t i = 0; i < 2; i++) {
                CHECK_EQ(berth_optimizer_move(t.optimizer, i, to, &error), BERTH_OK);
                CHECK_EQ(berth_optimizer_move(t.optimizer, i, from, &error), BERTH_OK);
                CHECK_EQ(berth_optimizer_move(t.optimizer, i, to, &error), BERTH_OK);
            }
            trained_step(&t, 3, false);
            trained_check(&t);
        }
        destroy(&t);
        CHECK_EQ(states_of(context) == 0, comes_back);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
}

static void
test_moves_behind(void)
{
    for (int32_t comes_back = 0; comes_back < 2; comes_back++) {
        check_move_behind(BERTH_STATES_HOST, BERTH_STATES_DEVICE, comes_back != 0);
        check_move_behind(BERTH_STATES_DISK, BERTH_STATES_DEVICE, comes_back != 0);
        check_move_behind(BERTH_STATES_DEVICE, BERTH_STATES_HOST, comes_back != 0);
    }
}

/* What is read of a device is behind what the caller has asked of its first stream. */
static void
test_reading_behind(void)
{
    berth_context *context;
    berth_error error;
    uint64_t begin_ns;
    float number;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, BERTH_STATES_DEVICE)) {
        trained_step(&t, 3, false);
        hang_first(&t);
        be_patient(&t, WAIT_MS);
        begin_ns = berthi_sys_now_ns();
        check_late(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, &number, &error), &error,
                   begin_ns);
        come_back(&t, 0);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, &number, &error), BERTH_OK);
        trained_check(&t);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------- copies of one page */

typedef enum page_call { PAGE_READ, PAGE_SAVE, PAGE_LOAD, PAGE_OUT, PAGE_IN, PAGE_CALLS } page_call;

/* One call that copies pages from or to the device. */
static berth_status
use_pages(trained *t, page_call call, const char *path, berth_error *error)
{
    float number;

    switch (call) {
    case PAGE_READ: return berth_optimizer_read(t->optimizer, 0, 0, 0, 1, &number, error);
    case PAGE_SAVE: return berth_optimizer_save(t->optimizer, path, 1, error);
    case PAGE_LOAD: return berth_optimizer_load(t->optimizer, path, error);
    case PAGE_OUT: return berth_optimizer_move(t->optimizer, 0, BERTH_STATES_HOST, error);
    default: return berth_optimizer_move(t->optimizer, 0, BERTH_STATES_DEVICE, error);
    }
}

/* The page's own copy hangs, with nothing of the caller's before it. */
static void
check_page(page_call call, bool comes_back)
{
    const char *const path = fixture_format("%s/%d.safetensors", folder, (int)call);
    const int32_t place = call == PAGE_IN ? BERTH_STATES_HOST : BERTH_STATES_DEVICE;
    berth_context *context;
    berth_error error;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, place)) {
        uint64_t begin_ns;

        trained_step(&t, 3, false);
        CHECK_EQ(berth_optimizer_save(t.optimizer, path, 1, &error), BERTH_OK);
        hung_copy(t.devices, 0);
        be_patient(&t, WAIT_MS);
        begin_ns = berthi_sys_now_ns();
        check_late(use_pages(&t, call, path, &error), &error, begin_ns);
        CHECK(hung_has(t.devices));
        CHECK_GT(scratch_of(context), 0); /* the copy still uses it */
        begin_ns = berthi_sys_now_ns();
        check_late(use_pages(&t, call, path, &error), &error, begin_ns);
        if (comes_back) {
            come_back(&t, 0);
            CHECK_EQ(use_pages(&t, call, path, &error), BERTH_OK);
            CHECK_EQ(scratch_of(context), 0);
            trained_check(&t);
            trained_step(&t, 3, false);
            trained_check(&t);
        }
        destroy(&t);
        CHECK_EQ(states_of(context) == 0, comes_back);
        CHECK_EQ(scratch_of(context) == 0, comes_back);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
}

/* What a page was to be copied to stays, whichever of the devices it is that hangs. */
static void
test_a_page_of_the_second_device(void)
{
    static const trained_parameter second[] = { { 4096, BERTH_F32, BERTH_F32, 0, 1 } };
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8,
                                                      BERTH_STATES_DEVICE);
    berth_optimizer_options options;
    berth_context *context;
    berth_error error;
    float number;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    berth_optimizer_options_init(&options);
    options.wait_ms = OPEN_MS;
    if (trained_open(&t, context, &(trained_options){ .devices = "sim:64MiB,clock=real*2",
                                                      .groups = &group,
                                                      .group_count = 1,
                                                      .parameters = second,
                                                      .count = 1,
                                                      .optimizer = &options })) {
        be_patient(&t, WAIT_MS);
        hung_copy_of(t.devices, 1, 0);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, &number, &error), BERTH_EIO);
        CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
        CHECK_GT(scratch_of(context), 0);
        come_back(&t, 1);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, &number, &error), BERTH_OK);
        CHECK_EQ(scratch_of(context), 0);
    }
    trained_close(&t);
    CHECK_EQ(bytes_of(context), 0);
    berth_context_destroy(context);
}

static void
test_pages_that_hang(void)
{
    for (uint32_t call = 0; call < PAGE_CALLS; call++) {
        check_page((page_call)call, false);
        check_page((page_call)call, true);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    T_RUN(test_states_on_the_host);
    T_RUN(test_states_on_the_disk);
    T_RUN(test_calls_that_fail_behind_a_page);
    T_RUN(test_patience_of_a_step);
    T_RUN(test_lost_while_measuring);
    T_RUN(test_sums_that_come_late);
    T_RUN(test_reports);
    T_RUN(test_the_callers_stream);
    T_RUN(test_moves);
    T_RUN(test_moves_behind);
    T_RUN(test_reading_behind);
    T_RUN(test_pages_that_hang);
    T_RUN(test_a_page_of_the_second_device);
    T_MAIN_END;
}
