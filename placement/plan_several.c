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

/* What one tier has to grow by: more than `low`, and `high` is enough. */
typedef struct stretch {
    uint64_t low;
    uint64_t high;
} stretch;

/* With all others as large as in `most`. */
static berth_status
narrow(const berthi_plan_work *work, const berthi_plan_growth *most, uint32_t tier,
       uint64_t raise, stretch *left, berth_error *error)
{
    berthi_plan_growth tried = *most;
    bool is_enough;
    berth_status status;

    tried.raise[tier] = raise;
    status = berthi_plan_try(work, &tried, &is_enough, error);
    if (status == BERTH_OK && is_enough)
        left->high = raise;
    else
        left->low = raise;
    return status;
}

/*
 * First of all it is asked whether it is short at all, and whether of as much as `guess`: of
 * devices that are alike mostly two searches do.
 */
static berth_status
find_least(const berthi_plan_work *work, const berthi_plan_growth *most, uint32_t tier,
           uint64_t guess, uint64_t *out, berth_error *error)
{
    const uint64_t first[] = { 0, guess, guess - berthi_min_u64(guess, BERTHI_SLAB_ALIGNMENT) };
    stretch left = { 0, most->raise[tier] };
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < 3 && status == BERTH_OK; i++)
        if (first[i] < left.high && (i == 0 || first[i] > left.low))
            status = narrow(work, most, tier, first[i], &left, error);
    while (status == BERTH_OK && left.high - left.low > BERTHI_SLAB_ALIGNMENT)
        status = narrow(work, most, tier,
                        left.low + berthi_slab_round((left.high - left.low) / 2), &left, error);
    *out = left.high;
    return status;
}

berth_status
berthi_plan_find_several(const berthi_plan_work *work, berthi_plan_growth *found,
                         bool *out_is_enough, berth_error *error)
{
    const berthi_plan_growth most = largest_growth(work);
    uint64_t guess = 0;
    berth_status status = berthi_plan_try(work, &most, out_is_enough, error);

    memset(found, 0, sizeof *found);
    if (status != BERTH_OK || !*out_is_enough)
        return status;
    for (uint32_t t = 0; t < work->input->tier_count && status == BERTH_OK; t++) {
        status = find_least(work, &most, t, guess, &found->raise[t], error);
        guess = found->raise[t] > 0 ? found->raise[t] : guess;
    }
    return status == BERTH_OK ? berthi_plan_try(work, found, out_is_enough, error) : status;
}
