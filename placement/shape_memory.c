/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_memory.c - xLSTM: layers that remember in a matrix for each head, with gates
 * of their own; see shape_read.h, shape_making.h.
 */
#include "placement/shape_making.h"
#include "placement/shape_read.h"

/* -------------------------------------------------------------------- reading */

/* So many times the hidden state, which files say as a fraction. */
static double
scaled_width(berthi_shape_reading *r, const char *key, double fallback)
{
    const berthi_json_value *const value = berthi_json_find(r->model, key);
    double times = fallback;

    if (value != NULL
        && (!berthi_json_can_read_double(value, &times) || !(times > 0 && times <= 64)))
        berthi_shape_refuse(r, key, value, "a number up to 64");
    return r->status == BERTH_OK ? times * (double)r->shape->hidden : 1;
}

static uint64_t
whole_width(berthi_shape_reading *r, const char *key, double fallback)
{
    return berthi_max_u64((uint64_t)scaled_width(r, key, fallback), 1);
}

static uint64_t
rounded_width(berthi_shape_reading *r)
{
    const double width = scaled_width(r, "ffn_proj_factor", 2.667);
    const uint64_t unit =
        berthi_shape_member(r, "ffn_round_up_to_multiple_of", 1, BERTHI_SHAPE_HEADS, 64);

    if (unit == 0)
        return 1;
    return berthi_max_u64((uint64_t)(width + (double)(unit - 1)) / unit, 1) * unit;
}

void
berthi_shape_read_memory(berthi_shape_reading *r)
{
    berthi_state_layer *const state = &r->shape->state;

    state->kind = BERTHI_STATE_MEMORY;
    state->value_heads = state->key_heads = berthi_shape_member(r, "num_heads", 1, 4096, 8);
    if (state->value_heads == 0)
        return;
    state->inner = whole_width(r, "v_dim_factor", 1.0);
    state->step_rank = whole_width(r, "qk_dim_factor", 0.5);
    state->key_dim = berthi_max_u64(state->step_rank / state->value_heads, 1);
    state->has_bias = berthi_shape_flag(r, "use_bias", false);
    r->layer.intermediate = rounded_width(r);
}

/* --------------------------------------------------------------------- weights */

/* Whether matrices that read the same are fused ("weight_mode") changes no sum. */
void
berthi_shape_add_memory(berthi_shape_making *m)
{
    const berthi_state_layer *const state = &m->shape->state;
    const uint64_t hidden = m->shape->hidden;

    m->has_bias = state->has_bias;
    berthi_shape_add_linear(m, "q", state->step_rank, hidden);
    berthi_shape_add_linear(m, "k", state->step_rank, hidden);
    berthi_shape_add_linear(m, "v", state->inner, hidden);
    berthi_shape_add_linear(m, "ogate_preact", state->inner, hidden);
    berthi_shape_add_linear(m, "out_proj", hidden, state->inner);
    m->has_bias = true;
    berthi_shape_add_linear(m, "igate_preact", state->value_heads, hidden);
    berthi_shape_add_linear(m, "fgate_preact", state->value_heads, hidden);
    /* Of all heads: as wide as they are together, when none is cut. */
    if (state->inner >= state->value_heads)
        berthi_shape_add_norms(m, state->inner / state->value_heads * state->value_heads, 1);
}
