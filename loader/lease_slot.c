/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_slot.c - the slots of a line, whoever takes turns in them: their begin and end,
 * who waits for them, releases.
 */
#include <string.h>

#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/lease_state.h"

/* The feeder, which knows file and position, is the first to say that a read hangs. */
#define TELL_NS UINT64_C(300000000)

#ifdef BERTH_TESTING
_Atomic uint32_t berthi_lease_without;
#endif

/* ------------------------------------------------------------------- begin, end */

static void
give_back_slot(berthi_device *device, berthi_lease_slot *slot)
{
    device->table->event_destroy(device, slot->full);
    for (uint32_t i = 0; i < BERTHI_LEASE_STREAMS; i++)
        device->table->event_destroy(device, slot->released[i]);
}

static berth_status
init_slot(const berthi_lease_line *line, berthi_lease_slot *slot, uint8_t *memory,
          berth_error *error)
{
    berthi_device *const device = line->device;
    berth_status status = device->table->event_create(device, &slot->full, error);

    slot->memory = memory;
    slot->unit = BERTHI_NO_UNIT;
    for (uint32_t i = 0; i < BERTHI_LEASE_STREAMS && status == BERTH_OK; i++)
        status = device->table->event_create(device, &slot->released[i], error);
    return status;
}

static berth_status
init_lock(berthi_lease_line *line, berth_error *error)
{
    const int failure = berthi_sys_condition_init(&line->changed);

    if (failure != 0)
        return berthi_fail_system(error, failure, NULL, "preparing to wait");
    line->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    line->has_lock = true;
    return BERTH_OK;
}

static berth_status
init_slots(berthi_leases *leases, berthi_lease_line *line, berth_error *error)
{
    uint8_t *const slab = leases->model->tiers[line->tier].slab;
    const uint64_t bytes = line->slot_count * sizeof *line->slots;
    berth_status status = BERTH_OK;

    line->slots = berthi_arena_alloc(&leases->arena, bytes, 8);
    if (line->slots == NULL)
        return berthi_fail_memory(error, "the slots of a device");
    memset(line->slots, 0, bytes);
    for (uint32_t i = 0; i < line->slot_count && status == BERTH_OK; i++)
        status = init_slot(line, &line->slots[i],
                           slab + line->slots_at + i * line->slot_bytes, error);
    /* What no layer fills shows nothing of others: only bytes of layers lie there. */
    if (status == BERTH_OK)
        status = line->device->table->clear(line->device, slab + line->slots_at,
                                            line->slot_count * line->slot_bytes,
                                            line->stream, error);
    if (status == BERTH_OK && line->is_cache && !berthi_lease_cache_init(leases, line))
        status = berthi_fail_memory(error, "the slots of a device");
    return status;
}

berth_status
berthi_lease_line_init(berthi_leases *leases, berthi_lease_line *line, berth_error *error)
{
    berthi_device *const device = line->device;
    berth_status status = init_lock(line, error);

    line->cursor = line->first_unit;
    line->expected = line->first_unit;
    if (BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_LAST_SLOT) && line->slot_count > 1)
        line->slot_count--;
    if (status == BERTH_OK)
        status = device->table->stream_create(device, &line->stream, error);
    if (status == BERTH_OK)
        status = device->table->event_create(device, &line->spare, error);
    return status == BERTH_OK ? init_slots(leases, line, error) : status;
}

uint64_t
berthi_lease_deadline(const berthi_leases *leases)
{
    return berthi_add_capped(berthi_sys_now_ns(), leases->model->wait_ns);
}

uint64_t
berthi_lease_feed_deadline(const berthi_leases *leases)
{
    return berthi_add_capped(berthi_lease_deadline(leases), TELL_NS);
}

/* Others do the same meanwhile: it never goes back. */
void
berthi_lease_note_moved(berthi_leases *leases, uint64_t moved_ns)
{
    uint64_t before_ns = atomic_load(&leases->read_ns);

    while (moved_ns > before_ns
           && !atomic_compare_exchange_weak(&leases->read_ns, &before_ns, moved_ns))
        ;
}

uint64_t
berthi_leases_moved_ns(const berthi_leases *leases)
{
    return leases != NULL ? atomic_load(&leases->read_ns) : 0;
}

/* Copies of the line are under way, and whoever sees that they have passed says so. */
static bool
are_copies_seen(const berthi_leases *leases, const berthi_lease_line *line)
{
    return line->written > 0 || (line->copying > 0 && !atomic_load(&leases->is_behind));
}

/* While its copies are seen nothing else says that the device of a line moves. */
bool
berthi_lease_put_off(const berthi_leases *leases, const berthi_lease_line *line,
                     uint64_t *deadline_ns)
{
    const uint64_t now_ns = berthi_sys_now_ns();
    const uint64_t away_ns = berthi_was_away(*deadline_ns, now_ns) ? now_ns : 0;
    const uint64_t moved_ns =
        are_copies_seen(leases, line) ? line->passed_ns : atomic_load(&leases->read_ns);
    const uint64_t from_ns = berthi_max_u64(away_ns, moved_ns);
    const uint64_t late_ns =
        berthi_add_capped(berthi_add_capped(from_ns, leases->model->wait_ns), TELL_NS);

    if (late_ns <= *deadline_ns)
        return false;
    *deadline_ns = late_ns;
    return true;
}

berth_status
berthi_lease_follow_users(const berthi_lease_line *line, const berthi_lease_slot *slot,
                          berth_error *error)
{
    berth_status status = BERTH_OK;

    if (BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_FREE_WAIT))
        return BERTH_OK;
    for (uint32_t i = 0; i < slot->released_count && status == BERTH_OK; i++)
        status = line->device->table->wait(line->device, line->stream, slot->released[i],
                                           error);
    return status;
}

/* Nothing of a device that is lost or stands still is waited for any longer. */
static void
wait_for_copies(const berthi_leases *leases, berthi_lease_line *line)
{
    const berthi_device_table *const table = line->device->table;

    if (table->record(line->device, line->spare, line->stream, NULL) == BERTH_OK)
        (void)table->await(line->device, line->spare, berthi_lease_deadline(leases),
                           NULL);
}

/*
 * Whoever has released a slot may be behind the copies that hang, and reads it afterwards:
 * it counts as well.
 */
bool
berthi_lease_line_hangs(berthi_lease_line *line, uint64_t deadline_ns)
{
    if (line->stream == NULL || line->spare == NULL)
        return false;
    line->end = (berthi_stream_end){ .device = line->device,
                                     .stream = line->stream,
                                     .event = line->spare };
    if (!berthi_stream_hangs(&line->end, deadline_ns))
        return false;
    for (uint32_t i = 0; line->slots != NULL && i < line->slot_count; i++)
        (void)berthi_lease_follow_users(line, &line->slots[i], NULL);
    line->end.is_recorded = false;
    return true;
}

void
berthi_lease_line_fini(berthi_leases *leases, berthi_lease_line *line)
{
    if (line->device == NULL)
        return;
    if (line->stream != NULL && line->spare != NULL && line->end.device == NULL)
        wait_for_copies(leases, line);
    for (uint32_t i = 0; line->slots != NULL && i < line->slot_count; i++)
        give_back_slot(line->device, &line->slots[i]);
    line->device->table->event_destroy(line->device, line->spare);
    line->device->table->stream_destroy(line->device, line->stream);
    if (line->has_lock) {
        pthread_cond_destroy(&line->changed);
        pthread_mutex_destroy(&line->lock);
    }
}

/* ---------------------------------------------------------------------- settling */

static bool
is_past(const berthi_lease_line *line, berthi_event *event)
{
    bool is_past = false;

    return line->device->table->query(line->device, event, &is_past, NULL) == BERTH_OK
           && is_past;
}

/* Of the fills and the releases of its slots. */
static uint32_t
count_past(const berthi_lease_line *line)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < line->slot_count; i++) {
        const berthi_lease_slot *const slot = &line->slots[i];

        count += is_past(line, slot->full);
        for (uint32_t k = 0; k < slot->released_count; k++)
            count += is_past(line, slot->released[k]);
    }
    return count;
}

/* All that its stream was asked for: the time begins anew where some of it has ended in it. */
static berth_status
await_stream(const berthi_leases *leases, const berthi_lease_line *line,
             const berth_job *job, berth_error *error)
{
    berth_status status;
    uint32_t before;

    do {
        before = count_past(line);
        status = berthi_await_event(job, line->device, line->spare,
                                    berthi_lease_deadline(leases), error);
    } while (status == BERTH_PENDING && count_past(line) > before);
    return status;
}

berth_status
berthi_lease_line_settle(berthi_leases *leases, berthi_lease_line *line,
                         const berth_job *job, berth_error *error)
{
    const berthi_device_table *const table = line->device->table;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < line->slot_count && status == BERTH_OK; i++)
        status = berthi_lease_follow_users(line, &line->slots[i], error);
    if (status == BERTH_OK)
        status = table->record(line->device, line->spare, line->stream, error);
    if (status == BERTH_OK) {
        pthread_mutex_unlock(&line->lock); /* others ask what has been leased */
        status = await_stream(leases, line, job, error);
        pthread_mutex_lock(&line->lock);
    }
    return status != BERTH_PENDING
               ? status
               : berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                             "work that uses streamed layers does not end");
}

/* ------------------------------------------------------------------------- slots */

berthi_lease_slot *
berthi_lease_find_slot(berthi_lease_line *line, uint32_t unit)
{
    for (uint32_t i = 0; i < line->slot_count; i++)
        if (line->slots[i].unit == unit && line->slots[i].fill != BERTHI_LEASE_FAILED)
            return &line->slots[i];
    return NULL;
}

void
berthi_lease_empty(berthi_lease_line *line, berthi_lease_slot *slot)
{
    berthi_lease_end_feed(line, slot);
    slot->fill = BERTHI_LEASE_EMPTY;
    if (line->is_cache)
        berthi_lease_cache_drop(line, slot);
    slot->unit = BERTHI_NO_UNIT;
    slot->emptied = ++line->emptied;
}

/* ------------------------------------------------------------------------ waiting */

berthi_about
berthi_lease_about(const berthi_leases *leases, const berthi_lease_unit *unit)
{
    return berthi_plan_about_layer(leases->model->plan, unit->layer);
}

berth_status
berthi_lease_fail_time(const berthi_leases *leases, const berthi_lease_unit *unit,
                       berth_error *error)
{
    const berthi_lease_line *const line = &leases->lines[unit->line];
    berthi_about about = berthi_lease_about(leases, unit);

    if (are_copies_seen(leases, line)
        && berthi_sys_now_ns() - line->passed_ns >= leases->model->wait_ns)
        return berthi_model_fail_copies(leases->model, line->device, &about, error);
    return berthi_fail(error, BERTH_REASON_TIMEOUT, &about,
                       unit->chunk_count > 0
                           ? "this layer did not come from the disk in time"
                           : "this layer had to wait for others, which did not come in time");
}

/* What became of it, for somebody who waits no longer. */
static berth_status
tell_fill(const berthi_leases *leases, const berthi_lease_line *line,
          const berthi_lease_slot *slot, berth_error *error)
{
    if (slot->fill == BERTHI_LEASE_FULL)
        return BERTH_OK;
    if (slot->fill == BERTHI_LEASE_FILLING)
        return berthi_lease_fail_time(leases, &leases->units[slot->unit], error);
    if (error != NULL)
        *error = line->error;
    return line->status;
}

void
berthi_lease_let_go_of(berthi_lease_line *line, berthi_lease_slot *slot)
{
    slot->waiters--;
    if (slot->fill == BERTHI_LEASE_FAILED && slot->waiters == 0) {
        berthi_lease_empty(line, slot);
        pthread_cond_broadcast(&line->changed); /* whoever wants a slot */
    }
}

berth_status
berthi_lease_await_feeder(berthi_leases *leases, berthi_lease_line *line,
                          berthi_lease_slot *slot, uint64_t deadline_ns,
                          berth_error *error)
{
    uint64_t begin_ns;
    berth_status status;
    int failure = 0;

    if (slot->fill == BERTHI_LEASE_FULL)
        return BERTH_OK;
    begin_ns = berthi_trace_begin(leases->context);
    line->summary.host_waits++;
    slot->waiters++;
    berthi_feeder_wake(leases->feeder); /* it may be waiting for this line's turn */
    while (slot->fill == BERTHI_LEASE_FILLING
           && (failure == 0 || berthi_lease_put_off(leases, line, &deadline_ns)))
        failure =
            berthi_sys_condition_wait_until(&line->changed, &line->lock, deadline_ns);
    berthi_trace_end(leases->context, BERTH_TRACE_WAIT, "caller", begin_ns, 0,
                     BERTHI_TRACE_NOTHING);
    status = tell_fill(leases, line, slot, error);
    berthi_lease_let_go_of(line, slot);
    return status;
}

/* ---------------------------------------------------------------------- releases */

/*
 * A caller's stream may be gone by now, busy still, and another one have its handle: that one
 * waits for what is over where it is the same, so that one event stands for both.
 */
berth_status
berthi_lease_record_release(berthi_lease_line *line, berthi_lease_slot *slot,
                            berthi_stream *stream, berth_error *error)
{
    const berthi_device_table *const table = line->device->table;
    uint32_t i = 0;
    berth_status status;

    while (i < slot->released_count && slot->streams[i] != stream)
        i++;
    if (i == BERTHI_LEASE_STREAMS) {
        status = table->record(line->device, line->spare, stream, error);
        return status == BERTH_OK
                   ? table->wait(line->device, line->stream, line->spare, error)
                   : status;
    }
    status = BERTH_OK;
    if (i < slot->released_count)
        status = table->wait(line->device, stream, slot->released[i], error);
    if (status == BERTH_OK)
        status = table->record(line->device, slot->released[i], stream, error);
    if (status == BERTH_OK && i == slot->released_count) {
        slot->streams[i] = stream;
        slot->released_count++;
    }
    return status;
}
