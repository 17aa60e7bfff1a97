/* SPDX-License-Identifier: Apache-2.0 */
/* coverage.c - collects the lines of a coverage report and shows them. */
#include "tools/coverage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/form.h"
#include "tools/grow.h"
#include "tools/table.h"

#define SMALLEST_BAR 4
#define LARGEST_BAR 24

/* ---------------------------------------------------------------- collecting */

void
coverage_add(void *user, const berth_coverage *line)
{
    coverage *const c = user;
    const size_t bytes = strlen(line->cause) + 1;
    coverage_line *const lines =
        grow(c->lines, &c->capacity, c->count, 1, sizeof *lines);
    char *const cause = malloc(bytes);

    if (lines != NULL)
        c->lines = lines;
    if (lines == NULL || cause == NULL) {
        free(cause);
        c->is_out_of_memory = true;
        return;
    }
    memcpy(cause, line->cause, bytes);
    c->lines[c->count++] = (coverage_line){
        .cause = cause,
        .encoding = line->encoding,
        .tensors = line->tensors,
        .parameters = line->parameters,
        .source_bytes = line->source_bytes,
        .stored_bytes = line->stored_bytes,
        .kept = line->kept,
    };
}

void
coverage_fini(coverage *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->lines[i].cause);
    free(c->lines);
    memset(c, 0, sizeof *c);
}

/* The lines that sum an encoding up have no cause. */
static bool
is_sum(const coverage_line *line)
{
    return line->cause[0] == '\0';
}

static coverage_line
total_of(const coverage *c)
{
    coverage_line total = { 0 };

    for (size_t i = 0; i < c->count; i++) {
        const coverage_line *const line = &c->lines[i];

        if (!is_sum(line))
            continue;
        total.tensors += line->tensors;
        total.parameters += line->parameters;
        total.source_bytes += line->source_bytes;
        total.stored_bytes += line->stored_bytes;
        total.kept += line->kept;
    }
    return total;
}

/* -------------------------------------------------------------------- people */

const char *
coverage_share_text(uint64_t part, uint64_t whole, char text[COVERAGE_SHARE_CAPACITY])
{
    const double share = whole > 0 ? (double)part / (double)whole * 1000 : 0;
    const unsigned tenths = part == whole ? 1000 : share < 999 ? (unsigned)share : 999;

    if (tenths == 1000)
        snprintf(text, COVERAGE_SHARE_CAPACITY, "100%%");
    else if (tenths == 0 && part > 0)
        snprintf(text, COVERAGE_SHARE_CAPACITY, "<0.1%%");
    else
        snprintf(text, COVERAGE_SHARE_CAPACITY, "%u.%u%%", tenths / 10, tenths % 10);
    return text;
}

/* "  6.98 B  ████████  86.9%" */
static void
print_bar(session *s, const char *amount, uint64_t part, uint64_t whole, colour style,
          size_t columns)
{
    const draw_part bar = { part, style };
    char share[COVERAGE_SHARE_CAPACITY];

    output_format(&s->out, "  %10s  ", amount);
    draw_bar(&s->out, &s->screen, &bar, 1, whole, columns, true);
    output_format(&s->out, " %6s", coverage_share_text(part, whole, share));
}

/* Two bars a line: of the parameters, and of the bytes that are written. */
static void
print_encodings(session *s, const coverage *c)
{
    const coverage_line total = total_of(c);
    const size_t all = s->screen.columns > 0 ? s->screen.columns : 80;
    const size_t rest = 10 + 2 * (2 + 10 + 2 + 7);
    size_t columns = all > rest ? (all - rest) / 2 : 0;

    columns = columns < SMALLEST_BAR ? SMALLEST_BAR
              : columns > LARGEST_BAR ? LARGEST_BAR
                                      : columns;
    output_format(&s->out, "%s%-10s  %10s  %*s %6s  %10s%s\n",
                  colour_begin(&s->screen, COLOUR_DIM), "encoding", "parameters",
                  (int)columns, "", "", "bytes", colour_end(&s->screen, COLOUR_DIM));
    for (size_t i = 0; i < c->count; i++) {
        const coverage_line *const line = &c->lines[i];
        const colour style = form_class_colour(form_class_of_encoding(line->encoding));
        char parameters[TEXT_NUMBER_CAPACITY];
        char bytes[BERTH_SIZE_CAPACITY];

        if (!is_sum(line))
            continue;
        output_format(&s->out, "%-10s", berth_encoding_name(line->encoding));
        print_bar(s, text_count(line->parameters, parameters), line->parameters,
                  total.parameters, style, columns);
        print_bar(s, berth_size_format(line->stored_bytes, bytes), line->stored_bytes,
                  total.stored_bytes, style, columns);
        output_text(&s->out, "\n");
    }
}

/* The row of a cause, cut to its column. */
static void
cause_row(session *s, table *t, coverage_line *line, uint64_t parameters)
{
    char tensors[TEXT_NUMBER_CAPACITY];
    char amount[TEXT_NUMBER_CAPACITY];
    char share[COVERAGE_SHARE_CAPACITY];
    char bytes[BERTH_SIZE_CAPACITY];
    char kept[TEXT_NUMBER_CAPACITY];
    const colour style = form_class_colour(form_class_of_encoding(line->encoding));
    const table_cell cells[] = {
        { line->cause, COLOUR_NONE },
        { berth_encoding_name(line->encoding), style },
        { text_number(line->tensors, tensors), COLOUR_NONE },
        { text_count(line->parameters, amount), COLOUR_NONE },
        { coverage_share_text(line->parameters, parameters, share), COLOUR_NONE },
        { berth_size_format(line->stored_bytes, bytes), COLOUR_NONE },
        { text_number(line->kept, kept), COLOUR_NONE }, /* where there is the column */
    };

    if (t->is_printing)
        text_cut(line->cause, t->columns[0].width, s->screen.has_unicode);
    table_row(t, &s->out, &s->screen, cells);
}

static void
print_causes(session *s, coverage *c)
{
    const coverage_line total = total_of(c);
    table t = { 0 };

    table_column_add(&t, "why", TABLE_LEFT);
    table_column_add(&t, "becomes", TABLE_LEFT);
    table_column_add(&t, "tensors", TABLE_RIGHT);
    table_column_add(&t, "parameters", TABLE_RIGHT);
    table_column_add(&t, "share", TABLE_RIGHT);
    table_column_add(&t, "bytes", TABLE_RIGHT);
    if (total.kept > 0)
        table_column_add(&t, "kept", TABLE_RIGHT);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            table_fit(&t, s->screen.columns);
            table_begin_rows(&t, &s->out, &s->screen);
        }
        for (size_t i = 0; i < c->count; i++)
            if (!is_sum(&c->lines[i]))
                cause_row(s, &t, &c->lines[i], total.parameters);
    }
}

void
coverage_print(session *s, coverage *c)
{
    if (c->count == 0)
        return;
    print_encodings(s, c);
    output_text(&s->out, "\n");
    print_causes(s, c);
    output_text(&s->out, "\n");
}

/* ------------------------------------------------------------------ programs */

static void
write_line(json_writer *w, const coverage_line *line)
{
    json_object_begin(w, NULL);
    if (!is_sum(line))
        json_text(w, "cause", line->cause);
    json_text(w, "encoding", berth_encoding_name(line->encoding));
    json_number(w, "tensors", line->tensors);
    json_number(w, "parameters", line->parameters);
    json_number(w, "source_bytes", line->source_bytes);
    json_number(w, "stored_bytes", line->stored_bytes);
    json_number(w, "kept", line->kept);
    json_object_end(w);
}

static void
write_lines(json_writer *w, const char *key, const coverage *c, bool wants_sums)
{
    json_array_begin(w, key);
    for (size_t i = 0; i < c->count; i++)
        if (is_sum(&c->lines[i]) == wants_sums)
            write_line(w, &c->lines[i]);
    json_array_end(w);
}

void
coverage_write_json(json_writer *w, const coverage *c)
{
    const coverage_line total = total_of(c);
    uint64_t quantized = 0;

    if (c->count == 0) {
        json_null(w, "coverage");
        return;
    }
    for (size_t i = 0; i < c->count; i++)
        if (is_sum(&c->lines[i]) && c->lines[i].encoding != BERTH_ENCODING_NATIVE)
            quantized += c->lines[i].parameters;
    json_object_begin(w, "coverage");
    json_number(w, "tensors", total.tensors);
    json_number(w, "parameters", total.parameters);
    json_number(w, "quantized_parameters", quantized);
    json_number(w, "source_bytes", total.source_bytes);
    json_number(w, "stored_bytes", total.stored_bytes);
    write_lines(w, "encodings", c, true);
    write_lines(w, "causes", c, false);
    json_object_end(w);
}
