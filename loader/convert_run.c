/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_run.c - how a weight is cut into units.
 *
 *   straight   values in their order, each unit encoded by itself
 *   turned     [rows, columns] -> [columns, rows]: units are rows as they lie in
 *              the file; of each, the columns of the strip under way are put in
 *              their new place, and a complete strip is encoded
 *   copied     bytes; of a kept weight those of its codes, its statistics follow
 *              the last of them (convert_keep.c)
 */
#include <string.h>

#include "kernels/base.h"
#include "loader/convert_batch.h"
#include "quant/format.h"

/* -------------------------------------------------------------------- initing */

static bool
can_decode(berthi_run *run, const berthi_convert *convert)
{
    const berthi_recipe_weight *const weight = run->weight;

    if (run->record != NULL)
        return berthi_decoder_can_init(&run->decoder, &convert->operations, run->record);
    return berthi_decoder_can_init_native(
        &run->decoder, convert->checkpoint->table.entries[weight->tensor].dtype,
        weight->elements);
}

static bool
can_encode(berthi_run *run, const berthi_convert *convert)
{
    const berthi_recipe_weight *const weight = run->weight;
    uint64_t turned[2];
    const uint64_t *shape = weight->shape;

    if (weight->is_turned) {
        turned[0] = shape[1];
        turned[1] = shape[0];
        shape = turned;
    }
    return berthi_quantizer_can_init(&run->quantizer, &convert->operations,
                                     &weight->storage, shape, weight->rank);
}

/* ------------------------------------------------------------------- cutting */

/* Rows as they are read are columns of what is stored. */
static bool
can_cut_turned(berthi_run *run, const berthi_convert_sizes *sizes)
{
    const berthi_recipe_weight *const weight = run->weight;
    const uint64_t rows = weight->shape[0];
    const uint64_t columns = weight->shape[1];
    const uint64_t row_bytes = rows * berthi_format_element_bytes(weight->storage.dtype);
    const uint64_t step = berthi_quantizer_step(&run->quantizer);
    /* New rows that end where a piece may end. */
    const uint64_t multiple = step / berthi_greatest_divisor(step, rows);
    berthi_run_plan *const plan = &run->plan;
    uint64_t fit = sizes->strip / row_bytes;

    fit = berthi_max_u64(fit / multiple, 1) * multiple;
    plan->strip = berthi_min_u64(fit, columns);
    plan->strip_count = berthi_divide_up(columns, plan->strip);
    plan->unit = berthi_max_u64(sizes->unit_values / columns, 1) * columns;
    plan->unit = berthi_min_u64(plan->unit, weight->elements);
    return plan->unit <= sizes->unit_values_max
           && plan->strip <= sizes->unit_values_max / rows;
}

static bool
can_cut_straight(berthi_run *run, const berthi_convert_sizes *sizes)
{
    const berthi_recipe_weight *const weight = run->weight;
    berthi_run_plan *const plan = &run->plan;
    const uint64_t wide = run->stored_bytes / weight->elements; /* bytes of a value */
    uint64_t values = sizes->unit_values;
    uint64_t step;

    if (!berthi_can_multiple(berthi_quantizer_step(&run->quantizer),
                             berthi_decoder_step(&run->decoder), sizes->unit_values_max,
                             &step))
        return false;
    if (wide > 0)
        values = berthi_min_u64(values, sizes->unit_bytes / wide);
    plan->unit = berthi_max_u64(values / step, 1) * step;
    plan->unit = berthi_min_u64(plan->unit, weight->elements);
    plan->strip_count = 1;
    return true;
}

/* Encoded by itself at a time: a unit, unless it has to be large, or of a strip as much. */
static uint64_t
piece_elements(const berthi_run *run, const berthi_convert_sizes *sizes)
{
    const uint64_t step = berthi_quantizer_step(&run->quantizer);
    const uint64_t piece = berthi_max_u64(sizes->unit_values / step, 1) * step;

    return berthi_min_u64(piece, run->weight->elements);
}

/* Of a weight that becomes plain numbers: a unit is a piece. */
static void
add_decoding(const berthi_run *run, berthi_scratch_sizes *sizes)
{
    const berthi_quantized_part part = berthi_decoder_most(&run->decoder, run->plan.unit);

    sizes->packed = berthi_scratch_round(berthi_packed_bytes(&part));
    sizes->device = sizes->values + sizes->packed;
}

static berthi_scratch_sizes
scratch_sizes(const berthi_run *run, bool has_device)
{
    const berthi_storage *const storage = &run->weight->storage;
    const uint64_t values = run->plan.unit + berthi_decoder_lead_max(&run->decoder);
    const berthi_quantized_part part =
        berthi_quantizer_part(&run->quantizer, 0, run->plan.piece);

    berthi_scratch_sizes sizes = {
        .values = berthi_scratch_round(values * berthi_format_element_bytes(storage->dtype)),
    };

    if (storage->encoding == BERTH_ENCODING_NATIVE) {
        if (has_device && run->record != NULL && berthi_decoder_has_request(&run->decoder))
            add_decoding(run, &sizes);
        return sizes;
    }
    sizes.packed = berthi_scratch_round(berthi_packed_bytes(&part));
    if (has_device) {
        const uint64_t piece =
            berthi_scratch_round(run->plan.piece * berthi_format_element_bytes(storage->dtype));

        sizes.values = berthi_max_u64(sizes.values, piece); /* it may be copied from there */
        sizes.device = piece + sizes.packed;
    }
    return sizes;
}

static void
measure(berthi_run *run, const berthi_convert *convert)
{
    const berthi_recipe_weight *const weight = run->weight;
    const uint32_t bytes = berthi_format_element_bytes(weight->storage.dtype);
    berthi_run_plan *const plan = &run->plan;
    const uint32_t companions = berthi_decoder_companions(&run->decoder);
    const uint64_t blocks = run->quantizer.blocks;

    plan->piece = piece_elements(run, &convert->sizes);
    plan->strip_units = berthi_divide_up(weight->elements, plan->unit);
    plan->read_max = berthi_decoder_extent(&run->decoder, 0, plan->unit).bytes + 1;
    plan->scratch = scratch_sizes(run, convert->device != NULL);
    for (uint32_t i = 0; i < companions; i++) {
        const berthi_table *const table = &convert->checkpoint->table;
        const berthi_entry *const entry =
            &table->entries[table->by_name[run->record->companions[i]]];

        plan->companion_bytes +=
            berthi_round_up(entry->end - entry->begin, BERTHI_RUN_ALIGNMENT);
    }
    plan->statistics_bytes = berthi_decoder_statistics_bytes(&run->decoder);
    plan->memory = plan->companion_bytes
                   + berthi_round_up(plan->statistics_bytes, BERTHI_RUN_ALIGNMENT);
    if (weight->is_turned)
        plan->memory +=
            berthi_round_up(plan->strip * weight->shape[0] * bytes, BERTHI_RUN_ALIGNMENT);
    if (berthi_stored_is_double(&weight->storage))
        plan->double_bytes =
            berthi_round_up(blocks * sizeof(float), BERTHI_RUN_ALIGNMENT)
            + berthi_round_up(blocks, BERTHI_RUN_ALIGNMENT)
            + berthi_round_up((blocks / 256 + 1) * sizeof(float), BERTHI_RUN_ALIGNMENT)
            + berthi_round_up(berthi_quantizer_scratch(&run->quantizer) * sizeof(float),
                              BERTHI_RUN_ALIGNMENT);
    plan->memory += plan->double_bytes;
}

static berth_status
fail_cut(const berthi_convert *convert, const berthi_run *run, berth_error *error)
{
    const berthi_entry *const entry =
        &convert->checkpoint->table.entries[run->weight->tensor];
    const berthi_about about = {
        .file = convert->checkpoint->shards[entry->shard].file.path,
        .tensor = run->weight->name,
        .tensor_length = run->weight->name_length,
    };

    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                       "has no pieces of at most %u million values that can be "
                       "converted by themselves",
                       (unsigned)(convert->sizes.unit_values_max >> 20));
}

/* Who asked for a device does not want the processor to do its work. */
static berth_status
check_device(const berthi_convert *convert, const berthi_run *run, berth_error *error)
{
    const bool is_decoded = berthi_run_is_decoded_there(run);
    const int32_t encoding =
        is_decoded ? run->decoder.encoding : run->weight->storage.encoding;
    berthi_device *const device = convert->device;
    const berthi_about about = { .tensor = run->weight->name,
                                 .tensor_length = run->weight->name_length };
    berthi_device_properties properties;
    berthi_request request;

    if (run->plan.scratch.device == 0)
        return BERTH_OK;
    if (is_decoded)
        berthi_decoder_request(&run->decoder, 0, 0, NULL, NULL, BERTH_F32, NULL, &request);
    else
        berthi_quantizer_request(&run->quantizer, NULL, 0, NULL, NULL, &request);
    if (device->table->has_operation(device, request.operation))
        return BERTH_OK;
    device->table->describe(device, &properties);
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                       "%s, %s, has no kernel of this build that %s %s: leave the device out, "
                       "and the processor does it",
                       properties.name, properties.description,
                       is_decoded ? "decodes" : "makes", berth_encoding_name(encoding));
}

/* So much of a kept weight's statistics is copied at a time. */
static uint64_t
largest_companion(const berthi_convert *convert, const berthi_run *run, uint64_t limit)
{
    const berthi_table *const table = &convert->checkpoint->table;
    uint64_t largest = 0;

    for (uint32_t i = 0; i < run->record->companion_count; i++) {
        const berthi_entry *const entry =
            &table->entries[table->by_name[run->record->companions[i]]];

        largest = berthi_max_u64(largest, entry->end - entry->begin);
    }
    return berthi_round_up(berthi_min_u64(largest, limit), BERTHI_RUN_ALIGNMENT);
}

berth_status
berthi_run_init(const berthi_convert *convert, berthi_run *run,
                const berthi_recipe_weight *weight, berth_error *error)
{
    const berthi_convert_sizes *const sizes = &convert->sizes;
    const berthi_entry *const entry =
        &convert->checkpoint->table.entries[weight->tensor];

    memset(run, 0, sizeof *run);
    run->weight = weight;
    run->stored_bytes = entry->end - entry->begin;
    if (weight->record != BERTHI_NO_RECORD)
        run->record =
            berthi_classify_record(&convert->checkpoint->quantized, weight->record);
    if (weight->is_copied) {
        run->plan.unit = sizes->unit_bytes;
        run->plan.strip_count = 1;
        run->plan.strip_units = berthi_divide_up(run->stored_bytes, sizes->unit_bytes);
        run->plan.read_max = berthi_min_u64(run->stored_bytes, sizes->unit_bytes);
        if (run->record != NULL)
            run->plan.memory = largest_companion(convert, run, sizes->unit_bytes);
    } else if (weight->elements == 0) {
        return BERTH_OK; /* no rule quantizes it: nothing is read or written */
    } else {
        if (!can_decode(run, convert) || !can_encode(run, convert)
            || !(weight->is_turned ? can_cut_turned(run, sizes)
                                   : can_cut_straight(run, sizes)))
            return fail_cut(convert, run, error);
        measure(run, convert);
    }
    run->units_left = run->plan.strip_units * run->plan.strip_count;
    run->strip_left = run->plan.strip_units;
    return check_device(convert, run, error);
}

/* --------------------------------------------------------------------- units */

berthi_unit
berthi_run_unit(const berthi_run *run, uint32_t number_of_run, uint64_t number)
{
    const berthi_run_plan *const plan = &run->plan;
    const uint64_t first = number % plan->strip_units * plan->unit;
    uint64_t all = run->weight->elements;

    if (run->weight->is_copied)
        all = run->stored_bytes;
    return (berthi_unit){
        .run = number_of_run,
        .first = first,
        .count = berthi_min_u64(plan->unit, all - first),
        .strip = number / plan->strip_units,
    };
}

berthi_decoder_span
berthi_unit_span(const berthi_run *run, const berthi_unit *unit)
{
    if (run->weight->is_copied)
        return (berthi_decoder_span){ .begin = unit->first, .bytes = unit->count };
    return berthi_decoder_extent(&run->decoder, unit->first, unit->count);
}
