/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_memory.c - memory of a simulated device, and host memory pinned for it.
 *
 *   reserved  [ guard | poison ... | own | poison to the page's end | guard ]
 *
 * `own` ends where its last page does, as nearly as its alignment allows, so that
 * whoever reads or writes beyond it touches the guard. What is freed stays reserved
 * for a while without memory behind it, and is not given out again meanwhile.
 */
#include <string.h>

#include "kernels/base.h"
#include "kernels/sim.h"
#include "kernels/sys.h"

#define ALIGNMENT UINT64_C(256)
#define FIRST_ENTRIES 16u

static uint64_t
granules_of(uint64_t bytes)
{
    return berthi_max_u64(1, berthi_divide_up(bytes, BERTHI_SIM_GRANULE));
}

void
berthi_sim_memory_init(berthi_sim_memory *memory, berth_context *context,
                       const berthi_sim_device_words *words)
{
    memset(memory, 0, sizeof *memory);
    memory->context = context;
    memory->granules = words->memory_bytes / BERTHI_SIM_GRANULE;
    memory->keeps_digests = words->keeps_digests;
    memory->is_sealed = words->is_sealed;
    memory->pin_limit = words->pin_bytes;
#ifdef BERTH_TESTING
    if (words->steal_bytes > 0)
        memory->used =
            berthi_min_u64(granules_of(words->steal_bytes), memory->granules);
#endif
}

void
berthi_sim_memory_fini(berthi_sim_memory *memory)
{
    for (uint64_t i = 0; i < memory->allocation_count; i++)
        berthi_sim_allocation_destroy(memory->allocations[i]);
    for (uint64_t i = 0; i < memory->grave_count; i++) {
        const berthi_sim_stretch *const grave =
            &memory->graves[(memory->grave_first + i) % BERTHI_SIM_GRAVES];

        berthi_sys_reserve_end(grave->memory, (size_t)grave->bytes);
    }
    berthi_memory_free(memory->context, BERTHI_PURPOSE_OBJECT, memory->allocations,
                       memory->allocation_capacity * sizeof *memory->allocations);
    berthi_memory_free(memory->context, BERTHI_PURPOSE_OBJECT, memory->pins,
                       memory->pin_capacity * sizeof *memory->pins);
}

/* Room for one more element of `size` bytes; false when out of memory. */
static bool
make_room(berth_context *context, void **elements, uint64_t count, uint64_t *capacity,
          uint64_t size)
{
    const uint64_t more = berthi_max_u64(FIRST_ENTRIES, 2 * *capacity);
    void *grown;

    if (count < *capacity)
        return true;
    grown = berthi_memory_array(context, BERTHI_PURPOSE_OBJECT, more, size);
    if (grown == NULL)
        return false;
    if (count > 0)
        memcpy(grown, *elements, (size_t)(count * size));
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, *elements, *capacity * size);
    *elements = grown;
    *capacity = more;
    return true;
}

/* ---------------------------------------------------------------------- capacity */

bool
berthi_sim_memory_claim(berthi_sim_memory *memory, uint64_t bytes)
{
    const uint64_t granules = granules_of(bytes);

    if (granules > memory->granules - memory->used)
        return false;
    memory->used += granules;
    return true;
}

void
berthi_sim_memory_disclaim(berthi_sim_memory *memory, uint64_t bytes)
{
    memory->used -= granules_of(bytes);
}

/* ------------------------------------------------------------------- allocations */

/* The whole pages that a stretch touches. */
static berthi_sim_stretch
pages_of(const void *at, uint64_t bytes)
{
    const uint64_t page = berthi_sys_page_bytes();
    uint8_t *const memory = (uint8_t *)(uintptr_t)at;
    const uint64_t before = (uintptr_t)memory % page;

    return (berthi_sim_stretch){
        memory - before, berthi_round_up(before + bytes, page)
    };
}

static bool
is_poisoned(const berthi_sim_stretch *pages)
{
    if (pages->bytes == 0)
        return true;
    if (berthi_sys_reserve_use(pages->memory, (size_t)pages->bytes) != 0)
        return false;
    memset(pages->memory, BERTHI_SIM_POISON, (size_t)pages->bytes);
    return true;
}

berthi_sim_allocation *
berthi_sim_allocation_create(const berthi_sim_memory *memory, uint64_t bytes)
{
    const uint64_t page = berthi_sys_page_bytes();
    /* Bounded by the device's memory: no overflow. */
    const uint64_t aligned = berthi_round_up(bytes, ALIGNMENT);
    const uint64_t paged = berthi_max_u64(berthi_round_up(aligned, page), page);
    berthi_sim_allocation *const a = berthi_memory_zalloc(
        memory->context, BERTHI_PURPOSE_OBJECT, sizeof *a);
    berthi_sim_stretch pages;

    if (a == NULL)
        return NULL;
    berthi_sim_digest_init(&a->digest, memory->context);
    a->reserved.bytes = paged + 2 * page;
    a->reserved.memory = berthi_sys_reserve((size_t)a->reserved.bytes);
    if (a->reserved.memory == NULL)
        goto fail;
    a->own.memory = a->reserved.memory + page + (paged - aligned);
    a->own.bytes = bytes;
    a->keeps_digests = memory->keeps_digests && bytes >= BERTHI_SIM_DIGEST_LEAST;
    pages = (berthi_sim_stretch){ a->reserved.memory + page, paged };
    if (a->keeps_digests || is_poisoned(&pages))
        return a;
fail:
    berthi_sim_allocation_destroy(a);
    return NULL;
}

void
berthi_sim_allocation_destroy(berthi_sim_allocation *allocation)
{
    berth_context *const context = allocation->digest.context;

    if (allocation->reserved.memory != NULL)
        berthi_sys_reserve_end(allocation->reserved.memory,
                               (size_t)allocation->reserved.bytes);
    berthi_sim_digest_fini(&allocation->digest);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, allocation, sizeof *allocation);
}

/* The first allocation that begins behind `at`. */
static uint64_t
find_behind(const berthi_sim_memory *memory, const void *at)
{
    uint64_t low = 0;
    uint64_t high = memory->allocation_count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;

        if ((uintptr_t)memory->allocations[middle]->own.memory <= (uintptr_t)at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All of its pages but the guards. */
static bool
seal(const berthi_sim_allocation *allocation, bool is_sealed)
{
    const uint64_t page = berthi_sys_page_bytes();

    return berthi_sys_reserve_seal(allocation->reserved.memory + page,
                                   (size_t)(allocation->reserved.bytes - 2 * page), is_sealed)
           == 0;
}

static bool
seal_all(const berthi_sim_memory *memory, bool is_sealed)
{
    for (uint64_t i = 0; i < memory->allocation_count; i++)
        if (!seal(memory->allocations[i], is_sealed))
            return false;
    return true;
}

bool
berthi_sim_memory_open(berthi_sim_memory *memory)
{
    return !memory->is_sealed || memory->opened++ > 0 || seal_all(memory, false);
}

void
berthi_sim_memory_close(berthi_sim_memory *memory)
{
    if (memory->is_sealed && --memory->opened == 0)
        (void)seal_all(memory, true); /* what stays open is only less of a test */
}

bool
berthi_sim_memory_add(berthi_sim_memory *memory, berthi_sim_allocation *allocation)
{
    void *allocations = memory->allocations;
    uint64_t at;

    if (!make_room(memory->context, &allocations, memory->allocation_count,
                   &memory->allocation_capacity, sizeof *memory->allocations))
        return false;
    if (memory->is_sealed && memory->opened == 0 && !seal(allocation, true))
        return false;
    memory->allocations = allocations;
    at = find_behind(memory, allocation->own.memory);
    memmove(memory->allocations + at + 1, memory->allocations + at,
            (size_t)(memory->allocation_count - at) * sizeof *memory->allocations);
    memory->allocations[at] = allocation;
    memory->allocation_count++;
    return true;
}

static bool
has_stretch(const berthi_sim_stretch *stretch, const void *at, uint64_t bytes)
{
    const uint64_t offset = (uintptr_t)at - (uintptr_t)stretch->memory;

    return (uintptr_t)at >= (uintptr_t)stretch->memory && offset <= stretch->bytes
           && bytes <= stretch->bytes - offset;
}

berthi_sim_allocation *
berthi_sim_memory_find(const berthi_sim_memory *memory, const void *at, uint64_t bytes)
{
    const uint64_t behind = find_behind(memory, at);
    berthi_sim_allocation *a;

    if (behind == 0)
        return NULL;
    a = memory->allocations[behind - 1];
    return has_stretch(&a->own, at, bytes) ? a : NULL;
}

/* The oldest graves are given up where there are too many. */
static void
bury(berthi_sim_memory *memory, const berthi_sim_stretch *reserved)
{
    while (memory->grave_count == BERTHI_SIM_GRAVES
           || (memory->grave_count > 0
               && memory->grave_bytes > BERTHI_SIM_GRAVE_BYTES)) {
        const berthi_sim_stretch *const oldest = &memory->graves[memory->grave_first];

        berthi_sys_reserve_end(oldest->memory, (size_t)oldest->bytes);
        memory->grave_bytes -= oldest->bytes;
        memory->grave_first = (memory->grave_first + 1) % BERTHI_SIM_GRAVES;
        memory->grave_count--;
    }
    berthi_sys_reserve_drop(reserved->memory, (size_t)reserved->bytes);
    memory->graves[(memory->grave_first + memory->grave_count) % BERTHI_SIM_GRAVES] =
        *reserved;
    memory->grave_count++;
    memory->grave_bytes += reserved->bytes;
}

bool
berthi_sim_memory_free(berthi_sim_memory *memory, void *own, uint64_t bytes)
{
    const uint64_t behind = find_behind(memory, own);
    berthi_sim_allocation *a;

    if (behind == 0)
        return false;
    a = memory->allocations[behind - 1];
    if (a->own.memory != own || a->own.bytes != bytes)
        return false;
    memmove(memory->allocations + behind - 1, memory->allocations + behind,
            (size_t)(memory->allocation_count - behind) * sizeof *memory->allocations);
    memory->allocation_count--;
    berthi_sim_memory_disclaim(memory, bytes);
    bury(memory, &a->reserved);
    a->reserved.memory = NULL;
    berthi_sim_allocation_destroy(a);
    return true;
}

/* -------------------------------------------------- bytes of what keeps digests */

bool
berthi_sim_allocation_has_bytes(const berthi_sim_allocation *allocation, const void *at,
                                uint64_t bytes)
{
    if (!allocation->keeps_digests)
        return true;
    for (uint32_t i = 0; i < allocation->keep_count; i++)
        if (has_stretch(&allocation->keeps[i], at, bytes))
            return true;
    return false;
}

bool
berthi_sim_allocation_keep(berthi_sim_allocation *allocation, void *at,
                           uint64_t bytes)
{
    const berthi_sim_stretch pages = pages_of(at, bytes);

    if (bytes == 0 || berthi_sim_allocation_has_bytes(allocation, at, bytes))
        return true;
    if (allocation->keep_count == BERTHI_SIM_KEEPS || !is_poisoned(&pages))
        return false;
    allocation->keeps[allocation->keep_count++] = (berthi_sim_stretch){ at, bytes };
    return true;
}

/* ------------------------------------------------------------------------ pinning */

static bool
is_overlap(const berthi_sim_stretch *a, const berthi_sim_stretch *b)
{
    return a->memory < b->memory + b->bytes && b->memory < a->memory + a->bytes;
}

const char *
berthi_sim_memory_pin(berthi_sim_memory *memory, void *at, uint64_t bytes,
                      berth_reason *reason)
{
    const uint64_t page = berthi_sys_page_bytes();
    const berthi_sim_stretch pin = { at, bytes };
    void *pins = memory->pins;

    *reason = BERTH_REASON_INTERNAL;
    if ((uintptr_t)at % page != 0)
        return "does not begin with a page";
    for (uint64_t i = 0; i < memory->pin_count; i++)
        if (is_overlap(&memory->pins[i], &pin))
            return "overlaps memory that is pinned";
    *reason = BERTH_REASON_NO_MEMORY;
    if (bytes > memory->pin_limit - memory->pin_bytes)
        return "is more than may be pinned";
    if (!make_room(memory->context, &pins, memory->pin_count, &memory->pin_capacity,
                   sizeof *memory->pins))
        return "finds no memory to note it";
    memory->pins = pins;
    memory->pins[memory->pin_count++] = pin;
    memory->pin_bytes += bytes;
    return NULL;
}

bool
berthi_sim_memory_unpin(berthi_sim_memory *memory, void *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < memory->pin_count; i++)
        if (memory->pins[i].memory == at && memory->pins[i].bytes == bytes) {
            memory->pins[i] = memory->pins[--memory->pin_count];
            memory->pin_bytes -= bytes;
            return true;
        }
    return false;
}

bool
berthi_sim_memory_is_pinned(const berthi_sim_memory *memory, const void *at,
                            uint64_t bytes)
{
    const uint8_t *from = at;
    const uint8_t *const end = from + bytes;
    bool is_found = true;

    /* Pieces that were pinned side by side are as good as one. */
    while (is_found && from < end) {
        is_found = false;
        for (uint64_t i = 0; i < memory->pin_count && !is_found; i++) {
            is_found = has_stretch(&memory->pins[i], from, 1);
            if (is_found)
                from = memory->pins[i].memory + memory->pins[i].bytes;
        }
    }
    return is_found;
}
