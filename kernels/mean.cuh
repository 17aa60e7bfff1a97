/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.cuh - the offset of double quantization in the order of additions that is
 * part of the format: mean.c walks the same grid.
 *
 * No atomics: each CTA writes its sum, a second pass of one CTA adds them.
 *
 *   traffic   4 B a statistic read, a sum a CTA written
 *   launch    berthi_mean_plan(): so many CTAs of so many lanes, at least a warp
 *   bits      every addition is rounded in its place
 */
#ifndef BERTH_KERNELS_MEAN_CUH
#define BERTH_KERNELS_MEAN_CUH

#include "kernels/core.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/* Sum over the CTA, for lane 0; `lanes` is the CTA's. */
SIMT_INLINE float
mean_fold(float sum, uint32_t width, bool is_old_order, float *lanes)
{
    const uint32_t thread = simt_thread();
    const uint32_t within = width < SIMT_WARP ? width : SIMT_WARP;

    lanes[thread] = sum;
    SIMT_NO_UNROLL
    for (uint32_t half = width / 2; half >= SIMT_WARP; half /= 2) {
        simt_barrier();
        if (thread < half) {
            sum = berthi_core_add(sum, lanes[thread + half]);
            lanes[thread] = sum;
        }
    }
    SIMT_NO_UNROLL
    for (uint32_t step = 1; step < within; step *= 2)
        sum = berthi_core_add(
            sum, simt_shuffle_down(sum, is_old_order ? step : within / 2 / step));
    return sum;
}

SIMT_INLINE void
mean_load_four(const berthi_mean_kernel *a, uint64_t first, float *four)
{
    if (a->is_aligned != 0) {
        const simt_four words = simt_load16(a->values + first);

        SIMT_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            four[e] = berthi_core_float(words.word[e]);
    } else {
        SIMT_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            four[e] = a->values[first + e];
    }
}

#ifndef MEAN_AHEAD
#define MEAN_AHEAD 4u /* turns whose values are on their way at once */
#endif

/* So many turns at aligned addresses; true: there were as many. */
SIMT_INLINE bool
mean_gather_ahead(const float *values, uint64_t stride, uint64_t left, float *sums)
{
    simt_four fours[MEAN_AHEAD];

    if (left <= (MEAN_AHEAD - 1) * stride)
        return false;
    SIMT_UNROLL
    for (uint32_t t = 0; t < MEAN_AHEAD; t++)
        fours[t] = simt_load16(values + t * stride);
    SIMT_UNROLL
    for (uint32_t t = 0; t < MEAN_AHEAD; t++)
        SIMT_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            sums[e] = berthi_core_add(sums[e], berthi_core_float(fours[t].word[e]));
    return true;
}

/* Four neighbours a turn, each to its own sum; the odd ones at the end are CTA 0's. */
SIMT_INLINE float
mean_gather_fours(const berthi_mean_kernel *a, uint32_t thread)
{
    const uint64_t tail = a->count - a->count % 4;
    const uint64_t stride = 4 * (uint64_t)a->width * simt_ctas();
    uint64_t i = 4 * (simt_cta() * a->width + thread);
    float sums[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

    SIMT_NO_UNROLL
    while (a->is_aligned != 0 && i < tail
           && mean_gather_ahead(a->values + i, stride, tail - i, sums))
        i += MEAN_AHEAD * stride;
    SIMT_NO_UNROLL
    for (; i < tail; i += stride) {
        float four[4];

        mean_load_four(a, i, four);
        SIMT_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            sums[e] = berthi_core_add(sums[e], four[e]);
    }
    if (simt_cta() == 0 && tail + thread < a->count)
        sums[0] = berthi_core_add(sums[0], a->values[tail + thread]);
    return berthi_core_add(berthi_core_add(berthi_core_add(sums[0], sums[1]), sums[2]),
                           sums[3]);
}

/* So few that no lane has more than two, each with a sum that begins with 0. */
SIMT_INLINE float
mean_gather_singles(const berthi_mean_kernel *a, uint32_t thread)
{
    const float first = berthi_core_add(0.0f, a->values[thread]);
    float second = 0.0f;

    if (thread + a->width < a->count)
        second = berthi_core_add(second, a->values[thread + a->width]);
    return berthi_core_add(berthi_core_add(berthi_core_add(first, second), 0.0f), 0.0f);
}

/* What a pass makes of all lanes' sums; for lane 0. */
SIMT_INLINE float
mean_result(const berthi_mean_kernel *a, float sum, float *lanes)
{
    sum = mean_fold(sum, a->width, a->is_old_order != 0, lanes);
    return berthi_core_settle(berthi_core_multiply(sum, a->factor));
}

SIMT_INLINE void
mean_finish(const berthi_mean_kernel *a, float sum, float *lanes)
{
    sum = mean_result(a, sum, lanes);
    if (simt_thread() == 0)
        a->sums[simt_cta()] = sum;
}

SIMT_INLINE void
mean_sum(const berthi_mean_kernel *a)
{
    SIMT_SHARED(float, lanes, MEAN_THREADS);
    const uint32_t thread = simt_thread();
    float sum = 0.0f;

    if (thread < a->width)
        sum = a->is_vector != 0 ? mean_gather_fours(a, thread) : mean_gather_singles(a, thread);
    mean_finish(a, sum, lanes);
}

/* Of the CTAs' sums: one lane takes every width-th. */
SIMT_INLINE float
mean_gather_sums(const berthi_mean_kernel *a)
{
    float sum = 0.0f;

    for (uint64_t c = simt_thread(); simt_thread() < a->width && c < a->count; c += a->width)
        sum = berthi_core_add(sum, a->values[c]);
    return sum;
}

SIMT_INLINE void
mean_join(const berthi_mean_kernel *a)
{
    SIMT_SHARED(float, lanes, MEAN_THREADS);

    mean_finish(a, mean_gather_sums(a), lanes);
}

/* The grid is made for all of it to be there at once. */
SIMT_KERNEL_OF(berthi_mean_sum, MEAN_THREADS, SIMT_RESIDENT_MOST, berthi_mean_kernel, mean_sum(a))
SIMT_KERNEL(berthi_mean_join, MEAN_THREADS, berthi_mean_kernel, mean_join(a))

#endif
