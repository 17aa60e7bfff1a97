/* SPDX-License-Identifier: Apache-2.0 */
/* cargo_share.c - which rows, columns and scales a slice has; see cargo_share.h. */
#include "loader/cargo_share.h"

berthi_cut
berthi_share_cut_by(const berthi_slice *slice, const berthi_slice_view *view, uint64_t values,
                    uint64_t bits)
{
    const uint64_t first = slice->first * view->inner / values * bits / 8;

    if (view->outer == 1)
        return berthi_cut_whole(first);
    return (berthi_cut){ .first = first,
                         .rows = view->outer,
                         .width = slice->count * view->inner / values * bits / 8,
                         .stride = view->size * view->inner / values * bits / 8 };
}

berthi_cut
berthi_share_cut(const berthi_slice *slice, const uint64_t *shape, uint32_t rank, uint32_t bits)
{
    berthi_slice_view view;

    if (slice->along == BERTH_SLICING_NONE)
        return berthi_cut_whole(0);
    view = berthi_slice_look(slice, shape, rank);
    return berthi_share_cut_by(slice, &view, 1, bits);
}

/* Rows, or columns, that share a scale; of codes, that share a byte. */
static uint64_t
block_of(const berthi_quantized *record, const berthi_slice *slice, uint32_t number)
{
    const bool is_column = slice->along == BERTH_SLICING_COLUMNS;

    if (number == 0)
        return record->encoding == BERTH_ENCODING_FP4_PACKED && is_column ? 2 : 1;
    return is_column && record->encoding == BERTH_ENCODING_FP8_BLOCK ? record->block_columns
                                                                     : record->block_size;
}

/*
 * Of experts in MXFP4, which are decoded the other way round: columns are groups of codes and
 * their scales, depths are rows of them.
 */
static bool
can_divide_turned(const berthi_quantized *record, const berthi_slice *slice, berthi_slice *out)
{
    const uint64_t group = record->block_size;

    if (slice->parts > 1 || group == 0)
        return false;
    *out = *slice;
    if (slice->along == BERTH_SLICING_DEPTHS) {
        out->along = BERTH_SLICING_COLUMNS;
        return true;
    }
    *out = (berthi_slice){ .along = BERTH_SLICING_DEPTHS,
                           .first = slice->first / group,
                           .count = slice->count / group };
    return slice->first % group == 0 && slice->count % group == 0;
}

/*
 * Behind the scales of the weight are those of activations: more than one of them are of inputs,
 * which a square matrix has as many of as rows.
 */
static bool
can_divide(const berthi_quantized *record, const berthi_slice *slice, uint32_t number,
           const uint64_t *dims, uint32_t rank, berthi_slice *out)
{
    *out = *slice;
    if (record->rank == 3 && slice->along == BERTH_SLICING_ROWS)
        return rank > 0 && slice->parts <= 1 && dims[0] == record->shape[0];
    if (record->rank == 3)
        return record->encoding == BERTH_ENCODING_MXFP4 && number <= 1
               && can_divide_turned(record, slice, out);
    return number <= 1 && berthi_share_has_blocks(record)
           && berthi_slice_can_take(slice, record->shape, block_of(record, slice, number),
                                    dims, rank, out);
}

/* One number is for every part of the weight, but experts have scales of their own. */
static bool
is_for_all(const berthi_quantized *record, uint64_t elements)
{
    return record->rank == 2 && elements == 1;
}

bool
berthi_share_can_get(const berth_checkpoint *checkpoint, const berthi_quantized *record,
                     const berthi_slice *slice, uint32_t number, berthi_share *out)
{
    const berthi_table *const table = &checkpoint->table;
    const uint32_t name = number == 0 ? record->weight : record->companions[number - 1];
    const uint64_t position = table->by_name[name];
    const berthi_entry *const entry = &table->entries[position];
    const uint64_t bytes = entry->end - entry->begin;
    const uint32_t bits = berth_dtype_bits(entry->dtype);
    uint64_t dims[BERTH_MAX_RANK];
    berthi_slice own;
    uint64_t size;

    *out = (berthi_share){ .entry = position, .bytes = bytes, .cut = berthi_cut_whole(0) };
    if (slice->along == BERTH_SLICING_NONE
        || (number > 0
            && is_for_all(record, berthi_entry_elements(table->text, entry))))
        return true;
    berthi_entry_shape(table->text, entry, dims);
    if (!can_divide(record, slice, number, dims, entry->rank, &own)
        || berthi_slice_refusal(&own, dims, entry->rank, entry->dtype, NULL) != NULL)
        return false;
    if (own.along == BERTH_SLICING_NONE)
        return true;
    size = dims[berthi_slice_dimension(&own)];
    out->bytes = size > 0 ? bytes / size * own.count * berthi_slice_parts(&own) : 0;
    out->cut = berthi_share_cut(&own, dims, entry->rank, bits);
    return true;
}
