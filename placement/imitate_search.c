/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_search.c - accelerate's fallback_allocation: the first module that
 * fits where the one whose turn it is does not. The search goes depth first: what a
 * module holds is looked at right after a module that does not fit.
 */
#include "placement/imitate_walk.h"

/* What is still to be searched; the next one is the last. */
typedef struct search {
    berthi_imitate_walk *walk;
    uint32_t depth;
} search;

static void
push(search *s, uint32_t entry)
{
    s->walk->stack[s->depth++] = entry;
    s->walk->states[entry].is_searched = true;
}

static uint32_t
pop(search *s)
{
    const uint32_t entry = s->walk->stack[--s->depth];

    s->walk->states[entry].is_searched = false;
    return entry;
}

/* Everything that waits, the first entry on top. */
static void
push_waiting(search *s)
{
    const walk_state *const states = s->walk->states;
    const uint32_t end = walk_end(s->walk);

    for (uint32_t at = states[end].previous; at != end; at = states[at].previous)
        push(s, at);
}

/* What a module holds, buffers left out, the first one on top. */
static void
push_below(search *s, uint32_t module)
{
    const berthi_node *const nodes = s->walk->tree->nodes;
    const uint32_t first = s->depth;

    for (uint32_t i = module + 1; i < nodes[module].end; i = nodes[i].end)
        if (nodes[i].kind != BERTHI_NODE_BUFFER)
            push(s, i);
    for (uint32_t i = first, j = s->depth; i + 1 < j; i++) {
        const uint32_t swapped = s->walk->stack[i];

        s->walk->stack[i] = s->walk->stack[--j];
        s->walk->stack[j] = swapped;
    }
}

/* Takes it out of the queue; modules that hold it are replaced by what they hold. */
static void
take_out(berthi_imitate_walk *walk, uint32_t found)
{
    const berthi_node *const nodes = walk->tree->nodes;
    uint32_t at = found;

    while (!walk->states[at].is_waiting)
        at = nodes[at].parent;
    while (at != found) {
        uint32_t below = at + 1;

        berthi_imitate_expand(walk, at, at);
        berthi_imitate_remove(walk, at);
        while (nodes[below].end <= found)
            below = nodes[below].end;
        at = below;
    }
    berthi_imitate_remove(walk, found);
}

bool
berthi_imitate_can_search(berthi_imitate_walk *walk, double limit, uint32_t *out)
{
    search s = { walk, 0 };
    bool is_found = false;
    uint32_t entry = BERTHI_NO_NODE;

    *out = BERTHI_NO_NODE;
    push_waiting(&s);
    while (s.depth > 0 && !is_found) {
        entry = pop(&s);
        if (!berthi_imitate_can_find_partners(walk, entry, true))
            return false;
        is_found = berthi_imitate_tied_bytes(walk, entry) <= limit;
        if (!is_found && !walk->tree->nodes[entry].is_atom)
            push_below(&s, entry);
    }
    while (s.depth > 0)
        pop(&s);
    if (is_found) {
        take_out(walk, entry);
        *out = entry;
    }
    return true;
}
