/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.h - what the files of the AVX2 level share; included by them alone. */
#ifndef BERTH_KERNELS_AVX2_H
#define BERTH_KERNELS_AVX2_H

#ifdef __AVX2__ /* a file without the level's flags sees nothing */

#include "kernels/simd_blocks.h"

#include <immintrin.h>

/* product_avx2.c: entries of the level's table. */
void berthi_avx2_multiply_nf4(const berthi_product_arguments *arguments);
void berthi_avx2_multiply_fp4(const berthi_product_arguments *arguments);
void berthi_avx2_dot_int8(const berthi_dot_arguments *arguments);

/* kernel8_avx2.c: entries of the level's table. */
void berthi_avx2_encode_map(const berthi_encode_arguments *arguments);
void berthi_avx2_encode_double(const berthi_double_arguments *arguments);
void berthi_avx2_decode_double(const berthi_double_arguments *arguments, float *out_absmax);
void berthi_avx2_encode_rows(const berthi_rows_arguments *arguments);
void berthi_avx2_decode_rows(const berthi_rows_decode_arguments *arguments);
void berthi_avx2_encode_activations(const berthi_activation_arguments *arguments);

/* optimizer_avx2.c: an entry of the level's table. */
uint64_t berthi_avx2_update(const berthi_update_arguments *arguments,
                            const berthi_update_constants *constants);
void berthi_avx2_encode_state(const berthi_state_arguments *arguments);
void berthi_avx2_decode_state(const berthi_state_arguments *arguments);
void berthi_avx2_measure(const berthi_measure_arguments *arguments);
void berthi_avx2_accumulate(const berthi_accumulate_arguments *arguments);

/* ------------------------------------------------------------------- values */

/* As berthi_core_flush(): a subnormal number keeps its sign. */
ALWAYS_INLINE __m256
flush_subnormal(__m256 a)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i is_small = _mm256_cmpeq_epi32(
        _mm256_and_si256(bits, _mm256_set1_epi32(0x7F800000)), _mm256_setzero_si256());

    return _mm256_castsi256_ps(_mm256_andnot_si256(
        _mm256_and_si256(is_small, _mm256_set1_epi32(INT32_MAX)), bits));
}

/* As berthi_core_one_nan(). */
ALWAYS_INLINE __m256
one_nan(__m256 a)
{
    return _mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX)),
                            _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

/* ------------------------------------------------------------------- absmax */

/* Magnitudes are in the order of their bits: an integer maximum. */
ALWAYS_INLINE uint32_t
largest_16_bit(const uint16_t *values, uint32_t count)
{
    const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
    __m256i largest = _mm256_setzero_si256();
    __m128i half;

    for (uint32_t i = 0; i < count; i += 16)
        largest = _mm256_max_epu16(
            largest, _mm256_and_si256(
                         _mm256_loadu_si256((const __m256i *)(values + i)), magnitude));
    half = _mm_max_epu16(_mm256_castsi256_si128(largest),
                         _mm256_extracti128_si256(largest, 1));
    /* The one horizontal instruction finds a minimum. */
    half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
    return ~(uint32_t)_mm_cvtsi128_si32(half) & 0xFFFFu;
}

ALWAYS_INLINE uint32_t
largest_32_bit(const uint32_t *values, uint32_t count)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i largest = _mm256_setzero_si256();
    __m128i half;

    for (uint32_t i = 0; i < count; i += 8)
        largest = _mm256_max_epu32(
            largest, _mm256_and_si256(
                         _mm256_loadu_si256((const __m256i *)(values + i)), magnitude));
    half = _mm_max_epu32(_mm256_castsi256_si128(largest),
                         _mm256_extracti128_si256(largest, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4E));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

ALWAYS_INLINE float
find_absmax(const void *values, int32_t dtype, uint64_t first, uint32_t count)
{
    if (dtype == BERTH_F32)
        return berthi_core_float(largest_32_bit((const uint32_t *)values + first, count));
    const uint32_t bits = largest_16_bit((const uint16_t *)values + first, count);

    return dtype == BERTH_BF16 ? berthi_core_from_bf16((uint16_t)bits)
                               : berthi_core_from_fp16((uint16_t)bits);
}

/* Eight elements, widened. */
ALWAYS_INLINE __m256
load_8(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32)
        return _mm256_loadu_ps((const float *)values + first);
    const __m128i half =
        _mm_loadu_si128((const __m128i *)((const uint16_t *)values + first));

    if (dtype == BERTH_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* To 16 bits, nearest even, in 32-bit lanes; values are finite or overflow. */
ALWAYS_INLINE __m256i
round_values(__m256 values, int32_t dtype)
{
    if (dtype == BERTH_BF16) {
        const __m256i bits = _mm256_castps_si256(values);
        const __m256i odd =
            _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

        return _mm256_srli_epi32(
            _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    }
    return _mm256_cvtepu16_epi32(
        _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#endif
#endif
