/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - see page.h */
#include "tests/gpu/page.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/found.h"

#define WIDTH 1000.0
#define LABEL 430.0 /* of a bar, on its left */
#define ROOM 270.0  /* for its number, on its right */
#define LINE 26.0

static const char style[] =
    ":root{--paper:#fbfaf8;--ink:#22252a;--dim:#6a7078;--line:#d9d6d0;--bar:#7d9cb8;"
    "--good:#2f7d4f;--bad:#b3372e}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#17191c;--ink:#e4e2dd;--dim:#949aa3;"
    "--line:#383c42;--bar:#5f86a8;--good:#5fb684;--bad:#e37a70}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:24px;max-width:1080px;"
    "background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,'Segoe UI',"
    "'DejaVu Sans',sans-serif}\n"
    "h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px}\n"
    ".dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}\n"
    ".note{border:1px solid var(--bad);border-radius:6px;padding:8px 12px;margin:12px 0}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}\n"
    "td,th{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--line);"
    "vertical-align:top;overflow-wrap:anywhere}th{font-weight:400;color:var(--dim)}\n"
    "svg{width:100%;height:auto;display:block}summary{font-size:16px;margin:28px 0 8px}\n"
    "svg text{font:13px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink)}\n"
    "svg .dim{fill:var(--dim)}svg .bar{fill:var(--bar)}svg .good{fill:var(--good)}"
    "svg .bad{fill:var(--bad)}svg .mark{stroke:var(--ink);stroke-width:2}\n";

/* The limits have moved from before the speeds to after them: a drift that is not met. */
static bool
are_speeds_void(const gpu_found *r)
{
    for (uint64_t i = 0; i < r->count; i++) {
        const berthi_json_value *const row = gpu_found_at(r, i);
        bool is_met = true;

        if (gpu_is_kind(row, "speed") && strcmp(gpu_text_of(row, "unit"), "of before") == 0
            && berthi_json_can_read_bool(berthi_json_get(row, "met"), &is_met) && !is_met)
            return true;
    }
    return false;
}

/* Speeds of kernels, and what is said of them; whole loads have limits of their own. */
static bool
is_void(const gpu_found *r, const berthi_json_value *row)
{
    const char *const group = gpu_text_of(row, "group");

    return gpu_is_kind(row, "speed") && strcmp(group, "limits") != 0
           && strcmp(group, "the whole") != 0 && are_speeds_void(r);
}

/* "good", "bad"; "bar" where nothing was to be reached, or what was found is void. */
static const char *
verdict(const gpu_found *r, const berthi_json_value *row)
{
    bool is_met = false;

    if (is_void(r, row) || !berthi_json_can_read_bool(berthi_json_get(row, "met"), &is_met))
        return "bar";
    return is_met ? "good" : "bad";
}

/* ---------------------------------------------------------------------------- markup */

static void
write_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
}

static void
write_cell(FILE *out, const char *text)
{
    fputs("<td>", out);
    write_text(out, text);
}

static void
write_label(FILE *out, double x, double y, const char *class, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    write_text(out, text);
    fputs("</text>\n", out);
}

static void
write_bar(FILE *out, double begin, double width, double y, const char *class)
{
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"15\" rx=\"2\" "
            "class=\"%s\"/>\n", begin, y + 4.0, width > 1.0 ? width : 1.0, class);
}

static void
write_title(FILE *out, const char *title, bool is_folded)
{
    fputs(is_folded ? "<details><summary>" : "<h2>", out);
    write_text(out, title);
    fputs(is_folded ? "</summary>\n" : "</h2>\n", out);
}

static void
begin_picture(FILE *out, const char *title, uint64_t lines, bool is_folded)
{
    write_title(out, title, is_folded);
    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", WIDTH,
            LINE * (double)lines);
}

/* ------------------------------------------------------------------------------ speeds */

static bool
is_of_group(const berthi_json_value *row, const char *group)
{
    return gpu_is_kind(row, "speed") && strcmp(gpu_text_of(row, "group"), group) == 0;
}

/* Bars of one unit have one scale. */
static double
most_of_unit(const gpu_found *r, const char *group, const char *unit)
{
    double most = 0.0;

    for (uint64_t i = 0; i < r->count; i++) {
        const berthi_json_value *const row = gpu_found_at(r, i);
        const double value = gpu_number_of(row, "value");
        const double target = gpu_number_of(row, "target");

        if (!is_of_group(row, group) || strcmp(gpu_text_of(row, "unit"), unit) != 0)
            continue;
        most = value > most ? value : most;
        most = target > most ? target : most;
    }
    return most > 0.0 ? most : 1.0;
}

static void
write_speed(FILE *out, const gpu_found *r, const berthi_json_value *row, double y)
{
    const double room = WIDTH - LABEL - ROOM;
    const double scale =
        room / most_of_unit(r, gpu_text_of(row, "group"), gpu_text_of(row, "unit"));
    const double target = gpu_number_of(row, "target");
    const double us = gpu_number_of(row, "us");
    char number[96];

    snprintf(number, sizeof number,
             us >= 1e4 ? "%.3g %s, %.4g ms" : us > 0.0 ? "%.3g %s, %.4g us" : "%.3g %s",
             gpu_number_of(row, "value"), gpu_text_of(row, "unit"), us >= 1e4 ? us / 1e3 : us);
    write_label(out, 0.0, y + 16.0, "", gpu_text_of(row, "name"));
    write_bar(out, LABEL, gpu_number_of(row, "value") * scale, y, verdict(r, row));
    if (target > 0.0)
        fprintf(out, "<path class=\"mark\" d=\"M%.1f %.1fv21\"/>\n", LABEL + target * scale,
                y + 1.0);
    write_label(out, WIDTH - ROOM + 10.0, y + 16.0, "dim", number);
}

static void
write_group(FILE *out, const gpu_found *r, const char *group)
{
    uint64_t lines = 0;
    bool is_folded = true; /* nothing is to be reached by any of it, of which there may be much */

    for (uint64_t i = 0; i < r->count; i++)
        if (is_of_group(gpu_found_at(r, i), group)) {
            is_folded = is_folded && gpu_number_of(gpu_found_at(r, i), "target") <= 0.0;
            lines++;
        }
    begin_picture(out, group, lines, is_folded);
    lines = 0;
    for (uint64_t i = 0; i < r->count; i++)
        if (is_of_group(gpu_found_at(r, i), group))
            write_speed(out, r, gpu_found_at(r, i), LINE * (double)lines++);
    fputs(is_folded ? "</svg></details>\n" : "</svg>\n", out);
}

/* In the order in which they were begun. */
static void
write_groups(FILE *out, const gpu_found *r)
{
    for (uint64_t i = 0; i < r->count; i++) {
        const char *const group = gpu_text_of(gpu_found_at(r, i), "group");
        bool is_first = gpu_is_kind(gpu_found_at(r, i), "speed");

        for (uint64_t k = 0; is_first && k < i; k++)
            is_first = strcmp(gpu_text_of(gpu_found_at(r, k), "group"), group) != 0;
        if (is_first)
            write_group(out, r, group);
    }
}

/* ------------------------------------------------------------------------------ tables */

static void
write_facts(FILE *out, const gpu_found *r)
{
    fputs("<table>\n", out);
    for (uint64_t i = 0; i < r->count; i++) {
        if (!gpu_is_kind(gpu_found_at(r, i), "fact"))
            continue;
        fputs("<tr>", out);
        write_cell(out, gpu_text_of(gpu_found_at(r, i), "name"));
        write_cell(out, gpu_text_of(gpu_found_at(r, i), "value"));
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void
write_tests(FILE *out, const gpu_found *r)
{
    fputs("<h2>Tests on the device</h2>\n<table><tr><th>program<th>passed<th>failed"
          "<th>skipped<th>seconds</tr>\n", out);
    for (uint64_t i = 0; i < r->count; i++) {
        const berthi_json_value *const row = gpu_found_at(r, i);
        const double failed = gpu_number_of(row, "failed");

        if (!gpu_is_kind(row, "tests"))
            continue;
        fputs("<tr>", out);
        write_cell(out, gpu_text_of(row, "name"));
        fprintf(out, "<td>%.0f<td%s>%.0f<td>%.0f<td>%.1f</tr>\n", gpu_number_of(row, "passed"),
                failed > 0.0 ? " class=\"bad\"" : "", failed, gpu_number_of(row, "skipped"),
                gpu_number_of(row, "seconds"));
    }
    fputs("</table>\n", out);
}

static void
write_skipped(FILE *out, const gpu_found *r)
{
    fputs("<h2>Left out</h2>\n<table>\n", out);
    for (uint64_t i = 0; i < r->count; i++) {
        if (!gpu_is_kind(gpu_found_at(r, i), "skipped"))
            continue;
        fputs("<tr>", out);
        write_cell(out, gpu_text_of(gpu_found_at(r, i), "name"));
        write_cell(out, gpu_text_of(gpu_found_at(r, i), "reason"));
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

/* One after the other, as they were. */
static void
write_stages(FILE *out, const gpu_found *r)
{
    const double room = WIDTH - LABEL - ROOM;
    double all = 0.0;
    double begin = 0.0;
    uint64_t lines = 0;

    for (uint64_t i = 0; i < r->count; i++)
        if (gpu_is_kind(gpu_found_at(r, i), "stage")) {
            all += gpu_number_of(gpu_found_at(r, i), "seconds");
            lines++;
        }
    begin_picture(out, "Where the time went", lines, false);
    lines = 0;
    for (uint64_t i = 0; i < r->count; i++) {
        const berthi_json_value *const row = gpu_found_at(r, i);
        const double seconds = gpu_number_of(row, "seconds");
        const double y = LINE * (double)lines;
        const double scale = room / (all > 0.0 ? all : 1.0);
        char number[96];

        if (!gpu_is_kind(row, "stage"))
            continue;
        snprintf(number, sizeof number, "%.1f s, %s", seconds, gpu_text_of(row, "status"));
        write_label(out, 0.0, y + 16.0, "", gpu_text_of(row, "name"));
        write_bar(out, LABEL + begin * scale, seconds * scale, y,
                  strcmp(gpu_text_of(row, "status"), "failed") == 0 ? "bad" : "bar");
        write_label(out, WIDTH - ROOM + 10.0, y + 16.0, "dim", number);
        begin += seconds;
        lines++;
    }
    fputs("</svg>\n", out);
}

/* -------------------------------------------------------------------------------- page */

static const char *
find_fact(const gpu_found *r, const char *name)
{
    for (uint64_t i = 0; i < r->count; i++)
        if (gpu_is_kind(gpu_found_at(r, i), "fact")
            && strcmp(gpu_text_of(gpu_found_at(r, i), "name"), name) == 0)
            return gpu_text_of(gpu_found_at(r, i), "value");
    return NULL;
}

static void
write_summary(FILE *out, const gpu_found *r)
{
    double passed = 0.0;
    double failed = 0.0;
    unsigned met = 0;
    unsigned missed = 0;
    unsigned skipped = 0;

    for (uint64_t i = 0; i < r->count; i++) {
        const berthi_json_value *const row = gpu_found_at(r, i);

        passed += gpu_is_kind(row, "tests") ? gpu_number_of(row, "passed") : 0.0;
        failed += gpu_is_kind(row, "tests") ? gpu_number_of(row, "failed") : 0.0;
        met += strcmp(verdict(r, row), "good") == 0;
        missed += strcmp(verdict(r, row), "bad") == 0;
        skipped += gpu_is_kind(row, "skipped");
    }
    fprintf(out, "<p>%.0f tests passed, <span%s>%.0f failed</span>; %u speeds met, "
            "<span%s>%u missed</span>; %u left out. A black mark is what is to be reached.</p>\n",
            passed, failed > 0.0 ? " class=\"bad\"" : "", failed, met,
            missed > 0 ? " class=\"bad\"" : "", missed, skipped);
}

static void
write_page(FILE *out, const gpu_found *r)
{
    const char *const gpu = find_fact(r, "GPU");
    const char *const simulated = find_fact(r, "simulated");

    fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
            "<title>berth on a GPU</title>\n<style>\n%s</style></head>\n<body>\n"
            "<h1>berth on ", style);
    write_text(out, gpu != NULL ? gpu : "a GPU");
    fputs("</h1>\n", out);
    write_summary(out, r);
    if (simulated != NULL) {
        fputs("<p class=\"note\">A simulated GPU: ", out);
        write_text(out, simulated);
        fputs("</p>\n", out);
    }
    if (are_speeds_void(r))
        fputs("<p class=\"note\">Void: the limits have moved while speeds were measured, so these "
              "are shares of something that was not there. Measure again.</p>\n", out);
    write_facts(out, r);
    write_groups(out, r);
    write_tests(out, r);
    write_skipped(out, r);
    write_stages(out, r);
    fputs("</body></html>\n", out);
}

/* As it is; nothing is met or missed by what is void. */
static void
write_row(FILE *out, const char *line, size_t length, bool is_row_void)
{
    static const char met[] = "\"met\":";
    const char *const end = line + length;
    const char *at = is_row_void ? strstr(line, met) : NULL;

    if (at == NULL || at >= end) {
        fprintf(out, "%.*s", (int)length, line);
        return;
    }
    fprintf(out, "%.*s\"void\":true", (int)(at - line), line);
    at += strcspn(at, ",}");
    fprintf(out, "%.*s", (int)(end - at), at);
}

/* The rows, in one array. */
static void
write_report(FILE *out, const gpu_found *r)
{
    bool is_first = true;
    uint64_t i = 0;

    fputs("{\"format\":\"berth-gpu-check\",\"version\":1,\"rows\":[", out);
    for (const char *line = r->text; line < r->text + r->bytes;) {
        const size_t length = strcspn(line, "\n");

        if (length > 0) {
            fputs(is_first ? "\n" : ",\n", out);
            write_row(out, line, length, is_void(r, gpu_found_at(r, i++)));
        }
        is_first = is_first && length == 0;
        line += length + 1;
    }
    fputs("\n]}\n", out);
}

static bool
has_written(const char *path, const gpu_found *r, void (*write)(FILE *out, const gpu_found *r))
{
    FILE *const file = fopen(path, "w");
    bool is_written = file != NULL;

    if (file != NULL) {
        write(file, r);
        is_written = ferror(file) == 0;
        is_written = fclose(file) == 0 && is_written;
    }
    if (!is_written)
        perror(path);
    return is_written;
}

int
gpu_page_write(const char *path, const char *report, const char *page)
{
    gpu_found r;
    const bool is_done = gpu_found_open(&r, path) && has_written(report, &r, write_report)
                         && has_written(page, &r, write_page);

    gpu_found_close(&r);
    return is_done ? 0 : 1;
}
