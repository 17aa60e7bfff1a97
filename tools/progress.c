/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - each report becomes at most one write, so lines never mix. */
#define _POSIX_C_SOURCE 200809L

#include "tools/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/draw.h"
#include "tools/json.h"
#include "tools/output.h"

#define SECONDS_BETWEEN_LINES 5.0
#define CLEAR_LINE "\r\033[K"
#define LINE_CAPACITY 256
#define TIME_CAPACITY 32

bool
progress_init(progress *p, int fd, const screen *s, progress_mode mode)
{
    memset(p, 0, sizeof *p);
    p->fd = fd;
    p->screen = *s;
    p->mode = mode;
    p->is_bar = mode == PROGRESS_ALWAYS || (mode == PROGRESS_AUTO && s->can_redraw);
    p->next_line = SECONDS_BETWEEN_LINES;
    return pthread_mutex_init(&p->lock, NULL) == 0;
}

void
progress_fini(progress *p)
{
    pthread_mutex_destroy(&p->lock);
}

static void
clear(progress *p)
{
    output out;

    if (!p->is_shown)
        return;
    output_init(&out, p->fd);
    output_text(&out, CLEAR_LINE);
    output_flush(&out);
    if (output_is_closed(&out))
        p->mode = PROGRESS_NEVER; /* nobody is there to look */
    p->is_shown = false;
}

/* -------------------------------------------------------------------- shapes */

static unsigned
percent(const berth_progress *report)
{
    if (report->total == 0)
        return 100;
    return (unsigned)((double)report->done / (double)report->total * 100);
}

/* "0:07 left", "1:02:03 left"; "" while nobody can know. */
static const char *
time_left(const berth_progress *report, char text[TIME_CAPACITY])
{
    const double seconds = report->rate > 0
                               ? (double)(report->total - report->done) / report->rate
                               : INFINITY;
    unsigned whole;

    text[0] = '\0';
    if (report->is_stalled)
        return "stalled";
    if (report->seconds < 1 || seconds > 359999)
        return text;
    whole = (unsigned)seconds;
    if (whole >= 3600)
        snprintf(text, TIME_CAPACITY, "%u:%02u:%02u left", whole / 3600, whole / 60 % 60,
                 whole % 60);
    else
        snprintf(text, TIME_CAPACITY, "%u:%02u left", whole / 60, whole % 60);
    return text;
}

/* "12.3 GiB of 27.1 GiB, 2.31 GiB/s, 0:07 left" */
static void
numbers_text(const berth_progress *report, char text[LINE_CAPACITY])
{
    char done[BERTH_SIZE_CAPACITY];
    char total[BERTH_SIZE_CAPACITY];
    char rate[BERTH_SIZE_CAPACITY];
    char left[TIME_CAPACITY];
    const char *const time = time_left(report, left);

    snprintf(text, LINE_CAPACITY, "%3u%%  %s of %s  %s/s%s%s", percent(report),
             berth_size_format(report->done, done),
             berth_size_format(report->total, total),
             berth_size_format(report->rate > 0 ? (uint64_t)report->rate : 0, rate),
             time[0] != '\0' ? "  " : "", time);
}

static void
show_bar(progress *p, const berth_progress *report)
{
    const unsigned all = p->screen.is_terminal ? screen_columns(p->fd) : 80;
    char numbers[LINE_CAPACITY];
    const draw_part part = { report->done, COLOUR_GOOD };
    size_t taken;
    output out;

    numbers_text(report, numbers);
    taken = strlen(report->phase) + strlen(numbers) + 6;
    output_init(&out, p->fd);
    output_text(&out, "\r");
    if (taken + 8 < all) {
        const size_t width = all - taken < 40 ? all - taken : 40;

        output_format(&out, "%s  ", report->phase);
        draw_bar(&out, &p->screen, &part, 1, report->total, width, true);
        output_text(&out, "  ");
    }
    output_bytes(&out, numbers, strlen(numbers) < all ? strlen(numbers) : all - 1);
    output_text(&out, "\033[K");
    output_flush(&out);
    p->is_shown = true;
}

static void
show_line(const progress *p, const berth_progress *report)
{
    char numbers[LINE_CAPACITY];
    output out;

    numbers_text(report, numbers);
    output_init(&out, p->fd);
    output_format(&out, "berth: %s %s\n", report->phase, numbers);
    output_flush(&out);
}

static void
show_object(const progress *p, const berth_progress *report)
{
    output out;
    json_writer w;

    output_init(&out, p->fd);
    json_begin(&w, &out, true);
    json_object_begin(&w, NULL);
    json_number(&w, "schema_version", 1);
    json_text(&w, "phase", report->phase);
    json_text(&w, "file", report->file);
    json_number(&w, "done", report->done);
    json_number(&w, "total", report->total);
    json_real(&w, "seconds", report->seconds);
    json_number(&w, "rate", report->rate > 0 ? (uint64_t)report->rate : 0);
    json_bool(&w, "stalled", report->is_stalled != 0);
    json_object_end(&w);
    json_end(&w);
    output_flush(&out);
}

/* -------------------------------------------------------------------- events */

void
progress_update(progress *p, const berth_progress *report)
{
    pthread_mutex_lock(&p->lock);
    if (p->mode == PROGRESS_JSON) {
        show_object(p, report);
    } else if (p->mode != PROGRESS_NEVER && p->is_bar) {
        show_bar(p, report);
    } else if (p->mode != PROGRESS_NEVER && report->seconds >= p->next_line) {
        show_line(p, report);
        p->next_line = report->seconds + SECONDS_BETWEEN_LINES;
    }
    pthread_mutex_unlock(&p->lock);
}

void
progress_end(progress *p, const berth_progress *report)
{
    pthread_mutex_lock(&p->lock);
    clear(p);
    if (p->mode == PROGRESS_JSON)
        show_object(p, report);
    pthread_mutex_unlock(&p->lock);
}

void
progress_hide(progress *p)
{
    pthread_mutex_lock(&p->lock);
    clear(p);
}

void
progress_show(progress *p)
{
    pthread_mutex_unlock(&p->lock);
}
