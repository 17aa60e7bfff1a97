/* SPDX-License-Identifier: Apache-2.0 */
/* scan_number.c - numbers of the JSON scanner: grammar, range, values. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/float_mode.h"
#include "quant/scan.h"

/*
 * DBL_MAX is 0.1797...e309: with the first digit that is not zero right behind
 * the point, exponents below 309 are always finite and those above never are.
 */
#define LARGEST_MAGNITUDE 309
/* 0.99...e-324 is below half of the smallest double: it rounds to zero. */
#define SMALLEST_MAGNITUDE (-323)
/* Any exponent beyond this has the same effect; sums with it do not overflow. */
#define EXPONENT_LIMIT INT64_C(1000000000000)
/* No tie between two doubles needs more digits: 767 decide, one more says "above". */
#define DIGITS_THAT_DECIDE 770

/* Where the parts of a number lie in the text. */
typedef struct number {
    uint64_t begin;
    uint64_t whole_end;      /* of the digits before the point */
    uint64_t fraction_begin; /* digits behind the point; begin = end without a point */
    uint64_t fraction_end;
    int64_t exponent;
    bool is_negative;
    bool is_integer; /* no point and no exponent */
} number;

static inline bool
is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static char
byte_at(const berthi_scan *scan)
{
    return scan->position < scan->length ? scan->text[scan->position] : '\0';
}

/* Moves behind the digits; true when there was one at least. */
static inline bool
has_digits(berthi_scan *scan)
{
    const uint64_t begin = scan->position;

    while (scan->position < scan->length && is_digit(scan->text[scan->position]))
        scan->position++;
    return scan->position > begin;
}

static bool
can_read_exponent(berthi_scan *scan, int64_t *exponent)
{
    bool is_negative;
    uint64_t at;

    scan->position++;
    is_negative = byte_at(scan) == '-';
    if (is_negative || byte_at(scan) == '+')
        scan->position++;
    at = scan->position;
    if (!has_digits(scan))
        return berthi_scan_refuse(scan, "a digit is missing in an exponent");
    for (; at < scan->position && *exponent < EXPONENT_LIMIT; at++)
        *exponent = *exponent * 10 + (scan->text[at] - '0');
    if (is_negative)
        *exponent = -*exponent;
    return true;
}

/* The grammar of RFC 8259, a number's first byte being at the position. */
static bool
can_read_parts(berthi_scan *scan, number *n)
{
    memset(n, 0, sizeof *n);
    n->begin = scan->position;
    n->is_integer = true;
    if (byte_at(scan) == '-') {
        n->is_negative = true;
        n->begin = ++scan->position;
    }
    if (byte_at(scan) == '0')
        scan->position++;
    else if (!has_digits(scan))
        return berthi_scan_refuse(scan, "a digit is missing in a number");
    n->whole_end = scan->position;
    if (is_digit(byte_at(scan)))
        return berthi_scan_refuse(scan, "a number with a leading zero");
    if (byte_at(scan) == '.') {
        n->fraction_begin = ++scan->position;
        if (!has_digits(scan))
            return berthi_scan_refuse(scan, "a digit is missing behind a point");
        n->fraction_end = scan->position;
        n->is_integer = false;
    }
    if (byte_at(scan) == 'e' || byte_at(scan) == 'E') {
        n->is_integer = false;
        return can_read_exponent(scan, &n->exponent);
    }
    return true;
}

/*
 * M of 0.ddd * 10^M, where the first d is not zero. False when all are zero.
 */
static bool
has_magnitude(const berthi_scan *scan, const number *n, int64_t *magnitude)
{
    for (uint64_t i = n->begin; i < n->whole_end; i++)
        if (scan->text[i] != '0') {
            *magnitude = (int64_t)(n->whole_end - i) + n->exponent;
            return true;
        }
    for (uint64_t i = n->fraction_begin; i < n->fraction_end; i++)
        if (scan->text[i] != '0') {
            *magnitude = n->exponent - (int64_t)(i - n->fraction_begin);
            return true;
        }
    return false;
}

/* Significant digits of a number, the first one not zero. */
typedef struct digits {
    char text[DIGITS_THAT_DECIDE + 32]; /* room for an exponent */
    size_t count;
    bool has_more; /* a digit that is not zero was left out */
} digits;

static void
add_digits(digits *d, const char *text, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (d->count == 0 && text[i] == '0')
            continue;
        if (d->count < DIGITS_THAT_DECIDE)
            d->text[d->count++] = text[i];
        else
            d->has_more = d->has_more || text[i] != '0';
    }
}

/*
 * The nearest double, however the caller's thread rounds; the number has passed the grammar.
 * strtod() rounds correctly, but takes its decimal point from the locale: it gets none.
 */
static double
round_number(const berthi_scan *scan, const number *n)
{
    const int saved = errno;
    int64_t magnitude;
    double value = 0.0;
    fenv_t mode;

    berthi_float_mode_begin(&mode);
    if (has_magnitude(scan, n, &magnitude) && magnitude >= SMALLEST_MAGNITUDE) {
        digits d = { .count = 0 };

        add_digits(&d, scan->text + n->begin, n->whole_end - n->begin);
        add_digits(&d, scan->text + n->fraction_begin, n->fraction_end - n->fraction_begin);
        if (d.has_more)
            d.text[d.count++] = '1';
        snprintf(d.text + d.count, sizeof d.text - d.count, "e%" PRId64,
                 magnitude - (int64_t)d.count);
        value = strtod(d.text, NULL);
    }
    berthi_float_mode_end(&mode);
    errno = saved;
    return n->is_negative ? -value : value;
}

static bool
is_in_range(const berthi_scan *scan, const number *n)
{
    int64_t magnitude;

    if (n->is_integer && n->whole_end - n->begin < LARGEST_MAGNITUDE)
        return true;
    if (!has_magnitude(scan, n, &magnitude) || magnitude < LARGEST_MAGNITUDE)
        return true;
    return magnitude == LARGEST_MAGNITUDE && isfinite(round_number(scan, n));
}

/* NaN, Infinity, -Infinity: reads the word and gives its value. */
static bool
has_nonfinite(berthi_scan *scan, double *value)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };
    static const double values[] = { (double)NAN, (double)INFINITY, -(double)INFINITY };

    if ((scan->flags & BERTHI_SCAN_NONFINITE) == 0)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t length = strlen(words[i]);

        if (scan->length - scan->position >= length
            && memcmp(scan->text + scan->position, words[i], length) == 0) {
            scan->position += length;
            *value = values[i];
            return true;
        }
    }
    return false;
}

static bool
can_read_finite(berthi_scan *scan, number *n)
{
    const uint64_t begin = scan->position;

    if (!can_read_parts(scan, n))
        return false;
    if (!is_in_range(scan, n)) {
        scan->position = begin;
        return berthi_scan_refuse(scan, "a number beyond the range of a double");
    }
    return true;
}

bool
berthi_scan_can_read_number(berthi_scan *scan, berthi_scan_text *out)
{
    double value;
    uint64_t begin;
    number n;

    if (berthi_scan_peek(scan) != BERTHI_SCAN_NUMBER)
        return berthi_scan_refuse(scan, "not a number");
    begin = scan->position;
    if (!has_nonfinite(scan, &value) && !can_read_finite(scan, &n))
        return false;
    *out = (berthi_scan_text){ scan->text + begin, scan->position - begin, false };
    return true;
}

bool
berthi_scan_can_read_double(berthi_scan *scan, double *out)
{
    number n;

    if (berthi_scan_peek(scan) != BERTHI_SCAN_NUMBER)
        return berthi_scan_refuse(scan, "not a number");
    if (has_nonfinite(scan, out))
        return true;
    if (!can_read_finite(scan, &n))
        return false;
    *out = round_number(scan, &n);
    return true;
}

bool
berthi_scan_can_read_unsigned(berthi_scan *scan, uint64_t *out)
{
    uint64_t value = 0;
    uint64_t begin;
    number n;

    if (berthi_scan_peek(scan) != BERTHI_SCAN_NUMBER)
        return berthi_scan_refuse(scan, "not an unsigned integer");
    begin = scan->position;
    if (!can_read_parts(scan, &n))
        return false;
    scan->position = begin; /* where a problem would be */
    if (!n.is_integer || n.is_negative)
        return berthi_scan_refuse(scan, "not an unsigned integer");
    for (uint64_t i = begin; i < n.whole_end; i++)
        if (__builtin_mul_overflow(value, 10, &value)
            || __builtin_add_overflow(value, (uint64_t)(scan->text[i] - '0'), &value))
            return berthi_scan_refuse(scan, "an integer beyond 64 bits");
    scan->position = n.whole_end;
    *out = value;
    return true;
}
