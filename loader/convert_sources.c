/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_sources.c - what the manifest says of the source: the crc32 of each
 * tensor that is read, taken as its bytes come by.
 *
 * Units of a weight are digested in any order, and their spans may share a byte: a
 * unit owns what lies behind the span before it. A copied weight has the crc that
 * it has in the output, so nothing is computed for it, but for its statistics.
 */
#include <string.h>

#include "kernels/digest.h"
#include "kernels/utf8.h"
#include "loader/convert_batch.h"

/* --------------------------------------------------------------------- reading */

static void
mark(berthi_convert *convert, const berthi_recipe_weight *weight)
{
    const berth_checkpoint *const c = convert->checkpoint;
    const berthi_quantized *record;

    convert->sources.is_read[weight->tensor] = true;
    if (weight->record == BERTHI_NO_RECORD || weight->elements == 0)
        return; /* without values nobody asks how to decode them */
    record = berthi_classify_record(&c->quantized, weight->record);
    for (uint32_t i = 0; i < record->companion_count; i++)
        convert->sources.is_read[c->table.by_name[record->companions[i]]] = true;
}

bool
berthi_convert_alloc_sources(berthi_convert *convert)
{
    const uint64_t count = convert->checkpoint->table.entry_count;
    berthi_convert_sources *const sources = &convert->sources;

    sources->crcs = berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                                         count * sizeof *sources->crcs);
    sources->is_read = berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                                            count * sizeof *sources->is_read);
    if (sources->crcs == NULL || sources->is_read == NULL)
        return false;
    for (uint32_t i = 0; i < convert->recipe.weight_count; i++)
        mark(convert, &convert->recipe.weights[i]);
    return true;
}

void
berthi_convert_free_sources(berthi_convert *convert)
{
    const uint64_t count = convert->checkpoint->table.entry_count;
    berthi_convert_sources *const sources = &convert->sources;

    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, sources->crcs,
                       count * sizeof *sources->crcs);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, sources->is_read,
                       count * sizeof *sources->is_read);
}

void
berthi_run_forget_source(const berthi_batch *batch, const berthi_run *run)
{
    atomic_store(&batch->convert->sources.crcs[run->weight->tensor], 0);
}

void
berthi_unit_digest(const berthi_batch *batch, const berthi_run *run,
                   const berthi_unit *unit, const uint8_t *bytes)
{
    const berthi_decoder_span span = berthi_unit_span(run, unit);
    const uint64_t end = span.begin + span.bytes;
    uint64_t owned;
    uint32_t crc;

    if (run->weight->is_copied || unit->strip > 0)
        return;
    owned = berthi_decoder_extent(&run->decoder, 0, unit->first).bytes;
    crc = berthi_digest_crc32(0, bytes + (owned - span.begin), (size_t)(end - owned));
    atomic_fetch_xor(&batch->convert->sources.crcs[run->weight->tensor],
                     berthi_digest_shift(crc, run->stored_bytes - end));
}

void
berthi_companion_digest(const berthi_batch *batch, const berthi_entry *entry,
                        uint32_t crc)
{
    const berthi_convert *const convert = batch->convert;
    const berthi_entry *const entries = convert->checkpoint->table.entries;

    atomic_store(&convert->sources.crcs[entry - entries], crc);
}

/* ---------------------------------------------------------- tensors of a weight */

uint64_t
berthi_convert_source(const berthi_convert *convert, const berthi_recipe_weight *weight,
                      uint32_t number)
{
    const berth_checkpoint *const c = convert->checkpoint;
    const uint32_t own = !weight->is_copied; /* else it has its copy's */
    const berthi_quantized *record;
    uint64_t tensor;

    if (number < own)
        return weight->tensor;
    if (weight->record == BERTHI_NO_RECORD)
        return BERTH_NO_TENSOR;
    record = berthi_classify_record(&c->quantized, weight->record);
    if (number - own >= record->companion_count)
        return BERTH_NO_TENSOR;
    tensor = c->table.by_name[record->companions[number - own]];
    return convert->sources.is_read[tensor] ? tensor : BERTH_NO_TENSOR;
}

/* -------------------------------------------------------------------- manifest */

static void
list_tensors(const berthi_convert *convert, uint32_t shard,
             berthi_manifest_writer *writer)
{
    const berthi_table *const table = &convert->checkpoint->table;

    for (uint64_t i = 0; i < table->entry_count; i++) {
        const uint32_t number = table->by_name[i];

        if (table->entries[number].shard != shard || !convert->sources.is_read[number])
            continue;
        berthi_manifest_add_tensor(
            writer,
            &(berthi_manifest_tensor){
                .name = berthi_table_name(table, number),
                .name_length = table->entries[number].name_length,
                .crc32 = atomic_load(&convert->sources.crcs[number]),
            });
    }
}

void
berthi_convert_list_sources(berthi_convert *convert, berthi_manifest_writer *writer)
{
    const berth_checkpoint *const c = convert->checkpoint;
    const berthi_recipe *const recipe = &convert->recipe;

    for (uint32_t i = 0; i < recipe->weight_count; i++) {
        const berthi_recipe_weight *const weight = &recipe->weights[i];

        if (weight->is_copied)
            atomic_store(&convert->sources.crcs[weight->tensor],
                         atomic_load(&convert->crcs[weight->first_output]));
    }
    for (uint32_t i = 0; i < c->shard_count; i++) {
        const berthi_manifest_source source = {
            .file = c->shards[i].name,
            .file_length = strlen(c->shards[i].name),
            .bytes = c->shards[i].file.identity.bytes,
        };

        if (berthi_utf8_check((const unsigned char *)source.file,
                              (size_t)source.file_length)
            < source.file_length)
            continue; /* no manifest can hold its name */
        berthi_manifest_add_source(writer, &source);
        list_tensors(convert, i, writer);
    }
}
