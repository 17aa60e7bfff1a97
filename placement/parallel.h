/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel.h - what of each tensor one rank of tensor parallelism holds: which
 * dimension is cut, and where.
 *
 *   queries, keys, values, gate, up     rows: a share of the outputs
 *   output projection, down             columns: a share of the inputs
 *   embedding, head                     rows: a share of the words
 *   norms, routers, biases of sums,     whole, on every rank
 *   projections to latents
 *
 * Of a stack of experts each is cut so. Where gate and up are one matrix, a rank has its share
 * of either: two ranges, or one where they alternate. GLM 4 and Phi 3 have one range of what is
 * fused, as it lies: their tp_plan gathers what it gives.
 *
 * As vLLM and the tp_plan of transformers cut them; where a class of transformers leaves whole
 * what the other cuts (attention of DeepSeek V3, shared experts), it is cut. Rows of queries,
 * keys and values are cut between heads; with fewer heads of keys than ranks, each of these
 * heads is on several ranks. Only families whose tensors are all known are cut.
 *
 * Pure: names, shapes and the numbers of config.json.
 */
#ifndef BERTH_PLACEMENT_PARALLEL_H
#define BERTH_PLACEMENT_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "placement/shape.h"
#include "quant/classify.h"

#define BERTHI_PARALLEL_RANKS 1024u /* at most */

/* What of a tensor a berth holds. */
typedef struct berthi_slice {
    uint64_t first;
    uint64_t count;
    int32_t along;  /* berth_slicing; NONE: all of it, the others are 0 */
    uint32_t parts; /* of the dimension, of each of which it holds these; 0: it is one */
} berthi_slice;

/* One rank of a model. */
typedef struct berthi_parallel {
    uint32_t rank;
    uint32_t ranks;
    const char *model_type;
    uint64_t hidden;
    uint64_t heads;
    uint64_t kv_heads;
    bool gathers_heads;  /* each rank has all queries, keys and values after all */
    bool gathers_widths; /* and what gate and up give */
} berthi_parallel;

/* A tensor as it is stored, values unpacked. */
typedef struct berthi_parallel_tensor {
    const char *name; /* not ended by a NUL */
    uint64_t name_length;
    const uint64_t *shape;
    uint32_t rank;
} berthi_parallel_tensor;

/*
 * `shape` NULL: there is no config.json. Fails with ARGUMENT (no rank of so many) and
 * UNSUPPORTED (a family that is not known well enough).
 */
berth_status berthi_parallel_init(berthi_parallel *out, uint32_t rank, uint32_t ranks,
                                  const berthi_shape *shape, berth_error *error);
/*
 * The slice of this rank. `where` is for errors: UNSUPPORTED (a tensor that the family
 * is not known to have), ARGUMENT (it cannot be shared evenly). Words need not be even.
 */
berth_status berthi_parallel_divide(const berthi_parallel *parallel,
                                    const berthi_parallel_tensor *tensor,
                                    const berthi_about *where, berthi_slice *out,
                                    berth_error *error);
/* What of the model one rank computes: heads, widths and words. */
void berthi_parallel_shrink(const berthi_parallel *parallel, berthi_shape *shape);

/* ----------------------------------------------------------------- any slice */

/* The dimension that is cut; 0 where none is. */
static inline uint32_t
berthi_slice_dimension(const berthi_slice *slice)
{
    return slice->along > BERTH_SLICING_ROWS
               ? (uint32_t)(slice->along - BERTH_SLICING_ROWS)
               : 0;
}
static inline uint64_t
berthi_slice_parts(const berthi_slice *slice)
{
    return slice->parts > 1 ? slice->parts : 1;
}
static inline bool
berthi_slice_is_same(const berthi_slice *a, const berthi_slice *b)
{
    return a->along == b->along && a->first == b->first && a->count == b->count
           && a->parts == b->parts;
}

/* A tensor as `outer` times `size` stretches of `inner` values; of `size` a slice has some. */
typedef struct berthi_slice_view {
    uint64_t outer;
    uint64_t size;
    uint64_t inner;
} berthi_slice_view;

/* Of a slice that is inside. */
berthi_slice_view berthi_slice_look(const berthi_slice *slice, const uint64_t *shape,
                                    uint32_t rank);
/* True when the tensor has such rows, columns or depths, and its dimension such parts. */
bool berthi_slice_is_inside(const berthi_slice *slice, const uint64_t *shape,
                            uint32_t rank);
/* The shape of what the slice holds, of one that is inside. */
void berthi_slice_shape(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
                        uint64_t *out);
/* Bytes of the slice's rows of a stored tensor that has `rows` of them, all as large. */
static inline uint64_t
berthi_slice_share(const berthi_slice *slice, uint64_t rows, uint64_t bytes)
{
    return slice->along == BERTH_SLICING_NONE ? bytes : bytes / rows * slice->count;
}
/*
 * What of a tensor, which has `dims`, belongs to a slice of the matrix that it is part of:
 * codes, or scales of which each is for `block` rows (columns, where those are cut). Scales for
 * all of them are whole. False: what is coded together, or shares a scale, would be split.
 */
bool berthi_slice_can_take(const berthi_slice *slice, const uint64_t *shape, uint64_t block,
                           const uint64_t *dims, uint32_t rank, berthi_slice *out);
/*
 * True where a slice of what is doubly quantized has blocks that share a second level with blocks
 * outside of it: it has one level, absmax themselves.
 */
bool berthi_slice_splits_levels(const berthi_slice *slice, const uint64_t *shape, uint32_t rank,
                                const berthi_quantized *record);
/*
 * NULL, or why a tensor cannot be cut so: blocks or bytes would be. `record` NULL: plain
 * numbers of `dtype`. The slice is inside.
 */
const char *berthi_slice_refusal(const berthi_slice *slice, const uint64_t *shape,
                                 uint32_t rank, int32_t dtype,
                                 const berthi_quantized *record);

#endif
