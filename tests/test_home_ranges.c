/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_home_ranges.c - what the search begins with: with no effort to go on from
 * there, homes are as good as the best of one range of layers on each device.
 */
#include "placement/home.h"

#include <string.h>

#include "tests/t.h"
#include "tests/weights.h"

#define MEGABYTE UINT64_C(1000000)
#define LAYERS 10u
#define DEVICES 4u
#define QUARTER (UINT32_C(1) << 30)

typedef struct model {
    berthi_home_problem problem;
    berthi_home_layer layers[LAYERS];
    berthi_home_device devices[DEVICES];
    uint32_t homes[LAYERS];
    berthi_homes found;
} model;

/* Problems that are drawn. */
typedef enum drawing {
    ANY,
    PINNED, /* some layers */
    ALIKE   /* most layers, and all that is brought takes whole grains: cuts count, too */
} drawing;

/* The best of the ways that were tried here, one by one. */
typedef struct trial {
    const model *m;
    bool has_cuts; /* of the fastest */
    uint32_t homes[LAYERS];
    berthi_home_cost fastest;   /* devices in their order, or the largest first */
    berthi_home_cost simplest;  /* nothing brought, devices in any order */
} trial;

static uint64_t
below(uint64_t *state, uint64_t end)
{
    return weights_random(state) % end;
}

static int
compare(const berthi_home_cost *a, const berthi_home_cost *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing ? -1 : 1;
    return (a->nanoseconds > b->nanoseconds) - (a->nanoseconds < b->nanoseconds);
}

static bool
is_faster(const trial *t, const berthi_home_cost *a, const berthi_home_cost *b)
{
    const int order = compare(a, b);

    return order < 0 || (order == 0 && t->has_cuts && a->cuts < b->cuts);
}

static void
try_one(trial *t, bool is_in_order)
{
    uint64_t missing;
    uint32_t short_of;
    const berthi_home_cost cost =
        berthi_home_evaluate(&t->m->problem, t->homes, &missing, &short_of);

    if (is_in_order && is_faster(t, &cost, &t->fastest))
        t->fastest = cost;
    if (cost.missing == 0 && cost.nanoseconds == 0 && cost.cuts < t->simplest.cuts)
        t->simplest = cost;
}

/* All ends of the range of the device at this place of the order. */
static void
try_ends(trial *t, const uint32_t *order, uint32_t place, uint32_t begin, bool is_in_order)
{
    const uint32_t layers = t->m->problem.layer_count;

    for (uint32_t end = begin; end <= layers; end++) {
        if (place + 1 == t->m->problem.device_count)
            end = layers;
        for (uint32_t i = begin; i < end; i++)
            t->homes[i] = t->m->layers[i].pin == BERTHI_NO_DEVICE ? order[place]
                                                                  : t->m->layers[i].pin;
        if (place + 1 == t->m->problem.device_count)
            try_one(t, is_in_order);
        else
            try_ends(t, order, place + 1, end, is_in_order);
    }
}

static bool
is_planned_order(const model *m, const uint32_t *order)
{
    bool is_given = true;
    bool is_by_room = true;

    for (uint32_t i = 0; i + 1 < m->problem.device_count; i++) {
        const uint64_t room = m->devices[order[i]].room;
        const uint64_t next = m->devices[order[i + 1]].room;

        is_given = is_given && order[i] < order[i + 1];
        is_by_room = is_by_room && (room > next || (room == next && order[i] < order[i + 1]));
    }
    return is_given || is_by_room;
}

/* All orders of the devices. */
static void
try_orders(trial *t, uint32_t *order, uint32_t place)
{
    const uint32_t count = t->m->problem.device_count;

    if (place == count) {
        try_ends(t, order, 0, 0, is_planned_order(t->m, order));
        return;
    }
    for (uint32_t d = 0; d < count; d++) {
        bool is_taken = false;

        for (uint32_t i = 0; i < place; i++)
            is_taken = is_taken || order[i] == d;
        order[place] = d;
        if (!is_taken)
            try_orders(t, order, place + 1);
    }
}

/* Sizes and rates in whole grains, the same but for some layers. */
static void
make_alike(uint64_t *state, model *m)
{
    const uint64_t unit = 50 * (2 + below(state, 8));
    const bool has_experts = below(state, 3) == 0;

    for (uint32_t i = 0; i < m->problem.layer_count; i++) {
        berthi_home_layer *const l = &m->layers[i];
        const uint32_t odd = (uint32_t)below(state, 12);

        l->fixed = 50;
        l->dense = odd == 0 ? 50 * below(state, 20) : unit;
        l->experts = has_experts && odd != 1 ? 4 * unit : 0;
        l->expert_slot = l->experts / 4;
        l->is_away = odd == 2;
        l->is_kept = odd == 3;
    }
    for (uint32_t d = 0; d < m->problem.device_count; d++) {
        m->devices[d].rate = MEGABYTE;
        m->devices[d].overhead -= m->devices[d].overhead % 50;
        m->devices[d].room = 50 * (unit / 10 + below(state, unit / 4));
    }
}

static void
make_random(uint64_t *state, model *m, drawing which)
{
    const uint32_t style = (uint32_t)below(state, 16);
    uint64_t total = 0;

    memset(m, 0, sizeof *m);
    m->found.homes = m->homes;
    m->problem = (berthi_home_problem){
        .layers = m->layers,
        .layer_count = 5 + (uint32_t)below(state, LAYERS - 4),
        .devices = m->devices,
        .device_count = 2 + (uint32_t)below(state, DEVICES - 1),
        .expert_share = QUARTER,
        .elsewhere = UINT64_MAX,
        .effort = 1,
    };
    for (uint32_t i = 0; i < m->problem.layer_count; i++) {
        berthi_home_layer *const l = &m->layers[i];

        *l = (berthi_home_layer){ .dense = 50 + below(state, 400),
                                  .fixed = below(state, 60),
                                  .pin = BERTHI_NO_DEVICE };
        if ((style & 1) != 0) {
            l->experts = below(state, 800);
            l->expert_slot = l->experts / 4;
        }
        if ((style & 2) != 0)
            l->is_kept = below(state, 3) == 0;
        if ((style & 4) != 0)
            l->idle = below(state, 300);
        if (which == PINNED && below(state, 4) == 0)
            l->pin = (uint32_t)below(state, m->problem.device_count);
        total += l->dense + l->fixed + l->experts;
    }
    for (uint32_t d = 0; d < m->problem.device_count; d++) {
        m->devices[d] = (berthi_home_device){
            .room = total * (2 + below(state, 6)) / 4 / m->problem.device_count,
            .rate = MEGABYTE << below(state, 3),
            .overhead = below(state, 30),
        };
        if (d > 0 && (style & 8) != 0 && below(state, 2) == 0)
            m->devices[d] = m->devices[d - 1];
    }
    if (which == ALIKE)
        make_alike(state, m);
}

static bool
has_experts(const model *m)
{
    for (uint32_t i = 0; i < m->problem.layer_count; i++)
        if (m->layers[i].experts > 0)
            return true;
    return false;
}

static void
run(uint64_t seed, uint32_t cases, drawing which)
{
    uint64_t state = seed;
    berth_context *context = NULL;
    uint32_t fitting = 0;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < cases; i++) {
        const berthi_home_cost worst = { UINT64_MAX, UINT64_MAX, UINT32_MAX };
        uint32_t order[DEVICES];
        trial t;
        model m;

        make_random(&state, &m, which);
        t = (trial){ .m = &m, .fastest = worst, .simplest = worst };
        t.has_cuts = which == ALIKE && !has_experts(&m);
        try_orders(&t, order, 0);
        CHECK_EQ(berthi_home_find(context, &m.problem, &m.found, NULL), BERTH_OK);
        if (!CHECK(!is_faster(&t, &t.fastest, &m.found.cost)))
            T_NOTE("case %u", i);
        if (t.simplest.missing > 0)
            continue;
        fitting++;
        CHECK_EQ(m.found.cost.nanoseconds, 0);
        if (which == ANY && !CHECK_LE(m.found.cost.cuts, t.simplest.cuts))
            T_NOTE("case %u", i);
    }
    CHECK_GT(fitting, cases / 4);
    CHECK_LT(fitting, cases);
    T_NOTE("%u of %u need nothing brought", fitting, cases);
    berth_context_destroy(context);
}

static void
test_ranges(void)
{
    run(1, 300, ANY);
}

/* Pinned layers lie where they must, and count there first. */
static void
test_ranges_and_pins(void)
{
    run(2, 300, PINNED);
}

/* No way that is as good as the best so far is left out. */
static void
test_ranges_alike(void)
{
    run(3, 600, ALIKE);
}

/* Homes of the first layers and devices of `m`. */
static void
find(model *m, uint32_t layers, uint32_t devices)
{
    berth_context *context = NULL;

    m->found.homes = m->homes;
    m->problem = (berthi_home_problem){ .layers = m->layers,
                                        .layer_count = layers,
                                        .devices = m->devices,
                                        .device_count = devices,
                                        .expert_share = QUARTER,
                                        .elsewhere = UINT64_MAX,
                                        .effort = 1 };
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_home_find(context, &m->problem, &m->found, NULL), BERTH_OK);
    CHECK(m->found.is_feasible);
    berth_context_destroy(context);
}

/* Two layers are no whole units: they lie where one unit more would not. */
static void
test_gaps_between_units(void)
{
    static const uint64_t rooms[DEVICES] = { 3700, 1900, 1650, 4950 };
    model m;

    for (uint32_t i = 0; i < LAYERS; i++) {
        const bool is_dense = i == 3 || i == 6;

        m.layers[i] = (berthi_home_layer){ .fixed = 50,
                                           .dense = 300,
                                           .experts = is_dense ? 0 : 1200,
                                           .expert_slot = is_dense ? 0 : 300,
                                           .pin = BERTHI_NO_DEVICE };
    }
    for (uint32_t d = 0; d < DEVICES; d++)
        m.devices[d] = (berthi_home_device){ .room = rooms[d], .rate = MEGABYTE };
    find(&m, LAYERS, DEVICES);
    CHECK_EQ(m.found.cost.nanoseconds, 400000);
    CHECK_EQ(m.found.cost.cuts, 3);
}

/*
 * The last layer alone lies on the smallest device, or with the one before on the second:
 * what is brought to the first takes as long, but there is a cut less.
 */
static void
test_as_long_with_fewer_cuts(void)
{
    static const uint64_t rooms[3] = { 1000, 250, 50 };
    model m;

    for (uint32_t i = 0; i < LAYERS; i++)
        m.layers[i] = (berthi_home_layer){ .dense = i + 1 < LAYERS ? 200 : 50,
                                           .pin = BERTHI_NO_DEVICE };
    for (uint32_t d = 0; d < 3; d++)
        m.devices[d] = (berthi_home_device){ .room = rooms[d], .rate = MEGABYTE };
    find(&m, LAYERS, 3);
    CHECK_EQ(m.found.cost.nanoseconds, 1000000);
    CHECK_EQ(m.found.cost.cuts, 1);
}

/* As many kinds of devices as there may be: each layer has one device that it fits. */
static void
test_twelve_kinds(void)
{
    berthi_home_device devices[12];
    berthi_home_layer layers[12];
    uint32_t homes[12];
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = 12,
                                          .devices = devices,
                                          .device_count = 12,
                                          .elsewhere = UINT64_MAX,
                                          .effort = 1 };
    berthi_homes found = { .homes = homes };
    berth_context *context = NULL;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 12; i++) {
        devices[i] = (berthi_home_device){ .room = 100 + 10 * i, .rate = MEGABYTE };
        layers[i] = (berthi_home_layer){ .dense = 100 + 10 * (i * 5 % 12),
                                         .pin = BERTHI_NO_DEVICE };
    }
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    CHECK(found.is_feasible);
    CHECK_EQ(found.cost.nanoseconds, 0);
    for (uint32_t i = 0; i < 12; i++)
        CHECK_EQ(homes[i], i * 5 % 12);
    berth_context_destroy(context);
}

/* Layers of a byte have slots of two. */
static void
test_single_bytes(void)
{
    const berthi_home_layer layer = { .dense = 1, .pin = BERTHI_NO_DEVICE };
    berthi_home_layer layers[6];
    const berthi_home_device devices[] = { { .room = 3, .rate = MEGABYTE },
                                           { .room = 3, .rate = MEGABYTE } };
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = 6,
                                          .devices = devices,
                                          .device_count = 2,
                                          .elsewhere = UINT64_MAX };
    uint32_t homes[6];
    berthi_homes found = { .homes = homes };
    berth_context *context = NULL;
    uint64_t missing;
    uint32_t short_of;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 6; i++)
        layers[i] = layer;
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    CHECK(found.is_proved);
    CHECK_EQ(found.cost.missing, 0);
    CHECK_EQ(found.cost.nanoseconds, 0);
    CHECK_EQ(found.cost.cuts, 1);
    layers[5].dense = 2; /* one more than there is room for: three are brought */
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    CHECK(found.is_proved);
    CHECK_EQ(found.cost.missing, 0);
    CHECK_EQ(berthi_home_evaluate(&problem, homes, &missing, &short_of).nanoseconds,
             found.cost.nanoseconds);
    for (uint32_t all = 0; all < 1 << 6; all++) {
        uint32_t other[6];
        berthi_home_cost cost;

        for (uint32_t i = 0; i < 6; i++)
            other[i] = all >> i & 1;
        cost = berthi_home_evaluate(&problem, other, &missing, &short_of);
        CHECK_GE(compare(&cost, &found.cost), 0);
    }
    berth_context_destroy(context);
}

/*
 * Too many layers to weigh all ranges: slow devices are filled from both ends, and what
 * is left in the middle is brought over the fast link.
 */
static void
test_filled_from_both_ends(void)
{
    enum { COUNT = 500 };
    static berthi_home_layer layers[COUNT];
    static uint32_t homes[COUNT];
    const berthi_home_device devices[] = { { .room = 100 * MEGABYTE, .rate = MEGABYTE },
                                           { .room = 100 * MEGABYTE, .rate = 4 * MEGABYTE },
                                           { .room = 50 * MEGABYTE, .rate = MEGABYTE } };
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = COUNT,
                                          .devices = devices,
                                          .device_count = 3,
                                          .elsewhere = UINT64_MAX,
                                          .effort = 1 };
    berthi_homes found = { .homes = homes };
    berth_context *context = NULL;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        layers[i] = (berthi_home_layer){ .dense = MEGABYTE, .pin = BERTHI_NO_DEVICE };
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    CHECK(found.is_feasible);
    CHECK_EQ(found.cost.cuts, 2);
    for (uint32_t i = 0; i < COUNT; i++)
        if (!CHECK_EQ(homes[i], i < 100 ? 0 : i < 450 ? 1 : 2))
            break;
    /* 350 layers on the fast device: two slots, 98 stay, 252 are brought. */
    CHECK_EQ(found.cost.nanoseconds, UINT64_C(252000000000) / 4);
    berth_context_destroy(context);
}

/* Of two orders of devices that cost as much the one whose list comes first. */
static void
test_smaller_list(void)
{
    const berthi_home_layer layers[] = { { .dense = 100, .pin = BERTHI_NO_DEVICE },
                                         { .dense = 100, .pin = BERTHI_NO_DEVICE } };
    const berthi_home_device devices[] = { { .room = 100, .rate = MEGABYTE },
                                           { .room = 150, .rate = MEGABYTE } };
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = 2,
                                          .devices = devices,
                                          .device_count = 2,
                                          .elsewhere = UINT64_MAX,
                                          .effort = 1 };
    uint32_t homes[2];
    berthi_homes found = { .homes = homes };
    berth_context *context = NULL;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    CHECK_EQ(found.cost.nanoseconds, 0);
    CHECK_EQ(homes[0], 0);
    CHECK_EQ(homes[1], 1);
    berth_context_destroy(context);
}

/* Nothing to place is placed. */
static void
test_no_layers(void)
{
    const berthi_home_device device = { .room = 10, .overhead = 20, .rate = MEGABYTE };
    const berthi_home_problem problem = { .devices = &device, .device_count = 1 };
    berthi_homes found = { .homes = NULL };
    berth_context *context = NULL;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    CHECK(found.is_feasible && found.is_proved);
    CHECK_EQ(found.cost.missing, 0);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ranges);
    T_RUN(test_ranges_and_pins);
    T_RUN(test_ranges_alike);
    T_RUN(test_gaps_between_units);
    T_RUN(test_as_long_with_fewer_cuts);
    T_RUN(test_twelve_kinds);
    T_RUN(test_single_bytes);
    T_RUN(test_filled_from_both_ends);
    T_RUN(test_smaller_list);
    T_RUN(test_no_layers);
    T_MAIN_END;
}
