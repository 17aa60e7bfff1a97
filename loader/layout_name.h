/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_name.h - names of a layout's tensors, which lie in two pieces.
 *
 * Owns the two orders of names, what a name may be, and how it is shown. No
 * name is ever put together.
 */
#ifndef BERTH_LOADER_LAYOUT_NAME_H
#define BERTH_LOADER_LAYOUT_NAME_H

#include <stdint.h>

#include "kernels/base.h"
#include "loader/layout.h"
#include "quant/json_text.h"

/*
 * Bytewise, shorter first: the order of berthi_name_compare(). *shared as in
 * sort.h.
 */
int berthi_layout_name_compare(const berthi_layout_tensor *a,
                               const berthi_layout_tensor *b, uint64_t *shared);
/*
 * The order in which shards are filled: by the names that count there, then by
 * group, then by their own names. Names are compared dot-naturally: part by part
 * between dots, digits as numbers and before others; what is then equal,
 * bytewise. 0 for the same name only.
 */
int berthi_layout_name_compare_fill(const berthi_layout_tensor *a,
                                    const berthi_layout_tensor *b);

/* NULL, or why no header can hold this name. */
const char *berthi_layout_name_problem(const berthi_layout_tensor *tensor);

/* The name as a string of JSON, with its quotes. */
void berthi_layout_name_add(berthi_json_text *text, const berthi_layout_tensor *tensor,
                            berthi_json_style style);

/* As berthi_fail() with the name of the tensor and nothing else. */
berth_status berthi_layout_name_fail(berth_error *error, berth_reason reason,
                                     const berthi_layout_tensor *tensor,
                                     const char *message);

#endif
