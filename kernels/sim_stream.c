/* SPDX-License-Identifier: Apache-2.0 */
/* sim_stream.c - streams and events of a simulated device; see sim.h. */
#include "kernels/sim.h"

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
    stream =
        berthi_memory_zalloc(device->sim->context, BERTHI_PURPOSE_OBJECT, sizeof *stream);
    if (stream != NULL)
        berthi_sim_add_stream(device, stream);
    return stream;
}

berth_status
berthi_sim_stream_create(berthi_device *device, berthi_stream **out, berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    const berth_status status = berthi_sim_enter(d, "making a stream", error);

    *out = status == BERTH_OK ? take_stream(d) : NULL;
    if (status == BERTH_OK && *out == NULL)
        return berthi_sim_leave(d, berthi_fail_memory(error, "making a stream"));
    d->streams += status == BERTH_OK;
    return berthi_sim_leave(d, status);
}

/*
 * Places in it may outlive a stream, so it stays, and goes on counting when it is given
 * out again. One whose work was given up is not: its places are never reached.
 */
void
berthi_sim_stream_destroy(berthi_device *device, berthi_stream *stream)
{
    berthi_sim *const sim = berthi_sim_of(device)->sim;

    if (stream == NULL)
        return;
    pthread_mutex_lock(&sim->lock);
    berthi_sim_drain(stream);
    berthi_sim_purge(stream);
    stream->is_free = stream->completed == stream->asked;
    stream->device->streams--;
    pthread_mutex_unlock(&sim->lock);
}

berth_status
berthi_sim_event_create(berthi_device *device, berthi_event **out, berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    const berth_status status =
        berthi_sim_leave(d, berthi_sim_enter(d, "making an event", error));

    *out = NULL;
    if (status != BERTH_OK)
        return status;
    *out = berthi_memory_zalloc(d->sim->context, BERTHI_PURPOSE_OBJECT, sizeof **out);
    return *out != NULL ? BERTH_OK : berthi_fail_memory(error, "making an event");
}

void
berthi_sim_event_destroy(berthi_device *device, berthi_event *event)
{
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, event, sizeof *event);
}

berth_status
berthi_sim_record(berthi_device *device, berthi_event *event, berthi_stream *stream,
                  berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berthi_stream *const s = berthi_sim_stream_of(d, stream);
    berth_status status = berthi_sim_enter(d, "recording an event", error);

    if (status != BERTH_OK)
        return berthi_sim_leave(d, status);
    d->records++;
#ifdef BERTH_TESTING
    if (d->records == d->words.stall) {
        berthi_sim_item *item;

        status = berthi_sim_item_take(d, BERTHI_SIM_STALL, &item, error);
        if (status != BERTH_OK)
            return berthi_sim_leave(d, status);
        berthi_sim_push(s, item);
    }
#endif
    event->place = (berthi_sim_place){ .stream = s, .at = s->asked };
    return berthi_sim_leave(d, BERTH_OK);
}

berth_status
berthi_sim_wait(berthi_device *device, berthi_stream *stream, berthi_event *event,
                berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berthi_stream *const s = berthi_sim_stream_of(d, stream);
    berth_status status = berthi_sim_enter(d, "waiting for an event", error);
    berthi_sim_item *item;

    if (status != BERTH_OK)
        return berthi_sim_leave(d, status);
    if (event->place.stream == NULL)
        d->unrecorded_waits++;
    if (event->place.stream == s || berthi_sim_is_past(&event->place))
        return berthi_sim_leave(d, BERTH_OK);
    status = berthi_sim_item_take(d, BERTHI_SIM_WAIT, &item, error);
    if (status == BERTH_OK) {
        item->work.wait = event->place;
        berthi_sim_push(s, item);
    }
    return berthi_sim_leave(d, status);
}

berth_status
berthi_sim_query(berthi_device *device, berthi_event *event, bool *out_is_past,
                 berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berthi_sim *const sim = d->sim;
    berth_status status = berthi_sim_enter(d, "asking for an event", error);

    *out_is_past = false;
    if (status != BERTH_OK)
        return berthi_sim_leave(d, status);
    berthi_sim_settle(sim);
    /* Who asks again and again shall get an answer: a virtual clock moves by a step. */
    if (!berthi_sim_is_past(&event->place) && !sim->words.machine.is_real
        && !sim->is_stepping)
        (void)berthi_sim_step(sim);
    status = berthi_sim_check(d, error);
    *out_is_past = status == BERTH_OK && berthi_sim_is_past(&event->place);
    return berthi_sim_leave(d, status);
}

berth_status
berthi_sim_await_event(berthi_device *device, berthi_event *event, uint64_t deadline_ns,
                       berth_error *error)
{
    berthi_sim_device *const d = berthi_sim_of(device);
    berth_status status = berthi_sim_enter(d, "waiting for an event", error);
    const berthi_sim_place place = event->place;

    if (status == BERTH_OK)
        status = berthi_sim_await(d, &place, deadline_ns, error);
    return berthi_sim_leave(d, status);
}
