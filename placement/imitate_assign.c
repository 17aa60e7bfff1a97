/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_assign.c - modules to devices, in the order of the model: a module goes to
 * the device that is being filled, with what is tied to it; or one of them is split; or
 * the next device is begun. A device left is never used again. The first GPU and the
 * host keep as much free as the largest module that waits would need.
 */
#include "placement/imitate_walk.h"

#include <math.h>

/* The module whose turn it is, and what its device can take. */
typedef struct turn {
    uint32_t entry;
    double bytes; /* alone */
    double tied;  /* with what is tied to it */
    double held;  /* kept free for the largest module to come */
    double limit; /* of the device; infinite for the disk */
} turn;

static const berthi_budget *
device_of(const berthi_imitate_walk *walk, uint32_t device)
{
    return &walk->result->budgets.items[device];
}

/* mps if there is one; else the first GPU, and cpu. */
static bool
is_reserving(const berthi_imitate_walk *walk)
{
    const berthi_budgets *const budgets = &walk->result->budgets;
    const berthi_budget_kind kind = device_of(walk, walk->device)->kind;

    for (uint32_t i = 0; i < budgets->count; i++)
        if (budgets->items[i].kind == BERTHI_BUDGET_MPS)
            return kind == BERTHI_BUDGET_MPS;
    return kind == BERTHI_BUDGET_CPU
           || (kind == BERTHI_BUDGET_GPU && walk->device == 0);
}

static bool
begin_turn(berthi_imitate_walk *walk, turn *t)
{
    const berthi_budget *const device = device_of(walk, walk->device);
    const uint32_t entry = walk->states[walk_end(walk)].next;

    berthi_imitate_remove(walk, entry);
    berthi_imitate_forget(walk, entry);
    if (walk->largest_count == 0)
        berthi_imitate_find_largest(walk, false);
    t->entry = entry;
    t->bytes = walk_bytes(walk, entry);
    t->held = is_reserving(walk) ? walk->largest : 0;
    t->limit = device->kind == BERTHI_BUDGET_DISK ? (double)INFINITY
                                                  : device->bytes - t->held;
    if (!berthi_imitate_can_find_partners(walk, entry, false))
        return false;
    t->tied = berthi_imitate_tied_bytes(walk, entry);
    return true;
}

static double
buffer_bytes(const berthi_tree *tree, uint32_t module)
{
    double bytes = 0;

    for (uint32_t i = module; i < tree->nodes[module].end; i++)
        if (tree->nodes[i].kind == BERTHI_NODE_BUFFER)
            bytes += tree->nodes[i].bytes;
    return bytes;
}

static void
place(berthi_imitate_walk *walk, const turn *t)
{
    walk->used[walk->device] += t->tied;
    walk->states[t->entry].device = (uint16_t)walk->device;
    for (uint32_t i = 0; i < walk->entry_count; i++) {
        const uint32_t entry = walk->entries[i];

        if (walk->states[entry].is_waiting)
            berthi_imitate_remove(walk, entry);
        walk->states[entry].device = (uint16_t)walk->device;
    }
    /* Upstream counts neither what is tied to it nor buffers that stand alone. */
    if (walk->tree->nodes[t->entry].kind == BERTHI_NODE_MODULE)
        walk->buffers[walk->device] += buffer_bytes(walk->tree, t->entry);
}

static uint32_t
first_waiting(const berthi_imitate_walk *walk)
{
    return walk->states[walk_end(walk)].next;
}

/* Splits the first module that is tied to this one and can be; its turn comes again. */
static bool
can_split_partner(berthi_imitate_walk *walk, const turn *t)
{
    for (uint32_t i = 0; i < walk->entry_count; i++) {
        const uint32_t entry = walk->entries[i];

        if (walk->tree->nodes[entry].is_atom)
            continue;
        berthi_imitate_expand(walk, entry, entry);
        berthi_imitate_remove(walk, entry);
        berthi_imitate_insert(walk, first_waiting(walk), t->entry);
        berthi_imitate_find_largest(walk, false);
        return true;
    }
    return false;
}

static bool
can_split(berthi_imitate_walk *walk, const turn *t)
{
    if (walk->tree->nodes[t->entry].is_atom)
        return false;
    berthi_imitate_expand(walk, t->entry, first_waiting(walk));
    berthi_imitate_find_largest(walk, false);
    return true;
}

/* ------------------------------------------------------- _no_placement_params */

static bool
is_escapable(const berthi_imitate_walk *walk, const turn *t)
{
    const berthi_node *const nodes = walk->tree->nodes;
    const uint32_t next = walk->device + 1;
    bool is_escaping = false;

    if (nodes[t->entry].class_number == BERTHI_NO_CLASS
        || device_of(walk, next)->kind > BERTHI_BUDGET_MPS
        || t->tied <= device_of(walk, next)->bytes)
        return false;
    for (uint32_t i = t->entry; i < nodes[t->entry].end; i++)
        is_escaping = is_escaping
                      || (nodes[i].is_escaping && nodes[i].kind == BERTHI_NODE_PARAMETER);
    return is_escaping;
}

/* All parameters below the block, then all buffers, one by one, but those listed. */
static bool
can_escape(berthi_imitate_walk *walk, const turn *t)
{
    const berthi_node *const nodes = walk->tree->nodes;
    const uint32_t behind = first_waiting(walk);

    if (!walk->tree->is_escaping || walk->options->era == BERTHI_ERA_HF4
        || !is_escapable(walk, t))
        return false;
    for (int kind = BERTHI_NODE_PARAMETER; kind <= BERTHI_NODE_BUFFER; kind++)
        for (uint32_t i = t->entry; i < nodes[t->entry].end; i++)
            if (nodes[i].kind == kind && !nodes[i].is_escaping)
                berthi_imitate_insert(walk, behind, i);
    return true;
}

/* ---------------------------------------------------------------- next device */

/*
 * Puts a module that fits before the one whose turn it is. True when the queue
 * has changed; *is_failed: upstream crashes.
 */
static bool
can_fall_back(berthi_imitate_walk *walk, const turn *t, bool *is_failed)
{
    const double limit = device_of(walk, walk->device)->bytes - fmax(walk->largest, t->tied);
    uint32_t found = BERTHI_NO_NODE;

    if (!walk->options->has_fallback || walk->used[walk->device] != 0 || limit < 0)
        return false;
    *is_failed = !berthi_imitate_can_search(walk, limit, &found);
    if (found == BERTHI_NO_NODE)
        return false;
    berthi_imitate_insert(walk, first_waiting(walk), t->entry);
    berthi_imitate_insert(walk, first_waiting(walk), found);
    return true;
}

static void
begin_next_device(berthi_imitate_walk *walk, const turn *t)
{
    if (walk->used[walk->device] == 0)
        walk->result->minimum[walk->device] = t->tied + t->held;
    walk->used[walk->device] += t->held;
    walk->device++;
    berthi_imitate_insert(walk, first_waiting(walk), t->entry);
}

/* What does not fit as it is; false: upstream crashes. */
static bool
can_continue(berthi_imitate_walk *walk, const turn *t)
{
    const double with = walk->used[walk->device] + t->bytes;
    bool is_failed = false;

    if (walk->partner_count > 0 && with <= t->limit && can_split_partner(walk, t))
        return true;
    if ((walk->has_distinct_entries || with >= t->limit) && can_split(walk, t))
        return true;
    if (can_escape(walk, t) || can_fall_back(walk, t, &is_failed))
        return true;
    if (!is_failed)
        begin_next_device(walk, t);
    return !is_failed;
}

static void
fill_queue(berthi_imitate_walk *walk)
{
    const berthi_node *const nodes = walk->tree->nodes;
    const uint32_t end = walk_end(walk);

    walk->states[end].next = end;
    walk->states[end].previous = end;
    berthi_imitate_expand(walk, 0, end);
    for (uint32_t i = 1; i < nodes[0].end; i = nodes[i].end)
        if (nodes[i].kind == BERTHI_NODE_BUFFER)
            berthi_imitate_insert(walk, end, i);
    berthi_imitate_find_largest(walk, true);
}

berthi_refusal
berthi_imitate_assign(berthi_imitate_walk *walk)
{
    turn t;

    fill_queue(walk);
    while (first_waiting(walk) != walk_end(walk)) {
        if (!begin_turn(walk, &t))
            return BERTHI_REFUSAL_TIE;
        if (walk->used[walk->device] + t.tied <= t.limit)
            place(walk, &t);
        else if (!can_continue(walk, &t))
            return BERTHI_REFUSAL_TIE;
    }
    return BERTHI_REFUSAL_NONE;
}
