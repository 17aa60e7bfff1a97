/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda_memory.c - memory of the fake GPUs, and what is pinned; see fake_cuda_state.h */
#define _DEFAULT_SOURCE /* mincore() */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_cuda_state.h"

#define ALIGNMENT UINT64_C(256)
#define POISON 0xA5
#define NOT_REGISTERED 713

fake_cuda_stretch *
fake_cuda_find_memory(fake_cuda_stretch *list, const void *at, uint64_t bytes)
{
    while (list != NULL
           && ((uintptr_t)at < (uintptr_t)list->memory || bytes > list->bytes
               || (uintptr_t)at - (uintptr_t)list->memory > list->bytes - bytes))
        list = list->next;
    return list;
}

/* Takes out what begins there; NULL: nothing does. */
fake_cuda_stretch *
fake_cuda_take_memory(fake_cuda_stretch **list, const void *at)
{
    fake_cuda_stretch *found;

    while (*list != NULL && (*list)->memory != at)
        list = &(*list)->next;
    found = *list;
    if (found != NULL)
        *list = found->next;
    return found;
}

static void
add_memory(fake_cuda_stretch **list, void *memory, uint64_t bytes, int device)
{
    fake_cuda_stretch *const s = malloc(sizeof *s);

    if (s == NULL)
        abort();
    *s = (fake_cuda_stretch){ *list, memory, bytes, device };
    *list = s;
}

static int
fake_memory_info(uint64_t *out_free, uint64_t *out_total)
{
    const int code = fake_cuda_enter_current();

    *out_free = code == BERTHI_CUDA_OK ? fake_cuda_now.free_bytes[fake_cuda_device] : 0;
    *out_total = fake_cuda_now.machine.memory_bytes;
    return fake_cuda_leave(code);
}

static int
fake_alloc(void **out, uint64_t bytes)
{
    const int code = fake_cuda_enter_current();
    const uint64_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    *out = NULL;
    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    if (fake_cuda_check_capture() != BERTHI_CUDA_OK)
        return fake_cuda_leave(CAPTURE_UNSUPPORTED);
    if (whole < bytes || whole > fake_cuda_now.free_bytes[fake_cuda_device])
        return fake_cuda_leave(BERTHI_CUDA_NO_MEMORY);
    *out = aligned_alloc(ALIGNMENT, (size_t)whole);
    if (*out == NULL)
        abort();
    memset(*out, POISON, (size_t)whole);
    fake_cuda_now.free_bytes[fake_cuda_device] -= whole;
    fake_cuda_now.books.allocations++;
    add_memory(&fake_cuda_now.allocations, *out, whole, fake_cuda_device);
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_free(void *memory)
{
    int code = fake_cuda_enter_current();
    fake_cuda_stretch *const s = fake_cuda_take_memory(&fake_cuda_now.allocations, memory);

    if (s == NULL)
        return fake_cuda_leave(fake_cuda_misuse(INVALID_VALUE));
    if (code == BERTHI_CUDA_OK)
        code = fake_cuda_check_capture();
    while (fake_cuda_can_step()) /* the runtime waits */
        ;
    fake_cuda_now.free_bytes[s->device] += s->bytes;
    fake_cuda_now.books.allocations--;
    free(s->memory);
    free(s);
    return fake_cuda_leave(code);
}

/* Kernels before 5.14 have no call for it. */
static bool
can_touch(uintptr_t at, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    return madvise((void *)at, (size_t)bytes, MADV_POPULATE_WRITE) == 0;
#else
    (void)at;
    (void)bytes;
    return false;
#endif
}

/*
 * Pages that are nowhere yet: a driver makes them one after the other while it registers, at a
 * quarter of the rate. None where the kernel does not tell, or could not have made them.
 */
static uint64_t
count_untouched(const void *memory, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)memory / page * page;
    const uint64_t pages = ((uintptr_t)memory + bytes - begin + page - 1) / page;
    unsigned char *const states = malloc((size_t)pages);
    uint64_t count = 0;

    if (states == NULL)
        abort();
    if (mincore((void *)begin, (size_t)(pages * page), states) == 0)
        for (uint64_t i = 0; i < pages; i++)
            count += (states[i] & 1) == 0;
    free(states);
    return can_touch(begin, page) ? count : 0;
}

static int
fake_pin(void *memory, uint64_t bytes)
{
    const int code = fake_cuda_enter_current();

    if (code != BERTHI_CUDA_OK)
        return fake_cuda_leave(code);
    for (const fake_cuda_stretch *s = fake_cuda_now.pins; s != NULL; s = s->next)
        if ((uint8_t *)memory < s->memory + s->bytes && s->memory < (uint8_t *)memory + bytes)
            return fake_cuda_leave(BERTHI_CUDA_REGISTERED);
    add_memory(&fake_cuda_now.pins, memory, bytes, fake_cuda_device);
    fake_cuda_now.books.pins++;
    fake_cuda_now.books.untouched += count_untouched(memory, bytes);
    return fake_cuda_leave(BERTHI_CUDA_OK);
}

static int
fake_unpin(void *memory)
{
    const int code = fake_cuda_enter_current();
    fake_cuda_stretch *const s = fake_cuda_take_memory(&fake_cuda_now.pins, memory);

    if (s == NULL)
        return fake_cuda_leave(fake_cuda_misuse(NOT_REGISTERED));
    fake_cuda_now.books.pins--;
    fake_cuda_now.books.stuck += fake_cuda_now.is_hung;
    free(s);
    return fake_cuda_leave(code);
}

void
fake_cuda_fill_memory(berthi_cuda_calls *calls)
{
    calls->memory_info = fake_memory_info;
    calls->alloc = fake_alloc;
    calls->free = fake_free;
    calls->pin = fake_pin;
    calls->unpin = fake_unpin;
}
