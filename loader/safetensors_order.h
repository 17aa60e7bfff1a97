/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_order.h - tables of a header are sorted; for its parser alone. */
#ifndef BERTH_LOADER_SAFETENSORS_ORDER_H
#define BERTH_LOADER_SAFETENSORS_ORDER_H

#include "loader/safetensors.h"

/*
 * Entries are filled. Names that are those of the list, in order of extents, are not sorted.
 * *out_has_twins: two names or keys are the same; they stand side by side then.
 */
berth_status berthi_header_sort(berthi_header *header, const berthi_name_list *list,
                                bool *out_has_twins, berth_error *error);

#endif
