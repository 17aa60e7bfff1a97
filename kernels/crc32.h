/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.h - crc32 of long stretches by products without carries. */
#ifndef BERTH_KERNELS_CRC32_H
#define BERTH_KERNELS_CRC32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BERTHI_CRC32_REST 16u   /* bytes that a stretch becomes */
#define BERTHI_CRC32_LEAST 512u /* bytes from which it is worth it */

/* Whether this processor has such products, 512 bits at a time. */
bool berthi_crc32_can_fold(void);

/*
 * Makes 16 bytes of the first of `size` >= BERTHI_CRC32_LEAST ones and returns
 * how many these were. zlib's crc32 of all from `crc` on is that of the 16 and
 * what is left, from 0xFFFFFFFF on. Only where berthi_crc32_can_fold().
 */
size_t berthi_crc32_fold(uint32_t crc, const void *bytes, size_t size,
                         uint8_t rest[BERTHI_CRC32_REST]);

#endif
