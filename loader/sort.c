/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.c - merging of ordered stretches.
 *
 * Which neighbours are merged first decides the cost. Powersort (Munro and
 * Wild, 2018; CPython's list.sort): the border between two stretches gets the
 * depth at which a perfectly balanced tree over all items would cut there, and
 * deeper borders are merged first. Depths on the stack only rise, so it holds
 * log2(n) + 2 stretches at most.
 *
 * Names of tensors begin alike. Each item knows how many bytes it shares with
 * the one before it in its stretch. While two stretches are merged, the next
 * item of each knows how many it shares with the last that was taken: the one
 * that shares more is the smaller, and the other still shares with it what it
 * did before. Only those that share the same have to be compared (Ng and
 * Kakehi, 2008).
 */
#include "loader/sort.h"

#include <string.h>

#include "kernels/base.h"

/* an item and what it shares */
#define SCRATCH_BYTES (sizeof(uint32_t) + sizeof(uint8_t))
#define SHARED_LIMIT UINT8_MAX /* more is not noted: the comparison finds it again */
#define NEAR_LOOKS 4u /* comparisons before a border is searched for by halves */
#define STACK_CAPACITY 36u /* log2(2^32) + 2, and two to spare */

typedef struct stretch {
    uint64_t begin;
    uint64_t end;
    unsigned depth; /* of the border behind it */
} stretch;

typedef struct sorter {
    berth_context *context;
    uint32_t *items;
    uint8_t *shared;   /* one an item; that of the first of a stretch means nothing */
    uint32_t *scratch; /* the same, `count` each, once something must be merged */
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

static uint8_t
narrow(uint64_t shared)
{
    return (uint8_t)berthi_min_u64(shared, SHARED_LIMIT);
}

/* Compares an item with the one before it and notes what they share. */
static int
compare_next(const sorter *s, uint64_t at)
{
    uint64_t shared = 0;
    const int order = s->compare(s->user, s->items[at - 1], s->items[at], &shared);

    s->shared[at] = narrow(shared);
    return order;
}

static void
reverse(const sorter *s, uint64_t begin, uint64_t end)
{
    for (uint64_t a = begin, b = end - 1; a < b; a++, b--) {
        const uint32_t item = s->items[a];

        s->items[a] = s->items[b];
        s->items[b] = item;
    }
    for (uint64_t a = begin + 1, b = end - 1; a < b; a++, b--) {
        const uint8_t shared = s->shared[a];

        s->shared[a] = s->shared[b];
        s->shared[b] = shared;
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
    if (compare_next(s, end) <= 0) {
        do
            end++;
        while (end < s->count && compare_next(s, end) <= 0);
        return end;
    }
    do
        end++;
    while (end < s->count && compare_next(s, end) > 0);
    reverse(s, begin, end);
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

/*
 * The first place from `low` to `high` whose item stands behind the item at `next`,
 * which then knows what it shares with the item before that place.
 */
static uint64_t
search_overlap(const sorter *s, uint64_t low, uint64_t high, uint64_t next)
{
    s->shared[next] = 0;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        uint64_t both = 0;

        if (s->compare(s->user, s->items[middle], s->items[next], &both) > 0) {
            high = middle;
        } else {
            low = middle + 1;
            s->shared[next] = narrow(both);
        }
    }
    return low;
}

/*
 * The same of all of `left`: mostly a few steps from its end. An item behind the one at
 * `next` is in front of it; of those before, what shares more with it is, too, and what
 * shares less is not.
 */
static uint64_t
find_overlap(const sorter *s, const stretch *left, uint64_t next)
{
    uint64_t place = left->end;
    uint8_t shared = 0; /* by the items at `place` and at `next` */

    for (unsigned looks = 0; looks < NEAR_LOOKS; looks++) {
        uint64_t both = shared;

        if (s->compare(s->user, s->items[place - 1], s->items[next], &both) <= 0) {
            s->shared[next] = narrow(both);
            return place;
        }
        shared = narrow(both);
        do
            place--;
        while (place > left->begin && s->shared[place] > shared);
        if (place == left->begin || s->shared[place] < shared) {
            s->shared[next] = place == left->begin ? 0 : s->shared[place];
            return place;
        }
    }
    return search_overlap(s, left->begin, place, next);
}

/*
 * Merges `count` items of the left side, which were moved to the scratch, with those
 * from `next` to `end`; the result begins at `out`. What is left of the right side is
 * in its place already.
 */
static void
merge(const sorter *s, uint64_t out, uint64_t count, uint64_t next, uint64_t end)
{
    const uint32_t *const left_items = s->scratch;
    const uint8_t *const left_shared = (const uint8_t *)(s->scratch + s->count);
    uint32_t *const items = s->items;
    uint8_t *const shared = s->shared;
    uint8_t of_left = left_shared[0];
    uint8_t of_next = shared[next];
    uint64_t left = 0;

    for (;; out++) {
        bool is_left = of_left > of_next;
        uint8_t taken = is_left ? of_left : of_next;

        if (of_left == of_next) {
            uint64_t both = taken;

            is_left = s->compare(s->user, left_items[left], items[next], &both) <= 0;
            if (is_left)
                of_next = narrow(both);
            else
                of_left = narrow(both);
        }
        shared[out] = taken;
        if (is_left) {
            items[out] = left_items[left++];
            if (left == count)
                break;
            of_left = left_shared[left];
        } else {
            items[out] = items[next++];
            if (next == end)
                break;
            of_next = shared[next];
        }
    }
    if (left == count) {
        shared[next] = of_next;
        return;
    }
    memcpy(items + out + 1, left_items + left, (size_t)(count - left) * sizeof *items);
    memcpy(shared + out + 1, left_shared + left, (size_t)(count - left));
    shared[out + 1] = of_left;
}

/* The two topmost stretches become one; what lies before their overlap is left alone. */
static void
merge_topmost(sorter *s)
{
    const stretch right = s->stack[--s->height];
    stretch *const merged = &s->stack[s->height - 1];
    const uint64_t begin = find_overlap(s, merged, right.begin);
    const uint64_t count = merged->end - begin;

    if (count > 0) {
        if (begin == merged->begin)
            s->shared[begin] = 0; /* nothing stands before it */
        memcpy(s->scratch, s->items + begin, (size_t)count * sizeof *s->items);
        memcpy(s->scratch + s->count, s->shared + begin, (size_t)count);
        merge(s, begin, count, right.begin, right.end);
    }
    merged->end = right.end;
}

static bool
has_scratch(sorter *s)
{
    if (s->scratch == NULL)
        s->scratch = berthi_memory_array(s->context, BERTHI_PURPOSE_SCRATCH, s->count,
                                         SCRATCH_BYTES);
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
berthi_sort_arrange(berth_context *context, uint32_t *items, uint64_t count,
                    berthi_sort_compare compare, void *user)
{
    sorter s = { .context = context, .items = items, .count = count, .compare = compare,
                 .user = user };
    bool is_done;

    s.shared = berthi_memory_alloc(context, BERTHI_PURPOSE_SCRATCH, count);
    is_done = s.shared != NULL;
    for (uint64_t begin = 0; begin < count && is_done;) {
        const uint64_t end = find_stretch(&s, begin);

        is_done = can_push(&s, (stretch){ .begin = begin, .end = end });
        begin = end;
    }
    while (is_done && s.height > 1)
        merge_topmost(&s);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, s.scratch, count * SCRATCH_BYTES);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, s.shared, count);
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
