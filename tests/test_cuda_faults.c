/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_faults.c - GPUs that fail: lost, hung, and every call of the runtime in turn. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_device.h"
#include "kernels/sys.h"
#include "kernels/tables.h"
#include "tests/fake_cuda.h"
#include "tests/fault.h"
#include "tests/rig.h"
#include "tests/simt.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define MIB (UINT64_C(1) << 20)
/*
 * Where threads are watched, each kind of error befalls every 16th call, where memory is every
 * fourth, and all of them together each call: one thread makes them all, and a run takes twenty
 * times as long, or five times.
 */
#define STRIDE (T_HAS_THREADS_WATCHED ? 16u : T_IS_SANITIZED ? 4u : 1u)
#define LEAST_INJECTIONS (2000u / STRIDE)
#define SLAB_BYTES UINT64_C(65536)

static const fake_cuda_machine late = { .count = 2, .driver = 13000, .architecture = 90,
                                        .memory_bytes = 8 * MIB, .is_late = true };

static void
check_books(void)
{
    fake_cuda_check_empty();
    CHECK_EQ(fake_cuda_error_left(), 0);
}

/* ------------------------------------------------------------------------------ lost */

static const char died[] =
    "cuda:0: waiting for an event: an illegal memory access was encountered";

/* Every call says so, and none asks the runtime. */
static void
check_lost(const rig *r, void *memory, uint8_t *host, berthi_event *event)
{
    const berthi_device_table *const t = r->device->table;
    const berthi_copy c = { .kind = BERTHI_COPY_TO_DEVICE, .to = memory, .from = host,
                            .bytes = 256 };
    const berthi_request request = { .operation = BERTHI_OPERATION_CALL };
    const uint64_t called = fake_cuda_called();
    berthi_device_properties p;
    berthi_stream *stream = (berthi_stream *)memory;
    berthi_event *other = event;
    void *more = memory;
    bool past = true;
    uint32_t crc = 1;
    berth_error e;

    berthi_error_clear(&e);
    CHECK_EQ(t->alloc(r->device, 1, &more, &e), BERTH_ENODEV);
    CHECK(more == NULL);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    CHECK_EQ(t->pin(r->device, host, 4096, NULL), BERTH_ENODEV);
    CHECK_EQ(t->stream_create(r->device, &stream, NULL), BERTH_ENODEV);
    CHECK(stream == NULL);
    CHECK_EQ(t->event_create(r->device, &other, NULL), BERTH_ENODEV);
    CHECK(other == NULL);
    CHECK_EQ(t->record(r->device, event, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->wait(r->device, NULL, event, NULL), BERTH_ENODEV);
    CHECK_EQ(t->query(r->device, event, &past, NULL), BERTH_ENODEV);
    CHECK(!past);
    CHECK_EQ(t->await(r->device, event, UINT64_MAX, NULL), BERTH_ENODEV);
    CHECK_EQ(t->copy(r->device, &c, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->clear(r->device, memory, 1, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->launch(r->device, &request, NULL, NULL), BERTH_ENODEV);
    CHECK_EQ(t->digest(r->device, memory, 1, &crc, &e), BERTH_ENODEV);
    CHECK_EQ(crc, 0);
    CHECK_STR(e.message, died);
    t->describe(r->device, &p);
    CHECK_STR(p.name, "cuda:0");
    CHECK_EQ(p.free_bytes, UINT64_MAX);
    CHECK_EQ(fake_cuda_called(), called);
}

/* By a kernel, which is told by who waits for it. */
static void
kill_device(const rig *r, void *memory)
{
    const berthi_request request = {
        .operation = BERTHI_OPERATION_ENCODE_NF4,
        .arguments.encode = { .values = memory, .dtype = BERTH_F32, .block_size = 64,
                              .count = 64, .codes = (uint8_t *)memory + 1024,
                              .absmax = (float *)(void *)((uint8_t *)memory + 2048) },
    };

    fake_cuda_fail_kernel(BERTHI_CUDA_ILLEGAL_ADDRESS);
    CHECK_EQ(r->device->table->launch(r->device, &request, NULL, NULL), BERTH_OK);
}

static void
test_lost_for_ever(void)
{
    berthi_device *other;
    berthi_event *event;
    berthi_event *of_other;
    berthi_stream *stream;
    uint8_t *memory[2];
    uint8_t *host;
    berth_error e;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    other = rig_at(&r, 1);
    memory[0] = rig_alloc(r.device, 4096);
    memory[1] = rig_alloc(other, 4096);
    host = rig_pinned(&r, 4096, 1);
    event = rig_event(r.device);
    of_other = rig_event(other);
    stream = rig_stream(r.device);
    kill_device(&r, memory[0]);
    rig_to_device(r.device, memory[0], host, 100, stream);
    rig_record(r.device, event, NULL);
    CHECK_EQ(r.device->table->await(r.device, event, UINT64_MAX, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    for (int i = 0; i < 2; i++)
        check_lost(&r, memory[0], host, event);
    /* Its event is of no use to the other one, which goes on. */
    CHECK_EQ(other->table->wait(other, NULL, event, &e), BERTH_ENODEV);
    CHECK_STR(e.message, died);
    CHECK_EQ(other->table->await(other, event, UINT64_MAX, &e), BERTH_ENODEV);
    CHECK_STR(e.message, died);
    rig_to_device(other, memory[1], host, 100, NULL);
    rig_record(other, of_other, NULL);
    rig_await(other, of_other);
    CHECK_EQ(memory[1][99], 1);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->event_destroy(r.device, event);
    other->table->event_destroy(other, of_other);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory[0], 4096);
    other->table->free(other, memory[1], 4096);
    rig_close(&r);
    check_books();
    CHECK_EQ(fake_cuda_current(), 0);
    fake_cuda_end();
}

/* Until nothing is under way on the first GPU, which berth is not told. */
static void
finish_first(void)
{
    while (fake_cuda_read().under_way > 0)
        (void)fake_cuda_calls()->stream_query(NULL);
    fake_cuda_leave_error(0);
}

/* The other device is the first to hear of it, and does not take it for its own end. */
static void
test_blamed_on_the_owner(void)
{
    berthi_device *other;
    berthi_event *event;
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    other = rig_at(&r, 1);
    memory = rig_alloc(r.device, 4096);
    event = rig_event(r.device);
    kill_device(&r, memory);
    rig_record(r.device, event, NULL);
    finish_first();
    CHECK_EQ(other->table->wait(other, NULL, event, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    rig_sync(other, NULL);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, &e), BERTH_ENODEV);
    CHECK_STR(e.message, died);
    r.device->table->event_destroy(r.device, event);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    check_books();
    fake_cuda_end();
}

/* One that waits has ended, and has not heard of it: whose event it is goes on. */
static void
test_not_blamed_on_the_owner(void)
{
    berthi_device *other;
    berthi_event *event;
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    other = rig_at(&r, 1);
    memory = rig_alloc(r.device, 4096);
    event = rig_event(other);
    rig_record(other, event, NULL);
    rig_await(other, event);
    kill_device(&r, memory);
    finish_first();
    CHECK_EQ(r.device->table->wait(r.device, NULL, event, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, died);
    rig_sync(other, NULL);
    other->table->event_destroy(other, event);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    check_books();
    fake_cuda_end();
}

/* What a thread hears of its own GPU when it is asked which that is says nothing of another one. */
static void
test_not_blamed_for_the_callers(void)
{
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:0"));
    memory = rig_alloc(r.device, 4096);
    fake_cuda_make_current(1);
    fake_cuda_fail(0, BERTHI_CUDA_ILLEGAL_ADDRESS, false);
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, &e), BERTH_ENODEV);
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE);
    CHECK_STR(e.message, "cuda:0: zeroing memory: an illegal memory access was encountered");
    fake_cuda_disarm();
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, NULL), BERTH_OK);
    fake_cuda_make_current(0);
    rig_sync(r.device, NULL);
    CHECK_EQ(memory[0], 0);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    check_books();
    fake_cuda_end();
}

/* So it is with copies from one to the other: the one is lost that has ended. */
static void
test_blamed_on_the_peer(void)
{
    for (uint32_t from = 0; from < 2; from++) {
        uint8_t *memory[2];
        berthi_device *source;
        berth_error e;
        rig r;

        fake_cuda_begin(&late);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
        source = rig_at(&r, from);
        for (uint32_t i = 0; i < 2; i++)
            memory[i] = rig_alloc(rig_at(&r, i), 4096);
        CHECK(source->table->reaches(source, rig_at(&r, 1 - from)));
        kill_device(&r, memory[0]);
        finish_first();
        CHECK_EQ(source->table->copy(source,
                                     &(berthi_copy){ .kind = BERTHI_COPY_TO_PEER,
                                                     .to = memory[1 - from],
                                                     .from = memory[from], .bytes = 256,
                                                     .peer = rig_at(&r, 1 - from) },
                                     NULL, &e),
                 BERTH_ENODEV);
        CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
        CHECK_STR(e.message, "cuda:0: a copy: an illegal memory access was encountered");
        rig_sync(rig_at(&r, 1), NULL);
        for (uint32_t i = 0; i < 2; i++)
            rig_at(&r, i)->table->free(rig_at(&r, i), memory[i], 4096);
        rig_close(&r);
        check_books();
        fake_cuda_end();
    }
}

/* Whatever ends a GPU, whichever call it is that hears of it. */
static void
test_ends(void)
{
    static const int codes[] = { BERTHI_CUDA_UNLOADING,     BERTHI_CUDA_ECC,
                                 BERTHI_CUDA_NVLINK,        BERTHI_CUDA_CONTAINED,
                                 BERTHI_CUDA_TIMEOUT,       BERTHI_CUDA_DESTROYED,
                                 BERTHI_CUDA_ASSERT,        BERTHI_CUDA_STACK,
                                 BERTHI_CUDA_INSTRUCTION,   BERTHI_CUDA_MISALIGNED,
                                 BERTHI_CUDA_ADDRESS_SPACE, BERTHI_CUDA_COUNTER,
                                 BERTHI_CUDA_LAUNCH,        BERTHI_CUDA_TENSOR_LEAK,
                                 BERTHI_CUDA_MPS_CLIENT,    BERTHI_CUDA_EXTERNAL_DEVICE };
    rig r;

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        berthi_event *event;
        berth_error e;

        fake_cuda_begin(&late);
        T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:1"));
        fake_cuda_fail(2, codes[i], false); /* behind get_device() and set_device() */
        for (int turn = 0; turn < 2; turn++) {
            CHECK_EQ(r.device->table->event_create(r.device, &event, &e), BERTH_ENODEV);
            CHECK(event == NULL);
            CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
            CHECK_STR(e.message, "cuda:1: making an event: an error of the fake runtime");
        }
        rig_close(&r);
        check_books();
        CHECK_EQ(fake_cuda_current(), 0);
        fake_cuda_end();
    }
}

/* A copy is refused, and what was asked for before it ends the GPU while that is waited for. */
static void
test_first_failure_is_told(void)
{
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_DEVICE, .bytes = 8 };
    uint8_t *memory;
    berth_error e;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, 4096);
    kill_device(&r, memory);
    fake_cuda_fail_within(0, 1);
    CHECK_EQ(r.device->table->copy(r.device, &copy, NULL, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE);
    CHECK_STR(e.message, "cuda:0: a copy: an error of the fake runtime");
    CHECK_EQ(r.device->table->clear(r.device, memory, 1, NULL, &e), BERTH_ENODEV);
    CHECK_EQ(e.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(e.message, "cuda:0: a copy: an illegal memory access was encountered");
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    check_books();
    fake_cuda_end();
}

/* Failures that end nothing are told once; the next call goes on. */
static void
test_other_failures(void)
{
    static const struct {
        int code;
        berth_reason reason;
    } failures[] = { { 1, BERTH_REASON_DEVICE },
                     { BERTHI_CUDA_NO_MEMORY, BERTH_REASON_NO_MEMORY },
                     { BERTHI_CUDA_NO_IMAGE, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_NO_FUNCTION, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_INVALID_PTX, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_NO_COMPILER, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_OLD_PTX_COMPILER, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_NO_COMPILING, BERTH_REASON_UNSUPPORTED },
                     { BERTHI_CUDA_UNSUPPORTED, BERTH_REASON_UNSUPPORTED },
                     { 999, BERTH_REASON_DEVICE } };
    berthi_event *event;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        berth_error e;

        berthi_error_clear(&e);
        fake_cuda_fail_within(0, failures[i].code);
        CHECK_EQ(r.device->table->event_create(r.device, &event, &e),
                 berthi_reason_status((int32_t)failures[i].reason));
        CHECK(event == NULL);
        CHECK_EQ(e.reason, failures[i].reason);
        CHECK_CONTAINS(e.message, "cuda:0: making an event: ");
        rig_sync(r.device, NULL);
    }
    rig_close(&r);
    check_books();
    fake_cuda_end();
}

/* --------------------------------------------------------------------------- hanging */

typedef struct waiter {
    berthi_device *device;
    berthi_event *event;
    berthi_stream *stream;
    berth_status status;
    berth_error error;
} waiter;

static void *
await_event(void *user)
{
    waiter *const w = user;

    w->status = w->device->table->await(w->device, w->event, UINT64_MAX, &w->error);
    return NULL;
}

static void *
destroy_stream(void *user)
{
    const waiter *const w = user;

    w->device->table->stream_destroy(w->device, w->stream);
    return NULL;
}

/* Whoever waits for what hangs is told; what it may still touch is left alone for good. */
static void
test_stopped_while_it_hangs(void)
{
    berthi_stream *idle;
    berthi_stream *stream;
    uint8_t *memory;
    uint8_t *host;
    uint64_t begin_ns;
    uint64_t called;
    pthread_t threads[2];
    berth_memory_summary left;
    waiter w;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, 4096);
    host = rig_pinned(&r, 4096, 1);
    idle = rig_stream(r.device);
    stream = rig_stream(r.device);
    w = (waiter){ .device = r.device, .event = rig_event(r.device),
                  .stream = rig_stream(r.device) };
    fake_cuda_hang(true);
    CHECK_EQ(r.device->table->clear(r.device, memory, 8, w.stream, NULL), BERTH_OK);
    rig_to_device(r.device, memory, host, 100, stream);
    rig_record(r.device, w.event, stream);
    CHECK_EQ(r.device->table->await(r.device, w.event, berthi_sys_now_ns() + 1000000, NULL),
             BERTH_PENDING);
    called = fake_cuda_called();
    T_REQUIRE(pthread_create(&threads[1], NULL, destroy_stream, &w) == 0);
    while (fake_cuda_called() < called + 4) /* it asks again and again */
        berthi_sys_sleep(100000);
    T_REQUIRE(pthread_create(&threads[0], NULL, await_event, &w) == 0);
    begin_ns = berthi_sys_now_ns();
    berthi_devices_stop(r.devices);
    CHECK_GE(berthi_sys_now_ns() - begin_ns, BERTHI_CUDA_PATIENCE_NS);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(w.status, BERTH_ENODEV);
    CHECK_EQ(w.error.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_STR(w.error.message, "cuda:0: the device has been given up");
    r.device->table->event_destroy(r.device, w.event);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->stream_destroy(r.device, idle);
    rig_unpinned(&r, host, 4096);
    r.device->table->free(r.device, memory, 4096);
    berthi_devices_close(r.devices);
    /* Pages that stay registered are nobody else's: copies from there would be of these. */
    berth_context_memory(r.context, &left);
    CHECK_GE(left.current_bytes, 4096);
    CHECK_EQ(host[4095], 1);
    berth_context_destroy(r.context);
    free(host);
    CHECK_EQ(fake_cuda_read().allocations, 1);
    CHECK_EQ(fake_cuda_read().pins, 1);
    CHECK_EQ(fake_cuda_read().streams, 0);
    CHECK_EQ(fake_cuda_read().events, 0);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    fake_cuda_end();
}

/* Until it asks again and again whether the stream is done. */
static bool
can_begin_destroying(waiter *w, pthread_t *thread)
{
    const uint64_t called = fake_cuda_called();

    if (pthread_create(thread, NULL, destroy_stream, w) != 0)
        return false;
    while (fake_cuda_called() < called + 4)
        berthi_sys_sleep(100000);
    return true;
}

/* Somebody destroys the one stream that hangs meanwhile: its memory is left alone, too. */
static void
test_stopped_while_its_stream_goes(void)
{
    uint8_t *memory;
    pthread_t thread;
    waiter w;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda"));
    memory = rig_alloc(r.device, 4096);
    w = (waiter){ .device = r.device, .stream = rig_stream(r.device) };
    fake_cuda_hang(true);
    CHECK_EQ(r.device->table->clear(r.device, memory, 8, w.stream, NULL), BERTH_OK);
    T_REQUIRE(can_begin_destroying(&w, &thread));
    berthi_devices_stop(r.devices);
    r.device->table->free(r.device, memory, 4096);
    pthread_join(thread, NULL);
    rig_close(&r);
    CHECK_EQ(fake_cuda_read().allocations, 1);
    CHECK_EQ(fake_cuda_read().streams, 0);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    fake_cuda_end();
}

/* So it is while the first stream, which is busy for a while, is waited for before it. */
static void
test_stopped_while_the_first_is_busy(void)
{
    uint8_t *memory;
    pthread_t thread;
    waiter w;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:0"));
    memory = rig_alloc(r.device, 4096);
    w = (waiter){ .device = r.device, .stream = rig_stream(r.device) };
    CHECK_EQ(r.device->table->clear(r.device, memory, 8, w.stream, NULL), BERTH_OK);
    fake_cuda_hang_stream(w.stream);
    T_REQUIRE(can_begin_destroying(&w, &thread));
    for (int i = 0; i < 2000; i++) /* one is done at each question */
        CHECK_EQ(r.device->table->clear(r.device, memory + 8, 8, NULL, NULL), BERTH_OK);
    berthi_devices_stop(r.devices);
    r.device->table->free(r.device, memory, 4096);
    pthread_join(thread, NULL);
    rig_close(&r);
    CHECK_EQ(fake_cuda_read().under_way, 1);
    CHECK_EQ(fake_cuda_read().allocations, 1);
    CHECK_EQ(fake_cuda_read().streams, 0);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    fake_cuda_end();
}

/* What is only late is waited for, in the first stream, too. */
static void
test_stopped_while_busy(void)
{
    berthi_stream *stream;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:1"));
    memory = rig_alloc(r.device, 4096);
    stream = rig_stream(r.device);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(r.device->table->clear(r.device, memory, 8, stream, NULL), BERTH_OK);
        CHECK_EQ(r.device->table->clear(r.device, memory + 8, 8, NULL, NULL), BERTH_OK);
    }
    berthi_devices_stop(r.devices);
    CHECK_EQ(fake_cuda_read().under_way, 0);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    check_books();
    CHECK_EQ(fake_cuda_current(), 0);
    fake_cuda_end();
}

/* Nobody says whether it is still busy: its memory is left alone. */
static void
test_stopped_without_an_answer(void)
{
    berthi_stream *stream;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late);
    T_REQUIRE(rig_open_cuda(&r, fake_cuda_calls(), "cuda:0"));
    memory = rig_alloc(r.device, 4096);
    stream = rig_stream(r.device);
    CHECK_EQ(r.device->table->clear(r.device, memory, 8, stream, NULL), BERTH_OK);
    fake_cuda_fail_within(0, 999);
    berthi_devices_stop(r.devices);
    CHECK_EQ(fake_cuda_failures(), 1);
    CHECK_EQ(fake_cuda_read().under_way, 1);
    r.device->table->stream_destroy(r.device, stream);
    r.device->table->free(r.device, memory, 4096);
    rig_close(&r);
    CHECK_EQ(fake_cuda_read().allocations, 1);
    CHECK_EQ(fake_cuda_read().streams, 0);
    CHECK_EQ(fake_cuda_read().misuses, 0);
    fake_cuda_end();
}

/* ---------------------------------------------------------------- every call in turn */

typedef struct scene {
    berthi_device *device;
    berthi_stream *stream;
    berthi_event *event;
    uint8_t *memory;
    uint8_t *host; /* a page, the same for both */
    uint64_t page;
    bool is_pinned;
} scene;

static berth_status
set_up(scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    void *memory;
    berth_status status = t->alloc(s->device, SLAB_BYTES, &memory, error);

    s->memory = memory;
    CHECK_EQ(memory == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = t->pin(s->device, s->host, s->page, error);
    s->is_pinned = status == BERTH_OK;
    if (status == BERTH_OK)
        status = t->stream_create(s->device, &s->stream, error);
    CHECK_EQ(s->stream == NULL, status != BERTH_OK);
    if (status == BERTH_OK)
        status = t->event_create(s->device, &s->event, error);
    CHECK_EQ(s->event == NULL, status != BERTH_OK);
    return status;
}

static berth_status
move_bytes(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_copy pinned = { .kind = BERTHI_COPY_TO_DEVICE, .is_pinned = true,
                                 .to = s->memory, .from = s->host, .bytes = 1024 };
    const berthi_copy unpinned = { .kind = BERTHI_COPY_TO_DEVICE, .to = s->memory + 1024,
                                   .from = s->host, .bytes = 64 };
    const berthi_copy within = { .kind = BERTHI_COPY_WITHIN, .to = s->memory + 2048,
                                 .from = s->memory, .bytes = 64 };
    berth_status status = t->copy(s->device, &pinned, s->stream, error);

    if (status == BERTH_OK)
        status = t->copy(s->device, &unpinned, s->stream, error);
    if (status == BERTH_OK)
        status = t->copy(s->device, &within, s->stream, error);
    if (status == BERTH_OK)
        status = t->clear(s->device, s->memory + 4096, 4096, NULL, error);
    return status;
}

/* Where the other is not reached there is nothing to be asked for. */
static berth_status
move_to_peer(const scene *s, const scene *other, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_copy copy = { .kind = BERTHI_COPY_TO_PEER, .peer = other->device,
                               .to = other->memory + 3072, .from = s->memory, .bytes = 64 };

    if (!t->reaches(s->device, other->device))
        return BERTH_OK;
    return t->copy(s->device, &copy, s->stream, error);
}

static void
do_nothing(void *user)
{
    (void)user;
}

static berth_status
compute(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    float *const floats = (float *)(void *)(s->memory + 8192);
    const berthi_request call = { .operation = BERTHI_OPERATION_CALL,
                                  .arguments.call.call = do_nothing };
    const berthi_request rows = {
        .operation = BERTHI_OPERATION_ENCODE_ROWS,
        .arguments.rows = { .values = s->memory, .dtype = BERTH_F32, .rows = 1, .columns = 64,
                            .codes = (int8_t *)s->memory + 4096, .row_maximum = floats },
    };
    const berthi_request twice = {
        .operation = BERTHI_OPERATION_ENCODE_DOUBLE,
        .arguments.offset = { .absmax = (float *)(void *)s->memory, .count = 16,
                              .codes = s->memory + 4096, .absmax2 = floats,
                              .offset = floats + 64, .scratch = floats + 128 },
    };
    const berthi_request product = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .codes = s->memory, .absmax = floats, .block_size = 64,
                                .count = 1, .rows = 16, .columns = 64, .dtype = BERTH_BF16,
                                .inputs = s->memory, .outputs = s->memory + 4096 },
    };
    berth_status status = t->launch(s->device, &call, s->stream, error);

    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &rows, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &product, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &twice, s->stream, error);
    return status;
}

/* Weights that are not of 4 bits. */
static berth_status
compute_plain(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_request numbers = {
        .operation = BERTHI_OPERATION_MULTIPLY_PLAIN,
        .arguments.plain = { .weight = s->memory, .inputs = s->memory + 2048,
                             .outputs = s->memory + 4096, .weight_dtype = BERTH_BF16,
                             .dtype = BERTH_BF16, .count = 1, .rows = 16, .columns = 64 },
    };
    const berthi_request codes = {
        .operation = BERTHI_OPERATION_MULTIPLY_INT8,
        .arguments.int8 = { .weights = (const int8_t *)s->memory,
                            .inputs = (const int8_t *)s->memory,
                            .sums = (int32_t *)(void *)(s->memory + 4096), .count = 1,
                            .rows = 16, .columns = 64 },
    };
    uint32_t *const room = (uint32_t *)(void *)(s->memory + 6144);
    const berthi_request inputs = {
        .operation = BERTHI_OPERATION_INT8_INPUT,
        .arguments.int8_input = { .inputs = s->memory, .dtype = BERTH_BF16, .threshold = 6.0f,
                                  .count = 3, .columns = 64,
                                  .codes = (int8_t *)s->memory + 4096,
                                  .input_maximum = (float *)(void *)(room + 16),
                                  .outliers = { room, room + 2, room + 10, 8 } },
    };
    berth_status status = BERTH_OK;

    if (simt_has_fibers())
        status = t->launch(s->device, &numbers, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &codes, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &inputs, s->stream, error);
    return status;
}

/* Each in several launches: it begins within a block, or a row. */
static berth_status
decode(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    float *const floats = (float *)(void *)(s->memory + 8192);
    const berthi_request blocks = {
        .operation = BERTHI_OPERATION_DECODE_NF4,
        .arguments.decode = { .codes = s->memory, .absmax = floats,
                              .absmax_codes = s->memory + 1024, .map = berthi_signed_map,
                              .block_size = 32, .first = 32 * 255 - 2, .count = 130,
                              .values = s->memory + 4096, .dtype = BERTH_F32 },
    };
    const berthi_request rows = {
        .operation = BERTHI_OPERATION_DECODE_ROWS,
        .arguments.decode_rows = { .codes = (const int8_t *)s->memory, .row_maximum = floats,
                                   .columns = 64, .first = 63, .count = 130,
                                   .values = s->memory + 4096, .dtype = BERTH_BF16 },
    };
    berth_status status = BERTH_OK;

    if (simt_has_fibers())
        status = t->launch(s->device, &blocks, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &rows, s->stream, error);
    return status;
}

static berth_status
compute_experts(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    float *const floats = (float *)(void *)(s->memory + 8192);
    const berthi_request outputs = {
        .operation = BERTHI_OPERATION_INT8_OUTPUT,
        .arguments.int8_output = { .sums = (int32_t *)(void *)s->memory,
                                   .input_maximum = floats, .weight_maximum = floats,
                                   .outputs = s->memory + 4096, .dtype = BERTH_BF16,
                                   .count = 3, .rows = 16 },
    };
    static const uint32_t ranges[4] = { 0, 0, 0, 0 };
    /* Of memory that is all 0: no expert has an input. */
    const berthi_request experts = {
        .operation = BERTHI_OPERATION_EXPERTS_NF4,
        .arguments.experts = { .experts = (void *)s->memory,
                               .ranges = (uint32_t *)(void *)(s->memory + 128),
                               .expert_count = 3, .most_inputs = 2, .codes_alignment = 16,
                               .block_size = 64, .rows = 16, .columns = 64,
                               .dtype = BERTH_BF16, .inputs = s->memory + 1024,
                               .outputs = s->memory + 4096 },
    };
    berth_status status = BERTH_OK;

    if (simt_has_fibers())
        status = t->launch(s->device, &outputs, s->stream, error);
    if (status == BERTH_OK)
        status = t->clear(s->device, s->memory, 256, s->stream, error);
    if (status == BERTH_OK && simt_has_fibers())
        status = berthi_device_write(s->device, s->memory + 128, ranges, sizeof ranges, s->stream,
                                     error);
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch(s->device, &experts, s->stream, error);
    return status;
}

/* Of memory that is all 0: in one grid, then each its own. */
static berth_status
compute_together(const scene *s, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const berthi_request product = {
        .operation = BERTHI_OPERATION_MULTIPLY_NF4,
        .arguments.multiply = { .codes = s->memory, .absmax = (float *)(void *)s->memory,
                                .block_size = 64, .count = 1, .rows = 16, .columns = 64,
                                .inputs = s->memory + 1024, .outputs = s->memory + 4096,
                                .dtype = BERTH_BF16 },
    };
    berthi_request requests[2] = { product, product };
    berth_status status = t->clear(s->device, s->memory, 2048, s->stream, error);

    requests[1].arguments.multiply.outputs = s->memory + 8192;
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch_together(s->device, requests, 2, s->stream, error);
    requests[1].arguments.multiply.inputs = s->memory + 1536;
    if (status == BERTH_OK && simt_has_fibers())
        status = t->launch_together(s->device, requests, 2, s->stream, error);
    return status;
}

static berth_status
wait_for_all(const scene *s, const scene *other, berth_error *error)
{
    const berthi_device_table *const t = s->device->table;
    const uint64_t soon = berthi_sys_now_ns() + UINT64_C(60000000000);
    uint32_t crc = 1;
    bool past;
    berth_status status = t->record(s->device, s->event, s->stream, error);

    if (status == BERTH_OK)
        status = t->wait(other->device, NULL, s->event, error);
    if (status == BERTH_OK)
        status = t->query(s->device, s->event, &past, error);
    if (status == BERTH_OK)
        status = t->await(s->device, s->event, soon, error);
    if (status == BERTH_OK)
        status = t->digest(s->device, s->memory, 4096, &crc, error);
    CHECK(status == BERTH_OK || crc <= 1);
    return status;
}

static void
clean_up(scene *s)
{
    const berthi_device_table *const t = s->device->table;

    t->stream_destroy(s->device, s->stream);
    t->event_destroy(s->device, s->event);
    if (s->is_pinned)
        t->unpin(s->device, s->host, s->page);
    t->free(s->device, s->memory, SLAB_BYTES);
}

/* Which two GPUs, and what the calling thread has current; `NONE`: it has never chosen one. */
typedef struct start {
    const fake_cuda_machine *machine;
    const char *words;
    int current;
} start;

#define NONE (-1)
static const start both = { &late, "cuda", NONE };

/* All there is, from opening to closing, on both GPUs. */
static berth_status
run_scene(void *user, berth_context *context, berth_error *error)
{
    const start *const its = user;
    const uint64_t page = berthi_sys_page_bytes();
    uint8_t *const host = berthi_memory_aligned(context, BERTHI_PURPOSE_RING, page, page);
    scene scenes[2];
    berthi_devices *devices = NULL;
    berth_status status;

    if (host == NULL)
        return berthi_fail_memory(error, "a page");
    memset(host, 0, page);
    status = berthi_devices_open_cuda(context, fake_cuda_calls(), its->words, &devices, error);
    CHECK_EQ(devices == NULL, status != BERTH_OK);
    for (uint32_t i = 0; i < 2 && devices != NULL; i++) {
        scenes[i] = (scene){ .device = berthi_devices_at(devices, i), .host = host,
                             .page = page };
        if (status == BERTH_OK)
            status = set_up(&scenes[i], error);
    }
    for (uint32_t i = 0; i < 2 && status == BERTH_OK; i++) {
        status = move_bytes(&scenes[i], error);
        if (status == BERTH_OK)
            status = move_to_peer(&scenes[i], &scenes[1 - i], error);
        if (status == BERTH_OK)
            status = compute(&scenes[i], error);
        if (status == BERTH_OK)
            status = compute_plain(&scenes[i], error);
        if (status == BERTH_OK)
            status = decode(&scenes[i], error);
        if (status == BERTH_OK)
            status = compute_experts(&scenes[i], error);
        if (status == BERTH_OK)
            status = compute_together(&scenes[i], error);
        if (status == BERTH_OK)
            status = wait_for_all(&scenes[i], &scenes[1 - i], error);
    }
    for (uint32_t i = 0; i < 2 && devices != NULL; i++)
        clean_up(&scenes[i]);
    berthi_devices_close(devices);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, host, page, page);
    return status;
}

typedef struct tally {
    uint64_t injections; /* runs in which a call failed */
    uint64_t failures;   /* calls that did */
    uint64_t survived;   /* runs that succeeded all the same */
    uint64_t lost;       /* runs that ended with a lost device */
} tally;

/* False: no call was left to fail. */
static bool
has_injected(const start *its, uint64_t nth, int code, bool is_persistent, bool is_half,
             tally *count)
{
    berth_context *context;
    uint64_t failures;
    berth_status status;
    berth_error error;

    fake_cuda_begin(its->machine);
    if (its->current != NONE)
        fake_cuda_make_current(its->current);
    fake_cuda_fail_half(is_half);
    /* Nobody looks at what they write, and only sanitizers at memory that they still use. */
    if (!T_IS_SANITIZED)
        fake_cuda_skip_kernels();
    if (!CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK))
        return false;
    berthi_error_clear(&error);
    fake_cuda_fail(nth, code, is_persistent);
    status = run_scene((void *)(uintptr_t)its, context, &error);
    failures = fake_cuda_failures();
    fake_cuda_disarm();
    vacant_check_memory(context);
    berth_context_destroy(context);
    check_books();
    /* A runtime that never lets it be set again cannot be helped. */
    if (!is_persistent || is_half)
        CHECK_EQ(fake_cuda_current(), its->current != NONE ? its->current : 0);
    fake_cuda_make_none_current();
    fake_cuda_end();
    if (failures == 0) {
        CHECK_EQ(status, BERTH_OK);
        return false;
    }
    count->injections++;
    count->failures += failures;
    count->survived += status == BERTH_OK;
    count->lost += status != BERTH_OK && error.reason == BERTH_REASON_DEVICE_LOST;
    if (status == BERTH_OK)
        return true;
    CHECK_NE(status, BERTH_EINTERNAL);
    CHECK_EQ(error.status, status);
    CHECK_EQ(berthi_reason_status(error.reason), status);
    CHECK_NE(error.message[0], '\0');
    return true;
}

/*
 * Each of them with every kind of error, alone and with all later calls failing too, by a
 * set_device() that has or has not done it.
 */
static void
test_every_call_fails(void)
{
    static const int codes[] = { 1, BERTHI_CUDA_NO_MEMORY, BERTHI_CUDA_NO_IMAGE,
                                 BERTHI_CUDA_ILLEGAL_ADDRESS, BERTHI_CUDA_LAUNCH,
                                 BERTHI_CUDA_ECC, 999 };
    tally count = { 0 };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        for (int mode = 0; mode < 4; mode++) {
            uint64_t nth = (5 * i + (uint64_t)mode) % STRIDE; /* all there are */

            while (has_injected(&both, nth, codes[i], mode % 2 != 0, mode / 2 != 0, &count))
                nth += STRIDE;
            CHECK_GT(nth, 50);
        }
    T_NOTE("%" PRIu64 " injections, %" PRIu64 " failing calls, %" PRIu64 " survived, %" PRIu64
           " times a device was lost",
           count.injections, count.failures, count.survived, count.lost);
    CHECK_GE(count.injections, LEAST_INJECTIONS);
    CHECK_GT(count.lost, 0);
    /* Giving back goes on whatever fails there; most calls are none of that. */
    CHECK_LT(count.survived, count.injections / 2);
}

/* Some of them where the thread has another GPU current, one of these or a third, or none. */
static void
test_every_call_fails_elsewhere(void)
{
    static const int codes[] = { 999, BERTHI_CUDA_ILLEGAL_ADDRESS };
    fake_cuda_machine three = late;
    const start starts[] = { { &three, "cuda:0;cuda:1", 1 },
                             { &three, "cuda:0;cuda:1", 2 },
                             { &three, "cuda:1;cuda:2", NONE } };
    tally count = { 0 };

    three.count = 3;
    for (uint64_t i = 0; i < 24; i++) {
        const start *const its = &starts[i / 8];
        uint64_t nth = i % (4 * STRIDE);

        while (has_injected(its, nth, codes[i / 4 % 2], i % 2 != 0, i / 2 % 2 != 0, &count))
            nth += 4 * STRIDE;
        CHECK_GT(nth, 50);
    }
    T_NOTE("%" PRIu64 " injections, %" PRIu64 " survived, %" PRIu64 " times a device was lost",
           count.injections, count.survived, count.lost);
    CHECK_GE(count.injections, LEAST_INJECTIONS / 4);
    CHECK_GT(count.lost, 0);
}

/* Host memory that is refused, and the system's calls. */
static void
test_memory_fails(void)
{
    fault_counts counts;

    fake_cuda_begin(&late);
    counts = fault_loop("GPUs", run_scene, (void *)(uintptr_t)&both);
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 0);
    CHECK_EQ(counts.survived, 0);
    check_books();
    fake_cuda_end();
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_lost_for_ever);
    T_RUN(test_blamed_on_the_owner);
    T_RUN(test_not_blamed_on_the_owner);
    T_RUN(test_not_blamed_for_the_callers);
    T_RUN(test_blamed_on_the_peer);
    T_RUN(test_ends);
    T_RUN(test_first_failure_is_told);
    T_RUN(test_other_failures);
    T_RUN(test_stopped_while_it_hangs);
    T_RUN(test_stopped_while_its_stream_goes);
    T_RUN(test_stopped_while_the_first_is_busy);
    T_RUN(test_stopped_while_busy);
    T_RUN(test_stopped_without_an_answer);
    T_RUN(test_every_call_fails);
    T_RUN(test_every_call_fails_elsewhere);
    T_RUN(test_memory_fails);
    T_MAIN_END;
}
