/* SPDX-License-Identifier: Apache-2.0 */
/* ahead.c - threads that take the next shard each, and a caller who takes them in order. */
#include "loader/ahead.h"

#include <string.h>

#include "kernels/sys.h"

#define STACK_BYTES (256u * 1024u)
/*
 * More than the reading of a header of so many bytes ever holds: its text, tables with 48
 * bytes for each tensor that takes 43 of them at least, and what sorting needs.
 */
#define READING_BYTES(header_bytes) (8 * (header_bytes) + 4096)

static berthi_ahead_place *
place_of(berthi_ahead *ahead, uint32_t shard)
{
    return &ahead->places[shard % ahead->window];
}

static bool
has_next(const berthi_ahead *ahead)
{
    return ahead->next < ahead->count && ahead->next - ahead->turn < ahead->window;
}

/* Reads the next shard; the lock is held before and afterwards. */
static void
read_next(berthi_ahead *ahead)
{
    const berthi_shard *const shard = &ahead->shards[ahead->next];
    berthi_ahead_place *const place = place_of(ahead, ahead->next);
    bool is_read;

    ahead->next++;
    /* Nobody asks for it: its place is the next one's even while the turn passes by. */
    if (shard->file.fd < 0)
        return;
    place->state = BERTHI_AHEAD_BUSY;
    pthread_mutex_unlock(&ahead->lock);
    is_read = berthi_shard_can_read(shard, ahead->context, BERTHI_AHEAD_LIMIT,
                                    &place->header);
    pthread_mutex_lock(&ahead->lock);
    place->state = is_read ? BERTHI_AHEAD_READ : BERTHI_AHEAD_LEFT;
    pthread_cond_signal(&ahead->done); /* nobody but the caller waits for it */
}

static void *
run_worker(void *user)
{
    berthi_ahead *const ahead = user;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_ending && ahead->next < ahead->count)
        if (has_next(ahead))
            read_next(ahead);
        else
            pthread_cond_wait(&ahead->room, &ahead->lock);
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

void
berthi_ahead_start(berthi_ahead *ahead, berth_context *context,
                   const berthi_shard *shards, uint32_t count, uint32_t threads)
{
    const uint32_t wanted = (uint32_t)berthi_min_u64(
        berthi_min_u64(threads, count), BERTHI_AHEAD_THREADS);

    memset(ahead, 0, sizeof *ahead);
    ahead->context = context;
    ahead->shards = shards;
    ahead->count = count;
    ahead->window = 2 * wanted;
    ahead->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ahead->room = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    ahead->done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    while (ahead->worker_count + 1 < wanted
           && berthi_sys_thread_create(&ahead->workers[ahead->worker_count], STACK_BYTES,
                                       run_worker, ahead)
                  == 0)
        ahead->worker_count++;
}

bool
berthi_ahead_take(berthi_ahead *ahead, uint32_t shard, berthi_shard_header *out)
{
    berthi_ahead_place *place;
    bool is_read;

    if (ahead->worker_count == 0)
        return false;
    place = place_of(ahead, shard);
    pthread_mutex_lock(&ahead->lock);
    ahead->turn = shard;
    ahead->next = (uint32_t)berthi_max_u64(ahead->next, shard);
    pthread_cond_broadcast(&ahead->room);
    while (ahead->next <= shard || place->state == BERTHI_AHEAD_BUSY)
        if (has_next(ahead))
            read_next(ahead);
        else
            pthread_cond_wait(&ahead->done, &ahead->lock);
    is_read = place->state == BERTHI_AHEAD_READ;
    if (is_read)
        *out = place->header;
    place->state = BERTHI_AHEAD_LEFT;
    pthread_mutex_unlock(&ahead->lock);
    if (is_read
        && !berthi_ledger_has_room(&ahead->context->ledger, READING_BYTES(out->bytes))) {
        berthi_header_fini(&out->header);
        return false;
    }
    return is_read;
}

bool
berthi_ahead_end(berthi_ahead *ahead)
{
    const uint32_t worker_count = ahead->worker_count;

    if (worker_count == 0)
        return false;
    pthread_mutex_lock(&ahead->lock);
    ahead->is_ending = true;
    pthread_cond_broadcast(&ahead->room);
    pthread_mutex_unlock(&ahead->lock);
    for (uint32_t i = 0; i < worker_count; i++)
        pthread_join(ahead->workers[i], NULL);
    for (uint32_t i = 0; i < ahead->window; i++)
        if (ahead->places[i].state == BERTHI_AHEAD_READ)
            berthi_header_fini(&ahead->places[i].header.header);
    ahead->worker_count = 0;
    return true;
}
