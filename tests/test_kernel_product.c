/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products on 4-bit weights: every level within its error bound of sums in
 * double, the same bits for an input alone or in a batch and for any share of
 * the rows, and nothing written beside the share.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/t.h"

static berthi_operations level; /* the best one of this processor */

static float
next_normal(uint64_t *state)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum;
}

typedef struct problem {
    berthi_product_arguments a;
    float *weights; /* as decoded */
    uint8_t *codes;
    float *absmax;
    float *inputs;
    float *scratch;
} problem;

static void
make_problem(problem *p, uint64_t rows, uint64_t columns, uint32_t count, uint32_t block,
             bool is_fp4, uint64_t seed)
{
    const uint64_t n = rows * columns;
    uint64_t state = seed;

    p->weights = malloc(n * sizeof(float));
    p->codes = malloc((n + 1) / 2);
    p->absmax = malloc((n / block + 1) * sizeof(float));
    p->inputs = malloc(columns * count * sizeof(float));
    p->scratch = malloc(berthi_product_scratch(columns, count) * sizeof(float));
    for (uint64_t i = 0; i < n; i++)
        p->weights[i] = next_normal(&state) * 0.02f;
    for (uint64_t i = 0; i < columns * count; i++)
        p->inputs[i] = next_normal(&state);
    (is_fp4 ? berthi_scalar_operations.encode_fp4 : berthi_scalar_operations.encode_nf4)(
        &(berthi_encode_arguments){ p->weights, BERTH_F32, block, n, NULL, p->codes,
                                    p->absmax });
    (is_fp4 ? berthi_scalar_operations.decode_fp4 : berthi_scalar_operations.decode_nf4)(
        &(berthi_decode_arguments){ p->codes, p->absmax, n, block, BERTH_F32, NULL,
                                    p->weights });
    p->a = (berthi_product_arguments){ .codes = p->codes,
                                       .absmax = p->absmax,
                                       .block_size = block,
                                       .count = count,
                                       .rows = rows,
                                       .columns = columns,
                                       .end_row = rows,
                                       .inputs = p->inputs,
                                       .scratch = p->scratch };
}

static void
free_problem(problem *p)
{
    free(p->weights);
    free(p->codes);
    free(p->absmax);
    free(p->inputs);
    free(p->scratch);
}

static void
run(const berthi_operations *ops, const problem *p, bool is_fp4, uint64_t first,
    uint64_t end, float *outputs)
{
    berthi_product_arguments a = p->a;

    a.first_row = first;
    a.end_row = end;
    a.outputs = outputs;
    (is_fp4 ? ops->multiply_fp4 : ops->multiply_nf4)(&a);
}

/* |y - exact| <= 2^-22 |exact| + 2^-18 sum |w x| */
static bool
is_within_bound(const problem *p, const float *outputs)
{
    for (uint32_t i = 0; i < p->a.count; i++)
        for (uint64_t row = 0; row < p->a.rows; row++) {
            double exact = 0;
            double size = 0;
            const float got = outputs[i * p->a.rows + row];

            for (uint64_t k = 0; k < p->a.columns; k++) {
                const double term = (double)p->weights[row * p->a.columns + k]
                                    * (double)p->inputs[i * p->a.columns + k];

                exact += term;
                size += fabs(term);
            }
            if (!(fabs((double)got - exact) <= 0x1p-22 * fabs(exact) + 0x1p-18 * size)) {
                T_NOTE("input %u row %llu: %g, exact %g", i, (unsigned long long)row,
                       (double)got, exact);
                return false;
            }
        }
    return true;
}

static const struct {
    uint64_t rows;
    uint64_t columns;
    uint32_t block;
} shapes[] = {
    { 1, 32, 32 },   { 7, 64, 64 },   { 33, 256, 64 },  { 5, 4096, 4096 },
    { 9, 384, 128 }, { 12, 96, 64 },  { 3, 45, 64 },    { 6, 1, 32 },
    { 4, 100, 32 },  { 130, 128, 64 },
};

static void
test_products_are_within_their_bounds(void)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t count = 1; count <= 32; count = count < 9 ? count + 1 : count + 7)
            for (int is_fp4 = 0; is_fp4 < 2; is_fp4++) {
                float *const outputs
                    = malloc((shapes[s].rows * count + 1) * sizeof(float));
                problem p;

                make_problem(&p, shapes[s].rows, shapes[s].columns, count,
                             shapes[s].block, is_fp4, s * 64 + count);
                memset(outputs, 0xFF, (shapes[s].rows * count + 1) * sizeof(float));
                run(&level, &p, is_fp4, 0, shapes[s].rows, outputs);
                CHECK(is_within_bound(&p, outputs));
                CHECK_EQ(berthi_core_bits(outputs[shapes[s].rows * count]), UINT32_MAX);
                run(&berthi_scalar_operations, &p, is_fp4, 0, shapes[s].rows, outputs);
                CHECK(is_within_bound(&p, outputs));
                free_problem(&p);
                free(outputs);
            }
}

static void
test_shares_of_rows_make_the_whole(void)
{
    enum { ROWS = 23, COUNT = 3 };
    float whole[ROWS * COUNT];
    float parts[ROWS * COUNT];
    problem p;

    make_problem(&p, ROWS, 192, COUNT, 64, false, 1);
    run(&level, &p, false, 0, ROWS, whole);
    for (uint64_t cut = 0; cut <= ROWS; cut++) {
        memset(parts, 0, sizeof parts);
        run(&level, &p, false, 0, cut, parts);
        for (uint64_t i = 0; i < COUNT; i++)
            for (uint64_t row = cut; row < ROWS; row++)
                CHECK_EQ(berthi_core_bits(parts[i * ROWS + row]), 0);
        run(&level, &p, false, cut, ROWS, parts);
        CHECK_MEM(parts, whole, sizeof whole);
    }
    free_problem(&p);
}

static void
test_an_input_alone_gives_the_same_bits(void)
{
    enum { ROWS = 11, COUNT = 21, COLUMNS = 320 };
    float batch[ROWS * COUNT];
    float alone[ROWS];
    problem p;

    make_problem(&p, ROWS, COLUMNS, COUNT, 64, false, 2);
    run(&level, &p, false, 0, ROWS, batch);
    for (uint32_t i = 0; i < COUNT; i++) {
        problem one = p;

        one.a.count = 1;
        one.a.inputs = p.inputs + i * COLUMNS;
        run(&level, &one, false, 0, ROWS, alone);
        CHECK_MEM(alone, batch + i * ROWS, sizeof alone);
    }
    free_problem(&p);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    level = berthi_level_operations(berthi_cpu_best_level());
    T_RUN(test_products_are_within_their_bounds);
    T_RUN(test_shares_of_rows_make_the_whole);
    T_RUN(test_an_input_alone_gives_the_same_bits);
    T_MAIN_END;
}
