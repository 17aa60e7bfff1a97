/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_digits.c - every number around the powers of ten and of two, every byte at every
 * place, and every limit around a number, against snprintf().
 */
#include "kernels/digits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/t.h"

#define UNTOUCHED UINT64_C(0x5555555555555555)
#define CAPACITY  64

/* Exactly as long as it is, with digits behind it that belong to nobody. */
static bool
can_parse(const char *text, uint64_t most, uint64_t *out)
{
    char padded[CAPACITY + 8];
    const size_t length = strlen(text);

    memset(padded, '9', sizeof padded);
    memcpy(padded, text, length);
    *out = UNTOUCHED;
    return berthi_digits_can_parse(padded, length, most, out);
}

static void
check_number(uint64_t number)
{
    const uint64_t limits[] = { number > 0 ? number - 1 : 0, number, number / 10, UINT64_MAX };
    char text[CAPACITY];
    uint64_t found;

    for (int zeros = 0; zeros < 30; zeros += 7) {
        snprintf(text, sizeof text, "%.*s%" PRIu64, zeros, "00000000000000000000000000000000",
                 number);
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            const bool is_within = number <= limits[i];

            if (!CHECK_EQ(can_parse(text, limits[i], &found), is_within)
                || !CHECK_EQ(found, is_within ? number : UNTOUCHED))
                T_NOTE("%s of at most %" PRIu64, text, limits[i]);
        }
    }
}

static void
test_numbers(void)
{
    for (uint64_t number = 0; number < 20000; number++)
        check_number(number);
    for (int bit = 0; bit < 64; bit++)
        for (uint64_t around = 0; around < 5; around++)
            check_number((UINT64_C(1) << bit) + around - 2);
    for (uint64_t ten = 1;; ten *= 10) {
        for (uint64_t around = 0; around < 5; around++)
            for (uint64_t digit = 1; digit < 10; digit++)
                if (ten <= UINT64_MAX / digit)
                    check_number(ten * digit + around - 2);
        if (ten > UINT64_MAX / 10)
            break;
    }
}

/* What no 64 bits hold, at whatever place it overflows. */
static void
test_overflow(void)
{
    static const char *const texts[] = {
        "18446744073709551616", "18446744073709551619", "18446744073709551620",
        "18446744073709551700", "18446744073709600000", "20000000000000000000",
        "99999999999999999999", "100000000000000000000", "184467440737095516150",
        "184467440737095516160", "368934881474191032320", "000018446744073709551616",
        "999999999999999999999999999999999999999999",
    };
    uint64_t found;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK(!can_parse(texts[i], UINT64_MAX, &found));
        CHECK_EQ(found, UNTOUCHED);
    }
}

static void
test_other_bytes(void)
{
    uint64_t found;

    CHECK(!can_parse("", UINT64_MAX, &found));
    CHECK_EQ(found, UNTOUCHED);
    for (size_t length = 1; length <= 4; length++)
        for (size_t at = 0; at < length; at++)
            for (int byte = 0; byte < 256; byte++) {
                char text[] = "4444";
                const bool is_digit = byte >= '0' && byte <= '9';

                text[at] = (char)byte;
                found = UNTOUCHED;
                CHECK_EQ(berthi_digits_can_parse(text, length, UINT64_MAX, &found), is_digit);
                CHECK_EQ(found == UNTOUCHED, !is_digit);
            }
}

/* It stops at the first other byte and at the end, and moves only if it takes something. */
static void
test_take(void)
{
    static const char number[] = "1234";
    uint64_t found;

    for (size_t length = 0; length <= sizeof number - 1; length++)
        for (int byte = 0; byte < 256; byte++) {
            const bool is_digit = byte >= '0' && byte <= '9';
            char text[sizeof number + 1] = "";
            const char *at = text;
            uint64_t expected = 0;
            size_t taken = length;

            memcpy(text, number, length);
            text[length] = (char)byte;
            text[length + 1] = '/';
            taken += is_digit;
            for (size_t i = 0; i < taken; i++)
                expected = expected * 10 + (uint64_t)(text[i] - '0');
            found = UNTOUCHED;
            CHECK_EQ(berthi_digits_can_take(&at, text + length + 2, 99999, &found), taken > 0);
            CHECK_EQ(at - text, taken);
            CHECK_EQ(found, taken > 0 ? expected : UNTOUCHED);
        }
    for (size_t length = 0; length <= sizeof number - 1; length++) {
        const char *at = number;

        CHECK_EQ(berthi_digits_can_take(&at, number + length, UINT64_MAX, &found), length > 0);
        CHECK_EQ(at - number, length);
    }
    for (uint64_t most = 0; most < 2000; most++) {
        const char *at = number;

        found = UNTOUCHED;
        CHECK_EQ(berthi_digits_can_take(&at, number + 4, most, &found), most >= 1234);
        CHECK_EQ(at - number, most >= 1234 ? 4 : 0);
        CHECK_EQ(found, most >= 1234 ? 1234 : UNTOUCHED);
    }
}

static void
check_hex(uint32_t number)
{
    char text[BERTHI_HEX32_DIGITS + 1];
    uint32_t found = ~number;

    snprintf(text, sizeof text, "%08" PRIx32, number);
    CHECK(berthi_hex32_can_parse(text, &found));
    CHECK_EQ(found, number);
}

static void
test_hex(void)
{
    for (uint32_t half = 0; half <= UINT16_MAX; half++) {
        check_hex(half);
        check_hex(half << 16);
        check_hex(half << 8 | 0xf000000f);
    }
    for (size_t at = 0; at < BERTHI_HEX32_DIGITS; at++)
        for (int byte = 0; byte < 256; byte++) {
            const bool is_digit = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
            char text[] = "0123cdef";
            uint32_t found = 0x55555555;

            text[at] = (char)byte;
            CHECK_EQ(berthi_hex32_can_parse(text, &found), is_digit);
            if (!is_digit)
                CHECK_EQ(found, 0x55555555);
        }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_numbers);
    T_RUN(test_overflow);
    T_RUN(test_other_bytes);
    T_RUN(test_take);
    T_RUN(test_hex);
    T_MAIN_END;
}
