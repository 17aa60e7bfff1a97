/* SPDX-License-Identifier: Apache-2.0 */
/* lease_expert_ask.c - what is told of experts: slots, uses, where one lies. */
#include <string.h>

#include "loader/lease_state.h"

uint32_t
berthi_experts_slots(const berthi_leases *leases, uint32_t layer)
{
    const berthi_lease_experts *const experts = &leases->experts[layer];

    for (uint32_t i = 0; i < experts->count; i++)
        if (experts->experts[i].unit != BERTHI_NO_UNIT)
            return leases->lines[experts->line].slot_count;
    return UINT32_MAX;
}

void
berthi_experts_count(berthi_leases *leases, uint32_t layer, berth_expert_counts *out)
{
    const berthi_lease_experts *const experts = &leases->experts[layer];
    const berthi_lease_share *share;
    berthi_lease_line *line;
    uint32_t unit = BERTHI_NO_UNIT;

    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < experts->count; i++) {
        if (experts->experts[i].unit == BERTHI_NO_UNIT)
            continue;
        unit = experts->experts[i].unit;
        out->away++;
    }
    if (unit == BERTHI_NO_UNIT)
        return;
    line = &leases->lines[experts->line];
    share = &line->shares[leases->units[unit].share];
    pthread_mutex_lock(&line->lock);
    out->acquired = share->acquired;
    out->hits = share->hits;
    out->slots = share->once.count + share->again.count;
    pthread_mutex_unlock(&line->lock);
}

uint8_t *
berthi_experts_find(berthi_leases *leases, uint64_t berth)
{
    const berthi_table *const table = &leases->model->checkpoint->table;
    const berthi_berth *const b = &leases->model->plan->berths[berth];
    const uint32_t number =
        berthi_plan_expert_of(leases->model->plan, berth,
                              berthi_table_name(table, b->number),
                              table->entries[b->number].name_length);
    const berthi_lease_expert *const expert =
        berthi_lease_expert_of(leases, b->layer, number);
    const berthi_lease_unit *unit;
    uint8_t *memory = NULL;
    berthi_lease_line *line;
    berthi_lease_slot *slot;
    uint64_t offset;

    if (expert == NULL || expert->unit == BERTHI_NO_UNIT)
        return NULL;
    unit = &leases->units[expert->unit];
    offset = berthi_lease_offset_of(unit, berth);
    line = &leases->lines[unit->line];
    pthread_mutex_lock(&line->lock);
    slot = berthi_lease_cache_find(line, expert->unit);
    if (slot != NULL && slot->leases > 0 && offset != UINT64_MAX)
        memory = slot->memory + offset;
    pthread_mutex_unlock(&line->lock);
    return memory;
}
