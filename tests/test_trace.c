/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace.c - events of loads, leases and simulated devices: lanes, stamps, sums. */
#include <stdio.h>
#include <string.h>

#include "tests/loaded.h"
#include "tests/rig.h"
#include "tests/t.h"
#include "tests/traced.h"

static void
test_names(void)
{
    static const char *const names[] = { "read",    "chunk", "place", "encode",  "copy",
                                         "compute", "wait",  "fill",  "acquire", "release" };

    for (int32_t k = 0; k < BERTH_TRACE_KIND_COUNT; k++)
        CHECK_STR(berth_trace_kind_name(k), names[k]);
    CHECK_STR(berth_trace_kind_name(-1), "unknown");
    CHECK_STR(berth_trace_kind_name(BERTH_TRACE_KIND_COUNT), "unknown");
}

/* --------------------------------------------------------------------------- loads */

/* Of what was placed, that of GPUs. */
static uint64_t
placed_on_devices(const loaded *l, traced *t)
{
    const uint32_t count = traced_seen(t);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const berth_trace_event *const e = &t->events[i];
        berth_model_tensor tensor;
        berth_plan_tier tier;
        berth_tensor stored;

        if (e->kind != BERTH_TRACE_PLACE)
            continue;
        CHECK_EQ(berth_checkpoint_tensor(l->p.checkpoint, e->tensor, &stored), BERTH_OK);
        CHECK_EQ(berth_model_get_tensor(
                     l->model,
                     berth_model_find(l->model, stored.name, stored.name_length), &tensor),
                 BERTH_OK);
        CHECK_EQ(tensor.layer, e->layer);
        CHECK_EQ(stored.shard, e->shard);
        CHECK_EQ(berth_plan_get_tier(l->p.plan, tensor.tier, &tier), BERTH_OK);
        bytes += tier.kind == BERTH_TIER_GPU ? e->bytes : 0;
    }
    return bytes;
}

static void
check_load(const char *memory, const char *words, int32_t type)
{
    berth_plan_options options = loaded_options(memory);
    berth_lease_summary leases;
    loaded l;
    traced *t;

    options.type = type;
    loaded_begin(&l, loaded_large(6, 2), &options, words);
    t = traced_begin(l.p.context);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    CHECK_EQ(traced_bytes(t, BERTH_TRACE_READ, BERTH_LANE_READ), l.report.bytes_read);
    CHECK_EQ(traced_bytes(t, BERTH_TRACE_PLACE, BERTH_LANE_THREAD), l.report.placed_bytes);
    CHECK_EQ(traced_bytes(t, BERTH_TRACE_CHUNK, BERTH_LANE_THREAD), l.report.placed_bytes);
    if (words != NULL && type == BERTH_ENCODING_NATIVE) {
        const uint64_t placed = placed_on_devices(&l, t);

        berth_model_leases(l.model, &leases);
        loaded_unload(&l); /* waits for the copies that fill slots */
        CHECK_EQ(traced_bytes(t, BERTH_TRACE_COPY, BERTH_LANE_LINK),
                 placed + leases.copied_bytes);
        CHECK_EQ(traced_bytes(t, BERTH_TRACE_FILL, -1), leases.copied_bytes);
    }
    if (type != BERTH_ENCODING_NATIVE)
        CHECK_GT(traced_count(t, BERTH_TRACE_ENCODE, -1), 0);
    loaded_end(&l);
    traced_check_lanes(t);
    traced_end(t);
}

static void
test_load(void)
{
    check_load("cpu=1GiB", NULL, BERTH_ENCODING_NATIVE);
    check_load("cpu=1GiB", NULL, BERTH_ENCODING_NF4);
    check_load("0=24MiB,cpu=1GiB", "sim:64MiB", BERTH_ENCODING_NATIVE);
    check_load("0=24MiB,cpu=1GiB", "sim:64MiB,clock=real", BERTH_ENCODING_NATIVE);
    check_load("0=64MiB,cpu=1GiB", "sim:64MiB", BERTH_ENCODING_NF4);
}

/* Where encoding happens on the host, it is on a worker's lane and says of what. */
static void
test_encode(void)
{
    berth_plan_options options = loaded_options("cpu=1GiB");
    const berth_trace_event *e;
    loaded l;
    traced *t;

    options.type = BERTH_ENCODING_INT8;
    loaded_begin(&l, loaded_llama(1, "BF16", 1), &options, NULL);
    t = traced_begin(l.p.context);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    e = traced_find(t, BERTH_TRACE_ENCODE, BERTH_LANE_THREAD);
    T_REQUIRE(e != NULL);
    CHECK_NE(e->tensor, BERTH_NO_TENSOR);
    CHECK_NE(e->layer, BERTH_NO_INDEX);
    CHECK_EQ(e->shard, 0);
    CHECK_EQ(e->is_simulated, 0);
    CHECK_EQ(traced_bytes(t, BERTH_TRACE_ENCODE, -1), 2u * (4 * 256 * 256 + 3 * 704 * 256));
    e = traced_find(t, BERTH_TRACE_CHUNK, BERTH_LANE_THREAD);
    T_REQUIRE(e != NULL);
    CHECK_STR(t->names[e - t->events], "worker");
    loaded_end(&l);
    traced_end(t);
}

/* -------------------------------------------------------------------------- leases */

static void
check_pass(const char *memory, uint64_t passes)
{
    berth_plan_options options = loaded_options(memory);
    berth_lease_summary leases;
    uint64_t acquired[16] = { 0 };
    uint64_t filled;
    uint32_t layers;
    void *stream;
    loaded l;
    traced *t;

    loaded_begin(&l, loaded_large(6, 1), &options, "sim:64MiB");
    t = traced_begin(l.p.context);
    loaded_load(&l);
    T_REQUIRE(l.status == BERTH_OK);
    T_REQUIRE(l.p.summary.layer_count <= 16);
    traced_forget(t); /* of the load; layers come in ahead of the pass already */
    CHECK_EQ(berth_stream_create(l.devices, 0, &stream, NULL), BERTH_OK);
    for (uint64_t p = 0; p < passes; p++)
        for (uint32_t i = 0; i < l.p.summary.layer_count; i++) {
            CHECK_EQ(berth_layer_acquire(l.model, i, stream, NULL), BERTH_OK);
            CHECK_EQ(berth_layer_release(l.model, i, stream, NULL), BERTH_OK);
        }
    CHECK_EQ(berth_stream_wait(l.devices, 0, stream, -1, NULL), BERTH_OK);
    berth_stream_destroy(l.devices, 0, stream);
    CHECK_EQ(traced_count(t, BERTH_TRACE_ACQUIRE, BERTH_LANE_THREAD),
             passes * l.p.summary.layer_count);
    CHECK_EQ(traced_count(t, BERTH_TRACE_RELEASE, BERTH_LANE_THREAD),
             passes * l.p.summary.layer_count);
    filled = traced_bytes(t, BERTH_TRACE_FILL, BERTH_LANE_THREAD);
    berth_model_leases(l.model, &leases);
    CHECK_GT(filled, 0);
    CHECK_LE(filled, leases.copied_bytes); /* more may have been filled meanwhile */
    layers = l.p.summary.layer_count;
    loaded_end(&l);
    for (uint32_t i = 0; i < t->count; i++)
        if (t->events[i].kind == BERTH_TRACE_ACQUIRE)
            acquired[t->events[i].layer]++;
    for (uint32_t i = 0; i < layers; i++)
        CHECK_EQ(acquired[i], passes);
    traced_check_lanes(t);
    for (uint32_t i = 0; i < t->count; i++) /* of leases, all say which layer */
        if (t->events[i].lane == BERTH_LANE_LINK)
            CHECK_NE(t->events[i].layer, BERTH_NO_INDEX);
    traced_end(t);
}

static void
test_leases(void)
{
    check_pass("0=24MiB,cpu=1GiB", 3);
    check_pass("0=24MiB,disk=inf", 2);
}

/* ------------------------------------------------------------------------- devices */

static void
check_event(const traced *t, uint32_t number, int32_t kind, int32_t lane,
            const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    const berth_trace_event *const e = &t->events[number];

    if (!CHECK_LT(number, t->count))
        return;
    CHECK_EQ(e->kind, kind);
    CHECK_EQ(e->lane, lane);
    CHECK_STR(t->names[number], name);
    CHECK_EQ(e->begin_ns, begin_ns);
    CHECK_EQ(e->end_ns, end_ns);
    CHECK_EQ(e->is_simulated, 1);
    CHECK_EQ(e->tensor, BERTH_NO_TENSOR);
    CHECK_EQ(e->shard, BERTH_NO_INDEX);
}

/* A copy of 1 ms, a stream that waits for it, and what it then computes for 2 ms. */
static void
test_stamps(void)
{
    berthi_stream *copying;
    berthi_stream *computing;
    berthi_event *copied;
    uint8_t *host;
    void *memory;
    traced *t;
    rig r;

    if (!rig_open(&r, "sim:64MiB,h2d=1GB/s,latency=0us")) {
        rig_close(&r);
        return;
    }
    t = traced_begin(r.context);
    host = rig_pinned(&r, 1000000 / 4096 * 4096 + 4096, 1);
    memory = rig_alloc(r.device, 1000000);
    copying = rig_stream(r.device);
    computing = rig_stream(r.device);
    copied = rig_event(r.device);
    rig_to_device(r.device, memory, host, 1000000, copying);
    rig_record(r.device, copied, copying);
    rig_wait(r.device, computing, copied);
    rig_compute(r.device, 2000000, computing);
    rig_sync(r.device, computing);
    CHECK_EQ(t->count, 3);
    check_event(t, 0, BERTH_TRACE_COPY, BERTH_LANE_LINK, "sim:0 to device", 0, 1000000);
    CHECK_EQ(t->events[0].bytes, 1000000);
    CHECK_EQ(t->events[0].layer, BERTH_NO_INDEX);
    check_event(t, 1, BERTH_TRACE_WAIT, BERTH_LANE_STREAM,
                t->names[1], 0, 1000000);
    CHECK_CONTAINS(t->names[1], "sim:0 stream ");
    check_event(t, 2, BERTH_TRACE_COMPUTE, BERTH_LANE_ENGINE, "sim:0 compute", 1000000,
                3000000);
    CHECK_EQ(t->events[2].bytes, 0);
    CHECK_EQ(t->events[1].number, t->events[2].stream);
    CHECK_NE(t->events[0].stream, t->events[2].stream);
    rig_unpinned(&r, host, 1000000 / 4096 * 4096 + 4096);
    r.device->table->free(r.device, memory, 1000000);
    r.device->table->event_destroy(r.device, copied);
    r.device->table->stream_destroy(r.device, copying);
    r.device->table->stream_destroy(r.device, computing);
    rig_close(&r);
    traced_end(t);
}

/* The second of two devices. */
static void
test_second_device(void)
{
    traced *t;
    rig r;

    if (!rig_open(&r, "sim:64MiB*2")) {
        rig_close(&r);
        return;
    }
    t = traced_begin(r.context);
    rig_compute(rig_at(&r, 1), 1000, NULL);
    rig_sync(rig_at(&r, 1), NULL);
    CHECK_EQ(t->count, 1);
    CHECK_STR(t->names[0], "sim:1 compute");
    rig_close(&r);
    traced_end(t);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_names);
    T_RUN(test_load);
    T_RUN(test_encode);
    T_RUN(test_leases);
    T_RUN(test_stamps);
    T_RUN(test_second_device);
    T_MAIN_END;
}
