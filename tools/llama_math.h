/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_math.h - the arithmetic of a decoder beside products with weights, in 32-bit
 * floats.
 *
 * A sum is made in the same order whoever calls, so that the same input gives the
 * same bits in a prompt and token by token.
 */
#ifndef BERTH_TOOLS_LLAMA_MATH_H
#define BERTH_TOOLS_LLAMA_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/llama_config.h"

/* ----------------------------------------------------------------- plain numbers */

/* BERTH_F32, _BF16, _F16, or _I8 as whole numbers. */
bool llama_math_has_dtype(int32_t dtype);
/* Values of `dtype` as floats. */
void llama_math_widen(int32_t dtype, const void *values, uint64_t count, float *out);
/* Floats rounded to nearest even. `dtype`: BERTH_F32, _BF16 or _F16. */
void llama_math_narrow(int32_t dtype, const float *values, uint64_t count, void *out);
/* Vectors of `count` floats each, one behind the other. */
typedef struct llama_math_inputs {
    const float *values;
    uint64_t count;
    uint32_t inputs;
} llama_math_inputs;

/* out[k] = sum of row[i] * input k's [i]; the row is of `dtype`. */
void llama_math_dots(int32_t dtype, const void *row, const llama_math_inputs *x, float *out);
/* The same of one. */
float llama_math_dot(int32_t dtype, const void *row, const float *x, uint64_t count);
/* out[i] += scale * row[i] */
void llama_math_add_scaled(int32_t dtype, const void *row, float scale, uint64_t count,
                           float *out);

/* ------------------------------------------------------------------------- steps */

/* x / sqrt(mean of x^2 + epsilon), times weight; `x` may be `out`. */
void llama_math_norm(const float *x, const float *weight, float epsilon, uint64_t count,
                     float *out);
/* gate[i] * sigmoid(gate[i]) * up[i], into `gate`. */
void llama_math_swiglu(float *gate, const float *up, uint64_t count);
/* Into shares that add up to 1. */
void llama_math_softmax(float *x, uint64_t count);
/* The largest; of equal ones the first. A NaN counts as -infinity. */
uint32_t llama_math_largest(const float *x, uint32_t count);
/*
 * Softmax of `count` logits of experts; the `used` largest, in the order of their
 * numbers, with their weights; these add up to 1 where `is_renormalised`.
 */
void llama_math_choose(float *logits, uint32_t count, uint32_t used, bool is_renormalised,
                       uint32_t *numbers, float *weights);

/* -------------------------------------------------------------- rotary positions */

/* head_dim / 2 angles of position 1, and what cosines and sines are multiplied by. */
void llama_math_frequencies(const llama_config *config, float *out, float *out_scale);
/* Cosines, then sines, head_dim / 2 each, of a position. */
void llama_math_angles(const float *frequencies, float scale, uint32_t half,
                       uint64_t position, float *out);
/* Turns the pairs (x[i], x[i + half]). */
void llama_math_rotate(float *x, const float *angles, uint32_t half);

#endif
