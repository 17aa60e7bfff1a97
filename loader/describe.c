/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - what an open checkpoint answers, and reading of its tensors. */
#include <string.h>

#include "loader/checkpoint.h"
#include "loader/paths.h"
#include "quant/format.h"

/* -------------------------------------------------------------------- summary */

void
berth_checkpoint_get(const berth_checkpoint *checkpoint,
                     berth_checkpoint_summary *summary)
{
    const berth_checkpoint *const c = checkpoint;

    memset(summary, 0, sizeof *summary);
    summary->path = berthi_path_told(c->path);
    summary->architecture = c->config.architecture;
    summary->model_type = c->config.model_type;
    summary->dtype = c->config.dtype_name;
    summary->quant_method = c->quant_method;
    summary->revision = c->location.commit;
    summary->shard_count = c->shard_count;
    summary->is_sharded = c->is_sharded;
    summary->ties_embeddings = c->config.ties_embeddings;
    summary->is_adapter = c->is_adapter;
    summary->tensor_count = c->table.entry_count;
    summary->tensor_bytes = c->table.tensor_bytes;
    for (uint32_t i = 0; i < c->shard_count; i++)
        summary->file_bytes += c->shards[i].file.identity.bytes;
    summary->parameter_count = c->quantized.parameter_count;
    summary->quantized_count = c->quantized.count;
}

berth_status
berth_checkpoint_shard(const berth_checkpoint *checkpoint, uint32_t index,
                       berth_shard *shard)
{
    const berthi_shard *from;

    memset(shard, 0, sizeof *shard);
    if (index >= checkpoint->shard_count)
        return BERTH_EINVAL;
    from = &checkpoint->shards[index];
    shard->file = from->name;
    shard->target = from->target;
    shard->blob_sha256 = from->blob_sha256;
    shard->file_bytes = from->file.identity.bytes;
    shard->header_bytes = from->header_bytes;
    shard->tensor_count = from->entry_count;
    shard->first_tensor = from->first_entry;
    shard->metadata_count = from->pair_count;
    return BERTH_OK;
}

berth_status
berthi_checkpoint_file(const berth_checkpoint *checkpoint, uint32_t shard,
                       const berthi_file **out_file, berth_error *error)
{
    *out_file = NULL;
    if (shard >= checkpoint->shard_count)
        return berthi_fail_argument(error, "shard", "is out of range");
    *out_file = &checkpoint->shards[shard].file;
    return BERTH_OK;
}

void
berthi_checkpoint_copy_files(const berth_checkpoint *checkpoint, berthi_file *out)
{
    for (uint32_t i = 0; i < checkpoint->shard_count; i++)
        out[i] = checkpoint->shards[i].file;
}

berth_status
berthi_checkpoint_read(const berth_checkpoint *checkpoint, uint64_t number,
                       uint64_t offset, void *memory, uint64_t bytes, const char *what,
                       berth_error *error)
{
    const berthi_entry *const entry = &checkpoint->table.entries[number];
    const berthi_file *const file = &checkpoint->shards[entry->shard].file;
    const berth_status status = berthi_file_read(
        file, memory, bytes, berthi_checkpoint_offset(checkpoint, entry) + offset, what,
        error);

    return status == BERTH_OK ? berthi_file_check_content(file, error) : status;
}

berth_status
berth_checkpoint_metadata(const berth_checkpoint *checkpoint, uint32_t shard,
                          uint64_t index, const char **key, size_t *key_length,
                          const char **value, size_t *value_length)
{
    const berthi_shard *from;
    berthi_header header;
    berthi_pair pair;

    *key = NULL;
    *key_length = 0;
    *value = NULL;
    *value_length = 0;
    if (shard >= checkpoint->shard_count)
        return BERTH_EINVAL;
    from = &checkpoint->shards[shard];
    if (index >= from->pair_count)
        return BERTH_EINVAL;
    /* The header's text lives on in the table's. */
    memset(&header, 0, sizeof header);
    header.text = checkpoint->table.text + from->text;
    header.pairs = from->pairs;
    header.pair_count = from->pair_count;
    pair = berthi_header_pair(&header, index);
    *key = pair.key;
    *key_length = (size_t)pair.key_length;
    *value = pair.value;
    *value_length = (size_t)pair.value_length;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- tensors */

berth_status
berth_checkpoint_tensor(const berth_checkpoint *checkpoint, uint64_t index,
                        berth_tensor *tensor)
{
    const berth_checkpoint *const c = checkpoint;
    const berthi_entry *entry;

    memset(tensor, 0, sizeof *tensor);
    if (index >= c->table.entry_count)
        return BERTH_EINVAL;
    entry = &c->table.entries[index];
    tensor->name = berthi_entry_name(c->table.text, entry);
    tensor->name_length = entry->name_length;
    tensor->dtype = entry->dtype;
    tensor->encoding = entry->flags;
    tensor->rank = entry->rank;
    tensor->shard = entry->shard;
    berthi_entry_shape(c->table.text, entry, tensor->shape);
    tensor->elements = berthi_entry_elements(c->table.text, entry);
    tensor->bytes = entry->end - entry->begin;
    tensor->file_offset = berthi_checkpoint_offset(c, entry);
    tensor->owner = BERTH_NO_TENSOR;
    if (entry->flags == BERTH_ENCODING_STATISTICS)
        tensor->owner =
            c->table.by_name[berthi_classify_record(&c->quantized, entry->owner)->weight];
    return BERTH_OK;
}

uint64_t
berth_checkpoint_find(const berth_checkpoint *checkpoint, const char *name,
                      size_t name_length)
{
    if (name == NULL)
        return BERTH_NO_TENSOR;
    return berthi_table_find(&checkpoint->table, name, name_length);
}

static bool
is_quantized(const berthi_entry *entry)
{
    return entry->flags != BERTH_ENCODING_NATIVE
           && entry->flags != BERTH_ENCODING_STATISTICS;
}

berth_status
berth_checkpoint_quantized(const berth_checkpoint *checkpoint, uint64_t index,
                           berth_quantized *quantized)
{
    const berth_checkpoint *const c = checkpoint;
    const berthi_quantized *record;

    memset(quantized, 0, sizeof *quantized);
    if (index >= c->table.entry_count || !is_quantized(&c->table.entries[index]))
        return BERTH_EINVAL;
    record = berthi_classify_record(&c->quantized, c->table.entries[index].owner);
    quantized->encoding = record->encoding;
    quantized->dtype = record->dtype;
    quantized->block_size = record->block_size;
    quantized->block_columns = record->block_columns;
    quantized->is_double = record->is_double;
    quantized->rank = record->rank;
    if (record->rank > 0)
        memcpy(quantized->shape, record->shape, record->rank * sizeof *record->shape);
    quantized->elements = record->elements;
    quantized->total_bytes = record->total_bytes;
    quantized->companion_count = record->companion_count;
    for (uint32_t i = 0; i < record->companion_count; i++)
        quantized->companions[i] = c->table.by_name[record->companions[i]];
    quantized->offset = record->offset;
    quantized->method = record->method;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- reading */

/* Where the rows are in the tensor, and that the caller's buffer fits them. */
static berth_status
find_rows(const berth_checkpoint *c, const berthi_entry *entry, uint64_t first_row,
          uint64_t row_count, uint64_t size, uint64_t *out_offset, berth_error *error)
{
    const berthi_about about = {
        .file = c->shards[entry->shard].file.path,
        .tensor = berthi_entry_name(c->table.text, entry),
        .tensor_length = entry->name_length,
    };
    berthi_about sizes = about;
    uint64_t shape[BERTHI_MAX_RANK];
    uint64_t bytes;
    const char *problem;

    berthi_entry_shape(c->table.text, entry, shape);
    problem = berthi_format_slice(entry->dtype, shape, entry->rank, first_row, row_count,
                                  out_offset, &bytes);
    if (problem != NULL)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                           "arguments `first_row`, `row_count`: %s", problem);
    if (bytes == size)
        return BERTH_OK;
    sizes.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    sizes.expected = bytes;
    sizes.actual = size;
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &sizes,
                       "argument `size` is not the size of the rows");
}

berth_status
berth_checkpoint_read(berth_checkpoint *checkpoint, uint64_t index, uint64_t first_row,
                      uint64_t row_count, void *buffer, uint64_t size, berth_error *error)
{
    const berth_checkpoint *const c = checkpoint;
    const berthi_entry *entry;
    uint64_t offset;
    berth_status status;

    berthi_error_clear(error);
    if (c == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    if (index >= c->table.entry_count)
        return berthi_fail_argument(error, "index", "is not that of a tensor");
    if (buffer == NULL && size > 0)
        return berthi_fail_argument(error, "buffer", "is NULL");
    entry = &c->table.entries[index];
    status = find_rows(c, entry, first_row, row_count, size, &offset, error);
    return status == BERTH_OK ? berthi_checkpoint_read(c, index, offset, buffer, size,
                                                       "reading a tensor", error)
                              : status;
}
