/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c - see interrupt.h. A handler has no other door than globals. */
#define _POSIX_C_SOURCE 200809L

#include "tools/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "loader/berth.h"

#define REMOVED_MAX 4

/* Asked on threads of the job too: lock-free, so that a handler may set them. */
static atomic_int is_job_running;
static atomic_int was_signalled;
static const char *_Atomic removed[REMOVED_MAX]; /* NULL: free */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_POINTER_LOCK_FREE == 2,
               "a handler must not meet a lock");

static void
on_signal(int number)
{
    (void)number;
    if (atomic_load(&is_job_running)) {
        atomic_store(&was_signalled, true);
        return;
    }
    for (size_t i = 0; i < REMOVED_MAX; i++) {
        const char *const path = atomic_load(&removed[i]);

        if (path != NULL)
            unlink(path);
    }
    _exit(-BERTH_ECANCELLED);
}

void
interrupt_init(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        /* SA_RESTART: the library need not know */
        const struct sigaction ours = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
        struct sigaction present;

        if (sigaction(numbers[i], NULL, &present) == 0 && present.sa_handler != SIG_IGN)
            sigaction(numbers[i], &ours, NULL);
    }
    /* write() tells of a reader that left, and of a file that may not grow. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

void
interrupt_job_begin(void)
{
    atomic_store(&is_job_running, true);
}

void
interrupt_job_end(void)
{
    atomic_store(&is_job_running, false);
}

bool
interrupt_is_wanted(void)
{
    return atomic_load(&was_signalled) != 0;
}

/* Puts `to` where `from` was, if that is anywhere. */
static void
replace(const char *from, const char *to)
{
    for (size_t i = 0; i < REMOVED_MAX; i++) {
        const char *found = from;

        if (atomic_compare_exchange_strong(&removed[i], &found, to))
            return;
    }
}

void
interrupt_remove(const char *path)
{
    replace(NULL, path);
}

void
interrupt_forget(const char *path)
{
    if (path != NULL)
        replace(path, NULL);
}
