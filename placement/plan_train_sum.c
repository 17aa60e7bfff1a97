/* SPDX-License-Identifier: Apache-2.0 */
/* plan_train_sum.c - what training takes of each memory, and how long updates take. */
#include <string.h>

#include "placement/plan_train.h"
#include "quant/format.h"

/* While parameters are added up. */
typedef struct summing {
    berth_plan *plan;
    berthi_plan_training *training;
    uint64_t pages[BERTHI_TIER_LIMIT]; /* the largest that visit each device */
    uint64_t disk_page;
    uint32_t host;                     /* tier; BERTHI_NO_TIER: none */
    uint32_t disk;
} summing;

static uint32_t
find_kind(const berth_plan *plan, int32_t kind)
{
    for (uint32_t t = 0; t < plan->summary.tier_count; t++)
        if (plan->tiers[t].kind == kind)
            return t;
    return BERTHI_NO_TIER;
}

static void
visit(summing *s, uint32_t device, const berthi_states *states)
{
    s->pages[device] = berthi_max_u64(s->pages[device], berthi_states_page_bytes(states));
    s->training->tiers[device].link_bytes += berthi_states_bytes(states);
}

static void
add_states(summing *s, const berthi_trained *trained, uint32_t device)
{
    berth_plan_training *const about = &s->training->about;
    berth_plan_training_tier *const tiers = s->training->tiers;
    const berthi_states states = berthi_trained_states(about, trained);
    const uint64_t bytes = berthi_states_bytes(&states);
    uint64_t taken = bytes;

    if (trained->place == BERTH_STATES_DEVICE) {
        tiers[device].states += bytes;
    } else if (trained->place == BERTH_STATES_HOST) {
        taken = berthi_states_buffer_bytes(bytes, about->page_bytes);
        tiers[s->host].states += taken;
        visit(s, device, &states);
    } else {
        tiers[s->disk].states += bytes;
        s->disk_page = berthi_max_u64(s->disk_page, berthi_states_page_bytes(&states));
        about->disk_bytes += 2 * bytes;
        visit(s, device, &states);
    }
    about->states[trained->place] += taken;
    tiers[device].update_bytes += 2 * bytes;
    about->elements += states.elements;
    about->elements_8bit += states.bits == 8 ? states.elements : 0;
}

static void
add_parameter(summing *s, const berthi_trained *trained)
{
    const uint32_t device = berthi_trained_tier(s->plan, trained);
    berth_plan_training_tier *const tier = &s->training->tiers[device];
    const uint64_t gradient = berthi_trained_gradient(&s->training->about, trained);

    tier->adapters += berthi_trained_adapter(trained);
    tier->gradients += gradient;
    tier->update_bytes += gradient
                          + 2 * trained->rows * trained->columns
                                * berthi_format_element_bytes(trained->dtype);
    add_states(s, trained, device);
}

/* What updates need besides, on each device and in host memory. */
static void
add_room(summing *s)
{
    const berth_plan *const plan = s->plan;
    berth_plan_training_tier *const tiers = s->training->tiers;

    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        /* Layers may have nothing that is trained; a map may part tensors from theirs. */
        if (plan->tiers[t].kind != BERTH_TIER_GPU || tiers[t].update_bytes == 0)
            continue;
        tiers[t].scratch = berthi_states_scratch_bytes(BERTHI_STATES_PAGE);
        tiers[t].slots = BERTHI_STATES_SLOTS * berthi_states_slot_bytes(s->pages[t]);
    }
    if (s->host != BERTHI_NO_TIER)
        tiers[s->host].staging =
            BERTHI_STATES_BUFFERS
            * berthi_states_buffer_bytes(s->disk_page, s->training->about.page_bytes);
}

/* ------------------------------------------------------------------------- times */

static double
seconds_of(uint64_t bytes, uint64_t rate)
{
    return (double)bytes / (double)berthi_max_u64(rate, 1);
}

static void
take_longest(berth_plan_training *about, double seconds, int32_t bound, uint32_t tier)
{
    if (seconds <= about->seconds)
        return;
    about->seconds = seconds;
    about->bound = bound;
    about->bound_tier = tier;
}

static void
predict(summing *s)
{
    const berth_plan *const plan = s->plan;
    berth_plan_training *const about = &s->training->about;

    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        const berth_plan_training_tier *const tier = &s->training->tiers[t];
        const double update = seconds_of(tier->update_bytes, plan->tiers[t].memory_rate);
        /* A processor's states come from the disk alone. */
        const double link = plan->tiers[t].kind == BERTH_TIER_GPU
                                ? seconds_of(tier->link_bytes, plan->tiers[t].link_rate)
                                : 0;

        take_longest(about, update, BERTH_PLAN_BY_COMPUTING, t);
        take_longest(about, link, BERTH_PLAN_BY_LINK, t);
        if (update > about->update_seconds)
            about->update_seconds = update;
        if (link > about->link_seconds)
            about->link_seconds = link;
        about->link_bytes += plan->tiers[t].kind == BERTH_TIER_GPU ? tier->link_bytes : 0;
    }
    if (s->disk == BERTHI_NO_TIER)
        return;
    about->disk_seconds = seconds_of(about->disk_bytes, plan->tiers[s->disk].link_rate);
    take_longest(about, about->disk_seconds, BERTH_PLAN_BY_DISK, s->disk);
}

/* Of an earlier sum; the bound comes with the longest time, which is never 0. */
static void
forget(berthi_plan_training *training, uint32_t tiers)
{
    berth_plan_training *const about = &training->about;

    memset(training->tiers, 0, tiers * sizeof *training->tiers);
    memset(about->states, 0, sizeof about->states);
    about->elements = about->elements_8bit = 0;
    about->link_bytes = about->disk_bytes = 0;
    about->seconds = about->update_seconds = 0;
    about->link_seconds = about->disk_seconds = 0;
}

void
berthi_plan_train_sum(berth_plan *plan)
{
    summing s = { .plan = plan, .training = plan->training };

    if (plan->training == NULL)
        return;
    s.host = find_kind(plan, BERTH_TIER_CPU);
    s.disk = find_kind(plan, BERTH_TIER_DISK);
    forget(plan->training, plan->summary.tier_count);
    for (uint64_t i = 0; i < plan->training->about.parameter_count; i++)
        add_parameter(&s, &plan->training->trained[i]);
    add_room(&s);
    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        const berth_plan_training_tier *const tier = &plan->training->tiers[t];

        plan->tiers[t].training = tier->adapters + tier->gradients + tier->states
                                  + tier->slots + tier->scratch + tier->staging;
    }
    predict(&s);
}
