/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_calls.h - calls that stand before the C library's: what no test of sets of files can
 * bring about.
 *
 * A program that wants this includes it in one file, behind _GNU_SOURCE: in the archive of
 * helpers they would come into every program.
 */
#ifndef BERTH_TESTS_WRITER_CALLS_H
#define BERTH_TESTS_WRITER_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fixture.h"
#include "tests/t.h"

static struct {
    int lock_error;            /* of the next flock                              */
    const char *lock_moves;    /* before the next flock this folder is renamed   */
    bool lock_remakes;         /* and another one makes it anew                  */
    const char *lock_taken;    /* before the next flock another one locks this   */
    const char *rename_refuses; /* renames to this name fail                     */
    const char *unlink_refuses; /* removing this fails                           */
    bool closes_input;         /* before a folder above is opened 0 is closed    */
    bool has_no_noreplace;     /* an old file system                             */
    ino_t flushed[16];         /* folders that were flushed, the latest ones     */
    uint32_t flushed_count;
} forced;

int
flock(int fd, int operation)
{
    if (forced.lock_moves != NULL) {
        CHECK_EQ(rename(forced.lock_moves, fixture_format("%s-moved", forced.lock_moves)),
                 0);
        if (forced.lock_remakes)
            CHECK_EQ(mkdir(forced.lock_moves, 0777), 0);
        forced.lock_moves = NULL;
    }
    if (forced.lock_taken != NULL) {
        const int other = open(forced.lock_taken, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        CHECK_EQ(syscall(SYS_flock, other, operation), 0); /* for as long as this runs */
        forced.lock_taken = NULL;
    }
    if (forced.lock_error != 0) {
        errno = forced.lock_error;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* The disk of these tests is not pulled out. */
int
fsync(int fd)
{
    struct stat state;

    if (fstat(fd, &state) != 0)
        return -1;
    if (S_ISDIR(state.st_mode))
        forced.flushed[forced.flushed_count++ % 16] = state.st_ino;
    return 0;
}

/* What succeeds may leave anything in errno: of these two what would matter most. */
int
openat(int folder, const char *name, int flags, ...)
{
    mode_t mode = 0;
    int fd;

    if ((flags & O_CREAT) != 0) {
        va_list arguments;

        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    if (forced.closes_input && strcmp(name, "..") == 0)
        close(0);
    fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0)
        errno = ENOENT;
    return fd;
}

static int
rename_with(int folder, const char *from, const char *to, unsigned flags)
{
    if (forced.rename_refuses != NULL && strcmp(to, forced.rename_refuses) == 0) {
        errno = EACCES;
        return -1;
    }
    if (flags != 0 && forced.has_no_noreplace) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, folder, from, folder, to, flags);
}

int
unlinkat(int folder, const char *name, int flags)
{
    if (forced.unlink_refuses != NULL && strcmp(name, forced.unlink_refuses) == 0) {
        errno = EACCES;
        return -1;
    }
    if (syscall(SYS_unlinkat, folder, name, flags) != 0)
        return -1;
    errno = EXDEV;
    return 0;
}

int
renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    (void)to_folder;
    return rename_with(from_folder, from, to, 0);
}

int
renameat2(int from_folder, const char *from, int to_folder, const char *to,
          unsigned flags)
{
    (void)to_folder;
    return rename_with(from_folder, from, to, flags);
}

#endif
