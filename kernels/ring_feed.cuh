/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring_feed.cuh - what a warp of product_ring.cuh has on its way, and in which order: codes and
 * absmax to shared memory, inputs to registers.
 *
 * The rows of a CTA are units of RING_UNIT_ROWS, as many as any other has, or one more. It goes
 * through them tile by tile: two groups of rows at a time, one group, at an end half of one. A step
 * is a line of a group: where there are two groups both meet a line's inputs, one after the
 * other. What is fed is one step ahead of what is multiplied, be it of the next tile.
 */
#ifndef BERTH_KERNELS_RING_FEED_CUH
#define BERTH_KERNELS_RING_FEED_CUH

#include "kernels/product.cuh"

#define RING_LINE_BYTES 128u
#define RING_LINE_INPUTS (2 * RING_LINE) /* bytes of 16-bit inputs */
#define RING_WORDS 8u /* of inputs in a line, 16 bytes of a lane each */
#define RING_GROUPS (RING_TALL_UNITS * RING_UNIT_ROWS / PRODUCT_TILE_ROWS) /* of a tile, at most */
#define RING_STAGE_BYTES (PRODUCT_TILE_ROWS * RING_LINE_BYTES)
#define RING_COPIES (PRODUCT_TILE_ROWS / 4) /* of codes, a lane's of a step */
#define RING_BLOCKS (2 * RING_LINE_BLOCKS) /* of a row in a turn */
#define RING_ABSMAX_BYTES (PRODUCT_TILE_ROWS * RING_BLOCKS * 4)
#define RING_DECODED_BYTES (PRODUCT_TILE_ROWS * RING_LINE_BLOCKS * 4)
#define RING_RAW_BYTES (PRODUCT_TILE_ROWS * RING_BLOCKS) /* of codes; as many of the second level */

/* Shared memory: what all warps have, and this one's ring. */
typedef struct ring_room {
    uint32_t *pairs;
    float *sums;
    uint8_t *codes;
    uint8_t *absmax; /* two turns', or both groups'; double quantized two steps', and raw ones */
} ring_room;

SIMT_INLINE ring_room
ring_divide_room(uint8_t *memory)
{
    uint8_t *const own =
        memory + PRODUCT_PAIRS_BYTES + RING_SUMS_BYTES + simt_warp() * RING_WARP_BYTES;
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

/* Units: the CTA's that are left. */
typedef struct ring_span {
    uint32_t unit;
    uint32_t end;
} ring_span;

SIMT_INLINE ring_span
ring_find_span(const berthi_product_kernel *a)
{
    const uint32_t cta = (uint32_t)simt_cta();
    const uint32_t each = a->units / (uint32_t)simt_ctas();
    const uint32_t more = a->units - each * (uint32_t)simt_ctas(); /* CTAs that have one more */
    const uint32_t first = cta * each + (cta < more ? cta : more);
    const ring_span span = { first, first + each + (cta < more) };

    return span;
}

/* Of the tile that begins there: 1, 2 or RING_TALL_UNITS, of one weight. */
SIMT_INLINE uint32_t
ring_tile_units(const berthi_product_kernel *a, product_variant v, ring_span span)
{
    uint32_t end = span.end;

    SIMT_UNROLL
    for (uint32_t i = 1; i < PRODUCT_TOGETHER; i++)
        if (a->members[i].first > span.unit && a->members[i].first < end)
            end = a->members[i].first;
    if (v.is_tall && end - span.unit >= RING_TALL_UNITS)
        return RING_TALL_UNITS;
    return end - span.unit < 2 ? 1 : 2;
}

SIMT_INLINE uint64_t
ring_first_row(const berthi_product_member *m, uint32_t unit)
{
    return (uint64_t)(unit - m->first) * RING_UNIT_ROWS;
}

/* --------------------------------------------------------------- what is asked for next */

/* The step that is asked for next. Its group is known where that is done. */
typedef struct ring_feed {
    ring_span span; /* from the tile on */
    uint32_t units; /* of the tile */
    uint32_t line;  /* even: the first of a turn */
    uint32_t stage;
    uint32_t half; /* where the absmax are that were asked for last, a turn of a group at a time */
    const uint8_t *codes; /* the lane's of the tile's first row and line */
    uint32_t member;   /* whose the tile is: registers are few */
    uint32_t block;    /* the tile's first */
    uint32_t last_row; /* of the tile: those behind it are this one again */
} ring_feed;

SIMT_INLINE void
ring_begin_tile(const berthi_product_kernel *a, product_variant v, ring_feed *feed)
{
    const berthi_product_member *const m = product_find_member(a, feed->span.unit);
    const uint64_t row = ring_first_row(m, feed->span.unit);
    const uint64_t left = m->rows - 1 - row;

    feed->member = (uint32_t)(m - a->members);
    feed->units = ring_tile_units(a, v, feed->span);
    feed->line = 2 * simt_warp();
    feed->codes = m->codes + row * (a->columns / 2) + simt_thread() % 8 * 16;
    feed->block = (uint32_t)(row * (a->columns / RING_BLOCK));
    feed->last_row = left < feed->units * RING_UNIT_ROWS ? (uint32_t)left
                                                         : feed->units * RING_UNIT_ROWS - 1;
}

/* Of the tile, from its first one on. */
SIMT_INLINE uint32_t
ring_row(const ring_feed *feed, uint32_t group, uint32_t row)
{
    const uint32_t wanted = group * PRODUCT_TILE_ROWS + row;

    return wanted < feed->last_row ? wanted : feed->last_row;
}

/*
 * Eight lanes have a line, which they copy as a whole. Where its parts lie turns with the row: so
 * lanes of four rows that read the same columns of them do not wait for each other.
 */
SIMT_INLINE void
ring_copy_codes(const berthi_product_kernel *a, const ring_feed *feed, uint32_t group,
                const ring_room *room)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t row = lane / 8;
    const uint32_t row_bytes = (uint32_t)(a->columns / 2);
    uint8_t *const to = room->codes + feed->stage * RING_STAGE_BYTES + row * RING_LINE_BYTES
                        + (lane % 8 ^ row * 2) * 16;
    const uint8_t *const from = feed->codes + feed->line * RING_LINE_BYTES;

    SIMT_UNROLL
    for (uint32_t i = 0; i < RING_COPIES; i++)
        simt_copy16(to + i * 4 * RING_LINE_BYTES,
                    from + (uint64_t)ring_row(feed, group, row + 4 * i) * row_bytes);
}

/* Where the absmax of a line lie, the first or the second of its turn. */
SIMT_INLINE uint32_t
ring_absmax_place(uint32_t row, uint32_t which)
{
    return row * (RING_BLOCKS * 4) + (which ^ (row >> 2 & 1)) * 16;
}

/* Of a turn; two lanes have a row. The second line may be behind the last one. */
SIMT_INLINE void
ring_copy_absmax(const berthi_product_kernel *a, const ring_feed *feed, uint32_t group,
                 const ring_room *room)
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

        simt_copy16(to + ring_absmax_place(row, lane % 2),
                    a->members[feed->member].absmax
                        + (feed->block + ring_row(feed, group, row) * blocks
                           + line * RING_LINE_BLOCKS));
    }
}

/* Raw absmax: a lane has a row. */
SIMT_INLINE uint8_t *
ring_find_raw(const ring_room *room, uint32_t half)
{
    return room->absmax + 2 * RING_DECODED_BYTES + half * 2 * RING_RAW_BYTES
           + simt_thread() % SIMT_WARP * RING_BLOCKS;
}

/* Of many inputs what these are is less than the instructions of a second way. */
SIMT_INLINE bool
ring_has_pairs(const berthi_product_kernel *a, product_variant v)
{
    return v.fragments == 1 && a->has_pairs != 0;
}

/*
 * The same as codes and second level. How many rows are asked for at once is what it costs: all of
 * a turn where its codes lie so that they come at once. They are of one block of the second level
 * then. Behind the last line is that one again.
 */
SIMT_INLINE void
ring_copy_raw(const berthi_product_kernel *a, product_variant v, const ring_feed *feed,
              uint32_t group, const ring_room *room)
{
    const berthi_product_member *const m = &a->members[feed->member];
    const uint32_t blocks = (uint32_t)(a->columns / RING_BLOCK);
    const uint32_t block = feed->block
                           + ring_row(feed, group, simt_thread() % SIMT_WARP) * blocks
                           + feed->line * RING_LINE_BLOCKS;
    uint8_t *const to = ring_find_raw(room, feed->half);

    simt_copy4(to + RING_RAW_BYTES, m->absmax + block / BERTHI_DOUBLE_BLOCK);
    if (ring_has_pairs(a, v)) {
        simt_copy8(to, m->absmax_codes + block);
    } else {
        const uint32_t next =
            block + (feed->line + 1 < ring_lines(a) ? RING_LINE_BLOCKS : 0);

        simt_copy4(to, m->absmax_codes + block);
        simt_copy4(to + 4, m->absmax_codes + next);
        simt_copy4(to + RING_RAW_BYTES + 4, m->absmax + next / BERTHI_DOUBLE_BLOCK);
    }
}

/* The lane's row of a line, decoded; they are put where all lanes find them (16 bytes a row). */
SIMT_INLINE simt_four
ring_decode_raw(const berthi_product_kernel *a, product_variant v, const ring_room *room,
                uint32_t half, uint32_t line, uint32_t member, const uint32_t *map)
{
    const uint8_t *const raw = ring_find_raw(room, half);
    const uint32_t which = line % 2 * 4;
    const uint32_t codes = simt_shared_load4(raw + which);
    const float second = berthi_core_float(
        simt_shared_load4(raw + RING_RAW_BYTES + (ring_has_pairs(a, v) ? 0 : which)));
    simt_four four;

    SIMT_UNROLL
    for (uint32_t i = 0; i < RING_LINE_BLOCKS; i++)
        four.word[i] = berthi_core_bits(berthi_core_absmax_recover(
            map, simt_byte(codes, i), second, a->members[member].offset));
    return four;
}

/*
 * Of the step that is asked for next. The first group's raw absmax lie behind where the second's
 * have been asked for since.
 */
SIMT_INLINE simt_four
ring_decode_absmax(const berthi_product_kernel *a, product_variant v, const ring_feed *feed,
                   uint32_t group, const ring_room *room, const uint32_t *map)
{
    const bool is_behind = v.is_tall && group == 0 && feed->line % 2 != 0
                           && feed->units == RING_TALL_UNITS;

    return ring_decode_raw(a, v, room, feed->half ^ is_behind, feed->line, feed->member, map);
}

SIMT_INLINE void
ring_put_absmax(const ring_room *room, uint32_t stage, simt_four four)
{
    simt_store16(room->absmax + stage * RING_DECODED_BYTES + simt_thread() % SIMT_WARP * 16, four);
}

/*
 * Behind a step: the other group's of the same line, or of the turn's other one, the warp's next
 * turn, the next tile the first group's.
 */
SIMT_INLINE void
ring_go_on(const berthi_product_kernel *a, product_variant v, bool has_other, ring_feed *feed)
{
    feed->stage ^= 1;
    if (has_other)
        return;
    if (feed->line % 2 == 0 && feed->line + 1 < ring_lines(a)) {
        feed->line++;
        return;
    }
    feed->line = feed->line / 2 * 2 + 2 * PRODUCT_WARPS;
    if (feed->line < ring_lines(a))
        return;
    feed->span.unit += feed->units;
    if (feed->span.unit < feed->span.end)
        ring_begin_tile(a, v, feed);
}

/*
 * The step of this group. A group of copies, also of nothing: the warp counts them. Raw absmax come
 * with the step before theirs, beside which they are decoded.
 */
SIMT_INLINE void
ring_ask(const berthi_product_kernel *a, product_variant v, uint32_t group, ring_feed *feed,
         const ring_room *room)
{
    if (feed->span.unit < feed->span.end) {
        const bool has_other =
            v.is_tall && group == 0 && feed->units == RING_TALL_UNITS;

        ring_copy_codes(a, feed, group, room);
        if (feed->line % 2 == 0 && !v.is_double) {
            feed->half ^= 1;
            ring_copy_absmax(a, feed, group, room);
        }
        ring_go_on(a, v, has_other, feed);
        if (v.is_double && feed->line % 2 == 0 && feed->span.unit < feed->span.end) {
            feed->half ^= 1;
            ring_copy_raw(a, v, feed, has_other, room);
        }
    }
    simt_end_copies();
}

SIMT_INLINE void
ring_begin(const berthi_product_kernel *a, product_variant v, ring_feed *feed,
           const ring_room *room)
{
    feed->half = 1;
    ring_begin_tile(a, v, feed);
    if (v.is_double) {
        feed->half = 0;
        ring_copy_raw(a, v, feed, 0, room);
    }
    ring_ask(a, v, 0, feed, room);
}

/* ------------------------------------------------------------------------------ inputs */

/* Words that are under way: registers bound them, which compilers divide as they do. */
SIMT_INLINE uint32_t
ring_words_ahead(product_variant v)
{
    if (v.fragments == 4)
        return 2;
    return v.fragments == 1 && !v.is_tall && !v.is_double ? RING_WORDS / 2 : RING_WORDS;
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
    const uint8_t *const from =
        in->from + (size_t)line * RING_LINE_INPUTS + word / 2 * 128 + word % 2 * 16;

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

#endif
