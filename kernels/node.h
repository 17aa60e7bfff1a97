/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - memory near a device, on machines with several nodes.
 *
 * What a device copies from crosses the link between nodes first where it lies on another
 * node than the device. So staging comes from the device's node, as long as that has
 * memory left; nothing fails for it. Memory of the caller's allocator lies where that
 * has put it.
 */
#ifndef BERTH_KERNELS_NODE_H
#define BERTH_KERNELS_NODE_H

#include <stdint.h>

#include "kernels/device.h"

/*
 * For memory of berthi_memory_aligned(), before it is written to or pinned. Nothing for
 * devices that do not say where they are, and on machines with one node; that the system
 * refuses it is logged once.
 */
void berthi_node_bring(berthi_device *device, void *memory, uint64_t bytes,
                       uint64_t alignment);

#endif
