/* SPDX-License-Identifier: Apache-2.0 */
/* test_conveyor_faults.c - consumers, files and calls that fail while a conveyor runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "kernels/fault.h"
#include "loader/conveyor.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define MS UINT64_C(1000000)

/* ---------------------------------------------------------------------- failures */

static berth_status
fail_at(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    const uint64_t *const number = h->user;
    const berthi_about about = { .file = "consumer" };

    (void)is_in_order;
    if (chunk->number_in_file < *number)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_DIGEST, &about, "chunk %u of file %u",
                       (unsigned)chunk->number_in_file, (unsigned)chunk->file);
}

/* Waits until it is told to stop: for a chunk that will never come. */
static berth_status
wait_for_stop(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    (void)is_in_order;
    if (chunk->begin > 0)
        return BERTH_OK;
    for (int i = 0; i < 5000 && atomic_load(&h->stops) == 0; i++)
        haul_pause(MS);
    return berthi_job_fail_cancelled(error);
}

static void
test_who_waits_is_stopped(void)
{
    const uint64_t size = 64 * 4096;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.workers = 2;
    h.each = wait_for_stop;
    haul_trick = (haul_tricks){ .failure = EIO, .failure_first = 5, .failure_count = 1 };
    CHECK_EQ(haul_run(&h, NULL), BERTH_EIO);
    CHECK_GE(atomic_load(&h.stops), 1);
    haul_end(&h);
}

static void
test_consumer_fails(void)
{
    const uint64_t two[] = { 30 * 4096, 30 * 4096 };
    uint64_t number;
    haul h;

    haul_begin(&h, fixture_folder(), two, 2);
    haul_want_all(&h);
    h.each = fail_at;
    h.user = &number;
    for (number = 0; number < 30; number++) {
        h.is_in_order = number % 2;
        h.options.no_uring = number % 3 == 0;
        haul_reset(&h);
        CHECK_EQ(haul_run(&h, NULL), BERTH_EINTEGRITY);
        CHECK_EQ(h.error.status, BERTH_EINTEGRITY);
        CHECK_EQ(h.error.reason, BERTH_REASON_DIGEST);
        CHECK_STR(h.error.file, "consumer");
    }
    haul_end(&h);
}

/* Two workers fail at once: the first is the run's, the other a line of the log. */
static berth_status
fail_together(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    _Atomic int *const inside = h->user;

    (void)is_in_order;
    atomic_fetch_add(inside, 1);
    for (int i = 0; i < 3000 && atomic_load(inside) < 2; i++)
        haul_pause(MS);
    return berthi_fail(error, BERTH_REASON_DIGEST, NULL, "chunk %u",
                       (unsigned)chunk->number_in_file);
}

static void
test_later_failures_are_logged(void)
{
    const uint64_t one = 30 * 4096;
    _Atomic int inside = 0;
    haul h;

    haul_begin(&h, fixture_folder(), &one, 1);
    haul_want_all(&h);
    h.options.workers = 2;
    h.each = fail_together;
    h.user = &inside;
    CHECK_EQ(haul_run(&h, NULL), BERTH_EINTEGRITY);
    CHECK_EQ(atomic_load(&inside), 2);
    CHECK_CONTAINS(h.error.message, "chunk");
    CHECK_EQ(atomic_load(&h.notices), 1);
    CHECK_CONTAINS(h.last_notice, "after the first failure: chunk");
    CHECK_CONTAINS(h.last_notice, "[digest]");
    haul_end(&h);
}

/* One run on a file that `damage` was done to after it was opened. */
static berth_status
run_damaged(berth_io io, bool no_uring, void (*damage)(const char *path), uint32_t which,
            haul *h)
{
    const uint64_t three[] = { 50000, 70000, 0 };
    berth_status status;

    haul_begin(h, fixture_folder(), three, 3);
    haul_want(h, 0, 0, 50000);
    haul_want(h, 1, 0, 70000);
    h->options.io = (int32_t)io;
    h->options.no_uring = no_uring;
    damage(haul_path(h, which));
    status = haul_run(h, NULL);
    CHECK_STR(h->error.file, haul_path(h, which));
    haul_end(h);
    return status;
}

static void
cut_to_33333(const char *path)
{
    fixture_truncate(path, 70000 - 33333);
}

static void
cut_to_32768(const char *path)
{
    fixture_truncate(path, 70000 - 32768);
}

static void
append(const char *path)
{
    fixture_extend(path, 1);
}

static void
touch(const char *path)
{
    const struct timespec times[2] = { { 1, 0 }, { 1000, 0 } };

    CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void
test_truncated_while_reading(void)
{
    haul h;

    for (int io = 0; io < 3; io++)
        for (int no_uring = 0; no_uring < 2; no_uring++) {
            CHECK_EQ(run_damaged((berth_io)io, no_uring, cut_to_33333, 1, &h), BERTH_EIO);
            CHECK_EQ(h.error.reason, BERTH_REASON_TRUNCATED);
            /* Chunks behind the end may be noticed first. */
            CHECK_EQ(h.error.has & BERTH_HAS_POSITION, BERTH_HAS_POSITION);
            CHECK_GE(h.error.position, 33333);
            CHECK_LT(h.error.position, 70000);
            CHECK_EQ(h.error.actual, h.error.position);
            CHECK_GT(h.error.expected, h.error.position);
            CHECK_EQ(run_damaged((berth_io)io, no_uring, cut_to_32768, 1, &h), BERTH_EIO);
            CHECK_EQ(h.error.reason, BERTH_REASON_TRUNCATED);
        }
}

/* Each read in its order: the position is the byte. */
static void
test_truncated_at_its_byte(void)
{
    const uint64_t ends[] = { 1, 4095, 4096, 4097, 5000, 8192, 12287 };
    const uint64_t size = 12288;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.chunk_bytes = 16384; /* one read for all */
    h.options.reader = &haul_reader;
    for (int io = 1; io < 3; io++)
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            haul_trick = (haul_tricks){ .end = ends[i] };
            h.options.io = io;
            haul_reset(&h);
            CHECK_EQ(haul_run(&h, NULL), BERTH_EIO);
            CHECK_EQ(h.error.reason, BERTH_REASON_TRUNCATED);
            CHECK_EQ(h.error.position, ends[i]);
            CHECK_EQ(h.error.actual, ends[i]);
            CHECK_EQ(h.error.expected, 12288);
            CHECK_CONTAINS(h.error.message, "reading");
        }
    haul_end(&h);
}

static void
test_changed_while_reading(void)
{
    haul h;

    for (uint32_t which = 0; which < 3; which++) {
        CHECK_EQ(run_damaged(BERTH_IO_AUTO, false, append, which, &h), BERTH_EIO);
        CHECK_EQ(h.error.reason, BERTH_REASON_CHANGED);
        CHECK_EQ(run_damaged(BERTH_IO_DIRECT, true, touch, which, &h), BERTH_EIO);
        CHECK_EQ(h.error.reason, BERTH_REASON_CHANGED);
    }
}

/* Nobody gets the last chunk of a file that was changed. */
static void
test_last_chunk_of_a_changed_file(void)
{
    const uint64_t size = 2 * 4096;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    touch(haul_path(&h, 0));
    CHECK_EQ(haul_run(&h, NULL), BERTH_EIO);
    CHECK_LE(atomic_load(&h.calls), 1);
    haul_end(&h);
}

/* ------------------------------------------------------------------------ faults */

/* The files are open before the first fault: only the run is under test. */
static berth_status
run_once(void *user, berth_context *context, berth_error *error)
{
    haul *const h = user;
    berth_context *const own = h->context;
    berth_status status;

    h->context = context;
    haul_reset(h);
    status = haul_run(h, NULL);
    h->context = own;
    *error = h->error;
    if (status == BERTH_OK)
        haul_check(h);
    return status;
}

static void
test_every_call_can_fail(void)
{
    static const char *const names[] = { "conveyor, io_uring", "conveyor, threads" };
    const uint64_t three[] = { 9000, 4096, 100 };
    haul h;

    haul_begin(&h, fixture_folder(), three, 3);
    haul_want_all(&h);
    h.options.readers = 2;
    h.options.workers = 2;
    for (int i = 0; i < 3; i++) {
        fault_counts counts;

        h.options.no_uring = i % 2;
        h.options.io = i > 0 ? BERTH_IO_DIRECT : BERTH_IO_BUFFERED;
        h.is_in_order = i > 0;
        counts = fault_loop(names[i % 2], run_once, &h);
        CHECK_GE(counts.memory, 10);
        CHECK_GE(counts.system, 20);
        CHECK_GE(counts.survived, 4); /* smaller rings, fewer threads, lost advice */
    }
    haul_end(&h);
}

static berth_status
run_with_failing_threads(haul *h, uint64_t nth)
{
    berth_status status;

    berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, true);
    status = haul_run(h, NULL);
    berthi_fault_disarm();
    return status;
}

/* With tricks for a reader the first system calls are those of the workers. */
static void
test_workers_cannot_be_started(void)
{
    const uint64_t size = 10000;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    haul_trick = (haul_tricks){ .direct_block = 0 };
    h.options.workers = 2;
    CHECK_EQ(run_with_failing_threads(&h, 0), BERTH_ENOMEM);
    CHECK_EQ(h.error.reason, BERTH_REASON_NO_MEMORY);
    CHECK_EQ(h.error.system_error, EAGAIN);
    CHECK_CONTAINS(h.error.message, "starting a worker thread failed");
    CHECK_EQ(atomic_load(&h.calls), 0);
    haul_end(&h);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_who_waits_is_stopped);
    T_RUN(test_consumer_fails);
    T_RUN(test_later_failures_are_logged);
    T_RUN(test_truncated_while_reading);
    T_RUN(test_truncated_at_its_byte);
    T_RUN(test_changed_while_reading);
    T_RUN(test_last_chunk_of_a_changed_file);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_workers_cannot_be_started);
    T_MAIN_END;
}
