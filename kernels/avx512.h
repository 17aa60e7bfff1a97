/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.h - what the files of the AVX-512 level share; included by them alone. */
#ifndef BERTH_KERNELS_AVX512_H
#define BERTH_KERNELS_AVX512_H

#ifdef __AVX512BW__ /* a file without the level's flags sees nothing */

#include "kernels/simd_blocks.h"

#include <immintrin.h>

/* nf4_bf16_avx512.c: encode_nf4 of BERTH_BF16. */
void berthi_avx512_encode_nf4_bf16(const berthi_encode_arguments *arguments);

/* double_avx512.c: entries of the level's table. */
void berthi_avx512_encode_double(const berthi_double_arguments *arguments);
void berthi_avx512_decode_double(const berthi_double_arguments *arguments, float *out_absmax);
void berthi_avx512_add_mean_rows(const berthi_mean_rows_arguments *arguments);

/* product_avx512.c: entries of the level's table. */
void berthi_avx512_multiply_nf4(const berthi_product_arguments *arguments);
void berthi_avx512_multiply_fp4(const berthi_product_arguments *arguments);
void berthi_avx512_dot_int8(const berthi_dot_arguments *arguments);

/* kernel8_avx512.c: entries of the level's table. */
void berthi_avx512_encode_map(const berthi_encode_arguments *arguments);
void berthi_avx512_encode_rows(const berthi_rows_arguments *arguments);
void berthi_avx512_decode_rows(const berthi_rows_decode_arguments *arguments);
void berthi_avx512_encode_activations(const berthi_activation_arguments *arguments);

/* optimizer_avx512.c: an entry of the level's table. */
uint64_t berthi_avx512_update(const berthi_update_arguments *arguments,
                              const berthi_update_constants *constants);
void berthi_avx512_encode_state(const berthi_state_arguments *arguments);
void berthi_avx512_decode_state(const berthi_state_arguments *arguments);
void berthi_avx512_measure(const berthi_measure_arguments *arguments);
void berthi_avx512_accumulate(const berthi_accumulate_arguments *arguments);

/* ------------------------------------------------------------------- values */

/* As berthi_core_flush(): a subnormal number keeps its sign. */
ALWAYS_INLINE __m512
flush_subnormal(__m512 a)
{
    const __m512i bits = _mm512_castps_si512(a);

    return _mm512_castsi512_ps(_mm512_mask_and_epi32(
        bits, _mm512_fpclass_ps_mask(a, 0x20), bits, _mm512_set1_epi32(INT32_MIN)));
}

/* As berthi_core_one_nan(). */
ALWAYS_INLINE __m512
one_nan(__m512 a)
{
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q),
                              _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MAX)));
}

/* ------------------------------------------------------------------- absmax */

/* Magnitudes are in the order of their bits: an integer maximum. */
ALWAYS_INLINE uint32_t
largest_16_bit(const uint16_t *values, uint32_t count)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    __m512i largest = _mm512_setzero_si512();
    __m256i half;
    __m128i quarter;

#pragma GCC unroll 2
    for (uint32_t i = 0; i < count; i += 32)
        largest = _mm512_max_epu16(
            largest, _mm512_and_si512(_mm512_loadu_si512(values + i), magnitude));
    half = _mm256_max_epu16(_mm512_castsi512_si256(largest),
                            _mm512_extracti64x4_epi64(largest, 1));
    quarter = _mm_max_epu16(_mm256_castsi256_si128(half),
                            _mm256_extracti128_si256(half, 1));
    /* The one horizontal instruction finds a minimum. */
    quarter = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
    return ~(uint32_t)_mm_cvtsi128_si32(quarter) & 0xFFFFu;
}

ALWAYS_INLINE float
find_absmax(const void *values, int32_t dtype, uint64_t first, uint32_t count)
{
    if (dtype == BERTH_F32) {
        const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
        const uint32_t *const from = (const uint32_t *)values + first;
        __m512i largest = _mm512_setzero_si512();

        for (uint32_t i = 0; i < count; i += 16)
            largest = _mm512_max_epu32(
                largest, _mm512_and_si512(_mm512_loadu_si512(from + i), magnitude));
        return berthi_core_float(_mm512_reduce_max_epu32(largest));
    }
    const uint32_t bits = largest_16_bit((const uint16_t *)values + first, count);

    return dtype == BERTH_BF16 ? berthi_core_from_bf16((uint16_t)bits)
                               : berthi_core_from_fp16((uint16_t)bits);
}

/* 16 elements, widened. */
ALWAYS_INLINE __m512
load_16(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32)
        return _mm512_loadu_ps((const float *)values + first);
    const __m256i half =
        _mm256_loadu_si256((const __m256i *)((const uint16_t *)values + first));

    if (dtype == BERTH_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Nearest even; NaN does not come here. */
ALWAYS_INLINE __m256i
round_to_16_bit(__m512 values, int32_t dtype)
{
    if (dtype == BERTH_BF16) {
        const __m512i bits = _mm512_castps_si512(values);
        const __m512i odd =
            _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(
            _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16));
    }
    return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#endif
#endif
