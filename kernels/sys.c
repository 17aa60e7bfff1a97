/* SPDX-License-Identifier: Apache-2.0 */
/* sys.c - system calls, one wrapper each: files and folders, opened and read. */
#define _GNU_SOURCE

#include "kernels/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/sys_local.h"

_Static_assert(BERTHI_SYS_AT_CWD == AT_FDCWD, "the kernel's own number");
_Static_assert(sizeof(off_t) == 8, "files are larger than 2 GiB");

/* ------------------------------------------------------------------- opening */

static int
open_with(int folder, const char *path, int flags, mode_t mode)
{
    int fd;

    if (berthi_sys_is_faulty(EIO))
        return -1;
    do
        fd = openat(folder, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int
berthi_sys_open_folder(int folder, const char *path)
{
    return open_with(folder, path, O_RDONLY | O_DIRECTORY, 0);
}

int
berthi_sys_enter_folder(int folder, const char *path)
{
    const int fd = berthi_sys_open_folder(folder, path);

    return fd >= 0 || errno != EACCES ? fd
                                      : open_with(folder, path, O_PATH | O_DIRECTORY, 0);
}

/* Through the process's own folder: the same file, whatever its name means by now. */
static int
reopen(int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open_with(AT_FDCWD, path, O_RDONLY | O_NOCTTY | flags, 0);
}

int
berthi_sys_reopen_direct(int fd)
{
    return reopen(fd, O_DIRECT);
}

int
berthi_sys_reopen_read(int fd)
{
    return reopen(fd, 0);
}

/*
 * EAGAIN of a regular file: a lease on it, as file servers take, is being given
 * back. `held` (O_PATH) is that file: a FIFO of its name by now is not waited for.
 */
static int
open_behind_lease(int held)
{
    struct stat state;
    int failure;
    int fd = -1;

    if (held < 0)
        return -1;
    if (fstat(held, &state) == 0 && S_ISREG(state.st_mode))
        fd = reopen(held, 0);
    else
        errno = EAGAIN;
    failure = errno;
    close(held);
    errno = failure;
    return fd;
}

int
berthi_sys_open_read(int folder, const char *path)
{
    const int fd = open_with(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);

    return fd >= 0 || errno != EAGAIN
               ? fd
               : open_behind_lease(open_with(folder, path, O_PATH, 0));
}

/* Whether the file lies below the folder: both are open, so nothing can be exchanged. */
static bool
is_beneath(int fd, int folder)
{
    char file_path[PATH_MAX];
    char folder_path[PATH_MAX];
    const int64_t file = berthi_sys_path_of(fd, file_path, sizeof file_path);
    const int64_t length = berthi_sys_path_of(folder, folder_path, sizeof folder_path);

    return length > 0 && length < file && folder_path[0] == '/'
           && memcmp(file_path, folder_path, (size_t)length) == 0
           && (file_path[length] == '/' || folder_path[length - 1] == '/');
}

/* Without openat2: opened like any other, and judged by where that is. */
static int
open_and_judge(int folder, const char *path)
{
    const int fd = berthi_sys_open_read(folder, path);

    if (fd < 0 || is_beneath(fd, folder))
        return fd;
    close(fd);
    errno = EXDEV;
    return -1;
}

/* As open_with(), but EXDEV where a link leads out of the folder. */
static int
open_resolved(int folder, const char *path, int flags)
{
    struct open_how how;
    int tries = 0;
    long fd;

    memset(&how, 0, sizeof how);
    how.flags = (__u64)(flags | O_CLOEXEC);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    /* EAGAIN: somebody renames on the way; not for ever, or he decides when this ends. */
    do
        fd = syscall(SYS_openat2, folder, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN) && ++tries < 64);
    return (int)fd;
}

int
berthi_sys_open_beneath(int folder, const char *path)
{
    int fd;

    if (berthi_sys_is_faulty(EIO))
        return -1;
    fd = open_resolved(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    /* Linux before 5.6, emulators; EPERM: containers that do not know it. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return open_and_judge(folder, path);
    if (fd < 0 && errno == EAGAIN)
        return open_behind_lease(open_resolved(folder, path, O_PATH));
    return fd;
}

int
berthi_sys_create(int folder, const char *path)
{
    return open_with(folder, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
}

int
berthi_sys_create_nameless(int folder)
{
    if (berthi_sys_is_faulty(EOPNOTSUPP))
        return -1;
    return open_with(folder, ".", O_TMPFILE | O_EXCL | O_RDWR, 0600);
}

int
berthi_sys_create_private(int folder, const char *path)
{
    return open_with(folder, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

int
berthi_sys_create_or_open(int folder, const char *path)
{
    return open_with(folder, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
}

int
berthi_sys_close(int fd)
{
    /* Linux has closed the descriptor whatever close says: never retried. */
    return close(fd);
}

static void
take_stat(const struct stat *from, berthi_sys_stat *out)
{
    out->kind = S_ISREG(from->st_mode)   ? BERTHI_SYS_REGULAR
                : S_ISDIR(from->st_mode) ? BERTHI_SYS_FOLDER
                : S_ISLNK(from->st_mode) ? BERTHI_SYS_LINK
                                         : BERTHI_SYS_OTHER;
    out->bytes = (uint64_t)from->st_size;
    out->device = (uint64_t)from->st_dev;
    out->inode = (uint64_t)from->st_ino;
    out->mtime_ns = berthi_sys_nanoseconds(from->st_mtim);
    out->ctime_ns = berthi_sys_nanoseconds(from->st_ctim);
    out->mode = (uint32_t)from->st_mode & 07777u;
    out->user = (uint32_t)from->st_uid;
    out->group = (uint32_t)from->st_gid;
}

int
berthi_sys_fstat(int fd, berthi_sys_stat *out)
{
    struct stat state;

    if (berthi_sys_is_faulty(EIO) || fstat(fd, &state) != 0)
        return -1;
    take_stat(&state, out);
    return 0;
}

int
berthi_sys_stat_at(int folder, const char *path, berthi_sys_follow follow,
                   berthi_sys_stat *out)
{
    struct stat state;

    if (berthi_sys_is_faulty(EIO)
        || fstatat(folder, path, &state, follow == BERTHI_SYS_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW)
               != 0)
        return -1;
    take_stat(&state, out);
    return 0;
}

int64_t
berthi_sys_readlink(int folder, const char *path, char *target, size_t capacity)
{
    ssize_t length;

    if (berthi_sys_is_faulty(EIO))
        return -1;
    length = readlinkat(folder, path, target, capacity - 1);
    if (length >= 0)
        target[length] = '\0';
    return length;
}

int64_t
berthi_sys_path_of(int fd, char *path, size_t capacity)
{
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return berthi_sys_readlink(AT_FDCWD, link, path, capacity);
}

/* statx has answered with direct alignment since Linux 6.1; older headers lack it. */
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x00002000U
#endif

/* The kernel's struct: stx_dio_mem_align and _offset_align lie at 0x98, 0x9C. */
struct direct_answer {
    uint32_t mask;
    unsigned char between[0x98 - 4];
    uint32_t memory;
    uint32_t offset;
    unsigned char rest[0x100 - 0xA0];
};
_Static_assert(offsetof(struct direct_answer, memory) == 0x98, "the kernel's place");
_Static_assert(offsetof(struct direct_answer, offset) == 0x9C, "the kernel's place");
_Static_assert(sizeof(struct direct_answer) == 0x100, "all that the kernel writes");

int
berthi_sys_direct_alignment(int fd, uint32_t *memory, uint32_t *offset)
{
    struct direct_answer answer;

    *memory = 0;
    *offset = 0;
    if (berthi_sys_is_faulty(EIO))
        return -1;
    memset(&answer, 0, sizeof answer);
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &answer) != 0)
        return -1;
    if ((answer.mask & STATX_DIOALIGN) == 0) {
        errno = ENOSYS;
        return -1;
    }
    *memory = answer.memory;
    *offset = answer.offset;
    return 0;
}

/* ------------------------------------------------------------------- reading */

int64_t
berthi_sys_pread(int fd, void *buffer, uint64_t bytes, uint64_t offset)
{
    ssize_t got;

    if (berthi_sys_is_faulty(EIO))
        return -1;
    do
        got = pread(fd, buffer, bytes, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got;
}

int
berthi_sys_drop_cache(int fd, uint64_t offset, uint64_t bytes)
{
    /* Advice: a failure costs nothing, but it must not go unnoticed in tests. */
    if (berthi_sys_is_faulty(EIO))
        return -1;
    errno = posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    return errno == 0 ? 0 : -1;
}

int
berthi_sys_advise_random(int fd)
{
    if (berthi_sys_is_faulty(EIO))
        return -1;
    errno = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    return errno == 0 ? 0 : -1;
}

/* mincore() tells only owners the truth: to others every page is there. */
static bool
is_owner(int fd)
{
    struct stat state;

    return fstat(fd, &state) == 0 && state.st_uid == geteuid();
}

/* Kernels before 6.5: a mapping that is never touched, looked at in pieces. */
static int64_t
count_by_mincore(int fd, uint64_t offset, uint64_t bytes)
{
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t begin = offset & ~(page - 1);
    const uint64_t length = offset + bytes - begin;
    unsigned char present[4096];
    int64_t count = 0;
    char *mapping;

    if (berthi_sys_is_faulty(ENOSYS))
        return -1;
    if (!is_owner(fd)) {
        errno = ENOSYS;
        return -1;
    }
    mapping = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)begin);
    if (mapping == MAP_FAILED)
        return -1;
    for (uint64_t at = 0; at < length && count >= 0; at += page * sizeof present) {
        const uint64_t left = length - at;
        const uint64_t piece = left < page * sizeof present ? left : page * sizeof present;

        if (mincore(mapping + at, piece, present) != 0)
            count = -1;
        for (uint64_t i = 0; count >= 0 && i < berthi_divide_up(piece, page); i++)
            count += present[i] & 1;
    }
    munmap(mapping, length);
    return count;
}

/* cachestat(2), Linux 6.5; the number is the same on every architecture. */
#define SYS_CACHESTAT_NUMBER 451

int64_t
berthi_sys_cached_pages(int fd, uint64_t offset, uint64_t bytes)
{
    struct {
        uint64_t offset;
        uint64_t bytes;
    } range = { offset, bytes };
    struct {
        uint64_t cached;
        uint64_t dirty;
        uint64_t writeback;
        uint64_t evicted;
        uint64_t recently_evicted;
    } answer = { 0, 0, 0, 0, 0 };

    if (berthi_sys_is_faulty(ENOSYS)
        || syscall(SYS_CACHESTAT_NUMBER, fd, &range, &answer, 0) != 0)
        return count_by_mincore(fd, offset, bytes);
    return (int64_t)answer.cached;
}

/* What the kernel writes for each name; readdir() would allocate. */
struct folder_entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes; /* of this entry */
    unsigned char type;
    char name[];
};

/* Calls `each` for the entries of one answer; its first non-zero result, or 0. */
static int
visit_entries(const char *answer, long bytes, int (*each)(void *user, const char *name),
              void *user)
{
    const struct folder_entry *entry;

    for (long at = 0; at < bytes; at += entry->bytes) {
        const char *name;
        int stop;

        entry = (const struct folder_entry *)(const void *)(answer + at);
        name = entry->name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        stop = each(user, name);
        if (stop != 0)
            return stop;
    }
    return 0;
}

int
berthi_sys_list(int folder, int (*each)(void *user, const char *name), void *user)
{
    _Alignas(8) char answer[8192];
    long bytes;
    int failure;
    /* An own descriptor, because the listing moves its position. */
    const int fd = open_with(folder, ".", O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0)
        return -1;
    do
        bytes = berthi_sys_is_faulty(EIO) ? -1 : syscall(SYS_getdents64, fd, answer, sizeof answer);
    while (bytes > 0 && visit_entries(answer, bytes, each, user) == 0);
    failure = errno;
    close(fd);
    errno = failure;
    return bytes < 0 ? -1 : 0;
}
