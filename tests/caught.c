/* SPDX-License-Identifier: Apache-2.0 */
/* caught.c - see caught.h. */
#define _POSIX_C_SOURCE 200809L

#include "tests/caught.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixture.h"

const char *const *caught_variables;

static int saved;
static const char *path;

const char *
caught_environment(const char *name)
{
    const char *const *const pairs = caught_variables;

    for (size_t n = 0; pairs != NULL && pairs[n] != NULL; n += 2)
        if (strcmp(pairs[n], name) == 0)
            return pairs[n + 1];
    return NULL;
}

void
caught_begin(void)
{
    int fd;

    path = fixture_format("%s/stderr", fixture_folder());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    saved = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

const char *
caught_end(void)
{
    char *const bytes = fixture_read(path, NULL);
    const char *const text = fixture_format("%s", bytes);

    free(bytes);
    dup2(saved, STDERR_FILENO);
    close(saved);
    return text;
}
