/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_hung.c - layers and experts of several devices come through one ring that all of
 * them have pinned: whoever asks gets his part, beside others that ask without a pause, and
 * while copies to some hang.
 */
#include <stdatomic.h>

#include "loader/model.h"
#include "tests/hung.h"
#include "tests/passed.h"
#include "tests/streams.h"
#include "tests/t.h"

/* -------------------------------------------------------------------------- layers */

static void
test_two_devices(void)
{
    streams_see_one_hang(STREAMS_RING_BYTES, 2, 0, 0);
    streams_see_one_hang(STREAMS_RING_BYTES, 2, 0, 1);
}

static void
test_three_devices(void)
{
    streams_see_one_hang(STREAMS_RING_BYTES, 3, 0, 1);
}

static void
test_two_of_three_hang(void)
{
    streams_see_two_of_three_hang(STREAMS_RING_BYTES, 0);
}

/* It has a buffer for each layer. */
static void
test_a_large_ring(void)
{
    streams_see_one_hang(0, 2, 0, 0);
}

static void
test_comes_back(void)
{
    streams_see_one_come_back(STREAMS_RING_BYTES, 0);
}

/* -------------------------------------------------------------------------- reading */

static berth_status
hint(streams_user *u, uint32_t number, berth_error *error)
{
    return berth_layer_prefetch(u->h->l.model, u->h->first + u->device * STREAMS_LAYERS + number,
                                error);
}

static uint64_t
count_copied(const streams *h)
{
    berth_lease_summary leases;

    berth_model_leases(h->l.model, &leases);
    return leases.disk_bytes;
}

/* Whatever is asked of the device that hangs, nothing is read for it, nor twice for others. */
static void
test_what_is_read(void)
{
    _Atomic uint64_t read = 0;
    uint64_t copied;
    streams_user other;
    streams_user late;
    streams h = { .read = &read };

    streams_begin_layers(&h, 2, STREAMS_BIG_RING_BYTES);
    other = streams_layer_user(&h, 1);
    late = streams_layer_user(&h, 0);
    CHECK(streams_use(&late));
    CHECK(streams_use(&late)); /* what it may have now, however slow the machine; then it hangs */
    streams_hang(&h, 0);
    late.use = hint;
    /* Where all that it may have was there before, the layer behind this one comes in its turn. */
    CHECK_EQ(hint(&late, 0, NULL), BERTH_OK);
    while (!hung_has(h.l.devices))
        CHECK(streams_use(&other));
    for (uint32_t i = 0; i < 2 * STREAMS_LAYERS; i++) /* not only what has been read for it */
        CHECK(streams_use(&other));
    streams_start(&late);
    copied = count_copied(&h);
    atomic_store(&read, 0);
    for (uint32_t i = 0; i < 8 * STREAMS_LAYERS; i++)
        CHECK(streams_use(&other));
    copied = count_copied(&h) - copied;
    T_NOTE("%u KiB are read for %u KiB", (unsigned)(atomic_load(&read) >> 10),
           (unsigned)(copied >> 10));
    CHECK_GT(copied, 0);
    CHECK_LT(atomic_load(&read), copied + copied / 16 + 2 * STREAMS_BIG_RING_BYTES);
    streams_stop(&late);
    streams_recover(&h, 0);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* -------------------------------------------------------------------------- experts */

static void
test_experts(void)
{
    streams_see_experts(0);
}

/* ------------------------------------------------------------- layers beside experts */

/* More devices hang than a quarter of the ring has buffers: experts of the last one come. */
static void
test_experts_of_the_last_device(void)
{
    streams h = { .read = NULL };

    streams_begin_both(&h, STREAMS_DEVICES);
    for (uint32_t d = 0; d < STREAMS_DEVICES; d++) {
        streams_user layer = streams_only_layer_user(&h, d);
        streams_user experts = streams_expert_user(&h, d);

        CHECK(streams_use(&layer));
        if (d + 1 < STREAMS_DEVICES) {
            streams_hang(&h, d);
            streams_use_until_told(&experts);
            continue;
        }
        for (uint32_t i = 0; i < STREAMS_EXPERTS; i++)
            CHECK(streams_use(&experts));
    }
    for (uint32_t d = 0; d + 1 < STREAMS_DEVICES; d++)
        streams_recover(&h, d);
    loaded_end(&h.l);
}

static void
test_layers_beside_experts(void)
{
    streams_see_both(false, 0);
    streams_see_both(true, 0);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_two_devices);
    T_RUN(test_three_devices);
    T_RUN(test_two_of_three_hang);
    T_RUN(test_a_large_ring);
    T_RUN(test_comes_back);
    T_RUN(test_what_is_read);
    T_RUN(test_experts);
    T_RUN(test_experts_of_the_last_device);
    T_RUN(test_layers_beside_experts);
    return t_end();
}
