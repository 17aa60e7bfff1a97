/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_cuda.c - copies and events by the CUDA runtime's calls, by a fake of it. */
#include <stdlib.h>
#include <string.h>

#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/t.h"

/* ---------------------------------------------------------------------------- copies */

/* What is pinned is read when its turn comes, what is not before the call returns. */
static void
test_copies(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .bytes = 1000 };
    berthi_stream *stream;
    uint8_t bytes[1000];
    uint8_t *memory;
    uint8_t *host;
    rig r;

    T_REQUIRE(late_open(&r));
    stream = rig_stream(r.device);
    memory = rig_alloc(r.device, 4096);
    host = rig_pinned(&r, page, 1);
    rig_to_device(r.device, memory, host, 1000, stream);
    CHECK_EQ(memory[0], 0xA5);
    memset(host, 2, 1000);
    rig_sync(r.device, stream);
    late_check_bytes(memory, 1000, 2);
    CHECK_EQ(memory[1000], 0xA5);
    copy.to = memory;
    copy.from = bytes;
    memset(bytes, 3, sizeof bytes);
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    memset(bytes, 4, sizeof bytes);
    late_check_bytes(memory, 1000, 3);
    copy = (berthi_copy){ .kind = BERTHI_COPY_WITHIN, .to = memory + 2000, .from = memory,
                          .bytes = 999 };
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(memory[2000], 0xA5); /* nobody has waited */
    CHECK_EQ(r.device->table->clear(r.device, memory + 2500, 100, stream, NULL), BERTH_OK);
    copy = (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .to = bytes, .from = memory + 2000,
                          .bytes = 1000 };
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    late_check_bytes(bytes, 500, 3);
    late_check_bytes(bytes + 500, 100, 0);
    late_check_bytes(bytes + 600, 399, 3);
    CHECK_EQ(bytes[999], 0xA5);
    rig_to_host(r.device, host, memory, 1000, NULL); /* the first stream */
    CHECK_EQ(host[0], 2);
    rig_sync(r.device, NULL);
    late_check_bytes(host, 1000, 3);
    copy.bytes = 0;
    copy.to = NULL;
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->clear(r.device, NULL, 0, stream, NULL), BERTH_OK);
    r.device->table->stream_destroy(r.device, stream);
    rig_unpinned(&r, host, page);
    r.device->table->free(r.device, memory, 4096);
    late_close(&r);
}

/* Somebody who asks a stream for more whenever the runtime is asked anything, so often. */
static struct {
    void *stream;
    uint32_t left;
} busy;

static void
do_nothing(void *user)
{
    (void)user;
}

static void
add_more(void)
{
    if (busy.stream == NULL || busy.left == 0)
        return;
    busy.left--;
    (void)fake_cuda_push(do_nothing, NULL, busy.stream);
}

static int
query_stream(void *stream)
{
    add_more();
    return fake_cuda_calls()->stream_query(stream);
}

static int
query_event(void *event)
{
    add_more();
    return fake_cuda_calls()->event_query(event);
}

/* Others go on asking the stream: what is not pinned waits for its own copy, and no more. */
static void
test_a_copy_among_others(void)
{
    const uint8_t bytes[1000] = { 7, 7 };
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .from = bytes, .bytes = 1000 };
    berthi_cuda_calls calls;
    berthi_stream *stream;
    rig r;

    fake_cuda_begin(&late_machine);
    calls = *fake_cuda_calls();
    calls.stream_query = query_stream;
    calls.event_query = query_event;
    T_REQUIRE(rig_open_cuda(&r, &calls, "cuda"));
    stream = rig_stream(r.device);
    copy.to = rig_alloc(r.device, 4096);
    busy.stream = stream;
    busy.left = 100;
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    CHECK_GT(busy.left, 50);
    busy.stream = NULL;
    CHECK_EQ(((uint8_t *)copy.to)[1], 7);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, copy.to, 4096);
    late_close(&r);
}

/* In the order of the stream of the one whose bytes they are; enabled at the first question. */
static void
test_copies_between_devices(void)
{
    berthi_copy copy = { .kind = BERTHI_COPY_TO_PEER, .bytes = 1000 };
    berthi_device *other;
    berthi_stream *stream;
    uint8_t *from;
    uint8_t *to;
    uint64_t called;
    rig r;

    T_REQUIRE(late_open(&r));
    other = rig_at(&r, 1);
    stream = rig_stream(r.device);
    from = rig_alloc(r.device, 4096);
    to = rig_alloc(other, 4096);
    CHECK(!r.device->table->reaches(r.device, r.device));
    CHECK(r.device->table->reaches(r.device, other));
    called = fake_cuda_called();
    CHECK(r.device->table->reaches(r.device, other));
    CHECK_EQ(fake_cuda_called(), called);
    CHECK(other->table->reaches(other, r.device)); /* the other way is another question */
    CHECK_GT(fake_cuda_called(), called);
    copy.peer = other;
    copy.to = to + 96;
    copy.from = from + 1;
    CHECK_EQ(r.device->table->clear(r.device, from, 900, stream, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(to[96], 0xA5); /* nobody has waited */
    rig_sync(r.device, stream);
    late_check_bytes(to, 96, 0xA5);
    late_check_bytes(to + 96, 899, 0);
    late_check_bytes(to + 96 + 899, 4096 - 96 - 899, 0xA5);
    CHECK_EQ(fake_cuda_read().peer_copies, 1);
    copy = (berthi_copy){ .kind = BERTHI_COPY_TO_PEER, .to = from, .from = to, .bytes = 96,
                          .peer = r.device };
    CHECK_EQ(other->table->copy(other, &copy, NULL, NULL), BERTH_OK);
    rig_sync(other, NULL);
    late_check_bytes(from, 96, 0xA5);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, from, 4096);
    other->table->free(other, to, 4096);
    late_close(&r);
}

/* Not reached: the machine cannot, or a call has failed; enabled by somebody else: reached. */
static void
test_out_of_reach(void)
{
    static const struct {
        uint64_t nth; /* the question, enabling */
        int code;
        bool is_reached;
    } cases[] = { { 0, 999, false }, { 1, 999, false }, { 1, BERTHI_CUDA_PEER_ENABLED, true } };
    fake_cuda_machine apart = late_machine;
    rig r;

    apart.is_apart = true;
    fake_cuda_begin(&apart);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    CHECK(!r.device->table->reaches(r.device, rig_at(&r, 1)));
    late_close(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        T_REQUIRE(late_open(&r));
        fake_cuda_fail_within(cases[i].nth, cases[i].code);
        CHECK_EQ(r.device->table->reaches(r.device, rig_at(&r, 1)), cases[i].is_reached);
        CHECK_EQ(fake_cuda_failures(), 1);
        fake_cuda_disarm();
        CHECK_EQ(r.device->table->reaches(r.device, rig_at(&r, 1)), cases[i].is_reached);
        late_close(&r);
    }
}

/* A copy that fails half way is waited for all the same, and its failure is the one told. */
static void
test_failed_copy_is_waited_for(void)
{
    const berthi_copy beyond = { .kind = BERTHI_COPY_TO_DEVICE, .bytes = 8 };
    berthi_stream *stream;
    uint8_t *memory;
    berth_error error;
    rig r;

    T_REQUIRE(late_open(&r));
    stream = rig_stream(r.device);
    memory = rig_alloc(r.device, 4096);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(r.device->table->clear(r.device, memory, 4096, stream, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().under_way, 5);
    fake_cuda_fail_within(0, 1);
    CHECK_EQ(r.device->table->copy(r.device, &beyond, stream, &error), BERTH_ENODEV);
    CHECK_STR(error.message, "cuda:0: a copy: an error of the fake runtime");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, memory, 4096);
    late_close(&r);
}

/* Of a copy that is asked for in two pieces the second one fails: the first is not left behind. */
static void
test_failed_piece_is_waited_for(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true, .bytes = 2 * page };
    berthi_stream *stream;
    uint8_t *memory;
    uint8_t *host;
    berth_error error;
    rig r;

    T_REQUIRE(late_open(&r));
    stream = rig_stream(r.device);
    memory = rig_alloc(r.device, 2 * page);
    host = berthi_memory_aligned(r.context, BERTHI_PURPOSE_RING, 2 * page, page);
    T_REQUIRE(host != NULL);
    memset(host, 7, (size_t)(2 * page));
    for (uint32_t i = 0; i < 2; i++)
        CHECK_EQ(r.device->table->pin(r.device, host + i * page, page, NULL), BERTH_OK);
    copy.to = memory;
    copy.from = host;
    fake_cuda_fail_within(1, 1);
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, &error), BERTH_ENODEV);
    CHECK_STR(error.message, "cuda:0: a copy: an error of the fake runtime");
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    late_check_bytes(memory, page, 7);
    fake_cuda_disarm();
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, &error), BERTH_OK);
    CHECK_EQ(fake_cuda_read().under_way, 2);
    rig_sync(r.device, stream);
    late_check_bytes(memory, 2 * page, 7);
    for (uint32_t i = 0; i < 2; i++)
        r.device->table->unpin(r.device, host + i * page, page);
    berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, host, 2 * page, page);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, memory, 2 * page);
    late_close(&r);
}

/* ---------------------------------------------------------------- streams and events */

static void
test_events(void)
{
    berthi_stream *streams[2];
    berthi_event *event;
    uint8_t *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    memory = rig_alloc(r.device, 256);
    event = rig_event(r.device);
    for (int i = 0; i < 2; i++)
        streams[i] = rig_stream(r.device);
    CHECK(late_is_past(r.device, event)); /* never recorded */
    rig_await(r.device, event);
    rig_wait(r.device, streams[1], event);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(r.device->table->clear(r.device, memory, 16, streams[0], NULL), BERTH_OK);
    rig_record(r.device, event, streams[0]);
    CHECK_EQ(r.device->table->await(r.device, event, 0, NULL), BERTH_PENDING);
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK(!late_is_past(r.device, event));
    rig_wait(r.device, streams[1], event);
    CHECK_EQ(r.device->table->clear(r.device, memory + 16, 16, streams[1], NULL), BERTH_OK);
    rig_sync(r.device, streams[1]);
    late_check_bytes(memory, 32, 0);
    CHECK(late_is_past(r.device, event));
    /* Destroyed before it has passed, while a stream waits for it: that goes on. */
    CHECK_EQ(r.device->table->clear(r.device, memory + 32, 16, streams[0], NULL), BERTH_OK);
    rig_record(r.device, event, streams[0]);
    rig_wait(r.device, streams[1], event);
    r.device->table->event_destroy(r.device, event);
    r.device->table->event_destroy(r.device, NULL);
    CHECK_EQ(r.device->table->clear(r.device, memory + 48, 16, streams[1], NULL), BERTH_OK);
    r.device->table->stream_destroy(r.device, streams[1]); /* waits */
    late_check_bytes(memory, 64, 0);
    r.device->table->stream_destroy(r.device, streams[0]);
    r.device->table->stream_destroy(r.device, NULL);
    r.device->table->free(r.device, memory, 256);
    late_close(&r);
}

static void
test_events_between_devices(void)
{
    berthi_stream *stream;
    berthi_event *event;
    uint8_t *memory[2];
    rig r;

    T_REQUIRE(late_open(&r));
    for (uint32_t i = 0; i < 2; i++)
        memory[i] = rig_alloc(rig_at(&r, i), 256);
    stream = rig_stream(rig_at(&r, 1));
    event = rig_event(r.device);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(r.device->table->clear(r.device, memory[0], 256, NULL, NULL), BERTH_OK);
    rig_record(r.device, event, NULL);
    rig_wait(rig_at(&r, 1), stream, event);
    CHECK_EQ(rig_at(&r, 1)->table->clear(rig_at(&r, 1), memory[1], 256, stream, NULL),
             BERTH_OK);
    rig_sync(rig_at(&r, 1), stream);
    late_check_bytes(memory[0], 256, 0);
    late_check_bytes(memory[1], 256, 0);
    CHECK(late_is_past(rig_at(&r, 1), event)); /* any of them may ask */
    r.device->table->event_destroy(r.device, event);
    rig_at(&r, 1)->table->stream_destroy(rig_at(&r, 1), stream);
    for (uint32_t i = 0; i < 2; i++)
        rig_at(&r, i)->table->free(rig_at(&r, i), memory[i], 256);
    late_close(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_copies);
    T_RUN(test_a_copy_among_others);
    T_RUN(test_copies_between_devices);
    T_RUN(test_out_of_reach);
    T_RUN(test_failed_copy_is_waited_for);
    T_RUN(test_failed_piece_is_waited_for);
    T_RUN(test_events);
    T_RUN(test_events_between_devices);
    T_MAIN_END;
}
