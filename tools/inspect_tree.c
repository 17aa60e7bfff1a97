/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_tree.c - modules and totals as rows with bars. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/inspect.h"
#include "tools/table.h"

#define ROWS_OF_A_SCREEN 44
#define LABEL_CAPACITY 1024
#define BAR_LEAST 8
#define BAR_MOST 32
#define COLUMNS_OF_A_PIPE 100
#define COLUMNS_FOR_SHAPES 72

/* ------------------------------------------------------------------- labels */

/* The last node of the chain that is shown in `node`'s row: "model.layers". */
static uint32_t
end_of_chain(const tree *t, uint32_t node)
{
    for (;;) {
        const tree_node *const n = &t->nodes[node];
        const uint32_t child = n->first_child;

        if (n->form != FORM_NONE || child == TREE_NONE || t->nodes[child].next != TREE_NONE)
            return node;
        if (n->repeat > 1 && t->nodes[child].first_child != TREE_NONE)
            return node;
        node = child;
    }
}

/* snprintf behind what is there; a long label is cut at the capacity. */
static void
add_text(char *label, const char *text)
{
    const size_t length = strlen(label);

    snprintf(label + length, LABEL_CAPACITY - length, "%s", text);
}

/* "0-31", "0-3,5,9-11"; a long list is cut. */
static void
add_ranges(char *label, const tree *t, const tree_node *n)
{
    for (size_t i = 0; i < n->range_count; i++) {
        const tree_range *r = &t->ranges[n->first_range + i];
        char text[64];

        if (i == 4 && n->range_count > 5) {
            r = &t->ranges[n->first_range + n->range_count - 1];
            i = n->range_count - 1;
            add_text(label, ",..");
        }
        snprintf(text, sizeof text, r->last > r->first ? "%s%" PRIu64 "-%" PRIu64
                                                       : "%s%" PRIu64,
                 i > 0 ? "," : "", r->first, r->last);
        add_text(label, text);
    }
}

static void
add_component(char *label, const tree *t, uint32_t node)
{
    const tree_node *const n = &t->nodes[node];
    const size_t length = strlen(label);

    if (n->repeat > 1)
        add_ranges(label, t, n);
    else if (n->name_length == 0)
        add_text(label, "\"\"");
    else
        berth_text_escape(n->name, n->name_length, label + length,
                          LABEL_CAPACITY - length);
}

/* "  layers.0-31 x 32", from `node` to the end of its chain. */
static void
fill_label(char label[LABEL_CAPACITY], const tree *t, uint32_t node, uint32_t level,
           bool has_unicode)
{
    const uint32_t last = end_of_chain(t, node);
    uint32_t repeat = t->nodes[node].repeat;
    char text[32];

    label[0] = '\0';
    for (uint32_t i = 1; i < level; i++)
        add_text(label, "  ");
    add_component(label, t, node);
    while (node != last) {
        node = t->nodes[node].first_child;
        add_text(label, ".");
        add_component(label, t, node);
        repeat = t->nodes[node].repeat > 1 ? t->nodes[node].repeat : repeat;
    }
    if (repeat > 1) {
        snprintf(text, sizeof text, " %s %" PRIu32, has_unicode ? "\xC3\x97" : "x", repeat);
        add_text(label, text);
    }
}

/* --------------------------------------------------------------------- walk */

/* A position in the walk over visible rows. */
typedef struct row {
    uint32_t node; /* where the row begins, TREE_NONE: past the last */
    uint32_t last; /* where its chain ends                           */
    uint32_t level;
} row;

static void
enter_row(const tree *t, row *r, uint32_t node, uint32_t level)
{
    r->node = node;
    r->level = level;
    r->last = node != TREE_NONE ? end_of_chain(t, node) : TREE_NONE;
}

/* To the next row of at most `depth` levels. */
static void
next_row(const tree *t, row *r, uint32_t depth, uint32_t *starts)
{
    const uint32_t child = t->nodes[r->last].first_child;

    if (child != TREE_NONE && r->level < depth) {
        starts[r->level] = r->node;
        enter_row(t, r, child, r->level + 1);
        return;
    }
    while (t->nodes[r->node].next == TREE_NONE && r->level > 1) {
        r->level--;
        r->node = starts[r->level];
    }
    enter_row(t, r, t->nodes[r->node].next, r->level);
}

/* Rows on each level, [1] to [TREE_MAX_DEPTH]. */
static void
count_rows(const tree *t, uint64_t counts[TREE_MAX_DEPTH + 1])
{
    uint32_t starts[TREE_MAX_DEPTH + 1];
    row r;

    memset(counts, 0, (TREE_MAX_DEPTH + 1) * sizeof *counts);
    enter_row(t, &r, t->nodes[0].first_child, 1);
    while (r.node != TREE_NONE) {
        counts[r.level]++;
        next_row(t, &r, TREE_MAX_DEPTH, starts);
    }
}

/* The deepest level at which all rows fit a screen. */
static uint32_t
choose_depth(const uint64_t counts[TREE_MAX_DEPTH + 1])
{
    uint64_t rows = counts[1];
    uint32_t depth = 1;

    while (depth < TREE_MAX_DEPTH && counts[depth + 1] > 0
           && rows + counts[depth + 1] <= ROWS_OF_A_SCREEN)
        rows += counts[++depth];
    return depth;
}

/* ---------------------------------------------------------------------- rows */

/* What all rows of the view share. */
typedef struct view {
    session *s;
    const inspection *i;
    table table;
    size_t bar_columns;
    bool has_shapes;
    bool is_printing; /* second pass */
} view;

static void
share_text(uint64_t bytes, uint64_t total, char text[16])
{
    const double share = total > 0 ? (double)bytes / (double)total * 100 : 0;

    if (bytes > 0 && share < 0.05)
        snprintf(text, 16, "<0.1%%");
    else
        snprintf(text, 16, "%.1f%%", share);
}

static void
print_row(view *v, const table_cell *cells, const tree_sums *sums)
{
    draw_part parts[FORM_CLASSES];

    table_print(&v->table, &v->s->out, &v->s->screen, cells);
    if (v->bar_columns > 0 && sums->bytes > 0) {
        for (size_t c = 0; c < FORM_CLASSES; c++)
            parts[c] = (draw_part){ sums->class_bytes[c], form_class_colour((form_class)c) };
        output_repeat(&v->s->out, " ", TABLE_GAP);
        draw_bar(&v->s->out, &v->s->screen, parts, FORM_CLASSES,
                 v->i->summary.tensor_bytes, v->bar_columns, false);
    }
    output_text(&v->s->out, "\n");
}

/* Measures the row, or prints it. */
static void
show_row(view *v, char *label, const char *type, const char *shape, const tree_sums *sums,
         colour style)
{
    char size[BERTH_SIZE_CAPACITY];
    char share[16];
    table_cell cells[TABLE_MAX_COLUMNS];
    size_t n = 0;

    share_text(sums->bytes, v->i->summary.tensor_bytes, share);
    cells[n++] = (table_cell){ label, style };
    cells[n++] = (table_cell){ type, COLOUR_NONE };
    if (v->has_shapes)
        cells[n++] = (table_cell){ shape, COLOUR_DIM };
    cells[n++] = (table_cell){ berth_size_format(sums->bytes, size), COLOUR_NONE };
    cells[n++] = (table_cell){ share, COLOUR_NONE };
    if (!v->is_printing) {
        table_measure(&v->table, cells);
        return;
    }
    text_cut(label, v->table.columns[0].width, v->s->screen.has_unicode);
    print_row(v, cells, sums);
}

static void
show_tree_row(view *v, const row *r)
{
    const tree *const t = &v->i->tree;
    const tree_node *const last = &t->nodes[r->last];
    char label[LABEL_CAPACITY];
    char type[FORM_TYPE_CAPACITY] = "";
    char shape[FORM_SHAPE_CAPACITY] = "";

    fill_label(label, t, r->node, r->level, v->s->screen.has_unicode);
    if (last->form != FORM_NONE) {
        const form *const f = &v->i->forms.forms[last->form];

        form_type_text(f, type);
        form_shape_text(form_shape(&v->i->forms, f), f->rank, shape);
    }
    show_row(v, label, type, shape, &t->nodes[r->node].sums,
             last->form == FORM_NONE ? COLOUR_HEADING : COLOUR_NONE);
}

static void
show_tree_rows(view *v, uint32_t depth, uint64_t least_bytes, uint64_t most_rows)
{
    const tree *const t = &v->i->tree;
    uint32_t starts[TREE_MAX_DEPTH + 1];
    tree_sums rest = { 0 };
    uint64_t left_out = 0;
    row r;

    enter_row(t, &r, t->nodes[0].first_child, 1);
    for (; r.node != TREE_NONE && !output_is_closed(&v->s->out);
         next_row(t, &r, depth, starts)) {
        const tree_sums *const sums = &t->nodes[r.node].sums;

        if (sums->bytes >= least_bytes && most_rows > 0) {
            show_tree_row(v, &r);
            most_rows--;
            continue;
        }
        left_out++;
        rest.bytes += sums->bytes;
        for (size_t c = 0; c < FORM_CLASSES; c++)
            rest.class_bytes[c] += sums->class_bytes[c];
    }
    if (left_out > 0) {
        char label[LABEL_CAPACITY];
        char number[TEXT_NUMBER_CAPACITY];

        snprintf(label, sizeof label, "%s more", text_number(left_out, number));
        show_row(v, label, "", "", &rest, COLOUR_DIM);
    }
}

/* The size that the largest ROWS_OF_A_SCREEN rows of the first level reach. */
static uint64_t
least_shown(const tree *t, uint64_t rows)
{
    uint64_t largest[ROWS_OF_A_SCREEN] = { 0 };

    if (rows <= ROWS_OF_A_SCREEN)
        return 0;
    for (uint32_t n = t->nodes[0].first_child; n != TREE_NONE; n = t->nodes[n].next) {
        uint64_t bytes = t->nodes[n].sums.bytes;

        for (size_t k = 0; k < ROWS_OF_A_SCREEN; k++)
            if (bytes > largest[k]) {
                const uint64_t smaller = largest[k];

                largest[k] = bytes;
                bytes = smaller;
            }
    }
    return largest[ROWS_OF_A_SCREEN - 1];
}

/* ---------------------------------------------------------------------- view */

static void
set_columns(view *v)
{
    const unsigned columns = v->s->screen.columns;

    v->has_shapes = columns == 0 || columns >= COLUMNS_FOR_SHAPES;
    v->table.count = 0;
    table_column_add(&v->table, "", TABLE_LEFT);
    table_column_add(&v->table, "", TABLE_LEFT);
    if (v->has_shapes)
        table_column_add(&v->table, "", TABLE_LEFT);
    table_column_add(&v->table, "", TABLE_RIGHT);
    table_column_add(&v->table, "", TABLE_RIGHT);
}

/* After the first pass: names give way first, then the bar. */
static void
fit_columns(view *v)
{
    const size_t columns = v->s->screen.columns;
    size_t taken;

    if (columns > 0)
        table_fit(&v->table, columns > BAR_LEAST + TABLE_GAP ? columns - BAR_LEAST - TABLE_GAP
                                                             : columns);
    taken = table_width(&v->table) + TABLE_GAP;
    if (columns == 0)
        v->bar_columns = taken + BAR_LEAST < COLUMNS_OF_A_PIPE ? COLUMNS_OF_A_PIPE - taken
                                                               : BAR_LEAST;
    else
        v->bar_columns = taken + BAR_LEAST <= columns ? columns - taken : 0;
    if (v->bar_columns > BAR_MOST)
        v->bar_columns = BAR_MOST;
}

static void
show_totals(view *v, const char *title, const inspect_total *totals, size_t count,
            bool is_by_dtype)
{
    if (v->is_printing)
        session_print_heading(v->s, title);
    for (size_t n = 0; n < count; n++) {
        const form_class c = is_by_dtype ? form_class_of_dtype((int32_t)n)
                                         : form_class_of_encoding((int32_t)n);
        tree_sums sums = { .bytes = totals[n].bytes };
        char label[LABEL_CAPACITY];
        char number[TEXT_NUMBER_CAPACITY];
        char tensors[TEXT_NUMBER_CAPACITY + 16];

        if (totals[n].tensors == 0)
            continue;
        sums.class_bytes[c] = sums.bytes;
        snprintf(label, sizeof label, "%s",
                 is_by_dtype ? berth_dtype_name((int32_t)n) : berth_encoding_name((int32_t)n));
        snprintf(tensors, sizeof tensors, "%s tensor%s",
                 text_number(totals[n].tensors, number), text_plural(totals[n].tensors));
        show_row(v, label, "", tensors, &sums, COLOUR_NONE);
    }
}

void
inspect_print(session *s, const inspection *i, uint32_t depth)
{
    uint64_t counts[TREE_MAX_DEPTH + 1];
    const bool is_auto = depth == INSPECT_DEPTH_AUTO;
    uint64_t least;
    view v = { .s = s, .i = i };

    count_rows(&i->tree, counts);
    if (is_auto)
        depth = choose_depth(counts);
    if (depth > TREE_MAX_DEPTH)
        depth = TREE_MAX_DEPTH;
    least = is_auto ? least_shown(&i->tree, counts[1]) : 0;
    inspect_print_head(s, i);
    if (i->listing.count == 0)
        return;
    set_columns(&v);
    for (int pass = 0; pass < 2; pass++) {
        v.is_printing = pass == 1;
        if (v.is_printing) {
            fit_columns(&v);
            output_text(&s->out, "\n");
        }
        show_tree_rows(&v, depth, least, is_auto && least > 0 ? ROWS_OF_A_SCREEN : UINT64_MAX);
        if (v.is_printing && is_auto && depth < TREE_MAX_DEPTH && counts[depth + 1] > 0)
            output_format(&s->out, "%sdeeper: --depth %" PRIu32 "%s\n",
                          colour_begin(&s->screen, COLOUR_DIM), depth + 1,
                          colour_end(&s->screen, COLOUR_DIM));
        show_totals(&v, "by dtype", i->dtypes, BERTH_DTYPE_COUNT, true);
        if (i->method_count > 0)
            show_totals(&v, "by encoding", i->encodings, INSPECT_ENCODINGS, false);
    }
}
