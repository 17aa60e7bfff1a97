/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch_grid.h - what the files of launch.h have in common: which of the kernels of an
 * operation is meant, and the grid that it gets. For these files alone.
 */
#ifndef BERTH_KERNELS_LAUNCH_GRID_H
#define BERTH_KERNELS_LAUNCH_GRID_H

#include "kernels/launch.h"

#define OF_DTYPES(prefix, suffix)                                                     \
    { KERNEL_##prefix##_bf16##suffix, KERNEL_##prefix##_f16##suffix,                  \
      KERNEL_##prefix##_f32##suffix }

/* The place of a dtype in OF_DTYPES, or a refusal. */
berth_status berthi_launch_find_dtype(int32_t dtype, size_t *out, berth_error *error);
berth_status berthi_launch_find_block(uint32_t block_size, uint32_t *out_log2,
                                      berth_error *error);
/* The last step: no CTA is no launch, and more than a grid holds a refusal. */
berth_status berthi_launch_set_grid(berthi_launch *out, berthi_kernel_id kernel,
                                    uint32_t threads, uint64_t ctas, berth_error *error);

/* Tiles of whole lines are turned. */
static inline berthi_tiles
berthi_tiles_of(const void *from, uint64_t row_bytes, uint64_t rows, uint32_t tile_bytes,
                uint32_t tile_rows)
{
    return (berthi_tiles){ .of = { .from = from, .row_bytes = row_bytes, .rows = rows,
                                   .tile_bytes = tile_bytes, .tile_rows = tile_rows,
                                   .is_turned = tile_bytes == WIDE_LINE } };
}

static inline bool
berthi_is_aligned(const void *address, uintptr_t bytes)
{
    return (uintptr_t)address % bytes == 0;
}

#endif
