/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_utf8.c - every code point, every sequence of up to three bytes, and
 * sequences of four at all borders, against Unicode's table 3-7 as it stands.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/utf8.h"
#include "tests/random.h"
#include "tests/t.h"

/* ---------------------------------------------------------------- reference */

/* Table 3-7 of the Unicode standard: ranges of the bytes, one row a line. */
static const struct row {
    size_t length;
    unsigned char ranges[4][2];
} table[] = {
    { 1, { { 0x00, 0x7F } } },
    { 2, { { 0xC2, 0xDF }, { 0x80, 0xBF } } },
    { 3, { { 0xE0, 0xE0 }, { 0xA0, 0xBF }, { 0x80, 0xBF } } },
    { 3, { { 0xE1, 0xEC }, { 0x80, 0xBF }, { 0x80, 0xBF } } },
    { 3, { { 0xED, 0xED }, { 0x80, 0x9F }, { 0x80, 0xBF } } },
    { 3, { { 0xEE, 0xEF }, { 0x80, 0xBF }, { 0x80, 0xBF } } },
    { 4, { { 0xF0, 0xF0 }, { 0x90, 0xBF }, { 0x80, 0xBF }, { 0x80, 0xBF } } },
    { 4, { { 0xF1, 0xF3 }, { 0x80, 0xBF }, { 0x80, 0xBF }, { 0x80, 0xBF } } },
    { 4, { { 0xF4, 0xF4 }, { 0x80, 0x8F }, { 0x80, 0xBF }, { 0x80, 0xBF } } },
};

static bool
is_in_row(const struct row *row, const unsigned char *bytes, size_t left)
{
    if (row->length > left)
        return false;
    for (size_t i = 0; i < row->length; i++)
        if (bytes[i] < row->ranges[i][0] || bytes[i] > row->ranges[i][1])
            return false;
    return true;
}

static size_t
reference_decode(const unsigned char *bytes, size_t left, uint32_t *out_point)
{
    static const unsigned char lead_bits[5] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };

    for (size_t r = 0; r < sizeof table / sizeof table[0]; r++)
        if (is_in_row(&table[r], bytes, left)) {
            *out_point = bytes[0] & lead_bits[table[r].length];
            for (size_t i = 1; i < table[r].length; i++)
                *out_point = *out_point * 64 + (bytes[i] - 0x80u);
            return table[r].length;
        }
    return 0;
}

static size_t
reference_check(const unsigned char *bytes, size_t length)
{
    size_t at = 0;
    size_t used;
    uint32_t point;

    while (at < length && (used = reference_decode(bytes + at, length - at, &point)) > 0)
        at += used;
    return at;
}

/* True when both decoders say the same of bytes[0..left). */
static bool
is_same(const unsigned char *bytes, size_t left)
{
    uint32_t expected_point = 0;
    uint32_t point = 0;
    const size_t expected = reference_decode(bytes, left, &expected_point);

    return berthi_utf8_decode(bytes, left, &point) == expected
           && (expected == 0 || point == expected_point);
}

/* -------------------------------------------------------------------- tests */

static void
test_code_points(void)
{
    uint64_t count = 0;

    for (uint32_t point = 0; point <= 0x10FFFF; point++) {
        const size_t expected =
            point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        unsigned char bytes[5] = { 0xAA, 0xAA, 0xAA, 0xAA, 0xAA };
        uint32_t back = 0;

        if (point >= 0xD800 && point <= 0xDFFF)
            continue;
        count++;
        if (berthi_utf8_encode(point, bytes) == expected && bytes[expected] == 0xAA
            && reference_decode(bytes, expected, &back) == expected && back == point
            && berthi_utf8_decode(bytes, expected, &back) == expected && back == point
            && berthi_utf8_check(bytes, expected) == expected)
            continue;
        CHECK_EQ(point, 0xFFFFFFFF); /* names the one that is wrong */
        return;
    }
    CHECK_EQ(count, 0x110000 - 0x800);
}

static void
test_short_sequences(void)
{
    uint64_t wrong = 0;

    for (uint32_t value = 0; value < 0x1000000; value++) {
        const unsigned char bytes[3] = { (unsigned char)(value >> 16),
                                         (unsigned char)(value >> 8),
                                         (unsigned char)value };

        /* The shorter ones once each. */
        wrong += !is_same(bytes, 3);
        if ((value & 0xFF) == 0)
            wrong += !is_same(bytes, 2);
        if ((value & 0xFFFF) == 0)
            wrong += !is_same(bytes, 1);
    }
    CHECK_EQ(wrong, 0);
}

static void
test_long_sequences(void)
{
    static const unsigned char borders[] = { 0x00, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x9F,
                                             0xA0, 0xBE, 0xBF, 0xC0, 0xC2, 0xF0, 0xFF };
    const size_t count = sizeof borders;
    uint64_t wrong = 0;

    for (unsigned lead = 0xE0; lead <= 0xFF; lead++)
        for (unsigned second = 0; second <= 0xFF; second++)
            for (size_t i = 0; i < count * count; i++) {
                const unsigned char bytes[4] = { (unsigned char)lead,
                                                 (unsigned char)second,
                                                 borders[i / count], borders[i % count] };

                for (size_t left = 1; left <= 4; left++)
                    wrong += !is_same(bytes, left);
            }
    CHECK_EQ(wrong, 0);
}

/* The bytes behind `left` do not count: read to the end of a heap block. */
static void
test_reads_no_further(void)
{
    static const unsigned char leads[] = { 0x41, 0xC3, 0xE2, 0xF0 };

    for (size_t length = 1; length <= 3; length++)
        for (size_t i = 0; i < sizeof leads; i++) {
            unsigned char *const bytes = malloc(length);
            uint32_t point;

            T_REQUIRE(bytes != NULL);
            memset(bytes, 0xA0, length);
            bytes[0] = leads[i];
            CHECK_EQ(berthi_utf8_decode(bytes, length, &point), i < length ? i + 1 : 0);
            free(bytes);
        }
}

/* A wrong byte at each place of texts of each length: no step hides one. */
static void
test_check_finds_the_place(void)
{
    unsigned char bytes[150];

    for (size_t length = 0; length <= sizeof bytes; length++) {
        memset(bytes, 'a', sizeof bytes);
        CHECK_EQ(berthi_utf8_check(bytes, length), length);
        for (size_t at = 0; at < length; at++) {
            bytes[at] = 0x80;
            CHECK_EQ(berthi_utf8_check(bytes, length), at);
            bytes[at] = 0xC3; /* good when an a umlaut fits */
            CHECK_EQ(berthi_utf8_check(bytes, length), at);
            if (at + 1 < length) {
                bytes[at + 1] = 0xA4;
                CHECK_EQ(berthi_utf8_check(bytes, length), length);
                CHECK_EQ(berthi_utf8_check(bytes, at + 1), at);
                bytes[at + 1] = 'a';
            }
            bytes[at] = 'a';
        }
    }
    /* What follows the length is not looked at. */
    memset(bytes, 0xFF, sizeof bytes);
    memset(bytes, 'a', 16);
    CHECK_EQ(berthi_utf8_check(bytes, 16), 16);
    CHECK_EQ(berthi_utf8_check(bytes, 17), 16);
}

static void
test_check_random(void)
{
    static const unsigned char alphabet[] = { 'a', 'b', 0x7F, 0x80, 0xBF, 0xC2, 0xC3,
                                              0xE2, 0x82, 0xAC, 0xED, 0xA0, 0xF0, 0x9F,
                                              0x98, 0x80, 0xF4, 0x00, 'x', 'y' };
    uint64_t state = 88172645463325252u;
    uint64_t wrong = 0;

    for (int round = 0; round < 200000; round++) {
        unsigned char bytes[48];
        const size_t length = (size_t)(round % 49);

        for (size_t i = 0; i < length; i++) {
            const uint64_t random = random_next(&state);

            /* Mostly letters, so that good texts get long. */
            bytes[i] = random % 8 < 6 ? 'a' : alphabet[random / 8 % sizeof alphabet];
        }
        wrong += berthi_utf8_check(bytes, length) != reference_check(bytes, length);
    }
    CHECK_EQ(wrong, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_code_points);
    T_RUN(test_short_sequences);
    T_RUN(test_long_sequences);
    T_RUN(test_reads_no_further);
    T_RUN(test_check_finds_the_place);
    T_RUN(test_check_random);
    T_MAIN_END;
}
