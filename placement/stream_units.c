/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_units.c - what each layer streams in one try; see stream_settling.h.
 *
 * The bound comes first: smaller units make smaller slots, and less has to be streamed
 * to make room for them, but all layers together must be able to give enough. So
 * the smallest bound that fits is the best one, and no guess has to be repeated. Then
 * the units are spread below it (spread), and what is left over is filled (fill).
 */
#include "placement/stream_settling.h"

#include <stddef.h>

/* Repetitions of the spreading, each with a larger target. */
#define SPREADS 8u
#define MOST (UINT64_C(1) << 62)

uint64_t
berthi_stream_slots(const settling *s, uint32_t slots, uint64_t unit)
{
    uint64_t bytes;

    return berthi_can_mul(slots, berthi_round_up(unit, s->device->alignment), &bytes)
               ? berthi_min_u64(bytes, MOST)
               : MOST;
}

static const berthi_stream_menu *
menu_of(const settling *s, uint32_t layer)
{
    return &s->menus.menus[s->menus.layers[layer].menu];
}

/* --------------------------------------------------------------------- bounds */

/* The next option of a menu; whole layers have two. */
static uint32_t
next_option(const berthi_stream_menu *menu, uint32_t cursor, settling_way how)
{
    return how == WAY_WHOLE ? menu->option_count - 1 : cursor + 1;
}

/* Moves every menu to its largest unit within `bound`; returns bytes of all layers. */
static uint64_t
advance(settling *s, uint64_t bound, settling_way how)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->menus.menu_count; i++) {
        const berthi_stream_menu *const menu = &s->menus.menus[i];
        uint32_t *const cursor = &s->cursors[i];

        while (*cursor + 1 < menu->option_count) {
            const uint32_t next = next_option(menu, *cursor, how);

            if (menu->options[next].bytes > bound - menu->away)
                break;
            *cursor = next;
        }
        bytes += menu->layer_count * menu->options[*cursor].bytes;
    }
    return bytes;
}

/* The smallest unit larger than `bound`; SETTLING_NO_BOUND when there is none. */
static uint64_t
next_bound(const settling *s, settling_way how)
{
    uint64_t bound = SETTLING_NO_BOUND;

    for (uint32_t i = 0; i < s->menus.menu_count; i++) {
        const berthi_stream_menu *const menu = &s->menus.menus[i];
        const uint32_t cursor = s->cursors[i];

        if (cursor + 1 < menu->option_count)
            bound = berthi_min_u64(
                bound, menu->away
                           + menu->options[next_option(menu, cursor, how)].bytes);
    }
    return bound;
}

/* Whether a try fits in which resident pieces and slots take `need` bytes. */
static bool
is_enough(const settling *s, uint64_t need, uint64_t bound, uint32_t slots,
          settling_way how)
{
    const uint64_t most = s->menus.dense + berthi_stream_slots(s, slots, bound);
    const berthi_stream_menu *menu;
    uint64_t unit;

    if (need > s->room || how != WAY_EVEN)
        return need <= s->room;
    menu = menu_of(s, s->heaviest);
    unit = menu->away + berthi_stream_menu_find(menu, bound - menu->away)->bytes;
    return (double)(s->menus.away + most - berthi_min_u64(most, s->room))
               * s->menus.layers[s->heaviest].weight
           <= (double)unit * s->weight;
}

void
berthi_stream_find_bounds(settling *s, uint32_t least, uint32_t most, settling_way how,
                          settling_bounds *out)
{
    uint64_t bound = 0;
    uint32_t open = most - least + 1;

    out->missing = UINT64_MAX;
    for (uint32_t slots = 0; slots <= BERTHI_STREAM_SLOTS_MAX; slots++)
        out->of[slots] = SETTLING_NO_BOUND;
    for (uint32_t i = 0; i < s->menus.menu_count; i++) {
        bound = berthi_max_u64(bound, s->menus.menus[i].away);
        s->cursors[i] = 0;
    }
    while (open > 0 && bound != SETTLING_NO_BOUND) {
        const uint64_t resident = s->menus.dense - advance(s, bound, how);

        for (uint32_t slots = least; slots <= most; slots++) {
            const uint64_t need = resident + berthi_stream_slots(s, slots, bound);

            if (out->of[slots] != SETTLING_NO_BOUND)
                continue;
            if (is_enough(s, need, bound, slots, how)) {
                out->of[slots] = bound;
                open--;
            }
            out->missing = berthi_min_u64(out->missing,
                                          need - berthi_min_u64(need, s->room));
        }
        bound = next_bound(s, how);
    }
}

/* ------------------------------------------------------------------ spreading */

/* The option nearest to `target`, the larger of two as near, and within `bound`. */
static const berthi_stream_option *
nearest(const berthi_stream_menu *menu, double target, uint64_t bound, settling_way how)
{
    const berthi_stream_option *const last = &menu->options[menu->option_count - 1];
    const berthi_stream_option *low = menu->options;
    const berthi_stream_option *high = last;

    if (how != WAY_WHOLE && target >= 1) {
        low = berthi_stream_menu_find(menu, target < (double)last->bytes
                                                ? (uint64_t)target
                                                : last->bytes);
        if (low->bytes > bound)
            return berthi_stream_menu_find(menu, bound);
    }
    if (how != WAY_WHOLE && low < last)
        high = low + 1;
    return high->bytes <= bound && (double)high->bytes - target <= target - (double)low->bytes
               ? high
               : low;
}

static void
take(settling *s, uint32_t layer, const berthi_stream_option *option)
{
    const uint64_t unit = menu_of(s, layer)->away + option->bytes;

    s->now.options[layer] = option;
    s->now.streamed += option->bytes;
    s->now.largest = berthi_max_u64(s->now.largest, unit);
    s->now.unit_count += unit > 0;
}

static void
take_none(settling *s)
{
    s->now.streamed = 0;
    s->now.largest = 0;
    s->now.unit_count = 0;
}

/* Error diffusion: what a layer streams too much or too little, the next ones make up. */
static void
spread(settling *s, double target, uint64_t bound, settling_way how)
{
    double due = 0;

    take_none(s);
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_menu *const menu = menu_of(s, i);

        due += s->menus.layers[i].weight * target / s->weight;
        take(s, i, nearest(menu, due - (double)menu->away, bound - menu->away, how));
        due -= (double)(menu->away + s->now.options[i]->bytes);
    }
}

uint64_t
berthi_stream_needed(const settling *s)
{
    return s->menus.dense - s->now.streamed
           + berthi_stream_slots(s, s->now.slots, s->now.largest);
}

/* Units within `bound` that make enough room: the bounds have shown that there are. */
static void
spread_enough(settling *s, uint64_t bound, settling_way how)
{
    const uint64_t most = s->menus.dense + berthi_stream_slots(s, s->now.slots, bound);
    double target = (double)s->menus.away + (double)(most - berthi_min_u64(most, s->room));

    for (uint32_t i = 0; i < SPREADS; i++) {
        spread(s, target, bound, how);
        if (berthi_stream_needed(s) <= s->room)
            return;
        target += (double)(berthi_stream_needed(s) - s->room);
    }
    take_none(s);
    for (uint32_t i = 0; i < s->device->layer_count; i++) {
        const berthi_stream_menu *const menu = menu_of(s, i);

        take(s, i, nearest(menu, (double)bound, bound - menu->away, how));
    }
}

/* The smallest option by which a layer gives back no more than `free`. */
static const berthi_stream_option *
shrunk(const berthi_stream_menu *menu, const berthi_stream_option *option, uint64_t free)
{
    const berthi_stream_option *found;

    if (option->bytes <= free)
        return menu->options;
    found = berthi_stream_menu_find(menu, option->bytes - free);
    return found->bytes < option->bytes - free ? found + 1 : found;
}

/*
 * What is left over goes where most of it is used, until no piece fits any more:
 * among layers as good into the middle, where the spread suffers least.
 */
static void
fill(settling *s)
{
    const berthi_stream_option **const options = s->now.options;
    const uint32_t count = s->device->layer_count;

    for (;;) {
        const uint64_t free = s->room - berthi_stream_needed(s);
        const berthi_stream_option *best = NULL;
        uint64_t gain = 0;
        uint32_t layer = 0;

        for (uint32_t j = 0; free > 0 && j < count; j++) {
            const uint32_t i = (j + count / 2) % count;
            const berthi_stream_option *const option = shrunk(menu_of(s, i), options[i],
                                                              free);

            if (options[i]->bytes - option->bytes > gain) {
                gain = options[i]->bytes - option->bytes;
                best = option;
                layer = i;
            }
        }
        if (best == NULL)
            return;
        options[layer] = best;
        take_none(s);
        for (uint32_t i = 0; i < count; i++)
            take(s, i, options[i]);
    }
}

void
berthi_stream_choose_units(settling *s, uint64_t bound, settling_way how)
{
    spread_enough(s, bound, how);
    fill(s);
}
