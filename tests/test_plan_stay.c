/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_stay.c - the planner where not all fits: what stays, what goes, where to. */
#include <stdio.h>
#include <string.h>

#include "placement/plan.h"
#include "tests/fault.h"
#include "tests/given.h"
#include "tests/t.h"

/* ---------------------------------------------------------------------- streamed */

static void
test_streamed(void)
{
    static const char plan[] =
        "cuda:0: reserve 2 needed 1 weights 15 cache 3 activations 1 slots 1x "
        "of 4 link 12 layers 5 berths 7\n"
        "cpu: reserve 1 weights 18 staging 2 free 39 layers 0 berths 4\n"
        "t: home 0,  bytes 6 missing 6; in cpu: rows are fetched one by one, "
        "cuda:0 keeps its room for layers\n"
        "  1@0+6 t.w\n"
        "a: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
        "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
        "  0@0+1 a.n 0@1+2 a.v 1@6+4 a.w\n"
        "b: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
        "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
        "  0@3+1 b.n 0@4+2 b.v 1@10+4 b.w\n"
        "c: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
        "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
        "  0@6+1 c.n 0@7+2 c.v 1@14+4 c.w\n"
        "h: home 0,  bytes 6 resident 6; fits on cuda:0\n"
        "  0@9+6 h.w\n"
        "all: bytes 33 resident 15 streamed 18 link 12 cuts 0 bound 1 of 0\n"
        "times: pass 4.2 first 4.5 compute 1.5 link 3 load 33 host 3.9 tokens "
        "238.095 a second\n"
        "2.00 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.5 "
        "ms at least";
    given g;

    given_begin(&g, GIVEN_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 25, 2, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 1, 2, 5);
    g.input.activations = GIVEN_UNIT;
    g.input.runtime = GIVEN_UNIT;
    g.input.staging = 2 * GIVEN_UNIT;
    given_plan(&g, plan);
    g.input.slots = 1;
    given_plan(&g, plan);
    /* The host has too little room for the rest, and there is a disk. */
    g.input.slots = 0;
    g.tiers[1].budget = 12 * GIVEN_UNIT;
    given_tier(&g, BERTHI_TIER_DISK, GIVEN_NONE, 0, 1, 1);
    given_plan(&g, "cuda:0: reserve 2 needed 1 weights 15 cache 3 activations 1 slots 1x "
               "of 4 link 12 layers 5 berths 7\n"
               "cpu: reserve 1 weights 10 staging 1 layers 0 berths 2\n"
               "disk: weights 8 free inf link 8 layers 0 berths 2\n"
               "t: home 0,  bytes 6 missing 6; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 1.00 KiB\n"
               "  0@0+1 a.n 0@1+2 a.v 2@0+4 a.w\n"
               "b: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  0@3+1 b.n 0@4+2 b.v 1@6+4 b.w\n"
               "c: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 1.00 KiB\n"
               "  0@6+1 c.n 0@7+2 c.v 2@4+4 c.w\n"
               "h: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@9+6 h.w\n"
               "all: bytes 33 resident 15 streamed 18 link 12 disk 8 cuts 0 bound 2 "
               "of 0\n"
               "times: pass 8 first 8.7 compute 1.5 link 3 disk 8 load 25 host 10.3 "
               "tokens 125 a second\n"
               "2.00 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.5 "
               "ms at least");
    g.tiers[2].budget = 100 * GIVEN_UNIT;
    g.tiers[1].budget = GIVEN_NONE;
    given_plan(&g, "cuda:0: reserve 2 needed 1 weights 15 cache 3 activations 1 slots 1x "
               "of 4 link 12 layers 5 berths 7\n"
               "cpu: reserve 1 weights 18 staging 2 free inf layers 0 berths 4\n"
               "disk: free 100 layers 0 berths 0\n"
               "t: home 0,  bytes 6 missing 6; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  0@0+1 a.n 0@1+2 a.v 1@6+4 a.w\n"
               "b: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  0@3+1 b.n 0@4+2 b.v 1@10+4 b.w\n"
               "c: home 0,  bytes 7 resident 3 link 4 cache 1 missing 4; 768 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  0@6+1 c.n 0@7+2 c.v 1@14+4 c.w\n"
               "h: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@9+6 h.w\n"
               "all: bytes 33 resident 15 streamed 18 link 12 cuts 0 bound 1 of 0\n"
               "times: pass 4.2 first 4.5 compute 1.5 link 3 load 33 host 3.9 tokens "
               "238.095 a second\n"
               "2.00 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.5 "
               "ms at least");
}

/* No host memory to speak of: all from the disk. */
static void
test_disk(void)
{
    given g;

    given_begin(&g, GIVEN_LAYERS);
    given_tier(&g, BERTHI_TIER_CPU, 25, 2, 4, 20);
    given_tier(&g, BERTHI_TIER_DISK, 60, 1, 2, 5);
    g.input.staging = GIVEN_UNIT;
    given_plan(&g, "cpu: reserve 2 weights 15 cache 3 slots 1x of 4 free 1 link 12 layers "
               "5 berths 7\n"
               "disk: reserve 1 weights 18 free 41 link 12 layers 0 berths 4\n"
               "t: home 0,  bytes 6 missing 5; in disk: rows are fetched one by one, "
               "cpu keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 3 link 4 cache 1 missing 3; 768 B on "
               "cpu, the rest streamed from disk: cpu is short of 768 B\n"
               "  0@0+1 a.n 0@1+2 a.v 1@6+4 a.w\n"
               "b: home 0,  bytes 7 resident 3 link 4 cache 1 missing 3; 768 B on "
               "cpu, the rest streamed from disk: cpu is short of 768 B\n"
               "  0@3+1 b.n 0@4+2 b.v 1@10+4 b.w\n"
               "c: home 0,  bytes 7 resident 3 link 4 cache 1 missing 3; 768 B on "
               "cpu, the rest streamed from disk: cpu is short of 768 B\n"
               "  0@6+1 c.n 0@7+2 c.v 1@14+4 c.w\n"
               "h: home 0,  bytes 6 resident 6; fits on cpu\n"
               "  0@9+6 h.w\n"
               "all: bytes 33 resident 15 streamed 18 link 12 disk 12 cuts 0 bound 2 "
               "of 0\n"
               "times: pass 6 first 6.7 compute 1.5 link 3 disk 6 load 7.5 tokens "
               "166.667 a second\n"
               "1.75 KiB more on cpu: nothing is streamed to it, a pass takes 1.5 ms "
               "at least");
    g.tiers[0].tier.kind = BERTHI_TIER_GPU;
    given_plan(&g, "cuda:0: reserve 2 weights 15 cache 3 slots 1x of 4 free 1 link 12 "
               "layers 5 berths 7\n"
               "disk: reserve 1 weights 18 free 41 link 12 layers 0 berths 4\n"
               "t: home 0,  bytes 6 missing 5; in disk: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 3 link 4 cache 1 missing 3; 768 B on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 768 B\n"
               "  0@0+1 a.n 0@1+2 a.v 1@6+4 a.w\n"
               "b: home 0,  bytes 7 resident 3 link 4 cache 1 missing 3; 768 B on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 768 B\n"
               "  0@3+1 b.n 0@4+2 b.v 1@10+4 b.w\n"
               "c: home 0,  bytes 7 resident 3 link 4 cache 1 missing 3; 768 B on "
               "cuda:0, the rest streamed from disk: cuda:0 is short of 768 B\n"
               "  0@6+1 c.n 0@7+2 c.v 1@14+4 c.w\n"
               "h: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@9+6 h.w\n"
               "all: bytes 33 resident 15 streamed 18 link 12 disk 12 cuts 0 bound 2 "
               "of 0\n"
               "times: pass 6 first 6.7 compute 1.5 link 3 disk 6 load 7.5 tokens "
               "166.667 a second\n"
               "1.75 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.5 "
               "ms at least");
}

/* So many slots as are asked for have to fit. */
static void
test_many_slots(void)
{
    given g;

    given_begin(&g, GIVEN_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 25, 2, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 60, 1, 2, 5);
    g.input.slots = 2;
    given_plan(&g, "cuda:0: reserve 2 weights 7 cache 3 slots 2x of 6 free 1 link 20 "
               "layers 5 berths 4\n"
               "cpu: reserve 1 weights 26 free 33 layers 0 berths 7\n"
               "t: home 0,  bytes 6 missing 5; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 1 link 6 cache 1 missing 5; 256 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.25 KiB\n"
               "  0@0+1 a.n 1@6+2 a.v 1@8+4 a.w\n"
               "b: home 0,  bytes 7 resident 5 link 2 cache 1 missing 1; 1.25 KiB on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 256 B\n"
               "  0@1+1 b.n 1@12+2 b.v 0@2+4 b.w\n"
               "c: home 0,  bytes 7 resident 1 link 6 cache 1 missing 5; 256 B on "
               "cuda:0, the rest streamed from cpu: cuda:0 is short of 1.25 KiB\n"
               "  0@6+1 c.n 1@14+2 c.v 1@16+4 c.w\n"
               "h: home 0,  bytes 6 link 6 missing 5; 0 B on cuda:0, the rest "
               "streamed from cpu: cuda:0 is short of 1.25 KiB\n"
               "  1@20+6 h.w\n"
               "all: bytes 33 resident 7 streamed 26 link 20 cuts 0 bound 1 of 0\n"
               "times: pass 5 first 5.3 compute 1.5 link 5 load 33 host 5.5 tokens "
               "200 a second\n"
               "1.75 KiB more on cuda:0: nothing is streamed to it, a pass takes 1.5 "
               "ms at least");
    g.input.slots = 8;
    given_plan(&g, "is short of 1.75 KiB: the smallest change that would do ; 32");
    g.tiers[0].budget = 33 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: reserve 2 weights 27 cache 3 free 1 layers 5 berths 10\n"
               "cpu: reserve 1 weights 6 free 53 layers 0 berths 1\n"
               "t: home 0,  bytes 6 missing 5; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 7 cache 1; fits on cuda:0\n"
               "  0@0+1 a.n 0@1+2 a.v 0@3+4 a.w\n"
               "b: home 0,  bytes 7 resident 7 cache 1; fits on cuda:0\n"
               "  0@7+1 b.n 0@8+2 b.v 0@10+4 b.w\n"
               "c: home 0,  bytes 7 resident 7 cache 1; fits on cuda:0\n"
               "  0@14+1 c.n 0@15+2 c.v 0@17+4 c.w\n"
               "h: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@21+6 h.w\n"
               "all: bytes 33 resident 27 streamed 6 cuts 0 bound 0 of 0\n"
               "times: pass 1.5 first 1.5 compute 1.5 load 33 tokens 666.667 a "
               "second\n");
}

/* -------------------------------------------------------------------------- rows */

/* An embedding comes home only where nothing else has to leave for it. */
static void
test_embedding(void)
{
    given g;

    given_begin(
        &g,
        "layer t 0\nt.w 6 i\nlayer none 0\nlayer a 0\na.w 4 d\nlayer b 0\nb.w 4 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 14, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 14, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 14 layers 4 berths 3\n"
               "cuda:1: free 14 layers 0 berths 0\n"
               "cpu: free 60 layers 0 berths 0\n"
               "t: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@0+6 t.w\n"
               "none: home 0, ; fits on cuda:0\n"
               " \n"
               "a: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@6+4 a.w\n"
               "b: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@10+4 b.w\n"
               "all: bytes 14 resident 14 cuts 0 bound 0 of 0\n"
               "times: pass 8 first 8 compute 8 load 14 tokens 125 a second\n");
    g.tiers[0].budget = 10 * GIVEN_UNIT;
    g.tiers[1].budget = 4 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 8 free 2 layers 4 berths 2\n"
               "cuda:1: free 4 layers 0 berths 0\n"
               "cpu: weights 6 free 54 layers 0 berths 1\n"
               "t: home 0,  bytes 6 missing 4; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  2@0+6 t.w\n"
               "none: home 0, ; fits on cuda:0\n"
               " \n"
               "a: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@0+4 a.w\n"
               "b: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@4+4 b.w\n"
               "all: bytes 14 resident 8 streamed 6 cuts 0 bound 0 of 0\n"
               "times: pass 8 first 8 compute 8 load 14 tokens 125 a second\n");
    /* As many devices with it as without it. */
    given_begin(
        &g,
        "layer t 0\nt.w 6 i\nlayer a 0\na.w 4 d\nlayer b 0\nb.w 4 d\nlayer c 0\nc.w 4 "
        "d\n");
    given_tier(&g, BERTHI_TIER_GPU, 10, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 8, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 10 layers 2 berths 2\n"
               "cuda:1: weights 8 layers 2 berths 2\n"
               "cpu: free 60 layers 0 berths 0\n"
               "t: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@0+6 t.w\n"
               "a: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@6+4 a.w\n"
               "b: home 1,  bytes 4 resident 4; fits on cuda:1\n"
               "  1@0+4 b.w\n"
               "c: home 1,  bytes 4 resident 4; fits on cuda:1\n"
               "  1@4+4 c.w\n"
               "all: bytes 18 resident 18 cuts 1 bound 0 of 0\n"
               "times: pass 12 first 12 compute 12 load 18 tokens 83.3333 a second\n");
    /* It could only where something else is brought for each pass. */
    g.tiers[1].budget = 7 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 8 free 2 layers 3 berths 2\n"
               "cuda:1: weights 4 free 3 layers 1 berths 1\n"
               "cpu: weights 6 free 54 layers 0 berths 1\n"
               "t: home 0,  bytes 6 missing 4; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  2@0+6 t.w\n"
               "a: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@0+4 a.w\n"
               "b: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@4+4 b.w\n"
               "c: home 1,  bytes 4 resident 4; fits on cuda:1\n"
               "  1@0+4 c.w\n"
               "all: bytes 18 resident 12 streamed 6 cuts 1 bound 0 of 0\n"
               "times: pass 12 first 12 compute 12 load 18 tokens 83.3333 a second\n");
    /* Something is pinned elsewhere: nothing is tried. */
    g.tiers[1].budget = 20 * GIVEN_UNIT;
    g.tensors[3].tier = 2;
    given_plan(&g, "cuda:0: free 10 layers 0 berths 0\n"
               "cuda:1: weights 14 slots 1x of 4 free 2 link 4 layers 4 berths 3\n"
               "cpu: weights 4 free 56 layers 0 berths 1\n"
               "t: home 1,  bytes 6 resident 6; fits on cuda:1\n"
               "  1@0+6 t.w\n"
               "a: home 1,  bytes 4 resident 4; fits on cuda:1\n"
               "  1@6+4 a.w\n"
               "b: home 1,  bytes 4 resident 4; fits on cuda:1\n"
               "  1@10+4 b.w\n"
               "c: home 1,  bytes 4 link 4; computed on cuda:1, lies on cpu: pinned\n"
               "  2@0+4 c.w\n"
               "all: bytes 18 resident 14 streamed 4 link 4 cuts 0 bound 0 of 1\n"
               "times: pass 12 first 12 compute 12 link 4 load 18 host 12.8 tokens "
               "83.3333 a second\n");
}

/* Rows that wait outside, of a layer that has something else, too. */
static void
test_rows(void)
{
    given g;

    given_begin(&g, "layer t 0\nt.n 1 f\nt.w 6 i\nlayer a 0\na.w 4 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 10, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 5 free 5 layers 2 berths 2\n"
               "cpu: weights 6 free 54 layers 0 berths 1\n"
               "t: home 0,  bytes 7 resident 1 missing 1; in cpu: rows are fetched "
               "one by one, cuda:0 keeps its room for layers\n"
               "  0@0+1 t.n 1@0+6 t.w\n"
               "a: home 0,  bytes 4 resident 4; fits on cuda:0\n"
               "  0@1+4 a.w\n"
               "all: bytes 11 resident 5 streamed 6 cuts 0 bound 0 of 0\n"
               "times: pass 5 first 5 compute 5 load 11 tokens 200 a second\n");
    /* Both of the layer's are away: not for their rows alone. */
    given_begin(
        &g,
        "layer t 0\nt.v 3 d\nt.w 6 i\nlayer a 0\na.w 4 d\nlayer b 0\nb.w 4 d\nlayer c 0\n"
        "c.w 4 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 12, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: slots 3x of 4 link 15 layers 4 berths 0\n"
               "cpu: weights 21 free 39 layers 0 berths 5\n"
               "t: home 0,  bytes 9 link 3 missing 9; 0 B on cuda:0, the rest "
               "streamed from cpu: cuda:0 is short of 2.25 KiB\n"
               "  1@0+3 t.v 1@3+6 t.w\n"
               "a: home 0,  bytes 4 link 4 missing 4; 0 B on cuda:0, the rest "
               "streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  1@9+4 a.w\n"
               "b: home 0,  bytes 4 link 4 missing 4; 0 B on cuda:0, the rest "
               "streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  1@13+4 b.w\n"
               "c: home 0,  bytes 4 link 4 missing 4; 0 B on cuda:0, the rest "
               "streamed from cpu: cuda:0 is short of 1.00 KiB\n"
               "  1@17+4 c.w\n"
               "all: bytes 21 streamed 21 link 15 cuts 0 bound 0 of 0\n"
               "times: pass 15 first 19 compute 15 link 15 load 21 host 18 tokens "
               "66.6667 a second\n");
}

/* ------------------------------------------------------------ beside the weights */

/* A ring for each device, and no more than an eighth of what the host has. */
static void
test_staging(void)
{
    given g;

    given_begin(&g, GIVEN_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 30, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_CPU, 80, 0, 2, 5);
    g.input.staging = 11 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 27 cache 3 layers 5 berths 10\n"
               "cpu: weights 6 staging 10 free 64 layers 0 berths 1\n"
               "t: home 0,  bytes 6 missing 6; in cpu: rows are fetched one by one, "
               "cuda:0 keeps its room for layers\n"
               "  1@0+6 t.w\n"
               "a: home 0,  bytes 7 resident 7 cache 1; fits on cuda:0\n"
               "  0@0+1 a.n 0@1+2 a.v 0@3+4 a.w\n"
               "b: home 0,  bytes 7 resident 7 cache 1; fits on cuda:0\n"
               "  0@7+1 b.n 0@8+2 b.v 0@10+4 b.w\n"
               "c: home 0,  bytes 7 resident 7 cache 1; fits on cuda:0\n"
               "  0@14+1 c.n 0@15+2 c.v 0@17+4 c.w\n"
               "h: home 0,  bytes 6 resident 6; fits on cuda:0\n"
               "  0@21+6 h.w\n"
               "all: bytes 33 resident 27 streamed 6 cuts 0 bound 0 of 0\n"
               "times: pass 1.5 first 1.5 compute 1.5 load 33 tokens 666.667 a "
               "second\n");
    given_begin(&g, "layer a 0\na.w 1 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 9, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_GPU, 9, 0, 1, 1);
    given_tier(&g, BERTHI_TIER_CPU, 15, 0, 1, 1);
    g.input.staging = GIVEN_UNIT; /* two of them; an eighth is one */
    given_plan(&g, "cuda:0: weights 1 free 8 layers 1 berths 1\n"
               "cuda:1: free 9 layers 0 berths 0\n"
               "cpu: staging 1 free 14 layers 0 berths 0\n"
               "a: home 0,  bytes 1 resident 1; fits on cuda:0\n"
               "  0@0+1 a.w\n"
               "all: bytes 1 resident 1 cuts 0 bound 0 of 0\n"
               "times: pass 1 first 1 compute 1 load 1 tokens 1000 a second\n");
    g.tiers[2].budget = 16 * GIVEN_UNIT;
    given_plan(&g, "cuda:0: weights 1 free 8 layers 1 berths 1\n"
               "cuda:1: free 9 layers 0 berths 0\n"
               "cpu: staging 2 free 14 layers 0 berths 0\n"
               "a: home 0,  bytes 1 resident 1; fits on cuda:0\n"
               "  0@0+1 a.w\n"
               "all: bytes 1 resident 1 cuts 0 bound 0 of 0\n"
               "times: pass 1 first 1 compute 1 load 1 tokens 1000 a second\n");
    g.tiers[2].budget = GIVEN_NONE;
    given_plan(&g, "cuda:0: weights 1 free 8 layers 1 berths 1\n"
               "cuda:1: free 9 layers 0 berths 0\n"
               "cpu: staging 2 free inf layers 0 berths 0\n"
               "a: home 0,  bytes 1 resident 1; fits on cuda:0\n"
               "  0@0+1 a.w\n"
               "all: bytes 1 resident 1 cuts 0 bound 0 of 0\n"
               "times: pass 1 first 1 compute 1 load 1 tokens 1000 a second\n");
}

/* ------------------------------------------------------------------------ spread */

#define EQUAL_LAYERS                                                                       \
    "layer a 0\na.n 1 f\na.w 4 d\nlayer b 0\nb.n 1 f\nb.w 4 d\nlayer c 0\nc.n 1 f\n"       \
    "c.w 4 d\nlayer d 0\nd.n 1 f\nd.w 4 d\nlayer e 0\ne.n 1 f\ne.w 4 d\nlayer f 0\n"       \
    "f.n 1 f\nf.w 4 d\nlayer g 0\ng.n 1 f\ng.w 4 d\nlayer h 0\nh.n 1 f\nh.w 4 d\n"         \
    "layer i 0\ni.n 1 f\ni.w 4 d\n"

/* Both links bring what their devices have no room for. */
static void
test_spread(void)
{
    given g;

    given_begin(&g, EQUAL_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 14, 0, 1, 100);
    given_tier(&g, BERTHI_TIER_GPU, 28, 0, 1, 100);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    given_plan(&g, "cuda:0: weights 7 slots 1x of 4 free 3 link 8 layers 3 berths 4\n"
               "cuda:1: weights 22 slots 1x of 4 free 2 link 8 layers 6 berths 10\n"
               "cpu: weights 16 free 44 layers 0 berths 4\n"
               "a: home 0,  bytes 5 resident 1 link 4 missing 1; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 256 B\n"
               "  0@0+1 a.n 2@0+4 a.w\n"
               "b: home 0,  bytes 5 resident 5; fits on cuda:0\n"
               "  0@1+1 b.n 0@2+4 b.w\n"
               "c: home 0,  bytes 5 resident 1 link 4 missing 1; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 256 B\n"
               "  0@6+1 c.n 2@4+4 c.w\n"
               "d: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@0+1 d.n 1@1+4 d.w\n"
               "e: home 1,  bytes 5 resident 1 link 4 missing 2; 256 B on cuda:1, the "
               "rest streamed from cpu: cuda:1 is short of 512 B\n"
               "  1@5+1 e.n 2@8+4 e.w\n"
               "f: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@6+1 f.n 1@7+4 f.w\n"
               "g: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@11+1 g.n 1@12+4 g.w\n"
               "h: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@16+1 h.n 1@17+4 h.w\n"
               "i: home 1,  bytes 5 resident 1 link 4 missing 2; 256 B on cuda:1, the "
               "rest streamed from cpu: cuda:1 is short of 512 B\n"
               "  1@21+1 i.n 2@12+4 i.w\n"
               "all: bytes 45 resident 29 streamed 16 link 16 cuts 1 bound 1 of 0\n"
               "times: pass 8.25 first 12.25 compute 0.45 link 8 load 45 host 3.65 "
               "tokens 121.212 a second\n"
               "256 B more on cuda:0: room for what is streamed to it, a pass takes 0.45 "
               "ms at least");
    g.tensors[0].tier = 1; /* no: something is pinned */
    given_plan(&g, "cuda:0: weights 8 slots 1x of 4 free 2 link 12 layers 4 berths 5\n"
               "cuda:1: weights 25 free 3 layers 5 berths 10\n"
               "cpu: weights 12 free 48 layers 0 berths 3\n"
               "a: home 1,  bytes 5 resident 5; computed on cuda:1, lies on cuda:1: "
               "pinned\n"
               "  1@0+1 a.n 1@1+4 a.w\n"
               "b: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@5+1 b.n 1@6+4 b.w\n"
               "c: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@10+1 c.n 1@11+4 c.w\n"
               "d: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@15+1 d.n 1@16+4 d.w\n"
               "e: home 1,  bytes 5 resident 5; fits on cuda:1\n"
               "  1@20+1 e.n 1@21+4 e.w\n"
               "f: home 0,  bytes 5 resident 1 link 4 missing 2; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 512 B\n"
               "  0@0+1 f.n 2@0+4 f.w\n"
               "g: home 0,  bytes 5 resident 5; fits on cuda:0\n"
               "  0@1+1 g.n 0@2+4 g.w\n"
               "h: home 0,  bytes 5 resident 1 link 4 missing 2; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 512 B\n"
               "  0@6+1 h.n 2@4+4 h.w\n"
               "i: home 0,  bytes 5 resident 1 link 4 missing 2; 256 B on cuda:0, the "
               "rest streamed from cpu: cuda:0 is short of 512 B\n"
               "  0@7+1 i.n 2@8+4 i.w\n"
               "all: bytes 45 resident 33 streamed 12 link 12 cuts 1 bound 1 of 0\n"
               "times: pass 12.15 first 12.15 compute 0.45 link 12 load 45 host 2.85 "
               "tokens 82.3045 a second\n"
               "1.50 KiB more on cuda:0: nothing is streamed to it, a pass takes 0.45 "
               "ms at least");
}

/* The layers' homes, a digit each. */
static const char *
homes_of(const given *g)
{
    static char homes[GIVEN_LIMIT + 1];
    berth_plan *plan;

    homes[0] = '\0';
    if (!CHECK_EQ(berthi_plan_make(given_context, &g->input, &plan, NULL), BERTH_OK))
        return homes;
    for (uint32_t l = 0; l < plan->summary.layer_count; l++) {
        homes[l] = (char)('0' + plan->layers[l].out.home);
        homes[l + 1] = '\0';
    }
    berthi_plan_free(plan);
    return homes;
}

static void
begin_spread(given *g, const char *model, uint64_t room, uint64_t other)
{
    given_begin(g, model);
    given_tier(g, BERTHI_TIER_GPU, room, 0, 1, 100);
    given_tier(g, BERTHI_TIER_GPU, other, 0, 1, 100);
    given_tier(g, BERTHI_TIER_CPU, 90, 0, 2, 5);
}

/* A share is of all bytes of the layers; a pin anywhere, or a map, and homes stay. */
static void
test_shares(void)
{
    given g;

    begin_spread(&g, EQUAL_LAYERS, 14, 28);
    CHECK_STR(homes_of(&g), "000111111");
    g.tensors[17].tier = 1;
    CHECK_STR(homes_of(&g), "000011111");
    begin_spread(&g,
                 "layer a 0\na.n 1 f\na.v 4 d\na.w 4 d\nlayer b 0\nb.n 1 f\nb.v 4 d\n"
                 "b.w 4 d\nlayer c 0\nc.n 1 f\nc.w 4 d\nlayer d 0\nd.n 1 f\nd.w 4 d\n"
                 "layer e 0\ne.n 1 f\n"
                 "e.w 4 d\nlayer f 0\nf.n 1 f\nf.w 4 d\nlayer g 0\ng.n 1 f\ng.w 4 d\n"
                 "layer h 0\nh.n 1 f\nh.w 4 d\nlayer i 0\ni.n 1 f\ni.w 4 d\n",
                 14, 28);
    CHECK_STR(homes_of(&g), "001111111");
}

/* A model of nothing takes no time: there is no rate of tokens. */
static void
test_nothing(void)
{
    berth_plan *plan;
    given g;

    given_begin(&g, "layer a 0\n");
    given_tier(&g, BERTHI_TIER_GPU, 1, 0, 1, 1);
    T_REQUIRE(
        CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK));
    CHECK(plan->summary.seconds == 0);
    CHECK(plan->summary.tokens_per_second == 0);
    CHECK_STR(plan->summary.advice, "");
    berthi_plan_free(plan);
}

/* ------------------------------------------------------------------------ advice */

/* What a pass brings to the first device; `more` out of the advice, 0: there is none. */
static uint64_t
brought(const given *g, uint64_t *more)
{
    uint64_t bytes = UINT64_MAX;
    berth_plan *plan;
    double number;
    char unit[4];

    *more = 0;
    if (berthi_plan_make(given_context, &g->input, &plan, NULL) != BERTH_OK)
        return bytes;
    bytes = plan->tiers[0].link_bytes;
    if (sscanf(plan->summary.advice, "%lf %3s more on cuda:0", &number, unit) == 2)
        *more = (uint64_t)(number * (strcmp(unit, "KiB") == 0 ? 1024 : 1));
    berthi_plan_free(plan);
    return bytes;
}

/* With so much more nothing is brought, with a unit less something is. */
static void
check_advice(const char *model, uint32_t slots, uint64_t share)
{
    uint32_t advised = 0;
    given g;

    given_begin(&g, model);
    given_tier(&g, BERTHI_TIER_GPU, 0, 0, 1, 100);
    given_tier(&g, BERTHI_TIER_CPU, 200, 0, 2, 5);
    g.input.slots = slots;
    g.input.expert_count = 4;
    g.input.experts_used = 1;
    g.tiers[0].reserve_share = share > 0 ? UINT64_C(1000000000) / share : 0;
    for (uint64_t budget = 4; budget < 80; budget++) {
        const uint64_t less = share > 0 ? share * GIVEN_UNIT : GIVEN_UNIT;
        uint64_t none;
        uint64_t more;

        g.tiers[0].budget = budget * GIVEN_UNIT;
        if (brought(&g, &more) == UINT64_MAX || more == 0)
            continue;
        advised++;
        g.tiers[0].budget += more;
        CHECK_EQ(brought(&g, &none), 0);
        CHECK_EQ(none, 0);
        g.tiers[0].budget -= less;
        CHECK_GT(brought(&g, &none), 0);
    }
    CHECK_GT(advised, 2);
}

/* Rows stay outside, slots are not needed any more, a reserve grows with its budget. */
static void
test_advice(void)
{
    check_advice(GIVEN_LAYERS, 0, 0);
    check_advice(GIVEN_LAYERS, 2, 0);
    check_advice(GIVEN_LAYERS, 0, 2);
    check_advice(EQUAL_LAYERS, 0, 0);
    check_advice("layer t 0\nt.w 9 i\nlayer a 1\na.e.0.v 2 e #0\na.e.0.w 1 e #0\n"
                 "a.e.1.v 2 e #1\na.e.1.w 1 e #1\na.e.2.v 2 e #2\na.e.2.w 1 e #2\n"
                 "a.e.3.v 2 e #3\na.e.3.w 1 e #3\na.w 3 d\n",
                 0, 0);
}

/* Sizes of no whole hundredths: as it is read, what is said is enough, to be planned at all
 * and for nothing to be brought. */
static void
test_sizes_that_are_said(void)
{
    static const uint64_t budgets[] = { 30000, 50030, 51040, 90000, 139900 };
    given g;

    given_begin(&g, "layer a 0\na.n 1 f\na.w 50030 d\nlayer b 0\nb.w 50010 d\n"
                    "layer c 0\nc.w 50020 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 0, 0, 1, 100);
    given_tier(&g, BERTHI_TIER_CPU, 200000, 0, 2, 5);
    for (uint32_t i = 0; i < 5; i++) {
        berth_plan *plan = NULL;
        berth_error error;
        bool is_planned;
        const char *said;
        char size[32];
        uint64_t more = 0;

        g.tiers[0].budget = budgets[i] * GIVEN_UNIT;
        is_planned = berthi_plan_make(given_context, &g.input, &plan, &error) == BERTH_OK;
        CHECK_EQ(is_planned, i >= 2);
        said = is_planned ? plan->summary.advice : error.message + strlen("is short of ");
        T_REQUIRE(CHECK_CONTAINS(said, "B"));
        (void)snprintf(size, sizeof size, "%.*s", (int)(strchr(said, 'B') + 1 - said), said);
        berthi_plan_free(plan);
        T_REQUIRE(CHECK_EQ(berth_size_parse(size, &more, NULL), BERTH_OK));
        g.tiers[0].budget += more;
        if (CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK))
            CHECK(!is_planned || plan->summary.link_bytes == 0);
        berthi_plan_free(plan);
    }
}

/* ------------------------------------------------------------------------ faults */

static berth_status
make_one(void *user, berth_context *own, berth_error *error)
{
    berth_plan *plan;
    const berth_status status =
        berthi_plan_make(own, &((given *)user)->input, &plan, error);

    CHECK((status == BERTH_OK) == (plan != NULL));
    berthi_plan_free(plan);
    return status;
}

/* That memory lacks is not taken for what the devices lack. */
static berth_status
refuse_one(void *user, berth_context *own, berth_error *error)
{
    const berth_status status = make_one(user, own, error);

    return status == BERTH_ENOFIT ? BERTH_OK : status;
}

/* Nobody asks why. */
static berth_status
make_silently(void *user, berth_context *own, berth_error *error)
{
    berth_plan *plan;
    const berth_status status =
        berthi_plan_make(own, &((given *)user)->input, &plan, NULL);

    berthi_plan_free(plan);
    return status == BERTH_OK ? BERTH_OK : berthi_fail_memory(error, "planning");
}

static void
test_faults(void)
{
    fault_counts counts;
    given g;

    given_begin(&g, EQUAL_LAYERS);
    given_tier(&g, BERTHI_TIER_GPU, 14, 0, 1, 100);
    given_tier(&g, BERTHI_TIER_GPU, 28, 0, 1, 100);
    given_tier(&g, BERTHI_TIER_CPU, 60, 0, 2, 5);
    counts = fault_loop("spread", make_one, &g);
    CHECK_GT(counts.memory, 15);
    CHECK_EQ(counts.survived, 0);
    CHECK_EQ(fault_loop("spread, silently", make_silently, &g).memory, counts.memory);
    g.tiers[0].budget = GIVEN_NONE;
    CHECK_GT(fault_loop("fitting", make_one, &g).memory, 5);
    g.tiers[0].budget = GIVEN_UNIT;
    g.tiers[1].budget = GIVEN_UNIT;
    counts = fault_loop("refused", refuse_one, &g);
    CHECK_GT(counts.memory, 10);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    given_start();
    T_RUN(test_streamed);
    T_RUN(test_disk);
    T_RUN(test_many_slots);
    T_RUN(test_embedding);
    T_RUN(test_rows);
    T_RUN(test_staging);
    T_RUN(test_spread);
    T_RUN(test_shares);
    T_RUN(test_nothing);
    T_RUN(test_advice);
    T_RUN(test_sizes_that_are_said);
    T_RUN(test_faults);
    given_end();
    T_MAIN_END;
}
