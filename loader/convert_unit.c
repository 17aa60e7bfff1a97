/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_unit.c - the work of one unit, on whichever thread has it.
 *
 *   begin (once a run)   memory, companions, statistics
 *   convert              bytes ─▶ values ─▶ codes, or ─▶ strip ─▶ codes
 *   end (once a run)     second level, state, constants
 */
#include "loader/convert_batch.h"
#include "quant/format.h"

/* -------------------------------------------------------------------- convert */

/* Plain values are those that the file has, but for infinities that a cast to F16 makes. */
static bool
may_be_nonfinite(const berthi_run *run)
{
    const berthi_storage *const storage = &run->weight->storage;

    return storage->encoding != BERTH_ENCODING_NATIVE
           || (storage->dtype == BERTH_F16
               && (run->record != NULL || run->decoder.stored_dtype != BERTH_F16));
}

static void
count_nonfinite(berthi_run *run, const void *values, uint64_t count)
{
    const berthi_storage *const storage = &run->weight->storage;
    berthi_nonfinite found;

    if (!may_be_nonfinite(run))
        return;
    found = storage->encoding == BERTH_ENCODING_INT8
                ? berthi_quantize_nonfinite_as_fp16(values, storage->dtype, count)
                : berthi_quantize_nonfinite(values, storage->dtype, count);
    atomic_fetch_add(&run->nan, found.nan);
    atomic_fetch_add(&run->infinite, found.infinite);
}

/* They are values of the dtype that is stored, and need not be moved. */
static bool
are_values(const berthi_run *run, const uint8_t *bytes)
{
    const int32_t dtype = run->weight->storage.dtype;

    return run->record == NULL && run->decoder.stored_dtype == dtype
           && (uintptr_t)bytes % berthi_format_element_bytes(dtype) == 0;
}

/* The values of a unit, in scratch unless they lie among its bytes. */
static const uint8_t *
values_of(const berthi_run *run, const berthi_unit *unit, const uint8_t *bytes,
          const berthi_unit_scratch *scratch)
{
    const uint32_t width = berthi_format_element_bytes(run->weight->storage.dtype);

    return are_values(run, bytes)
               ? bytes
               : scratch->values + berthi_unit_span(run, unit).lead * width;
}

static berth_status
decode(berthi_batch *batch, const berthi_run *run, const berthi_unit *unit,
       const uint8_t *bytes, berthi_unit_scratch *scratch, berth_error *error)
{
    if (are_values(run, bytes))
        return BERTH_OK;
    if (berthi_run_is_decoded_there(run))
        return berthi_line_decode(batch, run, scratch, unit, bytes, error);
    berthi_decoder_decode(&run->decoder, unit->first, unit->count, bytes,
                          run->weight->storage.dtype, scratch->values);
    return BERTH_OK;
}

/* Puts rows in their place as columns of the strip under way. */
static void
turn(const berthi_run *run, const berthi_unit *unit, const uint8_t *values)
{
    const berthi_recipe_weight *const weight = run->weight;
    const berthi_turning turning = {
        .rows = weight->shape[0],
        .columns = weight->shape[1],
        .element_bytes = berthi_format_element_bytes(weight->storage.dtype),
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
    const uint64_t strip = run->plan.strip * run->weight->shape[0];
    const uint64_t first = unit->strip * strip;

    return berthi_values_encode(batch, run, scratch, run->strip, first,
                                berthi_min_u64(strip, run->weight->elements - first),
                                error);
}

/* A unit is done. True: it completes its strip; the next strip may begin then. */
static bool
count_down_strip(berthi_batch *batch, berthi_run *run)
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
    const uint8_t *const values = values_of(run, unit, bytes, scratch);
    berth_status status = decode(batch, run, unit, bytes, scratch, error);

    if (status == BERTH_OK)
        status = wait_for_strip(batch, run, unit->strip, error);
    if (status != BERTH_OK)
        return status;
    if (unit->strip == 0)
        count_nonfinite(run, values, unit->count);
    turn(run, unit, values);
    if (!count_down_strip(batch, run))
        return BERTH_OK;
    status = encode_strip(batch, run, unit, scratch, error);
    begin_next_strip(batch, run);
    return status;
}

static berth_status
convert_straight(berthi_batch *batch, berthi_run *run, const berthi_unit *unit,
                 const uint8_t *bytes, berthi_unit_scratch *scratch, berth_error *error)
{
    const uint8_t *const values = values_of(run, unit, bytes, scratch);
    const berth_status status = decode(batch, run, unit, bytes, scratch, error);

    if (status != BERTH_OK)
        return status;
    count_nonfinite(run, values, unit->count);
    return berthi_values_encode(batch, run, scratch, values, unit->first, unit->count, error);
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
    status = berthi_scratch_take(batch, &scratch, error);
    if (status != BERTH_OK)
        return status;
    status = run->weight->is_turned
                 ? convert_turned(batch, run, unit, bytes, scratch, error)
                 : convert_straight(batch, run, unit, bytes, scratch, error);
    berthi_scratch_give(batch, scratch);
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
