/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_queue.c - what waits for a device: the queue, the largest atoms in it,
 * and what is tied to the module at hand. An atom is what cannot be split: a tensor, a
 * module without modules in it, or one of a class that is never split.
 */
#include "placement/imitate_walk.h"

/* ----------------------------------------------------------------------- queue */

void
berthi_imitate_insert(berthi_imitate_walk *walk, uint32_t before, uint32_t entry)
{
    walk_state *const states = walk->states;
    const uint32_t previous = states[before].previous;

    states[entry].next = before;
    states[entry].previous = previous;
    states[entry].is_waiting = true;
    states[previous].next = entry;
    states[before].previous = entry;
}

void
berthi_imitate_remove(berthi_imitate_walk *walk, uint32_t entry)
{
    walk_state *const states = walk->states;

    states[states[entry].previous].next = states[entry].next;
    states[states[entry].next].previous = states[entry].previous;
    states[entry].is_waiting = false;
}

void
berthi_imitate_expand(berthi_imitate_walk *walk, uint32_t module, uint32_t before)
{
    const berthi_node *const nodes = walk->tree->nodes;

    for (uint32_t i = module + 1; i < nodes[module].end; i = nodes[i].end)
        if (nodes[i].kind != BERTHI_NODE_BUFFER)
            berthi_imitate_insert(walk, before, i);
}

/* --------------------------------------------------------------------- largest */

static void
consider(berthi_imitate_walk *walk, uint32_t atom)
{
    const double bytes = walk_bytes(walk, atom);

    if (bytes > walk->largest) {
        walk->largest = bytes;
        walk->largest_round++; /* those found before are forgotten */
        walk->largest_count = 0;
    }
    if (bytes == walk->largest) {
        walk->states[atom].largest = walk->largest_round;
        walk->largest_count++;
    }
}

/* The atoms below an entry; tensors beside modules are not looked at. */
static void
consider_below(berthi_imitate_walk *walk, uint32_t entry)
{
    const berthi_node *const nodes = walk->tree->nodes;
    uint32_t at = entry;

    while (at < nodes[entry].end)
        if (!nodes[at].is_atom) {
            at++;
        } else {
            if (at == entry || nodes[at].kind == BERTHI_NODE_MODULE)
                consider(walk, at);
            at = nodes[at].end;
        }
}

void
berthi_imitate_find_largest(berthi_imitate_walk *walk, bool has_tensors)
{
    const uint32_t end = walk_end(walk);

    walk->largest = 0;
    walk->largest_count = 0;
    walk->largest_round++;
    for (uint32_t at = walk->states[end].next; at != end; at = walk->states[at].next)
        if (has_tensors || walk->tree->nodes[at].kind == BERTHI_NODE_MODULE)
            consider_below(walk, at);
}

void
berthi_imitate_forget(berthi_imitate_walk *walk, uint32_t entry)
{
    for (uint32_t i = entry; i < walk->tree->nodes[entry].end; i++)
        if (walk->states[i].largest == walk->largest_round) {
            walk->states[i].largest = 0;
            walk->largest_count--;
        }
}

/* ------------------------------------------------------------------------ ties */

/* The module that waits, or is searched, and holds this tensor. */
static uint32_t
find_entry(const berthi_imitate_walk *walk, uint32_t tensor, bool is_search)
{
    uint32_t at = walk->tree->nodes[tensor].parent;

    while (at != BERTHI_NO_NODE
           && !(is_search ? walk->states[at].is_searched : walk->states[at].is_waiting))
        at = walk->tree->nodes[at].parent;
    return at;
}

/* A group with members inside and outside of the entry; those outside are added. */
static void
add_partners(berthi_imitate_walk *walk, uint32_t entry, uint32_t group)
{
    const berthi_tree *const tree = walk->tree;
    const uint32_t first = walk->partner_count;

    for (uint32_t i = tree->groups[group]; i < tree->groups[group + 1]; i++)
        if (!berthi_tree_is_inside(&tree->nodes[entry], &tree->nodes[tree->members[i]]))
            walk->partners[walk->partner_count++] = tree->members[i];
    if (walk->partner_count - first == tree->groups[group + 1] - tree->groups[group])
        walk->partner_count = first; /* nothing of it is inside */
}

static bool
has_entry(const berthi_imitate_walk *walk, uint32_t entry)
{
    for (uint32_t i = 0; i < walk->entry_count; i++)
        if (walk->entries[i] == entry)
            return true;
    return false;
}

bool
berthi_imitate_can_find_partners(berthi_imitate_walk *walk, uint32_t entry, bool is_search)
{
    walk->partner_count = 0;
    walk->entry_count = 0;
    for (uint32_t i = 0; i < walk->tree->group_count; i++)
        add_partners(walk, entry, i);
    for (uint32_t i = 0; i < walk->partner_count; i++) {
        const uint32_t found = find_entry(walk, walk->partners[i], is_search);

        if (found == BERTHI_NO_NODE)
            return false;
        if (!walk->has_distinct_entries || !has_entry(walk, found))
            walk->entries[walk->entry_count++] = found;
    }
    return true;
}

double
berthi_imitate_tied_bytes(const berthi_imitate_walk *walk, uint32_t entry)
{
    double bytes = walk_bytes(walk, entry);

    for (uint32_t i = 0; i < walk->entry_count; i++) {
        bytes += walk_bytes(walk, walk->entries[i]);
        if (!walk->has_distinct_entries)
            bytes -= walk_bytes(walk, walk->partners[i]);
    }
    return bytes;
}
