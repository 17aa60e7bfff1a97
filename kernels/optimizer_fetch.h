/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_fetch.h - what an update will soon need is asked of memory, all its streams. */
#ifndef BERTH_KERNELS_OPTIMIZER_FETCH_H
#define BERTH_KERNELS_OPTIMIZER_FETCH_H

#include "kernels/optimizer.h"
#include "kernels/simd_blocks.h"

/* As the block at `first` begins; `states` as many as the kind has. */
ALWAYS_INLINE void
fetch_update_ahead(const berthi_update_arguments *a, uint32_t states, uint64_t first)
{
    fetch_ahead(a->parameter, a->dtype, first, BERTHI_UPDATE_BLOCK);
    fetch_ahead(a->gradient, a->gradient_dtype, first, BERTHI_UPDATE_BLOCK);
    if (a->master != NULL)
        fetch_ahead(a->master, BERTH_F32, first, BERTHI_UPDATE_BLOCK);
    for (uint32_t k = 0; k < states; k++)
        if (a->state[k].values != NULL)
            fetch_ahead(a->state[k].values, BERTH_F32, first, BERTHI_UPDATE_BLOCK);
        else
            fetch_bytes_ahead(a->state[k].codes, first, BERTHI_UPDATE_BLOCK);
}

#endif
