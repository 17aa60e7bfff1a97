/* SPDX-License-Identifier: Apache-2.0 */
/* plan_train_api.c - what a plan for training says, as berth.h has it. */
#include <string.h>

#include "placement/plan_train.h"

berth_status
berth_plan_get_training(const berth_plan *plan, berth_plan_training *out)
{
    memset(out, 0, sizeof *out);
    if (plan->training == NULL)
        return BERTH_EINVAL;
    *out = plan->training->about;
    return BERTH_OK;
}

berth_status
berth_plan_get_training_tier(const berth_plan *plan, uint32_t tier,
                             berth_plan_training_tier *out)
{
    memset(out, 0, sizeof *out);
    if (plan->training == NULL || tier >= plan->summary.tier_count)
        return BERTH_EINVAL;
    *out = plan->training->tiers[tier];
    return BERTH_OK;
}

berth_status
berth_plan_get_parameter(const berth_plan *plan, uint64_t number, berth_plan_parameter *out,
                         char *name, size_t capacity)
{
    const berthi_trained *trained;
    berthi_states states;

    memset(out, 0, sizeof *out);
    if (plan->training == NULL || number >= plan->training->about.parameter_count)
        return BERTH_EINVAL;
    trained = &plan->training->trained[number];
    states = berthi_trained_states(&plan->training->about, trained);
    *out = (berth_plan_parameter){ .berth = trained->berth,
                                   .layer = plan->berths[trained->berth].layer,
                                   .tier = berthi_trained_tier(plan, trained),
                                   .place = trained->place,
                                   .dtype = trained->dtype,
                                   .rows = trained->rows,
                                   .columns = trained->columns,
                                   .states = berthi_states_bytes(&states) };
    if (name != NULL)
        berthi_trained_name(plan, trained, name, capacity);
    return BERTH_OK;
}

berth_status
berth_plan_get_group_sized(const berth_plan *plan, int32_t place, berth_optimizer_group *out,
                           size_t struct_size)
{
    static const berth_optimizer_group none;
    berth_optimizer_group group;
    const berth_plan_training *const about =
        plan->training != NULL ? &plan->training->about : NULL;

    if (about == NULL || place < 0 || place >= BERTH_STATES_PLACE_COUNT
        || berth_optimizer_group_init(&group, about->kind) != BERTH_OK) {
        (void)berthi_options_give(out, struct_size, &none, sizeof none);
        return BERTH_EINVAL;
    }
    group.bits = about->bits;
    group.place = place;
    group.has_master = about->has_master;
    return berthi_options_give(out, struct_size, &group, sizeof group);
}
