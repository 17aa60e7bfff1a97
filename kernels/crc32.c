/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32.c - stretches folded by carry-less products of 512 bits.
 *
 * A crc is what is left of a polynomial after division by P, so that a stretch
 * may be replaced by any that leaves the same. The first bits times x^n mod P
 * are as good n bits further on: they are added there, until 16 bytes remain.
 * Bits are mirrored, and a product of mirrored numbers is one place too low:
 * constants are mirrored and moved by one.
 */
#include "kernels/crc32.h"

#ifdef __x86_64__

#include <immintrin.h>

#define FOLDING __attribute__((target("avx512f,avx512bw,pclmul,vpclmulqdq")))
#define TURN 256u /* bytes: four registers */

/* For the first and the second 64 bits: x^(n + 32) and x^(n - 32) mod P. */
#define FAR_FIRST 0x11542778a /* n = 2048 */
#define FAR_SECOND 0x1322d1430
#define WIDE_FIRST 0x154442bd4 /* n = 512 */
#define WIDE_SECOND 0x1c6e41596
#define NEAR_FIRST 0x1751997d0 /* n = 128 */
#define NEAR_SECOND 0x0ccaa009e

bool
berthi_crc32_can_fold(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
           && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("vpclmulqdq");
}

FOLDING static inline __m512i
fold_wide(__m512i bits, __m512i by, __m512i onto)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(bits, by, 0x00),
                                     _mm512_clmulepi64_epi128(bits, by, 0x11), onto, 0x96);
}

FOLDING static inline __m128i
fold_near(__m128i bits, __m128i onto)
{
    const __m128i by = _mm_set_epi64x(NEAR_SECOND, NEAR_FIRST);

    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(bits, by, 0x00),
                                       _mm_clmulepi64_si128(bits, by, 0x11)),
                         onto);
}

/* Four registers, the first bits in the first one, to 16 bytes. */
FOLDING static __m128i
fold_turn(const __m512i *bits)
{
    const __m512i wide =
        _mm512_broadcast_i32x4(_mm_set_epi64x(WIDE_SECOND, WIDE_FIRST));
    __m512i one = bits[0];
    __m128i last;

    for (int i = 1; i < 4; i++)
        one = fold_wide(one, wide, bits[i]);
    last = fold_near(_mm512_castsi512_si128(one), _mm512_extracti32x4_epi32(one, 1));
    last = fold_near(last, _mm512_extracti32x4_epi32(one, 2));
    return fold_near(last, _mm512_extracti32x4_epi32(one, 3));
}

FOLDING size_t
berthi_crc32_fold(uint32_t crc, const void *bytes, size_t size,
                  uint8_t rest[BERTHI_CRC32_REST])
{
    const __m512i far = _mm512_broadcast_i32x4(_mm_set_epi64x(FAR_SECOND, FAR_FIRST));
    const uint8_t *const from = bytes;
    __m512i bits[4];
    size_t at = TURN;

    for (int i = 0; i < 4; i++)
        bits[i] = _mm512_loadu_si512(from + 64 * i);
    bits[0] = _mm512_xor_si512(bits[0],
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)~crc)));
    for (; size - at >= TURN; at += TURN) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            bits[i] = fold_wide(bits[i], far, _mm512_loadu_si512(from + at + 64 * i));
    }
    _mm_storeu_si128((__m128i *)(void *)rest, fold_turn(bits));
    return at;
}

#else

bool
berthi_crc32_can_fold(void)
{
    return false;
}

size_t
berthi_crc32_fold(uint32_t crc, const void *bytes, size_t size,
                  uint8_t rest[BERTHI_CRC32_REST])
{
    (void)crc;
    (void)bytes;
    (void)size;
    (void)rest;
    return 0;
}

#endif
