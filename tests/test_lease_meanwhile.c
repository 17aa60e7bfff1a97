/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_meanwhile.c - hints, sleep and layers of the disk while the copy of a layer waits
 * for a device that has pinned nothing.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/lease_state.h"
#include "tests/fixture.h"
#include "tests/hanging.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

/* So little is pinned: a ring of RING_BYTES, and no layer. */
#define RING_WORDS "sim:128MiB,pin=512KiB,clock=real"

#define RING_BYTES (UINT64_C(128) << 10)

/* -------------------------------------------------------------------- host memory */

static berth_status
acquire_layer(caller *c)
{
    return berth_layer_acquire(c->h->l.model, c->layer, NULL, &c->error);
}

/* Who is given up while he fills a slot fills it again, with what has been asked for. */
static void
test_a_hint_meanwhile(void)
{
    berth_error error;
    uint64_t copies;
    hanging h;
    caller c = { .h = &h, .ask = caller_release_layer };

    hanging_both(&h, 1);
    c.layer = planned_layer(&h.l.p, "model.layers.0");
    CHECK_EQ(berth_layer_acquire(h.l.model, c.layer, NULL, &error), BERTH_OK);
    caller_begin(&c);
    CHECK_EQ(berth_layer_prefetch(h.l.model, c.layer + 2, &error), BERTH_OK);
    caller_end(&c);
    copies = hung_copies(h.l.devices);
    CHECK_EQ(berth_layer_acquire(h.l.model, c.layer + 2, NULL, &error), BERTH_OK);
    CHECK_EQ(hung_copies(h.l.devices), copies);
    CHECK_EQ(berth_layer_release(h.l.model, c.layer + 2, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 1);
    loaded_end(&h.l);
}

/* What somebody has asked for stays while he fills other slots, whatever others ask for. */
static void
test_another_hint_meanwhile(void)
{
    berth_error error;
    uint64_t told_ns;
    uint32_t first;
    hanging h;
    caller c = { .h = &h, .ask = acquire_layer };

    hanging_layers(&h, "model.layers=cpu", 2);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    h.l.model->wait_ns = HANGING_DISK_NS;
    c.layer = first + 1; /* it lies in a slot; the other one is filled with the next layer */
    caller_begin(&c);
    CHECK_EQ(berth_layer_prefetch(h.l.model, first + 4, &error), BERTH_OK);
    told_ns = berthi_sys_now_ns();
    atomic_store(&h.is_told, true);
    pthread_join(c.thread, NULL);
    CHECK_LT(berthi_sys_now_ns() - told_ns, HANGING_DISK_NS);
    CHECK_EQ(c.status, BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, c.layer, NULL, &error), BERTH_OK);
    hanging_await_copy(&h);
    (void)passed(&h.l, 1);
    loaded_end(&h.l);
}

/* Of four layers of the first device one lies on the disk; two of the second one do. */
static void
begin_mixed(hanging *h)
{
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB,disk=inf");
    const char *pins[12];

    for (uint32_t i = 0; i < 6; i++) {
        pins[2 * i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i / 4);
        pins[2 * i + 1] =
            fixture_format("model.layers.%u.mlp=%s", i, i % 4 > 0 && i < 4 ? "cpu" : "disk");
    }
    options.pins = pins;
    options.pin_count = 12;
    options.slots = 2;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options,
                 RING_WORDS ";sim:128MiB,clock=real");
    h->l.options.ring_bytes = RING_BYTES;
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
    for (uint32_t t = 0; t < h->l.model->tier_count; t++)
        CHECK(!h->l.model->tiers[t].is_pinned);
}

/*
 * Leaves the second and the third of its layers in the slots of the first device. Returns how
 * many copies bring the one of the disk.
 */
static uint64_t
count_copies(hanging *h, uint32_t first)
{
    berth_error error;
    uint64_t copies;

    CHECK_EQ(berth_layer_acquire(h->l.model, first + 2, NULL, &error), BERTH_OK);
    copies = hung_copies(h->l.devices);
    CHECK_EQ(berth_layer_acquire(h->l.model, first, NULL, &error), BERTH_OK);
    copies = hung_copies(h->l.devices) - copies;
    CHECK_EQ(berth_layer_release(h->l.model, first, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(h->l.model, first + 2, NULL, &error), BERTH_OK);
    hanging_use_layer(h, first + 1);
    return copies;
}

/* What lies in host memory behind a layer of the disk is not copied by who reads for all. */
static void
test_behind_a_layer_of_the_disk(void)
{
    berth_error error;
    uint32_t first;
    uint64_t copies;
    hanging h;
    caller c = { .h = &h, .ask = acquire_layer };

    begin_mixed(&h);
    first = planned_layer(&h.l.p, "model.layers.0");
    c.layer = first + 1;
    copies = count_copies(&h, first);
    CHECK_GT(copies, 1);
    hanging_begin(&h, HANGING_OTHERS_NS);
    hung_copy(h.l.devices, copies);
    CHECK_EQ(berth_layer_prefetch(h.l.model, first, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first, NULL, &error), BERTH_OK);
    caller_start(&c);
    hanging_await(&h);
    h.l.model->wait_ns = HANGING_DISK_NS;
    for (uint32_t i = 0; i < 6; i++)
        hanging_use_layer(&h, first + 4 + i % 2);
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    caller_end(&c);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* All layers of the first device lie on the disk, and one of the second; two in host memory. */
static void
begin_disks(hanging *h)
{
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB,disk=inf");
    const char *pins[12];

    for (uint32_t i = 0; i < 6; i++) {
        pins[2 * i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i / 3);
        pins[2 * i + 1] = fixture_format("model.layers.%u.mlp=%s", i, i < 4 ? "disk" : "cpu");
    }
    options.pins = pins;
    options.pin_count = 12;
    options.slots = 2;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, HANGING_WORDS ";" HANGING_WORDS);
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
}

static uint64_t
count_waits(const hanging *h)
{
    berth_lease_summary leases;

    berth_model_leases(h->l.model, &leases);
    return leases.host_waits;
}

/*
 * What reads for all hangs with a device that has not pinned the ring: who waits for a layer in
 * host memory, behind one of the disk that somebody waits for, is not told of the disk.
 */
static void
see_what_did_not_come(void)
{
    berth_error error;
    uint32_t first;
    uint64_t waits;
    hanging h;
    caller c = { .h = &h, .ask = acquire_layer };

    begin_disks(&h);
    first = planned_layer(&h.l.p, "model.layers.0");
    c.layer = first + 3;
    (void)passed(&h.l, 1);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
        CHECK_EQ(berth_layer_acquire(h.l.model, first + 4 + i, NULL, &error), BERTH_OK);
    }
    hanging_begin(&h, HANGING_OTHERS_NS);
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    hanging_await(&h);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + 4 + i, NULL, &error), BERTH_OK);
    h.l.model->wait_ns = HANGING_WAIT_NS;
    waits = count_waits(&h);
    caller_start(&c);
    while (count_waits(&h) == waits)
        berthi_sys_sleep(HUNG_MS_NS);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 4, NULL, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error.message, "had to wait for others, which did not come in time");
    pthread_join(c.thread, NULL);
    CHECK_EQ(c.status, BERTH_EIO);
    CHECK_CONTAINS(c.error.message, "did not come from the disk in time");
    hanging_end(&h);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 1);
    loaded_end(&h.l);
}

/* No thread but that one copies. */
static void
without_couriers(void (*see)(void))
{
    atomic_store(&berthi_lease_without, BERTHI_LEASE_NO_COURIERS);
    see();
    atomic_store(&berthi_lease_without, 0);
}

static void
test_what_did_not_come(void)
{
    without_couriers(see_what_did_not_come);
}

/* Layers of both devices come from the disk in turn; the ring is pinned for the second one. */
static void
begin_turns(hanging *h)
{
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB,disk=inf");
    const char *pins[12];

    for (uint32_t i = 0; i < 6; i++) {
        pins[2 * i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i % 2);
        pins[2 * i + 1] = fixture_format("model.layers.%u.mlp=disk", i);
    }
    options.pins = pins;
    options.pin_count = 12;
    options.slots = 2;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, HANGING_BOTH);
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
}

static void
compute(void *user)
{
    (void)user;
}

/*
 * What reads for all hangs with the first device while copies to the second one wait for work
 * that ends: nobody is told that these hang.
 */
static void
see_copies_that_nobody_looks_at(void)
{
    berth_error error;
    uint32_t first;
    void *stream;
    hanging h;

    begin_turns(&h);
    first = planned_layer(&h.l.p, "model.layers.0");
    CHECK_EQ(berth_stream_create(h.l.devices, 1, &stream, NULL), BERTH_OK);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, i == 1 ? stream : NULL, &error),
                 BERTH_OK);
    CHECK_EQ(berth_stream_call(h.l.devices, 1, stream, compute, NULL, 0.5, NULL), BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, stream, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 5, NULL, &error), BERTH_OK);
    hanging_begin(&h, HANGING_OTHERS_NS);
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    hanging_await(&h);
    h.l.model->wait_ns = HANGING_DISK_NS / 2;
    CHECK_EQ(berth_layer_release(h.l.model, first + 3, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "did not come from the disk in time");
    hanging_end(&h);
    CHECK_EQ(berth_stream_wait(h.l.devices, 1, stream, -1, NULL), BERTH_OK);
    berth_stream_destroy(h.l.devices, 1, stream);
    CHECK_EQ(berth_layer_release(h.l.model, first + 2, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, first + 5, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 1);
    loaded_end(&h.l);
}

static void
test_copies_that_nobody_looks_at(void)
{
    without_couriers(see_copies_that_nobody_looks_at);
}

/* ------------------------------------------------------------- a device that is slow */

/* Copies to it that take so much shorter than it is waited for them, and all together longer. */
#define SLOTS   4u

#define COPY_NS (UINT64_C(250) * HUNG_MS_NS)
#define MOVE_NS (UINT64_C(700) * HUNG_MS_NS)

/* A layer of `bytes` takes COPY_NS. */
static void
slow_down(hanging *h, uint64_t bytes)
{
    berthi_sim_device *const d = (berthi_sim_device *)berthi_devices_at(h->l.devices, 0);

    pthread_mutex_lock(&d->sim->lock);
    d->words.rate_to_device = bytes * 1000 / (COPY_NS / HUNG_MS_NS);
    pthread_mutex_unlock(&d->sim->lock);
}

/* Each of the copies that one call has to end moves: who takes the model waits for them. */
static void
test_sleep_while_copies_move(void)
{
    berth_error error;
    berth_job *job;
    uint64_t copies;
    uint64_t rows;
    uint32_t first;
    hanging h;
    caller c = { .h = &h, .ask = caller_release_layer };

    hanging_layers(&h, "model.layers=cpu", SLOTS);
    T_REQUIRE(h.l.model != NULL);
    first = c.layer = planned_layer(&h.l.p, "model.layers.0");
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
    slow_down(&h, berthi_lease_unit_bytes(h.l.p.plan, first, &rows));
    h.l.model->wait_ns = MOVE_NS;
    copies = hung_copies(h.l.devices);
    caller_start(&c);
    while (hung_copies(h.l.devices) == copies)
        berthi_sys_sleep(HUNG_MS_NS);
    for (uint32_t i = 1; i < SLOTS; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + i, NULL, &error), BERTH_OK);
    T_REQUIRE(berth_model_sleep_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    if (!CHECK_EQ(berth_job_finish(job, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    pthread_join(c.thread, NULL);
    CHECK_EQ(c.status, BERTH_OK);
    loaded_end(&h.l);
}

/* So do those that wait for nobody, and that the move finds in the device's stream. */
static void
test_sleep_behind_copies_that_move(void)
{
    berth_error error;
    berth_job *job;
    uint64_t rows;
    uint32_t first;
    hanging h;

    hanging_layers_on(&h, HANGING_PINNED, "model.layers=cpu", SLOTS);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
    slow_down(&h, berthi_lease_unit_bytes(h.l.p.plan, first, &rows));
    h.l.model->wait_ns = MOVE_NS;
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + i, NULL, &error), BERTH_OK);
    T_REQUIRE(berth_model_sleep_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    if (!CHECK_EQ(berth_job_finish(job, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    loaded_end(&h.l);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_a_hint_meanwhile);
    T_RUN(test_another_hint_meanwhile);
    T_RUN(test_behind_a_layer_of_the_disk);
    T_RUN(test_what_did_not_come);
    T_RUN(test_copies_that_nobody_looks_at);
    T_RUN(test_sleep_while_copies_move);
    T_RUN(test_sleep_behind_copies_that_move);
    return t_end();
}
