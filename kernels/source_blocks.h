/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_blocks.h - E2M1 pairs under scales, what the levels share: whole turns
 * of a finite scale go to the level's own code, the rest one by one.
 *
 * Included by one file per level, which inlines it.
 */
#ifndef BERTH_KERNELS_SOURCE_BLOCKS_H
#define BERTH_KERNELS_SOURCE_BLOCKS_H

#include "kernels/number.h"
#include "kernels/simd_blocks.h"

#define SOURCE_TURN 32u /* values */
#define TILE 32u        /* rows and columns that are transposed at once */
#define TILE_BYTES (TILE / 2)
#define BAND (4 * TILE) /* columns: the codes of a row's are a cache line */

/* `count` values under one finite scale, whole turns; `values` are the 16. */
typedef void decode_scaled_function(const uint8_t *codes, const uint32_t *values,
                                    float scale, int32_t dtype, void *out,
                                    uint32_t count);

/* TILE values of a column: what is in the low nibbles times the scale of each row. */
typedef void decode_column_function(const uint8_t *nibbles, const uint32_t *values,
                                    const float *scales, int32_t dtype, void *out);

/* Of one scale, from a whole byte on. */
ALWAYS_INLINE void
decode_under_scale(const uint8_t *codes, float scale, int32_t dtype, void *out,
                   uint64_t count, decode_scaled_function *decode_scaled)
{
    uint64_t k = 0;

    if (fabsf(scale) <= LARGEST_FLOAT) /* infinity times zero is a NaN */
        for (uint32_t turn; count - k >= SOURCE_TURN; k += turn) {
            turn = count - k < 1u << 20 ? (uint32_t)(count - k) : 1u << 20;
            turn -= turn % SOURCE_TURN;
            decode_scaled(codes + k / 2, berthi_e2m1_values, scale, dtype,
                          (uint8_t *)out + k * berthi_number_bytes(dtype), turn);
        }
    for (; k < count; k++)
        berthi_core_store(out, dtype, k,
                          berthi_core_source_value(berthi_core_e2m1(codes, k), scale));
}

/* Scales that begin inside a byte are for the reference. */
ALWAYS_INLINE void
decode_e2m1_by(const berthi_source_arguments *a, decode_scaled_function *decode_scaled)
{
    if (a->block_columns % 2 != 0) {
        berthi_scalar_operations.decode_e2m1(a);
        return;
    }
    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t grid = (a->first_row + row) / a->block_rows * a->scale_columns;
        const uint64_t first = row * a->columns;
        uint64_t count;

        for (uint64_t k = 0, scale = grid; k < a->columns; k += count, scale++) {
            const uint64_t left = a->columns - k;

            count = left < a->block_columns ? left : a->block_columns;
            decode_under_scale(a->codes + (first + k) / 2, berthi_source_scale(a, scale),
                               a->dtype,
                               (uint8_t *)a->values + (first + k) * berthi_number_bytes(a->dtype),
                               count, decode_scaled);
        }
    }
}

/* Rows and columns of one scale each. */
typedef struct tile {
    uint64_t row;
    uint64_t column;
    uint32_t rows; /* TILE at most */
    float scales[TILE];
} tile;

/* Whether all are finite: infinity times zero is a NaN. Rows that are not there have 0. */
ALWAYS_INLINE bool
load_scales(const berthi_source_arguments *a, tile *t)
{
    bool is_finite = true;

    for (uint32_t r = 0; r < TILE; r++) {
        const uint64_t grid = (a->first_row + t->row + r) / a->block_rows * a->scale_columns;

        t->scales[r] = r < t->rows ? berthi_source_scale(a, grid + t->column / TILE) : 0.0f;
        is_finite = is_finite && fabsf(t->scales[r]) <= LARGEST_FLOAT;
    }
    return is_finite;
}

static void
decode_tile_plainly(const berthi_source_arguments *a, const tile *t)
{
    const uint8_t *const codes = a->codes + (t->row * a->columns + t->column) / 2;

    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t c = 0; c < TILE; c++)
            berthi_core_store(
                a->values, a->dtype, (t->column + c) * a->rows + t->row + r,
                berthi_core_source_value(berthi_core_e2m1(codes + r * (a->columns / 2), c),
                                         t->scales[r]));
}

/* Codes are transposed before they are values: they are shorter. */
ALWAYS_INLINE void
decode_tile(const berthi_source_arguments *a, const tile *t, uint32_t size,
            decode_column_function *decode_column)
{
    const uint8_t *const codes = a->codes + (t->row * a->columns + t->column) / 2;
    uint8_t pairs[TILE_BYTES][TILE];
    uint8_t upper[TILE];
    uint8_t out[TILE * sizeof(float)];

    if (t->rows < TILE)
        memset(pairs, 0, sizeof pairs);
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t b = 0; b < TILE_BYTES; b++)
            pairs[b][r] = codes[r * (a->columns / 2) + b];
    for (uint32_t c = 0; c < TILE; c++) {
        uint8_t *const to =
            (uint8_t *)a->values + ((t->column + c) * a->rows + t->row) * size;
        const uint8_t *const pair = pairs[c / 2];

        for (uint32_t r = 0; r < TILE; r++)
            upper[r] = pair[r] >> 4;
        if (t->rows == TILE) {
            decode_column(c % 2 == 0 ? pair : upper, berthi_e2m1_values, t->scales,
                          a->dtype, to);
        } else {
            decode_column(c % 2 == 0 ? pair : upper, berthi_e2m1_values, t->scales,
                          a->dtype, out);
            memcpy(to, out, (size_t)t->rows * size);
        }
    }
}

/* Transposed, tile by tile. Other shapes than MXFP4's are for the reference. */
ALWAYS_INLINE void
decode_mxfp4_by(const berthi_source_arguments *a, decode_column_function *decode_column)
{
    if (a->block_columns != TILE || a->columns % TILE != 0) {
        berthi_scalar_operations.decode_mxfp4(a);
        return;
    }
    for (uint64_t first = 0; first < a->columns; first += BAND)
        for (uint64_t row = 0; row < a->rows; row += TILE)
            for (uint64_t k = first; k < a->columns && k < first + BAND; k += TILE) {
                const uint64_t left = a->rows - row;
                tile t = { row, k, left < TILE ? (uint32_t)left : TILE, { 0 } };

                if (!load_scales(a, &t))
                    decode_tile_plainly(a, &t);
                else
                    decode_tile(a, &t, (uint32_t)berthi_number_bytes(a->dtype), decode_column);
            }
}

#endif
