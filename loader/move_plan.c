/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_plan.c - a model from its plan to another one of the same tensors.
 *
 *   a slab that is the same in both plans   stays
 *   a device with room for both             new slab, bytes, then the old one goes
 *   a device without                        a hold, the old slab goes, new slab, bytes
 *   a berth that was on the disk            is read
 *   one that goes there                     is forgotten where the checkpoint has it, or a
 *                                           file of the model's; else it is written first
 */
#include <string.h>

#include "loader/move.h"
#include "loader/offload.h"
#include "loader/plan_input.h"

/* What devices hand memory out in: a slab that is given back gives so much more room. */
#define GRANULE UINT64_C(2 << 20)

/* -------------------------------------------------------------------------- tiers */

static uint32_t
find_old(const berthi_replan *replan, const berthi_model_tier *tier)
{
    const berth_model *const model = replan->model;

    for (uint32_t t = 0; t < model->tier_count; t++)
        if (model->tiers[t].kind == tier->kind && model->tiers[t].number == tier->number)
            return t;
    return BERTHI_NO_TIER;
}

/* Parts and berths are where they are. */
static bool
is_same_slab(const berthi_replan *replan, uint32_t t)
{
    const berthi_model_tier *const new = &replan->tiers[t];
    const uint32_t old_tier = replan->old_of[t];
    const berthi_model_tier *const old = &replan->model->tiers[old_tier];

    if (old->slab == NULL || old->slots != new->slots || old->slot_bytes != new->slot_bytes
        || old->slot_count != new->slot_count || old->expert_slots != new->expert_slots
        || old->scratch != new->scratch || old->bytes != new->bytes)
        return false;
    for (uint64_t i = 0; i < replan->plan->berth_count; i++) {
        const berthi_berth *const a = &replan->model->plan->berths[i];
        const berthi_berth *const b = &replan->plan->berths[i];

        if (!berthi_move_has_bytes(a) || (a->tier != old_tier && b->tier != t))
            continue;
        if (a->tier != old_tier || b->tier != t || a->offset != b->offset)
            return false;
    }
    return true;
}

static berth_status
refuse_room(const berthi_replan *replan, uint32_t t, uint64_t room, berth_error *error)
{
    return berthi_fail(
        error, BERTH_REASON_NO_FIT,
        &(berthi_about){ .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES,
                         .expected = replan->tiers[t].bytes,
                         .actual = room },
        "%s has no room for its part of the plan, the model's own memory included",
        replan->plan->tiers[t].name);
}

/*
 * Host memory is asked for when it is taken: nobody knows what is free of it, nor what the
 * caller's hooks have of a device (try_hooks).
 */
static berth_status
measure_room(berthi_replan *replan, uint32_t t, berth_error *error)
{
    const berthi_model_tier *const tier = &replan->tiers[t];
    const uint32_t old = replan->old_of[t];
    const uint64_t given = old != BERTHI_NO_TIER ? replan->model->tiers[old].bytes : 0;
    berthi_device_properties properties;
    uint64_t room = 0;

    if (tier->kind != BERTH_TIER_GPU || replan->is_kept[t]
        || replan->model->memory.alloc != NULL)
        return BERTH_OK;
    tier->device->table->describe(tier->device, &properties);
    if (properties.is_host || tier->bytes <= properties.free_bytes)
        return BERTH_OK;
    if (!berthi_can_round_up(given, GRANULE, &room)
        || !berthi_can_add(properties.free_bytes, room, &room) || tier->bytes > room)
        return refuse_room(replan, t, room, error);
    replan->is_tight[t] = true;
    return BERTH_OK;
}

static berth_status
compare_tiers(berthi_replan *replan, berth_error *error)
{
    berth_status status = BERTH_OK;

    berthi_model_describe(replan->model, replan->plan, replan->tiers);
    for (uint32_t t = 0; t < replan->tier_count && status == BERTH_OK; t++) {
        replan->old_of[t] = find_old(replan, &replan->tiers[t]);
        replan->is_kept[t] =
            replan->old_of[t] != BERTHI_NO_TIER && is_same_slab(replan, t);
        status = measure_room(replan, t, error);
    }
    return status;
}

/* ------------------------------------------------------------------------- berths */

static bool
is_disk(const berthi_model_tier *tiers, const berthi_berth *berth)
{
    return tiers[berth->tier].kind == BERTH_TIER_DISK;
}

static berth_status
refuse_unstored(const berthi_replan *replan, uint64_t berth, bool was_on_disk,
                berth_error *error)
{
    return berthi_move_refuse(
        replan, berth, BERTH_REASON_UNSUPPORTED,
        was_on_disk ? "lies on the disk and would have to be encoded"
                    : "was made while it was loaded: no file has it; demote it to host "
                      "memory, or load the model with an offload_dir that it can be "
                      "written to",
        error);
}

/*
 * What is on the disk in one of the plans has to be there as the berth holds it, or can be
 * written.
 */
static berth_status
list_berths(berthi_replan *replan, berth_error *error)
{
    const berth_model *const model = replan->model;

    for (uint64_t i = 0; i < replan->plan->berth_count; i++) {
        const berthi_berth *const old = &model->plan->berths[i];
        const berthi_berth *const new = &replan->plan->berths[i];
        const bool was_on_disk = is_disk(model->tiers, old);
        const bool will_be = is_disk(replan->tiers, new);

        if (!berthi_move_has_bytes(new) || was_on_disk == will_be) {
            if (berthi_move_has_bytes(new) && !will_be && !replan->is_kept[new->tier])
                replan->bytes += new->bytes;
            continue;
        }
        if (!berthi_move_is_stored(model, i)) {
            if (was_on_disk || model->offload_dir == NULL)
                return refuse_unstored(replan, i, was_on_disk, error);
            replan->bytes += new->bytes;
        }
        if (was_on_disk)
            replan->bytes += new->bytes;
    }
    for (uint32_t t = 0; t < replan->tier_count; t++)
        if (replan->is_tight[t] && replan->old_of[t] != BERTHI_NO_TIER)
            replan->bytes += berthi_hold_bytes(model, replan->old_of[t], false);
    return BERTH_OK;
}

berth_status
berthi_replan_init(berthi_replan *replan, berth_model *model, const berth_plan *plan,
                   berth_error *error)
{
    const uint32_t count = plan->summary.tier_count;
    berth_context *const context = model->context;
    berth_status status;

    *replan = (berthi_replan){
        .model = model, .plan = plan, .tier_count = count, .flag_count = count
    };
    berthi_reads_init(&replan->reads, context);
    replan->tiers = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT,
                                         count * sizeof *replan->tiers);
    replan->old_of = berthi_memory_zalloc(context, BERTHI_PURPOSE_CHUNKS,
                                          count * sizeof *replan->old_of);
    replan->is_kept = berthi_memory_zalloc(context, BERTHI_PURPOSE_CHUNKS, count);
    replan->is_tight = berthi_memory_zalloc(context, BERTHI_PURPOSE_CHUNKS, count);
    if (replan->tiers == NULL || replan->old_of == NULL || replan->is_kept == NULL
        || replan->is_tight == NULL)
        status = berthi_fail_memory(error, "moving a model");
    else
        status = berthi_move_check_same(replan, error);
    if (status == BERTH_OK && plan->is_read) /* as a load of it would */
        status = berthi_plan_hold(plan, context, model->checkpoint, error);
    if (status == BERTH_OK)
        status = berthi_move_check_devices(replan, error);
    if (status == BERTH_OK)
        status = compare_tiers(replan, error);
    if (status == BERTH_OK)
        status = list_berths(replan, error);
    if (status != BERTH_OK)
        berthi_replan_fini(replan);
    return status;
}

/* Slabs of the replan's tiers that are none of the model's, and holds. */
static void
free_tiers(berthi_replan *replan)
{
    for (uint32_t t = 0; replan->tiers != NULL && t < replan->tier_count; t++) {
        berthi_model_free_slab(replan->model, &replan->tiers[t]);
        berthi_model_free_hold(replan->model, &replan->tiers[t]);
    }
}

void
berthi_replan_fini(berthi_replan *replan)
{
    const uint32_t count = replan->flag_count;
    berth_context *context;

    if (replan->model == NULL)
        return;
    context = replan->model->context;
    free_tiers(replan);
    berthi_reads_fini(&replan->reads);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, replan->is_tight, count);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, replan->is_kept, count);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, replan->old_of,
                       count * sizeof *replan->old_of);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, replan->tiers,
                       replan->tier_count * sizeof *replan->tiers);
    memset(replan, 0, sizeof *replan);
}

/* ---------------------------------------------------------------------------- run */

/*
 * Slabs of devices that the caller has memory for; the others wait until the old one has gone,
 * and then there is a hold to be carried, too.
 */
static berth_status
try_hooks(berthi_replan *replan, berthi_carrier *carrier, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < replan->tier_count && status == BERTH_OK; t++) {
        const uint32_t old = replan->old_of[t];

        if (replan->tiers[t].kind != BERTH_TIER_GPU || replan->is_kept[t]
            || replan->model->memory.alloc == NULL)
            continue;
        status = berthi_carrier_create_slab(carrier, &replan->tiers[t], error);
        if (status == BERTH_ENOFIT && old != BERTHI_NO_TIER
            && replan->model->tiers[old].slab != NULL) {
            berthi_error_clear(error);
            status = BERTH_OK;
            replan->is_tight[t] = true;
            replan->bytes += berthi_hold_bytes(replan->model, old, false);
        }
    }
    berthi_job_set_total(carrier->job, replan->bytes);
    return status;
}

/* Holds for devices without room for two slabs, whose old slab then goes. */
static berth_status
make_room(berthi_replan *replan, berthi_carrier *carrier, berthi_transfers *transfers,
          berth_error *error)
{
    berth_model *const model = replan->model;
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < replan->tier_count && status == BERTH_OK; t++)
        if (replan->is_tight[t])
            status = berthi_hold_create(carrier, replan->old_of[t], false, transfers, error);
    if (status == BERTH_OK)
        status = berthi_carrier_carry(carrier, transfers, error);
    for (uint32_t t = 0; t < replan->tier_count && status == BERTH_OK; t++)
        if (replan->is_tight[t])
            berthi_model_free_slab(model, &model->tiers[replan->old_of[t]]);
    return status;
}

static berth_status
make_slabs(berthi_replan *replan, berthi_carrier *carrier, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < replan->tier_count && status == BERTH_OK; t++) {
        berthi_model_tier *const tier = &replan->tiers[t];

        if (replan->is_kept[t]) {
            tier->slab = replan->model->tiers[replan->old_of[t]].slab;
            tier->is_pinned = replan->model->tiers[replan->old_of[t]].is_pinned;
        } else if (tier->slab == NULL) {
            status = berthi_carrier_create_slab(carrier, tier, error);
        }
    }
    return status;
}

/* `at`: of the old tiers, where the berth before ended in its hold. */
static berth_status
list_one(berthi_replan *replan, uint64_t berth, uint64_t *at, berthi_transfers *transfers,
         berth_error *error)
{
    const berth_model *const model = replan->model;
    const berthi_berth *const old = &model->plan->berths[berth];
    const berthi_berth *const new = &replan->plan->berths[berth];
    const berthi_model_tier *const tier = &model->tiers[old->tier];
    const berthi_spot from = tier->slab != NULL
                                 ? berthi_move_spot(tier, old->offset)
                                 : berthi_hold_spot(tier, at[old->tier]);
    const berthi_spot to = berthi_move_spot(&replan->tiers[new->tier], new->offset);

    at[old->tier] += old->bytes;
    if (is_disk(replan->tiers, new) || replan->is_kept[new->tier])
        return BERTH_OK;
    if (is_disk(model->tiers, old))
        return berthi_reads_add(&replan->reads, model, berth, &to, error);
    berthi_transfers_add(transfers, &from, &to, new->bytes);
    return BERTH_OK;
}

static berth_status
list_all(berthi_replan *replan, berthi_transfers *transfers, berth_error *error)
{
    const berth_model *const model = replan->model;
    const uint64_t bytes = model->tier_count * sizeof(uint64_t);
    uint64_t *const at = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_CHUNKS,
                                              bytes);
    berth_status status = BERTH_OK;

    if (at == NULL)
        return berthi_fail_memory(error, "moving a model");
    transfers->count = 0;
    for (uint64_t i = 0; i < replan->plan->berth_count && status == BERTH_OK; i++)
        if (berthi_move_has_bytes(&replan->plan->berths[i]))
            status = list_one(replan, i, at, transfers, error);
    berthi_memory_free(model->context, BERTHI_PURPOSE_CHUNKS, at, bytes);
    return status;
}

/* The model has the other's plan and tiers; those it had are the replan's. */
static void
exchange(berthi_replan *replan)
{
    berth_model *const model = replan->model;
    const berth_plan *const plan = model->plan;
    berthi_model_tier *const tiers = model->tiers;
    const uint32_t count = model->tier_count;

    model->plan = replan->plan;
    model->tiers = replan->tiers;
    model->tier_count = replan->tier_count;
    replan->plan = plan;
    replan->tiers = tiers;
    replan->tier_count = count;
}

/*
 * The new slabs are whole, and the new file: the model lives in them, unless it cannot begin
 * to.
 */
static berth_status
begin(berthi_replan *replan, berthi_carrier *carrier, berth_error *error)
{
    berth_model *const model = replan->model;
    berth_status status;

    exchange(replan);
    berthi_offload_add(model, replan->offload);
    status = berthi_carrier_begin_leases(carrier, error);
    if (status == BERTH_OK) {
        replan->offload = NULL;
        return BERTH_OK;
    }
    berthi_offload_remove(model, replan->offload);
    exchange(replan);
    return status;
}

/* What both plans have is the model's alone. */
static void
keep_shared(berthi_replan *replan)
{
    const berth_model *const model = replan->model;

    for (uint32_t t = 0; t < replan->tier_count; t++)
        for (uint32_t o = 0; o < model->tier_count; o++)
            if (replan->tiers[t].slab == model->tiers[o].slab) {
                replan->tiers[t].slab = NULL;
                replan->tiers[t].is_pinned = false;
            }
}

berth_status
berthi_replan_run(berthi_replan *replan, berthi_carrier *carrier, berth_error *error)
{
    berth_model *const model = replan->model;
    berthi_transfers transfers;
    berth_status status = berthi_transfers_init(&transfers, model->context,
                                                model->plan->berth_count, error);

    berthi_model_stop_leases(model);
    if (status == BERTH_OK)
        status = berthi_replan_write(replan, carrier, error);
    if (status == BERTH_OK)
        status = try_hooks(replan, carrier, error);
    if (status == BERTH_OK)
        status = make_room(replan, carrier, &transfers, error);
    if (status == BERTH_OK)
        status = make_slabs(replan, carrier, error);
    if (status == BERTH_OK)
        status = list_all(replan, &transfers, error);
    if (status == BERTH_OK)
        status = berthi_carrier_carry(carrier, &transfers, error);
    if (status == BERTH_OK)
        status = berthi_reads_run(&replan->reads, carrier, error);
    if (status == BERTH_OK)
        status = begin(replan, carrier, error);
    keep_shared(replan);
    if (!carrier->is_hung)
        free_tiers(replan);
    berthi_offload_destroy(replan->offload);
    replan->offload = NULL;
    berthi_transfers_fini(&transfers);
    return status;
}
