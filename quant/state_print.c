/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_print.c - a state as the text that upstream's json.dumps makes of it.
 *
 * The offset is the one hard part: the shortest decimal that a double of that
 * value is read back from. It is found by exact integer arithmetic (the "free
 * format" algorithm of Steele and White), so neither a locale nor a C library
 * has a say.
 */
#include "quant/state.h"

#include <math.h>
#include <string.h>

#include "kernels/kernel.h"
#include "quant/format.h"

/* Characters of the offset that berthi_state_guess() counts with. */
#define USUAL_OFFSET_LENGTH 20u

/* --------------------------------------------------------------------- text */

/* `length` goes on beyond `capacity`. */
typedef struct text {
    char *bytes;
    size_t capacity;
    size_t length;
} text;

static void
put_char(text *t, char c)
{
    if (t->length + 1 < t->capacity)
        t->bytes[t->length] = c;
    t->length++;
}

static void
put(text *t, const char *word)
{
    while (*word != '\0')
        put_char(t, *word++);
}

static void
put_unsigned(text *t, uint64_t value)
{
    char digits[20];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0)
        put_char(t, digits[--count]);
}

/* ------------------------------------------------------------- large integers */

/*
 * Little-endian. The largest is ten times a numerator or denominator of a
 * float: 53 bits and a power of two of 2^203, or of ten of 10^45, and less.
 */
#define LIMBS 9

typedef struct large {
    uint32_t limbs[LIMBS];
} large;

static large
large_shifted(uint64_t value, uint32_t bits)
{
    large out = { { 0 } };
    const uint32_t at = bits / 32;

    out.limbs[at] = (uint32_t)(value << bits % 32);
    out.limbs[at + 1] = (uint32_t)(value << bits % 32 >> 32);
    out.limbs[at + 2] = bits % 32 > 0 ? (uint32_t)(value >> (64 - bits % 32)) : 0;
    return out;
}

static void
large_multiply_10(large *a)
{
    uint64_t carry = 0;

    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)a->limbs[i] * 10;
        a->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static large
large_sum(const large *a, const large *b)
{
    uint64_t carry = 0;
    large out;

    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)a->limbs[i] + b->limbs[i];
        out.limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return out;
}

/* a >= b is subtracted from. */
static void
large_subtract(large *a, const large *b)
{
    uint64_t borrow = 0;

    for (int i = 0; i < LIMBS; i++) {
        const uint64_t difference = (uint64_t)a->limbs[i] - b->limbs[i] - borrow;

        a->limbs[i] = (uint32_t)difference;
        borrow = difference >> 63;
    }
}

/* Negative, 0, positive as a is below, equal to, above b. */
static int
large_compare(const large *a, const large *b)
{
    for (int i = LIMBS - 1; i >= 0; i--)
        if (a->limbs[i] != b->limbs[i])
            return a->limbs[i] < b->limbs[i] ? -1 : 1;
    return 0;
}

/* ------------------------------------------------------------ shortest digits */

#define DOUBLE_DIGITS 17

/* 0.d1d2d3... times 10^point */
typedef struct digits {
    char bytes[DOUBLE_DIGITS + 1];
    uint32_t count;
    int32_t point;
} digits;

/*
 * The value is numerator / denominator; what a double rounds to it reaches
 * from below / denominator under it to above / denominator over it, the ends
 * included: a widened float has an even last bit.
 */
typedef struct fraction {
    large numerator;
    large denominator;
    large below;
    large above;
} fraction;

/* `value` is finite and above 0. A double of it is normal, whatever the float was. */
static fraction
fraction_of(float value)
{
    const double wide = (double)value;
    uint64_t bits;
    uint64_t mantissa;
    int32_t exponent;
    uint32_t halves; /* a power of two has the nearer neighbour below */
    fraction f;

    memcpy(&bits, &wide, sizeof bits);
    mantissa = (bits & UINT64_C(0xFFFFFFFFFFFFF)) | UINT64_C(1) << 52;
    exponent = (int32_t)(bits >> 52) - 1075;
    halves = mantissa == UINT64_C(1) << 52 ? 2 : 1;
    f.numerator = large_shifted(mantissa,
                                (uint32_t)(exponent > 0 ? exponent : 0) + halves);
    f.denominator = large_shifted(1, (uint32_t)(exponent < 0 ? -exponent : 0) + halves);
    f.below = large_shifted(1, (uint32_t)(exponent > 0 ? exponent : 0));
    f.above = large_shifted(1, (uint32_t)(exponent > 0 ? exponent : 0) + halves - 1);
    return f;
}

static void
multiply_value_by_10(fraction *f)
{
    large_multiply_10(&f->numerator);
    large_multiply_10(&f->below);
    large_multiply_10(&f->above);
}

/* True when the next decimal unit rounds to the value, too. */
static bool
reaches_above(const fraction *f)
{
    const large end = large_sum(&f->numerator, &f->above);

    return large_compare(&end, &f->denominator) >= 0;
}

/* Scales until the value lies in [0.1, 1), its upper end counted; the exponent. */
static int32_t
normalize(fraction *f)
{
    int32_t point = 0;

    while (reaches_above(f)) {
        large_multiply_10(&f->denominator);
        point++;
    }
    for (;;) {
        fraction next = *f;

        multiply_value_by_10(&next);
        if (reaches_above(&next))
            return point;
        *f = next;
        point--;
    }
}

/* The whole part of the value, which is below 10, taken from it. */
static uint32_t
take_digit(fraction *f)
{
    uint32_t digit = 0;

    while (large_compare(&f->numerator, &f->denominator) >= 0) {
        large_subtract(&f->numerator, &f->denominator);
        digit++;
    }
    return digit;
}

/* Both the digit and the next one would do: whether the next one is nearer. */
static bool
is_next_nearer(const fraction *f, uint32_t digit)
{
    const large twice = large_sum(&f->numerator, &f->numerator);
    const int order = large_compare(&twice, &f->denominator);

    return order > 0 || (order == 0 && digit % 2 == 1);
}

static digits
shortest_digits(float value)
{
    fraction f = fraction_of(value);
    digits out = { .point = normalize(&f) };
    bool is_low;
    bool is_high;

    do {
        uint32_t digit;

        multiply_value_by_10(&f);
        digit = take_digit(&f);
        is_low = large_compare(&f.numerator, &f.below) <= 0;
        is_high = reaches_above(&f);
        if (is_high && (!is_low || is_next_nearer(&f, digit)))
            digit++;
        out.bytes[out.count++] = (char)('0' + digit);
    } while (!is_low && !is_high);
    return out;
}

/* ------------------------------------------------------------------ printing */

/* d.ddde-05 */
static void
put_scientific(text *t, const digits *d)
{
    const int32_t exponent = d->point - 1;
    const uint32_t magnitude = (uint32_t)(exponent < 0 ? -exponent : exponent);

    put_char(t, d->bytes[0]);
    if (d->count > 1)
        put_char(t, '.');
    for (uint32_t i = 1; i < d->count; i++)
        put_char(t, d->bytes[i]);
    put(t, exponent < 0 ? "e-" : "e+");
    if (magnitude < 10)
        put_char(t, '0');
    put_unsigned(t, magnitude);
}

/* 0.000ddd, dd.ddd or ddd000.0 */
static void
put_fixed(text *t, const digits *d)
{
    const int32_t count = (int32_t)d->count;
    const int32_t first = d->point > 0 ? 0 : d->point - 1;
    const int32_t end = count > d->point ? count : d->point + 1;

    for (int32_t i = first; i < end; i++) {
        if (i == d->point)
            put_char(t, '.');
        put_char(t, i >= 0 && i < count ? d->bytes[i] : '0');
    }
}

/* As Python's repr of the double. */
static void
put_float(text *t, float value)
{
    digits d;

    if (isnan(value)) {
        put(t, "NaN");
        return;
    }
    if (signbit(value))
        put_char(t, '-');
    if (isinf(value)) {
        put(t, "Infinity");
    } else if (value == 0.0f) {
        put(t, "0.0");
    } else {
        d = shortest_digits(fabsf(value));
        if (d.point > -4 && d.point <= 16)
            put_fixed(t, &d);
        else
            put_scientific(t, &d);
    }
}

static void
put_word(text *t, const char *key, const char *word)
{
    put(t, key);
    put(t, "\"");
    put(t, word);
    put(t, "\"");
}

/* All but the offset and what follows it. */
static void
put_head(text *t, const berthi_state *state)
{
    put_word(t, "{\"quant_type\": ", berth_encoding_name(state->encoding));
    put(t, ", \"blocksize\": ");
    put_unsigned(t, state->block_size);
    put_word(t, ", \"dtype\": ", berthi_format_torch_name(state->dtype));
    put(t, ", \"shape\": [");
    for (uint32_t i = 0; i < state->rank; i++) {
        if (i > 0)
            put(t, ", ");
        put_unsigned(t, state->shape[i]);
    }
    put(t, "]");
    if (state->is_double) {
        put(t, ", \"nested_blocksize\": ");
        put_unsigned(t, BERTHI_DOUBLE_BLOCK);
        put_word(t, ", \"nested_dtype\": ",
                 berthi_format_torch_name(state->nested_dtype));
        put(t, ", \"nested_offset\": ");
    }
}

size_t
berthi_state_print(const berthi_state *state, char *out, size_t capacity)
{
    text t = { out, capacity, 0 };

    put_head(&t, state);
    if (state->is_double)
        put_float(&t, state->offset);
    put(&t, "}");
    if (capacity > 0)
        out[t.length < capacity ? t.length : capacity - 1] = '\0';
    return t.length;
}

size_t
berthi_state_guess(const berthi_state *state)
{
    text t = { NULL, 0, 0 };

    put_head(&t, state);
    return t.length + (state->is_double ? USUAL_OFFSET_LENGTH : 0) + 1;
}
