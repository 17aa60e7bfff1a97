/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_blocks.h - LLM.int8() rows, what the levels share: whole turns of
 * ordinary rows go to the level's own code, ends and everything rare to the
 * reference. Included by one file per level, which inlines it.
 */
#ifndef BERTH_KERNELS_ROW_BLOCKS_H
#define BERTH_KERNELS_ROW_BLOCKS_H

#include "kernels/number.h"
#include "kernels/simd_blocks.h"

#define ROW_TURN 32u /* values */
#define LARGEST_FP16 65504.0f

/* Of a row with a finite maximum, `count` values from `first`, whole turns. */
typedef void encode_row_function(const berthi_rows_arguments *a, int32_t dtype,
                                 uint64_t first, uint64_t count, float scale);
/* The same back; `maximum` is finite. */
typedef void decode_row_function(const berthi_rows_decode_arguments *a, uint64_t first,
                                 uint64_t count, float maximum);

/* What does not fill a turn, with the scale of its row. */
static inline void
encode_row_end(const berthi_rows_arguments *a, uint64_t first, uint64_t end, float scale)
{
    for (uint64_t i = first; i < end; i++) {
        const float value = berthi_core_load(a->values, a->dtype, i);

        a->codes[i] = berthi_core_int8_code(
            berthi_core_from_fp16(berthi_core_to_fp16(value)), scale);
    }
}

/* Rounding keeps order: the maximum is rounded instead of every value. */
ALWAYS_INLINE float
row_maximum(const berthi_rows_arguments *a, int32_t dtype, uint64_t first,
            absmax_function *absmax_of)
{
    const uint64_t whole = a->columns - a->columns % ROW_TURN;
    float maximum = BERTHI_CORE_ROW_SEED;

    for (uint64_t i = 0; i < whole;) {
        const uint32_t count = whole - i > 1u << 20 ? 1u << 20 : (uint32_t)(whole - i);
        const float largest = absmax_of(a->values, dtype, first + i, count);

        if (!(largest <= LARGEST_FLOAT)) /* NaN is ignored, infinity is not: by the rules */
            return NAN;
        maximum = largest >= maximum ? largest : maximum;
        i += count;
    }
    for (uint64_t i = first + whole; i < first + a->columns; i++)
        maximum = berthi_core_absmax_step(maximum, berthi_core_load(a->values, dtype, i));
    return berthi_core_from_fp16(berthi_core_to_fp16(maximum));
}

/*
 * Values of a turn of encoding: meanwhile what of the next row lies at the same
 * place is fetched, else memory would rest until that row's maximum is looked for,
 * and so are the lines that codes will be written to.
 */
#define FETCH_TURN 256u
#define FETCHED_CODES 2048u /* ahead of the one that is written */
#define FETCHED (UINT64_C(64) << 10) /* bytes of a row, so that it is still near then */

ALWAYS_INLINE void
encode_row_turns(const berthi_rows_arguments *a, int32_t dtype, uint64_t first,
                 uint64_t count, float scale, encode_row_function *encode_row)
{
    const uint64_t bytes = berthi_number_bytes(dtype);
    const bool has_next = a->columns * bytes <= FETCHED;
    const uintptr_t codes = (uintptr_t)a->codes + FETCHED_CODES;

    for (uint64_t i = first; i < first + count; i += FETCH_TURN) {
        const uint64_t left = first + count - i;
        const char *const next = (const char *)a->values + (i + a->columns) * bytes;

        for (uint64_t k = 0; has_next && k < FETCH_TURN * bytes; k += 64)
            __builtin_prefetch(next + k, 0, 2);
        for (uint64_t k = 0; k < FETCH_TURN; k += 64)
            __builtin_prefetch((const void *)(codes + i + k), 1);
        encode_row(a, dtype, i, left < FETCH_TURN ? left : FETCH_TURN, scale);
    }
}

ALWAYS_INLINE void
encode_rows_typed(const berthi_rows_arguments *a, int32_t dtype,
                  absmax_function *absmax_of, encode_row_function *encode_row)
{
    const uint64_t whole = a->columns - a->columns % ROW_TURN;

    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        const float maximum = row_maximum(a, dtype, first, absmax_of);

        if (maximum <= LARGEST_FLOAT) {
            const float scale = berthi_core_int8_scale(maximum);

            a->row_maximum[row] = maximum;
            encode_row_turns(a, dtype, first, whole, scale, encode_row);
            encode_row_end(a, first + whole, first + a->columns, scale);
        } else {
            berthi_scalar_operations.encode_rows(&(berthi_rows_arguments){
                (const uint8_t *)a->values + first * berthi_number_bytes(dtype), dtype, 1,
                a->columns, a->codes + first, a->row_maximum + row });
        }
    }
}

/* One copy per dtype, so that the loads carry no branch. */
ALWAYS_INLINE void
encode_rows_by(const berthi_rows_arguments *a, absmax_function *absmax_of,
               encode_row_function *encode_row)
{
    if (a->dtype == BERTH_BF16)
        encode_rows_typed(a, BERTH_BF16, absmax_of, encode_row);
    else if (a->dtype == BERTH_F16)
        encode_rows_typed(a, BERTH_F16, absmax_of, encode_row);
    else
        encode_rows_typed(a, BERTH_F32, absmax_of, encode_row);
}

/* ------------------------------------------------------- rows with what is apart */

/* Of the turn at column `k`: outliers are noted, the others take part in the maximum. */
static float
activation_turn(const berthi_activation_arguments *a, uint64_t first, uint64_t k,
                float maximum)
{
    const uint64_t end = k + ROW_TURN < a->columns ? k + ROW_TURN : a->columns;

    for (; k < end; k++) {
        const float value = berthi_core_from_fp16(
            berthi_core_to_fp16(berthi_core_load(a->values, a->dtype, first + k)));

        if (fabsf(value) >= a->threshold)
            berthi_note_outlier(a, k);
        else
            maximum = berthi_core_absmax_step(maximum, value);
    }
    return maximum;
}

/* Turns far below the threshold have no outliers, however they are rounded. */
ALWAYS_INLINE float
activation_maximum(const berthi_activation_arguments *a, int32_t dtype, uint64_t first,
                   absmax_function *absmax_of)
{
    const uint64_t whole = a->columns - a->columns % ROW_TURN;
    const float bound = (a->threshold < LARGEST_FP16 ? a->threshold : LARGEST_FP16) / 2;
    float maximum = BERTHI_CORE_ROW_SEED;

    for (uint64_t k = 0; k < a->columns; k += ROW_TURN) {
        const float largest =
            k < whole ? absmax_of(a->values, dtype, first + k, ROW_TURN) : NAN;

        if (!(largest < bound)) /* NaN, too */
            maximum = activation_turn(a, first, k, maximum);
        else if (largest >= maximum)
            maximum = largest;
    }
    return berthi_core_from_fp16(berthi_core_to_fp16(maximum));
}

ALWAYS_INLINE void
encode_activation_row_typed(const berthi_activation_arguments *a, int32_t dtype, uint64_t row,
                            absmax_function *absmax_of, encode_row_function *encode_row)
{
    const berthi_rows_arguments as_rows = { a->values,  a->dtype, a->rows,
                                            a->columns, a->codes, a->row_maximum };
    const uint64_t whole = a->columns - a->columns % ROW_TURN;
    const uint64_t first = row * a->columns;
    const float maximum = activation_maximum(a, dtype, first, absmax_of);
    const float scale = berthi_core_int8_scale(maximum);

    a->row_maximum[row] = maximum;
    encode_row_turns(&as_rows, dtype, first, whole, scale, encode_row);
    encode_row_end(&as_rows, first + whole, first + a->columns, scale);
}

ALWAYS_INLINE void
encode_activation_row_by(const berthi_activation_arguments *a, uint64_t row,
                         absmax_function *absmax_of, encode_row_function *encode_row)
{
    if (a->dtype == BERTH_BF16)
        encode_activation_row_typed(a, BERTH_BF16, row, absmax_of, encode_row);
    else if (a->dtype == BERTH_F16)
        encode_activation_row_typed(a, BERTH_F16, row, absmax_of, encode_row);
    else
        encode_activation_row_typed(a, BERTH_F32, row, absmax_of, encode_row);
}

/*
 * A threshold that is no fp16 is the reference's: what lies between it and its fp16 has a
 * code of its own there, though it is in no maximum.
 */
ALWAYS_INLINE void
encode_activations_by(const berthi_activation_arguments *a,
                      void (*encode_rows)(const berthi_rows_arguments *rows),
                      void (*encode_row)(const berthi_activation_arguments *own,
                                         uint64_t row))
{
    const float rounded = berthi_core_from_fp16(berthi_core_to_fp16(a->threshold));

    if (!(a->threshold > 0.0f) && a->is_outlier != NULL)
        memset(a->is_outlier, 0, a->columns);
    if (!(a->threshold > 0.0f))
        encode_rows(&(berthi_rows_arguments){ a->values, a->dtype, a->rows, a->columns,
                                              a->codes, a->row_maximum });
    else if (rounded >= a->threshold && rounded <= a->threshold)
        berthi_encode_activations_by(a, encode_row);
    else
        berthi_encode_activations(a);
}

ALWAYS_INLINE void
decode_rows_by(const berthi_rows_decode_arguments *a, decode_row_function *decode_row)
{
    const uint64_t whole = a->columns - a->columns % ROW_TURN;

    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        /* Infinity times zero is a NaN. */
        const uint64_t done = fabsf(a->row_maximum[row]) <= LARGEST_FLOAT ? whole : 0;

        decode_row(a, first, done, a->row_maximum[row]);
        berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
            a->codes + first + done, a->row_maximum + row, 1, a->columns - done, a->dtype,
            (uint8_t *)a->values + (first + done) * berthi_number_bytes(a->dtype) });
    }
}

#endif
