/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_avx512.c - optimizer updates, and what they need of gradients, with AVX-512:
 * both ways through a map without leaving the registers, by permutations of its values
 * and by map_lines512.h.
 */
#include "kernels/map_lines512.h"

/* ------------------------------------------------------------------ vectors */

#define LANES 16u
typedef __m512 lanes;
typedef __m512i lanes_bits;
typedef __mmask16 lanes_mask;
#define lanes_every ((lanes_mask)0xFFFF)
#define lanes_none (_mm512_setzero_si512())

typedef struct level_tables {
    /* Magnitudes of the signed map below that of 1, then the unsigned map. */
    _Alignas(64) uint32_t magnitudes[128];
    _Alignas(64) uint32_t values[256];
    map_lines lines[2];
} level_tables;

ALWAYS_INLINE lanes
lanes_all(float value)
{
    return _mm512_set1_ps(value);
}

ALWAYS_INLINE lanes
lanes_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

ALWAYS_INLINE void
lanes_save(float *to, lanes value)
{
    _mm512_storeu_ps(to, value);
}

ALWAYS_INLINE lanes
lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

ALWAYS_INLINE lanes
lanes_root(lanes a)
{
    return _mm512_sqrt_ps(a);
}

ALWAYS_INLINE lanes
lanes_widen(const void *values, int32_t dtype, uint64_t first)
{
    return load_16(values, dtype, first);
}

ALWAYS_INLINE lanes_mask
find_nan(lanes a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}

/* A NaN stays one: it is not carried into the sign. */
ALWAYS_INLINE lanes
lanes_round(lanes a, int32_t dtype)
{
    if (dtype == BERTH_F32)
        return a;
    if (dtype == BERTH_F16)
        return _mm512_cvtph_ps(round_to_16_bit(a, BERTH_F16));
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_mask_add_epi32(
        bits, _knot_mask16(find_nan(a)), bits,
        _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));

    return _mm512_castsi512_ps(
        _mm512_and_si512(rounded, _mm512_set1_epi32((int32_t)0xFFFF0000)));
}

ALWAYS_INLINE void
lanes_put(void *values, int32_t dtype, uint64_t first, lanes a, lanes_mask keep)
{
    if (dtype == BERTH_F32)
        _mm512_mask_storeu_ps((float *)values + first, keep, one_nan(a));
    else
        _mm256_mask_storeu_epi16(
            (uint16_t *)values + first, keep,
            _mm256_mask_mov_epi16(round_to_16_bit(a, dtype), find_nan(a),
                                  _mm256_set1_epi16(0x7FFF)));
}

ALWAYS_INLINE lanes
lanes_sign(lanes a, float size)
{
    const lanes_mask above = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GT_OQ);
    const lanes_mask below = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_LT_OQ);

    return _mm512_mask_mov_ps(_mm512_maskz_mov_ps(above, lanes_all(size)), below,
                              lanes_all(-size));
}

ALWAYS_INLINE lanes_mask
lanes_finite(lanes a)
{
    return _knot_mask16(_mm512_fpclass_ps_mask(a, 0x99)); /* NaN, infinity of either sign */
}

ALWAYS_INLINE lanes
lanes_keep(lanes_mask keep, lanes a)
{
    return _mm512_maskz_mov_ps(keep, a);
}

ALWAYS_INLINE uint32_t
lanes_dropped(lanes_mask keep)
{
    return LANES - (uint32_t)__builtin_popcount(_cvtmask16_u32(keep));
}

ALWAYS_INLINE lanes_bits
lanes_largest(lanes_bits largest, lanes a)
{
    return _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(a),
                                                      _mm512_set1_epi32(0x7FFFFFFF)));
}

ALWAYS_INLINE uint32_t
lanes_top(lanes_bits largest)
{
    return _mm512_reduce_max_epu32(largest);
}

/* ------------------------------------------------------------------- decode */

/* Entries [first, first + 32) of a table, of which `index` counts modulo 32. */
ALWAYS_INLINE __m512
pick_32(const uint32_t *table, uint32_t first, __m512i index)
{
    return _mm512_permutex2var_ps(
        _mm512_castsi512_ps(_mm512_load_si512(table + first)), index,
        _mm512_castsi512_ps(_mm512_load_si512(table + first + 16)));
}

/* Modulo 128, by the masks of bits 5 and 6. */
ALWAYS_INLINE __m512
pick_128(const uint32_t *table, __m512i index, __mmask16 bit5, __mmask16 bit6)
{
    const __m512 low = _mm512_mask_mov_ps(pick_32(table, 0, index), bit5,
                                          pick_32(table, 32, index));
    const __m512 high = _mm512_mask_mov_ps(pick_32(table, 64, index), bit5,
                                           pick_32(table, 96, index));

    return _mm512_mask_mov_ps(low, bit6, high);
}

ALWAYS_INLINE lanes
lanes_decode(const level_tables *t, bool is_signed, const uint8_t *codes)
{
    const __m512i code =
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes));
    /* The signed map is symmetric about its zero, but for 1. */
    const __m512i beside = _mm512_sub_epi32(code, _mm512_set1_epi32(MAP_ZERO_CODE));
    const __m512i index = is_signed ? _mm512_abs_epi32(beside) : code;
    const __mmask16 bit5 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(32));
    const __mmask16 bit6 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(64));
    const __mmask16 bit7 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(128));

    if (!is_signed)
        return _mm512_mask_mov_ps(pick_128(t->values, index, bit5, bit6), bit7,
                                  pick_128(t->values + 128, index, bit5, bit6));
    /* The sign bit of `beside`, or the magnitude's. */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        _mm512_castps_si512(_mm512_mask_mov_ps(pick_128(t->magnitudes, index, bit5, bit6),
                                               bit7, lanes_all(1.0f))),
        beside, _mm512_set1_epi32(INT32_MIN), 0xF8));
}

/* ------------------------------------------------------------------- encode */

/* Bytes of four vectors of places, in order. */
ALWAYS_INLINE __m512i
join_codes(const __m512i place[ABREAST], bool is_signed)
{
    /* Packing takes turns with the quarters of its two operands. */
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8,
                                           4, 0);
    const unsigned shift = map_fraction(is_signed);
    __m512i low = _mm512_packus_epi32(_mm512_srli_epi32(place[0], shift),
                                      _mm512_srli_epi32(place[1], shift));
    __m512i high = _mm512_packus_epi32(_mm512_srli_epi32(place[2], shift),
                                       _mm512_srli_epi32(place[3], shift));

    if (!is_signed) { /* whose places count from 1 */
        low = _mm512_sub_epi16(low, _mm512_set1_epi16(1));
        high = _mm512_sub_epi16(high, _mm512_set1_epi16(1));
    }
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
}

/* What comes too near to a border, one by one: for both maps one in some thousands. */
static __attribute__((noinline)) void
correct_states(const map_lines *l, bool is_signed, const float *values, float reciprocal,
               uint8_t *codes)
{
    const uint32_t *const map = is_signed ? berthi_signed_map : berthi_unsigned_map;

    for (uint32_t i = 0; i < BERTHI_UPDATE_BLOCK; i += LANES * ABREAST) {
        __m512 scaled[ABREAST];
        __m512i place[ABREAST];

        for (uint32_t k = 0; k < ABREAST; k++)
            scaled[k] = _mm512_mul_ps(_mm512_loadu_ps(values + i + LANES * k),
                                      lanes_all(reciprocal));
        find_places(l, is_signed, scaled, place);
        for (uint32_t k = 0; k < ABREAST; k++)
            for (uint32_t near = _cvtmask16_u32(find_unsure(place[k], is_signed));
                 near != 0; near &= near - 1) {
                const uint32_t lane = (uint32_t)__builtin_ctz(near);
                const float x = scaled[k][lane];
                uint8_t *const code = codes + i + LANES * k + lane;

                *code = exact_code(map, x, *code);
                if (is_signed && *code == MAP_ZERO_CODE && signbit(x))
                    *code = MAP_ZERO_CODE - 1;
            }
    }
}

ALWAYS_INLINE void
encode_codes(const level_tables *t, bool is_signed, const float *values, float reciprocal,
             uint8_t *codes)
{
    const map_lines *const l = &t->lines[is_signed ? 0 : 1];
    const __m512i zero_code = _mm512_set1_epi8(MAP_ZERO_CODE);
    __mmask16 unsure = 0;

    for (uint32_t i = 0; i < BERTHI_UPDATE_BLOCK; i += LANES * ABREAST) {
        __mmask16 is_negative[ABREAST];
        __m512 scaled[ABREAST];
        __m512i place[ABREAST];
        __m512i bytes;

        UNROLL
        for (uint32_t k = 0; k < ABREAST; k++) {
            scaled[k] = _mm512_mul_ps(_mm512_loadu_ps(values + i + LANES * k),
                                      lanes_all(reciprocal));
            is_negative[k] = _mm512_movepi32_mask(_mm512_castps_si512(scaled[k]));
        }
        find_places(l, is_signed, scaled, place);
        UNROLL
        for (uint32_t k = 0; k < ABREAST; k++)
            unsure = _mm512_kor(unsure, find_unsure(place[k], is_signed));
        bytes = join_codes(place, is_signed);
        if (is_signed) { /* one beside at least keeps the sign; there is no -1 */
            const __mmask64 negative = join_masks(is_negative);
            const __m512i beside =
                _mm512_mask_max_epu8(bytes, negative, bytes, _mm512_set1_epi8(1));

            bytes = _mm512_mask_subs_epu8(_mm512_add_epi8(zero_code, beside), negative,
                                          zero_code, beside);
        }
        _mm512_storeu_si512(codes + i, bytes);
    }
    if (unsure != 0)
        correct_states(l, is_signed, values, reciprocal, codes);
}

/* ------------------------------------------------------------------ squares */

typedef struct lane_squares {
    __m512d part[BERTHI_GRADIENT_LANES / 8];
} lane_squares;

ALWAYS_INLINE lane_squares
squares_none(void)
{
    return (lane_squares){ { _mm512_setzero_pd() } };
}

ALWAYS_INLINE void
squares_add(lane_squares *s, uint32_t k, lanes a)
{
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));

    s->part[2 * k] = _mm512_fmadd_pd(low, low, s->part[2 * k]);
    s->part[2 * k + 1] = _mm512_fmadd_pd(high, high, s->part[2 * k + 1]);
}

ALWAYS_INLINE void
squares_save(const lane_squares *s, double *to)
{
    for (uint32_t k = 0; k < BERTHI_GRADIENT_LANES / 8; k++)
        _mm512_storeu_pd(to + 8 * k, s->part[k]);
}

static bool
can_make_tables(level_tables *t, bool encodes)
{
    (void)encodes; /* values are looked up in registers, too */
    memcpy(t->magnitudes, berthi_signed_map + MAP_ZERO_CODE, sizeof t->magnitudes);
    memcpy(t->values, berthi_unsigned_map, sizeof t->values);
    t->lines[0] = make_map_lines(berthi_signed_map, true);
    t->lines[1] = make_map_lines(berthi_unsigned_map, false);
    return true;
}

#define LEVEL(name) berthi_avx512_##name
#include "kernels/gradient_lanes.h"
#include "kernels/optimizer_lanes.h"
