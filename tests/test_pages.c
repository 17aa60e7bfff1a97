/* SPDX-License-Identifier: Apache-2.0 */
/* Large pages are timed, a stretch at a time, and given up where they are slow. */
#define _GNU_SOURCE /* madvise(), mincore() */
#include "kernels/pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/fault.h"
#include "kernels/sys.h"
#include "tests/own_memory.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define LARGE (2 * MIB)
#define STRETCH (64 * MIB)
#define BYTES (3 * STRETCH + 10 * MIB)

typedef struct rig {
    berth_context *context;
    uint8_t *memory;
    uint8_t *first; /* large page */
    berthi_pages pages;
} rig;

static bool
has_begun(rig *r, const berth_allocator *allocator)
{
    berth_context_options options;

    memset(r, 0, sizeof *r);
    berth_context_options_init(&options);
    options.allocator = allocator;
    if (!CHECK_EQ(berth_context_create(&options, &r->context, NULL), BERTH_OK))
        return false;
    r->memory = berthi_memory_aligned(r->context, BERTHI_PURPOSE_WEIGHTS, BYTES,
                                      berthi_sys_page_bytes());
    if (!CHECK(r->memory != NULL))
        return false;
    r->first = r->memory + -(uint64_t)(uintptr_t)r->memory % LARGE;
    berthi_pages_init(&r->pages, r->context, r->memory, BYTES, berthi_sys_page_bytes(),
                      1);
    return true;
}

static void
end(rig *r)
{
    berth_memory_summary memory;

    berthi_pages_fini(&r->pages);
    berthi_memory_free_aligned(r->context, BERTHI_PURPOSE_WEIGHTS, r->memory, BYTES,
                               berthi_sys_page_bytes());
    berth_context_memory(r->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(r->context);
}

static bool
is_there(const uint8_t *page)
{
    unsigned char state = 0;

    CHECK_EQ(mincore((void *)(uintptr_t)page, 1, &state), 0);
    return (state & 1) != 0;
}

/*
 * True when berth maps memory of this size itself, which it does not under sanitizers, and
 * the kernel makes pages when it is asked to.
 */
static bool
is_mapped(const rig *r)
{
    uint8_t *const last = r->memory + BYTES - berthi_sys_page_bytes();

    if (!berthi_memory_is_mapped(r->context, BYTES, berthi_sys_page_bytes()))
        return false;
    (void)berthi_sys_map_touch(last, berthi_sys_page_bytes());
    return is_there(last);
}

/* True when the kernel has been told to use small pages at this address. */
static bool
is_small(const uint8_t *address)
{
    FILE *const file = fopen("/proc/self/smaps", "r");
    const uint64_t wanted = (uint64_t)(uintptr_t)address;
    bool is_inside = false;
    bool is_found = false;
    char line[512];

    if (!CHECK(file != NULL))
        return false;
    while (fgets(line, sizeof line, file) != NULL) {
        uint64_t begin;
        uint64_t end_;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end_) == 2)
            is_inside = begin <= wanted && wanted < end_;
        else if (is_inside && strncmp(line, "VmFlags:", 8) == 0)
            is_found = strstr(line, " nh") != NULL;
    }
    (void)fclose(file);
    return is_found;
}

static void
test_a_stretch_is_looked_at_once(void)
{
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    if (!is_mapped(&r)) {
        berthi_pages_expect(&r.pages, r.memory, BYTES, BYTES);
        end(&r);
        T_SKIP("memory is not mapped in this build, or not made by this kernel");
    }
    CHECK_EQ(r.pages.stretch_count, 3);
    CHECK(r.pages.first == r.first);
    r.pages.slow_ns = UINT64_MAX;
    berthi_pages_expect(&r.pages, r.memory, 0, 0);
    berthi_pages_expect(&r.pages, r.first + STRETCH, STRETCH, STRETCH);
    CHECK(!is_there(r.first + STRETCH - LARGE));
    CHECK(is_there(r.first + 2 * STRETCH - LARGE));
    CHECK(!is_there(r.first + 2 * STRETCH - LARGE - 4096)); /* nothing before it */
    CHECK(!is_there(r.first + 3 * STRETCH - LARGE));
    CHECK(!is_there(r.first + STRETCH));
    /* Again: another is not touched. */
    CHECK_EQ(madvise(r.first + 2 * STRETCH - LARGE, LARGE, MADV_DONTNEED), 0);
    berthi_pages_expect(&r.pages, r.first + STRETCH, 1, 1);
    CHECK(!is_there(r.first + 2 * STRETCH - LARGE));
    /* One byte on each side of a border; the tail is no stretch. */
    berthi_pages_expect(&r.pages, r.first + STRETCH - 1, 1, 1);
    CHECK(is_there(r.first + STRETCH - LARGE));
    CHECK(!is_there(r.first + 3 * STRETCH - LARGE));
    berthi_pages_expect(&r.pages, r.first + 2 * STRETCH - 1, 2, 2);
    CHECK(is_there(r.first + 3 * STRETCH - LARGE));
    berthi_pages_expect(&r.pages, r.first + 3 * STRETCH, 10 * MIB - 1, 10 * MIB - 1);
    CHECK(!is_there(r.first + 3 * STRETCH));
    end(&r);
}

/* Bytes that lie before the first stretch count as far as they reach into it. */
static void
test_before_the_first(void)
{
    berthi_pages pages;
    uint8_t *begin;
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    begin = r.first + LARGE - 4096;
    berthi_pages_init(&pages, r.context, begin, STRETCH + 4096, berthi_sys_page_bytes(), 1);
    if (is_mapped(&r)) {
        CHECK_EQ(pages.stretch_count, 1);
        CHECK(pages.first == r.first + LARGE);
        pages.slow_ns = UINT64_MAX;
        berthi_pages_expect(&pages, begin, 4096, 4096);
        CHECK(!is_there(r.first + STRETCH));
        berthi_pages_expect(&pages, begin, 4097, 4097);
        CHECK(is_there(r.first + STRETCH));
        CHECK(!is_there(r.first + STRETCH - 4096));
    }
    berthi_pages_fini(&pages);
    end(&r);
}

/* A large page that is not to be had counts as a slow one. */
static void
test_slow_ones_become_small(void)
{
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    if (!is_mapped(&r)) {
        end(&r);
        T_SKIP("memory is not mapped in this build, or not made by this kernel");
    }
    berthi_fault_arm(BERTHI_FAULT_SYSTEM, 0, false);
    berthi_pages_expect(&r.pages, r.first, 1, 1);
    berthi_fault_disarm();
    CHECK(is_small(r.first));
    CHECK(is_small(r.first + STRETCH - LARGE - 1));
    CHECK(!is_small(r.first + STRETCH - LARGE));
    CHECK(!is_small(r.first + STRETCH));
    memset(r.memory, 1, BYTES); /* all of it is there to be written */
    end(&r);
}

/*
 * How long a page may take depends on the threads that make them side by side, and on what
 * is read for it.
 */
static void
test_how_slow_is_slow(void)
{
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    if (!is_mapped(&r)) {
        end(&r);
        T_SKIP("memory is not mapped in this build, or not made by this kernel");
    }
    CHECK_EQ(r.pages.slow_ns, 1000000);
    berthi_pages_fini(&r.pages);
    berthi_pages_init(&r.pages, r.context, r.memory, BYTES, berthi_sys_page_bytes(), 7);
    CHECK_EQ(r.pages.slow_ns, 7000000);
    r.pages.slow_ns = 1; /* none is as quick */
    r.pages.times = 0;
    berthi_pages_expect(&r.pages, r.first, 3, UINT64_C(3) << 40);
    CHECK(!is_small(r.first));
    berthi_pages_expect(&r.pages, r.first + STRETCH, 8, 4); /* decoded: as if 8 were read */
    CHECK(is_small(r.first + STRETCH));
    r.pages.slow_ns = UINT64_C(1) << 40;
    berthi_pages_expect(&r.pages, r.first + 2 * STRETCH, 8, 4);
    CHECK(!is_small(r.first + 2 * STRETCH));
    end(&r);
}

/* Slow ones stay where as many bytes of small ones are not much faster. */
static void
test_small_ones_have_to_be_faster(void)
{
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    if (!is_mapped(&r)) {
        end(&r);
        T_SKIP("memory is not mapped in this build, or not made by this kernel");
    }
    CHECK_EQ(r.pages.times, 2);
    r.pages.slow_ns = 0;
    r.pages.times = UINT64_MAX;
    berthi_pages_expect(&r.pages, r.first, 1, 1);
    CHECK(is_there(r.first + STRETCH - LARGE));
    CHECK(is_there(r.first + STRETCH - LARGE - 4096)); /* the sample, and no more */
    CHECK(is_there(r.first + STRETCH - 2 * LARGE));
    CHECK(is_small(r.first + STRETCH - 2 * LARGE));
    CHECK(!is_there(r.first + STRETCH - 2 * LARGE - 4096));
    CHECK(!is_small(r.first + STRETCH - 2 * LARGE - 1));
    CHECK(!is_small(r.first));
    berthi_pages_fini(&r.pages);
    CHECK(!is_small(r.first + STRETCH - 2 * LARGE));
    end(&r);
}

/* Once all is written the kernel is free to make large ones of them. */
static void
test_small_ones_may_become_large(void)
{
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    if (!is_mapped(&r)) {
        end(&r);
        T_SKIP("memory is not mapped in this build, or not made by this kernel");
    }
    r.pages.slow_ns = 0;
    r.pages.times = 0;
    berthi_pages_expect(&r.pages, r.first + 2 * STRETCH, 1, 1);
    CHECK(is_small(r.first + 2 * STRETCH));
    berthi_pages_fini(&r.pages);
    CHECK(!is_small(r.first + 2 * STRETCH));
    CHECK(!is_small(r.first + 3 * STRETCH - LARGE - 1));
    end(&r);
}

static void
test_memory_of_the_caller(void)
{
    const berth_allocator allocator = { NULL, own_alloc, own_free };
    rig r;

    T_REQUIRE(has_begun(&r, &allocator));
    CHECK(!is_mapped(&r));
    CHECK(r.pages.is_known == NULL);
    berthi_pages_expect(&r.pages, r.memory, BYTES, BYTES);
    CHECK(!is_there(r.first + STRETCH - LARGE));
    end(&r);
}

/* Too little for a stretch, and no memory for the table: nothing is done. */
static void
test_nothing_to_do(void)
{
    berthi_pages pages;
    rig r;

    T_REQUIRE(has_begun(&r, NULL));
    berthi_pages_init(&pages, r.context, r.first, STRETCH - 1, berthi_sys_page_bytes(), 1);
    CHECK(pages.is_known == NULL);
    berthi_pages_expect(&pages, r.first, STRETCH - 1, STRETCH - 1);
    berthi_pages_fini(&pages);
    berthi_pages_init(&pages, r.context, NULL, 0, berthi_sys_page_bytes(), 1);
    CHECK(pages.is_known == NULL);
    berthi_pages_fini(&pages);
    berthi_fault_arm(BERTHI_FAULT_MEMORY, 0, false);
    berthi_pages_init(&pages, r.context, r.first, STRETCH, berthi_sys_page_bytes(), 1);
    berthi_fault_disarm();
    CHECK(pages.is_known == NULL);
    berthi_pages_expect(&pages, r.first, STRETCH, STRETCH);
    CHECK(!is_there(r.first + STRETCH - LARGE));
    berthi_pages_fini(&pages);
    end(&r);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_a_stretch_is_looked_at_once);
    T_RUN(test_before_the_first);
    T_RUN(test_slow_ones_become_small);
    T_RUN(test_how_slow_is_slow);
    T_RUN(test_small_ones_have_to_be_faster);
    T_RUN(test_small_ones_may_become_large);
    T_RUN(test_memory_of_the_caller);
    T_RUN(test_nothing_to_do);
    T_MAIN_END;
}
