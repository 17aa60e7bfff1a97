/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans of whole checkpoints through berth.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/digest.h"
#include "kernels/gemm_lt.h"
#include "loader/plan_input.h"
#include "placement/estimate.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------- fits */

static void
test_one_device_takes_all(void)
{
    berth_plan_options options = loaded_options("0=200MiB,1=200MiB");
    planned p;

    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.cuts, 0);
    CHECK_EQ(p.summary.streamed_bytes, 0);
    CHECK_EQ(p.summary.link_bytes, 0);
    CHECK_EQ(p.summary.is_proved, 1);
    CHECK_EQ(p.summary.layer_count, 7);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").layers, 7);
    CHECK_EQ(planned_get_tier(&p, "cuda:1").weights, 0);
    /* All parts of all tensors, to the byte. */
    CHECK_EQ(p.summary.bytes, 4 * (49 * MIB / 2 + 2 * 2048) + 32 * MIB + 2048);
    CHECK_EQ(planned_get_layer(&p, "model.norm").cause, BERTH_PLAN_RESIDENT);
    planned_end(&p);
}

/* No options at all: those of init, on the machine as it is. */
static void
test_without_options(void)
{
    berth_plan_options options;
    planned p;
    berth_plan *plan = NULL;
    berth_plan_summary summary;
    berth_error error;

    berth_plan_options_init(&options);
    planned_begin(&p, planned_llama(2, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(berth_plan_create(p.context, p.checkpoint, NULL, &plan, &error), BERTH_OK);
    T_REQUIRE(plan != NULL);
    berth_plan_get(plan, &summary);
    CHECK_EQ(summary.type, p.summary.type);
    CHECK_EQ(summary.bytes, p.summary.bytes);
    CHECK_EQ(summary.digest, p.summary.digest);
    CHECK_EQ(summary.tier_count, p.summary.tier_count);
    berth_plan_destroy(plan);
    planned_end(&p);
}

static void
test_two_devices(void)
{
    berth_plan_options options = loaded_options("0=70MiB,1=70MiB");
    planned p;

    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.cuts, 1);
    CHECK_EQ(p.summary.streamed_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").home, 0);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").resident_bytes, 16 * MIB);
    CHECK_EQ(planned_get_layer(&p, "lm_head").home, 1);
    planned_end(&p);
}

/* An embedding stays outside only for layers that need its room. */
static void
test_embedding_stays(void)
{
    berth_plan_options options = loaded_options("0=90MiB,1=90MiB,cpu=100MiB");
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.streamed_bytes, 0);
    CHECK_EQ(planned_get_tier(&p, "cpu").weights, 0);
    CHECK_EQ(p.summary.cuts, 1);
    planned_end(&p);
}

/* ----------------------------------------------------------------------- streams */

static void
test_streams_what_does_not_fit(void)
{
    berth_plan_options options = loaded_options("0=80MiB,cpu=300MiB");
    berth_plan_tier gpu;
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    gpu = planned_get_tier(&p, "cuda:0");
    CHECK_EQ(p.summary.bytes, p.summary.resident_bytes + planned_get_tier(&p, "cpu").weights);
    CHECK_GT(gpu.slot_count, 0);
    CHECK_GT(p.summary.link_bytes, 0);
    CHECK_EQ(p.summary.disk_bytes, 0);
    CHECK_EQ(p.summary.bound, 1);
    CHECK(p.summary.seconds > 0);
    CHECK(p.summary.seconds * (double)gpu.link_rate >= (double)p.summary.link_bytes);
    CHECK_CONTAINS(p.summary.advice, "more on cuda:0");
    CHECK_EQ(gpu.link_bytes, p.summary.link_bytes);
    /* Rows of the embedding are fetched: they wait outside. */
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").cause, BERTH_PLAN_ROWS);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").link_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "model.layers.0").cause, BERTH_PLAN_SHORT);
    CHECK_GT(planned_get_layer(&p, "model.layers.0").missing, 0);
    CHECK_EQ(planned_get_tier(&p, "cpu").staging, MIB);
    planned_end(&p);
}

/* Links work at the same time: each device brings its share. */
static void
test_spread(void)
{
    static const char *const pin = "model.norm=cuda:1";
    berth_plan_options options = loaded_options("0=80MiB,1=80MiB,cpu=400MiB");
    double alone;
    planned p;

    options.staging_bytes = MIB;
    options.pins = &pin; /* homes are the search's: sums of bytes, device after device */
    options.pin_count = 1;
    planned_begin(&p, planned_llama(12, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    alone = p.summary.seconds;
    planned_end(&p);
    options.pin_count = 0;
    planned_begin(&p, planned_llama(12, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK(p.summary.seconds < 0.99 * alone);
    CHECK_GT(planned_get_tier(&p, "cuda:0").link_bytes, 0);
    CHECK_GT(planned_get_tier(&p, "cuda:1").link_bytes, 0);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").link_bytes
                 + planned_get_tier(&p, "cuda:1").link_bytes,
             p.summary.link_bytes);
    T_NOTE("%.2f ms instead of %.2f", 1e3 * p.summary.seconds, 1e3 * alone);
    planned_end(&p);
}

/* The larger of two devices gets more layers. */
static void
test_spread_unequal(void)
{
    berth_plan_options options = loaded_options("0=60MiB,1=120MiB,cpu=600MiB");
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(24, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.cuts, 1);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").layers, 9); /* a third of the bytes */
    CHECK_EQ(planned_get_tier(&p, "cuda:1").layers, 18);
    planned_end(&p);
}

/* What is pinned has to fit. */
static void
test_pinned_too_much(void)
{
    static const char *const pin = "model.layers.*=cuda:0";
    berth_plan_options options = loaded_options("0=80MiB,cpu=300MiB");
    planned p;

    options.staging_bytes = MIB;
    options.pins = &pin;
    options.pin_count = 1;
    planned_begin(&p, planned_llama(4, false), &options);
    CHECK_EQ(p.status, BERTH_ENOFIT);
    CHECK_STR(p.error.tensor, "cuda:0");
    CHECK_GT(p.error.expected, 98 * MIB);
    planned_end(&p);
}

static void
test_disk_takes_the_rest(void)
{
    berth_plan_options options = loaded_options("0=60MiB,cpu=40MiB,disk=inf");
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_GT(planned_get_tier(&p, "disk").weights, 0);
    CHECK_EQ(planned_get_tier(&p, "disk").free, UINT64_MAX);
    CHECK_GT(p.summary.disk_bytes, 0);
    CHECK_EQ(p.summary.bound, 2);
    CHECK_EQ(planned_get_tier(&p, "disk").link_bytes, p.summary.disk_bytes);
    planned_end(&p);
}

static void
test_cpu_alone(void)
{
    berth_plan_options options = loaded_options("cpu=60MiB,disk=inf");
    planned p;

    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_tier(&p, "cpu").layers, p.summary.layer_count);
    CHECK_EQ(planned_get_tier(&p, "cpu").staging, 0);
    CHECK_GT(p.summary.disk_bytes, 0);
    planned_end(&p);
}

/* What a CPU computes from is read into its slots: rings are for GPUs. */
static void
test_cpu_alone_has_no_ring(void)
{
    char *texts[2];
    size_t lengths[2];

    for (int i = 0; i < 2; i++) {
        berth_plan_options options = loaded_options("cpu=60MiB,disk=inf");
        planned p;

        options.links = "cpu.memory=3GB/s,disk=1.8GB/s";
        options.staging_bytes = i == 0 ? MIB : 64 * MIB;
        planned_begin(&p, planned_llama(4, false), &options);
        T_REQUIRE(p.status == BERTH_OK);
        texts[i] = planned_text(p.plan, &lengths[i]);
        planned_end(&p);
    }
    T_REQUIRE(lengths[0] == lengths[1]);
    CHECK_MEM(texts[0], texts[1], lengths[0]);
    free(texts[0]);
    free(texts[1]);
}

/* Experts go as one, all of them leave for slots, of two for a token some are there. */
static void
test_experts(void)
{
    const uint64_t expert = 3 * MIB;
    berth_plan_options options = loaded_options("0=80MiB,cpu=500MiB");
    uint64_t away = 0;
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_moe(4, 8), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_slots, 10 * expert);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_slot_count, 10);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").experts_away, 32);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_hits, 312500000);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").slot_count, 0);
    for (uint32_t l = 0; l < 4; l++) {
        const berth_plan_layer layer = planned_get_layer(&p, fixture_format("model.layers.%u", l));
        const uint64_t outside = layer.bytes - layer.resident_bytes;

        CHECK_EQ(layer.bytes, 8 * MIB + 2 * 2048 + 16384 + 8 * expert);
        CHECK_EQ(outside, 8 * expert);
        CHECK_EQ(layer.link_bytes, outside / 4 / 32 * 22);
        away += outside;
    }
    /* 16 MiB of head and 32 of attention stay; what is left of 72 is for slots. */
    CHECK_EQ(p.summary.link_bytes, away / 4 / 32 * 22);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").resident_bytes, 0);
    planned_end(&p);
}

/* One expert a layer: every token takes it. */
static void
test_one_expert(void)
{
    const uint64_t expert = 3 * MIB;
    berth_plan_options options = loaded_options("0=60MiB,cpu=500MiB");
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_moe(8, 1), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_slots, expert);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_slot_count, 1);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").experts_away, 8);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_hits, 0);
    for (uint32_t l = 0; l < 8; l++) {
        const berth_plan_layer layer = planned_get_layer(&p, fixture_format("model.layers.%u", l));

        CHECK_EQ(layer.link_bytes, layer.bytes - layer.resident_bytes);
    }
    planned_end(&p);
}

/* What a run has measured of experts is taken as it is given. */
static void
test_experts_as_given(void)
{
    berth_plan_options options = loaded_options("0=80MiB,cpu=500MiB");
    planned p;

    options.staging_bytes = MIB;
    options.expert_hits = 600000000;
    planned_begin(&p, planned_moe(4, 8), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_slot_count, 10);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_hits, 600000000);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").routing, BERTH_ROUTING_GIVEN);
    CHECK_EQ(p.summary.link_bytes, 4 * (24 * MIB / 4 * 2 / 5)); /* two of eight */
    planned_end(&p);
    options.expert_hits = BERTH_HITS_NONE;
    planned_begin(&p, planned_moe(4, 8), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_hits, 0);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").routing, BERTH_ROUTING_GIVEN);
    CHECK_EQ(p.summary.link_bytes, 24 * MIB);
    planned_end(&p);
}

/* A batch takes more of them; without a number all of them are taken. */
static void
test_experts_of_a_batch(void)
{
    berth_plan_options options = loaded_options("0=80MiB,cpu=500MiB");
    planned p;

    options.staging_bytes = MIB;
    options.batch = 3;
    planned_begin(&p, planned_moe(4, 8), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_slot_count, 10);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_hits, (uint64_t)(1e9 * (10 - 6) / (32 - 6)));
    CHECK(p.summary.tokens_per_second == 3 / p.summary.seconds);
    planned_end(&p);
    options.batch = 5; /* ten of eight */
    planned_begin(&p, planned_moe(4, 8), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").expert_hits, (uint64_t)(1e9 * (10 - 8) / (32 - 8)));
    planned_end(&p);
}

/* Names in more than one size of the table that keeps them. */
static void
test_many_names(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    planned p;

    planned_begin(&p, planned_moe(1, 300), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.berth_count, 900 + 6 + 1 + 3);
    planned_end(&p);
}

/* ------------------------------------------------------------------------- times */

static void
test_times(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    double needed;
    planned p;

    options.links = "0=1GB/s,disk=2GB/s,0.memory=100GB/s";
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    needed = (double)(p.summary.bytes - 16 * MIB); /* but for the embedding */
    CHECK(p.summary.load_seconds == (double)p.summary.bytes / 1e9);
    CHECK(p.summary.compute_seconds > 0.999 * needed / 100e9);
    CHECK(p.summary.compute_seconds < 1.001 * needed / 100e9);
    CHECK(p.summary.seconds == p.summary.compute_seconds);
    CHECK_EQ(p.summary.bound, 0);
    CHECK(p.summary.host_seconds == 0);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").link_rate, 1000000000);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").link_source, BERTH_RATE_GIVEN);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").memory_rate, UINT64_C(100000000000));
    planned_end(&p);
    options.links = "0=4GB/s,disk=2GB/s";
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK(p.summary.load_seconds == (double)p.summary.bytes / 2e9);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").memory_source, BERTH_RATE_GUESSED);
    planned_end(&p);
}

/* What is quantized on its way is read, and brought to its device, as it is stored. */
static void
test_load_times(void)
{
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_INT8 };
    const char *const folder = planned_llama(4, false);
    berth_plan_options options = loaded_options("0=1GiB");
    double stored;
    planned p;

    options.links = "0=1GB/s,disk=2GB/s";
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    stored = p.summary.load_seconds;
    planned_end(&p);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        options.type = types[i];
        planned_begin(&p, folder, &options);
        T_REQUIRE(p.status == BERTH_OK);
        CHECK_LT(p.summary.bytes, 100 * MIB);
        CHECK(p.summary.load_seconds == stored);
        planned_end(&p);
    }
    /* On the disk it is, too: encoded, it cannot stay in its file. */
    options.max_memory = "cpu=64MiB,disk=inf";
    options.links = "disk=2GB/s";
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_GT(p.summary.streamed_bytes, 0);
    CHECK(p.summary.load_seconds >= (double)(4 * (4 * 2 * MIB + 3 * 11 * MIB / 2)) / 2e9);
    planned_end(&p);
}

/* Links may be as slow as they like: the plan is read back. */
static void
test_long_times(void)
{
    berth_plan_options options = loaded_options("0=80MiB,cpu=20MiB,disk=1EiB");
    planned p;

    options.links = "0=1B/s,disk=1B/s,0.memory=1B/s,cpu.memory=1B/s";
    planned_begin(&p, planned_llama(6, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK(p.summary.seconds > 1e7);
    planned_check(&p);
    planned_end(&p);
}

static void
test_host_times(void)
{
    berth_plan_options options = loaded_options("0=80MiB,cpu=300MiB");
    double host;
    planned p;

    options.staging_bytes = MIB;
    options.links = "cpu.memory=10GB/s";
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    host = (double)p.summary.link_bytes / 10e9 + p.summary.compute_seconds;
    CHECK(p.summary.host_seconds > 0.999 * host && p.summary.host_seconds < 1.001 * host);
    planned_end(&p);
}

/* -------------------------------------------------------------------------- ties */

static void
test_tied_head(void)
{
    berth_plan_options options = loaded_options("0=80MiB,1=80MiB");
    planned p;
    berth_plan_layer last;

    planned_begin(&p, planned_llama(4, true), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(berth_plan_get_layer(p.plan, p.summary.layer_count - 1, &last), BERTH_OK);
    CHECK_STR(last.name, "model.embed_tokens");
    CHECK_EQ(last.cause, BERTH_PLAN_TIED);
    CHECK_EQ(last.home, 1);
    planned_end(&p);
}

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

/* ----------------------------------------------------------------------- summary */

static void
test_summary(void)
{
    berth_plan_options options = loaded_options("0=1GiB,cpu=1GiB");
    planned p;

    options.type = BERTH_ENCODING_FP4;
    options.block_size = 128;
    options.double_quant = 1;
    options.context = 64;
    options.batch = 3;
    options.cache_dtype = BERTH_F32;
    options.dtype = BERTH_F16;
    planned_begin(&p, planned_llama(12, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.type, BERTH_ENCODING_FP4);
    CHECK_EQ(p.summary.dtype, BERTH_F16);
    CHECK_EQ(p.summary.double_quant, 1);
    CHECK_EQ(p.summary.block_size, 128);
    CHECK_EQ(p.summary.context, 64);
    CHECK_EQ(p.summary.batch, 3);
    CHECK_EQ(p.summary.cache_dtype, BERTH_F32);
    for (uint32_t l = 0; l < 12; l++) /* three sequences, keys and values in f32 */
        CHECK_EQ(planned_get_layer(&p, fixture_format("model.layers.%u", l)).cache_bytes,
                 3 * 64 * 2 * 1024 * 4);
    CHECK_EQ(planned_get_layer(&p, "lm_head").cache_bytes, 0);
    planned_end(&p);
}

/* By any tool: crc32 of names, a zero, the dtype, and each dim in eight bytes. */
static void
test_digest(void)
{
    berth_plan_options options = loaded_options("0=2GiB");
    planned p;

    planned_begin(&p, planned_moe(1, 300), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.digest, 0xa65f0114);
    planned_end(&p);
}

/* Names as long as what is summed up at once, and longer, between short ones. */
static void
test_digest_of_long_names(void)
{
    static const size_t lengths[] = { 3, 7677, 7678, 5, 7679, 8000, 300, 8192, 20000, 7 };
    static char name[20001];
    static uint8_t bytes[100000];
    const uint64_t shape[] = { 2 };
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();
    berth_checkpoint *checkpoint = NULL;
    berth_context *context = NULL;
    size_t used = 0;

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(name, 'a' + (int)i, lengths[i]);
        name[lengths[i]] = '\0';
        fixture_add_sparse(b, name, "BF16", 1, shape);
        memcpy(bytes + used, name, lengths[i] + 1); /* and a zero byte */
        used += lengths[i] + 1;
        bytes[used++] = BERTH_BF16;
        bytes[used] = 2;
        used += 8;
    }
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    T_REQUIRE(CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL),
                       BERTH_OK));
    CHECK_EQ(berthi_plan_digest(checkpoint), berthi_digest_crc32(0, bytes, used));
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

/* Bytes of one layer's cache, and of what computing takes. */
static uint64_t
cache_of(int32_t dtype, uint64_t batch, uint64_t *out_activations)
{
    berth_plan_options options = loaded_options("0=1GiB");
    uint64_t bytes;
    planned p;

    options.cache_dtype = dtype;
    options.context = 64;
    options.batch = batch;
    planned_begin(&p, planned_llama(1, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    bytes = planned_get_layer(&p, "model.layers.0").cache_bytes;
    *out_activations = planned_get_tier(&p, "cuda:0").activations;
    planned_end(&p);
    return bytes;
}

static void
test_cache(void)
{
    uint64_t one;
    uint64_t three;

    CHECK_EQ(cache_of(BERTH_F32, 1, &one), 64 * 2 * 1024 * 4);
    CHECK_EQ(cache_of(BERTH_F16, 1, &one), 64 * 2 * 1024 * 2);
    CHECK_EQ(cache_of(BERTH_BF16, 3, &three), 3 * 64 * 2 * 1024 * 2);
    CHECK_GT(three, 2 * one);
    CHECK_EQ(cache_of(BERTH_F8_E4M3, 1, &one), 64 * 2 * 1024);
    CHECK_EQ(cache_of(BERTH_F8_E5M2, 1, &one), 64 * 2 * 1024);
    CHECK_EQ(cache_of(BERTH_F8_E5M2, 0, &three), 64 * 2 * 1024); /* one is what 0 means */
    CHECK_EQ(three, one);
}

/* Layers with a window keep no more than that: each layer by its own number. */
static void
test_cache_of_windows(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    const char *const folder = planned_llama(12, false);
    planned p;

    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"hidden_size\": 1024, \"intermediate_size\": 2816, "
                 "\"num_hidden_layers\": 12, \"num_attention_heads\": 8, "
                 "\"num_key_value_heads\": 8, \"vocab_size\": 8192, "
                 "\"torch_dtype\": \"bfloat16\", \"sliding_window\": 16, \"layer_types\": ["
                 "\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"sliding_attention\", \"full_attention\"]}");
    options.context = 64;
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    for (uint32_t i = 0; i < 12; i++)
        CHECK_EQ(planned_get_layer(&p, fixture_format("model.layers.%u", i)).cache_bytes,
                 (i == 1 || i == 11 ? 64 : 16) * 2 * 1024 * 2);
    planned_end(&p);
}

/* Tables of words and of positions have names of their own, and come behind layers. */
static void
test_other_tables(void)
{
    static const struct {
        const char *name;
        uint64_t rows;
        uint64_t columns;
    } tensors[] = {
        { "transformer.wte.weight", 4096, 512 }, { "transformer.wpe.weight", 1024, 512 },
        { "transformer.ln_f.weight", 512, 0 },   { "transformer.h.0.ln_1.weight", 512, 0 },
        { "transformer.h.0.attn.c_attn.weight", 512, 1536 },
        { "transformer.h.0.mlp.c_fc.weight", 512, 2048 },
    };
    berth_plan_options options = loaded_options("0=8MiB,cpu=60MiB");
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();
    berth_plan_layer last;
    planned p;

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const uint64_t shape[] = { tensors[i].rows, tensors[i].columns };

        fixture_add_sparse(b, tensors[i].name, "BF16", tensors[i].columns == 0 ? 1 : 2,
                           shape);
    }
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", "
                 "\"n_embd\": 512, \"n_layer\": 1, \"n_head\": 8, \"vocab_size\": 4096, "
                 "\"n_positions\": 1024, \"torch_dtype\": \"bfloat16\"}");
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(planned_get_layer(&p, "transformer.wpe").cause, BERTH_PLAN_ROWS);
    CHECK_EQ(berth_plan_get_layer(p.plan, p.summary.layer_count - 1, &last), BERTH_OK);
    CHECK_STR(last.name, "transformer.wte");
    CHECK_EQ(last.bytes, 4 * MIB);
    CHECK_EQ(last.cause, BERTH_PLAN_TIED);
    planned_end(&p);
}

/* The link that decides is that of the device that is brought most. */
static void
test_bound(void)
{
    static const char *const pin = "model.embed_tokens=cuda:0";
    berth_plan_options options = loaded_options("0=90MiB,1=60MiB,cpu=300MiB");
    berth_plan_tier bound;
    char size[32];
    uint64_t said;
    uint64_t more;
    planned p;

    options.staging_bytes = MIB;
    options.pins = &pin;
    options.pin_count = 1;
    planned_begin(&p, planned_llama(8, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.bound, 1);
    CHECK_STR(p.summary.bound_tier == 0 ? "cuda:0" : "cuda:1",
              planned_get_tier(&p, "cuda:0").link_bytes > planned_get_tier(&p, "cuda:1").link_bytes
                  ? "cuda:0"
                  : "cuda:1");
    bound = planned_get_tier(&p, p.summary.bound_tier == 0 ? "cuda:0" : "cuda:1");
    more = bound.link_bytes - bound.free - bound.slots;
    T_REQUIRE(CHECK_CONTAINS(p.summary.advice, " more on "));
    (void)snprintf(size, sizeof size, "%.*s",
                   (int)(strstr(p.summary.advice, " more on ") - p.summary.advice),
                   p.summary.advice);
    T_REQUIRE(CHECK_EQ(berth_size_parse(size, &said, NULL), BERTH_OK));
    CHECK_GE(said, more); /* as it is read, it is enough: by less than a hundredth */
    CHECK_LT(said - more, MIB / 50);
    planned_end(&p);
}

/* An embedding outside is better than a second device. */
static void
test_no_cut_for_an_embedding(void)
{
    berth_plan_options options = loaded_options("0=120MiB,1=120MiB,cpu=300MiB");
    planned p;

    options.staging_bytes = MIB;
    planned_begin(&p, planned_llama(4, false), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.cuts, 0);
    CHECK_EQ(planned_get_layer(&p, "model.embed_tokens").resident_bytes, 0);
    CHECK_EQ(planned_get_layer(&p, "lm_head").home, 0);
    planned_end(&p);
}

/* What is quantized already stays as it is. */
static void
test_kept(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    fixture_builder *const b = fixture_begin();
    const char *const folder = fixture_folder();
    const uint64_t norm[] = { 512 };
    berth_berth berth;
    planned p;

    fixture_add_nf4(b, "model.layers.0.mlp.up_proj.weight", 512, 512, true);
    fixture_add_sparse(b, "model.norm.weight", "BF16", 1, norm);
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.berth_count, 2);
    CHECK_EQ(berth_plan_get_berth(p.plan, 0, &berth, NULL, 0), BERTH_OK);
    CHECK_EQ(berth.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(berth.bytes, 512 * 256 + 4096 + 256);
    CHECK_EQ(planned_get_tier(&p, "cuda:0").scratch, 0);
    CHECK_EQ(p.finding_count, 1); /* no config.json: a guessed model, and no KV cache */
    planned_end(&p);
}

/* So is what berth does not make: the weight and its scales, each in a berth's grain. */
static void
test_kept_foreign(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    fixture_builder *const b = fixture_begin();
    const char *const folder = fixture_folder();
    berth_berth berth;
    planned p;

    fixture_add_sparse(b, "model.layers.0.mlp.up_proj.weight", "F8_E4M3", 2,
                       (const uint64_t[]){ 384, 250 });
    fixture_add_sparse(b, "model.layers.0.mlp.up_proj.weight_scale_inv", "F32", 2,
                       (const uint64_t[]){ 3, 2 });
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                 "\"quantization_config\": {\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": [128, 128]}}");
    planned_begin(&p, folder, &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.summary.berth_count, 1);
    CHECK_EQ(berth_plan_get_berth(p.plan, 0, &berth, NULL, 0), BERTH_OK);
    CHECK_EQ(berth.encoding, BERTH_ENCODING_FP8_BLOCK);
    CHECK_EQ(berth.bytes, 96000 + 256);
    planned_end(&p);
}

/* Options that are passed on: experts that are fused are quantized, slots counted. */
static void
test_passed_on(void)
{
    berth_plan_options options = loaded_options("0=1GiB");
    uint64_t plain;
    planned p;

    options.type = BERTH_ENCODING_NF4;
    planned_begin(&p, planned_moe(2, 4), &options);
    T_REQUIRE(p.status == BERTH_OK);
    plain = p.summary.bytes;
    planned_end(&p);
    options.takes_experts = 1;
    planned_begin(&p, planned_moe(2, 4), &options);
    T_REQUIRE(p.status == BERTH_OK);
    CHECK_LT(p.summary.bytes + 2 * 4 * 2 * MIB, plain); /* 3 MiB each before */
    planned_end(&p);
    options = loaded_options("0=120MiB,cpu=600MiB");
    options.staging_bytes = MIB;
    for (options.slots = 1; options.slots < 4; options.slots++) {
        planned_begin(&p, planned_llama(8, false), &options);
        T_REQUIRE(p.status == BERTH_OK);
        CHECK_EQ(planned_get_tier(&p, "cuda:0").slot_count, options.slots);
        planned_end(&p);
    }
}

/* ------------------------------------------------------------------------- sweep */

/* Any budgets: a plan that holds, or a refusal that says what is missing. */
static void
test_sweep(void)
{
    const char *const folder = planned_llama(6, false);
    uint32_t fits = 0;

    for (uint32_t i = 0; i < 60; i++) {
        char budgets[128];
        berth_plan_options options;
        planned p;

        (void)snprintf(budgets, sizeof budgets, "0=%uMiB,2=%uMiB,cpu=%uMiB", 10 + i * 7 % 90,
                       5 + i * 13 % 120, 40 + i * 5);
        options = loaded_options(budgets);
        options.staging_bytes = MIB;
        options.type = i % 3 == 0 ? BERTH_ENCODING_INT8 : BERTH_ENCODING_NATIVE;
        planned_begin(&p, folder, &options);
        if (p.status == BERTH_OK) {
            planned_check(&p);
            fits++;
        } else {
            CHECK_EQ(p.status, BERTH_ENOFIT);
            CHECK_GT(p.error.expected, p.error.actual);
        }
        planned_end(&p);
    }
    CHECK_GT(fits, 20);
    T_NOTE("%u of 60 budgets fit", fits);
}

/* ------------------------------------------------------------------------- faults */

static berth_status
plan_all(void *user, berth_context *context, berth_error *error)
{
    static const char *const pins[] = { "lm_head=cuda:0" };
    berth_plan_options options = loaded_options("0=80MiB,cpu=300MiB,disk=inf");
    berth_checkpoint *checkpoint;
    berth_plan *plan = NULL;
    berth_status status = berth_checkpoint_open(context, user, NULL, &checkpoint, error);

    if (status != BERTH_OK)
        return status;
    options.staging_bytes = MIB;
    options.pins = pins;
    options.pin_count = 1;
    options.type = BERTH_ENCODING_NF4;
    status = berth_plan_create(context, checkpoint, &options, &plan, error);
    CHECK((status == BERTH_OK) == (plan != NULL));
    if (status == BERTH_OK)
        status = berth_plan_check(plan, context, checkpoint, "", NULL, NULL, error);
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_faults(void)
{
    const char *const folder = planned_llama(1, false);
    const fault_counts counts = fault_loop("plan", plan_all, (void *)(uintptr_t)folder);

    CHECK_GT(counts.memory, 30);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_one_device_takes_all);
    T_RUN(test_without_options);
    T_RUN(test_two_devices);
    T_RUN(test_embedding_stays);
    T_RUN(test_streams_what_does_not_fit);
    T_RUN(test_spread);
    T_RUN(test_spread_unequal);
    T_RUN(test_pinned_too_much);
    T_RUN(test_disk_takes_the_rest);
    T_RUN(test_cpu_alone);
    T_RUN(test_cpu_alone_has_no_ring);
    T_RUN(test_experts);
    T_RUN(test_one_expert);
    T_RUN(test_experts_as_given);
    T_RUN(test_experts_of_a_batch);
    T_RUN(test_many_names);
    T_RUN(test_times);
    T_RUN(test_load_times);
    T_RUN(test_long_times);
    T_RUN(test_host_times);
    T_RUN(test_tied_head);
    T_RUN(test_quantized);
    T_RUN(test_budgets_without_units);
    T_RUN(test_reserves);
    T_RUN(test_huge_budgets);
    T_RUN(test_reserve_needed);
    T_RUN(test_own_map);
    T_RUN(test_imitated_map);
    T_RUN(test_followed_map);
    T_RUN(test_followed_to_the_byte);
    T_RUN(test_summary);
    T_RUN(test_digest);
    T_RUN(test_digest_of_long_names);
    T_RUN(test_cache);
    T_RUN(test_cache_of_windows);
    T_RUN(test_other_tables);
    T_RUN(test_bound);
    T_RUN(test_no_cut_for_an_embedding);
    T_RUN(test_kept);
    T_RUN(test_kept_foreign);
    T_RUN(test_passed_on);
    T_RUN(test_sweep);
    T_RUN(test_faults);
    T_MAIN_END;
}
