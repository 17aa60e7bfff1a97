/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - what the 4-bit products of all levels agree on. */
#ifndef BERTH_KERNELS_PRODUCT_H
#define BERTH_KERNELS_PRODUCT_H

#include "kernels/core.h"
#include "kernels/kernel.h"

/*
 * The 16 values as inputs of this dtype meet them: rounded to bf16 for bf16
 * inputs, on every level, so that the fastest one may multiply in that type.
 */
static inline void
berthi_product_values(const uint32_t *values, int32_t dtype, float *out)
{
    for (uint32_t code = 0; code < 16; code++) {
        const float value = berthi_core_float(values[code]);

        out[code] = dtype == BERTH_BF16 ? berthi_core_from_bf16(berthi_core_to_bf16(value))
                                        : value;
    }
}

/* Rows that do not begin on a block border are for the reference. */
static inline bool
berthi_product_has_whole_rows(const berthi_product_arguments *a)
{
    return a->columns % a->block_size == 0;
}

/* Of the scratch, the first place that a load of 64 bytes need not straddle. */
static inline void *
berthi_product_aligned(const berthi_product_arguments *a)
{
    return (void *)(((uintptr_t)a->scratch + 63) / 64 * 64);
}

#endif
