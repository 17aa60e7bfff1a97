/* SPDX-License-Identifier: Apache-2.0 */
/* grow.h - arrays that double. */
#ifndef BERTH_TOOLS_GROW_H
#define BERTH_TOOLS_GROW_H

#include <stddef.h>
#include <stdlib.h>

/*
 * Room for `more` elements beyond the `used` ones. Returns the array, which may
 * have moved, or NULL when memory is out: then the old one is still there.
 */
static inline void *
grow(void *array, size_t *capacity, size_t used, size_t more, size_t element)
{
    size_t wanted = *capacity > 0 ? *capacity : 64;
    void *larger;

    if (array != NULL && used + more <= *capacity)
        return array;
    while (wanted < used + more)
        wanted *= 2;
    larger = realloc(array, wanted * element);
    if (larger != NULL)
        *capacity = wanted;
    return larger;
}

#endif
