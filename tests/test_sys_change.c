/* SPDX-License-Identifier: Apache-2.0 */
/* test_sys_change.c - wrappers that change files and folders, and the page cache. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/found.h"
#include "tests/sys_calls.h"
#include "tests/t.h"

#define CWD BERTHI_SYS_AT_CWD

/* -------------------------------------------------------------------- writing */

static void
test_rename_and_unlink(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    size_t length;
    char *text;

    fixture_text(found_path(folder, "a"), "a");
    fixture_text(found_path(folder, "b"), "b");
    CHECK_EQ(berthi_sys_rename_new(at, "a", "b"), -1);
    CHECK(errno == EEXIST || errno == EINVAL);
    CHECK_EQ(berthi_sys_rename(at, "a", "b"), 0);
    text = fixture_read(found_path(folder, "b"), &length);
    CHECK_STR(text, "a");
    free(text);
    if (berthi_sys_rename_new(at, "b", "c") == 0)
        CHECK_EQ(berthi_sys_rename(at, "c", "b"), 0);
    CHECK_EQ(berthi_sys_unlink(at, "b"), 0);
    CHECK_EQ(berthi_sys_unlink(at, "b"), -1);
    CHECK_EQ(errno, ENOENT);
    CHECK_EQ(berthi_sys_rename(at, "b", "c"), -1);
    berthi_sys_close(at);
}

static void
test_allocate(void)
{
    const char *const path = found_path(fixture_folder(), "f");
    const int fd = berthi_sys_create(CWD, path);
    struct statvfs disk;
    struct stat truth;
    uint64_t free_bytes = 0;
    int proc;

    if (berthi_sys_allocate(fd, 1 << 20) == 0) {
        T_REQUIRE(fstat(fd, &truth) == 0);
        CHECK_EQ(truth.st_size, 1 << 20);
        CHECK_GE(truth.st_blocks * 512, 1 << 20);
    } else {
        CHECK_EQ(errno, EOPNOTSUPP);
    }
    CHECK_EQ(berthi_sys_allocate(fd, UINT64_C(1) << 60), -1);
    CHECK(errno == EFBIG || errno == ENOSPC || errno == EOPNOTSUPP);
    CHECK_EQ(berthi_sys_free_bytes(fd, &free_bytes), 0);
    CHECK_GT(free_bytes, 0);
    T_REQUIRE(fstatvfs(fd, &disk) == 0); /* others write there, too: about as much */
    CHECK_LT(free_bytes / 2, disk.f_bavail * disk.f_frsize);
    CHECK_GT(free_bytes, disk.f_bavail * disk.f_frsize / 2);
    berthi_sys_close(fd);
    proc = berthi_sys_open_folder(CWD, "/proc");
    CHECK_EQ(berthi_sys_free_bytes(proc, &free_bytes), -1);
    CHECK_EQ(errno, ENOSYS);
    berthi_sys_close(proc);
}

static void
test_write_back(void)
{
    const char *const path = found_path(fixture_folder(), "f");
    const int fd = berthi_sys_create(CWD, path);

    CHECK_EQ(berthi_sys_pwrite(fd, "abc", 3, 0), 3);
    CHECK_EQ(berthi_sys_write_back(fd, 0, 3), 0);
    CHECK_EQ(berthi_sys_wait_back(fd, 0, 3), 0);
    CHECK_EQ(berthi_sys_write_back(-1, 0, 3), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(berthi_sys_wait_back(-1, 0, 3), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(berthi_sys_truncate(fd, 5), 0);
    CHECK_EQ(fixture_size(path), 5);
    CHECK_EQ(berthi_sys_truncate(fd, 1), 0);
    CHECK_EQ(fixture_size(path), 1);
    CHECK_EQ(berthi_sys_truncate(-1, 1), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(berthi_sys_fsync(-1), -1);
    CHECK_EQ(errno, EBADF);
    berthi_sys_close(fd);
}

static void
test_make_folder(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    const mode_t mask = umask(027);
    berthi_sys_stat stat;

    CHECK_EQ(berthi_sys_make_folder(at, "new"), 0);
    umask(mask);
    CHECK_EQ(berthi_sys_stat_at(at, "new", BERTHI_SYS_NO_FOLLOW, &stat), 0);
    CHECK_EQ(stat.kind, BERTHI_SYS_FOLDER);
    CHECK_EQ(stat.mode & 0777, 0750);
    CHECK_EQ(berthi_sys_make_folder(at, "new"), -1);
    CHECK_EQ(errno, EEXIST);
    fixture_text(found_path(folder, "new/f"), "");
    CHECK_EQ(berthi_sys_remove_folder(at, "new"), -1);
    CHECK_EQ(errno, ENOTEMPTY);
    CHECK_EQ(berthi_sys_unlink(at, "new/f"), 0);
    CHECK_EQ(berthi_sys_remove_folder(at, "new"), 0);
    CHECK_EQ(berthi_sys_stat_at(at, "new", BERTHI_SYS_NO_FOLLOW, &stat), -1);
    berthi_sys_close(at);
}

static void
test_lock(void)
{
    const char *const path = found_path(fixture_folder(), "f");
    const int one = berthi_sys_create(CWD, path);
    const int two = berthi_sys_open_read(CWD, path);

    CHECK_EQ(berthi_sys_lock(one), 0);
    CHECK_EQ(berthi_sys_lock(two), -1);
    CHECK_EQ(errno, EWOULDBLOCK);
    CHECK_EQ(berthi_sys_unlock(one), 0);
    CHECK_EQ(berthi_sys_lock_shared(two), 0);
    CHECK_EQ(berthi_sys_lock_shared(one), 0);
    CHECK_EQ(berthi_sys_lock(two), -1);
    CHECK_EQ(errno, EWOULDBLOCK);
    berthi_sys_close(one);
    CHECK_EQ(berthi_sys_lock(two), 0);
    berthi_sys_close(two);
}

static void
test_cache(void)
{
    const char *const path = found_path(fixture_folder(), "f");
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t bytes = 8 * page;
    char *const block = calloc(1, bytes);
    int64_t cached;
    int fd;

    T_REQUIRE(block != NULL);
    fixture_write(path, block, bytes);
    fd = berthi_sys_open_read(CWD, path);
    CHECK_EQ(berthi_sys_advise_random(fd), 0);
    CHECK_EQ(berthi_sys_pread(fd, block, bytes, 0), bytes);
    cached = berthi_sys_cached_pages(fd, 0, bytes);
    CHECK(cached == 8 || cached == -1);
    CHECK_EQ(fsync(fd), 0); /* only clean pages are dropped */
    CHECK_EQ(berthi_sys_drop_cache(fd, 0, 0), 0);
    if (cached == 8) /* a file system in memory keeps them */
        CHECK_LE(berthi_sys_cached_pages(fd, 0, bytes), 8);
    CHECK_EQ(berthi_sys_drop_cache(-1, 0, 0), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(berthi_sys_advise_random(-1), -1);
    CHECK_EQ(errno, EBADF);
    berthi_sys_close(fd);
    free(block);
}

/* Pages of the address space in use. */
static long
mapped_pages(void)
{
    char *const text = fixture_read("/proc/self/statm", NULL);
    const long pages = strtol(text, NULL, 10);

    free(text);
    return pages;
}

/* Four pages of many, at both sides of where one look at the pages ends. */
static void
test_cached_pages(void)
{
    static const uint64_t written[] = { 0, 4095, 4096, 4099 };
    static const struct {
        uint64_t offset; /* in quarters of a page */
        uint64_t bytes;
        int64_t pages;
    } cases[] = {
        { 0, 4 * 4100, 4 },     { 0, 1, 1 },         { 0, 4, 1 },
        { 4, 4, 0 },            { 3, 2, 1 },         { 4 * 4095, 4, 1 },
        { 4 * 4095 + 3, 2, 2 }, { 4 * 4095, 5, 2 },  { 4 * 4094, 7, 1 },
        { 4 * 4096, 4 * 4, 2 }, { 4, 4 * 4099, 3 },  { 1, 4 * 4096, 3 },
    };
    const char *const path = found_path(fixture_folder(), "f");
    const uint64_t page = berthi_sys_page_bytes();
    const int fd = berthi_sys_create(CWD, path);
    const long before = mapped_pages();
    bool is_exact[2];
    int writing;

    T_REQUIRE(fd >= 0 && ftruncate(fd, (off_t)(4100 * page)) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(berthi_sys_pwrite(fd, "x", 1, written[i] * page), 1);
    /* Kernels without the count, and those that tell nobody about pages. */
    for (int way = 0; way < 2; way++)
        is_exact[way] = found_cached_by(way == 1, fd, 0, 4100 * page) == 4;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int way = 0; way < 2; way++)
            if (is_exact[way]
                && !CHECK_EQ(found_cached_by(way == 1, fd, cases[i].offset * page / 4,
                                             cases[i].bytes * page / 4), cases[i].pages))
                T_NOTE("case %zu, way %d", i, way);
    CHECK_EQ(is_exact[1], true);
    CHECK_EQ(found_cached_by(true, fd, 1, 1), 1);
    CHECK_EQ(found_cached_by(true, fd, page - 1, 1), 1);
    CHECK_EQ(found_cached_by(true, fd, page + 1, page - 1), 0);
    CHECK_LT(mapped_pages() - before, 4000); /* no look left its mapping behind */
    CHECK_EQ(found_cached_by(true, -1, 0, page), -1);
    CHECK_EQ(errno, ENOSYS);
    writing = open(path, O_WRONLY | O_CLOEXEC); /* cannot be mapped */
    CHECK_EQ(found_cached_by(true, writing, 0, page), -1);
    CHECK_EQ(errno, EACCES);
    close(writing);
    if (geteuid() == 0) { /* of another's file the pages are not told */
        CHECK_EQ(fchown(fd, 12345, 54321), 0);
        CHECK_EQ(found_cached_by(true, fd, 0, page), -1);
        CHECK_EQ(errno, ENOSYS);
    }
    berthi_sys_close(fd);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_rename_and_unlink);
    T_RUN(test_allocate);
    T_RUN(test_write_back);
    T_RUN(test_make_folder);
    T_RUN(test_lock);
    T_RUN(test_cache);
    T_RUN(test_cached_pages);
    T_MAIN_END;
}
