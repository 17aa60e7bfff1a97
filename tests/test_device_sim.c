/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_sim.c - simulated time: makespans by hand, order, sharing, waiting. */
#include <string.h>

#include "kernels/sim.h"
#include "kernels/sys.h"
#include "tests/rig.h"
#include "tests/t.h"

/* A byte a nanosecond, and nothing else, so that sums can be done in the head. */
#define PLAIN "sim:64MiB,h2d=1GB/s,memory=1GB/s,latency=0ns"
#define KB UINT64_C(1000)

static void
test_copy_takes_its_time(void)
{
    uint8_t *host;
    uint8_t *memory;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,h2d=2GB/s,d2h=1GB/s,latency=10us"));
    host = rig_pinned(&r, 64 * KB, 7);
    memory = rig_alloc(r.device, 64 * KB);
    CHECK_EQ(rig_now(&r), 0);
    rig_to_device(r.device, memory, host, 20 * KB, NULL);
    CHECK_EQ(rig_now(&r), 0); /* asking takes no time */
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r), 20 * KB); /* 10 us, and 20 kB at 2 GB/s */
    CHECK_EQ(memory[0], 7);
    CHECK_EQ(memory[20 * KB - 1], 7);
    CHECK_EQ(memory[20 * KB], 0xA5);
    memset(host, 0, 64 * KB);
    rig_to_host(r.device, host, memory, 20 * KB, NULL);
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r), 50 * KB); /* at 1 GB/s */
    CHECK_EQ(host[20 * KB - 1], 7);
    CHECK_EQ(host[20 * KB], 0);
    rig_unpinned(&r, host, 64 * KB);
    r.device->table->free(r.device, memory, 64 * KB);
    rig_close(&r);
}

/* Two streams, one link, one that computes: 3 layers copied while others compute. */
static void
test_copies_overlap_computing(void)
{
    berthi_stream *streams[2];
    berthi_event *full[3];
    uint8_t *host;
    uint8_t *memory;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    host = rig_pinned(&r, 4096, 1);
    memory = rig_alloc(r.device, 3 * 4096);
    for (int i = 0; i < 2; i++)
        streams[i] = rig_stream(r.device);
    for (int i = 0; i < 3; i++) {
        full[i] = rig_event(r.device);
        rig_to_device(r.device, memory + i * 4096, host, 1000, streams[0]);
        rig_record(r.device, full[i], streams[0]);
        rig_wait(r.device, streams[1], full[i]);
        rig_compute(r.device, 700, streams[1]);
    }
    rig_await(r.device, full[0]);
    CHECK_EQ(rig_now(&r), 1000);
    rig_await(r.device, full[1]);
    CHECK_EQ(rig_now(&r), 2000);
    rig_sync(r.device, streams[1]);
    CHECK_EQ(rig_now(&r), 3700); /* the last copy, and what computes it */
    for (int i = 0; i < 3; i++)
        r.device->table->event_destroy(r.device, full[i]);
    for (int i = 0; i < 2; i++)
        r.device->table->stream_destroy(r.device, streams[i]);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, 3 * 4096);
    rig_close(&r);
}

/* 1000 bytes to each of two devices. */
static uint64_t
two_devices(const char *words)
{
    uint64_t end = 0;
    rig r;

    if (rig_open(&r, words)) {
        uint8_t *const host = rig_pinned(&r, 4096, 1);
        void *memory[2];

        for (uint32_t i = 0; i < 2; i++) {
            memory[i] = rig_alloc(rig_at(&r, i), 4096);
            rig_to_device(rig_at(&r, i), memory[i], host, 1000, NULL);
        }
        for (uint32_t i = 0; i < 2; i++)
            rig_sync(rig_at(&r, i), NULL);
        end = rig_now(&r);
        for (uint32_t i = 0; i < 2; i++)
            rig_at(&r, i)->table->free(rig_at(&r, i), memory[i], 4096);
        rig_unpinned(&r, host, 4096);
    }
    rig_close(&r);
    return end;
}

static void
test_roots_share_a_link(void)
{
    CHECK_EQ(two_devices(PLAIN "*2"), 1000);
    CHECK_EQ(two_devices(PLAIN ",root=1*2"), 2000);
    CHECK_EQ(two_devices(PLAIN ",root=1;" PLAIN ",root=2"), 1000);
    CHECK_EQ(two_devices(PLAIN ",root=1;sim:64MiB,h2d=500MB/s,latency=0ns,root=1"), 3000);
}

/* ----------------------------------------------------------------------- durations */

/* How long `request` takes, or a copy where there is none. */
static uint64_t
time_of(rig *r, const berthi_copy *c, const berthi_request *request)
{
    const uint64_t before = rig_now(r);

    if (c != NULL)
        CHECK_EQ(r->device->table->copy(r->device, c, NULL, NULL), BERTH_OK);
    else
        CHECK_EQ(r->device->table->launch(r->device, request, NULL, NULL), BERTH_OK);
    rig_sync(r->device, NULL);
    return rig_now(r) - before;
}

static void
test_durations(void)
{
    berthi_request request = { .operation = BERTHI_OPERATION_ENCODE_NF4 };
    berthi_copy c = { .kind = BERTHI_COPY_WITHIN, .bytes = 1000 };
    uint8_t *memory;
    uint8_t *host;
    uint64_t before;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,h2d=1GB/s,d2h=4GB/s,memory=2GB/s,latency=100ns"));
    memory = rig_alloc(r.device, 1 << 20);
    host = rig_pinned(&r, 1 << 20, 0);
    c.to = memory;
    c.from = memory + 4096;
    CHECK_EQ(time_of(&r, &c, NULL), 1000); /* read and written: 2000 bytes */
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .is_pinned = true, .to = host,
                       .from = memory, .bytes = 1000 };
    CHECK_EQ(time_of(&r, &c, NULL), 350);
    c.is_pinned = false;
    CHECK_EQ(time_of(&r, &c, NULL), 600);
    c = (berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true, .to = memory,
                       .from = host, .bytes = 1000 };
    CHECK_EQ(time_of(&r, &c, NULL), 1100);
    c.is_pinned = false;
    before = rig_now(&r);
    c.bytes = 65537;
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, NULL), BERTH_OK);
    CHECK_EQ(rig_now(&r) - before, 100 + 2 * 65537); /* when the call returns */
    /* Of fewer the driver has a copy: what the host does with its own is no matter. */
    c.bytes = 1000;
    before = rig_now(&r);
    host[999] = 1;
    CHECK_EQ(r.device->table->copy(r.device, &c, NULL, NULL), BERTH_OK);
    host[999] = 2;
    CHECK_EQ(rig_now(&r) - before, 0);
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r) - before, 2100);
    CHECK_EQ(memory[999], 1);
    before = rig_now(&r);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1000, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r) - before, 500);
    memset(memory, 0, 1 << 20);
    request.arguments.encode = (berthi_encode_arguments){
        .values = memory, .dtype = BERTH_F32, .block_size = 64, .count = 129,
        .codes = memory + 4096, .absmax = (float *)(void *)(memory + 8192) };
    CHECK_EQ(time_of(&r, NULL, &request), (516 + 65 + 12 + 1) / 2); /* rounded */
    request.operation = BERTHI_OPERATION_ENCODE_FP4;
    request.arguments.encode.dtype = BERTH_BF16;
    request.arguments.encode.count = 128;
    CHECK_EQ(time_of(&r, NULL, &request), (256 + 64 + 8) / 2);
    request.operation = BERTHI_OPERATION_ENCODE_ROWS;
    request.arguments.rows = (berthi_rows_arguments){
        .values = memory, .dtype = BERTH_F16, .rows = 10, .columns = 30,
        .codes = (int8_t *)memory + 4096,
        .row_maximum = (float *)(void *)(memory + 8192) };
    CHECK_EQ(time_of(&r, NULL, &request), (600 + 300 + 40) / 2);
    request.operation = BERTHI_OPERATION_ENCODE_DOUBLE;
    request.arguments.offset = (berthi_offset_arguments){
        .absmax = (float *)(void *)memory, .count = 258, .codes = memory + 4096,
        .absmax2 = (float *)(void *)(memory + 8192),
        .offset = (float *)(void *)(memory + 8448),
        .scratch = (float *)(void *)(memory + 16384) };
    CHECK_EQ(time_of(&r, NULL, &request),
             (258 * 4 + 258 + 8 + 4 + 4 * berthi_offset_scratch(258)) / 2);
    request.operation = BERTHI_OPERATION_COUNT;
    CHECK(!r.device->table->has_operation(r.device, BERTHI_OPERATION_COUNT));
    CHECK(!r.device->table->has_operation(r.device, -1));
    CHECK(r.device->table->has_operation(r.device, BERTHI_OPERATION_CALL));
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL),
             BERTH_EUNSUPPORTED);
    rig_unpinned(&r, host, 1 << 20);
    r.device->table->free(r.device, memory, 1 << 20);
    rig_close(&r);
}

/* What an operation touches is checked to the byte. */
/* So many that are asked for together: how long they take. */
static uint64_t
time_together(rig *r, const berthi_request *requests, uint32_t count)
{
    const uint64_t before = rig_now(r);

    CHECK_EQ(r->device->table->launch_together(r->device, requests, count, NULL, NULL),
             BERTH_OK);
    rig_sync(r->device, NULL);
    return rig_now(r) - before;
}

static void
test_operations_begin(void)
{
    berthi_copy c = { .kind = BERTHI_COPY_WITHIN, .bytes = 1000 };
    berthi_request requests[3];
    uint8_t *memory;
    uint64_t asked;
    rig r;

    T_REQUIRE(rig_open(&r, "sim:64MiB,memory=2GB/s,operation=4us"));
    memory = rig_alloc(r.device, 1 << 20);
    memset(memory, 0, 1 << 20);
    c.to = memory;
    c.from = memory + 4096;
    CHECK_EQ(time_of(&r, &c, NULL), 1000); /* is none */
    for (uint32_t i = 0; i < 3; i++) {
        requests[i].operation = BERTHI_OPERATION_ENCODE_NF4;
        requests[i].arguments.encode = (berthi_encode_arguments){
            .values = memory, .dtype = BERTH_BF16, .block_size = 64, .count = 128,
            .codes = memory + 4096 * (i + 1),
            .absmax = (float *)(void *)(memory + 4096 * (i + 4)) };
    }
    CHECK_EQ(time_of(&r, NULL, &requests[0]), 4000 + (256 + 64 + 8) / 2);
    CHECK_EQ(time_together(&r, requests, 3), 4000 + 3 * (256 + 64 + 8) / 2);
    requests[1].operation = BERTHI_OPERATION_ENCODE_FP4; /* of another kind */
    CHECK_EQ(time_together(&r, requests, 2), 2 * 4000 + 2 * (256 + 64 + 8) / 2);
    CHECK_EQ(time_together(&r, requests, 0), 0);
    requests[2].operation = BERTHI_OPERATION_COUNT; /* then nothing is asked for */
    asked = rig_now(&r);
    CHECK_EQ(r.device->table->launch_together(r.device, requests, 3, NULL, NULL),
             BERTH_EUNSUPPORTED);
    rig_sync(r.device, NULL);
    CHECK_EQ(rig_now(&r), asked);
    r.device->table->free(r.device, memory, 1 << 20);
    rig_close(&r);
}

static void
test_operations_out_of_bounds(void)
{
    berthi_request request = { .operation = BERTHI_OPERATION_ENCODE_NF4 };
    uint8_t *memory[3];
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    for (int i = 0; i < 3; i++) {
        static const uint64_t sizes[] = { 258, 65, 12 };

        memory[i] = rig_alloc(r.device, sizes[i]);
        memset(memory[i], 0, sizes[i]);
    }
    request.arguments.encode = (berthi_encode_arguments){
        .values = memory[0], .dtype = BERTH_BF16, .block_size = 64, .count = 129,
        .codes = memory[1], .absmax = (float *)(void *)memory[2] };
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_OK);
    rig_sync(r.device, NULL);
    request.arguments.encode.values = memory[0] + 1;
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    request.arguments.encode.values = memory[0];
    request.arguments.encode.codes = memory[1] + 1;
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    request.arguments.encode.codes = memory[1];
    request.arguments.encode.absmax = (float *)(void *)(memory[2] + 4);
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    request.arguments.encode.absmax = (float *)(void *)memory[2];
    request.arguments.encode.count = UINT64_MAX;
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    request.arguments.encode.count = 1;
    request.arguments.encode.block_size = 0;
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    request.operation = BERTHI_OPERATION_ENCODE_ROWS;
    request.arguments.rows = (berthi_rows_arguments){
        .values = memory[0], .dtype = BERTH_BF16, .rows = UINT64_MAX, .columns = 0,
        .codes = (int8_t *)memory[1], .row_maximum = (float *)(void *)memory[2] };
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    request.operation = BERTHI_OPERATION_ENCODE_DOUBLE;
    request.arguments.offset = (berthi_offset_arguments){
        .absmax = (float *)(void *)memory[0], .count = UINT64_MAX };
    CHECK_EQ(r.device->table->launch(r.device, &request, NULL, NULL), BERTH_EINTERNAL);
    for (int i = 0; i < 3; i++) {
        static const uint64_t sizes[] = { 258, 65, 12 };

        r.device->table->free(r.device, memory[i], sizes[i]);
    }
    rig_close(&r);
}

/* ---------------------------------------------------------------------------- order */

typedef struct log {
    char text[32];
    size_t length;
} log;

typedef struct mark {
    log *log;
    char letter;
} mark;

static void
note(void *user)
{
    const mark *const m = user;

    m->log->text[m->log->length++] = m->letter;
}

/* Three streams with two calls each: the order in which they are made. */
static void
check_order(const char *words, const char *expected)
{
    static const char letters[] = "abcdef";
    log l = { "", 0 };
    mark marks[6];
    berthi_stream *streams[3];
    rig r;

    T_REQUIRE(rig_open(&r, words));
    for (int i = 0; i < 3; i++)
        streams[i] = rig_stream(r.device);
    for (int i = 0; i < 6; i++) {
        marks[i] = (mark){ &l, letters[i] };
        rig_call(r.device, note, &marks[i], 10, streams[i % 3]);
    }
    for (int i = 0; i < 3; i++)
        rig_sync(r.device, streams[i]);
    CHECK_STR(l.text, expected);
    CHECK_EQ(rig_now(&r), 60);
    for (int i = 0; i < 3; i++)
        r.device->table->stream_destroy(r.device, streams[i]);
    rig_close(&r);
}

static void
test_picks(void)
{
    check_order(PLAIN, "abcdef");
    check_order(PLAIN ",pick=last", "cfbead"); /* of those that are ready */
    check_order(PLAIN ",pick=random,seed=1", "cadbef");
    check_order(PLAIN ",pick=random,seed=2", "beacfd");
}

/* When a copy reads its source: the host changes it in the middle. */
static uint32_t
bytes_seen(const char *words)
{
    uint32_t seen = 0;
    rig r;

    if (rig_open(&r, words)) {
        uint8_t *const host = rig_pinned(&r, 64 * 256, 1);
        uint8_t *const memory = rig_alloc(r.device, 64 * 256);
        berthi_stream *const other = rig_stream(r.device);

        for (int i = 0; i < 64; i++) {
            rig_to_device(r.device, memory + i * 256, host + i * 256, 100, NULL);
            rig_compute(r.device, 50, other);
            rig_sync(r.device, other); /* half of the copy is over */
            memset(host + i * 256, 2, 100);
            rig_sync(r.device, NULL);
            CHECK(memory[i * 256] == memory[i * 256 + 99]);
            seen += memory[i * 256] == 1;
        }
        r.device->table->stream_destroy(r.device, other);
        rig_unpinned(&r, host, 64 * 256);
        r.device->table->free(r.device, memory, 64 * 256);
    }
    rig_close(&r);
    return seen;
}

static void
test_early_reuse_shows(void)
{
    uint32_t seen;

    CHECK_EQ(bytes_seen(PLAIN ",touch=begin"), 64);
    CHECK_EQ(bytes_seen(PLAIN ",touch=end"), 0);
    seen = bytes_seen(PLAIN ",seed=5");
    CHECK(seen > 16 && seen < 48);
    CHECK_EQ(bytes_seen(PLAIN ",seed=5"), seen);
    CHECK_NE(bytes_seen(PLAIN ",seed=6") * 64 + bytes_seen(PLAIN ",seed=7"),
             seen * 65);
}

static void
test_jitter(void)
{
    uint64_t ends[2];
    rig r;

    for (int turn = 0; turn < 2; turn++) {
        T_REQUIRE(rig_open(&r, PLAIN ",jitter=20%,seed=3"));
        for (int i = 0; i < 100; i++)
            rig_compute(r.device, 1000, NULL);
        rig_sync(r.device, NULL);
        ends[turn] = rig_now(&r);
        rig_close(&r);
    }
    CHECK_EQ(ends[0], ends[1]);
    CHECK(ends[0] > 108 * KB && ends[0] < 112 * KB);
}

/* -------------------------------------------------------------------------- events */

/* Whether it has passed, without a failure. */
static bool
is_past(const rig *r, berthi_event *event)
{
    bool past = false;

    CHECK_EQ(r->device->table->query(r->device, event, &past, NULL), BERTH_OK);
    return past;
}

static void
test_events(void)
{
    berthi_event *event;
    berthi_stream *stream;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    event = rig_event(r.device);
    stream = rig_stream(r.device);
    CHECK(is_past(&r, event)); /* never recorded */
    rig_await(r.device, event);
    rig_wait(r.device, stream, event);
    CHECK_EQ(((berthi_sim_device *)r.device)->unrecorded_waits, 1);
    rig_record(r.device, event, NULL); /* nothing before it */
    CHECK(is_past(&r, event));
    rig_compute(r.device, 100, NULL);
    CHECK(is_past(&r, event)); /* it stands for what was before */
    rig_record(r.device, event, NULL);
    rig_wait(r.device, stream, event);
    rig_compute(r.device, 200, NULL);
    rig_record(r.device, event, NULL); /* anew: the wait is for the old place */
    rig_compute(r.device, 10, stream);
    rig_sync(r.device, stream);
    CHECK_EQ(rig_now(&r), 310); /* behind the second one, which was asked for first */
    CHECK(is_past(&r, event));
    rig_wait(r.device, stream, event); /* over: costs nothing */
    rig_compute(r.device, 1, stream);
    rig_record(r.device, event, stream);
    r.device->table->event_destroy(r.device, event); /* before it passes */
    r.device->table->stream_destroy(r.device, stream); /* waits */
    CHECK_EQ(rig_now(&r), 311);
    CHECK_EQ(((berthi_sim_device *)r.device)->unrecorded_waits, 1);
    r.device->table->stream_destroy(r.device, NULL);
    rig_close(&r);
}

/* Who asks again and again moves the clock. */
static void
test_queries_move_the_clock(void)
{
    berthi_event *event;
    int asked = 0;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN));
    event = rig_event(r.device);
    rig_compute(r.device, 100, NULL);
    rig_compute(r.device, 100, NULL);
    rig_record(r.device, event, NULL);
    while (!is_past(&r, event) && asked < 100)
        asked++;
    CHECK_EQ(asked, 3); /* both touch and end; the fourth is the answer */
    CHECK_EQ(rig_now(&r), 200);
    rig_compute(r.device, 100, NULL);
    for (int i = 0; i < 5; i++)
        CHECK(is_past(&r, event));
    CHECK_EQ(rig_now(&r), 200); /* the answer was there */
    r.device->table->event_destroy(r.device, event);
    rig_close(&r);
}

/* A stream that was destroyed is given out again; old places in it have passed. */
static void
test_streams_come_again(void)
{
    berthi_event *event;
    berthi_stream *streams[2];
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN "*2"));
    event = rig_event(r.device);
    streams[0] = rig_stream(r.device);
    rig_compute(r.device, 5, streams[0]);
    rig_record(r.device, event, streams[0]);
    r.device->table->stream_destroy(r.device, streams[0]);
    streams[1] = rig_stream(rig_at(&r, 1));
    CHECK(streams[1] != streams[0]); /* of another device */
    rig_at(&r, 1)->table->stream_destroy(rig_at(&r, 1), streams[1]);
    CHECK(rig_stream(r.device) == streams[0]);
    rig_compute(r.device, 5, streams[0]);
    CHECK(is_past(&r, event));
    CHECK_EQ(rig_now(&r), 5);
    r.device->table->event_destroy(r.device, event);
    r.device->table->stream_destroy(r.device, streams[0]);
    rig_close(&r);
}

/* One device's stream waits for another's. */
static void
test_events_between_devices(void)
{
    berthi_event *event;
    rig r;

    T_REQUIRE(rig_open(&r, PLAIN "*2"));
    event = rig_event(r.device);
    rig_compute(r.device, 100, NULL);
    rig_record(r.device, event, NULL);
    rig_wait(rig_at(&r, 1), NULL, event);
    rig_compute(rig_at(&r, 1), 30, NULL);
    rig_sync(rig_at(&r, 1), NULL);
    CHECK_EQ(rig_now(&r), 130);
    r.device->table->event_destroy(r.device, event);
    rig_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_copy_takes_its_time);
    T_RUN(test_copies_overlap_computing);
    T_RUN(test_roots_share_a_link);
    T_RUN(test_durations);
    T_RUN(test_operations_begin);
    T_RUN(test_operations_out_of_bounds);
    T_RUN(test_picks);
    T_RUN(test_early_reuse_shows);
    T_RUN(test_jitter);
    T_RUN(test_events);
    T_RUN(test_queries_move_the_clock);
    T_RUN(test_streams_come_again);
    T_RUN(test_events_between_devices);
    T_MAIN_END;
}
