/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.c - merging of ordered stretches.
 *
 * Which neighbours are merged first decides the cost. Powersort (Munro and
 * Wild, 2018; CPython's list.sort): the border between two stretches gets the
 * depth at which a perfectly balanced tree over all items would cut there, and
 * deeper borders are merged first. Depths on the stack only rise, so it holds
 * log2(n) + 2 stretches at most.
 */
#include "loader/sort.h"

#include <string.h>

#define STACK_CAPACITY 36u /* log2(2^32) + 2, and two to spare */

typedef struct stretch {
    uint64_t begin;
    uint64_t end;
    unsigned depth; /* of the border behind it */
} stretch;

typedef struct sorter {
    berth_context *context;
    uint32_t *items;
    uint32_t *scratch; /* `count` items, once something must be merged */
    uint64_t count;
    berthi_sort_compare compare;
    void *user;
    stretch stack[STACK_CAPACITY];
    unsigned height;
} sorter;

void
berthi_sort_number(uint32_t *items, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        items[i] = (uint32_t)i;
}

static void
reverse(uint32_t *items, uint64_t begin, uint64_t end)
{
    for (; begin + 1 < end; begin++) {
        const uint32_t item = items[begin];

        items[begin] = items[--end];
        items[end] = item;
    }
}

/*
 * End of the ordered stretch from `begin` on. A falling one is turned round;
 * only a strictly falling one, so that equal items keep their order.
 */
static uint64_t
find_stretch(const sorter *s, uint64_t begin)
{
    uint64_t end = begin + 1;

    if (end == s->count)
        return end;
    if (s->compare(s->user, s->items[begin], s->items[end]) <= 0) {
        do
            end++;
        while (end < s->count
               && s->compare(s->user, s->items[end - 1], s->items[end]) <= 0);
        return end;
    }
    do
        end++;
    while (end < s->count && s->compare(s->user, s->items[end - 1], s->items[end]) > 0);
    reverse(s->items, begin, end);
    return end;
}

/* The first bit, counted from 1, in which the middles of both differ as n-ths. */
static unsigned
border_depth(const sorter *s, const stretch *left, const stretch *right)
{
    uint64_t a = left->begin + left->end; /* twice the middle, below 2n */
    uint64_t b = right->begin + right->end;
    unsigned depth = 1;

    while (a >= s->count || b < s->count) {
        if (a >= s->count) {
            a -= s->count;
            b -= s->count;
        }
        a *= 2;
        b *= 2;
        depth++;
    }
    return depth;
}

/* The two topmost stretches become one. */
static void
merge_topmost(sorter *s)
{
    const stretch right = s->stack[--s->height];
    stretch *const merged = &s->stack[s->height - 1];
    const uint64_t left_count = merged->end - merged->begin;
    const uint32_t *left = s->scratch;
    const uint32_t *const left_end = left + left_count;
    const uint32_t *next = s->items + right.begin;
    const uint32_t *const next_end = s->items + right.end;
    uint32_t *out = s->items + merged->begin;

    memcpy(s->scratch, out, (size_t)left_count * sizeof *out);
    while (left < left_end && next < next_end)
        *out++ = s->compare(s->user, *left, *next) <= 0 ? *left++ : *next++;
    /* What is left of the right side is in its place already. */
    memcpy(out, left, (size_t)(left_end - left) * sizeof *out);
    merged->end = right.end;
}

static bool
has_scratch(sorter *s)
{
    if (s->scratch == NULL)
        s->scratch = berthi_memory_array(s->context, BERTHI_PURPOSE_SCRATCH, s->count,
                                         sizeof *s->scratch);
    return s->scratch != NULL;
}

/* Puts a stretch on the stack, after merging what must be merged before. */
static bool
can_push(sorter *s, stretch new)
{
    if (s->height > 0) {
        const unsigned depth = border_depth(s, &s->stack[s->height - 1], &new);

        if (!has_scratch(s))
            return false;
        while (s->height > 1 && s->stack[s->height - 2].depth > depth)
            merge_topmost(s);
        s->stack[s->height - 1].depth = depth;
    }
    s->stack[s->height++] = new;
    return true;
}

bool
berthi_sort_can_arrange(berth_context *context, uint32_t *items, uint64_t count,
                        berthi_sort_compare compare, void *user)
{
    sorter s = { .context = context, .items = items, .count = count, .compare = compare,
                 .user = user };
    bool is_done = true;

    for (uint64_t begin = 0; begin < count && is_done;) {
        const uint64_t end = find_stretch(&s, begin);

        is_done = can_push(&s, (stretch){ .begin = begin, .end = end });
        begin = end;
    }
    while (is_done && s.height > 1)
        merge_topmost(&s);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, s.scratch,
                       count * sizeof *s.scratch);
    return is_done;
}

void
berthi_sort_apply(void *elements, size_t bytes, uint32_t *order, uint64_t count)
{
    char *const base = elements;
    char held[BERTHI_SORT_ELEMENT];

    for (uint64_t first = 0; first < count; first++) {
        uint64_t hole = first;

        if (order[first] == first)
            continue;
        /* One cycle: each hole is filled by the element that belongs there. */
        memcpy(held, base + first * bytes, bytes);
        while (order[hole] != first) {
            const uint64_t from = order[hole];

            memcpy(base + hole * bytes, base + from * bytes, bytes);
            order[hole] = (uint32_t)hole;
            hole = from;
        }
        memcpy(base + hole * bytes, held, bytes);
        order[hole] = (uint32_t)hole;
    }
}
