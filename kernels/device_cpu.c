/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cpu.c - host memory as a device, with real arithmetic.
 *
 * Everything is done when it is asked for, on the thread that asks: streams are in
 * order by themselves, and events have passed when they are recorded. Any number of
 * threads at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/digest.h"
#include "kernels/fault.h"
#include "kernels/host.h"
#include "kernels/sys.h"

typedef struct cpu_device {
    berthi_device base;
    berthi_operations operations; /* of the best level of this processor */
} cpu_device;

/* They hold nothing; that they are allocated is what finds one not given back. */
struct berthi_stream {
    char unused;
};
struct berthi_event {
    char unused;
};

/* Test builds: where another device would have failed. */
static berth_status
check_fault(const char *what, berth_error *error)
{
    if (berthi_fault_is_due(BERTHI_FAULT_DEVICE))
        return berthi_fail(error, BERTH_REASON_DEVICE, NULL, "cpu: %s failed", what);
    (void)what;
    (void)error;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- properties */

static void
cpu_describe(berthi_device *device, berthi_device_properties *out)
{
    const cpu_device *const cpu = (const cpu_device *)device;
    berthi_host_process process;
    berth_host host;

    memset(out, 0, sizeof *out);
    berthi_host_process_get(&process);
    berthi_host_read("/", &process, &host);
    if (device->number == 0)
        snprintf(out->name, sizeof out->name, "cpu");
    else
        snprintf(out->name, sizeof out->name, "cpu:%" PRIu32, device->number);
    snprintf(out->description, sizeof out->description, "host memory, %s arithmetic",
             cpu->operations.level);
    out->memory_bytes = host.memory_total;
    out->free_bytes = host.memory_available;
    out->numa_node = -1;
    out->is_host = true;
}

/* ------------------------------------------------------------------------ memory */

static berth_status
cpu_alloc(berthi_device *device, uint64_t bytes, void **out, berth_error *error)
{
    *out = NULL;
    if (berthi_fault_is_due(BERTHI_FAULT_DEVICE))
        return berthi_fail(error, BERTH_REASON_NO_FIT, NULL, "cpu: no room for a slab");
    *out = berthi_memory_aligned(device->context, BERTHI_PURPOSE_WEIGHTS, bytes,
                                 berthi_sys_page_bytes());
    if (*out == NULL)
        return berthi_fail(error, BERTH_REASON_NO_MEMORY, NULL,
                           "out of memory: %" PRIu64 " bytes for weights", bytes);
    return BERTH_OK;
}

static void
cpu_free(berthi_device *device, void *memory, uint64_t bytes)
{
    berthi_memory_free_aligned(device->context, BERTHI_PURPOSE_WEIGHTS, memory, bytes,
                               berthi_sys_page_bytes());
}

/* Nothing is copied behind the caller's back, so nothing has to stay where it is. */
static berth_status
cpu_pin(berthi_device *device, void *memory, uint64_t bytes, berth_error *error)
{
    (void)device;
    (void)memory;
    (void)bytes;
    if (berthi_fault_is_due(BERTHI_FAULT_DEVICE))
        return berthi_fail_memory(error, "pinning memory");
    (void)error;
    return BERTH_OK;
}

static void
cpu_unpin(berthi_device *device, void *memory, uint64_t bytes)
{
    (void)device;
    (void)memory;
    (void)bytes;
}

/* ------------------------------------------------------------- streams and events */

static berth_status
cpu_stream_create(berthi_device *device, berthi_stream **out, berth_error *error)
{
    berth_status status;

    *out = NULL;
    status = check_fault("making a stream", error);
    if (status != BERTH_OK)
        return status;
    *out = berthi_memory_zalloc(device->context, BERTHI_PURPOSE_OBJECT, sizeof **out);
    return *out != NULL ? BERTH_OK : berthi_fail_memory(error, "making a stream");
}

static void
cpu_stream_destroy(berthi_device *device, berthi_stream *stream)
{
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, stream, sizeof *stream);
}

static berth_status
cpu_event_create(berthi_device *device, berthi_event **out, berth_error *error)
{
    berth_status status;

    *out = NULL;
    status = check_fault("making an event", error);
    if (status != BERTH_OK)
        return status;
    *out = berthi_memory_zalloc(device->context, BERTHI_PURPOSE_OBJECT, sizeof **out);
    return *out != NULL ? BERTH_OK : berthi_fail_memory(error, "making an event");
}

static void
cpu_event_destroy(berthi_device *device, berthi_event *event)
{
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, event, sizeof *event);
}

static berth_status
cpu_record(berthi_device *device, berthi_event *event, berthi_stream *stream,
           berth_error *error)
{
    (void)device;
    (void)event;
    (void)stream;
    return check_fault("recording an event", error);
}

static berth_status
cpu_wait(berthi_device *device, berthi_stream *stream, berthi_event *event,
         berth_error *error)
{
    (void)device;
    (void)stream;
    (void)event;
    return check_fault("waiting for an event", error);
}

static berth_status
cpu_query(berthi_device *device, berthi_event *event, bool *out_is_past,
          berth_error *error)
{
    (void)device;
    (void)event;
    *out_is_past = true;
    return check_fault("asking for an event", error);
}

static berth_status
cpu_await(berthi_device *device, berthi_event *event, uint64_t deadline_ns,
          berth_error *error)
{
    (void)device;
    (void)event;
    (void)deadline_ns;
    return check_fault("waiting for an event", error);
}

/* -------------------------------------------------------------------------- work */

static berth_status
cpu_copy(berthi_device *device, const berthi_copy *copy, berthi_stream *stream,
         berth_error *error)
{
    const berth_status status = check_fault("a copy", error);

    (void)device;
    (void)stream;
    if (status == BERTH_OK && copy->bytes > 0)
        memcpy(copy->to, copy->from, (size_t)copy->bytes);
    return status;
}

static berth_status
cpu_clear(berthi_device *device, void *memory, uint64_t bytes, berthi_stream *stream,
          berth_error *error)
{
    const berth_status status = check_fault("zeroing memory", error);

    (void)device;
    (void)stream;
    if (status == BERTH_OK && bytes > 0)
        memset(memory, 0, (size_t)bytes);
    return status;
}

static bool
cpu_has_operation(const berthi_device *device, int32_t operation)
{
    (void)device;
    return berthi_operation_is_known(operation);
}

static berth_status
cpu_launch(berthi_device *device, const berthi_request *request, berthi_stream *stream,
           berth_error *error)
{
    const cpu_device *const cpu = (const cpu_device *)device;
    berth_status status = check_fault("an operation", error);

    (void)stream;
    if (status == BERTH_OK)
        status = berthi_operation_check("cpu", request, error);
    if (status == BERTH_OK)
        berthi_operation_run(&cpu->operations, request);
    return status;
}

static berth_status
cpu_digest(berthi_device *device, const void *memory, uint64_t bytes, uint32_t *out_crc,
           berth_error *error)
{
    const berth_status status = check_fault("a digest", error);

    (void)device;
    *out_crc =
        status == BERTH_OK ? berthi_digest_crc32(0, memory, (size_t)bytes) : 0;
    return status;
}

static uint64_t
cpu_now_ns(berthi_device *device)
{
    (void)device;
    return berthi_sys_now_ns();
}

/* ----------------------------------------------------------------- opening, closing */

static const berthi_device_table cpu_table = {
    .kind = "cpu",
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .record = cpu_record,
    .wait = cpu_wait,
    .query = cpu_query,
    .await = cpu_await,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .has_operation = cpu_has_operation,
    .launch = cpu_launch,
    .digest = cpu_digest,
    .now_ns = cpu_now_ns,
};

berth_status
berthi_device_cpu_open(berth_context *context, berthi_device **out, berth_error *error)
{
    cpu_device *const cpu =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *cpu);

    *out = NULL;
    if (cpu == NULL)
        return berthi_fail_memory(error, "opening the processor");
    cpu->base.table = &cpu_table;
    cpu->base.context = context;
    cpu->operations = berthi_level_operations(context->level);
    *out = &cpu->base;
    return BERTH_OK;
}

void
berthi_device_cpu_close(berthi_device *device)
{
    if (device != NULL)
        berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, device,
                           sizeof(cpu_device));
}
