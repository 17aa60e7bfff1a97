/* SPDX-License-Identifier: Apache-2.0 */
/* shard_name.c - the path rule: which names an index may give to its shards. */
#include <string.h>

#include "kernels/utf8.h"
#include "loader/index.h"

#define SUFFIX ".safetensors"
#define MAX_SHARD_NAME 1024u
#define MAX_COMPONENT 255u
#define MAX_COMPONENTS 4u

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
berthi_shard_name_problem(const char *name, uint64_t length)
{
    const size_t suffix = sizeof SUFFIX - 1;
    const char *problem;
    uint64_t begin = 0;
    uint32_t components = 1;

    if (length == 0 || length > MAX_SHARD_NAME)
        return "is not 1 to 1024 bytes long";
    problem = find_character_problem(name, length);
    if (problem != NULL)
        return problem;
    if (name[0] == '/')
        return "is an absolute path";
    for (uint64_t i = 0; i < length; i++)
        if (name[i] == '/') {
            problem = find_component_problem(name + begin, i - begin);
            if (problem != NULL)
                return problem;
            begin = i + 1;
            components++;
        }
    problem = find_component_problem(name + begin, length - begin);
    if (problem != NULL)
        return problem;
    if (components > MAX_COMPONENTS)
        return "has more than 4 components";
    if (length < suffix || memcmp(name + length - suffix, SUFFIX, suffix) != 0)
        return "does not end in " SUFFIX;
    return NULL;
}
