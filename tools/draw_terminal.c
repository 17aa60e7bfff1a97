/* SPDX-License-Identifier: Apache-2.0 */
/* draw_terminal.c - a map as characters: bars, legend, runs of layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/draw_map.h"
#include "tools/table.h"

#define NARROW 60
/* A cell of so many columns shows where it ends. */
#define SEPARATED 3
#define LEGEND_GAP "   "
#define REASON_INDENT 4

/* ---------------------------------------------------------------------- bars */

static colour
colour_of(const draw_cell *cell)
{
    static const colour colours[DRAW_KINDS] = {
        [DRAW_SLOTS] = COLOUR_WARNING,  [DRAW_CACHE] = COLOUR_NOTE,
        [DRAW_KEPT] = COLOUR_NOTE,      [DRAW_TRAINING] = COLOUR_WARNING,
        [DRAW_ACTIVATIONS] = COLOUR_NOTE, [DRAW_SCRATCH] = COLOUR_NOTE,
        [DRAW_STAGING] = COLOUR_NOTE,   [DRAW_RESERVE] = COLOUR_DIM,
        [DRAW_FREE] = COLOUR_DIM,
    };

    return cell->layer != BERTH_NO_INDEX ? form_class_colour(cell->class)
                                         : colours[cell->kind];
}

/*
 * Where there are no colours the height of a block, or a letter, tells how wide the
 * values of a layer are.
 */
static const char *
layer_glyph(const screen *s, form_class class)
{
    static const char *const heights[FORM_CLASSES] = { "\xE2\x96\x88", "\xE2\x96\x86",
                                                       "\xE2\x96\x84", "\xE2\x96\x82" };
    static const char *const letters[FORM_CLASSES] = { "W", "H", "8", "4" };

    return !s->has_unicode ? letters[class] : s->has_colour ? heights[0] : heights[class];
}

static const char *
glyph(const screen *s, const draw_cell *cell)
{
    switch (cell->kind) {
    case DRAW_RESIDENT: return layer_glyph(s, cell->class);
    case DRAW_LENT:
        return s->has_unicode && s->has_colour ? "\xE2\x96\x93" : layer_glyph(s, cell->class);
    case DRAW_ABSENT: return s->has_unicode ? "\xE2\x96\x91" : "/";
    case DRAW_SLOTS: return "s";
    case DRAW_CACHE: return "c";
    case DRAW_KEPT: return "b";
    case DRAW_TRAINING: return "t";
    case DRAW_ACTIVATIONS: return "a";
    case DRAW_SCRATCH: return "q";
    case DRAW_STAGING: return "p";
    case DRAW_RESERVE: return "r";
    default: return s->has_unicode ? "\xC2\xB7" : ".";
    }
}

/* The cell that holds most of a column; the first of equal ones. */
static size_t
cell_of_column(const uint32_t *ends, size_t count, size_t column)
{
    const uint32_t first = (uint32_t)column * DRAW_UNITS_PER_COLUMN;
    const uint32_t after = first + DRAW_UNITS_PER_COLUMN;
    size_t best = 0;
    uint32_t most = 0;
    uint32_t begin = 0;

    for (size_t i = 0; i < count; i++) {
        const uint32_t low = begin > first ? begin : first;
        const uint32_t high = ends[i] < after ? ends[i] : after;

        if (high > low && high - low > most) {
            most = high - low;
            best = i;
        }
        begin = ends[i];
    }
    return best;
}

/* The last column of a wide cell leaves a gap. */
static bool
is_end_of_cell(const screen *s, const size_t *cells, size_t columns, size_t column)
{
    size_t width = 1;

    if (!s->has_colour || !s->has_unicode || column + 1 == columns
        || cells[column + 1] == cells[column])
        return false;
    while (width <= column && cells[column - width] == cells[column])
        width++;
    return width >= SEPARATED;
}

/* What a column shows. */
static const char *
glyph_of_column(const screen *s, const draw_map *map, const draw_tier *tier,
                const size_t *cells, size_t columns, size_t column)
{
    const draw_cell *const cell = &map->cells[tier->first_cell + cells[column]];
    const bool is_last = column + 1 == columns || cells[column + 1] != cells[column];

    if (cell->kind == DRAW_FREE && is_last && tier->is_cut)
        return s->has_unicode ? "\xE2\x80\xA6" : ">";
    if (cell->kind == DRAW_RESIDENT && is_end_of_cell(s, cells, columns, column))
        return "\xE2\x96\x89";
    return glyph(s, cell);
}

static void
print_bar(output *out, const screen *s, const draw_map *map, const draw_tier *tier,
          const size_t *cells, size_t columns)
{
    const size_t in_budget = tier->cell_count - tier->absent_cells;
    const char *const edge = s->has_unicode ? "\xE2\x94\x83" : "|";
    colour current = COLOUR_NONE;

    for (size_t i = 0; i < columns; i++) {
        const colour style = colour_of(&map->cells[tier->first_cell + cells[i]]);
        const bool is_edge = cells[i] >= in_budget && (i == 0 || cells[i - 1] < in_budget);

        if (is_edge || style != current)
            output_text(out, colour_end(s, current));
        if (is_edge)
            output_text(out, edge);
        if (is_edge || style != current)
            output_text(out, colour_begin(s, style));
        current = style;
        output_text(out, glyph_of_column(s, map, tier, cells, columns, i));
    }
    output_text(out, colour_end(s, current));
}

bool
draw_map_bar(output *out, const screen *s, const draw_map *map, const draw_tier *tier,
             size_t columns)
{
    /* The edge of the budget takes a column. */
    const size_t inner = columns - (tier->absent_cells > 0 ? 1 : 0);
    uint32_t *const ends = calloc(tier->cell_count + 1, sizeof *ends);
    size_t *const cells = calloc(inner, sizeof *cells);

    if (ends != NULL && cells != NULL && tier->cell_count > 0) {
        draw_map_ends(map, tier, (uint32_t)(inner * DRAW_UNITS_PER_COLUMN), 1, ends);
        for (size_t i = 0; i < inner; i++)
            cells[i] = cell_of_column(ends, tier->cell_count, i);
        print_bar(out, s, map, tier, cells, inner);
    }
    free(ends);
    free(cells);
    return ends != NULL && cells != NULL;
}

/* --------------------------------------------------------------------- tiers */

static void
print_styled(output *out, const screen *s, colour style, const char *text)
{
    output_text(out, colour_begin(s, style));
    output_text(out, text);
    output_text(out, colour_end(s, style));
}

/* "cuda:0  12 layers  18.20 GiB of 20.00 GiB            short of 412.00 MiB" */
static void
print_head(output *out, const screen *s, const draw_tier *tier, size_t columns)
{
    char middle[DRAW_TEXT_CAPACITY];
    char use[DRAW_TEXT_CAPACITY];
    char verdict[DRAW_TEXT_CAPACITY];
    const uint32_t layers = tier->facts.layers;
    size_t taken;

    draw_use_text(tier, use);
    draw_verdict_text(tier, verdict);
    if (columns < NARROW || layers == 0)
        snprintf(middle, sizeof middle, "%.200s", columns < NARROW ? "" : use);
    else
        snprintf(middle, sizeof middle, "%.200s, %u layer%s", use, layers,
                 text_plural(layers));
    print_styled(out, s, COLOUR_HEADING, tier->facts.name);
    output_text(out, "  ");
    output_text(out, middle);
    taken = strlen(tier->facts.name) + 2 + strlen(middle) + strlen(verdict);
    output_repeat(out, " ", taken < columns ? columns - taken : 1);
    print_styled(out, s, tier->absent > 0 ? COLOUR_WARNING : COLOUR_GOOD, verdict);
    output_text(out, "\n");
}

/* -------------------------------------------------------------------- legend */

typedef struct legend {
    output *out;
    const screen *s;
    size_t columns;
    size_t used;
} legend;

static void
print_entry(legend *l, const draw_cell *cell, const char *label)
{
    const size_t width = 2 + text_width(label);

    if (l->used > 0 && l->used + strlen(LEGEND_GAP) + width > l->columns) {
        output_text(l->out, "\n");
        l->used = 0;
    }
    if (l->used > 0)
        output_text(l->out, LEGEND_GAP);
    print_styled(l->out, l->s, colour_of(cell), glyph(l->s, cell));
    output_text(l->out, " ");
    output_text(l->out, label);
    l->used += width + (l->used > 0 ? strlen(LEGEND_GAP) : 0);
}

static bool
has_kind(const draw_map *map, draw_kind kind)
{
    for (size_t i = 0; map != NULL && i < map->cell_count; i++)
        if (map->cells[i].kind == kind)
            return true;
    return false;
}

static bool
has_class(const draw_map *map, form_class class)
{
    for (size_t i = 0; map != NULL && i < map->cell_count; i++)
        if (map->cells[i].class == class && map->cells[i].layer != BERTH_NO_INDEX)
            return true;
    return false;
}

/* Only what is seen is explained. */
void
draw_map_legend(output *out, const screen *s, const draw_map *map, const draw_map *other,
                size_t columns)
{
    legend l = { out, s, columns, 0 };
    char types[DRAW_TEXT_CAPACITY];

    for (int c = 0; c < FORM_CLASSES; c++) {
        const draw_cell cell = { DRAW_RESIDENT, (form_class)c, 0, 1, 0 };

        if (has_class(map, (form_class)c))
            print_entry(&l, &cell, draw_types_text(map, (form_class)c, types));
        else if (has_class(other, (form_class)c))
            print_entry(&l, &cell, draw_types_text(other, (form_class)c, types));
    }
    for (int k = DRAW_SLOTS; k < DRAW_KINDS; k++) {
        const draw_cell cell = { (draw_kind)k, FORM_HALF, BERTH_NO_INDEX, 0, 0 };

        if (has_kind(map, (draw_kind)k) || has_kind(other, (draw_kind)k))
            print_entry(&l, &cell, draw_kind_name((draw_kind)k));
    }
    output_text(out, "\n");
}

/* ---------------------------------------------------------------------- runs */

/* Words, as many on a line as find room behind the indentation; nothing for no word. */
static void
print_wrapped(output *out, const char *text, size_t indent, size_t columns)
{
    size_t used = 0;

    if (*text == '\0')
        return;
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        const bool is_first = used == 0;

        if (!is_first && indent + used + 1 + length > columns) {
            output_text(out, "\n");
            used = 0;
        }
        output_repeat(out, " ", used == 0 ? indent : 1);
        output_bytes(out, text, length);
        used += length + (used > 0);
        text += length + strspn(text + length, " ");
    }
    output_text(out, "\n");
}

typedef struct run {
    uint32_t first;
    uint32_t count;
    uint32_t streamed; /* layers that are not all on their home */
    uint32_t told;     /* the first of them, or the first with another cause */
    uint64_t resident_bytes;
    uint64_t streamed_bytes;
} run;

static run
run_at(const draw_map *map, uint32_t first)
{
    run r = { .first = first, .count = draw_map_run(map, first), .told = BERTH_NO_INDEX };

    for (uint32_t i = first; i < first + r.count; i++) {
        const draw_layer *const layer = &map->layers[i];

        r.resident_bytes += layer->resident_bytes;
        r.streamed_bytes += layer->bytes - layer->resident_bytes;
        r.streamed += layer->bytes > layer->resident_bytes;
        if (r.told == BERTH_NO_INDEX && layer->cause != BERTH_PLAN_RESIDENT)
            r.told = i;
    }
    return r;
}

#define RUN_COLUMNS 4

static void
make_row(const draw_map *map, const run *r, size_t name_width, bool has_unicode,
         table_cell row[RUN_COLUMNS], char texts[RUN_COLUMNS][DRAW_TEXT_CAPACITY])
{
    draw_run_text(map, r->first, r->count, texts[0]);
    text_cut(texts[0], name_width, has_unicode);
    snprintf(texts[1], DRAW_TEXT_CAPACITY, "%s",
             map->tiers[map->layers[r->first].home].facts.name);
    berth_size_format(r->resident_bytes, texts[2]);
    berth_size_format(r->streamed_bytes, texts[3]);
    if (r->streamed_bytes == 0)
        snprintf(texts[3], DRAW_TEXT_CAPACITY, "-");
    for (size_t i = 0; i < RUN_COLUMNS; i++)
        row[i] = (table_cell){ texts[i], COLOUR_NONE };
}

/* Why: of a run that needs a word, the first layer that does. */
static void
print_reason(output *out, const screen *s, const draw_map *map, const run *r,
             size_t columns)
{
    char text[2 * DRAW_TEXT_CAPACITY];

    if (r->told == BERTH_NO_INDEX)
        return;
    if (r->streamed > 1)
        snprintf(text, sizeof text, "%u of %u streamed, %s: %s", r->streamed, r->count,
                 map->layers[r->told].name, map->layers[r->told].reason);
    else
        snprintf(text, sizeof text, "%s%s%s", r->count > 1 ? map->layers[r->told].name : "",
                 r->count > 1 ? ": " : "", map->layers[r->told].reason);
    output_text(out, colour_begin(s, COLOUR_DIM));
    print_wrapped(out, text_whole(text), REASON_INDENT, columns);
    output_text(out, colour_end(s, COLOUR_DIM));
}

static bool
has_elsewhere(const draw_map *map)
{
    for (size_t i = 0; i < map->layer_count; i++)
        if (map->layers[i].bytes > map->layers[i].resident_bytes)
            return true;
    return false;
}

static void
print_runs(output *out, const screen *s, const draw_map *map, size_t columns)
{
    static const char *const titles[RUN_COLUMNS] = { "layers", "home", "resident",
                                                     "elsewhere" };
    const size_t shown = has_elsewhere(map) && columns >= NARROW ? 4 : 3;
    char texts[RUN_COLUMNS][DRAW_TEXT_CAPACITY];
    table_cell row[RUN_COLUMNS];
    table t = { 0 };

    for (size_t i = 0; i < shown; i++)
        table_column_add(&t, titles[i], i >= 2 ? TABLE_RIGHT : TABLE_LEFT);
    for (uint32_t i = 0; i < map->layer_count; i += draw_map_run(map, i)) {
        const run r = run_at(map, i);

        make_row(map, &r, DRAW_NAME_WIDTH, s->has_unicode, row, texts);
        table_row(&t, out, s, row);
    }
    table_fit(&t, columns);
    table_begin_rows(&t, out, s);
    for (uint32_t i = 0; i < map->layer_count && !output_is_closed(out);) {
        const run r = run_at(map, i);

        make_row(map, &r, t.columns[0].width, s->has_unicode, row, texts);
        table_row(&t, out, s, row);
        print_reason(out, s, map, &r, columns);
        i += r.count;
    }
}

bool
draw_map_terminal(output *out, const screen *s, const draw_map *map, size_t columns)
{
    char text[DRAW_TEXT_CAPACITY];

    print_wrapped(out, draw_title_text(map, text), 0, columns);
    print_wrapped(out, draw_speed_text(map, text), 0, columns);
    print_wrapped(out, draw_advice_text(map, text), 0, columns);
    output_text(out, "\n");
    for (size_t i = 0; i < map->tier_count; i++) {
        print_head(out, s, &map->tiers[i], columns);
        if (!draw_map_bar(out, s, map, &map->tiers[i], columns))
            return false;
        output_text(out, "\n\n");
    }
    draw_map_legend(out, s, map, NULL, columns);
    output_text(out, "\n");
    print_runs(out, s, map, columns);
    return true;
}
