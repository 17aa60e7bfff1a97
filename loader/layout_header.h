/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_header.h - the text of a canonical header (layout.h) and its length
 * without writing it. Both come from the same lines of code.
 */
#ifndef BERTH_LOADER_LAYOUT_HEADER_H
#define BERTH_LOADER_LAYOUT_HEADER_H

#include <stdint.h>

#include "kernels/base.h"
#include "loader/layout.h"
#include "quant/json_text.h"

/* "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, without a comma. */
void berthi_layout_header_add_entry(berthi_json_text *text,
                                    const berthi_layout_tensor *tensor);
/* Its length, less the numbers that berthi_layout_header_number_bytes() counts. */
uint64_t berthi_layout_header_text_bytes(const berthi_layout_tensor *tensor);
/* The digits of offsets, and of a length that may still change. */
uint64_t berthi_layout_header_number_bytes(const berthi_layout_tensor *tensor);

/* "__metadata__":{...}, without a comma; nothing when `pairs` is NULL. */
void berthi_layout_header_add_pairs(berthi_json_text *text,
                                    const berthi_layout_pair *pairs, uint32_t count);

#endif
