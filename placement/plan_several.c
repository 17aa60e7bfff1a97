/* SPDX-License-Identifier: Apache-2.0 */
/* plan_several.c - see plan_several.h. */
#include <string.h>

#include "placement/plan_several.h"
#include "placement/plan_train.h"
#include "placement/slab.h"

berth_status
berthi_plan_try(const berthi_plan_work *work, const berthi_plan_growth *growth, bool *out_does,
                berth_error *error)
{
    berthi_plan_tier_input tiers[BERTHI_TIER_LIMIT];
    berthi_plan_input input = *work->input;
    berth_plan *plan;
    berth_status status;

    for (uint32_t t = 0; t < input.tier_count; t++) {
        tiers[t] = input.tiers[t];
        tiers[t].budget = berthi_add_capped(tiers[t].budget, growth->raise[t]);
    }
    input.tiers = tiers;
    input.is_trial = true;
    status = berthi_plan_make(work->context, &input, &plan, error);
    berthi_plan_free(plan);
    *out_does = status == BERTH_OK;
    return status == BERTH_ENOFIT ? BERTH_OK : status;
}

uint64_t
berthi_plan_most(const berthi_plan_work *work)
{
    const berthi_plan_input *const input = work->input;
    uint64_t bytes = berthi_add_capped(berthi_plan_rings(work), input->activations);

    for (uint32_t i = 0; i < input->tensor_count; i++)
        for (uint32_t k = 0; k < 1 + BERTHI_STREAM_SLOTS_MAX; k++)
            bytes = berthi_add_capped(bytes, input->tensors[i].bytes);
    for (uint32_t l = 0; l < input->layer_count; l++)
        bytes = berthi_add_capped(bytes, berthi_add_capped(input->layers[l].cache,
                                                           work->kept[l]));
    for (uint32_t t = 0; t < input->tier_count; t++)
        bytes = berthi_add_capped(bytes, work->own[t]);
    return input->train != NULL
               ? berthi_add_capped(bytes, berthi_plan_train_most(input->train))
               : bytes;
}

/* What no budget is large enough for, or has no end, stays as it is. */
static berthi_plan_growth
largest_growth(const berthi_plan_work *work)
{
    const uint64_t bytes = berthi_plan_most(work);
    berthi_plan_growth most = { .raise = { 0 } };

    for (uint32_t t = 0; t < work->input->tier_count; t++) {
        const uint64_t raise = berthi_plan_raise(work, t, bytes);

        if (work->input->tiers[t].budget != UINT64_MAX && raise != UINT64_MAX)
            most.raise[t] = raise;
    }
    return most;
}

/* Of one tier, with all others as large as in `most`, which is enough. */
static berth_status
find_least(const berthi_plan_work *work, const berthi_plan_growth *most, uint32_t tier,
           uint64_t *out, berth_error *error)
{
    berthi_plan_growth tried = *most;
    uint64_t low = 0;
    uint64_t high = most->raise[tier];
    bool is_enough = false;
    berth_status status = BERTH_OK;

    tried.raise[tier] = 0; /* mostly it is not short at all */
    if (high > 0)
        status = berthi_plan_try(work, &tried, &is_enough, error);
    if (is_enough)
        high = 0;
    while (status == BERTH_OK && high - low > BERTHI_SLAB_ALIGNMENT) {
        tried.raise[tier] = low + berthi_slab_round((high - low) / 2);
        status = berthi_plan_try(work, &tried, &is_enough, error);
        if (is_enough)
            high = tried.raise[tier];
        else
            low = tried.raise[tier];
    }
    *out = high;
    return status;
}

berth_status
berthi_plan_find_several(const berthi_plan_work *work, berthi_plan_growth *found,
                         bool *out_is_enough, berth_error *error)
{
    const berthi_plan_growth most = largest_growth(work);
    berth_status status = berthi_plan_try(work, &most, out_is_enough, error);

    memset(found, 0, sizeof *found);
    if (status != BERTH_OK || !*out_is_enough)
        return status;
    for (uint32_t t = 0; t < work->input->tier_count && status == BERTH_OK; t++)
        status = find_least(work, &most, t, &found->raise[t], error);
    return status == BERTH_OK ? berthi_plan_try(work, found, out_is_enough, error) : status;
}
