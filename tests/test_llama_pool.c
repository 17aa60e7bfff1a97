/* SPDX-License-Identifier: Apache-2.0 */
/* test_llama_pool.c - threads that wait for work: each part once, whoever does it. */
#define _DEFAULT_SOURCE /* usleep */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/t.h"
#include "tools/llama_pool.h"

#define PARTS_MAX 70000u

typedef struct tally {
    _Atomic uint32_t done[PARTS_MAX]; /* how often each part was done */
    _Atomic uint32_t workers[LLAMA_POOL_MAX + 1];
    uint32_t threads;
    _Atomic uint32_t strangers;       /* workers that are none of the pool's */
    useconds_t sleep;
} tally;

static void
count_part(void *user, uint32_t worker, uint32_t part)
{
    tally *const t = user;

    atomic_fetch_add(&t->done[part], 1);
    atomic_fetch_add(&t->workers[worker], 1);
    if (worker >= t->threads)
        atomic_fetch_add(&t->strangers, 1);
    if (t->sleep > 0)
        usleep(t->sleep);
}

static void
check_piece(llama_pool *pool, tally *t, uint32_t parts)
{
    uint32_t wrong = 0;

    memset((void *)t->done, 0, sizeof t->done);
    t->threads = llama_pool_threads(pool);
    llama_pool_run(pool, parts, count_part, t);
    for (uint32_t i = 0; i < PARTS_MAX; i++)
        wrong += atomic_load(&t->done[i]) != (i < parts);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(atomic_load(&t->strangers), 0);
}

static void
test_each_part_once(void)
{
    static tally t;
    const uint32_t parts[] = { 0, 1, 2, 3, 63, 1000, 65535, 65536, 65537, PARTS_MAX };

    for (uint32_t threads = 1; threads <= 4; threads++) {
        llama_pool *pool;

        CHECK_EQ(llama_pool_create(threads, 1, &pool, NULL), BERTH_OK);
        CHECK_EQ(llama_pool_threads(pool), threads);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            check_piece(pool, &t, parts[i]);
        llama_pool_destroy(pool);
    }
}

static void
test_thread_counts(void)
{
    llama_pool *pool;

    CHECK_EQ(llama_pool_create(0, 3, &pool, NULL), BERTH_OK);
    CHECK_EQ(llama_pool_threads(pool), 3);
    llama_pool_destroy(pool);
    CHECK_EQ(llama_pool_create(0, 0, &pool, NULL), BERTH_OK);
    CHECK_EQ(llama_pool_threads(pool), 1);
    llama_pool_destroy(pool);
    CHECK_EQ(llama_pool_create(1000, 2, &pool, NULL), BERTH_OK);
    CHECK_EQ(llama_pool_threads(pool), LLAMA_POOL_MAX);
    llama_pool_destroy(pool);
    llama_pool_destroy(NULL);
}

/* Others help where a part takes long, also after they have slept. */
static void
test_others_help(void)
{
    static tally t = { .sleep = 2000 };
    llama_pool *pool;
    uint32_t helped = 0;

    CHECK_EQ(llama_pool_create(3, 1, &pool, NULL), BERTH_OK);
    for (int i = 0; i < 3; i++) {
        usleep(20000); /* longer than they look out for work */
        check_piece(pool, &t, 12);
    }
    for (uint32_t i = 1; i < 3; i++)
        helped += atomic_load(&t.workers[i]) > 0;
    CHECK_GE(helped, 1);
    llama_pool_destroy(pool);
}

/* Many short pieces one after the other; what they write is seen by the caller. */
typedef struct sum {
    uint64_t values[8];
} sum;

static void
add_one(void *user, uint32_t worker, uint32_t part)
{
    (void)worker;
    ((sum *)user)->values[part]++;
}

static void
test_many_pieces(void)
{
    sum s = { { 0 } };
    llama_pool *pool;

    CHECK_EQ(llama_pool_create(3, 1, &pool, NULL), BERTH_OK);
    for (int i = 0; i < 2000; i++)
        llama_pool_run(pool, 8, add_one, &s);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(s.values[i], 2000);
    llama_pool_destroy(pool);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_each_part_once);
    T_RUN(test_thread_counts);
    T_RUN(test_others_help);
    T_RUN(test_many_pieces);
    T_MAIN_END;
}
