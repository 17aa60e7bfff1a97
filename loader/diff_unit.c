/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_unit.c - the work of one unit, on whichever thread has it.
 *
 *   park                 one side, until the other comes
 *   compare              bytes ─▶ values, tile by tile ─▶ sums
 */
#include <string.h>

#include "loader/diff_batch.h"
#include "quant/format.h"
#include "quant/quantize.h"

#define ALIGNMENT 64u

/* -------------------------------------------------------------------- scratch */

static uint64_t
scratch_floats(const berthi_diff_needs *needs)
{
    return 2 * berthi_round_up(needs->tile, ALIGNMENT)
           + berthi_round_up(needs->whole[0], ALIGNMENT)
           + berthi_round_up(needs->whole[1], ALIGNMENT)
           + berthi_round_up(needs->strip, ALIGNMENT)
           + berthi_round_up(needs->row, ALIGNMENT);
}

uint64_t
berthi_diff_scratch_bytes(const berthi_diff_needs *needs)
{
    return berthi_round_up(sizeof(berthi_diff_scratch), ALIGNMENT)
           + scratch_floats(needs) * sizeof(float) + berthi_round_up(needs->raw, ALIGNMENT);
}

static float *
take_floats(float **next, uint64_t count)
{
    float *const floats = *next;

    *next += berthi_round_up(count, ALIGNMENT);
    return floats;
}

/* One block holds all of it. */
static berthi_diff_scratch *
create_scratch(berthi_diff *diff)
{
    const berthi_diff_needs *const needs = &diff->needs;
    uint8_t *const memory = berthi_memory_aligned(
        diff->context, BERTHI_PURPOSE_SCRATCH, berthi_diff_scratch_bytes(needs), ALIGNMENT);
    berthi_diff_scratch *const scratch = (berthi_diff_scratch *)(void *)memory;
    float *next;

    if (memory == NULL)
        return NULL;
    next = (float *)(void *)(memory + berthi_round_up(sizeof *scratch, ALIGNMENT));
    for (uint32_t side = 0; side < 2; side++) {
        scratch->tiles[side] = take_floats(&next, needs->tile);
        scratch->whole[side] = take_floats(&next, needs->whole[side]);
    }
    scratch->strip = take_floats(&next, needs->strip);
    scratch->row = take_floats(&next, needs->row);
    scratch->raw = (uint8_t *)next;
    return scratch;
}

/* One that is free, or a new one: never more than there are workers. */
static berthi_diff_scratch *
take_scratch(berthi_diff_batch *batch)
{
    berthi_diff_scratch *scratch;

    pthread_mutex_lock(&batch->lock);
    scratch = batch->scratch;
    if (scratch != NULL)
        batch->scratch = scratch->next;
    pthread_mutex_unlock(&batch->lock);
    return scratch != NULL ? scratch : create_scratch(batch->diff);
}

static void
give_scratch(berthi_diff_batch *batch, berthi_diff_scratch *scratch)
{
    pthread_mutex_lock(&batch->lock);
    scratch->next = batch->scratch;
    batch->scratch = scratch;
    pthread_mutex_unlock(&batch->lock);
}

/* -------------------------------------------------------------------- parking */

static uint8_t *
take_parking(berthi_diff_batch *batch)
{
    berthi_diff *const diff = batch->diff;
    berthi_diff_parking *parking;

    pthread_mutex_lock(&batch->lock);
    parking = batch->parking;
    if (parking != NULL)
        batch->parking = parking->next;
    pthread_mutex_unlock(&batch->lock);
    if (parking == NULL)
        parking = berthi_memory_aligned(diff->context, BERTHI_PURPOSE_SCRATCH,
                                        diff->needs.parked, ALIGNMENT);
    return (uint8_t *)parking;
}

static void
give_parking(berthi_diff_batch *batch, uint8_t *memory)
{
    berthi_diff_parking *const parking = (berthi_diff_parking *)(void *)memory;

    pthread_mutex_lock(&batch->lock);
    parking->next = batch->parking;
    batch->parking = parking;
    pthread_mutex_unlock(&batch->lock);
}

void
berthi_diff_free_scratch(berthi_diff_batch *batch)
{
    berthi_diff *const diff = batch->diff;

    for (uint64_t i = 0; batch->units != NULL && i < batch->unit_count; i++)
        if (batch->units[i].parked != NULL)
            give_parking(batch, batch->units[i].parked);
    while (batch->parking != NULL) {
        berthi_diff_parking *const parking = batch->parking;

        batch->parking = parking->next;
        berthi_memory_free_aligned(diff->context, BERTHI_PURPOSE_SCRATCH, parking,
                                   diff->needs.parked, ALIGNMENT);
    }
    while (batch->scratch != NULL) {
        berthi_diff_scratch *const scratch = batch->scratch;

        batch->scratch = scratch->next;
        berthi_memory_free_aligned(diff->context, BERTHI_PURPOSE_SCRATCH, scratch,
                                   berthi_diff_scratch_bytes(&diff->needs), ALIGNMENT);
    }
}

/*
 * True when this side is the first of its unit: it has been parked, or that has
 * failed. False: the other side is parked. A copy under way is waited for; it
 * waits for nobody.
 */
static bool
park(berthi_diff_batch *batch, berthi_diff_unit *unit, const uint8_t *bytes, uint64_t size,
     berth_status *status, berth_error *error)
{
    *status = berthi_once_enter(&unit->once, &batch->lock, &batch->has_changed,
                                &batch->is_stopped, error);
    if (*status != BERTH_PENDING)
        return *status != BERTH_OK;
    *status = BERTH_OK;
    unit->parked = take_parking(batch);
    if (unit->parked == NULL) {
        *status = berthi_fail_memory(error, "comparing a weight");
        return true;
    }
    memcpy(unit->parked, bytes, size);
    berthi_once_leave(&unit->once, &batch->lock, &batch->has_changed);
    return true;
}

/* -------------------------------------------------------------------- values */

/* Bytes of a stored number; 0: there are two in a byte. */
static uint32_t
code_width(const berthi_diff_pair *pair)
{
    const berthi_diff_side *const side = &pair->sides[0];
    const int32_t encoding = side->record != NULL ? side->record->encoding
                                                  : BERTH_ENCODING_NATIVE;

    switch (encoding) {
    case BERTH_ENCODING_NATIVE:
    case BERTH_ENCODING_FOREIGN: /* nobody says what is in a word */
        return berthi_format_element_bytes(side->entry->dtype);
    case BERTH_ENCODING_INT8:
    case BERTH_ENCODING_FP8_BLOCK: return 1;
    default: return 0;
    }
}

/* Where the values of one side come from. */
typedef struct view {
    const berthi_decoder *decoder;
    const uint8_t *bytes;
    uint64_t origin;    /* byte of the tensor that lies first in `bytes` */
    const float *whole; /* decoded already, from element `first` on; or NULL */
    uint64_t first;
    float *tile;        /* scratch */
} view;

/* Values [first, first + count), in scratch, or where they lie. */
static const float *
values_of(const view *v, uint64_t first, uint64_t count)
{
    berthi_decoder_span span;
    const uint8_t *bytes;

    if (v->whole != NULL)
        return v->whole + (first - v->first);
    span = berthi_decoder_extent(v->decoder, first, count);
    bytes = v->bytes + (span.begin - v->origin);
    if (v->decoder->encoding == BERTH_ENCODING_NATIVE
        && v->decoder->stored_dtype == BERTH_F32
        && (uintptr_t)bytes % sizeof(float) == 0)
        return (const float *)(const void *)bytes;
    berthi_decoder_decode(v->decoder, first, count, bytes, BERTH_F32, v->tile);
    return v->tile + span.lead;
}

/* `is_equal`: the second side is the first one once more. */
static void
compare_values(berthi_diff_unit_sum *sum, const view views[2], uint64_t first,
               uint64_t count, bool is_equal)
{
    for (uint64_t at = 0; at < count; at += BERTHI_DIFF_TILE) {
        const uint64_t part = berthi_min_u64(count - at, BERTHI_DIFF_TILE);
        const float *const a = values_of(&views[0], first + at, part);
        const float *const b = is_equal ? a : values_of(&views[1], first + at, part);

        berthi_diff_sum_add(sum, a, b, part);
    }
}

/* A view of bytes that hold the unit's values from `first` on. */
static view
view_of(const berthi_diff_run *run, uint32_t side, uint64_t first, uint64_t count,
        const uint8_t *bytes, berthi_diff_scratch *scratch)
{
    const berthi_decoder *const decoder = &run->pair.sides[side].decoder;

    return (view){ .decoder = decoder,
                   .bytes = bytes,
                   .origin = berthi_decoder_extent(decoder, first, count).begin,
                   .first = first,
                   .tile = scratch->tiles[side] };
}

/* The same where values can only be had all at once. */
static view
view_whole(const berthi_diff_run *run, uint32_t side, const berthi_diff_unit *unit,
           const uint8_t *bytes, berthi_diff_scratch *scratch)
{
    view v = view_of(run, side, unit->first, unit->count, bytes, scratch);

    if (berthi_decoder_step(v.decoder) > 1) {
        berthi_decoder_decode(v.decoder, unit->first, unit->count, bytes, BERTH_F32,
                              scratch->whole[side]);
        v.whole = scratch->whole[side];
    }
    return v;
}

/* ---------------------------------------------------------------------- units */

/* The unit's own bytes: values that one side decodes before the first are no part of it. */
static const uint8_t *
own_bytes(const berthi_diff_pair *pair, const berthi_diff_unit *unit, uint32_t side,
          const uint8_t *bytes, uint64_t *size)
{
    const berthi_decoder_span span =
        berthi_diff_extent(pair, side, unit->first, unit->count);

    *size = span.bytes - span.lead / 2;
    return bytes + span.lead / 2;
}

/* The codes of both sides, where they are of one kind. */
static void
compare_codes(const berthi_diff_pair *pair, berthi_diff_unit *unit,
              const uint8_t *const bytes[2], berthi_diff_found *found)
{
    const uint32_t width = code_width(pair);
    uint64_t size;
    const uint8_t *const a = own_bytes(pair, unit, 0, bytes[0], &size);
    const uint8_t *const b = own_bytes(pair, unit, 1, bytes[1], &size);

    unit->is_same = memcmp(a, b, size) == 0;
    if (!unit->is_same && berthi_diff_has_sixes(pair))
        found->codes = berthi_diff_count_sixes(a, b, size);
    else if (!unit->is_same)
        found->codes = berthi_diff_count_codes(a, b, size, width,
                                               width == 0 && unit->count % 2 == 1
                                                   && pair->mode == BERTHI_DIFF_PAIRED);
}

/* Both sides are there. */
static void
compare_pair(const berthi_diff_run *run, berthi_diff_unit *unit,
             const uint8_t *const bytes[2], berthi_diff_found *found,
             berthi_diff_scratch *scratch)
{
    const berthi_diff_pair *const pair = &run->pair;
    berthi_diff_unit_sum sum;
    bool is_equal;

    unit->is_same = false;
    if (pair->has_codes)
        compare_codes(pair, unit, bytes, found);
    if (pair->mode == BERTHI_DIFF_BYTES)
        return;
    is_equal = unit->is_same && run->has_same_statistics;
    berthi_diff_sum_begin(&sum, found);
    compare_values(&sum,
                   (view[2]){ view_whole(run, 0, unit, bytes[0], scratch),
                              view_whole(run, 1, unit, bytes[1], scratch) },
                   unit->first, unit->count, is_equal);
    berthi_diff_sum_end(&sum);
}

/* The leader is there; the other side is read piece by piece. */
static berth_status
compare_led(berthi_diff_batch *batch, const berthi_diff_run *run,
            const berthi_diff_unit *unit, const uint8_t *bytes, berthi_diff_found *found,
            berthi_diff_scratch *scratch, berth_error *error)
{
    const berthi_diff_pair *const pair = &run->pair;
    const uint32_t other = 1 - pair->leader;
    const berthi_diff_side *const side = &pair->sides[other];
    view views[2];
    berthi_diff_unit_sum sum;

    views[pair->leader] = view_whole(run, pair->leader, unit, bytes, scratch);
    berthi_diff_sum_begin(&sum, found);
    for (uint64_t at = 0; at < unit->count; at += BERTHI_DIFF_UNIT) {
        const uint64_t first = unit->first + at;
        const uint64_t part = berthi_min_u64(unit->count - at, BERTHI_DIFF_UNIT);
        const berthi_decoder_span span = berthi_diff_extent(pair, other, first, part);
        const berth_status status =
            berthi_job_is_cancelled(batch->diff->job)
                ? berthi_job_fail_cancelled(error)
                : berthi_diff_read(batch, side->file, scratch->raw, span.bytes,
                             side->offset + span.begin, error);

        if (status != BERTH_OK)
            return status;
        views[other] = view_of(run, other, first, part, scratch->raw, scratch);
        compare_values(&sum, views, first, part, false);
    }
    berthi_diff_sum_end(&sum);
    return BERTH_OK;
}

/*
 * Rows of the leader are columns of the other side: of each of its rows as much
 * is read as the unit has rows, and all of it is turned.
 */
static berth_status
read_turned(berthi_diff_batch *batch, const berthi_diff_run *run,
            const berthi_diff_unit *unit, berthi_diff_scratch *scratch,
            berth_error *error)
{
    const berthi_diff_pair *const pair = &run->pair;
    const uint32_t other = 1 - pair->leader;
    const berthi_diff_side *const side = &pair->sides[other];
    const uint64_t *const shape = pair->sides[pair->leader].weight->shape;
    const uint64_t columns = shape[1];
    const uint64_t rows = unit->count / columns;

    for (uint64_t column = 0; column < columns; column++) {
        const uint64_t first = column * shape[0] + unit->first / columns;
        const berthi_decoder_span span = berthi_diff_extent(pair, other, first, rows);
        const berth_status status = berthi_diff_read(batch, side->file, scratch->raw,
                                               span.bytes, side->offset + span.begin, error);

        if (status != BERTH_OK)
            return status;
        berthi_decoder_decode(&side->decoder, first, rows, scratch->raw, BERTH_F32,
                              scratch->row);
        memcpy(scratch->strip + column * rows, scratch->row + span.lead,
               rows * sizeof *scratch->row);
    }
    berthi_quantize_transpose(&(berthi_matrix){ .from = scratch->strip,
                                                .from_stride = rows,
                                                .to = scratch->whole[other],
                                                .to_stride = columns,
                                                .rows = columns,
                                                .columns = rows,
                                                .element_bytes = sizeof(float) });
    return BERTH_OK;
}

static berth_status
compare_turned(berthi_diff_batch *batch, const berthi_diff_run *run,
               const berthi_diff_unit *unit, const uint8_t *bytes,
               berthi_diff_found *found, berthi_diff_scratch *scratch, berth_error *error)
{
    const uint32_t leader = run->pair.leader;
    const uint32_t other = 1 - leader;
    view views[2];
    berthi_diff_unit_sum sum;
    const berth_status status = read_turned(batch, run, unit, scratch, error);

    if (status != BERTH_OK)
        return status;
    views[leader] = view_of(run, leader, unit->first, unit->count, bytes, scratch);
    views[other] = (view){ .whole = scratch->whole[other], .first = unit->first };
    berthi_diff_sum_begin(&sum, found);
    compare_values(&sum, views, unit->first, unit->count, false);
    berthi_diff_sum_end(&sum);
    return BERTH_OK;
}

static berth_status
compare_unit(berthi_diff_batch *batch, berthi_diff_run *run, berthi_diff_unit *unit,
             uint32_t side, const uint8_t *bytes, berth_error *error)
{
    berthi_diff_found *const found = &batch->found[unit - batch->units];
    berthi_diff_scratch *const scratch = take_scratch(batch);
    const uint8_t *both[2];
    berth_status status = BERTH_OK;

    if (scratch == NULL)
        return berthi_fail_memory(error, "comparing a weight");
    memset(found, 0, sizeof *found);
    switch (run->pair.mode) {
    case BERTHI_DIFF_LED:
        status = compare_led(batch, run, unit, bytes, found, scratch, error);
        break;
    case BERTHI_DIFF_TURNED:
        status = compare_turned(batch, run, unit, bytes, found, scratch, error);
        break;
    default:
        both[side] = bytes;
        both[1 - side] = unit->parked;
        compare_pair(run, unit, both, found, scratch);
        give_parking(batch, unit->parked);
        unit->parked = NULL;
        break;
    }
    give_scratch(batch, scratch);
    return status;
}

berth_status
berthi_diff_unit_consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
                         const uint8_t *bytes, berth_error *error)
{
    berthi_diff_batch *const batch = user;
    berthi_diff_unit *const unit = &batch->units[spans[0].tag / 2];
    berthi_diff_run *const run = &batch->runs[unit->run];
    const uint32_t side = (uint32_t)(spans[0].tag % 2);
    bool is_last;
    berth_status status;

    (void)chunk;
    if (berthi_diff_is_carried(&run->pair, 1 - side)
        && park(batch, unit, bytes, spans[0].bytes, &status, error))
        return status;
    status = berthi_diff_enter_run(batch, run, error);
    if (status == BERTH_OK)
        status = compare_unit(batch, run, unit, side, bytes, error);
    if (status != BERTH_OK)
        return status;
    pthread_mutex_lock(&batch->lock);
    is_last = --run->units_left == 0;
    pthread_mutex_unlock(&batch->lock);
    if (is_last)
        berthi_diff_end_run(batch, run);
    return BERTH_OK;
}

void
berthi_diff_unit_stop(void *user)
{
    berthi_diff_batch *const batch = user;

    pthread_mutex_lock(&batch->lock);
    batch->is_stopped = true;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
}
