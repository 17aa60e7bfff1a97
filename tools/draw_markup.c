/* SPDX-License-Identifier: Apache-2.0 */
/* draw_markup.c - what SVG and HTML have in common. */
#include "tools/draw_markup.h"

#include <stdio.h>
#include <string.h>

const char markup_light[] =
    "--paper:#ffffff;--card:#f5f6f8;--ink:#1b1f24;--dim:#59636e;--line:#d0d7de;"
    "--good:#1a7f37;--bad:#b3400f;"
    "--wide:#8250df;--half:#2f6fd6;--byte:#0e8a8a;--nibble:#2f8f46;"
    "--slots:#d4a017;--cache:#c2487a;--training:#6b4fa0;--activations:#d98ca9;--scratch:#9a7b5f;"
    "--staging:#7b8794;--reserve:#c3c9d0;--free:#ffffff";

const char markup_dark[] =
    "--paper:#0f1318;--card:#1a2028;--ink:#e6e9ed;--dim:#9aa5b1;--line:#343d48;"
    "--good:#56c271;--bad:#f0965f;"
    "--wide:#b08cf5;--half:#6ea5f7;--byte:#3dbdbd;--nibble:#5cbf74;"
    "--slots:#e0b84a;--cache:#e07aa3;--training:#a58ad8;--activations:#b07088;--scratch:#a98d72;"
    "--staging:#8793a0;--reserve:#4a5461;--free:#0f1318";

void
markup_text(output *out, const char *text)
{
    for (;;) {
        const size_t plain = strcspn(text, "&<>\"'");

        output_bytes(out, text, plain);
        text += plain;
        if (*text == '\0')
            return;
        output_format(out, "&#%d;", *text);
        text++;
    }
}

const char *
markup_colour(const draw_cell *cell)
{
    static const char *const classes[FORM_CLASSES] = { "wide", "half", "byte", "nibble" };
    static const char *const parts[DRAW_KINDS] = {
        [DRAW_SLOTS] = "slots",     [DRAW_CACHE] = "cache",
        [DRAW_KEPT] = "cache",      [DRAW_TRAINING] = "training",
        [DRAW_ACTIVATIONS] = "activations", [DRAW_SCRATCH] = "scratch",
        [DRAW_STAGING] = "staging", [DRAW_RESERVE] = "reserve",
        [DRAW_FREE] = "free",
    };

    return parts[cell->kind] != NULL ? parts[cell->kind] : classes[cell->class];
}

const char *
markup_class(const draw_cell *cell)
{
    switch (cell->kind) {
    case DRAW_RESIDENT: return "resident";
    case DRAW_LENT: return "lent";
    case DRAW_ABSENT: return "absent";
    default: return "part";
    }
}

const char *
markup_cell_text(const draw_map *map, const draw_cell *cell, char text[DRAW_TEXT_CAPACITY])
{
    if (cell->layer == BERTH_NO_INDEX)
        snprintf(text, DRAW_TEXT_CAPACITY, "%s", draw_kind_name(cell->kind));
    else if (cell->layer_count > 1)
        snprintf(text, DRAW_TEXT_CAPACITY, "%u layers from %s on", cell->layer_count,
                 map->layers[cell->layer].name);
    else
        snprintf(text, DRAW_TEXT_CAPACITY, "%s", map->layers[cell->layer].name);
    return text_whole(text);
}

/* ------------------------------------------------------------------- legends */

/* Bytes of cells of this kind and class in the tiers. */
static uint64_t
sum_cells(const draw_map *map, size_t first, size_t after, const draw_cell *like)
{
    uint64_t bytes = 0;

    for (size_t t = first; t < after; t++) {
        const draw_tier *const tier = &map->tiers[t];

        for (size_t i = 0; i < tier->cell_count; i++) {
            const draw_cell *const cell = &map->cells[tier->first_cell + i];

            if (cell->kind == like->kind && cell->class == like->class)
                bytes += cell->bytes;
        }
    }
    return bytes;
}

static void
label_entry(const draw_map *map, markup_entry *e)
{
    char types[DRAW_TEXT_CAPACITY];

    draw_types_text(map, e->cell.class, types);
    if (e->cell.kind == DRAW_RESIDENT)
        snprintf(e->label, sizeof e->label, "%s", types);
    else if (e->cell.layer == BERTH_NO_INDEX)
        snprintf(e->label, sizeof e->label, "%s", draw_kind_name(e->cell.kind));
    else
        snprintf(e->label, sizeof e->label, "%.400s, %s", types, draw_kind_name(e->cell.kind));
}

static size_t
add_entry(const draw_map *map, size_t first, size_t after, draw_cell cell,
          markup_entry *entry)
{
    const uint64_t bytes = sum_cells(map, first, after, &cell);

    if (bytes == 0)
        return 0;
    entry->cell = cell;
    entry->bytes = bytes;
    label_entry(map, entry);
    return 1;
}

size_t
markup_entries(const draw_map *map, size_t first, size_t after,
               markup_entry entries[MARKUP_MAX_ENTRIES])
{
    size_t count = 0;

    for (int k = 0; k < DRAW_KINDS; k++) {
        const bool is_part = k >= DRAW_SLOTS && k <= DRAW_FREE;

        for (int c = 0; c < FORM_CLASSES; c++) {
            const draw_cell cell = { (draw_kind)k, (form_class)c,
                                     is_part ? BERTH_NO_INDEX : 0, 1, 0 };

            count += add_entry(map, first, after, cell, &entries[count]);
        }
    }
    return count;
}
