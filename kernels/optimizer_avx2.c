/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_avx2.c - optimizer updates, and what they need of gradients, with AVX2. */
#include "kernels/avx2.h"
#include "kernels/map_bins.h"

/* ------------------------------------------------------------------ vectors */

#define LANES 8u
typedef __m256 lanes;
typedef __m256i lanes_bits;
typedef __m256i lanes_mask;
#define lanes_every (_mm256_set1_epi32(-1))
#define lanes_none (_mm256_setzero_si256())

typedef struct level_tables {
    map_bins bins[2]; /* of the signed map, of the unsigned one */
} level_tables;

ALWAYS_INLINE lanes
lanes_all(float value)
{
    return _mm256_set1_ps(value);
}

ALWAYS_INLINE lanes
lanes_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

ALWAYS_INLINE void
lanes_save(float *to, lanes value)
{
    _mm256_storeu_ps(to, value);
}

ALWAYS_INLINE lanes
lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

ALWAYS_INLINE lanes
lanes_root(lanes a)
{
    return _mm256_sqrt_ps(a);
}

ALWAYS_INLINE lanes
lanes_widen(const void *values, int32_t dtype, uint64_t first)
{
    return load_8(values, dtype, first);
}

ALWAYS_INLINE __m256i
find_nan(lanes a)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

/* As they are stored, in 32-bit lanes; there is one NaN. */
ALWAYS_INLINE __m256i
to_16_bit(lanes a, int32_t dtype)
{
    return _mm256_blendv_epi8(round_values(a, dtype), _mm256_set1_epi32(0x7FFF),
                              find_nan(a));
}

ALWAYS_INLINE __m128i
pack(__m256i words)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(words),
                            _mm256_extracti128_si256(words, 1));
}

ALWAYS_INLINE lanes
lanes_round(lanes a, int32_t dtype)
{
    if (dtype == BERTH_F32)
        return a;
    if (dtype == BERTH_F16)
        return _mm256_cvtph_ps(pack(to_16_bit(a, BERTH_F16)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(to_16_bit(a, BERTH_BF16), 16));
}

ALWAYS_INLINE void
lanes_put(void *values, int32_t dtype, uint64_t first, lanes a, lanes_mask keep)
{
    if (dtype == BERTH_F32) {
        float *const at = (float *)values + first;

        _mm256_storeu_ps(at, _mm256_blendv_ps(_mm256_loadu_ps(at), one_nan(a),
                                              _mm256_castsi256_ps(keep)));
    } else {
        __m128i *const at = (__m128i *)((uint16_t *)values + first);
        const __m128i kept = _mm_packs_epi32(_mm256_castsi256_si128(keep),
                                             _mm256_extracti128_si256(keep, 1));

        _mm_storeu_si128(
            at, _mm_blendv_epi8(_mm_loadu_si128(at), pack(to_16_bit(a, dtype)), kept));
    }
}

ALWAYS_INLINE lanes
lanes_sign(lanes a, float size)
{
    const lanes zero = _mm256_setzero_ps();

    return _mm256_or_ps(
        _mm256_and_ps(_mm256_cmp_ps(a, zero, _CMP_GT_OQ), lanes_all(size)),
        _mm256_and_ps(_mm256_cmp_ps(a, zero, _CMP_LT_OQ), lanes_all(-size)));
}

ALWAYS_INLINE __m256i
magnitude_bits(lanes a)
{
    return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7FFFFFFF));
}

ALWAYS_INLINE lanes_mask
lanes_finite(lanes a)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7F800000), magnitude_bits(a));
}

ALWAYS_INLINE lanes
lanes_keep(lanes_mask keep, lanes a)
{
    return _mm256_and_ps(_mm256_castsi256_ps(keep), a);
}

ALWAYS_INLINE uint32_t
lanes_dropped(lanes_mask keep)
{
    const int kept = _mm256_movemask_ps(_mm256_castsi256_ps(keep));

    return LANES - (uint32_t)__builtin_popcount((unsigned)kept);
}

ALWAYS_INLINE lanes_bits
lanes_largest(lanes_bits largest, lanes a)
{
    return _mm256_max_epu32(largest, magnitude_bits(a));
}

ALWAYS_INLINE uint32_t
lanes_top(lanes_bits largest)
{
    uint32_t bits[LANES];

    _mm256_storeu_si256((__m256i *)bits, largest);
    return largest_32_bit(bits, LANES);
}

/* -------------------------------------------------------------------- codes */

/* One by one: gathering is no faster, and far slower where it has been mended. */
ALWAYS_INLINE lanes
lanes_decode(const level_tables *t, bool is_signed, const uint8_t *codes)
{
    const uint32_t *const map = is_signed ? berthi_signed_map : berthi_unsigned_map;

    (void)t;
    return _mm256_setr_ps(
        berthi_core_float(map[codes[0]]), berthi_core_float(map[codes[1]]),
        berthi_core_float(map[codes[2]]), berthi_core_float(map[codes[3]]),
        berthi_core_float(map[codes[4]]), berthi_core_float(map[codes[5]]),
        berthi_core_float(map[codes[6]]), berthi_core_float(map[codes[7]]));
}

ALWAYS_INLINE void
encode_codes(const level_tables *t, bool is_signed, const float *values, float reciprocal,
             uint8_t *codes)
{
    encode_map_states(&t->bins[is_signed ? 0 : 1], is_signed, values, reciprocal, codes);
}

/* ------------------------------------------------------------------ squares */

typedef struct lane_squares {
    __m256d part[BERTHI_GRADIENT_LANES / 4];
} lane_squares;

ALWAYS_INLINE lane_squares
squares_none(void)
{
    return (lane_squares){ { _mm256_setzero_pd() } };
}

ALWAYS_INLINE void
squares_add(lane_squares *s, uint32_t k, lanes a)
{
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));

    s->part[2 * k] = _mm256_fmadd_pd(low, low, s->part[2 * k]);
    s->part[2 * k + 1] = _mm256_fmadd_pd(high, high, s->part[2 * k + 1]);
}

ALWAYS_INLINE void
squares_save(const lane_squares *s, double *to)
{
    for (uint32_t k = 0; k < BERTHI_GRADIENT_LANES / 4; k++)
        _mm256_storeu_pd(to + 4 * k, s->part[k]);
}

static bool
can_make_tables(level_tables *t, bool encodes)
{
    return !encodes
           || (map_bins_can_make(berthi_signed_map, &t->bins[0])
               && map_bins_can_make(berthi_unsigned_map, &t->bins[1]));
}

#define LEVEL(name) berthi_avx2_##name
#include "kernels/gradient_lanes.h"
#include "kernels/optimizer_lanes.h"
