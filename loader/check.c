/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - berth_check_start(): what lies in the berths, held against the files.
 *
 * What a berth should hold is made anew, tensor by tensor and piece by piece, on the
 * host and in one thread: nothing here is shared with the way it came there but the
 * arithmetic of a value.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/sys.h"
#include "loader/job.h"
#include "loader/model.h"
#include "loader/offload.h"
#include "loader/statistics.h"
#include "quant/dequantize.h"
#include "quant/format.h"
#include "quant/quantize.h"

#define READ_BYTES  (UINT64_C(4) << 20)
#define VALUES_STEP UINT64_C(16384)
#define ALIGNMENT   64u /* of each array of a cargo */

typedef struct check {
    berth_context *context;
    berth_model *model;
    berth_check_options options;
    berth_check_report report;
    berth_job *job;
    berthi_operations operations;
    uint8_t *bytes;    /* READ_BYTES, as stored */
    uint8_t *stretch;  /* READ_BYTES: columns, and what lies between them */
    berth_error first; /* of the mismatches */
} check;

/* A weight that is encoded once more. */
typedef struct encoding {
    berthi_decoder decoder;
    berthi_quantizer quantizer;
    int32_t dtype;
    bool is_double;
    uint64_t piece;  /* elements that are encoded at a time */
    uint64_t read;   /* elements that are read at a time */
    berthi_cut cut;  /* where they lie in the stored tensor */
    berthi_turning turning; /* rows 0: it is not turned */
    uint8_t *memory; /* all below */
    uint64_t memory_bytes;
    uint8_t *values;
    uint8_t *turned; /* all of them, in their new order */
    uint8_t *codes;
    float *absmax; /* of the whole weight */
    uint8_t *absmax_codes;
    float *absmax2;
    float *scratch;
    uint8_t *statistics;
} encoding;

/* ------------------------------------------------------------------------- reading */

static void
note_read(check *c, uint64_t bytes)
{
    c->report.bytes_read += bytes;
    berthi_job_advance(c->job, bytes);
}

/* Bytes of a stored tensor from an offset on. */
static berth_status
read_stored(check *c, uint64_t number, uint64_t offset, void *memory, uint64_t bytes,
            berth_error *error)
{
    if (berthi_job_is_cancelled(c->job))
        return berthi_job_fail_cancelled(error);
    note_read(c, bytes);
    return berthi_checkpoint_read(c->model->checkpoint, number, offset, memory, bytes,
                                  "reading a tensor", error);
}

/* Bytes of what a cut leaves of a stored tensor. */
static berth_status
read_cut(check *c, uint64_t number, const berthi_cut *cut, uint64_t at, uint8_t *memory,
         uint64_t bytes, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (cut->rows == 1)
        return read_stored(c, number, cut->first + at, memory, bytes, error);
    for (uint64_t done = 0, piece; done < bytes && status == BERTH_OK; done += piece) {
        berthi_stretch stretch;

        piece = berthi_cut_fit(cut, at + done, bytes - done, READ_BYTES);
        stretch = berthi_cut_stretch(cut, at + done, piece);
        status = read_stored(c, number, stretch.begin, c->stretch, stretch.bytes, error);
        if (status == BERTH_OK)
            berthi_cut_gather(cut, at + done, piece, c->stretch, memory + done);
    }
    return status;
}

/* Absmax of a slice, out of both levels of the whole. */
static berth_status
digest_levels(check *c, const berthi_cargo *cargo, uint32_t *crc, berth_error *error)
{
    const berth_checkpoint *const checkpoint = c->model->checkpoint;
    const berthi_cut *const cut = &cargo->parts[1].cut;
    const uint64_t count = cargo->parts[1].bytes / sizeof(float);
    berthi_decoder decoder;
    uint64_t bytes;
    uint64_t read;
    uint8_t *memory;
    berth_status status;

    if (!berthi_decoder_can_init(&decoder, &c->operations, cargo->record))
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL, "two levels have no decoder");
    bytes = berthi_statistics_bytes(checkpoint, cargo->record, &decoder);
    memory = berthi_memory_aligned(c->context, BERTHI_PURPOSE_SCRATCH, bytes, ALIGNMENT);
    if (memory == NULL)
        return berthi_fail_memory(error, "checking a model");
    status = berthi_statistics_read(checkpoint, cargo->record, &decoder, memory, &read, error);
    note_read(c, read);
    for (uint64_t at = 0, piece; at < count && status == BERTH_OK; at += piece) {
        piece = berthi_cut_together(cut, at, count - at);
        *crc = berthi_digest_crc32(*crc, decoder.absmax + berthi_cut_place(cut, at),
                                   piece * sizeof(float));
    }
    berthi_memory_free_aligned(c->context, BERTHI_PURPOSE_SCRATCH, memory, bytes, ALIGNMENT);
    return status;
}

static berth_status
digest_copied(check *c, const berthi_cargo *cargo, uint32_t *crc, berth_error *error)
{
    for (uint32_t i = 0; i < cargo->part_count; i++) {
        const berthi_cargo_part *const part = &cargo->parts[i];

        if (cargo->is_flat && i > 0)
            return digest_levels(c, cargo, crc, error);
        for (uint64_t at = 0; at < part->bytes; at += READ_BYTES) {
            const uint64_t bytes = berthi_min_u64(READ_BYTES, part->bytes - at);
            const berth_status status =
                read_cut(c, part->entry, &part->cut, at, c->bytes, bytes, error);

            if (status != BERTH_OK)
                return status;
            *crc = berthi_digest_crc32(*crc, c->bytes, bytes);
        }
    }
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ encoding */

static uint64_t
width_of(const encoding *e)
{
    return berthi_format_element_bytes(e->dtype);
}

/* Places in the weight's memory, from `next` on; called once to measure. */
static void *
take(encoding *e, uint64_t bytes)
{
    uint8_t *const place = e->memory != NULL ? e->memory + e->memory_bytes : NULL;

    e->memory_bytes += berthi_round_up(bytes, ALIGNMENT);
    return place;
}

static void
divide(const check *c, const berthi_cargo *cargo, encoding *e)
{
    const berthi_quantized_part part = berthi_quantizer_part(&e->quantizer, 0, e->piece);
    const uint64_t maxima =
        e->quantizer.blocks > 0 ? e->quantizer.blocks : e->quantizer.rows;

    e->memory_bytes = 0;
    e->values = take(e, (e->read + berthi_decoder_lead_max(&e->decoder)) * width_of(e));
    e->turned = take(e, e->turning.rows > 0 ? cargo->elements * width_of(e) : 0);
    e->codes = take(e, part.bytes);
    e->absmax = take(e, maxima * sizeof(float));
    e->absmax_codes = take(e, e->is_double ? maxima : 0);
    e->absmax2 = take(e, e->is_double ? (maxima / 256 + 1) * sizeof(float) : 0);
    e->scratch = take(
        e, e->is_double ? berthi_quantizer_scratch(&e->quantizer) * sizeof(float) : 0);
    e->statistics = take(
        e, berthi_statistics_bytes(c->model->checkpoint, cargo->record, &e->decoder));
}

/* Elements that are encoded, and that are read at a time. */
static bool
can_cut(const berthi_cargo *cargo, encoding *e)
{
    const uint64_t fit = READ_BYTES / 4;
    uint64_t step = berthi_max_u64(berthi_decoder_step(&e->decoder),
                                   cargo->storage.encoding == BERTH_ENCODING_INT8
                                       ? e->quantizer.columns
                                       : VALUES_STEP);

    e->piece = berthi_max_u64(fit / step, 1) * step;
    e->piece = berthi_min_u64(e->piece, cargo->elements);
    e->read = e->piece;
    if (e->turning.rows == 0)
        return true;
    if (!berthi_can_multiple(berthi_decoder_step(&e->decoder), e->turning.columns, fit,
                             &step))
        return false;
    e->read = berthi_min_u64(fit / step * step, cargo->elements);
    return true;
}

static berth_status
start_encoding(check *c, uint64_t berth, const berthi_cargo *cargo, encoding *e,
               berth_error *error)
{
    const berthi_berth *const b = &c->model->plan->berths[berth];
    const int32_t stored = c->model->checkpoint->table.entries[b->number].dtype;
    const berthi_storage *const storage = &cargo->storage;
    const bool can_decode =
        cargo->record != NULL
            ? berthi_decoder_can_init(&e->decoder, &c->operations, cargo->record)
            : berthi_decoder_can_init_native(&e->decoder, stored, cargo->elements);
    berth_status status;
    uint64_t bytes;

    e->cut = cargo->cut;
    e->dtype = storage->dtype;
    e->is_double = berthi_stored_is_double(storage);
    if (cargo->is_turned)
        e->turning = (berthi_turning){ .rows = cargo->shape[1],
                                       .columns = cargo->shape[0],
                                       .element_bytes = (uint32_t)width_of(e) };
    if (!can_decode || !berthi_quantizer_can_init(&e->quantizer, &c->operations, storage,
                                                  cargo->shape, cargo->rank)
        || !can_cut(cargo, e))
        return berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                           "a weight was encoded that cannot be");
    divide(c, cargo, e);
    e->memory =
        berthi_memory_aligned(c->context, BERTHI_PURPOSE_SCRATCH, e->memory_bytes, ALIGNMENT);
    if (e->memory == NULL)
        return berthi_fail_memory(error, "checking a weight");
    divide(c, cargo, e);
    status = berthi_statistics_read(c->model->checkpoint, cargo->record, &e->decoder,
                                    e->statistics, &bytes, error);
    note_read(c, bytes);
    return status;
}

static void
encode_piece(const encoding *e, const uint8_t *values, uint64_t first, uint64_t count,
             uint32_t *crc)
{
    const berthi_quantized_part part = berthi_quantizer_part(&e->quantizer, first, count);

    berthi_quantizer_encode(&e->quantizer, values, count, e->codes,
                            e->absmax + part.first_maximum);
    *crc = berthi_digest_crc32(*crc, e->codes, part.bytes);
}

/* Reads values and encodes them, or puts them where they belong. */
static berth_status
take_piece(check *c, uint64_t number, const encoding *e, uint64_t first, uint64_t count,
           uint32_t *crc, berth_error *error)
{
    const berthi_decoder_span span = berthi_decoder_extent(&e->decoder, first, count);
    const uint8_t *const values = e->values + span.lead * width_of(e);
    berth_status status;

    if (span.bytes > READ_BYTES)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "pieces of a weight are too large to be checked");
    status = read_cut(c, number, &e->cut, span.begin, c->bytes, span.bytes, error);
    if (status != BERTH_OK)
        return status;
    berthi_decoder_decode(&e->decoder, first, count, c->bytes, e->dtype, e->values);
    if (e->turning.rows > 0)
        berthi_quantize_turn(&e->turning, values, first / e->turning.columns,
                             count / e->turning.columns, 0, e->turning.columns,
                             e->turned);
    else
        encode_piece(e, values, first, count, crc);
    return BERTH_OK;
}

static void
encode_turned(const encoding *e, uint64_t elements, uint32_t *crc)
{
    for (uint64_t at = 0; at < elements; at += e->piece)
        encode_piece(e, e->turned + at * width_of(e), at,
                     berthi_min_u64(e->piece, elements - at), crc);
}

/* Codes are digested piece by piece, statistics at the end: the order of the parts. */
static berth_status
digest_encoded(check *c, uint64_t berth, const berthi_cargo *cargo, uint32_t *crc,
               berth_error *error)
{
    const uint32_t number = c->model->plan->berths[berth].number;
    encoding e = {.memory = NULL};
    berth_status status = start_encoding(c, berth, cargo, &e, error);

    for (uint64_t at = 0; at < cargo->elements && status == BERTH_OK; at += e.read)
        status = take_piece(c, number, &e, at,
                            berthi_min_u64(e.read, cargo->elements - at), crc, error);
    if (status == BERTH_OK && e.turning.rows > 0)
        encode_turned(&e, cargo->elements, crc);
    if (status == BERTH_OK && e.is_double)
        (void)berthi_quantizer_finish(&e.quantizer, e.absmax, e.absmax_codes, e.absmax2,
                                      e.scratch);
    for (uint32_t i = 1; i < cargo->part_count && status == BERTH_OK; i++) {
        const void *const part = cargo->parts[i].role == BERTH_ROLE_ABSMAX2
                                     ? (const void *)e.absmax2
                                 : e.is_double ? (const void *)e.absmax_codes
                                               : (const void *)e.absmax;

        *crc = berthi_digest_crc32(*crc, part, cargo->parts[i].bytes);
    }
    berthi_memory_free_aligned(c->context, BERTHI_PURPOSE_SCRATCH, e.memory,
                               e.memory_bytes, ALIGNMENT);
    return status;
}

/* ------------------------------------------------------------------------- tensors */

static void
tell(check *c, uint64_t berth, uint32_t expected, uint32_t actual)
{
    berthi_about where = berthi_checkpoint_about(c->model->checkpoint,
                                                 c->model->plan->berths[berth].number);
    berth_error details;

    where.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_CRC32;
    where.expected = expected;
    where.actual = actual;
    (void)berthi_fail(&details, BERTH_REASON_DIGEST, &where,
                      "lies on %s with other bytes than it should",
                      c->model->plan->tiers[c->model->plan->berths[berth].tier].name);
    if (c->report.mismatches++ == 0)
        c->first = details;
    if (c->options.finding != NULL)
        c->options.finding(c->options.finding_user,
                           &(berth_finding){.severity = BERTH_SEVERITY_ERROR,
                                            .details = &details,
                                            .name = where.tensor,
                                            .name_length = where.tensor_length});
}

static berth_status
check_berth(check *c, uint64_t berth, berth_error *error)
{
    const berth_model *const model = c->model;
    berthi_cargo cargo;
    uint32_t expected = 0;
    uint32_t actual = 0;
    berth_status status = berthi_model_cargo(model, berth, &cargo, error);

    if (status == BERTH_OK)
        status = cargo.is_copied ? digest_copied(c, &cargo, &expected, error)
                                 : digest_encoded(c, berth, &cargo, &expected, error);
    /* On the disk the files are the berths: they have just been read. */
    if (status == BERTH_OK && berthi_cargo_is_stored(&cargo)
        && model->tiers[model->plan->berths[berth].tier].device == NULL)
        actual = expected;
    else if (status == BERTH_OK)
        status = berth_model_digest(c->model, berth, &actual, error);
    /* What was digested while it was written has to be the same. */
    if (status == BERTH_OK && actual == expected)
        actual = berthi_offload_crc(model->offload, berth, actual);
    if (status != BERTH_OK)
        return status;
    c->report.tensors++;
    c->report.bytes += model->plan->berths[berth].bytes;
    if (actual != expected)
        tell(c, berth, expected, actual);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------------- job */

static berth_status
check_all(check *c, berth_error *error)
{
    const uint64_t memory = READ_BYTES * (c->model->plan->slices != NULL ? 2 : 1);
    berth_status status = BERTH_OK;

    c->bytes = berthi_memory_alloc(c->context, BERTHI_PURPOSE_SCRATCH, memory);
    if (c->bytes == NULL)
        status = berthi_fail_memory(error, "checking a model");
    else
        c->stretch = c->bytes + (memory - READ_BYTES);
    for (uint64_t i = 0; i < c->model->plan->berth_count && status == BERTH_OK; i++)
        if (!c->model->plan->berths[i].is_tied)
            status = check_berth(c, i, error);
    berthi_memory_free(c->context, BERTHI_PURPOSE_SCRATCH, c->bytes, memory);
    return status;
}

/* All of it is one use of the model, whose plan a move would exchange. */
static berth_status
run_check(berth_job *job, void *user, berth_error *error)
{
    check *const c = user;
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_status status = berthi_model_enter(c->model, error);

    c->job = job;
    if (status == BERTH_OK) {
        status = check_all(c, error);
        berthi_model_leave(c->model);
    }
    c->report.seconds = 1e-9 * (double)(berthi_sys_now_ns() - begin_ns);
    if (c->options.report != NULL)
        *c->options.report = c->report;
    if (status == BERTH_OK && c->report.mismatches > 0) {
        status = c->first.status;
        if (error != NULL)
            *error = c->first;
    }
    return status;
}

static void
free_check(void *user)
{
    check *const c = user;

    berthi_memory_free(c->context, BERTHI_PURPOSE_OBJECT, c, sizeof *c);
}

/*
 * Bytes that will be read at most: of stored tensors, with all their statistics; once,
 * however many experts of a stack have berths.
 */
static uint64_t
count_bytes(const berth_model *model)
{
    const berth_checkpoint *const c = model->checkpoint;
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < model->plan->berth_count; i++) {
        const berthi_berth *const berth = &model->plan->berths[i];
        const berthi_entry *const entry = &c->table.entries[berth->number];

        if (berth->is_tied
            || (model->next_berth != NULL && model->berth_of[berth->number] != i))
            continue;
        bytes += entry->flags != BERTH_ENCODING_NATIVE
                     ? berthi_classify_record(&c->quantized, entry->owner)->total_bytes
                     : entry->end - entry->begin;
    }
    return bytes;
}

/* 0 where the model cannot be used: the job says why. */
static uint64_t
total_bytes(berth_model *model)
{
    uint64_t bytes;

    if (berthi_model_enter(model, NULL) != BERTH_OK)
        return 0;
    bytes = count_bytes(model);
    berthi_model_leave(model);
    return bytes;
}

berth_status
berth_check_start(berth_model *model, const berth_check_options *options,
                  berth_job **out_job, berth_error *error)
{
    berth_check_options taken;
    check *c;
    berth_status status;

    status = berthi_job_check_start(model, "model", out_job, error);
    if (status == BERTH_OK)
        status = berthi_options_take(&taken, sizeof taken,
                                     offsetof(berth_check_options, reserved), options,
                                     "options", error);
    if (status != BERTH_OK)
        return status;
    c = berthi_memory_zalloc(model->context, BERTHI_PURPOSE_OBJECT, sizeof *c);
    if (c == NULL)
        return berthi_fail_memory(error, "checking a model");
    c->context = model->context;
    c->model = model;
    c->options = taken;
    c->operations = berthi_level_operations(model->context->level);
    return berthi_job_start(model->context,
                            &(berthi_job_work){.run = run_check,
                                               .fini = free_check,
                                               .user = c,
                                               .phase = "check",
                                               .total = total_bytes(model),
                                               .progress = taken.progress,
                                               .progress_user = taken.progress_user},
                            out_job, error);
}
