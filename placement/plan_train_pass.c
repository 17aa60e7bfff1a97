/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_train_pass.c - how long the forward and the backward pass of a step take, as far as
 * a plan knows: what is brought over links and what is read in memories.
 *
 *              memory of its home                    link, disk
 *   forward    its weights; what it keeps, written   what of them lies elsewhere
 *   backward   its weights; what it kept, read;      the same
 *              gradients, written
 *   and where  its weights again                     the same again, but where each layer
 *   it is computed again                             is a checkpoint: it is there then
 *
 * Backward begins at the loss and ends at the first layer in which something is trained.
 * All experts count: some of so many tokens take each of them. What slots still hold when
 * a pass turns round is not counted off.
 */
#include "placement/plan_train.h"

/* What lies in a processor's memory is brought there by the disk alone. */
static bool
is_gpu(const berthi_plan_work *work, uint32_t device)
{
    return work->input->tiers[device].tier.kind == BERTHI_TIER_GPU;
}

/* Bytes of one pass. */
typedef struct pass {
    uint64_t memory[BERTHI_TIER_LIMIT];
    uint64_t link[BERTHI_TIER_LIMIT]; /* to each device */
    uint64_t disk;
} pass;

static void
add_weights(const berthi_plan_work *work, uint32_t layer, uint32_t reads, uint32_t brings,
            pass *p)
{
    const uint32_t home = work->homes[layer];

    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++) {
        const berthi_plan_tensor *const tensor = &work->input->tensors[i];
        const uint32_t tier = work->tier_of[i];

        if (tensor->tie != BERTHI_NO_TIE || tensor->kind == BERTHI_PIECE_IDLE
            || tensor->reads == BERTHI_READS_ROWS)
            continue;
        p->memory[tier < work->device_count ? tier : home] += reads * tensor->bytes;
        if (tier < work->device_count)
            continue;
        p->link[home] += brings * tensor->bytes;
        p->disk += tier == work->disk ? brings * tensor->bytes : 0;
    }
}

static void
add_parameters(const berth_plan *plan, pass *forward, pass *backward)
{
    for (uint64_t i = 0; i < plan->training->about.parameter_count; i++) {
        const berthi_trained *const trained = &plan->training->trained[i];
        const uint32_t tier = berthi_trained_tier(plan, trained);
        const uint64_t adapter = berthi_trained_adapter(trained);

        forward->memory[tier] += adapter;
        backward->memory[tier] +=
            adapter + berthi_trained_gradient(&plan->training->about, trained);
    }
}

static void
add_layers(const berthi_plan_work *work, pass *forward, pass *backward)
{
    const berthi_plan_input *const input = work->input;
    const berthi_train_input *const train = input->train;
    const uint32_t last = input->tensors[train->trained[0].berth].layer;

    for (uint32_t l = 0; l < input->layer_count; l++) {
        const bool is_again = input->layers[l].is_again;

        add_weights(work, l, 1, 1, forward);
        forward->memory[work->homes[l]] += input->layers[l].cache;
        if (l < last)
            continue;
        add_weights(work, l, is_again ? 2 : 1,
                    is_again && train->checkpoint_every > 1 ? 2 : 1, backward);
        backward->memory[work->homes[l]] += input->layers[l].cache;
    }
}

/* ------------------------------------------------------------------------- times */

/* The longest of what a pass waits for. */
typedef struct longest {
    double seconds;
    int32_t bound;
    uint32_t tier;
} longest;

static void
take(longest *l, uint64_t bytes, uint64_t rate, int32_t bound, uint32_t tier)
{
    const double seconds = (double)bytes / (double)rate;

    if (seconds > l->seconds)
        *l = (longest){ seconds, bound, tier };
}

static longest
time_pass(const berthi_plan_work *work, const pass *p)
{
    const berthi_plan_tier_input *const tiers = work->input->tiers;
    longest l = { .seconds = 0 };
    double memory = 0;

    for (uint32_t d = 0; d < work->device_count; d++) {
        memory += (double)p->memory[d] / (double)tiers[d].memory_rate;
        take(&l, p->memory[d], tiers[d].memory_rate, BERTH_PLAN_BY_COMPUTING, d);
    }
    l.seconds = memory; /* one device after the other; links and the disk work ahead */
    for (uint32_t d = 0; d < work->device_count; d++)
        if (is_gpu(work, d))
            take(&l, p->link[d], tiers[d].link_rate, BERTH_PLAN_BY_LINK, d);
    if (work->disk != BERTHI_NO_TIER)
        take(&l, p->disk, tiers[work->disk].link_rate, BERTH_PLAN_BY_DISK, work->disk);
    return l;
}

void
berthi_plan_train_predict(berthi_plan_work *work)
{
    berth_plan *const plan = work->plan;
    pass forward = { .disk = 0 };
    pass backward = { .disk = 0 };
    berth_plan_training *about;
    uint64_t brought = 0;
    longest l;

    if (plan->training == NULL)
        return;
    about = &plan->training->about;
    add_layers(work, &forward, &backward);
    add_parameters(plan, &forward, &backward);
    for (uint32_t d = 0; d < work->device_count; d++)
        if (is_gpu(work, d))
            brought += forward.link[d] + backward.link[d];
    about->pass_link_bytes = brought;
    about->pass_disk_bytes = forward.disk + backward.disk;
    l = time_pass(work, &forward);
    about->forward_seconds = l.seconds;
    l = time_pass(work, &backward);
    about->backward_seconds = l.seconds;
    about->pass_bound = l.bound;
    about->pass_bound_tier = l.tier;
}
