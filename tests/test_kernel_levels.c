/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every instruction-set level against the reference loops, byte for byte:
 * exhaustive over bf16, around every threshold, over raw bit patterns, odd
 * sizes, unaligned starts, with guard bytes behind every output.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/random.h"
#include "tests/t.h"

#define GUARD 64u

/* ------------------------------------------------------------------- levels */

/* Levels of this processor; the current one is under test. */
static const berthi_operations *levels[4];
static size_t level_count;
static const berthi_operations *level;

static void
find_levels(void)
{
#ifdef __x86_64__
    if (berthi_cpu_has_level(BERTHI_CPU_AVX2))
        levels[level_count++] = &berthi_avx2_operations;
    if (berthi_cpu_has_level(BERTHI_CPU_AVX512))
        levels[level_count++] = &berthi_avx512_operations;
#endif
#ifdef __aarch64__
    levels[level_count++] = &berthi_neon_operations;
#endif
}

static uint64_t
element_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

/* ------------------------------------------------------- one comparison each */

typedef void encode_function(const berthi_encode_arguments *arguments);
typedef void decode_function(const berthi_decode_arguments *arguments);

static bool
is_same_encoding(encode_function *tested, encode_function *scalar, const void *values,
                 int32_t dtype, uint32_t block_size, uint64_t count)
{
    const uint64_t code_bytes = (count + 1) / 2;
    const uint64_t absmax_bytes = (count + block_size - 1) / block_size * sizeof(float);
    uint8_t *const a = malloc(2 * (code_bytes + absmax_bytes + 2 * GUARD));
    uint8_t *const b = a + code_bytes + absmax_bytes + 2 * GUARD;
    float *const absmax = malloc(2 * (absmax_bytes + GUARD));
    float *const other = (float *)((uint8_t *)absmax + absmax_bytes + GUARD);
    bool is_same;

    memset(a, 0xA5, 2 * (code_bytes + absmax_bytes + 2 * GUARD));
    memset(absmax, 0xA5, 2 * (absmax_bytes + GUARD));
    scalar(&(berthi_encode_arguments){ values, dtype, block_size, count, NULL, a, absmax });
    tested(&(berthi_encode_arguments){ values, dtype, block_size, count, NULL, b, other });
    is_same = memcmp(a, b, code_bytes + GUARD) == 0
              && memcmp(absmax, other, absmax_bytes + GUARD) == 0;
    if (!is_same)
        for (uint64_t i = 0; i < count; i++)
            if ((a[i / 2] ^ b[i / 2]) >> (i % 2 == 0 ? 4 : 0) & 15) {
                T_NOTE("%s dtype %d block %u count %llu: element %llu: %02x, expected %02x",
                       level->level, dtype, block_size, (unsigned long long)count,
                       (unsigned long long)i, b[i / 2], a[i / 2]);
                break;
            }
    free(a);
    free(absmax);
    return is_same;
}

static bool
is_same_decoding(decode_function *tested, decode_function *scalar, const uint8_t *codes,
                 const float *absmax, int32_t dtype, uint32_t block_size, uint64_t count)
{
    const uint64_t bytes = count * element_bytes(dtype) + GUARD;
    uint8_t *const a = malloc(2 * bytes);
    bool is_same;

    memset(a, 0xA5, 2 * bytes);
    scalar(&(berthi_decode_arguments){ codes, absmax, count, block_size, dtype, NULL, a });
    tested(&(berthi_decode_arguments){ codes, absmax, count, block_size, dtype, NULL,
                                      a + bytes });
    is_same = memcmp(a, a + bytes, bytes) == 0;
    free(a);
    return is_same;
}

static void
check_encoding(const void *values, int32_t dtype, uint32_t block_size, uint64_t count)
{
    CHECK(is_same_encoding(level->encode_nf4, berthi_scalar_operations.encode_nf4, values,
                           dtype, block_size, count));
    CHECK(is_same_encoding(level->encode_fp4, berthi_scalar_operations.encode_fp4, values,
                           dtype, block_size, count));
}

/* --------------------------------------------------------------------- tests */

/* Every absmax mantissa with every value that may stand beside it in a block. */
static void
test_every_bf16_pair(void)
{
    static const uint32_t exponents[] = { 0x3F, 0x40, 0x7E, 0x90, 0xFC, 0xFE };
    uint16_t *const x = malloc(0x20000 * 2 + 4096);

    for (uint32_t mantissa = 0; mantissa < 128; mantissa++)
        for (size_t e = 0; e < sizeof exponents / sizeof exponents[0]; e++) {
            const uint16_t largest = (uint16_t)(exponents[e] << 7 | mantissa);
            /* Smaller binades select the code of 0: twelve are enough, and subnormals. */
            const uint32_t least = largest > 12 * 128 ? largest - 12u * 128 : 0;
            uint64_t count = 0;

            for (uint32_t v = least; v <= largest; v++) {
                if (count % 64 == 0)
                    x[count++] = largest;
                x[count++] = (uint16_t)v;
                x[count++] = (uint16_t)(v | 0x8000);
                if (count % 64 == 63)
                    x[count++] = (uint16_t)(v & 0x7F); /* a subnormal */
            }
            check_encoding(x, BERTH_BF16, 64, count);
        }
    free(x);
}

static uint64_t
add_neighbours(float *x, uint64_t count, uint32_t bits)
{
    for (int32_t d = -600; d <= 600; d++) {
        if (count % 64 == 0)
            x[count++] = 1.0f;
        x[count++] = berthi_core_float(bits + (uint32_t)d);
        if (count % 64 != 0)
            x[count++] = -berthi_core_float(bits + (uint32_t)d);
    }
    return count;
}

/* With absmax 1 the scaled value is the value itself. */
static void
test_around_every_threshold(void)
{
    float *const x = malloc(sizeof(float) * 22 * 1201 * 3);
    uint64_t count = 0;

    for (int k = 0; k < 15; k++)
        count = add_neighbours(x, count, berthi_nf4_thresholds[k] & 0x7FFFFFFFu);
    for (int k = 0; k < 7; k++)
        count = add_neighbours(x, count, berthi_fp4_thresholds[k]);
    check_encoding(x, BERTH_F32, 64, count);
    check_encoding(x, BERTH_F32, 4096, count);
    free(x);
}

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };

/* Any bits: NaN, infinities, subnormals, zero blocks, at any alignment. */
static void
test_raw_bits_at_all_sizes(void)
{
    enum { LARGEST = 3 * 4096 };
    uint8_t *const x = malloc(LARGEST * 4 + 64);
    uint64_t state = 0x9E3779B97F4A7C15u;

    for (int round = 0; round < 400; round++) {
        const int32_t dtype = dtypes[round % 3];
        const uint32_t block_size = 32u << random_next(&state) % 8;
        const uint64_t count = random_next(&state) % (round % 5 == 0 ? LARGEST : 400) + 1;
        const uint64_t mask = round % 4 == 0 ? ~UINT64_C(0) : UINT64_C(0xBFFFBFFFBFFFBFFF);
        uint8_t *const start = x + element_bytes(dtype) * (random_next(&state) % 8);

        for (uint64_t i = 0; i < LARGEST * 4 + 64; i += 8) {
            const uint64_t bits = random_next(&state) & mask;

            memcpy(x + i, &bits, 8);
        }
        if (round % 7 == 0)
            memset(x, 0, 2048);
        check_encoding(start, dtype, block_size, count);
    }
    free(x);
}

/* Ordinary weights: what models hold. */
static void
test_ordinary_weights(void)
{
    enum { COUNT = 1 << 16 };
    float *const x = malloc(COUNT * sizeof(float));
    uint16_t *const half = malloc(COUNT * 2);
    uint64_t state = 7;

    for (uint64_t i = 0; i < COUNT; i++) {
        float sum = 0;

        for (int k = 0; k < 4; k++)
            sum += (float)(int64_t)(random_next(&state) >> 20) * 0x1p-44f - 0.5f;
        x[i] = sum * 0.02f;
    }
    check_encoding(x, BERTH_F32, 64, COUNT - 1);
    for (uint64_t i = 0; i < COUNT; i++)
        half[i] = berthi_core_to_fp16(x[i]);
    check_encoding(half, BERTH_F16, 64, COUNT);
    for (uint64_t i = 0; i < COUNT; i++)
        half[i] = berthi_core_to_bf16(x[i]);
    check_encoding(half, BERTH_BF16, 128, COUNT);
    free(x);
    free(half);
}

static void
check_decoding(const uint8_t *codes, const float *absmax, int32_t dtype, uint32_t block_size,
               uint64_t count)
{
    CHECK(is_same_decoding(level->decode_nf4, berthi_scalar_operations.decode_nf4, codes,
                           absmax, dtype, block_size, count));
    CHECK(is_same_decoding(level->decode_fp4, berthi_scalar_operations.decode_fp4, codes,
                           absmax, dtype, block_size, count));
}

static void
test_decoding(void)
{
    enum { LARGEST = 5000 };
    uint8_t *const codes = malloc(LARGEST / 2 + 16);
    float *const absmax = malloc((LARGEST / 32 + 1) * sizeof(float));
    uint64_t state = 99;

    for (int round = 0; round < 600; round++) {
        const uint32_t block_size = 32u << random_next(&state) % 8;
        const uint64_t count = random_next(&state) % LARGEST + 1;

        for (uint64_t i = 0; i < LARGEST / 2 + 16; i++)
            codes[i] = (uint8_t)random_next(&state);
        for (uint64_t i = 0; i < LARGEST / 32 + 1; i++) {
            const uint32_t bits = (uint32_t)random_next(&state);

            /* Any bits; small ones, whose products are flushed; ordinary ones. */
            absmax[i] = berthi_core_float(round % 3 == 0   ? bits
                                          : round % 3 == 1 ? bits & 0x037FFFFFu
                                                           : (bits & 0x03FFFFFFu) + 0x3C000000u);
        }
        check_decoding(codes + random_next(&state) % 8, absmax, dtypes[round / 3 % 3],
                       block_size, count);
    }
    free(codes);
    free(absmax);
}

/* Every absmax of bf16, every code, every dtype. */
static void
test_decoding_of_every_absmax(void)
{
    uint8_t codes[32];
    float absmax[2];

    for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)(i * 17);
    for (uint32_t bits = 0; bits < 0x8000; bits++)
        for (size_t d = 0; d < 3; d++) {
            absmax[0] = absmax[1] = berthi_core_from_bf16((uint16_t)bits);
            check_decoding(codes, absmax, dtypes[d], 64, 64);
        }
}

/* So many that no cache keeps them, on either side of that, in lines and beside. */
static void
test_decoding_of_many(void)
{
    static const uint64_t ends[] = { 40, (uint64_t)-1, 0 };
    const uint64_t many = UINT64_C(32) << 20; /* bytes */
    uint8_t *const codes = malloc(many / 4 + 32);
    float *const absmax = malloc((many / 64 + 1) * sizeof(float));
    uint8_t *const expected = malloc(many + 256);
    uint8_t *const out = aligned_alloc(64, many + 256);
    uint64_t state = 31;

    for (uint64_t i = 0; i < many / 4 + 32; i++)
        codes[i] = (uint8_t)random_next(&state);
    for (uint64_t i = 0; i < many / 64 + 1; i++)
        absmax[i] = i % 1000 == 999 ? INFINITY : (float)(i % 100) * 0.01f;
    for (uint64_t k = 0; k < 6; k++) {
        const int32_t dtype = k < 3 ? BERTH_BF16 : BERTH_F32;
        const uint64_t count = many / element_bytes(dtype) + ends[k % 3];
        const uint64_t bytes = count * element_bytes(dtype);
        const uint64_t start = k % 3 == 2 ? 4 : 0;

        memset(expected, 0xA5, many + 256);
        memset(out, 0xA5, many + 256);
        berthi_scalar_operations.decode_nf4(&(berthi_decode_arguments){
            codes, absmax, count, 64, dtype, NULL, expected });
        level->decode_nf4(&(berthi_decode_arguments){ codes, absmax, count, 64, dtype, NULL,
                                                      out + start });
        CHECK(memcmp(out + start, expected, bytes + GUARD) == 0);
    }
    free(codes);
    free(absmax);
    free(expected);
    free(out);
}

/* ------------------------------------------------- 8-bit codes, rows, statistics */

static void
check_map(const void *values, int32_t dtype, const uint32_t *map, uint32_t block_size,
          uint64_t count)
{
    const uint64_t blocks = (count + block_size - 1) / block_size;
    uint8_t *const codes = calloc(2, count + GUARD);
    float *const absmax = calloc(2, (blocks + 1) * sizeof(float));

    berthi_scalar_operations.encode_map(&(berthi_encode_arguments){
        values, dtype, block_size, count, map, codes, absmax });
    level->encode_map(&(berthi_encode_arguments){ values, dtype, block_size, count, map,
                                                  codes + count + GUARD,
                                                  absmax + blocks + 1 });
    CHECK_MEM(codes + count + GUARD, codes, count + GUARD);
    CHECK_MEM(absmax + blocks + 1, absmax, (blocks + 1) * sizeof(float));
    free(codes);
    free(absmax);
}

/* Every border of both maps with its neighbours, and raw bits. */
static void
test_map_codes(void)
{
    static const uint32_t *const maps[] = { berthi_signed_map, berthi_unsigned_map };
    float x[4096];
    uint64_t state = 5;

    if (level->encode_map == NULL)
        T_SKIP("this level has no 8-bit codes");
    for (int m = 0; m < 2; m++) {
        uint64_t count = 0;

        for (int i = 0; i < 255; i++) {
            const float middle = (berthi_core_float(maps[m][i])
                                  + berthi_core_float(maps[m][i + 1])) * 0.5f;
            const float around[] = { nextafterf(middle, -2.0f), middle,
                                     nextafterf(middle, 2.0f),
                                     berthi_core_float(maps[m][i]) };

            if (count % 256 == 0)
                x[count++] = 1.0f;
            for (int k = 0; k < 4; k++)
                x[count++] = around[k];
            while (count % 256 > 250)
                x[count++] = 0.0f;
        }
        check_map(x, BERTH_F32, maps[m], 256, count);
        for (int round = 0; round < 100; round++) {
            for (int i = 0; i < 4096; i++) {
                const uint32_t bits = (uint32_t)random_next(&state);

                x[i] = berthi_core_float(round % 2 == 0 ? bits : bits & 0xBFFFFFFFu);
            }
            check_map(x, dtypes[round % 3], maps[m], round % 5 == 0 ? 100 : 256,
                      random_next(&state) % 4096 + 1);
        }
    }
}

/* Two borders in a bin, or one below all bins: the codes stay the reference's. */
static void
test_other_maps(void)
{
    uint32_t map[256];
    float x[512];
    uint64_t state = 9;

    if (level->encode_map == NULL)
        T_SKIP("this level has no 8-bit codes");
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 256; i++) {
            const float linear = (float)(i - 127) / 128.0f;

            map[i] = berthi_core_bits(kind == 0   ? 0.5f + (float)i * 0x1p-20f
                                      : kind == 1 ? linear * 0x1p-20f
                                                  : linear);
        }
        for (int i = 0; i < 512; i++)
            x[i] = (float)(int32_t)random_next(&state) * 0x1p-31f;
        x[3] = -0.0f;
        x[5] = 0.0f;
        x[7] = 0x1p-40f;
        x[9] = -0x1p-40f;
        check_map(x, BERTH_F32, map, 256, 512);
        check_map(x, BERTH_F32, berthi_signed_map, 64, 512);
    }
}

static void
check_rows(const void *values, int32_t dtype, uint64_t rows, uint64_t columns)
{
    const uint64_t count = rows * columns;
    int8_t *const codes = calloc(2, count + GUARD);
    float *const maximum = calloc(2, (rows + 1) * sizeof(float));
    uint8_t *const out = calloc(2, count * 4 + GUARD);

    berthi_scalar_operations.encode_rows(
        &(berthi_rows_arguments){ values, dtype, rows, columns, codes, maximum });
    level->encode_rows(&(berthi_rows_arguments){ values, dtype, rows, columns,
                                                 codes + count + GUARD,
                                                 maximum + rows + 1 });
    CHECK_MEM(codes + count + GUARD, codes, count + GUARD);
    CHECK_MEM(maximum + rows + 1, maximum, (rows + 1) * sizeof(float));
    berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
        codes, maximum, rows, columns, dtype, out });
    level->decode_rows(&(berthi_rows_decode_arguments){ codes, maximum, rows, columns, dtype,
                                                        out + count * 4 + GUARD });
    CHECK_MEM(out + count * 4 + GUARD, out, count * 4 + GUARD);
    free(codes);
    free(maximum);
    free(out);
}

static void
test_rows(void)
{
    enum { LARGEST = 12000 };
    static uint8_t x[LARGEST * 4];
    uint64_t state = 21;

    if (level->encode_rows == NULL)
        T_SKIP("this level has no rows");
    for (int round = 0; round < 400; round++) {
        const int32_t dtype = dtypes[round % 3];
        const uint64_t columns = random_next(&state) % (round % 10 == 0 ? 3000 : 150) + 1;
        const uint64_t rows = random_next(&state) % 4 + 1;

        for (uint64_t i = 0; i < LARGEST; i++) {
            const uint32_t bits = (uint32_t)random_next(&state);
            const float plain = (float)(int32_t)bits * 0x1p-34f;

            if (round % 2 == 0 && dtype == BERTH_F32)
                memcpy(x + 4 * i, &plain, 4);
            else if (round % 2 == 0)
                memcpy(x + 2 * i,
                       &(uint16_t){ dtype == BERTH_BF16 ? berthi_core_to_bf16(plain)
                                                        : berthi_core_to_fp16(plain) },
                       2);
            else
                memcpy(x + element_bytes(dtype) * i, &bits, element_bytes(dtype));
        }
        if (round % 6 == 0)
            memset(x, 0, columns * element_bytes(dtype)); /* a row of zeros */
        check_rows(x, dtype, rows, columns);
    }
}

/* Either way to note columns; nothing is written behind any of the outputs. */
static void
check_activations(const void *values, int32_t dtype, uint64_t rows, uint64_t columns,
                  float threshold, bool has_bits)
{
    const uint64_t count = rows * columns;
    const uint64_t words = columns / 32 + 2;
    int8_t *const codes = calloc(2, count + GUARD);
    float *const maximum = calloc(2, (rows + 1) * sizeof(float));
    uint8_t *const is_outlier = malloc(2 * (columns + 1));
    uint32_t *const bits = calloc(2, words * sizeof *bits);

    memset(is_outlier, 0xFF, 2 * (columns + 1));
    for (unsigned i = 0; i < 2; i++)
        (i == 0 ? berthi_encode_activations : level->encode_activations)(
            &(berthi_activation_arguments){
                values, dtype, rows, columns, threshold, codes + i * (count + GUARD),
                maximum + i * (rows + 1), has_bits ? NULL : is_outlier + i * (columns + 1),
                has_bits ? bits + i * words : NULL });
    CHECK_MEM(codes + count + GUARD, codes, count + GUARD);
    CHECK_MEM(maximum + rows + 1, maximum, (rows + 1) * sizeof(float));
    CHECK_MEM(is_outlier + columns + 1, is_outlier, columns + 1);
    CHECK_MEM(bits + words, bits, words * sizeof *bits);
    free(codes);
    free(maximum);
    free(is_outlier);
    free(bits);
}

/* Ordinary ones, with some about the threshold and beyond it, or any bits. */
static void
draw_activations(uint8_t *x, uint64_t count, int32_t dtype, float threshold, int kind,
                 uint64_t *state)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits = random_next(state);
        const float near = 1.0f + (float)(int32_t)(bits >> 32 & 0xFFF) * 0x1p-20f - 0x1p-9f;
        float value = (float)(int32_t)bits * 0x1p-30f;

        if (kind > 0 && bits >> 44 & 15)
            value *= 0x1p-4f;
        if (kind > 1 && (bits >> 48) % 41 == 0)
            value = (bits & 1 ? -threshold : threshold) * (bits & 2 ? near : 4.0f);
        if (kind > 2)
            memcpy(x + element_bytes(dtype) * i, &bits, element_bytes(dtype));
        else
            berthi_core_store(x, dtype, i, value);
    }
}

static void
test_activations(void)
{
    enum { LARGEST = 12000 };
    static uint8_t x[LARGEST * 4];
    static const float thresholds[] = { 6.0f,     0.5f,      6.001f, 5.999f,  0.0f,
                                        INFINITY, 65504.0f, 0x1p-24f, 1e-30f, 1e9f };
    uint64_t state = 23;

    if (level->encode_activations == NULL)
        T_SKIP("this level has no activations");
    for (int round = 0; round < 1200; round++) {
        const int32_t dtype = dtypes[round % 3];
        const float threshold = thresholds[round / 3 % 10];
        const uint64_t columns = random_next(&state) % (round % 10 == 0 ? 3000 : 150) + 1;
        const uint64_t rows = random_next(&state) % 4 + 1;

        draw_activations(x, rows * columns, dtype, threshold, round / 30 % 4, &state);
        if (round % 17 == 0)
            memset(x, 0, columns * element_bytes(dtype)); /* a row of zeros */
        check_activations(x, dtype, rows, columns, threshold, round % 2 == 0);
    }
}

/* More columns than a maximum is looked for at once; the next row's is far larger. */
static void
test_long_rows(void)
{
    const uint64_t columns = (UINT64_C(1) << 20) + 37;
    uint16_t *const x = malloc(2 * columns * sizeof *x);
    uint64_t state = 17;

    if (level->encode_rows == NULL)
        T_SKIP("this level has no rows");
    for (uint64_t i = 0; i < 2 * columns; i++)
        x[i] = (uint16_t)(0x3C00 | (random_next(&state) & 0x80FF));
    x[columns] = 0x4700;
    check_rows(x, BERTH_BF16, 2, columns);
    x[columns - 30] = 0x4500;
    check_rows(x, BERTH_BF16, 2, columns);
    free(x);
}

/* Sums of 8-bit products: any bytes, the extremes, every length about a register. */
static void
test_dot_products(void)
{
    enum { ROWS = 5, COUNT = 3, LARGEST = 200 };
    int8_t weights[ROWS * LARGEST];
    int8_t inputs[COUNT * LARGEST];
    int64_t expected[ROWS * COUNT];
    int64_t sums[ROWS * COUNT];
    uint64_t state = 31;

    if (level->dot_int8 == NULL)
        T_SKIP("this level has no such sums");
    for (uint64_t columns = 1; columns <= LARGEST; columns++) {
        berthi_dot_arguments a = { .weights = weights, .inputs = inputs, .rows = ROWS,
                                   .columns = columns, .first_row = columns % 2,
                                   .end_row = ROWS - columns % 3, .count = COUNT };

        for (uint64_t i = 0; i < sizeof weights; i++)
            weights[i] = columns % 5 == 0 ? INT8_MIN : (int8_t)random_next(&state);
        for (uint64_t i = 0; i < sizeof inputs; i++)
            inputs[i] = columns % 10 == 0 ? INT8_MIN : (int8_t)random_next(&state);
        memset(expected, 0xA5, sizeof expected);
        memset(sums, 0xA5, sizeof sums);
        a.sums = expected;
        berthi_scalar_operations.dot_int8(&a);
        a.sums = sums;
        level->dot_int8(&a);
        CHECK_MEM(sums, expected, sizeof sums);
    }
}

/* The level's own where it has one, else what the level below gives it. */
static void
check_entries(berthi_cpu_level which, const berthi_operations *own,
              const berthi_operations *below)
{
    const berthi_operations all = berthi_level_operations(which);

#define CHECK_ENTRY(entry)                                                                 \
    CHECK(all.entry == (own->entry != NULL ? own->entry : below->entry))
    CHECK_STR(all.level, own->level);
    CHECK_ENTRY(encode_nf4);
    CHECK_ENTRY(encode_fp4);
    CHECK_ENTRY(encode_map);
    CHECK_ENTRY(decode_nf4);
    CHECK_ENTRY(decode_fp4);
    CHECK_ENTRY(decode_map);
    CHECK_ENTRY(encode_double);
    CHECK_ENTRY(decode_double);
    CHECK_ENTRY(add_mean_rows);
    CHECK_EQ(all.uses_extremes, own->uses_extremes || below->uses_extremes);
    CHECK_ENTRY(encode_rows);
    CHECK_ENTRY(decode_rows);
    CHECK_ENTRY(encode_activations);
    CHECK_ENTRY(decode_e2m1);
    CHECK_ENTRY(decode_mxfp4);
    CHECK_ENTRY(multiply_nf4);
    CHECK_ENTRY(multiply_fp4);
    CHECK_ENTRY(dot_int8);
    CHECK_ENTRY(update);
#undef CHECK_ENTRY
}

static void
test_level_tables_have_what_there_is(void)
{
    const berthi_operations *const scalar = &berthi_scalar_operations;

    check_entries(BERTHI_CPU_SCALAR, scalar, scalar);
#ifdef __x86_64__
    const berthi_operations avx512 = berthi_level_operations(BERTHI_CPU_AVX512);
    const berthi_operations avx512vbmi = berthi_level_operations(BERTHI_CPU_AVX512VBMI);
    const berthi_operations avx512bf16 = berthi_level_operations(BERTHI_CPU_AVX512BF16);

    check_entries(BERTHI_CPU_AVX2, &berthi_avx2_operations, scalar);
    check_entries(BERTHI_CPU_AVX512, &berthi_avx512_operations, scalar);
    check_entries(BERTHI_CPU_AVX512VBMI, &berthi_avx512vbmi_operations, &avx512);
    check_entries(BERTHI_CPU_AVX512BF16, &berthi_avx512bf16_operations, &avx512vbmi);
    check_entries(BERTHI_CPU_AMX, &berthi_amx_operations, &avx512bf16);
#endif
#ifdef __aarch64__
    const berthi_operations neon = berthi_level_operations(BERTHI_CPU_NEON);

    check_entries(BERTHI_CPU_NEON, &berthi_neon_operations, scalar);
    check_entries(BERTHI_CPU_NEONDOT, &berthi_neondot_operations, &neon);
#endif
}

/* Complete, each entry the level's own where there is one. */
static void
test_level_tables_are_complete(void)
{
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        const berthi_operations all = berthi_level_operations((berthi_cpu_level)i);

        CHECK(all.encode_nf4 != NULL && all.encode_fp4 != NULL && all.encode_map != NULL);
        CHECK(all.decode_nf4 != NULL && all.decode_fp4 != NULL && all.decode_map != NULL);
        CHECK(all.encode_double != NULL && all.decode_double != NULL);
        CHECK(all.add_mean_rows != NULL);
        CHECK(all.encode_rows != NULL && all.decode_rows != NULL && all.dot_int8 != NULL);
        CHECK(all.encode_activations != NULL);
        CHECK(all.multiply_nf4 != NULL && all.multiply_fp4 != NULL);
        CHECK(all.decode_e2m1 != NULL && all.decode_mxfp4 != NULL);
        CHECK(all.update != NULL);
    }
    CHECK_STR(berthi_level_operations(BERTHI_CPU_SCALAR).level, "scalar");
    CHECK(berthi_level_operations(BERTHI_CPU_SCALAR).encode_nf4
          == berthi_scalar_operations.encode_nf4);
#ifdef __x86_64__
    CHECK_STR(berthi_level_operations(BERTHI_CPU_AVX512).level, "avx512");
    CHECK(berthi_level_operations(BERTHI_CPU_AVX512).multiply_fp4
          == berthi_avx512_operations.multiply_fp4);
    CHECK_STR(berthi_level_operations(BERTHI_CPU_AVX512BF16).level, "avx512bf16");
    CHECK(berthi_level_operations(BERTHI_CPU_AVX512BF16).multiply_nf4
          == berthi_avx512bf16_operations.multiply_nf4);
    CHECK(berthi_level_operations(BERTHI_CPU_AVX512BF16).encode_rows
          == berthi_avx512_operations.encode_rows);
    CHECK_STR(berthi_level_operations(BERTHI_CPU_AVX2).level, "avx2");
    CHECK(berthi_level_operations(BERTHI_CPU_AVX2).encode_nf4
          == berthi_avx2_operations.encode_nf4);
    CHECK(berthi_level_operations(BERTHI_CPU_AVX2).dot_int8
          == berthi_avx2_operations.dot_int8);
    CHECK(berthi_level_operations(BERTHI_CPU_AVX2).decode_map
          == berthi_scalar_operations.decode_map);
    CHECK(berthi_level_operations(BERTHI_CPU_AVX2).decode_e2m1
          == berthi_avx2_operations.decode_e2m1);
    CHECK(berthi_level_operations(BERTHI_CPU_AVX512).decode_mxfp4
          == berthi_avx512_operations.decode_mxfp4);
#endif
#ifdef __aarch64__
    CHECK_STR(berthi_level_operations(BERTHI_CPU_NEON).level, "neon");
    CHECK(berthi_level_operations(BERTHI_CPU_NEON).encode_nf4
          == berthi_neon_operations.encode_nf4);
    CHECK(berthi_level_operations(BERTHI_CPU_NEON).decode_map
          == berthi_scalar_operations.decode_map);
    CHECK_STR(berthi_level_operations(BERTHI_CPU_NEONDOT).level, "neondot");
    CHECK(berthi_level_operations(BERTHI_CPU_NEONDOT).dot_int8
          == berthi_neondot_operations.dot_int8);
    CHECK(berthi_level_operations(BERTHI_CPU_NEONDOT).encode_nf4
          == berthi_neon_operations.encode_nf4);
#endif
}

static void
test_no_level(void)
{
    T_SKIP("this processor has no level beyond scalar");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_level_tables_have_what_there_is);
    T_RUN(test_level_tables_are_complete);
    find_levels();
    for (size_t i = 0; i < level_count; i++) {
        level = levels[i];
        T_NOTE("level %s", level->level);
        T_RUN(test_every_bf16_pair);
        T_RUN(test_around_every_threshold);
        T_RUN(test_raw_bits_at_all_sizes);
        T_RUN(test_ordinary_weights);
        T_RUN(test_decoding);
        T_RUN(test_decoding_of_every_absmax);
        T_RUN(test_decoding_of_many);
        T_RUN(test_map_codes);
        T_RUN(test_other_maps);
        T_RUN(test_rows);
        T_RUN(test_activations);
        T_RUN(test_long_rows);
        T_RUN(test_dot_products);
    }
    if (level_count == 0)
        T_RUN(test_no_level);
    T_MAIN_END;
}
