/* SPDX-License-Identifier: Apache-2.0 */
/* test_escape.c - what reaches a terminal from foreign bytes. */
#include <stdio.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/utf8.h"
#include "loader/berth.h"
#include "tests/t.h"

static char text[4096];

static const char *
escape(const char *bytes, size_t length)
{
    size_t needed;

    memset(text, '#', sizeof text);
    needed = berth_text_escape(bytes, length, text, sizeof text);
    CHECK_EQ(needed, strlen(text));
    return text;
}

static void
test_every_byte_alone(void)
{
    for (int byte = 0; byte < 256; byte++) {
        const char raw = (char)byte;
        char expected[8];

        if (byte == '\\')
            snprintf(expected, sizeof expected, "\\\\");
        else if (byte >= 0x20 && byte <= 0x7E)
            snprintf(expected, sizeof expected, "%c", byte);
        else
            snprintf(expected, sizeof expected, "\\x%02x", (unsigned)byte);
        CHECK_STR(escape(&raw, 1), expected);
    }
}

/* Every code point is either itself or its number, and the two never mix. */
static void
test_every_code_point(void)
{
    uint64_t shown = 0;
    uint64_t wrong = 0;

    for (uint32_t point = 0x80; point <= 0x10FFFF; point++) {
        unsigned char bytes[4];
        char number[16];
        size_t length;

        if (point >= 0xD800 && point <= 0xDFFF)
            continue;
        length = berthi_utf8_encode(point, bytes);
        snprintf(number, sizeof number, "\\u{%x}", (unsigned)point);
        berth_text_escape((const char *)bytes, length, text, sizeof text);
        if (strlen(text) == length && memcmp(text, bytes, length) == 0)
            shown++;
        else
            wrong += strcmp(text, number) != 0;
    }
    CHECK_EQ(wrong, 0);
    /* 0x40000 less ASCII and the ranges of the table below it. */
    CHECK_EQ(shown, 0x40000 - 0x80 - 0x20 - 1 - 1 - 1 - 2 - 2 - 5 - 5 - 7 - 16 - 1
                        - 0x2100 - 32 - 16 - 1 - 1 - 16 - 48 - 4 - 8);
}

static void
test_borders_of_what_is_hidden(void)
{
    /* The first and last of each range, and their neighbours that are shown. */
    static const uint32_t ranges[][2] = {
        { 0x80, 0x9F },       { 0xAD, 0xAD },       { 0x34F, 0x34F },
        { 0x61C, 0x61C },     { 0x115F, 0x1160 },   { 0x17B4, 0x17B5 },
        { 0x180B, 0x180F },   { 0x200B, 0x200F },   { 0x2028, 0x202E },
        { 0x2060, 0x206F },   { 0x3164, 0x3164 },   { 0xE000, 0xF8FF },
        { 0xFDD0, 0xFDEF },   { 0xFE00, 0xFE0F },   { 0xFEFF, 0xFEFF },
        { 0xFFA0, 0xFFA0 },   { 0xFFF0, 0xFFFF },   { 0x13430, 0x1345F },
        { 0x1BCA0, 0x1BCA3 }, { 0x1D173, 0x1D17A }, { 0x40000, 0x10FFFF },
    };

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        for (int side = 0; side < 2; side++) {
            const uint32_t inside = ranges[i][side];
            const uint32_t outside = side == 0 ? inside - 1 : inside + 1;
            unsigned char bytes[4];
            size_t length = berthi_utf8_encode(inside, bytes);

            CHECK_CONTAINS(escape((const char *)bytes, length), "\\u{");
            if (outside < 0x80 || outside > 0x10FFFF
                || (outside >= 0xD800 && outside <= 0xDFFF))
                continue;
            length = berthi_utf8_encode(outside, bytes);
            CHECK_MEM(escape((const char *)bytes, length), bytes, length);
            CHECK_EQ(strlen(text), length);
        }
}

static void
test_texts(void)
{
    static const struct {
        const char *raw;
        size_t length;
        const char *text;
    } cases[] = {
        { "", 0, "" },
        { "model.layers.0.weight", 21, "model.layers.0.weight" },
        { "a\0b", 3, "a\\x00b" },
        { "\x1b[2J\r\n", 6, "\\x1b[2J\\x0d\\x0a" },
        { "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9,
          "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80" },
        { "\xC3", 1, "\\xc3" },                       /* cut off */
        { "\xE2\x82", 2, "\\xe2\\x82" },
        { "\xC3\x28", 2, "\\xc3(" },                  /* broken off */
        { "\xC0\x80", 2, "\\xc0\\x80" },              /* overlong */
        { "\xED\xA0\x80", 3, "\\xed\\xa0\\x80" },     /* surrogate */
        { "\xF4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80" },
        { "\xC2\x85", 2, "\\u{85}" },                 /* next line */
        { "\xE2\x80\xAE", 3, "\\u{202e}" },           /* right-to-left override */
        { "\xEF\xBB\xBF", 3, "\\u{feff}" },
        { "\xF3\xA0\x81\xA1", 4, "\\u{e0061}" },      /* a tag */
        { "\xF4\x8F\xBF\xBF", 4, "\\u{10ffff}" },
        { "\\x41", 4, "\\\\x41" },                    /* never mistaken for an escape */
        { "\x7F", 1, "\\x7f" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_STR(escape(cases[i].raw, cases[i].length), cases[i].text);
}

/* At every capacity: the longest run of whole pieces that fits, and a NUL. */
static void
test_cut_at_every_capacity(void)
{
    static const char raw[] = "a\\\x1b\xC3\xA4\xE2\x80\xAE\xF0\x9F\x98\x80z";
    static const size_t ends[] = { 0, 1, 3, 7, 9, 17, 21, 22 };
    const size_t pieces = sizeof ends / sizeof ends[0];
    char whole[64];

    CHECK_EQ(berth_text_escape(raw, sizeof raw - 1, whole, sizeof whole), 22);
    for (size_t capacity = 0; capacity <= 24; capacity++) {
        char cut[64];
        size_t kept = 0;

        memset(cut, '#', sizeof cut);
        CHECK_EQ(berth_text_escape(raw, sizeof raw - 1, cut, capacity), 22);
        CHECK_EQ(cut[capacity], '#');
        if (capacity == 0)
            continue;
        for (size_t i = 0; i < pieces && ends[i] < capacity; i++)
            kept = ends[i];
        CHECK_EQ(cut[kept], '\0');
        CHECK_MEM(cut, whole, kept);
    }
    CHECK_EQ(berth_text_escape(raw, sizeof raw - 1, NULL, 0), 22);
    CHECK_EQ(berth_text_escape(NULL, 0, NULL, 0), 0);
}

/* A short piece behind one that did not fit must not close the gap. */
static void
test_nothing_follows_a_cut(void)
{
    char cut[4];

    CHECK_EQ(berth_text_escape("a\x01" "b", 3, cut, sizeof cut), 6);
    CHECK_STR(cut, "a");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_every_byte_alone);
    T_RUN(test_every_code_point);
    T_RUN(test_borders_of_what_is_hidden);
    T_RUN(test_texts);
    T_RUN(test_cut_at_every_capacity);
    T_RUN(test_nothing_follows_a_cut);
    T_MAIN_END;
}
