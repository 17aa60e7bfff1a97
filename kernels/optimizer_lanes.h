/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_lanes.h - core_optimizer.h for several elements at once: whole blocks by
 * vectors, the end of a tensor and blocks of extreme numbers by the reference.
 *
 * Included by one file per level, behind gradient_lanes.h and after it has said what its
 * vectors are:
 *
 *   LANES          elements of one           lanes       the type, with + - * /
 *   lanes_mask     which elements            level_tables  whatever the level looks up
 *   lanes_all(x)                             lanes_fma(a, b, c), lanes_root(a)
 *   lanes_load(p), lanes_save(p, a)          f32, as they are
 *   lanes_widen(p, dtype, i)                 lanes_round(a, dtype): and back
 *   lanes_put(p, dtype, i, a, keep)          rounded; one NaN; only the kept elements
 *   lanes_sign(a, size)                      size by the sign of a, 0 for 0 and NaN
 *   lanes_finite(a), lanes_keep(keep, a)     0 elsewhere
 *   lanes_every, lanes_dropped(keep)         a mask of all; how many it leaves out
 *   lanes_largest(bits, a), lanes_top(bits)  magnitudes as integers, of type lanes_bits,
 *                                            lanes_none of them
 *   lanes_decode(tables, is_signed, codes)   values of the map
 *   encode_codes(tables, is_signed, values, reciprocal, codes)   a block, ordinary
 *   can_make_tables(tables, encodes)         false: not of these maps; by the reference, then.
 *                                            encodes false: those of lanes_decode() alone
 *   LEVEL(name)                              what the level calls an operation
 */
#ifndef BERTH_KERNELS_OPTIMIZER_LANES_H
#define BERTH_KERNELS_OPTIMIZER_LANES_H

#ifdef LANES /* a file that has none sees nothing */

#include "kernels/core_optimizer.h"
#include "kernels/optimizer_fetch.h"

#define UPDATE_BLOCK BERTHI_UPDATE_BLOCK
#define LEAST_NORMAL_BITS 0x00800000u
#define MOST_INVERTIBLE_BITS 0x7E800000u /* 2^126: above it a reciprocal is flushed */

/* ---------------------------------------------------------------- arithmetic */

typedef struct lane_element {
    lanes parameter;
    lanes state1;
    lanes state2;
    lanes state3;
} lane_element;

/* Of constants: which of these states a kind has. */
ALWAYS_INLINE bool
has_state(int32_t kind, uint32_t state)
{
    return state == 0 || kind == BERTHI_UPDATE_ADEMAMIX
           || (state == 1 && kind == BERTHI_UPDATE_ADAM);
}

ALWAYS_INLINE void
mean_adam(const berthi_update_constants *c, lanes gradient, lane_element *e)
{
    const lanes square = gradient * (lanes_all(c->rest2) * gradient);

    e->state2 = lanes_fma(e->state2, lanes_all(c->beta2), square);
    e->state1 =
        lanes_fma(lanes_all(c->rest1), gradient, e->state1 * lanes_all(c->beta1));
}

ALWAYS_INLINE void
step_ademamix(const berthi_update_constants *c, lanes gradient, lane_element *e)
{
    lanes mean;
    lanes root;

    mean_adam(c, gradient, e);
    e->state3 =
        lanes_fma(lanes_all(c->rest3), gradient, e->state3 * lanes_all(c->beta3));
    mean = lanes_fma(lanes_all(c->alpha), e->state3, e->state1 / lanes_all(c->correction1));
    root = lanes_root(e->state2) / lanes_all(c->correction) + lanes_all(c->epsilon);
    e->parameter = lanes_fma(lanes_all(-c->rate), mean / root, e->parameter);
}

ALWAYS_INLINE void
step_adam(const berthi_update_constants *c, lanes gradient, lane_element *e)
{
    mean_adam(c, gradient, e);
    e->parameter = lanes_fma(
        lanes_all(c->eta),
        e->state1 / lanes_fma(lanes_all(c->correction), lanes_all(c->epsilon),
                              lanes_root(e->state2)),
        e->parameter);
}

ALWAYS_INLINE void
step_lion(const berthi_update_constants *c, int32_t dtype, lanes gradient,
          lane_element *e)
{
    const lanes mean =
        lanes_fma(lanes_all(c->rest1), gradient, e->state1 * lanes_all(c->beta1));
    const float size = berthi_core_rounded(c->rate, dtype);

    e->state1 =
        lanes_fma(lanes_all(c->rest2), gradient, e->state1 * lanes_all(c->beta2));
    /* A product with a sign of 0 has the rate's, which of -0 makes 0 or leaves it. */
    if (signbit(size))
        e->parameter = e->parameter + lanes_sign(mean, -size);
    else
        e->parameter = e->parameter - lanes_sign(mean, size);
}

ALWAYS_INLINE void
step_momentum(const berthi_update_constants *c, lanes gradient, lane_element *e)
{
    e->state1 =
        c->is_first ? gradient : lanes_fma(e->state1, lanes_all(c->beta1), gradient);
    e->parameter = lanes_fma(lanes_all(-c->rate), e->state1, e->parameter);
}

ALWAYS_INLINE void
step_by_root(const berthi_update_constants *c, bool is_sum, lanes plain, lanes gradient,
             lane_element *e)
{
    e->state1 = is_sum ? lanes_fma(gradient, gradient, e->state1)
                       : lanes_fma(lanes_all(c->rest1), gradient * gradient,
                                   e->state1 * lanes_all(c->beta1));
    e->parameter =
        lanes_fma(lanes_all(-c->rate),
                  plain / (lanes_root(e->state1) + lanes_all(c->epsilon)), e->parameter);
}

ALWAYS_INLINE lanes
shrink(const berthi_update_constants *c, int32_t dtype, lanes parameter)
{
    return lanes_round(parameter * lanes_all(c->shrink), dtype);
}

/* `kind` is a constant. */
ALWAYS_INLINE void
step_lanes(const berthi_update_constants *c, int32_t kind, int32_t dtype, lanes given,
           lane_element *e)
{
    const lanes plain = given * lanes_all(c->scale);
    const lanes gradient =
        c->is_coupled ? lanes_fma(e->parameter, lanes_all(c->decay), plain) : plain;
    const bool is_lion = kind == BERTHI_UPDATE_LION;

    if (is_lion && c->is_shrunk)
        e->parameter = shrink(c, dtype, e->parameter);
    if (kind == BERTHI_UPDATE_ADAM)
        step_adam(c, gradient, e);
    else if (kind == BERTHI_UPDATE_ADEMAMIX)
        step_ademamix(c, gradient, e);
    else if (is_lion)
        step_lion(c, dtype, gradient, e);
    else if (kind == BERTHI_UPDATE_MOMENTUM)
        step_momentum(c, gradient, e);
    else
        step_by_root(c, kind == BERTHI_UPDATE_ADAGRAD, plain, gradient, e);
    if (!is_lion && c->is_shrunk) /* else it is rounded where it is stored */
        e->parameter = lanes_round(e->parameter, dtype) * lanes_all(c->shrink);
}

/* ------------------------------------------------------------------- states */

ALWAYS_INLINE lanes
load_state(const berthi_update_state *s, const level_tables *t, bool is_signed, uint64_t i)
{
    if (s->values != NULL)
        return lanes_load(s->values + i);
    return lanes_decode(t, is_signed, s->codes + i)
           * lanes_all(s->absmax[i / UPDATE_BLOCK]);
}

ALWAYS_INLINE void
save_state(const berthi_update_state *s, uint64_t i, lanes value, float *block,
           lanes_bits *largest)
{
    if (s->values != NULL) {
        lanes_put(s->values, BERTH_F32, i, value, lanes_every);
        return;
    }
    lanes_save(block + i % UPDATE_BLOCK, value); /* on its way to codes */
    *largest = lanes_largest(*largest, value);
}

ALWAYS_INLINE void
encode_zeros(const float *values, bool is_signed, uint8_t *codes)
{
    for (uint32_t i = 0; i < UPDATE_BLOCK; i++)
        codes[i] = is_signed && berthi_core_bits(values[i]) >> 31 == 0 ? 255 : 0;
}

ALWAYS_INLINE void
encode_state(const berthi_update_state *s, const level_tables *t, bool is_signed,
             uint64_t first, const float *values, uint32_t largest)
{
    uint8_t *const codes = s->codes + first;
    float *const absmax = s->absmax + first / UPDATE_BLOCK;

    if (largest > MOST_INVERTIBLE_BITS) {
        berthi_update_encode(values, is_signed, UPDATE_BLOCK, codes, absmax);
    } else if (largest < LEAST_NORMAL_BITS) {
        *absmax = 0.0f;
        encode_zeros(values, is_signed, codes);
    } else {
        *absmax = berthi_core_float(largest);
        encode_codes(t, is_signed, values, 1.0f / *absmax, codes);
    }
}

/* ------------------------------------------------------------------- blocks */

/* What a block's states are on their way to codes. */
typedef struct block_states {
    _Alignas(64) float values[BERTHI_UPDATE_STATES][UPDATE_BLOCK];
} block_states;

/* The elements from `i` on; returns how many are not updated. */
ALWAYS_INLINE uint32_t
update_lanes(const berthi_update_arguments *a, const berthi_update_constants *c,
             const level_tables *t, int32_t kind, uint64_t i, block_states *b,
             lanes_bits largest[BERTHI_UPDATE_STATES])
{
    const int32_t dtype = a->master != NULL ? BERTH_F32 : a->dtype;
    const lanes given = lanes_widen(a->gradient, a->gradient_dtype, i);
    const lanes_mask finite = lanes_finite(given);
    lane_element e;

    e.parameter = a->master != NULL ? lanes_load(a->master + i)
                                    : lanes_widen(a->parameter, dtype, i);
    e.state1 = load_state(&a->state[0], t, true, i);
    if (has_state(kind, 1))
        e.state2 = load_state(&a->state[1], t, false, i);
    if (has_state(kind, 2))
        e.state3 = load_state(&a->state[2], t, true, i);
    step_lanes(c, kind, dtype, given, &e);
    save_state(&a->state[0], i, lanes_keep(finite, e.state1), b->values[0], &largest[0]);
    if (has_state(kind, 1))
        save_state(&a->state[1], i, lanes_keep(finite, e.state2), b->values[1], &largest[1]);
    if (has_state(kind, 2))
        save_state(&a->state[2], i, lanes_keep(finite, e.state3), b->values[2], &largest[2]);
    if (a->master != NULL)
        lanes_put(a->master, BERTH_F32, i, e.parameter, finite);
    lanes_put(a->parameter, a->dtype, i, e.parameter, finite);
    return lanes_dropped(finite);
}

/* Whole blocks. */
ALWAYS_INLINE uint64_t
update_blocks(const berthi_update_arguments *a, const berthi_update_constants *c,
              const level_tables *t, int32_t kind)
{
    uint64_t dropped = 0;
    block_states b;

    for (uint64_t first = 0; a->count - first >= UPDATE_BLOCK; first += UPDATE_BLOCK) {
        lanes_bits largest[BERTHI_UPDATE_STATES] = { lanes_none, lanes_none, lanes_none };

        fetch_update_ahead(a, has_state(kind, 2) ? 3 : has_state(kind, 1) ? 2 : 1, first);
        for (uint32_t k = 0; k < UPDATE_BLOCK; k += LANES)
            dropped += update_lanes(a, c, t, kind, first + k, &b, largest);
        if (a->state[0].values == NULL)
            encode_state(&a->state[0], t, true, first, b.values[0], lanes_top(largest[0]));
        if (has_state(kind, 1) && a->state[1].values == NULL)
            encode_state(&a->state[1], t, false, first, b.values[1], lanes_top(largest[1]));
        if (has_state(kind, 2) && a->state[2].values == NULL)
            encode_state(&a->state[2], t, true, first, b.values[2], lanes_top(largest[2]));
    }
    return dropped;
}

/* `kind` is a constant; Adam's stands for AdamW's. */
ALWAYS_INLINE uint64_t
update_kind(const berthi_update_arguments *a, const berthi_update_constants *c,
            const level_tables *t, int32_t kind)
{
    /* Ours alone: what is stored cannot have changed them. */
    const berthi_update_arguments own = *a;
    const berthi_update_constants own_constants = *c;

    return update_blocks(&own, &own_constants, t, kind);
}

/* Adam as it is used most: without the choices that others have. `dtype` is a constant. */
ALWAYS_INLINE uint64_t
update_plain_adam(const berthi_update_arguments *a, const berthi_update_constants *c,
                  const level_tables *t, int32_t dtype)
{
    berthi_update_arguments own = *a;
    berthi_update_constants own_constants = *c;

    own.dtype = own.gradient_dtype = dtype;
    own.master = NULL;
    own.state[0].values = own.state[1].values = NULL;
    own_constants.is_coupled = false;
    return update_blocks(&own, &own_constants, t, BERTHI_UPDATE_ADAM);
}

ALWAYS_INLINE uint64_t
update_adam(const berthi_update_arguments *a, const berthi_update_constants *c,
            const level_tables *t)
{
    if (a->dtype != a->gradient_dtype || a->master != NULL || c->is_coupled
        || a->state[0].values != NULL || a->state[1].values != NULL)
        return update_kind(a, c, t, BERTHI_UPDATE_ADAM);
    if (a->dtype == BERTH_BF16)
        return update_plain_adam(a, c, t, BERTH_BF16);
    if (a->dtype == BERTH_F16)
        return update_plain_adam(a, c, t, BERTH_F16);
    return update_plain_adam(a, c, t, BERTH_F32);
}

/* One copy of the loop per kind, and some more of the one that is used most. */
ALWAYS_INLINE uint64_t
update_whole(const berthi_update_arguments *a, const berthi_update_constants *c,
             const level_tables *t)
{
    if (c->kind == BERTHI_UPDATE_ADAM || c->kind == BERTHI_UPDATE_ADAMW)
        return update_adam(a, c, t);
    if (c->kind == BERTHI_UPDATE_ADEMAMIX)
        return update_kind(a, c, t, BERTHI_UPDATE_ADEMAMIX);
    if (c->kind == BERTHI_UPDATE_LION)
        return update_kind(a, c, t, BERTHI_UPDATE_LION);
    if (c->kind == BERTHI_UPDATE_MOMENTUM)
        return update_kind(a, c, t, BERTHI_UPDATE_MOMENTUM);
    if (c->kind == BERTHI_UPDATE_RMSPROP)
        return update_kind(a, c, t, BERTHI_UPDATE_RMSPROP);
    return update_kind(a, c, t, BERTHI_UPDATE_ADAGRAD);
}

/* The end of a tensor goes to the reference. */
ALWAYS_INLINE uint64_t
update_by(const berthi_update_arguments *a, const berthi_update_constants *c,
          const level_tables *t)
{
    const uint64_t whole = a->count - a->count % UPDATE_BLOCK;
    berthi_update_arguments rest;

    if (whole == a->count)
        return update_whole(a, c, t);
    rest = berthi_update_share(a, whole, a->count - whole);
    return update_whole(a, c, t) + berthi_update_plainly(&rest, c);
}

/* -------------------------------------------------------------- conversions */

ALWAYS_INLINE void
encode_state_by(const berthi_state_arguments *a, const level_tables *t)
{
    const uint64_t whole = a->count - a->count % UPDATE_BLOCK;
    const berthi_update_state s = { NULL, a->codes, a->absmax };
    const berthi_state_arguments rest =
        { a->count - whole, a->is_signed, a->values + whole, a->codes + whole,
          a->absmax + whole / UPDATE_BLOCK };

    for (uint64_t first = 0; first < whole; first += UPDATE_BLOCK) {
        lanes_bits largest = lanes_none;

        for (uint32_t k = 0; k < UPDATE_BLOCK; k += LANES)
            largest = lanes_largest(largest, lanes_load(a->values + first + k));
        if (a->is_signed)
            encode_state(&s, t, true, first, a->values + first, lanes_top(largest));
        else
            encode_state(&s, t, false, first, a->values + first, lanes_top(largest));
    }
    berthi_encode_state_plainly(&rest);
}

/* `is_signed` is a constant. */
ALWAYS_INLINE void
decode_state_as(const berthi_state_arguments *a, const level_tables *t, bool is_signed)
{
    const uint64_t whole = a->count - a->count % UPDATE_BLOCK;
    const berthi_update_state s = { NULL, a->codes, a->absmax };
    const berthi_state_arguments rest =
        { a->count - whole, is_signed, a->values + whole, a->codes + whole,
          a->absmax + whole / UPDATE_BLOCK };

    for (uint64_t i = 0; i < whole; i += LANES)
        lanes_put(a->values, BERTH_F32, i, load_state(&s, t, is_signed, i), lanes_every);
    berthi_decode_state_plainly(&rest);
}

ALWAYS_INLINE void
decode_state_by(const berthi_state_arguments *a, const level_tables *t)
{
    if (a->is_signed)
        decode_state_as(a, t, true);
    else
        decode_state_as(a, t, false);
}

/* -------------------------------------------------------------------- operations */

uint64_t
LEVEL(update)(const berthi_update_arguments *a, const berthi_update_constants *c)
{
    level_tables t;

    return can_make_tables(&t, true) ? update_by(a, c, &t) : berthi_update_plainly(a, c);
}

void
LEVEL(encode_state)(const berthi_state_arguments *a)
{
    level_tables t;

    if (can_make_tables(&t, true))
        encode_state_by(a, &t);
    else
        berthi_encode_state_plainly(a);
}

void
LEVEL(decode_state)(const berthi_state_arguments *a)
{
    level_tables t;

    if (can_make_tables(&t, false))
        decode_state_by(a, &t);
    else
        berthi_decode_state_plainly(a);
}

void
LEVEL(measure)(const berthi_measure_arguments *a)
{
    measure_by(a);
}

void
LEVEL(accumulate)(const berthi_accumulate_arguments *a)
{
    accumulate_by(a);
}

#endif
#endif
