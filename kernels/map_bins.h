/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_bins.h - the code of an 8-bit map by one look-up and one comparison.
 *
 * A bin is a sign, an exponent and the first seven bits of a mantissa. No bin of
 * the published maps holds two borders between codes, so a bin's entry is the
 * border in it and the code below that. Bins are in the order of their values:
 * the result is that of the full search.
 *
 * Included by one file per level, which inlines it.
 */
#ifndef BERTH_KERNELS_MAP_BINS_H
#define BERTH_KERNELS_MAP_BINS_H

#include "kernels/simd_blocks.h"

#define BIN_SHIFT 16u            /* seven bits of mantissa are left */
#define BIN_LOWEST (104u << 7)   /* of 2^-23; what is below is in its bin */
#define BINS (24u << 7)          /* up to 2: scaled values are at most 1 + 1 ulp */
#define MAP_TURN 32u

typedef struct map_bin {
    int32_t border; /* as map_order(); the largest: none */
    uint32_t below;
} map_bin;

typedef struct map_bins {
    map_bin bins[2 * BINS]; /* of positive, then of negative values */
} map_bins;

/*
 * Strict: a value on a midpoint takes the even neighbour, so where that is the
 * upper one the border lies an ulp lower.
 */
ALWAYS_INLINE float
map_border(const uint32_t *map, uint32_t lower)
{
    const float sum = berthi_core_add(berthi_core_float(map[lower]),
                                      berthi_core_float(map[lower + 1]));
    const float midpoint = berthi_core_multiply(sum, 0.5f);

    return lower % 2 == 0 ? midpoint : nextafterf(midpoint, -INFINITY);
}

/* Integers in the order of the values; no NaN, and -0 below 0, which no border is. */
ALWAYS_INLINE int32_t
map_order(float scaled)
{
    const uint32_t bits = berthi_core_bits(scaled);

    return (int32_t)(bits >> 31 != 0 ? bits ^ 0x7FFFFFFFu : bits);
}

ALWAYS_INLINE uint32_t
map_bin_of(float scaled)
{
    const uint32_t bits = berthi_core_bits(scaled);
    const int32_t magnitude = (int32_t)((bits & 0x7FFFFFFFu) >> BIN_SHIFT);
    const int32_t lowest = (int32_t)BIN_LOWEST;

    return (uint32_t)(magnitude > lowest ? magnitude - lowest : 0) + (bits >> 31) * BINS;
}

/* False: two borders in a bin, one outside all, or one that is no number. */
static inline bool
map_bins_can_make(const uint32_t *map, map_bins *out)
{
    uint32_t code = 0;

    for (uint32_t i = 0; i < 2 * BINS; i++)
        out->bins[i].border = INT32_MAX;
    for (uint32_t lower = 0; lower < 255; lower++) {
        const float border = map_border(map, lower);
        map_bin *const bin = &out->bins[map_bin_of(border) % (2 * BINS)];

        if (!(fabsf(border) >= 0x1p-23f && fabsf(border) < 2.0f) || bin->border < INT32_MAX)
            return false;
        bin->border = map_order(border);
    }
    /* From the most negative bin to the most positive one. */
    for (uint32_t i = 0; i < 2 * BINS; i++) {
        map_bin *const bin = &out->bins[i < BINS ? 2 * BINS - 1 - i : i - BINS];

        bin->below = code;
        code += bin->border < INT32_MAX ? 1u : 0u;
    }
    return true;
}

/* A block, whole and ordinary, of a multiple of MAP_TURN values. */
ALWAYS_INLINE void
encode_map_block(const berthi_encode_arguments *a, const void *tables, int32_t dtype,
                 uint64_t first, float reciprocal)
{
    const map_bins *const table = tables;
    float scaled[MAP_TURN];
    int32_t order[MAP_TURN];
    uint32_t bin[MAP_TURN];
    uint8_t *restrict codes = a->codes + first; /* alias of nothing here */

    for (uint64_t i = first; i < first + a->block_size; i += MAP_TURN) {
        for (uint32_t k = 0; k < MAP_TURN; k++)
            scaled[k] = berthi_core_load(a->values, dtype, i + k) * reciprocal;
        for (uint32_t k = 0; k < MAP_TURN; k++)
            bin[k] = map_bin_of(scaled[k]);
        for (uint32_t k = 0; k < MAP_TURN; k++)
            order[k] = map_order(scaled[k]);
#pragma GCC unroll 8
        for (uint32_t k = 0; k < MAP_TURN; k++) {
            const map_bin *const b = &table->bins[bin[k]];

            codes[k] = (uint8_t)(b->below + (order[k] > b->border));
        }
        codes += MAP_TURN;
    }
}

/* Of whole calls: one per level, so that its code is there once. */
typedef void encode_bins_function(const berthi_encode_arguments *a, const void *tables);

/* Blocks of other sizes and other maps are for the reference. */
ALWAYS_INLINE void
encode_map_by(const berthi_encode_arguments *a, encode_bins_function *encode)
{
    map_bins table;

    if (a->block_size % MAP_TURN == 0 && map_bins_can_make(a->map, &table))
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
