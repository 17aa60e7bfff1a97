/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe_weight.h - what recipe*.c ask about a weight. Only for them.
 */
#ifndef BERTH_LOADER_RECIPE_WEIGHT_H
#define BERTH_LOADER_RECIPE_WEIGHT_H

#include "kernels/number.h"
#include "loader/recipe.h"

/* As it is stored in the checkpoint. */
static inline const berthi_entry *
berthi_recipe_entry(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    return &recipe->checkpoint->table.entries[weight->tensor];
}

/* NULL: plain numbers. */
static inline const berthi_quantized *
berthi_recipe_record(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    if (weight->record == BERTHI_NO_RECORD)
        return NULL;
    return berthi_classify_record(&recipe->checkpoint->quantized, weight->record);
}

/* For errors. */
static inline berthi_about
berthi_recipe_about(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    const uint32_t shard = berthi_recipe_entry(recipe, weight)->shard;

    return (berthi_about){ .file = recipe->checkpoint->shards[shard].file.path,
                           .tensor = weight->name,
                           .tensor_length = weight->name_length };
}

/*
 * The dtype of the values: as stored, as the record says, or the model's, which 8-bit floats
 * without scales are cast to.
 */
static inline int32_t
berthi_recipe_values_dtype(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    const berthi_quantized *const record = berthi_recipe_record(recipe, weight);
    const int32_t dtype =
        record != NULL ? record->dtype : berthi_recipe_entry(recipe, weight)->dtype;
    const bool is_cast =
        record != NULL ? dtype < 0
                       : berthi_checkpoint_has_small_numbers(recipe->checkpoint, dtype);

    return is_cast ? recipe->dtype : dtype;
}

/* Rows and columns of what is stored: those that are read, or `turned`. */
static inline const uint64_t *
berthi_recipe_stored_shape(const berthi_recipe_weight *weight, uint64_t turned[2])
{
    if (!weight->is_turned)
        return weight->shape;
    turned[0] = weight->shape[1];
    turned[1] = weight->shape[0];
    return turned;
}

/* True when a weight that is stored in `encoding` has its rows and columns exchanged. */
bool berthi_recipe_is_turned(const berthi_recipe *recipe, uint32_t position,
                             int32_t encoding);

/* True for plain numbers of a Conv1D: [inputs, outputs], where others are turned. */
bool berthi_recipe_has_inputs_first(const berthi_recipe *recipe, uint32_t position);

/* QUANT_METHOD, where the weight is stored in an encoding that berth does not decode. */
berth_status berthi_recipe_check_decoder(const berthi_recipe *recipe,
                                         const berthi_recipe_weight *weight,
                                         berth_error *error);

/* The weight as rules and architecture see it: `user` is the recipe. */
void berthi_recipe_get_tensor(void *user, uint32_t position, berthi_model_tensor *out);

/* True when the quantized weight is stored already as its storage says. */
bool berthi_recipe_can_keep(const berthi_recipe *recipe,
                            const berthi_recipe_weight *weight);
/* Gives the state of a weight that is kept its length, which is known: it has its offset. */
void berthi_recipe_finish_state(const berthi_recipe *recipe,
                                const berthi_recipe_weight *weight,
                                berthi_stored *stored);

/* Reads the rules, if there are any, and decides for every weight. */
berth_status berthi_recipe_decide(berthi_recipe *recipe,
                                  const berthi_model_source *source,
                                  const berth_convert_options *options,
                                  berth_error *error);

#endif
