/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_make.c - the planner on a few tensors: all that it says, experts, ties. */
#include <string.h>

#include "placement/plan.h"
#include "tests/given.h"
#include "tests/t.h"

/* ------------------------------------------------------------------ whole models */

#define TWO_LAYERS "layer a 1\na.n.w 1 f\na.w 4 d\nlayer b 2\nb.n.w 1 f\nb.w 6 d +3\n"

static void
test_fits(void)
{
    given g;

    given_begin(&g, TWO_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 30, 4, 1, 10);
    given_tier(&g, BERTHI_TIER_CPU, 50, 5, 2, 5);
    g.input.activations = 2 * GIVEN_UNIT;
    g.input.runtime = 3 * GIVEN_UNIT;
    g.input.staging = GIVEN_UNIT;
    given_plan(&g, "cuda:0: reserve 4 needed 3 weights 12 cache 3 activations 2 scratch 3 "
               "free 6 layers 2 berths 4\n"
               "cpu: reserve 5 staging 1 free 44 layers 0 berths 0\n"
               "a: home 0,  bytes 5 resident 5 cache 1; fits on cuda:0\n"
               "  0@0+1 a.n.w 0@1+4 a.w\n"
               "b: home 0,  bytes 7 resident 7 cache 2; fits on cuda:0\n"
               "  0@5+1 b.n.w 0@6+6 b.w\n"
               "all: bytes 12 resident 12 cuts 0 bound 0 of 0\n"
               "times: pass 1.5 first 1.5 compute 1.5 load 12 tokens 666.667 a "
               "second\n");
    g.input.runtime = 5 * GIVEN_UNIT; /* no more than there is */
    g.tiers[0].budget = GIVEN_NONE;
    given_plan(&g, "cuda:0: reserve 4 needed 4 weights 12 cache 3 activations 2 scratch 3 "
               "free inf layers 2 berths 4\n"
               "cpu: reserve 5 staging 1 free 44 layers 0 berths 0\n"
               "a: home 0,  bytes 5 resident 5 cache 1; fits on cuda:0\n"
               "  0@0+1 a.n.w 0@1+4 a.w\n"
               "b: home 0,  bytes 7 resident 7 cache 2; fits on cuda:0\n"
               "  0@5+1 b.n.w 0@6+6 b.w\n"
               "all: bytes 12 resident 12 cuts 0 bound 0 of 0\n"
               "times: pass 1.5 first 1.5 compute 1.5 load 12 tokens 666.667 a "
               "second\n");
}

/* A device that is not needed keeps its reserve whole. */
static void
test_idle_device(void)
{
    given g;

    given_begin(&g, TWO_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 30, 4, 1, 10);
    given_tier(&g, BERTHI_TIER_GPU, 30, 4, 1, 10);
    g.input.runtime = 3 * GIVEN_UNIT;
    g.input.activations = GIVEN_UNIT;
    given_plan(&g, "cuda:0: reserve 4 needed 3 weights 12 cache 3 activations 1 scratch 3 "
               "free 7 layers 2 berths 4\n"
               "cuda:1: reserve 4 free 26 layers 0 berths 0\n"
               "a: home 0,  bytes 5 resident 5 cache 1; fits on cuda:0\n"
               "  0@0+1 a.n.w 0@1+4 a.w\n"
               "b: home 0,  bytes 7 resident 7 cache 2; fits on cuda:0\n"
               "  0@5+1 b.n.w 0@6+6 b.w\n"
               "all: bytes 12 resident 12 cuts 0 bound 0 of 0\n"
               "times: pass 1.5 first 1.5 compute 1.5 load 12 tokens 666.667 a "
               "second\n");
}

static void
test_cut(void)
{
    given g;

    given_begin(&g, TWO_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 11, 0, 1, 10);
    given_tier(&g, BERTHI_TIER_GPU, 12, 0, 2, 20);
    given_tier(&g, BERTHI_TIER_GPU, 90, 5, 2, 20);
    g.input.activations = GIVEN_UNIT;
    g.input.runtime = GIVEN_UNIT;
    given_plan(&g, "cuda:0: free 11 layers 0 berths 0\n"
               "cuda:1: free 12 layers 0 berths 0\n"
               "cuda:2: reserve 5 needed 1 weights 12 cache 3 activations 1 scratch 3 "
               "free 66 layers 2 berths 4\n"
               "a: home 2,  bytes 5 resident 5 cache 1; fits on cuda:2\n"
               "  2@0+1 a.n.w 2@1+4 a.w\n"
               "b: home 2,  bytes 7 resident 7 cache 2; fits on cuda:2\n"
               "  2@5+1 b.n.w 2@6+6 b.w\n"
               "all: bytes 12 resident 12 cuts 0 bound 0 of 0\n"
               "times: pass 0.75 first 0.75 compute 0.75 load 12 tokens 1333.33 a "
               "second\n");
    g.input.tier_count = 2;
    given_plan(&g, "is short of 256 B: the smallest change that would do ; 13");
    g.tiers[1].budget = 13 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 5 cache 1 activations 1 free 4 layers 1 berths 2\n"
               "cuda:1: weights 7 cache 2 activations 1 scratch 3 layers 1 berths 2\n"
               "a: home 0,  bytes 5 resident 5 cache 1; fits on cuda:0\n"
               "  0@0+1 a.n.w 0@1+4 a.w\n"
               "b: home 1,  bytes 7 resident 7 cache 2; fits on cuda:1\n"
               "  1@0+1 b.n.w 1@1+6 b.w\n"
               "all: bytes 12 resident 12 cuts 1 bound 0 of 0\n"
               "times: pass 1.05 first 1.05 compute 1.05 load 12 tokens 952.381 a "
               "second\n");
}

/* Names: of one tensor, without a dot, that end alike, and one that another begins with. */
static void
test_names(void)
{
    given g;

    given_begin(
        &g,
        "layer alone 0\na.b.alone.w 1 f\nlayer plain 0\nplain 1 f\nlayer e 0\n"
        "layer m.0 0\nm.0.w 1 f\nm.0.w.x 1 f\nlayer m.1 0\nm.1.a.w 1 f\nm.1.ab.w 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 9, 0, 1, 10);
    given_plan(&g, "cuda:0: weights 6 free 3 layers 5 berths 6\n"
               "alone: home 0,  bytes 1 resident 1; fits on cuda:0\n"
               "  0@0+1 a.b.alone.w\n"
               "plain: home 0,  bytes 1 resident 1; fits on cuda:0\n"
               "  0@1+1 plain\n"
               "e: home 0, ; fits on cuda:0\n"
               " \n"
               "m.0: home 0,  bytes 2 resident 2; fits on cuda:0\n"
               "  0@2+1 m.0.w 0@3+1 m.0.w.x\n"
               "m.1: home 0,  bytes 2 resident 2; fits on cuda:0\n"
               "  0@4+1 m.1.a.w 0@5+1 m.1.ab.w\n"
               "all: bytes 6 resident 6 cuts 0 bound 0 of 0\n"
               "times: pass 0.6 first 0.6 compute 0.6 load 6 tokens 1666.67 a second\n");
}

/* What is loaded comes over links, too: the slowest one takes longest. */
static void
test_load(void)
{
    given g;

    given_begin(&g, TWO_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 10, 0, 2, 10);
    given_tier(&g, BERTHI_TIER_GPU, 90, 0, 1, 20);
    g.input.disk_rate = 4 * GIVEN_RATE;
    given_plan(&g, "cuda:0: free 10 layers 0 berths 0\n"
               "cuda:1: weights 12 cache 3 scratch 3 free 72 layers 2 berths 4\n"
               "a: home 1,  bytes 5 resident 5 cache 1; fits on cuda:1\n"
               "  1@0+1 a.n.w 1@1+4 a.w\n"
               "b: home 1,  bytes 7 resident 7 cache 2; fits on cuda:1\n"
               "  1@5+1 b.n.w 1@6+6 b.w\n"
               "all: bytes 12 resident 12 cuts 0 bound 0 of 0\n"
               "times: pass 0.75 first 0.75 compute 0.75 load 12 tokens 1333.33 a "
               "second\n");
    g.tensors[1].tier = 0;
    given_plan(&g, "cuda:0: weights 5 cache 1 free 4 layers 1 berths 2\n"
               "cuda:1: weights 7 cache 2 scratch 3 free 78 layers 1 berths 2\n"
               "a: home 0,  bytes 5 resident 5 cache 1; computed on cuda:0, lies on "
               "cuda:0: pinned\n"
               "  0@0+1 a.n.w 0@1+4 a.w\n"
               "b: home 1,  bytes 7 resident 7 cache 2; fits on cuda:1\n"
               "  1@0+1 b.n.w 1@1+6 b.w\n"
               "all: bytes 12 resident 12 cuts 1 bound 0 of 0\n"
               "times: pass 1.05 first 1.05 compute 1.05 load 7 tokens 952.381 a "
               "second\n");
}

/* ----------------------------------------------------------------------- experts */

#define EXPERTS                                                                            \
    "layer a 1\na.e.0.v 1 e #0\na.e.0.w 1 e #0\na.e.1.v 1 e #1\na.e.1.w 1 e #1\n"          \
    "a.e.2.v 1 e #2\na.e.2.w 1 e #2\na.e.3.v 1 e #3\na.e.3.w 1 e #3\na.w 3 d\n"            \
    "layer b 1\nb.e.0.v 1 e #0\nb.e.0.w 1 e #0\nb.e.1.v 1 e #1\nb.e.1.w 1 e #1\n"          \
    "b.e.2.v 1 e #2\nb.e.2.w 1 e #2\nb.e.3.v 1 e #3\nb.e.3.w 1 e #3\nb.w 3 d\n"

static void
test_experts(void)
{
    given g;

    given_begin(&g, EXPERTS);
    given_tier(&g, BERTHI_TIER_GPU, 18, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    given_plan(&g, "cuda:0: weights 6 cache 2 expert 10 link 384B layers 2 berths 2\n"
               "cpu: weights 16 free 44 layers 0 berths 16\n"
               "a: home 0,  bytes 11 resident 3 link 192B cache 1 missing 8; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 2.00 KiB; 5 "
               "slots for 8 experts, 62.5 % hits if all are as likely\n"
               "  e1@0+1 a.e.0.v e1@1+1 a.e.0.w e1@2+1 a.e.1.v e1@3+1 a.e.1.w e1@4+1 "
               "a.e.2.v e1@5+1 a.e.2.w e1@6+1 a.e.3.v e1@7+1 a.e.3.w 0@0+3 a.w\n"
               "b: home 0,  bytes 11 resident 3 link 192B cache 1 missing 8; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 2.00 KiB; 5 "
               "slots for 8 experts, 62.5 % hits if all are as likely\n"
               "  e1@8+1 b.e.0.v e1@9+1 b.e.0.w e1@10+1 b.e.1.v e1@11+1 b.e.1.w "
               "e1@12+1 b.e.2.v e1@13+1 b.e.2.w e1@14+1 b.e.3.v e1@15+1 b.e.3.w 0@3+3 "
               "b.w\n"
               "all: bytes 22 resident 6 streamed 16 link 384B cuts 0 bound 0 of 0\n"
               "times: pass 0.975 first 0.975 compute 0.6 link 0.375 load 22 host 0.9 "
               "tokens 1025.64 a second\n");
    g.input.tokens = 2;
    given_plan(&g, "cuda:0: weights 6 cache 2 expert 10 link 3 layers 2 berths 2\n"
               "cpu: weights 16 free 44 layers 0 berths 16\n"
               "a: home 0,  bytes 11 resident 3 link 384B cache 1 missing 8; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 2.00 KiB; 5 "
               "slots for 8 experts, 62.5 % hits if all are as likely\n"
               "  e1@0+1 a.e.0.v e1@1+1 a.e.0.w e1@2+1 a.e.1.v e1@3+1 a.e.1.w e1@4+1 "
               "a.e.2.v e1@5+1 a.e.2.w e1@6+1 a.e.3.v e1@7+1 a.e.3.w 0@0+3 a.w\n"
               "b: home 0,  bytes 11 resident 3 link 384B cache 1 missing 8; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 2.00 KiB; 5 "
               "slots for 8 experts, 62.5 % hits if all are as likely\n"
               "  e1@8+1 b.e.0.v e1@9+1 b.e.0.w e1@10+1 b.e.1.v e1@11+1 b.e.1.w "
               "e1@12+1 b.e.2.v e1@13+1 b.e.2.w e1@14+1 b.e.3.v e1@15+1 b.e.3.w 0@3+3 "
               "b.w\n"
               "all: bytes 22 resident 6 streamed 16 link 3 cuts 0 bound 0 of 0\n"
               "times: pass 1.55 first 1.55 compute 0.8 link 0.75 load 22 host 1.4 "
               "tokens 1290.32 a second\n");
    /* Some of them on the disk, and all of them needed. */
    g.input.experts_used = 0;
    g.input.tokens = 1;
    g.tiers[1].budget = 3 * GIVEN_UNIT;
    given_tier(&g, BERTHI_TIER_DISK, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 10 cache 2 expert 6 link 12 layers 2 berths 6\n"
               "cpu: weights 2 free 1 layers 0 berths 2\n"
               "disk: weights 10 free 50 link 10 layers 0 berths 10\n"
               "a: home 0,  bytes 11 resident 5 link 6 cache 1 missing 6; 1.25 KiB on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 1.50 KiB; 3 "
               "slots for 6 experts, 0 % hits if all are as likely\n"
               "  e0@3+1 a.e.0.v e0@4+1 a.e.0.w e2@0+1 a.e.1.v e2@1+1 a.e.1.w e1@0+1 "
               "a.e.2.v e1@1+1 a.e.2.w e2@2+1 a.e.3.v e2@3+1 a.e.3.w 0@0+3 a.w\n"
               "b: home 0,  bytes 11 resident 5 link 6 cache 1 missing 6; 1.25 KiB on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 1.50 KiB; 3 "
               "slots for 6 experts, 0 % hits if all are as likely\n"
               "  e0@8+1 b.e.0.v e0@9+1 b.e.0.w e2@4+1 b.e.1.v e2@5+1 b.e.1.w e2@6+1 "
               "b.e.2.v e2@7+1 b.e.2.w e2@8+1 b.e.3.v e2@9+1 b.e.3.w 0@5+3 b.w\n"
               "all: bytes 22 resident 10 streamed 12 link 12 disk 10 cuts 0 bound 2 "
               "of 0\n"
               "times: pass 6.7 first 6.7 compute 1.2 link 3 disk 5 load 6 host 6.6 "
               "tokens 149.254 a second\n"
               "1.50 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.2 "
               "ms at least");
}

/* One tensor of all experts is brought as any other is: no expert goes without the others. */
static void
test_stacked_experts(void)
{
    given g;

    given_begin(&g, "layer a 0\na.mlp.experts.down 6 d\na.mlp.gate 1 f\n"
                    "layer b 0\nb.mlp.experts.down 6 d\nb.mlp.gate 1 f\n"
                    "layer c 0\nc.mlp.shared_experts.down 6 d\nc.mlp.gate 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 15, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    g.input.slots = 2;
    given_plan(&g, "cuda:0: weights 3 slots 2x of 6 link 18 layers 3 berths 3\n"
               "cpu: weights 18 free 42 layers 0 berths 3\n"
               "a: home 0,  bytes 7 resident 1 link 6 missing 6; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 1.50 KiB; its experts are "
               "stacked in one tensor: streamed whole, chosen or not\n"
               "  1@0+6 a.mlp.experts.down 0@0+1 a.mlp.gate\n"
               "b: home 0,  bytes 7 resident 1 link 6 missing 6; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 1.50 KiB; its experts are "
               "stacked in one tensor: streamed whole, chosen or not\n"
               "  1@6+6 b.mlp.experts.down 0@1+1 b.mlp.gate\n"
               "c: home 0,  bytes 7 resident 1 link 6 missing 6; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 1.50 KiB\n"
               "  1@12+6 c.mlp.shared_experts.down 0@2+1 c.mlp.gate\n"
               "all: bytes 21 resident 3 streamed 18 link 18 cuts 0 bound 1 of 0\n"
               "times: pass 4.5 first 4.85 compute 1.05 link 4.5 load 21 host 4.65 "
               "tokens 222.222 a second\n"
               "1.50 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.05 "
               "ms at least");
    g.tiers[0].budget = 21 * GIVEN_UNIT; /* nothing is said of those that stay */
    given_plan(&g, "cuda:0: weights 21 layers 3 berths 6\n"
               "cpu: free 60 layers 0 berths 0\n"
               "a: home 0,  bytes 7 resident 7; fits on cuda:0\n"
               "  0@0+6 a.mlp.experts.down 0@6+1 a.mlp.gate\n"
               "b: home 0,  bytes 7 resident 7; fits on cuda:0\n"
               "  0@7+6 b.mlp.experts.down 0@13+1 b.mlp.gate\n"
               "c: home 0,  bytes 7 resident 7; fits on cuda:0\n"
               "  0@14+6 c.mlp.shared_experts.down 0@20+1 c.mlp.gate\n"
               "all: bytes 21 resident 21 cuts 0 bound 0 of 0\n"
               "times: pass 1.05 first 1.05 compute 1.05 load 21 tokens 952.381 a "
               "second\n");
}

/* All tiers that there can be, and one more. */
static void
test_tier_limit(void)
{
    static berthi_plan_tier_input tiers[BERTHI_TIER_LIMIT + 1];
    berth_plan *plan;
    berth_error error;
    given g;

    given_begin(&g, TWO_LAYERS);
    for (uint32_t t = 0; t < BERTHI_TIER_LIMIT - 2; t++)
        tiers[t] = (berthi_plan_tier_input){ .tier = { BERTHI_TIER_GPU, t },
                                             .budget = 20 * GIVEN_UNIT,
                                             .link_rate = GIVEN_RATE,
                                             .memory_rate = GIVEN_RATE };
    for (uint32_t t = BERTHI_TIER_LIMIT - 2; t <= BERTHI_TIER_LIMIT; t++) {
        tiers[t] = tiers[0];
        tiers[t].tier.kind = t == BERTHI_TIER_LIMIT - 2 ? BERTHI_TIER_CPU : BERTHI_TIER_DISK;
        tiers[t].tier.number = 0;
        tiers[t].budget = UINT64_MAX;
    }
    g.input.tiers = tiers;
    g.input.tier_count = BERTHI_TIER_LIMIT;
    T_REQUIRE(CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, &error), BERTH_OK));
    CHECK_EQ(plan->summary.tier_count, 66);
    CHECK_EQ(plan->summary.bytes, 12 * GIVEN_UNIT);
    CHECK_STR(plan->tiers[63].name, "cuda:63");
    CHECK_STR(plan->tiers[65].name, "disk");
    berthi_plan_free(plan);
    g.input.tier_count++;
    CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, &error), BERTH_EINVAL);
    g.input.tier_count = 0;
    CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, &error), BERTH_EINVAL);
}

/* Experts of two layers, one behind the other, are two for all that. */
static void
test_neighbours(void)
{
    given g;

    given_begin(
        &g,
        "layer a 0\na.n 1 f\na.e.0 2 e #0\na.f.0 2 e #0\nlayer b 0\nb.e.0 2 e #0\n"
        "b.f.0 2 e #0\nb.f.1 2 e #1\nb.n 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 6, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 5, 0, 2, 5);
    given_tier(&g, BERTHI_TIER_DISK, 60, 0, 2, 5);
    g.input.expert_count = 2;
    g.input.experts_used = 1;
    given_plan(&g, "cuda:0: weights 2 expert 4 link 5 layers 2 berths 2\n"
               "cpu: weights 4 free 1 layers 0 berths 2\n"
               "disk: weights 6 free 54 link 3 layers 0 berths 3\n"
               "a: home 0,  bytes 5 resident 1 link 2 missing 4; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 1.00 KiB; 1 slot for 3 "
               "experts, 0 % hits if all are as likely\n"
               "  0@0+1 a.n e1@0+2 a.e.0 e1@2+2 a.f.0\n"
               "b: home 0,  bytes 7 resident 1 link 3 missing 6; 256 B on cuda:0, the "
               "rest streamed from disk: cuda:0 is short of 1.50 KiB; 1 slot for 3 "
               "experts, 0 % hits if all are as likely\n"
               "  e2@0+2 b.e.0 e2@2+2 b.f.0 e2@4+2 b.f.1 0@1+1 b.n\n"
               "all: bytes 12 resident 2 streamed 10 link 5 disk 3 cuts 0 bound 2 of "
               "0\n"
               "times: pass 2.35 first 2.35 compute 0.35 link 1.25 disk 1.5 load 3 "
               "host 2.25 tokens 425.532 a second\n"
               "1.50 KiB more on cuda:0: nothing is streamed to it, a pass takes 0.35 "
               "ms at least");
}

/* The least room: for what is fixed, and for the experts of one token. */
static void
test_room_for_experts(void)
{
    given g;

    given_begin(&g, EXPERTS);
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    g.input.expert_count = 4;
    g.input.experts_used = 3;
    given_plan(&g, "is short of 2.50 KiB: the smallest change that would do ; 11");
    g.input.tokens = 2;
    given_plan(&g, "is short of 3.00 KiB: the smallest change that would do ; 13");
    /* Any of them may be the largest. */
    g.tensors[3].bytes += GIVEN_UNIT;
    given_plan(&g, "is short of 4.00 KiB: the smallest change that would do ; 17");
    g.tiers[0].budget = 16 * GIVEN_UNIT;
    given_plan(&g, "is short of 256 B: the smallest change that would do ; 17");
}

/* -------------------------------------------------------------------------- ties */

/* The first tensor of all may be the one that shares another's berth. */
static void
test_first_is_tied(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 2 f =1\na.w 2 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 10, 0, 4, 20);
    given_plan(&g, "cuda:0: weights 2 free 8 layers 1 berths 1\n"
               "a: home 0,  bytes 2 resident 2; fits on cuda:0\n"
               "  =0@0+2 a.v 0@0+2 a.w\n"
               "all: bytes 2 resident 2 cuts 0 bound 0 of 0\n"
               "times: pass 0.1 first 0.1 compute 0.1 load 2 tokens 10000 a second\n");
}

static void
test_ties(void)
{
    given g;

    given_begin(
        &g,
        "layer a 0\na.w 3 d\nlayer h 0 tied\nh.u 2 d =2\nh.v 2 d +1\nh.w 3 d =0\n");
    given_tier(&g, BERTHI_TIER_GPU, 9, 0, 1, 10);
    given_plan(&g, "cuda:0: weights 5 scratch 1 free 3 layers 2 berths 2\n"
               "a: home 0,  bytes 3 resident 3; fits on cuda:0\n"
               "  0@0+3 a.w\n"
               "h: home 0,  bytes 2 resident 2; on cuda:0, beside the layer that "
               "shares its weights\n"
               "  =0@3+2 h.u 0@3+2 h.v =0@0+3 h.w\n"
               "all: bytes 5 resident 5 cuts 0 bound 0 of 0\n"
               "times: pass 0.5 first 0.5 compute 0.5 load 5 tokens 2000 a second\n");
    given_tier(&g, BERTHI_TIER_CPU, 90, 0, 1, 10);
    g.tensors[0].tier = 1;
    g.tensors[2].tier = 1;
    given_plan(&g, "cuda:0: slots 2x of 3 free 3 link 5 layers 2 berths 0\n"
               "cpu: weights 5 scratch 1 free 84 layers 0 berths 2\n"
               "a: home 0,  bytes 3 link 3; computed on cuda:0, lies on cpu: pinned\n"
               "  1@0+3 a.w\n"
               "h: home 0,  bytes 2 link 2; computed on cuda:0, lies on cpu: pinned\n"
               "  =1@3+2 h.u 1@3+2 h.v =1@0+3 h.w\n"
               "all: bytes 5 streamed 5 link 5 cuts 0 bound 1 of 0\n"
               "times: pass 5 first 5.2 compute 0.5 link 5 load 5 host 1 tokens 200 a "
               "second\n");
}

/* What is bound to host memory leaves the less room there; what is tied takes none. */
static void
test_room_beside_pins(void)
{
    given g;

    given_begin(&g, "layer a 0\na.n 1 f\na.u 4 d =2 @1\na.v 4 d @1\na.w 4 i\na.x 4 i\n");
    given_tier(&g, BERTHI_TIER_GPU, 5, 0, 1, 10);
    given_tier(&g, BERTHI_TIER_CPU, 8, 0, 1, 10);
    given_tier(&g, BERTHI_TIER_DISK, 50, 0, 1, 10);
    given_plan(&g, "cuda:0: weights 1 slots 1x of 4 link 4 layers 1 berths 1\n"
               "cpu: weights 8 layers 0 berths 2\n"
               "disk: weights 4 free 46 layers 0 berths 1\n"
               "a: home 0,  bytes 13 resident 1 link 4; computed on cuda:0, lies on disk: "
               "pinned\n"
               "  0@0+1 a.n =1@0+4 a.u 1@0+4 a.v 1@4+4 a.w 2@0+4 a.x\n"
               "all: bytes 13 resident 1 streamed 12 link 4 cuts 0 bound 1 of 0\n"
               "times: pass 4.5 first 4.5 compute 0.5 link 4 load 9 host 0.9 tokens 222.222 "
               "a second\n");
    g.tiers[1].budget = 12 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 1 slots 1x of 4 link 4 layers 1 berths 1\n"
               "cpu: weights 12 layers 0 berths 3\n"
               "disk: free 50 layers 0 berths 0\n"
               "a: home 0,  bytes 13 resident 1 link 4; computed on cuda:0, lies on cpu: "
               "pinned\n"
               "  0@0+1 a.n =1@0+4 a.u 1@0+4 a.v 1@4+4 a.w 1@8+4 a.x\n"
               "all: bytes 13 resident 1 streamed 12 link 4 cuts 0 bound 1 of 0\n"
               "times: pass 4.5 first 4.5 compute 0.5 link 4 load 13 host 0.9 tokens 222.222 "
               "a second\n");
}

/* ------------------------------------------------------------ the plan as object */

static void
test_summary(void)
{
    berth_plan *plan;
    given g;

    given_begin(&g, TWO_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 30, 0, 1, 10);
    g.input.summary = (berth_plan_summary){ .is_imitated = 1, .digest = 2, .type = 3,
                                            .dtype = 4, .double_quant = 5, .block_size = 6,
                                            .cache_dtype = 7, .context = 8, .batch = 9 };
    T_REQUIRE(CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK));
    CHECK_EQ(plan->summary.is_imitated, 1);
    CHECK_EQ(plan->summary.digest, 2);
    CHECK_EQ(plan->summary.type, 3);
    CHECK_EQ(plan->summary.dtype, 4);
    CHECK_EQ(plan->summary.double_quant, 5);
    CHECK_EQ(plan->summary.block_size, 6);
    CHECK_EQ(plan->summary.cache_dtype, 7);
    CHECK_EQ(plan->summary.context, 8);
    CHECK_EQ(plan->summary.batch, 9);
    CHECK_EQ(plan->summary.is_proved, 1);
    CHECK_EQ(plan->summary.berth_count, 4);
    berthi_plan_free(plan);
    berthi_plan_free(NULL);
}

/* Of a name as much as there is room for, and its length. */
static void
test_parts_of_names(void)
{
    berth_plan *plan;
    char text[8];
    given g;

    given_begin(&g, "layer a 0\na.b.v 1 f\na.b.w 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 30, 0, 1, 10);
    T_REQUIRE(CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK));
    for (size_t capacity = 0; capacity <= sizeof text; capacity++) {
        memset(text, '#', sizeof text);
        CHECK_EQ(berthi_plan_name(plan, 1, text, capacity), 5);
        if (capacity > 0) {
            const size_t length = capacity <= 5 ? capacity - 1 : 5;

            CHECK_MEM(text, "a.b.w", length);
            CHECK_EQ(text[length], '\0');
        }
        for (size_t i = capacity; i < sizeof text; i++)
            CHECK_EQ(text[i], '#');
    }
    berthi_plan_free(plan);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    given_start();
    T_RUN(test_fits);
    T_RUN(test_idle_device);
    T_RUN(test_cut);
    T_RUN(test_names);
    T_RUN(test_load);
    T_RUN(test_experts);
    T_RUN(test_stacked_experts);
    T_RUN(test_tier_limit);
    T_RUN(test_neighbours);
    T_RUN(test_room_for_experts);
    T_RUN(test_first_is_tied);
    T_RUN(test_ties);
    T_RUN(test_room_beside_pins);
    T_RUN(test_summary);
    T_RUN(test_parts_of_names);
    given_end();
    T_MAIN_END;
}
