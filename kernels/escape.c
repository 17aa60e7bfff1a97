/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape.c - printable text from bytes of unknown origin.
 *
 * What passes: printable ASCII except the backslash, and well-formed UTF-8
 * that a terminal shows where it stands. All else becomes \xNN (a byte) or
 * \u{NN} (a code point), so that different bytes never look the same and
 * nothing drives the terminal. A backslash becomes two.
 */
#include "kernels/base.h"
#include "kernels/utf8.h"

#include <string.h>

/* The longest: \u{10ffff} */
#define PIECE_CAPACITY 10

/* Controls, what is invisible, what overrides the direction of other text. */
static const uint32_t hidden[][2] = {
    { 0x80, 0x9F },       /* C1 controls */
    { 0xAD, 0xAD },       /* soft hyphen */
    { 0x34F, 0x34F },     /* grapheme joiner */
    { 0x61C, 0x61C },     /* Arabic letter mark */
    { 0x115F, 0x1160 },   /* Hangul fillers */
    { 0x17B4, 0x17B5 },   /* Khmer inherent vowels */
    { 0x180B, 0x180F },   /* Mongolian selectors */
    { 0x200B, 0x200F },   /* zero width, direction marks */
    { 0x2028, 0x202E },   /* separators, embeddings, overrides */
    { 0x2060, 0x206F },   /* word joiner, isolates */
    { 0x3164, 0x3164 },   /* Hangul filler */
    { 0xD800, 0xF8FF },   /* surrogates, private use */
    { 0xFDD0, 0xFDEF },   /* no characters */
    { 0xFE00, 0xFE0F },   /* variation selectors */
    { 0xFEFF, 0xFEFF },   /* byte order mark */
    { 0xFFA0, 0xFFA0 },   /* Hangul filler */
    { 0xFFF0, 0xFFFF },   /* specials */
    { 0x13430, 0x1345F }, /* hieroglyph format controls */
    { 0x1BCA0, 0x1BCA3 }, /* shorthand format controls */
    { 0x1D173, 0x1D17A }, /* musical format controls */
    { 0x40000, 0x10FFFF } /* unassigned planes, tags, private use */
};

static bool
is_hidden(uint32_t point)
{
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (point <= hidden[i][1])
            return point >= hidden[i][0];
    return true;
}

static size_t
write_hex(uint32_t value, int digits, char *out)
{
    static const char hex[] = "0123456789abcdef";

    for (int i = 0; i < digits; i++)
        out[i] = hex[value >> 4 * (digits - 1 - i) & 0xF];
    return (size_t)digits;
}

static size_t
write_byte(unsigned char byte, char piece[PIECE_CAPACITY])
{
    memcpy(piece, "\\x", 2);
    return 2 + write_hex(byte, 2, piece + 2);
}

static size_t
write_point(uint32_t point, char piece[PIECE_CAPACITY])
{
    size_t length = 3;
    int digits = 2; /* the smallest hidden point is 0x80 */

    while (point >> 4 * digits != 0)
        digits++;
    memcpy(piece, "\\u{", 3);
    length += write_hex(point, digits, piece + 3);
    piece[length] = '}';
    return length + 1;
}

/* The text of the character at `bytes`; *out_used: how many bytes it took. */
static size_t
escape_one(const unsigned char *bytes, size_t left, char piece[PIECE_CAPACITY],
           size_t *out_used)
{
    uint32_t point;
    size_t used;

    *out_used = 1;
    if (bytes[0] >= 0x20 && bytes[0] < 0x7F) {
        piece[0] = (char)bytes[0];
        piece[1] = '\\';
        return bytes[0] == '\\' ? 2 : 1;
    }
    used = berthi_utf8_decode(bytes, left, &point);
    if (used < 2)
        return write_byte(bytes[0], piece);
    *out_used = used;
    if (is_hidden(point))
        return write_point(point, piece);
    memcpy(piece, bytes, used);
    return used;
}

size_t
berth_text_escape(const char *bytes, size_t length, char *text, size_t capacity)
{
    size_t needed = 0;
    size_t written = 0;
    size_t used;

    for (size_t i = 0; i < length; i += used) {
        char piece[PIECE_CAPACITY];
        const size_t piece_length =
            escape_one((const unsigned char *)bytes + i, length - i, piece, &used);

        /* Cut before the first piece that does not fit; none behind it follows. */
        if (needed == written && capacity > 0 && piece_length < capacity - written) {
            memcpy(text + written, piece, piece_length);
            written += piece_length;
        }
        needed += piece_length;
    }
    if (capacity > 0)
        text[written] = '\0';
    return needed;
}
