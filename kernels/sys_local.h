/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys_local.h - what the files of sys.h share.
 *
 *   sys.c           files and folders: opening and reading
 *   sys_write.c     the same, changed
 *   sys_process.c   this process: its limits, memory, threads and time
 */
#ifndef BERTH_KERNELS_SYS_LOCAL_H
#define BERTH_KERNELS_SYS_LOCAL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "kernels/base.h"
#include "kernels/fault.h"

/* Ask before the call: true when a test wants it to fail with `failure`. */
static inline bool
berthi_sys_is_faulty(int failure)
{
    if (!berthi_fault_is_due(BERTHI_FAULT_SYSTEM))
        return false;
    errno = failure;
    return true;
}

static inline int64_t
berthi_sys_nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
