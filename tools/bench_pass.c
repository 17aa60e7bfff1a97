/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pass.c - see bench_pass.h. */
#define _POSIX_C_SOURCE 200809L

#include "tools/bench_pass.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tools/clock.h"

#define PASSES_MAX   64u
#define LOOK_MS      100
#define MARK_BYTES   (UINT64_C(1) << 30) /* of a pass: so often is seen that it moves */

typedef struct passes {
    berth_model *model;
    const berth_plan *plan;
    berth_devices *devices; /* NULL: the host computes */
    berth_plan_summary summary;
    void **streams;         /* of devices */
    uint32_t device_count;
    uint32_t *device_of;    /* tiers; BERTH_NO_INDEX: the host */
    const pass_options *options;
    bool is_simulated;
    double scale;           /* of what a layer takes to compute */
    uint64_t unmarked;      /* bytes that streams bring behind the last mark */
} passes;

static double
device_seconds(const passes *p)
{
    return p->devices != NULL ? berth_devices_seconds(p->devices) : clock_seconds();
}

/* ----------------------------------------------------------------------- computing */

/* In proportion to what is read of the home's memory; of an embedding that is nothing. */
static double
reads_of(const passes *p, uint32_t number)
{
    berth_plan_layer layer;
    berth_plan_tier home;
    uint64_t bytes;

    if (berth_plan_get_layer(p->plan, number, &layer) != BERTH_OK
        || berth_plan_get_tier(p->plan, layer.home, &home) != BERTH_OK
        || home.memory_rate == 0)
        return 0;
    bytes = layer.cause == BERTH_PLAN_ROWS ? 0 : layer.bytes;
    return (double)(bytes + layer.cache_bytes) / (double)home.memory_rate;
}

/* All layers together take what the plan says. */
static void
settle_scale(passes *p)
{
    double sum = 0;

    for (uint32_t i = 0; i < p->summary.layer_count; i++)
        sum += reads_of(p, i);
    p->scale = p->is_simulated && sum > 0 ? p->summary.compute_seconds / sum : 0;
}

/* Marks that streams have passed. One that hangs may pass another when all else is over. */
static _Atomic uint32_t passed_marks;

/* In the order of a stream: it has come so far. */
static void
mark(void *user)
{
    (void)user;
    atomic_fetch_add(&passed_marks, 1);
}

/* -------------------------------------------------------------------------- layers */

static berth_status
fail(berth_status status, int32_t reason, const char *message, berth_error *error)
{
    memset(error, 0, sizeof *error);
    error->status = status;
    error->reason = reason;
    strcpy(error->message, message);
    return status;
}

static berth_status
fail_cancelled(berth_error *error)
{
    return fail(BERTH_ECANCELLED, BERTH_REASON_CANCELLED, "cancelled", error);
}

/* As long as it moves. */
static berth_status
wait_for(passes *p, uint32_t device, berth_error *error)
{
    double moved = clock_seconds();
    uint32_t passed = atomic_load(&passed_marks);

    while (device != BERTH_NO_INDEX) {
        const berth_status status =
            berth_stream_wait(p->devices, device, p->streams[device], LOOK_MS, error);

        if (status != BERTH_PENDING)
            return status;
        if (p->options->is_cancelled())
            return fail_cancelled(error);
        if (atomic_load(&passed_marks) != passed) {
            passed = atomic_load(&passed_marks);
            moved = clock_seconds();
        }
        if (clock_seconds() - moved > p->options->wait_seconds)
            return fail(BERTH_EIO, BERTH_REASON_TIMEOUT,
                        "a pass does not move any more", error);
    }
    return BERTH_OK;
}

/* What simulated devices take to compute it; of others now and then nothing but a mark. */
static berth_status
ask(passes *p, uint32_t number, uint64_t bytes, uint32_t device, berth_error *error)
{
    p->unmarked += bytes;
    if (p->scale == 0 && p->unmarked < MARK_BYTES)
        return BERTH_OK;
    p->unmarked = 0;
    return berth_stream_call(p->devices, device, p->streams[device], mark, NULL,
                             p->scale * reads_of(p, number), error);
}

static berth_status
use_layer(passes *p, uint32_t number, uint64_t bytes, uint32_t device, berth_error *error)
{
    void *const stream = device == BERTH_NO_INDEX ? NULL : p->streams[device];
    berth_status status = berth_layer_acquire(p->model, number, stream, error);

    if (status != BERTH_OK)
        return status;
    if (device != BERTH_NO_INDEX)
        status = ask(p, number, bytes, device, error);
    if (status == BERTH_OK)
        return berth_layer_release(p->model, number, stream, error);
    (void)berth_layer_release(p->model, number, stream, NULL);
    return status;
}

/* A layer begins when the one before has ended, on whatever device. */
static berth_status
run_pass(passes *p, berth_error *error)
{
    uint32_t last = BERTH_NO_INDEX;
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < p->summary.layer_count && status == BERTH_OK; i++) {
        berth_plan_layer layer;
        uint32_t device;

        if (p->options->is_cancelled())
            return fail_cancelled(error);
        status = berth_plan_get_layer(p->plan, i, &layer);
        device = p->device_of[layer.home];
        if (status == BERTH_OK && device != last)
            status = wait_for(p, last, error);
        last = device;
        if (status == BERTH_OK)
            status = use_layer(p, i, layer.link_bytes, device, error);
    }
    return status == BERTH_OK ? wait_for(p, last, error) : status;
}

/* ----------------------------------------------------------------------- all passes */

/* GPUs of the plan, in its order, are the devices. */
static berth_status
open_streams(passes *p, berth_error *error)
{
    uint32_t device = 0;
    berth_plan_tier tier;
    berth_device about;
    berth_status status = BERTH_OK;

    p->device_count = p->devices != NULL ? berth_devices_count(p->devices) : 0;
    p->streams = calloc(p->device_count + 1u, sizeof *p->streams);
    p->device_of = calloc(p->summary.tier_count + 1u, sizeof *p->device_of);
    if (p->streams == NULL || p->device_of == NULL)
        return fail(BERTH_ENOMEM, BERTH_REASON_NO_MEMORY, "out of memory", error);
    for (uint32_t t = 0; t < p->summary.tier_count && status == BERTH_OK; t++) {
        p->device_of[t] = BERTH_NO_INDEX;
        if (berth_plan_get_tier(p->plan, t, &tier) != BERTH_OK
            || tier.kind != BERTH_TIER_GPU || device >= p->device_count)
            continue;
        p->device_of[t] = device;
        (void)berth_devices_get(p->devices, device, &about);
        p->is_simulated = about.is_simulated != 0;
        status = berth_stream_create(p->devices, device, &p->streams[device], error);
        device++;
    }
    return status;
}

static void
close_streams(passes *p)
{
    for (uint32_t i = 0; p->streams != NULL && i < p->device_count; i++)
        berth_stream_destroy(p->devices, i, p->streams[i]);
    free(p->streams);
    free(p->device_of);
}

static berth_status
time_passes(passes *p, pass_facts *out, berth_error *error)
{
    const double host_begin = clock_seconds();
    double begin = device_seconds(p);
    berth_lease_summary before;
    berth_lease_summary after;
    berth_status status = run_pass(p, error);

    out->first_seconds = device_seconds(p) - begin;
    begin = device_seconds(p);
    berth_model_leases(p->model, &before);
    while (status == BERTH_OK && out->passes < PASSES_MAX
           && (out->passes == 0 || clock_seconds() - host_begin < p->options->seconds)) {
        status = run_pass(p, error);
        out->passes++;
    }
    if (status != BERTH_OK)
        return status;
    berth_model_leases(p->model, &after);
    out->seconds = (device_seconds(p) - begin) / out->passes;
    out->copied_bytes = (after.copied_bytes - before.copied_bytes) / out->passes;
    out->disk_bytes = (after.disk_bytes - before.disk_bytes) / out->passes;
    out->host_waits = after.host_waits;
    return BERTH_OK;
}

static void
note_prediction(const passes *p, pass_facts *out)
{
    const berth_plan_summary *const s = &p->summary;

    out->is_computing = p->scale > 0;
    out->bound = s->bound;
    out->planned_bytes = s->link_bytes;
    out->planned_disk_bytes = s->disk_bytes;
    out->predicted = s->seconds;
    if (out->is_computing)
        return;
    /* Nothing computes: what is left is the slower of the two ways. */
    out->bound =
        s->link_seconds >= s->disk_seconds ? BERTH_PLAN_BY_LINK : BERTH_PLAN_BY_DISK;
    out->predicted = out->bound == BERTH_PLAN_BY_LINK ? s->link_seconds : s->disk_seconds;
}

berth_status
pass_run(berth_model *model, const berth_plan *plan, berth_devices *devices,
         const pass_options *options, pass_facts *out, berth_error *error)
{
    passes p = { .model = model,
                 .plan = plan,
                 .devices = devices,
                 .options = options };
    berth_status status;

    memset(out, 0, sizeof *out);
    berth_plan_get(plan, &p.summary);
    status = open_streams(&p, error);
    settle_scale(&p);
    note_prediction(&p, out);
    if (status == BERTH_OK)
        status = time_passes(&p, out, error);
    close_streams(&p);
    return status;
}
