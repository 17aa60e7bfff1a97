/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - decoders of weights that others stored quantized: FP8, FP4, MXFP4. */
#include "kernels/base.h"
#include "kernels/core.h"
#include "kernels/kernel.h"

float
berthi_source_scale(const berthi_source_arguments *a, uint64_t i)
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
        const float scale = berthi_source_scale(a, scale_row + k / a->block_columns);
        const uint64_t left = a->columns - k;
        const uint64_t end = k + (left < a->block_columns ? left : a->block_columns);

        for (; k < end; k++)
            berthi_core_store(a->values, a->dtype, first + k * step,
                              berthi_core_source_value(number(codes, k), scale));
    }
}

/* ---------------------------------------------------------- 8-bit, by tables */

/* Values under one scale from which a table of all 256 products is worth it. */
#define TABLE_WORTH 512u

/* The values of all codes under one scale, in the wanted dtype. */
typedef struct code_table {
    uint32_t wide[256];   /* BERTH_F32 */
    uint16_t narrow[256]; /* the others */
} code_table;

static void
make_code_table(const berthi_source_arguments *a, float scale, code_table *t)
{
    for (uint32_t code = 0; code < 256; code++) {
        const float value = berthi_core_source_value(berthi_core_from_e4m3((uint8_t)code), scale);

        if (a->dtype == BERTH_F32)
            t->wide[code] = berthi_core_bits(value);
        else
            berthi_core_store(t->narrow, a->dtype, code, value);
    }
}

static void
translate_wide(const uint8_t *restrict codes, const uint32_t *restrict table,
               uint32_t *restrict out, uint64_t count)
{
#pragma GCC unroll 4
    for (uint64_t i = 0; i < count; i++)
        out[i] = table[codes[i]];
}

static void
translate_narrow(const uint8_t *restrict codes, const uint16_t *restrict table,
                 uint16_t *restrict out, uint64_t count)
{
#pragma GCC unroll 4
    for (uint64_t i = 0; i < count; i++)
        out[i] = table[codes[i]];
}

/* Rows [row, end) of the part; all lie under one row of scales. */
static void
decode_by_tables(const berthi_source_arguments *a, uint64_t row, uint64_t end)
{
    const uint64_t scale_row = (a->first_row + row) / a->block_rows * a->scale_columns;
    uint64_t count;
    code_table t;

    for (uint64_t k = 0; k < a->columns; k += count) {
        const uint64_t left = a->columns - k;

        count = left < a->block_columns ? left : a->block_columns;
        make_code_table(a, berthi_source_scale(a, scale_row + k / a->block_columns), &t);
        for (uint64_t r = row; r < end; r++) {
            const uint64_t first = r * a->columns + k;

            if (a->dtype == BERTH_F32)
                translate_wide(a->codes + first, t.wide, (uint32_t *)a->values + first, count);
            else
                translate_narrow(a->codes + first, t.narrow, (uint16_t *)a->values + first,
                                 count);
        }
    }
}

void
berthi_decode_e4m3(const berthi_source_arguments *a)
{
    const uint64_t wide = a->columns < a->block_columns ? a->columns : a->block_columns;

    for (uint64_t row = 0; row < a->rows;) {
        const uint64_t to_border = a->block_rows - (a->first_row + row) % a->block_rows;
        const uint64_t rows = a->rows - row < to_border ? a->rows - row : to_border;

        if (wide != 0 && rows >= berthi_divide_up(TABLE_WORTH, wide))
            decode_by_tables(a, row, row + rows);
        else
            for (uint64_t r = row; r < row + rows; r++)
                decode_row(a, a->codes + r * a->columns, r, e4m3_number, r * a->columns, 1);
        row += rows;
    }
}

/* ------------------------------------------------------------- 4-bit, directly */

void
berthi_decode_e2m1(const berthi_source_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        decode_row(a, a->codes + row * (a->columns / 2), row, berthi_core_e2m1,
                   row * a->columns, 1);
}

void
berthi_decode_mxfp4(const berthi_source_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        decode_row(a, a->codes + row * (a->columns / 2), row, berthi_core_e2m1, row, a->rows);
}
