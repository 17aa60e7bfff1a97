/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_bound.c - the planner that is told where: pins, maps; and its refusals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/plan.h"
#include "tests/changes.h"
#include "tests/given.h"
#include "tests/own_memory.h"
#include "tests/t.h"
#include "tests/weights.h"

/* -------------------------------------------------------------------------- pins */

/* What stays on a device everywhere else, bound to the host: it is brought. */
static void
test_pinned_away(void)
{
    given g;

    given_begin(&g, "layer a 0\na.n 3 f @1\na.w 2 d\nlayer b 0\nb.w 2 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 7, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 4 slots 1x of 3 link 3 layers 2 berths 2\n"
               "cpu: weights 3 free 57 layers 0 berths 1\n"
               "a: home 0,  bytes 5 resident 2 link 3; computed on cuda:0, lies on "
               "cpu: pinned\n"
               "  1@0+3 a.n 0@0+2 a.w\n"
               "b: home 0,  bytes 2 resident 2; fits on cuda:0\n"
               "  0@2+2 b.w\n"
               "all: bytes 7 resident 4 streamed 3 link 3 cuts 0 bound 1 of 0\n"
               "times: pass 1 first 1.1 compute 0.35 link 0.75 load 7 host 0.95 "
               "tokens 1000 a second\n");
    g.tiers[0].budget = 2 * GIVEN_UNIT;
    given_plan(&g, "is short of 768 B: the smallest change that would do ; 5");
}

static void
test_pins(void)
{
    given g;

    given_begin(
        &g,
        "layer t 0\nt.w 6 i @2\nlayer a 1\na.n 1 f @2\na.v 2 d @2\na.w 4 d\n"
        "layer b 1\nb.n 1 f\nb.v 2 d @1\nb.w 4 d\nlayer c 1\nc.n 1 f @2\nc.w 3 d @3\n"
        "layer d 0\nd.e 1 e #0 @2\nd.f 1 e #0 @3\nd.w 1 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 40, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_GPU, 40, 0, 2, 10);
    given_tier(&g, BERTHI_TIER_CPU, 40, 0, 2, 5);
    given_tier(&g, BERTHI_TIER_DISK, 40, 0, 1, 1);
    g.input.expert_count = 1;
    g.input.experts_used = 1;
    given_plan(&g, "cuda:0: weights 1 cache 1 slots 2x of 4 expert 2 free 28 link 4 "
               "layers 2 berths 1\n"
               "cuda:1: weights 11 cache 2 slots 2x of 3 free 21 link 3 layers 3 "
               "berths 4\n"
               "cpu: weights 11 free 29 layers 0 berths 5\n"
               "disk: weights 4 free 36 link 3 layers 0 berths 2\n"
               "t: home 1,  bytes 6; computed on cuda:1, lies on cpu: pinned\n"
               "  2@0+6 t.w\n"
               "a: home 1,  bytes 7 resident 4 link 3 cache 1; computed on cuda:1, "
               "lies on cpu: pinned\n"
               "  2@6+1 a.n 2@7+2 a.v 1@0+4 a.w\n"
               "b: home 1,  bytes 7 resident 7 cache 1; computed on cuda:1, lies on "
               "cuda:1: pinned\n"
               "  1@4+1 b.n 1@5+2 b.v 1@7+4 b.w\n"
               "c: home 0,  bytes 4 link 4 cache 1; computed on cuda:0, lies on disk: "
               "pinned\n"
               "  2@9+1 c.n 3@0+3 c.w\n"
               "d: home 0,  bytes 3 resident 1; computed on cuda:0, lies on disk: "
               "pinned; 1 slot for 1 expert, 100 % hits if all are as likely\n"
               "  e2@10+1 d.e e3@3+1 d.f 0@0+1 d.w\n"
               "all: bytes 27 resident 12 streamed 15 link 7 disk 3 cuts 1 bound 2 of "
               "1\n"
               "times: pass 3 first 3.5 compute 2 link 1.5 disk 3 load 23 host 5.8 "
               "tokens 333.333 a second\n");
}

static void
test_pins_refused(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 1 d @0\na.w 1 d @1\n");
    given_tier(&g, BERTHI_TIER_GPU, 40, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 40, 0, 1, 1);
    given_plan(&g, "is pinned to two devices: a layer is computed on one");
    g.tensors[0].tier = 1;
    given_plan(&g, "cuda:0: free 40 layers 0 berths 0\n"
               "cuda:1: weights 2 free 38 layers 1 berths 2\n"
               "a: home 1,  bytes 2 resident 2; computed on cuda:1, lies on cuda:1: "
               "pinned\n"
               "  1@0+1 a.v 1@1+1 a.w\n"
               "all: bytes 2 resident 2 cuts 0 bound 0 of 0\n"
               "times: pass 2 first 2 compute 2 load 2 tokens 500 a second\n");
    /* Fixed: more than there is, by one unit. */
    g.tiers[1].budget = GIVEN_UNIT;
    given_plan(&g, "is short of 256 B: the smallest change that would do ; 2");
    g.tiers[1].budget = 2 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: free 40 layers 0 berths 0\n"
               "cuda:1: weights 2 layers 1 berths 2\n"
               "a: home 1,  bytes 2 resident 2; computed on cuda:1, lies on cuda:1: "
               "pinned\n"
               "  1@0+1 a.v 1@1+1 a.w\n"
               "all: bytes 2 resident 2 cuts 0 bound 0 of 0\n"
               "times: pass 2 first 2 compute 2 load 2 tokens 500 a second\n");
}

/* -------------------------------------------------------------------------- maps */

static void
test_mapped(void)
{
    static const char plan[] =
        "cuda:0: weights 6 cache 3 slots 1x of 4 link 7 layers 4 berths 2\n"
        "cuda:1: weights 7 cache 1 free 32 layers 1 berths 3\n"
        "cpu: weights 7 free 33 layers 0 berths 2\n"
        "disk: weights 1 free 39 layers 0 berths 1\n"
        "a: home 1,  bytes 5 resident 5 cache 1; computed on cuda:1, lies on "
        "cuda:1: the device map says so\n"
        "  1@0+1 a.u 0@0+2 a.v 1@1+2 a.w\n"
        "b: home 0,  bytes 4 link 4 cache 2; computed on cuda:0, lies on cpu: "
        "the device map says so\n"
        "  2@0+4 b.w\n"
        "c: home 0,  bytes 4 link 3 cache 1; computed on cuda:0, lies on disk: "
        "the device map says so\n"
        "  2@4+3 c.v 3@0+1 c.w\n"
        "e: home 0, ; computed on cuda:0, lies on cuda:0: the device map says "
        "so\n"
        " \n"
        "d: home 0,  bytes 8 resident 8; computed on cuda:0, lies on cuda:1: "
        "the device map says so\n"
        "  0@2+4 d.v 1@3+4 d.w\n"
        "all: bytes 21 resident 13 streamed 8 link 7 cuts 1 bound 1 of 0\n"
        "times: pass 2.25 first 2.65 compute 1.5 link 1.75 load 20 host 2.9 "
        "tokens 444.444 a second\n";
    given g;

    given_begin(
        &g,
        "layer a 1\na.u 1 d @1\na.v 2 d @0\na.w 2 d @1\nlayer b 2\nb.w 4 d @2\n"
        "layer c 1\nc.v 3 f @2\nc.w 1 i @3\nlayer e 0\nlayer d 0\nd.v 4 d @0\nd.w 4 d @1\n");
    given_tier(&g, BERTHI_TIER_GPU, 12, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_GPU, 40, 0, 2, 10);
    given_tier(&g, BERTHI_TIER_CPU, 40, 0, 2, 5);
    given_tier(&g, BERTHI_TIER_DISK, 40, 0, 1, 1);
    g.input.is_mapped = true;
    given_plan(&g, plan);
    g.tiers[0].budget = 5 * GIVEN_UNIT; /* followed all the same */
    given_plan(&g, plan);
}

/* ---------------------------------------------------------------------- refusals */

static void
test_no_fit(void)
{
    given g;

    given_begin(&g, GIVEN_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 20, 0, 4, 20);
    g.tiers[0].reserve_share = 200000000;
    given_plan(&g, "is short of 6.25 KiB: the smallest change that would do ; 45");
    given_tier(&g, BERTHI_TIER_CPU, 10, 0, 4, 20);
    given_plan(&g, "is short of 4.00 KiB: the smallest change that would do ; 26");
    g.input.no_offload = true;
    given_plan(&g, "is short of 6.25 KiB: the smallest change that would do ; 45");
    /* Enough for a second device, which has the larger part. */
    given_begin(&g, GIVEN_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 12, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_GPU, 14, 0, 4, 20);
    given_plan(&g, "is short of 2.50 KiB: the smallest change that would do ; 24");
    /* The host is what lacks least; the disk is no help where nothing may go there. */
    g.input.tier_count = 1;
    given_tier(&g, BERTHI_TIER_CPU, 9, 0, 4, 20);
    given_plan(&g, "is short of 4.50 KiB: the smallest change that would do ; 30");
    given_tier(&g, BERTHI_TIER_DISK, 11, 0, 4, 20);
    given_plan(&g, "is short of 3.00 KiB: the smallest change that would do ; 24");
    given_tier(&g, BERTHI_TIER_DISK, 12, 0, 4, 20);
    g.tiers[2] = g.tiers[3];
    g.input.tier_count = 3;
    given_plan(&g, "is short of 2.50 KiB: the smallest change that would do ; 22");
    g.input.no_offload = true;
    given_plan(&g, "is short of 6.00 KiB: the smallest change that would do ; 36");
    /* More of the device is not all that is needed: what is bound to the disk is too much. */
    given_begin(&g, "layer a 0\na.n 6 f\na.v 6 d @1\n");
    given_tier(&g, BERTHI_TIER_GPU, 4, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_DISK, 2, 0, 4, 20);
    given_plan(&g, "is short of 2.00 KiB and disk of 1.00 KiB: the smallest changes that "
                   "together would do ; 12");
}

/* Layers take turns in one slot where two have no room, unless more are asked for. */
static void
test_slots_that_fit(void)
{
    given g;

    given_begin(&g, "layer a 0\na.n 1 f\na.w 6 d\nlayer b 0\nb.w 6 d\n"
                    "layer c 0\nc.w 6 d\nlayer d 0\nd.w 6 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 7, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 1 slots 1x of 6 link 24 layers 4 berths 1\n"
               "cpu: weights 24 free 36 layers 0 berths 4\n"
               "a: home 0,  bytes 7 resident 1 link 6 missing 6; 256 B on cuda:0, the rest "
               "streamed from cpu: cuda:0 is short of 1.50 KiB\n"
               "  0@0+1 a.n 1@0+6 a.w\n"
               "b: home 0,  bytes 6 link 6 missing 6; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 1.50 KiB\n"
               "  1@6+6 b.w\n"
               "c: home 0,  bytes 6 link 6 missing 6; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 1.50 KiB\n"
               "  1@12+6 c.w\n"
               "d: home 0,  bytes 6 link 6 missing 6; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 1.50 KiB\n"
               "  1@18+6 d.w\n"
               "all: bytes 25 resident 1 streamed 24 link 24 cuts 0 bound 1 of 0\n"
               "times: pass 7.25 first 7.25 compute 1.25 link 6 load 25 host 6.05 tokens "
               "137.931 a second\n"
               "4.50 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.25 ms at "
               "least");
    g.input.slots = 2;
    given_plan(&g, "is short of 1.50 KiB: the smallest change that would do ; 13");
    g.input.slots = 3;
    given_plan(&g, "is short of 3.00 KiB: the smallest change that would do ; 19");
    g.input.slots = 1;
    g.tiers[0].budget = 6 * GIVEN_UNIT;
    given_plan(&g, "is short of 256 B: the smallest change that would do ; 7");
}

/* Room to quantize what is streamed now is no room for it: with so much more it stays. */
static void
test_advice_counts_scratch(void)
{
    given g;

    given_begin(&g, "layer a 0\na.w 6 d +2\nlayer b 0\nb.w 6 d +2\n");
    given_tier(&g, BERTHI_TIER_GPU, 9, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    g.input.slots = 1;
    given_plan(&g, "cuda:0: slots 1x of 6 free 3 link 12 layers 2 berths 0\n"
               "cpu: weights 12 scratch 2 free 46 layers 0 berths 2\n"
               "a: home 0,  bytes 6 link 6 missing 5; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 1.25 KiB\n"
               "  1@0+6 a.w\n"
               "b: home 0,  bytes 6 link 6 missing 5; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 1.25 KiB\n"
               "  1@6+6 b.w\n"
               "all: bytes 12 streamed 12 link 12 cuts 0 bound 1 of 0\n"
               "times: pass 3.6 first 3.6 compute 0.6 link 3 load 12 host 3 tokens 277.778 a "
               "second\n"
               "1.25 KiB more on cuda:0: nothing is streamed to it, a pass takes 0.6 ms at "
               "least");
    g.tiers[0].budget += 5 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 12 scratch 2 layers 2 berths 2\n"
               "cpu: free 60 layers 0 berths 0\n"
               "a: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@0+6 a.w\n"
               "b: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@6+6 b.w\n"
               "all: bytes 12 resident 12 cuts 0 bound 0 of 0\n"
               "times: pass 0.6 first 0.6 compute 0.6 load 12 tokens 1666.67 a second\n");
}

/* A device keeps whole tensors: what of it no tensor fills is asked of host memory. */
static void
test_host_lacks_a_tensor(void)
{
    given g;

    given_begin(&g, "layer a 0\na.w 6 d\nlayer b 0\nb.w 6 d\nlayer c 0\nc.w 6 d\n"
                    "layer d 0\nd.w 6 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 15, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 21, 0, 2, 5);
    g.input.slots = 2;
    given_plan(&g, "is short of 768 B for what no device has room for: give it so much more, "
                   "or a disk ; 24");
    g.input.staging = 8 * GIVEN_UNIT; /* an eighth of host memory, at most */
    g.tiers[1].budget = 23 * GIVEN_UNIT;
    given_plan(&g, "is short of 1.25 KiB for what no device has room for: give it so much "
                   "more, or a disk ; 28");
    g.tiers[1].budget = 28 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: slots 2x of 6 free 3 link 24 layers 4 berths 0\n"
               "cpu: weights 24 staging 3 free 1 layers 0 berths 4\n"
               "a: home 0,  bytes 6 link 6 missing 3; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 768 B\n"
               "  1@0+6 a.w\n"
               "b: home 0,  bytes 6 link 6 missing 3; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 768 B\n"
               "  1@6+6 b.w\n"
               "c: home 0,  bytes 6 link 6 missing 3; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 768 B\n"
               "  1@12+6 c.w\n"
               "d: home 0,  bytes 6 link 6 missing 3; 0 B on cuda:0, the rest streamed from "
               "cpu: cuda:0 is short of 768 B\n"
               "  1@18+6 d.w\n"
               "all: bytes 24 streamed 24 link 24 cuts 0 bound 1 of 0\n"
               "times: pass 6 first 6.3 compute 1.2 link 6 load 24 host 6 tokens 166.667 a "
               "second\n"
               "2.25 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.2 ms at "
               "least");
}

/* Host memory and disk have enough together: that is no help for what is bound to one. */
static void
test_bound_to_too_little(void)
{
    given g;

    given_begin(&g, "layer a 0\na.w 6 d @2\nlayer b 0\nb.w 6 d @2\nlayer c 0\nc.w 6 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 60, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_tier(&g, BERTHI_TIER_DISK, 10, 0, 1, 1);
    given_plan(&g, "is short of 512 B for what is bound to it, or fits nowhere else: give it so "
                   "much more ; 12");
    g.tensors[0].tier = 1;
    g.tensors[1].tier = 1;
    g.tiers[1].budget = 10 * GIVEN_UNIT;
    g.tiers[2].budget = GIVEN_NONE;
    given_plan(&g, "is short of 512 B for what is bound to it: give it so much more ; 12");
    /* Nor is it for whole tensors, of which none fits into what both have left. */
    given_begin(&g, "layer a 0\na.w 6 d\nlayer b 0\nb.w 6 d\nlayer c 0\nc.w 6 d\n"
                    "layer d 0\nd.w 6 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 6, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 14, 0, 2, 5);
    given_tier(&g, BERTHI_TIER_DISK, 11, 0, 1, 1);
    g.input.slots = 1;
    given_plan(&g, "is short of 256 B for what is bound to it, or fits nowhere else: give it so "
                   "much more ; 12");
}

/* What counts is what has to be given: a reserve that grows with a budget, too. */
static void
test_smallest_change_is_of_budgets(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 16 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 26, 0, 4, 20);
    g.tiers[0].reserve_share = 500000000; /* lacks 3, which take 6 */
    given_plan(&g, "is short of 1.50 KiB: the smallest change that would do ; 32");
    given_tier(&g, BERTHI_TIER_GPU, 12, 0, 4, 20); /* lacks 4 */
    given_plan(&g, "is short of 1.00 KiB: the smallest change that would do ; 16");
    g.tiers[1].budget = 9 * GIVEN_UNIT; /* 7 */
    given_plan(&g, "is short of 1.50 KiB: the smallest change that would do ; 32");
}

/* Bytes that are kept free are as many with a larger budget. */
static void
test_smallest_change_with_a_reserve_of_bytes(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 16 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 26, 13, 4, 20);
    given_plan(&g, "is short of 768 B: the smallest change that would do ; 29");
    g.tiers[0].budget = 4 * GIVEN_UNIT; /* does not even hold what is kept free */
    given_plan(&g, "is short of 6.25 KiB: the smallest change that would do ; 29");
    g.tiers[0].reserve_share = 500000000;
    given_plan(&g, "is short of 13.50 KiB: the smallest change that would do ; 58");
    g.tiers[0].budget = 0;
    given_plan(&g, "is short of 14.50 KiB: the smallest change that would do ; 58");
    g.tiers[0].reserve_share = 1000000000;
    given_plan(&g, "all that there is of devices is kept free: reserve less");
    given_tier(&g, BERTHI_TIER_GPU, 0, 0, 4, 20); /* this one could be large enough */
    given_plan(&g, "is short of 4.00 KiB: the smallest change that would do ; 16");
}

/* Scratch lies beside what layers find, and rings take a part of host memory. */
static void
test_smallest_change_beside_others(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 16 f +5\n");
    given_tier(&g, BERTHI_TIER_GPU, 2, 0, 4, 20);
    given_plan(&g, "is short of 4.75 KiB: the smallest change that would do ; 21");
    given_begin(&g, "layer t 0\nt.w 60 i @1\nlayer a 0\na.w 4 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 10, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 40, 0, 4, 20);
    g.input.staging = 100 * GIVEN_UNIT; /* an eighth, rounded down: 8 of 68 */
    given_plan(&g, "is short of 7.00 KiB: the smallest change that would do ; 68");
}

/* Rings of two GPUs that are 2^64 bytes are not none: an eighth, as of any that are too large. */
static void
test_rings_do_not_wrap_around(void)
{
    static const uint64_t rings[] = { 100 * GIVEN_UNIT, UINT64_C(1) << 63, UINT64_MAX };
    given g;

    for (uint32_t i = 0; i < 3; i++) {
        given_begin(&g, "layer t 0\nt.w 60 i @2\nlayer a 0\na.w 4 f\n");
        given_tier(&g, BERTHI_TIER_GPU, 10, 0, 4, 20);
        given_tier(&g, BERTHI_TIER_GPU, 10, 0, 4, 20);
        given_tier(&g, BERTHI_TIER_CPU, 40, 0, 4, 20);
        g.input.staging = rings[i];
        given_plan(&g, "is short of 7.00 KiB: the smallest change that would do ; 68");
    }
}

typedef struct draws {
    uint64_t state;
} draws;

static uint64_t
below(draws *d, uint64_t end)
{
    return weights_random(&d->state) % end;
}

static void
draw_tier(draws *d, given *g, int32_t kind)
{
    static const uint64_t shares[] = { 0, 0, 100000000, 333333333, 500000000 };
    berthi_plan_tier_input *const tier = &g->tiers[g->input.tier_count];

    /* One draw a statement: compilers differ in the order of arguments. */
    const uint64_t budget = below(d, 40);
    const uint64_t kept = below(d, 3) == 0 ? below(d, 9) : 0;
    const uint64_t last = 1 + below(d, 4);

    given_tier(g, kind, budget, kept, last, 20);
    tier->reserve_share = shares[below(d, 5)];
    if (below(d, 2) != 0)
        tier->budget += below(d, GIVEN_UNIT);
    if (below(d, 2) != 0)
        tier->reserve_bytes += below(d, GIVEN_UNIT);
}

static void
draw_model(draws *d, given *g)
{
    static const char kinds[] = "fddi";
    const uint64_t layers = 1 + below(d, 4);
    char text[1024];
    size_t used = 0;

    for (uint64_t l = 0; l < layers; l++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "layer l%u %u\n",
                                 (unsigned)l, (unsigned)below(d, 3));
        for (uint64_t i = 1 + below(d, 3); i > 0; i--) {
            const unsigned units = 1 + (unsigned)below(d, 9);
            const char kind = kinds[below(d, 4)];
            const unsigned more = (unsigned)below(d, 3);

            used += (size_t)snprintf(text + used, sizeof text - used, "l%u.%u %u %c +%u\n",
                                     (unsigned)l, (unsigned)i, units, kind, more);
        }
    }
    given_begin(g, text);
    g->input.activations = below(d, 3) * GIVEN_UNIT;
    g->input.staging = below(d, 3) * 8 * GIVEN_UNIT;
    for (uint64_t t = 1 + below(d, 2); t > 0; t--)
        draw_tier(d, g, BERTHI_TIER_GPU);
    if (below(d, 4) != 0) {
        if (below(d, 2) == 0) /* only host memory can be short of it */
            g->tensors[below(d, g->input.tensor_count)].tier = g->input.tier_count;
        draw_tier(d, g, BERTHI_TIER_CPU);
    }
    if (below(d, 6) == 0)
        draw_tier(d, g, BERTHI_TIER_DISK);
}

/* False: `out_has_change` says whether one was named that would do. */
static bool
is_planned(const given *g, bool *out_has_change, berth_error *error)
{
    berth_plan *plan;
    const berth_status status =
        berthi_plan_make(given_context, &g->input, &plan, error);

    berthi_plan_free(plan);
    *out_has_change =
        status != BERTH_OK && strstr(error->message, "smallest change ") != NULL;
    return status == BERTH_OK;
}

/* What is said would do does, and less than that, by what rings are rounded to, does not. */
static void
test_smallest_change_does(void)
{
    draws d = { 5 };
    uint32_t refused = 0;
    uint32_t on_host = 0;

    for (uint32_t i = 0; i < 3000; i++) {
        berthi_plan_tier_input *tier;
        berth_error error;
        uint64_t expected;
        uint64_t slack = GIVEN_UNIT;
        bool has_change;
        given g;

        draw_model(&d, &g);
        if (is_planned(&g, &has_change, &error) || !has_change)
            continue;
        refused++;
        expected = error.expected;
        tier = &g.tiers[strcmp(error.tensor, "cuda:1") == 0];
        if (strcmp(error.tensor, "cpu") == 0) {
            while (tier->tier.kind != BERTHI_TIER_CPU)
                tier++;
            on_host++;
            slack = 3 * GIVEN_UNIT;
        }
        CHECK_EQ(error.actual, tier->budget);
        tier->budget = expected;
        if (!CHECK(is_planned(&g, &has_change, &error)))
            T_NOTE("case %u", i);
        if (expected < error.actual + slack)
            continue;
        tier->budget = expected - slack;
        if (!CHECK(!is_planned(&g, &has_change, &error)))
            T_NOTE("case %u", i);
    }
    T_NOTE("%u refused, %u for host memory", refused, on_host);
    CHECK_GT(refused, 1000);
    CHECK_GT(on_host, 40);
}

static void
read_changes(const given *g, const berth_error *error, uint64_t *raise)
{
    for (uint32_t t = 0; t < g->input.tier_count; t++) {
        char name[BERTHI_TIER_NAME];

        raise[t] = changes_of(error, berthi_tier_name(&g->tiers[t].tier, name));
    }
}

static bool
is_planned_with(const given *asked, const uint64_t *raise, uint32_t tier, uint64_t less)
{
    given g = *asked;
    berth_error error;
    bool has_change;

    g.input.tiers = g.tiers;
    g.input.tensors = g.tensors;
    g.input.layers = g.layers;
    for (uint32_t t = 0; t < g.input.tier_count; t++)
        g.tiers[t].budget += raise[t];
    g.tiers[tier].budget -= less;
    return is_planned(&g, &has_change, &error);
}

/* Several that are short are told together: so much does, and nothing less of any of them. */
static void
test_smallest_changes_do(void)
{
    draws d = { 6 };
    uint32_t refused = 0;

    for (uint32_t i = 0; i < 6000; i++) {
        uint64_t raise[BERTHI_TIER_LIMIT];
        uint32_t changes = 0;
        berth_error error;
        bool has_change;
        given g;

        draw_model(&d, &g);
        if (is_planned(&g, &has_change, &error) || !changes_are_several(&error))
            continue;
        refused++;
        read_changes(&g, &error, raise);
        if (!CHECK(is_planned_with(&g, raise, 0, 0)))
            T_NOTE("case %u", i);
        for (uint32_t t = 0; t < g.input.tier_count; t++) {
            const uint64_t slack =
                g.tiers[t].tier.kind == BERTHI_TIER_CPU ? 3 * GIVEN_UNIT : GIVEN_UNIT;

            changes += raise[t] > 0;
            if (raise[t] > slack && !CHECK(!is_planned_with(&g, raise, t, slack)))
                T_NOTE("case %u: %s: %s", i, error.tensor, error.message);
        }
        CHECK_GT(changes, 1);
    }
    T_NOTE("%u refused", refused);
    CHECK_GT(refused, 30);
}

static void *
count_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    ++*(uint32_t *)user;
    return own_alloc(NULL, bytes, alignment, purpose);
}

/* Each search allocates: few searches say what 64 devices lack, no two of them alike. */
static void
test_refusal_of_many_devices(void)
{
    static berthi_plan_tier_input tiers[BERTHI_HOME_DEVICES];
    uint32_t calls[2] = { 0, 0 };
    given g;

    for (uint32_t turn = 0; turn < 2; turn++) {
        berth_context_options options;
        berth_allocator allocator = { .user = &calls[turn], .alloc = count_alloc,
                                      .free = own_free };
        berth_context *context = NULL;
        berth_plan *plan;
        berth_error error;

        given_begin(&g, "layer a 0\na.v 99000 f\nlayer b 0\nb.v 99000 f\n");
        given_tier(&g, BERTHI_TIER_GPU, 1, 0, 4, 20);
        g.input.tiers = tiers;
        g.input.tier_count = turn == 0 ? 1 : BERTHI_HOME_DEVICES;
        for (uint32_t d = 0; d < g.input.tier_count; d++) {
            tiers[d] = g.tiers[0];
            tiers[d].tier.number = d;
            tiers[d].budget = (1 + d) * GIVEN_UNIT;
        }
        berth_context_options_init(&options);
        options.allocator = &allocator;
        T_REQUIRE(CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK));
        CHECK_EQ(berthi_plan_make(context, &g.input, &plan, &error), BERTH_ENOFIT);
        CHECK_STR(error.tensor, turn == 0 ? "cuda:0" : "cuda:63");
        CHECK_EQ(error.expected, 198000 * GIVEN_UNIT);
        berth_context_destroy(context);
    }
    T_NOTE("%u allocations for one device, %u for 64", calls[0], calls[1]);
    CHECK_LT(calls[1], 8 * calls[0]);
}

/* A layer on each device, all short of as much but the last: the message has room for some. */
static void
test_many_that_are_short(void)
{
    static berthi_plan_tier_input tiers[BERTHI_HOME_DEVICES];
    const uint32_t counts[] = { 3, 14, BERTHI_HOME_DEVICES / 2 };
    given g;

    for (uint32_t turn = 0; turn < 3; turn++) {
        char model[2048];
        size_t length = 0;
        berth_plan *plan;
        berth_error error;

        for (uint32_t d = 0; d < counts[turn]; d++)
            length += (size_t)snprintf(model + length, sizeof model - length,
                                       "layer l%u 0\nl%u.v %u f @%u\n", d, d,
                                       d + 1 < counts[turn] ? 5 : 9, d);
        given_begin(&g, model);
        given_tier(&g, BERTHI_TIER_GPU, 1, 0, 4, 20);
        g.input.tiers = tiers;
        g.input.tier_count = counts[turn];
        for (uint32_t d = 0; d < counts[turn]; d++) {
            tiers[d] = g.tiers[0];
            tiers[d].tier.number = d;
        }
        CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, &error), BERTH_ENOFIT);
        CHECK_STR(error.tensor, "cuda:0");
        CHECK_EQ(error.expected, 5 * GIVEN_UNIT);
        if (turn == 0)
            CHECK_STR(error.message,
                      "is short of 1.00 KiB, cuda:1 of 1.00 KiB and cuda:2 of 2.00 KiB: the "
                      "smallest changes that together would do");
        CHECK_CONTAINS(error.message, turn == 2 ? " others: the smallest changes that together "
                                                  "would do"
                                                : " of 2.00 KiB: the smallest changes");
    }
}

/* Where what each tier needs does not depend on the others, all that are short are told. */
static void
test_several(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 4 f @0\na.w 9 i @2\nlayer b 0\nb.v 6 f @1\nb.w 3 i @3\n");
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 6, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 1, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_DISK, 1, 0, 1, 1);
    given_plan(&g, "is short of 768 B, cpu of 2.00 KiB and disk of 512 B: the smallest changes "
                   "that together would do ; 4");
    g.tiers[0].budget = 4 * GIVEN_UNIT;
    given_plan(&g, "is short of 2.00 KiB and disk of 512 B: the smallest changes that together "
                   "would do ; 9");
    g.tiers[3].budget = 3 * GIVEN_UNIT;
    given_plan(&g, "is short of 2.00 KiB: the smallest change that would do ; 9");
    g.tiers[2].budget = 9 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 4 layers 1 berths 1\ncuda:1: weights 6 layers 1 berths 1\n"
                   "cpu: weights 9 layers 0 berths 1\ndisk: weights 3 layers 0 berths 1\n"
                   "a: home 0,  bytes 13 resident 4; computed on cuda:0, lies on cpu: pinned\n"
                   "  0@0+4 a.v 2@0+9 a.w\n"
                   "b: home 1,  bytes 9 resident 6; computed on cuda:1, lies on disk: pinned\n"
                   "  1@0+6 b.v 3@0+3 b.w\n"
                   "all: bytes 22 resident 10 streamed 12 cuts 1 bound 0 of 0\n"
                   "times: pass 10 first 10 compute 10 load 19 tokens 100 a second\n");
    /* What one of them gets the other does not need. */
    given_begin(&g, "layer a 0\na.v 4 f @0\nlayer b 0\nb.v 6 f @1\nlayer c 0\nc.v 3 f\n");
    given_tier(&g, BERTHI_TIER_GPU, 2, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 1, 1);
    given_plan(&g, "is short of 512 B and cuda:1 of 1.25 KiB at least, and that is not all: give "
                   "more to several ; 4");
    /* No budget of the host is large enough. */
    given_begin(&g, "layer a 0\na.v 4 f @0\na.w 9 i @1\nlayer b 0\nb.v 6 f @2\n");
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 8, 0, 1, 1);
    g.tiers[1].reserve_share = BERTHI_WHOLE;
    given_tier(&g, BERTHI_TIER_DISK, 1, 0, 1, 1);
    given_plan(&g, "no single tier can be large enough: give more to several");
}

static void
test_impossible(void)
{
    given g;

    given_begin(&g, "layer a 0\na.v 4 f @0\nlayer b 0\nb.v 4 f @1\n");
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 1, 1);
    given_plan(&g, "is short of 768 B and cuda:1 of 768 B: the smallest changes that together "
                   "would do ; 4");
    g.input.tier_count = 0;
    given_plan(&g, "argument `max_memory` names no tier");
    g.input.tier_count = BERTHI_TIER_LIMIT + 1;
    given_plan(&g, "argument `max_memory` names no tier");
    g.input.tier_count = 1;
    g.tiers[0].tier.kind = BERTHI_TIER_DISK;
    given_plan(&g, "argument `max_memory` names no device that computes: a GPU, or cpu");
    g.input.layer_count = 0;
    given_plan(&g, "a model of 0 layers cannot be planned");
    g.input.layer_count = BERTHI_PLAN_LAYERS + 1;
    given_plan(&g, "a model of 65536 layers cannot be planned");
}

/* A plan with more could not be read. */
static void
test_largest_parts(void)
{
    static const char too_many[] = "2^56 bytes and more of what sequences need cannot be "
                                   "planned: take shorter or fewer ones";
    given g;

    given_begin(&g, "layer a 0\na.v 4 f\nlayer b 0\nb.v 4 f\n");
    given_tier(&g, BERTHI_TIER_CPU, 1, 0, 1, 1);
    g.tiers[0].budget = UINT64_MAX;
    g.input.activations = BERTHI_PLAN_PART;
    given_plan(&g, too_many);
    g.input.activations = 0;
    g.layers[0].cache = g.layers[1].cache = BERTHI_PLAN_PART / 2;
    given_plan(&g, too_many);
    g.layers[0].cache = g.layers[1].cache = 0;
    g.tensors[0].bytes = g.tensors[1].bytes = BERTHI_PLAN_PART / 2;
    given_plan(&g, "weights of 2^56 bytes and more cannot be planned");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    given_start();
    T_RUN(test_pinned_away);
    T_RUN(test_pins);
    T_RUN(test_pins_refused);
    T_RUN(test_mapped);
    T_RUN(test_no_fit);
    T_RUN(test_slots_that_fit);
    T_RUN(test_advice_counts_scratch);
    T_RUN(test_host_lacks_a_tensor);
    T_RUN(test_bound_to_too_little);
    T_RUN(test_smallest_change_is_of_budgets);
    T_RUN(test_smallest_change_with_a_reserve_of_bytes);
    T_RUN(test_smallest_change_beside_others);
    T_RUN(test_rings_do_not_wrap_around);
    T_RUN(test_smallest_change_does);
    T_RUN(test_smallest_changes_do);
    T_RUN(test_refusal_of_many_devices);
    T_RUN(test_several);
    T_RUN(test_many_that_are_short);
    T_RUN(test_impossible);
    T_RUN(test_largest_parts);
    given_end();
    T_MAIN_END;
}
