/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide_pairs.cuh - adding up where absmax come behind the products; of product_wide.cuh.
 *
 * Bytes of codes are looked up as pairs of values, rounded to the inputs' dtype, in a table with a
 * copy a lane: one instruction makes the address of a byte, whichever it is of a word, one loads.
 * A block of 64 columns is multiplied on its own, while the next one is looked up, and its sums,
 * times its absmax, are added to those before: as many additions a weight as half the inputs are,
 * which is less than decoding takes otherwise as long as there are few.
 *
 * Codes, absmax and inputs of a group come through one gate and are given back through another.
 */
#ifndef BERTH_KERNELS_WIDE_PAIRS_CUH
#define BERTH_KERNELS_WIDE_PAIRS_CUH

#include "kernels/wide_store.cuh"

#define WIDE_MOST_PAIRED 64u /* inputs of a tile */
#define WIDE_MOST_FILLED 8u /* of a lane: as many as of the fewest lanes */

/* The group that was under way: its codes, absmax and inputs; one lane speaks for its warp. */
SIMT_INLINE void
wide_free_group(wide_variant v, const wide_room *r, const wide_lane *l, const wide_progress *at)
{
    simt_warp_barrier();
    if (at->under_way != WIDE_NONE && l->lane == 0)
        simt_gate_arrive(wide_codes_free(v, r, at->under_way));
}

/* Two values by their byte, the first one in the low half; a copy a lane, side by side. */
SIMT_INLINE void
wide_fill_pairs(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    const uint32_t pairs = r->begin + berthi_wide_room_of(v.shape).tables;
    const uint32_t *const values = simt_argument(a->values);
    const uint32_t lanes = WIDE_LANES(v.shape.fours);
    const uint32_t count = PRODUCT_PAIRS_BYTES / 16;
    uint32_t its[WIDE_MOST_FILLED];

    SIMT_UNROLL
    for (uint32_t k = 0; k * lanes < count; k++) {
        const uint32_t byte = (simt_thread() + k * lanes) / (SIMT_WARP / 4) % 256;

        its[k] = wide_pair(v, berthi_core_float(values[byte >> 4]),
                           berthi_core_float(values[byte & 15]));
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k * lanes < count; k++) {
        const simt_four four = { { its[k], its[k], its[k], its[k] } };

        if (simt_thread() + k * lanes < count)
            simt_place_store16(pairs + 16 * (simt_thread() + k * lanes), four);
    }
}

/* Block `step` of a group, of the lane's two rows: fragments of four products. */
SIMT_INLINE void
wide_look_up_step(const wide_lane *l, uint32_t codes, uint32_t step, uint32_t *rows)
{
    simt_four words[2][2];

    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        SIMT_UNROLL
        for (uint32_t k = 0; k < 2; k++)
            words[i][k] = simt_place_load16(codes + (l->row + 8 * i) * WIDE_LINE
                                            + ((2 * step + k) ^ l->lane / 4) * 16);
    SIMT_UNROLL
    for (uint32_t q = 0; q < 4; q++)
        SIMT_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            rows[4 * q + i] = simt_place_load4(simt_add_bytes(
                words[i % 2][q / 2].word[q % 2 * 2 + i / 2], l->byte, l->pair));
}

/* What is under way while the next block is looked up. */
typedef struct wide_block {
    uint32_t rows[2][SIMT_MULTIPLY_ROWS]; /* its fragments and the next one's, in turn */
    float part[WIDE_MOST_PAIRED / 2];     /* its sums */
    float absmax[2];                      /* by the lane's rows */
} wide_block;

/* It is over, and with a group's last one the group: `which` are its fragments. */
SIMT_INLINE void
wide_end_block(wide_variant v, const wide_room *r, const wide_lane *l, wide_block *b,
               uint32_t which, bool is_last, const wide_progress *at, float *sums)
{
    simt_wait_multiplied(0);
    simt_keep_words(b->rows[which]);
    simt_keep_sums(b->part, v.shape.inputs / 2);
    if (is_last)
        wide_free_group(v, r, l, at);
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 2; i++)
        sums[i] = fmaf(b->absmax[i / 2 % 2], b->part[i], sums[i]);
    simt_keep_sums(sums, v.shape.inputs / 2); /* nothing of this comes behind the next product */
}

SIMT_INLINE void
wide_begin_block(wide_variant v, wide_block *b, uint32_t which, uint32_t columns)
{
    simt_begin_multiplying();
    SIMT_UNROLL
    for (uint32_t q = 0; q < 4; q++)
        simt_multiply_wide(b->part, b->rows[which] + 4 * q, columns, q, v.shape.inputs,
                           v.dtype == BERTH_BF16, q > 0);
    simt_end_multiplying();
}

/* The block that is under way is the last one of the group before. */
SIMT_INLINE void
wide_add_group_by_pairs(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
                        const wide_lane *l, wide_block *b, wide_progress *at, float *sums)
{
    const uint32_t stage = at->codes.number;
    const uint32_t codes = wide_codes_at(v, r, stage);
    const uint32_t absmax = wide_absmax_at(v, r, stage) + l->row * 16;

    wide_await_group(a, v, r, &at->codes);
    SIMT_UNROLL
    for (uint32_t step = 0; step < WIDE_STEPS; step++) {
        wide_look_up_step(l, codes, step, b->rows[step % 2]);
        wide_end_block(v, r, l, b, (step + 1) % 2, step == 0, at, sums);
        wide_begin_block(v, b, step % 2, wide_inputs_at(v, r, stage * WIDE_STEPS + step));
        SIMT_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            b->absmax[i] = berthi_core_float(simt_place_load4(absmax + 8 * i * 16 + step * 4));
    }
    at->under_way = stage;
    wide_go_on(&at->codes, v.shape.code_stages);
}

SIMT_INLINE void
wide_add_part_by_pairs(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
                       const wide_lane *l, const wide_part *part, wide_progress *at, float *sums)
{
    wide_block b;

    at->under_way = WIDE_NONE;
    b.absmax[0] = b.absmax[1] = 0.0f;
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 2; i++)
        sums[i] = b.part[i] = 0.0f;
    SIMT_UNROLL
    for (uint32_t i = 0; i < SIMT_MULTIPLY_ROWS; i++)
        b.rows[1][i] = 0;
    SIMT_NO_UNROLL
    for (uint32_t group = part->begin; group < part->end; group++)
        wide_add_group_by_pairs(a, v, r, l, &b, at, sums);
    wide_end_block(v, r, l, &b, 1, true, at, sums);
}

#endif
