/* SPDX-License-Identifier: Apache-2.0 */
/* shard_name.c - which names an index may give to its shards. */
#include <string.h>

#include "loader/index.h"
#include "loader/listing.h"
#include "loader/paths.h"

#define SUFFIX BERTHI_SINGLE_SUFFIX

const char *
berthi_shard_name_problem(const char *name, uint64_t length)
{
    const size_t suffix = sizeof SUFFIX - 1;
    const char *const problem = berthi_path_problem(name, length);

    if (problem != NULL)
        return problem;
    if (length < suffix || memcmp(name + length - suffix, SUFFIX, suffix) != 0)
        return "does not end in " SUFFIX;
    return NULL;
}
