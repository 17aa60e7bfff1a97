/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_read.c - bytes of the checkpoint, and of what was written, to the places of their
 * berths, on the conveyor: those that lay on the disk, or were left there while the model
 * slept.
 */
#include <stdatomic.h>
#include <string.h>

#include "loader/move.h"
#include "loader/offload.h"

#define CHUNK_BYTES (UINT64_C(8) << 20)
#define GAP_BYTES   (UINT64_C(1) << 20)

bool
berthi_move_is_stored(const berth_model *model, uint64_t berth)
{
    berthi_cargo cargo;

    if (berthi_offload_find(model->offload, berth) != NULL)
        return true;
    return berthi_model_cargo(model, berth, &cargo, NULL) == BERTH_OK
           && berthi_cargo_is_stored(&cargo);
}

/* -------------------------------------------------------------------------- lists */

berth_status
berthi_reads_init(berthi_reads *reads, const berth_model *model, berth_error *error)
{
    *reads = (berthi_reads){ .context = model->context,
                             .entry_count = model->checkpoint->table.entry_count };
    reads->read_count =
        reads->entry_count + (model->offload != NULL ? model->plan->berth_count : 0);
    reads->reads = berthi_memory_zalloc(reads->context, BERTHI_PURPOSE_CHUNKS,
                                        reads->read_count * sizeof *reads->reads);
    return reads->reads != NULL ? BERTH_OK : berthi_fail_memory(error, "moving a model");
}

void
berthi_reads_fini(berthi_reads *reads)
{
    if (reads->reads != NULL)
        berthi_memory_free(reads->context, BERTHI_PURPOSE_CHUNKS, reads->reads,
                           reads->read_count * sizeof *reads->reads);
    reads->reads = NULL;
}

berth_status
berthi_reads_add(berthi_reads *reads, const berth_model *model, uint64_t berth,
                 const berthi_spot *to, berth_error *error)
{
    const berthi_offload *const offload = berthi_offload_find(model->offload, berth);
    berthi_cargo cargo;
    berth_status status;

    if (offload != NULL) {
        reads->reads[reads->entry_count + berth] =
            (berthi_fetch){ .to = *to,
                           .first = offload->offsets[berth],
                           .bytes = model->plan->berths[berth].bytes };
        reads->count++;
        reads->bytes += model->plan->berths[berth].bytes;
        return BERTH_OK;
    }
    status = berthi_model_cargo(model, berth, &cargo, error);

    for (uint32_t i = 0; i < cargo.part_count && status == BERTH_OK; i++) {
        const berthi_cargo_part *const part = &cargo.parts[i];

        if (part->bytes == 0)
            continue;
        reads->reads[part->entry] =
            (berthi_fetch){ .to = *to,
                           .first = part->cut.first,
                           .bytes = part->bytes,
                           .padding = berthi_slab_round(part->bytes) - part->bytes };
        reads->reads[part->entry].to.memory += part->offset;
        reads->count++;
        reads->bytes += part->bytes;
    }
    return status;
}

static void
list_offloaded(const berthi_reads *reads, const berth_model *model, berthi_piece *pieces)
{
    uint64_t end = reads->count;

    for (const berthi_offload *o = model->offload; o != NULL; o = o->before)
        for (uint64_t i = o->berth_count; i-- > 0;) {
            const uint64_t tag = reads->entry_count + i;
            const berthi_fetch *const read = &reads->reads[tag];

            if (o->offsets[i] == BERTHI_NOT_OFFLOADED || read->to.memory == NULL)
                continue;
            pieces[--end] =
                (berthi_piece){ .offset = read->first,
                                .bytes = read->bytes,
                                .tag = tag,
                                .file = berthi_offload_file_number(model, o) };
        }
}

/*
 * Entries are numbered in the order of their bytes, file by file, and so are berths in each
 * of the files behind: the newest one's pieces are the last.
 */
static void
list_pieces(const berthi_reads *reads, const berth_model *model, berthi_piece *pieces)
{
    const berth_checkpoint *const checkpoint = model->checkpoint;
    uint64_t count = 0;

    for (uint64_t i = 0; i < reads->entry_count; i++) {
        const berthi_entry *const entry = &checkpoint->table.entries[i];
        const berthi_fetch *const read = &reads->reads[i];

        if (read->to.memory == NULL)
            continue;
        pieces[count++] =
            (berthi_piece){ .offset = berthi_checkpoint_offset(checkpoint, entry)
                                      + read->first,
                            .bytes = read->bytes,
                            .tag = i,
                            .file = entry->shard };
    }
    list_offloaded(reads, model, pieces);
}

/* ---------------------------------------------------------------------------- run */

/* One worker takes the bytes: it is the carrier's thread meanwhile. */
typedef struct reading {
    const berthi_reads *reads;
    berthi_carrier *carrier;
    _Atomic bool has_unpinned;
} reading;

static bool
can_pin_buffer(void *user, void *memory, uint64_t bytes)
{
    reading *const r = user;

    if (berthi_model_can_stage(r->carrier->model, memory, bytes))
        return true;
    atomic_store(&r->has_unpinned, true);
    return false;
}

static bool
can_keep_buffer(void *user, uint8_t *memory, uint64_t bytes, bool is_pinned)
{
    const reading *const r = user;

    return berthi_carrier_can_keep(r->carrier, memory, bytes, is_pinned);
}

static void
unpin_buffer(void *user, void *memory, uint64_t bytes)
{
    const reading *const r = user;

    berthi_model_unpin(r->carrier->model, memory, bytes);
}

static berth_status
consume(void *user, const berthi_chunk *chunk, const berthi_span *spans,
        const uint8_t *bytes, berth_error *error)
{
    reading *const r = user;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < chunk->span_count && status == BERTH_OK; i++) {
        /* The ring belongs to this run; that it is const is the conveyor's promise. */
        const berthi_spot from = { .memory = (uint8_t *)(uintptr_t)(
                                       bytes + spans[i].chunk_offset),
                                   .device = BERTHI_NO_DEVICE,
                                   .is_pinned = !atomic_load(&r->has_unpinned) };
        const berthi_fetch *const read = &r->reads->reads[spans[i].tag];
        berthi_spot to = read->to;

        to.memory += spans[i].tag_offset;
        status = berthi_carrier_ask(r->carrier, &from, &to, spans[i].bytes, error);
        to.memory += spans[i].bytes;
        if (status == BERTH_OK && spans[i].tag_offset + spans[i].bytes == read->bytes)
            status = berthi_carrier_clear(r->carrier, &to, read->padding, error);
    }
    return berthi_carrier_settle(r->carrier, status, error);
}

static berth_status
convey(reading *r, const berthi_file *files, const berthi_chunks *chunks,
       berth_error *error)
{
    const berth_model *const model = r->carrier->model;
    const berthi_ring_pins pins = { r, can_pin_buffer, unpin_buffer, can_keep_buffer };
    const berthi_conveyor_options options = {
        .io = model->lease_options.io,
        .no_uring = model->lease_options.no_uring,
        .readers = model->lease_options.readers,
        .workers = 1,
        .ring_bytes = berthi_max_u64(model->lease_options.ring_bytes, 4 * CHUNK_BYTES),
        .pins = model->devices != NULL ? &pins : NULL,
        .wait_ns = model->wait_ns,
    };
    const berthi_consumer consumer = { .user = r, .consume = consume };
    berthi_conveyor_stats stats;

    return berthi_conveyor_run(model->context,
                               r->carrier->is_undoing ? NULL : r->carrier->job, files,
                               berthi_offload_file_count(model), chunks, &options,
                               &consumer, &stats, error);
}

static berth_status
run_pieces(reading *r, berthi_file *files, berthi_piece *pieces, berth_error *error)
{
    const berth_model *const model = r->carrier->model;
    berthi_chunks chunks;
    berth_status status;

    berthi_checkpoint_copy_files(model->checkpoint, files);
    for (const berthi_offload *o = model->offload; o != NULL; o = o->before)
        files[berthi_offload_file_number(model, o)] = o->file;
    list_pieces(r->reads, model, pieces);
    status = berthi_chunks_build(r->reads->context, pieces, r->reads->count, CHUNK_BYTES,
                                 GAP_BYTES, &chunks, error);
    if (status != BERTH_OK)
        return status;
    status = convey(r, files, &chunks, error);
    r->carrier->read_bytes += status == BERTH_OK ? r->reads->bytes : 0;
    berthi_chunks_fini(&chunks);
    return status;
}

berth_status
berthi_reads_run(const berthi_reads *reads, berthi_carrier *carrier, berth_error *error)
{
    const uint64_t files_bytes =
        berthi_offload_file_count(carrier->model) * sizeof(berthi_file);
    const uint64_t pieces_bytes = reads->count * sizeof(berthi_piece);
    reading r = { .reads = reads, .carrier = carrier };
    berthi_file *files;
    berthi_piece *pieces;
    berth_status status;

    if (reads->count == 0)
        return BERTH_OK;
    files = berthi_memory_alloc(reads->context, BERTHI_PURPOSE_CHUNKS, files_bytes);
    pieces = berthi_memory_alloc(reads->context, BERTHI_PURPOSE_CHUNKS, pieces_bytes);
    if (files != NULL && pieces != NULL)
        status = run_pieces(&r, files, pieces, error);
    else
        status = berthi_fail_memory(error, "reading what was left on the disk");
    berthi_memory_free(reads->context, BERTHI_PURPOSE_CHUNKS, pieces, pieces_bytes);
    berthi_memory_free(reads->context, BERTHI_PURPOSE_CHUNKS, files, files_bytes);
    return status;
}
