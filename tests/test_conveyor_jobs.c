/* SPDX-License-Identifier: Apache-2.0 */
/* test_conveyor_jobs.c - runs as jobs: progress, cancels at any moment, stalls. */
#include "loader/conveyor.h"

#include <string.h>

#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define MS UINT64_C(1000000)

typedef struct job_run {
    haul *h;
    uint64_t cancel_at;  /* bytes; 0: never */
    _Atomic uint64_t last_done;
    _Atomic bool went_back;
    _Atomic bool was_stalled;
    char stalled_file[256]; /* the first of a stall, and the last */
    char last_file[256];
} job_run;

static int
on_progress(void *user, const berth_progress *progress)
{
    job_run *const r = user;

    if (progress->done < atomic_exchange(&r->last_done, progress->done))
        atomic_store(&r->went_back, true);
    if (progress->is_stalled && !atomic_load(&r->was_stalled)) {
        strncpy(r->stalled_file, progress->file, sizeof r->stalled_file - 1);
        atomic_store(&r->was_stalled, true);
    }
    if (progress->is_stalled && strcmp(r->last_file, progress->file) != 0) {
        strncpy(r->last_file, progress->file, sizeof r->last_file - 1);
        atomic_fetch_add(&haul_hurried, 1);
    }
    return r->cancel_at > 0 && progress->done >= r->cancel_at;
}

static berth_status
run_in_job(berth_job *job, void *user, berth_error *error)
{
    job_run *const r = user;
    const berth_status status = haul_run(r->h, job);

    *error = r->h->error;
    return status;
}

static berth_status
start_job(job_run *r, uint64_t stall_ns, berth_job **job)
{
    const berthi_job_work work = {
        .run = run_in_job,
        .user = r,
        .phase = "read",
        .total = haul_total(r->h),
        .progress = on_progress,
        .progress_user = r,
        .stall_ns = stall_ns,
    };

    return berthi_job_start(r->h->context, &work, job, NULL);
}

static void
test_progress_of_a_job(void)
{
    /* Around borders of chunks; of nothing, too. */
    static const uint64_t sizes[] = { 0, 1, 4095, 4096, 16385, 5 * 4096 + 7, 70000, 0, 32768 };
    haul h;
    job_run r = { .h = &h };
    berth_progress progress;
    berth_error error;
    berth_job *job;

    haul_begin(&h, fixture_folder(), sizes, sizeof sizes / sizeof *sizes);
    haul_want_all(&h);
    h.is_in_order = true; /* two calls a chunk count once */
    h.each = haul_slowly;
    T_REQUIRE(start_job(&r, 0, &job) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, -1), BERTH_OK);
    berth_job_poll(job, &progress);
    CHECK_EQ(progress.done, haul_total(&h));
    CHECK_CONTAINS(progress.file, "haul-");
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(atomic_load(&r.last_done), haul_total(&h));
    CHECK(!atomic_load(&r.went_back));
    haul_check(&h);
    haul_end(&h);
}

/* What the job has counted before it is topped up: every span, no gap. */
static berth_status
run_and_poll(berth_job *job, void *user, berth_error *error)
{
    const berth_status status = run_in_job(job, user, error);
    berth_progress progress;

    berth_job_poll(job, &progress);
    CHECK_EQ(progress.done, 300 + 5000);
    return status;
}

static void
test_progress_counts_what_was_wanted(void)
{
    const uint64_t size = 20000;
    haul h;
    job_run r = { .h = &h };
    berthi_job_work work = { .run = run_and_poll, .user = &r, .phase = "p", .total = 20000 };
    berth_job *job;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want(&h, 0, 0, 300);
    haul_want(&h, 0, 400, 5000);
    h.gap = 1000;
    h.is_in_order = true;
    T_REQUIRE(berthi_job_start(h.context, &work, &job, NULL) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    haul_end(&h);
}

/* A run that stands still at one of its calls until it has been cancelled. */
typedef struct gate {
    uint64_t calls;
    _Atomic bool is_open;
} gate;

static berth_status
stop_at_gate(haul *h, const berthi_chunk *chunk, bool is_in_order, berth_error *error)
{
    gate *const g = h->user;

    for (int i = 0; i < 20000 && atomic_load(&h->calls) >= g->calls; i++) {
        if (atomic_load(&g->is_open))
            break;
        haul_pause(MS / 2);
    }
    return haul_slowly(h, chunk, is_in_order, error);
}

/* Returns how long it takes. */
static uint64_t
cancel_at(haul *h, unsigned moment)
{
    gate *const g = h->user;
    job_run r = { .h = h };
    berth_job *job;
    uint64_t begin_ns;

    g->calls = moment * 3;
    atomic_store(&g->is_open, false);
    h->is_in_order = moment % 2;
    h->options.no_uring = moment % 3 == 0;
    haul_reset(h);
    if (!CHECK_EQ(start_job(&r, 0, &job), BERTH_OK))
        return 0;
    while (atomic_load(&h->calls) < g->calls)
        haul_pause(MS / 10);
    haul_pause(moment % 4 * MS / 4);
    begin_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    atomic_store(&g->is_open, true);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_ECANCELLED);
    begin_ns = berthi_sys_now_ns() - begin_ns;
    CHECK_LT(atomic_load(&h->calls), 200);
    return begin_ns;
}

/* From outside, at many moments: always the same answer, soon, and nothing kept. */
static void
test_cancel_at_many_moments(void)
{
    const uint64_t two[] = { 100 * 4096, 100 * 4096 };
    gate g;
    haul h;

    haul_begin(&h, fixture_folder(), two, 2);
    haul_want_all(&h);
    h.options.ring_bytes = 3 * 4096;
    h.each = stop_at_gate;
    h.user = &g;
    for (unsigned i = 0; i < 60; i++) {
        uint64_t ns = UINT64_MAX;

        for (int tries = 0; tries < T_CANCEL_TRIES && ns > T_CANCEL_NS; tries++)
            ns = cancel_at(&h, i);
        CHECK_LE(ns, T_CANCEL_NS);
    }
    haul_end(&h);
}

/* Buffers are new, and come slowly: behind a cancel at most one more, which had been let in. */
static void
test_cancel_while_the_ring_grows(void)
{
    const uint64_t size = 64 * 4096;
    uint64_t buffers;
    berth_job *job;
    haul h;
    job_run r = { .h = &h };

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    h.options.ring_bytes = size;
    haul_trick = (haul_tricks){ .knows_buffers = true, .add_ns = 50 * MS };
    haul_reset(&h);
    T_REQUIRE(start_job(&r, 0, &job) == BERTH_OK);
    while (atomic_load(&h.calls) == 0) /* from then on it may have more than two */
        haul_pause(MS);
    berth_job_cancel(job);
    buffers = atomic_load(&haul_buffers);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_ECANCELLED);
    CHECK_LE(atomic_load(&haul_buffers), buffers + 1);
    CHECK_LT(buffers + 1, 64);
    haul_trick = (haul_tricks){ .add_ns = 0 };
    haul_end(&h);
}

/* The readers wait for a buffer, the workers are asleep: a cancel reaches them. */
static void
test_cancel_from_the_hook(void)
{
    const uint64_t size = 100 * 4096;
    haul h;
    job_run r = { .h = &h, .cancel_at = 1 };
    berth_error error;
    berth_job *job;

    haul_begin(&h, fixture_folder(), &size, 1);
    haul_want_all(&h);
    h.options.workers = 2;
    h.each = haul_very_slowly;
    T_REQUIRE(start_job(&r, 0, &job) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_ECANCELLED);
    CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    CHECK_EQ(h.error.reason, BERTH_REASON_CANCELLED);
    CHECK_LT(atomic_load(&h.calls), 100);
    haul_end(&h);
}

/* Cancelled before it began, with nothing to move at all. */
static void
test_cancel_of_nothing(void)
{
    const uint64_t size = 0;
    haul h;
    job_run r = { .h = &h };
    berth_status status;
    berth_job *job;

    haul_begin(&h, fixture_folder(), &size, 1);
    T_REQUIRE(start_job(&r, 0, &job) == BERTH_OK);
    berth_job_cancel(job);
    status = berth_job_wait(job, -1);
    CHECK(status == BERTH_ECANCELLED || status == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), status);
    haul_end(&h);
}

static void
test_stall_names_the_file(void)
{
    const uint64_t two[] = { 4096, 4096 };
    haul h;
    job_run r = { .h = &h };
    berth_job *job;

    haul_begin(&h, fixture_folder(), two, 2);
    haul_want_all(&h);
    h.options.reader = &haul_reader;
    /* Each read comes back when the job has told that it waits for it. */
    haul_trick = (haul_tricks){ .delay_ns = 10000 * MS };
    atomic_store(&haul_hurried, 0);
    T_REQUIRE(start_job(&r, 50 * MS, &job) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    CHECK(atomic_load(&r.was_stalled));
    CHECK_STR(r.stalled_file, haul_path(&h, 0));
    CHECK_STR(r.last_file, haul_path(&h, 1));
    atomic_store(&haul_hurried, 0);
    haul_end(&h);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_progress_of_a_job);
    T_RUN(test_progress_counts_what_was_wanted);
    T_RUN(test_cancel_at_many_moments);
    T_RUN(test_cancel_while_the_ring_grows);
    T_RUN(test_cancel_from_the_hook);
    T_RUN(test_cancel_of_nothing);
    T_RUN(test_stall_names_the_file);
    T_MAIN_END;
}
