/* SPDX-License-Identifier: Apache-2.0 */
/* diff_sum.c - sums of differences in a fixed order; see diff_sum.h. */
#include "loader/diff_sum.h"

#include <math.h>
#include <string.h>

#include "kernels/base.h"
#include "quant/quantize.h"

#define LANES 2u
#define EXPONENT_SHIFT 52    /* of a double */
#define EXPONENT_FIRST 873u  /* biased exponent of number 0; 2^-149 has number 1 */
#define EXPONENT_ORIGIN 150  /* number 150 begins at 1 */
#define MAGNITUDE UINT64_C(0x7FFFFFFFFFFFFFFF)

/* As many numbers at once as the smallest vector registers hold: all compilers do well. */
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));
typedef uint64_t words __attribute__((vector_size(LANES * sizeof(uint64_t))));

/* ---------------------------------------------------------------------- sums */

static berthi_diff_sums
add_sums(berthi_diff_sums a, berthi_diff_sums b)
{
    return (berthi_diff_sums){ a.signal + b.signal, a.noise + b.noise,
                               a.errors + b.errors };
}

void
berthi_diff_sum_begin(berthi_diff_unit_sum *sum, berthi_diff_found *found)
{
    sum->found = found;
    sum->blocks = 0;
}

/* As a binary counter: where two sums of the same length meet, they are added. */
static void
push_block(berthi_diff_unit_sum *sum, berthi_diff_sums block)
{
    uint32_t level = 0;

    for (uint64_t carry = sum->blocks; (carry & 1u) != 0; carry >>= 1)
        block = add_sums(sum->levels[level++], block);
    sum->levels[level] = block;
    sum->blocks++;
}

void
berthi_diff_sum_end(berthi_diff_unit_sum *sum)
{
    berthi_diff_sums all = { 0, 0, 0 };

    for (uint32_t level = 0; sum->blocks >> level != 0; level++)
        if ((sum->blocks >> level & 1u) != 0)
            all = add_sums(sum->levels[level], all);
    sum->found->signal += all.signal;
    sum->found->noise += all.noise;
    sum->found->errors += all.errors;
}

static double
fold(doubles lanes)
{
    return lanes[0] + lanes[1];
}

/* Which numbers the errors count under. Two tables: neighbours often share one. */
static void
count_exponents(berthi_diff_found *found, const double *errors)
{
    uint32_t second[BERTHI_DIFF_EXPONENTS];
    uint64_t bits[2];

    memset(second, 0, sizeof second);
    for (uint32_t i = 0; i < BERTHI_DIFF_BLOCK; i += 2) {
        memcpy(bits, errors + i, sizeof bits);
        bits[0] >>= EXPONENT_SHIFT;
        bits[1] >>= EXPONENT_SHIFT;
        found->exponents[bits[0] > EXPONENT_FIRST ? bits[0] - EXPONENT_FIRST : 0]++;
        second[bits[1] > EXPONENT_FIRST ? bits[1] - EXPONENT_FIRST : 0]++;
    }
    for (uint32_t i = 0; i < BERTHI_DIFF_EXPONENTS; i++)
        found->exponents[i] += second[i];
}

/* A block of finite values. */
static void
add_block(berthi_diff_unit_sum *sum, const float *a, const float *b)
{
    double errors[BERTHI_DIFF_BLOCK];
    doubles signal = { 0 };
    doubles noise = { 0 };
    doubles error = { 0 };
    doubles maximum = { 0 };

    for (uint32_t i = 0; i < BERTHI_DIFF_BLOCK; i += LANES) {
        floats x;
        floats y;
        doubles wide;
        doubles difference;
        words larger;

        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        wide = __builtin_convertvector(x, doubles);
        difference = wide - __builtin_convertvector(y, doubles);
        difference = (doubles)((words)difference & MAGNITUDE);
        memcpy(errors + i, &difference, sizeof difference);
        signal += wide * wide;
        noise += difference * difference;
        error += difference;
        larger = (words)(difference > maximum);
        maximum = (doubles)((larger & (words)difference) | (~larger & (words)maximum));
    }
    push_block(sum, (berthi_diff_sums){ fold(signal), fold(noise), fold(error) });
    for (uint32_t i = 0; i < LANES; i++)
        sum->found->maximum = fmax(sum->found->maximum, maximum[i]);
    count_exponents(sum->found, errors);
}

/* ---------------------------------------------------------------- non-finite */

/* The same NaN, whatever its bits, or the same infinity. */
static bool
is_same_nonfinite(float a, float b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

/* Copies to `finite`, with a pair of zeros where one of a pair is not finite. */
static uint32_t
clear_nonfinite(berthi_diff_found *found, const float *a, const float *b,
                uint64_t count, float finite[2][BERTHI_DIFF_BLOCK])
{
    uint32_t cleared = 0;

    memset(finite, 0, 2 * sizeof finite[0]);
    for (uint64_t i = 0; i < count; i++) {
        if (isfinite(a[i]) && isfinite(b[i])) {
            finite[0][i] = a[i];
            finite[1][i] = b[i];
            continue;
        }
        cleared++;
        found->nonfinite += is_same_nonfinite(a[i], b[i]) ? 0 : 1;
    }
    return cleared;
}

/* A block that is short, or holds something that is not finite. */
static void
add_odd_block(berthi_diff_unit_sum *sum, const float *a, const float *b, uint64_t count)
{
    float finite[2][BERTHI_DIFF_BLOCK];
    const uint64_t cleared = clear_nonfinite(sum->found, a, b, count, finite);

    add_block(sum, finite[0], finite[1]);
    sum->found->count += count - cleared;
    sum->found->exponents[0] -= BERTHI_DIFF_BLOCK - count + cleared;
}

/* Returns how many of a side's values are not finite. */
static uint64_t
count_nonfinite(berthi_diff_found *found, uint32_t side, const float *values,
                uint64_t count)
{
    const berthi_nonfinite counted =
        berthi_quantize_nonfinite(values, BERTH_F32, count);

    found->nan[side] += counted.nan;
    found->infinite[side] += counted.infinite;
    return counted.nan + counted.infinite;
}

void
berthi_diff_sum_add(berthi_diff_unit_sum *sum, const float *a, const float *b,
                    uint64_t count)
{
    const uint64_t odd = count_nonfinite(sum->found, 0, a, count)
                         + count_nonfinite(sum->found, 1, b, count);

    for (uint64_t i = 0; i < count; i += BERTHI_DIFF_BLOCK) {
        const uint64_t part = berthi_min_u64(count - i, BERTHI_DIFF_BLOCK);

        if (odd > 0 || part < BERTHI_DIFF_BLOCK) {
            add_odd_block(sum, a + i, b + i, part);
        } else {
            add_block(sum, a + i, b + i);
            sum->found->count += part;
        }
    }
}

/* --------------------------------------------------------------------- codes */

/*
 * How many fields of `width` bits, four or more, are not zero: each is folded into its lowest
 * bit, of which `lowest` has all.
 */
static inline uint64_t
count_fields(uint64_t bits, uint32_t width, uint64_t lowest)
{
    for (uint32_t shift = width / 2; shift > 0; shift /= 2)
        bits |= bits >> shift;
    bits &= lowest;
    bits = (bits + (bits >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return bits * UINT64_C(0x0101010101010101) >> 56;
}

/* Inlined with constant fields. */
static inline __attribute__((always_inline)) uint64_t
count_unequal(const uint8_t *a, const uint8_t *b, uint64_t bytes, uint32_t width,
              uint64_t lowest)
{
    uint64_t count = 0;
    uint64_t both[2] = { 0, 0 };
    uint64_t i;

    for (i = 0; bytes - i >= sizeof *both; i += sizeof *both) {
        memcpy(&both[0], a + i, sizeof *both);
        memcpy(&both[1], b + i, sizeof *both);
        count += count_fields(both[0] ^ both[1], width, lowest);
    }
    if (i == bytes) /* of nothing there may be no memory */
        return count;
    memset(both, 0, sizeof both);
    memcpy(&both[0], a + i, bytes - i);
    memcpy(&both[1], b + i, bytes - i);
    return count + count_fields(both[0] ^ both[1], width, lowest);
}

static uint64_t
count_by_width(const uint8_t *a, const uint8_t *b, uint64_t bytes, uint32_t width)
{
    switch (width) {
    case 0: return count_unequal(a, b, bytes, 4, UINT64_C(0x1111111111111111));
    case 1: return count_unequal(a, b, bytes, 8, UINT64_C(0x0101010101010101));
    case 2: return count_unequal(a, b, bytes, 16, UINT64_C(0x0001000100010001));
    case 4: return count_unequal(a, b, bytes, 32, UINT64_C(0x0000000100000001));
    default: return count_unequal(a, b, bytes, 64, 1);
    }
}

uint64_t
berthi_diff_count_codes(const uint8_t *a, const uint8_t *b, uint64_t bytes,
                        uint32_t width, bool is_odd)
{
    uint64_t codes = count_by_width(a, b, bytes, width);

    if (is_odd && bytes > 0) /* the first of a pair is the high one */
        codes -= ((a[bytes - 1] ^ b[bytes - 1]) & 15) != 0;
    return codes;
}

uint64_t
berthi_diff_count_sixes(const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
    uint64_t codes = 0;

    for (uint64_t i = 0; i + 3 <= bytes; i += 3) {
        const unsigned bits = (unsigned)(a[i] ^ b[i]) | (unsigned)(a[i + 1] ^ b[i + 1]) << 8
                              | (unsigned)(a[i + 2] ^ b[i + 2]) << 16;

        for (unsigned at = 0; at < 24; at += 6)
            codes += (bits >> at & 63) != 0;
    }
    return codes;
}

/* ------------------------------------------------------------------- results */

void
berthi_diff_found_add(berthi_diff_found *to, const berthi_diff_found *next)
{
    to->signal += next->signal;
    to->noise += next->noise;
    to->errors += next->errors;
    to->maximum = fmax(to->maximum, next->maximum);
    to->count += next->count;
    to->nonfinite += next->nonfinite;
    to->codes += next->codes;
    for (uint32_t side = 0; side < 2; side++) {
        to->nan[side] += next->nan[side];
        to->infinite[side] += next->infinite[side];
    }
    for (uint32_t i = 0; i < BERTHI_DIFF_EXPONENTS; i++)
        to->exponents[i] += next->exponents[i];
}

static uint32_t
bucket_of(uint32_t number, int unit_exponent)
{
    const int at = (int)number - EXPONENT_ORIGIN - unit_exponent + 26;

    if (number == 0)
        return 0;
    if (at < 1)
        return 1;
    return at < BERTH_DIFF_BUCKETS ? (uint32_t)at : BERTH_DIFF_BUCKETS - 1;
}

void
berthi_diff_found_tell(const berthi_diff_found *found, berth_diff_errors *out)
{
    const double count = found->count > 0 ? (double)found->count : 1;
    int exponent = 1; /* of 1, as frexp() has it */

    memset(out, 0, sizeof *out);
    out->count = found->count;
    out->different = found->count - found->exponents[0];
    out->nonfinite = found->nonfinite;
    out->maximum = found->maximum;
    out->mean = found->errors / count;
    out->rms_a = sqrt(found->signal / count);
    out->rms_error = sqrt(found->noise / count);
    out->relative = found->noise > 0 ? sqrt(found->noise / found->signal) : 0;
    out->snr = found->noise > 0 ? 10 * log10(found->signal / found->noise)
                                : (double)INFINITY;
    if (out->rms_a > 0)
        (void)frexp(out->rms_a, &exponent);
    out->unit = ldexp(1, exponent - 1);
    for (uint32_t i = 0; i < BERTHI_DIFF_EXPONENTS; i++)
        out->histogram[bucket_of(i, exponent - 1)] += found->exponents[i];
}
