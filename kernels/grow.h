/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow.h - arrays that get larger as they are filled: copied to new memory of the context, or
 * of an arena. The pointer stays its owner's until there is another one, so that a failure
 * leaves everything as it was.
 */
#ifndef BERTH_KERNELS_GROW_H
#define BERTH_KERNELS_GROW_H

#include <stdint.h>

#include "kernels/memory.h"

typedef struct berthi_growth {
    uint64_t size;   /* bytes of an element                */
    uint64_t used;   /* elements that are there, and stay  */
    uint64_t before; /* elements that there was room for   */
    uint64_t after;  /* elements that there will be room for */
} berthi_growth;

/* Twice the room, at first `first`; UINT64_MAX, for which there is no memory, beyond 2^63. */
static inline uint64_t
berthi_grown(uint64_t capacity, uint64_t first)
{
    if (capacity > UINT64_MAX / 2)
        return UINT64_MAX;
    return 2 * capacity > first ? 2 * capacity : first;
}

/* A copy of the elements with room for `after`; nothing is given back. NULL: out of memory. */
void *berthi_memory_copy(berth_context *context, berthi_purpose purpose, const void *array,
                         const berthi_growth *growth);
/* The same, and `array` is given back, unless memory is out. NULL is an empty array. */
void *berthi_memory_grow(berth_context *context, berthi_purpose purpose, void *array,
                         const berthi_growth *growth);
/* In an arena, where the one before stays, too, until all of it goes. */
void *berthi_arena_grow(berthi_arena *arena, const void *array, const berthi_growth *growth);

#endif
