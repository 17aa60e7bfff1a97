/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_check.c - whether a plan is one that the model can move to: of the same tensors in
 * the same encodings, on devices that it was loaded onto.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/move.h"

berth_status
berthi_move_refuse(const berthi_replan *replan, uint64_t berth, berth_reason reason,
                   const char *why, berth_error *error)
{
    const berth_model *const model = replan->model;
    const uint64_t number = model->plan->berths[berth].number;
    const berthi_about about = berthi_checkpoint_about(model->checkpoint, number);

    return berthi_fail(error, reason, &about, "%s", why);
}

static bool
is_same_berth(const berthi_berth *a, const berthi_berth *b)
{
    return a->number == b->number && a->layer == b->layer && a->encoding == b->encoding
           && a->dtype == b->dtype && a->bytes == b->bytes && a->is_tied == b->is_tied;
}

static bool
is_same_slice(const berth_plan *a, const berth_plan *b, uint64_t berth)
{
    const berthi_slice one = berthi_plan_slice(a, berth);
    const berthi_slice other = berthi_plan_slice(b, berth);

    return berthi_slice_is_same(&one, &other);
}

berth_status
berthi_move_check_same(const berthi_replan *replan, berth_error *error)
{
    const berth_plan_summary *const a = &replan->model->plan->summary;
    const berth_plan_summary *const b = &replan->plan->summary;

    if (a->digest != b->digest)
        return berthi_fail(
            error, BERTH_REASON_PLAN_CHECKPOINT,
            &(berthi_about){ .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                    | BERTH_HAS_CRC32,
                             .expected = a->digest,
                             .actual = b->digest },
            "names, dtypes or shapes are not those of the model");
    if (replan->model->plan->berth_count != replan->plan->berth_count
        || a->layer_count != b->layer_count || a->type != b->type
        || a->block_size != b->block_size || a->double_quant != b->double_quant
        || a->stacks != b->stacks)
        return berthi_fail_argument(error, "plan",
                                    "wants other encodings, layers or stacks");
    for (uint64_t i = 0; i < replan->plan->berth_count; i++)
        if (!is_same_berth(&replan->model->plan->berths[i], &replan->plan->berths[i])
            || !is_same_slice(replan->model->plan, replan->plan, i))
            return berthi_move_refuse(
                replan, i, BERTH_REASON_ARGUMENT,
                "has another berth in this plan than it was loaded into", error);
    return BERTH_OK;
}

berth_status
berthi_move_check_devices(const berthi_replan *replan, berth_error *error)
{
    const berthi_about about = { .tensor = "plan", .tensor_length = strlen("plan") };
    const berth_model *const model = replan->model;
    const uint32_t count =
        model->devices != NULL ? berthi_devices_count(model->devices) : 0;
    uint32_t gpus = 0;

    for (uint32_t t = 0; t < replan->plan->summary.tier_count; t++)
        gpus += replan->plan->tiers[t].kind == BERTH_TIER_GPU;
    if (gpus > count)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                           "has %" PRIu32 " GPUs, and the model %" PRIu32 " devices", gpus,
                           count);
    for (uint32_t t = 0; t < replan->plan->summary.tier_count; t++)
        if (replan->plan->tiers[t].kind == BERTH_TIER_GPU
            && berthi_model_find_gpu(model, replan->plan->tiers[t].name) == BERTHI_NO_DEVICE)
            return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                               "has %s, which the model was not loaded onto",
                               replan->plan->tiers[t].name);
    return BERTH_OK;
}
