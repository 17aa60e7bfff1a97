/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed.c - the thread that brings units from the disk.
 *
 *   chunks of layers, in their order, endlessly       chunks of experts, when they are
 *     │ read ahead as far as the ring goes              │ asked for        intake.h
 *     ▼                                                 ▼
 *   ring    a chunk whose unit a line is at is copied into its slot; its buffer is free
 *           when that copy has passed
 *
 * Both have buffers of their own, so neither keeps the other waiting: few at first, and
 * more as long as that makes reading faster, see tune.h.
 *
 * Reading follows the order of the layers, which is that in which they are needed, and
 * knows nothing of slots: a line that could fill one ahead of its turn has to wait for it.
 * Where somebody waits for something else and nothing goes on any more, reading begins anew
 * at what is wanted.
 *
 * A read that failed stops reading. What is in the ring is still handed out; the unit
 * that waits for more fails with it, and whoever asks again has it read again. After a
 * read that hangs that is as soon as it has come back.
 */
#include <string.h>

#include "kernels/node.h"
#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/intake.h"
#include "loader/lease_state.h"
#include "loader/stage.h"
#include "loader/tune.h"

#define STACK_BYTES (256u * 1024u)
#define CHUNK_BYTES_MAX (UINT64_C(4) << 20)
#define CHUNK_BYTES_MIN UINT64_C(4096)
#define RING_CHUNKS 8u /* at least so many make a ring, where chunks can be smaller */
#define RING_CHUNKS_MIN 3u
#define RING_CHUNKS_MAX 64u
#define FIRST_STAGES 8u /* that are used, of the ring */
#define IDLE_NS UINT64_C(50000000)  /* nothing but a wake ends it earlier */
#define POLL_NS UINT64_C(100000)    /* reads and copies are under way */
#define COPY_NS UINT64_C(1000000)   /* copies alone */
#define HASTE_NS UINT64_C(300000)   /* a test's feeder has so much less */

/* Of all buffers, where layers come from the disk as well. */
#define EXPERTS_SHARE 4u

/* What the feeder knows of a chunk. */
typedef struct chunk_state {
    uint64_t feed_number; /* of its line, when it was last copied; 0: never */
    bool is_held;         /* a buffer has it, or is going to */
} chunk_state;

/* Of a buffer in the ring, for each line. */
typedef struct buffer_state {
    berthi_event *copied; /* NULL: the line has nothing on the disk */
    bool is_pinned;
} buffer_state;

struct berthi_feeder {
    berthi_leases *leases;
    const berthi_chunks *chunks;
    berthi_stage stage;
    berthi_intake intake;
    berthi_tune tune;
    berthi_conveyor_stats stats;
    chunk_state *states;     /* of chunks */
    buffer_state *buffers;   /* of a line: as many as the ring has */
    bool *is_known;          /* of buffers: devices have been asked to pin */
    bool *is_recorded;       /* of buffers that are being copied */
    uint64_t cursor;         /* chunk of a layer that is read next */
    uint32_t room[2];        /* buffers in use, at most, of layers and of experts; */
    uint32_t held[2];        /* so many have a chunk */
    uint64_t idle_ns;        /* slots waited for reads, and there was no room for more */
    uint32_t copying;        /* buffers */
    bool has_grown;          /* the ring, by a buffer: what else there is to do comes first */
    bool has_failed;         /* reading */
    berth_status status;
    berth_error error;
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_stopped;
};

uint64_t
berthi_feeder_chunk_bytes(uint64_t ring_bytes)
{
    uint64_t bytes = CHUNK_BYTES_MAX;

    while (bytes > CHUNK_BYTES_MIN && bytes * RING_CHUNKS > ring_bytes)
        bytes /= 2;
    return bytes;
}

static uint32_t
line_of(const berthi_feeder *f, uint64_t chunk)
{
    return f->leases->units[f->leases->unit_of_chunk[chunk]].line;
}

static uint64_t
chunk_of(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    return (uint64_t)(buffer->chunk - f->chunks->chunks);
}

/* Which buffers it is for. */
static uint32_t
share_of(const berthi_feeder *f, uint64_t chunk)
{
    return chunk >= f->leases->layer_chunks;
}

static buffer_state *
state_of(berthi_feeder *f, uint32_t line, uint32_t buffer)
{
    return &f->buffers[line * f->stage.capacity + buffer];
}

/* ----------------------------------------------------------------------- the ring */

/* All lines share the ring: their devices take turns in having a buffer near. */
static void
bring_near(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    uint32_t count = 0;
    uint32_t turn;

    for (uint32_t l = 0; l < f->leases->line_count; l++)
        count += f->leases->lines[l].has_disk;
    if (count == 0)
        return;
    turn = buffer->number % count;
    for (uint32_t l = 0; l < f->leases->line_count; l++)
        if (f->leases->lines[l].has_disk && turn-- == 0)
            berthi_node_bring(f->leases->lines[l].device, buffer->memory,
                              f->stage.buffer_bytes, BERTHI_STAGE_ALIGNMENT);
}

/* Of the lines with something on the disk, the first one on the device of this one. */
static uint32_t
first_line(const berthi_feeder *f, uint32_t line)
{
    const berthi_lease_line *const lines = f->leases->lines;
    uint32_t l = 0;

    while (l < line && (!lines[l].has_disk || lines[l].device != lines[line].device))
        l++;
    return l;
}

/* Devices that copy from a buffer pin it, once it is there; each of them once. */
static void
pin(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    if (f->is_known[buffer->number])
        return;
    f->is_known[buffer->number] = true;
    bring_near(f, buffer);
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;
        buffer_state *const state = state_of(f, l, buffer->number);
        berth_error error;

        if (state->copied == NULL)
            continue;
        if (first_line(f, l) < l) {
            state->is_pinned = state_of(f, first_line(f, l), buffer->number)->is_pinned;
            continue;
        }
        state->is_pinned =
            device->table->pin(device, buffer->memory, f->stage.buffer_bytes, &error)
            == BERTH_OK;
        if (!state->is_pinned)
            berthi_device_note_unpinned(f->leases->model->context, &error);
    }
}

/* One that no device copies from. */
static void
unpin(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;
        buffer_state *const state = state_of(f, l, buffer->number);

        if (state->is_pinned && first_line(f, l) == l)
            device->table->unpin(device, buffer->memory, f->stage.buffer_bytes);
        state->is_pinned = false;
    }
}

static void
destroy_events(berthi_feeder *f)
{
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;

        for (uint32_t i = 0; i < f->stage.capacity; i++)
            if (state_of(f, l, i)->copied != NULL)
                device->table->event_destroy(device, state_of(f, l, i)->copied);
    }
}

/* Its chunk is needed no longer, or has to be read again. */
static void
release_buffer(berthi_feeder *f, berthi_stage_buffer *buffer)
{
    const uint64_t chunk = chunk_of(f, buffer);

    f->states[chunk].is_held = false;
    f->held[share_of(f, chunk)]--;
    berthi_stage_drop(&f->stage, buffer);
}

/* ------------------------------------------------------------------------ reading */

static void
fail_reading(berthi_feeder *f, berth_status status, const berth_error *error)
{
    if (f->has_failed)
        return;
    f->has_failed = true;
    f->status = status;
    f->error = *error;
}

/* Begins to read a chunk that no buffer has; false: there is none for it now. */
static bool
can_read(berthi_feeder *f, uint64_t chunk)
{
    const uint32_t share = share_of(f, chunk);
    const uint32_t allocated = f->stage.allocated;
    berthi_stage_buffer *buffer;
    berth_error error;
    berth_status status;

    if (f->has_failed || f->has_grown || f->held[share] >= f->room[share])
        return false;
    status = berthi_stage_take(&f->stage, &f->chunks->chunks[chunk], &buffer, &error);
    if (status != BERTH_OK)
        fail_reading(f, status, &error);
    if (buffer == NULL)
        return false;
    pin(f, buffer);
    berthi_intake_start(&f->intake, buffer);
    f->has_grown = f->stage.allocated > allocated;
    f->states[chunk].is_held = true;
    f->held[share]++;
    return true;
}

/* Layers are read ahead as long as there are buffers. */
static bool
has_read_ahead(berthi_feeder *f)
{
    bool has_any = false;

    while (f->leases->layer_chunks > 0 && !f->states[f->cursor].is_held
           && can_read(f, f->cursor)) {
        f->cursor = (f->cursor + 1) % f->leases->layer_chunks;
        has_any = true;
    }
    return has_any;
}

/* ------------------------------------------------------------------------ copying */

/* Line's lock held. Whoever waits for the unit is told. */
static void
fail_slot(berthi_lease_line *line, berthi_lease_slot *slot, berth_status status,
          const berth_error *error)
{
    line->is_halted = true;
    berthi_lease_end_feed(line, slot);
    if (slot->waiters > 0) {
        line->status = status;
        line->error = *error;
        slot->fill = BERTHI_LEASE_FAILED;
    } else {
        berthi_lease_empty(line, slot);
    }
    pthread_cond_broadcast(&line->changed);
}

static berth_status
copy_spans(berthi_feeder *f, berthi_lease_line *line, const berthi_lease_slot *slot,
           const berthi_stage_buffer *buffer, bool is_pinned, berth_error *error)
{
    const berthi_chunk *const chunk = buffer->chunk;
    const uint8_t *const bytes = buffer->memory + (chunk->begin - chunk->origin);
    const uint32_t layer = f->leases->units[slot->unit].layer;
    const uint64_t begin_ns = berthi_trace_begin(f->leases->context);
    const uint64_t copied = line->summary.copied_bytes;
    berth_status status = BERTH_OK;

    line->copied_layer = layer + 1;
    for (uint32_t i = 0; i < chunk->span_count && status == BERTH_OK; i++) {
        const berthi_span *const span = &f->chunks->spans[chunk->first_span + i];

        status = berthi_lease_copy(line, slot->memory + span->tag + span->tag_offset,
                                   bytes + span->chunk_offset, span->bytes, is_pinned,
                                   error);
        if (status == BERTH_OK) {
            line->summary.copied_bytes += span->bytes;
            line->summary.disk_bytes += span->bytes;
        }
    }
    berthi_trace_end(f->leases->context, BERTH_TRACE_FILL, "feeder", begin_ns,
                     line->summary.copied_bytes - copied,
                     (berthi_trace_of){ BERTH_NO_TENSOR, layer, chunk->file });
    return status;
}

/* The unit's last chunk has been copied: what waited behind it goes on. */
static berth_status
end_feed(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
         berth_error *error)
{
    const berth_status status =
        line->device->table->record(line->device, slot->full, line->stream, error);

    if (status != BERTH_OK)
        return status;
    slot->fill = BERTHI_LEASE_FULL;
    berthi_lease_end_feed(line, slot);
    line->summary.filled++;
    pthread_cond_broadcast(&line->changed);
    if (!line->is_cache && !BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
        (void)berthi_lease_pump(f->leases, line, NULL);
    return BERTH_OK;
}

/*
 * Copies a chunk into the slot that is being filled with it. The buffer is not free
 * before what was asked for has passed, failed or not.
 */
static void
copy_chunk(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
           berthi_stage_buffer *buffer)
{
    const uint32_t number = (uint32_t)(line - f->leases->lines);
    const buffer_state *const state = state_of(f, number, buffer->number);
    berthi_device *const device = line->device;
    berth_error error;
    berth_status status = copy_spans(f, line, slot, buffer, state->is_pinned, &error);
    const berth_status recorded =
        device->table->record(device, state->copied, line->stream,
                              status == BERTH_OK ? &error : NULL);

    if (line->copying++ == 0)
        line->passed_ns = berthi_sys_now_ns();
    buffer->state = BERTHI_STAGE_BUSY;
    f->is_recorded[buffer->number] = recorded == BERTH_OK;
    f->copying++;
    if (status == BERTH_OK)
        status = recorded;
    if (status == BERTH_OK) {
        f->states[chunk_of(f, buffer)].feed_number = slot->feed_number;
        slot->feed_left--;
        if (slot->feed_left == 0)
            status = end_feed(f, line, slot, &error);
    }
    if (status != BERTH_OK)
        fail_slot(line, slot, status, &error);
}

/* Line's lock held. The slot that waits for the chunk; NULL: none does. */
static berthi_lease_slot *
find_feed(const berthi_feeder *f, const berthi_lease_line *line, uint64_t chunk)
{
    berthi_lease_slot *slot = line->feeding;

    while (slot != NULL
           && (slot->unit != f->leases->unit_of_chunk[chunk]
               || f->states[chunk].feed_number == slot->feed_number))
        slot = slot->next_feed;
    return slot;
}

/* Hands out what is wanted. */
static bool
has_copied(berthi_feeder *f)
{
    bool has_any = false;

    /* Experts that have been given up meanwhile are waited for by nobody. */
    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        berthi_stage_buffer *const buffer = &f->stage.buffers[i];
        berthi_lease_line *line;
        berthi_lease_slot *slot;
        uint64_t chunk;

        if (buffer->state != BERTHI_STAGE_FULL)
            continue;
        chunk = chunk_of(f, buffer);
        line = &f->leases->lines[line_of(f, chunk)];
        pthread_mutex_lock(&line->lock);
        slot = find_feed(f, line, chunk);
        if (slot != NULL)
            copy_chunk(f, line, slot, buffer);
        else if (line->is_cache)
            release_buffer(f, buffer);
        has_any |= buffer->state != BERTHI_STAGE_FULL;
        pthread_mutex_unlock(&line->lock);
    }
    return has_any;
}

/* True when the copies out of a buffer have passed, or never will. */
static bool
is_past(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    berthi_lease_line *const line = &f->leases->lines[line_of(f, chunk_of(f, buffer))];
    const berthi_device_table *const table = line->device->table;
    berthi_event *const copied =
        state_of(f, (uint32_t)(line - f->leases->lines), buffer->number)->copied;
    bool is_over = false;
    berth_error error;
    berth_status status = BERTH_OK;

    if (f->is_recorded[buffer->number]) {
        status = table->query(line->device, copied, &is_over, &error);
    } else {
        status = table->record(line->device, copied, line->stream, &error);
        f->is_recorded[buffer->number] = status == BERTH_OK;
    }
    if (status == BERTH_OK)
        return is_over;
    /* Whoever waits is told. The copy may go on all the same, unless the device is lost. */
    pthread_mutex_lock(&line->lock);
    while (line->feeding != NULL)
        fail_slot(line, line->feeding, status, &error);
    pthread_mutex_unlock(&line->lock);
    return error.reason == BERTH_REASON_DEVICE_LOST;
}

static void
note_past(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    berthi_lease_line *const line = &f->leases->lines[line_of(f, chunk_of(f, buffer))];

    pthread_mutex_lock(&line->lock);
    line->copying--;
    line->passed_ns = berthi_sys_now_ns();
    pthread_mutex_unlock(&line->lock);
}

static bool
has_recycled(berthi_feeder *f)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->stage.allocated && f->copying > 0; i++) {
        berthi_stage_buffer *const buffer = &f->stage.buffers[i];

        if (buffer->state != BERTHI_STAGE_BUSY || !is_past(f, buffer))
            continue;
        note_past(f, buffer);
        release_buffer(f, buffer);
        f->copying--;
        has_any = true;
    }
    return has_any;
}

/* ----------------------------------------------------------------- another order */

/*
 * The first slot that waits for a chunk which no buffer has, and that chunk; NULL: none.
 */
static berthi_lease_slot *
find_missing(const berthi_feeder *f, const berthi_lease_line *line, uint64_t *out_chunk)
{
    for (berthi_lease_slot *slot = line->feeding; slot != NULL; slot = slot->next_feed) {
        const berthi_lease_unit *const unit = &f->leases->units[slot->unit];

        for (uint64_t c = unit->first_chunk; c < unit->first_chunk + unit->chunk_count;
             c++) {
            *out_chunk = c;
            if (f->states[c].feed_number != slot->feed_number && !f->states[c].is_held)
                return slot;
        }
    }
    return NULL;
}

/* Experts are read as they are asked for, as long as there are buffers. */
static bool
has_read_experts(berthi_feeder *f)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->leases->line_count; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];
        bool is_missing = line->is_cache;

        while (is_missing) {
            uint64_t chunk;

            pthread_mutex_lock(&line->lock);
            is_missing = find_missing(f, line, &chunk) != NULL;
            pthread_mutex_unlock(&line->lock);
            is_missing = is_missing && can_read(f, chunk);
            has_any |= is_missing;
        }
    }
    return has_any;
}

/* Whether a slot waits for something in the ring: it may since that was last handed out. */
static bool
is_ring_wanted(const berthi_feeder *f)
{
    bool is_wanted = false;

    for (uint32_t i = 0; i < f->stage.allocated && !is_wanted; i++) {
        const berthi_stage_buffer *const buffer = &f->stage.buffers[i];
        berthi_lease_line *line;

        if (buffer->state != BERTHI_STAGE_FULL)
            continue;
        line = &f->leases->lines[line_of(f, chunk_of(f, buffer))];
        pthread_mutex_lock(&line->lock);
        is_wanted = find_feed(f, line, chunk_of(f, buffer)) != NULL;
        pthread_mutex_unlock(&line->lock);
    }
    return is_wanted;
}

/* Gives up what nobody waits for, of one line or (NULL) of all. */
static void
drop_full(berthi_feeder *f, const berthi_lease_line *line)
{
    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        berthi_stage_buffer *const buffer = &f->stage.buffers[i];

        if (buffer->state != BERTHI_STAGE_FULL)
            continue;
        if (line == NULL || line == &f->leases->lines[line_of(f, chunk_of(f, buffer))])
            release_buffer(f, buffer);
    }
}

/* Line's lock held. Experts are waited for as soon as they are asked for. */
static bool
is_waited_for(const berthi_lease_line *line)
{
    const berthi_lease_slot *slot = line->feeding;

    while (slot != NULL && slot->waiters == 0)
        slot = slot->next_feed;
    return slot != NULL || line->is_cache;
}

/*
 * `is_stuck`: nothing goes on unless something else is read, and somebody waits. Else only
 * where a line has been asked for another layer than the next one.
 */
static bool
has_sought(berthi_feeder *f, bool is_stuck)
{
    for (uint32_t i = 0; i < f->leases->line_count && !f->has_failed; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];
        uint64_t chunk;
        bool is_wanted;

        pthread_mutex_lock(&line->lock);
        is_wanted = (is_stuck ? is_waited_for(line) : line->is_moved)
                    && find_missing(f, line, &chunk) != NULL;
        line->is_moved = false;
        pthread_mutex_unlock(&line->lock);
        if (!is_wanted || (chunk == f->cursor && !is_stuck))
            continue;
        if (is_stuck && is_ring_wanted(f))
            return true; /* whoever waits has come just now: copying goes on */
        drop_full(f, is_stuck ? NULL : line);
        if (!line->is_cache)
            f->cursor = chunk;
        return true;
    }
    return false;
}

/* Reads hang: whoever waits is told, and nothing else is read before they come back. */
static bool
has_told(berthi_feeder *f)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->leases->line_count; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];

        pthread_mutex_lock(&line->lock);
        while (line->feeding != NULL) {
            fail_slot(line, line->feeding, f->status, &f->error);
            has_any = true;
        }
        pthread_mutex_unlock(&line->lock);
    }
    return has_any;
}

/*
 * Nothing is being read any more after a failure: units that wait for it fail, and
 * reading begins anew when one is asked for again.
 */
static bool
has_given_up(berthi_feeder *f)
{
    bool has_any = false;

    if (f->has_failed && f->intake.is_late)
        return has_told(f);
    if (!f->has_failed || f->intake.in_flight > 0)
        return false;
    for (uint32_t i = 0; i < f->stage.allocated; i++)
        if (f->stage.buffers[i].state == BERTHI_STAGE_FILLING)
            release_buffer(f, &f->stage.buffers[i]);
    for (uint32_t i = 0; i < f->leases->line_count; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];
        berthi_lease_slot *slot;
        uint64_t chunk;

        pthread_mutex_lock(&line->lock);
        while ((slot = find_missing(f, line, &chunk)) != NULL) {
            fail_slot(line, slot, f->status, &f->error);
            if (!line->is_cache)
                f->cursor = chunk;
            has_any = true;
        }
        pthread_mutex_unlock(&line->lock);
    }
    f->has_failed = !has_any;
    return has_any;
}

/* ------------------------------------------------------------------------- tuning */

/* Divides what is used of it. */
static void
divide_ring(berthi_feeder *f)
{
    const uint64_t layers = f->leases->layer_chunks;
    const uint32_t all = f->stage.limit;

    f->room[1] = layers == 0                          ? all
                 : layers == f->chunks->chunk_count ? 0
                 : all / EXPERTS_SHARE > 0          ? all / EXPERTS_SHARE
                                                    : 1;
    f->room[0] = all - f->room[1];
}

static void
use_buffers(berthi_feeder *f, uint32_t count)
{
    berthi_stage_allow(&f->stage, count);
    divide_ring(f);
}

/* Slots take whatever comes, and all buffers that it may come into are being filled. */
static bool
is_idle(const berthi_feeder *f)
{
    const uint32_t share = f->leases->layer_chunks == 0;
    uint32_t filling = 0;

    for (uint32_t i = 0; i < f->stage.allocated; i++)
        filling += f->stage.buffers[i].state == BERTHI_STAGE_FILLING;
    return filling > 0 && filling == f->held[0] + f->held[1]
           && f->held[share] >= f->room[share];
}

static void
begin_tuning(berthi_feeder *f)
{
    berthi_tune_begin(&f->tune, FIRST_STAGES, f->stage.capacity, berthi_sys_now_ns());
    use_buffers(f, f->tune.stages);
}

static void
tune(berthi_feeder *f)
{
    const berthi_tune_sample sample = { .now_ns = berthi_sys_now_ns(),
                                        .bytes = f->stats.bytes_read,
                                        .idle_ns = f->idle_ns };

    if (berthi_tune_is_due(&f->tune, sample.now_ns))
        use_buffers(f, berthi_tune_look(&f->tune, &sample));
}

/* ------------------------------------------------------------------------- thread */

/* For any copy; false: none can be waited for, as when each call of the device fails. */
static bool
has_awaited(berthi_feeder *f)
{
    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        const berthi_stage_buffer *const buffer = &f->stage.buffers[i];

        if (buffer->state == BERTHI_STAGE_BUSY && f->is_recorded[i]) {
            const uint32_t l = line_of(f, chunk_of(f, buffer));
            berthi_device *const device = f->leases->lines[l].device;

            const berth_status status =
                device->table->await(device, state_of(f, l, i)->copied,
                                     berthi_sys_now_ns() + COPY_NS, NULL);

            return status == BERTH_OK || status == BERTH_PENDING;
        }
    }
    return false;
}

static void
wait_for_news(berthi_feeder *f)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    const bool is_waiting = is_idle(f);
    berth_error error;
    berth_status status;

    if (f->copying > 0 && f->intake.in_flight == 0 && has_awaited(f))
        return;
    status = berthi_intake_wait(&f->intake,
                                begin_ns + (f->copying > 0 ? POLL_NS : IDLE_NS), &error);
    if (is_waiting)
        f->idle_ns += berthi_sys_now_ns() - begin_ns;
    if (status != BERTH_OK)
        fail_reading(f, status, &error);
    tune(f);
}

/* What has come back by now. */
static void
take_news(berthi_feeder *f)
{
    uint32_t before;

    do {
        berth_error error;
        berth_status status;

        before = f->intake.in_flight;
        status = berthi_intake_wait(&f->intake, 0, &error);
        if (status != BERTH_OK)
            fail_reading(f, status, &error);
    } while (f->intake.in_flight < before);
}

/* Everything that goes without waiting; false: nothing did. */
static bool
has_worked(berthi_feeder *f)
{
    bool has_any = has_sought(f, false);

    has_any |= has_recycled(f);
    has_any |= has_read_experts(f);
    has_any |= has_read_ahead(f);
    has_any |= has_copied(f);
    has_any |= has_given_up(f);
    if (!has_any && f->intake.in_flight == 0 && f->copying == 0) {
        if (BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_HASTE))
            berthi_sys_sleep(HASTE_NS);
        has_any = has_sought(f, true);
    }
    return has_any;
}

static void *
run(void *argument)
{
    berthi_feeder *const f = argument;

    while (!atomic_load(&f->is_stopped)) {
        f->has_grown = false;
        if (!has_worked(f))
            wait_for_news(f);
        else if (f->has_grown)
            take_news(f);
    }
    berthi_intake_drain(&f->intake);
    return NULL;
}

void
berthi_feeder_wake(berthi_feeder *feeder)
{
    if (feeder != NULL)
        feeder->intake.reader->table->wake(feeder->intake.reader);
}

/* --------------------------------------------------------------------- begin, end */

static bool
has_tables(berthi_feeder *f)
{
    berthi_arena *const arena = &f->leases->arena;
    const uint64_t capacity = f->stage.capacity;
    const uint64_t buffers = capacity * f->leases->line_count * sizeof *f->buffers;
    const uint64_t states = f->chunks->chunk_count * sizeof *f->states;

    f->states = berthi_arena_alloc(arena, states, 8);
    f->is_known = berthi_arena_alloc(arena, capacity, 1);
    f->is_recorded = berthi_arena_alloc(arena, capacity, 1);
    f->buffers = berthi_arena_alloc(arena, buffers, 8);
    if (f->states == NULL || f->is_known == NULL || f->is_recorded == NULL
        || f->buffers == NULL) {
        f->buffers = NULL; /* none of them holds anything that is given back */
        return false;
    }
    memset(f->states, 0, states);
    memset(f->is_known, 0, capacity);
    memset(f->is_recorded, 0, capacity);
    memset(f->buffers, 0, buffers);
    return true;
}

static berth_status
create_events(berthi_feeder *f, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        berthi_device *const device = f->leases->lines[l].device;

        if (!f->leases->lines[l].has_disk)
            continue;
        for (uint32_t i = 0; i < f->stage.capacity && status == BERTH_OK; i++)
            status =
                device->table->event_create(device, &state_of(f, l, i)->copied, error);
    }
    return status;
}

static berth_status
start_thread(berthi_feeder *f, berth_error *error)
{
    const berthi_about about = {
        .system_error = berthi_sys_thread_create(&f->thread, STACK_BYTES, run, f)
    };

    f->has_thread = about.system_error == 0;
    return f->has_thread ? BERTH_OK
                         : berthi_fail(error, BERTH_REASON_NO_MEMORY, &about,
                                       "starting the thread that reads layers failed");
}

/* Never more than one pass: the same chunk is not in the ring twice. */
static uint32_t
choose_capacity(const berthi_chunks *chunks, uint64_t ring_bytes)
{
    uint64_t capacity = ring_bytes / chunks->chunk_bytes;

    capacity = berthi_max_u64(capacity, RING_CHUNKS_MIN);
    capacity = berthi_min_u64(capacity, RING_CHUNKS_MAX);
    return (uint32_t)berthi_min_u64(capacity, chunks->chunk_count);
}

berth_status
berthi_feeder_create(berthi_leases *leases, const berthi_lease_options *options,
                     berthi_feeder **out, berth_error *error)
{
    static const bool has_call[BERTHI_STAGE_CALL_COUNT] = { true, false };
    const berthi_conveyor_options reading = { .io = options->io,
                                              .no_uring = options->no_uring,
                                              .readers = options->readers,
                                              .wait_ns = leases->model->wait_ns };
    berthi_feeder *const f =
        berthi_memory_zalloc(leases->context, BERTHI_PURPOSE_OBJECT, sizeof *f);
    berth_status status;

    if (f == NULL)
        return berthi_fail_memory(error, "the thread that reads layers");
    f->leases = leases;
    f->chunks = &leases->chunks;
    status = berthi_stage_init(&f->stage, leases->context, f->chunks->chunk_bytes,
                               choose_capacity(f->chunks, options->ring_bytes),
                               leases->file_count, has_call, error);
    if (status == BERTH_OK && !has_tables(f))
        status = berthi_fail_memory(error, "the ring of what is streamed");
    if (status == BERTH_OK)
        status = berthi_intake_init(&f->intake, leases->context, NULL, leases->files,
                                    leases->file_count, f->chunks, &reading, &f->stage,
                                    &f->stats, error);
    f->intake.is_endless = true;
    if (status == BERTH_OK) {
        begin_tuning(f);
        status = create_events(f, error);
    }
    if (status == BERTH_OK)
        status = start_thread(f, error);
    if (status != BERTH_OK) {
        berthi_feeder_destroy(f);
        return status;
    }
    *out = f;
    return BERTH_OK;
}

/* Buffers that reads hang on go with them, and no device copies from those. */
static void
end_reading(berthi_feeder *f)
{
    for (uint32_t i = 0; i < f->stage.allocated; i++)
        if (f->stage.buffers[i].state != BERTHI_STAGE_BUSY)
            unpin(f, &f->stage.buffers[i]);
    berthi_intake_fini(&f->intake);
}

void
berthi_feeder_stop(berthi_feeder *feeder)
{
    if (feeder == NULL)
        return;
    if (feeder->has_thread) {
        atomic_store(&feeder->is_stopped, true);
        berthi_feeder_wake(feeder);
        pthread_join(feeder->thread, NULL);
        feeder->has_thread = false;
    }
    end_reading(feeder);
}

void
berthi_feeder_destroy(berthi_feeder *feeder)
{
    if (feeder == NULL)
        return;
    berthi_feeder_stop(feeder);
    for (uint32_t i = 0; i < feeder->stage.allocated; i++)
        unpin(feeder, &feeder->stage.buffers[i]);
    if (feeder->buffers != NULL)
        destroy_events(feeder);
    if (feeder->stage.buffers != NULL)
        berthi_stage_fini(&feeder->stage);
    berthi_memory_free(feeder->leases->context, BERTHI_PURPOSE_OBJECT, feeder,
                       sizeof *feeder);
}
