/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimate_print.h - an estimate for people (estimate_print.c, estimate_print_fit.c),
 * for programs (estimate_print_json.c) and as a picture (estimate_print_svg.c).
 */
#ifndef BERTH_TOOLS_ESTIMATE_PRINT_H
#define BERTH_TOOLS_ESTIMATE_PRINT_H

#include "tools/session.h"
#include "tools/table.h"

/* What was asked, and all answers; everything is borrowed. */
typedef struct estimation {
    const berth_shape *shape;
    const berth_estimate *estimate;
    const berth_estimate_options *options;
    const char *type;  /* as a user would write it */
    const char *dtype; /* that is computed in */
    berth_shape_summary model;
    berth_estimate_summary summary;
} estimation;

void estimate_print(session *s, const estimation *e);
/* `status` is what the command ends with. */
void estimate_write_json(session *s, const estimation *e, berth_status status);
/* One stacked bar with its legend, into `out`. */
void estimate_write_svg(output *out, const estimation *e);

/* Parts of what people see. */
void estimate_print_table(session *s, const estimation *e);
void estimate_print_budget(session *s, const estimation *e);

/* What its files share. */
#define ESTIMATE_LABEL_WIDTH   11
#define ESTIMATE_CELL_CAPACITY 256
/* Columns of the terminal, or what a file or pipe gets. */
size_t estimate_columns(const session *s);
void estimate_label(session *s, const char *label);
/* Words of `text` from column `indent` on, where the cursor is; ends the line. */
void estimate_wrapped(session *s, const char *text, size_t indent);
/* What a narrow terminal leaves of a table's first column. */
const char *estimate_cut(const session *s, const table *t, const char *text,
                         char cut[ESTIMATE_CELL_CAPACITY]);

#endif
