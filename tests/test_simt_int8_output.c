/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LLM.int8() makes of sums, on the GPU's kernels, run on the host: byte for byte the
 * reference's outputs for any number of rows and inputs, sums up to the largest, maxima
 * that are nothing or not finite, with a bias, with outlier columns in a list that has room
 * and in one that has none; lanes ascending, descending and in a random order.
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
static uint64_t state = 0xD1B54A32D192ED03u;

static void *
need(size_t bytes)
{
    void *const memory = calloc(1, bytes + 1);

    if (memory == NULL)
        abort();
    return memory;
}

typedef struct output_case {
    uint64_t rows;
    uint64_t count;
    int32_t dtype;
    bool has_bias;
    bool is_odd;          /* sums and outputs at addresses for one element */
    uint64_t columns;     /* 0: no outliers are asked for */
    uint32_t one_in;      /* outliers: one of so many columns; 0: none is one */
    uint32_t capacity;    /* of their list */
} output_case;

typedef struct problem {
    output_case c;
    int64_t *sums;       /* the reference's */
    int32_t *words;      /* the same */
    float *input_maximum;
    float *weight_maximum;
    uint16_t *bias;
    int8_t *weights;
    uint8_t *inputs;
    uint8_t *is_outlier;
    uint32_t *mask;
    uint32_t *list;
    uint32_t found;
} problem;

static void
draw_outliers(problem *p)
{
    const output_case *const c = &p->c;

    p->weights = need(c->rows * c->columns);
    p->inputs = need(c->count * c->columns * 4);
    p->is_outlier = need(c->columns);
    p->mask = need((c->columns + 31) / 32 * sizeof *p->mask);
    p->list = need(c->capacity * sizeof *p->list);
    for (uint64_t i = 0; i < c->rows * c->columns; i++)
        p->weights[i] = (int8_t)(random_next(&state) % 255 - 127);
    for (uint64_t i = 0; i < c->count * c->columns; i++)
        berthi_core_store(p->inputs, c->dtype, i, 8.0f * random_signed(&state));
    for (uint64_t k = 0; k < c->columns; k++) {
        p->is_outlier[k] = c->one_in != 0 && random_next(&state) % c->one_in == 0;
        if (p->is_outlier[k] == 0)
            continue;
        p->mask[k / 32] |= 1u << k % 32;
        if (p->found < c->capacity)
            p->list[p->found] = (uint32_t)k;
        p->found++;
    }
}

/* Some sums are the largest, some maxima nothing, infinite or NaN. */
static problem
draw_problem(const output_case *c)
{
    problem p = { .c = *c };

    p.sums = need(c->count * c->rows * sizeof *p.sums);
    p.words = need(c->count * c->rows * sizeof *p.words);
    p.input_maximum = need(c->count * sizeof *p.input_maximum);
    p.weight_maximum = need(c->rows * sizeof *p.weight_maximum);
    p.bias = need(c->rows * sizeof *p.bias);
    for (uint64_t i = 0; i < c->count * c->rows; i++) {
        p.words[i] = i % 61 == 7 ? INT32_MAX
                     : i % 61 == 11
                         ? INT32_MIN
                         : (int32_t)(random_next(&state) >> (33 + i % 16)) - (1 << 12);
        p.sums[i] = p.words[i];
    }
    for (uint64_t i = 0; i < c->count; i++)
        p.input_maximum[i] = i % 7 == 5 ? 0.0f : 4.0f + 3.0f * random_signed(&state);
    for (uint64_t i = 0; i < c->rows; i++) {
        p.weight_maximum[i] = i % 31 == 3 ? 0.0f : 0.1f + 0.09f * random_signed(&state);
        if (i % 97 == 13)
            p.weight_maximum[i] = i % 2 == 0 ? INFINITY : NAN;
        p.bias[i] = berthi_core_to_fp16(random_signed(&state));
    }
    draw_outliers(&p);
    return p;
}

static void
free_problem(problem *p)
{
    free(p->sums);
    free(p->words);
    free(p->input_maximum);
    free(p->weight_maximum);
    free(p->bias);
    free(p->weights);
    free(p->inputs);
    free(p->is_outlier);
    free(p->mask);
    free(p->list);
}

static void
make_expected(const problem *p, void *outputs)
{
    const output_case *const c = &p->c;
    const berthi_dot_arguments dot = { .weights = p->weights, .rows = c->rows,
                                       .columns = c->columns, .end_row = c->rows,
                                       .count = (uint32_t)c->count, .sums = p->sums };

    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &dot, .weight_maximum = p->weight_maximum, .input_maximum = p->input_maximum,
        .bias = c->has_bias ? p->bias : NULL, .inputs = p->inputs,
        .is_outlier = c->columns > 0 ? p->is_outlier : NULL, .dtype = c->dtype,
        .outputs = outputs });
}

/* In every order what the reference makes of it. */
static void
check_case(const output_case *c)
{
    const size_t width = c->dtype == BERTH_F32 ? 4 : 2;
    problem p = draw_problem(c);
    const berthi_outlier_room room = { p.mask, p.list, &p.found, c->capacity };
    uint8_t *memory;
    const uint8_t *const sums = fenced_copy(p.words, c->count * c->rows * sizeof *p.words,
                                            c->is_odd ? 4 : 0, &memory);
    char what[120];

    snprintf(what, sizeof what, "dtype %d, %llu inputs, %llu rows, %llu columns, room for %u",
             c->dtype, (unsigned long long)c->count, (unsigned long long)c->rows,
             (unsigned long long)c->columns, c->capacity);
    for (int order = 0; order < SIMT_ORDER_COUNT; order++) {
        fenced_output tested =
            fenced_begin(c->count * c->rows * width, c->is_odd ? width : 0);
        fenced_output expected = fenced_begin(c->count * c->rows * width, 0);

        simt_level_set_order((simt_order)order, c->rows);
        simt_int8_output(&(berthi_int8_output_task){
            .sums = (const int32_t *)(const void *)sums, .input_maximum = p.input_maximum,
            .weight_maximum = p.weight_maximum, .bias = c->has_bias ? p.bias : NULL,
            .outputs = tested.bytes, .dtype = c->dtype, .count = c->count, .rows = c->rows,
            .outliers = c->columns > 0 ? room : (berthi_outlier_room){ 0 }, .weights = p.weights,
            .inputs = p.inputs, .columns = c->columns });
        make_expected(&p, expected.bytes);
        fenced_end(&tested, &expected, what);
    }
    free(memory);
    free_problem(&p);
}

/* --------------------------------------------------------------------------- tests */

/* Tails of fours, of CTAs and of turns. */
static void
test_any_shape(void)
{
    static const uint64_t rows[] = { 1, 3, 4, 5, 100, 1023, 1024, 1028, 2052 };
    static const uint64_t counts[] = { 1, 7, 8, 9, 17 };

    for (unsigned i = 0; i < 9 * 5; i++)
        check_case(&(output_case){ .rows = rows[i / 5], .count = counts[i % 5],
                                   .dtype = dtypes[i % 3], .has_bias = i % 2 == 0 });
}

static void
test_odd_addresses(void)
{
    for (unsigned i = 0; i < 12; i++)
        check_case(&(output_case){ .rows = 4 * (i + 1), .count = 1 + i % 9,
                                   .dtype = dtypes[i % 3], .has_bias = i % 2 == 0,
                                   .is_odd = true });
}

/* None, some, more than the list has room for. */
static void
test_outliers(void)
{
    static const uint32_t one_in[] = { 0, 16, 3 };

    for (unsigned i = 0; i < 18; i++)
        check_case(&(output_case){ .rows = 8 + 5 * i, .count = 1 + i % 10,
                                   .dtype = dtypes[i % 3], .has_bias = i % 4 == 0,
                                   .is_odd = i % 5 == 0, .columns = 64 + 31 * i,
                                   .one_in = one_in[i / 3 % 3],
                                   .capacity = i < 9 ? 1024 : 5 });
}

/* The largest grid; nothing; what no kernel does. */
static void
test_launches(void)
{
    uint32_t mask = 0;
    berthi_int8_output_task t = { .dtype = BERTH_BF16, .rows = 1025, .count = 9 };
    berthi_launch l;

    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_int8_output_bf16);
    CHECK_EQ(l.threads, INT8_OUTPUT_THREADS);
    CHECK_EQ(l.ctas, 4);
    t.outliers = (berthi_outlier_room){ .mask = &mask, .capacity = 1 };
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_int8_output_bf16_outliers);
    t.columns = UINT64_C(1) << 32;
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    t.outliers = (berthi_outlier_room){ 0 };
    t.count = 0;
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.kernel, KERNEL_NONE);
    t.count = (uint64_t)BERTHI_MOST_CTAS * INT8_OUTPUT_TURNS;
    t.rows = 1024;
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_OK);
    CHECK_EQ(l.ctas, BERTHI_MOST_CTAS);
    t.rows = 1025;
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_EUNSUPPORTED);
    t.rows = UINT64_C(1) << 32;
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_EUNSUPPORTED);
    t.rows = 4;
    t.dtype = BERTH_U8;
    CHECK_EQ(berthi_launch_int8_output(&t, &l, NULL), BERTH_EUNSUPPORTED);
    CHECK_EQ(l.kernel, KERNEL_NONE);
}

int
main(int argc, char **argv)
{
    const char *why;

    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_launches);
    if (simt_level_is_there(&why)) {
        T_RUN(test_any_shape);
        T_RUN(test_odd_addresses);
        T_RUN(test_outliers);
    } else {
        T_RUN(simt_level_test_nothing);
    }
    T_MAIN_END;
}
