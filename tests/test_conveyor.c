/* SPDX-License-Identifier: Apache-2.0 */
/* test_conveyor.c - runs: every byte once, whatever is cut, read or broken how. */
#define _GNU_SOURCE

#include "loader/conveyor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/host.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MS UINT64_C(1000000)

/* A folder in memory, or NULL. */
static const char *
memory_folder(void)
{
    const char *const path = fixture_format("/dev/shm/berth-test-%d", (int)getpid());

    if (access("/dev/shm", W_OK) != 0)
        return NULL;
    fixture_make_folder(path);
    return path;
}

/* --------------------------------------------------------------- every byte once */

/* Sizes around every border there is, at chunks of 4 and 16 KiB. */
static const uint64_t sizes[] = {
    0,     1,     511,   512,   513,          4095,  4096,  4097,  8191,
    8192,  16383, 16384, 16385, 5 * 4096 + 7, 40000, 70000, 0,     32768,
};
#define SIZE_COUNT ((uint32_t)(sizeof sizes / sizeof *sizes))

/* Runs the same files in one way of reading and with each kind of consumer. */
static void
run_kinds(haul *h)
{
    for (int kind = 1; kind < 4; kind++) {
        h->is_any = kind & 1;
        h->is_in_order = kind & 2;
        haul_reset(h);
        if (!CHECK_EQ(haul_run(h, NULL), BERTH_OK))
            T_NOTE("%s: %s", h->error.file, h->error.message);
        haul_check(h);
    }
}

static void
run_any_order(haul *h)
{
    for (int way = 0; way < 6; way++) {
        h->options.io = way % 3;
        h->options.no_uring = way >= 3;
        h->is_any = true;
        h->is_in_order = false;
        haul_reset(h);
        if (!CHECK_EQ(haul_run(h, NULL), BERTH_OK))
            T_NOTE("%s: %s", h->error.file, h->error.message);
        haul_check(h);
        CHECK_EQ(atomic_load(&h->stops), 0);
    }
}

static void
run_ways(haul *h)
{
    for (int way = 0; way < 6; way++) {
        h->options.io = way % 3;
        h->options.no_uring = way >= 3;
        h->options.readers = way == 4 ? 1 : 0;
        h->options.workers = way == 1 ? 1 : way == 2 ? 3 : 0;
        run_kinds(h);
    }
}

static void
sweep(const char *folder)
{
    const uint64_t chunk_bytes[] = { 4096, 16384, 1048576 };
    haul h;

    haul_begin(&h, folder, sizes, SIZE_COUNT);
    haul_want_all(&h);
    for (size_t i = 0; i < sizeof chunk_bytes / sizeof *chunk_bytes; i++) {
        h.chunk_bytes = chunk_bytes[i];
        h.options.ring_bytes = 3 * chunk_bytes[i];
        run_ways(&h);
    }
    haul_end(&h);
}

static void
test_every_byte_once(void)
{
    sweep(fixture_folder());
}

static void
test_every_byte_once_in_memory(void)
{
    const char *const folder = memory_folder();

    if (folder == NULL)
        T_SKIP("no /dev/shm to write to");
    sweep(folder);
    fixture_remove(folder);
}

/* Headers, neighbours, gaps of both kinds, empty pieces, files without any. */
static void
test_pieces_and_gaps(void)
{
    haul h;

    haul_begin(&h, fixture_folder(), sizes, SIZE_COUNT);
    haul_want(&h, 1, 0, 0);
    haul_want(&h, 6, 17, 3);
    haul_want(&h, 9, 100, 200);
    haul_want(&h, 9, 300, 0);
    haul_want(&h, 9, 350, 5000); /* a gap of 50 */
    haul_want(&h, 9, 6000, 100); /* of 650 */
    haul_want(&h, 14, 0, 8);
    haul_want(&h, 14, 8, 20000);
    haul_want(&h, 14, 20008, 1);
    haul_want(&h, 14, 39999, 1);
    h.gap = 100;
    run_ways(&h);
    h.chunk_bytes = 65536;
    run_ways(&h);
    haul_end(&h);
}

/* Pieces in any order, files mixed; the next one may begin inside the same page. */
static void
test_lists_in_any_order(void)
{
    haul h;

    haul_begin(&h, fixture_folder(), sizes, SIZE_COUNT);
    for (uint32_t file = 0; file < SIZE_COUNT; file++)
        for (uint64_t at = 0; at < sizes[file];) {
            const uint64_t bytes = berthi_min_u64(sizes[file] - at, 4000 + 5000 * (file % 3));

            haul_want(&h, file, at, bytes);
            at += bytes;
            if (h.piece_count == HAUL_PIECES)
                break;
        }
    h.shuffle = 7;
    run_any_order(&h);
    h.shuffle = 8;
    h.options.ring_bytes = UINT64_C(1) << 20;
    run_any_order(&h);
    h.is_in_order = true;
    CHECK_EQ(haul_run(&h, NULL), BERTH_EINTERNAL);
    CHECK_CONTAINS(h.error.message, "in order");
    haul_end(&h);
}

/*
 * Pieces that stay whole fill buffers from anywhere in the file on: reads that are cut at
 * multiples of the file are one more than a buffer's bytes make.
 */
static void
test_packed(void)
{
    const uint64_t size = 9 * 1024 * 1024 + 4321;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want(&h, 0, 3400, 3 * 1048576);
    haul_want(&h, 0, 3400 + 3 * 1048576, 4 * 1048576 - 8192);
    haul_want(&h, 0, size - 1048576 - 17, 1048576);
    h.is_packed = true;
    h.chunk_bytes = 4 * 1048576;
    run_ways(&h);
    haul_end(&h);
}

static void
test_nothing_to_do(void)
{
    haul h;

    haul_begin(&h, fixture_folder(), sizes, 3);
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    CHECK_EQ(h.stats.bytes_read, 0);
    CHECK_STR(h.stats.path, "");
    haul_want(&h, 0, 0, 0);
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_end(&h);
    haul_begin(&h, fixture_folder(), sizes, 0);
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_end(&h);
}

/* ------------------------------------------------------------------------ memory */

static uint64_t
peak_of_ring(uint64_t ring_bytes, uint64_t chunk_bytes, uint64_t file_bytes)
{
    berth_memory_summary memory;
    haul h;

    haul_begin(&h, fixture_folder(), &file_bytes, 1);
    haul_want_all(&h);
    h.chunk_bytes = chunk_bytes;
    h.options.ring_bytes = ring_bytes;
    h.options.workers = 1;
    h.each = haul_slowly;
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    berth_context_memory(h.context, &memory);
    haul_end(&h);
    return memory.peak_bytes;
}

/* Ring and tables, nothing else; tables of these runs are below 64 KiB. */
static void
test_memory_is_the_ring(void)
{
    const uint64_t tables = 64 * KIB;
    uint64_t peak = peak_of_ring(64 * KIB, 16 * KIB, 1000 * KIB);

    CHECK_GE(peak, 64 * KIB);
    CHECK_LE(peak, 64 * KIB + tables);
    peak = peak_of_ring(100 * KIB, 32 * KIB, 1000 * KIB);
    CHECK_GE(peak, 96 * KIB);
    CHECK_LE(peak, 96 * KIB + tables);
    /* Three chunks at least, the file's number at most. */
    peak = peak_of_ring(1, 128 * KIB, 2000 * KIB);
    CHECK_GE(peak, 384 * KIB);
    CHECK_LE(peak, 384 * KIB + tables);
    peak = peak_of_ring(0, 256 * KIB, 512 * KIB);
    CHECK_GE(peak, 512 * KIB);
    CHECK_LE(peak, 512 * KIB + tables);
    /* However small the chunks: 64. */
    peak = peak_of_ring(8192 * KIB, 4 * KIB, 1000 * KIB);
    CHECK_GE(peak, 256 * KIB);
    CHECK_LE(peak, 256 * KIB + tables);
    /* Of a small file no more than it needs, in whole blocks. */
    peak = peak_of_ring(0, 4096 * KIB, 3 * KIB);
    CHECK_GE(peak, 64 * KIB);
    CHECK_LE(peak, 64 * KIB + tables);
    peak = peak_of_ring(0, 4096 * KIB, 300 * KIB);
    CHECK_GE(peak, 320 * KIB);
    CHECK_LE(peak, 320 * KIB + tables);
}

static _Atomic int most_fds;

static berth_status
count_fds(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    const int fds = fixture_open_fds();

    (void)h;
    (void)chunk;
    (void)is_in_order;
    (void)error;
    if (fds > atomic_load(&most_fds))
        atomic_store(&most_fds, fds);
    return BERTH_OK;
}

/* Descriptors grow with the ring, not with the number of files. */
static void
test_few_descriptors(void)
{
    uint64_t many[HAUL_FILES];
    int before;
    haul h;

    for (int i = 0; i < HAUL_FILES; i++)
        many[i] = 20000;
    haul_begin(&h, fixture_folder(), many, HAUL_FILES);
    haul_want_all(&h);
    h.options.io = BERTH_IO_DIRECT;
    h.options.ring_bytes = 4 * 4096;
    h.is_in_order = true;
    h.each = count_fds;
    h.options.workers = 4;
    before = fixture_open_fds();
    atomic_store(&most_fds, 0);
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    /* A ring and its event, four files twice, and what counting itself opens. */
    CHECK_LE(atomic_load(&most_fds) - before, 2 + 4 * 2 + 2);
    CHECK_EQ(fixture_open_fds(), before);
    haul_end(&h);
}

/* ------------------------------------------------------------------------- order */

typedef struct meeting {
    _Atomic uint32_t arrived; /* bit per file */
    _Atomic bool has_waited_in_vain;
} meeting;

/* Waits until the other file is in an ordered call at the same time. */
static berth_status
meet(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    meeting *const m = h->user;

    (void)error;
    if (!is_in_order || chunk->number_in_file != 1)
        return BERTH_OK;
    atomic_fetch_or(&m->arrived, 1u << chunk->file);
    for (int i = 0; atomic_load(&m->arrived) != 3; i++) {
        if (i == 3000) {
            atomic_store(&m->has_waited_in_vain, true);
            break;
        }
        haul_pause(MS);
    }
    return BERTH_OK;
}

/* Two long files, a ring of three chunks: both are hashed at the same time. */
static void
test_two_files_in_order_at_once(void)
{
    const uint64_t two[] = { 50 * 4096, 50 * 4096 };
    meeting m = { 0 };
    haul h;

    haul_begin(&h, fixture_folder(), two, 2);
    haul_want_all(&h);
    h.is_any = false;
    h.is_in_order = true;
    h.options.ring_bytes = 3 * 4096;
    h.options.workers = 2;
    h.each = meet;
    h.user = &m;
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    CHECK_EQ(atomic_load(&m.arrived), 3);
    CHECK(!atomic_load(&m.has_waited_in_vain));
    haul_end(&h);
}

static berth_status
order_is_slow(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    (void)h;
    (void)chunk;
    (void)error;
    if (is_in_order)
        haul_pause(MS / 2);
    return BERTH_OK;
}

/* Ordered work that cannot keep up, reads that come back in reverse: no deadlock. */
static void
test_slow_order_in_a_small_ring(void)
{
    const uint64_t three[] = { 20 * 4096, 1, 20 * 4096 };
    haul h;

    haul_begin(&h, fixture_folder(), three, 3);
    haul_want_all(&h);
    h.is_in_order = true;
    h.options.ring_bytes = 3 * 4096;
    h.options.reader = &haul_reader;
    haul_trick = (haul_tricks){ .is_backward = true };
    h.each = order_is_slow;
    for (uint32_t workers = 1; workers < 6; workers++) {
        h.options.workers = workers;
        haul_reset(&h);
        CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
        haul_check(&h);
    }
    haul_end(&h);
}

static berth_status
note_first_files(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    _Atomic uint32_t *const latest = h->user;

    (void)is_in_order;
    (void)error;
    /* One worker and reads in their order: files never go back. */
    if (chunk->file < atomic_load(latest))
        atomic_store(&h->has_wrong_order, true);
    atomic_store(latest, chunk->file);
    return BERTH_OK;
}

/* Without an ordered consumer a disk sees one file after the other. */
static void
test_one_file_after_the_other(void)
{
    const uint64_t three[] = { 10 * 4096, 10 * 4096, 10 * 4096 };
    _Atomic uint32_t latest = 0;
    haul h;

    haul_begin(&h, fixture_folder(), three, 3);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.workers = 1;
    h.options.ring_bytes = 4 * 4096;
    haul_trick = (haul_tricks){ .is_backward = false };
    h.each = note_first_files;
    h.user = &latest;
    CHECK_EQ(haul_run(&h, NULL), BERTH_OK);
    haul_check(&h);
    CHECK_EQ(atomic_load(&latest), 2);
    haul_end(&h);
}

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
    T_RUN(test_every_byte_once);
    T_RUN(test_every_byte_once_in_memory);
    T_RUN(test_pieces_and_gaps);
    T_RUN(test_lists_in_any_order);
    T_RUN(test_nothing_to_do);
    T_RUN(test_memory_is_the_ring);
    T_RUN(test_few_descriptors);
    T_RUN(test_two_files_in_order_at_once);
    T_RUN(test_slow_order_in_a_small_ring);
    T_RUN(test_one_file_after_the_other);
    T_RUN(test_who_waits_is_stopped);
    T_RUN(test_consumer_fails);
    T_RUN(test_later_failures_are_logged);
    T_RUN(test_truncated_while_reading);
    T_RUN(test_truncated_at_its_byte);
    T_RUN(test_changed_while_reading);
    T_RUN(test_last_chunk_of_a_changed_file);
    T_RUN(test_statistics);
    T_RUN(test_slow_consumers_are_a_wait);
    T_RUN(test_slow_reads_are_no_wait);
    T_RUN(test_stopped_for_long);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_workers_cannot_be_started);
    T_RUN(test_the_first_chunk_comes_soon);
    T_RUN(test_workers_by_default);
    T_RUN(test_no_thread_without_work);
    T_RUN(test_packed); /* last: threads of the kernel that read for it stay a while */
    T_MAIN_END;
}
