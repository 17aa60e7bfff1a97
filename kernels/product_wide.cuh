/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_wide.cuh - products of many inputs by the widest tensor cores there are, those of
 * sm_90a: weights are decoded where they are multiplied, and never written.
 *
 * A CTA has as many tiles of rows and inputs as its share of the work is; there are as many
 * CTAs as processors. Its last four warps feed (wide_feed.cuh): one lane asks for codes and
 * absmax, a group of 256 columns at a time, another for inputs; two warps decode double quantized
 * absmax. All others multiply, four together: a warp has 16 rows of weights as one operand in
 * registers, the other one, inputs, lies in shared memory as it has come. Gates tell lanes what
 * has come and feeders what is free. Who asks has nothing else to do: what one lane took over a
 * division for each request the memory stood still for.
 *
 * Of up to 64 inputs codes are looked up as pairs of values, and absmax come to the sums of a block
 * (wide_pairs.cuh); of more, absmax are part of what is multiplied (wide_products.cuh).
 *
 * Where tiles cannot be dealt evenly the first ones are split between CTAs by groups of
 * columns: who begins in the middle of a tile does that first, leaves its sums in memory and
 * raises a flag, and who began the tile adds them up in the order of columns. A CTA waits for
 * those of lower numbers alone, which begin earlier and wait for nobody before that: none is
 * waited for that cannot go on.
 *
 * Measured on an H200, 8192 x 28672: 54 us for 32 inputs, where rings take 99, 69 to 74 for 64; and
 * against cuBLASLt with weights of bf16 0.56 to 0.60 of its time for 64 inputs, 1.09 for 128, 1.06
 * for 256, 1.10 for 512 and 1,024. Of pairs three quarters of what shared memory moves is in use;
 * four times 64 rows a CTA, codes read a block ahead, and two blocks at once gain nothing.
 *
 *   traffic   per weight 0.5 B and 4 B a block (double quantized: 1 B) for each tile of inputs;
 *             inputs for each tile of rows, mostly from the cache
 *   launch    a CTA a processor, at most one for each tile or group of columns, of 128 lanes and
 *             128 for each four warps that multiply, with berthi_wide_room_bytes(); it reads codes
 *             and plain absmax ahead of earlier work where these are settled
 *   bits      the same each time on GPUs with as many processors: where tiles are split decides
 *   bounds    writes exactly count x rows outputs, and of CTAs that begin within a tile parts and
 *             flags; copies of tiles read nothing beyond the matrices
 */
#ifndef BERTH_KERNELS_PRODUCT_WIDE_CUH
#define BERTH_KERNELS_PRODUCT_WIDE_CUH

#include "kernels/wide_pairs.cuh"
#include "kernels/wide_products.cuh"

SIMT_INLINE void
wide_multiply_all(const berthi_wide_kernel *a, wide_variant v, const wide_room *r, uint32_t warp)
{
    const wide_lane l = wide_find_lane(v, r, warp);
    wide_progress at = { { 0, 0 }, { 0, 0 }, WIDE_NONE };
    wide_walk walk = wide_begin_walk(a);
    float sums[WIDE_MOST_INPUTS / 2];
    wide_part part;

    while (wide_find_part(a, &walk, &part)) {
        if (v.shape.by_pairs)
            wide_add_part_by_pairs(a, v, r, &l, &part, &at, sums);
        else
            wide_add_part(a, v, r, &l, &part, &at, sums);
        if (part.begin > 0) {
            wide_leave_sums(a, v, &l, sums);
            continue;
        }
        if (part.end < a->groups)
            wide_add_others(a, v, &l, &part, sums);
        wide_store_tile(a, v, &l, part.tile, sums);
    }
    simt_warp_barrier();
    if (l.lane == 0)
        simt_gate_arrive(wide_end_gate(v, r));
}

SIMT_INLINE void
wide_fill_map(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    const uint32_t *const map = simt_argument(a->map);
    const uint32_t lane = simt_thread();

    if (a->absmax_codes != NULL && lane < 64) {
        const simt_four four = { { map[4 * lane], map[4 * lane + 1], map[4 * lane + 2],
                                   map[4 * lane + 3] } };

        simt_place_store16(r->begin + berthi_wide_room_of(v.shape).map + 16 * lane, four);
    }
}

/* Lanes of both kinds have registers as they need them: 64 K in all. */
SIMT_INLINE void
wide_multiply(const berthi_wide_kernel *a, wide_variant v, const uint8_t *memory)
{
    const wide_room r = wide_find_room(v, memory);
    const uint32_t warp = simt_warp();
    const uint32_t multipliers = v.shape.fours * WIDE_FOUR_WARPS;

    if (!a->is_settled)
        simt_wait_for_earlier();
    if (simt_thread() == 0)
        wide_begin_gates(a, v, &r);
    wide_fill_map(a, v, &r);
    if (v.shape.by_pairs)
        wide_fill_pairs(a, v, &r);
    simt_barrier();
    if (warp >= multipliers) {
        simt_give_registers(40);
        wide_feed_all(a, v, &r, warp - multipliers);
    } else {
        if (v.shape.fours == 3)
            simt_take_registers(152);
        else
            simt_take_registers(232);
        simt_wait_for_earlier();
        wide_multiply_all(a, v, &r, warp);
    }
}

#define WIDE_KERNEL(name, dtype, inputs, fours)                                       \
    SIMT_INLINE void name##_body(const berthi_wide_kernel *a)                         \
    {                                                                                 \
        const wide_variant v = { dtype, WIDE_SHAPE_##inputs };                        \
        SIMT_ROOM(memory, berthi_wide_room_bytes(v.shape));                           \
                                                                                      \
        wide_multiply(a, v, memory);                                                  \
    }                                                                                 \
    SIMT_KERNEL_AHEAD(name, WIDE_LANES(fours), WIDE_LANES(fours), berthi_wide_kernel, \
                   name##_body(a))

#define WIDE_KERNELS(inputs, fours)                                                   \
    WIDE_KERNEL(berthi_wide##inputs##_bf16, BERTH_BF16, inputs, fours)                \
    WIDE_KERNEL(berthi_wide##inputs##_f16, BERTH_F16, inputs, fours)

WIDE_KERNELS(32, 3)
WIDE_KERNELS(64, 3)
WIDE_KERNELS(128, 3)
WIDE_KERNELS(256, 2)

#endif

