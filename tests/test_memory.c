/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - contexts, the caller's allocator, arenas, the log. */
#define _DEFAULT_SOURCE /* mincore, and posix_memalign */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/fault.h"
#include "kernels/memory.h"
#include "kernels/spare.h"
#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/t.h"

/* ---------------------------------------------------------- a strict allocator */

#define MAX_BLOCKS 256
#define PAGE       4096u

/* Remembers each block and compares what free is told with what alloc was. */
typedef struct strict {
    struct block {
        void *memory;
        size_t bytes;
        size_t alignment;
        const char *purpose;
    } blocks[MAX_BLOCKS];
    int calls;
    int live;
    int wrong;
    bool is_empty; /* out of memory from now on */
} strict;

static void *
strict_alloc(void *user, size_t bytes, size_t alignment, const char *purpose)
{
    strict *const s = user;
    void *memory = NULL;

    s->calls++;
    /* Sanitizers end the program when asked for too much. */
    if (s->is_empty || s->live == MAX_BLOCKS || bytes > 1u << 30
        || posix_memalign(&memory, alignment, bytes) != 0)
        return NULL;
    memset(memory, 0xAA, bytes);
    s->blocks[s->live++] = (struct block){ memory, bytes, alignment, purpose };
    return memory;
}

static void
strict_free(void *user, void *memory, size_t bytes, size_t alignment, const char *purpose)
{
    strict *const s = user;

    for (int i = 0; i < s->live; i++)
        if (s->blocks[i].memory == memory) {
            s->wrong += s->blocks[i].bytes != bytes || s->blocks[i].alignment != alignment
                        || strcmp(s->blocks[i].purpose, purpose) != 0;
            s->blocks[i] = s->blocks[--s->live];
            free(memory);
            return;
        }
    s->wrong++;
}

static berth_context *
create_strict(strict *s, uint64_t limit)
{
    const berth_allocator allocator = { s, strict_alloc, strict_free };
    berth_context_options options;
    berth_context *context = NULL;

    memset(s, 0, sizeof *s);
    berth_context_options_init(&options);
    options.allocator = &allocator;
    options.memory_limit = limit;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    return context;
}

static void
check_memory(const berth_context *context, uint64_t current, uint64_t peak,
             uint64_t allocations, uint64_t frees)
{
    berth_memory_summary summary;

    memset(&summary, 0xAA, sizeof summary);
    berth_context_memory(context, &summary);
    CHECK_EQ(summary.current_bytes, current);
    CHECK_EQ(summary.peak_bytes, peak);
    CHECK_EQ(summary.allocations, allocations);
    CHECK_EQ(summary.frees, frees);
    for (size_t i = 0; i < sizeof summary.reserved / sizeof summary.reserved[0]; i++)
        CHECK_EQ(summary.reserved[i], 0);
}

/* ------------------------------------------------------------------ context */

static void
test_create(void)
{
    berth_context *context = NULL;
    berth_context_options options;
    berth_error error;

    memset(&error, 0xAA, sizeof error);
    CHECK_EQ(berth_context_create(NULL, &context, &error), BERTH_OK);
    CHECK_EQ(error.status, 0);
    CHECK_STR(error.message, "");
    T_REQUIRE(context != NULL);
    check_memory(context, 0, 0, 0, 0);
    CHECK_EQ(context->hung_ns, UINT64_C(5000000000)); /* berth.h says so */
    berth_context_destroy(context);
    berth_context_destroy(NULL);
    berth_context_options_init(&options);
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    berth_context_destroy(context);
}

static void
test_create_refuses(void)
{
    strict s = { .live = 0 };
    berth_allocator allocator = { &s, strict_alloc, NULL };
    berth_context *context = (berth_context *)&s;
    berth_context_options options;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, NULL, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "argument `out_context` is NULL");
    berth_context_options_init(&options);
    options.allocator = &allocator;
    CHECK_EQ(berth_context_create(&options, &context, &error), BERTH_EINVAL);
    CHECK_STR(error.message, "argument `options` has an allocator without alloc or free");
    CHECK(context == NULL);
    allocator = (berth_allocator){ &s, NULL, strict_free };
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_EINVAL);
    context = (berth_context *)&s;
    options.struct_size = 1;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_EINVAL);
    CHECK(context == NULL);

    berth_context_options_init(&options);
    allocator = (berth_allocator){ &s, strict_alloc, strict_free };
    options.allocator = &allocator;
    s.is_empty = true;
    CHECK_EQ(berth_context_create(&options, &context, &error), BERTH_ENOMEM);
    CHECK_STR(error.message, "out of memory: creating a context");
    CHECK(context == NULL);
    CHECK_EQ(s.calls, 1);
}

static void
test_context_comes_from_the_hooks(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 0);

    CHECK_EQ(s.live, 1);
    CHECK_STR(s.blocks[0].purpose, "context");
    CHECK_EQ(s.blocks[0].bytes, sizeof *context);
    berth_context_destroy(context);
    CHECK_EQ(s.live, 0);
    CHECK_EQ(s.wrong, 0);
}

/* -------------------------------------------------------------- allocations */

static void
test_hooks_and_ledger_agree(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 0);
    void *const a = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 100);
    void *const b = berthi_memory_aligned(context, BERTHI_PURPOSE_RING, 5000, 4096);
    unsigned char *const c = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, 33);
    void *const d = berthi_memory_array(context, BERTHI_PURPOSE_CHUNKS, 7, 24);
    void *const e = berthi_memory_alloc(context, BERTHI_PURPOSE_SCRATCH, 0);

    T_REQUIRE(a != NULL && b != NULL && c != NULL && d != NULL && e != NULL);
    CHECK_EQ((uintptr_t)a % 16, 0);
    CHECK_EQ((uintptr_t)b % 4096, 0);
    for (int i = 0; i < 33; i++)
        CHECK_EQ(c[i], 0);
    CHECK_EQ(s.blocks[1].alignment, 16);
    CHECK_EQ(s.blocks[2].alignment, 4096);
    CHECK_STR(s.blocks[2].purpose, "ring");
    CHECK_EQ(s.blocks[4].bytes, 7 * 24);
    CHECK_EQ(s.blocks[5].bytes, 1);
    check_memory(context, 100 + 5000 + 33 + 168 + 1, 5302, 5, 0);
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, b, 5000, 4096);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, a, 100);
    check_memory(context, 33 + 168 + 1, 5302, 5, 2);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, NULL, 100);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, c, 33);
    berthi_memory_free(context, BERTHI_PURPOSE_CHUNKS, d, 168);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, e, 0);
    check_memory(context, 0, 5302, 5, 5);
    berth_context_destroy(context);
    CHECK_EQ(s.live, 0);
    CHECK_EQ(s.wrong, 0);
}

static void
test_sizes_that_cannot_be(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 0);
    const uint64_t largest = SIZE_MAX / 2;

    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, largest + 1) == NULL);
    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, UINT64_MAX) == NULL);
    CHECK(berthi_memory_zalloc(context, BERTHI_PURPOSE_HEADER, UINT64_MAX) == NULL);
    CHECK(berthi_memory_array(context, BERTHI_PURPOSE_HEADER, UINT64_C(1) << 32,
                              UINT64_C(1) << 32)
          == NULL);
    CHECK(berthi_memory_array(context, BERTHI_PURPOSE_HEADER, UINT64_MAX, 2) == NULL);
    CHECK_EQ(s.calls, 1); /* nobody was asked */
    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, largest) == NULL);
    CHECK_EQ(s.calls, 2);
    /* What the hook refused was never in use: no count, no peak. */
    check_memory(context, 0, 0, 0, 0);
    berth_context_destroy(context);
}

static void
test_limit(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 1000);
    void *const a = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 600);

    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 401) == NULL);
    CHECK_EQ(s.calls, 2);
    void *const b = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 400);

    CHECK(b != NULL);
    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 0) == NULL);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, b, 400);
    s.is_empty = true;
    CHECK(berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 400) == NULL);
    s.is_empty = false;
    void *const c = berthi_memory_alloc(context, BERTHI_PURPOSE_HEADER, 400);

    CHECK(c != NULL);
    check_memory(context, 1000, 1000, 3, 1);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, a, 600);
    berthi_memory_free(context, BERTHI_PURPOSE_HEADER, c, 400);
    berth_context_destroy(context);
    CHECK_EQ(s.wrong, 0);
}

/* AddressSanitizer keeps what was freed, to see whether it is used. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_QUARANTINE true
#elif defined(__has_feature)
#define HAS_QUARANTINE __has_feature(address_sanitizer)
#else
#define HAS_QUARANTINE false
#endif

/* glibc's heap keeps blocks of up to this size, once one of them has been given back. */
static void
raise_the_threshold_of_malloc(void)
{
    void *volatile large = malloc(30 << 20);

    free(large);
}

/* From 1 MiB on, what is given back is gone from the process, whatever came before. */
static void
test_large_blocks_are_mapped(void)
{
    static const struct {
        uint64_t bytes;
        uint64_t alignment;
        bool is_mapped;
    } cases[] = { { 1 << 20, 16, true },          { (1 << 20) + 1, 4096, true },
                  { (1 << 20) - 1, 4096, false }, { 1 << 20, 8192, false },
                  { 40 << 20, 4096, true },       { 4096, 4096, false } };
    berth_context *context;

    raise_the_threshold_of_malloc();
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char *const memory = berthi_memory_aligned(
            context, BERTHI_PURPOSE_RING, cases[i].bytes, cases[i].alignment);
        const uintptr_t page = (uintptr_t)memory & ~(uintptr_t)4095;
        unsigned char state;

        T_REQUIRE(memory != NULL);
        CHECK_EQ((uintptr_t)memory % cases[i].alignment, 0);
        memset(memory, 0xA5, cases[i].bytes);
        CHECK_EQ(mincore((void *)page, 4096, &state), 0);
        berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, memory, cases[i].bytes,
                                   cases[i].alignment);
        if (cases[i].is_mapped && !HAS_QUARANTINE)
            CHECK(mincore((void *)page, 4096, &state) == -1 && errno == ENOMEM);
    }
    berth_context_destroy(context);
}

static void
test_two_contexts(void)
{
    strict s;
    strict t;
    berth_context *const one = create_strict(&s, 100);
    berth_context *const two = create_strict(&t, 200);
    void *const a = berthi_memory_alloc(one, BERTHI_PURPOSE_HEADER, 100);
    void *const b = berthi_memory_alloc(two, BERTHI_PURPOSE_HEADER, 200);

    CHECK(a != NULL);
    CHECK(b != NULL);
    check_memory(one, 100, 100, 1, 0);
    check_memory(two, 200, 200, 1, 0);
    berthi_memory_free(one, BERTHI_PURPOSE_HEADER, a, 100);
    berth_context_destroy(one);
    check_memory(two, 200, 200, 1, 0);
    berthi_memory_free(two, BERTHI_PURPOSE_HEADER, b, 200);
    berth_context_destroy(two);
    CHECK_EQ(s.live + s.wrong + t.live + t.wrong, 0);
}

static void *
allocate_and_free(void *user)
{
    berth_context *const context = user;

    for (int i = 1; i <= 5000; i++) {
        void *const memory =
            berthi_memory_alloc(context, BERTHI_PURPOSE_SCRATCH, (uint64_t)(i % 100));

        if (memory == NULL)
            return context;
        berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, memory, (uint64_t)(i % 100));
    }
    return NULL;
}

static void
test_threads(void)
{
    berth_context *context = NULL;
    berth_memory_summary summary;
    pthread_t threads[3];

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (int i = 0; i < 3; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, allocate_and_free, context) == 0);
    for (int i = 0; i < 3; i++) {
        void *failed = context;

        pthread_join(threads[i], &failed);
        CHECK(failed == NULL);
    }
    berth_context_memory(context, &summary);
    CHECK_EQ(summary.current_bytes, 0);
    CHECK_GE(summary.peak_bytes, 99);
    CHECK_LE(summary.peak_bytes, 3 * 99);
    CHECK_EQ(summary.allocations, 15000);
    CHECK_EQ(summary.frees, 15000);
    berth_context_destroy(context);
}

/* -------------------------------------------------------------------- arena */

static void
test_arena_alignment(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 0);
    berthi_arena arena;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_TENSORS, 4096);
    CHECK_EQ(s.live, 1); /* nothing is taken before it is needed */
    for (uint64_t alignment = 1; alignment <= 16; alignment *= 2)
        for (uint64_t bytes = 0; bytes <= 17; bytes++) {
            unsigned char *const piece = berthi_arena_alloc(&arena, bytes, alignment);

            T_REQUIRE(piece != NULL);
            CHECK_EQ((uintptr_t)piece % alignment, 0);
            memset(piece, (int)bytes, bytes);
        }
    CHECK_EQ(s.live, 2);
    CHECK_STR(s.blocks[1].purpose, "tensors");
    berthi_arena_fini(&arena);
    berthi_arena_fini(&arena);
    CHECK_EQ(s.live, 1);
    /* It can be used again. */
    CHECK_STR(berthi_arena_text(&arena, "again", 5), "again");
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
    CHECK_EQ(s.live + s.wrong, 0);
}

/* Pieces neither overlap nor move, and each lies inside its block. */
static void
test_arena_pieces_are_apart(void)
{
    unsigned char *pieces[600];
    strict s;
    berth_context *const context = create_strict(&s, 0);
    berthi_arena arena;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_TENSORS, 256);
    for (size_t i = 0; i < 600; i++) {
        const size_t bytes = i * 7 % 90;

        pieces[i] = berthi_arena_alloc(&arena, bytes, (uint64_t)1 << i % 5);
        T_REQUIRE(pieces[i] != NULL);
        CHECK_EQ((uintptr_t)pieces[i] % ((uintptr_t)1 << i % 5), 0);
        memset(pieces[i], (int)i, bytes);
    }
    for (size_t i = 0; i < 600; i++)
        for (size_t k = 0; k < i * 7 % 90; k++)
            CHECK(pieces[i][k] == (unsigned char)i);
    for (int i = 1; i < s.live; i++)
        CHECK_EQ(s.blocks[i].bytes, 256);
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
    CHECK_EQ(s.live + s.wrong, 0);
}

static void
test_arena_block_borders(void)
{
    const uint64_t head = 16; /* a block's own struct */
    strict s;
    berth_context *const context = create_strict(&s, 0);
    berthi_arena arena;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_TENSORS, 256);
    /* Fills a block to its last byte; the next byte needs a new one. */
    CHECK(berthi_arena_alloc(&arena, 256 - head, 16) != NULL);
    CHECK_EQ(s.live, 2);
    CHECK_EQ(s.blocks[1].bytes, 256);
    CHECK(berthi_arena_alloc(&arena, 1, 1) != NULL);
    CHECK_EQ(s.live, 3);
    /* Larger than a block: one of its own. */
    CHECK(berthi_arena_alloc(&arena, 257, 8) != NULL);
    CHECK_EQ(s.live, 4);
    CHECK_EQ(s.blocks[3].bytes, 257 + head);
    CHECK(berthi_arena_alloc(&arena, 256 - head + 1, 1) != NULL);
    CHECK_EQ(s.blocks[4].bytes, 257);
    CHECK(berthi_arena_alloc(&arena, UINT64_MAX, 1) == NULL);
    CHECK(berthi_arena_alloc(&arena, UINT64_MAX - 20, 16) == NULL);
    CHECK(berthi_arena_text(&arena, "", UINT64_MAX) == NULL);
    CHECK_EQ(s.live, 5);
    check_memory(context, 256 + 256 + 257 + head + 257, 256 + 256 + 257 + head + 257, 4, 0);
    berthi_arena_fini(&arena);
    check_memory(context, 0, 256 + 256 + 257 + head + 257, 4, 4);
    berth_context_destroy(context);
}

/* No byte is lost: pieces without alignment touch, the last one ends with its block. */
static void
test_arena_is_dense(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 0);
    berthi_arena arena;
    const char *first;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_TENSORS, 256);
    first = berthi_arena_text(&arena, "ab", 2);
    CHECK(berthi_arena_text(&arena, "cde", 3) == first + 3);
    CHECK(berthi_arena_alloc(&arena, 256 - 16 - 7, 1) == first + 7);
    CHECK_EQ(s.live, 2);
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
}

static void
test_arena_text(void)
{
    strict s;
    berth_context *const context = create_strict(&s, 0);
    berthi_arena arena;
    char *text;

    berthi_arena_init(&arena, context, BERTHI_PURPOSE_TENSORS, 64);
    CHECK_STR(berthi_arena_text(&arena, "abcdef", 3), "abc");
    CHECK_STR(berthi_arena_text(&arena, "", 0), "");
    text = berthi_arena_text(&arena, "a\0b", 3);
    T_REQUIRE(text != NULL);
    CHECK_MEM(text, "a\0b", 4);
    s.is_empty = true;
    CHECK(berthi_arena_text(&arena, "0123456789012345678901234567890123456789", 40)
          == NULL);
    /* What had been handed out is untouched, and small pieces still fit. */
    CHECK_MEM(text, "a\0b", 4);
    CHECK_STR(berthi_arena_text(&arena, "z", 1), "z");
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
    CHECK_EQ(s.live + s.wrong, 0);
}

/* ---------------------------------------------------------------------- log */

typedef struct recorder {
    char line[4096];
    int32_t level;
    _Atomic int lines;
    _Atomic int inside;
    _Atomic int clashes;
    _Atomic int unlocked;
    berth_context *own;   /* whose lock is held meanwhile */
    berth_context *other; /* logs there too, from within */
} recorder;

static void
record(void *user, int32_t level, const char *line)
{
    recorder *const r = user;

    if (atomic_fetch_add(&r->inside, 1) != 0)
        atomic_fetch_add(&r->clashes, 1);
    if (pthread_mutex_trylock(&r->own->log_lock) == 0) {
        atomic_fetch_add(&r->unlocked, 1);
        pthread_mutex_unlock(&r->own->log_lock);
    }
    snprintf(r->line, sizeof r->line, "%s", line);
    r->level = level;
    atomic_fetch_add(&r->lines, 1);
    if (r->other != NULL)
        berthi_log(r->other, BERTH_LOG_INFO, "passed on: %s", line);
    atomic_fetch_sub(&r->inside, 1);
}

static berth_context *
create_logging(recorder *r)
{
    berth_context_options options;
    berth_context *context = NULL;

    memset(r, 0, sizeof *r);
    berth_context_options_init(&options);
    options.log = record;
    options.log_user = r;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    r->own = context;
    return context;
}

static void
test_log(void)
{
    char words[3000];
    recorder r;
    berth_context *context = create_logging(&r);

    CHECK_EQ(r.lines, 0);
    berthi_log(context, BERTH_LOG_WARNING, "%d of %s", 5, "x");
    CHECK_STR(r.line, "5 of x");
    CHECK_EQ(r.level, BERTH_LOG_WARNING);
    berthi_log(context, BERTH_LOG_DEBUG, "y");
    CHECK_EQ(r.level, BERTH_LOG_DEBUG);
    CHECK_EQ(r.lines, 2);
    memset(words, 'w', sizeof words);
    words[sizeof words - 1] = '\0';
    berthi_log(context, BERTH_LOG_INFO, "%s", words);
    CHECK_EQ(strlen(r.line), 1535);
    berth_context_destroy(context);

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    berthi_log(context, BERTH_LOG_WARNING, "nobody listens");
    berth_context_destroy(context);
}

static void
test_log_between_contexts(void)
{
    recorder inner;
    recorder outer;
    berth_context *const two = create_logging(&inner);
    berth_context *const one = create_logging(&outer);

    outer.other = two;
    berthi_log(one, BERTH_LOG_WARNING, "hello");
    CHECK_STR(outer.line, "hello");
    CHECK_STR(inner.line, "passed on: hello");
    CHECK_EQ(inner.level, BERTH_LOG_INFO);
    berth_context_destroy(one);
    berth_context_destroy(two);
}

static void *
log_often(void *user)
{
    for (int i = 0; i < 2000; i++)
        berthi_log(user, BERTH_LOG_INFO, "line %d", i);
    return NULL;
}

static void
test_log_from_threads(void)
{
    recorder r;
    berth_context *const context = create_logging(&r);
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        T_REQUIRE(pthread_create(&threads[i], NULL, log_often, context) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(r.lines, 6000);
    CHECK_EQ(r.clashes, 0);
    CHECK_EQ(r.unlocked, 0);
    CHECK_STR(r.line, "line 1999");
    berth_context_destroy(context);
}

/* ------------------------------------------------------------------- faults */

static berth_status
use_everything(void *user, berth_context *context, berth_error *error)
{
    void *first = NULL;
    void *second = NULL;
    berth_context *inner = context;
    berthi_arena arena;
    berth_status status;

    (void)user;
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_TENSORS, 64);
    status = berth_context_create(NULL, &inner, error);
    if (status != BERTH_OK) {
        CHECK(inner == NULL);
        return status;
    }
    status = BERTH_ENOMEM;
    first = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, 10);
    if (first == NULL)
        goto done;
    second = berthi_memory_array(context, BERTHI_PURPOSE_OBJECT, 3, 10);
    if (second == NULL)
        goto done;
    for (int i = 0; i < 10; i++)
        if (berthi_arena_text(&arena, "0123456789", 10) == NULL)
            goto done;
    status = BERTH_OK;
done:
    if (status != BERTH_OK)
        berthi_fail_memory(error, "using everything");
    berthi_arena_fini(&arena);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, second, 30);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, first, 10);
    berth_context_destroy(inner);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("memory", use_everything, NULL);

    /* The context, two blocks, three arena blocks; once and from then on. */
    CHECK_EQ(counts.memory, 2 * (1 + 2 + 3));
    /* On a processor with tiles: whether the process may use them, for each context. */
    CHECK(counts.system == 0 || counts.system == 2);
    CHECK_EQ(counts.survived, counts.system);
}

/* Many tensors are worth large pages, few are not. */
static void
test_arena_blocks(void)
{
    CHECK_EQ(berthi_arena_block_for(0), 65536);
    CHECK_EQ(berthi_arena_block_for(32767), 65536);
    CHECK_EQ(berthi_arena_block_for(32768), 2097152);
    CHECK_EQ(berthi_arena_block_for(UINT64_MAX), 2097152);
}

/* ------------------------------------------------------------------------- what is kept */

/* Something that a device still uses, until it is asked `refusals` times. */
typedef struct keepsake {
    berthi_kept kept; /* first */
    berth_context *context;
    struct keepsake *other; /* is left in the same moment; NULL: none */
    uint32_t refusals;
    uint32_t asked;
    uint32_t ended; /* as the how manieth; 0: it is kept */
    uint32_t *endings;
} keepsake;

static bool
try_keepsake(berthi_kept *kept)
{
    keepsake *const k = (keepsake *)kept;

    /* As a function of the caller's may that gives memory back. */
    (void)berth_context_trim(k->context);
    if (k->other != NULL) {
        berthi_context_keep(k->context, &k->other->kept);
        k->other = NULL;
    }
    if (k->asked++ < k->refusals)
        return false;
    k->ended = ++*k->endings;
    return true;
}

static void
test_kept(void)
{
    berth_context *context = NULL;
    uint32_t endings = 0;
    keepsake all[4];

    T_REQUIRE(CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK));
    for (uint32_t i = 0; i < 4; i++)
        all[i] = (keepsake){ .kept.try_end = try_keepsake,
                             .context = context,
                             .refusals = i == 0 ? 2 : 0,
                             .endings = &endings };
    all[1].other = &all[3];
    all[2].refusals = 1;
    for (uint32_t i = 0; i < 3; i++)
        berthi_context_keep(context, &all[i].kept);
    berthi_context_sweep(context);
    CHECK_EQ(all[1].ended, 1);
    CHECK_EQ(all[0].asked + all[2].asked, 2);
    CHECK_EQ(all[3].asked, 0);
    berthi_context_sweep(context); /* the second and the fourth, in the order they were left */
    CHECK_EQ(all[2].ended, 2);
    CHECK_EQ(all[3].ended, 3);
    CHECK_EQ(all[0].ended, 0);
    berth_context_destroy(context);
    CHECK_EQ(all[0].ended, 4);
    CHECK_EQ(all[0].asked, 3);
}

/* Also by a part of it, and by who keeps what is given back; what is beside it is as before. */
static void
test_abandoned(void)
{
    berth_context_options options;
    berth_context *context = NULL;
    berth_memory_summary memory;
    uint8_t *left[2];
    void *beside;

    berth_context_options_init(&options);
    options.spare_bytes = 16 * PAGE;
    T_REQUIRE(CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK));
    for (int i = 0; i < 2; i++) {
        left[i] = berthi_memory_aligned(context, BERTHI_PURPOSE_RING, 2 * PAGE, PAGE);
        T_REQUIRE(left[i] != NULL);
        memset(left[i], i + 1, 2 * PAGE);
        berthi_memory_abandon(context, left[i] + (size_t)i * PAGE);
    }
    beside = berthi_memory_aligned(context, BERTHI_PURPOSE_RING, 2 * PAGE, PAGE);
    CHECK(!berthi_memory_is_abandoned(context, beside, 2 * PAGE));
    berthi_memory_free_aligned(context, BERTHI_PURPOSE_RING, left[0], 2 * PAGE, PAGE);
    berthi_spare_free(context, left[1], 2 * PAGE, PAGE);
    berthi_spare_free(context, beside, 2 * PAGE, PAGE);
    CHECK_EQ(berth_context_trim(context), 2 * PAGE);
    berth_context_memory(context, &memory);
    CHECK_GE(memory.current_bytes, 4 * PAGE);
    CHECK_LT(memory.current_bytes, 5 * PAGE);
    berth_context_destroy(context);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(left[i][2 * PAGE - 1], i + 1);
        free(left[i]);
    }
}

static berthi_cpu_level
level_with(int32_t uses_tiles)
{
    berth_context_options options;
    berth_context *context = NULL;
    berthi_cpu_level level;

    berth_context_options_init(&options);
    options.uses_tiles = uses_tiles;
    CHECK_EQ(berth_context_create(&options, &context, NULL), BERTH_OK);
    level = context->level;
    berth_context_destroy(context);
    return level;
}

/* The process has it for good then: nothing asks for it here before. */
static void
test_tiles_are_asked_for_by_an_option(void)
{
    const berthi_cpu_level before = level_with(0);
    berthi_cpu_level with;
    bool may_use_them;

    CHECK(before != BERTHI_CPU_AMX);
    CHECK(!berthi_sys_may_use_tiles());
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, true);
    CHECK_EQ(level_with(1), before);
    berthi_fault_disarm();
    CHECK(!berthi_sys_may_use_tiles());
    with = level_with(1);
    may_use_them = berthi_sys_may_use_tiles();
    CHECK_EQ(may_use_them, berthi_sys_allow_tiles() == 0);
    CHECK_EQ(with, berthi_cpu_best_level());
    CHECK_EQ(level_with(0), with);
    if (may_use_them && before == BERTHI_CPU_AVX512BF16)
        CHECK_EQ(with, BERTHI_CPU_AMX);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_create);
    T_RUN(test_create_refuses);
    T_RUN(test_context_comes_from_the_hooks);
    T_RUN(test_hooks_and_ledger_agree);
    T_RUN(test_sizes_that_cannot_be);
    T_RUN(test_limit);
    T_RUN(test_large_blocks_are_mapped);
    T_RUN(test_two_contexts);
    T_RUN(test_threads);
    T_RUN(test_arena_alignment);
    T_RUN(test_arena_pieces_are_apart);
    T_RUN(test_arena_block_borders);
    T_RUN(test_arena_is_dense);
    T_RUN(test_arena_text);
    T_RUN(test_log);
    T_RUN(test_log_between_contexts);
    T_RUN(test_log_from_threads);
    T_RUN(test_faults);
    T_RUN(test_arena_blocks);
    T_RUN(test_kept);
    T_RUN(test_abandoned);
    T_RUN(test_tiles_are_asked_for_by_an_option);
    T_MAIN_END;
}
