/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bench.c - links that are measured: against the words of simulated devices, in
 * files, in plans, and until somebody gives up.
 */
#define _POSIX_C_SOURCE 200809L

#include "loader/bench.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "placement/link.h"
#include "tests/benched.h"
#include "tests/fixture.h"
#include "tests/hung.h"
#include "tests/leased.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* The line of this kind and device; of several the last, or that without pins. */
static berth_bench_line
find(const berth_bench *bench, int32_t kind, uint32_t device, bool is_pinned)
{
    berth_bench_line found = { .kind = -1 };
    berth_bench_line line;

    for (uint32_t i = 0; berth_bench_get(bench, i, &line) == BERTH_OK; i++)
        if (line.kind == kind && line.device == device && line.is_pinned == is_pinned)
            found = line;
    CHECK_EQ(found.kind, kind);
    return found;
}

static bool
is_near(uint64_t rate, double expected, double share)
{
    return fabs((double)rate - expected) <= share * expected;
}

static bool
check_near(const benched *b, int32_t kind, uint32_t device, bool is_pinned, double expected)
{
    const berth_bench_line line = find(b->bench, kind, device, is_pinned);

    CHECK_EQ(line.is_simulated, 1);
    CHECK_EQ(line.own_rate, line.rate);
    CHECK_EQ(line.earlier_rate, 0);
    CHECK(line.seconds > 0);
    CHECK_GT(line.bytes, 0);
    if (CHECK(is_near(line.rate, expected, 0.01)))
        return true;
    T_NOTE("%s of device %u: %.0f, not %.0f", berth_bench_kind_name(kind), device,
           (double)line.rate, expected);
    return false;
}

/* ----------------------------------------------------------------------- devices */

static void
test_links_of_a_device(void)
{
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=25GB/s,d2h=20GB/s,memory=900GB/s,latency=0ns");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    check_near(&b, BERTH_BENCH_TO_DEVICE, 0, true, 25e9);
    check_near(&b, BERTH_BENCH_TO_DEVICE, 0, false, 12.5e9);
    check_near(&b, BERTH_BENCH_TO_HOST, 0, true, 20e9);
    check_near(&b, BERTH_BENCH_TO_HOST, 0, false, 10e9);
    check_near(&b, BERTH_BENCH_DEVICE_MEMORY, 0, false, 900e9);
    benched_end(&b);
}

/* What a copy takes beyond its bytes hardly counts: copies grow until it does not. */
static void
test_latency_hardly_counts(void)
{
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=25GB/s");
    b.options.memory_bytes = 256 * MIB;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    check_near(&b, BERTH_BENCH_TO_DEVICE, 0, true, 25e9);
    benched_end(&b);
}

/* Bytes of one look at a memory that is soon through with copies of 256 KiB. */
static uint64_t
measure_memory(void)
{
    berth_bench_line line;
    uint64_t bytes;
    benched b;

    benched_begin(&b, "sim:1GiB,memory=900GB/s");
    b.options.memory_bytes = MIB;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    check_near(&b, BERTH_BENCH_DEVICE_MEMORY, 0, false, 900e9);
    line = find(b.bench, BERTH_BENCH_TO_DEVICE, 0, true);
    CHECK_LE(line.bytes, 31 * (MIB / 4));
    bytes = find(b.bench, BERTH_BENCH_DEVICE_MEMORY, 0, false).bytes;
    benched_end(&b);
    return bytes;
}

/*
 * Several copies are timed together, 31 times; one that a sanitizer slows down takes as long
 * alone, and so does one that a busy machine keeps waiting: that gets more tries.
 */
static void
test_copies_within_a_device_are_many(void)
{
    const uint64_t many = UINT64_C(31) * 2 * 2 * (MIB / 4);
    uint64_t bytes = measure_memory();

    for (int i = 0; i < 8 && bytes < many; i++)
        bytes = measure_memory();
    if (!T_IS_SANITIZED)
        CHECK_GE(bytes, many);
}

/* Copies of a slow link are smaller: that of 10 MB/s is of 1 MiB. */
static void
test_slow_links_get_small_copies(void)
{
    benched b;
    berth_bench_line line;

    benched_begin(&b, "sim:1GiB,h2d=10MB/s,d2h=10GB/s,latency=0ns");
    b.options.memory_bytes = 64 * MIB;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    check_near(&b, BERTH_BENCH_TO_DEVICE, 0, true, 10e6);
    line = find(b.bench, BERTH_BENCH_TO_DEVICE, 0, true);
    CHECK_EQ(line.bytes, MIB);
    line = find(b.bench, BERTH_BENCH_TO_HOST, 0, true);
    CHECK_EQ(line.bytes, 16 * MIB);
    benched_end(&b);
}

/* Everything takes up to so much longer, and never less. */
static void
test_jitter_stays_in_its_bounds(void)
{
    for (unsigned seed = 0; seed < 8; seed++) {
        berth_bench_line line;
        benched b;

        benched_begin(&b, fixture_format("sim:1GiB,h2d=25GB/s,latency=0ns,jitter=20%%,seed=%u",
                                 seed));
        b.options.seconds = 0.05;
        CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
        line = find(b.bench, BERTH_BENCH_TO_DEVICE, 0, true);
        CHECK_LE(line.rate, UINT64_C(25000000000));
        CHECK_GE(line.rate, UINT64_C(20800000000));
        benched_end(&b);
    }
}

static void
test_devices_that_share_a_link(void)
{
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=24GB/s,latency=0ns,root=1*3;sim:1GiB,h2d=10GB/s,latency=0ns");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    for (uint32_t d = 0; d < 3; d++) {
        check_near(&b, BERTH_BENCH_TO_DEVICE, d, true, 24e9);
        check_near(&b, BERTH_BENCH_TO_DEVICE_SHARED, d, true, 8e9);
    }
    check_near(&b, BERTH_BENCH_TO_DEVICE, 3, true, 10e9);
    check_near(&b, BERTH_BENCH_TO_DEVICE_SHARED, 3, true, 10e9);
    CHECK_CONTAINS(berth_bench_links(b.bench), "\"cuda:3\"");
    benched_end(&b);
}

static void
test_devices_that_refuse(void)
{
    berth_bench_line line;
    benched b;

    /* No pinned memory: the link is what is left. */
    benched_begin(&b, "sim:1GiB,h2d=24GB/s,latency=0ns,pin=4KiB*2");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    line = find(b.bench, BERTH_BENCH_TO_DEVICE, 0, true);
    CHECK_EQ(line.rate, 0);
    CHECK_CONTAINS(line.words, "not pinned: ");
    line = find(b.bench, BERTH_BENCH_TO_DEVICE_SHARED, 1, true);
    CHECK_EQ(line.rate, 0);
    CHECK_STR(line.words, "a device refuses pinned memory");
    check_near(&b, BERTH_BENCH_TO_DEVICE, 1, false, 12e9);
    CHECK_CONTAINS(berth_bench_links(b.bench), "12000");
    benched_end(&b);

    /* Memory that does not suffice even for little: nothing is known of it. */
    benched_begin(&b, "sim:2MiB,h2d=24GB/s,latency=0ns");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    line = find(b.bench, BERTH_BENCH_DEVICE_MEMORY, 0, false);
    CHECK(line.rate > 0 || strcmp(line.words, "no room on the device") == 0);
    benched_end(&b);
}

/* What products take beyond their bytes; of weights that are as large as there is room for. */
static void
test_operations(void)
{
    static const uint64_t memory[] = { 1 * MIB, 4 * MIB, 64 * MIB };
    berth_bench_line line;
    benched b;

    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        benched_begin(&b, "sim:1GiB,h2d=25GB/s,memory=900GB/s,latency=0ns,operation=4us;"
                  "sim:1GiB,memory=90GB/s,latency=0ns,operation=50us");
        b.options.memory_bytes = memory[i];
        CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
        check_near(&b, BERTH_BENCH_OPERATION, 0, false, 1e6 / 4);
        check_near(&b, BERTH_BENCH_OPERATION, 1, false, 1e6 / 50);
        CHECK_CONTAINS(berth_bench_links(b.bench), "\"operation\": {\"nanoseconds\": ");
        benched_end(&b);
    }
    benched_begin(&b, "sim:1GiB;sim:1MiB,operation=4us");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    line = find(b.bench, BERTH_BENCH_OPERATION, 0, false);
    CHECK_EQ(line.rate, 0);
    CHECK_STR(line.words, "no time beyond their bytes");
    line = find(b.bench, BERTH_BENCH_OPERATION, 1, false);
    CHECK(line.rate > 0 || strcmp(line.words, "no room on the device") == 0);
    benched_end(&b);
    benched_begin(&b, "cpu");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    line = find(b.bench, BERTH_BENCH_OPERATION, 0, false);
    CHECK_EQ(line.rate, 0);
    CHECK_STR(line.words, "the host computes there");
    benched_end(&b);
}

/* Memory of which only digests are kept takes part, too. */
static void
test_digests_instead_of_bytes(void)
{
    benched b;

    benched_begin(&b, "sim:4GiB,h2d=24GB/s,d2h=12GB/s,latency=0ns,backing=digest");
    b.options.memory_bytes = 256 * MIB;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    check_near(&b, BERTH_BENCH_TO_DEVICE, 0, true, 24e9);
    check_near(&b, BERTH_BENCH_TO_HOST, 0, true, 12e9);
    benched_end(&b);
}

/* ---------------------------------------------------------------------- the host */

static void
test_host(void)
{
    berth_bench_line line;
    uint32_t copies = 0;
    uint32_t threads = 0;
    benched b;

    benched_begin(&b, NULL);
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    for (uint32_t i = 0; berth_bench_get(b.bench, i, &line) == BERTH_OK; i++) {
        CHECK_EQ(line.device, BERTH_NO_INDEX);
        CHECK_EQ(line.is_simulated, 0);
        CHECK_GT(line.rate, 1000000);
        CHECK_GT(line.bytes, 0);
        CHECK_EQ(line.bytes % (2 * MIB), 0);
        CHECK(line.seconds > 0);
        if (line.kind != BERTH_BENCH_COPY)
            continue;
        CHECK_GT(line.threads, threads);
        CHECK_EQ(line.threads == 1, copies == 0);
        threads = line.threads;
        copies++;
    }
    CHECK_EQ(berth_bench_count(b.bench), copies + 3);
    line = find(b.bench, BERTH_BENCH_NF4_DOUBLE, BERTH_NO_INDEX, false);
    CHECK_EQ(line.threads, threads);
    CHECK_EQ(berth_bench_get(b.bench, copies + 3, &line), BERTH_EINVAL);
    CHECK_EQ(line.rate, 0);
    CHECK_STR(berth_bench_kind_name(BERTH_BENCH_READ_COLD), "read_cold");
    CHECK_STR(berth_bench_kind_name(BERTH_BENCH_TO_DEVICE_SHARED), "to_device_shared");
    CHECK_STR(berth_bench_kind_name(BERTH_BENCH_UPDATE), "update");
    CHECK_STR(berth_bench_kind_name(BERTH_BENCH_OPERATION), "operation");
    CHECK(berth_bench_kind_name(BERTH_BENCH_OPERATION + 1) == NULL);
    CHECK(berth_bench_kind_name(-1) == NULL);
    benched_end(&b);
}

/* A second bench of the same gets the better of both, and says how far they are apart. */
static void
test_earlier(void)
{
    berth_bench *first;
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=24GB/s,latency=0ns,jitter=30%");
    CHECK_EQ(benched_measure(&b, &first), BERTH_OK);
    b.options.earlier = first;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    for (uint32_t i = 0; i < berth_bench_count(first); i++) {
        berth_bench_line before;
        berth_bench_line line;

        CHECK_EQ(berth_bench_get(first, i, &before), BERTH_OK);
        CHECK_EQ(berth_bench_get(b.bench, i, &line), BERTH_OK);
        CHECK(!(before.drift > 0));
        CHECK_EQ(line.earlier_rate, before.own_rate);
        CHECK_EQ(line.rate, line.own_rate > before.own_rate ? line.own_rate
                                                            : before.own_rate);
        CHECK(line.drift >= 0 && line.drift < 1);
        CHECK((line.drift > 0)
              == (line.own_rate != before.own_rate && line.own_rate > 0 && before.own_rate > 0));
    }
    CHECK(find(b.bench, BERTH_BENCH_TO_DEVICE, 0, true).drift > 0);
    b.options.folder = fixture_folder();
    b.options.earlier = b.bench;
    berth_bench_destroy(first);
    CHECK_EQ(benched_measure(&b, &first), BERTH_EINVAL);
    CHECK_CONTAINS(b.error.message, "has an earlier bench of other things");
    benched_end(&b);
}

/* ------------------------------------------------------------------------- reads */

/* Holes of a file never are where the file lies in memory, as on a tmpfs. */
static bool
is_cached(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const int64_t pages = berthi_sys_cached_pages(fd, 0, 1 << 20);

    close(fd);
    return pages == (1 << 20) / (int64_t)berthi_sys_page_bytes();
}

static void
test_reads_of_a_checkpoint(void)
{
    const char *const folder = leased_wide(3);
    berth_checkpoint *checkpoint;
    berth_bench_line line;
    benched b;

    benched_begin(&b, NULL);
    CHECK_EQ(berth_checkpoint_open(b.context, folder, NULL, &checkpoint, NULL), BERTH_OK);
    b.options.checkpoint = checkpoint;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    line = find(b.bench, BERTH_BENCH_READ_COLD, BERTH_NO_INDEX, false);
    CHECK_GT(line.rate, 0);
    CHECK_GT(line.bytes, 0);
    CHECK(strstr(line.words, "io_uring") != NULL || strstr(line.words, "threads") != NULL);
    line = find(b.bench, BERTH_BENCH_READ_WARM, BERTH_NO_INDEX, false);
    CHECK_GT(line.rate, 0);
    if (is_cached(fixture_format("%s/model-00001-of-00001.safetensors", folder)))
        CHECK_CONTAINS(line.words, "buffered");
    CHECK_CONTAINS(berth_bench_links(b.bench), "{\"tier\": \"disk\", \"feed\"");
    berth_bench_destroy(b.bench);
    b.bench = NULL;
    berth_checkpoint_close(checkpoint);
    benched_end(&b);
}

/* A shard that somebody cuts while it is being measured. */
static void
test_reads_of_a_shard_that_changes(void)
{
    const char *const folder = leased_wide(3);
    const char *const path = fixture_format("%s/model-00001-of-00001.safetensors", folder);
    berth_checkpoint *checkpoint;
    benched b;

    benched_begin(&b, NULL);
    CHECK_EQ(berth_checkpoint_open(b.context, folder, NULL, &checkpoint, NULL), BERTH_OK);
    b.options.checkpoint = checkpoint;
    T_REQUIRE(truncate(path, 1000000) == 0);
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_EIO);
    CHECK(b.error.reason == BERTH_REASON_TRUNCATED
          || b.error.reason == BERTH_REASON_CHANGED);
    CHECK_CONTAINS(b.error.file, "model");
    berth_checkpoint_close(checkpoint);
    benched_end(&b);
}

static void
test_reads_of_a_folder(void)
{
    const char *const folder = fixture_folder();
    benched b;

    benched_begin(&b, NULL);
    b.options.folder = folder;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    CHECK_GT(find(b.bench, BERTH_BENCH_READ_COLD, BERTH_NO_INDEX, false).rate, 0);
    CHECK_LE(find(b.bench, BERTH_BENCH_READ_COLD, BERTH_NO_INDEX, false).bytes, 4 * MIB);
    CHECK_GT(find(b.bench, BERTH_BENCH_READ_WARM, BERTH_NO_INDEX, false).rate, 0);
    CHECK_EQ(fixture_count(folder), 0);
    berth_bench_destroy(b.bench);

    b.options.folder = fixture_format("%s/none", folder);
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_ENOENT);
    CHECK_CONTAINS(b.error.file, "/none");
    b.options.folder = folder;
    b.options.file_bytes = UINT64_C(1) << 40;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_EIO);
    CHECK_EQ(b.error.reason, BERTH_REASON_DISK_FULL);
    CHECK_EQ(fixture_count(folder), 0);
    benched_end(&b);
}

/* ------------------------------------------------------------------------- plans */

static void
test_links_are_a_file_of_links(void)
{
    berthi_links links;
    berth_error error;
    char text[4096];
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=24GB/s,memory=480GB/s,latency=0ns,root=2*2");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    snprintf(text, sizeof text, "%s", berth_bench_links(b.bench));
    CHECK_EQ(berthi_links_parse(text, strlen(text), "f", &links, &error), BERTH_OK);
    CHECK_EQ(links.count, 3); /* two GPUs and cpu; nothing was read */
    CHECK_EQ(links.items[0].tier.kind, BERTHI_TIER_GPU);
    CHECK_EQ(links.items[1].tier.number, 1);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(is_near(links.items[i].feed.bytes, 12e9, 0.01));
        CHECK(is_near(links.items[i].memory.bytes, 480e9, 0.01));
        CHECK_EQ(links.items[i].feed.source, BERTHI_RATE_MEASURED);
        CHECK_STR(links.items[i].feed.words, "simulated, all at once");
        CHECK_STR(links.items[i].memory.words, "simulated");
    }
    CHECK_EQ(links.items[2].tier.kind, BERTHI_TIER_CPU);
    CHECK_EQ(links.items[2].memory.bytes,
             find(b.bench, BERTH_BENCH_HOST_MEMORY, BERTH_NO_INDEX, false).rate);
    CHECK_GE(links.items[2].feed.bytes,
             find(b.bench, BERTH_BENCH_COPY, BERTH_NO_INDEX, false).rate);
    CHECK_CONTAINS(links.fingerprint, " cores, sim:0*2, ");
    CHECK_LT(strlen(links.fingerprint), BERTHI_FINGERPRINT);
    benched_end(&b);
}

static void
test_plans_take_links(void)
{
    const char *const folder = leased_wide(4);
    berth_plan_options options;
    berth_plan_tier tier;
    planned p;
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=7GB/s,memory=70GB/s,latency=0ns,operation=9us");
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    berth_plan_options_init(&options);
    options.max_memory = "0=1GiB,cpu=1GiB";
    options.link_text = berth_bench_links(b.bench);
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
    CHECK(is_near(tier.link_rate, 7e9, 0.01));
    CHECK(is_near(tier.memory_rate, 70e9, 0.01));
    CHECK(is_near(tier.operation_ns, 9000, 0.01));
    CHECK_EQ(tier.link_source, BERTH_RATE_MEASURED);
    planned_end(&p);

    options.link_file = "links.json";
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_CONTAINS(p.error.message, "link_text");
    planned_end(&p);

    options.link_file = NULL;
    options.link_text = "{";
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_EFORMAT);
    CHECK_EQ(p.error.reason, BERTH_REASON_LINKS_JSON);
    CHECK_STR(p.error.file, "link_text");
    planned_end(&p);
    benched_end(&b);
}

/* ------------------------------------------------------------- achieved, predicted */

#define PASSES 6u

static double
now(const leased *l)
{
    berthi_device *const device = berthi_devices_at(l->devices, 0);

    return 1e-9 * (double)device->table->now_ns(device);
}

static void
use_layers(leased *l, berthi_stream *stream, uint32_t passes)
{
    const berth_plan *const plan = l->planned.plan;
    berth_plan_layer layer;
    berth_plan_tier tier;

    for (uint32_t i = 0; i < passes * leased_layers(l); i++) {
        const uint32_t number = i % leased_layers(l);
        double seconds;

        CHECK_EQ(berth_plan_get_layer(plan, number, &layer), BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(plan, layer.home, &tier), BERTH_OK);
        seconds = strcmp(layer.name, "model.embed_tokens") == 0
                      ? 0
                      : (double)layer.bytes / (double)tier.memory_rate;
        CHECK_EQ(leased_use(l, number, stream, seconds, NULL), BERTH_OK);
    }
    CHECK_EQ(berth_stream_wait(l->devices, 0, stream, -1, NULL), BERTH_OK);
}

/* A plan of links that were measured says how long a pass takes on those devices. */
static void
see_predicted(const char *memory, const char *rates)
{
    const char *const words =
        fixture_format("sim:1GiB,h2d=%s,memory=8GB/s,latency=0ns", rates);
    berth_plan_options options;
    berth_plan_summary summary;
    leased l;
    berthi_stream *stream = NULL;
    berthi_links links;
    double begin_seconds;
    double seconds;
    char text[4096];
    benched b;

    benched_begin(&b, words);
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    snprintf(text, sizeof text, "%s", berth_bench_links(b.bench));
    CHECK_EQ(berthi_links_parse(text, strlen(text), "f", &links, NULL), BERTH_OK);
    leased_begin(&l, leased_wide(10),
                 &(leased_options){
                     .memory = memory,
                     .links = fixture_format(
                         "0=%lluB/s,0.memory=%lluB/s",
                         (unsigned long long)links.items[0].feed.bytes,
                         (unsigned long long)links.items[0].memory.bytes),
                     .devices = words,
                     .is_empty = true,
                 });
    berth_plan_options_init(&options);
    berth_plan_get(l.planned.plan, &summary);
    CHECK_GT(summary.link_bytes, 0);
    CHECK_EQ(berthi_devices_at(l.devices, 0)->table->stream_create(
                 berthi_devices_at(l.devices, 0), &stream, NULL),
             BERTH_OK);
    CHECK_EQ(leased_start(&l, NULL), BERTH_OK);
    use_layers(&l, stream, 2);
    begin_seconds = now(&l);
    use_layers(&l, stream, PASSES);
    seconds = (now(&l) - begin_seconds) / PASSES;
    if (!CHECK(fabs(seconds - summary.seconds) <= 0.05 * summary.seconds))
        T_NOTE("%s, %s: %.6f ms against %.6f", memory, rates, 1e3 * seconds,
               1e3 * summary.seconds);
    leased_stop(&l);
    berthi_devices_at(l.devices, 0)->table->stream_destroy(
        berthi_devices_at(l.devices, 0), stream);
    leased_end(&l);
    benched_end(&b);
}

static void
test_predicted_is_achieved(void)
{
    see_predicted("0=32MiB,cpu=1GiB", "8GB/s");
    see_predicted("0=48MiB,cpu=1GiB", "2GB/s");
    see_predicted("0=72MiB,cpu=1GiB", "1GB/s");
    see_predicted("0=40MiB,cpu=1GiB", "32GB/s");
}

/* ------------------------------------------------------------------------ refused */

static void
refuse(benched *b, const char *words)
{
    berth_bench *bench;

    CHECK_EQ(benched_measure(b, &bench), BERTH_EINVAL);
    CHECK_CONTAINS(b->error.message, words);
}

static void
test_arguments(void)
{
    berth_bench *bench = (berth_bench *)(void *)1;
    berth_job *job = (berth_job *)(void *)1;
    berth_error error;
    benched b;

    benched_begin(&b, NULL);
    CHECK_EQ(berth_bench_start(NULL, &b.options, &job, &error), BERTH_EINVAL);
    CHECK(job == NULL);
    CHECK_CONTAINS(error.message, "context");
    CHECK_EQ(berth_bench_start(b.context, &b.options, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "out_job");
    CHECK_EQ(berth_bench_finish(NULL, &bench, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "is not a bench");
    CHECK(bench == NULL);
    CHECK_EQ(berth_bench_finish(NULL, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "out_bench");
    berth_bench_destroy(NULL);

    b.options.seconds = 3601;
    refuse(&b, "seconds");
    b.options.seconds = -1;
    refuse(&b, "seconds");
    b.options.seconds = (double)NAN;
    refuse(&b, "seconds");
    b.options.seconds = 1e-6;
    b.options.memory_bytes = MIB - 1;
    refuse(&b, "memory_bytes");
    b.options.memory_bytes = (UINT64_C(1) << 40) + 1;
    refuse(&b, "memory_bytes");
    b.options.memory_bytes = MIB;
    b.options.file_bytes = MIB - 1;
    refuse(&b, "file_bytes");
    b.options.file_bytes = (UINT64_C(1) << 40) + 1;
    refuse(&b, "file_bytes");
    b.options.file_bytes = MIB;
    b.options.io = BERTH_IO_BUFFERED + 1;
    refuse(&b, "io");
    b.options.io = BERTH_IO_BUFFERED;
    CHECK_EQ(berth_bench_start(b.context, &b.options, &job, &error), BERTH_OK);
    berth_job_cancel(job);
    (void)berth_bench_finish(job, &bench, &error);
    berth_bench_destroy(bench);
    b.options.io = BERTH_IO_AUTO;
    b.options.wait_ms = 86400001;
    refuse(&b, "wait_ms");
    b.options.wait_ms = 0;
    b.options.folder = ".";
    b.options.checkpoint = (const berth_checkpoint *)(const void *)&b;
    refuse(&b, "a checkpoint and a folder");
    b.options.folder = NULL;
    b.options.checkpoint = NULL;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
    benched_end(&b);
}

/* -------------------------------------------------------------------------- ended */

/* A device that does not move is given up. */
static void
test_hung(void)
{
    benched b;

    benched_begin(&b, "sim:64MiB,stall=3");
    b.options.wait_ms = 50;
    CHECK_EQ(benched_measure(&b, &b.bench), BERTH_EIO);
    CHECK_EQ(b.error.reason, BERTH_REASON_TIMEOUT);
    CHECK_CONTAINS(b.error.message, "device 0 has not finished a copy for 50 milliseconds");
    benched_end(&b);
}

static uint64_t
bytes_of(const benched *b)
{
    berth_memory_summary memory;

    berth_context_memory(b->context, &memory);
    return memory.current_bytes;
}

/*
 * The copy after `before` others never ends, and the bench does in time. What the copy uses is
 * there until it ends after all, or the devices are closed. UINT64_MAX, or how many copies there
 * were where those are no more than `before`: a machine that is busy gets fewer.
 */
static uint64_t
check_hung(const char *words, uint64_t before, bool comes_back)
{
    uint64_t copies;
    uint64_t own;
    berth_status status;
    benched b;

    benched_begin(&b, words);
    own = bytes_of(&b) + HUNG_LISTS;
    b.options.wait_ms = 200;
    hung_copy(b.devices, before);
    status = benched_measure(&b, &b.bench);
    copies = hung_copies(b.devices);
    if (status == BERTH_OK && copies <= before) {
        benched_end(&b);
        return copies;
    }
    CHECK_EQ(status, BERTH_EIO);
    CHECK(hung_has(b.devices));
    CHECK_EQ(b.error.reason, BERTH_REASON_TIMEOUT);
    (void)berth_context_trim(b.context);
    CHECK_GE(bytes_of(&b), b.options.memory_bytes);
    if (comes_back) {
        const uint64_t end_ns = berthi_sys_now_ns() + HUNG_SLACK_NS;

        berthi_sim_release(berthi_devices_at(b.devices, 0));
        do {
            (void)berth_context_trim(b.context);
        } while (bytes_of(&b) > own && berthi_sys_now_ns() < end_ns);
        CHECK_LE(bytes_of(&b), own);
    }
    benched_end(&b);
    return UINT64_MAX;
}

/* Copies of memory that is not pinned are waited for by whoever asks for them, without a limit. */
static void
test_copies_that_hang(void)
{
    static const char shared[] = "sim:64MiB,clock=real,root=1*2";
    uint64_t copies;
    benched b;

    for (uint64_t before = 0; before < 2; before++) /* pinned, to the device */
        for (int comes_back = 0; comes_back < 2; comes_back++)
            CHECK_EQ(check_hung("sim:64MiB,clock=real", before, comes_back != 0), UINT64_MAX);
    for (int comes_back = 0; comes_back < 2; comes_back++) {
        benched_begin(&b, shared);
        CHECK_EQ(benched_measure(&b, &b.bench), BERTH_OK);
        copies = hung_copies(b.devices);
        benched_end(&b);
        while (copies > 0 && copies < UINT64_MAX) /* the last are of all devices */
            copies = check_hung(shared, copies - 1, comes_back != 0);
        CHECK_EQ(copies, UINT64_MAX);
    }
}

/* How long it takes until a bench that has run for so long is gone. */
static uint64_t
cancel_after(uint32_t wait_ms)
{
    uint64_t begin_ns;
    berth_job *job;
    benched b;

    benched_begin(&b, "sim:1GiB,h2d=100MB/s,clock=real");
    b.options.seconds = 0.3;
    b.options.memory_bytes = 16 * MIB;
    b.options.folder = fixture_folder();
    CHECK_EQ(berth_bench_start(b.context, &b.options, &job, NULL), BERTH_OK);
    CHECK_EQ(berth_job_wait(job, wait_ms), BERTH_PENDING);
    begin_ns = berthi_sys_now_ns();
    berth_job_cancel(job);
    CHECK_EQ(berth_bench_finish(job, &b.bench, &b.error), BERTH_ECANCELLED);
    begin_ns = berthi_sys_now_ns() - begin_ns;
    CHECK(b.bench == NULL);
    CHECK_EQ(b.error.reason, BERTH_REASON_CANCELLED);
    benched_end(&b);
    return begin_ns;
}

/* Never longer than 100 ms, whatever is being measured; a busy machine gets more tries. */
static void
test_cancel(void)
{
    for (uint32_t wait_ms = 0; wait_ms < 240; wait_ms += 40) {
        uint64_t ns = UINT64_MAX;

        for (int i = 0; i < T_CANCEL_TRIES && ns > T_CANCEL_NS; i++)
            ns = cancel_after(wait_ms);
        CHECK_LE(ns, T_CANCEL_NS);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_links_of_a_device);
    T_RUN(test_latency_hardly_counts);
    T_RUN(test_copies_within_a_device_are_many);
    T_RUN(test_slow_links_get_small_copies);
    T_RUN(test_jitter_stays_in_its_bounds);
    T_RUN(test_devices_that_share_a_link);
    T_RUN(test_devices_that_refuse);
    T_RUN(test_operations);
    T_RUN(test_digests_instead_of_bytes);
    T_RUN(test_host);
    T_RUN(test_earlier);
    T_RUN(test_reads_of_a_checkpoint);
    T_RUN(test_reads_of_a_shard_that_changes);
    T_RUN(test_reads_of_a_folder);
    T_RUN(test_links_are_a_file_of_links);
    T_RUN(test_plans_take_links);
    T_RUN(test_predicted_is_achieved);
    T_RUN(test_arguments);
    T_RUN(test_hung);
    T_RUN(test_copies_that_hang);
    T_RUN(test_cancel);
    T_MAIN_END;
}
