/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_memory.c - where states lie: memory of devices, of the host, or a file. */
#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/optimizer.h"

/* ------------------------------------------------------------------------ waiting */

berth_status
berthi_optimizer_await(const berth_optimizer *o, uint32_t device, berthi_event *event,
                       berth_error *error)
{
    berthi_device *const d = o->devices[device].device;
    const berth_status status = d->table->await(
        d, event, berthi_add_capped(berthi_sys_now_ns(), o->wait_ns), error);

    if (status != BERTH_PENDING)
        return status;
    return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                       "device %s has not finished an update for %" PRIu64 " milliseconds",
                       o->devices[device].name, o->wait_ns / 1000000);
}

void
berthi_optimizer_give_late(berth_optimizer *o, uint32_t device)
{
    berthi_optimizer_device *const d = &o->devices[device];

    d->is_behind = false;
    berthi_optimizer_give(o, device, &d->late_parts, d->late);
    d->late = NULL;
}

/*
 * Until the device's first stream has done what it was asked for, which nobody else knows
 * to wait for, and updates on a stream of the caller's. While that is not known, memory of
 * the device is not given back.
 */
static berth_status
await_first(berth_optimizer *o, uint32_t device, berth_error *error)
{
    berthi_optimizer_device *const d = &o->devices[device];
    berth_status status;

    d->is_behind = true;
    status = berthi_optimizer_await(o, device, d->done, error);
    if (status == BERTH_OK)
        status = d->device->table->record(d->device, d->done, NULL, error);
    if (status == BERTH_OK)
        status = berthi_optimizer_await(o, device, d->done, error);
    if (status == BERTH_OK)
        berthi_optimizer_give_late(o, device);
    return status;
}

static berth_status
check_known(const berth_optimizer *o, uint32_t device, berth_error *error)
{
    const berthi_optimizer_device *const d = &o->devices[device];

    if (!d->is_unknown)
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_DEVICE, NULL,
                       "device %s could not note where updates on a stream of the caller's end",
                       d->name);
}

berth_status
berthi_optimizer_settle(berth_optimizer *o, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < o->device_count && status == BERTH_OK; i++) {
        status = check_known(o, i, error);
        if (status == BERTH_OK && o->devices[i].done != NULL)
            status = berthi_optimizer_await(o, i, o->devices[i].done, error);
        if (status == BERTH_OK)
            status = berthi_pager_settle(o, i, error);
        if (status == BERTH_OK && o->devices[i].is_behind)
            status = await_first(o, i, error);
    }
    return status;
}

/* ------------------------------------------------------------------------- memory */

static berthi_books *
books_of(const berth_optimizer *o)
{
    return &o->context->ledger.books;
}

static berth_status
zero(berth_optimizer *o, uint32_t device, void *memory, uint64_t bytes, berth_error *error)
{
    berthi_device *const d = o->devices[device].device;
    const berth_status status = d->table->clear(d, memory, bytes, NULL, error);

    return status == BERTH_OK ? await_first(o, device, error) : status;
}

/* Host memory, which says that it is for weights. */
static berth_status
alloc_from_host(berthi_device *host, uint64_t bytes, void **out, berth_error *error)
{
    const berth_status status = host->table->alloc(host, bytes, out, error);

    if (status != BERTH_ENOMEM)
        return status;
    return berthi_fail(error, BERTH_REASON_NO_MEMORY, NULL,
                       "out of memory: %" PRIu64 " bytes for states", bytes);
}

berth_status
berthi_optimizer_take(berth_optimizer *o, uint32_t device, const berthi_slab_parts *parts,
                      void **out, berth_error *error)
{
    berthi_device *const d = o->devices[device].device;
    berth_status status = BERTH_OK;

    if (o->devices[device].is_behind) /* there is room for one that comes late */
        status = await_first(o, device, error);
    if (status == BERTH_OK)
        status = o->devices[device].is_host ? alloc_from_host(d, parts->bytes, out, error)
                                            : d->table->alloc(d, parts->bytes, out, error);
    if (status != BERTH_OK)
        return status;
    berthi_books_take_slab(books_of(o), o->devices[device].name, parts);
    if (d->table->keep != NULL)
        status = d->table->keep(d, *out, parts->bytes, error);
    if (status == BERTH_OK)
        status = zero(o, device, *out, parts->bytes, error);
    if (status == BERTH_OK)
        return BERTH_OK;
    berthi_optimizer_give(o, device, parts, *out);
    *out = NULL;
    return status;
}

void
berthi_optimizer_give(berth_optimizer *o, uint32_t device, const berthi_slab_parts *parts,
                      void *memory)
{
    berthi_optimizer_device *const d = &o->devices[device];

    if (memory == NULL)
        return;
    if (d->is_behind) {
        d->late = memory;
        d->late_parts = *parts;
        return;
    }
    d->device->table->free(d->device, memory, parts->bytes);
    berthi_books_give_slab(books_of(o), d->name, parts);
}

uint64_t
berthi_optimizer_scratch_bytes(const berth_optimizer *o, uint32_t device)
{
    const berthi_optimizer_device *const d = &o->devices[device];

    return d->is_host || !d->has_parameters ? 0 : berthi_states_scratch_bytes(o->page_elements);
}

/* ------------------------------------------------------------------------ pinning */

static void
unpin_from(berth_optimizer *o, void *memory, uint64_t bytes, uint32_t count)
{
    while (count > 0) {
        const berthi_optimizer_device *const d = &o->devices[--count];

        if (!d->is_host)
            berthi_device_unpin(d->device, memory, bytes);
    }
}

bool
berthi_optimizer_pin(berth_optimizer *o, void *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < o->device_count; i++) {
        const berthi_optimizer_device *const d = &o->devices[i];
        berth_error refusal;

        if (d->is_host
            || berthi_device_pin(d->device, memory, bytes, NULL, &refusal) == BERTH_OK)
            continue;
        unpin_from(o, memory, bytes, i);
        return false;
    }
    return true;
}

void
berthi_optimizer_unpin(berth_optimizer *o, void *memory, uint64_t bytes)
{
    unpin_from(o, memory, bytes, o->device_count);
}

/* ------------------------------------------------------------------------- states */

/* Where another device copies from and to host memory. */
static bool
is_away(const berth_optimizer *o, const berthi_trained_tensor *p, int32_t place)
{
    return place == BERTH_STATES_HOST && !o->devices[p->device].is_host;
}

uint64_t
berthi_optimizer_bytes(const berth_optimizer *o, const berthi_trained_tensor *p, int32_t place)
{
    const uint64_t bytes = berthi_states_bytes(&p->states);
    uint64_t pages;

    if (!is_away(o, p, place) || !berthi_can_round_up(bytes, berthi_sys_page_bytes(), &pages))
        return bytes;
    return pages;
}

static berthi_slab_parts
parts_of(const berth_optimizer *o, const berthi_trained_tensor *p)
{
    const uint64_t bytes = berthi_optimizer_bytes(o, p, p->place);

    return (berthi_slab_parts){ .bytes = bytes, .states = bytes };
}

static berth_status
alloc_host(berth_optimizer *o, berthi_trained_tensor *p, berth_error *error)
{
    const berthi_slab_parts parts = parts_of(o, p);
    berthi_device *const d = o->devices[p->device].device;
    berth_error refusal;
    void *memory = NULL;
    berth_status status = alloc_from_host(o->host, parts.bytes, &memory, error);

    if (status != BERTH_OK)
        return status;
    memset(memory, 0, parts.bytes);
    p->memory = memory;
    berthi_books_take_slab(books_of(o), books_of(o)->books[BERTHI_BOOKS_HOST].tier, &parts);
    p->is_pinned = is_away(o, p, p->place)
                   && berthi_device_pin(d, memory, parts.bytes, NULL, &refusal) == BERTH_OK;
    return BERTH_OK;
}

berth_status
berthi_optimizer_alloc(berth_optimizer *o, berthi_trained_tensor *p, berth_error *error)
{
    const berthi_slab_parts parts = parts_of(o, p);
    void *memory = NULL;
    berth_status status;

    p->memory = NULL;
    p->is_pinned = false;
    if (p->place == BERTH_STATES_DISK)
        return berthi_disk_reserve(o, p, error);
    if (p->place == BERTH_STATES_HOST)
        return alloc_host(o, p, error);
    status = berthi_optimizer_take(o, p->device, &parts, &memory, error);
    p->memory = memory;
    return status;
}

void
berthi_optimizer_free(berth_optimizer *o, berthi_trained_tensor *p)
{
    const berthi_slab_parts parts = parts_of(o, p);
    berthi_device *const d = o->devices[p->device].device;

    if (p->memory == NULL)
        return;
    if (p->is_pinned)
        berthi_device_unpin(d, p->memory, parts.bytes);
    if (p->place == BERTH_STATES_HOST) {
        o->host->table->free(o->host, p->memory, parts.bytes);
        berthi_books_give_slab(books_of(o), books_of(o)->books[BERTHI_BOOKS_HOST].tier,
                               &parts);
    } else {
        berthi_optimizer_give(o, p->device, &parts, p->memory);
    }
    p->memory = NULL;
}

/* --------------------------------------------------------------------------- room */

static void
free_room(berth_optimizer *o, berthi_page_room *room)
{
    if (room->memory == NULL)
        return;
    if (room->is_pinned)
        berthi_optimizer_unpin(o, room->memory, room->bytes);
    berthi_memory_free_aligned(o->context, BERTHI_PURPOSE_SCRATCH, room->memory, room->bytes,
                               berthi_sys_page_bytes());
    memset(room, 0, sizeof *room);
}

void
berthi_optimizer_free_rooms(berth_optimizer *o)
{
    free_room(o, &o->room);
    free_room(o, &o->counters);
}

static berth_status
alloc_room(berth_optimizer *o, berthi_page_room *room, uint64_t bytes, bool is_for_devices,
           const char *what, berth_error *error)
{
    room->bytes = berthi_round_up(bytes, berthi_sys_page_bytes());
    room->memory = berthi_memory_aligned(o->context, BERTHI_PURPOSE_SCRATCH, room->bytes,
                                         berthi_sys_page_bytes());
    if (room->memory == NULL)
        return berthi_fail_memory(error, what);
    room->is_pinned = is_for_devices && berthi_optimizer_pin(o, room->memory, room->bytes);
    return BERTH_OK;
}

berth_status
berthi_optimizer_open_room(berth_optimizer *o, uint64_t bytes, bool is_for_devices,
                           const char *what, uint8_t **out, berth_error *error)
{
    berthi_page_room *const room = &o->room;
    berth_status status = BERTH_OK;

    *out = NULL;
    /* A driver that is to unpin something waits for what hangs: that is not pinned then. And
     * what is there is of a call that gave up on its copy. */
    if (is_for_devices || room->memory != NULL)
        status = berthi_optimizer_settle(o, error);
    if (status != BERTH_OK)
        return status;
    free_room(o, room);
    status = alloc_room(o, room, bytes, is_for_devices, what, error);
    *out = room->memory;
    return status;
}

void
berthi_optimizer_close_room(berth_optimizer *o)
{
    bool is_behind = false;

    for (uint32_t i = 0; i < o->device_count; i++)
        is_behind |= o->devices[i].is_behind;
    if (!is_behind)
        free_room(o, &o->room);
}

static bool
is_pinned_in(const berthi_page_room *room, const void *at)
{
    const uintptr_t begin = (uintptr_t)room->memory;

    return room->is_pinned && (uintptr_t)at >= begin && (uintptr_t)at - begin < room->bytes;
}

/* Whether devices may copy there, or from there, while the caller goes on. */
static bool
is_pinned(const berth_optimizer *o, const void *at)
{
    return is_pinned_in(&o->room, at) || is_pinned_in(&o->counters, at);
}

bool
berthi_optimizer_is_far(const berth_optimizer *o, const berthi_trained_tensor *p)
{
    return p->place == BERTH_STATES_DEVICE && !o->devices[p->device].is_host;
}

/* -------------------------------------------------------------------------- pages */

/*
 * On the device's first stream, and waited for. What the caller has asked of that is waited for
 * before: a copy that is not pinned returns when it is done, however long that takes.
 */
static berth_status
copy_now(berth_optimizer *o, uint32_t device, const berthi_copy *copy, berth_error *error)
{
    berthi_device *const d = o->devices[device].device;
    berth_status status = await_first(o, device, error);

    if (status == BERTH_OK)
        status = d->table->copy(d, copy, NULL, error);
    return status == BERTH_OK ? await_first(o, device, error) : status;
}

berth_status
berthi_optimizer_fetch(berth_optimizer *o, uint32_t device, void *to, const void *from,
                       uint64_t bytes, berth_error *error)
{
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_HOST,
                               .is_pinned = is_pinned(o, to),
                               .to = to,
                               .from = from,
                               .bytes = bytes };

    return copy_now(o, device, &copy, error);
}

/*
 * Each device has a place of its own there, which stays: what one that hangs copies there
 * later does not come into what another has counted.
 */
berth_status
berthi_optimizer_fetch_count(berth_optimizer *o, uint32_t device, uint64_t *out,
                             berth_error *error)
{
    const uint64_t at = device * sizeof *out;
    berth_status status = BERTH_OK;

    if (o->counters.memory == NULL)
        status = alloc_room(o, &o->counters, o->device_count * sizeof *out, true,
                            "reports of steps", error);
    if (status == BERTH_OK)
        status = berthi_optimizer_fetch(o, device, o->counters.memory + at,
                                        o->devices[device].not_finite, sizeof *out, error);
    if (status == BERTH_OK)
        memcpy(out, o->counters.memory + at, sizeof *out);
    return status;
}

/* The host copies its own memory; a device that of others. */
static berth_status
copy_page(berth_optimizer *o, const berthi_trained_tensor *p, const berthi_copy *copy,
          berth_error *error)
{
    if (berthi_optimizer_is_far(o, p))
        return copy_now(o, p->device, copy, error);
    memcpy(copy->to, copy->from, copy->bytes);
    return BERTH_OK;
}

berth_status
berthi_optimizer_get_page(berth_optimizer *o, const berthi_trained_tensor *p, uint64_t number,
                          void *bytes, berth_error *error)
{
    const berthi_states_page page = berthi_states_get_page(&p->states, number);
    const berth_status status = berthi_optimizer_settle(o, error);

    if (status != BERTH_OK)
        return status;
    if (p->memory == NULL)
        return berthi_disk_read(o, p->file_offset + page.offset, bytes, page.bytes, error);
    return copy_page(o, p,
                     &(berthi_copy){ .kind = BERTHI_COPY_TO_HOST,
                                     .is_pinned = is_pinned(o, bytes),
                                     .to = bytes,
                                     .from = p->memory + page.offset,
                                     .bytes = page.bytes },
                     error);
}

berth_status
berthi_optimizer_put_page(berth_optimizer *o, const berthi_trained_tensor *p, uint64_t number,
                          const void *bytes, berth_error *error)
{
    const berthi_states_page page = berthi_states_get_page(&p->states, number);
    const berth_status status = berthi_optimizer_settle(o, error);

    if (status != BERTH_OK)
        return status;
    if (p->memory == NULL)
        return berthi_disk_write(o, p->file_offset + page.offset, bytes, page.bytes, error);
    return copy_page(o, p,
                     &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE,
                                     .is_pinned = is_pinned(o, bytes),
                                     .to = p->memory + page.offset,
                                     .from = bytes,
                                     .bytes = page.bytes },
                     error);
}
