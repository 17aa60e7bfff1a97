/* SPDX-License-Identifier: Apache-2.0 */
/* map_search.cuh - the code of an 8-bit map by the borders between its codes. */
#ifndef BERTH_KERNELS_MAP_SEARCH_CUH
#define BERTH_KERNELS_MAP_SEARCH_CUH

#include "kernels/core.h"
#include "kernels/simt.h"

/* The borders strictly below, by halves; NaN is above none of them. */
SIMT_INLINE uint32_t
map_search(float scaled, const uint32_t *borders)
{
    uint32_t code = 0;

    SIMT_UNROLL
    for (uint32_t step = 128; step > 0; step /= 2)
        if (scaled > berthi_core_float(borders[code + step - 1]))
            code += step;
    return code;
}

#endif
