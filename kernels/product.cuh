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

#include "kernels/core.h"
#include "kernels/product_arguments.h"
#include "kernels/simt.h"

/* What a kernel is made for; each field is a constant where it is used. */
typedef struct product_variant {
    int32_t dtype;       /* of inputs, bias and outputs */
    bool is_double;      /* the absmax are codes themselves */
    uint32_t chunk_log2; /* with tensor cores: 6 or 7 */
    uint32_t fragments;  /* the same: of inputs, 1, 2 or 4 */
    uint32_t tiles;      /* the same: of rows, at most PRODUCT_TILES */
    bool has_experts;
    bool has_members;    /* several weights have the same inputs */
    bool is_tall;        /* of rings: tiles of RING_TALL_UNITS, as far as there are rows */
} product_variant;

/* What a CTA multiplies. */
typedef struct product_job {
    const uint8_t *codes;
    const float *absmax;
    const uint8_t *absmax_codes;
    const void *inputs;
    const void *bias;
    uint8_t *outputs;
    uint64_t rows;
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
    const uint64_t first =
        a->ranges[number] + (uint64_t)(group % a->groups) * PRODUCT_INPUTS;
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
        a->rows,
        e->offset,
        left < PRODUCT_INPUTS ? (uint32_t)left : PRODUCT_INPUTS,
    };

    return job;
}

/* Whose a part is, by the number that members are counted by: a CTA, of rings a tile. */
SIMT_INLINE const berthi_product_member *
product_find_member(const berthi_product_kernel *a, uint32_t part)
{
    uint32_t number = 0;

    SIMT_UNROLL
    for (uint32_t i = 1; i < PRODUCT_TOGETHER; i++)
        number += part >= a->members[i].first;
    return &a->members[number];
}

SIMT_INLINE product_job
product_member_job(const berthi_product_kernel *a, const berthi_product_member *m)
{
    const product_job job = { m->codes, m->absmax, m->absmax_codes,
                              a->inputs, m->bias,  (uint8_t *)m->outputs,
                              m->rows,  m->offset, a->count };

    return job;
}

SIMT_INLINE product_job
product_find_job(const berthi_product_kernel *a, product_variant v)
{
    const product_job job = { a->codes, a->absmax, a->absmax_codes,
                              a->inputs, a->bias,  (uint8_t *)a->outputs,
                              a->rows,  a->offset, a->count };

    if (v.has_members)
        return product_member_job(a, product_find_member(a, (uint32_t)simt_cta()));
    return v.has_experts ? product_find_expert_job(a, v) : job;
}

/* Among those that have the same inputs and weight. */
SIMT_INLINE uint64_t
product_find_cta(const berthi_product_kernel *a, product_variant v)
{
    if (v.has_members)
        return simt_cta() - product_find_member(a, (uint32_t)simt_cta())->first;
    return v.has_experts ? (uint32_t)simt_cta() % a->ctas_of_group : simt_cta();
}

/* ------------------------------------------- also for those without tensor cores */

/* `from` is the argument's, as constants or as memory. */
SIMT_INLINE void
product_fill_map(product_variant v, const uint32_t *from, uint32_t *map)
{
    if (v.is_double)
        map[simt_thread()] = from[simt_thread()];
}

SIMT_INLINE void
product_store(product_variant v, const product_job *job, uint32_t input, uint64_t row,
              float sum)
{
    if (input >= job->count || row >= job->rows)
        return;
    if (job->bias != NULL)
        sum = berthi_core_add(sum, berthi_core_load(job->bias, v.dtype, row));
    berthi_core_store(job->outputs, v.dtype, input * job->rows + row, sum);
}

/* ---------------------------------------------------------------- tensor cores */

#define PRODUCT_QUAD 4u  /* lanes that share rows */
#define PRODUCT_ROWS 4u  /* of a lane: every eighth of the warp's */
#define PRODUCT_TILES (PRODUCT_TILE_ROWS / 16u) /* fragments of rows */
#define PRODUCT_WORDS 4u /* of codes that a lane has of a row's step */
#define PRODUCT_PAIR 4u  /* absmax of a row that are read for two steps: at most */

/* Chunks of a step of 128 columns. */
SIMT_INLINE uint32_t
product_chunks(product_variant v)
{
    return v.chunk_log2 == 6 ? 2 : 1;
}

/*
 * Where a lane's rows lie, 8 behind each other; rows behind the last one are the last one
 * again. Registers are few: what is here is worked out once, the rest where it is needed.
 */
typedef struct product_place {
    const uint8_t *codes;  /* of the lane's columns in the first row's first step */
    const uint8_t *inputs; /* its columns of its input in the first fragment */
    uint32_t apart[PRODUCT_ROWS]; /* bytes of codes from the first row to the lane's */
    uint32_t chunk;        /* number of the first chunk of the row whose absmax it reads */
    uint32_t copy;         /* bytes to the lane's copy of the table */
    uint32_t inputs_left;  /* from the lane's first one on */
    bool is_upper;         /* the lane reads the second half of a step's columns */
    bool has_quads;        /* absmax of two steps of a row lie so that they are read at once */
    uint32_t end;          /* chunks of a row */
} product_place;

/* The first of the lane's columns in the first chunk. */
SIMT_INLINE uint32_t
product_first_input(product_variant v)
{
    const uint32_t lane = simt_thread() % PRODUCT_QUAD;

    return v.chunk_log2 == 6 ? lane % 2 * 32 + lane / 2 * 16 : lane * 32;
}

SIMT_INLINE bool
product_has_quads(const berthi_product_kernel *a, product_variant v, const product_job *job)
{
    return v.chunk_log2 == 6 && a->block_log2 == 6 && a->columns % 256 == 0
           && (v.is_double ? (uintptr_t)job->absmax_codes % 4 : (uintptr_t)job->absmax % 16) == 0;
}

SIMT_INLINE product_place
product_find_place(const berthi_product_kernel *a, product_variant v, const product_job *job,
                   uint64_t first_row)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t column = lane % PRODUCT_QUAD * 32;
    const uint64_t next = first_row + lane / PRODUCT_QUAD;
    const uint64_t row = next < job->rows ? next : job->rows - 1;
    const uint64_t left = job->rows - 1 - row;
    const uint32_t input = lane / PRODUCT_QUAD;
    const uint32_t own = lane % PRODUCT_QUAD * 8;
    product_place place = {
        simt_keep_address(job->codes + (row * a->columns + column) / 2),
        simt_keep_address((const uint8_t *)job->inputs
                          + (input * a->columns + product_first_input(v)) * 2),
        { 0, 0, 0, 0 },
        (uint32_t)((row + (left < own ? left : own)) * (a->columns >> v.chunk_log2)),
        lane * 4,
        job->count > input ? job->count - input : 0,
        lane % PRODUCT_QUAD >= 2,
        product_has_quads(a, v, job),
        (uint32_t)(a->columns >> v.chunk_log2),
    };

    SIMT_UNROLL
    for (uint32_t i = 1; i < PRODUCT_ROWS; i++) {
        place.apart[i] = (left < 8 * i ? (uint32_t)left : 8 * i) * (uint32_t)(a->columns / 2);
        simt_look_anew(&place.apart[i]);
    }
    simt_look_anew(&place.chunk);
    simt_look_anew(&place.copy);
    simt_look_anew(&place.inputs_left);
    return place;
}

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

/* Words of inputs that are on their way: a step's, or half of it where they are of many inputs. */
SIMT_INLINE uint32_t
product_words_ahead(product_variant v)
{
    return v.fragments == 1 ? PRODUCT_WORDS : PRODUCT_WORDS / 2;
}

/* What is on its way, or has come: a step's codes and inputs, two steps' absmax of a row. */
typedef struct product_input {
    uint32_t codes[2][PRODUCT_ROWS][PRODUCT_WORDS]; /* of even steps, of odd ones */
    uint32_t x[PRODUCT_WORDS][PRODUCT_MOST_FRAGMENTS][4];
    float absmax[PRODUCT_PAIR];
} product_input;

/* ---- reading: a step ahead, of inputs of many half of one ---- */

/* A row's last step may be behind its end, or have one chunk of 64 columns alone. */
SIMT_INLINE bool
product_has_chunk(product_variant v, const product_place *place, uint32_t step, uint32_t c)
{
    return step * product_chunks(v) + c < place->end;
}

/*
 * Step t of a pair. Where it has one chunk alone lanes of the second half have no part in it:
 * theirs is something that is there, and not multiplied.
 */
SIMT_INLINE void
product_read_codes(product_variant v, const product_place *place, uint32_t step, uint32_t t,
                   product_input *in)
{
    const bool is_behind =
        place->is_upper && !product_has_chunk(v, place, step, product_chunks(v) - 1);
    const uint8_t *const from = place->codes + (size_t)step * 64 - (is_behind ? 32 : 0);

    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_ROWS; i++) {
        const simt_four four = simt_load16(from + place->apart[i]);

        SIMT_UNROLL
        for (uint32_t k = 0; k < PRODUCT_WORDS; k++)
            in->codes[t][i][k] = four.word[k];
    }
}

/*
 * Word w of the step: eight columns. Lanes without an input of their own do not ask the cache for
 * another's; theirs stay 0.
 */
SIMT_INLINE void
product_read_word(const berthi_product_kernel *a, product_variant v,
                  const product_place *place, uint32_t step, uint32_t w, product_input *in)
{
    const uint32_t words = PRODUCT_WORDS / product_chunks(v);
    /* Halves that have been exchanged are the other way round in the second chunk. */
    const uint32_t apart = w < words || !product_has_chunk(v, place, step, 1) ? 0
                           : place->is_upper                                  ? 96
                                                                              : 160;
    const uint8_t *const from = place->inputs + (size_t)step * 256 + apart + w % words * 16;

    SIMT_UNROLL
    for (uint32_t f = 0; f < v.fragments; f++)
        if (place->inputs_left > f * PRODUCT_INPUTS) {
            const simt_four four =
                simt_read16(from + f * (2 * PRODUCT_INPUTS * a->columns));

            SIMT_UNROLL
            for (uint32_t k = 0; k < 4; k++)
                in->x[w % product_words_ahead(v)][f][k] = four.word[k];
        }
}

/* What follows word w of the step, of which `next` is the step behind. */
SIMT_INLINE void
product_read_ahead(const berthi_product_kernel *a, product_variant v,
                   const product_place *place, uint32_t step, uint32_t next, uint32_t w,
                   product_input *in)
{
    const uint32_t wanted = w + product_words_ahead(v);

    product_read_word(a, v, place, wanted < PRODUCT_WORDS ? step : next, wanted % PRODUCT_WORDS,
                      in);
}

/* Absmax as they lie: those of two steps, or their codes and the second level's. */
typedef struct product_absmax {
    float of[PRODUCT_PAIR];
    uint32_t codes; /* a byte each */
} product_absmax;

/* Of two steps of a row: four neighbours, of one second-level block. */
SIMT_INLINE void
product_read_quad(product_variant v, const product_job *job, uint32_t chunk,
                  product_absmax *out)
{
    if (v.is_double) {
        out->codes = simt_read4(job->absmax_codes + chunk);
        out->of[0] = job->absmax[chunk / BERTHI_DOUBLE_BLOCK];
        SIMT_UNROLL
        for (uint32_t k = 1; k < PRODUCT_PAIR; k++)
            out->of[k] = out->of[0];
    } else {
        const simt_four four = simt_read16(job->absmax + chunk);

        SIMT_UNROLL
        for (uint32_t k = 0; k < PRODUCT_PAIR; k++)
            out->of[k] = berthi_core_float(four.word[k]);
    }
}

/* The same one by one; chunks behind the row's last one have the last one's. */
SIMT_INLINE void
product_read_ones(const berthi_product_kernel *a, product_variant v, const product_job *job,
                  const product_place *place, uint32_t step, product_absmax *out)
{
    SIMT_UNROLL
    for (uint32_t c = 0; c < 2 * product_chunks(v); c++) {
        const uint32_t wanted = step * product_chunks(v) + c;
        const uint32_t chunk = place->chunk + (wanted < place->end ? wanted : place->end - 1);
        const uint32_t block = chunk >> (a->block_log2 - v.chunk_log2);

        if (v.is_double)
            out->codes |= (uint32_t)job->absmax_codes[block] << (8 * c);
        out->of[c] = job->absmax[v.is_double ? block / BERTHI_DOUBLE_BLOCK : block];
    }
}

/* Of two steps from `step` on, of one row a lane. */
SIMT_INLINE void
product_read_absmax(const berthi_product_kernel *a, product_variant v, const product_job *job,
                    const product_place *place, uint32_t step, bool has_quads,
                    const uint32_t *map, product_input *in)
{
    product_absmax its = { { 0.0f }, 0 };

    if (has_quads)
        product_read_quad(v, job, place->chunk + step * product_chunks(v), &its);
    else
        product_read_ones(a, v, job, place, step, &its);
    SIMT_UNROLL
    for (uint32_t c = 0; c < 2 * product_chunks(v); c++)
        in->absmax[c] = v.is_double
                            ? berthi_core_absmax_recover(map, simt_byte(its.codes, c), its.of[c],
                                                         job->offset)
                            : its.of[c];
}

/* ---- adding ---- */

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
