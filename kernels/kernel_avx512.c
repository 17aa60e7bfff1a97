/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_avx512.c - 4-bit codes with AVX-512 (F, BW, VL).
 *
 * Encoding: neighbouring thresholds are more than 1/15 apart, so rounding 15 p
 * to an integer leaves at most one threshold to compare with: two table
 * look-ups instead of 15 comparisons. The bins come from the thresholds by
 * that same rounding, which is monotone, so the result equals the full
 * comparison for every p.
 *
 * Decoding multiplies the 16 values by a block's absmax, rounds them once, and
 * then only translates nibbles.
 */
#include "kernels/avx512.h"
#include "kernels/number.h"
#include "kernels/source_blocks.h"

#define STEP 32u            /* elements of one turn: 16 packed bytes */
#define STREAMED (UINT64_C(32) << 20) /* bytes of values that go past the caches, at least */
#define BINS_PER_UNIT 15.0f /* |p| <= 1 + 1 ulp: bins -15 to 15 */

/* ------------------------------------------------------------------ loading */

/* Elements 0, 2, 4, ... and 1, 3, 5, ... of 32, widened: a pair is one byte. */
typedef struct pairs {
    __m512 even;
    __m512 odd;
} pairs;

ALWAYS_INLINE pairs
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

/*
 * Adding 1.5 * 2^23 leaves the rounded sum in the last bits, of which look-ups
 * take five: the bin modulo 32.
 */
ALWAYS_INLINE __m512i
bins_of(__m512 scaled)
{
    return _mm512_castps_si512(_mm512_fmadd_ps(scaled, _mm512_set1_ps(BINS_PER_UNIT),
                                               _mm512_set1_ps(0x1.8p23f)));
}

/* From -16 to 15. */
static int
bin_of(float scaled)
{
    const int bin = _mm512_cvtsi512_si32(bins_of(_mm512_set1_ps(scaled))) & 31;

    return bin < 16 ? bin : bin - 32;
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

ALWAYS_INLINE __m512i
nf4_codes(const bins *b, __m512 values, __m512 reciprocal)
{
    const __m512 scaled = _mm512_mul_ps(values, reciprocal);
    const __m512i bin = bins_of(scaled);
    const __m512 threshold =
        _mm512_permutex2var_ps(b->threshold_low, bin, b->threshold_high);
    const __m512i below = _mm512_permutex2var_epi32(b->below_low, bin, b->below_high);

    return _mm512_mask_add_epi32(below, _mm512_cmp_ps_mask(scaled, threshold, _CMP_GT_OQ),
                                 below, _mm512_set1_epi32(1));
}

/* Sign and magnitude apart; a product that is flushed has no sign. */
ALWAYS_INLINE __m512i
fp4_codes(const bins *b, __m512 values, __m512 reciprocal)
{
    const __m512 smallest = _mm512_set1_ps(SMALLEST_NORMAL);
    const __mmask16 normal = _mm512_cmp_ps_mask(_mm512_abs_ps(values), smallest, _CMP_GE_OQ);
    const __m512 scaled = _mm512_maskz_mul_ps(normal, values, reciprocal);
    const __m512 magnitude = _mm512_abs_ps(scaled);
    const __m512i bin = bins_of(magnitude);
    const __mmask16 above = _mm512_cmp_ps_mask(
        magnitude, _mm512_permutexvar_ps(bin, b->threshold_low), _CMP_GT_OQ);
    const __mmask16 negative =
        _mm512_cmp_ps_mask(scaled, _mm512_set1_ps(-SMALLEST_NORMAL), _CMP_LE_OQ);
    const __m512i code =
        _mm512_mask_permutexvar_epi32(_mm512_permutexvar_epi32(bin, b->below_low), above,
                                      bin, b->above_low);

    return _mm512_mask_or_epi32(code, negative, code, _mm512_set1_epi32(8));
}

/* ------------------------------------------------------------------- encode */

typedef __m512i codes_function(const bins *b, __m512 values, __m512 reciprocal);

ALWAYS_INLINE void
encode_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
             uint64_t first, float reciprocal, codes_function *codes_of)
{
    const __m512 factor = _mm512_set1_ps(reciprocal);

    for (uint64_t i = first; i < first + a->block_size; i += STEP) {
        const pairs p = load_pairs(a->values, dtype, i);
        const __m512i even = codes_of(tables, p.even, factor);
        const __m512i odd = codes_of(tables, p.odd, factor);
        const __m512i bytes = _mm512_or_si512(_mm512_slli_epi32(even, 4), odd);

        _mm_storeu_si128((__m128i *)(a->codes + i / 2), _mm512_cvtepi32_epi8(bytes));
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
    const bins b = make_bins(berthi_nf4_thresholds, 15, NULL);

    if (a->dtype == BERTH_BF16) {
        berthi_avx512_encode_nf4_bf16(a);
        return;
    }
    encode_all(a, &b, find_absmax, encode_nf4_block, berthi_scalar_operations.encode_nf4);
}

static void
encode_fp4(const berthi_encode_arguments *a)
{
    const bins b = make_bins(berthi_fp4_thresholds, 7, berthi_fp4_codes);

    encode_all(a, &b, find_absmax, encode_fp4_block, berthi_scalar_operations.encode_fp4);
}

/* ------------------------------------------------------------------- decode */

/* The 16 values of a block: product rounded, then flushed. */
ALWAYS_INLINE __m512
scale_values(__m512 values, float absmax)
{
    return flush_subnormal(_mm512_mul_ps(values, _mm512_set1_ps(absmax)));
}

/* To 16 bits, nearest even, twice over: vpermw then ignores the fifth bit. */
ALWAYS_INLINE __m512i
round_values(__m512 values, int32_t dtype)
{
    return _mm512_broadcast_i64x4(round_to_16_bit(values, dtype));
}

ALWAYS_INLINE void
store_vector(void *out, __m512i vector, bool is_streamed)
{
    if (is_streamed)
        _mm512_stream_si512(out, vector);
    else
        _mm512_storeu_si512(out, vector);
}

ALWAYS_INLINE void
decode_block_16(const uint8_t *codes, __m512i table, uint16_t *out, uint32_t count,
                bool is_low_first, bool is_streamed)
{
    for (uint32_t i = 0; i < count; i += STEP) {
        const __m512i byte =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + i / 2)));
        const __m512i index =
            is_low_first
                ? _mm512_or_si512(byte, _mm512_slli_epi32(byte, 12))
                : _mm512_or_si512(_mm512_srli_epi32(byte, 4), _mm512_slli_epi32(byte, 16));

        store_vector(out + i, _mm512_permutexvar_epi16(index, table), is_streamed);
    }
}

ALWAYS_INLINE void
decode_block_32(const uint8_t *codes, __m512 table, float *out, uint32_t count,
                bool is_low_first, bool is_streamed)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16,
                                         0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));

    for (uint32_t i = 0; i < count; i += STEP) {
        const __m512i byte =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(codes + i / 2)));
        const __m512 upper = _mm512_permutexvar_ps(_mm512_srli_epi32(byte, 4), table);
        const __m512 lower = _mm512_permutexvar_ps(byte, table);
        const __m512 even = is_low_first ? lower : upper;
        const __m512 odd = is_low_first ? upper : lower;

        store_vector(out + i, _mm512_castps_si512(_mm512_permutex2var_ps(even, low, odd)),
                     is_streamed);
        store_vector(out + i + 16,
                     _mm512_castps_si512(_mm512_permutex2var_ps(even, high, odd)),
                     is_streamed);
    }
}

ALWAYS_INLINE void
decode_block_to(const berthi_decode_arguments *a, const uint32_t *values, uint64_t first,
                float absmax, bool is_streamed)
{
    const uint8_t *const codes = a->codes + first / 2;
    const __m512 scaled =
        scale_values(_mm512_castsi512_ps(_mm512_loadu_si512(values)), absmax);

    if (a->dtype == BERTH_F32)
        decode_block_32(codes, scaled, (float *)a->values + first, a->block_size, false,
                        is_streamed);
    else
        decode_block_16(codes, round_values(scaled, a->dtype),
                        (uint16_t *)a->values + first, a->block_size, false, is_streamed);
}

ALWAYS_INLINE void
decode_block(const berthi_decode_arguments *a, const uint32_t *values, uint64_t first,
             float absmax)
{
    decode_block_to(a, values, first, absmax, false);
}

ALWAYS_INLINE void
stream_block(const berthi_decode_arguments *a, const uint32_t *values, uint64_t first,
             float absmax)
{
    decode_block_to(a, values, first, absmax, true);
}

/*
 * Values that no cache keeps until somebody reads them go past the caches: so
 * memory is not read for what is only written. A vector is a whole line.
 */
ALWAYS_INLINE void
decode(const berthi_decode_arguments *a, const uint32_t *values, decode_function *reference)
{
    if (a->count * berthi_number_bytes(a->dtype) >= STREAMED
        && (uintptr_t)a->values % sizeof(__m512i) == 0) {
        decode_all(a, values, stream_block, reference);
        _mm_sfence();
    } else {
        decode_all(a, values, decode_block, reference);
    }
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

/* ------------------------------------------------------------- E2M1, scaled */

/* Subnormals stay. */
ALWAYS_INLINE void
decode_scaled(const uint8_t *codes, const uint32_t *values, float scale, int32_t dtype,
              void *out, uint32_t count)
{
    const __m512 scaled = _mm512_mul_ps(
        _mm512_castsi512_ps(_mm512_loadu_si512(values)), _mm512_set1_ps(scale));

    if (dtype == BERTH_F32)
        decode_block_32(codes, scaled, out, count, true, false);
    else
        decode_block_16(codes, round_values(scaled, dtype), out, count, true, false);
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
    const __m512 table = _mm512_castsi512_ps(_mm512_loadu_si512(values));

    for (uint32_t i = 0; i < TILE; i += 16) {
        const __m512i code =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(nibbles + i)));
        const __m512 value =
            _mm512_mul_ps(_mm512_permutexvar_ps(code, table), _mm512_loadu_ps(scales + i));

        if (dtype == BERTH_F32)
            _mm512_storeu_ps((float *)out + i, value);
        else
            _mm256_storeu_si256((__m256i *)((uint16_t *)out + i),
                                round_to_16_bit(value, dtype));
    }
}

static void
decode_mxfp4(const berthi_source_arguments *a)
{
    decode_mxfp4_by(a, decode_column);
}

const berthi_operations berthi_avx512_operations = {
    .level = "avx512",
    .encode_nf4 = encode_nf4,
    .encode_fp4 = encode_fp4,
    .decode_nf4 = decode_nf4,
    .decode_fp4 = decode_fp4,
    .encode_map = berthi_avx512_encode_map,
    .encode_double = berthi_avx512_encode_double,
    .decode_double = berthi_avx512_decode_double,
    .uses_extremes = true,
    .add_mean_rows = berthi_avx512_add_mean_rows,
    .encode_rows = berthi_avx512_encode_rows,
    .decode_rows = berthi_avx512_decode_rows,
    .encode_activations = berthi_avx512_encode_activations,
    .decode_e2m1 = decode_e2m1,
    .decode_mxfp4 = decode_mxfp4,
    .multiply_nf4 = berthi_avx512_multiply_nf4,
    .multiply_fp4 = berthi_avx512_multiply_fp4,
    .dot_int8 = berthi_avx512_dot_int8,
    .update = berthi_avx512_update,
    .encode_state = berthi_avx512_encode_state,
    .decode_state = berthi_avx512_decode_state,
    .measure = berthi_avx512_measure,
    .accumulate = berthi_avx512_accumulate,
};
