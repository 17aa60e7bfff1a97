/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_check.h - what a header could not hold, or its readers would refuse.
 */
#ifndef BERTH_LOADER_LAYOUT_CHECK_H
#define BERTH_LOADER_LAYOUT_CHECK_H

#include <stdint.h>

#include "kernels/base.h"
#include "loader/layout.h"

/* So many that no sum of lengths overflows, late ones of 32 bits included. */
#define BERTHI_LAYOUT_MAX_TENSORS UINT64_C(0x7FFFFFFF)
#define BERTHI_LAYOUT_MAX_BYTES UINT64_C(0x7FFFFFFFFFFFFFFF)

/* Checks each by itself and the sum of all; fills text_bytes, clears places. */
berth_status berthi_layout_check_tensors(berthi_layout_tensor *tensors, uint64_t count,
                                         berth_error *error);
/* Sorted and unique, so that equal models give equal files; UTF-8. */
berth_status berthi_layout_check_options(const berthi_layout_options *options,
                                         berth_error *error);

/* The header of a shard would be `bytes` long; UNSUPPORTED when nobody reads it. */
berth_status berthi_layout_check_header(uint64_t bytes, berth_error *error);

#endif
