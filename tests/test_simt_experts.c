/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of several experts in one grid, on the host: for each of them the bits of its
 * own product, with and without tensor cores, in every order of lanes; nothing for inputs
 * that are nobody's, or more than an expert was said to have.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "tests/fenced.h"
#include "tests/simt_level.h"
#include "tests/random.h"
#include "tests/t.h"

enum { EXPERTS = 5, INPUTS = 40 };

/* Whose inputs are whose: few, none, many, and some that are nobody's. */
static uint32_t ranges[EXPERTS + 1] = { 1, 4, 4, 21, 29, 38 };

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0xA0761D6478BD642Fu;

typedef struct experts_case {
    uint64_t rows;
    uint64_t columns;
    uint32_t block_size;
    int32_t dtype;
    bool is_fp4;
    bool is_double;
    uint32_t capability;
    uint32_t most_inputs;
} experts_case;

typedef struct problem {
    experts_case c;
    uint64_t width;
    berthi_product_expert experts[EXPERTS];
    uint8_t *memory; /* that all of theirs lies in */
    uint8_t *inputs;
} problem;

/* A part of the memory, from an even address on; without memory it is only counted. */
static uint8_t *
place(uint8_t *memory, uint64_t *used, uint64_t bytes)
{
    uint8_t *const at = memory != NULL ? memory + *used : NULL;

    *used += (bytes + 63) / 64 * 64;
    return at;
}

static uint64_t
place_all(problem *p, uint8_t *memory)
{
    const experts_case *const c = &p->c;
    const uint64_t weights = c->rows * c->columns;
    const uint64_t blocks = (weights + c->block_size - 1) / c->block_size;
    uint64_t used = 0;

    for (uint32_t e = 0; e < EXPERTS; e++) {
        p->experts[e].codes = place(memory, &used, (weights + 1) / 2);
        p->experts[e].absmax = (const float *)(void *)place(memory, &used, blocks * 4);
        p->experts[e].absmax_codes = place(memory, &used, blocks);
        p->experts[e].bias = place(memory, &used, c->rows * p->width);
        p->experts[e].offset = 0.04f + 0.01f * (float)e;
    }
    return used;
}

static problem
draw_problem(const experts_case *c)
{
    problem p = { .c = *c, .width = c->dtype == BERTH_F32 ? 4 : 2 };
    const uint64_t bytes = place_all(&p, NULL);

    p.memory = aligned_alloc(64, bytes);
    p.inputs = aligned_alloc(64, (INPUTS * c->columns * p.width + 63) / 64 * 64 + 64);
    if (p.memory == NULL || p.inputs == NULL)
        abort();
    (void)place_all(&p, p.memory);
    for (uint64_t i = 0; i < bytes; i++)
        p.memory[i] = (uint8_t)(random_share(&state) * 256.0f);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        const uint64_t blocks = (c->rows * c->columns + c->block_size - 1) / c->block_size;
        float *const absmax = (float *)(uintptr_t)p.experts[e].absmax;

        for (uint64_t i = 0; i < blocks; i++)
            absmax[i] = 0.02f + 0.05f * random_share(&state);
        for (uint64_t i = 0; i < c->rows; i++)
            berthi_core_store((void *)(uintptr_t)p.experts[e].bias, c->dtype, i,
                              random_share(&state) - 0.5f);
        if (e % 2 == 1)
            p.experts[e].bias = NULL;
    }
    for (uint64_t i = 0; i < INPUTS * c->columns; i++)
        berthi_core_store(p.inputs, c->dtype, i, random_signed(&state));
    return p;
}

/* Inputs `first` to `end - 1` of one expert, by its own product. */
static void
multiply_one(const problem *p, uint32_t expert, uint64_t first, uint64_t end, uint8_t *outputs)
{
    const experts_case *const c = &p->c;
    const berthi_product_expert *const e = &p->experts[expert];
    const berthi_multiply_arguments what = {
        .codes = e->codes, .absmax = e->absmax,
        .absmax_codes = c->is_double ? e->absmax_codes : NULL, .map = berthi_signed_map,
        .offset = e->offset, .block_size = c->block_size, .count = (uint32_t)(end - first),
        .rows = c->rows, .columns = c->columns, .dtype = c->dtype, .bias = e->bias,
        .inputs = p->inputs + first * c->columns * p->width,
        .outputs = outputs + first * c->rows * p->width
    };

    simt_multiply(&(berthi_product_task){
        .what = &what, .values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values,
        .capability = c->capability });
}

static berthi_experts_arguments
arguments_of(const problem *p, uint8_t *outputs)
{
    const experts_case *const c = &p->c;

    return (berthi_experts_arguments){
        .experts = p->experts, .ranges = ranges, .expert_count = EXPERTS,
        .most_inputs = c->most_inputs, .codes_alignment = 64, .block_size = c->block_size,
        .is_double = c->is_double, .map = berthi_signed_map, .rows = c->rows,
        .columns = c->columns, .count = INPUTS, .inputs = p->inputs, .outputs = outputs,
        .dtype = c->dtype
    };
}

static void
check_case(const experts_case *c)
{
    problem p = draw_problem(c);
    const size_t bytes = INPUTS * c->rows * p.width;
    /* In eights. */
    const uint32_t most = (c->most_inputs + 7) / 8 * 8;

    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        fenced_output tested = fenced_begin(bytes, 0);
        fenced_output expected = fenced_begin(bytes, 0);
        const berthi_experts_arguments what = arguments_of(&p, tested.bytes);
        const berthi_experts_task task = {
            .what = &what, .values = c->is_fp4 ? berthi_fp4_values : berthi_nf4_values,
            .capability = c->capability
        };

        memset(tested.bytes, 0x5A, bytes);
        memset(expected.bytes, 0x5A, bytes);
        simt_level_set_order((simt_order)order, c->rows);
        for (uint32_t e = 0; e < EXPERTS; e++)
            multiply_one(&p, e, ranges[e],
                         ranges[e + 1] - ranges[e] < most ? ranges[e + 1] : ranges[e] + most,
                         expected.bytes);
        simt_multiply_experts(&task);
        fenced_end(&tested, &expected, "experts");
    }
    free(p.memory);
    free(p.inputs);
}

/* ---------------------------------------------------------------------------- tests */

static void
test_tensor_cores(void)
{
    for (unsigned i = 0; i < 8; i++)
        check_case(&(experts_case){ .rows = 16 + 11 * i,
                                    .columns = i / 2 % 2 == 0 ? 256 : 1024,
                                    .block_size = i / 4 % 2 == 0 ? 64 : 128,
                                    .dtype = dtypes[i % 2], .is_fp4 = i % 3 == 1,
                                    .is_double = i / 2 % 2 == 1, .capability = 90,
                                    .most_inputs = 17 + i });
}

static void
test_lanes(void)
{
    static const uint64_t columns[] = { 64, 33, 200 };

    for (unsigned i = 0; i < 6; i++)
        check_case(&(experts_case){ .rows = 5 + 3 * i, .columns = columns[i / 2],
                                    .block_size = 32u << i % 3, .dtype = dtypes[i % 3],
                                    .is_fp4 = i % 2 == 1, .is_double = i / 3 == 1,
                                    .capability = 75, .most_inputs = 24 });
}

/* Of an expert that has more than was said only the first ones. */
static void
test_bound_on_inputs(void)
{
    for (unsigned i = 0; i < 2; i++)
        check_case(&(experts_case){ .rows = 20, .columns = 128, .block_size = 64,
                                    .dtype = BERTH_BF16, .capability = i == 0 ? 90 : 75,
                                    .most_inputs = 8 });
}

static void
test_launches(void)
{
    berthi_experts_arguments a = { .expert_count = 3, .most_inputs = 17,
                                   .codes_alignment = 16, .block_size = 128,
                                   .map = berthi_signed_map, .rows = 300, .columns = 256,
                                   .dtype = BERTH_BF16 };
    const berthi_experts_task t = { .what = &a, .values = berthi_nf4_values,
                                    .capability = 90 };
    berthi_launch l;

    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_experts_128_bf16);
    CHECK_EQ(l.argument.product.groups, 3);
    CHECK_EQ(l.ctas, 9 * l.argument.product.ctas_of_group);
    a.codes_alignment = 8; /* a lane reads 16 bytes */
    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_experts_lanes_bf16);
    CHECK_EQ(l.argument.product.is_aligned, 1);
    a.codes_alignment = 1;
    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_experts_lanes_bf16);
    CHECK_EQ(l.argument.product.is_aligned, 0);
    a.expert_count = 0;
    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    a.expert_count = UINT32_MAX;
    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    a.most_inputs = 0;
    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    a.block_size = 48;
    CHECK_EQ(berthi_launch_experts(&t, &l, NULL), BERTH_EUNSUPPORTED);
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_launches);
    if (simt_level_is_there(&why)) {
        T_RUN(test_tensor_cores);
        T_RUN(test_lanes);
        T_RUN(test_bound_on_inputs);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
