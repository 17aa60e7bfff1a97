/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_pages.c - pages that visit a device for their update.
 *
 *   in       waits for the slot to be emptied │ copies the page in     │ filled
 *   caller's waits for filled                 │ updates                │ updated
 *   out      waits for updated                │ copies the page out    │ emptied
 *
 * Slots take turns, so as many pages are on the way as there are slots. A page goes in
 * only after it has come out in the step before: in each step `in` waits for all that
 * `out` did in the last one.
 */
#include <string.h>

#include "loader/optimizer.h"

static berthi_slab_parts
parts_of(const berthi_pager *pager)
{
    const uint64_t bytes = pager->slot_count * pager->slot_bytes;

    return (berthi_slab_parts){ .bytes = bytes, .slots = bytes };
}

uint64_t
berthi_pager_slot_bytes(uint64_t page_bytes)
{
    return berthi_states_slot_bytes(page_bytes);
}

/* ------------------------------------------------------------------ opening, closing */

static berth_status
open_events(berthi_device *d, berthi_pager *pager, berth_error *error)
{
    berth_status status = d->table->stream_create(d, &pager->in, error);

    if (status == BERTH_OK)
        status = d->table->stream_create(d, &pager->out, error);
    if (status == BERTH_OK)
        status = d->table->event_create(d, &pager->idle, error);
    if (status == BERTH_OK)
        status = d->table->event_create(d, &pager->brought, error);
    for (uint32_t i = 0; i < pager->slot_count && status == BERTH_OK; i++) {
        berthi_slot *const slot = &pager->slots[i];

        status = d->table->event_create(d, &slot->filled, error);
        if (status == BERTH_OK)
            status = d->table->event_create(d, &slot->updated, error);
        if (status == BERTH_OK)
            status = d->table->event_create(d, &slot->emptied, error);
    }
    for (uint32_t i = 0; i < BERTHI_STATES_BUFFERS && status == BERTH_OK; i++)
        status = d->table->event_create(d, &pager->copied[i], error);
    return status;
}

/* As many slots as there is room for. */
static berth_status
open_slots(berth_optimizer *o, uint32_t device, uint32_t least, berth_error *error)
{
    berthi_pager *const pager = &o->devices[device].pager;
    void *memory = NULL;
    berth_status status;

    for (;; pager->slot_count--) {
        const berthi_slab_parts parts = parts_of(pager);

        status = berthi_optimizer_take(o, device, &parts, &memory, error);
        if (status != BERTH_ENOFIT || pager->slot_count <= least)
            break;
        berthi_error_clear(error); /* fewer of them may fit */
    }
    pager->memory = memory;
    return status;
}

berth_status
berthi_pager_open(berth_optimizer *o, uint32_t device, uint64_t slot_bytes, uint32_t least,
                  berth_error *error)
{
    berthi_pager *const pager = &o->devices[device].pager;
    berth_status status = BERTH_OK;

    if (pager->memory != NULL && pager->slot_bytes >= slot_bytes)
        return BERTH_OK;
    if (pager->memory != NULL)
        status = berthi_optimizer_settle(o, error);
    if (status != BERTH_OK)
        return status;
    slot_bytes = berthi_max_u64(slot_bytes, pager->slot_bytes);
    berthi_pager_close(o, device);
    pager->slot_bytes = slot_bytes;
    pager->slot_count = o->slots;
    status = open_slots(o, device, least, error);
    if (status == BERTH_OK)
        status = open_events(o->devices[device].device, pager, error);
    if (status != BERTH_OK)
        berthi_pager_close(o, device);
    return status;
}

/* A step that failed half way has left off anywhere: behind a page that is on its way, too. */
berth_status
berthi_pager_settle(berth_optimizer *o, uint32_t device, berth_error *error)
{
    berthi_device *const d = o->devices[device].device;
    const berthi_pager *const pager = &o->devices[device].pager;
    berth_status status = BERTH_OK;

    if (pager->memory == NULL)
        return BERTH_OK;
    if (o->is_torn) {
        status = d->table->record(d, pager->brought, pager->in, error);
        if (status == BERTH_OK)
            status = berthi_optimizer_await(o, device, pager->brought, error);
        if (status == BERTH_OK)
            status = d->table->record(d, pager->idle, pager->out, error);
    }
    return status == BERTH_OK ? berthi_optimizer_await(o, device, pager->idle, error) : status;
}

void
berthi_pager_close(berth_optimizer *o, uint32_t device)
{
    berthi_device *const d = o->devices[device].device;
    berthi_pager *const pager = &o->devices[device].pager;
    const berthi_slab_parts parts = parts_of(pager);

    /* These wait for what is under way. */
    if (pager->in != NULL)
        d->table->stream_destroy(d, pager->in);
    if (pager->out != NULL)
        d->table->stream_destroy(d, pager->out);
    if (pager->idle != NULL)
        d->table->event_destroy(d, pager->idle);
    if (pager->brought != NULL)
        d->table->event_destroy(d, pager->brought);
    for (uint32_t i = 0; i < BERTHI_SLOTS_MAX; i++) {
        const berthi_slot *const slot = &pager->slots[i];

        if (slot->filled != NULL)
            d->table->event_destroy(d, slot->filled);
        if (slot->updated != NULL)
            d->table->event_destroy(d, slot->updated);
        if (slot->emptied != NULL)
            d->table->event_destroy(d, slot->emptied);
    }
    for (uint32_t i = 0; i < BERTHI_STATES_BUFFERS; i++)
        if (pager->copied[i] != NULL)
            d->table->event_destroy(d, pager->copied[i]);
    berthi_optimizer_give(o, device, &parts, pager->memory);
    memset(pager, 0, sizeof *pager);
}

/* -------------------------------------------------------------------------- a step */

berth_status
berthi_pager_begin(berthi_step *step, uint32_t device, berth_error *error)
{
    berthi_device *const d = step->optimizer->devices[device].device;
    berthi_pager *const pager = &step->optimizer->devices[device].pager;

    pager->next = 0;
    return pager->memory != NULL ? d->table->wait(d, pager->in, pager->idle, error)
                                 : BERTH_OK;
}

static berth_status
bring(berthi_device *d, berthi_pager *pager, const berthi_slot *slot,
      const berthi_copy *copy, berth_error *error)
{
    berth_status status = d->table->wait(d, pager->in, slot->emptied, error);

    if (status == BERTH_OK)
        status = d->table->copy(d, copy, pager->in, error);
    return status == BERTH_OK ? d->table->record(d, slot->filled, pager->in, error) : status;
}

static berth_status
take_back(berthi_device *d, berthi_pager *pager, const berthi_slot *slot,
          const berthi_copy *copy, berth_error *error)
{
    berth_status status = d->table->wait(d, pager->out, slot->updated, error);

    if (status == BERTH_OK)
        status = d->table->copy(d, copy, pager->out, error);
    return status == BERTH_OK ? d->table->record(d, slot->emptied, pager->out, error)
                              : status;
}

berth_status
berthi_pager_visit(berthi_step *step, uint64_t parameter, const berthi_states_page *page,
                   uint8_t *bytes, bool is_pinned, berthi_event *copied, berth_error *error)
{
    const uint32_t device = step->optimizer->parameters[parameter].device;
    berthi_device *const d = step->optimizer->devices[device].device;
    berthi_pager *const pager = &step->optimizer->devices[device].pager;
    const uint32_t turn = pager->next++ % pager->slot_count;
    const berthi_slot *const slot = &pager->slots[turn];
    uint8_t *const place = pager->memory + turn * pager->slot_bytes;
    berthi_stream *const stream = berthi_step_stream(step, device);
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE,
                         .is_pinned = is_pinned,
                         .to = place,
                         .from = bytes,
                         .bytes = page->bytes };
    berth_status status = bring(d, pager, slot, &copy, error);

    if (status == BERTH_OK)
        status = d->table->wait(d, stream, slot->filled, error);
    if (status == BERTH_OK)
        status = berthi_step_launch(step, parameter, page, place, error);
    if (status == BERTH_OK)
        status = d->table->record(d, slot->updated, stream, error);
    copy.kind = BERTHI_COPY_TO_HOST;
    copy.to = bytes;
    copy.from = place;
    if (status == BERTH_OK)
        status = take_back(d, pager, slot, &copy, error);
    if (status == BERTH_OK && copied != NULL)
        status = d->table->record(d, copied, pager->out, error);
    return status;
}

berth_status
berthi_pager_end(berthi_step *step, uint32_t device, berth_error *error)
{
    berthi_device *const d = step->optimizer->devices[device].device;
    berthi_pager *const pager = &step->optimizer->devices[device].pager;

    return pager->memory != NULL ? d->table->record(d, pager->idle, pager->out, error)
                                 : BERTH_OK;
}
