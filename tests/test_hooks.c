/* SPDX-License-Identifier: Apache-2.0 */
/* test_hooks.c - slabs in the caller's memory: exact, given back, refused politely. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "loader/model.h"
#include "tests/fake_cuda.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define CALLS 8u
#define MIB   (UINT64_C(1) << 20)

typedef struct call {
    uint32_t device;
    uint64_t bytes;
    uint64_t alignment;
    char purpose[8];
    void *memory; /* NULL: given back */
} call;

typedef struct hooked {
    berth_devices *devices;
    call calls[CALLS];
    uint32_t count;
    uint32_t there;     /* not given back */
    uint32_t refused;   /* number of the call that gets nothing; CALLS: none */
    uint32_t misplaced; /* number of the call that gets memory 128 bytes off; CALLS: none */
    bool pins;          /* host memory is pinned by its owner */
} hooked;

static void *
take(void *user, uint32_t device, uint64_t bytes, uint64_t alignment, const char *purpose)
{
    hooked *const h = user;
    const uint32_t number = h->count++;
    void *memory = NULL;

    CHECK_LT(number, CALLS);
    if (number == h->refused || number >= CALLS)
        return NULL;
    if (device == BERTH_NO_INDEX) {
        CHECK_EQ(alignment, 4096);
        memory = aligned_alloc(alignment, (bytes + 2 * alignment - 1) / alignment * alignment);
        if (h->pins) {
            berthi_device *const first = berthi_devices_at(h->devices, 0);

            CHECK_EQ(first->table->pin(first, memory, bytes, NULL), BERTH_OK);
        }
    } else {
        berthi_device *const owner = berthi_devices_at(h->devices, device);

        CHECK_EQ(alignment, 256);
        if (owner->table->alloc(owner, bytes, &memory, NULL) != BERTH_OK)
            return NULL;
    }
    h->calls[number] = (call){
        .device = device, .bytes = bytes, .alignment = alignment, .memory = memory};
    snprintf(h->calls[number].purpose, sizeof h->calls[number].purpose, "%s", purpose);
    h->there++;
    return (uint8_t *)memory + (number == h->misplaced ? 128 : 0);
}

/* Who pinned it unpins it: berth leaves its own pins to nobody, and those of others be. */
static void
see_unpinned(hooked *h, void *memory, uint64_t bytes)
{
    berthi_device *first;

    if (h->devices == NULL)
        return;
    first = berthi_devices_at(h->devices, 0);
    /* A page can be pinned once. */
    CHECK((first->table->pin(first, memory, bytes, NULL) == BERTH_OK) == !h->pins);
    first->table->unpin(first, memory, bytes);
}

static void
give(void *user, uint32_t device, void *memory, uint64_t bytes, uint64_t alignment,
     const char *purpose)
{
    hooked *const h = user;

    for (uint32_t i = 0; i < CALLS; i++) {
        call *const c = &h->calls[i];

        if (c->memory == NULL
            || (uint8_t *)memory != (uint8_t *)c->memory + (i == h->misplaced ? 128 : 0))
            continue;
        CHECK_EQ(c->device, device);
        CHECK_EQ(c->bytes, bytes);
        CHECK_STR(c->purpose, purpose);
        CHECK_EQ(c->alignment, alignment);
        if (device == BERTH_NO_INDEX) {
            see_unpinned(h, c->memory, bytes);
            free(c->memory);
        } else {
            berthi_device *const owner = berthi_devices_at(h->devices, device);

            owner->table->free(owner, c->memory, bytes);
        }
        c->memory = NULL;
        h->there--;
        return;
    }
    t_note("memory is given back that was not taken");
    CHECK(false);
}

static const char *
folder_of(void)
{
    static const char *folder; /* made once: 38 MB */

    if (folder == NULL)
        folder = loaded_large(4, 1);
    return folder;
}

static void
begin(loaded *l, hooked *h, berth_slab_memory *memory)
{
    berth_plan_options options = loaded_options("0=26MiB,cpu=64MiB");

    loaded_begin(l, folder_of(), &options, "sim:26MiB");
    *h = (hooked){.devices = l->devices, .refused = CALLS, .misplaced = CALLS};
    *memory = (berth_slab_memory){.user = h, .alloc = take, .free = give};
    l->options.slab_memory = memory;
}

/* -------------------------------------------------------------------------- slabs */

static uint64_t
slab_of(const loaded *l, uint32_t tier)
{
    berth_plan_tier t;

    berth_plan_get_tier(l->p.plan, tier, &t);
    return t.weights + t.slots + t.expert_slots + t.scratch;
}

static void
lease_all(loaded *l)
{
    for (uint32_t i = 0; i < l->p.summary.layer_count; i++) {
        CHECK_EQ(berth_layer_acquire(l->model, i, NULL, &l->error), BERTH_OK);
        CHECK_EQ(berth_layer_release(l->model, i, NULL, &l->error), BERTH_OK);
    }
}

/* One call a memory, of the plan's bytes; resident and streamed layers work in it. */
static void
test_slabs(void)
{
    for (int pass = 0; pass < 2; pass++) {
        berth_slab_memory memory;
        hooked h;
        loaded l;

        begin(&l, &h, &memory);
        h.pins = pass == 1;
        memory.is_pinned = pass == 1;
        loaded_load(&l);
        memset(&memory, 0, sizeof memory); /* it was copied */
        if (!CHECK_EQ(l.status, BERTH_OK))
            t_note("%s", l.error.message);
        CHECK_EQ(h.count, 2);
        CHECK_EQ(h.there, 2);
        CHECK_STR(h.calls[0].purpose, "slab");
        CHECK_STR(h.calls[1].purpose, "slab");
        CHECK_EQ(h.calls[0].device, 0);
        CHECK_EQ(h.calls[1].device, BERTH_NO_INDEX);
        CHECK_EQ(h.calls[0].bytes, slab_of(&l, 0));
        CHECK_EQ(h.calls[1].bytes, slab_of(&l, 1));
        CHECK_EQ(h.calls[0].bytes + h.calls[1].bytes, l.report.allocated_bytes);
        if (l.status == BERTH_OK) {
            CHECK(l.model->tiers[1].is_pinned); /* or copies would wait for the device */
            loaded_check(&l, folder_of());
            lease_all(&l);
        }
        loaded_unload(&l);
        CHECK_EQ(h.there, 0);
        CHECK_EQ(h.count, 2);
        loaded_end(&l);
    }
}

/* Host memory of the hooks is not the context's: it counts in no ceiling of it. */
static void
test_on_the_host(void)
{
    const char *const folder = loaded_wide(1);
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_memory_summary summary;
    berth_slab_memory memory;
    hooked h = {.refused = CALLS, .misplaced = CALLS};
    loaded l;

    options.type = BERTH_ENCODING_NF4;
    loaded_begin(&l, folder, &options, NULL);
    memory = (berth_slab_memory){.user = &h, .alloc = take, .free = give};
    l.options.slab_memory = &memory;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(h.there, 1);
    CHECK_EQ(h.calls[0].bytes, slab_of(&l, 0));
    berth_context_memory(l.p.context, &summary);
    CHECK_LT(summary.current_bytes, h.calls[0].bytes);
    loaded_check(&l, loaded_quantized(folder, &options));
    loaded_end(&l);
    CHECK_EQ(h.there, 0);
}

/* What something that hangs may use for good is not given back: the caller would use it, too. */
static void
test_left_alone(void)
{
    berth_plan_options options = loaded_options("cpu=64MiB");
    berth_slab_memory memory;
    hooked h = {.refused = CALLS, .misplaced = CALLS};
    berthi_abandoned *noted;
    loaded l;

    loaded_begin(&l, loaded_wide(1), &options, NULL);
    memory = (berth_slab_memory){.user = &h, .alloc = take, .free = give};
    l.options.slab_memory = &memory;
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    berthi_memory_abandon(l.p.context, h.calls[0].memory);
    loaded_unload(&l);
    CHECK_EQ(h.there, 1);
    free(h.calls[0].memory);
    noted = atomic_exchange(&l.p.context->abandoned, NULL);
    berthi_memory_free(l.p.context, BERTHI_PURPOSE_OBJECT, noted, sizeof *noted);
    loaded_end(&l);
}

/*
 * A GPU hangs with copies of the model's, and hangs still when it is given up: it may use its own
 * memory, and host memory that is pinned for it, whoever has pinned that, for good.
 */
static void
check_left_to_gpu(bool pins)
{
    const fake_cuda_machine machine = {.count = 1, .driver = 13000, .architecture = 90,
                                       .memory_bytes = 26 * MIB, .is_late = true};
    berth_plan_options options = loaded_options("0=26MiB,cpu=64MiB");
    berth_slab_memory memory;
    hooked h = {.refused = CALLS, .misplaced = CALLS, .pins = pins};
    uint32_t streamed = 0;
    float *offsets;
    loaded l;

    fake_cuda_begin(&machine);
    loaded_begin(&l, folder_of(), &options, NULL);
    CHECK_EQ(berthi_devices_open_cuda(l.p.context, fake_cuda_calls(), "cuda", &l.devices,
                                      &l.error),
             BERTH_OK);
    h.devices = l.devices;
    memory = (berth_slab_memory){.user = &h, .alloc = take, .free = give, .is_pinned = pins};
    l.options.devices = l.devices;
    l.options.slab_memory = &memory;
    loaded_load(&l);
    T_REQUIRE(CHECK_EQ(l.status, BERTH_OK));
    l.model->wait_ns = UINT64_C(100000000); /* of what hangs; the load has all its time */
    offsets = l.model->offsets; /* pinned by berth, and left where they are, too */
    while (planned_get_layer(&l.p, fixture_format("model.layers.%u", streamed)).link_bytes == 0)
        streamed++;
    streamed = planned_layer(&l.p, fixture_format("model.layers.%u", streamed));
    fake_cuda_hang(true);
    CHECK_EQ(berth_layer_acquire(l.model, streamed, NULL, &l.error), BERTH_OK);
    CHECK_EQ(berth_layer_release(l.model, streamed, NULL, &l.error), BERTH_OK);
    loaded_unload(&l);
    CHECK_EQ(h.there, 2);
    berth_devices_close(l.devices); /* the model goes with them */
    CHECK(l.p.context->kept == NULL);
    CHECK_EQ(h.there, 2);
    berth_plan_destroy(l.p.plan);
    berth_checkpoint_close(l.p.checkpoint);
    berth_context_destroy(l.p.context);
    for (uint32_t i = 0; i < h.count; i++)
        if (h.calls[i].device == BERTH_NO_INDEX)
            free(h.calls[i].memory);
    free(offsets);
    fake_cuda_end();
}

static void
test_left_to_gpu(void)
{
    check_left_to_gpu(false);
    check_left_to_gpu(true);
}

/* What it sleeps in is the caller's, too; what it wakes in is a slab as before. */
static void
test_asleep(void)
{
    berth_slab_memory memory;
    berth_job *job;
    hooked h;
    loaded l;

    begin(&l, &h, &memory);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(berth_model_sleep_start(l.model, NULL, &job, &l.error), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &l.error), BERTH_OK);
    CHECK_EQ(h.count, 3);
    CHECK_STR(h.calls[2].purpose, "hold");
    CHECK_EQ(h.calls[2].device, BERTH_NO_INDEX);
    CHECK(h.calls[0].memory == NULL); /* the device has its memory back */
    CHECK_EQ(berth_model_wake_start(l.model, NULL, &job, &l.error), BERTH_OK);
    CHECK_EQ(berth_job_finish(job, &l.error), BERTH_OK);
    CHECK_EQ(h.count, 4);
    CHECK_EQ(h.there, 2);
    CHECK_EQ(h.calls[3].device, 0);
    CHECK_EQ(h.calls[3].bytes, h.calls[0].bytes);
    CHECK_STR(h.calls[3].purpose, "slab");
    loaded_check(&l, folder_of());
    loaded_end(&l);
    CHECK_EQ(h.there, 0);
}

/* Memory of a device that the caller has taken all of, and hands out from its beginning. */
typedef struct pool {
    hooked host;
    berth_devices *devices;
    uint8_t *memory;
    uint64_t bytes;
    uint64_t given[2]; /* 0: nothing; the second slab lies in the second half */
    uint32_t slabs;    /* at once, at most */
    uint32_t refused;
} pool;

static void *
take_of_pool(void *user, uint32_t device, uint64_t bytes, uint64_t alignment,
             const char *purpose)
{
    pool *const p = user;

    if (device == BERTH_NO_INDEX)
        return take(&p->host, device, bytes, alignment, purpose);
    for (uint32_t i = 0; i < p->slabs; i++)
        if (p->given[i] == 0 && bytes <= p->bytes / p->slabs) {
            p->given[i] = bytes;
            return p->memory + i * (p->bytes / p->slabs);
        }
    p->refused++;
    return NULL;
}

static void
give_to_pool(void *user, uint32_t device, void *memory, uint64_t bytes, uint64_t alignment,
             const char *purpose)
{
    pool *const p = user;

    if (device == BERTH_NO_INDEX) {
        give(&p->host, device, memory, bytes, alignment, purpose);
        return;
    }
    for (uint32_t i = 0; i < p->slabs; i++)
        if (memory == p->memory + i * (p->bytes / p->slabs)) {
            CHECK_EQ(p->given[i], bytes);
            p->given[i] = 0;
        }
}

/* Moves to larger slabs and back; what the device itself has left says nothing of the pool. */
static void
move_within(uint32_t slabs)
{
    berth_plan_options options = loaded_options("0=14MiB,cpu=64MiB");
    pool p = {.bytes = slabs * 24 * MIB, .slabs = slabs,
              .host = {.refused = CALLS, .misplaced = CALLS}};
    berth_slab_memory memory = {.user = &p, .alloc = take_of_pool, .free = give_to_pool};
    berth_plan *larger;
    berth_job *job;
    loaded l;

    loaded_begin(&l, folder_of(), &options, slabs == 1 ? "sim:26MiB" : "sim:50MiB");
    p.devices = p.host.devices = l.devices;
    CHECK_EQ(berth_device_alloc(l.devices, 0, p.bytes, (void **)(void *)&p.memory, &l.error),
             BERTH_OK);
    l.options.slab_memory = &memory;
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    options.finding = NULL;
    options.max_memory = "0=24MiB,cpu=64MiB";
    T_REQUIRE(berth_plan_create(l.p.context, l.p.checkpoint, &options, &larger, &l.error)
              == BERTH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_EQ(berth_model_move_start(l.model, i == 0 ? larger : l.p.plan, NULL, &job,
                                        &l.error),
                 BERTH_OK);
        if (!CHECK_EQ(berth_job_finish(job, &l.error), BERTH_OK))
            t_note("%s", l.error.message);
        loaded_check(&l, folder_of());
        CHECK_EQ(p.refused, slabs == 1 ? i + 1 : 0);
    }
    loaded_unload(&l);
    CHECK_EQ(p.given[0] + p.given[1], 0);
    berth_device_free(l.devices, 0, p.memory, p.bytes);
    berth_plan_destroy(larger);
    loaded_end(&l);
}

static void
test_moved(void)
{
    move_within(1);
    move_within(2);
}

/* ------------------------------------------------------------------------ refusals */

static void
test_refused(void)
{
    for (uint32_t number = 0; number < 2; number++) {
        berth_slab_memory memory;
        hooked h;
        loaded l;

        begin(&l, &h, &memory);
        h.refused = number;
        loaded_load(&l);
        CHECK_EQ(l.status, number == 0 ? BERTH_ENOFIT : BERTH_ENOMEM);
        CHECK_CONTAINS(l.error.message, number == 0
                                            ? "the caller has no memory of device 0"
                                            : "the caller has no host memory");
        CHECK_EQ(l.error.expected, slab_of(&l, number));
        CHECK_EQ(h.count, number + 1);
        CHECK_EQ(h.there, 0);
        /* The same process tries again. */
        h.refused = CALLS;
        h.count = 0;
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_OK);
        CHECK_EQ(h.there, 2);
        loaded_end(&l);
        CHECK_EQ(h.there, 0);
    }
}

static void
test_misplaced(void)
{
    for (uint32_t number = 0; number < 2; number++) {
        berth_slab_memory memory;
        hooked h;
        loaded l;

        begin(&l, &h, &memory);
        h.misplaced = number;
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_EINVAL);
        CHECK_CONTAINS(l.error.message,
                       number == 0 ? "a multiple of 256" : "a multiple of 4096");
        CHECK_EQ(h.there, 0);
        loaded_end(&l);
    }
}

static void
test_hooks_are_two(void)
{
    for (int i = 0; i < 2; i++) {
        berth_slab_memory memory;
        hooked h;
        loaded l;

        begin(&l, &h, &memory);
        if (i == 0)
            memory.alloc = NULL;
        else
            memory.free = NULL;
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_EINVAL);
        CHECK_CONTAINS(l.error.message, "slab_memory without hooks");
        CHECK_EQ(h.count, 0);
        loaded_end(&l);
    }
}

/* -------------------------------------------------------------------------- faults */

static berth_status
load_once(void *user, berth_context *context, berth_error *error)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    hooked h = {.refused = CALLS, .misplaced = CALLS};
    berth_slab_memory memory = {.user = &h, .alloc = take, .free = give};
    berth_checkpoint *checkpoint = NULL;
    berth_model *model = NULL;
    berth_load_options load;
    berth_plan *plan = NULL;
    berth_job *job = NULL;
    berth_status status;

    berth_load_options_init(&load);
    load.workers = 2;
    load.slab_memory = &memory;
    status = berth_checkpoint_open(context, user, NULL, &checkpoint, error);
    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, &options, &plan, error);
    if (status == BERTH_OK)
        status = berth_devices_open(context, "sim:64MiB", &h.devices, error);
    load.devices = h.devices;
    if (status == BERTH_OK)
        status = berth_load_start(context, checkpoint, plan, &load, &job, error);
    if (status == BERTH_OK)
        status = berth_load_finish(job, &model, error);
    CHECK((status == BERTH_OK) == (model != NULL));
    berth_model_destroy(model);
    CHECK_EQ(h.there, 0);
    vacant_close(h.devices);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_all_calls_can_fail(void)
{
    const char *const folder = loaded_llama(1, "BF16", 1);
    fault_counts counts =
        fault_loop_devices("hooks", load_once, (void *)(uintptr_t)folder);

    CHECK_GT(counts.device, 10);
}

int
main(int argc, char **argv)
{
    t_begin(argc, argv);
    T_RUN(test_slabs);
    T_RUN(test_on_the_host);
    T_RUN(test_left_alone);
    T_RUN(test_left_to_gpu);
    T_RUN(test_asleep);
    T_RUN(test_moved);
    T_RUN(test_refused);
    T_RUN(test_misplaced);
    T_RUN(test_hooks_are_two);
    T_RUN(test_all_calls_can_fail);
    return t_end();
}
