/* SPDX-License-Identifier: Apache-2.0 */
/* plan_names.c - ends of tensors' names, each kept once; and whole names. */
#include "placement/plan_names.h"

#include <string.h>

#include "kernels/digits.h"
#include "kernels/grow.h"
#include "kernels/text.h"

#define FIRST_TEXT 4096u
#define FIRST_SLOTS 512u /* a power of two */

void
berthi_plan_names_init(berthi_plan_names *names, berthi_arena *arena)
{
    memset(names, 0, sizeof *names);
    names->arena = arena;
}

/* Room for `length` bytes more and a NUL. */
static bool
has_text_room(berthi_plan_names *names, uint64_t length)
{
    const uint64_t needed = names->used + length + 1;
    const berthi_growth growth = { .size = 1,
                                   .used = names->used,
                                   .before = names->capacity,
                                   .after = berthi_grown(needed, FIRST_TEXT) };
    char *text;

    if (needed <= names->capacity)
        return true;
    text = needed < UINT32_MAX ? berthi_arena_grow(names->arena, names->text, &growth) : NULL;
    if (text == NULL)
        return false;
    names->text = text;
    names->capacity = growth.after;
    return true;
}

static bool
is_at(const berthi_plan_names *names, uint64_t offset, const char *text, uint64_t length)
{
    const char *const known = names->text + offset;

    return strncmp(known, text, length) == 0 && known[length] == '\0';
}

/* Where a name is in the table, or the free slot where it would be. */
static uint64_t
find(const berthi_plan_names *names, const char *text, uint64_t length)
{
    uint64_t at = berthi_text_hash((berthi_text){ text, length }) & names->mask;

    while (names->slots[at] != 0 && !is_at(names, names->slots[at] - 1, text, length))
        at = (at + 1) & names->mask;
    return at;
}

/* A free slot for one more, and half of all. */
static bool
has_slot_room(berthi_plan_names *names)
{
    const uint64_t size = names->slots == NULL ? FIRST_SLOTS : 2 * (names->mask + 1);
    uint32_t *slots;

    if (names->slots != NULL && 2 * (names->count + 1) <= names->mask)
        return true;
    slots = berthi_arena_alloc(names->arena, size * sizeof *slots, 4);
    if (slots == NULL)
        return false;
    memset(slots, 0, size * sizeof *slots);
    names->slots = slots;
    names->mask = size - 1;
    for (uint64_t at = 0; at < names->used; at += strlen(names->text + at) + 1)
        slots[find(names, names->text + at, strlen(names->text + at))] = (uint32_t)at + 1;
    return true;
}

uint32_t
berthi_plan_names_keep(berthi_plan_names *names, const char *text, uint64_t length)
{
    uint64_t at;

    if (names->is_failed || !has_slot_room(names) || !has_text_room(names, length)) {
        names->is_failed = true;
        return 0;
    }
    at = find(names, text, length);
    if (names->slots[at] == 0) {
        names->slots[at] = (uint32_t)names->used + 1;
        memcpy(names->text + names->used, text, length);
        names->used += length;
        names->text[names->used++] = '\0';
        names->count++;
    }
    return names->slots[at] - 1;
}

uint32_t
berthi_plan_names_keep_like(berthi_plan_names *names, const char *text, uint64_t length,
                            uint32_t like)
{
    return !names->is_failed && is_at(names, like, text, length)
               ? like
               : berthi_plan_names_keep(names, text, length);
}

bool
berthi_plan_names_can_finish(const berthi_plan_names *names, berth_plan *plan)
{
    if (names->is_failed)
        return false;
    plan->texts = berthi_arena_text(&plan->arena, names->used > 0 ? names->text : "",
                                    names->used);
    return plan->texts != NULL;
}

uint64_t
berthi_plan_name(const berth_plan *plan, uint64_t berth, char *text, size_t capacity)
{
    const berthi_berth *const b = &plan->berths[berth];
    const berthi_plan_layer *const layer = &plan->layers[b->layer];
    const char *const end = plan->texts + b->name;
    const uint64_t length = layer->prefix_length + strlen(end);
    uint64_t used = 0;

    if (capacity == 0)
        return length;
    while (used < layer->prefix_length && used + 1 < capacity) {
        text[used] = layer->prefix[used];
        used++;
    }
    for (const char *at = end; *at != '\0' && used + 1 < capacity; at++)
        text[used++] = *at;
    text[used] = '\0';
    return length;
}

berthi_about
berthi_plan_about_layer(const berth_plan *plan, uint32_t layer)
{
    const char *const name = plan->layers[layer].out.name;

    return (berthi_about){ .tensor = name,
                           .tensor_length = strlen(name),
                           .is_escaped = true };
}

/* Where the number of an expert begins in a name that has one; 0: in none. */
static uint64_t
find_number(const char *name, uint64_t length)
{
    static const char word[] = ".experts.";
    const uint32_t size = sizeof word - 1;
    const char *const end = name + length;
    const char *at = memchr(name, '.', length);

    while (at != NULL && ((size_t)(end - at) <= size || memcmp(at, word, size) != 0))
        at = memchr(at + 1, '.', (size_t)(end - at - 1));
    return at != NULL ? (uint64_t)(at - name) + size : 0;
}

/* Digits, and a dot behind them. */
static uint32_t
read_number(const char *at, const char *end)
{
    uint64_t number;

    return berthi_digits_can_take(&at, end, BERTHI_NO_EXPERT - 1, &number) && at < end
                   && *at == '.'
               ? (uint32_t)number
               : BERTHI_NO_EXPERT;
}

uint32_t
berthi_plan_next_expert(berthi_plan_expert_name *before, const char *name,
                        uint64_t length)
{
    if (before->number == 0 || before->number >= length
        || memcmp(before->name, name, before->number) != 0)
        before->number = find_number(name, length);
    before->name = name;
    return before->number > 0 ? read_number(name + before->number, name + length)
                              : BERTHI_NO_EXPERT;
}

uint32_t
berthi_plan_expert(const char *name, uint64_t length)
{
    berthi_plan_expert_name none = { .name = NULL };

    return berthi_plan_next_expert(&none, name, length);
}

uint32_t
berthi_plan_expert_of(const berth_plan *plan, uint64_t berth, const char *name,
                      uint64_t length)
{
    const uint32_t number = berthi_plan_expert(name, length);
    const berthi_slice slice = berthi_plan_slice(plan, berth);

    if (number != BERTHI_NO_EXPERT || slice.along != BERTH_SLICING_ROWS
        || plan->summary.stacks != BERTH_STACKS_APART)
        return number;
    return slice.first < BERTHI_NO_EXPERT ? (uint32_t)slice.first : BERTHI_NO_EXPERT;
}
