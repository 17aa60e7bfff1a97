/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates of an optimizer, whatever lies where: on the processor and on simulated
 * devices, states beside the values, in host memory and on the disk, in pages of any
 * size, by any number of threads and slots, in random orders: always the bits of the
 * plain loops.
 */
#include <stdlib.h>
#include <string.h>

#include "loader/optimizer.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/trained.h"
#include "tests/vacant.h"

#define ALL UINT32_MAX
#define RANDOM_RUNS (T_IS_SANITIZED ? 100u : 1000u)

static const char *folder;

/* --------------------------------------------------------------------- every place */

static const trained_parameter mixed[] = {
    { 4096, BERTH_F32, BERTH_F32, 0, 0 },  { 4097, BERTH_BF16, BERTH_BF16, 0, 0 },
    { 999, BERTH_BF16, BERTH_F32, 0, 0 },  { 20000, BERTH_F16, BERTH_F16, 0, 0 },
    { 4095, BERTH_BF16, BERTH_BF16, 1, 0 }, { 12289, BERTH_BF16, BERTH_BF16, 1, 0 },
    { 8192, BERTH_F32, BERTH_BF16, 2, 0 },  { 1, BERTH_F32, BERTH_F32, 2, 0 },
};
#define MIXED ((uint32_t)(sizeof mixed / sizeof *mixed))

static void
check_place(berth_context *context, const char *words, int32_t place, uint32_t threads,
            uint32_t slots)
{
    berth_optimizer_group groups[3] = {
        trained_group(BERTH_UPDATE_ADAMW, 8, place),
        trained_group(BERTH_UPDATE_ADAM, 8, place),
        trained_group(BERTH_UPDATE_ADEMAMIX, 32, place),
    };
    berth_optimizer_options options;
    trained t;

    groups[1].has_master = 1;
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.threads = threads;
    options.slots = slots;
    options.page_elements = 4096;
    if (trained_open(&t, context,
                     &(trained_options){ .devices = words,
                                         .groups = groups,
                                         .group_count = 3,
                                         .parameters = mixed,
                                         .count = MIXED,
                                         .optimizer = &options,
                                         .seed = threads + slots })) {
        trained_step(&t, ALL, false);
        trained_step(&t, ALL, true);
        trained_check(&t);
        trained_step(&t, 0x55, false);
        trained_step(&t, 0xAA, true);
        trained_step(&t, ALL, false);
        trained_check(&t);
    }
    trained_close(&t);
    vacant_check_memory(context);
}

static void
test_every_place(void)
{
    static const char *const words[] = { NULL, "cpu",
                                         "sim:256MiB,h2d=1GB/s,d2h=1GB/s,backing=sealed" };
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (int32_t place = 0; place < BERTH_STATES_PLACE_COUNT; place++)
            for (uint32_t n = 1; n <= 4; n += n == 1 ? 1 : 2)
                check_place(context, words[w], place, n, n);
    berth_context_destroy(context);
}

/* ----------------------------------------------------------------- random orders */

static const char *const machines[] = {
    "sim:256MiB,h2d=1GB/s,d2h=2GB/s,pick=random,touch=random,backing=sealed",
    "sim:256MiB,h2d=2GB/s,d2h=1GB/s,pick=last,touch=begin",
    "sim:256MiB,h2d=1GB/s,d2h=1GB/s,jitter=200%,touch=end",
    "sim:256MiB,h2d=1GB/s,d2h=1GB/s,pin=0B;sim:256MiB,h2d=1GB/s,d2h=1GB/s,pick=random",
};

static void
choose(trained *random, uint32_t devices, trained_parameter *p)
{
    static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

    p->count = 1 + trained_random(random, trained_random(random, 3) == 0 ? 20000 : 6000);
    p->dtype = dtypes[trained_random(random, 3)];
    p->gradient_dtype = dtypes[trained_random(random, 3)];
    p->group = (uint32_t)trained_random(random, TRAINED_GROUPS);
    p->device = (uint32_t)trained_random(random, devices);
}

static void
make_groups(trained *random, berth_optimizer_group *groups)
{
    for (uint32_t i = 0; i < TRAINED_GROUPS; i++) {
        groups[i] = trained_group((int32_t)trained_random(random, 7),
                             trained_random(random, 3) == 0 ? 32 : 8,
                             (int32_t)trained_random(random, BERTH_STATES_PLACE_COUNT));
        groups[i].has_master = trained_random(random, 3) == 0;
    }
}

/* A step, a move, or room that is asked for. */
static void
do_something(trained *t)
{
    const uint64_t what = trained_random(t, 4);
    uint64_t bytes;

    if (what == 0)
        CHECK_EQ(berth_optimizer_move(t->optimizer, trained_random(t, t->count),
                                      (int32_t)trained_random(t, BERTH_STATES_PLACE_COUNT),
                                      NULL),
                 BERTH_OK);
    else if (what == 1 && trained_random(t, 3) == 0)
        CHECK_EQ(berth_optimizer_make_room(t->optimizer, 0, trained_random(t, 100000),
                                           &bytes, NULL),
                 BERTH_OK);
    else
        trained_step(t, (uint32_t)trained_random(t, 1u << t->count), what == 2);
}

static void
check_random(berth_context *context, uint64_t seed)
{
    trained random = { .random = seed + 12345 };
    const uint64_t machine = trained_random(&random, 4);
    berth_optimizer_group groups[TRAINED_GROUPS];
    trained_parameter parameters[TRAINED_MAX];
    berth_optimizer_options options;
    const uint32_t count = 1 + (uint32_t)trained_random(&random, TRAINED_MAX - 1);
    trained t;

    make_groups(&random, groups);
    for (uint32_t i = 0; i < count; i++)
        choose(&random, machine == 3 ? 2 : 1, &parameters[i]);
    berth_optimizer_options_init(&options);
    options.states_dir = folder;
    options.slots = 1 + (uint32_t)trained_random(&random, 5);
    options.page_elements = 4096 * (1 + trained_random(&random, 2));
    if (trained_open(&t, context,
                     &(trained_options){ .devices = machines[machine],
                                         .groups = groups,
                                         .group_count = TRAINED_GROUPS,
                                         .parameters = parameters,
                                         .count = count,
                                         .optimizer = &options,
                                         .seed = seed })) {
        for (int i = 0; i < 5; i++)
            do_something(&t);
        trained_check(&t);
    }
    trained_close(&t);
    vacant_check_memory(context);
}

static void
test_random_orders_and_sizes(void)
{
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint32_t i = 0; i < RANDOM_RUNS; i++)
        check_random(context, i);
    T_NOTE("%u runs", RANDOM_RUNS);
    berth_context_destroy(context);
}

/* --------------------------------------------------------------------- overlapping */

#define PAGE 4096u
#define PAGES_EACH 10u
#define PAGED 8u

/* Of the clock that the simulation has; copies both ways included. */
static double
seconds_of_a_step(berth_context *context, const char *words, int32_t place,
                  berth_optimizer_memory *out_memory)
{
    const berth_optimizer_group group = trained_group(BERTH_UPDATE_ADAMW, 8, place);
    trained_parameter parameters[PAGED];
    berth_optimizer_options options;
    double seconds = 0;
    trained t;

    for (uint32_t i = 0; i < PAGED; i++)
        parameters[i] = (trained_parameter){ PAGES_EACH * PAGE, BERTH_BF16, BERTH_BF16, 0, 0 };
    berth_optimizer_options_init(&options);
    options.page_elements = PAGE;
    if (trained_open(&t, context, &(trained_options){ .devices = words,
                                                      .groups = &group,
                                                      .group_count = 1,
                                                      .parameters = parameters,
                                                      .count = PAGED,
                                                      .optimizer = &options })) {
        berth_gradient gradients[TRAINED_MAX];

        trained_draw(&t, ALL, false);
        trained_gradients(&t, ALL, gradients);
        seconds = berth_devices_seconds(t.devices);
        CHECK_EQ(berth_optimizer_step(t.optimizer, gradients, NULL, NULL), BERTH_OK);
        CHECK_EQ(berthi_optimizer_settle(t.optimizer, NULL), BERTH_OK);
        seconds = berth_devices_seconds(t.devices) - seconds;
        trained_expect(&t, ALL, 1.0f);
        trained_check(&t);
        CHECK_EQ(berth_optimizer_get_memory(t.optimizer, 0, out_memory), BERTH_OK);
    }
    trained_close(&t);
    return seconds;
}

/*
 * Pages come, are updated and go at the same time: a step is as long as what takes longest,
 * but for the first page's way and the last one's.
 */
static void
test_pages_overlap(void)
{
    static const char *const machines_of[] = {
        "sim:256MiB,h2d=1GB/s,d2h=1GB/s,memory=100GB/s,latency=0ns", /* copies take longest */
        "sim:256MiB,h2d=1GB/s,d2h=2GB/s,memory=3GB/s,latency=0ns",   /* as long as updates */
        "sim:256MiB,h2d=1GB/s,d2h=1GB/s,memory=1GB/s,latency=0ns",   /* updates do */
    };
    berth_context *context;

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (size_t i = 0; i < sizeof machines_of / sizeof *machines_of; i++) {
        berth_optimizer_memory memory;
        const double update = seconds_of_a_step(context, machines_of[i], BERTH_STATES_DEVICE,
                                                &memory);
        const uint64_t bytes = memory.states[BERTH_STATES_DEVICE];
        const double paged = seconds_of_a_step(context, machines_of[i], BERTH_STATES_HOST,
                                               &memory);
        const double copies = (double)bytes / 1e9;
        const double longest = update > copies ? update : copies;

        CHECK_GE(memory.states[BERTH_STATES_HOST], bytes);
        CHECK(update > 0);
        if (!CHECK(paged >= longest) || !CHECK(paged <= longest * 1.05))
            T_NOTE("%s: %g us, updates %g, copies %g", machines_of[i], paged * 1e6,
                   update * 1e6, copies * 1e6);
    }
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    folder = fixture_folder();
    T_RUN(test_every_place);
    T_RUN(test_random_orders_and_sizes);
    T_RUN(test_pages_overlap);
    T_MAIN_END;
}
