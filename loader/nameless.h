/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nameless.h - a file that only this process has: a process that dies leaves nothing.
 *
 * Where a file system cannot make files without a name, it gets a generated one in a
 * folder of mode 0700 with a generated name, and both go before the first byte is written.
 */
#ifndef BERTH_LOADER_NAMELESS_H
#define BERTH_LOADER_NAMELESS_H

#include <stdint.h>

#include "kernels/base.h"

typedef struct berthi_nameless {
    const char *folder;   /* made (0700) where it is not there; needed no longer then */
    const char *contents; /* "its layers": in messages */
    uint64_t bytes;       /* reserved at once; DISK_FULL: no room, by so many */
} berthi_nameless;

/* A descriptor to read from and to write to; on failure -1. */
berth_status berthi_nameless_create(const berthi_nameless *file, int *out_fd,
                                    berth_error *error);

#endif
