/* SPDX-License-Identifier: Apache-2.0 */
/* sys.c - system calls, one wrapper each; the only file that needs Linux's own headers. */
#define _GNU_SOURCE

#include "kernels/sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base.h"

_Static_assert(BERTHI_SYS_AT_CWD == AT_FDCWD, "the kernel's own number");
_Static_assert(sizeof(off_t) == 8, "files are larger than 2 GiB");

/* Ask before the call: true when a test wants it to fail with `failure`. */
static bool
is_faulty(int failure)
{
    if (!berthi_fault_is_due(BERTHI_FAULT_SYSTEM))
        return false;
    errno = failure;
    return true;
}

/* ------------------------------------------------------------------- opening */

static int
open_with(int folder, const char *path, int flags, mode_t mode)
{
    int fd;

    if (is_faulty(EIO))
        return -1;
    do
        fd = openat(folder, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int
berthi_sys_open_read(int folder, const char *path)
{
    return open_with(folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
}

int
berthi_sys_open_folder(int folder, const char *path)
{
    return open_with(folder, path, O_RDONLY | O_DIRECTORY, 0);
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

int
berthi_sys_open_beneath(int folder, const char *path)
{
    struct open_how how;
    int tries = 0;
    long fd;

    if (is_faulty(EIO))
        return -1;
    memset(&how, 0, sizeof how);
    how.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    /* EAGAIN: somebody renames on the way; not for ever, or he decides when this ends. */
    do
        fd = syscall(SYS_openat2, folder, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN) && ++tries < 64);
    /* Linux before 5.6, emulators; EPERM: containers that do not know it. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return open_and_judge(folder, path);
    return (int)fd;
}

int
berthi_sys_create(int folder, const char *path)
{
    return open_with(folder, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
}

int
berthi_sys_create_nameless(int folder)
{
    if (is_faulty(EOPNOTSUPP))
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

static int64_t
nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
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
    out->mtime_ns = nanoseconds(from->st_mtim);
    out->ctime_ns = nanoseconds(from->st_ctim);
    out->mode = (uint32_t)from->st_mode & 07777u;
    out->user = (uint32_t)from->st_uid;
    out->group = (uint32_t)from->st_gid;
}

int
berthi_sys_fstat(int fd, berthi_sys_stat *out)
{
    struct stat state;

    if (is_faulty(EIO) || fstat(fd, &state) != 0)
        return -1;
    take_stat(&state, out);
    return 0;
}

int
berthi_sys_stat_at(int folder, const char *path, bool follow, berthi_sys_stat *out)
{
    struct stat state;

    if (is_faulty(EIO)
        || fstatat(folder, path, &state, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    take_stat(&state, out);
    return 0;
}

int64_t
berthi_sys_readlink(int folder, const char *path, char *target, size_t capacity)
{
    ssize_t length;

    if (is_faulty(EIO))
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
    if (is_faulty(EIO))
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

    if (is_faulty(EIO))
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
    if (is_faulty(EIO))
        return -1;
    errno = posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    return errno == 0 ? 0 : -1;
}

int
berthi_sys_advise_random(int fd)
{
    if (is_faulty(EIO))
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

    if (is_faulty(ENOSYS))
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
        for (uint64_t i = 0; count >= 0 && i < (piece + page - 1) / page; i++)
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

    if (is_faulty(ENOSYS)
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
        bytes = is_faulty(EIO) ? -1 : syscall(SYS_getdents64, fd, answer, sizeof answer);
    while (bytes > 0 && visit_entries(answer, bytes, each, user) == 0);
    failure = errno;
    close(fd);
    errno = failure;
    return bytes < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------- writing */

int64_t
berthi_sys_pwrite(int fd, const void *buffer, uint64_t bytes, uint64_t offset)
{
    ssize_t done;

    if (is_faulty(ENOSPC))
        return -1;
    do
        done = pwrite(fd, buffer, bytes, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done;
}

int
berthi_sys_write_back(int fd, uint64_t offset, uint64_t bytes)
{
    if (is_faulty(EIO))
        return -1;
    return sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

int
berthi_sys_wait_back(int fd, uint64_t offset, uint64_t bytes)
{
    if (is_faulty(EIO))
        return -1;
    return sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WAIT_BEFORE);
}

int
berthi_sys_fsync(int fd)
{
    int result;

    if (is_faulty(EIO))
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

    if (is_faulty(ENOSPC))
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

    if (is_faulty(EIO))
        return -1;
    do
        result = ftruncate(fd, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result;
}

int
berthi_sys_rename(int folder, const char *from, const char *to)
{
    if (is_faulty(EIO))
        return -1;
    return renameat(folder, from, folder, to);
}

int
berthi_sys_rename_new(int folder, const char *from, const char *to)
{
    if (is_faulty(EIO))
        return -1;
    return renameat2(folder, from, folder, to, RENAME_NOREPLACE);
}

int
berthi_sys_set_mode(int fd, uint32_t mode)
{
    if (is_faulty(EPERM))
        return -1;
    return fchmod(fd, (mode_t)mode);
}

int
berthi_sys_set_owner(int fd, uint32_t user, uint32_t group)
{
    if (is_faulty(EPERM))
        return -1;
    return fchown(fd, (uid_t)user, (gid_t)group);
}

static int
lock(int fd, int kind)
{
    int result;

    if (is_faulty(ENOLCK))
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
    if (is_faulty(EACCES))
        return -1;
    return faccessat(folder, ".", W_OK | X_OK, AT_EACCESS);
}

int
berthi_sys_free_bytes(int fd, uint64_t *out_bytes)
{
    struct statvfs state;

    if (is_faulty(EIO) || fstatvfs(fd, &state) != 0)
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
    if (is_faulty(EIO))
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

/* ------------------------------------------------------------------- process */

int
berthi_sys_limit(berthi_sys_limit_kind kind, uint64_t *out_bytes)
{
    struct rlimit limit;
    int failure;

    if (is_faulty(EPERM))
        return -1;
    if (kind == BERTHI_SYS_LIMIT_ADDRESS)
        failure = getrlimit(RLIMIT_AS, &limit);
    else if (kind == BERTHI_SYS_LIMIT_DATA)
        failure = getrlimit(RLIMIT_DATA, &limit);
    else if (kind == BERTHI_SYS_LIMIT_LOCKED)
        failure = getrlimit(RLIMIT_MEMLOCK, &limit);
    else
        failure = getrlimit(RLIMIT_FSIZE, &limit);
    if (failure != 0)
        return -1;
    *out_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit.rlim_cur;
    return 0;
}

int
berthi_sys_affinity(uint32_t *out_count)
{
    /* The raw call fills what the kernel knows and says how much that is; 65,536
       processors are eight times the most that any kernel is built for. */
    uint64_t mask[1024];
    long bytes;

    if (is_faulty(EPERM))
        return -1;
    memset(mask, 0, sizeof mask);
    bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    if (bytes < 0)
        return -1;
    *out_count = 0;
    for (size_t i = 0; i < sizeof mask / sizeof mask[0]; i++)
        *out_count += (uint32_t)__builtin_popcountll(mask[i]);
    return 0;
}

int
berthi_sys_probe_uring(void)
{
    struct io_uring_params parameters;
    long fd;

    if (is_faulty(ENOSYS))
        return -1;
    memset(&parameters, 0, sizeof parameters);
    fd = syscall(SYS_io_uring_setup, 1, &parameters);
    if (fd < 0)
        return -1;
    close((int)fd);
    return 0;
}

int
berthi_sys_event_create(void)
{
    if (is_faulty(EMFILE))
        return -1;
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int
berthi_sys_event_signal(int fd)
{
    const uint64_t one = 1;

    if (is_faulty(EIO))
        return -1;
    return write(fd, &one, sizeof one) == (ssize_t)sizeof one ? 0 : -1;
}

void
berthi_sys_event_clear(int fd)
{
    uint64_t count;
    const ssize_t got = read(fd, &count, sizeof count);

    (void)got; /* not set: nothing to clear, no failure */
}

const char *
berthi_sys_error_words(int system_error)
{
    /* Other than strerror() it neither translates nor writes anywhere. */
    const char *const words = strerrordesc_np(system_error);

    return words != NULL ? words : "unknown error";
}

uint64_t
berthi_sys_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE); /* which Linux always knows */
}

#define LARGE_PAGE ((size_t)2 << 20) /* on most hosts; elsewhere it does no harm */

/*
 * Whole large pages, from half of one on: where others end in small ones, the kernel may
 * give none.
 */
static size_t
mapped_bytes(size_t bytes)
{
    return bytes < LARGE_PAGE / 2 ? bytes : (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
}

void *
berthi_sys_map(size_t bytes)
{
    const size_t mapped = mapped_bytes(bytes);
    /* Not made to fail: allocations have a switch of their own, above this. */
    void *const memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    /* Fewer faults where the kernel has large pages; where it has not, nothing. */
    (void)madvise(memory, mapped, MADV_HUGEPAGE);
    return memory;
}

void
berthi_sys_unmap(void *memory, size_t bytes)
{
    munmap(memory, mapped_bytes(bytes));
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int
berthi_sys_map_touch(void *memory, size_t bytes)
{
    if (is_faulty(ENOMEM))
        return -1;
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
        return 0; /* or nobody knows: an older kernel */
    return -1;
}

void
berthi_sys_map_small(void *memory, size_t bytes)
{
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
}

#define NODE_LIMIT 1024u /* no kernel is built for more */

int
berthi_sys_prefer_node(void *memory, size_t bytes, uint32_t node)
{
    const unsigned long word_bits = 8 * sizeof(unsigned long);
    unsigned long nodes[NODE_LIMIT / (8 * sizeof(unsigned long))] = { 0 };

    if (is_faulty(EPERM))
        return -1;
    if (node >= NODE_LIMIT) {
        errno = EINVAL;
        return -1;
    }
    nodes[node / word_bits] = 1ul << node % word_bits;
    /* The kernel takes one bit less than it is told. */
    return (int)syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, NODE_LIMIT + 1ul,
                        MPOL_MF_MOVE);
}

void *
berthi_sys_reserve(size_t bytes)
{
    void *memory;

    if (is_faulty(ENOMEM))
        return NULL;
    memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                  0);
    return memory != MAP_FAILED ? memory : NULL;
}

int
berthi_sys_reserve_use(void *memory, size_t bytes)
{
    if (is_faulty(ENOMEM))
        return -1;
    if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0)
        return -1;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return 0;
}

void
berthi_sys_reserve_drop(void *memory, size_t bytes)
{
    /* Mapped anew, which gives pages and their commitment back at once. */
    (void)mmap(memory, bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int
berthi_sys_reserve_seal(void *memory, size_t bytes, bool is_sealed)
{
    return mprotect(memory, bytes, is_sealed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void
berthi_sys_reserve_end(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

uint64_t
berthi_sys_thread_id(void)
{
    return (uint64_t)syscall(SYS_gettid);
}

uint32_t
berthi_sys_process_id(void)
{
    return (uint32_t)getpid();
}

uint64_t
berthi_sys_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)nanoseconds(now);
}

uint64_t
berthi_sys_thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)nanoseconds(now);
}

void
berthi_sys_sleep(uint64_t ns)
{
    const struct timespec time = {
        .tv_sec = (time_t)(ns / 1000000000u),
        .tv_nsec = (long)(ns % 1000000000u),
    };

    (void)nanosleep(&time, NULL);
}

int
berthi_sys_random(void *buffer, size_t bytes)
{
    if (is_faulty(EIO))
        return -1;
    return getrandom(buffer, bytes, 0) == (ssize_t)bytes ? 0 : -1;
}

int
berthi_sys_thread_create(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
                         void *user)
{
    pthread_attr_t attributes;
    int failure;

    if (berthi_fault_is_due(BERTHI_FAULT_SYSTEM))
        return EAGAIN;
    failure = pthread_attr_init(&attributes);
    if (failure != 0)
        return failure;
    failure = pthread_attr_setstacksize(&attributes, stack_bytes);
    if (failure == 0)
        failure = pthread_create(thread, &attributes, run, user);
    pthread_attr_destroy(&attributes);
    return failure;
}

int
berthi_sys_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int failure;

    if (berthi_fault_is_due(BERTHI_FAULT_SYSTEM))
        return EAGAIN;
    failure = pthread_condattr_init(&attributes);
    if (failure != 0)
        return failure;
    failure = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (failure == 0)
        failure = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return failure;
}

int
berthi_sys_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock,
                                uint64_t deadline_ns)
{
    const struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };

    return pthread_cond_timedwait(condition, lock, &deadline);
}

void *
berthi_sys_library_open(const char *name)
{
    if (is_faulty(ENOENT))
        return NULL;
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

void *
berthi_sys_library_symbol(void *library, const char *name)
{
    if (is_faulty(ENOENT))
        return NULL;
    return dlsym(library, name);
}

void
berthi_sys_library_close(void *library)
{
    if (library != NULL)
        dlclose(library);
}
