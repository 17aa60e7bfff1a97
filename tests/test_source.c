/* SPDX-License-Identifier: Apache-2.0 */
/* test_source.c - what is read how, and which pages are given back. */
#define _GNU_SOURCE

#include "loader/source.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define CHUNKS 6u
#define CHUNK 65536u
#define BYTES (CHUNKS * CHUNK)

/* A file of six chunks, all of which lie in the page cache. */
typedef struct rig {
    const char *path;
    berthi_file file;
    berthi_chunk chunks[CHUNKS];
    uint8_t shares[CHUNKS];
    berthi_source source;
    int fds;
} rig;

/* Page by page, so that each can be dropped by itself. */
static void
warm(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char page[4096];

    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (uint32_t at = 0; at < BYTES; at += sizeof page)
        CHECK_EQ(pread(fd, page, sizeof page, at), (ssize_t)sizeof page);
    close(fd);
}

static void
begin(rig *r)
{
    const char *const path = fixture_format("%s/file", fixture_folder());
    char *const bytes = calloc(1, BYTES);

    memset(r, 0, sizeof *r);
    r->path = path;
    fixture_write(path, bytes, BYTES);
    if (berthi_file_open(&r->file, BERTHI_SYS_AT_CWD, path, path, BERTHI_FILE_ANYWHERE, NULL)
        != BERTH_OK)
        exit(70);
    free(bytes);
    warm(path);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        r->chunks[i].begin = i * CHUNK;
        r->chunks[i].end = (i + 1) * CHUNK;
    }
    r->fds = fixture_open_fds();
    memset(&r->source, 0xff, sizeof r->source); /* whatever was there before */
    berthi_source_init(&r->source, &r->file, 0);
    r->source.chunks = r->chunks;
    r->source.chunk_count = CHUNKS;
    r->source.shares = r->shares;
}

static int64_t
cached(const rig *r, uint32_t chunk)
{
    return berthi_sys_cached_pages(r->file.fd, chunk * CHUNK, CHUNK);
}

/* The kernel tells what is cached, and drops it when it is asked to: a tmpfs has no other copy. */
static bool
has_cache(const rig *r)
{
    const bool is_seen = berthi_sys_cached_pages(r->file.fd, 0, BYTES) == BYTES / 4096;
    bool is_dropped;

    posix_fadvise(r->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    is_dropped = berthi_sys_cached_pages(r->file.fd, 0, BYTES) == 0;
    warm(r->path);
    return is_seen && is_dropped;
}

static void
end(rig *r)
{
    berthi_source_close(&r->source);
    CHECK_EQ(r->source.direct_fd, -1);
    CHECK_EQ(r->source.buffered_fd, -1);
    CHECK_EQ(fixture_open_fds(), r->fds);
    berthi_source_close(&r->source);
    CHECK_EQ(fixture_open_fds(), r->fds);
    berthi_file_close(&r->file);
}

static void
begin_counting(void)
{
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, UINT64_MAX, false);
}

static uint64_t
counted(void)
{
    const uint64_t calls = berthi_fault_calls(BERTHI_FAULT_SYSTEM);

    berthi_fault_disarm();
    return calls;
}

static void
test_alignment(void)
{
    CHECK_EQ(berthi_source_alignment(4, 512, 65536), 4096);
    CHECK_EQ(berthi_source_alignment(1, 1, 4096), 4096);
    CHECK_EQ(berthi_source_alignment(4096, 4096, 4096), 4096);
    CHECK_EQ(berthi_source_alignment(512, 16384, 16384), 16384);
    /* Larger than a window, not a power of two, more than buffers have. */
    CHECK_EQ(berthi_source_alignment(512, 16384, 8192), 0);
    CHECK_EQ(berthi_source_alignment(512, 12288, 65536), 0);
    CHECK_EQ(berthi_source_alignment(8192, 4096, 65536), 0);
    /* No direct reads. */
    CHECK_EQ(berthi_source_alignment(0, 0, 65536), 0);
    CHECK_EQ(berthi_source_alignment(0, 512, 65536), 0);
    CHECK_EQ(berthi_source_alignment(512, 0, 65536), 0);
}

static void
test_descriptors(void)
{
    rig r;
    int fd;

    begin(&r);
    CHECK_EQ(fixture_open_fds(), r.fds);
    fd = berthi_source_buffered_fd(&r.source);
    CHECK_NE(fd, r.file.fd);
    CHECK_EQ(berthi_source_buffered_fd(&r.source), fd);
    CHECK_EQ(fixture_open_fds(), r.fds + 1);
    CHECK_EQ(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_DIRECT | O_ACCMODE), O_RDONLY);
    CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    if (berthi_source_has_direct(&r.source, CHUNK)) {
        CHECK_EQ(fixture_open_fds(), r.fds + 2);
        CHECK(berthi_source_has_direct(&r.source, CHUNK));
        CHECK_EQ(fixture_open_fds(), r.fds + 2);
        CHECK_EQ(fcntl(r.source.direct_fd, F_GETFL) & (O_NONBLOCK | O_DIRECT), O_DIRECT);
        CHECK_GE(r.source.alignment, 4096);
        r.source.is_refused = true;
        CHECK(!berthi_source_has_direct(&r.source, CHUNK));
    }
    end(&r);
}

/* Whatever fails: a descriptor to read from is there, and nothing is asked again. */
static void
test_descriptors_that_cannot_be_had(void)
{
    rig r;

    begin(&r);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false); /* the second open */
    CHECK_EQ(berthi_source_buffered_fd(&r.source), r.file.fd);
    berthi_fault_disarm();
    CHECK_NE(berthi_source_buffered_fd(&r.source), r.file.fd);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false);
    CHECK(!berthi_source_has_direct(&r.source, CHUNK));
    berthi_fault_disarm();
    CHECK(!berthi_source_has_direct(&r.source, CHUNK));
    end(&r);
    begin(&r);
    begin_counting();
    (void)berthi_source_buffered_fd(&r.source); /* open, advice */
    CHECK_EQ(counted(), 2);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true); /* no advice without descriptor */
    close(r.source.buffered_fd);
    r.source.buffered_fd = -1;
    CHECK_EQ(berthi_source_buffered_fd(&r.source), r.file.fd);
    CHECK_EQ(counted(), 1);
    end(&r);
}

static void
test_warm(void)
{
    static const uint8_t shares[CHUNKS] = { 0, 50, 89, 90, 100, 255 };
    rig r;

    begin(&r);
    r.source.is_surveyed = true;
    memcpy(r.shares, shares, sizeof shares);
    for (uint32_t i = 0; i < CHUNKS; i++)
        CHECK_EQ(berthi_source_is_warm(&r.source, &r.chunks[i]), i == 3 || i == 4);
    end(&r);
}

static void
test_survey(void)
{
    rig r;

    begin(&r);
    if (!has_cache(&r)) {
        end(&r);
        T_SKIP("what is cached cannot be seen or dropped here");
    }
    r.chunks[1].begin += 5; /* pages that are cut count as pages */
    r.chunks[1].end -= 4096 + 5;
    CHECK(berthi_source_is_warm(&r.source, &r.chunks[2]));
    for (uint32_t i = 0; i < CHUNKS; i++)
        CHECK_EQ(r.shares[i], 100);
    /* Once: what comes later changes nothing. */
    posix_fadvise(r.file.fd, 0, 0, POSIX_FADV_DONTNEED);
    CHECK(berthi_source_is_warm(&r.source, &r.chunks[5]));
    r.source.is_surveyed = false;
    CHECK(!berthi_source_is_warm(&r.source, &r.chunks[5]));
    CHECK_EQ(r.shares[0], 0);
    CHECK_EQ(r.shares[5], 0);
    /* Where nobody can say: cold to read, but nobody's guest. */
    r.source.is_surveyed = false;
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK(!berthi_source_is_warm(&r.source, &r.chunks[0]));
    berthi_fault_disarm();
    CHECK_EQ(r.shares[3], 255);
    begin_counting();
    berthi_source_drop(&r.source, &r.chunks[3]);
    CHECK_EQ(counted(), 0);
    end(&r);
}

static void
test_drop(void)
{
    rig r;

    begin(&r);
    if (!has_cache(&r)) {
        end(&r);
        T_SKIP("what is cached cannot be seen or dropped here");
    }
    r.shares[1] = 49;
    r.shares[2] = 50;
    /* Pages of which only a part was read go as well. */
    r.chunks[1].begin += 4095;
    r.chunks[1].end -= 4095;
    berthi_source_drop(&r.source, &r.chunks[1]);
    berthi_source_drop(&r.source, &r.chunks[2]);
    CHECK_EQ(cached(&r, 0), CHUNK / 4096);
    CHECK_EQ(cached(&r, 1), 0);
    CHECK_EQ(cached(&r, 2), CHUNK / 4096);
    end(&r);
}

/* One advice for each run of guests that lie side by side, none for residents. */
static void
test_drop_at_the_end(void)
{
    static const struct {
        uint8_t shares[CHUNKS];
        uint32_t gap_before; /* this chunk begins a page later; 0: none */
        uint64_t runs;
    } cases[] = {
        { { 0, 0, 0, 0, 0, 0 }, 0, 1 },
        { { 0, 0, 0, 0, 0, 0 }, 3, 2 },
        { { 0, 0, 0, 0, 0, 0 }, 5, 2 },
        { { 100, 0, 0, 100, 0, 255 }, 0, 2 },
        { { 0, 100, 0, 100, 0, 100 }, 0, 3 },
        { { 100, 100, 255, 100, 90, 50 }, 0, 0 },
        { { 100, 100, 100, 100, 100, 0 }, 0, 1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;

        begin(&r);
        if (!has_cache(&r)) {
            end(&r);
            T_SKIP("what is cached cannot be seen or dropped here");
        }
        memcpy(r.shares, cases[i].shares, sizeof r.shares);
        if (cases[i].gap_before > 0)
            r.chunks[cases[i].gap_before].begin += 4096;
        begin_counting();
        berthi_source_close(&r.source);
        CHECK_EQ(counted(), 0); /* nothing was read through the cache */
        r.source.is_buffered = true;
        begin_counting();
        berthi_source_close(&r.source);
        CHECK_EQ(counted(), cases[i].runs);
        for (uint32_t c = 0; c < CHUNKS && cases[i].gap_before == 0; c++)
            CHECK_EQ(cached(&r, c), cases[i].shares[c] < 50 ? 0 : CHUNK / 4096);
        end(&r);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_alignment);
    T_RUN(test_descriptors);
    T_RUN(test_descriptors_that_cannot_be_had);
    T_RUN(test_warm);
    T_RUN(test_survey);
    T_RUN(test_drop);
    T_RUN(test_drop_at_the_end);
    T_MAIN_END;
}
