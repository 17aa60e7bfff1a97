/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h - texts of paths, built in an arena, and which of them stay inside. */
#ifndef BERTH_LOADER_PATHS_H
#define BERTH_LOADER_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/memory.h"

/* Of a whole path, with its NUL: PATH_MAX of Linux. */
#define BERTHI_PATH_CAPACITY 4096

/* printf into the arena; NULL: out of memory. */
__attribute__((format(printf, 2, 3))) const char *
berthi_arena_format(berthi_arena *arena, const char *format, ...);

/* `folder`/`name`; `name` alone when `folder` is "". NULL: out of memory. */
const char *berthi_path_join(berthi_arena *arena, const char *folder, const char *name);

/* A folder as callers are told it, who join names by themselves: "" is ".". */
static inline const char *
berthi_path_told(const char *folder)
{
    return folder[0] != '\0' ? folder : ".";
}

bool berthi_path_has_suffix(const char *path, const char *suffix);
bool berthi_path_has_prefix(const char *path, const char *prefix);

/*
 * The path rule: 1 to 1024 bytes of UTF-8 without control characters, backslashes
 * and colons, not absolute, of at most 4 components. A component has 1 to 255 bytes
 * and is neither `.` nor `..`. Returns what is wrong with a path below a model's
 * folder, as the end of a sentence; NULL when nothing is.
 */
const char *berthi_path_problem(const char *path, uint64_t length);

#endif
