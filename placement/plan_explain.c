/* SPDX-License-Identifier: Apache-2.0 */
/* plan_explain.c - why a layer is where it is, in one sentence. */
#include <stdio.h>
#include <string.h>

#include "placement/plan.h"
#include "placement/plan_words.h"

/* The slowest tier that something of the layer lies on. */
static const char *
source_of(const berth_plan *plan, const berth_plan_layer *layer)
{
    uint32_t slowest = layer->home;

    for (uint64_t i = 0; i < layer->berth_count; i++)
        if (plan->berths[layer->first_berth + i].tier > slowest)
            slowest = plan->berths[layer->first_berth + i].tier;
    return plan->tiers[slowest].name;
}

static void
explain_short(const berth_plan *plan, const berth_plan_layer *layer, char *text,
              size_t capacity)
{
    const char *const home = plan->tiers[layer->home].name;
    char resident[32];
    char missing[32];

    (void)berth_size_format(layer->resident_bytes, resident);
    (void)berth_size_format(layer->missing, missing);
    (void)snprintf(text, capacity, "%s on %s, the rest streamed from %s: %s is short of %s",
                   resident, home, source_of(plan, layer), home, missing);
}

/* Behind the sentence: what of the layer's experts is expected to be there already. */
static void
explain_experts(const berth_plan *plan, const berth_plan_layer *layer, char *text,
                size_t capacity)
{
    const berth_plan_tier *const home = &plan->tiers[layer->home];
    const size_t length = strlen(text);
    char hits[BERTHI_REAL_CAPACITY];
    bool has_experts = false;

    for (uint64_t i = 0; i < layer->berth_count; i++)
        has_experts |= plan->berths[layer->first_berth + i].is_expert
                       && !plan->berths[layer->first_berth + i].is_resident;
    if (has_experts && home->expert_slot_count > 0)
        (void)snprintf(text + length, capacity - length,
                       "; %u slot%s for %llu expert%s, %s %% hits %s",
                       (unsigned)home->expert_slot_count,
                       home->expert_slot_count == 1 ? "" : "s",
                       (unsigned long long)home->experts_away,
                       home->experts_away == 1 ? "" : "s",
                       berthi_real_text((double)home->expert_hits / 1e7, hits),
                       home->routing == BERTH_ROUTING_GIVEN ? "as given"
                                                            : "if all are as likely");
}

/* One expert's tensors have its number in their names, and are marked. */
static bool
is_stack(const berth_plan *plan, uint64_t number)
{
    const berthi_berth *const berth = &plan->berths[number];
    char name[512];

    if (berth->is_expert || berth->is_tied || berth->is_resident)
        return false;
    (void)berthi_plan_name(plan, number, name, sizeof name);
    return strstr(name, ".experts.") != NULL;
}

/* All experts of a layer in one tensor: no expert can be brought without the others. */
static void
explain_stacks(const berth_plan *plan, const berth_plan_layer *layer, char *text,
               size_t capacity)
{
    const size_t length = strlen(text);
    bool has_stacks = false;
    bool is_apart = false; /* what is called like experts and is none is a bias */

    for (uint64_t i = 0; i < layer->berth_count && !is_apart; i++) {
        is_apart = plan->berths[layer->first_berth + i].is_expert;
        has_stacks = has_stacks || is_stack(plan, layer->first_berth + i);
    }
    if (has_stacks && !is_apart)
        (void)snprintf(text + length, capacity - length,
                       "; its experts are stacked in one tensor: streamed whole, chosen or "
                       "not");
}

void
berthi_plan_explain(const berth_plan *plan, uint32_t layer, char *text, size_t capacity)
{
    const berth_plan_layer *const out = &plan->layers[layer].out;
    const char *const home = plan->tiers[out->home].name;

    if (capacity == 0)
        return;
    switch (out->cause) {
    case BERTH_PLAN_SHORT: explain_short(plan, out, text, capacity); break;
    case BERTH_PLAN_ROWS:
        (void)snprintf(text, capacity,
                       "in %s: rows are fetched one by one, %s keeps its room for layers",
                       source_of(plan, out), home);
        break;
    case BERTH_PLAN_PINNED:
        (void)snprintf(text, capacity, "computed on %s, lies on %s: pinned", home,
                       source_of(plan, out));
        break;
    case BERTH_PLAN_MAPPED:
        (void)snprintf(text, capacity, "computed on %s, lies on %s: the device map says so",
                       home, source_of(plan, out));
        break;
    case BERTH_PLAN_TIED:
        (void)snprintf(text, capacity, "on %s, beside the layer that shares its weights",
                       home);
        break;
    default: (void)snprintf(text, capacity, "fits on %s", home); break;
    }
    explain_experts(plan, out, text, capacity);
    explain_stacks(plan, out, text, capacity);
}
