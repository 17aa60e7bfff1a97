/* SPDX-License-Identifier: Apache-2.0 */
/* plan_sum.c - the sums of a plan, out of its berths: the only place that adds them up. */
#include "placement/plan_train.h"

/* On its layer's home, or on another device that computes it there. */
static bool
is_resident(const berth_plan *plan, const berthi_berth *berth, uint32_t home)
{
    return berth->tier == home || plan->tiers[berth->tier].kind == BERTH_TIER_GPU;
}

static void
sum_layer(berth_plan *plan, uint32_t number)
{
    berth_plan_layer *const layer = &plan->layers[number].out;

    layer->bytes = 0;
    layer->resident_bytes = 0;
    for (uint64_t i = 0; i < layer->berth_count; i++) {
        berthi_berth *const berth = &plan->berths[layer->first_berth + i];
        berth_plan_tier *const tier = &plan->tiers[berth->tier];

        berth->is_resident = is_resident(plan, berth, layer->home);
        if (berth->is_tied)
            continue;
        layer->bytes += berth->bytes;
        if (berth->is_resident)
            layer->resident_bytes += berth->bytes;
        tier->berths++;
        tier->weights = berthi_max_u64(tier->weights, berth->offset + berth->bytes);
    }
    plan->tiers[layer->home].layers++;
    plan->tiers[layer->home].cache += layer->cache_bytes;
    plan->summary.bytes += layer->bytes;
    plan->summary.resident_bytes += layer->resident_bytes;
    if (number > 0)
        plan->summary.cuts += plan->layers[number - 1].out.home != layer->home;
}

uint64_t
berthi_plan_taken(const berth_plan_tier *tier)
{
    return berthi_add_capped(tier->reserve, tier->weights + tier->cache + tier->activations
                                                + tier->slots + tier->expert_slots
                                                + tier->scratch + tier->turned
                                                + tier->staging + tier->training);
}

static void
sum_tier(berth_plan_tier *tier)
{
    uint64_t taken;

    tier->slots = tier->slot_count * tier->slot_bytes;
    tier->free = 0;
    taken = berthi_plan_taken(tier);
    if (tier->budget == UINT64_MAX)
        tier->free = UINT64_MAX;
    else if (tier->budget > taken)
        tier->free = tier->budget - taken;
}

void
berthi_plan_sum(berth_plan *plan)
{
    berth_plan_summary *const summary = &plan->summary;

    summary->bytes = 0;
    summary->resident_bytes = 0;
    summary->cuts = 0;
    for (uint32_t t = 0; t < summary->tier_count; t++) {
        plan->tiers[t].weights = 0;
        plan->tiers[t].berths = 0;
        plan->tiers[t].layers = 0;
        plan->tiers[t].cache = 0;
    }
    for (uint32_t l = 0; l < summary->layer_count; l++)
        sum_layer(plan, l);
    berthi_plan_train_sum(plan);
    for (uint32_t t = 0; t < summary->tier_count; t++)
        sum_tier(&plan->tiers[t]);
    summary->streamed_bytes = summary->bytes - summary->resident_bytes;
}
