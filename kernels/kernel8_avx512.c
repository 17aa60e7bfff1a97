/* SPDX-License-Identifier: Apache-2.0 */
/* kernel8_avx512.c - 8-bit codes with AVX-512: blocks by a map, LLM.int8() rows. */
#include "kernels/avx512.h"
#include "kernels/map_bins.h"

/* ------------------------------------------------------------------ maps */

static void
encode_map_bins(const berthi_encode_arguments *a, const void *tables)
{
    encode_all(a, tables, find_absmax, encode_map_block,
               berthi_scalar_operations.encode_map);
}

void
berthi_avx512_encode_map(const berthi_encode_arguments *a)
{
    encode_map_by(a, encode_map_bins);
}

void
berthi_avx512_encode_double(const berthi_double_arguments *a)
{
    encode_double_by(a, encode_map_bins);
}

/* --------------------------------------------------------------- LLM.int8() */

/* 16 elements, widened. */
ALWAYS_INLINE __m512
load_16(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32)
        return _mm512_loadu_ps((const float *)values + first);
    const __m256i half
        = _mm256_loadu_si256((const __m256i *)((const uint16_t *)values + first));

    if (dtype == BERTH_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* What does not fill a register, with the scale of its row. */
static void
encode_row_end(const berthi_rows_arguments *a, uint64_t first, uint64_t end, float scale)
{
    for (uint64_t i = first; i < end; i++) {
        const float value = berthi_core_load(a->values, a->dtype, i);

        a->codes[i] = berthi_core_int8_code(
            berthi_core_from_fp16(berthi_core_to_fp16(value)), scale);
    }
}

/* NaN and overflow become 0x80000000, whose last byte is the code 0 they need. */
ALWAYS_INLINE void
encode_row(const berthi_rows_arguments *a, int32_t dtype, uint64_t first, float maximum)
{
    const float scale = berthi_core_int8_scale(maximum);
    const __m512 factor = _mm512_set1_ps(scale);
    const uint64_t end = first + a->columns;
    uint64_t i = first;

    for (; end - i >= 16; i += 16) {
        const __m512 values = load_16(a->values, dtype, i);
        const __m512 rounded
            = dtype == BERTH_F16 ? values
                                 : _mm512_cvtph_ps(round_to_16_bit(values, BERTH_F16));
        const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(rounded, factor));

        _mm_storeu_si128((__m128i *)(a->codes + i), _mm512_cvtepi32_epi8(codes));
    }
    encode_row_end(a, i, end, scale);
}

/* Rounding keeps order: the maximum is rounded instead of every value. */
ALWAYS_INLINE float
row_maximum(const berthi_rows_arguments *a, int32_t dtype, uint64_t first)
{
    const uint64_t whole = a->columns - a->columns % 32;
    float maximum = 0.0f;

    for (uint64_t i = 0; i < whole;) {
        const uint32_t count = whole - i > 1u << 20 ? 1u << 20 : (uint32_t)(whole - i);
        const float largest = find_absmax(a->values, dtype, first + i, count);

        if (!(largest <= LARGEST_FLOAT)) /* NaN is ignored, infinity is not: by the rules */
            return NAN;
        maximum = largest > maximum ? largest : maximum;
        i += count;
    }
    for (uint64_t i = first + whole; i < first + a->columns; i++)
        maximum = berthi_core_absmax_step(maximum, berthi_core_load(a->values, dtype, i));
    return berthi_core_from_fp16(berthi_core_to_fp16(maximum));
}

ALWAYS_INLINE void
encode_rows_typed(const berthi_rows_arguments *a, int32_t dtype)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        const float maximum = row_maximum(a, dtype, first);

        if (maximum <= LARGEST_FLOAT) {
            a->row_maximum[row] = maximum;
            encode_row(a, dtype, first, maximum);
        } else {
            berthi_scalar_operations.encode_rows(&(berthi_rows_arguments){
                (const uint8_t *)a->values + first * element_bytes(dtype), dtype, 1,
                a->columns, a->codes + first, a->row_maximum + row });
        }
    }
}

void
berthi_avx512_encode_rows(const berthi_rows_arguments *a)
{
    if (a->dtype == BERTH_BF16)
        encode_rows_typed(a, BERTH_BF16);
    else if (a->dtype == BERTH_F16)
        encode_rows_typed(a, BERTH_F16);
    else
        encode_rows_typed(a, BERTH_F32);
}

ALWAYS_INLINE void
decode_16(const berthi_rows_decode_arguments *a, uint64_t i, __m512 maximum)
{
    const __m512 codes = _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(a->codes + i))));
    const __m512 values
        = _mm512_mul_ps(_mm512_mul_ps(codes, maximum),
                        _mm512_set1_ps(berthi_core_float(BERTHI_INT8_INVERSE_BITS)));

    if (a->dtype == BERTH_F32)
        _mm512_storeu_ps((float *)a->values + i, values);
    else
        _mm256_storeu_si256((__m256i *)((uint16_t *)a->values + i),
                            round_to_16_bit(values, a->dtype));
}

void
berthi_avx512_decode_rows(const berthi_rows_decode_arguments *a)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        const uint64_t first = row * a->columns;
        const float maximum = a->row_maximum[row];
        uint64_t done = 0;

        if (fabsf(maximum) <= LARGEST_FLOAT) /* infinity times zero is a NaN */
            for (; a->columns - done >= 16; done += 16)
                decode_16(a, first + done, _mm512_set1_ps(maximum));
        berthi_scalar_operations.decode_rows(&(berthi_rows_decode_arguments){
            a->codes + first + done, a->row_maximum + row, 1, a->columns - done, a->dtype,
            (uint8_t *)a->values + (first + done) * element_bytes(a->dtype) });
    }
}
