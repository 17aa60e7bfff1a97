/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_bytes512.h - codes of the published 8-bit maps, 64 at once, by permutations of
 * bytes (AVX-512 VBMI).
 *
 * Values are looked up byte by byte: of the four bytes of an f32, each in a table of its
 * own. The other way is map_lines512.h, whose places are packed by halves, not by
 * instructions that pack: those need the port of all permutations.
 *
 * A group is 64 elements in four vectors: one after the other, or by turns in pairs of
 * even and odd ones, as a shift and a mask leave those of bf16. Codes lie in their order;
 * the one permutation that brings them into that of vectors, or back, does for both.
 *
 * Included by one file each, which inlines it.
 */
#ifndef BERTH_KERNELS_MAP_BYTES512_H
#define BERTH_KERNELS_MAP_BYTES512_H

#include "kernels/map_lines512.h"

#ifdef __AVX512VBMI__

#define LANES 16u
#define GROUP (LANES * ABREAST) /* elements that go through every step together */

/* -------------------------------------------------------------------- tables */

/* Of f32 values: the first bytes of all, the second bytes of all, ... */
#define PLANES 4u

typedef struct byte_tables {
    _Alignas(64) uint8_t magnitudes[PLANES][128]; /* of the signed map; first that of 1 */
    _Alignas(64) uint8_t values[PLANES][256];     /* of the unsigned map                */
    /* Which byte of a group is where in the order of its vectors: `taken` before a
       look-up, by quarters of a vector; `put` behind join_codes(). */
    _Alignas(64) uint8_t taken[GROUP];
    _Alignas(64) uint8_t put[GROUP];
    map_lines lines[2]; /* of both maps */
} byte_tables;

/* Where in its group the element is that vector `k` has in this lane. */
static inline uint32_t
element_of(bool is_paired, uint32_t k, uint32_t lane)
{
    return is_paired ? k / 2 * 2 * LANES + 2 * lane + k % 2 : LANES * k + lane;
}

/* Where join_codes() leaves the code of that vector's lane. */
static inline uint32_t
joined_at(uint32_t k, uint32_t lane)
{
    return 4 * lane + k / 2 + k % 2 * 2;
}

/* `count` entries of a map, a byte of each. */
static inline void
take_bytes(const uint32_t *entries, uint32_t count, uint32_t plane, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i += LANES)
        _mm_store_si128((__m128i *)(out + i),
                        _mm512_cvtepi32_epi8(_mm512_srli_epi32(
                            _mm512_loadu_si512(entries + i), 8 * plane)));
}

static inline byte_tables
make_byte_tables(bool is_paired)
{
    byte_tables t;

    for (uint32_t plane = 0; plane < PLANES; plane++) {
        take_bytes(berthi_signed_map + MAP_ZERO_CODE, 128, plane, t.magnitudes[plane]);
        t.magnitudes[plane][0] = (uint8_t)(berthi_signed_map[255] >> 8 * plane);
        take_bytes(berthi_unsigned_map, 256, plane, t.values[plane]);
    }
    for (uint32_t k = 0; k < ABREAST; k++)
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const uint32_t element = element_of(is_paired, k, lane);

            t.taken[16 * (lane / 4) + 4 * k + lane % 4] = (uint8_t)element;
            t.put[element] = (uint8_t)joined_at(k, lane);
        }
    t.lines[0] = make_map_lines(berthi_signed_map, true);
    t.lines[1] = make_map_lines(berthi_unsigned_map, false);
    return t;
}

/* -------------------------------------------------------------------- decode */

/* Four planes of bytes -> four vectors. */
ALWAYS_INLINE void
interleave(const __m512i plane[PLANES], __m512 out[ABREAST])
{
    const __m512i low01 = _mm512_unpacklo_epi8(plane[0], plane[1]);
    const __m512i high01 = _mm512_unpackhi_epi8(plane[0], plane[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(plane[2], plane[3]);
    const __m512i high23 = _mm512_unpackhi_epi8(plane[2], plane[3]);

    out[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low01, low23));
    out[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low01, low23));
    out[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(high01, high23));
    out[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(high01, high23));
}

ALWAYS_INLINE __m512i
take_codes(const byte_tables *t, const uint8_t *codes)
{
    return _mm512_permutexvar_epi8(_mm512_load_si512(t->taken),
                                   _mm512_loadu_si512(codes));
}

/* The signed map is symmetric about its zero, but for 1, which counts modulo 128. */
ALWAYS_INLINE void
decode_signed(const byte_tables *t, const uint8_t *codes, __m512 out[ABREAST])
{
    const __m512i zero_code = _mm512_set1_epi8(MAP_ZERO_CODE);
    const __m512i code = take_codes(t, codes);
    const __m512i beside = _mm512_abs_epi8(_mm512_sub_epi8(code, zero_code));
    const __mmask64 negative = _mm512_cmplt_epu8_mask(code, zero_code);
    const __mmask64 something = _mm512_cmpneq_epi8_mask(code, zero_code);
    __m512i plane[PLANES];

    UNROLL
    for (uint32_t p = 0; p < PLANES; p++)
        plane[p] = _mm512_maskz_permutex2var_epi8(
            something, _mm512_load_si512(t->magnitudes[p]), beside,
            _mm512_load_si512(t->magnitudes[p] + 64));
    plane[3] = _mm512_mask_add_epi8(plane[3], negative, plane[3], _mm512_set1_epi8(-128));
    interleave(plane, out);
}

ALWAYS_INLINE void
decode_unsigned(const byte_tables *t, const uint8_t *codes, __m512 out[ABREAST])
{
    const __m512i code = take_codes(t, codes);
    const __mmask64 upper = _mm512_movepi8_mask(code);
    __m512i plane[PLANES];

    UNROLL
    for (uint32_t p = 0; p < PLANES; p++) {
        const uint8_t *const table = t->values[p];
        const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(table), code,
                                                     _mm512_load_si512(table + 64));
        const __m512i high = _mm512_permutex2var_epi8(
            _mm512_load_si512(table + 128), code, _mm512_load_si512(table + 192));

        plane[p] = _mm512_mask_mov_epi8(low, upper, high);
    }
    interleave(plane, out);
}

/* -------------------------------------------------------------------- encode */

/* Of the lanes' halves, the lower ones of `a` and the upper ones of `b`. */
ALWAYS_INLINE __m512i
join_halves(__m512i a, __m512i b)
{
    return _mm512_mask_mov_epi16(a, 0xAAAAAAAA, b);
}

/* Both upper halves, those of `a` below. */
ALWAYS_INLINE __m512i
upper_halves(__m512i a, __m512i b)
{
    return join_halves(_mm512_srli_epi32(a, 16), b);
}

ALWAYS_INLINE __m512i
lower_halves(__m512i a, __m512i b)
{
    return join_halves(a, _mm512_slli_epi32(b, 16));
}

#define UPPER_BYTES UINT64_C(0xAAAAAAAAAAAAAAAA) /* of 16 bits each */

/* The codes of four vectors of places, at joined_at(). */
ALWAYS_INLINE __m512i
join_codes(const __m512i place[ABREAST])
{
    const __m512i low = upper_halves(place[0], place[1]);
    const __m512i high = upper_halves(place[2], place[3]);

    return _mm512_mask_mov_epi8(low, UPPER_BYTES, _mm512_slli_epi16(high, 8));
}

/* Which of a group's values are negative, at joined_at(). */
ALWAYS_INLINE __mmask64
find_negative(const float *values)
{
    __m512i half[2];

    UNROLL
    for (uint32_t k = 0; k < 2; k++)
        half[k] = upper_halves(_mm512_load_si512(values + 2 * k * LANES),
                               _mm512_load_si512(values + (2 * k + 1) * LANES));
    return _mm512_movepi8_mask(
        _mm512_mask_mov_epi8(_mm512_srli_epi16(half[0], 8), UPPER_BYTES, half[1]));
}

/* Counted from the zero code towards the sign, which one beside at least keeps; there is no
   -1. */
ALWAYS_INLINE __m512i
sign_codes(__m512i beside, const float *values)
{
    const __m512i zero_code = _mm512_set1_epi8(MAP_ZERO_CODE);
    const __mmask64 negative = find_negative(values);

    beside = _mm512_mask_max_epu8(beside, negative, beside, _mm512_set1_epi8(1));
    return _mm512_mask_subs_epu8(_mm512_add_epi8(zero_code, beside), negative, zero_code,
                                 beside);
}

/* Below codes that are not 0, as berthi_core_map_border() of the codes before. */
ALWAYS_INLINE __m512
borders_below(const uint32_t *map, __m512i code)
{
    const __m512i before = _mm512_sub_epi32(code, _mm512_set1_epi32(1));
    const __m512i minus_one = _mm512_set1_epi32(-1);
    const __m512i middle = _mm512_castps_si512(
        (_mm512_i32gather_ps(before, map, sizeof *map)
         + _mm512_i32gather_ps(code, map, sizeof *map))
        * _mm512_set1_ps(0.5f));
    /* One further down: towards 0, or for negative ones from it. */
    const __m512i down = _mm512_mask_sub_epi32(
        minus_one, _mm512_movepi32_mask(middle), _mm512_setzero_si512(), minus_one);

    return _mm512_castsi512_ps(_mm512_mask_add_epi32(
        middle, _mm512_testn_epi32_mask(code, _mm512_set1_epi32(1)), middle, down));
}

/* Which places are a code too high: no magnitude is above the border that is towards 0. */
ALWAYS_INLINE __mmask16
find_too_high(bool is_signed, __m512 scaled, __m512i place)
{
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i steps = _mm512_srli_epi32(place, 16);
    __mmask16 negative;
    __m512i code;

    if (!is_signed) {
        code = _mm512_max_epi32(_mm512_sub_epi32(steps, one), one);
        return _mm512_mask_cmp_ps_mask(_mm512_cmpgt_epi32_mask(steps, one), scaled,
                                       borders_below(berthi_unsigned_map, code),
                                       _CMP_NGT_UQ);
    }
    /* A negative one's border is that below the next code; codes there grow towards 0. */
    negative = _mm512_movepi32_mask(_mm512_castps_si512(scaled));
    code = _mm512_mask_sub_epi32(
        _mm512_add_epi32(steps, _mm512_set1_epi32(MAP_ZERO_CODE)), negative,
        _mm512_set1_epi32(MAP_ZERO_CODE + 1), steps);
    return _kxor_mask16(
        negative, _mm512_cmp_ps_mask(scaled,
                                     borders_below(berthi_signed_map,
                                                   _mm512_max_epi32(code, one)),
                                     _CMP_NGT_UQ));
}

/*
 * The codes of a group, whose values are aligned and in the order of vectors. What comes too
 * near to a border may be one code too high, unless it `is_exact`, which takes twice as long;
 * `least` is for is_unsure(): how near to a border the nearest of all is.
 */
ALWAYS_INLINE void
encode_group(const byte_tables *t, bool is_signed, bool is_exact, const float *values,
             float reciprocal, uint8_t *codes, __m512i *least)
{
    __m512 scaled[ABREAST];
    __m512i place[ABREAST];
    __m512i bytes;

    UNROLL
    for (uint32_t k = 0; k < ABREAST; k++)
        scaled[k] = _mm512_mul_ps(_mm512_load_ps(values + LANES * k),
                                  _mm512_set1_ps(reciprocal));
    find_places(&t->lines[is_signed ? 0 : 1], is_signed, scaled, place);
    if (!is_signed) { /* of half the codes: a bit up, to be in the upper half as well */
        UNROLL
        for (uint32_t k = 0; k < ABREAST; k++)
            place[k] = _mm512_add_epi32(place[k], place[k]);
    }
    *least = _mm512_min_epu16(*least, _mm512_min_epu16(lower_halves(place[0], place[1]),
                                                       lower_halves(place[2], place[3])));
    if (is_exact) {
        UNROLL
        for (uint32_t k = 0; k < ABREAST; k++)
            place[k] = _mm512_mask_sub_epi32(place[k],
                                             find_too_high(is_signed, scaled[k], place[k]),
                                             place[k], _mm512_set1_epi32(1 << 16));
    }
    bytes = join_codes(place);
    bytes = is_signed ? sign_codes(bytes, values)
                      : _mm512_sub_epi8(bytes, _mm512_set1_epi8(1));
    _mm512_storeu_si512(codes,
                        _mm512_permutexvar_epi8(_mm512_load_si512(t->put), bytes));
}

/* Whether any value of groups was too near to a border. */
ALWAYS_INLINE bool
is_unsure(bool is_signed, __m512i least)
{
    const short near = is_signed ? NEAR : 2 * NEAR + 1;

    return _mm512_cmple_epu16_mask(least, _mm512_set1_epi16(near)) != 0;
}

#endif
#endif
