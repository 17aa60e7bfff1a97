/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_avx2.c - 4-bit codes with AVX2, FMA and F16C.
 *
 * Encoding is a binary search over the thresholds: each level looks one up in
 * an eight-entry table by the code found so far, compares, and appends a bit.
 * Decoding multiplies the 16 values by a block's absmax, rounds them once, and
 * then translates nibbles by byte shuffles.
 */
#include "kernels/map_bins.h"
#include "kernels/row_blocks.h"
#include "kernels/simd_blocks.h"

#include <immintrin.h>

#define STEP 32u /* elements of one turn: 16 packed bytes */

/* ------------------------------------------------------------------ loading */

/* Elements 0, 2, 4, ... and 1, 3, 5, ... of 16, widened: a pair is one byte. */
typedef struct pairs {
    __m256 even;
    __m256 odd;
} pairs;

/* The middle quarters of two interleaved registers, put in order. */
ALWAYS_INLINE __m256
order_quarters(__m256 values)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(values), 0xD8));
}

ALWAYS_INLINE pairs
load_pairs(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32) {
        const float *const from = (const float *)values + first;
        const __m256 low = _mm256_loadu_ps(from);
        const __m256 high = _mm256_loadu_ps(from + 8);

        return (pairs){ order_quarters(_mm256_shuffle_ps(low, high, 0x88)),
                        order_quarters(_mm256_shuffle_ps(low, high, 0xDD)) };
    }
    const __m256i both
        = _mm256_loadu_si256((const __m256i *)((const uint16_t *)values + first));

    if (dtype == BERTH_BF16)
        return (pairs){ _mm256_castsi256_ps(_mm256_slli_epi32(both, 16)),
                        _mm256_castsi256_ps(_mm256_and_si256(
                            both, _mm256_set1_epi32((int)0xFFFF0000))) };
    const __m256i apart = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_and_si256(both, _mm256_set1_epi32(0xFFFF)),
                            _mm256_srli_epi32(both, 16)),
        0xD8);

    return (pairs){ _mm256_cvtph_ps(_mm256_castsi256_si128(apart)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(apart, 1)) };
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

/* ---------------------------------------------------------------- code search */

/*
 * The thresholds as the levels of a search tree, each level's entry looked up
 * by the bits of the code found so far; FP4 has no level of eight.
 */
typedef struct search {
    __m256 root;
    __m256 level2;
    __m256 level4;
    __m256 level8;
    __m256i codes; /* FP4: step -> magnitude code */
} search;

/* Entry i of a level of `count` is threshold i * stride + stride / 2. */
static __m256
make_level(const uint32_t *thresholds, uint32_t count, uint32_t stride)
{
    uint32_t level[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };

    for (uint32_t i = 0; i < count; i++)
        level[i] = thresholds[i * stride + stride / 2 - 1];
    return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)level));
}

/* code * 2 + (value > threshold): a true comparison is -1. */
ALWAYS_INLINE __m256i
append_bit(__m256i code, __m256 values, __m256 threshold)
{
    const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(values, threshold, _CMP_GT_OQ));

    return _mm256_sub_epi32(_mm256_add_epi32(code, code), above);
}

ALWAYS_INLINE __m256i
descend(__m256i code, __m256 values, __m256 level)
{
    return append_bit(code, values, _mm256_permutevar8x32_ps(level, code));
}

ALWAYS_INLINE __m256i
nf4_codes(const search *s, __m256 values, __m256 reciprocal)
{
    const __m256 scaled = _mm256_mul_ps(values, reciprocal);
    __m256i code = append_bit(_mm256_setzero_si256(), scaled, s->root);

    code = descend(code, scaled, s->level2);
    code = descend(code, scaled, s->level4);
    return descend(code, scaled, s->level8);
}

/* Sign and magnitude apart; what is flushed, before or after, has no sign. */
ALWAYS_INLINE __m256i
fp4_codes(const search *s, __m256 values, __m256 reciprocal)
{
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    const __m256 smallest = _mm256_set1_ps(SMALLEST_NORMAL);
    const __m256 normal
        = _mm256_cmp_ps(_mm256_andnot_ps(sign_bit, values), smallest, _CMP_GE_OQ);
    const __m256 scaled = _mm256_and_ps(_mm256_mul_ps(values, reciprocal), normal);
    const __m256 magnitude = _mm256_andnot_ps(sign_bit, scaled);
    const __m256i negative = _mm256_castps_si256(
        _mm256_cmp_ps(scaled, _mm256_set1_ps(-SMALLEST_NORMAL), _CMP_LE_OQ));
    __m256i step = append_bit(_mm256_setzero_si256(), magnitude, s->root);

    step = descend(step, magnitude, s->level2);
    step = descend(step, magnitude, s->level4);
    return _mm256_or_si256(_mm256_permutevar8x32_epi32(s->codes, step),
                           _mm256_and_si256(negative, _mm256_set1_epi32(8)));
}

/* ------------------------------------------------------------------- encode */

typedef __m256i codes_function(const search *s, __m256 values, __m256 reciprocal);

/* The bytes of 16 elements, one in each 32-bit lane. */
ALWAYS_INLINE __m256i
encode_pairs(const void *values, int32_t dtype, uint64_t first, const search *s,
             __m256 reciprocal, codes_function *codes_of)
{
    const pairs p = load_pairs(values, dtype, first);

    return _mm256_or_si256(_mm256_slli_epi32(codes_of(s, p.even, reciprocal), 4),
                           codes_of(s, p.odd, reciprocal));
}

ALWAYS_INLINE void
encode_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
             uint64_t first, float reciprocal, codes_function *codes_of)
{
    const __m256 factor = _mm256_set1_ps(reciprocal);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);

    for (uint64_t i = first; i < first + a->block_size; i += STEP) {
        const __m256i low = encode_pairs(a->values, dtype, i, tables, factor, codes_of);
        const __m256i high
            = encode_pairs(a->values, dtype, i + 16, tables, factor, codes_of);
        const __m256i words = _mm256_packus_epi32(low, high);
        const __m256i bytes
            = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, words), order);

        _mm_storeu_si128((__m128i *)(a->codes + i / 2), _mm256_castsi256_si128(bytes));
    }
}

ALWAYS_INLINE void
encode_nf4_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    encode_block(a, tables, dtype, first, reciprocal, nf4_codes);
}

ALWAYS_INLINE void
encode_fp4_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    encode_block(a, tables, dtype, first, reciprocal, fp4_codes);
}

static void
encode_nf4(const berthi_encode_arguments *a)
{
    const uint32_t *const t = berthi_nf4_thresholds;
    const search s = { .root = _mm256_set1_ps(berthi_core_float(t[7])),
                       .level2 = make_level(t, 2, 8),
                       .level4 = make_level(t, 4, 4),
                       .level8 = make_level(t, 8, 2) };

    encode_all(a, &s, find_absmax, encode_nf4_block, berthi_scalar_operations.encode_nf4);
}

static void
encode_fp4(const berthi_encode_arguments *a)
{
    const uint32_t *const t = berthi_fp4_thresholds;
    const search s = { .root = _mm256_set1_ps(berthi_core_float(t[3])),
                       .level2 = make_level(t, 2, 4),
                       .level4 = make_level(t, 4, 2),
                       .codes = _mm256_cvtepu8_epi32(
                           _mm_loadl_epi64((const __m128i *)berthi_fp4_codes)) };

    encode_all(a, &s, find_absmax, encode_fp4_block, berthi_scalar_operations.encode_fp4);
}

/* ------------------------------------------------------------------- decode */

/* Eight of the 16 values of a block: product rounded, then flushed. */
ALWAYS_INLINE __m256
scale_values(const uint32_t *values, float absmax)
{
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    const __m256 product = _mm256_mul_ps(
        _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)values)),
        _mm256_set1_ps(absmax));
    const __m256 tiny = _mm256_cmp_ps(_mm256_andnot_ps(sign_bit, product),
                                      _mm256_set1_ps(SMALLEST_NORMAL), _CMP_LT_OQ);

    return _mm256_andnot_ps(_mm256_andnot_ps(sign_bit, tiny), product);
}

/* To 16 bits, nearest even, in 32-bit lanes; values are finite or overflow. */
ALWAYS_INLINE __m256i
round_values(__m256 values, int32_t dtype)
{
    if (dtype == BERTH_BF16) {
        const __m256i bits = _mm256_castps_si256(values);
        const __m256i odd
            = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

        return _mm256_srli_epi32(
            _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    }
    return _mm256_cvtepu16_epi32(
        _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* The rounded values as two tables of bytes, each in both halves. */
typedef struct byte_tables {
    __m256i low;
    __m256i high;
} byte_tables;

ALWAYS_INLINE byte_tables
make_byte_tables(__m256 first, __m256 second, int32_t dtype)
{
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(round_values(first, dtype), round_values(second, dtype)), 0xD8);
    const __m256i low = _mm256_and_si256(words, _mm256_set1_epi16(0xFF));
    const __m256i high = _mm256_srli_epi16(words, 8);
    const __m256i bytes
        = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xD8);

    return (byte_tables){ _mm256_permute4x64_epi64(bytes, 0x44),
                          _mm256_permute4x64_epi64(bytes, 0xEE) };
}

/* The codes of 32 elements, a byte each, in order. */
ALWAYS_INLINE __m256i
load_codes(const uint8_t *codes)
{
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i packed = _mm_loadu_si128((const __m128i *)codes);
    const __m128i even = _mm_and_si128(_mm_srli_epi16(packed, 4), mask);
    const __m128i odd = _mm_and_si128(packed, mask);

    return _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
}

ALWAYS_INLINE void
decode_block_16(const uint8_t *codes, byte_tables tables, uint16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += STEP) {
        const __m256i code = load_codes(codes + i / 2);
        const __m256i low = _mm256_shuffle_epi8(tables.low, code);
        const __m256i high = _mm256_shuffle_epi8(tables.high, code);
        const __m256i first = _mm256_unpacklo_epi8(low, high);  /* 0-7 and 16-23 */
        const __m256i second = _mm256_unpackhi_epi8(low, high); /* 8-15 and 24-31 */

        _mm256_storeu_si256((__m256i *)(out + i),
                            _mm256_permute2x128_si256(first, second, 0x20));
        _mm256_storeu_si256((__m256i *)(out + i + 16),
                            _mm256_permute2x128_si256(first, second, 0x31));
    }
}

ALWAYS_INLINE void
decode_block_32(const uint8_t *codes, __m256 first, __m256 second, float *out,
                uint32_t count)
{
    for (uint32_t i = 0; i < count; i += 8) {
        uint32_t packed;
        __m256i code;

        memcpy(&packed, codes + i / 2, sizeof packed);
        /* Nibble 2j is the high one of byte j: shifts 4, 0, 12, 8, ... */
        code = _mm256_srlv_epi32(_mm256_set1_epi32((int)packed),
                                 _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24));
        _mm256_storeu_ps(
            out + i,
            _mm256_blendv_ps(_mm256_permutevar8x32_ps(first, code),
                             _mm256_permutevar8x32_ps(second, code),
                             _mm256_castsi256_ps(_mm256_slli_epi32(code, 28))));
    }
}

ALWAYS_INLINE void
decode_block(const berthi_decode_arguments *a, const uint32_t *values, uint64_t first,
             float absmax)
{
    const uint8_t *const codes = a->codes + first / 2;
    const __m256 low = scale_values(values, absmax);
    const __m256 high = scale_values(values + 8, absmax);

    if (a->dtype == BERTH_F32)
        decode_block_32(codes, low, high, (float *)a->values + first, a->block_size);
    else
        decode_block_16(codes, make_byte_tables(low, high, a->dtype),
                        (uint16_t *)a->values + first, a->block_size);
}

static void
decode_nf4(const berthi_decode_arguments *a)
{
    decode_all(a, berthi_nf4_values, decode_block, berthi_scalar_operations.decode_nf4);
}

static void
decode_fp4(const berthi_decode_arguments *a)
{
    decode_all(a, berthi_fp4_values, decode_block, berthi_scalar_operations.decode_fp4);
}

/* --------------------------------------------------------------------- maps */

static void
encode_map_bins(const berthi_encode_arguments *a, const void *tables)
{
    encode_all(a, tables, find_absmax, encode_map_block,
               berthi_scalar_operations.encode_map);
}

static void
encode_map(const berthi_encode_arguments *a)
{
    encode_map_by(a, encode_map_bins);
}

static void
encode_double(const berthi_double_arguments *a)
{
    encode_double_by(a, encode_map_bins);
}

/* --------------------------------------------------------------- LLM.int8() */

/* Eight elements, widened. */
ALWAYS_INLINE __m256
load_8(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32)
        return _mm256_loadu_ps((const float *)values + first);
    const __m128i half
        = _mm_loadu_si128((const __m128i *)((const uint16_t *)values + first));

    if (dtype == BERTH_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The codes of eight, as bytes in 32-bit lanes; 0x80000000, for NaN, becomes 0. */
ALWAYS_INLINE __m256i
row_codes(const void *values, int32_t dtype, uint64_t first, __m256 factor)
{
    const __m256 value = load_8(values, dtype, first);
    const __m256 rounded
        = dtype == BERTH_F16
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
        const __m256i high
            = _mm256_packus_epi32(row_codes(a->values, dtype, i + 16, factor),
                                  row_codes(a->values, dtype, i + 24, factor));

        _mm256_storeu_si256(
            (__m256i *)(a->codes + i),
            _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
    }
}

static void
encode_rows(const berthi_rows_arguments *a)
{
    encode_rows_by(a, find_absmax, encode_row_values);
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

static void
decode_rows(const berthi_rows_decode_arguments *a)
{
    decode_rows_by(a, decode_row_values);
}

const berthi_operations berthi_avx2_operations = {
    .level = "avx2",
    .encode_nf4 = encode_nf4,
    .encode_fp4 = encode_fp4,
    .decode_nf4 = decode_nf4,
    .decode_fp4 = decode_fp4,
    .encode_map = encode_map,
    .encode_double = encode_double,
    .encode_rows = encode_rows,
    .decode_rows = decode_rows,
};
