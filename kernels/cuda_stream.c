/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_stream.c - streams and events of a GPU. Those streams that berth has made are in
 * a list, which is what the device waits for when it is given up.
 */
#include "kernels/cuda_device.h"
#include "kernels/gemm_lt.h"

berth_status
berthi_cuda_stream_create(berthi_device *device, berthi_stream **out, berth_error *error)
{
    berthi_cuda_device *const d = berthi_cuda_of(device);
    berthi_cuda_stream *const stream =
        berthi_memory_zalloc(device->context, BERTHI_PURPOSE_OBJECT, sizeof *stream);
    berthi_cuda_call call;
    berth_status status;

    *out = NULL;
    if (stream == NULL)
        return berthi_fail_memory(error, "making a stream");
    status = berthi_cuda_enter(&call, device, "making a stream", error);
    if (status == BERTH_OK)
        status = berthi_cuda_judge(&call, call.calls->stream_create(&stream->handle));
    if (berthi_cuda_leave(&call, status) != BERTH_OK) {
        berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, stream, sizeof *stream);
        return status;
    }
    pthread_mutex_lock(&d->lock);
    stream->next = d->streams;
    d->streams = stream;
    pthread_mutex_unlock(&d->lock);
    *out = stream->handle;
    return BERTH_OK;
}

/* Where the list has it, with the lock held: NULL there, it is not one of berth's. */
static berthi_cuda_stream **
find_stream(berthi_cuda_device *device, const void *handle)
{
    berthi_cuda_stream **at = &device->streams;

    while (*at != NULL && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static bool
has_stream(berthi_cuda_device *device, const void *handle)
{
    bool has;

    pthread_mutex_lock(&device->lock);
    has = *find_stream(device, handle) != NULL;
    pthread_mutex_unlock(&device->lock);
    return has;
}

/* Out of the device's list, which has it: stop() waits for it no more. */
static berthi_cuda_stream *
take_stream(berthi_cuda_device *device, const void *handle)
{
    berthi_cuda_stream **at;
    berthi_cuda_stream *found;

    pthread_mutex_lock(&device->lock);
    at = find_stream(device, handle);
    found = *at;
    *at = found->next;
    pthread_mutex_unlock(&device->lock);
    return found;
}

/*
 * Of a device that is lost nothing is waited for: stop() does that, or it has failed. So the
 * stream stays in the list until what is under way is over, or stop() has looked at it.
 */
void
berthi_cuda_stream_destroy(berthi_device *device, berthi_stream *stream)
{
    berthi_cuda_device *const d = berthi_cuda_of(device);
    berthi_cuda_stream *its;
    berthi_cuda_call call;

    if (stream == NULL || !has_stream(d, stream))
        return;
    berthi_cuda_enter_back(&call, device);
    call.is_back = false; /* given up, it is not waited for any more */
    if (!atomic_load(&d->is_lost)) {
        (void)berthi_cuda_drain(&call, stream);
        berthi_gemm_forget(d, stream);
    }
    its = take_stream(d, stream);
    (void)berthi_cuda_judge(&call, call.calls->stream_destroy(its->handle));
    berthi_cuda_leave(&call, BERTH_OK);
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, its, sizeof *its);
}

berth_status
berthi_cuda_event_create(berthi_device *device, berthi_event **out, berth_error *error)
{
    berthi_event *const event =
        berthi_memory_zalloc(device->context, BERTHI_PURPOSE_OBJECT, sizeof *event);
    berthi_cuda_call call;
    berth_status status;

    *out = NULL;
    if (event == NULL)
        return berthi_fail_memory(error, "making an event");
    event->owner = berthi_cuda_of(device);
    status = berthi_cuda_enter(&call, device, "making an event", error);
    if (status == BERTH_OK)
        status = berthi_cuda_judge(&call, call.calls->event_create(&event->handle));
    if (berthi_cuda_leave(&call, status) != BERTH_OK) {
        berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, event, sizeof *event);
        return status;
    }
    *out = event;
    return BERTH_OK;
}

void
berthi_cuda_event_destroy(berthi_device *device, berthi_event *event)
{
    berthi_cuda_call call;

    if (event == NULL)
        return;
    berthi_cuda_enter_back(&call, &event->owner->base);
    (void)berthi_cuda_judge(&call, call.calls->event_destroy(event->handle));
    berthi_cuda_leave(&call, BERTH_OK);
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, event, sizeof *event);
}

berth_status
berthi_cuda_record(berthi_device *device, berthi_event *event, berthi_stream *stream,
            berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "recording an event", error);

    if (status == BERTH_OK)
        status =
            berthi_cuda_judge(&call, call.calls->event_record(event->handle, stream));
    return berthi_cuda_leave(&call, status);
}

/* The event may be another device's: what that one died of is its failure, not this one's. */
berth_status
berthi_cuda_wait(berthi_device *device, berthi_stream *stream, berthi_event *event,
          berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_enter(&call, device, "waiting for an event", error);

    if (status == BERTH_OK)
        status = berthi_cuda_check(event->owner, error);
    if (status == BERTH_OK)
        status = berthi_cuda_judge_both(&call, event->owner,
                                        call.calls->stream_wait(stream, event->handle));
    return berthi_cuda_leave(&call, status);
}

static berth_status
poll_event(berthi_device *device, const berthi_event *event, uint64_t deadline_ns,
           berth_error *error)
{
    berthi_cuda_call call;
    berth_status status = berthi_cuda_check(berthi_cuda_of(device), error);

    if (status != BERTH_OK)
        return status;
    status = berthi_cuda_enter(&call, &event->owner->base, "waiting for an event", error);
    if (status == BERTH_OK)
        status = berthi_cuda_poll(&call, call.calls->event_query, event->handle,
                                  deadline_ns);
    return berthi_cuda_leave(&call, status);
}

berth_status
berthi_cuda_query(berthi_device *device, berthi_event *event, bool *out_is_past,
           berth_error *error)
{
    const berth_status status = poll_event(device, event, 0, error);

    *out_is_past = status == BERTH_OK;
    return status == BERTH_PENDING ? BERTH_OK : status;
}

berth_status
berthi_cuda_await(berthi_device *device, berthi_event *event, uint64_t deadline_ns,
           berth_error *error)
{
    return poll_event(device, event, deadline_ns, error);
}
