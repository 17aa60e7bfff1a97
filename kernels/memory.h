/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - the context: allocator and log hooks, and the ledger they feed.
 *
 * All memory of the library comes from here, so that it is counted, can be
 * limited, can come from the caller, and can be made to fail in tests. The
 * matching free gets purpose and size: nothing is stored beside a block.
 */
#ifndef BERTH_KERNELS_MEMORY_H
#define BERTH_KERNELS_MEMORY_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/ledger.h"

struct berth_context {
    berth_allocator allocator;
    void (*log)(void *user, int32_t level, const char *line);
    void *log_user;
    pthread_mutex_t log_lock; /* one line at a time; held while `log` runs */
    berthi_ledger ledger;
};

/*
 * `bytes` of memory, 16-byte aligned, uninitialised; NULL when out of memory.
 * 0 bytes give a unique pointer. Any thread.
 */
void *berthi_memory_alloc(berth_context *context, berthi_purpose purpose, uint64_t bytes);
/* The same, zeroed. */
void *berthi_memory_zalloc(berth_context *context, berthi_purpose purpose,
                           uint64_t bytes);
/* `count` elements of `size` bytes; NULL also when the product overflows. */
void *berthi_memory_array(berth_context *context, berthi_purpose purpose, uint64_t count,
                          uint64_t size);
/* A larger alignment, a power of two: staging buffers. Same free. */
void *berthi_memory_aligned(berth_context *context, berthi_purpose purpose,
                            uint64_t bytes, uint64_t alignment);

/* Purpose, size and alignment as allocated; NULL is allowed. */
void berthi_memory_free(berth_context *context, berthi_purpose purpose, void *memory,
                        uint64_t bytes);
void berthi_memory_free_aligned(berth_context *context, berthi_purpose purpose,
                                void *memory, uint64_t bytes, uint64_t alignment);

/*
 * A bump allocator: many small pieces, given back together. Blocks are taken
 * as needed; a piece larger than the block size gets a block of its own.
 * Zero-initialise with berthi_arena_init(); destroy accepts that state too.
 */
typedef struct berthi_arena_block berthi_arena_block;
typedef struct berthi_arena {
    berth_context *context;
    berthi_purpose purpose;
    uint64_t block_bytes;
    berthi_arena_block *blocks;
    uint64_t used;     /* of the newest block  */
    uint64_t capacity; /* of the newest block  */
} berthi_arena;

void berthi_arena_init(berthi_arena *arena, berth_context *context,
                       berthi_purpose purpose, uint64_t block_bytes);
/* NULL when out of memory. Alignment 1, 2, 4, 8 or 16. */
void *berthi_arena_alloc(berthi_arena *arena, uint64_t bytes, uint64_t alignment);
/* Copies `length` bytes and adds a NUL. */
char *berthi_arena_text(berthi_arena *arena, const char *text, uint64_t length);
void berthi_arena_fini(berthi_arena *arena);

/* One line for the caller's log hook; cheap when there is none. Any thread. */
__attribute__((format(printf, 3, 4))) void
berthi_log(berth_context *context, berth_log_level level, const char *format, ...);

#endif
