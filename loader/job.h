/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - work in the background: one thread that runs it, progress, cancel,
 * the first error. Verify, quantize, load: every long call is one of these.
 *
 * One thread runs `run`; another calls the progress hook at least every
 * 250 ms meanwhile and notices stalls. finish() joins both.
 */
#ifndef BERTH_LOADER_JOB_H
#define BERTH_LOADER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"

typedef struct berthi_job_work {
    /* Does the work on the job's thread; what it returns is the job's status. */
    berth_status (*run)(berth_job *job, void *user, berth_error *error);
    /* Frees `user`; called once, by finish or by a start that failed. May be NULL. */
    void (*fini)(void *user);
    void *user;
    const char *phase; /* a constant */
    uint64_t total;    /* bytes */
    berth_progress_function progress;
    void *progress_user;
    uint64_t stall_ns; /* without movement, before it is called a stall; 0: 5 s */
} berthi_job_work;

/*
 * What every start does first: nothing of an earlier call is left in *out_job and `error`.
 * ARGUMENT: `out_job` is NULL, or `owner`, the argument of that name.
 */
berth_status berthi_job_check_start(const void *owner, const char *name,
                                    berth_job **out_job, berth_error *error);
/* Copies `work`. On failure `user` has been freed with `fini`. */
berth_status berthi_job_start(berth_context *context, const berthi_job_work *work,
                              berth_job **out_job, berth_error *error);

/* What was started with this `run`; NULL: something else was. */
void *berthi_job_user(const berth_job *job,
                      berth_status (*run)(berth_job *job, void *user, berth_error *error));

/* From any thread of the work: */
void berthi_job_advance(berth_job *job, uint64_t bytes);
/* Something moves that is no byte of its. */
void berthi_job_touch(berth_job *job);
/* A constant; what the job was started with, until then. */
void berthi_job_set_phase(berth_job *job, const char *phase);
/* How many bytes there will be, where the start did not know. Once, before any has advanced. */
void berthi_job_set_total(berth_job *job, uint64_t total);
/* `file` must outlive the job. */
void berthi_job_set_file(berth_job *job, const char *file);
/* Whoever waits looks so often, at least, whether he is cancelled. */
#define BERTHI_CANCEL_NS UINT64_C(50000000)
/* True after a cancel from outside: stop soon, return CANCELLED. */
bool berthi_job_is_cancelled(const berth_job *job);
/*
 * Before the step that cannot be undone: false after a cancel, the step must
 * not be taken. After true a cancel changes nothing any more.
 */
bool berthi_job_commit(berth_job *job);
/*
 * The work could not take back what it did: the job ends with the work's error, also after a
 * cancel.
 */
void berthi_job_keep_error(berth_job *job);
/* The status and error of a cancelled job. */
berth_status berthi_job_fail_cancelled(berth_error *error);

#endif
