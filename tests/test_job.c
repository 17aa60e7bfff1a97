/* SPDX-License-Identifier: Apache-2.0 */
/* test_job.c - background work: status, progress, cancel, stalls, the end. */
#define _GNU_SOURCE

#include "loader/job.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define MS UINT64_C(1000000)

static berth_context *context;

/* What the work does, and what its hooks have seen. */
typedef struct script {
    uint64_t total;
    uint64_t steps;       /* of total / steps bytes each */
    uint64_t step_ns;     /* between them */
    uint64_t unadvanced;  /* bytes the work does not report */
    uint64_t cancel_at;   /* the hook cancels when so much is done */
    uint64_t wait_ns;     /* before the first step */
    bool is_held;         /* there, until it may go, for a minute at most */
    berth_status status;  /* what the work returns when it was not cancelled */
    bool awaits_cancel;   /* behind the last step, for ten seconds at most */
    _Atomic bool may_go;
    _Atomic bool has_ended; /* finish() has returned: no hook may run */
    _Atomic int fini_calls;
    _Atomic uint64_t hook_calls;
    _Atomic uint64_t longest_gap_ns; /* less what steps were late meanwhile */
    _Atomic uint64_t last_call_ns;
    _Atomic uint64_t last_done;
    _Atomic uint64_t late_ns; /* what steps have taken beyond what they should ... */
    _Atomic uint64_t last_late_ns; /* at the last call of the hook */
    _Atomic bool was_stalled;
    _Atomic bool went_wrong;
} script;

static int
on_progress(void *user, const berth_progress *progress)
{
    script *const s = user;
    const uint64_t now_ns = berthi_sys_now_ns();
    const uint64_t before_ns = atomic_exchange(&s->last_call_ns, now_ns);
    const uint64_t late_ns = atomic_load(&s->late_ns);
    const uint64_t from_ns = before_ns + late_ns - atomic_exchange(&s->last_late_ns, late_ns);
    const uint64_t done_before = atomic_exchange(&s->last_done, progress->done);

    if (before_ns != 0 && now_ns > from_ns + atomic_load(&s->longest_gap_ns))
        atomic_store(&s->longest_gap_ns, now_ns - from_ns);
    atomic_fetch_add(&s->hook_calls, 1);
    if (progress->done < done_before || progress->done > progress->total
        || progress->total != s->total || strcmp(progress->phase, "test") != 0
        || progress->file == NULL || progress->rate < 0 || progress->seconds < 0
        || atomic_load(&s->has_ended))
        atomic_store(&s->went_wrong, true);
    if (progress->is_stalled)
        atomic_store(&s->was_stalled, true);
    return s->cancel_at > 0 && progress->done >= s->cancel_at;
}

static void
pause_step(script *s)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    haul_pause(s->step_ns);
    atomic_fetch_add(&s->late_ns, berthi_sys_now_ns() - begin_ns - s->step_ns);
}

static berth_status
run_script(berth_job *job, void *user, berth_error *error)
{
    script *const s = user;

    berthi_job_set_file(job, "a file");
    haul_pause(s->wait_ns);
    for (uint32_t i = 0; s->is_held && !atomic_load(&s->may_go) && i < 12000; i++)
        haul_pause(5 * MS);
    for (uint64_t i = 0; i < s->steps; i++) {
        if (berthi_job_is_cancelled(job))
            return berthi_job_fail_cancelled(error);
        berthi_job_advance(job, (s->total - s->unadvanced) / s->steps);
        pause_step(s);
    }
    for (uint32_t i = 0; s->awaits_cancel && i < 2000; i++) {
        if (berthi_job_is_cancelled(job))
            break;
        haul_pause(5 * MS);
    }
    if (s->status != BERTH_OK)
        return berthi_fail(error, BERTH_REASON_IO, NULL, "the work's own failure");
    return BERTH_OK;
}

static void
fini_script(void *user)
{
    atomic_fetch_add(&((script *)user)->fini_calls, 1);
}

static berth_status
start(script *s, uint64_t stall_ns, berth_job **job, berth_error *error)
{
    const berthi_job_work work = {
        .run = run_script,
        .fini = fini_script,
        .user = s,
        .phase = "test",
        .total = s->total,
        .progress = on_progress,
        .progress_user = s,
        .stall_ns = stall_ns,
    };

    berthi_error_clear(error);
    return berthi_job_start(context, &work, job, error);
}

/* Starts and finishes; checks what holds for every job. */
static berth_status
run_job(script *s, berth_error *error)
{
    const uint64_t threads = haul_threads();
    berth_job *job;
    berth_status status;

    if (!CHECK_EQ(start(s, 0, &job, error), BERTH_OK))
        return BERTH_EINTERNAL;
    status = berth_job_finish(job, error);
    atomic_store(&s->has_ended, true);
    CHECK_LE(haul_threads(), threads);
    CHECK_EQ(error->status, status);
    CHECK_EQ(atomic_load(&s->fini_calls), 1);
    CHECK(!atomic_load(&s->went_wrong));
    return status;
}

static void
test_runs_to_its_end(void)
{
    script s = { .total = 1000, .steps = 10, .step_ns = MS };
    berth_error error;

    CHECK_EQ(run_job(&s, &error), BERTH_OK);
    CHECK_EQ(error.message[0], '\0');
    CHECK_GE(atomic_load(&s.hook_calls), 2); /* at the start, at the end */
    CHECK_EQ(atomic_load(&s.last_done), 1000);
    CHECK(!atomic_load(&s.was_stalled));
}

/* What the work skipped is done when it says so. */
static void
test_ends_at_exactly_the_total(void)
{
    script less = { .total = 1000, .steps = 1, .unadvanced = 300 };
    script none = { .total = 0, .steps = 0 };
    berth_error error;

    CHECK_EQ(run_job(&less, &error), BERTH_OK);
    CHECK_EQ(atomic_load(&less.last_done), 1000);
    CHECK_EQ(run_job(&none, &error), BERTH_OK);
    CHECK_EQ(atomic_load(&none.last_done), 0);
}

static berth_status
advance_too_far(berth_job *job, void *user, berth_error *error)
{
    berth_progress progress;

    (void)user;
    (void)error;
    berthi_job_advance(job, 150);
    berth_job_poll(job, &progress);
    CHECK_EQ(progress.done, 100);
    return BERTH_OK;
}

static void
test_never_more_than_the_total(void)
{
    const berthi_job_work work = { .run = advance_too_far, .phase = "p", .total = 100 };
    berth_job *job;

    T_REQUIRE(berthi_job_start(context, &work, &job, NULL) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
}

static void
test_failure_of_the_work(void)
{
    script s = { .total = 10, .steps = 1, .status = BERTH_EIO };
    berth_error error;

    CHECK_EQ(run_job(&s, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_IO);
    CHECK_STR(error.message, "the work's own failure");
    CHECK_EQ(berth_job_finish(NULL, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
}

/*
 * 250 ms are promised, beyond what the machine, which may be busy, has kept the work itself from
 * its steps. It may be later once, and gets more tries.
 */
static void
test_hook_every_250_ms(void)
{
    uint64_t gap_ns = UINT64_MAX;

    for (int tries = 0; tries < T_CANCEL_TRIES && gap_ns > 400 * MS; tries++) {
        script s = { .total = 100, .steps = 10, .step_ns = 50 * MS };
        const uint64_t begin_ns = berthi_sys_now_ns();
        berth_error error;

        CHECK_EQ(run_job(&s, &error), BERTH_OK);
        /* Never more often: one at the start, one at the end, one each 200 ms between. */
        CHECK_LE(atomic_load(&s.hook_calls),
                 2 + (berthi_sys_now_ns() - begin_ns) / (200 * MS));
        if (atomic_load(&s.hook_calls) >= 4)
            gap_ns = atomic_load(&s.longest_gap_ns);
    }
    CHECK_LE(gap_ns, 400 * MS);
}

static void
test_hook_cancels(void)
{
    script s = { .total = 1000, .steps = 1000, .step_ns = 10 * MS, .cancel_at = 1 };
    berth_error error;

    CHECK_EQ(run_job(&s, &error), BERTH_ECANCELLED);
    CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    CHECK_LT(atomic_load(&s.last_done), 1000);
}

/* The last report says 100 per cent, and its answer still counts. */
static void
test_cancelled_at_the_end(void)
{
    script s = { .total = 1000, .steps = 1, .cancel_at = 1000 };
    script failed = { .total = 10, .steps = 1, .cancel_at = 5,
                      .awaits_cancel = true, .status = BERTH_EIO };
    berth_error error;

    CHECK_EQ(run_job(&s, &error), BERTH_ECANCELLED);
    CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    CHECK_EQ(atomic_load(&s.last_done), 1000);
    /* Also when the work found something of its own after it. */
    CHECK_EQ(run_job(&failed, &error), BERTH_ECANCELLED);
}

static void *
cancel_it(void *job)
{
    berth_job_cancel(job);
    berth_job_cancel(job);
    return NULL;
}

/* By whoever started it, or by another thread. Returns how long it takes. */
static uint64_t
cancel_from_outside(bool is_by_another)
{
    script s = { .total = 1000, .steps = 1000, .step_ns = 5 * MS };
    berth_error error;
    berth_job *job;
    pthread_t thread;
    bool has_thread;
    uint64_t begin_ns;

    if (!CHECK_EQ(start(&s, 0, &job, &error), BERTH_OK))
        return 0;
    CHECK_EQ(berth_job_wait(job, 0), BERTH_PENDING);
    begin_ns = berthi_sys_now_ns();
    CHECK_EQ(berth_job_wait(job, 30), BERTH_PENDING);
    CHECK_GE(berthi_sys_now_ns() - begin_ns, 25 * MS);
    begin_ns = berthi_sys_now_ns();
    has_thread = is_by_another && pthread_create(&thread, NULL, cancel_it, job) == 0;
    CHECK_EQ(has_thread, is_by_another);
    if (!has_thread)
        (void)cancel_it(job);
    CHECK_EQ(berth_job_wait(job, 10000), BERTH_ECANCELLED);
    begin_ns = berthi_sys_now_ns() - begin_ns;
    if (has_thread)
        pthread_join(thread, NULL); /* the job is the thread's, too, until then */
    CHECK_EQ(berth_job_finish(job, &error), BERTH_ECANCELLED);
    CHECK_EQ(error.status, BERTH_ECANCELLED);
    /* Cancelled: the last report is not that everything was done. */
    CHECK_LT(atomic_load(&s.last_done), 1000);
    return begin_ns;
}

static void
test_cancel_from_outside(void)
{
    for (int is_by_another = 0; is_by_another < 2; is_by_another++) {
        uint64_t ns = UINT64_MAX;

        for (int tries = 0; tries < T_CANCEL_TRIES && ns > T_CANCEL_NS; tries++)
            ns = cancel_from_outside(is_by_another != 0);
        CHECK_LE(ns, T_CANCEL_NS);
    }
}

/* What wait() has said once stays true. */
static void
test_cancel_after_the_end(void)
{
    script s = { .total = 10, .steps = 1, .step_ns = 20 * MS };
    berth_progress progress;
    berth_error error;
    berth_job *job;

    T_REQUIRE(start(&s, 0, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, INT64_MAX), BERTH_OK); /* no overflow: it waits */
    CHECK_EQ(berth_job_wait(job, -1), BERTH_OK);
    berth_job_cancel(job);
    CHECK_EQ(berth_job_wait(job, 0), BERTH_OK);
    berth_job_poll(job, &progress);
    CHECK_EQ(progress.done, 10);
    CHECK_EQ(progress.is_stalled, 0);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
}

/* What the work saw when it wanted to take a step that cannot be undone. */
typedef struct commitment {
    bool cancel_before;
    bool cancel_after;
    _Atomic bool was_allowed;
} commitment;

static berth_status
run_commitment(berth_job *job, void *user, berth_error *error)
{
    commitment *const c = user;

    if (c->cancel_before)
        berth_job_cancel(job);
    atomic_store(&c->was_allowed, berthi_job_commit(job));
    if (c->cancel_after) {
        berth_job_cancel(job);
        CHECK(!berthi_job_is_cancelled(job));
        CHECK(berthi_job_commit(job)); /* asked twice, answered the same */
    }
    return atomic_load(&c->was_allowed) ? BERTH_OK : berthi_job_fail_cancelled(error);
}

static void
test_no_cancel_after_the_commit(void)
{
    for (int when = 0; when < 3; when++) {
        commitment c = { .cancel_before = when == 1, .cancel_after = when == 2 };
        const berthi_job_work work = { .run = run_commitment, .user = &c, .phase = "p" };
        berth_job *job;

        T_REQUIRE(berthi_job_start(context, &work, &job, NULL) == BERTH_OK);
        CHECK_EQ(berth_job_finish(job, NULL), when == 1 ? BERTH_ECANCELLED : BERTH_OK);
        CHECK_EQ(atomic_load(&c.was_allowed), when != 1);
    }
}

static void
test_stall_is_noticed_and_ends(void)
{
    script s = { .total = 100, .steps = 3, .is_held = true, .step_ns = 10 * MS };
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_progress progress;
    berth_error error;
    berth_job *job;
    double seconds;

    T_REQUIRE(start(&s, 50 * MS, &job, &error) == BERTH_OK);
    berth_job_poll(job, &progress);
    /* Unless it took this thread longer to come to ask. */
    CHECK(!progress.is_stalled || berthi_sys_now_ns() - begin_ns > 50 * MS);
    haul_pause(60 * MS);
    berth_job_poll(job, &progress);
    seconds = (double)(berthi_sys_now_ns() - begin_ns) / 1e9;
    CHECK_EQ(progress.is_stalled, 1);
    CHECK_STR(progress.file, "a file");
    CHECK_STR(progress.phase, "test");
    CHECK_EQ(progress.total, 100);
    CHECK_EQ(progress.done, 0);
    CHECK(progress.seconds >= 0.06 && progress.seconds <= seconds);
    for (uint32_t i = 0; i < 4000 && !atomic_load(&s.was_stalled); i++)
        haul_pause(5 * MS);
    CHECK(atomic_load(&s.was_stalled)); /* reports say it, too */
    atomic_store(&s.may_go, true);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
}

static void
test_default_patience(void)
{
    script s = { .total = 100, .steps = 1, .wait_ns = 100 * MS };
    berth_error error;

    CHECK_EQ(run_job(&s, &error), BERTH_OK);
    CHECK(!atomic_load(&s.was_stalled));
}

/* Of the last three seconds: here from the start, whenever the first report came. */
static void
check_rate(berth_job *job)
{
    berth_progress progress;
    double pace;

    berth_job_poll(job, &progress);
    pace = (double)progress.done / progress.seconds;
    CHECK_GT(progress.done, 0);
    if (progress.seconds < 2.5)
        CHECK(progress.rate >= pace * (1 - 1e-9) && progress.rate <= pace * (1 + 1e-9));
}

static void
test_rate(void)
{
    script s = { .total = 30, .steps = 30, .step_ns = 10 * MS };
    berth_progress progress;
    berth_error error;
    berth_job *job;

    T_REQUIRE(start(&s, 0, &job, &error) == BERTH_OK);
    do {
        haul_pause(50 * MS);
        berth_job_poll(job, &progress);
    } while (progress.done == 0);
    check_rate(job);
    CHECK_EQ(berth_job_wait(job, -1), BERTH_OK);
    check_rate(job);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
}

static void *
wait_in_thread(void *job)
{
    return (void *)(intptr_t)(berth_job_wait(job, -1) == BERTH_OK);
}

static void
test_several_wait(void)
{
    script s = { .total = 10, .steps = 1, .step_ns = 50 * MS };
    pthread_t threads[3];
    berth_error error;
    berth_job *job;
    void *result;

    T_REQUIRE(start(&s, 0, &job, &error) == BERTH_OK);
    for (int i = 0; i < 3; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, wait_in_thread, job) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &result);
        CHECK(result != NULL);
    }
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
}

static berth_status
do_nothing(berth_job *job, void *user, berth_error *error)
{
    (void)user;
    (void)error;
    berthi_job_advance(job, 0);
    return BERTH_OK;
}

static void
test_work_without_hooks(void)
{
    const berthi_job_work work = { .run = do_nothing, .phase = "p" };
    berth_progress progress;
    berth_job *job;

    T_REQUIRE(berthi_job_start(context, &work, &job, NULL) == BERTH_OK);
    berth_job_poll(job, &progress);
    CHECK_STR(progress.file, "");
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
}

static _Atomic int fault_finis;

static void
count_fini(void *user)
{
    (void)user;
    atomic_fetch_add(&fault_finis, 1);
}

static berth_status
use_once(void *user, berth_context *own_context, berth_error *error)
{
    const berthi_job_work work = {
        .run = do_nothing, .fini = count_fini, .user = user, .phase = "p"
    };
    berth_job *job = (berth_job *)user;
    berth_status status;

    atomic_store(&fault_finis, 0);
    status = berthi_job_start(own_context, &work, &job, error);
    if (status == BERTH_OK)
        status = berth_job_finish(job, error);
    else
        CHECK(job == NULL);
    CHECK_EQ(atomic_load(&fault_finis), 1);
    return status;
}

static void
test_every_call_can_fail(void)
{
    const fault_counts counts = fault_loop("job", use_once, context);

    CHECK_EQ(counts.memory, 2 * 1);
    CHECK_EQ(counts.system, 2 * 3); /* condition, runner, ticker */
    CHECK_EQ(counts.survived, 0);
}

static bool
is_readable(int descriptor, int milliseconds)
{
    struct pollfd wanted = { .fd = descriptor, .events = POLLIN };

    return poll(&wanted, 1, milliseconds) == 1 && (wanted.revents & POLLIN) != 0;
}

/* For event loops: readable when the job has ended, and not before. */
static void
test_descriptor(void)
{
    script s = { .total = 10, .steps = 1, .is_held = true };
    const int fds = fixture_open_fds();
    int descriptor, again;
    berth_error error;
    berth_job *job;

    T_REQUIRE(start(&s, 0, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_descriptor(job, &descriptor, &error), BERTH_OK);
    CHECK(!is_readable(descriptor, 0));
    CHECK_EQ(berth_job_descriptor(job, &again, &error), BERTH_OK);
    CHECK_EQ(again, descriptor);
    atomic_store(&s.may_go, true);
    CHECK(is_readable(descriptor, 20000));
    CHECK_EQ(berth_job_wait(job, 0), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(fixture_open_fds(), fds);
}

/* At a moment of the library's: whether it answers another thread that asks for a job. */
typedef struct question {
    berth_job *job;
    pthread_t asker;
    bool is_asked;
    _Atomic bool is_answered;
    bool is_answered_in_time;
    berth_status status; /* the answer */
} question;

static void *
ask(void *argument)
{
    question *const q = argument;
    berth_progress progress;

    berth_job_poll(q->job, &progress);
    q->status = berth_job_wait(q->job, 0);
    atomic_store(&q->is_answered, true);
    return NULL;
}

static void
await_answer(void *user)
{
    question *const q = user;

    q->is_asked = pthread_create(&q->asker, NULL, ask, q) == 0;
    for (uint32_t i = 0; i < 1000 && !atomic_load(&q->is_answered); i++)
        haul_pause(5 * MS);
    q->is_answered_in_time = atomic_load(&q->is_answered);
}

/* At the `nth` call behind the work. PENDING: it was none after the end. */
static berth_status
ask_at(uint64_t nth)
{
    script s = { .total = 10, .steps = 1, .is_held = true };
    question q = { .status = BERTH_PENDING };
    int descriptor;
    berth_error error;

    if (!CHECK_EQ(start(&s, 0, &q.job, &error), BERTH_OK))
        return BERTH_EIO;
    CHECK_EQ(berth_job_descriptor(q.job, &descriptor, &error), BERTH_OK);
    berthi_fault_watch(nth, await_answer, &q);
    atomic_store(&s.may_go, true);
    CHECK(is_readable(descriptor, 60000));
    berthi_fault_watch(0, NULL, NULL);
    if (q.is_asked) {
        CHECK_EQ(pthread_join(q.asker, NULL), 0);
        CHECK(q.is_answered_in_time);
    }
    CHECK_EQ(berth_job_finish(q.job, &error), BERTH_OK);
    return q.status;
}

/*
 * Whoever hears of the end asks at once what has become of the job: who tells of it has no
 * lock, for he may have lost the processor to the one that was woken.
 */
static void
test_told_without_a_lock(void)
{
    uint64_t nth = 0;

    while (nth < 8 && ask_at(nth) == BERTH_PENDING)
        nth++;
    CHECK_LT(nth, 8);
}

/* Asked for when it is over already. */
static void
test_late_descriptor(void)
{
    script s = { .total = 10, .steps = 1 };
    int descriptor;
    berth_job *job;
    berth_error error;

    T_REQUIRE(start(&s, 0, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, -1), BERTH_OK);
    CHECK_EQ(berth_job_descriptor(job, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_job_descriptor(NULL, &descriptor, &error), BERTH_EINVAL);
    CHECK_EQ(descriptor, -1);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_EQ(berth_job_descriptor(job, &descriptor, &error), BERTH_EIO);
    berthi_fault_disarm();
    CHECK_EQ(descriptor, -1);
    CHECK_EQ(berth_job_descriptor(job, &descriptor, &error), BERTH_OK);
    CHECK(is_readable(descriptor, 0));
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
}

/* What was not said when it ended, or not by the first call, a later one says. */
static void
test_descriptor_that_was_not_told(void)
{
    script s = { .total = 10, .steps = 1 };
    const int fds = fixture_open_fds();
    int descriptor;
    berth_job *job;
    berth_error error;

    T_REQUIRE(start(&s, 0, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, -1), BERTH_OK);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 1, false);
    CHECK_EQ(berth_job_descriptor(job, &descriptor, &error), BERTH_EIO);
    berthi_fault_disarm();
    CHECK_CONTAINS(error.message, "telling that a job has ended");
    CHECK_EQ(descriptor, -1);
    CHECK_EQ(berth_job_descriptor(job, &descriptor, &error), BERTH_OK);
    CHECK(is_readable(descriptor, 0));
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(fixture_open_fds(), fds);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    /* A sanitizer starts a thread of its own beside the first one. */
    CHECK_EQ(use_once(NULL, context, NULL), BERTH_OK);
    T_RUN(test_runs_to_its_end);
    T_RUN(test_ends_at_exactly_the_total);
    T_RUN(test_never_more_than_the_total);
    T_RUN(test_failure_of_the_work);
    T_RUN(test_hook_every_250_ms);
    T_RUN(test_hook_cancels);
    T_RUN(test_cancelled_at_the_end);
    T_RUN(test_cancel_from_outside);
    T_RUN(test_cancel_after_the_end);
    T_RUN(test_no_cancel_after_the_commit);
    T_RUN(test_stall_is_noticed_and_ends);
    T_RUN(test_default_patience);
    T_RUN(test_rate);
    T_RUN(test_several_wait);
    T_RUN(test_work_without_hooks);
    T_RUN(test_descriptor);
    T_RUN(test_told_without_a_lock);
    T_RUN(test_late_descriptor);
    T_RUN(test_descriptor_that_was_not_told);
    T_RUN(test_every_call_can_fail);
    berth_context_destroy(context);
    T_MAIN_END;
}
