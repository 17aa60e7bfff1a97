/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - the thread that does a job's work and the one that watches it.
 *
 *   start ──▶ watcher: report, sample the rate, every 200 ms ──▶ last report ──▶ status
 *                │  ▲                                              published ──▶ finish
 *             worker: work.run()
 *
 * The watcher owns the worker: when the status is published no hook runs any more, and
 * the thread that worked is gone. What the kernel does at its end can take long (a ring
 * of io_uring is torn down then); finish() waits for the watcher alone, which has
 * nothing left to do. A cancel that comes before that moment decides the status, unless
 * the work could not take back what it did; one that comes later changes nothing.
 */
#include "loader/job.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/sys.h"

#define TICK_NS UINT64_C(200000000)
#define STALL_NS UINT64_C(5000000000)
#define RATE_SAMPLES 16 /* of one tick each: the last 3 seconds */
#define STACK_BYTES (1024u * 1024u) /* callers' functions run on it */

typedef struct sample {
    uint64_t at_ns;
    uint64_t done;
} sample;

/* Whichever comes first, a cancel or a commit, stays. */
typedef enum decision { DECISION_OPEN, DECISION_CANCELLED, DECISION_COMMITTED } decision;

struct berth_job {
    berth_context *context;
    berthi_job_work work;
    uint64_t start_ns;
    pthread_t watcher;

    _Atomic uint64_t total;
    _Atomic uint64_t done;
    _Atomic uint64_t moved_ns; /* when `done` last grew */
    _Atomic int decided; /* decision */
    bool keeps_error;    /* the work's, and the publisher's behind it */
    const char *_Atomic phase;
    const char *_Atomic file;

    pthread_mutex_t lock;      /* everything below */
    pthread_cond_t has_changed; /* is_run_over, is_ended */
    bool is_run_over;          /* the watcher's sign to stop */
    bool is_ended;             /* status and error are final */
    int descriptor;            /* readable then; -1: nobody asked for one */
    uint64_t end_ns;
    berth_status status;
    berth_error error;
    sample samples[RATE_SAMPLES]; /* a ring, oldest at sample_count % RATE_SAMPLES */
    uint64_t sample_count;
};

/* ------------------------------------------------------------------ reports */

/* Bytes a second between the oldest sample and now. Lock held. */
static double
current_rate(const berth_job *job, uint64_t now_ns, uint64_t done)
{
    const uint64_t count = job->sample_count;
    const sample *const oldest =
        &job->samples[count < RATE_SAMPLES ? 0 : count % RATE_SAMPLES];

    if (now_ns <= oldest->at_ns)
        return 0.0;
    return (double)(done - oldest->done) * 1e9 / (double)(now_ns - oldest->at_ns);
}

static void
add_sample(berth_job *job)
{
    pthread_mutex_lock(&job->lock);
    job->samples[job->sample_count % RATE_SAMPLES] =
        (sample){ berthi_sys_now_ns(), atomic_load(&job->done) };
    job->sample_count++;
    pthread_mutex_unlock(&job->lock);
}

void
berth_job_poll(berth_job *job, berth_progress *progress)
{
    const char *const file = atomic_load(&job->file);
    uint64_t moved_ns;
    uint64_t now_ns;
    uint64_t done;

    memset(progress, 0, sizeof *progress);
    pthread_mutex_lock(&job->lock);
    /* In this order: a sample is never newer than what it is compared with. */
    moved_ns = atomic_load(&job->moved_ns);
    done = atomic_load(&job->done);
    now_ns = job->is_ended ? job->end_ns : berthi_sys_now_ns();
    progress->rate = current_rate(job, now_ns, done);
    progress->is_stalled = !job->is_ended && now_ns > moved_ns
                           && now_ns - moved_ns > job->work.stall_ns;
    pthread_mutex_unlock(&job->lock);
    progress->phase = atomic_load(&job->phase);
    progress->file = file != NULL ? file : "";
    progress->total = atomic_load(&job->total);
    progress->done = berthi_min_u64(done, progress->total);
    progress->seconds = (double)(now_ns - job->start_ns) / 1e9;
}

static void
report(berth_job *job)
{
    berth_progress progress;

    add_sample(job);
    if (job->work.progress == NULL)
        return;
    berth_job_poll(job, &progress);
    if (job->work.progress(job->work.progress_user, &progress) != 0)
        berth_job_cancel(job);
}

/* Until the work is over. */
static void
watch(berth_job *job)
{
    uint64_t deadline_ns = berthi_sys_now_ns();
    bool is_over = false;

    while (!is_over) {
        report(job);
        /* From now, not from the last deadline: a slow hook must not be chased. */
        deadline_ns = berthi_sys_now_ns() + TICK_NS;
        pthread_mutex_lock(&job->lock);
        while (!job->is_run_over
               && berthi_sys_condition_wait_until(&job->has_changed, &job->lock,
                                                  deadline_ns)
                      == 0)
            continue;
        is_over = job->is_run_over;
        pthread_mutex_unlock(&job->lock);
    }
}

/* ------------------------------------------------------------------- running */

static berth_status
fail_thread(berth_error *error, int failure)
{
    const berthi_about about = { .system_error = failure };

    return berthi_fail(error, BERTH_REASON_NO_MEMORY, &about, "starting a thread failed");
}

/* The work on a thread of its own. */
typedef struct running {
    berth_job *job;
    berth_status status;
    berth_error error;
} running;

static void *
run_work(void *argument)
{
    running *const r = argument;
    berth_job *const job = r->job;

    r->status = job->work.run(job, job->work.user, &r->error);
    pthread_mutex_lock(&job->lock);
    job->is_run_over = true;
    pthread_mutex_unlock(&job->lock);
    pthread_cond_broadcast(&job->has_changed);
    return NULL;
}

static berth_status
run_watched(berth_job *job, berth_error *error)
{
    running r = { .job = job };
    pthread_t worker;
    int failure;

    berthi_error_clear(&r.error);
    failure = berthi_sys_thread_create(&worker, STACK_BYTES, run_work, &r);
    if (failure != 0)
        return fail_thread(error, failure);
    watch(job);
    pthread_join(worker, NULL);
    *error = r.error;
    return r.status;
}

/*
 * Whoever is woken may get this thread's processor, and asks at once: with the lock held he would
 * wait for as long as others have it. The job stays until this thread is joined.
 */
static void
publish(berth_job *job, berth_status status, const berth_error *error)
{
    int descriptor;

    pthread_mutex_lock(&job->lock);
    job->status = status;
    job->error = *error;
    if (berthi_job_is_cancelled(job) && status != BERTH_ECANCELLED && !job->keeps_error)
        job->status = berthi_job_fail_cancelled(&job->error);
    job->end_ns = berthi_sys_now_ns();
    job->is_ended = true;
    descriptor = job->descriptor;
    pthread_mutex_unlock(&job->lock);
    pthread_cond_broadcast(&job->has_changed);
    if (descriptor >= 0)
        (void)berthi_sys_event_signal(descriptor);
}

static void *
run_job(void *argument)
{
    berth_job *const job = argument;
    berth_error error;
    berth_status status;

    berthi_error_clear(&error);
    status = run_watched(job, &error);
    if (status == BERTH_OK && !berthi_job_is_cancelled(job)) {
        const uint64_t done = atomic_load(&job->done);

        if (done < atomic_load(&job->total)) /* what was skipped for good reasons */
            berthi_job_advance(job, atomic_load(&job->total) - done);
        report(job);
    }
    publish(job, status, &error);
    return NULL;
}

berth_status
berthi_job_check_start(const void *owner, const char *name, berth_job **out_job,
                       berth_error *error)
{
    berthi_error_clear(error);
    if (out_job == NULL)
        return berthi_fail_argument(error, "out_job", "is NULL");
    *out_job = NULL;
    return owner != NULL ? BERTH_OK : berthi_fail_argument(error, name, "is NULL");
}

berth_status
berthi_job_start(berth_context *context, const berthi_job_work *work, berth_job **out_job,
                 berth_error *error)
{
    berth_job *job;
    berth_status status;
    int failure;

    *out_job = NULL;
    berthi_context_sweep(context);
    job = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *job);
    if (job == NULL) {
        status = berthi_fail_memory(error, "starting a job");
        goto fail;
    }
    job->context = context;
    job->work = *work;
    atomic_init(&job->phase, work->phase);
    if (job->work.stall_ns == 0)
        job->work.stall_ns = STALL_NS;
    job->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    job->descriptor = -1;
    job->start_ns = berthi_sys_now_ns();
    atomic_init(&job->moved_ns, job->start_ns);
    atomic_init(&job->total, work->total);
    job->samples[0].at_ns = job->start_ns; /* stays: work may be over before a report is */
    job->sample_count = 1;

    failure = berthi_sys_condition_init(&job->has_changed);
    if (failure != 0) {
        status = fail_thread(error, failure);
        goto fail;
    }
    failure = berthi_sys_thread_create(&job->watcher, STACK_BYTES, run_job, job);
    if (failure != 0) {
        pthread_cond_destroy(&job->has_changed);
        status = fail_thread(error, failure);
        goto fail;
    }
    *out_job = job;
    return BERTH_OK;

fail:
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, job, sizeof *job);
    if (work->fini != NULL)
        work->fini(work->user);
    return status;
}

void *
berthi_job_user(const berth_job *job,
                berth_status (*run)(berth_job *job, void *user, berth_error *error))
{
    return job->work.run == run ? job->work.user : NULL;
}

/* -------------------------------------------------------- from inside the work */

void
berthi_job_touch(berth_job *job)
{
    atomic_store(&job->moved_ns, berthi_sys_now_ns());
}

void
berthi_job_advance(berth_job *job, uint64_t bytes)
{
    if (bytes == 0)
        return;
    atomic_fetch_add(&job->done, bytes);
    berthi_job_touch(job);
}

void
berthi_job_set_phase(berth_job *job, const char *phase)
{
    atomic_store(&job->phase, phase);
}

void
berthi_job_set_total(berth_job *job, uint64_t total)
{
    atomic_store(&job->total, total);
}

void
berthi_job_set_file(berth_job *job, const char *file)
{
    atomic_store(&job->file, file);
}

bool
berthi_job_is_cancelled(const berth_job *job)
{
    return atomic_load(&job->decided) == DECISION_CANCELLED;
}

/* True when this was the first decision, or the same as the first. */
static bool
decide(berth_job *job, decision wanted)
{
    int found = DECISION_OPEN;

    return atomic_compare_exchange_strong(&job->decided, &found, wanted)
           || found == (int)wanted;
}

bool
berthi_job_commit(berth_job *job)
{
    return decide(job, DECISION_COMMITTED);
}

void
berthi_job_keep_error(berth_job *job)
{
    job->keeps_error = true;
}

berth_status
berthi_job_fail_cancelled(berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_CANCELLED, NULL, "cancelled, nothing was kept");
}

/* ------------------------------------------------------------- from outside */

void
berth_job_cancel(berth_job *job)
{
    (void)decide(job, DECISION_CANCELLED);
}

berth_status
berth_job_wait(berth_job *job, int64_t milliseconds)
{
    const uint64_t now_ns = berthi_sys_now_ns();
    uint64_t deadline_ns = UINT64_MAX;
    berth_status status;

    if (milliseconds >= 0) {
        if (!berthi_can_mul((uint64_t)milliseconds, 1000000, &deadline_ns)
            || !berthi_can_add(deadline_ns, now_ns, &deadline_ns))
            deadline_ns = UINT64_MAX;
    }
    pthread_mutex_lock(&job->lock);
    while (!job->is_ended) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&job->has_changed, &job->lock);
        else if (berthi_sys_condition_wait_until(&job->has_changed, &job->lock,
                                                 deadline_ns)
                 != 0)
            break;
    }
    status = job->is_ended ? job->status : BERTH_PENDING;
    pthread_mutex_unlock(&job->lock);
    return status;
}

berth_status
berth_job_descriptor(berth_job *job, int *out_descriptor, berth_error *error)
{
    berth_status status = BERTH_OK;

    berthi_error_clear(error);
    if (out_descriptor == NULL)
        return berthi_fail_argument(error, "out_descriptor", "is NULL");
    *out_descriptor = -1;
    if (job == NULL)
        return berthi_fail_argument(error, "job", "is NULL");
    pthread_mutex_lock(&job->lock);
    if (job->descriptor < 0)
        job->descriptor = berthi_sys_event_create();
    /* Once more with each call: a signal that has failed is made up for. */
    if (job->descriptor < 0)
        status = berthi_fail_system(error, errno, NULL, "making a descriptor of a job");
    else if (job->is_ended && berthi_sys_event_signal(job->descriptor) != 0)
        status = berthi_fail_system(error, errno, NULL, "telling that a job has ended");
    if (status == BERTH_OK)
        *out_descriptor = job->descriptor;
    pthread_mutex_unlock(&job->lock);
    return status;
}

berth_status
berth_job_finish(berth_job *job, berth_error *error)
{
    berth_context *context;
    berth_status status;

    berthi_error_clear(error);
    if (job == NULL)
        return BERTH_OK;
    pthread_join(job->watcher, NULL);
    status = job->status;
    if (error != NULL)
        *error = job->error;
    if (job->work.fini != NULL)
        job->work.fini(job->work.user);
    if (job->descriptor >= 0)
        (void)berthi_sys_close(job->descriptor);
    pthread_cond_destroy(&job->has_changed);
    pthread_mutex_destroy(&job->lock);
    context = job->context;
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, job, sizeof *job);
    berthi_context_sweep(context);
    return status;
}
