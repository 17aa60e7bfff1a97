/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_ring.cuh - the products of product.cuh where a processor has shared memory enough: as
 * many CTAs as processors, and codes that are always on their way.
 *
 * A CTA goes through its rows by tiles of 32, or of 64 where inputs are many enough for what is
 * read of them to count; where its rows end, or a weight's, by 16. Columns are dealt to its warps
 * by turns of two lines of memory, 256 columns of a row each. What a warp multiplies lies in a ring
 * of its own (ring_feed.cuh): while it is at a line of 32 rows the next one is copied to the other
 * stage, be it of the next tile, so that memory is never left without work but at the launch's
 * beginning and end. Absmax come with a turn's first line, as many as share a sector of memory;
 * those of double quantization are read a turn at a time, and decoded one line ahead, once for all
 * lanes. Inputs are read from the cache into registers, a line ahead (of many inputs: less): there
 * is no room for them where codes are.
 *
 * Measured on an H200 with tiles of 32 rows alone, 8192 x 28672: 36 us where product.cuh takes 48;
 * 13 where it takes 18 of 8192 x 8192. A stage more, or more warps, are slower: what shared memory
 * has the first cache has not, and inputs are read there. Lanes that copy half a line each are,
 * too: how many lines an instruction touches is what it costs.
 *
 *   traffic   as product.cuh
 *   launch    a CTA a processor, at most one for each unit of 16 rows, of PRODUCT_THREADS lanes
 *             with RING_ROOM_BYTES; it reads codes and absmax ahead of earlier work where these
 *             are settled
 *   bits      of an input the same alone, in a batch and together with other weights, and each
 *             time, in whichever tiles its rows are; not those of product.cuh, whose warps have
 *             other columns
 *   bounds    as product.cuh
 */
#ifndef BERTH_KERNELS_PRODUCT_RING_CUH
#define BERTH_KERNELS_PRODUCT_RING_CUH

#include "kernels/ring_feed.cuh"

/* ------------------------------------------------------------------------------ adding */

/* What a warp multiplies with: its step's place in the ring, and what comes behind it. */
typedef struct ring_work {
    const ring_room *room;
    const uint32_t *map;
    ring_feed *feed;
    ring_inputs *in;
    uint32_t stage;
    uint32_t half; /* of absmax: the first group's */
} ring_work;

/* A lane's codes of its rows in a block, 8 bytes each; of the first one they lie at `from`. */
SIMT_INLINE void
ring_take_rows(product_variant v, const uint8_t *from, uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS])
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2 * v.tiles; i++) {
        const simt_two two = simt_shared_load8(from + i * 8 * RING_LINE_BYTES);

        codes[i][0] = two.word[0];
        codes[i][1] = two.word[1];
    }
}

/* What has come of a line: the lane's codes of its rows in block c. */
SIMT_INLINE void
ring_take_codes(product_variant v, const uint8_t *stage, uint32_t c,
                uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS])
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t row = lane / PRODUCT_QUAD;
    const uint32_t part = (c * 2 + lane % PRODUCT_QUAD / 2) ^ row % 4 * 2;
    const uint8_t *const from = stage + row * RING_LINE_BYTES + part * 16 + lane % 2 * 8;

    ring_take_rows(v, from, codes);
}

/* A block's sums, times its absmax, of which a row has so many bytes. */
SIMT_INLINE void
ring_add_scaled(product_variant v, const product_sums *part, const uint8_t *absmax,
                uint32_t row_bytes, uint32_t c, product_sums *sums)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2 * v.tiles; i++) {
        const float its =
            berthi_core_float(simt_shared_load4(absmax + i * 8 * row_bytes + c * 4));

        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            SIMT_UNROLL
            for (uint32_t k = i % 2 * 2; k < i % 2 * 2 + 2; k++)
                sums->of[i / 2][f][k] = fmaf(its, part->of[i / 2][f][k], sums->of[i / 2][f][k]);
    }
}

/* Where the absmax of a step lie, those of the lane's first row. */
SIMT_INLINE const uint8_t *
ring_find_absmax(product_variant v, const ring_work *work, uint32_t line, uint32_t group)
{
    const uint32_t row = simt_thread() % SIMT_WARP / PRODUCT_QUAD;

    return v.is_double ? work->room->absmax + work->stage * RING_DECODED_BYTES + row * 16
                       : work->room->absmax + (work->half ^ group) * RING_ABSMAX_BYTES
                             + ring_absmax_place(row, line % 2);
}

/* A step that has come; behind the last group the inputs of `next` take the place of its own. */
SIMT_INLINE void
ring_add_line(const berthi_product_kernel *a, product_variant v, ring_work *work,
              uint32_t line, uint32_t next, uint32_t group, bool is_last, product_sums *sums)
{
    const uint32_t copy = simt_thread() % SIMT_WARP * 4;
    const uint8_t *const stage = work->room->codes + work->stage * RING_STAGE_BYTES;
    const uint8_t *const absmax = ring_find_absmax(v, work, line, group);
    const uint32_t row_bytes = (v.is_double ? RING_LINE_BLOCKS : RING_BLOCKS) * 4;

    SIMT_UNROLL
    for (uint32_t c = 0; c < RING_LINE_BLOCKS; c++) {
        uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS];
        product_sums part;

        ring_take_codes(v, stage, c, codes);
        product_clear_sums(v, &part);
        SIMT_UNROLL
        for (uint32_t w = 0; w < 2; w++) {
            const uint32_t word = c * 2 + w;

            product_add_word(v, codes, w, copy, work->in->x[word % ring_words_ahead(v)],
                             work->room->pairs, &part);
            if (is_last)
                ring_read_ahead(a, v, line, next, word, work->in);
        }
        ring_add_scaled(v, &part, absmax, row_bytes, c, sums);
    }
}

/* The line behind it among the warp's, from one tile to the next. */
SIMT_INLINE uint32_t
ring_next_line(const berthi_product_kernel *a, uint32_t line)
{
    const uint32_t turn = line / 2 * 2 + 2 * PRODUCT_WARPS;

    if (line % 2 == 0 && line + 1 < ring_lines(a))
        return line + 1;
    return turn < ring_lines(a) ? turn : 2 * simt_warp();
}

/*
 * A step, which is on its way: what is behind it is asked for. Absmax of that are decoded beside
 * it, and put down at its end, or all that is read from shared memory would have to wait for that.
 */
SIMT_INLINE void
ring_add_step(const berthi_product_kernel *a, product_variant v, ring_work *work,
              uint32_t line, uint32_t group, uint32_t groups, product_sums *sums)
{
    const uint32_t behind = group + 1 < groups ? group + 1 : 0; /* the group of what is */
    simt_four coming = { { 0 } };

    simt_wait_copies(RING_STAGES - 2);
    simt_warp_barrier();
    if (v.is_double)
        coming = ring_decode_absmax(a, v, work->feed, behind, work->room, work->map);
    ring_ask(a, v, behind, work->feed, work->room);
    ring_add_line(a, v, work, line, ring_next_line(a, line), group, behind == 0, sums);
    if (v.is_double)
        ring_put_absmax(work->room, work->stage ^ 1, coming);
    simt_warp_barrier();
    work->stage ^= 1;
}

/* ------------------------------------------------------------------------------ storing */

/*
 * The warps' sums of a fragment, in their order, by two of them, in turn, that have a fragment of
 * rows each; the others go on. There are two places for sums: who writes over one has met those
 * at the other who had read it.
 */
SIMT_INLINE void
ring_store_fragment(const berthi_product_kernel *a, product_variant v, uint32_t unit, uint32_t f,
                    const product_sums *sums, uint32_t number, float *places)
{
    float *const all = places + number % 2 * (PRODUCT_TILES * 4 * PRODUCT_THREADS);
    const uint32_t thread = simt_thread();
    const uint32_t warp = (simt_warp() + 2 * number) % PRODUCT_WARPS;
    const uint32_t lane = thread % SIMT_WARP;
    const uint32_t input = f * PRODUCT_INPUTS + lane % PRODUCT_QUAD * 2;
    const bool is_wanted = input < a->count;

    SIMT_UNROLL
    for (uint32_t i = 0; i < v.tiles * 4; i++)
        if (is_wanted)
            all[i * PRODUCT_THREADS + thread] = sums->of[i / 4][f][i % 4];
    simt_barrier();
    if (warp < v.tiles && is_wanted) {
        const berthi_product_member *const m = product_find_member(a, unit);
        const product_job job = product_member_job(a, m);
        const uint64_t row = ring_first_row(m, unit) + warp * 16 + lane / PRODUCT_QUAD;

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const float *const from = all + (warp * 4 + k) * PRODUCT_THREADS + lane;
            float sum = from[0];

            SIMT_UNROLL
            for (uint32_t s = 1; s < PRODUCT_WARPS; s++)
                sum = berthi_core_add(sum, from[s * SIMT_WARP]);
            product_store(v, &job, input + k % 2, row + k / 2 * 8, sum);
        }
    }
}

/* ------------------------------------------------------------------------------ tiles */

/* A turn's lines, of as many groups of rows. What counts are whole groups: they are unrolled. */
SIMT_INLINE void
ring_add_turn(const berthi_product_kernel *a, product_variant v, ring_work *work,
              uint32_t first, uint32_t groups, product_sums *sums)
{
    const uint32_t end = first + 2 < ring_lines(a) ? first + 2 : ring_lines(a);

    if (v.tiles == PRODUCT_TILES) {
        SIMT_UNROLL_BY(PRODUCT_TURNS)
        for (uint32_t line = first; line < end; line++)
            SIMT_UNROLL
            for (uint32_t group = 0; group < groups; group++)
                ring_add_step(a, v, work, line, group, groups, &sums[group]);
    } else {
        SIMT_NO_UNROLL
        for (uint32_t line = first; line < end; line++)
            ring_add_step(a, v, work, line, 0, 1, sums);
    }
    work->half ^= groups % 2;
}

/* One of so many groups that each have v.tiles fragments of rows; how many fragments are stored. */
SIMT_INLINE uint32_t
ring_add_tile(const berthi_product_kernel *a, product_variant v, uint32_t unit, uint32_t groups,
              uint32_t stored, ring_work *work)
{
    product_sums sums[RING_GROUPS];

    SIMT_UNROLL
    for (uint32_t group = 0; group < groups; group++)
        product_clear_sums(v, &sums[group]);
    SIMT_NO_UNROLL
    for (uint32_t first = 2 * simt_warp(); first < ring_lines(a); first += 2 * PRODUCT_WARPS)
        ring_add_turn(a, v, work, first, groups, sums);
    SIMT_UNROLL
    for (uint32_t group = 0; group < groups; group++)
        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            ring_store_fragment(a, v, unit + 2 * group, f, &sums[group], stored++,
                                work->room->sums);
    return stored;
}

SIMT_INLINE void
ring_add_tiles(const berthi_product_kernel *a, product_variant v, ring_span span, ring_work *work)
{
    product_variant half = v;
    uint32_t stored = 0;
    uint32_t units;

    half.tiles = 1;
    SIMT_NO_UNROLL
    for (; span.unit < span.end; span.unit += units) {
        units = ring_tile_units(a, v, span);
        if (v.is_tall && units == RING_TALL_UNITS)
            stored = ring_add_tile(a, v, span.unit, RING_GROUPS, stored, work);
        else if (units == 2)
            stored = ring_add_tile(a, v, span.unit, 1, stored, work);
        else
            stored = ring_add_tile(a, half, span.unit, 1, stored, work);
    }
}

/* ------------------------------------------------------------------------------ kernels */

SIMT_INLINE void
ring_multiply(const berthi_product_kernel *a, product_variant v, uint8_t *memory, uint32_t *map)
{
    const ring_room room = ring_divide_room(memory);
    const ring_span span = ring_find_span(a);
    ring_feed feed = { .span = span };
    ring_inputs in = { .left = 0 };
    ring_work work = { .room = &room, .map = map, .feed = &feed, .in = &in };

    if (!a->is_settled)
        simt_wait_for_earlier();
    ring_begin(a, v, &feed, &room);
    product_fill_pairs(a, v, room.pairs);
    product_fill_map(v, simt_argument(a->map), map);
    simt_wait_for_earlier();
    ring_begin_inputs(a, v, &in);
    simt_barrier();
    if (v.is_double) {
        simt_wait_copies(0);
        ring_put_absmax(&room, 0, ring_decode_raw(a, v, &room, 0, 0, feed.member, map));
    }
    ring_add_tiles(a, v, span, &work);
}

#define RING_KERNEL(name, dtype, is_double, fragments, is_tall)                       \
    SIMT_INLINE void name##_body(const berthi_product_kernel *a)                      \
    {                                                                                 \
        const product_variant v = { dtype,         is_double, 6,    fragments,        \
                                    PRODUCT_TILES, false,     true, is_tall };        \
        SIMT_SHARED(uint32_t, map, (is_double) ? 256 : 1);                            \
        SIMT_ROOM(memory, RING_ROOM_BYTES);                                           \
                                                                                      \
        ring_multiply(a, v, memory, map);                                             \
    }                                                                                 \
    SIMT_KERNEL_AHEAD(name, PRODUCT_THREADS, PRODUCT_THREADS, berthi_product_kernel,  \
                      name##_body(a))

#define RING_KERNELS(name, fragments, is_tall)                                        \
    RING_KERNEL(name##_bf16, BERTH_BF16, false, fragments, is_tall)                   \
    RING_KERNEL(name##_f16, BERTH_F16, false, fragments, is_tall)                     \
    RING_KERNEL(name##_bf16_double, BERTH_BF16, true, fragments, is_tall)             \
    RING_KERNEL(name##_f16_double, BERTH_F16, true, fragments, is_tall)

/* Where lanes have no registers for a line of inputs and two groups of sums tiles are not tall. */
RING_KERNELS(berthi_ring, 1, true)
RING_KERNELS(berthi_ring16, 2, !SIMT_IS_TIGHT)
RING_KERNELS(berthi_ring32, 4, false)

#endif
