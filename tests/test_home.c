/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_home.c - homes of layers: what they are worth, worked out by hand, and the
 * search against all homes there are.
 */
#include "placement/home.h"

#include <stdlib.h>
#include <string.h>

#include "placement/home_parts.h"
#include "tests/fault.h"
#include "tests/t.h"
#include "tests/weights.h"

#define MEGABYTE UINT64_C(1000000) /* a second at the slowest rate: a microsecond a byte */
#define LAYERS 7u
#define DEVICES 4u
/* Quarters of experts that a pass takes are exact. */
#define QUARTER (UINT32_C(1) << 30)

typedef struct model {
    berthi_home_problem problem;
    berthi_home_layer layers[LAYERS];
    berthi_home_device devices[DEVICES];
} model;

/* ---------------------------------------------------------------- the oracle */

/* Layers of one device, added up in the oracle's own way. */
typedef struct pile {
    uint64_t stays;     /* fixed and kept */
    uint64_t parts[3];  /* idle, experts, dense: may go in this order */
    uint64_t gone[3];   /* may not stay */
    uint64_t slots[3];  /* if some of it is away */
    uint32_t layers;
} pile;

typedef struct worth {
    uint64_t missing;
    uint64_t time; /* 32nds of a microsecond */
    uint32_t cuts;
} worth;

typedef struct oracle {
    const model *m;
    uint32_t homes[LAYERS];
    uint32_t best[LAYERS];
    worth worth;
    bool has_any;
} oracle;

static void
pile_up(pile *p, const berthi_home_layer *layer, uint64_t slots)
{
    const uint64_t parts[3] = { layer->idle, layer->experts, layer->dense };

    p->layers++;
    p->stays += layer->fixed;
    for (int i = 0; i < 3; i++) {
        if (layer->is_kept)
            p->stays += parts[i];
        else if (layer->is_away)
            p->gone[i] += parts[i];
        else
            p->parts[i] += parts[i];
    }
    if (layer->is_kept)
        return;
    if (p->slots[1] < layer->expert_slot)
        p->slots[1] = layer->expert_slot;
    if (p->slots[2] < slots * layer->dense)
        p->slots[2] = slots * layer->dense;
}

/*
 * Tries in turn: nothing goes, idle bytes go, experts too, dense ones too; each time
 * as few of the last kind as are enough.
 */
static void
weigh(const model *m, uint32_t device, const pile *p, worth *out, uint64_t *away)
{
    const berthi_home_device *const d = &m->devices[device];
    uint64_t gone[3] = { p->gone[0], p->gone[1], p->gone[2] };
    uint64_t base = p->stays + d->overhead;
    uint64_t size = 0;

    for (int i = 0; i < 3; i++)
        base += p->gone[i] > 0 ? p->slots[i] : 0;
    size = base + p->parts[0] + p->parts[1] + p->parts[2];
    for (int kind = 0; kind < 3 && size > d->room; kind++) {
        const uint64_t slot = p->gone[kind] > 0 ? 0 : p->slots[kind];
        uint64_t leaves = p->parts[kind];

        if (leaves == 0)
            continue;
        if (kind == 2 && slot >= leaves) { /* of no use, but all that is left */
            gone[kind] += leaves;
            break;
        }
        size += slot;
        if (size - d->room < leaves)
            leaves = size - d->room;
        gone[kind] += leaves;
        size -= leaves;
    }
    if (size > d->room)
        out->missing += size - d->room;
    for (int i = 0; i < 3; i++)
        *away += gone[i];
    out->time += (gone[2] * 4 + gone[1] * (m->problem.expert_share / QUARTER))
                 * (8 * MEGABYTE / d->rate);
}

static int
compare(const worth *a, const worth *b)
{
    const uint64_t grain = 50 * 32;
    const uint64_t a_grains = (a->time + grain - 1) / grain;
    const uint64_t b_grains = (b->time + grain - 1) / grain;

    if (a->missing != b->missing)
        return a->missing < b->missing ? -1 : 1;
    if (a_grains != b_grains)
        return a_grains < b_grains ? -1 : 1;
    return a->cuts < b->cuts ? -1 : a->cuts > b->cuts;
}

static void
end_of(oracle *o, const pile *piles)
{
    const model *const m = o->m;
    worth found = { 0, 0, 0 };
    uint64_t away = 0;

    for (uint32_t d = 0; d < m->problem.device_count; d++)
        if (piles[d].layers > 0)
            weigh(m, d, &piles[d], &found, &away);
    for (uint32_t i = 1; i < m->problem.layer_count; i++)
        found.cuts += o->homes[i] != o->homes[i - 1];
    if (away > m->problem.elsewhere)
        found.missing += away - m->problem.elsewhere;
    if (!o->has_any || compare(&found, &o->worth) < 0) {
        o->has_any = true;
        o->worth = found;
        memcpy(o->best, o->homes, sizeof o->best);
    }
}

/* All homes, the smallest list first. */
static void
try_all(oracle *o, uint32_t layer, pile *piles)
{
    const berthi_home_layer *const l = &o->m->layers[layer];

    if (layer == o->m->problem.layer_count) {
        end_of(o, piles);
        return;
    }
    for (uint32_t d = 0; d < o->m->problem.device_count; d++) {
        const pile without = piles[d];

        if (l->pin != BERTHI_NO_DEVICE && l->pin != d)
            continue;
        pile_up(&piles[d], l, o->m->problem.slots == 0 ? 2 : o->m->problem.slots);
        o->homes[layer] = d;
        try_all(o, layer + 1, piles);
        piles[d] = without;
    }
}

/* --------------------------------------------------------------- one device */

/* Room for 1000 bytes, a microsecond a byte; a quarter of the experts a pass. */
static const berthi_home_device one_device = { .room = 1000, .rate = MEGABYTE };
static const berthi_home_problem one = { .devices = &one_device,
                                         .device_count = 1,
                                         .expert_share = QUARTER,
                                         .elsewhere = UINT64_MAX };

static void
check_load(const berthi_home_sums *sums, uint64_t away, uint64_t slots, uint64_t missing,
           uint64_t quarters)
{
    const berthi_home_load load = berthi_home_weigh(&one, 0, sums);

    CHECK_EQ(load.away, away);
    CHECK_EQ(load.slots, slots);
    CHECK_EQ(load.missing, missing);
    /* 250 nanoseconds each, in 2^-56ths */
    CHECK(load.ticks == (berthi_home_ticks)quarters * 250 << 56);
}

static void
test_weigh(void)
{
    check_load(&(berthi_home_sums){ .fixed = 0 }, 0, 0, 0, 0);
    check_load(&(berthi_home_sums){ .fixed = 400, .kept = 600 }, 0, 0, 0, 0);
    check_load(&(berthi_home_sums){ .fixed = 400, .kept = 601 }, 0, 0, 1, 0);
    /* Idle ones first: no slots, no time. */
    check_load(&(berthi_home_sums){ .fixed = 400, .dense = 300, .idle = 300 }, 0, 0, 0, 0);
    check_load(&(berthi_home_sums){ .fixed = 400, .dense = 300, .idle = 390 }, 90, 0, 0, 0);
    check_load(&(berthi_home_sums){ .fixed = 700, .dense = 300, .idle = 9 }, 9, 0, 0, 0);
    /* Then experts, and their slot: a quarter of them in a pass. */
    check_load(&(berthi_home_sums){ .dense = 300, .experts = 800, .idle = 50,
                                    .largest_dense = 100, .largest_expert_slot = 40 },
               190, 40, 0, 140);
    check_load(&(berthi_home_sums){ .dense = 300, .experts = 660, .idle = 50,
                                    .largest_dense = 100, .largest_expert_slot = 40 },
               10, 0, 0, 0);
    check_load(&(berthi_home_sums){ .dense = 960, .experts = 800,
                                    .largest_dense = 100, .largest_expert_slot = 40 },
               800, 40, 0, 800);
    /* Then dense ones, and two slots. */
    check_load(&(berthi_home_sums){ .dense = 961, .experts = 800,
                                    .largest_dense = 100, .largest_expert_slot = 40 },
               1001, 240, 0, 800 + 4 * 201);
    check_load(&(berthi_home_sums){ .dense = 1001, .largest_dense = 100 }, 201, 200, 0,
               4 * 201);
    check_load(&(berthi_home_sums){ .fixed = 800, .dense = 5000, .largest_dense = 100 },
               5000, 200, 0, 4 * 5000);
    check_load(&(berthi_home_sums){ .fixed = 807, .dense = 5000, .largest_dense = 100 },
               5000, 200, 7, 4 * 5000);
    /* Slots of more than they free are not asked for. */
    check_load(&(berthi_home_sums){ .fixed = 900, .dense = 200, .largest_dense = 100 },
               200, 0, 100, 4 * 200);
    check_load(&(berthi_home_sums){ .fixed = 900, .dense = 201, .largest_dense = 100 },
               201, 200, 100, 4 * 201);
}

/* What may not stay is brought though there is room, and has its slots. */
static void
test_weigh_away(void)
{
    check_load(&(berthi_home_sums){ .away_idle = 70 }, 70, 0, 0, 0);
    check_load(&(berthi_home_sums){ .away_experts = 80, .largest_expert_slot = 20 }, 80, 20,
               0, 80);
    check_load(&(berthi_home_sums){ .away_dense = 70, .largest_dense = 70 }, 70, 140, 0,
               280);
    check_load(&(berthi_home_sums){ .fixed = 861, .away_dense = 70, .largest_dense = 70 },
               70, 140, 1, 280);
    /* Slots that are there are not counted twice. */
    check_load(&(berthi_home_sums){ .fixed = 800, .dense = 200, .away_dense = 1,
                                    .largest_dense = 80 },
               161, 160, 0, 4 * 161);
    check_load(&(berthi_home_sums){ .fixed = 800, .experts = 300, .away_experts = 1,
                                    .largest_expert_slot = 50 },
               151, 50, 0, 151);
    check_load(&(berthi_home_sums){ .fixed = 800, .dense = 100, .away_dense = 70,
                                    .largest_dense = 80 },
               130, 160, 0, 4 * 130);
    check_load(&(berthi_home_sums){ .fixed = 800, .experts = 300, .away_experts = 100,
                                    .largest_expert_slot = 50 },
               250, 50, 0, 250);
}

/* --------------------------------------------------------------------- homes */

static berthi_home_layer
dense_layer(uint64_t bytes)
{
    return (berthi_home_layer){ .dense = bytes, .pin = BERTHI_NO_DEVICE };
}

static void
check_cost(const berthi_home_problem *problem, const uint32_t *homes,
           berthi_home_cost expected, uint64_t missing, uint32_t short_of)
{
    uint64_t is_missing = 99;
    uint32_t is_short_of = 99;
    const berthi_home_cost cost =
        berthi_home_evaluate(problem, homes, &is_missing, &is_short_of);

    CHECK_EQ(cost.missing, expected.missing);
    CHECK_EQ(cost.nanoseconds, expected.nanoseconds);
    CHECK_EQ(cost.cuts, expected.cuts);
    CHECK_EQ(is_missing, missing);
    CHECK_EQ(is_short_of, short_of);
}

static void
test_evaluate(void)
{
    const berthi_home_device devices[] = {
        { .room = 1000, .overhead = 100, .rate = MEGABYTE },
        { .room = 500, .rate = 2 * MEGABYTE },
        { .room = 10, .overhead = 20, .rate = MEGABYTE },
    };
    berthi_home_layer layers[4];
    berthi_home_problem problem = { .layers = layers,
                                    .layer_count = 4,
                                    .devices = devices,
                                    .device_count = 3,
                                    .elsewhere = UINT64_MAX };
    const uint32_t none = BERTHI_NO_DEVICE;

    for (uint32_t i = 0; i < 4; i++)
        layers[i] = dense_layer(300);
    check_cost(&problem, (uint32_t[]){ 0, 0, 0, 1 }, (berthi_home_cost){ 0, 0, 1 }, 0, none);
    check_cost(&problem, (uint32_t[]){ 0, 1, 0, 0 }, (berthi_home_cost){ 0, 0, 2 }, 0, none);
    /* 1300 with overhead and 600 of slots: 900 are brought in 900 us. */
    check_cost(&problem, (uint32_t[]){ 0, 0, 0, 0 }, (berthi_home_cost){ 0, 900000, 0 }, 0,
               none);
    /* 1200 of 500: slots would take more than there is. */
    check_cost(&problem, (uint32_t[]){ 1, 1, 1, 1 },
               (berthi_home_cost){ 100, 600000, 0 }, 100, 1);
    check_cost(&problem, (uint32_t[]){ 0, 0, 1, 1 },
               (berthi_home_cost){ 100, 300000, 1 }, 100, 1);
    /* Overhead is asked for where there is a layer. */
    layers[3] = dense_layer(0);
    check_cost(&problem, (uint32_t[]){ 0, 0, 0, 2 }, (berthi_home_cost){ 10, 0, 1 }, 10, 2);
    check_cost(&problem, (uint32_t[]){ 0, 1, 1, 2 },
               (berthi_home_cost){ 110, 300000, 2 }, 100, 1);
    /* Not enough elsewhere. */
    layers[3] = dense_layer(300);
    problem.elsewhere = 899;
    check_cost(&problem, (uint32_t[]){ 0, 0, 0, 0 }, (berthi_home_cost){ 1, 900000, 0 }, 1,
               none);
    problem.elsewhere = 900;
    check_cost(&problem, (uint32_t[]){ 0, 0, 0, 0 }, (berthi_home_cost){ 0, 900000, 0 }, 0,
               none);
    problem.elsewhere = 500;
    check_cost(&problem, (uint32_t[]){ 1, 1, 1, 1 },
               (berthi_home_cost){ 800, 600000, 0 }, 700, none);
    problem.elsewhere = 1100; /* as much as the device is short of, which comes first */
    check_cost(&problem, (uint32_t[]){ 1, 1, 1, 1 },
               (berthi_home_cost){ 200, 600000, 0 }, 100, 1);
}

/* Time counts in whole grains, of the sum; a slow rate counts as a million. */
static void
test_grains(void)
{
    berthi_home_device devices[] = { { .room = 100, .rate = MEGABYTE },
                                     { .room = 100, .rate = MEGABYTE } };
    berthi_home_layer layers[2] = { dense_layer(25), dense_layer(25) };
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = 2,
                                          .devices = devices,
                                          .device_count = 2,
                                          .elsewhere = UINT64_MAX };
    const uint32_t none = BERTHI_NO_DEVICE;

    layers[0].is_away = layers[1].is_away = true;
    check_cost(&problem, (uint32_t[]){ 0, 1 }, (berthi_home_cost){ 0, 50000, 1 }, 0, none);
    layers[1].dense = 26;
    check_cost(&problem, (uint32_t[]){ 0, 1 }, (berthi_home_cost){ 0, 100000, 1 }, 0, none);
    devices[0].rate = devices[1].rate = 1;
    check_cost(&problem, (uint32_t[]){ 0, 1 }, (berthi_home_cost){ 0, 100000, 1 }, 0, none);
    devices[0].rate = devices[1].rate = UINT64_MAX;
    check_cost(&problem, (uint32_t[]){ 0, 1 }, (berthi_home_cost){ 0, 50000, 1 }, 0, none);
}

/* More time than there are numbers for is the most whole grains that have one. */
static void
test_most_grains(void)
{
    const uint64_t grain = BERTHI_HOME_GRAIN;
    const uint64_t most = UINT64_MAX / grain * grain;
    const berthi_home_ticks tick = (berthi_home_ticks)1 << 56;

    CHECK_EQ(berthi_home_nanoseconds((most - grain) * tick), most - grain);
    CHECK_EQ(berthi_home_nanoseconds((most - grain) * tick + 1), most);
    CHECK_EQ(berthi_home_nanoseconds((most - 1) * tick), most);
    CHECK_EQ(berthi_home_nanoseconds(most * tick), most);
    CHECK_EQ(berthi_home_nanoseconds(most * tick + 1), most);
    CHECK_EQ(berthi_home_nanoseconds(tick << 64), most);
}

/* Kept counts before away; both are no part of the other sums. */
static void
test_kept(void)
{
    const berthi_home_device device = { .room = 1000, .rate = MEGABYTE };
    berthi_home_layer layers[2] = { dense_layer(500), dense_layer(100) };
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = 2,
                                          .devices = &device,
                                          .device_count = 1,
                                          .expert_share = QUARTER,
                                          .elsewhere = UINT64_MAX };
    const uint32_t homes[2] = { 0, 0 };
    const uint32_t none = BERTHI_NO_DEVICE;

    layers[0].experts = 200;
    layers[0].idle = 100;
    layers[0].expert_slot = 300;
    layers[0].is_kept = true;
    layers[0].is_away = true;
    layers[1].experts = 400;
    layers[1].expert_slot = 60;
    check_cost(&problem, homes, (berthi_home_cost){ 0, 100000, 0 }, 0, none); /* 360 away */
    layers[1].is_away = true;
    check_cost(&problem, homes, (berthi_home_cost){ 60, 200000, 0 }, 60, 0);
    layers[0].is_kept = false;
    check_cost(&problem, homes, (berthi_home_cost){ 300, 750000, 0 }, 300, 0);
}

/* -------------------------------------------------------------- random cases */

static uint64_t
below(uint64_t *state, uint64_t end)
{
    return weights_random(state) % end;
}

/* Sizes such that a byte, a grain and a rounding all decide now and then. */
static uint64_t
size_below(uint64_t *state, uint64_t end)
{
    const uint64_t size = below(state, end) * 25;

    return below(state, 8) == 0 ? size + below(state, 25) : size;
}

static berthi_home_layer
random_layer(uint64_t *state, uint64_t style, uint32_t device_count)
{
    berthi_home_layer layer = { .pin = BERTHI_NO_DEVICE };

    layer.dense = size_below(state, 9);
    if (below(state, 3) == 0)
        layer.fixed = size_below(state, 4);
    if ((style & 1) != 0 && below(state, 2) == 0) {
        layer.experts = size_below(state, 17);
        layer.expert_slot = layer.experts / 4;
    }
    if ((style & 2) != 0 && below(state, 3) == 0)
        layer.idle = size_below(state, 9);
    if ((style & 4) != 0 && below(state, 3) == 0)
        layer.pin = (uint32_t)below(state, device_count);
    if ((style & 8) != 0 && below(state, 4) == 0)
        layer.is_away = true;
    if ((style & 8) != 0 && below(state, 4) == 0)
        layer.is_kept = true;
    return layer;
}

static void
make_random(uint64_t *state, model *m)
{
    static const uint32_t layer_counts[] = { 2, 3, 4, 4, 5, 5, 5, 6, 6, 7 };
    static const uint32_t device_counts[] = { 1, 2, 2, 3, 3, 3, 4 };
    const uint64_t style = weights_random(state) % 64;
    uint64_t total = 0;

    memset(m, 0, sizeof *m);
    m->problem = (berthi_home_problem){
        .layers = m->layers,
        .layer_count = layer_counts[below(state, 10)],
        .devices = m->devices,
        .device_count = device_counts[below(state, 7)],
        .expert_share = QUARTER * (uint32_t)below(state, 4),
        .elsewhere = UINT64_MAX,
    };
    for (uint32_t i = 0; i < m->problem.layer_count; i++) {
        berthi_home_layer *const l = &m->layers[i];

        *l = i > 0 && (style & 16) != 0 && below(state, 3) != 0
                 ? m->layers[i - 1]
                 : random_layer(state, style, m->problem.device_count);
        total += l->fixed + l->dense + l->experts + l->idle;
    }
    total = total * (3 + below(state, 8)) / 8 / m->problem.device_count;
    for (uint32_t d = 0; d < m->problem.device_count; d++) {
        m->devices[d] = (berthi_home_device){
            .room = total * (2 + below(state, 5)) / 4,
            .overhead = below(state, 4) == 0 ? size_below(state, 3) : 0,
            .rate = MEGABYTE << below(state, 4),
        };
        if (d > 0 && (style & 32) != 0)
            m->devices[d] = m->devices[d - 1];
    }
    if (below(state, 4) == 0)
        m->problem.elsewhere = total * below(state, 5) / 4;
}

/*
 * Equal blocks and one or two layers that are not, on devices that do not hold them:
 * whole blocks, what is left between them and slots decide.
 */
static void
make_blocks(uint64_t *state, model *m)
{
    const berthi_home_layer block = { .dense = 500 + below(state, 4000),
                                      .fixed = below(state, 3) * 50,
                                      .pin = BERTHI_NO_DEVICE };
    const bool is_equal = below(state, 2) == 0;
    uint64_t total = 0;

    memset(m, 0, sizeof *m);
    m->problem = (berthi_home_problem){
        .layers = m->layers,
        .layer_count = 5 + (uint32_t)below(state, 3),
        .devices = m->devices,
        .device_count = 1 + (uint32_t)below(state, 3),
        .expert_share = QUARTER,
        .elsewhere = UINT64_MAX,
    };
    for (uint32_t i = 0; i < m->problem.layer_count; i++)
        m->layers[i] = block;
    for (uint64_t odd = below(state, 3); odd > 0; odd--) {
        berthi_home_layer *const l = &m->layers[below(state, m->problem.layer_count)];

        l->dense = below(state, 3) * block.dense + below(state, block.dense);
        l->fixed = below(state, 4) == 0 ? below(state, block.dense) : 0;
        l->is_kept = below(state, 6) == 0;
        l->experts = below(state, 6) == 0 ? below(state, block.dense) : 0;
        l->expert_slot = l->experts / 4;
    }
    for (uint32_t i = 0; i < m->problem.layer_count; i++)
        total += m->layers[i].fixed + m->layers[i].dense + m->layers[i].experts;
    for (uint32_t d = 0; d < m->problem.device_count; d++) {
        m->devices[d] = (berthi_home_device){
            .room = total * (50 + below(state, 60)) / 100 / m->problem.device_count,
            .rate = MEGABYTE,
        };
        if (is_equal && d > 0)
            m->devices[d] = m->devices[d - 1];
    }
}

/* False when the search and the oracle differ. */
static bool
is_best(berth_context *context, const model *m)
{
    const size_t bytes = m->problem.layer_count * sizeof(uint32_t);
    uint32_t homes[LAYERS];
    berthi_homes found = { .homes = homes };
    oracle o = { .m = m };
    pile piles[DEVICES];
    worth again;

    memset(piles, 0, sizeof piles);
    try_all(&o, 0, piles);
    if (!CHECK_EQ(berthi_home_find(context, &m->problem, &found, NULL), BERTH_OK))
        return false;
    again = (worth){ found.cost.missing, found.cost.nanoseconds * 32 / 1000,
                     found.cost.cuts };
    return found.is_proved && found.is_feasible == (o.worth.missing == 0)
           && compare(&again, &o.worth) == 0 && memcmp(homes, o.best, bytes) == 0;
}

static void
check_against_all(void (*make)(uint64_t *state, model *m), uint64_t seed, uint32_t cases)
{
    uint64_t state = seed;
    berth_context *context = NULL;
    uint32_t wrong = 0;
    model m;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < cases; i++) {
        make(&state, &m);
        m.problem.slots = i % 3 == 0 ? 1 + i / 3 % 4 : 0;
        if (!is_best(context, &m) && wrong++ == 0)
            T_NOTE("case %u", i);
    }
    CHECK_EQ(wrong, 0);
    T_NOTE("%u cases", cases);
    berth_context_destroy(context);
}

/* 5 times as many when T_THOROUGH is set. */
static uint32_t
cases_of(uint32_t count)
{
    return getenv("T_THOROUGH") != NULL ? 5 * count : count;
}

static void
test_against_all(void)
{
    check_against_all(make_random, 20260101, cases_of(80000));
}

static void
test_blocks_against_all(void)
{
    check_against_all(make_blocks, 20260102, cases_of(30000));
}

/* With so little effort it says that nothing is proved, and gives homes all the same. */
static void
test_effort(void)
{
    uint64_t state = 7;
    berth_context *context = NULL;
    uint32_t unproved = 0;
    model m;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t homes[LAYERS];
        berthi_homes found = { .homes = homes };
        uint64_t missing;
        uint32_t short_of;
        berthi_home_cost cost;

        make_random(&state, &m);
        m.problem.effort = 1 + i % 30;
        CHECK_EQ(berthi_home_find(context, &m.problem, &found, NULL), BERTH_OK);
        cost = berthi_home_evaluate(&m.problem, homes, &missing, &short_of);
        CHECK_EQ(cost.missing, found.cost.missing);
        CHECK_EQ(cost.nanoseconds, found.cost.nanoseconds);
        CHECK_EQ(cost.cuts, found.cost.cuts);
        CHECK_EQ(missing, found.missing);
        CHECK_EQ(short_of, found.short_of);
        CHECK_EQ(found.is_feasible, cost.missing == 0);
        for (uint32_t l = 0; l < m.problem.layer_count; l++)
            CHECK(m.layers[l].pin == BERTHI_NO_DEVICE || m.layers[l].pin == homes[l]);
        if (!found.is_proved)
            unproved++;
        else if (found.is_feasible)
            CHECK(is_best(context, &m));
    }
    CHECK_GT(unproved, 200);
    CHECK_LT(unproved, 1900);
    T_NOTE("%u of 2000 not proved", unproved);
    berth_context_destroy(context);
}

/* How many of the problems are proved within so many steps. */
static uint32_t
count_proved(void (*make)(uint64_t *state, model *m), uint64_t effort)
{
    uint64_t state = 11;
    berth_context *context = NULL;
    uint32_t proved = 0;
    model m;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t homes[LAYERS];
        berthi_homes found = { .homes = homes };

        make(&state, &m);
        m.problem.effort = effort;
        CHECK_EQ(berthi_home_find(context, &m.problem, &found, NULL), BERTH_OK);
        proved += found.is_proved;
    }
    berth_context_destroy(context);
    return proved;
}

/* Bounds rule out as much as they did: as many steps are enough. */
static void
test_steps(void)
{
    CHECK_GE(count_proved(make_random, 4), 551);
    CHECK_GE(count_proved(make_random, 12), 764);
    CHECK_GE(count_proved(make_random, 40), 889);
    CHECK_GE(count_proved(make_blocks, 8), 323);
    CHECK_GE(count_proved(make_blocks, 30), 606);
    CHECK_GE(count_proved(make_blocks, 100), 819);
}

/* Equal layers that just fill devices, two of them pinned. */
typedef struct filled {
    uint64_t rooms[4];
    uint32_t layer_count;
    uint32_t pinned[2];
    uint32_t pin[2];
    uint64_t steps; /* that are enough to prove the homes */
} filled;

static bool
is_proved_within(berth_context *context, const filled *f, uint64_t steps)
{
    berthi_home_device devices[4];
    berthi_home_layer layers[13];
    uint32_t homes[13];
    const berthi_home_problem problem = { .layers = layers,
                                          .layer_count = f->layer_count,
                                          .devices = devices,
                                          .device_count = 4,
                                          .elsewhere = UINT64_MAX,
                                          .effort = steps };
    berthi_homes found = { .homes = homes };

    for (uint32_t d = 0; d < 4; d++)
        devices[d] = (berthi_home_device){ .room = f->rooms[d] * 100, .rate = MEGABYTE };
    for (uint32_t l = 0; l < f->layer_count; l++)
        layers[l] = (berthi_home_layer){ .dense = 100, .pin = BERTHI_NO_DEVICE };
    for (uint32_t i = 0; i < 2; i++)
        layers[f->pinned[i]].pin = f->pin[i];
    CHECK_EQ(berthi_home_find(context, &problem, &found, NULL), BERTH_OK);
    return found.is_proved;
}

/*
 * What the device of the last layer has left counts once in a bound: what it does not hold
 * takes ranges on others. Counted twice, these take a quarter more steps.
 */
static void
test_steps_beside_a_large_device(void)
{
    static const filled rows[] = {
        { { 7, 2, 1, 2 }, 12, { 8, 1 }, { 2, 3 }, 378 },
        { { 3, 1, 3, 4 }, 11, { 1, 2 }, { 0, 3 }, 69 },
        { { 1, 7, 3, 2 }, 13, { 1, 0 }, { 3, 0 }, 58 },
    };
    berth_context *context = NULL;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(is_proved_within(context, &rows[i], rows[i].steps));
        CHECK(!is_proved_within(context, &rows[i], 4));
    }
    berth_context_destroy(context);
}

/* ---------------------------------------------------------------- one at a time */

static void
check_partial(const berthi_home_partial *partial)
{
    berthi_home_partial sum = { .missing = 0 };

    for (uint32_t d = 0; d < partial->problem->device_count; d++) {
        const berthi_home_state *const state = &partial->devices[d];

        sum.missing += state->load.missing;
        sum.away += state->load.away;
        sum.ticks += state->load.ticks;
        sum.free += state->free;
        sum.useful += state->useful;
        sum.bringing += state->is_bringing;
        sum.position += state->layers;
        CHECK_LE(state->useful, state->free);
    }
    CHECK_EQ(partial->missing, sum.missing);
    CHECK_EQ(partial->away, sum.away);
    CHECK(partial->ticks == sum.ticks);
    CHECK_EQ(partial->free, sum.free);
    CHECK_EQ(partial->useful, sum.useful);
    CHECK_EQ(partial->bringing, sum.bringing);
    CHECK_EQ(partial->position, sum.position);
}

/* The best cost of all homes that begin so. */
static berthi_home_cost
best_behind(const berthi_home_problem *problem, uint32_t *homes, uint32_t position)
{
    berthi_home_cost best = { .missing = UINT64_MAX };
    uint64_t missing;
    uint32_t short_of;

    if (position == problem->layer_count)
        return berthi_home_evaluate(problem, homes, &missing, &short_of);
    for (uint32_t d = 0; d < problem->device_count; d++) {
        const uint32_t pin = problem->layers[position].pin;
        berthi_home_cost cost;

        if (pin != BERTHI_NO_DEVICE && pin != d)
            continue;
        homes[position] = d;
        cost = best_behind(problem, homes, position + 1);
        if (berthi_home_compare(&cost, &best) < 0)
            best = cost;
    }
    return best;
}

/* No better than what is behind; or that is no better than the best of all. */
static void
check_bound(berthi_home_bound *bound, const berthi_home_partial *partial,
            const uint32_t *homes, const berthi_home_cost *best)
{
    uint32_t tried[LAYERS];
    berthi_home_cost least;
    berthi_home_cost behind;

    memcpy(tried, homes, sizeof tried);
    least = berthi_home_bound_of(bound, partial, best);
    behind = best_behind(partial->problem, tried, partial->position);
    CHECK(berthi_home_compare(&least, &behind) <= 0
          || berthi_home_compare(&behind, best) >= 0);
}

/* Layers given and taken back at random: sums are those of the devices, bounds hold. */
static void
test_partial(void)
{
    uint64_t state = 5;

    for (uint32_t i = 0; i < 300; i++) {
        berthi_home_rest rest[LAYERS + 1];
        berthi_home_undo undo[LAYERS];
        uint32_t homes[LAYERS] = { 0 };
        berthi_home_partial partial;
        berthi_home_bound bound;
        berthi_home_cost best;
        model m;

        (i % 2 == 0 ? make_random : make_blocks)(&state, &m);
        berthi_home_bound_init(&bound, &m.problem, rest);
        berthi_home_partial_init(&partial, &m.problem, bound.unit[0] + (bound.unit[0] == 0),
                                 bound.slot);
        best = best_behind(&m.problem, homes, 0);
        check_partial(&partial);
        for (uint32_t step = 0; step < 30; step++) {
            const uint32_t at = partial.position;

            if (at == m.problem.layer_count || (at > 0 && below(&state, 3) == 0)) {
                berthi_home_partial_take(&partial, &undo[at - 1]);
            } else {
                const uint32_t pin = m.layers[at].pin;

                homes[at] = pin != BERTHI_NO_DEVICE
                                ? pin
                                : (uint32_t)below(&state, m.problem.device_count);
                berthi_home_partial_give(&partial, homes[at], &undo[at]);
            }
            check_partial(&partial);
            if (m.problem.layer_count < 6)
                check_bound(&bound, &partial, homes, &best);
        }
    }
}

/* ------------------------------------------------------------------- failures */

static berth_status
find_with(void *user, berth_context *context, berth_error *error)
{
    const model *const m = user;
    uint32_t homes[LAYERS];
    berthi_homes found = { .homes = homes };

    return berthi_home_find(context, &m->problem, &found, error);
}

static void
test_failures(void)
{
    uint64_t state = 5;
    fault_counts counts;
    model m;

    make_random(&state, &m);
    for (uint32_t d = 0; d < m.problem.device_count; d++)
        m.devices[d].room = 0; /* nothing fits: all of it is tried */
    counts = fault_loop("homes", find_with, &m);
    CHECK_GE(counts.memory, 3);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_weigh);
    T_RUN(test_weigh_away);
    T_RUN(test_evaluate);
    T_RUN(test_grains);
    T_RUN(test_most_grains);
    T_RUN(test_kept);
    T_RUN(test_effort);
    T_RUN(test_steps);
    T_RUN(test_steps_beside_a_large_device);
    T_RUN(test_partial);
    T_RUN(test_failures);
    T_RUN(test_against_all);
    T_RUN(test_blocks_against_all);
    T_MAIN_END;
}
