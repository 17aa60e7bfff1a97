/* SPDX-License-Identifier: Apache-2.0 */
/* sim_do.c - doing work, on memory that may only be digests; see sim.h. */
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sim.h"

/* What is written to memory that keeps digests goes here first. */
typedef struct stand_in {
    uint8_t *memory;
    uint64_t bytes;
    size_t slot; /* of the request */
    berthi_sim_digest *digest;
    berthi_sim_range range;
} stand_in;

typedef struct doing {
    berthi_sim_device *device;
    berthi_sim_device *peer; /* of a copy; NULL: none */
    const berthi_sim_item *item;
    berthi_request request; /* with pointers to what stands in */
    stand_in stand_ins[BERTHI_SIM_REGIONS];
    uint32_t count;
} doing;

/* With the lock: which regions need something that stands in for them. */
static void
find_stand_ins(doing *d, const berthi_sim_regions *regions)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        const berthi_sim_region *const r = &regions->items[i];
        const berthi_sim_device *const owner = r->is_of_peer ? d->peer : d->device;
        berthi_sim_allocation *const a =
            berthi_sim_memory_find(&owner->memory, r->memory, r->bytes);

        if (r->is_written && !berthi_sim_allocation_has_bytes(a, r->memory, r->bytes)) {
            const uint64_t begin = (uint64_t)((uint8_t *)r->memory - a->own.memory);

            d->stand_ins[d->count++] =
                (stand_in){ .bytes = r->bytes,
                            .slot = r->slot,
                            .digest = &a->digest,
                            .range = { .begin = begin, .end = begin + r->bytes } };
        }
    }
}

/* Without the lock. False: out of memory. */
static bool
run_operation(doing *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        stand_in *const s = &d->stand_ins[i];

        s->memory = berthi_memory_alloc(d->device->sim->context, BERTHI_PURPOSE_SCRATCH,
                                        s->bytes);
        if (s->memory == NULL)
            return false;
        memcpy((char *)&d->request + s->slot, &s->memory, sizeof s->memory);
    }
    berthi_operation_run(&d->device->sim->operations, &d->request);
    for (uint32_t i = 0; i < d->count; i++)
        d->stand_ins[i].range.crc = berthi_digest_crc32(
            0, d->stand_ins[i].memory, (size_t)d->stand_ins[i].bytes);
    return true;
}

/* Without the lock. False: out of memory. */
static bool
do_item(doing *d)
{
    const berthi_copy *const copy = &d->item->work.copy;
    const berthi_sim_stretch *const clear = &d->item->work.clear;

    switch (d->item->kind) {
    case BERTHI_SIM_COPY:
        if (d->count > 0)
            d->stand_ins[0].range.crc =
                berthi_digest_crc32(0, copy->from, (size_t)copy->bytes);
        else
            memcpy(copy->to, copy->from, (size_t)copy->bytes);
        return true;
    case BERTHI_SIM_CLEAR:
        if (d->count > 0)
            d->stand_ins[0].range.is_zero = true;
        else
            memset(clear->memory, 0, (size_t)clear->bytes);
        return true;
    default: return run_operation(d);
    }
}

/* With the lock: until it is closed again nobody gives this memory back. */
static bool
open_memory(const doing *d)
{
    bool is_open;

    d->device->sim->touching++;
    d->device->touching++;
    is_open = berthi_sim_memory_open(&d->device->memory);
    if (d->peer == NULL)
        return is_open;
    d->peer->touching++;
    return berthi_sim_memory_open(&d->peer->memory) && is_open;
}

static void
close_again(const doing *d)
{
    berthi_sim_memory_close(&d->device->memory);
    d->device->sim->touching--;
    d->device->touching--;
    if (d->peer == NULL)
        return;
    berthi_sim_memory_close(&d->peer->memory);
    d->peer->touching--;
}

void
berthi_sim_work_do(berthi_sim_device *device, const berthi_sim_item *item)
{
    doing d = { .device = device,
                .peer = berthi_sim_peer_of(item),
                .item = item,
                .request = item->work.request };
    berthi_sim_regions regions;
    berth_reason reason;
    const char *const problem = berthi_sim_work_refusal(device, item, &reason);
    bool is_done;

    if (problem != NULL) {
        berthi_sim_fail_device(device, reason, "work that was under way %s", problem);
        return;
    }
    if (d.peer != NULL && d.peer->reason != BERTH_REASON_NONE)
        return;
    (void)berthi_sim_work_can_list(item, &regions);
    find_stand_ins(&d, &regions);
    is_done = open_memory(&d);
    pthread_mutex_unlock(&device->sim->lock);
    is_done = is_done && do_item(&d);
    pthread_mutex_lock(&device->sim->lock);
    close_again(&d);
    for (uint32_t i = 0; i < d.count; i++) {
        stand_in *const s = &d.stand_ins[i];

        is_done = is_done && berthi_sim_digest_can_write(s->digest, &s->range);
        berthi_memory_free(device->sim->context, BERTHI_PURPOSE_SCRATCH, s->memory,
                           s->bytes);
    }
    if (!is_done)
        berthi_sim_fail_device(device, BERTH_REASON_NO_MEMORY,
                               "no memory to do work with");
    pthread_cond_broadcast(&device->sim->changed);
}
