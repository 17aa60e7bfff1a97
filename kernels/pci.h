/* SPDX-License-Identifier: Apache-2.0 */
/* pci.h - the link of a PCI device, as the kernel tells it. */
#ifndef BERTH_KERNELS_PCI_H
#define BERTH_KERNELS_PCI_H

#include <stdint.h>

/* Generations count from 1, widths are lanes; 0: unknown. */
typedef struct berthi_pci_link {
    uint32_t generation; /* now: an idle device may have slowed down */
    uint32_t width;
    uint32_t most_generation; /* that the device could have */
    uint32_t most_width;
} berthi_pci_link;

/* Below `root`. Cannot fail: what cannot be read is unknown. */
void berthi_pci_link_read(const char *root, uint32_t domain, uint32_t bus, uint32_t device,
                          berthi_pci_link *out);

#endif
