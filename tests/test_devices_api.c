/* SPDX-License-Identifier: Apache-2.0 */
/* test_devices_api.c - devices and streams of berth.h. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/sim.h"
#include "tests/t.h"

static berth_context *context;

static berth_devices *
opened(const char *words)
{
    berth_devices *devices = NULL;
    berth_error error;

    CHECK_EQ(berth_devices_open(context, words, &devices, &error), BERTH_OK);
    CHECK_EQ(error.status, BERTH_OK);
    CHECK(devices != NULL);
    return devices;
}

static void
count_call(void *user)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

static void
test_arguments(void)
{
    berth_devices *devices = (berth_devices *)(void *)context;
    _Atomic int calls = 0;
    berth_error error;
    berth_device d;
    void *stream = context;

    CHECK_EQ(berth_devices_open(NULL, "cpu", &devices, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "context");
    CHECK(devices == NULL);
    CHECK_EQ(berth_devices_open(context, NULL, &devices, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "words");
    CHECK_EQ(berth_devices_open(context, "cpu", NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "out_devices");
    CHECK_EQ(berth_devices_open(context, "gpu", &devices, &error), BERTH_EINVAL);
    CHECK_EQ(berth_devices_open(context, "cuda", &devices, NULL), BERTH_ENODEV);
    CHECK(devices == NULL);
    berth_devices_close(NULL);

    devices = opened("cpu*2");
    CHECK_EQ(berth_devices_count(devices), 2);
    memset(&d, 1, sizeof d);
    CHECK_EQ(berth_devices_get(devices, 2, &d), BERTH_EINVAL);
    CHECK_EQ(d.memory_bytes, 0);
    CHECK_EQ(berth_stream_create(NULL, 0, &stream, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "devices");
    CHECK(stream == NULL);
    stream = context;
    CHECK_EQ(berth_stream_create(devices, 2, &stream, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "number");
    CHECK(stream == NULL);
    CHECK_EQ(berth_stream_create(devices, 0, NULL, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "out_stream");
    CHECK_EQ(berth_stream_call(devices, 2, NULL, count_call, &calls, 0, NULL),
             BERTH_EINVAL);
    CHECK_EQ(berth_stream_call(devices, 0, NULL, NULL, &calls, 0, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "call");
    CHECK_EQ(berth_stream_call(devices, 0, NULL, count_call, &calls, -1e-9, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "seconds");
    CHECK_EQ(berth_stream_call(devices, 0, NULL, count_call, &calls, (double)NAN, NULL),
             BERTH_EINVAL);
    CHECK_EQ(
        berth_stream_call(devices, 0, NULL, count_call, &calls, (double)INFINITY, NULL),
        BERTH_EINVAL);
    CHECK_EQ(atomic_load(&calls), 0);
    CHECK_EQ(berth_stream_wait(NULL, 0, NULL, 0, &error), BERTH_EINVAL);
    CHECK_EQ(berth_stream_wait(devices, 2, NULL, 0, &error), BERTH_EINVAL);
    berth_stream_destroy(devices, 2, context);
    berth_stream_destroy(devices, 0, NULL);
    berth_devices_close(devices);
}

static void
test_the_processor(void)
{
    berth_devices *const devices = opened("cpu");
    _Atomic int calls = 0;
    berth_device d;
    void *stream;

    CHECK_EQ(berth_devices_get(devices, 0, &d), BERTH_OK);
    CHECK_STR(d.name, "cpu");
    CHECK_CONTAINS(d.description, "host memory");
    CHECK_GT(d.memory_bytes, 0);
    CHECK_GT(d.free_bytes, 0);
    CHECK_EQ(d.numa_node, -1);
    CHECK_EQ(d.is_host, 1);
    CHECK_EQ(d.is_simulated, 0);
    CHECK_EQ(berth_stream_create(devices, 0, &stream, NULL), BERTH_OK);
    CHECK_EQ(berth_stream_call(devices, 0, stream, count_call, &calls, 5, NULL), BERTH_OK);
    CHECK_EQ(atomic_load(&calls), 1);
    CHECK_EQ(berth_stream_wait(devices, 0, stream, 0, NULL), BERTH_OK);
    CHECK(berth_devices_seconds(devices) >= 0 && berth_devices_seconds(devices) < 60);
    berth_stream_destroy(devices, 0, stream);
    berth_devices_close(devices);
}

static void
test_simulated(void)
{
    berth_devices *const devices = opened("sim:1GiB,h2d=10GB/s*2");
    _Atomic int calls = 0;
    berth_device d;
    void *stream;

    CHECK_EQ(berth_devices_get(devices, 1, &d), BERTH_OK);
    CHECK_STR(d.name, "sim:1");
    CHECK_STR(d.description, "simulated, 1.00 GiB, 10.0 GB/s");
    CHECK_EQ(d.memory_bytes, UINT64_C(1) << 30);
    CHECK_EQ(d.free_bytes, UINT64_C(1) << 30);
    CHECK_EQ(d.is_host, 0);
    CHECK_EQ(d.is_simulated, 1);
    CHECK_EQ(berth_stream_create(devices, 1, &stream, NULL), BERTH_OK);
    CHECK_EQ(berth_stream_call(devices, 1, stream, count_call, &calls, 1.5, NULL),
             BERTH_OK);
    CHECK_EQ(atomic_load(&calls), 0); /* later */
    CHECK(berth_devices_seconds(devices) == 0);
    CHECK_EQ(berth_stream_wait(devices, 1, stream, 0, NULL), BERTH_PENDING);
    CHECK_EQ(berth_stream_wait(devices, 1, stream, -1, NULL), BERTH_OK);
    CHECK_EQ(atomic_load(&calls), 1);
    CHECK(berth_devices_seconds(devices) > 1.499999
          && berth_devices_seconds(devices) < 1.500001);
    CHECK_EQ(berth_stream_call(devices, 1, stream, count_call, &calls, 1, NULL), BERTH_OK);
    berth_stream_destroy(devices, 1, stream); /* waits */
    CHECK_EQ(atomic_load(&calls), 2);
    CHECK_EQ(berth_stream_wait(devices, 0, NULL, INT64_MAX, NULL), BERTH_OK);
    berth_devices_close(devices);
}

static void
test_failures_are_told(void)
{
    berth_devices *devices = opened("sim:lose=3");
    _Atomic int calls = 0;
    berth_error error;
    void *stream;

    CHECK_EQ(berth_stream_create(devices, 0, &stream, NULL), BERTH_OK);
    CHECK_EQ(berth_stream_call(devices, 0, stream, count_call, &calls, 1, NULL), BERTH_OK);
    CHECK_EQ(berth_stream_wait(devices, 0, stream, -1, &error), BERTH_ENODEV);
    CHECK_EQ(error.reason, BERTH_REASON_DEVICE_LOST);
    CHECK_EQ(berth_stream_wait(devices, 0, stream, -1, &error), BERTH_ENODEV);
    berth_stream_destroy(devices, 0, stream);
    berth_devices_close(devices);
    devices = opened("sim:stall=1");
    CHECK_EQ(berth_stream_wait(devices, 0, NULL, 20, &error), BERTH_PENDING);
    berth_devices_close(devices);
}

/* An event or a record that is refused leaves nothing. */
static void
test_refused(void)
{
    for (uint64_t nth = 0; nth < 4; nth++) {
        berth_devices *const devices = opened("cpu");

        berthi_fault_arm(BERTHI_FAULT_DEVICE, nth, false);
        CHECK_EQ(berth_stream_wait(devices, 0, NULL, 0, NULL),
                 nth < 3 ? BERTH_ENODEV : BERTH_OK);
        berthi_fault_disarm();
        berth_devices_close(devices);
    }
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_arguments);
    T_RUN(test_the_processor);
    T_RUN(test_simulated);
    T_RUN(test_failures_are_told);
    T_RUN(test_refused);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
