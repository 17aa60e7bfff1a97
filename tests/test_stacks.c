/* SPDX-License-Identifier: Apache-2.0 */
/* test_stacks.c - plans for experts that are stacked in one tensor. */
#include <stdlib.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/stacked.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)
#define KIB UINT64_C(1024)

/* -------------------------------------------------------------------------- apart */

/* In a layer: what is whole, by name; then expert by expert its part of each stack. */
static void
test_each_expert_has_a_berth(void)
{
    static const char *const stacks[] = { "down_proj", "gate_up_proj" };
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    const uint32_t experts = stacked_small.experts;
    planned p;

    planned_begin(&p, stacked_make(&stacked_small), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_check(&p);
    CHECK_EQ(p.summary.stacks, BERTH_STACKS_APART);
    /* 3 beside layers, 8 whole ones in each, 2 for each of 8 experts. */
    CHECK_EQ(p.summary.berth_count, 3 + 3 * (8 + 2 * experts));
    for (uint32_t n = 0; n < stacked_small.layers; n++) {
        const uint32_t number =
            planned_layer(&p, fixture_format("model.layers.%u", n));
        berth_plan_layer layer;

        CHECK_EQ(berth_plan_get_layer(p.plan, number, &layer), BERTH_OK);
        CHECK_EQ(layer.berth_count, 8 + 2 * experts);
        for (uint64_t i = 0; i < layer.berth_count; i++) {
            const uint64_t at = i < 8 ? 0 : i - 8;
            berth_berth berth;
            char name[256];

            CHECK_EQ(berth_plan_get_berth(p.plan, layer.first_berth + i, &berth, name,
                                          sizeof name),
                     BERTH_OK);
            CHECK_EQ(berth.is_expert, i >= 8);
            CHECK_EQ(berth.along, i < 8 ? BERTH_SLICING_NONE : BERTH_SLICING_ROWS);
            if (i < 8)
                continue;
            CHECK_STR(name, fixture_format("model.layers.%u.mlp.experts.%s", n,
                                           stacks[at % 2]));
            CHECK_EQ(berth.first, at / 2);
            CHECK_EQ(berth.count, 1);
            CHECK_EQ(berth.bytes, (at % 2 == 0 ? 8 : 16) * KIB);
        }
    }
    planned_end(&p);
}

/* Encoded, an expert is as large as if it were stored alone. */
static void
test_encoded_experts(void)
{
    for (uint32_t is_double = 0; is_double < 2; is_double++) {
        berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
        berth_berth berth;
        planned p;

        options.type = BERTH_ENCODING_NF4;
        options.double_quant = (int32_t)is_double;
        options.takes_experts = 1;
        planned_begin(&p, stacked_make(&stacked_small), &options);
        CHECK_EQ(p.status, BERTH_OK);
        planned_check(&p);
        CHECK_EQ(berth_plan_get_berth(p.plan, stacked_berth(&p, 1, "gate_up_proj", 5),
                                      &berth, NULL, 0),
                 BERTH_OK);
        CHECK_EQ(berth.encoding, BERTH_ENCODING_NF4);
        /* 8192 values in blocks of 64: codes, absmax, and 256 for one second level. */
        CHECK_EQ(berth.bytes, 4096 + (is_double ? 256 + 256 : 512));
        planned_end(&p);
    }
}

/* ------------------------------------------------------------------ what stays whole */

static uint64_t
count_berths(const stacked_sizes *sizes, berth_plan_options options)
{
    uint64_t count;
    planned p;

    planned_begin(&p, stacked_make(sizes), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_check(&p);
    count = p.summary.berth_count;
    CHECK_EQ(p.summary.stacks,
             count == 3 + sizes->layers * UINT64_C(10) + (sizes->extra != NULL)
                 ? BERTH_STACKS_WHOLE
                 : BERTH_STACKS_APART);
    planned_end(&p);
    return count;
}

static void
test_what_stays_whole(void)
{
    stacked_sizes sizes = stacked_small;
    const uint64_t whole = 3 + 3 * 10;
    const uint64_t apart = 3 + 3 * 24;

    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_WHOLE)), whole);
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_AUTO)), whole);
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)), apart);
    /* One expert is no stack of them. */
    sizes.experts = 1;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)), whole);
    sizes.experts = 2;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             whole + 6);
    /* Three dims alone make no stack; another number of them is left as it is. */
    sizes = stacked_small;
    sizes.extra = "model.layers.1.self_attn.stack.weight";
    sizes.extra_shape[0] = 8;
    sizes.extra_shape[1] = 16;
    sizes.extra_shape[2] = 16;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             apart + 1);
    sizes.extra = "model.layers.1.mlp.experts.up_proj";
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             apart + 8);
    /* A small one that is no part of an expert decides nothing, whatever it is called. */
    sizes.extra = "model.layers.1.mlp.a_experts.up_proj";
    sizes.extra_shape[0] = 2;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             apart + 1);
    sizes.extra = "model.layers.1.mlp.experts.up_proj";
    sizes.extra_shape[0] = 7;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             apart + 1);
}

/* As many experts as no model has: one tensor, which a hostile header may claim. */
static void
test_far_too_many_experts(void)
{
    stacked_sizes sizes = { .layers = 1, .experts = 4096, .hidden = 16, .inner = 16 };

    sizes.is_sparse = true;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             3 + 8 + 2 * 4096);
    sizes.experts = 4097;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             3 + 10);
    sizes.experts = 8; /* of 240 and 480 values: the larger stack alone */
    sizes.inner = 15;
    CHECK_EQ(count_berths(&sizes, stacked_options("cpu=64MiB", BERTH_STACKS_APART)),
             3 + 9 + 8);
}

static void
test_bad_options(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", 3);

    sliced_refuse(stacked_make(&stacked_small), options, BERTH_EINVAL, "stacks", NULL);
    options.stacks = -1;
    sliced_refuse(stacked_make(&stacked_small), options, BERTH_EINVAL, "stacks", NULL);
}

/* --------------------------------------------------------------------------- choice */

static void
plan_large(planned *p, const char *memory, int32_t stacks)
{
    static const char *folder;
    berth_plan_options options = stacked_options(memory, stacks);

    if (folder == NULL)
        folder = stacked_make(&stacked_large);
    planned_begin(p, folder, &options);
    if (p->status == BERTH_OK)
        planned_check(p);
}

/* 24 MiB of experts a layer, 98 MiB in all. */
static void
test_stacks_are_taken_apart_where_that_is_faster(void)
{
    planned whole, apart, chosen;

    plan_large(&whole, "0=70MiB,cpu=inf", BERTH_STACKS_WHOLE);
    plan_large(&apart, "0=70MiB,cpu=inf", BERTH_STACKS_APART);
    plan_large(&chosen, "0=70MiB,cpu=inf", BERTH_STACKS_AUTO);
    CHECK_GT(whole.summary.streamed_bytes, 0);
    CHECK(apart.summary.seconds < whole.summary.seconds);
    CHECK_EQ(chosen.summary.stacks, BERTH_STACKS_APART);
    CHECK_EQ(chosen.summary.berth_count, apart.summary.berth_count);
    CHECK(chosen.summary.seconds >= apart.summary.seconds);
    CHECK(chosen.summary.seconds <= apart.summary.seconds);
    planned_end(&whole);
    planned_end(&apart);
    planned_end(&chosen);
}

/* All that is resident is read as tokens choose it, whole or apart. */
static void
test_stacks_that_fit_stay_whole(void)
{
    planned whole, apart, chosen;
    berth_plan_tier tier;

    plan_large(&whole, "0=256MiB,cpu=inf", BERTH_STACKS_WHOLE);
    plan_large(&apart, "0=256MiB,cpu=inf", BERTH_STACKS_APART);
    plan_large(&chosen, "0=256MiB,cpu=inf", BERTH_STACKS_AUTO);
    CHECK_EQ(whole.summary.streamed_bytes, 0);
    CHECK_EQ(apart.summary.streamed_bytes, 0);
    CHECK_EQ(chosen.summary.stacks, BERTH_STACKS_WHOLE);
    CHECK(whole.summary.compute_seconds > 0.999 * apart.summary.compute_seconds);
    CHECK(whole.summary.compute_seconds < 1.001 * apart.summary.compute_seconds);
    /* Two of eight, and what is no expert: less than half of all. */
    CHECK_EQ(berth_plan_get_tier(whole.plan, 0, &tier), BERTH_OK);
    CHECK_LT((uint64_t)(whole.summary.compute_seconds * (double)tier.memory_rate),
             whole.summary.bytes / 2);
    planned_end(&whole);
    planned_end(&apart);
    planned_end(&chosen);
}

/* What a token reads of a rank's share of them is two of eight, wherever they lie. */
static void
test_stacks_of_a_rank_are_read_as_tokens_choose(void)
{
    static const char *const memory[] = { "0=256MiB,cpu=inf", "0=40MiB,cpu=inf" };
    const char *const folder = stacked_make(&stacked_large);

    for (uint32_t i = 0; i < 2; i++) {
        berth_plan_options options = stacked_options(memory[i], BERTH_STACKS_AUTO);
        berth_plan_tier tier;
        planned p;

        options.rank = 1;
        options.ranks = 2;
        planned_begin(&p, folder, &options);
        T_REQUIRE(p.status == BERTH_OK);
        planned_check(&p);
        CHECK_EQ(p.summary.stacks, BERTH_STACKS_WHOLE);
        CHECK_EQ(p.summary.streamed_bytes > 0, i == 1);
        CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
        CHECK_LT((uint64_t)(p.summary.compute_seconds * (double)tier.memory_rate),
                 p.summary.bytes / 2);
        planned_end(&p);
    }
}

/* A small stack has to be where its layer is computed; its experts need not. */
static void
test_stacks_are_taken_apart_where_that_fits_alone(void)
{
    const char *const folder = stacked_make(&stacked_small);
    berth_plan_options options =
        stacked_options("0=600KiB,cpu=64MiB", BERTH_STACKS_WHOLE);
    planned p;

    sliced_refuse(folder, options, BERTH_ENOFIT, "", NULL);
    options.stacks = BERTH_STACKS_AUTO;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.error.status, BERTH_OK);
    CHECK_EQ(p.summary.stacks, BERTH_STACKS_APART);
    planned_check(&p);
    planned_end(&p);
}

/* Where nothing fits, the smallest change that would do is that of experts apart. */
static void
test_nothing_fits(void)
{
    const char *const folder = stacked_make(&stacked_small);
    berth_error errors[3];
    planned p;

    for (int32_t stacks = 0; stacks < 3; stacks++) {
        berth_plan_options options = stacked_options("0=8KiB,cpu=64MiB", stacks);

        planned_begin(&p, folder, &options);
        CHECK_EQ(p.status, BERTH_ENOFIT);
        errors[stacks] = p.error;
        planned_end(&p);
    }
    CHECK_LT(errors[BERTH_STACKS_APART].expected, errors[BERTH_STACKS_WHOLE].expected);
    CHECK_EQ(errors[BERTH_STACKS_AUTO].expected, errors[BERTH_STACKS_APART].expected);
    CHECK_STR(errors[BERTH_STACKS_AUTO].message, errors[BERTH_STACKS_APART].message);
}

/* Warnings are told once, however often it is planned. */
static void
test_findings_are_told_once(void)
{
    const char *const folder = stacked_make(&stacked_large);
    berth_plan_options options = stacked_options("0=70MiB,cpu=inf", BERTH_STACKS_AUTO);
    planned p;

    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", "
                 "\"num_hidden_layers\": 4, \"hidden_size\": \"many\"}");
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.summary.stacks, BERTH_STACKS_APART);
    CHECK_EQ(p.finding_count, 1);
    planned_end(&p);
}

/* What a map asks for too much is that of the plan that is made. */
static void
test_maps_that_ask_for_too_much(void)
{
    const char *const map = fixture_format("%s/map.json", fixture_folder());
    const char *const folder = stacked_make(&stacked_large);
    berth_plan_options options = stacked_options("0=24MiB,cpu=1GiB", BERTH_STACKS_AUTO);
    planned p;

    fixture_text(map, "{\"\": 0, \"model.layers.0.mlp.experts\": \"cpu\", "
                      "\"model.layers.1.mlp.experts\": \"cpu\", "
                      "\"model.layers.2.mlp.experts\": \"cpu\", "
                      "\"model.layers.3.mlp.experts\": \"cpu\"}");
    options.device_map = map;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.summary.stacks, BERTH_STACKS_APART);
    CHECK_EQ(p.finding_count, 0);
    planned_end(&p);
    options.stacks = BERTH_STACKS_WHOLE;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.finding_count, 1);
    planned_end(&p);
    options.max_memory = "0=4MiB,cpu=1GiB";
    options.stacks = BERTH_STACKS_AUTO;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.finding_count, 1);
    planned_end(&p);
}

/* A bias that is called like experts is none that is streamed whole. */
static void
test_reasons(void)
{
    static const char *const pins[] = { "model.layers.1.mlp.experts.gate_up_proj_bias=cpu" };
    berth_plan_options options = stacked_options("0=64MiB,cpu=64MiB", BERTH_STACKS_APART);
    char reason[256];
    planned p;

    options.pins = pins;
    options.pin_count = 1;
    for (int32_t stacks = BERTH_STACKS_WHOLE; stacks <= BERTH_STACKS_APART; stacks++) {
        options.stacks = stacks;
        planned_begin(&p, stacked_make(&stacked_small), &options);
        CHECK_EQ(berth_plan_explain(p.plan, planned_layer(&p, "model.layers.1"), reason,
                                    sizeof reason),
                 BERTH_OK);
        CHECK_EQ(strstr(reason, "stacked in one tensor") == NULL,
                 stacks == BERTH_STACKS_APART);
        planned_end(&p);
    }
}

/* Names of a layer begin alike only where all of them do, also behind its stacks. */
static void
test_names(void)
{
    const char *const folder = fixture_folder();
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    planned p;

    (void)fixture_file(fixture_format("%s/model.safetensors", folder),
                       "BF16 4x32 model.layers.0.mlp.experts.gate_up_proj_bias\n"
                       "BF16 4x16x32 model.layers.0.mlp.experts.gate_up_proj\n"
                       "BF16 16x16 model.layers.0.self_attn.q_proj.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", "
                 "\"num_hidden_layers\": 1}");
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.summary.berth_count, 2 + 4);
    planned_check(&p);
    planned_end(&p);
}

/* Training takes all experts in each pass. */
static void
test_training(void)
{
    berth_plan_options options = stacked_options("0=64MiB,cpu=64MiB", BERTH_STACKS_APART);
    berth_train_options train;
    berth_plan *plan = NULL;
    berth_error error;
    planned p;

    berth_train_options_init(&train);
    train.method = BERTH_TRAIN_LORA;
    train.lora_targets = "q_proj";
    options.train = &train;
    options.context = 64;
    planned_begin(&p, stacked_make(&stacked_small), &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.summary.stacks, BERTH_STACKS_WHOLE);
    CHECK_EQ(stacked_parse(&p, "\"proved\": true", "\"proved\": true, \"stacks_apart\": true",
                           &plan, &error),
             BERTH_EFORMAT);
    CHECK_CONTAINS(error.message, "stacks stay whole for training");
    planned_end(&p);
}

/* --------------------------------------------------------------------- maps and pins */

static void
check_tiers(const planned *p, uint32_t layer, const char *tier)
{
    for (uint32_t e = 0; e < 8; e++) {
        const uint32_t wanted = planned_tier(p, tier);
        berth_berth berth;

        CHECK_EQ(berth_plan_get_berth(p->plan, stacked_berth(p, layer, "down_proj", e),
                                      &berth, NULL, 0),
                 BERTH_OK);
        CHECK_EQ(berth.tier, wanted);
        CHECK_EQ(berth_plan_get_berth(p->plan, stacked_berth(p, layer, "gate_up_proj", e),
                                      &berth, NULL, 0),
                 BERTH_OK);
        CHECK_EQ(berth.tier, wanted);
    }
}

static void
test_pins_hold_every_expert(void)
{
    static const char *const pins[] = { "model.layers.1.mlp.experts=cpu" };
    berth_plan_options options = stacked_options("0=64MiB,cpu=64MiB", BERTH_STACKS_APART);
    planned p;

    options.pins = pins;
    options.pin_count = 1;
    planned_begin(&p, stacked_make(&stacked_small), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_check(&p);
    check_tiers(&p, 0, "cuda:0");
    check_tiers(&p, 1, "cpu");
    check_tiers(&p, 2, "cuda:0");
    planned_end(&p);
}

static void
test_maps_hold_every_expert(void)
{
    const char *const map = fixture_format("%s/map.json", fixture_folder());
    berth_plan_options options = stacked_options(NULL, BERTH_STACKS_APART);
    planned p;

    fixture_text(map, "{\"\": 0, \"model.layers.2.mlp.experts\": \"cpu\"}");
    options.device_map = map;
    planned_begin(&p, stacked_make(&stacked_small), &options);
    CHECK_EQ(p.status, BERTH_OK);
    check_tiers(&p, 1, "cuda:0");
    check_tiers(&p, 2, "cpu");
    planned_end(&p);
}

/* ----------------------------------------------------------------------------- texts */

typedef struct change {
    const char *from;
    const char *to;
    const char *words; /* of the refusal; NULL: it is none */
    bool is_parsed;    /* the check refuses it */
} change;

#define SLICE "\"slice\": {\"of\": \"rows\", \"first\": "

static void
test_texts(void)
{
    static const change changes[] = {
        { "\"stacks_apart\": true", "\"stacks_apart\": true", NULL, true },
        { ", \"stacks_apart\": true", "", "a slice without ranks or stacks", false },
        { "\"stacks_apart\": true", "\"stacks_apart\": false",
          "a slice without ranks or stacks", false },
        { "\"stacks_apart\": true},",
          "\"stacks_apart\": true}, \"parallel\": {\"rank\": 0, \"ranks\": 2},",
          "stacks stay whole for ranks", false },
        { SLICE "3, \"count\": 1}", SLICE "3, \"count\": 2}",
          "a slice that is no expert of a stack", false },
        { SLICE "3, \"count\": 1}", SLICE "3, \"count\": 1, \"parts\": 2}",
          "a slice that is no expert of a stack", false },
        { SLICE "3, \"count\": 1}, \"expert\": true", SLICE "3, \"count\": 1}",
          "a slice that is no expert of a stack", false },
        { "\"of\": \"rows\"", "\"of\": \"columns\"", "a slice that is no expert of a stack",
          false },
        { SLICE "3, \"count\": 1}", SLICE "2, \"count\": 1}",
          "is not the tensor that the plan gives a berth", true },
        { SLICE "3, \"count\": 1}", SLICE "8, \"count\": 1}",
          "is not the tensor that the plan gives a berth", true },
        { SLICE "3, \"count\": 1}, ", "", "is not the tensor that the plan gives a berth",
          true },
    };
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_APART);
    planned p;

    planned_begin(&p, stacked_make(&stacked_small), &options);
    for (uint32_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const change *const c = &changes[i];
        berth_plan *plan = NULL;
        berth_error error;
        berth_status status = stacked_parse(&p, c->from, c->to, &plan, &error);

        CHECK_EQ(status == BERTH_OK, c->is_parsed);
        if (status == BERTH_OK)
            status = berth_plan_check(plan, p.context, p.checkpoint, NULL, NULL, NULL,
                                      &error);
        CHECK_EQ(status == BERTH_OK, c->words == NULL);
        if (c->words != NULL && !CHECK_CONTAINS(error.message, c->words))
            t_note("change %u", i);
        berth_plan_destroy(plan);
    }
    planned_end(&p);
}

/* One stack may be whole where another is taken apart: all berths of it are one. */
static void
test_check_takes_whole_stacks_too(void)
{
    berth_plan_options options = stacked_options("cpu=64MiB", BERTH_STACKS_WHOLE);
    berth_plan *plan = NULL;
    berth_error error;
    planned p;

    planned_begin(&p, stacked_make(&stacked_small), &options);
    CHECK_EQ(stacked_parse(&p, "\"proved\": ", "\"proved\": true, \"stacks_apart\": true, "
                                               "\"was\": ",
                           &plan, &error),
             BERTH_EFORMAT);
    CHECK_EQ(p.summary.is_proved, 1);
    CHECK_EQ(stacked_parse(&p, "\"proved\": true", "\"proved\": true, \"stacks_apart\": true",
                           &plan, &error),
             BERTH_OK);
    CHECK_EQ(berth_plan_check(plan, p.context, p.checkpoint, NULL, NULL, NULL, &error),
             BERTH_OK);
    berth_plan_destroy(plan);
    planned_end(&p);
}

/* --------------------------------------------------------------------------- faults */

typedef struct two_plans {
    const char *folder;
    const char *memory;
} two_plans;

static berth_status
plan_twice(void *user, berth_context *context, berth_error *error)
{
    const two_plans *const wanted = user;
    berth_plan_options options = stacked_options(wanted->memory, BERTH_STACKS_AUTO);
    berth_checkpoint *checkpoint;
    berth_plan_summary summary;
    berth_plan *plan = NULL;
    berth_status status =
        berth_checkpoint_open(context, wanted->folder, NULL, &checkpoint, error);

    if (status != BERTH_OK)
        return status;
    status = berth_plan_create(context, checkpoint, &options, &plan, error);
    CHECK((status == BERTH_OK) == (plan != NULL));
    if (status == BERTH_OK) {
        /* Never the other plan for want of memory. */
        berth_plan_get(plan, &summary);
        CHECK_EQ(summary.stacks, BERTH_STACKS_APART);
    }
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return status;
}

/* Whole stacks that are planned, and that do not fit: what is apart is planned behind them. */
static void
test_every_call_can_fail(void)
{
    two_plans slower = { stacked_make(&stacked_large), "0=70MiB,cpu=inf" };
    two_plans unfit = { stacked_make(&stacked_small), "0=600KiB,cpu=64MiB" };
    fault_counts counts = fault_loop("a faster plan", plan_twice, &slower);

    CHECK_GT(counts.memory, 30);
    counts = fault_loop("a plan that fits", plan_twice, &unfit);
    CHECK_GT(counts.memory, 30);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_each_expert_has_a_berth);
    T_RUN(test_encoded_experts);
    T_RUN(test_what_stays_whole);
    T_RUN(test_far_too_many_experts);
    T_RUN(test_bad_options);
    T_RUN(test_stacks_are_taken_apart_where_that_is_faster);
    T_RUN(test_stacks_that_fit_stay_whole);
    T_RUN(test_stacks_of_a_rank_are_read_as_tokens_choose);
    T_RUN(test_stacks_are_taken_apart_where_that_fits_alone);
    T_RUN(test_nothing_fits);
    T_RUN(test_findings_are_told_once);
    T_RUN(test_maps_that_ask_for_too_much);
    T_RUN(test_reasons);
    T_RUN(test_names);
    T_RUN(test_training);
    T_RUN(test_pins_hold_every_expert);
    T_RUN(test_maps_hold_every_expert);
    T_RUN(test_texts);
    T_RUN(test_check_takes_whole_stacks_too);
    T_RUN(test_every_call_can_fail);
    T_MAIN_END;
}
