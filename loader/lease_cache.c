/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_cache.c - which expert gives its slot away: the policy of caches, and nothing
 * else.
 *
 *   line    [ empty slots ]  share of layer 0 [ once | again ]  of layer 1 [ ...
 *
 * Layers come one after the other, token after token: the slot used least recently of
 * all is one of the layer that comes next. So each layer has its share of the slots. A
 * layer takes from its own, unless another one has two more, or all of its own are used:
 * shares are even, and what a single request needs beyond them goes round.
 *
 * In a share, experts that are used again are protected, three quarters at most: the one
 * of them that was used least recently is protected no longer when another comes. What
 * is given away first was used least recently of those that are not protected, then of
 * those that are. So experts that are used once do not drive out those that every token
 * uses.
 */
#include <string.h>

#include "loader/lease_state.h"

/* How much of a share's slots may be protected, in quarters. */
#define PROTECTED 3u

/* -------------------------------------------------------------------------- lists */

static void
append(berthi_lease_list *list, berthi_lease_slot *slot)
{
    slot->list = list;
    slot->older = list->newest;
    slot->newer = NULL;
    *(list->newest != NULL ? &list->newest->newer : &list->oldest) = slot;
    list->newest = slot;
    list->count++;
}

static void
unlink(berthi_lease_slot *slot)
{
    berthi_lease_list *const list = slot->list;

    *(slot->older != NULL ? &slot->older->newer : &list->oldest) = slot->newer;
    *(slot->newer != NULL ? &slot->newer->older : &list->newest) = slot->older;
    list->count--;
}

static void
move(berthi_lease_list *list, berthi_lease_slot *slot)
{
    unlink(slot);
    append(list, slot);
}

bool
berthi_lease_cache_init(berthi_leases *leases, berthi_lease_line *line)
{
    const uint64_t shares = line->share_count * sizeof *line->shares;
    const uint64_t units = line->unit_count * sizeof *line->slot_of;

    line->shares = berthi_arena_alloc(&leases->arena, shares, 8);
    line->slot_of = berthi_arena_alloc(&leases->arena, units, 8);
    if (line->shares == NULL || line->slot_of == NULL)
        return false;
    memset(line->shares, 0, shares);
    memset(line->slot_of, 0, units);
    for (uint32_t i = 0; i < line->slot_count; i++)
        append(&line->empty, &line->slots[i]);
    return true;
}

/* ------------------------------------------------------------------------- slots */

berthi_lease_slot *
berthi_lease_cache_find(const berthi_lease_line *line, uint32_t unit)
{
    return line->slot_of[unit - line->first_unit];
}

static bool
is_used(const berthi_lease_slot *slot)
{
    return slot->leases > 0 || slot->waiters > 0 || slot->is_written
           || slot->fill == BERTHI_LEASE_TAKEN;
}

void
berthi_lease_cache_note_use(berthi_lease_line *line, berthi_lease_slot *slot)
{
    if (slot->is_used == is_used(slot))
        return;
    slot->is_used = !slot->is_used;
    if (slot->is_used) {
        slot->share->used++;
        line->used++;
    } else {
        slot->share->used--;
        line->used--;
        pthread_cond_broadcast(&line->changed); /* whoever waits for room */
    }
}

uint32_t
berthi_lease_cache_room(const berthi_lease_line *line)
{
    return line->slot_count - line->used;
}

static berthi_lease_share *
share_of(berthi_lease_line *line, const berthi_lease_unit *unit)
{
    return &line->shares[BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_SHARES) ? 0 : unit->share];
}

void
berthi_lease_cache_put(berthi_lease_line *line, berthi_lease_slot *slot,
                       const berthi_lease_unit *unit)
{
    slot->share = share_of(line, unit);
    slot->is_protected = false;
    slot->is_ahead = false;
    line->slot_of[slot->unit - line->first_unit] = slot;
    move(&slot->share->once, slot);
}

void
berthi_lease_cache_drop(berthi_lease_line *line, berthi_lease_slot *slot)
{
    berthi_lease_cache_note_use(line, slot);
    line->slot_of[slot->unit - line->first_unit] = NULL;
    slot->share = NULL;
    move(&line->empty, slot);
}

/* ------------------------------------------------------------------------ policy */

static uint32_t
held(const berthi_lease_share *share)
{
    return share->once.count + share->again.count;
}

/* Makes place for one more that is protected; false: none ever is. */
static bool
make_place(berthi_lease_share *share)
{
    berthi_lease_slot *const oldest = share->again.oldest;

    if (share->again.count < held(share) * PROTECTED / 4)
        return true;
    if (oldest == NULL)
        return false;
    oldest->is_protected = false;
    move(&share->once, oldest); /* the last of them that goes */
    return true;
}

void
berthi_lease_cache_touch(berthi_lease_slot *slot)
{
    berthi_lease_share *const share = slot->share;

    if (!slot->is_ahead && !slot->is_protected)
        slot->is_protected = make_place(share);
    slot->is_ahead = false;
    move(slot->is_protected ? &share->again : &share->once, slot);
}

/* The share that gives a slot for one more of `mine`; NULL: all are used. */
static berthi_lease_share *
find_giver(berthi_lease_line *line, berthi_lease_share *mine)
{
    berthi_lease_share *most = NULL;

    for (uint32_t i = 0; i < line->share_count; i++) {
        berthi_lease_share *const share = &line->shares[i];

        if (held(share) > share->used && (most == NULL || held(share) > held(most)))
            most = share;
    }
    return most != NULL && held(mine) > mine->used && held(most) <= held(mine) + 1 ? mine
                                                                                   : most;
}

/* The slot that will be missed least, of those that nobody uses. */
static berthi_lease_slot *
find_oldest(const berthi_lease_list *list)
{
    berthi_lease_slot *slot = list->oldest;

    while (slot != NULL && slot->is_used)
        slot = slot->newer;
    return slot;
}

berthi_lease_slot *
berthi_lease_cache_take(berthi_lease_line *line, const berthi_lease_unit *unit)
{
    berthi_lease_share *giver;
    berthi_lease_slot *slot;

    if (line->empty.oldest != NULL)
        return line->empty.oldest;
    giver = find_giver(line, share_of(line, unit));
    if (giver == NULL)
        return NULL;
    slot = find_oldest(&giver->once);
    if (slot == NULL)
        slot = find_oldest(&giver->again);
    berthi_lease_empty(line, slot);
    return slot;
}
