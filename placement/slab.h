/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.h - what of a weight lies in memory, part by part, and how much that is: the
 * one home of berths' sizes. Planner and loader ask here.
 *
 * A berth holds a weight's codes and statistics one behind the other, each from a
 * multiple of 256 on. What is the same for all weights of an encoding (tables) or a
 * few numbers (the offset of double quantization) has no place in it.
 */
#ifndef BERTH_PLACEMENT_SLAB_H
#define BERTH_PLACEMENT_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "quant/stored.h"

/* Of every part, berth, unit and slot; what kernels and copies want. */
#define BERTHI_SLAB_ALIGNMENT UINT64_C(256)

typedef struct berthi_slab_part {
    int32_t role;    /* berthi_role */
    int32_t dtype;
    uint64_t offset; /* in the berth */
    uint64_t bytes;
} berthi_slab_part;

/* Values, or codes, absmax, second level, row maxima. */
#define BERTHI_SLAB_PARTS 3u

/*
 * The parts of a weight that is stored so; returns how many. *out_bytes is the
 * berth's size. False where berthi_stored_list() has none.
 */
bool berthi_slab_can_list(const berthi_storage *storage, const uint64_t *shape,
                          uint32_t rank, berthi_slab_part parts[BERTHI_SLAB_PARTS],
                          uint32_t *out_count, uint64_t *out_bytes);

/* `bytes` rounded up to the alignment; UINT64_MAX on overflow. */
uint64_t berthi_slab_round(uint64_t bytes);

/* Bytes of plain values that are encoded at a time: what of them lies on a device. */
#define BERTHI_SLAB_PIECE (UINT64_C(4) << 20)

/* In the piece's place when there are no more values: the offset, then scratch. */
#define BERTHI_SLAB_RESULT UINT64_C(1024)

/*
 * What the second level of so many blocks takes behind their absmax; 0: it finds room in
 * the piece's place, as it does but for the largest of weights.
 */
uint64_t berthi_slab_second_scratch(uint64_t blocks);

/*
 * Memory beside the berth while such a weight is quantized: a piece of its values, and
 * the first-level absmax of double quantization, which is whole only at its end.
 */
uint64_t berthi_slab_scratch(const berthi_storage *storage, uint64_t elements);
/*
 * Host memory that weights are turned in, of which the largest and all together take so much:
 * one is filled while the one before is quantized.
 */
uint64_t berthi_slab_turned(uint64_t largest, uint64_t all);

#endif
