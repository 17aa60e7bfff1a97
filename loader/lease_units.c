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
#include <string.h>

#include "loader/lease_listing.h"
#include "loader/offload.h"

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
    if (!berthi_lease_is_on_disk(model, berth))
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
    berthi_about about = berthi_plan_about_layer(plan, unit->layer);

    about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES;
    about.expected = unit->bytes;
    about.actual = slot_bytes;
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
            if (berthi_lease_is_on_disk(model, about->first_berth + k))
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
    return status == BERTH_OK ? berthi_lease_list_disk(&l, error) : status;
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
