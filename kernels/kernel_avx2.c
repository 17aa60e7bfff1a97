/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_avx2.c - 4-bit codes with AVX2, FMA and F16C.
 *
 * Encoding is a binary search over the thresholds: each level looks one up in
 * an eight-entry table by the code found so far, compares, and appends a bit.
 * A true comparison is -1, so codes are negative until they are packed; tables
 * are looked up by the low three bits, in which -k is 8 - k.
 * Decoding multiplies the 16 values by a block's absmax, rounds them once, and
 * then translates nibbles by byte shuffles.
 */
#include "kernels/avx2.h"
#include "kernels/source_blocks.h"

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
    const __m256i both =
        _mm256_loadu_si256((const __m256i *)((const uint16_t *)values + first));

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
    __m256i codes; /* FP4: step -> magnitude code, both negative */
} search;

/* What i of a level of `count` is looked up for is threshold i * stride + stride / 2. */
static __m256
make_level(const uint32_t *thresholds, uint32_t count, uint32_t stride)
{
    uint32_t level[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };

    for (uint32_t i = 0; i < count; i++)
        level[(8 - i) % 8] = thresholds[i * stride + stride / 2 - 1];
    return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)level));
}

static __m256i
make_codes(const uint8_t codes[8])
{
    int32_t negative[8];

    for (uint32_t i = 0; i < 8; i++)
        negative[(8 - i) % 8] = -codes[i];
    return _mm256_loadu_si256((const __m256i *)negative);
}

ALWAYS_INLINE __m256i
is_above(__m256 values, __m256 threshold)
{
    return _mm256_castps_si256(_mm256_cmp_ps(values, threshold, _CMP_GT_OQ));
}

/* code * 2 - (value > the threshold of the code) */
ALWAYS_INLINE __m256i
descend(__m256i code, __m256 values, __m256 level)
{
    return _mm256_add_epi32(_mm256_add_epi32(code, code),
                            is_above(values, _mm256_permutevar8x32_ps(level, code)));
}

ALWAYS_INLINE __m256i
find_nf4_codes(const search *s, __m256 values)
{
    __m256i code = is_above(values, s->root);

    code = descend(code, values, s->level2);
    code = descend(code, values, s->level4);
    return descend(code, values, s->level8);
}

ALWAYS_INLINE __m256i
nf4_codes(const search *s, __m256 values, __m256 reciprocal)
{
    return find_nf4_codes(s, _mm256_mul_ps(values, reciprocal));
}

/* Sign and magnitude apart; what is flushed, before or after, has no sign. */
ALWAYS_INLINE __m256i
fp4_codes(const search *s, __m256 values, __m256 reciprocal)
{
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    const __m256 smallest = _mm256_set1_ps(SMALLEST_NORMAL);
    const __m256 normal =
        _mm256_cmp_ps(_mm256_andnot_ps(sign_bit, values), smallest, _CMP_GE_OQ);
    const __m256 scaled = _mm256_and_ps(_mm256_mul_ps(values, reciprocal), normal);
    const __m256 magnitude = _mm256_andnot_ps(sign_bit, scaled);
    const __m256i negative = _mm256_castps_si256(
        _mm256_cmp_ps(scaled, _mm256_set1_ps(-SMALLEST_NORMAL), _CMP_LE_OQ));
    __m256i step = is_above(magnitude, s->root);

    step = descend(step, magnitude, s->level2);
    step = descend(step, magnitude, s->level4);
    return _mm256_add_epi32(_mm256_permutevar8x32_epi32(s->codes, step),
                            _mm256_and_si256(negative, _mm256_set1_epi32(-8)));
}

/* ------------------------------------------------------------------- encode */

typedef __m256i codes_function(const search *s, __m256 values, __m256 reciprocal);

/* The bytes of 16 elements, negative, one in each 32-bit lane. */
ALWAYS_INLINE __m256i
encode_pairs(const void *values, int32_t dtype, uint64_t first, const search *s,
             __m256 reciprocal, codes_function *codes_of)
{
    const pairs p = load_pairs(values, dtype, first);

    return _mm256_add_epi32(_mm256_slli_epi32(codes_of(s, p.even, reciprocal), 4),
                            codes_of(s, p.odd, reciprocal));
}

ALWAYS_INLINE void
encode_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
             uint64_t first, float reciprocal, codes_function *codes_of)
{
    const __m256 factor = _mm256_set1_ps(reciprocal);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);

#pragma GCC unroll 2
    for (uint64_t i = first; i < first + a->block_size; i += STEP) {
        const __m256i low = encode_pairs(a->values, dtype, i, tables, factor, codes_of);
        const __m256i high =
            encode_pairs(a->values, dtype, i + 16, tables, factor, codes_of);
        const __m256i words =
            _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_packs_epi32(low, high));
        const __m256i bytes =
            _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, words), order);

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

/* One by the thresholds themselves: they have been multiplied by absmax. */
ALWAYS_INLINE __m256i
unscaled_nf4_codes(const search *s, __m256 values, __m256 unused)
{
    (void)unused;
    return find_nf4_codes(s, values);
}

/*
 * Of bf16 values: no quotient of two comes nearer than 1e-6 of itself to a threshold, so
 * that thresholds times absmax, four products a block, divide them just as well.
 */
ALWAYS_INLINE void
encode_nf4_bf16_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                      uint64_t first, float absmax)
{
    const search *const of_one = tables;
    const __m256 factor = _mm256_set1_ps(absmax);
    const search s = { .root = _mm256_mul_ps(of_one->root, factor),
                       .level2 = _mm256_mul_ps(of_one->level2, factor),
                       .level4 = _mm256_mul_ps(of_one->level4, factor),
                       .level8 = _mm256_mul_ps(of_one->level8, factor) };

    encode_block(a, &s, dtype, first, 1.0f, unscaled_nf4_codes);
}

static void
encode_nf4(const berthi_encode_arguments *a)
{
    const uint32_t *const t = berthi_nf4_thresholds;
    const search s = { .root = _mm256_set1_ps(berthi_core_float(t[7])),
                       .level2 = make_level(t, 2, 8),
                       .level4 = make_level(t, 4, 4),
                       .level8 = make_level(t, 8, 2) };

    if (a->dtype == BERTH_BF16 && a->block_size == 64)
        encode_by_absmax(a, &s, BERTH_BF16, 64, find_absmax, encode_nf4_bf16_block,
                         berthi_scalar_operations.encode_nf4);
    else if (a->dtype == BERTH_BF16)
        encode_by_absmax(a, &s, BERTH_BF16, a->block_size, find_absmax,
                         encode_nf4_bf16_block, berthi_scalar_operations.encode_nf4);
    else
        encode_all(a, &s, find_absmax, encode_nf4_block,
                   berthi_scalar_operations.encode_nf4);
}

static void
encode_fp4(const berthi_encode_arguments *a)
{
    const uint32_t *const t = berthi_fp4_thresholds;
    const search s = { .root = _mm256_set1_ps(berthi_core_float(t[3])),
                       .level2 = make_level(t, 2, 4),
                       .level4 = make_level(t, 4, 2),
                       .codes = make_codes(berthi_fp4_codes) };

    encode_all(a, &s, find_absmax, encode_fp4_block, berthi_scalar_operations.encode_fp4);
}

/* ------------------------------------------------------------------- decode */

/* Eight of the 16 values of a block: product rounded, then flushed. */
ALWAYS_INLINE __m256
scale_values(const uint32_t *values, float absmax)
{
    return flush_subnormal(
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)values)),
                      _mm256_set1_ps(absmax)));
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
    const __m256i bytes =
        _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xD8);

    return (byte_tables){ _mm256_permute4x64_epi64(bytes, 0x44),
                          _mm256_permute4x64_epi64(bytes, 0xEE) };
}

/* The codes of 32 elements, a byte each, in order. */
ALWAYS_INLINE __m256i
load_codes(const uint8_t *codes, bool is_low_first)
{
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i packed = _mm_loadu_si128((const __m128i *)codes);
    const __m128i upper = _mm_and_si128(_mm_srli_epi16(packed, 4), mask);
    const __m128i lower = _mm_and_si128(packed, mask);
    const __m128i even = is_low_first ? lower : upper;
    const __m128i odd = is_low_first ? upper : lower;

    return _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
}

ALWAYS_INLINE void
decode_block_16(const uint8_t *codes, byte_tables tables, uint16_t *out, uint32_t count,
                bool is_low_first)
{
    for (uint32_t i = 0; i < count; i += STEP) {
        const __m256i code = load_codes(codes + i / 2, is_low_first);
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
                uint32_t count, bool is_low_first)
{
    /* High first: nibble 2j is the upper one of byte j. */
    const __m256i shifts = is_low_first
                               ? _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)
                               : _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);

    for (uint32_t i = 0; i < count; i += 8) {
        uint32_t packed;
        __m256i code;

        memcpy(&packed, codes + i / 2, sizeof packed);
        code = _mm256_srlv_epi32(_mm256_set1_epi32((int)packed), shifts);
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
        decode_block_32(codes, low, high, (float *)a->values + first, a->block_size,
                        false);
    else
        decode_block_16(codes, make_byte_tables(low, high, a->dtype),
                        (uint16_t *)a->values + first, a->block_size, false);
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

/* ------------------------------------------------------------- E2M1, scaled */

/* Subnormals stay. */
ALWAYS_INLINE void
decode_scaled(const uint8_t *codes, const uint32_t *values, float scale, int32_t dtype,
              void *out, uint32_t count)
{
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256 low = _mm256_mul_ps(
        _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)values)), factor);
    const __m256 high = _mm256_mul_ps(
        _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(values + 8))), factor);

    if (dtype == BERTH_F32)
        decode_block_32(codes, low, high, out, count, true);
    else
        decode_block_16(codes, make_byte_tables(low, high, dtype), out, count, true);
}

static void
decode_e2m1(const berthi_source_arguments *a)
{
    decode_e2m1_by(a, decode_scaled);
}

ALWAYS_INLINE void
decode_column(const uint8_t *nibbles, const uint32_t *values, const float *scales,
              int32_t dtype, void *out)
{
    /* Bit 3 is the sign: the other half of the table would only repeat the first. */
    const __m256 table = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)values));
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);

    for (uint32_t i = 0; i < TILE; i += 8) {
        const __m256i code =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(nibbles + i)));
        const __m256 number = _mm256_xor_ps(
            _mm256_permutevar8x32_ps(table, code),
            _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(code, 28), sign)));
        const __m256 value = _mm256_mul_ps(number, _mm256_loadu_ps(scales + i));

        if (dtype == BERTH_F32) {
            _mm256_storeu_ps((float *)out + i, value);
        } else {
            const __m256i words = round_values(value, dtype);

            _mm_storeu_si128((__m128i *)((uint16_t *)out + i),
                             _mm_packus_epi32(_mm256_castsi256_si128(words),
                                              _mm256_extracti128_si256(words, 1)));
        }
    }
}

static void
decode_mxfp4(const berthi_source_arguments *a)
{
    decode_mxfp4_by(a, decode_column);
}

const berthi_operations berthi_avx2_operations = {
    .level = "avx2",
    .encode_nf4 = encode_nf4,
    .encode_fp4 = encode_fp4,
    .decode_nf4 = decode_nf4,
    .decode_fp4 = decode_fp4,
    .encode_map = berthi_avx2_encode_map,
    .encode_double = berthi_avx2_encode_double,
    .decode_double = berthi_avx2_decode_double,
    .encode_rows = berthi_avx2_encode_rows,
    .decode_rows = berthi_avx2_decode_rows,
    .encode_activations = berthi_avx2_encode_activations,
    .decode_e2m1 = decode_e2m1,
    .decode_mxfp4 = decode_mxfp4,
    .multiply_nf4 = berthi_avx2_multiply_nf4,
    .multiply_fp4 = berthi_avx2_multiply_fp4,
    .dot_int8 = berthi_avx2_dot_int8,
    .update = berthi_avx2_update,
    .encode_state = berthi_avx2_encode_state,
    .decode_state = berthi_avx2_decode_state,
    .measure = berthi_avx2_measure,
    .accumulate = berthi_avx2_accumulate,
};
