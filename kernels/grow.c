/* SPDX-License-Identifier: Apache-2.0 */
/* grow.c - see grow.h. */
#include "kernels/grow.h"

#include <string.h>

static void *
fill(void *larger, const void *array, const berthi_growth *growth)
{
    if (larger != NULL && growth->used > 0)
        memcpy(larger, array, (size_t)(growth->used * growth->size));
    return larger;
}

void *
berthi_memory_copy(berth_context *context, berthi_purpose purpose, const void *array,
                   const berthi_growth *growth)
{
    return fill(berthi_memory_array(context, purpose, growth->after, growth->size), array,
                growth);
}

void *
berthi_memory_grow(berth_context *context, berthi_purpose purpose, void *array,
                   const berthi_growth *growth)
{
    void *const larger = berthi_memory_copy(context, purpose, array, growth);

    if (larger != NULL)
        berthi_memory_free(context, purpose, array, growth->before * growth->size);
    return larger;
}

/* What any type of so many bytes can ask for. */
static uint64_t
alignment_of(uint64_t size)
{
    return berthi_min_u64(size & (0 - size), 8);
}

void *
berthi_arena_grow(berthi_arena *arena, const void *array, const berthi_growth *growth)
{
    uint64_t bytes;

    if (!berthi_can_mul(growth->after, growth->size, &bytes))
        return NULL;
    return fill(berthi_arena_alloc(arena, bytes, alignment_of(growth->size)), array, growth);
}
