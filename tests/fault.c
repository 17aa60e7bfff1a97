/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - the n-th call fails, for every n; see fault.h. */
#include "tests/fault.h"

#include <inttypes.h>
#include <pthread.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"
#include "tests/vacant.h"

/* More calls than any function under test makes: a loop that long never ends. */
#define FAULT_RUNS_LIMIT 200000u

uint64_t
fault_step(uint64_t nth)
{
    return T_HAS_THREADS_WATCHED && nth >= 64 ? 8 : 1;
}

static void *
do_nothing(void *user)
{
    return user;
}

/* With that which a sanitizer begins beside the first one of a process. */
static uint64_t
threads_at_rest(void)
{
    static bool has_begun;
    pthread_t thread;

    if (!has_begun && pthread_create(&thread, NULL, do_nothing, NULL) == 0)
        has_begun = pthread_join(thread, NULL) == 0;
    return haul_threads();
}

/* One run; true when no failure was given any more. */
static bool
is_last_run(berthi_fault_kind kind, uint64_t nth, bool is_persistent,
            fault_function function, void *user, fault_counts *counts)
{
    const uint64_t step = fault_step(nth);
    const int fds = fixture_open_fds();
    const uint64_t threads = threads_at_rest();
    berth_context *context = NULL;
    berth_error error;
    berth_status status;
    uint64_t failures;

    berthi_error_clear(&error);
    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return true;
    berthi_fault_arm(kind, nth, is_persistent);
    status = function(user, context, &error);
    failures = berthi_fault_failures(kind);
    berthi_fault_disarm();

    vacant_check_memory(context);
    vacant_check_tiers(context);
    CHECK_EQ(fixture_open_fds(), fds);
    berth_context_destroy(context);
    CHECK(haul_has_at_most(threads));
    counts->runs += step;
    if (failures == 0) {
        CHECK_EQ(status, BERTH_OK);
        return true;
    }
    if (kind == BERTHI_FAULT_MEMORY) {
        counts->memory += step;
        CHECK(status == BERTH_OK || status == BERTH_ENOMEM);
    } else if (kind == BERTHI_FAULT_DEVICE) {
        counts->device += step;
        CHECK_NE(status, BERTH_EINTERNAL);
    } else {
        counts->system += step;
        CHECK_NE(status, BERTH_EINTERNAL);
    }
    if (status == BERTH_OK) {
        counts->survived += step;
        return false;
    }
    CHECK_EQ(error.status, status);
    CHECK_EQ(berthi_reason_status(error.reason), status);
    CHECK_NE(error.message[0], '\0');
    return false;
}

/* The n-th call fails alone, then it and all later ones. */
static void
loop_over(berthi_fault_kind kind, fault_function function, void *user,
          fault_counts *counts)
{
    for (int is_persistent = 0; is_persistent < 2; is_persistent++) {
        uint64_t nth = 0;

        while (!is_last_run(kind, nth, is_persistent != 0, function, user, counts))
            if (!CHECK_LT(nth += fault_step(nth), FAULT_RUNS_LIMIT))
                break;
    }
}

fault_counts
fault_loop(const char *name, fault_function function, void *user)
{
    fault_counts counts = {.runs = 0};

    loop_over(BERTHI_FAULT_MEMORY, function, user, &counts);
    loop_over(BERTHI_FAULT_SYSTEM, function, user, &counts);
    T_NOTE("%s: %" PRIu64 " runs, %" PRIu64 " with an allocation failing, %" PRIu64
           " with a system call failing, %" PRIu64 " survived",
           name, counts.runs, counts.memory, counts.system, counts.survived);
    return counts;
}

fault_counts
fault_loop_devices(const char *name, fault_function function, void *user)
{
    fault_counts counts = {.runs = 0};

    loop_over(BERTHI_FAULT_DEVICE, function, user, &counts);
    T_NOTE("%s: %" PRIu64 " runs, %" PRIu64 " with a device's call failing, %" PRIu64
           " survived",
           name, counts.runs, counts.device, counts.survived);
    return counts;
}
