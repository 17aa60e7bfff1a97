/* SPDX-License-Identifier: Apache-2.0 */
/* sim_queue.c - streams, engines, and which work is next; see sim.h. */
#include <string.h>

#include "kernels/sim.h"

/* splitmix64: any seed, 0 too. */
uint64_t
berthi_sim_random(berthi_sim *sim)
{
    uint64_t z = sim->random += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* ------------------------------------------------------------------------- items */

berth_status
berthi_sim_item_take(berthi_sim_device *device, int32_t kind, berthi_sim_item **out,
                     berth_error *error)
{
    berthi_sim *const sim = device->sim;
    berthi_sim_item *item = sim->spare;

    if (item != NULL)
        sim->spare = item->next;
    else
        item = berthi_memory_alloc(sim->context, BERTHI_PURPOSE_OBJECT, sizeof *item);
    *out = item;
    if (item == NULL)
        return berthi_fail_memory(error, "asking a device for work");
    memset(item, 0, sizeof *item);
    item->kind = kind;
    item->engine = BERTHI_SIM_NO_ENGINE;
    return BERTH_OK;
}

void
berthi_sim_item_give(berthi_sim *sim, berthi_sim_item *item)
{
    berthi_memory_free(sim->context, BERTHI_PURPOSE_OBJECT, item->held, item->held_bytes);
    item->held = NULL;
    item->next = sim->spare;
    sim->spare = item;
}

void
berthi_sim_add_stream(berthi_sim_device *device, berthi_stream *stream)
{
    stream->device = device;
    stream->number = ++device->sim->stream_count;
    stream->next = device->sim->streams;
    device->sim->streams = stream;
}

void
berthi_sim_push(berthi_stream *stream, berthi_sim_item *item)
{
    berthi_sim *const sim = stream->device->sim;

    item->order = ++sim->order;
    item->number = ++stream->asked;
    if (stream->head == NULL) {
        stream->head = item;
        item->begin_ns = berthi_sim_now(sim);
    } else {
        stream->tail->next = item;
    }
    stream->tail = item;
    if (sim->words.machine.is_real)
        berthi_sim_settle(sim);
    pthread_cond_broadcast(&sim->changed);
}

/* The item at the head is done with. */
static void
pop(berthi_stream *stream)
{
    berthi_sim_item *const item = stream->head;

    stream->head = item->next;
    if (stream->head != NULL)
        stream->head->begin_ns = berthi_sim_now(stream->device->sim);
    if (stream->device->reason == BERTH_REASON_NONE) /* else it did nothing */
        stream->completed = item->number;
    berthi_sim_item_give(stream->device->sim, item);
}

/* What is purged was not completed: who waits for it waits for ever. */
void
berthi_sim_purge(berthi_stream *stream)
{
    berthi_sim_item *const head = stream->head;
    berthi_sim_item *item = head;

    if (head != NULL && head->is_running) {
        item = head->next;
        head->next = NULL;
        stream->tail = head;
    } else {
        stream->head = NULL;
    }
    while (item != NULL) {
        berthi_sim_item *const next = item->next;

        berthi_sim_item_give(stream->device->sim, item);
        item = next;
    }
}

/* ------------------------------------------------------------------------- engines */

bool
berthi_sim_is_past(const berthi_sim_place *place)
{
    return place->stream == NULL || place->stream->completed >= place->at;
}

/* One candidate more: `item` may take the place of the one that the engine has. */
static void
offer(berthi_sim_engine *engine, berthi_stream *stream, berthi_sim_item *item)
{
    bool is_taken = true;

    engine->candidate_count++;
    if (engine->candidate != NULL)
        switch (engine->sim->words.machine.pick) {
        case BERTHI_SIM_PICK_FIRST: is_taken = item->order < engine->candidate->order; break;
        case BERTHI_SIM_PICK_LAST: is_taken = item->order > engine->candidate->order; break;
        default:
            is_taken = berthi_sim_random(engine->sim) % engine->candidate_count == 0;
            break;
        }
    if (!is_taken)
        return;
    engine->candidate = item;
    engine->candidate_stream = stream;
}

static void
start_candidate(berthi_sim_engine *engine)
{
    berthi_sim *const sim = engine->sim;
    berthi_sim_item *const item = engine->candidate;
    const uint64_t begin_ns = berthi_sim_now(sim);
    uint64_t until_touch = 0;

    if (sim->words.machine.touch == BERTHI_SIM_TOUCH_END)
        until_touch = item->duration_ns;
    if (sim->words.machine.touch == BERTHI_SIM_TOUCH_RANDOM)
        until_touch = berthi_sim_random(sim) % (item->duration_ns + 1);
    item->is_running = true;
    item->begin_ns = begin_ns;
    engine->stream = engine->candidate_stream;
    engine->touch_ns = begin_ns + until_touch;
    engine->end_ns = begin_ns + item->duration_ns;
    engine->is_touched = false;
    engine->is_hung = item->hangs;
    engine->busy_ns += item->duration_ns;
    if (engine->has_wake)
        pthread_cond_signal(&engine->wake);
}

/* Ends the waits at the head of a stream that are over; true when there were any. */
static bool
end_waits(berthi_stream *stream)
{
    bool has_any = false;

    while (stream->head != NULL && stream->head->kind == BERTHI_SIM_WAIT
           && berthi_sim_is_past(&stream->head->work.wait)) {
        berthi_sim_trace_wait(stream);
        pop(stream);
        has_any = true;
    }
    return has_any;
}

void
berthi_sim_settle(berthi_sim *sim)
{
    bool is_again = true;

    while (is_again) {
        is_again = false;
        for (berthi_stream *s = sim->streams; s != NULL; s = s->next)
            if (end_waits(s))
                is_again = true;
    }
    for (berthi_stream *s = sim->streams; s != NULL; s = s->next) {
        berthi_sim_item *const item = s->head;
        berthi_sim_engine *engine;

        if (item == NULL || item->is_running || item->engine == BERTHI_SIM_NO_ENGINE)
            continue;
        engine = s->device->engines[item->engine];
        if (engine->stream == NULL)
            offer(engine, s, item);
    }
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        berthi_sim_engine *const engine = &sim->engines[i];

        if (engine->candidate != NULL)
            start_candidate(engine);
        engine->candidate = NULL;
        engine->candidate_count = 0;
    }
}

void
berthi_sim_end_hang(berthi_sim_device *device)
{
    berthi_sim *const sim = device->sim;

    for (berthi_stream *s = sim->streams; s != NULL; s = s->next)
        for (berthi_sim_item *item = s->head; item != NULL && s->device == device;
             item = item->next)
            item->hangs = false;
    for (uint32_t i = 0; i < sim->engine_count; i++) {
        berthi_sim_engine *const engine = &sim->engines[i];

        if (!engine->is_hung || engine->stream->device != device)
            continue;
        engine->is_hung = false;
        engine->touch_ns = berthi_sim_now(sim);
        engine->end_ns = engine->touch_ns;
        if (engine->has_wake)
            pthread_cond_signal(&engine->wake);
    }
    pthread_cond_broadcast(&sim->changed);
}

void
berthi_sim_complete(berthi_sim_engine *engine)
{
    berthi_sim_trace_work(engine);
    pop(engine->stream);
    engine->stream = NULL;
    engine->done++;
}
