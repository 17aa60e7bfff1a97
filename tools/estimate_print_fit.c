/* SPDX-License-Identifier: Apache-2.0 */
/* estimate_print_fit.c - the table of types by contexts, a budget and its advice. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/estimate_print.h"

#define CONTEXTS_ACROSS 5 /* besides them a table has three columns */
#define BUDGET_BAR      20
#define TITLE_CAPACITY  (TEXT_NUMBER_CAPACITY + 8)

/* ------------------------------------------------------------------------- table */

/* Some columns of contexts, and what the budgets say behind the last of them. */
typedef struct stretch {
    uint32_t first;
    uint32_t count;
    bool has_fits;
} stretch;

typedef struct row_texts {
    char sizes[CONTEXTS_ACROSS][BERTH_SIZE_CAPACITY];
    char context[TEXT_NUMBER_CAPACITY + 8];
    char devices[16];
} row_texts;

/* Cells of the row of a type; returns how many. */
static size_t
fit_cells(const estimation *e, const berth_estimate_fit *fit, const stretch *columns,
          row_texts *texts, table_cell cells[TABLE_MAX_COLUMNS])
{
    const bool is_single = e->summary.has_budget && e->options->budget_count == 1;
    char number[TEXT_NUMBER_CAPACITY];
    size_t n = 0;

    cells[n++] = (table_cell){ fit->type, COLOUR_NONE };
    for (uint32_t i = 0; i < columns->count; i++) {
        const uint64_t bytes = fit->bytes[columns->first + i];

        cells[n++] = (table_cell){ berth_size_format(bytes, texts->sizes[i]),
                                  !is_single                         ? COLOUR_NONE
                                  : bytes <= e->summary.usable_bytes ? COLOUR_GOOD
                                                                     : COLOUR_DIM };
    }
    if (!columns->has_fits)
        return n;
    snprintf(texts->context, sizeof texts->context, "%s%s",
             fit->context > 0 ? text_number(fit->context, number) : "none",
             fit->is_capped ? " (all)" : "");
    snprintf(texts->devices, sizeof texts->devices, "%" PRIu32, fit->devices);
    cells[n++] = (table_cell){ texts->context, COLOUR_NONE };
    cells[n++] = (table_cell){ fit->devices > 0 ? texts->devices : "none", COLOUR_NONE };
    return n;
}

/* `titles` outlive the table. */
static void
add_titles(const estimation *e, const stretch *columns, char titles[][TITLE_CAPACITY],
           table *t)
{
    table_column_add(t, "on the device", TABLE_LEFT);
    for (uint32_t i = 0; i < columns->count; i++) {
        const uint64_t context = e->options->context_count > 0
                                     ? e->options->contexts[columns->first + i]
                                     : e->summary.context;
        char number[TEXT_NUMBER_CAPACITY];

        snprintf(titles[i], TITLE_CAPACITY, "%s tokens", text_number(context, number));
        table_column_add(t, titles[i], TABLE_RIGHT);
    }
    if (columns->has_fits) {
        table_column_add(t, "longest that fits", TABLE_RIGHT);
        table_column_add(t, "devices", TABLE_RIGHT);
    }
}

static void
print_stretch(session *s, const estimation *e, const stretch *columns)
{
    char titles[CONTEXTS_ACROSS][TITLE_CAPACITY];
    table_cell cells[TABLE_MAX_COLUMNS];
    berth_estimate_fit fit;
    row_texts texts;
    table t = { 0 };

    add_titles(e, columns, titles, &t);
    for (uint32_t i = 0; i < e->summary.fit_count; i++) {
        (void)berth_estimate_get_fit(e->estimate, i, &fit);
        (void)fit_cells(e, &fit, columns, &texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
    output_text(&s->out, "\n");
    table_begin_rows(&t, &s->out, &s->screen);
    for (uint32_t i = 0; i < e->summary.fit_count; i++) {
        (void)berth_estimate_get_fit(e->estimate, i, &fit);
        (void)fit_cells(e, &fit, columns, &texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
}

/* As many contexts side by side as the terminal has room for. */
void
estimate_print_table(session *s, const estimation *e)
{
    const size_t room = estimate_columns(s) > 40 ? (estimate_columns(s) - 40) / 16 : 1;
    const uint32_t most = room < 1                 ? 1
                          : room < CONTEXTS_ACROSS ? (uint32_t)room
                                                   : CONTEXTS_ACROSS;

    for (uint32_t i = 0; i < e->summary.context_count; i += most) {
        const uint32_t left = e->summary.context_count - i;
        const stretch columns = { i, left < most ? left : most,
                                 left <= most && e->summary.has_budget };

        print_stretch(s, e, &columns);
    }
}

/* ------------------------------------------------------------------------ budget */

/* The most exact type that fits without other changes. */
static void
print_best(session *s, const estimation *e)
{
    char number[TEXT_NUMBER_CAPACITY];
    berth_estimate_fit fit;

    (void)berth_estimate_get_fit(e->estimate, (uint32_t)e->summary.best_fit, &fit);
    estimate_label(s, "best");
    output_format(&s->out, "%s fits, with up to %s tokens\n", fit.type,
                  text_number(fit.context, number));
}

static void
print_verdict(session *s, const estimation *e)
{
    const berth_estimate_summary *const m = &e->summary;
    const bool is_short = m->device_bytes > m->usable_bytes;
    const draw_part drawn = { m->device_bytes, m->fits ? COLOUR_GOOD : COLOUR_ERROR };
    const uint64_t whole = is_short ? m->device_bytes : m->usable_bytes;
    char needed[BERTH_SIZE_CAPACITY];
    char usable[BERTH_SIZE_CAPACITY];
    char left[BERTH_SIZE_CAPACITY];

    session_print_heading(s, "budget");
    estimate_label(s, "usable");
    output_format(&s->out, "%s: %" PRIu32 " device%s, %" PRIu32 " %% of each kept free\n",
                  berth_size_format(m->usable_bytes, usable), e->options->budget_count,
                  text_plural(e->options->budget_count), e->options->reserve_percent);
    estimate_label(s, "needed");
    output_format(&s->out, "%s  ", berth_size_format(m->device_bytes, needed));
    draw_bar(&s->out, &s->screen, &drawn, 1, whole, BUDGET_BAR, true);
    output_text(&s->out, "\n");
    if (m->best_fit >= 0 && !m->fits)
        print_best(s, e);
    estimate_label(s, m->fits ? "fits" : "too much");
    berth_size_format(is_short ? m->device_bytes - m->usable_bytes
                               : m->usable_bytes - m->device_bytes,
                      left);
    if (m->fits)
        output_format(&s->out, "%s to spare\n", left);
    else if (is_short)
        output_format(&s->out, "short by %s\n", left);
    else
        output_text(&s->out, "whole layers do not fit on these devices\n");
}

static void
advice_cells(const berth_estimate_advice *advice, table_cell cells[3],
             char saved[BERTH_SIZE_CAPACITY], char bytes[BERTH_SIZE_CAPACITY])
{
    cells[0] = (table_cell){ advice->what, advice->fits ? COLOUR_GOOD : COLOUR_NONE };
    cells[1] = (table_cell){ berth_size_format(advice->saved, saved), COLOUR_NONE };
    cells[2] = (table_cell){ berth_size_format(advice->bytes, bytes), COLOUR_NONE };
}

static void
print_advice(session *s, const estimation *e)
{
    char saved[BERTH_SIZE_CAPACITY];
    char bytes[BERTH_SIZE_CAPACITY];
    char what[ESTIMATE_CELL_CAPACITY];
    berth_estimate_advice advice;
    table_cell cells[3];
    table t = { 0 };

    if (e->summary.advice_count == 0)
        return;
    table_column_add(&t, "what to do, one on top of the other", TABLE_LEFT);
    table_column_add(&t, "saves", TABLE_RIGHT);
    table_column_add(&t, "leaves", TABLE_RIGHT);
    for (uint32_t i = 0; i < e->summary.advice_count; i++) {
        (void)berth_estimate_get_advice(e->estimate, i, &advice);
        advice_cells(&advice, cells, saved, bytes);
        table_measure(&t, cells);
    }
    /* What it costs stands below, broken where the terminal ends. */
    table_fit(&t, s->screen.columns);
    output_text(&s->out, "\n");
    table_begin_rows(&t, &s->out, &s->screen);
    for (uint32_t i = 0; i < e->summary.advice_count; i++) {
        (void)berth_estimate_get_advice(e->estimate, i, &advice);
        advice_cells(&advice, cells, saved, bytes);
        cells[0].text = estimate_cut(s, &t, advice.what, what);
        table_print(&t, &s->out, &s->screen, cells);
        output_text(&s->out, "\n    ");
        estimate_wrapped(s, advice.cost, 4);
    }
    output_text(&s->out,
                e->summary.can_fit ? "then it fits\n" : "and still it does not fit\n");
}

void
estimate_print_budget(session *s, const estimation *e)
{
    if (!e->summary.has_budget)
        return;
    print_verdict(s, e);
    print_advice(s, e);
}
