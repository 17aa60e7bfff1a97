/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varint.h - unsigned numbers in base 128, lowest bits first, the top bit of a
 * byte saying that another follows. Never longer than the same number in
 * decimal digits, which is what lets parsers write them over their own input.
 */
#ifndef BERTH_LOADER_VARINT_H
#define BERTH_LOADER_VARINT_H

#include <stdint.h>

#define BERTHI_VARINT_CAPACITY 10u /* bytes of the largest number */

/* Writes `value`; returns the position behind it. */
static inline char *
berthi_varint_write(char *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (char)(unsigned char)(value | 0x80);
        value >>= 7;
    }
    *out++ = (char)value;
    return out;
}

/* Reads what berthi_varint_write() wrote; returns the position behind it. */
static inline const char *
berthi_varint_read(const char *in, uint64_t *out_value)
{
    uint64_t value = (unsigned char)*in & 0x7F;

    for (unsigned shift = 7; ((unsigned char)*in++ & 0x80) != 0; shift += 7)
        value |= (uint64_t)((unsigned char)*in & 0x7F) << shift;
    *out_value = value;
    return in;
}

#endif
