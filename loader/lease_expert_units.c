/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_expert_units.c - which experts take turns in slots, and where their bytes are.
 *
 *   berths of a layer   router | experts.0.w1 | experts.0.w2 | experts.1.w1 | ...
 *   units                      [ what of expert 0 is away   ] [ of 1 ]
 *
 * Those of a stack that is taken apart have one name, and their row in it for a number.
 *
 * A plan has room for experts of one pass through a layer. How many of them that are is
 * the same here as there: all slots are as large as the largest expert of the device.
 */
#include <string.h>

#include "loader/lease_listing.h"
#include "loader/sort.h"

/* ------------------------------------------------------------------------ numbers */

static int
compare_numbers(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const uint32_t *const numbers = user;

    (void)shared;
    return numbers[a] < numbers[b] ? -1 : numbers[a] > numbers[b];
}

/*
 * The layer's berths by the expert that they belong to; *out_count: so many do. False: out of
 * memory.
 */
static bool
sort_experts(berthi_lease_listing *l, const berth_plan_layer *layer, uint32_t *out_count)
{
    const berth_model *const model = l->leases->model;
    const berthi_table *const table = &model->checkpoint->table;
    uint32_t count = 0;

    for (uint32_t i = 0; i < layer->berth_count; i++) {
        const berthi_berth *const berth = &model->plan->berths[layer->first_berth + i];

        if (!berth->is_expert)
            continue;
        l->numbers[i] =
            berthi_plan_expert_of(model->plan, layer->first_berth + i,
                                  berthi_table_name(table, berth->number),
                                  table->entries[berth->number].name_length);
        l->order[count] = i;
        count += l->numbers[i] != BERTHI_NO_EXPERT;
    }
    *out_count = count;
    return berthi_sort_arrange(model->context, l->order, count, compare_numbers,
                               l->numbers);
}

/* -------------------------------------------------------------------------- units */

/* Berths order[first, end) are an expert's: those that are away make up its unit. */
static uint32_t
list_expert(berthi_lease_listing *l, uint32_t layer, uint32_t first, uint32_t end)
{
    const berth_plan *const plan = l->leases->model->plan;
    berthi_lease_unit *const unit = berthi_lease_list_unit(l, layer);

    unit->expert = l->numbers[l->order[first]];
    unit->share = l->leases->lines[unit->line].share_count;
    for (uint32_t i = first; i < end; i++) {
        const uint64_t number = plan->layers[layer].out.first_berth + l->order[i];
        const berthi_berth *const berth = &plan->berths[number];

        if (!berth->is_resident && !berth->is_tied && berth->bytes > 0)
            berthi_lease_list_berth(l, unit, number);
    }
    if (unit->item_count == 0)
        return BERTHI_NO_UNIT;
    berthi_lease_keep_unit(l, unit);
    return l->leases->unit_count - 1;
}

static berth_status
list_layer(berthi_lease_listing *l, uint32_t layer, berth_error *error)
{
    berthi_leases *const leases = l->leases;
    berthi_lease_experts *const experts = &leases->experts[layer];
    const uint32_t units = leases->unit_count;
    berthi_lease_expert *list;
    uint32_t count;

    if (!sort_experts(l, &leases->model->plan->layers[layer].out, &count))
        return berthi_fail_memory(error, "the experts of a layer");
    list = berthi_arena_alloc(&leases->arena, count * sizeof *list, 4);
    if (list == NULL)
        return berthi_fail_memory(error, "the experts of a layer");
    experts->experts = list;
    experts->line = leases->line_count;
    for (uint32_t i = 0, end; i < count; i = end) {
        const uint32_t number = l->numbers[l->order[i]];

        for (end = i + 1; end < count && l->numbers[l->order[end]] == number;)
            end++;
        list[experts->count++] = (berthi_lease_expert){
            .number = number, .unit = list_expert(l, layer, i, end) };
    }
    leases->has_experts |= count > 0;
    leases->lines[experts->line].share_count += leases->unit_count > units;
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- slots */

/* As large as the largest; never more than there are experts. */
static void
choose_slots(const berthi_leases *leases, berthi_lease_line *line)
{
    const berthi_model_tier *const tier = &leases->model->tiers[line->tier];
    const uint64_t room = tier->scratch - tier->expert_slots;

    line->slots_at = tier->expert_slots;
    for (uint32_t i = 0; i < line->unit_count; i++)
        line->slot_bytes = berthi_max_u64(line->slot_bytes,
                                          leases->units[line->first_unit + i].bytes);
    if (line->slot_bytes > 0)
        line->slot_count =
            (uint32_t)berthi_min_u64(room / line->slot_bytes, line->unit_count);
}

berth_status
berthi_lease_list_experts(berthi_lease_listing *l, uint32_t tier, berth_error *error)
{
    berthi_leases *const leases = l->leases;
    const berth_plan *const plan = leases->model->plan;
    berthi_lease_line *const line = &leases->lines[leases->line_count];
    berth_status status = BERTH_OK;

    line->device = leases->model->tiers[tier].device;
    line->tier = tier;
    line->first_unit = leases->unit_count;
    line->is_cache = true;
    for (uint32_t i = 0; i < plan->summary.layer_count && status == BERTH_OK; i++)
        if (plan->layers[i].out.home == tier)
            status = list_layer(l, i, error);
    choose_slots(leases, line);
    leases->line_count += line->unit_count > 0;
    return status;
}

/* ------------------------------------------------------------------------- asking */

berthi_lease_expert *
berthi_lease_expert_of(const berthi_leases *leases, uint32_t layer, uint32_t number)
{
    const berthi_lease_experts *const experts = &leases->experts[layer];
    uint32_t low = 0;

    for (uint32_t high = experts->count; low < high;) {
        const uint32_t middle = low + (high - low) / 2;

        if (experts->experts[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < experts->count && experts->experts[low].number == number
               ? &experts->experts[low]
               : NULL;
}
