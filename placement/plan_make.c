/* SPDX-License-Identifier: Apache-2.0 */
/* plan_make.c - from tensors, layers and tiers to a plan; see plan.h. */
#include "placement/plan.h"

#include <inttypes.h>
#include <string.h>

#include "placement/plan_train.h"

#define SLOTS_MOST (UINT64_C(1) << 60) /* more than there is: home.h adds up sums below it */

/* -------------------------------------------------------------------- the object */

berth_status
berthi_plan_alloc(berth_context *context, uint32_t tiers, uint32_t layers,
                  uint64_t berths, berth_plan **out, berth_error *error)
{
    berth_plan *const plan =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *plan);

    *out = NULL;
    if (plan == NULL)
        return berthi_fail_memory(error, "making a plan");
    plan->context = context;
    plan->berth_count = berths;
    berthi_arena_init(&plan->arena, context, BERTHI_PURPOSE_OBJECT, 4096);
    plan->tiers =
        berthi_arena_alloc(&plan->arena, tiers * sizeof *plan->tiers, 16);
    plan->layers =
        berthi_arena_alloc(&plan->arena, layers * sizeof *plan->layers, 16);
    plan->berths = berthi_memory_array(context, BERTHI_PURPOSE_TENSORS, berths,
                                       sizeof *plan->berths);
    if (plan->tiers == NULL || plan->layers == NULL || plan->berths == NULL) {
        berthi_plan_free(plan);
        return berthi_fail_memory(error, "making a plan");
    }
    memset(plan->tiers, 0, tiers * sizeof *plan->tiers);
    memset(plan->layers, 0, layers * sizeof *plan->layers);
    memset(plan->berths, 0, berths * sizeof *plan->berths);
    plan->summary.tier_count = tiers;
    plan->summary.layer_count = layers;
    plan->summary.berth_count = berths;
    *out = plan;
    return BERTH_OK;
}

bool
berthi_plan_can_slice(berth_plan *plan)
{
    const uint64_t bytes = plan->berth_count * sizeof *plan->slices;

    plan->slices = berthi_arena_alloc(&plan->arena, bytes, 8);
    if (plan->slices != NULL)
        memset(plan->slices, 0, bytes);
    return plan->slices != NULL;
}

void
berthi_plan_free(berth_plan *plan)
{
    berth_context *context;

    if (plan == NULL)
        return;
    context = plan->context;
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, plan->berths,
                       plan->berth_count * sizeof *plan->berths);
    berthi_arena_fini(&plan->arena);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, plan, sizeof *plan);
}

/* ------------------------------------------------------------------------- homes */

static berth_status
fail_pins(const berthi_plan_work *work, uint32_t layer, berth_error *error)
{
    const berthi_plan_layer_input *const about = &work->input->layers[layer];

    return berthi_fail(error, BERTH_REASON_ARGUMENT,
                       &(berthi_about){ .tensor = about->name,
                                        .tensor_length = about->name_length },
                       "is pinned to two devices: a layer is computed on one");
}

/* Adds one tensor to what its layer asks for; false: the layer is pinned twice. */
static bool
can_add_tensor(const berthi_plan_work *work, const berthi_plan_tensor *tensor,
               berthi_home_layer *layer)
{
    if (tensor->tie != BERTHI_NO_TIE)
        return true;
    if (tensor->tier < work->device_count) {
        if (layer->pin != BERTHI_NO_DEVICE && layer->pin != tensor->tier)
            return false;
        layer->pin = tensor->tier;
        layer->fixed += tensor->bytes;
        return true;
    }
    switch (tensor->kind) {
    case BERTHI_PIECE_IDLE: layer->idle += tensor->bytes; break;
    case BERTHI_PIECE_EXPERT: layer->experts += tensor->bytes; break;
    case BERTHI_PIECE_FIXED:
        if (tensor->tier == BERTHI_NO_TIER) {
            layer->fixed += tensor->bytes;
            break;
        }
        layer->dense += tensor->bytes;
        break;
    default: layer->dense += tensor->bytes; break;
    }
    return true;
}

/* Of those that may stay or go: tensors of one follow one another. */
static uint64_t
largest_expert(const berthi_plan_work *work, uint32_t layer)
{
    uint32_t before = BERTHI_NO_EXPERT;
    uint64_t bytes = 0;
    uint64_t largest = 0;

    for (uint32_t i = work->first[layer]; i < work->first[layer + 1]; i++) {
        const berthi_plan_tensor *const tensor = &work->input->tensors[i];

        if (tensor->kind != BERTHI_PIECE_EXPERT || tensor->tie != BERTHI_NO_TIE
            || tensor->tier != BERTHI_NO_TIER)
            continue;
        bytes = tensor->expert == before ? bytes + tensor->bytes : tensor->bytes;
        before = tensor->expert;
        largest = berthi_max_u64(largest, bytes);
    }
    return largest;
}

/*
 * Room for what one pass takes of a layer's experts, of which any may be the largest. Those
 * that are bound to host memory need no slots, but get some where there is room.
 */
static uint64_t
expert_slot(const berthi_plan_work *work, uint32_t layer)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t mean =
        work->sums[layer].experts / berthi_max_u64(input->expert_count, 1);
    const uint64_t largest = berthi_max_u64(largest_expert(work, layer), mean);
    uint64_t bytes;

    return berthi_can_mul(largest, berthi_plan_experts(input), &bytes)
               ? berthi_min_u64(bytes, SLOTS_MOST)
               : SLOTS_MOST;
}

static berth_status
sum_layers(berthi_plan_work *work, berth_error *error)
{
    const berthi_plan_input *const input = work->input;

    for (uint32_t l = 0; l < input->layer_count; l++) {
        berthi_home_layer *const layer = &work->sums[l];
        bool is_away = true;

        *layer = (berthi_home_layer){ .fixed = input->layers[l].cache + work->kept[l],
                                      .pin = BERTHI_NO_DEVICE };
        for (uint32_t i = work->first[l]; i < work->first[l + 1]; i++) {
            const berthi_plan_tensor *const tensor = &input->tensors[i];

            if (!can_add_tensor(work, tensor, layer))
                return fail_pins(work, l, error);
            is_away = is_away && tensor->tier != BERTHI_NO_TIER
                      && tensor->tier >= work->device_count;
        }
        layer->is_away = is_away && work->first[l] < work->first[l + 1];
        layer->expert_slot = expert_slot(work, l);
    }
    return BERTH_OK;
}

/* Where most of a layer's bytes lie, among the devices; the first when none do. */
static void
follow_map(berthi_plan_work *work)
{
    const berthi_plan_input *const input = work->input;

    for (uint32_t l = 0; l < input->layer_count; l++) {
        uint64_t bytes[BERTHI_TIER_LIMIT] = { 0 };

        work->homes[l] = 0;
        for (uint32_t i = work->first[l]; i < work->first[l + 1]; i++)
            bytes[input->tensors[i].tier] += input->tensors[i].bytes;
        for (uint32_t d = 1; d < work->device_count; d++)
            if (bytes[d] > bytes[work->homes[l]])
                work->homes[l] = d;
    }
}

/* With all states at home, if nothing has to be brought then, or they have no other place. */
static berth_status
find_trained_homes(berthi_plan_work *work, bool *out_found, berth_error *error)
{
    const bool is_alone = work->host == BERTHI_NO_TIER && work->disk == BERTHI_NO_TIER;
    berth_status status;

    berthi_plan_train_keep(work, true);
    if (!work->input->train->may_leave || is_alone)
        return BERTH_OK;
    status = sum_layers(work, error);
    if (status == BERTH_OK)
        status = berthi_plan_probe_homes(work, out_found, error);
    if (!*out_found) /* else those that cannot leave */
        berthi_plan_train_keep(work, false);
    return status;
}

static berth_status
find_homes(berthi_plan_work *work, berth_error *error)
{
    bool is_found = false;
    berth_status status = BERTH_OK;

    work->sums = berthi_arena_alloc(&work->arena,
                                    work->input->layer_count * sizeof *work->sums,
                                    sizeof(uint64_t));
    if (work->sums == NULL)
        return berthi_fail_memory(error, "finding homes of layers");
    if (work->input->train != NULL)
        status = find_trained_homes(work, &is_found, error);
    if (status != BERTH_OK || is_found)
        return status;
    status = sum_layers(work, error);
    return status == BERTH_OK ? berthi_plan_find_homes(work, error) : status;
}

uint32_t
berthi_plan_experts_of(const berthi_plan_input *input, uint32_t count)
{
    const uint64_t used = (uint64_t)input->experts_used * input->tokens;

    return input->experts_used == 0 || used > count ? count : (uint32_t)used;
}

uint32_t
berthi_plan_experts(const berthi_plan_input *input)
{
    return berthi_plan_experts_of(input, input->expert_count);
}

/* -------------------------------------------------------------------------- make */

/* No machine has more, and a plan that did could not be read. */
static berth_status
check_parts(const berthi_plan_input *input, berth_error *error)
{
    uint64_t caches = 0;
    uint64_t weights = 0;

    for (uint32_t l = 0; l < input->layer_count; l++)
        caches = berthi_add_capped(caches, input->layers[l].cache);
    for (uint32_t i = 0; i < input->tensor_count; i++)
        weights = berthi_add_capped(weights, input->tensors[i].bytes);
    if (weights >= BERTHI_PLAN_PART)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "weights of 2^56 bytes and more cannot be planned");
    if (caches >= BERTHI_PLAN_PART || input->activations >= BERTHI_PLAN_PART)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "2^56 bytes and more of what sequences need cannot be planned: "
                           "take shorter or fewer ones");
    return BERTH_OK;
}

static berth_status
check(const berthi_plan_input *input, berth_error *error)
{
    if (input->layer_count == 0 || input->layer_count > BERTHI_PLAN_LAYERS)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "a model of %" PRIu32 " layers cannot be planned",
                           input->layer_count);
    if (input->tier_count == 0 || input->tier_count > BERTHI_TIER_LIMIT)
        return berthi_fail_argument(error, "max_memory", "names no tier");
    return check_parts(input, error);
}

static bool
can_init(berthi_plan_work *work)
{
    const berthi_plan_input *const input = work->input;
    const uint64_t layers = input->layer_count;

    work->homes = berthi_arena_alloc(&work->arena, layers * sizeof *work->homes, 4);
    work->first = berthi_arena_alloc(&work->arena, (layers + 1) * sizeof *work->first, 4);
    work->tier_of = berthi_arena_alloc(
        &work->arena, (input->tensor_count + UINT64_C(1)) * sizeof *work->tier_of, 4);
    work->usable =
        berthi_arena_alloc(&work->arena, input->tier_count * sizeof *work->usable, 8);
    work->settled =
        berthi_arena_alloc(&work->arena, input->tier_count * sizeof *work->settled, 8);
    work->needed = berthi_arena_alloc(&work->arena, layers * sizeof *work->needed, 8);
    work->operations =
        berthi_arena_alloc(&work->arena, layers * sizeof *work->operations, 4);
    work->kept = berthi_arena_alloc(&work->arena, layers * sizeof *work->kept, 8);
    work->own = berthi_arena_alloc(&work->arena, input->tier_count * sizeof *work->own, 8);
    if (work->homes == NULL || work->needed == NULL || work->first == NULL
        || work->tier_of == NULL || work->usable == NULL || work->settled == NULL
        || work->operations == NULL || work->kept == NULL || work->own == NULL)
        return false;
    memset(work->kept, 0, layers * sizeof *work->kept);
    memset(work->own, 0, input->tier_count * sizeof *work->own);
    memset(work->settled, 0, input->tier_count * sizeof *work->settled);
    memset(work->first, 0, (layers + 1) * sizeof *work->first);
    for (uint32_t i = 0; i < input->tensor_count; i++)
        work->first[input->tensors[i].layer + 1]++;
    for (uint32_t l = 0; l < layers; l++) {
        work->first[l + 1] += work->first[l];
        work->needed[l] =
            berthi_plan_need(input, l, work->first[l], work->first[l + 1]);
        work->operations[l] =
            berthi_plan_count(input, work->first[l], work->first[l + 1]);
    }
    return true;
}

void
berthi_plan_pass_on(const berthi_plan_input *input, berth_plan *plan)
{
    const berth_plan_summary *const from = &input->summary;
    berth_plan_summary *const to = &plan->summary;

    to->is_imitated = from->is_imitated;
    to->digest = from->digest;
    to->type = from->type;
    to->dtype = from->dtype;
    to->double_quant = from->double_quant;
    to->block_size = from->block_size;
    to->cache_dtype = from->cache_dtype;
    to->context = from->context;
    to->batch = from->batch;
    to->rank = from->rank;
    to->ranks = from->ranks;
    to->stacks = from->stacks;
}

/* By a map all states are at home if slots leave room for them; else those that cannot
 * leave. */
static berth_status
place(berthi_plan_work *work, berth_error *error)
{
    const berthi_plan_input *const input = work->input;
    berth_status status;

    if (!input->is_mapped || input->train == NULL)
        return berthi_plan_place(work, error);
    berthi_plan_train_keep(work, true);
    status = berthi_plan_place(work, error);
    if (status != BERTH_OK || !work->is_short || !input->train->may_leave)
        return status;
    berthi_plan_train_keep(work, false);
    memset(work->settled, 0, input->tier_count * sizeof *work->settled);
    return berthi_plan_place(work, error);
}

static berth_status
make(berthi_plan_work *work, berth_error *error)
{
    berth_status status;

    if (!can_init(work))
        return berthi_fail_memory(error, "making a plan");
    status = berthi_plan_take_tiers(work, error);
    if (status == BERTH_OK && work->input->is_mapped)
        follow_map(work);
    else if (status == BERTH_OK)
        status = find_homes(work, error);
    if (status == BERTH_OK)
        status = place(work, error);
    if (work->input->is_trial && work->input->train == NULL) /* all has its place, or not */
        return status;
    if (status == BERTH_OK)
        status = berthi_plan_lay(work, error);
    if (status == BERTH_OK)
        status = berthi_plan_predict(work, error);
    if (status == BERTH_OK)
        status = berthi_plan_spread(work, error);
    return status;
}

berth_status
berthi_plan_make(berth_context *context, const berthi_plan_input *input,
                 berth_plan **out, berth_error *error)
{
    berthi_plan_work work = { .context = context, .input = input };
    berth_status status = check(input, error);

    *out = NULL;
    if (status == BERTH_OK)
        status = berthi_plan_alloc(context, input->tier_count, input->layer_count,
                                   input->tensor_count, &work.plan, error);
    if (status != BERTH_OK)
        return status;
    berthi_plan_pass_on(input, work.plan);
    berthi_arena_init(&work.arena, context, BERTHI_PURPOSE_SCRATCH,
                      berthi_arena_block_for(input->tensor_count));
    status = make(&work, error);
    berthi_arena_fini(&work.arena);
    if (status == BERTH_OK)
        *out = work.plan;
    else
        berthi_plan_free(work.plan);
    return status;
}
