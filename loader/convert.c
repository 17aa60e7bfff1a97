/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - berth_convert_start(): what is asked for, the plan of it, and the
 * job that goes from shard to shard.
 *
 *   for each shard   an earlier run has it ─▶ adopt
 *                    else convert ─▶ divide again with the lengths now known
 *                                      other tensors: once more
 *                                      the same: header, finish
 */
#include "kernels/number.h"
#include "loader/berth.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/host.h"
#include "kernels/sys.h"
#include "loader/convert_job.h"
#include "loader/part.h"
#include "loader/stranded.h"
#include "loader/writer_parts.h"
#include "quant/format.h"
#include "quant/json_text.h"

#define DEFAULT_BLOCK_SIZE 64u
#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)
/* Smaller ones would be shorter than the tables beside a weight. */
#define MIN_SHARD_BYTES UINT64_C(4096)

/*
 * What a unit reads, widened to whole pages on both sides, and what it makes of
 * that fill a buffer of 4 MiB and no more: the kernel gives memory in pages of
 * 2 MiB where it can, and one byte behind the last would cost another.
 */
const berthi_convert_sizes berthi_convert_default_sizes = {
    .unit_bytes = (UINT64_C(4) << 20) - 8192,
    .unit_values = (UINT64_C(2) << 20) - 4096,
    .unit_values_max = UINT64_C(256) << 20,
    .strip = UINT64_C(32) << 20,
    .pool = UINT64_C(40) << 20,
    .workers = UINT64_C(56) << 20,
    .ring = BERTHI_RING_BYTES,
    .parcels = UINT64_C(64) << 20,
    .patience_ns = UINT64_C(30000000000),
};

/* ------------------------------------------------------------------ one shard */

/* As often as the lengths that are found out change what belongs to the shard. */
static berth_status
convert_anew(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    for (;;) {
        berthi_writer_file *file;
        uint64_t payload;
        uint32_t first;
        berth_status status =
            berthi_convert_shard(convert, shard, &file, &payload, error);

        if (status != BERTH_OK)
            return status;
        status = berthi_layout_divide(convert->layout, &first, error);
        if (status == BERTH_OK && first > shard)
            status = berthi_convert_complete(convert, shard, file, payload, error);
        if (status != BERTH_OK || first <= shard)
            berthi_writer_drop(convert->writer, file);
        if (status != BERTH_OK || first > shard)
            return status;
        berthi_log(convert->context, BERTH_LOG_DEBUG,
                   "shard %" PRIu32 " is converted once more: it gets other tensors",
                   shard + 1);
        berthi_convert_drop_parcels_from(convert, shard);
    }
}

berth_status
berthi_convert_reserve_done(berthi_convert *convert, uint32_t shards, berth_error *error)
{
    const uint32_t old = convert->done_capacity;
    const uint32_t capacity = shards + 63;
    berthi_convert_done *larger;

    if (shards <= old)
        return BERTH_OK;
    larger = berthi_memory_array(convert->context, BERTHI_PURPOSE_DOCUMENT, capacity,
                                 sizeof *larger);
    if (larger == NULL)
        return berthi_fail_memory(error, "the list of finished shards");
    if (old > 0)
        memcpy(larger, convert->done, old * sizeof *larger);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, convert->done,
                       old * sizeof *larger);
    convert->done = larger;
    convert->done_capacity = capacity;
    return BERTH_OK;
}

static berth_status
make_shard(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berthi_writer_file *file;
    berth_status status = berthi_convert_reserve_done(convert, shard + 1, error);

    if (status != BERTH_OK)
        return status;
    file = berthi_convert_find_finished(convert, shard);
    if (file != NULL) {
        status = berthi_convert_adopt(convert, shard, file, error);
        if (status == BERTH_OK)
            status = berthi_convert_later(convert, shard, error);
        if (status == BERTH_OK)
            status = berthi_layout_divide(convert->layout, NULL, error);
    } else {
        status = convert_anew(convert, shard, error);
    }
    berthi_convert_drop_parcels_for(convert, shard);
    return status;
}

/* ------------------------------------------------------------------ the job */

static berth_status
make_shards(berthi_convert *convert, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0;
         i < berthi_layout_shard_count(convert->layout) && status == BERTH_OK; i++)
        status = make_shard(convert, i, error);
    return status;
}

/* How many there are is certain only now. */
static berth_status
name_shards(berthi_convert *convert, berth_error *error)
{
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        berthi_writer_file *const file = convert->done[i].file;
        char name[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(i, count, name);
        if (strcmp(file->name, name) != 0)
            status = berthi_writer_rename(convert->writer, file, name, error);
    }
    return status;
}

/* `last`: the file that makes a checkpoint of the others; NULL: as was decided before. */
static berth_status
publish(berthi_convert *convert, const char *last, berth_error *error)
{
    /* What was there before is gone then: a cancel comes too late. */
    if (!berthi_job_commit(convert->job))
        return berthi_job_fail_cancelled(error);
    return berthi_writer_publish(convert->writer, last, error);
}

static berth_status
publish_shards(berthi_convert *convert, berth_error *error)
{
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    char single[BERTHI_LAYOUT_NAME];
    const berth_status status = name_shards(convert, error);

    berthi_layout_shard_name(0, 1, single);
    return status == BERTH_OK
               ? publish(convert, count == 1 ? single : BERTHI_CONVERT_INDEX, error)
               : status;
}

static berth_status
make_all_shards(berthi_convert *convert, berth_error *error)
{
    const berth_status status = berthi_writer_check_space(
        convert->writer, berthi_convert_missing_bytes(convert), error);

    return status == BERTH_OK ? make_shards(convert, error) : status;
}

static berth_status
write_everything(berthi_convert *convert, berth_error *error)
{
    berth_status status = convert->part_of != NULL ? berthi_part_join(convert, error)
                                                   : make_all_shards(convert, error);

    if (status == BERTH_OK)
        status = berthi_convert_add_files(convert, error);
    if (status == BERTH_OK)
        status = publish_shards(convert, error);
    return status;
}

static double
seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* Where the time went: whoever was never waited for has held up the others. */
static void
fill_report(berthi_convert *convert, uint64_t begin_ns)
{
    berth_convert_report *const report = &convert->report;
    const uint64_t all_ns = berthi_sys_now_ns() - begin_ns;
    const uint64_t write_ns = atomic_load(&convert->write_ns);

    report->seconds = seconds(all_ns);
    report->write_seconds = seconds(write_ns);
    report->convert_seconds =
        seconds(convert->work_ns - berthi_min_u64(write_ns, convert->work_ns));
    report->read_seconds =
        seconds(all_ns - berthi_min_u64(convert->wait_ns, all_ns));
    report->bottleneck = convert->wait_ns * 2 < all_ns ? BERTH_CONVERT_BY_READS
                         : report->convert_seconds >= report->write_seconds
                             ? BERTH_CONVERT_BY_ENCODING
                             : BERTH_CONVERT_BY_WRITES;
    report->bytes_read += atomic_load(&convert->companions_read);
    report->bytes_written = atomic_load(&convert->written);
    report->shards = berthi_layout_shard_count(convert->layout);
    report->tensors_written = berthi_layout_tensor_count(convert->layout);
    if (convert->options.report != NULL)
        *convert->options.report = *report;
}

static berth_status
open_writer(berthi_convert *convert, uint32_t part, berth_error *error)
{
    const berthi_writer_options options = {
        .job = convert->identity,
        .overwrite = convert->options.overwrite != 0,
        .resume = convert->options.resume != 0,
        .part_count = convert->options.part_count,
        .part = part,
    };

    return berthi_writer_open(convert->context, convert->options.output, &options,
                              &convert->writer, error);
}

static void
close_writer(berthi_convert *convert)
{
    if (convert->writer != NULL)
        convert->has_kept = convert->has_kept || berthi_writer_has_finished(convert->writer);
    berthi_writer_close(convert->writer);
    convert->writer = NULL;
}

/* Goes on with what is there, if that is allowed, or begins; or joins parts. */
static berth_status
run_writer(berthi_convert *convert, berth_error *error)
{
    berth_status status = open_writer(convert, 0, error);

    if (status == BERTH_OK && berthi_writer_is_complete(convert->writer))
        status = publish(convert, NULL, error);
    else if (status == BERTH_OK)
        status = write_everything(convert, error);
    convert->report.is_joined = status == BERTH_OK && convert->part_of != NULL;
    close_writer(convert);
    return status;
}

/*
 * Lets go of the folder; *out_is_last: everything is finished. Whoever finished
 * while this part had the folder may have found it taken and gone: so this one
 * counts again. Where it counts more than before, others have joined meanwhile.
 */
static berth_status
leave(berthi_convert *convert, bool *out_is_last, berth_error *error)
{
    const berth_convert_report before = convert->report;
    berth_status status = BERTH_OK;

    *out_is_last = false;
    if (!berthi_writer_let_go(convert->writer))
        return BERTH_OK;
    if (before.parts_missing > 0)
        status = berthi_part_count(convert, error);
    if (status != BERTH_OK || convert->report.parts_missing > before.parts_missing)
        convert->report = before;
    *out_is_last = status == BERTH_OK && convert->report.parts_missing == 0;
    return status;
}

/*
 * Joins, where this part was the last. Who finds the folder taken was not; of
 * those that were, one gets it first, and has done everything for who comes next.
 */
static berth_status
join_as_last(berthi_convert *convert, berth_error *error)
{
    const berth_convert_report before = convert->report;
    berth_error details;
    bool is_there = false;
    berth_status status = berthi_part_forget(convert, &details);

    if (status == BERTH_OK)
        status = run_writer(convert, &details);
    if (status == BERTH_OK)
        return BERTH_OK;
    if (details.reason == BERTH_REASON_EXISTS || details.reason == BERTH_REASON_PARTS)
        (void)berthi_convert_find_result(convert, &is_there, NULL);
    convert->report = before;
    if (is_there || details.reason == BERTH_REASON_BUSY)
        return BERTH_OK;
    *error = details;
    return status;
}

static berth_status
run_part(berthi_convert *convert, berth_error *error)
{
    bool is_last = false;
    berth_status status = open_writer(convert, convert->options.part, error);

    if (status == BERTH_OK && berthi_writer_is_joining(convert->writer)) {
        close_writer(convert);
        return run_writer(convert, error);
    }
    if (status == BERTH_OK)
        status = berthi_part_run(convert, error);
    if (status == BERTH_OK)
        status = berthi_part_count(convert, error);
    if (status == BERTH_OK)
        status = leave(convert, &is_last, error);
    close_writer(convert);
    return is_last ? join_as_last(convert, error) : status;
}

static berth_status
run_convert(berth_job *job, void *user, berth_error *error)
{
    berthi_convert *const convert = user;
    const uint64_t begin_ns = berthi_sys_now_ns();
    bool is_there = false;
    berth_status status = BERTH_OK;

    convert->job = job;
    if (convert->options.resume != 0 || convert->options.join != 0)
        status = berthi_convert_find_result(convert, &is_there, error);
    if (status == BERTH_OK && !is_there && convert->options.join && convert->part_of == NULL)
        status = berthi_part_fail_none(convert, error); /* it was there a moment ago */
    if (status == BERTH_OK && !is_there)
        status = convert->options.part > 0 ? run_part(convert, error)
                                           : run_writer(convert, error);
    if (status == BERTH_OK && !berthi_job_commit(job))
        status = BERTH_ECANCELLED; /* a part is finished, and counts */
    if (status == BERTH_ECANCELLED)
        status = berthi_fail(error, BERTH_REASON_CANCELLED, NULL, "%s",
                             convert->has_kept
                                 ? "cancelled; finished shards are kept for --resume"
                                 : "cancelled before a shard was finished");
    fill_report(convert, begin_ns);
    return status;
}

/* Nothing is written: the report tells what would be. */
static berth_status
run_nothing(berth_job *job, void *user, berth_error *error)
{
    berthi_convert *const convert = user;

    (void)job;
    (void)error;
    fill_report(convert, berthi_sys_now_ns());
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- plan */

static void
drop_nonfinite(berthi_convert *convert)
{
    while (convert->nonfinite != NULL) {
        berthi_convert_nonfinite *const first = convert->nonfinite;

        convert->nonfinite = first->next;
        berthi_memory_free(convert->context, BERTHI_PURPOSE_OBJECT, first, sizeof *first);
    }
}

static void
destroy_convert(void *user)
{
    berthi_convert *const convert = user;
    berth_context *const context = convert->context;

    berthi_writer_close(convert->writer);
    berthi_convert_drop_all_parcels(convert);
    drop_nonfinite(convert);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, convert->identity,
                       convert->identity_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, convert->done,
                       convert->done_capacity * sizeof *convert->done);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, convert->crcs,
                       convert->recipe.output_count * sizeof *convert->crcs);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, convert->is_nonfinite,
                       convert->recipe.weight_count * sizeof *convert->is_nonfinite);
    berthi_convert_free_sources(convert);
    berthi_part_free(convert);
    berthi_layout_destroy(convert->layout);
    berthi_recipe_fini(&convert->recipe);
    if (convert->location.context != NULL)
        berthi_location_fini(&convert->location);
    berthi_arena_fini(&convert->texts);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, convert, sizeof *convert);
}

/* Texts that are needed after the call that gave them. False: out of memory. */
static bool
copy_texts(berthi_convert *convert)
{
    berth_convert_options *const options = &convert->options;
    berthi_arena *const texts = &convert->texts;
    const char **const skips = berthi_arena_alloc(
        texts, options->skip_count * sizeof *skips, sizeof *skips);
    bool is_complete = skips != NULL;

    if (options->output != NULL) {
        options->output = berthi_arena_text(texts, options->output, strlen(options->output));
        is_complete = is_complete && options->output != NULL;
    }
    if (options->compute_dtype != NULL) {
        options->compute_dtype =
            berthi_arena_text(texts, options->compute_dtype, strlen(options->compute_dtype));
        is_complete = is_complete && options->compute_dtype != NULL;
    }
    for (uint32_t i = 0; i < options->skip_count && is_complete; i++) {
        const char *const skip = options->skip_modules[i];

        skips[i] = berthi_arena_text(texts, skip, strlen(skip));
        is_complete = skips[i] != NULL;
    }
    options->skip_modules = skips;
    return is_complete;
}

berth_status
berthi_convert_divide_anew(berthi_convert *convert, berth_error *error)
{
    berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_options options = {
        .max_shard_bytes = convert->options.max_shard_bytes,
        .pairs = berthi_layout_format,
        .pair_count = 1,
    };

    berthi_layout *layout;
    const berth_status status =
        berthi_layout_create(convert->context, recipe->tensors, recipe->output_count,
                             &options, &layout, error);

    /* The one before stays after a failure: the report counts its shards. */
    if (status != BERTH_OK)
        return status;
    berthi_layout_destroy(convert->layout);
    convert->layout = layout;
    return BERTH_OK;
}

static berth_status
lay_out(berthi_convert *convert, berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berth_status status = berthi_convert_divide_anew(convert, error);

    if (status != BERTH_OK)
        return status;
    convert->crcs =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             recipe->output_count * sizeof *convert->crcs);
    convert->is_nonfinite =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             recipe->weight_count * sizeof *convert->is_nonfinite);
    return convert->crcs != NULL && convert->is_nonfinite != NULL
                   && berthi_convert_alloc_sources(convert)
               ? BERTH_OK
               : berthi_fail_memory(error, "starting a conversion");
}

static uint32_t
choose_workers(const berthi_convert *convert)
{
    const uint32_t wanted = convert->options.workers > 0
                                ? convert->options.workers
                                : berthi_conveyor_workers(convert->scratch.device > 0);
    const uint64_t fit = convert->sizes.workers / berthi_max_u64(convert->unit_memory, 1);

    return (uint32_t)berthi_max_u64(berthi_min_u64(wanted, fit), 1);
}

static void
plan(berthi_convert *convert)
{
    berth_convert_report *const report = &convert->report;
    const berthi_recipe *const recipe = &convert->recipe;
    berth_memory_summary memory;

    berth_context_memory(convert->context, &memory);
    convert->workers = choose_workers(convert);
    report->planned_bytes = berthi_layout_total_bytes(convert->layout);
    report->planned_memory = memory.current_bytes + convert->ring_memory
                             + convert->run_memory + convert->table_memory
                             + convert->workers * convert->unit_memory;
    report->device_memory = convert->workers * convert->scratch.device;
    report->quantized = recipe->quantized_count;
    report->kept = recipe->kept_count;
    report->parameters = recipe->parameters;
    report->shards = berthi_layout_shard_count(convert->layout);
    if (recipe->rules != NULL)
        report->coverage = berthi_coverage_share(&recipe->coverage);
}

/* What is no model by itself would become one that nobody can use. */
static berth_status
check_model(const berthi_convert *convert, berth_error *error)
{
    const berthi_about about = { .file = convert->checkpoint->path };

    if (!convert->checkpoint->is_adapter)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                       "is an adapter, not a model by itself: merge it into its model "
                       "first");
}

/* Host memory is the processor's: nothing has to be copied there. */
static void
find_device(berthi_convert *convert)
{
    const berth_convert_options *const options = &convert->options;
    berthi_device_properties properties;
    berthi_device *device;

    convert->device_wait_ns = berthi_wait_ns(options->wait_ms);
    if (options->devices == NULL)
        return;
    device = berthi_devices_at(options->devices, options->device);
    device->table->describe(device, &properties);
    convert->device = properties.is_host ? NULL : device;
}

/* What lies beside a shard of a model that was opened as a whole is the model's. */
static berth_status
open_source(berthi_convert *convert, berth_error *error)
{
    const berthi_location *const opened = &convert->checkpoint->location;
    const bool is_folder = convert->checkpoint->path == opened->folder_path;

    return berthi_location_init_again(&convert->location, convert->context, opened,
                                      is_folder ? NULL : opened->file, error);
}

static berth_status
prepare(berthi_convert *convert, berth_error *error)
{
    berth_status status = check_model(convert, error);

    if (status != BERTH_OK)
        return status;
    find_device(convert);
    if (!copy_texts(convert))
        return berthi_fail_memory(error, "starting a conversion");
    status = open_source(convert, error);
    if (status == BERTH_OK)
        status = berthi_recipe_init(&convert->recipe, convert->context, convert->checkpoint,
                                    &convert->options, error);
    if (status == BERTH_OK)
        status = lay_out(convert, error);
    if (status == BERTH_OK)
        status = berthi_convert_identify(convert, error);
    if (status == BERTH_OK && (convert->options.part_count > 0 || convert->options.join))
        status = berthi_part_assign(convert, error);
    if (status == BERTH_OK)
        status = berthi_convert_measure(convert, error);
    if (status == BERTH_OK)
        status = berthi_convert_find_files(convert, error);
    if (status == BERTH_OK)
        status = berthi_convert_check_output(convert, error);
    if (status != BERTH_OK)
        return status;
    plan(convert);
    berthi_convert_remark(convert);
    berthi_recipe_tell(&convert->recipe, convert->options.coverage,
                       convert->options.coverage_user);
    return BERTH_OK;
}

/* ----------------------------------------------------------------- interface */

static const char *
find_mistake(const berth_convert_options *options)
{
    if (options->output == NULL || options->output[0] == '\0')
        return "has no output";
    if (options->type < BERTH_ENCODING_NATIVE || options->type > BERTH_ENCODING_INT8)
        return "has a type that nothing can be converted to";
    if (options->dtype != -1 && !berthi_is_number(options->dtype))
        return "has a dtype that models are not loaded as";
    if (!berthi_format_is_block_size(options->block_size))
        return "has a block_size that is no power of two from 32 to 4096";
    if (options->min_coverage > BERTHI_WHOLE)
        return "has a min_coverage of more than all";
    if (options->max_shard_bytes < MIN_SHARD_BYTES)
        return "has shards of less than 4096 bytes";
    if (options->io < BERTH_IO_AUTO || options->io > BERTH_IO_BUFFERED)
        return "has an unknown io";
    if (options->devices != NULL
        && options->device >= berthi_devices_count(options->devices))
        return "has a device that is none of its devices";
    if (!berthi_texts_are_there(options->keep, options->keep_count)
        || !berthi_texts_are_there(options->only, options->only_count)
        || !berthi_texts_are_there(options->skip_modules, options->skip_count))
        return "has a text of keep, only or skip_modules that is NULL";
    if (options->part_count > BERTHI_WRITER_PARTS_MAX)
        return "has more than 10000 parts";
    if (options->part > options->part_count)
        return "has a part above its part_count";
    if (options->part > 0 && options->join)
        return "is of a part and of a join";
    if (options->part_count > 0 && options->part == 0 && !options->join)
        return "has a part_count, and neither a part nor a join";
    return NULL;
}

static void
set_defaults(berth_convert_options *options)
{
    if (options->block_size == 0)
        options->block_size = DEFAULT_BLOCK_SIZE;
    if (options->max_shard_bytes == 0)
        options->max_shard_bytes = DEFAULT_SHARD_BYTES;
    if (options->storage == -1)
        options->storage = BERTH_U8;
}

static berth_status
create_convert(berth_context *context, const berth_checkpoint *checkpoint,
               const berth_convert_options *options, const berthi_convert_sizes *sizes,
               berthi_convert **out, berth_error *error)
{
    berthi_convert *const convert =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *convert);
    berth_status status;

    *out = NULL;
    if (convert == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    convert->context = context;
    convert->checkpoint = checkpoint;
    convert->options = *options;
    convert->sizes = *sizes;
    convert->operations = berthi_level_operations(convert->context->level);
    berthi_arena_init(&convert->texts, context, BERTHI_PURPOSE_OBJECT, 1024);
    status = prepare(convert, error);
    if (status == BERTH_OK)
        *out = convert;
    else
        destroy_convert(convert);
    return status;
}

berth_status
berthi_convert_start(berth_context *context, berth_checkpoint *checkpoint,
                     const berth_convert_options *options,
                     const berthi_convert_sizes *sizes, berth_job **out_job,
                     berth_error *error)
{
    berth_convert_options mine;
    berth_error ignored;
    const char *mistake;
    berthi_convert *convert;
    berth_status status;

    if (error == NULL)
        error = &ignored; /* what failed decides what is done next */
    berthi_error_clear(error);
    if (out_job == NULL)
        return berthi_fail_argument(error, "out_job", "is NULL");
    *out_job = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    status = berthi_options_take(&mine, sizeof mine, options, "options", error);
    if (status != BERTH_OK)
        return status;
    set_defaults(&mine);
    mistake = find_mistake(&mine);
    if (mistake != NULL)
        return berthi_fail_argument(error, "options", mistake);
    status = create_convert(context, checkpoint, &mine, sizes, &convert, error);
    if (status != BERTH_OK)
        return status;
    /* From here on the job owns it, also when it cannot be started. */
    return berthi_job_start(
        context,
        &(berthi_job_work){ .run = mine.dry_run ? run_nothing : run_convert,
                            .fini = destroy_convert,
                            .user = convert,
                            .phase = mine.type == BERTH_ENCODING_NATIVE ? "dequantize"
                                                                        : "quantize",
                            .total = mine.dry_run || mine.join ? 0 : convert->total,
                            .progress = mine.progress,
                            .progress_user = mine.progress_user },
        out_job, error);
}

berth_status
berth_convert_start(berth_context *context, berth_checkpoint *checkpoint,
                    const berth_convert_options *options, berth_job **out_job,
                    berth_error *error)
{
    return berthi_convert_start(context, checkpoint, options,
                                &berthi_convert_default_sizes, out_job, error);
}
