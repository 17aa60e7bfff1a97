/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of optimizers: what is planned is what is allocated is what the books say, to
 * the byte; room that is made under way; devices that are lost; every allocation, system
 * call and call of a device failing in turn.
 *
 * The C library's pwrite stands here: it may write less than it is asked for; what says how
 * much is free; and what gives a thread its stack: it may refuse to.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernels/base.h"
#include "kernels/device.h"
#include "kernels/fault.h"
#include "tests/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"
#include "tests/vacant.h"

#define ALL UINT32_MAX
#define ANY_THREADS UINT32_MAX

static const char *folder;
static _Atomic size_t most_written; /* at once; 0: all */
static _Atomic bool is_full;        /* no byte is taken, none is free */
static _Atomic uint32_t threads_left = ANY_THREADS; /* that can still be started */

ssize_t
pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    const size_t most = atomic_load(&most_written);

    if (atomic_load(&is_full))
        return 0;
    return syscall(SYS_pwrite64, fd, bytes, most > 0 && size > most ? most : size, offset);
}

int
fstatvfs(int fd, struct statvfs *out)
{
    struct statfs state;

    if (fstatfs(fd, &state) != 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->f_blocks = 1;
    out->f_bavail = atomic_load(&is_full) ? 0 : state.f_bavail;
    out->f_frsize = (unsigned long)state.f_bsize;
    return 0;
}

/* Stacks of the usual size do for all that starts here. */
int
pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes)
{
    const uint32_t left = atomic_load(&threads_left);

    (void)attributes;
    (void)bytes;
    if (left > 0 && left < ANY_THREADS)
        atomic_store(&threads_left, left - 1);
    return left > 0 ? 0 : EAGAIN;
}

static const trained_parameter three[] = {
    { 100000, BERTH_BF16, BERTH_BF16, 0, 0 },
    { 70001, BERTH_F32, BERTH_BF16, 0, 0 },
    { 500, BERTH_F32, BERTH_F32, 0, 0 },
};

static berth_optimizer_group
group_at(int32_t place)
{
    berth_optimizer_group g;

    CHECK_EQ(berth_optimizer_group_init(&g, BERTH_UPDATE_ADAMW), BERTH_OK);
    g.place = place;
    g.has_master = 1;
    return g;
}

static berth_optimizer_options
options_of(void)
{
    berth_optimizer_options options;

    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.page_elements = 16384;
    options.accumulates = 1;
    return options;
}

static bool
open_at(trained *t, berth_context *context, const char *machine, int32_t place)
{
    const berth_optimizer_group g = group_at(place);
    const berth_optimizer_options options = options_of();

    return trained_open(t, context,
                        &(trained_options){ .devices = machine,
                                            .groups = &g,
                                            .group_count = 1,
                                            .parameters = three,
                                            .count = 3,
                                            .optimizer = &options });
}

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
    berth_optimizer_options options = options_of();
    berth_optimizer_memory planned;
    berth_optimizer_memory taken;
    berth_context *context;
    uint64_t there;
    trained t;

    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return;
    if (open_at(&t, context, machine, place)) {
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

#define SIM "sim:256MiB,h2d=1GB/s,d2h=1GB/s"

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
        if (open_at(&t, context, SIM, place)) {
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
    const berth_optimizer_group g = group_at(BERTH_STATES_HOST);
    berth_optimizer_options options = options_of();
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
    const berth_optimizer_group g = group_at(BERTH_STATES_DEVICE);
    berth_parameter parameter = { .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32 };
    berth_optimizer_options options = options_of();
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
    const berth_optimizer_group g = group_at(BERTH_STATES_DEVICE);
    berth_parameter parameters[HUGE_ONES];
    berth_optimizer_options options = options_of();
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

        if (open_at(&t, context, machines[i], BERTH_STATES_DISK)) {
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
    if (open_at(&t, context, "sim:256MiB", BERTH_STATES_HOST)) {
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
    berth_optimizer_group g = group_at(BERTH_STATES_DEVICE);
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
        const berth_optimizer_group g = group_at(BERTH_STATES_HOST);
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
    const berth_optimizer_group g = group_at(BERTH_STATES_DEVICE);
    berth_optimizer_options options = options_of();
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

/* ------------------------------------------------------------------------- making room */

/* A device that is full: what is asked for is given back, and the run goes on. */
static void
test_room_is_made_under_way(void)
{
    berth_optimizer_memory before;
    berth_optimizer_memory after;
    berth_context *context;
    berth_error error;
    uint64_t bytes;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, "sim:256MiB,h2d=1GB/s,d2h=1GB/s", BERTH_STATES_DEVICE)) {
        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &before), BERTH_OK);
        berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, true);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, &error), BERTH_ENOMEM);
        berthi_fault_disarm();
        CHECK_EQ(error.status, BERTH_ENOMEM);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, &error), BERTH_OK);
        CHECK_EQ(error.status, BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &after), BERTH_OK);
        CHECK_EQ(before.states[0] + before.slots - after.states[0] - after.slots, bytes);
        CHECK_GT(bytes, 0);
        CHECK_GT(after.states[BERTH_STATES_HOST], 0);
        trained_step(&t, ALL, false);
        trained_check(&t);
        /* All of it: small ones go, too. */
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, UINT64_MAX, &bytes, NULL),
                 BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &after), BERTH_OK);
        CHECK_EQ(after.states[BERTH_STATES_DEVICE], 0);
        trained_step(&t, ALL, false);
        trained_check(&t);
        CHECK_EQ(berth_optimizer_make_room(NULL, 0, 1, &bytes, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 1, 1, &bytes, NULL), BERTH_EINVAL);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, NULL, NULL), BERTH_EINVAL);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* States of 32 bits are larger than those of 8 of some more elements: they alone leave. */
static void
test_room_is_made_by_bytes(void)
{
    static const trained_parameter two[] = { { 120000, BERTH_BF16, BERTH_BF16, 0, 0 },
                                             { 100000, BERTH_BF16, BERTH_BF16, 1, 0 } };
    berth_optimizer_group groups[2] = { trained_group(BERTH_UPDATE_ADAMW, 8, 0),
                                        trained_group(BERTH_UPDATE_ADAMW, 32, 0) };
    berth_optimizer_options options = options_of();
    berth_parameter_state state;
    berth_context *context;
    uint64_t bytes;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (trained_open(&t, context, &(trained_options){ .devices = SIM,
                                                      .groups = groups,
                                                      .group_count = 2,
                                                      .parameters = two,
                                                      .count = 2,
                                                      .optimizer = &options })) {
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 200000, &bytes, NULL), BERTH_OK);
        CHECK_GE(bytes, 200000);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 0, &state), BERTH_OK);
        CHECK_EQ(state.place, BERTH_STATES_DEVICE);
        CHECK_EQ(berth_optimizer_get(t.optimizer, 1, &state), BERTH_OK);
        CHECK_EQ(state.place, BERTH_STATES_HOST);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* Makes room while one allocation fails; where the largest states are then. */
static int32_t
make_room_without(const trained *t, uint64_t allocation)
{
    berth_parameter_state state;
    berth_error error;
    uint64_t bytes;
    berth_status status;

    berthi_fault_arm(BERTHI_FAULT_MEMORY, allocation, false);
    status = berth_optimizer_make_room(t->optimizer, 0, 1, &bytes, &error);
    berthi_fault_disarm();
    CHECK_EQ(error.status, status);
    CHECK_EQ(bytes > 0, status == BERTH_OK);
    CHECK_EQ(berth_optimizer_get(t->optimizer, 0, &state), BERTH_OK);
    return state.place;
}

/* Where host memory has no room the disk has: the run goes on, and nothing is said. */
static void
test_room_is_made_on_the_disk(void)
{
    int32_t place = BERTH_STATES_DISK;
    uint64_t on_the_disk = 0;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, "sim:256MiB,h2d=1GB/s,d2h=1GB/s", BERTH_STATES_DEVICE)) {
        trained_step(&t, ALL, false);
        /* The first one that fails is the host's own, sooner or later; then all succeed. */
        for (uint64_t i = 0; i < 50 && place != BERTH_STATES_HOST; i++) {
            place = make_room_without(&t, i);
            on_the_disk += place == BERTH_STATES_DISK;
            trained_check(&t);
            trained_step(&t, ALL, false);
            trained_check(&t);
            CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_DEVICE, NULL),
                     BERTH_OK);
        }
        CHECK_EQ(place, BERTH_STATES_HOST);
        CHECK_GT(on_the_disk, 0);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

#define SLOTS 4u /* where nothing else is said */

#define LARGE_PAGE 344064u /* elements: a little less than what a device's memory comes in */

/* A parameter of so many elements, in large pages. */
static bool
open_pages(trained *t, berth_context *context, uint64_t elements)
{
    const trained_parameter large = { elements, BERTH_BF16, BERTH_BF16, 0, 0 };
    const berth_optimizer_group g = group_at(BERTH_STATES_DEVICE);
    berth_optimizer_options options = options_of();

    options.page_elements = LARGE_PAGE;
    options.accumulates = 0;
    return trained_open(t, context,
                        &(trained_options){ .devices = "sim:256MiB",
                                            .groups = &g,
                                            .group_count = 1,
                                            .parameters = &large,
                                            .count = 1,
                                            .optimizer = &options });
}

/* Five of them. */
static bool
open_large(trained *t, berth_context *context)
{
    return open_pages(t, context, 1500000);
}

/* Leaves room for so many slots; to be given to leave(). */
typedef struct crowd {
    berthi_device *device;
    uint64_t bytes;
    void *memory;
} crowd;

static crowd
crowd_in(const trained *t, uint64_t slots)
{
    crowd c = { .device = berthi_devices_at(t->devices, 0) };
    berthi_device_properties properties;

    c.device->table->describe(c.device, &properties);
    c.bytes = properties.free_bytes - slots * BERTHI_SIM_GRANULE;
    CHECK_EQ(c.device->table->alloc(c.device, c.bytes, &c.memory, NULL), BERTH_OK);
    return c;
}

static void
leave(const crowd *c)
{
    c->device->table->free(c->device, c->memory, c->bytes);
}

/* States move with as many slots as there is room for; none: with those in their own place. */
static void
test_slots_are_as_many_as_fit(void)
{
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint64_t room = 0; room <= SLOTS + 1; room++) {
        const uint64_t expected = room == 0 ? SLOTS : berthi_min_u64(room, SLOTS);
        berth_optimizer_memory memory;
        berth_error error;
        trained t;

        if (open_large(&t, context)) {
            const crowd c = crowd_in(&t, room);

            trained_step(&t, ALL, false);
            CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_HOST, &error), BERTH_OK);
            CHECK_EQ(error.status, BERTH_OK); /* whatever was tried before */
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &memory), BERTH_OK);
            CHECK_LE(memory.slots, expected * BERTHI_SIM_GRANULE);
            CHECK_GT(memory.slots, (expected - 1) * BERTHI_SIM_GRANULE);
            trained_step(&t, ALL, false);
            trained_check(&t);
            leave(&c);
        }
        trained_close(&t);
    }
    berth_context_destroy(context);
}

/* States of one page leave room for one slot where there was none. */
static void
test_one_slot_is_enough(void)
{
    berth_optimizer_memory memory;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_pages(&t, context, LARGE_PAGE)) {
        const crowd c = crowd_in(&t, 0);

        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_HOST, NULL), BERTH_OK);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &memory), BERTH_OK);
        CHECK_GT(memory.slots, 0);
        CHECK_LE(memory.slots, BERTHI_SIM_GRANULE);
        trained_step(&t, ALL, false);
        trained_check(&t);
        leave(&c);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* Moves the states to host memory while an allocation fails; how many did. */
static uint64_t
move_without(trained *t, uint64_t nth)
{
    berth_parameter_state state;
    berth_optimizer_memory memory;
    berth_error error;
    berth_status status;
    uint64_t failures;

    berthi_fault_arm(BERTHI_FAULT_MEMORY, nth, false);
    status = berth_optimizer_move(t->optimizer, 0, BERTH_STATES_HOST, &error);
    failures = berthi_fault_failures(BERTHI_FAULT_MEMORY);
    berthi_fault_disarm();
    CHECK_EQ(error.status, status);
    CHECK_EQ(berth_optimizer_get(t->optimizer, 0, &state), BERTH_OK);
    CHECK_EQ(state.place, status == BERTH_OK ? BERTH_STATES_HOST : BERTH_STATES_DEVICE);
    CHECK_EQ(berth_optimizer_get_memory(t->optimizer, 0, &memory), BERTH_OK);
    CHECK(status == BERTH_OK || memory.slots == 0);
    return failures;
}

/* States that stay where they are have taken nothing; those that have gone are visited. */
static void
test_a_move_is_made_or_not(void)
{
    for (uint64_t room = 0; room <= SLOTS; room += SLOTS) {
        uint64_t failures = 1;
        berth_context *context;

        T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
        for (uint64_t nth = 0; failures > 0 && nth < 50; nth++) {
            trained t;

            if (open_pages(&t, context, LARGE_PAGE)) {
                const crowd c = crowd_in(&t, room);

                failures = move_without(&t, nth);
                trained_step(&t, ALL, false);
                trained_check(&t);
                leave(&c);
            }
            trained_close(&t);
        }
        CHECK_EQ(failures, 0);
        berth_context_destroy(context);
    }
}

/* Moves all that is there to the disk; what is said, and where it is then. */
static void
check_stays(trained *t, berth_status expected)
{
    berth_parameter_state state;

    CHECK_EQ(berth_optimizer_move(t->optimizer, 0, BERTH_STATES_DISK, NULL), expected);
    berthi_fault_disarm();
    CHECK_EQ(berth_optimizer_get(t->optimizer, 0, &state), BERTH_OK);
    CHECK_EQ(state.place, BERTH_STATES_DEVICE);
    trained_step(t, ALL, false);
    trained_check(t);
}

/* Without buffers, or a folder, states stay where they are. */
static void
test_states_stay_where_the_disk_is_not(void)
{
    const char *const file = fixture_format("%s/no_folder", folder);
    const berth_optimizer_group g = group_at(BERTH_STATES_DEVICE);
    berth_optimizer_options options = options_of();
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    fixture_write(file, "", 0);
    options.states_dir = file;
    if (trained_open(&t, context, &(trained_options){ .groups = &g,
                                                      .group_count = 1,
                                                      .parameters = three,
                                                      .count = 3,
                                                      .optimizer = &options })) {
        trained_step(&t, ALL, false);
        berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, false);
        check_stays(&t, BERTH_ENOMEM);
        check_stays(&t, BERTH_ENOENT);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* Room for one more slot is none; of more pages as few slots are made as it takes. */
static void
test_room_is_not_taken(void)
{
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint64_t pages = 1; pages <= SLOTS + 2; pages++) {
        berth_optimizer_memory before;
        berth_optimizer_memory after;
        berth_error error;
        uint64_t bytes;
        trained t;

        if (open_pages(&t, context, pages * LARGE_PAGE)) {
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &before), BERTH_OK);
            CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, &error), BERTH_OK);
            CHECK_EQ(error.status, BERTH_OK);
            CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, &after), BERTH_OK);
            CHECK_EQ(bytes > 0, pages > 1);
            CHECK_EQ(after.states[0] + after.slots + bytes, before.states[0]);
            CHECK_EQ(after.states[0] > 0, pages == 1);
            CHECK_LE(after.slots, SLOTS * BERTHI_SIM_GRANULE);
            trained_step(&t, ALL, false);
            trained_check(&t);
        }
        trained_close(&t);
    }
    berth_context_destroy(context);
}

/* What is given back of a full device can be had from it. */
static void
test_room_that_is_made_is_there(void)
{
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_large(&t, context)) {
        const crowd c = crowd_in(&t, 0);
        void *memory = NULL;
        uint64_t bytes;

        CHECK_EQ(c.device->table->alloc(c.device, 1, &memory, NULL), BERTH_ENOFIT);
        CHECK_EQ(berth_optimizer_make_room(t.optimizer, 0, 1, &bytes, NULL), BERTH_OK);
        CHECK_GT(bytes, 0);
        if (CHECK_EQ(c.device->table->alloc(c.device, bytes, &memory, NULL), BERTH_OK))
            c.device->table->free(c.device, memory, bytes);
        trained_step(&t, ALL, false);
        trained_check(&t);
        leave(&c);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* An optimizer begins with all of its slots or not at all: so many were planned. */
static void
test_it_begins_with_all_slots(void)
{
    const berth_optimizer_group g = group_at(BERTH_STATES_HOST);
    berth_optimizer_options options = options_of();
    berth_optimizer *other = NULL;
    berth_parameter parameter;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    options.page_elements = LARGE_PAGE;
    options.accumulates = 0;
    if (open_large(&t, context)) {
        trained_list(&t, &parameter);
        options.devices = t.devices;
        for (uint64_t room = SLOTS - 1; room <= SLOTS; room++) {
            const crowd c = crowd_in(&t, room + 1); /* and what counts odd gradients */

            CHECK_EQ(berth_optimizer_create(context, &g, 1, &parameter, 1, &options, &other,
                                            NULL),
                     room < SLOTS ? BERTH_ENOFIT : BERTH_OK);
            berth_optimizer_destroy(other);
            other = NULL;
            leave(&c);
        }
    }
    trained_close(&t);
    berth_context_destroy(context);
}

/* A disk that takes a page in pieces. */
static void
test_short_writes_go_on(void)
{
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, "sim:256MiB", BERTH_STATES_DISK)) {
        atomic_store(&most_written, 4096);
        trained_step(&t, ALL, false);
        trained_step(&t, ALL, false);
        atomic_store(&most_written, 0);
        trained_check(&t);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

static void
test_a_full_disk_says_what_is_missing(void)
{
    const uint32_t numbers = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    berth_gradient gradients[TRAINED_MAX];
    berth_context *context;
    berth_error error;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, "sim:256MiB", BERTH_STATES_DISK)) {
        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        atomic_store(&is_full, true);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, NULL, &error), BERTH_EIO);
        atomic_store(&is_full, false);
        CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
        CHECK_EQ(error.has & numbers, numbers);
        CHECK_GT(error.expected, 0);
        CHECK_EQ(error.actual, 0);
    }
    trained_close(&t);
    berth_context_destroy(context);
}

static _Atomic uint32_t signals;

static void
count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* Moves one more parameter to the disk, where it does not fit: what is said of it. */
static void
check_no_more_fits(trained *t, const char *words, uint64_t expected)
{
    berth_parameter_state state;
    berth_error error;

    CHECK_EQ(berth_optimizer_move(t->optimizer, 1, BERTH_STATES_DISK, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_DISK_FULL);
    CHECK_CONTAINS(error.message, words);
    CHECK_EQ(error.expected, expected);
    CHECK_EQ(berth_optimizer_get(t->optimizer, 1, &state), BERTH_OK);
    CHECK_EQ(state.place, BERTH_STATES_DEVICE);
}

/* A file that there is grows as one is made: no signal ends the process, and what is missing is
 * said of what is added. */
static void
test_the_file_grows_as_it_began(void)
{
    void (*const before)(int) = signal(SIGXFSZ, count_signal);
    berth_parameter_state states[2];
    berth_context *context;
    struct rlimit limit;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    if (open_at(&t, context, NULL, BERTH_STATES_DEVICE)) {
        trained_step(&t, ALL, false);
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(berth_optimizer_get(t.optimizer, i, &states[i]), BERTH_OK);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 0, BERTH_STATES_DISK, NULL), BERTH_OK);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ states[0].bytes + states[1].bytes - 1,
                                                           limit.rlim_max }),
                 0);
        check_no_more_fits(&t, "larger than this process may write",
                           states[0].bytes + states[1].bytes);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        atomic_store(&is_full, true);
        check_no_more_fits(&t, "does not fit on the disk", states[1].bytes);
        atomic_store(&is_full, false);
        trained_step(&t, ALL, false);
        CHECK_EQ(berth_optimizer_move(t.optimizer, 1, BERTH_STATES_DISK, NULL), BERTH_OK);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    CHECK_EQ(atomic_load(&signals), 0);
    trained_close(&t);
    berth_context_destroy(context);
    signal(SIGXFSZ, before);
}

/* ------------------------------------------------------------------ steps without memory */

/* Some states in memory, some on the disk, all on the processor. */
static bool
open_mixed(trained *t, berth_context *context)
{
    static const trained_parameter mixed[] = {
        { 40000, BERTH_BF16, BERTH_BF16, 0, 0 },
        { 100000, BERTH_BF16, BERTH_BF16, 1, 0 },
        { 30000, BERTH_F32, BERTH_F32, 0, 0 },
        { 50000, BERTH_F32, BERTH_BF16, 1, 0 },
    };
    const berth_optimizer_group groups[] = { group_at(BERTH_STATES_DEVICE),
                                             group_at(BERTH_STATES_DISK) };
    berth_optimizer_options options = options_of();

    options.threads = 1;
    return trained_open(t, context, &(trained_options){ .groups = groups,
                                                        .group_count = 2,
                                                        .parameters = mixed,
                                                        .count = 4,
                                                        .optimizer = &options });
}

/* A step with a norm whose n-th call of a kind fails; how many did. */
static uint64_t
step_without(trained *t, berthi_fault_kind kind, uint64_t nth, bool is_persistent,
             berth_status *out)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_step_options options;
    uint64_t failures;

    berth_step_options_init(&options);
    options.max_norm = 1e9f;
    trained_draw(t, ALL, false);
    trained_gradients(t, ALL, gradients);
    berthi_fault_arm(kind, nth, is_persistent);
    *out = berth_optimizer_step(t->optimizer, gradients, &options, NULL);
    failures = berthi_fault_failures(kind);
    berthi_fault_disarm();
    if (*out == BERTH_OK)
        trained_expect(t, ALL, 1.0f);
    return failures;
}

/* A step that lacks memory is one that was not begun: it can be made again. */
static void
test_a_step_without_memory_changes_nothing(void)
{
    for (int is_persistent = 0; is_persistent < 2; is_persistent++) {
        uint64_t failures = 1;
        berth_context *context;
        berth_status status;
        trained t;

        T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
        if (open_mixed(&t, context))
            for (uint64_t nth = 0; failures > 0 && nth < 50; nth++) {
                failures = step_without(&t, BERTHI_FAULT_MEMORY, nth, is_persistent != 0,
                                        &status);
                CHECK(status == BERTH_OK || (failures > 0 && status == BERTH_ENOMEM));
                trained_check(&t);
            }
        CHECK_EQ(failures, 0);
        trained_step(&t, ALL, false);
        trained_check(&t);
        trained_close(&t);
        berth_context_destroy(context);
    }
}

/* Sums that are begun whose next gradients' n-th call of the device fails; how many did. */
static uint64_t
add_without(trained *t, uint64_t nth)
{
    berth_gradient gradients[TRAINED_MAX];
    berth_status status;
    uint64_t failures;

    trained_draw(t, ALL, false);
    trained_gradients(t, ALL, gradients);
    CHECK_EQ(berth_optimizer_accumulate(t->optimizer, gradients, NULL, NULL), BERTH_OK);
    berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
    status = berth_optimizer_accumulate(t->optimizer, gradients, NULL, NULL);
    failures = berthi_fault_failures(BERTHI_FAULT_DEVICE);
    berthi_fault_disarm();
    CHECK_EQ(status != BERTH_OK, failures > 0);
    if (status == BERTH_OK)
        CHECK_EQ(berth_optimizer_step(t->optimizer, NULL, NULL, NULL), BERTH_OK);
    return failures;
}

/* Gradients that were added up by halves are none: the next ones begin sums anew. */
static void
test_sums_begin_anew_after_a_failure(void)
{
    uint64_t failures = 1;
    berth_context *context;
    trained t;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    if (open_at(&t, context, SIM, BERTH_STATES_DEVICE))
        for (uint64_t nth = 0; failures > 0 && nth < 50; nth++) {
            berth_gradient gradients[TRAINED_MAX];

            failures = add_without(&t, nth);
            if (failures == 0)
                break;
            trained_gradients(&t, ALL, gradients);
            CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL), BERTH_OK);
            gradients[0].dtype = BERTH_I8;
            CHECK_EQ(berth_optimizer_accumulate(t.optimizer, gradients, NULL, NULL),
                     BERTH_EINVAL); /* which changes nothing */
            CHECK_EQ(berth_optimizer_step(t.optimizer, NULL, NULL, NULL), BERTH_OK);
            trained_expect(&t, ALL, 1.0f);
            trained_check(&t);
        }
    CHECK_EQ(failures, 0);
    trained_close(&t);
    berth_context_destroy(context);
}

/* What reads ahead and writes behind makes a step faster; without it there is one as well. */
static void
test_a_step_does_without_threads(void)
{
    for (int is_sim = 0; is_sim < 2; is_sim++) {
        berth_context *context;
        berth_status status;
        trained t;

        T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
        if (is_sim == 0 ? open_mixed(&t, context)
                        : open_at(&t, context, SIM, BERTH_STATES_DISK))
            for (uint32_t left = 0; left <= 2; left++) {
                atomic_store(&threads_left, left);
                trained_step(&t, ALL, false);
                atomic_store(&threads_left, ANY_THREADS);
                trained_check(&t);
                CHECK_EQ(step_without(&t, BERTHI_FAULT_SYSTEM, 0, false, &status), 1);
                CHECK_EQ(status, BERTH_OK);
                trained_check(&t);
            }
        /* What fails then is told, as with them. */
        CHECK_GT(step_without(&t, BERTHI_FAULT_SYSTEM, 0, true, &status), 1);
        CHECK_EQ(status, BERTH_EIO);
        (void)step_without(&t, BERTHI_FAULT_MEMORY, UINT64_MAX, false, &status);
        CHECK_EQ(status, BERTH_EINVAL);
        trained_close(&t);
        berth_context_destroy(context);
    }
}

/* ------------------------------------------------------------------------ lost devices */

/* Values and gradients on a device that is lost at its n-th call. */
typedef struct doomed {
    berth_optimizer *optimizer;
    berth_devices *devices;
    void *memory;
} doomed;

#define DOOMED 40000u

static berth_status
open_doomed(doomed *d, berth_context *context, const char *machine)
{
    static const uint64_t shape[] = { DOOMED };
    const berth_optimizer_group g = group_at(BERTH_STATES_HOST);
    berth_optimizer_options options = options_of();
    berth_parameter parameter = {
        .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32
    };
    berthi_device *device;
    berth_status status;

    memset(d, 0, sizeof *d);
    status = berth_devices_open(context, machine, &d->devices, NULL);
    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(d->devices, 0);
    status = device->table->alloc(device, DOOMED * 8, &d->memory, NULL);
    if (status == BERTH_OK)
        status = device->table->clear(device, d->memory, DOOMED * 8, NULL, NULL);
    options.devices = d->devices;
    parameter.values = d->memory;
    if (status == BERTH_OK)
        status = berth_optimizer_create(context, &g, 1, &parameter, 1, &options,
                                        &d->optimizer, NULL);
    return status;
}

static void
close_doomed(doomed *d)
{
    berth_optimizer_destroy(d->optimizer);
    if (d->memory != NULL)
        berthi_devices_at(d->devices, 0)
            ->table->free(berthi_devices_at(d->devices, 0), d->memory, DOOMED * 8);
    vacant_close(d->devices);
}

/* What a step on a lost device leaves, as its report says. */
static void
check_lost(doomed *d, const berth_gradient *gradient, const berth_step_report *report,
           uint32_t *torn)
{
    const bool is_torn = report->updated > 0;
    berth_parameter_state state;
    berth_error error;

    *torn += is_torn;
    CHECK_EQ(report->step, 1);
    CHECK_EQ(berth_optimizer_get(d->optimizer, 0, &state), BERTH_OK);
    CHECK_EQ(state.step, report->updated);
    CHECK_EQ(berth_optimizer_step(d->optimizer, gradient, NULL, &error),
             is_torn ? BERTH_EINVAL : BERTH_ENODEV);
    if (is_torn)
        CHECK_CONTAINS(error.message, "half way");
}

/* A step that fails half way is the last one until states are loaded. */
static void
test_a_torn_step_is_said(void)
{
    berth_step_options options;
    berth_step_report report;
    berth_context *context;
    berth_error error;
    uint32_t torn = 0;
    berth_status status = BERTH_ENODEV;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    berth_step_options_init(&options);
    options.report = &report;
    for (uint32_t lose = 1; status != BERTH_OK && lose < 1000; lose++) {
        doomed d;

        status = open_doomed(&d, context, fixture_format("sim:256MiB,lose=%u", lose));
        if (status == BERTH_OK) {
            const berth_gradient gradient = { .values = (float *)d.memory + DOOMED,
                                              .dtype = BERTH_F32 };

            status = berth_optimizer_step(d.optimizer, &gradient, &options, &error);
            if (status != BERTH_OK) {
                CHECK_EQ(status, BERTH_ENODEV);
                check_lost(&d, &gradient, &report, &torn);
            }
        }
        close_doomed(&d);
    }
    CHECK_EQ(status, BERTH_OK);
    CHECK_GT(torn, 10);
    T_NOTE("%u steps torn", torn);
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------------------ faults */

typedef struct attempt {
    const char *machine;
    int32_t place;
} attempt;

static berth_status
use(berth_optimizer *optimizer, const berth_gradient *gradients, int32_t place,
    berth_error *error)
{
    berth_step_report report;
    berth_step_options options;
    float number;
    berth_status status;

    berth_step_options_init(&options);
    options.max_norm = 1.0f;
    options.report = &report;
    status = berth_optimizer_step(optimizer, gradients, &options, error);
    if (status == BERTH_OK)
        status = berth_optimizer_accumulate(optimizer, gradients, NULL, error);
    if (status == BERTH_OK)
        status = berth_optimizer_move(optimizer, 0, (place + 1) % 3, error);
    if (status == BERTH_OK)
        status = berth_optimizer_step(optimizer, NULL, NULL, error);
    return status == BERTH_OK ? berth_optimizer_read(optimizer, 0, 0, 0, 1, &number, error)
                              : status;
}

static berth_status
attempt_on(berthi_device *device, uint8_t *memory, berth_context *context, const attempt *a,
           berth_optimizer_options *options, berth_error *error)
{
    static const uint64_t shape[] = { DOOMED };
    const berth_optimizer_group g = group_at(a->place);
    const berth_parameter parameter = {
        .name = "w", .shape = shape, .rank = 1, .dtype = BERTH_F32, .values = memory
    };
    const berth_gradient gradient = { .values = memory + DOOMED * 4, .dtype = BERTH_F32 };
    berth_optimizer *optimizer = NULL;
    berth_status status =
        device->table->clear(device, memory, DOOMED * 8, NULL, error);

    if (status != BERTH_OK)
        return status;
    status = berth_optimizer_create(context, &g, 1, &parameter, 1, options, &optimizer, error);
    CHECK_EQ(optimizer == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = use(optimizer, &gradient, a->place, error);
    berth_optimizer_destroy(optimizer);
    return status;
}

/* Values and gradients in the device's memory, and all that an optimizer can do. */
static berth_status
attempt_all(void *user, berth_context *context, berth_error *error)
{
    const attempt *const a = user;
    berth_optimizer_options options = options_of();
    berthi_device *device;
    void *memory = NULL;
    berth_status status;

    options.threads = 1;
    status = berth_devices_open(context, a->machine, &options.devices, error);
    if (status != BERTH_OK)
        return status;
    device = berthi_devices_at(options.devices, 0);
    status = device->table->alloc(device, DOOMED * 8, &memory, error);
    if (status == BERTH_OK) {
        status = attempt_on(device, memory, context, a, &options, error);
        device->table->free(device, memory, DOOMED * 8);
    }
    vacant_close(options.devices);
    return status;
}

static void
test_every_call_can_fail(void)
{
    static const char *const machines[] = { "cpu", "sim:256MiB" };

    for (int m = 0; m < 2; m++)
        for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++) {
            attempt a = { machines[m], place };

            fault_counts devices;

            (void)fault_loop(fixture_format("%s %d", machines[m], place), attempt_all, &a);
            devices = fault_loop_devices(fixture_format("%s %d", machines[m], place),
                                         attempt_all, &a);
            /* Pins that there are not, and events that nobody waits for any more. Where
             * threads are watched, one failure counts for several. */
            if (!T_HAS_THREADS_WATCHED)
                CHECK_LE(devices.survived, 8);
        }
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
    T_RUN(test_room_is_made_under_way);
    T_RUN(test_room_is_made_by_bytes);
    T_RUN(test_room_is_made_on_the_disk);
    T_RUN(test_slots_are_as_many_as_fit);
    T_RUN(test_one_slot_is_enough);
    T_RUN(test_a_move_is_made_or_not);
    T_RUN(test_room_is_not_taken);
    T_RUN(test_states_stay_where_the_disk_is_not);
    T_RUN(test_room_that_is_made_is_there);
    T_RUN(test_it_begins_with_all_slots);
    T_RUN(test_short_writes_go_on);
    T_RUN(test_a_full_disk_says_what_is_missing);
    T_RUN(test_the_file_grows_as_it_began);
    T_RUN(test_a_step_without_memory_changes_nothing);
    T_RUN(test_sums_begin_anew_after_a_failure);
    T_RUN(test_a_step_does_without_threads);
    T_RUN(test_a_torn_step_is_said);
    T_RUN(test_every_call_can_fail);
    T_MAIN_END;
}
