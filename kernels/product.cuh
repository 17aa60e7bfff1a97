/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.cuh - inputs times weights of 4-bit codes, with plain or double
 * quantized absmax, by tensor cores: what a model does for each token.
 *
 * A warp has 16 rows and 8, 16 or 32 inputs, fragments of 8: a weight is decoded once
 * for all of them. Which columns a lane's part of a fragment has
 * is free as long as weights and inputs agree, so a lane takes 16 or 32 neighbours
 * of each 64 or 128 (a chunk, within one block): no shuffle of codes, no other
 * order in memory. Bytes are looked up as pairs of bf16 or fp16 in a table with a
 * copy a lane. A chunk is summed, then times its absmax added to the sum; the four
 * lanes of a row find an absmax each and hand it around. Warps of a CTA may share
 * a row's columns; their sums are added in the order of the columns.
 *
 * Kernels of experts have several weights of one shape in one grid, 8 inputs a CTA. Whose
 * inputs are whose they read from the device's memory: no host has to know.
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

#include "kernels/core.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt.h"

/* What a kernel is made for; each field is a constant where it is used. */
typedef struct product_variant {
    int32_t dtype;       /* of inputs, bias and outputs */
    bool is_double;      /* the absmax are codes themselves */
    uint32_t chunk_log2; /* with tensor cores: 6 or 7 */
    uint32_t fragments;  /* the same: of inputs, 1, 2 or 4 */
    bool has_experts;
} product_variant;

/* What a CTA multiplies. */
typedef struct product_job {
    const uint8_t *codes;
    const float *absmax;
    const uint8_t *absmax_codes;
    const void *inputs;
    const void *bias;
    uint8_t *outputs;
    float offset;
    uint32_t count; /* of inputs; 0: nothing */
} product_job;

/* Eight inputs of an expert; CTAs behind its last one have nothing to do. */
SIMT_INLINE product_job
product_find_expert_job(const berthi_product_kernel *a, product_variant v)
{
    const uint32_t group = (uint32_t)simt_cta() / a->ctas_of_group;
    const uint32_t number = group / a->groups;
    const berthi_product_expert *const e = &a->experts[number];
    const uint64_t first
        = a->ranges[number] + (uint64_t)(group % a->groups) * PRODUCT_INPUTS;
    const uint64_t end = a->ranges[number + 1];
    const uint32_t width = v.dtype == BERTH_F32 ? 4 : 2;
    const uint64_t left = first < end ? end - first : 0;
    const product_job job = {
        e->codes,
        e->absmax,
        e->absmax_codes,
        (const uint8_t *)a->inputs + first * a->columns * width,
        e->bias,
        (uint8_t *)a->outputs + first * a->rows * width,
        e->offset,
        left < PRODUCT_INPUTS ? (uint32_t)left : PRODUCT_INPUTS,
    };

    return job;
}

SIMT_INLINE product_job
product_find_job(const berthi_product_kernel *a, product_variant v)
{
    const product_job job = { a->codes, a->absmax,             a->absmax_codes, a->inputs,
                              a->bias,  (uint8_t *)a->outputs, a->offset,       a->count };

    return v.has_experts ? product_find_expert_job(a, v) : job;
}

/* Among those that have the same inputs. */
SIMT_INLINE uint64_t
product_find_cta(const berthi_product_kernel *a, product_variant v)
{
    return v.has_experts ? (uint32_t)simt_cta() % a->ctas_of_group : simt_cta();
}

/* ------------------------------------------- also for those without tensor cores */

SIMT_INLINE void
product_fill_map(const berthi_product_kernel *a, product_variant v, uint32_t *map)
{
    if (v.is_double)
        map[simt_thread()] = a->map[simt_thread()];
}

SIMT_INLINE void
product_store(const berthi_product_kernel *a, product_variant v, const product_job *job,
              uint32_t input, uint64_t row, float sum)
{
    if (input >= job->count || row >= a->rows)
        return;
    if (job->bias != NULL)
        sum = berthi_core_add(sum, berthi_core_load(job->bias, v.dtype, row));
    berthi_core_store(job->outputs, v.dtype, input * a->rows + row, sum);
}

/* ---------------------------------------------------------------- tensor cores */

#define PRODUCT_QUAD 4u /* lanes that share two rows */
#define PRODUCT_BATCH 2u /* chunks, at most, that are on their way at once */
#define PRODUCT_WORDS 4u /* of codes, at most, that a lane has of a row's chunk */

/* As many chunks of two rows at once as registers have room for, with their inputs. */
SIMT_INLINE uint32_t
product_batch(product_variant v)
{
    return v.chunk_log2 == 7 || v.fragments == PRODUCT_MOST_FRAGMENTS ? 1 : PRODUCT_BATCH;
}

/*
 * Where a lane's two rows lie, one 8 behind the other; rows behind the last one
 * are the last one again. Registers are few: what is here is worked out once.
 */
typedef struct product_place {
    const uint8_t *codes;  /* of the lane's columns in the first row's first chunk */
    /* Its columns, of an input each fragment; behind the last one the last one's. */
    const uint8_t *inputs[PRODUCT_MOST_FRAGMENTS];
    uint32_t second_codes; /* bytes from the first row to the second */
    uint32_t chunk;        /* number of the first whose absmax is the lane's to find */
    uint32_t copy;         /* bytes to the lane's copy of the table */
} product_place;

SIMT_INLINE product_place
product_find_place(const berthi_product_kernel *a, product_variant v, const product_job *job,
                   uint64_t first_row)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t column = lane % PRODUCT_QUAD << (v.chunk_log2 - 2);
    const uint64_t next = first_row + lane / PRODUCT_QUAD;
    const uint64_t row = next < a->rows ? next : a->rows - 1;
    const uint32_t apart = a->rows - 1 - row < 8 ? (uint32_t)(a->rows - 1 - row) : 8;
    const uint64_t absmax_row = row + (lane % PRODUCT_QUAD < product_batch(v) ? 0 : apart);
    product_place place = {
        simt_keep_address(job->codes + (row * a->columns + column) / 2),
        { NULL, NULL, NULL, NULL },
        apart * (uint32_t)(a->columns / 2),
        (uint32_t)(absmax_row * (a->columns >> v.chunk_log2)) + lane % product_batch(v),
        lane * 4,
    };

    SIMT_UNROLL
    for (uint32_t f = 0; f < v.fragments; f++) {
        const uint32_t wanted = f * PRODUCT_INPUTS + lane / PRODUCT_QUAD;
        const uint32_t input = wanted < job->count ? wanted : job->count - 1;

        place.inputs[f] = simt_keep_address((const uint8_t *)job->inputs
                                            + (input * a->columns + column) * 2);
    }
    simt_look_anew(&place.second_codes);
    simt_look_anew(&place.chunk);
    simt_look_anew(&place.copy);
    return place;
}

/* Two values a byte, the first one in the low half: a copy a lane, side by side. */
SIMT_INLINE void
product_fill_pairs(const berthi_product_kernel *a, product_variant v, uint32_t *pairs)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 256 * SIMT_WARP / 4; i += PRODUCT_THREADS) {
        const uint32_t place = i + simt_thread();
        const uint32_t byte = place / (SIMT_WARP / 4);
        const float first = berthi_core_float(a->table[byte >> 4]);
        const float second = berthi_core_float(a->table[byte & 15]);
        const uint32_t pair = v.dtype == BERTH_BF16 ? berthi_core_to_bf16_pair(first, second)
                                                    : berthi_core_to_fp16_pair(first, second);
        const simt_four four = { { pair, pair, pair, pair } };

        simt_store16(pairs + 4 * place, four);
    }
}

SIMT_INLINE void
product_load_codes(const uint8_t *from, product_variant v, uint32_t *words)
{
    if (v.chunk_log2 == 7) {
        const simt_four four = simt_load16(from);

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            words[k] = four.word[k];
    } else {
        const simt_two two = simt_load8(from);

        words[0] = two.word[0];
        words[1] = two.word[1];
    }
}

/* Of number `chunk` of the tensor's chunks. */
SIMT_INLINE float
product_absmax_of(const berthi_product_kernel *a, product_variant v, const product_job *job,
                  uint32_t chunk, const uint32_t *map)
{
    const uint32_t block = chunk >> (a->block_log2 - v.chunk_log2);

    return v.is_double ? berthi_core_absmax_recover(map, job->absmax_codes[block],
                                                    job->absmax[block / BERTHI_DOUBLE_BLOCK],
                                                    job->offset)
                       : job->absmax[block];
}

/* Byte k of a word, of this lane's copy: 128 bytes of table a byte of codes. */
SIMT_INLINE uint32_t
product_pair(const uint32_t *pairs, uint32_t copy, uint32_t word, uint32_t k)
{
    const uint32_t at = simt_add_bytes(word, 128u << 8 * k, copy);

    return simt_shared_load4((const uint8_t *)pairs + at);
}

/* Sums of rows g and g + 8, two inputs each. */
typedef struct product_sums {
    float of[PRODUCT_MOST_FRAGMENTS][4];
} product_sums;

SIMT_INLINE void
product_clear_sums(product_sums *sums)
{
    SIMT_UNROLL
    for (uint32_t f = 0; f < PRODUCT_MOST_FRAGMENTS; f++)
        SIMT_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            sums->of[f][i] = 0.0f;
}

/* One chunk, `at` bytes into the inputs. */
SIMT_INLINE void
product_add_chunk(product_variant v, uint32_t codes[2][PRODUCT_WORDS],
                  const product_place *place, size_t at, const uint32_t *pairs,
                  const float *absmax, product_sums *sums)
{
    product_sums part;

    product_clear_sums(&part);
    /* A word of codes is 8 weights of a row: 16 bytes of the input, two products. */
    SIMT_UNROLL
    for (uint32_t w = 0; w < (v.chunk_log2 == 7 ? 4u : 2u); w++) {
        simt_four x[PRODUCT_MOST_FRAGMENTS];

        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            x[f] = simt_read16(place->inputs[f] + at + 16 * w);
        SIMT_UNROLL
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t rows[4] = {
                product_pair(pairs, place->copy, codes[0][w], 2 * j),
                product_pair(pairs, place->copy, codes[1][w], 2 * j),
                product_pair(pairs, place->copy, codes[0][w], 2 * j + 1),
                product_pair(pairs, place->copy, codes[1][w], 2 * j + 1),
            };

            SIMT_UNROLL
            for (uint32_t f = 0; f < v.fragments; f++)
                if (v.dtype == BERTH_BF16)
                    simt_multiply_bf16(part.of[f], rows, x[f].word + 2 * j);
                else
                    simt_multiply_f16(part.of[f], rows, x[f].word + 2 * j);
        }
    }
    SIMT_UNROLL
    for (uint32_t f = 0; f < v.fragments; f++)
        SIMT_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            sums->of[f][i] = fmaf(absmax[i / 2], part.of[f][i], sums->of[f][i]);
}

/*
 * `count` chunks from number `chunk` of the row on, a batch or 1, a constant. Loads
 * come before the first use. Of the absmax of two rows a quad's lanes find one each.
 */
SIMT_INLINE void
product_add_chunks(const berthi_product_kernel *a, product_variant v, const product_job *job,
                   const product_place *place, uint32_t chunk, uint32_t count,
                   const uint32_t *pairs, const uint32_t *map, product_sums *sums)
{
    const size_t at = (size_t)chunk << (v.chunk_log2 + 1);
    const uint8_t *const from = place->codes + ((size_t)chunk << (v.chunk_log2 - 1));
    const uint8_t *const second = from + place->second_codes;
    const uint32_t own
        = place->chunk + chunk - (count == 1 ? simt_thread() % product_batch(v) : 0);
    uint32_t codes[PRODUCT_BATCH][2][PRODUCT_WORDS];
    float absmax;

    SIMT_UNROLL
    for (uint32_t c = 0; c < count; c++) {
        product_load_codes(from + (c << (v.chunk_log2 - 1)), v, codes[c][0]);
        product_load_codes(second + (c << (v.chunk_log2 - 1)), v, codes[c][1]);
    }
    absmax = product_absmax_of(a, v, job, own, map);
    SIMT_UNROLL
    for (uint32_t c = 0; c < count; c++) {
        const float its[2] = { simt_shuffle_quad(absmax, c),
                               simt_shuffle_quad(absmax, product_batch(v) + c) };

        product_add_chunk(v, codes[c], place, at + (c << (v.chunk_log2 + 1)), pairs, its,
                          sums);
    }
}

/* Chunks [begin, end) of the warp's rows. */
SIMT_INLINE void
product_add_share(const berthi_product_kernel *a, product_variant v, const product_job *job,
                  const product_place *place, uint32_t begin, uint32_t end,
                  const uint32_t *pairs, const uint32_t *map, product_sums *sums)
{
    const uint32_t batch = product_batch(v);
    const uint32_t step = batch * PRODUCT_TURNS;
    uint32_t chunk = begin;

    SIMT_NO_UNROLL
    for (; chunk + step <= end; chunk += step)
        SIMT_UNROLL
        for (uint32_t t = 0; t < PRODUCT_TURNS; t++)
            product_add_chunks(a, v, job, place, chunk + t * batch, batch, pairs, map, sums);
    if (step > 1)
        SIMT_NO_UNROLL
        for (; chunk < end; chunk++)
            product_add_chunks(a, v, job, place, chunk, 1, pairs, map, sums);
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
    for (uint32_t f = 0; f < v.fragments; f++) {
        if (a->slices > 1)
            product_join_slices(a->slices, all, sums->of[f]);
        if (tile.slice == 0)
            SIMT_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                product_store(a, v, &job, f * PRODUCT_INPUTS + lane % PRODUCT_QUAD * 2 + i % 2,
                              tile.first_row + lane / PRODUCT_QUAD + i / 2 * 8,
                              sums->of[f][i]);
    }
}

SIMT_INLINE void
product_by_tensor_cores(const berthi_product_kernel *a, product_variant v, uint32_t *map)
{
    SIMT_SHARED(uint32_t, pairs, 256 * SIMT_WARP);
    SIMT_SHARED(float, all, 4 * PRODUCT_THREADS);
    const product_job job = product_find_job(a, v);
    const product_tile tile = product_find_tile(a, v);
    const product_place place = product_find_place(a, v, &job, tile.first_row);
    const uint32_t chunks = (uint32_t)(a->columns >> v.chunk_log2);
    const uint32_t share = berthi_product_share(chunks, a->slices);
    const uint32_t begin = tile.slice * share < chunks ? tile.slice * share : chunks;
    const uint32_t end = tile.first_row >= a->rows ? begin
                         : chunks - begin < share  ? chunks
                                                   : begin + share;
    product_sums sums;

    if (v.has_experts && job.count == 0)
        return; /* all lanes of the CTA */
    product_clear_sums(&sums);
    product_fill_pairs(a, v, pairs);
    product_fill_map(a, v, map);
    simt_barrier();
    product_add_share(a, v, &job, &place, begin, end, pairs, map, &sums);
    product_store_sums(a, v, all, &sums);
}

/* ------------------------------------------------------------------- kernels */

#define PRODUCT_KERNEL(name, by, resident, dtype, is_double, chunk_log2, fragments, \
                       has_experts)                                                   \
    SIMT_INLINE void name##_body(const berthi_product_kernel *a)                      \
    {                                                                                 \
        const product_variant v = { dtype, is_double, chunk_log2, fragments, has_experts }; \
        SIMT_SHARED(uint32_t, map, (is_double) ? 256 : 1);                            \
                                                                                      \
        product_by_##by(a, v, map);                                                   \
    }                                                                                 \
    SIMT_KERNEL_OF(name, PRODUCT_THREADS, resident, berthi_product_kernel, name##_body(a))

#define PRODUCT_KERNELS(name, resident, chunk_log2, fragments, has_experts)           \
    PRODUCT_KERNEL(name##_bf16, tensor_cores, resident, BERTH_BF16, false, chunk_log2, \
                   fragments, has_experts)                                            \
    PRODUCT_KERNEL(name##_f16, tensor_cores, resident, BERTH_F16, false, chunk_log2,  \
                   fragments, has_experts)                                            \
    PRODUCT_KERNEL(name##_bf16_double, tensor_cores, resident, BERTH_BF16, true,      \
                   chunk_log2, fragments, has_experts)                                \
    PRODUCT_KERNEL(name##_f16_double, tensor_cores, resident, BERTH_F16, true,        \
                   chunk_log2, fragments, has_experts)

PRODUCT_KERNELS(berthi_product_64, SIMT_RESIDENT, 6, 1, false)
PRODUCT_KERNELS(berthi_product_128, SIMT_RESIDENT, 7, 1, false)
PRODUCT_KERNELS(berthi_product16_64, SIMT_RESIDENT_WIDE, 6, 2, false)
PRODUCT_KERNELS(berthi_product16_128, SIMT_RESIDENT_WIDE, 7, 2, false)
PRODUCT_KERNELS(berthi_product32_64, SIMT_RESIDENT_WIDE, 6, 4, false)
PRODUCT_KERNELS(berthi_product32_128, SIMT_RESIDENT_WIDE, 7, 4, false)
PRODUCT_KERNELS(berthi_experts_64, SIMT_RESIDENT_WIDE, 6, 1, true)
PRODUCT_KERNELS(berthi_experts_128, SIMT_RESIDENT_WIDE, 7, 1, true)

#endif
