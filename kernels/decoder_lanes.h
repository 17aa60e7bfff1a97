/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_lanes.h - sums over columns in the order of decoder.h, by plain loops. */
#ifndef BERTH_KERNELS_DECODER_LANES_H
#define BERTH_KERNELS_DECODER_LANES_H

#include "kernels/core_decoder.h"

#define LANES BERTHI_DECODER_LANES

/* What so many lanes have added up, joined; overwrites them. */
static inline float
join_lanes(float *sums, uint32_t lanes)
{
    for (uint32_t half = lanes / 2; half > 0; half /= 2)
        for (uint32_t k = 0; k < half; k++)
            sums[k] = berthi_core_add(sums[k], sums[k + half]);
    return sums[0];
}

/* `count` of an array's elements, from `first` on. */
static inline void
widen(const void *values, int32_t dtype, uint64_t first, uint32_t count, float *out)
{
    if (dtype == BERTH_F32)
        for (uint32_t i = 0; i < count; i++)
            out[i] = berthi_core_load(values, BERTH_F32, first + i);
    else if (dtype == BERTH_BF16)
        for (uint32_t i = 0; i < count; i++)
            out[i] = berthi_core_load(values, BERTH_BF16, first + i);
    else
        for (uint32_t i = 0; i < count; i++)
            out[i] = berthi_core_load(values, BERTH_F16, first + i);
}

/* Of two heads. */
static inline float
sum_products(const float *a, const float *b, uint32_t count)
{
    float lanes[LANES] = { 0.0f };
    uint32_t first = 0;

    for (; first + LANES <= count; first += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lanes[k] = berthi_core_add_product(lanes[k], a[first + k], b[first + k]);
    for (uint32_t k = 0; first + k < count; k++)
        lanes[k] = berthi_core_add_product(lanes[k], a[first + k], b[first + k]);
    return join_lanes(lanes, LANES);
}

/* Of a row of any length. */
static inline float
sum_squares(const void *values, int32_t dtype, uint64_t first, uint64_t count)
{
    float lanes[BERTHI_NORM_LANES] = { 0.0f };
    float some[BERTHI_NORM_LANES];

    for (uint64_t i = 0; i < count; i += BERTHI_NORM_LANES) {
        const uint64_t left = count - i;
        const uint32_t there = left < BERTHI_NORM_LANES ? (uint32_t)left : BERTHI_NORM_LANES;

        widen(values, dtype, first + i, there, some);
        for (uint32_t k = 0; k < there; k++)
            lanes[k] = berthi_core_add_product(lanes[k], some[k], some[k]);
    }
    return join_lanes(lanes, BERTHI_NORM_LANES);
}

#endif
