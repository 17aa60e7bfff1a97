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
        berthi_pages_expect(&lane->pages, run->codes + part.begin, part.bytes,
                            copy.bytes);
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

/* Values that stay plain numbers. */
static berth_status
put_values(berthi_load *load, berthi_load_hand *hand, const berthi_load_run *run,
           const stretch *s, berth_error *error)
{
    const uint64_t width = berthi_format_element_bytes(run->dtype);

    return berthi_load_hand_put_own(load, hand, run->tier,
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
    status = berthi_load_hand_settle(load, hand, status, error);
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
        status = berthi_load_hand_empty(load, hand, error);
    if (status != BERTH_OK)
        return status;
    begin_ns = berthi_sys_now_ns();
    values.values = read_values(run, unit, gather_values(run, unit, bytes, hand), hand);
    if (!is_in_host)
        berthi_load_count_since(&load->encode_ns, begin_ns);
    status = take_values(load, hand, run, &values, error);
    if (is_in_host)
        berthi_load_count_since(&load->encode_ns, begin_ns);
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

/* Bytes of columns, together; or absmax, out of stored codes. */
static berth_status
put_columns(berthi_load *load, berthi_load_hand *hand, const berthi_load_unit *unit,
            const uint8_t *bytes, berth_error *error)
{
    const berthi_load_columns *const columns = &load->columns[unit->columns];
    berthi_copy copy = { .to = load->model->tiers[unit->tier].slab + unit->first,
                         .from = hand->gathered,
                         .bytes = unit->count };
    berth_status status = berthi_load_hand_empty(load, hand, error);

    if (status != BERTH_OK)
        return status;
    copy.is_pinned = hand->own.is_pinned;
    if (columns->record != NULL) {
        copy.from = hand->values;
        status = berthi_load_levels(load, unit, bytes, (float *)(void *)hand->values, error);
    } else {
        berthi_cut_gather(&columns->cut, unit->first - columns->place, unit->count, bytes,
                          hand->gathered);
    }
    return status == BERTH_OK ? berthi_load_hand_put_own(load, hand, unit->tier, copy, error)
                              : status;
}

static berth_status
place_unit(berthi_load *load, berthi_load_hand *hand, const berthi_load_unit *unit,
           const uint8_t *bytes, berth_error *error)
{
    uint8_t *const to = load->model->tiers[unit->tier].slab + unit->first;

    if (unit->run != BERTHI_NO_RUN)
        return encode_unit(load, hand, &load->runs[unit->run], unit, bytes, error);
    if (unit->columns != BERTHI_NO_COLUMNS)
        return put_columns(load, hand, unit, bytes, error);
    return berthi_load_hand_put(load, hand, unit->tier, to, bytes, unit->count, error);
}

/* Of what was read for a unit; the rest lies between columns. */
static uint64_t
stored_bytes(const berthi_load *load, const berthi_load_unit *unit)
{
    if (unit->run != BERTHI_NO_RUN)
        return berthi_decoder_extent(&load->runs[unit->run].decoder, unit->first, unit->count)
            .bytes;
    if (unit->columns != BERTHI_NO_COLUMNS && load->columns[unit->columns].record != NULL)
        return unit->count / sizeof(float);
    return unit->count;
}

berth_status
berthi_load_consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
                    const uint8_t *bytes, berth_error *error)
{
    berthi_load *const load = user;
    berthi_load_hand *hand;
    uint64_t placed = 0;
    uint64_t stored = 0;
    uint64_t none = 0;
    berth_status status = berthi_load_hand_take(load, &hand, error);

    if (status != BERTH_OK)
        return status;
    for (uint32_t i = 0; i < chunk->span_count && status == BERTH_OK; i++) {
        const berthi_load_unit *const unit = &load->units[spans[i].tag];
        const uint8_t *const at = bytes + spans[i].chunk_offset;
        const uint64_t begin_ns = berthi_trace_begin(load->context);

        if (load->verify.promises.is_on)
            status = verify_span(load, &spans[i], at, error);
        hand->berth = unit->berth;
        hand->layer = load->plan->berths[unit->berth].layer + 1u;
        if (status == BERTH_OK)
            status = place_unit(load, hand, unit, at, error);
        placed += spans[i].bytes;
        stored += stored_bytes(load, unit);
        berthi_trace_end(load->context, BERTH_TRACE_PLACE, "worker", begin_ns,
                         spans[i].bytes, trace_of(load, unit->berth));
    }
    status = berthi_load_hand_settle(load, hand, status, error);
    berthi_load_hand_give(load, hand);
    if (status != BERTH_OK)
        return status;
    atomic_fetch_add(&load->placed, placed);
    atomic_fetch_add(&load->stored, stored);
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
