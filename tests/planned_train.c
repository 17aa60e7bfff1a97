/* SPDX-License-Identifier: Apache-2.0 */
/* planned_train.c - see planned_train.h. */
#include "tests/planned_train.h"

#include <stddef.h>
#include <string.h>

#include "placement/plan_train.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define MOST 4096u

berth_plan_options
planned_train_options(const berth_train_options *train, const char *max_memory)
{
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = max_memory;
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 64;
    options.train = train;
    return options;
}

berth_train_options
planned_train(int32_t method, int32_t precision, const char *optimizer)
{
    berth_train_options train;

    berth_train_options_init(&train);
    train.method = method;
    train.precision = precision;
    train.optimizer = optimizer;
    train.lora_rank = 8;
    return train;
}

/* The plan's list as an optimizer takes it; groups are places. */
static uint64_t
list(const planned *p, berth_parameter *out, uint64_t (*shapes)[2], char (*names)[256])
{
    uint64_t i;
    berth_plan_parameter parameter;

    for (i = 0; berth_plan_get_parameter(p->plan, i, &parameter, names[i], 256) == BERTH_OK;
         i++) {
        shapes[i][0] = parameter.rows;
        shapes[i][1] = parameter.columns;
        out[i] = (berth_parameter){ .name = names[i],
                                    .shape = shapes[i],
                                    .rank = 2,
                                    .dtype = parameter.dtype,
                                    .device = parameter.tier,
                                    .group = (uint32_t)parameter.place };
    }
    return i;
}

static void
check_device(const planned *p, uint32_t device, const berth_optimizer_memory *memory)
{
    berth_plan_training_tier tier;
    berth_plan_tier all;

    CHECK_EQ(berth_plan_get_training_tier(p->plan, device, &tier), BERTH_OK);
    CHECK_EQ(berth_plan_get_tier(p->plan, device, &all), BERTH_OK);
    CHECK_EQ(memory->states[BERTH_STATES_DEVICE], tier.states);
    if (all.layers == 0 && tier.update_bytes == 0) {
        CHECK_EQ(all.training, 0);
        return;
    }
    CHECK_EQ(memory->slots, tier.slots);
    CHECK_EQ(memory->scratch, tier.scratch);
}

/* Sums that are made anew are the same. */
static void
check_sums(const planned *p)
{
    const berth_plan_training before = p->plan->training->about;
    berth_plan_tier tier;
    uint64_t taken = 0;

    for (uint32_t t = 0; berth_plan_get_tier(p->plan, t, &tier) == BERTH_OK; t++)
        taken += tier.training;
    berthi_plan_sum(p->plan);
    for (uint32_t t = 0; berth_plan_get_tier(p->plan, t, &tier) == BERTH_OK; t++)
        taken -= tier.training;
    CHECK_EQ(taken, 0);
    CHECK_MEM(&p->plan->training->about, &before, sizeof before);
}

/* A caller's header without AdEMAMix has no group for it. */
static void
check_short_group(const planned *p, const berth_optimizer_group *whole)
{
    const size_t before = offsetof(berth_optimizer_group, beta3);
    const bool is_known = whole->kind != BERTH_UPDATE_ADEMAMIX;
    berth_optimizer_group group;

    memset(&group, 0xAA, sizeof group);
    CHECK_EQ(berth_plan_get_group_sized(p->plan, BERTH_STATES_HOST, &group, before),
             is_known ? BERTH_OK : BERTH_EINVAL);
    CHECK_EQ(group.struct_size, before);
    CHECK_EQ(group.place, is_known ? BERTH_STATES_HOST : 0);
    CHECK_EQ(group.bits, is_known ? whole->bits : 0);
    CHECK_EQ(*((const uint8_t *)&group + before), 0xAA);
}

void
planned_check_optimizer(const planned *p, const char *words, uint32_t device_count)
{
    static berth_parameter parameters[MOST];
    static uint64_t shapes[MOST][2];
    static char names[MOST][256];
    berth_optimizer_group groups[BERTH_STATES_PLACE_COUNT];
    berth_optimizer_options options;
    berth_optimizer_memory memory;
    berth_plan_training training;
    berth_plan_training_tier host;
    berth_devices *devices = NULL;
    const uint64_t count = list(p, parameters, shapes, names);

    check_sums(p);
    CHECK_EQ(berth_devices_open(p->context, words, &devices, NULL), BERTH_OK);
    berth_optimizer_options_init(&options);
    options.devices = devices;
    options.states_dir = fixture_folder();
    for (int32_t i = 0; i < BERTH_STATES_PLACE_COUNT; i++)
        CHECK_EQ(berth_plan_get_group(p->plan, i, &groups[i]), BERTH_OK);
    check_short_group(p, &groups[BERTH_STATES_HOST]);
    CHECK_EQ(berth_plan_get_training(p->plan, &training), BERTH_OK);
    CHECK_EQ(count, training.parameter_count);
    for (uint32_t d = 0; d < device_count; d++) {
        CHECK_EQ(berth_optimizer_plan(p->context, groups, 3, parameters, count, &options, d,
                                      &memory, NULL),
                 BERTH_OK);
        check_device(p, d, &memory);
    }
    CHECK_EQ(berth_optimizer_plan(p->context, groups, 3, parameters, count, &options,
                                  BERTH_NO_INDEX, &memory, NULL),
             BERTH_OK);
    for (uint32_t i = 0; i < BERTH_STATES_PLACE_COUNT; i++)
        CHECK_EQ(memory.states[i], training.states[i]);
    CHECK_EQ(memory.elements, training.elements);
    CHECK_EQ(memory.elements_8bit, training.elements_8bit);
    if (memory.staging > 0) {
        CHECK_EQ(berth_plan_get_training_tier(p->plan, planned_tier(p, "cpu"), &host),
                 BERTH_OK);
        CHECK_EQ(memory.staging, host.staging);
    }
    berth_devices_close(devices);
}
