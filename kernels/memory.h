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
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/cpu.h"
#include "kernels/ledger.h"

/* What could not be given back when it should have been: berthi_context_keep(). */
typedef struct berthi_kept berthi_kept;
struct berthi_kept {
    berthi_kept *next;
    /* True: it has been given back, and `kept` with it. Does not wait. */
    bool (*try_end)(berthi_kept *kept);
};

/* Memory that is not given back any more: berthi_memory_abandon(). */
typedef struct berthi_abandoned berthi_abandoned;
struct berthi_abandoned {
    berthi_abandoned *next;
    const void *at;
};

/* Nobody who gives up waits longer for a read or a copy. */
#define BERTHI_HUNG_NS UINT64_C(5000000000)

typedef struct berthi_spare berthi_spare; /* spare.h */
typedef struct berthi_visit berthi_visit; /* visits.h */

struct berth_context {
    berth_allocator allocator;
    void (*log)(void *user, int32_t level, const char *line);
    void *log_user;
    berth_trace_function trace; /* NULL: nobody listens */
    void *trace_user;
    pthread_mutex_t log_lock; /* one line at a time; held while `log` runs */
    berthi_ledger ledger;
    berthi_cpu_level level; /* the fastest: asked once, virtual machines are slow to say */
    pthread_mutex_t kept_lock;
    berthi_kept *kept; /* under that lock */
    bool is_swept;     /* the same: somebody has taken them out, and puts back what stays */
    pthread_cond_t has_swept; /* nobody has any more */
    berthi_visit *visits; /* of others' devices, under that lock, too */
    _Atomic(berthi_abandoned *) abandoned; /* grows at its head */
    uint64_t spare_limit; /* bytes of staging that are kept between jobs */
    pthread_mutex_t spare_lock;
    berthi_spare *spares; /* under that lock */
    uint64_t spare_bytes; /* the same */
    const char *root;             /* where /sys lies: tests describe other machines */
    uint64_t hung_ns;             /* BERTHI_HUNG_NS: tests where something hangs have less */
    _Atomic uint32_t node_count;  /* node.h; 0: nobody knows yet */
    _Atomic bool is_node_refused; /* and that has been logged */
    _Atomic bool is_pin_refused;  /* the same of pinning */
    /* By 10 * major + minor: that such GPUs lack kernels of their own has been logged. */
    _Atomic bool is_kernel_missed[256];
};

/*
 * The context takes over what something that hangs still uses, such as memory that the
 * kernel may write to. Each sweep gives back what can be by then, and so does the end of
 * the context; what cannot be even then is left alone for good.
 */
void berthi_context_keep(berth_context *context, berthi_kept *kept);
/* Any thread, `try_end` included; where one is at it, others go on without. */
void berthi_context_sweep(berth_context *context);
/*
 * The same, but not from `try_end`, nor from hooks of the caller's that it calls: whoever is at it
 * is waited for, and then all are asked.
 */
void berthi_context_sweep_all(berth_context *context);

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
/* True when such memory is a mapping of berth's own. */
bool berthi_memory_is_mapped(const berth_context *context, uint64_t bytes,
                             uint64_t alignment);

/* Purpose, size and alignment as allocated; NULL is allowed. */
void berthi_memory_free(berth_context *context, berthi_purpose purpose, void *memory,
                        uint64_t bytes);
void berthi_memory_free_aligned(berth_context *context, berthi_purpose purpose,
                                void *memory, uint64_t bytes, uint64_t alignment);

/*
 * Something that hangs may use the memory at `at` for good: whoever gives back what it is a part
 * of leaves that where it is, so that nobody else gets it. It counts as allocated. Any thread.
 */
void berthi_memory_abandon(berth_context *context, const void *at);
bool berthi_memory_is_abandoned(const berth_context *context, const void *memory,
                                uint64_t bytes);

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
/*
 * A block size for what hangs on so many tensors: where they are many, blocks are worth
 * a large page each, which costs one fault instead of five hundred.
 */
uint64_t berthi_arena_block_for(uint64_t tensors);
/* NULL when out of memory. Alignment 1, 2, 4, 8 or 16. */
void *berthi_arena_alloc(berthi_arena *arena, uint64_t bytes, uint64_t alignment);
/* Copies `length` bytes and adds a NUL. */
char *berthi_arena_text(berthi_arena *arena, const char *text, uint64_t length);
void berthi_arena_fini(berthi_arena *arena);

/* One line for the caller's log hook; cheap when there is none. Any thread. */
__attribute__((format(printf, 3, 4))) void
berthi_log(berth_context *context, berth_log_level level, const char *format, ...);

#endif
