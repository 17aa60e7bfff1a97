/* SPDX-License-Identifier: Apache-2.0 */
/*
 * changes.c - see changes.h. "is short of 256 B, cuda:1 of 1.00 KiB and disk of 2.00 GiB:
 * ..." is read; what the error is about is the first.
 */
#include "tests/changes.h"

#include <stdio.h>
#include <string.h>

#include "tests/t.h"

bool
changes_are_several(const berth_error *error)
{
    return strstr(error->message, " together ") != NULL;
}

uint64_t
changes_of(const berth_error *error, const char *tier)
{
    const bool is_first = strcmp(tier, error->tensor) == 0;
    char wanted[64];
    char size[32];
    uint64_t bytes = 0;
    const char *at;
    size_t length;

    snprintf(wanted, sizeof wanted, " %s of ", is_first ? "short" : tier);
    at = strstr(error->message, wanted);
    if (at == NULL)
        return 0;
    at += strlen(wanted);
    length = strcspn(at, "B"); /* the last letter of all units */
    snprintf(size, sizeof size, "%.*sB", (int)length, at);
    CHECK_EQ(berth_size_parse(size, &bytes, NULL), BERTH_OK);
    return bytes;
}
