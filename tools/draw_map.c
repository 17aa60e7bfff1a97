/* SPDX-License-Identifier: Apache-2.0 */
/* draw_map.c - cells out of the pieces of layers, their widths, and runs of layers. */
#include "tools/draw_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/grow.h"
#include "tools/number.h"

void
draw_map_fini(draw_map *map)
{
    for (size_t i = 0; i < map->layer_count; i++) {
        free(map->layers[i].name);
        free(map->layers[i].reason);
    }
    for (size_t i = 0; i < map->line_count; i++)
        free(map->lines[i].name);
    free(map->tiers);
    free(map->layers);
    free(map->pieces);
    free(map->lines);
    free(map->cells);
    memset(map, 0, sizeof *map);
}

/* --------------------------------------------------------------------- cells */

static bool
add_cell(draw_map *map, draw_tier *tier, const draw_cell *cell)
{
    draw_cell *cells;

    if (cell->bytes == 0)
        return true;
    cells = grow(map->cells, &map->cell_capacity, map->cell_count, 1, sizeof *cells);
    if (cells == NULL)
        return false;
    map->cells = cells;
    cells[map->cell_count++] = *cell;
    tier->cell_count++;
    tier->drawn += cell->bytes;
    return true;
}

static bool
add_part(draw_map *map, draw_tier *tier, draw_kind kind, uint64_t bytes)
{
    const draw_cell cell = { kind, FORM_HALF, BERTH_NO_INDEX, 0, bytes };

    return add_cell(map, tier, &cell);
}

/* What the piece is to the tier; DRAW_KINDS: nothing. */
static draw_kind
kind_of(const draw_map *map, const draw_piece *piece, uint32_t tier)
{
    const draw_layer *const layer = &map->layers[piece->layer];

    if (piece->tier == tier)
        return layer->home == tier ? DRAW_RESIDENT : DRAW_LENT;
    /* Rows that are fetched one by one are never all brought. */
    return layer->home == tier && layer->cause != BERTH_PLAN_ROWS ? DRAW_ABSENT : DRAW_KINDS;
}

/* The last cell of the tier, if the piece belongs into it: layers beyond the limit. */
static draw_cell *
cell_to_extend(const draw_map *map, const draw_tier *tier, const draw_piece *piece,
               draw_kind kind)
{
    draw_cell *last;

    if (tier->cell_count == 0 || piece->layer < DRAW_MAX_LAYERS)
        return NULL;
    last = &map->cells[map->cell_count - 1];
    return last->kind == kind && last->layer >= DRAW_MAX_LAYERS ? last : NULL;
}

static bool
add_piece(draw_map *map, draw_tier *tier, const draw_piece *piece, draw_kind kind)
{
    const draw_cell cell = { kind, piece->class, piece->layer, 1, piece->bytes };
    draw_cell *const last = cell_to_extend(map, tier, piece, kind);

    if (last == NULL)
        return add_cell(map, tier, &cell);
    last->layer_count = piece->layer - last->layer + 1;
    last->bytes += piece->bytes;
    tier->drawn += piece->bytes;
    return true;
}

/* The cells of layers: those that lie on the tier, or those that should. */
static bool
add_layers(draw_map *map, uint32_t number, bool are_absent)
{
    draw_tier *const tier = &map->tiers[number];

    for (size_t i = 0; i < map->piece_count; i++) {
        const draw_piece *const piece = &map->pieces[i];
        const draw_kind kind = kind_of(map, piece, number);

        if (kind == DRAW_KINDS || (kind == DRAW_ABSENT) != are_absent)
            continue;
        if (!add_piece(map, tier, piece, kind))
            return false;
        /* A pin or a map may keep away what there would be room for. */
        if (are_absent && map->layers[piece->layer].cause == BERTH_PLAN_SHORT)
            tier->absent += piece->bytes;
    }
    return true;
}

/*
 * Bytes that are drawn as free: at most as many as are taken, which then fill half of the bar.
 * A small model in a large memory would be a line at its edge otherwise.
 */
static uint64_t
drawn_free(draw_tier *tier, uint64_t taken)
{
    const uint64_t free_bytes = tier->facts.budget == UINT64_MAX ? UINT64_MAX
                                                                 : tier->facts.free;

    tier->is_cut = taken > 0 && free_bytes > taken;
    return tier->is_cut ? taken : free_bytes;
}

static bool
arrange_tier(draw_map *map, uint32_t number)
{
    draw_tier *const tier = &map->tiers[number];
    const berth_plan_tier *const f = &tier->facts;
    const draw_kind kept = map->is_training ? DRAW_KEPT : DRAW_CACHE;
    const struct {
        draw_kind kind;
        uint64_t bytes;
    } parts[] = {
        { DRAW_SLOTS, f->slots + f->expert_slots }, { kept, f->cache },
        { DRAW_TRAINING, f->training },             { DRAW_ACTIVATIONS, f->activations },
        { DRAW_SCRATCH, f->scratch + f->turned },   { DRAW_STAGING, f->staging },
        { DRAW_RESERVE, f->reserve },
    };
    size_t before_absent;

    tier->first_cell = map->cell_count;
    tier->cell_count = 0;
    tier->drawn = 0;
    tier->absent = 0;
    if (!add_layers(map, number, false))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!add_part(map, tier, parts[i].kind, parts[i].bytes))
            return false;
    tier->used = tier->drawn;
    if (!add_part(map, tier, DRAW_FREE, drawn_free(tier, tier->used)))
        return false;
    before_absent = tier->cell_count;
    if (!add_layers(map, number, true))
        return false;
    tier->absent_cells = tier->cell_count - before_absent;
    return true;
}

bool
draw_map_arrange(draw_map *map)
{
    map->cell_count = 0;
    for (size_t i = 0; i < map->tier_count; i++)
        if (!arrange_tier(map, (uint32_t)i))
            return false;
    return true;
}

/* -------------------------------------------------------------------- widths */

void
draw_map_ends(const draw_map *map, const draw_tier *tier, uint32_t units, uint32_t least,
              uint32_t *ends)
{
    const size_t count = tier->cell_count;
    const uint32_t each = (uint64_t)least * count <= units ? least : 0;
    const double shared = (double)(units - each * count);
    const double whole = (double)tier->drawn;
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += map->cells[tier->first_cell + i].bytes;
        ends[i] = (uint32_t)(each * (i + 1) + (uint64_t)((double)bytes / whole * shared + 0.5));
    }
}

/* ---------------------------------------------------------------------- runs */

#define LAYER_NUMBER_MOST UINT64_C(99999999999999999)

/* The last number in a name, and where it stands. False: there is none. */
static bool
find_number(const char *name, size_t *begin, size_t *length, uint64_t *number)
{
    size_t end = strlen(name);

    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9'))
        end--;
    *begin = end;
    while (*begin > 0 && name[*begin - 1] >= '0' && name[*begin - 1] <= '9')
        --*begin;
    *length = end - *begin;
    return number_can_parse(name + *begin, *length, LAYER_NUMBER_MOST, number);
}

bool
draw_is_next_name(const char *before, const char *after)
{
    size_t begin[2];
    size_t length[2];
    uint64_t number[2];

    return find_number(before, &begin[0], &length[0], &number[0])
           && find_number(after, &begin[1], &length[1], &number[1])
           && number[1] == number[0] + 1 && begin[0] == begin[1]
           && strncmp(before, after, begin[0]) == 0
           && strcmp(before + begin[0] + length[0], after + begin[1] + length[1]) == 0;
}

/* What the planner chose, as against what it was told. */
static bool
is_chosen(const draw_layer *layer)
{
    return layer->cause == BERTH_PLAN_RESIDENT || layer->cause == BERTH_PLAN_SHORT;
}

/* Streamed layers are spread among resident ones: together they are a run. */
static bool
is_like(const draw_layer *a, const draw_layer *b)
{
    return a->home == b->home && (a->cause == b->cause || (is_chosen(a) && is_chosen(b)));
}

uint32_t
draw_map_run(const draw_map *map, uint32_t first)
{
    uint32_t count = 1;

    while (first + count < map->layer_count
           && is_like(&map->layers[first], &map->layers[first + count])
           && draw_is_next_name(map->layers[first + count - 1].name,
                                map->layers[first + count].name))
        count++;
    return count;
}

const char *
draw_run_text(const draw_map *map, uint32_t first, uint32_t count,
              char text[DRAW_TEXT_CAPACITY])
{
    const char *const name = map->layers[first].name;
    size_t begin;
    size_t length;
    uint64_t number;

    if (count > 1 && find_number(name, &begin, &length, &number))
        snprintf(text, DRAW_TEXT_CAPACITY, "%.*s-%" PRIu64 "%s", (int)(begin + length), name,
                 number + count - 1, name + begin + length);
    else
        snprintf(text, DRAW_TEXT_CAPACITY, "%s", name);
    return text_whole(text);
}
