/* SPDX-License-Identifier: Apache-2.0 */
/*
 * laid.h - what must hold of every layout, judged without its code: a naive
 * division, dense offsets, and headers that berth's own parser gives back.
 */
#ifndef BERTH_TESTS_LAID_H
#define BERTH_TESTS_LAID_H

#include <stdint.h>

#include "loader/layout.h"

/* A text that `put` of the writers appends to. Zero-initialised; free(bytes). */
typedef struct laid_text {
    char *bytes; /* a NUL behind them */
    uint64_t length;
    uint64_t capacity;
    uint64_t calls;
    uint64_t fails_at; /* the call that fails with DISK_FULL; 0: none */
} laid_text;

berth_status laid_put(void *user, const char *bytes, uint64_t size, uint64_t offset,
                      berth_error *error);

/* The whole name; static memory, the next call but three overwrites it. */
const char *laid_name(const berthi_layout_tensor *tensor);

/*
 * NULL, or the first thing wrong with a division: every tensor once, in the shard
 * that layout.h says for this limit, and there in its order, without gaps.
 */
const char *laid_problem(const berthi_layout *layout, uint64_t max_shard_bytes);

/*
 * NULL, or the first thing wrong with the header of a shard, which has no late
 * tensors: its length, its padding, what berth's parser makes of it.
 */
const char *laid_header_problem(berth_context *context, const berthi_layout *layout,
                                uint32_t shard, const berthi_layout_options *options);

#endif
