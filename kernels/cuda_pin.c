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
#include "kernels/grow.h"
#include "kernels/sys.h"

#define FIRST_PINS 16u

/* The number of the first one that ends behind `at`; none does: their count. */
static uint64_t
first_behind(const berthi_cuda *machine, const void *at)
{
    uint64_t begin = 0;
    uint64_t end = machine->pin_count;

    while (begin < end) {
        const uint64_t middle = begin + (end - begin) / 2;
        const berthi_cuda_pin *const pin = &machine->pins[middle];

        if ((uintptr_t)pin->memory + pin->bytes <= (uintptr_t)at)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* That of exactly these bytes, or one that overlaps them; NULL: neither. */
static berthi_cuda_pin *
find(const berthi_cuda *machine, const void *memory, uint64_t bytes)
{
    const uint64_t number = first_behind(machine, memory);

    return number < machine->pin_count
                   && (uintptr_t)machine->pins[number].memory < (uintptr_t)memory + bytes
               ? &machine->pins[number]
               : NULL;
}

uint64_t
berthi_cuda_pin_span(berthi_cuda *machine, const void *at, uint64_t bytes)
{
    const uintptr_t begin = (uintptr_t)at;
    uint64_t span = bytes;
    uint64_t number;

    pthread_mutex_lock(&machine->pins_lock);
    number = first_behind(machine, at);
    if (number < machine->pin_count) {
        const berthi_cuda_pin *const pin = &machine->pins[number];
        const uintptr_t its = (uintptr_t)pin->memory;

        span = begin < its ? its - begin : its + pin->bytes - begin;
    }
    pthread_mutex_unlock(&machine->pins_lock);
    return berthi_min_u64(span, bytes);
}

/* For one more pin. False: out of memory. */
static bool
make_room(berthi_cuda *machine)
{
    const berthi_growth growth = { .size = sizeof *machine->pins,
                                   .used = machine->pin_count,
                                   .before = machine->pin_capacity,
                                   .after = berthi_grown(machine->pin_capacity, FIRST_PINS) };
    berthi_cuda_pin *const old = machine->pins;
    berthi_cuda_pin *grown;

    if (machine->pin_count < machine->pin_capacity)
        return true;
    grown = berthi_memory_copy(machine->context, BERTHI_PURPOSE_OBJECT, old, &growth);
    if (grown == NULL)
        return false;
    pthread_mutex_lock(&machine->pins_lock);
    machine->pins = grown;
    pthread_mutex_unlock(&machine->pins_lock);
    berthi_memory_free(machine->context, BERTHI_PURPOSE_OBJECT, old,
                       machine->pin_capacity * sizeof *grown);
    machine->pin_capacity = growth.after;
    return true;
}

/* There is room. */
static void
insert(berthi_cuda *machine, void *memory, uint64_t bytes)
{
    const uint64_t at = first_behind(machine, memory);

    pthread_mutex_lock(&machine->pins_lock);
    memmove(&machine->pins[at + 1], &machine->pins[at],
            (size_t)(machine->pin_count - at) * sizeof *machine->pins);
    machine->pins[at] = (berthi_cuda_pin){ memory, bytes, 1 };
    machine->pin_count++;
    pthread_mutex_unlock(&machine->pins_lock);
}

static void
take_out(berthi_cuda *machine, berthi_cuda_pin *pin)
{
    const uint64_t behind = (uint64_t)(machine->pins + machine->pin_count - (pin + 1));

    pthread_mutex_lock(&machine->pins_lock);
    memmove(pin, pin + 1, (size_t)behind * sizeof *pin);
    machine->pin_count--;
    pthread_mutex_unlock(&machine->pins_lock);
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

    if (!make_room(machine))
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
    insert(machine, memory, bytes);
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

/*
 * Where a GPU hangs, the driver would wait for it: its pages stay registered for good. So they stay
 * where they are, too: of what comes to lie there later a copy would bring what these hold.
 */
static void
give_up(const berthi_cuda_call *call, void *memory)
{
    berthi_cuda *const machine = call->device->machine;

    if (atomic_load(&machine->has_hung))
        berthi_memory_abandon(machine->context, memory);
    else
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
        take_out(machine, pin);
    }
    pthread_mutex_unlock(&machine->pin_lock);
}

void
berthi_cuda_pin_fini(berthi_cuda *machine)
{
    berthi_memory_free(machine->context, BERTHI_PURPOSE_OBJECT, machine->pins,
                       machine->pin_capacity * sizeof *machine->pins);
}
