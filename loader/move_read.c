/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_read.c - bytes of the checkpoint, and of what was written, to the places of their
 * berths, on the conveyor: those that lay on the disk, or were left there while the model
 * slept.
 */
#include <stdatomic.h>

#include "kernels/grow.h"
#include "loader/move.h"
#include "loader/offload.h"
#include "loader/sort.h"

#define GAP_BYTES   (UINT64_C(1) << 20)
#define FETCHES     UINT64_C(64) /* the first room of a list */

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

void
berthi_reads_init(berthi_reads *reads, berth_context *context)
{
    *reads = (berthi_reads){ .context = context };
}

void
berthi_reads_fini(berthi_reads *reads)
{
    berthi_memory_free(reads->context, BERTHI_PURPOSE_CHUNKS, reads->at,
                       reads->capacity * sizeof *reads->at);
    *reads = (berthi_reads){ .context = reads->context };
}

/* False: out of memory. */
static bool
grow(berthi_reads *reads)
{
    const berthi_growth growth = { .size = sizeof *reads->at,
                                   .used = reads->count,
                                   .before = reads->capacity,
                                   .after = berthi_grown(reads->capacity, FETCHES) };
    berthi_fetch *const at = berthi_memory_grow(reads->context, BERTHI_PURPOSE_CHUNKS,
                                                reads->at, &growth);

    if (at == NULL)
        return false;
    reads->at = at;
    reads->capacity = growth.after;
    return true;
}

static berth_status
add_fetch(berthi_reads *reads, const berthi_fetch *fetch, berth_error *error)
{
    if (reads->count == reads->capacity && !grow(reads))
        return berthi_fail_memory(error, "moving a model");
    reads->at[reads->count++] = *fetch;
    reads->bytes += fetch->bytes;
    return BERTH_OK;
}

berth_status
berthi_reads_add(berthi_reads *reads, const berth_model *model, uint64_t berth,
                 const berthi_spot *to, berth_error *error)
{
    const berthi_table *const table = &model->checkpoint->table;
    const berthi_offload *const offload = berthi_offload_find(model->offload, berth);
    berthi_fetch fetch = { .to = *to };
    berthi_cargo cargo;
    berth_status status;

    if (offload != NULL) {
        fetch.offset = offload->offsets[berth];
        fetch.bytes = model->plan->berths[berth].bytes;
        fetch.file = berthi_offload_file_number(model, offload);
        return add_fetch(reads, &fetch, error);
    }
    status = berthi_model_cargo(model, berth, &cargo, error);
    for (uint32_t i = 0; i < cargo.part_count && status == BERTH_OK; i++) {
        const berthi_cargo_part *const part = &cargo.parts[i];
        const berthi_entry *const entry = &table->entries[part->entry];

        if (part->bytes == 0)
            continue;
        fetch.to.memory = to->memory + part->offset;
        fetch.offset =
            berthi_checkpoint_offset(model->checkpoint, entry) + part->cut.first;
        fetch.bytes = part->bytes;
        fetch.padding = berthi_slab_round(part->bytes) - part->bytes;
        fetch.file = entry->shard;
        status = add_fetch(reads, &fetch, error);
    }
    return status;
}

static int
compare_fetches(void *user, uint32_t a, uint32_t b, uint64_t *shared)
{
    const berthi_fetch *const x = (const berthi_fetch *)user + a;
    const berthi_fetch *const y = (const berthi_fetch *)user + b;

    (void)shared;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/*
 * In the order of the files; their tags are their numbers in the list. False: out of memory.
 */
static bool
list_pieces(const berthi_reads *reads, uint32_t *order, berthi_piece *pieces)
{
    berthi_sort_number(order, reads->count);
    if (!berthi_sort_arrange(reads->context, order, reads->count, compare_fetches,
                             reads->at))
        return false;
    for (uint64_t i = 0; i < reads->count; i++) {
        const berthi_fetch *const fetch = &reads->at[order[i]];

        pieces[i] = (berthi_piece){ .offset = fetch->offset,
                                    .bytes = fetch->bytes,
                                    .tag = order[i],
                                    .file = fetch->file };
    }
    return true;
}

/* ---------------------------------------------------------------------------- run */

/* One worker takes the bytes: it is the carrier's thread meanwhile. */
typedef struct reading {
    const berthi_reads *reads;
    berthi_carrier *carrier;
    _Atomic bool has_unpinned;
} reading;

static bool
pin_buffer(void *user, void *memory, uint64_t bytes)
{
    reading *const r = user;

    if (berthi_model_pin_stage(r->carrier->model, memory, bytes))
        return true;
    atomic_store(&r->has_unpinned, true);
    return false;
}

static bool
keep_buffer(void *user, uint8_t *memory, uint64_t bytes, bool is_pinned)
{
    const reading *const r = user;

    return berthi_carrier_keep(r->carrier, memory, bytes, is_pinned);
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
        const berthi_fetch *const read = &r->reads->at[spans[i].tag];
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
    const berthi_ring_pins pins = { r, pin_buffer, unpin_buffer, keep_buffer };
    const berthi_conveyor_options options = {
        .io = model->lease_options.io,
        .no_uring = model->lease_options.no_uring,
        .readers = model->lease_options.readers,
        .workers = 1,
        .ring_bytes = berthi_max_u64(model->lease_options.ring_bytes, 4 * BERTHI_CHUNK_BYTES),
        .is_tuned = true,
        .pins = model->devices != NULL ? &pins : NULL,
        .wait_ns = model->wait_ns,
    };
    const berthi_consumer consumer = { .user = r, .consume = consume };
    const berthi_freight freight = {
        .context = model->context,
        .job = r->carrier->is_undoing ? NULL : r->carrier->job,
        .files = files,
        .file_count = berthi_offload_file_count(model),
        .chunks = chunks,
    };
    berthi_conveyor_stats stats;

    return berthi_conveyor_run(&freight, &options, &consumer, &stats, error);
}

/* What is needed while it is read. */
typedef struct reading_lists {
    berthi_file *files;
    berthi_piece *pieces;
    uint32_t *order;
} reading_lists;

static berth_status
run_pieces(reading *r, const reading_lists *lists, berth_error *error)
{
    const berth_model *const model = r->carrier->model;
    berthi_chunks chunks;
    berth_status status;

    berthi_checkpoint_copy_files(model->checkpoint, lists->files);
    for (const berthi_offload *o = model->offload; o != NULL; o = o->before)
        lists->files[berthi_offload_file_number(model, o)] = o->file;
    if (!list_pieces(r->reads, lists->order, lists->pieces))
        return berthi_fail_memory(error, "reading what was left on the disk");
    status = berthi_chunks_build(r->reads->context, lists->pieces, r->reads->count,
                                 BERTHI_CHUNK_BYTES, GAP_BYTES, &chunks, error);
    if (status != BERTH_OK)
        return status;
    status = convey(r, lists->files, &chunks, error);
    r->carrier->read_bytes += status == BERTH_OK ? r->reads->bytes : 0;
    berthi_chunks_fini(&chunks);
    return status;
}

berth_status
berthi_reads_run(const berthi_reads *reads, berthi_carrier *carrier, berth_error *error)
{
    berth_context *const context = reads->context;
    const uint64_t files_bytes =
        berthi_offload_file_count(carrier->model) * sizeof(berthi_file);
    const uint64_t pieces_bytes = reads->count * sizeof(berthi_piece);
    const uint64_t order_bytes = reads->count * sizeof(uint32_t);
    reading r = { .reads = reads, .carrier = carrier };
    reading_lists lists;
    berth_status status;

    if (reads->count == 0)
        return BERTH_OK;
    lists.files = berthi_memory_alloc(context, BERTHI_PURPOSE_CHUNKS, files_bytes);
    lists.pieces = berthi_memory_alloc(context, BERTHI_PURPOSE_CHUNKS, pieces_bytes);
    lists.order = berthi_memory_alloc(context, BERTHI_PURPOSE_CHUNKS, order_bytes);
    if (lists.files != NULL && lists.pieces != NULL && lists.order != NULL)
        status = run_pieces(&r, &lists, error);
    else
        status = berthi_fail_memory(error, "reading what was left on the disk");
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, lists.order, order_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, lists.pieces, pieces_bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, lists.files, files_bytes);
    return status;
}
