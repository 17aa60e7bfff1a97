/* SPDX-License-Identifier: Apache-2.0 */
/* cancelled.c - jobs that are cancelled at each moment; see cancelled.h. */
#include "tests/cancelled.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "tests/t.h"

#define MOST_REPEATS 20u

/* The job may not have begun, or have ended, when its moment comes. */
static void
cancel(void *user)
{
    cancelled_moments *const c = user;

    pthread_mutex_lock(&c->lock);
    c->is_due = true;
    if (c->job != NULL)
        berth_job_cancel(c->job);
    pthread_mutex_unlock(&c->lock);
}

static uint64_t
random_below(cancelled_moments *c, uint64_t below)
{
    c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below > 0 ? (c->random >> 33) % below : 0;
}

void
cancelled_begin(cancelled_moments *c, uint32_t moments, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->step = moments; /* until calls have been counted */
    c->random = seed;
    c->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

void
cancelled_end(cancelled_moments *c)
{
    T_NOTE("%u of %u jobs of about %u calls were cancelled", c->times, c->times + c->whole,
           (unsigned)c->calls);
    CHECK_GT(c->times, 0);
    pthread_mutex_destroy(&c->lock);
}

static uint64_t
count_calls(void)
{
    uint64_t calls = 0;

    for (int kind = 0; kind < BERTHI_FAULT_KIND_COUNT; kind++)
        calls += berthi_fault_calls((berthi_fault_kind)kind);
    return calls;
}

/* Through all moments once more: so far each job had been done before it was cancelled. */
static bool
is_again(cancelled_moments *c)
{
    if (c->times > 0 || c->repeats == MOST_REPEATS)
        return false;
    c->repeats++;
    c->at = random_below(c, c->step);
    return true;
}

bool
cancelled_next(cancelled_moments *c)
{
    if (c->is_watched) {
        c->at += 1 + random_below(c, 2 * c->step - 1);
    } else if (c->calls > 0) {
        c->step = getenv("T_THOROUGH") != NULL || c->calls < c->step ? 1 : c->calls / c->step;
        c->is_watched = true;
        c->at = random_below(c, c->step);
    }
    if (c->is_watched && c->at >= c->calls && !is_again(c))
        return false;
    c->is_due = false;
    berthi_fault_disarm(); /* counts from here on */
    if (c->is_watched)
        berthi_fault_watch(c->at, cancel, c);
    return true;
}

void
cancelled_await(cancelled_moments *c, berth_status status, berth_job *job)
{
    if (status == BERTH_OK) {
        pthread_mutex_lock(&c->lock);
        c->job = job;
        if (c->is_due)
            berth_job_cancel(job);
        pthread_mutex_unlock(&c->lock);
        (void)berth_job_wait(job, -1);
    }
    if (!c->is_watched)
        c->calls = count_calls();
    berthi_fault_watch(0, NULL, NULL);
    pthread_mutex_lock(&c->lock);
    c->job = NULL;
    pthread_mutex_unlock(&c->lock);
}

bool
cancelled_check(cancelled_moments *c, berth_status status, const berth_error *error)
{
    bool is_right = status == BERTH_OK;

    if (status == BERTH_ECANCELLED)
        is_right = c->is_due && error->reason == BERTH_REASON_CANCELLED;
    if (!CHECK(is_right))
        T_NOTE("cancelled at call %u: %s", (unsigned)c->at, error->message);
    if (c->is_watched)
        *(status == BERTH_OK ? &c->whole : &c->times) += 1;
    return is_right;
}
