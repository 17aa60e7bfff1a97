/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c - checking, decoding and encoding of UTF-8. */
#include "kernels/utf8.h"

#include "kernels/word.h"

size_t
berthi_utf8_decode(const unsigned char *bytes, size_t left, uint32_t *out_point)
{
    const uint32_t lead = bytes[0];
    uint32_t point;
    uint32_t smallest;
    size_t length;

    if (lead < 0x80) {
        *out_point = lead;
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2;
        point = lead & 0x1F;
        smallest = 0x80;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3;
        point = lead & 0x0F;
        smallest = 0x800;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4;
        point = lead & 0x07;
        smallest = 0x10000;
    } else {
        return 0;
    }
    if (length > left)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (bytes[i] & 0x3F);
    }
    if (point < smallest || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
        return 0;
    *out_point = point;
    return length;
}

#define TOP_BITS BERTHI_WORD_OF(0x80)

static inline uint64_t
any_of_four(const unsigned char *bytes)
{
    return berthi_word_load(bytes) | berthi_word_load(bytes + 8)
           | berthi_word_load(bytes + 16) | berthi_word_load(bytes + 24);
}

/* Behind the ASCII at `i`, or a few bytes before its end: 64 bytes a step, then 8. */
static inline size_t
skip_ascii(const unsigned char *bytes, size_t i, size_t length)
{
    while (length - i >= 64
           && ((any_of_four(bytes + i) | any_of_four(bytes + i + 32)) & TOP_BITS) == 0)
        i += 64;
    while (length - i >= 8 && (berthi_word_load(bytes + i) & TOP_BITS) == 0)
        i += 8;
    return i;
}

size_t
berthi_utf8_check(const unsigned char *bytes, size_t length)
{
    size_t i = 0;

    while (i < length) {
        uint32_t point;
        size_t used;

        /* Headers are ASCII nearly everywhere. */
        i = skip_ascii(bytes, i, length);
        if (i == length)
            break;
        used = berthi_utf8_decode(bytes + i, length - i, &point);
        if (used == 0)
            return i;
        i += used;
    }
    return length;
}

size_t
berthi_utf8_encode(uint32_t point, unsigned char *bytes)
{
    if (point < 0x80) {
        bytes[0] = (unsigned char)point;
        return 1;
    }
    if (point < 0x800) {
        bytes[0] = (unsigned char)(0xC0 | point >> 6);
        bytes[1] = (unsigned char)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point < 0x10000) {
        bytes[0] = (unsigned char)(0xE0 | point >> 12);
        bytes[1] = (unsigned char)(0x80 | (point >> 6 & 0x3F));
        bytes[2] = (unsigned char)(0x80 | (point & 0x3F));
        return 3;
    }
    bytes[0] = (unsigned char)(0xF0 | point >> 18);
    bytes[1] = (unsigned char)(0x80 | (point >> 12 & 0x3F));
    bytes[2] = (unsigned char)(0x80 | (point >> 6 & 0x3F));
    bytes[3] = (unsigned char)(0x80 | (point & 0x3F));
    return 4;
}
