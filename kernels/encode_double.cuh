/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode_double.cuh - absmax -> codes of the signed map and one absmax per block of 256:
 * double quantization, once its offset is known, or the sums of CTAs that it is the mean
 * of: each CTA adds them up, in the order of mean.cuh, while its values are on their way.
 *
 * A warp has a block and a lane eight neighbours of it. A CTA makes its tables while the launch
 * before it, which makes the sums, ends, and has all that it reads on its way at once; a code is
 * one look-up. Elements behind the last one are zeros that take part, as they do in the published
 * format.
 *
 *   traffic   per absmax 4 B read, 1 B written, and 4 B a block
 *   launch    berthi_double_ctas() CTAs of DOUBLE_THREADS lanes
 *   bits      core.h; the order of lanes cannot matter: a maximum is exact
 *   bounds    writes exactly the codes of `count` elements and their absmax; reads nothing
 *             behind them
 */
#ifndef BERTH_KERNELS_ENCODE_DOUBLE_CUH
#define BERTH_KERNELS_ENCODE_DOUBLE_CUH

#include "kernels/eights.cuh"
#include "kernels/kernel_arguments.h"
#include "kernels/map_entries.cuh"
#include "kernels/mean.cuh"

#define DOUBLE_ENTRIES (2 * MAP_SIGNED_BINS / DOUBLE_THREADS) /* that a lane makes */

#define DOUBLE_LEAST (-1.0f) /* its code is 0, as that of NaN is */

/* A CTA's own. */
typedef struct double_tables {
    uint32_t *map;
    uint32_t *edges;
    uint32_t *entries;
} double_tables;

/* Ends with a barrier. */
SIMT_INLINE void
double_fill_tables(const berthi_double_kernel *a, const double_tables *t)
{
    const uint32_t *const map = simt_argument(a->map);
    const uint32_t thread = simt_thread();
    const uint32_t first = thread * DOUBLE_ENTRIES;
    const uint32_t side = first < MAP_SIGNED_BINS ? 0 : 1;

    if (thread < 256)
        t->map[thread] = map[thread];
    simt_barrier();
    SIMT_NO_UNROLL
    for (uint32_t i = thread; i < 2 * MAP_EDGES; i += DOUBLE_THREADS)
        t->edges[i] = map_edge(t->map, i < MAP_EDGES ? MAP_FROM_ABOVE : MAP_FROM_BELOW,
                               i % MAP_EDGES);
    simt_barrier();
    map_fill(t->edges + side * MAP_EDGES, side == 0 ? MAP_FROM_ABOVE : MAP_FROM_BELOW,
             MAP_SIGNED_BITS, first - side * MAP_SIGNED_BINS, DOUBLE_ENTRIES,
             t->entries + side * MAP_SIGNED_SIDE);
    simt_barrier();
}

/* Of the block, which the warp has; where all is NaN it is where a maximum starts. */
SIMT_INLINE float
double_absmax(const float *values)
{
    const uint32_t sign = 0x80000000u; /* with it turned words are ordered as numbers are */
    float maximum = berthi_core_absmax_seed(true);

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        maximum = berthi_core_absmax_step(maximum, values[k]);
    return berthi_core_float(simt_largest(berthi_core_bits(maximum) ^ sign) ^ sign);
}

/* The lane's codes from `first` on, those that are there; an ordinary subtraction. */
SIMT_INLINE void
double_block(const berthi_double_kernel *a, uint64_t first, uint32_t there, bool is_aligned,
             float offset, const float *from, const uint32_t *entries)
{
    float values[EIGHT];
    simt_two codes;
    float reciprocal;
    float absmax;

    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++)
        values[k] = (there >> k & 1) != 0 ? berthi_core_add(from[k], -offset) : 0.0f;
    absmax = double_absmax(values);
    reciprocal = berthi_core_reciprocal(absmax);
    SIMT_UNROLL
    for (uint32_t k = 0; k < EIGHT; k++) {
        const float scaled = berthi_core_multiply_flush(values[k], reciprocal);

        values[k] = scaled != scaled ? DOUBLE_LEAST : scaled;
    }
    codes.word[0] = map_find_four_signed(values, entries);
    codes.word[1] = map_find_four_signed(values + 4, entries);
    eight_store_codes(a->codes, first, there, is_aligned, codes);
    if (simt_thread() % SIMT_WARP == 0 && there != 0)
        a->absmax[first / BERTHI_DOUBLE_BLOCK] = absmax;
}

/* `sum` is what the lane has of the mean, `lanes` memory for all of them. */
SIMT_INLINE float
double_offset(const berthi_double_kernel *a, float sum, float *lanes)
{
    const berthi_mean_kernel *const join = &a->join;

    if (join->values == NULL)
        return *a->offset;
    sum = mean_result(join, sum, lanes);
    simt_barrier(); /* all have read what the first one overwrites */
    if (simt_thread() == 0) {
        lanes[0] = sum;
        if (simt_cta() == 0)
            join->sums[0] = sum;
    }
    simt_barrier();
    return lanes[0];
}

SIMT_INLINE void
encode_double(const berthi_double_kernel *a)
{
    SIMT_SHARED(uint32_t, map, 256u);
    SIMT_SHARED(uint32_t, edges, 2 * MAP_EDGES);
    SIMT_SHARED(uint32_t, entries, MAP_SIGNED_ENTRIES);
    SIMT_SHARED(float, lanes, DOUBLE_THREADS);
    const double_tables tables = { map, edges, entries };
    const uint64_t begin = simt_cta() * DOUBLE_CTA + simt_thread() * EIGHT;
    const bool is_whole =
        a->is_aligned != 0 && a->count - simt_cta() * DOUBLE_CTA >= DOUBLE_CTA;
    float values[DOUBLE_TURNS][EIGHT];
    float offset;

    double_fill_tables(a, &tables);
    simt_wait_for_earlier();
    offset = a->join.values != NULL ? mean_gather_sums(&a->join) : 0.0f;
    if (is_whole) {
        SIMT_UNROLL
        for (uint32_t t = 0; t < DOUBLE_TURNS; t++)
            eight_load(a->values, BERTH_F32, begin + t * DOUBLE_TURN, EIGHT_ALL, true,
                       values[t]);
    }
    offset = double_offset(a, offset, lanes);
    if (is_whole) {
        SIMT_UNROLL
        for (uint32_t t = 0; t < DOUBLE_TURNS; t++)
            double_block(a, begin + t * DOUBLE_TURN, EIGHT_ALL, true, offset, values[t],
                         entries);
        return;
    }
    SIMT_NO_UNROLL
    for (uint32_t t = 0; t < DOUBLE_TURNS; t++) {
        const uint64_t first = begin + t * DOUBLE_TURN;
        const uint32_t there = eight_there(first, a->count);

        eight_load(a->values, BERTH_F32, first, there, a->is_aligned != 0, values[0]);
        double_block(a, first, there, a->is_aligned != 0, offset, values[0], entries);
    }
}

SIMT_KERNEL_AHEAD(berthi_encode_double, DOUBLE_THREADS, SIMT_RESIDENT, berthi_double_kernel,
                  encode_double(a))

#endif
