/* SPDX-License-Identifier: Apache-2.0 */
/* convert_files.c - what a new checkpoint has besides its shards. */
#include <string.h>

#include "loader/convert_job.h"
#include "loader/digest.h"
#include "loader/index_write.h"
#include "loader/manifest.h"
#include "loader/side_files.h"
#include "quant/config_write.h"
#include "quant/format.h"

#define CONFIG_NAME "config.json"

/* Where a text goes that is handed on in pieces. */
typedef struct text_file {
    berthi_writer *writer;
    berthi_writer_file *file;
} text_file;

static berth_status
put_text(void *user, const char *bytes, uint64_t size, uint64_t offset,
         berth_error *error)
{
    text_file *const text = user;

    return berthi_writer_write(text->writer, text->file, bytes, size, offset, error);
}

static berth_status
put_bytes(void *user, const void *bytes, uint64_t size, uint64_t offset,
          berth_error *error)
{
    return put_text(user, bytes, size, offset, error);
}

/* A run that is resumed may have written it: what is small is written again. */
static berth_status
create(berthi_convert *convert, const char *name, uint64_t bytes, text_file *out,
       berth_error *error)
{
    berthi_writer_file *const old = berthi_writer_find(convert->writer, name);

    if (old != NULL)
        berthi_writer_drop(convert->writer, old);
    out->writer = convert->writer;
    out->file = NULL;
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

static berth_status
rewrite_config(berthi_convert *convert, char **out_text, uint64_t *out_bytes,
               berth_error *error)
{
    const berth_convert_options *const options = &convert->options;
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_quantization what = {
        .encoding = options->type,
        .is_double = options->double_quant != 0 && options->type != BERTH_ENCODING_INT8,
        .storage = options->storage,
        .compute_dtype = options->compute_dtype,
        .has_skips = options->has_skips != 0,
        .skips = options->skip_modules,
        .skip_count = options->skip_count,
    };

    return berthi_config_rewrite(
        convert->context, recipe->config_text, recipe->config_bytes, CONFIG_NAME,
        options->type != BERTH_ENCODING_NATIVE ? &what : NULL,
        options->dtype >= 0 ? berthi_format_torch_name(options->dtype) : NULL, out_text,
        out_bytes, error);
}

static berth_status
add_config(berthi_convert *convert, berth_error *error)
{
    text_file file = { .file = NULL };
    char *text;
    uint64_t bytes;
    berth_status status;

    if (convert->recipe.config_text == NULL)
        return BERTH_OK;
    status = rewrite_config(convert, &text, &bytes, error);
    if (status != BERTH_OK)
        return status;
    status = create(convert, CONFIG_NAME, bytes, &file, error);
    if (status == BERTH_OK) {
        status = put_text(&file, text, bytes, 0, error);
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
        status = create(convert, BERTHI_CONVERT_INDEX, bytes, &file, error);
    if (status != BERTH_OK)
        return status;
    status = berthi_index_write(convert->layout, parameters, put_text, &file, NULL, error);
    return finish(&file, bytes, status, error);
}

static berth_status
add_side_files(berthi_convert *convert, berth_error *error)
{
    berthi_location *const location = &convert->recipe.location;
    berthi_findings findings;
    berthi_side_files files;
    berth_status status;

    berthi_findings_init(&findings, convert->context,
                         &(berth_open_options){ .finding = convert->options.finding,
                                                .finding_user =
                                                    convert->options.finding_user });
    status = berthi_side_files_find(location, &findings, &files, error);
    for (uint32_t i = 0; status == BERTH_OK && i < files.count; i++) {
        const berthi_side_file *const from = &files.files[i];
        text_file file;

        status = create(convert, from->name, from->identity.bytes, &file, error);
        if (status != BERTH_OK)
            break;
        status = berthi_side_files_read(location, from, put_bytes, &file, error);
        status = finish(&file, from->identity.bytes, status, error);
    }
    berthi_findings_fini(&findings);
    return status;
}

/* ------------------------------------------------------------------- manifest */

/* Tensors of a shard in bytewise order of names. */
static berth_status
list_tensors(berthi_convert *convert, uint32_t shard, berthi_manifest_writer *writer,
             char *name)
{
    const uint32_t *const order = berthi_layout_name_order(convert->layout);

    for (uint64_t i = 0; i < convert->recipe.output_count; i++) {
        const berthi_layout_tensor *const tensor = &convert->recipe.tensors[order[i]];
        const size_t suffix = tensor->suffix != NULL ? strlen(tensor->suffix) : 0;

        if (tensor->shard != shard)
            continue;
        memcpy(name, tensor->name, tensor->name_length);
        if (suffix > 0)
            memcpy(name + tensor->name_length, tensor->suffix, suffix);
        berthi_manifest_add_tensor(
            writer, &(berthi_manifest_tensor){ .name = name,
                                               .name_length = tensor->name_length + suffix,
                                               .crc32 = convert->crcs[order[i]] });
    }
    return writer->text.status;
}

static berth_status
write_manifest(berthi_convert *convert, char *name,
               berthi_json_put put, text_file *file, uint64_t *out_bytes, berth_error *error)
{
    const uint32_t count = berthi_layout_shard_count(convert->layout);
    const char *const job = berthi_convert_job_text(convert);
    berthi_manifest_writer writer;
    berth_status status = BERTH_OK;

    if (job == NULL)
        return berthi_fail_memory(error, "the manifest");
    berthi_manifest_begin(&writer, put, file, error);
    berthi_manifest_add_job(&writer, job, strlen(job));
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++) {
        const berthi_layout_shard shard = berthi_layout_shard_at(convert->layout, i);
        char file_name[BERTHI_LAYOUT_NAME];

        berthi_layout_shard_name(i, count, file_name);
        berthi_manifest_add_shard(
            &writer, &(berthi_manifest_shard){
                         .file = file_name,
                         .file_length = strlen(file_name),
                         .bytes = BERTHI_HEADER_PREFIX + shard.header_bytes
                                  + shard.payload_bytes,
                         .header_crc32 = convert->done[i].header_crc });
        status = list_tensors(convert, i, &writer, name);
    }
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

berth_status
berthi_convert_add_files(berthi_convert *convert, berth_error *error)
{
    berth_status status = add_side_files(convert, error);

    if (status == BERTH_OK)
        status = add_config(convert, error);
    if (status == BERTH_OK)
        status = add_manifest(convert, error);
    if (status == BERTH_OK)
        status = add_index(convert, error);
    return status;
}
