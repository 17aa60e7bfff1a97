/* SPDX-License-Identifier: Apache-2.0 */
/* test_architecture_many.c - modules of very many children: experts of a layer. */
#include "quant/architecture_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/t.h"
#include "tests/vacant.h"

/* A sanitizer multiplies time: a tenth of them is looked for in the same way. */
#define EXPERTS (T_IS_SANITIZED ? 10000u : 100000u)
/* Whoever looks at all siblings of each takes minutes; the rest is for a busy machine. */
#define SECONDS_LIMIT 10
#define NAME_CAPACITY 64u

static berth_context *context;

/* Of one layer; a weight each. */
typedef struct experts {
    uint32_t count;
    char (*names)[NAME_CAPACITY];
    berthi_architecture *a;
    const berthi_module *list; /* the module that holds them */
} experts;

static void
get(void *user, uint32_t position, berthi_model_tensor *out)
{
    static const uint64_t shape[] = { 8, 8 };
    const experts *const e = user;

    *out = (berthi_model_tensor){ .name = e->names[position],
                                  .name_length = strlen(e->names[position]),
                                  .shape = shape,
                                  .elements = 64,
                                  .rank = 2,
                                  .dtype = BERTH_BF16 };
}

static bool
is_experts(const berthi_module *module)
{
    return berthi_text_is((berthi_text){ module->name, module->name_length }, "experts");
}

static void
lay_out(experts *e, uint32_t count)
{
    const berthi_architecture_options options = { .class_name = "",
                                                  .model_type = "",
                                                  .config_file = "config.json",
                                                  .era = BERTHI_ERA_HF5,
                                                  .dtype = BERTH_BF16 };
    const berthi_model_source source = { e, count, get };

    *e = (experts){ .count = count, .names = calloc(count, sizeof *e->names) };
    T_REQUIRE(CHECK(e->names != NULL));
    for (uint32_t i = 0; i < count; i++)
        snprintf(e->names[i], NAME_CAPACITY, "model.layers.0.mlp.experts.%" PRIu32 ".up.weight",
                 i);
    T_REQUIRE(CHECK_EQ(berthi_architecture_create(context, &options, &source, &e->a, NULL),
                       BERTH_OK));
    e->list = e->a->root;
    while (e->list != NULL && !is_experts(e->list))
        e->list = berthi_module_after(e->list);
    T_REQUIRE(CHECK(e->list != NULL));
}

static void
end(experts *e)
{
    berthi_architecture_destroy(e->a);
    free(e->names);
}

/* ---------------------------------------------------------------------- tests */

static uint32_t
count_children(const berthi_module *module)
{
    uint32_t count = 0;

    for (const berthi_module *at = module->children; at != NULL; at = at->next)
        count++;
    return count;
}

/* Experts whose tensor is found by name, in a module of their own. */
static uint32_t
count_found(const experts *e)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < e->count; i++) {
        const berthi_parameter *const p =
            berthi_architecture_find(e->a, e->names[i], strlen(e->names[i]));

        found += p != NULL && p == e->a->parameter_of[i] && p->module->parent->parent == e->list;
    }
    return found;
}

/* Slots from where a name is looked for first to where it is. */
static uint64_t
count_steps(const berthi_children *by_name, const berthi_module *child)
{
    uint64_t at = berthi_text_hash((berthi_text){ child->name, child->name_length });
    uint64_t steps = 1;

    while (by_name->slots[at++ & by_name->mask] != child)
        steps++;
    return steps;
}

/* So that one more child costs as little among many. */
static void
test_steps(void)
{
    experts e = { .a = NULL };
    uint64_t steps = 0;

    lay_out(&e, 30000);
    T_REQUIRE(e.list != NULL);
    T_REQUIRE(CHECK(e.list->by_name != NULL));
    for (const berthi_module *at = e.list->children; at != NULL; at = at->next)
        steps += count_steps(e.list->by_name, at);
    CHECK_LE(steps, 2 * e.count);
    CHECK_LE(e.list->by_name->mask + 1, 4 * e.count);
    end(&e);
}

/* No ordinary model has more memory for it than a pointer. */
static void
test_few(void)
{
    for (uint32_t count = 1; count < 300; count++) {
        experts e = { .a = NULL };

        lay_out(&e, count);
        T_REQUIRE(e.list != NULL);
        CHECK_EQ(count_found(&e), count);
        CHECK_EQ(e.list->child_count, count);
        CHECK_EQ(e.list->by_name != NULL, count >= BERTHI_MANY_CHILDREN);
        CHECK(e.a->root->by_name == NULL);
        end(&e);
    }
}

static void
test_time(void)
{
    const clock_t begin = clock();
    experts e = { .a = NULL };
    double seconds;

    lay_out(&e, EXPERTS);
    T_REQUIRE(e.list != NULL);
    CHECK_EQ(count_children(e.list), EXPERTS);
    CHECK_EQ(count_found(&e), EXPERTS);
    seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    CHECK_LT((int)(seconds * 1000), SECONDS_LIMIT * 1000);
    T_NOTE("%u experts: %.0f ms", EXPERTS, seconds * 1000);
    end(&e);
}

/* The last test: nothing is left of the others. */
static void
test_all_given_back(void)
{
    vacant_check_memory(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_steps);
    T_RUN(test_few);
    T_RUN(test_time);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
