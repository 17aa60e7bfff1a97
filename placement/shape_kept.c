/* SPDX-License-Identifier: Apache-2.0 */
/* shape_kept.c - what the class of a model keeps from quantizers, or in float32; see shape.h. */
#include "placement/shape_making.h"

/* What transformers quantizes nowhere: layers of a derived class, and what it keeps in f32. */
void
berthi_shape_leave_plain(berthi_weight_list *list, const berthi_family *family)
{
    const bool is_derived = family->traits & BERTHI_TRAIT_OWN_LINEARS;
    const char *const kept =
        family->traits & BERTHI_TRAIT_DOWN_IN_F32 ? family->names->down : NULL;

    for (uint32_t i = 0; i < list->count; i++) {
        berthi_weight *const weight = &list->items[i];

        if (weight->role != BERTHI_WEIGHT_LINEAR || (!is_derived && weight->module != kept))
            continue;
        weight->role = BERTHI_WEIGHT_OTHER;
        weight->is_derived = true;
        weight->is_f32_in_f16 = !is_derived;
    }
}
