/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_lay.c - berths: offsets in the slabs, names, and the sums of tiers and layers.
 *
 * A slab holds the layers in their order. What of a layer is brought into a slot lies
 * together and in the order it has there, so that one copy brings it; its experts and
 * rows come behind.
 */
#include <string.h>

#include "placement/plan.h"
#include "placement/plan_names.h"
#include "placement/plan_train.h"
#include "placement/slab.h"

/* ------------------------------------------------------------------------- names */

/* Bytes that both names begin with, up to a dot. */
static uint32_t
shared_length(const berthi_plan_tensor *a, const berthi_plan_tensor *b)
{
    uint32_t length = 0;
    uint32_t shared = 0;

    while (length < a->name_length && length < b->name_length
           && a->name[length] == b->name[length])
        if (a->name[length++] == '.')
            shared = length;
    return shared;
}

/* What all names of a layer begin with: they are in order, and so are those of stacks. */
static uint32_t
prefix_length(const berthi_plan_work *work, uint32_t layer)
{
    const uint32_t begin = work->first[layer];
    const uint32_t end = work->first[layer + 1];
    const uint32_t stacks = work->input->layers[layer].stacks;
    const berthi_plan_tensor *const tensors = work->input->tensors;
    uint32_t prefix;

    if (begin == end)
        return 0;
    prefix = shared_length(&tensors[begin], &tensors[end - 1]);
    for (uint32_t i = begin + 1; i < end && stacks > 0; i++)
        prefix = (uint32_t)berthi_min_u64(prefix,
                                          shared_length(&tensors[begin], &tensors[i]));
    return prefix;
}

/* Layers are alike: most names end as those of the layer before, one by one. */
static void
name_berths(const berthi_plan_work *work, uint32_t layer, berthi_plan_names *names)
{
    const berthi_plan_tensor *const tensors = work->input->tensors;
    const uint32_t prefix = work->plan->layers[layer].prefix_length;
    const uint32_t begin = work->first[layer];
    const uint32_t before = layer > 0 ? work->first[layer - 1] : begin;
    berthi_berth *const berths = work->plan->berths;

    for (uint32_t i = begin; i < work->first[layer + 1]; i++) {
        const char *const end = tensors[i].name + prefix;
        const uint32_t length = tensors[i].name_length - prefix;
        const uint32_t like = before + (i - begin);

        berths[i].name = like < begin ? berthi_plan_names_keep_like(names, end, length,
                                                                    berths[like].name)
                                      : berthi_plan_names_keep(names, end, length);
    }
}

static bool
can_name(berthi_plan_work *work)
{
    const berthi_plan_input *const input = work->input;
    berth_plan *const plan = work->plan;
    berthi_plan_names names;

    berthi_plan_names_init(&names, &work->arena);
    for (uint32_t l = 0; l < input->layer_count; l++) {
        const berthi_plan_layer_input *const about = &input->layers[l];
        const uint32_t begin = work->first[l];
        const uint32_t length = prefix_length(work, l);
        const uint64_t capacity = about->name_length * 4 + 1;
        char *const name = berthi_arena_alloc(&plan->arena, capacity, 1);

        plan->layers[l].prefix_length = length;
        plan->layers[l].prefix = berthi_arena_text(
            &plan->arena, length > 0 ? input->tensors[begin].name : "", length);
        if (name == NULL || plan->layers[l].prefix == NULL)
            return false;
        (void)berth_text_escape(about->name, about->name_length, name, capacity);
        plan->layers[l].out.name = name;
        name_berths(work, l, &names);
    }
    return berthi_plan_names_can_finish(&names, plan);
}

/* ----------------------------------------------------------------------- offsets */

static bool
is_brought_with_its_layer(const berthi_plan_tensor *tensor)
{
    return tensor->kind != BERTHI_PIECE_EXPERT && tensor->kind != BERTHI_PIECE_IDLE;
}

/* One walk over a layer's tensors: those of its unit, or the others. */
static void
lay_layer(berthi_plan_work *work, uint32_t layer, bool is_unit)
{
    const berthi_plan_input *const input = work->input;
    berth_plan *const plan = work->plan;

    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++) {
        const berthi_plan_tensor *const tensor = &input->tensors[i];
        berthi_berth *const berth = &plan->berths[i];
        berth_plan_tier *const tier = &plan->tiers[work->tier_of[i]];

        if (tensor->tie != BERTHI_NO_TIE || is_brought_with_its_layer(tensor) != is_unit)
            continue;
        berth->offset = tier->weights;
        berth->bytes = tensor->bytes;
        tier->weights += tensor->bytes;
        tier->scratch = berthi_max_u64(tier->scratch, tensor->scratch);
    }
}

static void
describe_berth(berthi_plan_work *work, uint32_t i)
{
    const berthi_plan_tensor *const tensor = &work->input->tensors[i];
    berthi_berth *const berth = &work->plan->berths[i];

    if (tensor->tie != BERTHI_NO_TIE) {
        berth->offset = work->plan->berths[tensor->tie].offset;
        berth->bytes = work->plan->berths[tensor->tie].bytes;
    }
    berth->number = tensor->number;
    berth->layer = (uint16_t)tensor->layer;
    berth->tier = (uint8_t)work->tier_of[i];
    berth->encoding = tensor->encoding;
    berth->dtype = tensor->dtype;
    berth->is_expert = tensor->kind == BERTHI_PIECE_EXPERT;
    berth->is_tied = tensor->tie != BERTHI_NO_TIE;
    if (work->plan->slices != NULL)
        work->plan->slices[i] = tensor->slice;
}

/* ------------------------------------------------------------------------ layers */

static int32_t
cause_of(const berthi_plan_work *work, uint32_t layer, uint64_t idle)
{
    const berthi_plan_input *const input = work->input;
    const berth_plan_layer *const out = &work->plan->layers[layer].out;

    if (input->is_mapped)
        return BERTH_PLAN_MAPPED;
    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++)
        if (input->tensors[i].tier != BERTHI_NO_TIER)
            return BERTH_PLAN_PINNED;
    if (out->resident_bytes < out->bytes)
        return idle == out->bytes - out->resident_bytes ? BERTH_PLAN_ROWS
                                                             : BERTH_PLAN_SHORT;
    return input->layers[layer].is_tied ? BERTH_PLAN_TIED : BERTH_PLAN_RESIDENT;
}

static void
describe_layer(berthi_plan_work *work, uint32_t layer)
{
    berth_plan_layer *const out = &work->plan->layers[layer].out;

    out->first_berth = work->first[layer];
    out->berth_count = work->first[layer + 1] - work->first[layer];
    out->home = work->homes[layer];
    out->cache_bytes = work->input->layers[layer].cache;
}

/* Bytes of rows that do not lie on the layer's home. */
static uint64_t
idle_away(const berthi_plan_work *work, uint32_t layer)
{
    uint64_t bytes = 0;

    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++)
        if (work->input->tensors[i].kind == BERTHI_PIECE_IDLE
            && !work->plan->berths[i].is_tied && !work->plan->berths[i].is_resident)
            bytes += work->plan->berths[i].bytes;
    return bytes;
}

/* ------------------------------------------------------------------------- tiers */

static bool
is_home(const berthi_plan_work *work, uint32_t tier)
{
    for (uint32_t l = 0; l < work->input->layer_count; l++)
        if (work->homes[l] == tier)
            return true;
    return false;
}

static void
describe_tier(berthi_plan_work *work, uint32_t t)
{
    const berthi_plan_tier_input *const input = &work->input->tiers[t];
    const berthi_stream_result *const settled = &work->settled[t];
    berth_plan_tier *const tier = &work->plan->tiers[t];

    (void)berthi_tier_name(&input->tier, tier->name);
    tier->kind = input->tier.kind;
    tier->budget = input->budget;
    tier->reserve = berthi_plan_reserve(input, input->budget);
    tier->link_rate = input->link_rate;
    tier->link_source = input->link_source;
    tier->memory_rate = input->memory_rate;
    tier->memory_source = input->memory_source;
    tier->operation_ns = input->operation_ns;
    if (t < work->device_count && is_home(work, t)) {
        tier->activations = work->input->activations;
        tier->slot_count = settled->slots;
        tier->slot_bytes = settled->slot_bytes;
        tier->expert_slots = settled->expert_slot_bytes;
        tier->expert_slot_count = settled->expert_slots;
        tier->experts_away = settled->experts_away;
        tier->expert_hits = (uint64_t)(settled->expert_hits * 1e9);
        if (berthi_plan_has_given_hits(work, t)) { /* as given, to the last digit */
            tier->expert_hits = work->input->expert_hits;
            tier->routing = BERTH_ROUTING_GIVEN;
        }
    }
    if (tier->kind == BERTH_TIER_GPU && is_home(work, t))
        tier->reserve_needed = berthi_min_u64(work->input->runtime, tier->reserve);
    if (t == work->host)
        tier->staging = work->staging;
    if (tier->kind == BERTH_TIER_CPU)
        tier->turned = work->turned;
}

/* A layer that is not all there: by how much its home would have to be larger. */
static void
find_missing(berthi_plan_work *work)
{
    berth_plan *const plan = work->plan;

    for (uint32_t l = 0; l < plan->summary.layer_count; l++) {
        berth_plan_layer *const out = &plan->layers[l].out;
        const uint64_t away = out->bytes - out->resident_bytes;
        const uint64_t room = berthi_plan_room(work, out->home);

        if (out->cause == BERTH_PLAN_SHORT || out->cause == BERTH_PLAN_ROWS)
            out->missing = away > room ? away - room : 0;
    }
}

berth_status
berthi_plan_lay(berthi_plan_work *work, berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    berth_status status;

    if (!can_name(work)
        || (berthi_plan_has_slices(&work->plan->summary)
            && !berthi_plan_can_slice(work->plan)))
        return berthi_fail_memory(error, "laying out a plan");
    for (uint32_t l = 0; l < input->layer_count; l++) {
        lay_layer(work, l, true);
        lay_layer(work, l, false);
    }
    for (uint32_t i = 0; i < input->tensor_count; i++)
        describe_berth(work, i);
    for (uint32_t l = 0; l < input->layer_count; l++)
        describe_layer(work, l);
    for (uint32_t t = 0; t < input->tier_count; t++)
        describe_tier(work, t);
    berthi_plan_sum(work->plan);
    status = berthi_plan_train_place(work, error);
    if (status != BERTH_OK)
        return status;
    for (uint32_t l = 0; l < input->layer_count; l++)
        work->plan->layers[l].out.cause = cause_of(work, l, idle_away(work, l));
    find_missing(work);
    return BERTH_OK;
}
