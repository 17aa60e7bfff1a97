/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_address.h - which addresses kernels are given. For cuda_launch.c and cuda_steps.c. */
#ifndef BERTH_KERNELS_CUDA_ADDRESS_H
#define BERTH_KERNELS_CUDA_ADDRESS_H

#include <inttypes.h>

#include "kernels/base.h"

/*
 * An access at an odd address ends a GPU for the whole process, so it is refused here.
 * What is only slower than it could be the kernels see to themselves.
 */
static inline berth_status
check_address(const char *name, const void *address, uint64_t unit, berth_error *error)
{
    if ((uintptr_t)address % unit == 0)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s at an address that is no multiple of %" PRIu64, name, unit);
}

#endif
