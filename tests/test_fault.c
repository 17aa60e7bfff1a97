/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault.c - the switch that all fault tests rely on, and their loop. */
#include <pthread.h>
#include <stdlib.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "kernels/memory.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/t.h"

#define MEMORY BERTHI_FAULT_MEMORY
#define SYSTEM BERTHI_FAULT_SYSTEM

static void
test_off(void)
{
    berthi_fault_disarm();
    for (int i = 0; i < 10; i++)
        CHECK(!berthi_fault_is_due(MEMORY));
    CHECK_EQ(berthi_fault_calls(MEMORY), 10);
    CHECK_EQ(berthi_fault_calls(SYSTEM), 0);
    berthi_fault_disarm();
    CHECK_EQ(berthi_fault_calls(MEMORY), 0);
}

static void
test_once(void)
{
    for (uint64_t nth = 0; nth < 4; nth++) {
        berthi_fault_arm(SYSTEM, nth, false);
        for (uint64_t call = 0; call < 8; call++)
            CHECK_EQ(berthi_fault_is_due(SYSTEM), call == nth);
        CHECK_EQ(berthi_fault_calls(SYSTEM), 8);
        CHECK_EQ(berthi_fault_failures(SYSTEM), 1);
    }
    berthi_fault_disarm();
}

static void
test_from_then_on(void)
{
    for (uint64_t nth = 0; nth < 4; nth++) {
        berthi_fault_arm(MEMORY, nth, true);
        for (uint64_t call = 0; call < 8; call++)
            CHECK_EQ(berthi_fault_is_due(MEMORY), call >= nth);
        CHECK_EQ(berthi_fault_failures(MEMORY), 8 - nth);
    }
    berthi_fault_disarm();
    CHECK(!berthi_fault_is_due(MEMORY));
    CHECK_EQ(berthi_fault_failures(MEMORY), 5); /* still to be read after disarm */
    berthi_fault_disarm();
}

static void
test_kinds_are_apart(void)
{
    berthi_fault_arm(MEMORY, 0, true);
    CHECK(!berthi_fault_is_due(SYSTEM));
    CHECK(!berthi_fault_is_due(BERTHI_FAULT_DEVICE));
    CHECK(berthi_fault_is_due(MEMORY));
    berthi_fault_arm(SYSTEM, 1, false);
    CHECK(!berthi_fault_is_due(SYSTEM));
    CHECK(berthi_fault_is_due(SYSTEM));
    CHECK(berthi_fault_is_due(MEMORY));
    CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_DEVICE), 0);
    berthi_fault_disarm();
    CHECK(!berthi_fault_is_due(MEMORY));
    CHECK(!berthi_fault_is_due(SYSTEM));
}

static void *
ask_often(void *user)
{
    int *const due = user;

    for (int i = 0; i < 10000; i++)
        *due += berthi_fault_is_due(SYSTEM);
    return NULL;
}

static void
test_threads(void)
{
    pthread_t threads[3];
    int due[3] = { 0, 0, 0 };

    berthi_fault_arm(SYSTEM, 15000, false);
    for (int i = 0; i < 3; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, ask_often, &due[i]) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(due[0] + due[1] + due[2], 1);
    CHECK_EQ(berthi_fault_calls(SYSTEM), 30000);
    CHECK_EQ(berthi_fault_failures(SYSTEM), 1);
    berthi_fault_disarm();
}

/* ----------------------------------------------------------------- the loop */

/* Two allocations, one call that matters, one that is advice only. */
static berth_status
do_four_things(void *user, berth_context *context, berth_error *error)
{
    void *one = NULL;
    void *two = NULL;
    berth_status status = BERTH_OK;
    int folder = -1;

    (void)user;
    one = berthi_memory_alloc(context, BERTHI_PURPOSE_OBJECT, 10);
    two = one == NULL ? NULL : berthi_memory_alloc(context, BERTHI_PURPOSE_OBJECT, 20);
    if (two == NULL) {
        status = berthi_fail_memory(error, "two things");
        goto done;
    }
    folder = berthi_sys_open_folder(BERTHI_SYS_AT_CWD, "/");
    if (folder < 0) {
        status = berthi_fail_system(error, 5, "/", "opening");
        goto done;
    }
    berthi_sys_advise_random(folder);
done:
    if (folder >= 0)
        berthi_sys_close(folder);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, two, 20);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, one, 10);
    return status;
}

static void
test_loop_counts(void)
{
    const fault_counts counts = fault_loop("four things", do_four_things, NULL);

    CHECK_EQ(counts.memory, 2 * 2);
    CHECK_EQ(counts.system, 2 * 2);
    CHECK_EQ(counts.survived, 2);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_off);
    T_RUN(test_once);
    T_RUN(test_from_then_on);
    T_RUN(test_kinds_are_apart);
    T_RUN(test_threads);
    T_RUN(test_loop_counts);
    T_MAIN_END;
}
