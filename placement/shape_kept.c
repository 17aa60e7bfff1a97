/* SPDX-License-Identifier: Apache-2.0 */
/* shape_kept.c - what the class of a model keeps from quantizers, or in float32; see shape.h. */
#include <string.h>

#include "placement/shape_making.h"

/* Three numbers of each activation that it rounds, one of each norm's and each table's. */
#define LAYER_RANGES (14 * 3 + 2)
#define OUTER_RANGES (4 * 3 + 1 + 3)

static void
add_ranges(berthi_shape_making *m)
{
    m->layer = BERTHI_NO_LAYER;
    m->count = 1;
    berthi_shape_add_vector(m, "activation", OUTER_RANGES);
    for (uint32_t i = 0; i < m->shape->kind_count; i++) {
        m->layer = i;
        m->count = m->shape->kinds[i].count;
        berthi_shape_add_vector(m, "activation", LAYER_RANGES);
    }
}

/*
 * Tables, and layers of a class that is no linear one, have another of integers beside each;
 * biases have two: integers, and what those are scaled by.
 */
void
berthi_shape_add_integers(berthi_shape_making *m)
{
    const uint32_t count = m->out->count;

    for (uint32_t i = 0; i < count; i++) {
        berthi_weight *const weight = &m->out->items[i];
        const bool is_inside = weight->layer != BERTHI_NO_LAYER;

        m->layer = weight->layer;
        m->count = weight->count;
        if (is_inside && weight->role == BERTHI_WEIGHT_LINEAR)
            weight->role = BERTHI_WEIGHT_OTHER;
        if (weight->rank == 2 && (is_inside || weight->role == BERTHI_WEIGHT_EMBEDDING)) {
            berthi_shape_add_matrix(m, weight->module, weight->role, weight->shape[0],
                                    weight->shape[1]);
        } else if (is_inside && strcmp(weight->module, "norm") != 0) {
            m->count *= 2;
            berthi_shape_add_vector(m, weight->module, weight->shape[0]);
        }
    }
    add_ranges(m);
}

static bool
is_named(const berthi_weight *weight, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++)
        if (strcmp(weight->module, *names) == 0)
            return true;
    return false;
}

/* XLNet's attention is no layers: of each head a matrix, in one tensor that nothing adapts. */
static bool
is_bare_heads(const berthi_family *family)
{
    return family->traits & BERTHI_TRAIT_SEGMENTS && !(family->traits & BERTHI_TRAIT_BLOCKS);
}

static void
take_layer_away(berthi_weight *weight)
{
    weight->role = BERTHI_WEIGHT_OTHER;
    weight->shape[0] *= weight->shape[1];
    weight->shape[1] = 0;
    weight->rank = 1;
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
        if (is_bare_heads(family) && weight->is_f32 && weight->rank == 2)
            take_layer_away(weight);
        if (weight->role != BERTHI_WEIGHT_LINEAR || (!is_derived && !is_kept))
            continue;
        weight->role = BERTHI_WEIGHT_OTHER;
        weight->is_derived = true;
    }
}
