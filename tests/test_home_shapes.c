/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_home_shapes.c - homes of layers in the shapes of real models: known results,
 * and what must hold whatever they are.
 */
#include "placement/home.h"

#include <string.h>

#include "tests/t.h"
#include "tests/weights.h"

#define LAYERS 1000u
#define GB UINT64_C(1000000000)
#define MB UINT64_C(1000000)
#define RATE (25 * GB)
/* 2^-32ths: 8 of 256 experts. */
#define SHARE (UINT32_C(1) << 27)

typedef struct model {
    berthi_home_problem problem;
    berthi_home_layer layers[LAYERS];
    berthi_home_device devices[BERTHI_HOME_DEVICES];
    uint32_t homes[LAYERS];
    berthi_homes found;
} model;

/* An embedding, equal blocks with their share of a cache, a norm and a head. */
static void
make_model(model *m, uint32_t blocks, uint64_t block, uint64_t cache, uint64_t embedding)
{
    memset(m, 0, sizeof *m);
    m->problem = (berthi_home_problem){ .layers = m->layers,
                                        .layer_count = blocks + 3,
                                        .devices = m->devices,
                                        .elsewhere = UINT64_MAX };
    m->found.homes = m->homes;
    for (uint32_t i = 0; i < blocks + 3; i++)
        m->layers[i] = (berthi_home_layer){ .pin = BERTHI_NO_DEVICE };
    m->layers[0].idle = embedding;
    for (uint32_t i = 1; i <= blocks; i++) {
        m->layers[i].fixed = 32768 + cache;
        m->layers[i].dense = block;
    }
    m->layers[blocks + 1].fixed = 16384;
    m->layers[blocks + 2].dense = embedding;
}

/* 70B in nf4. */
static void
make_70b(model *m, uint64_t cache)
{
    make_model(m, 80, 441 * MB, cache, 2100 * MB);
}

/* A step for every layer on every device, and one more, is what these shapes take. */
static void
set_devices(model *m, uint32_t count, uint64_t room)
{
    m->problem.device_count = count;
    m->problem.effort = (count + 1) * m->problem.layer_count;
    for (uint32_t d = 0; d < count; d++)
        m->devices[d] = (berthi_home_device){ .room = room, .overhead = 800 * MB,
                                              .rate = RATE };
}

/* Bytes at home and elsewhere add up; the budget of every device is kept. */
static void
check_sums(const model *m)
{
    const berthi_home_problem *const p = &m->problem;
    uint64_t away = 0;

    for (uint32_t d = 0; d < p->device_count; d++) {
        berthi_home_sums sums = { .fixed = p->devices[d].overhead };
        berthi_home_load load;
        uint64_t bytes = sums.fixed;
        uint32_t layers = 0;

        for (uint32_t i = 0; i < p->layer_count; i++) {
            const berthi_home_layer *const l = &p->layers[i];

            if (m->homes[i] != d)
                continue;
            layers++;
            bytes += l->fixed + l->dense + l->experts + l->idle;
            sums.fixed += l->fixed;
            sums.dense += l->dense;
            sums.experts += l->experts;
            sums.idle += l->idle;
            if (sums.largest_dense < l->dense)
                sums.largest_dense = l->dense;
            if (sums.largest_expert_slot < l->expert_slot)
                sums.largest_expert_slot = l->expert_slot;
        }
        if (layers == 0)
            continue;
        load = berthi_home_weigh(p, d, &sums);
        CHECK_EQ(load.missing, 0);
        CHECK_LE(bytes - load.away + load.slots, p->devices[d].room);
        away += load.away;
    }
    CHECK_LE(away, p->elsewhere);
}

/* Twice the same, and in order within. */
static void
find(model *m)
{
    berth_context *context = NULL;
    uint32_t first[LAYERS];
    berthi_home_cost cost;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_home_find(context, &m->problem, &m->found, NULL), BERTH_OK);
    memcpy(first, m->homes, sizeof first);
    cost = m->found.cost;
    CHECK_EQ(berthi_home_find(context, &m->problem, &m->found, NULL), BERTH_OK);
    CHECK_MEM(m->homes, first, m->problem.layer_count * sizeof *first);
    CHECK_EQ(m->found.cost.missing, cost.missing);
    CHECK_EQ(m->found.cost.nanoseconds, cost.nanoseconds);
    CHECK_EQ(m->found.cost.cuts, cost.cuts);
    for (uint32_t i = 0; i < m->problem.layer_count; i++) {
        CHECK_LT(m->homes[i], m->problem.device_count);
        CHECK(m->layers[i].pin == BERTHI_NO_DEVICE || m->layers[i].pin == m->homes[i]);
    }
    if (m->found.is_feasible)
        check_sums(m);
    berth_context_destroy(context);
}

/* Ends of ranges, device by device: "the layers before this are on device 0". */
static void
check_ranges(const model *m, const uint32_t *ends, uint32_t count)
{
    uint32_t begin = 0;

    for (uint32_t d = 0; d < count; d++) {
        for (uint32_t i = begin; i < ends[d]; i++)
            if (!CHECK_EQ(m->homes[i], d))
                return;
        begin = ends[d];
    }
    CHECK_EQ(begin, m->problem.layer_count);
}

static void
test_fits(void)
{
    model m;

    make_70b(&m, 0);
    set_devices(&m, 8, 6400 * MB); /* 12 blocks each, and the embedding's rows away */
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 7);
    check_ranges(&m, (uint32_t[]){ 13, 25, 37, 49, 61, 73, 82, 83 }, 8);
    m.problem.effort = 600; /* too few, and no more are made */
    find(&m);
    CHECK(m.found.is_feasible && !m.found.is_proved);
    CHECK_EQ(m.found.cost.cuts, 7);
    m.problem.effort = 1;
    find(&m);
    CHECK(m.found.is_feasible && !m.found.is_proved);
    set_devices(&m, 2, 24 * GB);
    find(&m);
    CHECK(m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 1);
    check_ranges(&m, (uint32_t[]){ 53, 83 }, 2);
    set_devices(&m, 1, 40 * GB);
    find(&m);
    CHECK(m.found.is_proved);
    CHECK_EQ(m.found.cost.cuts, 0);
}

/* All that is too much is brought to one device, so that only it has slots. */
static void
test_does_not_fit(void)
{
    model m;

    make_70b(&m, 0);
    set_devices(&m, 8, 5600 * MB);
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    /* 80 blocks, norm and head, less 10 blocks on 6 devices, head and 6 blocks on one,
     * and on the last 4.8 GB less two slots: 2256.46 MB at 25 GB/s */
    CHECK_EQ(m.found.cost.nanoseconds, 90300000);
    CHECK_EQ(m.found.cost.cuts, 7);
    check_ranges(&m, (uint32_t[]){ 15, 25, 35, 45, 55, 65, 75, 83 }, 8);
    set_devices(&m, 1, 24 * GB);
    m.layers[82].is_kept = true;
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.cuts, 0);
    /* 80 blocks and the head, less 23.2 GB but for two slots: 15064.64 MB */
    CHECK_EQ(m.found.cost.nanoseconds, 602600000);
}

/* Devices of other sizes: the large ones are enough; the small ones come in last. */
static void
test_unequal(void)
{
    model m;

    make_70b(&m, 40 * MB);
    set_devices(&m, 4, 24 * GB);
    m.devices[0].room = m.devices[1].room = 8 * GB;
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 1);
    for (uint32_t i = 0; i < 83; i++)
        CHECK_EQ(m.homes[i], i < 49 ? 2 : 3);
}

/* A device that was left is used again when layers are pinned to it. */
static void
test_pins(void)
{
    model m;

    make_70b(&m, 40 * MB);
    set_devices(&m, 8, 10 * GB);
    m.layers[82].pin = 0;
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 4);
    CHECK_EQ(m.homes[82], 0);
    CHECK_EQ(m.homes[0], 1);
    m.layers[0].pin = 0;
    find(&m);
    CHECK(m.found.is_feasible);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_LE(m.found.cost.cuts, 5);
}

/* Experts are brought before anything else, and a pass takes a part of them. */
static void
test_experts(void)
{
    model m;

    make_model(&m, 61, 200 * MB, 10 * MB, 1800 * MB);
    for (uint32_t i = 4; i < 62; i++) {
        m.layers[i].experts = 6000 * MB;
        m.layers[i].expert_slot = 250 * MB;
    }
    m.problem.expert_share = SHARE;
    set_devices(&m, 8, 80 * GB);
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 4);
    set_devices(&m, 1, 24 * GB);
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    /* 61 blocks and a head: 14.6 GB stay; 339.99 of 348 GB of experts go */
    CHECK_EQ(m.found.cost.nanoseconds, 424600000);
    m.problem.elsewhere = 64 * GB;
    find(&m);
    CHECK(!m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.short_of, BERTHI_NO_DEVICE);
    CHECK_EQ(m.found.missing, m.found.cost.missing);
    set_devices(&m, 8, 24 * GB); /* known without looking at all homes */
    find(&m);
    CHECK(!m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.short_of, BERTHI_NO_DEVICE);
}

/* Small layers of many sizes come first: the bound counts in the size that matters. */
static void
test_tower(void)
{
    model m;

    make_70b(&m, 0);
    memmove(&m.layers[12], &m.layers[0], 83 * sizeof *m.layers);
    for (uint32_t i = 0; i < 12; i++)
        m.layers[i] = (berthi_home_layer){ .fixed = (i + 1) * 100000,
                                           .pin = BERTHI_NO_DEVICE };
    m.problem.layer_count = 95;
    set_devices(&m, 8, 6400 * MB);
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 7);
    check_ranges(&m, (uint32_t[]){ 25, 37, 49, 61, 73, 85, 94, 95 }, 8);
}

/* One layer that is larger than every device: it is short of just so much. */
static void
test_too_large(void)
{
    model m;

    make_70b(&m, 0);
    set_devices(&m, 8, 2400 * MB);
    find(&m);
    CHECK(!m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.missing, 500 * MB);
    CHECK_EQ(m.found.missing, 500 * MB);
    CHECK_EQ(m.found.short_of, m.homes[82]);
}

/* Bytes of layers beyond what all devices together hold, of the embedding none. */
static uint64_t
excess_of(const model *m)
{
    uint64_t need = 0;
    uint64_t places = 0;

    for (uint32_t i = 0; i < m->problem.layer_count; i++)
        need += m->layers[i].fixed + m->layers[i].dense;
    for (uint32_t d = 0; d < m->problem.device_count; d++)
        places += m->devices[d].room - m->devices[d].overhead;
    return need > places ? need - places : 0;
}

/* A thousand layers on 64 devices: from 3 GB to 9.3 GB, or all the same. */
static void
make_many(model *m, uint64_t least, bool is_equal)
{
    make_model(m, LAYERS - 3, 441 * MB, 0, 2100 * MB);
    set_devices(m, 64, least);
    for (uint32_t d = 0; d < 64 && !is_equal; d++)
        m->devices[d].room += d * 37 % 64 * 100 * MB;
}

static void
test_many(void)
{
    model m;

    make_many(&m, 8 * GB, true);
    m.problem.effort = 0;
    find(&m);
    CHECK(m.found.is_feasible && m.found.is_proved);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_EQ(m.found.cost.cuts, 62);
    make_many(&m, 5 * GB, false);
    m.problem.effort = 1;
    find(&m);
    CHECK(m.found.is_feasible);
    CHECK_EQ(m.found.cost.nanoseconds, 0);
    CHECK_LE(m.found.cost.cuts, 63);
}

/*
 * Too many ranges to try them all: still no more is brought than all devices together
 * are short of, and less than a block a device, and two slots, with no effort at all.
 */
static void
test_many_that_do_not_fit(void)
{
    for (int is_equal = 0; is_equal < 2; is_equal++) {
        model m;
        uint64_t excess;
        uint64_t brought;

        make_many(&m, is_equal ? 6 * GB : 3 * GB, is_equal == 1);
        m.problem.effort = 1;
        excess = excess_of(&m);
        find(&m);
        brought = m.found.cost.nanoseconds * 25; /* bytes in a nanosecond */
        CHECK(m.found.is_feasible && !m.found.is_proved);
        CHECK_GE(brought, excess);
        CHECK_LE(brought, excess + (64 + 2) * 441 * MB);
        CHECK_LE(m.found.cost.cuts, 63);
    }
}

/*
 * Layers of all sizes, cut at random; each device just holds one of the ranges, and
 * they are shuffled. So homes exist that need nothing brought: they must be found,
 * with as few cuts.
 */
static void
make_exact(model *m, uint64_t *state, uint32_t device_count)
{
    uint32_t layer = 0;

    memset(m, 0, sizeof *m);
    m->found.homes = m->homes;
    m->problem = (berthi_home_problem){ .layers = m->layers,
                                        .devices = m->devices,
                                        .device_count = device_count,
                                        .elsewhere = UINT64_MAX };
    for (uint32_t d = 0; d < device_count; d++) {
        const uint32_t end = layer + 1 + (uint32_t)(weights_random(state) % 12);
        uint64_t room = 0;

        for (; layer < end; layer++) {
            m->layers[layer] = (berthi_home_layer){
                .fixed = weights_random(state) % 10 * MB,
                .dense = weights_random(state) % 100 * MB,
                .pin = BERTHI_NO_DEVICE,
            };
            room += m->layers[layer].fixed + m->layers[layer].dense;
        }
        m->devices[d] = (berthi_home_device){ .room = room, .rate = RATE };
    }
    m->problem.layer_count = layer;
    for (uint32_t d = device_count; d > 1; d--) {
        const uint32_t other = (uint32_t)(weights_random(state) % d);
        const berthi_home_device device = m->devices[d - 1];

        m->devices[d - 1] = m->devices[other];
        m->devices[other] = device;
    }
}

static void
test_contiguous_is_found(void)
{
    uint64_t state = 11;
    model m;

    for (uint32_t i = 0; i < 150; i++) {
        make_exact(&m, &state, 2 + i % 9);
        find(&m);
        CHECK(m.found.is_feasible);
        CHECK_EQ(m.found.cost.nanoseconds, 0);
        CHECK_LE(m.found.cost.cuts, m.problem.device_count - 1);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_fits);
    T_RUN(test_does_not_fit);
    T_RUN(test_unequal);
    T_RUN(test_pins);
    T_RUN(test_experts);
    T_RUN(test_tower);
    T_RUN(test_too_large);
    T_RUN(test_many);
    T_RUN(test_many_that_do_not_fit);
    T_RUN(test_contiguous_is_found);
    T_MAIN_END;
}
