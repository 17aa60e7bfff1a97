/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_avx512.c - 4-bit codes with AVX-512 (F, BW, VL).
 *
 * Encoding works on whole blocks of ordinary numbers; a block that holds a
 * NaN or an infinity, or nothing above 2^-64, and the short block at the end
 * go to the reference loops, so the rare rules are written once. Neighbouring
 * thresholds are more than 1/15 apart, so rounding 15 p to an integer leaves
 * at most one threshold to compare with: two table look-ups instead of 15
 * comparisons. The bins come from the thresholds by that same rounding, which
 * is monotone, so the result equals the full comparison for every p.
 *
 * Decoding multiplies the 16 values by a block's absmax, rounds them once, and
 * then only translates nibbles.
 */
#include "kernels/core.h"
#include "kernels/kernel.h"

#include <immintrin.h>

#define STEP 32u            /* elements of one turn: 16 packed bytes */
#define BINS_PER_UNIT 15.0f /* |p| <= 1 + 1 ulp: bins -15 to 15 */

/* ------------------------------------------------------------------ loading */

/* Elements 0, 2, 4, ... and 1, 3, 5, ... of 32, widened: a pair is one byte. */
typedef struct pairs {
    __m512 even;
    __m512 odd;
} pairs;

static inline pairs
load_pairs(const void *values, int32_t dtype, uint64_t first)
{
    if (dtype == BERTH_F32) {
        const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8,
                                              6, 4, 2, 0);
        const float *const from = (const float *)values + first;
        const __m512 low = _mm512_loadu_ps(from);
        const __m512 high = _mm512_loadu_ps(from + 16);

        return (pairs){ _mm512_permutex2var_ps(low, even, high),
                        _mm512_permutex2var_ps(
                            low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high) };
    }
    const __m512i both = _mm512_loadu_si512((const uint16_t *)values + first);

    if (dtype == BERTH_BF16)
        return (pairs){ _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
                        _mm512_castsi512_ps(_mm512_and_si512(
                            both, _mm512_set1_epi32((int)0xFFFF0000))) };
    return (pairs){ _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)),
                    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16))) };
}

/* ------------------------------------------------------------------- absmax */

/* Magnitudes are in the order of their bits: an integer maximum. */
static inline uint32_t
largest_16_bit(const uint16_t *values, uint32_t count)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    __m512i largest = _mm512_setzero_si512();
    __m256i half;
    __m128i quarter;

    for (uint32_t i = 0; i < count; i += STEP)
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

static inline float
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

/* Such a block needs none of the rules for special numbers; false for NaN. */
static inline bool
is_ordinary(float absmax)
{
    return absmax >= 0x1p-64f && absmax <= 3.402823466e38f;
}

/* ---------------------------------------------------------------- code tables */

/* Bin -> the threshold in it (or infinity), and the codes on either side. */
typedef struct bins {
    __m512 threshold_low; /* bins 0 to 15 of the index modulo 32 */
    __m512 threshold_high;
    __m512i below_low;
    __m512i below_high;
    __m512i above_low;
    __m512i above_high;
} bins;

static int
bin_of(float scaled)
{
    return _mm_cvtss_si32(_mm_set_ss(scaled * BINS_PER_UNIT));
}

static bins
make_bins(const uint32_t *thresholds, uint32_t count, const uint8_t *codes)
{
    float threshold[32];
    uint32_t below[32];
    uint32_t above[32];

    for (int bin = -16; bin < 16; bin++) {
        uint32_t passed = 0;
        const size_t at = (size_t)(bin & 31);

        threshold[at] = INFINITY;
        for (uint32_t k = 0; k < count; k++) {
            const float t = berthi_core_float(thresholds[k]);

            if (bin_of(t) < bin)
                passed++;
            else if (bin_of(t) == bin)
                threshold[at] = t;
        }
        below[at] = codes != NULL ? codes[passed] : passed;
        above[at] = passed == count ? below[at]
                                    : (codes != NULL ? codes[passed + 1] : passed + 1);
    }
    return (bins){ _mm512_loadu_ps(threshold), _mm512_loadu_ps(threshold + 16),
                   _mm512_loadu_si512(below),  _mm512_loadu_si512(below + 16),
                   _mm512_loadu_si512(above),  _mm512_loadu_si512(above + 16) };
}

static inline __m512i
nf4_codes(const bins *b, __m512 values, __m512 reciprocal)
{
    const __m512 scaled = _mm512_mul_ps(values, reciprocal);
    const __m512i bin
        = _mm512_cvtps_epi32(_mm512_mul_ps(scaled, _mm512_set1_ps(BINS_PER_UNIT)));
    const __m512 threshold
        = _mm512_permutex2var_ps(b->threshold_low, bin, b->threshold_high);
    const __m512i below = _mm512_permutex2var_epi32(b->below_low, bin, b->below_high);

    return _mm512_mask_add_epi32(below, _mm512_cmp_ps_mask(scaled, threshold, _CMP_GT_OQ),
                                 below, _mm512_set1_epi32(1));
}

/* Sign and magnitude apart; a product that is flushed has no sign. */
static inline __m512i
fp4_codes(const bins *b, __m512 values, __m512 reciprocal)
{
    const __m512 smallest = _mm512_set1_ps(0x1p-126f);
    const __mmask16 normal = _mm512_cmp_ps_mask(_mm512_abs_ps(values), smallest, _CMP_GE_OQ);
    const __m512 scaled = _mm512_maskz_mul_ps(normal, values, reciprocal);
    const __m512 magnitude = _mm512_abs_ps(scaled);
    const __m512i bin
        = _mm512_cvtps_epi32(_mm512_mul_ps(magnitude, _mm512_set1_ps(BINS_PER_UNIT)));
    const __mmask16 above = _mm512_cmp_ps_mask(
        magnitude, _mm512_permutexvar_ps(bin, b->threshold_low), _CMP_GT_OQ);
    const __mmask16 negative
        = _mm512_cmp_ps_mask(scaled, _mm512_set1_ps(-0x1p-126f), _CMP_LE_OQ);
    const __m512i code
        = _mm512_mask_permutexvar_epi32(_mm512_permutexvar_epi32(bin, b->below_low), above,
                                        bin, b->above_low);

    return _mm512_mask_or_epi32(code, negative, code, _mm512_set1_epi32(8));
}

/* ------------------------------------------------------------------- encode */

typedef __m512i codes_function(const bins *b, __m512 values, __m512 reciprocal);

static inline __attribute__((always_inline)) void
encode_block(const berthi_encode_arguments *a, const bins *b, codes_function *codes_of,
             int32_t dtype, uint64_t first, float absmax)
{
    const __m512 reciprocal = _mm512_set1_ps(berthi_core_reciprocal(absmax));

    for (uint64_t i = first; i < first + a->block_size; i += STEP) {
        const pairs p = load_pairs(a->values, dtype, i);
        const __m512i even = codes_of(b, p.even, reciprocal);
        const __m512i odd = codes_of(b, p.odd, reciprocal);
        const __m512i bytes = _mm512_or_si512(_mm512_slli_epi32(even, 4), odd);

        _mm_storeu_si128((__m128i *)(a->codes + i / 2), _mm512_cvtepi32_epi8(bytes));
    }
}

typedef void encode_function(const berthi_encode_arguments *arguments);

/* `count` elements from `first`, a block border, by the reference loops. */
static void
encode_plainly(const berthi_encode_arguments *a, encode_function *reference,
               uint64_t first, uint64_t count)
{
    const uint64_t element_bytes = a->dtype == BERTH_F32 ? 4 : 2;
    berthi_encode_arguments part = *a;

    part.values = (const uint8_t *)a->values + first * element_bytes;
    part.count = count;
    part.codes = a->codes + first / 2;
    part.absmax = a->absmax + first / a->block_size;
    reference(&part);
}

static inline __attribute__((always_inline)) void
encode_typed(const berthi_encode_arguments *a, const bins *b, codes_function *codes_of,
             encode_function *reference, int32_t dtype)
{
    uint64_t first = 0;

    for (; a->count - first >= a->block_size; first += a->block_size) {
        const float absmax = find_absmax(a->values, dtype, first, a->block_size);

        if (!is_ordinary(absmax)) {
            encode_plainly(a, reference, first, a->block_size);
            continue;
        }
        a->absmax[first / a->block_size] = absmax;
        encode_block(a, b, codes_of, dtype, first, absmax);
    }
    if (first < a->count)
        encode_plainly(a, reference, first, a->count - first);
}

/* One copy per dtype, so that the loads carry no branch. */
static inline __attribute__((always_inline)) void
encode(const berthi_encode_arguments *a, const bins *b, codes_function *codes_of,
       encode_function *reference)
{
    if (a->dtype == BERTH_BF16)
        encode_typed(a, b, codes_of, reference, BERTH_BF16);
    else if (a->dtype == BERTH_F16)
        encode_typed(a, b, codes_of, reference, BERTH_F16);
    else
        encode_typed(a, b, codes_of, reference, BERTH_F32);
}

static void
encode_nf4(const berthi_encode_arguments *a)
{
    const bins b = make_bins(berthi_nf4_thresholds, 15, NULL);

    encode(a, &b, nf4_codes, berthi_scalar_operations.encode_nf4);
}

static void
encode_fp4(const berthi_encode_arguments *a)
{
    const bins b = make_bins(berthi_fp4_thresholds, 7, berthi_fp4_codes);

    encode(a, &b, fp4_codes, berthi_scalar_operations.encode_fp4);
}

/* ------------------------------------------------------------------- decode */

/* The 16 values of a block: product rounded, then flushed. */
static inline __m512
scale_values(__m512 values, float absmax)
{
    const __m512i sign = _mm512_set1_epi32((int)0x80000000);
    const __m512 product
        = _mm512_mul_ps(values, _mm512_set1_ps(berthi_core_flush(absmax)));
    const __mmask16 tiny
        = _mm512_cmp_ps_mask(_mm512_abs_ps(product), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);

    return _mm512_castsi512_ps(
        _mm512_mask_and_epi32(_mm512_castps_si512(product), tiny,
                              _mm512_castps_si512(product), sign));
}

/* To 16 bits, nearest even, twice over: vpermw then ignores the fifth bit. */
static inline __m512i
round_values(__m512 values, int32_t dtype)
{
    __m256i rounded;

    if (dtype == BERTH_BF16) {
        const __m512i bits = _mm512_castps_si512(values);
        const __m512i odd
            = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

        rounded = _mm512_cvtepi32_epi16(_mm512_srli_epi32(
            _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16));
    } else {
        rounded = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    return _mm512_broadcast_i64x4(rounded);
}

static inline void
decode_block_16(const uint8_t *codes, __m512i table, uint16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += STEP) {
        const __m512i byte
            = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + i / 2)));
        const __m512i index
            = _mm512_or_si512(_mm512_srli_epi32(byte, 4), _mm512_slli_epi32(byte, 16));

        _mm512_storeu_si512(out + i, _mm512_permutexvar_epi16(index, table));
    }
}

static inline void
decode_block_32(const uint8_t *codes, __m512 table, float *out, uint32_t count)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16,
                                         0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));

    for (uint32_t i = 0; i < count; i += STEP) {
        const __m512i byte
            = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + i / 2)));
        const __m512 even = _mm512_permutexvar_ps(_mm512_srli_epi32(byte, 4), table);
        const __m512 odd = _mm512_permutexvar_ps(byte, table);

        _mm512_storeu_ps(out + i, _mm512_permutex2var_ps(even, low, odd));
        _mm512_storeu_ps(out + i + 16, _mm512_permutex2var_ps(even, high, odd));
    }
}

typedef void decode_function(const berthi_decode_arguments *arguments);

static void
decode_plainly(const berthi_decode_arguments *a, decode_function *reference,
               uint64_t first, uint64_t count)
{
    const uint64_t element_bytes = a->dtype == BERTH_F32 ? 4 : 2;
    berthi_decode_arguments part = *a;

    part.codes = a->codes + first / 2;
    part.absmax = a->absmax + first / a->block_size;
    part.count = count;
    part.values = (uint8_t *)a->values + first * element_bytes;
    reference(&part);
}

static void
decode(const berthi_decode_arguments *a, const uint32_t *values, decode_function *reference)
{
    const __m512 table = _mm512_castsi512_ps(_mm512_loadu_si512(values));
    uint64_t first = 0;

    for (; a->count - first >= a->block_size; first += a->block_size) {
        const float absmax = a->absmax[first / a->block_size];
        const uint8_t *const codes = a->codes + first / 2;

        if (!(fabsf(absmax) <= 3.402823466e38f)) { /* infinity times zero is a NaN */
            decode_plainly(a, reference, first, a->block_size);
            continue;
        }
        if (a->dtype == BERTH_F32)
            decode_block_32(codes, scale_values(table, absmax), (float *)a->values + first,
                            a->block_size);
        else
            decode_block_16(codes, round_values(scale_values(table, absmax), a->dtype),
                            (uint16_t *)a->values + first, a->block_size);
    }
    if (first < a->count)
        decode_plainly(a, reference, first, a->count - first);
}

static void
decode_nf4(const berthi_decode_arguments *a)
{
    decode(a, berthi_nf4_values, berthi_scalar_operations.decode_nf4);
}

static void
decode_fp4(const berthi_decode_arguments *a)
{
    decode(a, berthi_fp4_values, berthi_scalar_operations.decode_fp4);
}

const berthi_operations berthi_avx512_operations = {
    .level = "avx512",
    .encode_nf4 = encode_nf4,
    .encode_fp4 = encode_fp4,
    .decode_nf4 = decode_nf4,
    .decode_fp4 = decode_fp4,
};
