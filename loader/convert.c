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
#include "loader/berth.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/host.h"
#include "kernels/sys.h"
#include "loader/convert_job.h"
#include "loader/digest.h"
#include "quant/format.h"
#include "quant/json_text.h"

#define DEFAULT_BLOCK_SIZE 64u
#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)
/* Smaller ones would be shorter than the tables beside a weight. */
#define MIN_SHARD_BYTES UINT64_C(4096)
/* Scratch of all workers: fewer work when units are large. */
#define WORKERS_MEMORY (UINT64_C(96) << 20)

/* ------------------------------------------------------------------- identity */

static void
spell_words(berthi_json_text *text, const char *name, const char *const *words,
            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        berthi_json_text_add_words(text, name);
        berthi_json_text_add_words(text, " ");
        berthi_json_text_add_escaped(text, words[i], strlen(words[i]), BERTHI_JSON_ASCII);
        berthi_json_text_add_words(text, "\n");
    }
}

static void
spell_number(berthi_json_text *text, const char *name, uint64_t number)
{
    berthi_json_text_add_words(text, name);
    berthi_json_text_add_words(text, " ");
    berthi_json_text_add_number(text, number);
    berthi_json_text_add_words(text, "\n");
}

/* The decisions, whatever rules, globs and release they come from. */
static uint32_t
digest_recipe(const berthi_convert *convert)
{
    const berthi_recipe *const recipe = &convert->recipe;
    uint32_t crc = 0;

    for (uint32_t i = 0; i < recipe->weight_count; i++) {
        const berthi_recipe_weight *const weight = &recipe->weights[i];
        const int32_t decided[] = { weight->storage.encoding, weight->storage.dtype,
                                    weight->is_turned };

        crc = berthi_digest_crc32(crc, weight->name, weight->name_length + 1);
        crc = berthi_digest_crc32(crc, decided, sizeof decided);
    }
    return crc;
}

/* What a resumed run must be the same in, a line each. */
static berth_status
spell_identity(const berthi_convert *convert, berthi_json_put put, void *user,
               uint64_t *out_bytes, berth_error *error)
{
    const berth_convert_options *const options = &convert->options;
    const berth_checkpoint *const c = convert->checkpoint;
    const char *const type = berth_encoding_name(options->type);
    berthi_json_text text;

    berthi_json_text_begin(&text, put, user, error);
    spell_words(&text, "type", &type, 1);
    if (options->type != BERTH_ENCODING_NATIVE) {
        const char *const storage = berth_dtype_name(options->storage);

        spell_number(&text, "block size", options->block_size);
        spell_number(&text, "double quantization", options->double_quant != 0);
        spell_words(&text, "storage", &storage, 1);
        if (options->has_skips)
            spell_number(&text, "modules to skip", options->skip_count);
        spell_words(&text, "module to skip", options->skip_modules, options->skip_count);
    }
    if (options->compute_dtype != NULL)
        spell_words(&text, "compute dtype", &options->compute_dtype, 1);
    spell_number(&text, "bytes of a shard", options->max_shard_bytes);
    spell_number(&text, "decisions", digest_recipe(convert));
    for (uint32_t i = 0; i < c->shard_count; i++) {
        spell_words(&text, "source", &c->shards[i].name, 1);
        spell_number(&text, "bytes", c->shards[i].file.identity.bytes);
        spell_number(&text, "modified",
                     (uint64_t)c->shards[i].file.identity.mtime_ns);
    }
    return berthi_json_text_end(&text, out_bytes);
}

static berth_status
put_identity(void *user, const char *bytes, uint64_t size, uint64_t offset,
             berth_error *error)
{
    char *const text = user;

    (void)error;
    memcpy(text + offset, bytes, size);
    return BERTH_OK;
}

static berth_status
make_identity(berthi_convert *convert, berth_error *error)
{
    berth_status status =
        spell_identity(convert, NULL, NULL, &convert->identity_bytes, error);

    if (status != BERTH_OK)
        return status;
    convert->identity_bytes++; /* NUL */
    convert->identity = berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_DOCUMENT,
                                             convert->identity_bytes);
    if (convert->identity == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    return spell_identity(convert, put_identity, convert->identity, NULL, error);
}

/* --------------------------------------------------------------- one shard */

/* The header of a shard, checked against a file or written into it. */
typedef struct header_copy {
    berthi_convert *convert;
    berthi_writer_file *file;
    bool is_check;
    bool is_other; /* than what the file holds */
    uint32_t crc;
} header_copy;

static berth_status
put_header(void *user, const char *bytes, uint64_t size, uint64_t offset,
           berth_error *error)
{
    header_copy *const copy = user;
    char found[BERTHI_JSON_TEXT_BUFFER];
    uint64_t done = 0;
    berth_status status = BERTH_OK;

    copy->crc = berthi_digest_crc32(copy->crc, bytes, (size_t)size);
    if (!copy->is_check)
        return berthi_writer_write(copy->convert->writer, copy->file, bytes, size, offset,
                                   error);
    while (done < size && status == BERTH_OK) {
        const uint64_t part = berthi_min_u64(size - done, sizeof found);

        status = berthi_writer_read(copy->convert->writer, copy->file, found, part,
                                    offset + done, error);
        if (status == BERTH_OK && memcmp(found, bytes + done, part) != 0)
            copy->is_other = true;
        done += part;
    }
    return status;
}

/*
 * Notes of a finished shard: how many late lengths, then each as output and
 * bytes, then the crc32 of each tensor in the order of their bytes.
 */
static uint32_t *
make_notes(const berthi_convert *convert, const berthi_layout_shard *shard,
           uint64_t *out_count)
{
    const berthi_recipe *const recipe = &convert->recipe;
    uint32_t *const notes =
        berthi_memory_array(convert->context, BERTHI_PURPOSE_DOCUMENT,
                            1 + (uint64_t)shard->tensor_count * 3, sizeof *notes);
    uint64_t count = 1;

    if (notes == NULL)
        return NULL;
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        const uint32_t output = shard->tensors[i];

        if (recipe->outputs[output].role != BERTHI_ROLE_STATE)
            continue;
        notes[count++] = output;
        notes[count++] = (uint32_t)recipe->tensors[output].bytes;
    }
    notes[0] = (uint32_t)(count / 2);
    for (uint32_t i = 0; i < shard->tensor_count; i++)
        notes[count++] = atomic_load(&convert->crcs[shard->tensors[i]]);
    *out_count = count;
    return notes;
}

/* The payload lies at `payload`: puts the header before it and makes it last. */
static berth_status
complete(berthi_convert *convert, uint32_t number, berthi_writer_file *file,
         uint64_t payload, berth_error *error)
{
    const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, number);
    const uint64_t begin = BERTHI_HEADER_PREFIX + shard.header_bytes;
    header_copy copy = { .convert = convert, .file = file };
    uint32_t *notes;
    uint64_t count = 0;
    berth_status status = BERTH_OK;

    if (begin != payload)
        status = berthi_writer_move(convert->writer, file, payload, begin,
                                    shard.payload_bytes, error);
    if (status == BERTH_OK)
        status = berthi_layout_write_header(convert->layout, number, put_header, &copy,
                                            error);
    if (status != BERTH_OK)
        return status;
    convert->done[number] = (berthi_convert_done){ file, copy.crc };
    notes = make_notes(convert, &shard, &count);
    if (notes == NULL)
        return berthi_fail_memory(error, "finishing a shard");
    status = berthi_writer_finish(convert->writer, file, begin + shard.payload_bytes,
                                  notes, count, error);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, notes,
                       (1 + (uint64_t)shard.tensor_count * 3) * sizeof *notes);
    return status;
}

static berth_status
fail_adoption(const berthi_writer_file *file, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_JOURNAL, &(berthi_about){ .file = file->name },
                       "is not what the journal of the interrupted run says");
}

/* Takes over a shard that an earlier run has finished. */
static berth_status
adopt(berthi_convert *convert, uint32_t number, berthi_writer_file *file,
      berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const uint64_t lates = file->note_count > 0 ? file->notes[0] : 0;
    header_copy copy = { .convert = convert, .file = file, .is_check = true };
    berthi_layout_shard shard;
    berth_status status;

    if (file->note_count < 1 + lates * 2)
        return fail_adoption(file, error);
    for (uint64_t i = 0; i < lates; i++) {
        const uint32_t output = file->notes[1 + i * 2];

        if (output >= recipe->output_count
            || recipe->outputs[output].role != BERTHI_ROLE_STATE)
            return fail_adoption(file, error);
        if (recipe->tensors[output].is_late)
            berthi_layout_set_bytes(convert->layout, output, file->notes[2 + i * 2]);
    }
    status = berthi_layout_divide(convert->layout, NULL, error);
    if (status != BERTH_OK)
        return status;
    shard = berthi_layout_shard_at(convert->layout, number);
    if (file->note_count != 1 + lates * 2 + shard.tensor_count
        || file->bytes != BERTHI_HEADER_PREFIX + shard.header_bytes + shard.payload_bytes)
        return fail_adoption(file, error);
    status = berthi_layout_write_header(convert->layout, number, put_header, &copy, error);
    if (status != BERTH_OK)
        return status;
    if (copy.is_other)
        return fail_adoption(file, error);
    for (uint32_t i = 0; i < shard.tensor_count; i++)
        atomic_store(&convert->crcs[shard.tensors[i]], file->notes[1 + lates * 2 + i]);
    convert->done[number] = (berthi_convert_done){ file, copy.crc };
    convert->report.bytes_resumed += file->bytes;
    return BERTH_OK;
}

/* True and *out set when an earlier run has finished this shard. */
static bool
has_finished(const berthi_convert *convert, uint32_t shard, berthi_writer_file **out)
{
    char name[BERTHI_LAYOUT_NAME];

    berthi_layout_shard_name(shard, berthi_layout_shard_count(convert->layout), name);
    *out = berthi_writer_find(convert->writer, name);
    return *out != NULL && (*out)->is_finished;
}

/* As often as the lengths that are found out change what belongs to the shard. */
static berth_status
convert_anew(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    for (;;) {
        berthi_writer_file *file;
        uint64_t payload;
        uint32_t first;
        berth_status status =
            berthi_convert_shard(convert, shard, false, &file, &payload, error);

        if (status != BERTH_OK)
            return status;
        status = berthi_layout_divide(convert->layout, &first, error);
        if (status == BERTH_OK && first > shard)
            status = complete(convert, shard, file, payload, error);
        if (status != BERTH_OK || first <= shard)
            berthi_writer_drop(convert->writer, file);
        if (status != BERTH_OK || first > shard)
            return status;
        berthi_convert_drop_parcels(convert, true, shard);
    }
}

/* Room for one more. */
static bool
can_note(berthi_convert *convert, uint32_t shard)
{
    const uint32_t old = convert->done_capacity;
    const uint32_t capacity = shard + 64;
    berthi_convert_done *larger;

    if (shard < old)
        return true;
    larger = berthi_memory_array(convert->context, BERTHI_PURPOSE_DOCUMENT, capacity,
                                 sizeof *larger);
    if (larger == NULL)
        return false;
    if (old > 0)
        memcpy(larger, convert->done, old * sizeof *larger);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, convert->done,
                       old * sizeof *larger);
    convert->done = larger;
    convert->done_capacity = capacity;
    return true;
}

static berth_status
make_shard(berthi_convert *convert, uint32_t shard, berth_error *error)
{
    berthi_writer_file *file;
    uint64_t payload;
    berth_status status;

    if (!can_note(convert, shard))
        return berthi_fail_memory(error, "the list of finished shards");
    if (has_finished(convert, shard, &file)) {
        status = adopt(convert, shard, file, error);
        if (status == BERTH_OK)
            status = berthi_convert_shard(convert, shard, true, &file, &payload, error);
    } else {
        status = convert_anew(convert, shard, error);
    }
    berthi_convert_drop_parcels(convert, false, shard);
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

static berth_status
publish(berthi_convert *convert, berth_error *error)
{
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    char single[BERTHI_LAYOUT_NAME];
    berth_status status = name_shards(convert, error);

    berthi_layout_shard_name(0, 1, single);
    if (status == BERTH_OK && !berthi_job_can_commit(convert->job))
        status = berthi_job_fail_cancelled(error);
    if (status == BERTH_OK)
        status = berthi_writer_publish(convert->writer,
                                       count == 1 ? single : BERTHI_CONVERT_INDEX, error);
    return status;
}

static berth_status
write_everything(berthi_convert *convert, berth_error *error)
{
    const uint64_t bytes = convert->report.planned_bytes;
    berth_status status = berthi_writer_check_space(convert->writer, bytes, error);

    if (status == BERTH_OK)
        status = make_shards(convert, error);
    if (status == BERTH_OK)
        status = berthi_convert_add_files(convert, error);
    if (status == BERTH_OK)
        status = publish(convert, error);
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
    report->bottleneck = convert->wait_ns * 2 < all_ns                      ? 0
                         : report->convert_seconds >= report->write_seconds ? 1
                                                                            : 2;
    report->bytes_written = atomic_load(&convert->written);
    report->shards = berthi_layout_shard_count(convert->layout);
    report->tensors_written = berthi_layout_tensor_count(convert->layout);
    if (convert->options.report != NULL)
        *convert->options.report = *report;
}

static berth_status
run_convert(berth_job *job, void *user, berth_error *error)
{
    berthi_convert *const convert = user;
    const uint64_t begin_ns = berthi_sys_now_ns();
    const berthi_writer_options options = {
        .job = convert->identity,
        .overwrite = convert->options.overwrite != 0,
        .resume = convert->options.resume != 0,
    };
    berth_status status;

    convert->job = job;
    status = berthi_writer_open(convert->context, convert->options.output, &options,
                                &convert->writer, error);
    if (status == BERTH_OK && berthi_writer_is_complete(convert->writer))
        status = berthi_writer_publish(convert->writer, NULL, error);
    else if (status == BERTH_OK)
        status = write_everything(convert, error);
    berthi_writer_close(convert->writer);
    convert->writer = NULL;
    if (status == BERTH_ECANCELLED)
        status = berthi_fail(error, BERTH_REASON_CANCELLED, NULL,
                             "cancelled; finished shards are kept for --resume");
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
destroy_convert(void *user)
{
    berthi_convert *const convert = user;
    berth_context *const context = convert->context;

    berthi_writer_close(convert->writer);
    while (convert->parcels != NULL)
        berthi_convert_drop_parcels(convert, true, convert->parcels->home);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, convert->identity,
                       convert->identity_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, convert->done,
                       convert->done_capacity * sizeof *convert->done);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, convert->crcs,
                       convert->recipe.output_count * sizeof *convert->crcs);
    berthi_layout_destroy(convert->layout);
    berthi_recipe_fini(&convert->recipe);
    berthi_arena_fini(&convert->texts);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, convert, sizeof *convert);
}

/* Texts that are needed after the call that gave them. */
static bool
can_copy_texts(berthi_convert *convert)
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

static berth_status
lay_out(berthi_convert *convert, berth_error *error)
{
    berthi_recipe *const recipe = &convert->recipe;
    const berthi_layout_options options = {
        .max_shard_bytes = convert->options.max_shard_bytes,
        .pairs = berthi_layout_format,
        .pair_count = 1,
    };
    berth_status status;

    status = berthi_layout_create(convert->context, recipe->tensors, recipe->output_count,
                                  &options, &convert->layout, error);
    if (status != BERTH_OK)
        return status;
    convert->crcs =
        berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                             recipe->output_count * sizeof *convert->crcs);
    return convert->crcs != NULL ? BERTH_OK
                                 : berthi_fail_memory(error, "starting a conversion");
}

static uint32_t
choose_workers(const berthi_convert *convert)
{
    const uint32_t wanted = convert->options.workers > 0 ? convert->options.workers
                                                         : berthi_host_worker_count();
    const uint64_t fit = WORKERS_MEMORY / berthi_max_u64(convert->unit_memory, 1);

    return (uint32_t)berthi_max_u64(berthi_min_u64(wanted, fit), 1);
}

static void
plan(berthi_convert *convert)
{
    berth_convert_report *const report = &convert->report;
    const berthi_recipe *const recipe = &convert->recipe;
    const uint64_t ring =
        convert->options.ring_bytes > 0 ? convert->options.ring_bytes : BERTHI_CONVERT_RING;
    berth_memory_summary memory;

    berth_context_memory(convert->context, &memory);
    convert->workers = choose_workers(convert);
    report->planned_bytes = berthi_layout_total_bytes(convert->layout);
    report->planned_memory = memory.current_bytes + ring + convert->run_memory
                             + convert->workers * convert->unit_memory;
    report->quantized = recipe->quantized_count;
    report->parameters = recipe->parameters;
    report->shards = berthi_layout_shard_count(convert->layout);
    if (recipe->rules != NULL)
        report->coverage = berthi_coverage_share(&recipe->coverage);
}

static berth_status
prepare(berthi_convert *convert, berth_error *error)
{
    berth_status status;

    if (!can_copy_texts(convert))
        return berthi_fail_memory(error, "starting a conversion");
    status = berthi_recipe_init(&convert->recipe, convert->context, convert->checkpoint,
                                &convert->options, error);
    if (status == BERTH_OK)
        status = berthi_convert_measure(convert, error);
    if (status == BERTH_OK)
        status = lay_out(convert, error);
    if (status == BERTH_OK)
        status = make_identity(convert, error);
    if (status != BERTH_OK)
        return status;
    plan(convert);
    berthi_recipe_tell(&convert->recipe, convert->options.coverage,
                       convert->options.coverage_user);
    return BERTH_OK;
}

/* ----------------------------------------------------------------- interface */

static bool
is_value_dtype(int32_t dtype)
{
    return dtype == BERTH_BF16 || dtype == BERTH_F16 || dtype == BERTH_F32;
}

static const char *
find_mistake(const berth_convert_options *options)
{
    if (options->output == NULL || options->output[0] == '\0')
        return "has no output";
    if (options->type < BERTH_ENCODING_NATIVE || options->type > BERTH_ENCODING_INT8)
        return "has a type that nothing can be converted to";
    if (options->dtype != -1 && !is_value_dtype(options->dtype))
        return "has a dtype that models are not loaded as";
    if (!berthi_format_is_block_size(options->block_size))
        return "has a block_size that is no power of two from 32 to 4096";
    if (options->max_shard_bytes < MIN_SHARD_BYTES)
        return "has shards of less than 4096 bytes";
    if (options->io < BERTH_IO_AUTO || options->io > BERTH_IO_BUFFERED)
        return "has an unknown io";
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
               const berth_convert_options *options, berthi_convert **out,
               berth_error *error)
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
    convert->operations = berthi_level_operations(berthi_cpu_best_level());
    berthi_arena_init(&convert->texts, context, BERTHI_PURPOSE_OBJECT, 1024);
    status = prepare(convert, error);
    if (status == BERTH_OK)
        *out = convert;
    else
        destroy_convert(convert);
    return status;
}

berth_status
berth_convert_start(berth_context *context, berth_checkpoint *checkpoint,
                    const berth_convert_options *options, berth_job **out_job,
                    berth_error *error)
{
    berth_convert_options mine;
    const char *mistake;
    berthi_convert *convert;
    berth_status status;

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
    status = create_convert(context, checkpoint, &mine, &convert, error);
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
                            .total = mine.dry_run ? 0 : convert->total,
                            .progress = mine.progress,
                            .progress_user = mine.progress_user },
        out_job, error);
}
