/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_line.c - the slots of one device: what comes into them, in which order.
 *
 * The cursor walks over the line's units, endlessly; each empty slot takes the next
 * one that is in no slot. Copies of a line are asked for unit by unit: while the feeder
 * is at one, those behind it wait, for the link would bring them first.
 */
#include <string.h>

#include "loader/lease_state.h"

/* ------------------------------------------------------------------------- order */

uint32_t
berthi_lease_unit_after(const berthi_lease_line *line, uint32_t unit)
{
    return unit + 1 == line->first_unit + line->unit_count ? line->first_unit : unit + 1;
}

/* Steps from one unit to another. */
static uint32_t
distance(const berthi_lease_line *line, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + line->unit_count - from;
}

/* The one that has been empty for longest. */
static berthi_lease_slot *
find_empty(berthi_lease_line *line)
{
    berthi_lease_slot *best = NULL;

    for (uint32_t i = 0; i < line->slot_count; i++) {
        berthi_lease_slot *const slot = &line->slots[i];

        if (slot->fill == BERTHI_LEASE_EMPTY
            && (best == NULL || slot->emptied < best->emptied))
            best = slot;
    }
    return best;
}

/* Takes the cursor to a unit that is in no slot; false: all are. */
static bool
seek_next(berthi_lease_line *line)
{
    for (uint32_t i = 0; i < line->unit_count; i++) {
        if (berthi_lease_find_slot(line, line->cursor) == NULL)
            return true;
        line->cursor = berthi_lease_unit_after(line, line->cursor);
    }
    return false;
}

/* The slot that is filled next, with the unit at the cursor; NULL: none is now. */
static berthi_lease_slot *
next_slot(berthi_lease_line *line)
{
    berthi_lease_slot *slot;

    if (line->is_halted || line->feeding != NULL || line->written > 0)
        return NULL;
    slot = find_empty(line);
    return slot != NULL && seek_next(line) ? slot : NULL;
}

/* One waiter more, so that nobody gives it up. NULL is allowed. */
static berthi_lease_slot *
hold(berthi_lease_slot *slot)
{
    if (slot != NULL)
        slot->waiters++;
    return slot;
}

/* As berthi_lease_pump(). `pinned`: as far as units go whose copies wait for no device. */
static berth_status
pump(berthi_leases *leases, berthi_lease_line *line, uint32_t wanted, bool pinned,
     berth_error *error)
{
    berthi_lease_slot *held =
        wanted != BERTHI_NO_UNIT ? hold(berthi_lease_find_slot(line, wanted)) : NULL;
    berth_status status = BERTH_OK;

    /*
     * Each slot once: what others release while this copies they fill, or the next call. One
     * that was given up meanwhile is filled with what whoever did so could not.
     */
    for (uint32_t filled = 0; filled < line->slot_count && status == BERTH_OK;) {
        berthi_lease_slot *const slot = next_slot(line);
        const uint32_t unit = line->cursor;

        if (slot == NULL || (pinned && !berthi_lease_is_pinned(&leases->units[unit])))
            break;
        /* Others may take the cursor elsewhere meanwhile. */
        line->cursor = berthi_lease_unit_after(line, unit);
        if (unit == wanted && held == NULL)
            held = hold(slot);
        status = berthi_lease_begin_fill(leases, line, slot, unit, error);
        filled += slot->fill != BERTHI_LEASE_EMPTY;
        if (BERTHI_LEASE_IS_WITHOUT(BERTHI_LEASE_NO_PREFETCH))
            break;
    }
    if (held != NULL)
        berthi_lease_let_go_of(line, held);
    return status;
}

berth_status
berthi_lease_pump(berthi_leases *leases, berthi_lease_line *line, uint32_t wanted,
                  berth_error *error)
{
    return pump(leases, line, wanted, false, error);
}

/* What cannot be brought now is brought, or refused, when it is asked for. */
void
berthi_lease_pump_pinned(berthi_leases *leases, berthi_lease_line *line)
{
    (void)pump(leases, line, BERTHI_NO_UNIT, true, NULL);
}

static bool
is_used(const berthi_lease_slot *slot)
{
    return slot->leases > 0 || slot->waiters > 0;
}

void
berthi_lease_move_to(berthi_leases *leases, berthi_lease_line *line, uint32_t unit)
{
    berthi_lease_slot *const wanted = berthi_lease_find_slot(line, unit);
    uint32_t room = 0; /* for units behind it */

    if (wanted != NULL)
        wanted->is_unwanted = false;
    for (uint32_t i = 0; i < line->slot_count; i++)
        room += !is_used(&line->slots[i]);
    for (uint32_t i = 0; i < line->slot_count; i++) {
        berthi_lease_slot *const slot = &line->slots[i];

        if (slot == wanted || is_used(slot) || slot->fill == BERTHI_LEASE_EMPTY)
            continue;
        /* What the feeder is at would keep `unit` waiting. */
        if (distance(line, unit, slot->unit) < room
            && (wanted != NULL || (line->feeding != slot && !slot->is_written)))
            continue;
        if (slot->is_written)
            slot->is_unwanted = true;
        else
            berthi_lease_empty(line, slot);
    }
    line->cursor = unit;
    line->is_moved = true;
    berthi_feeder_wake(leases->feeder);
}
