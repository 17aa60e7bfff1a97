/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_expert.c - acquire, release and prefetch of experts.
 *
 * A call names experts of one layer; it gets all of them or none. Those that are
 * resident cost nothing, those in a slot no copy. For the others slots are emptied that
 * nobody uses; where there are not so many the call is refused before anything is given
 * away, for who holds the slots may be the caller. All slots are taken before the first
 * copy, for others call meanwhile where that is not pinned. While a call waits for the disk
 * its slots are held: whatever else is asked for meanwhile, it gets what it waits for.
 */
#include <string.h>

#include "kernels/sys.h"
#include "loader/lease_state.h"

/* Experts of one layer, as a call names them. */
typedef struct request {
    berthi_leases *leases;
    berthi_lease_line *line; /* NULL: all are resident */
    bool has_resident;
    uint32_t layer;
    const uint32_t *numbers;
    uint32_t count;
    uint32_t held;           /* of the first so many, those that are away */
    uint32_t hits;           /* of those, that lay in a slot */
} request;

/* ---------------------------------------------------------------------- requests */

static berth_status
refuse_number(const request *r, uint32_t number, berth_error *error)
{
    const berthi_about about = berthi_plan_about_layer(r->leases->model->plan, r->layer);

    return berthi_fail(error, BERTH_REASON_ARGUMENT, &about,
                       "`experts`: %u is none of this layer's", (unsigned)number);
}

/* Its unit; NO_UNIT: it is resident. */
static uint32_t
unit_at(const request *r, uint32_t i)
{
    return berthi_lease_expert_of(r->leases, r->layer, r->numbers[i])->unit;
}

/* The slot of one that is away, has a slot or not; NULL, too: it is resident. */
static berthi_lease_slot *
slot_at(const request *r, uint32_t i)
{
    const uint32_t unit = unit_at(r, i);

    return unit == BERTHI_NO_UNIT ? NULL : berthi_lease_cache_find(r->line, unit);
}

static berth_status
begin(request *r, berthi_leases *leases, const berthi_expert_list *list,
      berth_error *error)
{
    bool is_away = false;

    *r = (request){ .leases = leases,
                    .layer = list->layer,
                    .numbers = list->numbers,
                    .count = list->count };
    for (uint32_t i = 0; i < r->count; i++) {
        const berthi_lease_expert *const expert =
            berthi_lease_expert_of(leases, r->layer, r->numbers[i]);

        if (expert == NULL)
            return refuse_number(r, r->numbers[i], error);
        is_away |= expert->unit != BERTHI_NO_UNIT;
        r->has_resident |= expert->unit == BERTHI_NO_UNIT;
    }
    if (is_away)
        r->line = &leases->lines[leases->experts[r->layer].line];
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- holding */

/* Nothing of the first `held` is given away meanwhile. */
static void
let_go(request *r)
{
    for (uint32_t i = 0; i < r->held; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot == NULL)
            continue;
        slot->waiters--;
        berthi_lease_cache_note_use(r->line, slot);
        if (slot->waiters == 0
            && (slot->fill == BERTHI_LEASE_FAILED || slot->fill == BERTHI_LEASE_TAKEN))
            berthi_lease_empty(r->line, slot);
    }
    r->held = 0;
}

/* Slots that have to be emptied for the request. Marks those that it finds. */
static uint32_t
count_missing(const request *r)
{
    uint32_t missing = 0;

    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);
        bool is_new = unit_at(r, i) != BERTHI_NO_UNIT && slot == NULL;

        if (slot != NULL)
            slot->mark = 1;
        for (uint32_t k = 0; k < i && is_new; k++)
            is_new = r->numbers[k] != r->numbers[i];
        missing += is_new;
    }
    return missing;
}

/* Room for others beside those that are marked; takes the marks away. */
static uint32_t
count_room(const request *r)
{
    uint32_t room = berthi_lease_cache_room(r->line);

    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot == NULL)
            continue;
        room -= slot->mark > 0 && !slot->is_used;
        slot->mark = 0;
    }
    return room;
}

/* Those of the request that have slots keep them while others are emptied. */
static void
keep(const request *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot == NULL)
            continue;
        if (slot->mark == 0) {
            slot->mark = 1;
            slot->waiters++;
        }
        berthi_lease_cache_note_use(r->line, slot);
    }
}

static void
keep_no_longer(const request *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot == NULL)
            continue;
        if (slot->mark > 0) {
            slot->mark = 0;
            slot->waiters--;
        }
        berthi_lease_cache_note_use(r->line, slot);
    }
}

/* The slot that is missed least; there is room. */
static berthi_lease_slot *
take(const request *r, uint32_t unit)
{
    const berthi_lease_unit *const about = &r->leases->units[unit];
    berthi_lease_slot *const slot = berthi_lease_cache_take(r->line, about);

    slot->unit = unit;
    slot->fill = BERTHI_LEASE_TAKEN;
    berthi_lease_cache_put(r->line, slot, about);
    return slot;
}

/*
 * Slots that others have taken, too: those may be waiting for the device. After a failure
 * what nobody waits for is given up.
 */
static berth_status
fill_taken(const request *r, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *slot;

        if (status == BERTH_OK && unit_at(r, i) != BERTHI_NO_UNIT)
            status = berthi_lease_fill_taken(r->leases, r->line, unit_at(r, i), error);
        slot = slot_at(r, i);
        if (status != BERTH_OK && berthi_lease_is_taken(slot) && slot->waiters == 0)
            berthi_lease_empty(r->line, slot);
    }
    return status;
}

/* A slot for each, which the request holds; there is room. */
static void
hold(request *r)
{
    for (; r->held < r->count; r->held++) {
        const uint32_t unit = unit_at(r, r->held);
        berthi_lease_slot *slot = slot_at(r, r->held);

        if (unit == BERTHI_NO_UNIT)
            continue;
        if (slot != NULL) {
            berthi_lease_cache_touch(slot);
            r->hits++;
        } else {
            slot = take(r, unit);
        }
        slot->waiters++;
        berthi_lease_cache_note_use(r->line, slot);
    }
}

/* ----------------------------------------------------------------------- acquire */

static berth_status
refuse_slots(const request *r, uint32_t missing, uint32_t room, berth_error *error)
{
    const berth_plan *const plan = r->leases->model->plan;
    berthi_about about = berthi_plan_about_layer(plan, r->layer);

    about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
    about.expected = missing;
    about.actual = room;
    return berthi_fail(error, BERTH_REASON_SLOTS, &about,
                       "%u experts more than are leased: of %u slots of \"%s\" %u are free",
                       (unsigned)missing, (unsigned)r->line->slot_count,
                       plan->tiers[r->line->tier].name, (unsigned)room);
}

/* What it holds has come, and the stream waits for the copies. */
static berth_status
await(const request *r, uint64_t deadline_ns, berthi_stream *stream, berth_error *error)
{
    berthi_device *const device = r->line->device;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < r->count && status == BERTH_OK; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot != NULL)
            status = berthi_lease_await_feeder(r->leases, r->line, slot, deadline_ns,
                                               error);
    }
    for (uint32_t i = 0; i < r->count && status == BERTH_OK; i++) {
        const berthi_lease_slot *const slot = slot_at(r, i);

        if (slot != NULL && !BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_FULL_WAIT))
            status = device->table->wait(device, stream, slot->full, error);
    }
    return status;
}

/* All of them have come. */
static void
count_leases(const request *r)
{
    berthi_lease_share *share = NULL; /* all are of one layer */

    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot == NULL)
            continue;
        slot->leases++;
        share = slot->share;
        share->acquired++;
        r->line->summary.experts_acquired++;
    }
    if (share != NULL)
        share->hits += r->hits;
    r->line->summary.expert_hits += r->hits;
}

/* Slots that are filled for nobody, and can be taken when that is over, and the unit of one. */
static uint32_t
count_about_to_be_free(const request *r, uint32_t *out_unit)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->line->slot_count; i++) {
        const berthi_lease_slot *const slot = &r->line->slots[i];
        bool is_free = slot->is_used && slot->leases == 0 && slot->waiters == 0;

        for (uint32_t k = 0; k < r->count && is_free; k++)
            is_free = unit_at(r, k) != slot->unit;
        count += is_free;
        *out_unit = is_free ? slot->unit : *out_unit;
    }
    return count;
}

static berth_status
await_room(const request *r, uint64_t deadline_ns, berth_error *error)
{
    uint32_t missing = count_missing(r);
    uint32_t room = count_room(r);
    uint32_t unit = BERTHI_NO_UNIT;

    while (missing > room && missing - room <= count_about_to_be_free(r, &unit)) {
        const bool is_late = berthi_sys_condition_wait_until(
                                 &r->line->changed, &r->line->lock, deadline_ns) != 0
                             && !berthi_lease_put_off(r->leases, r->line, &deadline_ns);

        missing = count_missing(r);
        room = count_room(r);
        if (is_late && missing > room)
            return berthi_lease_fail_time(r->leases, &r->leases->units[unit], error);
    }
    return missing <= room ? BERTH_OK : refuse_slots(r, missing, room, error);
}

static berth_status
lease(request *r, berthi_stream *stream, berth_error *error)
{
    const uint64_t deadline_ns = berthi_lease_feed_deadline(r->leases);
    berth_status status = await_room(r, deadline_ns, error);

    if (status != BERTH_OK)
        return status;
    keep(r);
    hold(r);
    keep_no_longer(r);
    status = fill_taken(r, error);
    if (status == BERTH_OK)
        status = await(r, deadline_ns, stream, error);
    if (status == BERTH_OK)
        count_leases(r);
    let_go(r);
    return status;
}

/* What is done with experts that are away, with their line's lock. */
typedef berth_status (*line_call)(request *r, berthi_stream *stream, berth_error *error);

static berth_status
with_line(request *r, berthi_stream *stream, line_call call, berth_error *error)
{
    berth_status status;

    if (r->line == NULL)
        return BERTH_OK;
    pthread_mutex_lock(&r->line->lock);
    status = call(r, stream, error);
    pthread_mutex_unlock(&r->line->lock);
    return status;
}

berth_status
berthi_experts_acquire(berthi_leases *leases, const berthi_expert_list *list,
                       berthi_stream *stream, berth_error *error)
{
    request r;
    berth_status status = begin(&r, leases, list, error);

    if (status == BERTH_OK)
        status = with_line(&r, stream, lease, error);
    if (status == BERTH_OK && r.has_resident)
        berthi_lease_hold(leases, list);
    return status;
}

/* ---------------------------------------------------------------------- prefetch */

/* As many as have room beside what is used and what the request has there already. */
static void
bring(request *r)
{
    uint32_t missing = count_missing(r);
    const uint32_t room = count_room(r);

    if (missing > room)
        missing = room;
    keep(r);
    for (uint32_t i = 0; i < r->count && missing > 0; i++) {
        berthi_lease_slot *slot = slot_at(r, i);

        if (slot != NULL || unit_at(r, i) == BERTHI_NO_UNIT)
            continue;
        slot = take(r, unit_at(r, i));
        slot->is_ahead = true;
        berthi_lease_cache_note_use(r->line, slot);
        missing--;
    }
    keep_no_longer(r);
    (void)fill_taken(r, NULL);
}

berth_status
berthi_experts_prefetch(berthi_leases *leases, const berthi_expert_list *list,
                        berth_error *error)
{
    request r;
    const berth_status status = begin(&r, leases, list, error);

    if (status != BERTH_OK || r.line == NULL)
        return status;
    if (BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
        return BERTH_OK;
    pthread_mutex_lock(&r.line->lock);
    bring(&r);
    pthread_mutex_unlock(&r.line->lock);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- release */

static berth_status
refuse_release(const request *r, uint32_t number, berth_error *error)
{
    const berthi_about about = berthi_plan_about_layer(r->leases->model->plan, r->layer);

    return berthi_fail(error, BERTH_REASON_LEASE, &about,
                       "expert %u of this layer is not leased", (unsigned)number);
}

/* Each as often as the request names it. */
static berth_status
check_leases(const request *r, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < r->count && status == BERTH_OK; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (unit_at(r, i) == BERTHI_NO_UNIT)
            continue;
        if (slot == NULL || slot->mark == slot->leases)
            status = refuse_release(r, r->numbers[i], error);
        else
            slot->mark++;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot != NULL)
            slot->mark = 0;
    }
    return status;
}

/* On failure all are still leased: a release can be asked for again. */
static berth_status
end_leases(request *r, berthi_stream *stream, berth_error *error)
{
    berth_status status = check_leases(r, error);

    for (uint32_t i = 0; i < r->count && status == BERTH_OK; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot != NULL)
            status = berthi_lease_record_release(r->line, slot, stream, error);
    }
    for (uint32_t i = 0; i < r->count && status == BERTH_OK; i++) {
        berthi_lease_slot *const slot = slot_at(r, i);

        if (slot == NULL)
            continue;
        slot->leases--;
        berthi_lease_cache_note_use(r->line, slot);
    }
    return status;
}

/* The same of those that are resident. */
static berth_status
check_held(const request *r, const berthi_expert_list *list, berth_error *error)
{
    const uint32_t found = berthi_lease_find_free(r->leases, list);

    return found == list->count ? BERTH_OK : refuse_release(r, list->numbers[found], error);
}

berth_status
berthi_experts_release(berthi_leases *leases, const berthi_expert_list *list,
                       berthi_stream *stream, berth_error *error)
{
    request r;
    berth_status status = begin(&r, leases, list, error);

    if (status == BERTH_OK && r.has_resident)
        status = check_held(&r, list, error);
    if (status == BERTH_OK)
        status = with_line(&r, stream, end_leases, error);
    if (status == BERTH_OK && r.has_resident)
        berthi_lease_let_go(leases, list);
    return status;
}
