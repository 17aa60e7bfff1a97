/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - ranges of tensors into the caller's memory: what one rank of several needs.
 *
 *   rows      one range of the file
 *   columns   the rows they lie in are read once, as whole chunks, and the columns
 *             gathered from there: never in pieces of a few KiB
 *
 * Slices that overlap in a file are read together, once.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/sys.h"
#include "loader/checkpoint.h"
#include "loader/conveyor.h"
#include "loader/sort.h"

/* Smaller gaps are read through: a seek costs more. */
#define GAP_BYTES (UINT64_C(64) << 10)

/* A slice in its file: `rows` stretches of `width` bytes, `stride` from one to the next. */
typedef struct cut {
    uint64_t begin;
    uint64_t end;
    uint64_t stride;
    uint64_t width;
    uint64_t rows;
    uint8_t *memory;
    uint32_t file;
} cut;

/* Cuts that are read as one piece: in `order`. */
typedef struct group {
    uint32_t first;
    uint32_t count;
} group;

typedef struct slicing {
    berth_context *context;
    const berth_checkpoint *checkpoint;
    berth_slices_options options;
    berth_slices_report report;
    uint64_t start_ns;
    cut *cuts;
    uint32_t *order; /* of cuts: by file and beginning */
    group *groups;
    berthi_piece *pieces;
    uint32_t count; /* of each of the above */
    uint32_t piece_count;
    berthi_file *files;
    uint64_t total;
    _Atomic uint64_t copied;
} slicing;

/* ------------------------------------------------------------------------ measuring */

static berth_status
fail_slice(const berth_checkpoint *checkpoint, uint64_t tensor, const char *what,
           berth_error *error)
{
    const berthi_about where = berthi_checkpoint_about(checkpoint, tensor);

    return berthi_fail(error, BERTH_REASON_ARGUMENT, &where, "%s", what);
}

/* Bytes of so many values of `bits` each; false: no whole ones. */
static bool
can_count(uint64_t values, uint32_t bits, uint64_t *out_bytes)
{
    uint64_t all;

    if (!berthi_can_mul(values, bits, &all) || all % 8 != 0)
        return false;
    *out_bytes = all / 8;
    return true;
}

/* Where the slice lies. Its dims are those of a tensor that is there: no overflow. */
static berth_status
measure(const berth_checkpoint *checkpoint, const berth_slice *slice, cut *out,
        berth_error *error)
{
    const berthi_entry *entry;
    uint64_t shape[BERTH_MAX_RANK];
    uint64_t inner = 1;
    uint64_t lead;
    uint32_t bits;

    if (slice->tensor >= checkpoint->table.entry_count)
        return berthi_fail_argument(error, "slice", "is of no tensor");
    entry = &checkpoint->table.entries[slice->tensor];
    bits = berth_dtype_bits(entry->dtype);
    if (slice->dimension >= entry->rank)
        return fail_slice(checkpoint, slice->tensor, "has no such dimension", error);
    berthi_entry_shape(checkpoint->table.text, entry, shape);
    if (slice->first > shape[slice->dimension]
        || slice->count > shape[slice->dimension] - slice->first)
        return fail_slice(checkpoint, slice->tensor, "does not reach so far", error);
    *out = (cut){ .rows = 1, .file = entry->shard };
    for (uint32_t i = 0; i < slice->dimension; i++)
        out->rows *= shape[i];
    for (uint32_t i = slice->dimension + 1; i < entry->rank; i++)
        inner *= shape[i];
    if (!can_count(inner * slice->first, bits, &lead)
        || !can_count(inner * slice->count, bits, &out->width)
        || !can_count(inner * shape[slice->dimension], bits, &out->stride))
        return fail_slice(checkpoint, slice->tensor,
                          "has no whole bytes where it would be cut", error);
    if (out->width == out->stride) {
        out->width *= out->rows;
        out->stride = out->width;
        out->rows = out->rows > 0 ? 1 : 0;
    }
    out->begin = berthi_checkpoint_offset(checkpoint, entry) + lead;
    out->end = out->begin;
    if (out->rows > 0 && out->width > 0)
        out->end += (out->rows - 1) * out->stride + out->width;
    return BERTH_OK;
}

berth_status
berth_slice_measure(const berth_checkpoint *checkpoint, berth_slice *slice,
                    berth_error *error)
{
    cut found;
    berth_status status;

    berthi_error_clear(error);
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    if (slice == NULL)
        return berthi_fail_argument(error, "slice", "is NULL");
    status = measure(checkpoint, slice, &found, error);
    if (status == BERTH_OK)
        slice->bytes = found.rows * found.width;
    return status;
}

/* floor(size * part / parts), without the product. */
static uint64_t
bound(uint64_t size, uint32_t part, uint32_t parts)
{
    return size / parts * part + size % parts * part / parts;
}

berth_status
berth_slice_divide(const berth_checkpoint *checkpoint, uint64_t tensor,
                   uint32_t dimension, uint32_t part, uint32_t parts, berth_slice *out,
                   berth_error *error)
{
    uint64_t shape[BERTH_MAX_RANK];
    const berthi_entry *entry;

    berthi_error_clear(error);
    if (out == NULL)
        return berthi_fail_argument(error, "out", "is NULL");
    memset(out, 0, sizeof *out);
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    if (part >= parts)
        return berthi_fail_argument(error, "part", "is not below parts");
    if (tensor >= checkpoint->table.entry_count)
        return berthi_fail_argument(error, "tensor", "is none of the checkpoint");
    entry = &checkpoint->table.entries[tensor];
    if (dimension >= entry->rank)
        return fail_slice(checkpoint, tensor, "has no such dimension", error);
    berthi_entry_shape(checkpoint->table.text, entry, shape);
    out->tensor = tensor;
    out->dimension = dimension;
    out->first = bound(shape[dimension], part, parts);
    out->count = bound(shape[dimension], part + 1, parts) - out->first;
    return berth_slice_measure(checkpoint, out, error);
}

/* ------------------------------------------------------------------------ gathering */

/* What lies at `from` of the file goes to its places. */
static uint64_t
gather(const cut *c, uint64_t from, const uint8_t *bytes, uint64_t size)
{
    const uint64_t begin = berthi_max_u64(from, c->begin);
    const uint64_t end = berthi_min_u64(from + size, c->end);
    uint64_t copied = 0;

    if (begin >= end)
        return 0;
    for (uint64_t row = (begin - c->begin) / c->stride; row < c->rows; row++) {
        const uint64_t place = c->begin + row * c->stride;
        const uint64_t first = berthi_max_u64(place, begin);
        const uint64_t last = berthi_min_u64(place + c->width, end);

        if (place >= end)
            break;
        if (first >= last)
            continue; /* between two rows */
        memcpy(c->memory + row * c->width + (first - place), bytes + (first - from),
               last - first);
        copied += last - first;
    }
    return copied;
}

static berth_status
consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
        const uint8_t *bytes, berth_error *error)
{
    slicing *const s = user;
    uint64_t copied = 0;

    (void)error;
    for (uint32_t i = 0; i < chunk->span_count; i++) {
        const berthi_span *const span = &spans[i];
        const group *const g = &s->groups[span->tag];
        const uint64_t from = s->pieces[span->tag].offset + span->tag_offset;

        for (uint32_t k = g->first; k < g->first + g->count; k++)
            copied += gather(&s->cuts[s->order[k]], from, bytes + span->chunk_offset,
                             span->bytes);
    }
    atomic_fetch_add(&s->copied, copied);
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- listing */

static int
compare_cuts(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const cut *const cuts = user;

    (void)shared;
    if (cuts[a].file != cuts[b].file)
        return cuts[a].file < cuts[b].file ? -1 : 1;
    return (cuts[a].begin > cuts[b].begin) - (cuts[a].begin < cuts[b].begin);
}

/* One piece of the file for cuts that overlap. */
static void
list_pieces(slicing *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const cut *const c = &s->cuts[s->order[i]];
        berthi_piece *const piece = &s->pieces[s->piece_count];

        if (c->begin == c->end)
            continue;
        if (s->piece_count > 0 && piece[-1].file == c->file
            && c->begin < piece[-1].offset + piece[-1].bytes) {
            piece[-1].bytes = berthi_max_u64(piece[-1].bytes, c->end - piece[-1].offset);
            s->groups[s->piece_count - 1].count = i + 1 - s->groups[s->piece_count - 1].first;
            continue;
        }
        *piece = (berthi_piece){ .offset = c->begin,
                                 .bytes = c->end - c->begin,
                                 .tag = s->piece_count,
                                 .file = c->file };
        s->groups[s->piece_count++] = (group){ .first = i, .count = 1 };
    }
}

static berth_status
list(slicing *s, berth_error *error)
{
    berthi_sort_number(s->order, s->count);
    if (!berthi_sort_arrange(s->context, s->order, s->count, compare_cuts, s->cuts))
        return berthi_fail_memory(error, "listing slices");
    list_pieces(s);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------------ job */

static berth_status
convey(slicing *s, berth_job *job, berthi_conveyor_stats *stats, berth_error *error)
{
    const berthi_conveyor_options options = {
        .io = s->options.io,
        .no_uring = s->options.no_uring != 0,
        .readers = s->options.readers,
        .workers = s->options.workers,
        .ring_bytes = s->options.ring_bytes > 0 ? s->options.ring_bytes : BERTHI_RING_BYTES,
        .is_tuned = true,
    };
    const berthi_consumer consumer = { .user = s, .consume = consume };
    berthi_chunks chunks;
    berth_status status =
        berthi_chunks_build(s->context, s->pieces, s->piece_count, BERTHI_CHUNK_BYTES, GAP_BYTES,
                            &chunks, error);

    if (status != BERTH_OK)
        return status;
    berthi_job_set_total(job, chunks.span_bytes);
    status = berthi_conveyor_run(
        &(berthi_freight){ .context = s->context,
                           .job = job,
                           .files = s->files,
                           .file_count = s->checkpoint->shard_count,
                           .chunks = &chunks },
        &options, &consumer, stats, error);
    berthi_chunks_fini(&chunks);
    return status;
}

static berth_status
run_slices(berth_job *job, void *user, berth_error *error)
{
    slicing *const s = user;
    berthi_conveyor_stats stats = { .bytes_read = 0 };
    berth_status status = list(s, error);

    if (status == BERTH_OK)
        status = convey(s, job, &stats, error);
    if (status == BERTH_OK && atomic_load(&s->copied) != s->total)
        status = berthi_fail(error, BERTH_REASON_INTERNAL, NULL,
                             "not every byte of the slices was copied once");
    s->report.bytes = atomic_load(&s->copied);
    s->report.bytes_read = stats.bytes_read;
    s->report.seconds = 1e-9 * (double)(berthi_sys_now_ns() - s->start_ns);
    memcpy(s->report.io_path, stats.path, sizeof s->report.io_path);
    if (s->options.report != NULL)
        *s->options.report = s->report;
    return status;
}

static void
free_slices(void *user)
{
    slicing *const s = user;
    berth_context *const context = s->context;

    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, s->cuts,
                       s->count * sizeof *s->cuts);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, s->order,
                       s->count * sizeof *s->order);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, s->groups,
                       s->count * sizeof *s->groups);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, s->pieces,
                       s->count * sizeof *s->pieces);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, s->files,
                       s->checkpoint->shard_count * sizeof *s->files);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, s, sizeof *s);
}

static berth_status
take_slices(slicing *s, const berth_slice *slices, berth_error *error)
{
    for (uint32_t i = 0; i < s->count; i++) {
        cut *const c = &s->cuts[i];
        const berth_status status = measure(s->checkpoint, &slices[i], c, error);
        const uint64_t bytes = c->rows * c->width;

        if (status != BERTH_OK)
            return status;
        if (slices[i].bytes != bytes || (slices[i].memory == NULL && bytes > 0))
            return fail_slice(s->checkpoint, slices[i].tensor,
                              "gets memory of another size than its slice has", error);
        c->memory = slices[i].memory;
        s->total += bytes;
    }
    return BERTH_OK;
}

static berth_status
create(berth_context *context, const berth_checkpoint *checkpoint,
       const berth_slice *slices, uint32_t count, const berth_slices_options *options,
       slicing **out, berth_error *error)
{
    slicing *const s = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *s);
    berth_status status;

    if (s == NULL)
        return berthi_fail_memory(error, "reading slices");
    s->context = context;
    s->checkpoint = checkpoint;
    s->options = *options;
    s->start_ns = berthi_sys_now_ns();
    s->count = count;
    s->cuts = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, count, sizeof *s->cuts);
    s->order = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, count, sizeof *s->order);
    s->groups =
        berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, count, sizeof *s->groups);
    s->pieces =
        berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, count, sizeof *s->pieces);
    s->files = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, checkpoint->shard_count,
                                   sizeof *s->files);
    if (s->cuts == NULL || s->order == NULL || s->groups == NULL || s->pieces == NULL
        || s->files == NULL)
        status = berthi_fail_memory(error, "reading slices");
    else
        status = take_slices(s, slices, error);
    if (status == BERTH_OK) {
        berthi_checkpoint_copy_files(checkpoint, s->files);
        *out = s;
    } else {
        free_slices(s);
    }
    return status;
}

berth_status
berth_slices_start(berth_context *context, const berth_checkpoint *checkpoint,
                   const berth_slice *slices, uint32_t count,
                   const berth_slices_options *options, berth_job **out_job,
                   berth_error *error)
{
    berth_slices_options taken;
    berth_status status;
    slicing *s = NULL;

    status = berthi_job_check_start(context, "context", out_job, error);
    if (status == BERTH_OK && checkpoint == NULL)
        status = berthi_fail_argument(error, "checkpoint", "is NULL");
    if (status == BERTH_OK && slices == NULL && count > 0)
        status = berthi_fail_argument(error, "slices", "is NULL");
    if (status == BERTH_OK)
        status = berthi_options_take(&taken, sizeof taken,
                                     offsetof(berth_slices_options, reserved), options,
                                     "options", error);
    if (status == BERTH_OK && (taken.io < BERTH_IO_AUTO || taken.io > BERTH_IO_BUFFERED))
        status = berthi_fail_argument(error, "options", "has an unknown io");
    if (status == BERTH_OK)
        status = create(context, checkpoint, slices, count, &taken, &s, error);
    if (status != BERTH_OK)
        return status;
    return berthi_job_start(context,
                            &(berthi_job_work){ .run = run_slices,
                                                .fini = free_slices,
                                                .user = s,
                                                .phase = "slices",
                                                .progress = taken.progress,
                                                .progress_user = taken.progress_user },
                            out_job, error);
}
