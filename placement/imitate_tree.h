/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_tree.h - a model as the planners of transformers and accelerate see
 * it: modules and tensors with the bytes that a release counts for them.
 *
 * Nodes lie in one array in the order of registration, a module before what it
 * holds: its own parameters, its children with all that is below them, its own
 * buffers. What lies below a node is therefore the stretch [node + 1, end).
 *
 * Fill: init, then add node by node in that order, tie, then finish, then it is
 * only read. The first failure stays in `is_failed`; afterwards calls do nothing.
 */
#ifndef BERTH_PLACEMENT_IMITATE_TREE_H
#define BERTH_PLACEMENT_IMITATE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/era.h"

#define BERTHI_NO_NODE UINT32_MAX
/* The class of modules that may be split. */
#define BERTHI_NO_CLASS UINT16_MAX
/* Classes that are never split have smaller numbers; models name about five. */
#define BERTHI_CLASS_LIMIT 256u

typedef enum berthi_node_kind {
    BERTHI_NODE_MODULE,
    BERTHI_NODE_PARAMETER,
    BERTHI_NODE_BUFFER
} berthi_node_kind;

typedef struct berthi_node {
    const char *name; /* whole, "" for the root; borrowed, not ended by a NUL */
    uint32_t name_length;
    uint32_t parent;  /* BERTHI_NO_NODE for the root */
    uint32_t end;     /* the first node behind what lies below */
    uint32_t tie;     /* tensors: the next one of the same memory in a ring, itself: none */
    double bytes;     /* tensors: their own; modules: what is counted below them */
    uint16_t class_number; /* modules that are never split; else BERTHI_NO_CLASS */
    uint8_t kind;
    bool is_counted;  /* tensors: under this name; modules: something below them is */
    bool is_atom;     /* tensors, modules without children, modules never split */
    bool is_escaping; /* tensors: of the class's _no_placement_params */
} berthi_node;

typedef struct berthi_tree {
    berthi_arena arena;
    berthi_node *nodes;
    uint32_t count;
    uint32_t capacity;
    uint32_t *members; /* parameters that share memory, group by group, by name */
    uint32_t *groups;  /* the first member of each, and the end of the last */
    uint32_t group_count;
    uint32_t member_count;
    const char *const *exempt; /* modules that may lie anywhere though it is quantized */
    uint32_t exempt_count;
    bool has_classes;  /* the model names classes that are never split */
    bool is_escaping;  /* its class has _no_placement_params at all */
    bool is_failed;    /* out of memory, or more nodes than announced */
} berthi_tree;

/* What a node is when it is added. */
typedef struct berthi_node_words {
    const char *name;
    uint64_t name_length;
    double bytes;          /* tensors */
    uint16_t class_number; /* modules; equal numbers are equal classes */
    bool is_left_out;      /* tensors: counted nowhere, the targets of ties in 5.x */
    bool is_escaping;
} berthi_node_words;

/* Room for `capacity` nodes. Free with berthi_tree_fini(), after failures, too. */
void berthi_tree_init(berthi_tree *tree, berth_context *context, uint64_t capacity);
/* Its number; the root comes first, with no parent. */
uint32_t berthi_tree_add(berthi_tree *tree, uint32_t parent, berthi_node_kind kind,
                         const berthi_node_words *words);
/* Both are names of one memory: 4.x counts it once, planners keep them together. */
void berthi_tree_tie(berthi_tree *tree, uint32_t a, uint32_t b);
/* Sums, ends and groups. Fails with NO_MEMORY. */
berth_status berthi_tree_finish(berthi_tree *tree, berth_error *error);
void berthi_tree_fini(berthi_tree *tree);

/* True for the path of a module that quantizers let lie on cpu or disk. */
bool berthi_tree_is_exempt(const berthi_tree *tree, const char *path, uint64_t length);
/* True when "name." occurs in "key." anywhere, as upstream asks. */
bool berthi_tree_is_inside(const berthi_node *name, const berthi_node *key);

#endif
