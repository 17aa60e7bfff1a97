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
#include "kernels/sim.h"

/* -------------------------------------------------------------------- properties */

static void
sim_describe(berthi_device *device, berthi_device_properties *out)
{
    berthi_sim_device *const d = berthi_sim_of(device);
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
    berthi_sim *const sim = berthi_sim_of(device)->sim;
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
    const berth_status status = berthi_sim_enter(device, "an allocation", error);

    if (status != BERTH_OK)
        return berthi_sim_leave(device, status);
    if (!berthi_sim_memory_claim(&device->memory, bytes))
        return berthi_sim_leave(device, fail_room(device, bytes, error));
    return berthi_sim_leave(device, BERTH_OK);
}

static berth_status
sim_alloc(berthi_device *device, uint64_t bytes, void **out, berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
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
    berthi_sim_device *const d = berthi_sim_of(device);

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
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "pinning memory", error);
    berth_reason reason;
    const char *problem;

    if (status != BERTH_OK)
        return berthi_sim_leave(d, status);
    problem = berthi_sim_memory_pin(&d->memory, memory, bytes, &reason);
    if (problem != NULL)
        status = berthi_fail(error, reason, NULL,
                             "%s: host memory of %" PRIu64 " bytes %s", d->name, bytes,
                             problem);
    return berthi_sim_leave(d, status);
}

static void
sim_unpin(berthi_device *device, void *memory, uint64_t bytes)
{
    berthi_sim_device *const d = berthi_sim_of(device);

    pthread_mutex_lock(&d->sim->lock);
    if (!berthi_sim_memory_unpin(&d->memory, memory, bytes))
        d->misuses++;
    pthread_mutex_unlock(&d->sim->lock);
}

static berth_status
sim_keep(berthi_device *device, void *memory, uint64_t bytes, berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "keeping memory", error);
    berthi_sim_allocation *a;

    if (status != BERTH_OK)
        return berthi_sim_leave(d, status);
    a = berthi_sim_memory_find(&d->memory, memory, bytes);
    if (a == NULL)
        status = berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                             "%s: what is to be kept is not allocated", d->name);
    else if (!berthi_sim_allocation_keep(a, memory, bytes))
        status = berthi_fail_memory(error, "keeping bytes of a simulated device");
    return berthi_sim_leave(d, status);
}

/* -------------------------------------------------------------------------- work */

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
    berthi_sim_push(berthi_sim_stream_of(device, stream), item);
    return BERTH_OK;
}

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
    berthi_sim_device *const d = berthi_sim_of(device);
    berthi_stream *const s = berthi_sim_stream_of(d, stream);
    berth_status status = berthi_sim_enter(d, "a copy", error);
    berthi_sim_item *item;
    berthi_sim_place behind;
    bool is_held;

    if (status == BERTH_OK && copy->bytes > 0)
        status = berthi_sim_item_take(d, BERTHI_SIM_COPY, &item, error);
    if (status != BERTH_OK || copy->bytes == 0)
        return berthi_sim_leave(d, status);
    item->work.copy = *copy;
    status = hold(d, item, error);
    if (status != BERTH_OK)
        return berthi_sim_leave(d, status);
    is_held = item->held != NULL;
    d->copies++;
#ifdef BERTH_TESTING
    item->hangs = d->copies == d->words.hang;
#endif
    status = ask(d, s, item, "a copy", error);
    behind = (berthi_sim_place){ .stream = s, .at = s->asked };
    if (status == BERTH_OK && !copy->is_pinned && !is_held && has_host_side(copy))
        status = berthi_sim_await(d, &behind, UINT64_MAX, error);
    return berthi_sim_leave(d, status);
}

static bool
sim_reaches(berthi_device *device, berthi_device *other)
{
    return berthi_sim_reaches(berthi_sim_of(device), berthi_sim_of(other));
}

static berth_status
sim_clear(berthi_device *device, void *memory, uint64_t bytes, berthi_stream *stream,
          berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "zeroing memory", error);
    berthi_sim_item *item;

    if (status == BERTH_OK && bytes > 0)
        status = berthi_sim_item_take(d, BERTHI_SIM_CLEAR, &item, error);
    if (status != BERTH_OK || bytes == 0)
        return berthi_sim_leave(d, status);
    item->work.clear = (berthi_sim_stretch){ memory, bytes };
    return berthi_sim_leave(d, ask(d, stream, item, "what is to be zeroed", error));
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
    const berth_status status = berthi_sim_item_take(device, BERTHI_SIM_LAUNCH, &item, error);

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
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "an operation", error);

    if (status == BERTH_OK)
        status = berthi_operation_check(d->name, request, error);
    if (status == BERTH_OK)
        status = launch(d, request, false, stream, error);
    return berthi_sim_leave(d, status);
}

/* As GPUs do: all are checked before the first is asked for; those of one kind are one. */
static berth_status
sim_launch_together(berthi_device *device, const berthi_request *requests, uint32_t count,
                    berthi_stream *stream, berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "an operation", error);

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = berthi_operation_check(d->name, &requests[i], error);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = launch(d, &requests[i],
                        i > 0 && requests[i].operation == requests[i - 1].operation, stream,
                        error);
    return berthi_sim_leave(d, status);
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
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "a digest", error);

    *out_crc = 0;
    if (status == BERTH_OK)
        status = await_all(d, error);
    if (status == BERTH_OK)
        status = read_digest(d, memory, bytes, out_crc, error);
    return berthi_sim_leave(d, status);
}

static void
sim_stop(berthi_device *device)
{
    berthi_sim_device *const d = berthi_sim_of(device);

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
    berthi_sim_device *const d = berthi_sim_of(device);

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
    .stream_create = berthi_sim_stream_create,
    .stream_destroy = berthi_sim_stream_destroy,
    .event_create = berthi_sim_event_create,
    .event_destroy = berthi_sim_event_destroy,
    .record = berthi_sim_record,
    .wait = berthi_sim_wait,
    .query = berthi_sim_query,
    .await = berthi_sim_await_event,
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
