/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - the dtypes of what is computed with: bf16, f16 and f32. */
#ifndef BERTH_KERNELS_NUMBER_H
#define BERTH_KERNELS_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

/* What can be computed with, quantized, and decoded to. */
static inline bool
berthi_is_number(int32_t dtype)
{
    return dtype == BERTH_BF16 || dtype == BERTH_F16 || dtype == BERTH_F32;
}

/* Plain values too, which are decoded to one of these before anything is done with them. */
static inline bool
berthi_is_small_number(int32_t dtype)
{
    return dtype == BERTH_F8_E4M3;
}

/* Of one of these dtypes. */
static inline __attribute__((always_inline)) uint64_t
berthi_number_bytes(int32_t dtype)
{
    return dtype == BERTH_F32 ? 4 : 2;
}

#endif
