/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - see input.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/grow.h"

/* Read at once, at least. */
#define PIECE_BYTES ((size_t)65536)

bool
input_is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

/* One read; 0 at the end, -1 after a failure. */
static ssize_t
read_some(int fd, char *into, size_t room)
{
    ssize_t n;

    do
        n = read(fd, into, room);
    while (n < 0 && errno == EINTR);
    return n;
}

/* As input_read(), but what has been read stays there after a failure, too. */
static berth_status
read_all(const cli_command *command, const char *what, int fd, size_t limit, char **out,
         size_t *used)
{
    char size[BERTH_SIZE_CAPACITY];
    size_t capacity = 0;
    ssize_t n;

    do {
        char *const larger = grow(*out, &capacity, *used, PIECE_BYTES, 1);

        if (larger == NULL)
            return cli_failure(command, BERTH_ENOMEM, "out of memory");
        *out = larger;
        n = read_some(fd, *out + *used, capacity - *used);
        if (n < 0)
            return cli_failure(command, BERTH_EIO, "%s: %s", what, strerror(errno));
        *used += (size_t)n;
        if (*used > limit)
            return cli_failure(command, BERTH_EINVAL, "%s: more than %s", what,
                               berth_size_format(limit, size));
    } while (n > 0);
    return BERTH_OK;
}

berth_status
input_read(const cli_command *command, const char *what, int fd, size_t limit, char **out,
           size_t *out_bytes)
{
    berth_status status;

    *out = NULL;
    *out_bytes = 0;
    status = read_all(command, what, fd, limit, out, out_bytes);
    if (status == BERTH_OK)
        return BERTH_OK;
    free(*out);
    *out = NULL;
    *out_bytes = 0;
    return status;
}
