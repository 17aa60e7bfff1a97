/* SPDX-License-Identifier: Apache-2.0 */
/*
 * double_avx512.c - the second level of double quantization with AVX-512: codes
 * of the signed map by arithmetic (map_lines512.h), the rows of the mean, and back
 * through any map by permutations of its values.
 *
 * What the absmax of a large weight cost is their way from memory. The mean
 * waits for it anyway: it finds the extremes of the blocks meanwhile.
 */
#include "kernels/map_lines512.h"

#define BLOCK BERTHI_DOUBLE_BLOCK

/* ------------------------------------------------------------------ extremes */

typedef struct extreme_lanes {
    __m512i largest;
    __m512i least;
} extreme_lanes;

ALWAYS_INLINE extreme_lanes
no_extremes(void)
{
    return (extreme_lanes){ _mm512_setzero_si512(), _mm512_set1_epi32(-1) };
}

ALWAYS_INLINE extreme_lanes
join_extremes(extreme_lanes e, __m512 values)
{
    return (extreme_lanes){ _mm512_max_epu32(e.largest, _mm512_castps_si512(values)),
                            _mm512_min_epu32(e.least, _mm512_castps_si512(values)) };
}

/* The complement of the least is a largest: they go down together. */
ALWAYS_INLINE berthi_extremes
fold_extremes(extreme_lanes e)
{
    const __m256i largest = _mm256_max_epu32(_mm512_castsi512_si256(e.largest),
                                             _mm512_extracti64x4_epi64(e.largest, 1));
    const __m256i least = _mm256_xor_si256(
        _mm256_min_epu32(_mm512_castsi512_si256(e.least),
                         _mm512_extracti64x4_epi64(e.least, 1)),
        _mm256_set1_epi32(-1));
    const __m256i both = _mm256_max_epu32(_mm256_unpacklo_epi32(largest, least),
                                          _mm256_unpackhi_epi32(largest, least));
    __m128i last = _mm_max_epu32(_mm256_castsi256_si128(both),
                                 _mm256_extracti128_si256(both, 1));
    uint64_t bits;

    last = _mm_max_epu32(last, _mm_shuffle_epi32(last, 0x4E));
    bits = (uint64_t)_mm_cvtsi128_si64(last);
    return (berthi_extremes){ berthi_core_float((uint32_t)bits),
                              berthi_core_float(~(uint32_t)(bits >> 32)) };
}

ALWAYS_INLINE berthi_extremes
find_extremes(const float *absmax)
{
    extreme_lanes e = no_extremes();

    UNROLL
    for (uint32_t i = 0; i < BLOCK; i += 16)
        e = join_extremes(e, _mm512_loadu_ps(absmax + i));
    return fold_extremes(e);
}

/* ------------------------------------------------------------ rows of the mean */

#define ROWS 4u

/* Every second value of two vectors, from the first or from the second on. */
ALWAYS_INLINE __m512
pick_every_second(__m512 low, __m512 high, bool is_from_second)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4,
                                          2, 0);

    return _mm512_permutex2var_ps(
        low, is_from_second ? _mm512_add_epi32(even, _mm512_set1_epi32(1)) : even, high);
}

/* Of sixteen lanes the sums of their four. */
ALWAYS_INLINE __m512
add_fours(const __m512 sums[ABREAST])
{
    const __m512 even[2] = { pick_every_second(sums[0], sums[1], false),
                             pick_every_second(sums[2], sums[3], false) };
    const __m512 odd[2] = { pick_every_second(sums[0], sums[1], true),
                            pick_every_second(sums[2], sums[3], true) };
    const __m512 two = _mm512_add_ps(pick_every_second(even[0], even[1], false),
                                     pick_every_second(odd[0], odd[1], false));

    return _mm512_add_ps(_mm512_add_ps(two, pick_every_second(even[0], even[1], true)),
                         pick_every_second(odd[0], odd[1], true));
}

/*
 * The values from `first` of the four rows, as many as go abreast. A vector of each
 * row in turn: that is four streams from memory at once.
 */
ALWAYS_INLINE void
add_values(const berthi_mean_rows_arguments *a, uint32_t first, extreme_lanes extremes[ROWS])
{
    __m512 sums[ABREAST];

    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++) {
        sums[i] = a->is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(a->sums + first + 16 * i);
        UNROLL
        for (uint32_t row = 0; row < ROWS; row++) {
            const __m512 values =
                _mm512_loadu_ps(a->values + row * a->stride + first + 16 * i);

            sums[i] = _mm512_add_ps(sums[i], values);
            extremes[row] = join_extremes(extremes[row], values);
        }
    }
    if (a->lanes != NULL) {
        _mm512_storeu_ps(a->lanes + first / 4, add_fours(sums));
        return;
    }
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++)
        _mm512_storeu_ps(a->sums + first + 16 * i, sums[i]);
}

void
berthi_avx512_add_mean_rows(const berthi_mean_rows_arguments *a)
{
    for (uint32_t block = 0; block < BERTHI_MEAN_ROW / BLOCK; block++) {
        extreme_lanes extremes[ROWS] = { no_extremes(), no_extremes(), no_extremes(),
                                         no_extremes() };

        for (uint32_t i = 0; i < BLOCK; i += 16 * ABREAST)
            add_values(a, block * BLOCK + i, extremes);
        if (a->extremes == NULL)
            continue;
        UNROLL
        for (uint32_t row = 0; row < ROWS; row++)
            a->extremes[row * (a->stride / BLOCK) + block] = fold_extremes(extremes[row]);
    }
}

/* -------------------------------------------------------------------- blocks */

ALWAYS_INLINE __m512
load_scaled(const float *absmax, __m512 offset, __m512 factor)
{
    return _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(absmax), offset), factor);
}

/* A turn's codes; returns lanes, added to `unsure`, that have one too near to tell. */
ALWAYS_INLINE __mmask16
encode_values(const map_lines *l, const float *absmax, __m512 offset, __m512 factor,
              __mmask16 unsure, uint8_t *codes)
{
    /* Packing takes turns with the quarters of its two operands. */
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4,
                                           0);
    const __m512i zero_code = _mm512_set1_epi8(MAP_ZERO_CODE);
    __mmask16 is_negative[ABREAST];
    __m512 scaled[ABREAST];
    __m512i place[ABREAST];
    __m512i bytes;

    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++) {
        scaled[i] = load_scaled(absmax + 16 * i, offset, factor);
        is_negative[i] = _mm512_movepi32_mask(_mm512_castps_si512(scaled[i]));
    }
    find_places(l, true, scaled, place);
    UNROLL
    for (uint32_t i = 0; i < ABREAST; i++) {
        unsure = _mm512_kor(unsure, find_unsure(place[i], true));
        /* Codes away from that of 0. */
        place[i] = _mm512_srli_epi32(place[i], map_fraction(true));
    }
    bytes = _mm512_permutexvar_epi32(
        order, _mm512_packus_epi16(_mm512_packus_epi32(place[0], place[1]),
                                   _mm512_packus_epi32(place[2], place[3])));
    /* There is no -1 opposite to 1: what is below 0 becomes 0. */
    _mm512_storeu_si512(codes, _mm512_mask_subs_epu8(_mm512_add_epi8(zero_code, bytes),
                                                     join_masks(is_negative), zero_code,
                                                     bytes));
    return unsure;
}

/* A block's values that came too near to a code's border; out of the way of the loop. */
static __attribute__((noinline)) void
correct_codes(const berthi_double_arguments *a, const map_lines *l, uint64_t first,
              float reciprocal)
{
    const __m512 offset = _mm512_set1_ps(a->offset);
    const __m512 factor = _mm512_set1_ps(reciprocal);

    for (uint32_t i = 0; i < BLOCK; i += 16 * ABREAST) {
        uint8_t *const codes = a->codes + first + i;
        __m512 scaled[ABREAST];
        __m512i place[ABREAST];

        for (uint32_t k = 0; k < ABREAST; k++)
            scaled[k] = load_scaled(a->absmax + first + i + 16 * k, offset, factor);
        find_places(l, true, scaled, place);
        for (uint32_t k = 0; k < ABREAST; k++)
            for (uint32_t near = _cvtmask16_u32(find_unsure(place[k], true)); near != 0;
                 near &= near - 1) {
                const uint32_t lane = (uint32_t)__builtin_ctz(near);

                codes[16 * k + lane] = exact_code(berthi_signed_map, scaled[k][lane],
                                                  codes[16 * k + lane]);
            }
    }
}

/* One by one, whatever the values are. */
static __attribute__((noinline)) float
largest_difference_plainly(const float *absmax, float offset)
{
    uint32_t largest = 0;

    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t bits =
            berthi_core_bits(fabsf(berthi_core_add(absmax[i], -offset)));

        largest = bits > largest ? bits : largest;
    }
    return berthi_core_float(largest);
}

/* It lies at an end: subtraction keeps the order. */
ALWAYS_INLINE float
largest_difference(const float *absmax, float offset, berthi_extremes e)
{
    uint32_t above;
    uint32_t below;

    if (berthi_core_bits(e.largest) > 0x7F800000u) /* the order of negative ones is another */
        return largest_difference_plainly(absmax, offset);
    above = berthi_core_bits(fabsf(berthi_core_add(e.largest, -offset)));
    below = berthi_core_bits(fabsf(berthi_core_add(e.least, -offset)));
    return berthi_core_float(above > below ? above : below);
}

ALWAYS_INLINE void
encode_block(const berthi_double_arguments *a, const map_lines *l, uint64_t first,
             float reciprocal)
{
    const __m512 offset = _mm512_set1_ps(a->offset);
    const __m512 factor = _mm512_set1_ps(reciprocal);
    __mmask16 unsure = 0;

    for (uint32_t i = 0; i < BLOCK; i += 16 * ABREAST)
        unsure = encode_values(l, a->absmax + first + i, offset, factor, unsure,
                               a->codes + first + i);
    if (unsure != 0)
        correct_codes(a, l, first, reciprocal);
}

/* What is short or rare, by the reference. */
static void
encode_plainly_from(const berthi_double_arguments *a, uint64_t first, uint64_t count)
{
    berthi_scalar_operations.encode_double(&(berthi_double_arguments){
        .absmax = a->absmax + first, .count = count, .codes = a->codes + first,
        .absmax2 = a->absmax2 + first / BLOCK, .offset = a->offset, .scratch = a->scratch });
}

/* Blocks whose maxima are found, and inverted, one after the other. */
#define TURN 8u

/* The blocks from `first`, TURN at most. */
ALWAYS_INLINE void
encode_turn(const berthi_double_arguments *a, const map_lines *l, uint64_t first,
            uint32_t blocks)
{
    float absmax[TURN];
    float reciprocal[TURN];

    for (uint32_t b = 0; b < TURN; b++)
        absmax[b] = 1.0f;
    for (uint32_t b = 0; b < blocks; b++) {
        const uint64_t block = first / BLOCK + b;

        absmax[b] = largest_difference(a->absmax + block * BLOCK, a->offset,
                                       block < a->extremes_count
                                           ? a->extremes[block]
                                           : find_extremes(a->absmax + block * BLOCK));
    }
    memcpy(a->absmax2 + first / BLOCK, absmax, blocks * sizeof *absmax);
    invert(absmax, TURN, reciprocal);
    for (uint32_t b = 0; b < blocks; b++, first += BLOCK)
        if (absmax[b] == 0.0f) /* all the same */
            memset(a->codes + first, 0, BLOCK);
        else if (!is_ordinary(absmax[b]))
            encode_plainly_from(a, first, BLOCK);
        else
            encode_block(a, l, first, reciprocal[b]);
}

void
berthi_avx512_encode_double(const berthi_double_arguments *a)
{
    const uint64_t blocks = a->count / BLOCK;
    const map_lines l = make_map_lines(berthi_signed_map, true);

    for (uint64_t b = 0; b < blocks; b += TURN)
        encode_turn(a, &l, b * BLOCK, blocks - b < TURN ? (uint32_t)(blocks - b) : TURN);
    if (a->count % BLOCK != 0)
        encode_plainly_from(a, blocks * BLOCK, a->count % BLOCK);
}

/* ------------------------------------------------------------------- decode */

#define MAP_VECTORS  16u  /* a map's 256 values */
#define NOT_ORDINARY 0xB9 /* of vfpclass: NaN, infinite, subnormal */

/* The values of 16 codes: of eight picks, each from 32 entries, the one their bits tell. */
ALWAYS_INLINE __m512
look_up(const __m512 map[MAP_VECTORS], const uint8_t *codes)
{
    const __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)codes));
    __m512 picks[MAP_VECTORS / 2];

    UNROLL
    for (uint32_t i = 0; i < MAP_VECTORS / 2; i++)
        picks[i] = _mm512_permutex2var_ps(map[2 * i], index, map[2 * i + 1]);
    UNROLL
    for (uint32_t bit = 0; bit < 3; bit++) {
        const __mmask16 is_second =
            _mm512_test_epi32_mask(index, _mm512_set1_epi32(32 << bit));

        UNROLL
        for (uint32_t i = 0; i < MAP_VECTORS / 2; i += 2u << bit)
            picks[i] = _mm512_mask_mov_ps(picks[i], is_second, picks[i + (1u << bit)]);
    }
    return picks[0];
}

/* Sixteen absmax, with all that arithmetic does to values beside the ordinary ones. */
ALWAYS_INLINE void
recover_any(const __m512 map[MAP_VECTORS], const uint8_t *codes, __m512 absmax2,
            __m512 offset, float *out)
{
    const __m512 product = flush_subnormal(_mm512_mul_ps(look_up(map, codes), absmax2));

    _mm512_storeu_ps(out, one_nan(_mm512_add_ps(product, offset)));
}

/* A block's, the offset being finite; false: not all are right, a product is not ordinary. */
ALWAYS_INLINE bool
recover_ordinary(const __m512 map[MAP_VECTORS], const uint8_t *codes, __m512 absmax2,
                 __m512 offset, float *out)
{
    __mmask16 others = 0;

    for (uint32_t i = 0; i < BLOCK; i += 16) {
        const __m512 product = _mm512_mul_ps(look_up(map, codes + i), absmax2);

        others = _mm512_kor(others, _mm512_fpclass_ps_mask(product, NOT_ORDINARY));
        _mm512_storeu_ps(out + i, _mm512_add_ps(product, offset));
    }
    return others == 0;
}

void
berthi_avx512_decode_double(const berthi_double_arguments *a, float *out_absmax)
{
    const __m512 offset = _mm512_set1_ps(a->offset);
    const uint64_t whole = a->count / 16 * 16;
    uint64_t done = 0;
    __m512 map[MAP_VECTORS];

    UNROLL
    for (uint32_t i = 0; i < MAP_VECTORS; i++)
        map[i] = flush_subnormal(_mm512_loadu_ps(a->map + 16 * i));
    while (done < whole) {
        const __m512 absmax2 = flush_subnormal(_mm512_set1_ps(a->absmax2[done / BLOCK]));
        const uint64_t end = done + berthi_min_u64(BLOCK, whole - done);

        if (end - done == BLOCK && isfinite(a->offset)
            && recover_ordinary(map, a->codes + done, absmax2, offset, out_absmax + done))
            done = end;
        for (; done < end; done += 16)
            recover_any(map, a->codes + done, absmax2, offset, out_absmax + done);
    }
    for (uint64_t i = whole; i < a->count; i++)
        out_absmax[i] = berthi_core_absmax_recover(a->map, a->codes[i], a->absmax2[i / BLOCK],
                                                   a->offset);
}
