/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - one large page of each stretch is timed. */
#include "kernels/pages.h"

#include <string.h>

#include "kernels/base.h"
#include "kernels/sys.h"

#define PAGE_BYTES UINT64_C(2097152)
#define STRETCH_BYTES (32 * PAGE_BYTES)
#define TIMES 2                   /* less is not worth it to whoever reads them later */
#define READ_NS UINT64_C(1000000) /* a fast disk brings as much in this time */

void
berthi_pages_init(berthi_pages *pages, berth_context *context, void *memory,
                  uint64_t bytes, uint64_t alignment, uint32_t threads)
{
    const uint64_t lead = -(uint64_t)(uintptr_t)memory % PAGE_BYTES;

    memset(pages, 0, sizeof *pages);
    pages->context = context;
    pages->slow_ns = READ_NS * threads;
    pages->times = TIMES;
    if (!berthi_memory_is_mapped(context, bytes, alignment) || bytes < lead)
        return;
    pages->first = (uint8_t *)memory + lead;
    pages->stretch_count = (bytes - lead) / STRETCH_BYTES;
    if (pages->stretch_count > 0)
        pages->is_known = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT,
                                               pages->stretch_count);
}

void
berthi_pages_fini(berthi_pages *pages)
{
    if (atomic_load_explicit(&pages->has_small, memory_order_relaxed))
        berthi_sys_map_large(pages->first, pages->stretch_count * STRETCH_BYTES);
    berthi_memory_free(pages->context, BERTHI_PURPOSE_OBJECT, (void *)pages->is_known,
                       pages->stretch_count);
    memset(pages, 0, sizeof *pages);
}

/* How long a page, or small ones in its place, take; time of others does not count. */
static uint64_t
touch(uint8_t *page)
{
    const uint64_t begin_ns = berthi_sys_thread_ns();

    return berthi_sys_map_touch(page, PAGE_BYTES) == 0 ? berthi_sys_thread_ns() - begin_ns
                                                       : UINT64_MAX;
}

static void
make_small(berthi_pages *pages, uint8_t *at, uint64_t bytes)
{
    berthi_sys_map_small(at, bytes);
    atomic_store_explicit(&pages->has_small, true, memory_order_relaxed);
}

/* The last page of it, and the one before: nobody has come as far. */
static void
look_at(berthi_pages *pages, uint8_t *stretch, uint64_t slow_ns)
{
    uint8_t *const last = stretch + (STRETCH_BYTES - PAGE_BYTES);
    const uint64_t large_ns = touch(last);

    if (large_ns <= slow_ns)
        return;
    make_small(pages, last - PAGE_BYTES, PAGE_BYTES);
    if (large_ns / berthi_max_u64(touch(last - PAGE_BYTES), 1) >= pages->times)
        make_small(pages, stretch, STRETCH_BYTES - PAGE_BYTES);
}

void
berthi_pages_expect(berthi_pages *pages, const void *memory, uint64_t bytes,
                    uint64_t read_bytes)
{
    const uintptr_t first = (uintptr_t)pages->first;
    const uintptr_t end = (uintptr_t)memory + bytes;
    const uintptr_t begin = (uintptr_t)memory > first ? (uintptr_t)memory : first;

    if (pages->is_known == NULL || begin >= end)
        return;
    for (uint64_t i = (begin - first) / STRETCH_BYTES;
         i < pages->stretch_count && i * STRETCH_BYTES < end - first; i++)
        if (atomic_exchange_explicit(&pages->is_known[i], 1, memory_order_relaxed) == 0)
            look_at(pages, pages->first + i * STRETCH_BYTES,
                    pages->slow_ns * berthi_max_u64(read_bytes / bytes, 1));
}
