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
#include "kernels/sys.h"
#include "tests/t.h"

static berthi_operations level; /* under test */

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
    float *exact;   /* as decoded */
    float *weights; /* the same, with the values that codes stand for as inputs meet them */
    uint8_t *codes;
    float *absmax;
    float *inputs;
    void *stored; /* the same in their dtype */
    float *scratch;
} problem;

/* The stored inputs; p->inputs then are what is stored. */
static void
store_inputs(problem *p, int32_t dtype, uint64_t count)
{
    p->stored = malloc(count * sizeof(float));
    p->a.inputs = p->stored;
    p->a.dtype = dtype;
    for (uint64_t i = 0; i < count; i++) {
        berthi_core_store(p->stored, dtype, i, p->inputs[i]);
        p->inputs[i] = berthi_core_load(p->stored, dtype, i);
    }
}

/* Each code's value is rounded when inputs are bf16, before its absmax. */
static void
round_weights(problem *p, const uint32_t *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t code = i % 2 == 0 ? p->codes[i / 2] >> 4 : p->codes[i / 2] & 15u;
        float value = berthi_core_float(values[code]);

        p->exact[i] = p->weights[i];
        if (p->a.dtype == BERTH_BF16)
            value = berthi_core_from_bf16(berthi_core_to_bf16(value));
        p->weights[i] = value * p->absmax[i / p->a.block_size];
    }
}

static void
make_problem(problem *p, uint64_t rows, uint64_t columns, uint32_t count, uint32_t block,
             bool is_fp4, int32_t dtype, uint64_t seed)
{
    const uint64_t n = rows * columns;
    uint64_t state = seed;

    p->exact = malloc(n * sizeof(float));
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
                                       .scratch = p->scratch };
    store_inputs(p, dtype, columns * count);
    round_weights(p, is_fp4 ? berthi_fp4_values : berthi_nf4_values, n);
}

static void
free_problem(problem *p)
{
    free(p->exact);
    free(p->weights);
    free(p->codes);
    free(p->absmax);
    free(p->inputs);
    free(p->stored);
    free(p->scratch);
}

/* The caller's arithmetic still has numbers that small, by their bits: comparing may see 0s. */
static bool
has_subnormals(void)
{
    volatile float small = 0x1p-140f;

    small += small;
    return berthi_core_bits(small) == 0x400u;
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
    CHECK(has_subnormals());
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

/* Rounded codes move the whole little: 3e-3 of its norm is allowed. */
static bool
is_near_exact(const problem *p, const float *outputs)
{
    double error = 0;
    double norm = 0;

    for (uint32_t i = 0; i < p->a.count; i++)
        for (uint64_t row = 0; row < p->a.rows; row++) {
            double exact = 0;

            for (uint64_t k = 0; k < p->a.columns; k++)
                exact += (double)p->exact[row * p->a.columns + k]
                         * (double)p->inputs[i * p->a.columns + k];
            error += pow((double)outputs[i * p->a.rows + row] - exact, 2);
            norm += exact * exact;
        }
    return sqrt(error) <= 3e-3 * sqrt(norm);
}

static const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F16 };

static const struct {
    uint64_t rows;
    uint64_t columns;
    uint32_t block;
} shapes[] = {
    { 1, 32, 32 },   { 7, 64, 64 },   { 33, 256, 64 },  { 5, 4096, 4096 },
    { 9, 384, 128 }, { 12, 96, 64 },  { 3, 45, 64 },    { 6, 1, 32 },
    { 4, 100, 32 },  { 130, 128, 64 }, { 4, 224, 32 },  { 8, 192, 64 },
    { 3, 2048, 32 }, { 5, 768, 256 },
};

static void
test_products_are_within_their_bounds(void)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t count = 1; count <= 32; count = count < 9 ? count + 1 : count + 7)
            for (uint64_t kind = 0; kind < 6; kind++) {
                const bool is_fp4 = kind % 2 == 1;
                float *const outputs =
                    malloc((shapes[s].rows * count + 1) * sizeof(float));
                problem p;

                make_problem(&p, shapes[s].rows, shapes[s].columns, count,
                             shapes[s].block, is_fp4, dtypes[kind / 2],
                             s * 64 + count + kind * 4096);
                memset(outputs, 0xFF, (shapes[s].rows * count + 1) * sizeof(float));
                run(&level, &p, is_fp4, 0, shapes[s].rows, outputs);
                CHECK(is_within_bound(&p, outputs));
                CHECK(shapes[s].columns < 64 || is_near_exact(&p, outputs));
                CHECK_EQ(berthi_core_bits(outputs[shapes[s].rows * count]), UINT32_MAX);
                free_problem(&p);
                free(outputs);
            }
}

static void
test_shares_of_rows_make_the_whole(void)
{
    enum { ROWS = 23, MOST = 17 };
    static const uint32_t counts[] = { 1, 7, MOST };
    float whole[ROWS * MOST];
    float parts[ROWS * MOST];

    for (size_t d = 0; d < 9; d++) {
        const uint32_t count = counts[d / 3];
        problem p;

        make_problem(&p, ROWS, 192, count, 64, false, dtypes[d % 3], 1);
        run(&level, &p, false, 0, ROWS, whole);
        for (uint64_t cut = 0; cut <= ROWS; cut++) {
            memset(parts, 0, sizeof parts);
            run(&level, &p, false, 0, cut, parts);
            for (uint32_t i = 0; i < count; i++)
                for (uint64_t row = cut; row < ROWS; row++)
                    CHECK_EQ(berthi_core_bits(parts[i * ROWS + row]), 0);
            run(&level, &p, false, cut, ROWS, parts);
            CHECK_MEM(parts, whole, ROWS * count * sizeof(float));
        }
        /* As the inputs have been arranged; only a level that does not arrange them reads them. */
        p.a.is_arranged = true;
        if (strcmp(level.level, "scalar") != 0)
            memset(p.stored, 0xFF, count * 192u * 2);
        for (uint64_t cut = 0; cut <= ROWS; cut++) {
            memset(parts, 0, sizeof parts);
            run(&level, &p, false, 0, cut, parts);
            run(&level, &p, false, cut, ROWS, parts);
            CHECK_MEM(parts, whole, ROWS * count * sizeof(float));
        }
        free_problem(&p);
    }
}

/* Every input of the problem by itself, against all of them at once; and some at once. */
static void
check_alone(const problem *p, uint64_t rows, uint64_t columns, uint32_t count)
{
    static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 16, 17 };
    const uint64_t width = p->a.dtype == BERTH_F32 ? 4 : 2;
    float *const batch = malloc(rows * count * sizeof(float));
    float *const some = malloc(rows * count * sizeof(float));

    run(&level, p, false, 0, rows, batch);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint32_t i = 0; i + sizes[s] <= count; i += s == 0 ? 1 : 6) {
            problem few = *p;

            few.a.count = sizes[s];
            few.a.inputs = (const uint8_t *)p->stored + (uint64_t)i * columns * width;
            run(&level, &few, false, 0, rows, some);
            CHECK_MEM(some, batch + i * rows, rows * sizes[s] * sizeof(float));
        }
    free(batch);
    free(some);
}

static void
test_an_input_alone_gives_the_same_bits(void)
{
    enum { COUNT = 21 };
    static const struct {
        uint64_t rows;
        uint64_t columns;
        uint32_t block;
    } of[] = { { 11, 320, 64 }, { 1, 64, 64 },   { 16, 128, 64 },  { 17, 192, 64 },
               { 5, 256, 128 }, { 33, 448, 64 }, { 3, 1024, 256 }, { 4, 4096, 4096 } };

    for (size_t o = 0; o < sizeof of / sizeof of[0]; o++)
        for (size_t d = 0; d < 3; d++) {
            problem p;

            make_problem(&p, of[o].rows, of[o].columns, COUNT, of[o].block, false, dtypes[d], 2);
            check_alone(&p, of[o].rows, of[o].columns, COUNT);
            free_problem(&p);
        }
}

/* Inputs, products and sums that are subnormal, and what is just above. */
static void
test_the_smallest_alone_give_the_same_bits(void)
{
    enum { ROWS = 19, COLUMNS = 448, COUNT = 21 };

    for (size_t d = 0; d < 2; d++)
        for (int scale = -136; scale <= -112; scale++) {
            problem p;

            make_problem(&p, ROWS, COLUMNS, COUNT, 64, false, dtypes[d], 4);
            for (uint64_t i = 0; i < COLUMNS * COUNT; i++)
                berthi_core_store(p.stored, dtypes[d], i, ldexpf(p.inputs[i], scale));
            for (uint64_t i = 0; i < ROWS * COLUMNS / 64; i++)
                p.absmax[i] = 0x1p40f;
            check_alone(&p, ROWS, COLUMNS, COUNT);
            free_problem(&p);
        }
}

/* Codes that end where their memory ends, and scratch at any address. */
static void
test_unaligned_codes_and_scratch(void)
{
    enum { ROWS = 5, COLUMNS = 160, COUNT = 5 };
    float expected[ROWS * COUNT];
    float outputs[ROWS * COUNT];

    for (size_t d = 0; d < 3; d++) {
        const uint64_t places = berthi_product_scratch(COLUMNS, COUNT);
        float *const scratch = malloc((places + 17) * sizeof(float));
        problem p;

        make_problem(&p, ROWS, COLUMNS, COUNT, 32, false, dtypes[d], 3);
        run(&level, &p, false, 0, ROWS, expected);
        for (uint64_t shift = 0; shift < 16; shift++) {
            const uint64_t bytes = ROWS * COLUMNS / 2;
            uint8_t *const moved = malloc(bytes + shift);
            problem other = p;

            memcpy(moved + shift, p.codes, bytes);
            other.a.codes = moved + shift;
            other.a.scratch = scratch + shift;
            memset(scratch, 0xFF, (places + 17) * sizeof(float));
            run(&level, &other, false, 0, ROWS, outputs);
            CHECK_MEM(outputs, expected, sizeof expected);
            CHECK_EQ(berthi_core_bits(scratch[shift + places]), UINT32_MAX);
            free(moved);
        }
        free_problem(&p);
        free(scratch);
    }
}

int
main(int argc, char **argv)
{
    static const berthi_cpu_level levels[] =
        { BERTHI_CPU_SCALAR, BERTHI_CPU_AVX2, BERTHI_CPU_AVX512, BERTHI_CPU_AVX512BF16,
          BERTHI_CPU_AMX, BERTHI_CPU_NEON, BERTHI_CPU_NEONDOT };

    T_MAIN_BEGIN(argc, argv);
    (void)berthi_sys_allow_tiles();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!berthi_cpu_has_level(levels[i]))
            continue;
        level = berthi_level_operations(levels[i]);
        T_NOTE("level %s", level.level);
        T_RUN(test_products_are_within_their_bounds);
        T_RUN(test_shares_of_rows_make_the_whole);
        T_RUN(test_an_input_alone_gives_the_same_bits);
        T_RUN(test_the_smallest_alone_give_the_same_bits);
        T_RUN(test_unaligned_codes_and_scratch);
    }
    T_MAIN_END;
}
