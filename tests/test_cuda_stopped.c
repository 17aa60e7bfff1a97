/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_stopped.c - GPUs that are given up while they hang or are busy. */
#include <pthread.h>
#include <stdlib.h>

#include "kernels/cuda_device.h"
#include "kernels/sys.h"
#include "tests/fake_cuda.h"
#include "tests/late.h"
#include "tests/rig.h"
#include "tests/t.h"

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

    fake_cuda_begin(&late_small_machine);
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

    fake_cuda_begin(&late_small_machine);
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

    fake_cuda_begin(&late_small_machine);
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

/* What is only late_small_machine is waited for, in the first stream, too. */
static void
test_stopped_while_busy(void)
{
    berthi_stream *stream;
    uint8_t *memory;
    rig r;

    fake_cuda_begin(&late_small_machine);
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
    late_check_books();
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

    fake_cuda_begin(&late_small_machine);
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

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_stopped_while_it_hangs);
    T_RUN(test_stopped_while_its_stream_goes);
    T_RUN(test_stopped_while_the_first_is_busy);
    T_RUN(test_stopped_while_busy);
    T_RUN(test_stopped_without_an_answer);
    T_MAIN_END;
}
