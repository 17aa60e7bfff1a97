/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_cuda_context.c - a caller's own CUDA: streams, contexts, the current GPU. */
#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/t.h"

/* ---------------------------------------------------------------- streams and events */

/* One that berth has not made is used as it is, and left alone. */
static void
test_callers_stream(void)
{
    berthi_stream *stream;
    uint8_t *memory;
    rig r;

    T_REQUIRE(late_open(&r));
    stream = fake_cuda_stream();
    memory = rig_alloc(r.device, 256);
    CHECK_EQ(r.device->table->clear(r.device, memory, 256, stream, NULL), BERTH_OK);
    r.device->table->stream_destroy(r.device, stream);
    rig_sync(r.device, stream);
    late_check_bytes(memory, 256, 0);
    r.device->table->free(r.device, memory, 256);
    late_close(&r);
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
    CHECK(late_is_past(device, event));
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
    fake_cuda_machine three = late_machine;
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
    late_close(&r);
}

/* One that the caller has made of a GPU is not where berth's things are. */
static void
test_callers_context_is_left(void)
{
    rig r;

    T_REQUIRE(late_open(&r));
    for (int current = 0; current < 2; current++)
        for (uint32_t i = 0; i < 2; i++) {
            fake_cuda_make_other_current(current);
            call_all(&r, rig_at(&r, i), true);
            CHECK(fake_cuda_has_other_current());
            CHECK_EQ(fake_cuda_current(), current);
        }
    fake_cuda_make_current(0);
    late_close(&r);
}

/* A thread that has never chosen a GPU has none afterwards, and GPU 0 no context for nothing. */
static void
test_none_is_left(void)
{
    fake_cuda_machine three = late_machine;
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
    late_close(&r);
}

/* Nor is one begun on a GPU that nothing was asked of, for it to be closed. */
static void
test_none_is_begun_to_close(void)
{
    rig r;

    fake_cuda_begin(&late_machine);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    fake_cuda_make_none_current();
    r.device->table->free(r.device, rig_alloc(r.device, 4096), 4096);
    CHECK(fake_cuda_read().has_context[0]);
    late_close(&r);
    CHECK(!fake_cuda_read().has_context[1]);
}

/* What other streams are asked for is no part of what one captures, and does not spoil it. */
static void
test_while_a_stream_captures(void)
{
    berthi_stream *captured;
    rig r;

    T_REQUIRE(late_open(&r));
    captured = rig_stream(r.device);
    fake_cuda_begin_capture(captured);
    for (uint32_t i = 0; i < 2; i++)
        call_all(&r, rig_at(&r, i), false);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    fake_cuda_end_capture(captured);
    r.device->table->stream_destroy(r.device, captured);
    late_close(&r);
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

    fake_cuda_begin(&late_machine);
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
    late_close(&r);
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

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_callers_stream);
    T_RUN(test_current_device_is_left);
    T_RUN(test_callers_context_is_left);
    T_RUN(test_none_is_left);
    T_RUN(test_none_is_begun_to_close);
    T_RUN(test_while_a_stream_captures);
    T_RUN(test_current_device_is_lost);
    T_RUN(test_real_contexts);
    T_RUN(test_real_tiles);
    T_MAIN_END;
}
