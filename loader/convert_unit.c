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

#include "kernels/sys.h"
#include "loader/digest.h"
#include "quant/state.h"


static berthi_about
about_run(const berthi_batch *batch, const berthi_run *run)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;

    return (berthi_about){
        .file = c->shards[c->table.entries[run->weight->tensor].shard].file.path,
        .tensor = run->weight->name,
        .tensor_length = run->weight->name_length,
    };
}

/* The output of this role; UINT32_MAX: the run has none. */
static uint32_t
find_output(const berthi_batch *batch, const berthi_run *run, berthi_role role)
{
    const berthi_recipe_output *const outputs = batch->convert->recipe.outputs;

    for (uint32_t i = 0; i < run->weight->output_count; i++)
        if (outputs[run->weight->first_output + i].role == (int32_t)role)
            return run->weight->first_output + i;
    return UINT32_MAX;
}

static bool
is_double(const berthi_run *run)
{
    return run->absmax != NULL;
}

/* ---------------------------------------------------------------------- begin */

/* Whoever begins a run later does not keep this one from ending. */
static bool
has_reserved(berthi_batch *batch, uint64_t bytes)
{
    while (!batch->is_stopped && batch->pool_used > 0
           && bytes > BERTHI_CONVERT_POOL - berthi_min_u64(batch->pool_used,
                                                           BERTHI_CONVERT_POOL))
        pthread_cond_wait(&batch->has_changed, &batch->lock);
    if (batch->is_stopped)
        return false;
    batch->pool_used += bytes;
    return true;
}

static uint8_t *
take(uint8_t **next, uint64_t bytes)
{
    uint8_t *const memory = *next;

    *next += (bytes + 63) / 64 * 64;
    return memory;
}

static berth_status
read_companions(berthi_batch *batch, const berthi_run *run, uint8_t **next,
                berthi_companion *companions, berth_error *error)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;
    const uint32_t count = berthi_decoder_companions(&run->decoder);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        const berthi_entry *const entry =
            &c->table.entries[c->table.by_name[run->record->companions[i]]];
        const berthi_shard *const shard = &c->shards[entry->shard];
        const uint64_t bytes = entry->end - entry->begin;
        uint8_t *const memory = take(next, bytes);

        companions[i] = (berthi_companion){ memory, bytes, entry->dtype };
        status = berthi_file_read(&shard->file, memory, bytes,
                                  BERTHI_HEADER_PREFIX + shard->header_bytes
                                      + entry->begin,
                                  "reading the statistics of a weight", error);
    }
    return status;
}

/* Divides the run's memory; companions and statistics are filled. */
static berth_status
prepare(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    const berthi_run_plan *const plan = &run->plan;
    const uint64_t blocks = run->quantizer.blocks;
    berthi_companion companions[8];
    uint8_t *next = run->memory;
    uint8_t *statistics;
    berth_status status = read_companions(batch, run, &next, companions, error);

    if (status != BERTH_OK)
        return status;
    statistics = take(&next, plan->statistics_bytes);
    if (run->record != NULL
        && !berthi_decoder_can_prepare(&run->decoder, companions, statistics)) {
        const berthi_about about = about_run(batch, run);

        return berthi_fail(error, BERTH_REASON_COMPANION_MISMATCH, &about,
                           "its statistics are not those of such a weight");
    }
    if (run->weight->is_turned)
        run->strip = take(&next, plan->strip * run->weight->shape[0]
                                     * (berth_dtype_bits(run->weight->storage.dtype) / 8));
    if (plan->double_bytes > 0) {
        run->codes = take(&next, blocks);
        run->absmax2 = (float *)(void *)take(&next, (blocks / 256 + 1) * sizeof(float));
        run->scratch = (float *)(void *)take(
            &next, berthi_quantizer_scratch(&run->quantizer) * sizeof(float));
        run->absmax = (float *)(void *)take(&next, blocks * sizeof(float));
    }
    return BERTH_OK;
}

static berth_status
allocate(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    bool has_room = true;
    berth_status status = BERTH_OK;

    pthread_mutex_lock(&batch->lock);
    has_room = has_reserved(batch, run->plan.memory);
    pthread_mutex_unlock(&batch->lock);
    if (!has_room)
        return berthi_job_fail_cancelled(error);
    if (run->plan.memory > 0) {
        run->memory = berthi_memory_aligned(batch->convert->context,
                                            BERTHI_PURPOSE_SCRATCH, run->plan.memory, 64);
        if (run->memory == NULL)
            status = berthi_fail_memory(error, "converting a weight");
    }
    if (status == BERTH_OK && !run->weight->is_copied)
        status = prepare(batch, run, error);
    return status;
}

/* The first unit of a run begins it, the others wait for that. */
static berth_status
begin_run(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    berth_status status = BERTH_OK;
    bool is_first;
    bool is_ready;

    pthread_mutex_lock(&batch->lock);
    is_first = run->phase == BERTHI_RUN_IDLE;
    if (is_first)
        run->phase = BERTHI_RUN_BEGINNING;
    while (!is_first && run->phase != BERTHI_RUN_READY && !batch->is_stopped)
        pthread_cond_wait(&batch->has_changed, &batch->lock);
    is_ready = run->phase == BERTHI_RUN_READY;
    pthread_mutex_unlock(&batch->lock);
    if (!is_first)
        return is_ready ? BERTH_OK : berthi_job_fail_cancelled(error);
    status = allocate(batch, run, error);
    if (status != BERTH_OK)
        return status; /* the conveyor stops those who wait */
    pthread_mutex_lock(&batch->lock);
    run->phase = BERTHI_RUN_READY;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
    return BERTH_OK;
}

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
    const bool is_int8 = storage->encoding == BERTH_ENCODING_INT8;
    float *const maxima = is_double(run) ? run->absmax + part.first_maximum
                                         : scratch->maxima;
    uint32_t output;
    berth_status status;

    if (storage->encoding == BERTH_ENCODING_NATIVE)
        return berthi_batch_put(batch, find_output(batch, run, BERTHI_ROLE_VALUES),
                                part.begin, values, part.bytes, error);
    berthi_quantizer_encode(&run->quantizer, values, count, scratch->codes, maxima);
    output = find_output(batch, run, BERTHI_ROLE_CODES);
    status = berthi_batch_put(batch, output, part.begin, scratch->codes, part.bytes, error);
    if (status != BERTH_OK || is_double(run))
        return status;
    output = find_output(batch, run, is_int8 ? BERTHI_ROLE_ROW_MAXIMUM : BERTHI_ROLE_ABSMAX);
    return berthi_batch_put(batch, output, part.first_maximum * sizeof(float), maxima,
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
    const uint32_t width = berth_dtype_bits(weight->storage.dtype) / 8;
    const uint64_t rows = weight->shape[0];
    const uint64_t columns = weight->shape[1];
    const uint64_t first_column = unit->strip * run->plan.strip;
    const berthi_matrix matrix = {
        .from = values + first_column * width,
        .from_stride = columns,
        .to = run->strip + unit->first / columns * width,
        .to_stride = rows,
        .rows = unit->count / columns,
        .columns = berthi_min_u64(run->plan.strip, columns - first_column),
        .element_bytes = width,
    };

    berthi_quantize_transpose(&matrix);
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
        return berthi_batch_put(batch, find_output(batch, run, BERTHI_ROLE_VALUES),
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

/* ------------------------------------------------------------------------ end */

static berth_status
put_double(berthi_batch *batch, berthi_run *run, float *offset, berth_error *error)
{
    const uint64_t blocks = run->quantizer.blocks;
    berth_status status;

    *offset = berthi_quantizer_finish(&run->quantizer, run->absmax, run->codes,
                                      run->absmax2, run->scratch);
    status = berthi_batch_put(batch, find_output(batch, run, BERTHI_ROLE_ABSMAX2), 0,
                              run->absmax2, (blocks + 255) / 256 * sizeof(float), error);
    if (status == BERTH_OK)
        status = berthi_batch_put(batch, find_output(batch, run, BERTHI_ROLE_ABSMAX), 0,
                                  run->codes, blocks, error);
    return status;
}

static berth_status
put_state(berthi_batch *batch, berthi_run *run, float offset, berth_error *error)
{
    const berthi_recipe_weight *const weight = run->weight;
    const uint32_t output = find_output(batch, run, BERTHI_ROLE_STATE);
    const uint64_t turned[2] = { weight->shape[1], weight->shape[0] };
    berthi_state state;
    char text[BERTHI_STATE_TEXT_MAX];
    size_t length;

    berthi_stored_state(&weight->storage, weight->is_turned ? turned : weight->shape,
                        weight->rank, offset, &state);
    length = berthi_state_print(&state, text, sizeof text);
    if (length >= sizeof text)
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                           "a state of %zu characters", length);
    berthi_batch_set_bytes(batch, output, length);
    return berthi_batch_put(batch, output, 0, text, length, error);
}

static berth_status
put_constants(berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    static const berthi_role roles[] = { BERTHI_ROLE_MAP, BERTHI_ROLE_MAP2,
                                         BERTHI_ROLE_ROW_FORMAT };
    uint8_t bytes[BERTHI_STORED_CONSTANT_MAX];
    berth_status status = BERTH_OK;

    for (size_t i = 0; i < sizeof roles / sizeof roles[0] && status == BERTH_OK; i++) {
        const uint32_t output = find_output(batch, run, roles[i]);

        if (output != UINT32_MAX)
            status = berthi_batch_put(
                batch, output, 0, bytes,
                berthi_stored_constant(roles[i], run->weight->storage.encoding, bytes),
                error);
    }
    return status;
}

/* NaN and infinities are told in the order in which weights end. */
static berth_status
tell_nonfinite(berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const uint64_t nan = atomic_load(&run->nan);
    const uint64_t infinite = atomic_load(&run->infinite);
    const berthi_about about = about_run(batch, run);
    berth_error details;
    berth_status status;

    if (nan + infinite == 0)
        return BERTH_OK;
    status = berthi_fail(&details, BERTH_REASON_NONFINITE, &about,
                         "has %" PRIu64 " NaN and %" PRIu64 " infinite values", nan,
                         infinite);
    if (convert->options.reject_nonfinite) {
        if (error != NULL)
            *error = details;
        return status;
    }
    pthread_mutex_lock(&batch->lock);
    convert->report.nonfinite_tensors++;
    convert->report.nonfinite_values += nan + infinite;
    if (convert->options.finding != NULL)
        convert->options.finding(convert->options.finding_user,
                                 &(berth_finding){ .severity = BERTH_SEVERITY_WARNING,
                                                   .details = &details,
                                                   .name = run->weight->name,
                                                   .name_length = run->weight->name_length });
    pthread_mutex_unlock(&batch->lock);
    return BERTH_OK;
}

void
berthi_batch_free_run(berthi_batch *batch, berthi_run *run)
{
    berthi_memory_free_aligned(batch->convert->context, BERTHI_PURPOSE_SCRATCH,
                               run->memory, run->plan.memory, 64);
    run->memory = NULL;
}

static berth_status
end_run(berthi_batch *batch, berthi_run *run, berth_error *error)
{
    const int32_t encoding = run->weight->storage.encoding;
    float offset = 0;
    berth_status status = tell_nonfinite(batch, run, error);

    if (status == BERTH_OK && is_double(run))
        status = put_double(batch, run, &offset, error);
    if (status == BERTH_OK
        && (encoding == BERTH_ENCODING_NF4 || encoding == BERTH_ENCODING_FP4))
        status = put_state(batch, run, offset, error);
    if (status == BERTH_OK)
        status = put_constants(batch, run, error);
    berthi_batch_free_run(batch, run);
    pthread_mutex_lock(&batch->lock);
    batch->pool_used -= run->plan.memory;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
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
    berth_status status = begin_run(batch, run, error);

    (void)chunk;
    if (status == BERTH_OK)
        status = convert_unit(batch, run, unit, bytes, error);
    if (status != BERTH_OK)
        return status;
    pthread_mutex_lock(&batch->lock);
    is_last = --run->units_left == 0;
    pthread_mutex_unlock(&batch->lock);
    return is_last ? end_run(batch, run, error) : BERTH_OK;
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
