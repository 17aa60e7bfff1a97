/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_sources.c - the crc32 of each tensor of the source that is read, taken as its
 * bytes come by: for the manifest of the output, and to hold the source against its own.
 *
 * Units of a weight are digested in any order, and their spans may share a byte: a
 * unit owns what lies behind the span before it. A copied weight has the crc that
 * it has in the output, so nothing is computed for it, but for its statistics.
 *
 * What a tensor has become is held against the source's manifest (promises.h) twice: when
 * its weight has been read, so that a damaged one ends the job there, and when notes of its
 * shard are made or taken (convert_notes.c). The second is for what is known only then, or
 * was read by others: bytes that are copied, shards that an earlier run has finished, and
 * parts, whatever these were to verify. No notes with a digest that is another are ever made
 * by a job that verifies, so nothing of a damaged source is left for a resume.
 */
#include <string.h>

#include "kernels/digest.h"
#include "kernels/utf8.h"
#include "loader/convert_batch.h"
#include "loader/groups.h"

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

berth_status
berthi_convert_init_sources(berthi_convert *convert, berth_error *error)
{
    const uint64_t count = convert->checkpoint->table.entry_count;
    const berthi_promises_options options = { .mode = convert->options.verify,
                                              .manifest = convert->options.manifest,
                                              .let_pass = "converted all the same",
                                              .finding = convert->options.finding,
                                              .finding_user =
                                                  convert->options.finding_user };
    berthi_convert_sources *const sources = &convert->sources;
    berth_status status = berthi_crcs_init(&sources->crcs, convert->context,
                                           convert->checkpoint, error);

    if (status == BERTH_OK)
        status = berthi_promises_init(&sources->promises, convert->context,
                                      convert->checkpoint, &options, error);
    if (status != BERTH_OK)
        return status;
    sources->is_read = berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_TENSORS,
                                            count * sizeof *sources->is_read);
    if (sources->is_read == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    for (uint32_t i = 0; i < convert->recipe.weight_count; i++)
        mark(convert, &convert->recipe.weights[i]);
    return BERTH_OK;
}

void
berthi_convert_fini_sources(berthi_convert *convert)
{
    const uint64_t count = convert->checkpoint->table.entry_count;
    berthi_convert_sources *const sources = &convert->sources;

    berthi_memory_free(convert->context, BERTHI_PURPOSE_TENSORS, sources->is_read,
                       count * sizeof *sources->is_read);
    berthi_promises_fini(&sources->promises);
    berthi_crcs_fini(&sources->crcs);
}

/* --------------------------------------------------------------------- digests */

void
berthi_run_forget_source(const berthi_batch *batch, const berthi_run *run)
{
    atomic_store(&batch->convert->sources.crcs.tensors[run->weight->tensor], 0);
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
    atomic_fetch_xor(&batch->convert->sources.crcs.tensors[run->weight->tensor],
                     berthi_digest_shift(crc, run->stored_bytes - end));
}

void
berthi_companion_digest(const berthi_batch *batch, const berthi_entry *entry,
                        uint32_t crc)
{
    const berthi_convert *const convert = batch->convert;
    const berthi_entry *const entries = convert->checkpoint->table.entries;

    atomic_store(&convert->sources.crcs.tensors[entry - entries], crc);
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

/* -------------------------------------------------------------------- promises */

berth_status
berthi_convert_read_promises(berthi_convert *convert, berth_error *error)
{
    berthi_convert_sources *const sources = &convert->sources;
    /* Before there is a job: nobody could cancel, so it ends by itself. */
    const berthi_header_reads reads = { .wait_ns = convert->patience_ns,
                                        .no_uring = convert->options.no_uring != 0 };
    const berth_status status = berthi_promises_read(&sources->promises, &reads, error);

    for (uint64_t i = 0; i < convert->checkpoint->table.entry_count; i++)
        if (!sources->is_read[i])
            berthi_promises_leave(&sources->promises, i);
    return status;
}

berth_status
berthi_convert_hold_source(berthi_convert *convert, uint64_t tensor, berth_error *error)
{
    berthi_convert_sources *const sources = &convert->sources;

    return berthi_promises_compare(&sources->promises, &sources->crcs, tensor, error);
}

berth_status
berthi_convert_hold_copied(berthi_convert *convert, uint32_t output, berth_error *error)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_recipe_weight *const weight =
        &recipe->weights[recipe->outputs[output].weight];

    if (!weight->is_copied || weight->first_output != output)
        return BERTH_OK;
    atomic_store(&convert->sources.crcs.tensors[weight->tensor],
                 atomic_load(&convert->crcs[output]));
    return berthi_convert_hold_source(convert, weight->tensor, error);
}

berth_status
berthi_run_hold_sources(const berthi_batch *batch, const berthi_run *run,
                        berth_error *error)
{
    berthi_convert *const convert = batch->convert;
    berth_status status = BERTH_OK;

    if (batch->is_measuring)
        return BERTH_OK;
    for (uint32_t i = 0; status == BERTH_OK; i++) {
        const uint64_t tensor = berthi_convert_source(convert, run->weight, i);

        if (tensor == BERTH_NO_TENSOR)
            break;
        status = berthi_convert_hold_source(convert, tensor, error);
    }
    return status;
}

/* -------------------------------------------------------------------- manifest */

static uint32_t
shard_of(const void *user, uint32_t number)
{
    return ((const berthi_entry *)user)[number].shard;
}

static void
list_tensors(const berthi_convert *convert, const berthi_groups *shards, uint32_t shard,
             berthi_manifest_writer *writer)
{
    const berthi_table *const table = &convert->checkpoint->table;

    for (uint64_t i = berthi_groups_begin(shards, shard); i < shards->ends[shard]; i++) {
        const uint32_t number = shards->numbers[i];

        if (!convert->sources.is_read[number])
            continue;
        berthi_manifest_add_tensor(
            writer,
            &(berthi_manifest_tensor){
                .name = berthi_table_name(table, number),
                .name_length = table->entries[number].name_length,
                .crc32 = atomic_load(&convert->sources.crcs.tensors[number]),
            });
    }
}

berth_status
berthi_convert_list_sources(berthi_convert *convert, berthi_manifest_writer *writer,
                            berth_error *error)
{
    const berth_checkpoint *const c = convert->checkpoint;
    berthi_groups shards;
    const berth_status status =
        berthi_groups_init(&shards, convert->context, c->table.by_name, c->table.entry_count,
                           c->shard_count, shard_of, c->table.entries, error);

    if (status != BERTH_OK)
        return status;
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
        list_tensors(convert, &shards, i, writer);
    }
    berthi_groups_fini(&shards);
    return writer->text.status;
}
