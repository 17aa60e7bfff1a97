/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_once.c - who comes first does the work, the others wait for the end of it
 * or of everything.
 */
#include "loader/once.h"

#include <stdatomic.h>
#include <string.h>

#include "loader/berth.h"
#include "tests/t.h"

#define THREADS 8

typedef struct owner {
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    bool is_stopped;
    berthi_once once;
    uint32_t arrived;          /* under the lock */
    _Atomic uint32_t results[3]; /* OK, PENDING, cancelled */
    _Atomic bool is_work_done;
    bool fails;
} owner;

static berth_status
enter(owner *o, berth_error *error)
{
    return berthi_once_enter(&o->once, &o->lock, &o->has_changed, &o->is_stopped, error);
}

static void
stop(owner *o)
{
    pthread_mutex_lock(&o->lock);
    o->is_stopped = true;
    pthread_cond_broadcast(&o->has_changed);
    pthread_mutex_unlock(&o->lock);
}

/* Of the first one: not before all others are on their way. */
static void
work(owner *o)
{
    pthread_mutex_lock(&o->lock);
    while (o->arrived < THREADS)
        pthread_cond_wait(&o->has_changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
    if (o->fails) {
        stop(o);
        return;
    }
    atomic_store(&o->is_work_done, true);
    berthi_once_leave(&o->once, &o->lock, &o->has_changed);
}

static void *
come(void *user)
{
    owner *const o = user;
    berth_error error;
    berth_status status;

    pthread_mutex_lock(&o->lock);
    o->arrived++;
    pthread_cond_broadcast(&o->has_changed);
    pthread_mutex_unlock(&o->lock);
    status = enter(o, &error);
    atomic_fetch_add(&o->results[status == BERTH_OK        ? 0
                                 : status == BERTH_PENDING ? 1
                                                           : 2],
                     1);
    if (status == BERTH_PENDING)
        work(o);
    else if (status == BERTH_OK)
        CHECK(atomic_load(&o->is_work_done));
    else
        CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    return NULL;
}

static void
run(owner *o)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, come, o), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(atomic_load(&o->results[1]), 1);
}

static owner
begin(bool fails)
{
    return (owner){ .lock = PTHREAD_MUTEX_INITIALIZER,
                    .has_changed = PTHREAD_COND_INITIALIZER,
                    .fails = fails };
}

static void
test_others_wait(void)
{
    for (int i = 0; i < 50; i++) {
        owner o = begin(false);
        berth_error error;

        run(&o);
        CHECK_EQ(atomic_load(&o.results[0]), THREADS - 1);
        CHECK_EQ(o.once, BERTHI_ONCE_DONE);
        /* What is done stays done. */
        stop(&o);
        CHECK_EQ(enter(&o, &error), BERTH_OK);
    }
}

static void
test_failure_ends_the_wait(void)
{
    for (int i = 0; i < 50; i++) {
        owner o = begin(true);
        berth_error error;

        run(&o);
        CHECK_EQ(atomic_load(&o.results[2]), THREADS - 1);
        CHECK_EQ(o.once, BERTHI_ONCE_ENTERED);
        CHECK_EQ(enter(&o, &error), BERTH_ECANCELLED);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_others_wait);
    T_RUN(test_failure_ends_the_wait);
    T_MAIN_END;
}
