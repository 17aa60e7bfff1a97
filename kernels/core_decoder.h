/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_decoder.h - the part of core.h that the steps of a decoder need: e to the power of
 * something, and what is made of one element. Orders of sums are those of decoder.h.
 *
 * Every operation is rounded to nearest even, on its own, and keeps subnormals.
 */
#ifndef BERTH_KERNELS_CORE_DECODER_H
#define BERTH_KERNELS_CORE_DECODER_H

#include "kernels/core_optimizer.h"
#include "kernels/decoder.h"

/* ------------------------------------------------------------------- values */

/* Every NaN is stored as the same one. */
BERTHI_CORE void
berthi_core_put(void *values, int32_t dtype, uint64_t i, float value)
{
    berthi_core_store(values, dtype, i, berthi_core_one_nan(value));
}

/* sum + a * b, rounded twice. */
BERTHI_CORE float
berthi_core_add_product(float sum, float a, float b)
{
    return berthi_core_add(sum, berthi_core_multiply(a, b));
}

/* Of two, of which a NaN is none: whichever is first, the same number is returned. */
BERTHI_CORE float
berthi_core_larger(float a, float b)
{
    return b > a || a != a ? b : a;
}

/* -------------------------------------------------------------- exponentials */

/* 2^exponent, from -126 to 127. */
BERTHI_CORE float
berthi_core_power_of_two(int32_t exponent)
{
    return berthi_core_float((uint32_t)(exponent + 127) << 23);
}

/*
 * e^value within an ulp, subnormals among the results: 2^n * e^r, where n is a whole
 * number and r the rest, at most ln(2) / 2, whose power is a polynomial. The first part of
 * ln(2) has so few bits that n times it is exact. NaN stays NaN.
 */
BERTHI_CORE float
berthi_core_exp(float value)
{
    const float whole = 12582912.0f; /* 1.5 * 2^23: what is added to it loses its fraction */
    float shifted;
    float rest;
    float sum;
    int32_t n;

    if (value > 89.0f) /* infinity, as any larger one */
        value = 89.0f;
    if (value < -104.0f) /* 0 */
        value = -104.0f;
    if (value != value)
        return value;
    shifted = berthi_core_add_product(whole, value, 1.44269504f);
    n = (int32_t)(berthi_core_bits(shifted) - berthi_core_bits(whole));
    shifted = berthi_core_add(shifted, -whole);
    rest = berthi_core_add_product(value, shifted, -0.693359375f);
    rest = berthi_core_add_product(rest, shifted, 2.12194440e-4f);
    sum = berthi_core_add_product(1.3981999507e-3f, rest, 1.9875691500e-4f);
    sum = berthi_core_add_product(8.3334519073e-3f, rest, sum);
    sum = berthi_core_add_product(4.1665795894e-2f, rest, sum);
    sum = berthi_core_add_product(1.6666665459e-1f, rest, sum);
    sum = berthi_core_add_product(5.0000001201e-1f, rest, sum);
    sum = berthi_core_add_product(rest, berthi_core_multiply(rest, rest), sum);
    sum = berthi_core_add(1.0f, sum);
    /* In two, of which the first is exact: the second may end below or above all floats. */
    sum = berthi_core_multiply(sum, berthi_core_power_of_two(n / 2));
    return berthi_core_multiply(sum, berthi_core_power_of_two(n - n / 2));
}

/* gate * sigmoid(gate) * up */
BERTHI_CORE float
berthi_core_gate(float gate, float up)
{
    const float divisor = berthi_core_add(1.0f, berthi_core_exp(-gate));

    return berthi_core_multiply(berthi_core_divide(gate, divisor), up);
}

/* ------------------------------------------------------------------- norms */

/* What all elements of a row are divided by. */
BERTHI_CORE float
berthi_core_norm_divisor(float squares, uint64_t columns, float epsilon)
{
    const float mean = berthi_core_divide(squares, (float)columns);

    return berthi_core_square_root(berthi_core_add(mean, epsilon));
}

BERTHI_CORE float
berthi_core_norm(float value, float divisor, float weight)
{
    return berthi_core_multiply(weight, berthi_core_divide(value, divisor));
}

/* A pair, turned. */
BERTHI_CORE void
berthi_core_turn(float *first, float *second, float cosine, float sine)
{
    const float a = *first;
    const float b = *second;

    *first = berthi_core_add_product(berthi_core_multiply(a, cosine), -b, sine);
    *second = berthi_core_add_product(berthi_core_multiply(b, cosine), a, sine);
}

/* ---------------------------------------------------------------- attention */

/* The first position that a query at `position` sees. */
BERTHI_CORE uint64_t
berthi_core_first_seen(uint64_t position, uint64_t window)
{
    return window != 0 && position >= window ? position - window + 1 : 0;
}

/* Where the largest score begins: below every other, and no infinity. */
BERTHI_CORE float
berthi_core_least_score(void)
{
    return berthi_core_float(0xFF7FFFFFu);
}

BERTHI_CORE float
berthi_core_score(float product, uint32_t width)
{
    return berthi_core_divide(product, berthi_core_square_root((float)width));
}

/* By how much something counts whose score is `score`. */
BERTHI_CORE float
berthi_core_share(float score, float largest)
{
    return berthi_core_exp(berthi_core_add(score, -largest));
}

/* ------------------------------------------------------------------ choices */

/* As logits are compared: a NaN is the smallest. */
BERTHI_CORE float
berthi_core_logit(const void *logits, int32_t dtype, uint64_t i)
{
    const float value = berthi_core_load(logits, dtype, i);

    return value == value ? value : berthi_core_float(0xFF800000u);
}

/* An expert and its logit; what is chosen first comes before what is chosen later. */
typedef struct berthi_core_expert {
    float logit;
    uint32_t number;
} berthi_core_expert;

BERTHI_CORE bool
berthi_core_is_before(berthi_core_expert a, berthi_core_expert b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.number < b.number);
}

#endif
