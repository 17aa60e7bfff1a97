/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cargo_share.h - slices of weights that stay in an encoding that berth does not make: what
 * they have of each tensor that the weight is stored in.
 *
 *   stacks of experts    rows of the first dimension, of every tensor
 *   MXFP4                columns in groups, and depths: of its codes and their scales
 *   FP8, packed FP4      rows and columns of a matrix: of its codes, and of the scales of
 *                        blocks, none of which a cut splits
 *                        (scales of activations: one, which is for all)
 */
#ifndef BERTH_LOADER_CARGO_SHARE_H
#define BERTH_LOADER_CARGO_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/checkpoint.h"
#include "loader/cut.h"
#include "placement/parallel.h"

typedef struct berthi_share {
    uint64_t entry; /* of the checkpoint's table */
    uint64_t bytes;
    berthi_cut cut;
} berthi_share;

/*
 * Of tensor `number`: the weight's own, or, from 1 on, a companion. False: what belongs
 * together would be split, or the encoding is not known so well; all of it is in `out` then.
 */
bool berthi_share_can_get(const berth_checkpoint *checkpoint,
                          const berthi_quantized *record, const berthi_slice *slice,
                          uint32_t number, berthi_share *out);

/* A matrix of codes, beside scales for blocks of them. */
static inline bool
berthi_share_has_blocks(const berthi_quantized *record)
{
    return record->rank == 2
           && (record->encoding == BERTH_ENCODING_FP8_BLOCK
               || record->encoding == BERTH_ENCODING_FP4_PACKED);
}

/* Which bytes the slice is of a tensor that has `bits` for each so many `values` of the view. */
berthi_cut berthi_share_cut_by(const berthi_slice *slice, const berthi_slice_view *view,
                               uint64_t values, uint64_t bits);
/* Which bytes of a tensor of `shape` the slice is; a value has `bits`. */
berthi_cut berthi_share_cut(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
                            uint32_t bits);

#endif
