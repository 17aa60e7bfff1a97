/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_order.c - steps on several devices, and the order of work on streams. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/device.h"
#include "kernels/sys.h"
#include "tests/stepped.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX
#define SIM "sim:256MiB,h2d=1GB/s,d2h=1GB/s,backing=sealed"

/* ----------------------------------------------------------------------- devices */

/* Gradients of all devices have one norm, by which all are clipped. */
static void
test_devices_have_one_norm(void)
{
    static const trained_parameter apart[] = {
        { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 8000, BERTH_F32, BERTH_F32, 0, 1 },
        { 300, BERTH_F16, BERTH_F16, 0, 0 },
    };
    const berth_optimizer_group g = trained_adamw();
    berth_gradient gradients[TRAINED_MAX];
    berth_step_report report;
    berth_step_options options;
    trained t;

    berth_step_options_init(&options);
    options.max_norm = 1.0f;
    options.report = &report;
    if (trained_open(&t, stepped_context, &(trained_options){ .devices = SIM ";" SIM,
                                                              .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = apart,
                                                              .count = 3 })) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
        CHECK(fabs(report.norm - stepped_norm(&t, 1)) < 1e-9 * report.norm);
        CHECK(report.clip < 1.0f && report.clip == (float)(1.0 / report.norm));
        trained_expect(&t, ALL, report.clip);
        trained_check(&t);
    }
    trained_close(&t);
}

/* What each of several devices has counted is told, of this step alone. */
static void
test_devices_count_together(void)
{
    static const trained_parameter apart[] = {
        { 9000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 8000, BERTH_F32, BERTH_F32, 0, 1 },
    };
    const berth_optimizer_group g = trained_adamw();
    berth_gradient gradients[TRAINED_MAX];
    berth_step_report report;
    berth_step_options options;
    trained t;

    berth_step_options_init(&options);
    options.report = &report;
    if (trained_open(&t, stepped_context, &(trained_options){ .devices = SIM ";" SIM,
                                                              .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = apart,
                                                              .count = 2 }))
        for (uint32_t mask = 1; mask <= 3; mask++) {
            trained_draw(&t, mask, true);
            trained_gradients(&t, mask, gradients);
            CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, &options, NULL), BERTH_OK);
            trained_expect(&t, mask, 1.0f);
            CHECK_GT(report.non_finite, 0);
            CHECK_EQ(report.non_finite, t.not_finite);
            trained_check(&t);
        }
    trained_close(&t);
}

/* ------------------------------------------------------------------------- order */

/* States that are still on their way back are not fetched by the next step. */
static void
test_steps_wait_for_states(void)
{
    berth_optimizer_group g = trained_adamw();
    berth_gradient gradients[TRAINED_MAX];
    trained t;

    g.place = BERTH_STATES_HOST;
    if (trained_open(&t, stepped_context, &(trained_options){ .devices = "sim:256MiB,h2d=50GB/s,"
                                                                         "d2h=1MB/s",
                                                              .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = stepped_two,
                                                              .count = 2 })) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, NULL, NULL), BERTH_OK);
            trained_expect(&t, ALL, 1.0f);
        }
        trained_check(&t);
    }
    trained_close(&t);
}

/* Nor are they read before they have come back, from whichever device they visit. */
static void
test_states_of_each_device_are_waited_for(void)
{
    static const trained_parameter second[] = { { 9000, BERTH_BF16, BERTH_BF16, 0, 1 } };
    berth_optimizer_group g = trained_adamw();
    trained t;

    g.place = BERTH_STATES_HOST;
    if (trained_open(&t, stepped_context, &(trained_options){ .devices = "sim:256MiB,h2d=50GB/s,"
                                                                         "d2h=1MB/s*2",
                                                              .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = second,
                                                              .count = 1 })) {
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
}

/* As the gradient itself, or as the sum of this one. */
static void
step_on(trained *t, const berth_gradient *gradients, void *const *streams, bool is_sum)
{
    berth_step_options options;

    berth_step_options_init(&options);
    options.streams = streams;
    if (is_sum)
        CHECK_EQ(berth_optimizer_accumulate(t->optimizer, gradients, streams, NULL),
                 BERTH_OK);
    CHECK_EQ(berth_optimizer_step(t->optimizer, is_sum ? NULL : gradients, &options, NULL),
             BERTH_OK);
}

/* A gradient that is brought on the caller's stream is there when it is used. */
static void
check_stream(trained *t, bool is_sum)
{
    berthi_device *const device = berthi_devices_at(t->devices, 0);
    const uint64_t bytes = 2 * stepped_two[0].count;
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t pinned = (bytes + page - 1) / page * page;
    berth_gradient gradients[TRAINED_MAX];
    berthi_stream *stream = NULL;
    void *streams[1];
    void *const host = aligned_alloc(page, pinned);

    trained_draw(t, 1, false);
    trained_gradients(t, 1, gradients);
    memcpy(host, t->twins[0].host_gradient, bytes);
    CHECK_EQ(device->table->clear(device, t->twins[0].gradient, bytes, NULL, NULL), BERTH_OK);
    CHECK_EQ(device->table->pin(device, host, pinned, NULL), BERTH_OK);
    if (CHECK_EQ(device->table->stream_create(device, &stream, NULL), BERTH_OK)) {
        const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE,
                                   .is_pinned = true,
                                   .to = t->twins[0].gradient,
                                   .from = host,
                                   .bytes = bytes };

        CHECK_EQ(device->table->copy(device, &copy, stream, NULL), BERTH_OK);
        streams[0] = stream;
        step_on(t, gradients, streams, is_sum);
        trained_expect(t, 1, 1.0f);
        /* And states are moved when it has been used. */
        CHECK_EQ(berth_optimizer_move(t->optimizer, 0, BERTH_STATES_HOST, NULL), BERTH_OK);
        trained_check(t);
        device->table->stream_destroy(device, stream);
    }
    device->table->unpin(device, host, pinned);
    free(host);
}

static void
test_steps_follow_the_callers_stream(void)
{
    berth_optimizer_options options;

    berth_optimizer_options_init(&options);
    options.accumulates = 1;
    for (int is_sum = 0; is_sum < 2; is_sum++) {
        trained t;

        if (stepped_open(&t, "sim:256MiB,h2d=1MB/s", &options))
            check_stream(&t, is_sum == 1);
        trained_close(&t);
    }
}

/* A stream with a slow copy, so that what it is asked for next comes late. */
static void *
busy_stream(const trained *t)
{
    berthi_device *const device = berthi_devices_at(t->devices, 0);
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE,
                               .to = t->twins[1].gradient,
                               .from = t->twins[1].host_gradient,
                               .bytes = 4 * stepped_two[1].count };
    berthi_stream *stream = NULL;

    CHECK_EQ(device->table->stream_create(device, &stream, NULL), BERTH_OK);
    CHECK_EQ(device->table->copy(device, &copy, stream, NULL), BERTH_OK);
    return stream;
}

/* Each on a stream of its own that nobody orders: sums, norms and updates all do. */
static void
check_other_streams(trained *t, float max_norm, bool is_sum)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options step;
    berth_step_report report;
    void *streams[3] = { NULL };

    berth_step_options_init(&step);
    step.max_norm = max_norm;
    trained_draw(t, ALL, false);
    trained_gradients(t, 1, gradients);
    for (uint32_t i = 0; i < 2; i++)
        streams[i] = busy_stream(t);
    for (uint32_t i = 0; i < 3; i++) {
        step.streams = &streams[i];
        step.scale = (float)(i + 1);
        step.report = i == 2 ? &report : NULL;
        if (is_sum)
            CHECK_EQ(berth_optimizer_accumulate(t->optimizer, gradients, &streams[1 - i / 2],
                                                NULL),
                     BERTH_OK);
        CHECK_EQ(berth_optimizer_step(t->optimizer, is_sum ? NULL : gradients, &step, NULL),
                 BERTH_OK);
        trained_expect(t, 1, step.scale);
    }
    trained_check(t);
    for (uint32_t i = 0; i < 2; i++)
        berth_stream_destroy(t->devices, 0, streams[i]);
}

static void
test_steps_follow_each_other(void)
{
    berth_optimizer_options sums;
    berth_optimizer_group g = trained_adamw();

    berth_optimizer_options_init(&sums);
    sums.accumulates = 1;
    for (uint32_t i = 0; i < 8; i++) {
        trained t;

        g.place = i & 1 ? BERTH_STATES_HOST : BERTH_STATES_DEVICE;
        if (trained_open(&t, stepped_context, &(trained_options){ .devices = "sim:256MiB,h2d=1MB/s",
                                                                  .groups = &g,
                                                                  .group_count = 1,
                                                                  .parameters = stepped_two,
                                                                  .count = 2,
                                                                  .optimizer = &sums }))
            check_other_streams(&t, i & 2 ? 1e30f : 0, (i & 4) != 0);
        trained_close(&t);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &stepped_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_devices_have_one_norm);
    T_RUN(test_devices_count_together);
    T_RUN(test_steps_wait_for_states);
    T_RUN(test_states_of_each_device_are_waited_for);
    T_RUN(test_steps_follow_the_callers_stream);
    T_RUN(test_steps_follow_each_other);
    berth_context_destroy(stepped_context);
    T_MAIN_END;
}
