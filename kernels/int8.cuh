/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8.cuh - LLM.int8(): rows -> codes and row maxima, with outlier columns, and
 * codes -> values.
 *
 * A row stays in registers, rounded to fp16, between the search for its maximum
 * and its codes, so it is read once: by one warp up to 2048 columns, by a CTA up
 * to 32768 (of f32 half as many). The CTA has as few lanes as that takes: all of
 * them then have all turns, whose loads come before the first use, and several
 * rows are on a processor's way at once. Longer rows and odd addresses are read
 * twice, one element at a time.
 *
 * Outliers are few: a lane first goes on as if there were none, and where it has
 * met one reads its elements again, one at a time.
 *
 * Outlier columns never pass through the host: rows set bits of a mask, one CTA
 * makes an ascending list of them, and what comes later reads the list's length
 * from memory. A list that is too short is passed over for the mask.
 *
 *   traffic   encoding: per element 2 B (f32: 4 B) read, 1 B written; decoding
 *             the other way round
 *   launch    berthi_int8_ctas(), berthi_int8_clear_ctas() and
 *             berthi_int8_decode_ctas() CTAs; collecting is one CTA
 *   bits      core.h; the order of lanes cannot matter: maxima are exact, and
 *             bits are only ever set
 *   bounds    writes exactly rows * columns codes or values and a maximum a row
 */
#ifndef BERTH_KERNELS_INT8_CUH
#define BERTH_KERNELS_INT8_CUH

#include "kernels/core.h"
#include "kernels/dequantize.cuh"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/* What a kernel is made for: its dtype is a constant, and a warp's lanes are. */
typedef struct int8_variant {
    int32_t dtype;
    bool is_warp;   /* a row's lanes; else the whole CTA */
    uint32_t lanes; /* of a row */
} int8_variant;

/* -------------------------------------------------------------------- values */

/* A lane's share of a row: elements rounded to fp16, two to a word. */
typedef struct int8_values {
    uint32_t word[INT8_TURNS][INT8_LANE / 2];
} int8_values;

SIMT_INLINE float
int8_value(const uint32_t *words, uint32_t k)
{
    return berthi_core_from_fp16((uint16_t)(k % 2 == 0 ? words[k / 2] : words[k / 2] >> 16));
}

/* Eight neighbours as they are: four words, of f32 eight. */
SIMT_INLINE void
int8_load(const uint8_t *from, int32_t dtype, uint32_t *words)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < (dtype == BERTH_F32 ? 2u : 1u); k++) {
        const simt_four four = simt_load16(from + 16 * k);

        SIMT_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            words[4 * k + j] = four.word[j];
    }
}

/* They become fp16; `to` may be where they are. */
SIMT_INLINE void
int8_round(int32_t dtype, const uint32_t *words, uint32_t *to)
{
    SIMT_UNROLL
    for (uint32_t j = 0; j < INT8_LANE / 2; j++)
        if (dtype == BERTH_F16)
            to[j] = words[j];
        else if (dtype == BERTH_BF16)
            to[j] = berthi_core_to_fp16_pair(berthi_core_float(words[j] << 16),
                                             berthi_core_float(words[j] & 0xFFFF0000u));
        else
            to[j] = berthi_core_to_fp16_pair(berthi_core_float(words[2 * j]),
                                             berthi_core_float(words[2 * j + 1]));
}

/*
 * Whether all loads come before the first rounding, which would else wait for each turn's own.
 * Before sm_80 a rounded value has a register of its own until its neighbour is there, and 64
 * of them are too many.
 */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
#define INT8_LOADS_FIRST false
#else
#define INT8_LOADS_FIRST true
#endif

/* What the rest of the row is made of takes no part: NaN. */
SIMT_INLINE void
int8_load_row(const berthi_int8_kernel *a, int8_variant v, uint64_t row, uint32_t lane,
              int8_values *values)
{
    const uint32_t bytes = v.dtype == BERTH_F32 ? 4 : 2;
    const uint32_t words = INT8_LANE * bytes / 4;
    const uint32_t columns = (uint32_t)a->columns; /* no more than registers hold */
    const uint8_t *const from = (const uint8_t *)a->values
                                + (row * a->columns + lane * INT8_LANE) * bytes;
    uint32_t loaded[INT8_TURNS * INT8_LANE / 2];

    SIMT_UNROLL
    for (uint32_t t = 0; t < berthi_int8_turns(v.dtype); t++) {
        const uint32_t first = (t * v.lanes + lane) * INT8_LANE;

        SIMT_UNROLL
        for (uint32_t j = 0; j < words; j++)
            loaded[t * words + j] = v.dtype == BERTH_F32 ? 0x7FFFFFFFu : 0x7FFF7FFFu;
        SIMT_UNROLL
        for (uint32_t j = 0; j < INT8_LANE / 2; j++)
            values->word[t][j] = 0x7FFF7FFFu;
        if (first < columns) {
            int8_load(from + t * (v.lanes * INT8_LANE * bytes), v.dtype, loaded + t * words);
            if (!INT8_LOADS_FIRST)
                int8_round(v.dtype, loaded + t * words, values->word[t]);
        }
    }
    SIMT_UNROLL
    for (uint32_t t = 0; t < berthi_int8_turns(v.dtype) && INT8_LOADS_FIRST; t++)
        int8_round(v.dtype, loaded + t * words, values->word[t]);
}

/* ------------------------------------------------------------------- maximum */

SIMT_INLINE float
int8_find_maximum(const int8_values *values, int8_variant v)
{
    float maximum = BERTHI_CORE_ROW_SEED;

    SIMT_UNROLL
    for (uint32_t t = 0; t < berthi_int8_turns(v.dtype); t++)
        SIMT_UNROLL
        for (uint32_t k = 0; k < INT8_LANE; k++)
            maximum = berthi_core_absmax_step(maximum, int8_value(values->word[t], k));
    return maximum;
}

/* Of a warp's lanes, for all of them. */
SIMT_INLINE float
int8_join_warp(float maximum)
{
    SIMT_UNROLL
    for (uint32_t step = 1; step < SIMT_WARP; step *= 2)
        maximum = berthi_core_absmax_join(maximum, simt_shuffle_xor(maximum, step));
    return maximum;
}

/* Of a CTA's; `maxima` holds one a warp. */
SIMT_INLINE float
int8_join_cta(float maximum, uint32_t lanes, float *maxima)
{
    maximum = int8_join_warp(maximum);
    if (simt_thread() % SIMT_WARP == 0)
        maxima[simt_thread() / SIMT_WARP] = maximum;
    simt_barrier();
    SIMT_UNROLL
    for (uint32_t k = 0; k < INT8_THREADS / SIMT_WARP; k++)
        if (k < lanes / SIMT_WARP)
            maximum = berthi_core_absmax_join(maximum, maxima[k]);
    return maximum;
}

/* --------------------------------------------------------------------- codes */

SIMT_INLINE simt_two
int8_codes(uint32_t *words, float scale)
{
    simt_two codes = { { 0, 0 } };

    /* What the maximum was found among is not kept unpacked: twice the registers. */
    SIMT_UNROLL
    for (uint32_t j = 0; j < INT8_LANE / 2; j++)
        simt_look_anew(&words[j]);
    SIMT_UNROLL
    for (uint32_t k = 0; k < INT8_LANE; k++)
        codes.word[k / 4] |= (uint32_t)(uint8_t)berthi_core_int8_code(int8_value(words, k), scale)
                             << (k % 4 * 8);
    return codes;
}

SIMT_INLINE void
int8_store_row(const berthi_int8_kernel *a, int8_variant v, uint64_t row, uint32_t lane,
               int8_values *values, float scale)
{
    const uint32_t columns = (uint32_t)a->columns;
    int8_t *const to = a->codes + row * a->columns + lane * INT8_LANE;

    SIMT_UNROLL
    for (uint32_t t = 0; t < berthi_int8_turns(v.dtype); t++) {
        const uint32_t first = (t * v.lanes + lane) * INT8_LANE;

        if (first < columns)
            simt_store8(to + t * (v.lanes * INT8_LANE), int8_codes(values->word[t], scale));
    }
}

/* ------------------------------------------------- elements of a lane, one by one */

SIMT_INLINE float
int8_load_one(const berthi_int8_kernel *a, int32_t dtype, uint64_t i)
{
    return berthi_core_load_fp16(a->values, dtype, i);
}

/* `step` neighbours from `first` on are a lane's, and again every `stride`: element i of them. */
typedef struct int8_share {
    uint64_t begin; /* of the row */
    uint64_t first;
    uint32_t step;
    uint32_t stride;
} int8_share;

SIMT_INLINE uint64_t
int8_column(const int8_share *share, uint64_t i)
{
    return share->first + i / share->step * share->stride + i % share->step;
}

SIMT_INLINE float
int8_find_maximum_without_outliers(const berthi_int8_kernel *a, int32_t dtype,
                                   const int8_share *share)
{
    const bool has_outliers = a->threshold > 0.0f;
    float maximum = BERTHI_CORE_ROW_SEED;

    SIMT_NO_UNROLL
    for (uint64_t i = 0, k = share->first; k < a->columns; k = int8_column(share, ++i)) {
        const float value = int8_load_one(a, dtype, share->begin + k);

        if (!(has_outliers && fabsf(value) >= a->maximum_limit))
            maximum = berthi_core_absmax_step(maximum, value);
    }
    return maximum;
}

/* Sets their columns' bits; their codes are 0 from here on. */
SIMT_INLINE void
int8_mark_outliers(const berthi_int8_kernel *a, int32_t dtype, const int8_share *share)
{
    SIMT_NO_UNROLL
    for (uint64_t i = 0, k = share->first; k < a->columns; k = int8_column(share, ++i))
        if (fabsf(int8_load_one(a, dtype, share->begin + k)) >= a->threshold) {
            a->codes[share->begin + k] = 0;
            simt_atomic_or(a->outliers + k / 32, 1u << k % 32);
        }
}

/* ---------------------------------------------------------------------- rows */

SIMT_INLINE void
int8_encode(const berthi_int8_kernel *a, int8_variant v)
{
    SIMT_SHARED(float, maxima, INT8_THREADS / SIMT_WARP);
    const uint32_t lane = v.is_warp ? simt_thread() % SIMT_WARP : simt_thread();
    const uint64_t row = v.is_warp ? simt_cta() * (INT8_WARP_THREADS / SIMT_WARP)
                                         + simt_thread() / SIMT_WARP
                                   : simt_cta();
    const int8_share share = { row * a->columns, lane * INT8_LANE, INT8_LANE,
                               v.lanes * INT8_LANE };
    int8_values values;
    bool has_outliers;
    float maximum;

    if (row >= a->rows)
        return; /* all lanes of a warp, never some of a CTA's that meet */
    int8_load_row(a, v, row, lane, &values);
    maximum = int8_find_maximum(&values, v);
    has_outliers = a->threshold > 0.0f
                   && (maximum >= a->threshold || maximum >= a->maximum_limit);
    if (has_outliers)
        maximum = int8_find_maximum_without_outliers(a, v.dtype, &share);
    maximum = v.is_warp ? int8_join_warp(maximum) : int8_join_cta(maximum, v.lanes, maxima);
    int8_store_row(a, v, row, lane, &values, berthi_core_int8_scale(maximum));
    if (has_outliers)
        int8_mark_outliers(a, v.dtype, &share);
    if (lane == 0)
        a->row_maximum[row] = maximum;
}

/* Any length, any address: a CTA a row, which is read twice or three times. */
SIMT_INLINE void
int8_encode_any(const berthi_int8_kernel *a, int32_t dtype)
{
    SIMT_SHARED(float, maxima, INT8_THREADS / SIMT_WARP);
    const uint64_t begin = simt_cta() * a->columns;
    const int8_share share = { begin, simt_thread(), 1, INT8_THREADS };
    const float maximum = int8_join_cta(
        int8_find_maximum_without_outliers(a, dtype, &share), INT8_THREADS, maxima);
    const float scale = berthi_core_int8_scale(maximum);

    SIMT_NO_UNROLL
    for (uint64_t k = simt_thread(); k < a->columns; k += INT8_THREADS)
        a->codes[begin + k] = berthi_core_int8_code(int8_load_one(a, dtype, begin + k), scale);
    if (a->threshold > 0.0f)
        int8_mark_outliers(a, dtype, &share);
    if (simt_thread() == 0)
        a->row_maximum[simt_cta()] = maximum;
}

/* ------------------------------------------------------------------ outliers */

/* The sum of the lanes before this one; `counts` holds one a lane, twice. */
SIMT_INLINE uint32_t
outlier_sum_before(uint32_t own, uint32_t *counts)
{
    const uint32_t thread = simt_thread();
    uint32_t sum = own;
    uint32_t half = 0;

    SIMT_NO_UNROLL
    for (uint32_t step = 1; step < OUTLIER_THREADS; step *= 2) {
        counts[half + thread] = sum;
        simt_barrier();
        if (thread >= step)
            sum += counts[half + thread - step];
        /* The other half: what this step writes a slow lane may still read. */
        half = OUTLIER_THREADS - half;
    }
    return sum - own;
}

/* The mask -> an ascending list of as many columns as it has room for, and all's number. */
SIMT_INLINE void
outlier_collect(const berthi_outlier_kernel *a)
{
    SIMT_SHARED(uint32_t, counts, 2 * OUTLIER_THREADS);
    const uint64_t words = a->columns / 32 + (a->columns % 32 != 0);
    const uint64_t share = words / OUTLIER_THREADS + (words % OUTLIER_THREADS != 0);
    const uint64_t begin = simt_thread() * share;
    const uint64_t end = begin + share < words ? begin + share : words;
    uint32_t own = 0;
    uint32_t at;

    for (uint64_t i = begin; i < end; i++)
        own += simt_count_bits(a->outliers[i]);
    at = outlier_sum_before(own, counts);
    for (uint64_t i = begin; i < end; i++)
        for (uint32_t word = a->outliers[i]; word != 0; word &= word - 1, at++)
            if (at < a->capacity)
                a->list[at] = (uint32_t)(32 * i) + simt_first_bit(word);
    if (simt_thread() == OUTLIER_THREADS - 1)
        *a->count = at;
}

/* The codes of outlier columns become 0 in every row. */
SIMT_INLINE void
outlier_clear(const berthi_outlier_kernel *a)
{
    const uint64_t begin = simt_cta() * OUTLIER_ROWS;
    const uint32_t rows =
        a->rows - begin < OUTLIER_ROWS ? (uint32_t)(a->rows - begin) : OUTLIER_ROWS;
    const uint32_t count = *a->count;

    if (count <= a->capacity) {
        for (uint64_t i = simt_thread(); i < (uint64_t)count * rows; i += OUTLIER_THREADS)
            a->codes[(begin + i / count) * a->columns + a->list[i % count]] = 0;
        return;
    }
    for (uint64_t k = simt_thread(); k < a->columns; k += OUTLIER_THREADS)
        if ((a->outliers[k / 32] >> k % 32 & 1u) != 0)
            for (uint32_t row = 0; row < rows; row++)
                a->codes[(begin + row) * a->columns + k] = 0;
}

/* ------------------------------------------------------------------ decoding */

SIMT_INLINE void
int8_decode_eight(simt_two codes, float row_maximum, float *values)
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < INT8_LANE; k++)
        values[k] = berthi_core_int8_value((int8_t)(uint8_t)(codes.word[k / 4] >> k % 4 * 8),
                                           row_maximum);
}

/* Of the CTA's row; all turns' loads come before the first use. */
SIMT_INLINE void
int8_decode_whole(const berthi_int8_decode_kernel *a, int32_t dtype, uint64_t row,
                  uint64_t first)
{
    const decode_variant as = { dtype, true, false, false };
    const uint32_t bytes = dtype == BERTH_F32 ? 4 : 2;
    const float maximum = a->row_maximum[row];
    const int8_t *const codes = a->codes + row * a->columns + first;
    uint8_t *const to = (uint8_t *)a->values + (row * a->columns + first) * bytes;
    simt_two inputs[INT8_DECODE_TURNS];

    SIMT_UNROLL
    for (uint32_t t = 0; t < INT8_DECODE_TURNS; t++)
        if (first + t * INT8_DECODE_TURN < a->columns)
            inputs[t] = simt_load8(codes + t * INT8_DECODE_TURN);
    SIMT_UNROLL
    for (uint32_t t = 0; t < INT8_DECODE_TURNS; t++) {
        float values[INT8_LANE];

        if (first + t * INT8_DECODE_TURN >= a->columns)
            return;
        int8_decode_eight(inputs[t], maximum, values);
        decode_store_whole(to + (size_t)t * INT8_DECODE_TURN * bytes, as, values);
    }
}

SIMT_INLINE void
int8_decode(const berthi_int8_decode_kernel *a, int32_t dtype)
{
    const uint64_t in_row = berthi_int8_decode_ctas(1, a->columns);
    const uint64_t row = simt_cta() / in_row;
    const uint64_t begin = simt_cta() % in_row * INT8_DECODE_CTA;

    if (a->is_aligned != 0) {
        int8_decode_whole(a, dtype, row, begin + simt_thread() * INT8_LANE);
        return;
    }
    SIMT_NO_UNROLL
    for (uint64_t k = begin + simt_thread(); k < begin + INT8_DECODE_CTA && k < a->columns;
         k += INT8_DECODE_THREADS) {
        const uint64_t i = row * a->columns + k;

        berthi_core_store(a->values, dtype, i,
                          berthi_core_int8_value(a->codes[i], a->row_maximum[row]));
    }
}

/* ------------------------------------------------------------------- kernels */

#define INT8_ENCODE_KERNEL(name, dtype, threads, is_warp, lanes)                      \
    SIMT_INLINE void name##_body(const berthi_int8_kernel *a)                         \
    {                                                                                 \
        const int8_variant v = { dtype, is_warp, lanes };                             \
                                                                                      \
        int8_encode(a, v);                                                            \
    }                                                                                 \
    SIMT_KERNEL(name, threads, berthi_int8_kernel, name##_body(a))

/* Of one dtype: a warp or a CTA a row, and the one for the rest. */
#define INT8_ENCODE_KERNELS(name, dtype)                                              \
    INT8_ENCODE_KERNEL(name##_warp, dtype, INT8_WARP_THREADS, true, SIMT_WARP)        \
    INT8_ENCODE_KERNEL(name##_cta, dtype, INT8_THREADS, false, a->lanes)              \
    SIMT_KERNEL(name##_any, INT8_THREADS, berthi_int8_kernel, int8_encode_any(a, dtype))

INT8_ENCODE_KERNELS(berthi_int8_encode_bf16, BERTH_BF16)
INT8_ENCODE_KERNELS(berthi_int8_encode_f16, BERTH_F16)
INT8_ENCODE_KERNELS(berthi_int8_encode_f32, BERTH_F32)

SIMT_KERNEL(berthi_outlier_collect, OUTLIER_THREADS, berthi_outlier_kernel, outlier_collect(a))
SIMT_KERNEL(berthi_outlier_clear, OUTLIER_THREADS, berthi_outlier_kernel, outlier_clear(a))

SIMT_KERNEL(berthi_int8_decode_bf16, INT8_DECODE_THREADS, berthi_int8_decode_kernel,
            int8_decode(a, BERTH_BF16))
SIMT_KERNEL(berthi_int8_decode_f16, INT8_DECODE_THREADS, berthi_int8_decode_kernel,
            int8_decode(a, BERTH_F16))
SIMT_KERNEL(berthi_int8_decode_f32, INT8_DECODE_THREADS, berthi_int8_decode_kernel,
            int8_decode(a, BERTH_F32))

#endif
