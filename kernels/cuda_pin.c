/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_pin.c - host memory that is registered with the driver; see cuda_device.h.
 *
 * It is registered for all GPUs at once, by the first that asks for it, and given up with
 * the last. The same bytes twice are one registration, others that overlap a mistake.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/cuda_device.h"
#include "kernels/sys.h"

#define FIRST_PINS 16u

/* That of exactly these bytes, or one that overlaps them; NULL: neither. */
static berthi_cuda_pin *
find(const berthi_cuda *machine, const void *memory, uint64_t bytes)
{
    const uintptr_t begin = (uintptr_t)memory;

    for (uint64_t i = 0; i < machine->pin_count; i++) {
        berthi_cuda_pin *const pin = &machine->pins[i];
        const uintptr_t its = (uintptr_t)pin->memory;

        if (begin < its + pin->bytes && its < begin + bytes)
            return pin;
    }
    return NULL;
}

static bool
has_room(berthi_cuda *machine)
{
    const uint64_t more = berthi_max_u64(FIRST_PINS, 2 * machine->pin_capacity);
    berthi_cuda_pin *grown;

    if (machine->pin_count < machine->pin_capacity)
        return true;
    grown = berthi_memory_array(machine->context, BERTHI_PURPOSE_OBJECT, more, sizeof *grown);
    if (grown == NULL)
        return false;
    if (machine->pin_count > 0)
        memcpy(grown, machine->pins, (size_t)machine->pin_count * sizeof *grown);
    berthi_memory_free(machine->context, BERTHI_PURPOSE_OBJECT, machine->pins,
                       machine->pin_capacity * sizeof *grown);
    machine->pins = grown;
    machine->pin_capacity = more;
    return true;
}

static berth_status
refuse(const berthi_cuda_call *call, berth_reason reason, uint64_t bytes,
       const char *problem)
{
    return berthi_fail(call->error, reason, NULL,
                       "%s: host memory of %" PRIu64 " bytes %s", call->device->name, bytes,
                       problem);
}

/* Registers it and notes that; the lock is held. */
static berth_status
add(const berthi_cuda_call *call, void *memory, uint64_t bytes)
{
    berthi_cuda *const machine = call->device->machine;
    int code;

    if (!has_room(machine))
        return refuse(call, BERTH_REASON_NO_MEMORY, bytes, "finds no memory to note it");
    /* Pages that are there already are registered several times as fast. */
    if (berthi_sys_map_touch(memory, (size_t)bytes) != 0)
        return refuse(call, BERTH_REASON_NO_MEMORY, bytes, "is not there in full");
    code = call->calls->pin(memory, bytes);
    if (code == BERTHI_CUDA_REGISTERED) {
        (void)call->calls->last_error();
        return refuse(call, BERTH_REASON_NO_MEMORY, bytes,
                      "is registered by somebody else in this process");
    }
    if (code != BERTHI_CUDA_OK)
        return berthi_cuda_judge(call, code);
    machine->pins[machine->pin_count++] = (berthi_cuda_pin){ memory, bytes, 1 };
    return BERTH_OK;
}

berth_status
berthi_cuda_pin_add(const berthi_cuda_call *call, void *memory, uint64_t bytes)
{
    berthi_cuda *const machine = call->device->machine;
    berth_status status = BERTH_OK;
    berthi_cuda_pin *pin;

    if ((uintptr_t)memory % berthi_sys_page_bytes() != 0)
        return refuse(call, BERTH_REASON_INTERNAL, bytes, "does not begin with a page");
    if (bytes == 0 || (uintptr_t)memory + bytes < (uintptr_t)memory)
        return refuse(call, BERTH_REASON_INTERNAL, bytes, "is no memory");
    pthread_mutex_lock(&machine->pin_lock);
    pin = find(machine, memory, bytes);
    if (pin == NULL)
        status = add(call, memory, bytes);
    else if (pin->memory == memory && pin->bytes == bytes)
        pin->users++;
    else
        status =
            refuse(call, BERTH_REASON_INTERNAL, bytes, "overlaps memory that is pinned");
    pthread_mutex_unlock(&machine->pin_lock);
    return status;
}

/* Where a GPU hangs, the driver would wait for it: its pages stay registered for good. */
static void
give_up(const berthi_cuda_call *call, void *memory)
{
    if (!atomic_load(&call->device->machine->has_hung))
        (void)berthi_cuda_judge(call, call->calls->unpin(memory));
}

void
berthi_cuda_pin_remove(const berthi_cuda_call *call, void *memory, uint64_t bytes)
{
    berthi_cuda *const machine = call->device->machine;
    berthi_cuda_pin *pin;

    pthread_mutex_lock(&machine->pin_lock);
    pin = find(machine, memory, bytes);
    if (pin != NULL && pin->memory == memory && pin->bytes == bytes && --pin->users == 0) {
        give_up(call, memory);
        *pin = machine->pins[--machine->pin_count];
    }
    pthread_mutex_unlock(&machine->pin_lock);
}

void
berthi_cuda_pin_fini(berthi_cuda *machine)
{
    berthi_memory_free(machine->context, BERTHI_PURPOSE_OBJECT, machine->pins,
                       machine->pin_capacity * sizeof *machine->pins);
}
