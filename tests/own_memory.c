/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */

#include "tests/own_memory.h"

#include <stdlib.h>

void *
own_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    void *memory = NULL;

    (void)user;
    (void)purpose;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

void
own_free(void *user, void *memory, size_t bytes, size_t alignment, const char *purpose)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    (void)purpose;
    free(memory);
}
