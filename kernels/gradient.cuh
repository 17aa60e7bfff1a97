/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradient.cuh - gradients measured and added up: gradient.h on a GPU.
 *
 * Measuring, a warp has a block, and its lanes are those of the description: each adds
 * its own squares in their order, and shuffles join them as described. Adding up, a lane
 * has eight neighbours.
 *
 *   traffic   measuring: a gradient read, 16 B a block of 4096 written
 *             adding up: a gradient and a sum read, the sum written
 *   launch    berthi_measure_ctas(), berthi_accumulate_ctas() CTAs of GRADIENT_THREADS
 *   bits      squares of floats are exact in doubles, and every sum is rounded in its
 *             place
 */
#ifndef BERTH_KERNELS_GRADIENT_CUH
#define BERTH_KERNELS_GRADIENT_CUH

#include "kernels/core_optimizer.h"
#include "kernels/eights.cuh"
#include "kernels/kernel_arguments.h"

/* ------------------------------------------------------------------ measures */

#define MEASURE_ABREAST 8u /* loads of a lane that are on their way at once */

SIMT_INLINE uint32_t
measure_shuffle_word(uint32_t word, uint32_t mask)
{
    return berthi_core_bits(simt_shuffle_xor(berthi_core_float(word), mask));
}

SIMT_INLINE double
measure_shuffle(double value, uint32_t mask)
{
    uint32_t words[2];

    memcpy(words, &value, sizeof words);
    words[0] = measure_shuffle_word(words[0], mask);
    words[1] = measure_shuffle_word(words[1], mask);
    memcpy(&value, words, sizeof words);
    return value;
}

/* Some of a lane's, from `first` on, every 32nd; those that are not there are 0. */
SIMT_INLINE void
measure_some(const berthi_measure_arguments *a, int32_t dtype, uint64_t first, double *squares,
             uint32_t *not_finite)
{
    float values[MEASURE_ABREAST];

    SIMT_UNROLL
    for (uint32_t k = 0; k < MEASURE_ABREAST; k++) {
        const uint64_t i = first + k * BERTHI_GRADIENT_LANES;

        values[k] = i < a->count ? berthi_core_load(a->gradient, dtype, i) : 0.0f;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < MEASURE_ABREAST; k++) {
        const double value = (double)values[k];

        if (berthi_core_is_finite(values[k]))
            *squares += value * value;
        else
            *not_finite += 1;
    }
}

/* A number of doubles that both lanes add is the same in both: no order is left. */
SIMT_INLINE void
measure(const berthi_measure_arguments *a, int32_t dtype)
{
    const uint64_t block = simt_cta() * (GRADIENT_THREADS / SIMT_WARP) + simt_warp();
    const uint64_t begin = block * BERTHI_GRADIENT_BLOCK;
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t turn = MEASURE_ABREAST * BERTHI_GRADIENT_LANES;
    uint32_t not_finite = 0;
    double squares = 0.0;

    if (begin >= a->count) /* the whole warp */
        return;
    SIMT_NO_UNROLL
    for (uint32_t i = 0; i < BERTHI_GRADIENT_BLOCK; i += turn)
        measure_some(a, dtype, begin + i + lane, &squares, &not_finite);
    SIMT_UNROLL
    for (uint32_t half = BERTHI_GRADIENT_LANES / 2; half > 0; half /= 2) {
        squares += measure_shuffle(squares, half);
        not_finite += measure_shuffle_word(not_finite, half);
    }
    if (lane == 0) {
        a->sums[block].squares = squares;
        a->sums[block].not_finite = not_finite;
    }
}

/* ---------------------------------------------------------------------- sums */

SIMT_INLINE void
accumulate(const berthi_accumulate_kernel *a, int32_t dtype)
{
    const berthi_accumulate_arguments *const its = &a->arguments;
    const uint64_t first =
        (simt_cta() * GRADIENT_THREADS + simt_thread()) * GRADIENT_LANE;
    const uint32_t there = eight_there(first, its->count);
    float gradient[EIGHT];
    float sum[EIGHT];

    if (there == 0)
        return;
    eight_load(its->sum, dtype, first, there, a->is_aligned != 0, sum);
    eight_load_any(its->gradient, its->dtype, first, there, a->is_aligned != 0, gradient);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        sum[k] = berthi_core_one_nan(
            berthi_core_add(sum[k], berthi_core_multiply(its->scale, gradient[k])));
    eight_store(its->sum, dtype, first, there, a->is_aligned != 0, sum);
}

/* ------------------------------------------------------------------- kernels */

SIMT_KERNEL(berthi_measure_bf16, GRADIENT_THREADS, berthi_measure_arguments,
            measure(a, BERTH_BF16))
SIMT_KERNEL(berthi_measure_f16, GRADIENT_THREADS, berthi_measure_arguments,
            measure(a, BERTH_F16))
SIMT_KERNEL(berthi_measure_f32, GRADIENT_THREADS, berthi_measure_arguments,
            measure(a, BERTH_F32))
SIMT_KERNEL(berthi_accumulate_bf16, GRADIENT_THREADS, berthi_accumulate_kernel,
            accumulate(a, BERTH_BF16))
SIMT_KERNEL(berthi_accumulate_f16, GRADIENT_THREADS, berthi_accumulate_kernel,
            accumulate(a, BERTH_F16))
SIMT_KERNEL(berthi_accumulate_f32, GRADIENT_THREADS, berthi_accumulate_kernel,
            accumulate(a, BERTH_F32))

#endif
