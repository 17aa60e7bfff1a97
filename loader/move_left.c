/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_left.c - what copies of a move that hang still use: streams, staging, and the slabs
 * and holds that would have been given back. It stays as it is, and is counted, until they
 * are over.
 */
#include "loader/move.h"

void
berthi_carrier_free_slab(berthi_carrier *carrier, berthi_model_tier *tier)
{
    berthi_model_tier *left;

    if (!carrier->is_hung || tier->slab == NULL) {
        berthi_model_free_slab(carrier->model, tier);
        return;
    }
    left = &carrier->left[carrier->left_count++];
    *left = *tier;
    left->hold = NULL;
    left->is_hold_pinned = false;
    tier->slab = NULL;
    tier->is_pinned = false;
}

void
berthi_carrier_free_hold(berthi_carrier *carrier, berthi_model_tier *tier)
{
    if (carrier->is_hung && tier->hold != NULL) {
        berthi_model_tier *const left = &carrier->left[carrier->left_count++];

        *left = *tier;
        left->slab = NULL;
        left->is_pinned = false;
        tier->hold = NULL;
        tier->is_hold_pinned = false;
    }
    berthi_model_free_hold(carrier->model, tier); /* what it says of the tier */
}

berth_status
berthi_carrier_begin_leases(berthi_carrier *carrier, berth_error *error)
{
    berth_model *const model = carrier->model;
    berthi_leases *leases;
    berth_status status;

    if (!carrier->is_undoing && !berthi_job_commit(carrier->job))
        return berthi_job_fail_cancelled(error);
    status = berthi_leases_create(model, &model->lease_options, &leases, error);
    if (status == BERTH_OK) {
        pthread_mutex_lock(&model->lease_lock);
        model->leases = leases;
        pthread_mutex_unlock(&model->lease_lock);
    } else if (leases != NULL) {
        carrier->leases = leases;
        carrier->is_hung = true;
    }
    return status;
}

bool
berthi_carrier_keep(berthi_carrier *carrier, uint8_t *memory, uint64_t bytes,
                    bool is_pinned)
{
    if (carrier->is_hung)
        berthi_lefts_add(&carrier->buffers, memory, bytes, is_pinned);
    return carrier->is_hung;
}

bool
berthi_carrier_is_over(berthi_carrier *carrier)
{
    for (uint32_t i = 0; i < carrier->lane_count; i++)
        if (carrier->lanes[i].is_hung && !berthi_stream_is_over(&carrier->lanes[i].end))
            return false;
    return carrier->leases == NULL || berthi_leases_are_over(carrier->leases);
}

void
berthi_carrier_free_left(berthi_carrier *carrier)
{
    berth_model *const model = carrier->model;

    berthi_leases_destroy(carrier->leases);
    berthi_lefts_free(&carrier->buffers, model);
    for (uint32_t i = 0; i < carrier->left_count; i++) {
        berthi_model_free_slab(model, &carrier->left[i]);
        berthi_model_free_hold(model, &carrier->left[i]);
    }
    berthi_memory_free(model->context, BERTHI_PURPOSE_OBJECT, carrier->left,
                       carrier->left_capacity * sizeof *carrier->left);
}
