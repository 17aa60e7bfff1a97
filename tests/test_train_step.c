/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_step.c - steps of an optimizer: norms, clipping, skipped ones, sums of gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/device.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/stepped.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX
#define SIM "sim:256MiB,h2d=1GB/s,d2h=1GB/s,backing=sealed"

static const char *const machines[] = { NULL, SIM };

/* ------------------------------------------------------------------------- norms */

static void
check_norm(const char *machine, float scale, float max_norm)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_report report;
    berth_step_options options;
    trained t;

    if (stepped_open(&t, machine, NULL)) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        berth_step_options_init(&options);
        options.scale = scale;
        options.max_norm = max_norm;
        options.has_norm = 1;
        options.report = &report;
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
        CHECK(fabs(report.norm - stepped_norm(&t, fabs((double)scale))) < 1e-9 * report.norm);
        CHECK_EQ(report.clip == 1.0f, max_norm == 0 || report.norm <= (double)max_norm);
        if (report.clip != 1.0f)
            CHECK_EQ(report.clip == (float)((double)max_norm / report.norm), true);
        CHECK_EQ(report.step, 1);
        CHECK_EQ(report.updated, 2);
        CHECK_EQ(report.is_skipped, 0);
        trained_expect(&t, ALL, scale * report.clip);
        trained_check(&t);
    }
    trained_close(&t);
}

static void
test_norms_are_clipped(void)
{
    for (int m = 0; m < 2; m++) {
        check_norm(machines[m], 1.0f, 0.0f);
        check_norm(machines[m], 1.0f, 1.0f);
        check_norm(machines[m], -0.125f, 3.0f);
        check_norm(machines[m], 0.5f, 1e6f);
    }
}

/* The same norm to the last bit, whoever measures. */
static void
test_norms_are_the_same_everywhere(void)
{
    double norms[4];

    for (uint32_t i = 0; i < 4; i++) {
        berth_gradient gradients[TRAINED_MAX];
        berth_optimizer_options options;
        berth_step_report report;
        berth_step_options step;
        trained t;

        berth_optimizer_options_init(&options);
        options.threads = i + 1;
        options.page_elements = 4096;
        if (stepped_open(&t, machines[i % 2], &options)) {
            trained_draw(&t, ALL, true);
            trained_gradients(&t, ALL, gradients);
            berth_step_options_init(&step);
            step.has_norm = 1;
            step.report = &report;
            CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &step, NULL), BERTH_OK);
            norms[i] = report.norm;
            trained_expect(&t, ALL, 1.0f);
            CHECK_EQ(report.non_finite, t.not_finite);
            trained_check(&t);
        }
        trained_close(&t);
    }
    for (uint32_t i = 1; i < 4; i++)
        CHECK_MEM(&norms[i], &norms[0], sizeof norms[0]);
}

/* -------------------------------------------------------------------- skipped steps */

static void
check_skip(const char *machine)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_report report;
    berth_step_options options;
    trained t;

    if (stepped_open(&t, machine, NULL)) {
        trained_step(&t, ALL, false);
        trained_draw(&t, ALL, true);
        trained_gradients(&t, ALL, gradients);
        berth_step_options_init(&options);
        options.skips_non_finite = 1;
        options.report = &report;
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
        CHECK_EQ(report.is_skipped, 1);
        CHECK_EQ(report.step, 2);
        CHECK_EQ(report.updated, 0);
        CHECK_GT(report.non_finite, 0);
        CHECK(isnan(report.norm)); /* nobody asked for one */
        trained_check(&t);
        trained_draw(&t, ALL, false);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
        CHECK(isnan(report.norm));
        trained_expect(&t, ALL, 1.0f);
        CHECK_EQ(report.is_skipped, 0);
        CHECK_EQ(report.step, 2);
        CHECK_EQ(report.non_finite, 0);
        trained_check(&t);
    }
    trained_close(&t);
}

static void
test_steps_are_skipped(void)
{
    check_skip(machines[0]);
    check_skip(machines[1]);
}

static uint64_t
count_odd(const trained *t)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < t->count; i++)
        for (uint64_t k = 0; k < t->parameters[i].count; k++)
            count += isfinite(berthi_core_load(t->twins[i].host_gradient,
                                               t->parameters[i].gradient_dtype, k))
                         ? 0
                         : 1;
    return count;
}

/* Every element is told once, in the first report from its step on, skipped or not. */
static void
check_counts(const char *machine)
{
    static const struct { bool is_odd, is_skipped, has_report; } steps[] = {
        { true, false, false }, { true, true, true }, { true, true, false },
        { false, false, true }, { true, true, true }, { false, false, true },
    };
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options options;
    berth_step_report report;
    uint64_t untold = 0;
    trained t;

    if (stepped_open(&t, machine, NULL))
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            trained_draw(&t, ALL, steps[i].is_odd);
            trained_gradients(&t, ALL, gradients);
            CHECK_EQ(count_odd(&t) > 0, steps[i].is_odd);
            untold += count_odd(&t);
            berth_step_options_init(&options);
            options.skips_non_finite = steps[i].is_skipped;
            options.report = steps[i].has_report ? &report : NULL;
            CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
            if (!steps[i].is_skipped)
                trained_expect(&t, ALL, 1.0f);
            trained_check(&t);
            if (!steps[i].has_report)
                continue;
            CHECK_EQ(report.is_skipped, steps[i].is_skipped);
            CHECK_EQ(report.non_finite, untold);
            untold = 0;
        }
    trained_close(&t);
}

static void
test_steps_count_what_was_not_told(void)
{
    check_counts(machines[0]);
    check_counts(machines[1]);
}

/* A step that is skipped, a device's `nth` call failing; true: one did. */
static bool
skip_without(trained *t, const berth_gradient *gradients, uint64_t nth,
             berth_step_report *report, berth_status *out_status)
{
    berth_step_options options;
    bool has_failed;

    berth_step_options_init(&options);
    options.skips_non_finite = 1;
    options.report = report;
    berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
    *out_status = berth_optimizer_step(t->optimizer, gradients, &options, NULL);
    has_failed = berthi_fault_failures(BERTHI_FAULT_DEVICE) > 0;
    berthi_fault_disarm();
    return has_failed;
}

/* What a report that failed had read of one device, or the host had met, the next one tells. */
static void
check_failed_reports(trained *t)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_report report;
    uint64_t untold = 0;
    uint64_t begun = 0; /* of reports that failed */
    bool has_failed = true;

    for (uint64_t nth = 0; has_failed && nth < 100; nth++) {
        berth_status status;

        trained_draw(t, ALL, true);
        trained_gradients(t, ALL, gradients);
        CHECK_EQ(berth_optimizer_step(t->optimizer, gradients, NULL, NULL), BERTH_OK);
        untold += count_odd(t);
        has_failed = skip_without(t, gradients, nth, &report, &status);
        untold += report.is_skipped ? count_odd(t) : 0;
        begun += status != BERTH_OK && report.is_skipped;
        CHECK_EQ(report.non_finite, (status == BERTH_OK ? untold : 0));
        if (status == BERTH_OK)
            untold = 0;
    }
    CHECK(!has_failed);
    CHECK_GT(begun, 4);
}

static void
test_a_failed_report_tells_nothing(void)
{
    static const trained_parameter apart[] = {
        { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 8000, BERTH_F32, BERTH_F32, 0, 1 },
    };
    const berth_optimizer_group g = trained_adamw();
    trained t;

    if (trained_open(&t, stepped_context, &(trained_options){ .devices = SIM ";" SIM,
                                                              .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = apart,
                                                              .count = 2 }))
        check_failed_reports(&t);
    trained_close(&t);
}

/*
 * Gradients of f16 as many times too large as they must be: a step is skipped, and the next
 * one clipped by the norm of what they are.
 */
static void
check_loss_scale(const char *machine)
{
    static const trained_parameter half = { 9000, BERTH_F16, BERTH_F16, 0, 0 };
    const float scale = 1.0f / 1024;
    berth_optimizer_group g = trained_adamw();
    berth_gradient gradients[TRAINED_MAX];
    berth_step_report report;
    berth_step_options options;
    trained t;

    g.has_master = 1;
    berth_step_options_init(&options);
    options.scale = scale;
    options.max_norm = 0.01f;
    options.skips_non_finite = 1;
    options.report = &report;
    if (trained_open(&t, stepped_context, &(trained_options){ .devices = machine,
                                                              .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = &half,
                                                              .count = 1 }))
        for (uint64_t turn = 0; turn < 4; turn++) {
            trained_draw(&t, ALL, turn % 2 == 0);
            trained_gradients(&t, ALL, gradients);
            CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
            CHECK_EQ(report.is_skipped, turn % 2 == 0);
            CHECK_EQ(report.updated, turn % 2);
            CHECK_EQ(report.step, turn / 2 + 1);
            CHECK_EQ(report.non_finite > 0, turn % 2 == 0);
            if (turn % 2 == 1) {
                CHECK(fabs(report.norm - stepped_norm(&t, (double)scale)) < 1e-9 * report.norm);
                CHECK(report.norm > 0.01 && report.clip == (float)((double)0.01f / report.norm));
                trained_expect(&t, ALL, scale * report.clip);
            }
            trained_check(&t);
        }
    trained_close(&t);
}

static void
test_losses_are_scaled(void)
{
    check_loss_scale(machines[0]);
    check_loss_scale(machines[1]);
}

/* ---------------------------------------------------------------------------- sums */

/* Sums are planned and booked where they are the optimizer's, and not where they are not. */
static void
check_sums_are_whose(const trained *t, const berth_optimizer_options *options, bool is_callers)
{
    const uint64_t counts = stepped_two[0].count + stepped_two[1].count;
    const uint64_t bytes = is_callers ? 0 : counts * sizeof(float);
    berth_optimizer_options mine = *options;
    berth_parameter parameters[TRAINED_MAX];
    berth_optimizer_memory memory;

    mine.devices = t->devices;
    trained_list(t, parameters);
    CHECK_EQ(berth_optimizer_plan(stepped_context, t->groups, 1, parameters, 2, &mine, 0, &memory,
                                  NULL),
             BERTH_OK);
    CHECK_EQ(memory.gradients, bytes);
    CHECK_EQ(berth_optimizer_get_memory(t->optimizer, 0, &memory), BERTH_OK);
    CHECK_EQ(memory.gradients, bytes);
}

/* The caller's memory has them: what was there before is gone. */
static void
check_sum_is(const trained *t, uint32_t i, const float *expected)
{
    float *const actual = malloc(stepped_two[i].count * sizeof *actual);

    trained_read_sum(t, i, actual);
    CHECK_MEM(actual, expected, stepped_two[i].count * sizeof *actual);
    free(actual);
}

/* Two gradients added up in f32 are one gradient of f32. */
static void
check_sums(const char *machine, bool is_callers)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_optimizer_options options;
    float *sums[2];
    trained t;

    berth_optimizer_options_init(&options);
    options.accumulates = 1;
    for (uint32_t i = 0; i < 2; i++)
        sums[i] = calloc(stepped_two[i].count, sizeof(float));
    if (stepped_open_sums(&t, machine, &options, is_callers)) {
        check_sums_are_whose(&t, &options, is_callers);
        for (uint32_t turn = 0; turn < 3; turn++) {
            trained_draw(&t, ALL, false);
            trained_gradients(&t, turn == 1 ? 1 : ALL, gradients);
            CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL),
                     BERTH_OK);
            for (uint32_t i = 0; i < (turn == 1 ? 1 : 2); i++)
                for (uint64_t k = 0; k < stepped_two[i].count; k++)
                    sums[i][k] += berthi_core_load(t.twins[i].host_gradient,
                                                   stepped_two[i].gradient_dtype, k);
        }
        CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, NULL, NULL), BERTH_OK);
        for (uint32_t i = 0; i < 2; i++) {
            if (is_callers)
                check_sum_is(&t, i, sums[i]);
            free(t.twins[i].host_gradient);
            t.twins[i].host_gradient = sums[i];
            t.parameters[i].gradient_dtype = BERTH_F32;
            sums[i] = NULL;
        }
        trained_expect(&t, ALL, 1.0f);
        trained_check(&t);
        /* They begin anew: nothing has been added, so nothing is updated. */
        CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, NULL, NULL), BERTH_OK);
        trained_check(&t);
        for (uint32_t i = 0; i < 2; i++)
            t.parameters[i].gradient_dtype = stepped_two[i].gradient_dtype;
    }
    trained_close(&t);
    free(sums[0]);
    free(sums[1]);
}

/* What a skipped step was about is forgotten: the next sums begin anew. */
static void
check_skipped_sums(const char *machine)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_optimizer_options options;
    berth_step_options skipping;
    berth_step_report report;
    trained t;

    berth_optimizer_options_init(&options);
    options.accumulates = 1;
    berth_step_options_init(&skipping);
    skipping.skips_non_finite = 1;
    skipping.report = &report;
    if (stepped_open(&t, machine, &options)) {
        trained_draw(&t, ALL, true);
        trained_gradients(&t, ALL, gradients);
        CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL), BERTH_OK);
        CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, &skipping, NULL), BERTH_OK);
        CHECK_EQ(report.is_skipped, 1);
        CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, &skipping, NULL), BERTH_OK);
        CHECK_EQ(report.is_skipped, 0);
        CHECK_EQ(report.updated, 0);
        trained_check(&t);
    }
    trained_close(&t);
}

static void
test_gradients_are_added_up(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        check_sums(machines[i], false);
        check_sums(machines[i], true);
        check_skipped_sums(machines[i]);
    }
}

/* ------------------------------------------------------------------------ what is told */

static void
check_told(const char *machine, int32_t place, int32_t expected)
{
    berth_optimizer_group g = trained_adamw();
    berth_optimizer_options options;
    berth_parameter_state state;
    trained t;

    g.place = place;
    g.has_master = 1;
    berth_optimizer_options_init(&options);
    options.states_dir = fixture_folder();
    if (trained_open(&t, stepped_context,
                     &(trained_options){ .devices = machine,
                                         .groups = &g,
                                         .group_count = 1,
                                         .parameters = stepped_two,
                                         .count = 2,
                                         .optimizer = &options })) {
        trained_step(&t, 1, false);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 0, &state), BERTH_OK);
        CHECK_EQ(strcmp(state.name, t.twins[0].name), 0);
        CHECK_EQ(state.elements, 9000);
        CHECK_EQ(state.step, 1);
        CHECK_EQ(state.bytes, 4 * 9000 + 2 * (9000 + 4 * 36));
        CHECK_EQ(state.kind, BERTH_UPDATE_ADAMW);
        CHECK_EQ(state.bits, 8);
        CHECK_EQ(state.place, expected);
        CHECK_EQ(state.has_master, 1);
        CHECK_EQ(state.states, 2);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 1, &state), BERTH_OK);
        CHECK_EQ(state.step, 0);
        CHECK_EQ(state.bits, 32);
        CHECK_EQ(state.place, BERTH_STATES_DEVICE); /* few elements */
        CHECK_EQ(state.has_master, 0);
    }
    trained_close(&t);
}

static void
test_parameters_are_told(void)
{
    for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++) {
        check_told(SIM, place, place);
        check_told(NULL, place, place == BERTH_STATES_HOST ? BERTH_STATES_DEVICE : place);
    }
}

/* ---------------------------------------------------------------------- what is read */

static void
test_stretches_of_states_are_read(void)
{
    berth_optimizer_options options;
    static float whole[9000];
    static float part[9000];
    trained t;

    berth_optimizer_options_init(&options);
    options.page_elements = 4096;
    if (stepped_open(&t, SIM, &options)) {
        trained_step(&t, ALL, false);
        for (uint32_t state = 0; state < 2; state++) {
            CHECK_EQ(berth_optimizer_read(t.optimizer, 0, state, 0, 9000, whole, NULL),
                     BERTH_OK);
            for (uint64_t first = 0; first < 9000; first += 577) {
                const uint64_t count = first % 3 == 0 ? 9000 - first : 300;

                if (first + count > 9000)
                    continue;
                memset(part, 0xA5, sizeof part);
                CHECK_EQ(berth_optimizer_read(t.optimizer, 0, state, first, count, part,
                                              NULL),
                         BERTH_OK);
                CHECK_MEM(part, whole + first, count * sizeof *part);
                if (count < 9000)
                    CHECK_EQ(berthi_core_bits(part[count]), 0xA5A5A5A5u);
            }
        }
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 9000, 0, whole, NULL), BERTH_OK);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 9000, 1, whole, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 9001, 0, whole, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 2, 0, 1, whole, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 2, 0, 0, 1, whole, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_read(t.optimizer, 0, 0, 0, 1, NULL, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_read(NULL, 0, 0, 0, 1, whole, NULL), BERTH_EINVAL);
    }
    trained_close(&t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &stepped_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_norms_are_clipped);
    T_RUN(test_norms_are_the_same_everywhere);
    T_RUN(test_steps_are_skipped);
    T_RUN(test_steps_count_what_was_not_told);
    T_RUN(test_a_failed_report_tells_nothing);
    T_RUN(test_losses_are_scaled);
    T_RUN(test_gradients_are_added_up);
    T_RUN(test_parameters_are_told);
    T_RUN(test_stretches_of_states_are_read);
    berth_context_destroy(stepped_context);
    T_MAIN_END;
}
