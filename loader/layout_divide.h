/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_divide.h - the inside of a layout, and its division. Only for
 * layout*.c.
 */
#ifndef BERTH_LOADER_LAYOUT_DIVIDE_H
#define BERTH_LOADER_LAYOUT_DIVIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "loader/layout.h"

#define BERTHI_LAYOUT_ALIGNMENT 8u /* of a payload, by padding the header */

/* A shard. */
typedef struct berthi_layout_part {
    uint64_t payload_bytes;
    uint64_t header_bytes;
    uint32_t first; /* of its tensors in `places` */
    uint32_t count;
    uint32_t known; /* places whose offset is final, counted from the first */
    /*
     * Filling can begin again before this shard: at `fill_begin` of the fill
     * order, when `closed` shards were done and nothing else was pending.
     */
    uint32_t fill_begin;
    uint32_t closed;
} berthi_layout_part;

struct berthi_layout {
    berth_context *context;
    berthi_layout_tensor *tensors; /* the caller's */
    const berthi_layout_pair *pairs;
    uint32_t pair_count;
    uint32_t count;
    uint64_t max_shard_bytes;
    uint64_t frame_bytes; /* of a header without entries */
    /* Numbers of tensors, in one allocation: */
    uint32_t *by_name;
    uint32_t *by_fill;
    uint32_t *by_content; /* dtype, then name */
    uint32_t *places;     /* shard after shard, each in the order of its bytes */
    berthi_layout_part *shards;
    uint64_t shard_capacity;
    uint32_t shard_count;
    /* Where the next division begins; at the end: nothing has changed. */
    uint32_t changed_begin;
    uint32_t changed_closed;
};

/* Divides from where something has changed, at first all. */
berth_status berthi_layout_divide_changed(berthi_layout *layout, uint32_t *out_first,
                                          berth_error *error);

/* Length of a header without padding, by the offsets as they are. */
uint64_t berthi_layout_part_text_bytes(const berthi_layout *layout,
                                       const berthi_layout_part *part);

/* The tensor at a place < count of a shard. */
static inline berthi_layout_tensor *
berthi_layout_part_tensor(const berthi_layout *layout, const berthi_layout_part *part,
                          uint32_t place)
{
    return &layout->tensors[layout->places[part->first + place]];
}

#endif
