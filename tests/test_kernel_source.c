/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit floats with scales against one value at a time: every code, shapes on
 * both sides of what is worth a table, any cut of the rows, nothing beside.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/kernel.h"
#include "tests/t.h"

#define LARGEST 20000u
#define GUARD 64u

static const int32_t dtypes[] = { BERTH_BF16, BERTH_F16, BERTH_F32 };
static const int32_t scale_dtypes[]
    = { BERTH_F32, BERTH_BF16, BERTH_F8_E8M0, BERTH_U8, BERTH_F16 };

static uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static float
scale_at(const berthi_source_arguments *a, uint64_t i)
{
    const uint8_t *const bytes = a->scales;

    if (a->scale_dtype == BERTH_F8_E8M0 || a->scale_dtype == BERTH_U8)
        return berthi_core_from_e8m0(bytes[i], a->scale_dtype == BERTH_U8);
    return berthi_core_load(a->scales, a->scale_dtype, i);
}

static bool
is_nan(const void *values, int32_t dtype, uint64_t i)
{
    const float value = berthi_core_load(values, dtype, i);

    return value != value;
}

/* Bits are compared, NaN with NaN. */
static bool
is_expected(const berthi_source_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        for (uint64_t k = 0; k < a->columns; k++) {
            const uint64_t at = row * a->columns + k;
            const uint64_t grid = (a->first_row + row) / a->block_rows * a->scale_columns
                                  + k / a->block_columns;
            uint8_t expected[4];

            berthi_core_store(expected, a->dtype, 0,
                              berthi_core_multiply(berthi_core_from_e4m3(a->codes[at]),
                                                   scale_at(a, grid)));
            if (memcmp(expected, (uint8_t *)a->values + at * (a->dtype == BERTH_F32 ? 4 : 2),
                       a->dtype == BERTH_F32 ? 4 : 2)
                    != 0
                && !(is_nan(expected, a->dtype, 0) && is_nan(a->values, a->dtype, at)))
                return false;
        }
    return true;
}

static void
check_shape(berthi_source_arguments a, uint8_t *out)
{
    const uint64_t bytes = a.rows * a.columns * (a.dtype == BERTH_F32 ? 4 : 2);

    memset(out, 0xA5, bytes + GUARD);
    a.values = out;
    berthi_decode_e4m3(&a);
    CHECK(is_expected(&a));
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
        codes[i] = (uint8_t)(i < 512 ? i : next_random(&state));
    for (int round = 0; round < 400; round++) {
        berthi_source_arguments a = { .codes = codes, .scales = scales };

        for (uint32_t i = 0; i < LARGEST * 4; i++)
            scales[i] = (uint8_t)next_random(&state);
        a.columns = next_random(&state) % 300;
        a.rows = next_random(&state) % (LARGEST / (a.columns + 1));
        a.block_rows = sides[next_random(&state) % 10];
        a.block_columns = sides[next_random(&state) % 10];
        a.scale_columns = a.columns / a.block_columns + 1;
        a.first_row = next_random(&state) % 300;
        a.dtype = dtypes[round % 3];
        a.scale_dtype = scale_dtypes[next_random(&state) % 5];
        if (((a.first_row + a.rows) / a.block_rows + 1) * a.scale_columns <= LARGEST)
            check_shape(a, out);
    }
    free(codes);
    free(scales);
    free(out);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_shape);
    T_MAIN_END;
}
