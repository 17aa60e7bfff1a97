/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_given.c - encodings, budgets, reserves and maps that a plan is told. */
#include "kernels/gemm_lt.h"
#include "placement/estimate.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ---------------------------------------------------------------------- encoding */

static void
test_quantized(void)
{
    berth_plan_options options = loaded_options("0=200MiB");
    planned p;

    options.type = BERTH_ENCODING_NF4;
    options.double_quant = 1;
    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    /* codes, 8-bit absmax, second level, each from a multiple of 256 on */
    CHECK_EQ(planned_get_layer(&p, "model.layers.0").bytes,
             4 * (MIB / 2 + 16384 + 256) + 3 * (2816 * 512 + 45056 + 768) + 2 * 2048);
    /* 4 MiB of values, and the first level of the largest weight, in f32 */
    CHECK_EQ(planned_get_tier(&p, "cuda:0").scratch, 4 * MIB + 2816 * 1024 / 64 * 4);
    CHECK_EQ(planned_get_layer(&p, "lm_head").bytes, 16 * MIB);
    planned_end(&p);
}

/* Sizes of people have units; 0 is one that has none and says so. */
static void
test_budgets_without_units(void)
{
    static const char *const good[] = { "0=1GiB,cpu=1024", "0=1GiB,cpu=0", "0=1GiB,disk=inf",
                                        "0=1GiB,cpu=1KiB" };
    const char *const folder = planned_llama(1, true);
    berth_plan_options options = loaded_options("0=1GiB,cpu=64");
    planned p;

    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.finding_count, 1);
    CHECK_CONTAINS(p.findings[0], "max_memory has 64 bytes of cpu: a number without a unit is "
                                  "bytes");
    planned_end(&p);
    options.max_memory = "0=20,cpu=64GiB";
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.finding_count, 1);
    CHECK_CONTAINS(p.findings[0], "20 bytes of cuda:0");
    planned_end(&p);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        options.max_memory = good[i];
        planned_begin(&p, folder, &options);
        CHECK_EQ(p.finding_count, 0);
        planned_end(&p);
    }
    options.max_memory = "0=1GiB";
    options.reserve = "0=20";
    options.links = "0=gen4x16,0.memory=900,disk=7GB/s";
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.finding_count == 2);
    CHECK_CONTAINS(p.findings[0], "reserve has 20 bytes of cuda:0");
    CHECK_CONTAINS(p.findings[1], "links have 900 bytes of cuda:0");
    planned_end(&p);
}

static void
test_reserves(void)
{
    berth_plan_options options = loaded_options("0=1000MiB,cpu=100MiB");
    planned p;

    options.reserve_share = 0;
    options.reserve = "0=50MiB";
    options.context = 4096;
    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").reserve, 150 * MIB);
    CHECK_EQ(planned_get_tier(&p, "cpu").reserve, 10 * MIB);
    /* two layers, keys and values of 1024 elements of two bytes, 4096 tokens */
    CHECK_EQ(planned_get_tier(&p, "cuda:0").cache, 2 * 2 * 1024 * 2 * UINT64_C(4096));
    CHECK_EQ(planned_get_layer(&p, "model.layers.1").cache_bytes, 2 * 1024 * 2 * UINT64_C(4096));
    CHECK_GT(planned_get_tier(&p, "cuda:0").activations, 0);
    CHECK_GT(planned_get_tier(&p, "cuda:0").reserve_needed, 0);
    planned_end(&p);
}

/* A share of any budget is kept free: the plan is read back. */
static void
test_huge_budgets(void)
{
    static const char *const budgets[] = { "0=15EiB,cpu=8EiB", "0=9223372036854775807,1=1EB",
                                           "cpu=18446744073709551614,disk=16EB" };

    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        berth_plan_options options = loaded_options(budgets[i]);
        planned p;

        options.reserve_share = 0;
        planned_begin(&p, planned_llama(2, false), &options);
        T_REQUIRE(p.status == BERTH_OK);
        CHECK_EQ(p.summary.streamed_bytes, 0);
        CHECK_EQ(p.summary.is_proved, 1);
        planned_check(&p);
        planned_end(&p);
        options.reserve_share = UINT64_C(999000000);
        planned_begin(&p, planned_llama(2, false), &options);
        T_REQUIRE(p.status == BERTH_OK);
        planned_check(&p);
        planned_end(&p);
    }
}

/* What the runtime takes; of a large reserve, and of a small one no more than there is. */
static void
test_reserve_needed(void)
{
    const uint64_t runtime = BERTHI_CONTEXT_BYTES + BERTHI_WORKSPACE_BYTES;
    berth_plan_options options = loaded_options("0=4000MiB,cpu=100MiB");
    planned p;

    options.reserve_share = 0;
    options.reserve = "0=2000MiB";
    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").reserve_needed, runtime);
    CHECK_EQ(planned_get_tier(&p, "cpu").reserve_needed, 0);
    planned_end(&p);
    options.type = BERTH_ENCODING_NF4; /* decoded piece by piece for cuBLASLt */
    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").reserve_needed, runtime + BERTHI_GEMM_DECODED_BYTES);
    planned_end(&p);
    options.reserve = "0=20MiB";
    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").reserve_needed, planned_get_tier(&p, "cuda:0").reserve);
    planned_end(&p);
}

/* -------------------------------------------------------------------------- maps */

static void
check_map(const planned *p, uint32_t line, const char *path, uint32_t tier)
{
    berth_map_line out;

    if (!CHECK_EQ(berth_plan_get_map(p->plan, line, &out), BERTH_OK))
        return;
    CHECK_STR(out.path, path);
    CHECK_EQ(out.tier, tier);
}

static void
test_own_map(void)
{
    berth_plan_options options = loaded_options("0=70MiB,1=90MiB");
    berth_map_line out;
    planned p;

    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.is_imitated, 0);
    CHECK_EQ(p.summary.map_count, 8);
    check_map(&p, 0, "model.embed_tokens", 0);
    check_map(&p, 1, "model.layers.0", 0);
    check_map(&p, 3, "model.layers.2", 1);
    check_map(&p, 5, "model.norm", 1);
    check_map(&p, 7, "lm_head", 1);
    CHECK_EQ(berth_plan_get_map(p.plan, 8, &out), BERTH_EINVAL);
    planned_end(&p);
    /* A layer lies where most of it does. */
    options = loaded_options("0=80MiB,cpu=300MiB");
    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    check_map(&p, 0, "model.embed_tokens", 1);
    planned_end(&p);
}

static void
test_imitated_map(void)
{
    berth_plan_options options = loaded_options("0=70MB,1=90MB,cpu=1GB");
    planned p;

    options.mode = "sequential";
    options.reserve_share = 0; /* the release has cut its budgets itself, or has not */
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.is_imitated, 1);
    CHECK_EQ(p.summary.is_proved, 0);
    CHECK_EQ(p.summary.tier_count, 4);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").reserve, 0);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").budget, 70000000);
    CHECK_EQ(planned_get_tier(&p, "disk").budget, UINT64_MAX);
    CHECK_EQ(planned_get_layer(&p, "model.layers.1").cause, BERTH_PLAN_MAPPED);
    check_map(&p, 0, "model.embed_tokens", 0);
    CHECK_EQ(p.finding_count, 0);
    planned_end(&p);
    /* There is a disk, of any size, and no other device for its budget. */
    options.max_memory = "cpu=1GB,disk=2GB";
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.tier_count, 2);
    CHECK_EQ(planned_get_tier(&p, "cpu").budget, 1000000000);
    CHECK_EQ(planned_get_tier(&p, "disk").budget, UINT64_MAX);
    planned_end(&p);
}

/* A map is followed, whatever fits; what does not is said. */
static void
test_followed_map(void)
{
    const char *const file = fixture_format("%s/map.json", fixture_folder());
    berth_plan_options options = loaded_options("0=60MiB,cpu=300MiB");
    planned p;

    fixture_text(file, "{\"model\": 0, \"lm_head\": \"cpu\"}");
    options.device_map = file;
    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.map_count, 2);
    check_map(&p, 0, "model", 0);
    check_map(&p, 1, "lm_head", 1);
    CHECK_EQ(planned_get_layer(&p, "lm_head").resident_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "lm_head").link_bytes, 16 * MIB);
    CHECK_EQ(planned_get_layer(&p, "model.layers.3").resident_bytes,
             planned_get_layer(&p, "model.layers.3").bytes);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").slots, 16 * MIB);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").free, 0);
    CHECK_EQ(p.finding_count, 1);
    CHECK_CONTAINS(p.findings[0], "more than cuda:0 has");
    planned_end(&p);
    options.max_memory = "0=1GiB,cpu=8MiB";
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.finding_count, 1);
    CHECK_CONTAINS(p.findings[0], "more than cpu has");
    planned_end(&p);
}

/* What a map takes is enough for it; a byte less is said. */
static void
test_followed_to_the_byte(void)
{
    const char *const file = fixture_format("%s/map.json", fixture_folder());
    berth_plan_options options = loaded_options("0=1GiB");
    uint64_t taken;
    planned p;

    fixture_text(file, "{\"\": 0}");
    options.device_map = file;
    options.reserve_share = BERTH_RESERVE_NONE;
    planned_begin(&p, planned_llama(1, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    taken = planned_get_tier(&p, "cuda:0").budget - planned_get_tier(&p, "cuda:0").free;
    planned_end(&p);
    for (uint32_t less = 0; less < 2; less++) {
        options.max_memory = fixture_format("0=%lluB", (unsigned long long)(taken - less));
        planned_begin(&p, planned_llama(1, false), &options);
        T_REQUIRE(p.status == BERTH_OK);
        CHECK_EQ(planned_get_tier(&p, "cuda:0").free, 0);
        CHECK_EQ(p.finding_count, less);
        if (less > 0)
            CHECK_CONTAINS(p.findings[0], "the map asks for 1 B more than cuda:0 has");
        planned_end(&p);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_quantized);
    T_RUN(test_budgets_without_units);
    T_RUN(test_reserves);
    T_RUN(test_huge_budgets);
    T_RUN(test_reserve_needed);
    T_RUN(test_own_map);
    T_RUN(test_imitated_map);
    T_RUN(test_followed_map);
    T_RUN(test_followed_to_the_byte);
    T_MAIN_END;
}
