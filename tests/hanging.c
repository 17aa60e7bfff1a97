/* SPDX-License-Identifier: Apache-2.0 */
/* hanging.c - see hanging.h. */
#include "tests/hanging.h"

#include <stdatomic.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "loader/lease_state.h"
#include "tests/fixture.h"
#include "tests/t.h"

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

void
hanging_begin(hanging *h, uint64_t for_ns)
{
    h->l.p.context->hung_ns = HANGING_PATIENT_NS;
    h->for_ns = for_ns;
    atomic_store(&h->is_told, false);
    hung_copy(h->l.devices, 0);
}

void
hanging_await(hanging *h)
{
    while (!hung_has(h->l.devices))
        berthi_sys_sleep(HUNG_MS_NS);
    T_REQUIRE(pthread_create(&h->thread, NULL, let_go, h) == 0);
}

void
hanging_await_copy(hanging *h)
{
    pthread_join(h->thread, NULL);
    h->l.model->wait_ns = HANGING_PATIENT_NS;
}

void
hanging_end(hanging *h)
{
    h->l.model->wait_ns = HANGING_PATIENT_NS;
    atomic_store(&h->is_told, true);
    pthread_join(h->thread, NULL);
    CHECK(h->was_told);
}

void
hanging_layers_on(hanging *h, const char *words, const char *place, uint32_t slots)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB,disk=inf");

    options.pins = &place;
    options.pin_count = 1;
    options.slots = slots;
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, words);
    loaded_load(&h->l);
    CHECK_EQ(h->l.status, BERTH_OK);
}

void
hanging_layers(hanging *h, const char *place, uint32_t slots)
{
    hanging_layers_on(h, HANGING_WORDS, place, slots);
    CHECK_EQ(h->l.report.is_pinned, 0);
}

berth_status
caller_release_layer(caller *c)
{
    return berth_layer_release(c->h->l.model, c->layer, NULL, &c->error);
}

static void *
call(void *user)
{
    caller *const c = user;

    c->status = c->ask(c);
    return NULL;
}

void
caller_start(caller *c)
{
    T_REQUIRE(pthread_create(&c->thread, NULL, call, c) == 0);
}

void
caller_begin(caller *c)
{
    hanging_begin(c->h, HANGING_OTHERS_NS);
    caller_start(c);
    hanging_await(c->h);
}

void
caller_end(caller *c)
{
    hanging_end(c->h);
    pthread_join(c->thread, NULL);
    CHECK_EQ(c->status, BERTH_OK);
}

void
hanging_use_layer(hanging *h, uint32_t layer)
{
    berth_error error;

    if (!CHECK_EQ(berth_layer_acquire(h->l.model, layer, NULL, &error), BERTH_OK))
        T_NOTE("layer %u: %s", layer, error.message);
    else
        CHECK_EQ(berth_layer_release(h->l.model, layer, NULL, &error), BERTH_OK);
}

void
hanging_both(hanging *h, uint32_t slots)
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
    loaded_begin(&h->l, loaded_llama(6, "BF16", 2), &options, HANGING_BOTH);
    loaded_load(&h->l);
    T_REQUIRE(CHECK_EQ(h->l.status, BERTH_OK));
}
