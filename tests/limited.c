/* SPDX-License-Identifier: Apache-2.0 */
/* limited.c - a limit of memory just above what is in use; see limited.h. */
#define _DEFAULT_SOURCE

#include "tests/limited.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/t.h"

/* What RLIMIT_DATA counts. Without memory of its own: there may be none. */
static uint64_t
data_bytes(void)
{
    unsigned long long kib = 0;
    char text[8192];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    const char *line;

    if (fd >= 0)
        (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    line = strstr(text, "VmData:");
    CHECK(line != NULL && sscanf(line, "VmData: %llu", &kib) == 1);
    return (uint64_t)kib << 10;
}

static void
set_limit(rlim_t bytes)
{
    struct rlimit limit;

    CHECK_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
}

void
limited_begin(uint64_t room)
{
    (void)malloc_trim(0);
    set_limit(data_bytes() + room);
}

void
limited_end(void)
{
    set_limit(RLIM_INFINITY);
}
