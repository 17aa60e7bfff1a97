/* SPDX-License-Identifier: Apache-2.0 */
/* printed.h - what a tool writes to its output, as text. */
#ifndef BERTH_TESTS_PRINTED_H
#define BERTH_TESTS_PRINTED_H

#include <stddef.h>

#include "tools/output.h"

/* What is written from here on goes to a new file, whose path this is. */
const char *printed_begin(output *out);
/* All of it, until the test ends; `length` NULL: nobody asks. */
const char *printed_end(output *out, const char *path, size_t *length);

/* Instead of a file: what the buffer has, which begins anew; until something else is written. */
static inline const char *
printed_take(output *out)
{
    out->buffer[out->used] = '\0';
    out->used = 0;
    return out->buffer;
}

#endif
