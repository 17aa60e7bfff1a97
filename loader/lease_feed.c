/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed.c - the thread that brings units from the disk.
 *
 *   chunks of layers, in their order, endlessly       chunks of experts, when they are
 *     │ read ahead as far as buffers go                 │ asked for        intake.h
 *     ▼                                                 ▼
 *   ring    a chunk whose unit a line is at is copied into its slot; its buffer is free
 *           when that copy has passed
 *
 * Both have buffers of their own, so neither keeps the other waiting: few at first, and
 * more as long as that makes reading faster, see tune.h.
 *
 * Copies to a device that hangs keep their buffers. They leave one at least to each other line;
 * where somebody else waits and no copy has passed for long, what is full for such a line is
 * given up, and nothing is read for it until one has. The thread itself waits for no device but
 * where nobody else would: see lease_feed_courier.c.
 *
 * A read that failed stops reading. What is in the ring is still handed out; the unit
 * that waits for more fails with it, and whoever asks again has it read again. After a
 * read that hangs that is as soon as it has come back.
 */
#include <string.h>

#include "kernels/sys.h"
#include "loader/lease_feed.h"

#define STACK_BYTES (256u * 1024u)
#define IDLE_NS UINT64_C(50000000)  /* nothing but a wake ends it earlier */
#define POLL_NS UINT64_C(100000)    /* reads and copies are under way */
#define COPY_NS UINT64_C(1000000)   /* copies alone */
#define HASTE_NS UINT64_C(300000)   /* a test's feeder has so much less */
#define LATE_NS UINT64_C(200000000) /* copies, which may wait for work of the caller's, */
#define LATE_PART 4u                /* or such a part of the longest wait */

/* ------------------------------------------------------------------------ failing */

/*
 * Reads hang: whoever waits is told, and nothing else is read before they come back.
 * True: somebody was.
 */
static bool
fail_waiters(berthi_feeder *f)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->leases->line_count; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];

        pthread_mutex_lock(&line->lock);
        has_any |= berthi_lease_fail_feeding(line, f->status, &f->error);
        pthread_mutex_unlock(&line->lock);
    }
    return has_any;
}

/*
 * Nothing is being read any more after a failure: units that wait for it fail, and
 * reading begins anew when one is asked for again. True: one has failed.
 */
static bool
give_up(berthi_feeder *f)
{
    bool has_any = false;

    if (f->has_failed && f->intake.is_late) {
        f->was_late = true;
        return fail_waiters(f);
    }
    if (!f->has_failed || f->intake.in_flight > 0)
        return false;
    for (uint32_t i = 0; i < f->stage.allocated; i++)
        if (f->stage.buffers[i].state == BERTHI_STAGE_FILLING)
            berthi_feeder_release(f, &f->stage.buffers[i]);
    if (f->was_late) { /* who waited has been told: for others nothing is wrong */
        f->was_late = f->has_failed = false;
        return true;
    }
    for (uint32_t i = 0; i < f->leases->line_count; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];
        berthi_lease_slot *slot;
        uint64_t chunk;

        /*
         * Into a slot that may be the one that misses more. It is told later: what it misses is
         * read again, and fails again.
         */
        if (berthi_courier_is_busy(f, i))
            continue;
        pthread_mutex_lock(&line->lock);
        while ((slot = berthi_feeder_find_missing(f, line, &chunk)) != NULL) {
            berthi_lease_fail_slot(line, slot, f->status, &f->error);
            if (!line->is_cache)
                f->cursor = chunk;
            has_any = true;
        }
        pthread_mutex_unlock(&line->lock);
    }
    f->has_failed = !has_any;
    return has_any;
}

/* ------------------------------------------------------------------------- thread */

/* A copy, rather than one that is late; NULL: none can be waited for. */
static const berthi_stage_buffer *
find_copy(const berthi_feeder *f)
{
    const berthi_stage_buffer *late = NULL;

    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        const berthi_stage_buffer *const buffer = &f->stage.buffers[i];

        if (buffer->state != BERTHI_STAGE_BUSY || !f->is_recorded[i])
            continue;
        if (!berthi_feeder_line_state_of(f, buffer)->is_late)
            return buffer;
        late = buffer;
    }
    return late;
}

/* False: it cannot be waited for, as when each call of the device fails. */
static bool
await_copy(berthi_feeder *f)
{
    const berthi_stage_buffer *const buffer = find_copy(f);
    berthi_device *device;
    berth_status status;

    if (buffer == NULL)
        return false;
    device = berthi_feeder_line(f, buffer)->device;
    status = device->table->await(device, berthi_feeder_state_of(f, buffer)->copied,
                                  berthi_sys_now_ns() + COPY_NS, NULL);
    return status == BERTH_OK || status == BERTH_PENDING;
}

/* As intake.h; whoever waits for a layer is told that reads come back. */
static void
wait_for_reads(berthi_feeder *f, uint64_t deadline_ns)
{
    berth_error error;
    const berth_status status = berthi_intake_wait(&f->intake, deadline_ns, &error);

    berthi_lease_note_moved(f->leases, f->intake.moved_ns);
    if (status != BERTH_OK)
        berthi_feeder_fail_reading(f, status, &error);
}

static void
wait_for_news(berthi_feeder *f)
{
    const bool is_tuned = !f->tune.is_settled && f->intake.in_flight > 0;
    const bool is_idle = is_tuned && berthi_feeder_is_idle(f);
    uint64_t begin_ns;

    /* Couriers wake it, as whoever wants something does. */
    if (f->copying > 0 && f->carried == 0 && f->intake.in_flight == 0 && await_copy(f))
        return;
    begin_ns = berthi_sys_now_ns();
    wait_for_reads(f, begin_ns + (f->copying > f->carried ? POLL_NS : IDLE_NS));
    if (is_tuned)
        berthi_feeder_tune(f, berthi_sys_now_ns() - begin_ns, is_idle);
}

/* What has come back by now. */
static void
take_news(berthi_feeder *f)
{
    uint32_t before;

    do {
        before = f->intake.in_flight;
        wait_for_reads(f, 0);
    } while (f->intake.in_flight < before);
}

/* Everything that goes without waiting; false: nothing did. */
static bool
work(berthi_feeder *f)
{
    bool has_any = berthi_feeder_follow(f);

    has_any |= berthi_couriers_take(f);
    has_any |= berthi_feeder_recycle(f);
    has_any |= berthi_feeder_read_experts(f);
    has_any |= berthi_feeder_read_ahead(f);
    has_any |= berthi_feeder_copy(f);
    has_any |= give_up(f);
    if (!has_any && f->intake.in_flight == 0 && BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_HASTE))
        berthi_sys_sleep(HASTE_NS);
    for (uint32_t share = 0; share < 2 && !has_any; share++)
        has_any = berthi_feeder_unstick(f, share);
    return has_any;
}

static void *
run(void *argument)
{
    berthi_feeder *const f = argument;

    while (!atomic_load(&f->is_stopped)) {
        f->has_grown = false;
        if (!work(f))
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

/* False: out of memory. */
static bool
alloc_tables(berthi_feeder *f)
{
    berthi_arena *const arena = &f->leases->arena;
    const uint64_t capacity = f->stage.capacity;
    const uint64_t buffers = capacity * f->leases->line_count * sizeof *f->buffers;
    const uint64_t states = f->chunks->chunk_count * sizeof *f->states;
    const uint64_t lines = f->leases->line_count * sizeof *f->lines;
    const uint64_t couriers = f->leases->line_count * sizeof *f->couriers;

    f->states = berthi_arena_alloc(arena, states, 8);
    f->is_known = berthi_arena_alloc(arena, capacity, 1);
    f->is_recorded = berthi_arena_alloc(arena, capacity, 1);
    f->buffers = berthi_arena_alloc(arena, buffers, 8);
    f->lines = berthi_arena_alloc(arena, lines, 8);
    f->couriers = berthi_arena_alloc(arena, couriers, 8);
    if (f->states == NULL || f->is_known == NULL || f->is_recorded == NULL
        || f->buffers == NULL || f->lines == NULL || f->couriers == NULL) {
        f->buffers = NULL; /* none of them holds anything that is given back */
        f->couriers = NULL;
        return false;
    }
    memset(f->states, 0, states);
    memset(f->is_known, 0, capacity);
    memset(f->is_recorded, 0, capacity);
    memset(f->buffers, 0, buffers);
    memset(f->lines, 0, lines);
    memset(f->couriers, 0, couriers);
    return true;
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
    f->late_ns = berthi_min_u64(LATE_NS, leases->model->wait_ns / LATE_PART);
    status = berthi_stage_init(&f->stage, leases->context,
                               berthi_chunks_buffer_bytes(f->chunks, leases->context),
                               berthi_feeder_capacity(f->chunks, options->ring_bytes),
                               leases->file_count, has_call, error);
    if (status == BERTH_OK && !alloc_tables(f))
        status = berthi_fail_memory(error, "the ring of what is streamed");
    if (status == BERTH_OK)
        status = berthi_intake_init(&f->intake,
                                    &(berthi_freight){ .context = leases->context,
                                                       .files = leases->files,
                                                       .file_count = leases->file_count,
                                                       .chunks = f->chunks },
                                    &reading, &f->stage, &f->stats, error);
    f->intake.is_endless = true;
    if (status == BERTH_OK) {
        berthi_feeder_begin_tuning(f);
        status = berthi_feeder_create_events(f, error);
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
            berthi_feeder_unpin(f, &f->stage.buffers[i]);
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
    berthi_couriers_stop(feeder);
    end_reading(feeder);
}

void
berthi_feeder_destroy(berthi_feeder *feeder)
{
    if (feeder == NULL)
        return;
    berthi_feeder_stop(feeder);
    for (uint32_t i = 0; i < feeder->stage.allocated; i++)
        berthi_feeder_unpin(feeder, &feeder->stage.buffers[i]);
    if (feeder->buffers != NULL)
        berthi_feeder_destroy_events(feeder);
    if (feeder->stage.buffers != NULL)
        berthi_stage_fini(&feeder->stage);
    berthi_memory_free(feeder->leases->context, BERTHI_PURPOSE_OBJECT, feeder,
                       sizeof *feeder);
}
