/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_sim.c - simulated devices: the calls; see sim.h.
 *
 * Deliberately worse than hardware: memory is poisoned before its first use and gone
 * after its last, copies happen late, and what a driver would let pass is an error.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "kernels/sim.h"

static berthi_sim_device *
sim_of(berthi_device *device)
{
    return (berthi_sim_device *)device;
}

/* The NULL stream is the device's first one. */
static berthi_stream *
stream_of(berthi_sim_device *device, berthi_stream *stream)
{
    return stream != NULL ? stream : &device->first;
}

/* What begins every call that can fail, and takes the lock in any case. */
static berth_status
begin_call(berthi_sim_device *device, const char *what, berth_error *error)
{
    berth_status status;

    pthread_mutex_lock(&device->sim->lock);
    device->calls++;
#ifdef BERTH_TESTING
    if (device->calls == device->words.lose)
        berthi_sim_fail_device(device, BERTH_REASON_DEVICE_LOST, "the device is lost");
#endif
    status = berthi_sim_check(device, error);
    if (status == BERTH_OK && berthi_fault_is_due(BERTHI_FAULT_DEVICE))
        status = berthi_fail(error, BERTH_REASON_DEVICE, NULL, "%s: %s failed",
                             device->name, what);
    (void)what;
    return status;
}

static berth_status
end_call(berthi_sim_device *device, berth_status status)
{
    pthread_mutex_unlock(&device->sim->lock);
    return status;
}

/* -------------------------------------------------------------------- properties */

static void
sim_describe(berthi_device *device, berthi_device_properties *out)
{
    berthi_sim_device *const d = sim_of(device);
    const uint64_t tenths = d->words.rate_to_device / 100000000;
    char size[BERTH_SIZE_CAPACITY];

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&d->sim->lock);
    out->memory_bytes = d->memory.granules * BERTHI_SIM_GRANULE;
    out->free_bytes = berthi_sim_memory_free_bytes(&d->memory);
    pthread_mutex_unlock(&d->sim->lock);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->description, sizeof out->description,
             "simulated, %s, %" PRIu64 ".%" PRIu64 " GB/s",
             berth_size_format(out->memory_bytes, size), tenths / 10, tenths % 10);
    out->numa_node = d->words.numa_node;
    out->is_simulated = true;
}

static uint64_t
sim_now_ns(berthi_device *device)
{
    berthi_sim *const sim = sim_of(device)->sim;
    uint64_t now;

    pthread_mutex_lock(&sim->lock);
    now = berthi_sim_now(sim);
    pthread_mutex_unlock(&sim->lock);
    return now;
}

/* ------------------------------------------------------------------------ memory */

static berth_status
fail_room(const berthi_sim_device *device, uint64_t bytes, berth_error *error)
{
    const uint64_t left = berthi_sim_memory_free_bytes(&device->memory);
    const berthi_about about = { .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                        | BERTH_HAS_BYTES,
                                 .expected = bytes,
                                 .actual = left };

    return berthi_fail(error, BERTH_REASON_NO_FIT, &about,
                       "%s: %" PRIu64 " bytes wanted, %" PRIu64 " free (simulated)",
                       device->name, bytes, left);
}

/* Claims the room, or says that there is none. */
static berth_status
claim(berthi_sim_device *device, uint64_t bytes, berth_error *error)
{
    const berth_status status = begin_call(device, "an allocation", error);

    if (status != BERTH_OK)
        return end_call(device, status);
    if (!berthi_sim_memory_claim(&device->memory, bytes))
        return end_call(device, fail_room(device, bytes, error));
    return end_call(device, BERTH_OK);
}

static berth_status
sim_alloc(berthi_device *device, uint64_t bytes, void **out, berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    const berth_status status = claim(d, bytes, error);
    berthi_sim_allocation *allocation;
    bool is_added;

    *out = NULL;
    if (status != BERTH_OK)
        return status;
    allocation = berthi_sim_allocation_create(&d->memory, bytes);
    pthread_mutex_lock(&d->sim->lock);
    is_added = allocation != NULL && berthi_sim_memory_add(&d->memory, allocation);
    if (!is_added)
        berthi_sim_memory_disclaim(&d->memory, bytes);
    pthread_mutex_unlock(&d->sim->lock);
    if (is_added) {
        *out = allocation->own.memory;
        return BERTH_OK;
    }
    if (allocation != NULL)
        berthi_sim_allocation_destroy(allocation);
    return berthi_fail_memory(error, "simulating the memory of a device");
}

static void
sim_free(berthi_device *device, void *memory, uint64_t bytes)
{
    berthi_sim_device *const d = sim_of(device);

    if (memory == NULL)
        return;
    pthread_mutex_lock(&d->sim->lock);
    berthi_sim_pause(d->sim);
    if (!berthi_sim_memory_free(&d->memory, memory, bytes))
        d->misuses++;
    pthread_mutex_unlock(&d->sim->lock);
}

static berth_status
sim_pin(berthi_device *device, void *memory, uint64_t bytes, berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "pinning memory", error);
    berth_reason reason;
    const char *problem;

    if (status != BERTH_OK)
        return end_call(d, status);
    problem = berthi_sim_memory_pin(&d->memory, memory, bytes, &reason);
    if (problem != NULL)
        status = berthi_fail(error, reason, NULL,
                             "%s: host memory of %" PRIu64 " bytes %s", d->name, bytes,
                             problem);
    return end_call(d, status);
}

static void
sim_unpin(berthi_device *device, void *memory, uint64_t bytes)
{
    berthi_sim_device *const d = sim_of(device);

    pthread_mutex_lock(&d->sim->lock);
    if (!berthi_sim_memory_unpin(&d->memory, memory, bytes))
        d->misuses++;
    pthread_mutex_unlock(&d->sim->lock);
}

static berth_status
sim_keep(berthi_device *device, void *memory, uint64_t bytes, berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "keeping memory", error);
    berthi_sim_allocation *a;

    if (status != BERTH_OK)
        return end_call(d, status);
    a = berthi_sim_memory_find(&d->memory, memory, bytes);
    if (a == NULL)
        status = berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                             "%s: what is to be kept is not allocated", d->name);
    else if (!berthi_sim_allocation_keep(a, memory, bytes))
        status = berthi_fail_memory(error, "keeping bytes of a simulated device");
    return end_call(d, status);
}

/* ------------------------------------------------------------- streams and events */

/* One that was destroyed, or a new one. */
static berthi_stream *
take_stream(berthi_sim_device *device)
{
    berthi_stream *stream = device->sim->streams;

    while (stream != NULL && (!stream->is_free || stream->device != device))
        stream = stream->next;
    if (stream != NULL) {
        stream->is_free = false;
        return stream;
    }
    stream = berthi_memory_zalloc(device->sim->context, BERTHI_PURPOSE_OBJECT,
                                  sizeof *stream);
    if (stream != NULL)
        berthi_sim_add_stream(device, stream);
    return stream;
}

static berth_status
sim_stream_create(berthi_device *device, berthi_stream **out, berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    const berth_status status = begin_call(d, "making a stream", error);

    *out = status == BERTH_OK ? take_stream(d) : NULL;
    if (status == BERTH_OK && *out == NULL)
        return end_call(d, berthi_fail_memory(error, "making a stream"));
    d->streams += status == BERTH_OK;
    return end_call(d, status);
}

/*
 * Places in it may outlive a stream, so it stays, and goes on counting when it is given
 * out again. One whose work was given up is not: its places are never reached.
 */
static void
sim_stream_destroy(berthi_device *device, berthi_stream *stream)
{
    berthi_sim *const sim = sim_of(device)->sim;

    if (stream == NULL)
        return;
    pthread_mutex_lock(&sim->lock);
    berthi_sim_drain(stream);
    berthi_sim_purge(stream);
    stream->is_free = stream->completed == stream->asked;
    stream->device->streams--;
    pthread_mutex_unlock(&sim->lock);
}

static berth_status
sim_event_create(berthi_device *device, berthi_event **out, berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    const berth_status status =
        end_call(d, begin_call(d, "making an event", error));

    *out = NULL;
    if (status != BERTH_OK)
        return status;
    *out = berthi_memory_zalloc(d->sim->context, BERTHI_PURPOSE_OBJECT, sizeof **out);
    return *out != NULL ? BERTH_OK : berthi_fail_memory(error, "making an event");
}

static void
sim_event_destroy(berthi_device *device, berthi_event *event)
{
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, event, sizeof *event);
}

/* ------------------------------------------------------------------------- asking */

/* Room for what a stream is asked for; the lock is held. */
static berth_status
new_item(berthi_sim_device *device, int32_t kind, berthi_sim_item **out,
         berth_error *error)
{
    *out = berthi_sim_item_take(device->sim);
    if (*out == NULL)
        return berthi_fail_memory(error, "asking a device for work");
    (*out)->kind = kind;
    (*out)->engine = BERTHI_SIM_NO_ENGINE;
    return BERTH_OK;
}

/* Checks and measures the item, and puts it into the stream or gives it back. */
static berth_status
ask(berthi_sim_device *device, berthi_stream *stream, berthi_sim_item *item,
    const char *what, berth_error *error)
{
    berth_reason reason;
    const char *const problem = berthi_sim_work_refusal(device, item, &reason);

    if (problem != NULL) {
        berthi_sim_item_give(device->sim, item);
        return berthi_fail(error, reason, NULL, "%s: %s %s", device->name, what, problem);
    }
    berthi_sim_work_measure(device, item);
    berthi_sim_push(stream_of(device, stream), item);
    return BERTH_OK;
}

static berth_status
sim_record(berthi_device *device, berthi_event *event, berthi_stream *stream,
           berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berthi_stream *const s = stream_of(d, stream);
    berth_status status = begin_call(d, "recording an event", error);

    if (status != BERTH_OK)
        return end_call(d, status);
    d->records++;
#ifdef BERTH_TESTING
    if (d->records == d->words.stall) {
        berthi_sim_item *item;

        status = new_item(d, BERTHI_SIM_STALL, &item, error);
        if (status != BERTH_OK)
            return end_call(d, status);
        berthi_sim_push(s, item);
    }
#endif
    event->place = (berthi_sim_place){ .stream = s, .at = s->asked };
    return end_call(d, BERTH_OK);
}

static berth_status
sim_wait(berthi_device *device, berthi_stream *stream, berthi_event *event,
         berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berthi_stream *const s = stream_of(d, stream);
    berth_status status = begin_call(d, "waiting for an event", error);
    berthi_sim_item *item;

    if (status != BERTH_OK)
        return end_call(d, status);
    if (event->place.stream == NULL)
        d->unrecorded_waits++;
    if (event->place.stream == s || berthi_sim_is_past(&event->place))
        return end_call(d, BERTH_OK);
    status = new_item(d, BERTHI_SIM_WAIT, &item, error);
    if (status == BERTH_OK) {
        item->work.wait = event->place;
        berthi_sim_push(s, item);
    }
    return end_call(d, status);
}

static berth_status
sim_query(berthi_device *device, berthi_event *event, bool *out_is_past,
          berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berthi_sim *const sim = d->sim;
    berth_status status = begin_call(d, "asking for an event", error);

    *out_is_past = false;
    if (status != BERTH_OK)
        return end_call(d, status);
    berthi_sim_settle(sim);
    /* Who asks again and again shall get an answer: a virtual clock moves by a step. */
    if (!berthi_sim_is_past(&event->place) && !sim->words.machine.is_real
        && !sim->is_stepping)
        (void)berthi_sim_step(sim);
    status = berthi_sim_check(d, error);
    *out_is_past = status == BERTH_OK && berthi_sim_is_past(&event->place);
    return end_call(d, status);
}

static berth_status
sim_await(berthi_device *device, berthi_event *event, uint64_t deadline_ns,
          berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "waiting for an event", error);
    const berthi_sim_place place = event->place;

    if (status == BERTH_OK)
        status = berthi_sim_await(d, &place, deadline_ns, error);
    return end_call(d, status);
}

/* -------------------------------------------------------------------------- work */

#define HELD_BYTES 65536u /* more takes its time until it is done, as a driver's buffer does */

/*
 * A driver returns from a copy that is not pinned when it has the bytes, which is before the
 * device has them: later work of other streams must not rely on that.
 */
static berth_status
hold(const berthi_sim_device *device, berthi_sim_item *item, berth_error *error)
{
    berthi_copy *const copy = &item->work.copy;

    if (copy->is_pinned || copy->kind != BERTHI_COPY_TO_DEVICE || copy->bytes > HELD_BYTES)
        return BERTH_OK;
    item->held = berthi_memory_alloc(device->sim->context, BERTHI_PURPOSE_OBJECT, copy->bytes);
    if (item->held == NULL) {
        berthi_sim_item_give(device->sim, item);
        return berthi_fail_memory(error, "asking a device for a copy");
    }
    item->held_bytes = copy->bytes;
    memcpy(item->held, copy->from, (size_t)copy->bytes);
    copy->from = item->held;
    return BERTH_OK;
}

static bool
has_host_side(const berthi_copy *copy)
{
    return copy->kind == BERTHI_COPY_TO_DEVICE || copy->kind == BERTHI_COPY_TO_HOST;
}

static berth_status
sim_copy(berthi_device *device, const berthi_copy *copy, berthi_stream *stream,
         berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berthi_stream *const s = stream_of(d, stream);
    berth_status status = begin_call(d, "a copy", error);
    berthi_sim_item *item;
    berthi_sim_place behind;
    bool is_held;

    if (status == BERTH_OK && copy->bytes > 0)
        status = new_item(d, BERTHI_SIM_COPY, &item, error);
    if (status != BERTH_OK || copy->bytes == 0)
        return end_call(d, status);
    item->work.copy = *copy;
    status = hold(d, item, error);
    if (status != BERTH_OK)
        return end_call(d, status);
    is_held = item->held != NULL;
    d->copies++;
#ifdef BERTH_TESTING
    item->hangs = d->copies == d->words.hang;
#endif
    status = ask(d, s, item, "a copy", error);
    behind = (berthi_sim_place){ .stream = s, .at = s->asked };
    if (status == BERTH_OK && !copy->is_pinned && !is_held && has_host_side(copy))
        status = berthi_sim_await(d, &behind, UINT64_MAX, error);
    return end_call(d, status);
}

static bool
sim_reaches(berthi_device *device, berthi_device *other)
{
    return berthi_sim_reaches(sim_of(device), sim_of(other));
}

static berth_status
sim_clear(berthi_device *device, void *memory, uint64_t bytes, berthi_stream *stream,
          berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "zeroing memory", error);
    berthi_sim_item *item;

    if (status == BERTH_OK && bytes > 0)
        status = new_item(d, BERTHI_SIM_CLEAR, &item, error);
    if (status != BERTH_OK || bytes == 0)
        return end_call(d, status);
    item->work.clear = (berthi_sim_stretch){ memory, bytes };
    return end_call(d, ask(d, stream, item, "what is to be zeroed", error));
}

static bool
sim_has_operation(const berthi_device *device, int32_t operation)
{
    (void)device;
    return berthi_operation_is_known(operation);
}

/* One that has been checked. `is_joined`: it takes no more than its bytes. */
static berth_status
launch(berthi_sim_device *device, const berthi_request *request, bool is_joined,
       berthi_stream *stream, berth_error *error)
{
    berthi_sim_item *item;
    const berth_status status = new_item(device, BERTHI_SIM_LAUNCH, &item, error);

    if (status != BERTH_OK)
        return status;
    item->work.request = *request;
    item->is_joined = is_joined;
    return ask(device, stream, item, "an operation", error);
}

static berth_status
sim_launch(berthi_device *device, const berthi_request *request, berthi_stream *stream,
           berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "an operation", error);

    if (status == BERTH_OK)
        status = berthi_operation_check(d->name, request, error);
    if (status == BERTH_OK)
        status = launch(d, request, false, stream, error);
    return end_call(d, status);
}

/* As GPUs do: all are checked before the first is asked for; those of one kind are one. */
static berth_status
sim_launch_together(berthi_device *device, const berthi_request *requests, uint32_t count,
                    berthi_stream *stream, berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "an operation", error);

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = berthi_operation_check(d->name, &requests[i], error);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = launch(d, &requests[i],
                        i > 0 && requests[i].operation == requests[i - 1].operation, stream,
                        error);
    return end_call(d, status);
}

/* Until all has been done that the device's streams have been asked for. */
static berth_status
await_all(berthi_sim_device *device, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (berthi_stream *s = device->sim->streams; s != NULL && status == BERTH_OK;
         s = s->next) {
        const berthi_sim_place place = { .stream = s, .at = s->asked };

        if (s->device == device && s->head != NULL)
            status = berthi_sim_await(device, &place, UINT64_MAX, error);
    }
    return status;
}

static berth_status
read_digest(berthi_sim_device *device, const void *memory, uint64_t bytes,
            uint32_t *out_crc, berth_error *error)
{
    const berthi_sim_allocation *const a =
        berthi_sim_memory_find(&device->memory, memory, bytes);
    uint64_t begin;

    if (a == NULL)
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                           "%s: what is to be digested is not allocated", device->name);
    if (berthi_sim_allocation_has_bytes(a, memory, bytes)) {
        if (!berthi_sim_memory_open(&device->memory))
            return berthi_fail_memory(error, "a digest");
        *out_crc = berthi_digest_crc32(0, memory, (size_t)bytes);
        berthi_sim_memory_close(&device->memory);
        return BERTH_OK;
    }
    begin = (uint64_t)((const uint8_t *)memory - a->own.memory);
    if (berthi_sim_digest_can_read(&a->digest, begin, begin + bytes, out_crc))
        return BERTH_OK;
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s: of these bytes no digest is kept: they were not written, or "
                       "together with others",
                       device->name);
}

static berth_status
sim_digest(berthi_device *device, const void *memory, uint64_t bytes, uint32_t *out_crc,
           berth_error *error)
{
    berthi_sim_device *const d = sim_of(device);
    berth_status status = begin_call(d, "a digest", error);

    *out_crc = 0;
    if (status == BERTH_OK)
        status = await_all(d, error);
    if (status == BERTH_OK)
        status = read_digest(d, memory, bytes, out_crc, error);
    return end_call(d, status);
}

static void
sim_stop(berthi_device *device)
{
    berthi_sim_device *const d = sim_of(device);

    pthread_mutex_lock(&d->sim->lock);
    berthi_sim_fail_device(d, BERTH_REASON_DEVICE_LOST, "the device has been given up");
    d->reason = BERTH_REASON_DEVICE_LOST; /* whatever it has failed with before */
    berthi_sim_leave_memory(d);
    pthread_mutex_unlock(&d->sim->lock);
}

#ifdef BERTH_TESTING
void
berthi_sim_release(berthi_device *device)
{
    berthi_sim_device *const d = sim_of(device);

    pthread_mutex_lock(&d->sim->lock);
    berthi_sim_end_hang(d);
    d->words.hang = 0;
    pthread_mutex_unlock(&d->sim->lock);
}
#endif

const berthi_device_table berthi_sim_table = {
    .kind = "sim",
    .describe = sim_describe,
    .alloc = sim_alloc,
    .free = sim_free,
    .pin = sim_pin,
    .unpin = sim_unpin,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .event_create = sim_event_create,
    .event_destroy = sim_event_destroy,
    .record = sim_record,
    .wait = sim_wait,
    .query = sim_query,
    .await = sim_await,
    .copy = sim_copy,
    .reaches = sim_reaches,
    .clear = sim_clear,
    .has_operation = sim_has_operation,
    .launch = sim_launch,
    .launch_together = sim_launch_together,
    .keep = sim_keep,
    .digest = sim_digest,
    .stop = sim_stop,
    .now_ns = sim_now_ns,
};
