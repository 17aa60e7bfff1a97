/* SPDX-License-Identifier: Apache-2.0 */
/* load_place.c - units of a load on their way from the staging buffer to their berth. */
#include <string.h>

#include "kernels/sys.h"
#include "kernels/trace.h"
#include "loader/load_job.h"
#include "quant/format.h"

berthi_about
berthi_load_about(const berthi_load *load, uint64_t berth)
{
    return berthi_checkpoint_about(load->checkpoint, load->plan->berths[berth].number);
}

/* -------------------------------------------------------------------------- hands */

/* Decoded values, and behind them columns. */
static bool
alloc_own(berthi_load *load, berthi_load_hand *hand)
{
    const uint64_t values = berthi_load_pages(load->values_max);
    const uint64_t bytes = values + load->gathered_max;

    if (bytes == 0)
        return true;
    if (!berthi_load_memory_take(load, bytes, load->model->devices != NULL, &hand->own))
        return false;
    hand->values = hand->own.at;
    hand->gathered = hand->own.at + values;
    return true;
}

static void
free_hand(berthi_load *load, berthi_load_hand *hand)
{
    const uint32_t tiers = load->model->tier_count;

    for (uint32_t t = 0; hand->events != NULL && t < tiers; t++)
        if (hand->events[t] != NULL) {
            berthi_device *const device = load->model->tiers[t].device;

            device->table->event_destroy(device, hand->events[t]);
        }
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, hand->events,
                       tiers * sizeof *hand->events);
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, hand->is_used,
                       tiers * sizeof *hand->is_used);
    berthi_load_memory_give(load, &hand->own);
    berthi_load_memory_give(load, &hand->turned);
    berthi_memory_free_aligned(load->context, BERTHI_PURPOSE_SCRATCH, hand->packed,
                               load->packed_max, BERTHI_SLAB_ALIGNMENT);
    berthi_memory_free(load->context, BERTHI_PURPOSE_SCRATCH, hand, sizeof *hand);
}

void
berthi_load_free_hands(berthi_load *load)
{
    berthi_load_hand **at = &load->hands;

    while (*at != NULL) {
        berthi_load_hand *const hand = *at;

        if (load->is_hung && hand->is_copied) {
            at = &hand->next;
            continue;
        }
        *at = hand->next;
        free_hand(load, hand);
    }
}

static berth_status
create_events(berthi_load *load, berthi_load_hand *hand, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t t = 0; t < load->model->tier_count && status == BERTH_OK; t++) {
        berthi_device *const device = load->model->tiers[t].device;

        if (load->tiers[t].stream != NULL)
            status = device->table->event_create(device, &hand->events[t], error);
    }
    return status;
}

/* True when there is as much of it as any piece needs: none of 0 bytes. */
static bool
alloc_packed(const berthi_load *load, berthi_load_hand *hand)
{
    if (load->packed_max == 0)
        return true;
    hand->packed = berthi_memory_aligned(load->context, BERTHI_PURPOSE_SCRATCH,
                                         load->packed_max, BERTHI_SLAB_ALIGNMENT);
    return hand->packed != NULL;
}

static berth_status
create_hand(berthi_load *load, berthi_load_hand **out, berth_error *error)
{
    const uint32_t tiers = load->model->tier_count;
    berthi_load_hand *const hand =
        berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH, sizeof *hand);
    berth_status status;

    if (hand == NULL)
        return berthi_fail_memory(error, "placing a tensor");
    hand->events = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH,
                                        tiers * sizeof *hand->events);
    hand->is_used = berthi_memory_zalloc(load->context, BERTHI_PURPOSE_SCRATCH,
                                         tiers * sizeof *hand->is_used);
    if (!alloc_own(load, hand) || !alloc_packed(load, hand) || hand->events == NULL
        || hand->is_used == NULL)
        status = berthi_fail_memory(error, "placing a tensor");
    else
        status = create_events(load, hand, error);
    if (status == BERTH_OK)
        *out = hand;
    else
        free_hand(load, hand);
    return status;
}

/*
 * One that is free, or a new one: never more than there are workers, but where copies from
 * some have not ended, and the load has failed.
 */
static berth_status
take_hand(berthi_load *load, berthi_load_hand **out, berth_error *error)
{
    berthi_load_hand **at = &load->hands;

    pthread_mutex_lock(&load->lock);
    while (*at != NULL && (*at)->is_copied)
        at = &(*at)->next;
    *out = *at;
    if (*out != NULL)
        *at = (*out)->next;
    pthread_mutex_unlock(&load->lock);
    return *out != NULL ? BERTH_OK : create_hand(load, out, error);
}

static void
give_hand(berthi_load *load, berthi_load_hand *hand)
{
    pthread_mutex_lock(&load->lock);
    hand->next = load->hands;
    load->hands = hand;
    pthread_mutex_unlock(&load->lock);
}

/* Time since then, by the clock of the machine. */
static void
count_since(_Atomic uint64_t *sum, uint64_t begin_ns)
{
    atomic_fetch_add_explicit(sum, berthi_sys_now_ns() - begin_ns, memory_order_relaxed);
}

/* ------------------------------------------------------------------------- copies */

static void
copy_in_host(berthi_load *load, uint32_t tier, void *to, const uint8_t *bytes,
             uint64_t size)
{
    const uint64_t begin_ns = berthi_sys_now_ns();

    berthi_pages_expect(&load->tiers[tier].pages, to, size);
    memcpy(to, bytes, size);
    count_since(&load->tiers[tier].copy_ns, begin_ns);
}

static berth_status
ask_for(berthi_load *load, berthi_load_hand *hand, uint32_t tier, const berthi_copy *copy,
        berth_error *error)
{
    berthi_device *const device = load->model->tiers[tier].device;
    berthi_load_tier *const lane = &load->tiers[tier];
    berth_status status;

    pthread_mutex_lock(&lane->lock);
    status = device->table->copy(device, copy, lane->stream, error);
    pthread_mutex_unlock(&lane->lock);
    hand->is_used[tier] = true;
    return status;
}

/* Asks for the copy that is pending. */
static berth_status
flush(berthi_load *load, berthi_load_hand *hand, berth_error *error)
{
    const berthi_copy copy = hand->pending;

    if (copy.bytes == 0)
        return BERTH_OK;
    hand->pending.bytes = 0;
    return ask_for(load, hand, hand->pending_tier, &copy, error);
}

/* Neighbours in the file are often neighbours in the slab: one copy for both. */
static berth_status
copy_to_device(berthi_load *load, berthi_load_hand *hand, uint32_t tier, void *to,
               const uint8_t *bytes, uint64_t size, berth_error *error)
{
    berthi_copy *const pending = &hand->pending;
    berth_status status;

    if (pending->bytes > 0 && hand->pending_tier == tier &&
        (const uint8_t *)pending->from + pending->bytes == bytes &&
        (uint8_t *)pending->to + pending->bytes == to) {
        pending->bytes += size;
        return BERTH_OK;
    }
    status = flush(load, hand, error);
    hand->pending_tier = tier;
    *pending = (berthi_copy){.kind = BERTHI_COPY_TO_DEVICE,
                             .is_pinned = !atomic_load(&load->has_unpinned),
                             .to = to,
                             .from = bytes,
                             .bytes = size,
                             .layer = hand->layer};
    return status;
}

static berth_status
put(berthi_load *load, berthi_load_hand *hand, uint32_t tier, void *to,
    const uint8_t *bytes, uint64_t size, berth_error *error)
{
    if (load->tiers[tier].stream != NULL)
        return copy_to_device(load, hand, tier, to, bytes, size, error);
    copy_in_host(load, tier, to, bytes, size);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ waiting */

static berth_status
fail_wait(const berthi_load *load, const berthi_load_hand *hand, uint32_t tier,
          berth_error *error)
{
    const berthi_about about = berthi_load_about(load, hand->berth);

    return berthi_model_fail_copies(load->model, load->model->tiers[tier].device, &about,
                                    error);
}

static void
begin_wait(berthi_load *load, berthi_load_tier *lane)
{
    pthread_mutex_lock(&load->lock);
    if (lane->waiting++ == 0)
        lane->moved_ns = berthi_sys_now_ns();
    pthread_mutex_unlock(&load->lock);
}

static void
end_wait(berthi_load *load, berthi_load_tier *lane, berth_status status)
{
    pthread_mutex_lock(&load->lock);
    lane->waiting--;
    if (status == BERTH_OK)
        lane->moved_ns = berthi_sys_now_ns();
    lane->is_late |= status == BERTH_PENDING;
    pthread_mutex_unlock(&load->lock);
}

/*
 * When it is too late for a lane to move: the same for all that wait for it, else one that
 * began to wait later would keep a load which has failed. Whoever gives up is less patient.
 */
static uint64_t
late_ns(berthi_load *load, const berthi_load_tier *lane)
{
    uint64_t wait_ns = load->model->wait_ns;
    uint64_t late;

    pthread_mutex_lock(&load->lock);
    if (load->is_stopped)
        wait_ns = berthi_min_u64(wait_ns, BERTHI_HUNG_NS);
    late = berthi_add_capped(lane->moved_ns, wait_ns);
    pthread_mutex_unlock(&load->lock);
    return late;
}

/* Looks up every few seconds, for then the load may have been given up. */
static berth_status
await_event(berthi_load *load, uint32_t t, berthi_event *event, berth_error *error)
{
    berthi_device *const device = load->model->tiers[t].device;
    berth_status status;

    do {
        const uint64_t late = late_ns(load, &load->tiers[t]);

        status = device->table->await(
            device, event, berthi_min_u64(late, berthi_sys_now_ns() + BERTHI_HUNG_NS),
            error);
    } while (status == BERTH_PENDING
             && berthi_sys_now_ns() < late_ns(load, &load->tiers[t]));
    return status;
}

/* Waits for what the tier's stream was asked for until now. */
static berth_status
await_tier(berthi_load *load, berthi_load_hand *hand, uint32_t t, berth_error *error)
{
    berthi_device *const device = load->model->tiers[t].device;
    const uint64_t begin_ns = berthi_trace_begin(load->context);
    berthi_load_tier *const lane = &load->tiers[t];
    const uint64_t wait_ns = berthi_sys_now_ns();
    berth_status status;

    begin_wait(load, lane);
    status = device->table->record(device, hand->events[t], lane->stream, error);
    if (status == BERTH_OK)
        status = await_event(load, t, hand->events[t], error);
    end_wait(load, lane, status);
    count_since(&lane->copy_ns, wait_ns);
    berthi_trace_end(load->context, BERTH_TRACE_WAIT, "worker", begin_ns, 0,
                     BERTHI_TRACE_NOTHING);
    if (status != BERTH_OK)
        atomic_store(&load->is_unsettled, true);
    return status == BERTH_PENDING ? fail_wait(load, hand, t, error) : status;
}

/*
 * The staging buffer, and the hand's own memory, are free again when all that was asked for
 * here is done: after a failure, too, or else they stay with the load (load_end.c).
 */
static berth_status
settle(berthi_load *load, berthi_load_hand *hand, berth_status status, berth_error *error)
{
    if (status == BERTH_OK)
        status = flush(load, hand, error);
    hand->pending.bytes = 0;
    for (uint32_t t = 0; t < load->model->tier_count; t++) {
        berth_error later;
        berth_status result;

        if (!hand->is_used[t] || hand->events[t] == NULL)
            continue;
        hand->is_used[t] = false;
        result = await_tier(load, hand, t, status == BERTH_OK ? error : &later);
        if (status == BERTH_OK)
            status = result;
    }
    hand->is_copied = hand->is_copied && status != BERTH_OK;
    return status;
}

/* Its own memory is about to be written to. */
static berth_status
empty_hand(berthi_load *load, berthi_load_hand *hand, berth_error *error)
{
    return hand->is_copied ? settle(load, hand, BERTH_OK, error) : BERTH_OK;
}

/* ----------------------------------------------------------------------- encoding */

/* What an event is about. */
static berthi_trace_of
trace_of(const berthi_load *load, uint64_t berth)
{
    const berthi_berth *const b = &load->plan->berths[berth];

    return (berthi_trace_of){b->number, b->layer,
                             load->checkpoint->table.entries[b->number].shard};
}

/* Values of a run in host memory, one behind the other. */
typedef struct stretch {
    const uint8_t *values;
    uint64_t first; /* of the run's */
    uint64_t count;
    bool is_pinned;
    bool is_staged; /* in a buffer of the ring, which nobody here writes to */
} stretch;

/* A piece of them -> codes and maxima in the berth. */
static berth_status
encode_piece(berthi_load *load, berthi_load_hand *hand, const berthi_load_run *run,
             const stretch *piece, berth_error *error)
{
    const berthi_quantized_part part =
        berthi_quantizer_part(&run->quantizer, piece->first, piece->count);
    const berthi_model_tier *const tier = &load->model->tiers[run->tier];
    const berthi_device_table *const table = tier->device->table;
    berthi_load_tier *const lane = &load->tiers[run->tier];
    berthi_copy copy = {
        .kind = BERTHI_COPY_TO_DEVICE,
        .is_pinned = piece->is_pinned,
        .from = piece->values,
        .bytes = piece->count * berthi_format_element_bytes(run->dtype),
        .layer = hand->layer,
    };
    berthi_request request;
    berth_status status;

    if (lane->stream == NULL) {
        const uint64_t begin_ns = berthi_trace_begin(load->context);

        berthi_quantizer_request(&run->quantizer, piece->values, piece->count,
                                 run->codes + part.begin,
                                 run->absmax + part.first_maximum, &request);
        berthi_pages_expect(&lane->pages, run->codes + part.begin, part.bytes);
        status = table->launch(tier->device, &request, NULL, error);
        berthi_trace_end(load->context, BERTH_TRACE_ENCODE, "worker", begin_ns,
                         copy.bytes, trace_of(load, run->berth));
        return status;
    }
    hand->is_copied |= piece->is_pinned && !piece->is_staged;
    pthread_mutex_lock(&lane->lock);
    copy.to = berthi_load_values_place(load, run->tier, copy.bytes);
    berthi_quantizer_request(&run->quantizer, copy.to, piece->count,
                             run->codes + part.begin, run->absmax + part.first_maximum, &request);
    status = berthi_load_values_encode(load, run->tier, &copy, &request, error);
    pthread_mutex_unlock(&lane->lock);
    hand->is_used[run->tier] = true;
    return status;
}

/* The values of a unit: where they lie when they are what is wanted, else decoded. */
static const uint8_t *
read_values(const berthi_load_run *run, const berthi_load_unit *unit,
            const uint8_t *bytes, berthi_load_hand *hand)
{
    const berthi_decoder_span span =
        berthi_decoder_extent(&run->decoder, unit->first, unit->count);

    if (run->is_direct)
        return bytes;
    berthi_decoder_decode(&run->decoder, unit->first, unit->count, bytes, run->dtype,
                          hand->values);
    return hand->values + span.lead * berthi_format_element_bytes(run->dtype);
}

/* What has been put together, and has no neighbours: not pending. */
static berth_status
put_own(berthi_load *load, berthi_load_hand *hand, uint32_t tier, berthi_copy copy,
        berth_error *error)
{
    if (load->tiers[tier].stream == NULL) {
        copy_in_host(load, tier, copy.to, copy.from, copy.bytes);
        return BERTH_OK;
    }
    copy.kind = BERTHI_COPY_TO_DEVICE;
    copy.layer = hand->layer;
    hand->is_copied |= copy.is_pinned;
    return ask_for(load, hand, tier, &copy, error);
}

/* Values that stay plain numbers. */
static berth_status
put_values(berthi_load *load, berthi_load_hand *hand, const berthi_load_run *run,
           const stretch *s, berth_error *error)
{
    const uint64_t width = berthi_format_element_bytes(run->dtype);

    return put_own(load, hand, run->tier,
                   (berthi_copy){ .is_pinned = s->is_pinned,
                                  .to = run->codes + s->first * width,
                                  .from = s->values,
                                  .bytes = s->count * width },
                   error);
}

/* Into the berth. */
static berth_status
encode_values(berthi_load *load, berthi_load_hand *hand, const berthi_load_run *run,
              const stretch *s, berth_error *error)
{
    const uint64_t width = berthi_format_element_bytes(run->dtype);
    berth_status status = BERTH_OK;

    if (run->quantizer.storage.encoding == BERTH_ENCODING_NATIVE)
        return run->is_offloaded
                   ? berthi_load_offload_values(load, run, s->values, s->first, s->count,
                                                error)
                   : put_values(load, hand, run, s, error);
    for (uint64_t at = 0; at < s->count && status == BERTH_OK; at += run->piece) {
        const stretch piece = { .values = s->values + at * width,
                                .first = s->first + at,
                                .count = berthi_min_u64(run->piece, s->count - at),
                                .is_pinned = s->is_pinned,
                                .is_staged = s->is_staged };

        status = run->is_offloaded
                     ? berthi_load_offload_piece(load, hand, run, piece.values, piece.first,
                                                 piece.count, error)
                     : encode_piece(load, hand, run, &piece, error);
    }
    return status;
}

/* The bytes that a unit's values are made of, together: in the hand where they are not. */
static const uint8_t *
gather_values(const berthi_load_run *run, const berthi_load_unit *unit,
              const uint8_t *bytes, berthi_load_hand *hand)
{
    const berthi_decoder_span span =
        berthi_decoder_extent(&run->decoder, unit->first, unit->count);

    if (run->cut.rows == 1)
        return bytes;
    berthi_cut_gather(&run->cut, span.begin, span.bytes, bytes, hand->gathered);
    return hand->gathered;
}

/*
 * All values of a weight that was turned. They are waited for, because their memory is to be
 * given back; where that takes too long it is the hand's.
 */
static berth_status
encode_turned(berthi_load *load, berthi_load_hand *hand, berthi_load_run *run,
              berth_error *error)
{
    const stretch all = { .values = run->turned.at,
                          .count = run->elements,
                          .is_pinned = run->turned.is_pinned };
    berth_status status = encode_values(load, hand, run, &all, error);

    if (!hand->is_copied)
        return status;
    status = settle(load, hand, status, error);
    if (status != BERTH_OK) {
        hand->turned = run->turned;
        run->turned = (berthi_load_memory){ .at = NULL };
    }
    return status;
}

/* Turns the decoded values of a unit, or encodes them into the berth. */
static berth_status
take_values(berthi_load *load, berthi_load_hand *hand, berthi_load_run *run,
            const stretch *s, berth_error *error)
{
    const berthi_turning *const turning = &run->turning;
    berth_status status = BERTH_OK;
    bool is_last;

    if (turning->rows > 0)
        berthi_quantize_turn(turning, s->values, s->first / turning->columns,
                             s->count / turning->columns, 0, turning->columns,
                             run->turned.at);
    else
        status = encode_values(load, hand, run, s, error);
    if (status != BERTH_OK)
        return status;
    pthread_mutex_lock(&load->lock);
    is_last = --run->units_left == 0;
    pthread_mutex_unlock(&load->lock);
    if (is_last && turning->rows > 0)
        status = encode_turned(load, hand, run, error);
    return is_last && status == BERTH_OK ? berthi_load_run_end(load, run, hand, error)
                                         : status;
}

/* What a device encodes is behind its copies, and waited for with them. */
static berth_status
encode_unit(berthi_load *load, berthi_load_hand *hand, berthi_load_run *run,
            const berthi_load_unit *unit, const uint8_t *bytes, berth_error *error)
{
    const bool is_in_host = run->is_offloaded || load->tiers[run->tier].stream == NULL;
    const bool is_staged = run->is_direct && run->cut.rows == 1;
    stretch values = { .first = unit->first,
                       .count = unit->count,
                       .is_pinned = is_staged ? !atomic_load(&load->has_unpinned)
                                              : hand->own.is_pinned,
                       .is_staged = is_staged };
    berth_status status = berthi_load_run_begin(load, run, error);
    uint64_t begin_ns;

    if (status == BERTH_OK && !is_staged)
        status = empty_hand(load, hand, error);
    if (status != BERTH_OK)
        return status;
    begin_ns = berthi_sys_now_ns();
    values.values = read_values(run, unit, gather_values(run, unit, bytes, hand), hand);
    if (!is_in_host)
        count_since(&load->encode_ns, begin_ns);
    status = take_values(load, hand, run, &values, error);
    if (is_in_host)
        count_since(&load->encode_ns, begin_ns);
    return status;
}

/* ----------------------------------------------------------------------- consumer */

static berth_status
verify_span(berthi_load *load, const berthi_span *span, const uint8_t *bytes,
            berth_error *error)
{
    const uint32_t number = load->units[span->tag].entry;
    const berthi_entry *const entry = &load->checkpoint->table.entries[number];
    const uint64_t begin = berthi_checkpoint_offset(load->checkpoint, entry);

    return berthi_load_verify_add(load, number, load->pieces[span->tag].offset - begin,
                                  bytes, span->bytes, error);
}

static berth_status
place_unit(berthi_load *load, berthi_load_hand *hand, const berthi_load_unit *unit,
           const uint8_t *bytes, berth_error *error)
{
    uint8_t *const to = load->model->tiers[unit->tier].slab + unit->first;
    const berthi_load_columns *columns;
    berth_status status;

    if (unit->run != BERTHI_NO_RUN)
        return encode_unit(load, hand, &load->runs[unit->run], unit, bytes, error);
    if (unit->columns == BERTHI_NO_COLUMNS)
        return put(load, hand, unit->tier, to, bytes, unit->count, error);
    status = empty_hand(load, hand, error);
    if (status != BERTH_OK)
        return status;
    columns = &load->columns[unit->columns];
    berthi_cut_gather(&columns->cut, unit->first - columns->place, unit->count, bytes,
                      hand->gathered);
    return put_own(load, hand, unit->tier,
                   (berthi_copy){ .is_pinned = hand->own.is_pinned,
                                  .to = to,
                                  .from = hand->gathered,
                                  .bytes = unit->count },
                   error);
}

berth_status
berthi_load_consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
                    const uint8_t *bytes, berth_error *error)
{
    berthi_load *const load = user;
    berthi_load_hand *hand;
    uint64_t placed = 0;
    uint64_t none = 0;
    berth_status status = take_hand(load, &hand, error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < chunk->span_count && status == BERTH_OK; i++) {
        const berthi_load_unit *const unit = &load->units[spans[i].tag];
        const uint8_t *const at = bytes + spans[i].chunk_offset;
        const uint64_t begin_ns = berthi_trace_begin(load->context);

        if (load->verify.is_on)
            status = verify_span(load, &spans[i], at, error);
        hand->berth = unit->berth;
        hand->layer = load->plan->berths[unit->berth].layer + 1u;
        if (status == BERTH_OK)
            status = place_unit(load, hand, unit, at, error);
        placed += spans[i].bytes;
        berthi_trace_end(load->context, BERTH_TRACE_PLACE, "worker", begin_ns,
                         spans[i].bytes, trace_of(load, unit->berth));
    }
    status = settle(load, hand, status, error);
    give_hand(load, hand);
    if (status != BERTH_OK)
        return status;
    atomic_fetch_add(&load->placed, placed);
    (void)atomic_compare_exchange_strong(&load->first_ns, &none,
                                         berthi_sys_now_ns() - load->start_ns);
    return BERTH_OK;
}

void
berthi_load_stop(void *user)
{
    berthi_load *const load = user;

    pthread_mutex_lock(&load->lock);
    load->is_stopped = true;
    pthread_cond_broadcast(&load->has_changed);
    pthread_mutex_unlock(&load->lock);
}
