/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw_map.h - the picture of a plan: what is drawn, and how wide each part is.
 *
 * A map is gathered from a plan (or by a test), arranged into cells, and handed to
 * a renderer. All renderers draw the same cells with the same widths. Names in a
 * map are escaped: they can be printed on a terminal, not yet put into markup.
 */
#ifndef BERTH_TOOLS_DRAW_MAP_H
#define BERTH_TOOLS_DRAW_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/berth.h"
#include "tools/colour.h"
#include "tools/form.h"
#include "tools/output.h"

/* Beyond these a picture folds what is left: a plan may be anybody's file. */
#define DRAW_MAX_LAYERS 1000
#define DRAW_MAX_LINES 48         /* of a layer */
#define DRAW_MAX_ALL_LINES 6000
#define DRAW_MAX_TYPES 12
#define DRAW_NAME_WIDTH 96

/* Parts of a tier in the order in which they are drawn. */
typedef enum draw_kind {
    DRAW_RESIDENT,    /* a layer on the device that computes it             */
    DRAW_LENT,        /* a layer that is streamed from here                 */
    DRAW_SLOTS,
    DRAW_CACHE,
    DRAW_KEPT,        /* in its place in training: for the backward pass    */
    DRAW_TRAINING,    /* gradients, states, adapters                        */
    DRAW_ACTIVATIONS,
    DRAW_SCRATCH,
    DRAW_STAGING,
    DRAW_RESERVE,
    DRAW_FREE,
    DRAW_ABSENT,      /* beyond the budget: a layer that is streamed to here */
    DRAW_KINDS
} draw_kind;

typedef struct draw_cell {
    draw_kind kind;
    form_class class;     /* of most bytes; of layers only                    */
    uint32_t layer;       /* the first of them, or BERTH_NO_INDEX             */
    uint32_t layer_count;
    uint64_t bytes;       /* as drawn: not always all that is free            */
} draw_cell;

typedef struct draw_tier {
    berth_plan_tier facts;
    size_t first_cell;
    size_t cell_count;
    size_t absent_cells;  /* the last of them                                 */
    uint64_t drawn;       /* of all cells                                     */
    uint64_t used;        /* of the budget, the reserve included              */
    uint64_t absent;      /* bytes for which the device has no room           */
    bool is_cut;          /* more is free than is drawn                       */
} draw_tier;

/* Bytes of one layer on one tier. */
typedef struct draw_piece {
    uint32_t layer;
    uint32_t tier;
    form_class class;     /* of most of them                                  */
    uint64_t bytes;
    uint64_t class_bytes[FORM_CLASSES];
} draw_piece;

/* A line of the list of a layer's tensors. */
typedef struct draw_line {
    char *name;           /* owned; NULL: several tensors                     */
    uint64_t bytes;
    uint64_t tensors;
    uint64_t experts;     /* 0: others than experts                           */
    uint64_t last_expert; /* number of the one counted last                   */
    uint32_t tier;        /* BERTH_NO_INDEX: several                          */
    int32_t encoding;
    int32_t dtype;
} draw_line;

typedef struct draw_layer {
    char *name;           /* owned */
    char *reason;         /* owned */
    uint32_t home;
    int32_t cause;
    uint64_t bytes;
    uint64_t resident_bytes;
    uint64_t link_bytes;
    size_t first_piece;
    size_t piece_count;
    size_t first_line;
    size_t line_count;
} draw_layer;

typedef struct draw_type {
    int32_t encoding;
    int32_t dtype;
    uint64_t bytes;
} draw_type;

typedef struct draw_map {
    berth_plan_summary summary;
    berth_plan_training training; /* of a plan for that */
    bool is_training;
    draw_tier *tiers;
    size_t tier_count;
    draw_layer *layers;
    size_t layer_count;
    draw_piece *pieces;   /* in the order of layers                           */
    size_t piece_count;
    size_t piece_capacity;
    draw_line *lines;
    size_t line_count;
    size_t line_capacity;
    draw_cell *cells;     /* made by draw_map_arrange()                       */
    size_t cell_count;
    size_t cell_capacity;
    draw_type types[DRAW_MAX_TYPES];
    size_t type_count;
    bool has_lines;
} draw_map;

/* ------------------------------------------------------------------ the map */

/*
 * Everything of the plan that is drawn; `wants_lines`: with the lists of tensors.
 * False when memory is out. Free it with draw_map_fini() in either case.
 */
bool draw_map_gather(draw_map *map, const berth_plan *plan, bool wants_lines);
/* Makes cells of pieces. False when memory is out. */
bool draw_map_arrange(draw_map *map);
void draw_map_fini(draw_map *map);

/* One more tensor of layer `layer`, the last one so far. `name` is not escaped. */
bool draw_map_add(draw_map *map, uint32_t layer, const berth_berth *b, const char *name);

/* --------------------------------------------------------------- the layout */

/*
 * Ends of the tier's cells in units, ascending, the last one being `units`. Each
 * cell gets `least` units as long as all of them find room, and beyond that what
 * its bytes are worth.
 */
void draw_map_ends(const draw_map *map, const draw_tier *tier, uint32_t units,
                   uint32_t least, uint32_t *ends);

/* Layers from `first` on that have one home and names that count up: one or more. */
uint32_t draw_map_run(const draw_map *map, uint32_t first);
/* "layers.4" and then "layers.5". */
bool draw_is_next_name(const char *before, const char *after);
/* "model.layers.4-31", cut to DRAW_NAME_WIDTH. Returns `text`. */
#define DRAW_TEXT_CAPACITY 512
const char *draw_run_text(const draw_map *map, uint32_t first, uint32_t count,
                          char text[DRAW_TEXT_CAPACITY]);
/* Where its bytes lie: "cuda:0", "cuda:0+cpu". Returns `text`. */
const char *draw_where_text(const draw_map *map, uint32_t layer,
                            char text[DRAW_TEXT_CAPACITY]);
/* "nf4, BF16": the types of a class, those with most bytes first; "" for none. */
const char *draw_types_text(const draw_map *map, form_class class,
                            char text[DRAW_TEXT_CAPACITY]);
/* "rows 24 to 48", "depths 24 to 48 of each of 2 parts"; "" for all. Returns `text`. */
const char *draw_slice_text(const berth_berth *berth, char text[DRAW_TEXT_CAPACITY]);
/* "nf4", "BF16". */
const char *draw_type_name(int32_t encoding, int32_t dtype);
/* "KV cache", ...: what a part is called. */
const char *draw_kind_name(draw_kind kind);
/* "83 layers, 36.20 GiB, nf4 with double quantization". Returns `text`. */
const char *draw_title_text(const draw_map *map, char text[DRAW_TEXT_CAPACITY]);
/* "9.3 tokens per second, ...", or "" where nothing is predicted. Returns `text`. */
const char *draw_speed_text(const draw_map *map, char text[DRAW_TEXT_CAPACITY]);
/* The change that would help most, or "". Returns `text`. */
const char *draw_advice_text(const draw_map *map, char text[DRAW_TEXT_CAPACITY]);
/* "412.00 MiB free", "short of 1.00 GiB", "no limit". Returns `text`. */
const char *draw_verdict_text(const draw_tier *tier, char text[DRAW_TEXT_CAPACITY]);
/* "18.20 of 20.00 GiB": what is used, of the budget if there is one. Returns `text`. */
const char *draw_use_text(const draw_tier *tier, char text[DRAW_TEXT_CAPACITY]);

/* ------------------------------------------------------------ the renderers */

/* False when memory is out, as for all of them. */
bool draw_map_terminal(output *out, const screen *s, const draw_map *map, size_t columns);
/* What moved from one plan to another. */
bool draw_map_difference(output *out, const screen *s, const draw_map *before,
                         const draw_map *after, size_t columns);
bool draw_map_svg(output *out, const draw_map *map);
bool draw_map_html(output *out, const draw_map *map);

typedef struct draw_row {
    const char *layer;  /* as in the plan: escaped */
    const char *tensor; /* not escaped */
    const char *tier;
    bool is_resident;
    const berth_berth *b;
} draw_row;

void draw_csv_title(output *out);
void draw_csv_row(output *out, const draw_row *row);

/* The parts of draw_map_terminal(): a tier's bar, and what its characters mean. */
bool draw_map_bar(output *out, const screen *s, const draw_map *map, const draw_tier *tier,
                  size_t columns);
/* `other`: a second map that is drawn, or NULL. */
void draw_map_legend(output *out, const screen *s, const draw_map *map, const draw_map *other,
                     size_t columns);

#endif
