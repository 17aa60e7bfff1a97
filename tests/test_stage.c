/* SPDX-License-Identifier: Apache-2.0 */
/* test_stage.c - the ring's protocol: states, order, growth, the end. */
#define _DEFAULT_SOURCE

#include "loader/stage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define BYTES 8192u

static const bool any_only[] = { true, false };
static const bool order_only[] = { false, true };
static const bool both[] = { true, true };

/* Four chunks of file 0, three of file 1. */
static const berthi_chunk chunks[] = {
    { .file = 0, .number_in_file = 0 }, { .file = 0, .number_in_file = 1 },
    { .file = 0, .number_in_file = 2 }, { .file = 0, .number_in_file = 3 },
    { .file = 1, .number_in_file = 0 }, { .file = 1, .number_in_file = 1 },
    { .file = 1, .number_in_file = 2 },
};

static berth_context *
new_context(uint64_t memory_limit)
{
    berth_context_options options;
    berth_context *context = NULL;

    berth_context_options_init(&options);
    options.memory_limit = memory_limit;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    return context;
}

static uint64_t
ring_bytes(berth_context *context)
{
    return atomic_load(&context->ledger.by_purpose[BERTHI_PURPOSE_RING]);
}

static berthi_stage_buffer *
take(berthi_stage *stage, const berthi_chunk *chunk)
{
    berthi_stage_buffer *buffer;
    berth_error error;

    CHECK_EQ(berthi_stage_take(stage, chunk, &buffer, &error), BERTH_OK);
    return buffer;
}

/* Takes and fills in one go. */
static berthi_stage_buffer *
put(berthi_stage *stage, const berthi_chunk *chunk)
{
    berthi_stage_buffer *const buffer = take(stage, chunk);

    if (CHECK(buffer != NULL))
        berthi_stage_fill(stage, buffer);
    return buffer;
}

static berthi_stage_work
work_on(berthi_stage *stage, const berthi_chunk *chunk, berthi_stage_call call)
{
    berthi_stage_work work = { NULL, BERTHI_STAGE_CALL_COUNT };

    if (CHECK(berthi_stage_await_work(stage, &work))) {
        CHECK_EQ(work.buffer->chunk - chunks, chunk - chunks);
        CHECK_EQ(work.call, call);
    }
    return work;
}

static void
test_a_buffer_goes_round(void)
{
    berth_context *const context = new_context(0);
    berthi_stage stage;
    berthi_stage_buffer *buffer;
    berthi_stage_work work;
    berthi_stage_outcome outcome;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 2, 2, any_only, NULL) == BERTH_OK);
    CHECK_EQ(ring_bytes(context), 0);
    buffer = take(&stage, &chunks[0]);
    T_REQUIRE(buffer != NULL);
    CHECK_EQ(ring_bytes(context), BYTES);
    CHECK_EQ((uintptr_t)buffer->memory % BERTHI_STAGE_ALIGNMENT, 0);
    CHECK_EQ(buffer->number, 0);
    CHECK_EQ(buffer->state, BERTHI_STAGE_FILLING);
    CHECK(buffer->chunk == &chunks[0]);
    berthi_stage_fill(&stage, buffer);
    CHECK_EQ(buffer->state, BERTHI_STAGE_FULL);
    work = work_on(&stage, &chunks[0], BERTHI_STAGE_ANY_ORDER);
    CHECK(work.buffer == buffer);
    CHECK_EQ(buffer->state, BERTHI_STAGE_BUSY);
    outcome = berthi_stage_give_back(&stage, &work);
    CHECK(outcome.is_consumed);
    CHECK(!outcome.is_awaited);
    CHECK_EQ(buffer->state, BERTHI_STAGE_FREE);
    CHECK(buffer->chunk == NULL);
    /* The next chunk gets the same memory: no growth without need. */
    CHECK(take(&stage, &chunks[1]) == buffer);
    CHECK_EQ(ring_bytes(context), BYTES);
    berthi_stage_fini(&stage);
    CHECK_EQ(ring_bytes(context), 0);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

/* Without workers: the thread that reads is done with it. */
static void
test_a_buffer_is_dropped(void)
{
    berth_context *const context = new_context(0);
    berthi_stage stage;
    berthi_stage_buffer *buffer;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 1, 2, any_only, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 4; i++) {
        buffer = take(&stage, &chunks[i]);
        T_REQUIRE(buffer != NULL);
        CHECK(take(&stage, &chunks[6]) == NULL);
        if (i % 2 == 0) /* the others are given up while they are filled */
            berthi_stage_fill(&stage, buffer);
        berthi_stage_drop(&stage, buffer);
        CHECK_EQ(buffer->state, BERTHI_STAGE_FREE);
        CHECK(buffer->chunk == NULL);
    }
    CHECK_EQ(ring_bytes(context), BYTES);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

static void
test_grows_to_its_capacity(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_buffer *buffers[3];
    berthi_stage stage;
    berthi_stage_work work;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 3, 2, any_only, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 3; i++) {
        buffers[i] = take(&stage, &chunks[i]);
        T_REQUIRE(buffers[i] != NULL);
        CHECK_EQ(buffers[i]->number, i);
        CHECK_EQ(ring_bytes(context), (i + 1) * BYTES);
        CHECK_EQ(berthi_stage_held(&stage, 0), i + 1);
    }
    CHECK_EQ(berthi_stage_held(&stage, 1), 0);
    CHECK(take(&stage, &chunks[3]) == NULL);
    CHECK_EQ(ring_bytes(context), 3 * BYTES);
    /* The reader has been sent away: it must be told. */
    berthi_stage_fill(&stage, buffers[1]);
    work = work_on(&stage, &chunks[1], BERTHI_STAGE_ANY_ORDER);
    CHECK(berthi_stage_give_back(&stage, &work).is_awaited);
    CHECK_EQ(berthi_stage_held(&stage, 0), 2);
    CHECK(take(&stage, &chunks[4]) == buffers[1]);
    CHECK_EQ(berthi_stage_held(&stage, 1), 1);
    berthi_stage_fill(&stage, buffers[0]);
    work = work_on(&stage, &chunks[0], BERTHI_STAGE_ANY_ORDER);
    CHECK(!berthi_stage_give_back(&stage, &work).is_awaited);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

/* What is allowed is a bound, and idle is the time in which reads have all of that. */
static void
test_grows_as_allowed(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_buffer *buffer;
    berthi_stage stage;
    uint64_t idle_ns;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 3, 2, any_only, NULL) == BERTH_OK);
    berthi_stage_allow(&stage, 1);
    CHECK_EQ(berthi_stage_idle_ns(&stage), 0);
    buffer = take(&stage, &chunks[0]);
    CHECK(take(&stage, &chunks[1]) == NULL);
    CHECK_EQ(ring_bytes(context), BYTES);
    berthi_sys_sleep(1000000);
    CHECK_GE(berthi_stage_idle_ns(&stage), 1000000);
    berthi_stage_allow(&stage, 9);
    CHECK_EQ(stage.limit, 3);
    idle_ns = berthi_stage_idle_ns(&stage); /* one of three */
    berthi_sys_sleep(1000000);
    CHECK_EQ(berthi_stage_idle_ns(&stage), idle_ns);
    CHECK(take(&stage, &chunks[1]) != NULL);
    CHECK(take(&stage, &chunks[2]) != NULL);
    berthi_sys_sleep(1000000);
    CHECK_GE(berthi_stage_idle_ns(&stage), idle_ns + 1000000);
    berthi_stage_fill(&stage, buffer);
    idle_ns = berthi_stage_idle_ns(&stage);
    berthi_sys_sleep(1000000);
    CHECK_EQ(berthi_stage_idle_ns(&stage), idle_ns);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

static void
test_short_memory_means_a_small_ring(void)
{
    berth_context *const context = new_context(2 * BYTES + 2048);
    berthi_stage_buffer *buffer;
    berthi_stage stage;
    berthi_stage_work work;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 4, 2, any_only, NULL) == BERTH_OK);
    buffer = take(&stage, &chunks[0]);
    CHECK(take(&stage, &chunks[1]) != NULL);
    CHECK(take(&stage, &chunks[2]) == NULL);
    CHECK_EQ(stage.limit, 2);
    CHECK(take(&stage, &chunks[2]) == NULL);
    berthi_stage_allow(&stage, 4); /* there is no memory for it */
    CHECK_EQ(stage.limit, 2);
    berthi_stage_fill(&stage, buffer);
    work = work_on(&stage, &chunks[0], BERTHI_STAGE_ANY_ORDER);
    CHECK(berthi_stage_give_back(&stage, &work).is_awaited);
    CHECK(take(&stage, &chunks[2]) == buffer);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

static void
test_no_memory_at_all(void)
{
    berth_context *const context = new_context(2048);
    berthi_stage_buffer *buffer = (berthi_stage_buffer *)&chunks;
    berthi_stage stage;
    berth_error error;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 4, 2, any_only, NULL) == BERTH_OK);
    CHECK_EQ(berthi_stage_take(&stage, &chunks[0], &buffer, &error), BERTH_ENOMEM);
    CHECK(buffer == NULL);
    CHECK_CONTAINS(error.message, "first staging buffer");
    context->ledger.limit = 0; /* there is some later, and the ring is none that was short */
    CHECK(take(&stage, &chunks[0]) != NULL);
    CHECK(take(&stage, &chunks[1]) != NULL);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

/* Any order: the earliest that is full. In order: nothing before its turn. */
static void
test_order_of_calls(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_work in_order;
    berthi_stage_work any;
    berthi_stage stage;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 7, 2, both, NULL) == BERTH_OK);
    put(&stage, &chunks[2]);
    put(&stage, &chunks[1]);
    any = work_on(&stage, &chunks[1], BERTHI_STAGE_ANY_ORDER);
    CHECK(!berthi_stage_give_back(&stage, &any).is_consumed);
    put(&stage, &chunks[0]);
    in_order = work_on(&stage, &chunks[0], BERTHI_STAGE_IN_ORDER);
    /* Both calls of one chunk at the same time. */
    any = work_on(&stage, &chunks[0], BERTHI_STAGE_ANY_ORDER);
    CHECK(!berthi_stage_give_back(&stage, &in_order).is_consumed);
    in_order = work_on(&stage, &chunks[1], BERTHI_STAGE_IN_ORDER);
    CHECK(berthi_stage_give_back(&stage, &any).is_consumed);
    CHECK(berthi_stage_give_back(&stage, &in_order).is_consumed);
    /* Files are independent of each other. */
    put(&stage, &chunks[4]);
    in_order = work_on(&stage, &chunks[2], BERTHI_STAGE_IN_ORDER);
    any = work_on(&stage, &chunks[4], BERTHI_STAGE_IN_ORDER);
    CHECK(!berthi_stage_give_back(&stage, &any).is_consumed);
    CHECK(!berthi_stage_give_back(&stage, &in_order).is_consumed);
    any = work_on(&stage, &chunks[2], BERTHI_STAGE_ANY_ORDER);
    CHECK(berthi_stage_give_back(&stage, &any).is_consumed);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

static void
test_in_order_alone(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_work work;
    berthi_stage stage;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 3, 2, order_only, NULL) == BERTH_OK);
    put(&stage, &chunks[1]);
    put(&stage, &chunks[0]);
    work = work_on(&stage, &chunks[0], BERTHI_STAGE_IN_ORDER);
    CHECK(berthi_stage_give_back(&stage, &work).is_consumed);
    work = work_on(&stage, &chunks[1], BERTHI_STAGE_IN_ORDER);
    CHECK(berthi_stage_give_back(&stage, &work).is_consumed);
    berthi_stage_close(&stage);
    CHECK(!berthi_stage_await_work(&stage, &work));
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

static void
test_stop_and_close(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_work work;
    berthi_stage stage;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 3, 2, any_only, NULL) == BERTH_OK);
    put(&stage, &chunks[0]);
    put(&stage, &chunks[1]);
    berthi_stage_close(&stage);
    /* Closed: what is there is still consumed. */
    work = work_on(&stage, &chunks[0], BERTHI_STAGE_ANY_ORDER);
    berthi_stage_give_back(&stage, &work);
    berthi_stage_stop(&stage);
    /* Stopped: nothing is. */
    CHECK(!berthi_stage_await_work(&stage, &work));
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

/* ------------------------------------------------------- waiting, with threads */

typedef struct waiter {
    berthi_stage *stage;
    berthi_stage_work work;
    bool has_work;
} waiter;

static void *
wait_for_work(void *argument)
{
    waiter *const w = argument;

    w->has_work = berthi_stage_await_work(w->stage, &w->work);
    return NULL;
}

/* Two workers that wait are woken by each thing that concerns them. */
static void
test_wakes_waiting_workers(void)
{
    berth_context *const context = new_context(0);
    berthi_stage stage;

    for (int what = 0; what < 3; what++) {
        waiter waiters[2] = { { .stage = &stage }, { .stage = &stage } };
        pthread_t threads[2];
        berthi_stage_buffer *buffer;

        T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 3, 2, both, NULL) == BERTH_OK);
        buffer = take(&stage, &chunks[0]);
        for (int i = 0; i < 2; i++)
            T_REQUIRE(pthread_create(&threads[i], NULL, wait_for_work, &waiters[i]) == 0);
        if (what == 0) { /* two calls are possible: both get one */
            berthi_stage_fill(&stage, buffer);
        } else if (what == 1) {
            berthi_stage_stop(&stage);
        } else {
            /* The last buffer comes back: the workers end. */
            berthi_stage_fill(&stage, buffer);
            berthi_stage_close(&stage);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        CHECK_EQ(waiters[0].has_work, what != 1);
        CHECK_EQ(waiters[1].has_work, what != 1);
        if (what != 1)
            CHECK_NE(waiters[0].work.call, waiters[1].work.call);
        if (what == 2) {
            waiter last = { .stage = &stage };

            CHECK(!berthi_stage_give_back(&stage, &waiters[0].work).is_consumed);
            T_REQUIRE(pthread_create(&threads[0], NULL, wait_for_work, &last) == 0);
            CHECK(berthi_stage_give_back(&stage, &waiters[1].work).is_consumed);
            pthread_join(threads[0], NULL);
            CHECK(!last.has_work);
        }
        berthi_stage_fini(&stage);
    }
    berth_context_destroy(context);
}

/* -------------------------------------------------------- schedules at random */

static uint32_t seed;

static uint32_t
below(uint32_t limit)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % limit;
}

#define CHUNKS 7
#define BUFFERS 3

/* What the protocol says about each chunk, kept beside the ring. */
typedef struct model {
    int state[CHUNKS]; /* 0 unread, 1 filling, 2 full, 3 consumed */
    int calls[CHUNKS][2];
    berthi_stage_buffer *buffers[CHUNKS];
    berthi_stage_work running[2 * CHUNKS];
    int running_count;
    int next_read;
} model;

static bool
is_turn(const model *m, int chunk)
{
    return chunk == 0 || chunk == 4 || m->calls[chunk - 1][BERTHI_STAGE_IN_ORDER] == 2;
}

/* The call that must come next, or -1. */
static int
expected_call(const model *m)
{
    for (int call = 1; call >= 0; call--)
        for (int i = 0; i < CHUNKS; i++)
            if (m->state[i] == 2 && m->calls[i][call] == 0 && (call == 0 || is_turn(m, i)))
                return i * 2 + call;
    return -1;
}

static void
step_read(model *m, berthi_stage *stage)
{
    int held = 0;

    for (int i = 0; i < CHUNKS; i++)
        held += m->state[i] == 1 || m->state[i] == 2;
    if (m->next_read == CHUNKS)
        return;
    m->buffers[m->next_read] = take(stage, &chunks[m->next_read]);
    CHECK_EQ(m->buffers[m->next_read] != NULL, held < BUFFERS);
    if (m->buffers[m->next_read] != NULL)
        m->state[m->next_read++] = 1;
}

static void
step_fill(model *m, berthi_stage *stage)
{
    const int chunk = (int)below(CHUNKS);

    if (m->state[chunk] != 1)
        return;
    m->state[chunk] = 2;
    berthi_stage_fill(stage, m->buffers[chunk]);
}

static void
step_call(model *m, berthi_stage *stage)
{
    const int expected = expected_call(m);

    if (expected < 0)
        return;
    m->running[m->running_count++] =
        work_on(stage, &chunks[expected / 2], (berthi_stage_call)(expected % 2));
    m->calls[expected / 2][expected % 2] = 1;
}

static void
step_return(model *m, berthi_stage *stage)
{
    const int which = m->running_count > 0 ? (int)below((uint32_t)m->running_count) : 0;
    const berthi_stage_work work = m->running[which];
    long chunk;
    bool is_last;

    if (m->running_count == 0)
        return;
    chunk = work.buffer->chunk - chunks;
    m->calls[chunk][work.call] = 2;
    is_last = m->calls[chunk][0] == 2 && m->calls[chunk][1] == 2;
    if (is_last)
        m->state[chunk] = 3;
    CHECK_EQ(berthi_stage_give_back(stage, &work).is_consumed, is_last);
    m->running[which] = m->running[--m->running_count];
}

static bool
is_complete(const model *m)
{
    for (int i = 0; i < CHUNKS; i++)
        if (m->state[i] != 3)
            return false;
    return true;
}

/* Every schedule ends, with each chunk called twice, in order where it matters. */
static void
test_ten_thousand_schedules(void)
{
    static void (*const steps[])(model *, berthi_stage *) = { step_read, step_fill,
                                                              step_call, step_return };
    berth_context *const context = new_context(0);

    for (uint32_t run = 1; run <= 10000; run++) {
        model m = { .next_read = 0 };
        berthi_stage stage;
        int count = 0;

        seed = run;
        T_REQUIRE(berthi_stage_init(&stage, context, 16, BUFFERS, 2, both, NULL) == 0);
        while (!is_complete(&m) && CHECK_LT(count++, 10000))
            steps[below(4)](&m, &stage);
        CHECK_LE(ring_bytes(context), BUFFERS * 16);
        berthi_stage_fini(&stage);
    }
    berth_context_destroy(context);
}

static berth_status
use_once(void *user, berth_context *context, berth_error *error)
{
    berthi_stage_buffer *buffer;
    berthi_stage stage;
    berth_status status;

    (void)user;
    status = berthi_stage_init(&stage, context, BYTES, 2, 2, both, error);
    if (status == BERTH_OK)
        status = berthi_stage_take(&stage, &chunks[0], &buffer, error);
    if (status == BERTH_OK)
        status = berthi_stage_take(&stage, &chunks[1], &buffer, error);
    berthi_stage_fini(&stage);
    return status;
}

static void
test_every_allocation_can_fail(void)
{
    const fault_counts counts = fault_loop("stage", use_once, NULL);

    CHECK_EQ(counts.memory, 2 * 4);
    CHECK_EQ(counts.survived, 2); /* the second buffer is not needed */
}

/* In turn: what was read early waits, and what comes next goes to whoever asks. */
static void
test_calls_in_turn(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_buffer *first;
    berthi_stage stage;
    berthi_stage_work early;
    berthi_stage_work late;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 4, 2, any_only, NULL) == BERTH_OK);
    stage.next_in_turn = chunks;
    first = take(&stage, &chunks[0]);
    put(&stage, &chunks[1]);
    put(&stage, &chunks[2]);
    berthi_stage_fill(&stage, first);
    early = work_on(&stage, &chunks[0], BERTHI_STAGE_ANY_ORDER);
    late = work_on(&stage, &chunks[1], BERTHI_STAGE_ANY_ORDER);
    CHECK(berthi_stage_give_back(&stage, &late).is_consumed);
    late = work_on(&stage, &chunks[2], BERTHI_STAGE_ANY_ORDER);
    CHECK(berthi_stage_give_back(&stage, &late).is_consumed);
    CHECK(berthi_stage_give_back(&stage, &early).is_consumed);
    berthi_stage_close(&stage);
    CHECK(!berthi_stage_await_work(&stage, &early));
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

typedef struct turn {
    berthi_stage *stage;
    _Atomic int seen; /* number of the chunk plus 1 */
} turn;

static void *
wait_for_turn(void *user)
{
    turn *const t = user;
    berthi_stage_work work;

    if (berthi_stage_await_work(t->stage, &work)) {
        atomic_store(&t->seen, (int)(work.buffer->chunk - chunks) + 1);
        berthi_stage_give_back(t->stage, &work);
    }
    return NULL;
}

/* A worker sleeps although there is a full buffer: it is not that one's turn. */
static void
test_a_turn_is_waited_for(void)
{
    berth_context *const context = new_context(0);
    berthi_stage_buffer *first;
    berthi_stage stage;
    turn t = { .stage = &stage };
    pthread_t thread;

    T_REQUIRE(berthi_stage_init(&stage, context, BYTES, 4, 2, any_only, NULL) == BERTH_OK);
    stage.next_in_turn = chunks;
    first = take(&stage, &chunks[0]);
    put(&stage, &chunks[1]);
    T_REQUIRE(pthread_create(&thread, NULL, wait_for_turn, &t) == 0);
    usleep(20000);
    CHECK_EQ(atomic_load(&t.seen), 0);
    berthi_stage_fill(&stage, first);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(atomic_load(&t.seen), 1);
    berthi_stage_stop(&stage);
    berthi_stage_fini(&stage);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_a_buffer_goes_round);
    T_RUN(test_a_buffer_is_dropped);
    T_RUN(test_grows_to_its_capacity);
    T_RUN(test_grows_as_allowed);
    T_RUN(test_short_memory_means_a_small_ring);
    T_RUN(test_no_memory_at_all);
    T_RUN(test_order_of_calls);
    T_RUN(test_in_order_alone);
    T_RUN(test_stop_and_close);
    T_RUN(test_wakes_waiting_workers);
    T_RUN(test_ten_thousand_schedules);
    T_RUN(test_every_allocation_can_fail);
    T_RUN(test_calls_in_turn);
    T_RUN(test_a_turn_is_waited_for);
    T_MAIN_END;
}
