/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_train_change.c - random plans for training that are refused: with the amount of
 * memory that the message names they are taken.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/changes.h"
#include "tests/fixture.h"
#include "tests/planned_train.h"
#include "tests/random.h"
#include "tests/t.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define TIERS 5u /* three GPUs, host memory, a disk */
#define HOST 3u
#define DISK 4u
#define ROUNDS 1000u
#define NOT_THERE UINT64_MAX
#define NO_END (UINT64_MAX - 1)

static const char *const tier_names[TIERS] = { "cuda:0", "cuda:1", "cuda:2", "cpu", "disk" };

/* What a plan is made of. */
typedef struct wish {
    const char *folder;
    const char *map; /* NULL: homes are found */
    berth_train_options train;
    uint64_t budgets[TIERS];
    uint64_t reserve; /* share of each that is kept free */
} wish;

static uint64_t
below(uint64_t *random, uint64_t limit)
{
    return random_next(random) % limit;
}

/* Small ones are as likely as large ones. */
static uint64_t
draw_budget(uint64_t *random, uint64_t most_mib)
{
    const uint64_t limit = most_mib >> below(random, 6);

    return (below(random, limit * MIB / KIB) + 256) * KIB;
}

static wish
draw_wish(uint64_t *random, const char *const *folders, uint32_t folder_count)
{
    static const char *const optimizers[] = { "paged_adamw_8bit", "paged_adamw_32bit",
                                              "paged_lion_8bit", "adamw_8bit" };
    static const char *const maps[] = { NULL, NULL, "{\"\": 0}",
                                        "{\"\": 0, \"model.layers.0\": \"cpu\"}" };
    const int32_t method = below(random, 3) == 0 ? BERTH_TRAIN_LORA : BERTH_TRAIN_FULL;
    const uint32_t gpus = (uint32_t)below(random, 4);
    wish w = { .folder = folders[below(random, folder_count)],
               .train = planned_train(method,
                                      below(random, 2) == 0 ? BERTH_TRAIN_PURE
                                                            : BERTH_TRAIN_MASTER,
                                      optimizers[below(random, 4)]) };

    if (method == BERTH_TRAIN_LORA)
        w.train.lora_rank = 8u << below(random, 7);
    for (uint32_t t = 0; t < HOST; t++)
        w.budgets[t] = t < gpus ? draw_budget(random, 600) : NOT_THERE;
    w.budgets[HOST] =
        gpus == 0 || below(random, 4) > 0 ? draw_budget(random, 600) : NOT_THERE;
    w.budgets[DISK] = below(random, 2) == 0   ? draw_budget(random, 600)
                      : below(random, 4) == 0 ? NO_END
                                              : NOT_THERE;
    w.reserve = below(random, 3) == 0 ? 0 : BERTH_RESERVE_NONE; /* 0: the default */
    if (gpus > 0 && w.budgets[HOST] != NOT_THERE && method == BERTH_TRAIN_LORA)
        w.map = maps[below(random, 4)];
    else if (gpus > 0)
        w.map = maps[below(random, 3)];
    return w;
}

static const char *
write_budgets(const wish *w, char text[160])
{
    size_t length = 0;

    for (uint32_t t = 0; t < TIERS; t++)
        if (w->budgets[t] == NO_END)
            length += (size_t)snprintf(text + length, 160 - length, ",%s=inf", tier_names[t]);
        else if (w->budgets[t] != NOT_THERE)
            length += (size_t)snprintf(text + length, 160 - length, "%s%s=%" PRIu64,
                                       length > 0 ? "," : "", tier_names[t], w->budgets[t]);
    return text;
}

static berth_status
plan(const wish *w, const char *map_file, berth_error *error)
{
    char text[160];
    berth_plan_options options = planned_train_options(&w->train, write_budgets(w, text));
    berth_status status;
    planned p;

    options.reserve_share = w->reserve;
    if (w->map != NULL) {
        fixture_text(map_file, w->map);
        options.device_map = map_file;
    }
    planned_begin(&p, w->folder, &options);
    status = p.status;
    *error = p.error;
    planned_end(&p);
    return status;
}

/* Else nothing of what more memory would do is told. */
static bool
has_promise(const berth_error *error)
{
    return error->tensor[0] != '\0' && strstr(error->message, "give more to several") == NULL;
}

static uint32_t
number_of(const char *name)
{
    uint32_t t = 0;

    while (t < TIERS && strcmp(tier_names[t], name) != 0)
        t++;
    return t;
}

/* What was asked for, with what each tier is short of, and `less` of one. */
static berth_status
plan_with(const wish *asked, const berth_error *error, const char *map_file, uint32_t tier,
          uint64_t less)
{
    wish given = *asked;
    berth_error again;

    for (uint32_t t = 0; t < TIERS; t++)
        given.budgets[t] += changes_of(error, tier_names[t]);
    given.budgets[tier] -= less;
    return plan(&given, map_file, &again);
}

/* All tiers that are named have to grow by that, but for what sizes are rounded to. */
static void
check_several(const wish *asked, const berth_error *error, const char *map_file)
{
    char text[160];

    if (!CHECK_EQ(plan_with(asked, error, map_file, 0, 0), BERTH_OK))
        T_NOTE("%s: %s: %s", write_budgets(asked, text), error->tensor, error->message);
    for (uint32_t t = 0; t < TIERS; t++) {
        const uint64_t raise = changes_of(error, tier_names[t]);
        const uint64_t slack = raise / 100 + 2 * KIB;

        if (raise > slack
            && !CHECK_EQ(plan_with(asked, error, map_file, t, slack), BERTH_ENOFIT))
            T_NOTE("%s: %s: %s", write_budgets(asked, text), error->tensor, error->message);
    }
}

/* More of one tier does. */
static void
check_one(const wish *asked, const berth_error *error, const char *map_file)
{
    wish given = *asked;
    char text[2][160];
    berth_error again;
    const uint32_t tier = number_of(error->tensor);

    if (!CHECK_LT(tier, TIERS))
        return;
    CHECK_EQ(error->actual, asked->budgets[tier]);
    given.budgets[tier] = error->expected;
    if (!CHECK_EQ(plan(&given, map_file, &again), BERTH_OK))
        T_NOTE("%s, %s, rank %u, map %s, %s: %s: %s; %s: %s: %s", asked->folder,
               asked->train.optimizer, (unsigned)asked->train.lora_rank,
               asked->map != NULL ? asked->map : "none", write_budgets(asked, text[0]),
               error->tensor, error->message, write_budgets(&given, text[1]), again.tensor,
               again.message);
}

typedef struct promises {
    uint32_t one;
    uint32_t several;
} promises;

static void
check_promise(const wish *asked, const char *map_file, promises *made)
{
    berth_error error;

    if (plan(asked, map_file, &error) == BERTH_OK
        || !CHECK_EQ(error.status, BERTH_ENOFIT) || !has_promise(&error))
        return;
    if (changes_are_several(&error)) {
        made->several++;
        check_several(asked, &error, map_file);
    } else {
        made->one++;
        check_one(asked, &error, map_file);
    }
}

static void
test_promises(void)
{
    const char *const folders[] = { planned_llama(1, false), planned_llama(3, false),
                                    planned_llama(2, true), planned_moe(2, 4) };
    const char *const map_file = fixture_format("%s/map.json", fixture_folder());
    uint64_t random = 20;
    promises made = { 0, 0 };

    for (uint32_t i = 0; i < ROUNDS; i++) {
        const wish w = draw_wish(&random, folders, 4);

        check_promise(&w, map_file, &made);
    }
    T_NOTE("%u of one tier, %u of several", made.one, made.several);
    CHECK_GT(made.one, ROUNDS / 4);
    CHECK_GT(made.several, 3);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_promises);
    T_MAIN_END;
}
