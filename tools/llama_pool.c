/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_pool.c - see llama_pool.h.
 *
 * One word says what there is to do: how many pieces of work there have been, the
 * parts of this one, and the next part that nobody has. Who moves `next` on has a
 * part; the piece cannot end before that part is done, so what the other members say
 * of it holds until then.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tools/llama_error.h"
#include "tools/llama_pool.h"

#define PART_BITS 16u
#define PART_MASK ((UINT64_C(1) << PART_BITS) - 1)
#define PARTS_MAX ((uint32_t)PART_MASK)
#define LOOKS 20000u /* before a thread sleeps: some 200 us */

struct llama_pool {
    _Alignas(64) _Atomic uint64_t word; /* [piece | parts | next] */
    _Alignas(64) _Atomic uint32_t done;
    llama_pool_work work;
    void *user;
    uint32_t first; /* part of the caller that this piece begins with */
    _Alignas(64) pthread_mutex_t mutex;
    pthread_cond_t wake;
    _Atomic uint32_t sleepers;
    bool is_ending; /* under the mutex */
    uint32_t started;
    pthread_t threads[LLAMA_POOL_MAX];
    _Atomic uint32_t workers; /* numbers given out */
};

static inline void
pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool
has_part(uint64_t word)
{
    return (word & PART_MASK) < (word >> PART_BITS & PART_MASK);
}

/* Does parts while there are some. */
static void
do_parts(llama_pool *pool, uint32_t worker)
{
    uint64_t word = atomic_load_explicit(&pool->word, memory_order_acquire);

    while (has_part(word)) {
        if (!atomic_compare_exchange_weak_explicit(&pool->word, &word, word + 1,
                                                   memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        pool->work(pool->user, worker, pool->first + (uint32_t)(word & PART_MASK));
        atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
        word = atomic_load_explicit(&pool->word, memory_order_acquire);
    }
}

/* False: the pool ends. */
static bool
sleep_until_work(llama_pool *pool)
{
    bool is_ending;

    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!pool->is_ending && !has_part(atomic_load(&pool->word)))
        pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    is_ending = pool->is_ending;
    pthread_mutex_unlock(&pool->mutex);
    return !is_ending;
}

static void *
run_worker(void *user)
{
    llama_pool *const pool = user;
    const uint32_t worker = 1 + atomic_fetch_add(&pool->workers, 1);

    for (;;) {
        uint32_t looks = 0;

        while (!has_part(atomic_load_explicit(&pool->word, memory_order_relaxed))
               && ++looks < LOOKS)
            pause_briefly();
        if (looks == LOOKS && !sleep_until_work(pool))
            return NULL;
        do_parts(pool, worker);
    }
}

static void
wake_all(llama_pool *pool, bool is_ending)
{
    pthread_mutex_lock(&pool->mutex);
    pool->is_ending = is_ending;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

berth_status
llama_pool_create(uint32_t threads, uint32_t cores, llama_pool **out, berth_error *error)
{
    uint32_t wanted = threads > 0 ? threads : cores;
    llama_pool *pool;

    *out = NULL;
    wanted = wanted < 1 ? 1 : wanted > LLAMA_POOL_MAX ? LLAMA_POOL_MAX : wanted;
    pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (pool == NULL)
        return llama_fail(error, BERTH_ENOMEM, NULL, "no memory for threads");
    *pool = (llama_pool){ .started = 0 };
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    while (pool->started + 1 < wanted
           && pthread_create(&pool->threads[pool->started], NULL, run_worker, pool) == 0)
        pool->started++;
    *out = pool;
    return BERTH_OK;
}

void
llama_pool_destroy(llama_pool *pool)
{
    if (pool == NULL)
        return;
    wake_all(pool, true);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

uint32_t
llama_pool_threads(const llama_pool *pool)
{
    return pool->started + 1;
}

static void
run_piece(llama_pool *pool, uint32_t parts)
{
    const uint64_t piece = (atomic_load_explicit(&pool->word, memory_order_relaxed)
                            >> 2 * PART_BITS)
                           + 1;

    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_store(&pool->word, piece << 2 * PART_BITS | (uint64_t)parts << PART_BITS);
    if (atomic_load(&pool->sleepers) > 0)
        wake_all(pool, false);
    do_parts(pool, 0);
    for (uint32_t looks = 0;
         atomic_load_explicit(&pool->done, memory_order_acquire) < parts; looks++) {
        pause_briefly();
        if (looks >= LOOKS)
            sched_yield(); /* somebody else has the core of who does the last part */
    }
}

/* A piece has a limit of parts: more are several pieces. */
void
llama_pool_run(llama_pool *pool, uint32_t parts, llama_pool_work work, void *user)
{
    if (parts == 1) { /* nobody else can help */
        work(user, 0, 0);
        return;
    }
    pool->work = work;
    pool->user = user;
    for (pool->first = 0; parts - pool->first > PARTS_MAX; pool->first += PARTS_MAX)
        run_piece(pool, PARTS_MAX);
    if (parts > pool->first)
        run_piece(pool, parts - pool->first);
}
