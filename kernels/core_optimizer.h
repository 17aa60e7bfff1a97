/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_optimizer.h - the part of core.h that optimizers need: one element's update, and
 * how squares of gradients are added.
 *
 * Order and fused operations are those traced in the machine code of the published
 * Adam kernel; of the other kinds they are what the same compiler would fuse. Every
 * operation is rounded to nearest even and keeps subnormals.
 */
#ifndef BERTH_KERNELS_CORE_OPTIMIZER_H
#define BERTH_KERNELS_CORE_OPTIMIZER_H

#include "kernels/core.h"
#include "kernels/gradient.h"
#include "kernels/optimizer.h"

#define BERTHI_SIGNED_ZERO_CODE 127u /* of the signed map; those below are negative */

/* -------------------------------------------- primitives with two spellings */

BERTHI_CORE float
berthi_core_divide(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

BERTHI_CORE float
berthi_core_square_root(float value)
{
#ifdef __CUDA_ARCH__
    return __fsqrt_rn(value);
#else
    return sqrtf(value);
#endif
}

/* ------------------------------------------------------------------- values */

BERTHI_CORE bool
berthi_core_is_finite(float value)
{
    return (berthi_core_bits(value) & 0x7F800000u) != 0x7F800000u;
}

/* ----------------------------------------------------------------- elements */

/* One element; `dtype` is that of what is updated: BERTH_F32 with a master. */
typedef struct berthi_core_element {
    float parameter;
    float state1;
    float state2;
    float state3;
} berthi_core_element;

/* Adam's two means. */
BERTHI_CORE void
berthi_core_mean_adam(const berthi_update_constants *c, float gradient,
                      berthi_core_element *e)
{
    const float square =
        berthi_core_multiply(gradient, berthi_core_multiply(c->rest2, gradient));

    e->state2 = fmaf(e->state2, c->beta2, square);
    e->state1 = fmaf(c->rest1, gradient, berthi_core_multiply(e->state1, c->beta1));
}

/* Adam: the step, in the parameter's place, not rounded to its dtype yet. */
BERTHI_CORE void
berthi_core_step_adam(const berthi_update_constants *c, float gradient,
                      berthi_core_element *e)
{
    berthi_core_mean_adam(c, gradient, e);
    e->parameter = fmaf(
        c->eta,
        berthi_core_divide(e->state1, fmaf(c->correction, c->epsilon,
                                           berthi_core_square_root(e->state2))),
        e->parameter);
}

/* Besides Adam's a mean of many more gradients, which needs no correction. */
BERTHI_CORE void
berthi_core_step_ademamix(const berthi_update_constants *c, float gradient,
                          berthi_core_element *e)
{
    float mean;
    float root;

    berthi_core_mean_adam(c, gradient, e);
    e->state3 = fmaf(c->rest3, gradient, berthi_core_multiply(e->state3, c->beta3));
    mean = fmaf(c->alpha, e->state3, berthi_core_divide(e->state1, c->correction1));
    root = berthi_core_divide(berthi_core_square_root(e->state2), c->correction);
    e->parameter = fmaf(-c->rate,
                        berthi_core_divide(mean, berthi_core_add(root, c->epsilon)),
                        e->parameter);
}

/* The direction is that of a mean by beta1, which is not kept; its length the rate. */
BERTHI_CORE void
berthi_core_step_lion(const berthi_update_constants *c, int32_t dtype, float gradient,
                      berthi_core_element *e)
{
    const float mean =
        fmaf(c->rest1, gradient, berthi_core_multiply(e->state1, c->beta1));
    const float sign = (float)((mean > 0.0f) - (mean < 0.0f));

    e->state1 = fmaf(c->rest2, gradient, berthi_core_multiply(e->state1, c->beta2));
    e->parameter = berthi_core_add(
        e->parameter,
        -berthi_core_rounded(berthi_core_multiply(c->rate, sign), dtype));
}

BERTHI_CORE void
berthi_core_step_momentum(const berthi_update_constants *c, float gradient,
                          berthi_core_element *e)
{
    e->state1 = c->is_first ? gradient : fmaf(e->state1, c->beta1, gradient);
    e->parameter = fmaf(-c->rate, e->state1, e->parameter);
}

/*
 * RMSprop and Adagrad: the gradient that is divided has no decay in it, as published.
 * (There it lacks the scale as well, which is always 1 there: with another one the
 * step would be as many times too long.)
 */
BERTHI_CORE void
berthi_core_step_by_root(const berthi_update_constants *c, float plain, float gradient,
                         berthi_core_element *e)
{
    if (c->kind == BERTHI_UPDATE_ADAGRAD)
        e->state1 = fmaf(gradient, gradient, e->state1);
    else
        e->state1 = fmaf(c->rest1, berthi_core_multiply(gradient, gradient),
                         berthi_core_multiply(e->state1, c->beta1));
    e->parameter = fmaf(
        -c->rate,
        berthi_core_divide(
            plain, berthi_core_add(berthi_core_square_root(e->state1), c->epsilon)),
        e->parameter);
}

/* The update of an element whose gradient, as it was given, is finite; of this kind. */
BERTHI_CORE void
berthi_core_step(const berthi_update_constants *c, int32_t kind, bool is_coupled,
                 int32_t dtype, float given, berthi_core_element *e)
{
    const float plain = berthi_core_multiply(given, c->scale);
    const float gradient = is_coupled ? fmaf(e->parameter, c->decay, plain) : plain;
    const bool is_lion = kind == BERTHI_UPDATE_LION;

    if (is_lion && c->is_shrunk)
        e->parameter =
            berthi_core_rounded(berthi_core_multiply(e->parameter, c->shrink), dtype);
    if (kind == BERTHI_UPDATE_ADAM || kind == BERTHI_UPDATE_ADAMW)
        berthi_core_step_adam(c, gradient, e);
    else if (kind == BERTHI_UPDATE_ADEMAMIX)
        berthi_core_step_ademamix(c, gradient, e);
    else if (is_lion)
        berthi_core_step_lion(c, dtype, gradient, e);
    else if (kind == BERTHI_UPDATE_MOMENTUM)
        berthi_core_step_momentum(c, gradient, e);
    else
        berthi_core_step_by_root(c, plain, gradient, e);
    e->parameter = berthi_core_rounded(e->parameter, dtype);
    if (!is_lion && c->is_shrunk)
        e->parameter =
            berthi_core_rounded(berthi_core_multiply(e->parameter, c->shrink), dtype);
}

/* ------------------------------------------------------------------- states */

BERTHI_CORE float
berthi_core_state_value(const uint32_t *map, uint32_t code, float absmax)
{
    return berthi_core_multiply(berthi_core_map_value(map, code), absmax);
}

/* Of a block's absmax: rounded correctly, which a GPU's quick one is not. */
BERTHI_CORE float
berthi_core_state_reciprocal(float absmax)
{
    return berthi_core_flush(berthi_core_divide(1.0f, absmax));
}

/*
 * The code of a state in a block whose absmax is not 0, `code` that of its value in the
 * map. A signed state keeps its sign, so that one too small for the map is not taken for
 * a zero, and -0 is 126.
 */
BERTHI_CORE uint32_t
berthi_core_keep_sign(uint32_t code, float value)
{
    const bool is_negative = berthi_core_bits(value) >> 31 != 0;

    if ((code < BERTHI_SIGNED_ZERO_CODE) == is_negative)
        return code;
    return (value > 0.0f ? code + 1 : code - 1) & 255u;
}

/* Where nothing has a magnitude the repair of the sign ends at 255, or 0. */
BERTHI_CORE uint32_t
berthi_core_zero_code(bool is_signed, float value)
{
    return is_signed && berthi_core_bits(value) >> 31 == 0 ? 255u : 0u;
}

/* By a search; `reciprocal` is that of `absmax`. */
BERTHI_CORE uint32_t
berthi_core_state_code(const uint32_t *map, bool is_signed, float value, float absmax,
                       float reciprocal)
{
    uint32_t code;

    if (absmax == 0.0f)
        return berthi_core_zero_code(is_signed, value);
    code = berthi_core_map_code(map, berthi_core_multiply(value, reciprocal));
    return is_signed ? berthi_core_keep_sign(code, value) : code;
}

/* ---------------------------------------------------------------- gradients */

/* What the lanes of a block have added up, joined; overwrites them. */
BERTHI_CORE double
berthi_core_join_squares(double *sums)
{
    for (uint32_t half = BERTHI_GRADIENT_LANES / 2; half > 0; half /= 2)
        for (uint32_t k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

#endif
