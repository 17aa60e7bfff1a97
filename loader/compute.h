/* SPDX-License-Identifier: Apache-2.0 */
/* compute.h - what the parts of computing on devices share: compute*.c, devices_api.c. */
#ifndef BERTH_LOADER_COMPUTE_H
#define BERTH_LOADER_COMPUTE_H

#include "kernels/device.h"

/* One of the caller's. ARGUMENT: `devices` is NULL, or `number` that of none. */
berth_status berthi_find_device(berth_devices *devices, uint32_t number,
                                berthi_device **out, berth_error *error);
/* Asks for an operation; UNSUPPORTED: this device has it not. */
berth_status berthi_launch_on(berthi_device *device, const berthi_request *request,
                              void *stream, berth_error *error);
/* Asks for several that need nothing of each other, and are operations of a device. */
berth_status berthi_launch_together_on(berthi_device *device, const berthi_request *requests,
                                       uint32_t count, void *stream, berth_error *error);

/* Where the part that has this role lies now; NULL: nowhere, or there is none. */
const void *berthi_part_of(const berth_model_tensor *tensor, int32_t role);
/* What computes a tensor of the model. */
berthi_device *berthi_device_of(const berth_model *model, const berth_model_tensor *tensor);

#endif
