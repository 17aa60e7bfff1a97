/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - see rows.h */
#include "tests/gpu/rows.h"

#include <string.h>

void
gpu_rows_text(FILE *rows, const char *text)
{
    fputc('"', rows);
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20)
            fprintf(rows, "\\u%04x", (unsigned)*text);
        else
            fprintf(rows, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', rows);
}

static void
begin(FILE *rows, const char *kind, const char *name)
{
    fprintf(rows, "{\"kind\":\"%s\",\"name\":", kind);
    gpu_rows_text(rows, name);
}

static void
end(FILE *rows)
{
    fputs("}\n", rows);
    fflush(rows);
}

void
gpu_rows_fact(FILE *rows, const char *name, const char *value)
{
    begin(rows, "fact", name);
    fputs(",\"value\":", rows);
    gpu_rows_text(rows, value);
    end(rows);
}

void
gpu_rows_skip(FILE *rows, const char *name, const char *reason)
{
    begin(rows, "skipped", name);
    fputs(",\"reason\":", rows);
    gpu_rows_text(rows, reason);
    end(rows);
    printf("%-52s skipped: %s\n", name, reason);
}

static bool
is_met(const gpu_row *row)
{
    return strcmp(row->relation, ">=") == 0 ? row->value >= row->target
                                            : row->value <= row->target;
}

void
gpu_rows_speed(FILE *rows, const gpu_row *row, bool is_simulated)
{
    const gpu_timing *const t = row->timing;
    const bool is_judged = row->relation != NULL && !is_simulated;

    begin(rows, "speed", row->name);
    fprintf(rows, ",\"group\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"", row->group, row->value,
            row->unit);
    if (row->relation != NULL)
        fprintf(rows, ",\"target\":%.6g,\"relation\":\"%s\"", row->target, row->relation);
    if (is_judged)
        fprintf(rows, ",\"met\":%s", is_met(row) ? "true" : "false");
    if (t != NULL)
        fprintf(rows, ",\"us\":%.6g,\"us_low\":%.6g,\"us_high\":%.6g,\"samples\":%u,"
                "\"launches\":%u", t->us, t->low, t->high, t->samples, t->launches);
    if (row->gbps > 0)
        fprintf(rows, ",\"gbps\":%.6g", row->gbps);
    end(rows);
    printf("%-52s %8.4g %-14s", row->name, row->value, row->unit);
    if (t != NULL)
        printf(" %9.4g us", t->us);
    if (row->relation != NULL)
        printf("  to be %s %.4g%s", row->relation, row->target,
               !is_judged ? "" : is_met(row) ? ": met" : ": MISSED");
    printf("\n");
}
