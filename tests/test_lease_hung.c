/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_hung.c - layers and experts of several devices come through one ring, which some
 * may not have pinned: whoever asks gets his part, beside others that ask without a pause, and
 * while copies to some hang.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/fault.h"
#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/lease_feed.h"
#include "loader/model.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/loaded.h"
#include "tests/passed.h"
#include "tests/t.h"

#define WORDS    "sim:128MiB,clock=real"
/* Who copies to it waits for what is larger than HELD_BYTES of device_sim.c. */
#define UNPINNED_WORDS "sim:128MiB,pin=0,clock=real"
#define DEVICES  3u
#define LAYERS   3u /* of each device; one does not fit into the ring */
#define EXPERTS  16u
#define USES     12u
#define RING_BYTES     (UINT64_C(256) << 10)
#define BIG_RING_BYTES (UINT64_C(1) << 20)
/* Whoever uses a device that hangs is told so late, however much the machine has to do. */
#define WAIT_MS  (T_IS_SANITIZED ? UINT64_C(8000) : UINT64_C(2000))

/* ------------------------------------------------------------------------- a model */

typedef struct hanging {
    loaded l;
    uint32_t devices;
    uint32_t unpinned; /* a bit for each that pins nothing */
    bool no_uring;
    uint32_t first; /* layer; a device's lie together */
    _Atomic uint64_t *read; /* bytes; NULL: nobody counts them */
} hanging;

static void
count_read(void *counter, const berth_trace_event *event)
{
    if (event->kind == BERTH_TRACE_READ)
        atomic_fetch_add((_Atomic uint64_t *)counter, event->bytes);
}

static const char *
words_of(const hanging *h)
{
    const char *text = "";

    for (uint32_t i = 0; i < h->devices; i++)
        text = fixture_format("%s%s%s", text, i > 0 ? ";" : "",
                              (h->unpinned >> i & 1) != 0 ? UNPINNED_WORDS : WORDS);
    return text;
}

static const char *
memory_of(uint32_t devices)
{
    return devices == 1   ? "0=64MiB,cpu=64MiB,disk=inf"
           : devices == 2 ? "0=64MiB,1=64MiB,cpu=64MiB,disk=inf"
                          : "0=64MiB,1=64MiB,2=64MiB,cpu=64MiB,disk=inf";
}

/* What is streamed comes through a ring that is smaller than that of any load. */
static void
narrow(hanging *h, uint64_t ring_bytes)
{
    berth_model *const model = h->l.model;
    berthi_lease_options options = model->lease_options;

    options.ring_bytes = ring_bytes;
    berthi_leases_destroy(model->leases);
    T_REQUIRE(berthi_leases_create(model, &options, &model->leases, NULL) == BERTH_OK);
}

/* `ring_bytes`: 0: as large as a load's */
static void
load(hanging *h, const char *folder, berth_plan_options *options, uint64_t ring_bytes)
{
    loaded_begin(&h->l, folder, options, words_of(h));
    if (h->read != NULL) {
        h->l.p.context->trace = count_read;
        h->l.p.context->trace_user = h->read;
    }
    h->l.options.wait_ms = WAIT_MS;
    h->l.options.no_uring = h->no_uring;
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
    if (ring_bytes > 0)
        narrow(h, ring_bytes);
    h->first = planned_layer(&h->l.p, "model.layers.0");
}

static void
begin_layers(hanging *h, uint32_t devices, uint64_t ring_bytes)
{
    berth_plan_options options = loaded_options(memory_of(devices));
    const char *pins[2 * DEVICES * LAYERS];

    h->devices = devices;
    for (uint32_t i = 0; i < devices * LAYERS; i++) {
        pins[2 * i] =
            fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i / LAYERS);
        pins[2 * i + 1] = fixture_format("model.layers.%u.mlp=disk", i);
    }
    options.pins = pins;
    options.pin_count = 2 * devices * LAYERS;
    options.slots = 2;
    load(h, loaded_llama(devices * LAYERS, "BF16", 2), &options, ring_bytes);
    (void)passed(&h->l, 1);
}

/* The next copy to the device hangs, and whatever it is asked for behind that. */
static void
hang(hanging *h, uint32_t device)
{
    hung_copy_of(h->l.devices, device, 0);
}

static void
recover(hanging *h, uint32_t device)
{
    berthi_sim_release(berthi_devices_at(h->l.devices, device));
}

/* ------------------------------------------------------------------ who uses a device */

/* Layers of a device, in their order, or experts of one layer. */
typedef struct user user;
struct user {
    hanging *h;
    uint32_t device;
    berth_status (*use)(user *u, uint32_t number, berth_error *error);
    uint32_t count;
    _Atomic bool is_stopped;
    _Atomic uint32_t uses;
    _Atomic uint32_t refused;
    berth_error error; /* of the last one that was */
    pthread_t thread;
};

static berth_status
use_layer(user *u, uint32_t number, berth_error *error)
{
    const uint32_t layer = u->h->first + u->device * LAYERS + number;
    const berth_status status = berth_layer_acquire(u->h->l.model, layer, NULL, error);

    if (status == BERTH_OK)
        CHECK_EQ(berth_layer_release(u->h->l.model, layer, NULL, NULL), BERTH_OK);
    return status;
}

static user
user_of(hanging *h, uint32_t device)
{
    return (user){ .h = h, .device = device, .use = use_layer, .count = LAYERS };
}

static bool
use_next(user *u)
{
    const uint32_t number = atomic_load(&u->uses) % u->count;
    berth_error error;

    if (u->use(u, number, &error) == BERTH_OK) {
        atomic_fetch_add(&u->uses, 1);
        return true;
    }
    u->error = error;
    atomic_fetch_add(&u->refused, 1);
    return false;
}

static void *
go_on(void *argument)
{
    user *const u = argument;

    while (!atomic_load(&u->is_stopped))
        (void)use_next(u);
    return NULL;
}

static void
start(user *u)
{
    T_REQUIRE(pthread_create(&u->thread, NULL, go_on, u) == 0);
}

static void
stop(user *u)
{
    atomic_store(&u->is_stopped, true);
    pthread_join(u->thread, NULL);
}

static void
use_until_told(user *u)
{
    while (use_next(u))
        ;
    CHECK_EQ(u->error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(u->error.message, "has not finished its copies");
}

/* Who goes on gets so many, however slow the machine; then he is stopped. */
static void
end_uses(user *u, uint32_t least)
{
    while (atomic_load(&u->uses) < least && atomic_load(&u->refused) == 0)
        berthi_sys_sleep(HUNG_MS_NS);
    stop(u);
    if (!CHECK_EQ(atomic_load(&u->refused), 0))
        T_NOTE("device %u: %s", u->device, u->error.message);
}

/* -------------------------------------------------------------------------- layers */

/*
 * Whoever uses the device that hangs asks for more until he is told, and meanwhile somebody
 * uses each of the others. Then it comes back.
 */
static void
see_one_hang(uint64_t ring_bytes, uint32_t devices, uint32_t unpinned, uint32_t hung)
{
    user users[DEVICES];
    hanging h = { .unpinned = unpinned };

    begin_layers(&h, devices, ring_bytes);
    hang(&h, hung);
    for (uint32_t d = 0; d < devices; d++) {
        users[d] = user_of(&h, d);
        if (d != hung)
            start(&users[d]);
    }
    use_until_told(&users[hung]);
    for (uint32_t d = 0; d < devices; d++) {
        if (d == hung)
            continue;
        end_uses(&users[d], USES);
    }
    recover(&h, hung);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

static void
test_two_devices(void)
{
    see_one_hang(RING_BYTES, 2, 0, 0);
    see_one_hang(RING_BYTES, 2, 0, 1);
}

static void
test_three_devices(void)
{
    see_one_hang(RING_BYTES, 3, 0, 1);
}

static void
see_two_of_three_hang(uint64_t ring_bytes, uint32_t unpinned)
{
    user users[DEVICES];
    hanging h = { .unpinned = unpinned };

    begin_layers(&h, DEVICES, ring_bytes);
    for (uint32_t d = 0; d < DEVICES; d++)
        users[d] = user_of(&h, d);
    for (uint32_t d = 0; d < 2; d++) {
        hang(&h, d);
        use_until_told(&users[d]);
    }
    for (uint32_t i = 0; i < USES; i++)
        CHECK(use_next(&users[2]));
    for (uint32_t d = 0; d < 2; d++)
        recover(&h, d);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

static void
test_two_of_three_hang(void)
{
    see_two_of_three_hang(RING_BYTES, 0);
}

/* It has a buffer for each layer. */
static void
test_a_large_ring(void)
{
    see_one_hang(0, 2, 0, 0);
}

/* Layers come again when it does, whatever others ask for. */
static void
see_it_come_back(uint64_t ring_bytes, uint32_t unpinned)
{
    hanging h = { .unpinned = unpinned };
    user other;
    user late;

    begin_layers(&h, 2, ring_bytes);
    other = user_of(&h, 0);
    late = user_of(&h, 1);
    hang(&h, 1);
    start(&other);
    use_until_told(&late);
    recover(&h, 1);
    for (uint32_t i = 0; i < 2 * LAYERS; i++)
        CHECK(use_next(&late));
    end_uses(&other, USES);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

static void
test_comes_back(void)
{
    see_it_come_back(RING_BYTES, 0);
}

/* ------------------------------------------------------------- a ring that is not pinned */

/* Chunks of BIG_RING_BYTES are large enough to be waited for. */
static void
test_unpinned_device(void)
{
    see_one_hang(BIG_RING_BYTES, 2, 1, 0);
    see_one_hang(BIG_RING_BYTES, 2, 2, 1);
}

static void
test_unpinned_devices(void)
{
    see_one_hang(BIG_RING_BYTES, 3, 6, 1);
}

static void
test_unpinned_devices_hang(void)
{
    see_two_of_three_hang(BIG_RING_BYTES, 3);
}

static void
test_unpinned_device_comes_back(void)
{
    see_it_come_back(BIG_RING_BYTES, 2);
}

/* Somebody uses the first device, which has pinned nothing, and hangs by now. */
static void
begin_hung(hanging *h, user *late)
{
    h->unpinned = 1;
    begin_layers(h, 2, BIG_RING_BYTES);
    *late = user_of(h, 0);
    hang(h, 0);
    start(late);
    while (!hung_has(h->l.devices))
        berthi_sys_sleep(HUNG_MS_NS);
}

/* A slot that is written to is not given up, and whoever misses something else is told. */
static void
test_reads_fail_beside_an_unpinned_device(void)
{
    hanging h = { .no_uring = true }; /* a ring's calls would go on to fail */
    user other;
    user late;

    begin_hung(&h, &late);
    other = user_of(&h, 1);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    while (use_next(&other))
        ;
    berthi_fault_disarm();
    CHECK_EQ(other.error.status, BERTH_EIO);
    CHECK_NE(other.error.reason, BERTH_REASON_TIMEOUT);
    (void)use_next(&other); /* what was asked for before may have failed meanwhile */
    for (uint32_t i = 0; i < LAYERS; i++)
        CHECK(use_next(&other));
    recover(&h, 0);
    stop(&late);
    if (!CHECK(late.refused == 0 || late.error.reason == BERTH_REASON_TIMEOUT))
        T_NOTE("%s", late.error.message);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

static void *
recover_when_it_ends(void *argument)
{
    hanging *const h = argument;
    const berthi_feeder *const feeder = h->l.model->leases->feeder;

    while (!atomic_load(&feeder->is_stopped))
        berthi_sys_sleep(HUNG_MS_NS);
    recover(h, 0);
    return NULL;
}

/* Whoever gives the model back waits for the copy. */
static void
test_an_unpinned_device_is_given_back(void)
{
    hanging h = { .read = NULL };
    pthread_t thread;
    user late;

    begin_hung(&h, &late);
    stop(&late);
    T_REQUIRE(pthread_create(&thread, NULL, recover_when_it_ends, &h) == 0);
    loaded_unload(&h.l);
    pthread_join(thread, NULL);
    loaded_end(&h.l);
}

static uint32_t
count_couriers(const hanging *h)
{
    const berthi_leases *const leases = h->l.model->leases;
    uint32_t count = 0;

    for (uint32_t i = 0; i < leases->line_count; i++)
        count += leases->feeder->couriers[i].has_thread;
    return count;
}

/* Where nobody else would wait, or all have pinned the ring, nothing but its thread copies. */
static void
test_couriers(void)
{
    static const struct {
        uint32_t devices;
        uint32_t unpinned;
        uint32_t couriers;
    } cases[] = { { 1, 0, 0 }, { 1, 1, 0 }, { 2, 0, 0 }, { 2, 2, 1 }, { 3, 5, 2 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hanging h = { .unpinned = cases[i].unpinned };

        begin_layers(&h, cases[i].devices, BIG_RING_BYTES);
        CHECK_EQ(count_couriers(&h), cases[i].couriers);
        loaded_end(&h.l);
    }
}

/* -------------------------------------------------------------------------- reading */

static berth_status
hint(user *u, uint32_t number, berth_error *error)
{
    return berth_layer_prefetch(u->h->l.model, u->h->first + u->device * LAYERS + number,
                                error);
}

static uint64_t
count_copied(const hanging *h)
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
    user other;
    user late;
    hanging h = { .read = &read };

    begin_layers(&h, 2, BIG_RING_BYTES);
    other = user_of(&h, 1);
    late = user_of(&h, 0);
    CHECK(use_next(&late));
    CHECK(use_next(&late)); /* what it may have now, however slow the machine; then it hangs */
    hang(&h, 0);
    for (uint32_t i = 0; i < LAYERS; i++)
        CHECK(use_next(&other));
    late.use = hint;
    start(&late);
    copied = count_copied(&h);
    atomic_store(&read, 0);
    for (uint32_t i = 0; i < 8 * LAYERS; i++)
        CHECK(use_next(&other));
    copied = count_copied(&h) - copied;
    T_NOTE("%u KiB are read for %u KiB", (unsigned)(atomic_load(&read) >> 10),
           (unsigned)(copied >> 10));
    CHECK_GT(copied, 0);
    CHECK_LT(atomic_load(&read), copied + copied / 16 + 2 * BIG_RING_BYTES);
    stop(&late);
    recover(&h, 0);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

/* -------------------------------------------------------------------------- experts */

static berth_status
use_expert(user *u, uint32_t number, berth_error *error)
{
    const uint32_t layer = u->h->first + u->device;
    const berth_status status =
        berth_experts_acquire(u->h->l.model, layer, &number, 1, NULL, error);

    if (status == BERTH_OK)
        CHECK_EQ(berth_experts_release(u->h->l.model, layer, &number, 1, NULL, NULL),
                 BERTH_OK);
    return status;
}

static void
begin_experts(hanging *h)
{
    static const char *const pins[] = {
        "model.layers.0.input_layernorm=cuda:0",
        "model.layers.0.block_sparse_moe.experts=disk",
        "model.layers.1.input_layernorm=cuda:1",
        "model.layers.1.block_sparse_moe.experts=disk",
    };
    berth_plan_options options = loaded_options(memory_of(2));

    h->devices = 2;
    options.pins = pins;
    options.pin_count = 4;
    load(h, planned_moe(2, EXPERTS), &options, 0);
}

static void
see_experts(uint32_t unpinned)
{
    user users[2];
    hanging h = { .unpinned = unpinned };

    begin_experts(&h);
    for (uint32_t d = 0; d < 2; d++) {
        users[d] = user_of(&h, d);
        users[d].use = use_expert;
        users[d].count = EXPERTS;
    }
    hang(&h, 0);
    start(&users[1]);
    use_until_told(&users[0]);
    end_uses(&users[1], EXPERTS);
    recover(&h, 0);
    for (uint32_t i = 0; i < 2 * EXPERTS; i++)
        CHECK(use_next(&users[i % 2]));
    loaded_end(&h.l);
}

static void
test_experts(void)
{
    see_experts(0);
}

static void
test_experts_of_an_unpinned_device(void)
{
    see_experts(1);
}

/* ------------------------------------------------------------- layers beside experts */

/* A layer of each device, and its experts. */
static void
begin_both(hanging *h, uint32_t devices)
{
    berth_plan_options options = loaded_options(memory_of(devices));
    const char *pins[3 * DEVICES];

    h->devices = devices;
    for (uint32_t i = 0; i < devices; i++) {
        pins[3 * i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i);
        pins[3 * i + 1] = fixture_format("model.layers.%u.self_attn=disk", i);
        pins[3 * i + 2] = fixture_format("model.layers.%u.block_sparse_moe.experts=disk", i);
    }
    options.pins = pins;
    options.pin_count = 3 * devices;
    load(h, planned_moe(devices, EXPERTS), &options,
         h->unpinned != 0 ? BIG_RING_BYTES : RING_BYTES);
}

static berth_status
use_only_layer(user *u, uint32_t number, berth_error *error)
{
    const uint32_t layer = u->h->first + u->device + number;
    const berth_status status = berth_layer_acquire(u->h->l.model, layer, NULL, error);

    if (status == BERTH_OK)
        CHECK_EQ(berth_layer_release(u->h->l.model, layer, NULL, NULL), BERTH_OK);
    return status;
}

static user
expert_user_of(hanging *h, uint32_t device)
{
    return (user){ .h = h, .device = device, .use = use_expert, .count = EXPERTS };
}

/*
 * The ring is full of the layer of a device that nobody uses, and experts of both devices are
 * used without a pause. A layer of the first one comes all the same, and so do experts of the
 * second.
 */
static void
see_both(bool has_hung, uint32_t unpinned)
{
    user users[3];
    user layer;
    uint32_t first;
    uint32_t second;
    hanging h = { .unpinned = unpinned };

    begin_both(&h, 2);
    layer = (user){ .h = &h, .device = 0, .use = use_only_layer, .count = 1 };
    users[0] = expert_user_of(&h, 0);
    users[1] = expert_user_of(&h, 1);
    users[2] = expert_user_of(&h, 1);
    atomic_store(&users[2].uses, EXPERTS / 2); /* begins there */
    if (has_hung)
        hang(&h, 0);
    start(&layer);
    for (uint32_t i = 0; i < 3; i++)
        start(&users[i]);
    if (has_hung) {
        berthi_sys_sleep(UINT64_C(500000000));
        recover(&h, 0);
    }
    end_uses(&layer, 1);
    end_uses(&users[1], EXPERTS);
    end_uses(&users[2], EXPERTS);
    end_uses(&users[0], EXPERTS);
    first = atomic_load(&users[0].uses);
    second = atomic_load(&users[1].uses) + atomic_load(&users[2].uses) - EXPERTS / 2;
    CHECK_LT(first, 16 * second);
    loaded_end(&h.l);
}

/* More devices hang than a quarter of the ring has buffers: experts of the last one come. */
static void
test_experts_of_the_last_device(void)
{
    hanging h = { .read = NULL };

    begin_both(&h, DEVICES);
    for (uint32_t d = 0; d < DEVICES; d++) {
        user layer = { .h = &h, .device = d, .use = use_only_layer, .count = 1 };
        user experts = expert_user_of(&h, d);

        CHECK(use_next(&layer));
        if (d + 1 < DEVICES) {
            hang(&h, d);
            use_until_told(&experts);
            continue;
        }
        for (uint32_t i = 0; i < EXPERTS; i++)
            CHECK(use_next(&experts));
    }
    for (uint32_t d = 0; d + 1 < DEVICES; d++)
        recover(&h, d);
    loaded_end(&h.l);
}

static void
test_layers_beside_experts(void)
{
    see_both(false, 0);
    see_both(true, 0);
}

static void
test_layers_beside_experts_of_an_unpinned_device(void)
{
    see_both(true, 1);
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
    T_RUN(test_unpinned_device);
    T_RUN(test_unpinned_devices);
    T_RUN(test_unpinned_devices_hang);
    T_RUN(test_unpinned_device_comes_back);
    T_RUN(test_reads_fail_beside_an_unpinned_device);
    T_RUN(test_an_unpinned_device_is_given_back);
    T_RUN(test_couriers);
    T_RUN(test_what_is_read);
    T_RUN(test_experts);
    T_RUN(test_experts_of_an_unpinned_device);
    T_RUN(test_experts_of_the_last_device);
    T_RUN(test_layers_beside_experts);
    T_RUN(test_layers_beside_experts_of_an_unpinned_device);
    return t_end();
}
