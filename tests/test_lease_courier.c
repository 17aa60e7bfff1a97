/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_courier.c - devices that have not pinned the ring which others stream through as
 * well: a thread of their own waits in copies to them, and nobody else does.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "loader/lease_feed.h"
#include "loader/model.h"
#include "tests/hung.h"
#include "tests/passed.h"
#include "tests/streams.h"
#include "tests/t.h"

static void
test_one_device(void)
{
    streams_see_one_hang(STREAMS_BIG_RING_BYTES, 2, 1, 0);
    streams_see_one_hang(STREAMS_BIG_RING_BYTES, 2, 2, 1);
}

static void
test_three_devices(void)
{
    streams_see_one_hang(STREAMS_BIG_RING_BYTES, 3, 6, 1);
}

static void
test_two_of_three_hang(void)
{
    streams_see_two_of_three_hang(STREAMS_BIG_RING_BYTES, 3);
}

static void
test_comes_back(void)
{
    streams_see_one_come_back(STREAMS_BIG_RING_BYTES, 2);
}

static void
test_experts(void)
{
    streams_see_experts(1);
}

static void
test_layers_beside_experts(void)
{
    streams_see_both(true, 1);
}

/* Somebody uses the first device, which has pinned nothing, and hangs by now. */
static void
begin_hung(streams *h, streams_user *late)
{
    h->unpinned = 1;
    streams_begin_layers(h, 2, STREAMS_BIG_RING_BYTES);
    *late = streams_layer_user(h, 0);
    streams_hang(h, 0);
    streams_start(late);
    while (!hung_has(h->l.devices))
        berthi_sys_sleep(HUNG_MS_NS);
}

/* A slot that is written to is not given up, and whoever misses something else is told. */
static void
test_reads_that_fail_beside(void)
{
    streams h = { .no_uring = true }; /* a ring's calls would go on to fail */
    streams_user other;
    streams_user late;

    begin_hung(&h, &late);
    other = streams_layer_user(&h, 1);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    while (streams_use(&other))
        ;
    berthi_fault_disarm();
    CHECK_EQ(other.error.status, BERTH_EIO);
    CHECK_NE(other.error.reason, BERTH_REASON_TIMEOUT);
    (void)streams_use(&other); /* what was asked for before may have failed meanwhile */
    for (uint32_t i = 0; i < STREAMS_LAYERS; i++)
        CHECK(streams_use(&other));
    streams_recover(&h, 0);
    streams_stop(&late);
    if (!CHECK(late.refused == 0 || late.error.reason == BERTH_REASON_TIMEOUT))
        T_NOTE("%s", late.error.message);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

static void *
recover_when_it_ends(void *argument)
{
    streams *const h = argument;
    const berthi_feeder *const feeder = h->l.model->leases->feeder;

    while (!atomic_load(&feeder->is_stopped))
        berthi_sys_sleep(HUNG_MS_NS);
    streams_recover(h, 0);
    return NULL;
}

/* Whoever gives the model back waits for the copy. */
static void
test_given_back(void)
{
    streams h = { .read = NULL };
    pthread_t thread;
    streams_user late;

    begin_hung(&h, &late);
    streams_stop(&late);
    T_REQUIRE(pthread_create(&thread, NULL, recover_when_it_ends, &h) == 0);
    loaded_unload(&h.l);
    pthread_join(thread, NULL);
    loaded_end(&h.l);
}

static uint32_t
count_couriers(const streams *h)
{
    const berthi_leases *const leases = h->l.model->leases;
    uint32_t count = 0;

    for (uint32_t i = 0; i < leases->line_count; i++)
        count += leases->feeder->couriers[i].has_thread;
    return count;
}

/* Where nobody else would wait, or all have pinned the ring, nothing but its thread copies. */
static void
test_who_has_one(void)
{
    static const struct {
        uint32_t devices;
        uint32_t unpinned;
        uint32_t couriers;
    } cases[] = { { 1, 0, 0 }, { 1, 1, 0 }, { 2, 0, 0 }, { 2, 2, 1 }, { 3, 5, 2 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        streams h = { .unpinned = cases[i].unpinned };

        streams_begin_layers(&h, cases[i].devices, STREAMS_BIG_RING_BYTES);
        CHECK_EQ(count_couriers(&h), cases[i].couriers);
        loaded_end(&h.l);
    }
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_one_device);
    T_RUN(test_three_devices);
    T_RUN(test_two_of_three_hang);
    T_RUN(test_comes_back);
    T_RUN(test_experts);
    T_RUN(test_layers_beside_experts);
    T_RUN(test_reads_that_fail_beside);
    T_RUN(test_given_back);
    T_RUN(test_who_has_one);
    return t_end();
}
