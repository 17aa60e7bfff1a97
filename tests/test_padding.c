/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_padding.c - every byte of a slab between tensors is zero, whatever lay there: in
 * host memory, on a simulated device, in memory of the caller, in slots; loaded, slept,
 * moved.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "loader/model.h"
#include "tests/fixture.h"
#include "tests/leased.h"
#include "tests/loaded.h"
#include "tests/own_memory.h"
#include "tests/t.h"

#define POISON 0xA5
#define LAYERS 4u

/* ---------------------------------------------------------------------- poison */

/* The context's memory: nothing is zero that was not zeroed. */
static void *
poisoned_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    void *const memory = own_alloc(user, bytes, alignment, purpose);

    if (memory != NULL)
        memset(memory, POISON, bytes);
    return memory;
}

/* The caller's slabs, of host memory; those of devices are poisoned by these. */
static void *
take_slab(void *user, uint32_t device, uint64_t bytes, uint64_t alignment,
          const char *purpose)
{
    void *memory = NULL;

    (void)purpose;
    if (device == BERTH_NO_INDEX)
        return poisoned_alloc(NULL, bytes, alignment, "");
    berthi_device *const owner = berthi_devices_at(user, device);

    return owner->table->alloc(owner, bytes, &memory, NULL) == BERTH_OK ? memory : NULL;
}

static void
give_slab(void *user, uint32_t device, void *memory, uint64_t bytes, uint64_t alignment,
          const char *purpose)
{
    (void)alignment;
    (void)purpose;
    if (device == BERTH_NO_INDEX) {
        free(memory);
        return;
    }
    berthi_device *const owner = berthi_devices_at(user, device);

    owner->table->free(owner, memory, bytes);
}

/* --------------------------------------------------------------------- looking */

/* What lies on the device, when all has been done that it was asked for. */
static void
fetch(berthi_device *device, uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    const berthi_device_table *const table = device->table;
    const berthi_copy copy = {
        .kind = BERTHI_COPY_TO_HOST, .to = to, .from = from, .bytes = bytes};
    berthi_stream *stream = NULL;
    berthi_event *event = NULL;

    CHECK_EQ(table->stream_create(device, &stream, NULL), BERTH_OK);
    CHECK_EQ(table->event_create(device, &event, NULL), BERTH_OK);
    CHECK_EQ(table->copy(device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(table->record(device, event, stream, NULL), BERTH_OK);
    CHECK_EQ(table->await(device, event, UINT64_MAX, NULL), BERTH_OK);
    table->event_destroy(device, event);
    table->stream_destroy(device, stream);
}

/* The bytes of the tier's tensors are marked in `is_used`. */
static void
mark_used(const loaded *l, uint32_t tier, uint8_t *is_used, uint64_t weights)
{
    const berth_plan *const plan = l->model->plan;

    for (uint64_t i = 0; i < plan->berth_count; i++) {
        berthi_cargo cargo;

        if (plan->berths[i].tier != tier || plan->berths[i].is_tied)
            continue;
        if (!CHECK_EQ(berthi_model_cargo(l->model, i, &cargo, NULL), BERTH_OK))
            return;
        for (uint32_t p = 0; p < cargo.part_count; p++) {
            const uint64_t at = plan->berths[i].offset + cargo.parts[p].offset;

            if (CHECK_LE(at + cargo.parts[p].bytes, weights))
                memset(is_used + at, 1, cargo.parts[p].bytes);
        }
    }
}

/* Returns the bytes between tensors of the tier's slab; all of them are looked at. */
static uint64_t
check_tier(const loaded *l, uint32_t tier)
{
    const berthi_model_tier *const t = &l->model->tiers[tier];
    const uint64_t weights = t->slots; /* they begin behind the berths */
    uint8_t *const bytes = malloc(weights + 1);
    uint8_t *const is_used = calloc(weights + 1, 1);
    uint64_t padding = 0;
    uint64_t wrong = 0;

    if (CHECK(bytes != NULL && is_used != NULL)) {
        mark_used(l, tier, is_used, weights);
        if (t->device == l->model->host)
            memcpy(bytes, t->slab, weights);
        else
            fetch(t->device, bytes, t->slab, weights);
        for (uint64_t i = 0; i < weights; i++) {
            padding += is_used[i] == 0;
            wrong += is_used[i] == 0 && bytes[i] != 0;
        }
        CHECK_EQ(wrong, 0);
    }
    free(is_used);
    free(bytes);
    return padding;
}

static uint64_t
check_padding(const loaded *l)
{
    uint64_t padding = 0;

    for (uint32_t t = 0; t < l->model->tier_count; t++)
        if (l->model->tiers[t].slab != NULL)
            padding += check_tier(l, t);
    return padding;
}

/* ------------------------------------------------------------------------ loading */

/* Encodings of all kinds: their parts end where they like. */
static berth_plan_options
options_of(uint32_t number, const char *memory)
{
    static const int32_t types[] = {BERTH_ENCODING_NATIVE, BERTH_ENCODING_NF4,
                                    BERTH_ENCODING_INT8, BERTH_ENCODING_NF4};
    berth_plan_options options = loaded_options(memory);

    options.type = types[number];
    options.double_quant = number == 3;
    return options;
}

/* As loaded_begin(), in a context whose memory is poisoned. */
static void
begin(loaded *l, const char *source, const berth_plan_options *options, const char *words)
{
    static const berth_allocator poisoned = {NULL, poisoned_alloc, own_free};
    berth_context_options context;

    memset(l, 0, sizeof *l);
    berth_context_options_init(&context);
    context.allocator = &poisoned;
    CHECK_EQ(berth_context_create(&context, &l->p.context, NULL), BERTH_OK);
    CHECK_EQ(
        berth_checkpoint_open(l->p.context, source, NULL, &l->p.checkpoint, &l->error),
        BERTH_OK);
    if (!CHECK_EQ(berth_plan_create(l->p.context, l->p.checkpoint, options, &l->p.plan,
                                    &l->error),
                  BERTH_OK))
        T_NOTE("%s", l->error.message);
    berth_plan_get(l->p.plan, &l->p.summary);
    if (words != NULL)
        CHECK_EQ(berth_devices_open(l->p.context, words, &l->devices, &l->error),
                 BERTH_OK);
    berth_load_options_init(&l->options);
    l->options.devices = l->devices;
    l->options.report = &l->report;
}

static void
load(loaded *l)
{
    loaded_load(l);
    if (!CHECK_EQ(l->status, BERTH_OK))
        t_note("%s", l->error.message);
}

static void
test_in_host_memory(void)
{
    const char *const source = loaded_llama(LAYERS, "BF16", 2);

    for (uint32_t i = 0; i < 4; i++) {
        const berth_plan_options options = options_of(i, "cpu=64MiB");
        loaded l;

        begin(&l, source, &options, NULL);
        load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_GE(check_padding(&l), LAYERS * 250); /* 4099 values a layer */
        loaded_end(&l);
    }
}

/* Two devices, and what is streamed to them from host memory. */
static void
test_on_devices(void)
{
    static const char *const words[] = {"sim:64MiB;sim:64MiB",
                                        "sim:64MiB,clock=real;sim:64MiB,clock=real"};
    const char *const source = loaded_llama(LAYERS, "BF16", 2);

    for (uint32_t i = 0; i < 8; i++) {
        const berth_plan_options options = options_of(i % 4, "0=6MiB,1=6MiB,cpu=64MiB");
        loaded l;

        begin(&l, source, &options, words[i / 4]);
        load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_GE(check_padding(&l), LAYERS * 250);
        loaded_end(&l);
    }
}

static void
test_in_slabs_of_the_caller(void)
{
    const char *const source = loaded_llama(LAYERS, "BF16", 1);

    for (uint32_t i = 0; i < 4; i++) {
        const berth_plan_options options = options_of(i, "0=16MiB,cpu=64MiB");
        berth_slab_memory memory;
        loaded l;

        begin(&l, source, &options, "sim:16MiB");
        memory =
            (berth_slab_memory){.user = l.devices, .alloc = take_slab, .free = give_slab};
        l.options.slab_memory = &memory;
        load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_GE(check_padding(&l), LAYERS * 250);
        loaded_end(&l);
    }
}

/* 64 codes of the second level in a matrix: parts end far from where the next begins. */
static void
test_between_parts(void)
{
    static const char *const memories[] = {"cpu=64MiB", "0=16MiB"};
    const char *const source = leased_llama(2, 1);

    for (uint32_t i = 0; i < 2; i++) {
        const berth_plan_options options = options_of(3, memories[i]);
        loaded l;

        begin(&l, source, &options, i == 0 ? NULL : "sim:16MiB");
        load(&l);
        T_REQUIRE(l.status == BERTH_OK);
        CHECK_GE(check_padding(&l), 2 * 7 * (192 + 252));
        loaded_end(&l);
    }
}

/* ------------------------------------------------------------------------------- slots */

/* The bytes of tensors that are leased now are marked, of those that lie in slots. */
static void
mark_leased(const loaded *l, const uint8_t *slots, uint64_t bytes, uint8_t *is_used)
{
    for (uint64_t i = 0; i < l->p.summary.berth_count; i++) {
        berth_model_tensor tensor;

        if (!CHECK_EQ(berth_model_get_tensor(l->model, i, &tensor), BERTH_OK))
            return;
        for (uint32_t p = 0; p < tensor.part_count; p++) {
            const uint64_t at = (uint64_t)((uintptr_t)tensor.parts[p].memory
                                           - (uintptr_t)slots);

            if (tensor.parts[p].memory != NULL && at < bytes
                && CHECK_LE(at + tensor.parts[p].bytes, bytes))
                memset(is_used + at, 1, tensor.parts[p].bytes);
        }
    }
}

/*
 * Every slot has been filled once at most, and what is in one is leased. Returns the bytes
 * of slots that no tensor fills; all of them are looked at.
 */
static uint64_t
check_slots(const loaded *l)
{
    const berthi_model_tier *const t = &l->model->tiers[0];
    const uint64_t size = t->scratch - t->slots;
    uint8_t *const bytes = malloc(size + 1);
    uint8_t *const is_used = calloc(size + 1, 1);
    uint64_t padding = 0;
    uint64_t wrong = 0;

    if (CHECK(bytes != NULL && is_used != NULL)) {
        mark_leased(l, t->slab + t->slots, size, is_used);
        fetch(t->device, bytes, t->slab + t->slots, size);
        for (uint64_t i = 0; i < size; i++) {
            padding += is_used[i] == 0;
            wrong += is_used[i] == 0 && bytes[i] != 0;
        }
        CHECK_EQ(wrong, 0);
        CHECK_LT(padding, size);
    }
    free(is_used);
    free(bytes);
    return padding;
}

/* As many layers as there are slots. */
static void
check_first_layers(loaded *l, uint32_t count)
{
    const uint32_t first = planned_layer(&l->p, "model.layers.0");

    load(l);
    T_REQUIRE(l->status == BERTH_OK);
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(berth_layer_acquire(l->model, first + i, NULL, &l->error), BERTH_OK);
    CHECK_EQ(berth_stream_wait(l->devices, 0, NULL, 60000, &l->error), BERTH_OK);
    CHECK_GE(check_slots(l), count * 250); /* 4099 values a layer */
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(berth_layer_release(l->model, first + i, NULL, &l->error), BERTH_OK);
}

static void
test_slots_of_layers(void)
{
    static const char *const pins[][1] = {{"model.layers=cpu"}, {"model.layers=disk"}};
    static const char *const words[] = {"sim:16MiB", "sim:16MiB,clock=real"};
    const char *const source = loaded_llama(LAYERS, "BF16", 1);

    for (uint32_t i = 0; i < 6; i++) { /* from the disk comes what is stored so */
        const uint32_t from_disk = i >= 4;
        berth_plan_options options =
            options_of(from_disk ? 0 : i, "0=16MiB,cpu=64MiB,disk=inf");
        loaded l;

        options.pins = pins[from_disk];
        options.pin_count = 1;
        options.slots = 2;
        begin(&l, source, &options, words[i % 2]);
        check_first_layers(&l, 2);
        loaded_end(&l);
    }
}

/* Experts of the first layer, for as long as there are slots for them. */
static void
test_slots_of_experts(void)
{
    const char *const source = leased_moe(4, 16, false);
    berth_plan_options options = loaded_options("0=230KiB,cpu=64MiB");
    berth_status status = BERTH_OK;
    uint32_t count = 0;
    uint32_t first;
    loaded l;

    options.batch = 2;
    begin(&l, source, &options, "sim:16MiB,clock=real");
    load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    first = planned_layer(&l.p, "model.layers.0");
    for (; count < 16 && status == BERTH_OK; count += status == BERTH_OK)
        status = berth_experts_acquire(l.model, first, &count, 1, NULL, &l.error);
    CHECK_GE(count, 1);
    CHECK_EQ(berth_stream_wait(l.devices, 0, NULL, 60000, &l.error), BERTH_OK);
    CHECK_GE(check_slots(&l), 1);
    while (count-- > 0)
        CHECK_EQ(berth_experts_release(l.model, first, &count, 1, NULL, &l.error),
                 BERTH_OK);
    loaded_end(&l);
}

static bool
is_done(loaded *l, berth_job *job)
{
    return CHECK(job != NULL) && CHECK_EQ(berth_job_finish(job, &l->error), BERTH_OK);
}

/* New slabs, filled from holds, from each other, and from the files. */
static void
test_after_moves(void)
{
    const char *const source = loaded_llama(LAYERS, "BF16", 1);
    berth_plan_options options = loaded_options("0=16MiB,cpu=64MiB,disk=inf");
    static const char *const pins[] = {"model.layers.0-2=disk"};
    berth_plan *low = NULL;
    loaded l;

    begin(&l, source, &options, "sim:64MiB");
    options.max_memory = "0=16MiB,cpu=1MiB,disk=inf";
    options.pins = pins;
    options.pin_count = 1;
    T_REQUIRE(berth_plan_create(l.p.context, l.p.checkpoint, &options, &low, &l.error)
              == BERTH_OK);
    load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    for (uint32_t discards = 0; discards < 2; discards++) {
        berth_move_options sleep;
        berth_job *job = NULL;

        berth_move_options_init(&sleep);
        sleep.discards = (int32_t)discards;
        CHECK_EQ(berth_model_sleep_start(l.model, &sleep, &job, &l.error), BERTH_OK);
        T_REQUIRE(is_done(&l, job));
        job = NULL;
        CHECK_EQ(berth_model_wake_start(l.model, NULL, &job, &l.error), BERTH_OK);
        T_REQUIRE(is_done(&l, job));
        CHECK_GE(check_padding(&l), LAYERS * 250);
        job = NULL;
        CHECK_EQ(berth_model_move_start(l.model, low, NULL, &job, &l.error), BERTH_OK);
        T_REQUIRE(is_done(&l, job));
        (void)check_padding(&l);
        job = NULL;
        CHECK_EQ(berth_model_move_start(l.model, l.p.plan, NULL, &job, &l.error),
                 BERTH_OK);
        T_REQUIRE(is_done(&l, job)); /* layers come from the disk */
        CHECK_GE(check_padding(&l), LAYERS * 250);
    }
    loaded_unload(&l);
    berth_plan_destroy(low);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_in_host_memory);
    T_RUN(test_on_devices);
    T_RUN(test_in_slabs_of_the_caller);
    T_RUN(test_between_parts);
    T_RUN(test_slots_of_layers);
    T_RUN(test_slots_of_experts);
    T_RUN(test_after_moves);
    T_MAIN_END;
}
