/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_scalar.c - updates by plain loops: the oracle of every other level. */
#include "kernels/core_optimizer.h"
#include "kernels/kernel.h"

#define BLOCK BERTHI_UPDATE_BLOCK

/* What lanes behind the end of a tensor hold: they take part in a block's maximum. */
#define PADDING_CODE_SIGNED 128u
#define PADDING_CODE_UNSIGNED 0u

static const uint32_t *
map_of(bool is_signed)
{
    return is_signed ? berthi_signed_map : berthi_unsigned_map;
}

/* The values of `count` elements from `first` on, and of the lanes behind them. */
static void
decode(const berthi_update_state *s, bool is_signed, uint64_t first, uint32_t count,
       float *values)
{
    const uint32_t padding = is_signed ? PADDING_CODE_SIGNED : PADDING_CODE_UNSIGNED;

    if (s->values != NULL) {
        memset(values, 0, BLOCK * sizeof *values);
        memcpy(values, s->values + first, count * sizeof *values);
        return;
    }
    for (uint32_t i = 0; i < BLOCK; i++)
        values[i] = berthi_core_state_value(map_of(is_signed),
                                            i < count ? s->codes[first + i] : padding,
                                            s->absmax[first / BLOCK]);
}

void
berthi_update_encode(const float *values, bool is_signed, uint32_t count, uint8_t *codes,
                     float *absmax)
{
    float maximum = 0.0f;
    float reciprocal;

    for (uint32_t i = 0; i < BLOCK; i++)
        maximum = berthi_core_absmax_step(maximum, values[i]);
    reciprocal = berthi_core_state_reciprocal(maximum);
    for (uint32_t i = 0; i < count; i++)
        codes[i] = (uint8_t)berthi_core_state_code(map_of(is_signed), is_signed,
                                                   berthi_core_one_nan(values[i]), maximum,
                                                   reciprocal);
    *absmax = maximum;
}

static void
encode(const berthi_update_state *s, bool is_signed, uint64_t first, uint32_t count,
       const float *values)
{
    if (s->values == NULL) {
        berthi_update_encode(values, is_signed, count, s->codes + first,
                             s->absmax + first / BLOCK);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        s->values[first + i] = berthi_core_one_nan(values[i]);
}

/* Element i of the tensor, or a lane behind its end; returns whether it was updated. */
static bool
step(const berthi_update_arguments *a, const berthi_update_constants *c, uint64_t i,
     berthi_core_element *e)
{
    const bool is_there = i < a->count;
    const int32_t dtype = a->master != NULL ? BERTH_F32 : a->dtype;
    const float given = is_there ? berthi_core_load(a->gradient, a->gradient_dtype, i) : 0.0f;

    if (!berthi_core_is_finite(given)) {
        e->state1 = e->state2 = e->state3 = 0.0f;
        return false;
    }
    e->parameter = 0.0f;
    if (is_there)
        e->parameter = a->master != NULL ? a->master[i]
                                         : berthi_core_load(a->parameter, dtype, i);
    berthi_core_step(c, c->kind, c->is_coupled, dtype, given, e);
    if (is_there) {
        e->parameter = berthi_core_one_nan(e->parameter);
        if (a->master != NULL)
            a->master[i] = e->parameter;
        berthi_core_store(a->parameter, a->dtype, i, e->parameter);
    }
    return true;
}

/* Those of a block; returns how many were not updated. */
static uint32_t
step_block(const berthi_update_arguments *a, const berthi_update_constants *c,
           uint64_t first, float states[BERTHI_UPDATE_STATES][BLOCK])
{
    uint32_t skipped = 0;

    for (uint32_t i = 0; i < BLOCK; i++) {
        berthi_core_element e = { 0.0f, states[0][i], states[1][i], states[2][i] };

        skipped += step(a, c, first + i, &e) ? 0 : 1;
        states[0][i] = e.state1;
        states[1][i] = e.state2;
        states[2][i] = e.state3;
    }
    return skipped;
}

uint64_t
berthi_update_plainly(const berthi_update_arguments *a, const berthi_update_constants *c)
{
    const uint32_t state_count = berthi_update_states((berthi_update_kind)c->kind);
    float states[BERTHI_UPDATE_STATES][BLOCK] = { { 0.0f } };
    uint64_t skipped = 0;

    for (uint64_t first = 0; first < a->count; first += BLOCK) {
        const uint64_t left = a->count - first;
        const uint32_t count = (uint32_t)(left < BLOCK ? left : BLOCK);

        for (uint32_t k = 0; k < state_count; k++)
            decode(&a->state[k], berthi_update_is_signed(k), first, count, states[k]);
        skipped += step_block(a, c, first, states);
        for (uint32_t k = 0; k < state_count; k++)
            encode(&a->state[k], berthi_update_is_signed(k), first, count, states[k]);
    }
    return skipped;
}

/* --------------------------------------------------------------- conversions */

void
berthi_encode_state_plainly(const berthi_state_arguments *a)
{
    for (uint64_t first = 0; first < a->count; first += BLOCK) {
        const uint64_t left = a->count - first;
        const uint32_t count = (uint32_t)(left < BLOCK ? left : BLOCK);
        float values[BLOCK] = { 0.0f };

        memcpy(values, a->values + first, count * sizeof *values);
        berthi_update_encode(values, a->is_signed, count, a->codes + first,
                             a->absmax + first / BLOCK);
    }
}

void
berthi_decode_state_plainly(const berthi_state_arguments *a)
{
    for (uint64_t i = 0; i < a->count; i++)
        a->values[i] = berthi_core_one_nan(berthi_core_state_value(
            map_of(a->is_signed), a->codes[i], a->absmax[i / BLOCK]));
}
