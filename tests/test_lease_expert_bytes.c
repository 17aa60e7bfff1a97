/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_expert_bytes.c - leases of experts: what lies in slots, under threads, from
 * the disk, with faults.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/experts.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/t.h"

#define DEVICES 8u
#define KIB     UINT64_C(1024)
#define LATE_NS UINT64_C(5000000000)

/* ------------------------------------------------------------------------- bytes */

typedef struct machine {
    leased leased;
    berthi_stream *streams[DEVICES][3];
    berthi_event *events[DEVICES];
    uint32_t devices;
} machine;

/* Decoder layers in equal parts on the devices, experts in host memory or on the disk. */
static void
begin_machine(machine *m, uint32_t devices, uint32_t slots, uint32_t seed,
              const char *clock)
{
    leased_options options = { .batch = (slots + 1) / 2 };

    memset(m, 0, sizeof *m);
    options.memory = devices == 1 ? "0=330KiB" : devices == 2 ? "0=180KiB,1=180KiB" : "";
    for (uint32_t i = 0; devices == DEVICES && i < devices; i++)
        options.memory =
            fixture_format("%s%s%u=66KiB", options.memory, i > 0 ? "," : "", i);
    options.memory = fixture_format("%s,cpu=64MiB", options.memory);
    options.devices =
        fixture_format("sim:64MiB,h2d=1GB/s,latency=10us,jitter=50%%,clock=%s,"
                       "pick=random,seed=%u*%u",
                       clock, seed, devices);
    for (uint32_t i = 0; i < 8; i++)
        options.pins[i] =
            fixture_format("model.layers.%u.input_layernorm=cuda:%u", i, i * devices / 8);
    leased_begin(&m->leased, leased_moe(8, EXPERTS_COUNT, false), &options);
    experts_limit_slots(&m->leased, slots);
    m->devices = devices;
    for (uint32_t d = 0; d < devices; d++) {
        berthi_device *const device = berthi_devices_at(m->leased.devices, d);

        for (uint32_t i = 0; i < 3; i++)
            CHECK_EQ(device->table->stream_create(device, &m->streams[d][i], NULL),
                     BERTH_OK);
        CHECK_EQ(device->table->event_create(device, &m->events[d], NULL), BERTH_OK);
    }
}

static void
end_machine(machine *m)
{
    leased_stop(&m->leased);
    for (uint32_t d = 0; d < m->devices; d++) {
        berthi_device *const device = berthi_devices_at(m->leased.devices, d);

        for (uint32_t i = 0; i < 3; i++)
            device->table->stream_destroy(device, m->streams[d][i]);
        device->table->event_destroy(device, m->events[d]);
    }
    leased_end(&m->leased);
}

static void
await_stream(machine *m, uint32_t d, uint32_t stream)
{
    berthi_device *const device = berthi_devices_at(m->leased.devices, d);

    CHECK_EQ(device->table->record(device, m->events[d], m->streams[d][stream], NULL),
             BERTH_OK);
    CHECK_EQ(device->table->await(device, m->events[d], UINT64_MAX, NULL), BERTH_OK);
}

/* Layers of the device that have experts away; with each how many. */
static uint32_t
list_layers(const leased *l, uint32_t device, uint32_t layers[8])
{
    uint32_t numbers[EXPERTS_COUNT];
    uint32_t count = 0;

    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t layer = experts_layer(l, i);

        if ((device == UINT32_MAX || experts_home(l, layer) == device)
            && experts_list_away(l, layer, numbers) > 0)
            layers[count++] = layer;
    }
    return count;
}

/*
 * Leases of `experts` experts, on three streams a device, with delays, the host far
 * ahead, some of them prefetched. Returns wrong ones.
 */
static uint64_t
use_at_random(machine *m, uint64_t experts, uint32_t most, uint64_t seed)
{
    leased *const l = &m->leased;
    uint64_t random = seed;
    uint32_t layers[8];
    uint32_t count;
    berth_error error;

    experts_start(l);
    count = list_layers(l, UINT32_MAX, layers);
    CHECK_GE(count, m->devices);
    for (uint32_t i = 0; experts_summary(l).experts_acquired < experts; i++) {
        const uint32_t layer = layers[experts_draw(&random) % count];
        const uint32_t home = experts_home(l, layer);
        const uint32_t stream = (uint32_t)experts_draw(&random) % 3;
        uint32_t numbers[EXPERTS_MOST];
        const uint32_t wanted = experts_draw_some(&random, most, numbers);

        if (experts_draw(&random) % 4 == 0)
            CHECK_EQ(experts_prefetch(l, layer, numbers, wanted), BERTH_OK);
        if (!CHECK_EQ(experts_use(l, layer, numbers, wanted, m->streams[home][stream],
                                  1e-6 * (double)(experts_draw(&random) % 200), &error),
                      BERTH_OK)) {
            T_NOTE("%s", error.message);
            break;
        }
        if (i % 32 == 0)
            await_stream(m, home, stream);
    }
    for (uint32_t d = 0; d < m->devices; d++)
        for (uint32_t i = 0; i < 3; i++)
            await_stream(m, d, i);
    CHECK_EQ(atomic_load(&l->compared), 2 * experts_summary(l).experts_acquired);
    CHECK_GT(experts_summary(l).expert_hits, experts / 20);
    CHECK_GT(experts_summary(l).experts_filled, experts / 20);
    leased_stop(l);
    return atomic_load(&l->wrong);
}

/* 240,000 with T_THOROUGH=1. */
static void
test_no_wrong_byte(void)
{
    const uint64_t experts = getenv("T_THOROUGH") != NULL ? 30000 : 600;

    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t devices = i < 3 ? 1 : i < 6 ? 2 : 8;
        const uint32_t slots = 2 + 2 * (i % 3);
        machine m;

        begin_machine(&m, devices, slots, i + 1, "virtual");
        CHECK_EQ(use_at_random(&m, experts, 2, i + 1), 0);
        end_machine(&m);
    }
}

/* Leases with a part left out: wrong bytes. */
static uint64_t
wrong_without(uint32_t part)
{
    uint64_t wrong = 0;

    for (uint32_t seed = 1; seed <= 2; seed++) {
        machine m;

        begin_machine(&m, 1, 4, seed, "virtual");
        atomic_store(&berthi_lease_without, part);
        wrong += use_at_random(&m, 300, 2, seed);
        atomic_store(&berthi_lease_without, 0);
        end_machine(&m);
    }
    return wrong;
}

static void
test_bytes_show_a_wait_that_is_missing(void)
{
    CHECK_EQ(wrong_without(0), 0);
    CHECK_GT(wrong_without(BERTHI_LEASE_NO_FULL_WAIT), 20);
    CHECK_GT(wrong_without(BERTHI_LEASE_NO_FREE_WAIT), 20);
}

typedef struct user_thread {
    machine *machine;
    uint64_t experts;
    uint64_t seed;
    uint32_t number;
    uint32_t layers[8];
    uint32_t count; /* of layers */
    pthread_t thread;
} user_thread;

/* Two threads a device; what one of them holds the other may want. */
static void *
use_one_device(void *argument)
{
    user_thread *const u = argument;
    leased *const l = &u->machine->leased;
    const uint32_t device = u->number / 2;
    uint64_t random = u->seed;

    for (uint64_t done = 0; done < u->experts;) {
        const uint32_t layer = u->layers[experts_draw(&random) % u->count];
        berthi_stream *const stream = u->machine->streams[device][u->number % 2];
        uint32_t numbers[EXPERTS_MOST];
        const uint32_t wanted = experts_draw_some(&random, 3, numbers);
        berth_error error;
        berth_status status;

        if (experts_draw(&random) % 8 == 0)
            CHECK_EQ(experts_prefetch(l, layer, numbers, wanted), BERTH_OK);
        status = experts_use(l, layer, numbers, wanted, stream,
                             1e-6 * (double)(experts_draw(&random) % 20), &error);
        done += wanted;
        if (status != BERTH_ENOFIT && !CHECK_EQ(status, BERTH_OK))
            break;
    }
    return NULL;
}

/* Thousands on a clock that runs; under a thread sanitizer, too. */
static void
test_threads(void)
{
    const uint64_t experts = getenv("T_THOROUGH") != NULL ? 5000 : 500;
    user_thread users[4];
    machine m;

    begin_machine(&m, 2, 4, 1, "real");
    experts_start(&m.leased);
    for (uint32_t i = 0; i < 4; i++) {
        users[i] = (user_thread){
            .machine = &m, .experts = experts, .seed = i + 1, .number = i
        };
        users[i].count = list_layers(&m.leased, i / 2, users[i].layers);
        CHECK_EQ(berthi_sys_thread_create(&users[i].thread, 256 * 1024, use_one_device,
                                          &users[i]),
                 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        pthread_join(users[i].thread, NULL);
    for (uint32_t i = 0; i < 4; i++)
        await_stream(&m, i / 2, i % 2);
    CHECK_EQ(atomic_load(&m.leased.wrong), 0);
    CHECK_EQ(atomic_load(&m.leased.compared),
             2 * experts_summary(&m.leased).experts_acquired);
    end_machine(&m);
}

/* ------------------------------------------------------------------------ the disk */

/* Where the experts are; layers' attention, too. */
typedef enum mix { MIX_DISK, MIX_PARTS, MIX_LAYERS, MIX_HOST } mix;

static void
begin_disk(leased *l, mix kind, uint32_t slots, uint64_t ring_bytes, const char *devices)
{
    leased_options options = { .memory = "0=230KiB,disk=inf",
                               .batch = (slots + 1) / 2,
                               .devices = devices };

    switch (kind) {
    case MIX_DISK:
        break;
    case MIX_PARTS:
        options.memory = "0=230KiB,cpu=60KiB,disk=inf";
        break;
    case MIX_LAYERS:
        options.memory = "0=200KiB,disk=inf";
        options.pins[0] = "model.layers.*.self_attn=disk";
        options.slots = 2;
        break;
    case MIX_HOST:
        options.memory = "cpu=230KiB,disk=inf";
        options.devices = NULL;
        break;
    }
    leased_begin(l, leased_moe(EXPERTS_LAYERS, EXPERTS_COUNT, false), &options);
    experts_limit_slots(l, slots);
    l->options = (berthi_lease_options){ .ring_bytes = ring_bytes, .readers = 2 };
}

/* Passes over all layers, as a model makes them: the layer, then some of its experts. */
static berth_status
pass(leased *l, uint64_t *random, uint32_t most, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < leased_layers(l) && status == BERTH_OK; i++) {
        uint32_t numbers[EXPERTS_MOST];
        uint32_t count;

        status = berthi_leases_acquire(l->leases, i, NULL, error);
        if (status != BERTH_OK)
            return status;
        count = experts_draw_some(random, most, numbers);
        if (l->leases->experts[i].count > 0)
            status = experts_use(l, i, numbers, count, NULL, 1e-6, error);
        if (status == BERTH_OK)
            status = leased_compare(l, i, NULL, 0, error);
        (void)berthi_leases_release(l->leases, i, NULL, NULL);
    }
    return status;
}

static void
test_experts_of_the_disk(void)
{
    static const char *const words[] = {
        NULL, "sim:64MiB,h2d=200MB/s,jitter=50%,seed=1",
        "sim:64MiB,h2d=1GB/s,pick=random,pin=0B,seed=2"
    };

    for (uint32_t i = 0; i < 12; i++) {
        const mix kind = (mix)(i % 4);
        const uint32_t slots = 2 + 2 * (i % 3);
        uint64_t random = i;
        berth_error error;
        leased l;

        begin_disk(&l, kind, slots, i % 2 == 0 ? 16 * KIB : 256 * KIB, words[i / 4]);
        experts_start(&l);
        CHECK(l.leases->feeder != NULL);
        for (uint32_t k = 0; k < 20; k++) {
            if (!CHECK_EQ(pass(&l, &random, 2, &error), BERTH_OK))
                T_NOTE("%u: %s: %s", i, error.tensor, error.message);
            CHECK(leased_settle(&l));
        }
        CHECK_EQ(l.wrong, 0);
        CHECK_GT(experts_summary(&l).experts_filled, 20);
        CHECK_GT(experts_summary(&l).expert_disk_bytes, 0);
        CHECK_LE(experts_summary(&l).expert_disk_bytes, experts_summary(&l).expert_bytes);
        if (kind != MIX_PARTS)
            CHECK_EQ(experts_summary(&l).expert_disk_bytes,
                     experts_summary(&l).expert_bytes);
        CHECK_EQ(experts_summary(&l).experts_filled * 3 * KIB,
                 experts_summary(&l).expert_bytes);
        CHECK_EQ(experts_summary(&l).disk_bytes > 0, kind == MIX_LAYERS);
        CHECK_EQ(experts_summary(&l).order_misses, 0);
        CHECK_GT(experts_summary(&l).host_waits, 0);
        leased_end(&l);
    }
}

/* An allocator that has memory for some staging buffers, and for everything else. */
typedef struct short_of_rings {
    berth_allocator allocator;
    _Atomic int32_t left;
} short_of_rings;

static void *
alloc_few_rings(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    short_of_rings *const s = user;

    if (strcmp(purpose, berthi_purpose_name(BERTHI_PURPOSE_RING)) == 0
        && atomic_fetch_sub(&s->left, 1) <= 0)
        return NULL;
    return s->allocator.alloc(s->allocator.user, bytes, alignment, purpose);
}

static void
free_rings(void *user, void *memory, size_t bytes, size_t alignment, const char *purpose)
{
    const short_of_rings *const s = user;

    s->allocator.free(s->allocator.user, memory, bytes, alignment, purpose);
}

/*
 * Layers and experts from the disk through one buffer or two of a ring for 15, for longer than
 * it takes to look whether more would help.
 */
static void
test_few_buffers(void)
{
    for (int32_t count = 1; count <= 3; count++) {
        const uint64_t begin_ns = berthi_sys_now_ns();
        short_of_rings few = { .left = count };
        berth_memory staging;
        uint64_t random = (uint64_t)count;
        berth_error error;
        leased l;

        begin_disk(&l, MIX_LAYERS, 4, 15 * 4 * KIB, NULL);
        few.allocator = l.planned.context->allocator;
        l.planned.context->allocator = (berth_allocator){
            .user = &few, .alloc = alloc_few_rings, .free = free_rings
        };
        haul_set((haul_tricks){ .latency_ns = 1000000 });
        atomic_store(&berthi_reader_instead, &haul_reader);
        experts_start(&l);
        while (berthi_sys_now_ns() - begin_ns < UINT64_C(1200000000))
            if (!CHECK_EQ(pass(&l, &random, 2, &error), BERTH_OK))
                break;
        CHECK(leased_settle(&l));
        CHECK_EQ(berth_memory_get(l.planned.context, 0, BERTH_MEMORY_STAGING, &staging),
                 BERTH_OK);
        CHECK_EQ(staging.peak_bytes, (uint64_t)count * 4 * KIB);
        CHECK_EQ(atomic_load(&l.wrong), 0);
        leased_stop(&l);
        atomic_store(&berthi_reader_instead, NULL);
        haul_set((haul_tricks){ .latency_ns = 0 });
        l.planned.context->allocator = few.allocator;
        leased_end(&l);
    }
}

/* Prefetched, then given up for others before they have come. */
static void
test_prefetch_of_the_disk(void)
{
    uint64_t random = 3;
    uint32_t layers[8];
    uint32_t count = 0;
    leased l;

    begin_disk(&l, MIX_DISK, 4, 16 * KIB, NULL);
    experts_start(&l);
    for (uint32_t i = 0; i < EXPERTS_LAYERS; i++)
        layers[count++] = experts_layer(&l, i);
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t numbers[EXPERTS_MOST];
        const uint32_t wanted = experts_draw_some(&random, 4, numbers);

        CHECK_EQ(
            experts_prefetch(&l, layers[experts_draw(&random) % count], numbers, wanted),
            BERTH_OK);
        if (i % 3 == 0)
            CHECK_EQ(experts_use(&l, layers[experts_draw(&random) % count], numbers,
                                 wanted, NULL, 0, NULL),
                     BERTH_OK);
    }
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* The feeder's system calls fail, one after the other: told, and got over. */
static void
test_reads_that_fail(void)
{
    uint32_t said = 0;
    leased l;

    begin_disk(&l, MIX_DISK, 4, 64 * KIB, NULL);
    l.options.io = BERTH_IO_BUFFERED;
    l.options.no_uring = true;
    l.options.readers = 1;
    for (uint64_t nth = 0; nth < 40; nth++) {
        uint64_t random = nth;
        berth_status status = BERTH_OK;
        berth_error error;

        experts_start(&l);
        CHECK_EQ(pass(&l, &random, 4, &error), BERTH_OK);
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        for (uint32_t i = 0; i < 4 && status == BERTH_OK; i++)
            status = pass(&l, &random, 4, &error);
        berthi_fault_disarm();
        if (status != BERTH_OK) {
            said++;
            CHECK_EQ(status, BERTH_EIO);
            CHECK_EQ(error.status, status);
            CHECK_NE(error.message[0], '\0');
        }
        for (uint32_t i = 0; i < l.leases->lines[0].slot_count; i++) {
            CHECK_EQ(l.leases->lines[0].slots[i].leases, 0);
            CHECK_EQ(l.leases->lines[0].slots[i].waiters, 0);
        }
        for (uint32_t i = 0; i < 2; i++)
            CHECK_EQ(pass(&l, &random, 4, &error), BERTH_OK);
        CHECK_EQ(l.wrong, 0);
        leased_stop(&l);
    }
    CHECK_GT(said, 10);
    T_NOTE("experts: %u of 40 failed calls were an acquire's", said);
    leased_end(&l);
}

/* The file is gone in parts: said again and again; what lies in slots is still there. */
static void
test_a_file_that_is_short(void)
{
    uint32_t n[EXPERTS_COUNT];
    berth_error error;
    uint32_t layer;
    leased l;

    begin_disk(&l, MIX_DISK, 4, 64 * KIB, NULL);
    experts_start(&l);
    layer = experts_layer(&l, 3);
    CHECK_GE(experts_list_away(&l, layer, n), 6);
    CHECK_EQ(experts_use(&l, layer, n, 2, NULL, 0, &error), BERTH_OK);
    fixture_tick(l.planned.checkpoint->shards[0].file.path);
    fixture_truncate(l.planned.checkpoint->shards[0].file.path, 32 * KIB);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(experts_use(&l, layer, n + 3, 1, NULL, 0, &error), BERTH_EIO);
        CHECK(error.reason == BERTH_REASON_CHANGED
              || error.reason == BERTH_REASON_TRUNCATED);
        CHECK_EQ(experts_use(&l, layer, n, 2, NULL, 0, &error), BERTH_OK);
        /* All or none. */
        CHECK_EQ(experts_use(&l, layer, n + 1, 3, NULL, 0, &error), BERTH_EIO);
    }
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(l.leases->lines[0].slots[i].leases, 0);
    CHECK_EQ(experts_summary(&l).experts_acquired, 2 + 3 * 2);
    CHECK_EQ(experts_summary(&l).expert_hits, 3 * 2); /* of those that were acquired */
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* How long it takes until an acquire is told that its device stands still. */
static uint64_t
stand_still(void)
{
    berth_status status = BERTH_OK;
    uint32_t n[EXPERTS_COUNT];
    uint64_t began_ns;
    berth_error error;
    uint32_t layer;
    uint32_t count;
    leased l;

    begin_disk(&l, MIX_DISK, 2, 16 * KIB, "sim:64MiB,h2d=500MB/s,clock=real,stall=80");
    l.model.wait_ns = UINT64_C(100000000);
    experts_start(&l);
    layer = experts_layer(&l, 3);
    count = experts_list_away(&l, layer, n);
    began_ns = berthi_sys_now_ns();
    for (uint32_t i = 0; i < 100 && status == BERTH_OK; i++) {
        status = experts_acquire(&l, layer, &n[i % count], 1, NULL, &error);
        if (status == BERTH_OK)
            CHECK_EQ(experts_release(&l, layer, &n[i % count], 1, NULL, NULL), BERTH_OK);
    }
    CHECK_EQ(status, BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error.tensor, "model.layers.");
    began_ns = berthi_sys_now_ns() - began_ns;
    leased_end(&l);
    return began_ns;
}

/* In time; a busy machine may be later once, and gets more tries. */
static void
test_a_device_stands_still(void)
{
    uint64_t took_ns = UINT64_MAX;

    for (int tries = 0; tries < T_CANCEL_TRIES && took_ns >= LATE_NS; tries++)
        took_ns = stand_still();
    CHECK_LT(took_ns, LATE_NS);
}

/* ------------------------------------------------------------------------- faults */

static berth_status
use_all(void *user, berth_context *context, berth_error *error)
{
    leased *const l = user;
    uint64_t random = 5;
    berth_status status;

    l->model.context = context;
    status = leased_start(l, error);
    CHECK((status == BERTH_OK) == (l->leases != NULL));
    for (uint32_t i = 0; i < 3 && status == BERTH_OK; i++)
        status = pass(l, &random, 2, error);
    leased_stop(l);
    CHECK_EQ(l->wrong, 0);
    return status;
}

static void
test_every_call_can_fail(void)
{
    for (int kind = MIX_DISK; kind <= MIX_LAYERS; kind++) {
        fault_counts counts;
        leased l;

        begin_disk(&l, (mix)kind, 4, 64 * KIB, NULL);
        l.options.no_uring = true;
        counts = fault_loop("experts", use_all, &l);
        CHECK_GT(counts.memory, 20);
        CHECK_GT(counts.system, 20);
        l.model.context = l.planned.context;
        leased_end(&l);
    }
}

static void
test_every_call_of_a_device_can_fail(void)
{
    fault_counts counts;
    leased l;

    experts_begin_with(&l, "0=230KiB,cpu=64MiB", 4, NULL);
    counts = fault_loop_devices("experts", use_all, &l);
    CHECK_GT(counts.device, 100);
    CHECK_LE(counts.survived, 8); /* waits at the end */
    l.model.context = l.planned.context;
    leased_end(&l);
}

/* Nothing is leased that was not: the same can be asked for again, and is right. */
static void
test_device_faults(void)
{
    uint64_t failed = 0;
    uint64_t failures = 1;
    leased l;

    experts_begin_with(&l, "0=230KiB,cpu=64MiB", 4, NULL);
    for (uint64_t nth = 0; failures > 0; nth++) {
        uint64_t random = nth;

        experts_start(&l);
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        for (uint32_t i = 0; i < 12; i++) {
            const uint32_t layer = experts_layer(&l, i % EXPERTS_LAYERS);
            uint32_t numbers[EXPERTS_MOST];
            const uint32_t count = experts_draw_some(&random, 4, numbers);
            berth_error error;
            berth_status status =
                experts_acquire(&l, layer, numbers, count, NULL, &error);

            if (status != BERTH_OK) {
                CHECK_EQ(status, BERTH_ENODEV);
                CHECK_EQ(error.status, status);
                status = experts_acquire(&l, layer, numbers, count, NULL, &error);
            }
            CHECK_EQ(status, BERTH_OK);
            status = experts_release(&l, layer, numbers, count, NULL, &error);
            if (status != BERTH_OK) {
                CHECK_EQ(status, BERTH_ENODEV);
                status = experts_release(&l, layer, numbers, count, NULL, &error);
            }
            CHECK_EQ(status, BERTH_OK);
        }
        failures = berthi_fault_failures(BERTHI_FAULT_DEVICE);
        berthi_fault_disarm();
        failed += failures;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t numbers[EXPERTS_MOST];
            const uint32_t count = experts_draw_some(&random, 4, numbers);

            CHECK_EQ(experts_use(&l, experts_layer(&l, i % EXPERTS_LAYERS), numbers,
                                 count, NULL, 0, NULL),
                     BERTH_OK);
        }
        CHECK_EQ(l.wrong, 0);
        leased_stop(&l);
    }
    CHECK_GE(failed, 40);
    T_NOTE("experts: %llu device calls failed", (unsigned long long)failed);
    leased_end(&l);
}

/* ------------------------------------------------------------------------- costs */

/* Nothing is allocated by leases. */
static void
test_costs(void)
{
    berth_memory_summary before;
    berth_memory_summary after;
    uint64_t random = 1;
    berth_error error;
    leased l;

    experts_begin(&l, 6);
    berth_context_memory(l.planned.context, &before);
    for (uint32_t i = 0; i < 40; i++)
        CHECK_EQ(pass(&l, &random, 6, &error), BERTH_OK);
    berth_context_memory(l.planned.context, &after);
    CHECK_EQ(after.allocations, before.allocations);
    leased_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_no_wrong_byte);
    T_RUN(test_bytes_show_a_wait_that_is_missing);
    T_RUN(test_threads);
    T_RUN(test_experts_of_the_disk);
    T_RUN(test_few_buffers);
    T_RUN(test_prefetch_of_the_disk);
    T_RUN(test_reads_that_fail);
    T_RUN(test_a_file_that_is_short);
    T_RUN(test_a_device_stands_still);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_every_call_of_a_device_can_fail);
    T_RUN(test_device_faults);
    T_RUN(test_costs);
    T_MAIN_END;
}
