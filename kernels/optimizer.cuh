/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer.cuh - updates of parameters and their states: optimizer.h on a GPU.
 *
 * A warp has a block and a lane eight neighbours of it, so that a block's largest state
 * comes by shuffles. Lanes behind the end of a tensor take part in it.
 *
 * Blocks of Adam as it is used most go the shorter way of adam8.cuh.
 *
 *   traffic   per element its gradient read, parameter and states read and written:
 *             10 B of bf16 with two states in 8 bits, 16 B a block
 *   launch    berthi_update_ctas() CTAs of UPDATE_THREADS lanes
 *   bits      core_optimizer.h: those of the plain loops; the order of lanes cannot
 *             matter: a maximum is exact
 *   bounds    touches exactly `count` elements and their blocks' absmax
 */
#ifndef BERTH_KERNELS_OPTIMIZER_CUH
#define BERTH_KERNELS_OPTIMIZER_CUH

#include "kernels/adam8.cuh"
#include "kernels/core_optimizer.h"
#include "kernels/eights.cuh"
#include "kernels/kernel_arguments.h"
#include "kernels/update_tables.cuh"

/* What a kernel is made for; each field is a constant where it is used. */
typedef struct update_variant {
    int32_t dtype;  /* of the parameter */
    bool is_adam8;  /* Adam or AdamW in 8 bits, decay in the parameter, gradients of the
                       same dtype, no master: as it is used most */
} update_variant;

/* The eight elements of a lane. */
typedef struct update_eight {
    uint64_t first;
    uint32_t there; /* bits: those before the end */
    uint32_t keep;  /* those that are updated */
    float parameter[EIGHT];
    float gradient[EIGHT];
    float state[BERTHI_UPDATE_STATES][EIGHT];
} update_eight;

/* -------------------------------------------------------------------- states */

#define UPDATE_BEHIND_SIGNED 128u /* the code of what is behind the end */

/* `number` is a constant. */
SIMT_INLINE void
update_load_state(const berthi_update_kernel *a, update_variant v, uint32_t number,
                  const update_tables *t, update_eight *e)
{
    const berthi_update_state *const s = &a->arguments.state[number];
    const bool is_signed = number != 1;
    const uint32_t *const values = t->values + (is_signed ? 0 : 256);
    simt_two codes;
    float absmax;

    if (!v.is_adam8 && s->values != NULL) {
        eight_load(s->values, BERTH_F32, e->first, e->there, a->is_aligned != 0,
                   e->state[number]);
        return;
    }
    codes = eight_load_codes(s->codes, e->first, e->there, a->is_aligned != 0,
                             is_signed ? UPDATE_BEHIND_SIGNED : 0);
    absmax = s->absmax[e->first / BERTHI_UPDATE_BLOCK];
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        e->state[number][k] = berthi_core_state_value(
            values, codes.word[k / 4] >> (k % 4 * 8) & 255u, absmax);
}

/* Over the block: over the warp. */
SIMT_INLINE float
update_absmax(const float *values)
{
    float maximum = 0.0f;

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        maximum = berthi_core_absmax_step(maximum, values[k]);
    SIMT_UNROLL
    for (uint32_t step = 1; step < SIMT_WARP; step *= 2)
        maximum = berthi_core_absmax_join(maximum, simt_shuffle_xor(maximum, step));
    return maximum;
}

/* Of a number that is none, whose scaled value is no number either, the code is 0. */
SIMT_INLINE uint32_t
update_code(float value, bool is_signed, float absmax, float reciprocal,
            const update_tables *t)
{
    const float scaled = berthi_core_multiply(value, reciprocal);

    if (absmax == 0.0f)
        return berthi_core_zero_code(is_signed, value);
    if (scaled != scaled)
        return is_signed ? berthi_core_keep_sign(0, value) : 0;
    return is_signed ? map_find_signed(scaled, t->signed_entries)
                     : map_find_unsigned(scaled, t->unsigned_entries) >> 24;
}

SIMT_INLINE void
update_save_state(const berthi_update_kernel *a, update_variant v, uint32_t number,
                  const update_tables *t, const update_eight *e)
{
    const berthi_update_state *const s = &a->arguments.state[number];
    const bool is_signed = number != 1;
    const float *const values = e->state[number];
    simt_two codes = { { 0, 0 } };
    float reciprocal;
    float absmax;

    if (!v.is_adam8 && s->values != NULL) {
        eight_store(s->values, BERTH_F32, e->first, e->there, a->is_aligned != 0, values);
        return;
    }
    absmax = update_absmax(values);
    reciprocal = berthi_core_state_reciprocal(absmax);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        codes.word[k / 4] |= update_code(values[k], is_signed, absmax, reciprocal, t)
                             << (k % 4 * 8);
    eight_store_codes(s->codes, e->first, e->there, a->is_aligned != 0, codes);
    if (simt_thread() % SIMT_WARP == 0)
        s->absmax[e->first / BERTHI_UPDATE_BLOCK] = absmax;
}

/* ------------------------------------------------------------------ elements */

/* Where it is not finite the states begin anew, and the parameter is not touched. */
SIMT_INLINE void
update_one(const berthi_update_kernel *a, update_variant v, uint32_t k, update_eight *e)
{
    const berthi_update_constants *const c = &a->constants;
    const int32_t dtype =
        !v.is_adam8 && a->arguments.master != NULL ? BERTH_F32 : v.dtype;
    berthi_core_element one = { e->parameter[k], e->state[0][k], e->state[1][k], e->state[2][k] };

    if (berthi_core_is_finite(e->gradient[k])) {
        berthi_core_step(c, v.is_adam8 ? BERTHI_UPDATE_ADAM : c->kind,
                         !v.is_adam8 && c->is_coupled, dtype, e->gradient[k], &one);
        e->keep |= 1u << k;
        e->parameter[k] = berthi_core_one_nan(one.parameter);
        e->state[0][k] = berthi_core_one_nan(one.state1);
        e->state[1][k] = berthi_core_one_nan(one.state2);
        e->state[2][k] = berthi_core_one_nan(one.state3);
    } else {
        e->state[0][k] = e->state[1][k] = e->state[2][k] = 0.0f;
    }
}

SIMT_INLINE void
update_load(const berthi_update_kernel *a, update_variant v, const update_tables *t,
            update_eight *e)
{
    const berthi_update_arguments *const its = &a->arguments;
    const bool is_aligned = a->is_aligned != 0;

    eight_load_any(its->gradient, v.is_adam8 ? v.dtype : its->gradient_dtype, e->first,
                   e->there, is_aligned, e->gradient);
    if (!v.is_adam8 && its->master != NULL)
        eight_load(its->master, BERTH_F32, e->first, e->there, is_aligned, e->parameter);
    else
        eight_load(its->parameter, v.dtype, e->first, e->there, is_aligned, e->parameter);
    update_load_state(a, v, 0, t, e);
    if (v.is_adam8 || a->states > 1)
        update_load_state(a, v, 1, t, e);
    if (!v.is_adam8 && a->states > 2)
        update_load_state(a, v, 2, t, e);
}

SIMT_INLINE void
update_save(const berthi_update_kernel *a, update_variant v, const update_tables *t,
            const update_eight *e)
{
    const berthi_update_arguments *const its = &a->arguments;
    const uint32_t keep = e->there & e->keep;
    const uint32_t dropped = e->there & ~e->keep;

    if (!v.is_adam8 && its->master != NULL)
        eight_store(its->master, BERTH_F32, e->first, keep, a->is_aligned != 0, e->parameter);
    eight_store(its->parameter, v.dtype, e->first, keep, a->is_aligned != 0, e->parameter);
    if (dropped != 0)
        simt_atomic_add(a->not_finite, simt_count_bits(dropped));
    update_save_state(a, v, 0, t, e);
    if (v.is_adam8 || a->states > 1)
        update_save_state(a, v, 1, t, e);
    if (!v.is_adam8 && a->states > 2)
        update_save_state(a, v, 2, t, e);
}

/* Any block, whole or not. */
SIMT_INLINE void
update_block(const berthi_update_kernel *a, update_variant v, const update_tables *t,
             uint64_t block)
{
    const uint64_t first = block * BERTHI_UPDATE_BLOCK + simt_thread() % SIMT_WARP * EIGHT;
    update_eight e = { first, 0, 0, { 0 }, { 0 }, { { 0 } } };

    e.there = eight_there(first, a->arguments.count);
    update_load(a, v, t, &e);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        update_one(a, v, k, &e);
    simt_warp_barrier(); /* all have read the block's absmax, which one overwrites */
    update_save(a, v, t, &e);
}

/* What a warp has to do: `turns` blocks, UPDATE_WARPS apart, of which `whole` are whole. */
typedef struct update_share {
    uint64_t block; /* the first one */
    uint32_t turns;
    uint32_t whole;
} update_share;

#define UPDATE_STEP (UPDATE_WARPS * BERTHI_UPDATE_BLOCK) /* elements from turn to turn */

/* Turns whose blocks are below `end`. */
SIMT_INLINE uint32_t
update_turns_below(const berthi_update_kernel *a, uint64_t block, uint64_t end)
{
    const uint64_t turns =
        end > block ? (end - block + UPDATE_WARPS - 1) / UPDATE_WARPS : 0;

    return turns < a->turns ? (uint32_t)turns : a->turns;
}

SIMT_INLINE update_share
update_share_of(const berthi_update_kernel *a)
{
    const uint64_t count = a->arguments.count;
    const uint64_t whole = count / BERTHI_UPDATE_BLOCK;
    const uint64_t block = simt_cta() * a->turns * UPDATE_WARPS + simt_warp();
    const update_share share = {
        block,
        update_turns_below(a, block, whole + (count % BERTHI_UPDATE_BLOCK != 0)),
        update_turns_below(a, block, whole),
    };

    return share;
}

/* All of a usual block. */
SIMT_INLINE void
update_load_usual(const berthi_update_kernel *a, int32_t dtype, uint64_t first, adam8_words *words,
                  eight_words *parameter)
{
    adam8_load(a, dtype, first, words);
    *parameter = eight_load_words(a->arguments.parameter, dtype, first);
}

/*
 * Usual blocks are done as adam8.cuh does them: the next one is on its way while a block's
 * codes are made, its parameters as soon as this one's are stored. It is read once more after
 * a block that turned out not to be usual, for which registers are short.
 */
SIMT_INLINE void
update_usual(const berthi_update_kernel *a, update_variant v, const update_tables *t,
             update_share share)
{
    const uint32_t whole = a->is_usual != 0 ? share.whole : 0;
    uint64_t first =
        share.block * BERTHI_UPDATE_BLOCK + simt_thread() % SIMT_WARP * EIGHT;
    adam8_words words = { { { 0 } }, { { { 0 } } }, { 0 } };
    eight_words parameter = { { 0 } };

    if (whole > 0)
        update_load_usual(a, v.dtype, first, &words, &parameter);
    SIMT_NO_UNROLL
    for (uint32_t turn = 0; turn < share.turns; turn++, first += UPDATE_STEP) {
        bool is_usual = turn < whole;
        uint32_t maxima[2];
        adam8_eight e;

        if (is_usual) {
            adam8_means(a, v.dtype, &words, t, &e);
            is_usual = adam8_is_usual(&e, maxima);
        }
        if (is_usual) {
            if (turn + 1 < whole)
                adam8_load(a, v.dtype, first + UPDATE_STEP, &words);
            adam8_take_step(&a->constants, v.dtype, &e, &parameter);
            eight_store_words(a->arguments.parameter, v.dtype, first, &parameter);
            if (turn + 1 < whole)
                parameter = eight_load_words(a->arguments.parameter, v.dtype,
                                             first + UPDATE_STEP);
            adam8_save_states(a, first, t, maxima, &e);
        } else {
            update_block(a, v, t, first / BERTHI_UPDATE_BLOCK);
            words = (adam8_words){ { { 0 } }, { { { 0 } } }, { 0 } };
            if (turn + 1 < whole)
                update_load_usual(a, v.dtype, first + UPDATE_STEP, &words, &parameter);
        }
    }
}

SIMT_INLINE void
update(const berthi_update_kernel *a, update_variant v, uint32_t *copies)
{
    SIMT_SHARED(uint32_t, values, 2 * 256u);
    SIMT_SHARED(uint32_t, edges, UPDATE_SIDES * MAP_EDGES);
    SIMT_SHARED(uint32_t, signed_entries, MAP_SIGNED_ENTRIES);
    SIMT_SHARED(uint32_t, unsigned_entries, MAP_UNSIGNED_BINS);
    const update_tables t = { values, copies, signed_entries, unsigned_entries };
    const update_share share = update_share_of(a);

    update_fill_tables(a, &t, edges);
    simt_wait_for_earlier();
    if (v.is_adam8) {
        update_usual(a, v, &t, share);
        return;
    }
    SIMT_NO_UNROLL
    for (uint32_t turn = 0; turn < share.turns; turn++)
        update_block(a, v, &t, share.block + turn * UPDATE_WARPS);
}

/* ------------------------------------------------------------------- kernels */

#define UPDATE_KERNEL(name, resident, dtype, is_adam8)                                \
    SIMT_INLINE void name##_body(const berthi_update_kernel *a)                       \
    {                                                                                 \
        const update_variant v = { dtype, is_adam8 };                                 \
        SIMT_SHARED(uint32_t, copies, (is_adam8) ? UPDATE_COPIES_BYTES / 4 : 1);      \
                                                                                      \
        update(a, v, (is_adam8) ? copies : NULL);                                     \
    }                                                                                 \
    SIMT_KERNEL_AHEAD(name, UPDATE_THREADS, resident, berthi_update_kernel, name##_body(a))

UPDATE_KERNEL(berthi_update_bf16, SIMT_RESIDENT_WIDE, BERTH_BF16, false)
UPDATE_KERNEL(berthi_update_f16, SIMT_RESIDENT_WIDE, BERTH_F16, false)
UPDATE_KERNEL(berthi_update_f32, SIMT_RESIDENT_WIDE, BERTH_F32, false)
UPDATE_KERNEL(berthi_update_bf16_adam8, SIMT_RESIDENT, BERTH_BF16, true)
UPDATE_KERNEL(berthi_update_f16_adam8, SIMT_RESIDENT, BERTH_F16, true)
UPDATE_KERNEL(berthi_update_f32_adam8, SIMT_RESIDENT, BERTH_F32, true)

#endif
