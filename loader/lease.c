/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c - acquire and release: who may use what lies in the slots.
 *
 * Both are a few comparisons and one or two calls of the device; the host waits for the
 * disk, and for copies that are not pinned. A lease that would need a slot which only its
 * caller can empty is refused, so callers with several leases cannot wait for themselves.
 */
#include "loader/lease.h"

#include <string.h>

#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/job.h"
#include "loader/lease_state.h"

#define DEFAULT_RING_BYTES (UINT64_C(256) << 20)

/* ------------------------------------------------------------------- begin, end */

/* As the plan's, where it has one. */
static uint64_t
choose_ring(const berth_model *model, const berthi_lease_options *options)
{
    uint64_t ring = 0;
    uint32_t devices = 0;

    if (options->ring_bytes > 0)
        return options->ring_bytes;
    for (uint32_t t = 0; t < model->tier_count; t++) {
        ring += model->plan->tiers[t].staging;
        devices += model->tiers[t].kind == BERTH_TIER_GPU;
    }
    return ring > 0 && devices > 0 ? ring / devices : DEFAULT_RING_BYTES;
}

/* What comes first is on its way before anybody asks. */
static berth_status
begin_lines(berthi_leases *leases, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
        return BERTH_OK;
    for (uint32_t i = 0; i < leases->line_count && status == BERTH_OK; i++) {
        if (leases->lines[i].is_cache)
            continue;
        pthread_mutex_lock(&leases->lines[i].lock);
        status = berthi_lease_pump(leases, &leases->lines[i], BERTHI_NO_UNIT, error);
        pthread_mutex_unlock(&leases->lines[i].lock);
    }
    return status;
}

/* As berthi_leases_hang(); so long is waited, for all lines together. */
static bool
hang(berthi_leases *leases, uint64_t patience_ns)
{
    uint64_t deadline_ns;
    bool hang = false;

    berthi_feeder_stop(leases->feeder);
    deadline_ns =
        leases->is_late ? 0 : berthi_add_capped(berthi_sys_now_ns(), patience_ns);
    for (uint32_t i = 0; i < leases->line_count; i++)
        hang |= berthi_lease_line_hangs(&leases->lines[i], deadline_ns);
    leases->is_late = hang;
    return hang;
}

berth_status
berthi_leases_create(berth_model *model, const berthi_lease_options *options,
                     berthi_leases **out, berth_error *error)
{
    const uint64_t ring_bytes = choose_ring(model, options);
    berthi_lease_options chosen = *options;
    berthi_leases *leases;
    berth_status status;

    *out = NULL;
    leases = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT, sizeof *leases);
    if (leases == NULL)
        return berthi_fail_memory(error, "the layers that are streamed");
    leases->context = model->context;
    leases->model = model;
    berthi_arena_init(&leases->arena, model->context, BERTHI_PURPOSE_OBJECT,
                      UINT64_C(16) << 10);
    leases->held_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    chosen.ring_bytes = ring_bytes;
    status =
        berthi_lease_units_list(leases, berthi_feeder_chunk_bytes(ring_bytes), error);
    for (uint32_t i = 0; i < leases->line_count && status == BERTH_OK; i++)
        status = berthi_lease_line_init(leases, &leases->lines[i], error);
    if (status == BERTH_OK && leases->chunks.chunk_count > 0)
        status = berthi_feeder_create(leases, &chosen, &leases->feeder, error);
    if (status == BERTH_OK)
        status = begin_lines(leases, error);
    if (status != BERTH_OK && hang(leases, berthi_patience(model->context, model->wait_ns))) {
        *out = leases;
        return status;
    }
    if (status != BERTH_OK || (leases->unit_count == 0 && !leases->has_experts)) {
        berthi_leases_destroy(leases);
        return status;
    }
    *out = leases;
    return BERTH_OK;
}

bool
berthi_leases_hang(berthi_leases *leases)
{
    return leases != NULL && hang(leases, leases->model->wait_ns);
}

bool
berthi_leases_are_over(berthi_leases *leases)
{
    for (uint32_t i = 0; i < leases->line_count; i++) {
        berthi_stream_end *const end = &leases->lines[i].end;

        /* A line that was never made has none. */
        if (end->device != NULL && !berthi_stream_is_over(end))
            return false;
    }
    return true;
}

void
berthi_leases_destroy(berthi_leases *leases)
{
    if (leases == NULL)
        return;
    berthi_feeder_stop(leases->feeder);
    for (uint32_t i = 0; i < leases->line_count; i++)
        berthi_lease_line_fini(leases, &leases->lines[i]);
    berthi_feeder_destroy(leases->feeder);
    pthread_mutex_destroy(&leases->held_lock);
    berthi_arena_fini(&leases->arena);
    berthi_memory_free(leases->context, BERTHI_PURPOSE_OBJECT, leases, sizeof *leases);
}

/* ---------------------------------------------------------------------- failing */

static berth_status
check_layer(const berthi_leases *leases, uint32_t layer, berth_error *error)
{
    if (layer < leases->model->plan->summary.layer_count)
        return BERTH_OK;
    return berthi_fail_argument(error, "layer", "is none of the plan's");
}

static berth_status
refuse_slots(const berthi_leases *leases, const berthi_lease_unit *unit,
             berth_error *error)
{
    const berthi_lease_line *const line = &leases->lines[unit->line];
    berthi_about about = berthi_lease_about(leases, unit);

    return berthi_fail(error, BERTH_REASON_SLOTS, &about,
                       "all %u slots of \"%s\" are leased", (unsigned)line->slot_count,
                       leases->model->plan->tiers[line->tier].name);
}

static berth_status
refuse_release(const berthi_leases *leases, const berthi_lease_unit *unit,
               berth_error *error)
{
    berthi_about about = berthi_lease_about(leases, unit);

    return berthi_fail(error, BERTH_REASON_LEASE, &about, "this layer is not leased");
}

/* ----------------------------------------------------------------------- acquire */

bool
berthi_leases_stream(const berthi_leases *leases, uint32_t layer)
{
    return leases != NULL && berthi_lease_unit_of(leases, layer) != NULL;
}

/* Now, or when those who wait have seen that it failed. */
static bool
has_slot_to_give(const berthi_lease_line *line)
{
    for (uint32_t i = 0; i < line->slot_count; i++)
        if ((line->slots[i].leases == 0 && line->slots[i].waiters == 0)
            || line->slots[i].fill == BERTHI_LEASE_FAILED)
            return true;
    return false;
}

/*
 * The slot in which the unit is, or is going to be. NULL with BERTH_OK: the feeder is at
 * another unit that somebody waits for, somebody copies another one from memory, or has not
 * seen yet that a slot failed.
 */
static berth_status
find_or_fill(berthi_leases *leases, berthi_lease_line *line, uint32_t number,
             berthi_lease_slot **out_slot, berth_error *error)
{
    const bool is_in_order = number == line->expected;
    berth_status status;

    *out_slot = berthi_lease_find_slot(line, number);
    if (*out_slot != NULL
        && (is_in_order || (*out_slot)->leases > 0 || (*out_slot)->waiters > 0))
        return BERTH_OK;
    if (*out_slot == NULL && !has_slot_to_give(line))
        return refuse_slots(leases, &leases->units[number], error);
    line->summary.order_misses += !is_in_order;
    line->expected = number;
    line->is_halted = false;
    berthi_lease_move_to(leases, line, number);
    status = berthi_lease_pump(leases, line, number, error);
    *out_slot = berthi_lease_find_slot(line, number);
    return *out_slot != NULL ? BERTH_OK : status;
}

/* The same, until there is one. */
static berth_status
await_slot(berthi_leases *leases, berthi_lease_line *line, uint32_t number,
           uint64_t deadline_ns, berthi_lease_slot **out_slot, berth_error *error)
{
    berth_status status = find_or_fill(leases, line, number, out_slot, error);
    uint64_t begin_ns;

    if (status != BERTH_OK || *out_slot != NULL)
        return status;
    begin_ns = berthi_trace_begin(leases->context);
    line->summary.host_waits++;
    while (status == BERTH_OK && *out_slot == NULL) {
        if (berthi_sys_condition_wait_until(&line->changed, &line->lock, deadline_ns) == 0
            || berthi_lease_put_off(leases, line, &deadline_ns))
            status = find_or_fill(leases, line, number, out_slot, error);
        else
            status = berthi_lease_fail_time(leases, &leases->units[number], error);
    }
    berthi_trace_end(leases->context, BERTH_TRACE_WAIT, "caller", begin_ns, 0,
                     BERTHI_TRACE_NOTHING);
    return status;
}

static berth_status
lease(berthi_leases *leases, berthi_lease_line *line, uint32_t number,
      berthi_stream *stream, berth_error *error)
{
    const uint64_t deadline_ns = berthi_lease_feed_deadline(leases);
    berthi_lease_slot *slot;
    berth_status status = await_slot(leases, line, number, deadline_ns, &slot, error);

    if (status == BERTH_OK)
        status = berthi_lease_await_feeder(leases, line, slot, deadline_ns, error);
    if (status == BERTH_OK && !BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_FULL_WAIT))
        status = line->device->table->wait(line->device, stream, slot->full, error);
    if (status != BERTH_OK)
        return status;
    if (number == line->expected)
        line->expected = berthi_lease_unit_after(line, number);
    slot->leases++;
    line->summary.acquired++;
    return BERTH_OK;
}

berth_status
berthi_leases_acquire(berthi_leases *leases, uint32_t layer, berthi_stream *stream,
                      berth_error *error)
{
    const berthi_lease_unit *const unit = berthi_lease_unit_of(leases, layer);
    berthi_lease_line *line;
    berth_status status;

    if (unit == NULL)
        return check_layer(leases, layer, error);
    line = &leases->lines[unit->line];
    pthread_mutex_lock(&line->lock);
    status = lease(leases, line, (uint32_t)(unit - leases->units), stream, error);
    pthread_mutex_unlock(&line->lock);
    return status;
}

/* ----------------------------------------------------------------------- release */

static berth_status
end_lease(berthi_leases *leases, berthi_lease_line *line, const berthi_lease_unit *unit,
          berthi_stream *stream, berth_error *error)
{
    berthi_lease_slot *const slot =
        berthi_lease_find_slot(line, (uint32_t)(unit - leases->units));
    berth_status status;

    if (slot == NULL || slot->leases == 0)
        return refuse_release(leases, unit, error);
    status = berthi_lease_record_release(line, slot, stream, error);
    if (status != BERTH_OK)
        return status;
    slot->leases--;
    if (slot->leases > 0 || slot->waiters > 0)
        return BERTH_OK;
    berthi_lease_empty(line, slot);
    /* What cannot be brought now is brought, or refused, when it is asked for. */
    if (!BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
        (void)berthi_lease_pump(leases, line, BERTHI_NO_UNIT, NULL);
    return BERTH_OK;
}

berth_status
berthi_leases_release(berthi_leases *leases, uint32_t layer, berthi_stream *stream,
                      berth_error *error)
{
    const berthi_lease_unit *const unit = berthi_lease_unit_of(leases, layer);
    berthi_lease_line *line;
    berth_status status;

    if (unit == NULL)
        return check_layer(leases, layer, error);
    line = &leases->lines[unit->line];
    pthread_mutex_lock(&line->lock);
    status = end_lease(leases, line, unit, stream, error);
    pthread_mutex_unlock(&line->lock);
    return status;
}

/* ---------------------------------------------------------------------- prefetch */

/* The line goes on with this unit, unless somebody has it. */
static void
expect(berthi_leases *leases, berthi_lease_line *line, uint32_t number)
{
    const berthi_lease_slot *const slot = berthi_lease_find_slot(line, number);

    if (slot != NULL
        && (number == line->expected || slot->leases > 0 || slot->waiters > 0))
        return;
    line->expected = number;
    berthi_lease_move_to(leases, line, number);
    /* What cannot be brought now is brought, or refused, when it is asked for. */
    if (!BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
        (void)berthi_lease_pump(leases, line, BERTHI_NO_UNIT, NULL);
}

berth_status
berthi_leases_prefetch(berthi_leases *leases, uint32_t layer, berth_error *error)
{
    const berthi_lease_unit *const unit = berthi_lease_unit_of(leases, layer);
    berthi_lease_line *line;

    if (unit == NULL)
        return check_layer(leases, layer, error);
    line = &leases->lines[unit->line];
    pthread_mutex_lock(&line->lock);
    expect(leases, line, (uint32_t)(unit - leases->units));
    pthread_mutex_unlock(&line->lock);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- sleep */

static berth_status
refuse_leased(const berthi_leases *leases, const berthi_lease_slot *slot,
              berth_error *error)
{
    berthi_about about = berthi_lease_about(leases, &leases->units[slot->unit]);

    return berthi_fail(error, BERTH_REASON_LEASED, &about, "this layer is leased");
}

/* Nobody copies into a slot of the line. */
static berth_status
await_written(const berthi_leases *leases, berthi_lease_line *line, const berth_job *job,
              berth_error *error)
{
    berthi_watch watch = berthi_watch_begin(leases->model->wait_ns, BERTHI_CANCEL_NS);
    uint64_t passed_ns = line->passed_ns;

    while (line->written > 0) {
        if (passed_ns != line->passed_ns) /* a release fills one slot after the other */
            watch = berthi_watch_begin(leases->model->wait_ns, BERTHI_CANCEL_NS);
        passed_ns = line->passed_ns;
        if (job != NULL && berthi_job_is_cancelled(job))
            return berthi_job_fail_cancelled(error);
        if (berthi_watch_is_over(&watch))
            return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                               "copies of streamed layers do not end");
        (void)berthi_sys_condition_wait_until(&line->changed, &line->lock,
                                              watch.back_ns);
    }
    return BERTH_OK;
}

/* What the feeder is at would be copied later; then what has been asked for. */
static berth_status
settle_line(berthi_leases *leases, berthi_lease_line *line, const berth_job *job,
            berth_error *error)
{
    const berth_status status = await_written(leases, line, job, error);

    if (status != BERTH_OK)
        return status;
    while (line->feeding != NULL)
        berthi_lease_empty(line, line->feeding);
    return berthi_lease_line_settle(leases, line, job, error);
}

berth_status
berthi_leases_settle(berthi_leases *leases, const berth_job *job, berth_error *error)
{
    berth_status status = berthi_lease_check_held(leases, error);

    for (uint32_t i = 0; i < leases->line_count && status == BERTH_OK; i++) {
        berthi_lease_line *const line = &leases->lines[i];
        const berthi_lease_slot *leased = NULL;

        pthread_mutex_lock(&line->lock);
        for (uint32_t s = 0; s < line->slot_count; s++)
            if (line->slots[s].leases > 0)
                leased = &line->slots[s];
        status = leased != NULL ? refuse_leased(leases, leased, error)
                                : settle_line(leases, line, job, error);
        pthread_mutex_unlock(&line->lock);
    }
    return status;
}

/* ------------------------------------------------------------------------ asking */

uint8_t *
berthi_leases_find(berthi_leases *leases, uint64_t berth)
{
    const uint32_t layer = leases->model->plan->berths[berth].layer;
    const berthi_lease_unit *const unit = berthi_lease_unit_of(leases, layer);
    uint8_t *memory = NULL;
    berthi_lease_line *line;
    berthi_lease_slot *slot;
    uint64_t offset;

    if (leases->model->plan->berths[berth].is_expert)
        return berthi_experts_find(leases, berth);
    if (unit == NULL)
        return NULL;
    offset = berthi_lease_offset_of(unit, berth);
    if (offset == UINT64_MAX)
        return NULL;
    line = &leases->lines[unit->line];
    pthread_mutex_lock(&line->lock);
    slot = berthi_lease_find_slot(line, (uint32_t)(unit - leases->units));
    if (slot != NULL && slot->leases > 0)
        memory = slot->memory + offset;
    pthread_mutex_unlock(&line->lock);
    return memory;
}

/* A line counts what it fills, whatever it is; experts are told apart here. */
static berth_lease_summary
count_line(const berthi_lease_line *line)
{
    berth_lease_summary sum = line->summary;

    if (!line->is_cache)
        return sum;
    sum.experts_filled = sum.filled;
    sum.expert_bytes = sum.copied_bytes;
    sum.expert_disk_bytes = sum.disk_bytes;
    sum.filled = sum.copied_bytes = sum.disk_bytes = 0;
    return sum;
}

void
berthi_leases_add(berth_lease_summary *sum, const berth_lease_summary *more)
{
    sum->acquired += more->acquired;
    sum->filled += more->filled;
    sum->copied_bytes += more->copied_bytes;
    sum->disk_bytes += more->disk_bytes;
    sum->order_misses += more->order_misses;
    sum->host_waits += more->host_waits;
    sum->experts_acquired += more->experts_acquired;
    sum->expert_hits += more->expert_hits;
    sum->experts_filled += more->experts_filled;
    sum->expert_bytes += more->expert_bytes;
    sum->expert_disk_bytes += more->expert_disk_bytes;
}

void
berthi_leases_summary(berthi_leases *leases, berth_lease_summary *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < leases->line_count; i++) {
        berthi_lease_line *const line = &leases->lines[i];
        berth_lease_summary sum;

        pthread_mutex_lock(&line->lock);
        sum = count_line(line);
        berthi_leases_add(out, &sum);
        pthread_mutex_unlock(&line->lock);
    }
}
