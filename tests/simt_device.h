/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simt_device.h - a device for the launches of simt_level.h, in place of the lanes of
 * simt.h: the tests of the kernels' bodies are then those of the kernels.
 *
 * T_DEVICE   cuda: the first GPU; fake: that of fake_cuda.h, fake86: as one of 8.6; not set: the
 *            lanes
 * T_KERNELS  a file that the name of every kernel launched there is added to, and those of kernels
 *            that are never launched on such a GPU behind "without "
 *
 * Memory of the host gets a stand-in on the device, as odd an address, filled with the
 * host's bytes, between two fences; behind the stand-ins of every other launch there is no
 * fence, so that a tool that watches the device's memory sees what goes beyond them.
 */
#ifndef BERTH_TESTS_SIMT_DEVICE_H
#define BERTH_TESTS_SIMT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/launch.h"

/* T_DEVICE is set. */
bool simt_device_is_wanted(void);
/* And there is one; else `*out_why` there is none. */
bool simt_device_is_there(const char **out_why);

/* What kernels on it were made for. */
uint32_t simt_device_capability(void);
/* Shared memory that a CTA may have there. */
uint32_t simt_device_room_bytes(void);
/* Products by tensor cores, by rings, and of few inputs by tiles are. */
bool simt_device_has_tensor_cores(void);
bool simt_device_has_rings(void);
bool simt_device_has_tiles(void);
/* Kernels of sm_90a are. */
bool simt_device_is_wide(void);
/* So much is free on it. */
uint64_t simt_device_free_bytes(void);

/*
 * The stand-in of `bytes` of the host's, of which those from `begin` on have values;
 * `is_output`: these come back. NULL stays NULL. Until the next simt_device_run().
 */
void *simt_device_take(const void *host, uint64_t bytes, uint64_t begin, bool is_output);
/* Memory with no values. */
void *simt_device_scratch(uint64_t bytes);
/* One after the other; then outputs come back, and all stand-ins are gone. */
void simt_device_run(const berthi_launch *launches, uint32_t count);

#endif
