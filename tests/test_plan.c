/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans of whole checkpoints through berth.h: where layers go, and when. */
#include <stdio.h>
#include <stdlib.h>

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
    T_RUN(test_sweep);
    T_RUN(test_faults);
    T_MAIN_END;
}
