/* SPDX-License-Identifier: Apache-2.0 */
/* test_sys.c - each wrapper of files against the real kernel: what opens, reads and lists. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/found.h"
#include "tests/sys_calls.h"
#include "tests/t.h"

#define CWD BERTHI_SYS_AT_CWD

static bool
is_close_on_exec(int fd)
{
    return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
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

    fixture_text(found_path(folder, "f"), "hello");
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
    const char *const fifo = found_path(fixture_folder(), "fifo");
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
    const int at = berthi_sys_open_folder(CWD, found_path(folder, "."));
    const int model = (fixture_make_folder(found_path(folder, "model/sub")),
                       berthi_sys_open_folder(at, "model"));
    static const char *const outside[] = { "../secret", "out", "out-absolute",
                                           "sub/../../secret", "/etc/passwd",
                                           "up/secret" };
    int fd;

    fixture_text(found_path(folder, "secret"), "s");
    fixture_text(found_path(folder, "model/f"), "f");
    fixture_link("../secret", found_path(folder, "model/out"));
    fixture_link("/etc/passwd", found_path(folder, "model/out-absolute"));
    fixture_link("..", found_path(folder, "model/up"));
    fixture_link("sub/../f", found_path(folder, "model/in"));
    fixture_link("loop", found_path(folder, "model/loop"));
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
    const char *const path = found_path(folder, "new");
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
    fixture_link("elsewhere", found_path(folder, "link"));
    CHECK_EQ(berthi_sys_create(CWD, found_path(folder, "link")), -1);
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
    const char *const path = found_path(fixture_folder(), "f");
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
    const char *const path = found_path(fixture_folder(), "f");
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

    fixture_text(found_path(folder, "f"), "x");
    fflush(NULL);
    child = fork();
    if (child == 0) {
        const int at = berthi_sys_open_folder(CWD, folder);
        found_names all = { 0, -1, 0 };
        int wrong = at < 0;

        close(0);
        errno = EINTR;
        wrong += berthi_sys_open_read(at, "f") != 0;
        close(0);
        errno = EINTR;
        wrong += berthi_sys_open_beneath(at, "f") != 0;
        close(0);
        wrong += berthi_sys_list(at, found_count, &all) != 0 || all.count != 1;
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
    const char *const path = found_path(folder, "f");
    struct timespec times[2] = { { 5, 6 }, { 1234567890, 987654321 } };
    berthi_sys_stat one;
    berthi_sys_stat two;
    struct stat truth;
    int fd;

    fixture_text(path, "12345");
    fixture_link("f", found_path(folder, "l"));
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
    CHECK_EQ(berthi_sys_stat_at(CWD, found_path(folder, "l"), BERTHI_SYS_FOLLOW, &two), 0);
    CHECK_EQ(two.kind, BERTHI_SYS_REGULAR);
    CHECK_EQ(two.inode, one.inode);
    CHECK_EQ(two.device, one.device);
    CHECK_EQ(berthi_sys_stat_at(CWD, found_path(folder, "l"), BERTHI_SYS_NO_FOLLOW, &two), 0);
    CHECK_EQ(two.kind, BERTHI_SYS_LINK);
    CHECK_EQ(berthi_sys_stat_at(CWD, folder, BERTHI_SYS_NO_FOLLOW, &two), 0);
    CHECK_EQ(two.kind, BERTHI_SYS_FOLDER);
    CHECK_EQ(berthi_sys_stat_at(CWD, found_path(folder, "no"), BERTHI_SYS_FOLLOW, &two), -1);
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
    const char *const link = found_path(folder, "link");
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
    found_names all = { 0, -1, 0 };
    found_names some = { 0, 3, 0 };
    found_names none = { 0, -1, 0 };

    CHECK_EQ(berthi_sys_list(at, found_count, &none), 0);
    CHECK_EQ(none.count, 0);
    /* More found_names, and longer ones, than one answer of the kernel holds. */
    for (int i = 1; i <= 400; i++)
        fixture_text(fixture_format("%s/%.*s%03d", folder, i % 40,
                                    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", i),
                     "");
    for (int round = 0; round < 2; round++) {
        all = (found_names){ 0, -1, 0 };
        CHECK_EQ(berthi_sys_list(at, found_count, &all), 0);
        CHECK_EQ(all.count, 400);
        CHECK_EQ(all.sum, 400 * 401 / 2);
    }
    CHECK_EQ(berthi_sys_list(at, found_count, &some), 0);
    CHECK_EQ(some.count, 3);
    CHECK_EQ(berthi_sys_list(-1, found_count, &some), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(some.count, 3);
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
    T_MAIN_END;
}
