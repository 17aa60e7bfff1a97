/* SPDX-License-Identifier: Apache-2.0 */
/* launch_grid.c - see launch_grid.h */
#include "kernels/launch_grid.h"

#include <inttypes.h>

#include "kernels/base.h"
#include "kernels/number.h"

berth_status
berthi_launch_find_dtype(int32_t dtype, size_t *out, berth_error *error)
{
    *out = dtype == BERTH_BF16 ? 0 : dtype == BERTH_F16 ? 1 : 2;
    if (berthi_is_number(dtype))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL, "no kernel has values of dtype %d",
                       (int)dtype);
}

berth_status
berthi_launch_find_block(uint32_t block_size, uint32_t *out_log2, berth_error *error)
{
    for (*out_log2 = 5; *out_log2 <= 12; ++*out_log2)
        if (block_size == 1u << *out_log2)
            return BERTH_OK;
    *out_log2 = 0;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "no kernel has blocks of %" PRIu32 ": they are 32 to 4096, a power of two",
                       block_size);
}

berth_status
berthi_launch_set_grid(berthi_launch *out, berthi_kernel_id kernel, uint32_t threads,
                       uint64_t ctas, berth_error *error)
{
    out->kernel = KERNEL_NONE;
    out->threads = threads;
    out->ctas = 0;
    out->room_bytes = 0;
    out->matrices = 0;
    out->matrices_at = 0;
    if (ctas > BERTHI_MOST_CTAS)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "a grid of %" PRIu64 " CTAs, of which a GPU holds %" PRIu32, ctas,
                           BERTHI_MOST_CTAS);
    out->ctas = (uint32_t)ctas;
    if (ctas != 0)
        out->kernel = kernel;
    return BERTH_OK;
}
