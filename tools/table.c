/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - aligned columns. */
#include "tools/table.h"

#include <string.h>

#define SMALLEST_FIRST_COLUMN 16

void
table_column_add(table *t, const char *title, table_side side)
{
    t->columns[t->count++] = (table_column){ title, side, text_width(title) };
}

void
table_measure(table *t, const table_cell *cells)
{
    for (size_t i = 0; i < t->count; i++) {
        const size_t width = text_width(cells[i].text);

        if (width > t->columns[i].width)
            t->columns[i].width = width;
    }
}

size_t
table_width(const table *t)
{
    size_t width = t->count > 0 ? (t->count - 1) * TABLE_GAP : 0;

    for (size_t i = 0; i < t->count; i++)
        width += t->columns[i].width;
    return width;
}

void
table_fit(table *t, size_t width)
{
    size_t *const first = &t->columns[0].width;
    const size_t others = table_width(t) - *first;

    while (width > 0 && *first > SMALLEST_FIRST_COLUMN && *first + others > width)
        --*first;
}

static void
print_cell(const table_column *column, bool is_last, output *out, const screen *s,
           const table_cell *cell)
{
    const size_t width = text_width(cell->text);
    const size_t padding = width < column->width ? column->width - width : 0;

    if (column->side == TABLE_RIGHT)
        output_repeat(out, " ", padding);
    if (width > 0) {
        output_text(out, colour_begin(s, cell->style));
        output_text(out, cell->text);
        output_text(out, colour_end(s, cell->style));
    }
    if (column->side == TABLE_LEFT && !is_last)
        output_repeat(out, " ", padding);
    if (!is_last)
        output_repeat(out, " ", TABLE_GAP);
}

void
table_print(const table *t, output *out, const screen *s, const table_cell *cells)
{
    for (size_t i = 0; i < t->count; i++)
        print_cell(&t->columns[i], i + 1 == t->count, out, s, &cells[i]);
}

void
table_begin_rows(table *t, output *out, const screen *s)
{
    t->is_printing = true;
    for (size_t i = 0; i < t->count; i++) {
        const table_cell title = { t->columns[i].title, COLOUR_DIM };

        print_cell(&t->columns[i], i + 1 == t->count, out, s, &title);
    }
    output_text(out, "\n");
}

void
table_row(table *t, output *out, const screen *s, const table_cell *cells)
{
    if (!t->is_printing) {
        table_measure(t, cells);
        return;
    }
    table_print(t, out, s, cells);
    output_text(out, "\n");
}
