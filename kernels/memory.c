/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the context object, its allocations and its log. */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */

#include "kernels/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fault.h"
#include "kernels/spare.h"
#include "kernels/sys.h"
#include "kernels/visits.h"

#define ORDINARY_ALIGNMENT 16u

/* ------------------------------------------------------------- default hooks */

/*
 * Large blocks are mapped, so that giving them back is giving them back: glibc
 * keeps the staging rings of one run after the other in its arenas, once a
 * first one has raised its threshold (seen: 360 MB resident for a 45 MB peak).
 * AddressSanitizer watches what malloc gives only.
 */
#define MAPPED_BYTES ((size_t)1 << 20)

#if defined(__SANITIZE_ADDRESS__)
#define HAS_MAPPING false
#elif defined(__has_feature)
#define HAS_MAPPING !__has_feature(address_sanitizer)
#else
#define HAS_MAPPING true
#endif

static bool
is_mapped(size_t bytes, size_t alignment)
{
    return HAS_MAPPING && bytes >= MAPPED_BYTES && alignment <= berthi_sys_page_bytes();
}

static void *
default_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    void *memory = NULL;

    (void)user;
    (void)purpose;
    if (is_mapped(bytes, alignment))
        return berthi_sys_map(bytes);
    if (posix_memalign(&memory, alignment, bytes) != 0)
        return NULL;
    return memory;
}

static void
default_free(void *user, void *memory, size_t bytes, size_t alignment,
             const char *purpose)
{
    (void)user;
    (void)purpose;
    if (is_mapped(bytes, alignment))
        berthi_sys_unmap(memory, bytes);
    else
        free(memory);
}

bool
berthi_memory_is_mapped(const berth_context *context, uint64_t bytes, uint64_t alignment)
{
    return context->allocator.alloc == default_alloc && is_mapped(bytes, alignment);
}

/* ------------------------------------------------------------------ context */

static berth_status
check_options(const berth_context_options *options, berth_error *error)
{
    const berth_allocator *const allocator = options->allocator;

    if (allocator != NULL && (allocator->alloc == NULL || allocator->free == NULL))
        return berthi_fail_argument(error, "options", "has an allocator without alloc or free");
    return BERTH_OK;
}

berth_status
berth_context_create(const berth_context_options *options, berth_context **out_context,
                     berth_error *error)
{
    berth_allocator allocator = { NULL, default_alloc, default_free };
    berth_context_options mine;
    berth_context *context;
    berth_status status;

    berthi_error_clear(error);
    if (out_context == NULL)
        return berthi_fail_argument(error, "out_context", "is NULL");
    *out_context = NULL;
    status = berthi_options_take(&mine, sizeof mine,
                                 offsetof(berth_context_options, reserved32), options,
                                 "options", error);
    if (status == BERTH_OK)
        status = check_options(&mine, error);
    if (status != BERTH_OK)
        return status;
    if (mine.allocator != NULL)
        allocator = *mine.allocator;

    /* The context is the one block outside its own ledger. */
    context = berthi_fault_is_due(BERTHI_FAULT_MEMORY)
                  ? NULL
                  : allocator.alloc(allocator.user, sizeof *context, ORDINARY_ALIGNMENT,
                                    "context");
    if (context == NULL)
        return berthi_fail_memory(error, "creating a context");
    memset(context, 0, sizeof *context);
    context->allocator = allocator;
    context->log = mine.log;
    context->log_user = mine.log_user;
    context->spare_limit = mine.spare_bytes;
    context->spare_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->trace = mine.trace;
    context->trace_user = mine.trace_user;
    context->root = "/";
    context->hung_ns = BERTHI_HUNG_NS;
    if (mine.uses_tiles)
        (void)berthi_sys_allow_tiles(); /* refused: as on a processor that has none */
    context->level = berthi_cpu_best_level();
    context->kept_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    context->has_swept = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    berthi_ledger_init(&context->ledger, mine.memory_limit);
    if (pthread_mutex_init(&context->log_lock, NULL) != 0) {
        allocator.free(allocator.user, context, sizeof *context, ORDINARY_ALIGNMENT,
                       "context");
        return berthi_fail_memory(error, "creating a context");
    }
    *out_context = context;
    return BERTH_OK;
}

/* Behind the others: what is left later may wait for what was left before. */
void
berthi_context_keep(berth_context *context, berthi_kept *kept)
{
    berthi_kept **at = &context->kept;

    pthread_mutex_lock(&context->kept_lock);
    while (*at != NULL)
        at = &(*at)->next;
    kept->next = NULL;
    *at = kept;
    pthread_mutex_unlock(&context->kept_lock);
}

/* All that is kept, taken out; NULL where somebody is at it, who is waited for or not. */
static berthi_kept *
begin_sweep(berth_context *context, bool waits)
{
    berthi_kept *kept = NULL;

    pthread_mutex_lock(&context->kept_lock);
    while (waits && context->is_swept)
        pthread_cond_wait(&context->has_swept, &context->kept_lock);
    if (!context->is_swept) {
        kept = context->kept;
        context->kept = NULL;
        context->is_swept = kept != NULL;
    }
    pthread_mutex_unlock(&context->kept_lock);
    return kept;
}

/* What is given back calls the caller's functions, and the driver's: no lock is held. */
static void
sweep(berth_context *context, bool waits)
{
    berthi_kept *kept = begin_sweep(context, waits);
    berthi_kept *left = NULL;
    berthi_kept **end = &left;

    if (kept == NULL)
        return;
    while (kept != NULL) {
        berthi_kept *const next = kept->next;

        if (!kept->try_end(kept)) {
            *end = kept;
            end = &kept->next;
        }
        kept = next;
    }
    pthread_mutex_lock(&context->kept_lock);
    *end = context->kept; /* what was left meanwhile */
    context->kept = left;
    context->is_swept = false;
    pthread_cond_broadcast(&context->has_swept);
    pthread_mutex_unlock(&context->kept_lock);
}

/* What is noted of it; the memory itself stays. */
static void
forget_abandoned(berth_context *context)
{
    berthi_abandoned *a = atomic_exchange(&context->abandoned, NULL);

    while (a != NULL) {
        berthi_abandoned *const next = a->next;

        berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, a, sizeof *a);
        a = next;
    }
}

void
berthi_context_sweep(berth_context *context)
{
    sweep(context, false);
}

void
berthi_context_sweep_all(berth_context *context)
{
    sweep(context, true);
}

void
berth_context_destroy(berth_context *context)
{
    if (context == NULL)
        return;
    const berth_allocator allocator = context->allocator;

    berthi_context_sweep_all(context);
    berthi_visits_leave(context);
    (void)berthi_spare_trim(context); /* what others gave back until then, too */
    forget_abandoned(context);
    pthread_mutex_destroy(&context->spare_lock);
    pthread_cond_destroy(&context->has_swept);
    pthread_mutex_destroy(&context->kept_lock);
    pthread_mutex_destroy(&context->log_lock);
    allocator.free(allocator.user, context, sizeof *context, ORDINARY_ALIGNMENT,
                   "context");
}

uint64_t
berth_context_trim(berth_context *context)
{
    berthi_context_sweep(context);
    return berthi_spare_trim(context);
}

void
berth_context_memory(const berth_context *context, berth_memory_summary *summary)
{
    const berthi_ledger *const ledger = &context->ledger;

    memset(summary, 0, sizeof *summary);
    summary->current_bytes = atomic_load(&ledger->current);
    /* Which follows a moment later. */
    summary->peak_bytes = berthi_max_u64(atomic_load(&ledger->peak), summary->current_bytes);
    summary->allocations = atomic_load(&ledger->allocations);
    summary->frees = atomic_load(&ledger->frees);
}

/* -------------------------------------------------------------- allocations */

static void *
try_alloc(berth_context *context, berthi_purpose purpose, uint64_t size,
          uint64_t alignment)
{
    uint64_t current;
    void *memory;

    if (!berthi_ledger_reserve(&context->ledger, size, &current))
        return NULL;
    memory = context->allocator.alloc(context->allocator.user, (size_t)size,
                                      (size_t)alignment, berthi_purpose_name(purpose));
    if (memory == NULL)
        berthi_ledger_cancel(&context->ledger, size);
    else
        berthi_ledger_take(&context->ledger, purpose, size, current);
    return memory;
}

void *
berthi_memory_aligned(berth_context *context, berthi_purpose purpose, uint64_t bytes,
                      uint64_t alignment)
{
    /* A size of 0 would make NULL mean two things. */
    const uint64_t size = berthi_max_u64(bytes, 1);
    void *memory;

    if (size > SIZE_MAX / 2 || berthi_fault_is_due(BERTHI_FAULT_MEMORY))
        return NULL;
    memory = try_alloc(context, purpose, size, alignment);
    /* Nobody is refused what is merely kept. */
    if (memory == NULL && context->spare_limit > 0 && berthi_spare_trim(context) > 0)
        memory = try_alloc(context, purpose, size, alignment);
    return memory;
}

void
berthi_memory_free_aligned(berth_context *context, berthi_purpose purpose, void *memory,
                           uint64_t bytes, uint64_t alignment)
{
    const uint64_t size = berthi_max_u64(bytes, 1);

    if (memory == NULL || berthi_memory_is_abandoned(context, memory, size))
        return;
    context->allocator.free(context->allocator.user, memory, (size_t)size,
                            (size_t)alignment, berthi_purpose_name(purpose));
    berthi_ledger_give(&context->ledger, purpose, size);
}

void *
berthi_memory_alloc(berth_context *context, berthi_purpose purpose, uint64_t bytes)
{
    return berthi_memory_aligned(context, purpose, bytes, ORDINARY_ALIGNMENT);
}

void *
berthi_memory_zalloc(berth_context *context, berthi_purpose purpose, uint64_t bytes)
{
    void *const memory = berthi_memory_alloc(context, purpose, bytes);

    if (memory != NULL)
        memset(memory, 0, (size_t)bytes);
    return memory;
}

void *
berthi_memory_array(berth_context *context, berthi_purpose purpose, uint64_t count,
                    uint64_t size)
{
    uint64_t bytes;

    if (!berthi_can_mul(count, size, &bytes))
        return NULL;
    return berthi_memory_alloc(context, purpose, bytes);
}

void
berthi_memory_free(berth_context *context, berthi_purpose purpose, void *memory,
                   uint64_t bytes)
{
    berthi_memory_free_aligned(context, purpose, memory, bytes, ORDINARY_ALIGNMENT);
}

/* Where not even that can be noted it is given back as if nothing hung. */
void
berthi_memory_abandon(berth_context *context, const void *at)
{
    berthi_abandoned *const a =
        berthi_memory_alloc(context, BERTHI_PURPOSE_OBJECT, sizeof *a);

    if (a == NULL)
        return;
    *a = (berthi_abandoned){ atomic_load(&context->abandoned), at };
    while (!atomic_compare_exchange_weak(&context->abandoned, &a->next, a))
        ;
}

bool
berthi_memory_is_abandoned(const berth_context *context, const void *memory, uint64_t bytes)
{
    const berthi_abandoned *a = atomic_load(&context->abandoned);

    while (a != NULL
           && ((uintptr_t)a->at < (uintptr_t)memory
               || (uintptr_t)a->at - (uintptr_t)memory >= bytes))
        a = a->next;
    return a != NULL;
}

/* -------------------------------------------------------------------- arena */

#define MANY_TENSORS UINT64_C(32768)
#define SMALL_BLOCK UINT64_C(65536)
#define LARGE_BLOCK (UINT64_C(1) << 21)

struct berthi_arena_block {
    berthi_arena_block *older;
    uint64_t bytes; /* of the whole block, this struct included */
};

void
berthi_arena_init(berthi_arena *arena, berth_context *context, berthi_purpose purpose,
                  uint64_t block_bytes)
{
    memset(arena, 0, sizeof *arena);
    arena->context = context;
    arena->purpose = purpose;
    arena->block_bytes = block_bytes;
}

/* False: out of memory. */
static bool
add_block(berthi_arena *arena, uint64_t bytes)
{
    uint64_t size;
    berthi_arena_block *block;

    if (!berthi_can_add(bytes, sizeof *block, &size))
        return false;
    size = berthi_max_u64(size, arena->block_bytes);
    block = berthi_memory_alloc(arena->context, arena->purpose, size);
    if (block == NULL)
        return false;
    block->older = arena->blocks;
    block->bytes = size;
    arena->blocks = block;
    arena->used = sizeof *block;
    arena->capacity = size;
    return true;
}

uint64_t
berthi_arena_block_for(uint64_t tensors)
{
    return tensors < MANY_TENSORS ? SMALL_BLOCK : LARGE_BLOCK;
}

void *
berthi_arena_alloc(berthi_arena *arena, uint64_t bytes, uint64_t alignment)
{
    uint64_t begin;
    uint64_t end;
    void *piece;

    if (!berthi_can_round_up(arena->used, alignment, &begin)
        || !berthi_can_add(begin, bytes, &end))
        return NULL;
    if (arena->blocks == NULL || end > arena->capacity) {
        if (!add_block(arena, bytes))
            return NULL;
        begin = arena->used; /* a block starts 16-byte aligned, its struct has 16 */
        end = begin + bytes;
    }
    piece = (char *)arena->blocks + begin;
    arena->used = end;
    return piece;
}

char *
berthi_arena_text(berthi_arena *arena, const char *text, uint64_t length)
{
    uint64_t bytes;
    char *copy;

    if (!berthi_can_add(length, 1, &bytes))
        return NULL;
    copy = berthi_arena_alloc(arena, bytes, 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, (size_t)length);
    copy[length] = '\0';
    return copy;
}

void
berthi_arena_fini(berthi_arena *arena)
{
    while (arena->blocks != NULL) {
        berthi_arena_block *const block = arena->blocks;

        arena->blocks = block->older;
        berthi_memory_free(arena->context, arena->purpose, block, block->bytes);
    }
}

/* ---------------------------------------------------------------------- log */

void
berthi_log(berth_context *context, berth_log_level level, const char *format, ...)
{
    char line[1536];
    va_list arguments;

    if (context->log == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&context->log_lock);
    context->log(context->log_user, (int32_t)level, line);
    pthread_mutex_unlock(&context->log_lock);
}
