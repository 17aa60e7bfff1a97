/* SPDX-License-Identifier: Apache-2.0 */
/* test_haul.c - what tests count of their own threads; see tests/haul.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/haul.h"
#include "tests/t.h"

#define THREADS 4u

/* A thread that ends when it is told to. */
typedef struct waiting {
    pthread_t thread;
    pid_t id;
    int told[2];  /* pipes: it has begun, */
    int asked[2]; /* and may end */
} waiting;

static void *
wait_for_end(void *user)
{
    waiting *const w = user;
    char byte;

    w->id = gettid();
    CHECK_EQ(write(w->told[1], "", 1), 1);
    CHECK_EQ(read(w->asked[0], &byte, 1), 1);
    return NULL;
}

static void
begin(waiting *w)
{
    char byte;

    CHECK_EQ(pipe(w->told), 0);
    CHECK_EQ(pipe(w->asked), 0);
    CHECK_EQ(pthread_create(&w->thread, NULL, wait_for_end, w), 0);
    CHECK_EQ(read(w->told[0], &byte, 1), 1);
}

static void
join(waiting *w)
{
    CHECK_EQ(write(w->asked[1], "", 1), 1);
    CHECK_EQ(pthread_join(w->thread, NULL), 0);
    for (int i = 0; i < 2; i++) {
        close(w->told[i]);
        close(w->asked[i]);
    }
}

static void
test_threads_at_work_are_counted(void)
{
    waiting w[THREADS];
    uint64_t before;

    begin(&w[0]); /* a sanitizer begins one of its own beside the first one */
    join(&w[0]);
    before = haul_threads();
    CHECK_GE(before, 1);
    for (uint32_t i = 0; i < THREADS; i++) {
        begin(&w[i]);
        CHECK_EQ(haul_threads(), before + i + 1);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        join(&w[i]);
    CHECK_EQ(haul_threads(), before);
}

/* Follows a thread until `end` is closed, and never asks how it ended: so it stays listed. */
static int
follow(pid_t thread, int allowed, int begun, int end)
{
    char byte;

    /* Not before whom it follows has allowed it. */
    if (read(allowed, &byte, 1) != 1 || ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
        return 77;
    return write(begun, "", 1) == 1 && read(end, &byte, 1) == 0 ? 0 : 1;
}

/* A busy machine lists it for a while, too, but nobody knows when. */
static void
test_joined_threads_are_not_counted(void)
{
    int allowed[2];
    int begun[2];
    int end[2];
    bool follows;
    uint64_t before;
    int status = -1;
    pid_t follower;
    waiting w;
    char byte;

    before = haul_threads();
    begin(&w);
    CHECK_EQ(pipe(allowed), 0);
    CHECK_EQ(pipe(begun), 0);
    CHECK_EQ(pipe(end), 0);
    follower = fork();
    T_REQUIRE(follower >= 0);
    if (follower == 0) {
        close(end[1]);
        _exit(follow(w.id, allowed[0], begun[1], end[0]));
    }
    close(begun[1]);
    (void)prctl(PR_SET_PTRACER, follower, 0, 0, 0);
    CHECK_EQ(write(allowed[1], "", 1), 1);
    follows = read(begun[0], &byte, 1) == 1;
    join(&w);
    CHECK_LE(haul_threads(), before);
    close(end[1]);
    CHECK_EQ(waitpid(follower, &status, 0), follower);
    close(allowed[0]);
    close(allowed[1]);
    close(begun[0]);
    close(end[0]);
    if (!follows)
        T_SKIP("nobody may follow a thread here");
    CHECK_EQ(status, 0);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_threads_at_work_are_counted);
    T_RUN(test_joined_threads_are_not_counted);
    return t_end();
}
