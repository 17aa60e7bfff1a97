/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of the GPU's products with weights that are not of 4 bits, on the host: the bits
 * of multiply_plain.h for all dtypes of weights and inputs, numbers that are not finite or
 * tiny among them, and exact sums of codes, for any shape and address; lanes ascending,
 * descending and in a random order; the same for an input alone or in a batch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/fenced.h"
#include "tests/simt_level.h"
#include "tests/random.h"
#include "tests/t.h"

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static uint64_t state = 0xA0761D6478BD642Fu;

/* Some of them large, some tiny: sums depend on their order. */
static float
next_value(void)
{
    const float share = random_signed(&state);

    return ldexpf(share, (int)(random_next(&state) % 13) - 6);
}

static uint64_t
width_of(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

static void *
need(size_t bytes)
{
    void *const memory = calloc(1, bytes + 1);

    if (memory == NULL)
        abort();
    return memory;
}

static void *
draw_values(uint64_t count, int32_t dtype)
{
    void *const values = need(count * width_of(dtype));

    for (uint64_t i = 0; i < count; i++)
        berthi_core_store(values, dtype, i, next_value());
    return values;
}

/* ------------------------------------------------------------------------- numbers */

typedef struct plain_case {
    uint64_t rows;
    uint64_t columns;
    uint32_t count;
    int32_t weight_dtype;
    int32_t dtype;
    bool has_bias;
    bool is_odd; /* addresses for one element */
} plain_case;

typedef struct problem {
    berthi_multiply_plain_arguments a;
    uint64_t output_bytes;
    uint8_t *memory[3];
} problem;

/* A copy of values that ends where its memory does. */
static const void *
place(void *values, uint64_t bytes, uint64_t odd, uint8_t **out_memory)
{
    const void *const at = fenced_copy(values, bytes, odd, out_memory);

    free(values);
    return at;
}

static problem
draw_problem(const plain_case *c)
{
    const uint64_t width = width_of(c->dtype);
    const uint64_t weight_width = width_of(c->weight_dtype);
    problem p = { .a = { .weight_dtype = c->weight_dtype, .dtype = c->dtype,
                         .count = c->count, .rows = c->rows, .columns = c->columns },
                  .output_bytes = c->count * c->rows * width };

    p.a.weight = place(draw_values(c->rows * c->columns, c->weight_dtype),
                       c->rows * c->columns * weight_width, c->is_odd ? weight_width : 0,
                       &p.memory[0]);
    p.a.inputs = place(draw_values(c->count * c->columns, c->dtype),
                       c->count * c->columns * width, c->is_odd ? width : 0, &p.memory[1]);
    p.a.bias = place(draw_values(c->rows, c->dtype), c->rows * width, c->is_odd ? width : 0,
                     &p.memory[2]);
    if (!c->has_bias)
        p.a.bias = NULL;
    return p;
}

static void
free_problem(problem *p)
{
    for (int i = 0; i < 3; i++)
        free(p->memory[i]);
}

static void
check_case(const plain_case *c)
{
    problem p = draw_problem(c);
    char what[120];

    snprintf(what, sizeof what, "%llu x %llu of dtype %d, %u inputs of dtype %d",
             (unsigned long long)c->rows, (unsigned long long)c->columns, c->weight_dtype,
             c->count, c->dtype);
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        fenced_output tested =
            fenced_begin(p.output_bytes, c->is_odd ? width_of(c->dtype) : 0);
        fenced_output expected = fenced_begin(p.output_bytes, 0);

        simt_level_set_order((simt_order)order, c->rows);
        p.a.outputs = tested.bytes;
        simt_multiply_plain(&p.a);
        p.a.outputs = expected.bytes;
        berthi_multiply_plain_run(&p.a);
        fenced_end(&tested, &expected, what);
    }
    free_problem(&p);
}

/* Tails of eights, of turns, of CTAs and of inputs. */
static void
test_any_shape(void)
{
    static const uint64_t rows[] = { 1, 7, 8, 9, 17 };
    static const uint64_t columns[] = { 0, 1, 8, 31, 255, 256, 257, 264, 1000 };
    static const uint32_t counts[] = { 1, 3, 4, 5, 9 };

    for (unsigned i = 0; i < 5 * 9 * 5; i++)
        check_case(&(plain_case){ .rows = rows[i % 5], .columns = columns[i / 5 % 9],
                                  .count = counts[(i + i / 45) % 5],
                                  .weight_dtype = dtypes[i / 3 % 3], .dtype = dtypes[i % 3],
                                  .has_bias = i % 2 == 0 });
}

static void
test_odd_addresses(void)
{
    for (unsigned i = 0; i < 18; i++)
        check_case(&(plain_case){ .rows = 3 + i, .columns = 40 * i, .count = 1 + i % 6,
                                  .weight_dtype = dtypes[i / 3 % 3], .dtype = dtypes[i % 3],
                                  .has_bias = i % 2 == 0, .is_odd = true });
}

/* Infinities, and products below the smallest number; of a NaN only that it is one. */
static void
test_extremes(void)
{
    float weight[512];
    float inputs[512];
    float sums[2][2];

    for (uint32_t k = 0; k < 512; k++) {
        weight[k] = k % 256 == 3 ? 0x1p-140f : 0x1p-75f;
        inputs[k] = k % 2 == 0 ? 0x1p-75f : -0x1.8p-74f;
    }
    weight[256] = INFINITY;
    for (int order = 0; order < SIMT_ORDER_COUNT; order++)
        for (uint32_t part = 0; part < 3; part++) {
            berthi_multiply_plain_arguments a = { .weight = weight, .inputs = inputs,
                                                  .weight_dtype = BERTH_F32,
                                                  .dtype = BERTH_F32, .count = 1, .rows = 2,
                                                  .columns = 256 };

            inputs[0] = part == 2 ? 0.0f : 0x1p-75f;
            simt_level_set_order((simt_order)order, part);
            a.outputs = sums[0];
            simt_multiply_plain(&a);
            a.outputs = sums[1];
            berthi_multiply_plain_run(&a);
            CHECK_EQ(berthi_core_bits(sums[0][0]), berthi_core_bits(sums[1][0]));
            CHECK(part == 2 ? isnan(sums[0][1]) && isnan(sums[1][1])
                            : sums[0][1] == INFINITY && sums[1][1] == INFINITY);
        }
}

/* Each input's outputs are those that it has alone. */
static void
test_alone_and_in_a_batch(void)
{
    for (unsigned i = 0; i < 3; i++) {
        const plain_case c = { .rows = 11, .columns = 300, .count = 7, .has_bias = true,
                               .weight_dtype = BERTH_BF16, .dtype = dtypes[i] };
        const uint64_t width = width_of(c.dtype);
        problem p = draw_problem(&c);
        uint8_t *const all = need(p.output_bytes);
        uint8_t *const alone = need(p.output_bytes);
        berthi_multiply_plain_arguments one = p.a;

        p.a.outputs = all;
        simt_multiply_plain(&p.a);
        one.count = 1;
        for (uint32_t k = 0; k < c.count; k++) {
            one.inputs = (const uint8_t *)p.a.inputs + k * c.columns * width;
            one.outputs = alone + k * c.rows * width;
            simt_multiply_plain(&one);
        }
        CHECK_MEM(all, alone, p.output_bytes);
        free(all);
        free(alone);
        free_problem(&p);
    }
}

/* --------------------------------------------------------------------------- codes */

static void
check_codes(uint64_t rows, uint64_t columns, uint32_t count, uint64_t odd, int extreme)
{
    int8_t *const weights = need(rows * columns);
    int8_t *const inputs = need(count * columns);
    uint8_t *memory[2];
    berthi_multiply_int8_arguments a = { .rows = rows, .columns = columns, .count = count };
    char what[80];

    for (uint64_t k = 0; k < rows * columns; k++)
        weights[k] = extreme != 0 ? (int8_t)-128 : (int8_t)random_next(&state);
    for (uint64_t k = 0; k < count * columns; k++)
        inputs[k] = extreme != 0 ? (int8_t)extreme : (int8_t)random_next(&state);
    a.weights = (const int8_t *)fenced_copy(weights, rows * columns, odd, &memory[0]);
    a.inputs = (const int8_t *)fenced_copy(inputs, count * columns, odd, &memory[1]);
    snprintf(what, sizeof what, "codes, %llu x %llu, %u inputs", (unsigned long long)rows,
             (unsigned long long)columns, count);
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        fenced_output tested = fenced_begin(count * rows * 4, odd != 0 ? 4 : 0);
        fenced_output expected = fenced_begin(count * rows * 4, 0);

        simt_level_set_order((simt_order)order, rows);
        a.sums = (int32_t *)(void *)tested.bytes;
        simt_multiply_int8(&a);
        a.sums = (int32_t *)(void *)expected.bytes;
        berthi_multiply_int8_run(&a, berthi_scalar_operations.dot_int8);
        fenced_end(&tested, &expected, what);
    }
    free(weights);
    free(inputs);
    free(memory[0]);
    free(memory[1]);
}

static void
test_codes(void)
{
    static const uint64_t rows[] = { 1, 7, 8, 9, 65 };
    static const uint64_t columns[] = { 0, 1, 15, 16, 17, 512, 513, 528, 1040 };
    static const uint32_t counts[] = { 1, 7, 8, 9, 17 };

    for (unsigned i = 0; i < 5 * 9 * 5; i++)
        check_codes(rows[i % 5], columns[i / 5 % 9], counts[(i + i / 45) % 5],
                    i % 4 == 1 ? 1 + i % 3 : 0, 0);
}

/* One input: several turns at once, of a lane four or, of f32, two, and what is left. */
static void
test_one_input(void)
{
    static const uint64_t columns[] = { 504, 512, 520, 1016, 1024, 1032, 2048, 2808 };

    for (unsigned i = 0; i < 8 * 3 * 3; i++)
        check_case(&(plain_case){ .rows = 9, .columns = columns[i % 8], .count = 1,
                                  .weight_dtype = dtypes[(i / 8 + i / 24) % 3],
                                  .dtype = dtypes[i / 8 % 3], .has_bias = i % 2 == 0 });
    for (unsigned i = 0; i < 8; i++)
        check_codes(9, 2 * columns[i], 1, 0, 0);
}

/* As many columns as there may be, of the codes with the largest products. */
static void
test_largest_sums(void)
{
    check_codes(2, BERTHI_INT8_COLUMNS, 1, 0, -128);
    check_codes(1, BERTHI_INT8_COLUMNS, 2, 0, 127);
}

/* ------------------------------------------------------------------------ launches */

static void
test_launches_of_numbers(void)
{
    berthi_multiply_plain_arguments a = { .dtype = BERTH_BF16, .weight_dtype = BERTH_F32,
                                          .rows = 17, .columns = 64, .count = 9 };
    berthi_launch l;

    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_product_plain_bf16);
    CHECK_EQ(l.threads, PRODUCT_THREADS);
    CHECK_EQ(l.ctas, 3 * 3);
    CHECK_EQ(l.argument.plain.groups, 3);
    CHECK_EQ(l.argument.plain.is_aligned, 1);
    a.columns = 65;
    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.argument.plain.is_aligned, 0);
    a.count = 0;
    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    a.count = 4;
    a.rows = (uint64_t)BERTHI_MOST_CTAS * 8;
    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.ctas, BERTHI_MOST_CTAS);
    a.count = 5;
    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    a.count = 1;
    a.dtype = BERTH_I8;
    CHECK_EQ(berthi_launch_plain(&a, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
}

static void
test_launches_of_codes(void)
{
    berthi_multiply_int8_arguments a = { .rows = 9, .columns = 64, .count = 17 };
    berthi_launch l;

    CHECK_EQ(berthi_launch_int8_sums(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_product_int8);
    CHECK_EQ(l.ctas, 2 * 3);
    CHECK_EQ(l.argument.int8_sum.groups, 3);
    CHECK_EQ(l.argument.int8_sum.is_aligned, 1);
    a.columns = 72;
    CHECK_EQ(berthi_launch_int8_sums(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.argument.int8_sum.is_aligned, 0);
    a.rows = 0;
    CHECK_EQ(berthi_launch_int8_sums(&a, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    a.rows = 8;
    a.columns = BERTHI_INT8_COLUMNS;
    CHECK_EQ(berthi_launch_int8_sums(&a, &l, NULL), BERTH_OK);
    a.columns++;
    CHECK_EQ(berthi_launch_int8_sums(&a, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_launches_of_numbers);
    T_RUN(test_launches_of_codes);
    if (simt_level_is_there(&why)) {
        T_RUN(test_any_shape);
        T_RUN(test_odd_addresses);
        T_RUN(test_extremes);
        T_RUN(test_alone_and_in_a_batch);
        T_RUN(test_codes);
        T_RUN(test_one_input);
        T_RUN(test_largest_sums);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
