/* SPDX-License-Identifier: Apache-2.0 */
/* test_writer_files.c - one file of a set: created, written, moved, finished, dropped. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loader/writer_parts.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/written.h"

#define MIB UINT64_C(1048576)
#define WINDOW (8 * MIB)
#define SHARED_WINDOW MIB
#define MAX_WINDOWS 256

static berth_context *context;

/* These stand before the C library's: what a disk can do, and no test can bring about. */
static struct {
    size_t write_bytes;   /* a pwrite takes at most so many; 0: all       */
    size_t read_bytes;    /* so does a pread                              */
    int interruptions;    /* so many of the next calls are interrupted    */
    int write_error;      /* of the next pwrite                           */
    int flush_error;      /* of the next fsync of a file                  */
    int advice_error;     /* of each sync_file_range with these flags     */
    unsigned advice_flags;
    int reserve_error;    /* of fallocate                                 */
    bool is_hollow;       /* written bytes go nowhere                     */
    bool is_full;         /* no byte is free                              */
    bool is_slow;         /* a journal is on its way for a while          */
    _Atomic int journals; /* that are on their way now                    */
    uint64_t window;      /* 0: WINDOW                                    */
    _Atomic int begun[MAX_WINDOWS]; /* write-backs begun, by window       */
    _Atomic int waited[MAX_WINDOWS];
    _Atomic int dropped[MAX_WINDOWS];
    _Atomic int dropped_all;
} world;

static bool
is_interrupted(void)
{
    if (world.interruptions == 0)
        return false;
    world.interruptions--;
    errno = EINTR;
    return true;
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    if (is_interrupted())
        return -1;
    if (world.write_error != 0) {
        errno = world.write_error;
        world.write_error = 0;
        return -1;
    }
    if (world.is_hollow)
        return (ssize_t)size;
    if (world.write_bytes > 0 && size > world.write_bytes)
        size = world.write_bytes;
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

ssize_t
pread(int fd, void *bytes, size_t size, off_t offset)
{
    if (is_interrupted())
        return -1;
    if (world.read_bytes > 0 && size > world.read_bytes)
        size = world.read_bytes;
    return syscall(SYS_pread64, fd, bytes, size, offset);
}

static bool
is_journal(int fd)
{
    char link[64];
    char name[4096] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, name, sizeof name - 1) > 0 && strstr(name, ".berth-journal");
}

int
fsync(int fd)
{
    struct stat state;

    if (is_interrupted())
        return -1;
    if (world.is_slow && is_journal(fd)) {
        CHECK_EQ(world.journals++, 0); /* one at a time */
        usleep(5000);
        world.journals--;
    }
    if (world.flush_error != 0 && fstat(fd, &state) == 0 && S_ISREG(state.st_mode)) {
        errno = world.flush_error;
        world.flush_error = 0;
        return -1;
    }
    return 0;
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (is_interrupted())
        return -1;
    if (world.reserve_error != 0) {
        errno = world.reserve_error;
        return -1;
    }
    if (world.is_hollow)
        return 0;
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int
fstatvfs(int fd, struct statvfs *out)
{
    if (fcntl(fd, F_GETFD) < 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->f_blocks = 1 << 20;
    out->f_bavail = world.is_full ? 0 : 1 << 20;
    out->f_frsize = 4096;
    return 0;
}

static uint64_t
window_bytes(void)
{
    return world.window > 0 ? world.window : WINDOW;
}

int
sync_file_range(int fd, off_t offset, off_t size, unsigned flags)
{
    const uint64_t bytes = window_bytes();
    const uint64_t window = (uint64_t)offset / bytes;

    (void)fd;
    CHECK_EQ((uint64_t)offset % bytes, 0);
    CHECK_EQ(size, bytes);
    if (window >= MAX_WINDOWS)
        abort();
    if (flags == SYNC_FILE_RANGE_WRITE)
        world.begun[window]++;
    else if (CHECK_EQ(flags, SYNC_FILE_RANGE_WAIT_BEFORE))
        world.waited[window]++;
    if (world.advice_error != 0 && world.advice_flags == flags) {
        errno = world.advice_error;
        return -1;
    }
    return 0;
}

int
posix_fadvise(int fd, off_t offset, off_t size, int advice)
{
    (void)fd;
    CHECK_EQ(advice, POSIX_FADV_DONTNEED);
    if (offset == 0 && size == 0)
        world.dropped_all++;
    else
        world.dropped[(uint64_t)offset / window_bytes()]++;
    return 0;
}

static void
calm(void)
{
    memset(&world, 0, sizeof world);
}

/* ------------------------------------------------------------------- helpers */

static berthi_writer *
open_writer(const char *folder, bool is_resume)
{
    const berthi_writer_options options = { .job = "job", .resume = is_resume };
    berthi_writer *writer = NULL;

    CHECK_EQ(berthi_writer_open(context, folder, &options, &writer, NULL), BERTH_OK);
    return writer;
}

static void
check_content(const char *path, const char *expected)
{
    char *const text = fixture_read(path, NULL);

    CHECK_STR(text, expected);
    free(text);
}

/* ------------------------------------------------------------------ creating */

static void
test_names(void)
{
    const char *const folder = fixture_folder();
    static const char *const bad[] = { "", ".", "..", "a//b", "a/", "/a", "a/../b",
                                       "a/b/c/d/e", "a:b", ".berth-journal.json",
                                       "a\xff" };
    char name[256] = "";
    berthi_writer *const writer = open_writer(folder, false);
    berthi_writer_file *file;
    berth_error error;

    T_REQUIRE(writer != NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_EQ(berthi_writer_create(writer, bad[i], 1, &file, &error), BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK(file == NULL);
    }
    CHECK_EQ(berthi_writer_create(writer, "a", 1, &file, NULL), BERTH_OK);
    CHECK_STR(file->name, "a");
    CHECK_EQ(file->bytes, 1);
    CHECK(!file->is_finished);
    CHECK(berthi_writer_find(writer, "a") == file);
    CHECK(berthi_writer_find(writer, "b") == NULL);
    CHECK_EQ(berthi_writer_create(writer, "a", 1, &file, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "has a file of this name");
    CHECK_STR(error.file, folder);
    CHECK_STR(error.tensor, "a");
    /* A file cannot be a folder, too. */
    CHECK_EQ(berthi_writer_create(writer, "a/b", 1, &file, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "has a file of this name");
    CHECK_EQ(berthi_writer_create(writer, "ab", 1, &file, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_create(writer, "c/d/e", 1, &file, &error), BERTH_OK);
    CHECK_EQ(berthi_writer_create(writer, "c/d", 1, &file, &error), BERTH_EINVAL);
    CHECK_EQ(berthi_writer_create(writer, "c", 1, &file, &error), BERTH_EINVAL);
    CHECK_EQ(berthi_writer_create(writer, "c/de", 1, &file, &error), BERTH_OK);
    /* Of a long name the temporary one has a part, which is UTF-8. */
    for (size_t i = 0; i < 254; i += 2)
        memcpy(name + i, "\xc3\xa9", 3);
    name[254] = 'x';
    CHECK_EQ(berthi_writer_create(writer, name, 1, &file, &error), BERTH_OK);
    CHECK_STR(file->name, name);
    CHECK_CONTAINS(file->temporary, ".\xc3\xa9");
    CHECK_CONTAINS(file->temporary, fixture_format("%s.berth-", name + 56));
    CHECK_EQ(strstr(file->temporary, ".berth-") - file->temporary, 1 + 199);
    fixture_text(fixture_format("%s/there", folder), "x");
    CHECK_EQ(berthi_writer_create(writer, "there", 1, &file, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_EXISTS);
    fixture_make_folder(fixture_format("%s/folder", folder));
    CHECK_EQ(berthi_writer_create(writer, "folder", 1, &file, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    berthi_writer_close(writer);
}

static void
test_too_large(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *const writer = open_writer(folder, false);
    berthi_writer_file *file;
    struct rlimit before;
    struct rlimit limit;
    berth_error error;

    T_REQUIRE(writer != NULL);
    CHECK_EQ(berthi_writer_create(writer, "a", UINT64_C(1) << 60, &file, &error),
             BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_STR(error.file, fixture_format("%s/a", folder));
    CHECK_EQ(error.expected, UINT64_C(1) << 60);
    CHECK_EQ(berthi_writer_check_space(writer, UINT64_C(1) << 60, &error), BERTH_EIO);
    CHECK_STR(error.file, folder);
    CHECK_EQ(berthi_writer_check_space(writer, 4096, &error), BERTH_OK);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(berthi_writer_create(writer, "b", 4097, &file, &error), BERTH_EIO);
    CHECK_EQ(error.actual, 4096);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    world.reserve_error = ENOSPC;
    CHECK_EQ(berthi_writer_create(writer, "c", 10, &file, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, "reserving");
    CHECK(berthi_writer_find(writer, "c") == NULL);
    world.reserve_error = EOPNOTSUPP;
    CHECK_EQ(berthi_writer_create(writer, "c", 10, &file, &error), BERTH_OK);
    calm();
    berthi_writer_close(writer);
}

/* ------------------------------------------------------------------- writing */

static void
test_writes(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer = open_writer(folder, false);
    const uint32_t notes[] = { 3, 1, 2 };
    berthi_writer_file *file;
    char bytes[8] = "";
    berth_error error;

    T_REQUIRE(writer != NULL);
    CHECK_EQ(berthi_writer_create(writer, "a", 9, &file, NULL), BERTH_OK);
    world.write_bytes = 2;
    world.interruptions = 3;
    CHECK_EQ(berthi_writer_write(writer, file, "defg", 4, 3, NULL), BERTH_OK);
    world.interruptions = 2;
    CHECK_EQ(berthi_writer_write(writer, file, "abc", 3, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_write(writer, file, "", 0, 9, NULL), BERTH_OK);
    world.write_bytes = 0;
    world.read_bytes = 3;
    world.interruptions = 1;
    CHECK_EQ(berthi_writer_write(writer, file, "xx", 2, 8, &error), BERTH_EINTERNAL);
    CHECK_EQ(berthi_writer_write(writer, file, "x", 1, UINT64_MAX, &error),
             BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "beyond the end");
    CHECK_EQ(berthi_writer_read(writer, file, bytes, 7, 0, NULL), BERTH_OK);
    CHECK_STR(bytes, "abcdefg");
    world.read_bytes = 0;
    world.interruptions = 1;
    CHECK_EQ(berthi_writer_finish(writer, file, 7, notes, 3, NULL), BERTH_OK);
    CHECK(file->is_finished);
    CHECK_EQ(file->bytes, 7);
    CHECK_EQ(world.dropped_all, 1);
    CHECK_EQ(berthi_writer_write(writer, file, "x", 1, 0, NULL), BERTH_EINTERNAL);
    CHECK_EQ(berthi_writer_finish(writer, file, 7, NULL, 0, NULL), BERTH_EINTERNAL);
    CHECK_EQ(berthi_writer_read(writer, file, bytes, 8, 0, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TRUNCATED);
    berthi_writer_close(writer);

    writer = open_writer(folder, true);
    T_REQUIRE(writer != NULL);
    file = berthi_writer_find(writer, "a");
    T_REQUIRE(file != NULL);
    CHECK_EQ(file->note_count, 3);
    CHECK_MEM(file->notes, notes, sizeof notes);
    CHECK_EQ(berthi_writer_read(writer, file, bytes, 3, 4, NULL), BERTH_OK);
    CHECK_EQ(memcmp(bytes, "efg", 3), 0);
    CHECK_EQ(berthi_writer_publish(writer, "a", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_read(writer, file, bytes, 3, 0, NULL), BERTH_OK);
    CHECK_EQ(memcmp(bytes, "abc", 3), 0);
    berthi_writer_close(writer);
    check_content(fixture_format("%s/a", folder), "abcdefg");
    calm();
}

/* A file of which something was lost is never finished, nor is it listed. */
static void
test_failures_are_final(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *const writer = open_writer(folder, false);
    berthi_writer_file *file;
    berth_error error;

    T_REQUIRE(writer != NULL);
    CHECK_EQ(berthi_writer_create(writer, "a", 3, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_finish(writer, file, 3, NULL, 0, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "not written completely");
    world.write_error = EDQUOT;
    CHECK_EQ(berthi_writer_write(writer, file, "abc", 3, 0, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(error.system_error, EDQUOT);
    CHECK_EQ(error.has & BERTH_HAS_EXPECTED, 0);
    CHECK_STR(error.file, fixture_format("%s/a", folder));
    CHECK_EQ(berthi_writer_write(writer, file, "abc", 3, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_finish(writer, file, 4, NULL, 0, NULL), BERTH_EINTERNAL);
    CHECK_EQ(berthi_writer_finish(writer, file, 3, NULL, 0, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "could not be written before");
    world.write_error = ENOSPC;
    world.is_full = true;
    CHECK_EQ(berthi_writer_write(writer, file, "bc", 2, 1, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, 2); /* missing */
    CHECK_EQ(error.actual, 0);   /* free */
    world.is_full = false;
    berthi_writer_drop(writer, file);
    CHECK(berthi_writer_find(writer, "a") == NULL);

    CHECK_EQ(berthi_writer_create(writer, "a", 3, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_write(writer, file, "abc", 3, 0, NULL), BERTH_OK);
    world.flush_error = EIO;
    CHECK_EQ(berthi_writer_finish(writer, file, 3, NULL, 0, &error), BERTH_EIO);
    CHECK_STR(error.message, "flushing failed");
    CHECK_EQ(berthi_writer_finish(writer, file, 3, NULL, 0, NULL), BERTH_EIO);
    CHECK(!file->is_finished);
    CHECK_EQ(access(fixture_format("%s/.berth-journal.json", folder), F_OK), -1);
    berthi_writer_drop(writer, NULL);
    berthi_writer_close(writer);
    calm();
}

/* ---------------------------------------------------------------- write-back */

static void
write_hollow(berthi_writer *writer, berthi_writer_file *file, uint64_t from, uint64_t to)
{
    static const char zeros[64];

    CHECK_EQ(berthi_writer_write(writer, file, zeros, to - from, from, NULL), BERTH_OK);
}

/* Full windows leave at once; from the ninth on the first ones are dropped. */
static void
test_write_back(void)
{
    berthi_writer *const writer = open_writer(fixture_folder(), false);
    const uint64_t bytes = 10 * WINDOW + 5;
    berthi_writer_file *file;

    T_REQUIRE(writer != NULL);
    world.is_hollow = true;
    CHECK_EQ(berthi_writer_create(writer, "a", bytes, &file, NULL), BERTH_OK);
    write_hollow(writer, file, 0, WINDOW - 1);
    CHECK_EQ(world.begun[0], 0);
    write_hollow(writer, file, WINDOW - 1, WINDOW + 1); /* ends one, begins the next */
    CHECK_EQ(world.begun[0], 1);
    CHECK_EQ(world.begun[1], 0);
    write_hollow(writer, file, WINDOW + 1, 8 * WINDOW); /* several in one call */
    for (int i = 0; i < 8; i++)
        CHECK_EQ(world.begun[i], 1);
    CHECK_EQ(world.waited[0], 0);
    write_hollow(writer, file, 10 * WINDOW, bytes); /* the last is shorter */
    CHECK_EQ(world.begun[10], 1);
    CHECK_EQ(world.waited[0], 1);
    CHECK_EQ(world.dropped[0], 1);
    CHECK_EQ(world.waited[1], 0);
    write_hollow(writer, file, 8 * WINDOW, 10 * WINDOW);
    for (int i = 0; i < 11; i++) {
        CHECK_EQ(world.begun[i], 1);
        CHECK_EQ(world.waited[i], i < 3);
        CHECK_EQ(world.dropped[i], i < 3);
    }
    berthi_writer_close(writer);
    calm();
}

/*
 * Parts fill some windows together, and each sees its own bytes alone: they are sent to
 * the disk all the same, the part full ones once the part is some windows further.
 */
static void
test_write_back_of_parts(void)
{
    const berthi_writer_options options = { .job = "job", .part_count = 2, .part = 1 };
    berthi_writer *writer;
    berthi_writer_file *file;

    CHECK_EQ(berthi_writer_open(context, fixture_folder(), &options, &writer, NULL),
             BERTH_OK);
    world.is_hollow = true;
    world.window = SHARED_WINDOW;
    CHECK_EQ(berthi_writer_share(writer, "a", 35 * MIB + 5, &file, NULL), BERTH_OK);
    write_hollow(writer, file, 0, 3 * MIB / 2);
    CHECK_EQ(world.begun[0], 1);
    CHECK_EQ(world.begun[1], 0); /* its end is another part's */
    write_hollow(writer, file, 2 * MIB, 10 * MIB - 1);
    CHECK_EQ(world.begun[1], 0);
    write_hollow(writer, file, 10 * MIB - 1, 10 * MIB + 1); /* nine windows further */
    CHECK_EQ(world.begun[1], 1);
    CHECK_EQ(world.begun[0], 1);
    write_hollow(writer, file, 10 * MIB + 1, 32 * MIB);
    for (int i = 0; i < 32; i++)
        CHECK_EQ(world.begun[i], 1);
    CHECK_EQ(world.waited[0], 0);
    write_hollow(writer, file, 3 * MIB / 2, 3 * MIB / 2 + 1); /* late: it waits for the end */
    CHECK_EQ(world.begun[1], 1);
    write_hollow(writer, file, 35 * MIB, 35 * MIB + 5); /* 32 MiB were ahead of it */
    CHECK_EQ(world.begun[35], 1);
    CHECK_EQ(world.waited[0], 1);
    CHECK_EQ(world.dropped[0], 1);
    CHECK_EQ(world.waited[2], 0);
    for (int i = 32; i < 35; i++) /* nothing is there */
        CHECK_EQ(world.begun[i], 0);
    berthi_writer_drop(writer, file);
    /* Who joins writes a header, and watches nothing. */
    CHECK_EQ(berthi_writer_take(writer, "a", 35 * MIB + 5, &file, NULL), BERTH_OK);
    write_hollow(writer, file, 0, 2 * MIB);
    CHECK_EQ(world.begun[0], 1);
    berthi_writer_drop(writer, file);
    berthi_writer_close(writer);
    calm();
}

/* Of a window that the part has left part full as of any other. */
static void
test_write_back_of_parts_fails(void)
{
    const berthi_writer_options options = { .job = "job", .part_count = 2, .part = 1 };
    berthi_writer *writer;
    berthi_writer_file *file;
    static const char zero;
    berth_error error;

    CHECK_EQ(berthi_writer_open(context, fixture_folder(), &options, &writer, NULL),
             BERTH_OK);
    world.is_hollow = true;
    world.window = SHARED_WINDOW;
    CHECK_EQ(berthi_writer_share(writer, "a", 20 * MIB, &file, NULL), BERTH_OK);
    write_hollow(writer, file, 0, MIB / 2);
    write_hollow(writer, file, MIB, 3 * MIB / 2);
    world.advice_error = EIO;
    world.advice_flags = SYNC_FILE_RANGE_WRITE;
    CHECK_EQ(berthi_writer_write(writer, file, &zero, 1, 12 * MIB, &error), BERTH_EIO);
    CHECK_EQ(error.system_error, EIO);
    CHECK_EQ(world.begun[0], 1);
    CHECK_EQ(world.begun[1], 0); /* all is lost */
    CHECK_EQ(berthi_writer_finish(writer, file, 20 * MIB, NULL, 0, NULL), BERTH_EIO);
    calm();
    berthi_writer_drop(writer, file);
    berthi_writer_close(writer);
}

/* A byte more than a window is two; what a move has added has none. */
static void
test_windows_of_small_files(void)
{
    berthi_writer *const writer = open_writer(fixture_folder(), false);
    berthi_writer_file *file;

    T_REQUIRE(writer != NULL);
    world.is_hollow = true;
    CHECK_EQ(berthi_writer_create(writer, "a", WINDOW + 1, &file, NULL), BERTH_OK);
    write_hollow(writer, file, 0, WINDOW + 1);
    CHECK_EQ(world.begun[0], 1);
    CHECK_EQ(world.begun[1], 1);
    calm();
    CHECK_EQ(berthi_writer_create(writer, "b", WINDOW, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_move(writer, file, 0, 16, WINDOW, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_write(writer, file, "0123456789abcdef", 16, WINDOW, NULL),
             BERTH_OK);
    CHECK_EQ(world.begun[0], 0);
    CHECK_EQ(world.begun[1], 0);
    berthi_writer_close(writer);
}

/* Lost bytes are told by whoever hears of them first; a kernel that cannot is fine. */
static void
test_write_back_fails(void)
{
    static const struct {
        unsigned flags;
        int error;
        berth_status status;
    } cases[] = {
        { SYNC_FILE_RANGE_WRITE, EIO, BERTH_EIO },
        { SYNC_FILE_RANGE_WRITE, ENOSPC, BERTH_EIO },
        { SYNC_FILE_RANGE_WRITE, EDQUOT, BERTH_EIO },
        { SYNC_FILE_RANGE_WAIT_BEFORE, EIO, BERTH_EIO },
        { SYNC_FILE_RANGE_WRITE, ENOSYS, BERTH_OK },
        { SYNC_FILE_RANGE_WAIT_BEFORE, EINVAL, BERTH_OK },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        berthi_writer *const writer = open_writer(fixture_folder(), false);
        const uint64_t bytes = 17 * WINDOW;
        static const char zero;
        berthi_writer_file *file;
        berth_error error;

        T_REQUIRE(writer != NULL);
        world.is_hollow = true;
        CHECK_EQ(berthi_writer_create(writer, "a", bytes, &file, NULL), BERTH_OK);
        write_hollow(writer, file, 0, WINDOW - 1);
        write_hollow(writer, file, WINDOW, bytes);
        world.advice_error = cases[i].error;
        world.advice_flags = cases[i].flags;
        CHECK_EQ(berthi_writer_write(writer, file, &zero, 1, WINDOW - 1, &error),
                 cases[i].status);
        if (cases[i].status != BERTH_OK) {
            CHECK_EQ(error.system_error, cases[i].error);
            CHECK_EQ(berthi_writer_finish(writer, file, bytes, NULL, 0, NULL), BERTH_EIO);
        }
        calm();
        berthi_writer_close(writer);
    }
}

/* ------------------------------------------------------------------- moving */

/* Both ways, overlapping, in more than one piece. */
static void
test_moves(void)
{
    const size_t length = (size_t)(2 * MIB + 12345);
    char *const bytes = malloc(length);
    char *const found = malloc(length);
    berthi_writer *const writer = open_writer(fixture_folder(), false);
    berthi_writer_file *file;
    berth_error error;

    T_REQUIRE(bytes != NULL && found != NULL && writer != NULL);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    CHECK_EQ(berthi_writer_create(writer, "a", length, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_write(writer, file, bytes, length, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_move(writer, file, 0, 1000, length, NULL), BERTH_OK);
    CHECK_EQ(file->bytes, length + 1000);
    CHECK_EQ(berthi_writer_read(writer, file, found, length, 1000, NULL), BERTH_OK);
    CHECK_MEM(found, bytes, length);
    CHECK_EQ(berthi_writer_move(writer, file, 1000, 8, length, NULL), BERTH_OK);
    CHECK_EQ(file->bytes, length + 1000);
    CHECK_EQ(berthi_writer_read(writer, file, found, length, 8, NULL), BERTH_OK);
    CHECK_MEM(found, bytes, length);
    CHECK_EQ(berthi_writer_move(writer, file, 8, 8, length, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_move(writer, file, 0, length + 2000, 0, NULL), BERTH_OK);
    CHECK_EQ(file->bytes, length + 1000); /* nothing is nowhere */
    CHECK_EQ(berthi_writer_move(writer, file, 1001, 0, length, &error), BERTH_EINTERNAL);
    CHECK_EQ(berthi_writer_move(writer, file, length + 1001, 0, 0, NULL),
             BERTH_EINTERNAL);
    CHECK_EQ(berthi_writer_move(writer, file, length + 1000, 0, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_move(writer, file, 0, UINT64_MAX, 1, NULL), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "beyond the end");
    CHECK_EQ(berthi_writer_finish(writer, file, length, NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_move(writer, file, 0, 1, 1, NULL), BERTH_EINTERNAL);
    berthi_writer_close(writer);
    free(found);
    free(bytes);
    calm();
}

static void
test_move_fails(void)
{
    berthi_writer *const writer = open_writer(fixture_folder(), false);
    berthi_writer_file *file;
    berth_error error;

    T_REQUIRE(writer != NULL);
    CHECK_EQ(berthi_writer_create(writer, "a", 4, &file, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_write(writer, file, "abcd", 4, 0, NULL), BERTH_OK);
    world.write_error = ENOSPC;
    CHECK_EQ(berthi_writer_move(writer, file, 0, 1, 4, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(file->bytes, 4);
    CHECK_EQ(berthi_writer_finish(writer, file, 4, NULL, 0, &error), BERTH_EIO);
    berthi_writer_close(writer);
}

/* ----------------------------------------------------------- renaming, dropping */

static void
test_renames(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *const writer = open_writer(folder, false);
    berthi_writer_file *a;
    berth_error error;

    T_REQUIRE(writer != NULL);
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "b", "2", NULL), BERTH_OK);
    a = berthi_writer_find(writer, "a");
    CHECK_EQ(berthi_writer_rename(writer, a, "b", &error), BERTH_EINVAL);
    CHECK_EQ(berthi_writer_rename(writer, a, "x//y", &error), BERTH_EINVAL);
    CHECK_STR(a->name, "a");
    CHECK_EQ(berthi_writer_rename(writer, a, "a", &error), BERTH_OK);
    CHECK_EQ(berthi_writer_rename(writer, a, "c", &error), BERTH_OK);
    CHECK_STR(a->name, "c");
    CHECK(berthi_writer_find(writer, "a") == NULL);
    CHECK(berthi_writer_find(writer, "c") == a);
    CHECK_EQ(berthi_writer_publish(writer, "b", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_create(writer, "d", 1, &a, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "published already");
    berthi_writer_close(writer);
    check_content(fixture_format("%s/c", folder), "1");
    check_content(fixture_format("%s/b", folder), "2");
    CHECK_EQ(access(fixture_format("%s/a", folder), F_OK), -1);
}

static void
test_drops(void)
{
    const char *const folder = fixture_folder();
    berthi_writer *writer = open_writer(folder, false);
    berthi_writer_file *dropped;
    int other;
    int fds;

    T_REQUIRE(writer != NULL);
    fds = fixture_open_fds();
    CHECK_EQ(written_text(writer, "a", "1", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "b", "2", NULL), BERTH_OK);
    CHECK_EQ(written_text(writer, "c", "3", NULL), BERTH_OK);
    dropped = berthi_writer_find(writer, "b");
    berthi_writer_drop(writer, dropped);
    berthi_writer_drop(writer, dropped); /* it is in no list any more */
    CHECK_EQ(fixture_open_fds(), fds);
    /* Nor is a descriptor its own any more that somebody else has by then. */
    CHECK_EQ(berthi_writer_create(writer, "d", 1, &dropped, NULL), BERTH_OK);
    other = dropped->fd;
    berthi_writer_drop(writer, dropped);
    CHECK_EQ(open("/dev/null", O_RDONLY | O_CLOEXEC), other);
    berthi_writer_drop(writer, dropped);
    CHECK_EQ(close(other), 0);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    CHECK(berthi_writer_find(writer, "c") != NULL);
    berthi_writer_close(writer);
    writer = open_writer(folder, true);
    T_REQUIRE(writer != NULL);
    CHECK(berthi_writer_find(writer, "a") != NULL);
    CHECK(berthi_writer_find(writer, "b") == NULL); /* the journal still lists it */
    fds = fixture_open_fds();
    berthi_writer_drop(writer, berthi_writer_find(writer, "a")); /* an earlier run's */
    CHECK_EQ(fixture_open_fds(), fds);
    CHECK_EQ(written_text(writer, "b", "22", NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "b", NULL), BERTH_OK);
    berthi_writer_close(writer);
    check_content(fixture_format("%s/b", folder), "22");
    check_content(fixture_format("%s/c", folder), "3");
}

/* ------------------------------------------------------------------- threads */

typedef struct work {
    berthi_writer *writer;
    berthi_writer_file *shared;
    int number;
    int failures;
} work;

#define THREADS 4
#define PIECE 4096

/* A part of one file that all write to, and a file of one's own. */
static void *
do_work(void *user)
{
    work *const w = user;
    char name[16];
    char bytes[PIECE];

    memset(bytes, 'a' + w->number, sizeof bytes);
    for (uint64_t i = 0; i < 64; i++)
        w->failures += berthi_writer_write(w->writer, w->shared, bytes, PIECE,
                                           (i * THREADS + (uint64_t)w->number) * PIECE,
                                           NULL) != BERTH_OK;
    snprintf(name, sizeof name, "own-%d", w->number);
    w->failures += written_text(w->writer, name, name, NULL) != BERTH_OK;
    w->failures += berthi_writer_find(w->writer, name) == NULL;
    return NULL;
}

static void
test_threads(void)
{
    const char *const folder = fixture_folder();
    const uint64_t bytes = UINT64_C(64) * THREADS * PIECE;
    berthi_writer *const writer = open_writer(folder, false);
    berthi_writer_file *shared;
    pthread_t threads[THREADS];
    work works[THREADS];
    char *found;

    T_REQUIRE(writer != NULL);
    calm();
    world.is_slow = true;
    CHECK_EQ(berthi_writer_create(writer, "shared", bytes, &shared, NULL), BERTH_OK);
    for (int i = 0; i < THREADS; i++) {
        works[i] = (work){ writer, shared, i, 0 };
        T_REQUIRE(pthread_create(&threads[i], NULL, do_work, &works[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(works[i].failures, 0);
    }
    CHECK_EQ(world.begun[0], 1 + THREADS); /* once for each file */
    CHECK_EQ(berthi_writer_finish(writer, shared, bytes, NULL, 0, NULL), BERTH_OK);
    CHECK_EQ(berthi_writer_publish(writer, "shared", NULL), BERTH_OK);
    berthi_writer_close(writer);
    found = fixture_read(fixture_format("%s/shared", folder), NULL);
    CHECK_EQ(strlen(found), bytes);
    for (uint64_t i = 0; i < bytes; i += PIECE)
        CHECK_EQ(found[i], (char)('a' + (int)(i / PIECE % THREADS)));
    free(found);
    check_content(fixture_format("%s/own-3", folder), "own-3");
    calm();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_names);
    T_RUN(test_too_large);
    T_RUN(test_writes);
    T_RUN(test_failures_are_final);
    T_RUN(test_write_back);
    T_RUN(test_write_back_of_parts);
    T_RUN(test_write_back_of_parts_fails);
    T_RUN(test_windows_of_small_files);
    T_RUN(test_write_back_fails);
    T_RUN(test_moves);
    T_RUN(test_move_fails);
    T_RUN(test_renames);
    T_RUN(test_drops);
    T_RUN(test_threads);
    berth_context_destroy(context);
    T_MAIN_END;
}
