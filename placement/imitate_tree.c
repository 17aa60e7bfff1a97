/* SPDX-License-Identifier: Apache-2.0 */
/* imitate_tree.c - filling and summing the planners' tree; see imitate_tree.h. */
#include "placement/imitate_tree.h"

#include <string.h>

/* The nodes get a block of their own; ties are few. */
#define ARENA_BLOCK 512u

void
berthi_tree_init(berthi_tree *tree, berth_context *context, uint64_t capacity)
{
    memset(tree, 0, sizeof *tree);
    berthi_arena_init(&tree->arena, context, BERTHI_PURPOSE_OBJECT, ARENA_BLOCK);
    if (capacity < BERTHI_NO_NODE)
        tree->nodes = berthi_arena_alloc(&tree->arena, capacity * sizeof *tree->nodes, 8);
    if (tree->nodes == NULL)
        tree->is_failed = true;
    else
        tree->capacity = (uint32_t)capacity;
}

uint32_t
berthi_tree_add(berthi_tree *tree, uint32_t parent, berthi_node_kind kind,
                const berthi_node_words *words)
{
    const uint32_t number = tree->count;
    berthi_node *node;

    if (tree->is_failed || number == tree->capacity || words->name_length > UINT32_MAX) {
        tree->is_failed = true;
        return BERTHI_NO_NODE;
    }
    node = &tree->nodes[number];
    *node = (berthi_node){
        .name = words->name,
        .name_length = (uint32_t)words->name_length,
        .parent = parent,
        .end = number + 1,
        .tie = number,
        .bytes = kind == BERTHI_NODE_MODULE ? 0 : words->bytes,
        .class_number = kind == BERTHI_NODE_MODULE ? words->class_number : BERTHI_NO_CLASS,
        .kind = (uint8_t)kind,
        .is_counted = kind != BERTHI_NODE_MODULE && !words->is_left_out,
        .is_atom = true,
        .is_escaping = words->is_escaping,
    };
    if (kind == BERTHI_NODE_MODULE && parent != BERTHI_NO_NODE
        && tree->nodes[parent].class_number == BERTHI_NO_CLASS)
        tree->nodes[parent].is_atom = false;
    tree->has_classes = tree->has_classes || node->class_number != BERTHI_NO_CLASS;
    tree->count++;
    return number;
}

void
berthi_tree_tie(berthi_tree *tree, uint32_t a, uint32_t b)
{
    uint32_t at = a;
    uint32_t next;

    if (tree->is_failed || a == b)
        return;
    do {
        at = tree->nodes[at].tie;
        if (at == b)
            return; /* one ring already */
    } while (at != a);
    next = tree->nodes[a].tie;
    tree->nodes[a].tie = tree->nodes[b].tie;
    tree->nodes[b].tie = next;
}

/* ------------------------------------------------------------------------ sums */

/* In the order of counting: all parameters, then all buffers. */
static bool
is_counted_before(const berthi_tree *tree, uint32_t a, uint32_t b)
{
    const berthi_node *const nodes = tree->nodes;

    return nodes[a].is_counted
           && (nodes[a].kind != nodes[b].kind ? nodes[a].kind < nodes[b].kind : a < b);
}

/* The first one of its memory. */
static bool
is_first_of_ring(const berthi_tree *tree, uint32_t number)
{
    const berthi_node *const nodes = tree->nodes;

    for (uint32_t at = nodes[number].tie; at != number; at = nodes[at].tie)
        if (is_counted_before(tree, at, number))
            return false;
    return true;
}

/* Of several names that count, the first one stays. */
static void
count_once(berthi_tree *tree)
{
    for (uint32_t i = tree->count; i-- > 0;) {
        berthi_node *const node = &tree->nodes[i];

        if (node->tie != i && node->is_counted)
            node->is_counted = is_first_of_ring(tree, i);
    }
}

/* From the last node to the first, so that a module is complete when it is added. */
static void
add_up(berthi_tree *tree)
{
    for (uint32_t i = tree->count; i-- > 1;) {
        const berthi_node *const node = &tree->nodes[i];
        berthi_node *const parent = &tree->nodes[node->parent];

        if (node->end > parent->end)
            parent->end = node->end;
        if (node->is_counted) {
            parent->bytes += node->bytes;
            parent->is_counted = true;
        }
    }
}

/* ------------------------------------------------------------------------ ties */

static int
compare_names(const berthi_node *a, const berthi_node *b)
{
    const uint32_t shorter = a->name_length < b->name_length ? a->name_length
                                                             : b->name_length;
    const int order = memcmp(a->name, b->name, shorter);

    return order != 0 ? order : (a->name_length > b->name_length)
                                    - (a->name_length < b->name_length);
}

/* Parameters alone: upstream looks for no tied buffers. */
static uint32_t
count_ring(const berthi_tree *tree, uint32_t number)
{
    uint32_t count = 0;
    uint32_t at = number;

    do {
        count += tree->nodes[at].kind == BERTHI_NODE_PARAMETER;
        at = tree->nodes[at].tie;
    } while (at != number);
    return count;
}

/* Writes the ring's members, sorted, behind those of the groups before. */
static void
add_group(berthi_tree *tree, uint32_t number)
{
    const uint32_t first = tree->member_count;
    uint32_t at = number;

    do {
        uint32_t place = tree->member_count;

        if (tree->nodes[at].kind == BERTHI_NODE_PARAMETER) {
            for (; place > first
                   && compare_names(&tree->nodes[tree->members[place - 1]],
                                    &tree->nodes[at]) > 0;
                 place--)
                tree->members[place] = tree->members[place - 1];
            tree->members[place] = at;
            tree->member_count++;
        }
        at = tree->nodes[at].tie;
    } while (at != number);
    tree->groups[tree->group_count++] = first;
    tree->groups[tree->group_count] = tree->member_count;
}

/* A group appears with its member that counts. */
static bool
has_group(const berthi_tree *tree, uint32_t number)
{
    const berthi_node *const node = &tree->nodes[number];

    return node->tie != number && node->is_counted && node->kind == BERTHI_NODE_PARAMETER
           && count_ring(tree, number) > 1;
}

static bool
can_group(berthi_tree *tree)
{
    uint64_t members = 0;
    uint64_t groups = 0;

    for (uint32_t i = 0; i < tree->count; i++)
        if (has_group(tree, i)) {
            members += count_ring(tree, i);
            groups++;
        }
    if (groups == 0)
        return true;
    tree->members = berthi_arena_alloc(&tree->arena, members * sizeof *tree->members, 4);
    tree->groups = berthi_arena_alloc(&tree->arena, (groups + 1) * sizeof *tree->groups, 4);
    if (tree->members == NULL || tree->groups == NULL)
        return false;
    for (uint32_t i = 0; i < tree->count; i++)
        if (has_group(tree, i))
            add_group(tree, i);
    return true;
}

berth_status
berthi_tree_finish(berthi_tree *tree, berth_error *error)
{
    if (!tree->is_failed) {
        count_once(tree);
        add_up(tree);
        tree->is_failed = !can_group(tree);
    }
    return tree->is_failed ? berthi_fail_memory(error, "laying out the modules") : BERTH_OK;
}

void
berthi_tree_fini(berthi_tree *tree)
{
    berthi_arena_fini(&tree->arena);
    memset(tree, 0, sizeof *tree);
}

bool
berthi_tree_is_inside(const berthi_node *name, const berthi_node *key)
{
    const uint32_t length = name->name_length;

    for (uint32_t i = 0; i + length <= key->name_length; i++) {
        const uint32_t behind = i + length;

        if ((behind == key->name_length || key->name[behind] == '.')
            && memcmp(key->name + i, name->name, length) == 0)
            return true;
    }
    return false;
}

bool
berthi_tree_is_exempt(const berthi_tree *tree, const char *path, uint64_t length)
{
    for (uint32_t i = 0; i < tree->exempt_count; i++)
        if (strlen(tree->exempt[i]) == length
            && memcmp(tree->exempt[i], path, (size_t)length) == 0)
            return true;
    return false;
}
