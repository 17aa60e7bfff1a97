/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_calls.h - the calls that change a file system, before the C library's.
 *
 * They do what those do, and besides that what crash.h says. A program that wants
 * this includes them in one file, behind _GNU_SOURCE: in the archive of helpers they
 * would come into every program.
 */
#ifndef BERTH_TESTS_CRASH_CALLS_H
#define BERTH_TESTS_CRASH_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/crash.h"

int
openat(int folder, const char *path, int flags, ...)
{
    const bool is_making = (flags & O_CREAT) != 0;
    va_list arguments;
    mode_t mode = 0;
    bool is_last;
    int fd;

    va_start(arguments, flags);
    if (is_making || (flags & O_TMPFILE) == O_TMPFILE)
        mode = va_arg(arguments, mode_t);
    va_end(arguments);
    is_last = is_making && crash_is_last_call();
    fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    crash_die_if(is_last);
    if (fd >= 0 && is_making)
        crash_note_name(POWER_CREATE, fd, path, "");
    return fd;
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    const bool is_last = crash_is_last_call();
    const ssize_t done =
        syscall(SYS_pwrite64, fd, bytes, is_last ? size / 2 : size, offset);

    crash_die_if(is_last);
    crash_note_bytes(POWER_WRITE, fd, offset, bytes, done);
    return done;
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    const bool is_last = crash_is_last_call();
    struct stat state;
    int result;

    if (crash.is_lying) {
        errno = EOPNOTSUPP;
        return -1;
    }
    result = (int)syscall(SYS_fallocate, fd, mode, offset, size);
    crash_die_if(is_last);
    if (result == 0 && fstat(fd, &state) == 0)
        crash_note_bytes(POWER_RESIZE, fd, 0, NULL, state.st_size);
    return result;
}

int
ftruncate(int fd, off_t size)
{
    const bool is_last = crash_is_last_call();
    const int result = (int)syscall(SYS_ftruncate, fd, size);

    crash_die_if(is_last);
    if (result == 0)
        crash_note_bytes(POWER_RESIZE, fd, 0, NULL, size);
    return result;
}

int
fsync(int fd)
{
    const bool is_last = crash_is_last_call();
    struct stat state;
    int result = 0;

    if (crash.has_failing_fsync && fstat(fd, &state) == 0 && S_ISREG(state.st_mode)) {
        crash.has_failing_fsync = false;
        errno = EIO;
        return -1;
    }
    if (!crash.has_no_fsync)
        result = (int)syscall(SYS_fsync, fd);
    crash_die_if(is_last);
    crash_note_flush(fd);
    return result;
}

int
sync_file_range(int fd, off_t offset, off_t size, unsigned flags)
{
    const bool is_last = crash_is_last_call();
    int result = 0;

    if (!crash.has_no_fsync)
        result = (int)syscall(SYS_sync_file_range, fd, offset, size, flags);
    crash_die_if(is_last);
    return result;
}

/* What is logged is renamed within one folder. */
int
renameat2(int from_folder, const char *from, int to_folder, const char *to,
          unsigned flags)
{
    const bool is_last = crash_is_last_call();
    const int result =
        (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);

    crash_die_if(is_last);
    if (result == 0)
        crash_note_name(POWER_RENAME, from_folder, from, to);
    return result;
}

int
renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return renameat2(from_folder, from, to_folder, to, 0);
}

int
unlinkat(int folder, const char *name, int flags)
{
    const bool is_last = crash_is_last_call();
    const int result = (int)syscall(SYS_unlinkat, folder, name, flags);

    crash_die_if(is_last);
    if (result == 0)
        crash_note_name((flags & AT_REMOVEDIR) != 0 ? POWER_REMOVE_FOLDER : POWER_UNLINK,
                        folder, name, "");
    return result;
}

int
mkdirat(int folder, const char *name, mode_t mode)
{
    const bool is_last = crash_is_last_call();
    const int result = (int)syscall(SYS_mkdirat, folder, name, mode);

    crash_die_if(is_last);
    if (result == 0 && name[0] != '/') /* the output itself is made before it is logged */
        crash_note_name(POWER_MAKE_FOLDER, folder, name, "");
    return result;
}

int
fchmod(int fd, mode_t mode)
{
    const bool is_last = crash_is_last_call();
    const int result = (int)syscall(SYS_fchmod, fd, mode);

    crash_die_if(is_last);
    return result;
}

int
fstatvfs(int fd, struct statvfs *out)
{
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!crash.is_lying && crash.room == 0)
        return statvfs(link, out);
    memset(out, 0, sizeof *out);
    out->f_blocks = out->f_bavail = crash.is_lying ? UINT64_C(1) << 40 : crash.room;
    out->f_frsize = 1;
    return 0;
}

#endif
