/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_unpinned.c - layers and experts whose bytes lie in memory that no device has
 * pinned, or come from the disk through such: their copies wait for the device, and nobody
 * else waits for that.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/lease_state.h"
#include "loader/model.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

#define WORDS      "sim:128MiB,pin=0,clock=real"
#define PINNED_WORDS "sim:128MiB,clock=real"
/* The second one pins what it likes. */
#define BOTH_WORDS WORDS ";" PINNED_WORDS
#define WAIT_NS    (UINT64_C(200) * HUNG_MS_NS)
/* So little is pinned: a ring of RING_BYTES, and no layer. */
#define RING_WORDS "sim:128MiB,pin=512KiB,clock=real"
#define RING_BYTES (UINT64_C(128) << 10)
#define PATIENT_NS (UINT64_C(60000) * HUNG_MS_NS)
/* So long hangs a copy that nobody waits for, however much the machine has to do. */
#define OTHERS_NS  (UINT64_C(20000) * HUNG_MS_NS)
/* Others are not as late as that on a machine that has much to do. */
#define DISK_NS    (UINT64_C(2000) * HUNG_MS_NS)

/* ------------------------------------------------------------------ a copy that hangs */

typedef struct hanging {
    loaded l;
    uint64_t for_ns; /* at most */
    _Atomic bool is_told; /* to let the copy go */
    bool was_told;
    pthread_t thread;
} hanging;

static void *
let_go(void *user)
{
    hanging *const h = user;
    const uint64_t end_ns = berthi_sys_now_ns() + h->for_ns;

    while (!atomic_load(&h->is_told) && berthi_sys_now_ns() < end_ns)
        berthi_sys_sleep(HUNG_MS_NS);
    h->was_told = atomic_load(&h->is_told);
    berthi_sim_release(berthi_devices_at(h->l.devices, 0));
    return NULL;
}

/* The next copy hangs, for so long at most; whoever gives up would wait for longer. */
static void
hang(hanging *h, uint64_t for_ns)
{
    h->l.p.context->hung_ns = PATIENT_NS;
    h->for_ns = for_ns;
    atomic_store(&h->is_told, false);
    hung_copy(h->l.devices, 0);
}

static void
await_hang(hanging *h)
{
    while (!hung_has(h->l.devices))
        berthi_sys_sleep(HUNG_MS_NS);
    T_REQUIRE(pthread_create(&h->thread, NULL, let_go, h) == 0);
}

static void
await_copy(hanging *h)
{
    pthread_join(h->thread, NULL);
    h->l.model->wait_ns = PATIENT_NS;
}

/*
 * Nothing so far has waited for the copy that hangs: it would have been for that long. Who
 * made it goes on as soon as it is let go, and looks at how long he may wait.
 */
static void
end_hang(hanging *h)
{
    h->l.model->wait_ns = PATIENT_NS;
    atomic_store(&h->is_told, true);
    pthread_join(h->thread, NULL);
    CHECK(h->was_told);
}

static void
check_late(berth_status status, const berth_error *error)
{
    CHECK_EQ(status, BERTH_EIO);
    CHECK_EQ(error->reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error->message, "has not finished its copies");
}

/* ------------------------------------------------------------------------- layers */

static void
begin_layers_on(hanging *h, const char *words, const char *place, uint32_t slots)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");

    options.pins = &place;
    options.pin_count = 1;
    options.slots = slots;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, words);
    loaded_load(&h->l);
    CHECK_EQ(h->l.status, BERTH_OK);
}

static void
begin_layers(hanging *h, const char *place, uint32_t slots)
{
    begin_layers_on(h, WORDS, place, slots);
    CHECK_EQ(h->l.report.is_pinned, 0);
}

static void
test_layers(void)
{
    berth_error error;
    uint32_t first;
    hanging h;

    begin_layers(&h, "model.layers=disk", 2);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    (void)passed(&h.l, 1);
    CHECK_EQ(berth_layer_acquire(h.l.model, first, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_OK);
    hang(&h, OTHERS_NS);
    h.l.model->wait_ns = WAIT_NS;
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    await_hang(&h);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_prefetch(h.l.model, first + 4, &error), BERTH_OK);
    check_late(berth_layer_acquire(h.l.model, first + 2, NULL, &error), &error);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    end_hang(&h);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 4, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, first + 4, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* A job that takes the model waits for it, or as long as for anything. */
static void
test_sleep(void)
{
    berth_error error;
    berth_job *job;
    uint32_t first;
    hanging h;

    begin_layers(&h, "model.layers=disk", 2);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    (void)passed(&h.l, 1);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
    hang(&h, PATIENT_NS);
    h.l.model->wait_ns = WAIT_NS;
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + i, NULL, &error), BERTH_OK);
    await_hang(&h);
    T_REQUIRE(berth_model_sleep_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    h.l.model->wait_ns = PATIENT_NS;
    T_REQUIRE(berth_model_sleep_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, (int64_t)(2 * WAIT_NS / HUNG_MS_NS)), BERTH_PENDING);
    atomic_store(&h.is_told, true);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    end_hang(&h);
    T_REQUIRE(berth_model_wake_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* ------------------------------------------------------------------------ experts */

static void
test_experts(void)
{
    static const char *const pins[] = { "model.layers.0.block_sparse_moe.experts=disk" };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");
    uint32_t numbers[16];
    berth_error error;
    uint32_t layer;
    uint32_t slots;
    hanging h;

    for (uint32_t i = 0; i < 16; i++)
        numbers[i] = i;
    options.pins = pins;
    options.pin_count = 1;
    loaded_begin(&h.l, planned_moe(1, 16), &options, WORDS);
    loaded_load(&h.l);
    T_REQUIRE(CHECK_EQ(h.l.status, BERTH_OK));
    layer = planned_layer(&h.l.p, "model.layers.0");
    slots = berth_experts_slots(h.l.model, layer);
    T_REQUIRE(CHECK_GE(slots, 2) && CHECK_LT(slots, 16));
    /* Others come and go, but for the disk. */
    hang(&h, OTHERS_NS);
    h.l.model->wait_ns = WAIT_NS;
    CHECK_EQ(berth_experts_prefetch(h.l.model, layer, &numbers[0], 1, &error), BERTH_OK);
    await_hang(&h);
    CHECK_EQ(berth_experts_prefetch(h.l.model, layer, &numbers[1], 1, &error), BERTH_OK);
    check_late(berth_experts_acquire(h.l.model, layer, &numbers[2], 1, NULL, &error), &error);
    end_hang(&h);
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, numbers, slots, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(h.l.model, layer, numbers, slots, NULL, &error), BERTH_OK);
    /* The slot that is written to can be had when that is over. */
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, numbers, slots - 1, NULL, &error),
             BERTH_OK);
    hang(&h, WAIT_NS);
    CHECK_EQ(berth_experts_prefetch(h.l.model, layer, &numbers[14], 1, &error), BERTH_OK);
    await_hang(&h);
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, &numbers[15], 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, &numbers[14], 1, NULL, &error),
             BERTH_ENOFIT);
    await_copy(&h);
    CHECK_EQ(berth_experts_release(h.l.model, layer, &numbers[15], 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(h.l.model, layer, numbers, slots - 1, NULL, &error),
             BERTH_OK);
    loaded_end(&h.l);
}

/* -------------------------------------------------------------------- host memory */

/* Who is in the call that waits for the copy. */
typedef struct caller caller;
struct caller {
    hanging *h;
    berth_status (*ask)(caller *c);
    uint32_t layer;
    const uint32_t *experts;
    uint32_t count;
    berth_status status;
    berth_error error;
    pthread_t thread;
};

static berth_status
release_layer(caller *c)
{
    return berth_layer_release(c->h->l.model, c->layer, NULL, &c->error);
}

static berth_status
acquire_layer(caller *c)
{
    return berth_layer_acquire(c->h->l.model, c->layer, NULL, &c->error);
}

static berth_status
acquire_experts(caller *c)
{
    return berth_experts_acquire(c->h->l.model, c->layer, c->experts, c->count, NULL,
                                 &c->error);
}

static berth_status
prefetch_experts(caller *c)
{
    return berth_experts_prefetch(c->h->l.model, c->layer, c->experts, c->count, &c->error);
}

static void *
call(void *user)
{
    caller *const c = user;

    c->status = c->ask(c);
    return NULL;
}

static void
start_call(caller *c)
{
    T_REQUIRE(pthread_create(&c->thread, NULL, call, c) == 0);
}

/* The first copy that it asks for hangs. */
static void
begin_call(caller *c)
{
    hang(c->h, OTHERS_NS);
    start_call(c);
    await_hang(c->h);
}

static void
end_call(caller *c)
{
    end_hang(c->h);
    pthread_join(c->thread, NULL);
    CHECK_EQ(c->status, BERTH_OK);
}

static void
use_layer(hanging *h, uint32_t layer)
{
    berth_error error;

    if (!CHECK_EQ(berth_layer_acquire(h->l.model, layer, NULL, &error), BERTH_OK))
        T_NOTE("layer %u: %s", layer, error.message);
    else
        CHECK_EQ(berth_layer_release(h->l.model, layer, NULL, &error), BERTH_OK);
}

static void
use_expert(hanging *h, uint32_t layer, uint32_t number)
{
    berth_error error;

    if (!CHECK_EQ(berth_experts_acquire(h->l.model, layer, &number, 1, NULL, &error),
                  BERTH_OK))
        T_NOTE("expert %u: %s", number, error.message);
    else
        CHECK_EQ(berth_experts_release(h->l.model, layer, &number, 1, NULL, &error),
                 BERTH_OK);
}

/* Three layers of the first device in host memory, three of the second one on the disk. */
static void
begin_both(hanging *h, uint32_t slots)
{
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB,disk=inf");
    const char *pins[12];

    for (uint32_t i = 0; i < 6; i++) {
        pins[2 * i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i / 3);
        pins[2 * i + 1] =
            fixture_format("model.layers.%u.mlp=%s", i, i < 3 ? "cpu" : "disk");
    }
    options.pins = pins;
    options.pin_count = 12;
    options.slots = slots;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, BOTH_WORDS);
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
}

/* Somebody who uses layers of one device, and never stops by himself. */
typedef struct other {
    hanging *h;
    uint32_t first;
    _Atomic bool is_stopped;
    _Atomic uint32_t uses;
    pthread_t thread;
} other;

static void *
go_on(void *argument)
{
    other *const o = argument;

    while (!atomic_load(&o->is_stopped)) {
        const uint32_t layer = o->first + atomic_fetch_add(&o->uses, 1) % 3;
        berth_error error;

        if (berth_layer_acquire(o->h->l.model, layer, NULL, &error) == BERTH_OK)
            CHECK_EQ(berth_layer_release(o->h->l.model, layer, NULL, &error), BERTH_OK);
    }
    return NULL;
}

static void
begin_other(other *o, hanging *h, uint32_t first)
{
    *o = (other){ .h = h, .first = first };
    T_REQUIRE(pthread_create(&o->thread, NULL, go_on, o) == 0);
}

static void
end_other(other *o)
{
    atomic_store(&o->is_stopped, true);
    pthread_join(o->thread, NULL);
}

/* A release that fills the slot with the next layer. */
static void
test_layers_of_the_host(void)
{
    berth_error error;
    uint32_t first;
    hanging h;
    caller c = { .h = &h, .ask = release_layer };
    other o;

    begin_both(&h, 2);
    first = planned_layer(&h.l.p, "model.layers.0");
    (void)passed(&h.l, 1);
    CHECK_EQ(berth_layer_acquire(h.l.model, first, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_OK);
    c.layer = first;
    begin_call(&c);
    h.l.model->wait_ns = DISK_NS;
    for (uint32_t i = 0; i < 9; i++) /* layers of the other device come from the disk */
        use_layer(&h, first + 3 + i % 3);
    use_layer(&h, first + 1);
    h.l.model->wait_ns = WAIT_NS;
    CHECK_EQ(berth_layer_prefetch(h.l.model, first, &error), BERTH_OK);
    /* That others move says nothing about this device. */
    begin_other(&o, &h, first + 3);
    check_late(berth_layer_acquire(h.l.model, first + 2, NULL, &error), &error);
    check_late(berth_layer_acquire(h.l.model, first, NULL, &error), &error);
    CHECK_GT(atomic_load(&o.uses), 0);
    end_other(&o);
    end_call(&c);
    use_layer(&h, first);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* Who is given up while he fills a slot fills it again, with what has been asked for. */
static void
test_a_hint_meanwhile(void)
{
    berth_error error;
    uint64_t copies;
    hanging h;
    caller c = { .h = &h, .ask = release_layer };

    begin_both(&h, 1);
    c.layer = planned_layer(&h.l.p, "model.layers.0");
    CHECK_EQ(berth_layer_acquire(h.l.model, c.layer, NULL, &error), BERTH_OK);
    begin_call(&c);
    CHECK_EQ(berth_layer_prefetch(h.l.model, c.layer + 2, &error), BERTH_OK);
    end_call(&c);
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

    begin_layers(&h, "model.layers=cpu", 2);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    h.l.model->wait_ns = DISK_NS;
    c.layer = first + 1; /* it lies in a slot; the other one is filled with the next layer */
    begin_call(&c);
    CHECK_EQ(berth_layer_prefetch(h.l.model, first + 4, &error), BERTH_OK);
    told_ns = berthi_sys_now_ns();
    atomic_store(&h.is_told, true);
    pthread_join(c.thread, NULL);
    CHECK_LT(berthi_sys_now_ns() - told_ns, DISK_NS);
    CHECK_EQ(c.status, BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, c.layer, NULL, &error), BERTH_OK);
    await_copy(&h);
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
    use_layer(h, first + 1);
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
    hang(&h, OTHERS_NS);
    hung_copy(h.l.devices, copies);
    CHECK_EQ(berth_layer_prefetch(h.l.model, first, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first, NULL, &error), BERTH_OK);
    start_call(&c);
    await_hang(&h);
    h.l.model->wait_ns = DISK_NS;
    for (uint32_t i = 0; i < 6; i++)
        use_layer(&h, first + 4 + i % 2);
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    end_call(&c);
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
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, WORDS ";" WORDS);
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
    hang(&h, OTHERS_NS);
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    await_hang(&h);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + 4 + i, NULL, &error), BERTH_OK);
    h.l.model->wait_ns = WAIT_NS;
    waits = count_waits(&h);
    start_call(&c);
    while (count_waits(&h) == waits)
        berthi_sys_sleep(HUNG_MS_NS);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 4, NULL, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error.message, "had to wait for others, which did not come in time");
    pthread_join(c.thread, NULL);
    CHECK_EQ(c.status, BERTH_EIO);
    CHECK_CONTAINS(c.error.message, "did not come from the disk in time");
    end_hang(&h);
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
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, BOTH_WORDS);
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
    hang(&h, OTHERS_NS);
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    await_hang(&h);
    h.l.model->wait_ns = DISK_NS / 2;
    CHECK_EQ(berth_layer_release(h.l.model, first + 3, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_EIO);
    CHECK_CONTAINS(error.message, "did not come from the disk in time");
    end_hang(&h);
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
    caller c = { .h = &h, .ask = release_layer };

    begin_layers(&h, "model.layers=cpu", SLOTS);
    T_REQUIRE(h.l.model != NULL);
    first = c.layer = planned_layer(&h.l.p, "model.layers.0");
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
    slow_down(&h, berthi_lease_unit_bytes(h.l.p.plan, first, &rows));
    h.l.model->wait_ns = MOVE_NS;
    copies = hung_copies(h.l.devices);
    start_call(&c);
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

/* Experts in host memory, and of another device on the disk. */
static void
begin_experts(hanging *h)
{
    static const char *const pins[] = {
        "model.layers.0.input_layernorm=cuda:0",
        "model.layers.0.block_sparse_moe.experts=cpu",
        "model.layers.1.input_layernorm=cuda:1",
        "model.layers.1.block_sparse_moe.experts=disk",
    };
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB,disk=inf");

    options.pins = pins;
    options.pin_count = 4;
    loaded_begin(&h->l, planned_moe(2, 16), &options, BOTH_WORDS);
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
}

static void
test_experts_of_the_host(void)
{
    static const uint32_t wanted[] = { 3, 4, 3 };
    static const uint32_t others = 5;
    uint32_t first;
    berth_error error;
    hanging h;
    caller c = { .h = &h, .ask = acquire_experts, .experts = wanted, .count = 3 };

    begin_experts(&h);
    first = c.layer = planned_layer(&h.l.p, "model.layers.0");
    use_expert(&h, first, 0);
    begin_call(&c);
    h.l.model->wait_ns = DISK_NS;
    for (uint32_t i = 0; i < 9; i++)
        use_expert(&h, first + 1, i);
    use_expert(&h, first, 0); /* it lies there already */
    h.l.model->wait_ns = WAIT_NS;
    check_late(berth_experts_acquire(h.l.model, first, &wanted[0], 1, NULL, &error), &error);
    check_late(berth_experts_acquire(h.l.model, first, &wanted[1], 1, NULL, &error), &error);
    CHECK_EQ(berth_experts_prefetch(h.l.model, first, &others, 1, &error), BERTH_OK);
    check_late(berth_experts_acquire(h.l.model, first, &others, 1, NULL, &error), &error);
    end_call(&c);
    CHECK_EQ(berth_experts_release(h.l.model, first, wanted, 3, NULL, &error), BERTH_OK);
    for (uint32_t i = 0; i < 16; i++)
        use_expert(&h, first, i);
    loaded_end(&h.l);
}

/* Experts of one device, some in host memory, some on the disk; one fits into the ring. */
static void
begin_mixed_experts(hanging *h)
{
    static const char *const pins[] = {
        "model.layers.0.block_sparse_moe.experts=cpu",
        "model.layers.1.block_sparse_moe.experts=disk",
    };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");

    options.pins = pins;
    options.pin_count = 2;
    loaded_begin(&h->l, planned_moe(2, 16), &options, "sim:128MiB,pin=24MiB,clock=real");
    h->l.options.ring_bytes = UINT64_C(16) << 20;
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
    for (uint32_t t = 0; t < h->l.model->tier_count; t++)
        CHECK(!h->l.model->tiers[t].is_pinned);
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

    begin_layers_on(&h, PINNED_WORDS, "model.layers=cpu", SLOTS);
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

/* The attention of two layers of the first device, and experts of the second, on the disk. */
static void
begin_pinned(hanging *h)
{
    static const char *const pins[] = {
        "model.layers.0.input_layernorm=cuda:0", "model.layers.0.self_attn=disk",
        "model.layers.1.input_layernorm=cuda:0", "model.layers.1.self_attn=disk",
        "model.layers.2.input_layernorm=cuda:1",
        "model.layers.2.block_sparse_moe.experts=disk",
    };
    berth_plan_options options = loaded_options("0=100MiB,1=64MiB,cpu=64MiB,disk=inf");

    options.pins = pins;
    options.pin_count = 6;
    options.slots = 2;
    loaded_begin(&h->l, planned_moe(3, 16), &options, PINNED_WORDS ";" PINNED_WORDS);
    h->l.options.ring_bytes = UINT64_C(16) << 20;
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
}

static void *
go_on_with_experts(void *argument)
{
    other *const o = argument;

    while (!atomic_load(&o->is_stopped))
        use_expert(o->h, o->first, atomic_fetch_add(&o->uses, 1) % 16);
    return NULL;
}

/* Copies out of a ring that is pinned wait for nobody, and whoever waits for them does. */
static void
test_a_ring_that_is_pinned(void)
{
    berth_error error;
    uint32_t first;
    hanging h;
    other o;

    begin_pinned(&h);
    first = planned_layer(&h.l.p, "model.layers.0");
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
    hang(&h, OTHERS_NS);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + i, NULL, &error), BERTH_OK);
    await_hang(&h);
    h.l.model->wait_ns = DISK_NS; /* before anybody else looks at it */
    o = (other){ .h = &h, .first = first + 2 };
    T_REQUIRE(pthread_create(&o.thread, NULL, go_on_with_experts, &o) == 0);
    check_late(berth_layer_acquire(h.l.model, first + 1, NULL, &error), &error);
    CHECK_GT(atomic_load(&o.uses), 1);
    end_other(&o);
    end_hang(&h);
    use_layer(&h, first);
    loaded_end(&h.l);
}

/* Who waits for the slot that is written to takes another one that comes free before. */
static void
test_room_meanwhile(void)
{
    static const uint32_t last = 15;
    uint32_t numbers[16];
    uint32_t first;
    uint32_t slots;
    berth_error error;
    hanging h;
    caller c = { .h = &h, .ask = prefetch_experts, .experts = &last, .count = 1 };
    caller who = { .h = &h, .ask = acquire_experts, .experts = &last, .count = 1 };

    for (uint32_t i = 0; i < 16; i++)
        numbers[i] = i;
    begin_mixed_experts(&h);
    first = c.layer = planned_layer(&h.l.p, "model.layers.0");
    who.layer = first + 1;
    slots = berth_experts_slots(h.l.model, first);
    T_REQUIRE(CHECK_GE(slots, 2) && CHECK_LT(slots, 16));
    CHECK_EQ(berth_experts_acquire(h.l.model, first, numbers, slots - 1, NULL, &error),
             BERTH_OK);
    begin_call(&c);
    h.l.model->wait_ns = DISK_NS;
    start_call(&who);
    berthi_sys_sleep(50 * HUNG_MS_NS); /* it waits by now, or need not */
    CHECK_EQ(berth_experts_release(h.l.model, first, numbers, 1, NULL, &error), BERTH_OK);
    pthread_join(who.thread, NULL);
    if (!CHECK_EQ(who.status, BERTH_OK))
        T_NOTE("%s", who.error.message);
    else
        CHECK_EQ(berth_experts_release(h.l.model, first + 1, &last, 1, NULL, &error), BERTH_OK);
    end_call(&c);
    CHECK_EQ(berth_experts_release(h.l.model, first, &numbers[1], slots - 2, NULL, &error),
             BERTH_OK);
    for (uint32_t i = 0; i < 16; i++)
        use_expert(&h, first + i % 2, i);
    loaded_end(&h.l);
}

/* ------------------------------------------------------------------- many at once */

#define USERS 4u
#define USES  400u

typedef struct user {
    hanging *h;
    uint32_t first;
    uint64_t random;
    uint32_t refused; /* others had the slots */
    pthread_t thread;
} user;

static uint32_t
draw(user *u, uint32_t end)
{
    u->random = u->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(u->random >> 33) % end;
}

/* True: it was acquired. */
static bool
is_given(user *u, berth_status status, const berth_error *error)
{
    if (status == BERTH_ENOFIT)
        u->refused++;
    else if (!CHECK_EQ(status, BERTH_OK))
        T_NOTE("%s", error->message);
    return status == BERTH_OK;
}

static void *
use_layers(void *argument)
{
    user *const u = argument;
    berth_model *const model = u->h->l.model;

    for (uint32_t i = 0; i < USES; i++) {
        const uint32_t layer = u->first + draw(u, 3);
        berth_error error;

        if (draw(u, 4) == 0)
            CHECK_EQ(berth_layer_prefetch(model, u->first + draw(u, 3), &error), BERTH_OK);
        if (is_given(u, berth_layer_acquire(model, layer, NULL, &error), &error))
            CHECK_EQ(berth_layer_release(model, layer, NULL, &error), BERTH_OK);
    }
    return NULL;
}

static void *
use_experts(void *argument)
{
    user *const u = argument;
    berth_model *const model = u->h->l.model;

    for (uint32_t i = 0; i < USES; i++) {
        const uint32_t numbers[3] = { draw(u, 16), draw(u, 16), draw(u, 16) };
        berth_error error;

        if (draw(u, 4) == 0)
            CHECK_EQ(berth_experts_prefetch(model, u->first, numbers, 3, &error), BERTH_OK);
        if (is_given(u, berth_experts_acquire(model, u->first, numbers, 2, NULL, &error),
                     &error))
            CHECK_EQ(berth_experts_release(model, u->first, numbers, 2, NULL, &error),
                     BERTH_OK);
    }
    return NULL;
}

/* Each gets most of what it asks for. */
static void
use_together(hanging *h, uint32_t first, void *(*use)(void *))
{
    user users[USERS];
    uint32_t refused = 0;

    for (uint32_t i = 0; i < USERS; i++) {
        users[i] = (user){ .h = h, .first = first, .random = i + 1 };
        T_REQUIRE(pthread_create(&users[i].thread, NULL, use, &users[i]) == 0);
    }
    for (uint32_t i = 0; i < USERS; i++) {
        pthread_join(users[i].thread, NULL);
        refused += users[i].refused;
    }
    CHECK_LT(refused, USERS * USES / 2);
    T_NOTE("%u of %u refused", refused, USERS * USES);
}

/* Who has released a layer does not go on copying for somebody who never stops. */
static void
test_others_copy_for_themselves(void)
{
    uint32_t most = 0; /* uses by the other in a single call */
    berth_error error;
    hanging h;
    other o;

    begin_both(&h, 2);
    begin_other(&o, &h, planned_layer(&h.l.p, "model.layers.0"));
    for (uint32_t i = 0; i < USES; i++) {
        const uint32_t layer = o.first + i % 3;
        uint32_t before;
        uint32_t uses;

        if (berth_layer_acquire(h.l.model, layer, NULL, &error) != BERTH_OK)
            continue;
        before = atomic_load(&o.uses);
        CHECK_EQ(berth_layer_release(h.l.model, layer, NULL, &error), BERTH_OK);
        uses = atomic_load(&o.uses) - before;
        most = uses > most ? uses : most;
    }
    end_other(&o);
    T_NOTE("at most %u of %u uses in one release", most, atomic_load(&o.uses));
    CHECK_LT(most, 100);
    loaded_end(&h.l);
}

static void
test_layers_together(void)
{
    uint32_t first;
    hanging h;

    begin_both(&h, 2);
    first = planned_layer(&h.l.p, "model.layers.0");
    use_together(&h, first, use_layers);
    use_together(&h, first + 3, use_layers);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

static void
test_experts_together(void)
{
    uint32_t first;
    hanging h;

    begin_experts(&h);
    first = planned_layer(&h.l.p, "model.layers.0");
    use_together(&h, first, use_experts);
    use_together(&h, first + 1, use_experts);
    for (uint32_t i = 0; i < 16; i++)
        use_expert(&h, first, i);
    loaded_end(&h.l);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_layers);
    T_RUN(test_sleep);
    T_RUN(test_experts);
    T_RUN(test_layers_of_the_host);
    T_RUN(test_a_hint_meanwhile);
    T_RUN(test_another_hint_meanwhile);
    T_RUN(test_behind_a_layer_of_the_disk);
    T_RUN(test_what_did_not_come);
    T_RUN(test_copies_that_nobody_looks_at);
    T_RUN(test_sleep_while_copies_move);
    T_RUN(test_sleep_behind_copies_that_move);
    T_RUN(test_experts_of_the_host);
    T_RUN(test_a_ring_that_is_pinned);
    T_RUN(test_room_meanwhile);
    T_RUN(test_others_copy_for_themselves);
    T_RUN(test_layers_together);
    T_RUN(test_experts_together);
    return t_end();
}
