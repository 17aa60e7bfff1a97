/* SPDX-License-Identifier: Apache-2.0 */
/* values_parallel.c - threads that live for one call. */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/host.h"
#include "kernels/sys.h"
#include "loader/values.h"

#define THREADS_MAX 256u
#define STACK_BYTES (256u * 1024u)

typedef struct shared {
    berthi_values_work work;
    void *user;
    uint64_t parts;
    _Atomic uint64_t next;
    _Atomic uint32_t workers;
} shared;

uint32_t
berthi_values_threads(uint32_t wanted, uint64_t parts)
{
    const uint64_t threads = wanted > 0 ? wanted : parts > 1 ? berthi_host_worker_count() : 1;

    return (uint32_t)berthi_max_u64(
        berthi_min_u64(berthi_min_u64(threads, parts), THREADS_MAX), 1);
}

static void *
run_worker(void *user)
{
    shared *const s = user;
    const uint32_t worker = atomic_fetch_add(&s->workers, 1);

    for (;;) {
        const uint64_t part = atomic_fetch_add(&s->next, 1);

        if (part >= s->parts)
            return NULL;
        s->work(s->user, worker, part);
    }
}

void
berthi_values_run(uint32_t threads, uint64_t parts, berthi_values_work work, void *user)
{
    shared s = { .work = work, .user = user, .parts = parts };
    pthread_t others[THREADS_MAX];
    uint32_t started = 0;

    while (started + 1 < threads
           && berthi_sys_thread_create(&others[started], STACK_BYTES, run_worker, &s) == 0)
        started++;
    run_worker(&s);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}
