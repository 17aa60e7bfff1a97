/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bench_parts.c - what a bench is made of, one part at a time: how many bytes of
 * which files and memory a line is about, what becomes of lines in a file of links, and
 * that copies are waited for.
 */
#define _POSIX_C_SOURCE 200809L

#include "kernels/optimizer.h"
#include "loader/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/sys.h"
#include "placement/link.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ---------------------------------------------------------------------- in a job */

/* A bench whose parts are called one by one; no time: everything is measured once. */
typedef struct parts {
    berth_context *context;
    berthi_bench b;
    void (*body)(berthi_bench *b);
} parts;

static berth_status
run_body(berth_job *job, void *user, berth_error *error)
{
    parts *const p = user;

    (void)error;
    p->b.job = job;
    p->body(&p->b);
    return BERTH_OK;
}

static void
run_parts(void (*body)(berthi_bench *b))
{
    parts p = { .body = body };
    const berthi_job_work work = { .run = run_body, .user = &p, .phase = "bench" };
    berth_memory_summary memory;
    berth_job *job;

    T_REQUIRE(berth_context_create(NULL, &p.context, NULL) == BERTH_OK);
    berth_bench_options_init(&p.b.options);
    p.b.context = p.context;
    p.b.options.memory_bytes = 4 * MIB;
    p.b.options.ring_bytes = 64 * MIB;
    p.b.options.readers = 1;
    p.b.temporary.fd = -1;
    p.b.cores = 1;
    T_REQUIRE(berthi_job_start(p.context, &work, &job, NULL) == BERTH_OK);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_OK);
    berth_context_memory(p.context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(p.context);
}

static berth_bench_line
measure_host(berthi_bench *b, int32_t kind)
{
    berth_bench_line line = { .kind = kind, .threads = 3 };

    CHECK_EQ(berthi_bench_host(b, &line, NULL), BERTH_OK);
    CHECK_GT(line.own_rate, 0);
    return line;
}

/* ------------------------------------------------------------------------- memory */

/* Weights as models have them: finite, of both signs, and no pattern. */
static void
see_memory(berthi_bench *b)
{
    const uint64_t count = 2 * MIB / 2;
    uint64_t negative = 0;
    uint64_t odd = 0;
    uint64_t same = 0;

    CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
    CHECK_EQ(b->half, 2 * MIB);
    for (uint64_t i = 0; i < count; i++) {
        uint16_t value;
        uint16_t next;

        memcpy(&value, b->memory + 2 * i, 2);
        memcpy(&next, b->memory + 2 * ((i + 4) % count), 2);
        negative += value >> 15;
        odd += (value & 0x7F00) != 0x3F00; /* of an exponent that is not about 0 */
        same += value == next;
    }
    CHECK_EQ(odd, 0);
    CHECK_GT(negative, count / 4);
    CHECK_LT(negative, count - count / 4);
    CHECK_LT(same, count / 16);
    for (uint64_t i = 0; i < b->half; i++)
        odd += b->memory[b->half + i] != 0;
    CHECK_EQ(odd, 0);
    berthi_bench_close_memory(b);
    CHECK(b->memory == NULL);
}

static void
test_memory(void)
{
    run_parts(see_memory);
}

/* Every byte of the first half is copied to the second, and read, once a run. */
static void
see_all_bytes(berthi_bench *b)
{
    berth_bench_line line;
    uint64_t sum = 0;

    b->options.memory_bytes = 2 * MIB + 8192; /* 64 parts of it are not the same size */
    CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
    CHECK_EQ(b->half, MIB + 4096);
    line = measure_host(b, BERTH_BENCH_COPY);
    CHECK_EQ(line.bytes, b->half);
    CHECK_MEM(b->memory + b->half, b->memory, (size_t)b->half);
    line = measure_host(b, BERTH_BENCH_HOST_MEMORY);
    CHECK_EQ(line.bytes, b->half);
    for (uint64_t i = 0; i < b->half; i += 8) {
        uint64_t word;

        memcpy(&word, b->memory + i, 8);
        sum ^= word;
    }
    CHECK_EQ(atomic_load(&b->sink), sum);
    berthi_bench_close_memory(b);
}

static void
test_copies_and_reads(void)
{
    run_parts(see_all_bytes);
}

/* What is quantized is the first half, and lies in the second. */
static void
see_quantized(berthi_bench *b)
{
    for (int32_t kind = BERTH_BENCH_NF4; kind <= BERTH_BENCH_NF4_DOUBLE; kind++) {
        static uint8_t expected[MIB / 4];
        static uint8_t absmax[MIB / 2 / 64 * sizeof(float)];
        static float absmax2[MIB / 2 / 64 / 256];
        const uint64_t shape = MIB / 2;
        berth_values_buffers buffers;
        berth_values_options options;
        berth_bench_line line;

        b->options.memory_bytes = 2 * MIB;
        CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
        line = measure_host(b, kind);
        CHECK_EQ(line.bytes, MIB);
        berth_values_options_init(&options);
        options.encoding = BERTH_ENCODING_NF4;
        options.shape = &shape;
        options.rank = 1;
        options.double_quant = kind == BERTH_BENCH_NF4_DOUBLE;
        berth_values_buffers_init(&buffers);
        buffers.codes = expected;
        buffers.codes_bytes = sizeof expected;
        buffers.absmax = absmax;
        buffers.absmax_bytes = options.double_quant ? MIB / 2 / 64 : sizeof absmax;
        buffers.absmax2 = options.double_quant ? absmax2 : NULL;
        buffers.absmax2_bytes = options.double_quant ? sizeof absmax2 : 0;
        CHECK_EQ(berth_values_quantize(b->context, &options, b->memory, MIB, &buffers, NULL),
                 BERTH_OK);
        CHECK_MEM(b->memory + b->half, expected, sizeof expected);
        CHECK_MEM(b->memory + b->half + sizeof expected, absmax,
                  (size_t)buffers.absmax_bytes);
        berthi_bench_close_memory(b);
    }
}

static void
test_quantized(void)
{
    run_parts(see_quantized);
}

/* ------------------------------------------------------------------------ updates */

/* Two rounds at least, or one: the values in the second half are those of the plain loops. */
static void
see_updated(berthi_bench *b)
{
    for (int32_t kind = 0; kind < BERTHI_UPDATE_KIND_COUNT; kind++) {
        const uint32_t states = berthi_update_states((berthi_update_kind)kind);
        const berthi_update_settings s = berthi_update_defaults((berthi_update_kind)kind);
        const berthi_update_constants c = berthi_update_constants_of(&s, 100);
        berth_bench_line line = { .kind = BERTH_BENCH_UPDATE, .threads = 3 };
        berthi_update_arguments a = { .dtype = BERTH_BF16, .gradient_dtype = BERTH_BF16 };
        uint64_t bytes;

        b->options.memory_bytes = MIB;
        b->update_kind = kind;
        CHECK_EQ(berthi_bench_find_update(berthi_update_name((berthi_update_kind)kind)), kind);
        CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
        CHECK_EQ(berthi_bench_update(b, &line, NULL), BERTH_OK);
        CHECK_GT(line.own_rate, 0);
        a.count = MIB / 2 / (65536 * 2 + states * (65536 + 1024)) * 65536;
        CHECK_GE(a.count, 65536);
        bytes = a.count * (2 + 2 + 2) + 2 * states * (a.count + a.count / 256 * 4);
        CHECK_EQ(line.bytes % bytes, 0);
        a.gradient = b->memory;
        a.parameter = malloc(a.count * 2);
        memcpy(a.parameter, b->memory, a.count * 2);
        for (uint32_t k = 0; k < states; k++) {
            a.state[k].codes = calloc(a.count, 1);
            a.state[k].absmax = calloc(a.count / 256, sizeof(float));
        }
        for (uint64_t i = 0; i < line.bytes / bytes; i++)
            (void)berthi_update_plainly(&a, &c);
        CHECK_MEM(b->memory + b->half, a.parameter, a.count * 2);
        CHECK_MEM(b->memory + b->half + a.count * 2, a.state[0].absmax, a.count / 64);
        for (uint32_t k = 0; k < states; k++) {
            free(a.state[k].codes);
            free(a.state[k].absmax);
        }
        free(a.parameter);
        berthi_bench_close_memory(b);
    }
    CHECK_EQ(berthi_bench_find_update("sgd"), -1);
}

static void
test_updated(void)
{
    run_parts(see_updated);
}

/* -------------------------------------------------------------------------- files */

/* Files of these sizes in place of a checkpoint's. */
static berthi_file three[3];

static void
open_three(berthi_bench *b, const uint64_t sizes[3])
{
    const char *const folder = fixture_folder();

    for (uint32_t i = 0; i < 3; i++) {
        const char *const path = fixture_format("%s/%u", folder, i);

        fixture_text(path, "");
        T_REQUIRE(truncate(path, (off_t)sizes[i]) == 0); /* holes */
        three[i] = (berthi_file){ .path = path };
        three[i].fd = berthi_sys_open_read(BERTHI_SYS_AT_CWD, path);
        T_REQUIRE(three[i].fd >= 0);
        T_REQUIRE(berthi_sys_fstat(three[i].fd, &three[i].identity) == 0);
    }
    b->files = three;
    b->file_count = 3;
}

static void
close_three(berthi_bench *b)
{
    for (uint32_t i = 0; i < 3; i++)
        (void)berthi_sys_close(three[i].fd);
    b->files = NULL;
    b->file_count = 0;
}

static berth_bench_line
measure_read(berthi_bench *b, int32_t kind)
{
    berth_bench_line line = { .kind = kind };

    CHECK_EQ(berthi_bench_read(b, &line, NULL), BERTH_OK);
    return line;
}

/* Without time: all files once, cold; warm those bytes that had to be brought there. */
static void
see_files(berthi_bench *b)
{
    static const uint64_t sizes[3] = { 9 * MIB, 5 * MIB, 6 * MIB };
    static const uint64_t none[3] = { 0, 0, 0 };
    berth_bench_line line;

    CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
    open_three(b, sizes);
    line = measure_read(b, BERTH_BENCH_READ_COLD);
    CHECK_EQ(line.bytes, 20 * MIB);
    CHECK_GT(line.own_rate, 0);
    line = measure_read(b, BERTH_BENCH_READ_WARM);
    CHECK_EQ(line.bytes, 16 * MIB); /* the least, in steps of 1 MiB */
    CHECK_GT(line.own_rate, 0);
    /* A ring is filled before the clock starts, three are measured. */
    b->options.ring_bytes = MIB;
    line = measure_read(b, BERTH_BENCH_READ_COLD);
    CHECK_EQ(line.bytes, 3 * MIB);
    close_three(b);
    open_three(b, none);
    line = measure_read(b, BERTH_BENCH_READ_COLD);
    CHECK_EQ(line.own_rate, 0);
    CHECK_STR(line.words, "there are no bytes to read");
    close_three(b);
    berthi_bench_close_memory(b);
}

static void
test_files(void)
{
    run_parts(see_files);
}

/*
 * Time enough: what is measured is more than the least, and never more than there is. Two runs
 * before the samples find out whether the ring's 16 buffers are better than 8.
 */
static void
see_warm(berthi_bench *b)
{
    static const uint64_t sizes[3] = { 9 * MIB, 5 * MIB, 6 * MIB };
    berth_bench_line line;

    CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
    open_three(b, sizes);
    b->begin_ns = berthi_sys_now_ns();
    b->end_ns = b->begin_ns + UINT64_C(3600000000000);
    line = measure_read(b, BERTH_BENCH_READ_WARM);
    CHECK_EQ(line.bytes, (2 + BERTHI_BENCH_SAMPLES) * 20 * MIB);
    close_three(b);
    berthi_bench_close_memory(b);
}

static void
test_warm(void)
{
    run_parts(see_warm);
}

/* -------------------------------------------------------------------------- links */

static berth_bench_line
line_of(int32_t kind, uint32_t device, uint64_t rate, bool is_pinned)
{
    return (berth_bench_line){
        .kind = kind, .device = device, .threads = 2, .rate = rate, .is_pinned = is_pinned
    };
}

/* Lines as a file of links, parsed. */
static void
links_of(berthi_bench *b, berth_bench_line *lines, uint32_t count, berthi_links *links)
{
    berth_bench result = { .context = b->context, .lines = lines, .line_count = count };

    b->result = &result;
    memset(links, 0, sizeof *links);
    CHECK_EQ(berthi_bench_print_links(b, NULL), BERTH_OK);
    CHECK_EQ(strlen(result.links) + 1, result.links_bytes);
    CHECK_EQ(berthi_links_parse(result.links, result.links_bytes - 1, "f", links, NULL),
             BERTH_OK);
    berthi_memory_free(b->context, BERTHI_PURPOSE_DOCUMENT, result.links,
                       result.links_bytes);
    b->result = NULL;
}

static void
see_links_of_devices(berthi_bench *b)
{
    berth_bench_line lines[] = {
        line_of(BERTH_BENCH_TO_DEVICE, 0, 1000, true),
        line_of(BERTH_BENCH_TO_DEVICE, 0, 500, false),
        line_of(BERTH_BENCH_TO_HOST, 0, 7000, true), /* in no file of links */
        line_of(BERTH_BENCH_DEVICE_MEMORY, 0, 90000, false),
        line_of(BERTH_BENCH_TO_DEVICE, 1, 0, true), /* refused */
        line_of(BERTH_BENCH_TO_DEVICE, 1, 400, false),
        line_of(BERTH_BENCH_TO_DEVICE, 2, 0, true), /* nothing is known of it */
        line_of(BERTH_BENCH_TO_DEVICE_SHARED, 0, 950, true), /* as good as alone */
        line_of(BERTH_BENCH_TO_DEVICE_SHARED, 1, 379, true), /* not: 5 % are 20 */
        line_of(BERTH_BENCH_TO_DEVICE_SHARED, 2, 0, true),
        line_of(BERTH_BENCH_OPERATION, 0, 250000, false),
        line_of(BERTH_BENCH_OPERATION, 1, 0, false), /* not measured */
    };
    berthi_links links;

    lines[3].is_simulated = 1;
    links_of(b, lines, sizeof lines / sizeof *lines, &links);
    CHECK_EQ(links.count, 2);
    CHECK_EQ(links.items[0].feed.bytes, 1000);
    CHECK_STR(links.items[0].feed.words, "");
    CHECK_EQ(links.items[0].feed.source, BERTHI_RATE_MEASURED);
    CHECK_EQ(links.items[0].memory.bytes, 90000);
    CHECK_STR(links.items[0].memory.words, "simulated");
    CHECK_EQ(links.items[0].operation.ns, 4000);
    CHECK_EQ(links.items[0].operation.source, BERTHI_RATE_MEASURED);
    CHECK_EQ(links.items[1].operation.ns, 0);
    CHECK_EQ(links.items[1].tier.number, 1);
    CHECK_EQ(links.items[1].feed.bytes, 379);
    CHECK_STR(links.items[1].feed.words, "all at once");
    lines[8].rate = 380;
    lines[10].rate = UINT64_C(1) << 40;
    lines[7].rate = 949;
    lines[7].is_simulated = 1;
    links_of(b, lines, sizeof lines / sizeof *lines, &links);
    CHECK_EQ(links.items[0].operation.ns, 1); /* no less */
    CHECK_EQ(links.items[0].feed.bytes, 949);
    CHECK_STR(links.items[0].feed.words, "simulated, all at once");
    CHECK_EQ(links.items[1].feed.bytes, 400);
    CHECK_STR(links.items[1].feed.words, "not pinned");
}

static void
test_links_of_devices(void)
{
    run_parts(see_links_of_devices);
}

static void
see_links_of_the_host(berthi_bench *b)
{
    berth_bench_line lines[] = {
        line_of(BERTH_BENCH_READ_COLD, BERTH_NO_INDEX, 300, false),
        line_of(BERTH_BENCH_READ_WARM, BERTH_NO_INDEX, 9000, false),
        line_of(BERTH_BENCH_COPY, BERTH_NO_INDEX, 600, false),
        line_of(BERTH_BENCH_COPY, BERTH_NO_INDEX, 700, false),
        line_of(BERTH_BENCH_COPY, BERTH_NO_INDEX, 700, false), /* not better */
        line_of(BERTH_BENCH_HOST_MEMORY, BERTH_NO_INDEX, 5000, false),
        line_of(BERTH_BENCH_NF4, BERTH_NO_INDEX, 80000, false),
    };
    berthi_links links;

    lines[2].threads = 1;
    lines[4].threads = 4;
    memcpy(lines[0].words, "io_uring direct", sizeof "io_uring direct");
    links_of(b, lines, sizeof lines / sizeof *lines, &links);
    CHECK_EQ(links.count, 2);
    CHECK_EQ(links.items[0].tier.kind, BERTHI_TIER_CPU);
    CHECK_EQ(links.items[0].feed.bytes, 700);
    CHECK_STR(links.items[0].feed.words, "2 threads");
    CHECK_EQ(links.items[0].memory.bytes, 5000);
    CHECK_EQ(links.items[1].tier.kind, BERTHI_TIER_DISK);
    CHECK_EQ(links.items[1].feed.bytes, 300);
    CHECK_STR(links.items[1].feed.words, "io_uring direct");
    lines[3].rate = lines[4].rate = 0;
    links_of(b, lines, sizeof lines / sizeof *lines, &links);
    CHECK_EQ(links.items[0].feed.bytes, 600);
    CHECK_STR(links.items[0].feed.words, "1 thread");
    lines[0].rate = 0;
    links_of(b, lines, 1, &links);
    CHECK_EQ(links.count, 0);
}

static void
test_links_of_the_host(void)
{
    run_parts(see_links_of_the_host);
}

/* Another device, number of them, or file system is another machine. */
static void
see_fingerprints(berthi_bench *b)
{
    static const char *const words[] = {
        "sim:1GiB,h2d=24GB/s", "sim:1GiB,h2d=25GB/s", "sim:1GiB,h2d=24GB/s*2",
        "sim:1GiB,h2d=24GB/s;sim:1GiB,h2d=25GB/s", NULL, NULL,
    };
    char found[6][BERTHI_FINGERPRINT];

    for (uint32_t i = 0; i < 6; i++) {
        berthi_links links;
        berthi_links again;

        if (words[i] != NULL)
            T_REQUIRE(berth_devices_open(b->context, words[i], &b->options.devices, NULL)
                      == BERTH_OK);
        b->file_system = i == 5 ? 7 : 0;
        links_of(b, NULL, 0, &links);
        links_of(b, NULL, 0, &again);
        CHECK_STR(again.fingerprint, links.fingerprint);
        memcpy(found[i], links.fingerprint, sizeof found[i]);
        CHECK_CONTAINS(found[i], words[i] == NULL ? ", no device*0, " : ", sim:0*");
        for (uint32_t k = 0; k < i; k++)
            CHECK(strcmp(found[i], found[k]) != 0);
        berth_devices_close(b->options.devices);
        b->options.devices = NULL;
    }
}

static void
test_fingerprints(void)
{
    run_parts(see_fingerprints);
}

/* -------------------------------------------------------------------------- waits */

/* A copy is over when the device says so: none is faster than its link. */
static void
see_waits(berthi_bench *b)
{
    static const char words[] = "sim:64MiB,h2d=100MB/s,d2h=100MB/s,latency=0ns,clock=real";
    const int32_t kinds[] = { BERTH_BENCH_TO_DEVICE, BERTH_BENCH_TO_HOST };

    b->options.wait_ms = 60000;
    CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
    T_REQUIRE(berth_devices_open(b->context, words, &b->options.devices, NULL) == BERTH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        berth_bench_line line = { .kind = kinds[i], .is_pinned = 1 };

        CHECK_EQ(berthi_bench_device(b, &line, NULL), BERTH_OK);
        CHECK_GT(line.own_rate, 0);
        CHECK_LE(line.own_rate, UINT64_C(100000000));
        CHECK_EQ(line.bytes, MIB); /* which takes 10 ms: enough */
    }
    berthi_bench_close_device(b);
    berth_devices_close(b->options.devices);
    berthi_bench_close_memory(b);
}

static void
test_waits(void)
{
    run_parts(see_waits);
}

/* A device that stands still is left when the caller wants an end, long before the limit. */
static void
see_cancelled(berthi_bench *b)
{
    berth_bench_line line = { .kind = BERTH_BENCH_TO_DEVICE, .is_pinned = 1 };
    berth_error error;

    b->options.wait_ms = UINT64_C(86400000);
    CHECK_EQ(berthi_bench_open_memory(b, NULL), BERTH_OK);
    T_REQUIRE(berth_devices_open(b->context, "sim:64MiB,stall=1", &b->options.devices, NULL)
              == BERTH_OK);
    CHECK_EQ(berthi_bench_device(b, &line, &error), BERTH_ECANCELLED);
    CHECK_EQ(error.reason, BERTH_REASON_CANCELLED);
    berthi_bench_close_device(b);
    berthi_bench_close_memory(b); /* the context's: the copy uses it */
    berth_devices_close(b->options.devices);
}

static berth_status
run_cancelled(berth_job *job, void *user, berth_error *error)
{
    (void)run_body(job, user, error);
    return berthi_job_fail_cancelled(error);
}

static void
test_cancelled_while_it_stands_still(void)
{
    parts p = { .body = see_cancelled };
    const berthi_job_work work = { .run = run_cancelled, .user = &p, .phase = "bench" };
    berth_job *job;

    T_REQUIRE(berth_context_create(NULL, &p.context, NULL) == BERTH_OK);
    berth_bench_options_init(&p.b.options);
    p.b.context = p.context;
    p.b.options.memory_bytes = 4 * MIB;
    T_REQUIRE(berthi_job_start(p.context, &work, &job, NULL) == BERTH_OK);
    (void)berth_job_wait(job, 50); /* any moment will do */
    berth_job_cancel(job);
    CHECK_EQ(berth_job_finish(job, NULL), BERTH_ECANCELLED);
    berth_context_destroy(p.context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_memory);
    T_RUN(test_copies_and_reads);
    T_RUN(test_quantized);
    T_RUN(test_updated);
    T_RUN(test_files);
    T_RUN(test_warm);
    T_RUN(test_links_of_devices);
    T_RUN(test_links_of_the_host);
    T_RUN(test_fingerprints);
    T_RUN(test_waits);
    T_RUN(test_cancelled_while_it_stands_still);
    T_MAIN_END;
}
