/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - the layout of a bar, and its characters on a terminal. */
#include "tools/draw.h"

static uint64_t
units_of(uint64_t bytes, uint64_t total, size_t columns)
{
    const uint64_t all = (uint64_t)columns * DRAW_UNITS_PER_COLUMN;

    if (bytes >= total)
        return all;
    return (uint64_t)((double)bytes / (double)total * (double)all + 0.5);
}

void
draw_lay_out(const draw_part *parts, size_t count, uint64_t total, size_t columns,
             draw_layout *layout)
{
    uint64_t bytes = 0;

    layout->count = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t last = layout->count;

        if (parts[i].bytes == 0)
            continue;
        bytes += parts[i].bytes;
        if (last == DRAW_MAX_PARTS) {
            layout->ends[last - 1] = units_of(bytes, total, columns);
            continue;
        }
        layout->ends[last] = units_of(bytes, total, columns);
        layout->styles[last] = parts[i].style;
        layout->count++;
    }
    if (layout->count > 0 && layout->ends[layout->count - 1] == 0)
        layout->ends[layout->count - 1] = 1;
}

/* The part that holds most of the units [first, end); count: none does. */
static size_t
part_of_units(const draw_layout *layout, uint64_t first, uint64_t end)
{
    size_t best = layout->count;
    uint64_t most = 0;
    uint64_t begin = 0;

    for (size_t i = 0; i < layout->count; i++) {
        const uint64_t low = begin > first ? begin : first;
        const uint64_t high = layout->ends[i] < end ? layout->ends[i] : end;

        if (high > low && high - low > most) {
            most = high - low;
            best = i;
        }
        begin = layout->ends[i];
    }
    return best;
}

static const char *
character(const screen *s, uint64_t units)
{
    static const char *const eighths[] = {
        " ",
        "\xE2\x96\x8F", "\xE2\x96\x8E", "\xE2\x96\x8D", "\xE2\x96\x8C",
        "\xE2\x96\x8B", "\xE2\x96\x8A", "\xE2\x96\x89", "\xE2\x96\x88",
    };

    if (s->has_unicode)
        return eighths[units];
    return units >= 4 ? "#" : units > 0 ? "|" : " ";
}

void
draw_bar(output *out, const screen *s, const draw_part *parts, size_t count,
         uint64_t total, size_t columns, bool is_framed)
{
    const char *const empty = s->has_unicode ? "\xE2\x96\x91" : ".";
    draw_layout layout;
    uint64_t end;
    colour current = COLOUR_NONE;

    draw_lay_out(parts, count, total, columns, &layout);
    end = layout.count > 0 ? layout.ends[layout.count - 1] : 0;
    for (size_t i = 0; i < columns; i++) {
        const uint64_t first = (uint64_t)i * DRAW_UNITS_PER_COLUMN;
        const uint64_t after = first + DRAW_UNITS_PER_COLUMN;
        const size_t part = part_of_units(&layout, first, after);
        const colour style = part < layout.count ? layout.styles[part]
                             : is_framed         ? COLOUR_DIM
                                                 : COLOUR_NONE;

        if (part == layout.count && !is_framed)
            break;
        if (style != current) {
            output_text(out, colour_end(s, current));
            output_text(out, colour_begin(s, style));
            current = style;
        }
        output_text(out, part == layout.count
                             ? empty
                             : character(s, (end < after ? end : after) - first));
    }
    output_text(out, colour_end(s, current));
}
