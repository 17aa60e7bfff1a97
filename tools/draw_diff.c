/* SPDX-License-Identifier: Apache-2.0 */
/* draw_diff.c - what moved from one plan to another. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/draw_map.h"
#include "tools/table.h"

#define MOVE_COLUMNS 4

typedef struct comparison {
    output *out;
    const screen *s;
    const draw_map *before;
    const draw_map *after;
    /* For each layer of `after` that of `before` with its name, or BERTH_NO_INDEX. */
    uint32_t *old;
    /* For each layer of `before`: whether `after` has it. */
    bool *is_kept;
} comparison;

/* ---------------------------------------------------------------------- names */

/* A layer by its name. */
typedef struct name_entry {
    const char *name;
    uint32_t layer;
} name_entry;

static int
compare_names(const void *a, const void *b)
{
    return strcmp(((const name_entry *)a)->name, ((const name_entry *)b)->name);
}

static bool
match_layers(comparison *c)
{
    const size_t count = c->before->layer_count;
    name_entry *const names = calloc(count + 1, sizeof *names);

    c->old = calloc(c->after->layer_count + 1, sizeof *c->old);
    c->is_kept = calloc(count + 1, sizeof *c->is_kept);
    if (names == NULL || c->old == NULL || c->is_kept == NULL) {
        free(names);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        names[i] = (name_entry){ c->before->layers[i].name, (uint32_t)i };
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < c->after->layer_count; i++) {
        const name_entry wanted = { c->after->layers[i].name, 0 };
        const name_entry *const found = bsearch(&wanted, names, count, sizeof *names,
                                                compare_names);

        c->old[i] = found != NULL ? found->layer : BERTH_NO_INDEX;
        if (found != NULL)
            c->is_kept[found->layer] = true;
    }
    free(names);
    return true;
}

/* ---------------------------------------------------------------------- moves */

/* Home and tiers of the layers are the same, whatever the shares. */
static bool
is_placed_alike(const draw_map *map, uint32_t a, uint32_t b)
{
    const draw_layer *const first = &map->layers[a];
    const draw_layer *const second = &map->layers[b];

    if (first->home != second->home || first->piece_count != second->piece_count)
        return false;
    for (size_t i = 0; i < first->piece_count; i++)
        if (map->pieces[first->first_piece + i].tier
            != map->pieces[second->first_piece + i].tier)
            return false;
    return true;
}

/* Bytes that these layers, which are placed alike, have on the tier. */
static uint64_t
bytes_on(const draw_map *map, uint32_t first, uint32_t count, uint32_t tier)
{
    uint64_t bytes = 0;

    for (uint32_t i = first; i < first + count; i++) {
        const draw_layer *const layer = &map->layers[i];

        for (size_t n = 0; n < layer->piece_count; n++)
            if (map->pieces[layer->first_piece + n].tier == tier)
                bytes += map->pieces[layer->first_piece + n].bytes;
    }
    return bytes;
}

/* "cuda:0"; "cuda:0, from cpu"; "cuda:0, 40% from cpu": home, and what is elsewhere. */
static const char *
place_text(const draw_map *map, uint32_t first, uint32_t count,
           char text[DRAW_TEXT_CAPACITY])
{
    const draw_layer *const layer = &map->layers[first];
    uint64_t all = 0;
    size_t length = (size_t)snprintf(text, DRAW_TEXT_CAPACITY, "%s",
                                     map->tiers[layer->home].facts.name);

    for (uint32_t i = first; i < first + count; i++)
        all += map->layers[i].bytes;
    for (size_t i = 0; i < layer->piece_count && length < DRAW_TEXT_CAPACITY / 2; i++) {
        const uint32_t tier = map->pieces[layer->first_piece + i].tier;
        char share[32] = "";

        if (tier == layer->home)
            continue;
        if (layer->piece_count > 1)
            snprintf(share, sizeof share, "%.0f%% ",
                     (double)bytes_on(map, first, count, tier) * 100 / (double)all);
        length += (size_t)snprintf(text + length, DRAW_TEXT_CAPACITY - length, ", %sfrom %s",
                                   share, map->tiers[tier].facts.name);
    }
    return text;
}

/* Layers in a row that moved from one place to another. */
typedef struct move {
    const draw_map *map; /* that the layers are of */
    uint32_t first;
    uint32_t count;
} move;

/* The layer's number before and after; BERTH_NO_INDEX: it is not there. */
static uint32_t
number_before(const comparison *c, const draw_map *map, uint32_t number)
{
    return map == c->before ? number : c->old[number];
}

static uint32_t
number_after(const comparison *c, const draw_map *map, uint32_t number)
{
    return map == c->before ? BERTH_NO_INDEX : number;
}

static bool
has_moved(const comparison *c, const draw_map *map, uint32_t number)
{
    const uint32_t before = number_before(c, map, number);
    const uint32_t after = number_after(c, map, number);
    char texts[2][DRAW_TEXT_CAPACITY];

    if (map == c->before)
        return !c->is_kept[number];
    return before == BERTH_NO_INDEX
           || strcmp(place_text(c->before, before, 1, texts[0]),
                     place_text(c->after, after, 1, texts[1])) != 0;
}

/* Both are absent, or they follow one another and lie alike. */
static bool
is_alike_on(const draw_map *map, uint32_t a, uint32_t b)
{
    return a == BERTH_NO_INDEX || b == BERTH_NO_INDEX
               ? a == b
               : b == a + 1 && is_placed_alike(map, a, b);
}

/* The layer after `number` moved as it did, and is the next by name. */
static bool
continues(const comparison *c, const draw_map *map, uint32_t number)
{
    const uint32_t next = number + 1;

    return next < map->layer_count && has_moved(c, map, next)
           && draw_is_next_name(map->layers[number].name, map->layers[next].name)
           && is_alike_on(c->before, number_before(c, map, number),
                          number_before(c, map, next))
           && is_alike_on(c->after, number_after(c, map, number),
                          number_after(c, map, next));
}

/* The next move of layers from `from` on; false: there is none. */
static bool
next_move(const comparison *c, const draw_map *map, uint32_t from, move *m)
{
    while (from < map->layer_count && !has_moved(c, map, from))
        from++;
    *m = (move){ map, from, 1 };
    while (continues(c, map, m->first + m->count - 1))
        m->count++;
    return from < map->layer_count;
}

/* Texts of a line of the table. */
typedef struct move_texts {
    char name[DRAW_TEXT_CAPACITY];
    char before[DRAW_TEXT_CAPACITY];
    char after[DRAW_TEXT_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];
} move_texts;

static void
fill_place(const draw_map *map, uint32_t first, uint32_t count,
           char text[DRAW_TEXT_CAPACITY])
{
    if (first == BERTH_NO_INDEX)
        snprintf(text, DRAW_TEXT_CAPACITY, "-");
    else
        place_text(map, first, count, text);
}

static void
make_row(const comparison *c, const move *m, size_t name_width,
         table_cell row[MOVE_COLUMNS], move_texts *texts)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < m->count; i++)
        bytes += m->map->layers[m->first + i].bytes;
    draw_run_text(m->map, m->first, m->count, texts->name);
    text_cut(texts->name, name_width, c->s->has_unicode);
    fill_place(c->before, number_before(c, m->map, m->first), m->count, texts->before);
    fill_place(c->after, number_after(c, m->map, m->first), m->count, texts->after);
    berth_size_format(bytes, texts->size);
    row[0] = (table_cell){ texts->name, COLOUR_NONE };
    row[1] = (table_cell){ texts->before, COLOUR_NONE };
    row[2] = (table_cell){ texts->after, COLOUR_NONE };
    row[3] = (table_cell){ texts->size, COLOUR_NONE };
}

/* One pass of the table over all moves. Returns their layers. */
static size_t
walk_moves(const comparison *c, table *t)
{
    const draw_map *const maps[] = { c->after, c->before };
    table_cell row[MOVE_COLUMNS];
    move_texts texts;
    size_t layers = 0;
    move m;

    for (size_t i = 0; i < 2; i++)
        for (uint32_t from = 0; next_move(c, maps[i], from, &m); from = m.first + m.count) {
            layers += m.count;
            make_row(c, &m, t->is_printing ? t->columns[0].width : DRAW_NAME_WIDTH, row,
                     &texts);
            table_row(t, c->out, c->s, row);
        }
    return layers;
}

static void
print_moves(const comparison *c, size_t columns)
{
    table t = { 0 };
    size_t layers;

    table_column_add(&t, "layers", TABLE_LEFT);
    table_column_add(&t, "before", TABLE_LEFT);
    table_column_add(&t, "after", TABLE_LEFT);
    table_column_add(&t, "size", TABLE_RIGHT);
    layers = walk_moves(c, &t);
    if (layers == 0) {
        output_text(c->out, "no layer has moved\n");
        return;
    }
    output_format(c->out, "%zu layer%s moved\n\n", layers, layers == 1 ? " has" : "s have");
    table_fit(&t, columns);
    table_begin_rows(&t, c->out, c->s);
    walk_moves(c, &t);
}

/* ---------------------------------------------------------------------- tiers */

static const draw_tier *
find_tier(const draw_map *map, const char *name)
{
    for (size_t i = 0; i < map->tier_count; i++)
        if (strcmp(map->tiers[i].facts.name, name) == 0)
            return &map->tiers[i];
    return NULL;
}

#define LABEL "before "

/* The bar of one side, so long that both have one scale. */
static bool
print_side(const comparison *c, const draw_map *map, const draw_tier *tier,
           const char *label, uint64_t longest, size_t columns)
{
    size_t width = 0;

    output_format(c->out, "%-*s", (int)strlen(LABEL), label);
    if (tier == NULL) {
        output_text(c->out, "none\n");
        return true;
    }
    if (longest > 0) /* or there is nothing on either side */
        width = (size_t)((double)tier->drawn / (double)longest * (double)columns + 0.5);
    if (width < 2)
        width = 2;
    if (!draw_map_bar(c->out, c->s, map, tier, width))
        return false;
    output_text(c->out, "\n");
    return true;
}

static bool
print_tier(const comparison *c, const draw_tier *old, const draw_tier *new, size_t columns)
{
    const draw_tier *const some = new != NULL ? new : old;
    const uint64_t old_drawn = old != NULL ? old->drawn : 0;
    const uint64_t new_drawn = new != NULL ? new->drawn : 0;
    const uint64_t longest = old_drawn > new_drawn ? old_drawn : new_drawn;
    const size_t room = columns - strlen(LABEL);
    char size[2][BERTH_SIZE_CAPACITY];

    output_format(c->out, "\n%s%s%s  %s of weights, before %s\n",
                  colour_begin(c->s, COLOUR_HEADING), some->facts.name,
                  colour_end(c->s, COLOUR_HEADING),
                  berth_size_format(new != NULL ? new->facts.weights : 0, size[0]),
                  berth_size_format(old != NULL ? old->facts.weights : 0, size[1]));
    return print_side(c, c->before, old, "before", longest, room)
           && print_side(c, c->after, new, "after", longest, room);
}

static bool
print_tiers(const comparison *c, size_t columns)
{
    for (size_t i = 0; i < c->after->tier_count; i++) {
        const draw_tier *const tier = &c->after->tiers[i];

        if (!print_tier(c, find_tier(c->before, tier->facts.name), tier, columns))
            return false;
    }
    for (size_t i = 0; i < c->before->tier_count; i++) {
        const draw_tier *const tier = &c->before->tiers[i];

        if (find_tier(c->after, tier->facts.name) == NULL
            && !print_tier(c, tier, NULL, columns))
            return false;
    }
    return true;
}

bool
draw_map_difference(output *out, const screen *s, const draw_map *before,
                    const draw_map *after, size_t columns)
{
    comparison c = { .out = out, .s = s, .before = before, .after = after };
    bool is_done = match_layers(&c);

    if (is_done) {
        print_moves(&c, columns);
        is_done = print_tiers(&c, columns);
    }
    if (is_done) {
        output_text(out, "\n");
        draw_map_legend(out, s, after, before, columns);
    }
    free(c.old);
    free(c.is_kept);
    return is_done;
}
