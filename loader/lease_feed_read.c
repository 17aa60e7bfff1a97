/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_feed_read.c - which chunk the thread that brings units from the disk reads next.
 *
 * Reading follows the order of the layers, which is that in which they are needed, and
 * knows nothing of slots: a line that could fill one ahead of its turn has to wait for it.
 * Where somebody waits for something else and nothing goes on any more, reading begins anew
 * at what is wanted.
 */
#include "loader/lease_feed.h"

/* ------------------------------------------------------------------------ reading */

void
berthi_feeder_fail_reading(berthi_feeder *f, berth_status status, const berth_error *error)
{
    if (f->has_failed)
        return;
    f->has_failed = true;
    f->status = status;
    f->error = *error;
}

/* Begins to read a chunk that no buffer has; false: there is none for it now. */
static bool
start_read(berthi_feeder *f, uint64_t chunk)
{
    const uint32_t share = berthi_feeder_share(f, chunk);
    const uint32_t allocated = f->stage.allocated;
    berthi_stage_buffer *buffer;
    berth_error error;
    berth_status status;

    if (f->has_failed || f->has_grown || f->held[share] >= f->room[share])
        return false;
    status = berthi_stage_take(&f->stage, &f->chunks->chunks[chunk], &buffer, &error);
    if (status != BERTH_OK)
        berthi_feeder_fail_reading(f, status, &error);
    if (buffer == NULL)
        return false;
    berthi_feeder_pin(f, buffer);
    berthi_intake_start(&f->intake, buffer);
    f->has_grown = f->stage.allocated > allocated;
    f->states[chunk].is_held = true;
    f->held[share]++;
    return true;
}

static bool
is_late(const berthi_feeder *f, uint64_t chunk)
{
    return f->lines[f->leases->units[f->leases->unit_of_chunk[chunk]].line].is_late;
}

/* Takes the cursor past lines that are late. At least one is not. */
static void
skip_late(berthi_feeder *f)
{
    for (uint64_t i = 0; i < f->leases->layer_chunks && is_late(f, f->cursor); i++)
        f->cursor = (f->cursor + 1) % f->leases->layer_chunks;
}

bool
berthi_feeder_read_ahead(berthi_feeder *f)
{
    bool has_any = false;

    skip_late(f);
    while (f->leases->layer_chunks > 0 && !f->states[f->cursor].is_held
           && start_read(f, f->cursor)) {
        f->cursor = (f->cursor + 1) % f->leases->layer_chunks;
        skip_late(f);
        has_any = true;
    }
    return has_any;
}

/* ----------------------------------------------------------------- another order */

berthi_lease_slot *
berthi_feeder_find_missing(const berthi_feeder *f, const berthi_lease_line *line,
                           uint64_t *out_chunk)
{
    for (berthi_lease_slot *slot = line->feeding; slot != NULL; slot = slot->next_feed) {
        const berthi_lease_unit *const unit = &f->leases->units[slot->unit];

        for (uint64_t c = unit->first_chunk; c < unit->first_chunk + unit->chunk_count;
             c++) {
            *out_chunk = c;
            if (f->states[c].feed_number != slot->feed_number && !f->states[c].is_held)
                return slot;
        }
    }
    return NULL;
}

/* What one line misses; false: nothing, or there is no room. */
static bool
read_expert(berthi_feeder *f, uint32_t number)
{
    berthi_lease_line *const line = &f->leases->lines[number];
    bool has_any = false;
    bool is_missing = line->is_cache && !f->lines[number].is_late;

    while (is_missing) {
        uint64_t chunk;

        pthread_mutex_lock(&line->lock);
        is_missing = berthi_feeder_find_missing(f, line, &chunk) != NULL;
        pthread_mutex_unlock(&line->lock);
        is_missing = is_missing && start_read(f, chunk);
        has_any |= is_missing;
    }
    return has_any;
}

bool
berthi_feeder_read_experts(berthi_feeder *f)
{
    const uint32_t count = f->leases->line_count;
    const uint32_t first = f->next_line;
    bool has_any = false;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = (first + i) % count;

        if (!read_expert(f, number))
            continue;
        f->next_line = (number + 1) % count;
        has_any = true;
    }
    return has_any;
}

/* Buffers that the seeker may have: of a share, or of both where one could not grow. */
static bool
is_within(const berthi_feeder *f, const berthi_stage_buffer *buffer, uint32_t share,
          bool has_both)
{
    return has_both || berthi_feeder_share(f, berthi_feeder_chunk(f, buffer)) == share;
}

/*
 * Whether a slot waits for something in the ring: it may since that was last handed out. What
 * is there for a line whose copies are under way is wanted, and does not go on.
 */
static bool
is_ring_wanted(const berthi_feeder *f, uint32_t share, bool has_both)
{
    bool is_wanted = false;

    for (uint32_t i = 0; i < f->stage.allocated && !is_wanted; i++) {
        const berthi_stage_buffer *const buffer = &f->stage.buffers[i];
        berthi_lease_line *line;

        if (buffer->state != BERTHI_STAGE_FULL || !is_within(f, buffer, share, has_both)
            || berthi_feeder_line_state_of(f, buffer)->copying > 0)
            continue;
        line = berthi_feeder_line(f, buffer);
        pthread_mutex_lock(&line->lock);
        is_wanted = berthi_feeder_find_slot(f, buffer) != NULL;
        pthread_mutex_unlock(&line->lock);
    }
    return is_wanted;
}

/*
 * Gives up what is full for the line, or, NULL, for any of the share, or of both. Some of it may
 * be wanted by a line whose copies are under way. True: something was.
 */
static bool
drop(berthi_feeder *f, const berthi_lease_line *line, uint32_t share, bool has_both)
{
    bool has_any = false;

    for (uint32_t i = 0; i < f->stage.allocated; i++) {
        berthi_stage_buffer *const buffer = &f->stage.buffers[i];
        berthi_feeder_line_state *state;

        if (buffer->state != BERTHI_STAGE_FULL || !is_within(f, buffer, share, has_both)
            || (line != NULL && line != berthi_feeder_line(f, buffer)))
            continue;
        state = berthi_feeder_line_state_of(f, buffer);
        state->has_lost |= state->copying > 0;
        berthi_feeder_release(f, buffer);
        has_any = true;
    }
    return has_any;
}

bool
berthi_feeder_follow(berthi_feeder *f)
{
    for (uint32_t i = 0; i < f->leases->line_count && !f->has_failed; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];
        uint64_t chunk;
        bool is_wanted;

        if (f->lines[i].is_late)
            continue;
        pthread_mutex_lock(&line->lock);
        is_wanted = line->is_moved && berthi_feeder_find_missing(f, line, &chunk) != NULL;
        line->is_moved = false;
        pthread_mutex_unlock(&line->lock);
        if (!is_wanted || chunk == f->cursor)
            continue;
        (void)drop(f, line, line->is_cache, false);
        if (!line->is_cache)
            f->cursor = chunk;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------- nothing goes on */

/* Line's lock held. Experts are waited for as soon as they are asked for. */
static bool
is_waited_for(const berthi_lease_line *line)
{
    const berthi_lease_slot *slot = line->feeding;

    while (slot != NULL && slot->waiters == 0)
        slot = slot->next_feed;
    return slot != NULL || line->is_cache;
}

/* Whether a line of the share waits for what is not in the ring, and has no copies under way. */
static bool
find_waited(berthi_feeder *f, uint32_t share, uint64_t *out_chunk)
{
    for (uint32_t i = 0; i < f->leases->line_count; i++) {
        berthi_lease_line *const line = &f->leases->lines[i];
        bool is_waiting;

        if (f->lines[i].copying > 0 || line->is_cache != (share == 1))
            continue;
        pthread_mutex_lock(&line->lock);
        is_waiting =
            is_waited_for(line) && berthi_feeder_find_missing(f, line, out_chunk) != NULL;
        pthread_mutex_unlock(&line->lock);
        if (is_waiting)
            return true;
    }
    return false;
}

/* Until one of their copies has passed, lines of the share are late. */
static void
note_late(berthi_feeder *f, uint32_t share)
{
    for (uint32_t i = 0; i < f->leases->line_count; i++)
        f->lines[i].is_late |=
            f->lines[i].copying > 0 && f->leases->lines[i].is_cache == (share == 1);
}

static bool
is_filling(const berthi_feeder *f, uint32_t share)
{
    bool is_found = false;

    for (uint32_t i = 0; i < f->stage.allocated && !is_found; i++)
        is_found = f->stage.buffers[i].state == BERTHI_STAGE_FILLING
                   && is_within(f, &f->stage.buffers[i], share, false);
    return is_found;
}

bool
berthi_feeder_unstick(berthi_feeder *f, uint32_t share)
{
    const bool has_both = f->held[share] < f->room[share]
                          && f->held[0] + f->held[1] >= f->stage.limit;
    const uint32_t limit = f->stage.limit;
    bool has_changed;
    uint64_t chunk;

    if (f->has_failed || is_filling(f, share) || !berthi_feeder_is_stuck(f, share)
        || !find_waited(f, share, &chunk))
        return false;
    if (is_ring_wanted(f, share, has_both))
        return true; /* whoever waits has come just now: copying goes on */
    has_changed = drop(f, NULL, share, has_both);
    if (share == 0) {
        has_changed |= f->cursor != chunk;
        f->cursor = chunk;
    }
    note_late(f, share);
    /* The same once more would do nothing, for as long as the other share has the buffers. */
    return berthi_feeder_make_room(f, share) && (has_changed || f->stage.limit != limit);
}
