/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys_calls.h - calls that stand before the C library's: a signal that comes at the right
 * moment is nothing that a test can bring about.
 *
 * A program that wants this includes it in one file, behind _GNU_SOURCE: in the archive of
 * helpers they would come into every program.
 */
#ifndef BERTH_TESTS_SYS_CALLS_H
#define BERTH_TESTS_SYS_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/base.h"
#include "tests/t.h"

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

#endif
