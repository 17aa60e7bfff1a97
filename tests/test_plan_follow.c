/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_follow.c - plans that follow a device map from a file: its devices. */
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/planned.h"
#include "tests/t.h"

/* Plans `folder` by a map of this text. */
static void
follow(planned *p, const char *folder, const char *map, const char *max_memory)
{
    const char *const file = fixture_format("%s/map.json", fixture_folder());
    berth_plan_options options;

    berth_plan_options_init(&options);
    options.max_memory = max_memory;
    options.device_map = file;
    options.context = 0;
    fixture_text(file, map);
    planned_begin(p, folder, &options);
}

/* "cuda:0 cpu": names of tiers. */
static const char *
tiers_of(const planned *p)
{
    static char text[256];
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < p->summary.tier_count; i++) {
        berth_plan_tier tier;

        CHECK_EQ(berth_plan_get_tier(p->plan, i, &tier), BERTH_OK);
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                   i > 0 ? " " : "", tier.name);
    }
    return text;
}

static void
check_refused(const char *folder, const char *map, const char *max_memory,
              const char *tensor, const char *message)
{
    planned p;

    follow(&p, folder, map, max_memory);
    CHECK_EQ(p.status, BERTH_EINVAL);
    CHECK_EQ(p.error.reason, BERTH_REASON_DEVICE_MAP);
    CHECK_STR(p.error.tensor, tensor);
    CHECK_STR(p.error.message, message);
    CHECK_CONTAINS(p.error.file, "map.json");
    planned_end(&p);
}

/* Without budgets the map says what is there, beside host memory and the disk. */
static void
test_devices(void)
{
    const char *const folder = planned_llama(2, false);
    berth_plan_tier tier;
    planned p;

    follow(&p, folder, "{\"model\": 2, \"lm_head\": \"cuda:0\", \"model.rotary_emb\": 1}",
           NULL);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_STR(tiers_of(&p), "cuda:0 cuda:1 cuda:2 cpu disk");
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(berth_plan_get_tier(p.plan, i, &tier), BERTH_OK);
        CHECK_EQ(tier.budget, UINT64_MAX);
    }
    CHECK_EQ(p.summary.map_count, 3);
    planned_end(&p);
    follow(&p, folder, "{\"\": 0, \"lm_head\": \"cpu\"}", "0=1GiB,cpu=1GiB");
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_STR(tiers_of(&p), "cuda:0 cpu");
    CHECK_EQ(p.finding_count, 0);
    planned_end(&p);
}

/* Budgets say what there is: only what they name. */
static void
test_devices_refused(void)
{
    const char *const folder = planned_llama(2, false);

    check_refused(folder, "{\"\": 0, \"lm_head\": 1}", "0=1GiB,cpu=1GiB", "lm_head",
                  "is put on cuda:1, which has no budget");
    check_refused(folder, "{\"\": 0, \"lm_head\": \"cpu\"}", "0=1GiB", "lm_head",
                  "is put on cpu, which has no budget");
    check_refused(folder, "{\"lm_head\": 0, \"model\": \"disk\"}", "0=1GiB,cpu=1GiB",
                  "model", "is put on disk, which has no budget");
    check_refused(folder, "{\"\": 0, \"model.rotary_emb\": 7}", "0=1GiB",
                  "model.rotary_emb", "is put on cuda:7, which has no budget");
    check_refused(folder, "{\"\": 0, \"model.layers.2\": 7}", "0=1GiB", "model.layers.2",
                  "names nothing in the model");
    check_refused(folder, "{\"model\": 0}", "0=1GiB", "lm_head.weight",
                  "has no line in the device map; a line \"\" takes all that others do not");
}

static void
test_many_devices(void)
{
    const char *const folder = planned_llama(33, false);
    char map[4096] = "{\"\": 0";
    size_t length = strlen(map);
    planned p;

    for (uint32_t i = 1; i <= 64; i++) {
        if (i == 64) {
            snprintf(map + length, sizeof map - length, "}");
            follow(&p, folder, map, NULL);
            T_REQUIRE(p.status == BERTH_OK);
            CHECK_EQ(p.summary.tier_count, 66);
            planned_end(&p);
        }
        length += (size_t)snprintf(map + length, sizeof map - length,
                                   ", \"model.layers.%u.%s\": %u", i / 2,
                                   i % 2 == 0 ? "mlp" : "self_attn", i);
    }
    snprintf(map + length, sizeof map - length, "}");
    check_refused(folder, map, NULL, "model.layers.32.mlp",
                  "is put on cuda:64, a GPU too many: there is room for 64");
}

/* What its class leaves out of maps is loaded into host memory. */
static void
test_left_out(void)
{
    const char *const file = fixture_format("%s/new.json", fixture_folder());
    const char *const folder = fixture_folder();
    berth_plan_options options;
    berth_berth berth;
    char name[64];
    planned p;

    fixture_model(folder, "[model.safetensors]\nBF16 64x64 layers.0.a.weight = sparse\n"
                          "BF16 64x64 layers.0.big.weight = sparse\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"New\"], \"n\": 1}");
    fixture_text(file, "{\"architectures\": {\"New\": {\"base\": \"\", \"no_split\": [\"L\"], "
                       "\"no_placement\": [\"big.weight\"], \"tree\": [{\"n\": \"layers\", "
                       "\"list\": [\"L\"], \"ub\": [], \"len\": \"n\"}]}}}");
    berth_plan_options_init(&options);
    options.max_memory = "0=1GiB";
    options.device_map = fixture_format("%s/map.json", folder);
    options.architectures = file;
    options.context = 0;
    fixture_text(options.device_map, "{\"layers.0.a\": 0}");
    planned_begin(&p, folder, &options);
    if (!CHECK_EQ(p.status, BERTH_OK))
        T_NOTE("%s", p.error.message);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_STR(tiers_of(&p), "cuda:0 cpu");
    CHECK_EQ(p.summary.berth_count, 2);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_EQ(berth_plan_get_berth(p.plan, i, &berth, name, sizeof name), BERTH_OK);
        CHECK_EQ(berth.tier, strcmp(name, "layers.0.big.weight") == 0 ? 1 : 0);
    }
    planned_end(&p);
}

/* A map is obeyed, however much room there is: more of it is no help, none is advised. */
static void
test_room_unused(void)
{
    const char *const folder = planned_llama(3, false);
    berth_plan_layer layer;
    berth_plan_tier tier;
    planned p;

    follow(&p, folder,
           "{\"\": 0, \"model.layers.1\": \"cpu\", \"model.layers.2\": \"disk\"}",
           "0=1GiB,cpu=1GiB,disk=1GiB");
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    for (uint32_t i = 0; i < 3; i++) {
        char name[32];

        snprintf(name, sizeof name, "model.layers.%u", i);
        CHECK_EQ(berth_plan_get_layer(p.plan, planned_layer(&p, name), &layer), BERTH_OK);
        CHECK_EQ(layer.home, 0);
        CHECK_EQ(layer.cause, BERTH_PLAN_MAPPED);
        CHECK_EQ(layer.resident_bytes, i == 0 ? layer.bytes : 0);
        CHECK_EQ(layer.link_bytes, i == 0 ? 0 : layer.bytes);
        CHECK_EQ(layer.missing, 0);
    }
    CHECK_EQ(p.summary.disk_bytes, layer.bytes);
    CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
    CHECK_GT(tier.free, 4 * layer.bytes);
    CHECK_STR(p.summary.advice, "");
    planned_end(&p);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_devices);
    T_RUN(test_devices_refused);
    T_RUN(test_many_devices);
    T_RUN(test_left_out);
    T_RUN(test_room_unused);
    T_MAIN_END;
}
