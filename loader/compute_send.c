/* SPDX-License-Identifier: Apache-2.0 */
/* compute_send.c - bytes from one device to another, in the order of both their streams. */
#include "loader/compute.h"

#define BUFFER_BYTES (UINT64_C(1) << 20) /* of host memory, between devices that are apart */

/* A device and one of its streams. */
typedef struct end {
    berthi_device *device;
    void *stream;
} end;

/* What `second` is asked for from now on comes behind what `first` has been asked for. */
static berth_status
put_behind(const end *first, const end *second, berth_error *error)
{
    const berthi_device_table *const table = first->device->table;
    berthi_event *event;
    berth_status status = table->event_create(first->device, &event, error);

    if (status != BERTH_OK)
        return status;
    status = table->record(first->device, event, first->stream, error);
    if (status == BERTH_OK)
        status = second->device->table->wait(second->device, second->stream, event, error);
    table->event_destroy(first->device, event);
    return status;
}

static berth_status
send_directly(const end *from, const end *to, const berth_send *send, berth_error *error)
{
    const bool is_own = from->device == to->device;
    const berthi_copy copy = { .kind = is_own ? BERTHI_COPY_WITHIN : BERTHI_COPY_TO_PEER,
                               .to = send->to,
                               .from = send->from,
                               .bytes = send->bytes,
                               .peer = is_own ? NULL : to->device };
    berth_status status = put_behind(to, from, error);

    if (status == BERTH_OK)
        status = from->device->table->copy(from->device, &copy, from->stream, error);
    return status == BERTH_OK ? put_behind(from, to, error) : status;
}

/* Copies that are not pinned return when the buffer has been written, or read. */
static berth_status
send_piece(const end *from, const end *to, const berth_send *piece, void *buffer,
           berth_error *error)
{
    const berthi_copy out = { .kind = BERTHI_COPY_TO_HOST,
                              .to = buffer,
                              .from = piece->from,
                              .bytes = piece->bytes };
    const berthi_copy in = { .kind = BERTHI_COPY_TO_DEVICE,
                             .to = piece->to,
                             .from = buffer,
                             .bytes = piece->bytes };
    const berth_status status = from->device->table->copy(from->device, &out, from->stream,
                                                          error);

    return status == BERTH_OK ? to->device->table->copy(to->device, &in, to->stream, error)
                              : status;
}

static berth_status
send_by_host(const end *from, const end *to, const berth_send *send, berth_error *error)
{
    berth_context *const context = from->device->context;
    const uint64_t room = berthi_min_u64(send->bytes, BUFFER_BYTES);
    berth_status status = BERTH_OK;
    void *buffer;

    if (room == 0)
        return BERTH_OK;
    buffer = berthi_memory_alloc(context, BERTHI_PURPOSE_RING, room);
    if (buffer == NULL)
        return berthi_fail_memory(error, "copying from one device to another");
    for (uint64_t done = 0; done < send->bytes && status == BERTH_OK; done += room) {
        const berth_send piece = { .from = (const char *)send->from + done,
                                   .to = (char *)send->to + done,
                                   .bytes = berthi_min_u64(room, send->bytes - done) };

        status = send_piece(from, to, &piece, buffer, error);
    }
    berthi_memory_free(context, BERTHI_PURPOSE_RING, buffer, room);
    return status;
}

berth_status
berth_device_send(berth_devices *devices, uint32_t number, const berth_send *send,
                  berth_error *error)
{
    end from;
    end to;
    berth_status status;

    berthi_error_clear(error);
    if (send == NULL)
        return berthi_fail_argument(error, "send", "is NULL");
    if (send->to == NULL && send->bytes > 0)
        return berthi_fail_argument(error, "to", "is NULL");
    if (send->from == NULL && send->bytes > 0)
        return berthi_fail_argument(error, "from", "is NULL");
    status = berthi_find_device(devices, number, &from.device, error);
    if (status == BERTH_OK)
        status = berthi_find_device(devices, send->other, &to.device, error);
    if (status != BERTH_OK)
        return status;
    from.stream = send->stream;
    to.stream = send->other_stream;
    if (from.device == to.device || berthi_device_reaches(from.device, to.device))
        return send_directly(&from, &to, send, error);
    return send_by_host(&from, &to, send, error);
}
