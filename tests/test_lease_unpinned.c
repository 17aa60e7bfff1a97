/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_unpinned.c - layers and experts from the disk whose staging no device has pinned:
 * their copies wait for the device, and nobody else waits for that.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/model.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

#define WORDS      "sim:128MiB,pin=0,clock=real"
#define WAIT_NS    (UINT64_C(200) * HUNG_MS_NS)
#define PATIENT_NS (UINT64_C(60000) * HUNG_MS_NS)
/* So long hangs a copy that nobody waits for: less than whoever gives up waits for devices. */
#define OTHERS_NS  (UINT64_C(4000) * HUNG_MS_NS)

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

/* The next copy hangs, for so long at most. */
static void
hang(hanging *h, uint64_t for_ns)
{
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

/* Nothing so far has waited for the copy that hangs: it would have been for that long. */
static void
end_hang(hanging *h)
{
    atomic_store(&h->is_told, true);
    await_copy(h);
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
begin_layers(hanging *h)
{
    static const char *const pins[] = { "model.layers=disk" };
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");

    options.pins = pins;
    options.pin_count = 1;
    options.slots = 2;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, WORDS);
    loaded_load(&h->l);
    CHECK_EQ(h->l.status, BERTH_OK);
    CHECK_EQ(h->l.report.is_pinned, 0);
}

static void
test_layers(void)
{
    berth_error error;
    uint32_t first;
    hanging h;

    begin_layers(&h);
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

    begin_layers(&h);
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

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_layers);
    T_RUN(test_sleep);
    T_RUN(test_experts);
    return t_end();
}
