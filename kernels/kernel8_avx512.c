/* SPDX-License-Identifier: Apache-2.0 */
/* kernel8_avx512.c - 8-bit codes with AVX-512: blocks by a map, LLM.int8() rows. */
#include "kernels/avx512.h"
#include "kernels/map_bins.h"
#include "kernels/row_blocks.h"

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

/* --------------------------------------------------------------- LLM.int8() */

/* NaN and overflow become 0x80000000, whose last byte is the code 0 they need. */
ALWAYS_INLINE void
encode_row_values(const berthi_rows_arguments *a, int32_t dtype, uint64_t first,
                  uint64_t count, float scale)
{
    const __m512 factor = _mm512_set1_ps(scale);

    for (uint64_t i = first; i < first + count; i += 16) {
        const __m512 values = load_16(a->values, dtype, i);
        const __m512 rounded =
            dtype == BERTH_F16 ? values
                               : _mm512_cvtph_ps(round_to_16_bit(values, BERTH_F16));
        const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(rounded, factor));

        _mm_storeu_si128((__m128i *)(a->codes + i), _mm512_cvtepi32_epi8(codes));
    }
}

void
berthi_avx512_encode_rows(const berthi_rows_arguments *a)
{
    encode_rows_by(a, find_absmax, encode_row_values);
}

static void
encode_activation_row(const berthi_activation_arguments *a, uint64_t row)
{
    encode_activation_row_by(a, row, find_absmax, encode_row_values);
}

void
berthi_avx512_encode_activations(const berthi_activation_arguments *a)
{
    encode_activations_by(a, berthi_avx512_encode_rows, encode_activation_row);
}

ALWAYS_INLINE void
decode_row_values(const berthi_rows_decode_arguments *a, uint64_t first, uint64_t count,
                  float maximum)
{
    const __m512 inverse = _mm512_set1_ps(berthi_core_float(BERTHI_INT8_INVERSE_BITS));
    const __m512 factor = _mm512_set1_ps(maximum);

    for (uint64_t i = first; i < first + count; i += 16) {
        const __m512 codes = _mm512_cvtepi32_ps(
            _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(a->codes + i))));
        const __m512 values = _mm512_mul_ps(_mm512_mul_ps(codes, factor), inverse);

        if (a->dtype == BERTH_F32)
            _mm512_storeu_ps((float *)a->values + i, values);
        else
            _mm256_storeu_si256((__m256i *)((uint16_t *)a->values + i),
                                round_to_16_bit(values, a->dtype));
    }
}

void
berthi_avx512_decode_rows(const berthi_rows_decode_arguments *a)
{
    decode_rows_by(a, decode_row_values);
}
