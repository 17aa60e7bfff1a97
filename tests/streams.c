/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - several devices that stream, and hang, in tests; see streams.h. */
#include "tests/streams.h"

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/lease.h"
#include "loader/model.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/passed.h"
#include "tests/t.h"

#define WORDS "sim:128MiB,clock=real"
/* Who copies to it waits for what is larger than HELD_BYTES of device_sim.c. */
#define UNPINNED_WORDS "sim:128MiB,pin=0,clock=real"
#define USES 12u
#define PLAIN_MS UINT64_C(2000)
/* Whoever uses a device that hangs is told so late, however much the machine has to do. */
#define WAIT_MS (T_IS_SANITIZED ? 4 * PLAIN_MS : PLAIN_MS)
/*
 * Whoever uses another device meanwhile does so without a pause for as long as that is without
 * sanitizers. Nobody learns from four times of it, which is most of a core; then he rests.
 */
#define REST_NS (100 * HUNG_MS_NS)

/* ------------------------------------------------------------------------- a model */

static void
count_read(void *counter, const berth_trace_event *event)
{
    if (event->kind == BERTH_TRACE_READ)
        atomic_fetch_add((_Atomic uint64_t *)counter, event->bytes);
}

static const char *
words_of(const streams *h)
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
narrow(streams *h, uint64_t ring_bytes)
{
    berth_model *const model = h->l.model;
    berthi_lease_options options = model->lease_options;

    options.ring_bytes = ring_bytes;
    berthi_leases_destroy(model->leases);
    T_REQUIRE(berthi_leases_create(model, &options, &model->leases, NULL) == BERTH_OK);
}

/* `ring_bytes`: 0: as large as a load's */
static void
load(streams *h, const char *folder, berth_plan_options *options, uint64_t ring_bytes)
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

void
streams_begin_layers(streams *h, uint32_t devices, uint64_t ring_bytes)
{
    berth_plan_options options = loaded_options(memory_of(devices));
    const char *pins[2 * STREAMS_DEVICES * STREAMS_LAYERS];

    h->devices = devices;
    for (uint32_t i = 0; i < devices * STREAMS_LAYERS; i++) {
        pins[2 * i] =
            fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i / STREAMS_LAYERS);
        pins[2 * i + 1] = fixture_format("model.layers.%u.mlp=disk", i);
    }
    options.pins = pins;
    options.pin_count = 2 * devices * STREAMS_LAYERS;
    options.slots = 2;
    load(h, loaded_llama(devices * STREAMS_LAYERS, "BF16", 2), &options, ring_bytes);
    (void)passed(&h->l, 1);
}

static void
begin_experts(streams *h)
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
    load(h, planned_moe(2, STREAMS_EXPERTS), &options, 0);
}

void
streams_begin_both(streams *h, uint32_t devices)
{
    berth_plan_options options = loaded_options(memory_of(devices));
    const char *pins[3 * STREAMS_DEVICES];

    h->devices = devices;
    for (uint32_t i = 0; i < devices; i++) {
        pins[3 * i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i);
        pins[3 * i + 1] = fixture_format("model.layers.%u.self_attn=disk", i);
        pins[3 * i + 2] = fixture_format("model.layers.%u.block_sparse_moe.experts=disk", i);
    }
    options.pins = pins;
    options.pin_count = 3 * devices;
    load(h, planned_moe(devices, STREAMS_EXPERTS), &options,
         h->unpinned != 0 ? STREAMS_BIG_RING_BYTES : STREAMS_RING_BYTES);
}

void
streams_hang(streams *h, uint32_t device)
{
    hung_copy_of(h->l.devices, device, 0);
}

void
streams_recover(streams *h, uint32_t device)
{
    berthi_sim_release(berthi_devices_at(h->l.devices, device));
}

/* ------------------------------------------------------------------ who uses a device */

static berth_status
use_layer(streams_user *u, uint32_t number, berth_error *error)
{
    const uint32_t layer = u->h->first + u->device * STREAMS_LAYERS + number;
    const berth_status status = berth_layer_acquire(u->h->l.model, layer, NULL, error);

    if (status == BERTH_OK)
        CHECK_EQ(berth_layer_release(u->h->l.model, layer, NULL, NULL), BERTH_OK);
    return status;
}

static berth_status
use_only_layer(streams_user *u, uint32_t number, berth_error *error)
{
    const uint32_t layer = u->h->first + u->device + number;
    const berth_status status = berth_layer_acquire(u->h->l.model, layer, NULL, error);

    if (status == BERTH_OK)
        CHECK_EQ(berth_layer_release(u->h->l.model, layer, NULL, NULL), BERTH_OK);
    return status;
}

static berth_status
use_expert(streams_user *u, uint32_t number, berth_error *error)
{
    const uint32_t layer = u->h->first + u->device;
    const berth_status status =
        berth_experts_acquire(u->h->l.model, layer, &number, 1, NULL, error);

    if (status == BERTH_OK)
        CHECK_EQ(berth_experts_release(u->h->l.model, layer, &number, 1, NULL, NULL),
                 BERTH_OK);
    return status;
}

streams_user
streams_layer_user(streams *h, uint32_t device)
{
    return (streams_user){
        .h = h, .device = device, .use = use_layer, .count = STREAMS_LAYERS
    };
}

streams_user
streams_expert_user(streams *h, uint32_t device)
{
    return (streams_user){
        .h = h, .device = device, .use = use_expert, .count = STREAMS_EXPERTS
    };
}

streams_user
streams_only_layer_user(streams *h, uint32_t device)
{
    return (streams_user){ .h = h, .device = device, .use = use_only_layer, .count = 1 };
}

bool
streams_use(streams_user *u)
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
    streams_user *const u = argument;
    const uint64_t rest_ns = berthi_sys_now_ns() + PLAIN_MS * HUNG_MS_NS;

    while (!atomic_load(&u->is_stopped)) {
        (void)streams_use(u);
        if (u->rests && berthi_sys_now_ns() >= rest_ns)
            berthi_sys_sleep(REST_NS);
    }
    return NULL;
}

void
streams_start(streams_user *u)
{
    T_REQUIRE(pthread_create(&u->thread, NULL, go_on, u) == 0);
}

void
streams_stop(streams_user *u)
{
    atomic_store(&u->is_stopped, true);
    pthread_join(u->thread, NULL);
}

void
streams_use_until_told(streams_user *u)
{
    while (streams_use(u))
        ;
    CHECK_EQ(u->error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(u->error.message, "has not finished its copies");
}

void
streams_end_uses(streams_user *u, uint32_t least)
{
    while (atomic_load(&u->uses) < least && atomic_load(&u->refused) == 0)
        berthi_sys_sleep(HUNG_MS_NS);
    streams_stop(u);
    if (!CHECK_EQ(atomic_load(&u->refused), 0))
        T_NOTE("device %u: %s", u->device, u->error.message);
}

/* -------------------------------------------------------------------- what is seen */

void
streams_see_one_hang(uint64_t ring_bytes, uint32_t devices, uint32_t unpinned, uint32_t hung)
{
    streams_user users[STREAMS_DEVICES];
    streams h = { .unpinned = unpinned };

    streams_begin_layers(&h, devices, ring_bytes);
    streams_hang(&h, hung);
    for (uint32_t d = 0; d < devices; d++) {
        users[d] = streams_layer_user(&h, d);
        users[d].rests = true;
        if (d != hung)
            streams_start(&users[d]);
    }
    streams_use_until_told(&users[hung]);
    for (uint32_t d = 0; d < devices; d++) {
        if (d == hung)
            continue;
        streams_end_uses(&users[d], USES);
    }
    streams_recover(&h, hung);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

void
streams_see_two_of_three_hang(uint64_t ring_bytes, uint32_t unpinned)
{
    streams_user users[STREAMS_DEVICES];
    streams h = { .unpinned = unpinned };

    streams_begin_layers(&h, STREAMS_DEVICES, ring_bytes);
    for (uint32_t d = 0; d < STREAMS_DEVICES; d++)
        users[d] = streams_layer_user(&h, d);
    for (uint32_t d = 0; d < 2; d++) {
        streams_hang(&h, d);
        streams_use_until_told(&users[d]);
    }
    for (uint32_t i = 0; i < USES; i++)
        CHECK(streams_use(&users[2]));
    for (uint32_t d = 0; d < 2; d++)
        streams_recover(&h, d);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

void
streams_see_one_come_back(uint64_t ring_bytes, uint32_t unpinned)
{
    streams h = { .unpinned = unpinned };
    streams_user other;
    streams_user late;

    streams_begin_layers(&h, 2, ring_bytes);
    other = streams_layer_user(&h, 0);
    late = streams_layer_user(&h, 1);
    streams_hang(&h, 1);
    other.rests = true;
    streams_start(&other);
    streams_use_until_told(&late);
    streams_recover(&h, 1);
    for (uint32_t i = 0; i < 2 * STREAMS_LAYERS; i++)
        CHECK(streams_use(&late));
    streams_end_uses(&other, USES);
    (void)passed(&h.l, 2);
    loaded_end(&h.l);
}

void
streams_see_experts(uint32_t unpinned)
{
    streams_user users[2];
    streams h = { .unpinned = unpinned };

    begin_experts(&h);
    for (uint32_t d = 0; d < 2; d++)
        users[d] = streams_expert_user(&h, d);
    streams_hang(&h, 0);
    users[1].rests = true;
    streams_start(&users[1]);
    streams_use_until_told(&users[0]);
    streams_end_uses(&users[1], STREAMS_EXPERTS);
    streams_recover(&h, 0);
    for (uint32_t i = 0; i < 2 * STREAMS_EXPERTS; i++)
        CHECK(streams_use(&users[i % 2]));
    loaded_end(&h.l);
}

void
streams_see_both(bool has_hung, uint32_t unpinned)
{
    streams_user users[3];
    streams_user layer;
    uint32_t first;
    uint32_t second;
    streams h = { .unpinned = unpinned };

    streams_begin_both(&h, 2);
    layer = streams_only_layer_user(&h, 0);
    users[0] = streams_expert_user(&h, 0);
    users[1] = streams_expert_user(&h, 1);
    users[2] = streams_expert_user(&h, 1);
    atomic_store(&users[2].uses, STREAMS_EXPERTS / 2); /* begins there */
    if (has_hung)
        streams_hang(&h, 0);
    streams_start(&layer);
    for (uint32_t i = 0; i < 3; i++)
        streams_start(&users[i]);
    if (has_hung) {
        berthi_sys_sleep(UINT64_C(500000000));
        streams_recover(&h, 0);
    }
    streams_end_uses(&layer, 1);
    streams_end_uses(&users[1], STREAMS_EXPERTS);
    streams_end_uses(&users[2], STREAMS_EXPERTS);
    streams_end_uses(&users[0], STREAMS_EXPERTS);
    first = atomic_load(&users[0].uses);
    second = atomic_load(&users[1].uses) + atomic_load(&users[2].uses) - STREAMS_EXPERTS / 2;
    CHECK_LT(first, 16 * second);
    loaded_end(&h.l);
}
