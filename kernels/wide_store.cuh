/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide_store.cuh - the lanes that multiply, and where their sums go: to outputs, or, of a tile that
 * several CTAs have columns of, to the one that began it; of product_wide.cuh.
 */
#ifndef BERTH_KERNELS_WIDE_STORE_CUH
#define BERTH_KERNELS_WIDE_STORE_CUH

#include "kernels/wide_feed.cuh"

/* ------------------------------------------------------------------------------ lanes */

/* A lane of those that multiply. */
typedef struct wide_lane {
    uint32_t four;  /* its warps' number */
    uint32_t warp;  /* among the four */
    uint32_t lane;
    uint32_t row;   /* of the tile: its first one; the other is 8 further on */
    uint32_t table; /* places: the warp's products, */
    uint32_t stage; /* and the four's outputs */
    uint32_t picks; /* which bytes of codes are the lane's, of two words */
    uint32_t byte;  /* by pairs: which one of a word, as what it is multiplied by */
    uint32_t pair;  /* and the place of the lane's first pair */
} wide_lane;

SIMT_INLINE wide_lane
wide_find_lane(wide_variant v, const wide_room *r, uint32_t number)
{
    const berthi_wide_room at = berthi_wide_room_of(v.shape);
    wide_lane l;

    l.four = number / WIDE_FOUR_WARPS;
    l.warp = number % WIDE_FOUR_WARPS;
    l.lane = simt_thread() % SIMT_WARP;
    l.row = number * 16 + l.lane / 4;
    l.table = r->begin + at.tables + number * WIDE_TABLE_BYTES;
    l.stage = r->begin + at.outputs + l.four * (WIDE_OUTPUTS * WIDE_OUTPUT_LINE);
    l.picks = l.lane % 4 | (4 + l.lane % 4) << 4;
    l.byte = SIMT_WARP * 4u << 8 * (l.lane % 4);
    l.pair = r->begin + at.tables + l.lane * 4;
    return l;
}

SIMT_INLINE uint32_t
wide_pair(wide_variant v, float low, float high)
{
    return v.dtype == BERTH_BF16 ? berthi_core_to_bf16_pair(low, high)
                                 : berthi_core_to_fp16_pair(low, high);
}

/* ----------------------------------------------------------------------- split tiles */

SIMT_INLINE uint32_t *
wide_flag(const berthi_wide_kernel *a, const wide_lane *l, uint32_t share)
{
    return a->flags + (share * WIDE_FLAGS + l->four);
}

/* A lane's four sums of 128 lanes lie side by side. */
SIMT_INLINE float *
wide_parts(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t share)
{
    return a->parts + (uint64_t)(share * v.shape.fours + l->four) * (WIDE_ROWS * v.shape.inputs)
           + (l->warp * SIMT_WARP + l->lane) * 4;
}

SIMT_INLINE void
wide_leave_sums(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l,
                const float *sums)
{
    float *const to = wide_parts(a, v, l, wide_share());

    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 8; i++) {
        simt_four four;

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            four.word[k] = berthi_core_bits(sums[4 * i + k]);
        simt_send16(to + i * (4 * SIMT_GROUP), four);
    }
    simt_group_barrier(l->four);
    if (l->warp == 0 && l->lane == 0)
        simt_raise_flag(wide_flag(a, l, wide_share()));
}

SIMT_INLINE void
wide_add_sums(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t share,
              float *sums)
{
    const float *const from = wide_parts(a, v, l, share);

    if (l->warp == 0 && l->lane == 0)
        simt_await_flag(wide_flag(a, l, share));
    simt_group_barrier(l->four);
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 8; i++) {
        const simt_four four = simt_receive16(from + i * (4 * SIMT_GROUP));

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            sums[4 * i + k] = berthi_core_add(sums[4 * i + k], berthi_core_float(four.word[k]));
    }
}

/* Of those that have the tile's other columns, in their order. */
SIMT_INLINE void
wide_add_others(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l,
                const wide_part *part, float *sums)
{
    const uint32_t end = (part->tile + 1) * a->groups;

    SIMT_NO_UNROLL
    for (uint32_t share = wide_share() + 1;
         share < (uint32_t)simt_ctas() && wide_share_begin(a, share) < end; share++)
        wide_add_sums(a, v, l, share, sums);
}

/* ---------------------------------------------------------------------------- storing */

SIMT_INLINE float
wide_bias(const berthi_wide_kernel *a, wide_variant v, uint32_t row)
{
    return a->bias != NULL && row < a->rows ? berthi_core_load(a->bias, v.dtype, row) : 0.0f;
}

/* Sums of 32 inputs to shared memory, where an input's 64 outputs are neighbours. */
SIMT_INLINE void
wide_turn_outputs(wide_variant v, const wide_lane *l, const float *sums, const float bias[2])
{
    const uint32_t matrix = l->lane / 8;

    SIMT_UNROLL
    for (uint32_t i = 0; i < WIDE_OUTPUTS / 8; i += 2) {
        const uint32_t line = 8 * (i + matrix / 2) + l->lane % 8;
        uint32_t words[4];

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const float *const its = sums + 4 * i + 2 * k;

            words[k] = wide_pair(v, berthi_core_add(its[0], bias[k % 2]),
                                 berthi_core_add(its[1], bias[k % 2]));
        }
        simt_store_turned(l->stage + line * WIDE_OUTPUT_LINE
                              + (16 * l->warp + 8 * (matrix % 2)) * 2,
                          words);
    }
}

/* Eight outputs of an input, or those of them that there are. */
SIMT_INLINE void
wide_store_eight(const berthi_wide_kernel *a, uint32_t input, uint32_t row, simt_four eight)
{
    uint16_t *const to = (uint16_t *)a->outputs + (input * a->rows + row);

    if (a->is_aligned && row < a->rows) {
        simt_store16(to, eight);
        return;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < 8; k++)
        if (row + k < a->rows)
            to[k] = (uint16_t)(eight.word[k / 2] >> 16 * (k % 2));
}

/* Those of 32 inputs, from `input` on, by all of the four warps. */
SIMT_INLINE void
wide_store_outputs(const berthi_wide_kernel *a, const wide_lane *l, uint32_t input, uint32_t row)
{
    const uint32_t lane = l->warp * SIMT_WARP + l->lane;

    SIMT_UNROLL
    for (uint32_t i = 0; i < WIDE_OUTPUTS; i += SIMT_GROUP / 8) {
        const uint32_t line = i + lane / 8;
        const simt_four eight =
            simt_place_load16(l->stage + line * WIDE_OUTPUT_LINE + lane % 8 * 16);

        if (input + line < a->count)
            wide_store_eight(a, input + line, row + lane % 8 * 8, eight);
    }
}

SIMT_INLINE void
wide_store_tile(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t tile,
                const float *sums)
{
    const uint32_t row = wide_first_row(a, v, tile) + l->four * WIDE_ROWS;
    const uint32_t own = row + l->warp * 16 + l->lane / 4;
    const uint32_t input = wide_first_input(a, v, tile);
    const float bias[2] = { wide_bias(a, v, own), wide_bias(a, v, own + 8) };

    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs; i += WIDE_OUTPUTS)
        if (input + i < a->count) {
            wide_turn_outputs(v, l, sums + i / 2, bias);
            simt_group_barrier(l->four);
            wide_store_outputs(a, l, input + i, row);
            simt_group_barrier(l->four);
        }
}

#endif
