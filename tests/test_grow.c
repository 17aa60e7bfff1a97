/* SPDX-License-Identifier: Apache-2.0 */
/* test_grow.c - arrays that get larger: what they hold, what overflows, no memory. */
#include "kernels/grow.h"

#include <string.h>

#include "kernels/fault.h"
#include "tests/fault.h"
#include "tests/t.h"

static uint64_t
used_bytes(const berth_context *context)
{
    berth_memory_summary memory;

    berth_context_memory(context, &memory);
    return memory.current_bytes;
}

static void
test_room_doubles(void)
{
    CHECK_EQ(berthi_grown(0, 16), 16);
    CHECK_EQ(berthi_grown(7, 16), 16);
    CHECK_EQ(berthi_grown(8, 16), 16);
    CHECK_EQ(berthi_grown(9, 16), 18);
    CHECK_EQ(berthi_grown(UINT64_C(1) << 62, 1), UINT64_C(1) << 63);
    CHECK_EQ(berthi_grown(UINT64_MAX / 2, 1), UINT64_MAX - 1);
    CHECK_EQ(berthi_grown(UINT64_MAX / 2 + 1, 1), UINT64_MAX);
    CHECK_EQ(berthi_grown(UINT64_MAX, 1), UINT64_MAX);
}

/* Appends numbers, as the library's lists do; returns how many there is room for. */
static uint64_t
fill(berth_context *context, uint64_t count, uint32_t **out)
{
    uint32_t *numbers = NULL;
    uint64_t capacity = 0;

    for (uint64_t i = 0; i < count; i++) {
        const berthi_growth growth = { .size = sizeof *numbers,
                                       .used = i,
                                       .before = capacity,
                                       .after = berthi_grown(capacity, 4) };
        uint32_t *larger;

        if (i == capacity) {
            larger = berthi_memory_grow(context, BERTHI_PURPOSE_SCRATCH, numbers, &growth);
            if (larger == NULL)
                break;
            numbers = larger;
            capacity = growth.after;
        }
        numbers[i] = (uint32_t)(i * i);
    }
    *out = numbers;
    return capacity;
}

static void
test_elements_stay(void)
{
    berth_context *context = NULL;
    uint32_t *numbers;
    uint64_t capacity;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    capacity = fill(context, 1000, &numbers);
    CHECK_EQ(capacity, 1024);
    for (uint32_t i = 0; i < 1000 && numbers != NULL; i++)
        CHECK_EQ(numbers[i], i * i);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, numbers, capacity * sizeof *numbers);
    CHECK_EQ(used_bytes(context), 0);
    berth_context_destroy(context);
}

static void
test_no_memory(void)
{
    berth_context *context = NULL;
    uint32_t *numbers;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (uint64_t nth = 0; nth < 6; nth++) { /* 4, 8, ... 128 */
        uint64_t capacity;

        berthi_fault_arm(BERTHI_FAULT_MEMORY, nth, true);
        capacity = fill(context, 128, &numbers);
        berthi_fault_disarm();
        CHECK_EQ(capacity, nth == 0 ? 0 : UINT64_C(2) << nth);
        for (uint32_t i = 0; i < capacity; i++)
            CHECK_EQ(numbers[i], i * i);
        berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, numbers,
                           capacity * sizeof *numbers);
        CHECK_EQ(used_bytes(context), 0);
    }
    berth_context_destroy(context);
}

/* More than there are addresses for: the array is there as it was. */
static void
test_overflow(void)
{
    const berthi_growth growth = { .size = 8, .used = 2, .before = 2,
                                   .after = UINT64_C(1) << 61 };
    const berthi_growth most = { .size = 24, .used = 2, .before = 2,
                                 .after = berthi_grown(UINT64_MAX, 2) };
    berth_context *context = NULL;
    berthi_arena arena;
    uint64_t *pair;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    pair = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, 2, sizeof *pair);
    T_REQUIRE(pair != NULL);
    pair[0] = 5;
    pair[1] = 6;
    CHECK(berthi_memory_grow(context, BERTHI_PURPOSE_SCRATCH, pair, &growth) == NULL);
    CHECK(berthi_memory_copy(context, BERTHI_PURPOSE_SCRATCH, pair, &most) == NULL);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 64);
    CHECK(berthi_arena_grow(&arena, pair, &growth) == NULL);
    CHECK(berthi_arena_grow(&arena, pair, &most) == NULL);
    berthi_arena_fini(&arena);
    CHECK(pair[0] == 5 && pair[1] == 6);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, pair, 2 * sizeof *pair);
    CHECK_EQ(used_bytes(context), 0);
    berth_context_destroy(context);
}

static void
test_arenas(void)
{
    static const uint64_t sizes[] = { 1, 2, 4, 6, 8, 12, 24 };
    static const uint64_t aligned[] = { 1, 2, 4, 2, 8, 4, 8 };
    berth_context *context = NULL;
    uint8_t bytes[48];
    berthi_arena arena;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 4096);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i + 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const berthi_growth growth = { .size = sizes[i], .used = 2, .before = 2, .after = 9 };
        const uint8_t *const grown = berthi_arena_grow(&arena, bytes, &growth);

        T_REQUIRE(grown != NULL);
        CHECK_EQ((uintptr_t)grown % aligned[i], 0);
        CHECK_MEM(grown, bytes, 2 * sizes[i]);
        (void)berthi_arena_alloc(&arena, 1, 1);
    }
    CHECK(berthi_arena_grow(&arena, NULL,
                            &(berthi_growth){ .size = 4, .used = 0, .after = 1 })
          != NULL);
    berthi_arena_fini(&arena);
    CHECK_EQ(used_bytes(context), 0);
    berth_context_destroy(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_room_doubles);
    T_RUN(test_elements_stay);
    T_RUN(test_no_memory);
    T_RUN(test_overflow);
    T_RUN(test_arenas);
    T_MAIN_END;
}
