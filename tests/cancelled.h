/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cancelled.h - jobs that are cancelled at each moment: at the n-th allocation, system call or
 * call of a device, whoever makes it.
 *
 *     cancelled_begin(&c, 40, 1);
 *     while (cancelled_next(&c)) {
 *         status = berth_..._start(..., &job, &error);
 *         cancelled_await(&c, status, job);
 *         status = berth_job_finish(job, &error);
 *         (void)cancelled_check(&c, status, &error);
 *         ... and whatever is to be as before, or as after
 *     }
 *     cancelled_end(&c);
 */
#ifndef BERTH_TESTS_CANCELLED_H
#define BERTH_TESTS_CANCELLED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

typedef struct cancelled_moments {
    uint64_t calls;     /* of a whole job, about; 0: nobody knows yet */
    uint64_t at;        /* the moment of this time */
    uint64_t step;      /* from one to the next */
    uint64_t random;
    uint32_t times;     /* jobs that were cancelled, */
    uint32_t whole;     /* and that had been done all the same */
    uint32_t repeats;   /* of all moments */
    bool is_watched;    /* this time is one */
    pthread_mutex_t lock; /* of both below */
    berth_job *job;     /* NULL: it has not begun, or has ended */
    bool is_due;        /* the moment has come */
} cancelled_moments;

/* About so many moments of a job, spread over all of it; all of them where T_THOROUGH is set. */
void cancelled_begin(cancelled_moments *c, uint32_t moments, uint64_t seed);
void cancelled_end(cancelled_moments *c);
/* The first time nothing is cancelled, and calls are counted. False: there are no more. */
bool cancelled_next(cancelled_moments *c);
/*
 * Until the job that was begun has ended; it is still to be finished. Calls behind this are no
 * moments. Nothing where `status` says that it was not begun.
 */
void cancelled_await(cancelled_moments *c, berth_status status, berth_job *job);
/* BERTH_OK, or ECANCELLED and cancelled this time; counts it. */
bool cancelled_check(cancelled_moments *c, berth_status status, const berth_error *error);

#endif
