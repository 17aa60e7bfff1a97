/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output_calls.h - calls that stand before the C library's: what a disk, a network file system
 * or another process can do, and no test can bring about.
 *
 * A program that wants this includes it in one file, behind _GNU_SOURCE: in the archive of
 * helpers they would come into every program.
 */
#ifndef BERTH_TESTS_OUTPUT_CALLS_H
#define BERTH_TESTS_OUTPUT_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/emitted.h"
#include "tests/fixture.h"
#include "tests/t.h"

static struct {
    size_t write_bytes;      /* a pwrite takes at most so many; 0: all        */
    uint64_t write_end;      /* where the last pwrite would have ended        */
    int empty_writes;        /* so many of the next ones take nothing         */
    int flush_error;         /* of fsync on a folder                          */
    int file_flush_error;    /* of fsync on a file                            */
    int file_flushes;        /* files that were flushed                       */
    int flushed_at_rename;   /* so many of them before the last renameat2     */
    int lock_failures;       /* so many of the next flocks fail               */
    int lock_error;          /* with this                                     */
    const char *lock_unlink; /* a folder to be emptied before the next flock  */
    const char *lock_relink; /* whose one file is a link behind the next one  */
    bool has_server_locks;   /* as NFS: an exclusive one is for who may write */
    bool lock_frees_0;       /* the next flock closes the standard input      */
    bool random_frees_0;     /* so does the next random number                */
    int rename_error;        /* of renameat2                                  */
    int mode_error;          /* of fchmod                                     */
    int allocate_error;      /* of fallocate                                  */
    uint64_t random_calls;   /* random numbers asked for: names tried         */
    uint64_t wrong_closes;   /* of what was not open, or a standard stream    */
} world;

int
close(int fd)
{
    const int result = (int)syscall(SYS_close, fd);

    world.wrong_closes += fd < 3 || (result != 0 && errno == EBADF);
    return result;
}

int
fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (world.allocate_error != 0) {
        errno = world.allocate_error;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

int
fchmod(int fd, mode_t mode)
{
    if (world.mode_error != 0) {
        errno = world.mode_error;
        return -1;
    }
    return (int)syscall(SYS_fchmod, fd, mode);
}

int
fsync(int fd)
{
    struct stat state;
    int failure;

    if (fstat(fd, &state) != 0)
        return -1;
    failure = S_ISDIR(state.st_mode) ? world.flush_error : world.file_flush_error;
    world.file_flushes += !S_ISDIR(state.st_mode);
    if (failure == 0)
        return (int)syscall(SYS_fsync, fd);
    errno = failure;
    return -1;
}

ssize_t
getrandom(void *buffer, size_t size, unsigned flags)
{
    world.random_calls++;
    if (world.random_frees_0)
        syscall(SYS_close, 0);
    world.random_frees_0 = false;
    return syscall(SYS_getrandom, buffer, size, flags);
}

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    if (world.empty_writes > 0) {
        world.empty_writes--;
        return 0;
    }
    world.write_end = (uint64_t)offset + size;
    if (world.write_bytes > 0 && size > world.write_bytes)
        size = world.write_bytes;
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int
renameat2(int from_folder, const char *from, int to_folder, const char *to,
          unsigned flags)
{
    world.flushed_at_rename = world.file_flushes;
    if (world.rename_error != 0) {
        errno = world.rename_error;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

static void
remove_entries(const char *folder)
{
    char name[256];

    while (emitted_entries(folder, name) > 0)
        unlink(fixture_format("%s/%s", folder, name));
}

/* The one file of the folder gets another name, and a link to it the old one. */
static void
replace_by_link(const char *folder)
{
    const char *const moved = fixture_format("%s/moved", folder);
    char name[256];

    if (emitted_entries(folder, name) != 1
        || rename(fixture_format("%s/%s", folder, name), moved) != 0)
        exit(1);
    fixture_link("moved", fixture_format("%s/%s", folder, name));
}

static bool
is_file_to_read(int fd)
{
    struct stat state;

    return fstat(fd, &state) == 0 && S_ISREG(state.st_mode)
           && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

int
flock(int fd, int operation)
{
    if (world.lock_unlink != NULL)
        remove_entries(world.lock_unlink);
    world.lock_unlink = NULL;
    if (world.lock_relink != NULL)
        replace_by_link(world.lock_relink);
    world.lock_relink = NULL;
    if (world.lock_frees_0)
        syscall(SYS_close, 0);
    world.lock_frees_0 = false;
    if (world.lock_failures > 0) {
        world.lock_failures--;
        errno = world.lock_error;
        return -1;
    }
    if (world.has_server_locks && (operation & LOCK_EX) != 0 && is_file_to_read(fd)) {
        errno = EBADF;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

#endif
