/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_json.c - `berth inspect --json`. */
#include <string.h>

#include "tools/inspect.h"

static void
write_summary(json_writer *w, const inspection *i)
{
    const berth_checkpoint_summary *const m = &i->summary;

    json_text(w, "path", m->path);
    json_text(w, "revision", m->revision);
    json_text(w, "architecture", m->architecture);
    json_text(w, "model_type", m->model_type);
    json_text(w, "dtype", m->dtype);
    json_text(w, "quant_method", m->quant_method);
    if (m->ties_embeddings < 0)
        json_null(w, "ties_embeddings");
    else
        json_bool(w, "ties_embeddings", m->ties_embeddings != 0);
    json_bool(w, "is_adapter", m->is_adapter != 0);
    json_bool(w, "is_sharded", m->is_sharded != 0);
    json_number(w, "tensors", m->tensor_count);
    json_number(w, "parameters", m->parameter_count);
    json_number(w, "quantized_weights", m->quantized_count);
    json_number(w, "tensor_bytes", m->tensor_bytes);
    json_number(w, "file_bytes", m->file_bytes);
    json_number(w, "warnings", i->warnings);
    json_number(w, "notes", i->notes);
}

static void
write_methods(json_writer *w, const inspection *i)
{
    json_array_begin(w, "quantization");
    for (size_t n = 0; n < i->method_count; n++) {
        const inspect_method *const m = &i->methods[n];

        json_object_begin(w, NULL);
        json_text(w, "method", m->name);
        json_number(w, "block_size", m->block_size);
        json_number(w, "block_columns", m->block_columns);
        json_bool(w, "is_double", m->is_double != 0);
        json_number(w, "weights", m->weights);
        json_object_end(w);
    }
    json_array_end(w);
}

static void
write_totals(json_writer *w, const char *key, const inspect_total *totals, size_t count,
             const char *(*name)(int32_t))
{
    json_object_begin(w, key);
    for (size_t n = 0; n < count; n++) {
        if (totals[n].tensors == 0)
            continue;
        json_object_begin(w, name((int32_t)n));
        json_number(w, "tensors", totals[n].tensors);
        json_number(w, "bytes", totals[n].bytes);
        json_object_end(w);
    }
    json_object_end(w);
}

static void
write_shard(json_writer *w, const inspection *i, uint32_t index)
{
    berth_shard shard;

    berth_checkpoint_shard(i->checkpoint, index, &shard);
    json_object_begin(w, NULL);
    json_text(w, "file", shard.file);
    json_text(w, "target", shard.target);
    json_text(w, "sha256", shard.blob_sha256);
    json_number(w, "file_bytes", shard.file_bytes);
    json_number(w, "header_bytes", shard.header_bytes);
    json_number(w, "tensors", shard.tensor_count);
    json_object_begin(w, "metadata");
    for (uint64_t n = 0; n < shard.metadata_count; n++) {
        const char *key;
        const char *value;
        size_t key_length;
        size_t value_length;

        if (berth_checkpoint_metadata(i->checkpoint, index, n, &key, &key_length, &value,
                                      &value_length) == BERTH_OK)
            json_pair(w, key, key_length, value, value_length);
    }
    json_object_end(w);
    json_object_end(w);
}

/* ----------------------------------------------------------------------- tree */

static void
write_ranges(json_writer *w, const tree *t, const tree_node *node)
{
    json_number(w, "repeat", node->repeat);
    json_array_begin(w, "numbers");
    for (size_t r = 0; r < node->range_count; r++) {
        const uint64_t ends[2] = { t->ranges[node->first_range + r].first,
                                   t->ranges[node->first_range + r].last };

        json_numbers(w, NULL, ends, 2);
    }
    json_array_end(w);
}

/* The node without its children; leaves the object open. */
static void
begin_node(json_writer *w, const inspection *i, const tree_node *node)
{
    json_object_begin(w, NULL);
    json_bytes(w, "name", node->name, node->name_length);
    if (node->repeat > 1)
        write_ranges(w, &i->tree, node);
    json_number(w, "tensors", node->sums.tensors);
    json_number(w, "parameters", node->sums.parameters);
    json_number(w, "bytes", node->sums.bytes);
    if (node->form != FORM_NONE) {
        const form *const f = &i->forms.forms[node->form];

        json_text(w, "dtype", berth_dtype_name(f->dtype));
        json_text(w, "encoding", berth_encoding_name(f->encoding));
        json_numbers(w, "shape", form_shape(&i->forms, f), f->rank);
    }
}

/* Not recursive: closes as many levels as the walk leaves at once. */
static void
write_tree(json_writer *w, const inspection *i)
{
    const tree *const t = &i->tree;
    uint32_t node = t->nodes[0].first_child;

    json_array_begin(w, "tree");
    while (node != TREE_NONE && !output_is_closed(w->out)) {
        begin_node(w, i, &t->nodes[node]);
        if (t->nodes[node].first_child != TREE_NONE) {
            json_array_begin(w, "children");
            node = t->nodes[node].first_child;
            continue;
        }
        json_object_end(w);
        while (node != 0 && t->nodes[node].next == TREE_NONE) {
            node = t->nodes[node].parent;
            if (node != 0) {
                json_array_end(w);
                json_object_end(w);
            }
        }
        node = node != 0 ? t->nodes[node].next : TREE_NONE;
    }
    json_array_end(w);
}

static void
write_tensor(json_writer *w, const inspection *i, uint64_t index)
{
    berth_tensor tensor;
    berth_shard shard;
    berth_quantized q;

    berth_checkpoint_tensor(i->checkpoint, index, &tensor);
    berth_checkpoint_shard(i->checkpoint, tensor.shard, &shard);
    json_object_begin(w, NULL);
    json_bytes(w, "name", tensor.name, tensor.name_length);
    json_text(w, "dtype", berth_dtype_name(tensor.dtype));
    json_text(w, "encoding", berth_encoding_name(tensor.encoding));
    json_numbers(w, "shape", tensor.shape, tensor.rank);
    json_number(w, "elements", tensor.elements);
    json_number(w, "bytes", tensor.bytes);
    json_text(w, "file", shard.file);
    json_number(w, "offset", tensor.file_offset);
    if (tensor.owner != BERTH_NO_TENSOR) {
        berth_tensor owner;

        berth_checkpoint_tensor(i->checkpoint, tensor.owner, &owner);
        json_bytes(w, "statistics_of", owner.name, owner.name_length);
    }
    if (berth_checkpoint_quantized(i->checkpoint, index, &q) == BERTH_OK) {
        json_text(w, "method", q.method);
        json_numbers(w, "values_shape", q.shape, q.rank);
        json_number(w, "values", q.elements);
        json_number(w, "total_bytes", q.total_bytes);
    }
    json_object_end(w);
}

void
inspect_write_json(session *s, const inspection *i, bool wants_tensors)
{
    json_writer w;

    json_begin(&w, &s->out, false);
    json_object_begin(&w, NULL);
    json_number(&w, "schema_version", 1);
    write_summary(&w, i);
    write_methods(&w, i);
    write_totals(&w, "by_dtype", i->dtypes, BERTH_DTYPE_COUNT, berth_dtype_name);
    write_totals(&w, "by_encoding", i->encodings, INSPECT_ENCODINGS, berth_encoding_name);
    json_array_begin(&w, "shards");
    for (uint32_t n = 0; n < i->summary.shard_count; n++)
        write_shard(&w, i, n);
    json_array_end(&w);
    write_tree(&w, i);
    if (wants_tensors) {
        json_array_begin(&w, "tensor_list");
        for (size_t n = 0; n < i->listing.count && !output_is_closed(&s->out); n++)
            write_tensor(&w, i, i->listing.entries[n].index);
        json_array_end(&w);
    }
    json_object_end(&w);
    json_end(&w);
}
