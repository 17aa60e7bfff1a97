/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe_keep.c - weights that are stored already as they are to be stored:
 * decoded and encoded once more they would cost time and, doubly quantized or in
 * FP4, accuracy.
 *
 * Codes, first-level and second-level absmax and row maxima go through as they
 * are. What follows from the encoding alone is written as for any other weight:
 * tables, the layout of rows (which old files lack), and the state, so that its
 * text is that of the library however it was spelled. Weights whose files mean
 * something else by the same names are not kept: absmax that were transposed, and
 * second levels of another dtype or with another table.
 */
#include <string.h>

#include "loader/recipe_weight.h"
#include "quant/format.h"

#define NESTED_MAP 2u /* among the companions of a doubly quantized weight */

/* True when everything but the tables is as it would be written. */
static bool
is_as_asked(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    const berthi_storage *const storage = &weight->storage;
    const berthi_quantized *const record = berthi_recipe_record(recipe, weight);

    if (record == NULL || record->encoding != storage->encoding)
        return false;
    if (!berthi_format_is_4bit(storage->encoding))
        return storage->encoding == BERTH_ENCODING_INT8;
    return record->block_size == storage->block_size && record->dtype == storage->dtype
           && record->is_double == storage->is_double
           && berthi_recipe_entry(recipe, weight)->dtype == storage->storage
           && !record->is_transposed_absmax
           && (!record->is_double || record->nested_dtype == BERTH_F32);
}

static berth_status
compare_nested_map(const berthi_recipe *recipe, const berthi_quantized *record,
                   bool *out_is_same, berth_error *error)
{
    const berth_checkpoint *const c = recipe->checkpoint;
    const berthi_entry *const entry =
        &c->table.entries[c->table.by_name[record->companions[NESTED_MAP]]];
    uint8_t published[BERTHI_STORED_CONSTANT_MAX];
    uint8_t stored[BERTHI_STORED_CONSTANT_MAX] = { 0 };
    const uint32_t bytes =
        berthi_stored_constant(BERTHI_ROLE_MAP2, record->encoding, published);
    const berthi_file *file;
    berth_status status = berthi_checkpoint_file(c, entry->shard, &file, error);

    if (status == BERTH_OK)
        status = berthi_file_read(file, stored, bytes,
                                  berthi_checkpoint_offset(c, entry),
                                  "reading the statistics of a weight", error);
    *out_is_same = status == BERTH_OK && memcmp(stored, published, bytes) == 0;
    return status;
}

berth_status
berthi_recipe_can_keep(const berthi_recipe *recipe, const berthi_recipe_weight *weight,
                       bool *out_can_keep, berth_error *error)
{
    const berthi_quantized *const record = berthi_recipe_record(recipe, weight);

    *out_can_keep = is_as_asked(recipe, weight);
    if (!*out_can_keep || !record->is_double)
        return BERTH_OK;
    return compare_nested_map(recipe, record, out_can_keep, error);
}

void
berthi_recipe_finish_state(const berthi_recipe *recipe,
                           const berthi_recipe_weight *weight, berthi_stored *stored)
{
    const berthi_quantized *const record = berthi_recipe_record(recipe, weight);
    berthi_state state;
    char text[1];

    if (stored->role != BERTHI_ROLE_STATE || !berthi_recipe_is_kept(weight))
        return;
    berthi_stored_state(&weight->storage, weight->shape, weight->rank,
                        (float)record->offset, &state);
    stored->bytes = berthi_state_print(&state, text, sizeof text);
    stored->dims[0] = stored->bytes;
    stored->is_late = false;
}
