/* SPDX-License-Identifier: Apache-2.0 */
/* allocator.h - the C library's, as a program has it whose threads share large buffers. */
#ifndef BERTH_TOOLS_ALLOCATOR_H
#define BERTH_TOOLS_ALLOCATOR_H

#include <stdlib.h> /* __GLIBC__ */
#include <sys/resource.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

/*
 * glibc reserves 64 MiB of addresses for each thread that allocates. Under a limit of them
 * (`ulimit -v`) no room would be left for what was planned: then all have one arena. Before any
 * thread begins.
 */
static inline void
allocator_spare_addresses(void)
{
#ifdef __GLIBC__
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        (void)mallopt(M_ARENA_MAX, 1); /* refused: as it would be without */
#endif
}

#endif
