/* SPDX-License-Identifier: Apache-2.0 */
/* test_conveyor_waits.c - what a conveyor counts of its waits, and how many work for it. */
#define _GNU_SOURCE
#include <sched.h>

#include "kernels/host.h"
#include "loader/conveyor.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MS UINT64_C(1000000)

/* ------------------------------------------------------------------ measurements */

/* How long the run takes. */
static uint64_t
run_timed(haul *h)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    CHECK_EQ(haul_run(h, NULL), BERTH_OK);
    return berthi_sys_now_ns() - begin_ns;
}

static void
test_statistics(void)
{
    const uint64_t size = 40 * 4096 + 100;
    uint64_t all_ns;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.workers = 1;
    h.options.ring_bytes = 3 * 4096;
    haul_trick = (haul_tricks){ .direct_block = 0 };
    h.each = haul_slowly;
    h.options.io = BERTH_IO_BUFFERED;
    all_ns = run_timed(&h);
    CHECK_EQ(h.stats.bytes_read, size);
    CHECK_EQ(h.stats.buffered_bytes, size);
    CHECK_EQ(h.stats.direct_bytes, 0);
    CHECK_STR(h.stats.path, "tricks buffered");
    CHECK_EQ(h.stats.read_ns, 41); /* each read claims one */
    CHECK_GE(h.stats.work_ns, 41 * MS / 5);
    CHECK_LE(h.stats.work_ns, all_ns);
    CHECK_GE(h.stats.wait_ns, 30 * MS / 5); /* the consumer is slower than reading */
    CHECK_LE(h.stats.wait_ns, all_ns);
    haul_end(&h);
}

/* Whether it was mostly consumers that a run waited for. */
static bool
is_behind_consumers(uint32_t workers)
{
    const uint64_t size = 12 * 4096;
    uint64_t all_ns;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.workers = workers;
    h.options.ring_bytes = 3 * 4096;
    h.options.io = BERTH_IO_BUFFERED;
    h.each = haul_very_slowly;
    all_ns = run_timed(&h);
    CHECK_LE(h.stats.wait_ns, all_ns);
    haul_end(&h);
    return h.stats.wait_ns > all_ns / 2;
}

/*
 * Consumers are what is waited for, also where each buffer has one of its own. A busy machine
 * may keep the run waiting for itself once, and gets more tries.
 */
static void
test_slow_consumers_are_a_wait(void)
{
    for (uint32_t workers = 1; workers <= 3; workers++) {
        bool is_behind = false;

        for (int tries = 0; tries < T_CANCEL_TRIES && !is_behind; tries++)
            is_behind = is_behind_consumers(workers);
        CHECK(is_behind);
    }
}

/* The same where it is reads that are slow. */
static bool
is_behind_reads(void)
{
    const uint64_t size = 40 * 4096 + 100;
    uint64_t all_ns;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.ring_bytes = 3 * 4096;
    haul_trick = (haul_tricks){ .delay_ns = 5 * MS };
    all_ns = run_timed(&h);
    CHECK_GE(all_ns, 41 / 3 * 5 * MS);
    haul_end(&h);
    return h.stats.wait_ns >= all_ns / 2;
}

/* A ring that is full of reads under way is no sign of slow consumers; more tries as above. */
static void
test_slow_reads_are_no_wait(void)
{
    bool is_behind = true;

    for (int tries = 0; tries < T_CANCEL_TRIES && is_behind; tries++)
        is_behind = is_behind_reads();
    CHECK(!is_behind);
}

/*
 * A process that was stopped for longer than reads are waited for does not know of them yet: it
 * looks once more.
 */
static void
test_stopped_for_long(void)
{
    const uint64_t size = 12 * 4096;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.ring_bytes = 3 * 4096;
    h.options.wait_ns = 200 * MS;
    haul_trick = (haul_tricks){ .away_ns = 500 * MS };
    if (!CHECK_EQ(haul_run(&h, NULL), BERTH_OK))
        T_NOTE("%s", h.error.message);
    haul_end(&h);
}

/* ------------------------------------------------------------------------ faults */

/* The chunk that the first call gets. */
static berth_status
note_first(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    uint64_t *const first = h->user;

    (void)is_in_order;
    (void)error;
    if (*first == UINT64_MAX)
        *first = chunk->begin / 4096;
    return BERTH_OK;
}

/* The first bytes do not share the disk with a whole ring of others. */
static void
test_the_first_chunk_comes_soon(void)
{
    const uint64_t size = 16 * 4096;
    uint64_t first = UINT64_MAX;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    haul_trick = (haul_tricks){ .is_backward = true, .delay_ns = 5 * MS };
    h.options.reader = &haul_reader;
    h.options.ring_bytes = 16 * 4096;
    h.options.workers = 1;
    h.each = note_first;
    h.user = &first;
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    CHECK_EQ(first, 1); /* the last of two */
    haul_end(&h);
}

/* Threads of the process while the consumer runs. The tricks read without any. */
typedef struct thread_count {
    uint64_t most;
    uint64_t expected;
} thread_count;

/* The others of a busy machine may begin late: the first call waits for them. */
static berth_status
note_threads(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    thread_count *const count = h->user;

    (void)chunk;
    (void)is_in_order;
    (void)error;
    for (int i = 0; i < 2000 && haul_threads() < count->expected; i++)
        haul_pause(MS);
    count->expected = 0;
    haul_pause(MS / 5);
    count->most = berthi_max_u64(count->most, haul_threads());
    return BERTH_OK;
}

/* Workers of a run that is asked for so many, where there should be `expected`. */
static uint64_t
count_workers(uint32_t asked, uint32_t expected)
{
    const uint64_t size = 64 * 4096;
    const uint64_t idle = haul_threads();
    thread_count count = { .expected = idle + expected };
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    haul_trick = (haul_tricks){ .direct_block = 0 };
    h.options.reader = &haul_reader;
    h.options.workers = asked;
    h.is_in_order = true; /* one call at a time: nobody writes beside note_threads() */
    h.is_any = false;
    h.each = note_threads;
    h.user = &count;
    CHECK_LE(haul_threads(), idle);
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    haul_end(&h);
    return count.most - idle;
}

/* Nobody said how many: as many as there are cores for this process, and no more. */
static void
test_workers_by_default(void)
{
    cpu_set_t all;
    cpu_set_t few;
    size_t cpu = 0;
    uint32_t count;

    T_REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    count = berthi_host_worker_count();
    CHECK_EQ(count_workers(0, count), count);
    CHECK_EQ(count_workers(5, 5), 5);
    CPU_ZERO(&few);
    for (uint32_t cores = 1; cores <= 2; cores++) {
        while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &all))
            cpu++;
        if (cpu == CPU_SETSIZE)
            T_SKIP("one core: nothing to choose from");
        CPU_SET(cpu++, &few);
        T_REQUIRE(sched_setaffinity(0, sizeof few, &few) == 0);
        count = berthi_host_worker_count();
        CHECK_LE(count, cores); /* fewer: a quota */
        CHECK_EQ(count_workers(0, count), count);
        CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    }
}

/* What is in one buffer is read in two parts at most, and consumed in one call. */
static void
test_no_thread_without_work(void)
{
    const uint64_t size = 10000;
    const uint64_t idle = haul_threads();
    thread_count count = { .expected = idle + 1 };
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &berthi_reader_threads;
    h.options.workers = 5;
    h.chunk_bytes = 4096 * KIB;
    h.is_any = false;
    h.is_in_order = true;
    h.each = note_threads;
    h.user = &count;
    CHECK_LE(haul_threads(), idle);
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    CHECK_LE(count.most - idle, 2 + 1);
    haul_end(&h);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_statistics);
    T_RUN(test_slow_consumers_are_a_wait);
    T_RUN(test_slow_reads_are_no_wait);
    T_RUN(test_stopped_for_long);
    T_RUN(test_the_first_chunk_comes_soon);
    T_RUN(test_workers_by_default);
    T_RUN(test_no_thread_without_work);
    T_MAIN_END;
}
