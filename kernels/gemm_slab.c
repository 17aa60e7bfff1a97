/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_slab.c - weights of 4 bits times many inputs: some rows at a time are decoded to the
 * inputs' dtype, a slab, and multiplied by cuBLASLt.
 *
 * Slabs take turns. While one is multiplied in the caller's stream a stream beside it decodes
 * the next one, on what processors the product leaves free:
 *
 *   caller's   decode 0 | product 0        | product 1        | product 2
 *   beside                decode 1           decode 2
 *
 * A product waits for the decoding of its slab, and decoding for the product that had the
 * slab before. All of the other stream's work is waited for in the caller's one: to whoever
 * asks, and to a graph that captures it, a product is work of one stream.
 */
#include <inttypes.h>

#include "kernels/base.h"
#include "kernels/gemm_room.h"
#include "kernels/number.h"

/* ------------------------------------------------------------------------- rows of a slab */

#define TILE_ROWS 128u   /* of a processor: those of the library's largest tiles, */
#define TILE_INPUTS 256u /* 256 x 128 and the other way round */
#define ENOUGH_PERCENT 90u /* of the processors' time has a tile in it */
#define LEAST_PART 5u    /* of a slab's bytes: below it beginning and ending count */

/*
 * Slabs are multiples of so many rows, 0 if `most` are too few for any: they begin with a
 * block, of the absmax, too. Whole tiles are more than that: where a slab's outputs begin
 * they are aligned as the first ones are, and no tile is cut off but in the last slab.
 */
static uint64_t
find_step(const berthi_gemm_4bit *t, uint64_t most)
{
    const uint64_t unit =
        (uint64_t)t->block_size * (t->double_absmax != NULL ? BERTHI_DOUBLE_BLOCK : 1);
    const uint64_t blocks = unit / berthi_greatest_divisor(unit, t->columns);

    for (uint64_t tile = 2 * TILE_ROWS; tile >= TILE_ROWS; tile /= 2) {
        const uint64_t step = blocks / berthi_greatest_divisor(blocks, tile) * tile;

        if (step <= most)
            return step;
    }
    return blocks <= most ? blocks : 0;
}

/* Of the processors' time that a product of these rows takes, where they multiply. */
static uint64_t
busy_percent(uint64_t rows, uint64_t inputs, uint32_t processors)
{
    const uint64_t tiles =
        berthi_divide_up(rows, TILE_ROWS) * berthi_divide_up(inputs, TILE_INPUTS);

    return 100 * tiles / (berthi_divide_up(tiles, processors) * processors);
}

/*
 * As few as keep the processors busy, so that what is decoded before the first product is
 * little and, at best, none of it leaves the GPU's cache before it is multiplied; where none
 * do, parts as equal as can be.
 */
uint64_t
berthi_gemm_slab_rows(const berthi_gemm_4bit *t, uint64_t bytes, uint32_t processors)
{
    const uint32_t lanes = processors != 0 ? processors : 1;
    const uint64_t fit = bytes / berthi_gemm_bytes_of(t->dtype) / t->columns;
    const uint64_t step = find_step(t, fit);
    uint64_t most;

    if (fit >= t->rows && step == 0)
        return t->rows;
    if (step == 0)
        return 0;
    most = fit - fit % step;
    for (uint64_t rows = berthi_divide_up(fit / LEAST_PART, step) * step; rows <= most;
         rows += step) {
        if (rows >= t->rows)
            return t->rows;
        if (rows != 0 && busy_percent(rows, t->count, lanes) >= ENOUGH_PERCENT)
            return rows;
    }
    if (fit >= t->rows)
        return t->rows;
    /* As few slabs as that, of about the same size. */
    most = berthi_divide_up(t->rows, berthi_divide_up(t->rows, most));
    return berthi_divide_up(most, step) * step;
}

/* ----------------------------------------------------------------------- one slab's work */

_Static_assert(BERTHI_GEMM_SLABS >= 2, "one is multiplied while another is decoded");

typedef struct work {
    berthi_gemm *gemm;
    const berthi_cuda_call *call;
    const berthi_gemm_4bit *task;
    berthi_gemm_room *room;
    uint64_t step;  /* rows of a slab */
    uint64_t count; /* of slabs */
} work;

static uint64_t
rows_of(const work *w, uint64_t i)
{
    return berthi_min_u64(w->step, w->task->rows - i * w->step);
}

static berthi_gemm_slab *
slab_of(const work *w, uint64_t i)
{
    return &w->room->slabs[i % BERTHI_GEMM_SLABS];
}

static berth_status
decode(const work *w, uint64_t i, void *stream)
{
    const berthi_gemm_4bit *const t = w->task;
    const uint64_t first = i * w->step * t->columns;
    const uint64_t block = first / t->block_size;
    const berthi_double_absmax *const d = t->double_absmax;
    const berthi_decode_arguments arguments = {
        .codes = t->codes + first / 2,
        .absmax = d == NULL ? t->absmax + block : NULL,
        .count = rows_of(w, i) * t->columns,
        .block_size = t->block_size,
        .dtype = t->dtype,
        .values = slab_of(w, i)->values,
    };
    berthi_double_absmax its = { .codes = NULL };
    berthi_launch launch;
    berth_status status;

    if (d != NULL)
        its = (berthi_double_absmax){ .codes = d->codes + block,
                                      .absmax2 = d->absmax2 + block / BERTHI_DOUBLE_BLOCK,
                                      .map = d->map,
                                      .offset = d->offset,
                                      .offset_value = d->offset_value };
    status = berthi_launch_decode_4bit(&arguments, t->values, d != NULL ? &its : NULL, &launch,
                                       w->call->error);
    return status == BERTH_OK ? berthi_cuda_start(w->call, &launch, stream) : status;
}

static berth_status
multiply(const work *w, uint64_t i)
{
    const berthi_gemm_4bit *const t = w->task;
    const uint64_t bytes = berthi_gemm_bytes_of(t->dtype);
    const uint64_t row = i * w->step;
    const berthi_gemm_task its = {
        .weight = slab_of(w, i)->values, .inputs = t->inputs,
        .bias = t->bias != NULL ? (const uint8_t *)t->bias + row * bytes : NULL,
        .outputs = (uint8_t *)t->outputs + row * bytes, .dtype = t->dtype,
        .rows = rows_of(w, i), .columns = t->columns, .count = t->count, .stride = t->rows
    };

    return berthi_gemm_ask(w->gemm, w->call, &its, w->room);
}

/* ------------------------------------------------------------------------ all slabs' work */

static berth_status
record(const work *w, void *event, void *stream)
{
    return berthi_cuda_judge(w->call, w->call->calls->event_record(event, stream));
}

static berth_status
wait(const work *w, void *stream, void *event)
{
    return berthi_cuda_judge(w->call, w->call->calls->stream_wait(stream, event));
}

/* The first slab is decoded, and the others are there to be written. */
static berth_status
begin(const work *w)
{
    berth_status status = decode(w, 0, w->room->stream);

    for (uint64_t i = 1; i < BERTHI_GEMM_SLABS && i < w->count && status == BERTH_OK; i++)
        status = record(w, slab_of(w, i)->released, w->room->stream);
    return status;
}

static berth_status
decode_beside(const work *w, uint64_t i)
{
    berthi_gemm_slab *const slab = slab_of(w, i);
    berth_status status = wait(w, w->room->side, slab->released);

    if (status != BERTH_OK)
        return status;
    w->room->is_forked = true;
    status = decode(w, i, w->room->side);
    return status == BERTH_OK ? record(w, slab->decoded, w->room->side) : status;
}

/*
 * Asked for before the decoding beside it, and nothing between it and the event that that
 * waits for: where both can begin it does, and has the processors first. The event is behind
 * the product before, and the decoding of this slab, which is before the other anyway.
 */
static berth_status
multiply_decoded(const work *w, uint64_t i)
{
    void *const stream = w->room->stream;
    berth_status status = i > 0 ? wait(w, stream, slab_of(w, i)->decoded) : BERTH_OK;

    if (status == BERTH_OK)
        w->room->is_forked = false;
    if (status == BERTH_OK && i > 0 && i - 1 + BERTHI_GEMM_SLABS < w->count)
        status = record(w, slab_of(w, i - 1)->released, stream);
    return status == BERTH_OK ? multiply(w, i) : status;
}

static berth_status
multiply_slabs(const work *w)
{
    berth_status status = begin(w);

    for (uint64_t i = 0; i < w->count && status == BERTH_OK; i++) {
        status = multiply_decoded(w, i);
        if (status == BERTH_OK && i + 1 < w->count)
            status = decode_beside(w, i + 1);
    }
    return status;
}

static bool
has_slabs(const berthi_gemm_4bit *t, uint64_t bytes, uint32_t processors)
{
    return berthi_is_number(t->dtype) && t->block_size >= 32 && t->columns > 0
           && t->columns <= INT32_MAX && t->rows <= INT32_MAX
           && berthi_gemm_slab_rows(t, bytes, processors) > 0;
}

static berth_status
refuse(const berthi_cuda_call *call, const berthi_gemm_4bit *t)
{
    return berthi_fail(call->error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s: weights of %" PRIu64 " columns cannot be decoded in slabs",
                       call->device->name, t->columns);
}

berth_status
berthi_gemm_multiply_4bit(const berthi_cuda_call *call, const berthi_gemm_4bit *task,
                          berthi_stream *stream)
{
    const uint32_t processors = (uint32_t)call->device->properties.processors;
    work w = { .call = call, .task = task };
    berth_status status;

    if (task->rows == 0 || task->count == 0)
        return BERTH_OK;
    if (!has_slabs(task, BERTHI_GEMM_SLAB_BYTES, processors))
        return refuse(call, task);
    status = berthi_gemm_begin(call, stream, BERTHI_GEMM_NEEDS_SLABS, &w.gemm, &w.room);
    if (status != BERTH_OK)
        return status;
    w.step = berthi_gemm_slab_rows(task, w.room->slab_bytes, processors);
    if (w.step == 0) { /* in smaller ones than there should be */
        status = refuse(call, task);
    } else {
        w.count = berthi_divide_up(task->rows, w.step);
        status = multiply_slabs(&w);
    }
    return berthi_gemm_end(w.gemm, call, w.room, status);
}
