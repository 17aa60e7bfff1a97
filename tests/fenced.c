/* SPDX-License-Identifier: Apache-2.0 */
/* fenced.c - see fenced.h */
#include "tests/fenced.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/t.h"

#define FENCE 64u
#define FRESH 0xA5

fenced_output
fenced_begin(size_t count, size_t odd)
{
    fenced_output out = { .memory = malloc(FENCE + odd + count), .count = count };

    if (out.memory == NULL)
        abort();
    memset(out.memory, FRESH, FENCE + odd + count);
    out.bytes = out.memory + FENCE + odd;
    return out;
}

static bool
is_fence_whole(const fenced_output *out)
{
    for (const uint8_t *at = out->memory; at < out->bytes; at++)
        if (*at != FRESH)
            return false;
    return true;
}

void
fenced_end(fenced_output *tested, fenced_output *expected, const char *what)
{
    CHECK(is_fence_whole(tested));
    if (!CHECK_MEM(tested->bytes, expected->bytes, expected->count))
        T_NOTE("%s", what);
    free(tested->memory);
    free(expected->memory);
}

uint8_t *
fenced_copy(const void *bytes, size_t count, size_t odd, uint8_t **out_memory)
{
    *out_memory = malloc(odd + count);
    if (*out_memory == NULL)
        abort();
    memcpy(*out_memory + odd, bytes, count);
    return *out_memory + odd;
}
