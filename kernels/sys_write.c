/* SPDX-License-Identifier: Apache-2.0 */
/* sys_write.c - system calls, one wrapper each: what changes files and folders. */
#define _GNU_SOURCE

#include "kernels/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "kernels/sys_local.h"

int64_t
berthi_sys_pwrite(int fd, const void *buffer, uint64_t bytes, uint64_t offset)
{
    ssize_t done;

    if (berthi_sys_is_faulty(ENOSPC))
        return -1;
    do
        done = pwrite(fd, buffer, bytes, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done;
}

int
berthi_sys_write_back(int fd, uint64_t offset, uint64_t bytes)
{
    if (berthi_sys_is_faulty(EIO))
        return -1;
    return sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

int
berthi_sys_wait_back(int fd, uint64_t offset, uint64_t bytes)
{
    if (berthi_sys_is_faulty(EIO))
        return -1;
    return sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WAIT_BEFORE);
}

int
berthi_sys_fsync(int fd)
{
    int result;

    if (berthi_sys_is_faulty(EIO))
        return -1;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

int
berthi_sys_allocate(int fd, uint64_t bytes)
{
    int result;

    if (berthi_sys_is_faulty(ENOSPC))
        return -1;
    /* Not posix_fallocate(): that writes into every block where it cannot ask. */
    do
        result = fallocate(fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result;
}

int
berthi_sys_truncate(int fd, uint64_t bytes)
{
    int result;

    if (berthi_sys_is_faulty(EIO))
        return -1;
    do
        result = ftruncate(fd, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result;
}

int
berthi_sys_rename(int folder, const char *from, const char *to)
{
    if (berthi_sys_is_faulty(EIO))
        return -1;
    return renameat(folder, from, folder, to);
}

int
berthi_sys_rename_new(int folder, const char *from, const char *to)
{
    if (berthi_sys_is_faulty(EIO))
        return -1;
    return renameat2(folder, from, folder, to, RENAME_NOREPLACE);
}

int
berthi_sys_set_mode(int fd, uint32_t mode)
{
    if (berthi_sys_is_faulty(EPERM))
        return -1;
    return fchmod(fd, (mode_t)mode);
}

int
berthi_sys_set_owner(int fd, uint32_t user, uint32_t group)
{
    if (berthi_sys_is_faulty(EPERM))
        return -1;
    return fchown(fd, (uid_t)user, (gid_t)group);
}

static int
lock(int fd, int kind)
{
    int result;

    if (berthi_sys_is_faulty(ENOLCK))
        return -1;
    do
        result = flock(fd, kind | LOCK_NB);
    while (result != 0 && errno == EINTR);
    return result;
}

int
berthi_sys_lock(int fd)
{
    return lock(fd, LOCK_EX);
}

int
berthi_sys_lock_shared(int fd)
{
    return lock(fd, LOCK_SH);
}

int
berthi_sys_unlock(int fd)
{
    return lock(fd, LOCK_UN);
}

int
berthi_sys_check_writable(int folder)
{
    if (berthi_sys_is_faulty(EACCES))
        return -1;
    return faccessat(folder, ".", W_OK | X_OK, AT_EACCESS);
}

int
berthi_sys_free_bytes(int fd, uint64_t *out_bytes)
{
    struct statvfs state;

    if (berthi_sys_is_faulty(EIO) || fstatvfs(fd, &state) != 0)
        return -1;
    if (state.f_blocks == 0) { /* a file system that does not count */
        errno = ENOSYS;
        return -1;
    }
    *out_bytes = (uint64_t)state.f_bavail * (uint64_t)state.f_frsize;
    return 0;
}

int
berthi_sys_unlink(int folder, const char *path)
{
    /* Clean-up after a failure must not fail on purpose: it would hide leaks. */
    return unlinkat(folder, path, 0);
}

static int
make_folder(int folder, const char *path, mode_t mode)
{
    if (berthi_sys_is_faulty(EIO))
        return -1;
    return mkdirat(folder, path, mode);
}

int
berthi_sys_make_folder(int folder, const char *path)
{
    return make_folder(folder, path, 0777);
}

int
berthi_sys_make_private_folder(int folder, const char *path)
{
    return make_folder(folder, path, 0700);
}

int
berthi_sys_remove_folder(int folder, const char *path)
{
    /* As above: clean-up. */
    return unlinkat(folder, path, AT_REMOVEDIR);
}
