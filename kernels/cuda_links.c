/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_links.c - what connects a GPU to the host and to others; see cuda_device.h. */
#include "kernels/cuda_device.h"

static void
read_nvlinks(berthi_cuda *machine)
{
    berthi_nvml_calls calls;

    if (!machine->calls->open_nvml(&calls) || calls.start() != BERTHI_NVML_OK)
        return;
    for (uint32_t i = 0; i < machine->count; i++) {
        const berthi_cuda_properties *const p = &machine->devices[i]->properties;

        berthi_nvlinks_read(&calls, (uint32_t)p->pci_domain, (uint32_t)p->pci_bus,
                            (uint32_t)p->pci_device, &machine->devices[i]->nvlinks);
    }
    (void)calls.end();
}

void
berthi_cuda_find_links(berthi_device *device, berthi_device_links *out)
{
    berthi_cuda_device *const d = (berthi_cuda_device *)device;
    const berthi_cuda_properties *const p = &d->properties;

    berthi_pci_link_read("/", (uint32_t)p->pci_domain, (uint32_t)p->pci_bus,
                         (uint32_t)p->pci_device, &out->pci);
    pthread_mutex_lock(&d->machine->links_lock);
    if (!d->machine->has_nvlinks)
        read_nvlinks(d->machine);
    d->machine->has_nvlinks = true;
    out->nv = d->nvlinks;
    pthread_mutex_unlock(&d->machine->links_lock);
}
