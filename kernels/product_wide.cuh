/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product_wide.cuh - products of many inputs by the widest tensor cores there are, those of
 * sm_90a: weights are decoded where they are multiplied, and never written.
 *
 * A CTA has as many tiles of rows and inputs as its share of the work is; there are as many
 * CTAs as processors. Its last four warps feed: one lane asks for inputs, a step of 64 columns at
 * a time, and for codes and absmax, a group of four steps at a time; two warps decode double
 * quantized absmax. All others multiply, four together: a warp has 16 rows of weights as one
 * operand in registers, the other one, inputs, lies in shared memory as it has come. Gates tell
 * lanes what has come and feeders what is free.
 *
 * A weight is its code's value times its absmax, rounded to the inputs' dtype: what
 * dequantization gives. A warp makes the 16 products of its rows' blocks, once for a group, and
 * keeps them as 16 low bytes and 16 high ones: a code's two bytes are then picked by byte
 * permutations, four codes at a time, without conflicts.
 *
 * Where tiles cannot be dealt evenly the first ones are split between CTAs by groups of
 * columns: who begins in the middle of a tile does that first, leaves its sums in memory and
 * raises a flag, and who began the tile adds them up in the order of columns. A CTA waits for
 * those of lower numbers alone, which begin earlier and wait for nobody before that: none is
 * waited for that cannot go on.
 *
 * Measured on an H200, 8192 x 28672, against cuBLASLt with weights of bf16: 0.79 of its time for
 * 64 inputs, 1.14 for 128, 1.08 for 256, 1.12 for 512 and 1,024.
 *
 *   traffic   per weight 0.5 B and 4 B a block (double quantized: 1 B) for each tile of inputs;
 *             inputs for each tile of rows, mostly from the cache
 *   launch    a CTA a processor, at most one for each tile or group of columns, of 128 lanes and
 *             128 for each four warps that multiply, with berthi_wide_room_bytes()
 *   bits      the same each time on GPUs with as many processors: where tiles are split decides
 *   bounds    writes exactly count x rows outputs, and of CTAs that begin within a tile parts and
 *             flags; copies of tiles read nothing beyond the matrices
 */
#ifndef BERTH_KERNELS_PRODUCT_WIDE_CUH
#define BERTH_KERNELS_PRODUCT_WIDE_CUH

#include "kernels/core.h"
#include "kernels/kernel_arguments.h"
#include "kernels/simt_wide.h"

typedef struct wide_variant {
    int32_t dtype; /* of inputs, bias and outputs: BERTH_BF16, _F16 */
    berthi_wide_shape shape;
} wide_variant;

#define WIDE_FOUR_WARPS 4u
#define WIDE_STEPS (WIDE_GROUP / WIDE_STEP) /* and blocks, of a group */
#define WIDE_NONE 0xFFFFFFFFu

/* ------------------------------------------------------------------------------- room */

/* Places, by stage. */
typedef struct wide_room {
    uint32_t begin; /* inputs' */
    uint32_t gates;
} wide_room;

SIMT_INLINE wide_room
wide_find_room(wide_variant v, const uint8_t *memory)
{
    const uint32_t begin = (simt_place(memory) + 1023) / 1024 * 1024;
    const wide_room room = { begin, begin + berthi_wide_room_of(v.shape).gates };

    return room;
}

SIMT_INLINE uint32_t
wide_inputs_at(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->begin + stage * (v.shape.inputs * WIDE_LINE);
}

SIMT_INLINE uint32_t
wide_rows(wide_variant v)
{
    return v.shape.fours * WIDE_ROWS;
}

SIMT_INLINE uint32_t
wide_codes_at(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->begin + berthi_wide_room_of(v.shape).codes + stage * (wide_rows(v) * WIDE_LINE);
}

SIMT_INLINE uint32_t
wide_absmax_at(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->begin + berthi_wide_room_of(v.shape).absmax + stage * (wide_rows(v) * 16);
}

/* Gates: inputs that have come, and whose stage is free; codes, the same; the end. */
SIMT_INLINE uint32_t
wide_inputs_came(const wide_room *r, uint32_t stage)
{
    return r->gates + 8 * stage;
}

SIMT_INLINE uint32_t
wide_inputs_free(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->gates + 8 * (v.shape.input_stages + stage);
}

SIMT_INLINE uint32_t
wide_codes_came(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->gates + 8 * (2 * v.shape.input_stages + stage);
}

SIMT_INLINE uint32_t
wide_codes_free(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->gates + 8 * (2 * v.shape.input_stages + v.shape.code_stages + stage);
}

SIMT_INLINE uint32_t
wide_end_gate(wide_variant v, const wide_room *r)
{
    return r->gates + 8 * (2 * v.shape.input_stages + 2 * v.shape.code_stages);
}

#define WIDE_DECODING_WARPS 2u /* of absmax */

SIMT_INLINE void
wide_begin_gates(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    const uint32_t warps = v.shape.fours * WIDE_FOUR_WARPS;

    for (uint32_t i = 0; i < v.shape.input_stages; i++) {
        simt_gate_begin(wide_inputs_came(r, i), 1);
        simt_gate_begin(wide_inputs_free(v, r, i), warps);
    }
    for (uint32_t i = 0; i < v.shape.code_stages; i++) {
        simt_gate_begin(wide_codes_came(v, r, i),
                        a->absmax_codes != NULL ? 1 + WIDE_DECODING_WARPS : 1);
        simt_gate_begin(wide_codes_free(v, r, i), warps);
    }
    simt_gate_begin(wide_end_gate(v, r), warps);
    simt_gates_begun();
}

/* Of a ring of stages: which is next, and for which turn of its gates. */
typedef struct wide_stage {
    uint32_t number;
    uint32_t turn;
} wide_stage;

SIMT_INLINE void
wide_go_on(wide_stage *stage, uint32_t count)
{
    if (++stage->number == count) {
        stage->number = 0;
        stage->turn ^= 1;
    }
}

/* ------------------------------------------------------------------------------- work */

/* A CTA's share: groups of split tiles, one after the other, then whole tiles. */
typedef struct wide_walk {
    uint32_t next; /* of split tiles' groups */
    uint32_t end;
    uint32_t tile; /* whole */
} wide_walk;

typedef struct wide_part {
    uint32_t tile;
    uint32_t begin; /* groups of its columns */
    uint32_t end;
} wide_part;

/* Numbers of shares: descending, so that who is waited for has begun. */
SIMT_INLINE uint32_t
wide_share(void)
{
    return (uint32_t)simt_ctas() - 1 - (uint32_t)simt_cta();
}

/* Where a share of the split tiles begins. */
SIMT_INLINE uint32_t
wide_share_begin(const berthi_wide_kernel *a, uint32_t share)
{
    return a->split_tiles * a->groups * share / (uint32_t)simt_ctas();
}

SIMT_INLINE wide_walk
wide_begin_walk(const berthi_wide_kernel *a)
{
    const uint32_t share = wide_share();
    const wide_walk walk = { wide_share_begin(a, share), wide_share_begin(a, share + 1),
                             a->split_tiles + share };

    return walk;
}

SIMT_INLINE bool
wide_find_part(const berthi_wide_kernel *a, wide_walk *walk, wide_part *part)
{
    if (walk->next < walk->end) {
        const uint32_t left = walk->end - walk->next;

        part->tile = walk->next / a->groups;
        part->begin = walk->next - part->tile * a->groups;
        part->end = left < a->groups - part->begin ? part->begin + left : a->groups;
        walk->next += part->end - part->begin;
        return true;
    }
    part->tile = walk->tile;
    part->begin = 0;
    part->end = a->groups;
    walk->tile += (uint32_t)simt_ctas();
    return part->tile < a->tiles;
}

SIMT_INLINE uint32_t
wide_first_row(const berthi_wide_kernel *a, wide_variant v, uint32_t tile)
{
    return tile / a->input_tiles * wide_rows(v);
}

SIMT_INLINE uint32_t
wide_first_input(const berthi_wide_kernel *a, wide_variant v, uint32_t tile)
{
    return tile % a->input_tiles * v.shape.inputs;
}

/* ---------------------------------------------------------------------------- feeding */

/* Groups of the share, one after the other, and the stages that they go to. */
typedef struct wide_feed {
    wide_walk walk;
    wide_part part;
    bool has_more;
    uint32_t group;
    wide_stage stage;
} wide_feed;

SIMT_INLINE wide_feed
wide_begin_feed(const berthi_wide_kernel *a)
{
    wide_feed feed;

    feed.walk = wide_begin_walk(a);
    feed.has_more = wide_find_part(a, &feed.walk, &feed.part);
    feed.group = feed.part.begin;
    feed.stage.number = 0;
    feed.stage.turn = 1; /* free from the beginning */
    return feed;
}

SIMT_INLINE void
wide_feed_on(const berthi_wide_kernel *a, wide_variant v, wide_feed *feed)
{
    wide_go_on(&feed->stage, v.shape.code_stages);
    if (++feed->group < feed->part.end)
        return;
    feed->has_more = wide_find_part(a, &feed->walk, &feed->part);
    feed->group = feed->part.begin;
}

SIMT_INLINE void
wide_ask_codes(const berthi_wide_kernel *a, wide_variant v, const wide_room *r, wide_feed *feed)
{
    const uint32_t stage = feed->stage.number;
    const uint32_t row = wide_first_row(a, v, feed->part.tile);
    const uint32_t gate = wide_codes_came(v, r, stage);
    const bool is_double = a->absmax_codes != NULL;

    if (!feed->has_more)
        return;
    simt_gate_wait(wide_codes_free(v, r, stage), feed->stage.turn);
    simt_gate_expect(gate, wide_rows(v) * (WIDE_LINE + (is_double ? 0 : 16)));
    simt_copy_tile(wide_codes_at(v, r, stage), &a->codes, gate, feed->group * WIDE_LINE, row);
    if (!is_double)
        simt_copy_tile(wide_absmax_at(v, r, stage), &a->absmax, gate, feed->group * 16, row);
    wide_feed_on(a, v, feed);
}

/* Groups of codes that are asked for ahead of the inputs that they meet. */
SIMT_INLINE uint32_t
wide_groups_ahead(wide_variant v)
{
    return v.shape.code_stages - (v.shape.input_stages + 3) / 4 - 1;
}

/* One lane asks for everything. */
SIMT_INLINE void
wide_ask(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    wide_feed codes = wide_begin_feed(a);
    wide_walk walk = wide_begin_walk(a);
    wide_stage stage = { 0, 1 };
    wide_part part;

    SIMT_NO_UNROLL
    for (uint32_t i = 0; i < wide_groups_ahead(v); i++)
        wide_ask_codes(a, v, r, &codes);
    while (wide_find_part(a, &walk, &part))
        SIMT_NO_UNROLL
        for (uint32_t step = part.begin * WIDE_STEPS; step < part.end * WIDE_STEPS; step++) {
            const uint32_t gate = wide_inputs_came(r, stage.number);

            if (step % WIDE_STEPS == 0)
                wide_ask_codes(a, v, r, &codes);
            simt_gate_wait(wide_inputs_free(v, r, stage.number), stage.turn);
            simt_gate_expect(gate, v.shape.inputs * WIDE_LINE);
            simt_copy_tile(wide_inputs_at(v, r, stage.number), &a->inputs, gate,
                           step * WIDE_LINE, wide_first_input(a, v, part.tile));
            wide_go_on(&stage, v.shape.input_stages);
        }
}

/* ---- double quantized absmax: a lane has every 64th row ---- */

#define WIDE_DECODERS (WIDE_DECODING_WARPS * SIMT_WARP)
#define WIDE_MOST_DECODED (WIDE_MOST_ROWS / WIDE_DECODERS) /* rows of a lane */

typedef struct wide_raw {
    uint32_t codes[WIDE_MOST_DECODED]; /* of a group's four blocks */
    float second[WIDE_MOST_DECODED];   /* which all have the same */
} wide_raw;

/* Rows behind the last one are that one again. */
SIMT_INLINE void
wide_read_absmax(const berthi_wide_kernel *a, wide_variant v, const wide_feed *feed,
                 uint32_t lane, wide_raw *raw)
{
    const uint32_t first = wide_first_row(a, v, feed->part.tile) + lane;
    const uint32_t last = (uint32_t)a->rows - 1;

    if (!feed->has_more)
        return;
    SIMT_UNROLL
    for (uint32_t i = 0; i < wide_rows(v) / WIDE_DECODERS; i++) {
        const uint32_t row = first + i * WIDE_DECODERS < last ? first + i * WIDE_DECODERS : last;
        const uint32_t quad = row * a->groups + feed->group;

        raw->codes[i] = simt_read4(a->absmax_codes + (uint64_t)quad * WIDE_STEPS);
        raw->second[i] = a->absmax2[quad / (BERTHI_DOUBLE_BLOCK / WIDE_STEPS)];
    }
}

SIMT_INLINE void
wide_recover_absmax(const berthi_wide_kernel *a, wide_variant v, uint32_t map, uint32_t to,
                    const wide_raw *raw)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < wide_rows(v) / WIDE_DECODERS; i++) {
        simt_four four;

        SIMT_UNROLL
        for (uint32_t k = 0; k < WIDE_STEPS; k++) {
            const uint32_t value = simt_place_load4(map + simt_byte(raw->codes[i], k) * 4);

            four.word[k] = berthi_core_bits(
                berthi_core_absmax_recover(&value, 0, raw->second[i], a->offset));
        }
        simt_place_store16(to + i * WIDE_DECODERS * 16, four);
    }
}

/* Those of the next group are on their way while these are waited for. */
SIMT_INLINE void
wide_decode_absmax(const berthi_wide_kernel *a, wide_variant v, const wide_room *r, uint32_t lane)
{
    const uint32_t map = r->begin + berthi_wide_room_of(v.shape).map;
    wide_feed feed = wide_begin_feed(a);
    wide_raw raw;

    wide_read_absmax(a, v, &feed, lane, &raw);
    SIMT_NO_UNROLL
    while (feed.has_more) {
        const uint32_t stage = feed.stage.number;
        const wide_raw its = raw;

        simt_gate_wait(wide_codes_free(v, r, stage), feed.stage.turn);
        wide_feed_on(a, v, &feed);
        wide_read_absmax(a, v, &feed, lane, &raw);
        wide_recover_absmax(a, v, map, wide_absmax_at(v, r, stage) + lane * 16, &its);
        simt_warp_barrier();
        if (lane % SIMT_WARP == 0)
            simt_gate_arrive(wide_codes_came(v, r, stage));
    }
}

/* `warp` is its number among the feeders. */
SIMT_INLINE void
wide_feed_all(const berthi_wide_kernel *a, wide_variant v, const wide_room *r, uint32_t warp)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;

    if (warp == 0 && lane == 0)
        wide_ask(a, v, r);
    if (warp == 1 && lane == 0)
        simt_gate_watch(wide_end_gate(v, r));
    if (warp >= 2 && a->absmax_codes != NULL)
        wide_decode_absmax(a, v, r, (warp - 2) * SIMT_WARP + lane);
    simt_warp_barrier();
}

/* --------------------------------------------------------------------------- decoding */

/* A lane of those that multiply. */
typedef struct wide_lane {
    uint32_t four;  /* its warps' number */
    uint32_t warp;  /* among the four */
    uint32_t lane;
    uint32_t row;   /* of the tile: its first one; the other is 8 further on */
    uint32_t table; /* places: the warp's products, */
    uint32_t stage; /* and the four's outputs */
    uint32_t picks; /* which bytes of codes are the lane's, of two words */
} wide_lane;

SIMT_INLINE wide_lane
wide_find_lane(wide_variant v, const wide_room *r, uint32_t number)
{
    const berthi_wide_room at = berthi_wide_room_of(v.shape);
    wide_lane l;

    l.four = number / WIDE_FOUR_WARPS;
    l.warp = number % WIDE_FOUR_WARPS;
    l.lane = simt_thread() % SIMT_WARP;
    l.row = number * 16 + l.lane / 4;
    l.table = r->begin + at.tables + number * WIDE_TABLE_BYTES;
    l.stage = r->begin + at.outputs + l.four * (WIDE_OUTPUTS * WIDE_OUTPUT_LINE);
    l.picks = l.lane % 4 | (4 + l.lane % 4) << 4;
    return l;
}

SIMT_INLINE uint32_t
wide_pair(wide_variant v, float low, float high)
{
    return v.dtype == BERTH_BF16 ? berthi_core_to_bf16_pair(low, high)
                                 : berthi_core_to_fp16_pair(low, high);
}

/* The 16 values times an absmax: low bytes and high bytes, 16 of each. */
SIMT_INLINE void
wide_make_products(const berthi_wide_kernel *a, wide_variant v, float absmax, simt_four *low,
                   simt_four *high)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t pairs[2];

        SIMT_UNROLL
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t code = 4 * i + 2 * k;

            pairs[k] = wide_pair(
                v, berthi_core_multiply_flush(berthi_core_float(a->values[code]), absmax),
                berthi_core_multiply_flush(berthi_core_float(a->values[code + 1]), absmax));
        }
        low->word[i] = simt_pick_bytes(pairs[0], pairs[1], 0x6420);
        high->word[i] = simt_pick_bytes(pairs[0], pairs[1], 0x7531);
    }
}

/* Of the warp's 16 rows and the four blocks of a group: two a lane. */
SIMT_INLINE void
wide_fill_table(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t absmax)
{
    simt_warp_barrier();
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t number = l->lane + SIMT_WARP * i;
        const uint32_t row = l->four * WIDE_ROWS + l->warp * 16 + number % 16;
        const uint32_t bits = simt_place_load4(absmax + row * 16 + number / 16 * 4);
        simt_four low;
        simt_four high;

        wide_make_products(a, v, berthi_core_float(bits), &low, &high);
        simt_place_store16(l->table + number * 16, low);
        simt_place_store16(l->table + WIDE_TABLE_BYTES / 2 + number * 16, high);
    }
    simt_warp_barrier();
}

/* Two bytes of codes: the numbers of the first, its first column in the low half; the second's. */
SIMT_INLINE void
wide_decode_bytes(uint32_t bytes, const simt_four *low, const simt_four *high, uint32_t *first,
                  uint32_t *second)
{
    const uint32_t numbers = bytes & 0x7777u;
    /* Which of the four codes are 8 or more, as a mask of bytes: the highest bits. */
    const uint32_t upper = simt_pick_bytes(bytes, bytes << 4, 0x9D8C);
    const uint32_t l = (simt_pick_bytes(low->word[2], low->word[3], numbers) & upper)
                       | (simt_pick_bytes(low->word[0], low->word[1], numbers) & ~upper);
    const uint32_t h = (simt_pick_bytes(high->word[2], high->word[3], numbers) & upper)
                       | (simt_pick_bytes(high->word[0], high->word[1], numbers) & ~upper);

    *first = simt_pick_bytes(l, h, 0x4051);
    *second = simt_pick_bytes(l, h, 0x6273);
}

/* Block `step` of a group, of the lane's two rows: fragments of four products. */
SIMT_INLINE void
wide_decode_step(const wide_lane *l, uint32_t codes, uint32_t step, uint32_t *rows)
{
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t line = codes + (l->row + 8 * i) * WIDE_LINE;
        const uint32_t row = l->lane / 4 + 8 * i;
        const simt_four low = simt_place_load16(l->table + (step * 16 + row) * 16);
        const simt_four high
            = simt_place_load16(l->table + WIDE_TABLE_BYTES / 2 + (step * 16 + row) * 16);
        simt_four words[2];

        SIMT_UNROLL
        for (uint32_t k = 0; k < 2; k++)
            words[k] = simt_place_load16(line + ((2 * step + k) ^ l->lane / 4) * 16);
        SIMT_UNROLL
        for (uint32_t q = 0; q < 4; q++)
            wide_decode_bytes(simt_pick_bytes(words[q / 2].word[q % 2 * 2],
                                              words[q / 2].word[q % 2 * 2 + 1], l->picks),
                              &low, &high, &rows[4 * q + i], &rows[4 * q + 2 + i]);
    }
}

/* ------------------------------------------------------------------------ multiplying */

/* What a lane is at: stages, and the one whose inputs are still read. */
typedef struct wide_progress {
    wide_stage inputs;
    wide_stage codes;
    uint32_t under_way;
} wide_progress;

SIMT_INLINE void
wide_free_inputs(wide_variant v, const wide_room *r, const wide_lane *l, uint32_t stage)
{
    if (stage != WIDE_NONE && l->lane == 0)
        simt_gate_arrive(wide_inputs_free(v, r, stage));
}

/* `rows` were decoded; `others` may be under way. */
SIMT_INLINE void
wide_multiply_step(wide_variant v, const wide_room *r, const wide_lane *l, uint32_t *rows,
                   uint32_t *others, wide_progress *at, float *sums)
{
    const uint32_t stage = at->inputs.number;
    const uint32_t columns = wide_inputs_at(v, r, stage);

    simt_gate_wait(wide_inputs_came(r, stage), at->inputs.turn);
    simt_begin_multiplying();
    SIMT_UNROLL
    for (uint32_t q = 0; q < 4; q++)
        simt_multiply_wide(sums, rows + 4 * q, columns + 32 * q, v.shape.inputs,
                           v.dtype == BERTH_BF16);
    simt_end_multiplying();
    if (v.shape.ahead == 1) {
        simt_wait_multiplied(1);
        simt_keep_words(others);
        wide_free_inputs(v, r, l, at->under_way);
        at->under_way = stage;
    } else {
        simt_wait_multiplied(0);
        simt_keep_words(rows);
        wide_free_inputs(v, r, l, stage);
    }
    wide_go_on(&at->inputs, v.shape.input_stages);
}

SIMT_INLINE void
wide_add_group(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
               const wide_lane *l, uint32_t rows[2][SIMT_MULTIPLY_ROWS], wide_progress *at,
               float *sums)
{
    const uint32_t stage = at->codes.number;
    const uint32_t codes = wide_codes_at(v, r, stage);

    simt_gate_wait(wide_codes_came(v, r, stage), at->codes.turn);
    wide_fill_table(a, v, l, wide_absmax_at(v, r, stage));
    SIMT_UNROLL
    for (uint32_t step = 0; step < WIDE_STEPS; step++) {
        uint32_t *const its = rows[v.shape.ahead == 1 ? step % 2 : 0];

        wide_decode_step(l, codes, step, its);
        if (step == WIDE_STEPS - 1) {
            simt_warp_barrier();
            if (l->lane == 0)
                simt_gate_arrive(wide_codes_free(v, r, stage));
        }
        wide_multiply_step(v, r, l, its, rows[v.shape.ahead == 1 ? (step + 1) % 2 : 0], at, sums);
    }
    wide_go_on(&at->codes, v.shape.code_stages);
}

SIMT_INLINE void
wide_add_part(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
              const wide_lane *l, const wide_part *part, wide_progress *at, float *sums)
{
    uint32_t rows[2][SIMT_MULTIPLY_ROWS];

    at->under_way = WIDE_NONE;
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 2; i++)
        sums[i] = 0.0f;
    SIMT_UNROLL
    for (uint32_t i = 0; i < SIMT_MULTIPLY_ROWS && v.shape.ahead == 1; i++)
        rows[1][i] = 0;
    SIMT_NO_UNROLL
    for (uint32_t group = part->begin; group < part->end; group++)
        wide_add_group(a, v, r, l, rows, at, sums);
    simt_wait_multiplied(0);
    simt_keep_sums(sums, v.shape.inputs / 2);
    if (v.shape.ahead == 1) {
        simt_keep_words(rows[1]);
        wide_free_inputs(v, r, l, at->under_way);
    }
}

/* ----------------------------------------------------------------------- split tiles */

SIMT_INLINE uint32_t *
wide_flag(const berthi_wide_kernel *a, const wide_lane *l, uint32_t share)
{
    return a->flags + (share * WIDE_FLAGS + l->four);
}

/* A lane's four sums of 128 lanes lie side by side. */
SIMT_INLINE float *
wide_parts(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t share)
{
    return a->parts + (uint64_t)(share * v.shape.fours + l->four) * (WIDE_ROWS * v.shape.inputs)
           + (l->warp * SIMT_WARP + l->lane) * 4;
}

SIMT_INLINE void
wide_leave_sums(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l,
                const float *sums)
{
    float *const to = wide_parts(a, v, l, wide_share());

    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 8; i++) {
        simt_four four;

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            four.word[k] = berthi_core_bits(sums[4 * i + k]);
        simt_send16(to + i * (4 * SIMT_GROUP), four);
    }
    simt_group_barrier(l->four);
    if (l->warp == 0 && l->lane == 0)
        simt_raise_flag(wide_flag(a, l, wide_share()));
}

SIMT_INLINE void
wide_add_sums(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t share,
              float *sums)
{
    const float *const from = wide_parts(a, v, l, share);

    if (l->warp == 0 && l->lane == 0)
        simt_await_flag(wide_flag(a, l, share));
    simt_group_barrier(l->four);
    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs / 8; i++) {
        const simt_four four = simt_receive16(from + i * (4 * SIMT_GROUP));

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            sums[4 * i + k] = berthi_core_add(sums[4 * i + k], berthi_core_float(four.word[k]));
    }
}

/* Of those that have the tile's other columns, in their order. */
SIMT_INLINE void
wide_add_others(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l,
                const wide_part *part, float *sums)
{
    const uint32_t end = (part->tile + 1) * a->groups;

    SIMT_NO_UNROLL
    for (uint32_t share = wide_share() + 1;
         share < (uint32_t)simt_ctas() && wide_share_begin(a, share) < end; share++)
        wide_add_sums(a, v, l, share, sums);
}

/* ---------------------------------------------------------------------------- storing */

SIMT_INLINE float
wide_bias(const berthi_wide_kernel *a, wide_variant v, uint32_t row)
{
    return a->bias != NULL && row < a->rows ? berthi_core_load(a->bias, v.dtype, row) : 0.0f;
}

/* Sums of 32 inputs to shared memory, where an input's 64 outputs are neighbours. */
SIMT_INLINE void
wide_turn_outputs(wide_variant v, const wide_lane *l, const float *sums, const float bias[2])
{
    const uint32_t matrix = l->lane / 8;

    SIMT_UNROLL
    for (uint32_t i = 0; i < WIDE_OUTPUTS / 8; i += 2) {
        const uint32_t line = 8 * (i + matrix / 2) + l->lane % 8;
        uint32_t words[4];

        SIMT_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            const float *const its = sums + 4 * i + 2 * k;

            words[k] = wide_pair(v, berthi_core_add(its[0], bias[k % 2]),
                                 berthi_core_add(its[1], bias[k % 2]));
        }
        simt_store_turned(l->stage + line * WIDE_OUTPUT_LINE
                              + (16 * l->warp + 8 * (matrix % 2)) * 2,
                          words);
    }
}

/* Eight outputs of an input, or those of them that there are. */
SIMT_INLINE void
wide_store_eight(const berthi_wide_kernel *a, uint32_t input, uint32_t row, simt_four eight)
{
    uint16_t *const to = (uint16_t *)a->outputs + (input * a->rows + row);

    if (a->is_aligned && row < a->rows) {
        simt_store16(to, eight);
        return;
    }
    SIMT_UNROLL
    for (uint32_t k = 0; k < 8; k++)
        if (row + k < a->rows)
            to[k] = (uint16_t)(eight.word[k / 2] >> 16 * (k % 2));
}

/* Those of 32 inputs, from `input` on, by all of the four warps. */
SIMT_INLINE void
wide_store_outputs(const berthi_wide_kernel *a, const wide_lane *l, uint32_t input, uint32_t row)
{
    const uint32_t lane = l->warp * SIMT_WARP + l->lane;

    SIMT_UNROLL
    for (uint32_t i = 0; i < WIDE_OUTPUTS; i += SIMT_GROUP / 8) {
        const uint32_t line = i + lane / 8;
        const simt_four eight
            = simt_place_load16(l->stage + line * WIDE_OUTPUT_LINE + lane % 8 * 16);

        if (input + line < a->count)
            wide_store_eight(a, input + line, row + lane % 8 * 8, eight);
    }
}

SIMT_INLINE void
wide_store_tile(const berthi_wide_kernel *a, wide_variant v, const wide_lane *l, uint32_t tile,
                const float *sums)
{
    const uint32_t row = wide_first_row(a, v, tile) + l->four * WIDE_ROWS;
    const uint32_t own = row + l->warp * 16 + l->lane / 4;
    const uint32_t input = wide_first_input(a, v, tile);
    const float bias[2] = { wide_bias(a, v, own), wide_bias(a, v, own + 8) };

    SIMT_UNROLL
    for (uint32_t i = 0; i < v.shape.inputs; i += WIDE_OUTPUTS)
        if (input + i < a->count) {
            wide_turn_outputs(v, l, sums + i / 2, bias);
            simt_group_barrier(l->four);
            wide_store_outputs(a, l, input + i, row);
            simt_group_barrier(l->four);
        }
}

/* ---------------------------------------------------------------------------- kernels */

SIMT_INLINE void
wide_multiply_all(const berthi_wide_kernel *a, wide_variant v, const wide_room *r, uint32_t warp)
{
    const wide_lane l = wide_find_lane(v, r, warp);
    wide_progress at = { { 0, 0 }, { 0, 0 }, WIDE_NONE };
    wide_walk walk = wide_begin_walk(a);
    float sums[WIDE_MOST_INPUTS / 2];
    wide_part part;

    while (wide_find_part(a, &walk, &part)) {
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

    if (simt_thread() == 0)
        wide_begin_gates(a, v, &r);
    wide_fill_map(a, v, &r);
    simt_barrier();
    if (warp >= multipliers) {
        simt_give_registers(40);
        wide_feed_all(a, v, &r, warp - multipliers);
    } else {
        if (v.shape.fours == 4)
            simt_take_registers(104);
        else
            simt_take_registers(232);
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
    SIMT_KERNEL_OF(name, WIDE_LANES(fours), WIDE_LANES(fours), berthi_wide_kernel,    \
                   name##_body(a))

#define WIDE_LANES(fours) ((fours) * WIDE_FOUR_LANES + WIDE_FEEDERS)
#define WIDE_KERNELS(inputs, fours)                                                   \
    WIDE_KERNEL(berthi_wide##inputs##_bf16, BERTH_BF16, inputs, fours)                \
    WIDE_KERNEL(berthi_wide##inputs##_f16, BERTH_F16, inputs, fours)

WIDE_KERNELS(64, 4)
WIDE_KERNELS(128, 2)
WIDE_KERNELS(256, 2)

#endif
