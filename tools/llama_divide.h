/* SPDX-License-Identifier: Apache-2.0 */
/* llama_divide.h - one piece of memory for many arrays: sized and divided by one walk. */
#ifndef BERTH_TOOLS_LLAMA_DIVIDE_H
#define BERTH_TOOLS_LLAMA_DIVIDE_H

#include <stddef.h>
#include <stdint.h>

/* Sums up what is needed, or (with memory) divides it. */
typedef struct llama_divider {
    char *memory;
    uint64_t alignment; /* of every array */
    uint64_t used;
} llama_divider;

static inline void *
llama_divide(llama_divider *d, uint64_t count, uint64_t size)
{
    void *const at = d->memory != NULL ? d->memory + d->used : NULL;

    d->used += (count * size + d->alignment - 1) / d->alignment * d->alignment;
    return at;
}

#endif
