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
#include "loader/recipe_weight.h"
#include "quant/format.h"

bool
berthi_recipe_can_keep(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
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
           && berthi_quantized_is_as_made(record);
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
