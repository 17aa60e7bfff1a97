/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_imitate.c - planning small trees: upstream's own tests as data
 * (tests/data/placement/upstream.txt), balancing, refusals, remarks, what a
 * release counts for a tensor, failures. Recorded maps: test_imitate_recorded.c.
 */
#include "placement/imitate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fault.h"
#include "tests/placed.h"
#include "tests/t.h"

static berth_context *context;
static berthi_arena arena;

/* --------------------------------------------------------------------- planning */

/* A tree in the words of small.txt, and what is asked of it. */
typedef struct plan {
    char *text;
    placed_record record;
    berthi_tree tree;
    berthi_budgets budgets;
    berthi_imitate_options options;
    berthi_imitation made;
} plan;

static void
begin(plan *p, const char *text, berthi_era era, const char *memory)
{
    char *at;

    memset(p, 0, sizeof *p);
    p->text = malloc(strlen(text) + 1);
    memcpy(p->text, text, strlen(text) + 1);
    at = p->text;
    CHECK(placed_read(&arena, &at, &p->record));
    placed_small(context, &arena, &p->record, era != BERTHI_ERA_HF4, &p->tree);
    CHECK_EQ(berthi_budgets_parse(memory, &p->budgets, NULL), BERTH_OK);
    p->options = (berthi_imitate_options){ .era = era,
                                           .mode = BERTHI_PLAN_MODE_SEQUENTIAL,
                                           .budgets = &p->budgets };
}

static void
make(plan *p)
{
    berthi_imitation_fini(&p->made);
    CHECK_EQ(berthi_imitate(context, &p->tree, &p->options, &p->made, NULL), BERTH_OK);
}

static void
end(plan *p)
{
    berthi_imitation_fini(&p->made);
    berthi_tree_fini(&p->tree);
    free(p->text);
}

/* "0:a b cpu:c", "-" for the root, in the order of the map. */
static const char *
map_of(const plan *p)
{
    static char text[4096];
    const berthi_budget *last = NULL;
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < p->made.placed_count; i++) {
        const berthi_placed *const line = &p->made.placed[i];
        const berthi_budget *const device = &p->made.budgets.items[line->device];
        char name[BERTHI_BUDGET_NAME];

        if (i > 0)
            text[length++] = ' ';
        if (device != last)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s:",
                                       berthi_budget_name(device, name));
        last = device;
        length += (size_t)snprintf(text + length, sizeof text - length, "%.*s",
                                   line->path_length > 0 ? (int)line->path_length : 1,
                                   line->path_length > 0 ? line->path : "-");
    }
    return text;
}

static const char *
budgets_of(const berthi_budgets *budgets)
{
    static char text[4096];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < budgets->count; i++) {
        char name[BERTHI_BUDGET_NAME];

        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s=%.17g",
                                   i > 0 ? "," : "",
                                   berthi_budget_name(&budgets->items[i], name),
                                   budgets->items[i].bytes);
    }
    return text;
}

/* The remarks, each ended by ';'. */
static const char *
remarks_of(const plan *p)
{
    static char text[2048];
    char remark[512];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0;
         berthi_imitation_has_remark(&p->made, &p->tree, i, remark, sizeof remark); i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s;", remark);
    return text;
}

/* --------------------------------------------------------------- upstream's tests */

static void
check_upstream(const placed_record *record, berthi_era era)
{
    const char *const with = placed_words(record, "with");
    const char *const difference_word = "map_accelerate";
    berthi_imitate_options options = { .era = era, .mode = BERTHI_PLAN_MODE_SEQUENTIAL };
    const char *difference;
    berthi_imitation made;
    berthi_budgets budgets;
    berthi_tree tree;
    double minimum = 0;

    options.budgets = &budgets;
    options.has_fallback = strstr(with, "fallback") != NULL;
    options.has_buffer_offload = strstr(with, "offload_buffers") != NULL;
    placed_small(context, &arena, record, era != BERTHI_ERA_HF4, &tree);
    CHECK_EQ(berthi_budgets_parse(placed_words(record, "memory"), &budgets, NULL), BERTH_OK);
    CHECK_EQ(berthi_imitate(context, &tree, &options, &made, NULL), BERTH_OK);
    CHECK_EQ(made.refusal, BERTHI_REFUSAL_NONE);
    difference = placed_difference(&arena, &made, record, difference_word);
    if (!CHECK(difference == NULL) || made.total_bytes != atof(placed_words(record, "total")))
        T_NOTE("%s, %s: %s, %.0f bytes", placed_words(record, "small"),
               berthi_era_name(era), difference, made.total_bytes);
    CHECK(made.total_bytes == atof(placed_words(record, "total")));
    CHECK(made.buffer_bytes == atof(placed_words(record, "buffers")));
    placed_has_number(placed_words(record, "minimum"), "0", &minimum);
    if (made.budgets.items[0].kind == BERTHI_BUDGET_GPU)
        CHECK(made.minimum[0] == minimum);
    berthi_imitation_fini(&made);
    berthi_tree_fini(&tree);
}

static void
test_upstream(void)
{
    char *const text = placed_file("upstream.txt");
    placed_record record;
    uint32_t count = 0;
    char *at = text;

    for (; placed_read(&arena, &at, &record); count++) {
        check_upstream(&record, BERTHI_ERA_HF4);
        if (strstr(placed_words(&record, "with"), "fallback") == NULL) {
            check_upstream(&record, BERTHI_ERA_HF5_0);
            check_upstream(&record, BERTHI_ERA_HF5_14);
            check_upstream(&record, BERTHI_ERA_HF5);
        }
    }
    CHECK_EQ(count, 26);
    free(text);
}

/* -------------------------------------------------------------------- balancing */

/* Sizes 64, 72 and 100. */
static const char *const three = "tree\n- M\n"
                                 " linear1 Linear weight#1=48 bias#2=16\n"
                                 " batchnorm Norm weight#3=64 ~count#7=8\n"
                                 " linear2 Linear weight#8=80 bias#9=20\n";

static const char *
balance(const char *text, berthi_era era, berthi_plan_mode mode, const char *memory)
{
    static char result[256];
    plan p;

    begin(&p, text, era, memory);
    p.options.mode = mode;
    make(&p);
    snprintf(result, sizeof result, "%s",
             p.made.refusal == BERTHI_REFUSAL_NONE ? budgets_of(&p.made.balanced)
                                                   : placed_refusal(p.made.refusal));
    end(&p);
    return result;
}

static void
test_balance(void)
{
    static const struct {
        berthi_plan_mode mode;
        const char *memory;
        const char *mean;    /* every era but hf5 */
        const char *largest; /* hf5 */
    } cases[] = {
        { BERTHI_PLAN_MODE_AUTO, "0=200,1=200", "0=200,1=200", "0=200,1=200" },
        { BERTHI_PLAN_MODE_AUTO, "0=300,1=300", "0=215,1=300", "0=243,1=300" },
        { BERTHI_PLAN_MODE_BALANCED, "0=300,1=500", "0=215,1=500", "0=243,1=500" },
        { BERTHI_PLAN_MODE_AUTO, "0=200,2=200", "0=200,2=200", "0=200,2=200" },
        { BERTHI_PLAN_MODE_AUTO, "0=300,cpu=1000", "0=300,cpu=1000", "0=300,cpu=1000" },
        { BERTHI_PLAN_MODE_AUTO, "0=0,1=300,2=300", "0=0,1=215,2=300", "0=0,1=243,2=300" },
        { BERTHI_PLAN_MODE_AUTO, "0=0,cpu=100", "0=0,cpu=100", "0=0,cpu=100" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "0=300,1=300", "0=0,1=300", "0=0,1=300" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "0=300,1=100,2=90", "0=46,1=100,2=90",
          "0=46,1=100,2=90" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "0=30,1=100,2=90", "0=30,1=100,2=90",
          "0=30,1=100,2=90" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "0=300,1=500,2=500", "0=0,1=215,2=500",
          "0=0,1=243,2=500" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "0=300,cpu=9", "0=300,cpu=9", "0=300,cpu=9" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "0=300,2=300", "number", "number" },
        { BERTHI_PLAN_MODE_BALANCED_LOW_0, "1=300,2=300", "number", "number" },
        { BERTHI_PLAN_MODE_SEQUENTIAL, "0=300,1=300", "0=300,1=300", "0=300,1=300" },
        { BERTHI_PLAN_MODE_AUTO, "mps=300", "mps=300", "mps=300" },
        { BERTHI_PLAN_MODE_AUTO, "0=300,1=300,2=300", "0=175,1=175,2=300",
          "0=203,1=203,2=300" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const mean = cases[i].mean;

        CHECK_STR(balance(three, BERTHI_ERA_HF4, cases[i].mode, cases[i].memory), mean);
        CHECK_STR(balance(three, BERTHI_ERA_HF5_0, cases[i].mode, cases[i].memory), mean);
        CHECK_STR(balance(three, BERTHI_ERA_HF5_14, cases[i].mode, cases[i].memory), mean);
        CHECK_STR(balance(three, BERTHI_ERA_HF5, cases[i].mode, cases[i].memory),
                  cases[i].largest);
    }
}

/* The first block of a class, or the largest; nested ones, and ones with buffers alone. */
static void
test_blocks(void)
{
    static const char *const blocks = "no_split B C\ntree\n- M\n"
                                      " a B w#1=100\n"
                                      " b B w#2=400\n"
                                      " c C w#3=40\n";
    static const char *const later = "no_split B\ntree\n- M\n"
                                     " a B ~z#1=8\n"  /* in the table behind b */
                                     " b B w#2=400\n";
    static const char *const nested = "no_split B\ntree\n- M\n"
                                      " a B w#1=100\n"
                                      "  b B w#2=300\n"
                                      " c B w#3=1000\n";
    static const char *const memory = "0=9999,1=9999";

    /* 540 / 2 and 5/4 of 180, the mean; of 400 from 5.14 on. */
    CHECK_STR(balance(blocks, BERTHI_ERA_HF4, BERTHI_PLAN_MODE_AUTO, memory),
              "0=495,1=9999");
    CHECK_STR(balance(blocks, BERTHI_ERA_HF5_0, BERTHI_PLAN_MODE_AUTO, memory),
              "0=495,1=9999");
    CHECK_STR(balance(blocks, BERTHI_ERA_HF5_14, BERTHI_PLAN_MODE_AUTO, memory),
              "0=770,1=9999");
    CHECK_STR(balance(later, BERTHI_ERA_HF4, BERTHI_PLAN_MODE_AUTO, memory),
              "0=704,1=9999");
    /* 1400 / 2; of a (400) and c (1000), not of b within a, the first is a. */
    CHECK_STR(balance(nested, BERTHI_ERA_HF5_14, BERTHI_PLAN_MODE_AUTO, memory),
              "0=1950,1=9999");
    /* Leaves: b and c, mean 650; owners: a, b and c by their own, mean 466. */
    CHECK_STR(balance(nested, BERTHI_ERA_HF4, BERTHI_PLAN_MODE_AUTO, memory),
              "0=1512,1=9999");
    CHECK_STR(balance(nested, BERTHI_ERA_HF5_0, BERTHI_PLAN_MODE_AUTO, memory),
              "0=1282,1=9999");
}

/* What the root owns is no leaf; names of ties count for nothing. */
static void
test_leaves(void)
{
    static const char *const root = "tree\n- M w#1=900\n a A w#2=50\n b B w#3=51\n";
    static const char *const tied = "tree\n- M\n a A w#1=100\n b B w#1=100\n c C x#2=10\n";
    static const char *const memory = "0=9999,1=9999";

    CHECK_STR(balance(root, BERTHI_ERA_HF5, BERTHI_PLAN_MODE_AUTO, memory),
              "0=563,1=9999");
    CHECK_STR(balance(root, BERTHI_ERA_HF5_14, BERTHI_PLAN_MODE_AUTO, memory),
              "0=562,1=9999"); /* 500 and 5/4 of 50 */
    CHECK_STR(balance(root, BERTHI_ERA_HF4, BERTHI_PLAN_MODE_AUTO, memory),
              "0=562,1=9999");
    CHECK_STR(balance(tied, BERTHI_ERA_HF5_14, BERTHI_PLAN_MODE_AUTO, memory),
              "0=123,1=9999"); /* 110 / 2 and 5/4 of 55: two leaves */
    CHECK_STR(balance(tied, BERTHI_ERA_HF4, BERTHI_PLAN_MODE_AUTO, memory),
              "0=123,1=9999");
}

/* One GPU that nobody has given a budget keeps a tenth free. */
static void
test_single_gpu(void)
{
    const uint64_t free_bytes[] = { 1000 };
    const berthi_budget_machine machine = { free_bytes, 1, 5000, false };
    plan p;

    begin(&p, three, BERTHI_ERA_HF5, "0=1");
    berthi_budgets_default(BERTHI_ERA_HF5, &machine, &p.budgets);
    p.options.mode = BERTHI_PLAN_MODE_AUTO;
    make(&p);
    CHECK_STR(budgets_of(&p.made.balanced), "0=900,cpu=4500");
    p.options.is_quantized = true;
    make(&p);
    CHECK_STR(budgets_of(&p.made.budgets), "0=810,cpu=4050,disk=0");
    p.options.mode = BERTHI_PLAN_MODE_SEQUENTIAL;
    make(&p);
    CHECK_STR(budgets_of(&p.made.balanced), "0=1000,cpu=4500");
    end(&p);
}

/* ---------------------------------------------------------------------- devices */

static const char *
map(const char *text, berthi_era era, const char *memory)
{
    static char result[1024];
    plan p;

    begin(&p, text, era, memory);
    make(&p);
    snprintf(result, sizeof result, "%s",
             p.made.refusal == BERTHI_REFUSAL_NONE ? map_of(&p)
                                                   : placed_refusal(p.made.refusal));
    end(&p);
    return result;
}

/* The first GPU and cpu keep room for the largest layer; others do not. */
static void
test_reserves(void)
{
    CHECK_STR(map(three, BERTHI_ERA_HF5, "3=164,7=171,cpu=1000"),
              "3:linear1 7:batchnorm cpu:linear2");
    CHECK_STR(map(three, BERTHI_ERA_HF5, "3=163,cpu=1000"), "cpu:-");
    /* Nothing waits behind the last one: it may take what was held. */
    CHECK_STR(map(three, BERTHI_ERA_HF5, "cpu=236"), "cpu:-");
    CHECK_STR(map(three, BERTHI_ERA_HF5, "cpu=235"), "cpu:linear1 disk:batchnorm linear2");
    CHECK_STR(map(three, BERTHI_ERA_HF5, "disk=1"), "disk:-");
    /* mps alone reserves: cpu does not beside it. */
    CHECK_STR(map(three, BERTHI_ERA_HF5, "mps=100,cpu=136"),
              "cpu:linear1 batchnorm disk:linear2");
    CHECK_STR(map(three, BERTHI_ERA_HF5, "0=64,mps=172,cpu=100"),
              "0:linear1 mps:batchnorm linear2");
}

/* Tensors of the root are entries of their own, buffers too; equality fits. */
static void
test_bare_tensors(void)
{
    static const char *const bare = "tree\n- M p#1=10 ~z#2=4\n a A w#3=20\n b B\n";

    CHECK_STR(map(bare, BERTHI_ERA_HF5, "0=100"), "0:-");
    CHECK_STR(map(bare, BERTHI_ERA_HF5, "0=30,1=4"), "0:p a b 1:z");
    CHECK_STR(map(bare, BERTHI_ERA_HF5, "0=30,1=3,cpu=100"), "0:p a b cpu:z");
    /* The largest of the beginning counts bare tensors; later ones do not. */
    CHECK_STR(map("tree\n- M p#1=10 q#2=50\n a A w#3=20\n", BERTHI_ERA_HF5, "0=59,1=99"),
              "1:-");
    CHECK_STR(map("tree\n- M p#1=10 q#2=50\n a A w#3=20\n", BERTHI_ERA_HF5, "0=60,1=99"),
              "0:p 1:q a");
    CHECK_STR(map("tree\n- M\n", BERTHI_ERA_HF5, "0=60"), "");
}

/* A module that was split loses its own buffers: the map says nothing of them. */
static void
test_lost_buffer(void)
{
    plan p;

    begin(&p, "tree\n- M\n c C w#4=3 ~z#1=5\n  a A w#2=10\n  b B w#3=10\n  d D w#5=5\n",
          BERTHI_ERA_HF5, "0=24,1=99");
    make(&p);
    CHECK_STR(map_of(&p), "0:c.w c.a 1:c.b c.d");
    CHECK_EQ(p.made.lost_buffer, 9);
    CHECK_STR(remarks_of(&p), "c.z is in no line of the map: its module was split;");
    end(&p);
}

static void
test_remarks(void)
{
    plan p;

    begin(&p, three, BERTHI_ERA_HF5, "0=163,1=63,2=64,cpu=98");
    make(&p);
    CHECK_STR(map_of(&p), "2:linear1 disk:batchnorm linear2");
    CHECK_STR(remarks_of(&p), "nothing fits on 0: it needs 164 bytes;"
                              "nothing fits on 1: it needs 64 bytes;"
                              "nothing fits on cpu: it needs 172 bytes;");
    end(&p);
    begin(&p, three, BERTHI_ERA_HF5, "0=164,cpu=999");
    make(&p);
    CHECK_STR(remarks_of(&p), "8 bytes of buffers of offloaded modules stay on a GPU, and "
                              "none has room for them;");
    end(&p);
}

/* ------------------------------------------------------------------------- ties */

/* From 5.13 on an entry counts once and is split itself; before, it moves on. */
static void
test_tie_eras(void)
{
    static const char *const two = "tree\n- M\n"
                                   " a A\n  b B w#1=10 v#2=10\n  c C x#3=30\n"
                                   " d D w#1=10 v#2=10 y#4=7\n";

    CHECK_STR(map(two, BERTHI_ERA_HF5, "0=56,cpu=500"), "cpu:-");
    CHECK_STR(map(two, BERTHI_ERA_HF5, "0=57,cpu=500"), "0:-");
    CHECK_STR(map(two, BERTHI_ERA_HF5_14, "0=57,cpu=500"), "0:-");
    CHECK_STR(map(two, BERTHI_ERA_HF5_0, "0=70,cpu=500"), "cpu:-");
    CHECK_STR(map(two, BERTHI_ERA_HF5_0, "0=71,cpu=500"), "0:-");
}

/* A tied parameter that stands alone at the top: upstream looks for a module. */
static void
test_tie_crash(void)
{
    plan p;

    begin(&p, "tree\n- M w#1=10\n a A w#1=10\n b B x#2=5\n", BERTHI_ERA_HF5, "0=100");
    make(&p);
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_TIE);
    end(&p);
    begin(&p, "tree\n- M\n a A w#1=10\n b B\n  c C w#1=10\n  d D w#1=10\n", BERTHI_ERA_HF4,
          "0=100");
    make(&p);
    CHECK_STR(map_of(&p), "0:-");
    end(&p);
}

/* --------------------------------------------------------------------- refusals */

static void
check_message(const plan *p, berth_status status, const char *message)
{
    berth_error error;

    CHECK_EQ(berthi_imitation_check(&p->made, &error), status);
    if (status != BERTH_OK)
        CHECK_CONTAINS(error.message, message);
}

static void
check_tensor(const plan *p, const char *name)
{
    berth_error error;

    CHECK_EQ(berthi_imitation_check(&p->made, &error), BERTH_ENOFIT);
    CHECK_STR(error.tensor, name);
}

static void
test_refused_class(void)
{
    plan p;

    begin(&p, "no_split X\ntree\n- M\n a A w#1=10\n", BERTHI_ERA_HF5_14, "0=99,1=99");
    p.options.mode = BERTHI_PLAN_MODE_AUTO;
    make(&p);
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_CLASS);
    CHECK_EQ(p.made.placed_count, 0);
    CHECK(p.made.total_bytes == 10);
    check_message(&p, BERTH_EINVAL, "no module of the classes that are never split");
    p.options.era = BERTHI_ERA_HF5;
    make(&p);
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_CLASS);
    p.options.era = BERTHI_ERA_HF5_0;
    make(&p);
    check_message(&p, BERTH_OK, "");
    CHECK_STR(map_of(&p), "0:a");
    p.options.era = BERTHI_ERA_HF5;
    p.options.mode = BERTHI_PLAN_MODE_SEQUENTIAL;
    make(&p);
    check_message(&p, BERTH_OK, "");
    end(&p);
}

static void
test_refused_number(void)
{
    plan p;

    begin(&p, three, BERTHI_ERA_HF4, "0=300,2=300,3=300");
    p.options.mode = BERTHI_PLAN_MODE_BALANCED_LOW_0;
    make(&p);
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_NUMBER);
    check_message(&p, BERTH_EINVAL, "there is no 1");
    p.budgets.items[0].number = 1;
    make(&p);
    check_message(&p, BERTH_EINVAL, "there is no 0");
    end(&p);
}

static void
test_refused_disk(void)
{
    plan p;

    begin(&p, three, BERTHI_ERA_HF4, "0=300,disk=300");
    p.options.mode = BERTHI_PLAN_MODE_AUTO;
    make(&p);
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_DISK);
    check_message(&p, BERTH_EINVAL, "no budget for disk");
    p.options.mode = BERTHI_PLAN_MODE_SEQUENTIAL;
    make(&p);
    check_message(&p, BERTH_OK, "");
    p.options.mode = BERTHI_PLAN_MODE_AUTO;
    p.options.era = BERTHI_ERA_HF5_0;
    make(&p);
    check_message(&p, BERTH_OK, "");
    CHECK_STR(budgets_of(&p.made.budgets), "0=300,disk=300");
    end(&p);
}

static void
test_refused_tie(void)
{
    plan p;

    begin(&p, "tree\n- M w#1=10\n a A w#1=10\n b B x#2=5\n", BERTHI_ERA_HF5, "0=100");
    make(&p);
    check_message(&p, BERTH_EINVAL,
                  "a tied weight's other module has been placed or split before");
    CHECK_EQ(p.made.placed_count, 0);
    end(&p);
}

static void
test_refused_offload(void)
{
    static const char *const exempt[] = { "linear2", "x" };
    plan p;

    begin(&p, three, BERTHI_ERA_HF5, "0=200,cpu=300");
    p.options.is_quantized = true;
    make(&p);
    CHECK_STR(budgets_of(&p.made.budgets), "0=180,cpu=270,disk=0");
    CHECK_STR(map_of(&p), "0:linear1 cpu:batchnorm linear2");
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_OFFLOAD);
    CHECK_EQ(p.made.refused, 1);
    check_tensor(&p, "batchnorm");
    check_message(&p, BERTH_ENOFIT, "would lie on cpu");
    check_message(&p, BERTH_ENOFIT, "172 bytes more are needed on GPUs");
    p.options.has_cpu_offload = true;
    make(&p);
    check_message(&p, BERTH_OK, "");
    p.options.has_cpu_offload = false;
    p.options.is_quantized = false;
    make(&p);
    check_message(&p, BERTH_OK, "");
    end(&p);
    /* All on cpu is fine, all on disk is not. */
    begin(&p, three, BERTHI_ERA_HF5, "cpu=9999");
    p.options.is_quantized = true;
    make(&p);
    check_message(&p, BERTH_OK, "");
    p.budgets.items[0].bytes = 1;
    make(&p);
    check_message(&p, BERTH_ENOFIT, "would lie on disk");
    end(&p);
    /* Modules that are not quantized may lie on cpu in 4.x. */
    begin(&p, three, BERTHI_ERA_HF4, "0=200,1=100,cpu=3000");
    p.options.is_quantized = true;
    make(&p);
    CHECK_STR(map_of(&p), "0:linear1 1:batchnorm cpu:linear2");
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_OFFLOAD);
    p.tree.exempt = exempt;
    p.tree.exempt_count = 1;
    make(&p);
    check_message(&p, BERTH_OK, "");
    p.tree.exempt++;
    make(&p);
    check_tensor(&p, "linear2");
    end(&p);
}

/* --------------------------------------------------------- _no_placement_params */

/* The tensor x of every block is listed. */
static void
begin_escaping(plan *p, const char *memory)
{
    begin(p,
          "no_split B\ntree\n- M\n e E w#1=10\n"
          " l List\n"
          "  0 B ~z#2=2\n   n N w#3=8\n   t T x#4=100\n"
          "  1 B ~z#5=2\n   n N w#6=8\n   t T x#7=100\n"
          " h H w#8=10\n",
          BERTHI_ERA_HF5, memory);
    p->tree.is_escaping = true;
    for (uint32_t i = 0; i < p->tree.count; i++) {
        berthi_node *const node = &p->tree.nodes[i];

        node->is_escaping = node->name_length > 0
                            && node->name[node->name_length - 1] == 'x';
    }
}

static void
test_escape(void)
{
    plan p;

    begin_escaping(&p, "0=900,1=900");
    make(&p);
    CHECK_STR(map_of(&p), "0:e l h"); /* never shortened */
    p.options.era = BERTHI_ERA_HF4;
    make(&p);
    CHECK_STR(map_of(&p), "0:-");
    end(&p);
    /* The next GPU cannot hold a block, empty as it is. */
    begin_escaping(&p, "0=140,1=109,2=300");
    make(&p); /* the second one fits: the last layer holds nothing */
    CHECK_STR(map_of(&p), "0:e l.0.n.w l.0.z l.1 h");
    end(&p);
    begin_escaping(&p, "0=135,1=109,2=109");
    make(&p);
    CHECK_STR(map_of(&p), "0:e l.0.n.w l.0.z l.1.n.w l.1.z h");
    CHECK_EQ(p.made.refusal, BERTHI_REFUSAL_NONE);
    end(&p);
    begin_escaping(&p, "0=140,1=110,2=300");
    make(&p);
    CHECK_STR(map_of(&p), "0:e 1:l.0 2:l.1 h");
    end(&p);
    /* Behind the last GPU comes cpu: nothing is escaped. */
    begin_escaping(&p, "0=140,cpu=50");
    make(&p);
    CHECK_STR(map_of(&p), "0:e disk:l.0 l.1 h");
    end(&p);
    /* No tensor of the block is listed. */
    begin_escaping(&p, "0=140,1=109,2=300");
    for (uint32_t i = 0; i < p.tree.count; i++)
        p.tree.nodes[i].is_escaping = false;
    make(&p);
    CHECK_STR(map_of(&p), "0:e 2:l.0 l.1 h");
    end(&p);
}

/* --------------------------------------------------------------------- counting */

/* A model of one module with tensors of many kinds. */
typedef struct counted {
    berthi_architecture model;
    berthi_module root;
    berthi_module module;
    berthi_parameter items[16];
    uint32_t count;
} counted;

static berthi_parameter *
add_item(counted *c, const char *name, int32_t dtype)
{
    berthi_parameter *const p = &c->items[c->count++];

    p->name = name;
    p->name_length = strlen(name);
    p->elements = 1000;
    p->dtype = dtype;
    p->module = &c->module;
    if (c->count > 1)
        p[-1].next = p;
    return p;
}

static void
begin_counted(counted *c, berthi_era era)
{
    memset(c, 0, sizeof *c);
    c->model.era = era;
    c->model.root = &c->root;
    c->model.head = "m.head";
    c->model.last_name = "m.last.weight";
    c->root.path = "";
    c->root.children = &c->module;
    c->root.last_child = &c->module;
    c->module.path = "m";
    c->module.path_length = 1;
    c->module.parent = &c->root;
    add_item(c, "m.plain", BERTH_BF16);
    add_item(c, "m.wide", BERTH_F32);
    add_item(c, "m.mask", BERTH_BOOL);
    add_item(c, "m.ids", BERTH_I64);
    add_item(c, "m.small", BERTH_F8_E4M3);
    add_item(c, "m.fc.weight", BERTH_BF16)->is_linear = true;
    add_item(c, "m.kind.weight", BERTH_BF16)->is_linear_kind = true;
    add_item(c, "m.head.weight", BERTH_BF16)->is_linear = true;
    add_item(c, "m.last.weight", BERTH_BF16)->is_linear = true;
    add_item(c, "m.keep.weight", BERTH_BF16)->is_linear = true;
    c->module.parameters = c->items;
}

/* Bytes of an element of each, as text. */
static const char *
count_all(counted *c, const berthi_count_options *options)
{
    static char text[512];
    size_t length = 0;
    berthi_tree tree;

    CHECK_EQ(berthi_tree_count(context, &c->model, options, &tree, NULL), BERTH_OK);
    CHECK_EQ(tree.count, c->count + 2);
    text[0] = '\0';
    for (uint32_t i = 2; i < tree.count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%g",
                                   i > 2 ? " " : "", tree.nodes[i].bytes / 1000);
    berthi_tree_fini(&tree);
    return text;
}

static void
test_count_5x(void)
{
    static const char *const keep[] = { "keep" };
    berthi_count_options options = { .era = BERTHI_ERA_HF5, .dtype = BERTH_BF16,
                                     .encoding = BERTH_ENCODING_NATIVE };
    counted c;

    begin_counted(&c, BERTHI_ERA_HF5);
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 2 2 2 2 2");
    options.encoding = BERTH_ENCODING_NF4;
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 0.5 2 2 2 0.5");
    options.encoding = BERTH_ENCODING_FP4;
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 0.5 2 2 2 0.5");
    options.encoding = BERTH_ENCODING_INT8;
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 1 2 2 2 1");
    options.has_skips = true;
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 1 2 1 1 1");
    options.skips = keep;
    options.skip_count = 1;
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 1 2 1 1 2");
    options.era = BERTHI_ERA_HF5_14;
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 1 2 1 1 2");
    options.era = BERTHI_ERA_HF5_0; /* classes derived from a linear layer, too */
    CHECK_STR(count_all(&c, &options), "2 4 1 8 1 1 1 1 1 2");
}

static void
test_count_4x(void)
{
    static const char *const fp32[] = { "wide", "plain", NULL };
    static const char *const strict[] = { "fc", NULL };
    static const char *const skips[] = { "ast" };
    berthi_count_options options = { .era = BERTHI_ERA_HF4, .dtype = BERTH_BF16,
                                     .encoding = BERTH_ENCODING_NATIVE };
    counted c;

    begin_counted(&c, BERTHI_ERA_HF4);
    CHECK_STR(count_all(&c, &options), "2 2 0.125 8 1 2 2 2 2 2");
    options.encoding = BERTH_ENCODING_NF4;
    CHECK_STR(count_all(&c, &options), "0.5 0.5 0.125 8 0.5 0.5 0.5 2 0.5 0.5");
    options.encoding = BERTH_ENCODING_INT8;
    CHECK_STR(count_all(&c, &options), "1 1 0.125 8 1 1 1 2 1 1");
    options.has_skips = true; /* any part of a name; buffers are none of them */
    options.skips = skips;
    options.skip_count = 1;
    c.items[8].is_buffer = true;
    CHECK_STR(count_all(&c, &options), "1 1 0.125 8 1 1 1 1 1 1");
    c.items[8].is_buffer = false;
    CHECK_STR(count_all(&c, &options), "1 1 0.125 8 1 1 1 1 2 1");
    c.model.fp32 = fp32;
    c.model.fp32_strict = strict;
    options.has_skips = false;
    options.encoding = BERTH_ENCODING_NATIVE;
    CHECK_STR(count_all(&c, &options), "2 2 0.125 8 1 4 2 2 2 2");
    options.dtype = BERTH_F16;
    CHECK_STR(count_all(&c, &options), "4 4 0.125 8 1 4 2 2 2 2");
    options.dtype = BERTH_F32;
    CHECK_STR(count_all(&c, &options), "2 4 0.125 8 1 2 2 2 2 2");
    options.dtype = BERTH_BF16;
    options.encoding = BERTH_ENCODING_NF4;
    CHECK_STR(count_all(&c, &options), "4 4 0.125 8 0.5 4 0.5 2 0.5 0.5");
}

/* 4.x: what is skipped may lie on cpu; 5.x: nothing may. */
static void
test_count_exempt(void)
{
    berthi_count_options options = { .era = BERTHI_ERA_HF4, .dtype = BERTH_BF16,
                                     .encoding = BERTH_ENCODING_NF4 };
    berthi_tree tree;
    counted c;

    begin_counted(&c, BERTHI_ERA_HF4);
    CHECK_EQ(berthi_tree_count(context, &c.model, &options, &tree, NULL), BERTH_OK);
    CHECK_EQ(tree.exempt_count, 1);
    CHECK(berthi_tree_is_exempt(&tree, "m.head", 6));
    CHECK(!berthi_tree_is_exempt(&tree, "m.hea", 5));
    CHECK(!berthi_tree_is_exempt(&tree, "m.heap", 6));
    berthi_tree_fini(&tree);
    options.era = BERTHI_ERA_HF5;
    CHECK_EQ(berthi_tree_count(context, &c.model, &options, &tree, NULL), BERTH_OK);
    CHECK_EQ(tree.exempt_count, 0);
    CHECK(!tree.is_escaping);
    berthi_tree_fini(&tree);
}

/* ------------------------------------------------------------------------- tree */

static void
test_inside(void)
{
    static const struct {
        const char *name;
        const char *key;
        bool is_inside;
    } cases[] = {
        { "a", "a", true },      { "a", "a.b", true },   { "a.b", "a", false },
        { "b", "a.b", true },    { "b", "a.b.c", true }, { "b", "ab", true },
        { "a", "ab", false },    { "a", "ab.a", true },  { "a.b", "x.a.b.c", true },
        { "a.b", "x.a.bc", false }, { "aa", "aaa", true }, { "abc", "ab", false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const berthi_node name = { .name = cases[i].name,
                                   .name_length = (uint32_t)strlen(cases[i].name) };
        const berthi_node key = { .name = cases[i].key,
                                  .name_length = (uint32_t)strlen(cases[i].key) };

        CHECK_EQ(berthi_tree_is_inside(&name, &key), cases[i].is_inside);
    }
}

static void
test_too_many_nodes(void)
{
    const berthi_node_words words = { .name = "", .class_number = BERTHI_NO_CLASS };
    berth_error error;
    berthi_tree tree;

    berthi_tree_init(&tree, context, 1);
    CHECK_EQ(berthi_tree_add(&tree, BERTHI_NO_NODE, BERTHI_NODE_MODULE, &words), 0);
    CHECK_EQ(berthi_tree_add(&tree, 0, BERTHI_NODE_MODULE, &words), BERTHI_NO_NODE);
    CHECK(tree.is_failed);
    berthi_tree_tie(&tree, 0, 1);
    CHECK_EQ(berthi_tree_finish(&tree, &error), BERTH_ENOMEM);
    berthi_tree_fini(&tree);
    berthi_tree_init(&tree, context, UINT64_MAX);
    CHECK(tree.is_failed);
    CHECK_EQ(berthi_tree_add(&tree, BERTHI_NO_NODE, BERTHI_NODE_MODULE, &words),
             BERTHI_NO_NODE);
    berthi_tree_fini(&tree);
}

/* Groups by first appearance, members by name; buffers are in none. */
static void
test_groups(void)
{
    plan p;

    begin(&p,
          "tree\n- M p#9=1\n b B w#1=1 v#2=1\n a A w#1=1 v#2=1 u#3=1 ~y#4=1\n"
          " c C w#1=1 ~y#4=1 p#9=1\n",
          BERTHI_ERA_HF4, "0=99");
    CHECK_EQ(p.tree.group_count, 3);
    CHECK_EQ(p.tree.member_count, 7);
    CHECK_STR(p.tree.nodes[p.tree.members[0]].name, "c.p");
    CHECK_STR(p.tree.nodes[p.tree.members[1]].name, "p");
    CHECK_STR(p.tree.nodes[p.tree.members[2]].name, "a.w");
    CHECK_STR(p.tree.nodes[p.tree.members[3]].name, "b.w");
    CHECK_STR(p.tree.nodes[p.tree.members[4]].name, "c.w");
    CHECK_STR(p.tree.nodes[p.tree.members[6]].name, "b.v");
    CHECK_EQ(p.tree.groups[1], 2);
    CHECK_EQ(p.tree.groups[3], 7);
    CHECK(p.tree.nodes[0].bytes == 5);
    end(&p);
}

static void
test_names(void)
{
    berthi_plan_mode mode = BERTHI_PLAN_MODE_AUTO;

    CHECK(berthi_plan_mode_can_parse("balanced_low_0", &mode));
    CHECK_EQ(mode, BERTHI_PLAN_MODE_BALANCED_LOW_0);
    CHECK(berthi_plan_mode_can_parse("auto", &mode));
    CHECK_EQ(mode, BERTHI_PLAN_MODE_AUTO);
    CHECK(!berthi_plan_mode_can_parse("Auto", &mode));
    CHECK(!berthi_plan_mode_can_parse("", &mode));
    CHECK_STR(berthi_plan_mode_name(BERTHI_PLAN_MODE_SEQUENTIAL), "sequential");
    CHECK_STR(berthi_plan_mode_name(BERTHI_PLAN_MODE_COUNT), "");
}

/* --------------------------------------------------------------------- failures */

/* Everything once: counting with skip lists, ties, a fallback search. */
static berth_status
plan_once(void *user, berth_context *own, berth_error *error)
{
    const berthi_count_options count = { .era = BERTHI_ERA_HF4, .dtype = BERTH_BF16,
                                         .encoding = BERTH_ENCODING_NF4 };
    berthi_imitate_options options = { .era = BERTHI_ERA_HF4, .is_quantized = true,
                                       .mode = BERTHI_PLAN_MODE_AUTO, .has_fallback = true };
    counted *const c = user;
    berthi_imitation made = { .context = own };
    berthi_budgets budgets;
    berth_status status;
    berthi_tree tree;

    CHECK_EQ(berthi_budgets_parse("0=9000,1=9000,cpu=90000", &budgets, NULL), BERTH_OK);
    options.budgets = &budgets;
    status = berthi_tree_count(own, &c->model, &count, &tree, error);
    if (status == BERTH_OK)
        status = berthi_imitate(own, &tree, &options, &made, error);
    if (status != BERTH_OK)
        CHECK(made.placed == NULL);
    else
        CHECK_EQ(made.placed_count, 1);
    berthi_imitation_fini(&made);
    berthi_tree_fini(&tree);
    return status;
}

static void
test_faults(void)
{
    fault_counts counts;
    counted c;

    begin_counted(&c, BERTHI_ERA_HF4);
    c.items[7].tie = &c.items[0];
    counts = fault_loop("plan_once", plan_once, &c);
    CHECK_GE(counts.memory, 10);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 99;
    berthi_arena_init(&arena, context, BERTHI_PURPOSE_OBJECT, 1 << 20);
    T_RUN(test_upstream);
    T_RUN(test_balance);
    T_RUN(test_blocks);
    T_RUN(test_leaves);
    T_RUN(test_single_gpu);
    T_RUN(test_reserves);
    T_RUN(test_bare_tensors);
    T_RUN(test_lost_buffer);
    T_RUN(test_remarks);
    T_RUN(test_tie_eras);
    T_RUN(test_tie_crash);
    T_RUN(test_refused_class);
    T_RUN(test_refused_number);
    T_RUN(test_refused_disk);
    T_RUN(test_refused_tie);
    T_RUN(test_refused_offload);
    T_RUN(test_escape);
    T_RUN(test_count_5x);
    T_RUN(test_count_4x);
    T_RUN(test_count_exempt);
    T_RUN(test_inside);
    T_RUN(test_too_many_nodes);
    T_RUN(test_groups);
    T_RUN(test_names);
    T_RUN(test_faults);
    berthi_arena_fini(&arena);
    berth_context_destroy(context);
    T_MAIN_END;
}
