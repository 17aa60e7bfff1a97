/* SPDX-License-Identifier: Apache-2.0 */
/* convert_files.c - what a new checkpoint has besides its shards. */
#include <string.h>

#include "kernels/digest.h"
#include "loader/convert_job.h"
#include "loader/groups.h"
#include "loader/index_write.h"
#include "loader/listing.h"
#include "loader/side_files.h"
#include "quant/config_write.h"
#include "quant/format.h"

/* Where a text goes that is handed on in pieces. */
typedef struct text_file {
    const berth_job *job;
    berthi_writer *writer;
    berthi_writer_file *file;
    uint32_t crc; /* of what was put so far */
} text_file;

static berth_status
put_text(void *user, const char *bytes, uint64_t size, uint64_t offset,
         berth_error *error)
{
    text_file *const text = user;

    text->crc = berthi_digest_crc32(text->crc, bytes, size);
    return berthi_writer_write(text->writer, text->file, bytes, size, offset, error);
}

static berth_status
go_on(const berth_job *job, berth_error *error)
{
    return berthi_job_is_cancelled(job) ? berthi_job_fail_cancelled(error) : BERTH_OK;
}

/* Of a file beside the weights, which may be as large as they are. */
static berth_status
put_bytes(void *user, const void *bytes, uint64_t size, uint64_t offset,
          berth_error *error)
{
    const text_file *const text = user;
    const berth_status status = go_on(text->job, error);

    return status == BERTH_OK ? put_text(user, bytes, size, offset, error) : status;
}

static berth_status
create(berthi_convert *convert, const char *name, uint64_t bytes, text_file *out,
       berth_error *error)
{
    *out = (text_file){ .writer = convert->writer, .job = convert->job };
    return berthi_writer_create(convert->writer, name, bytes, &out->file, error);
}

/* Finishes a file that was written with `status`, or takes it away. */
static berth_status
finish(text_file *text, uint64_t bytes, berth_status status, berth_error *error)
{
    if (status == BERTH_OK)
        status = berthi_writer_finish(text->writer, text->file, bytes, NULL, 0, error);
    if (status != BERTH_OK)
        berthi_writer_drop(text->writer, text->file);
    return status;
}

/* --------------------------------------------------------------- config.json */

const char *
berthi_convert_compute_dtype(const berthi_convert *convert)
{
    const berthi_config *const source = &convert->checkpoint->config;

    if (convert->options.compute_dtype != NULL)
        return convert->options.compute_dtype;
    return source->compute_dtype[0] != '\0' ? source->compute_dtype : "float32";
}

/*
 * What config.json says afterwards; -1: what it did. transformers loads before it quantizes,
 * which settles the dtype of every part. Where it names that of codes no weight has it any more.
 */
static int32_t
new_dtype(const berthi_convert *convert)
{
    const berth_checkpoint *const source = convert->checkpoint;
    const bool is_of_codes =
        source->quantized.count > 0 && berth_dtype_bits(source->config.dtype) == 8;

    return convert->options.type != BERTH_ENCODING_NATIVE || is_of_codes
               ? convert->recipe.dtype
               : convert->options.dtype;
}

static berth_status
rewrite_config(berthi_convert *convert, char **out_text, uint64_t *out_bytes,
               berth_error *error)
{
    const berth_convert_options *const options = &convert->options;
    const berthi_recipe *const recipe = &convert->recipe;
    const berth_checkpoint *const source = convert->checkpoint;
    const char *const threshold = source->config.int8_threshold;
    const bool is_other = recipe->skips.is_other;
    const berthi_quantization what = {
        .encoding = options->type,
        .is_double = options->double_quant != 0,
        .storage = options->storage,
        .compute_dtype = berthi_convert_compute_dtype(convert),
        .int8_threshold = threshold[0] != '\0' ? threshold : NULL,
        .has_skips = is_other || options->has_skips != 0,
        .skips = is_other ? recipe->skips.texts : options->skip_modules,
        .skip_count = is_other ? recipe->skips.count : options->skip_count,
    };
    const bool is_quantized = options->type != BERTH_ENCODING_NATIVE;
    const int32_t dtype = new_dtype(convert);

    return berthi_config_rewrite(
        convert->context,
        &(berthi_config_text){ source->config_text, source->config_bytes, BERTHI_CONFIG_NAME },
        is_quantized ? &what : NULL, dtype >= 0 ? berthi_format_torch_name(dtype) : NULL,
        out_text, out_bytes, error);
}

static berth_status
add_config(berthi_convert *convert, berth_error *error)
{
    text_file file = { .file = NULL };
    char *text;
    uint64_t bytes;
    berth_status status;

    if (convert->checkpoint->config_text == NULL)
        return BERTH_OK;
    status = rewrite_config(convert, &text, &bytes, error);
    if (status != BERTH_OK)
        return status;
    status = create(convert, BERTHI_CONFIG_NAME, bytes, &file, error);
    if (status == BERTH_OK) {
        status = put_text(&file, text, bytes, 0, error);
        convert->file_crcs[convert->side_files.count] = file.crc;
        status = finish(&file, bytes, status, error);
    }
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, text, bytes);
    return status;
}

/* --------------------------------------------------------- index, side files */

static berth_status
add_index(berthi_convert *convert, berth_error *error)
{
    const uint64_t parameters = convert->recipe.parameters;
    text_file file;
    uint64_t bytes;
    berth_status status;

    if (berthi_layout_shard_count(convert->layout) == 1)
        return BERTH_OK;
    status = berthi_index_write(convert->layout, parameters, NULL, NULL, &bytes, error);
    if (status == BERTH_OK)
        status = create(convert, BERTHI_INDEX_NAME, bytes, &file, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_index_write(convert->layout, parameters, put_text, &file, NULL, error);
    return finish(&file, bytes, status, error);
}

static berth_status
add_side_files(berthi_convert *convert, berth_error *error)
{
    const berthi_side_files *const files = &convert->side_files;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; status == BERTH_OK && i < files->count; i++) {
        const berthi_side_file *const from = &files->files[i];
        text_file file;

        status = go_on(convert->job, error); /* there are empty ones, too */
        if (status == BERTH_OK)
            status = create(convert, from->name, from->identity.bytes, &file, error);
        if (status != BERTH_OK)
            break;
        status = berthi_side_files_read(&convert->location, from, put_bytes, &file,
                                        error);
        convert->file_crcs[i] = file.crc;
        status = finish(&file, from->identity.bytes, status, error);
    }
    return status;
}

/* ------------------------------------------------------------------- manifest */

static uint32_t
shard_of(const void *user, uint32_t number)
{
    return ((const berthi_layout_tensor *)user)[number].shard;
}

/* Tensors of a shard in bytewise order of names. */
static berth_status
list_tensors(berthi_convert *convert, const berthi_groups *shards, uint32_t shard,
             berthi_manifest_writer *writer, char *name)
{
    for (uint64_t i = berthi_groups_begin(shards, shard); i < shards->ends[shard]; i++) {
        const uint32_t number = shards->numbers[i];
        const berthi_layout_tensor *const tensor = &convert->recipe.tensors[number];
        const size_t suffix = tensor->suffix != NULL ? strlen(tensor->suffix) : 0;

        memcpy(name, tensor->name, tensor->name_length);
        if (suffix > 0)
            memcpy(name + tensor->name_length, tensor->suffix, suffix);
        berthi_manifest_add_tensor(
            writer, &(berthi_manifest_tensor){ .name = name,
                                               .name_length = tensor->name_length + suffix,
                                               .crc32 = convert->crcs[number] });
    }
    return writer->text.status;
}

static void
list_file(const berthi_convert *convert, berthi_manifest_writer *writer, uint32_t i)
{
    const berthi_side_file *const file = &convert->side_files.files[i];

    berthi_manifest_add_file(writer, &(berthi_manifest_file){
                                         .file = file->name,
                                         .file_length = strlen(file->name),
                                         .bytes = file->identity.bytes,
                                         .crc32 = convert->file_crcs[i] });
}

static void
list_config(const berthi_convert *convert, berthi_manifest_writer *writer)
{
    if (convert->checkpoint->config_text != NULL)
        berthi_manifest_add_file(
            writer, &(berthi_manifest_file){
                        .file = BERTHI_CONFIG_NAME,
                        .file_length = strlen(BERTHI_CONFIG_NAME),
                        .bytes = convert->config_bytes,
                        .crc32 = convert->file_crcs[convert->side_files.count] });
}

/* In bytewise order; config.json is no side file. */
static void
list_files(const berthi_convert *convert, berthi_manifest_writer *writer)
{
    const berthi_side_files *const files = &convert->side_files;
    uint32_t i = 0;

    for (; i < files->count && strcmp(files->files[i].name, BERTHI_CONFIG_NAME) < 0; i++)
        list_file(convert, writer, i);
    list_config(convert, writer);
    for (; i < files->count; i++)
        list_file(convert, writer, i);
}

static berth_status
list_shards(berthi_convert *convert, const berthi_groups *shards, char *name,
            berthi_manifest_writer *writer)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < shards->group_count && status == BERTH_OK; i++) {
        const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, i);
        char file_name[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(i, shards->group_count, file_name);
        berthi_manifest_add_shard(
            writer, &(berthi_manifest_shard){
                        .file = file_name,
                        .file_length = strlen(file_name),
                        .bytes = BERTHI_HEADER_PREFIX + shard.header_bytes
                                 + shard.payload_bytes,
                        .header_crc32 =
                            convert->done != NULL ? convert->done[i].header_crc : 0 });
        status = list_tensors(convert, shards, i, writer, name);
    }
    return status;
}

static berth_status
write_manifest(berthi_convert *convert, char *name,
               berthi_json_put put, text_file *file, uint64_t *out_bytes, berth_error *error)
{
    const char *const job = berthi_convert_job_text(convert);
    berthi_groups shards;
    berthi_manifest_writer writer;
    berth_status status;

    if (job == NULL)
        return berthi_fail_memory(error, "the manifest");
    status = berthi_groups_init(&shards, convert->context,
                                berthi_layout_name_order(convert->layout),
                                convert->recipe.output_count,
                                berthi_layout_shard_count(convert->layout), shard_of,
                                convert->recipe.tensors, error);
    if (status != BERTH_OK)
        return status;
    berthi_manifest_begin(&writer, put, file, error);
    berthi_manifest_add_job(&writer, job, strlen(job));
    status = list_shards(convert, &shards, name, &writer);
    berthi_groups_fini(&shards);
    if (status == BERTH_OK)
        status = berthi_convert_list_sources(convert, &writer, error);
    if (status != BERTH_OK)
        return status;
    list_files(convert, &writer);
    return berthi_manifest_end(&writer, out_bytes);
}

static uint64_t
longest_name(const berthi_recipe *recipe)
{
    uint64_t longest = 1;

    for (uint32_t i = 0; i < recipe->output_count; i++) {
        const berthi_layout_tensor *const tensor = &recipe->tensors[i];

        longest = berthi_max_u64(
            longest, tensor->name_length
                         + (tensor->suffix != NULL ? strlen(tensor->suffix) : 0));
    }
    return longest;
}

static berth_status
add_manifest(berthi_convert *convert, berth_error *error)
{
    const uint64_t capacity = longest_name(&convert->recipe);
    char *const name =
        berthi_memory_alloc(convert->context, BERTHI_PURPOSE_DOCUMENT, capacity);
    text_file file;
    uint64_t bytes;
    berth_status status;

    if (name == NULL)
        return berthi_fail_memory(error, "the manifest");
    status = write_manifest(convert, name, NULL, NULL, &bytes, error);
    if (status == BERTH_OK)
        status = create(convert, BERTHI_MANIFEST_NAME, bytes, &file, error);
    if (status == BERTH_OK) {
        status = write_manifest(convert, name, put_text, &file, NULL, error);
        status = finish(&file, bytes, status, error);
    }
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, name, capacity);
    return status;
}

/* -------------------------------------------------------------------- planning */

static berth_status
find_side_files(berthi_convert *convert, berth_error *error)
{
    berthi_findings findings;
    berth_status status;

    berthi_findings_init(&findings, convert->context,
                         &(berth_open_options){ .finding = convert->options.part > 1
                                                               ? NULL /* the first tells */
                                                               : convert->options.finding,
                                                .finding_user =
                                                    convert->options.finding_user });
    status = berthi_side_files_find(&convert->location, &findings,
                                    &convert->side_files, error);
    berthi_findings_fini(&findings);
    return status;
}

static berth_status
count_config(berthi_convert *convert, berth_error *error)
{
    char *text;
    berth_status status;

    if (convert->checkpoint->config_text == NULL)
        return BERTH_OK;
    status = rewrite_config(convert, &text, &convert->config_bytes, error);
    if (status != BERTH_OK)
        return status;
    convert->config_crc = berthi_digest_crc32(0, text, convert->config_bytes);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, text,
                       convert->config_bytes);
    return BERTH_OK;
}

/* Room for the digests of side files and of config.json. */
static berth_status
make_crcs(berthi_convert *convert, berth_error *error)
{
    const uint64_t bytes =
        (convert->side_files.count + UINT64_C(1)) * sizeof *convert->file_crcs;

    convert->file_crcs = berthi_arena_alloc(&convert->texts, bytes, 4);
    if (convert->file_crcs == NULL)
        return berthi_fail_memory(error, "the list of files");
    memset(convert->file_crcs, 0, (size_t)bytes);
    return BERTH_OK;
}

/* Digests are as long before they are known. */
static berth_status
count_manifest(berthi_convert *convert, uint64_t *out_bytes, berth_error *error)
{
    const uint64_t capacity = longest_name(&convert->recipe);
    char *const name =
        berthi_memory_alloc(convert->context, BERTHI_PURPOSE_DOCUMENT, capacity);
    berth_status status;

    if (name == NULL)
        return berthi_fail_memory(error, "the manifest");
    status = write_manifest(convert, name, NULL, NULL, out_bytes, error);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_DOCUMENT, name, capacity);
    return status;
}

berth_status
berthi_convert_find_files(berthi_convert *convert, berth_error *error)
{
    uint64_t manifest = 0;
    uint64_t index = 0;
    berth_status status = find_side_files(convert, error);

    if (status == BERTH_OK)
        status = count_config(convert, error);
    if (status == BERTH_OK)
        status = make_crcs(convert, error);
    if (status == BERTH_OK)
        status = count_manifest(convert, &manifest, error);
    if (status == BERTH_OK && berthi_layout_shard_count(convert->layout) > 1)
        status = berthi_index_write(convert->layout, convert->recipe.parameters, NULL,
                                    NULL, &index, error);
    /* The journal says less than the manifest, and stands there twice when it is
       replaced. */
    convert->report.output_bytes = berthi_layout_total_bytes(convert->layout)
                                   + convert->side_files.bytes
                                   + convert->config_bytes + index + 3 * manifest;
    return status;
}

static uint64_t
finished_bytes(const berthi_convert *convert, const char *name)
{
    const berthi_writer_file *const file = berthi_writer_find(convert->writer, name);

    return file != NULL && file->is_finished ? file->bytes : 0;
}

uint64_t
berthi_convert_missing_bytes(const berthi_convert *convert)
{
    const berthi_side_files *const files = &convert->side_files;
    uint64_t there = finished_bytes(convert, BERTHI_CONFIG_NAME)
                     + finished_bytes(convert, BERTHI_INDEX_NAME)
                     + finished_bytes(convert, BERTHI_MANIFEST_NAME);

    for (uint32_t i = 0; i < files->count; i++)
        there += finished_bytes(convert, files->files[i].name);
    for (uint32_t i = 0; i < berthi_layout_shard_count(convert->layout); i++) {
        const berthi_writer_file *const file = berthi_convert_find_finished(convert, i);

        there += file != NULL ? file->bytes : 0;
    }
    return convert->report.output_bytes
           - berthi_min_u64(there, convert->report.output_bytes);
}

/* --------------------------------------------------------------------- writing */

static bool
is_shard(const void *user, const berthi_writer_file *file)
{
    const berthi_convert *const convert = user;
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    uint32_t i = 0;

    while (i < count && convert->done[i].file != file)
        i++;
    return i < count;
}

/*
 * A run that is resumed may have written some: what is small is written again, and what
 * lies beside the source no more is none of the new model's.
 */
berth_status
berthi_convert_add_files(berthi_convert *convert, berth_error *error)
{
    berth_status status;

    berthi_writer_drop_others(convert->writer, is_shard, convert);
    status = add_side_files(convert, error);
    if (status == BERTH_OK)
        status = add_config(convert, error);
    if (status == BERTH_OK)
        status = add_manifest(convert, error);
    if (status == BERTH_OK)
        status = add_index(convert, error);
    if (status == BERTH_OK)
        status = berthi_convert_note_stale(convert, error);
    return status;
}
