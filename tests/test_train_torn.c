/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_train_torn.c - a step whose n-th call of a device fails, for every n: what its report
 * says is what has happened, and what can be done then can be done.
 */
#include <math.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/fault.h"
#include "loader/optimizer.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL   UINT32_MAX
#define COUNT 2u
#define MOST  400u /* calls of one step */

static const char *folder;
static berth_context *context;

/* A step, what it is made of, and where its states lie. */
typedef struct attempt {
    int32_t place;
    bool has_sums; /* it is made of what was added up */
    bool is_odd;   /* and skipped */
} attempt;

/* How many ended so. */
typedef struct ends {
    uint32_t undone;
    uint32_t torn;
    uint32_t skipped;
} ends;

static bool
open_two(trained *t, const attempt *a)
{
    static const trained_parameter two[COUNT] = {
        { 9000, BERTH_F32, BERTH_F32, 0, 0 },
        { 500, BERTH_F32, BERTH_F32, 0, 0 },
    };
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8, a->place);
    berth_optimizer_options options;

    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.page_elements = 4096;
    options.accumulates = 1;
    return trained_open(t, context, &(trained_options){ .devices = "sim:64MiB",
                                                        .groups = &group,
                                                        .group_count = 1,
                                                        .parameters = two,
                                                        .count = COUNT,
                                                        .optimizer = &options });
}

/* The step, of gradients that have been drawn. */
static berth_status
step(trained *t, const attempt *a, berth_step_report *report, berth_error *error)
{
    berth_gradient gradients[COUNT];
    berth_step_options options;

    berth_step_options_init(&options);
    options.max_norm = 1e9f;
    options.skips_non_finite = 1;
    options.report = report;
    trained_gradients(t, ALL, gradients);
    return berth_optimizer_step(t->optimizer, a->has_sums ? NULL : gradients, &options, error);
}

static void
add_up(trained *t)
{
    berth_gradient gradients[COUNT];

    trained_gradients(t, ALL, gradients);
    CHECK_EQ(berth_optimizer_accumulate(t->optimizer, gradients, NULL, NULL), BERTH_OK);
}

/* Nothing has been updated; a step of sums finds none any more, or those it had. */
static void
check_sums(trained *t, bool are_there)
{
    berth_step_report report;
    berth_step_options options;

    berth_step_options_init(&options);
    options.report = &report;
    CHECK_EQ(berth_optimizer_step(t->optimizer, NULL, &options, NULL), BERTH_OK);
    CHECK_EQ(report.updated, are_there ? COUNT : 0);
    if (are_there)
        trained_expect(t, ALL, 1.0f);
    trained_check(t);
}

/* Nothing is changed, and it can be made again. */
static void
make_again(trained *t, const attempt *a)
{
    berth_step_report report;

    trained_check(t);
    if (a->has_sums) {
        check_sums(t, true);
        return;
    }
    CHECK_EQ(step(t, a, &report, NULL), BERTH_OK);
    CHECK_EQ(report.step, 2);
    CHECK_EQ(report.updated, COUNT);
    trained_expect(t, ALL, 1.0f);
    trained_check(t);
}

/* Nothing is done any more until states and values are those of one step. */
static void
load_again(trained *t, const attempt *a, const char *saved)
{
    berth_step_report report;
    berth_error error;

    CHECK_EQ(step(t, a, &report, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "half way");
    CHECK_EQ(berth_optimizer_save(t->optimizer, fixture_format("%s/torn", folder), 1, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "half way");
    trained_put_values(t);
    CHECK_EQ(berth_optimizer_load(t->optimizer, saved, NULL), BERTH_OK);
    trained_check(t);
    check_sums(t, false);
    trained_step(t, ALL, false);
    trained_check(t);
}

static void
check_failed(trained *t, const attempt *a, const char *saved, const berth_step_report *report,
             ends *out)
{
    CHECK_EQ(report->step, 2);
    if (report->is_skipped) {
        out->skipped++;
        CHECK_EQ(report->updated, 0);
        trained_check(t);
        if (a->has_sums)
            check_sums(t, false);
        trained_step(t, ALL, false);
        trained_check(t);
    } else if (report->updated == 0) {
        out->undone++;
        if (!a->is_odd)
            make_again(t, a);
    } else {
        out->torn++;
        CHECK_EQ(report->updated, COUNT);
        load_again(t, a, saved);
    }
}

/* The second step; false: none of its calls failed. */
static bool
fail(const attempt *a, uint64_t nth, ends *out)
{
    const char *const saved = fixture_format("%s/saved.safetensors", folder);
    berth_step_report report = { .step = 0 };
    bool has_failed = false;
    berth_status status;
    trained t;

    if (open_two(&t, a)) {
        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_save(t.optimizer, saved, 1, NULL), BERTH_OK);
        trained_draw(&t, ALL, a->is_odd);
        if (a->has_sums)
            add_up(&t);
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        status = step(&t, a, &report, NULL);
        has_failed = berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0;
        berthi_fault_disarm();
        if (status != BERTH_OK) {
            check_failed(&t, a, saved, &report, out);
        } else {
            if (!a->is_odd)
                trained_expect(&t, ALL, 1.0f);
            trained_check(&t);
        }
    }
    trained_close(&t);
    return has_failed;
}

static ends
fail_everywhere(const attempt *a)
{
    ends found = { 0 };
    uint64_t nth = 0;

    while (nth < MOST && fail(a, nth, &found))
        nth++;
    CHECK_LT(nth, MOST);
    return found;
}

static void
test_reports_say_how_far_a_step_has_come(void)
{
    for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++)
        for (int has_sums = 0; has_sums < 2; has_sums++) {
            const ends found = fail_everywhere(&(attempt){ .place = place,
                                                           .has_sums = has_sums != 0 });

            CHECK_GT(found.undone, 4);
            CHECK_GT(found.torn, 4);
            CHECK_EQ(found.skipped, 0);
        }
}

static void
test_steps_that_are_skipped(void)
{
    for (int has_sums = 0; has_sums < 2; has_sums++) {
        const ends found = fail_everywhere(&(attempt){ .has_sums = has_sums != 0,
                                                       .is_odd = true });

        CHECK_GT(found.undone, 4);
        CHECK_EQ(found.torn, 0);
        CHECK_GT(found.skipped, 1);
    }
}

/* What is wrong with arguments is said, and the report is the caller's still. */
static void
test_refusals_write_no_report(void)
{
    berth_gradient gradients[COUNT];
    berth_step_options options;
    berth_step_report report;
    berth_step_report before;
    trained t;

    memset(&report, 0x5A, sizeof report);
    before = report;
    berth_step_options_init(&options);
    options.report = &report;
    options.scale = NAN;
    if (open_two(&t, &(attempt){ .place = BERTH_STATES_DEVICE })) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_EINVAL);
        options.scale = 1.0f;
        gradients[1].dtype = BERTH_I8;
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_EINVAL);
        CHECK_MEM(&report, &before, sizeof report);
        trained_check(&t);
    }
    trained_close(&t);
}

/* How a step comes to its end. */
typedef struct ending {
    int32_t place;
    bool fails_on;      /* not the n-th call alone: all from there on */
    bool has_stream;    /* of the caller's */
} ending;

/* Of work that it has lost sight of nothing is done, and nothing given back, before it is lost. */
static void
check_unknown(trained *t, const berth_gradient *gradients, void *const *streams)
{
    berth_error error;
    float number;

    CHECK_EQ(berth_optimizer_read(t->optimizer, 0, 0, 0, 1, &number, &error), BERTH_ENODEV);
    CHECK_CONTAINS(error.message, "a stream of the caller's");
    CHECK_EQ(berth_optimizer_accumulate(t->optimizer, gradients, streams, &error),
             BERTH_ENODEV);
    CHECK_EQ(berth_optimizer_save(t->optimizer, fixture_format("%s/s.safetensors", folder), 1,
                                  &error),
             t->optimizer->is_torn ? BERTH_EINVAL : BERTH_ENODEV);
}

/*
 * Nobody has waited for what was asked for before the n-th call failed, and the optimizer goes at
 * once: the device is not to find memory given back that it works on. False: none failed.
 */
static bool
give_back_at_once(const ending *e, uint64_t nth, uint32_t *unknown)
{
    const attempt a = { .place = e->place };
    berth_step_options options;
    berth_gradient gradients[COUNT];
    bool has_failed = false;
    void *stream = NULL;
    berth_error error;
    trained t;

    berth_step_options_init(&options);
    options.streams = &stream;
    if (open_two(&t, &a)) {
        if (e->has_stream)
            CHECK_EQ(berth_stream_create(t.devices, 0, &stream, &error), BERTH_OK);
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, e->fails_on);
        (void)berth_optimizer_step(t.optimizer, gradients, &options, &error);
        has_failed = berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0;
        berthi_fault_disarm();
        if (t.optimizer->devices[0].is_unknown) {
            ++*unknown;
            check_unknown(&t, gradients, &stream);
        }
        berth_optimizer_destroy(t.optimizer);
        t.optimizer = NULL;
        if (!CHECK_EQ(berth_stream_wait(t.devices, 0, stream, -1, &error), BERTH_OK))
            T_NOTE("%s, after call %u of a step had failed", error.message, (unsigned)nth);
        berth_stream_destroy(t.devices, 0, stream);
    }
    trained_close(&t);
    return has_failed;
}

static uint64_t
bytes_now(void)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    return memory.current_bytes;
}

static void
test_given_back_at_once(void)
{
    const uint64_t bytes = bytes_now();

    for (int32_t i = 0; i < 4 * BERTH_STATES_PLACE_COUNT; i++) {
        const ending e = { i / 4, (i & 1) != 0, (i & 2) != 0 };
        uint32_t unknown = 0;
        uint64_t nth = 0;

        while (nth < MOST && give_back_at_once(&e, nth, &unknown))
            nth++;
        CHECK_GT(nth, 4);
        CHECK_LT(nth, MOST);
        CHECK_EQ(unknown > 0, e.fails_on && e.has_stream);
        CHECK_EQ(bytes_now(), bytes); /* with the devices at the latest */
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_reports_say_how_far_a_step_has_come);
    T_RUN(test_steps_that_are_skipped);
    T_RUN(test_given_back_at_once);
    T_RUN(test_refusals_write_no_report);
    berth_context_destroy(context);
    T_MAIN_END;
}
