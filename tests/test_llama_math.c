/* SPDX-License-Identifier: Apache-2.0 */
/* test_llama_math.c - the decoder's arithmetic beside products with weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"
#include "tools/llama_math.h"

static bool
is_near(double actual, double expected, double relative)
{
    return fabs(actual - expected) <= relative * fmax(fabs(expected), 1e-30);
}

static float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* -------------------------------------------------------------------- plain numbers */

/* By its fields: what a 16-bit float stands for. */
static double
value_of_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return fraction != 0 ? NAN : sign * INFINITY;
    return sign
           * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static void
test_widens_every_f16(void)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        const double expected = value_of_f16(bits);
        uint16_t back;
        float actual;

        llama_math_widen(BERTH_F16, &bits, 1, &actual);
        if (isnan(expected) ? !isnan(actual) : (double)actual != expected)
            CHECK_EQ(i, UINT32_MAX);
        llama_math_narrow(BERTH_F16, &actual, 1, &back);
        if (isnan(expected) ? (back & 0x7FFF) <= 0x7C00 : back != bits)
            CHECK_EQ(i, UINT32_MAX);
    }
}

static void
test_widens_every_bf16(void)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        uint16_t back;
        float actual;

        llama_math_widen(BERTH_BF16, &bits, 1, &actual);
        llama_math_narrow(BERTH_BF16, &actual, 1, &back);
        if (isnan(actual) ? (back & 0x7FFF) <= 0x7F80 : back != bits)
            CHECK_EQ(i, UINT32_MAX);
        if (!isnan(actual))
            CHECK(float_of(i << 16) == actual);
    }
}

static void
test_rounds_to_even(void)
{
    static const struct {
        int32_t dtype;
        uint32_t bits;
        uint16_t expected;
    } cases[] = {
        { BERTH_BF16, 0x3F808000, 0x3F80 }, { BERTH_BF16, 0x3F808001, 0x3F81 },
        { BERTH_BF16, 0x3F818000, 0x3F82 }, { BERTH_BF16, 0x7F7FFFFF, 0x7F80 },
        { BERTH_BF16, 0x7F800001, 0x7FC0 }, { BERTH_BF16, 0x80000000, 0x8000 },
        { BERTH_F16, 0x3F801000, 0x3C00 },  { BERTH_F16, 0x3F803000, 0x3C02 },
        { BERTH_F16, 0x3F801001, 0x3C01 },  { BERTH_F16, 0x477FEFFF, 0x7BFF },
        { BERTH_F16, 0x477FF000, 0x7C00 },  { BERTH_F16, 0xC77FF000, 0xFC00 },
        { BERTH_F16, 0x33000000, 0x0000 },  { BERTH_F16, 0x33000001, 0x0001 },
        { BERTH_F16, 0x33C00000, 0x0002 },  { BERTH_F16, 0x387FE000, 0x0400 },
        { BERTH_F16, 0xB3800000, 0x8001 },  { BERTH_F16, 0x7FC00000, 0x7E00 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float value = float_of(cases[i].bits);
        uint16_t actual;

        llama_math_narrow(cases[i].dtype, &value, 1, &actual);
        if (!CHECK_EQ(actual, cases[i].expected))
            t_note("case %zu", i);
    }
}

/* Small whole numbers: every sum is exact, whatever its order. */
static void
test_dot_and_add(void)
{
    const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F16, BERTH_I8 };

    for (size_t d = 0; d < 4; d++)
        for (uint64_t count = 0; count < 70; count++) {
            float plain[70];
            float x[70];
            float sums[70];
            int8_t codes[70];
            uint16_t narrow[140];
            float expected = 0;
            const void *const row = dtypes[d] == BERTH_I8 ? (const void *)codes : narrow;

            for (uint64_t i = 0; i < count; i++) {
                plain[i] = (float)(i % 7) - 3;
                x[i] = (float)(i % 5) - 1;
                codes[i] = (int8_t)plain[i];
                sums[i] = (float)i;
                expected += plain[i] * x[i];
            }
            if (dtypes[d] != BERTH_I8)
                llama_math_narrow(dtypes[d], plain, count, narrow);
            CHECK(llama_math_dot(dtypes[d], row, x, count) == expected);
            llama_math_add_scaled(dtypes[d], row, 2, count, sums);
            for (uint64_t i = 0; i < count; i++)
                CHECK(sums[i] == (float)i + 2 * plain[i]);
        }
    CHECK(llama_math_has_dtype(BERTH_I8) && llama_math_has_dtype(BERTH_F16)
          && llama_math_has_dtype(BERTH_BF16) && llama_math_has_dtype(BERTH_F32));
    CHECK(!llama_math_has_dtype(BERTH_U8) && !llama_math_has_dtype(BERTH_F64));
}

/* A product is rounded before it is added, whatever adds it. */
static void
test_added_in_two_steps(void)
{
    float row[70];
    float out[70];

    for (uint64_t count = 0; count <= 70; count++) {
        for (uint64_t i = 0; i < 70; i++) {
            row[i] = 1.0f / (float)(3 + i);
            out[i] = 1.0f / (float)(7 + 3 * i);
        }
        llama_math_add_scaled(BERTH_F32, row, 0.7f, count, out);
        for (uint64_t i = 0; i < 70; i++) {
            const volatile float product = 0.7f * row[i];
            const float before = 1.0f / (float)(7 + 3 * i);

            CHECK(out[i] == (i < count ? before + product : before));
        }
    }
}

/* 16 sums, each of every 16th product, then added by halves: on all processors. */
static float
sum_in_order(const float *row, const float *x, uint64_t count)
{
    float sums[16] = { 0 };

    for (uint64_t i = 0; i < count; i++) {
        const float product = row[i] * x[i];

        sums[i % 16] += product;
    }
    for (uint32_t width = 8; width > 0; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            sums[i] += sums[i + width];
    return sums[0];
}

static void
test_sums_have_an_order(void)
{
    const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F16 };
    uint32_t random = 1;

    for (uint32_t round = 0; round < 300; round++) {
        const int32_t dtype = dtypes[round % 3];
        const uint64_t count = 1 + round % 100;
        float plain[100];
        float x[100];
        float narrow[100]; /* or of 16 bits */

        for (uint64_t i = 0; i < count; i++) {
            random = random * 1664525u + 1013904223u;
            plain[i] = (float)(random >> 8) / 65536.0f - 128;
            random = random * 1664525u + 1013904223u;
            x[i] = (float)(random >> 8) / 65536.0f - 128;
        }
        llama_math_narrow(dtype, plain, count, narrow);
        llama_math_widen(dtype, narrow, count, plain);
        CHECK(llama_math_dot(dtype, narrow, x, count) == sum_in_order(plain, x, count));
    }
}

/* Several inputs give the bits of each, whoever else is there. */
static void
test_dots(void)
{
    const int32_t dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F16, BERTH_I8 };
    float x[9 * 70];
    float plain[70];
    float out[10];

    for (uint32_t i = 0; i < 9 * 70; i++)
        x[i] = 1.0f / (float)(3 + i % 301) - 0.1f;
    for (uint32_t i = 0; i < 70; i++)
        plain[i] = (float)(i * 37 % 101) / 16.0f - 3;
    for (size_t d = 0; d < 4; d++)
        for (uint64_t count = 1; count <= 70; count++)
            for (uint32_t inputs = 0; inputs <= 9; inputs++) {
                _Alignas(float) char row[70 * sizeof(float)];

                if (dtypes[d] == BERTH_I8)
                    for (uint32_t i = 0; i < 70; i++)
                        row[i] = (char)(i * 37 % 256 - 128);
                else
                    llama_math_narrow(dtypes[d], plain, 70, row);
                out[inputs] = 77;
                llama_math_dots(dtypes[d], row, &(llama_math_inputs){ x, count, inputs }, out);
                CHECK(out[inputs] == 77); /* no more than those */
                for (uint32_t k = 0; k < inputs; k++)
                    CHECK(out[k] == llama_math_dot(dtypes[d], row, x + k * count, count));
            }
}

/* Codes on both sides of zero, of one byte each, exactly. */
static void
test_codes_are_whole(void)
{
    int8_t codes[256];
    float floats[256];

    for (int i = 0; i < 256; i++)
        codes[i] = (int8_t)(i - 128);
    llama_math_widen(BERTH_I8, codes, 256, floats);
    for (int i = 0; i < 256; i++)
        CHECK(floats[i] == (float)(i - 128));
}

/* ---------------------------------------------------------------------------- steps */

static void
test_norm(void)
{
    const float x[4] = { 1, -2, 3, -4 };
    const float weight[4] = { 1, 2, 0.5f, 0 };
    const double scale = 1 / sqrt(30.0 / 4 + 0.5);
    float out[4];

    llama_math_norm(x, weight, 0.5f, 4, out);
    for (int i = 0; i < 4; i++)
        CHECK(is_near(out[i], x[i] * weight[i] * scale, 1e-6));
}

static void
test_swiglu(void)
{
    float gate[5] = { 0, 1, -1, 200, -200 };
    const float up[5] = { 3, 2, 2, 1, 1 };

    llama_math_swiglu(gate, up, 5);
    CHECK(gate[0] == 0);
    CHECK(is_near(gate[1], 2 / (1 + exp(-1)), 1e-6));
    CHECK(is_near(gate[2], -2 / (1 + exp(1)), 1e-6));
    CHECK(gate[3] == 200);
    CHECK(gate[4] == 0);
}

static void
test_softmax(void)
{
    float x[3] = { 1000, 1001, 999 };
    float one[1] = { -5 };
    const double sum = 1 + exp(-1) + exp(-2);

    llama_math_softmax(x, 3);
    CHECK(is_near(x[0], exp(-1) / sum, 1e-6));
    CHECK(is_near(x[1], 1 / sum, 1e-6));
    CHECK(is_near(x[2], exp(-2) / sum, 1e-6));
    llama_math_softmax(one, 1);
    CHECK(one[0] == 1);
}

static void
test_largest(void)
{
    const float x[5] = { -3, -1, -2, -1, -7 };

    CHECK_EQ(llama_math_largest(x, 5), 1);
    CHECK_EQ(llama_math_largest(x, 1), 0);
    CHECK_EQ(llama_math_largest(x + 3, 2), 0);
    /* As a device has it: a row of a head that holds one chooses nothing. */
    CHECK_EQ(llama_math_largest((float[4]){ NAN, -2, NAN, -1 }, 4), 3);
    CHECK_EQ(llama_math_largest((float[3]){ NAN, -INFINITY, NAN }, 3), 0);
}

static void
test_chooses_experts(void)
{
    float logits[5] = { 0, 2, 1, 2, 1 };
    float again[5] = { 0, 2, 1, 2, 1 };
    const double all = 1 + 2 * exp(2) + 2 * exp(1);
    const double used = 2 * exp(2) + exp(1);
    uint32_t numbers[3];
    float weights[3];

    llama_math_choose(logits, 5, 3, false, numbers, weights);
    CHECK_EQ(numbers[0], 1);
    CHECK_EQ(numbers[1], 2); /* of equal ones the first */
    CHECK_EQ(numbers[2], 3);
    CHECK(is_near(weights[0], exp(2) / all, 1e-6));
    CHECK(is_near(weights[1], exp(1) / all, 1e-6));
    llama_math_choose(again, 5, 3, true, numbers, weights);
    CHECK(is_near(weights[0], exp(2) / used, 1e-6));
    CHECK(is_near(weights[1], exp(1) / used, 1e-6));
    CHECK(is_near(weights[2], exp(2) / used, 1e-6));
}

/* ------------------------------------------------------------------------ positions */

static llama_config
make_config(llama_rope rope, uint32_t head_dim)
{
    llama_config config = { .head_dim = head_dim };

    config.rope = rope;
    return config;
}

static void
check_frequencies(llama_rope rope, const double *expected, double scale)
{
    llama_config config = make_config(rope, 8);
    float actual[4];
    float actual_scale;

    llama_math_frequencies(&config, actual, &actual_scale);
    for (int i = 0; i < 4; i++)
        if (!CHECK(is_near(actual[i], expected[i], 1e-6)))
            t_note("kind %d, %d: %.9g", (int)rope.scaling, i, (double)actual[i]);
    CHECK(is_near(actual_scale, scale, 1e-6));
}

/* Expected numbers by the formulas as transformers has them, in double. */
static void
test_frequencies(void)
{
    check_frequencies((llama_rope){ .theta = 10000, .attention = 1 },
                      (const double[]){ 1, 0.1, 0.01, 0.001 }, 1);
    check_frequencies((llama_rope){ .scaling = LLAMA_SCALING_LINEAR, .theta = 10000,
                                    .factor = 4, .positions = 64, .attention = 1 },
                      (const double[]){ 0.25, 0.025, 0.0025, 0.00025 }, 1);
    check_frequencies((llama_rope){ .scaling = LLAMA_SCALING_LLAMA3, .theta = 10000,
                                    .factor = 8, .positions = 1024, .low_factor = 1,
                                    .high_factor = 4, .attention = 1 },
                      (const double[]){ 1, 0.1, 0.003086760967, 0.000125 }, 1);
    check_frequencies((llama_rope){ .scaling = LLAMA_SCALING_YARN, .theta = 10000,
                                    .factor = 4, .positions = 256, .beta_fast = 32,
                                    .beta_slow = 1, .attention = 1.25, .is_truncated = true },
                      (const double[]){ 1, 0.0625, 0.0025, 0.00025 }, 1.25);
    check_frequencies((llama_rope){ .scaling = LLAMA_SCALING_YARN, .theta = 10000,
                                    .factor = 4, .positions = 256, .beta_fast = 32,
                                    .beta_slow = 1, .attention = 1 },
                      (const double[]){ 1, 0.05539863663, 0.0025, 0.00025 }, 1);
}

static void
test_rotates(void)
{
    const float frequencies[2] = { 1, 0.5f };
    float angles[4];
    float x[4] = { 1, 2, 3, 4 };

    llama_math_angles(frequencies, 2, 2, 3, angles);
    CHECK(is_near(angles[0], 2 * cos(3), 1e-6));
    CHECK(is_near(angles[1], 2 * cos(1.5), 1e-6));
    CHECK(is_near(angles[2], 2 * sin(3), 1e-6));
    CHECK(is_near(angles[3], 2 * sin(1.5), 1e-6));
    llama_math_rotate(x, angles, 2);
    CHECK(is_near(x[0], 2 * (cos(3) - 3 * sin(3)), 1e-6));
    CHECK(is_near(x[1], 2 * (2 * cos(1.5) - 4 * sin(1.5)), 1e-6));
    CHECK(is_near(x[2], 2 * (3 * cos(3) + sin(3)), 1e-6));
    CHECK(is_near(x[3], 2 * (4 * cos(1.5) + 2 * sin(1.5)), 1e-6));
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_added_in_two_steps);
    T_RUN(test_widens_every_f16);
    T_RUN(test_widens_every_bf16);
    T_RUN(test_rounds_to_even);
    T_RUN(test_dot_and_add);
    T_RUN(test_sums_have_an_order);
    T_RUN(test_dots);
    T_RUN(test_codes_are_whole);
    T_RUN(test_norm);
    T_RUN(test_swiglu);
    T_RUN(test_softmax);
    T_RUN(test_largest);
    T_RUN(test_chooses_experts);
    T_RUN(test_frequencies);
    T_RUN(test_rotates);
    T_MAIN_END;
}
