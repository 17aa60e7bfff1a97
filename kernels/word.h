/* SPDX-License-Identifier: Apache-2.0 */
/* word.h - text, eight bytes at a time. */
#ifndef BERTH_KERNELS_WORD_H
#define BERTH_KERNELS_WORD_H

#include <stdint.h>
#include <string.h>

#define BERTHI_WORD_BYTES 8u
/* A word of eight times this byte. */
#define BERTHI_WORD_OF(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The eight bytes at `bytes`, aligned or not; the first one lowest. */
static inline uint64_t
berthi_word_load(const void *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Number of the first byte that is not zero, in a word that is not. */
static inline unsigned
berthi_word_first(uint64_t word)
{
    return (unsigned)__builtin_ctzll(word) / 8;
}

#endif
