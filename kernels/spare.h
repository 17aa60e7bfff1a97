/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spare.h - staging buffers that outlive their job, where the context's owner has asked
 * for that: the next job finds them there, touched already.
 *
 * They count as allocated, for staging. What a buffer needs to be kept lies in the buffer.
 * They go when something else finds no memory, when the context is trimmed, at its end.
 */
#ifndef BERTH_KERNELS_SPARE_H
#define BERTH_KERNELS_SPARE_H

#include "kernels/memory.h"

/* As berthi_memory_aligned() for RING, but for what it takes from. Any thread. */
void *berthi_spare_alloc(berth_context *context, uint64_t bytes, uint64_t alignment);
/* Keeps it if there is room. No device knows it any more. NULL is allowed. */
void berthi_spare_free(berth_context *context, void *memory, uint64_t bytes,
                       uint64_t alignment);
/* Gives all of them back; returns their bytes. */
uint64_t berthi_spare_trim(berth_context *context);

#endif
