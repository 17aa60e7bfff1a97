/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_begin.c - the memory of runs: in their order, within the pool, until
 * everything is stopped. Runs here are copied weights, which need nothing else.
 */
#include "loader/convert_batch.h"

#include <string.h>

#include "tests/t.h"

#define RUNS 3u
#define UNIT UINT64_C(64)

typedef struct bench {
    berthi_convert convert;
    berthi_recipe_weight weight;
    berthi_run runs[RUNS];
    berthi_batch batch;
} bench;

/* Runs that need so many units of memory, of a pool of four. */
static void
bench_init(bench *b, uint64_t first, uint64_t second, uint64_t third)
{
    const uint64_t units[RUNS] = { first, second, third };

    memset(b, 0, sizeof *b);
    CHECK_EQ(berth_context_create(NULL, &b->convert.context, NULL), BERTH_OK);
    b->convert.sizes.pool = 4 * UNIT;
    b->weight.is_copied = true;
    b->weight.record = BERTHI_NO_RECORD;
    b->weight.storage.encoding = BERTH_ENCODING_NATIVE;
    for (uint32_t i = 0; i < RUNS; i++) {
        b->runs[i].weight = &b->weight;
        b->runs[i].plan.strip_units = 1;
        b->runs[i].plan.memory = units[i] * UNIT;
    }
    b->batch.convert = &b->convert;
    b->batch.runs = b->runs;
    b->batch.run_count = RUNS;
    pthread_mutex_init(&b->batch.lock, NULL);
    pthread_cond_init(&b->batch.has_changed, NULL);
}

static void
bench_fini(bench *b)
{
    for (uint32_t i = 0; i < RUNS; i++)
        berthi_run_free(&b->batch, &b->runs[i]);
    pthread_cond_destroy(&b->batch.has_changed);
    pthread_mutex_destroy(&b->batch.lock);
    berth_context_destroy(b->convert.context);
}

static berth_status
begin(bench *b, uint32_t run)
{
    return berthi_run_begin(&b->batch, &b->runs[run], NULL);
}

/* One that has come to nothing: it has no memory, and none is booked for it. */
static void
check_cancelled(bench *b, uint32_t run)
{
    const uint64_t used = b->batch.pool_used;
    const uint64_t next = b->batch.next_to_begin;
    berth_error error;

    CHECK_EQ(berthi_run_begin(&b->batch, &b->runs[run], &error), BERTH_ECANCELLED);
    CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    CHECK(b->runs[run].memory == NULL);
    CHECK_EQ(b->runs[run].once, BERTHI_ONCE_ENTERED);
    CHECK_EQ(b->batch.pool_used, used);
    CHECK_EQ(b->batch.next_to_begin, next);
}

/* ----------------------------------------------------------------- what waits not */

/* The last byte of the pool is there to be used. */
static void
test_what_fits_begins(void)
{
    bench b;

    bench_init(&b, 1, 3, 0);
    for (uint32_t i = 0; i < RUNS; i++)
        CHECK_EQ(begin(&b, i), BERTH_OK);
    CHECK_EQ(b.batch.pool_used, 4 * UNIT);
    CHECK_EQ(b.batch.next_to_begin, RUNS);
    CHECK(b.runs[0].memory != NULL && b.runs[1].memory != NULL);
    CHECK(b.runs[2].memory == NULL);
    for (uint32_t i = 0; i < RUNS; i++) {
        CHECK_EQ(berthi_run_end(&b.batch, &b.runs[i], NULL), BERTH_OK);
        CHECK(b.runs[i].memory == NULL);
    }
    CHECK_EQ(b.batch.pool_used, 0);
    bench_fini(&b);
}

static void
test_a_larger_one_comes_alone(void)
{
    bench b;

    bench_init(&b, 1, 9, 1);
    CHECK_EQ(begin(&b, 0), BERTH_OK);
    CHECK_EQ(berthi_run_end(&b.batch, &b.runs[0], NULL), BERTH_OK);
    CHECK_EQ(begin(&b, 1), BERTH_OK);
    CHECK_EQ(b.batch.pool_used, 9 * UNIT);
    bench_fini(&b);
}

/* Weights without values have no units: nobody begins them, nobody waits for them. */
static void
test_empty_ones_have_no_turn(void)
{
    bench b;

    bench_init(&b, 0, 0, 1);
    b.runs[0].plan.strip_units = 0;
    b.runs[1].plan.strip_units = 0;
    CHECK_EQ(begin(&b, 2), BERTH_OK);
    CHECK_EQ(b.batch.next_to_begin, RUNS);
    bench_fini(&b);
}

/* ------------------------------------------------------------------------ stopped */

/* Whatever it would wait for, and even when there is nothing to wait for. */
static void
test_nothing_begins_any_more(void)
{
    bench b;

    bench_init(&b, 2, 3, 1);
    CHECK_EQ(begin(&b, 0), BERTH_OK);
    berthi_unit_stop(&b.batch);
    check_cancelled(&b, 1); /* no room */
    check_cancelled(&b, 2); /* not its turn */
    bench_fini(&b);
    bench_init(&b, 1, 1, 1);
    berthi_unit_stop(&b.batch);
    check_cancelled(&b, 0);
    bench_fini(&b);
}

typedef struct waiter {
    bench *b;
    uint32_t run;
    berth_status status;
    uint64_t used; /* of the pool, when the run has its memory */
} waiter;

static void *
wait_to_begin(void *user)
{
    waiter *const w = user;

    w->status = begin(w->b, w->run);
    pthread_mutex_lock(&w->b->batch.lock);
    w->used = w->b->batch.pool_used;
    pthread_mutex_unlock(&w->b->batch.lock);
    return NULL;
}

/* Before the wait, or during it: its end is the same. */
static void
test_a_stop_ends_the_wait(void)
{
    for (uint32_t i = 0; i < 100; i++) {
        waiter w = { .run = 1 + i % 2 }; /* no room; not its turn */
        pthread_t thread;
        bench b;

        w.b = &b;
        bench_init(&b, 2, 3, 1);
        CHECK_EQ(begin(&b, 0), BERTH_OK);
        CHECK_EQ(pthread_create(&thread, NULL, wait_to_begin, &w), 0);
        berthi_unit_stop(&b.batch);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(w.status, BERTH_ECANCELLED);
        CHECK(b.runs[w.run].memory == NULL);
        CHECK_EQ(w.used, 2 * UNIT);
        CHECK_EQ(b.batch.next_to_begin, 1);
        bench_fini(&b);
    }
}

/* ------------------------------------------------------------------- room and turn */

/* It begins when the run before has given back what it had, and no sooner. */
static void
test_room_is_waited_for(void)
{
    static const uint64_t sizes[] = { 3, 9 }; /* the second one comes alone */

    for (uint32_t i = 0; i < 100; i++) {
        waiter w = { .run = 1 };
        pthread_t thread;
        bench b;

        w.b = &b;
        bench_init(&b, 2, sizes[i % 2], 1);
        CHECK_EQ(begin(&b, 0), BERTH_OK);
        CHECK_EQ(pthread_create(&thread, NULL, wait_to_begin, &w), 0);
        CHECK_EQ(berthi_run_end(&b.batch, &b.runs[0], NULL), BERTH_OK);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(w.status, BERTH_OK);
        CHECK_EQ(w.used, sizes[i % 2] * UNIT);
        bench_fini(&b);
    }
}

/* The one behind has its memory only when the one before it has. */
static void
test_turn_is_waited_for(void)
{
    for (uint32_t i = 0; i < 100; i++) {
        waiter w = { .run = 1 };
        pthread_t thread;
        bench b;

        w.b = &b;
        bench_init(&b, 1, 1, 1);
        CHECK_EQ(pthread_create(&thread, NULL, wait_to_begin, &w), 0);
        CHECK_EQ(begin(&b, 0), BERTH_OK);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(w.status, BERTH_OK);
        CHECK_EQ(w.used, 2 * UNIT);
        CHECK_EQ(b.batch.next_to_begin, 2);
        bench_fini(&b);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_what_fits_begins);
    T_RUN(test_a_larger_one_comes_alone);
    T_RUN(test_empty_ones_have_no_turn);
    T_RUN(test_nothing_begins_any_more);
    T_RUN(test_a_stop_ends_the_wait);
    T_RUN(test_room_is_waited_for);
    T_RUN(test_turn_is_waited_for);
    T_MAIN_END;
}
