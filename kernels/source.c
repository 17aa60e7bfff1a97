/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - decoders of weights that others stored quantized: FP8, FP4, MXFP4. */
#include "kernels/core.h"
#include "kernels/kernel.h"

static float
load_scale(const berthi_source_arguments *a, uint64_t i)
{
    const uint8_t *const bytes = a->scales;

    if (a->scale_dtype == BERTH_F8_E8M0 || a->scale_dtype == BERTH_U8)
        return berthi_core_from_e8m0(bytes[i], a->scale_dtype == BERTH_U8);
    return berthi_core_load(a->scales, a->scale_dtype, i);
}

/* The value of code `k` of a row that begins at `codes`. */
typedef float number_function(const uint8_t *codes, uint64_t k);

static float
e4m3_number(const uint8_t *codes, uint64_t k)
{
    return berthi_core_from_e4m3(codes[k]);
}

static float
e2m1_number(const uint8_t *codes, uint64_t k)
{
    return berthi_core_float(berthi_e2m1_values[(uint32_t)codes[k / 2] >> (k % 2 * 4) & 15u]);
}

/*
 * One row; value k goes to place first + k * step. Scale by scale, so that a
 * run of values meets one scale.
 */
static void
decode_row(const berthi_source_arguments *a, const uint8_t *codes, uint64_t row,
           number_function *number, uint64_t first, uint64_t step)
{
    const uint64_t scale_row = (a->first_row + row) / a->block_rows * a->scale_columns;

    for (uint64_t k = 0; k < a->columns;) {
        const float scale = load_scale(a, scale_row + k / a->block_columns);
        const uint64_t left = a->columns - k;
        const uint64_t end = k + (left < a->block_columns ? left : a->block_columns);

        for (; k < end; k++)
            berthi_core_store(a->values, a->dtype, first + k * step,
                              berthi_core_multiply(number(codes, k), scale));
    }
}

void
berthi_decode_e4m3(const berthi_source_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        decode_row(a, a->codes + row * a->columns, row, e4m3_number, row * a->columns, 1);
}

void
berthi_decode_e2m1(const berthi_source_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        decode_row(a, a->codes + row * (a->columns / 2), row, e2m1_number,
                   row * a->columns, 1);
}

void
berthi_decode_mxfp4(const berthi_source_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        decode_row(a, a->codes + row * (a->columns / 2), row, e2m1_number, row, a->rows);
}
