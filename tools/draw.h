/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - bars made of parts.
 *
 * The layout, where each part begins and ends in units of 1/8 column, knows
 * nothing of terminals: every renderer starts from it.
 */
#ifndef BERTH_TOOLS_DRAW_H
#define BERTH_TOOLS_DRAW_H

#include "tools/colour.h"
#include "tools/output.h"

#define DRAW_MAX_PARTS 8
#define DRAW_UNITS_PER_COLUMN 8

typedef struct draw_part {
    uint64_t bytes;
    colour style;
} draw_part;

/* Ends of the parts, ascending, at most columns * DRAW_UNITS_PER_COLUMN. */
typedef struct draw_layout {
    size_t count;
    uint64_t ends[DRAW_MAX_PARTS];
    colour styles[DRAW_MAX_PARTS];
} draw_layout;

/*
 * Parts of a bar whose full length stands for `total` bytes. Something that is
 * there is never invisible: the bar of at least one byte has a unit. Parts
 * beyond the last fitting one are merged into it.
 */
void draw_lay_out(const draw_part *parts, size_t count, uint64_t total, size_t columns,
                  draw_layout *layout);

/* The bar as characters; `is_framed`: the empty rest is shown, too. */
void draw_bar(output *out, const screen *s, const draw_part *parts, size_t count,
              uint64_t total, size_t columns, bool is_framed);

#endif
