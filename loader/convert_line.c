/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_line.c - pieces that a device encodes, or decodes, on the line of work of one worker.
 *
 *   ring or scratch ─▶ values ─▶ codes, maxima ─▶ scratch
 *   ring or scratch ─▶ codes, maxima ─▶ values ─▶ scratch
 *    host, pinned             device               host, pinned
 *
 * A worker waits for its own piece with nothing else in its hands: meanwhile others write
 * what came back of theirs and ask for the next one. Every worker has a line of its own, so
 * nobody waits for a line.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/node.h"
#include "kernels/sys.h"
#include "loader/convert_batch.h"
#include "loader/stage.h"
#include "quant/format.h"

/* --------------------------------------------------------------------- open, close */

static berth_status
open_memory(berthi_convert_line *line, uint64_t bytes, berth_error *error)
{
    const berthi_device_table *const table = line->end.device->table;
    void *memory = NULL;
    berth_status status = table->alloc(line->end.device, bytes, &memory, error);

    if (status != BERTH_OK)
        return status;
    line->memory = memory;
    line->bytes = bytes;
    berthi_book_take(berthi_device_book(line->end.device), BERTH_MEMORY_SCRATCH, bytes);
    return table->keep == NULL ? BERTH_OK
                               : table->keep(line->end.device, memory, bytes, error);
}

/* What comes back goes there; where it cannot be pinned, slower. */
static void
pin(berthi_unit_scratch *scratch)
{
    berthi_device *const device = scratch->line.end.device;
    berth_error error;

    scratch->line.is_pinned =
        device->table->pin(device, scratch->values, scratch->bytes, &error) == BERTH_OK;
    if (!scratch->line.is_pinned)
        berthi_device_note_unpinned(device->context, &error);
}

berth_status
berthi_line_open(berthi_device *device, uint64_t bytes, berthi_unit_scratch *scratch,
                 berth_error *error)
{
    berthi_convert_line *const line = &scratch->line;
    berth_status status;

    line->end.device = device;
    status = open_memory(line, bytes, error);
    if (status == BERTH_OK)
        status = device->table->stream_create(device, &line->end.stream, error);
    if (status == BERTH_OK)
        status = device->table->event_create(device, &line->end.event, error);
    if (status == BERTH_OK)
        pin(scratch);
    return status;
}

bool
berthi_line_hangs(berthi_convert_line *line, uint64_t wait_ns)
{
    return line->is_unsettled
           && berthi_stream_hangs(&line->end,
                                  berthi_add_capped(berthi_sys_now_ns(),
                                                    line->is_late ? 0 : wait_ns));
}

void
berthi_line_close(berthi_unit_scratch *scratch)
{
    berthi_convert_line *const line = &scratch->line;
    berthi_device *const device = line->end.device;

    if (device == NULL)
        return;
    if (line->end.event != NULL)
        device->table->event_destroy(device, line->end.event);
    if (line->end.stream != NULL)
        device->table->stream_destroy(device, line->end.stream);
    if (line->is_pinned)
        device->table->unpin(device, scratch->values, scratch->bytes);
    if (line->left.is_pinned)
        device->table->unpin(device, line->left.memory, line->left.bytes);
    if (line->left.memory != NULL)
        berthi_left_free(&line->left, scratch->context);
    if (line->memory == NULL)
        return;
    device->table->free(device, line->memory, line->bytes);
    berthi_book_give(berthi_device_book(device), BERTH_MEMORY_SCRATCH, line->bytes);
}

/* -------------------------------------------------------------------------- waiting */

/* Whoever gives up is less patient. */
static uint64_t
patience_ns(berthi_batch *batch)
{
    const berthi_convert *const convert = batch->convert;
    uint64_t wait_ns = convert->patience_ns;

    pthread_mutex_lock(&batch->lock);
    if (batch->is_stopped || berthi_job_is_cancelled(convert->job))
        wait_ns = berthi_patience(convert->context, wait_ns);
    pthread_mutex_unlock(&batch->lock);
    return wait_ns;
}

/* Looks up every few seconds, for then the conversion may have been given up. */
static berth_status
await_end(berthi_batch *batch, berthi_convert_line *line, berth_error *error)
{
    const uint64_t begin_ns = berthi_sys_now_ns();
    const uint64_t look_ns = batch->convert->context->hung_ns;
    const berthi_stream_end *const end = &line->end;
    uint64_t late_ns;
    berth_status status;

    do {
        late_ns = berthi_add_capped(begin_ns, patience_ns(batch));
        status = end->device->table->await(
            end->device, end->event,
            berthi_min_u64(late_ns, berthi_sys_now_ns() + look_ns), error);
    } while (status == BERTH_PENDING && berthi_sys_now_ns() < late_ns);
    return status;
}

static berth_status
fail_late(const berthi_convert *convert, const berthi_convert_line *line,
          berth_error *error)
{
    berthi_device_properties properties;

    line->end.device->table->describe(line->end.device, &properties);
    return berthi_fail(error, BERTH_REASON_TIMEOUT, NULL,
                       "%s has not finished a piece for %" PRIu64 " milliseconds",
                       properties.name, convert->patience_ns / 1000000);
}

/*
 * What was asked for has ended, after a failure, too, for it reads what the ring wants
 * back; or else the line stays as it is (convert_scratch.c).
 */
static berth_status
settle(berthi_batch *batch, berthi_convert_line *line, berth_status status,
       berth_error *error)
{
    const berthi_stream_end *const end = &line->end;
    berth_error later = { 0 };
    berth_error *const mine = status == BERTH_OK ? error : &later;
    berth_status result = end->device->table->record(end->device, end->event, end->stream,
                                                     mine);

    if (result == BERTH_OK)
        result = await_end(batch, line, mine);
    line->is_unsettled = result != BERTH_OK;
    line->is_late = result == BERTH_PENDING;
    if (result == BERTH_PENDING)
        result = fail_late(batch->convert, line, mine);
    return status == BERTH_OK ? result : status;
}

/* ------------------------------------------------------------------------- one piece */

/* What goes there, what is made of it, and what comes back. */
typedef struct work {
    berthi_copy in[2]; /* the first one is of what may lie in the ring */
    berthi_request request;
    berthi_copy out;
} work;

/*
 * `from`, in memory that is pinned, where there is such: what comes and goes, and a ring that
 * may not be pinned, go through the worker's own at `own`.
 */
static const uint8_t *
stage(const berthi_batch *batch, const berthi_unit_scratch *scratch, const uint8_t *from,
      bool is_of_ring, uint8_t *own, uint64_t bytes)
{
    const bool is_own = from >= scratch->values && from < scratch->packed;
    const bool is_fit = is_of_ring && !atomic_load(&batch->has_unpinned);

    if (is_own || is_fit || !scratch->line.is_pinned)
        return from;
    memcpy(own, from, bytes);
    return own;
}

static berthi_copy
copy_in(const berthi_convert_line *line, void *to, const void *from, uint64_t bytes)
{
    return (berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = line->is_pinned,
                          .to = to, .from = from, .bytes = bytes };
}

static berthi_copy
copy_out(const berthi_convert_line *line, void *to, const void *from, uint64_t bytes)
{
    return (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .is_pinned = line->is_pinned,
                          .to = to, .from = from, .bytes = bytes };
}

static berth_status
ask_for(berthi_convert_line *line, const work *w, berth_error *error)
{
    const berthi_device_table *const table = line->end.device->table;
    berth_status status = BERTH_OK;

    line->from = w->in[0].from;
    for (uint32_t i = 0; i < 2 && w->in[i].bytes > 0 && status == BERTH_OK; i++)
        status = table->copy(line->end.device, &w->in[i], line->end.stream, error);
    if (status == BERTH_OK)
        status = table->launch(line->end.device, &w->request, line->end.stream, error);
    if (status == BERTH_OK)
        status = table->copy(line->end.device, &w->out, line->end.stream, error);
    return status;
}

/* Devices know nothing of tensors. */
static berth_status
tell_where(const berthi_batch *batch, const berthi_run *run, berth_error *error)
{
    const berth_error told = *error;
    berthi_about about = berthi_run_about(batch, run);

    about.system_error = told.system_error;
    about.has = told.has;
    about.expected = told.expected;
    about.actual = told.actual;
    return berthi_fail(error, (berth_reason)told.reason, &about, "%s", told.message);
}

static berth_status
see_through(berthi_batch *batch, const berthi_run *run, berthi_convert_line *line,
            const work *w, berth_error *error)
{
    berth_status status = ask_for(line, w, error);

    status = settle(batch, line, status, error);
    return status == BERTH_OK ? BERTH_OK : tell_where(batch, run, error);
}

/* Strips are not of the ring. */
berth_status
berthi_line_encode(berthi_batch *batch, const berthi_run *run, berthi_unit_scratch *scratch,
                   const berthi_convert_piece *piece, berth_error *error)
{
    berthi_convert_line *const line = &scratch->line;
    const uint64_t bytes =
        piece->count * berthi_format_element_bytes(run->weight->storage.dtype);
    uint8_t *const packed = line->memory + berthi_scratch_round(bytes);
    work w = {
        .in = { copy_in(line, line->memory,
                        stage(batch, scratch, piece->values, !run->weight->is_turned,
                              scratch->values, bytes),
                        bytes) },
        .out = copy_out(line, scratch->packed, packed, berthi_packed_bytes(&piece->part)),
    };

    berthi_quantizer_request(&run->quantizer, line->memory, piece->count, packed,
                             berthi_packed_maxima(packed, &piece->part), &w.request);
    return see_through(batch, run, line, &w, error);
}

/* Maxima come through the scratch: the run's memory, in which all of them lie, is not pinned. */
berth_status
berthi_line_decode(berthi_batch *batch, const berthi_run *run, berthi_unit_scratch *scratch,
                   const berthi_unit *unit, const uint8_t *bytes, berth_error *error)
{
    const berthi_decoder *const decoder = &run->decoder;
    berthi_convert_line *const line = &scratch->line;
    const int32_t dtype = run->weight->storage.dtype;
    const berthi_quantized_part part = berthi_decoder_part(decoder, unit->first, unit->count);
    const uint64_t value_bytes = (unit->count + berthi_unit_span(run, unit).lead)
                                 * berthi_format_element_bytes(dtype);
    uint8_t *const packed = line->memory + berthi_scratch_round(value_bytes);
    float *const maxima = berthi_packed_maxima(scratch->packed, &part);
    work w = {
        .in = { copy_in(line, packed,
                        stage(batch, scratch, bytes, true, scratch->packed, part.bytes),
                        part.bytes),
                copy_in(line, berthi_packed_maxima(packed, &part), maxima,
                        part.maxima * sizeof *maxima) },
        .out = copy_out(line, scratch->values, line->memory, value_bytes),
    };

    memcpy(maxima, decoder->absmax + part.first_maximum, part.maxima * sizeof *maxima);
    berthi_decoder_request(decoder, unit->first, unit->count, packed,
                           berthi_packed_maxima(packed, &part), dtype, line->memory,
                           &w.request);
    return see_through(batch, run, line, &w, error);
}

/* -------------------------------------------------------------------------- the ring */

static bool
pin_buffer(void *user, void *memory, uint64_t bytes)
{
    berthi_batch *const batch = user;
    berthi_device *const device = batch->convert->device;
    berth_error error;

    berthi_node_bring(device, memory, bytes, BERTHI_STAGE_ALIGNMENT);
    if (device->table->pin(device, memory, bytes, &error) == BERTH_OK)
        return true;
    atomic_store(&batch->has_unpinned, true);
    berthi_device_note_unpinned(device->context, &error);
    return false;
}

static void
unpin(void *user, void *memory, uint64_t bytes)
{
    const berthi_batch *const batch = user;
    berthi_device *const device = batch->convert->device;

    device->table->unpin(device, memory, bytes);
}

/* A line that may still copy from the buffer takes it over. All workers have ended. */
static bool
keep_buffer(void *user, uint8_t *memory, uint64_t bytes, bool is_pinned)
{
    const berthi_batch *const batch = user;

    for (berthi_unit_scratch *s = batch->scratch; s != NULL; s = s->next) {
        berthi_convert_line *const line = &s->line;

        if (!line->is_unsettled || line->from < memory || line->from >= memory + bytes)
            continue;
        line->left = (berthi_left){ memory, bytes, is_pinned };
        return true;
    }
    return false;
}

berthi_ring_pins
berthi_line_pins(berthi_batch *batch)
{
    return (berthi_ring_pins){ batch, pin_buffer, unpin, keep_buffer };
}
