/* SPDX-License-Identifier: Apache-2.0 */
/* own_memory.h - the allocator of a caller who has nothing better than malloc. */
#ifndef BERTH_TESTS_OWN_MEMORY_H
#define BERTH_TESTS_OWN_MEMORY_H

#include <stddef.h>

/* For berth_allocator; `user` and `purpose` are not looked at. */
void *own_alloc(void *user, size_t bytes, size_t alignment, const char *purpose);
void own_free(void *user, void *memory, size_t bytes, size_t alignment,
              const char *purpose);

#endif
