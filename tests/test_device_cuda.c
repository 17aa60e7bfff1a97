/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_cuda.c - GPUs by the CUDA runtime's calls, with a fake in its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"

#define KB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)

static const fake_cuda_machine late = { .count = 2, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 64 * MIB, .is_late = true };

/* A rig of both GPUs. */
static bool
open_late(rig *r)
{
    fake_cuda_begin(&late);
    return rig_open_cuda(r, fake_cuda_calls(), "cuda");
}

/* Everything has been given back, and nothing was there twice or not at all. */
static void
close_late(rig *r)
{
    rig_close(r);
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK_EQ(fake_cuda_current(), 0);
    fake_cuda_end();
}

static void
check_bytes(const uint8_t *memory, uint64_t bytes, uint8_t expected)
{
    uint64_t same = 0;

    for (uint64_t i = 0; i < bytes; i++)
        same += memory[i] == expected;
    CHECK_EQ(same, bytes);
}

/* ---------------------------------------------------------------------------- memory */

static void
test_memory(void)
{
    void *none = &none;
    void *slab;
    void *rest;
    berth_error error;
    rig r;

    T_REQUIRE(open_late(&r));
    slab = rig_alloc(r.device, 40 * MIB);
    berthi_error_clear(&error);
    CHECK_EQ(r.device->table->alloc(r.device, 24 * MIB + 1, &none, &error), BERTH_ENOFIT);
    CHECK(none == NULL);
    CHECK_EQ(error.reason, BERTH_REASON_NO_FIT);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL | BERTH_HAS_BYTES);
    CHECK_EQ(error.expected, 24 * MIB + 1);
    CHECK_EQ(error.actual, 24 * MIB);
    CHECK_STR(error.message, "cuda:0: 25165825 bytes wanted, 25165824 free");
    CHECK_EQ(fake_cuda_error_left(), 0);
    rest = rig_alloc(r.device, 24 * MIB);
    CHECK_EQ(r.device->table->alloc(r.device, 0, &none, NULL), BERTH_ENOFIT);
    r.device->table->free(r.device, rest, 24 * MIB);
    rest = rig_alloc(r.device, 0);
    CHECK(rest != NULL);
    r.device->table->free(r.device, rest, 0);
    r.device->table->free(r.device, slab, 40 * MIB);
    r.device->table->free(r.device, NULL, 7);
    CHECK_EQ(r.device->table->alloc(r.device, UINT64_MAX, &none, &error), BERTH_ENOFIT);
    CHECK_EQ(error.actual, 64 * MIB);
    /* How much is free is not known either. */
    fake_cuda_fail_within(1, 999);
    CHECK_EQ(r.device->table->alloc(r.device, 65 * MIB, &none, &error), BERTH_ENOFIT);
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_BYTES);
    CHECK_STR(error.message, "cuda:0: 68157440 bytes wanted, which it does not have");
    close_late(&r);
}

/* One registration for both, which ends with the second; pages are there before it. */
static void
test_pinned_for_all(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berthi_device *other;
    berth_error error;
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    other = rig_at(&r, 1);
    memory = rig_pinned(&r, 4 * page, 1);
    CHECK_EQ(fake_cuda_read().pins, 1);
    r.device->table->unpin(r.device, memory, 4 * page);
    CHECK(fake_cuda_is_pinned(memory));
    r.device->table->unpin(r.device, memory, 3 * page); /* not what was pinned */
    CHECK(fake_cuda_is_pinned(memory));
    other->table->unpin(other, memory, 4 * page);
    CHECK(!fake_cuda_is_pinned(memory));
    other->table->unpin(other, memory, 4 * page);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    CHECK_EQ(r.device->table->pin(r.device, memory + page, 2 * page, NULL), BERTH_OK);
    for (int i = 0; i < 4; i++) {
        static const uint64_t begins[] = { 0, 0, 2, 1 };
        static const uint64_t lengths[] = { 4, 2, 2, 1 };

        CHECK_EQ(other->table->pin(other, memory + begins[i] * page, lengths[i] * page,
                                   &error),
                 BERTH_EINTERNAL);
        CHECK_CONTAINS(error.message, "overlaps memory that is pinned");
    }
    CHECK_EQ(other->table->pin(other, memory + 3 * page, page, NULL), BERTH_OK);
    CHECK_EQ(other->table->pin(other, memory + 1, page, &error), BERTH_EINTERNAL);
    CHECK_CONTAINS(error.message, "does not begin with a page");
    CHECK_EQ(other->table->pin(other, memory, 0, NULL), BERTH_EINTERNAL);
    CHECK_EQ(fake_cuda_read().pins, 2);
    other->table->unpin(other, memory + 3 * page, page);
    r.device->table->unpin(r.device, memory + page, 2 * page);
    rig_unpinned(&r, memory, 4 * page);
    close_late(&r);
}

static void
test_pinning_refused(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    berth_error error;
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    memory = berthi_memory_aligned(r.context, BERTHI_PURPOSE_RING, page, page);
    CHECK_EQ(fake_cuda_calls()->pin(memory, page), 0); /* somebody else has */
    CHECK_EQ(r.device->table->pin(r.device, memory, page, &error), BERTH_ENOMEM);
    CHECK_CONTAINS(error.message, "is registered by somebody else in this process");
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK_EQ(fake_cuda_calls()->unpin(memory), 0);
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    CHECK_EQ(r.device->table->pin(r.device, memory, page, &error), BERTH_ENOMEM);
    berthi_fault_disarm();
    CHECK_CONTAINS(error.message, "is not there in full");
    fake_cuda_fail_within(0, BERTHI_CUDA_NO_MEMORY);
    CHECK_EQ(r.device->table->pin(r.device, memory, page, &error), BERTH_ENOMEM);
    CHECK_STR(error.message, "cuda:0: pinning memory: out of memory");
    CHECK_EQ(fake_cuda_read().pins, 0);
    berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, memory, page, page);
    close_late(&r);
}

/* A driver makes pages that are nowhere yet one after the other: they are there before. */
static void
test_pins_are_touched(void)
{
    const size_t page = berthi_sys_page_bytes();
    const size_t bytes = 100 * page;
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    memory = berthi_sys_map(bytes);
    T_REQUIRE(memory != NULL);
    CHECK_EQ(r.device->table->pin(r.device, memory, bytes, NULL), BERTH_OK);
    r.device->table->unpin(r.device, memory, bytes);
    CHECK_EQ(fake_cuda_read().untouched, 0);
    berthi_sys_unmap(memory, bytes);
    memory = berthi_sys_map(bytes); /* the fake sees what nobody has touched */
    T_REQUIRE(memory != NULL);
    CHECK_EQ(fake_cuda_calls()->pin(memory, bytes), 0);
    CHECK_EQ(fake_cuda_calls()->unpin(memory), 0);
    if (fake_cuda_read().untouched != 0)
        CHECK_EQ(fake_cuda_read().untouched, 100);
    else
        T_NOTE("this kernel does not tell which pages are there");
    berthi_sys_unmap(memory, bytes);
    rig_close(&r);
    fake_cuda_end();
}

/* More than the list holds at first. */
static void
test_many_pins(void)
{
    const uint64_t page = berthi_sys_page_bytes();
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    memory = berthi_memory_aligned(r.context, BERTHI_PURPOSE_RING, 40 * page, page);
    for (uint64_t i = 0; i < 40; i++)
        CHECK_EQ(r.device->table->pin(r.device, memory + i * page, page, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().pins, 40);
    for (uint64_t i = 0; i < 40; i++) {
        const uint64_t its = i * 7 % 40;

        CHECK(fake_cuda_is_pinned(memory + its * page));
        r.device->table->unpin(r.device, memory + its * page, page);
        CHECK(!fake_cuda_is_pinned(memory + its * page));
    }
    berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, memory, 40 * page, page);
    close_late(&r);
}

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

    T_REQUIRE(open_late(&r));
    stream = rig_stream(r.device);
    memory = rig_alloc(r.device, 4096);
    host = rig_pinned(&r, page, 1);
    rig_to_device(r.device, memory, host, 1000, stream);
    CHECK_EQ(memory[0], 0xA5);
    memset(host, 2, 1000);
    rig_sync(r.device, stream);
    check_bytes(memory, 1000, 2);
    CHECK_EQ(memory[1000], 0xA5);
    copy.to = memory;
    copy.from = bytes;
    memset(bytes, 3, sizeof bytes);
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    memset(bytes, 4, sizeof bytes);
    check_bytes(memory, 1000, 3);
    copy = (berthi_copy){ .kind = BERTHI_COPY_WITHIN, .to = memory + 2000, .from = memory,
                          .bytes = 999 };
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(memory[2000], 0xA5); /* nobody has waited */
    CHECK_EQ(r.device->table->clear(r.device, memory + 2500, 100, stream, NULL), BERTH_OK);
    copy = (berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .to = bytes, .from = memory + 2000,
                          .bytes = 1000 };
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    check_bytes(bytes, 500, 3);
    check_bytes(bytes + 500, 100, 0);
    check_bytes(bytes + 600, 399, 3);
    CHECK_EQ(bytes[999], 0xA5);
    rig_to_host(r.device, host, memory, 1000, NULL); /* the first stream */
    CHECK_EQ(host[0], 2);
    rig_sync(r.device, NULL);
    check_bytes(host, 1000, 3);
    copy.bytes = 0;
    copy.to = NULL;
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, NULL), BERTH_OK);
    CHECK_EQ(r.device->table->clear(r.device, NULL, 0, stream, NULL), BERTH_OK);
    r.device->table->stream_destroy(r.device, stream);
    rig_unpinned(&r, host, page);
    r.device->table->free(r.device, memory, 4096);
    close_late(&r);
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

    fake_cuda_begin(&late);
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
    close_late(&r);
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

    T_REQUIRE(open_late(&r));
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
    check_bytes(to, 96, 0xA5);
    check_bytes(to + 96, 899, 0);
    check_bytes(to + 96 + 899, 4096 - 96 - 899, 0xA5);
    CHECK_EQ(fake_cuda_read().peer_copies, 1);
    copy = (berthi_copy){ .kind = BERTHI_COPY_TO_PEER, .to = from, .from = to, .bytes = 96,
                          .peer = r.device };
    CHECK_EQ(other->table->copy(other, &copy, NULL, NULL), BERTH_OK);
    rig_sync(other, NULL);
    check_bytes(from, 96, 0xA5);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, from, 4096);
    other->table->free(other, to, 4096);
    close_late(&r);
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
    fake_cuda_machine apart = late;
    rig r;

    apart.is_apart = true;
    fake_cuda_begin(&apart);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    CHECK(!r.device->table->reaches(r.device, rig_at(&r, 1)));
    close_late(&r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        T_REQUIRE(open_late(&r));
        fake_cuda_fail_within(cases[i].nth, cases[i].code);
        CHECK_EQ(r.device->table->reaches(r.device, rig_at(&r, 1)), cases[i].is_reached);
        CHECK_EQ(fake_cuda_failures(), 1);
        fake_cuda_disarm();
        CHECK_EQ(r.device->table->reaches(r.device, rig_at(&r, 1)), cases[i].is_reached);
        close_late(&r);
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

    T_REQUIRE(open_late(&r));
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
    close_late(&r);
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

    T_REQUIRE(open_late(&r));
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
    check_bytes(memory, page, 7);
    fake_cuda_disarm();
    CHECK_EQ(r.device->table->copy(r.device, &copy, stream, &error), BERTH_OK);
    CHECK_EQ(fake_cuda_read().under_way, 2);
    rig_sync(r.device, stream);
    check_bytes(memory, 2 * page, 7);
    for (uint32_t i = 0; i < 2; i++)
        r.device->table->unpin(r.device, host + i * page, page);
    berthi_memory_free_aligned(r.context, BERTHI_PURPOSE_RING, host, 2 * page, page);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, memory, 2 * page);
    close_late(&r);
}

static void
test_digests(void)
{
    const uint64_t bytes = 2 * MIB + 12345;
    uint8_t *const from = malloc(bytes);
    berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .from = from, .bytes = bytes };
    berthi_stream *stream;
    uint32_t crc = 1;
    uint8_t *memory;
    rig r;

    T_REQUIRE(from != NULL);
    T_REQUIRE(open_late(&r));
    for (uint64_t i = 0; i < bytes; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 13);
    stream = rig_stream(rig_at(&r, 1));
    memory = rig_alloc(rig_at(&r, 1), bytes);
    copy.to = memory;
    CHECK_EQ(rig_at(&r, 1)->table->copy(rig_at(&r, 1), &copy, stream, NULL), BERTH_OK);
    memset(from, 0, 100);
    /* Also what is under way in any stream. */
    CHECK_EQ(rig_at(&r, 1)->table->clear(rig_at(&r, 1), memory, 100, stream, NULL), BERTH_OK);
    CHECK_EQ(rig_at(&r, 1)->table->digest(rig_at(&r, 1), memory, bytes, &crc, NULL),
             BERTH_OK);
    CHECK_EQ(crc, berthi_digest_crc32(0, from, bytes));
    CHECK_EQ(rig_at(&r, 1)->table->digest(rig_at(&r, 1), memory, 0, &crc, NULL), BERTH_OK);
    CHECK_EQ(crc, 0);
    rig_at(&r, 1)->table->stream_destroy(rig_at(&r, 1), stream);
    rig_at(&r, 1)->table->free(rig_at(&r, 1), memory, bytes);
    close_late(&r);
    free(from);
}

/* ---------------------------------------------------------------- streams and events */

static bool
is_past(berthi_device *device, berthi_event *event)
{
    bool past = false;

    CHECK_EQ(device->table->query(device, event, &past, NULL), BERTH_OK);
    return past;
}

static void
test_events(void)
{
    berthi_stream *streams[2];
    berthi_event *event;
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    memory = rig_alloc(r.device, 256);
    event = rig_event(r.device);
    for (int i = 0; i < 2; i++)
        streams[i] = rig_stream(r.device);
    CHECK(is_past(r.device, event)); /* never recorded */
    rig_await(r.device, event);
    rig_wait(r.device, streams[1], event);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(r.device->table->clear(r.device, memory, 16, streams[0], NULL), BERTH_OK);
    rig_record(r.device, event, streams[0]);
    CHECK_EQ(r.device->table->await(r.device, event, 0, NULL), BERTH_PENDING);
    CHECK_EQ(fake_cuda_error_left(), 0);
    CHECK(!is_past(r.device, event));
    rig_wait(r.device, streams[1], event);
    CHECK_EQ(r.device->table->clear(r.device, memory + 16, 16, streams[1], NULL), BERTH_OK);
    rig_sync(r.device, streams[1]);
    check_bytes(memory, 32, 0);
    CHECK(is_past(r.device, event));
    /* Destroyed before it has passed, while a stream waits for it: that goes on. */
    CHECK_EQ(r.device->table->clear(r.device, memory + 32, 16, streams[0], NULL), BERTH_OK);
    rig_record(r.device, event, streams[0]);
    rig_wait(r.device, streams[1], event);
    r.device->table->event_destroy(r.device, event);
    r.device->table->event_destroy(r.device, NULL);
    CHECK_EQ(r.device->table->clear(r.device, memory + 48, 16, streams[1], NULL), BERTH_OK);
    r.device->table->stream_destroy(r.device, streams[1]); /* waits */
    check_bytes(memory, 64, 0);
    r.device->table->stream_destroy(r.device, streams[0]);
    r.device->table->stream_destroy(r.device, NULL);
    r.device->table->free(r.device, memory, 256);
    close_late(&r);
}

static void
test_events_between_devices(void)
{
    berthi_stream *stream;
    berthi_event *event;
    uint8_t *memory[2];
    rig r;

    T_REQUIRE(open_late(&r));
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
    check_bytes(memory[0], 256, 0);
    check_bytes(memory[1], 256, 0);
    CHECK(is_past(rig_at(&r, 1), event)); /* any of them may ask */
    r.device->table->event_destroy(r.device, event);
    rig_at(&r, 1)->table->stream_destroy(rig_at(&r, 1), stream);
    for (uint32_t i = 0; i < 2; i++)
        rig_at(&r, i)->table->free(rig_at(&r, i), memory[i], 256);
    close_late(&r);
}

/* One that berth has not made is used as it is, and left alone. */
static void
test_callers_stream(void)
{
    berthi_stream *stream;
    uint8_t *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    stream = fake_cuda_stream();
    memory = rig_alloc(r.device, 256);
    CHECK_EQ(r.device->table->clear(r.device, memory, 256, stream, NULL), BERTH_OK);
    r.device->table->stream_destroy(r.device, stream);
    rig_sync(r.device, stream);
    check_bytes(memory, 256, 0);
    r.device->table->free(r.device, memory, 256);
    close_late(&r);
}

static void
add_letter(void *user)
{
    char *const text = user;

    text[strlen(text) + 1] = '\0';
    text[strlen(text)] = (char)('a' + strlen(text));
}

static void
test_calls(void)
{
    static char text[8];
    berthi_stream *stream;
    uint64_t before;
    rig r;

    T_REQUIRE(open_late(&r));
    CHECK(r.device->table->has_operation(r.device, BERTHI_OPERATION_CALL));
    stream = rig_stream(r.device);
    text[0] = '\0';
    rig_call(r.device, add_letter, text, 0, stream);
    rig_call(r.device, add_letter, text, 0, stream);
    CHECK_STR(text, "");
    r.device->table->stream_destroy(r.device, stream);
    CHECK_STR(text, "ab");
    before = berthi_sys_now_ns();
    CHECK_GE(rig_now(&r), before); /* its clock is the host's */
    close_late(&r);
}

static int
count_two(int *out)
{
    *out = 2;
    return BERTHI_CUDA_OK;
}

/* Graphs capture such launches where both the runtime and the driver are of CUDA 12.3 or later. */
static void
test_overlapping(void)
{
    static const struct {
        int driver;
        int32_t runtime;
        bool does;
    } cases[] = { { 12020, 12080, false }, { 12030, 12080, true }, { 13000, 12020, false } };

    if (!simt_has_fibers())
        T_SKIP("no fibers here to run kernels with");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t word = 7;
        fake_cuda_machine machine = late;
        berthi_cuda_calls calls = *fake_cuda_calls();
        uint8_t *memory;
        rig r;

        machine.driver = cases[i].driver;
        calls.runtime_version = cases[i].runtime;
        calls.device_count = count_two;
        fake_cuda_begin(&machine);
        T_REQUIRE(rig_open_cuda(&r, &calls, "cuda:0"));
        memory = rig_alloc(r.device, 256);
        CHECK_EQ(r.device->table->write(r.device, memory, &word, sizeof word, NULL, NULL),
                 BERTH_OK);
        rig_sync(r.device, NULL);
        CHECK_EQ(memory[0], 7);
        CHECK_EQ(fake_cuda_read().overlapping, cases[i].does);
        r.device->table->free(r.device, memory, 256);
        close_late(&r);
    }
}

/* ----------------------------------------------------------------- the caller's things */

/* Every call, on either device; a digest waits for all of it, which no capture bears. */
static void
call_all(const rig *r, berthi_device *device, bool has_digest)
{
    const uint64_t page = berthi_sys_page_bytes();
    const berthi_device_table *const t = device->table;
    uint8_t *const host = berthi_memory_aligned(r->context, BERTHI_PURPOSE_RING, page, page);
    uint8_t *const memory = rig_alloc(device, 4096);
    berthi_stream *const stream = rig_stream(device);
    berthi_event *const event = rig_event(device);
    berthi_device_properties p;
    uint32_t crc;

    memset(host, 1, page);
    CHECK_EQ(t->pin(device, host, page, NULL), BERTH_OK);
    t->describe(device, &p);
    rig_to_device(device, memory, host, 100, stream);
    CHECK_EQ(t->clear(device, memory, 8, stream, NULL), BERTH_OK);
    rig_record(device, event, stream);
    rig_wait(device, NULL, event);
    CHECK_EQ(t->copy(device,
                     &(berthi_copy){ .kind = BERTHI_COPY_TO_HOST, .to = host,
                                     .from = memory, .bytes = 100 },
                     NULL, NULL),
             BERTH_OK);
    CHECK_EQ(host[7] + host[8], 1);
    CHECK(is_past(device, event));
    rig_await(device, event);
    if (has_digest)
        CHECK_EQ(t->digest(device, memory, 100, &crc, NULL), BERTH_OK);
    t->event_destroy(device, event);
    t->stream_destroy(device, stream);
    t->unpin(device, host, page);
    t->free(device, memory, 4096);
    berthi_memory_free_aligned(r->context, BERTHI_PURPOSE_RING, host, page, page);
}

/* The current device is what it was, and a failure of the caller's own is still there. */
static void
test_current_device_is_left(void)
{
    fake_cuda_machine three = late;
    rig r;

    three.count = 3;
    three.is_late = false; /* nothing is NOT_READY */
    fake_cuda_begin(&three);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    for (int current = 0; current < 3; current++)
        for (uint32_t i = 0; i < 3; i++) {
            const uint64_t before = fake_cuda_read().switches;

            fake_cuda_make_current(current);
            fake_cuda_leave_error(17);
            call_all(&r, rig_at(&r, i), true);
            CHECK_EQ(fake_cuda_current(), current);
            CHECK_EQ(fake_cuda_error_left(), 17);
            CHECK_EQ(fake_cuda_read().switches == before, i == (uint32_t)current);
        }
    fake_cuda_make_current(0);
    fake_cuda_leave_error(0);
    close_late(&r);
}

/* One that the caller has made of a GPU is not where berth's things are. */
static void
test_callers_context_is_left(void)
{
    rig r;

    T_REQUIRE(open_late(&r));
    for (int current = 0; current < 2; current++)
        for (uint32_t i = 0; i < 2; i++) {
            fake_cuda_make_other_current(current);
            call_all(&r, rig_at(&r, i), true);
            CHECK(fake_cuda_has_other_current());
            CHECK_EQ(fake_cuda_current(), current);
        }
    fake_cuda_make_current(0);
    close_late(&r);
}

/* A thread that has never chosen a GPU has none afterwards, and GPU 0 no context for nothing. */
static void
test_none_is_left(void)
{
    fake_cuda_machine three = late;
    rig r;

    three.count = 3;
    fake_cuda_begin(&three);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:2;cuda:1"));
    for (uint32_t i = 0; i < 2; i++) {
        call_all(&r, rig_at(&r, i), true);
        CHECK(!fake_cuda_has_current());
        CHECK_EQ(fake_cuda_current(), 0);
    }
    CHECK(fake_cuda_read().has_context[2]);
    CHECK(!fake_cuda_read().has_context[0]);
    close_late(&r);
}

/* Nor is one begun on a GPU that nothing was asked of, for it to be closed. */
static void
test_none_is_begun_to_close(void)
{
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    fake_cuda_make_none_current();
    r.device->table->free(r.device, rig_alloc(r.device, MIB), MIB);
    CHECK(fake_cuda_read().has_context[0]);
    close_late(&r);
    CHECK(!fake_cuda_read().has_context[1]);
}

/* What other streams are asked for is no part of what one captures, and does not spoil it. */
static void
test_while_a_stream_captures(void)
{
    berthi_stream *captured;
    rig r;

    T_REQUIRE(open_late(&r));
    captured = rig_stream(r.device);
    fake_cuda_begin_capture(captured);
    for (uint32_t i = 0; i < 2; i++)
        call_all(&r, rig_at(&r, i), false);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    fake_cuda_end_capture(captured);
    r.device->table->stream_destroy(r.device, captured);
    close_late(&r);
}

static bool
find_no_contexts(berthi_cuda_contexts *out)
{
    (void)out;
    return false;
}

/* In exclusive mode, and another process has it. */
static int
set_device_but_first(int device)
{
    return device != 0 ? fake_cuda_calls()->set_device(device) : 46;
}

static void
count_line(void *user, int32_t level, const char *line)
{
    CHECK_EQ(level, BERTH_LOG_WARNING);
    CHECK_CONTAINS(line, "cuda:0, this thread's current device, could not be made so again: ");
    ++*(uint32_t *)user;
}

/* An old driver: the device is put back, and where it cannot be that is said once. */
static void
test_current_device_is_lost(void)
{
    berthi_cuda_calls calls = *fake_cuda_calls();
    uint32_t warnings = 0;
    berth_context_options options;
    rig r = { .context = NULL };

    fake_cuda_begin(&late);
    calls.find_contexts = find_no_contexts;
    calls.set_device = set_device_but_first;
    berth_context_options_init(&options);
    options.log = count_line;
    options.log_user = &warnings;
    T_REQUIRE(berth_context_create(&options, &r.context, NULL) == BERTH_OK);
    T_REQUIRE(berthi_devices_open_cuda(r.context, &calls, "cuda:1", &r.devices, NULL) == BERTH_OK);
    r.device = rig_at(&r, 0);
    for (int i = 0; i < 3; i++) {
        fake_cuda_make_none_current();
        r.device->table->free(r.device, rig_alloc(r.device, 256), 256);
        CHECK_EQ(fake_cuda_current(), 1);
        CHECK_EQ(warnings, 1);
    }
    calls.set_device = fake_cuda_calls()->set_device; /* it is to be had again */
    fake_cuda_make_none_current();
    close_late(&r);
    CHECK_EQ(warnings, 1);
}

/* What this machine's driver has, if it has one. */
static void
test_real_contexts(void)
{
    berthi_cuda_contexts contexts;

    if (!berthi_cuda_find_contexts(&contexts)) {
        CHECK(contexts.current == NULL && contexts.retain == NULL);
        T_SKIP("no driver on this machine");
    }
    CHECK(contexts.current != NULL && contexts.make_current != NULL);
    CHECK(contexts.find_device != NULL && contexts.retain != NULL);
    for (uint64_t nth = 0; nth < 5; nth++) {
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK(!berthi_cuda_find_contexts(&contexts));
        berthi_fault_disarm();
        CHECK(contexts.current == NULL && contexts.retain == NULL);
    }
}

static void
test_real_tiles(void)
{
    berthi_cuda_tiles *tiles;

    if (!berthi_cuda_find_tiles(&tiles)) {
        CHECK(tiles == NULL);
        T_SKIP("no driver on this machine");
    }
    CHECK(tiles != NULL);
    for (uint64_t nth = 0; nth < 2; nth++) {
        berthi_fault_arm(BERTHI_FAULT_SYSTEM, nth, false);
        CHECK(!berthi_cuda_find_tiles(&tiles));
        berthi_fault_disarm();
        CHECK(tiles == NULL);
    }
}

/* ------------------------------------------------------------------------ operations */

#define ROWS 37u
#define COLUMNS 129u
#define COUNT (ROWS * COLUMNS)
#define BLOCKS ((COUNT + 63) / 64)

/* Where everything lies: in the GPU's memory, and in the host's. */
typedef struct place {
    _Alignas(256) float values[COUNT];
    _Alignas(256) uint8_t codes[COUNT];
    _Alignas(256) float maxima[BLOCKS > ROWS ? BLOCKS : ROWS];
    _Alignas(256) uint8_t second[BLOCKS];
    _Alignas(256) float absmax2[BLOCKS / 256 + 1];
    _Alignas(256) float offset;
    _Alignas(256) float scratch[8192];
} place;

static berthi_request
request_of(place *p, int32_t operation)
{
    berthi_request what = { .operation = operation };

    if (operation == BERTHI_OPERATION_ENCODE_ROWS)
        what.arguments.rows = (berthi_rows_arguments){
            .values = p->values, .dtype = BERTH_F32, .rows = ROWS, .columns = COLUMNS,
            .codes = (int8_t *)p->codes, .row_maximum = p->maxima };
    else if (operation == BERTHI_OPERATION_ENCODE_DOUBLE)
        what.arguments.offset = (berthi_offset_arguments){
            .absmax = p->maxima, .count = BLOCKS, .codes = p->second,
            .absmax2 = p->absmax2, .offset = &p->offset, .scratch = p->scratch };
    else
        what.arguments.encode = (berthi_encode_arguments){
            .values = p->values, .dtype = BERTH_F32, .block_size = 64, .count = COUNT,
            .codes = p->codes, .absmax = p->maxima };
    return what;
}

/* The same bytes as the reference loops on the host. */
static void
test_operations(void)
{
    static const int32_t firsts[] = { BERTHI_OPERATION_ENCODE_NF4,
                                      BERTHI_OPERATION_ENCODE_FP4,
                                      BERTHI_OPERATION_ENCODE_ROWS };
    static place host;
    uint32_t state = 1;
    place *memory;
    rig r;

    if (!simt_has_fibers())
        T_SKIP("no fibers on this machine");
    CHECK_LE(berthi_offset_scratch(BLOCKS), sizeof host.scratch / sizeof *host.scratch);
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
        T_REQUIRE(open_late(&r));
        memory = rig_alloc(r.device, sizeof *memory);
        memset(&host, 0, sizeof host);
        for (uint32_t i = 0; i < COUNT; i++) {
            state = state * 1664525u + 1013904223u;
            host.values[i] = ((float)(state >> 8) / 16777216.0f - 0.5f) * 4.0f;
        }
        *memory = host;
        for (int step = 0; step < (f < 2 ? 2 : 1); step++) {
            const int32_t operation = step == 0 ? firsts[f] : BERTHI_OPERATION_ENCODE_DOUBLE;
            const berthi_request there = request_of(memory, operation);
            const berthi_request here = request_of(&host, operation);

            CHECK(r.device->table->has_operation(r.device, operation));
            CHECK_EQ(r.device->table->launch(r.device, &there, NULL, NULL), BERTH_OK);
            berthi_operation_run(&berthi_scalar_operations, &here);
        }
        CHECK_EQ(memory->codes[0], 0); /* nothing was waited for */
        rig_sync(r.device, NULL);
        CHECK_GT(fake_cuda_read().launches, 0);
        CHECK_EQ(fake_cuda_read().overlapping, fake_cuda_read().launches);
        CHECK_MEM(memory->codes, host.codes, sizeof host.codes);
        CHECK_MEM(memory->maxima, host.maxima, sizeof host.maxima);
        CHECK_MEM(memory->second, host.second, sizeof host.second);
        CHECK_MEM(memory->absmax2, host.absmax2, sizeof host.absmax2);
        CHECK_MEM(&memory->offset, &host.offset, sizeof host.offset);
        CHECK_NE(host.codes[0], host.codes[1]);
        r.device->table->free(r.device, memory, sizeof *memory);
        close_late(&r);
    }
}

static void
check_refused(const rig *r, const berthi_request *what, const char *why)
{
    berth_error error;

    rig_refuse(r, what, &error);
    CHECK_STR(error.message, why);
}

/* Moves a pointer of the request, and has it refused. */
#define CHECK_ODD(operation_, member, by, why)                                        \
    do {                                                                              \
        what = request_of(memory, operation_);                                        \
        what.arguments.member = (void *)((uintptr_t)what.arguments.member + (by));    \
        check_refused(&r, &what, why);                                                \
    } while (0)

static void
test_odd_addresses(void)
{
    berthi_request what;
    place *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    memory = rig_alloc(r.device, sizeof *memory);
    CHECK_ODD(BERTHI_OPERATION_ENCODE_NF4, encode.values, 2,
              "values at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_FP4, encode.absmax, 1,
              "maxima at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_ROWS, rows.values, 1,
              "values at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_ROWS, rows.row_maximum, 2,
              "maxima at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.absmax, 2,
              "values at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.absmax2, 2,
              "maxima at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.scratch, 1,
              "scratch at an address that is no multiple of 4");
    CHECK_ODD(BERTHI_OPERATION_ENCODE_DOUBLE, offset.offset, 3,
              "offset at an address that is no multiple of 4");
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.dtype = BERTH_F16;
    what.arguments.encode.values = (uint8_t *)memory->values + 1;
    check_refused(&r, &what, "values at an address that is no multiple of 2");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->free(r.device, memory, sizeof *memory);
    close_late(&r);
}

static void
test_what_no_kernel_does(void)
{
    char why[64];
    berthi_request what;
    place *memory;
    rig r;

    T_REQUIRE(open_late(&r));
    memory = rig_alloc(r.device, sizeof *memory);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.block_size = 48;
    check_refused(&r, &what, "no kernel has blocks of 48: they are 32 to 4096, a power of two");
    what = request_of(memory, BERTHI_OPERATION_ENCODE_FP4);
    what.arguments.encode.dtype = BERTH_U8;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_EUNSUPPORTED);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.count = UINT64_MAX;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_EUNSUPPORTED);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_ROWS);
    what.arguments.rows.rows = UINT64_MAX / 8;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_EUNSUPPORTED);
    what = request_of(memory, BERTHI_OPERATION_ENCODE_DOUBLE);
    what.arguments.offset.count = 0;
    check_refused(&r, &what, "double quantization of no absmax: they have no mean");
    what.operation = BERTHI_OPERATION_COUNT;
    snprintf(why, sizeof why, "cuda:0: has no operation %d", (int)BERTHI_OPERATION_COUNT);
    check_refused(&r, &what, why);
    what.operation = -1;
    check_refused(&r, &what, "cuda:0: has no operation -1");
    CHECK_EQ(fake_cuda_read().under_way, 0);
    /* Of nothing there is nothing to do, and that is said by success alone. */
    what = request_of(memory, BERTHI_OPERATION_ENCODE_NF4);
    what.arguments.encode.count = 0;
    CHECK_EQ(r.device->table->launch(r.device, &what, NULL, NULL), BERTH_OK);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    CHECK_EQ(fake_cuda_read().launches, 0);
    r.device->table->free(r.device, memory, sizeof *memory);
    close_late(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_memory);
    T_RUN(test_pinned_for_all);
    T_RUN(test_pinning_refused);
    T_RUN(test_pins_are_touched);
    T_RUN(test_many_pins);
    T_RUN(test_copies);
    T_RUN(test_a_copy_among_others);
    T_RUN(test_copies_between_devices);
    T_RUN(test_out_of_reach);
    T_RUN(test_failed_copy_is_waited_for);
    T_RUN(test_failed_piece_is_waited_for);
    T_RUN(test_digests);
    T_RUN(test_events);
    T_RUN(test_events_between_devices);
    T_RUN(test_callers_stream);
    T_RUN(test_calls);
    T_RUN(test_overlapping);
    T_RUN(test_current_device_is_left);
    T_RUN(test_callers_context_is_left);
    T_RUN(test_none_is_left);
    T_RUN(test_none_is_begun_to_close);
    T_RUN(test_while_a_stream_captures);
    T_RUN(test_current_device_is_lost);
    T_RUN(test_real_contexts);
    T_RUN(test_real_tiles);
    T_RUN(test_operations);
    T_RUN(test_odd_addresses);
    T_RUN(test_what_no_kernel_does);
    T_MAIN_END;
}
