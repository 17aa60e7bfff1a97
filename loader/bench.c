/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - berth_bench_start(): the list of measurements, one after the other. */
#include "loader/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host.h"
#include "kernels/sys.h"

#define SECONDS      4.0
#define SECONDS_MAX  3600.0
#define MEMORY_BYTES (UINT64_C(256) << 20)
#define MEMORY_MIN   (UINT64_C(1) << 20)
#define FILE_BYTES   (UINT64_C(256) << 20)
#define FILE_MIN     (UINT64_C(1) << 20)
#define BYTES_MAX    (UINT64_C(1) << 40)
#define RING_BYTES   (UINT64_C(64) << 20)
#define WAIT_MS      UINT64_C(60000)
#define WAIT_MS_MAX  UINT64_C(86400000)
#define THREADS_MAX  256u

static const char *const kind_names[] = {
    [BERTH_BENCH_READ_COLD] = "read_cold",
    [BERTH_BENCH_READ_WARM] = "read_warm",
    [BERTH_BENCH_COPY] = "copy",
    [BERTH_BENCH_HOST_MEMORY] = "host_memory",
    [BERTH_BENCH_NF4] = "nf4",
    [BERTH_BENCH_NF4_DOUBLE] = "nf4_double",
    [BERTH_BENCH_TO_DEVICE] = "to_device",
    [BERTH_BENCH_TO_HOST] = "to_host",
    [BERTH_BENCH_DEVICE_MEMORY] = "device_memory",
    [BERTH_BENCH_TO_DEVICE_SHARED] = "to_device_shared",
    [BERTH_BENCH_UPDATE] = "update",
    [BERTH_BENCH_OPERATION] = "operation",
};

const char *
berth_bench_kind_name(int32_t kind)
{
    const size_t count = sizeof kind_names / sizeof kind_names[0];

    return kind >= 0 && (size_t)kind < count ? kind_names[kind] : NULL;
}

/* ------------------------------------------------------------------------- samples */

bool
berthi_bench_is_late(const berthi_bench *b)
{
    return berthi_sys_now_ns() >= b->end_ns;
}

berth_status
berthi_bench_check(const berthi_bench *b, berth_error *error)
{
    return berthi_job_is_cancelled(b->job) ? berthi_job_fail_cancelled(error) : BERTH_OK;
}

bool
berthi_bench_sample(berthi_bench *b, berth_bench_line *line,
                    berthi_bench_samples *samples, uint64_t bytes, uint64_t ns)
{
    const double rate = 1e9 * (double)bytes / (double)berthi_max_u64(ns, 1);

    line->bytes += bytes;
    line->seconds += 1e-9 * (double)ns;
    berthi_job_advance(b->job, bytes);
    /* No link of berth's is faster than 2^62. */
    samples->rates[samples->count++] =
        rate < 1 ? 1 : rate < 0x1p62 ? (uint64_t)rate : UINT64_C(1) << 62;
    return samples->count < BERTHI_BENCH_SAMPLES;
}

static int
compare_rates(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void
berthi_bench_settle(berth_bench_line *line, berthi_bench_samples *samples)
{
    if (samples->count == 0)
        return;
    qsort(samples->rates, samples->count, sizeof samples->rates[0], compare_rates);
    line->own_rate = samples->rates[samples->count / 2];
}

void
berthi_bench_skip(berth_bench_line *line, const char *why)
{
    line->own_rate = 0;
    snprintf(line->words, sizeof line->words, "%s", why);
}

/* --------------------------------------------------------------------------- lines */

/* 1, 2, 4 ..., and all. Returns 0 behind the last. */
static uint32_t
next_threads(uint32_t threads, uint32_t cores)
{
    if (threads >= cores)
        return 0;
    return threads * 2 < cores ? threads * 2 : cores;
}

static bool
reads_files(const berthi_bench *b)
{
    return b->options.checkpoint != NULL || b->options.folder != NULL;
}

static uint32_t
device_count(const berthi_bench *b)
{
    return b->options.devices != NULL ? berthi_devices_count(b->options.devices) : 0;
}

static void
add_line(berth_bench *out, int32_t kind, uint32_t device, uint32_t threads, bool is_pinned)
{
    if (out->lines != NULL)
        out->lines[out->line_count] = (berth_bench_line){ .kind = kind,
                                                          .device = device,
                                                          .threads = threads,
                                                          .is_pinned = is_pinned };
    out->line_count++;
}

static void
add_device(berth_bench *out, uint32_t device)
{
    add_line(out, BERTH_BENCH_TO_DEVICE, device, 0, true);
    add_line(out, BERTH_BENCH_TO_DEVICE, device, 0, false);
    add_line(out, BERTH_BENCH_TO_HOST, device, 0, true);
    add_line(out, BERTH_BENCH_TO_HOST, device, 0, false);
    add_line(out, BERTH_BENCH_DEVICE_MEMORY, device, 0, false);
    add_line(out, BERTH_BENCH_OPERATION, device, 0, false);
}

/* Counts, or fills: one walk. */
static void
walk_lines(const berthi_bench *b, berth_bench *out)
{
    const uint32_t devices = device_count(b);

    out->line_count = 0;
    if (reads_files(b)) {
        add_line(out, BERTH_BENCH_READ_COLD, BERTH_NO_INDEX, 0, false);
        add_line(out, BERTH_BENCH_READ_WARM, BERTH_NO_INDEX, 0, false);
    }
    for (uint32_t threads = 1; threads != 0; threads = next_threads(threads, b->cores))
        add_line(out, BERTH_BENCH_COPY, BERTH_NO_INDEX, threads, false);
    add_line(out, BERTH_BENCH_HOST_MEMORY, BERTH_NO_INDEX, b->cores, false);
    add_line(out, BERTH_BENCH_NF4, BERTH_NO_INDEX, b->cores, false);
    add_line(out, BERTH_BENCH_NF4_DOUBLE, BERTH_NO_INDEX, b->cores, false);
    if (b->update_kind >= 0)
        add_line(out, BERTH_BENCH_UPDATE, BERTH_NO_INDEX, b->cores, false);
    for (uint32_t d = 0; d < devices; d++)
        add_device(out, d);
    for (uint32_t d = 0; d < devices && devices > 1; d++)
        add_line(out, BERTH_BENCH_TO_DEVICE_SHARED, d, 0, true);
}

static void
name_simulated(const berthi_bench *b)
{
    for (uint32_t i = 0; i < b->result->line_count; i++) {
        berth_bench_line *const line = &b->result->lines[i];
        berthi_device_properties properties;
        berthi_device *device;

        if (line->device == BERTH_NO_INDEX)
            continue;
        device = berthi_devices_at(b->options.devices, line->device);
        device->table->describe(device, &properties);
        line->is_simulated = properties.is_simulated;
    }
}

/* Reads need a while to get going. */
static uint64_t
weight_of(const berth_bench_line *line)
{
    return line->kind == BERTH_BENCH_READ_COLD ? 6
           : line->kind == BERTH_BENCH_READ_WARM ? 2 : 1;
}

static berth_status
make_lines(berthi_bench *b, berth_error *error)
{
    walk_lines(b, b->result);
    b->result->lines = berthi_memory_array(b->context, BERTHI_PURPOSE_OBJECT,
                                           b->result->line_count,
                                           sizeof *b->result->lines);
    if (b->result->lines == NULL)
        return berthi_fail_memory(error, "starting a bench");
    walk_lines(b, b->result);
    name_simulated(b);
    for (uint32_t i = 0; i < b->result->line_count; i++)
        b->weight += weight_of(&b->result->lines[i]);
    return BERTH_OK;
}

static berth_status
check_earlier(const berthi_bench *b, berth_error *error)
{
    const berth_bench *const earlier = b->options.earlier;
    bool is_same;

    if (earlier == NULL)
        return BERTH_OK;
    is_same = earlier->line_count == b->result->line_count;
    for (uint32_t i = 0; is_same && i < earlier->line_count; i++) {
        const berth_bench_line *const x = &earlier->lines[i];
        const berth_bench_line *const y = &b->result->lines[i];

        is_same = x->kind == y->kind && x->device == y->device && x->threads == y->threads
                  && x->is_pinned == y->is_pinned && x->is_simulated == y->is_simulated;
    }
    return is_same ? BERTH_OK
                   : berthi_fail_argument(error, "options",
                                          "has an earlier bench of other things");
}

/* The better rate of both. */
static void
join_earlier(const berthi_bench *b)
{
    for (uint32_t i = 0; i < b->result->line_count; i++) {
        berth_bench_line *const line = &b->result->lines[i];

        line->rate = line->own_rate;
        if (b->options.earlier == NULL)
            continue;
        line->earlier_rate = b->options.earlier->lines[i].own_rate;
        line->rate = berthi_max_u64(line->own_rate, line->earlier_rate);
        if (line->own_rate > 0 && line->earlier_rate > 0)
            line->drift =
                1.0
                - (double)berthi_min_u64(line->own_rate, line->earlier_rate)
                      / (double)line->rate;
    }
}

/* ----------------------------------------------------------------------------- job */

static berth_status
measure(berthi_bench *b, uint32_t number, berth_error *error)
{
    berth_bench_line *const line = &b->result->lines[number];

    switch (line->kind) {
    case BERTH_BENCH_READ_COLD:
    case BERTH_BENCH_READ_WARM:
        return berthi_bench_read(b, line, error);
    case BERTH_BENCH_TO_DEVICE:
    case BERTH_BENCH_TO_HOST:
    case BERTH_BENCH_DEVICE_MEMORY:
    case BERTH_BENCH_OPERATION:
        return berthi_bench_device(b, line, error);
    case BERTH_BENCH_UPDATE:
        return berthi_bench_update(b, line, error);
    case BERTH_BENCH_TO_DEVICE_SHARED:
        berthi_bench_close_device(b);
        /* All of them with the first. */
        return line->device == 0 ? berthi_bench_shared(b, line, error) : BERTH_OK;
    default:
        return berthi_bench_host(b, line, error);
    }
}

static berth_status
measure_all(berthi_bench *b, berth_error *error)
{
    const double unit_ns = 1e9 * b->options.seconds / (double)b->weight;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < b->result->line_count && status == BERTH_OK; i++) {
        status = berthi_bench_check(b, error);
        b->begin_ns = berthi_sys_now_ns();
        b->end_ns =
            b->begin_ns
            + (uint64_t)(unit_ns * (double)weight_of(&b->result->lines[i]));
        if (status == BERTH_OK)
            status = measure(b, i, error);
    }
    return status;
}

static berth_status
run_bench(berth_job *job, void *user, berth_error *error)
{
    berthi_bench *const b = user;
    berth_status status;

    b->job = job;
    status = berthi_bench_open_memory(b, error);
    if (status == BERTH_OK)
        status = berthi_bench_open_files(b, error);
    if (status == BERTH_OK)
        status = measure_all(b, error);
    berthi_bench_close_device(b);
    berthi_bench_close_memory(b);
    berthi_bench_close_files(b);
    if (status != BERTH_OK)
        return status;
    join_earlier(b);
    status = berthi_bench_print_links(b, error);
    if (status == BERTH_OK && !berthi_job_commit(job))
        status = berthi_job_fail_cancelled(error);
    return status;
}

static void
free_bench(void *user)
{
    berthi_bench *const b = user;

    berth_bench_destroy(b->result);
    berthi_memory_free(b->context, BERTHI_PURPOSE_OBJECT, b, sizeof *b);
}

/* --------------------------------------------------------------------------- start */

static berth_status
check_options(const berth_bench_options *options, berth_error *error)
{
    const char *wrong = NULL;

    if (options->checkpoint != NULL && options->folder != NULL)
        wrong = "has a checkpoint and a folder";
    else if (!isfinite(options->seconds) || options->seconds < 0
             || options->seconds > SECONDS_MAX)
        wrong = "has seconds that are none, or more than 3600";
    else if (options->memory_bytes > BYTES_MAX
             || (options->memory_bytes > 0 && options->memory_bytes < MEMORY_MIN))
        wrong = "has memory_bytes that are not 1 MiB to 1 TiB";
    else if (options->file_bytes > BYTES_MAX
             || (options->file_bytes > 0 && options->file_bytes < FILE_MIN))
        wrong = "has file_bytes that are not 1 MiB to 1 TiB";
    else if (options->wait_ms > WAIT_MS_MAX)
        wrong = "has a wait_ms of more than a day";
    else if (options->io < BERTH_IO_AUTO || options->io > BERTH_IO_BUFFERED)
        wrong = "has an unknown io";
    else if (options->optimizer != NULL && berthi_bench_find_update(options->optimizer) < 0)
        wrong = "has an optimizer that is not known here";
    return wrong == NULL ? BERTH_OK : berthi_fail_argument(error, "options", wrong);
}

static void
fill_defaults(berth_bench_options *options)
{
    if (options->seconds == 0)
        options->seconds = SECONDS;
    if (options->memory_bytes == 0)
        options->memory_bytes = MEMORY_BYTES;
    if (options->file_bytes == 0)
        options->file_bytes = FILE_BYTES;
    if (options->ring_bytes == 0)
        options->ring_bytes = RING_BYTES;
    if (options->wait_ms == 0)
        options->wait_ms = WAIT_MS;
}

static berth_status
create_bench(berth_context *context, const berth_bench_options *options,
             berthi_bench **out, berth_error *error)
{
    berthi_bench *const b =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *b);
    berth_status status;

    *out = NULL;
    if (b == NULL)
        return berthi_fail_memory(error, "starting a bench");
    b->context = context;
    b->options = *options;
    b->temporary.fd = -1;
    b->update_kind =
        options->optimizer != NULL ? berthi_bench_find_update(options->optimizer) : -1;
    b->cores = (uint32_t)berthi_min_u64(berthi_host_worker_count(), THREADS_MAX);
    fill_defaults(&b->options);
    b->result = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *b->result);
    status = b->result != NULL ? BERTH_OK : berthi_fail_memory(error, "starting a bench");
    if (status == BERTH_OK)
        status = berthi_devices_visit(b->options.devices, context, error);
    if (status == BERTH_OK) {
        b->result->context = context;
        status = make_lines(b, error);
    }
    if (status == BERTH_OK)
        status = check_earlier(b, error);
    if (status == BERTH_OK)
        *out = b;
    else
        free_bench(b);
    return status;
}

berth_status
berth_bench_start(berth_context *context, const berth_bench_options *options,
                  berth_job **out_job, berth_error *error)
{
    berth_bench_options taken;
    berthi_bench *b;
    berth_status status;

    status = berthi_job_check_start(context, "context", out_job, error);
    if (status == BERTH_OK)
        status = berthi_options_take(&taken, sizeof taken,
                                     offsetof(berth_bench_options, reserved), options,
                                     "options", error);
    if (status == BERTH_OK)
        status = berthi_options_check(taken.reserved32, "options", error);
    if (status == BERTH_OK)
        status = check_options(&taken, error);
    if (status == BERTH_OK)
        status = create_bench(context, &taken, &b, error);
    if (status != BERTH_OK)
        return status;
    return berthi_job_start(
        context,
        &(berthi_job_work){ .run = run_bench,
                            .fini = free_bench,
                            .user = b,
                            .phase = "bench",
                            .total = b->options.memory_bytes * b->result->line_count,
                            .progress = taken.progress,
                            .progress_user = taken.progress_user },
        out_job, error);
}

berth_status
berth_bench_finish(berth_job *job, berth_bench **out_bench, berth_error *error)
{
    berth_bench *result = NULL;
    berthi_bench *b;
    berth_status status;

    berthi_error_clear(error);
    if (out_bench == NULL)
        return berthi_fail_argument(error, "out_bench", "is NULL");
    *out_bench = NULL;
    b = job != NULL ? berthi_job_user(job, run_bench) : NULL;
    if (b == NULL)
        return berthi_fail_argument(error, "job", "is not a bench");
    if (berth_job_wait(job, -1) == BERTH_OK) {
        result = b->result;
        b->result = NULL;
    }
    status = berth_job_finish(job, error);
    *out_bench = result;
    return status;
}

/* -------------------------------------------------------------------------- result */

void
berth_bench_destroy(berth_bench *bench)
{
    if (bench == NULL)
        return;
    berthi_memory_free(bench->context, BERTHI_PURPOSE_DOCUMENT, bench->links,
                       bench->links_bytes);
    berthi_memory_free(bench->context, BERTHI_PURPOSE_OBJECT, bench->lines,
                       bench->line_count * sizeof *bench->lines);
    berthi_memory_free(bench->context, BERTHI_PURPOSE_OBJECT, bench, sizeof *bench);
}

uint32_t
berth_bench_count(const berth_bench *bench)
{
    return bench->line_count;
}

berth_status
berth_bench_get(const berth_bench *bench, uint32_t number, berth_bench_line *out)
{
    memset(out, 0, sizeof *out);
    if (number >= bench->line_count)
        return BERTH_EINVAL;
    *out = bench->lines[number];
    return BERTH_OK;
}

const char *
berth_bench_links(const berth_bench *bench)
{
    return bench->links;
}
