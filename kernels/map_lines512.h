/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_lines512.h - codes of the published 8-bit maps by arithmetic, with AVX-512.
 *
 * Magnitudes in the signed map lie in seven decades below 1, two to the power of i
 * of them, evenly apart, in decade i; and there are 0 and 1. So within a decade the
 * code is the whole part of a line. Which decade it is, is told by the border above
 * it: there is one in a binade at most. The unsigned map has twice as many in every
 * decade: the same lines with a bit more behind the point, counted from 1.
 *
 * A line is a line from 8/9 to 2 times half the codes up to its end; within its
 * decade it is above 1, so that the power of two takes the exponent's place (what
 * lies below, in the step of 0, is code 0 either way). It is good to a few of its
 * last bits, and begins that much too high. Whatever is right above a code is compared with
 * the border as the reference does: one value in some thousands.
 *
 * Included by one file each, which inlines it.
 */
#ifndef BERTH_KERNELS_MAP_LINES512_H
#define BERTH_KERNELS_MAP_LINES512_H

#include "kernels/avx512.h"

#ifdef __AVX512BW__

#define MAP_ZERO_CODE 127u /* of the signed map; codes beside it grow with the magnitude */
#define STEPS 9u           /* 0, seven decades, 1 */
#define LEAST_STEP 0x1p-23f /* lies within the step of 0 */
#define MANTISSA 23
#define HALF (1 << 15)     /* of the signed map's first decade's one code */
#define HALF_BINADE 142u   /* its biased exponent */
#define START ((float)((8.0 / 9.0 + 0x1p-21) * HALF)) /* 2^-21 too high */
#define MOST ((2.0f - 0x1p-9f) * HALF) /* within the last code, up to the border above */
#define TAKE_BY_MASK 0xE4 /* of two operands, the first where the third has ones */
#define NEAR 3u /* of a place: behind a code this little is too near to tell */

/* Bits of a place behind the code. */
ALWAYS_INLINE unsigned
map_fraction(bool is_signed)
{
    return is_signed ? 16 : 15;
}

/* --------------------------------------------------------------------- lines */

/*
 * By binade, modulo 32: what is added to the bits of a magnitude, so that
 * those above the mantissa are its step, counted from HALF's binade. The
 * mantissa's last carry is into them: above the border, where there is one,
 * it adds 1.
 */
typedef struct step_tables {
    uint32_t entry[32];
    float slope[16]; /* by step */
} step_tables;

typedef struct map_lines {
    __m512i entry_low;
    __m512i entry_high;
    __m512 slope;
} map_lines;

/* The last code of a step below that of 1. */
static inline uint32_t
last_code(uint32_t step, bool is_signed)
{
    return is_signed ? MAP_ZERO_CODE + (1u << step) - 1 : (2u << step) - 2;
}

static inline void
make_slopes(step_tables *t, bool is_signed)
{
    double power = 1e6;

    memset(t->slope, 0, sizeof t->slope); /* of 0, signed: 8/9 of half a code */
    if (!is_signed)
        t->slope[0] = 4e6f * HALF; /* between 1.3 and 1.6 of half a code: one whole */
    for (uint32_t s = 1; s < STEPS - 1; s++, power /= 10.0)
        t->slope[s] = (float)(power / 0.9 * HALF);
    t->slope[STEPS - 1] = 0.115f * HALF; /* of 1: a little above 128 codes */
}

static inline map_lines
make_map_lines(const uint32_t *map, bool is_signed)
{
    step_tables t;
    float turned[16];
    uint32_t step = 0;

    make_slopes(&t, is_signed);
    for (uint32_t binade = 0; binade < 32; binade++) {
        const uint32_t begin = (96 + binade) << MANTISSA;
        const uint32_t border =
            step < STEPS - 1
                ? berthi_core_bits(berthi_core_map_border(map, last_code(step, is_signed)))
                : UINT32_MAX;
        const bool is_here = border - begin < 1u << MANTISSA;

        t.entry[binade] = ((HALF_BINADE + step) << MANTISSA) - begin;
        if (is_here) {
            t.entry[binade] += (1u << MANTISSA) - 1 - (border - begin);
            step++;
        }
    }
    for (uint32_t s = 0; s < 16; s++)
        turned[(HALF_BINADE + s) % 16] = t.slope[s];
    return (map_lines){ _mm512_loadu_si512(t.entry), _mm512_loadu_si512(t.entry + 16),
                        _mm512_loadu_ps(turned) };
}

/* -------------------------------------------------------------------- places */

/* `code` may be one beside. */
static inline uint8_t
exact_code(const uint32_t *map, float scaled, uint32_t code)
{
    uint32_t exact = code < 1 ? 0 : code - 1;

    while (exact < 255 && scaled > berthi_core_map_border(map, exact))
        exact++;
    return (uint8_t)exact;
}

#define ABREAST 4u /* vectors that go through every step together: none waits long */

/* Places of magnitudes: what is behind map_fraction() bits is their code. */
ALWAYS_INLINE void
find_places(const map_lines *l, bool is_signed, const __m512 scaled[ABREAST],
            __m512i place[ABREAST])
{
    const __m512 least = _mm512_set1_ps(LEAST_STEP);
    __m512i bits[ABREAST];
    __m512i steps[ABREAST];
    __m512 line[ABREAST];

    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++) /* signed: the larger magnitude, no sign */
        bits[i] = _mm512_castps_si512(is_signed ? _mm512_range_ps(scaled[i], least, 0x0B)
                                                : _mm512_max_ps(scaled[i], least));
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++)
        steps[i] = _mm512_permutex2var_epi32(
            l->entry_low, _mm512_srli_epi32(bits[i], MANTISSA), l->entry_high);
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++)
        steps[i] = _mm512_add_epi32(steps[i], bits[i]);
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++)
        line[i] = _mm512_permutexvar_ps(_mm512_srli_epi32(steps[i], MANTISSA), l->slope);
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++)
        line[i] = _mm512_fmadd_ps(line[i], _mm512_castsi512_ps(bits[i]),
                                  _mm512_set1_ps(START));
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++) {
        const __m512i half =
            _mm512_castps_si512(_mm512_min_ps(line[i], _mm512_set1_ps(MOST)));

        place[i] = _mm512_cvtps_epi32(_mm512_castsi512_ps(_mm512_ternarylogic_epi32(
            half, steps[i], _mm512_set1_epi32((1 << MANTISSA) - 1), TAKE_BY_MASK)));
    }
}

/* Which are right above a code. */
ALWAYS_INLINE __mmask16
find_unsure(__m512i place, bool is_signed)
{
    const uint32_t fraction = (1u << map_fraction(is_signed)) - 1;

    return _mm512_testn_epi32_mask(place, _mm512_set1_epi32((int32_t)(fraction & ~NEAR)));
}

/* Four masks of sixteen, the first in the lowest bits. */
ALWAYS_INLINE __mmask64
join_masks(const __mmask16 *masks)
{
    return _mm512_kunpackd(_mm512_kunpackw(masks[3], masks[2]),
                           _mm512_kunpackw(masks[1], masks[0]));
}

#endif
#endif
