/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - aligned columns, in two passes so that no row is kept.
 *
 *     table_init(&t, titles, count)
 *     for each row: table_measure(&t, cells)
 *     table_fit(&t, columns)             a terminal: the first column shrinks
 *     table_print_title(&t, out, screen)
 *     for each row: table_print(&t, out, screen, cells)
 */
#ifndef BERTH_TOOLS_TABLE_H
#define BERTH_TOOLS_TABLE_H

#include "tools/colour.h"
#include "tools/output.h"

#define TABLE_MAX_COLUMNS 8
#define TABLE_GAP 2

typedef struct table_column {
    const char *title;
    bool is_right; /* numbers */
    size_t width;
} table_column;

typedef struct table_cell {
    const char *text; /* escaped */
    colour style;
} table_cell;

typedef struct table {
    size_t count;
    table_column columns[TABLE_MAX_COLUMNS];
} table;

/* Adds a column on the right; its title counts for the width. */
void table_column_add(table *t, const char *title, bool is_right);
void table_measure(table *t, const table_cell *cells);
/* Columns of all cells and the gaps between them. */
size_t table_width(const table *t);
/* Shrinks the first column, down to 16, until the table takes `width` columns. */
void table_fit(table *t, size_t width);
/* A row, padded in all columns but the last; no line feed. */
void table_print(const table *t, output *out, const screen *s, const table_cell *cells);
void table_print_title(const table *t, output *out, const screen *s);

#endif
