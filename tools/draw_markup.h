/* SPDX-License-Identifier: Apache-2.0 */
/* draw_markup.h - what SVG and HTML have in common: colours, classes, escapes. */
#ifndef BERTH_TOOLS_DRAW_MARKUP_H
#define BERTH_TOOLS_DRAW_MARKUP_H

#include "tools/draw_map.h"

/* Text of any origin within an element or a quoted attribute. */
void markup_text(output *out, const char *text);
/* Definitions of --wide, --half, ...: those of a light page, and of a dark one. */
extern const char markup_light[];
extern const char markup_dark[];
/* The name of the cell's colour without the dashes: "half", "cache". */
const char *markup_colour(const draw_cell *cell);
/* "resident", "lent", "absent" or "part". */
const char *markup_class(const draw_cell *cell);
/* "model.layers.7", "KV cache": what a cell is called. Returns `text`. */
const char *markup_cell_text(const draw_map *map, const draw_cell *cell,
                             char text[DRAW_TEXT_CAPACITY]);

/* One entry of a legend: a sort of cells and what all of them come to. */
typedef struct markup_entry {
    draw_cell cell;
    uint64_t bytes;
    char label[DRAW_TEXT_CAPACITY];
} markup_entry;

#define MARKUP_MAX_ENTRIES (3 * FORM_CLASSES + DRAW_KINDS)
/*
 * What is seen in tiers [first, after): layers by class, apart where they are
 * streamed, and the other parts. Returns how many.
 */
size_t markup_entries(const draw_map *map, size_t first, size_t after,
                      markup_entry entries[MARKUP_MAX_ENTRIES]);

#endif
