/* SPDX-License-Identifier: Apache-2.0 */
/* descriptors.c - see descriptors.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static void
occupy_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            return;
}

/* Where that fails a model with too many shards is refused, and told why. */
static void
raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void
descriptors_init(void)
{
    occupy_streams();
    raise_limit();
}
