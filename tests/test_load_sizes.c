/* SPDX-License-Identifier: Apache-2.0 */
/* test_load_sizes.c - how much memory a load takes for staging, and what its report says. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/memory.h"
#include "loader/reader.h"
#include "placement/plan.h"
#include "tests/fixture.h"
#include "tests/haul.h"
#include "tests/loaded.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* A machine of 16 GiB in whose control group there is so much. */
static const char *
make_machine(uint64_t limit)
{
    static const char *const folders[] = { "proc", "proc/self", "sys", "sys/fs",
                                           "sys/fs/cgroup", "sys/fs/cgroup/a" };
    const char *const root = fixture_folder();

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        CHECK_EQ(mkdir(fixture_format("%s/%s", root, folders[i]), 0700), 0);
    fixture_text(fixture_format("%s/proc/meminfo", root),
                 "MemTotal:       16777216 kB\nMemAvailable:   16000000 kB\n");
    fixture_text(fixture_format("%s/proc/self/cgroup", root), "0::/a\n");
    fixture_text(fixture_format("%s/proc/self/mountinfo", root),
                 "27 1 254:0 / / rw,relatime master:1 - ext4 /dev/vda rw,discard\n"
                 "30 27 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    fixture_text(fixture_format("%s/sys/fs/cgroup/a/memory.max", root),
                 fixture_format("%llu\n", (unsigned long long)limit));
    fixture_text(fixture_format("%s/sys/fs/cgroup/a/memory.current", root), "0\n");
    return root;
}

/* The ring of a load there. */
static uint64_t
ring_of(const char *root, const char *max_memory, const char *words, uint64_t asked)
{
    berth_plan_options options = loaded_options(max_memory);
    uint64_t ring;
    loaded l;

    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, words);
    l.p.context->root = root;
    l.options.ring_bytes = asked;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    ring = l.report.ring_bytes;
    loaded_end(&l);
    return ring;
}

static void
test_ring_keeps_to_limits(void)
{
    const char *const small = make_machine(400 * MIB);
    const char *const large = make_machine(8192 * MIB);

    CHECK_EQ(ring_of(large, "cpu=4GiB", NULL, 0), 64 * MIB);
    CHECK_EQ(ring_of(small, "cpu=4GiB", NULL, 0), 20 * MIB);
    /* Host memory that computes: the plan's budget, too, down to what is needed. */
    CHECK_EQ(ring_of(large, "cpu=800MiB", NULL, 0), 40 * MIB);
    CHECK_EQ(ring_of(large, "cpu=100MiB", NULL, 0), 16 * MIB);
    /* The plan's, for a GPU, out of its budget. */
    CHECK_EQ(ring_of(large, "0=64MiB,cpu=1GiB", "sim:64MiB", 0), 128 * MIB);
    CHECK_EQ(ring_of(small, "0=64MiB,cpu=1GiB", "sim:64MiB", 0), 20 * MIB);
    /* Whoever asks for more gets it. */
    CHECK_EQ(ring_of(small, "cpu=100MiB", NULL, 48 * MIB), 48 * MIB);
    CHECK_EQ(ring_of("/", "cpu=4GiB", NULL, 0), 64 * MIB);
}

/* Pieces that are larger than chunks should be: the report tells what the ring takes. */
static void
test_ring_is_what_is_reported(void)
{
    const char *const folder = fixture_folder();
    berth_plan_options options = loaded_options("cpu=256MiB");
    berth_memory memory;
    loaded l;

    (void)fixture_file(fixture_format("%s/model.safetensors", folder),
                       "F32 4096x1024 model.layers.0.mlp.up_proj.weight\n"
                       "F32 4096x1024 model.layers.0.mlp.gate_proj.weight\n"
                       "F32 1024x4096 model.layers.0.mlp.down_proj.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"num_hidden_layers\": 1}");
    options.type = BERTH_ENCODING_NF4;
    options.dtype = BERTH_BF16;
    loaded_begin(&l, folder, &options, NULL);
    l.options.ring_bytes = 16 * MIB;
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_OK);
    CHECK_EQ(berth_memory_get(l.p.context, 0, BERTH_MEMORY_STAGING, &memory), BERTH_OK);
    CHECK_GT(memory.peak_bytes, 16 * MIB);
    CHECK_LE(memory.peak_bytes, l.report.ring_bytes);
    loaded_end(&l);
}

/*
 * Of a ring that a plan for a GPU makes larger than what is used at first. Those that nobody
 * asked for may be more after a quarter of a second, on a machine that is this slow.
 */
static void
test_stages(void)
{
    static const uint32_t asked[] = { 0, 1, 5, 1000 };
    static const uint32_t used[] = { 8, 1, 5, 11 };
    const char *const folder = loaded_large(10, 1);
    berth_plan_options options = loaded_options("0=64MiB,cpu=1GiB");

    for (uint32_t i = 0; i < 4; i++) {
        loaded l;

        loaded_begin(&l, folder, &options, "sim:64MiB");
        l.options.stages = asked[i];
        l.options.ring_bytes = 44 * MIB;
        loaded_load(&l);
        CHECK_EQ(l.status, BERTH_OK);
        CHECK_EQ(l.report.stage_bytes, 4 * MIB);
        CHECK_GE(l.report.stages, used[i]);
        if (asked[i] != 0 || l.report.seconds < 0.25)
            CHECK_EQ(l.report.stages, used[i]);
        CHECK_LE(l.report.stages * l.report.stage_bytes, l.report.ring_bytes);
        loaded_end(&l);
        options.finding = NULL;
    }
}

/* Also where nothing came to be: no caller reads what it had in there before. */
static void
test_report_of_a_load_that_fails(void)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    loaded l;

    loaded_begin(&l, loaded_llama(2, "BF16", 1), &options, "sim:2MiB");
    memset(&l.report, 0xAA, sizeof l.report);
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_ENOFIT);
    CHECK_GT(l.report.planned_bytes, MIB);
    CHECK_LT(l.report.planned_bytes, 64 * MIB);
    CHECK_EQ(l.report.allocated_bytes, 0);
    CHECK_EQ(l.report.placed_bytes, 0);
    CHECK_EQ(l.report.bytes_read, 0);
    CHECK_EQ(l.report.is_pinned, 0);
    loaded_end(&l);
}

/* Behind the back of a load that has begun: its first thread of its own changes the plan. */
typedef struct changing {
    berth_allocator allocator;
    pthread_t caller;
    uint64_t *bytes; /* of the plan; NULL: it is done */
} changing;

static void *
change_and_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    changing *const c = user;

    if (!pthread_equal(pthread_self(), c->caller) && c->bytes != NULL) {
        *c->bytes += 256;
        c->bytes = NULL;
    }
    return c->allocator.alloc(c->allocator.user, bytes, alignment, purpose);
}

static void
pass_free(void *user, void *memory, size_t bytes, size_t alignment, const char *purpose)
{
    const changing *const c = user;

    c->allocator.free(c->allocator.user, memory, bytes, alignment, purpose);
}

/* Slabs that are larger than was planned when the load began are no slabs of this plan. */
static void
check_refused(const char *max_memory, const char *words, uint32_t tier)
{
    berth_plan_options options = loaded_options(max_memory);
    changing c = { .caller = pthread_self() };
    loaded l;

    loaded_begin(&l, loaded_llama(2, "BF16", 1), &options, words);
    c.bytes = &l.p.plan->tiers[tier].scratch;
    c.allocator = l.p.context->allocator;
    l.p.context->allocator =
        (berth_allocator){ .user = &c, .alloc = change_and_alloc, .free = pass_free };
    loaded_load(&l);
    CHECK(c.bytes == NULL);
    CHECK_EQ(l.status, BERTH_EINTERNAL);
    CHECK_CONTAINS(l.error.message, "are not as large as they were planned");
    CHECK_EQ(l.error.actual, l.error.expected + 256);
    CHECK_EQ(l.report.allocated_bytes, l.error.actual);
    CHECK_EQ(l.report.bytes_read, 0);
    l.p.context->allocator = c.allocator;
    loaded_end(&l);
}

static void
test_slabs_that_were_not_planned(void)
{
    check_refused("cpu=64MiB", NULL, 0);
    check_refused("0=64MiB,1=64MiB,cpu=64MiB", "sim:64MiB*2", 0);
    check_refused("0=64MiB,1=64MiB,cpu=64MiB", "sim:64MiB*2", 1);
}

/* What a load of 8 layers tells, of these devices, when each read takes that much longer. */
static berth_load_report
report_of(berth_plan_options *options, const char *words, uint64_t delay_ns)
{
    static const char *folder; /* of all loads */
    berth_load_report report;
    loaded l;

    if (folder == NULL)
        folder = loaded_large(8, 1);
    loaded_begin(&l, folder, options, words);
    l.options.io = BERTH_IO_BUFFERED;
    l.options.ring_bytes = 16 * MIB;
    l.options.workers = words == NULL ? 1 : 0;
    haul_set((haul_tricks){ .delay_ns = delay_ns });
    atomic_store(&berthi_reader_instead, &haul_reader);
    loaded_load(&l);
    atomic_store(&berthi_reader_instead, NULL);
    haul_set((haul_tricks){ .delay_ns = 0 });
    CHECK_EQ(l.status, BERTH_OK);
    report = l.report;
    CHECK(report.wait_seconds + report.read_seconds <= report.seconds + 1e-6);
    CHECK(report.encode_seconds <= report.place_seconds + 1e-6);
    loaded_end(&l);
    return report;
}

/* A link, or reads, that take far longer than everything else. */
static void
test_bottleneck(void)
{
    berth_plan_options options = loaded_options("0=64MiB,cpu=64MiB");
    berth_load_report r = report_of(&options, "sim:64MiB,clock=real,h2d=25MB/s", 0);

    CHECK_EQ(r.bottleneck, BERTH_LOAD_BY_COPIES);
    CHECK_EQ(r.bottleneck_tier, 0);
    options = loaded_options("0=64MiB,cpu=64MiB");
    r = report_of(&options, "sim:64MiB,clock=real,h2d=10GB/s", 20000000);
    CHECK_EQ(r.bottleneck, BERTH_LOAD_BY_READS);
    CHECK_EQ(r.bottleneck_tier, BERTH_NO_INDEX);
}

/*
 * Half of the layers each, over links of which one is slow. On a machine whose other programs
 * make reads wait, a load that did not has to come within a few: here and below.
 */
static void
test_bottleneck_of_two_devices(void)
{
    static const char *const pins[] = { "model.layers.0-3=cuda:0", "model.layers.4-7=cuda:1" };
    static const char *const words[] = {
        "sim:64MiB,clock=real,h2d=10GB/s;sim:64MiB,clock=real,h2d=25MB/s",
        "sim:64MiB,clock=real,h2d=25MB/s;sim:64MiB,clock=real,h2d=10GB/s",
    };

    for (uint32_t i = 0; i < 2; i++) {
        berth_load_report r = { .bottleneck = BERTH_LOAD_BY_READS };

        for (int k = 0; k < 20 && r.bottleneck == BERTH_LOAD_BY_READS; k++) {
            berth_plan_options options = loaded_options("0=64MiB,1=64MiB,cpu=64MiB");

            options.pins = pins;
            options.pin_count = 2;
            r = report_of(&options, words[i], 0);
        }
        CHECK_EQ(r.bottleneck, BERTH_LOAD_BY_COPIES);
        CHECK_EQ(r.bottleneck_tier, 1 - i);
        CHECK(r.encode_seconds == 0);
    }
}

/* One worker encodes far more slowly than the page cache is read. */
static void
test_bottleneck_of_encoding(void)
{
    berth_load_report r = { .bottleneck = BERTH_LOAD_BY_READS };

    for (int i = 0; i < 20 && r.bottleneck == BERTH_LOAD_BY_READS; i++) {
        berth_plan_options options = loaded_options("cpu=256MiB");

        options.type = BERTH_ENCODING_NF4;
        options.dtype = BERTH_F32; /* decoded before */
        options.double_quant = 1;
        r = report_of(&options, NULL, 0);
        CHECK(r.encode_seconds > 0);
    }
    CHECK_EQ(r.bottleneck, BERTH_LOAD_BY_ENCODING);
    CHECK_EQ(r.bottleneck_tier, BERTH_NO_INDEX);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_ring_keeps_to_limits);
    T_RUN(test_ring_is_what_is_reported);
    T_RUN(test_stages);
    T_RUN(test_report_of_a_load_that_fails);
    T_RUN(test_slabs_that_were_not_planned);
    T_RUN(test_bottleneck);
    T_RUN(test_bottleneck_of_two_devices);
    T_RUN(test_bottleneck_of_encoding);
    T_MAIN_END;
}
