/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_train_map.c - plans for training that follow a device map: weights lie where
 * it says, states where there is room for them; what does not fit is refused.
 */
#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/planned_train.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

static berth_plan_options
options_of(const berth_train_options *train, const char *max_memory, const char *map)
{
    const char *const file = fixture_format("%s/map.json", fixture_folder());
    berth_plan_options options = planned_train_options(train, max_memory);

    fixture_text(file, map);
    options.device_map = file;
    return options;
}

/* Three layers, made once. */
static const char *
three(void)
{
    static const char *made;

    if (made == NULL)
        made = planned_llama(3, false);
    return made;
}

/* ------------------------------------------------------------------------ followed */

typedef struct place {
    const char *begin; /* of names */
    const char *tier;
} place;

/* Every berth lies where the last place that its name begins with is. */
static void
check_followed(const planned *p, const place *places)
{
    char name[256];
    berth_berth berth;

    for (uint64_t i = 0; berth_plan_get_berth(p->plan, i, &berth, name, sizeof name)
                         == BERTH_OK; i++) {
        const char *tier = NULL;

        for (const place *q = places; q->begin != NULL; q++)
            if (strncmp(name, q->begin, strlen(q->begin)) == 0)
                tier = q->tier;
        if (!CHECK(tier != NULL) || !CHECK_EQ(berth.tier, planned_tier(p, tier)))
            T_NOTE("%s", name);
    }
}

typedef struct layout {
    const char *map;
    place places[6];
    bool is_full;      /* all is computed where it lies */
    bool is_streamed;
} layout;

static const layout layouts[] = {
    { "{\"\": 0}", { { "", "cuda:0" } }, true, false },
    { "{\"\": 1, \"model.layers.0\": 0}",
      { { "", "cuda:1" }, { "model.layers.0.", "cuda:0" } }, true, false },
    /* A layer on two devices: one computes it, the other updates a part of it. */
    { "{\"\": 0, \"model.layers.1.mlp\": 1, \"model.layers.1.mlp.up_proj\": 0}",
      { { "", "cuda:0" }, { "model.layers.1.mlp.", "cuda:1" },
        { "model.layers.1.mlp.up_proj.", "cuda:0" } }, true, false },
    /* None of the second's tensors makes it compute a layer. */
    { "{\"\": 0, \"model.layers.1.self_attn.q_proj\": 1}",
      { { "", "cuda:0" }, { "model.layers.1.self_attn.q_proj.", "cuda:1" } }, true, false },
    { "{\"\": 0, \"model.layers.1\": \"cpu\", \"model.layers.2\": \"disk\"}",
      { { "", "cuda:0" }, { "model.layers.1.", "cpu" }, { "model.layers.2.", "disk" } },
      false, true },
    { "{\"\": 1, \"model.embed_tokens\": \"cpu\", \"model.layers.2.mlp\": \"cpu\"}",
      { { "", "cuda:1" }, { "model.embed_tokens.", "cpu" },
        { "model.layers.2.mlp.", "cpu" } },
      false, true },
};

static void
check_layout(const layout *l, const berth_train_options *train, const char *max_memory)
{
    berth_plan_options options = options_of(train, max_memory, l->map);
    berth_plan_layer layer;
    planned p;

    planned_begin(&p, three(), &options);
    if (CHECK_EQ(p.status, BERTH_OK)) {
        planned_check(&p);
        check_followed(&p, l->places);
        planned_check_optimizer(&p, "sim;sim", 2);
        CHECK((p.summary.streamed_bytes > 0) == l->is_streamed);
        CHECK_EQ(berth_plan_get_layer(p.plan, 0, &layer), BERTH_OK);
        CHECK_EQ(layer.cause, BERTH_PLAN_MAPPED);
    } else {
        T_NOTE("%s: %s", l->map, p.error.message);
    }
    planned_end(&p);
}

static void
test_followed(void)
{
    static const char *const optimizers[] = { "adamw_8bit", "paged_adamw_32bit",
                                              "paged_lion_8bit" };

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
            berth_train_options train =
                planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, optimizers[o]);

            check_layout(&layouts[i], &train, "0=4GiB,1=4GiB,cpu=4GiB,disk=inf");
            check_layout(&layouts[i], &train, NULL); /* devices of the map, no budgets */
            train.method = BERTH_TRAIN_FULL;
            train.precision = BERTH_TRAIN_MASTER;
            if (layouts[i].is_full)
                check_layout(&layouts[i], &train, "0=4GiB,1=4GiB,cpu=4GiB,disk=inf");
        }
}

/* A map of all on the processor. */
static void
test_the_processor(void)
{
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    berth_plan_options options = options_of(&train, "cpu=450MiB,disk=inf", "{\"\": \"cpu\"}");
    berth_plan_training training;
    planned p;

    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_check(&p);
    planned_check_optimizer(&p, "cpu", 0);
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK(training.states[BERTH_STATES_DEVICE] > 0 && training.states[BERTH_STATES_DISK] > 0);
    CHECK_EQ(training.states[BERTH_STATES_HOST], 0);
    planned_end(&p);
}

/* -------------------------------------------------------------------- less memory */

/* Bytes of states that are brought. */
static uint64_t
away_of(const planned *p)
{
    berth_plan_training training;

    CHECK_EQ(berth_plan_get_training(p->plan, &training), BERTH_OK);
    return training.link_bytes;
}

/* Less and less memory, until there is too little: states leave, weights do not. */
static void
check_budgets(const layout *l, const berth_train_options *train, uint64_t most)
{
    uint64_t away = 0;
    uint32_t fits = 0;
    bool is_refused = false;

    for (uint64_t mib = most; mib > most / 20; mib -= most / 40) {
        char max_memory[96];
        berth_plan_options options;
        planned p;

        (void)snprintf(max_memory, sizeof max_memory, "0=%lluMiB,1=4GiB,cpu=%lluMiB,disk=inf",
                       (unsigned long long)mib, (unsigned long long)(mib / 2 + 180));
        options = options_of(train, max_memory, l->map);
        planned_begin(&p, three(), &options);
        if (p.status == BERTH_OK) {
            CHECK(!is_refused);
            planned_check(&p);
            check_followed(&p, l->places);
            planned_check_optimizer(&p, "sim;sim", 2);
            if (!CHECK(away_of(&p) >= away || l->is_streamed)) /* slots differ */
                T_NOTE("%s", max_memory);
            away = away_of(&p);
            fits++;
        } else {
            is_refused = true;
            CHECK_EQ(p.status, BERTH_ENOFIT);
            CHECK_STR(p.error.tensor, "cuda:0");
        }
        planned_end(&p);
    }
    CHECK(fits > 5 && away > 0 && is_refused);
}

static void
test_budgets(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_32bit");

    check_budgets(&layouts[0], &train, 1400);
    check_budgets(&layouts[3], &train, 1400);
    train.method = BERTH_TRAIN_LORA;
    train.lora_rank = 256;
    check_budgets(&layouts[4], &train, 300);
}

/* Of a plan with one budget of many; all zero: refused. */
typedef struct outcome {
    uint64_t slots; /* bytes */
    uint64_t away;
    uint64_t free;
} outcome;

enum { BUDGETS = 60 };

/* Slots are more than two where there is room beside all states, not in their stead; and
 * never so many that something has none. States leave before the second slot does. */
static void
check_slots_and_states(const char *map, uint32_t device, outcome out[BUDGETS])
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    uint64_t slots = UINT64_MAX;
    bool has_left = false;
    bool has_two = false; /* slots, of states that have left */
    bool is_refused = false;

    train.lora_rank = 256;
    for (uint32_t i = 0; i < BUDGETS; i++) {
        char max_memory[96];
        berth_plan_options options;
        berth_plan_tier tier;
        planned p;

        (void)snprintf(max_memory, sizeof max_memory, "%s%u=%uMiB,cpu=2GiB,disk=inf",
                       device > 0 ? "0=1GiB," : "", (unsigned)device,
                       (unsigned)(400 - 5 * i));
        options = options_of(&train, max_memory, map);
        planned_begin(&p, three(), &options);
        out[i] = (outcome){ .slots = 0 };
        if (p.status == BERTH_OK) {
            CHECK(!is_refused);
            CHECK_EQ(berth_plan_get_tier(p.plan, device, &tier), BERTH_OK);
            out[i] = (outcome){ tier.slots, away_of(&p), tier.free };
            CHECK(tier.slots > 0);
            if (away_of(&p) == 0) {
                CHECK(!has_left);
                CHECK_LE(tier.slots, slots);
                slots = tier.slots;
            }
            has_left = has_left || away_of(&p) > 0;
            has_two = has_two || (away_of(&p) > 0 && tier.slot_count >= 2);
        }
        is_refused = is_refused || p.status != BERTH_OK;
        planned_end(&p);
    }
    CHECK(has_left && has_two && slots < UINT64_MAX);
}

/* The same on a second device as on the first. */
static void
test_slots_and_states(void)
{
    outcome first[BUDGETS];
    outcome second[BUDGETS];

    check_slots_and_states(layouts[4].map, 0, first);
    check_slots_and_states(
        "{\"\": 0, \"model.layers.1.mlp\": \"cpu\", \"model.layers.2.mlp\": \"disk\"}", 0, first);
    check_slots_and_states(
        "{\"\": 1, \"model.layers.1.mlp\": \"cpu\", \"model.layers.2.mlp\": \"disk\"}", 1,
        second);
    CHECK_MEM(first, second, sizeof first);
}

/* ---------------------------------------------------------------------- to the byte */

static uint64_t
used_of(const planned *p, const char *name)
{
    berth_plan_tier tier;

    CHECK_EQ(berth_plan_get_tier(p->plan, planned_tier(p, name), &tier), BERTH_OK);
    return tier.budget - tier.free;
}

/* Plans by budgets in bytes, 0: there is no disk; what each memory uses then. */
static berth_status
plan_exactly(int32_t method, const uint64_t budgets[3], uint64_t used[3],
             uint64_t *out_away)
{
    const berth_train_options train =
        planned_train(method, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    berth_plan_options options;
    char max_memory[96];
    berth_status status;
    planned p;

    (void)snprintf(max_memory, sizeof max_memory,
                   budgets[2] > 0 ? "0=%llu,cpu=%llu,disk=%llu" : "0=%llu,cpu=%llu",
                   (unsigned long long)budgets[0], (unsigned long long)budgets[1],
                   (unsigned long long)budgets[2]);
    options = options_of(&train, max_memory, "{\"\": 0}");
    options.staging_bytes = 4096;
    planned_begin(&p, three(), &options);
    status = p.status;
    if (status == BERTH_OK) {
        planned_check(&p);
        used[0] = used_of(&p, "cuda:0");
        used[1] = used_of(&p, "cpu");
        used[2] = budgets[2] > 0 ? used_of(&p, "disk") : 0;
        *out_away = away_of(&p);
    }
    planned_end(&p);
    return status;
}

/*
 * States of adapters of rank 8 are no whole pages of memory, those of vectors cannot leave.
 * Memories that are exactly full: with a byte less states leave, and in the end there is no
 * place.
 */
static void
check_to_the_byte(int32_t method)
{
    uint64_t budgets[3] = { 4096 * MIB, 4096 * MIB, 4096 * MIB };
    uint64_t used[3];
    uint64_t before[3];
    uint64_t away;
    uint64_t again;

    CHECK_EQ(plan_exactly(method, budgets, used, &away), BERTH_OK);
    CHECK_EQ(away, 0);
    budgets[0] = used[0];
    CHECK_EQ(plan_exactly(method, budgets, used, &away), BERTH_OK);
    CHECK_EQ(away, 0);
    CHECK_EQ(used[0], budgets[0]);
    budgets[0]--;
    CHECK_EQ(plan_exactly(method, budgets, used, &away), BERTH_OK);
    CHECK(away > 0 && used[2] == 0);
    memcpy(before, used, sizeof before);
    budgets[1] = used[1];
    CHECK_EQ(plan_exactly(method, budgets, used, &again), BERTH_OK);
    CHECK_EQ(again, away);
    CHECK_MEM(used, before, sizeof before);
    budgets[2] = 0;
    CHECK_EQ(plan_exactly(method, budgets, used, &again), BERTH_OK);
    CHECK_EQ(again, away);
    budgets[1]--;
    CHECK_EQ(plan_exactly(method, budgets, used, &again), BERTH_ENOFIT);
    budgets[2] = 4096 * MIB;
    CHECK_EQ(plan_exactly(method, budgets, used, &again), BERTH_OK);
    CHECK(used[2] > 0);
    budgets[2] = used[2];
    memcpy(before, used, sizeof before);
    CHECK_EQ(plan_exactly(method, budgets, used, &again), BERTH_OK);
    CHECK_MEM(used, before, sizeof before);
    budgets[2]--;
    CHECK_EQ(plan_exactly(method, budgets, used, &again), BERTH_ENOFIT);
}

static void
test_to_the_byte(void)
{
    check_to_the_byte(BERTH_TRAIN_LORA);
    check_to_the_byte(BERTH_TRAIN_FULL);
}

/* The least, in MiB, with which there is a plan. */
static void
shrink(uint64_t budgets[3], int tier)
{
    uint64_t used[3];
    uint64_t away;
    uint64_t low = 0;
    uint64_t high = budgets[tier] / MIB;

    while (high - low > 1) {
        budgets[tier] = (low + high) / 2 * MIB;
        if (plan_exactly(BERTH_TRAIN_FULL, budgets, used, &away) == BERTH_OK)
            high = budgets[tier] / MIB;
        else
            low = budgets[tier] / MIB;
    }
    budgets[tier] = high * MIB;
}

/* States of all parameters, from the first one on, have to have room on the disk. */
static void
test_all_on_the_disk(void)
{
    uint64_t budgets[3] = { 4096 * MIB, 4096 * MIB, 4096 * MIB };
    uint64_t used[3];
    uint64_t away;

    shrink(budgets, 0);
    shrink(budgets, 1);
    CHECK_EQ(plan_exactly(BERTH_TRAIN_FULL, budgets, used, &away), BERTH_OK);
    CHECK_GT(used[2], UINT64_C(2) * 2 * 8192 * 1024); /* two bytes of embeddings and head */
    budgets[2] = used[2];
    CHECK_EQ(plan_exactly(BERTH_TRAIN_FULL, budgets, used, &away), BERTH_OK);
    budgets[2]--;
    CHECK_EQ(plan_exactly(BERTH_TRAIN_FULL, budgets, used, &away), BERTH_ENOFIT);
}

/* Of a map with a layer on each tier, by budgets in bytes: what each uses, or lacks. */
static berth_status
plan_on_all(const berth_train_options *train, const uint64_t budgets[3], uint64_t used[3],
            berth_error *error)
{
    static const char *const names[] = { "cuda:0", "cpu", "disk" };
    berth_plan_options options;
    char max_memory[96];
    berth_status status;
    planned p;

    (void)snprintf(max_memory, sizeof max_memory, "0=%llu,cpu=%llu,disk=%llu",
                   (unsigned long long)budgets[0], (unsigned long long)budgets[1],
                   (unsigned long long)budgets[2]);
    options = options_of(train, max_memory, layouts[4].map);
    options.staging_bytes = 4096;
    planned_begin(&p, three(), &options);
    status = p.status;
    *error = p.error;
    for (int i = 0; i < 3 && status == BERTH_OK; i++)
        used[i] = used_of(&p, names[i]);
    planned_end(&p);
    return status;
}

/* Host memory that weights fill to the byte is no reason to refuse a plan. */
static void
test_host_that_is_full(void)
{
    const berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "adamw_8bit");
    uint64_t budgets[] = { 4096 * MIB, 4096 * MIB, 4096 * MIB };
    uint64_t used[3];
    berth_error error;

    CHECK_EQ(plan_on_all(&train, budgets, used, &error), BERTH_OK);
    budgets[1] = used[1];
    budgets[2] = used[2];
    CHECK_EQ(plan_on_all(&train, budgets, used, &error), BERTH_OK);
    CHECK_EQ(used[1], budgets[1]);
    CHECK_EQ(used[2], budgets[2]);
    budgets[1]--;
    CHECK_EQ(plan_on_all(&train, budgets, used, &error), BERTH_ENOFIT);
    CHECK_STR(error.tensor, "cpu");
}

/* A disk too small for the map's weights lacks the states' bytes, too. */
static void
test_disk_too_small(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    const uint64_t weights = UINT64_C(2) * (4 * 1024 * 1024 + 3 * 2816 * 1024 + 2 * 1024);
    uint64_t budgets[] = { 180 * MIB, 80 * MIB, 4096 * MIB };
    uint64_t used[3];
    berth_error error;

    train.lora_rank = 256;
    CHECK_EQ(plan_on_all(&train, budgets, used, &error), BERTH_OK);
    CHECK_GT(used[2], weights); /* states are there */
    budgets[2] = weights - 1;
    CHECK_EQ(plan_on_all(&train, budgets, used, &error), BERTH_ENOFIT);
    CHECK_STR(error.tensor, "disk");
    CHECK(error.expected >= used[2] && error.expected < used[2] + 256); /* rounded */
    budgets[2] = used[2];
    CHECK_EQ(plan_on_all(&train, budgets, used, &error), BERTH_OK);
}

/* Each device's states leave for themselves. */
static void
test_two_that_are_full(void)
{
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    static const char *const budgets[] = { "0=4GiB,1=300MiB,cpu=2GiB",
                                           "0=260MiB,1=4GiB,cpu=2GiB",
                                           "0=260MiB,1=300MiB,cpu=2GiB" };

    for (int i = 0; i < 3; i++) {
        berth_plan_options options = options_of(
            &train, budgets[i], "{\"\": 1, \"model.layers.0\": 0, \"model.layers.1\": 0}");
        berth_plan_training_tier tiers[2];
        planned p;

        planned_begin(&p, three(), &options);
        CHECK_EQ(p.status, BERTH_OK);
        planned_check(&p);
        planned_check_optimizer(&p, "sim;sim", 2);
        for (uint32_t d = 0; d < 2; d++) {
            CHECK_EQ(berth_plan_get_training_tier(p.plan, d, &tiers[d]), BERTH_OK);
            CHECK((tiers[d].link_bytes > 0) == (i == 2 || (i == 0) == (d == 1)));
        }
        planned_end(&p);
    }
}

/* What leaves a device has pages of its own there: those of the one before were larger. */
static void
test_pages_of_the_second(void)
{
    static const char *const maps[] = { "{\"\": 1, \"model.layers.1\": 0}",
                                        "{\"\": 0, \"model.layers.1\": 1}" };
    static const char *const budgets[] = { "0=150MiB,1=4GiB,cpu=4GiB",
                                           "0=4GiB,1=150MiB,cpu=4GiB" };
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    berth_plan_training_tier tiers[2];

    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = options_of(&train, budgets[i], maps[i]);
        planned p;

        planned_begin(&p, three(), &options);
        T_REQUIRE(p.status == BERTH_OK);
        CHECK_EQ(berth_plan_get_training_tier(p.plan, i, &tiers[i]), BERTH_OK);
        CHECK(tiers[i].states > 0 && tiers[i].link_bytes > 0);
        planned_end(&p);
    }
    CHECK_EQ(tiers[0].states, tiers[1].states);
    CHECK_EQ(tiers[0].link_bytes, tiers[1].link_bytes);
}

/* ------------------------------------------------------------------------- refused */

/* With so much more memory as the message says it fits, and with 64 KiB less not. */
static void
check_told(const char *words, const char *map, const berth_train_options *train,
           const char *tier_name, uint64_t device, uint64_t host, const char *disk)
{
    uint64_t *const changed = strcmp(tier_name, "cpu") == 0 ? &host : &device;
    char max_memory[96];
    berth_plan_options options;
    planned p;

    for (int turn = 0; turn < 3; turn++) {
        (void)snprintf(max_memory, sizeof max_memory, "0=%llu,cpu=%llu%s",
                       (unsigned long long)device, (unsigned long long)host, disk);
        options = options_of(train, max_memory, map);
        planned_begin(&p, three(), &options);
        if (!CHECK_EQ(p.status, turn == 1 ? BERTH_OK : BERTH_ENOFIT))
            T_NOTE("%s, turn %d: %s", max_memory, turn, p.error.message);
        if (turn == 0) {
            CHECK_STR(p.error.tensor, tier_name);
            CHECK_CONTAINS(p.error.message, words);
            CHECK_EQ(p.error.actual, *changed);
            *changed = p.error.expected;
        } else if (turn == 1) {
            *changed -= 65536;
        }
        planned_end(&p);
    }
}

static void
check_change(const char *map, const berth_train_options *train, const char *tier_name,
             uint64_t device, uint64_t host, const char *disk)
{
    check_told("for what the map puts there and training needs beside it", map, train,
               tier_name, device, host, disk);
}

/* The weights have room, and pages of states that leave have none. */
static void
test_room_for_pages(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    berth_plan_options options = options_of(&train, "0=4GiB,cpu=4GiB", "{\"\": 0}");
    berth_plan_training_tier tier;
    uint64_t used;
    planned p;

    planned_begin(&p, three(), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(berth_plan_get_training_tier(p.plan, 0, &tier), BERTH_OK);
    used = used_of(&p, "cuda:0");
    CHECK_GT(used, tier.states + MIB);
    planned_end(&p);
    check_told(" for pages of states on their way: give it so much more", "{\"\": 0}", &train,
               "cuda:0", used - tier.states + MIB, 4096 * MIB, "");
}

static void
test_changes(void)
{
    berth_train_options train = planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE,
                                              "adamw_8bit");

    check_change("{\"\": 0}", &train, "cuda:0", 60 * MIB, 64 * MIB, "");
    train.optimizer = "paged_adamw_8bit";
    check_change("{\"\": 0}", &train, "cuda:0", 60 * MIB, 4096 * MIB, "");
    train.method = BERTH_TRAIN_LORA;
    check_change("{\"\": 0}", &train, "cuda:0", 60 * MIB, 4096 * MIB, ",disk=inf");
    train.lora_rank = 256;
    check_change(layouts[4].map, &train, "cuda:0", 20 * MIB, 4096 * MIB, ",disk=inf");
    train.optimizer = "adamw_32bit";
    check_change(layouts[4].map, &train, "cuda:0", 20 * MIB, 4096 * MIB, ",disk=inf");
    /* States that want to leave for host memory, which the map has filled. */
    train.optimizer = "paged_adamw_32bit";
    check_change("{\"\": 0, \"model.layers.1\": \"cpu\"}", &train, "cpu", 236 * MIB, 20 * MIB,
                 "");
    check_change("{\"\": 0, \"model.layers.1\": \"cpu\"}", &train, "cpu", 4096 * MIB, 20 * MIB,
                 "");
    check_change("{\"\": 0, \"model.layers.1\": \"cpu\"}", &train, "cpu", 236 * MIB, 20 * MIB,
                 ",disk=inf");
}

static void
check_refused(const char *map, const berth_train_options *train, const char *max_memory,
              berth_status status, const char *tensor, const char *words)
{
    berth_plan_options options = options_of(train, max_memory, map);
    planned p;

    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, status);
    CHECK_STR(p.error.tensor, tensor);
    if (!CHECK(strstr(p.error.message, words) != NULL))
        T_NOTE("%s", p.error.message);
    planned_end(&p);
}

static void
test_refused(void)
{
    static const char where[] = "is trained, and the map puts it where nothing is computed";
    const char *const head = "lm_head.weight";
    berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_8bit");

    check_refused("{\"\": 0, \"lm_head\": \"cpu\"}", &train, "0=4GiB,cpu=4GiB", BERTH_EINVAL,
                  head, where);
    check_refused("{\"\": 0, \"lm_head\": \"disk\"}", &train, NULL, BERTH_EINVAL, head, where);
    check_refused("{\"\": \"cpu\", \"lm_head\": \"disk\"}", &train, "cpu=4GiB,disk=inf",
                  BERTH_EINVAL, head, where);
    check_refused("{\"\": 0, \"lm_head\": 1}", &train, "0=4GiB,cpu=4GiB", BERTH_EINVAL,
                  "lm_head", "which has no budget");
    train.method = BERTH_TRAIN_LORA;
    check_refused("{\"\": 0, \"lm_head\": \"disk\"}", &train, "0=4GiB,cpu=4GiB,disk=1MiB",
                  BERTH_ENOFIT, "disk", "for what the map puts there");
}

/* A map is imitated for inference: it knows nothing of states. */
static void
test_imitated(void)
{
    const berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=4GiB,cpu=4GiB");
    planned p;

    options.mode = "auto";
    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_CONTAINS(p.error.message, "is not for imitated maps");
    planned_end(&p);
}

/* -------------------------------------------------------------------------- faults */

static const char *folder;

static berth_status
plan_again(void *user, berth_context *context, berth_error *error)
{
    const berth_plan_options *const options = user;
    berth_plan_training training;
    berth_checkpoint *checkpoint = NULL;
    berth_plan *plan = NULL;
    berth_status status = berth_checkpoint_open(context, folder, NULL, &checkpoint, error);

    if (status == BERTH_OK)
        status = berth_plan_create(context, checkpoint, options, &plan, error);
    if (status == BERTH_OK)
        CHECK(berth_plan_get_training(plan, &training) == BERTH_OK && training.link_bytes > 0
              && strcmp(training.targets, options->train->lora_targets) == 0);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

/* Places are found twice: states do not fit beside the map's slots. The plan's copy of so
 * many names is an allocation of its own. */
static void
test_faults(void)
{
    char targets[8192];
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    berth_plan_options options;

    for (size_t at = 0; at < sizeof targets - 64; at += strlen("q_proj,"))
        (void)snprintf(targets + at, 64, "%s",
                       "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj");
    train.lora_targets = targets;
    train.lora_rank = 256;
    folder = three();
    options = options_of(&train, "0=180MiB,cpu=200MiB,disk=inf", layouts[4].map);
    (void)fault_loop("by a map", plan_again, &options);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_followed);
    T_RUN(test_the_processor);
    T_RUN(test_budgets);
    T_RUN(test_slots_and_states);
    T_RUN(test_two_that_are_full);
    T_RUN(test_to_the_byte);
    T_RUN(test_all_on_the_disk);
    T_RUN(test_host_that_is_full);
    T_RUN(test_disk_too_small);
    T_RUN(test_pages_of_the_second);
    T_RUN(test_room_for_pages);
    T_RUN(test_changes);
    T_RUN(test_refused);
    T_RUN(test_imitated);
    T_RUN(test_faults);
    T_MAIN_END;
}
