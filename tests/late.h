/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.h - two GPUs of the fake runtime whose work is done late, in tests of devices.
 */
#ifndef BERTH_TESTS_LATE_H
#define BERTH_TESTS_LATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/fake_cuda.h"
#include "tests/rig.h"

extern const fake_cuda_machine late_machine;
/* Of less memory, which is sooner looked through. */
extern const fake_cuda_machine late_small_machine;

/* A rig of both GPUs. */
bool late_open(rig *r);
/* Everything has been given back, and nothing was there twice or not at all. */
void late_close(rig *r);
/* The same of what is not open any more. */
void late_check_books(void);
void late_check_bytes(const uint8_t *memory, uint64_t bytes, uint8_t expected);
bool late_is_past(berthi_device *device, berthi_event *event);

#endif
