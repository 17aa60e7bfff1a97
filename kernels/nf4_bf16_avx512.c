/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nf4_bf16_avx512.c - NF4 codes of bf16 values without widening them: 32 in a
 * register of AVX-512 (F, BW, VL).
 *
 * No quotient of two bf16 numbers comes nearer than 1e-6 of itself to a
 * threshold. So a value is above one exactly when its bits are above those of
 * threshold times absmax, cut to 16 bits. Bits count downwards from absmax:
 *
 *   place   the bits of a magnitude less those of absmax, plus 1023, at least
 *           0: eight binades, below which there is no threshold. That of a
 *           negative value is complemented: -1 to -1024
 *   border  the place that a threshold has; absmax moves it by its mantissa,
 *           by up to 22 places. The ways of neighbours are more than 32 apart
 *   bin     32 places: it meets the way of one threshold at most
 *   entry   of a bin: 64 times the code below the border, plus 63, less the
 *           border. Added to a place and divided by 64 it gives the code on
 *           either side. Entries are made for every block
 */
#include "kernels/avx512.h"

#define THRESHOLDS 15u
#define LARGEST_PLACE 1023
#define BIN_PLACES 32
#define BINS 64u /* -32 to 31, modulo 64 */

/* ------------------------------------------------------------------- tables */

typedef struct bin_tables {
    float magnitudes[16];  /* of the thresholds; the last is 0, where no place is */
    uint16_t border[BINS]; /* which word of the products with `magnitudes` it is */
    uint16_t entry[BINS];  /* but for the border */
} bin_tables;

/* Where the border of a threshold may be; for a negative one, what is not above it. */
typedef struct border_way {
    int32_t least;
    int32_t most;
} border_way;

/*
 * The difference of bits is that of mantissas: least when that of absmax is 1,
 * most just before the product carries. One place more on either side.
 */
static border_way
way_of(float threshold)
{
    const uint32_t bits = berthi_core_bits(fabsf(threshold));
    const float mantissa = berthi_core_float((bits & 0x007FFFFFu) | 0x3F800000u);
    const float moved = 128.0f * (mantissa - 1.0f) * (2.0f / mantissa - 1.0f);
    const int32_t least = LARGEST_PLACE + (int32_t)(bits >> 16) - 0x3F80 - 1;
    const int32_t most = least + (int32_t)moved + 2;

    return threshold < 0.0f ? (border_way){ -most - 2, -least - 2 }
                            : (border_way){ least, most };
}

static void
make_tables(bin_tables *t)
{
    border_way ways[THRESHOLDS];
    uint32_t passed = 0;

    for (uint32_t k = 0; k < THRESHOLDS; k++) {
        const float threshold = berthi_core_float(berthi_nf4_thresholds[k]);

        t->magnitudes[k] = fabsf(threshold);
        ways[k] = way_of(threshold);
    }
    t->magnitudes[THRESHOLDS] = 0.0f;
    for (int32_t bin = -(int32_t)BINS / 2; bin < (int32_t)BINS / 2; bin++) {
        const int32_t first = bin * BIN_PLACES;
        const size_t at = (size_t)bin % BINS;

        while (passed < THRESHOLDS && ways[passed].most < first)
            passed++;
        if (passed < THRESHOLDS && ways[passed].least < first + BIN_PLACES - 1) {
            t->border[at] = (uint16_t)(2 * passed + 1);
            t->entry[at] = (uint16_t)(64 * passed + (bin < 0 ? 65 : 63));
        } else {
            t->border[at] = 2 * THRESHOLDS + 1;
            t->entry[at] = (uint16_t)(64 * passed - (uint32_t)first);
        }
    }
}

/* ------------------------------------------------------------------- a block */

/* What does not change from block to block, in registers. */
typedef struct constants {
    __m512 magnitudes;
    __m512i border[2];
    __m512i entry[2];
} constants;

/* What 32 values are turned into codes by. */
typedef struct block_entries {
    __m512i above; /* bins 0 to 31 */
    __m512i below; /* bins -32 to -1 */
    __m512i base;  /* the bits of place 0 */
} block_entries;

ALWAYS_INLINE block_entries
make_entries(const constants *c, float absmax)
{
    const uint32_t bits = berthi_core_bits(absmax) >> 16;
    const __m512i base = _mm512_set1_epi16((int16_t)(bits - LARGEST_PLACE));
    const __m512i borders = _mm512_subs_epu16(
        _mm512_castps_si512(_mm512_mul_ps(c->magnitudes, _mm512_set1_ps(absmax))), base);

    return (block_entries){
        _mm512_sub_epi16(c->entry[0], _mm512_permutexvar_epi16(c->border[0], borders)),
        _mm512_add_epi16(c->entry[1], _mm512_permutexvar_epi16(c->border[1], borders)),
        base,
    };
}

/* The codes of 32 values, a word each. */
ALWAYS_INLINE __m512i
codes_of(const block_entries *e, const uint16_t *values)
{
    const __m512i bits = _mm512_loadu_si512(values);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi16(0x7FFF));
    const __m512i place = _mm512_xor_si512(_mm512_subs_epu16(magnitude, e->base),
                                           _mm512_srai_epi16(bits, 15));
    const __m512i entry = _mm512_permutex2var_epi16(
        e->above, _mm512_srli_epi16(place, 5), e->below);

    return _mm512_srli_epi16(_mm512_add_epi16(entry, place), 6);
}

/* The first of a pair times 16, plus the second. */
ALWAYS_INLINE __m512i
pack_pairs(__m512i codes)
{
    return _mm512_madd_epi16(codes, _mm512_set1_epi32(0x00010010));
}

ALWAYS_INLINE void
encode_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
             uint64_t first, float absmax)
{
    const uint16_t *const values = (const uint16_t *)a->values + first;
    uint8_t *const out = a->codes + first / 2;
    const block_entries e = make_entries(tables, absmax);

    (void)dtype;
#pragma GCC unroll 2
    for (uint32_t i = 0; i < a->block_size; i += 32)
        _mm_storeu_si128((__m128i *)(out + i / 2),
                         _mm512_cvtepi32_epi8(pack_pairs(codes_of(&e, values + i))));
}

void
berthi_avx512_encode_nf4_bf16(const berthi_encode_arguments *a)
{
    bin_tables t;
    constants c;

    make_tables(&t);
    c = (constants){ _mm512_loadu_ps(t.magnitudes),
                     { _mm512_loadu_si512(t.border), _mm512_loadu_si512(t.border + 32) },
                     { _mm512_loadu_si512(t.entry), _mm512_loadu_si512(t.entry + 32) } };
    if (a->block_size == 64)
        encode_by_absmax(a, &c, BERTH_BF16, 64, find_absmax, encode_block,
                         berthi_scalar_operations.encode_nf4);
    else
        encode_by_absmax(a, &c, BERTH_BF16, a->block_size, find_absmax, encode_block,
                         berthi_scalar_operations.encode_nf4);
}
