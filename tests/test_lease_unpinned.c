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
#include "tests/hanging.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

/* ------------------------------------------------------------------ a copy that hangs */

static void
check_late(berth_status status, const berth_error *error)
{
    CHECK_EQ(status, BERTH_EIO);
    CHECK_EQ(error->reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error->message, "has not finished its copies");
}

/* ------------------------------------------------------------------------- layers */

static void
test_layers(void)
{
    berth_error error;
    uint32_t first;
    hanging h;

    hanging_layers(&h, "model.layers=disk", 2);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    (void)passed(&h.l, 1);
    CHECK_EQ(berth_layer_acquire(h.l.model, first, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_OK);
    hanging_begin(&h, HANGING_OTHERS_NS);
    h.l.model->wait_ns = HANGING_WAIT_NS;
    CHECK_EQ(berth_layer_release(h.l.model, first, NULL, &error), BERTH_OK);
    hanging_await(&h);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_prefetch(h.l.model, first + 4, &error), BERTH_OK);
    check_late(berth_layer_acquire(h.l.model, first + 2, NULL, &error), &error);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    hanging_end(&h);
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

    hanging_layers(&h, "model.layers=disk", 2);
    T_REQUIRE(h.l.model != NULL);
    first = planned_layer(&h.l.p, "model.layers.0");
    (void)passed(&h.l, 1);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_acquire(h.l.model, first + i, NULL, &error), BERTH_OK);
    hanging_begin(&h, HANGING_PATIENT_NS);
    h.l.model->wait_ns = HANGING_WAIT_NS;
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + i, NULL, &error), BERTH_OK);
    hanging_await(&h);
    T_REQUIRE(berth_model_sleep_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    h.l.model->wait_ns = HANGING_PATIENT_NS;
    T_REQUIRE(berth_model_sleep_start(h.l.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_wait(job, (int64_t)(2 * HANGING_WAIT_NS / HUNG_MS_NS)), BERTH_PENDING);
    atomic_store(&h.is_told, true);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    hanging_end(&h);
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
    loaded_begin(&h.l, planned_moe(1, 16), &options, HANGING_WORDS);
    loaded_load(&h.l);
    T_REQUIRE(CHECK_EQ(h.l.status, BERTH_OK));
    layer = planned_layer(&h.l.p, "model.layers.0");
    slots = berth_experts_slots(h.l.model, layer);
    T_REQUIRE(CHECK_GE(slots, 2) && CHECK_LT(slots, 16));
    /* Others come and go, but for the disk. */
    hanging_begin(&h, HANGING_OTHERS_NS);
    h.l.model->wait_ns = HANGING_WAIT_NS;
    CHECK_EQ(berth_experts_prefetch(h.l.model, layer, &numbers[0], 1, &error), BERTH_OK);
    hanging_await(&h);
    CHECK_EQ(berth_experts_prefetch(h.l.model, layer, &numbers[1], 1, &error), BERTH_OK);
    check_late(berth_experts_acquire(h.l.model, layer, &numbers[2], 1, NULL, &error), &error);
    hanging_end(&h);
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, numbers, slots, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(h.l.model, layer, numbers, slots, NULL, &error), BERTH_OK);
    /* The slot that is written to can be had when that is over. */
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, numbers, slots - 1, NULL, &error),
             BERTH_OK);
    hanging_begin(&h, HANGING_WAIT_NS);
    CHECK_EQ(berth_experts_prefetch(h.l.model, layer, &numbers[14], 1, &error), BERTH_OK);
    hanging_await(&h);
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, &numbers[15], 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_acquire(h.l.model, layer, &numbers[14], 1, NULL, &error),
             BERTH_ENOFIT);
    hanging_await_copy(&h);
    CHECK_EQ(berth_experts_release(h.l.model, layer, &numbers[15], 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(h.l.model, layer, numbers, slots - 1, NULL, &error),
             BERTH_OK);
    loaded_end(&h.l);
}

/* -------------------------------------------------------------------- host memory */

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
    caller c = { .h = &h, .ask = caller_release_layer };
    other o;

    hanging_both(&h, 2);
    first = planned_layer(&h.l.p, "model.layers.0");
    (void)passed(&h.l, 1);
    CHECK_EQ(berth_layer_acquire(h.l.model, first, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_layer_acquire(h.l.model, first + 1, NULL, &error), BERTH_OK);
    c.layer = first;
    caller_begin(&c);
    h.l.model->wait_ns = HANGING_DISK_NS;
    for (uint32_t i = 0; i < 9; i++) /* layers of the other device come from the disk */
        hanging_use_layer(&h, first + 3 + i % 3);
    hanging_use_layer(&h, first + 1);
    h.l.model->wait_ns = HANGING_WAIT_NS;
    CHECK_EQ(berth_layer_prefetch(h.l.model, first, &error), BERTH_OK);
    /* That others move says nothing about this device. */
    begin_other(&o, &h, first + 3);
    check_late(berth_layer_acquire(h.l.model, first + 2, NULL, &error), &error);
    check_late(berth_layer_acquire(h.l.model, first, NULL, &error), &error);
    CHECK_GT(atomic_load(&o.uses), 0);
    end_other(&o);
    caller_end(&c);
    hanging_use_layer(&h, first);
    CHECK_EQ(berth_layer_release(h.l.model, first + 1, NULL, &error), BERTH_OK);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* ------------------------------------------------------------- a device that is slow */

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
    loaded_begin(&h->l, planned_moe(2, 16), &options, HANGING_BOTH);
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
    caller_begin(&c);
    h.l.model->wait_ns = HANGING_DISK_NS;
    for (uint32_t i = 0; i < 9; i++)
        use_expert(&h, first + 1, i);
    use_expert(&h, first, 0); /* it lies there already */
    h.l.model->wait_ns = HANGING_WAIT_NS;
    check_late(berth_experts_acquire(h.l.model, first, &wanted[0], 1, NULL, &error), &error);
    check_late(berth_experts_acquire(h.l.model, first, &wanted[1], 1, NULL, &error), &error);
    CHECK_EQ(berth_experts_prefetch(h.l.model, first, &others, 1, &error), BERTH_OK);
    check_late(berth_experts_acquire(h.l.model, first, &others, 1, NULL, &error), &error);
    caller_end(&c);
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
    loaded_begin(&h->l, planned_moe(3, 16), &options, HANGING_PINNED ";" HANGING_PINNED);
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
    hanging_begin(&h, HANGING_OTHERS_NS);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_layer_release(h.l.model, first + i, NULL, &error), BERTH_OK);
    hanging_await(&h);
    h.l.model->wait_ns = HANGING_DISK_NS; /* before anybody else looks at it */
    o = (other){ .h = &h, .first = first + 2 };
    T_REQUIRE(pthread_create(&o.thread, NULL, go_on_with_experts, &o) == 0);
    check_late(berth_layer_acquire(h.l.model, first + 1, NULL, &error), &error);
    CHECK_GT(atomic_load(&o.uses), 1);
    end_other(&o);
    hanging_end(&h);
    hanging_use_layer(&h, first);
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
    caller_begin(&c);
    h.l.model->wait_ns = HANGING_DISK_NS;
    caller_start(&who);
    berthi_sys_sleep(50 * HUNG_MS_NS); /* it waits by now, or need not */
    CHECK_EQ(berth_experts_release(h.l.model, first, numbers, 1, NULL, &error), BERTH_OK);
    pthread_join(who.thread, NULL);
    if (!CHECK_EQ(who.status, BERTH_OK))
        T_NOTE("%s", who.error.message);
    else
        CHECK_EQ(berth_experts_release(h.l.model, first + 1, &last, 1, NULL, &error), BERTH_OK);
    caller_end(&c);
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

    hanging_both(&h, 2);
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

    hanging_both(&h, 2);
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
    T_RUN(test_experts_of_the_host);
    T_RUN(test_a_ring_that_is_pinned);
    T_RUN(test_room_meanwhile);
    T_RUN(test_others_copy_for_themselves);
    T_RUN(test_layers_together);
    T_RUN(test_experts_together);
    return t_end();
}
