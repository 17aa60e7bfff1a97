/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups.c - numbers by group: all of them, in their order, and what that takes. */
#include "loader/groups.h"

#include <string.h>

#include "tests/fault.h"
#include "tests/random.h"
#include "tests/t.h"
#include "tests/vacant.h"

#define COUNT 1000u

static berth_context *context;

typedef struct grouped {
    uint32_t order[COUNT];
    uint32_t group[COUNT]; /* by number */
    uint64_t *asked;
} grouped;

static uint32_t
group_of(const void *user, uint32_t number)
{
    const grouped *const g = user;

    ++*g->asked;
    return g->group[number];
}

/* Against a walk over all of them for each group. */
static void
check(const grouped *g, uint64_t count, uint32_t group_count)
{
    berthi_groups groups;
    uint64_t at = 0;

    *g->asked = 0;
    T_REQUIRE(CHECK_EQ(berthi_groups_init(&groups, context, g->order, count, group_count,
                                          group_of, g, NULL),
                       BERTH_OK));
    CHECK_EQ(*g->asked, 2 * count);
    for (uint32_t i = 0; i < group_count; i++) {
        CHECK_EQ(berthi_groups_begin(&groups, i), at);
        for (uint64_t k = 0; k < count; k++)
            if (g->group[g->order[k]] == i)
                CHECK_EQ(groups.numbers[at++], g->order[k]);
        CHECK_EQ(groups.ends[i], at);
    }
    CHECK_EQ(at, count);
    berthi_groups_fini(&groups);
    berthi_groups_fini(&groups);
    vacant_check_memory(context);
}

static void
test_orders(void)
{
    static const uint32_t group_counts[] = { 1, 2, 7, 100, 5000 };
    uint64_t asked;
    grouped g = { .asked = &asked };
    uint64_t state = 1;

    for (uint32_t i = 0; i < COUNT; i++)
        g.order[i] = (i * 7 + 3) % COUNT; /* each once */
    for (size_t k = 0; k < sizeof group_counts / sizeof *group_counts; k++) {
        for (uint32_t i = 0; i < COUNT; i++)
            g.group[i] = (uint32_t)(random_next(&state) % group_counts[k]);
        check(&g, COUNT, group_counts[k]);
    }
    check(&g, 0, 3);
    check(&g, 0, 0);
}

static berth_status
group_once(void *user, berth_context *fresh, berth_error *error)
{
    static uint64_t asked;
    grouped g = { .order = { 2, 0, 1 }, .group = { 1, 0, 1 }, .asked = &asked };
    berthi_groups groups;
    const berth_status status =
        berthi_groups_init(&groups, fresh, g.order, 3, 2, group_of, &g, error);

    (void)user;
    berthi_groups_fini(&groups);
    return status;
}

static void
test_faults(void)
{
    CHECK_EQ(fault_loop("groups", group_once, NULL).survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_orders);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
