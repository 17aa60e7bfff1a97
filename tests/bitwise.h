/* SPDX-License-Identifier: Apache-2.0 */
/* bitwise.h - crc32 by its definition: one bit after the other. */
#ifndef BERTH_TESTS_BITWISE_H
#define BERTH_TESTS_BITWISE_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t
bitwise_crc32(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

#endif
