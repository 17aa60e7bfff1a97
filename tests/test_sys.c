/* SPDX-License-Identifier: Apache-2.0 */
/* test_sys.c - each wrapper of files against the real kernel, and each made to fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define CWD BERTHI_SYS_AT_CWD

/*
 * These stand before the C library's: a signal that comes at the right moment
 * is nothing that a test can bring about.
 */
static int interruptions; /* so many of the next calls fail with EINTR */

static bool
is_interrupted(void)
{
    if (interruptions == 0)
        return false;
    interruptions--;
    errno = EINTR;
    return true;
}

int
openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
    if (is_interrupted())
        return -1;
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

ssize_t
pread(int fd, void *bytes, size_t size, off_t offset)
{
    return is_interrupted() ? -1 : syscall(SYS_pread64, fd, bytes, size, offset);
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return is_interrupted() ? -1 : syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int
flock(int fd, int operation)
{
    return is_interrupted() ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    return is_interrupted() ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int
ftruncate(int fd, off_t size)
{
    return is_interrupted() ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int
fsync(int fd)
{
    return is_interrupted() ? -1 : (int)syscall(SYS_fsync, fd);
}

static const char *
path_in(const char *folder, const char *name)
{
    return fixture_format("%s/%s", folder, name);
}

static bool
is_close_on_exec(int fd)
{
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

typedef struct names {
    int count;
    int stop_after;
    uint64_t sum;
} names;

static int
count_name(void *user, const char *name)
{
    names *const n = user;

    n->count++;
    n->sum += strtoull(name + strspn(name, "n"), NULL, 10);
    return n->count == n->stop_after;
}

/* Asks the kernel itself. */
static bool
is_uring_there(void)
{
    unsigned char parameters[256] = { 0 };
    const long fd = syscall(SYS_io_uring_setup, 1, parameters);

    if (fd >= 0)
        close((int)fd);
    return fd >= 0;
}

/* ------------------------------------------------------------------- opening */

static void
test_open_read(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    char buffer[8];
    int fd;

    fixture_text(path_in(folder, "f"), "hello");
    T_REQUIRE(at >= 0);
    CHECK(is_close_on_exec(at));
    fd = berthi_sys_open_read(at, "f");
    T_REQUIRE(fd >= 0);
    CHECK(is_close_on_exec(fd));
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    CHECK_EQ(berthi_sys_pread(fd, buffer, sizeof buffer, 0), 5);
    CHECK_EQ(berthi_sys_pread(fd, buffer, 2, 1), 2);
    CHECK_MEM(buffer, "el", 2);
    CHECK_EQ(berthi_sys_pread(fd, buffer, 2, 5), 0);
    CHECK_EQ(berthi_sys_close(fd), 0);
    CHECK_EQ(berthi_sys_close(fd), -1);

    CHECK_EQ(berthi_sys_open_read(at, "absent"), -1);
    CHECK_EQ(errno, ENOENT);
    CHECK_EQ(berthi_sys_open_folder(at, "f"), -1);
    CHECK_EQ(errno, ENOTDIR);
    berthi_sys_close(at);
}

/* A FIFO without a writer opens at once: whoever asks can refuse it. */
static void
test_open_does_not_hang(void)
{
    const char *const fifo = path_in(fixture_folder(), "fifo");
    berthi_sys_stat stat;
    int fd;

    T_REQUIRE(mkfifo(fifo, 0600) == 0);
    fd = berthi_sys_open_read(CWD, fifo);
    T_REQUIRE(fd >= 0);
    CHECK_EQ(berthi_sys_fstat(fd, &stat), 0);
    CHECK_EQ(stat.kind, BERTHI_SYS_OTHER);
    berthi_sys_close(fd);
    CHECK_EQ(berthi_sys_stat_at(CWD, fifo, BERTHI_SYS_FOLLOW, &stat), 0);
    CHECK_EQ(stat.kind, BERTHI_SYS_OTHER);
}

static void
test_open_beneath(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, path_in(folder, "."));
    const int model = (fixture_make_folder(path_in(folder, "model/sub")),
                       berthi_sys_open_folder(at, "model"));
    static const char *const outside[] = { "../secret", "out", "out-absolute",
                                           "sub/../../secret", "/etc/passwd",
                                           "up/secret" };
    int fd;

    fixture_text(path_in(folder, "secret"), "s");
    fixture_text(path_in(folder, "model/f"), "f");
    fixture_link("../secret", path_in(folder, "model/out"));
    fixture_link("/etc/passwd", path_in(folder, "model/out-absolute"));
    fixture_link("..", path_in(folder, "model/up"));
    fixture_link("sub/../f", path_in(folder, "model/in"));
    fixture_link("loop", path_in(folder, "model/loop"));
    fd = berthi_sys_open_beneath(model, "in");
    CHECK_GE(fd, 0);
    CHECK(is_close_on_exec(fd));
    berthi_sys_close(fd);
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        CHECK_EQ(berthi_sys_open_beneath(model, outside[i]), -1);
        CHECK_EQ(errno, EXDEV);
    }
    CHECK_EQ(berthi_sys_open_beneath(model, "loop"), -1);
    CHECK_EQ(errno, ELOOP);
    CHECK_EQ(berthi_sys_open_beneath(model, "absent"), -1);
    CHECK_EQ(errno, ENOENT);
    berthi_sys_close(model);
    berthi_sys_close(at);
}

/* A process that holds the file for itself, and lets go of it a moment after it is asked to. */
static pid_t
start_lease(const char *path)
{
    sigset_t asked;
    int ready[2];
    char has_lease = 0;
    pid_t child;

    sigemptyset(&asked);
    sigaddset(&asked, SIGIO);
    if (!CHECK_EQ(pipe(ready), 0))
        return -1;
    child = fork();
    if (child == 0) {
        const int fd = open(path, O_RDWR);

        sigprocmask(SIG_BLOCK, &asked, NULL);
        has_lease = fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
        if (write(ready[1], &has_lease, 1) != 1 || !has_lease)
            _exit(1);
        sigtimedwait(&asked, NULL, &(struct timespec){ .tv_sec = 20 });
        usleep(50000);
        _exit(fcntl(fd, F_SETLEASE, F_UNLCK));
    }
    CHECK_EQ(read(ready[0], &has_lease, 1), 1);
    close(ready[0]);
    close(ready[1]);
    if (has_lease)
        return child;
    waitpid(child, NULL, 0);
    return -1;
}

/* Samba and the kernel's NFS server take leases on what their clients have open. */
static void
test_open_waits_for_a_lease(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);

    fixture_text(fixture_format("%s/f", folder), "text");
    for (int is_beneath = 0; is_beneath <= 1; is_beneath++) {
        const pid_t holder = start_lease(fixture_format("%s/f", folder));
        int fd;

        if (holder < 0)
            T_SKIP("no leases here");
        fd = is_beneath ? berthi_sys_open_beneath(at, "f") : berthi_sys_open_read(at, "f");
        CHECK_GE(fd, 0);
        CHECK_EQ(berthi_sys_close(fd), 0);
        CHECK_EQ(waitpid(holder, NULL, 0), holder);
    }
    berthi_sys_close(at);
}

static void
test_create(void)
{
    const char *const folder = fixture_folder();
    const char *const path = path_in(folder, "new");
    const mode_t mask = umask(027);
    int fd = berthi_sys_create(CWD, path);
    berthi_sys_stat stat;

    umask(mask);
    T_REQUIRE(fd >= 0);
    CHECK(is_close_on_exec(fd));
    CHECK_EQ(berthi_sys_fstat(fd, &stat), 0);
    CHECK_EQ(stat.mode, 0640);
    CHECK_EQ(berthi_sys_create(CWD, path), -1);
    CHECK_EQ(errno, EEXIST);
    fixture_link("elsewhere", path_in(folder, "link"));
    CHECK_EQ(berthi_sys_create(CWD, path_in(folder, "link")), -1);
    CHECK_EQ(errno, EEXIST);
    CHECK_EQ(berthi_sys_pwrite(fd, "abc", 3, 2), 3);
    CHECK_EQ(berthi_sys_fsync(fd), 0);
    CHECK_EQ(fixture_size(path), 5);
    berthi_sys_close(fd);
}

/* Whether statx() answers with the alignment of direct reads: a bit of its mask. */
static bool
can_say_alignment(int fd)
{
    uint32_t answer[64] = { 0 };

    return syscall(SYS_statx, fd, "", AT_EMPTY_PATH, 0x2000u, answer) == 0
           && (answer[0] & 0x2000u) != 0;
}

static void
test_reopen(void)
{
    const char *const path = path_in(fixture_folder(), "f");
    char *const block = aligned_alloc(4096, 4096);
    uint32_t memory = 1;
    uint32_t offset = 1;
    int direct;
    int plain;
    int fd;

    T_REQUIRE(block != NULL);
    memset(block, 'x', 4096);
    fixture_write(path, block, 4096);
    fd = berthi_sys_open_read(CWD, path);
    /* The name may be gone: it is the file that is opened again. */
    fixture_remove(path);
    plain = berthi_sys_reopen_read(fd);
    CHECK_GE(plain, 0);
    CHECK_EQ(fcntl(plain, F_GETFL) & O_DIRECT, 0);
    CHECK_EQ(berthi_sys_pread(plain, block, 10, 4090), 6);
    berthi_sys_close(plain);
    errno = 0;
    direct = berthi_sys_direct_alignment(fd, &memory, &offset);
    if (direct == 0) {
        CHECK((memory & (memory - 1)) == 0 && (offset & (offset - 1)) == 0);
        CHECK_EQ(can_say_alignment(fd), true);
    } else {
        CHECK_EQ(direct, -1);
        CHECK(memory == 0 && offset == 0);
        CHECK_EQ(errno, ENOSYS);
        CHECK_EQ(can_say_alignment(fd), false);
    }
    CHECK_EQ(berthi_sys_direct_alignment(-1, &memory, &offset), -1);
    CHECK_EQ(errno, EBADF);
    direct = berthi_sys_reopen_direct(fd);
    if (direct >= 0) {
        CHECK(fcntl(direct, F_GETFL) & O_DIRECT);
        CHECK(is_close_on_exec(direct));
        block[0] = 0;
        CHECK_EQ(berthi_sys_pread(direct, block, 4096, 0), 4096);
        CHECK_EQ(block[0], 'x');
        berthi_sys_close(direct);
    }
    berthi_sys_close(fd);
    free(block);
}

/* Calls that are begun again after a signal, and one that then says "nothing". */
static void
test_interruptions(void)
{
    const char *const path = path_in(fixture_folder(), "f");
    char byte = 0;
    int fd;

    interruptions = 2;
    fd = berthi_sys_create(CWD, path);
    CHECK_GE(fd, 0);
    CHECK_EQ(interruptions, 0);
    interruptions = 2;
    CHECK_EQ(berthi_sys_pwrite(fd, "x", 1, 0), 1);
    CHECK_EQ(interruptions, 0);
    interruptions = 2;
    CHECK_EQ(berthi_sys_pread(fd, &byte, 1, 0), 1);
    CHECK_EQ(byte, 'x');
    CHECK_EQ(interruptions, 0);
    interruptions = 2;
    CHECK_EQ(berthi_sys_pread(fd, &byte, 1, 1), 0);
    CHECK_EQ(berthi_sys_pwrite(fd, "", 0, 0), 0);
    interruptions = 2;
    CHECK_EQ(berthi_sys_lock(fd), 0);
    CHECK_EQ(interruptions, 0);
    interruptions = 2;
    if (berthi_sys_allocate(fd, 8192) == 0)
        CHECK_EQ(fixture_size(path), 8192);
    else
        CHECK_EQ(errno, EOPNOTSUPP);
    CHECK_EQ(interruptions, 0);
    interruptions = 2;
    CHECK_EQ(berthi_sys_truncate(fd, 3), 0);
    CHECK_EQ(interruptions, 0);
    CHECK_EQ(fixture_size(path), 3);
    interruptions = 2;
    CHECK_EQ(berthi_sys_fsync(fd), 0);
    CHECK_EQ(interruptions, 0);
    berthi_sys_close(fd);
}

static void
test_probe(void)
{
    const int before = fixture_open_fds();

    CHECK_EQ(berthi_sys_probe_uring() == 0, is_uring_there());
    CHECK_EQ(fixture_open_fds(), before);
}

/* In a process whose standard input is closed, 0 is a descriptor like any other. */
static void
test_descriptor_zero(void)
{
    const char *const folder = fixture_folder();
    int status = -1;
    pid_t child;

    fixture_text(path_in(folder, "f"), "x");
    fflush(NULL);
    child = fork();
    if (child == 0) {
        const int at = berthi_sys_open_folder(CWD, folder);
        names all = { 0, -1, 0 };
        int wrong = at < 0;

        close(0);
        errno = EINTR;
        wrong += berthi_sys_open_read(at, "f") != 0;
        close(0);
        errno = EINTR;
        wrong += berthi_sys_open_beneath(at, "f") != 0;
        close(0);
        wrong += berthi_sys_list(at, count_name, &all) != 0 || all.count != 1;
        wrong += berthi_sys_probe_uring() != 0 && is_uring_there();
        wrong += berthi_sys_open_read(at, "f") != 0; /* and was closed each time */
        _exit(wrong);
    }
    T_REQUIRE(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void
test_stat(void)
{
    const char *const folder = fixture_folder();
    const char *const path = path_in(folder, "f");
    struct timespec times[2] = { { 5, 6 }, { 1234567890, 987654321 } };
    berthi_sys_stat one;
    berthi_sys_stat two;
    struct stat truth;
    int fd;

    fixture_text(path, "12345");
    fixture_link("f", path_in(folder, "l"));
    if (geteuid() == 0)
        CHECK_EQ(chown(path, 12345, 54321), 0);
    T_REQUIRE(utimensat(AT_FDCWD, path, times, 0) == 0 && stat(path, &truth) == 0);
    fd = berthi_sys_open_read(CWD, path);
    CHECK_EQ(berthi_sys_fstat(fd, &one), 0);
    CHECK_EQ(one.kind, BERTHI_SYS_REGULAR);
    CHECK_EQ(one.bytes, 5);
    CHECK_EQ(one.device, truth.st_dev);
    CHECK_EQ(one.inode, truth.st_ino);
    CHECK_EQ(one.mtime_ns, INT64_C(1234567890987654321));
    CHECK_EQ(one.ctime_ns,
             (int64_t)truth.st_ctim.tv_sec * 1000000000 + truth.st_ctim.tv_nsec);
    CHECK_EQ(one.mode, truth.st_mode & 07777);
    CHECK_EQ(one.user, truth.st_uid);
    CHECK_EQ(one.group, truth.st_gid);
    CHECK_EQ(berthi_sys_stat_at(CWD, path_in(folder, "l"), BERTHI_SYS_FOLLOW, &two), 0);
    CHECK_EQ(two.kind, BERTHI_SYS_REGULAR);
    CHECK_EQ(two.inode, one.inode);
    CHECK_EQ(two.device, one.device);
    CHECK_EQ(berthi_sys_stat_at(CWD, path_in(folder, "l"), BERTHI_SYS_NO_FOLLOW, &two), 0);
    CHECK_EQ(two.kind, BERTHI_SYS_LINK);
    CHECK_EQ(berthi_sys_stat_at(CWD, folder, BERTHI_SYS_NO_FOLLOW, &two), 0);
    CHECK_EQ(two.kind, BERTHI_SYS_FOLDER);
    CHECK_EQ(berthi_sys_stat_at(CWD, path_in(folder, "no"), BERTHI_SYS_FOLLOW, &two), -1);
    CHECK_EQ(errno, ENOENT);
    CHECK_EQ(berthi_sys_set_mode(fd, 0600), 0);
    CHECK_EQ(berthi_sys_fstat(fd, &two), 0);
    CHECK_EQ(two.mode, 0600);
    CHECK_EQ(berthi_sys_set_owner(fd, one.user, one.group), 0);
    berthi_sys_close(fd);
}

static void
test_links(void)
{
    const char *const folder = fixture_folder();
    const char *const link = path_in(folder, "link");
    char target[16];
    char where[4096];
    int fd;

    fixture_link("0123456789", link);
    memset(target, '#', sizeof target);
    CHECK_EQ(berthi_sys_readlink(CWD, link, target, sizeof target), 10);
    CHECK_STR(target, "0123456789");
    CHECK_EQ(berthi_sys_readlink(CWD, link, target, 11), 10);
    CHECK_STR(target, "0123456789");
    CHECK_EQ(berthi_sys_readlink(CWD, link, target, 5), 4);
    CHECK_STR(target, "0123");
    CHECK_EQ(berthi_sys_readlink(CWD, folder, target, 5), -1);
    CHECK_EQ(errno, EINVAL);

    fd = berthi_sys_open_folder(CWD, folder);
    CHECK_EQ(berthi_sys_path_of(fd, where, sizeof where), (int64_t)strlen(folder));
    CHECK_STR(where, folder);
    berthi_sys_close(fd);
}

/* --------------------------------------------------------------------- lists */

static void
test_list(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    names all = { 0, -1, 0 };
    names some = { 0, 3, 0 };
    names none = { 0, -1, 0 };

    CHECK_EQ(berthi_sys_list(at, count_name, &none), 0);
    CHECK_EQ(none.count, 0);
    /* More names, and longer ones, than one answer of the kernel holds. */
    for (int i = 1; i <= 400; i++)
        fixture_text(fixture_format("%s/%.*s%03d", folder, i % 40,
                                    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", i),
                     "");
    for (int round = 0; round < 2; round++) {
        all = (names){ 0, -1, 0 };
        CHECK_EQ(berthi_sys_list(at, count_name, &all), 0);
        CHECK_EQ(all.count, 400);
        CHECK_EQ(all.sum, 400 * 401 / 2);
    }
    CHECK_EQ(berthi_sys_list(at, count_name, &some), 0);
    CHECK_EQ(some.count, 3);
    CHECK_EQ(berthi_sys_list(-1, count_name, &some), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(some.count, 3);
    berthi_sys_close(at);
}

/* -------------------------------------------------------------------- writing */

static void
test_rename_and_unlink(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    size_t length;
    char *text;

    fixture_text(path_in(folder, "a"), "a");
    fixture_text(path_in(folder, "b"), "b");
    CHECK_EQ(berthi_sys_rename_new(at, "a", "b"), -1);
    CHECK(errno == EEXIST || errno == EINVAL);
    CHECK_EQ(berthi_sys_rename(at, "a", "b"), 0);
    text = fixture_read(path_in(folder, "b"), &length);
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
    const char *const path = path_in(fixture_folder(), "f");
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
    const char *const path = path_in(fixture_folder(), "f");
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
    fixture_text(path_in(folder, "new/f"), "");
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
    const char *const path = path_in(fixture_folder(), "f");
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
    const char *const path = path_in(fixture_folder(), "f");
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

/* What the kernel's count says, and what looking at each page says. */
static int64_t
cached_by(bool is_by_page, int fd, uint64_t offset, uint64_t bytes)
{
    int64_t count;

    if (is_by_page)
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    count = berthi_sys_cached_pages(fd, offset, bytes);
    berthi_fault_disarm();
    return count;
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
    const char *const path = path_in(fixture_folder(), "f");
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
        is_exact[way] = cached_by(way == 1, fd, 0, 4100 * page) == 4;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int way = 0; way < 2; way++)
            if (is_exact[way]
                && !CHECK_EQ(cached_by(way == 1, fd, cases[i].offset * page / 4,
                                       cases[i].bytes * page / 4), cases[i].pages))
                T_NOTE("case %zu, way %d", i, way);
    CHECK_EQ(is_exact[1], true);
    CHECK_EQ(cached_by(true, fd, 1, 1), 1);
    CHECK_EQ(cached_by(true, fd, page - 1, 1), 1);
    CHECK_EQ(cached_by(true, fd, page + 1, page - 1), 0);
    CHECK_LT(mapped_pages() - before, 4000); /* no look left its mapping behind */
    CHECK_EQ(cached_by(true, -1, 0, page), -1);
    CHECK_EQ(errno, ENOSYS);
    writing = open(path, O_WRONLY | O_CLOEXEC); /* cannot be mapped */
    CHECK_EQ(cached_by(true, writing, 0, page), -1);
    CHECK_EQ(errno, EACCES);
    close(writing);
    if (geteuid() == 0) { /* of another's file the pages are not told */
        CHECK_EQ(fchown(fd, 12345, 54321), 0);
        CHECK_EQ(cached_by(true, fd, 0, page), -1);
        CHECK_EQ(errno, ENOSYS);
    }
    berthi_sys_close(fd);
}

/* ------------------------------------------------------------------- faults */

static int
never(void *user, const char *name)
{
    (void)user;
    (void)name;
    return 0;
}

#define FAILS(call, failure_expected)                                                      \
    do {                                                                                   \
        int64_t result;                                                                    \
                                                                                           \
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);                                   \
        errno = 0;                                                                         \
        result = (call);                                                                   \
        CHECK_EQ(errno, failure_expected);                                                 \
        CHECK_EQ(result, -1);                                                              \
        CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_SYSTEM), 1);                           \
        berthi_fault_disarm();                                                             \
    } while (0)

static void
test_every_call_can_fail(void)
{
    const char *const folder = fixture_folder();
    const int before = fixture_open_fds();
    const int at = berthi_sys_open_folder(CWD, folder);
    const int fd = berthi_sys_create(at, "f");
    berthi_sys_stat stat;
    uint64_t bytes;
    uint32_t number;
    uint32_t other;
    char text[64];

    FAILS(berthi_sys_open_read(at, "f"), EIO);
    FAILS(berthi_sys_open_folder(CWD, folder), EIO);
    FAILS(berthi_sys_reopen_direct(fd), EIO);
    FAILS(berthi_sys_reopen_read(fd), EIO);
    FAILS(berthi_sys_open_beneath(at, "f"), EIO);
    FAILS(berthi_sys_create(at, "g"), EIO);
    FAILS(berthi_sys_fstat(fd, &stat), EIO);
    FAILS(berthi_sys_stat_at(at, "f", BERTHI_SYS_FOLLOW, &stat), EIO);
    FAILS(berthi_sys_readlink(at, "f", text, sizeof text), EIO);
    FAILS(berthi_sys_path_of(fd, text, sizeof text), EIO);
    FAILS(berthi_sys_direct_alignment(fd, &number, &other), EIO);
    FAILS(berthi_sys_pread(fd, text, 1, 0), EIO);
    FAILS(berthi_sys_drop_cache(fd, 0, 0), EIO);
    FAILS(berthi_sys_advise_random(fd), EIO);
    FAILS(berthi_sys_list(at, never, NULL), EIO);
    FAILS(berthi_sys_pwrite(fd, "x", 1, 0), ENOSPC);
    FAILS(berthi_sys_write_back(fd, 0, 1), EIO);
    FAILS(berthi_sys_wait_back(fd, 0, 1), EIO);
    FAILS(berthi_sys_fsync(fd), EIO);
    FAILS(berthi_sys_truncate(fd, 1), EIO);
    FAILS(berthi_sys_make_folder(at, "h"), EIO);
    FAILS(berthi_sys_allocate(fd, 4096), ENOSPC);
    FAILS(berthi_sys_rename(at, "f", "g"), EIO);
    FAILS(berthi_sys_rename_new(at, "f", "g"), EIO);
    FAILS(berthi_sys_set_mode(fd, 0600), EPERM);
    FAILS(berthi_sys_set_owner(fd, 0, 0), EPERM);
    FAILS(berthi_sys_lock(fd), ENOLCK);
    FAILS(berthi_sys_unlock(fd), ENOLCK);
    FAILS(berthi_sys_free_bytes(fd, &bytes), EIO);
    FAILS(berthi_sys_limit(BERTHI_SYS_LIMIT_DATA, &bytes), EPERM);
    FAILS(berthi_sys_affinity(&number), EPERM);
#ifdef __x86_64__
    FAILS(berthi_sys_allow_tiles(), EPERM);
    FAILS(berthi_sys_may_use_tiles() - 1, EINVAL);
#endif
    FAILS(berthi_sys_probe_uring(), ENOSYS);
    FAILS(berthi_sys_event_create(), EMFILE);
    FAILS(berthi_sys_random(text, 8), EIO);
    CHECK_EQ(fixture_size(path_in(folder, "f")), 0); /* nothing was done */
    CHECK_EQ(berthi_sys_unlink(at, "g"), -1);
    berthi_sys_close(fd);
    berthi_sys_close(at);
    CHECK_EQ(fixture_open_fds(), before);
}

static void
test_list_fails_on_the_way(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    const int before = fixture_open_fds();

    fixture_text(path_in(folder, "f"), "");
    /* Opening, the first answer, the answer that says it was the last. */
    for (uint64_t nth = 0; nth < 3; nth++) {
        names all = { 0, -1, 0 };

        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK_EQ(berthi_sys_list(at, count_name, &all), -1);
        CHECK_EQ(errno, EIO);
        CHECK_EQ(all.count, nth == 2);
        berthi_fault_disarm();
    }
    CHECK_EQ(fixture_open_fds(), before);
    berthi_sys_close(at);
}

/* From here on the kernel refuses a call; for a process that ends soon. */
static bool
is_refused_from_now(long number, int failure)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)failure),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof filter / sizeof filter[0], filter };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
           && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int
exit_code_of(pid_t child)
{
    int status = -1;

    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

enum { CANNOT_REFUSE = 77 };

/* What the kernel itself refuses reaches the caller as it is. */
#define REFUSED(number, failure, call)                                                     \
    do {                                                                                   \
        const pid_t child = fork();                                                        \
        int code;                                                                          \
                                                                                           \
        if (child == 0) {                                                                  \
            int64_t result;                                                                \
                                                                                           \
            if (!is_refused_from_now(number, failure))                                     \
                _exit(CANNOT_REFUSE);                                                      \
            errno = 0;                                                                     \
            result = (call);                                                               \
            _exit(result == -1 && errno == (failure) ? 0 : 1);                             \
        }                                                                                  \
        code = exit_code_of(child);                                                        \
        if (code == CANNOT_REFUSE)                                                         \
            T_SKIP("this process may not refuse calls");                                   \
        CHECK_EQ(code, 0);                                                                 \
    } while (0)

/* In a process that has no openat2: how many answers are wrong. */
static int
count_wrong_beneath(int model, int failure)
{
    static const char *const outside[] = { "out", "out-absolute", "up/secret", "beside",
                                           "../secret", "/etc/passwd", "." };
    int wrong = 0;

    if (!is_refused_from_now(SYS_openat2, failure))
        return CANNOT_REFUSE;
    wrong += berthi_sys_open_beneath(model, "f") < 0;
    wrong += berthi_sys_open_beneath(model, "in") < 0;
    wrong += berthi_sys_open_beneath(model, "sub/g") < 0;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        errno = 0;
        wrong += berthi_sys_open_beneath(model, outside[i]) != -1 || errno != EXDEV;
    }
    wrong += berthi_sys_open_beneath(model, "loop") != -1 || errno != ELOOP;
    wrong += berthi_sys_open_beneath(model, "absent") != -1 || errno != ENOENT;
    return wrong;
}

/* Linux before 5.6, emulators, and containers whose rules are older than the call. */
static void
test_open_beneath_without_openat2(void)
{
    static const int failures[] = { ENOSYS, EPERM };
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    int model;

    fixture_make_folder(path_in(folder, "model/sub"));
    fixture_make_folder(path_in(folder, "model-more"));
    fixture_text(path_in(folder, "model-more/x"), "x");
    fixture_text(path_in(folder, "secret"), "s");
    fixture_text(path_in(folder, "model/f"), "f");
    fixture_text(path_in(folder, "model/sub/g"), "g");
    fixture_link("../secret", path_in(folder, "model/out"));
    fixture_link("/etc/passwd", path_in(folder, "model/out-absolute"));
    fixture_link("..", path_in(folder, "model/up"));
    fixture_link("../model-more/x", path_in(folder, "model/beside"));
    fixture_link("sub/../f", path_in(folder, "model/in"));
    fixture_link("loop", path_in(folder, "model/loop"));
    model = berthi_sys_open_folder(at, "model");
    fflush(NULL);
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        const pid_t child = fork();
        int code;

        if (child == 0)
            _exit(count_wrong_beneath(model, failures[i]));
        code = exit_code_of(child);
        if (code == CANNOT_REFUSE)
            T_SKIP("this process may not refuse calls");
        CHECK_EQ(code, 0);
    }
    berthi_sys_close(model);
    berthi_sys_close(at);
}

static void
test_what_the_kernel_refuses(void)
{
    const char *const folder = fixture_folder();
    const int at = berthi_sys_open_folder(CWD, folder);
    const int fd = berthi_sys_create(at, "f");
    uint64_t bytes;
    uint32_t number;
    uint32_t other;

    fflush(NULL);
    /* Tried again, but not for ever. */
    REFUSED(SYS_openat2, EAGAIN, berthi_sys_open_beneath(at, "f"));
    REFUSED(SYS_openat2, EINTR, berthi_sys_open_beneath(at, "f"));
    REFUSED(SYS_statx, ENOSYS, berthi_sys_direct_alignment(fd, &number, &other));
    REFUSED(SYS_fadvise64, EIO, berthi_sys_drop_cache(fd, 0, 0));
    REFUSED(SYS_fadvise64, EIO, berthi_sys_advise_random(fd));
    REFUSED(SYS_getdents64, EIO, berthi_sys_list(at, never, NULL));
    REFUSED(SYS_fsync, ENOSPC, berthi_sys_fsync(fd));
    REFUSED(SYS_sync_file_range, EIO, berthi_sys_write_back(fd, 0, 1));
    REFUSED(SYS_sync_file_range, EIO, berthi_sys_wait_back(fd, 0, 1));
    REFUSED(SYS_ftruncate, EIO, berthi_sys_truncate(fd, 1));
    REFUSED(SYS_fallocate, EOPNOTSUPP, berthi_sys_allocate(fd, 1));
    REFUSED(SYS_fchmod, EPERM, berthi_sys_set_mode(fd, 0600));
    REFUSED(SYS_fchown, EPERM, berthi_sys_set_owner(fd, 0, 0));
    REFUSED(SYS_flock, ENOLCK, berthi_sys_lock(fd));
    REFUSED(SYS_renameat2, EINVAL, berthi_sys_rename_new(at, "f", "g"));
    REFUSED(SYS_fstatfs, EIO, berthi_sys_free_bytes(fd, &bytes));
    REFUSED(SYS_prlimit64, EPERM, berthi_sys_limit(BERTHI_SYS_LIMIT_DATA, &bytes));
    REFUSED(SYS_sched_getaffinity, EPERM, berthi_sys_affinity(&number));
#ifdef __x86_64__
    REFUSED(SYS_arch_prctl, EPERM, berthi_sys_allow_tiles());
    REFUSED(SYS_arch_prctl, EINVAL, berthi_sys_may_use_tiles() - 1);
#endif
    REFUSED(SYS_io_uring_setup, EPERM, berthi_sys_probe_uring());
    REFUSED(SYS_eventfd2, EMFILE, berthi_sys_event_create());
    REFUSED(SYS_getrandom, EAGAIN, berthi_sys_random(&bytes, sizeof bytes));
    /* The page by page look, which is all that older kernels have. */
    REFUSED(SYS_mincore, ENOMEM, cached_by(true, fd, 0, 1));
    berthi_sys_close(fd);
    berthi_sys_close(at);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_open_read);
    T_RUN(test_open_does_not_hang);
    T_RUN(test_open_beneath);
    T_RUN(test_open_waits_for_a_lease);
    T_RUN(test_create);
    T_RUN(test_reopen);
    T_RUN(test_interruptions);
    T_RUN(test_probe);
    T_RUN(test_descriptor_zero);
    T_RUN(test_stat);
    T_RUN(test_links);
    T_RUN(test_list);
    T_RUN(test_rename_and_unlink);
    T_RUN(test_allocate);
    T_RUN(test_write_back);
    T_RUN(test_make_folder);
    T_RUN(test_lock);
    T_RUN(test_cache);
    T_RUN(test_cached_pages);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_list_fails_on_the_way);
    T_RUN(test_open_beneath_without_openat2);
    T_RUN(test_what_the_kernel_refuses);
    T_MAIN_END;
}
