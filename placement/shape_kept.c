/* SPDX-License-Identifier: Apache-2.0 */
/* shape_kept.c - what the class of a model keeps from quantizers, or in float32; see shape.h. */
#include <string.h>

#include "placement/shape_making.h"

static bool
is_named(const berthi_weight *weight, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++)
        if (strcmp(weight->module, *names) == 0)
            return true;
    return false;
}

/*
 * Layers of a derived class are quantized nowhere, nor are those that `_keep_in_fp32_modules`
 * names: in f16 they stay f32. What its strict sister names is f32 in bf16, too, but quantized.
 */
void
berthi_shape_leave_plain(berthi_weight_list *list, const berthi_family *family)
{
    const bool is_derived = family->traits & BERTHI_TRAIT_OWN_LINEARS;

    for (uint32_t i = 0; i < list->count; i++) {
        berthi_weight *const weight = &list->items[i];
        const bool is_kept = is_named(weight, family->f32_in_f16);
        const bool is_f32 = is_named(weight, family->f32);

        weight->is_f32 = is_named(weight, family->own_f32);
        weight->is_f32_in_f16 |= is_kept || is_f32;
        weight->is_f32_in_bf16 |= is_f32;
        if (weight->role != BERTHI_WEIGHT_LINEAR || (!is_derived && !is_kept))
            continue;
        weight->role = BERTHI_WEIGHT_OTHER;
        weight->is_derived = true;
    }
}
