/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - slabs of a plan on devices: made, asked about, given back. */
#include "loader/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "loader/lease.h"
#include "loader/offload.h"
#include "loader/stranded.h"

#define PAGE_BYTES UINT64_C(4096)

/* ----------------------------------------------------------------------- devices */

static uint32_t
count_gpus(const berth_plan *plan)
{
    uint32_t count = 0;

    for (uint32_t t = 0; t < plan->summary.tier_count; t++)
        count += plan->tiers[t].kind == BERTH_TIER_GPU;
    return count;
}

/* Later plans have these, or fewer of them: they are told by their names. */
static berth_status
name_gpus(berth_model *model, berth_error *error)
{
    const berth_plan *const plan = model->plan;
    uint32_t gpu = 0;

    model->gpu_count = count_gpus(plan);
    model->gpus = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT,
                                       model->gpu_count * sizeof *model->gpus);
    if (model->gpus == NULL)
        return berthi_fail_memory(error, "the devices of a model");
    for (uint32_t t = 0; t < plan->summary.tier_count; t++)
        if (plan->tiers[t].kind == BERTH_TIER_GPU)
            memcpy(model->gpus[gpu++], plan->tiers[t].name, sizeof *model->gpus);
    return BERTH_OK;
}

uint32_t
berthi_model_find_gpu(const berth_model *model, const char *name)
{
    uint32_t gpu = 0;

    while (gpu < model->gpu_count && strcmp(model->gpus[gpu], name) != 0)
        gpu++;
    return gpu < model->gpu_count ? gpu : BERTHI_NO_DEVICE;
}

/* Those that the plan names: "cuda:0;cuda:3". */
static berth_status
open_named(berth_model *model, berth_error *error)
{
    const uint64_t capacity = model->gpu_count * (sizeof *model->gpus + 1);
    char *const words =
        berthi_memory_zalloc(model->context, BERTHI_PURPOSE_DOCUMENT, capacity);
    size_t used = 0;
    berth_status status;

    if (words == NULL)
        return berthi_fail_memory(error, "opening devices");
    for (uint32_t gpu = 0; gpu < model->gpu_count; gpu++)
        used += (size_t)snprintf(words + used, capacity - used, "%s%s", used > 0 ? ";" : "",
                                 model->gpus[gpu]);
    status = berthi_devices_open(model->context, words, &model->devices, error);
    model->owns_devices = status == BERTH_OK;
    berthi_memory_free(model->context, BERTHI_PURPOSE_DOCUMENT, words, capacity);
    return status;
}

static berth_status
fail_count(uint32_t devices, uint32_t gpus, berth_error *error)
{
    const berthi_about about = { .tensor = "devices", .tensor_length = strlen("devices") };

    if (gpus == 0)
        return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                           "are %" PRIu32 ", and the plan has no GPU: give none, or a plan with "
                           "memory of theirs", devices);
    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                       "are %" PRIu32 ", and the plan has %" PRIu32 " GPU%s: give one for each",
                       devices, gpus, gpus == 1 ? "" : "s");
}

static berth_status
find_devices(berth_model *model, const berth_load_options *options, berth_error *error)
{
    berth_status status = name_gpus(model, error);

    if (status != BERTH_OK)
        return status;
    model->devices = options->devices;
    if (model->gpu_count > 0 && model->devices == NULL)
        status = open_named(model, error);
    else if (model->devices != NULL && berthi_devices_count(model->devices) != model->gpu_count)
        status = fail_count(berthi_devices_count(model->devices), model->gpu_count, error);
    if (status == BERTH_OK)
        status = berthi_devices_visit(model->devices, model->context, error);
    if (status == BERTH_OK)
        status = berthi_device_cpu_open(model->context, &model->host, error);
    return status;
}

/* ------------------------------------------------------------------------- slabs */

/* Parts of a slab, one behind the other: the plan's, to the byte. */
static void
measure(const berth_plan_tier *planned, berthi_model_tier *tier)
{
    tier->kind = planned->kind;
    tier->slots = planned->weights;
    tier->slot_bytes = planned->slot_bytes;
    tier->slot_count = planned->slot_count;
    tier->expert_slots = tier->slots + planned->slots;
    tier->scratch = tier->expert_slots + planned->expert_slots;
    tier->scratch_bytes = planned->scratch;
    tier->bytes = tier->scratch + tier->scratch_bytes;
}

/* What the slab of a tier is divided into. */
static berthi_slab_parts
parts_of(const berth_plan *plan, uint32_t number, const berthi_model_tier *tier)
{
    berthi_slab_parts parts = { .bytes = tier->bytes,
                                .slots = tier->scratch - tier->slots,
                                .scratch = tier->scratch_bytes };

    for (uint64_t i = 0; i < plan->berth_count; i++)
        if (plan->berths[i].tier == number && !plan->berths[i].is_tied)
            parts.weights += plan->berths[i].bytes;
    return parts;
}

void
berthi_model_describe(const berth_model *model, const berth_plan *plan,
                      berthi_model_tier *tiers)
{
    for (uint32_t t = 0; t < plan->summary.tier_count; t++) {
        const berth_plan_tier *const planned = &plan->tiers[t];
        berthi_model_tier *const tier = &tiers[t];

        memset(tier, 0, sizeof *tier);
        tier->number = BERTHI_NO_DEVICE;
        tier->kind = planned->kind;
        if (planned->kind == BERTH_TIER_DISK)
            continue;
        measure(planned, tier);
        tier->device = model->host;
        if (planned->kind == BERTH_TIER_GPU) {
            tier->number = berthi_model_find_gpu(model, planned->name);
            tier->device = berthi_devices_at(model->devices, tier->number);
        }
        memcpy(tier->name, planned->name, sizeof tier->name);
        tier->parts = parts_of(plan, t, tier);
    }
}

berth_status
berthi_model_create_slab(berth_model *model, berthi_model_tier *tier,
                         berth_error *error)
{
    void *slab = NULL;
    berth_status status;

    if (tier->bytes == 0)
        return BERTH_OK;
    status = berthi_model_alloc(model, tier->number, tier->bytes, "slab", &slab, error);
    if (status != BERTH_OK)
        return status;
    tier->slab = slab;
    berthi_books_take_slab(&model->context->ledger.books, tier->name, &tier->parts);
    /* Operations read what lies there, and the offset is copied from it. */
    if (tier->scratch_bytes > 0 && tier->device->table->keep != NULL)
        status = tier->device->table->keep(tier->device, tier->slab + tier->scratch,
                                           tier->scratch_bytes, error);
    if (status != BERTH_OK)
        berthi_model_free_slab(model, tier);
    return status;
}

void
berthi_model_free_slab(berth_model *model, berthi_model_tier *tier)
{
    if (tier->slab == NULL)
        return;
    if (tier->is_pinned)
        berthi_model_unpin_host(model, tier->slab, tier->bytes);
    berthi_model_dealloc(model, tier->number, tier->slab, tier->bytes, "slab");
    berthi_books_give_slab(&model->context->ledger.books, tier->name, &tier->parts);
    tier->slab = NULL;
    tier->is_pinned = false;
}

/* As it is booked: all of it is weights in host memory. */
static berthi_slab_parts
parts_of_hold(const berthi_model_tier *tier)
{
    return (berthi_slab_parts){ .bytes = tier->hold_bytes, .weights = tier->hold_bytes };
}

berth_status
berthi_model_create_hold(berth_model *model, berthi_model_tier *tier,
                         uint64_t bytes, berth_error *error)
{
    berthi_books *const books = &model->context->ledger.books;
    void *memory = NULL;
    berthi_slab_parts parts;
    berth_status status;

    if (bytes == 0)
        return BERTH_OK;
    if (!berthi_can_round_up(bytes, PAGE_BYTES, &tier->hold_bytes))
        return berthi_fail_memory(error, "a copy of a slab");
    status = berthi_model_alloc(model, BERTHI_NO_DEVICE, tier->hold_bytes, "hold", &memory,
                                error);
    if (status != BERTH_OK)
        return status;
    tier->hold = memory;
    parts = parts_of_hold(tier);
    berthi_books_take_slab(books, books->books[BERTHI_BOOKS_HOST].tier, &parts);
    return BERTH_OK;
}

void
berthi_model_free_hold(berth_model *model, berthi_model_tier *tier)
{
    berthi_books *const books = &model->context->ledger.books;
    const berthi_slab_parts parts = parts_of_hold(tier);

    if (tier->is_hold_pinned)
        berthi_model_unpin_host(model, tier->hold, tier->hold_bytes);
    if (tier->hold != NULL) {
        berthi_model_dealloc(model, BERTHI_NO_DEVICE, tier->hold, tier->hold_bytes,
                             "hold");
        berthi_books_give_slab(books, books->books[BERTHI_BOOKS_HOST].tier, &parts);
    }
    tier->hold = NULL;
    tier->hold_bytes = 0;
    tier->is_hold_pinned = false;
    tier->is_held = false;
    tier->has_discarded = false;
}

static berth_status
allocate(berth_model *model, berth_error *error)
{
    berth_status status = BERTH_OK;

    berthi_model_describe(model, model->plan, model->tiers);
    for (uint32_t t = 0; t < model->tier_count && status == BERTH_OK; t++)
        status = berthi_model_create_slab(model, &model->tiers[t], error);
    return status;
}

/* ------------------------------------------------------------------------- model */

/* The experts of a stack that is taken apart are all there, one behind the other. */
static berth_status
check_stack(const berth_model *model, uint64_t tensor, berth_error *error)
{
    const berthi_berth *const berths = model->plan->berths;
    const uint32_t layer = berths[model->berth_of[tensor]].layer;
    uint64_t end = 0;
    bool is_whole = true;

    for (uint32_t b = model->berth_of[tensor]; b != BERTHI_NO_BERTH;
         b = model->next_berth[b]) {
        const berthi_slice slice = berthi_plan_slice(model->plan, b);

        if (slice.along == BERTH_SLICING_NONE && model->berth_of[tensor] == b
            && model->next_berth[b] == BERTHI_NO_BERTH)
            return BERTH_OK;
        is_whole = is_whole && slice.along == BERTH_SLICING_ROWS && slice.first == end
                   && slice.parts == 0 && !berths[b].is_tied && berths[b].layer == layer;
        end += slice.count;
    }
    if (!is_whole || end != berthi_cargo_rows(model->checkpoint, tensor)) {
        const berthi_about about = berthi_checkpoint_about(model->checkpoint, tensor);

        return berthi_fail(error, BERTH_REASON_PLAN_CHECKPOINT, &about,
                           "has berths that are not all of its experts in their order");
    }
    return BERTH_OK;
}

/* Links the berths of stored tensors of which there are several. */
static berth_status
link_stacks(berth_model *model, berth_error *error)
{
    const berth_plan *const plan = model->plan;
    const uint64_t entries = model->tensor_count;
    berth_status status = BERTH_OK;

    model->next_berth = berthi_memory_array(model->context, BERTHI_PURPOSE_TENSORS,
                                            plan->berth_count, sizeof *model->next_berth);
    if (model->next_berth == NULL)
        return berthi_fail_memory(error, "the tensors of a model");
    model->next_count = plan->berth_count;
    for (uint64_t i = plan->berth_count; i-- > 0;) {
        const uint32_t number = plan->berths[i].number;

        model->next_berth[i] = BERTHI_NO_BERTH;
        if (number >= entries)
            continue;
        model->next_berth[i] = model->berth_of[number];
        model->berth_of[number] = (uint32_t)i;
    }
    for (uint64_t i = 0; i < entries && status == BERTH_OK; i++)
        if (model->berth_of[i] != BERTHI_NO_BERTH)
            status = check_stack(model, i, error);
    return status;
}

static berth_status
list_berths(berth_model *model, berth_error *error)
{
    const uint64_t entries = model->checkpoint->table.entry_count;
    const berth_plan *const plan = model->plan;

    model->tensor_count = entries;
    if (!berthi_can_round_up(plan->berth_count * sizeof *model->offsets, PAGE_BYTES,
                             &model->offset_bytes))
        return berthi_fail_memory(error, "the tensors of a model");
    model->offsets = berthi_memory_aligned(model->context, BERTHI_PURPOSE_TENSORS,
                                           model->offset_bytes, PAGE_BYTES);
    model->berth_of = berthi_memory_alloc(model->context, BERTHI_PURPOSE_TENSORS,
                                          entries * sizeof *model->berth_of);
    model->tiers = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT,
                                        model->tier_count * sizeof *model->tiers);
    model->held = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT,
                                       model->layer_count * sizeof *model->held);
    model->expert_slots = berthi_memory_alloc(model->context, BERTHI_PURPOSE_OBJECT,
                                              model->layer_count * sizeof *model->expert_slots);
    if (model->offsets == NULL || model->berth_of == NULL || model->tiers == NULL
        || model->held == NULL || model->expert_slots == NULL)
        return berthi_fail_memory(error, "the tensors of a model");
    memset(model->offsets, 0, model->offset_bytes);
    memset(model->berth_of, 0xFF, entries * sizeof *model->berth_of);
    memset(model->expert_slots, 0xFF, model->layer_count * sizeof *model->expert_slots);
    if (plan->summary.stacks == BERTH_STACKS_APART)
        return link_stacks(model, error);
    for (uint64_t i = 0; i < plan->berth_count; i++)
        if (plan->berths[i].number < entries)
            model->berth_of[plan->berths[i].number] = (uint32_t)i;
    return BERTH_OK;
}

berth_status
berthi_model_create(berth_context *context, const berth_checkpoint *checkpoint,
                    const berth_plan *plan, const berth_load_options *options,
                    berth_model **out, berth_error *error)
{
    berth_model *const model =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *model);
    berth_status status;

    *out = NULL;
    if (model == NULL)
        return berthi_fail_memory(error, "a model");
    model->context = context;
    model->lease_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    model->checkpoint = checkpoint;
    model->plan = plan;
    model->layer_count = plan->summary.layer_count;
    model->berth_count = plan->berth_count;
    model->tier_count = plan->summary.tier_count;
    if (options->slab_memory != NULL)
        model->memory = *options->slab_memory;
    model->wait_ns = berthi_wait_ns(options->wait_ms);
    status = list_berths(model, error);
    if (status == BERTH_OK)
        status = find_devices(model, options, error);
    if (status == BERTH_OK)
        model->has_pinned_offsets =
            berthi_model_try_pin(model, model->offsets, model->offset_bytes);
    if (status == BERTH_OK)
        status = allocate(model, error);
    if (status != BERTH_OK) {
        berthi_model_free(model);
        return status;
    }
    *out = model;
    return BERTH_OK;
}

static void
free_slabs(berth_model *model)
{
    for (uint32_t t = 0; model->tiers != NULL && t < model->tier_count; t++) {
        berthi_model_free_slab(model, &model->tiers[t]);
        berthi_model_free_hold(model, &model->tiers[t]);
    }
}

/* Nothing of it hangs. */
static void
give_back(berth_model *model)
{
    berth_context *const context = model->context;

    berthi_leases_destroy(model->leases);
    pthread_mutex_destroy(&model->lease_lock);
    berthi_offload_destroy(model->offload);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, model->offload_dir,
                       model->offload_dir_bytes);
    free_slabs(model);
    if (model->has_pinned_offsets)
        berthi_model_unpin(model, model->offsets, model->offset_bytes);
    berthi_device_cpu_close(model->host);
    if (model->owns_devices)
        berthi_devices_close(model->devices);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, model->gpus,
                       model->gpu_count * sizeof *model->gpus);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, model->tiers,
                       model->tier_count * sizeof *model->tiers);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, (void *)model->held,
                       model->layer_count * sizeof *model->held);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, model->expert_slots,
                       model->layer_count * sizeof *model->expert_slots);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, model->berth_of,
                       model->tensor_count * sizeof *model->berth_of);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, model->next_berth,
                       model->next_count * sizeof *model->next_berth);
    berthi_memory_free(context, BERTHI_PURPOSE_TENSORS, model->is_turned,
                       model->tensor_count * sizeof *model->is_turned);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_TENSORS, model->offsets,
                               model->offset_bytes, PAGE_BYTES);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, model, sizeof *model);
}

static bool
try_end(berthi_kept *kept)
{
    berth_model *const model = (berth_model *)kept;

    if (atomic_load(&model->stranded) > 0
        || (model->leases != NULL && !berthi_leases_are_over(model->leases)))
        return false;
    give_back(model);
    return true;
}

bool
berthi_model_is_stranded(berth_model *model)
{
    if (atomic_load(&model->stranded) == 0)
        return false;
    berthi_context_sweep(model->context);
    return atomic_load(&model->stranded) > 0;
}

berth_status
berthi_model_fail_stranded(berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                       "copies of the model's last move have not ended");
}

/* Devices of its own are given up instead: nobody else uses them. */
void
berthi_model_free(berth_model *model)
{
    if (model == NULL)
        return;
    if (berthi_leases_hang(model->leases) || berthi_model_is_stranded(model)) {
        berthi_log(model->context, BERTH_LOG_WARNING,
                   "copies have not ended: the model's memory stays with them");
        if (!model->owns_devices) {
            model->kept.try_end = try_end;
            berthi_context_keep(model->context, &model->kept);
            return;
        }
        berthi_devices_stop(model->devices);
        berthi_context_sweep_all(model->context); /* it is over */
    }
    give_back(model);
}

berth_status
berthi_model_fail_copies(const berth_model *model, const berthi_device *device,
                         const berthi_about *about, berth_error *error)
{
    const char *name = "a device";

    for (uint32_t t = 0; t < model->tier_count; t++)
        if (model->tiers[t].device == device)
            name = model->tiers[t].name;
    return berthi_fail(error, BERTH_REASON_TIMEOUT, about,
                       "%s has not finished its copies for %" PRIu64 " milliseconds", name,
                       model->wait_ns / 1000000);
}
