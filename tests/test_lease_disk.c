/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_disk.c - layers that come from the disk: the feeder, its ring, its faults. */
#define _DEFAULT_SOURCE

#include "loader/lease.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "loader/reader.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/leased.h"
#include "tests/t.h"
#include "tests/traced.h"

#define LAYERS 8u
#define KIB UINT64_C(1024)
#define SECOND_NS UINT64_C(1000000000)
#define LATE_NS (5 * SECOND_NS)

/* Where a model's weights are. */
typedef enum mix {
    MIX_DISK,  /* all of the layers on the disk */
    MIX_PARTS, /* attention in host memory, the MLP on the disk */
    MIX_BOTH,  /* layers on the disk, in host memory, and resident */
    MIX_HOST   /* no GPU: computed in host memory, streamed from the disk */
} mix;

static leased_options
options_of(mix kind, uint32_t slots, const char *devices)
{
    leased_options options = { .memory = "0=64MiB,cpu=64MiB,disk=inf",
                               .slots = slots,
                               .devices = devices };

    switch (kind) {
    case MIX_DISK: options.pins[0] = "model.layers=disk"; break;
    case MIX_PARTS:
        options.pins[0] = "model.layers.*.mlp=disk";
        options.pins[1] = "model.layers=cpu";
        break;
    case MIX_BOTH:
        options.pins[0] = "model.layers.1-2=disk";
        options.pins[1] = "model.layers.4=cpu";
        options.pins[2] = "model.layers.5=disk";
        options.pins[3] = "model.layers.7=cpu";
        break;
    case MIX_HOST:
        options.memory = "cpu=64MiB,disk=inf";
        options.pins[0] = "model.layers=disk";
        options.devices = NULL;
        break;
    }
    return options;
}

/* So many layers are the first device's, all others the second's; all are on the disk. */
static leased_options
options_of_two(uint32_t slots, uint32_t first)
{
    leased_options options = { .memory = "0=64MiB,1=64MiB,cpu=64MiB,disk=inf",
                               .slots = slots,
                               .devices = "sim:64MiB,h2d=500MB/s,jitter=50%,seed=5*2" };

    for (uint32_t i = 0; i < LAYERS; i++)
        options.pins[i] = fixture_format("model.layers.%u.input_layernorm=cuda:%u", i,
                                         i >= first);
    options.pins[LAYERS] = "model.layers=disk";
    return options;
}

static berth_lease_summary
summary(const leased *l)
{
    berth_lease_summary out;

    berthi_leases_summary(l->leases, &out);
    return out;
}

static uint32_t
layer_of(const leased *l, uint32_t number)
{
    return planned_layer(&l->planned, fixture_format("model.layers.%u", number));
}

static bool
start(leased *l, uint64_t ring_bytes)
{
    berth_error error;

    l->options.ring_bytes = ring_bytes;
    if (CHECK_EQ(leased_start(l, &error), BERTH_OK))
        return true;
    T_NOTE("%s", error.message);
    return false;
}

static void
passes(leased *l, uint32_t count)
{
    berth_error error;

    for (uint32_t i = 0; i < count; i++) {
        if (!CHECK_EQ(leased_pass(l, NULL, &error), BERTH_OK)) {
            T_NOTE("pass %u: %s: %s", i, error.tensor, error.message);
            break;
        }
        CHECK(leased_settle(l));
    }
}

/* ------------------------------------------------------------------------- bytes */

static void
check_passes(mix kind, uint32_t slots, uint64_t ring_bytes, const char *devices, int32_t io,
             bool no_uring)
{
    const leased_options options = options_of(kind, slots, devices);
    const uint32_t count = 4;
    uint64_t streamed = 0;
    berth_lease_summary sum;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), &options);
    l.options = (berthi_lease_options){ .io = io, .no_uring = no_uring, .readers = 2 };
    if (start(&l, ring_bytes)) {
        streamed = l.leases->unit_count;
        passes(&l, count);
        CHECK_EQ(l.wrong, 0);
        CHECK_EQ(l.compared, 2 * count * streamed);
        sum = summary(&l); /* once: the next pass is being fed already */
        CHECK_EQ(sum.acquired, count * streamed);
        CHECK_EQ(sum.order_misses, 0);
        CHECK_GE(sum.disk_bytes, count * l.leases->chunks.span_bytes);
        CHECK_GE(sum.copied_bytes - sum.disk_bytes,
                 count * (leased_unit_bytes(&l) - leased_disk_bytes(&l)));
        CHECK_LE(sum.filled, count * streamed + slots);
    }
    leased_end(&l);
}

static void
test_passes_from_the_disk(void)
{
    for (int kind = MIX_DISK; kind <= MIX_HOST; kind++)
        for (uint32_t slots = 1; slots <= 3; slots++) {
            check_passes((mix)kind, slots, 64 * KIB, NULL, BERTH_IO_AUTO, true);
            check_passes((mix)kind, slots, 300 * KIB, NULL, BERTH_IO_DIRECT, false);
            check_passes((mix)kind, slots, 0, NULL, BERTH_IO_BUFFERED, true);
        }
}

/* Copies that are late: a buffer that is used again too early shows. */
static void
test_passes_on_simulated_devices(void)
{
    static const char *const words[] = {
        "sim:64MiB,h2d=200MB/s,jitter=50%,seed=1",
        "sim:64MiB,h2d=2GB/s,jitter=50%,seed=2,pick=random",
        "sim:64MiB,h2d=500MB/s,latency=100us,jitter=50%,seed=3,clock=real,backing=sealed",
        "sim:64MiB,h2d=500MB/s,pin=0B,seed=4,backing=sealed",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int kind = MIX_DISK; kind < MIX_HOST; kind++)
            check_passes((mix)kind, 1 + (uint32_t)i % 3, 96 * KIB, words[i], BERTH_IO_AUTO,
                         true);
}

/* Two devices take turns: one ring feeds both, in the order of the layers. */
static void
test_two_devices(void)
{
    const leased_options options = options_of_two(2, 4);
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 3), &options);
    if (start(&l, 64 * KIB)) {
        CHECK_EQ(l.leases->line_count, 2);
        passes(&l, 4);
        CHECK_EQ(l.wrong, 0);
        CHECK_EQ(l.compared, 4 * 2 * LAYERS);
        CHECK_EQ(summary(&l).order_misses, 0);
    }
    leased_end(&l);
}

/* Weights that lie in several tensors of the file: each part to its place. */
static void
test_weights_in_parts(void)
{
    const leased_options options = options_of(MIX_PARTS, 2, NULL);
    uint32_t most = 0;
    leased l;

    leased_begin(&l, leased_nf4(LAYERS), &options);
    for (uint64_t i = 0; i < l.planned.summary.berth_count; i++)
        most = l.cargos[i].part_count > most ? l.cargos[i].part_count : most;
    CHECK_GE(most, 3);
    if (start(&l, 64 * KIB)) {
        passes(&l, 3);
        CHECK_EQ(l.compared, 2 * 3 * LAYERS);
        CHECK_EQ(l.wrong, 0);
    }
    leased_end(&l);
}

static uint64_t
draw(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *random >> 33;
}

/* The feeder follows whatever is asked for. */
static void
test_any_order(void)
{
    for (uint32_t slots = 1; slots <= 3; slots++) {
        const leased_options options = options_of((mix)(slots - 1), slots, NULL);
        uint64_t random = slots;
        berth_error error;
        leased l;

        leased_begin(&l, leased_llama(LAYERS, 2), &options);
        T_REQUIRE(start(&l, 64 * KIB));
        for (uint32_t i = 0; i < 300; i++)
            if (!CHECK_EQ(leased_use(&l, (uint32_t)draw(&random) % leased_layers(&l), NULL,
                                     0, &error),
                          BERTH_OK))
                break;
        CHECK_EQ(l.wrong, 0);
        CHECK_GT(summary(&l).order_misses, 100);
        leased_end(&l);
    }
}

/* Several at once in any order, whatever waits for whom: right, or refused; so many were. */
static uint32_t
hold_in_any_order(const leased_options *options, uint32_t most)
{
    uint32_t held[8];
    uint32_t held_count = 0;
    uint32_t refused = 0;
    uint64_t random = options->slots;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), options);
    l.model.wait_ns = UINT64_C(5000000000);
    if (!start(&l, 64 * KIB))
        abort();
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t layer = (uint32_t)draw(&random) % leased_layers(&l);
        berth_error error;
        berth_status status;

        while (held_count == most || (held_count > 0 && draw(&random) % 16 == 0)) {
            CHECK_EQ(berthi_leases_release(l.leases, held[0], NULL, NULL), BERTH_OK);
            memmove(held, held + 1, --held_count * sizeof held[0]);
        }
        status = berthi_leases_acquire(l.leases, layer, NULL, &error);
        if (status == BERTH_ENOFIT) {
            refused++;
            continue;
        }
        if (!CHECK_EQ(status, BERTH_OK)) {
            T_NOTE("%s: %s", error.tensor, error.message);
            break;
        }
        CHECK_EQ(leased_compare(&l, layer, NULL, 0, NULL), BERTH_OK);
        held[held_count++] = layer;
    }
    while (held_count > 0)
        CHECK_EQ(berthi_leases_release(l.leases, held[--held_count], NULL, NULL), BERTH_OK);
    CHECK(leased_settle(&l));
    CHECK_EQ(l.wrong, 0);
    CHECK_GT(l.compared, 50);
    leased_end(&l);
    return refused;
}

static void
test_any_order_with_leases_held(void)
{
    for (uint32_t slots = 2; slots <= 4; slots++)
        for (uint32_t most = slots - 1; most <= slots + 2; most += 3) {
            const leased_options disk = options_of(MIX_DISK, slots, NULL);
            const leased_options both = options_of(MIX_BOTH, slots, NULL);
            const leased_options two = options_of_two(slots, 3);
            uint32_t refused = hold_in_any_order(&disk, most);

            refused += hold_in_any_order(&both, most);
            refused += hold_in_any_order(&two, most);
            CHECK_EQ(refused > 0, most > slots);
        }
}

/* What comes for each slot is what the layer has on the disk, and nothing twice. */
static void
test_bytes_come_once(void)
{
    const leased_options options = options_of(MIX_DISK, 2, NULL);
    const uint64_t fills = 3 * LAYERS + 2;
    leased l;
    uint64_t spans;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    T_REQUIRE(start(&l, 128 * KIB));
    spans = l.leases->chunks.span_bytes;
    CHECK_LE(spans, leased_disk_bytes(&l));
    CHECK_GE(spans + 256 * 9 * LAYERS, leased_disk_bytes(&l));
    passes(&l, 3);
    for (uint32_t i = 0; i < 20000 && summary(&l).filled < fills; i++)
        (void)usleep(1000);
    CHECK_EQ(summary(&l).filled, fills);
    CHECK_EQ(summary(&l).disk_bytes, fills * (spans / LAYERS));
    CHECK_EQ(summary(&l).copied_bytes, summary(&l).disk_bytes);
    leased_end(&l);
}

/* So many bytes have been read, once nothing is read any more. */
static uint64_t
settled_reads(traced *t)
{
    uint64_t before = UINT64_MAX;
    uint64_t bytes = traced_bytes(t, BERTH_TRACE_READ, -1);

    for (uint32_t still = 0; still < 20; still = bytes == before ? still + 1 : 0) {
        (void)usleep(5000);
        before = bytes;
        bytes = traced_bytes(t, BERTH_TRACE_READ, -1);
    }
    return bytes;
}

/* What a pass reads besides the spans: what lies between those of a chunk. */
static uint64_t
gap_bytes(const berthi_chunks *chunks)
{
    uint64_t bytes = 0;

    for (uint64_t c = 0; c < chunks->chunk_count; c++)
        bytes += chunks->chunks[c].end - chunks->chunks[c].begin;
    return bytes - chunks->span_bytes;
}

static void
check_reads(const leased_options *options, uint64_t ring_bytes)
{
    const uint32_t count = 5;
    uint64_t wanted;
    uint64_t slack;
    uint64_t gaps;
    traced *t;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), options);
    l.options = (berthi_lease_options){ .io = BERTH_IO_BUFFERED, .readers = 1 };
    t = traced_begin(l.planned.context);
    T_REQUIRE(start(&l, ring_bytes));
    passes(&l, count);
    CHECK_EQ(l.wrong, 0);
    /* What is in the ring has been read for the pass that does not come. */
    slack = berthi_min_u64(ring_bytes, l.leases->chunks.span_bytes);
    /* Slots are in that pass already, and a ring as large as one ends in the next. */
    gaps = (count + 2) * gap_bytes(&l.leases->chunks);
    wanted = settled_reads(t);
    CHECK_GE(wanted, summary(&l).disk_bytes);
    if (!CHECK_LE(wanted, summary(&l).disk_bytes + slack + gaps))
        t_note("%u slots, %u lines, a ring of %" PRIu64 " bytes", options->slots,
               l.leases->line_count, ring_bytes);
    leased_end(&l);
    traced_end(t);
}

/* Nothing is read for nothing, whoever's turn it is: not by the file's system's count. */
static void
test_bytes_are_read_once(void)
{
    for (uint32_t slots = 1; slots <= 3; slots++)
        for (uint32_t i = 0; i < 3; i++) {
            static const uint64_t rings[] = { 64 * KIB, 256 * KIB, 4096 * KIB };
            const leased_options one = options_of(MIX_DISK, slots, NULL);

            check_reads(&one, rings[i]);
            for (uint32_t first = 1; first < LAYERS; first++) {
                const leased_options two = options_of_two(slots, first);

                check_reads(&two, rings[i]);
            }
        }
}

/*
 * Nor where somebody begins to wait for what is in the ring, full, just as the feeder finds
 * that nothing goes on: the rest of that layer being nowhere is no reason to begin anew.
 */
static void
test_bytes_are_read_once_by_the_slow(void)
{
    const leased_options one = options_of(MIX_DISK, 1, NULL);

    atomic_store(&berthi_lease_without, BERTHI_LEASE_NO_HASTE); /* the feeder dawdles there */
    check_reads(&one, 64 * KIB);
    for (uint32_t first = 1; first < LAYERS; first++) {
        const leased_options two = options_of_two(1, first);

        check_reads(&two, 64 * KIB);
    }
    atomic_store(&berthi_lease_without, 0);
}

/* ------------------------------------------------------------------------- faults */

/* Uses layers in order until one fails; how many went well. */
static uint32_t
use_until_failure(leased *l, uint32_t limit, berth_error *error, berth_status *status)
{
    uint32_t used = 0;

    *status = BERTH_OK;
    while (used < limit) {
        *status = leased_use(l, used % leased_layers(l), NULL, 0, error);
        if (*status != BERTH_OK)
            break;
        used++;
    }
    return used;
}

typedef enum damage { DAMAGE_TRUNCATED, DAMAGE_REPLACED, DAMAGE_TOUCHED } damage;

/* To a file, from the byte at `place` on. */
static void
do_damage(damage kind, const char *path, uint64_t place)
{
    const char *const other = fixture_format("%s.new", path);

    switch (kind) {
    case DAMAGE_TRUNCATED: fixture_truncate(path, fixture_size(path) - place); break;
    case DAMAGE_REPLACED:
        fixture_copy(path, other);
        fixture_flip(other, place, 1);
        CHECK_EQ(rename(other, path), 0);
        break;
    case DAMAGE_TOUCHED: fixture_flip(path, place, 1); break;
    }
}

/* Between two passes; what the next ones say of it. */
static void
check_damage(damage kind, uint32_t shard, uint64_t part, uint64_t parts)
{
    const leased_options options = options_of(MIX_DISK, 2, NULL);
    const char *const folder = leased_llama(3, 2);
    const char *const path =
        fixture_format("%s/model-%05u-of-00002.safetensors", folder, shard);
    berth_status status;
    berth_error error;
    leased l;

    leased_begin(&l, folder, &options);
    T_REQUIRE(start(&l, 64 * KIB));
    passes(&l, 1);
    fixture_tick(path);
    do_damage(kind, path, fixture_size(path) * part / parts);
    for (uint32_t again = 0; again < 2; again++) { /* it stays so */
        CHECK_LT(use_until_failure(&l, 4 * leased_layers(&l), &error, &status),
                 4 * leased_layers(&l));
        CHECK_EQ(status, BERTH_EIO);
        CHECK(error.reason == BERTH_REASON_CHANGED
              || error.reason == BERTH_REASON_TRUNCATED);
        CHECK_STR(error.file, path);
    }
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

static void
unlink_all(const char *folder)
{
    for (uint32_t shard = 1; shard <= 2; shard++)
        CHECK_EQ(unlink(fixture_format("%s/model-%05u-of-00002.safetensors", folder, shard)), 0);
}

/* Shards that are linked, made unreadable or removed have the bytes they had: all goes on. */
static void
test_files_that_go(void)
{
    const leased_options options = options_of(MIX_DISK, 2, NULL);
    const char *const folder = leased_llama(3, 2);
    const char *const path = fixture_format("%s/model-00001-of-00002.safetensors", folder);
    leased l;

    leased_begin(&l, folder, &options);
    T_REQUIRE(start(&l, 64 * KIB));
    passes(&l, 1);
    fixture_tick(path);
    CHECK_EQ(link(path, fixture_format("%s.linked", path)), 0);
    passes(&l, 2);
    CHECK_EQ(chmod(path, 0), 0);
    passes(&l, 2);
    unlink_all(folder);
    passes(&l, 2);
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
}

/* A shard that is cut, replaced or written to, anywhere: said, and never used. */
static void
test_files_that_change(void)
{
    for (int kind = DAMAGE_TRUNCATED; kind <= DAMAGE_TOUCHED; kind++)
        for (uint32_t shard = 1; shard <= 2; shard++)
            for (uint32_t part = 0; part < 11; part++)
                check_damage((damage)kind, shard, part, 11);
}

/* Every system call of the feeder fails in turn, once: said, or got over; then on. */
static void
test_reads_that_fail(void)
{
    const leased_options options = options_of(MIX_BOTH, 2, NULL);
    uint32_t said = 0;
    uint32_t runs = 0;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), &options);
    l.options = (berthi_lease_options){ .io = BERTH_IO_BUFFERED,
                                        .no_uring = true,
                                        .readers = 1 };
    for (uint64_t nth = 0; nth < 64; nth++) {
        berth_status status;
        berth_error error;
        uint32_t used;

        T_REQUIRE(start(&l, 64 * KIB));
        passes(&l, 1);
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        used = use_until_failure(&l, 3 * leased_layers(&l), &error, &status);
        berthi_fault_disarm();
        runs++;
        if (status != BERTH_OK) {
            said++;
            CHECK_LT(used, 3 * leased_layers(&l));
            CHECK_EQ(error.status, status);
            CHECK_EQ(status, BERTH_EIO);
            CHECK_NE(error.message[0], '\0');
        }
        /* Asked for again it is read again: at most one more has failed meanwhile. */
        (void)use_until_failure(&l, leased_layers(&l), &error, &status);
        passes(&l, 2);
        CHECK_EQ(l.wrong, 0);
        leased_stop(&l);
    }
    CHECK_GT(said, 10);
    T_NOTE("feeder: %u of %u failed calls were an acquire's", said, runs);
    leased_end(&l);
}

/* Who asks for a layer, on a thread. */
typedef struct asker {
    leased *leased;
    uint32_t layer;
    berth_status status;
    berth_error error;
    _Atomic bool has_answer;
} asker;

static void *
ask(void *user)
{
    asker *const a = user;

    a->status = berthi_leases_acquire(a->leased->leases, a->layer, NULL, &a->error);
    atomic_store(&a->has_answer, true);
    return NULL;
}

/*
 * The only slot has failed, which the one who waited for it has not seen yet: nobody is going
 * to lease it, so that another one waits for it, too.
 */
static void
test_a_slot_that_has_failed_is_free_soon(void)
{
    const leased_options options = options_of(MIX_DISK, 1, NULL);
    asker other = { .status = BERTH_PENDING };
    berthi_lease_line *line;
    pthread_t thread;
    uint64_t waits;
    berth_error error;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), &options);
    T_REQUIRE(start(&l, 64 * KIB));
    line = &l.leases->lines[0];
    CHECK_EQ(line->slot_count, 1);
    T_REQUIRE(berthi_leases_acquire(l.leases, layer_of(&l, 0), NULL, &error) == BERTH_OK);
    pthread_mutex_lock(&line->lock);
    line->slots[0].leases = 0;
    line->slots[0].waiters = 1;
    line->slots[0].fill = BERTHI_LEASE_FAILED;
    pthread_mutex_unlock(&line->lock);
    waits = summary(&l).host_waits;
    other.leased = &l;
    other.layer = layer_of(&l, 1);
    T_REQUIRE(pthread_create(&thread, NULL, ask, &other) == 0);
    while (summary(&l).host_waits == waits && !atomic_load(&other.has_answer))
        berthi_sys_sleep(UINT64_C(1000000));
    berthi_sys_sleep(UINT64_C(50000000)); /* what it waits for does not come */
    CHECK(!atomic_load(&other.has_answer));
    CHECK_EQ(summary(&l).host_waits, waits + 1);
    pthread_mutex_lock(&line->lock);
    line->slots[0].waiters = 0;
    (void)berthi_lease_await_feeder(l.leases, line, &line->slots[0], 0, &error);
    pthread_mutex_unlock(&line->lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    if (CHECK_EQ(other.status, BERTH_OK))
        CHECK_EQ(berthi_leases_release(l.leases, other.layer, NULL, &error), BERTH_OK);
    else
        T_NOTE("%s", other.error.message);
    passes(&l, 1);
    CHECK_EQ(l.wrong, 0);
    leased_stop(&l);
    leased_end(&l);
}

static void
test_every_call_can_fail(void)
{
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        const leased_options options = options_of(MIX_PARTS, 2, NULL);
        fault_counts counts;
        leased l;

        leased_begin(&l, leased_llama(3, 1), &options);
        l.options = (berthi_lease_options){
            .ring_bytes = 64 * KIB, .no_uring = no_uring != 0, .readers = 2
        };
        counts = fault_loop("leases from the disk", leased_use_all, &l);
        CHECK_GT(counts.memory, 20);
        CHECK_GT(counts.system, 20);
        l.model.context = l.planned.context;
        leased_end(&l);
    }
}

/*
 * Any call of the device: told by somebody's acquire, and afterwards all is well. The
 * feeder brings the next pass while this one is used: it may be that one that is told.
 */
static void
test_device_faults(void)
{
    const leased_options options = options_of(MIX_PARTS, 2, NULL);
    uint32_t said = 0;
    uint64_t nth = 0;
    leased l;

    leased_begin(&l, leased_llama(3, 1), &options);
    for (bool is_over = false; !is_over && nth < 2000; nth++) {
        berth_status status;
        berth_error error;

        l.options.ring_bytes = 64 * KIB;
        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        status = leased_start(&l, &error);
        if (status == BERTH_OK)
            status = leased_pass(&l, NULL, &error);
        berthi_fault_disarm();
        is_over = berthi_fault_failures(BERTHI_FAULT_DEVICE) == 0;
        if (l.leases != NULL && status == BERTH_OK)
            (void)use_until_failure(&l, leased_layers(&l), &error, &status);
        if (status != BERTH_OK) {
            said++;
            CHECK(!is_over);
            CHECK_EQ(status, BERTH_ENODEV);
            CHECK_EQ(error.status, status);
        }
        if (l.leases != NULL) {
            passes(&l, 1);
            CHECK_EQ(l.wrong, 0);
        }
        leased_stop(&l);
    }
    CHECK_GT(said, 30);
    T_NOTE("leases from the disk: %llu device calls failed, %u were told",
           (unsigned long long)nth, said);
    leased_end(&l);
}

/* A device that is lost says so for ever; everything is given back all the same. */
static void
test_a_device_is_lost(void)
{
    for (uint32_t call = 30; call < 400; call += 23) {
        const leased_options options = options_of(
            (mix)(call % 3), 2,
            fixture_format("sim:64MiB,h2d=500MB/s,lose=%u", call + 200));
        berth_error error;
        berth_status status;
        leased l;

        leased_begin(&l, leased_llama(LAYERS, 1), &options);
        l.options.ring_bytes = 64 * KIB;
        status = leased_start(&l, &error);
        if (status == BERTH_OK)
            (void)use_until_failure(&l, 400, &error, &status);
        CHECK_EQ(status, BERTH_ENODEV);
        CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
        if (l.leases != NULL) {
            (void)use_until_failure(&l, 400, &error, &status);
            CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
        }
        CHECK_EQ(l.wrong, 0);
        leased_end(&l);
    }
}

/* ------------------------------------------------------------------------ waiting */

/* The reason why one of two layers did not come; NONE. All takes so many times as long. */
static int32_t
use_slow_copies(uint32_t times)
{
    leased_options options = options_of(
        MIX_DISK, 1, fixture_format("sim:64MiB,h2d=%uKB/s,clock=real,pin=0B", 10000 / times));
    int32_t reason = BERTH_REASON_NONE;
    berth_error error;
    leased l;

    options.is_empty = true;
    leased_begin(&l, leased_wide(LAYERS), &options);
    l.model.wait_ns = times * UINT64_C(400000000);
    if (!start(&l, 8192 * KIB)) /* each of its buffers takes 0.2 s, a layer 0.8 */
        return -1;
    for (uint32_t i = 0; i < 2 && reason == BERTH_REASON_NONE; i++) {
        if (berthi_leases_acquire(l.leases, layer_of(&l, i), NULL, &error) != BERTH_OK)
            reason = error.reason;
        else
            CHECK_EQ(berthi_leases_release(l.leases, layer_of(&l, i), NULL, &error), BERTH_OK);
    }
    leased_stop(&l);
    leased_end(&l);
    return reason;
}

/*
 * Copies that are not pinned, each of which the driver keeps its caller for: a layer of many
 * takes longer than a device is waited for, and it moves all the while. A machine that is busy
 * for longer than that itself gets copies, and patience, of twice the time, and again.
 */
static void
test_copies_that_are_slow(void)
{
    int32_t reason = BERTH_REASON_TIMEOUT;

    for (uint32_t times = 1; times <= 32 && reason == BERTH_REASON_TIMEOUT; times *= 2)
        reason = use_slow_copies(times);
    CHECK_EQ(reason, BERTH_REASON_NONE);
}

/* The ring stays full: how long it takes until an acquire is told. */
static uint64_t
stand_still(void)
{
    const leased_options options =
        options_of(MIX_DISK, 1, "sim:64MiB,h2d=500MB/s,clock=real,stall=4");
    berth_status status;
    berth_error error;
    uint64_t begin;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    l.model.wait_ns = UINT64_C(100000000);
    if (!start(&l, 64 * KIB))
        return 0;
    begin = berthi_sys_now_ns();
    (void)use_until_failure(&l, 100, &error, &status);
    CHECK_EQ(status, BERTH_EIO);
    CHECK_EQ(error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(error.tensor, "model.layers.");
    begin = berthi_sys_now_ns() - begin;
    CHECK_GE(begin, l.model.wait_ns);
    leased_end(&l);
    return begin;
}

/* A device that does: in time; a busy machine may be later once, and gets more tries. */
static void
test_a_device_stands_still(void)
{
    uint64_t took_ns = UINT64_MAX;

    for (int tries = 0; tries < T_CANCEL_TRIES && took_ns >= LATE_NS; tries++)
        took_ns = stand_still();
    CHECK_LT(took_ns, LATE_NS);
}

/*
 * Who comes back long after the time was over was not there when the feeder was: it waits once
 * more. Else only what the feeder has moved since puts the time off.
 */
static void
test_who_was_away_waits_once_more(void)
{
    berth_model model = { .wait_ns = SECOND_NS };
    berthi_leases leases = { .model = &model };
    berthi_lease_line line = { .passed_ns = 0 };
    const uint64_t now_ns = berthi_sys_now_ns();
    uint64_t deadline_ns = now_ns + 100 * SECOND_NS;

    CHECK(!berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_EQ(deadline_ns, now_ns + 100 * SECOND_NS);
    deadline_ns = now_ns - SECOND_NS / 2;
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + model.wait_ns);
    CHECK_LT(deadline_ns, now_ns + LATE_NS);
    deadline_ns = now_ns + 100 * SECOND_NS;
    atomic_store(&leases.read_ns, now_ns + 100 * SECOND_NS);
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + 101 * SECOND_NS);
    deadline_ns = now_ns + 100 * SECOND_NS;
    line.copying = 1; /* what others have moved does not count */
    CHECK(!berthi_lease_put_off(&leases, &line, &deadline_ns));
    atomic_store(&leases.is_behind, true); /* but where nobody looks at its copies */
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + 101 * SECOND_NS);
    deadline_ns = now_ns + 100 * SECOND_NS;
    line.written = 1; /* who writes without the lock does */
    CHECK(!berthi_lease_put_off(&leases, &line, &deadline_ns));
    line.passed_ns = now_ns + 100 * SECOND_NS;
    CHECK(berthi_lease_put_off(&leases, &line, &deadline_ns));
    CHECK_GE(deadline_ns, now_ns + 101 * SECOND_NS);
}

/* How long the end takes that comes while the feeder reads, waits for a slot, or copies. */
static uint64_t
destroy_at_once(uint32_t i)
{
    const leased_options options = options_of(
        (mix)(i % 4), 1 + i % 2, i % 8 == 0 ? "sim:64MiB,h2d=50MB/s,clock=real" : NULL);
    uint64_t begin_ns = 0;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    if (start(&l, 64 * KIB)) {
        if (i % 3 == 0)
            CHECK_EQ(berthi_leases_acquire(l.leases, layer_of(&l, 0), NULL, NULL), BERTH_OK);
        if (i % 3 == 1)
            (void)usleep(100 * i);
        begin_ns = berthi_sys_now_ns();
        leased_stop(&l);
        begin_ns = berthi_sys_now_ns() - begin_ns;
    }
    leased_end(&l);
    return begin_ns;
}

/* A busy machine may be later once, and gets more tries of the same. */
static void
test_destroyed_at_any_time(void)
{
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t ns = UINT64_MAX;

        for (int tries = 0; tries < T_CANCEL_TRIES && ns >= SECOND_NS; tries++)
            ns = destroy_at_once(i);
        CHECK_LT(ns, SECOND_NS);
    }
}

/* --------------------------------------------------------------------- slow memory */

/* Buffers of the ring that have begun when the first layer is there, or when all is given back. */
static uint64_t
buffers_until(bool acquires)
{
    const leased_options options = options_of(MIX_DISK, 2, "sim:64MiB");
    uint64_t buffers;
    berth_error error;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    l.options.ring_bytes = 1024 * KIB; /* a buffer for each layer */
    haul_set((haul_tricks){ .knows_buffers = true, .add_ns = 250000000 });
    atomic_store(&berthi_reader_instead, &haul_reader);
    atomic_store(&haul_buffers, 0);
    CHECK_EQ(leased_start(&l, &error), BERTH_OK);
    if (acquires)
        CHECK_EQ(leased_use(&l, 1, NULL, 0, &error), BERTH_OK);
    else
        leased_stop(&l);
    buffers = atomic_load(&haul_buffers);
    leased_stop(&l);
    atomic_store(&berthi_reader_instead, NULL);
    haul_set((haul_tricks){ .add_ns = 0 });
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
    return buffers;
}

/* Two seconds until all of the ring is there: nobody waits for that, in one try of some. */
static void
test_ring_grows_beside(void)
{
    for (int acquires = 0; acquires < 2; acquires++) {
        uint64_t buffers = UINT64_MAX;

        for (int tries = 0; tries < T_CANCEL_TRIES && buffers > LAYERS / 2; tries++)
            buffers = buffers_until(acquires != 0);
        CHECK_LE(buffers, LAYERS / 2);
    }
}

/* -------------------------------------------------------------------------- tuning */

/*
 * Buffers of a ring with room for 15 that passes of a second have used, where reads come as
 * `trick` says and each layer is computed for so long.
 */
static uint64_t
buffers_of(haul_tricks trick, useconds_t microseconds)
{
    const leased_options options = options_of(MIX_HOST, 2, NULL);
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_memory staging = { .peak_bytes = 0 };
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    haul_set(trick);
    atomic_store(&berthi_reader_instead, &haul_reader);
    if (start(&l, 15 * 8 * KIB)) {
        while (berthi_sys_now_ns() - begin_ns < UINT64_C(1000000000)) {
            passes(&l, 1);
            (void)usleep(LAYERS * microseconds);
        }
        CHECK_EQ(berth_memory_get(l.planned.context, 0, BERTH_MEMORY_STAGING, &staging),
                 BERTH_OK);
    }
    leased_stop(&l);
    atomic_store(&berthi_reader_instead, NULL);
    haul_set((haul_tricks){ .delay_ns = 0 });
    CHECK_EQ(l.wrong, 0);
    leased_end(&l);
    CHECK_EQ(staging.peak_bytes % (8 * KIB), 0);
    return staging.peak_bytes / (8 * KIB);
}

/* Eight, and more only while whoever computes has to wait for reads. */
static void
test_ring_is_tuned(void)
{
    CHECK_EQ(buffers_of((haul_tricks){ .latency_ns = 10000000 }, 0), 15);
    CHECK_EQ(buffers_of((haul_tricks){ .latency_ns = 0 }, 20000), 8);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_passes_from_the_disk);
    T_RUN(test_passes_on_simulated_devices);
    T_RUN(test_two_devices);
    T_RUN(test_weights_in_parts);
    T_RUN(test_any_order);
    T_RUN(test_any_order_with_leases_held);
    T_RUN(test_bytes_come_once);
    T_RUN(test_bytes_are_read_once);
    T_RUN(test_bytes_are_read_once_by_the_slow);
    T_RUN(test_files_that_go);
    T_RUN(test_files_that_change);
    T_RUN(test_reads_that_fail);
    T_RUN(test_a_slot_that_has_failed_is_free_soon);
    T_RUN(test_every_call_can_fail);
    T_RUN(test_device_faults);
    T_RUN(test_a_device_is_lost);
    T_RUN(test_copies_that_are_slow);
    T_RUN(test_a_device_stands_still);
    T_RUN(test_who_was_away_waits_once_more);
    T_RUN(test_destroyed_at_any_time);
    T_RUN(test_ring_grows_beside);
    T_RUN(test_ring_is_tuned);
    T_MAIN_END;
}
