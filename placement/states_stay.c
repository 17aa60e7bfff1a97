/* SPDX-License-Identifier: Apache-2.0 */
/* states_stay.c - as many bytes of states as there is room for; see states_stay.h. */
#include "placement/states_stay.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base.h"

#define STEPS 200000u /* of a search: about a millisecond */

/* States of one size. */
typedef struct size_class {
    uint64_t bytes;
    uint64_t rest;  /* of all smaller classes together */
    uint32_t count;
    uint32_t taken; /* by the search, so far */
    uint32_t best;
} size_class;

typedef struct search {
    size_class *classes; /* the largest size first */
    uint32_t count;
    uint64_t room;
    uint64_t left;       /* of it */
    uint64_t best;       /* bytes that stay */
} search;

static int
compare_down(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* `sorted` is the sizes, the largest first. */
static void
list_classes(search *s, const uint64_t *sorted, uint32_t count)
{
    uint64_t rest = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || sorted[i] != sorted[i - 1])
            s->classes[s->count++] = (size_class){ .bytes = sorted[i] };
        s->classes[s->count - 1].count++;
    }
    for (uint32_t k = s->count; k-- > 0;) {
        s->classes[k].rest = rest;
        rest = berthi_add_capped(rest, s->classes[k].bytes * s->classes[k].count);
    }
}

/* As many as fit of each class from `k` on; kept where that is better than before. */
static void
fill(search *s, uint32_t k)
{
    for (; k < s->count; k++) {
        size_class *const c = &s->classes[k];

        c->taken = c->bytes == 0 ? c->count
                                 : (uint32_t)berthi_min_u64(c->count, s->left / c->bytes);
        s->left -= c->taken * c->bytes;
    }
    if (s->room - s->left <= s->best)
        return;
    s->best = s->room - s->left;
    for (k = 0; k < s->count; k++)
        s->classes[k].best = s->classes[k].taken;
}

/*
 * One less of the smallest class for which the smaller ones could make more of it; the
 * class behind it, or 0: there is none.
 */
static uint32_t
step_back(search *s)
{
    for (uint32_t k = s->count; k-- > 0;) {
        size_class *const c = &s->classes[k];
        uint64_t most;

        if (c->taken == 0)
            continue;
        c->taken--;
        s->left += c->bytes;
        most = s->room - s->left + berthi_min_u64(s->left, c->rest);
        if (most > s->best)
            return k + 1;
        s->left += c->taken * c->bytes; /* fill() takes of it anew */
    }
    return 0;
}

bool
berthi_states_can_choose(berthi_arena *arena, const uint64_t *bytes, uint32_t count,
                         uint64_t room, uint8_t *stays)
{
    const uint64_t slots = count + UINT64_C(1);
    uint64_t *const sorted = berthi_arena_alloc(arena, slots * sizeof *sorted, 8);
    search s = { .room = room, .left = room };

    s.classes = berthi_arena_alloc(arena, slots * sizeof *s.classes, 8);
    if (sorted == NULL || s.classes == NULL)
        return false;
    if (count > 0)
        memcpy(sorted, bytes, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_down);
    list_classes(&s, sorted, count);
    fill(&s, 0);
    for (uint32_t step = 0; step < STEPS && s.best < room; step++) {
        const uint32_t behind = step_back(&s);

        if (behind == 0)
            break;
        fill(&s, behind);
    }
    for (uint32_t i = 0; i < count; i++) {
        size_class *c = s.classes;

        while (c->bytes != bytes[i])
            c++;
        stays[i] = c->best > 0;
        c->best -= c->best > 0;
    }
    return true;
}
