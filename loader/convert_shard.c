/* SPDX-License-Identifier: Apache-2.0 */
/* convert_shard.c - one shard: its runs and units, and the conveyor. */
#include <inttypes.h>

#include "loader/convert_batch.h"
#include "loader/part.h"
#include "loader/part_lengths.h"

/* ------------------------------------------------------------- runs and units */

/* True when the weight is to be converted with this shard. */
static bool
belongs(const berthi_batch *batch, const berthi_recipe_weight *weight)
{
    uint32_t first;
    uint32_t last;

    berthi_convert_find_shards(batch->convert, weight, &first, &last);
    return first == batch->shard && (!batch->is_finished || last > batch->shard)
           && berthi_convert_is_mine(batch->convert,
                                     (uint32_t)(weight - batch->convert->recipe.weights));
}

static bool
is_late(const berthi_batch *batch, const berthi_run *run)
{
    const uint32_t state = berthi_run_output(batch, run, BERTHI_ROLE_STATE);

    return state != UINT32_MAX && batch->convert->recipe.tensors[state].is_late;
}

static berth_status
add_run(berthi_batch *batch, const berthi_recipe_weight *weight, berth_error *error)
{
    berthi_run *const run = &batch->runs[batch->run_count];
    const berth_status status = berthi_run_init(batch->convert, run, weight, error);

    if (status != BERTH_OK)
        return status;
    batch->run_count++;
    berthi_run_forget_source(batch, run);
    run->is_announced = !is_late(batch, run);
    batch->unit_count += run->units_left;
    berthi_scratch_widen(&batch->scratch_sizes, &run->plan);
    return BERTH_OK;
}

/* True for the first of the weight's tensors that lies in this shard. */
static bool
is_first_here(const berthi_batch *batch, const berthi_recipe_weight *weight,
              uint32_t output)
{
    const berthi_layout_tensor *const tensors = batch->convert->recipe.tensors;
    uint32_t first = weight->first_output;

    while (tensors[first].shard != batch->shard)
        first++;
    return first == output;
}

/*
 * The weight that is converted with this shard and for which this tensor of it
 * stands: its own tensor, or the first one here. `is_own`: only where the own
 * one is here, else only where it is not. NULL: none.
 */
static const berthi_recipe_weight *
weight_of(const berthi_batch *batch, uint32_t output, bool is_own)
{
    const berthi_recipe *const recipe = &batch->convert->recipe;
    const berthi_recipe_weight *const weight =
        &recipe->weights[recipe->outputs[output].weight];
    const bool has_own = recipe->tensors[weight->first_output].shard == batch->shard;
    const bool stands = has_own ? output == weight->first_output
                                : is_first_here(batch, weight, output);

    return has_own == is_own && stands && belongs(batch, weight) ? weight : NULL;
}

static uint64_t
count_runs(const berthi_batch *batch, const berthi_layout_shard *shard)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < shard->tensor_count; i++)
        count += weight_of(batch, shard->tensors[i], true) != NULL
                 || weight_of(batch, shard->tensors[i], false) != NULL;
    return count;
}

static berth_status
add_runs(berthi_batch *batch, const berthi_layout_shard *shard, bool is_own,
         berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < shard->tensor_count && status == BERTH_OK; i++) {
        const berthi_recipe_weight *const weight =
            weight_of(batch, shard->tensors[i], is_own);

        if (weight != NULL)
            status = add_run(batch, weight, error);
    }
    return status;
}

/* In the order of their own tensors' places, then those whose own is elsewhere. */
static berth_status
list_runs(berthi_batch *batch, berth_error *error)
{
    const berthi_layout_shard shard =
        berthi_layout_shard_at(batch->convert->layout, batch->shard);
    berth_status status;

    batch->run_capacity = count_runs(batch, &shard);
    batch->runs = berthi_memory_zalloc(batch->convert->context, BERTHI_PURPOSE_CHUNKS,
                                       batch->run_capacity * sizeof *batch->runs);
    if (batch->runs == NULL)
        return berthi_fail_memory(error, "the weights of a shard");
    status = add_runs(batch, &shard, true, error);
    if (status == BERTH_OK)
        status = add_runs(batch, &shard, false, error);
    return status;
}

/* The weights of a part whose lengths in this shard are not known. */
static berth_status
list_measured(berthi_batch *batch, uint32_t part, berth_error *error)
{
    const berthi_convert *const convert = batch->convert;
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, batch->shard);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < shard.tensor_count; i++)
        batch->run_capacity += berthi_part_is_unknown(convert, shard.tensors[i], part);
    batch->runs = berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_CHUNKS,
                                       batch->run_capacity * sizeof *batch->runs);
    if (batch->runs == NULL)
        return berthi_fail_memory(error, "the weights of a shard");
    for (uint32_t i = 0; i < shard.tensor_count && status == BERTH_OK; i++) {
        const uint32_t output = shard.tensors[i];

        if (berthi_part_is_unknown(convert, output, part))
            status = add_run(
                batch, &convert->recipe.weights[convert->recipe.outputs[output].weight],
                error);
    }
    return status;
}

static berth_status
list_units(berthi_batch *batch, berthi_piece *pieces, berth_error *error)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;
    uint64_t count = 0;

    for (uint32_t i = 0; i < batch->run_count; i++) {
        const berthi_run *const run = &batch->runs[i];
        const berthi_entry *const entry = &c->table.entries[run->weight->tensor];
        const uint64_t begin = berthi_checkpoint_offset(c, entry);

        for (uint64_t number = 0; number < run->units_left; number++, count++) {
            const berthi_unit unit = berthi_run_unit(run, i, number);
            const berthi_decoder_span span = berthi_unit_span(run, &unit);

            batch->units[count] = unit;
            pieces[count] = (berthi_piece){ .offset = begin + span.begin,
                                            .bytes = span.bytes,
                                            .tag = count,
                                            .file = entry->shard };
        }
    }
    if (count == batch->unit_count)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_INTERNAL, NULL, "units were counted wrong");
}

/* ---------------------------------------------------------------------- a run */

static berth_status
list_files(berthi_batch *batch, berth_error *error)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;

    batch->files = berthi_memory_array(batch->convert->context, BERTHI_PURPOSE_CHUNKS,
                                       c->shard_count, sizeof *batch->files);
    if (batch->files == NULL)
        return berthi_fail_memory(error, "the weights of a shard");
    berthi_checkpoint_copy_files(c, batch->files);
    return BERTH_OK;
}

static void
note_stats(berthi_convert *convert, const berthi_conveyor_stats *stats)
{
    berth_convert_report *const report = &convert->report;

    report->bytes_read += stats->bytes_read;
    convert->wait_ns += stats->wait_ns;
    convert->work_ns += stats->work_ns;
    if (stats->bytes_read < convert->path_bytes)
        return;
    convert->path_bytes = stats->bytes_read;
    memcpy(report->io_path, stats->path, sizeof report->io_path);
}

static berth_status
convey(berthi_batch *batch, const berthi_chunks *chunks, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const berth_convert_options *const options = &convert->options;
    const berthi_ring_pins pins = berthi_line_pins(batch);
    const berthi_conveyor_options conveyor = {
        .io = options->io,
        .no_uring = options->no_uring != 0,
        .readers = options->readers,
        .workers = convert->workers,
        .ring_bytes = options->ring_bytes > 0 ? options->ring_bytes : convert->sizes.ring,
        .pins = batch->scratch_sizes.device > 0 ? &pins : NULL,
    };
    const berthi_consumer consumer = { .user = batch,
                                       .consume = berthi_unit_consume,
                                       .stop = berthi_unit_stop,
                                       .is_in_turn = true };
    const berthi_freight freight = {
        .context = convert->context,
        /* What is only measured is no progress of this part. */
        .job = batch->is_measuring ? NULL : convert->job,
        .files = batch->files,
        .file_count = convert->checkpoint->shard_count,
        .chunks = chunks,
    };
    berthi_conveyor_stats stats = { .bytes_read = 0 };
    const berth_status status =
        berthi_conveyor_run(&freight, &conveyor, &consumer, &stats, error);

    note_stats(convert, &stats);
    return status;
}

static berth_status
run_units(berthi_batch *batch, berth_error *error)
{
    berth_context *const context = batch->convert->context;
    const uint64_t count = batch->unit_count;
    berthi_chunks chunks = { .chunk_count = 0 };
    berthi_piece *pieces =
        berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, count, sizeof *pieces);
    berth_status status = BERTH_OK;

    batch->units =
        berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, count, sizeof *batch->units);
    if (pieces == NULL || batch->units == NULL)
        status = berthi_fail_memory(error, "the units of a shard");
    if (status == BERTH_OK)
        status = list_units(batch, pieces, error);
    if (status == BERTH_OK)
        status = berthi_chunks_list(context, pieces, count, &chunks, error);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, pieces, count * sizeof *pieces);
    if (status == BERTH_OK)
        status = convey(batch, &chunks, error);
    if (chunks.context != NULL)
        berthi_chunks_fini(&chunks);
    return status;
}

static berth_status
create_file(berthi_batch *batch, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const berthi_layout_shard shard =
        berthi_layout_shard_at(convert->layout, batch->shard);
    uint64_t slack = 0;
    char name[BERTHI_LAYOUT_NAME];

    berthi_convert_name_shard(batch->shard, name);
    batch->payload = BERTHI_HEADER_PREFIX + shard.header_bytes;
    for (uint32_t i = 0; i < shard.tensor_count; i++) {
        atomic_store(&convert->crcs[shard.tensors[i]], 0);
        if (convert->recipe.tensors[shard.tensors[i]].is_late)
            slack += BERTHI_CONVERT_LATE_SLACK;
    }
    if (convert->part_of != NULL) {
        berthi_convert_target target;
        const berth_status status =
            berthi_convert_share(convert, batch->shard, &target, error);

        batch->file = target.file;
        return status;
    }
    return berthi_writer_create(convert->writer, name,
                                batch->payload + shard.payload_bytes + slack, &batch->file,
                                error);
}

static void
begin_batch(berthi_batch *batch)
{
    batch->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    batch->has_changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

static void
finish_batch(berthi_batch *batch)
{
    const berthi_convert *const convert = batch->convert;
    berth_context *const context = convert->context;

    for (uint64_t i = 0; i < batch->run_count; i++)
        berthi_run_free(batch, &batch->runs[i]);
    berthi_batch_free_scratch(batch);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->runs,
                       batch->run_capacity * sizeof *batch->runs);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->units,
                       batch->unit_count * sizeof *batch->units);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, batch->files,
                       convert->checkpoint->shard_count * sizeof *batch->files);
    pthread_cond_destroy(&batch->has_changed);
    pthread_mutex_destroy(&batch->lock);
}

static void
log_parcels(const berthi_batch *batch)
{
    if (batch->parcel_bytes > 0)
        berthi_log(batch->convert->context, BERTH_LOG_DEBUG,
                   "shard %" PRIu32 ": %" PRIu64 " bytes were kept for their places",
                   batch->shard + 1, batch->parcel_bytes);
}

berth_status
berthi_convert_shard(berthi_convert *convert, uint32_t shard,
                     berthi_writer_file **out_file, uint64_t *out_payload,
                     berth_error *error)
{
    berthi_batch batch = { .convert = convert, .shard = shard };
    berth_status status;

    *out_file = NULL;
    begin_batch(&batch);
    status = list_runs(&batch, error);
    if (status == BERTH_OK)
        status = list_files(&batch, error);
    if (status == BERTH_OK)
        status = create_file(&batch, error);
    if (status == BERTH_OK)
        status = run_units(&batch, error);
    if (status == BERTH_OK && convert->is_exchanging)
        status = berthi_part_settle(convert, shard, error);
    if (status == BERTH_OK)
        status = berthi_convert_write_parcels(
            convert, shard, &(berthi_convert_target){ batch.file, batch.payload }, error);
    log_parcels(&batch);
    if (status != BERTH_OK) {
        berthi_writer_drop(convert->writer, batch.file);
        batch.file = NULL;
    }
    *out_file = batch.file;
    *out_payload = batch.payload;
    finish_batch(&batch);
    return status;
}

berth_status
berthi_convert_later(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berthi_batch batch = { .convert = convert, .shard = shard, .is_finished = true };
    berth_status status;

    begin_batch(&batch);
    status = list_runs(&batch, error);
    if (status == BERTH_OK)
        status = list_files(&batch, error);
    if (status == BERTH_OK && batch.run_count > 0)
        status = run_units(&batch, error);
    log_parcels(&batch);
    finish_batch(&batch);
    return status;
}

berth_status
berthi_convert_measure_states(berthi_convert *convert, uint32_t shard, uint32_t part,
                              berth_error *error)
{
    berthi_batch batch = { .convert = convert, .shard = shard, .is_measuring = true };
    berth_status status;

    begin_batch(&batch);
    status = list_measured(&batch, part, error);
    if (status == BERTH_OK)
        status = list_files(&batch, error);
    if (status == BERTH_OK)
        status = run_units(&batch, error);
    finish_batch(&batch);
    return status;
}
