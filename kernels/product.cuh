/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.cuh - inputs times weights of 4-bit codes, with plain or double
 * quantized absmax, by tensor cores: what a model does for each token.
 *
 * A warp has 32 rows and 8, 16 or 32 inputs, fragments of 16 and of 8: a weight is decoded
 * once for all inputs, and inputs are read once for 32 rows. What binds it is neither the
 * device's memory nor arithmetic but how often lanes ask the first cache and shared memory,
 * so everything asks for as much at once as there is: a lane takes 16 bytes of codes, 32
 * neighbours in a step of 128 columns. Which columns a lane's part of a fragment has is free
 * as long as weights and inputs agree: no other order in memory is needed. Where a step has
 * two blocks, its first two lanes of four have the one and the others the other, and they
 * exchange halves, so that one product is of one block (a chunk). Bytes are looked up as
 * pairs of bf16 or fp16 in a table with a copy a lane. A chunk is summed, then times its
 * absmax added to the sum. Warps of a CTA may share a row's columns; their sums are added in
 * the warps' order.
 *
 * Kernels of experts have several weights of one shape in one grid, 8 inputs a CTA. Whose
 * inputs are whose they read from the device's memory: no host has to know. Those of weights
 * together have a few that meet the same inputs, each with rows of its own: what the arguments
 * say of them.
 *
 *   traffic   per weight 0.5 B, and 4 B a block (double quantized: 1 B)
 *   launch    berthi_product_ctas() CTAs of PRODUCT_THREADS lanes
 *   bits      of an input the same alone and in a batch, and each time; within a
 *             bound of the exact sums: not the bits of other levels
 *   bounds    writes exactly count x rows outputs; reads nothing behind the last
 *             code, absmax and input
 */
#ifndef BERTH_KERNELS_PRODUCT_CUH
#define BERTH_KERNELS_PRODUCT_CUH

#include "kernels/product_feed.cuh"

/* Two values a byte, the first one in the low half: a copy a lane, side by side. */
SIMT_INLINE void
product_fill_pairs(const berthi_product_kernel *a, product_variant v, uint32_t *pairs)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_PAIRS_BYTES / 16; i += PRODUCT_THREADS) {
        const uint32_t place = i + simt_thread();
        const uint32_t byte = place / (SIMT_WARP / 4);
        const float first = berthi_core_float(simt_argument(a->table)[byte >> 4]);
        const float second = berthi_core_float(simt_argument(a->table)[byte & 15]);
        const uint32_t pair = v.dtype == BERTH_BF16 ? berthi_core_to_bf16_pair(first, second)
                                                    : berthi_core_to_fp16_pair(first, second);
        const simt_four four = { { pair, pair, pair, pair } };

        simt_store16(pairs + 4 * place, four);
    }
}

/* Byte k of a word, of this lane's copy: 128 bytes of table a byte of codes. */
SIMT_INLINE uint32_t
product_pair(const uint32_t *pairs, uint32_t copy, uint32_t word, uint32_t k)
{
    const uint32_t at = simt_add_bytes(word, 128u << 8 * k, copy);

    return simt_shared_load4((const uint8_t *)pairs + at);
}

/* Of the lane's rows, two inputs each: those of a tile are 8 apart. */
typedef struct product_sums {
    float of[PRODUCT_TILES][PRODUCT_MOST_FRAGMENTS][4];
} product_sums;

SIMT_INLINE void
product_clear_sums(product_variant v, product_sums *sums)
{
    SIMT_UNROLL
    for (uint32_t tile = 0; tile < v.tiles; tile++)
        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            SIMT_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                sums->of[tile][f][i] = 0.0f;
}

/* -------------------------------------------------------------------- adding */

/* Eight weights of each row, two products for each tile. */
SIMT_INLINE void
product_add_word(product_variant v, uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS], uint32_t w,
                 uint32_t copy, uint32_t x[PRODUCT_MOST_FRAGMENTS][4], const uint32_t *pairs,
                 product_sums *part)
{
    SIMT_UNROLL
    for (uint32_t tile = 0; tile < v.tiles; tile++)
        SIMT_UNROLL
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t first = codes[2 * tile][w];
            const uint32_t second = codes[2 * tile + 1][w];
            const uint32_t rows[4] = {
                product_pair(pairs, copy, first, 2 * j),
                product_pair(pairs, copy, second, 2 * j),
                product_pair(pairs, copy, first, 2 * j + 1),
                product_pair(pairs, copy, second, 2 * j + 1),
            };

            SIMT_UNROLL
            for (uint32_t f = 0; f < v.fragments; f++)
                if (v.dtype == BERTH_BF16)
                    simt_multiply_bf16(part->of[tile][f], rows, x[f] + 2 * j);
                else
                    simt_multiply_f16(part->of[tile][f], rows, x[f] + 2 * j);
        }
}

/*
 * Words of the first chunk, then of the second: a lane keeps two of its four, and gives the others
 * to the lane of the other half for two of theirs.
 */
SIMT_INLINE void
product_exchange(bool is_upper, uint32_t codes[PRODUCT_WORDS])
{
    SIMT_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t own = codes[k];
        const uint32_t theirs = (uint32_t)simt_shuffle_xor_int((int32_t)codes[2 + k], 2);

        codes[k] = is_upper ? theirs : own;
        codes[2 + k] = is_upper ? own : theirs;
    }
}

/*
 * Chunk c of step t of a pair; its absmax are one in each lane of the quad, by rows. A word's place
 * is filled with what follows as soon as it has been used.
 */
SIMT_INLINE void
product_add_chunk(const berthi_product_kernel *a, product_variant v, product_input *in,
                  uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS], const product_place *place,
                  uint32_t t, uint32_t step, uint32_t next, uint32_t c,
                  const uint32_t *pairs, product_sums *sums)
{
    const uint32_t words = PRODUCT_WORDS / product_chunks(v);
    const float own = in->absmax[t * product_chunks(v) + c];
    product_sums part;

    product_clear_sums(v, &part);
    SIMT_UNROLL
    for (uint32_t w = c * words; w < (c + 1) * words; w++) {
        product_add_word(v, codes, w, place->copy, in->x[w % product_words_ahead(v)], pairs, &part);
        product_read_ahead(a, v, place, step, next, w, in);
    }
    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_ROWS; i++) {
        const float absmax = simt_shuffle_quad(own, i);

        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            SIMT_UNROLL
            for (uint32_t k = i % 2 * 2; k < i % 2 * 2 + 2; k++)
                sums->of[i / 2][f][k] = fmaf(absmax, part.of[i / 2][f][k],
                                             sums->of[i / 2][f][k]);
    }
}

/* A warp's first step: asked for before anything has to be waited for. */
SIMT_INLINE void
product_begin(const berthi_product_kernel *a, product_variant v, const product_place *place,
              uint32_t step, product_input *in)
{
    if (!product_has_chunk(v, place, step, 0))
        return;
    product_read_codes(v, place, step, 0, in);
    SIMT_UNROLL
    for (uint32_t w = 0; w < product_words_ahead(v); w++)
        product_read_word(a, v, place, step, w, in);
}

/* Step t of a pair, which has come: its codes are put in order, and the next one's asked for. */
SIMT_INLINE void
product_add_step(const berthi_product_kernel *a, product_variant v, const product_place *place,
                 uint32_t step, uint32_t next, uint32_t t, product_input *in,
                 const uint32_t *pairs, product_sums *sums)
{
    product_read_codes(v, place, next, 1 - t, in);
    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_ROWS && v.chunk_log2 == 6; i++)
        product_exchange(place->is_upper, in->codes[t][i]);
    SIMT_UNROLL
    for (uint32_t c = 0; c < product_chunks(v); c++)
        if (product_has_chunk(v, place, step, c))
            product_add_chunk(a, v, in, in->codes[t], place, t, step, next, c, pairs, sums);
}

/* The pair of steps at `step`, and what of the next one is asked for; that one's number. */
SIMT_INLINE uint32_t
product_add_pair(const berthi_product_kernel *a, product_variant v, const product_job *job,
                 const product_place *place, uint32_t step, bool has_quads, product_input *in,
                 const uint32_t *pairs, const uint32_t *map, product_sums *sums)
{
    const uint32_t after = step + 2 * a->slices;
    /* Behind the last one something is read again: that is less than to ask each time. */
    const uint32_t next = product_has_chunk(v, place, after, 0) ? after : step;
    const bool has_second = product_has_chunk(v, place, step + 1, 0);

    product_read_absmax(a, v, job, place, step, has_quads, map, in);
    product_add_step(a, v, place, step, has_second ? step + 1 : next, 0, in, pairs, sums);
    if (has_second)
        product_add_step(a, v, place, step + 1, next, 1, in, pairs, sums);
    return after;
}

/*
 * The warp's share of its rows' columns, from the pair of steps at `step` on, the first of which
 * is on its way. Pairs are dealt out to the warps that share rows, one each in turn: what a CTA
 * reads of a row at a time is in one place, a kilobyte where there are eight. Warps with columns
 * far from each other's would read 64 bytes here and there: measured on an H200, at four fifths
 * of the speed.
 */
SIMT_INLINE void
product_add_share(const berthi_product_kernel *a, product_variant v, const product_job *job,
                  const product_place *place, uint32_t step, product_input *in,
                  const uint32_t *pairs, const uint32_t *map, product_sums *sums)
{
    /* All lanes of a warp agree. The second loop is for absmax that lie oddly. */
    if (v.chunk_log2 == 7 || place->has_quads) {
        SIMT_UNROLL_BY(PRODUCT_TURNS)
        while (product_has_chunk(v, place, step, 0))
            step = product_add_pair(a, v, job, place, step, v.chunk_log2 == 6, in, pairs, map,
                                    sums);
        return;
    }
    SIMT_NO_UNROLL
    while (product_has_chunk(v, place, step, 0))
        step = product_add_pair(a, v, job, place, step, false, in, pairs, map, sums);
}

/* The slices of a tile, in order; lanes of its first warp get all of this fragment. */
SIMT_INLINE void
product_join_slices(uint32_t slices, float *all, float *sums)
{
    const uint32_t thread = simt_thread();

    SIMT_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        all[i * PRODUCT_THREADS + thread] = sums[i];
    simt_barrier();
    if (thread / SIMT_WARP % slices == 0)
        SIMT_NO_UNROLL
        for (uint32_t s = 1; s < slices; s++)
            SIMT_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                sums[i] = berthi_core_add(sums[i],
                                          all[i * PRODUCT_THREADS + thread + s * SIMT_WARP]);
    simt_barrier();
}

/* Of a warp: which rows it has, and which share of their columns. */
typedef struct product_tile {
    uint64_t first_row;
    uint32_t slice;
} product_tile;

SIMT_INLINE product_tile
product_find_tile(const berthi_product_kernel *a, product_variant v)
{
    const uint32_t warp = simt_warp();
    const product_tile tile = {
        (product_find_cta(a, v) * (PRODUCT_WARPS / a->slices) + warp / a->slices)
            * PRODUCT_TILE_ROWS,
        warp % a->slices,
    };

    return tile;
}

/* Tile and job are found once more: registers are few while chunks are added. */
SIMT_INLINE void
product_store_sums(const berthi_product_kernel *a, product_variant v, float *all,
                   product_sums *sums)
{
    const product_tile tile = product_find_tile(a, v);
    const product_job job = product_find_job(a, v);
    const uint32_t lane = simt_thread() % SIMT_WARP;

    SIMT_UNROLL
    for (uint32_t k = 0; k < PRODUCT_TILES * v.fragments; k++) {
        const uint32_t f = k % v.fragments;
        const uint64_t row =
            tile.first_row + k / v.fragments * 16 + lane / PRODUCT_QUAD;
        float *const its = sums->of[k / v.fragments][f];

        if (a->slices > 1)
            product_join_slices(a->slices, all, its);
        if (tile.slice == 0)
            SIMT_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                product_store(v, &job, f * PRODUCT_INPUTS + lane % PRODUCT_QUAD * 2 + i % 2,
                              row + i / 2 * 8, its[i]);
    }
}

SIMT_INLINE void
product_by_tensor_cores(const berthi_product_kernel *a, product_variant v, uint32_t *map)
{
    SIMT_SHARED(uint32_t, pairs, PRODUCT_PAIRS_BYTES / 4);
    SIMT_SHARED(float, all, 4 * PRODUCT_THREADS);
    const product_job job = product_find_job(a, v);
    const product_tile tile = product_find_tile(a, v);
    const product_place place = product_find_place(a, v, &job, tile.first_row);
    /* A step that no row has, where the tile has no rows. */
    const uint32_t first = tile.first_row < job.rows ? tile.slice * 2 : UINT32_MAX / 4;
    product_input in = { { { { 0 } } }, { { { 0 } } }, { 0.0f } };
    product_sums sums;

    if (v.has_experts && job.count == 0)
        return; /* all lanes of the CTA */
    product_begin(a, v, &place, first, &in);
    product_clear_sums(v, &sums);
    product_fill_pairs(a, v, pairs);
    product_fill_map(v, simt_argument(a->map), map);
    simt_barrier();
    product_add_share(a, v, &job, &place, first, &in, pairs, map, &sums);
    product_store_sums(a, v, all, &sums);
}

/* ------------------------------------------------------------------- kernels */

#define PRODUCT_KERNEL(name, by, resident, dtype, is_double, chunk_log2, fragments, \
                       has_experts, has_members)                                      \
    SIMT_INLINE void name##_body(const berthi_product_kernel *a)                      \
    {                                                                                 \
        const product_variant v = { dtype,         is_double,   chunk_log2,  fragments, \
                                    PRODUCT_TILES, has_experts, has_members, false }; \
        SIMT_SHARED(uint32_t, map, (is_double) ? 256 : 1);                            \
                                                                                      \
        product_by_##by(a, v, map);                                                   \
    }                                                                                 \
    SIMT_KERNEL_OF(name, PRODUCT_THREADS, resident, berthi_product_kernel, name##_body(a))

#define PRODUCT_KERNELS(name, resident, chunk_log2, fragments, has_experts, has_members)  \
    PRODUCT_KERNEL(name##_bf16, tensor_cores, resident, BERTH_BF16, false, chunk_log2, \
                   fragments, has_experts, has_members)                               \
    PRODUCT_KERNEL(name##_f16, tensor_cores, resident, BERTH_F16, false, chunk_log2,  \
                   fragments, has_experts, has_members)                               \
    PRODUCT_KERNEL(name##_bf16_double, tensor_cores, resident, BERTH_BF16, true,      \
                   chunk_log2, fragments, has_experts, has_members)                   \
    PRODUCT_KERNEL(name##_f16_double, tensor_cores, resident, BERTH_F16, true,        \
                   chunk_log2, fragments, has_experts, has_members)

PRODUCT_KERNELS(berthi_product_64, SIMT_RESIDENT_WIDE, 6, 1, false, false)
PRODUCT_KERNELS(berthi_product_128, SIMT_RESIDENT_WIDE, 7, 1, false, false)
PRODUCT_KERNELS(berthi_product16_64, SIMT_RESIDENT_WIDE, 6, 2, false, false)
PRODUCT_KERNELS(berthi_product16_128, SIMT_RESIDENT_WIDE, 7, 2, false, false)
PRODUCT_KERNELS(berthi_product32_64, 256, 6, 4, false, false)
PRODUCT_KERNELS(berthi_product32_128, 256, 7, 4, false, false)
PRODUCT_KERNELS(berthi_experts_64, SIMT_RESIDENT_WIDE, 6, 1, true, false)
PRODUCT_KERNELS(berthi_experts_128, SIMT_RESIDENT_WIDE, 7, 1, true, false)
PRODUCT_KERNELS(berthi_together_64, SIMT_RESIDENT_WIDE, 6, 1, false, true)
PRODUCT_KERNELS(berthi_together_128, SIMT_RESIDENT_WIDE, 7, 1, false, true)

#endif
