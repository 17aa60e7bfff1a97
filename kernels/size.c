/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size.c - sizes as text, both ways: the one place that knows "20GiB".
 *
 * Integer arithmetic throughout: no locale, no rounding of a rounded number.
 * Powers of 1000: B kB KB MB GB TB PB EB; of 1024: KiB MiB GiB TiB PiB EiB. Case
 * counts, because Gb is bits elsewhere. What is finer than a byte is cut off, so
 * that a budget is never larger than its text.
 */
#include "kernels/base.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digits.h"

typedef struct unit {
    const char *name;
    uint64_t bytes;
} unit;

#define KILO UINT64_C(1000)
#define KIBI_BITS 10

static const unit units[] = {
    { "B", 1 },
    { "kB", KILO },
    { "KB", KILO },
    { "MB", KILO * KILO },
    { "GB", KILO * KILO * KILO },
    { "TB", KILO * KILO * KILO * KILO },
    { "PB", KILO * KILO * KILO * KILO * KILO },
    { "EB", KILO * KILO * KILO * KILO * KILO * KILO },
    { "KiB", UINT64_C(1) << KIBI_BITS },
    { "MiB", UINT64_C(1) << 2 * KIBI_BITS },
    { "GiB", UINT64_C(1) << 3 * KIBI_BITS },
    { "TiB", UINT64_C(1) << 4 * KIBI_BITS },
    { "PiB", UINT64_C(1) << 5 * KIBI_BITS },
    { "EiB", UINT64_C(1) << 6 * KIBI_BITS },
};

/* ------------------------------------------------------------------- format */

static const char *const binary_names[] = { "B",   "KiB", "MiB", "GiB",
                                            "TiB", "PiB", "EiB" };

/* Hundredths of `unit`, half of one rounded up; digit by digit, so no overflow. */
static uint64_t
hundredths_of(uint64_t bytes, uint64_t unit_bytes)
{
    uint64_t hundredths = bytes / unit_bytes;
    uint64_t rest = bytes % unit_bytes;

    for (int digit = 0; digit < 2; digit++) {
        rest *= 10; /* below 10 EiB < 2^64 */
        hundredths = hundredths * 10 + rest / unit_bytes;
        rest %= unit_bytes;
    }
    return hundredths + (rest >= unit_bytes - rest);
}

const char *
berth_size_format(uint64_t bytes, char *text)
{
    const unsigned largest = sizeof binary_names / sizeof *binary_names - 1;
    uint64_t hundredths;
    unsigned power = 0;

    if (bytes < UINT64_C(1) << KIBI_BITS) {
        snprintf(text, BERTH_SIZE_CAPACITY, "%" PRIu64 " B", bytes);
        return text;
    }
    do { /* what rounds up to 1024.00 is 1.00 of the next unit */
        power++;
        hundredths = hundredths_of(bytes, UINT64_C(1) << power * KIBI_BITS);
    } while (power < largest && hundredths >= UINT64_C(100) << KIBI_BITS);
    snprintf(text, BERTH_SIZE_CAPACITY, "%" PRIu64 ".%02u %s", hundredths / 100,
             (unsigned)(hundredths % 100), binary_names[power]);
    return text;
}

/* -------------------------------------------------------------------- parse */

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/*
 * floor(0.d1d2d3... x unit), exact for any number of digits: from the last one
 * to the first, because floor((a + x) / 10) needs of x only its floor.
 */
static uint64_t
fraction_of(const char *digits, size_t count, uint64_t unit_bytes)
{
    uint64_t value = 0;

    while (count-- > 0) /* at most 9 units and one more: below 2^64 */
        value = ((uint64_t)(digits[count] - '0') * unit_bytes + value) / 10;
    return value;
}

static const unit *
find_unit(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

/* NULL, or what is wrong with the text. */
static const char *
parse(const char *text, uint64_t *out)
{
    const char *digits = NULL;
    size_t digit_count = 0;
    const unit *u;
    uint64_t whole;

    if (!is_digit(*text))
        return "is not a size";
    if (!berthi_digits_can_take(&text, text + strlen(text), UINT64_MAX, &whole))
        return "is larger than 2^64 bytes";
    if (*text == '.') {
        digits = ++text;
        while (is_digit(*text))
            text++;
        digit_count = (size_t)(text - digits);
        if (digit_count == 0)
            return "has no digits behind its point";
    }
    if (*text == '\0' && digits == NULL) {
        *out = whole;
        return NULL;
    }
    if (*text == '\0')
        return "needs a unit: only whole bytes go without";
    while (*text == ' ')
        text++;
    u = find_unit(text);
    if (u == NULL)
        return "has none of the units B KB MB GB TB PB EB KiB MiB GiB TiB PiB EiB";
    if (!berthi_can_mul(whole, u->bytes, &whole)
        || !berthi_can_add(whole, fraction_of(digits, digit_count, u->bytes), out))
        return "is larger than 2^64 bytes";
    return NULL;
}

berth_status
berth_size_parse(const char *text, uint64_t *out_bytes, berth_error *error)
{
    char name[BERTH_NAME_CAPACITY];
    const char *problem;
    uint64_t bytes = 0;

    berthi_error_clear(error);
    if (out_bytes == NULL)
        return berthi_fail_argument(error, "out_bytes", "is NULL");
    *out_bytes = 0;
    if (text == NULL)
        return berthi_fail_argument(error, "text", "is NULL");
    problem = parse(text, &bytes);
    if (problem != NULL) {
        berth_text_escape(text, strlen(text), name, sizeof name);
        return berthi_fail(error, BERTH_REASON_ARGUMENT, NULL, "\"%s\" %s", name,
                           problem);
    }
    *out_bytes = bytes;
    return BERTH_OK;
}
