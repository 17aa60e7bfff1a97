/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed_copy.c - chunks that have been read go into the slots that wait for them, and
 * their buffers are free when these copies have passed.
 */
#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/lease_feed.h"

/*
 * Whether a copy more may be under way to the buffer's line. Those that are may never pass: each
 * other line then finds a buffer all the same.
 */
static bool
may_copy(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    const berthi_lease_line *const lines = f->leases->lines;
    const uint64_t own = (uint64_t)(berthi_feeder_line(f, buffer) - lines);
    const uint32_t share = berthi_feeder_share(f, berthi_feeder_chunk(f, buffer));
    const uint64_t room = berthi_min_u64(f->room[share], f->stage.limit);
    uint64_t copying = 0;
    uint64_t others = 0; /* without any */

    if (berthi_courier_is_busy(f, (uint32_t)own))
        return false;
    for (uint32_t l = 0; l < f->leases->line_count; l++) {
        if (!lines[l].has_disk || lines[l].is_cache != lines[own].is_cache)
            continue;
        copying += f->lines[l].copying;
        others += l != own && f->lines[l].copying == 0;
    }
    return f->lines[own].copying == 0 || others == 0 || copying + others < room;
}

uint64_t
berthi_feeder_copy_spans(berthi_feeder *f, const berthi_lease_slot *slot,
                         const berthi_stage_buffer *buffer, const char *thread,
                         berth_error *error)
{
    const berthi_lease_line *const line = berthi_feeder_line(f, buffer);
    const uint32_t layer = f->leases->units[slot->unit].layer;
    const berthi_chunk *const chunk = buffer->chunk;
    const uint8_t *const bytes = buffer->memory + (chunk->begin - chunk->origin);
    const bool is_pinned = berthi_feeder_state_of(f, buffer)->is_pinned;
    const uint64_t begin_ns = berthi_trace_begin(f->leases->context);
    uint64_t copied = 0;

    berthi_error_clear(error);
    for (uint32_t i = 0; i < chunk->span_count; i++) {
        const berthi_span *const span = &f->chunks->spans[chunk->first_span + i];
        const berthi_copy copy = {
            .kind = BERTHI_COPY_TO_DEVICE,
            .is_pinned = is_pinned,
            .to = slot->memory + span->tag + span->tag_offset,
            .from = bytes + span->chunk_offset,
            .bytes = span->bytes,
            .layer = layer + 1,
        };

        if (berthi_lease_copy(line, &copy, error) != BERTH_OK)
            break;
        copied += span->bytes;
    }
    berthi_trace_end(f->leases->context, BERTH_TRACE_FILL, thread, begin_ns, copied,
                     (berthi_trace_of){ BERTH_NO_TENSOR, layer, chunk->file });
    return copied;
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
        berthi_lease_pump_pinned(f->leases, line);
    return BERTH_OK;
}

void
berthi_feeder_end_copy(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
                       const berthi_stage_buffer *buffer, uint64_t copied,
                       const berth_error *failure)
{
    berth_error error = *failure;
    berth_status status = error.status;
    const berth_status recorded =
        line->device->table->record(line->device, berthi_feeder_state_of(f, buffer)->copied,
                                    line->stream, status == BERTH_OK ? &error : NULL);

    line->summary.copied_bytes += copied;
    line->summary.disk_bytes += copied;
    f->is_recorded[buffer->number] = recorded == BERTH_OK;
    if (status == BERTH_OK)
        status = recorded;
    if (status == BERTH_OK && slot->is_unwanted && slot->waiters == 0) {
        berthi_lease_empty(line, slot);
        pthread_cond_broadcast(&line->changed); /* whoever wants a slot */
        if (!BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
            berthi_lease_pump_pinned(f->leases, line);
    } else if (status == BERTH_OK) {
        f->states[berthi_feeder_chunk(f, buffer)].feed_number = slot->feed_number;
        slot->feed_left--;
        if (slot->feed_left == 0)
            status = end_feed(f, line, slot, &error);
    }
    if (status != BERTH_OK)
        berthi_lease_fail_slot(line, slot, status, &error);
}

/* Copies that are not pinned wait for the device: nobody else is to wait for that. */
static void
write_slot(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
           const berthi_stage_buffer *buffer)
{
    const bool is_pinned = berthi_feeder_state_of(f, buffer)->is_pinned;
    berth_error error;
    uint64_t copied;

    if (!is_pinned && berthi_courier_send(f, line, slot, buffer))
        return;
    if (!is_pinned) {
        atomic_store(&f->leases->is_behind, true);
        berthi_lease_begin_write(line, slot);
    }
    copied = berthi_feeder_copy_spans(f, slot, buffer, "feeder", &error);
    if (!is_pinned)
        berthi_lease_end_write(f->leases, line, slot);
    berthi_feeder_end_copy(f, line, slot, buffer, copied, &error);
}

/*
 * Copies a chunk into the slot that is being filled with it. The buffer is not free
 * before what was asked for has passed, failed or not.
 */
static void
copy_chunk(berthi_feeder *f, berthi_lease_line *line, berthi_lease_slot *slot,
           berthi_stage_buffer *buffer)
{
    if (line->copying++ == 0)
        line->passed_ns = berthi_sys_now_ns();
    buffer->state = BERTHI_STAGE_BUSY;
    f->is_recorded[buffer->number] = false;
    f->copying++;
    berthi_feeder_line_state_of(f, buffer)->copying++;
    write_slot(f, line, slot, buffer);
}

berthi_lease_slot *
berthi_feeder_find_slot(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    const uint64_t chunk = berthi_feeder_chunk(f, buffer);
    berthi_lease_slot *slot = berthi_feeder_line(f, buffer)->feeding;

    while (slot != NULL
           && (slot->unit != f->leases->unit_of_chunk[chunk]
               || f->states[chunk].feed_number == slot->feed_number))
        slot = slot->next_feed;
    return slot;
}

bool
berthi_feeder_copy(berthi_feeder *f)
{
    bool has_any = false;

    /* Experts that have been given up meanwhile are waited for by nobody. */
    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        berthi_stage_buffer *const buffer = &f->stage.buffers[i];
        berthi_lease_line *line;
        berthi_lease_slot *slot;

        if (buffer->state != BERTHI_STAGE_FULL)
            continue;
        line = berthi_feeder_line(f, buffer);
        pthread_mutex_lock(&line->lock);
        slot = berthi_feeder_find_slot(f, buffer);
        if (slot != NULL && may_copy(f, buffer))
            copy_chunk(f, line, slot, buffer);
        else if (slot == NULL && line->is_cache)
            berthi_feeder_release(f, buffer);
        has_any |= buffer->state != BERTHI_STAGE_FULL;
        pthread_mutex_unlock(&line->lock);
    }
    return has_any;
}

/* Records what tells of the copies out of a buffer. True: they have passed, or never will. */
static bool
poll_copies(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    berthi_lease_line *const line = berthi_feeder_line(f, buffer);
    const berthi_device_table *const table = line->device->table;
    berthi_event *const copied = berthi_feeder_state_of(f, buffer)->copied;
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
    (void)berthi_lease_fail_feeding(line, status, &error);
    pthread_mutex_unlock(&line->lock);
    return error.reason == BERTH_REASON_DEVICE_LOST;
}

static void
note_past(berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    berthi_feeder_line_state *const state = berthi_feeder_line_state_of(f, buffer);
    berthi_lease_line *const line = berthi_feeder_line(f, buffer);

    pthread_mutex_lock(&line->lock);
    line->copying--;
    line->passed_ns = berthi_sys_now_ns();
    /* Reading may have left out what it wants of layers; experts are looked for anyway. */
    line->is_moved |= (state->is_late || state->has_lost) && !line->is_cache;
    pthread_mutex_unlock(&line->lock);
    state->is_late = false;
    state->has_lost = false;
    state->copying--;
    f->copying--;
}

bool
berthi_feeder_is_stuck(const berthi_feeder *f, uint32_t share)
{
    const uint64_t now_ns = f->copying > 0 ? berthi_sys_now_ns() : 0;
    bool is_stuck = true;

    for (uint32_t i = 0; i < f->leases->line_count && f->copying > 0 && is_stuck; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];

        if (f->lines[i].copying == 0 || line->is_cache != (share == 1))
            continue;
        pthread_mutex_lock(&line->lock);
        is_stuck = berthi_add_capped(line->passed_ns, f->late_ns) <= now_ns;
        pthread_mutex_unlock(&line->lock);
    }
    return is_stuck;
}

/* Its copies are still being asked for. */
static bool
is_carried(const berthi_feeder *f, const berthi_stage_buffer *buffer)
{
    const uint64_t line = (uint64_t)(berthi_feeder_line(f, buffer) - f->leases->lines);

    return f->carried > 0 && f->couriers[line].buffer == buffer;
}

bool
berthi_feeder_recycle(berthi_feeder *f)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->stage.allocated && f->copying > 0; i++) {
        berthi_stage_buffer *const buffer = &f->stage.buffers[i];

        if (buffer->state != BERTHI_STAGE_BUSY || is_carried(f, buffer)
            || !poll_copies(f, buffer))
            continue;
        note_past(f, buffer);
        berthi_feeder_release(f, buffer);
        has_any = true;
    }
    atomic_store(&f->leases->is_behind, false);
    return has_any;
}
