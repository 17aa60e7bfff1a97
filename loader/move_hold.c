/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_hold.c - sleep and wake: what lies in slabs goes into holds in host memory, and
 * comes back from there.
 *
 *   slab of a tier   [ berths | slots | slots of experts | scratch ]
 *   its hold         [ berths ]       one behind the other, in the order of the plan
 *
 * A hold may leave out what the checkpoint has, byte by byte.
 */
#include <string.h>

#include "loader/move.h"

/* -------------------------------------------------------------------------- spots */

berthi_spot
berthi_move_spot(const berthi_model_tier *tier, uint64_t offset)
{
    return (berthi_spot){ .memory = tier->slab + offset,
                          .device = tier->number,
                          .is_pinned = tier->is_pinned };
}

berthi_spot
berthi_hold_spot(const berthi_model_tier *tier, uint64_t at)
{
    return (berthi_spot){ .memory = tier->hold + at,
                          .device = BERTHI_NO_DEVICE,
                          .is_pinned = tier->is_hold_pinned };
}

/* True where the hold takes the berth; the others are read again. */
static bool
is_taken(const berth_model *model, uint64_t berth, bool discards)
{
    return !discards || !berthi_move_is_stored(model, berth);
}

static bool
is_of(const berth_model *model, uint64_t berth, uint32_t tier)
{
    const berthi_berth *const b = &model->plan->berths[berth];

    return b->tier == tier && berthi_move_has_bytes(b);
}

uint64_t
berthi_hold_bytes(const berth_model *model, uint32_t tier, bool discards)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < model->plan->berth_count; i++)
        if (is_of(model, i, tier) && is_taken(model, i, discards))
            bytes += model->plan->berths[i].bytes;
    return bytes;
}

/* Host memory is only given back for what need not be kept. */
bool
berthi_hold_is_due(const berth_model *model, uint32_t tier, bool discards)
{
    const berthi_model_tier *const t = &model->tiers[tier];

    if (t->slab == NULL || t->is_held)
        return false;
    return t->kind == BERTH_TIER_GPU
           || (discards
               && berthi_hold_bytes(model, tier, true)
                      < berthi_hold_bytes(model, tier, false));
}

/* -------------------------------------------------------------------------- holds */

berth_status
berthi_hold_create(berthi_carrier *carrier, uint32_t tier, bool discards,
                   berthi_transfers *transfers, berth_error *error)
{
    const berthi_pin_watch watch = berthi_carrier_pin_watch(carrier);
    berth_model *const model = carrier->model;
    berthi_model_tier *const t = &model->tiers[tier];
    const uint64_t bytes = berthi_hold_bytes(model, tier, discards);
    berth_status status = berthi_model_create_hold(model, t, bytes, error);
    uint64_t at = 0;

    if (status == BERTH_OK)
        status = berthi_model_pin_hold(model, t, &watch, error);
    if (status != BERTH_OK) {
        berthi_model_free_hold(model, t);
        return status;
    }
    t->is_held = true;
    t->has_discarded = discards;
    for (uint64_t i = 0; i < model->plan->berth_count; i++) {
        const berthi_berth *const b = &model->plan->berths[i];
        const berthi_spot from = berthi_move_spot(t, b->offset);
        const berthi_spot to = berthi_hold_spot(t, at);

        if (!is_of(model, i, tier) || !is_taken(model, i, discards))
            continue;
        berthi_transfers_add(transfers, &from, &to, b->bytes);
        at += b->bytes;
    }
    return BERTH_OK;
}

void
berthi_hold_free(berthi_carrier *carrier)
{
    berth_model *const model = carrier->model;

    for (uint32_t t = 0; t < model->tier_count; t++)
        if (model->tiers[t].slab != NULL)
            berthi_carrier_free_hold(carrier, &model->tiers[t]);
}

/* -------------------------------------------------------------------------- sleep */

berth_status
berthi_model_hold(berthi_carrier *carrier, bool discards, berth_error *error)
{
    berth_model *const model = carrier->model;
    berthi_transfers transfers;
    berth_status status = berthi_transfers_init(&transfers, model->context,
                                                model->plan->berth_count, error);

    for (uint32_t t = 0; t < model->tier_count && status == BERTH_OK; t++)
        if (berthi_hold_is_due(model, t, discards))
            status = berthi_hold_create(carrier, t, discards, &transfers, error);
    if (status == BERTH_OK)
        status = berthi_carrier_carry(carrier, &transfers, error);
    berthi_transfers_fini(&transfers);
    if (status != BERTH_OK)
        berthi_hold_free(carrier);
    return status;
}

void
berthi_model_stop_leases(berth_model *model)
{
    berthi_leases *const leases = model->leases;
    berth_lease_summary summary;

    if (leases == NULL)
        return;
    for (uint32_t l = 0; l < model->layer_count; l++)
        model->expert_slots[l] = berthi_experts_slots(leases, l);
    pthread_mutex_lock(&model->lease_lock);
    berthi_leases_summary(leases, &summary);
    berthi_leases_add(&model->leased, &summary);
    model->leases = NULL;
    pthread_mutex_unlock(&model->lease_lock);
    berthi_leases_destroy(leases);
}

void
berthi_model_drop(berth_model *model)
{
    berthi_model_stop_leases(model);
    for (uint32_t t = 0; t < model->tier_count; t++)
        if (model->tiers[t].is_held)
            berthi_model_free_slab(model, &model->tiers[t]);
}

/* --------------------------------------------------------------------------- wake */

static bool
is_gone(const berthi_model_tier *tier)
{
    return tier->is_held && tier->slab == NULL && tier->bytes > 0;
}

uint64_t
berthi_model_asleep_bytes(const berth_model *model)
{
    uint64_t bytes = 0;

    for (uint32_t t = 0; t < model->tier_count; t++)
        if (is_gone(&model->tiers[t]))
            bytes += berthi_hold_bytes(model, t, false);
    return bytes;
}

static berth_status
list_tier(berth_model *model, uint32_t tier, berthi_transfers *transfers,
          berthi_reads *reads, berth_error *error)
{
    const berthi_model_tier *const t = &model->tiers[tier];
    berth_status status = BERTH_OK;
    uint64_t at = 0;

    for (uint64_t i = 0; i < model->plan->berth_count && status == BERTH_OK; i++) {
        const berthi_berth *const b = &model->plan->berths[i];
        const berthi_spot from = berthi_hold_spot(t, at);
        const berthi_spot to = berthi_move_spot(t, b->offset);

        if (!is_of(model, i, tier))
            continue;
        if (!is_taken(model, i, t->has_discarded)) {
            status = berthi_reads_add(reads, model, i, &to, error);
            continue;
        }
        berthi_transfers_add(transfers, &from, &to, b->bytes);
        at += b->bytes;
    }
    return status;
}

/* `is_new`: of tiers, those that got their slab here. */
static berth_status
raise_slabs(berthi_carrier *carrier, bool *is_new, berthi_transfers *transfers,
            berthi_reads *reads, berth_error *error)
{
    berth_model *const model = carrier->model;
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < model->tier_count && status == BERTH_OK; t++) {
        if (!is_gone(&model->tiers[t]))
            continue;
        status = berthi_carrier_create_slab(carrier, &model->tiers[t], error);
        is_new[t] = model->tiers[t].slab != NULL;
        if (status == BERTH_OK)
            status = list_tier(model, t, transfers, reads, error);
    }
    if (status == BERTH_OK)
        status = berthi_carrier_carry(carrier, transfers, error);
    if (status == BERTH_OK)
        status = berthi_reads_run(reads, carrier, error);
    if (status == BERTH_OK)
        status = berthi_carrier_begin_leases(carrier, error);
    for (uint32_t t = 0; t < model->tier_count && status != BERTH_OK; t++)
        if (is_new[t])
            berthi_carrier_free_slab(carrier, &model->tiers[t]);
    return status;
}

berth_status
berthi_model_raise(berthi_carrier *carrier, berth_error *error)
{
    berth_model *const model = carrier->model;
    const uint64_t flags = model->tier_count * sizeof(bool);
    bool *const is_new = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_CHUNKS,
                                              flags);
    berthi_transfers transfers;
    berthi_reads reads;
    berth_status status;

    if (is_new == NULL)
        return berthi_fail_memory(error, "waking a model");
    berthi_reads_init(&reads, model->context);
    status = berthi_transfers_init(&transfers, model->context, model->plan->berth_count,
                                   error);
    if (status == BERTH_OK)
        status = raise_slabs(carrier, is_new, &transfers, &reads, error);
    berthi_reads_fini(&reads);
    berthi_transfers_fini(&transfers);
    berthi_memory_free(model->context, BERTHI_PURPOSE_CHUNKS, is_new, flags);
    return status;
}
