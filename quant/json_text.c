/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.c - a buffer in front of `put`, and the escapes of two styles. */
#include "quant/json_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/utf8.h"

#define ESCAPE_CAPACITY 16u /* two of \uxxxx and a NUL */
#define REPLACEMENT 0xFFFDu

/* ------------------------------------------------------------------- handing on */

void
berthi_json_text_begin(berthi_json_text *text, berthi_json_put put, void *user,
                       berth_error *error)
{
    text->put = put;
    text->user = user;
    text->error = error;
    text->status = BERTH_OK;
    text->offset = 0;
    text->used = 0;
}

berth_status
berthi_json_put_memory(void *user, const char *bytes, uint64_t size, uint64_t offset,
                       berth_error *error)
{
    (void)error;
    memcpy((char *)user + offset, bytes, (size_t)size);
    return BERTH_OK;
}

static void
flush(berthi_json_text *t)
{
    if (t->status == BERTH_OK && t->put != NULL && t->used > 0)
        t->status = t->put(t->user, t->buffer, t->used, t->offset, t->error);
    t->offset += t->used;
    t->used = 0;
}

void
berthi_json_text_add(berthi_json_text *text, const char *bytes, uint64_t length)
{
    while (length > 0) {
        const uint64_t room = sizeof text->buffer - text->used;
        const uint64_t part = berthi_min_u64(length, room);

        memcpy(text->buffer + text->used, bytes, (size_t)part);
        text->used += (uint32_t)part;
        bytes += part;
        length -= part;
        if (text->used == sizeof text->buffer)
            flush(text);
    }
}

void
berthi_json_text_add_words(berthi_json_text *text, const char *words)
{
    berthi_json_text_add(text, words, strlen(words));
}

void
berthi_json_text_add_number(berthi_json_text *text, uint64_t number)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, number);

    berthi_json_text_add(text, digits, (uint64_t)length);
}

berth_status
berthi_json_text_end(berthi_json_text *text, uint64_t *out_bytes)
{
    flush(text);
    if (out_bytes != NULL)
        *out_bytes = text->offset;
    return text->status;
}

uint32_t
berthi_json_text_digits(uint64_t number)
{
    static const uint64_t powers[] = {
        UINT64_C(1),
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    const uint32_t bits = 64 - (uint32_t)__builtin_clzll(number | 1);
    /* log10(2) is a little more than 1233/4096: digits, or one less. */
    const uint32_t digits = bits * 1233 >> 12;

    return digits + (digits < sizeof powers / sizeof powers[0]
                     && (number | 1) >= powers[digits]);
}

/* --------------------------------------------------------------------- escaping */

static bool
is_plain(unsigned char byte, berthi_json_style style)
{
    return byte >= 0x20 && byte != '"' && byte != '\\'
           && (byte < 0x7F || style == BERTHI_JSON_RAW);
}

static uint32_t
write_point(uint32_t point, char escape[ESCAPE_CAPACITY])
{
    const uint32_t above = point - 0x10000;

    if (point < 0x10000)
        return (uint32_t)snprintf(escape, ESCAPE_CAPACITY, "\\u%04" PRIx32, point);
    return (uint32_t)snprintf(escape, ESCAPE_CAPACITY, "\\u%04" PRIx32 "\\u%04" PRIx32,
                              0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
}

/*
 * Spells the character at bytes[0], which is not plain. Returns how many bytes
 * of the text it takes.
 */
static uint64_t
write_escape(const char *bytes, uint64_t left, char escape[ESCAPE_CAPACITY],
             uint32_t *out_length)
{
    static const char controls[] = "\b\f\n\r\t\"\\";
    static const char letters[] = "bfnrt\"\\";
    const char *const place = memchr(controls, bytes[0], sizeof controls - 1);
    uint32_t point;
    size_t length;

    if (place != NULL) {
        *out_length = (uint32_t)snprintf(escape, ESCAPE_CAPACITY, "\\%c",
                                         letters[place - controls]);
        return 1;
    }
    length = berthi_utf8_decode((const unsigned char *)bytes, (size_t)left, &point);
    if (length == 0) {
        point = REPLACEMENT;
        length = 1;
    }
    *out_length = write_point(point, escape);
    return length;
}

static uint64_t
count_plain(const char *bytes, uint64_t length, berthi_json_style style)
{
    uint64_t count = 0;

    while (count < length && is_plain((unsigned char)bytes[count], style))
        count++;
    return count;
}

void
berthi_json_text_add_escaped(berthi_json_text *text, const char *bytes, uint64_t length,
                             berthi_json_style style)
{
    char escape[ESCAPE_CAPACITY];
    uint32_t escape_length;

    for (uint64_t at = 0; at < length;) {
        const uint64_t plain = count_plain(bytes + at, length - at, style);

        berthi_json_text_add(text, bytes + at, plain);
        at += plain;
        if (at == length)
            break;
        at += write_escape(bytes + at, length - at, escape, &escape_length);
        berthi_json_text_add(text, escape, escape_length);
    }
}

void
berthi_json_text_add_string(berthi_json_text *text, const char *bytes, uint64_t length,
                            berthi_json_style style)
{
    berthi_json_text_add(text, "\"", 1);
    berthi_json_text_add_escaped(text, bytes, length, style);
    berthi_json_text_add(text, "\"", 1);
}
