/* SPDX-License-Identifier: Apache-2.0 */
/* test_states_stay.c - which states stay where not all can: against all sets of them. */
#include <string.h>

#include "placement/states_stay.h"
#include "tests/fault.h"
#include "tests/planned.h"
#include "tests/random.h"
#include "tests/t.h"

/* The most bytes that there is room for, by trying all; the first ones of a size. */
static void
test_choice(void)
{
    uint64_t random = 88172645463325252u;
    berth_context *context = NULL;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (uint32_t run = 0; run < 2000; run++) {
        const uint32_t count = 1 + (uint32_t)(random_next(&random) % 11);
        const uint64_t sizes = 1 + random_next(&random) % 20;
        uint64_t bytes[11];
        uint8_t stays[11];
        berthi_arena arena;
        uint64_t all = 0;
        uint64_t kept = 0;
        uint64_t room;

        berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 4096);
        for (uint32_t i = 0; i < count; i++) {
            bytes[i] = 1 + random_next(&random) % sizes * 37;
            all += bytes[i];
        }
        room = random_next(&random) % (all + 2);
        CHECK(berthi_states_can_choose(&arena, bytes, count, room, stays));
        for (uint32_t i = 0; i < count; i++) {
            kept += stays[i] != 0 ? bytes[i] : 0;
            for (uint32_t k = 0; k < i; k++)
                CHECK(bytes[k] != bytes[i] || stays[k] >= stays[i]);
        }
        CHECK_EQ(kept, planned_best_sum(bytes, count, room));
        berthi_arena_fini(&arena);
    }
    berth_context_destroy(context);
}

/* The largest sum within `room`, of any number of numbers: all sums are marked. */
static uint64_t
best_of_many(const uint64_t *bytes, uint32_t count, uint64_t room)
{
    static uint8_t is_sum[65536];
    uint64_t best = 0;

    memset(is_sum, 0, sizeof is_sum);
    is_sum[0] = 1;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t sum = room; sum >= bytes[i]; sum--)
            is_sum[sum] |= is_sum[sum - bytes[i]];
    for (uint64_t sum = 0; sum <= room; sum++)
        best = is_sum[sum] != 0 ? sum : best;
    return best;
}

/* As a model has them: many states in few sizes. What cannot be better is left out, so
 * that the best is found in time. */
static void
test_many_of_few_sizes(void)
{
    enum { COUNT = 400 };
    uint64_t random = 1234567;
    berth_context *context = NULL;
    uint64_t bytes[COUNT];
    uint8_t stays[COUNT];

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    for (uint32_t run = 0; run < 30; run++) {
        const uint64_t sizes[] = {
            64 + random_next(&random) % 64, 64 + random_next(&random) % 64,
            64 + random_next(&random) % 64, 64 + random_next(&random) % 64,
            2 * (1 + random_next(&random) % 20)
        };
        berthi_arena arena;
        uint64_t all = 0;
        uint64_t kept = 0;
        uint64_t room;

        berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 4096);
        for (uint32_t i = 0; i < COUNT; i++) {
            bytes[i] = sizes[random_next(&random) % (i < 300 ? 4 : 5)] & ~UINT64_C(1);
            all += bytes[i];
        }
        room = all / 2 | 1; /* odd: never full */
        CHECK(berthi_states_can_choose(&arena, bytes, COUNT, room, stays));
        for (uint32_t i = 0; i < COUNT; i++)
            kept += stays[i] != 0 ? bytes[i] : 0;
        CHECK_EQ(kept, best_of_many(bytes, COUNT, room));
        berthi_arena_fini(&arena);
    }
    berth_context_destroy(context);
}

/* Of sums that are as large the one with larger sizes. */
static void
test_equal_sums(void)
{
    static const uint64_t bytes[] = { 2, 2, 2, 4 };
    berth_context *context = NULL;
    berthi_arena arena;
    uint8_t stays[4];

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 4096);
    CHECK(berthi_states_can_choose(&arena, bytes, 4, 5, stays));
    CHECK(stays[0] == 0 && stays[1] == 0 && stays[2] == 0 && stays[3] == 1);
    CHECK(berthi_states_can_choose(&arena, bytes, 0, 5, stays));
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
}

/* Many sizes that no search gets through: as good as the largest first, and over soon. */
static void
test_large_choice(void)
{
    enum { COUNT = 5000 };
    static uint64_t bytes[COUNT];
    static uint8_t stays[COUNT];
    static uint8_t again[COUNT];
    berth_context *context = NULL;
    berthi_arena arena;
    uint64_t random = 42;
    uint64_t all = 0;
    uint64_t kept = 0;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 4096);
    for (uint32_t i = 0; i < COUNT; i++) {
        /* Even: an odd room is never full. */
        bytes[i] = 1000 + 2 * (random_next(&random) % 100000);
        all += bytes[i];
    }
    CHECK(berthi_states_can_choose(&arena, bytes, COUNT, all / 2 | 1, stays));
    CHECK(berthi_states_can_choose(&arena, bytes, COUNT, all / 2 | 1, again));
    CHECK_MEM(stays, again, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        kept += stays[i] != 0 ? bytes[i] : 0;
    CHECK_LE(kept, all / 2 | 1);
    CHECK(kept + 2000 > all / 2);
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
}

static berth_status
choose_again(void *user, berth_context *context, berth_error *error)
{
    static const uint64_t bytes[] = { 3, 2, 1 };
    berthi_arena arena;
    uint8_t stays[3];
    bool is_chosen;

    (void)user;
    /* A block holds less than any of the lists: each is an allocation. */
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_SCRATCH, 16);
    is_chosen = berthi_states_can_choose(&arena, bytes, 3, 4, stays);
    berthi_arena_fini(&arena);
    return is_chosen ? BERTH_OK : berthi_fail_memory(error, "choosing");
}

static void
test_no_memory(void)
{
    const fault_counts counts = fault_loop("chosen", choose_again, NULL);

    CHECK_EQ(counts.survived, 0);
    CHECK_EQ(counts.memory, 2 + 2); /* either list alone, and from each one on */
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_choice);
    T_RUN(test_many_of_few_sizes);
    T_RUN(test_equal_sums);
    T_RUN(test_large_choice);
    T_RUN(test_no_memory);
    T_MAIN_END;
}
