/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - builds and folds the tree of modules. */
#include "tools/tree.h"

#include <stdlib.h>
#include <string.h>

#include "tools/grow.h"
#include "tools/number.h"

/* A new node as the last child of `parent`; TREE_NONE when memory is out. */
static uint32_t
new_node(tree *t, uint32_t parent, const char *name, size_t name_length)
{
    tree_node *const nodes = t->count < TREE_NONE
                                 ? grow(t->nodes, &t->capacity, t->count, 1, sizeof *nodes)
                                 : NULL;
    const uint32_t number = (uint32_t)t->count;

    if (nodes == NULL)
        return TREE_NONE;
    t->nodes = nodes;
    t->count++;
    nodes[number] = (tree_node){
        .name = name,
        .name_length = name_length,
        .parent = parent,
        .first_child = TREE_NONE,
        .last_child = TREE_NONE,
        .next = TREE_NONE,
        .form = FORM_NONE,
        .repeat = 1,
    };
    if (parent == TREE_NONE)
        return number;
    if (nodes[parent].last_child == TREE_NONE)
        nodes[parent].first_child = number;
    else
        nodes[nodes[parent].last_child].next = number;
    nodes[parent].last_child = number;
    return number;
}

bool
tree_init(tree *t)
{
    memset(t, 0, sizeof *t);
    return new_node(t, TREE_NONE, "", 0) != TREE_NONE;
}

void
tree_fini(tree *t)
{
    free(t->nodes);
    free(t->ranges);
}

static void
add_sums(tree_sums *to, const tree_sums *from)
{
    to->tensors += from->tensors;
    to->parameters += from->parameters;
    to->bytes += from->bytes;
    for (size_t i = 0; i < FORM_CLASSES; i++)
        to->class_bytes[i] += from->class_bytes[i];
}

/* The names come in order: if the component is there, it is the last child. */
static uint32_t
enter_component(tree *t, uint32_t parent, const char *name, size_t length)
{
    const uint32_t last = t->nodes[parent].last_child;

    if (last != TREE_NONE && t->nodes[last].name_length == length
        && memcmp(t->nodes[last].name, name, length) == 0)
        return last;
    return new_node(t, parent, name, length);
}

bool
tree_add(tree *t, const char *name, size_t name_length, uint32_t form_number,
         const tree_sums *sums)
{
    const char *const end = name + name_length;
    uint32_t node = 0;

    for (int depth = 1; node != TREE_NONE; depth++) {
        const char *const dot =
            depth < TREE_MAX_DEPTH ? memchr(name, '.', (size_t)(end - name)) : NULL;

        node = enter_component(t, node, name, (size_t)((dot != NULL ? dot : end) - name));
        if (dot == NULL)
            break;
        name = dot + 1;
    }
    if (node == TREE_NONE)
        return false;
    t->nodes[node].form = form_number;
    add_sums(&t->nodes[node].sums, sums);
    return true;
}

/* --------------------------------------------------------------------- walks */

uint32_t
tree_next(const tree *t, uint32_t top, uint32_t node)
{
    if (t->nodes[node].first_child != TREE_NONE)
        return t->nodes[node].first_child;
    while (node != top && t->nodes[node].next == TREE_NONE)
        node = t->nodes[node].parent;
    return node == top ? TREE_NONE : t->nodes[node].next;
}

/* A total order in which alike nodes are equal; the names of tops do not matter. */
static int
compare_nodes(const tree *t, const tree_node *a, const tree_node *b, bool is_top)
{
    const size_t x[] = { a->form, a->first_child == TREE_NONE, a->range_count,
                         is_top ? 0 : a->name_length, is_top || a->next == TREE_NONE };
    const size_t y[] = { b->form, b->first_child == TREE_NONE, b->range_count,
                         is_top ? 0 : b->name_length, is_top || b->next == TREE_NONE };
    int order = memcmp(x, y, sizeof x);

    if (order == 0 && a->range_count > 0)
        order = memcmp(t->ranges + a->first_range, t->ranges + b->first_range,
                       a->range_count * sizeof *t->ranges);
    return order != 0 || is_top ? order : memcmp(a->name, b->name, a->name_length);
}

/* 0: alike in everything but the names of the two themselves. */
static int
compare_modules(const tree *t, uint32_t a, uint32_t b)
{
    uint32_t x = a;
    uint32_t y = b;
    int order = 0;

    while (x != TREE_NONE && order == 0) {
        order = compare_nodes(t, &t->nodes[x], &t->nodes[y], x == a);
        x = tree_next(t, a, x);
        y = tree_next(t, b, y);
    }
    return order;
}

/* Adds the sums of `from`, node by node, to those of the like module `to`. */
static void
merge_module(tree *t, uint32_t to, uint32_t from)
{
    uint32_t x = to;
    uint32_t y = from;

    while (x != TREE_NONE) {
        add_sums(&t->nodes[x].sums, &t->nodes[y].sums);
        x = tree_next(t, to, x);
        y = tree_next(t, from, y);
    }
}

/* ------------------------------------------------------------------- folding */

typedef struct member {
    const tree *tree;
    uint64_t number; /* the module's name, by value */
    uint32_t node;
} member;

/* Scratch space for the numbered children of one module. */
typedef struct members {
    member *list;
    size_t count;
    size_t capacity;
} members;

#define NUMBER_NAME_MOST UINT64_C(999999999999999999)

static bool
is_number_name(const tree_node *node, uint64_t *number)
{
    return number_can_parse(node->name, node->name_length, NUMBER_NAME_MOST, number)
           && (node->name[0] != '0' || node->name_length == 1);
}

static int
compare_members(const void *a, const void *b)
{
    const member *const x = a;
    const member *const y = b;
    const int order = compare_modules(x->tree, x->node, y->node);

    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

static bool
can_fill_list(const tree *t, uint32_t parent, members *m)
{
    m->count = 0;
    for (uint32_t c = t->nodes[parent].first_child; c != TREE_NONE; c = t->nodes[c].next) {
        member *const list = grow(m->list, &m->capacity, m->count, 1, sizeof *list);
        uint64_t number;

        if (list == NULL)
            return false;
        m->list = list;
        if (is_number_name(&t->nodes[c], &number))
            list[m->count++] = (member){ t, number, c };
    }
    return true;
}

/* Appends `number` to the ranges of the node, which are the last of all. */
static bool
can_add_number(tree *t, tree_node *node, uint64_t number)
{
    tree_range *ranges;

    if (node->range_count > 0 && t->ranges[t->range_count - 1].last + 1 == number) {
        t->ranges[t->range_count - 1].last = number;
        return true;
    }
    ranges = grow(t->ranges, &t->range_capacity, t->range_count, 1, sizeof *ranges);
    if (ranges == NULL)
        return false;
    t->ranges = ranges;
    if (node->range_count == 0)
        node->first_range = t->range_count;
    ranges[t->range_count++] = (tree_range){ number, number };
    node->range_count++;
    return true;
}

/* Folds members [first, end), all like the first. */
static bool
can_fold_group(tree *t, const members *m, size_t first, size_t end)
{
    tree_node *const node = &t->nodes[m->list[first].node];

    for (size_t i = first; i < end; i++) {
        if (!can_add_number(t, node, m->list[i].number))
            return false;
        if (i == first)
            continue;
        merge_module(t, m->list[first].node, m->list[i].node);
        t->nodes[m->list[i].node].repeat = 0; /* gone */
    }
    node->repeat = (uint32_t)(end - first);
    return true;
}

static void
unlink_folded(tree *t, uint32_t parent)
{
    uint32_t *link = &t->nodes[parent].first_child;

    while (*link != TREE_NONE) {
        if (t->nodes[*link].repeat == 0)
            *link = t->nodes[*link].next;
        else
            link = &t->nodes[*link].next;
    }
}

static bool
can_fold_children(tree *t, uint32_t parent, members *m)
{
    if (!can_fill_list(t, parent, m))
        return false;
    qsort(m->list, m->count, sizeof *m->list, compare_members);
    for (size_t first = 0, end; first < m->count; first = end) {
        end = first + 1;
        while (end < m->count
               && compare_modules(t, m->list[first].node, m->list[end].node) == 0)
            end++;
        if (end - first > 1 && !can_fold_group(t, m, first, end))
            return false;
    }
    unlink_folded(t, parent);
    return true;
}

bool
tree_fold(tree *t)
{
    members m = { 0 };
    bool is_done = true;

    /* Children have higher numbers than their parents: each is complete in time. */
    for (size_t i = t->count; i-- > 0 && is_done;) {
        tree_node *const node = &t->nodes[i];

        if (node->first_child != TREE_NONE)
            is_done = can_fold_children(t, (uint32_t)i, &m);
        if (node->parent != TREE_NONE)
            add_sums(&t->nodes[node->parent].sums, &node->sums);
    }
    free(m.list);
    return is_done;
}
