/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_entries.cuh - the code of a published 8-bit map by one look-up.
 *
 * A bin is an exponent and the first bits of a mantissa: six, of the unsigned map, whose
 * codes lie twice as close, seven. No bin holds two borders between codes, and none lies
 * below 2^-23, so that what does counts as that. A bin's entry is such a number that with
 * the bits of a value, shifted so that bins are 2^24 apart, it makes the code in the
 * highest byte: what is above the bin's border carries into it.
 *
 * Values below zero have bins of their own, in which codes are counted from the other
 * end: as 255 less the code. The borders of a side, as magnitudes, are its edges.
 */
#ifndef BERTH_KERNELS_MAP_ENTRIES_CUH
#define BERTH_KERNELS_MAP_ENTRIES_CUH

#include "kernels/core.h"
#include "kernels/simt.h"

#define MAP_LOWEST (104u << 23) /* the bits of 2^-23 */
#define MAP_BINADES 24u         /* up to 2: scaled values are at most 1 and 2 ulp */
#define MAP_SIGNED_BITS 6u
#define MAP_UNSIGNED_BITS 7u
#define MAP_SIGNED_BINS (MAP_BINADES << MAP_SIGNED_BITS) /* of a side */
#define MAP_UNSIGNED_BINS (MAP_BINADES << MAP_UNSIGNED_BITS)
/*
 * The side below zero lies where the byte of a sign is so many times as large, in bytes: a little
 * behind the other one. The map of both has MAP_SIGNED_ENTRIES.
 */
#define MAP_SIGN_TIMES 28u
#define MAP_SIGNED_SIDE (255u * MAP_SIGN_TIMES / 4u)
#define MAP_SIGNED_ENTRIES (MAP_SIGNED_SIDE + MAP_SIGNED_BINS)
#define MAP_EDGES 256u /* that a side has room for; those it has not are passed by nothing */

/* What the codes of values just above 0 are counted from, and of those below it. */
#define MAP_FROM_ZERO 0u /* of the unsigned map */
#define MAP_FROM_ABOVE 127u
#define MAP_FROM_BELOW 128u
#define MAP_FROM_SIGN 129u /* below zero, where none may have the code of 0 */

/* -------------------------------------------------------------------- tables */

/* Number `i` of a side: the largest magnitude that is not beyond it. */
SIMT_INLINE uint32_t
map_edge(const uint32_t *map, uint32_t from, uint32_t i)
{
    const bool is_below = from >= MAP_FROM_BELOW;

    if (from + i >= 255)
        return 0x7FFFFFFFu;
    if (!is_below)
        return berthi_core_bits(berthi_core_map_border(map, from + i));
    /* What lies on a border is not above it: below zero that is one more. */
    return (berthi_core_bits(berthi_core_map_border(map, 254 - from - i)) & 0x7FFFFFFFu) - 1;
}

/* `count` entries of a side from `first` on. */
SIMT_INLINE void
map_fill(const uint32_t *edges, uint32_t from, uint32_t bits, uint32_t first, uint32_t count,
         uint32_t *entries)
{
    const uint32_t width = 1u << (23 - bits);
    uint32_t end = MAP_LOWEST + (first << (23 - bits));
    uint32_t passed = 0;

    SIMT_UNROLL
    for (uint32_t step = MAP_EDGES / 2; step > 0; step /= 2)
        if (edges[passed + step - 1] < end)
            passed += step;
    SIMT_NO_UNROLL
    for (uint32_t i = first; i < first + count; i++) {
        const uint32_t edge = edges[passed];
        const bool is_here = edge < end + width;

        end += width;
        entries[i] = ((from + passed + 1) << 24)
                     - ((is_here ? edge + 1 : end) << (bits + 1));
        passed += is_here ? 1u : 0u;
    }
}

/* ------------------------------------------------------------------- look-up */

/*
 * Entries are found by their place in bytes, one instruction of half words or bytes times small
 * numbers: of the unsigned map the higher half of a number says its bin, of the signed one the bits
 * from MAP_SIGNED_SHIFT on, and the byte of its sign.
 */
#define MAP_SIGNED_SHIFT (23u - MAP_SIGNED_BITS)

SIMT_INLINE uint32_t
map_entry(const uint32_t *entries, uint32_t at)
{
    return simt_shared_load4((const uint8_t *)entries + at);
}

/* The code is the highest byte. */
SIMT_INLINE uint32_t
map_find_unsigned(float scaled, const uint32_t *entries)
{
    const uint32_t bits = berthi_core_bits(fmaxf(scaled, berthi_core_float(MAP_LOWEST)));
    const uint32_t at = simt_add_halves(bits, 4u << 8, 0u - (MAP_LOWEST >> 16) * 4);

    return (bits << (MAP_UNSIGNED_BITS + 1)) + map_entry(entries, at);
}

/* The same, all bits turned where the value has a sign; where its entry is found by, with that. */
SIMT_INLINE uint32_t
map_find_magnitude(float scaled, const uint32_t *entries, uint32_t *out_place)
{
    const uint32_t bits =
        berthi_core_bits(fmaxf(fabsf(scaled), berthi_core_float(MAP_LOWEST)));
    const uint32_t place = simt_join_sign(bits >> MAP_SIGNED_SHIFT, scaled);
    const uint32_t at = simt_add_halves(place, MAP_SIGN_TIMES << 8 | 4,
                                        0u - (MAP_LOWEST >> MAP_SIGNED_SHIFT) * 4);

    *out_place = place;
    return (bits << (MAP_SIGNED_BITS + 1)) + map_entry(entries, at);
}

/* The codes of four values, that of the first one lowest. */
SIMT_INLINE uint32_t
map_find_four_signed(const float *scaled, const uint32_t *entries)
{
    uint32_t found[4];
    uint32_t places[4];

    SIMT_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        found[k] = map_find_magnitude(scaled[k], entries, &places[k]);
    return simt_high_bytes(found) ^ simt_sign_bytes(places);
}

/* The code of one. */
SIMT_INLINE uint32_t
map_find_signed(float scaled, const uint32_t *entries)
{
    uint32_t place;
    const uint32_t found = map_find_magnitude(scaled, entries, &place);

    return found >> 24 ^ place >> 16;
}

#endif
