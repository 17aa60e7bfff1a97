/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_held.c - leases of experts that are resident. There is nothing to bring and no slot
 * that waits for their end, but the model must not be moved meanwhile.
 */
#include "loader/lease_state.h"

/* NULL: it is away, its slot counts. */
static berthi_lease_expert *
resident_at(const berthi_leases *leases, const berthi_expert_list *list, uint32_t i)
{
    berthi_lease_expert *const expert =
        berthi_lease_expert_of(leases, list->layer, list->numbers[i]);

    return expert->unit == BERTHI_NO_UNIT ? expert : NULL;
}

void
berthi_lease_hold(berthi_leases *leases, const berthi_expert_list *list)
{
    pthread_mutex_lock(&leases->held_lock);
    for (uint32_t i = 0; i < list->count; i++) {
        berthi_lease_expert *const expert = resident_at(leases, list, i);

        if (expert != NULL)
            expert->held++;
    }
    pthread_mutex_unlock(&leases->held_lock);
}

/* Another call may have been as quick: nothing is counted below 0. */
void
berthi_lease_let_go(berthi_leases *leases, const berthi_expert_list *list)
{
    pthread_mutex_lock(&leases->held_lock);
    for (uint32_t i = 0; i < list->count; i++) {
        berthi_lease_expert *const expert = resident_at(leases, list, i);

        if (expert != NULL && expert->held > 0)
            expert->held--;
    }
    pthread_mutex_unlock(&leases->held_lock);
}

uint32_t
berthi_lease_find_free(berthi_leases *leases, const berthi_expert_list *list)
{
    uint32_t found = list->count;

    pthread_mutex_lock(&leases->held_lock);
    for (uint32_t i = 0; i < list->count && found == list->count; i++) {
        berthi_lease_expert *const expert = resident_at(leases, list, i);

        if (expert != NULL && expert->mark++ == expert->held)
            found = i;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        berthi_lease_expert *const expert = resident_at(leases, list, i);

        if (expert != NULL)
            expert->mark = 0;
    }
    pthread_mutex_unlock(&leases->held_lock);
    return found;
}

berth_status
berthi_lease_check_held(berthi_leases *leases, berth_error *error)
{
    const uint32_t layers = leases->model->plan->summary.layer_count;
    const berthi_lease_expert *held = NULL;
    uint32_t layer = 0;
    berthi_about about;

    if (!leases->has_experts)
        return BERTH_OK;
    pthread_mutex_lock(&leases->held_lock);
    for (uint32_t l = 0; l < layers && held == NULL; l++) {
        const berthi_lease_experts *const experts = &leases->experts[l];

        layer = l;
        for (uint32_t i = 0; i < experts->count && held == NULL; i++)
            if (experts->experts[i].held > 0)
                held = &experts->experts[i];
    }
    pthread_mutex_unlock(&leases->held_lock);
    if (held == NULL)
        return BERTH_OK;
    about = berthi_plan_about_layer(leases->model->plan, layer);
    return berthi_fail(error, BERTH_REASON_LEASED, &about, "expert %u of this layer is leased",
                       (unsigned)held->number);
}
