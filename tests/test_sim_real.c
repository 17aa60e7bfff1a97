/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_real.c - simulated devices in real time, and by many threads at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/rig.h"
#include "tests/t.h"

#define THREADS 4
#define ROUNDS 60
#define SLOTS 2
#define BYTES 4096u

/* A line of slots that are filled, read and filled again: what leases do. */
typedef struct line {
    rig *r;
    uint32_t number;
    berthi_device *device;
    uint8_t *host[ROUNDS];
    uint8_t *slots;
    uint8_t seen[ROUNDS];
    uint8_t last[ROUNDS];
    int wrong;
} line;

typedef struct look {
    line *line;
    int round;
} look;

static void
read_slot(void *user)
{
    const look *const l = user;
    const uint8_t *const slot = l->line->slots + l->round % SLOTS * (int)BYTES;

    l->line->seen[l->round] = slot[0];
    l->line->last[l->round] = slot[BYTES - 1];
}

/* With `is_careless` a slot is filled again without waiting for who reads it. */
static void
run_line(line *l, bool is_careless)
{
    look looks[ROUNDS];
    berthi_stream *const copies = rig_stream(l->device);
    berthi_stream *const computes = rig_stream(l->device);
    berthi_event *full[SLOTS];
    berthi_event *empty[SLOTS];

    for (int s = 0; s < SLOTS; s++) {
        full[s] = rig_event(l->device);
        empty[s] = rig_event(l->device);
    }
    for (int i = 0; i < ROUNDS; i++) {
        const int s = i % SLOTS;

        looks[i] = (look){ l, i };
        if (i >= SLOTS && !is_careless)
            rig_wait(l->device, copies, empty[s]);
        rig_to_device(l->device, l->slots + s * (int)BYTES, l->host[i], BYTES, copies);
        rig_record(l->device, full[s], copies);
        rig_wait(l->device, computes, full[s]);
        rig_call(l->device, read_slot, &looks[i], 20000, computes);
        rig_record(l->device, empty[s], computes);
    }
    rig_sync(l->device, computes);
    for (int s = 0; s < SLOTS; s++) {
        l->device->table->event_destroy(l->device, full[s]);
        l->device->table->event_destroy(l->device, empty[s]);
    }
    l->device->table->stream_destroy(l->device, computes);
    l->device->table->stream_destroy(l->device, copies);
    for (int i = 0; i < ROUNDS; i++)
        if (l->seen[i] != (uint8_t)(i + 1) || l->last[i] != (uint8_t)(i + 1))
            l->wrong++;
}

static void *
run_thread(void *user)
{
    run_line(user, false);
    return NULL;
}

static void
open_line(line *l, rig *r, uint32_t number)
{
    memset(l, 0, sizeof *l);
    l->r = r;
    l->number = number;
    l->device = rig_at(r, number % berthi_devices_count(r->devices));
    l->slots = rig_alloc(l->device, SLOTS * BYTES);
    for (int i = 0; i < ROUNDS; i++)
        l->host[i] = rig_pinned(r, BYTES, (uint8_t)(i + 1));
}

static void
close_line(line *l)
{
    for (int i = 0; i < ROUNDS; i++)
        rig_unpinned(l->r, l->host[i], BYTES);
    l->device->table->free(l->device, l->slots, SLOTS * BYTES);
}

static void
check_threads(const char *words)
{
    static line lines[THREADS];
    pthread_t threads[THREADS];
    rig r;

    T_REQUIRE(rig_open(&r, words));
    for (uint32_t i = 0; i < THREADS; i++)
        open_line(&lines[i], &r, i);
    for (int i = 0; i < THREADS; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, run_thread, &lines[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(lines[i].wrong, 0);
        close_line(&lines[i]);
    }
    rig_close(&r);
}

static void
test_many_threads(void)
{
    check_threads("sim:64MiB,h2d=1GB/s,latency=2us,jitter=200%,clock=real,root=1*2");
    check_threads("sim:64MiB,h2d=1GB/s,latency=2us,jitter=200%,pick=random,root=1*2");
}

/* Without the wait for the reader there are wrong bytes: the simulation shows them. */
static void
test_careless_reuse_shows(void)
{
    static line l;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,h2d=1GB/s,latency=0ns"));
    open_line(&l, &r, 0);
    run_line(&l, true);
    CHECK_GT(l.wrong, ROUNDS / 2);
    close_line(&l);
    rig_close(&r);
}

static void
test_real_time_passes(void)
{
    berthi_event *event;
    uint64_t before;
    bool past = true;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,clock=real"));
    event = rig_event(r.device);
    before = rig_now(&r);
    CHECK_GE(berthi_sys_now_ns(), before);
    rig_compute(r.device, 20000000, NULL);
    rig_record(r.device, event, NULL);
    CHECK_EQ(r.device->table->query(r.device, event, &past, NULL), BERTH_OK);
    CHECK(!past);
    rig_await(r.device, event);
    CHECK_GE(rig_now(&r) - before, 20000000);
    CHECK_LT(rig_now(&r) - before, UINT64_C(10000000000));
    r.device->table->event_destroy(r.device, event);
    rig_close(&r);
}

/* The end does not wait for what takes an hour. */
static void
test_close_under_way(void)
{
    const uint64_t before = berthi_sys_now_ns();
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,clock=real"));
    rig_compute(r.device, UINT64_C(3600000000000), NULL);
    rig_compute(r.device, 1, NULL);
    rig_close(&r);
    CHECK_LT(berthi_sys_now_ns() - before, UINT64_C(60000000000));
}

typedef struct slow {
    _Atomic bool has_begun;
    _Atomic bool has_ended;
} slow;

static void
take_long(void *user)
{
    slow *const s = user;
    const uint64_t end = berthi_sys_now_ns() + 30000000;

    atomic_store(&s->has_begun, true);
    while (berthi_sys_now_ns() < end)
        continue;
    atomic_store(&s->has_ended, true);
}

/* Work begins without anybody waiting; memory is not freed while work may touch it. */
static void
test_works_by_itself(void)
{
    slow s = { false, false };
    void *memory;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,clock=real"));
    memory = rig_alloc(r.device, 4096);
    rig_call(r.device, take_long, &s, 0, NULL);
    while (!atomic_load(&s.has_begun))
        continue;
    r.device->table->free(r.device, memory, 4096);
    CHECK(atomic_load(&s.has_ended));
    rig_close(&r);
}

/* A thread that waits is woken by what another one asks for. */
typedef struct waiter {
    rig *r;
    berthi_event *event;
    _Atomic bool is_waiting;
} waiter;

static void *
wait_for_other(void *user)
{
    waiter *const w = user;

    atomic_store(&w->is_waiting, true);
    rig_sync(w->r->device, NULL);
    return NULL;
}

static void
check_woken(const char *words)
{
    berthi_device *device;
    berthi_event *event;
    berthi_stream *stream;
    pthread_t thread;
    waiter w;
    rig r;

    T_REQUIRE(rig_open(&r, words));
    device = r.device;
    event = rig_event(device);
    stream = rig_stream(device);
    w = (waiter){ .r = &r };
    rig_compute(device, 1000, stream);
    rig_record(device, event, stream);
    rig_wait(device, NULL, event);
    rig_compute(device, 1000, NULL);
    T_REQUIRE(pthread_create(&thread, NULL, wait_for_other, &w) == 0);
    while (!atomic_load(&w.is_waiting))
        continue;
    for (int i = 0; i < 20; i++)
        rig_compute(device, 100, stream);
    rig_sync(device, stream);
    pthread_join(thread, NULL);
    device->table->event_destroy(device, event);
    device->table->stream_destroy(device, stream);
    rig_close(&r);
}

static void
test_two_threads_wait(void)
{
    check_woken("sim:64MiB");
    check_woken("sim:64MiB,clock=real");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_many_threads);
    T_RUN(test_careless_reuse_shows);
    T_RUN(test_real_time_passes);
    T_RUN(test_close_under_way);
    T_RUN(test_works_by_itself);
    T_RUN(test_two_threads_wait);
    T_MAIN_END;
}
