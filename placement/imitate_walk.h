/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imitate_walk.h - a map while it is made; only for the files imitate*.c.
 *
 * Modules and tensors that wait form a queue, a list linked through their
 * numbers. What is in it never overlaps: no entry lies below another.
 */
#ifndef BERTH_PLACEMENT_IMITATE_WALK_H
#define BERTH_PLACEMENT_IMITATE_WALK_H

#include "placement/imitate.h"

#define BERTHI_NO_PLACE UINT16_MAX

typedef struct walk_state {
    uint32_t next;     /* in the queue */
    uint32_t previous;
    uint32_t largest;  /* the round in which it was one of the largest */
    uint16_t device;   /* where it is placed, or BERTHI_NO_PLACE */
    bool is_waiting;   /* in the queue */
    bool is_searched;  /* in the list of a fallback search */
} walk_state;

typedef struct berthi_imitate_walk {
    const berthi_tree *tree;
    const berthi_imitate_options *options;
    berthi_imitation *result;
    walk_state *states;       /* one a node, and the queue's two ends in one more */
    double largest;           /* bytes of the largest atoms that wait */
    uint32_t largest_count;   /* how many of them are left */
    uint32_t largest_round;
    uint32_t *partners;       /* names tied to the module at hand: outside it */
    uint32_t *entries;        /* of each partner: what waits and holds it */
    uint32_t partner_count;
    uint32_t entry_count;     /* 5.13 and later: each entry once */
    uint32_t *stack;          /* of a fallback search; NULL without */
    double used[BERTHI_BUDGET_LIMIT];
    double buffers[BERTHI_BUDGET_LIMIT];
    uint32_t device;          /* the one that is filled */
    bool has_distinct_entries; /* ties as from 5.13 on */
} berthi_imitate_walk;

/* ----------------------------------------------------------- imitate_balance.c */

/* Changes `budgets` as the balanced modes do; the refusal, if upstream fails. */
berthi_refusal berthi_imitate_balance(const berthi_tree *tree,
                                      const berthi_imitate_options *options,
                                      berthi_budgets *budgets, uint32_t *out_refused);

/* ------------------------------------------------------------- imitate_queue.c */

static inline uint32_t
walk_end(const berthi_imitate_walk *walk)
{
    return walk->tree->count;
}

/* As it stands in the size table: nothing for a name that is not counted. */
static inline double
walk_bytes(const berthi_imitate_walk *walk, uint32_t number)
{
    const berthi_node *const node = &walk->tree->nodes[number];

    return node->is_counted ? node->bytes : 0;
}

void berthi_imitate_insert(berthi_imitate_walk *walk, uint32_t before, uint32_t entry);
void berthi_imitate_remove(berthi_imitate_walk *walk, uint32_t entry);
/* Puts what a module holds, buffers left out, before an entry. */
void berthi_imitate_expand(berthi_imitate_walk *walk, uint32_t module, uint32_t before);
/* The largest atoms among what waits; `has_tensors`: bare tensors count, too. */
void berthi_imitate_find_largest(berthi_imitate_walk *walk, bool has_tensors);
/* The module or tensor is no longer among the largest. */
void berthi_imitate_forget(berthi_imitate_walk *walk, uint32_t entry);
/*
 * Finds partners of the entry, and for each what holds it among what waits, or
 * in a search what is searched. False when there is none: upstream crashes.
 */
bool berthi_imitate_can_find_partners(berthi_imitate_walk *walk, uint32_t entry, bool is_search);
/* Bytes of the entry with those partners. */
double berthi_imitate_tied_bytes(const berthi_imitate_walk *walk, uint32_t entry);

/* ------------------------------------------------------------ imitate_search.c */

/*
 * The first module of at most `limit` bytes among what waits, taken out of the
 * queue; BERTHI_NO_NODE: none. False: upstream crashes.
 */
bool berthi_imitate_can_search(berthi_imitate_walk *walk, double limit, uint32_t *out);

/* ------------------------------------------------------------ imitate_assign.c */

/* Gives every entry its device; the refusal, if upstream fails. */
berthi_refusal berthi_imitate_assign(berthi_imitate_walk *walk);

/* --------------------------------------------------------------- imitate_map.c */

/* Shortens the map, unless upstream does not, and writes it into the result. */
berth_status berthi_imitate_write(berthi_imitate_walk *walk, berth_error *error);
/* What the queue has lost: the result's remarks. */
void berthi_imitate_look_back(berthi_imitate_walk *walk);

#endif
