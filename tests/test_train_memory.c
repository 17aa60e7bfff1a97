/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of optimizers: what is planned is what is allocated is what the books say, to
 * the byte, and pins go where states go.
 */
#include <string.h>

#include "kernels/device.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"

#define ALL UINT32_MAX
#define SIM "sim:256MiB,h2d=1GB/s,d2h=1GB/s"

static const char *folder;

/* ------------------------------------------------------------------- planned, booked */

static berth_memory
book_of(const berth_context *context, const char *tier, int32_t purpose)
{
    berth_memory m;

    for (uint32_t i = 0; i < berth_memory_tiers(context); i++)
        if (berth_memory_get(context, i, purpose, &m) == BERTH_OK
            && strcmp(m.tier, tier) == 0)
            return m;
    memset(&m, 0, sizeof m);
    return m;
}

static uint64_t
booked(const berth_context *context, const char *tier, int32_t purpose)
{
    return book_of(context, tier, purpose).current_bytes;
}

static void
check_books(const char *machine, const char *tier, int32_t place)
{
    berth_parameter parameters[TRAINED_MAX];
    berth_optimizer_options options = trained_optimizer(folder);
    berth_optimizer_memory planned;
    berth_optimizer_memory taken;
    berth_context *context;
    uint64_t there;
    trained t;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return;
    if (trained_open_at(&t, context, folder, machine, place)) {
        options.devices = t.devices;
        trained_list(&t, parameters);
        for (uint32_t i = 0; i < 3; i++)
            parameters[i].values = NULL;
        CHECK_EQ(berth_optimizer_plan(context, t.groups, 1, parameters, 3, &options, 0,
                                      &planned, NULL),
                 BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &taken), BERTH_OK);
        CHECK_MEM(&taken, &planned, sizeof taken);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, BERTH_NO_INDEX, &taken), BERTH_OK);
        CHECK_MEM(&taken, &planned, sizeof taken);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 1, &taken), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_get_memory(NULL, 0, &taken), BERTH_EINVAL);
        CHECK_EQ(planned.elements, 170501);
        CHECK_EQ(planned.elements_8bit, 170001);
        CHECK_EQ(planned.gradients, 170501 * 4);
        there = planned.states[BERTH_STATES_DEVICE] + planned.gradients;
        if (strcmp(tier, "cpu") == 0)
            there += planned.states[BERTH_STATES_HOST];
        else
            CHECK_EQ(booked(context, "cpu", BERTH_MEMORY_STATES),
                     planned.states[BERTH_STATES_HOST]);
        CHECK_EQ(booked(context, tier, BERTH_MEMORY_STATES), there);
        CHECK_EQ(booked(context, tier, BERTH_MEMORY_SLOTS), planned.slots);
        CHECK_EQ(booked(context, tier, BERTH_MEMORY_SCRATCH), planned.scratch);
        CHECK_EQ(planned.scratch > 0, machine != NULL);
        CHECK_EQ(booked(context, "cpu", BERTH_MEMORY_STAGING), planned.staging);
        CHECK_EQ(planned.staging > 0, place == BERTH_STATES_DISK);
        CHECK_EQ(planned.slots > 0, machine != NULL && place != BERTH_STATES_DEVICE);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
    CHECK_EQ(booked(context, tier, BERTH_MEMORY_ALL), 0);
    berth_context_destroy(context);
}

static void
test_planned_is_booked(void)
{
    for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++) {
        check_books(NULL, "cpu", place);
        check_books("sim:256MiB,h2d=1GB/s,d2h=1GB/s", "sim:0", place);
    }
}

/* All that it has of its device, as it tells. */
static uint64_t
told_bytes(const trained *t)
{
    berth_optimizer_memory m;

    CHECK_EQ(berth_optimizer_get_memory(t->optimizer, 0, &m), BERTH_OK);
    return m.states[BERTH_STATES_DEVICE] + m.gradients + m.slots + m.scratch;
}

static void
step_with_a_norm(trained *t)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options options;

    berth_step_options_init(&options);
    options.max_norm = 1e9f;
    trained_draw(t, ALL, false);
    trained_gradients(t, ALL, gradients);
    CHECK_EQ(berth_optimizer_step(t->optimizer, gradients, &options, NULL), BERTH_OK);
    trained_expect(t, ALL, 1.0f);
}

/* What norms are added up in, and what one page is worked on in: of host memory alone. */
static void
check_beside_the_plan(trained *t, berth_context *context)
{
    const char *const path = fixture_format("%s/states.safetensors", folder);
    const uint64_t page = berthi_sys_page_bytes();
    const uint64_t sums = (16 * (25 + 18 + 1) + page - 1) / page * page;
    const uint64_t planned = told_bytes(t);
    /* The f32 copy and 8-bit states; what is read, and the values it stands for. */
    const uint64_t most = 16384 * (4 + 2) + 2 * 4 * 64 + 16384 * (4 + 2) + 64;

    CHECK_EQ(booked(context, "sim:0", BERTH_MEMORY_ALL), planned);
    CHECK_EQ(booked(context, "cpu", BERTH_MEMORY_SCRATCH), 0);
    step_with_a_norm(t);
    CHECK_EQ(booked(context, "cpu", BERTH_MEMORY_SCRATCH), sums);
    CHECK_EQ(berth_optimizer_save(t->optimizer, path, 1, NULL), BERTH_OK);
    CHECK_LE(book_of(context, "cpu", BERTH_MEMORY_SCRATCH).peak_bytes, sums + most);
    CHECK_EQ(berth_optimizer_load(t->optimizer, path, NULL), BERTH_OK);
    CHECK_LE(book_of(context, "cpu", BERTH_MEMORY_SCRATCH).peak_bytes, sums + (1 << 20));
    CHECK_EQ(booked(context, "cpu", BERTH_MEMORY_SCRATCH), sums);
    CHECK_EQ(book_of(context, "sim:0", BERTH_MEMORY_ALL).peak_bytes, planned);
}

/* Steps, norms, saves and loads take nothing of a device; a move what it tells. */
static void
test_nothing_is_taken_beside_the_plan(void)
{
    for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++) {
        berth_context *context;
        trained t;

        if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
            return;
        if (trained_open_at(&t, context, folder, SIM, place)) {
            check_beside_the_plan(&t, context);
            trained_check(&t);
            for (int32_t i = 1; i <= BERTH_STATES_PLACE_COUNT; i++) {
                CHECK_EQ(berth_optimizer_move(t.optimizer, 0,
                                              (place + i) % BERTH_STATES_PLACE_COUNT, NULL),
                         BERTH_OK);
                CHECK_EQ(booked(context, "sim:0", BERTH_MEMORY_ALL), told_bytes(&t));
                step_with_a_norm(&t);
                CHECK_EQ(booked(context, "sim:0", BERTH_MEMORY_ALL), told_bytes(&t));
            }
            trained_check(&t);
        }
        trained_close(&t);
        CHECK_EQ(booked(context, "cpu", BERTH_MEMORY_SCRATCH), 0);
        berth_context_destroy(context);
    }
}

/* What all devices have is what each of them has; the staging is nobody's. */
static void
test_devices_add_up(void)
{
    static const trained_parameter apart[] = {
        { 100000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 70001, BERTH_F32, BERTH_BF16, 0, 1 },
    };
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_HOST);
    berth_optimizer_options options = trained_optimizer(folder);
    berth_optimizer_memory each[2];
    berth_optimizer_memory all;
    berth_optimizer_memory planned;
    berth_parameter parameters[TRAINED_MAX];
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open(&t, context, &(trained_options){ .devices = "sim:256MiB;sim:256MiB",
                                                      .groups = &g,
                                                      .group_count = 1,
                                                      .parameters = apart,
                                                      .count = 2,
                                                      .optimizer = &options })) {
        options.devices = t.devices;
        trained_list(&t, parameters);
        for (uint32_t i = 0; i < 2; i++) {
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, i, &each[i]), BERTH_OK);
            CHECK_EQ(each[i].parameters, 1);
            CHECK_GT(each[i].scratch, 0);
            CHECK_GT(each[i].slots, 0);
            CHECK_EQ(berth_optimizer_plan(context, t.groups, 1, parameters, 2, &options, i,
                                          &planned, NULL),
                     BERTH_OK);
            CHECK_MEM(&planned, &each[i], sizeof planned);
        }
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, BERTH_NO_INDEX, &all), BERTH_OK);
        CHECK_EQ(all.scratch, each[0].scratch + each[1].scratch);
        CHECK_EQ(all.slots, each[0].slots + each[1].slots);
        CHECK_EQ(all.gradients, each[0].gradients + each[1].gradients);
        CHECK_EQ(all.elements, 170001);
        CHECK_EQ(berth_optimizer_plan(context, t.groups, 1, parameters, 2, &options,
                                      BERTH_NO_INDEX, &planned, NULL),
                 BERTH_OK);
        CHECK_MEM(&planned, &all, sizeof planned);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* What cannot be made is not planned either. */
static void
test_plans_are_refused(void)
{
    const uint64_t shape[] = { UINT64_C(1) << 33, UINT64_C(1) << 33 };
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_DEVICE);
    berth_parameter parameter = { .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32 };
    berth_optimizer_options options = trained_optimizer(folder);
    berth_optimizer_memory memory;
    berth_context *context;
    berth_error error;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    options.slots = 17;
    CHECK_EQ(berth_optimizer_plan(context, &g, 1, &parameter, 1, &options, 0, &memory, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "slots");
    CHECK_EQ(memory.elements, 0);
    parameter.rank = 2;
    CHECK_EQ(berth_optimizer_plan(context, &g, 1, &parameter, 1, NULL, 0, &memory, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "more than there can be");
    CHECK_STR(error.tensor, "w");
    berth_context_destroy(context);
}

/* 2^57 elements of each, whose states take some 2^58 bytes, f32 copies and sums 2^59 each. */
static void
test_plans_do_not_wrap_around(void)
{
    enum { HUGE_ONES = 22 };
    const uint64_t shape[] = { UINT64_C(1) << 57 };
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_DEVICE);
    berth_parameter parameters[HUGE_ONES];
    berth_optimizer_options options = trained_optimizer(folder);
    berth_optimizer_memory memory;
    berth_context *context;
    berth_error error;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint32_t i = 0; i < HUGE_ONES; i++)
        parameters[i] = (berth_parameter){
            .name = fixture_format("w%u", i), .shape = shape, .rank = 1, .dtype = BERTH_BF16
        };
    for (int accumulates = 0; accumulates < 2; accumulates++) {
        const uint32_t most = accumulates ? 12 : 21;

        options.accumulates = accumulates;
        CHECK_EQ(berth_optimizer_plan(context, &g, 1, parameters, most, &options, 0, &memory,
                                      &error),
                 BERTH_OK);
        CHECK_EQ(memory.elements, most * shape[0]);
        CHECK_GT(memory.states[BERTH_STATES_DEVICE], most * shape[0]);
        CHECK_EQ(memory.gradients, accumulates ? most * shape[0] * 4 : 0);
        CHECK_EQ(berth_optimizer_plan(context, &g, 1, parameters, most + 1, &options, 0,
                                      &memory, &error),
                 BERTH_EINVAL);
        CHECK_STR(error.tensor, parameters[most].name);
        CHECK_CONTAINS(error.message, "2^64");
        CHECK_EQ(memory.elements, 0);
    }
    berth_context_destroy(context);
}

/* ---------------------------------------------------------------------------- pinned */

/* Buffers before the disk are pinned for all devices or for none; unpinned they do as well. */
static void
test_pins_are_for_all(void)
{
    static const char *const machines[] = { "sim:256MiB;sim:256MiB",
                                            "sim:256MiB;sim:256MiB,pin=0B" };
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint32_t i = 0; i < 2; i++) {
        trained t;

        if (trained_open_at(&t, context, folder, machines[i], BERTH_STATES_DISK)) {
            for (uint32_t k = 0; k < 2; k++) {
                const berthi_sim_device *const d =
                    (const berthi_sim_device *)berthi_devices_at(t.devices, k);

                CHECK_EQ(d->memory.pin_count > 0, i == 0);
            }
            trained_step(&t, ALL, false);
            trained_step(&t, ALL, false);
            trained_check(&t);
        }
        trained_close(&t);
    }
    berth_context_destroy(context);
}

static uint64_t
pins_of(const trained *t)
{
    return ((const berthi_sim_device *)berthi_devices_at(t->devices, 0))->memory.pin_count;
}

/* States that leave host memory leave no pin behind, and have one again when they are back. */
static void
test_pins_go_with_states(void)
{
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open_at(&t, context, folder, "sim:256MiB", BERTH_STATES_HOST)) {
        const uint64_t before = pins_of(&t);

        CHECK_GT(before, 0);
        for (int round = 0; round < 2; round++) {
            for (uint32_t i = 0; i < 3; i++)
                CHECK_EQ(berth_optimizer_move(t.optimizer, i, BERTH_STATES_DEVICE, NULL),
                         BERTH_OK);
            CHECK_EQ(pins_of(&t), 0);
            trained_step(&t, ALL, false);
            for (uint32_t i = 0; i < 2; i++)
                CHECK_EQ(berth_optimizer_move(t.optimizer, i, BERTH_STATES_HOST, NULL),
                         BERTH_OK);
            CHECK_EQ(pins_of(&t), before);
        }
        trained_check(&t);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* The figure: 8-bit states of both moments. */
static void
test_states_of_8_bits_are_small(void)
{
    const uint64_t shape[] = { 4096, 4096 };
    const berth_parameter parameter = {
        .name = "weight", .shape = shape, .rank = 2, .dtype = BERTH_BF16
    };
    berth_optimizer_group g = trained_group_at(BERTH_STATES_DEVICE);
    berth_optimizer_memory memory;
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    g.has_master = 0;
    CHECK_EQ(berth_optimizer_plan(context, &g, 1, &parameter, 1, NULL, 0, &memory, NULL),
             BERTH_OK);
    CHECK_EQ(memory.states[BERTH_STATES_DEVICE], UINT64_C(2) * 4096 * 4096 + 2 * 65536 * 4);
    CHECK_LE(memory.states[BERTH_STATES_DEVICE] * 100, UINT64_C(204) * 4096 * 4096);
    berth_context_destroy(context);
}

/* Where the context's ceiling leaves no room: what that would have been for. */
static void
test_no_host_memory_is_said_of_states(void)
{
    static const char *const words[] = { "cpu", "sim:16MiB" };
    const uint64_t shape[] = { 1 << 20 };
    berth_context_options options;

    berth_context_options_init(&options);
    options.memory_limit = 1 << 20;
    for (int i = 0; i < 2; i++) {
        const berth_optimizer_group g = trained_group_at(BERTH_STATES_HOST);
        static float values[1 << 20];
        const berth_parameter parameter = {
            .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32, .values = values
        };
        berth_optimizer_options its;
        berth_optimizer *optimizer;
        berth_context *context;
        berth_error error;

        T_REQUIRE(CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK));
        berth_optimizer_options_init(&its);
        its.page_elements = 4096;
        if (CHECK_EQ(berth_devices_open(context, words[i], &its.devices, NULL), BERTH_OK)) {
            CHECK_EQ(berth_optimizer_create(context, &g, 1, &parameter, 1, &its, &optimizer,
                                            &error),
                     BERTH_ENOMEM);
            CHECK_CONTAINS(error.message, "bytes for states");
        }
        berth_devices_close(its.devices);
        berth_context_destroy(context);
    }
}

/* Nothing is taken of a device that has no parameters, as plans for training say. */
static void
test_devices_without_parameters(void)
{
    static const trained_parameter one = { 5000, BERTH_BF16, BERTH_BF16, 0, 0 };
    const berth_optimizer_group g = trained_group_at(BERTH_STATES_DEVICE);
    berth_optimizer_options options = trained_optimizer(folder);
    berth_optimizer_memory memory;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open(&t, context, &(trained_options){ .devices = SIM "*2",
                                                      .groups = &g,
                                                      .group_count = 1,
                                                      .parameters = &one,
                                                      .count = 1,
                                                      .optimizer = &options })) {
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &memory), BERTH_OK);
        CHECK_GT(memory.scratch, 0);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 1, &memory), BERTH_OK);
        CHECK_EQ(memory.scratch, 0);
        CHECK_EQ(booked(context, "sim:1", BERTH_MEMORY_ALL), 0);
        trained_step(&t, ALL, true);
        trained_check(&t);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    T_RUN(test_planned_is_booked);
    T_RUN(test_nothing_is_taken_beside_the_plan);
    T_RUN(test_devices_add_up);
    T_RUN(test_plans_are_refused);
    T_RUN(test_plans_do_not_wrap_around);
    T_RUN(test_pins_are_for_all);
    T_RUN(test_pins_go_with_states);
    T_RUN(test_states_of_8_bits_are_small);
    T_RUN(test_no_host_memory_is_said_of_states);
    T_RUN(test_devices_without_parameters);
    T_MAIN_END;
}
