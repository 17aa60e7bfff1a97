/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - names become modules, and modules that repeat become one.
 *
 * Modules numbered 0, 1, 2, ... whose tensors have the same names and forms are
 * folded into the first of them, which then carries the sums of all. Use:
 * tree_init(), tree_add() for each tensor in the order of listing.h,
 * tree_fold() once, then read the nodes.
 */
#ifndef BERTH_TOOLS_TREE_H
#define BERTH_TOOLS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/form.h"

#define TREE_NONE UINT32_MAX
/* Components beyond this depth stay together in the last one. */
#define TREE_MAX_DEPTH 32

typedef struct tree_range {
    uint64_t first;
    uint64_t last;
} tree_range;

typedef struct tree_sums {
    uint64_t tensors;    /* as people count: a quantized weight is one */
    uint64_t parameters;
    uint64_t bytes;
    uint64_t class_bytes[FORM_CLASSES];
} tree_sums;

typedef struct tree_node {
    const char *name; /* one component, borrowed */
    size_t name_length;
    uint32_t parent;
    uint32_t first_child;
    uint32_t last_child; /* until tree_fold() */
    uint32_t next;
    uint32_t form;   /* of the tensor that ends here, or FORM_NONE */
    uint32_t repeat; /* modules folded into this one, itself included */
    size_t first_range; /* of their numbers, when repeat > 1 */
    size_t range_count;
    tree_sums sums; /* of everything below, over all repeats */
} tree_node;

typedef struct tree {
    tree_node *nodes; /* [0] is the root; children follow their parents */
    size_t count;
    size_t capacity;
    tree_range *ranges;
    size_t range_count;
    size_t range_capacity;
} tree;

/* The functions that return bool are false when memory is out. */
bool tree_init(tree *t);
void tree_fini(tree *t);
/* `name` must outlive the tree. `sums` are those of this tensor. */
bool tree_add(tree *t, const char *name, size_t name_length, uint32_t form_number,
              const tree_sums *sums);
bool tree_fold(tree *t);

/*
 * The node after `node` in the walk that visits parents before children, within
 * `top`; TREE_NONE at the end.
 */
uint32_t tree_next(const tree *t, uint32_t top, uint32_t node);

#endif
