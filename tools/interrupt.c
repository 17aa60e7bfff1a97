/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c - see interrupt.h. A handler has no other door than globals. */
#define _POSIX_C_SOURCE 200809L

#include "tools/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "loader/berth.h"

static volatile sig_atomic_t is_job_running;
static volatile sig_atomic_t was_signalled;

static void
on_signal(int number)
{
    (void)number;
    if (!is_job_running)
        _exit(-BERTH_ECANCELLED);
    was_signalled = 1;
}

void
interrupt_init(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action;

        if (sigaction(numbers[i], NULL, &action) != 0 || action.sa_handler == SIG_IGN)
            continue;
        memset(&action, 0, sizeof action);
        action.sa_handler = on_signal;
        action.sa_flags = SA_RESTART; /* the library need not know */
        sigaction(numbers[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN); /* a reader that left is seen by write() */
}

void
interrupt_job_begin(void)
{
    is_job_running = 1;
}

void
interrupt_job_end(void)
{
    is_job_running = 0;
}

bool
interrupt_is_wanted(void)
{
    return was_signalled != 0;
}
