/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adam8.cuh - Adam with states in 8 bits, of blocks in which nothing is out of the
 * ordinary: whole ones of finite numbers, none of which is too small to be divided.
 *
 * Division and square root are the steps that the compiler makes of correctly rounded
 * ones where no number is near an end of its range, without the test for that: a block is
 * tested as a whole, by maxima that it needs anyway, before anything is stored. One that
 * fails is left to optimizer.cuh.
 *
 *   bits      core_optimizer.h; what is scaled here is scaled by powers of two
 *   bounds    whole blocks at aligned addresses
 */
#ifndef BERTH_KERNELS_ADAM8_CUH
#define BERTH_KERNELS_ADAM8_CUH

#include "kernels/core_optimizer.h"
#include "kernels/eights.cuh"
#include "kernels/update_tables.cuh"

/*
 * Ordinary numbers: magnitudes from 2^-90 to 2^60, and zero. Their quotients by 2^-60 to
 * 2^31 are normal, and so are the remainders of those. Means are 2^32 times what they are
 * elsewhere, as roots are, which come of squares that have to be 2^64 times larger.
 */
#define ADAM8_SCALE 0x1p32f
#define ADAM8_UNSCALE 0x1p-32f
#define ADAM8_LEAST ((127u - 90u) << 23) /* as bits */
#define ADAM8_MOST ((127u + 60u) << 23)
#define ADAM8_SCALED (32u << 23) /* what scaling adds to bits */

/* A lane's part of a block, as it lies; without its parameters. */
typedef struct adam8_words {
    eight_words gradient;
    simt_two codes[2];
    float absmax[2];
} adam8_words;

typedef struct adam8_eight {
    float mean[EIGHT];   /* scaled */
    float square[EIGHT]; /* the mean of squares */
    bool is_usual;       /* of what the lane has seen so far */
} adam8_eight;

/* `first` is the lane's first element. */
SIMT_INLINE void
adam8_load(const berthi_update_kernel *a, int32_t dtype, uint64_t first, adam8_words *out)
{
    const berthi_update_arguments *const its = &a->arguments;

    SIMT_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        out->codes[k] = simt_load8(its->state[k].codes + first);
        out->absmax[k] = its->state[k].absmax[first / BERTHI_UPDATE_BLOCK];
    }
    out->gradient = eight_load_words(its->gradient, dtype, first);
}

/* Nothing is skipped: a branch would cost more than the comparisons. */
SIMT_INLINE bool
adam8_is_among(uint32_t bits, uint32_t least, uint32_t most)
{
    return bits - least <= most - least;
}

/*
 * The bits of an absmax that means are made with: 0, or so large that products with a map's
 * values are not rounded where scaled ones would not be. An update keeps none that is
 * subnormal; states of a file may have one.
 */
SIMT_INLINE bool
adam8_is_usual_scale(uint32_t bits)
{
    return (int)(bits == 0) | (int)adam8_is_among(bits, ADAM8_LEAST, ADAM8_MOST);
}

/*
 * The bits of a block's new largest magnitude: so large that it has a reciprocal, or one that
 * is kept as 0.
 */
SIMT_INLINE bool
adam8_is_usual_maximum(uint32_t bits)
{
    return (int)(bits < 0x00800000u) | (int)adam8_is_among(bits, ADAM8_LEAST, ADAM8_MOST);
}

SIMT_INLINE void
adam8_means(const berthi_update_kernel *a, int32_t dtype, const adam8_words *words,
            const update_tables *t, adam8_eight *out)
{
    const float absmax1 = berthi_core_multiply(words->absmax[0], ADAM8_SCALE);
    berthi_update_constants c = a->constants;

    c.rest1 = berthi_core_multiply(c.rest1, ADAM8_SCALE);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++) {
        const float gradient =
            berthi_core_multiply(eight_value(&words->gradient, dtype, k), c.scale);
        const float value1 = update_value(t, 0, words->codes[0].word[k / 4], k % 4);
        const float value2 = update_value(t, 1, words->codes[1].word[k / 4], k % 4);
        berthi_core_element one = { 0.0f, berthi_core_multiply(value1, absmax1),
                                    berthi_core_multiply(value2, words->absmax[1]), 0.0f };

        berthi_core_mean_adam(&c, gradient, &one);
        out->mean[k] = one.state1;
        out->square[k] = one.state2;
    }
    out->is_usual = adam8_is_usual_scale(berthi_core_bits(words->absmax[0]));
}

/* ------------------------------------------------------------------- numbers */

/*
 * The square root of what is at most 2^60, scaled. The smallest number that is not 0 hides
 * the summand, which is there for a 0 to have an inverse; its root is then 2^-60, which
 * no divisor shows: berthi_launch_update() has seen to that.
 */
SIMT_INLINE float
adam8_root(float square)
{
    const float scaled = fmaf(square, ADAM8_SCALE * ADAM8_SCALE, ADAM8_NOTHING);
    const float inverse = simt_inverse_root(scaled);
    const float root = berthi_core_multiply(scaled, inverse);
    const float rest = fmaf(-root, root, scaled);

    return fmaf(rest, berthi_core_multiply(0.5f, inverse), root);
}

SIMT_INLINE float
adam8_inverse(float b)
{
    const float about = berthi_core_reciprocal(b);

    return fmaf(about, fmaf(-b, about, 1.0f), about);
}

/* The remainder is negative twice: a quotient that is 0 keeps its sign. */
SIMT_INLINE float
adam8_quotient(float a, float b)
{
    const float inverse = adam8_inverse(b);
    const float quotient = berthi_core_multiply(a, inverse);
    const float excess = fmaf(b, quotient, -a);

    return fmaf(-excess, inverse, quotient);
}

/* 1 / b, the same way. */
SIMT_INLINE float
adam8_reciprocal(float b)
{
    const float inverse = adam8_inverse(b);
    const float excess = fmaf(b, inverse, -1.0f);

    return fmaf(-excess, inverse, inverse);
}

SIMT_INLINE float
adam8_step(const berthi_update_constants *c, float parameter, float mean, float square)
{
    const float divisor = fmaf(berthi_core_multiply(c->correction, ADAM8_SCALE), c->epsilon,
                               adam8_root(square));

    return fmaf(c->eta, adam8_quotient(mean, divisor), parameter);
}

/* ------------------------------------------------------------------- results */

/* Parameters as they lie become what they are afterwards. */
SIMT_INLINE void
adam8_take_step(const berthi_update_constants *c, int32_t dtype, const adam8_eight *e,
                eight_words *words)
{
    float parameter[EIGHT];

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        parameter[k] = adam8_step(c, eight_value(words, dtype, k), e->mean[k], e->square[k]);
    *words = eight_words_of(dtype, parameter);
    if (c->is_shrunk) {
        SIMT_UNROLL
        for (uint32_t k = 0; k < EIGHT; k++)
            parameter[k] = berthi_core_multiply(eight_value(words, dtype, k), c->shrink);
        *words = eight_words_of(dtype, parameter);
    }
    /* Rounding to 16 bits has made all NaN one. */
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT && dtype == BERTH_F32; k++)
        words->word[k] =
            berthi_core_bits(berthi_core_one_nan(berthi_core_float(words->word[k])));
}

SIMT_INLINE simt_two
adam8_zero_codes(const float *values, bool is_signed)
{
    uint32_t codes[EIGHT];
    simt_two two;

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        codes[k] = berthi_core_zero_code(is_signed, values[k]) << 24;
    two.word[0] = simt_high_bytes(codes);
    two.word[1] = simt_high_bytes(codes + 4);
    return two;
}

SIMT_INLINE simt_two
adam8_codes(const float *values, bool is_signed, float absmax, const update_tables *t)
{
    /* Of zeros any will do, as long as it leaves them where there are bins. */
    const float reciprocal = adam8_reciprocal(absmax == 0.0f ? 1.0f : absmax);
    float scaled[EIGHT];
    uint32_t found[EIGHT];
    simt_two codes;

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++) {
        scaled[k] = berthi_core_multiply(values[k], reciprocal);
        found[k] = is_signed ? 0 : map_find_unsigned(scaled[k], t->unsigned_entries);
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < 2; k++)
        codes.word[k] = is_signed ? map_find_four_signed(scaled + 4 * k, t->signed_entries)
                                  : simt_high_bytes(found + 4 * k);
    return absmax == 0.0f ? adam8_zero_codes(values, is_signed) : codes;
}

SIMT_INLINE void
adam8_save_states(const berthi_update_kernel *a, uint64_t first, const update_tables *t,
                  const uint32_t *maxima, const adam8_eight *e)
{
    const berthi_update_arguments *const its = &a->arguments;
    const float absmax1 = berthi_core_float(maxima[0]);
    const float absmax2 = berthi_core_flush(berthi_core_float(maxima[1]));

    simt_store8(its->state[0].codes + first, adam8_codes(e->mean, true, absmax1, t));
    simt_store8(its->state[1].codes + first, adam8_codes(e->square, false, absmax2, t));
    simt_warp_barrier(); /* all have read the absmax that are overwritten */
    if (simt_thread() % SIMT_WARP == 0) {
        its->state[0].absmax[first / BERTHI_UPDATE_BLOCK] =
            berthi_core_multiply(absmax1, ADAM8_UNSCALE);
        its->state[1].absmax[first / BERTHI_UPDATE_BLOCK] = absmax2;
    }
}

/* Whether the block is a usual one; the largest mean, scaled, and square of it, as bits. */
SIMT_INLINE bool
adam8_is_usual(const adam8_eight *e, uint32_t *maxima)
{
    float largest = 0.0f;
    uint32_t largest_square = 0;  /* those of NaN and of what is below 0 are larger than all */
    uint32_t least = 0xFFFFFFFFu; /* twice the bits of what is not 0, less 1 */
    bool is_usual;

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++) {
        const uint32_t square = berthi_core_bits(e->square[k]);
        const uint32_t own = 2 * berthi_core_bits(e->mean[k]) - 1;

        largest = berthi_core_absmax_step(largest, e->mean[k]);
        largest_square = square > largest_square ? square : largest_square;
        least = own < least ? own : least;
    }
    is_usual = (int)e->is_usual & (int)(least >= 2 * (ADAM8_LEAST + ADAM8_SCALED) - 1);
    maxima[0] = simt_largest(berthi_core_bits(largest));
    maxima[1] = simt_largest(largest_square);
    return (int)simt_all(is_usual) & (int)(maxima[0] <= ADAM8_MOST + ADAM8_SCALED)
           & (int)adam8_is_usual_maximum(maxima[1]);
}

#endif
