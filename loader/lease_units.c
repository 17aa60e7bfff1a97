/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_units.c - which layers take turns in slots, and where their bytes are.
 *
 *   berths of a layer        resident | away | away | expert | rows
 *   its unit                            [ 0  |  1 ]   one behind the other
 *   comes from                          host    disk
 *
 * Experts are brought when they are chosen (lease_expert_units.c) and rows one by one:
 * neither is part of a layer's unit. The plan does not say which berth is an embedding's;
 * what a layer brings, it does, and rows lie behind what is brought.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/lease_listing.h"
#include "loader/offload.h"

/* Bytes between two extents that are read and thrown away: cheaper than a read more. */
#define GAP_BYTES (UINT64_C(64) << 10)

/* ------------------------------------------------------------------ what is away */

static bool
is_away(const berthi_berth *berth)
{
    return !berth->is_resident && !berth->is_expert && !berth->is_tied;
}

/*
 * The offset in the slab from which on berths of the layer hold rows; UINT64_MAX: none
 * does.
 */
static uint64_t
find_rows(const berth_plan *plan, uint32_t layer)
{
    const berth_plan_layer *const about = &plan->layers[layer].out;
    const berthi_berth *const berths = &plan->berths[about->first_berth];
    uint64_t away = 0;
    uint64_t rows = UINT64_MAX;
    bool has_experts = false;

    for (uint64_t i = 0; i < about->berth_count; i++) {
        away += is_away(&berths[i]) ? berths[i].bytes : 0;
        has_experts |= berths[i].is_expert && !berths[i].is_resident;
    }
    while (!has_experts && away > about->link_bytes) {
        const berthi_berth *last = NULL;

        for (uint64_t i = 0; i < about->berth_count; i++)
            if (is_away(&berths[i]) && berths[i].offset < rows
                && (last == NULL || berths[i].offset > last->offset))
                last = &berths[i];
        if (last == NULL || last->bytes > away - about->link_bytes)
            return UINT64_MAX;
        away -= last->bytes;
        rows = last->offset;
    }
    return rows;
}

static bool
is_part(const berthi_berth *berth, uint64_t rows)
{
    return is_away(berth) && berth->offset < rows && berth->bytes > 0;
}

uint64_t
berthi_lease_unit_bytes(const berth_plan *plan, uint32_t layer, uint64_t *out_rows)
{
    const berth_plan_layer *const about = &plan->layers[layer].out;
    uint64_t bytes = 0;

    *out_rows = find_rows(plan, layer);
    for (uint64_t i = 0; i < about->berth_count; i++)
        if (is_part(&plan->berths[about->first_berth + i], *out_rows))
            bytes += plan->berths[about->first_berth + i].bytes;
    return bytes;
}

static bool
is_on_disk(const berth_model *model, uint64_t berth)
{
    return model->tiers[model->plan->berths[berth].tier].kind == BERTH_TIER_DISK;
}

/* ------------------------------------------------------------------------- units */

/* One copy brings what lies together on both sides. */
static void
add_move(berthi_lease_listing *l, berthi_lease_unit *unit, const berthi_berth *berth)
{
    const berthi_model_tier *const tier = &l->leases->model->tiers[berth->tier];
    const uint8_t *const from = tier->slab + berth->offset;

    if (unit->move_count > 0) {
        berthi_lease_move *const last = &l->moves[l->move_count - 1];

        if (last->from + last->bytes == from && last->offset + last->bytes == unit->bytes
            && last->is_pinned == tier->is_pinned) {
            last->bytes += berth->bytes;
            return;
        }
    }
    l->moves[l->move_count++] = (berthi_lease_move){ .from = from,
                                                     .offset = unit->bytes,
                                                     .bytes = berth->bytes,
                                                     .is_pinned = tier->is_pinned };
    unit->move_count++;
}

berthi_lease_unit *
berthi_lease_list_unit(berthi_lease_listing *l, uint32_t layer)
{
    berthi_lease_unit *const unit = &l->leases->units[l->leases->unit_count];

    *unit = (berthi_lease_unit){ .layer = layer,
                                 .expert = BERTHI_NO_EXPERT,
                                 .line = l->leases->line_count,
                                 .items = &l->items[l->item_count],
                                 .moves = &l->moves[l->move_count] };
    return unit;
}

void
berthi_lease_list_berth(berthi_lease_listing *l, berthi_lease_unit *unit, uint64_t berth)
{
    const berth_model *const model = l->leases->model;
    const berthi_berth *const about = &model->plan->berths[berth];

    l->items[l->item_count++] = (berthi_lease_item){ berth, unit->bytes };
    unit->item_count++;
    if (!is_on_disk(model, berth))
        add_move(l, unit, about);
    unit->bytes += about->bytes;
}

void
berthi_lease_keep_unit(berthi_lease_listing *l, berthi_lease_unit *unit)
{
    l->leases->lines[unit->line].unit_count++;
    l->leases->unit_count++;
}

/* Lists the unit of a layer, which has no berths where nothing is brought for the layer. */
static berthi_lease_unit *
list_layer(berthi_lease_listing *l, uint32_t layer)
{
    const berth_plan *const plan = l->leases->model->plan;
    const berth_plan_layer *const about = &plan->layers[layer].out;
    const uint64_t end = about->first_berth + about->berth_count;
    const uint64_t rows = find_rows(plan, layer);
    berthi_lease_unit *const unit = berthi_lease_list_unit(l, layer);

    for (uint64_t i = about->first_berth; i < end; i++)
        if (is_part(&plan->berths[i], rows))
            berthi_lease_list_berth(l, unit, i);
    return unit;
}

static berth_status
refuse_slot(const berth_plan *plan, const berthi_lease_unit *unit, uint64_t slot_bytes,
            berth_error *error)
{
    const char *const name = plan->layers[unit->layer].out.name;
    const berthi_about about = { .tensor = name,
                                 .tensor_length = strlen(name),
                                 .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                        | BERTH_HAS_BYTES,
                                 .expected = unit->bytes,
                                 .actual = slot_bytes };

    return berthi_fail(error, BERTH_REASON_SLOTS, &about,
                       "the plan has no slot for what is brought of this layer");
}

/* Units of one line, behind those of the lines before. */
static berth_status
list_line(berthi_lease_listing *l, uint32_t tier, berth_error *error)
{
    berthi_leases *const leases = l->leases;
    const berth_plan *const plan = leases->model->plan;
    const berthi_model_tier *const memory = &leases->model->tiers[tier];
    berthi_lease_line *const line = &leases->lines[leases->line_count];

    line->device = memory->device;
    line->tier = tier;
    line->first_unit = leases->unit_count;
    line->slot_count = memory->slot_count;
    line->slots_at = memory->slots;
    line->slot_bytes = memory->slot_bytes;
    for (uint32_t i = 0; i < plan->summary.layer_count; i++) {
        const uint64_t slot_bytes = memory->slot_count > 0 ? memory->slot_bytes : 0;
        berthi_lease_unit *unit;

        if (plan->layers[i].out.home != tier)
            continue;
        unit = list_layer(l, i);
        if (unit->item_count == 0)
            continue;
        if (unit->bytes > slot_bytes || memory->slot_count > BERTHI_STREAM_SLOTS_MAX)
            return refuse_slot(plan, unit, slot_bytes, error);
        leases->unit_of[i] = leases->unit_count;
        berthi_lease_keep_unit(l, unit);
    }
    leases->line_count += line->unit_count > 0;
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- the disk */

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

        if (!is_on_disk(model, item->berth))
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
static berth_status
list_disk(berthi_lease_listing *l, berth_error *error)
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

/* ------------------------------------------------------------------------ tables */

/* What tables have to have room for, at most. */
typedef struct counts {
    uint64_t away;     /* berths, of layers and experts */
    uint64_t experts;  /* units */
    uint64_t of_layer; /* berths of one */
    uint64_t pieces;   /* of one unit, on the disk */
} counts;

static void
count_berths(const berth_model *model, counts *out)
{
    *out = (counts){ .away = 0 };
    for (uint32_t i = 0; i < model->plan->summary.layer_count; i++) {
        const berth_plan_layer *const about = &model->plan->layers[i].out;
        uint64_t pieces = 0;

        for (uint64_t k = 0; k < about->berth_count; k++) {
            const berthi_berth *const berth =
                &model->plan->berths[about->first_berth + k];

            if (berth->is_resident || berth->is_tied)
                continue;
            out->away++;
            out->experts += berth->is_expert;
            if (is_on_disk(model, about->first_berth + k))
                pieces += BERTH_MODEL_PARTS;
        }
        out->of_layer = berthi_max_u64(out->of_layer, about->berth_count);
        out->pieces = berthi_max_u64(out->pieces, pieces);
    }
}

/* Memory that listing needs while it goes on. */
static bool
alloc_listing(berthi_lease_listing *l, const counts *c)
{
    berthi_arena *const arena = &l->leases->arena;

    /* A unit that is not one has taken no place: one more is always there. */
    l->items = berthi_arena_alloc(arena, (c->away + 1) * sizeof *l->items, 8);
    l->moves = berthi_arena_alloc(arena, (c->away + 1) * sizeof *l->moves, 8);
    l->pieces = berthi_arena_alloc(arena, c->pieces * sizeof *l->pieces, 8);
    l->numbers = berthi_arena_alloc(arena, c->of_layer * sizeof *l->numbers, 4);
    l->order = berthi_arena_alloc(arena, c->of_layer * sizeof *l->order, 4);
    return l->items != NULL && l->moves != NULL && l->pieces != NULL
           && l->numbers != NULL && l->order != NULL;
}

/* False: out of memory. */
static bool
alloc_tables(berthi_lease_listing *l)
{
    berthi_leases *const leases = l->leases;
    const berth_plan_summary *const summary = &leases->model->plan->summary;
    const uint64_t layers = summary->layer_count;
    const uint64_t lines = 2 * (uint64_t)summary->tier_count + 1; /* and one of experts */
    berthi_arena *const arena = &leases->arena;
    counts c;

    count_berths(leases->model, &c);
    leases->file_count = berthi_offload_file_count(leases->model);
    leases->unit_of = berthi_arena_alloc(arena, layers * sizeof *leases->unit_of, 4);
    leases->experts = berthi_arena_alloc(arena, layers * sizeof *leases->experts, 8);
    leases->units = berthi_arena_alloc(
        arena, (layers + c.experts + 1) * sizeof *leases->units, 8);
    leases->lines = berthi_arena_alloc(arena, lines * sizeof *leases->lines, 16);
    leases->files =
        berthi_arena_alloc(arena, leases->file_count * sizeof *leases->files, 8);
    if (leases->unit_of == NULL || leases->experts == NULL || leases->units == NULL
        || leases->lines == NULL || leases->files == NULL || !alloc_listing(l, &c))
        return false;
    memset(leases->lines, 0, lines * sizeof *leases->lines);
    memset(leases->experts, 0, layers * sizeof *leases->experts);
    memset(leases->unit_of, 0xff, layers * sizeof *leases->unit_of);
    for (uint32_t i = 0; i < leases->file_count; i++)
        leases->files[i] = (berthi_file){ .fd = -1, .path = "" };
    return true;
}

berth_status
berthi_lease_units_list(berthi_leases *leases, uint64_t chunk_bytes, berth_error *error)
{
    berthi_lease_listing l = { .leases = leases, .chunk_bytes = chunk_bytes };
    berth_status status = BERTH_OK;

    if (!alloc_tables(&l))
        return berthi_fail_memory(error, "the layers that are streamed");
    for (uint32_t t = 0; t < leases->model->tier_count && status == BERTH_OK; t++)
        status = list_line(&l, t, error);
    for (uint32_t t = 0; t < leases->model->tier_count && status == BERTH_OK; t++)
        status = berthi_lease_list_experts(&l, t, error);
    return status == BERTH_OK ? list_disk(&l, error) : status;
}

const berthi_lease_unit *
berthi_lease_unit_of(const berthi_leases *leases, uint32_t layer)
{
    const uint32_t unit = layer < leases->model->plan->summary.layer_count
                              ? leases->unit_of[layer]
                              : BERTHI_NO_UNIT;

    return unit == BERTHI_NO_UNIT ? NULL : &leases->units[unit];
}

uint64_t
berthi_lease_offset_of(const berthi_lease_unit *unit, uint64_t berth)
{
    uint32_t low = 0;

    for (uint32_t high = unit->item_count; low < high;) {
        const uint32_t middle = low + (high - low) / 2;

        if (unit->items[middle].berth < berth)
            low = middle + 1;
        else
            high = middle;
    }
    return low < unit->item_count && unit->items[low].berth == berth
               ? unit->items[low].offset
               : UINT64_MAX;
}
