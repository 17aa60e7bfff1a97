/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_disk_units.c - what units bring from the disk: pieces of files, read in chunks,
 * those of layers in their order and then those of experts.
 */
#include <string.h>

#include "loader/lease_listing.h"
#include "loader/offload.h"

/* Bytes between two extents that are read and thrown away: cheaper than a read more. */
#define GAP_BYTES (UINT64_C(64) << 10)

bool
berthi_lease_is_on_disk(const berth_model *model, uint64_t berth)
{
    return model->tiers[model->plan->berths[berth].tier].kind == BERTH_TIER_DISK;
}

static berth_status
open_file(berthi_leases *leases, uint32_t shard, berth_error *error)
{
    const berthi_file *file;
    berth_status status;

    if (leases->files[shard].fd >= 0)
        return BERTH_OK;
    status = berthi_checkpoint_file(leases->model->checkpoint, shard, &file, error);
    if (status == BERTH_OK)
        leases->files[shard] = *file;
    return status;
}

/* The extents of a berth's parts, which go to `offset` of the slot and behind. */
static berth_status
add_berth(berthi_lease_listing *l, uint64_t berth, uint64_t offset, berth_error *error)
{
    const berth_model *const model = l->leases->model;
    const berth_checkpoint *const checkpoint = model->checkpoint;
    const berthi_offload *const offload = berthi_offload_find(model->offload, berth);
    berthi_cargo cargo;
    berth_status status;

    if (offload != NULL) {
        const uint32_t file = berthi_offload_file_number(model, offload);

        l->leases->files[file] = offload->file;
        l->pieces[l->piece_count++] = (berthi_piece){
            .offset = offload->offsets[berth],
            .bytes = model->plan->berths[berth].bytes,
            .tag = offset,
            .file = file,
        };
        return BERTH_OK;
    }
    status = berthi_cargo_get(checkpoint, model->plan, berth, &cargo, error);
    if (status != BERTH_OK)
        return status;
    if (!cargo.is_copied) {
        char name[BERTH_NAME_CAPACITY];

        (void)berthi_plan_name(model->plan, berth, name, sizeof name);
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .tensor = name,
                                            .tensor_length = strlen(name) },
                           "lies on the disk and would be encoded in each pass");
    }
    for (uint32_t i = 0; i < cargo.part_count; i++) {
        const berthi_cargo_part *const part = &cargo.parts[i];
        const berthi_entry *const entry = &checkpoint->table.entries[part->entry];

        status = open_file(l->leases, entry->shard, error);
        if (status != BERTH_OK)
            return status;
        l->pieces[l->piece_count++] = (berthi_piece){
            .offset = berthi_checkpoint_offset(checkpoint, entry) + part->cut.first,
            .bytes = part->bytes,
            .tag = offset + part->offset,
            .file = entry->shard,
        };
    }
    return BERTH_OK;
}

static bool
is_before(const berthi_piece *a, const berthi_piece *b)
{
    return a->file != b->file ? a->file < b->file : a->offset < b->offset;
}

/* Units have few pieces, and most are in order. */
static void
sort_pieces(berthi_lease_listing *l)
{
    for (uint64_t i = 1; i < l->piece_count; i++) {
        const berthi_piece piece = l->pieces[i];
        uint64_t at = i;

        for (; at > 0 && is_before(&piece, &l->pieces[at - 1]); at--)
            l->pieces[at] = l->pieces[at - 1];
        l->pieces[at] = piece;
    }
}

/* The unit's chunks behind those that are there; only counted while there is no table. */
static void
keep_chunks(berthi_leases *leases, uint32_t number, const berthi_chunks *chunks)
{
    berthi_lease_unit *const unit = &leases->units[number];
    berthi_chunks *const all = &leases->chunks;

    unit->first_chunk = all->chunk_count;
    unit->chunk_count = (uint32_t)chunks->chunk_count;
    for (uint64_t i = 0; all->chunks != NULL && i < chunks->chunk_count; i++) {
        berthi_chunk *const chunk = &all->chunks[all->chunk_count + i];

        *chunk = chunks->chunks[i];
        chunk->first_span += all->span_count;
        leases->unit_of_chunk[all->chunk_count + i] = number;
    }
    if (all->spans != NULL)
        memcpy(all->spans + all->span_count, chunks->spans,
               chunks->span_count * sizeof *chunks->spans);
    all->chunk_count += chunks->chunk_count;
    all->span_count += chunks->span_count;
    all->span_bytes += chunks->span_bytes;
}

static berth_status
list_chunks(berthi_lease_listing *l, uint32_t number, berth_error *error)
{
    const berth_model *const model = l->leases->model;
    const berthi_lease_unit *const unit = &l->leases->units[number];
    berthi_chunks chunks;
    berth_status status;

    l->piece_count = 0;
    for (uint32_t i = 0; i < unit->item_count; i++) {
        const berthi_lease_item *const item = &unit->items[i];

        if (!berthi_lease_is_on_disk(model, item->berth))
            continue;
        status = add_berth(l, item->berth, item->offset, error);
        if (status != BERTH_OK)
            return status;
    }
    if (l->piece_count == 0)
        return BERTH_OK;
    sort_pieces(l);
    status = berthi_chunks_build(l->leases->context, l->pieces, l->piece_count,
                                 l->chunk_bytes, GAP_BYTES, &chunks, error);
    if (status != BERTH_OK)
        return status;
    keep_chunks(l->leases, number, &chunks);
    berthi_chunks_fini(&chunks);
    l->leases->lines[unit->line].has_disk = true;
    return BERTH_OK;
}

/*
 * Those of layers in their order, whatever their line; then those of experts. What has no
 * slot is not read.
 */
static berth_status
list_all_chunks(berthi_lease_listing *l, berth_error *error)
{
    berthi_leases *const leases = l->leases;
    berth_status status = BERTH_OK;

    leases->chunks.chunk_count = 0;
    leases->chunks.span_count = 0;
    leases->chunks.span_bytes = 0;
    for (uint32_t i = 0; i < leases->model->plan->summary.layer_count; i++)
        if (leases->unit_of[i] != BERTHI_NO_UNIT && status == BERTH_OK)
            status = list_chunks(l, leases->unit_of[i], error);
    leases->layer_chunks = leases->chunks.chunk_count;
    for (uint32_t u = 0; u < leases->unit_count && status == BERTH_OK; u++)
        if (leases->units[u].expert != BERTHI_NO_EXPERT
            && leases->lines[leases->units[u].line].slot_count > 0)
            status = list_chunks(l, u, error);
    return status;
}

/* Counted first, then kept. */
berth_status
berthi_lease_list_disk(berthi_lease_listing *l, berth_error *error)
{
    berthi_leases *const leases = l->leases;
    berthi_chunks *const all = &leases->chunks;
    berth_status status = list_all_chunks(l, error);

    if (status != BERTH_OK || all->chunk_count == 0)
        return status;
    all->chunk_bytes = l->chunk_bytes;
    all->chunks = berthi_arena_alloc(&leases->arena,
                                     all->chunk_count * sizeof *all->chunks, 8);
    all->spans = berthi_arena_alloc(&leases->arena, all->span_count * sizeof *all->spans,
                                    8);
    leases->unit_of_chunk = berthi_arena_alloc(
        &leases->arena, all->chunk_count * sizeof *leases->unit_of_chunk, 4);
    if (all->chunks == NULL || all->spans == NULL || leases->unit_of_chunk == NULL)
        return berthi_fail_memory(error, "what is streamed from the disk");
    return list_all_chunks(l, error);
}
