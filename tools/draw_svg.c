/* SPDX-License-Identifier: Apache-2.0 */
/* draw_svg.c - a map as one SVG picture that refers to nothing outside itself. */
#include <stdlib.h>

#include "tools/draw_markup.h"

#define WIDTH 1200
#define MARGIN 20
#define BAR_UNITS (10 * (WIDTH - 2 * MARGIN)) /* tenths of a pixel */
#define LEAST_UNITS 10
#define TITLE_HEIGHT 72
#define TIER_HEIGHT 78
#define BAR_HEIGHT 34
#define HEAD_HEIGHT 24
#define LEGEND_COLUMNS 3
#define LEGEND_LINE 24

static void
write_text(output *out, const char *class, const char *anchor, double x, double y,
           const char *text)
{
    output_format(out, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", class,
                  anchor, x, y);
    markup_text(out, text);
    output_text(out, "</text>\n");
}

static void
write_rectangle(output *out, const draw_cell *cell, double x, double y, double width,
                double height)
{
    output_format(out,
                  "<rect class=\"%s\" fill=\"var(--%s)\" x=\"%.1f\" y=\"%.1f\" "
                  "width=\"%.1f\" height=\"%.1f\">",
                  markup_class(cell), markup_colour(cell), x, y, width, height);
}

static void
write_cell(output *out, const draw_map *map, const draw_cell *cell, uint32_t begin,
           uint32_t end, double y)
{
    const double x = MARGIN + begin / 10.0;
    char text[DRAW_TEXT_CAPACITY];
    char size[BERTH_SIZE_CAPACITY];

    write_rectangle(out, cell, x, y, (end - begin) / 10.0, BAR_HEIGHT);
    output_text(out, "<title>");
    markup_text(out, markup_cell_text(map, cell, text));
    output_format(out, ", %s", berth_size_format(cell->bytes, size));
    if (cell->layer != BERTH_NO_INDEX) {
        output_text(out, ": ");
        markup_text(out, map->layers[cell->layer].reason);
    }
    output_text(out, "</title></rect>\n");
}

/* More is free than there is room for. */
static void
write_cut(output *out, const uint32_t *ends, size_t free_cell, double y)
{
    output_format(out, "<path class=\"cut\" d=\"M%.1f %.1fv%d\"/>\n",
                  MARGIN + ends[free_cell] / 10.0 - 2, y, BAR_HEIGHT);
}

/* Hatching over what has no room, and the edge of the budget. */
static void
write_absence(output *out, uint32_t begin, double y)
{
    const double x = MARGIN + begin / 10.0;

    output_format(out,
                  "<rect fill=\"url(#hatch)\" pointer-events=\"none\" x=\"%.1f\" y=\"%.1f\" "
                  "width=\"%.1f\" height=\"%d\"/>\n<path class=\"edge\" d=\"M%.1f %.1fv%d\"/>\n",
                  x, y, WIDTH - MARGIN - x, BAR_HEIGHT, x, y - 4, BAR_HEIGHT + 8);
}

static bool
write_tier(output *out, const draw_map *map, const draw_tier *tier, double y)
{
    uint32_t *const ends = calloc(tier->cell_count + 1, sizeof *ends);
    const size_t in_budget = tier->cell_count - tier->absent_cells;
    const double bar = y + HEAD_HEIGHT;
    char text[DRAW_TEXT_CAPACITY];

    if (ends == NULL)
        return false;
    draw_map_ends(map, tier, BAR_UNITS, LEAST_UNITS, ends);
    write_text(out, "name", "start", MARGIN, y + 16, tier->facts.name);
    write_text(out, "dim", "start", MARGIN + 110, y + 16, draw_use_text(tier, text));
    write_text(out, tier->absent > 0 ? "bad" : "good", "end", WIDTH - MARGIN, y + 16,
               draw_verdict_text(tier, text));
    for (size_t i = 0; i < tier->cell_count; i++)
        write_cell(out, map, &map->cells[tier->first_cell + i], i > 0 ? ends[i - 1] : 0,
                   ends[i], bar);
    output_format(out, "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n",
                  MARGIN, bar, WIDTH - 2 * MARGIN, BAR_HEIGHT);
    if (tier->is_cut) /* what is free is the last part of the budget */
        write_cut(out, ends, in_budget - 1, bar);
    if (tier->absent_cells > 0)
        write_absence(out, in_budget > 0 ? ends[in_budget - 1] : 0, bar);
    free(ends);
    return true;
}

static void
write_legend(output *out, const markup_entry *entries, size_t count, double y)
{
    const double column = (WIDTH - 2 * MARGIN) / (double)LEGEND_COLUMNS;

    for (size_t i = 0; i < count; i++) {
        const double x = MARGIN + column * (double)(i % LEGEND_COLUMNS);
        const double line = y + LEGEND_LINE * (double)(i / LEGEND_COLUMNS);

        write_rectangle(out, &entries[i].cell, x, line, 14, 14);
        output_format(out, "</rect><rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"14\" "
                           "height=\"14\"/>\n", x, line);
        if (entries[i].cell.kind == DRAW_ABSENT)
            output_format(out, "<rect fill=\"url(#hatch)\" x=\"%.1f\" y=\"%.1f\" width=\"14\" "
                               "height=\"14\"/>\n", x, line);
        write_text(out, "dim", "start", x + 22, line + 12, entries[i].label);
    }
}

static void
write_head(output *out, double height)
{
    output_format(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                  "width=\"%d\" height=\"%.0f\" role=\"img\" aria-label=\"berth map\">\n"
                  "<style>\nsvg{%s}\n@media(prefers-color-scheme:dark){svg{%s}}\n",
                  WIDTH, height, WIDTH, height, markup_light, markup_dark);
    output_text(out,
                "text{font:14px system-ui,'DejaVu Sans',sans-serif;fill:var(--ink)}\n"
                ".title{font-size:18px;font-weight:600}.name{font-weight:600}\n"
                ".dim{fill:var(--dim)}.good{fill:var(--good)}.bad{fill:var(--bad)}\n"
                ".resident,.lent{stroke:var(--paper);stroke-width:.6}.lent{opacity:.72}\n"
                ".absent{opacity:.35}.frame{fill:none;stroke:var(--line)}\n"
                ".edge{stroke:var(--ink);stroke-width:2}"
                ".cut{stroke:var(--dim);stroke-width:3;stroke-dasharray:3 3}\n</style>\n"
                "<defs><pattern id=\"hatch\" width=\"8\" height=\"8\" "
                "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                "<path d=\"M0 0v8\" stroke=\"var(--paper)\" stroke-width=\"6\"/>"
                "</pattern></defs>\n");
    output_format(out, "<rect fill=\"var(--paper)\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH,
                  height);
}

bool
draw_map_svg(output *out, const draw_map *map)
{
    markup_entry entries[MARKUP_MAX_ENTRIES];
    const size_t count = markup_entries(map, 0, map->tier_count, entries);
    const double legend = TITLE_HEIGHT + TIER_HEIGHT * (double)map->tier_count;
    const size_t lines = (count + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    char text[DRAW_TEXT_CAPACITY];

    write_head(out, legend + LEGEND_LINE * (double)lines + MARGIN);
    write_text(out, "title", "start", MARGIN, 30, draw_title_text(map, text));
    write_text(out, "dim", "start", MARGIN, 54, draw_speed_text(map, text));
    for (size_t i = 0; i < map->tier_count; i++)
        if (!write_tier(out, map, &map->tiers[i], TITLE_HEIGHT + TIER_HEIGHT * (double)i))
            return false;
    write_legend(out, entries, count, legend);
    output_text(out, "</svg>\n");
    return true;
}
