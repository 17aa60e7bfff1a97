/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_api.c - a model that is loaded and streamed, through berth.h alone. */
#include "loader/berth.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/t.h"

typedef struct server {
    planned planned;
    berth_devices *devices;
    berth_model *model;
    uint32_t *crcs; /* of berths */
    _Atomic uint64_t compared;
    _Atomic uint64_t wrong;
} server;

#define PINS 8u

/* Layers on the disk, in host memory and on two devices. */
static const char *const mixed[PINS] = { "model.layers.0.input_layernorm=cuda:0",
                                         "model.layers.5.input_layernorm=cuda:1",
                                         "model.layers.0-1=disk", "model.layers.2.mlp=cpu",
                                         "model.layers.4=cpu", "model.layers.5=disk",
                                         "model.layers.6.self_attn=cpu",
                                         "model.layers.6.mlp=disk" };

static void
begin_pinned(server *s, const char *devices, const char *const pins[PINS])
{
    berth_plan_options options;
    berth_load_options load;
    berth_job *job = NULL;
    berth_error error;

    memset(s, 0, sizeof *s);
    berth_plan_options_init(&options);
    options.max_memory = "0=64MiB,1=64MiB,cpu=64MiB,disk=inf";
    options.reserve_share = BERTH_RESERVE_NONE;
    options.pins = pins;
    options.pin_count = PINS;
    options.slots = 2;
    options.context = 0;
    planned_begin(&s->planned, leased_llama(8, 2), &options);
    CHECK_EQ(berth_devices_open(s->planned.context, devices, &s->devices, &error),
             BERTH_OK);
    berth_load_options_init(&load);
    load.devices = s->devices;
    load.ring_bytes = UINT64_C(1) << 20;
    CHECK_EQ(berth_load_start(s->planned.context, s->planned.checkpoint, s->planned.plan,
                              &load, &job, &error),
             BERTH_OK);
    if (!CHECK_EQ(berth_load_finish(job, &s->model, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    if (s->model == NULL)
        exit(1);
    s->crcs = calloc(s->planned.summary.berth_count + 1, sizeof *s->crcs);
    for (uint64_t i = 0; s->crcs != NULL && i < s->planned.summary.berth_count; i++)
        CHECK_EQ(berth_model_digest(s->model, i, &s->crcs[i], &error), BERTH_OK);
}

static void
begin(server *s, const char *devices)
{
    begin_pinned(s, devices, mixed);
}

static void
end(server *s)
{
    berth_model_destroy(s->model);
    berth_devices_close(s->devices);
    free(s->crcs);
    planned_end(&s->planned);
}

/* A tensor as it lay when the call was asked for. */
typedef struct look {
    server *server;
    berth_model_tensor tensor;
    uint32_t crc;
    bool is_pending;
} look;

static void
compare(void *user)
{
    look *const l = user;
    uint32_t crc = 0;

    for (uint32_t i = 0; i < l->tensor.part_count; i++)
        crc = berthi_digest_crc32(crc, l->tensor.parts[i].memory, l->tensor.parts[i].bytes);
    if (crc != l->crc)
        atomic_fetch_add(&l->server->wrong, 1);
    atomic_fetch_add(&l->server->compared, 1);
    free(l);
}

static void
use_layer(server *s, uint32_t layer)
{
    const berth_plan_layer *const about = &s->planned.plan->layers[layer].out;
    const uint32_t number = about->home;
    berth_error error;

    if (!CHECK_EQ(berth_layer_acquire(s->model, layer, NULL, &error), BERTH_OK)) {
        T_NOTE("%s", error.message);
        return;
    }
    for (uint64_t i = about->first_berth; i < about->first_berth + about->berth_count; i++) {
        look *const l = calloc(1, sizeof *l);

        CHECK_EQ(berth_model_get_tensor(s->model, i, &l->tensor), BERTH_OK);
        CHECK(l->tensor.parts[0].memory != NULL);
        l->server = s;
        l->crc = s->crcs[i];
        CHECK_EQ(berth_stream_call(s->devices, number, NULL, compare, l, 1e-6, &error),
                 BERTH_OK);
    }
    CHECK_EQ(berth_layer_release(s->model, layer, NULL, &error), BERTH_OK);
}

static void
settle(server *s)
{
    for (uint32_t d = 0; d < 2; d++)
        CHECK_EQ(berth_stream_wait(s->devices, d, NULL, -1, NULL), BERTH_OK);
}

/* ------------------------------------------------------------------------- tests */

static void
test_layers_are_streamed(void)
{
    static const char *const words[] = { "cpu*2",
                                         "sim:64MiB,h2d=500MB/s,jitter=30%,seed=1*2",
                                         "sim:64MiB,h2d=2GB/s,clock=real*2" };

    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        berth_lease_summary summary;
        server s;

        begin(&s, words[w]);
        for (uint32_t pass = 0; s.model != NULL && pass < 4; pass++) {
            for (uint32_t i = 0; i < s.planned.summary.layer_count; i++)
                use_layer(&s, i);
            settle(&s);
        }
        CHECK_EQ(s.compared, 4 * s.planned.summary.berth_count);
        CHECK_EQ(s.wrong, 0);
        berth_model_leases(s.model, &summary);
        CHECK_EQ(summary.acquired, 4 * 6);
        CHECK_EQ(summary.order_misses, 0);
        CHECK_GT(summary.disk_bytes, 0);
        CHECK_GT(summary.copied_bytes, summary.disk_bytes);
        end(&s);
    }
}

/* A tensor has a place while its layer is leased, and the same one in host memory. */
static void
test_places(void)
{
    berth_model_tensor tensor;
    berth_model_tensor host;
    uint64_t berth;
    uint32_t layer;
    server s;

    begin(&s, "cpu*2");
    berth = berth_model_find(s.model, "model.layers.2.mlp.up_proj.weight", 33);
    layer = planned_layer(&s.planned, "model.layers.2");
    CHECK_EQ(berth_model_get_tensor(s.model, berth, &tensor), BERTH_OK);
    CHECK(tensor.parts[0].memory == NULL);
    CHECK(!tensor.is_resident);
    CHECK_EQ(berth_layer_acquire(s.model, layer, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(s.model, berth, &tensor), BERTH_OK);
    CHECK_EQ(berth_model_get_host(s.model, berth, &host), BERTH_OK);
    CHECK(tensor.parts[0].memory != NULL && tensor.parts[0].memory != host.parts[0].memory);
    CHECK_MEM(tensor.parts[0].memory, host.parts[0].memory, tensor.parts[0].bytes);
    CHECK_EQ(berth_layer_release(s.model, layer, NULL, NULL), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(s.model, berth, &tensor), BERTH_OK);
    CHECK(tensor.parts[0].memory == NULL);
    end(&s);
}

static void
test_arguments(void)
{
    berth_error error;
    berth_lease_summary summary;
    uint32_t layer;
    server s;

    begin(&s, "cpu*2");
    layer = planned_layer(&s.planned, "model.layers.2");
    CHECK_EQ(berth_layer_acquire(NULL, 0, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`model`");
    CHECK_EQ(berth_layer_release(NULL, 0, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_layer_acquire(s.model, 1000, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`layer`");
    CHECK_EQ(berth_layer_release(s.model, 1000, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_layer_prefetch(NULL, 0, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`model`");
    CHECK_EQ(berth_layer_prefetch(s.model, 1000, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`layer`");
    CHECK_EQ(berth_layer_release(s.model, layer, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASE);
    CHECK_EQ(berth_layer_acquire(s.model, layer, NULL, &error), BERTH_OK);
    CHECK_EQ(error.reason, 0);
    berth_model_leases(s.model, &summary);
    CHECK_EQ(summary.acquired, 1);
    end(&s); /* leases are given back by that */
}

/*
 * Passes over layers in pinned host memory, and jumps between them, allocate nothing. The
 * first two are for the devices, whose queues have grown to what is under way at once then.
 */
static void
test_passes_allocate_nothing(void)
{
    static const char *const in_host[PINS] = { "model.layers.0.input_layernorm=cuda:0",
                                               "model.layers.5.input_layernorm=cuda:1",
                                               "model.layers.0.mlp=cpu",
                                               "model.layers.1=cpu",
                                               "model.layers.3=cpu",
                                               "model.layers.5.self_attn=cpu",
                                               "model.layers.6=cpu",
                                               "model.layers.7=cpu" };
    berth_memory_summary before;
    berth_memory_summary after;
    berth_lease_summary summary;
    server s;

    begin_pinned(&s, "sim:64MiB,h2d=2GB/s*2", in_host);
    for (uint32_t pass = 0; pass < 10; pass++) {
        berth_context_memory(s.planned.context, &before);
        for (uint32_t i = 0; i < s.planned.summary.layer_count; i++) {
            CHECK_EQ(berth_layer_acquire(s.model, i, NULL, NULL), BERTH_OK);
            CHECK_EQ(berth_layer_release(s.model, i, NULL, NULL), BERTH_OK);
        }
        CHECK_EQ(berth_layer_prefetch(s.model, 3, NULL), BERTH_OK);
        CHECK_EQ(berth_layer_prefetch(s.model, 1, NULL), BERTH_OK);
        berth_context_memory(s.planned.context, &after);
        CHECK(pass < 2 || after.allocations == before.allocations);
        settle(&s); /* an event for each device */
    }
    berth_model_leases(s.model, &summary);
    CHECK_EQ(summary.acquired, 10 * 6);
    CHECK_EQ(summary.disk_bytes, 0);
    end(&s);
}

/* Said ahead, another order is no miss, whatever the layer lies on; the bytes are right. */
static void
test_prefetch(void)
{
    static const uint32_t order[] = { 0, 5, 2, 2, 6, 1, 4, 3, 0 };
    berth_lease_summary summary;
    berth_error error;
    server s;

    begin(&s, "sim:64MiB,h2d=500MB/s,jitter=30%,seed=3*2");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const char *const name = fixture_format("model.layers.%u", order[i]);
        const uint32_t layer = planned_layer(&s.planned, name);

        CHECK_EQ(berth_layer_prefetch(s.model, layer, &error), BERTH_OK);
        CHECK_EQ(error.reason, 0);
        use_layer(&s, layer);
    }
    settle(&s);
    CHECK_EQ(s.wrong, 0);
    berth_model_leases(s.model, &summary);
    CHECK_EQ(summary.acquired, 8);
    CHECK_EQ(summary.order_misses, 0);
    end(&s);
}

/* Nothing is streamed: every lease is had for nothing. */
static void
test_all_resident(void)
{
    berth_plan_options options;
    berth_job *job = NULL;
    berth_model *model = NULL;
    berth_lease_summary summary;
    berth_error error;
    planned p;

    berth_plan_options_init(&options);
    options.max_memory = "cpu=64MiB";
    options.context = 0;
    planned_begin(&p, leased_llama(2, 1), &options);
    CHECK_EQ(berth_load_start(p.context, p.checkpoint, p.plan, NULL, &job, &error),
             BERTH_OK);
    CHECK_EQ(berth_load_finish(job, &model, &error), BERTH_OK);
    for (uint32_t i = 0; i < p.summary.layer_count; i++) {
        CHECK_EQ(berth_layer_acquire(model, i, NULL, &error), BERTH_OK);
        CHECK_EQ(berth_layer_release(model, i, NULL, &error), BERTH_OK);
    }
    CHECK_EQ(berth_layer_acquire(model, p.summary.layer_count, NULL, &error), BERTH_EINVAL);
    berth_model_leases(model, &summary);
    CHECK_EQ(summary.acquired, 0);
    berth_model_destroy(model);
    planned_end(&p);
}

/* A Mixtral with most of its experts in host memory, or (NULL, "cpu=64MiB") all resident. */
static void
begin_experts(server *s, const char *devices, const char *memory)
{
    berth_plan_options options;
    berth_load_options load;
    berth_job *job = NULL;
    berth_error error;

    memset(s, 0, sizeof *s);
    berth_plan_options_init(&options);
    options.max_memory = memory;
    options.reserve_share = BERTH_RESERVE_NONE;
    options.context = 0;
    options.batch = 2;
    planned_begin(&s->planned, leased_moe(4, 16, false), &options);
    if (devices != NULL)
        CHECK_EQ(berth_devices_open(s->planned.context, devices, &s->devices, &error),
                 BERTH_OK);
    berth_load_options_init(&load);
    load.devices = s->devices;
    CHECK_EQ(berth_load_start(s->planned.context, s->planned.checkpoint, s->planned.plan,
                              &load, &job, &error),
             BERTH_OK);
    if (!CHECK_EQ(berth_load_finish(job, &s->model, &error), BERTH_OK))
        exit(1);
}

/* An expert of the layer that is not resident, and the berth of its first weight. */
static uint32_t
find_away(const server *s, uint32_t layer, uint64_t *out_berth)
{
    for (uint32_t number = 0; number < 16; number++) {
        const char *const name =
            fixture_format("model.layers.%u.block_sparse_moe.experts.%u.w1.weight",
                           layer - 1, number);
        berth_model_tensor tensor;

        *out_berth = berth_model_find(s->model, name, strlen(name));
        if (CHECK_EQ(berth_model_get_tensor(s->model, *out_berth, &tensor), BERTH_OK)
            && !tensor.is_resident)
            return number;
    }
    CHECK(false);
    return 0;
}

/* It has a place while it is leased, which holds what host memory holds. */
static void
test_experts(void)
{
    berth_lease_summary summary;
    berth_expert_counts counts;
    berth_model_tensor tensor;
    berth_model_tensor host;
    berth_error error;
    uint32_t layer;
    uint32_t number;
    uint64_t berth;
    server s;

    begin_experts(&s, "cpu", "0=230KiB,cpu=64MiB");
    layer = planned_layer(&s.planned, "model.layers.3");
    number = find_away(&s, layer, &berth);
    CHECK_EQ(berth_experts_slots(s.model, layer),
             s.planned.plan->tiers[0].expert_slot_count);
    CHECK_EQ(berth_experts_slots(s.model, planned_layer(&s.planned, "lm_head")),
             UINT32_MAX);
    CHECK_EQ(berth_experts_prefetch(s.model, layer, &number, 1, &error), BERTH_OK);
    CHECK_EQ(berth_experts_acquire(s.model, layer, &number, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(s.model, berth, &tensor), BERTH_OK);
    CHECK_EQ(berth_model_get_host(s.model, berth, &host), BERTH_OK);
    CHECK(tensor.is_expert && tensor.parts[0].memory != NULL
          && tensor.parts[0].memory != host.parts[0].memory);
    CHECK_MEM(tensor.parts[0].memory, host.parts[0].memory, tensor.parts[0].bytes);
    CHECK_EQ(berth_experts_release(s.model, layer, &number, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(s.model, berth, &tensor), BERTH_OK);
    CHECK(tensor.parts[0].memory == NULL);
    CHECK_EQ(berth_experts_release(s.model, layer, &number, 1, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASE);
    berth_experts_count(s.model, layer, &counts);
    CHECK_EQ(counts.acquired, 1);
    CHECK_EQ(counts.hits, 1);
    CHECK_EQ(counts.slots, 1);
    CHECK_EQ(counts.away, 16);
    berth_experts_count(s.model, 1000, &counts);
    CHECK_EQ(counts.away, 0);
    berth_model_leases(s.model, &summary);
    CHECK_EQ(summary.experts_acquired, 1);
    CHECK_EQ(summary.expert_hits, 1);
    CHECK_EQ(summary.experts_filled, 1);
    CHECK_EQ(summary.expert_bytes, 3 * 1024);
    CHECK_EQ(summary.acquired + summary.filled + summary.copied_bytes, 0);
    end(&s);
}

static berth_status
sleep_and_wake(server *s, berth_error *error)
{
    berth_job *job;
    berth_status status = berth_model_sleep_start(s->model, NULL, &job, error);

    if (status == BERTH_OK)
        status = berth_job_finish(job, error);
    if (status == BERTH_OK)
        status = berth_model_wake_start(s->model, NULL, &job, error);
    return status == BERTH_OK && job != NULL ? berth_job_finish(job, error) : status;
}

/* How many of them there will be is no other number while the model sleeps. */
static void
test_slots_of_a_model_that_sleeps(void)
{
    const uint32_t number = 0;
    berth_expert_counts counts;
    berth_error error;
    berth_job *job;
    uint32_t layer;
    uint32_t head;
    uint32_t slots;
    server s;

    begin_experts(&s, "cpu", "0=230KiB,cpu=64MiB");
    layer = planned_layer(&s.planned, "model.layers.3");
    head = planned_layer(&s.planned, "lm_head");
    slots = berth_experts_slots(s.model, layer);
    CHECK_LT(slots, UINT32_MAX);
    T_REQUIRE(berth_model_sleep_start(s.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(berth_experts_slots(s.model, layer), slots);
    CHECK_EQ(berth_experts_slots(s.model, head), UINT32_MAX);
    CHECK_EQ(berth_experts_slots(s.model, 1000), UINT32_MAX);
    berth_experts_count(s.model, layer, &counts);
    CHECK_EQ(counts.away, 0);
    CHECK_EQ(berth_experts_acquire(s.model, layer, &number, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ASLEEP);
    T_REQUIRE(berth_model_wake_start(s.model, NULL, &job, &error) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    CHECK_EQ(berth_experts_slots(s.model, layer), slots);
    end(&s);
}

/* Of experts that are resident leases are counted as those of slots are. */
static void
test_resident_experts_are_leased(void)
{
    const uint32_t numbers[3] = { 5, 0, 5 };
    berth_error error;
    uint32_t layer;
    server s;

    begin_experts(&s, NULL, "cpu=64MiB");
    layer = planned_layer(&s.planned, "model.layers.1");
    CHECK_EQ(berth_experts_release(s.model, layer, numbers, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASE);
    CHECK_CONTAINS(error.message, "expert 5");
    CHECK_EQ(berth_experts_acquire(s.model, layer, numbers, 2, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(s.model, layer, numbers, 3, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_release(s.model, layer + 1, numbers, 1, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(sleep_and_wake(&s, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_LEASED);
    CHECK_STR(error.tensor, "model.layers.1");
    CHECK_EQ(berth_model_get_state(s.model), BERTH_MODEL_AWAKE);
    CHECK_EQ(berth_experts_acquire(s.model, layer, numbers, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(s.model, layer, numbers, 3, NULL, &error), BERTH_OK);
    CHECK_EQ(sleep_and_wake(&s, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(s.model, layer, numbers, 1, NULL, &error), BERTH_EINVAL);
    end(&s);
}

static void
test_arguments_of_experts(void)
{
    const uint32_t numbers[2] = { 0, 16 };
    berth_error error;
    uint32_t layer;
    server s;

    begin_experts(&s, "cpu", "0=230KiB,cpu=64MiB");
    layer = planned_layer(&s.planned, "model.layers.1");
    CHECK_EQ(berth_experts_acquire(NULL, layer, numbers, 1, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`model`");
    CHECK_EQ(berth_experts_release(NULL, layer, numbers, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_prefetch(NULL, layer, numbers, 1, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_acquire(s.model, 1000, numbers, 1, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`layer`");
    CHECK_EQ(berth_experts_release(s.model, 1000, numbers, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_prefetch(s.model, 1000, numbers, 1, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_slots(s.model, 1000), UINT32_MAX);
    CHECK_EQ(berth_experts_acquire(s.model, layer, NULL, 1, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "`experts`");
    CHECK_EQ(berth_experts_release(s.model, layer, NULL, 1, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_prefetch(s.model, layer, NULL, 1, &error), BERTH_EINVAL);
    CHECK_EQ(berth_experts_acquire(s.model, layer, NULL, 0, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(s.model, layer, NULL, 0, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_prefetch(s.model, layer, NULL, 0, &error), BERTH_OK);
    CHECK_EQ(berth_experts_acquire(s.model, layer, numbers, 2, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_STR(error.tensor, "model.layers.1");
    end(&s);
    begin_experts(&s, NULL, "cpu=64MiB"); /* all are resident */
    CHECK_EQ(berth_experts_acquire(s.model, layer, numbers, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_release(s.model, layer, numbers, 1, NULL, &error), BERTH_OK);
    CHECK_EQ(berth_experts_prefetch(s.model, layer, numbers + 1, 1, &error),
             BERTH_EINVAL);
    CHECK_EQ(berth_experts_slots(s.model, layer), UINT32_MAX);
    end(&s);
    begin(&s, "cpu*2"); /* there are none */
    CHECK_EQ(berth_experts_acquire(s.model, layer, numbers, 1, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(berth_experts_slots(s.model, layer), UINT32_MAX);
    end(&s);
}

/* The head lies where the embedding does, and is there when that is leased. */
static void
check_tied(const char *memory, const char *words, const char *pin, uint32_t device)
{
    berth_plan_options options = loaded_options(memory);
    berth_model_tensor head;
    berth_model_tensor rows;
    uint32_t crcs[2];
    uint64_t berths[2];
    loaded l;

    options.pins = &pin;
    options.pin_count = 1;
    loaded_begin(&l, loaded_tied_and_stored(2, 1), &options, words);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    berths[0] = berth_model_find(l.model, "lm_head.weight", 14);
    berths[1] = berth_model_find(l.model, "model.embed_tokens.weight", 25);
    CHECK_EQ(berth_model_get_tensor(l.model, berths[0], &head), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(l.model, berths[1], &rows), BERTH_OK);
    CHECK_STR(head.name, "lm_head.weight");
    CHECK_EQ(head.layer, rows.layer);
    CHECK_EQ(head.device, rows.device);
    CHECK_EQ(head.device, device);
    CHECK_EQ(head.is_resident, rows.is_resident);
    CHECK_EQ(berth_layer_acquire(l.model, head.layer, NULL, &l.error), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(l.model, berths[0], &head), BERTH_OK);
    CHECK_EQ(berth_model_get_tensor(l.model, berths[1], &rows), BERTH_OK);
    CHECK(head.parts[0].memory != NULL);
    CHECK(head.parts[0].memory == rows.parts[0].memory);
    CHECK_EQ(berth_layer_release(l.model, head.layer, NULL, &l.error), BERTH_OK);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(berth_model_digest(l.model, berths[i], &crcs[i], &l.error), BERTH_OK);
    CHECK_EQ(crcs[0], crcs[1]);
    loaded_end(&l);
}

static void
test_tied_and_stored(void)
{
    check_tied("0=64MiB,cpu=64MiB", "sim:64MiB", "model.embed_tokens=cpu", 0);
    check_tied("0=64MiB,cpu=64MiB,disk=inf", "sim:64MiB", "model.embed_tokens=disk", 0);
    check_tied("cpu=64MiB,disk=inf", NULL, "model.embed_tokens=disk", BERTH_NO_INDEX);
    check_tied("0=64MiB,1=64MiB", "sim:64MiB*2", "model.embed_tokens=cuda:1", 1);
}

/* A map may divide a layer: what it puts onto another device is computed there. */
static void
test_a_layer_on_two_devices(void)
{
    const char *const map = fixture_format("%s/map.json", fixture_folder());
    berth_plan_options options = loaded_options("0=64MiB,1=64MiB");
    uint32_t seen[2] = { 0 };
    loaded l;

    fixture_text(map, "{\"\": 0, \"model.layers.0.mlp\": 1}");
    options.device_map = map;
    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, "sim:64MiB*2");
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    for (uint64_t i = 0; i < l.p.summary.berth_count; i++) {
        berth_model_tensor tensor;
        uint32_t device;

        CHECK_EQ(berth_model_get_tensor(l.model, i, &tensor), BERTH_OK);
        device = strstr(tensor.name, "mlp") != NULL;
        CHECK_EQ(tensor.device, device);
        CHECK_EQ(tensor.tier, device);
        CHECK_EQ(tensor.is_resident, 1);
        seen[device]++;
    }
    CHECK_EQ(seen[1], 3);
    CHECK_GT(seen[0], 5);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_layers_are_streamed);
    T_RUN(test_places);
    T_RUN(test_passes_allocate_nothing);
    T_RUN(test_prefetch);
    T_RUN(test_arguments);
    T_RUN(test_all_resident);
    T_RUN(test_experts);
    T_RUN(test_slots_of_a_model_that_sleeps);
    T_RUN(test_resident_experts_are_leased);
    T_RUN(test_arguments_of_experts);
    T_RUN(test_tied_and_stored);
    T_RUN(test_a_layer_on_two_devices);
    T_MAIN_END;
}
