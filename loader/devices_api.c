/* SPDX-License-Identifier: Apache-2.0 */
/* devices_api.c - devices and streams of berth.h: arguments checked, then one call. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/sys.h"
#include "loader/compute.h"
#include "loader/stranded.h"

#define NS_OF_MS UINT64_C(1000000)

/* ----------------------------------------------------------------------- devices */

berth_status
berth_devices_open(berth_context *context, const char *words, berth_devices **out_devices,
                   berth_error *error)
{
    berthi_error_clear(error);
    if (out_devices == NULL)
        return berthi_fail_argument(error, "out_devices", "is NULL");
    *out_devices = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (words == NULL)
        return berthi_fail_argument(error, "words", "is NULL");
    return berthi_devices_open(context, words, out_devices, error);
}

void
berth_devices_close(berth_devices *devices)
{
    berthi_devices_close(devices);
}

uint32_t
berth_devices_count(const berth_devices *devices)
{
    return berthi_devices_count(devices);
}

static void
give_links(berthi_device *device, berth_device *out)
{
    berthi_device_links links = { .pci = { .generation = 0 } };

    if (device->table->find_links != NULL)
        device->table->find_links(device, &links);
    out->pcie_generation = links.pci.generation;
    out->pcie_width = links.pci.width;
    out->pcie_most_generation = links.pci.most_generation;
    out->pcie_most_width = links.pci.most_width;
    out->nvlink_links = links.nv.links;
    out->nvlink_version = links.nv.version;
    out->nvlink_mb_per_s = links.nv.mb_per_s;
    out->c2c_mb_per_s = links.nv.c2c_mb_per_s;
}

berth_status
berth_devices_get(const berth_devices *devices, uint32_t number, berth_device *out)
{
    berthi_device_properties properties;
    berthi_device *device;

    memset(out, 0, sizeof *out);
    if (number >= berthi_devices_count(devices))
        return BERTH_EINVAL;
    device = berthi_devices_at(devices, number);
    device->table->describe(device, &properties);
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    snprintf(out->description, sizeof out->description, "%s", properties.description);
    out->memory_bytes = properties.memory_bytes;
    out->free_bytes = properties.free_bytes;
    out->numa_node = properties.numa_node;
    out->is_host = properties.is_host;
    out->is_simulated = properties.is_simulated;
    out->copy_engines = properties.copy_engines;
    give_links(device, out);
    return BERTH_OK;
}

double
berth_devices_seconds(const berth_devices *devices)
{
    return 1e-9 * (double)berthi_devices_elapsed_ns(devices);
}

/* ----------------------------------------------------------------------- streams */

berth_status
berthi_find_device(berth_devices *devices, uint32_t number, berthi_device **out,
                   berth_error *error)
{
    *out = NULL;
    if (devices == NULL)
        return berthi_fail_argument(error, "devices", "is NULL");
    if (number >= berthi_devices_count(devices))
        return berthi_fail_argument(error, "number", "is that of no device");
    *out = berthi_devices_at(devices, number);
    return BERTH_OK;
}

berth_status
berth_stream_create(berth_devices *devices, uint32_t number, void **out_stream,
                    berth_error *error)
{
    berthi_stream *stream = NULL;
    berthi_device *device;
    berth_status status;

    berthi_error_clear(error);
    if (out_stream == NULL)
        return berthi_fail_argument(error, "out_stream", "is NULL");
    *out_stream = NULL;
    status = berthi_find_device(devices, number, &device, error);
    if (status == BERTH_OK)
        status = device->table->stream_create(device, &stream, error);
    *out_stream = stream;
    return status;
}

/* A stream that hangs, until it is over or its device is lost. */
typedef struct left_stream {
    berthi_kept kept; /* first: what the context has is this */
    berthi_stream_end end;
} left_stream;

static void
end_left(left_stream *left)
{
    berthi_device *const device = left->end.device;

    device->table->event_destroy(device, left->end.event);
    device->table->stream_destroy(device, left->end.stream);
    berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, left, sizeof *left);
}

static bool
try_end(berthi_kept *kept)
{
    left_stream *const left = (left_stream *)kept;

    if (!berthi_stream_is_over(&left->end))
        return false;
    end_left(left);
    return true;
}

/* What it takes to leave a stream to the context; false: no memory, no event. */
static bool
prepare_left(berthi_device *device, berthi_stream *stream, left_stream **out)
{
    left_stream *const left =
        berthi_memory_zalloc(device->context, BERTHI_PURPOSE_OBJECT, sizeof *left);
    berth_error error;

    if (left == NULL)
        return false;
    left->kept.try_end = try_end;
    left->end = (berthi_stream_end){ .device = device, .stream = stream };
    if (device->table->event_create(device, &left->end.event, &error) != BERTH_OK) {
        berthi_memory_free(device->context, BERTHI_PURPOSE_OBJECT, left, sizeof *left);
        return false;
    }
    *out = left;
    return true;
}

void
berth_stream_destroy(berth_devices *devices, uint32_t number, void *stream)
{
    berthi_device *device;
    left_stream *left;
    uint64_t now_ns;

    if (stream == NULL || berthi_find_device(devices, number, &device, NULL) != BERTH_OK)
        return;
    now_ns = berthi_sys_now_ns();
    if (!prepare_left(device, stream, &left))
        device->table->stream_destroy(device, stream);
    else if (berthi_stream_hangs(&left->end,
                                 berthi_add_capped(now_ns, device->context->hung_ns)))
        berthi_context_keep(device->context, &left->kept);
    else
        end_left(left);
}

berth_status
berth_stream_call(berth_devices *devices, uint32_t number, void *stream,
                  void (*call)(void *user), void *user, double seconds,
                  berth_error *error)
{
    const berthi_request request = {
        .operation = BERTHI_OPERATION_CALL,
        .arguments.call = { .call = call, .user = user, .seconds = seconds },
    };
    berthi_device *device;
    berth_status status;

    berthi_error_clear(error);
    status = berthi_find_device(devices, number, &device, error);
    if (status != BERTH_OK)
        return status;
    if (call == NULL)
        return berthi_fail_argument(error, "call", "is NULL");
    if (!isfinite(seconds) || seconds < 0)
        return berthi_fail_argument(error, "seconds", "is no length of time");
    if (!device->table->has_operation(device, BERTHI_OPERATION_CALL))
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "this device calls no functions of the host");
    return device->table->launch(device, &request, stream, error);
}

/* `milliseconds` from now; UINT64_MAX: never. */
static uint64_t
deadline_of(int64_t milliseconds)
{
    uint64_t deadline;

    if (milliseconds < 0 || !berthi_can_mul((uint64_t)milliseconds, NS_OF_MS, &deadline)
        || !berthi_can_add(deadline, berthi_sys_now_ns(), &deadline))
        return UINT64_MAX;
    return deadline;
}

berth_status
berth_stream_wait(berth_devices *devices, uint32_t number, void *stream,
                  int64_t milliseconds, berth_error *error)
{
    const uint64_t deadline = deadline_of(milliseconds);
    berthi_event *event = NULL;
    berthi_device *device;
    berth_status status;

    berthi_error_clear(error);
    status = berthi_find_device(devices, number, &device, error);
    if (status == BERTH_OK)
        status = device->table->event_create(device, &event, error);
    if (status != BERTH_OK)
        return status;
    status = device->table->record(device, event, stream, error);
    if (status == BERTH_OK)
        status = device->table->await(device, event, deadline, error);
    device->table->event_destroy(device, event);
    return status;
}
