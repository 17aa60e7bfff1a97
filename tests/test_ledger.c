/* SPDX-License-Identifier: Apache-2.0 */
/* test_ledger.c - what is booked, what is refused, and both under threads. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ledger.h"
#include "tests/t.h"

static void
check_ledger(const berthi_ledger *ledger, uint64_t current, uint64_t peak,
             uint64_t allocations, uint64_t frees)
{
    CHECK_EQ(atomic_load(&ledger->current), current);
    CHECK_EQ(atomic_load(&ledger->peak), peak);
    CHECK_EQ(atomic_load(&ledger->allocations), allocations);
    CHECK_EQ(atomic_load(&ledger->frees), frees);
}

/* Reserves and takes; false when refused. */
static bool
is_taken(berthi_ledger *ledger, berthi_purpose purpose, uint64_t bytes)
{
    uint64_t current;

    if (!berthi_ledger_reserve(ledger, bytes, &current))
        return false;
    berthi_ledger_take(ledger, purpose, bytes, current);
    return true;
}

static void
test_names(void)
{
    static const char *const names[] = { "object", "header", "tensors", "document",
                                         "ring",   "chunks", "scratch", "weights" };

    CHECK_EQ(sizeof names / sizeof names[0], BERTHI_PURPOSE_COUNT);
    for (int i = 0; i < BERTHI_PURPOSE_COUNT; i++)
        CHECK_STR(berthi_purpose_name((berthi_purpose)i), names[i]);
    CHECK_STR(berthi_purpose_name(BERTHI_PURPOSE_COUNT), "unknown");
    CHECK_STR(berthi_purpose_name((berthi_purpose)-1), "unknown");
}

static void
test_booking(void)
{
    berthi_ledger ledger;
    uint64_t current = 0;

    memset(&ledger, 0xAA, sizeof ledger);
    berthi_ledger_init(&ledger, 0);
    check_ledger(&ledger, 0, 0, 0, 0);
    for (int i = 0; i < BERTHI_PURPOSE_COUNT; i++)
        CHECK_EQ(atomic_load(&ledger.by_purpose[i]), 0);
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 100));
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_HEADER, 50));
    check_ledger(&ledger, 150, 150, 2, 0);
    berthi_ledger_give(&ledger, BERTHI_PURPOSE_RING, 100);
    check_ledger(&ledger, 50, 150, 2, 1);
    CHECK_EQ(atomic_load(&ledger.by_purpose[BERTHI_PURPOSE_RING]), 0);
    CHECK_EQ(atomic_load(&ledger.by_purpose[BERTHI_PURPOSE_HEADER]), 50);
    /* Below the peak it stays; above it moves. */
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 100));
    check_ledger(&ledger, 150, 150, 3, 1);
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 1));
    check_ledger(&ledger, 151, 151, 4, 1);
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 0));
    check_ledger(&ledger, 151, 151, 5, 1);

    /* What was reserved and cancelled leaves no trace. */
    CHECK(berthi_ledger_reserve(&ledger, 1000, &current));
    CHECK_EQ(current, 1151);
    CHECK_EQ(atomic_load(&ledger.current), 1151);
    berthi_ledger_cancel(&ledger, 1000);
    check_ledger(&ledger, 151, 151, 5, 1);
}

/* Each counter begins at zero, and nothing behind the last one is touched. */
static void
test_borders(void)
{
    struct {
        berthi_ledger ledger;
        uint64_t behind;
    } block;

    memset(&block, 0xAA, sizeof block);
    berthi_ledger_init(&block.ledger, 0);
    check_ledger(&block.ledger, 0, 0, 0, 0);
    CHECK_EQ(block.behind, UINT64_C(0xAAAAAAAAAAAAAAAA));
}

static void
test_limit(void)
{
    berthi_ledger ledger;
    uint64_t current;

    berthi_ledger_init(&ledger, 100);
    CHECK(!is_taken(&ledger, BERTHI_PURPOSE_RING, 101));
    check_ledger(&ledger, 0, 0, 0, 0);
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 60));
    CHECK(!is_taken(&ledger, BERTHI_PURPOSE_RING, 41));
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 40));
    CHECK(!is_taken(&ledger, BERTHI_PURPOSE_RING, 1));
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 0));
    check_ledger(&ledger, 100, 100, 3, 0);
    berthi_ledger_give(&ledger, BERTHI_PURPOSE_RING, 40);
    /* A reservation counts against the limit before it is taken. */
    CHECK(berthi_ledger_reserve(&ledger, 40, &current));
    CHECK(!berthi_ledger_reserve(&ledger, 1, &current));
    CHECK(!berthi_ledger_has_room(&ledger, 1));
    berthi_ledger_cancel(&ledger, 40);
    CHECK(berthi_ledger_has_room(&ledger, 40));
    CHECK(!berthi_ledger_has_room(&ledger, 41));
    CHECK(berthi_ledger_reserve(&ledger, 1, &current));
    berthi_ledger_cancel(&ledger, 1);
    check_ledger(&ledger, 60, 100, 3, 1);
}

static void
test_overflow(void)
{
    berthi_ledger ledger;

    berthi_ledger_init(&ledger, 0);
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, UINT64_MAX));
    CHECK(!is_taken(&ledger, BERTHI_PURPOSE_RING, 1));
    CHECK(is_taken(&ledger, BERTHI_PURPOSE_RING, 0));
    check_ledger(&ledger, UINT64_MAX, UINT64_MAX, 2, 0);
}

/* ------------------------------------------------------------------ threads */

#define THREADS 4
#define ROUNDS 20000
#define EACH 30

static void *
take_and_give(void *user)
{
    berthi_ledger *const ledger = user;
    uint64_t *const refused = calloc(1, sizeof *refused);

    for (int i = 0; refused != NULL && i < ROUNDS; i++) {
        if (is_taken(ledger, BERTHI_PURPOSE_CHUNKS, EACH))
            berthi_ledger_give(ledger, BERTHI_PURPOSE_CHUNKS, EACH);
        else
            ++*refused;
        if (atomic_load(&ledger->current) > 100)
            *refused = UINT64_MAX / 2;
    }
    return refused;
}

/* Three at once fit under the limit, four do not: it is never passed. */
static void
test_threads(void)
{
    pthread_t threads[THREADS];
    uint64_t refused = 0;
    berthi_ledger ledger;

    berthi_ledger_init(&ledger, 100);
    for (int i = 0; i < THREADS; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, take_and_give, &ledger) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *of_thread = NULL;

        pthread_join(threads[i], &of_thread);
        if (CHECK(of_thread != NULL))
            refused += *(uint64_t *)of_thread;
        free(of_thread);
    }
    CHECK_LE(refused, THREADS * ROUNDS);
    CHECK_EQ(atomic_load(&ledger.current), 0);
    CHECK_LE(atomic_load(&ledger.peak), 90);
    CHECK_GE(atomic_load(&ledger.peak), 30);
    CHECK_EQ(atomic_load(&ledger.by_purpose[BERTHI_PURPOSE_CHUNKS]), 0);
    CHECK_EQ(atomic_load(&ledger.allocations), atomic_load(&ledger.frees));
    CHECK_EQ(atomic_load(&ledger.allocations), THREADS * ROUNDS - refused);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_names);
    T_RUN(test_booking);
    T_RUN(test_borders);
    T_RUN(test_limit);
    T_RUN(test_overflow);
    T_RUN(test_threads);
    T_MAIN_END;
}
