/* SPDX-License-Identifier: Apache-2.0 */
/* test_conveyor.c - every byte once, from any files, in any order, through any ring. */
#define _GNU_SOURCE
#include <unistd.h>

#include "loader/conveyor.h"
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
    T_RUN(test_packed); /* last: threads of the kernel that read for it stay a while */
    T_MAIN_END;
}
