/* SPDX-License-Identifier: Apache-2.0 */
/* test_lease_disk.c - layers that come from the disk: the feeder, its ring, its order. */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "loader/lease.h"
#include "loader/reader.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/leased.h"
#include "tests/mixed.h"
#include "tests/t.h"
#include "tests/traced.h"

#define LAYERS 8u
#define KIB UINT64_C(1024)

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

/* ------------------------------------------------------------------------- bytes */

static void
check_passes(mixed kind, uint32_t slots, uint64_t ring_bytes, const char *devices, int32_t io,
             bool no_uring)
{
    const leased_options options = mixed_options(kind, slots, devices);
    const uint32_t count = 4;
    uint64_t streamed = 0;
    berth_lease_summary sum;
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 2), &options);
    l.options = (berthi_lease_options){ .io = io, .no_uring = no_uring, .readers = 2 };
    if (mixed_start(&l, ring_bytes)) {
        streamed = l.leases->unit_count;
        mixed_passes(&l, count);
        CHECK_EQ(l.wrong, 0);
        CHECK_EQ(l.compared, 2 * count * streamed);
        sum = mixed_summary(&l); /* once: the next pass is being fed already */
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
    for (int kind = MIXED_DISK; kind <= MIXED_HOST; kind++)
        for (uint32_t slots = 1; slots <= 3; slots++) {
            check_passes((mixed)kind, slots, 64 * KIB, NULL, BERTH_IO_AUTO, true);
            check_passes((mixed)kind, slots, 300 * KIB, NULL, BERTH_IO_DIRECT, false);
            check_passes((mixed)kind, slots, 0, NULL, BERTH_IO_BUFFERED, true);
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
        for (int kind = MIXED_DISK; kind < MIXED_HOST; kind++)
            check_passes((mixed)kind, 1 + (uint32_t)i % 3, 96 * KIB, words[i], BERTH_IO_AUTO,
                         true);
}

/* Two devices take turns: one ring feeds both, in the order of the layers. */
static void
test_two_devices(void)
{
    const leased_options options = options_of_two(2, 4);
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 3), &options);
    if (mixed_start(&l, 64 * KIB)) {
        CHECK_EQ(l.leases->line_count, 2);
        mixed_passes(&l, 4);
        CHECK_EQ(l.wrong, 0);
        CHECK_EQ(l.compared, 4 * 2 * LAYERS);
        CHECK_EQ(mixed_summary(&l).order_misses, 0);
    }
    leased_end(&l);
}

/* Weights that lie in several tensors of the file: each part to its place. */
static void
test_weights_in_parts(void)
{
    const leased_options options = mixed_options(MIXED_PARTS, 2, NULL);
    uint32_t most = 0;
    leased l;

    leased_begin(&l, leased_nf4(LAYERS), &options);
    for (uint64_t i = 0; i < l.planned.summary.berth_count; i++)
        most = l.cargos[i].part_count > most ? l.cargos[i].part_count : most;
    CHECK_GE(most, 3);
    if (mixed_start(&l, 64 * KIB)) {
        mixed_passes(&l, 3);
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
        const leased_options options = mixed_options((mixed)(slots - 1), slots, NULL);
        uint64_t random = slots;
        berth_error error;
        leased l;

        leased_begin(&l, leased_llama(LAYERS, 2), &options);
        T_REQUIRE(mixed_start(&l, 64 * KIB));
        for (uint32_t i = 0; i < 300; i++)
            if (!CHECK_EQ(leased_use(&l, (uint32_t)draw(&random) % leased_layers(&l), NULL,
                                     0, &error),
                          BERTH_OK))
                break;
        CHECK_EQ(l.wrong, 0);
        CHECK_GT(mixed_summary(&l).order_misses, 100);
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
    if (!mixed_start(&l, 64 * KIB))
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
            const leased_options disk = mixed_options(MIXED_DISK, slots, NULL);
            const leased_options both = mixed_options(MIXED_BOTH, slots, NULL);
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
    const leased_options options = mixed_options(MIXED_DISK, 2, NULL);
    const uint64_t fills = 3 * LAYERS + 2;
    leased l;
    uint64_t spans;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    T_REQUIRE(mixed_start(&l, 128 * KIB));
    spans = l.leases->chunks.span_bytes;
    CHECK_LE(spans, leased_disk_bytes(&l));
    CHECK_GE(spans + 256 * 9 * LAYERS, leased_disk_bytes(&l));
    mixed_passes(&l, 3);
    for (uint32_t i = 0; i < 20000 && mixed_summary(&l).filled < fills; i++)
        (void)usleep(1000);
    CHECK_EQ(mixed_summary(&l).filled, fills);
    CHECK_EQ(mixed_summary(&l).disk_bytes, fills * (spans / LAYERS));
    CHECK_EQ(mixed_summary(&l).copied_bytes, mixed_summary(&l).disk_bytes);
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
    T_REQUIRE(mixed_start(&l, ring_bytes));
    mixed_passes(&l, count);
    CHECK_EQ(l.wrong, 0);
    /* What is in the ring has been read for the pass that does not come. */
    slack = berthi_min_u64(ring_bytes, l.leases->chunks.span_bytes);
    /* Slots are in that pass already, and a ring as large as one ends in the next. */
    gaps = (count + 2) * gap_bytes(&l.leases->chunks);
    wanted = settled_reads(t);
    CHECK_GE(wanted, mixed_summary(&l).disk_bytes);
    if (!CHECK_LE(wanted, mixed_summary(&l).disk_bytes + slack + gaps))
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
            const leased_options one = mixed_options(MIXED_DISK, slots, NULL);

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
    const leased_options one = mixed_options(MIXED_DISK, 1, NULL);

    atomic_store(&berthi_lease_without, BERTHI_LEASE_NO_HASTE); /* the feeder dawdles there */
    check_reads(&one, 64 * KIB);
    for (uint32_t first = 1; first < LAYERS; first++) {
        const leased_options two = options_of_two(1, first);

        check_reads(&two, 64 * KIB);
    }
    atomic_store(&berthi_lease_without, 0);
}

/* --------------------------------------------------------------------- slow memory */

/* Buffers of the ring that have begun when the first layer is there, or when all is given back. */
static uint64_t
buffers_until(bool acquires)
{
    const leased_options options = mixed_options(MIXED_DISK, 2, "sim:64MiB");
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
    const leased_options options = mixed_options(MIXED_HOST, 2, NULL);
    const uint64_t begin_ns = berthi_sys_now_ns();
    berth_memory staging = { .peak_bytes = 0 };
    leased l;

    leased_begin(&l, leased_llama(LAYERS, 1), &options);
    haul_set(trick);
    atomic_store(&berthi_reader_instead, &haul_reader);
    if (mixed_start(&l, 15 * 8 * KIB)) {
        while (berthi_sys_now_ns() - begin_ns < UINT64_C(1000000000)) {
            mixed_passes(&l, 1);
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
    T_RUN(test_ring_grows_beside);
    T_RUN(test_ring_is_tuned);
    T_MAIN_END;
}
