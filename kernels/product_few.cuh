/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_few.cuh - the products of product_ring.cuh with up to FEW_INPUTS on GPUs of 9.0, whose
 * hardware copies tiles: what a decoder does for each of its tokens.
 *
 * Rows and columns are dealt as rings deal them, in tiles of 32 rows. Codes and absmax of a line
 * come as tiles that one lane asks for, so that the others have neither addresses nor requests of
 * their own; and a CTA takes so little of a processor that it holds two: of one launch, where a
 * weight has rows enough, else the next launch's is there when this one ends, with its tables made
 * and its first lines on their way. Absmax of double quantization come as codes, 16 of a row at
 * once, and are decoded a line ahead, once for all lanes.
 *
 * Measured on an H200, 8192 x 28672: 35.6 us where rings take 38.8, double quantized 35.1 for 39.1.
 * What binds rings are their two warps a scheduler, which wait: 40 % of the issue slots are used,
 * and half of what shared memory can give. What does not help: a stage more, codes brought to the
 * second cache ahead, and pairs picked from registers instead of memory.
 *
 *   traffic   as product.cuh
 *   launch    a CTA a processor or two, at most one for each unit of 16 rows, of PRODUCT_THREADS
 *             lanes with FEW_ROOM_BYTES; it reads codes and absmax ahead of earlier work where
 *             these are settled
 *   bits      those of rings
 *   bounds    as product.cuh; copies of tiles read nothing beyond the matrices
 */
#ifndef BERTH_KERNELS_PRODUCT_FEW_CUH
#define BERTH_KERNELS_PRODUCT_FEW_CUH

#include "kernels/product_ring.cuh"
#include "kernels/simt_wide.h"

#define FEW_UNIT_CODES (FEW_CODES_BYTES / 2) /* of a unit of rows, a tile's half */
#define FEW_UNIT_ABSMAX (FEW_ABSMAX_BYTES / 2)

/* Shared memory: what all warps have, and this one's part. */
typedef struct few_room {
    const uint32_t *pairs;
    float *sums;
    const uint32_t *map;
    uint8_t *codes;  /* by stages */
    uint8_t *absmax; /* the same; of double quantization one line's, decoded, and codes */
    uint32_t gates;  /* by stages, and that of absmax codes */
} few_room;

SIMT_INLINE few_room
few_divide_room(uint8_t *memory)
{
    const uint32_t warp = simt_warp();
    const few_room room = {
        (const uint32_t *)(const void *)(memory + FEW_PAIRS_AT),
        (float *)(void *)(memory + FEW_SUMS_AT),
        (const uint32_t *)(const void *)(memory + FEW_MAP_AT),
        memory + warp * (FEW_STAGES * FEW_CODES_BYTES),
        memory + FEW_ABSMAX_AT + warp * (FEW_STAGES * FEW_ABSMAX_BYTES),
        simt_place(memory) + FEW_GATES_AT + warp * (FEW_GATES * 8),
    };

    return room;
}

/* What is asked for next, and what of it is behind. */
typedef struct few_feed {
    ring_span span; /* from the tile on */
    uint32_t units; /* of the tile */
    uint32_t line;
    uint32_t member; /* whose the tile is */
    uint32_t row;    /* its first */
    uint32_t asked;  /* lines that are on their way, or here and not multiplied */
    uint32_t second; /* the second level of the absmax that are decoded next, the lane's row's */
} few_feed;

SIMT_INLINE void
few_begin_tile(const berthi_product_kernel *p, product_variant v, few_feed *feed)
{
    const berthi_product_member *const m = product_find_member(p, feed->span.unit);

    feed->units = ring_tile_units(p, v, feed->span);
    feed->member = (uint32_t)(m - p->members);
    feed->row = (uint32_t)ring_first_row(m, feed->span.unit);
    feed->line = 2 * simt_warp();
}

/* By one lane: the tile's half or both of it. */
SIMT_INLINE void
few_copy(const berthi_few_kernel *a, product_variant v, const few_feed *feed, const few_room *room,
         uint32_t stage)
{
    const uint32_t gate = room->gates + 8 * stage;
    const uint32_t codes = simt_place(room->codes) + stage * FEW_CODES_BYTES;
    const uint32_t absmax = simt_place(room->absmax) + stage * FEW_ABSMAX_BYTES;
    const berthi_tiles *const tiles = &a->tiles[2 * feed->member];

    simt_gate_expect(gate,
                     feed->units * (FEW_UNIT_CODES + (v.is_double ? 0 : FEW_UNIT_ABSMAX)));
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        if (i < feed->units) {
            const uint32_t row = feed->row + i * RING_UNIT_ROWS;

            simt_copy_tile(codes + i * FEW_UNIT_CODES, tiles, gate, feed->line * RING_LINE_BYTES,
                           row);
            if (!v.is_double)
                simt_copy_tile(absmax + i * FEW_UNIT_ABSMAX, tiles + 1, gate,
                               feed->line * RING_LINE_BLOCKS * 4, row);
        }
}

/* Of a turn, whose lines are one behind the other: 16 codes of a row, of which it has eight. */
SIMT_INLINE void
few_copy_absmax_codes(const berthi_few_kernel *a, const few_feed *feed, const few_room *room)
{
    const uint32_t gate = room->gates + 8 * FEW_STAGES;
    const uint32_t to = simt_place(room->absmax) + FEW_ABSMAX_BYTES;
    const uint32_t column = feed->line * RING_LINE_BLOCKS / 16 * 16;

    simt_gate_expect(gate, feed->units * FEW_UNIT_ABSMAX);
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        if (i < feed->units)
            simt_copy_tile(to + i * FEW_UNIT_ABSMAX, &a->tiles[2 * feed->member + 1], gate, column,
                           feed->row + i * RING_UNIT_ROWS);
}

/* They are all of one block of the second level: rows and turns begin at multiples of eight. */
SIMT_INLINE uint32_t
few_read_second(const berthi_product_kernel *p, const few_feed *feed)
{
    const berthi_product_member *const m = &p->members[feed->member];
    const uint64_t wanted = (uint64_t)feed->row + simt_thread() % SIMT_WARP;
    const uint64_t row = wanted < m->rows ? wanted : m->rows - 1;
    const uint64_t block = row * (p->columns / RING_BLOCK) + feed->line * RING_LINE_BLOCKS;

    return simt_read4(m->absmax + block / BERTHI_DOUBLE_BLOCK);
}

/* The warp's next line: of the turn, of the next turn, of the next tile. */
SIMT_INLINE void
few_go_on(const berthi_product_kernel *p, product_variant v, few_feed *feed)
{
    const uint32_t next = ring_next_line(p, feed->line);
    const bool is_over = next <= feed->line;

    feed->line = next;
    if (!is_over)
        return;
    feed->span.unit += feed->units;
    if (feed->span.unit < feed->span.end)
        few_begin_tile(p, v, feed);
}

/*
 * To this stage, where there is a line left. The lane that asks has met all who have read what was
 * there.
 */
SIMT_INLINE void
few_ask(const berthi_few_kernel *a, product_variant v, few_feed *feed, const few_room *room,
        uint32_t stage)
{
    const bool begins_turn = feed->line % 2 == 0;

    if (feed->span.unit >= feed->span.end)
        return;
    if (simt_thread() % SIMT_WARP == 0) {
        few_copy(a, v, feed, room, stage);
        if (v.is_double && begins_turn)
            few_copy_absmax_codes(a, feed, room);
    }
    if (v.is_double && begins_turn)
        feed->second = few_read_second(&a->product, feed);
    feed->asked++;
    few_go_on(&a->product, v, feed);
}

/* ------------------------------------------------------------------------------ adding */

typedef struct few_work {
    const few_room *room;
    few_feed *feed;
    ring_inputs *in;
    uint32_t stage;
    uint32_t turn;       /* of the stages' gates */
    uint32_t codes_turn; /* of that of absmax codes */
    uint32_t member;     /* whose the absmax are that are decoded next */
} few_work;

/*
 * Where a lane's row lies in eight of them: lines are turned as hardware does it, so that lanes of
 * four rows do not wait for each other if these are two apart.
 */
SIMT_INLINE uint32_t
few_row(void)
{
    const uint32_t row = simt_thread() % SIMT_WARP / PRODUCT_QUAD;

    return row % 4 * 2 + row / 4;
}

/* Absmax of the line that is multiplied next, of the lane's row. */
SIMT_INLINE void
few_decode_absmax(const berthi_product_kernel *p, few_work *work, uint32_t line)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint8_t *const raw = work->room->absmax + FEW_ABSMAX_BYTES + lane * 16;
    const float second = berthi_core_float(work->feed->second);
    uint32_t codes;
    simt_four four;

    if (line % 2 == 0) {
        simt_gate_wait(work->room->gates + 8 * FEW_STAGES, work->codes_turn);
        work->codes_turn ^= 1;
    }
    codes = simt_shared_load4(raw + line * RING_LINE_BLOCKS % 16);
    SIMT_UNROLL
    for (uint32_t i = 0; i < RING_LINE_BLOCKS; i++)
        four.word[i] = berthi_core_bits(
            berthi_core_absmax_recover(work->room->map, simt_byte(codes, i), second,
                                       p->members[work->member].offset));
    simt_store16(work->room->absmax + lane * 16, four);
}

/* What has come of a line: the lane's codes of its rows in block c. */
SIMT_INLINE void
few_take_codes(product_variant v, const uint8_t *stage, uint32_t c,
               uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS])
{
    const uint32_t lane = simt_thread() % PRODUCT_QUAD;
    const uint32_t row = few_row();
    const uint8_t *const from =
        stage + row * RING_LINE_BYTES + ((c * 2 + lane / 2) ^ row) * 16 + lane % 2 * 8;

    ring_take_rows(v, from, codes);
}

/* A line that has come; the inputs of `next` take the place of its own. */
SIMT_INLINE void
few_add_line(const berthi_product_kernel *p, product_variant v, few_work *work, uint32_t line,
             uint32_t next, product_sums *sums)
{
    const uint32_t copy = simt_thread() % SIMT_WARP * 4;
    const uint8_t *const stage = work->room->codes + work->stage * FEW_CODES_BYTES;
    const uint8_t *const absmax = work->room->absmax
                                  + (v.is_double ? 0 : work->stage * FEW_ABSMAX_BYTES)
                                  + few_row() * 16;

    SIMT_UNROLL
    for (uint32_t c = 0; c < RING_LINE_BLOCKS; c++) {
        uint32_t codes[PRODUCT_ROWS][PRODUCT_WORDS];
        product_sums part;

        few_take_codes(v, stage, c, codes);
        product_clear_sums(v, &part);
        SIMT_UNROLL
        for (uint32_t w = 0; w < 2; w++) {
            product_add_word(v, codes, w, copy,
                             work->in->x[(c * 2 + w) % ring_words_ahead(v)], work->room->pairs,
                             &part);
            ring_read_ahead(p, v, line, next, c * 2 + w, work->in);
        }
        ring_add_scaled(v, &part, absmax, 16, c, sums);
    }
}

/* A line, and what is behind it is asked for; `next` is the warp's next one, if there is one. */
SIMT_INLINE void
few_add_step(const berthi_few_kernel *a, product_variant v, few_work *work, uint32_t line,
             product_sums *sums)
{
    const uint32_t next = ring_next_line(&a->product, line);
    few_feed *const feed = work->feed;

    simt_gate_wait(work->room->gates + 8 * work->stage, work->turn);
    few_add_line(&a->product, v, work, line, next, sums);
    feed->asked--;
    simt_warp_barrier();
    if (v.is_double && feed->asked > 0) {
        if (next <= line)
            work->member = feed->member;
        few_decode_absmax(&a->product, work, next);
        simt_warp_barrier();
    }
    few_ask(a, v, feed, work->room, work->stage);
    work->turn ^= work->stage;
    work->stage ^= 1;
}

/* ------------------------------------------------------------------------------ tiles */

/* The warps' sums, in their order, by the first of them. */
SIMT_INLINE void
few_store(const berthi_product_kernel *p, product_variant v, uint32_t unit,
          const product_sums *sums, float *all)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;
    const uint32_t warp = simt_warp();
    const uint32_t input = lane % PRODUCT_QUAD * 2;

    simt_barrier(); /* those before have been read */
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.tiles * 4; i++)
        if (warp > 0 && input < p->count)
            all[(i * (PRODUCT_WARPS - 1) + warp - 1) * SIMT_WARP + lane] =
                sums->of[i / 4][0][i % 4];
    simt_barrier();
    if (warp == 0 && input < p->count) {
        const berthi_product_member *const m = product_find_member(p, unit);
        const product_job job = product_member_job(p, m);
        const uint64_t first = ring_first_row(m, unit) + few_row();

        SIMT_UNROLL
        for (uint32_t i = 0; i < v.tiles * 4; i++) {
            float sum = sums->of[i / 4][0][i % 4];

            SIMT_UNROLL
            for (uint32_t s = 0; s + 1 < PRODUCT_WARPS; s++)
                sum = berthi_core_add(sum, all[(i * (PRODUCT_WARPS - 1) + s) * SIMT_WARP + lane]);
            product_store(v, &job, input + i % 2, first + i / 4 * 16 + i % 4 / 2 * 8, sum);
        }
    }
}

SIMT_INLINE void
few_add_tile(const berthi_few_kernel *a, product_variant v, uint32_t unit, few_work *work)
{
    product_sums sums;

    product_clear_sums(v, &sums);
    SIMT_NO_UNROLL
    for (uint32_t first = 2 * simt_warp(); first < ring_lines(&a->product);
         first += 2 * PRODUCT_WARPS) {
        const uint32_t end = first + 2 < ring_lines(&a->product) ? first + 2
                                                                 : ring_lines(&a->product);

        SIMT_UNROLL_BY(PRODUCT_TURNS)
        for (uint32_t line = first; line < end; line++)
            few_add_step(a, v, work, line, &sums);
    }
    few_store(&a->product, v, unit, &sums, work->room->sums);
}

SIMT_INLINE void
few_add_tiles(const berthi_few_kernel *a, product_variant v, ring_span span, few_work *work)
{
    product_variant half = v;
    uint32_t units;

    half.tiles = 1;
    SIMT_NO_UNROLL
    for (; span.unit < span.end; span.unit += units) {
        units = ring_tile_units(&a->product, v, span);
        if (units == 2)
            few_add_tile(a, v, span.unit, work);
        else
            few_add_tile(a, half, span.unit, work);
    }
}

/* ------------------------------------------------------------------------------ kernels */

/* One lane of each warp, which is the first to ask; the CTA meets before the others wait. */
SIMT_INLINE void
few_begin_gates(const few_room *room)
{
    if (simt_thread() % SIMT_WARP == 0) {
        SIMT_UNROLL
        for (uint32_t i = 0; i < FEW_GATES; i++)
            simt_gate_begin(room->gates + 8 * i, 1);
        simt_gates_begun();
    }
}

SIMT_INLINE void
few_multiply(const berthi_few_kernel *a, product_variant v, uint8_t *memory)
{
    const berthi_product_kernel *const p = &a->product;
    const few_room room = few_divide_room(memory);
    const ring_span span = ring_find_span(p);
    few_feed feed = { .span = span };
    ring_inputs in = { .left = 0 };
    few_work work = { .room = &room, .feed = &feed, .in = &in };

    if (!p->is_settled)
        simt_wait_for_earlier();
    few_begin_gates(&room);
    few_begin_tile(p, v, &feed);
    work.member = feed.member;
    few_ask(a, v, &feed, &room, 0);
    if (!v.is_double)
        few_ask(a, v, &feed, &room, 1);
    product_fill_pairs(p, v, (uint32_t *)(void *)(memory + FEW_PAIRS_AT));
    product_fill_map(v, simt_argument(p->map), (uint32_t *)(void *)(memory + FEW_MAP_AT));
    simt_barrier();
    if (v.is_double) {
        few_decode_absmax(p, &work, 2 * simt_warp());
        simt_warp_barrier();
        few_ask(a, v, &feed, &room, 1);
    }
    simt_wait_for_earlier();
    ring_begin_inputs(p, v, &in);
    few_add_tiles(a, v, span, &work);
}

/* Nothing launches them on other GPUs, or by runtimes that know of no tiles. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ != 900 || __CUDACC_VER_MAJOR__ < 12)
#define FEW_CALL(name) (void)a
#else
#define FEW_CALL(name) name##_body(a)
#endif

#define FEW_KERNEL(name, dtype, is_double)                                            \
    SIMT_INLINE void name##_body(const berthi_few_kernel *a)                          \
    {                                                                                 \
        const product_variant v = { dtype, is_double, 6, 1, PRODUCT_TILES, false,     \
                                    true,  false };                                   \
        SIMT_ROOM(memory, FEW_ROOM_BYTES);                                            \
                                                                                      \
        few_multiply(a, v, memory);                                                   \
    }                                                                                 \
    SIMT_KERNEL_AHEAD(name, PRODUCT_THREADS, SIMT_RESIDENT_WIDE, berthi_few_kernel,   \
                      FEW_CALL(name))

FEW_KERNEL(berthi_few_bf16, BERTH_BF16, false)
FEW_KERNEL(berthi_few_f16, BERTH_F16, false)
FEW_KERNEL(berthi_few_bf16_double, BERTH_BF16, true)
FEW_KERNEL(berthi_few_f16_double, BERTH_F16, true)

#endif
