/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_print_svg.c - an estimate as a picture: one bar of the device's bytes,
 * stacked, with the budget as a line across it, and a legend of sizes and shares.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/estimate_print.h"

#define WIDTH      880u
#define MARGIN     20u
#define BAR_Y      76u
#define BAR_HEIGHT 56u
#define LEGEND_Y   168u
#define ROW        22u
#define UNITS      1000u /* of a pixel: no floating point in what is written */

/* Weights blue, what training adds warm, what comes and goes green, the rest grey. */
static const struct part_style {
    const char *key;
    const char *fill;
} styles[] = {
    { "linear_weights", "#1f5fa8" },
    { "other_weights", "#6d9fd4" },
    { "adapters", "#a9c8ea" },
    { "master_weights", "#3f4fa0" },
    { "cast_cache", "#8f93cf" },
    { "gradients", "#c2571a" },
    { "optimizer_states", "#e08a3c" },
    { "pages", "#f0bf85" },
    { "kv_cache", "#c2571a" },
    { "recurrent_states", "#e08a3c" },
    { "cross_cache", "#f0bf85" },
    { "activations", "#2f8f5b" },
    { "attention_scores", "#7cc79d" },
    { "checkpoints", "#2f8f5b" },
    { "recomputed", "#7cc79d" },
    { "final_norm", "#bfe3cd" },
    { "logits", "#a23b72" },
    { "head_and_loss", "#a23b72" },
    { "dequantized_weight", "#d48fb5" },
    { "batch_buffers", "#8a6d3b" },
    { "runtime_context", "#6b6b6b" },
    { "workspace", "#9a9a9a" },
    { "fragmentation", "#c8c8c8" },
};

static const char *
fill_of(const char *key)
{
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (strcmp(styles[i].key, key) == 0)
            return styles[i].fill;
    return "#444444";
}

/* Text of unknown origin: printable, and none of XML's own characters. */
static void
write_text(output *out, const char *text)
{
    char *const shown = text_escaped(text, strlen(text));

    for (const char *c = shown; c != NULL && *c != '\0'; c++) {
        if (*c == '<' || *c == '>' || *c == '&' || *c == '"')
            output_format(out, "&#%d;", *c);
        else
            output_bytes(out, c, 1);
    }
    free(shown);
}

/* `bytes` of `whole` in thousandths of a pixel. */
static uint64_t
units_of(uint64_t bytes, uint64_t whole)
{
    return (uint64_t)((double)bytes / (double)whole * (WIDTH - 2 * MARGIN) * UNITS + 0.5);
}

static void
write_length(output *out, uint64_t units)
{
    output_format(out, "%" PRIu64 ".%03" PRIu64, units / UNITS, units % UNITS);
}

static void
write_rectangle(output *out, uint64_t x, uint64_t width, const char *fill)
{
    output_text(out, "<rect x=\"");
    write_length(out, x + (uint64_t)MARGIN * UNITS);
    output_format(out, "\" y=\"%u\" width=\"", BAR_Y);
    write_length(out, width);
    output_format(out, "\" height=\"%u\" fill=\"%s\">", BAR_HEIGHT, fill);
}

static void
write_bar(output *out, const estimation *e, uint64_t whole)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < e->summary.part_count; i++) {
        const uint64_t begin = units_of(bytes, whole);
        berth_estimate_part part;
        char size[BERTH_SIZE_CAPACITY];

        (void)berth_estimate_get_part(e->estimate, i, &part);
        if (part.place != BERTH_PLACE_DEVICE)
            continue;
        bytes += part.bytes;
        write_rectangle(out, begin, units_of(bytes, whole) - begin, fill_of(part.key));
        output_format(out, "<title>%s: %s</title></rect>\n", part.name,
                      berth_size_format(part.bytes, size));
    }
}

static void
write_budget(output *out, const estimation *e, uint64_t whole)
{
    const uint64_t x =
        units_of(e->summary.usable_bytes, whole) + (uint64_t)MARGIN * UNITS;
    const bool is_right = x > (uint64_t)WIDTH * UNITS / 2;
    char size[BERTH_SIZE_CAPACITY];

    if (!e->summary.has_budget)
        return;
    output_text(out, "<path d=\"M");
    write_length(out, x);
    output_format(out,
                  " %u V%u\" stroke=\"#b00020\" stroke-width=\"2\" fill=\"none\"/>\n"
                  "<text x=\"",
                  BAR_Y - 8, BAR_Y + BAR_HEIGHT + 8);
    write_length(out, x);
    output_format(out, "\" y=\"%u\" fill=\"#b00020\"%s>usable %s</text>\n",
                  BAR_Y + BAR_HEIGHT + 22, is_right ? " text-anchor=\"end\"" : "",
                  berth_size_format(e->summary.usable_bytes, size));
}

static void
write_legend(output *out, const estimation *e)
{
    uint32_t y = LEGEND_Y;

    for (uint32_t i = 0; i < e->summary.part_count; i++) {
        berth_estimate_part part;
        char size[BERTH_SIZE_CAPACITY];

        (void)berth_estimate_get_part(e->estimate, i, &part);
        if (part.place == BERTH_PLACE_NONE)
            continue;
        output_format(out,
                      "<rect x=\"%u\" y=\"%u\" width=\"14\" height=\"14\" fill=\"%s\""
                      "%s/>\n<text x=\"%u\" y=\"%u\">%s",
                      MARGIN, y,
                      part.place == BERTH_PLACE_DEVICE ? fill_of(part.key) : "none",
                      part.place == BERTH_PLACE_HOST ? " stroke=\"#444444\"" : "",
                      MARGIN + 24, y + 12, part.name);
        if (part.dtype[0] != '\0')
            output_format(out, " (%s)", part.dtype);
        output_format(out,
                      "</text>\n<text x=\"500\" y=\"%u\" text-anchor=\"end\">%s</text>\n",
                      y + 12, berth_size_format(part.bytes, size));
        if (part.place == BERTH_PLACE_DEVICE)
            output_format(
                out, "<text x=\"580\" y=\"%u\" text-anchor=\"end\">%.1f%%</text>\n",
                y + 12, (double)part.bytes * 100 / (double)e->summary.device_bytes);
        else
            output_format(out,
                          "<text x=\"580\" y=\"%u\" text-anchor=\"end\">host</text>\n",
                          y + 12);
        output_format(out, "<text x=\"600\" y=\"%u\" fill=\"#777777\">%s</text>\n",
                      y + 12, part.basis);
        y += ROW;
    }
}

static uint32_t
legend_rows(const estimation *e)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < e->summary.part_count; i++) {
        berth_estimate_part part;

        (void)berth_estimate_get_part(e->estimate, i, &part);
        rows += part.place != BERTH_PLACE_NONE;
    }
    return rows;
}

static void
write_head(output *out, const estimation *e)
{
    const uint32_t height = LEGEND_Y + legend_rows(e) * ROW + MARGIN;
    char size[BERTH_SIZE_CAPACITY];
    char context[TEXT_NUMBER_CAPACITY];

    output_format(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" "
                  "width=\"%u\" height=\"%u\" font-family=\"sans-serif\" "
                  "font-size=\"14\">\n"
                  "<rect width=\"%u\" height=\"%u\" fill=\"#ffffff\"/>\n"
                  "<text x=\"%u\" y=\"30\" font-size=\"18\">",
                  WIDTH, height, WIDTH, height, WIDTH, height, MARGIN);
    write_text(out, e->model.path);
    output_format(out,
                  "</text>\n<text x=\"%u\" y=\"54\" fill=\"#555555\">%s, weights %s, "
                  "%" PRIu64 " x %s tokens: %s on the device</text>\n",
                  MARGIN, e->options->train != NULL ? "training" : "inference", e->type,
                  e->summary.batch, text_number(e->summary.context, context),
                  berth_size_format(e->summary.device_bytes, size));
}

void
estimate_write_svg(output *out, const estimation *e)
{
    const uint64_t needed = e->summary.device_bytes;
    const uint64_t usable = e->summary.has_budget ? e->summary.usable_bytes : 0;
    const uint64_t most = needed > usable ? needed : usable;
    const uint64_t whole = most > 0 ? most : 1;

    write_head(out, e);
    /* What is left of the budget. */
    write_rectangle(out, 0, units_of(whole, whole), "#f2f2f2");
    output_text(out, "</rect>\n");
    write_bar(out, e, whole);
    write_budget(out, e, whole);
    write_legend(out, e);
    output_text(out, "</svg>\n");
}
