/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_slices.c - what of each tensor of a checkpoint one rank holds, and which stacks of
 * experts can be taken apart.
 */
#include <string.h>

#include "loader/model.h"
#include "loader/plan_input.h"
#include "loader/recipe_weight.h"
#include "quant/format.h"

#define EXPERTS_MAX 4096u /* of a stack: no model has as many */
#define VALUES_MIN  256u  /* of an expert: no model has as few, and each is a berth */

/* Of what a slice leaves of each: products with one expert begin with a block. */
static bool
has_two_experts_in_a_block(const berthi_recipe_weight *weight, const berthi_slice *slice)
{
    uint64_t sliced[BERTH_MAX_RANK];

    if (weight->rank != 3 || !berthi_format_is_4bit(weight->storage.encoding))
        return false;
    berthi_slice_shape(slice, weight->shape, weight->rank, sliced);
    return sliced[1] * sliced[2] % weight->storage.block_size != 0;
}

/*
 * NULL, or why the weight is not cut so. What is stored quantized is cut where it stays so and
 * can be, and neither decoded nor encoded anew.
 */
static const char *
find_refusal(const berthi_plan_source *source, const berthi_recipe_weight *weight,
             const berthi_slice *slice)
{
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);
    const int32_t dtype = berthi_recipe_entry(&source->recipe, weight)->dtype;
    const bool is_kept =
        berthi_plan_is_kept(source, weight) || berthi_recipe_is_kept(weight);

    if (slice->along == BERTH_SLICING_NONE)
        return NULL;
    if (weight->is_turned)
        return "lies turned in its encoding, and slices of it are not";
    if (record != NULL && !is_kept)
        return "is stored quantized, and slices of it are neither decoded nor encoded "
               "anew";
    if (record == NULL && has_two_experts_in_a_block(weight, slice))
        return "would be encoded in blocks of which some hold values of two experts: choose "
               "a smaller block size, or keep it as it is";
    return berthi_cargo_refusal(source->checkpoint, slice, weight->shape, weight->rank,
                                dtype, record);
}

/* ------------------------------------------------------------------------- ranks */

static berth_status
divide(berthi_plan_source *source, const berthi_parallel *parallel, uint32_t number,
       berth_error *error)
{
    const berthi_recipe_weight *const weight = &source->recipe.weights[number];
    const berthi_about where = berthi_recipe_about(&source->recipe, weight);
    const berthi_parallel_tensor tensor = { .name = weight->name,
                                            .name_length = weight->name_length,
                                            .shape = weight->shape,
                                            .rank = weight->rank };
    berthi_slice *const slice = &source->slices[number];
    const berth_status status =
        berthi_parallel_divide(parallel, &tensor, &where, slice, error);
    const char *why;

    if (status != BERTH_OK)
        return status;
    why = find_refusal(source, weight, slice);
    return why == NULL ? BERTH_OK
                       : berthi_fail(error, BERTH_REASON_UNSUPPORTED, &where, "%s", why);
}

berth_status
berthi_plan_list_slices(berthi_plan_source *source, berth_error *error)
{
    const berth_plan_options *const options = source->options;
    const uint64_t count = source->recipe.weight_count;
    berthi_parallel parallel;
    berth_status status;

    if (options->ranks <= 1)
        return BERTH_OK;
    status = berthi_parallel_init(&parallel, options->rank, options->ranks, source->shape,
                                  error);
    if (status != BERTH_OK)
        return status;
    source->slices =
        berthi_arena_alloc(&source->arena, (count + 1) * sizeof *source->slices, 8);
    if (source->slices == NULL)
        return berthi_fail_memory(error, "listing slices");
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = divide(source, &parallel, i, error);
    berthi_parallel_shrink(&parallel, source->shape);
    return status;
}

/* ------------------------------------------------------------------------ stacks */

uint32_t
berthi_plan_stack(const berthi_plan_source *source, uint32_t number)
{
    const berth_plan_options *const options = source->options;
    const berthi_recipe_weight *const weight = &source->recipe.weights[number];
    const berthi_parameter *const parameter =
        source->recipe.architecture->parameter_of[number];

    if (options->train != NULL || !parameter->is_experts || parameter->tie != NULL
        || parameter->is_tie_source || weight->rank != 3 || weight->shape[0] < 2
        || weight->shape[0] > EXPERTS_MAX
        || weight->elements / weight->shape[0] < VALUES_MIN
        || berthi_plan_expert(weight->name, weight->name_length) != BERTHI_NO_EXPERT)
        return 0;
    return (uint32_t)weight->shape[0];
}

bool
berthi_plan_can_take_apart(const berthi_plan_source *source, uint32_t number)
{
    const berthi_recipe_weight *const weight = &source->recipe.weights[number];
    const berthi_quantized *const record = berthi_recipe_record(&source->recipe, weight);

    /*
     * What can be cut behind the first expert can be cut behind each. What is encoded can
     * be: the recipe refuses blocks with values of two experts. Experts are read from the disk
     * as they lie there.
     */
    for (uint64_t first = 0; first < 2; first++) {
        const berthi_slice expert = { .along = BERTH_SLICING_ROWS, .first = first, .count = 1 };

        if (find_refusal(source, weight, &expert) != NULL
            || (record != NULL
                && berthi_slice_splits_levels(&expert, weight->shape, weight->rank, record)))
            return false;
    }
    return true;
}
