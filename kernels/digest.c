/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - crc32 by libdeflate where the build has it, else by zlib, long
 * stretches folded first where the processor can; the algebra that joins parts.
 * The only file that includes zlib.h, libdeflate.h.
 */
#include "kernels/digest.h"

#include "kernels/crc32.h"

#ifdef BERTH_HAVE_LIBDEFLATE
#include <libdeflate.h>
#else
#include <zlib.h>
#endif

static uint32_t
plain_crc32(uint32_t crc, const void *bytes, size_t size)
{
    if (size == 0)
        return crc; /* both libraries take a NULL pointer for "start anew" */
#ifdef BERTH_HAVE_LIBDEFLATE
    return libdeflate_crc32(crc, bytes, size);
#else
    return (uint32_t)crc32_z(crc, bytes, size);
#endif
}

uint32_t
berthi_digest_crc32(uint32_t crc, const void *bytes, size_t size)
{
    uint8_t rest[BERTHI_CRC32_REST];
    size_t folded;

    if (size < BERTHI_CRC32_LEAST || !berthi_crc32_can_fold())
        return plain_crc32(crc, bytes, size);
    folded = berthi_crc32_fold(crc, bytes, size, rest);
    return plain_crc32(plain_crc32(UINT32_MAX, rest, sizeof rest),
                       (const uint8_t *)bytes + folded, size - folded);
}

bool
berthi_digest_is_fast(void)
{
#ifdef BERTH_HAVE_LIBDEFLATE
    return true;
#else
    return false;
#endif
}

/*
 * A crc is a polynomial over GF(2) modulo P, the highest power in the lowest
 * bit: 0x80000000 is 1, 0x40000000 is x. Bytes that follow multiply it by x^8
 * each. zlib inverts the crc before and after; that cancels out in
 * first * x^(8 n) + second, so the formula holds for its values as they are.
 */
#define POLYNOMIAL 0xEDB88320u

static uint32_t
multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ ((b & 1u) != 0 ? POLYNOMIAL : 0);
    }
    return product;
}

/*
 * powers[k] is x^(2^k): each is the square of the one before. x^(2^32) is x
 * again, so the table also serves the exponents beyond it.
 */
static const uint32_t powers[32] = {
    0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0xedb88320, 0xb1e6b092,
    0xa06a2517, 0xed627dae, 0x88d14467, 0xd7bbfe6a, 0xec447f11, 0x8e7ea170, 0x6427800e,
    0x4d47bae0, 0x09fe548f, 0x83852d0f, 0x30362f1a, 0x7b5a9cc3, 0x31fec169, 0x9fec022a,
    0x6c8dedc4, 0x15d6874d, 0x5fde7a4e, 0xbad90e37, 0x2e4e5eef, 0x4eaba214, 0xa8a472c0,
    0x429a969e, 0x148d302a, 0xc40ba6d0, 0xc4e22c3c,
};

uint32_t
berthi_digest_shift(uint32_t crc, uint64_t behind)
{
    /* A byte is x^8, and 8 is 2^3: bit 0 of `behind` stands for powers[3]. */
    for (unsigned k = 3; behind != 0; k++, behind >>= 1)
        if (behind & 1u)
            crc = multiply(powers[k % 32], crc);
    return crc;
}
