/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - numbers of compared weights, as lines, table, histogram and JSON. */
#include "tools/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/table.h"

#define HISTOGRAM_BAR 40
#define NUMBER_CAPACITY 32

/* -------------------------------------------------------------------- ranking */

void
diff_rank(diff_ranking *r, const berth_diff_tensor *tensor)
{
    const berth_diff_errors *const e = &tensor->errors;
    size_t at = r->count;
    char *name;

    if (tensor->kind != BERTH_DIFF_COMPARED || !tensor->has_values || e->different == 0)
        return;
    while (at > 0 && r->worst[at - 1].relative < e->relative)
        at--;
    if (at == DIFF_WORST)
        return;
    name = text_escaped(tensor->name, tensor->name_length);
    if (name == NULL) {
        r->is_out_of_memory = true;
        return;
    }
    if (r->count == DIFF_WORST)
        free(r->worst[--r->count].name);
    memmove(&r->worst[at + 1], &r->worst[at], (r->count - at) * sizeof r->worst[0]);
    r->worst[at] = (diff_worst){ name, e->maximum, e->mean, e->relative, e->snr };
    r->count++;
}

void
diff_ranking_fini(diff_ranking *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->worst[i].name);
    memset(r, 0, sizeof *r);
}

/* ---------------------------------------------------------------------- words */

/* "1.23e-04", "0", "inf". */
static const char *
number_text(double number, char text[NUMBER_CAPACITY])
{
    snprintf(text, NUMBER_CAPACITY, number == 0 ? "0" : "%.2e", number);
    return text;
}

static const char *
decibel_text(double snr, char text[NUMBER_CAPACITY])
{
    if (isinf(snr))
        return snr > 0 ? "exact" : "lost";
    snprintf(text, NUMBER_CAPACITY, "%.1f dB", snr);
    return text;
}

/* What a line of --tensors begins with, and what programs call it. */
typedef struct verdict {
    const char *words;
    const char *name;
} verdict;

static verdict
verdict_of(const berth_diff_tensor *tensor)
{
    static const verdict others[] = {
        [BERTH_DIFF_ONLY_A] = { "only in A", "only_a" },
        [BERTH_DIFF_ONLY_B] = { "only in B", "only_b" },
        [BERTH_DIFF_SHAPE] = { "other shape", "shape" },
        [BERTH_DIFF_DTYPE] = { "other dtype", "dtype" },
    };

    if (tensor->kind > BERTH_DIFF_COMPARED && tensor->kind <= BERTH_DIFF_DTYPE)
        return others[tensor->kind];
    if (tensor->is_same)
        return (verdict){ "same bytes", "same" };
    if (tensor->has_values && tensor->errors.different == 0
        && tensor->errors.nonfinite == 0)
        return (verdict){ "same values", "equal" };
    if (tensor->has_codes && tensor->codes == 0)
        return (verdict){ "same codes", "codes" };
    return (verdict){ "differs", "differs" };
}

/* --------------------------------------------------------------------- people */

void
diff_print_tensor(session *s, const berth_diff_tensor *tensor)
{
    const berth_diff_errors *const e = &tensor->errors;
    char number[TEXT_NUMBER_CAPACITY];
    char texts[3][NUMBER_CAPACITY];

    output_format(&s->out, "%-11s  ", verdict_of(tensor).words);
    if (tensor->has_values && e->different > 0)
        output_format(&s->out, "max %8s  relative %8s  %8s  ",
                      number_text(e->maximum, texts[0]), number_text(e->relative, texts[1]),
                      decibel_text(e->snr, texts[2]));
    if (tensor->has_values && e->nonfinite > 0)
        output_format(&s->out, "%s NaN or infinite  ", text_number(e->nonfinite, number));
    output_name(&s->out, tensor->name, tensor->name_length);
    output_text(&s->out, "\n");
}

static void
print_count(session *s, const char *words, uint64_t count)
{
    char number[TEXT_NUMBER_CAPACITY];

    if (count > 0)
        output_format(&s->out, "%-11s  %10s weight%s\n", words,
                      text_number(count, number), text_plural(count));
}

static void
print_errors(session *s, const berth_diff_errors *e)
{
    char texts[4][NUMBER_CAPACITY];
    char different[TEXT_NUMBER_CAPACITY];
    char count[TEXT_NUMBER_CAPACITY];

    output_format(&s->out, "\n%s of %s values differ: max %s, mean %s, relative %s, %s\n",
                  text_number(e->different, different), text_number(e->count, count),
                  number_text(e->maximum, texts[0]), number_text(e->mean, texts[1]),
                  number_text(e->relative, texts[2]), decibel_text(e->snr, texts[3]));
    if (e->nonfinite > 0)
        output_format(&s->out,
                      "%s more are NaN or infinite, not the same on both sides; "
                      "--tensors says where\n",
                      text_number(e->nonfinite, different));
}

/* "equal", "< 2^-24", "2^-24", ..., ">= 2^5" */
static const char *
bucket_text(size_t bucket, char text[NUMBER_CAPACITY])
{
    if (bucket == 0)
        return "equal";
    if (bucket == 1)
        return "< 2^-24";
    snprintf(text, NUMBER_CAPACITY, "%s2^%d",
             bucket == BERTH_DIFF_BUCKETS - 1 ? ">= " : "", (int)bucket - 26);
    return text;
}

/* Equal values, then the buckets between the first and the last that hold some. */
static void
print_histogram(session *s, const uint64_t *histogram)
{
    size_t first = 1;
    size_t last = BERTH_DIFF_BUCKETS - 1;
    uint64_t most = histogram[0];

    while (first < last && histogram[first] == 0)
        first++;
    while (last > first && histogram[last] == 0)
        last--;
    for (size_t i = first; i <= last; i++)
        most = histogram[i] > most ? histogram[i] : most;
    output_format(&s->out, "\n%serror, in units of the weight's root mean square%s\n",
                  colour_begin(&s->screen, COLOUR_DIM), colour_end(&s->screen, COLOUR_DIM));
    for (size_t i = 0; i <= last; i = i == 0 ? first : i + 1) {
        const draw_part part = { histogram[i], i == 0 ? COLOUR_GOOD : COLOUR_WARNING };
        char text[NUMBER_CAPACITY];
        char number[TEXT_NUMBER_CAPACITY];

        output_format(&s->out, "%10s  ", bucket_text(i, text));
        draw_bar(&s->out, &s->screen, &part, 1, most, HISTOGRAM_BAR, false);
        output_format(&s->out, "%s%s\n", histogram[i] > 0 ? "  " : "",
                      text_count(histogram[i], number));
    }
}

/* The row of a weight, cut to its column. */
static void
worst_row(session *s, table *t, diff_worst *worst)
{
    char texts[4][NUMBER_CAPACITY];
    const table_cell cells[] = {
        { worst->name, COLOUR_NONE },
        { number_text(worst->maximum, texts[0]), COLOUR_NONE },
        { number_text(worst->mean, texts[1]), COLOUR_NONE },
        { number_text(worst->relative, texts[2]), COLOUR_NONE },
        { decibel_text(worst->snr, texts[3]), COLOUR_NONE },
    };

    if (t->is_printing)
        text_cut(worst->name, t->columns[0].width, s->screen.has_unicode);
    table_row(t, &s->out, &s->screen, cells);
}

static void
print_worst(session *s, diff_ranking *r)
{
    table t = { 0 };

    table_column_add(&t, "differs most", TABLE_LEFT);
    table_column_add(&t, "max", TABLE_RIGHT);
    table_column_add(&t, "mean", TABLE_RIGHT);
    table_column_add(&t, "relative", TABLE_RIGHT);
    table_column_add(&t, "signal/noise", TABLE_RIGHT);
    for (size_t i = 0; i < r->count; i++)
        worst_row(s, &t, &r->worst[i]);
    table_fit(&t, s->screen.columns);
    output_text(&s->out, "\n");
    table_begin_rows(&t, &s->out, &s->screen);
    for (size_t i = 0; i < r->count; i++)
        worst_row(s, &t, &r->worst[i]);
}

void
diff_print(session *s, const berth_diff_report *report, diff_ranking *r)
{
    /* Numbers without common values are the same by their bytes only. */
    const uint64_t equal = report->equal > report->same ? report->equal : report->same;

    print_count(s, "same bytes", report->same);
    print_count(s, "same values", equal - report->same);
    print_count(s, "differ", report->compared - equal);
    print_count(s, "other shape", report->other_shape);
    print_count(s, "other dtype", report->other_dtype);
    print_count(s, "only in A", report->only_a);
    print_count(s, "only in B", report->only_b);
    print_count(s, "rejected", report->rejected);
    if (report->errors.different > 0 || report->errors.nonfinite > 0)
        print_errors(s, &report->errors);
    if (report->errors.different > 0)
        print_histogram(s, report->errors.histogram);
    if (r->count > 0)
        print_worst(s, r);
}

/* ------------------------------------------------------------------- programs */

static void
write_errors(json_writer *w, const berth_diff_errors *e)
{
    json_object_begin(w, "errors");
    json_number(w, "count", e->count);
    json_number(w, "different", e->different);
    json_number(w, "nonfinite", e->nonfinite);
    json_scientific(w, "maximum", e->maximum);
    json_scientific(w, "mean", e->mean);
    json_scientific(w, "rms_a", e->rms_a);
    json_scientific(w, "rms_error", e->rms_error);
    json_scientific(w, "relative", e->relative);
    json_scientific(w, "snr_db", e->snr);
    json_numbers(w, "histogram", e->histogram, BERTH_DIFF_BUCKETS);
    json_object_end(w);
}

static void
write_side(json_writer *w, const char *key, const berth_diff_side *side)
{
    json_object_begin(w, key);
    json_text(w, "encoding", berth_encoding_name(side->encoding));
    json_text(w, "dtype", berth_dtype_name(side->dtype));
    json_numbers(w, "shape", side->shape, side->rank);
    json_number(w, "bytes", side->bytes);
    json_number(w, "nan", side->nan);
    json_number(w, "infinite", side->infinite);
    json_object_end(w);
}

void
diff_write_tensor(json_writer *w, const berth_diff_tensor *tensor)
{
    json_object_begin(w, NULL);
    json_bytes(w, "name", tensor->name, tensor->name_length);
    json_text(w, "verdict", verdict_of(tensor).name);
    json_bool(w, "rejected", tensor->is_rejected != 0);
    if (tensor->kind != BERTH_DIFF_ONLY_B)
        write_side(w, "a", &tensor->a);
    if (tensor->kind != BERTH_DIFF_ONLY_A)
        write_side(w, "b", &tensor->b);
    if (tensor->has_codes)
        json_number(w, "codes_different", tensor->codes);
    if (tensor->has_values)
        write_errors(w, &tensor->errors);
    json_object_end(w);
}

void
diff_write(json_writer *w, const berth_diff_report *report)
{
    json_object_begin(w, "weights");
    json_number(w, "compared", report->compared);
    json_number(w, "same", report->same);
    json_number(w, "equal", report->equal);
    json_number(w, "only_a", report->only_a);
    json_number(w, "only_b", report->only_b);
    json_number(w, "other_shape", report->other_shape);
    json_number(w, "other_dtype", report->other_dtype);
    json_number(w, "rejected", report->rejected);
    json_object_end(w);
    json_number(w, "elements", report->elements);
    json_number(w, "codes_different", report->codes);
    json_number(w, "nan_a", report->nan_a);
    json_number(w, "nan_b", report->nan_b);
    json_number(w, "infinite_a", report->infinite_a);
    json_number(w, "infinite_b", report->infinite_b);
    write_errors(w, &report->errors);
    json_number(w, "bytes_read", report->bytes_read);
    json_number(w, "planned_memory", report->planned_memory);
    json_real(w, "seconds", report->seconds);
    json_text(w, "io_path", report->io_path);
}
