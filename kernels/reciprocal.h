/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reciprocal.h - rcp.approx.ftz.f32 in integers: 1/x as a GPU computes it.
 *
 * The unit looks a parabola up by the first seven bits of the mantissa and
 * follows it by the other sixteen, x:
 *
 *   constant * 2^13 - slope * x + curve * square + 2023,  cut to whole 2^15
 *
 * `square` is x * x over 2^17, of which the partial products below 1 were never
 * added up. With the pieces in tables.c that is what all 2^23 mantissas gave on
 * an H200; the correctly rounded reciprocal is another for one in eight.
 */
#ifndef BERTH_KERNELS_RECIPROCAL_H
#define BERTH_KERNELS_RECIPROCAL_H

#include <stdint.h>

#include "kernels/tables.h"

#define BERTHI_RECIPROCAL_MOST 0x7E800000u /* 2^126: above it 1/x is flushed */

/* The piece that a normal number lies in; there is one for any bits. */
static inline const berthi_reciprocal_piece *
berthi_reciprocal_piece_of(uint32_t bits)
{
    return &berthi_reciprocal_pieces[bits >> 16 & 127u];
}

/* All that is left of the bytes' products with each other: places that add up to 8 or more. */
static inline uint32_t
berthi_reciprocal_square(uint32_t x)
{
    const uint32_t high = x >> 8;
    const uint32_t low = x & 255u;
    uint32_t square = high * high >> 1;

#ifndef __CUDACC__
#pragma GCC unroll 7
#endif
    for (uint32_t k = 1; k < 8; k++)
        square += low >> (8 - k) & (0u - (high >> k & 1u));
    return square;
}

/*
 * The bits of 1/x, of a normal x from 0 to 2^126; any others give any bits. In
 * 32 bits: what leaves the constant is rounded up.
 */
static inline uint32_t
berthi_reciprocal_bits(uint32_t bits, uint32_t constant, uint32_t shape)
{
    const uint32_t x = bits & 0xFFFFu;
    const uint32_t fall = (shape & 0xFFFFu) * x - (shape >> 16) * berthi_reciprocal_square(x);
    const uint32_t mantissa = (constant - ((fall + 8191u - 2023u) >> 13)) >> 2;

    return (252u << 23) - (bits & 0x7F800000u) + mantissa;
}

#endif
