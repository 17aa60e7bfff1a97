/* SPDX-License-Identifier: Apache-2.0 */
/* speed.c - see speed.h */
#include "tests/gpu/speed.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core.h"
#include "kernels/sys.h"

#define MOST_SAMPLES 50u
#define MOST_WORKS 8u

/*
 * What a comparison takes. Medians of seven samples of up to twenty launches are as far apart as
 * those of fifty, a hundredth or two, from run to run: enough for rows that nothing hangs on, of
 * which there are a thousand, and a tenth of the time.
 */
typedef struct effort {
    uint32_t probes;   /* launches that tell how long one takes */
    uint32_t warming;
    uint32_t samples;
    uint32_t least;    /* of them, where they would take longer than `all_ms` */
    double sample_ms;  /* of a sample, at most: twenty launches where these are short */
    double all_ms;     /* of all samples together */
} effort;

static const effort efforts[] = { [GPU_JUDGED] = { 10, 20, MOST_SAMPLES, 5, 30.0, 1200.0 },
                                  [GPU_OTHERS] = { 2, 5, 7, 3, 3.0, 60.0 } };
/* Lanes on the host: whether it works at all. */
static const effort tiny_efforts[] = { [GPU_JUDGED] = { 1, 0, 3, 3, 0.0, 0.0 },
                                       [GPU_OTHERS] = { 1, 0, 1, 1, 0.0, 0.0 } };

/* -------------------------------------------------------------------------- failures */

void
gpu_require(const gpu_speed *s, int code, const char *what)
{
    if (code == BERTHI_CUDA_OK)
        return;
    fprintf(stderr, "gpu_check: %s: %s\n", what, s->calls->error_words(code));
    exit(1);
}

void
gpu_require_ok(berth_status status, const berth_error *error)
{
    if (status == BERTH_OK)
        return;
    fprintf(stderr, "gpu_check: %s\n", error != NULL ? error->message : "a launch was refused");
    exit(1);
}

void *
gpu_host_alloc(uint64_t bytes)
{
    void *const memory = calloc(1, bytes);

    if (memory != NULL)
        return memory;
    fprintf(stderr, "gpu_check: out of memory\n");
    exit(1);
}

const char *
gpu_refusal(gpu_speed *s, uint64_t bytes)
{
    uint64_t free_bytes;
    uint64_t total;

    if (berthi_sys_now_ns() >= s->deadline_ns)
        return "no time was left";
    if (s->copy_gbps <= 0.0)
        return "the speed of its memory is not known";
    gpu_require(s, s->calls->memory_info(&free_bytes, &total), "asking for free memory");
    if (bytes <= free_bytes)
        return NULL;
    snprintf(s->why, sizeof s->why,
             "needs %" PRIu64 " MiB of the GPU, %" PRIu64 " MiB are free", bytes >> 20,
             free_bytes >> 20);
    return s->why;
}

bool
gpu_can_begin(gpu_speed *s, const char *name, uint64_t bytes)
{
    const char *const why = gpu_refusal(s, bytes);

    if (why != NULL)
        gpu_rows_skip(s->rows, name, why);
    return why == NULL;
}

bool
gpu_is_right(gpu_speed *s, const char *name, bool is_right)
{
    if (is_right)
        return true;
    s->wrong++;
    gpu_rows_skip(s->rows, name, "WRONG OUTPUT: its speed means nothing");
    return false;
}

/* ---------------------------------------------------------------------------- memory */

void *
gpu_alloc(gpu_speed *s, uint64_t bytes)
{
    void *memory = NULL;

    gpu_require(s, s->calls->alloc(&memory, bytes), "allocating");
    return memory;
}

void
gpu_free(gpu_speed *s, void *memory)
{
    if (memory != NULL)
        gpu_require(s, s->calls->free(memory), "giving memory back");
}

void
gpu_sync(const gpu_speed *s)
{
    gpu_require(s, s->calls->synchronize(), "waiting for the GPU");
}

static void
copy(gpu_speed *s, void *to, const void *from, uint64_t bytes, int32_t kind)
{
    gpu_require(s, s->calls->copy(to, from, bytes, kind, s->stream), "a copy");
    gpu_sync(s);
}

void
gpu_fetch(gpu_speed *s, void *to, const void *from, uint64_t bytes)
{
    copy(s, to, from, bytes, BERTHI_COPY_TO_HOST);
}

void
gpu_put(gpu_speed *s, void *to, const void *from, uint64_t bytes)
{
    copy(s, to, from, bytes, BERTHI_COPY_TO_DEVICE);
}

void
gpu_fill_normal(gpu_speed *s, void *memory, int32_t dtype, uint64_t count, uint32_t seed)
{
    uint64_t begin = UINT64_C(8) * seed % s->normal_count;

    for (uint64_t done = 0; done < count;) {
        const uint64_t rest = s->normal_count - begin;
        const uint64_t now = count - done < rest ? count - done : rest;

        copy(s, (uint16_t *)memory + done, s->normals[gpu_dtype_at(dtype)] + begin,
             now * sizeof *s->normal, BERTHI_COPY_WITHIN);
        done += now;
        begin = 0;
    }
}

static void
put_normals(gpu_speed *s)
{
    const uint64_t bytes = s->normal_count * sizeof *s->normal;
    uint16_t *const other = gpu_host_alloc(bytes);

    for (uint64_t i = 0; i < s->normal_count; i++)
        other[i] = berthi_core_to_fp16(berthi_core_from_bf16(s->normal[i]));
    for (uint32_t i = 0; i < GPU_DTYPES; i++)
        s->normals[i] = gpu_alloc(s, bytes);
    gpu_put(s, s->normals[gpu_dtype_at(BERTH_BF16)], s->normal, bytes);
    gpu_put(s, s->normals[gpu_dtype_at(BERTH_F16)], other, bytes);
    free(other);
}

/* Sums of four uniform numbers, of a deviation of some 0.02. */
static void
draw_normal(gpu_speed *s)
{
    uint64_t state = berthi_sys_now_ns() | 1;

    s->normal_count = s->is_tiny ? UINT64_C(1) << 14 : UINT64_C(1) << 25;
    s->normal = gpu_host_alloc(s->normal_count * sizeof *s->normal);
    for (uint64_t i = 0; i < s->normal_count; i++) {
        int32_t sum = 0;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (int part = 0; part < 64; part += 16)
            sum += (int32_t)(state >> part & 0xFFFF) - 0x8000;
        s->normal[i] = berthi_core_to_bf16((float)sum * (0.0346f / 65536.0f));
    }
    put_normals(s);
}

/* ------------------------------------------------------------------------------ time */

uint32_t
gpu_turns(const gpu_speed *s, uint64_t bytes)
{
    const uint64_t cache = s->cache_bytes > 0 ? s->cache_bytes : UINT64_C(64) << 20;
    const uint64_t turns = 2 + (s->is_tiny ? 0 : 4 * cache / (bytes + 1));

    return (uint32_t)(turns < GPU_TURNS ? turns : GPU_TURNS);
}

void
gpu_launch(gpu_speed *s, const berthi_launch *launches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (launches[i].kernel == KERNEL_NONE)
            continue;
        if (launches[i].room_bytes > 0 && !s->has_room[launches[i].kernel])
            gpu_require(s, s->calls->allow_room(launches[i].kernel, launches[i].room_bytes),
                        "shared memory");
        s->has_room[launches[i].kernel] = true;
        gpu_require(s, s->calls->launch(&launches[i], s->tiles,
                                       berthi_launch_overlaps(s->capability), s->stream),
                    "a launch");
    }
}

/* Of one launch, in microseconds. */
static double
time_launches(gpu_speed *s, const gpu_work *work, uint32_t launches, uint32_t *turn)
{
    void *begin = NULL;
    void *end = NULL;
    float ms = 0.0f;

    gpu_require(s, s->machine->stamp_create(&begin), "an event");
    gpu_require(s, s->machine->stamp_create(&end), "an event");
    gpu_require(s, s->machine->stamp_record(begin, s->stream), "an event");
    for (uint32_t i = 0; i < launches; i++)
        work->ask(s, work->user, (*turn)++);
    gpu_require(s, s->machine->stamp_record(end, s->stream), "an event");
    gpu_sync(s);
    gpu_require(s, s->machine->elapsed_ms(&ms, begin, end), "the time between events");
    gpu_require(s, s->machine->stamp_destroy(begin), "an event");
    gpu_require(s, s->machine->stamp_destroy(end), "an event");
    return (double)ms * 1000.0 / launches;
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
sum_up(double *samples, gpu_timing *t)
{
    qsort(samples, t->samples, sizeof *samples, compare);
    t->us = samples[t->samples / 2];
    t->low = samples[t->samples / 10];
    t->high = samples[t->samples - 1 - t->samples / 10];
}

/* What a sample of this work has, and how long it takes; it is warm now. */
static double
begin_work(gpu_speed *s, const effort *e, const gpu_work *work, uint32_t *turn, gpu_timing *out)
{
    const double us = time_launches(s, work, e->probes, turn);
    const double fit = e->sample_ms * 1000.0 / (us + 1.0);

    out->launches = fit >= 20.0 ? 20 : fit > 2.0 ? (uint32_t)fit : 2;
    /* As long as these do not take a second. */
    if (e->warming > 0 && us < 50000.0)
        (void)time_launches(s, work, e->warming, turn);
    return us * out->launches / 1000.0;
}

void
gpu_time(gpu_speed *s, const gpu_work *works, uint32_t count, gpu_timing *out)
{
    static double samples[MOST_WORKS][MOST_SAMPLES];
    const effort *const e = &(s->is_tiny ? tiny_efforts : efforts)[s->pass];
    uint32_t turns[MOST_WORKS] = { 0 };
    double round_ms = 0.0;
    uint32_t rounds;

    for (uint32_t w = 0; w < count; w++)
        round_ms += begin_work(s, e, &works[w], &turns[w], &out[w]);
    rounds = round_ms * e->samples <= e->all_ms ? e->samples
                                                : (uint32_t)(e->all_ms / round_ms);
    rounds = rounds < e->least ? e->least : rounds;
    for (uint32_t i = 0; i < rounds; i++)
        for (uint32_t w = 0; w < count; w++)
            samples[w][i] = time_launches(s, &works[w], out[w].launches, &turns[w]);
    for (uint32_t w = 0; w < count; w++) {
        out[w].samples = rounds;
        sum_up(samples[w], &out[w]);
    }
}

void
gpu_tell(gpu_speed *s, const gpu_row *row, double bytes, double limit_gbps, const char *of)
{
    gpu_row its = *row;

    its.gbps = bytes / row->timing->us / 1000.0;
    its.value = its.gbps / limit_gbps;
    its.unit = of;
    gpu_rows_speed(s->rows, &its, s->machine->is_simulated);
}

/* ------------------------------------------------------------------------------- all */

static void
tell_machine(gpu_speed *s, const berthi_cuda_properties *p)
{
    uint32_t clock = 0;
    uint32_t memory_clock = 0;
    char text[128];
    int driver = 0;

    gpu_require(s, s->calls->driver_version(&driver), "the driver's version");
    gpu_require(s, s->machine->describe(&s->cache_bytes, &clock, &memory_clock), "its clocks");
    gpu_rows_fact(s->rows, "GPU", p->name);
    snprintf(text, sizeof text, "sm_%d%d, %d multiprocessors, %" PRIu64 " MiB, cache %" PRIu64
             " MiB", p->major, p->minor, p->processors, p->memory_bytes >> 20,
             s->cache_bytes >> 20);
    gpu_rows_fact(s->rows, "architecture", text);
    snprintf(text, sizeof text, "%u MHz, memory %u MHz (the most it says it has)", clock,
             memory_clock);
    gpu_rows_fact(s->rows, "clocks", text);
    snprintf(text, sizeof text, "driver %d.%d, runtime %d.%d", driver / 1000,
             driver % 1000 / 10, s->calls->runtime_version / 1000,
             s->calls->runtime_version % 1000 / 10);
    gpu_rows_fact(s->rows, "CUDA", text);
    snprintf(text, sizeof text, "%s, kernels for sm_%u", berth_version(), s->capability);
    gpu_rows_fact(s->rows, "berth", text);
    if (s->machine->is_simulated)
        gpu_rows_fact(s->rows, "simulated", "no number here is a measurement");
    if (s->is_tiny)
        gpu_rows_fact(s->rows, "shapes", "small ones stand for those that rows are called by");
}

static void
open_all(gpu_speed *s)
{
    berthi_cuda_properties properties;
    berth_error error;

    gpu_require_ok(berth_context_create(NULL, &s->context, &error), &error);
    gpu_require_ok(berthi_devices_open_cuda(s->context, s->calls, "cuda", &s->devices, &error),
                   &error);
    s->device = berthi_devices_at(s->devices, 0);
    s->narrow_calls = *s->calls;
    s->narrow_calls.wide = 0;
    gpu_require_ok(berthi_devices_open_cuda(s->context, &s->narrow_calls, "cuda",
                                            &s->narrow_devices, &error),
                   &error);
    s->narrow_device = berthi_devices_at(s->narrow_devices, 0);
    gpu_require(s, s->calls->set_device(0), "choosing the GPU");
    gpu_require(s, s->calls->device_properties(0, &properties), "its properties");
    s->capability = ((berthi_cuda_device *)(void *)s->device)->capability;
    s->processors =
        (uint32_t)((berthi_cuda_device *)(void *)s->device)->properties.processors;
    s->room_bytes = properties.room_bytes;
    (void)s->calls->find_tiles(&s->tiles);
    gpu_require(s, s->calls->stream_create(&s->stream), "a stream");
    tell_machine(s, &properties);
    draw_normal(s);
}

/* In the order of what is wanted most. */
static const struct {
    const char *name;
    void (*run)(gpu_speed *s);
} parts[] = { { "blocks", gpu_speed_blocks },
              { "products", gpu_speed_product },
              { "model", gpu_speed_model },
              { "int8", gpu_speed_int8 },
              { "many", gpu_speed_gemm },
              { "plain", gpu_speed_plain },
              { "updates", gpu_speed_update } };

#define PARTS (sizeof parts / sizeof *parts)

static bool
is_part(const char *name)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(parts[i].name, name) == 0)
            return true;
    return false;
}

static void
run_parts(gpu_speed *s, const char *part, gpu_pass pass)
{
    s->pass = pass;
    for (size_t i = 0; i < PARTS; i++)
        if (part == NULL || strcmp(parts[i].name, part) == 0)
            parts[i].run(s);
}

int
gpu_speed_run(const gpu_machine *machine, FILE *rows, const gpu_speed_request *request)
{
    gpu_speed s = { .machine = machine, .calls = machine->calls, .rows = rows,
                    .is_tiny = request->is_tiny };

    if (request->part != NULL && !is_part(request->part)) {
        fprintf(stderr, "gpu_check: no part of the speeds is called %s\n", request->part);
        return 2;
    }
    s.deadline_ns = berthi_sys_now_ns() + (uint64_t)(request->seconds * 1e9);
    open_all(&s);
    gpu_speed_limits(&s);
    run_parts(&s, request->part, GPU_JUDGED);
    run_parts(&s, request->part, GPU_OTHERS);
    gpu_speed_limits_again(&s);
    for (uint32_t i = 0; i < GPU_DTYPES; i++)
        gpu_free(&s, s.normals[i]);
    gpu_require(&s, s.calls->stream_destroy(s.stream), "a stream");
    berthi_devices_close(s.narrow_devices);
    berthi_devices_close(s.devices);
    berth_context_destroy(s.context);
    free(s.normal);
    return s.wrong != 0;
}
