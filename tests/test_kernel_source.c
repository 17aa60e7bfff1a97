/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit floats and E2M1 pairs with scales, on every level, against one value at
 * a time: every code, shapes on both sides of what is worth a table or a
 * vector, any cut of the rows, nothing beside.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/random.h"
#include "tests/t.h"

#define LARGEST 20000u
#define GUARD 64u

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static const int32_t scale_dtypes[] = { BERTH_F32, BERTH_BF16, BERTH_F8_E8M0, BERTH_U8, BERTH_F16 };

static float
scale_at(const berthi_source_arguments *a, uint64_t i)
{
    const uint8_t *const bytes = a->scales;

    if (a->scale_dtype == BERTH_F8_E8M0 || a->scale_dtype == BERTH_U8)
        return berthi_core_from_e8m0(bytes[i], a->scale_dtype == BERTH_U8);
    return berthi_core_load(a->scales, a->scale_dtype, i);
}

typedef enum source_kind { E4M3, E2M1, MXFP4 } source_kind;

static float
number_at(const berthi_source_arguments *a, source_kind kind, uint64_t at)
{
    static const float magnitudes[] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    uint32_t code;

    if (kind == E4M3)
        return berthi_core_from_e4m3(a->codes[at]);
    code = at % 2 == 0 ? a->codes[at / 2] & 15u : a->codes[at / 2] >> 4;
    return copysignf(magnitudes[code & 7], code & 8 ? -1.0f : 1.0f);
}

static bool
is_expected(const berthi_source_arguments *a, source_kind kind)
{
    const uint64_t size = a->dtype == BERTH_F32 ? 4 : 2;

    for (uint64_t row = 0; row < a->rows; row++)
        for (uint64_t k = 0; k < a->columns; k++) {
            const uint64_t at = row * a->columns + k;
            const uint64_t to = kind == MXFP4 ? k * a->rows + row : at;
            const uint64_t grid = (a->first_row + row) / a->block_rows * a->scale_columns
                                  + k / a->block_columns;
            uint8_t expected[4];

            berthi_core_store(
                expected, a->dtype, 0,
                berthi_core_one_nan(
                    berthi_core_multiply(number_at(a, kind, at), scale_at(a, grid))));
            if (memcmp(expected, (uint8_t *)a->values + to * size, size) != 0)
                return false;
        }
    return true;
}

static void
check_shape(berthi_source_arguments a, source_kind kind, const berthi_operations *level,
            uint8_t *out)
{
    const uint64_t bytes = a.rows * a.columns * (a.dtype == BERTH_F32 ? 4 : 2);

    memset(out, 0xA5, bytes + GUARD);
    a.values = out;
    if (kind == E4M3)
        berthi_decode_e4m3(&a);
    else
        (kind == E2M1 ? level->decode_e2m1 : level->decode_mxfp4)(&a);
    CHECK(is_expected(&a, kind));
    for (uint64_t i = 0; i < GUARD; i++)
        CHECK_EQ(out[bytes + i], 0xA5);
}

static void
test_every_shape(void)
{
    static const uint64_t sides[] = { 1, 2, 3, 16, 32, 100, 128, 129, 1000, UINT64_MAX };
    uint8_t *const codes = malloc(LARGEST);
    uint8_t *const scales = malloc(LARGEST * 4);
    uint8_t *const out = malloc(LARGEST * 4 + GUARD);
    uint64_t state = 77;

    for (uint32_t i = 0; i < LARGEST; i++)
        codes[i] = (uint8_t)(i < 512 ? i : random_next(&state));
    for (int round = 0; round < 400; round++) {
        berthi_source_arguments a = { .codes = codes, .scales = scales };

        for (uint32_t i = 0; i < LARGEST * 4; i++)
            scales[i] = (uint8_t)random_next(&state);
        a.columns = random_next(&state) % 300;
        a.rows = random_next(&state) % (LARGEST / (a.columns + 1));
        a.block_rows = sides[random_next(&state) % 10];
        a.block_columns = sides[random_next(&state) % 10];
        a.scale_columns = a.columns / a.block_columns + 1;
        a.first_row = random_next(&state) % 300;
        a.dtype = dtypes[round % 3];
        a.scale_dtype = scale_dtypes[random_next(&state) % 5];
        if (((a.first_row + a.rows) / a.block_rows + 1) * a.scale_columns <= LARGEST)
            check_shape(a, E4M3, NULL, out);
    }
    free(codes);
    free(scales);
    free(out);
}

static berthi_operations level; /* under test */

/* Codes end where their memory ends. */
static void
test_e2m1_pairs(void)
{
    static const uint64_t widths[] = { 2, 10, 31, 32, 33, 64, 96, 100, 256, UINT64_MAX };
    uint8_t *const scales = malloc(LARGEST * 4);
    uint8_t *const out = malloc(LARGEST * 4 + GUARD + 8);
    uint64_t state = 5;

    for (int round = 0; round < 600; round++) {
        const source_kind kind = round % 2 == 0 ? E2M1 : MXFP4;
        berthi_source_arguments a = { .scales = scales, .block_rows = 1 };
        uint8_t *codes;
        uint64_t bytes;

        a.columns = random_next(&state) % 150 * 2;
        if (round % 5 != 0)
            a.columns = a.columns / 32 * 32 + 32;
        a.rows = random_next(&state) % (round % 7 == 0 ? 200 : 70)
                 % (LARGEST / (a.columns + 1));
        a.block_columns = round % 3 == 0 ? widths[random_next(&state) % 10] : 32;
        if (round % 11 == 0)
            a.block_rows = random_next(&state) % 9 + 1;
        a.scale_columns = a.columns / a.block_columns + 1;
        a.first_row = kind == MXFP4 ? 0 : random_next(&state) % 3;
        a.dtype = dtypes[random_next(&state) % 3];
        a.scale_dtype = scale_dtypes[random_next(&state) % 5];
        bytes = a.rows * a.columns / 2;
        codes = malloc(bytes + 1);
        a.codes = codes;
        for (uint64_t i = 0; i < bytes; i++)
            codes[i] = (uint8_t)(i < 256 ? i : random_next(&state));
        for (uint32_t i = 0; i < LARGEST * 4; i++)
            scales[i] = (uint8_t)random_next(&state);
        if (((a.first_row + a.rows) / a.block_rows + 1) * a.scale_columns <= LARGEST)
            check_shape(a, kind, &level, out + (a.dtype == BERTH_F32 ? 4 : 2));
        free(codes);
    }
    free(scales);
    free(out);
}

/* Each pair of codes under each 8-bit scale. */
static void
test_every_e2m1_pair_under_every_scale(void)
{
    enum { ROWS = 33, COLUMNS = 32 };
    static uint8_t codes[ROWS * COLUMNS / 2];
    static uint8_t scales[ROWS];
    static uint8_t out[ROWS * COLUMNS * 4 + GUARD];

    for (uint32_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)i;
    for (uint32_t scale = 0; scale < 256; scale++)
        for (size_t d = 0; d < 6; d++) {
            const berthi_source_arguments a = {
                .codes = codes, .scales = scales, .rows = ROWS, .columns = COLUMNS,
                .block_rows = 1, .block_columns = 32, .scale_columns = 1,
                .dtype = dtypes[d % 3], .scale_dtype = d < 3 ? BERTH_U8 : BERTH_F8_E8M0
            };

            memset(scales, (int)scale, sizeof scales);
            if (scale % 4 == 1) /* not finite beside finite ones */
                scales[scale % ROWS] = 255;
            check_shape(a, E2M1, &level, out);
            check_shape(a, MXFP4, &level, out);
        }
}

/* More values under one scale than a level takes at once, and an end beside its turns. */
static void
test_a_long_row_under_one_scale(void)
{
    const uint64_t columns = (UINT64_C(1) << 20) + 64 + 10;
    const float scale = 0.375f;
    uint8_t *const codes = malloc(columns / 2);
    uint8_t *const out = malloc(columns * 2 + GUARD);
    uint64_t state = 9;

    for (uint64_t i = 0; i < columns / 2; i++)
        codes[i] = (uint8_t)random_next(&state);
    check_shape((berthi_source_arguments){ .codes = codes, .scales = &scale, .rows = 1,
                                           .columns = columns, .block_rows = 1,
                                           .block_columns = columns, .scale_columns = 1,
                                           .dtype = BERTH_BF16, .scale_dtype = BERTH_F32 },
                E2M1, &level, out);
    free(codes);
    free(out);
}

/* Rounding would carry the bits of such a NaN into the sign. */
static void
test_a_nan_of_ones_stays_one(void)
{
    enum { ROWS = 32, COLUMNS = 32 };
    static uint8_t codes[ROWS * COLUMNS / 2];
    static uint8_t out[ROWS * COLUMNS * 2 + GUARD];
    float scales[ROWS];

    for (uint32_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)i;
    for (uint32_t i = 0; i < ROWS; i++)
        scales[i] = i == 7 ? berthi_core_float(0x7FFFFFFF) : 1.0f;
    for (int kind = E2M1; kind <= MXFP4; kind++)
        check_shape((berthi_source_arguments){ .codes = codes, .scales = scales,
                                               .rows = ROWS, .columns = COLUMNS,
                                               .block_rows = 1, .block_columns = 32,
                                               .scale_columns = 1, .dtype = BERTH_BF16,
                                               .scale_dtype = BERTH_F32 },
                    (source_kind)kind, &level, out);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_shape);
    for (int i = 0; i < BERTHI_CPU_LEVEL_COUNT; i++) {
        if (!berthi_cpu_has_level((berthi_cpu_level)i))
            continue;
        level = berthi_level_operations((berthi_cpu_level)i);
        T_NOTE("level %s", level.level);
        T_RUN(test_e2m1_pairs);
        T_RUN(test_every_e2m1_pair_under_every_scale);
        T_RUN(test_a_long_row_under_one_scale);
        T_RUN(test_a_nan_of_ones_stays_one);
    }
    T_MAIN_END;
}
