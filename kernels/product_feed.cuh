/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_feed.cuh - where the rows of a lane of product.cuh lie, and what of them is on
 * its way while it multiplies: codes and absmax a step ahead, of inputs of many half of one.
 */
#ifndef BERTH_KERNELS_PRODUCT_FEED_CUH
#define BERTH_KERNELS_PRODUCT_FEED_CUH

#include "kernels/product_job.cuh"

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

/* ------------------------------------------------------------------- reading */

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

#endif
