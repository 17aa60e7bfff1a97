/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.h - the whole boundary to the operating system.
 *
 * Each wrapper does one system call, restarts it after EINTR where that is
 * right, and can be made to fail in tests (errno is then EIO, or what fits the
 * call). Results are those of the call: -1 and errno. Descriptors are close-on-
 * exec. Nothing here allocates or keeps state.
 */
#ifndef BERTH_KERNELS_SYS_H
#define BERTH_KERNELS_SYS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------- opening */

#define BERTHI_SYS_AT_CWD (-100) /* the kernel's AT_FDCWD */

/* O_RDONLY, never blocks on a FIFO, but for a lease; never becomes the controlling terminal. */
int berthi_sys_open_read(int folder, const char *path);
/* A folder, for the `at` calls. */
int berthi_sys_open_folder(int folder, const char *path);
/* Also one that may not be listed: what is in there has to be named, and it cannot be flushed. */
int berthi_sys_enter_folder(int folder, const char *path);
/* A second, independent open of what `fd` refers to, with O_DIRECT. */
int berthi_sys_reopen_direct(int fd);
/* The same without. */
int berthi_sys_reopen_read(int fd);
/*
 * Like open_read, but no component and no link may leave `folder`: EXDEV. Where
 * there is no openat2 a way out and in again is none: what counts is the file.
 */
int berthi_sys_open_beneath(int folder, const char *path);
/* O_CREAT|O_EXCL|O_NOFOLLOW|O_RDWR, mode 0666 less the umask. */
int berthi_sys_create(int folder, const char *path);
/* O_TMPFILE, mode 0600: has no name and never gets one; EOPNOTSUPP and others: cannot. */
int berthi_sys_create_nameless(int folder);
/* As create, mode 0600. */
int berthi_sys_create_private(int folder, const char *path);
/* As create, but one that is there is opened as it is. */
int berthi_sys_create_or_open(int folder, const char *path);
int berthi_sys_close(int fd);

typedef enum berthi_sys_kind {
    BERTHI_SYS_REGULAR,
    BERTHI_SYS_FOLDER,
    BERTHI_SYS_LINK,
    BERTHI_SYS_OTHER /* FIFO, socket, device */
} berthi_sys_kind;

/* What tells one state of a file from another. */
typedef struct berthi_sys_stat {
    berthi_sys_kind kind;
    uint64_t bytes;
    uint64_t device;
    uint64_t inode;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t mode; /* permission bits */
    uint32_t user;
    uint32_t group;
} berthi_sys_stat;

int berthi_sys_fstat(int fd, berthi_sys_stat *out);

/* What a link stands for: itself, or what it leads to. */
typedef enum berthi_sys_follow { BERTHI_SYS_NO_FOLLOW, BERTHI_SYS_FOLLOW } berthi_sys_follow;

int berthi_sys_stat_at(int folder, const char *path, berthi_sys_follow follow,
                       berthi_sys_stat *out);
/* Length of the target, cut at capacity - 1, NUL added. */
int64_t berthi_sys_readlink(int folder, const char *path, char *target, size_t capacity);

/* Where an open file or folder lies now; as readlink. */
int64_t berthi_sys_path_of(int fd, char *path, size_t capacity);

/* Alignment that direct reads of `fd` need; 0 and 0: no direct reads. */
int berthi_sys_direct_alignment(int fd, uint32_t *memory, uint32_t *offset);

/* ------------------------------------------------------------------- reading */

/* One pread; may be short; 0 at the end. */
int64_t berthi_sys_pread(int fd, void *buffer, uint64_t bytes, uint64_t offset);
/* Drops clean cached pages of the range (0 bytes: to the end). */
int berthi_sys_drop_cache(int fd, uint64_t offset, uint64_t bytes);
/* No read-ahead through this descriptor. */
int berthi_sys_advise_random(int fd);
/*
 * Cached pages of a range that lies in the file; -1 where nobody can say. The
 * question itself brings nothing into the cache.
 */
int64_t berthi_sys_cached_pages(int fd, uint64_t offset, uint64_t bytes);

/* Names of a folder: calls `each` until it returns non-zero, then stops. */
int berthi_sys_list(int folder, int (*each)(void *user, const char *name), void *user);

/* ------------------------------------------------------------------- writing */

int64_t berthi_sys_pwrite(int fd, const void *buffer, uint64_t bytes, uint64_t offset);
/* What is written but not on the disk begins its way there now. */
int berthi_sys_write_back(int fd, uint64_t offset, uint64_t bytes);
/*
 * Waits until what was begun so is written. Both may report a failed write that
 * fsync would otherwise have reported: it will not do so again.
 */
int berthi_sys_wait_back(int fd, uint64_t offset, uint64_t bytes);
int berthi_sys_fsync(int fd);
int berthi_sys_allocate(int fd, uint64_t bytes); /* EOPNOTSUPP: go on without */
/* Cuts or extends to `bytes`. */
int berthi_sys_truncate(int fd, uint64_t bytes);
int berthi_sys_rename(int folder, const char *from, const char *to);
/* The same, but EEXIST when there is a `to`; EINVAL where the file system cannot. */
int berthi_sys_rename_new(int folder, const char *from, const char *to);
int berthi_sys_set_mode(int fd, uint32_t mode);
#define BERTHI_SYS_SAME_USER UINT32_MAX
/* BERTHI_SYS_SAME_USER: the group alone, which needs no privilege for one's own groups. */
int berthi_sys_set_owner(int fd, uint32_t user, uint32_t group);
/* An exclusive lock until `fd` is closed; EWOULDBLOCK when another process has it. */
int berthi_sys_lock(int fd);
/* One that others may share, and that keeps the exclusive one out. */
int berthi_sys_lock_shared(int fd);
/* Gives either back before that. */
int berthi_sys_unlock(int fd);
/* 0 when this process may make files in `folder`; else -1: EACCES, EROFS, ... */
int berthi_sys_check_writable(int folder);
/* What an unprivileged writer can still take on the file system of `fd`. */
int berthi_sys_free_bytes(int fd, uint64_t *out_bytes);
int berthi_sys_unlink(int folder, const char *path);
/* Mode 0777 less the umask. */
int berthi_sys_make_folder(int folder, const char *path);
/* Mode 0700 less the umask. */
int berthi_sys_make_private_folder(int folder, const char *path);
int berthi_sys_remove_folder(int folder, const char *path); /* an empty one */

/* ------------------------------------------------------------------- process */

typedef enum berthi_sys_limit_kind {
    BERTHI_SYS_LIMIT_ADDRESS, /* RLIMIT_AS */
    BERTHI_SYS_LIMIT_DATA,    /* RLIMIT_DATA */
    BERTHI_SYS_LIMIT_LOCKED,  /* RLIMIT_MEMLOCK */
    BERTHI_SYS_LIMIT_FILE     /* RLIMIT_FSIZE: writing beyond it is a signal */
} berthi_sys_limit_kind;

/* The soft limit in bytes; UINT64_MAX: there is none. */
int berthi_sys_limit(berthi_sys_limit_kind kind, uint64_t *out_bytes);
/* Asks that this process may use registers for tiles: what a signal saves grows by 8 KiB. Where
   there are none it is refused. */
int berthi_sys_allow_tiles(void);
/* Whether it may by now. */
bool berthi_sys_may_use_tiles(void);
/* Processors this thread may run on. */
int berthi_sys_affinity(uint32_t *out_count);
/* 0 when the kernel lets this process set up an io_uring. */
int berthi_sys_probe_uring(void);
/* Something that wakes a thread which waits in the kernel: set until cleared. */
int berthi_sys_event_create(void);
int berthi_sys_event_signal(int fd);
void berthi_sys_event_clear(int fd);
/* What an errno means, in English whatever the locale; never NULL. */
const char *berthi_sys_error_words(int system_error);
uint64_t berthi_sys_page_bytes(void);
/* Zeroed memory at the beginning of a page; NULL: there is none. */
void *berthi_sys_map(size_t bytes);
void berthi_sys_unmap(void *memory, size_t bytes);
/* Whole pages of a mapping are there from now on, if the kernel can; -1: not all. */
int berthi_sys_map_touch(void *memory, size_t bytes);
/* Pages of it that are not there yet are not going to be large ones. */
void berthi_sys_map_small(void *memory, size_t bytes);
/* They may be; the kernel makes them of small ones when it comes to it. */
void berthi_sys_map_large(void *memory, size_t bytes);
/*
 * Pages of it come from that node of the machine first, from others where it has none left;
 * those that are there already move. `memory` begins a page.
 */
int berthi_sys_prefer_node(void *memory, size_t bytes, uint32_t node);
/* Addresses without memory, in whole pages: whoever touches them dies; NULL: none. */
void *berthi_sys_reserve(size_t bytes);
/* Whole pages of them get zeroed memory. */
int berthi_sys_reserve_use(void *memory, size_t bytes);
/* They lose it, and are not to be touched again. */
void berthi_sys_reserve_drop(void *memory, size_t bytes);
void berthi_sys_reserve_end(void *memory, size_t bytes);
/* Of what is in use: whoever touches it gets a signal, until it is opened again. */
int berthi_sys_reserve_seal(void *memory, size_t bytes, bool is_sealed);
uint32_t berthi_sys_process_id(void);
/* Of the calling thread, as the system shows it. */
uint64_t berthi_sys_thread_id(void);
/* Monotonic time. */
uint64_t berthi_sys_now_ns(void);
/* Time that the calling thread has run. */
uint64_t berthi_sys_thread_ns(void);
/* At least so long, unless a signal comes. */
void berthi_sys_sleep(uint64_t ns);
/* Unpredictable bytes, at most 256. */
int berthi_sys_random(void *buffer, size_t bytes);
/*
 * A joinable thread with `stack_bytes` of stack; 0 or an errno. Signals of the process are left to
 * the caller's threads.
 */
int berthi_sys_thread_create(pthread_t *thread, size_t stack_bytes,
                             void *(*run)(void *), void *user);
/* A condition variable on the monotonic clock; 0 or an errno. */
int berthi_sys_condition_init(pthread_cond_t *condition);
/* Waits until berthi_sys_now_ns() passes `deadline_ns`; 0 or ETIMEDOUT. */
int berthi_sys_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock,
                                    uint64_t deadline_ns);
/* A symbol's library, opened lazily and privately; NULL when not there. */
void *berthi_sys_library_open(const char *name);
/*
 * Fills a pointer to a function, NULL when it is not there. dlsym gives a pointer to an
 * object; POSIX makes it a function's address, C has no conversion for that: the bytes
 * are copied.
 */
bool berthi_sys_library_has(void *library, const char *name, void *out_function);
void berthi_sys_library_close(void *library);

#endif
