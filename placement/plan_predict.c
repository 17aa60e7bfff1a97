/* SPDX-License-Identifier: Apache-2.0 */
/* plan_predict.c - how long a pass and the loading take; what would help most. */
#include <stdio.h>

#include "kernels/experts.h"
#include "placement/plan_train.h"
#include "placement/plan_words.h"

/* What one pass needs of a layer. */
typedef struct demand {
    uint64_t host;        /* of its unit, from host memory */
    uint64_t disk;
    uint64_t expert_host; /* of its experts that are away, all of them */
    uint64_t expert_disk;
} demand;

/* Of so much of a layer's experts what one pass is expected to take. */
static uint64_t
expected(const berthi_plan_input *input, uint64_t all)
{
    if (input->expert_count == 0)
        return all;
    return (uint64_t)((double)all * berthi_plan_experts(input) / input->expert_count);
}

/* The same of a layer's experts that are stacked. */
static uint64_t
expected_of_stacks(const berthi_plan_input *input, uint64_t bytes)
{
    const uint32_t count = input->stacked_count;

    if (count == 0)
        return bytes;
    return (uint64_t)((double)bytes * berthi_plan_experts_of(input, count) / count);
}

/* Of these those that are not expected to lie in a slot. */
static uint64_t
missed(const berthi_plan_work *work, uint32_t layer, uint64_t bytes)
{
    return (uint64_t)((double)bytes
                      * (1 - work->settled[work->homes[layer]].expert_hits));
}

uint64_t
berthi_plan_need(const berthi_plan_input *input, uint32_t layer, uint32_t first,
                 uint32_t end)
{
    uint64_t experts = 0;
    uint64_t stacked = 0;
    uint64_t bytes = input->layers[layer].cache;

    for (uint32_t i = first; i < end; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];

        if (tensor->tie != BERTHI_NO_TIE)
            continue;
        if (tensor->kind == BERTHI_PIECE_EXPERT)
            experts += tensor->bytes;
        else if (tensor->reads == BERTHI_READS_EXPERTS)
            stacked += tensor->bytes;
        else if (tensor->kind != BERTHI_PIECE_IDLE)
            bytes += tensor->bytes;
    }
    return bytes + expected(input, experts) + expected_of_stacks(input, stacked);
}

/* Inputs of an expert that is taken, if all are as likely. */
static uint64_t
inputs_of_expert(const berthi_plan_input *input)
{
    const uint64_t used = berthi_plan_experts(input);

    return input->experts_used == 0
               ? input->tokens
               : berthi_divide_up(input->experts_used * input->tokens, berthi_max_u64(used, 1));
}

/* Of so many tensors of a layer's experts that are grouped, those of all of them. */
static uint64_t
count_grouped(const berthi_plan_input *input, uint64_t tensors)
{
    if (input->expert_count == 0 || inputs_of_expert(input) > BERTHI_EXPERTS_INPUTS)
        return expected(input, tensors);
    return berthi_divide_up(tensors, input->expert_count)
           * berthi_experts_operations(berthi_plan_experts(input));
}

uint32_t
berthi_plan_count(const berthi_plan_input *input, uint32_t first, uint32_t end)
{
    uint32_t count = 0;
    uint64_t experts = 0;
    uint64_t grouped = 0;

    for (uint32_t i = first; i < end; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];

        if (tensor->kind == BERTHI_PIECE_EXPERT)
            *(tensor->is_grouped ? &grouped : &experts) += 1;
        else
            count += tensor->kind != BERTHI_PIECE_IDLE;
    }
    return count + (uint32_t)(expected(input, experts) + count_grouped(input, grouped));
}

double
berthi_plan_compute(const berthi_plan_work *work, uint32_t layer)
{
    const berthi_plan_tier_input *const home = &work->input->tiers[work->homes[layer]];

    return (double)work->needed[layer] / (double)home->memory_rate
           + 1e-9 * (double)home->operation_ns * work->operations[layer];
}

/* Over a link, for each pass. Rows are fetched one by one, what is tied is no more. */
static bool
is_brought(const berthi_plan_work *work, uint32_t i)
{
    const berthi_plan_tensor *const tensor = &work->input->tensors[i];

    return tensor->tie == BERTHI_NO_TIE && tensor->kind != BERTHI_PIECE_IDLE
           && work->tier_of[i] >= work->device_count;
}

static demand
sum_demand(const berthi_plan_work *work, uint32_t layer)
{
    const berthi_plan_input *const input = work->input;
    demand d = { .host = 0 };

    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];
        const bool is_disk = work->tier_of[i] == work->disk;

        if (!is_brought(work, i))
            continue;
        if (tensor->kind == BERTHI_PIECE_EXPERT)
            *(is_disk ? &d.expert_disk : &d.expert_host) += tensor->bytes;
        else
            *(is_disk ? &d.disk : &d.host) += tensor->bytes;
    }
    d.expert_host = missed(work, layer, expected(input, d.expert_host));
    d.expert_disk = missed(work, layer, expected(input, d.expert_disk));
    return d;
}

/* ------------------------------------------------------------------------ passes */

static void
fill_step(berthi_plan_work *work, uint32_t layer, berthi_stream_step *step)
{
    berth_plan *const plan = work->plan;
    const demand d = sum_demand(work, layer);
    const uint64_t disk = d.disk + d.expert_disk;
    const uint64_t all = d.host + d.expert_host + disk;

    *step = (berthi_stream_step){ .device = work->homes[layer],
                                  .host_bytes = d.host,
                                  .disk_bytes = d.disk,
                                  .demand_host = d.expert_host,
                                  .demand_disk = d.expert_disk,
                                  .compute = berthi_plan_compute(work, layer) };
    plan->layers[layer].out.link_bytes = all;
    plan->tiers[work->homes[layer]].link_bytes += all;
    plan->summary.link_bytes += all;
    plan->summary.disk_bytes += disk;
    if (work->disk != BERTHI_NO_TIER)
        plan->tiers[work->disk].link_bytes += disk;
}

/* Layers that lie in host memory, read there instead of being brought. */
static void
compare_with_host(berthi_plan_work *work, double seconds)
{
    berth_plan_summary *const summary = &work->plan->summary;
    const uint64_t host = summary->link_bytes - summary->disk_bytes;
    uint64_t memory_rate;

    if (work->host == BERTHI_NO_TIER || host == 0)
        return;
    memory_rate = work->input->tiers[work->host].memory_rate;
    summary->host_seconds =
        seconds + (double)host / (double)memory_rate + summary->disk_seconds;
}

/* A plan may be predicted twice. */
static void
forget(berth_plan *plan)
{
    plan->summary.link_bytes = 0;
    plan->summary.disk_bytes = 0;
    plan->summary.advice[0] = '\0';
    for (uint32_t t = 0; t < plan->summary.tier_count; t++)
        plan->tiers[t].link_bytes = 0;
}

static berth_status
run_passes(berthi_plan_work *work, berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    berth_plan_summary *const summary = &work->plan->summary;
    berthi_stream_line lines[BERTHI_TIER_LIMIT];
    berthi_stream_step *const steps = berthi_arena_alloc(
        &work->arena, input->layer_count * sizeof *steps, 8);
    berthi_stream_passes passes = { .steps = steps,
                                    .step_count = input->layer_count,
                                    .lines = lines,
                                    .line_count = work->device_count,
                                    .disk_rate = 1,
                                    .ring_bytes = input->staging };
    berthi_stream_time time;
    berth_status status;

    if (steps == NULL)
        return berthi_fail_memory(error, "predicting times");
    forget(work->plan);
    for (uint32_t l = 0; l < input->layer_count; l++)
        fill_step(work, l, &steps[l]);
    for (uint32_t d = 0; d < work->device_count; d++)
        lines[d] = (berthi_stream_line){ .rate = input->tiers[d].link_rate,
                                         .slots = work->settled[d].slots };
    if (work->disk != BERTHI_NO_TIER)
        passes.disk_rate = input->tiers[work->disk].link_rate;
    status = berthi_stream_run(work->context, &passes, &time, error);
    if (status != BERTH_OK)
        return status;
    summary->seconds = time.seconds;
    summary->first_seconds = time.first_seconds;
    summary->compute_seconds = time.compute_seconds;
    summary->link_seconds = time.link_seconds;
    summary->disk_seconds = time.disk_seconds;
    summary->bound = time.bound;
    summary->bound_tier = time.busiest_line;
    if (time.seconds > 0)
        summary->tokens_per_second = (double)input->tokens / time.seconds;
    compare_with_host(work, time.compute_seconds);
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- load */

/*
 * All of it once from the disk, each device's part over its link, as it is stored: weights are
 * quantized where they lie. What stays on the disk is read only to be quantized.
 */
static double
load_seconds(const berthi_plan_work *work)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t disk_rate = work->disk != BERTHI_NO_TIER
                                   ? input->tiers[work->disk].link_rate
                                   : input->disk_rate;
    uint64_t brought[BERTHI_TIER_LIMIT] = { 0 };
    uint64_t read = 0;
    double most;

    for (uint32_t i = 0; i < input->tensor_count; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];
        const uint32_t tier = work->tier_of[i];

        if (tensor->tie != BERTHI_NO_TIE || (tier == work->disk && tensor->scratch == 0))
            continue;
        read += tensor->stored;
        brought[tier] += tensor->stored;
    }
    most = (double)read / (double)disk_rate;
    for (uint32_t t = 0; t < input->tier_count; t++)
        if (input->tiers[t].tier.kind == BERTHI_TIER_GPU
            && (double)brought[t] / (double)input->tiers[t].link_rate > most)
            most = (double)brought[t] / (double)input->tiers[t].link_rate;
    return most;
}

/* ------------------------------------------------------------------------ advice */

/* Bytes that are brought to a device; 0, too, where some of them are bound elsewhere. */
static uint64_t
sum_brought(const berthi_plan_work *work, uint32_t device)
{
    const berthi_plan_input *const input = work->input;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < input->tensor_count; i++) {
        if (work->homes[input->tensors[i].layer] != device || !is_brought(work, i))
            continue;
        if (input->tensors[i].tier != BERTHI_NO_TIER)
            return 0;
        bytes += input->tensors[i].bytes;
    }
    return bytes;
}

/* Layers are brought to this device and no other. */
static bool
is_only(const berthi_plan_work *work, uint32_t device)
{
    for (uint32_t d = 0; d < work->device_count; d++)
        if (d != device && work->plan->tiers[d].link_bytes > 0)
            return false;
    return true;
}

/*
 * A budget that keeps on the device what is brought to it now, in place of its slots. Where
 * others are brought something, too, such a device may get some of their layers.
 */
static void
advise(berthi_plan_work *work)
{
    berth_plan *const plan = work->plan;
    berth_plan_summary *const summary = &plan->summary;
    const uint32_t device = summary->bound_tier;
    const berth_plan_tier *const tier = &plan->tiers[device];
    const uint64_t brought = sum_brought(work, device);
    const uint64_t room = berthi_add_capped(tier->slots + tier->expert_slots,
                                            berthi_plan_room(work, device));
    char size[32];
    char pass[BERTHI_REAL_CAPACITY];

    if (summary->bound == BERTH_PLAN_BY_COMPUTING || brought <= room)
        return;
    berthi_plan_raise_format(berthi_plan_raise(work, device, brought - room), size);
    (void)snprintf(summary->advice, sizeof summary->advice,
                   "%s more on %s: %s, a pass takes %s ms at least", size, tier->name,
                   is_only(work, device) ? "nothing is streamed to it"
                                         : "room for what is streamed to it",
                   berthi_real_text(1e3 * summary->compute_seconds, pass));
}

berth_status
berthi_plan_predict(berthi_plan_work *work, berth_error *error)
{
    const berth_status status = run_passes(work, error);

    if (status != BERTH_OK)
        return status;
    work->plan->summary.load_seconds = load_seconds(work);
    berthi_plan_train_predict(work);
    advise(work);
    return BERTH_OK;
}
