/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape.c - printable text from bytes of unknown origin.
 *
 * What passes: printable ASCII except the backslash, and well-formed UTF-8
 * that cannot move a terminal's cursor or reorder its line. All else becomes
 * \xNN (a byte) or \u{NN} (a code point), so that the text is unambiguous.
 */
#include "kernels/base.h"
#include "kernels/utf8.h"

#include <stdio.h>
#include <string.h>

/* Control, invisible and direction characters, unassigned planes, specials. */
static bool
is_harmless(uint32_t point)
{
    if (point < 0xA0 || point == 0xAD || point == 0x61C || point == 0x180E)
        return false;
    if (point >= 0x200B && point <= 0x200F) /* zero width, direction marks */
        return false;
    if (point >= 0x2028 && point <= 0x202E) /* separators, embeddings, overrides */
        return false;
    if (point >= 0x2060 && point <= 0x206F) /* word joiner, isolates */
        return false;
    if (point >= 0xD800 && point <= 0xF8FF) /* surrogates, private use */
        return false;
    if (point == 0xFEFF || (point >= 0xFFF0 && point <= 0xFFFF))
        return false;
    return point < 0xE0000; /* tags, private planes */
}

/* Writes the text of the character at `bytes` into `piece`; returns its bytes. */
static size_t
escape_one(const unsigned char *bytes, size_t left, char piece[16])
{
    uint32_t point;
    size_t used;

    if (bytes[0] >= 0x20 && bytes[0] < 0x7F) {
        snprintf(piece, 16, bytes[0] == '\\' ? "\\\\" : "%c", bytes[0]);
        return 1;
    }
    used = berthi_utf8_decode(bytes, left, &point);
    if (used == 0 || bytes[0] < 0x80) {
        snprintf(piece, 16, "\\x%02x", bytes[0]);
        return 1;
    }
    if (is_harmless(point)) {
        memcpy(piece, bytes, used);
        piece[used] = '\0';
    } else {
        snprintf(piece, 16, "\\u{%x}", (unsigned)point);
    }
    return used;
}

size_t
berth_text_escape(const char *bytes, size_t length, char *text, size_t capacity)
{
    size_t needed = 0;
    size_t written = 0;
    bool is_cut = capacity == 0;

    for (size_t i = 0; i < length;) {
        char piece[16];
        size_t piece_length;

        i += escape_one((const unsigned char *)bytes + i, length - i, piece);
        piece_length = strlen(piece);
        needed += piece_length;
        if (!is_cut && written + piece_length < capacity) {
            memcpy(text + written, piece, piece_length);
            written += piece_length;
        } else {
            is_cut = true; /* never half a character, never a later one */
        }
    }
    if (capacity > 0)
        text[written] = '\0';
    return needed;
}
