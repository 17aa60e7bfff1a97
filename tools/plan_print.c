/* SPDX-License-Identifier: Apache-2.0 */
/* plan_print.c - see plan_print.h. */
#include "tools/plan_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/json.h"
#include "tools/plan_fold.h"
#include "tools/table.h"

#define CELL_CAPACITY PLAN_CELL

/* ----------------------------------------------------------------------- words */

const char *
plan_size_text(uint64_t bytes, char text[CELL_CAPACITY])
{
    if (bytes == UINT64_MAX)
        return "no limit";
    return bytes == 0 ? "-" : berth_size_format(bytes, text);
}

const char *
plan_time_text(double seconds, char text[CELL_CAPACITY])
{
    if (seconds < 1e-3)
        snprintf(text, CELL_CAPACITY, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, CELL_CAPACITY, "%.1f ms", seconds * 1e3);
    else if (seconds < 600)
        snprintf(text, CELL_CAPACITY, "%.1f s", seconds);
    else
        snprintf(text, CELL_CAPACITY, "%.0f min", seconds / 60);
    return text;
}

/* Three digits, so that a slow plan is not "0.0". */
static const char *
real_text(double number, char text[CELL_CAPACITY])
{
    snprintf(text, CELL_CAPACITY, number >= 100 ? "%.0f" : number >= 10 ? "%.1f" : "%.2f",
             number);
    return text;
}

static const char *
encoding_word(int32_t encoding)
{
    return encoding == BERTH_ENCODING_NATIVE ? "as stored" : berth_encoding_name(encoding);
}

static bool
is_for_training(const berth_plan *plan)
{
    berth_plan_training training;

    return berth_plan_get_training(plan, &training) == BERTH_OK;
}

/* ----------------------------------------------------------------------- tiers */

static void
fill_tier(const berth_plan_tier *t, bool is_training, char texts[][CELL_CAPACITY],
          table_cell *cells)
{
    const uint64_t slots = t->slots + t->expert_slots;
    const uint64_t other = t->activations + t->scratch + t->turned + t->staging;
    const uint64_t parts[] = { t->budget,
                               t->weights,
                               t->cache,
                               is_training ? t->training : slots,
                               is_training ? slots + other : other,
                               t->budget == UINT64_MAX ? 0 : t->free };
    char needed[BERTH_SIZE_CAPACITY];
    size_t column = 1;

    cells[0].text = t->name;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        cells[column].text = plan_size_text(parts[i], texts[column]);
        column++;
        if (i > 0)
            continue;
        cells[column].text = plan_size_text(t->reserve, texts[column]);
        if (t->reserve_needed > 0) {
            snprintf(texts[column], CELL_CAPACITY, "%s (%s)",
                     berth_size_format(t->reserve, needed),
                     berth_size_format(t->reserve_needed, texts[0]));
            cells[column].text = texts[column];
        }
        column++;
    }
}

static void
print_tiers(session *s, const berth_plan *plan, uint32_t count)
{
    static const char *const titles[] = { "tier",  "budget", "reserve (needed)", "weights",
                                          "cache", "slots",  "other",            "free" };
    const bool is_training = is_for_training(plan);
    char texts[TABLE_MAX_COLUMNS][CELL_CAPACITY];
    table_cell cells[TABLE_MAX_COLUMNS] = { { .text = "" } };
    table t = { .count = 0 };
    berth_plan_tier tier;

    for (size_t i = 0; i < TABLE_MAX_COLUMNS; i++)
        table_column_add(&t, is_training && i == 4   ? "kept"
                             : is_training && i == 5 ? "training"
                                                     : titles[i],
                         i > 0 ? TABLE_RIGHT : TABLE_LEFT);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < count; i++) {
            berth_plan_get_tier(plan, i, &tier);
            fill_tier(&tier, is_training, texts, cells);
            table_row(&t, &s->out, &s->screen, cells);
        }
        if (pass == 0)
            table_begin_rows(&t, &s->out, &s->screen);
    }
}

/* ---------------------------------------------------------------------- layers */

/* Of a part that is neither all nor nothing, and is not called so. */
static double
share_in_percent(uint64_t part, uint64_t all)
{
    const double percent = 100.0 * (double)part / (double)all;

    return percent < 1 ? 1 : percent > 99 ? 99 : percent;
}

/* "resident", "rows from cpu", "streamed from cpu", "62% resident, the rest from cpu". */
static void
describe_fold(const berth_plan *plan, const plan_fold *f, char text[CELL_CAPACITY])
{
    berth_plan_tier away;

    if (f->away == BERTH_NO_INDEX) {
        snprintf(text, CELL_CAPACITY, "resident");
        return;
    }
    berth_plan_get_tier(plan, f->away, &away);
    if (f->cause == BERTH_PLAN_ROWS)
        snprintf(text, CELL_CAPACITY, "rows from %s", away.name);
    else if (f->resident_bytes == 0)
        snprintf(text, CELL_CAPACITY, "streamed from %s", away.name);
    else
        snprintf(text, CELL_CAPACITY, "%.0f%% resident, the rest from %s",
                 share_in_percent(f->resident_bytes, f->bytes), away.name);
}

static void
fill_fold(const berth_plan *plan, const plan_fold *f, berth_plan_tier *home,
          char texts[][CELL_CAPACITY], table_cell *cells)
{
    berth_plan_get_tier(plan, f->home, home);
    describe_fold(plan, f, texts[2]);
    cells[0].text = f->name;
    cells[1].text = home->name;
    cells[2].text = texts[2];
    cells[3].text = plan_size_text(f->bytes, texts[3]);
    cells[4].text = plan_size_text(f->link_bytes, texts[4]);
}

static void
print_layers(session *s, const berth_plan *plan, uint32_t count)
{
    char texts[5][CELL_CAPACITY];
    table_cell cells[5] = { { .text = "" } };
    table t = { .count = 0 };
    berth_plan_tier home;
    plan_fold f;

    table_column_add(&t, "layers", TABLE_LEFT);
    table_column_add(&t, "on", TABLE_LEFT);
    table_column_add(&t, "", TABLE_LEFT);
    table_column_add(&t, "bytes", TABLE_RIGHT);
    table_column_add(&t, is_for_training(plan) ? "a pass" : "a token", TABLE_RIGHT);
    for (uint32_t i = 0; plan_fold_has_next(plan, count, &i, &f);) {
        fill_fold(plan, &f, &home, texts, cells);
        table_row(&t, &s->out, &s->screen, cells);
    }
    table_fit(&t, s->screen.columns);
    output_text(&s->out, "\n");
    table_begin_rows(&t, &s->out, &s->screen);
    for (uint32_t i = 0; plan_fold_has_next(plan, count, &i, &f);) {
        fill_fold(plan, &f, &home, texts, cells);
        text_cut(f.name, t.columns[0].width, s->screen.has_unicode);
        table_row(&t, &s->out, &s->screen, cells);
    }
}

/* One for each range that is not simply resident, or where a given map says. */
static void
print_reasons(session *s, const berth_plan *plan, uint32_t count)
{
    char text[PLAN_EXPLAIN_CAPACITY];
    bool has_any = false;
    plan_fold f;

    for (uint32_t i = 0; plan_fold_has_next(plan, count, &i, &f);) {
        if (f.cause == BERTH_PLAN_RESIDENT || f.cause == BERTH_PLAN_MAPPED)
            continue;
        if (!has_any)
            session_print_heading(s, "reasons");
        has_any = true;
        berth_plan_explain(plan, f.first, text, sizeof text);
        output_format(&s->out, "%s: %s\n", f.name, text);
    }
}

/* ----------------------------------------------------------------- predictions */

static const char *
source_word(int32_t source)
{
    return source == BERTH_RATE_MEASURED ? "measured"
           : source == BERTH_RATE_GIVEN  ? "given"
                                         : "guessed";
}

static void
print_rates(session *s, const berth_plan *plan, uint32_t count)
{
    char link[CELL_CAPACITY];
    char memory[CELL_CAPACITY];
    berth_plan_tier t;

    for (uint32_t i = 0; i < count; i++) {
        berth_plan_get_tier(plan, i, &t);
        output_format(&s->out, "  %-8s  ", t.name);
        if (t.link_rate > 0)
            output_format(&s->out, "%s GB/s %s (%s)",
                          real_text((double)t.link_rate / 1e9, link),
                          t.kind == BERTH_TIER_DISK ? "read" : "to it",
                          source_word(t.link_source));
        if (t.memory_rate > 0 && t.kind != BERTH_TIER_DISK)
            output_format(&s->out, "%s%s GB/s of its memory (%s)",
                          t.link_rate > 0 ? ", " : "",
                          real_text((double)t.memory_rate / 1e9, memory),
                          source_word(t.memory_source));
        if (t.operation_ns > 0)
            output_format(&s->out, ", %s us each operation",
                          real_text(1e-3 * (double)t.operation_ns, memory));
        output_text(&s->out, "\n");
    }
}

static void
print_bound(session *s, const berth_plan *plan, const berth_plan_summary *p)
{
    berth_plan_tier t;

    if (p->bound == BERTH_PLAN_BY_COMPUTING) {
        output_text(&s->out, "bound by reading the weights that are in place\n");
    } else if (p->bound == BERTH_PLAN_BY_DISK) {
        output_text(&s->out, "bound by the disk\n");
    } else {
        berth_plan_get_tier(plan, p->bound_tier, &t);
        output_format(&s->out, "bound by the link to %s\n", t.name);
    }
}

/* What a pass of inference takes; training has no tokens to wait for. */
static void
print_passes(session *s, const berth_plan *plan, const berth_plan_summary *p)
{
    char a[CELL_CAPACITY];
    char b[CELL_CAPACITY];

    output_format(&s->out, "%s tokens/s, %s a pass over %" PRIu64 " sequence%s; ",
                  real_text(p->tokens_per_second, a), plan_time_text(p->seconds, b),
                  p->batch, text_plural(p->batch));
    print_bound(s, plan, p);
    if (p->link_bytes > 0)
        output_format(&s->out, "%s over links a token, %s of them from the disk\n",
                      berth_size_format(p->link_bytes, a),
                      p->disk_bytes > 0 ? berth_size_format(p->disk_bytes, b) : "none");
    output_format(&s->out, "first pass %s, loading %s\n",
                  plan_time_text(p->first_seconds, a), plan_time_text(p->load_seconds, b));
    if (p->host_seconds > 0)
        output_format(&s->out, "layers that lie in host memory, computed there: %s\n",
                      plan_time_text(p->host_seconds, a));
}

static void
print_predictions(session *s, const berth_plan *plan, const berth_plan_summary *p)
{
    char a[CELL_CAPACITY];

    session_print_heading(s, "predicted");
    if (is_for_training(plan))
        output_format(&s->out, "loading %s\n", plan_time_text(p->load_seconds, a));
    else
        print_passes(s, plan, p);
    print_rates(s, plan, p->tier_count);
    if (p->advice[0] != '\0')
        output_format(&s->out, "%snote%s  %s\n", colour_begin(&s->screen, COLOUR_NOTE),
                      colour_end(&s->screen, COLOUR_NOTE), p->advice);
}

/* ----------------------------------------------------------------------- calls */

static void
print_summary(session *s, const berth_plan *plan, const berth_plan_summary *p)
{
    char bytes[BERTH_SIZE_CAPACITY];

    if (p->ranks > 1)
        output_format(&s->out, "rank %" PRIu32 " of %" PRIu32 ": slices of ", p->rank,
                      p->ranks);
    output_format(&s->out, "%" PRIu64 " tensor%s in %" PRIu32 " layer%s, %s: %s%s, %s\n",
                  p->berth_count, text_plural(p->berth_count), p->layer_count,
                  text_plural(p->layer_count), berth_size_format(p->bytes, bytes),
                  encoding_word(p->type), p->double_quant ? " double" : "",
                  berth_dtype_name(p->dtype));
    output_format(&s->out, "context %" PRIu64 ", batch %" PRIu64, p->context, p->batch);
    if (!is_for_training(plan))
        output_format(&s->out, ", cache %s", berth_dtype_name(p->cache_dtype));
    output_format(&s->out, "; %" PRIu32 " cut%s%s\n\n", p->cuts,
                  text_plural(p->cuts),
                  p->is_imitated  ? "; the map of transformers"
                  : p->is_proved  ? "; no better homes exist"
                                  : "");
}

void
plan_print(session *s, const berth_plan *plan)
{
    berth_plan_summary p;

    berth_plan_get(plan, &p);
    print_summary(s, plan, &p);
    print_tiers(s, plan, p.tier_count);
    print_layers(s, plan, p.layer_count);
    print_reasons(s, plan, p.layer_count);
    plan_print_training(s, plan);
    print_predictions(s, plan, &p);
}

void
plan_print_map(output *out, const berth_plan *plan)
{
    berth_plan_summary p;
    berth_plan_tier tier;
    berth_map_line line;
    json_writer w;

    berth_plan_get(plan, &p);
    json_begin(&w, out, false);
    json_object_begin(&w, NULL);
    for (uint32_t i = 0; i < p.map_count; i++) {
        berth_plan_get_map(plan, i, &line);
        berth_plan_get_tier(plan, line.tier, &tier);
        if (tier.kind == BERTH_TIER_GPU)
            json_number(&w, line.path, plan_gpu_number(&tier));
        else
            json_text(&w, line.path, tier.name);
    }
    json_object_end(&w);
    json_end(&w);
}
