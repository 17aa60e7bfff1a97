/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/paths.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *
berthi_arena_format(berthi_arena *arena, const char *format, ...)
{
    va_list arguments;
    int length;
    char *text;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return NULL;
    text = berthi_arena_alloc(arena, (uint64_t)length + 1, 1);
    if (text == NULL)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

const char *
berthi_path_join(berthi_arena *arena, const char *folder, const char *name)
{
    const size_t length = strlen(folder);
    const bool is_separate = length > 0 && folder[length - 1] != '/';

    return berthi_arena_format(arena, "%s%s%s", folder, is_separate ? "/" : "", name);
}

bool
berthi_path_has_suffix(const char *path, const char *suffix)
{
    const size_t length = strlen(path);
    const size_t suffix_length = strlen(suffix);

    return length >= suffix_length
           && memcmp(path + length - suffix_length, suffix, suffix_length) == 0;
}

bool
berthi_path_has_prefix(const char *path, const char *prefix)
{
    return strncmp(path, prefix, strlen(prefix)) == 0;
}
