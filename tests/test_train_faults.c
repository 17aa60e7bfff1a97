/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fails under an optimizer: steps without memory or threads, devices that are lost;
 * every allocation, system call and call of a device failing in turn.
 *
 * What gives a thread its stack stands here: it may refuse to.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/fault.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"
#include "tests/vacant.h"

#define ALL UINT32_MAX
#define SIM "sim:256MiB,h2d=1GB/s,d2h=1GB/s"
#define ANY_THREADS UINT32_MAX

static const char *folder;
static _Atomic uint32_t threads_left = ANY_THREADS; /* that can still be started */

/* Stacks of the usual size do for all that starts here. */
int
pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes)
{
    const uint32_t left = atomic_load(&threads_left);

    (void)attributes;
    (void)bytes;
    if (left > 0 && left < ANY_THREADS)
        atomic_store(&threads_left, left - 1);
    return left > 0 ? 0 : EAGAIN;
}

/* ------------------------------------------------------------------ steps without memory */

/* Some states in memory, some on the disk, all on the processor. */
static bool
open_mixed(trained *t, berth_context *context)
{
    static const trained_parameter mixed[] = {
        { 40000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 100000, BERTH_BF16, BERTH_BF16, 1, 0 },
        { 30000, BERTH_F32, BERTH_F32, 0, 0 },
        { 50000, BERTH_F32, BERTH_BF16, 1, 0 },
    };
    const berth_optimizer_group groups[] = { trained_group_at(BERTH_STATES_DEVICE),
                                             trained_group_at(BERTH_STATES_DISK) };
    berth_optimizer_options options = trained_optimizer(folder);

    options.threads = 1;
    return trained_open(t, context, &(trained_options){ .groups = groups,
                                                        .group_count = 2,
                                                        .parameters = mixed,
                                                        .count = 4,
                                                        .optimizer = &options });
}

/* A step with a norm whose n-th call of a kind fails; how many did. */
static uint64_t
step_without(trained *t, berthi_fault_kind kind, uint64_t nth, bool is_persistent,
             berth_status *out)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options options;
    uint64_t failures;

    berth_step_options_init(&options);
    options.max_norm = 1e9f;
    trained_draw(t, ALL, false);
    trained_gradients(t, ALL, gradients);
    berthi_fault_arm(kind, nth, is_persistent);
    *out = berth_optimizer_step(t->optimizer, gradients, &options, NULL);
    failures = berthi_fault_failures(kind);
    berthi_fault_disarm();
    if (*out == BERTH_OK)
        trained_expect(t, ALL, 1.0f);
    return failures;
}

/* A step that lacks memory is one that was not begun: it can be made again. */
static void
test_a_step_without_memory_changes_nothing(void)
{
    for (int is_persistent = 0; is_persistent < 2; is_persistent++) {
        uint64_t failures = 1;
        berth_context *context;
        berth_status status;
        trained t;

        T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
        if (open_mixed(&t, context))
            for (uint64_t nth = 0; failures > 0 && nth < 50; nth++) {
                failures = step_without(&t, BERTHI_FAULT_MEMORY, nth, is_persistent != 0,
                                        &status);
                CHECK(status == BERTH_OK || (failures > 0 && status == BERTH_ENOMEM));
                trained_check(&t);
            }
        CHECK_EQ(failures, 0);
        trained_step(&t, ALL, false);
        trained_check(&t);
        trained_close(&t);
        berth_context_destroy(context);
    }
}

/* Sums that are begun whose next gradients' n-th call of the device fails; how many did. */
static uint64_t
add_without(trained *t, uint64_t nth)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_status status;
    uint64_t failures;

    trained_draw(t, ALL, false);
    trained_gradients(t, ALL, gradients);
    CHECK_EQ(berth_optimizer_accumulate(t->optimizer, gradients, NULL, NULL), BERTH_OK);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
    status = berth_optimizer_accumulate(t->optimizer, gradients, NULL, NULL);
    failures = berthi_fault_failures(BERTHI_FAULT_DEVICE);
    berthi_fault_disarm();
    CHECK_EQ(status != BERTH_OK, failures > 0);
    if (status == BERTH_OK)
        CHECK_EQ(berth_optimizer_step(t->optimizer, NULL, NULL, NULL), BERTH_OK);
    return failures;
}

/* Gradients that were added up by halves are none: the next ones begin sums anew. */
static void
test_sums_begin_anew_after_a_failure(void)
{
    uint64_t failures = 1;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open_at(&t, context, folder, SIM, BERTH_STATES_DEVICE))
        for (uint64_t nth = 0; failures > 0 && nth < 50; nth++) {
            berth_gradient gradients[TRAINED_MAX];

            failures = add_without(&t, nth);
            if (failures == 0)
                break;
            trained_gradients(&t, ALL, gradients);
            CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL), BERTH_OK);
            gradients[0].dtype = BERTH_I8;
            CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL),
                     BERTH_EINVAL); /* which changes nothing */
            CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, NULL, NULL), BERTH_OK);
            trained_expect(&t, ALL, 1.0f);
            trained_check(&t);
        }
    CHECK_EQ(failures, 0);
    trained_close(&t);
    berth_context_destroy(context);
}

/* What reads ahead and writes behind makes a step faster; without it there is one as well. */
static void
test_a_step_does_without_threads(void)
{
    for (int is_sim = 0; is_sim < 2; is_sim++) {
        berth_context *context;
        berth_status status;
        trained t;

        T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
        if (is_sim == 0 ? open_mixed(&t, context)
                        : trained_open_at(&t, context, folder, SIM, BERTH_STATES_DISK))
            for (uint32_t left = 0; left <= 2; left++) {
                atomic_store(&threads_left, left);
                trained_step(&t, ALL, false);
                atomic_store(&threads_left, ANY_THREADS);
                trained_check(&t);
                CHECK_EQ(step_without(&t, BERTHI_FAULT_SYSTEM, 0, false, &status), 1);
                CHECK_EQ(status, BERTH_OK);
                trained_check(&t);
            }
        /* What fails then is told, as with them. */
        CHECK_GT(step_without(&t, BERTHI_FAULT_SYSTEM, 0, true, &status), 1);
        CHECK_EQ(status, BERTH_EIO);
        (void)step_without(&t, BERTHI_FAULT_MEMORY, UINT64_MAX, false, &status);
        CHECK_EQ(status, BERTH_EINVAL);
        trained_close(&t);
        berth_context_destroy(context);
    }
}

/* System calls of a step of the first `count` parameters. */
static uint64_t
calls_of_step(const trained *t, uint32_t count, float max_norm)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options options;

    trained_gradients(t, (1u << count) - 1, gradients);
    berth_step_options_init(&options);
    options.max_norm = max_norm;
    berthi_fault_disarm();
    CHECK_EQ(berth_optimizer_step(t->optimizer, gradients, &options, NULL), BERTH_OK);
    return berthi_fault_calls(BERTHI_FAULT_SYSTEM);
}

/*
 * Of two shares each, so that there is one thread beside the caller's, for a norm and for an
 * update: how many cores there are is asked once.
 */
static void
test_a_step_counts_cores_once(void)
{
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8,
                                                      BERTH_STATES_DEVICE);
    trained_parameter parameters[8];
    berth_context *context;
    trained t;

    for (uint32_t i = 0; i < 8; i++)
        parameters[i] = (trained_parameter){ 70000, BERTH_BF16, BERTH_BF16, 0, 0 };
    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open(&t, context, &(trained_options){ .groups = &group, .group_count = 1,
                                                      .parameters = parameters, .count = 8 })) {
        uint64_t one;
        uint64_t all;

        trained_draw(&t, ALL, false);
        one = calls_of_step(&t, 1, 1.0f);
        all = calls_of_step(&t, 8, 1.0f);
        CHECK_LE(all, one + UINT64_C(7) * 2);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------------ lost devices */

/* Values and gradients on a device that is lost at its n-th call. */
typedef struct doomed {
    berth_optimizer *optimizer;
    berth_devices *devices;
    void *memory;
} doomed;

#define DOOMED 40000u

static berth_status
open_doomed(doomed *d, berth_context *context, const char *machine)
{
    static const uint64_t shape[] = { DOOMED };
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_HOST);
    berth_optimizer_options options = trained_optimizer(folder);
    berth_parameter parameter = {
        .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32
    };
    berthi_device *device;
    berth_status status;

    memset(d, 0, sizeof *d);
    status = berth_devices_open(context, machine, &d->devices, NULL);
    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(d->devices, 0);
    status = device->table->alloc(device, DOOMED * 8, &d->memory, NULL);
    if (status == BERTH_OK)
        status = device->table->clear(device, d->memory, DOOMED * 8, NULL, NULL);
    options.devices = d->devices;
    parameter.values = d->memory;
    if (status == BERTH_OK)
        status = berth_optimizer_create(context, &g, 1, &parameter, 1, &options,
                                        &d->optimizer, NULL);
    return status;
}

static void
close_doomed(doomed *d)
{
    berth_optimizer_destroy(d->optimizer);
    if (d->memory != NULL)
        berthi_devices_at(d->devices, 0)
            ->table->free(berthi_devices_at(d->devices, 0), d->memory, DOOMED * 8);
    vacant_close(d->devices);
}

/* What a step on a lost device leaves, as its report says. */
static void
check_lost(doomed *d, const berth_gradient *gradient, const berth_step_report *report,
           uint32_t *torn)
{
    const bool is_torn = report->updated > 0;
    berth_parameter_state state;
    berth_error error;

    *torn += is_torn;
    CHECK_EQ(report->step, 1);
    CHECK_EQ(berth_optimizer_get(d->optimizer, 0, &state), BERTH_OK);
    CHECK_EQ(state.step, report->updated);
    CHECK_EQ(berth_optimizer_step(d->optimizer, gradient, NULL, &error),
             is_torn ? BERTH_EINVAL : BERTH_ENODEV);
    if (is_torn)
        CHECK_CONTAINS(error.message, "half way");
}

/* A step that fails half way is the last one until states are loaded. */
static void
test_a_torn_step_is_said(void)
{
    berth_step_options options;
    berth_step_report report;
    berth_context *context;
    berth_error error;
    uint32_t torn = 0;
    berth_status status = BERTH_ENODEV;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    berth_step_options_init(&options);
    options.report = &report;
    for (uint32_t lose = 1; status != BERTH_OK && lose < 1000; lose++) {
        doomed d;

        status = open_doomed(&d, context, fixture_format("sim:256MiB,lose=%u", lose));
        if (status == BERTH_OK) {
            const berth_gradient gradient = { .values = (float *)d.memory + DOOMED,
                                              .dtype = BERTH_F32 };

            status = berth_optimizer_step(d.optimizer, &gradient, &options, &error);
            if (status != BERTH_OK) {
                CHECK_EQ(status, BERTH_ENODEV);
                check_lost(&d, &gradient, &report, &torn);
            }
        }
        close_doomed(&d);
    }
    CHECK_EQ(status, BERTH_OK);
    CHECK_GT(torn, 10);
    T_NOTE("%u steps torn", torn);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------------------ faults */

typedef struct attempt {
    const char *machine;
    int32_t place;
} attempt;

static berth_status
use(berth_optimizer *optimizer, const berth_gradient *gradients, int32_t place,
    berth_error *error)
{
    berth_step_report report;
    berth_step_options options;
    float number;
    berth_status status;

    berth_step_options_init(&options);
    options.max_norm = 1.0f;
    options.report = &report;
    status = berth_optimizer_step(optimizer, gradients, &options, error);
    if (status == BERTH_OK)
        status = berth_optimizer_accumulate(optimizer, gradients, NULL, error);
    if (status == BERTH_OK)
        status = berth_optimizer_move(optimizer, 0, (place + 1) % 3, error);
    if (status == BERTH_OK)
        status = berth_optimizer_step(optimizer, NULL, NULL, error);
    return status == BERTH_OK ? berth_optimizer_read(optimizer, 0, 0, 0, 1, &number, error)
                              : status;
}

static berth_status
attempt_on(berthi_device *device, uint8_t *memory, berth_context *context, const attempt *a,
           berth_optimizer_options *options, berth_error *error)
{
    static const uint64_t shape[] = { DOOMED };
    const berth_optimizer_group g = trained_group_at(a->place);
    const berth_parameter parameter = {
        .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32, .values = memory
    };
    const berth_gradient gradient = { .values = memory + DOOMED * 4, .dtype = BERTH_F32 };
    berth_optimizer *optimizer = NULL;
    berth_status status =
        device->table->clear(device, memory, DOOMED * 8, NULL, error);

    if (status != BERTH_OK)
        return status;
    status = berth_optimizer_create(context, &g, 1, &parameter, 1, options, &optimizer, error);
    CHECK_EQ(optimizer == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = use(optimizer, &gradient, a->place, error);
    berth_optimizer_destroy(optimizer);
    return status;
}

/* Values and gradients in the device's memory, and all that an optimizer can do. */
static berth_status
attempt_all(void *user, berth_context *context, berth_error *error)
{
    const attempt *const a = user;
    berth_optimizer_options options = trained_optimizer(folder);
    berthi_device *device;
    void *memory = NULL;
    berth_status status;

    options.threads = 1;
    status = berth_devices_open(context, a->machine, &options.devices, error);
    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(options.devices, 0);
    status = device->table->alloc(device, DOOMED * 8, &memory, error);
    if (status == BERTH_OK) {
        status = attempt_on(device, memory, context, a, &options, error);
        device->table->free(device, memory, DOOMED * 8);
    }
    vacant_close(options.devices);
    return status;
}

static void
test_every_call_can_fail(void)
{
    static const char *const machines[] = { "cpu", "sim:256MiB" };

    for (int m = 0; m < 2; m++)
        for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++) {
            attempt a = { machines[m], place };

            fault_counts devices;

            (void)fault_loop(fixture_format("%s %d", machines[m], place), attempt_all, &a);
            devices = fault_loop_devices(fixture_format("%s %d", machines[m], place),
                                         attempt_all, &a);
            /* Pins that there are not, and events that nobody waits for any more. Where
             * threads are watched, one failure counts for several. */
            if (!T_HAS_THREADS_WATCHED)
                CHECK_LE(devices.survived, 9);
        }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    T_RUN(test_a_step_without_memory_changes_nothing);
    T_RUN(test_sums_begin_anew_after_a_failure);
    T_RUN(test_a_step_does_without_threads);
    T_RUN(test_a_step_counts_cores_once);
    T_RUN(test_a_torn_step_is_said);
    T_RUN(test_every_call_can_fail);
    T_MAIN_END;
}
