/* SPDX-License-Identifier: Apache-2.0 */
/* compute.c - memory of devices, and the steps of a layer in it, as berth.h has them. */
#include "loader/compute.h"

#include "loader/model.h"
#include "placement/slab.h"

/* ------------------------------------------------------------------------- memory */

berth_status
berth_device_alloc(berth_devices *devices, uint32_t number, uint64_t bytes,
                   void **out_memory, berth_error *error)
{
    berthi_device *device;
    void *memory = NULL;
    berth_status status;

    berthi_error_clear(error);
    if (out_memory == NULL)
        return berthi_fail_argument(error, "out_memory", "is NULL");
    *out_memory = NULL;
    status = berthi_find_device(devices, number, &device, error);
    if (status != BERTH_OK)
        return status;
    if (bytes == 0 || bytes % BERTHI_SLAB_ALIGNMENT != 0)
        return berthi_fail_argument(error, "bytes", "is no multiple of 256 from 256 on");
    status = device->table->alloc(device, bytes, &memory, error);
    if (status != BERTH_OK)
        return status;
    if (device->table->keep != NULL)
        status = device->table->keep(device, memory, bytes, error);
    if (status != BERTH_OK) {
        device->table->free(device, memory, bytes);
        return status;
    }
    berthi_book_take(berthi_device_book(device), BERTH_MEMORY_COMPUTING, bytes);
    *out_memory = memory;
    return BERTH_OK;
}

void
berth_device_free(berth_devices *devices, uint32_t number, void *memory, uint64_t bytes)
{
    berthi_device *device;

    if (memory == NULL || berthi_find_device(devices, number, &device, NULL) != BERTH_OK)
        return;
    device->table->free(device, memory, bytes);
    berthi_book_give(berthi_device_book(device), BERTH_MEMORY_COMPUTING, bytes);
}

/* ------------------------------------------------------------------------- copies */

/* Not pinned: the call returns when the host's side is done with. */
static berth_status
copy(berth_devices *devices, uint32_t number, const berthi_copy *what, void *stream,
     berth_error *error)
{
    berthi_device *device;
    berth_status status;

    berthi_error_clear(error);
    status = berthi_find_device(devices, number, &device, error);
    if (status != BERTH_OK)
        return status;
    if (what->to == NULL && what->bytes > 0)
        return berthi_fail_argument(error, "to", "is NULL");
    if (what->from == NULL && what->bytes > 0)
        return berthi_fail_argument(error, "from", "is NULL");
    return device->table->copy(device, what, stream, error);
}

berth_status
berth_device_write(berth_devices *devices, uint32_t number, void *to, const void *from,
                   uint64_t bytes, void *stream, berth_error *error)
{
    return copy(devices, number,
                &(berthi_copy){ .kind = BERTHI_COPY_TO_DEVICE,
                                .to = to,
                                .from = from,
                                .bytes = bytes },
                stream, error);
}

berth_status
berth_device_read(berth_devices *devices, uint32_t number, void *to, const void *from,
                  uint64_t bytes, void *stream, berth_error *error)
{
    return copy(devices, number,
                &(berthi_copy){ .kind = BERTHI_COPY_TO_HOST,
                                .to = to,
                                .from = from,
                                .bytes = bytes },
                stream, error);
}

/* ------------------------------------------------------------------------ tensors */

const void *
berthi_part_of(const berth_model_tensor *tensor, int32_t role)
{
    for (uint32_t i = 0; i < tensor->part_count; i++)
        if (tensor->parts[i].role == role)
            return tensor->parts[i].memory;
    return NULL;
}

berthi_device *
berthi_device_of(const berth_model *model, const berth_model_tensor *tensor)
{
    return tensor->device == BERTH_NO_INDEX ? model->host
                                            : berthi_devices_at(model->devices, tensor->device);
}

/* -------------------------------------------------------------------------- steps */

static berth_status
check_operation(berthi_device *device, const berthi_request *request, berth_error *error)
{
    berthi_device_properties properties;

    if (device->table->has_operation(device, request->operation))
        return BERTH_OK;
    device->table->describe(device, &properties);
    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                       "%s (%s) does not do what it is asked for", properties.name,
                       properties.description);
}

berth_status
berthi_launch_on(berthi_device *device, const berthi_request *request, void *stream,
                 berth_error *error)
{
    const berth_status status = check_operation(device, request, error);

    return status == BERTH_OK ? device->table->launch(device, request, stream, error) : status;
}

berth_status
berthi_launch_together_on(berthi_device *device, const berthi_request *requests, uint32_t count,
                          void *stream, berth_error *error)
{
    berth_status status = BERTH_OK;

    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = check_operation(device, &requests[i], error);
    if (status == BERTH_OK && device->table->launch_together != NULL)
        return device->table->launch_together(device, requests, count, stream, error);
    for (uint32_t i = 0; i < count && status == BERTH_OK; i++)
        status = device->table->launch(device, &requests[i], stream, error);
    return status;
}

static berth_status
ask(berth_devices *devices, uint32_t number, const berthi_request *request, void *stream,
    berth_error *error)
{
    berthi_device *device;
    const berth_status status = berthi_find_device(devices, number, &device, error);

    return status == BERTH_OK ? berthi_launch_on(device, request, stream, error) : status;
}

/* Each step is an operation that is called as it is. */
#define STEP(name, identifier)                                                            \
    berth_status berth_device_##name(berth_devices *devices, uint32_t number,             \
                                     const berth_##name *step, void *stream,              \
                                     berth_error *error)                                  \
    {                                                                                     \
        berthi_request request = { .operation = BERTHI_OPERATION_##identifier };          \
                                                                                          \
        berthi_error_clear(error);                                                        \
        if (step == NULL)                                                                 \
            return berthi_fail_argument(error, "step", "is NULL");                        \
        request.arguments.name = *step;                                                   \
        return ask(devices, number, &request, stream, error);                             \
    }

STEP(take, TAKE)
STEP(norm, NORM)
STEP(rotate, ROTATE)
STEP(attend, ATTEND)
STEP(gate, GATE)
STEP(add, ADD)
STEP(choose, CHOOSE)
STEP(largest, LARGEST)
