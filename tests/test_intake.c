/* SPDX-License-Identifier: Apache-2.0 */
/* test_intake.c - direct or buffered, short and refused reads, the page cache. */
#define _GNU_SOURCE

#include "loader/intake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

/* Brings [offset, offset + bytes) into the cache; no more than that. */
static void
warm(const haul *h, uint64_t offset, uint64_t bytes)
{
    static char buffer[64 * 1024];
    const int fd = open(haul_path(h, 0), O_RDONLY);

    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (uint64_t at = offset; at < offset + bytes; at += sizeof buffer)
        CHECK_GT(pread(fd, buffer, sizeof buffer, (off_t)at), 0);
    close(fd);
}

/* ------------------------------------------------------------ with tricks as reader */

static const uint64_t sizes[] = { 1, 4096, 4097, 50000, 100001 };

static void
begin_tricks(haul *h, int io)
{
    haul_begin(h, fixture_folder(), sizes, 5);
    haul_want_all(h);
    h->chunk_bytes = 16384;
    h->options.reader = &haul_reader;
    h->options.io = io;
    h->options.workers = 1;
    haul_trick = (haul_tricks){ .direct_block = 0 };
}

static void
check_run(haul *h)
{
    haul_reset(h);
    if (!CHECK_EQ(haul_run(h, NULL), BERTH_OK))
        T_NOTE("%s at %llu: %s", h->error.file, (unsigned long long)h->error.position,
               h->error.message);
    haul_check(h);
}

static uint64_t
total_bytes(void)
{
    return 1 + 4096 + 4097 + 50000 + 100001;
}

/* A reader hears of each buffer once, and reads name the one they go to. */
static void
test_buffers_are_announced(void)
{
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    h.options.ring_bytes = 3 * 16384;
    for (int knows = 0; knows < 2; knows++) {
        haul_trick.knows_buffers = knows;
        check_run(&h);
        CHECK_EQ(atomic_load(&haul_buffers), 3);
        CHECK_EQ(atomic_load(&haul_misnamed), 0);
    }
    haul_end(&h);
}

/* System calls of one run with one worker, the tricks' own reads not counted. */
static uint64_t
calls_of(haul *h)
{
    uint64_t calls;

    haul_reset(h);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, UINT64_MAX, false);
    CHECK_EQ(haul_run(h, NULL), BERTH_OK);
    calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);
    berthi_fault_disarm();
    haul_check(h);
    return calls;
}

/* Nothing is asked twice: what each way of reading costs, to the call. */
static void
test_system_calls_are_few(void)
{
    const uint64_t thread = 1;
    const uint64_t survey = 10; /* one a chunk, if the kernel has cachestat */
    const uint64_t check = 1;
    const uint64_t size = 10 * 4096;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    if (berthi_sys_cached_pages(h.files[0].fd, 0, size) < 0) {
        haul_end(&h);
        T_SKIP("what is cached cannot be seen here");
    }
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.workers = 1;
    haul_trick = (haul_tricks){ .direct_block = 0 };
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, UINT64_MAX, false);
    (void)berthi_sys_cached_pages(h.files[0].fd, 0, size);
    if (berthi_fault_calls(BERTHI_FAULT_SYSTEM) != 1) {
        haul_end(&h);
        T_SKIP("a kernel without cachestat");
    }
    haul_drop(&h, 0);
    if (haul_cached(&h, 0) == 0) {
        h.options.io = BERTH_IO_DIRECT; /* alignment, open */
        CHECK_EQ(calls_of(&h), thread + survey + 2 + check);
        h.options.io = BERTH_IO_BUFFERED; /* open, advice, each chunk dropped, then all */
        CHECK_EQ(calls_of(&h), thread + survey + 2 + 10 + 1 + check);
    }
    warm(&h, 0, size);
    h.options.io = BERTH_IO_AUTO; /* open, advice, nothing dropped */
    CHECK_EQ(calls_of(&h), thread + survey + 2 + check);
    /* With threads: their condition, themselves, and one call a read. */
    h.options.reader = NULL;
    h.options.no_uring = true;
    h.options.readers = 1;
    CHECK_EQ(calls_of(&h), thread + survey + 2 + check + 1 + 1 + 10);
    h.options.readers = 3;
    CHECK_EQ(calls_of(&h), thread + survey + 2 + check + 1 + 3 + 10);
    h.options.readers = 0; /* sixteen, but no more than reads at once */
    CHECK_EQ(calls_of(&h), thread + survey + 2 + check + 1 + 10 + 10);
    haul_end(&h);
}

/* Direct reads are whole pages in number and place: else the tricks refuse them. */
static void
test_direct_reads_are_widened(void)
{
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    check_run(&h);
    /* At a file's end a direct read gives what there is. */
    CHECK_EQ(h.stats.direct_bytes, total_bytes());
    CHECK_EQ(h.stats.bytes_read, total_bytes());
    CHECK_EQ(h.stats.buffered_bytes, 0);
    CHECK_STR(h.stats.path, "tricks direct");
    CHECK_EQ(atomic_load(&h.notices), 0);
    /* One read a chunk. */
    CHECK_EQ(atomic_load(&haul_reads), 1 + 1 + 1 + 4 + 7);
    haul_end(&h);
}

/* A piece in the middle: whole pages around it, and no others. */
static void
test_widened_by_less_than_a_page(void)
{
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    h.piece_count = 0;
    haul_want(&h, 3, 5000, 100);
    haul_want(&h, 4, 12288, 4096);
    haul_want(&h, 4, 20480 + 4095, 2);
    check_run(&h);
    CHECK_EQ(h.stats.direct_bytes, 4096 + 4096 + 8192);
    CHECK_EQ(atomic_load(&haul_reads), 3);
    haul_end(&h);
}

static void
test_short_direct_reads(void)
{
    const uint64_t blocks[] = { 4096, 4608, 8192, 8704, 12800, 16383 };
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        haul_trick.direct_block = blocks[i];
        check_run(&h);
        CHECK_EQ(h.stats.buffered_bytes, 0);
        CHECK_STR(h.stats.path, "tricks direct");
    }
    haul_end(&h);
}

/* A direct read that cannot get beyond its first page goes on through the cache. */
static void
test_direct_reads_that_get_nowhere(void)
{
    const uint64_t blocks[] = { 1, 511, 512, 4095 };
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        haul_trick.direct_block = blocks[i];
        check_run(&h);
        CHECK_GT(h.stats.buffered_bytes, 0);
        CHECK_EQ(h.stats.bytes_read, h.stats.direct_bytes + h.stats.buffered_bytes);
        /* What was read directly is not read again. */
        CHECK_EQ(h.stats.bytes_read, total_bytes());
        CHECK_STR(h.stats.path, "tricks direct and buffered");
    }
    haul_end(&h);
}

static void
test_short_buffered_reads(void)
{
    const uint64_t blocks[] = { 1000, 4095, 4097, 9999 };
    haul h;

    begin_tricks(&h, BERTH_IO_BUFFERED);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        haul_trick.buffered_block = blocks[i];
        check_run(&h);
        CHECK_EQ(h.stats.buffered_bytes, total_bytes());
        CHECK_EQ(h.stats.direct_bytes, 0);
    }
    haul_end(&h);
}

/* Buffered reads take the bytes that are wanted, and in pieces. */
static void
test_buffered_pieces(void)
{
    const uint64_t size = 5 * MIB + 7;
    const uint64_t chunk_bytes[] = { MIB / 2, 4 * MIB, 16 * MIB };
    const uint64_t pieces[] = { 21, 6 + 5, 6 };
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want(&h, 0, 5, size - 5);
    h.options.reader = &haul_reader;
    h.options.io = BERTH_IO_BUFFERED;
    haul_trick = (haul_tricks){ .direct_block = 0 };
    /* 256 KiB at least, 1 MiB at most, an eighth of the chunk in between. */
    for (int i = 0; i < 3; i++) {
        h.chunk_bytes = chunk_bytes[i];
        check_run(&h);
        CHECK_EQ(h.stats.buffered_bytes, size - 5);
        CHECK_EQ(atomic_load(&haul_reads), pieces[i]);
    }
    haul_end(&h);
}

/* Of what the ring may hold a 64th: 512 KiB at least, 4 MiB at most, no more than a chunk. */
static void
test_direct_pieces(void)
{
    static const struct {
        uint64_t chunk_bytes; /* of a file that is smaller there is one, which is the ring */
        uint64_t reads;
    } rings[] = {
        { MIB / 4, 21 },  { MIB / 2, 11 },  { 4 * MIB, 11 },  { 16 * MIB, 11 },
        { 32 * MIB, 11 }, { 64 * MIB, 6 },  { 128 * MIB, 3 }, { 256 * MIB, 2 },
        { 512 * MIB, 2 },
    };
    const uint64_t size = 5 * MIB + 7;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want(&h, 0, 5, size - 5);
    h.options.reader = &haul_reader;
    h.options.io = BERTH_IO_DIRECT;
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        h.chunk_bytes = rings[i].chunk_bytes;
        check_run(&h);
        CHECK_EQ(h.stats.direct_bytes, size);
        CHECK_EQ(atomic_load(&haul_reads), rings[i].reads);
    }
    haul_end(&h);
}

/* And grow with what of it is in use: a run that is tuned begins with small ones. */
static void
test_direct_pieces_are_those_in_use(void)
{
    const uint64_t size = 64 * MIB;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    for (uint64_t at = 0; at < size; at += 4 * MIB)
        haul_want(&h, 0, at, 4 * MIB);
    h.options.reader = &haul_reader;
    h.options.io = BERTH_IO_DIRECT;
    h.chunk_bytes = 4 * MIB;
    h.options.ring_bytes = size;
    for (uint32_t stages = 4; stages <= 16; stages *= 2) {
        h.options.stages = stages;
        check_run(&h);
        CHECK_EQ(atomic_load(&haul_reads), size / berthi_max_u64(MIB / 2, stages * MIB / 16));
    }
    haul_end(&h);
}

static _Atomic uint64_t reads;

static void
count_read(void *user, const berth_trace_event *event)
{
    (void)user;
    atomic_fetch_add(&reads, event->kind == BERTH_TRACE_READ);
}

/* Threads have as many reads under way as there are: of theirs two fill a ring. */
static void
test_direct_pieces_of_threads(void)
{
    static const struct {
        uint32_t threads;
        uint64_t ring_bytes; /* a chunk, and of a file that is larger there are two */
        uint64_t reads;      /* of 5 MiB and some */
    } rings[] = {
        { 16, 16 * MIB, 11 }, { 16, 32 * MIB, 6 }, { 16, 64 * MIB, 3 }, { 16, 128 * MIB, 2 },
        { 4, 4 * MIB, 6 },    { 4, 16 * MIB, 3 },  { 4, 32 * MIB, 2 },  { 32, 32 * MIB, 11 },
        { 32, 64 * MIB, 6 },  { 64, 32 * MIB, 11 }, { 64, 64 * MIB, 6 },
    };
    const uint64_t size = 5 * MIB + 7;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want(&h, 0, 5, size - 5);
    h.options.reader = &berthi_reader_threads;
    h.options.io = BERTH_IO_DIRECT;
    h.context->trace = count_read;
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        h.chunk_bytes = rings[i].ring_bytes;
        h.options.readers = rings[i].threads;
        atomic_store(&reads, 0);
        check_run(&h);
        if (h.stats.direct_bytes == size) /* not every folder has them */
            CHECK_EQ(atomic_load(&reads), rings[i].reads);
    }
    haul_end(&h);
}

static void
test_direct_reads_refused(void)
{
    static const int failures[] = { EINVAL, EFAULT };
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    for (int f = 0; f < 2; f++)
        for (uint64_t first = 0; first < 14; first++) {
            haul_trick.failure = failures[f];
            haul_trick.failure_first = first;
            haul_trick.failure_count = UINT64_MAX;
            haul_trick.only_direct = true;
            check_run(&h);
            CHECK_STR(h.stats.path, first == 0 ? "tricks buffered"
                                               : "tricks direct and buffered");
            /* Said once, however many files. */
            CHECK_EQ(atomic_load(&h.notices), 1);
            CHECK_CONTAINS(h.last_notice, "no direct reads here");
            CHECK_CONTAINS(h.last_notice, "haul-");
        }
    haul_end(&h);
}

/* After a refusal a file is not asked again; another file is. */
static void
test_refusal_is_the_files(void)
{
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    h.options.ring_bytes = 3 * 16384;
    haul_trick.failure = EINVAL;
    haul_trick.failure_first = 3; /* the first of file 3 */
    haul_trick.failure_count = 1;
    check_run(&h);
    /* Four chunks, of which the first three were under way. */
    CHECK_GE(h.stats.buffered_bytes, 16384 + 50000 - 3 * 16384);
    CHECK_GE(h.stats.direct_bytes, 1 + 4096 + 4097 + 100001);
    haul_end(&h);
}

static void
test_reads_to_be_repeated(void)
{
    static const int failures[] = { EINTR, EAGAIN, ECANCELED };
    haul h;

    begin_tricks(&h, BERTH_IO_BUFFERED);
    h.piece_count = 0;
    haul_want(&h, 3, 0, 16384); /* a single read */
    for (int f = 0; f < 3; f++) {
        haul_trick.failure = failures[f];
        haul_trick.failure_count = 64;
        check_run(&h);
        CHECK_EQ(atomic_load(&haul_reads), 65);
        /* But not for ever. */
        haul_trick.failure_count = 65;
        haul_reset(&h);
        CHECK_EQ(haul_run(&h, NULL), BERTH_EIO);
        CHECK_EQ(h.error.system_error, failures[f]);
        CHECK_EQ(atomic_load(&h.calls), 0);
    }
    haul_end(&h);
}

/* Patience is for each read anew, not for a buffer's whole life. */
static void
test_repeated_reads_of_many_chunks(void)
{
    const uint64_t size = 300 * 4096;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.io = BERTH_IO_BUFFERED;
    h.options.ring_bytes = 3 * 4096;
    haul_trick = (haul_tricks){ .failure = EINTR, .fails_every_second = true };
    check_run(&h);
    CHECK_GE(atomic_load(&haul_reads), 599);
    haul_end(&h);
}

static void
test_read_errors_say_where(void)
{
    haul h;

    begin_tricks(&h, BERTH_IO_DIRECT);
    h.options.ring_bytes = 3 * 16384;
    haul_trick.failure = EIO;
    haul_trick.failure_count = 1;
    for (uint64_t first = 0; first < 14; first++) {
        const uint64_t in_third = first - 3;
        const uint32_t file = first < 3 ? (uint32_t)first : first < 7 ? 3 : 4;
        const uint64_t chunk = first < 3 ? 0 : first < 7 ? in_third : first - 7;

        haul_trick.failure_first = first;
        haul_reset(&h);
        CHECK_EQ(haul_run(&h, NULL), BERTH_EIO);
        CHECK_EQ(h.error.reason, BERTH_REASON_IO);
        CHECK_EQ(h.error.system_error, EIO);
        CHECK_EQ(h.error.has, BERTH_HAS_POSITION);
        CHECK_EQ(h.error.position, chunk * 16384);
        CHECK_STR(h.error.file, haul_path(&h, file));
        CHECK_CONTAINS(h.error.message, "reading failed");
        CHECK_LE(atomic_load(&h.calls), first);
        /* Three were under way at most; nothing is begun after the failure. */
        CHECK_LE(atomic_load(&haul_reads), first + 3);
    }
    haul_trick.failure = ESTALE;
    haul_trick.failure_first = 0;
    haul_reset(&h);
    CHECK_EQ(haul_run(&h, NULL), BERTH_EIO);
    CHECK_EQ(h.error.system_error, ESTALE);
    haul_end(&h);
}

/* --------------------------------------------------------------------- no direct */

/* Without alignment, without a second descriptor: buffered, and a notice. */
static void
test_direct_not_possible(void)
{
    const uint64_t size = 20000;
    haul h;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.io = BERTH_IO_DIRECT;
    haul_trick = (haul_tricks){ .direct_block = 0 };
    h.options.workers = 1;
    /* 0: the worker's thread; then per chunk the question what is cached, twice. */
    for (uint64_t nth = 1; nth < 20; nth++) {
        haul_reset(&h);
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        if (haul_run(&h, NULL) == BERTH_OK)
            haul_check(&h);
        else
            CHECK_EQ(h.error.system_error, EIO);
        berthi_fault_disarm();
        if (atomic_load(&h.notices) == 1)
            CHECK_STR(h.stats.path, "tricks buffered");
        else
            CHECK_STR(h.stats.path, "tricks direct");
    }
    haul_end(&h);
}

static void
test_memory_files_are_buffered(void)
{
    const char *const folder = fixture_format("/dev/shm/berth-test-%d", (int)getpid());
    const uint64_t two[] = { 20000, 30000 };
    haul h;

    if (access("/dev/shm", W_OK) != 0)
        T_SKIP("no /dev/shm to write to");
    fixture_make_folder(folder);
    haul_begin(&h, folder, two, 2);
    haul_want_all(&h);
    h.options.no_uring = true;
    check_run(&h);
    CHECK_STR(h.stats.path, "threads buffered");
    haul_end(&h);
    fixture_remove(folder);
}

/* -------------------------------------------------------------------- page cache */

/* Machines take a page back now and then, without any need: 3 per cent are allowed. */
static uint64_t
most_of(uint64_t bytes)
{
    return bytes - bytes / 32;
}

/* Large enough for read-ahead to matter, small enough to be fast. */
#define CACHE_FILE (24 * MIB)

/* False when what is cached cannot be seen or dropped in this folder. */
static bool
can_see_cache(haul *h, bool needs_direct)
{
    uint32_t memory;
    uint32_t offset;

    haul_drop(h, 0);
    if (haul_cached(h, 0) != 0)
        return false;
    return !needs_direct
           || (berthi_sys_direct_alignment(h->files[0].fd, &memory, &offset) == 0
               && offset != 0);
}

static void
begin_cached(haul *h, int io, int no_uring)
{
    const uint64_t size = CACHE_FILE;

    haul_begin(h, fixture_folder(), &size, 1);
    haul_want_all(h);
    h->chunk_bytes = MIB;
    h->options.ring_bytes = 8 * MIB;
    h->options.io = io;
    h->options.no_uring = no_uring != 0;
}

static void
test_cold_is_direct_and_stays_cold(void)
{
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        haul h;

        begin_cached(&h, BERTH_IO_AUTO, no_uring);
        if (!can_see_cache(&h, true)) {
            haul_end(&h);
            T_SKIP("what is cached cannot be seen here, or there are no direct reads");
        }
        check_run(&h);
        CHECK_EQ(h.stats.direct_bytes, CACHE_FILE);
        CHECK_CONTAINS(h.stats.path, " direct");
        CHECK_LT(haul_cached(&h, 0), CACHE_FILE / 20);
        haul_end(&h);
    }
}

/*
 * A test of pages that stay says in its last line whether they did. It may try
 * three times: the machine can take them meanwhile.
 */
#define CHECK_STAYS(call) CHECK((call) || (call) || (call))

/* False, with the haul ended, where the cache cannot be seen. */
static bool
has_begun(haul *h, int io, int no_uring, bool needs_direct)
{
    begin_cached(h, io, no_uring);
    if (can_see_cache(h, needs_direct))
        return true;
    haul_end(h);
    t_skip("what is cached cannot be seen here, or there are no direct reads");
    return false;
}

static bool
is_warm_file_left_warm(int io, int no_uring)
{
    uint64_t cached;
    bool is_whole;
    haul h;

    if (!has_begun(&h, io, no_uring, false))
        return true;
    warm(&h, 0, CACHE_FILE);
    check_run(&h);
    cached = haul_cached(&h, 0);
    /* What has left the cache before it was read came past it, and is not back. */
    is_whole = h.stats.buffered_bytes == CACHE_FILE;
    CHECK(is_whole || cached < CACHE_FILE);
    if (is_whole)
        CHECK_CONTAINS(h.stats.path, " buffered");
    haul_end(&h);
    return is_whole && cached >= most_of(CACHE_FILE);
}

static void
test_warm_is_buffered_and_stays_warm(void)
{
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        CHECK_STAYS(is_warm_file_left_warm(BERTH_IO_AUTO, no_uring));
        CHECK_STAYS(is_warm_file_left_warm(BERTH_IO_BUFFERED, no_uring));
    }
}

/* Also after an ordinary read whose read-ahead left its marks in the cache. */
static void
test_cold_buffered_is_dropped_behind(void)
{
    for (int round = 0; round < 4; round++) {
        char bytes[100];
        haul h;

        begin_cached(&h, BERTH_IO_BUFFERED, round % 2);
        if (!can_see_cache(&h, false)) {
            haul_end(&h);
            T_SKIP("what is cached cannot be seen here");
        }
        if (round / 2)
            CHECK_EQ(pread(h.files[0].fd, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
        check_run(&h);
        CHECK_EQ(h.stats.buffered_bytes, CACHE_FILE);
        CHECK_LT(haul_cached(&h, 0), CACHE_FILE / 20);
        haul_end(&h);
    }
}

static bool
is_half_left_as_it_was(int no_uring)
{
    uint64_t cached;
    bool is_left;
    haul h;

    if (!has_begun(&h, BERTH_IO_AUTO, no_uring, true))
        return true;
    warm(&h, 8 * MIB, 12 * MIB);
    /* 94 per cent are warm, 88 are not; both are more than a guest has. */
    warm(&h, 2 * MIB, 960 * KIB);
    warm(&h, 4 * MIB, 896 * KIB);
    check_run(&h);
    cached = haul_cached(&h, 0);
    is_left = cached >= most_of(12 * MIB + 960 * KIB + 896 * KIB)
              && h.stats.buffered_bytes == 13 * MIB;
    CHECK_LE(cached, 15 * MIB);
    CHECK_EQ(h.stats.direct_bytes + h.stats.buffered_bytes, CACHE_FILE);
    CHECK_CONTAINS(h.stats.path, " direct and buffered");
    haul_end(&h);
    return is_left;
}

/* Half a file in the cache: each half is read as it is best, and left as it was. */
static void
test_half_warm(void)
{
    CHECK_STAYS(is_half_left_as_it_was(0));
    CHECK_STAYS(is_half_left_as_it_was(1));
}

static bool
are_residents_left(void)
{
    int64_t resident;
    haul h;

    if (!has_begun(&h, BERTH_IO_BUFFERED, 1, false))
        return true;
    warm(&h, 4 * MIB, 576 * KIB);
    warm(&h, 8 * MIB, 448 * KIB);
    check_run(&h);
    resident = berthi_sys_cached_pages(h.files[0].fd, 4 * MIB, MIB);
    CHECK_EQ(berthi_sys_cached_pages(h.files[0].fd, 8 * MIB, MIB), 0);
    CHECK_LE(haul_cached(&h, 0), MIB + MIB / 2);
    haul_end(&h);
    return resident >= 248;
}

/* Read through the cache: mostly cached before stays, mostly not goes. */
static void
test_guests_and_residents(void)
{
    CHECK_STAYS(are_residents_left());
}

static bool
are_pages_left_after_a_refusal(void)
{
    uint64_t cached;
    haul h;

    if (!has_begun(&h, BERTH_IO_DIRECT, 0, false))
        return true;
    h.options.reader = &haul_reader;
    haul_trick = (haul_tricks){
        .failure = EINVAL, .failure_count = UINT64_MAX, .only_direct = true
    };
    warm(&h, 0, 4 * MIB);
    check_run(&h);
    cached = haul_cached(&h, 0);
    CHECK_EQ(h.stats.direct_bytes, 0);
    CHECK_LT(cached, 5 * MIB);
    haul_end(&h);
    return cached >= most_of(4 * MIB);
}

/* Asked for direct reads, refused: the user's pages stay all the same. */
static void
test_refused_direct_reads_leave_warm_pages(void)
{
    CHECK_STAYS(are_pages_left_after_a_refusal());
}

static bool
are_others_pages_left(void)
{
    uint64_t cached;
    haul h;

    if (!has_begun(&h, BERTH_IO_BUFFERED, 1, true))
        return true;
    warm(&h, 4 * MIB, 4 * MIB);
    CHECK_EQ(chmod(haul_path(&h, 0), 0644), 0);
    CHECK_EQ(berthi_sys_fstat(h.files[0].fd, &h.files[0].identity), 0);
    CHECK_EQ(seteuid(65534), 0);
    if (haul_cached(&h, 0) == UINT64_MAX) {
        check_run(&h);
        CHECK_EQ(h.stats.buffered_bytes, CACHE_FILE);
        h.options.io = BERTH_IO_AUTO;
        check_run(&h);
        CHECK_EQ(h.stats.direct_bytes, CACHE_FILE);
    }
    CHECK_EQ(seteuid(0), 0);
    cached = haul_cached(&h, 0);
    haul_end(&h);
    return cached >= most_of(4 * MIB);
}

/* The kernel tells only owners what is cached: read as cold, left alone as warm. */
static void
test_somebody_elses_file(void)
{
    if (geteuid() != 0)
        T_SKIP("only root can become somebody else");
    CHECK_STAYS(are_others_pages_left());
}

/* The two ways of asking agree: cachestat, and mincore where it is not there. */
static void
test_what_is_cached(void)
{
    int64_t direct;
    int64_t through_mapping;
    haul h;

    begin_cached(&h, BERTH_IO_AUTO, 0);
    if (!can_see_cache(&h, false)) {
        haul_end(&h);
        T_SKIP("what is cached cannot be seen here");
    }
    warm(&h, 20 * MIB, MIB);
    warm(&h, 128 * KIB, 64 * KIB);
    for (int i = 0; i < 3; i++) {
        const uint64_t offset = i == 0 ? 0 : i == 1 ? 128 * KIB + 5000 : 20 * MIB;
        const uint64_t bytes = i == 0 ? CACHE_FILE : i == 1 ? 4096 : 10;

        direct = berthi_sys_cached_pages(h.files[0].fd, offset, bytes);
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
        through_mapping = berthi_sys_cached_pages(h.files[0].fd, offset, bytes);
        berthi_fault_disarm();
        if (i == 0) {
            CHECK_GE(direct, 264);
            CHECK_LE(direct, 256 + 16);
            CHECK_GE(through_mapping, 264);
            CHECK_LE(through_mapping, direct);
        } else {
            CHECK_EQ(direct, i == 1 ? 2 : 1);
            CHECK_EQ(through_mapping, direct);
        }
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK_EQ(berthi_sys_cached_pages(h.files[0].fd, 0, MIB), -1);
    berthi_fault_disarm();
    haul_end(&h);
}

/* -------------------------------------------------------------------- again and again */

/* Reads the chunk and compares it; what the check of its file said. */
static berth_status
read_chunk(haul *h, berthi_intake *intake, const berthi_chunk *chunk)
{
    berthi_stage_buffer *buffer;
    berth_status status;

    CHECK_EQ(berthi_stage_take(intake->stage, chunk, &buffer, &h->error), BERTH_OK);
    berthi_intake_start(intake, buffer);
    do
        status = berthi_intake_wait(intake, berthi_sys_now_ns() + 1000000000, &h->error);
    while (status == BERTH_OK && buffer->state == BERTHI_STAGE_FILLING);
    if (status == BERTH_OK)
        CHECK_MEM(buffer->memory + (chunk->begin - chunk->origin),
                  h->contents[chunk->file] + chunk->begin, chunk->end - chunk->begin);
    berthi_stage_drop(intake->stage, buffer);
    return status;
}

/* Of all files of the haul. */
static berth_status
init_intake(berthi_intake *intake, const haul *h, const berthi_chunks *chunks,
            const berthi_conveyor_options *options, berthi_stage *stage,
            berthi_conveyor_stats *stats)
{
    const berthi_freight freight = { .context = h->context,
                                     .files = h->files,
                                     .file_count = h->file_count,
                                     .chunks = chunks };

    return berthi_intake_init(intake, &freight, options, stage, stats, NULL);
}

/* What is cached is read from there for as long as it is, and from the disk after that. */
static void
test_endless_looks_again(void)
{
    static const bool has_call[] = { true, false };
    const berthi_conveyor_options options = { .io = BERTH_IO_AUTO, .no_uring = true };
    berthi_conveyor_stats stats = { 0 };
    berthi_chunks chunks;
    berthi_stage stage;
    berthi_intake intake;
    haul h;

    if (!has_begun(&h, BERTH_IO_AUTO, true, true))
        return;
    CHECK_EQ(berthi_chunks_build(h.context, h.pieces, h.piece_count, MIB, 0, &chunks, NULL),
             BERTH_OK);
    CHECK_EQ(berthi_stage_init(&stage, h.context, MIB, 3, 1, has_call, NULL), BERTH_OK);
    CHECK_EQ(init_intake(&intake, &h, &chunks, &options, &stage, &stats), BERTH_OK);
    intake.is_endless = true;
    warm(&h, 0, CACHE_FILE);
    for (uint32_t pass = 0; pass < 4; pass++) {
        const uint64_t before = stats.direct_bytes;

        if (pass == 2)
            haul_drop(&h, 0);
        for (uint64_t i = 0; i < chunks.chunk_count; i++)
            CHECK_EQ(read_chunk(&h, &intake, &chunks.chunks[i]), BERTH_OK);
        CHECK_EQ(stats.direct_bytes - before, pass < 2 ? 0 : CACHE_FILE);
    }
    CHECK_LT(haul_cached(&h, 0), CACHE_FILE / 20);
    berthi_intake_fini(&intake);
    berthi_stage_fini(&stage);
    berthi_chunks_fini(&chunks);
    haul_end(&h);
}

/* Descriptors stay open from pass to pass, and a change shows with the next chunk. */
static void
test_endless(void)
{
    static const uint64_t two[] = { 40000, 30000 };
    static const bool has_call[] = { true, false };
    const berthi_conveyor_options options = { .io = BERTH_IO_DIRECT, .no_uring = true };
    berthi_conveyor_stats stats = { 0 };
    berthi_chunks chunks;
    berthi_stage stage;
    berthi_intake intake;
    int fds = 0;
    haul h;

    haul_begin(&h, fixture_folder(), two, 2);
    haul_want_all(&h);
    CHECK_EQ(berthi_chunks_build(h.context, h.pieces, h.piece_count, 16384, 0, &chunks,
                                 NULL),
             BERTH_OK);
    CHECK_EQ(berthi_stage_init(&stage, h.context, 16384, 3, 2, has_call, NULL), BERTH_OK);
    CHECK_EQ(init_intake(&intake, &h, &chunks, &options, &stage, &stats), BERTH_OK);
    intake.is_endless = true;
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (uint64_t i = 0; i < chunks.chunk_count; i++)
            CHECK_EQ(read_chunk(&h, &intake, &chunks.chunks[i]), BERTH_OK);
        if (pass == 0)
            fds = fixture_open_fds();
        CHECK_EQ(fixture_open_fds(), fds);
    }
    CHECK_GE(stats.bytes_read, 3 * 70000);
    fixture_extend(haul_path(&h, 1), 1);
    CHECK_EQ(read_chunk(&h, &intake, &chunks.chunks[0]), BERTH_OK);
    CHECK_EQ(read_chunk(&h, &intake, &chunks.chunks[3]), BERTH_EIO);
    CHECK_EQ(h.error.reason, BERTH_REASON_CHANGED);
    CHECK_STR(h.error.file, haul_path(&h, 1));
    berthi_intake_fini(&intake);
    berthi_stage_fini(&stage);
    berthi_chunks_fini(&chunks);
    haul_end(&h);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_buffers_are_announced);
    T_RUN(test_system_calls_are_few);
    T_RUN(test_direct_reads_are_widened);
    T_RUN(test_widened_by_less_than_a_page);
    T_RUN(test_short_direct_reads);
    T_RUN(test_direct_reads_that_get_nowhere);
    T_RUN(test_short_buffered_reads);
    T_RUN(test_buffered_pieces);
    T_RUN(test_direct_pieces);
    T_RUN(test_direct_pieces_are_those_in_use);
    T_RUN(test_direct_pieces_of_threads);
    T_RUN(test_direct_reads_refused);
    T_RUN(test_refusal_is_the_files);
    T_RUN(test_reads_to_be_repeated);
    T_RUN(test_repeated_reads_of_many_chunks);
    T_RUN(test_read_errors_say_where);
    T_RUN(test_direct_not_possible);
    T_RUN(test_memory_files_are_buffered);
    T_RUN(test_cold_is_direct_and_stays_cold);
    T_RUN(test_warm_is_buffered_and_stays_warm);
    T_RUN(test_cold_buffered_is_dropped_behind);
    T_RUN(test_half_warm);
    T_RUN(test_guests_and_residents);
    T_RUN(test_refused_direct_reads_leave_warm_pages);
    T_RUN(test_somebody_elses_file);
    T_RUN(test_what_is_cached);
    T_RUN(test_endless_looks_again);
    T_RUN(test_endless);
    T_MAIN_END;
}
