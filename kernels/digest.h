/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h - crc32 with zlib's polynomial, and how the crc of a whole comes
 * from the crcs of its parts, in any order.
 *
 * digest.c is the only file that sees zlib or libdeflate. Values are those of
 * zlib's crc32(): 0 for no bytes.
 */
#ifndef BERTH_KERNELS_DIGEST_H
#define BERTH_KERNELS_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The crc of what `crc` stands for, followed by `size` bytes. Start with 0. */
uint32_t berthi_digest_crc32(uint32_t crc, const void *bytes, size_t size);

/* True when libdeflate computes it: the same value at twice the speed of zlib. */
bool berthi_digest_is_fast(void);

/*
 * What a part contributes to the crc of a whole when `behind` bytes follow it
 * there. The crc of the whole is the exclusive or of all contributions, so
 * parts may be digested in any order and one word holds the sum. Costs some
 * ten nanoseconds a set bit of `behind`.
 */
uint32_t berthi_digest_shift(uint32_t crc, uint64_t behind);

/* The crc of two neighbours; `second_bytes` is the size of the second. */
static inline uint32_t
berthi_digest_combine(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    return berthi_digest_shift(first, second_bytes) ^ second;
}

#endif
