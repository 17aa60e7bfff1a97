/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_experts.c - what is left of a device: experts that stay or slots for them;
 * against all ways to divide it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/plan.h"
#include "tests/fault.h"
#include "tests/given.h"
#include "tests/t.h"

#define LAYERS 3u
#define EXPERTS 5u

static void
test_hits(void)
{
    static const struct {
        uint64_t slots;
        uint64_t away;
        uint64_t layers;
        uint64_t used;
        double hits;
    } rows[] = {
        { 0, 0, 1, 1, 1 },        { 0, 8, 2, 2, 0 },          { 8, 8, 2, 2, 1 },
        { 9, 8, 2, 2, 1 },        { 4, 8, 2, 2, 0.5 },        { 7, 8, 2, 2, 0.875 },
        { 3, 8, 2, 2, 1.0 / 6 },  { 2, 8, 2, 2, 0 },          { 1, 8, 2, 2, 0 },
        { 32, 128, 4, 8, 0.25 },  { 31, 128, 4, 8, 23.0 / 120 }, { 8, 16, 2, 8, 0 },
    };

    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK(fabs(berthi_plan_expert_hits(rows[i].slots, rows[i].away, rows[i].layers,
                                           rows[i].used)
                   - rows[i].hits)
              < 1e-12);
}

/* ------------------------------------------------------------------------ random */

static uint64_t random_state;

static uint32_t
random_below(uint32_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % limit);
}

typedef struct problem {
    given given;
    uint32_t layers;
    uint32_t experts;  /* of each, at most; */
    uint32_t of[LAYERS];
    uint32_t size;     /* alike */
    bool is_even;      /* all have as many */
    uint32_t dense;    /* of each layer */
    uint32_t used;
    uint32_t room;     /* of the device, */
    uint32_t host;     /* and of host memory */
    uint32_t pinned[LAYERS]; /* the last so many experts lie in host memory */
} problem;

/* The first layer has most; others may have none. */
static void
draw_experts(problem *p)
{
    const uint32_t most_pinned = random_below(4) == 0 ? 1 + random_below(2) * p->experts : 0;

    for (uint32_t l = 0; l < p->layers; l++) {
        p->of[l] = p->is_even || l == 0 ? p->experts : random_below(p->experts + 1);
        p->pinned[l] = most_pinned <= 1 ? most_pinned : random_below(most_pinned);
        if (p->pinned[l] > p->of[l])
            p->pinned[l] = p->of[l];
    }
}

static void
draw(problem *p)
{
    char text[4096];
    size_t length = 0;

    p->layers = 1 + random_below(LAYERS);
    p->experts = 2 + random_below(EXPERTS - 1);
    p->size = 1 + random_below(3);
    p->dense = 1 + random_below(4);
    p->used = 1 + random_below(p->experts);
    p->is_even = random_below(2) == 0;
    draw_experts(p);
    for (uint32_t l = 0; l < p->layers; l++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "layer l%u 0\n", l);
        for (uint32_t e = 0; e < p->of[l]; e++)
            length += (size_t)snprintf(text + length, sizeof text - length,
                                       "l%u.e.%u %u e #%u%s\n", l, e, p->size, e,
                                       e + p->pinned[l] >= p->of[l] ? " @1" : "");
        length += (size_t)snprintf(text + length, sizeof text - length, "l%u.w %u f\n", l,
                                   p->dense);
    }
    given_begin(&p->given, text);
    p->room = p->layers * p->dense + random_below(p->layers * p->experts * p->size + 2);
    p->host = random_below(p->layers * p->experts * p->size + 4);
    given_tier(&p->given, BERTHI_TIER_GPU, p->room, 0, 4, 400);
    given_tier(&p->given, BERTHI_TIER_CPU, p->host, 0, 2, 100);
    p->given.input.expert_count = p->experts;
    p->given.input.experts_used = p->used;
}

/* Bytes that are not found, where each layer keeps so many; INFINITY: it does not fit. */
static double
cost_of(const problem *p, const uint32_t *kept)
{
    const uint32_t free = p->room - p->layers * p->dense;
    uint32_t most = 0;
    uint32_t away = 0;
    uint32_t stay = 0;
    uint32_t layers = 0;
    uint32_t slots;
    double hits = 0;

    for (uint32_t l = 0; l < p->layers; l++) {
        stay += kept[l] * p->size;
        layers += p->of[l] > 0;
        away += p->of[l] - kept[l];
        most = p->of[l] - kept[l] > most ? p->of[l] - kept[l] : most;
    }
    if (away == 0)
        return stay <= free ? 0 : INFINITY;
    if (stay > free || away * p->size > p->host)
        return INFINITY;
    slots = (free - stay) / p->size;
    if (slots < (most < p->used ? most : p->used))
        return INFINITY;
    if (slots >= away)
        hits = 1;
    else if (slots >= layers * p->used)
        hits = (double)slots / away;
    else if (slots > p->used)
        hits = (double)(slots - p->used) / (away - p->used);
    return away * p->size * (1 - hits);
}

/* The least of any ways to keep as many in each layer, and what the plan's ways bring. */
static void
compare(const problem *p, const berth_plan *plan)
{
    const berth_plan_tier *const gpu = &plan->tiers[0];
    uint32_t kept[LAYERS] = { 0 };
    double least = INFINITY;
    uint64_t away = 0;

    for (uint32_t n = 0; n <= p->experts; n++) {
        for (uint32_t l = 0; l < p->layers; l++)
            kept[l] = n < p->of[l] - p->pinned[l] ? n : p->of[l] - p->pinned[l];
        least = fmin(least, cost_of(p, kept));
    }
    memset(kept, 0, sizeof kept);
    for (uint64_t i = 0; i < plan->berth_count; i++) {
        const berthi_berth *const b = &plan->berths[i];

        if (!b->is_expert)
            continue;
        kept[b->layer] += b->is_resident;
        away += !b->is_resident;
        if (b->is_resident) /* the first ones stay */
            CHECK_EQ(kept[b->layer],
                     i - plan->layers[b->layer].out.first_berth + 1);
    }
    if (!isinf(least) && !CHECK(cost_of(p, kept) <= least * (1 + 1e-6)))
        T_NOTE("%u layers of %u, %u used, room %u, host %u: %g of %g", p->layers, p->experts,
               p->used, p->room, p->host, cost_of(p, kept), least);
    CHECK_EQ(gpu->experts_away, away);
    CHECK_LE(gpu->expert_slot_count, away);
    CHECK_EQ(gpu->expert_slots, gpu->expert_slot_count * p->size * GIVEN_UNIT);
    CHECK_EQ(gpu->weights + gpu->expert_slots + gpu->free, gpu->budget);
    if (away > 0 && !isinf(cost_of(p, kept))) {
        const double all = (double)away * p->size * GIVEN_UNIT;
        const double brought = all * (1 - (double)gpu->expert_hits / 1e9);

        CHECK(fabs(brought - cost_of(p, kept) * GIVEN_UNIT) < 1e-3);
        if (p->is_even)
            CHECK(fabs((double)gpu->link_bytes - brought * p->used / p->experts)
                  <= p->layers * 2);
        CHECK(gpu->expert_slot_count == away || gpu->free < p->size * GIVEN_UNIT);
    }
}

/* Thousands of small models: no way to divide what is left brings less. */
static void
test_brute_force(void)
{
    uint32_t fits = 0;
    uint32_t has_slots = 0;

    random_state = 7;
    for (uint32_t i = 0; i < 6000; i++) {
        static problem p;
        berth_plan *plan;

        draw(&p);
        if (berthi_plan_make(given_context, &p.given.input, &plan, NULL) != BERTH_OK)
            continue;
        fits++;
        has_slots += plan->tiers[0].expert_slot_count > p.used;
        compare(&p, plan);
        berthi_plan_free(plan);
    }
    T_NOTE("%u of 6000 fit, %u have slots beyond one request", fits, has_slots);
    CHECK_GT(fits, 2000);
    CHECK_GT(has_slots, 600);
}

/* ------------------------------------------------------------------------- given */

static berth_plan *
plan_given(given *g, uint64_t hits)
{
    berth_plan *plan;

    g->input.has_hits = true;
    g->input.expert_hits = hits;
    if (!CHECK_EQ(berthi_plan_make(given_context, &g->input, &plan, NULL), BERTH_OK))
        exit(1);
    return plan;
}

/* What a run has measured stands in place of what would be expected; places do not change. */
static void
test_given_hits(void)
{
    static const uint64_t hits[] = { 0, 1, 123456789, 600000000, 1000000000 };
    berth_plan *expected;
    given g;

    given_begin(&g, "layer a 0\na.e.0 8 e #0\na.e.1 8 e #1\na.e.2 8 e #2\na.e.3 8 e #3\n"
                    "a.w 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 17, 0, 4, 400);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 100);
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    T_REQUIRE(CHECK_EQ(berthi_plan_make(given_context, &g.input, &expected, NULL), BERTH_OK));
    CHECK_EQ(expected->tiers[0].expert_slot_count, 2);
    CHECK_EQ(expected->tiers[0].expert_hits, 500000000);
    CHECK_EQ(expected->tiers[0].routing, BERTH_ROUTING_UNIFORM);
    for (uint32_t i = 0; i < sizeof hits / sizeof *hits; i++) {
        berth_plan *const plan = plan_given(&g, hits[i]);
        const uint64_t missed = 1000000000 - hits[i];
        char why[256];

        CHECK_EQ(plan->tiers[0].expert_slot_count, 2);
        CHECK_EQ(plan->tiers[0].expert_hits, hits[i]);
        CHECK_EQ(plan->tiers[0].routing, BERTH_ROUTING_GIVEN);
        CHECK_EQ(plan->tiers[1].routing, BERTH_ROUTING_UNIFORM);
        /* A pass wants one of four, 8 units; a byte is lost to rounding. */
        CHECK_LE(plan->summary.link_bytes, 8 * GIVEN_UNIT * missed / 1000000000);
        CHECK_GE(plan->summary.link_bytes + 1, 8 * GIVEN_UNIT * missed / 1000000000);
        berthi_plan_explain(plan, 0, why, sizeof why);
        CHECK_CONTAINS(why, i == 3 ? "; 2 slots for 4 experts, 60 % hits as given"
                               : " % hits as given");
        for (uint64_t b = 0; b < plan->berth_count; b++)
            CHECK_EQ(plan->berths[b].tier, expected->berths[b].tier);
        berthi_plan_free(plan);
    }
    berthi_plan_free(expected);
}

/* Where all that are away have slots, or none has, nothing is left to be given. */
static void
test_given_hits_that_cannot_be(void)
{
    berth_plan *plan;
    given g;

    given_begin(&g, "layer a 0\na.e.0 2 e #0 @1\na.e.1 2 e #1\na.w 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 5, 0, 4, 400);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 100);
    g.input.expert_count = 2;
    g.input.experts_used = 1;
    plan = plan_given(&g, 1);
    CHECK_EQ(plan->tiers[0].expert_slot_count, plan->tiers[0].experts_away);
    CHECK_EQ(plan->tiers[0].expert_hits, 1000000000);
    CHECK_EQ(plan->tiers[0].routing, BERTH_ROUTING_UNIFORM);
    berthi_plan_free(plan);
    g.tiers[0].budget = GIVEN_UNIT; /* no room to bring one, and followed all the same */
    g.tensors[1].tier = 1;
    g.tensors[2].tier = 0;
    g.input.is_mapped = true;
    plan = plan_given(&g, 900000000);
    CHECK_EQ(plan->tiers[0].expert_slot_count, 0);
    CHECK_EQ(plan->tiers[0].expert_hits, 0);
    CHECK_EQ(plan->tiers[0].routing, BERTH_ROUTING_UNIFORM);
    berthi_plan_free(plan);
}

/* Of slots is told where the layer's own experts use them. */
static void
test_reason_of_another_layer(void)
{
    berth_plan *plan;
    char why[256];
    given g;

    given_begin(&g, "layer a 0\na.1 1 f\na.2 1 f\na.3 1 f\na.4 1 f\na.5 1 f\n"
                    "layer b 0\nb.a 1 f\n"
                    "b.e.0 8 e #0\nb.e.1 8 e #1\nb.e.2 8 e #2\nb.e.3 8 e #3\n");
    given_tier(&g, BERTHI_TIER_GPU, 22, 0, 4, 400);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 100);
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    plan = plan_given(&g, 600000000);
    berthi_plan_explain(plan, 0, why, sizeof why);
    CHECK_STR(why, "fits on cuda:0");
    berthi_plan_explain(plan, 1, why, sizeof why);
    CHECK_CONTAINS(why, "; 2 slots for 4 experts, 60 % hits as given");
    berthi_plan_free(plan);
}

/* ------------------------------------------------------------------------ places */

#define TWO                                                                                \
    "layer a 0\na.e.0 2 e #0\na.e.1 2 e #1\na.e.2 2 e #2\na.e.3 2 e #3\na.w 1 f\n"          \
    "layer b 0\nb.e.0 2 e #0\nb.e.1 2 e #1\nb.e.2 2 e #2\nb.e.3 2 e #3\nb.w 1 f\n"

/* Experts that stay, slots, experts that are away, of the first device. */
static void
check_division(given *g, uint32_t stay, uint32_t slots, uint32_t away)
{
    berth_plan *plan;
    uint32_t count = 0;

    if (!CHECK_EQ(berthi_plan_make(given_context, &g->input, &plan, NULL), BERTH_OK))
        return;
    for (uint64_t i = 0; i < plan->berth_count; i++)
        count += plan->berths[i].is_expert && plan->berths[i].tier == 0;
    CHECK_EQ(count, stay);
    CHECK_EQ(plan->tiers[0].expert_slot_count, slots);
    CHECK_EQ(plan->tiers[0].experts_away, away);
    berthi_plan_free(plan);
}

/* As many have slots as have room elsewhere. */
static void
test_room_elsewhere(void)
{
    given g;

    given_begin(&g, TWO);
    given_tier(&g, BERTHI_TIER_GPU, 2 + 10, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 16, 0, 2, 5);
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    check_division(&g, 0, 5, 8);
    g.tiers[1].budget = 15 * GIVEN_UNIT; /* all but one: one of each layer stays */
    check_division(&g, 2, 3, 6);
    g.tiers[1].budget = 11 * GIVEN_UNIT;
    check_division(&g, 4, 1, 4);
    g.tiers[1].budget = GIVEN_NONE;
    check_division(&g, 0, 5, 8);
    g.tiers[0].budget = 18 * GIVEN_UNIT; /* all of them fit */
    check_division(&g, 8, 0, 0);
}

/* Experts of one device have left the host no room for those of the next. */
static void
test_room_for_two(void)
{
    static const uint32_t budgets[] = { 14, 15, 16 };

    for (uint32_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        berth_plan *plan;
        given g;

        given_begin(&g, TWO);
        given_tier(&g, BERTHI_TIER_GPU, 6, 0, 4, 20);
        given_tier(&g, BERTHI_TIER_GPU, 6, 0, 4, 20);
        given_tier(&g, BERTHI_TIER_CPU, budgets[i], 0, 2, 5);
        g.input.expert_count = 4;
        g.input.experts_used = 1;
        T_REQUIRE(berthi_plan_make(given_context, &g.input, &plan, NULL) == BERTH_OK);
        CHECK_EQ(plan->tiers[0].experts_away, 4);
        CHECK_EQ(plan->tiers[1].experts_away, budgets[i] < 16 ? 3 : 4);
        CHECK_LE(plan->tiers[2].weights, plan->tiers[2].budget);
        berthi_plan_free(plan);
    }
}

/* What comes from the disk comes as it lies there: what is encoded by the load stays. */
static void
test_disk(void)
{
    given g;

    given_begin(&g, TWO);
    given_tier(&g, BERTHI_TIER_GPU, 2 + 10, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_DISK, 60, 0, 2, 5);
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    check_division(&g, 0, 5, 8);
    g.tensors[0].scratch = GIVEN_UNIT;
    g.tiers[0].budget += GIVEN_UNIT;
    check_division(&g, 4, 1, 4);
    /* Where some lie on the disk for want of host memory no more of them do. */
    g.tensors[0].scratch = 0;
    g.tiers[0].budget -= GIVEN_UNIT;
    g.tiers[1] = g.tiers[0];
    g.tiers[1].tier.kind = BERTHI_TIER_CPU;
    g.tiers[1].budget = 5 * GIVEN_UNIT;
    g.tiers[2] = g.tiers[0];
    g.tiers[2].tier.kind = BERTHI_TIER_DISK;
    g.tiers[2].budget = GIVEN_NONE;
    g.input.tier_count = 3;
    check_division(&g, 4, 1, 4);
    g.tiers[1].budget = 16 * GIVEN_UNIT;
    check_division(&g, 0, 5, 8);
}

/* Bound to host memory they have slots where there is room; two parts of one, one slot. */
static void
test_bound(void)
{
    given g;

    given_begin(&g, "layer a 0\na.e.0.v 2 e #0 @1\na.e.0.w 1 e #0 @2\na.e.1.v 2 e #1 @1\n"
                    "a.e.2.v 2 e #2 @0\na.w 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 5, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_tier(&g, BERTHI_TIER_DISK, 60, 0, 2, 5);
    g.input.expert_count = 3;
    g.input.experts_used = 1;
    check_division(&g, 1, 0, 2);
    g.tiers[0].budget = 6 * GIVEN_UNIT;
    check_division(&g, 1, 1, 2);
    g.tiers[0].budget = 60 * GIVEN_UNIT;
    check_division(&g, 1, 2, 2);
}

/* ------------------------------------------------------------------------ faults */

static berth_status
make_once(void *user, berth_context *context, berth_error *error)
{
    given *const g = user;
    berth_plan *plan;
    const berth_status status = berthi_plan_make(context, &g->input, &plan, error);

    berthi_plan_free(plan);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts;
    given g;

    given_begin(&g, TWO);
    given_tier(&g, BERTHI_TIER_GPU, 2 + 10, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    /* So large a table that it is an allocation of its own. */
    counts = fault_loop("experts of a plan", make_once, &g);
    CHECK_GE(counts.memory, 4);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    given_start();
    T_RUN(test_hits);
    T_RUN(test_brute_force);
    T_RUN(test_given_hits);
    T_RUN(test_given_hits_that_cannot_be);
    T_RUN(test_reason_of_another_layer);
    T_RUN(test_room_elsewhere);
    T_RUN(test_room_for_two);
    T_RUN(test_disk);
    T_RUN(test_bound);
    T_RUN(test_faults);
    given_end();
    T_MAIN_END;
}
