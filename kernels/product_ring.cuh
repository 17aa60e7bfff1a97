/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_ring.cuh - the products of product.cuh where a processor has shared memory enough: as
 * many CTAs as processors, and codes that are always on their way.
 *
 * A CTA goes from tile to tile of 32 rows. Columns are dealt to its warps by turns of two lines of
 * memory, 256 columns of a row each. What a warp multiplies lies in a ring of its own: while it is
 * at a line the next one is copied to the other stage, be it of the next tile, so that memory is
 * never left without work but at the launch's beginning and end. Absmax come with a turn's first
 * line, as many as share a sector of memory; those of double quantization are read two lines ahead
 * and decoded one ahead, once for all lanes. Inputs are read from the cache into registers, a line
 * ahead (of many inputs: less): there is no room for them where codes are.
 *
 * Measured on an H200, 8192 x 28672: 36 us where product.cuh takes 48; 13 where it takes 18 of
 * 8192 x 8192. A stage more, or more warps, are slower: what shared memory has the first cache
 * has not, and inputs are read there. Lanes that copy half a line each are, too: how many lines
 * an instruction touches is what it costs.
 *
 *   traffic   as product.cuh
 *   launch    a CTA a processor, at most one for each tile, of PRODUCT_THREADS lanes with
 *             RING_ROOM_BYTES; it reads codes and absmax ahead of earlier work where these are
 *             settled
 *   bits      of an input the same alone, in a batch and together with other weights, and each
 *             time; not those of product.cuh, whose warps have other columns
 *   bounds    as product.cuh
 */
#ifndef BERTH_KERNELS_PRODUCT_RING_CUH
#define BERTH_KERNELS_PRODUCT_RING_CUH

#include "kernels/product.cuh"

#define RING_LINE_BYTES 128u
#define RING_LINE_INPUTS (2 * RING_LINE) /* bytes of 16-bit inputs */
#define RING_WORDS 8u /* of inputs in a line, 16 bytes of a lane each */
#define RING_STAGE_BYTES (PRODUCT_TILE_ROWS * RING_LINE_BYTES)
#define RING_COPIES (PRODUCT_TILE_ROWS / 4) /* of codes, a lane's of a line */
#define RING_BLOCKS (2 * RING_LINE_BLOCKS) /* of a row in a turn */
#define RING_ABSMAX_BYTES (PRODUCT_TILE_ROWS * RING_BLOCKS * 4)

/* Shared memory: what all warps have, and this one's ring. */
typedef struct ring_room {
    uint32_t *pairs;
    float *sums;
    uint8_t *codes;
    uint8_t *absmax; /* two turns' */
} ring_room;

SIMT_INLINE ring_room
ring_divide_room(uint8_t *memory)
{
    uint8_t *const own
        = memory + PRODUCT_PAIRS_BYTES + RING_SUMS_BYTES + simt_warp() * RING_WARP_BYTES;
    const ring_room room = { (uint32_t *)(void *)memory,
                             (float *)(void *)(memory + PRODUCT_PAIRS_BYTES), own,
                             own + RING_STAGES * RING_STAGE_BYTES };

    return room;
}

SIMT_INLINE uint32_t
ring_lines(const berthi_product_kernel *a)
{
    return (uint32_t)(a->columns / RING_LINE);
}

/* ------------------------------------------------------------------------------ tiles */

SIMT_INLINE uint64_t
ring_first_row(const berthi_product_member *m, uint32_t tile)
{
    return (uint64_t)(tile - m->first) * PRODUCT_TILE_ROWS;
}

/* --------------------------------------------------------------- what is asked for next */

/* Absmax of a line as double quantization has them, a row a lane: four codes, one block's. */
typedef struct ring_raw {
    uint32_t codes;
    float second;
    float offset;
} ring_raw;

typedef struct ring_feed {
    uint32_t tile;
    uint32_t line; /* even: the first of a turn */
    uint32_t stage;
    uint32_t half; /* of absmax */
    const uint8_t *codes; /* the lane's of the tile's first row and line */
    const float *absmax;
    const uint8_t *absmax_codes;
    uint32_t apart[RING_COPIES]; /* bytes of codes from there to each row that the lane copies */
    uint32_t block;    /* the tile's first */
    uint32_t last_row; /* of the tile: those behind it are this one again */
    float offset;      /* the tile's */
    ring_raw raw;      /* of `line` */
} ring_feed;

SIMT_INLINE void
ring_begin_tile(const berthi_product_kernel *a, ring_feed *feed)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const berthi_product_member *const m = product_find_member(a, feed->tile);
    const uint64_t row = ring_first_row(m, feed->tile);
    const uint64_t left = m->rows - 1 - row;

    feed->line = 2 * simt_warp();
    feed->codes = m->codes + row * (a->columns / 2) + lane % 8 * 16;
    feed->absmax = m->absmax;
    feed->absmax_codes = m->absmax_codes;
    feed->block = (uint32_t)(row * (a->columns / RING_BLOCK));
    feed->last_row = left < PRODUCT_TILE_ROWS ? (uint32_t)left : PRODUCT_TILE_ROWS - 1;
    feed->offset = m->offset;
    SIMT_UNROLL
    for (uint32_t i = 0; i < RING_COPIES; i++) {
        const uint32_t wanted = lane / 8 + 4 * i;

        feed->apart[i]
            = (wanted < feed->last_row ? wanted : feed->last_row) * (uint32_t)(a->columns / 2);
    }
}

/*
 * Eight lanes have a line, which they copy as a whole. Where its parts lie turns with the row: so
 * lanes of four rows that read the same columns of them do not wait for each other.
 */
SIMT_INLINE void
ring_copy_codes(const ring_feed *feed, const ring_room *room)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t row = lane / 8;
    uint8_t *const to = room->codes + feed->stage * RING_STAGE_BYTES + row * RING_LINE_BYTES
                        + (lane % 8 ^ row * 2) * 16;
    const uint8_t *const from = feed->codes + feed->line * RING_LINE_BYTES;

    SIMT_UNROLL
    for (uint32_t i = 0; i < RING_COPIES; i++)
        simt_copy16(to + i * 4 * RING_LINE_BYTES, from + feed->apart[i]);
}

/* Where the absmax of a line lie, the first or the second of its turn. */
SIMT_INLINE uint32_t
ring_absmax_place(uint32_t row, uint32_t which)
{
    return row * (RING_BLOCKS * 4) + (which ^ (row >> 2 & 1)) * 16;
}

/* Of a turn; two lanes have a row. The second line may be behind the last one. */
SIMT_INLINE void
ring_copy_absmax(const berthi_product_kernel *a, const ring_feed *feed, const ring_room *room)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t line = feed->line + lane % 2;
    const uint32_t blocks = (uint32_t)(a->columns / RING_BLOCK);
    uint8_t *const to = room->absmax + feed->half * RING_ABSMAX_BYTES;

    if (line >= ring_lines(a))
        return;
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = lane / 2 + 16 * i;
        const uint32_t its = row < feed->last_row ? row : feed->last_row;

        simt_copy16(to + ring_absmax_place(row, lane % 2),
                    feed->absmax + (feed->block + its * blocks + line * RING_LINE_BLOCKS));
    }
}

/* The same as codes and second level, of a line: a lane has a row. */
SIMT_INLINE void
ring_read_absmax(const berthi_product_kernel *a, ring_feed *feed)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t blocks = (uint32_t)(a->columns / RING_BLOCK);
    const uint32_t its = lane < feed->last_row ? lane : feed->last_row;
    const uint32_t block = feed->block + its * blocks + feed->line * RING_LINE_BLOCKS;

    feed->raw.codes = simt_read4(feed->absmax_codes + block);
    feed->raw.second = feed->absmax[block / BERTHI_DOUBLE_BLOCK];
    feed->raw.offset = feed->offset;
}

/* Decoded, the lane's row of a line; they are put where all lanes find them (16 bytes a row). */
SIMT_INLINE simt_four
ring_decode_absmax(const ring_raw *raw, const uint32_t *map)
{
    simt_four four;

    SIMT_UNROLL
    for (uint32_t i = 0; i < RING_LINE_BLOCKS; i++)
        four.word[i] = berthi_core_bits(berthi_core_absmax_recover(
            map, simt_byte(raw->codes, i), raw->second, raw->offset));
    return four;
}

SIMT_INLINE void
ring_put_absmax(const ring_room *room, uint32_t stage, simt_four four)
{
    simt_store16(room->absmax + (stage * SIMT_WARP + simt_thread() % SIMT_WARP) * 16, four);
}

/* Behind a line: the turn's other one, the first of the warp's next turn or of the next tile. */
SIMT_INLINE void
ring_go_on(const berthi_product_kernel *a, ring_feed *feed)
{
    feed->stage ^= 1;
    if (feed->line % 2 == 0 && feed->line + 1 < ring_lines(a)) {
        feed->line++;
        return;
    }
    feed->half ^= 1;
    feed->line = feed->line / 2 * 2 + 2 * PRODUCT_WARPS;
    if (feed->line < ring_lines(a))
        return;
    feed->tile += (uint32_t)simt_ctas();
    if (feed->tile < a->tiles)
        ring_begin_tile(a, feed);
}

/*
 * A group of copies, also of nothing: the warp counts them. Raw absmax are read of the line behind
 * it, which they are decoded a whole line after.
 */
SIMT_INLINE void
ring_ask(const berthi_product_kernel *a, product_variant v, ring_feed *feed,
         const ring_room *room)
{
    if (feed->tile < a->tiles) {
        ring_copy_codes(feed, room);
        if (feed->line % 2 == 0 && !v.is_double)
            ring_copy_absmax(a, feed, room);
        ring_go_on(a, feed);
        if (v.is_double && feed->tile < a->tiles)
            ring_read_absmax(a, feed);
    }
    simt_end_copies();
}

/* ------------------------------------------------------------------------------ inputs */

/* Words that are under way: registers bound them. */
SIMT_INLINE uint32_t
ring_words_ahead(product_variant v)
{
    return v.fragments == 4 ? 2 : RING_WORDS;
}

typedef struct ring_inputs {
    const uint8_t *from; /* the lane's columns of its input in the first line */
    uint32_t left;       /* inputs from the lane's first one on */
    uint32_t x[RING_WORDS][PRODUCT_MOST_FRAGMENTS][4]; /* by words_ahead */
} ring_inputs;

/* Lanes without an input of their own do not ask the cache for another's; theirs stay 0. */
SIMT_INLINE void
ring_read_word(const berthi_product_kernel *a, product_variant v, uint32_t line, uint32_t word,
               ring_inputs *in)
{
    const uint8_t *const from
        = in->from + (size_t)line * RING_LINE_INPUTS + word / 2 * 128 + word % 2 * 16;

    SIMT_UNROLL
    for (uint32_t f = 0; f < v.fragments; f++)
        if (in->left > f * PRODUCT_INPUTS) {
            const simt_four four = simt_fresh16(from + f * (2 * PRODUCT_INPUTS * a->columns));

            SIMT_UNROLL
            for (uint32_t k = 0; k < 4; k++)
                in->x[word % ring_words_ahead(v)][f][k] = four.word[k];
        }
}

SIMT_INLINE void
ring_begin_inputs(const berthi_product_kernel *a, product_variant v, ring_inputs *in)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t input = lane / PRODUCT_QUAD;

    in->from = (const uint8_t *)a->inputs + (input * a->columns + lane % PRODUCT_QUAD * 16) * 2;
    in->left = a->count > input ? a->count - input : 0;
    SIMT_UNROLL
    for (uint32_t word = 0; word < ring_words_ahead(v); word++)
        ring_read_word(a, v, 2 * simt_warp(), word, in);
}

/* What follows a word of the line, of which `next` is the one behind. */
SIMT_INLINE void
ring_read_ahead(const berthi_product_kernel *a, product_variant v, uint32_t line, uint32_t next,
                uint32_t word, ring_inputs *in)
{
    const uint32_t wanted = word + ring_words_ahead(v);

    ring_read_word(a, v, wanted < RING_WORDS ? line : next, wanted % RING_WORDS, in);
}

/* ------------------------------------------------------------------------------ adding */

/* What has come of a line: the lane's codes of its rows in block c, 8 bytes each. */
SIMT_INLINE void
ring_take_codes(const uint8_t *stage, uint32_t c, uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS])
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t row = lane / PRODUCT_QUAD;
    const uint32_t part = (c * 2 + lane % PRODUCT_QUAD / 2) ^ row % 4 * 2;
    const uint8_t *const from = stage + row * RING_LINE_BYTES + part * 16 + lane % 2 * 8;

    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_ROWS; i++) {
        const simt_two two = simt_shared_load8(from + i * 8 * RING_LINE_BYTES);

        codes[i][0] = two.word[0];
        codes[i][1] = two.word[1];
    }
}

/* A block's sums, times its absmax. */
SIMT_INLINE void
ring_add_scaled(product_variant v, const product_sums *part, const uint8_t *absmax, uint32_t c,
                product_sums *sums)
{
    const uint32_t row_bytes = (v.is_double ? RING_LINE_BLOCKS : RING_BLOCKS) * 4;

    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_ROWS; i++) {
        const float its
            = berthi_core_float(simt_shared_load4(absmax + i * 8 * row_bytes + c * 4));

        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            SIMT_UNROLL
            for (uint32_t k = i % 2 * 2; k < i % 2 * 2 + 2; k++)
                sums->of[i / 2][f][k] = fmaf(its, part->of[i / 2][f][k], sums->of[i / 2][f][k]);
    }
}

/* A line that has come; `absmax` are those of the lane's first row. */
SIMT_INLINE void
ring_add_line(const berthi_product_kernel *a, product_variant v, const ring_room *room,
              const uint8_t *stage, const uint8_t *absmax, uint32_t line, uint32_t next,
              ring_inputs *in, product_sums *sums)
{
    const uint32_t copy = simt_thread() % SIMT_WARP * 4;

    SIMT_UNROLL
    for (uint32_t c = 0; c < RING_LINE_BLOCKS; c++) {
        uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS];
        product_sums part;

        ring_take_codes(stage, c, codes);
        product_clear_sums(v, &part);
        SIMT_UNROLL
        for (uint32_t w = 0; w < 2; w++) {
            const uint32_t word = c * 2 + w;

            product_add_word(v, codes, w, copy, in->x[word % ring_words_ahead(v)], room->pairs,
                             &part);
            ring_read_ahead(a, v, line, next, word, in);
        }
        ring_add_scaled(v, &part, absmax, c, sums);
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
 * A turn's lines, of which the first one is on its way: what is behind each is asked for. Absmax of
 * the line behind it are decoded beside a line, and put down at its end, or all that is read from
 * shared memory would have to wait for that.
 */
SIMT_INLINE void
ring_add_turn(const berthi_product_kernel *a, product_variant v, const ring_room *room,
              const uint32_t *map, uint32_t first, uint32_t *stage, uint32_t half,
              ring_feed *feed, ring_inputs *in, product_sums *sums)
{
    const uint32_t row = simt_thread() % SIMT_WARP / PRODUCT_QUAD;
    const uint32_t end = first + 2 < ring_lines(a) ? first + 2 : ring_lines(a);

    SIMT_UNROLL_BY(PRODUCT_TURNS)
    for (uint32_t line = first; line < end; line++) {
        const uint8_t *const absmax
            = room->absmax
              + (v.is_double ? (*stage * SIMT_WARP + row) * 16
                             : half * RING_ABSMAX_BYTES + ring_absmax_place(row, line - first));
        simt_four coming = { { 0 } };

        simt_wait_copies(RING_STAGES - 2);
        simt_warp_barrier();
        if (v.is_double)
            coming = ring_decode_absmax(&feed->raw, map);
        ring_ask(a, v, feed, room);
        ring_add_line(a, v, room, room->codes + *stage * RING_STAGE_BYTES, absmax, line,
                      ring_next_line(a, line), in, sums);
        if (v.is_double)
            ring_put_absmax(room, *stage ^ 1, coming);
        simt_warp_barrier();
        *stage ^= 1;
    }
}

/* ------------------------------------------------------------------------------ storing */

/*
 * The warps' sums of a fragment, in their order, by two of them, in turn, that have a fragment of
 * rows each; the others go on. There are two places for sums: who writes over one has met those
 * at the other who had read it.
 */
SIMT_INLINE void
ring_store_fragment(const berthi_product_kernel *a, product_variant v, uint32_t tile, uint32_t f,
                    const product_sums *sums, uint32_t number, float *places)
{
    float *const all = places + number % 2 * (PRODUCT_TILES * 4 * PRODUCT_THREADS);
    const uint32_t thread = simt_thread();
    const uint32_t warp = (simt_warp() + 2 * number) % PRODUCT_WARPS;
    const uint32_t lane = thread % SIMT_WARP;
    const uint32_t input = f * PRODUCT_INPUTS + lane % PRODUCT_QUAD * 2;
    const bool is_wanted = input < a->count;

    SIMT_UNROLL
    for (uint32_t i = 0; i < PRODUCT_TILES * 4; i++)
        if (is_wanted)
            all[i * PRODUCT_THREADS + thread] = sums->of[i / 4][f][i % 4];
    simt_barrier();
    if (warp < PRODUCT_TILES && is_wanted) {
        const berthi_product_member *const m = product_find_member(a, tile);
        const product_job job = product_member_job(a, m);
        const uint64_t row = ring_first_row(m, tile) + warp * 16 + lane / PRODUCT_QUAD;

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

/* ------------------------------------------------------------------------------ kernels */

SIMT_INLINE void
ring_add_tiles(const berthi_product_kernel *a, product_variant v, const ring_room *room,
               const uint32_t *map, ring_feed *feed, ring_inputs *in)
{
    uint32_t stage = 0;
    uint32_t half = 0;
    uint32_t stored = 0;

    SIMT_NO_UNROLL
    for (uint32_t tile = (uint32_t)simt_cta(); tile < a->tiles; tile += (uint32_t)simt_ctas()) {
        product_sums sums;

        product_clear_sums(v, &sums);
        SIMT_NO_UNROLL
        for (uint32_t first = 2 * simt_warp(); first < ring_lines(a);
             first += 2 * PRODUCT_WARPS) {
            ring_add_turn(a, v, room, map, first, &stage, half, feed, in, &sums);
            half ^= 1;
        }
        SIMT_UNROLL
        for (uint32_t f = 0; f < v.fragments; f++)
            ring_store_fragment(a, v, tile, f, &sums, stored++, room->sums);
    }
}

SIMT_INLINE void
ring_multiply(const berthi_product_kernel *a, product_variant v, uint8_t *memory, uint32_t *map)
{
    const ring_room room = ring_divide_room(memory);
    ring_feed feed = { .tile = (uint32_t)simt_cta() };
    ring_inputs in = { .left = 0 };
    ring_raw first;

    if (!a->is_settled)
        simt_wait_for_earlier();
    ring_begin_tile(a, &feed);
    if (v.is_double)
        ring_read_absmax(a, &feed);
    first = feed.raw;
    ring_ask(a, v, &feed, &room);
    product_fill_pairs(a, v, room.pairs);
    product_fill_map(v, simt_argument(a->map), map);
    simt_wait_for_earlier();
    ring_begin_inputs(a, v, &in);
    simt_barrier();
    if (v.is_double)
        ring_put_absmax(&room, 0, ring_decode_absmax(&first, map));
    ring_add_tiles(a, v, &room, map, &feed, &in);
}

#define RING_KERNEL(name, dtype, is_double, fragments)                                \
    SIMT_INLINE void name##_body(const berthi_product_kernel *a)                      \
    {                                                                                 \
        const product_variant v = { dtype, is_double, 6, fragments, false, true };    \
        SIMT_SHARED(uint32_t, map, (is_double) ? 256 : 1);                            \
        SIMT_ROOM(memory, RING_ROOM_BYTES);                                           \
                                                                                      \
        ring_multiply(a, v, memory, map);                                             \
    }                                                                                 \
    SIMT_KERNEL_AHEAD(name, PRODUCT_THREADS, PRODUCT_THREADS, berthi_product_kernel,  \
                      name##_body(a))

#define RING_KERNELS(name, fragments)                                                 \
    RING_KERNEL(name##_bf16, BERTH_BF16, false, fragments)                            \
    RING_KERNEL(name##_f16, BERTH_F16, false, fragments)                              \
    RING_KERNEL(name##_bf16_double, BERTH_BF16, true, fragments)                      \
    RING_KERNEL(name##_f16_double, BERTH_F16, true, fragments)

RING_KERNELS(berthi_ring, 1)
RING_KERNELS(berthi_ring16, 2)
RING_KERNELS(berthi_ring32, 4)

#endif
