/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_carry.c - bytes from one memory to another, in pieces.
 *
 * Each device has one stream, and a few pieces of it are under way at a time: enough
 * to keep a link busy, few enough that a cancel is heard soon, one where the link is slow.
 * Between two devices of which one does not reach the other bytes go through a buffer in
 * host memory.
 */
#include <string.h>

#include "kernels/sys.h"
#include "loader/move.h"

#define PAGE_BYTES UINT64_C(4096)

/* --------------------------------------------------------------------- transfers */

berth_status
berthi_transfers_init(berthi_transfers *transfers, berth_context *context,
                      uint64_t capacity, berth_error *error)
{
    *transfers = (berthi_transfers){ .context = context, .capacity = capacity };
    transfers->at = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, capacity,
                                        sizeof *transfers->at);
    return transfers->at != NULL ? BERTH_OK
                                 : berthi_fail_memory(error, "moving a model");
}

void
berthi_transfers_fini(berthi_transfers *transfers)
{
    if (transfers->at != NULL)
        berthi_memory_free(transfers->context, BERTHI_PURPOSE_CHUNKS, transfers->at,
                           transfers->capacity * sizeof *transfers->at);
    transfers->at = NULL;
}

static bool
is_behind(const berthi_spot *spot, uint64_t bytes, const berthi_spot *next)
{
    return spot->device == next->device && spot->is_pinned == next->is_pinned
           && spot->memory + bytes == next->memory;
}

void
berthi_transfers_add(berthi_transfers *transfers, const berthi_spot *from,
                     const berthi_spot *to, uint64_t bytes)
{
    if (transfers->count > 0) {
        berthi_transfer *const last = &transfers->at[transfers->count - 1];

        if (is_behind(&last->from, last->bytes, from)
            && is_behind(&last->to, last->bytes, to)) {
            last->bytes += bytes;
            return;
        }
    }
    transfers->at[transfers->count++] =
        (berthi_transfer){ .from = *from, .to = *to, .bytes = bytes };
}

/* ------------------------------------------------------------------------- lanes */

static berth_status
init_lane(berthi_lane *lane, berthi_device *device, berth_error *error)
{
    berth_status status;

    lane->device = device;
    lane->depth = 2;
    status = device->table->stream_create(device, &lane->stream, error);
    for (uint32_t i = 0; i < BERTHI_CARRY_DEPTH && status == BERTH_OK; i++)
        status = device->table->event_create(device, &lane->events[i], error);
    return status;
}

/* Every slab and every hold of a model may have to be left behind. */
static berth_status
init_lanes(berthi_carrier *carrier, berth_error *error)
{
    berth_model *const model = carrier->model;
    berth_status status = BERTH_OK;

    carrier->lane_count = berthi_devices_count(model->devices);
    carrier->left_capacity = 2 * model->tier_count;
    carrier->lanes = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT,
                                          carrier->lane_count * sizeof *carrier->lanes);
    carrier->left = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT,
                                         carrier->left_capacity * sizeof *carrier->left);
    if (carrier->lanes == NULL || carrier->left == NULL)
        status = berthi_fail_memory(error, "moving a model");
    for (uint32_t i = 0; i < carrier->lane_count && status == BERTH_OK; i++)
        status = init_lane(&carrier->lanes[i], berthi_devices_at(model->devices, i),
                           error);
    return status;
}

static void
fini_lane(berthi_lane *lane)
{
    if (lane->device == NULL)
        return;
    for (uint32_t i = 0; i < BERTHI_CARRY_DEPTH; i++)
        lane->device->table->event_destroy(lane->device, lane->events[i]);
    lane->device->table->stream_destroy(lane->device, lane->stream);
}

berth_status
berthi_carrier_init(berthi_carrier *carrier, berth_model *model, berth_job *job,
                    berth_error *error)
{
    berth_status status = BERTH_OK;

    memset(carrier, 0, sizeof *carrier);
    carrier->model = model;
    carrier->job = job;
    if (model->devices != NULL)
        status = init_lanes(carrier, error);
    if (status != BERTH_OK)
        berthi_carrier_fini(carrier);
    return status;
}

void
berthi_carrier_fini(berthi_carrier *carrier)
{
    berth_model *const model = carrier->model;

    if (model == NULL)
        return;
    for (uint32_t i = 0; carrier->lanes != NULL && i < carrier->lane_count; i++)
        fini_lane(&carrier->lanes[i]);
    berthi_memory_free(model->context, BERTHI_PURPOSE_OBJECT, carrier->lanes,
                       carrier->lane_count * sizeof *carrier->lanes);
    berthi_carrier_free_left(carrier);
    if (carrier->is_bounce_pinned)
        berthi_model_unpin(model, carrier->bounce, BERTHI_CARRY_BYTES);
    if (carrier->bounce != NULL)
        berthi_memory_free_aligned(model->context, BERTHI_PURPOSE_RING,
                                   carrier->bounce, BERTHI_CARRY_BYTES, PAGE_BYTES);
    memset(carrier, 0, sizeof *carrier);
}

/* Whose cancel ends what is under way: nobody's while things are brought back. */
static const berth_job *
canceller_of(const berthi_carrier *carrier)
{
    return carrier->is_undoing ? NULL : carrier->job;
}

bool
berthi_carrier_is_cancelled(const berthi_carrier *carrier)
{
    const berth_job *const job = canceller_of(carrier);

    return job != NULL && berthi_job_is_cancelled(job);
}

/* ------------------------------------------------------------------------- slabs */

static berth_status
note_pinned(void *user, uint64_t bytes, berth_error *error)
{
    const berthi_carrier *const carrier = user;

    (void)bytes; /* the job counts what is carried */
    berthi_job_touch(carrier->job);
    return berthi_carrier_is_cancelled(carrier) ? berthi_job_fail_cancelled(error) : BERTH_OK;
}

berthi_pin_watch
berthi_carrier_pin_watch(berthi_carrier *carrier)
{
    return (berthi_pin_watch){ carrier, note_pinned };
}

berth_status
berthi_carrier_create_slab(berthi_carrier *carrier, berthi_model_tier *tier,
                           berth_error *error)
{
    const berthi_pin_watch watch = berthi_carrier_pin_watch(carrier);
    berth_status status = berthi_model_create_slab(carrier->model, tier, error);

    if (status == BERTH_OK)
        status = berthi_model_pin_slab(carrier->model, tier, &watch, error);
    if (status != BERTH_OK)
        berthi_model_free_slab(carrier->model, tier);
    return status;
}

/* ----------------------------------------------------------------------- waiting */

/* Whoever has failed is less patient. */
static uint64_t
deadline_of(const berth_model *model, berth_status status)
{
    const uint64_t wait_ns =
        status == BERTH_OK ? model->wait_ns
                           : berthi_patience(model->context, model->wait_ns);

    return berthi_add_capped(berthi_sys_now_ns(), wait_ns);
}

/* Until `done` pieces of the lane are done. `job`: as berthi_await_event(). */
static berth_status
await_lane(berthi_carrier *carrier, berthi_lane *lane, uint64_t done, const berth_job *job,
           uint64_t deadline_ns, berth_error *error)
{
    const berth_model *const model = carrier->model;
    berth_status status;

    if (lane->done >= done)
        return BERTH_OK;
    status = berthi_await_event(job, lane->device,
                                lane->events[(done - 1) % BERTHI_CARRY_DEPTH], deadline_ns,
                                error);
    lane->done = done;
    lane->is_unsettled |= status != BERTH_OK;
    return status == BERTH_PENDING
               ? berthi_model_fail_copies(model, lane->device, NULL, error)
               : status;
}

/*
 * What an event does not tell of, the end of the stream does. Nobody waits for the events
 * of pieces any more.
 */
static void
end_stream(berthi_carrier *carrier, berthi_lane *lane, uint64_t deadline_ns)
{
    if (!lane->is_unsettled)
        return;
    lane->is_unsettled = false;
    lane->end = (berthi_stream_end){ .device = lane->device,
                                     .stream = lane->stream,
                                     .event = lane->events[0] };
    lane->is_hung = berthi_stream_hangs(&lane->end, deadline_ns);
    carrier->is_hung |= lane->is_hung;
    if (lane->is_hung)
        return;
    lane->device->table->stream_destroy(lane->device, lane->stream);
    lane->stream = NULL;
}

berth_status
berthi_carrier_settle(berthi_carrier *carrier, berth_status status, berth_error *error)
{
    uint64_t deadline_ns = deadline_of(carrier->model, status);

    for (uint32_t i = 0; i < carrier->lane_count; i++) {
        berthi_lane *const lane = &carrier->lanes[i];
        const bool is_first = status == BERTH_OK;
        berth_error later;
        berth_status result;

        if (is_first)
            deadline_ns = deadline_of(carrier->model, BERTH_OK);
        result = await_lane(carrier, lane, lane->asked,
                            is_first ? canceller_of(carrier) : NULL, deadline_ns,
                            is_first ? error : &later);
        if (is_first && result != BERTH_OK) {
            status = result;
            deadline_ns = deadline_of(carrier->model, status);
        }
        end_stream(carrier, lane, deadline_ns);
    }
    return status;
}

/* ------------------------------------------------------------------------- copies */

/* Whoever asks for more waits for about one piece: that tells how many of them may be asked for. */
static berth_status
await_room(berthi_carrier *carrier, berthi_lane *lane, berth_error *error)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    uint64_t pieces;
    berth_status status;

    if (lane->asked < lane->depth || lane->done >= lane->asked + 1 - lane->depth)
        return BERTH_OK;
    status = await_lane(carrier, lane, lane->asked + 1 - lane->depth, canceller_of(carrier),
                        deadline_of(carrier->model, BERTH_OK), error);
    pieces = BERTHI_CARRY_NS / (berthi_sys_now_ns() - begin_ns + 1);
    if (pieces > lane->depth)
        lane->depth += lane->depth < BERTHI_CARRY_DEPTH;
    else if (pieces < lane->depth)
        lane->depth = (uint32_t)berthi_max_u64(pieces, 1);
    if (status == BERTH_OK && berthi_carrier_is_cancelled(carrier))
        return berthi_job_fail_cancelled(error);
    return status;
}

/* A stream that can be asked for one thing more. */
static berth_status
begin_asking(berthi_carrier *carrier, berthi_lane *lane, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (lane->is_hung)
        return berthi_model_fail_copies(carrier->model, lane->device, NULL, error);
    if (lane->stream == NULL)
        status = lane->device->table->stream_create(lane->device, &lane->stream, error);
    return status == BERTH_OK ? await_room(carrier, lane, error) : status;
}

/* It has been asked for it. */
static berth_status
end_asking(berthi_lane *lane, berth_error *error)
{
    const berth_status status = lane->device->table->record(
        lane->device, lane->events[lane->asked % BERTHI_CARRY_DEPTH], lane->stream, error);

    lane->is_unsettled |= status != BERTH_OK;
    lane->asked += status == BERTH_OK;
    return status;
}

static berth_status
ask_lane(berthi_carrier *carrier, berthi_lane *lane, const berthi_copy *copy,
         berth_error *error)
{
    berth_status status = begin_asking(carrier, lane, error);

    if (status == BERTH_OK)
        status = lane->device->table->copy(lane->device, copy, lane->stream, error);
    return status == BERTH_OK ? end_asking(lane, error) : status;
}

berth_status
berthi_carrier_clear(berthi_carrier *carrier, const berthi_spot *at, uint64_t bytes,
                     berth_error *error)
{
    const bool is_host = at->device == BERTHI_NO_DEVICE;
    berthi_lane *const lane = is_host ? NULL : &carrier->lanes[at->device];
    berth_status status;

    if (bytes == 0)
        return BERTH_OK;
    if (is_host) {
        memset(at->memory, 0, bytes);
        return BERTH_OK;
    }
    status = begin_asking(carrier, lane, error);
    if (status == BERTH_OK)
        status =
            lane->device->table->clear(lane->device, at->memory, bytes, lane->stream, error);
    return status == BERTH_OK ? end_asking(lane, error) : status;
}

/* There is one from its first use on. False: out of memory. */
static bool
alloc_bounce(berthi_carrier *carrier)
{
    berth_model *const model = carrier->model;

    if (carrier->bounce == NULL) {
        carrier->bounce = berthi_memory_aligned(model->context, BERTHI_PURPOSE_RING,
                                                BERTHI_CARRY_BYTES, PAGE_BYTES);
        carrier->is_bounce_pinned =
            carrier->bounce != NULL
            && berthi_model_pin_stage(model, carrier->bounce, BERTHI_CARRY_BYTES);
    }
    return carrier->bounce != NULL;
}

berth_status
berthi_carrier_fetch(berthi_carrier *carrier, const berthi_spot *from, uint64_t bytes,
                     berthi_spot *out, berth_error *error)
{
    berth_status status;

    *out = *from;
    if (from->device == BERTHI_NO_DEVICE)
        return BERTH_OK;
    if (!alloc_bounce(carrier))
        return berthi_fail_memory(error, "moving a model");
    *out = (berthi_spot){ .memory = carrier->bounce,
                          .device = BERTHI_NO_DEVICE,
                          .is_pinned = carrier->is_bounce_pinned };
    status = berthi_carrier_ask(carrier, from, out, bytes, error);
    return berthi_carrier_settle(carrier, status, error);
}

/* From one device to another; nothing of it is under way afterwards. */
static berth_status
ask_both(berthi_carrier *carrier, const berthi_spot *from, const berthi_spot *to,
         uint64_t bytes, berth_error *error)
{
    berthi_spot between;
    berth_status status = berthi_carrier_fetch(carrier, from, bytes, &between, error);

    if (status == BERTH_OK)
        status = berthi_carrier_ask(carrier, &between, to, bytes, error);
    return berthi_carrier_settle(carrier, status, error);
}

berth_status
berthi_carrier_ask(berthi_carrier *carrier, const berthi_spot *from,
                   const berthi_spot *to, uint64_t bytes, berth_error *error)
{
    const bool is_from_host = from->device == BERTHI_NO_DEVICE;
    const bool is_to_host = to->device == BERTHI_NO_DEVICE;
    const berthi_spot *const host = is_from_host ? from : to;
    berthi_copy copy = {
        .kind = BERTHI_COPY_WITHIN, .to = to->memory, .from = from->memory, .bytes = bytes
    };

    if (is_from_host && is_to_host) {
        memcpy(to->memory, from->memory, bytes);
        return BERTH_OK;
    }
    if (!is_from_host && !is_to_host && from->device != to->device) {
        if (!berthi_device_reaches(carrier->lanes[from->device].device,
                                   carrier->lanes[to->device].device))
            return ask_both(carrier, from, to, bytes, error);
        copy.kind = BERTHI_COPY_TO_PEER;
        copy.peer = carrier->lanes[to->device].device;
    }
    if (is_from_host || is_to_host) {
        copy.kind = is_from_host ? BERTHI_COPY_TO_DEVICE : BERTHI_COPY_TO_HOST;
        copy.is_pinned = host->is_pinned;
    }
    return ask_lane(carrier, &carrier->lanes[is_from_host ? to->device : from->device],
                    &copy, error);
}

static berth_status
carry(berthi_carrier *carrier, const berthi_transfer *transfer, berth_error *error)
{
    berthi_spot from = transfer->from;
    berthi_spot to = transfer->to;
    berth_status status = BERTH_OK;

    for (uint64_t left = transfer->bytes; left > 0 && status == BERTH_OK;) {
        const uint64_t bytes = berthi_min_u64(left, BERTHI_CARRY_BYTES);

        if (berthi_carrier_is_cancelled(carrier))
            return berthi_job_fail_cancelled(error);
        status = berthi_carrier_ask(carrier, &from, &to, bytes, error);
        from.memory += bytes;
        to.memory += bytes;
        left -= bytes;
        carrier->carried_bytes += bytes;
        if (!carrier->is_undoing)
            berthi_job_advance(carrier->job, bytes);
    }
    return status;
}

berth_status
berthi_carrier_carry(berthi_carrier *carrier, const berthi_transfers *transfers,
                     berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t i = 0; i < transfers->count && status == BERTH_OK; i++)
        status = carry(carrier, &transfers->at[i], error);
    return berthi_carrier_settle(carrier, status, error);
}
