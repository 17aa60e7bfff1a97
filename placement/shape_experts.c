/* SPDX-License-Identifier: Apache-2.0 */
/* shape_experts.c - experts, their router, and those that all tokens take; see shape.h. */
#include "placement/shape_making.h"

/* Where they lie in one tensor a matrix no row of it is one of INT8. */
void
berthi_shape_mark_experts(berthi_shape_making *m, uint32_t first, uint64_t experts)
{
    const bool is_stacked = berthi_shape_has_trait(m, BERTHI_TRAIT_ONE_TENSOR);
    berthi_weight_list *const list = m->out;

    for (uint32_t i = first; i < list->count; i++) {
        if (list->items[i].role != BERTHI_WEIGHT_EXPERT)
            continue;
        list->items[i].stack = is_stacked ? experts : 0;
        list->items[i].is_apart = berthi_shape_has_trait(m, BERTHI_TRAIT_EXPERT_LAYERS);
    }
}

static void
add_choosing(berthi_shape_making *m, const berthi_layer *layer, uint64_t choices)
{
    const char *const linear = m->shape->family->router;
    const uint64_t hidden = m->shape->hidden;

    if (m->shape->router_width > 0)
        berthi_shape_add_router(m, layer);
    else if (linear != NULL)
        berthi_shape_add_matrix(m, linear, BERTHI_WEIGHT_LINEAR, choices, hidden);
    else if (berthi_shape_has_trait(m, BERTHI_TRAIT_OWN_ROUTER))
        (void)berthi_shape_add_derived(m, "router", choices, hidden);
    else
        berthi_shape_add_matrix(m, "gate", BERTHI_WEIGHT_OTHER, choices, hidden);
}

/* Routers' corrections are kept in f32: beside quantized weights at least, but for some. */
static void
add_correction(berthi_shape_making *m, uint64_t choices)
{
    const bool is_kept =
        m->shape->has_correction && !berthi_shape_has_trait(m, BERTHI_TRAIT_CAST_CHOICE);
    berthi_weight *const weight = berthi_shape_add_vector(
        m, m->shape->has_correction ? "correction" : "gate", choices);

    weight->is_f32_in_f16 = is_kept;
    weight->is_f32_in_bf16 = is_kept;
}

void
berthi_shape_add_experts(berthi_shape_making *m, const berthi_layer *layer)
{
    const uint64_t layers = m->count;
    const uint64_t hidden = m->shape->hidden;
    const uint64_t latent = m->shape->expert_latent;
    const uint64_t choices = layer->experts + m->shape->idle_experts;
    const uint32_t first = m->out->count;

    add_choosing(m, layer, choices);
    if (berthi_shape_has(m, BERTHI_FAMILY_COMPRESSED))
        berthi_shape_add_choice(m, layer);
    else if (m->shape->has_correction || m->shape->has_router_bias
             || berthi_shape_has(m, BERTHI_FAMILY_EXPERT_BIAS))
        add_correction(m, choices);
    m->role = BERTHI_WEIGHT_EXPERT;
    m->count = layers * layer->experts;
    m->has_bias =
        berthi_shape_has(m, BERTHI_FAMILY_EXPERT_BIAS)
        || (m->has_bias && berthi_shape_has_trait(m, BERTHI_TRAIT_SPARSE_PAIR));
    berthi_shape_add_mlp(m, layer->expert_intermediate, latent > 0 ? latent : hidden);
    berthi_shape_mark_experts(m, first, layer->experts);
    m->role = BERTHI_WEIGHT_LINEAR;
    m->count = layers;
    m->has_bias = m->shape->has_mlp_bias;
    if (latent > 0) {
        berthi_shape_add_linear(m, "fc1_latent_proj", latent, hidden);
        berthi_shape_add_linear(m, "fc2_latent_proj", hidden, latent);
    }
    if (layer->shared_intermediate > 0)
        berthi_shape_add_mlp(m, layer->shared_intermediate, hidden);
    if (berthi_shape_has(m, BERTHI_FAMILY_BESIDE)) {
        berthi_shape_add_vector(m, "scale", hidden);
        berthi_shape_add_vector(m, "per_expert_scale", layer->experts);
        berthi_shape_add_norms(m, hidden, 3);
    }
    m->has_bias = false;
    if (layer->shared_intermediate > 0 && berthi_shape_has(m, BERTHI_FAMILY_SHARED_GATE))
        berthi_shape_add_linear(m, "shared_expert_gate", 1, hidden);
}
