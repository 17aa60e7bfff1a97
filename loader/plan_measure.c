/* SPDX-License-Identifier: Apache-2.0 */
/* plan_measure.c - bytes in memory of what a berth holds: a weight, a slice, an expert. */
#include "kernels/experts.h"
#include "loader/cargo_share.h"
#include "loader/plan_input.h"
#include "loader/recipe_weight.h"
#include "placement/slab.h"
#include "quant/dequantize.h"
#include "quant/format.h"

/*
 * Each of the tensors that the weight is stored in as it is, of a slice its share of each: rows
 * of what berth makes are alike.
 */
static uint64_t
kept_bytes(const berthi_plan_source *source, const berthi_quantized *record,
           const berthi_slice *slice)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i <= record->companion_count; i++) {
        berthi_share share;

        if (!berthi_share_can_get(source->checkpoint, record, slice, i, &share))
            share.bytes = berthi_slice_share(slice, record->shape[0], share.bytes);
        bytes += berthi_slab_round(share.bytes);
    }
    return bytes;
}

/*
 * Bytes of plain numbers that are read for a slice: of columns the rows that they lie in, unless
 * these are more than a piece, as halves of a matrix are.
 */
static uint64_t
read_bytes(const berthi_recipe_weight *weight, const berthi_slice *slice, int32_t dtype,
           uint64_t bytes)
{
    berthi_slice_view view = { 1, 1, 1 };

    if (slice->along == BERTH_SLICING_NONE || bytes == 0)
        return bytes;
    view = berthi_slice_look(slice, weight->shape, weight->rank);
    if (view.outer > 1
        && view.size * view.inner * berth_dtype_bits(dtype) / 8 <= BERTHI_SLAB_PIECE)
        return bytes;
    return bytes / view.size * slice->count;
}

/* Of what is stored quantized, rows are read alone. */
static uint64_t
stored_bytes(const berthi_plan_source *source, const berthi_recipe_weight *weight,
             const berthi_slice *slice)
{
    static const berthi_slice whole = { .along = BERTH_SLICING_NONE };
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);
    const berthi_entry *const entry = berthi_recipe_entry(&source->recipe, weight);
    const bool is_rows = slice->along == BERTH_SLICING_ROWS && slice->parts == 0
                         && weight->shape[0] > 0;

    return record != NULL ? kept_bytes(source, record, is_rows ? slice : &whole)
                          : read_bytes(weight, slice, entry->dtype, entry->end - entry->begin);
}

/* As what a weight that stays as it is, or a slice of it, lies in memory. */
static berthi_storage
kept_storage(const berthi_quantized *record, const berthi_slice *slice)
{
    return (berthi_storage){
        .encoding = record->encoding,
        .dtype = record->dtype >= 0 ? record->dtype : BERTH_BF16,
        .storage = BERTH_U8,
        .block_size = record->block_size,
        .is_double = record->is_double
                     && !berthi_slice_splits_levels(slice, record->shape, record->rank, record),
    };
}

/* Bytes in memory as the weight is stored; false: in no way that berth makes. */
static bool
can_measure(const berthi_storage *storage, const uint64_t *sliced, uint32_t rank,
            berthi_plan_tensor *tensor)
{
    berthi_slab_part parts[BERTHI_SLAB_PARTS];
    uint32_t count;

    tensor->encoding = (int8_t)storage->encoding;
    tensor->dtype = (int8_t)storage->dtype;
    tensor->is_grouped =
        berthi_format_is_4bit(storage->encoding) && rank > 0
        && !berthi_experts_may_have_rings(storage->block_size, sliced[rank - 1]);
    return storage->encoding <= BERTH_ENCODING_INT8
           && berthi_slab_can_list(storage, sliced, rank, parts, &count, &tensor->bytes);
}

/* A dtype is for values: of encodings that berth does not make they are decoded to it. */
bool
berthi_plan_is_kept(const berthi_plan_source *source, const berthi_recipe_weight *weight)
{
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);
    const berth_plan_options *const options = source->options;

    return record != NULL && options->type == BERTH_ENCODING_NATIVE
           && (options->dtype < 0 || record->encoding <= BERTH_ENCODING_INT8
               || !berthi_decoder_is_there(record));
}

static void
measure_kept(const berthi_plan_source *source, const berthi_recipe_weight *weight,
             berthi_plan_tensor *tensor)
{
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);
    const berthi_storage storage = kept_storage(record, &tensor->slice);
    uint64_t sliced[BERTH_MAX_RANK];

    berthi_slice_shape(&tensor->slice, weight->shape, weight->rank, sliced);
    if (!can_measure(&storage, sliced, weight->rank, tensor))
        tensor->bytes = kept_bytes(source, record, &tensor->slice);
    else if (!berthi_quantized_is_as_made(record)) /* of the same kind, but encoded anew */
        tensor->scratch = berthi_slab_scratch(&storage, record->elements);
}

/*
 * What a plan without encoding and dtype leaves as it is, 8-bit floats without scales, too. Slices
 * of what is stored quantized stay as they are.
 */
static berthi_storage
loaded_storage(const berthi_plan_source *source, const berthi_recipe_weight *weight,
               const berthi_slice *slice)
{
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);
    const berth_plan_options *const options = source->options;
    berthi_storage storage = weight->storage;

    if (options->type == BERTH_ENCODING_NATIVE && options->dtype < 0
        && !berthi_plan_is_cast(options))
        storage.dtype = berthi_recipe_entry(&source->recipe, weight)->dtype;
    if (record != NULL
        && berthi_slice_splits_levels(slice, record->shape, record->rank, record))
        storage.is_double = false;
    return storage;
}

void
berthi_plan_measure(const berthi_plan_source *source, uint32_t number,
                    berthi_plan_tensor *tensor)
{
    const berthi_recipe_weight *const weight = &source->recipe.weights[number];
    const berthi_storage storage = loaded_storage(source, weight, &tensor->slice);
    uint64_t sliced[BERTH_MAX_RANK];
    uint64_t turned[2];
    uint64_t elements = 1;

    tensor->stored = stored_bytes(source, weight, &tensor->slice);
    if (berthi_plan_is_kept(source, weight)) {
        measure_kept(source, weight, tensor);
        return;
    }
    berthi_slice_shape(&tensor->slice, berthi_recipe_stored_shape(weight, turned),
                       weight->rank, sliced);
    for (uint32_t i = 0; i < weight->rank; i++)
        elements *= sliced[i];
    if (!can_measure(&storage, sliced, weight->rank, tensor))
        tensor->bytes = 0;
    tensor->scratch = berthi_slab_scratch(&storage, elements);
    if (weight->is_turned)
        tensor->turned = elements * berthi_format_element_bytes(storage.dtype);
}
