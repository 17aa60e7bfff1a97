/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLM.int8() products: activations with outlier columns and the exact integer
 * sums against the real library's, the output's rounding step by step, and
 * every level's sums against the reference.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/t.h"
#include "tests/vectors.h"

static vectors file;

static void
check_activations(const vectors *v, const char *prefix)
{
    const berthi_entry *const input = vectors_find(v, prefix, "input");
    const berthi_entry *const columns = vectors_find(v, prefix, "columns");
    const int64_t *const outliers = vectors_data(v, columns);
    uint64_t shape[BERTH_MAX_RANK];
    int8_t codes[1024];
    float maximum[16];
    uint8_t is_outlier[128];
    uint64_t found = 0;

    berthi_entry_shape(v->header.text, input, shape);
    memset(is_outlier, 9, sizeof is_outlier);
    berthi_encode_activations(&(berthi_activation_arguments){
        vectors_data(v, input), input->dtype, shape[0], shape[1], 6.0f, codes, maximum,
        is_outlier, NULL });
    CHECK_MEM(codes, vectors_either(v, prefix, "codes", "codes"), shape[0] * shape[1]);
    CHECK_MEM(maximum, vectors_either(v, prefix, "scb", "scb"), shape[0] * sizeof(float));
    for (uint64_t k = 0; k < shape[1]; k++) {
        CHECK_LE(is_outlier[k], 1);
        if (is_outlier[k] == 0)
            continue;
        CHECK_LT(found, (columns->end - columns->begin) / 8);
        CHECK_EQ(outliers[found++], k);
    }
    CHECK_EQ(found, (columns->end - columns->begin) / 8);
}

static void
test_activations_equal_the_library(void)
{
    CHECK_EQ(vectors_each(&file, "int8/threshold6", "columns", check_activations), 4);
}

/* Without a threshold, activations are rows like any other. */
static void
test_no_threshold_is_a_row(void)
{
    const uint16_t x[6] = { 0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x4700 };
    int8_t codes[2][6];
    float maximum[2][2];

    berthi_encode_activations(&(berthi_activation_arguments){
        x, BERTH_F16, 2, 3, 0.0f, codes[0], maximum[0], NULL, NULL });
    berthi_scalar_operations.encode_rows(
        &(berthi_rows_arguments){ x, BERTH_F16, 2, 3, codes[1], maximum[1] });
    CHECK_MEM(codes[0], codes[1], 6);
    CHECK_MEM(maximum[0], maximum[1], sizeof maximum[0]);
}

static berthi_operations
tested_level(void)
{
    return berthi_level_operations(berthi_cpu_best_level());
}

static void
test_sums_equal_the_library(void)
{
    const int32_t *const expected = vectors_either(&file, "int8/matmul", "acc", "acc");
    int64_t sums[5 * 24];
    berthi_dot_arguments a = { .weights = vectors_either(&file, "int8/matmul", "w", "w"),
                               .inputs = vectors_either(&file, "int8/matmul", "a", "a"),
                               .rows = 24,
                               .columns = 96,
                               .end_row = 24,
                               .count = 5,
                               .sums = sums };

    berthi_scalar_operations.dot_int8(&a);
    for (int i = 0; i < 5 * 24; i++)
        CHECK_EQ(sums[i], expected[i]);
    memset(sums, 0, sizeof sums);
    tested_level().dot_int8(&a);
    for (int i = 0; i < 5 * 24; i++)
        CHECK_EQ(sums[i], expected[i]);
}

/* All codes at their extremes, beyond where 32 bits would overflow. */
static void
test_long_rows_do_not_overflow(void)
{
    enum { COLUMNS = 300001 };
    int8_t *const codes = malloc(COLUMNS);
    int64_t sum[2];

    for (int sign = -1; sign <= 1; sign += 2) {
        int8_t *const other = malloc(COLUMNS);
        berthi_dot_arguments a = { codes, other, 1, COLUMNS, 0, 1, 1, &sum[0] };

        memset(codes, 127, COLUMNS);
        memset(other, sign * 127, COLUMNS);
        berthi_scalar_operations.dot_int8(&a);
        a.sums = &sum[1];
        tested_level().dot_int8(&a);
        CHECK_EQ(sum[0], (int64_t)sign * 127 * 127 * COLUMNS);
        CHECK_EQ(sum[1], sum[0]);
        free(other);
    }
    free(codes);
}

static void
test_output_rounds_in_the_stated_order(void)
{
    static const struct {
        int64_t sum;
        float input;
        float weight;
        float bias;
        uint16_t expected;
    } cases[] = {
        { 0, 1, 1, 0, 0x0000 },
        { 0, 1, 1, 1.5f, 0x3E00 },
        { 16129, 1, 1, 0, 0x3C00 },      /* 127 * 127: 1 */
        { -16129, 2, 0.5f, 0, 0xBC00 },
        { 16129, 300, 300, 0, 0x7C00 },  /* overflows to infinity */
        { 1, INFINITY, 1, 0, 0x7C00 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_EQ(berthi_core_int8_output(cases[i].sum, cases[i].input, cases[i].weight,
                                         cases[i].bias),
                 cases[i].expected);
}

/* A product with outliers, step by step by hand. */
static void
test_outliers_are_added_in_the_dtype(void)
{
    const float x[2 * 3] = { 0.5f, 8.0f, -0.25f, 1.0f, 0.0f, 0.75f };
    const int8_t w[2 * 3] = { 127, 64, -127, 10, -127, 0 };
    const float weight_maximum[2] = { 2.0f, 3.0f };
    const uint16_t bias[2] = { 0x3C00, 0x0000 };
    int8_t codes[6];
    float maximum[2];
    uint8_t is_outlier[4] = { 0, 0, 0, 1 }; /* one more than there are columns */
    int64_t sums[4];
    float outputs[4];
    const berthi_dot_arguments a = { w, codes, 2, 3, 0, 2, 2, sums };

    berthi_encode_activations(&(berthi_activation_arguments){
        x, BERTH_F32, 2, 3, 6.0f, codes, maximum, is_outlier, NULL });
    CHECK_EQ(is_outlier[0] + 2 * is_outlier[1] + 4 * is_outlier[2], 2);
    CHECK_EQ(codes[1], 0);
    CHECK_EQ(codes[4], 0);
    tested_level().dot_int8(&a);
    berthi_int8_output(&(berthi_int8_output_arguments){
        .dot = &a, .weight_maximum = weight_maximum, .input_maximum = maximum, .bias = bias,
        .inputs = x, .is_outlier = is_outlier, .dtype = BERTH_F32, .outputs = outputs });
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t row = 0; row < 2; row++) {
            const float plain = berthi_core_from_fp16(berthi_core_int8_output(
                sums[i * 2 + row], maximum[i], weight_maximum[row],
                row == 0 ? 1.0f : 0.0f));
            const float added =
                x[i * 3 + 1] * berthi_core_int8_value(w[row * 3 + 1], weight_maximum[row]);

            CHECK_EQ(berthi_core_bits(outputs[i * 2 + row]),
                     berthi_core_bits(plain + added));
        }
    /* Near what real numbers give: 1 + (0.5 * 2 + 8 * 64/127 * 2 + 0.25 * 2). */
    CHECK(fabsf(outputs[0] - (1.0f + 1.5f + 8.0f * 128.0f / 127.0f)) < 0.02f);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_no_threshold_is_a_row);
    T_RUN(test_long_rows_do_not_overflow);
    T_RUN(test_output_rounds_in_the_stated_order);
    T_RUN(test_outliers_are_added_in_the_dtype);
    if (vectors_has_opened(&file, "tests/data/vectors.safetensors")) {
        T_RUN(test_activations_equal_the_library);
        T_RUN(test_sums_equal_the_library);
        vectors_close(&file);
    }
    T_MAIN_END;
}
