/* SPDX-License-Identifier: Apache-2.0 */
/* shard_name.c - which names an index may give to its shards. */
#include <string.h>

#include "kernels/text.h"
#include "loader/index.h"
#include "loader/listing.h"
#include "loader/paths.h"

#define SUFFIX BERTHI_SINGLE_SUFFIX

const char *
berthi_shard_name_problem(const char *name, uint64_t length)
{
    const char *const problem = berthi_path_problem(name, length);

    if (problem != NULL)
        return problem;
    if (!berthi_text_ends((berthi_text){ name, length }, SUFFIX))
        return "does not end in " SUFFIX;
    return NULL;
}
