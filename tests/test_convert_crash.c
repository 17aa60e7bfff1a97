/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_crash.c - a conversion that is killed, cancelled, runs out of
 * memory or disk, or whose system calls fail: afterwards there is the old model,
 * the new one, or none and a journal, and the same command with `resume` gives
 * the files that an undisturbed run gives.
 */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/cancelled.h"
#include "tests/converted.h"
#include "tests/crash_calls.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/vacant.h"

/* ------------------------------------------------------------------ conversions */

#define JOURNAL ".berth-journal.json"
/* A point at which some shards are finished, and not all. */
#define KILLED_LATE 600

/* A model, and what comes out when nothing happens. */
typedef struct reference {
    const char *model;
    const char *whole; /* new */
    const char *old;   /* INT8, in more shards */
    berth_convert_report report;
    uint32_t findings;
} reference;

static reference known;

/* Shards that get other tensors, bytes kept for later ones, side files. */
static void
begin(converted *c, const char *output)
{
    converted_begin(c, output, BERTH_ENCODING_NF4);
    c->options.double_quant = 1;
    c->options.max_shard_bytes = 9000;
    c->options.workers = 2;
    c->options.readers = 2;
    c->options.no_uring = 1;
    c->options.io = BERTH_IO_BUFFERED;
    converted_shrink(c, 4096);
}

/* Makes it the known model. */
static void
make_known(uint64_t seed, int layers)
{
    converted c;

    known.model = converted_make_model(seed, layers, true, true);
    fixture_text(fixture_format("%s/config.json", known.model), FIXTURE_CONFIG);
    fixture_text(fixture_format("%s/tokenizer.json", known.model), "{\"a\": 1}\n");
    known.whole = fixture_format("%s/whole", fixture_folder());
    begin(&c, known.whole);
    CHECK_EQ(converted_run(&c, known.model), BERTH_OK);
    CHECK_GT(c.redos, 0);
    CHECK_GT(c.kept, 0);
    CHECK_GT(c.findings, 0);
    CHECK_EQ(c.findings, c.report.nonfinite_tensors);
    known.report = c.report;
    known.findings = c.findings;
    known.old = fixture_format("%s/old", fixture_folder());
    converted_begin(&c, known.old, BERTH_ENCODING_INT8);
    c.options.max_shard_bytes = 7000;
    CHECK_EQ(converted_run(&c, known.model), BERTH_OK);
    T_NOTE("new model of %d files, old one of %d", fixture_count(known.whole),
           fixture_count(known.old));
}

/* The folder above must be there; `resume` and `overwrite` as asked. */
static berth_status
convert(const char *output, bool overwrite, bool resume, berth_error *error)
{
    converted c;
    berth_status status;

    begin(&c, output);
    c.options.overwrite = overwrite;
    c.options.resume = resume;
    c.is_bare = true; /* faults are for the conversion */
    status = converted_run(&c, known.model);
    if (error != NULL)
        *error = c.error;
    return status;
}

static converted_view
look(const char *folder)
{
    return converted_look(folder, known.whole, known.old);
}

static bool
has_journal(const char *folder)
{
    return access(fixture_format("%s/" JOURNAL, folder), F_OK) == 0;
}

/* Old, new or nothing, and the same command goes on from there. */
static bool
is_recovered(const char *folder, bool had_old)
{
    const converted_view seen = look(folder);
    berth_error error;

    if (!CHECK_NE(seen, CONVERTED_BROKEN)
        || (had_old && !CHECK(seen != CONVERTED_NOTHING || has_journal(folder))))
        return false;
    if (seen != CONVERTED_NEW || has_journal(folder))
        if (!CHECK_EQ(convert(folder, had_old, true, &error), BERTH_OK)) {
            T_NOTE("%s %s", error.file, error.message);
            return false;
        }
    return converted_is_same(known.whole, folder);
}

/* ---------------------------------------------------------------------- killed */

/* A run, as crash.h wants it. */
typedef struct attempt {
    const char *folder;
    bool overwrite;
    bool resume;
} attempt;

static bool
do_attempt(void *user)
{
    const attempt *const a = user;

    return convert(a->folder, a->overwrite, a->resume, NULL) == BERTH_OK;
}

static bool
is_killed(const char *folder, bool overwrite, bool resume, uint64_t at)
{
    attempt a = { folder, overwrite, resume };

    return crash_is_killed(do_attempt, &a, at);
}

static void
kill_everywhere(bool had_old, uint64_t step)
{
    const char *const above = fixture_folder();
    uint64_t points = 0;
    bool was_killed = true;

    for (uint64_t at = 0; was_killed; at += crash_step(step)) {
        const char *const folder = fixture_format("%s/%d", above, (int)at);

        if (had_old)
            fixture_copy_folder(known.old, folder);
        was_killed = is_killed(folder, had_old, false, at);
        points += was_killed;
        if (!is_recovered(folder, had_old)) {
            T_NOTE("killed at point %d, %s", (int)at, folder);
            return;
        }
        fixture_remove(folder);
    }
    CHECK_GE(points, 500 / step);
    T_NOTE("killed at %d points of %s", (int)points,
           had_old ? "an output that replaces another" : "a new output");
}

/* Of a smaller model: it has the same kinds of them, in less time, so more of these are killed. */
static void
test_killed_at_every_call(void)
{
    const reference before = known;

    make_known(6, 3);
    kill_everywhere(false, 2);
    kill_everywhere(true, 2);
    known = before;
}

/* The run that resumes dies, too, wherever it is. */
static void
test_killed_twice(void)
{
    const char *const above = fixture_folder();
    int points = 0;

    for (uint64_t first = 40; first < 700; first += 97) {
        for (uint64_t second = 7; second < 500; second += 83) {
            const char *const folder =
                fixture_format("%s/%d-%d", above, (int)first, (int)second);

            if (!is_killed(folder, false, false, first))
                return;
            points += is_killed(folder, false, true, second);
            if (!is_recovered(folder, false)) {
                T_NOTE("killed at %d and %d, %s", (int)first, (int)second, folder);
                return;
            }
            fixture_remove(folder);
        }
    }
    T_NOTE("killed twice at %d pairs of points", points);
}

static void
test_killed_at_random(void)
{
    const char *const above = fixture_folder();
    int killed = 0;

    for (uint32_t round = 0; round < 200; round++) {
        attempt a = { fixture_format("%s/%u", above, round), round % 2 > 0, false };

        if (a.overwrite)
            fixture_copy_folder(known.old, a.folder);
        killed += crash_is_killed_after(do_attempt, &a, round * 7919 % 20000);
        if (!is_recovered(a.folder, a.overwrite)) {
            T_NOTE("round %u, %s", round, a.folder);
            return;
        }
        fixture_remove(a.folder);
    }
    T_NOTE("killed %d times of 200 before the end", killed);
}

/* ---------------------------------------------------------------- not resumed */

/* The temporary file of the first finished shard. */
static const char *
find_finished(const char *folder)
{
    char *const journal = fixture_read(fixture_format("%s/" JOURNAL, folder), NULL);
    const char *const begin = strstr(journal, "\".model-00001");
    const char *const name =
        begin == NULL ? NULL
                      : fixture_format("%s/%.*s", folder, (int)strcspn(begin + 1, "\""),
                                       begin + 1);

    free(journal);
    return name;
}

static void
check_refused(const char *folder, const char *model, int32_t type, berth_reason reason,
              const char *words)
{
    converted c;

    begin(&c, folder);
    c.options.type = type;
    c.options.resume = 1;
    CHECK_NE(converted_run(&c, model), BERTH_OK);
    CHECK_STR(berth_reason_name(c.error.reason), berth_reason_name((int32_t)reason));
    CHECK_CONTAINS(c.error.message, words);
    CHECK(has_journal(folder));
}

/* Another command, another source, and a shard that somebody has changed. */
static void
test_what_is_not_resumed(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    const char *const other = fixture_folder();
    const char *shard;

    T_REQUIRE(is_killed(folder, false, false, KILLED_LATE));
    shard = find_finished(folder);
    T_REQUIRE(shard != NULL);
    fixture_copy_folder(known.model, other);
    fixture_remove(fixture_format("%s/config.json", other));
    check_refused(folder, known.model, BERTH_ENCODING_FP4, BERTH_REASON_ARGUMENT, "fp4");
    check_refused(folder, other, BERTH_ENCODING_NF4, BERTH_REASON_ARGUMENT,
                  "is another model's");
    fixture_flip(shard, 20, 1);
    check_refused(folder, known.model, BERTH_ENCODING_NF4, BERTH_REASON_JOURNAL,
                  "is not what the journal");
    fixture_flip(shard, 20, 1);
    CHECK(is_recovered(folder, false));
}

/* The same command with the other answer to NaN. */
static void
test_resumed_and_rejected(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    converted c;

    T_REQUIRE(is_killed(folder, false, false, KILLED_LATE));
    begin(&c, folder);
    c.options.resume = 1;
    c.options.reject_nonfinite = 1;
    CHECK_EQ(converted_run(&c, known.model), BERTH_EPOLICY);
    CHECK_EQ(c.error.reason, BERTH_REASON_NONFINITE);
    CHECK_EQ(c.report.bytes_read, 0); /* the first shard's notes say so */
    CHECK(is_recovered(folder, false));
}

/* What finished shards had to tell is told again. */
static void
test_resumed_reports(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    converted c;

    T_REQUIRE(is_killed(folder, false, false, KILLED_LATE));
    begin(&c, folder);
    c.options.resume = 1;
    CHECK_EQ(converted_run(&c, known.model), BERTH_OK);
    CHECK_GT(c.report.bytes_resumed, 0);
    CHECK_LT(c.report.bytes_read, known.report.bytes_read);
    CHECK_EQ(c.report.nonfinite_tensors, known.report.nonfinite_tensors);
    CHECK_EQ(c.report.nonfinite_values, known.report.nonfinite_values);
    CHECK_EQ(c.report.tensors_written, known.report.tensors_written);
    CHECK_EQ(c.findings, known.findings);
}

/*
 * Bytes, and weights whose states are shorter or longer than guessed: the last
 * tensor that fits into the first shard, or the first that does not, is one.
 */
static const char *
make_border_model(float value, uint64_t filler)
{
    const char *const folder = fixture_folder();
    const uint64_t shape[2] = { 2, 3 };
    const float values[6] = { value, value, value, value, value, value };
    fixture_builder *const b = fixture_begin();

    fixture_add(b, "model.a", "U8", 1, &filler, NULL);
    for (int i = 0; i < 6; i++)
        fixture_add(b, fixture_format("model.layers.%d.fc1.weight", i), "F32", 2, shape,
                    values);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), FIXTURE_CONFIG);
    return folder;
}

/* Makes it the known model; the one before is to be put back. */
static reference
use_border_model(float value, uint64_t filler)
{
    const reference before = known;

    known.model = make_border_model(value, filler);
    known.whole = fixture_format("%s/whole", fixture_folder());
    CHECK_EQ(convert(known.whole, false, false, NULL), BERTH_OK);
    return before;
}

static uint64_t
kill_at_border(float value, uint64_t filler, uint64_t step)
{
    const reference before = use_border_model(value, filler);
    const char *const above = fixture_folder();
    uint64_t points = 0;
    bool was_killed = true;

    for (uint64_t at = 2 * step; was_killed; at += step) {
        const char *const folder = fixture_format("%s/%d", above, (int)at);

        was_killed = is_killed(folder, false, false, at);
        points += was_killed;
        if (!is_recovered(folder, false)) {
            T_NOTE("%d bytes, killed at point %d, %s", (int)filler, (int)at, folder);
            break;
        }
        fixture_remove(folder);
    }
    known = before;
    return points;
}

static void
test_killed_where_a_guess_decides(void)
{
    uint64_t points = 0;

    for (uint64_t filler = 9000 - 1290; filler < 9000 - 1200; filler += 6)
        points += kill_at_border(0.5f, filler, 45);
    for (uint64_t filler = 9000 - 1275; filler < 9000 - 1225; filler++)
        points += kill_at_border(1.17e-25f, filler, 75);
    CHECK_GT(points, 50);
    T_NOTE("killed at %d points", (int)points);
}

/* ----------------------------------------------------------------------- faults */

static void
fault_everywhere(berthi_fault_kind kind, bool is_persistent, uint64_t step)
{
    const char *const above = fixture_folder();
    uint64_t failed = 0;
    uint64_t survived = 0;
    bool is_over = false;

    for (uint64_t nth = 0; !is_over; nth += step) {
        const char *const folder = fixture_format("%s/%d", above, (int)nth);
        berth_error error;
        berth_status status;

        berthi_fault_arm(kind, nth, is_persistent);
        status = convert(folder, false, false, &error);
        is_over = berthi_fault_failures(kind) == 0;
        berthi_fault_disarm();
        failed += status != BERTH_OK;
        survived += status == BERTH_OK && !is_over;
        if (kind == BERTHI_FAULT_MEMORY)
            CHECK(status == BERTH_OK || status == BERTH_ENOMEM);
        CHECK_NE(status, BERTH_EINTERNAL);
        if (is_over)
            CHECK_EQ(status, BERTH_OK);
        if (!is_recovered(folder, false)) {
            T_NOTE("failure %d, %s: %s %s", (int)nth, folder, error.file, error.message);
            return;
        }
        fixture_remove(folder);
    }
    CHECK_GT(failed, 40);
    T_NOTE("%s%s: %d failures, %d survived",
           kind == BERTHI_FAULT_MEMORY ? "memory" : "system calls",
           is_persistent ? " from then on" : "", (int)failed, (int)survived);
}

static void
test_failing_allocations(void)
{
    const reference before = use_border_model(0.5f, 7760);

    fault_everywhere(BERTHI_FAULT_MEMORY, false, 1);
    fault_everywhere(BERTHI_FAULT_MEMORY, true, 3);
    known = before;
}

static void
test_failing_system_calls(void)
{
    const reference before = use_border_model(0.5f, 7760);

    fault_everywhere(BERTHI_FAULT_SYSTEM, false, 1);
    fault_everywhere(BERTHI_FAULT_SYSTEM, true, 5);
    known = before;
}

/* ---------------------------------------------------------------------- cancel */

/* What is told is what lies there: finished shards with a journal, or nothing. */
static void
check_cancelled(const char *folder, const berth_error *error)
{
    const bool has_kept = has_journal(folder);

    CHECK_STR(error->message, has_kept ? "cancelled; finished shards are kept for --resume"
                                       : "cancelled before a shard was finished");
    if (!has_kept)
        CHECK(access(folder, F_OK) != 0);
}

/* Cancelled from outside after so long; the time until it has ended. */
static berth_status
cancel_after(const char *output, useconds_t delay, bool resume, uint64_t *took_ns)
{
    converted c;
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_job *job;
    berth_error error;
    berth_status status;
    uint64_t begin_ns;

    begin(&c, output);
    c.options.resume = resume;
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, known.model, NULL, &checkpoint, &error),
             BERTH_OK);
    CHECK_EQ(berthi_convert_start(context, checkpoint, &c.options, &c.sizes, &job, &error),
             BERTH_OK);
    usleep(delay);
    begin_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    status = berth_job_finish(job, &error);
    *took_ns = berthi_sys_now_ns() - begin_ns;
    if (status != BERTH_OK) {
        CHECK_EQ(status, BERTH_ECANCELLED);
        CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
        check_cancelled(output, &error);
    }
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return status;
}

static void
test_cancelled_from_outside(void)
{
    const char *const above = fixture_folder();
    uint64_t longest = 0;
    int cancelled = 0;

    for (int round = 0; round < 120; round++) {
        const char *const folder = fixture_format("%s/%d", above, round);
        uint64_t took_ns;
        const bool is_cancelled =
            cancel_after(folder, (useconds_t)(round * 97 % 12000), false, &took_ns)
            == BERTH_ECANCELLED;

        cancelled += is_cancelled;
        longest = took_ns > longest ? took_ns : longest;
        if (is_cancelled && round % 3 == 0) {
            (void)cancel_after(folder, (useconds_t)(round * 53 % 9000), true, &took_ns);
            longest = took_ns > longest ? took_ns : longest;
        }
        if (!is_recovered(folder, false)) {
            T_NOTE("round %d, %s", round, folder);
            return;
        }
        fixture_remove(folder);
    }
    CHECK_GT(cancelled, 20);
    CHECK_LT(longest, UINT64_C(400000000)); /* this machine may be busy */
    T_NOTE("cancelled %d times of 120, the longest took %.1f ms", cancelled,
           (double)longest * 1e-6);
}

static int
count_down(void *user, const berth_progress *progress)
{
    int *const left = user;

    (void)progress;
    return (*left)-- <= 0;
}

static void
test_cancelled_by_progress(void)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    converted c;
    int calls = 0;

    begin(&c, folder);
    c.options.progress = count_down;
    c.options.progress_user = &calls;
    CHECK_EQ(converted_run(&c, known.model), BERTH_ECANCELLED);
    check_cancelled(folder, &c.error);
    CHECK(is_recovered(folder, false));
}

/* How many points a conversion has, more or less: threads take turns as they like. */
static uint64_t
count_points(const char *above)
{
    uint64_t killed = 0;
    uint64_t whole = UINT64_C(1) << 12;

    while (whole - killed > 1) {
        const uint64_t at = killed + (whole - killed) / 2;
        const char *const folder = fixture_format("%s/count.%d", above, (int)at);

        if (is_killed(folder, false, false, at))
            killed = at;
        else
            whole = at;
        fixture_remove(folder);
    }
    return whole;
}

/* All of it is written: who goes on has all, or is told what is kept. */
static void
test_cancelled_while_it_appears(void)
{
    const char *const above = fixture_folder();
    const uint64_t end = count_points(above);
    int cancelled = 0;

    for (uint64_t at = end - 60; at < end; at += crash_step(2)) {
        const char *const folder = fixture_format("%s/%d", above, (int)at);
        uint64_t took_ns;

        if (!is_killed(folder, false, false, at))
            break;
        if (look(folder) == CONVERTED_NEW && !has_journal(folder))
            continue; /* nothing is left to be done */
        cancelled += cancel_after(folder, 0, true, &took_ns) == BERTH_ECANCELLED;
        if (!is_recovered(folder, false)) {
            T_NOTE("killed at point %d, %s", (int)at, folder);
            return;
        }
        fixture_remove(folder);
    }
    CHECK_GT(cancelled, 10);
}

/* At the n-th call of whoever it is, into nothing or over an old model. */
static void
check_each_call(bool had_old)
{
    const char *const folder = fixture_format("%s/out", fixture_folder());
    cancelled_moments moments;

    cancelled_begin(&moments, T_IS_SANITIZED ? 15 : 40, had_old);
    while (cancelled_next(&moments)) {
        berth_checkpoint *checkpoint = NULL;
        berth_context *context = NULL;
        berth_job *job = NULL;
        berth_error error;
        berth_status status;
        converted c;

        if (had_old)
            fixture_copy_folder(known.old, folder);
        begin(&c, folder);
        c.options.overwrite = had_old;
        CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
        CHECK_EQ(berth_checkpoint_open(context, known.model, NULL, &checkpoint, NULL),
                 BERTH_OK);
        status =
            berthi_convert_start(context, checkpoint, &c.options, &c.sizes, &job, &error);
        cancelled_await(&moments, status, job);
        status = berth_job_finish(job, &error);
        (void)cancelled_check(&moments, status, &error);
        CHECK_EQ(look(folder), status == BERTH_OK ? CONVERTED_NEW
                               : had_old          ? CONVERTED_OLD
                                                  : CONVERTED_NOTHING);
        if (status != BERTH_OK && !had_old)
            check_cancelled(folder, &error);
        berth_checkpoint_close(checkpoint);
        vacant_check_memory(context);
        berth_context_destroy(context);
        if (!is_recovered(folder, had_old)) {
            T_NOTE("cancelled at call %d, %s", (int)moments.at, folder);
            break;
        }
        fixture_remove(folder);
    }
    cancelled_end(&moments);
}

static void
test_cancelled_at_each_call(void)
{
    check_each_call(false);
    check_each_call(true);
}

#define BESIDE 100 /* files beside the weights */

/* A model may have gigabytes beside its weights, or ten thousand files. */
static void
test_cancelled_beside_the_weights(void)
{
    const char *const above = fixture_folder();
    const char *const model = fixture_format("%s/model", above);
    const char *const folder = fixture_format("%s/out", above);
    cancelled_moments moments;
    int in_between = 0;

    fixture_copy_folder(known.model, model);
    for (int i = 0; i < BESIDE; i++)
        fixture_text(fixture_format("%s/beside-%d", model, i), "x");
    cancelled_begin(&moments, 12, 7);
    while (cancelled_next(&moments)) {
        berth_checkpoint *checkpoint = NULL;
        berth_context *context = NULL;
        berth_job *job = NULL;
        berth_error error;
        berth_status status;
        converted c;
        int left;

        begin(&c, folder);
        CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
        CHECK_EQ(berth_checkpoint_open(context, model, NULL, &checkpoint, NULL), BERTH_OK);
        status =
            berthi_convert_start(context, checkpoint, &c.options, &c.sizes, &job, &error);
        cancelled_await(&moments, status, job);
        status = berth_job_finish(job, &error);
        (void)cancelled_check(&moments, status, &error);
        left = access(folder, F_OK) == 0 ? fixture_count(folder) : 0;
        in_between += status != BERTH_OK && left > BESIDE / 2 && left < BESIDE;
        berth_checkpoint_close(checkpoint);
        berth_context_destroy(context);
        fixture_remove(folder);
    }
    cancelled_end(&moments);
    CHECK_GT(in_between, 0); /* whoever is cancelled copies no more of them */
}

/* -------------------------------------------------------------------- full disk */

static berth_status
run_on_disk(void *user, bool resume, berth_error *error)
{
    return convert(((const attempt *)user)->folder, false, resume, error);
}

static bool
is_nothing(void *user)
{
    return look(((const attempt *)user)->folder) == CONVERTED_NOTHING;
}

static bool
is_new(void *user)
{
    return converted_is_same(known.whole, ((const attempt *)user)->folder);
}

static bool
is_resumed(void *user)
{
    attempt a = { ((const attempt *)user)->folder, false, true };

    return is_killed(a.folder, false, false, KILLED_LATE) && has_journal(a.folder)
           && do_attempt(&a);
}

static void
test_full_disk(void)
{
    attempt a = { fixture_folder(), false, false };
    const crash_command command = {
        .user = &a,
        .folder = a.folder,
        .run = run_on_disk,
        .is_unharmed = is_nothing,
        .is_right = is_new,
        .is_resumed = is_resumed,
    };
    const int too_small = crash_fill_disks(&command, 8, 4, 72);

    if (too_small < 0)
        T_SKIP("this process may not mount");
    CHECK_GE(too_small, 16);
    CHECK_LT(too_small, 72);
    T_NOTE("72 sizes of a disk, too small %d times", too_small);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    crash.has_no_fsync = true; /* nobody pulls the plug */
    make_known(20, 5);
    T_RUN(test_killed_at_every_call);
    T_RUN(test_killed_twice);
    T_RUN(test_killed_at_random);
    T_RUN(test_what_is_not_resumed);
    T_RUN(test_resumed_and_rejected);
    T_RUN(test_resumed_reports);
    T_RUN(test_killed_where_a_guess_decides);
    T_RUN(test_failing_allocations);
    T_RUN(test_failing_system_calls);
    T_RUN(test_cancelled_from_outside);
    T_RUN(test_cancelled_by_progress);
    T_RUN(test_cancelled_while_it_appears);
    T_RUN(test_cancelled_at_each_call);
    T_RUN(test_cancelled_beside_the_weights);
    T_RUN(test_full_disk);
    T_MAIN_END;
}
