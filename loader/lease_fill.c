/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_fill.c - a slot is filled: copies of what lies in host memory, behind its last
 * users; units that the feeder is at.
 */
#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/lease_state.h"

/* In larger pieces nothing else would get a turn on the link. */
#define COPY_BYTES (UINT64_C(64) << 20)

/* ----------------------------------------------------------------------- copies */

berth_status
berthi_lease_copy(const berthi_lease_line *line, const berthi_copy *copy, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint64_t done = 0; done < copy->bytes && status == BERTH_OK; done += COPY_BYTES) {
        berthi_copy piece = *copy;

        piece.to = (uint8_t *)copy->to + done;
        piece.from = (const uint8_t *)copy->from + done;
        piece.bytes = berthi_min_u64(COPY_BYTES, copy->bytes - done);
        status = line->device->table->copy(line->device, &piece, line->stream, error);
    }
    return status;
}

void
berthi_lease_begin_write(berthi_lease_line *line, berthi_lease_slot *slot)
{
    slot->is_written = true;
    line->written++;
    if (line->copying++ == 0)
        line->passed_ns = berthi_sys_now_ns();
    if (line->is_cache)
        berthi_lease_cache_note_use(line, slot);
    pthread_mutex_unlock(&line->lock);
}

void
berthi_lease_end_write(berthi_leases *leases, berthi_lease_line *line,
                       berthi_lease_slot *slot)
{
    pthread_mutex_lock(&line->lock);
    slot->is_written = false;
    line->written--;
    line->copying--;
    line->passed_ns = berthi_sys_now_ns();
    berthi_lease_note_moved(leases, line->passed_ns);
    if (line->is_cache)
        berthi_lease_cache_note_use(line, slot);
    pthread_cond_broadcast(&line->changed);
}

/* What lies in host memory; then, unless more comes from the disk, it is full. */
static berth_status
copy_moves(berthi_lease_line *line, berthi_lease_slot *slot,
           const berthi_lease_unit *unit, uint64_t *copied, berth_error *error)
{
    berth_status status = berthi_lease_follow_users(line, slot, error);

    for (uint32_t i = 0; i < unit->move_count && status == BERTH_OK; i++) {
        const berthi_lease_move *const move = &unit->moves[i];

        status = berthi_lease_copy(line,
                                   &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE,
                                                   .is_pinned = move->is_pinned,
                                                   .to = slot->memory + move->offset,
                                                   .from = move->from,
                                                   .bytes = move->bytes,
                                                   .layer = unit->layer + 1 },
                                   error);
        *copied += status == BERTH_OK ? move->bytes : 0;
    }
    if (status == BERTH_OK && unit->chunk_count == 0)
        status = line->device->table->record(line->device, slot->full, line->stream,
                                             error);
    return status;
}

bool
berthi_lease_is_pinned(const berthi_lease_unit *unit)
{
    bool is_pinned = true;

    for (uint32_t i = 0; i < unit->move_count && is_pinned; i++)
        is_pinned = unit->moves[i].is_pinned;
    return is_pinned;
}

/* The same. Copies that are not pinned wait for the device: nobody else is to wait for that. */
static berth_status
write_moves(berthi_leases *leases, berthi_lease_line *line, berthi_lease_slot *slot,
            berth_error *error)
{
    const berthi_lease_unit *const unit = &leases->units[slot->unit];
    const uint64_t begin_ns = berthi_trace_begin(leases->context);
    const bool is_at_once = berthi_lease_is_pinned(unit);
    uint64_t copied = 0;
    berth_status status;

    if (!is_at_once)
        berthi_lease_begin_write(line, slot);
    status = copy_moves(line, slot, unit, &copied, error);
    if (!is_at_once)
        berthi_lease_end_write(leases, line, slot);
    line->summary.copied_bytes += copied;
    berthi_trace_end(leases->context, BERTH_TRACE_FILL, "", begin_ns, copied,
                     (berthi_trace_of){ BERTH_NO_TENSOR, unit->layer, BERTH_NO_INDEX });
    return status;
}

/* ------------------------------------------------------------------------- fills */

/* Behind those that the feeder is at. */
static void
append_feed(berthi_lease_line *line, berthi_lease_slot *slot)
{
    berthi_lease_slot **last = &line->feeding;

    while (*last != NULL)
        last = &(*last)->next_feed;
    slot->next_feed = NULL;
    *last = slot;
}

void
berthi_lease_end_feed(berthi_lease_line *line, berthi_lease_slot *slot)
{
    berthi_lease_slot **at = &line->feeding;

    while (*at != NULL && *at != slot)
        at = &(*at)->next_feed;
    if (*at != NULL)
        *at = slot->next_feed;
}

void
berthi_lease_fail_slot(berthi_lease_line *line, berthi_lease_slot *slot,
                       berth_status status, const berth_error *error)
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

bool
berthi_lease_fail_feeding(berthi_lease_line *line, berth_status status,
                          const berth_error *error)
{
    berthi_lease_slot *next;
    bool has_any = false;

    for (berthi_lease_slot *slot = line->feeding; slot != NULL; slot = next) {
        next = slot->next_feed;
        if (slot->is_written)
            continue;
        berthi_lease_fail_slot(line, slot, status, error);
        has_any = true;
    }
    return has_any;
}

berth_status
berthi_lease_begin_fill(berthi_leases *leases, berthi_lease_line *line,
                        berthi_lease_slot *slot, uint32_t number, berth_error *error)
{
    const berthi_lease_unit *const unit = &leases->units[number];
    berth_error failure;
    berth_status status;

    slot->unit = number;
    slot->fill = BERTHI_LEASE_FILLING;
    slot->is_unwanted = false;
    status = write_moves(leases, line, slot, &failure);
    if (status != BERTH_OK) {
        if (error != NULL)
            *error = failure;
        berthi_lease_fail_slot(line, slot, status, &failure);
        return status;
    }
    slot->released_count = 0;
    if (slot->is_unwanted && slot->waiters == 0) {
        berthi_lease_empty(line, slot);
        return BERTH_OK;
    }
    if (unit->chunk_count == 0) {
        slot->fill = BERTHI_LEASE_FULL;
        line->summary.filled++;
        return BERTH_OK;
    }
    slot->feed_number = ++line->feed_count;
    slot->feed_left = unit->chunk_count;
    append_feed(line, slot);
    berthi_feeder_wake(leases->feeder);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- experts */

/* Where its copies are not pinned: until nobody else copies into a slot, or for too long. */
static berth_status
await_turn(berthi_leases *leases, berthi_lease_line *line, const berthi_lease_unit *unit,
           berth_error *error)
{
    uint64_t deadline_ns = berthi_lease_feed_deadline(leases);

    while (line->written > 0 && !berthi_lease_is_pinned(unit))
        if (berthi_sys_condition_wait_until(&line->changed, &line->lock, deadline_ns) != 0
            && line->written > 0 && !berthi_lease_put_off(leases, line, &deadline_ns))
            return berthi_lease_fail_time(leases, unit, error);
    return BERTH_OK;
}

berth_status
berthi_lease_fill_taken(berthi_leases *leases, berthi_lease_line *line, uint32_t unit,
                        berth_error *error)
{
    berthi_lease_slot *slot = berthi_lease_cache_find(line, unit);
    berth_status status;

    if (!berthi_lease_is_taken(slot))
        return BERTH_OK;
    status = await_turn(leases, line, &leases->units[unit], error);
    slot = berthi_lease_cache_find(line, unit); /* others may have filled it, and more */
    if (status != BERTH_OK || !berthi_lease_is_taken(slot))
        return status;
    status = berthi_lease_begin_fill(leases, line, slot, unit, error);
    berthi_lease_cache_note_use(line, slot);
    return status;
}
