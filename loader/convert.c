/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - berth_convert_start(): what is asked for, and the plan of it. */
#include "loader/convert_job.h"

#include <string.h>

#include "kernels/number.h"
#include "loader/part.h"
#include "loader/stranded.h"
#include "loader/writer_parts.h"
#include "quant/format.h"

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
    berthi_convert_fini_sources(convert);
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
               ? berthi_convert_init_sources(convert, error)
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
    const berth_checkpoint *const checkpoint = convert->checkpoint;

    if (checkpoint->is_adapter && !checkpoint->is_in_pieces)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .file = checkpoint->path },
                           "is an adapter, not a model by itself: merge it into its model "
                           "first");
    return berthi_checkpoint_check_values(checkpoint, error);
}

/* Host memory is the processor's: nothing has to be copied there. */
static berth_status
find_device(berthi_convert *convert, berth_error *error)
{
    const berth_convert_options *const options = &convert->options;
    berthi_device_properties properties;
    berthi_device *device;

    convert->patience_ns = berthi_wait_ns(options->wait_ms);
    if (options->devices == NULL)
        return BERTH_OK;
    device = berthi_devices_at(options->devices, options->device);
    device->table->describe(device, &properties);
    convert->device = properties.is_host ? NULL : device;
    return berthi_devices_visit(options->devices, convert->context, error);
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

    if (status == BERTH_OK)
        status = find_device(convert, error);
    if (status != BERTH_OK)
        return status;
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
    if (status == BERTH_OK)
        status = berthi_convert_read_promises(convert, error);
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
    if (options->double_quant != 0 && !berthi_format_is_4bit(options->type))
        return "has double_quant, which is for nf4 and fp4";
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
    if (options->verify < BERTH_LOAD_VERIFY_AUTO || options->verify > BERTH_LOAD_VERIFY_NONE)
        return "has an unknown verify";
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
    status = berthi_job_check_start(context, "context", out_job, error);
    if (status == BERTH_OK && checkpoint == NULL)
        status = berthi_fail_argument(error, "checkpoint", "is NULL");
    if (status == BERTH_OK)
        status = berthi_options_take(&mine, sizeof mine, sizeof mine, options,
                                     "options", error);
    if (status == BERTH_OK)
        status = berthi_options_check(mine.reserved32, "options", error);
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
        &(berthi_job_work){ .run = mine.dry_run ? berthi_convert_run_dry
                                                : berthi_convert_run,
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
