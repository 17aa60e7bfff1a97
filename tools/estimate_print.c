/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_print.c - an estimate as tables and bars. */
#include "tools/estimate_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/draw.h"

#define DEFAULT_COLUMNS 96 /* of what is no terminal */
#define LONGEST_BAR     40
#define DEFAULT_BAR     24
#define SHORTEST_BAR    6
#define GB_CAPACITY     32

/* ------------------------------------------------------------------------- words */

/* "36.4 GB": published figures are in powers of ten. */
static const char *
gb_text(uint64_t bytes, char text[GB_CAPACITY])
{
    const uint64_t tenths = bytes / 100000000 + (bytes % 100000000 >= 50000000);

    snprintf(text, GB_CAPACITY, "%" PRIu64 ".%" PRIu64 " GB", tenths / 10,
             tenths % 10);
    return text;
}

size_t
estimate_columns(const session *s)
{
    return s->screen.columns > 0 ? s->screen.columns : DEFAULT_COLUMNS;
}

void
estimate_label(session *s, const char *label)
{
    output_format(&s->out, "  %s%-*s%s", colour_begin(&s->screen, COLOUR_DIM),
                  ESTIMATE_LABEL_WIDTH, label, colour_end(&s->screen, COLOUR_DIM));
}

void
estimate_wrapped(session *s, const char *text, size_t indent)
{
    const size_t most = estimate_columns(s);
    size_t column = indent;

    while (*text != '\0') {
        const size_t length = strcspn(text, " ");

        if (column > indent && column + 1 + length > most) {
            output_text(&s->out, "\n");
            output_repeat(&s->out, " ", indent);
            column = indent;
        } else if (column > indent) {
            output_text(&s->out, " ");
            column++;
        }
        output_bytes(&s->out, text, length);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    output_text(&s->out, "\n");
}

static void
print_note(session *s, const char *text)
{
    output_format(&s->out, "  %snote%s  ", colour_begin(&s->screen, COLOUR_NOTE),
                  colour_end(&s->screen, COLOUR_NOTE));
    estimate_wrapped(s, text, 8);
}

/* -------------------------------------------------------------------------- head */

static void
print_model(session *s, const estimation *e)
{
    const berth_shape_summary *const m = &e->model;
    char count[TEXT_NUMBER_CAPACITY];

    output_text(&s->out, colour_begin(&s->screen, COLOUR_HEADING));
    output_name(&s->out, m->path, strlen(m->path));
    output_format(&s->out, "%s\n", colour_end(&s->screen, COLOUR_HEADING));
    estimate_label(s, "model");
    output_name(&s->out, m->model_type, strlen(m->model_type));
    output_format(&s->out, "%s%s parameters, %" PRIu64 " layers",
                  m->model_type[0] != '\0' ? ", " : "", text_count(m->parameters, count),
                  m->layers + m->encoder_layers);
    if (m->experts > 0)
        output_format(&s->out, ", %" PRIu64 " of %" PRIu64 " experts a token",
                      m->experts_used, m->experts);
    output_format(&s->out, "; from %s\n",
                  m->has_headers ? "the files' headers" : "config.json alone");
}

static void
print_asked(session *s, const estimation *e)
{
    const berth_train_options *const train = e->options->train;
    char tokens[TEXT_NUMBER_CAPACITY];
    char batch[TEXT_NUMBER_CAPACITY];
    char trained[TEXT_NUMBER_CAPACITY];
    char line[256];
    int n = 0;

    estimate_label(s, train != NULL ? "training" : "inference");
    if (train != NULL)
        n = snprintf(line, sizeof line, "%s of %s parameters, %s; ",
                     train->method == BERTH_TRAIN_FULL ? "all" : "adapters",
                     text_count(e->summary.trained, trained), train->optimizer);
    snprintf(line + n, sizeof line - (size_t)n,
             "weights %s, computed in %s; %s sequence%s of %s tokens", e->type, e->dtype,
             text_number(e->summary.batch, batch), text_plural(e->summary.batch),
             text_number(e->summary.context, tokens));
    estimate_wrapped(s, line, ESTIMATE_LABEL_WIDTH + 2);
}

/* ------------------------------------------------------------------------- parts */

static colour
part_colour(const berth_estimate_part *part)
{
    if (part->place == BERTH_PLACE_NONE)
        return COLOUR_DIM;
    if (strstr(part->dtype, "4") == part->dtype + 2) /* nf4, fp4 and both doubled */
        return COLOUR_NIBBLE;
    if (strcmp(part->dtype, "int8") == 0 || strcmp(part->dtype, "8-bit") == 0
        || strcmp(part->dtype, "fp8") == 0)
        return COLOUR_BYTE;
    return strstr(part->dtype, "32") != NULL ? COLOUR_WIDE : COLOUR_HALF;
}

static const char *
place_text(int32_t place)
{
    return place == BERTH_PLACE_DEVICE ? "device"
           : place == BERTH_PLACE_HOST ? "host"
                                       : "";
}

/* Cells of a part's row; `size` and `share` keep their texts. */
static void
part_cells(const estimation *e, const berth_estimate_part *part, table_cell cells[6],
           char size[BERTH_SIZE_CAPACITY], char share[8])
{
    const colour style = part->place == BERTH_PLACE_NONE ? COLOUR_DIM : COLOUR_NONE;
    const double whole = (double)e->summary.device_bytes;

    share[0] = '\0';
    if (part->place == BERTH_PLACE_DEVICE && (double)part->bytes * 1000 < whole)
        snprintf(share, 8, "<0.1%%");
    else if (part->place == BERTH_PLACE_DEVICE)
        snprintf(share, 8, "%.1f%%", (double)part->bytes * 100 / whole);
    cells[0] = (table_cell){ part->name, style };
    cells[1] = (table_cell){ place_text(part->place), style };
    cells[2] = (table_cell){ part->dtype, style };
    cells[3] = (table_cell){ part->basis, COLOUR_DIM };
    cells[4] = (table_cell){ share, COLOUR_DIM };
    cells[5] = (table_cell){ berth_size_format(part->bytes, size), style };
}

const char *
estimate_cut(const session *s, const table *t, const char *text,
             char cut[ESTIMATE_CELL_CAPACITY])
{
    snprintf(cut, ESTIMATE_CELL_CAPACITY, "%s", text);
    text_cut(cut, t->columns[0].width, s->screen.has_unicode);
    return cut;
}

static void
print_part(session *s, const estimation *e, const table *t,
           const berth_estimate_part *part, size_t bar)
{
    const draw_part drawn = { part->bytes, part_colour(part) };
    char size[BERTH_SIZE_CAPACITY];
    char share[8];
    char name[ESTIMATE_CELL_CAPACITY];
    table_cell cells[6];

    part_cells(e, part, cells, size, share);
    cells[0].text = estimate_cut(s, t, part->name, name);
    table_print(t, &s->out, &s->screen, cells);
    if (part->place == BERTH_PLACE_DEVICE && bar >= SHORTEST_BAR) {
        output_text(&s->out, "  ");
        draw_bar(&s->out, &s->screen, &drawn, 1, e->summary.device_bytes, bar, false);
    }
    output_text(&s->out, "\n");
    if (s->common->verbosity > 0) {
        output_text(&s->out, "    ");
        estimate_wrapped(s, part->reason, 4);
    }
}

static void
print_total(session *s, table *t, const char *place, uint64_t bytes)
{
    char size[BERTH_SIZE_CAPACITY];
    const table_cell cells[] = {
        { "in all", COLOUR_HEADING }, { place, COLOUR_HEADING },
        { "", COLOUR_NONE },          { "", COLOUR_NONE },
        { "", COLOUR_NONE },          { berth_size_format(bytes, size), COLOUR_HEADING },
    };

    table_row(t, &s->out, &s->screen, cells);
}

static void
measure_parts(const estimation *e, table *t)
{
    static const char *const titles[] = { "part",  "where", "dtype",
                                         "basis", "share", "bytes" };

    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        table_column_add(t, titles[i], i > 3 ? TABLE_RIGHT : TABLE_LEFT);
    for (uint32_t i = 0; i < e->summary.part_count; i++) {
        berth_estimate_part part;
        char size[BERTH_SIZE_CAPACITY];
        char share[8];
        table_cell cells[6];

        (void)berth_estimate_get_part(e->estimate, i, &part);
        part_cells(e, &part, cells, size, share);
        table_measure(t, cells);
    }
}

/* Those with or those without memory of their own. */
static void
print_some(session *s, const estimation *e, const table *t, size_t bar, bool has_place)
{
    for (uint32_t i = 0; i < e->summary.part_count; i++) {
        berth_estimate_part part;

        (void)berth_estimate_get_part(e->estimate, i, &part);
        if ((part.place != BERTH_PLACE_NONE) == has_place)
            print_part(s, e, t, &part, bar);
    }
}

/* What is left of a terminal's width beside the table. */
static size_t
bar_width(const session *s, const table *t)
{
    const size_t taken = table_width(t) + 3;
    const size_t left = s->screen.columns > taken ? s->screen.columns - taken : 0;

    if (s->screen.columns == 0)
        return DEFAULT_BAR;
    return left < LONGEST_BAR ? left : LONGEST_BAR;
}

static void
print_parts(session *s, const estimation *e)
{
    table t = { 0 };
    size_t bar;

    measure_parts(e, &t);
    bar = bar_width(s, &t);
    table_fit(&t, s->screen.columns);
    output_text(&s->out, "\n");
    table_begin_rows(&t, &s->out, &s->screen);
    print_some(s, e, &t, bar, true);
    print_total(s, &t, "device", e->summary.device_bytes);
    if (e->summary.host_bytes > 0)
        print_total(s, &t, "host", e->summary.host_bytes);
    print_some(s, e, &t, 0, false);
    for (uint32_t i = 0; i < e->summary.note_count; i++)
        print_note(s, berth_estimate_get_note(e->estimate, i));
}

/* ----------------------------------------------------------------------- lengths */

static void
print_share(session *s, const char *label, uint64_t tokens, uint64_t of)
{
    char number[TEXT_NUMBER_CAPACITY];

    estimate_label(s, label);
    output_format(&s->out, "%s tokens", text_number(tokens, number));
    if (of > 0)
        output_format(&s->out, ", %.1f%% of them padding",
                      (double)(tokens - of) * 100 / (double)(tokens > 0 ? tokens : 1));
    output_text(&s->out, "\n");
}

static void
print_points(session *s, const estimation *e)
{
    for (uint32_t i = 0; i < e->summary.length_count; i++) {
        berth_estimate_length length;
        char tokens[TEXT_NUMBER_CAPACITY];
        char batch[TEXT_NUMBER_CAPACITY];

        (void)berth_estimate_get_length(e->estimate, i, &length);
        estimate_label(s, length.name);
        output_format(&s->out, "%s tokens", text_number(length.tokens, tokens));
        if (e->summary.has_budget && length.batch == 0)
            output_text(&s->out, ": not even one fits");
        else if (e->summary.has_budget)
            output_format(&s->out, ": batches of %s fit",
                          text_number(length.batch, batch));
        output_text(&s->out, "\n");
    }
}

static void
print_lengths(session *s, const estimation *e)
{
    const berth_estimate_summary *const m = &e->summary;
    char count[TEXT_NUMBER_CAPACITY];
    char tokens[TEXT_NUMBER_CAPACITY];
    char shortest[TEXT_NUMBER_CAPACITY];
    char longest[TEXT_NUMBER_CAPACITY];
    char mean[TEXT_NUMBER_CAPACITY];
    char packs[TEXT_NUMBER_CAPACITY];

    if (m->length_count == 0)
        return;
    session_print_heading(s, "lengths");
    estimate_label(s, "list");
    output_format(&s->out,
                  "%s sequence%s, %s to %s tokens, %s on the average, %s in all\n",
                  text_number(m->sequences, count), text_plural(m->sequences),
                  text_number(m->shortest, shortest), text_number(m->longest, longest),
                  text_number(m->mean, mean), text_number(m->tokens, tokens));
    print_share(s, "padded", m->padded, m->tokens);
    print_share(s, "sorted", m->sorted, m->tokens);
    estimate_label(s, "packed");
    output_format(&s->out, "%s tokens in %s row%s of %s\n", tokens,
                  text_number(m->packs, packs), text_plural(m->packs), longest);
    print_points(s, e);
}

/* --------------------------------------------------------------------- published */

static void
print_claims(session *s, const estimation *e)
{
    const char *table_name = "";

    for (uint32_t i = 0; i < e->summary.claim_count; i++) {
        berth_estimate_claim claim;
        char claimed[GB_CAPACITY];
        char ours[GB_CAPACITY];

        (void)berth_estimate_get_claim(e->estimate, i, &claim);
        if (strcmp(claim.table, table_name) != 0)
            output_format(&s->out, "\n%spublished: %s%s\n",
                          colour_begin(&s->screen, COLOUR_DIM), claim.table,
                          colour_end(&s->screen, COLOUR_DIM));
        table_name = claim.table;
        output_format(&s->out, "  %-16s there %9s, here %9s\n      ", claim.what,
                      gb_text(claim.claimed, claimed),
                      gb_text(claim.bytes, ours));
        estimate_wrapped(s, claim.reason, 6);
    }
}

void
estimate_print(session *s, const estimation *e)
{
    print_model(s, e);
    print_asked(s, e);
    print_parts(s, e);
    estimate_print_table(s, e);
    estimate_print_budget(s, e);
    print_lengths(s, e);
    print_claims(s, e);
}
