/* SPDX-License-Identifier: Apache-2.0 */
/* kernel8_avx2.c - 8-bit codes with AVX2: blocks by a map, LLM.int8() rows. */
#include "kernels/avx2.h"
#include "kernels/map_bins.h"
#include "kernels/row_blocks.h"

/* --------------------------------------------------------------------- maps */

static void
encode_map_bins(const berthi_encode_arguments *a, const void *tables)
{
    encode_all(a, tables, find_absmax, encode_map_block,
               berthi_scalar_operations.encode_map);
}

void
berthi_avx2_encode_map(const berthi_encode_arguments *a)
{
    encode_map_by(a, encode_map_bins);
}

void
berthi_avx2_encode_double(const berthi_double_arguments *a)
{
    encode_double_by(a, encode_map_bins);
}

void
berthi_avx2_decode_double(const berthi_double_arguments *a, float *out_absmax)
{
    const __m256 offset = _mm256_set1_ps(a->offset);
    const uint64_t whole = a->count / 8 * 8;

    for (uint64_t i = 0; i < whole; i += 8) {
        const __m256 absmax2 =
            flush_subnormal(_mm256_set1_ps(a->absmax2[i / BERTHI_DOUBLE_BLOCK]));
        const __m256i index =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(a->codes + i)));
        const __m256 value =
            flush_subnormal(_mm256_castsi256_ps(
                _mm256_i32gather_epi32((const int32_t *)a->map, index, 4)));

        _mm256_storeu_ps(
            out_absmax + i,
            one_nan(_mm256_add_ps(flush_subnormal(_mm256_mul_ps(value, absmax2)), offset)));
    }
    for (uint64_t i = whole; i < a->count; i++)
        out_absmax[i] = berthi_core_absmax_recover(
            a->map, a->codes[i], a->absmax2[i / BERTHI_DOUBLE_BLOCK], a->offset);
}

/* --------------------------------------------------------------- LLM.int8() */

/* The codes of eight, as bytes in 32-bit lanes; 0x80000000, for NaN, becomes 0. */
ALWAYS_INLINE __m256i
row_codes(const void *values, int32_t dtype, uint64_t first, __m256 factor)
{
    const __m256 value = load_8(values, dtype, first);
    const __m256 rounded =
        dtype == BERTH_F16
            ? value
            : _mm256_cvtph_ps(_mm256_cvtps_ph(
                  value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));

    return _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(rounded, factor)),
                            _mm256_set1_epi32(0xFF));
}

ALWAYS_INLINE void
encode_row_values(const berthi_rows_arguments *a, int32_t dtype, uint64_t first,
                  uint64_t count, float scale)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256 factor = _mm256_set1_ps(scale);

    for (uint64_t i = first; i < first + count; i += 32) {
        const __m256i low = _mm256_packus_epi32(row_codes(a->values, dtype, i, factor),
                                                row_codes(a->values, dtype, i + 8, factor));
        const __m256i high =
            _mm256_packus_epi32(row_codes(a->values, dtype, i + 16, factor),
                                row_codes(a->values, dtype, i + 24, factor));

        _mm256_storeu_si256(
            (__m256i *)(a->codes + i),
            _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
    }
}

void
berthi_avx2_encode_rows(const berthi_rows_arguments *a)
{
    encode_rows_by(a, find_absmax, encode_row_values);
}

static void
encode_activation_row(const berthi_activation_arguments *a, uint64_t row)
{
    encode_activation_row_by(a, row, find_absmax, encode_row_values);
}

void
berthi_avx2_encode_activations(const berthi_activation_arguments *a)
{
    encode_activations_by(a, berthi_avx2_encode_rows, encode_activation_row);
}

ALWAYS_INLINE void
decode_row_values(const berthi_rows_decode_arguments *a, uint64_t first, uint64_t count,
                  float maximum)
{
    const __m256 inverse = _mm256_set1_ps(berthi_core_float(BERTHI_INT8_INVERSE_BITS));
    const __m256 factor = _mm256_set1_ps(maximum);

    for (uint64_t i = first; i < first + count; i += 8) {
        const __m256 codes = _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(a->codes + i))));
        const __m256 values = _mm256_mul_ps(_mm256_mul_ps(codes, factor), inverse);

        if (a->dtype == BERTH_F32) {
            _mm256_storeu_ps((float *)a->values + i, values);
        } else {
            const __m256i words = round_values(values, a->dtype);

            _mm_storeu_si128((__m128i *)((uint16_t *)a->values + i),
                             _mm_packus_epi32(_mm256_castsi256_si128(words),
                                              _mm256_extracti128_si256(words, 1)));
        }
    }
}

void
berthi_avx2_decode_rows(const berthi_rows_decode_arguments *a)
{
    decode_rows_by(a, decode_row_values);
}
