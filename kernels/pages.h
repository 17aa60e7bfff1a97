/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - large pages for memory that is written for the first time, where they come
 * quickly.
 *
 * A large page saves 511 faults, and whoever reads the memory afterwards looks up fewer
 * addresses: a virtual machine multiplies by weights a quarter faster. But there are
 * machines that take longer for it than for all the small ones: virtual ones whose free
 * memory comes from outside at the first touch, fragmented ones that move others out of
 * the way. So of each stretch of a mapping one large page is timed, and where it would
 * hold up what is being written the same bytes of small ones are. Where these are faster
 * by far the rest of the stretch gets small ones; where all memory comes from outside they
 * are not. In the end the kernel is told that it may make them large when it has the time.
 */
#ifndef BERTH_KERNELS_PAGES_H
#define BERTH_KERNELS_PAGES_H

#include <stdatomic.h>
#include <stdint.h>

#include "kernels/memory.h"

typedef struct berthi_pages {
    berth_context *context;
    uint8_t *first;            /* of the stretches, which are whole large pages */
    uint64_t stretch_count;
    _Atomic uint8_t *is_known; /* of stretches; NULL: nothing is to be done */
    uint64_t slow_ns;          /* a large page that takes longer is a slow one, */
    uint64_t times;            /* if small ones in its place are so many times as fast */
    atomic_bool has_small;
} berthi_pages;

/*
 * For memory of berthi_memory_aligned(), which nobody has written to, and which so many
 * threads are going to write. What is not a mapping of berth's own, or without memory for
 * the table, is left as it is.
 */
void berthi_pages_init(berthi_pages *pages, berth_context *context, void *memory,
                       uint64_t bytes, uint64_t alignment, uint32_t threads);
/* Before the memory is freed. A zeroed one is allowed. */
void berthi_pages_fini(berthi_pages *pages);

/*
 * Before bytes of it are written, that so many are read for: a page of 4-bit codes may take
 * longer than one of plain values. Any thread, beside others that write.
 */
void berthi_pages_expect(berthi_pages *pages, const void *memory, uint64_t bytes,
                         uint64_t read_bytes);

#endif
