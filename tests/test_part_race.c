/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_race.c - parts that come to their end at the same moment, or are
 * killed while others are at work: somebody joins, and only once.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash.h"
#include "tests/fixture.h"
#include "tests/parted.h"
#include "tests/t.h"
#include "tests/weights.h"

static pid_t
begin_process(parted_work *w, uint32_t part, bool resume)
{
    const pid_t child = fork();
    uint32_t missing;

    if (child == 0)
        _exit(parted_run(w, part, resume, &missing) == BERTH_OK ? 0 : 1);
    return child;
}

/* Another part, or the join: a process that waits until it is told to begin. */
static struct {
    pid_t child;   /* 0: there is none */
    int begin;     /* the end of a pipe to write to */
    bool is_after; /* when the lock has been given back, not before that */
} other;

static void
begin_other(parted_work *w, uint32_t part, bool is_after)
{
    uint32_t missing;
    int pipes[2];
    char byte;

    CHECK_EQ(pipe(pipes), 0);
    other.begin = pipes[1];
    other.is_after = is_after;
    other.child = fork();
    if (other.child == 0)
        _exit(read(pipes[0], &byte, 1) == 1
                      && parted_run(w, part, false, &missing) == BERTH_OK
                  ? 0
                  : 1);
    close(pipes[0]);
}

static void
run_other(void)
{
    int how = -1;

    CHECK_EQ(write(other.begin, "", 1), 1);
    CHECK_GT(waitpid(other.child, &how, 0), 0);
    CHECK_EQ(how, 0);
    other.child = 0;
}

/* Has the folder until a while after a part has given it back. */
static struct {
    pid_t child;
    int end; /* of a pipe to write to */
    bool is_waiting;
} stranger;

static void
begin_stranger(const char *folder)
{
    int asked[2];
    int told[2];
    char byte = 0;

    CHECK_EQ(pipe(asked), 0);
    CHECK_EQ(pipe(told), 0);
    stranger.end = asked[1];
    stranger.child = fork();
    if (stranger.child == 0) {
        const int fd = open(folder, O_RDONLY | O_DIRECTORY);
        const bool has_it = fd >= 0 && syscall(SYS_flock, fd, LOCK_SH | LOCK_NB) == 0;

        if (!has_it || write(told[1], "", 1) != 1 || read(asked[0], &byte, 1) != 1)
            _exit(1);
        usleep(100000);
        _exit(0);
    }
    CHECK_EQ(read(told[0], &byte, 1), 1);
    close(asked[0]);
    close(told[0]);
    close(told[1]);
    stranger.is_waiting = true;
}

static void
end_stranger(void)
{
    int how = -1;

    CHECK_GT(waitpid(stranger.child, &how, 0), 0);
    CHECK_EQ(how, 0);
    close(stranger.end);
}

int
flock(int fd, int operation)
{
    const bool is_end = (operation & LOCK_UN) != 0;
    const bool is_moment = other.child > 0 && is_end;
    int result;

    if (is_moment && !other.is_after)
        run_other();
    result = (int)syscall(SYS_flock, fd, operation);
    if (is_moment && other.is_after)
        run_other();
    if (stranger.is_waiting && is_end)
        CHECK_EQ(write(stranger.end, "", 1), 1);
    stranger.is_waiting = stranger.is_waiting && !is_end;
    return result;
}

/* Who has the folder then, and will not join, has it for a moment: the last part waits. */
static void
test_last_while_a_stranger_looks(void)
{
    parted_work w = parted_prepare(&parted_scenes[0],
                                   fixture_format("%s/out", fixture_folder()), false);
    uint32_t missing;

    CHECK_EQ(parted_run(&w, 2, false, &missing), BERTH_OK);
    CHECK_EQ(missing, 1);
    begin_stranger(w.folder);
    CHECK_EQ(parted_run(&w, 1, false, &missing), BERTH_OK);
    CHECK_EQ(missing, 0);
    CHECK(converted_is_same(parted_scenes[0].whole, w.folder));
    end_stranger();
}

/*
 * The second part finishes after the first one has counted, and finds the folder
 * taken by it: then the first one has to join.
 */
static void
test_last_while_another_leaves(void)
{
    parted_work w = parted_prepare(&parted_scenes[0],
                                   fixture_format("%s/out", fixture_folder()), false);
    uint32_t missing;

    begin_other(&w, 2, false);
    CHECK_EQ(parted_run(&w, 1, false, &missing), BERTH_OK);
    close(other.begin);
    CHECK_EQ(other.child, 0);
    CHECK_EQ(missing, 0);
    CHECK(converted_is_same(parted_scenes[0].whole, w.folder));
}

/* Both were last, and one of them has joined before the other one tries. */
static void
test_joined_by_another(void)
{
    for (int has_old = 0; has_old < 2; has_old++) {
        parted_work w = parted_prepare(
            &parted_scenes[0], fixture_format("%s/out", fixture_folder()), has_old > 0);
        uint32_t missing;

        CHECK_EQ(parted_run(&w, 2, false, &missing), BERTH_OK);
        CHECK_EQ(missing, 1);
        begin_other(&w, 0, true);
        CHECK_EQ(parted_run(&w, 1, false, &missing), BERTH_OK);
        close(other.begin);
        CHECK_EQ(other.child, 0);
        CHECK_EQ(missing, 0);
        CHECK(converted_is_same(parted_scenes[0].whole, w.folder));
    }
}

/* Some parts are killed while all are at work; those alone are begun once more. */
static void
test_killed_among_others(void)
{
    const char *const above = fixture_folder();
    const uint32_t rounds = crash_step(2) == 1 ? 1000 : 60;
    uint64_t state = 41;
    int killed = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        const parted_scene *const s = &parted_scenes[round % PARTED_SCENES];
        parted_work w =
            parted_prepare(s, fixture_format("%s/%u", above, round), round % 4 == 0);
        const uint32_t victims = (uint32_t)weights_random(&state);
        pid_t children[8];
        bool is_good = true;
        uint32_t missing = 1;

        for (uint32_t part = 1; part <= s->parts; part++)
            children[part] = begin_process(&w, part, false);
        usleep((useconds_t)(weights_random(&state) % 6000));
        for (uint32_t part = 1; part <= s->parts; part++)
            if ((victims >> part) % 2 > 0)
                kill(children[part], SIGKILL);
        for (uint32_t part = 1; part <= s->parts; part++) {
            int how = 0;

            is_good = waitpid(children[part], &how, 0) > 0 && is_good;
            killed += WIFSIGNALED(how);
            children[part] = WIFSIGNALED(how) ? -1 : 0;
            is_good = CHECK(WIFSIGNALED(how) || WEXITSTATUS(how) == 0) && is_good;
        }
        for (uint32_t part = 1; part <= s->parts && is_good; part++)
            if (children[part] < 0)
                is_good = CHECK_EQ(parted_run(&w, part, true, &missing), BERTH_OK);
        is_good = is_good && CHECK(converted_is_same(s->whole, w.folder));
        if (!is_good) {
            T_NOTE("%s, round %u: %s %s", s->name, round, w.folder, w.error.message);
            return;
        }
        fixture_remove(w.folder);
    }
    T_NOTE("killed %d parts in %u rounds", killed, rounds);
}

int
main(int argc, char **argv)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    T_MAIN_BEGIN(argc, argv);
    parted_make_models();
    T_RUN(test_last_while_another_leaves);
    T_RUN(test_joined_by_another);
    T_RUN(test_last_while_a_stranger_looks);
    T_RUN(test_killed_among_others);
    T_MAIN_END;
}
