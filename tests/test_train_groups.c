/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_groups.c - groups of an optimizer that begin, change and have schedules. */
#include <math.h>

#include "kernels/core.h"
#include "kernels/sys.h"
#include "tests/stepped.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX

/* -------------------------------------------------------------------------- groups */

static void
test_groups_change(void)
{
    berth_optimizer_group g = trained_adamw();
    trained t;

    if (stepped_open(&t, NULL, NULL)) {
        trained_step(&t, ALL, false);
        g.rate = 0.5f;
        g.beta1 = 0.5f;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_OK);
        t.groups[0] = g;
        trained_step(&t, ALL, false);
        trained_check(&t);
        g.bits = 32;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_EINVAL);
        g = trained_adamw();
        g.kind = BERTH_UPDATE_LION;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_EINVAL);
        g = trained_adamw();
        g.has_master = 1;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_EINVAL);
        g = trained_adamw();
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 1, &g, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, NULL, NULL), BERTH_EINVAL);
        g.rate = NAN;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_EINVAL);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
}

/* Whatever is not 0 says that there is an f32 copy. */
static void
test_any_number_stands_for_a_master(void)
{
    berth_optimizer_group g = trained_adamw();
    trained t;

    g.has_master = -1;
    if (trained_open(&t, stepped_context, &(trained_options){ .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = stepped_two,
                                                              .count = 2 })) {
        g.has_master = 1;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_OK);
        g.has_master = 0;
        CHECK_EQ(berth_optimizer_set_group(t.optimizer, 0, &g, NULL), BERTH_EINVAL);
    }
    trained_close(&t);
}

/* What a group begins with: published defaults, written down once more. */
static void
test_groups_begin(void)
{
    static const struct {
        int32_t is_coupled;
        float rate, beta1, beta2, epsilon, decay, beta3, alpha;
    } published[BERTHI_UPDATE_KIND_COUNT] = {
        [BERTH_UPDATE_ADAM] = { 0, 1e-3f, 0.9f, 0.999f, 1e-8f, 0, 0, 0 },
        [BERTH_UPDATE_ADAMW] = { 0, 1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 0, 0 },
        [BERTH_UPDATE_LION] = { 0, 1e-4f, 0.9f, 0.99f, 0, 0, 0, 0 },
        [BERTH_UPDATE_MOMENTUM] = { 1, 1e-3f, 0.9f, 0, 0, 0, 0, 0 },
        [BERTH_UPDATE_RMSPROP] = { 1, 1e-2f, 0.99f, 0, 1e-8f, 0, 0, 0 },
        [BERTH_UPDATE_ADAGRAD] = { 1, 1e-2f, 0, 0, 1e-10f, 0, 0, 0 },
        [BERTH_UPDATE_ADEMAMIX] = { 0, 1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 0.9999f, 5 },
    };

    for (int32_t kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++) {
        berth_optimizer_group g;

        CHECK_EQ(berth_optimizer_group_init(&g, kind), BERTH_OK);
        CHECK_EQ(g.kind, kind);
        CHECK_EQ(g.bits, 8);
        CHECK_EQ(g.least_8bit, 4096);
        CHECK_EQ(g.place, BERTH_STATES_DEVICE);
        CHECK_EQ(g.has_master, 0);
        CHECK_EQ(g.is_coupled, published[kind].is_coupled);
        CHECK(g.rate == published[kind].rate);
        CHECK(g.beta1 == published[kind].beta1);
        CHECK(g.beta2 == published[kind].beta2);
        CHECK(g.beta3 == published[kind].beta3);
        CHECK(g.epsilon == published[kind].epsilon);
        CHECK(g.decay == published[kind].decay);
        CHECK(g.alpha == published[kind].alpha);
        CHECK_EQ(g.alpha_steps, 0);
        CHECK_EQ(g.beta3_steps, 0);
    }
}

/* States of 8 bits begin at 4096 elements. */
static void
test_small_parameters_have_32_bits(void)
{
    static const trained_parameter around[] = {
        { 4095, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 4096, BERTH_BF16, BERTH_BF16, 0, 0 },
    };
    const berth_optimizer_group g = trained_adamw();
    trained t;

    if (trained_open(&t, stepped_context, &(trained_options){ .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = around,
                                                              .count = 2 }))
        for (uint64_t i = 0; i < 2; i++) {
            berth_parameter_state state;

            CHECK_EQ(berth_optimizer_get(t.optimizer, i, &state), BERTH_OK);
            CHECK_EQ(state.bits, i == 0 ? 32 : 8);
            CHECK_EQ(state.bytes, i == 0 ? 2 * 4 * 4095 : 2 * (4096 + 4 * 16));
        }
    trained_close(&t);
}

/* Beta3 and alpha on their way, as a group says: the same as the plain loops make of it. */
static void
test_groups_have_schedules(void)
{
    berth_optimizer_group g;
    trained t;

    CHECK_EQ(berth_optimizer_group_init(&g, BERTH_UPDATE_ADEMAMIX), BERTH_OK);
    g.alpha_steps = 3;
    g.beta3_steps = 4;
    if (trained_open(&t, stepped_context, &(trained_options){ .groups = &g,
                                                              .group_count = 1,
                                                              .parameters = stepped_two,
                                                              .count = 2 }))
        for (int step = 0; step < 5; step++) {
            trained_step(&t, ALL, false);
            trained_check(&t);
        }
    trained_close(&t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &stepped_context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_groups_change);
    T_RUN(test_any_number_stands_for_a_master);
    T_RUN(test_groups_begin);
    T_RUN(test_small_parameters_have_32_bits);
    T_RUN(test_groups_have_schedules);
    berth_context_destroy(stepped_context);
    T_MAIN_END;
}
