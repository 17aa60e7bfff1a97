/* SPDX-License-Identifier: Apache-2.0 */
/* convert_shard.c - one shard: its runs and units, the conveyor, what is put where. */
#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/convert_batch.h"
#include "loader/digest.h"

/* So much a late length can be longer than its guess. */
#define LATE_SLACK 32u

/* -------------------------------------------------------------------- writing */

static void
drop_parcel(berthi_convert *convert, berthi_convert_parcel **link)
{
    berthi_convert_parcel *const parcel = *link;

    *link = parcel->next;
    berthi_memory_free(convert->context, BERTHI_PURPOSE_SCRATCH, parcel,
                       sizeof *parcel + parcel->size);
}

void
berthi_convert_drop_all_parcels(berthi_convert *convert)
{
    while (convert->parcels != NULL)
        drop_parcel(convert, &convert->parcels);
}

void
berthi_convert_drop_parcels(berthi_convert *convert, bool is_home, uint32_t shard)
{
    berthi_convert_parcel **link = &convert->parcels;

    while (*link != NULL) {
        const uint32_t at = is_home ? (*link)->home
                                    : convert->recipe.tensors[(*link)->output].shard;

        if (at == shard)
            drop_parcel(convert, link);
        else
            link = &(*link)->next;
    }
}

static berth_status
keep_parcel(berthi_batch *batch, uint32_t output, uint64_t offset, const void *bytes,
            uint64_t size, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    berthi_convert_parcel *const parcel = berthi_memory_alloc(
        convert->context, BERTHI_PURPOSE_SCRATCH, sizeof *parcel + size);

    if (parcel == NULL)
        return berthi_fail_memory(error, "keeping statistics for the next shard");
    batch->parcel_bytes += size;
    *parcel = (berthi_convert_parcel){ .next = convert->parcels,
                                       .output = output,
                                       .home = batch->shard,
                                       .offset = offset,
                                       .size = size };
    memcpy(parcel + 1, bytes, size);
    convert->parcels = parcel;
    return BERTH_OK;
}

/* The place is known. */
static berth_status
write_output(berthi_batch *batch, uint32_t output, uint64_t offset, const void *bytes,
             uint64_t size, berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    const berthi_layout_tensor *const tensor = &convert->recipe.tensors[output];
    const uint32_t crc = berthi_digest_crc32(0, bytes, (size_t)size);
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_status status;

    atomic_fetch_xor(&convert->crcs[output],
                     berthi_digest_shift(crc, tensor->bytes - offset - size));
    status = berthi_writer_write(convert->writer, batch->file, bytes, size,
                                 batch->payload + tensor->offset + offset, error);
    atomic_fetch_add(&convert->write_ns, berthi_sys_now_ns() - begin_ns);
    atomic_fetch_add(&convert->written, size);
    return status;
}

/* Lock held. */
static bool
is_place_known(const berthi_batch *batch, uint32_t output)
{
    return berthi_layout_is_place_known(batch->convert->layout, output);
}

/* True when all runs before this one have announced their lengths. Lock held. */
static bool
has_heard_all(berthi_batch *batch, const berthi_run *run)
{
    const uint64_t number = (uint64_t)(run - batch->runs);

    while (batch->announced < number && batch->runs[batch->announced].is_announced)
        batch->announced++;
    return batch->announced >= number;
}

berth_status
berthi_batch_put(berthi_batch *batch, const berthi_run *run, berthi_role role,
                 uint64_t offset, const void *bytes, uint64_t size, berth_error *error)
{
    const uint32_t output = berthi_run_output(batch, run, role);
    const berthi_layout_tensor *tensor;
    berth_status status = BERTH_OK;
    bool is_written = false;

    if (size == 0 || output == UINT32_MAX)
        return BERTH_OK;
    tensor = &batch->convert->recipe.tensors[output];
    if (tensor->shard == batch->shard && batch->is_finished)
        return BERTH_OK;
    pthread_mutex_lock(&batch->lock);
    while (tensor->shard == batch->shard && !batch->is_stopped
           && !is_place_known(batch, output) && !has_heard_all(batch, run))
        pthread_cond_wait(&batch->has_changed, &batch->lock);
    if (batch->is_stopped)
        status = berthi_job_fail_cancelled(error);
    else if (tensor->shard == batch->shard && is_place_known(batch, output))
        is_written = true;
    else
        status = keep_parcel(batch, output, offset, bytes, size, error);
    pthread_mutex_unlock(&batch->lock);
    if (is_written)
        status = write_output(batch, output, offset, bytes, size, error);
    return status;
}

void
berthi_batch_announce(berthi_batch *batch, berthi_run *run, uint64_t state_bytes)
{
    const uint32_t state = berthi_run_output(batch, run, BERTHI_ROLE_STATE);

    pthread_mutex_lock(&batch->lock);
    if (state != UINT32_MAX)
        berthi_layout_set_bytes(batch->convert->layout, state, (uint32_t)state_bytes);
    run->is_announced = true;
    pthread_cond_broadcast(&batch->has_changed);
    pthread_mutex_unlock(&batch->lock);
}

/* What has been left for this shard. All its lengths are known now. */
static berth_status
write_parcels(berthi_batch *batch, berth_error *error)
{
    const berthi_convert *const convert = batch->convert;
    berth_status status = BERTH_OK;

    for (const berthi_convert_parcel *parcel = convert->parcels;
         parcel != NULL && status == BERTH_OK; parcel = parcel->next) {
        if (convert->recipe.tensors[parcel->output].shard != batch->shard)
            continue;
        if (!is_place_known(batch, parcel->output))
            return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                               "the place of a tensor is not known at the end");
        status = write_output(batch, parcel->output, parcel->offset, parcel + 1,
                              parcel->size, error);
    }
    return status;
}

/* ------------------------------------------------------------- runs and units */

/* True when the weight is to be converted with this shard. */
static bool
belongs(const berthi_batch *batch, const berthi_recipe_weight *weight)
{
    uint32_t first;
    uint32_t last;

    berthi_convert_find_shards(batch->convert, weight, &first, &last);
    return first == batch->shard && (!batch->is_finished || last > batch->shard);
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
    run->is_announced = !is_late(batch, run);
    batch->unit_count += run->units_left;
    batch->values_max = berthi_max_u64(batch->values_max, run->plan.values_max);
    batch->codes_max = berthi_max_u64(batch->codes_max, run->plan.codes_max);
    batch->maxima_max = berthi_max_u64(batch->maxima_max, run->plan.maxima_max);
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

static berth_status
list_units(berthi_batch *batch, berthi_piece *pieces, berth_error *error)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;
    uint64_t count = 0;

    for (uint32_t i = 0; i < batch->run_count; i++) {
        const berthi_run *const run = &batch->runs[i];
        const berthi_entry *const entry = &c->table.entries[run->weight->tensor];
        const uint64_t begin =
            BERTHI_HEADER_PREFIX + c->shards[entry->shard].header_bytes + entry->begin;

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
open_files(berthi_batch *batch, berth_error *error)
{
    const berth_checkpoint *const c = batch->convert->checkpoint;
    berth_status status = BERTH_OK;

    batch->files = berthi_memory_array(batch->convert->context, BERTHI_PURPOSE_CHUNKS,
                                       c->shard_count, sizeof *batch->files);
    if (batch->files == NULL)
        return berthi_fail_memory(error, "the weights of a shard");
    for (uint32_t i = 0; i < c->shard_count && status == BERTH_OK; i++) {
        const berthi_file *file;

        status = berthi_checkpoint_file(c, i, &file, error);
        if (status == BERTH_OK)
            batch->files[i] = *file;
    }
    return status;
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
    const berthi_conveyor_options conveyor = {
        .io = options->io,
        .no_uring = options->no_uring != 0,
        .readers = options->readers,
        .workers = convert->workers,
        .ring_bytes = options->ring_bytes > 0 ? options->ring_bytes : convert->sizes.ring,
    };
    const berthi_consumer consumer = { .user = batch,
                                       .consume = berthi_unit_consume,
                                       .stop = berthi_unit_stop,
                                       .is_in_turn = true };
    berthi_conveyor_stats stats = { .bytes_read = 0 };
    const berth_status status = berthi_conveyor_run(
        convert->context, convert->job, batch->files, convert->checkpoint->shard_count,
        chunks, &conveyor, &consumer, &stats, error);

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
            slack += LATE_SLACK;
    }
    return berthi_writer_create(convert->writer, name,
                                batch->payload + shard.payload_bytes + slack, &batch->file,
                                error);
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

berth_status
berthi_convert_shard(berthi_convert *convert, uint32_t shard, bool is_finished,
                     berthi_writer_file **out_file, uint64_t *out_payload,
                     berth_error *error)
{
    berthi_batch batch = { .convert = convert, .shard = shard, .is_finished = is_finished };
    berth_status status;

    *out_file = NULL;
    batch.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    batch.has_changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    status = list_runs(&batch, error);
    if (status == BERTH_OK)
        status = open_files(&batch, error);
    if (status == BERTH_OK && !is_finished)
        status = create_file(&batch, error);
    if (status == BERTH_OK && (batch.run_count > 0 || !is_finished))
        status = run_units(&batch, error);
    if (status == BERTH_OK && !is_finished)
        status = write_parcels(&batch, error);
    if (batch.parcel_bytes > 0)
        berthi_log(convert->context, BERTH_LOG_DEBUG,
                   "shard %" PRIu32 ": %" PRIu64 " bytes were kept for their places",
                   shard + 1, batch.parcel_bytes);
    if (status != BERTH_OK) {
        berthi_writer_drop(convert->writer, batch.file);
        batch.file = NULL;
    }
    *out_file = batch.file;
    *out_payload = batch.payload;
    finish_batch(&batch);
    return status;
}
