/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - headers of shards, read by several threads before their turn.
 *
 * Only what is right is read ahead. A header that is not, for whatever reason, is left to
 * the caller, who reads it in its turn as if nobody had tried: so what is reported, and in
 * which order, depends on neither threads nor time. At most two headers a thread are
 * ahead, none of them large, and all are given back when memory is short. One that was read
 * while more was free counts only if it could be read in its turn too: how far memory
 * reaches depends on neither as well.
 */
#ifndef BERTH_LOADER_AHEAD_H
#define BERTH_LOADER_AHEAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/shard.h"

#define BERTHI_AHEAD_THREADS 8u /* at most: what the caller does bounds the rest */
#define BERTHI_AHEAD_PLACES (2 * BERTHI_AHEAD_THREADS)
#define BERTHI_AHEAD_LIMIT (UINT64_C(1) << 20) /* bytes of a header */

typedef enum berthi_ahead_state {
    BERTHI_AHEAD_LEFT, /* to the caller */
    BERTHI_AHEAD_BUSY,
    BERTHI_AHEAD_READ
} berthi_ahead_state;

typedef struct berthi_ahead_place {
    berthi_shard_header header;
    berthi_ahead_state state;
} berthi_ahead_place;

typedef struct berthi_ahead {
    berth_context *context;
    const berthi_shard *shards;
    uint32_t count;
    uint32_t window; /* shards from the turn on that may be read */
    uint32_t worker_count; /* 0: nothing is read ahead */
    pthread_t workers[BERTHI_AHEAD_THREADS];
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t room;  /* the turn has come nearer to what comes next, or it ends */
    pthread_cond_t done;  /* a shard is no longer busy */
    uint32_t turn;        /* of this shard: the caller wants it */
    uint32_t next;        /* shard that nobody has begun */
    bool is_ending;
    berthi_ahead_place places[BERTHI_AHEAD_PLACES]; /* of shard i: i modulo window */
} berthi_ahead;

/*
 * Starts with the first of `count` open shards; those without a descriptor are left out.
 * `threads`, the caller's among them, are a wish: where none can be had nothing is read
 * ahead. The shards do not change until the end.
 */
void berthi_ahead_start(berthi_ahead *ahead, berth_context *context,
                        const berthi_shard *shards, uint32_t count, uint32_t threads);
/*
 * The header of the shard whose turn it is; turns come in order, some may be left out.
 * Reads others while it waits. False: the caller has to read it.
 */
bool berthi_ahead_take(berthi_ahead *ahead, uint32_t shard, berthi_shard_header *out);
/*
 * Waits for the threads and gives back what nobody took. True when there was anything to
 * end: more memory is free than before. Any number of times; all-zero is allowed.
 */
bool berthi_ahead_end(berthi_ahead *ahead);

#endif
