/* SPDX-License-Identifier: Apache-2.0 */
/* test_sys_process.c - limits, memory, threads, waits and libraries of the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/t.h"

#define SECOND_NS UINT64_C(1000000000)

static void
test_limits(void)
{
    static const struct {
        berthi_sys_limit_kind kind;
        int resource;
    } kinds[] = {
        { BERTHI_SYS_LIMIT_ADDRESS, RLIMIT_AS },
        { BERTHI_SYS_LIMIT_DATA, RLIMIT_DATA },
        { BERTHI_SYS_LIMIT_LOCKED, RLIMIT_MEMLOCK },
        { BERTHI_SYS_LIMIT_FILE, RLIMIT_FSIZE },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct rlimit truth;
        uint64_t bytes = 7;

        T_REQUIRE(getrlimit((__rlimit_resource_t)kinds[i].resource, &truth) == 0);
        CHECK_EQ(berthi_sys_limit(kinds[i].kind, &bytes), 0);
        CHECK_EQ(bytes, truth.rlim_cur == RLIM_INFINITY ? UINT64_MAX : truth.rlim_cur);
    }
}

/* Limits of its own, in a process of its own. */
static void
test_limits_are_told_apart(void)
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        static const struct {
            berthi_sys_limit_kind kind;
            int resource;
            struct rlimit limit;
        } cases[] = {
            { BERTHI_SYS_LIMIT_LOCKED, RLIMIT_MEMLOCK, { 4096, 4096 } },
            { BERTHI_SYS_LIMIT_FILE, RLIMIT_FSIZE, { 8192, 16384 } },
            { BERTHI_SYS_LIMIT_DATA, RLIMIT_DATA, { 1 << 20, 1 << 29 } },
            { BERTHI_SYS_LIMIT_ADDRESS, RLIMIT_AS, { 1 << 21, 1 << 30 } },
        };
        int wrong = 0;

        for (size_t i = 0; i < 4; i++)
            wrong += setrlimit((__rlimit_resource_t)cases[i].resource,
                               &cases[i].limit) != 0;
        for (size_t i = 0; i < 4; i++) {
            uint64_t bytes = 0;

            wrong += berthi_sys_limit(cases[i].kind, &bytes) != 0
                     || bytes != cases[i].limit.rlim_cur;
        }
        _exit(wrong);
    }
    T_REQUIRE(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* True when the kernel was asked for large pages where `memory` lies. */
static bool
is_for_large_pages(const void *memory)
{
    FILE *const maps = fopen("/proc/self/smaps", "r");
    bool is_found = false;
    bool is_large = false;
    char line[512];

    while (maps != NULL && !(is_found && is_large) && fgets(line, sizeof line, maps)) {
        unsigned long begin;
        unsigned long end;

        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_found = begin <= (uintptr_t)memory && (uintptr_t)memory < end;
        else if (strncmp(line, "VmFlags:", 8) == 0)
            is_large = is_found && strstr(line, " hg") != NULL;
    }
    if (maps != NULL)
        fclose(maps);
    return is_large;
}

static void
test_mapping(void)
{
    const size_t bytes = 4 << 20;
    unsigned char *const memory = berthi_sys_map(bytes);
    unsigned char resident[1024];

    T_REQUIRE(memory != NULL);
    CHECK_EQ((uintptr_t)memory % berthi_sys_page_bytes(), 0);
    CHECK_EQ(memory[0] + memory[bytes / 2] + memory[bytes - 1], 0);
    memset(memory, 0xA5, bytes);
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0)
        CHECK(is_for_large_pages(memory));
    berthi_sys_unmap(memory, bytes);
    CHECK_EQ(mincore(memory, bytes, resident), -1);
    CHECK_EQ(errno, ENOMEM);
    CHECK(berthi_sys_map(SIZE_MAX / 2) == NULL);
}

/* Addresses first, memory for some of them, nothing again, and then no addresses. */
static void
test_reserving(void)
{
    const size_t page = (size_t)berthi_sys_page_bytes();
    char *const memory = berthi_sys_reserve(3 * page);
    unsigned char resident[3];
    int ends[2];

    T_REQUIRE(memory != NULL && pipe(ends) == 0);
    CHECK_EQ(write(ends[1], memory + page, 1), -1);
    CHECK_EQ(errno, EFAULT);
    CHECK_EQ(berthi_sys_reserve_use(memory + page, page), 0);
    CHECK_EQ(memory[page] + memory[2 * page - 1], 0);
    memory[page] = 1;
    CHECK_EQ(write(ends[1], memory + page - 1, 1), -1);
    CHECK_EQ(write(ends[1], memory + 2 * page, 1), -1);
    berthi_sys_reserve_drop(memory + page, page);
    CHECK_EQ(write(ends[1], memory + page, 1), -1);
    CHECK_EQ(berthi_sys_reserve_use(memory + page, page), 0);
    CHECK_EQ(memory[page], 0);
    berthi_sys_reserve_end(memory, 3 * page);
    CHECK_EQ(mincore(memory, 3 * page, resident), -1);
    CHECK_EQ(errno, ENOMEM);
    CHECK(berthi_sys_reserve(SIZE_MAX / 2) == NULL);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK(berthi_sys_reserve(page) == NULL);
    CHECK_EQ(berthi_sys_reserve_use(ends, page), -1);
    CHECK_EQ(errno, ENOMEM);
    berthi_fault_disarm();
    close(ends[0]);
    close(ends[1]);
}

/* Small ones are of their own size, large ones end with a large page. */
static void
test_mapping_ends(void)
{
    static const struct {
        size_t bytes;
        size_t mapped;
    } cases[] = { { 1 << 20, 1 << 20 },       { (2 << 20) - 4096, (2 << 20) - 4096 },
                  { 2 << 20, 2 << 20 },       { (2 << 20) + 1, 4 << 20 },
                  { (6 << 20) - 1, 6 << 20 }, { 6 << 20, 6 << 20 } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char *const memory = berthi_sys_map(cases[i].bytes);
        unsigned char *const last = memory + cases[i].mapped - 4096;
        unsigned char state[2];

        T_REQUIRE(memory != NULL);
        memory[cases[i].bytes - 1] = 1;
        CHECK_EQ(mincore(last, 4096, state), 0);
        berthi_sys_unmap(memory, cases[i].bytes);
        CHECK(mincore(memory, 4096, state) == -1 && errno == ENOMEM);
        CHECK(mincore(last, 4096, state) == -1 && errno == ENOMEM);
    }
}

static void
test_process(void)
{
    uint32_t cores = 0;
    cpu_set_t mask;
    unsigned char random[2][256];

    CHECK_EQ(berthi_sys_affinity(&cores), 0);
    T_REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
    CHECK_EQ(cores, CPU_COUNT(&mask));
    CHECK_EQ(berthi_sys_page_bytes(), sysconf(_SC_PAGESIZE));
    CHECK_EQ(berthi_sys_process_id(), getpid());
    memset(random, 0, sizeof random);
    CHECK_EQ(berthi_sys_random(random[0], 256), 0);
    CHECK_EQ(berthi_sys_random(random[1], 256), 0);
    CHECK(memcmp(random[0], random[1], 256) != 0);
}

static void
test_error_words(void)
{
    CHECK_STR(berthi_sys_error_words(ENOENT), "No such file or directory");
    CHECK_STR(berthi_sys_error_words(EIO), "Input/output error");
    CHECK_STR(berthi_sys_error_words(4711), "unknown error");
    CHECK_STR(berthi_sys_error_words(-1), "unknown error");
}

static void *
set_flag(void *user)
{
    *(int *)user = 1;
    return user;
}

static void
test_threads(void)
{
    pthread_t thread;
    int flag = 0;
    void *result = NULL;

    T_REQUIRE(berthi_sys_thread_create(&thread, 256 * 1024, set_flag, &flag) == 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == &flag);
    CHECK_EQ(flag, 1);
    CHECK_EQ(berthi_sys_thread_create(&thread, 1, set_flag, &flag), EINVAL);
}

/* A thread that is there until it may go. */
typedef struct sleeper {
    sigset_t mask; /* that it has */
    _Atomic int state;
} sleeper;

enum { BEGUN = 1, MAY_GO = 2 };

static void *
sleep_for_long(void *user)
{
    sleeper *const s = user;

    pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
    atomic_store(&s->state, BEGUN);
    while (atomic_load(&s->state) != MAY_GO)
        berthi_sys_sleep(1000000);
    return NULL;
}

static _Atomic int handled;

static void
count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

/* A server loads a model, then blocks what it waits for: no thread of ours may take that. */
static void
test_threads_leave_signals_to_the_caller(void)
{
    static const int own[] = { SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGTRAP,
                               SIGSYS,  SIGABRT, SIGPIPE, SIGPROF };
    static const int others[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGUSR2 };
    const struct timespec second = { .tv_sec = 1 };
    sleeper s = { .state = 0 };
    pthread_t thread;
    sigset_t before;
    sigset_t after;
    sigset_t awaited;

    signal(SIGUSR1, count_signal);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    T_REQUIRE(berthi_sys_thread_create(&thread, 256 * 1024, sleep_for_long, &s) == 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < SIGRTMAX; number++)
        CHECK_EQ(sigismember(&after, number), sigismember(&before, number));
    while (atomic_load(&s.state) != BEGUN)
        berthi_sys_sleep(1000000);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        CHECK_EQ(sigismember(&s.mask, own[i]), 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_EQ(sigismember(&s.mask, others[i]), 1);

    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &awaited, NULL);
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(sigtimedwait(&awaited, NULL, &second), SIGUSR1);
    CHECK_EQ(atomic_load(&handled), 0);
    atomic_store(&s.state, MAY_GO);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, SIG_DFL);
}

static uint64_t
now_of_system(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void
test_clock(void)
{
    const uint64_t before = now_of_system();
    const uint64_t now = berthi_sys_now_ns();

    CHECK_LE(before, now);
    CHECK_LE(now, now_of_system());
}

/* A busy machine may be later once, and gets more tries. */
static void
test_waiting(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint64_t took = UINT64_MAX;
    pthread_cond_t condition;

    T_REQUIRE(berthi_sys_condition_init(&condition) == 0);
    pthread_mutex_lock(&lock);
    for (int tries = 0; tries < T_CANCEL_TRIES && took >= SECOND_NS; tries++) {
        const uint64_t begin = berthi_sys_now_ns();

        CHECK_EQ(berthi_sys_condition_wait_until(&condition, &lock, begin), ETIMEDOUT);
        while (berthi_sys_condition_wait_until(&condition, &lock, begin + SECOND_NS / 50) == 0)
            continue;
        took = berthi_sys_now_ns() - begin;
        CHECK_GE(took, SECOND_NS / 50);
    }
    pthread_mutex_unlock(&lock);
    CHECK_LT(took, SECOND_NS);
    pthread_cond_destroy(&condition);
}

static void
test_events(void)
{
    const int fd = berthi_sys_event_create();
    uint64_t count = 0;

    T_REQUIRE(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(read(fd, &count, sizeof count), -1); /* not set */
    berthi_sys_event_clear(fd);                   /* returns at once */
    CHECK_EQ(berthi_sys_event_signal(fd), 0);
    CHECK_EQ(berthi_sys_event_signal(fd), 0);
    CHECK_EQ(read(fd, &count, sizeof count), 8);
    CHECK_EQ(count, 2);
    CHECK_EQ(berthi_sys_event_signal(fd), 0);
    berthi_sys_event_clear(fd);
    CHECK_EQ(read(fd, &count, sizeof count), -1);
    CHECK_EQ(errno, EAGAIN);
    count = UINT64_MAX - 1; /* no more fits */
    CHECK_EQ(write(fd, &count, sizeof count), 8);
    CHECK_EQ(berthi_sys_event_signal(fd), -1);
    CHECK_EQ(errno, EAGAIN);
    berthi_sys_close(fd);
}

static void
test_libraries(void)
{
    void *const library = berthi_sys_library_open("libm.so.6");
    double (*cosine)(double) = NULL;

    CHECK(berthi_sys_library_open("libno-such-library.so.9") == NULL);
    T_REQUIRE(library != NULL);
    T_REQUIRE(berthi_sys_library_has(library, "cos", &cosine));
    CHECK(cosine(0) == 1);
    CHECK(!berthi_sys_library_has(library, "no_such_symbol", &cosine));
    CHECK(cosine == NULL);
    berthi_sys_library_close(library);
    berthi_sys_library_close(NULL);
}

/* Calls that answer with an errno or a pointer. */
static void
test_other_results_can_fail(void)
{
    pthread_cond_t condition;
    pthread_t thread;
    int flag = 0;

    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK_EQ(berthi_sys_thread_create(&thread, 1 << 20, set_flag, &flag), EAGAIN);
    CHECK_EQ(berthi_sys_condition_init(&condition), EAGAIN);
    CHECK(berthi_sys_library_open("libm.so.6") == NULL);
    CHECK_EQ(berthi_fault_failures(BERTHI_FAULT_SYSTEM), 3);
    CHECK_EQ(berthi_sys_event_signal(-1), -1);
    CHECK_EQ(errno, EIO);
    berthi_fault_disarm();
    CHECK_EQ(flag, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_limits);
    T_RUN(test_limits_are_told_apart);
    T_RUN(test_mapping);
    T_RUN(test_reserving);
    T_RUN(test_mapping_ends);
    T_RUN(test_process);
    T_RUN(test_error_words);
    T_RUN(test_threads);
    T_RUN(test_threads_leave_signals_to_the_caller);
    T_RUN(test_clock);
    T_RUN(test_waiting);
    T_RUN(test_events);
    T_RUN(test_libraries);
    T_RUN(test_other_results_can_fail);
    T_MAIN_END;
}
