/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide_feed.cuh - how codes, absmax and inputs come to the lanes that multiply: of
 * product_wide.cuh, which says what for. Where they lie, the gates that say what has come and what
 * is free, what a CTA's share of the work is, and the four warps that feed.
 */
#ifndef BERTH_KERNELS_WIDE_FEED_CUH
#define BERTH_KERNELS_WIDE_FEED_CUH

#include "kernels/core.h"
#include "kernels/product_arguments.h"
#include "kernels/simt_wide.h"

typedef struct wide_variant {
    int32_t dtype; /* of inputs, bias and outputs: BERTH_BF16, _F16 */
    berthi_wide_shape shape;
} wide_variant;

#define WIDE_FOUR_WARPS 4u
#define WIDE_STEPS (WIDE_GROUP / WIDE_STEP) /* and blocks, of a group */
#define WIDE_LANES(fours) ((fours) * WIDE_FOUR_LANES + WIDE_FEEDERS)
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

/*
 * Gates: inputs that have come, and whose stage is free; codes, the same; absmax that lanes have
 * decoded; the end. By pairs inputs share the gates of codes.
 */
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
wide_decoded(wide_variant v, const wide_room *r, uint32_t stage)
{
    return r->gates + 8 * (2 * v.shape.input_stages + 2 * v.shape.code_stages + stage);
}

SIMT_INLINE uint32_t
wide_end_gate(wide_variant v, const wide_room *r)
{
    return r->gates + 8 * (2 * v.shape.input_stages + 3 * v.shape.code_stages);
}

#define WIDE_DECODING_WARPS 2u /* of absmax */
#define WIDE_DECODERS (WIDE_DECODING_WARPS * SIMT_WARP)

SIMT_INLINE void
wide_begin_gates(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    const uint32_t warps = v.shape.fours * WIDE_FOUR_WARPS;

    for (uint32_t i = 0; i < v.shape.input_stages && !v.shape.by_pairs; i++) {
        simt_gate_begin(wide_inputs_came(r, i), 1);
        simt_gate_begin(wide_inputs_free(v, r, i), warps);
    }
    for (uint32_t i = 0; i < v.shape.code_stages; i++) {
        simt_gate_begin(wide_codes_came(v, r, i), v.shape.by_pairs ? 2 : 1);
        simt_gate_begin(wide_codes_free(v, r, i), warps);
        if (a->absmax_codes != NULL)
            simt_gate_begin(wide_decoded(v, r, i), WIDE_DECODERS);
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

/* What a lane is at: stages, and the one whose inputs are still read. */
typedef struct wide_progress {
    wide_stage inputs;
    wide_stage codes;
    uint32_t under_way;
} wide_progress;

/* The group whose turn it is has come. */
SIMT_INLINE void
wide_await_group(const berthi_wide_kernel *a, wide_variant v, const wide_room *r,
                 const wide_stage *codes)
{
    simt_gate_wait(wide_codes_came(v, r, codes->number), codes->turn);
    if (a->absmax_codes != NULL)
        simt_gate_wait(wide_decoded(v, r, codes->number), codes->turn);
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
    uint32_t row;   /* the first of the part's tile, as the next one: divisions, made once */
    uint32_t input;
    uint32_t group;
    wide_stage stage;
} wide_feed;

SIMT_INLINE void
wide_feed_part(const berthi_wide_kernel *a, wide_variant v, wide_feed *feed)
{
    feed->has_more = wide_find_part(a, &feed->walk, &feed->part);
    feed->group = feed->part.begin;
    feed->row = wide_first_row(a, v, feed->part.tile);
    feed->input = wide_first_input(a, v, feed->part.tile);
}

SIMT_INLINE wide_feed
wide_begin_feed(const berthi_wide_kernel *a, wide_variant v)
{
    wide_feed feed;

    feed.walk = wide_begin_walk(a);
    feed.stage.number = 0;
    feed.stage.turn = 1; /* free from the beginning */
    wide_feed_part(a, v, &feed);
    return feed;
}

SIMT_INLINE void
wide_feed_on(const berthi_wide_kernel *a, wide_variant v, wide_feed *feed)
{
    wide_go_on(&feed->stage, v.shape.code_stages);
    if (++feed->group == feed->part.end)
        wide_feed_part(a, v, feed);
}

/*
 * One lane asks for codes and plain absmax, a group of columns at a time, those of the first stages
 * ahead of earlier work. It is the one that sees that anybody hangs: sooner or later nothing
 * becomes free, or the end does not come. How long earlier work takes is nothing of it.
 */
SIMT_INLINE void
wide_ask_codes(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    const bool is_double = a->absmax_codes != NULL;
    wide_feed feed = wide_begin_feed(a, v);

    SIMT_NO_UNROLL
    for (uint32_t asked = 0; feed.has_more; asked++) {
        const uint32_t stage = feed.stage.number;
        const uint32_t gate = wide_codes_came(v, r, stage);

        if (asked == v.shape.code_stages)
            simt_wait_for_earlier();
        simt_gate_watch(wide_codes_free(v, r, stage), feed.stage.turn);
        simt_gate_expect(gate, wide_rows(v) * (WIDE_LINE + (is_double ? 0 : 16)));
        simt_copy_tile(wide_codes_at(v, r, stage), &a->codes, gate, feed.group * WIDE_LINE,
                       feed.row);
        if (!is_double)
            simt_copy_tile(wide_absmax_at(v, r, stage), &a->absmax, gate, feed.group * 16,
                           feed.row);
        wide_feed_on(a, v, &feed);
    }
    simt_wait_for_earlier();
    simt_gate_watch(wide_end_gate(v, r), 0);
}

/* And another one for inputs: by pairs a group at a time, which opens the gate of its codes. */
SIMT_INLINE void
wide_ask_input_groups(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    wide_feed feed = wide_begin_feed(a, v);

    SIMT_NO_UNROLL
    while (feed.has_more) {
        const uint32_t stage = feed.stage.number;
        const uint32_t gate = wide_codes_came(v, r, stage);

        simt_gate_wait(wide_codes_free(v, r, stage), feed.stage.turn);
        simt_gate_expect(gate, WIDE_STEPS * v.shape.inputs * WIDE_LINE);
        SIMT_UNROLL
        for (uint32_t k = 0; k < WIDE_STEPS; k++)
            simt_copy_tile(wide_inputs_at(v, r, stage * WIDE_STEPS + k), &a->inputs, gate,
                           (feed.group * WIDE_STEPS + k) * WIDE_LINE, feed.input);
        wide_feed_on(a, v, &feed);
    }
}

/* Else a step at a time. */
SIMT_INLINE void
wide_ask_inputs(const berthi_wide_kernel *a, wide_variant v, const wide_room *r)
{
    wide_walk walk = wide_begin_walk(a);
    wide_stage stage = { 0, 1 };
    wide_part part;

    while (wide_find_part(a, &walk, &part)) {
        const uint32_t input = wide_first_input(a, v, part.tile);

        SIMT_NO_UNROLL
        for (uint32_t step = part.begin * WIDE_STEPS; step < part.end * WIDE_STEPS; step++) {
            const uint32_t gate = wide_inputs_came(r, stage.number);

            simt_gate_wait(wide_inputs_free(v, r, stage.number), stage.turn);
            simt_gate_expect(gate, v.shape.inputs * WIDE_LINE);
            simt_copy_tile(wide_inputs_at(v, r, stage.number), &a->inputs, gate,
                           step * WIDE_LINE, input);
            wide_go_on(&stage, v.shape.input_stages);
        }
    }
}

/* ---- double quantized absmax: a lane has every 64th row ---- */

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
    const uint32_t first = feed->row + lane;
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
    wide_feed feed = wide_begin_feed(a, v);
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
        simt_gate_arrive(wide_decoded(v, r, stage));
    }
}

/* `warp` is its number among the feeders; codes may be settled, inputs never are. */
SIMT_INLINE void
wide_feed_all(const berthi_wide_kernel *a, wide_variant v, const wide_room *r, uint32_t warp)
{
    const uint32_t lane = simt_thread() % SIMT_WARP;

    if (warp == 0) {
        simt_let_later_come();
        if (lane == 0)
            wide_ask_codes(a, v, r);
    } else {
        simt_wait_for_earlier();
    }
    if (warp == 1 && lane == 0 && v.shape.by_pairs)
        wide_ask_input_groups(a, v, r);
    else if (warp == 1 && lane == 0)
        wide_ask_inputs(a, v, r);
    if (warp >= 2 && a->absmax_codes != NULL)
        wide_decode_absmax(a, v, r, (warp - 2) * SIMT_WARP + lane);
    simt_warp_barrier();
}

#endif
