/* SPDX-License-Identifier: Apache-2.0 */
/* draw_csv.c - one line a berth. */
#include <inttypes.h>
#include <string.h>

#include "tools/draw_map.h"

#define FIELD_CAPACITY 16384

/*
 * A field, escaped text. A spreadsheet takes what begins with these for a formula:
 * it gets an apostrophe.
 */
static void
write_field(output *out, const char *text)
{
    const bool is_formula = text[0] != '\0' && strchr("=+-@", text[0]) != NULL;
    const bool is_quoted = is_formula || strpbrk(text, ",\" ") != NULL;

    output_text(out, is_formula ? "\"'" : is_quoted ? "\"" : "");
    for (; *text != '\0'; text++)
        output_bytes(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    output_text(out, is_quoted ? "\"" : "");
}

void
draw_csv_title(output *out)
{
    output_text(out, "layer,tensor,tier,offset,bytes,encoding,resident,part\n");
}

void
draw_csv_row(output *out, const draw_row *row)
{
    char tensor[FIELD_CAPACITY];
    char slice[DRAW_TEXT_CAPACITY];

    berth_text_escape(row->tensor, strlen(row->tensor), tensor, sizeof tensor);
    write_field(out, row->layer);
    output_text(out, ",");
    write_field(out, tensor);
    output_text(out, ",");
    write_field(out, row->tier);
    output_format(out, ",%" PRIu64 ",%" PRIu64 ",%s,%s,", row->b->offset, row->b->bytes,
                  draw_type_name(row->b->encoding, row->b->dtype),
                  row->is_resident ? "yes" : "no");
    output_text(out, draw_slice_text(row->b, slice));
    output_text(out, "\n");
}
