/* SPDX-License-Identifier: Apache-2.0 */
/* sys_process.c - system calls, one wrapper each: limits, memory, threads, time. */
#define _GNU_SOURCE

#include "kernels/sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/float_mode.h"
#include "kernels/sys_local.h"

int
berthi_sys_limit(berthi_sys_limit_kind kind, uint64_t *out_bytes)
{
    struct rlimit limit;
    int failure;

    if (berthi_sys_is_faulty(EPERM))
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

/* ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA by their numbers: headers may
   be older. */
#define WHAT_IS_PERMITTED 0x1022
#define PERMIT 0x1023
#define TILES 18

int
berthi_sys_allow_tiles(void)
{
#ifdef __x86_64__
    return berthi_sys_is_faulty(EPERM) ? -1 : (int)syscall(SYS_arch_prctl, PERMIT, (long)TILES);
#else
    errno = ENOSYS;
    return -1;
#endif
}

bool
berthi_sys_may_use_tiles(void)
{
#ifdef __x86_64__
    uint64_t permitted = 0;

    return !berthi_sys_is_faulty(EINVAL)
           && syscall(SYS_arch_prctl, WHAT_IS_PERMITTED, &permitted) == 0
           && (permitted >> TILES & 1) != 0;
#else
    return false;
#endif
}

int
berthi_sys_affinity(uint32_t *out_count)
{
    /* The raw call fills what the kernel knows and says how much that is; 65,536
       processors are eight times the most that any kernel is built for. */
    uint64_t mask[1024];
    long bytes;

    if (berthi_sys_is_faulty(EPERM))
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

    if (berthi_sys_is_faulty(ENOSYS))
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
    if (berthi_sys_is_faulty(EMFILE))
        return -1;
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int
berthi_sys_event_signal(int fd)
{
    const uint64_t one = 1;

    if (berthi_sys_is_faulty(EIO))
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
    return bytes < LARGE_PAGE / 2 ? bytes : berthi_round_up(bytes, LARGE_PAGE);
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
    berthi_sys_map_large(memory, mapped);
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
    if (berthi_sys_is_faulty(ENOMEM))
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

void
berthi_sys_map_large(void *memory, size_t bytes)
{
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
}

#define NODE_LIMIT 1024u /* no kernel is built for more */

int
berthi_sys_prefer_node(void *memory, size_t bytes, uint32_t node)
{
    const unsigned long word_bits = 8 * sizeof(unsigned long);
    unsigned long nodes[NODE_LIMIT / (8 * sizeof(unsigned long))] = { 0 };

    if (berthi_sys_is_faulty(EPERM))
        return -1;
    if (node >= NODE_LIMIT) {
        errno = EINVAL;
        return -1;
    }
    nodes[node / word_bits] = 1ul << node % word_bits;
    /*
     * The kernel takes one bit less than it is told. Each argument is as wide as it reads them:
     * above an int may stand anything.
     */
    return (int)syscall(SYS_mbind, memory, bytes, (unsigned long)MPOL_PREFERRED, nodes,
                        NODE_LIMIT + 1ul, (unsigned long)MPOL_MF_MOVE);
}

void *
berthi_sys_reserve(size_t bytes)
{
    void *memory;

    if (berthi_sys_is_faulty(ENOMEM))
        return NULL;
    memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                  0);
    return memory != MAP_FAILED ? memory : NULL;
}

int
berthi_sys_reserve_use(void *memory, size_t bytes)
{
    if (berthi_sys_is_faulty(ENOMEM))
        return -1;
    if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0)
        return -1;
    berthi_sys_map_large(memory, bytes);
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
    return (uint64_t)berthi_sys_nanoseconds(now);
}

uint64_t
berthi_sys_thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)berthi_sys_nanoseconds(now);
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
    if (berthi_sys_is_faulty(EIO))
        return -1;
    return getrandom(buffer, bytes, 0) == (ssize_t)bytes ? 0 : -1;
}

/*
 * Signals that come to whichever thread of the process does not block them. What a thread's own
 * fault raises stays with it, and so does that of profilers, which ask what each is at. SIGXFSZ
 * does not: a write that fails is told, and nobody is ended by it.
 */
static void
list_signals_of_others(sigset_t *out)
{
    static const int own[] = { SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGTRAP,
                               SIGSYS,  SIGABRT, SIGPIPE, SIGPROF };

    sigfillset(out);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(out, own[i]);
}

int
berthi_sys_thread_create(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
                         void *user)
{
    pthread_attr_t attributes;
    sigset_t others;
    sigset_t before;
    fenv_t mode;
    int failure;

    if (berthi_fault_is_due(BERTHI_FAULT_SYSTEM))
        return EAGAIN;
    failure = pthread_attr_init(&attributes);
    if (failure != 0)
        return failure;
    list_signals_of_others(&others);
    failure = pthread_attr_setstacksize(&attributes, stack_bytes);
    if (failure == 0) {
        /* A thread has from its first moment on what who makes it has. */
        berthi_float_mode_begin(&mode);
        pthread_sigmask(SIG_BLOCK, &others, &before);
        failure = pthread_create(thread, &attributes, run, user);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        berthi_float_mode_end(&mode);
    }
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
    if (berthi_sys_is_faulty(ENOENT))
        return NULL;
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

bool
berthi_sys_library_has(void *library, const char *name, void *out_function)
{
    void *const symbol = berthi_sys_is_faulty(ENOENT) ? NULL : dlsym(library, name);

    memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

void
berthi_sys_library_close(void *library)
{
    if (library != NULL)
        dlclose(library);
}
