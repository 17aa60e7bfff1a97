/* SPDX-License-Identifier: Apache-2.0 */
/* blamed.c - see blamed.h. */
#include "loader/blamed.h"

#include <string.h>

berth_status
berthi_blamed_fail(berthi_blamed *blamed, berth_reason reason, const berthi_about *about,
                   const char *what, berth_error *error)
{
    *blamed = (berthi_blamed){ about->tensor, about->tensor_length };
    return berthi_fail(error, reason, about, "%s", what);
}

berthi_blamed
berthi_blamed_move(berthi_blamed blamed, char *text)
{
    if (blamed.name == NULL)
        return blamed;
    memmove(text, blamed.name, (size_t)blamed.length);
    return (berthi_blamed){ text, blamed.length };
}
