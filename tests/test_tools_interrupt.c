/* SPDX-License-Identifier: Apache-2.0 */
/* test_tools_interrupt.c - what a signal does before, during and after a job. */
#define _POSIX_C_SOURCE 200809L

#include "tools/interrupt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/t.h"

static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

/* The status of a process that does nothing but this; -1: a signal has ended it. */
static int
status_of(int (*function)(int number), int number)
{
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            signal(numbers[i], SIG_DFL);
        _exit(function(number));
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int
signal_without_job(int number)
{
    interrupt_init();
    raise(number);
    return 1;
}

static int
signal_behind_job(int number)
{
    interrupt_init();
    interrupt_job_begin();
    interrupt_job_end();
    raise(number);
    return 1;
}

static int
signal_in_job(int number)
{
    const bool was_wanted = (interrupt_init(), interrupt_is_wanted());

    interrupt_job_begin();
    raise(number);
    return was_wanted ? 1 : interrupt_is_wanted() ? 0 : 2;
}

static int
ignored_signal(int number)
{
    signal(number, SIG_IGN);
    interrupt_init();
    raise(number);
    return interrupt_is_wanted() ? 1 : 0;
}

static int
restarts(int number)
{
    struct sigaction action;

    interrupt_init();
    sigaction(number, NULL, &action);
    return (action.sa_flags & SA_RESTART) != 0 ? 0 : 1;
}

static int
left_reader(int number)
{
    int ends[2];

    (void)number;
    interrupt_init();
    if (pipe(ends) != 0 || close(ends[0]) != 0)
        return 1;
    return write(ends[1], "x", 1) < 0 ? 0 : 2;
}

static void
test_signals(void)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        CHECK_EQ(status_of(signal_without_job, numbers[i]), 130);
        CHECK_EQ(status_of(signal_behind_job, numbers[i]), 130);
        CHECK_EQ(status_of(signal_in_job, numbers[i]), 0);
        CHECK_EQ(status_of(ignored_signal, numbers[i]), 0);
        CHECK_EQ(status_of(restarts, numbers[i]), 0);
    }
}

static void
test_left_reader(void)
{
    CHECK_EQ(status_of(left_reader, 0), 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_signals);
    T_RUN(test_left_reader);
    T_MAIN_END;
}
