/* SPDX-License-Identifier: Apache-2.0 */
/* nvlink.h - the links of a GPU that are not PCI's, as the driver tells them. */
#ifndef BERTH_KERNELS_NVLINK_H
#define BERTH_KERNELS_NVLINK_H

#include <stdint.h>

#include "kernels/nvml_calls.h"

/* 0: unknown, or none. Speeds are 10^6 bytes a second, one way. */
typedef struct berthi_nvlinks {
    uint16_t links;        /* that are up */
    uint16_t version;      /* ten times: 40 is 4.0 */
    uint32_t mb_per_s;     /* of one */
    uint32_t c2c_mb_per_s; /* of all chip-to-chip links to the host */
} berthi_nvlinks;

/*
 * Between `start` and `end` of the calls. Cannot fail: what is refused, as under a hypervisor
 * or by an old driver, is unknown.
 */
void berthi_nvlinks_read(const berthi_nvml_calls *calls, uint32_t domain, uint32_t bus,
                         uint32_t device, berthi_nvlinks *out);

#endif
