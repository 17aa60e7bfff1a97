/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_bins.h - the code of an 8-bit map by one look-up and one comparison.
 *
 * A place is an integer in the order of the values, all of magnitude 2^-23 or
 * less in one for each sign; a bin is a sign, an exponent and the first seven
 * bits of a mantissa: the upper half of a place. No bin of the published maps
 * holds two borders between codes, so a bin's entry is the border in it and
 * the code below that: the result is that of the full search.
 *
 * Included by one file per level, which inlines it.
 */
#ifndef BERTH_KERNELS_MAP_BINS_H
#define BERTH_KERNELS_MAP_BINS_H

#include "kernels/simd_blocks.h"

#define BIN_SHIFT 16u       /* seven bits of mantissa are left */
#define LOWEST (104u << 23) /* the bits of 2^-23 */
#define BINS (24u << 7)     /* up to 2: scaled values are at most 1 + 1 ulp */
/*
 * Values whose places are found before they are looked up; what is stored as a
 * vector and soon loaded one by one stalls, so many. Other blocks: the least.
 */
#define MAP_TURN 128u
#define MAP_TURN_LEAST 32u

typedef struct map_bin {
    int32_t border; /* a place; the largest: none */
    uint32_t below;
} map_bin;

typedef struct map_bins {
    map_bin bins[2 * BINS]; /* from the most negative one */
} map_bins;

/* Of a number below 2 in magnitude. */
ALWAYS_INLINE int32_t
map_place(float scaled)
{
    const uint32_t bits = berthi_core_bits(scaled);
    const int32_t above = (int32_t)(bits & 0x7FFFFFFFu) - (int32_t)LOWEST;
    const int32_t magnitude = above > 0 ? above : 0;

    return (int32_t)bits < 0 ? ~magnitude : magnitude;
}

ALWAYS_INLINE int32_t
map_bin_of(int32_t place)
{
    return (place >> BIN_SHIFT) + (int32_t)BINS;
}

/* Bins of no border, up to `end`; returns it. */
ALWAYS_INLINE uint32_t
map_bins_fill(map_bins *out, uint32_t begin, uint32_t end, uint32_t below)
{
    for (uint32_t i = begin; i < end; i++)
        out->bins[i] = (map_bin){ INT32_MAX, below };
    return end;
}

/* False: two borders in a bin, or not in order, one outside all, or one that is no number. */
static inline bool
map_bins_can_make(const uint32_t *map, map_bins *out)
{
    uint32_t next = 0;

    for (uint32_t lower = 0; lower < 255; lower++) {
        const float border = berthi_core_map_border(map, lower);
        uint32_t bin;

        if (!(fabsf(border) > 0x1p-23f && fabsf(border) < 2.0f))
            return false;
        bin = (uint32_t)map_bin_of(map_place(border));
        if (bin < next)
            return false;
        next = map_bins_fill(out, next, bin + 1, lower);
        out->bins[bin].border = map_place(border);
    }
    map_bins_fill(out, next, 2 * BINS, 255);
    return true;
}

/* `turn` values from `first`; a constant, so that vectors are made of the loop. */
ALWAYS_INLINE void
encode_map_turn(const berthi_encode_arguments *a, const map_bins *table, int32_t dtype,
                uint64_t first, float reciprocal, uint32_t turn)
{
    uint8_t *restrict codes = a->codes + first; /* alias of nothing here */
    int32_t places[MAP_TURN];

    for (uint32_t k = 0; k < turn; k++)
        places[k] = map_place(berthi_core_load(a->values, dtype, first + k) * reciprocal);
#pragma GCC unroll 16
    for (uint32_t k = 0; k < turn; k++) {
        const map_bin *const b = &table->bins[map_bin_of(places[k])];

        codes[k] = (uint8_t)(b->below + (places[k] > b->border));
    }
}

/* A block, whole and ordinary, of a multiple of MAP_TURN_LEAST values. */
ALWAYS_INLINE void
encode_map_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    const uint64_t end = first + a->block_size;

    if (a->block_size % MAP_TURN == 0)
        for (; first < end; first += MAP_TURN)
            encode_map_turn(a, tables, dtype, first, reciprocal, MAP_TURN);
    for (; first < end; first += MAP_TURN_LEAST)
        encode_map_turn(a, tables, dtype, first, reciprocal, MAP_TURN_LEAST);
}

/*
 * A block of an optimizer's states: signed ones keep their sign, so that what is too small for the
 * map, and -0, takes the code beside that of 0.
 */
ALWAYS_INLINE void
encode_map_states(const map_bins *table, bool is_signed, const float *values,
                  float reciprocal, uint8_t *codes)
{
    const berthi_encode_arguments a =
        { .values = values, .block_size = BERTHI_UPDATE_BLOCK, .codes = codes };

    encode_map_block(&a, table, BERTH_F32, 0, reciprocal);
    for (uint32_t i = 0; is_signed && i < BERTHI_UPDATE_BLOCK; i++)
        codes[i] = (uint8_t)(codes[i]
                             - (codes[i] == 127 && berthi_core_bits(values[i]) >> 31));
}

/* Of whole calls: one per level, so that its code is there once. */
typedef void encode_bins_function(const berthi_encode_arguments *a, const void *tables);

/* Blocks of other sizes and other maps are for the reference. */
ALWAYS_INLINE void
encode_map_by(const berthi_encode_arguments *a, encode_bins_function *encode)
{
    map_bins table;

    if (a->block_size % MAP_TURN_LEAST == 0 && map_bins_can_make(a->map, &table))
        encode(a, &table);
    else
        berthi_scalar_operations.encode_map(a);
}

ALWAYS_INLINE void
encode_double_by(const berthi_double_arguments *a, encode_bins_function *encode)
{
    map_bins table;

    if (map_bins_can_make(berthi_signed_map, &table))
        berthi_encode_double_by(a, encode, &table);
    else
        berthi_scalar_operations.encode_double(a);
}

#endif
