/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - aligned columns, in two passes so that no row is kept.
 *
 *     table t = { 0 };
 *     for each column: table_column_add(&t, title, TABLE_LEFT)
 *     for each row: table_row(&t, out, screen, cells)      measures it
 *     table_fit(&t, screen->columns)                       the first column shrinks
 *     table_begin_rows(&t, out, screen)                    prints the titles
 *     for each row: table_row(&t, out, screen, cells)      prints it
 */
#ifndef BERTH_TOOLS_TABLE_H
#define BERTH_TOOLS_TABLE_H

#include "tools/colour.h"
#include "tools/output.h"

#define TABLE_MAX_COLUMNS 8
#define TABLE_GAP 2

typedef enum table_side {
    TABLE_LEFT,
    TABLE_RIGHT /* numbers */
} table_side;

typedef struct table_column {
    const char *title;
    table_side side;
    size_t width;
} table_column;

typedef struct table_cell {
    const char *text; /* escaped */
    colour style;
} table_cell;

typedef struct table {
    bool is_printing; /* the second pass */
    size_t count;
    table_column columns[TABLE_MAX_COLUMNS];
} table;

/* Adds a column on the right; its title counts for the width. */
void table_column_add(table *t, const char *title, table_side side);
void table_measure(table *t, const table_cell *cells);
/* Columns of all cells and the gaps between them. */
size_t table_width(const table *t);
/* Shrinks the first column, down to 16, until the table takes `width` columns; 0: no limit. */
void table_fit(table *t, size_t width);
/* A row, padded in all columns but the last; no line feed. */
void table_print(const table *t, output *out, const screen *s, const table_cell *cells);
/* The titles, and the second pass begins. */
void table_begin_rows(table *t, output *out, const screen *s);
/* Measures the row; in the second pass prints it, with a line feed. */
void table_row(table *t, output *out, const screen *s, const table_cell *cells);

#endif
