/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide_products.cuh - adding up where absmax are part of what is multiplied; of product_wide.cuh.
 *
 * A weight is its code's value times its absmax, rounded to the inputs' dtype: what
 * dequantization gives. A warp makes the 16 products of its rows' blocks, once for a group, and
 * keeps them as 16 low bytes and 16 high ones: a code's two bytes are then picked by byte
 * permutations, four codes at a time, without conflicts. Sums stay where they are from the first
 * column to the last one.
 */
#ifndef BERTH_KERNELS_WIDE_PRODUCTS_CUH
#define BERTH_KERNELS_WIDE_PRODUCTS_CUH

#include "kernels/wide_store.cuh"

/* --------------------------------------------------------------------------- decoding */

/* The 16 values times an absmax: low bytes and high bytes, 16 of each. */
SIMT_INLINE void
wide_make_products(const berthi_wide_kernel *a, wide_variant v, float absmax, simt_four *low,
                   simt_four *high)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t pairs[2];

        SIMT_UNROLL
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t code = 4 * i + 2 * k;

            pairs[k] = wide_pair(
                v, berthi_core_multiply_flush(berthi_core_float(a->values[code]), absmax),
                berthi_core_multiply_flush(berthi_core_float(a->values[code + 1]), absmax));
        }
        low->word[i] = simt_pick_bytes(pairs[0], pairs[1], 0x6420);
        high->word[i] = simt_pick_bytes(pairs[0], pairs[1], 0x7531);
    }
}

/* Of the warp's 16 rows and the four blocks of a group: two a lane. */
SIMT_INLINE void
wide_fill_table(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t absmax)
{
    simt_warp_barrier();
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t number = l->lane + SIMT_WARP * i;
        const uint32_t row = l->four * WIDE_ROWS + l->warp * 16 + number % 16;
        const uint32_t bits = simt_place_load4(absmax + row * 16 + number / 16 * 4);
        simt_four low;
        simt_four high;

        wide_make_products(a, v, berthi_core_float(bits), &low, &high);
        simt_place_store16(l->table + number * 16, low);
        simt_place_store16(l->table + WIDE_TABLE_BYTES / 2 + number * 16, high);
    }
    simt_warp_barrier();
}

/* Two bytes of codes: the numbers of the first, its first column in the low half; the second's. */
SIMT_INLINE void
wide_decode_bytes(uint32_t bytes, const simt_four *low, const simt_four *high, uint32_t *first,
                  uint32_t *second)
{
    const uint32_t numbers = bytes & 0x7777u;
    /* Which of the four codes are 8 or more, as a mask of bytes: the highest bits. */
    const uint32_t upper = simt_pick_bytes(bytes, bytes << 4, 0x9D8C);
    const uint32_t l = (simt_pick_bytes(low->word[2], low->word[3], numbers) & upper)
                       | (simt_pick_bytes(low->word[0], low->word[1], numbers) & ~upper);
    const uint32_t h = (simt_pick_bytes(high->word[2], high->word[3], numbers) & upper)
                       | (simt_pick_bytes(high->word[0], high->word[1], numbers) & ~upper);

    *first = simt_pick_bytes(l, h, 0x4051);
    *second = simt_pick_bytes(l, h, 0x6273);
}

/* Block `step` of a group, of the lane's two rows: fragments of four products. */
SIMT_INLINE void
wide_decode_step(const wide_lane *l, uint32_t codes, uint32_t step, uint32_t *rows)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t line = codes + (l->row + 8 * i) * WIDE_LINE;
        const uint32_t row = l->lane / 4 + 8 * i;
        const simt_four low = simt_place_load16(l->table + (step * 16 + row) * 16);
        const simt_four high =
            simt_place_load16(l->table + WIDE_TABLE_BYTES / 2 + (step * 16 + row) * 16);
        simt_four words[2];

        SIMT_UNROLL
        for (uint32_t k = 0; k < 2; k++)
            words[k] = simt_place_load16(line + ((2 * step + k) ^ l->lane / 4) * 16);
        SIMT_UNROLL
        for (uint32_t q = 0; q < 4; q++)
            wide_decode_bytes(simt_pick_bytes(words[q / 2].word[q % 2 * 2],
                                              words[q / 2].word[q % 2 * 2 + 1], l->picks),
                              &low, &high, &rows[4 * q + i], &rows[4 * q + 2 + i]);
    }
}

/* ------------------------------------------------------------------------ multiplying */

SIMT_INLINE void
wide_free_inputs(wide_variant v, const wide_room *r, const wide_lane *l, uint32_t stage)
{
    if (stage != WIDE_NONE && l->lane == 0)
        simt_gate_arrive(wide_inputs_free(v, r, stage));
}

/* `rows` were decoded; `others` may be under way. */
SIMT_INLINE void
wide_multiply_step(wide_variant v, const wide_room *r, const wide_lane *l, uint32_t *rows,
                   uint32_t *others, wide_progress *at, float *sums)
{
    const uint32_t stage = at->inputs.number;
    const uint32_t columns = wide_inputs_at(v, r, stage);

    simt_gate_wait(wide_inputs_came(r, stage), at->inputs.turn);
    simt_begin_multiplying();
    SIMT_UNROLL
    for (uint32_t q = 0; q < 4; q++)
        simt_multiply_wide(sums, rows + 4 * q, columns, q, v.shape.inputs,
                           v.dtype == BERTH_BF16, true);
    simt_end_multiplying();
    simt_wait_multiplied(1);
    simt_keep_words(others);
    wide_free_inputs(v, r, l, at->under_way);
    at->under_way = stage;
    wide_go_on(&at->inputs, v.shape.input_stages);
}

SIMT_INLINE void
wide_add_group(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
               const wide_lane *l, uint32_t rows[2][SIMT_MULTIPLY_ROWS], wide_progress *at,
               float *sums)
{
    const uint32_t stage = at->codes.number;
    const uint32_t codes = wide_codes_at(v, r, stage);

    wide_await_group(a, v, r, &at->codes);
    wide_fill_table(a, v, l, wide_absmax_at(v, r, stage));
    SIMT_UNROLL
    for (uint32_t step = 0; step < WIDE_STEPS; step++) {
        uint32_t *const its = rows[step % 2];

        wide_decode_step(l, codes, step, its);
        if (step == WIDE_STEPS - 1) {
            simt_warp_barrier();
            if (l->lane == 0)
                simt_gate_arrive(wide_codes_free(v, r, stage));
        }
        wide_multiply_step(v, r, l, its, rows[(step + 1) % 2], at, sums);
    }
    wide_go_on(&at->codes, v.shape.code_stages);
}

SIMT_INLINE void
wide_add_part(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
              const wide_lane *l, const wide_part *part, wide_progress *at, float *sums)
{
    uint32_t rows[2][SIMT_MULTIPLY_ROWS];

    at->under_way = WIDE_NONE;
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 2; i++)
        sums[i] = 0.0f;
    SIMT_UNROLL
    for (uint32_t i = 0; i < SIMT_MULTIPLY_ROWS; i++)
        rows[1][i] = 0;
    SIMT_NO_UNROLL
    for (uint32_t group = part->begin; group < part->end; group++)
        wide_add_group(a, v, r, l, rows, at, sums);
    simt_wait_multiplied(0);
    simt_keep_sums(sums, v.shape.inputs / 2);
    simt_keep_words(rows[1]);
    wide_free_inputs(v, r, l, at->under_way);
}

#endif
