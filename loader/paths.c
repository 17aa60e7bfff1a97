/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - texts of paths, and the path rule; see paths.h. */
#include "loader/paths.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/text.h"
#include "kernels/utf8.h"

#define MAX_PATH 1024u
#define MAX_COMPONENT 255u
#define MAX_COMPONENTS 4u

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
    return berthi_text_ends(berthi_text_of(path), suffix);
}

bool
berthi_path_has_prefix(const char *path, const char *prefix)
{
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

/* ------------------------------------------------------------------ path rule */

static const char *
find_component_problem(const char *name, uint64_t length)
{
    if (length == 0)
        return "has an empty component";
    if (name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')))
        return "has a component `.` or `..`";
    return length > MAX_COMPONENT ? "has a component of more than 255 bytes" : NULL;
}

static const char *
find_character_problem(const char *name, uint64_t length)
{
    if (berthi_utf8_check((const unsigned char *)name, (size_t)length) < length)
        return "is not UTF-8";
    for (uint64_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < 0x20)
            return "contains a control character";
        if (name[i] == '\\' || name[i] == ':')
            return "contains a backslash or a colon";
    }
    return NULL;
}

const char *
berthi_path_problem(const char *path, uint64_t length)
{
    const char *problem;
    uint64_t begin = 0;
    uint32_t components = 1;

    if (length == 0 || length > MAX_PATH)
        return "is not 1 to 1024 bytes long";
    problem = find_character_problem(path, length);
    if (problem != NULL)
        return problem;
    if (path[0] == '/')
        return "is an absolute path";
    for (uint64_t i = 0; i < length; i++)
        if (path[i] == '/') {
            problem = find_component_problem(path + begin, i - begin);
            if (problem != NULL)
                return problem;
            begin = i + 1;
            components++;
        }
    problem = find_component_problem(path + begin, length - begin);
    if (problem != NULL)
        return problem;
    return components > MAX_COMPONENTS ? "has more than 4 components" : NULL;
}
