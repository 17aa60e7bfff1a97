/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - leases of experts in tests; see experts.h. */
#include "tests/experts.h"

#include <stdlib.h>

#include "tests/fixture.h"
#include "tests/t.h"

#define KIB UINT64_C(1024)

/* ------------------------------------------------------------------------- models */

void
experts_begin_with(leased *l, const char *memory, uint32_t slots, const char *devices)
{
    const leased_options options = { .memory = memory,
                                     .batch = (slots + 1) / 2,
                                     .devices = devices };

    leased_begin(l, leased_moe(EXPERTS_LAYERS, EXPERTS_COUNT, false), &options);
    experts_limit_slots(l, slots);
}

void
experts_limit_slots(leased *l, uint32_t slots)
{
    for (uint32_t t = 0; t < l->model.tier_count; t++)
        if (l->planned.plan->tiers[t].expert_slots > slots * 3 * KIB)
            l->tiers[t].expert_slots = l->tiers[t].scratch - slots * 3 * KIB;
}

void
experts_start(leased *l)
{
    berth_error error;

    if (CHECK_EQ(leased_start(l, &error), BERTH_OK))
        return;
    T_NOTE("%s: %s", error.tensor, error.message);
    exit(1);
}

void
experts_begin(leased *l, uint32_t slots)
{
    experts_begin_with(l, "0=230KiB,cpu=64MiB", slots, NULL);
    experts_start(l);
    CHECK_EQ(l->leases->line_count, 1);
    CHECK_EQ(l->leases->lines[0].slot_count, slots);
}

berth_lease_summary
experts_summary(const leased *l)
{
    berth_lease_summary out;

    berthi_leases_summary(l->leases, &out);
    return out;
}

uint32_t
experts_layer(const leased *l, uint32_t number)
{
    return planned_layer(&l->planned, fixture_format("model.layers.%u", number));
}

uint32_t
experts_home(const leased *l, uint32_t layer)
{
    return l->planned.plan->layers[layer].out.home;
}

uint32_t
experts_list_away(const leased *l, uint32_t layer, uint32_t numbers[EXPERTS_COUNT])
{
    const berthi_lease_experts *const experts = &l->leases->experts[layer];
    uint32_t count = 0;

    for (uint32_t i = 0; i < experts->count; i++)
        if (experts->experts[i].unit != BERTHI_NO_UNIT)
            numbers[count++] = experts->experts[i].number;
    return count;
}

uint64_t
experts_draw(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *random >> 33;
}

/* ------------------------------------------------------------------------- calls */

berth_status
experts_acquire(leased *l, uint32_t layer, const uint32_t *numbers, uint32_t count,
                berthi_stream *stream, berth_error *error)
{
    const berthi_expert_list list = { layer, count, numbers };

    return berthi_experts_acquire(l->leases, &list, stream, error);
}

berth_status
experts_release(leased *l, uint32_t layer, const uint32_t *numbers, uint32_t count,
                berthi_stream *stream, berth_error *error)
{
    const berthi_expert_list list = { layer, count, numbers };

    return berthi_experts_release(l->leases, &list, stream, error);
}

berth_status
experts_prefetch(leased *l, uint32_t layer, const uint32_t *numbers, uint32_t count)
{
    const berthi_expert_list list = { layer, count, numbers };

    return berthi_experts_prefetch(l->leases, &list, NULL);
}

/* An expert where it lay when it was leased. */
typedef struct look {
    leased *leased;
    const berthi_lease_unit *unit;
    const uint8_t *memory;
} look;

static void
compare(void *user)
{
    look *const k = user;
    bool is_right = true;

    for (uint32_t i = 0; i < k->unit->item_count; i++)
        is_right &= leased_is_right(k->leased, k->unit->items[i].berth,
                                    k->memory + k->unit->items[i].offset);
    atomic_fetch_add(&k->leased->compared, 1);
    atomic_fetch_add(&k->leased->wrong, !is_right);
    free(k);
}

berth_status
experts_look_at(leased *l, uint32_t layer, uint32_t number, berthi_stream *stream,
                double seconds, berth_error *error)
{
    const uint32_t unit = berthi_lease_expert_of(l->leases, layer, number)->unit;
    berthi_device *const device = l->tiers[experts_home(l, layer)].device;
    berthi_request request = { .operation = BERTHI_OPERATION_CALL,
                              .arguments.call = { .call = compare, .seconds = seconds } };
    berth_status status;
    look *k;

    if (unit == BERTHI_NO_UNIT)
        return BERTH_OK;
    k = calloc(1, sizeof *k);
    if (k == NULL)
        abort();
    k->leased = l;
    k->unit = &l->leases->units[unit];
    k->memory = berthi_leases_find(l->leases, k->unit->items[0].berth);
    if (!CHECK(k->memory != NULL)) {
        free(k);
        return BERTH_OK;
    }
    request.arguments.call.user = k;
    status = device->table->launch(device, &request, stream, error);
    if (status != BERTH_OK)
        free(k);
    return status;
}

berth_status
experts_use(leased *l, uint32_t layer, const uint32_t *numbers, uint32_t count,
            berthi_stream *stream, double seconds, berth_error *error)
{
    berth_status status = experts_acquire(l, layer, numbers, count, stream, error);
    berth_status released;

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < 2 * count && status == BERTH_OK; i++)
        status = experts_look_at(l, layer, numbers[i % count], stream,
                                 i == count ? seconds : 0, error);
    released = experts_release(l, layer, numbers, count, stream,
                               status == BERTH_OK ? error : NULL);
    return status != BERTH_OK ? status : released;
}

uint32_t
experts_draw_some(uint64_t *random, uint32_t most, uint32_t numbers[EXPERTS_MOST])
{
    const uint32_t count = 1 + (uint32_t)experts_draw(random) % most;
    const uint32_t first = (uint32_t)experts_draw(random) % EXPERTS_COUNT;
    const uint32_t step = 1 + 2 * ((uint32_t)experts_draw(random) % (EXPERTS_COUNT / 2));

    for (uint32_t i = 0; i < count; i++)
        numbers[i] = (first + i * step) % EXPERTS_COUNT;
    return count;
}
