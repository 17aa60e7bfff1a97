/* SPDX-License-Identifier: Apache-2.0 */
/* fence.c - an allocator that looks behind its blocks. */
#include "tests/fence.h"

#include <stdlib.h>
#include <string.h>

#define FENCE_BYTES 16u
#define FILL 0xA5

static uint64_t broken;

static void *
fenced_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    void *const memory = malloc(bytes + FENCE_BYTES);

    (void)user;
    (void)alignment;
    (void)purpose;
    if (memory != NULL)
        memset(memory, FILL, bytes + FENCE_BYTES);
    return memory;
}

static void
fenced_free(void *user, void *memory, size_t bytes, size_t alignment, const char *purpose)
{
    const unsigned char *const fence = (const unsigned char *)memory + bytes;

    (void)user;
    (void)alignment;
    (void)purpose;
    for (size_t i = 0; i < FENCE_BYTES; i++)
        broken += fence[i] != FILL;
    free(memory);
}

berth_context *
fence_context(void)
{
    const berth_allocator allocator = { NULL, fenced_alloc, fenced_free };
    berth_context_options options;
    berth_context *context = NULL;

    berth_context_options_init(&options);
    options.allocator = &allocator;
    if (berth_context_create(&options, &context, NULL) != BERTH_OK)
        exit(1);
    return context;
}

uint64_t
fence_broken(void)
{
    return broken;
}
