/* SPDX-License-Identifier: Apache-2.0 */
/*
 * given.h - the planner on a few tensors, for tests.
 *
 * Inputs and plans are texts. Sizes are in units of 256 bytes, rates in units a
 * millisecond, times in milliseconds. "layer NAME CACHE" and its tensors, "NAME SIZE
 * KIND", and behind it any of
 *
 *   #2   its expert          @1   the tier that it has to lie on
 *   =3   shares the berth    +4   scratch                  tied, of a layer
 *   *    multiplied by with those of other experts
 *
 * Of a plan a line a tier, its parts that are not zero; a line a layer, and a berth
 * each: tier, offset, size, name.
 */
#ifndef BERTH_TESTS_GIVEN_H
#define BERTH_TESTS_GIVEN_H

#include "placement/plan.h"

#define GIVEN_UNIT UINT64_C(256)
#define GIVEN_RATE UINT64_C(256000) /* bytes a second: a unit a millisecond */
#define GIVEN_LIMIT 64u
#define GIVEN_NONE UINT64_MAX /* a budget: no limit */

typedef struct given {
    berthi_plan_input input;
    berthi_plan_tensor tensors[GIVEN_LIMIT];
    berthi_plan_layer_input layers[GIVEN_LIMIT];
    berthi_plan_tier_input tiers[8];
    char names[2 * GIVEN_LIMIT][64];
} given;

/* Embeddings, three layers and a head: what most tests of streaming ask for. */
#define GIVEN_LAYERS                                                                      \
    "layer t 0\nt.w 6 i\n"                                                                \
    "layer a 1\na.n 1 f\na.v 2 d\na.w 4 d\nlayer b 1\nb.n 1 f\nb.v 2 d\nb.w 4 d\n"        \
    "layer c 1\nc.n 1 f\nc.v 2 d\nc.w 4 d\nlayer h 0\nh.w 6 d\n"

extern berth_context *given_context;

/* First and last thing in main(): the context. */
void given_start(void);
void given_end(void);

/* A model of this text, and no tier. */
void given_begin(given *g, const char *model);
/* The reserve is of bytes, however large the budget is. */
void given_tier(given *g, int32_t kind, uint64_t budget, uint64_t reserve, uint64_t link,
                uint64_t memory);
/* Plans, and compares all that is said of the plan or of the refusal. */
void given_plan(given *g, const char *expected);

#endif
