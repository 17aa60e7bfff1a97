/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_predict.c - what operations take beyond their bytes, in what plans predict. */
#include <locale.h>
#include <math.h>

#include "kernels/experts.h"
#include "placement/plan_words.h"
#include "tests/comma.h"
#include "tests/given.h"
#include "tests/t.h"

#define NANOSECONDS 7000000u /* 7 ms: of rates and sizes here a layer takes some */

/* A model on one GPU that has room for all of it. */
static void
begin(given *g, const char *model)
{
    given_begin(g, model);
    given_tier(g, BERTHI_TIER_GPU, GIVEN_NONE, 0, 4, 20);
}

/* Milliseconds that a pass computes. */
static double
computes(given *g, uint64_t operation_ns)
{
    double milliseconds = NAN;
    berth_plan *plan;

    g->tiers[0].operation_ns = operation_ns;
    if (CHECK_EQ(berthi_plan_make(given_context, &g->input, &plan, NULL), BERTH_OK)) {
        milliseconds = 1e3 * plan->summary.compute_seconds;
        CHECK_EQ(plan->tiers[0].operation_ns, operation_ns);
        CHECK(fabs(plan->summary.seconds - plan->summary.compute_seconds) < 1e-9);
        berthi_plan_free(plan);
    }
    return milliseconds;
}

/* How many operations of 7 ms there are beside what bytes take. */
static void
check_operations(given *g, double expected)
{
    const double more = computes(g, NANOSECONDS) - computes(g, 0);

    if (!CHECK(fabs(more - 7 * expected) < 1e-6))
        T_NOTE("%.9g ms instead of %.9g operations", more, expected);
}

/* Three layers of three tensors and a head; an embedding's rows are none. */
static void
test_each_tensor(void)
{
    given g;

    begin(&g, GIVEN_LAYERS);
    CHECK(fabs(computes(&g, 0) - 1.5) < 1e-6); /* 27 units and 3 of the cache, by 20 */
    check_operations(&g, 10);
}

static void
test_tied(void)
{
    given g;

    begin(&g, "layer t 0\nt.w 6 i\nlayer a 0\na.w 4 d\nlayer h 0\nh.w 6 d =0\n");
    check_operations(&g, 2); /* the head is multiplied by, wherever its bytes are */
}

/* Of eight experts with three tensors each those that a token takes. */
static void
test_experts(void)
{
    static const char model[] = "layer a 0\na.n 1 f\n"
                                "a.e 1 e #0\na.f 1 e #0\na.g 1 e #1\na.h 1 e #1\n"
                                "a.i 1 e #2\na.j 1 e #2\na.k 1 e #3\na.l 1 e #3\n";
    given g;

    begin(&g, model);
    check_operations(&g, 9); /* not known: all */
    g.input.expert_count = 4;
    check_operations(&g, 9);
    g.input.experts_used = 1;
    check_operations(&g, 3);
    g.input.experts_used = 3;
    check_operations(&g, 7);
}

/* The same where weights of experts are multiplied by at once: a write and a product of each. */
static void
test_grouped_experts(void)
{
    static const char model[] = "layer a 0\na.n 1 f\n"
                                "a.e 1 e #0 *\na.f 1 e #0 *\na.g 1 e #1 *\na.h 1 e #1 *\n"
                                "a.i 1 e #2 *\na.j 1 e #2 *\na.k 1 e #3 *\na.l 1 e #3 *\n";
    given g;

    begin(&g, model);
    check_operations(&g, 9); /* how many experts there are is not known */
    g.input.expert_count = 4;
    check_operations(&g, 5);
    g.input.experts_used = 1;
    check_operations(&g, 3); /* alone */
    g.input.experts_used = 3;
    check_operations(&g, 5);
    g.input.tokens = 21; /* 16 inputs each */
    check_operations(&g, 5);
    g.input.tokens = 22;
    check_operations(&g, 9);
    g.input.experts_used = 0;
    g.input.tokens = 16;
    check_operations(&g, 5);
    g.input.tokens = 17;
    check_operations(&g, 9);
}

static void
test_group_sizes(void)
{
    static const uint64_t experts[] = { 0, 1, 2, 45, 46, 47, 48, 92, 93, 128 };
    static const uint64_t operations[] = { 0, 1, 2, 2, 2, 3, 4, 4, 5, 6 };

    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        CHECK_EQ(berthi_experts_operations(experts[i]), operations[i]);
    CHECK(berthi_experts_may_have_rings(64, 4096));
    CHECK(!berthi_experts_may_have_rings(128, 4096));
    CHECK(!berthi_experts_may_have_rings(64, 4096 + 128));
    CHECK(!berthi_experts_may_have_rings(64, 2048));
}

/* Each by the device that computes it; of others nothing is known. */
static void
test_devices(void)
{
    berth_plan *plan;
    given g;

    given_begin(&g, "layer a 0\na.n 1 f\na.w 4 d\nlayer b 0\nb.n 1 f\nb.w 4 d\nb.v 4 d\n");
    given_tier(&g, BERTHI_TIER_GPU, 5, 0, 4, 20);
    given_tier(&g, BERTHI_TIER_GPU, 9, 0, 4, 10);
    g.tiers[1].operation_ns = NANOSECONDS;
    T_REQUIRE(CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK));
    CHECK_EQ(plan->layers[0].out.home, 0);
    CHECK_EQ(plan->layers[1].out.home, 1);
    CHECK(fabs(1e3 * plan->summary.compute_seconds - (0.25 + 0.9 + 3 * 7)) < 1e-6);
    berthi_plan_free(plan);
}

static void
check_reals(void)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = { { 0, "0" },        { 0.03389, "0.0339" }, { 1.5, "1.5" },   { 60, "60" },
                 { 99.96, "100" },  { 238.095, "238" },    { 1e6, "1e+06" },
                 { 1.234e-7, "1.23e-07" } };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[BERTHI_REAL_CAPACITY];

        CHECK_STR(berthi_real_text(rows[i].value, text), rows[i].text);
    }
}

/* Of the sentences of plans: a comma nowhere, whatever the caller's locale has. */
static void
test_numbers_have_points(void)
{
    check_reals();
    if (!comma_is_set())
        T_SKIP("no locale with a decimal comma can be had");
    check_reals();
    setlocale(LC_NUMERIC, "C");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    given_start();
    T_RUN(test_each_tensor);
    T_RUN(test_tied);
    T_RUN(test_experts);
    T_RUN(test_grouped_experts);
    T_RUN(test_group_sizes);
    T_RUN(test_devices);
    T_RUN(test_numbers_have_points);
    given_end();
    T_MAIN_END;
}
