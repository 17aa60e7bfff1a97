/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradient_lanes.h - gradient.h for several elements at once: whole blocks of finite
 * gradients by vectors, the end of a tensor and other blocks by the reference.
 *
 * Included by one file per level behind what optimizer_lanes.h needs, and
 *
 *   lane_squares               the sums of a block's 32 lanes, as vectors of doubles
 *   squares_none()             all 0
 *   squares_add(&s, k, a)      the squares of the k-th vector of 32 elements
 *   squares_save(&s, doubles)  in order
 */
#ifndef BERTH_KERNELS_GRADIENT_LANES_H
#define BERTH_KERNELS_GRADIENT_LANES_H

#ifdef LANES /* a file that has none sees nothing */

#include "kernels/core_optimizer.h"
#include "kernels/gradient.h"
#include "kernels/number.h"

/* ------------------------------------------------------------------ measures */

/* Of a whole block; infinite or NaN where one of them is not finite: no sum of others is. */
ALWAYS_INLINE double
sum_squares(const void *gradient, int32_t dtype, uint64_t first)
{
    double sums[BERTHI_GRADIENT_LANES];
    lane_squares s = squares_none();

    for (uint32_t i = 0; i < BERTHI_GRADIENT_BLOCK; i += BERTHI_GRADIENT_LANES)
        UNROLL
        for (uint32_t k = 0; k < BERTHI_GRADIENT_LANES / LANES; k++)
            squares_add(&s, k, lanes_widen(gradient, dtype, first + i + k * LANES));
    squares_save(&s, sums);
    return berthi_core_join_squares(sums);
}

/* The blocks from `first` on; `count` elements of them. */
ALWAYS_INLINE void
measure_plainly(const berthi_measure_arguments *a, uint64_t first, uint64_t count)
{
    berthi_measure_arguments rest = *a;

    rest.count = count;
    rest.gradient = (const uint8_t *)a->gradient + first * berthi_number_bytes(a->dtype);
    rest.sums = a->sums + first / BERTHI_GRADIENT_BLOCK;
    berthi_measure_plainly(&rest);
}

/* `dtype` is a constant. */
ALWAYS_INLINE void
measure_dtype(const berthi_measure_arguments *a, int32_t dtype)
{
    uint64_t first = 0;

    for (; a->count - first >= BERTHI_GRADIENT_BLOCK; first += BERTHI_GRADIENT_BLOCK) {
        const double squares = sum_squares(a->gradient, dtype, first);

        if (isfinite(squares))
            a->sums[first / BERTHI_GRADIENT_BLOCK] = (berthi_gradient_sum){ squares, 0 };
        else
            measure_plainly(a, first, BERTHI_GRADIENT_BLOCK);
    }
    measure_plainly(a, first, a->count - first);
}

ALWAYS_INLINE void
measure_by(const berthi_measure_arguments *a)
{
    if (a->dtype == BERTH_BF16)
        measure_dtype(a, BERTH_BF16);
    else if (a->dtype == BERTH_F16)
        measure_dtype(a, BERTH_F16);
    else
        measure_dtype(a, BERTH_F32);
}

/* ---------------------------------------------------------------------- sums */

/* Both dtypes are constants. */
ALWAYS_INLINE void
accumulate_dtypes(const berthi_accumulate_arguments *a, int32_t sum_dtype, int32_t dtype)
{
    const uint64_t whole = a->count - a->count % LANES;
    berthi_accumulate_arguments rest = *a;

    for (uint64_t i = 0; i < whole; i += LANES)
        lanes_put(a->sum, sum_dtype, i,
                  lanes_widen(a->sum, sum_dtype, i)
                      + lanes_all(a->scale) * lanes_widen(a->gradient, dtype, i),
                  lanes_every);
    rest.count = a->count - whole;
    rest.sum = (uint8_t *)a->sum + whole * berthi_number_bytes(sum_dtype);
    rest.gradient = (const uint8_t *)a->gradient + whole * berthi_number_bytes(dtype);
    berthi_accumulate_plainly(&rest);
}

ALWAYS_INLINE void
accumulate_into(const berthi_accumulate_arguments *a, int32_t sum_dtype)
{
    if (a->dtype == BERTH_BF16)
        accumulate_dtypes(a, sum_dtype, BERTH_BF16);
    else if (a->dtype == BERTH_F16)
        accumulate_dtypes(a, sum_dtype, BERTH_F16);
    else
        accumulate_dtypes(a, sum_dtype, BERTH_F32);
}

ALWAYS_INLINE void
accumulate_by(const berthi_accumulate_arguments *a)
{
    if (a->sum_dtype == BERTH_BF16)
        accumulate_into(a, BERTH_BF16);
    else if (a->sum_dtype == BERTH_F16)
        accumulate_into(a, BERTH_F16);
    else
        accumulate_into(a, BERTH_F32);
}

#endif
#endif
