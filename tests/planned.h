/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planned.h - models for tests of plans: sparse files of a real shape, and what has to
 * hold of any plan.
 */
#ifndef BERTH_TESTS_PLANNED_H
#define BERTH_TESTS_PLANNED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "loader/berth.h"
#include "tests/t.h"

/*
 * A Llama of `layers` layers, hidden 1024, 2816 in its MLP, 8192 words, BF16: 24.5 MiB
 * a layer, 16 MiB for the embedding and, unless tied, for the head. Returns its folder.
 */
const char *planned_llama(uint32_t layers, bool is_tied);
/*
 * The same with `experts` experts of 512 in place of each MLP; a token takes two of them,
 * or the only one.
 */
const char *planned_moe(uint32_t layers, uint32_t experts);

typedef struct planned {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berth_plan *plan; /* NULL: it was refused */
    berth_plan_summary summary;
    berth_status status;
    berth_error error;
    uint32_t finding_count;
    char findings[8][512];
} planned;

/* Opens and plans; `options` get a finding function. */
void planned_begin(planned *p, const char *folder, berth_plan_options *options);
void planned_end(planned *p);

/*
 * Sums, offsets, names, budgets: every tensor of the checkpoint has one berth, berths of
 * a tier are apart, parts and `free` make up each budget, and the text reads back.
 */
void planned_check(const planned *p);

uint32_t planned_tier(const planned *p, const char *name);
/* The number of a layer; ends the test when there is none. */
uint32_t planned_layer(const planned *p, const char *name);
berth_plan_tier planned_get_tier(const planned *p, const char *name);
berth_plan_layer planned_get_layer(const planned *p, const char *name);

bool planned_is_zero(const void *bytes, size_t size);
/* A question about a number that is none: nothing of what was in `out` stays. */
#define PLANNED_REFUSES(call, out)                                                        \
    do {                                                                                  \
        memset(&(out), 0xAB, sizeof(out));                                                \
        CHECK_EQ(call, BERTH_EINVAL);                                                     \
        CHECK(planned_is_zero(&(out), sizeof(out)));                                      \
    } while (0)

/* The plan as JSON; free() it. */
char *planned_text(const berth_plan *plan, size_t *length);

/* The largest sum of some of these numbers within `room`: all sets of them are tried. */
uint64_t planned_best_sum(const uint64_t *bytes, uint32_t count, uint64_t room);

#endif
