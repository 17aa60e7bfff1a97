/* SPDX-License-Identifier: Apache-2.0 */
/* device_pin.c - host memory of any size, pinned for a device in pieces. */
#include "kernels/device.h"

uint64_t
berthi_pin_piece(const void *at, uint64_t bytes)
{
    if (bytes <= BERTHI_PIN_PIECE)
        return bytes;
    return BERTHI_PIN_PIECE - (uintptr_t)at % BERTHI_PIN_PIECE;
}

/* The pieces of the first `pinned` bytes. */
static void
unpin_pieces(berthi_device *device, uint8_t *memory, uint64_t bytes, uint64_t pinned)
{
    for (uint64_t at = 0; at < pinned;) {
        const uint64_t piece = berthi_pin_piece(memory + at, bytes - at);

        device->table->unpin(device, memory + at, piece);
        at += piece;
    }
}

berth_status
berthi_device_pin(berthi_device *device, void *memory, uint64_t bytes,
                  const berthi_pin_watch *watch, berth_error *error)
{
    uint8_t *const begin = memory;
    berth_status status = BERTH_OK;
    uint64_t at = 0;

    while (at < bytes && status == BERTH_OK) {
        const uint64_t piece = berthi_pin_piece(begin + at, bytes - at);

        status = device->table->pin(device, begin + at, piece, error);
        if (status != BERTH_OK)
            break;
        at += piece;
        if (watch != NULL)
            status = watch->note_pinned(watch->user, piece, error);
    }
    if (status != BERTH_OK)
        unpin_pieces(device, begin, bytes, at);
    return status;
}

void
berthi_device_unpin(berthi_device *device, void *memory, uint64_t bytes)
{
    unpin_pieces(device, memory, bytes, bytes);
}
