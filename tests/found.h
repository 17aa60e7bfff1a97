/* SPDX-License-Identifier: Apache-2.0 */
/*
 * found.h - paths and names that calls of the system find, in tests.
 */
#ifndef BERTH_TESTS_FOUND_H
#define BERTH_TESTS_FOUND_H

#include <stdbool.h>
#include <stdint.h>

const char *found_path(const char *folder, const char *name);

typedef struct found_names {
    int count;
    int stop_after;
    uint64_t sum;
} found_names;

int found_count(void *user, const char *name);

/* What the kernel's count says, and what looking at each page says. */
int64_t found_cached_by(bool is_by_page, int fd, uint64_t offset, uint64_t bytes);

#endif
