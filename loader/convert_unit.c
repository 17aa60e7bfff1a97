/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_unit.c - the work of one unit, on whichever thread has it.
 *
 *   begin (once a run)   memory, companions, statistics
 *   convert              bytes ─▶ values ─▶ codes, or ─▶ strip ─▶ codes
 *   end (once a run)     second level, state, constants
 */
#include "loader/convert_batch.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "quant/state.h"

/* -------------------------------------------------------------------- scratch */

static void
free_scratch(const berthi_batch *batch, berthi_unit_scratch *scratch)
{
    berth_context *const context = batch->convert->context;

    if (scratch == NULL)
        return;
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, scratch->values,
                               batch->values_max, 64);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, scratch->codes,
                               batch->codes_max, 64);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_SCRATCH, scratch->maxima,
                               batch->maxima_max * sizeof *scratch->maxima, 64);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, scratch, sizeof *scratch);
}

void
berthi_batch_free_scratch(berthi_batch *batch)
{
    while (batch->scratch != NULL) {
        berthi_unit_scratch *const scratch = batch->scratch;

        batch->scratch = scratch->next;
        free_scratch(batch, scratch);
    }
}

/* One that is free, or a new one: never more than there are workers. */
static berthi_unit_scratch *
take_scratch(berthi_batch *batch)
{
    berth_context *const context = batch->convert->context;
    berthi_unit_scratch *scratch;

    pthread_mutex_lock(&batch->lock);
    scratch = batch->scratch;
    if (scratch != NULL)
        batch->scratch = scratch->next;
    pthread_mutex_unlock(&batch->lock);
    if (scratch != NULL)
        return scratch;
    scratch = berthi_memory_zalloc(context, BERTHI_PURPOSE_SCRATCH, sizeof *scratch);
    if (scratch == NULL)
        return NULL;
    scratch->values = berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH,
                                            batch->values_max, 64);
    scratch->codes =
        berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH, batch->codes_max, 64);
    scratch->maxima =
        berthi_memory_aligned(context, BERTHI_PURPOSE_SCRATCH,
                              batch->maxima_max * sizeof *scratch->maxima, 64);
    if (scratch->values != NULL && scratch->codes != NULL && scratch->maxima != NULL)
        return scratch;
    free_scratch(batch, scratch);
    return NULL;
}

static void
give_scratch(berthi_batch *batch, berthi_unit_scratch *scratch)
{
    pthread_mutex_lock(&batch->lock);
    scratch->next = batch->scratch;
    batch->scratch = scratch;
    pthread_mutex_unlock(&batch->lock);
}

/* -------------------------------------------------------------------- convert */

/* Encodes a piece of the new values and writes what comes out. */
static berth_status
encode_piece(berthi_batch *batch, berthi_run *run, berthi_unit_scratch *scratch,
             const void *values, uint64_t first, uint64_t count, berth_error *error)
{
    const berthi_storage *const storage = &run->weight->storage;
    const berthi_quantized_part part =
        berthi_quantizer_part(&run->quantizer, first, count);
    const bool is_double = run->absmax != NULL;
    float *const maxima = is_double ? run->absmax + part.first_maximum : scratch->maxima;
    berth_status status;

    if (storage->encoding == BERTH_ENCODING_NATIVE)
        return berthi_batch_put(batch, run, BERTHI_ROLE_VALUES, part.begin, values,
                                part.bytes, error);
    berthi_quantizer_encode(&run->quantizer, values, count, scratch->codes, maxima);
    status = berthi_batch_put(batch, run, BERTHI_ROLE_CODES, part.begin, scratch->codes,
                              part.bytes, error);
    if (status != BERTH_OK || is_double)
        return status;
    return berthi_batch_put(batch, run,
                            storage->encoding == BERTH_ENCODING_INT8
                                ? BERTHI_ROLE_ROW_MAXIMUM
                                : BERTHI_ROLE_ABSMAX,
                            part.first_maximum * sizeof(float), maxima,
                            part.maxima * sizeof(float), error);
}

static void
count_nonfinite(berthi_run *run, const void *values, uint64_t count)
{
    const berthi_storage *const storage = &run->weight->storage;
    berthi_nonfinite found;

    if (storage->encoding == BERTH_ENCODING_NATIVE)
        return;
    found = berthi_quantize_nonfinite(values, storage->dtype, count);
    atomic_fetch_add(&run->nan, found.nan);
    atomic_fetch_add(&run->infinite, found.infinite);
}

/*
 * The values of a unit, of the dtype they are stored from: where they lie when
 * they need neither decoding nor moving, else in scratch.
 */
static const uint8_t *
read_values(const berthi_run *run, const berthi_unit *unit, const uint8_t *bytes,
            berthi_unit_scratch *scratch)
{
    const int32_t dtype = run->weight->storage.dtype;
    const uint32_t width = berth_dtype_bits(dtype) / 8;
    const berthi_decoder_span span = berthi_unit_span(run, unit);

    if (run->record == NULL && run->decoder.stored_dtype == dtype
        && (uintptr_t)bytes % width == 0)
        return bytes;
    berthi_decoder_decode(&run->decoder, unit->first, unit->count, bytes, dtype,
                          scratch->values);
    return scratch->values + span.lead * width;
}

/* Puts rows in their place as columns of the strip under way. */
static void
turn(const berthi_run *run, const berthi_unit *unit, const uint8_t *values)
{
    const berthi_recipe_weight *const weight = run->weight;
    const berthi_turning turning = {
        .rows = weight->shape[0],
        .columns = weight->shape[1],
        .element_bytes = berth_dtype_bits(weight->storage.dtype) / 8,
    };
    const uint64_t first = unit->strip * run->plan.strip;

    berthi_quantize_turn(&turning, values, unit->first / turning.columns,
                         unit->count / turning.columns, first,
                         berthi_min_u64(run->plan.strip, turning.columns - first),
                         run->strip);
}

/* The strip is complete: its rows are a stretch of the new values. */
static berth_status
encode_strip(berthi_batch *batch, berthi_run *run, const berthi_unit *unit,
             berthi_unit_scratch *scratch, berth_error *error)
{
    const berthi_recipe_weight *const weight = run->weight;
    const uint32_t width = berth_dtype_bits(weight->storage.dtype) / 8;
    const uint64_t rows = weight->shape[0];
    const uint64_t first = unit->strip * run->plan.strip * rows;
    const uint64_t end =
        berthi_min_u64(first + run->plan.strip * rows, weight->elements);
    berth_status status = BERTH_OK;

    for (uint64_t at = first; at < end && status == BERTH_OK; at += run->plan.piece)
        status = encode_piece(batch, run, scratch, run->strip + (at - first) * width, at,
                              berthi_min_u64(run->plan.piece, end - at), error);
    return status;
}

/* True for the unit that completes its strip; the next strip may begin then. */
static bool
is_strip_complete(berthi_batch *batch, berthi_run *run)
{
    bool is_complete;

    pthread_mutex_lock(&batch->lock);
    is_complete = --run->strip_left == 0;
    pthread_mutex_unlock(&batch->lock);
    return is_complete;
}

/* Units of later strips wait: there is one strip at a time. */
static berth_status
wait_for_strip(berthi_batch *batch, berthi_run *run, uint64_t strip, berth_error *error)
{
    bool is_stopped;

    pthread_mutex_lock(&batch->lock);
    while (run->strip_number != strip && !batch->is_stopped)
        pthread_cond_wait(&batch->has_changed, &batch->lock);
    is_stopped = batch->is_stopped;
    pthread_mutex_unlock(&batch->lock);
    return is_stopped ? berthi_job_fail_cancelled(error) : BERTH_OK;
}

static void
begin_next_strip(berthi_batch *batch, berthi_run *run)
{
    pthread_mutex_lock(&batch->lock);
    run->strip_number++;
    run->strip_left = run->plan.strip_units;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
}

static berth_status
convert_turned(berthi_batch *batch, berthi_run *run, const berthi_unit *unit,
               const uint8_t *bytes, berthi_unit_scratch *scratch, berth_error *error)
{
    const uint8_t *const values = read_values(run, unit, bytes, scratch);
    berth_status status = wait_for_strip(batch, run, unit->strip, error);

    if (status != BERTH_OK)
        return status;
    if (unit->strip == 0)
        count_nonfinite(run, values, unit->count);
    turn(run, unit, values);
    if (!is_strip_complete(batch, run))
        return BERTH_OK;
    status = encode_strip(batch, run, unit, scratch, error);
    begin_next_strip(batch, run);
    return status;
}

static berth_status
convert_unit(berthi_batch *batch, berthi_run *run, const berthi_unit *unit,
             const uint8_t *bytes, berth_error *error)
{
    berthi_unit_scratch *scratch;
    berth_status status;

    if (run->weight->is_copied)
        return berthi_batch_put(batch, run,
                                berthi_recipe_is_kept(run->weight) ? BERTHI_ROLE_CODES
                                                                   : BERTHI_ROLE_VALUES,
                                unit->first, bytes, unit->count, error);
    scratch = take_scratch(batch);
    if (scratch == NULL)
        return berthi_fail_memory(error, "converting a weight");
    if (run->weight->is_turned) {
        status = convert_turned(batch, run, unit, bytes, scratch, error);
    } else {
        const uint8_t *const values = read_values(run, unit, bytes, scratch);

        count_nonfinite(run, values, unit->count);
        status = encode_piece(batch, run, scratch, values, unit->first, unit->count, error);
    }
    give_scratch(batch, scratch);
    return status;
}

/* ----------------------------------------------------------------------- calls */

berth_status
berthi_unit_consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
                    const uint8_t *bytes, berth_error *error)
{
    berthi_batch *const batch = user;
    const berthi_unit *const unit = &batch->units[spans[0].tag];
    berthi_run *const run = &batch->runs[unit->run];
    bool is_last;
    berth_status status = berthi_run_begin(batch, run, error);

    (void)chunk;
    if (status != BERTH_OK)
        return status;
    if (!batch->is_measuring)
        berthi_unit_digest(batch, run, unit, bytes);
    else if (berthi_job_is_cancelled(batch->convert->job))
        return berthi_job_fail_cancelled(error);
    status = convert_unit(batch, run, unit, bytes, error);
    if (status != BERTH_OK)
        return status;
    pthread_mutex_lock(&batch->lock);
    is_last = --run->units_left == 0;
    pthread_mutex_unlock(&batch->lock);
    return is_last ? berthi_run_end(batch, run, error) : BERTH_OK;
}

void
berthi_unit_stop(void *user)
{
    berthi_batch *const batch = user;

    pthread_mutex_lock(&batch->lock);
    batch->is_stopped = true;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
}
