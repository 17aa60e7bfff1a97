/* SPDX-License-Identifier: Apache-2.0 */
/* printed.c - see printed.h. */
#define _POSIX_C_SOURCE 200809L

#include "tests/printed.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fixture.h"

const char *
printed_begin(output *out)
{
    const char *const path = fixture_format("%s/out", fixture_folder());

    output_init(out, open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    return path;
}

const char *
printed_end(output *out, const char *path, size_t *length)
{
    const char *text;
    char *bytes;

    output_flush(out);
    close(out->fd);
    bytes = fixture_read(path, length);
    text = fixture_format("%s", bytes);
    free(bytes);
    return text;
}
