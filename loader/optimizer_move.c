/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_move.c - states from one place to another, between two steps. */
#include <string.h>

#include "kernels/sys.h"
#include "loader/optimizer.h"

berth_status
berthi_optimizer_prepare(berth_optimizer *o, const berthi_trained_tensor *p, berth_error *error)
{
    const uint64_t page_bytes = berthi_states_page_bytes(&p->states);
    berth_status status = BERTH_OK;

    if (p->place == BERTH_STATES_DISK)
        status = berthi_disk_prepare(o, page_bytes, error);
    if (status != BERTH_OK || p->place == BERTH_STATES_DEVICE || o->devices[p->device].is_host)
        return status;
    return berthi_pager_open(o, p->device, berthi_pager_slot_bytes(page_bytes), 1, error);
}

/* ------------------------------------------------------------------------ one parameter */

/* Page by page, through host memory where neither side is. */
static berth_status
copy_pages(berth_optimizer *o, const berthi_trained_tensor *from, const berthi_trained_tensor *to,
           uint8_t *buffer, berth_error *error)
{
    const uint64_t pages = berthi_states_page_count(&from->states);
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < pages && status == BERTH_OK; i++) {
        status = berthi_optimizer_get_page(o, from, i, buffer, error);
        if (status == BERTH_OK)
            status = berthi_optimizer_put_page(o, to, i, buffer, error);
    }
    return status;
}

static berth_status
copy_states(berth_optimizer *o, const berthi_trained_tensor *from, const berthi_trained_tensor *to,
            berth_error *error)
{
    const bool is_far = berthi_optimizer_is_far(o, from) || berthi_optimizer_is_far(o, to);
    uint8_t *buffer;
    berth_status status = berthi_optimizer_open_room(o, berthi_states_page_bytes(&from->states),
                                                     is_far, "moving states", &buffer, error);

    if (status == BERTH_OK)
        status = copy_pages(o, from, to, buffer, error);
    berthi_optimizer_close_room(o);
    return status;
}

/* The same states at the place that `to` says; on failure there are none. */
static berth_status
make_copy(berth_optimizer *o, berthi_trained_tensor *from, berthi_trained_tensor *to,
          berth_error *error)
{
    berth_status status = berthi_optimizer_alloc(o, to, error);

    if (status != BERTH_OK)
        return status;
    status = copy_states(o, from, to, error);
    from->file_offset = to->file_offset;
    if (status != BERTH_OK)
        berthi_optimizer_free(o, to);
    return status;
}

/*
 * Slots are made before, or, where the states themselves are in their way, when these have
 * gone; without them the next step says so. Those that were made for a move that failed go
 * again, and so do buffers.
 */
static berth_status
move(berth_optimizer *o, berthi_trained_tensor *p, int32_t place, berth_error *error)
{
    const bool had_slots = o->devices[p->device].pager.memory != NULL;
    const bool had_buffers = o->disk.buffers != NULL;
    berthi_trained_tensor moved = *p;
    berth_status status = berthi_optimizer_settle(o, error);

    if (status != BERTH_OK) /* nothing is pinned that could not be unpinned */
        return status;
    moved.place = place;
    status = berthi_optimizer_prepare(o, &moved, error);
    if (status == BERTH_ENOFIT && p->place == BERTH_STATES_DEVICE) {
        berthi_error_clear(error);
        status = BERTH_OK;
    }
    if (status == BERTH_OK)
        status = make_copy(o, p, &moved, error);
    if (status == BERTH_OK) {
        berthi_optimizer_free(o, p);
        *p = moved;
        (void)berthi_optimizer_prepare(o, p, NULL);
        return BERTH_OK;
    }
    if (!had_slots)
        berthi_pager_close(o, p->device);
    if (!had_buffers)
        berthi_disk_free_buffers(o);
    return status;
}

/* What a caller may ask for. */
static berth_status
check(const berth_optimizer *o, uint64_t parameter, int32_t place, berth_error *error)
{
    if (o == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (parameter >= o->parameter_count)
        return berthi_fail_number(error, "parameter", parameter, o->parameter_count);
    if (place < 0 || place >= BERTH_STATES_PLACE_COUNT)
        return berthi_fail_argument(error, "place", "is none of device, host and disk");
    return BERTH_OK;
}

berth_status
berth_optimizer_move(berth_optimizer *optimizer, uint64_t parameter, int32_t place,
                     berth_error *error)
{
    berth_status status;

    berthi_error_clear(error);
    status = check(optimizer, parameter, place, error);
    if (status != BERTH_OK)
        return status;
    place = berthi_optimizer_place(optimizer, &optimizer->parameters[parameter], place);
    if (optimizer->parameters[parameter].place == place)
        return BERTH_OK;
    return move(optimizer, &optimizer->parameters[parameter], place, error);
}

/* -------------------------------------------------------------------------- making room */

static uint64_t
used_bytes(const berth_optimizer *o, uint32_t device)
{
    berth_optimizer_memory memory;

    (void)berth_optimizer_get_memory(o, device, &memory);
    return memory.states[BERTH_STATES_DEVICE] + memory.slots;
}

/*
 * Slots for states that leave are in the same memory: so few of them that there is the room
 * that is wanted, if all has to leave; one at least. 0: nothing would be gained.
 */
static uint32_t
count_slots(const berth_optimizer *o, uint32_t device, uint64_t wanted)
{
    const berthi_pager *const pager = &o->devices[device].pager;
    uint64_t taken = pager->slot_count * pager->slot_bytes; /* with the states that can leave */
    uint64_t page = 0;
    uint64_t slots = 1;
    uint64_t slot;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        const berthi_trained_tensor *const p = &o->parameters[i];

        if (p->device != device || p->place != BERTH_STATES_DEVICE)
            continue;
        taken += berthi_states_bytes(&p->states);
        page = berthi_max_u64(page, berthi_states_page_bytes(&p->states));
    }
    slot = berthi_pager_slot_bytes(page);
    if (pager->slot_bytes >= slot) /* as it is where none can leave */
        return o->slots;
    if (wanted < taken)
        slots = berthi_max_u64(berthi_min_u64((taken - wanted) / slot, o->slots), 1);
    return slots * slot < taken ? (uint32_t)slots : 0;
}

/* The one with the most bytes there; NULL: none. */
static berthi_trained_tensor *
find_largest(berth_optimizer *o, uint32_t device)
{
    berthi_trained_tensor *largest = NULL;
    uint64_t most = 0;

    for (uint64_t i = 0; i < o->parameter_count; i++) {
        berthi_trained_tensor *const p = &o->parameters[i];
        const uint64_t bytes = berthi_states_bytes(&p->states);

        if (p->device != device || p->place != BERTH_STATES_DEVICE || bytes <= most)
            continue;
        largest = p;
        most = bytes;
    }
    return largest;
}

/* To host memory; to the disk, and what was said of the first try is forgotten. */
static berth_status
move_away(berth_optimizer *o, berthi_trained_tensor *p, berth_error *error)
{
    const berth_status status = move(o, p, BERTH_STATES_HOST, error);

    if (status != BERTH_ENOMEM || o->disk.folder == NULL)
        return status;
    berthi_error_clear(error);
    return move(o, p, BERTH_STATES_DISK, error);
}

/* The largest ones leave, until there is room or nothing is left. */
static berth_status
move_largest(berth_optimizer *o, uint32_t device, uint64_t bytes, uint64_t *out_bytes,
             berth_error *error)
{
    const uint64_t begin = used_bytes(o, device);
    berth_status status = BERTH_OK;

    while (status == BERTH_OK && *out_bytes < bytes) {
        berthi_trained_tensor *const p = find_largest(o, device);
        uint64_t now;

        if (p == NULL)
            break;
        status = move_away(o, p, error);
        now = used_bytes(o, device);
        *out_bytes = begin > now ? begin - now : 0;
    }
    return status;
}

berth_status
berth_optimizer_make_room(berth_optimizer *optimizer, uint32_t device, uint64_t bytes,
                          uint64_t *out_bytes, berth_error *error)
{
    berth_status status = BERTH_OK;
    uint32_t slots;

    berthi_error_clear(error);
    if (out_bytes == NULL)
        return berthi_fail_argument(error, "out_bytes", "is NULL");
    *out_bytes = 0;
    if (optimizer == NULL)
        return berthi_fail_argument(error, "optimizer", "is NULL");
    if (device >= optimizer->device_count || optimizer->devices[device].is_host)
        return berthi_fail_argument(error, "device", "has no memory of its own");
    slots = optimizer->slots;
    optimizer->slots = count_slots(optimizer, device, bytes);
    if (optimizer->slots > 0)
        status = move_largest(optimizer, device, bytes, out_bytes, error);
    optimizer->slots = slots;
    return status;
}
