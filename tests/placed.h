/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placed.h - recorded device maps and the module trees they were made of, as
 * tests/make_placement.py writes them into tests/data/placement/.
 *
 * A record is a stretch of lines that ends with an empty one; each line is a
 * word and its rest. Trees follow the line "tree" (or "checkpoint"), a node a
 * line, indented by its depth:
 *
 *     NAME CLASS weight=4096x4096 bias:float32=4096 !inv_freq:float32=64
 *
 * Tensors are parameters, or behind "~" buffers, behind "!" buffers that are in
 * no checkpoint; a dtype is given where it is not the model's. A name "0..31"
 * stands for as many equal nodes. Trees of small.txt give "NAME#MEMORY=BYTES".
 * In lists of names "layers.0..3" stands for four of them, "-" for the root.
 *
 * Everything lives in an arena of the caller. Whatever fails here ends the
 * program.
 */
#ifndef BERTH_TESTS_PLACED_H
#define BERTH_TESTS_PLACED_H

#include <stdbool.h>
#include <stdint.h>

#include "placement/imitate.h"

typedef struct placed_record {
    const char **lines; /* without their ends; the last one is NULL */
} placed_record;

typedef struct placed_tensor {
    const char *name; /* whole */
    int32_t dtype;    /* BERTHI_NO_DTYPE: the model's */
    uint64_t *shape;
    uint32_t rank;
    uint64_t elements; /* or bytes */
    uint32_t memory;   /* of small trees */
    bool is_buffer;
    bool is_persistent;
    struct placed_tensor *next;
} placed_tensor;

typedef struct placed_node {
    const char *path;
    const char *name; /* its end */
    const char *class_name;
    placed_tensor *tensors;
    placed_tensor *last_tensor;
    struct placed_node *parent;
    struct placed_node *children;
    struct placed_node *last_child;
    struct placed_node *next;
} placed_node;

/* The text of tests/data/placement/NAME; free() it. */
char *placed_file(const char *name);
/* The next record; *text moves behind it. False at the end. Changes the text. */
bool placed_read(berthi_arena *arena, char **text, placed_record *out);
/* The rest of the `number`th line that begins with this word; NULL: no such line. */
const char *placed_line(const placed_record *record, const char *word, uint32_t number);
/* The same, and "" for NULL. */
const char *placed_words(const placed_record *record, const char *word);
/* Words of a list, "a..b" spelled out; NULL behind the last one. */
const char **placed_list(berthi_arena *arena, const char *text);
/* The number of "key" in "key=1,other=2.5"; false when it is not there. */
bool placed_has_number(const char *text, const char *key, double *out);
/* The tree below the line `word`; NULL when there is none. */
placed_node *placed_tree(berthi_arena *arena, const placed_record *record,
                         const char *word);

/* A model made by hand of its recorded tree, loaded as `dtype`. */
berthi_architecture *placed_model(berthi_arena *arena, const placed_record *record,
                                  berthi_era era, int32_t dtype);
/* A tree of small.txt, ties and all; berthi_tree_fini(). */
void placed_small(berth_context *context, berthi_arena *arena, const placed_record *record,
                  bool is_5x, berthi_tree *out);

/* The tensors of a node and all below it, as a checkpoint would hold them. */
typedef struct placed_checkpoint {
    berthi_model_tensor *tensors;
    uint32_t count;
    berthi_model_source source;
} placed_checkpoint;
/* Tied names are held once; `dtype` is that of the others. */
placed_checkpoint *placed_tensors(berthi_arena *arena, const placed_record *record,
                                  int32_t dtype);

/* "class", ...; what upstream raises: "ValueError", ..., and "" for none. */
const char *placed_refusal(berthi_refusal refusal);
const char *placed_raised(berthi_refusal refusal);

/* NULL, or what differs from the lines `word` of the record, in static memory. */
const char *placed_difference(berthi_arena *arena, const berthi_imitation *imitation,
                              const placed_record *record, const char *word);

#endif
