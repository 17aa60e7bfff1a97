/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_train.c - plans for training: sizes that are those of estimates and of the
 * optimizer itself, places of states by brute force, times by hand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/plan_train.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/given.h"
#include "tests/loaded.h"
#include "tests/planned_train.h"
#include "tests/t.h"

#define MIB (UINT64_C(1) << 20)

/* -------------------------------------------------------------- three that agree */

/* Some parts of the estimate, with weights of this type. */
static uint64_t
estimated_as(const planned *p, const char *folder, const berth_train_options *train,
             const char *const *keys, const char *type, int32_t double_quant)
{
    berth_estimate_options options;
    berth_estimate *estimate = NULL;
    berth_shape *shape = NULL;
    berth_estimate_part part;
    uint64_t bytes = 0;

    CHECK_EQ(berth_shape_open(p->context, folder, NULL, &shape, NULL), BERTH_OK);
    berth_estimate_options_init(&options);
    options.context = 64;
    options.train = train;
    options.type = type;
    options.double_quant = double_quant;
    CHECK_EQ(berth_estimate_create(p->context, shape, &options, &estimate, NULL), BERTH_OK);
    for (uint32_t i = 0; berth_estimate_get_part(estimate, i, &part) == BERTH_OK; i++)
        for (size_t k = 0; keys[k] != NULL; k++)
            if (strcmp(part.key, keys[k]) == 0)
                bytes += part.bytes;
    berth_estimate_destroy(estimate);
    berth_shape_close(shape);
    return bytes;
}

static uint64_t
estimated(const planned *p, const char *folder, const berth_train_options *train,
          const char *const *keys)
{
    return estimated_as(p, folder, train, keys, NULL, 0);
}

/* States: where bitsandbytes would have them does not matter here. */
static uint64_t
estimated_states(const planned *p, const char *folder, const berth_train_options *train)
{
    static const char *const keys[] = { "optimizer_states", "paged_states", "master_weights",
                                        NULL };

    return estimated(p, folder, train, keys);
}

static const char *const optimizers[] = {
    "adamw_8bit",       "adamw_32bit", "paged_adamw_8bit", "paged_adamw_32bit",
    "paged_lion_8bit",  "sgd_8bit",    "lion",             "paged_ademamix_8bit",
    "rmsprop_bnb_8bit", "adagrad_8bit"
};

static void
check_agreement(const char *folder, const char *max_memory, const char *devices,
                uint32_t device_count, const berth_train_options *train)
{
    berth_plan_options options = planned_train_options(train, max_memory);
    berth_plan_training training;
    uint64_t states = 0;
    planned p;

    planned_begin(&p, folder, &options);
    if (!CHECK_EQ(p.status, BERTH_OK)) {
        T_NOTE("%s %s: %s", train->optimizer, max_memory, p.error.message);
        planned_end(&p);
        return;
    }
    planned_check(&p);
    planned_check_optimizer(&p, devices, device_count);
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK_STR(training.optimizer, train->optimizer);
    CHECK_EQ(training.rank, train->method == BERTH_TRAIN_LORA ? train->lora_rank : 0);
    CHECK((training.targets[0] != '\0') == (train->method == BERTH_TRAIN_LORA));
    for (uint64_t i = 0; i < training.parameter_count; i++) {
        berth_plan_parameter parameter;

        CHECK_EQ(berth_plan_get_parameter(p.plan, i, &parameter, NULL, 0), BERTH_OK);
        states += parameter.states;
    }
    CHECK_EQ(states, estimated_states(&p, folder, train));
    planned_end(&p);
}

static void
test_agreement(void)
{
    const char *const llama = planned_llama(3, false);
    const char *const tied = planned_llama(2, true);
    const char *const moe = planned_moe(2, 4);

    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (int32_t precision = BERTH_TRAIN_PURE; precision <= BERTH_TRAIN_MASTER;
             precision++) {
            berth_train_options train = planned_train(BERTH_TRAIN_LORA, precision, optimizers[i]);

            check_agreement(llama, "0=4GiB,1=4GiB,cpu=4GiB,disk=inf", "sim;sim", 2, &train);
            train.lora_targets = "q_proj,v_proj,w1";
            if (i % 3 == 0)
                check_agreement(moe, "0=4GiB", "sim", 1, &train);
            train.method = BERTH_TRAIN_FULL;
            train.lora_targets = NULL;
            check_agreement(tied, "0=2GiB,1=2GiB,cpu=4GiB,disk=inf", "sim;sim", 2, &train);
            if (i % 3 == 1)
                check_agreement(moe, "0=4GiB,cpu=1GiB", "sim", 1, &train);
        }
    /* These keep what the parameter is, which is f32 only so. */
    for (int32_t precision = BERTH_TRAIN_AUTOCAST; precision <= BERTH_TRAIN_MASTER;
         precision++) {
        const berth_train_options train =
            planned_train(BERTH_TRAIN_LORA, precision, "adam");

        check_agreement(llama, "0=4GiB,cpu=4GiB", "sim", 1, &train);
    }
}

/* A vector has one column. */
static void
test_vectors(void)
{
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=4GiB");
    berth_plan_parameter parameter;
    uint32_t vectors = 0;
    char name[256];
    planned p;

    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    for (uint64_t i = 0;
         berth_plan_get_parameter(p.plan, i, &parameter, name, sizeof name) == BERTH_OK; i++)
        if (strstr(name, "norm") != NULL) {
            CHECK_EQ(parameter.rows, 1024);
            CHECK_EQ(parameter.columns, 1);
            vectors++;
        }
    CHECK_EQ(vectors, 5);
    planned_end(&p);
}

/* Less and less memory, until there is none: places change, and every byte is told. */
static void
test_budgets(void)
{
    const char *const folder = planned_llama(3, false);
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    uint64_t away = 0;
    uint32_t fits = 0;

    for (uint64_t mib = 1400; mib > 200; mib -= mib > 500 ? 93 : 14) {
        char max_memory[96];
        berth_plan_options options;
        berth_plan_training training;
        planned p;

        (void)snprintf(max_memory, sizeof max_memory, "0=%lluMiB,cpu=%lluMiB,disk=inf",
                       (unsigned long long)mib, (unsigned long long)(mib / 3 + 150));
        options = planned_train_options(&train, max_memory);
        planned_begin(&p, folder, &options);
        if (p.status == BERTH_OK) {
            planned_check(&p);
            planned_check_optimizer(&p, "sim", 1);
            CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
            CHECK(training.link_bytes >= away); /* less memory, more that is brought */
            away = training.link_bytes;
            CHECK_EQ(p.summary.streamed_bytes, 0); /* what is trained stays */
            fits++;
        } else {
            CHECK_EQ(p.status, BERTH_ENOFIT);
        }
        planned_end(&p);
    }
    CHECK(fits > 5 && away > 0);
}

/* --------------------------------------------------------------------- what stays */

/* Places of a plan, against all sets of states that could stay. */
static void
test_places(void)
{
    const char *const folder = planned_llama(1, true);
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    uint32_t mixed = 0;

    train.lora_rank = 512;
    for (uint64_t mib = 100; mib < 240; mib += 3) {
        char max_memory[64];
        berth_plan_options options;
        berth_plan_training_tier tier;
        berth_plan_parameter parameter;
        berth_plan_tier device;
        uint64_t bytes[16];
        uint64_t kept = 0;
        uint32_t away = 0;
        uint32_t count = 0;
        planned p;

        (void)snprintf(max_memory, sizeof max_memory, "0=%lluMiB,cpu=1GiB",
                       (unsigned long long)mib);
        options = planned_train_options(&train, max_memory);
        planned_begin(&p, folder, &options);
        if (p.status == BERTH_OK) {
            for (; berth_plan_get_parameter(p.plan, count, &parameter, NULL, 0) == BERTH_OK;
                 count++) {
                bytes[count] = parameter.states;
                kept += parameter.place == BERTH_STATES_DEVICE ? parameter.states : 0;
                away += parameter.place != BERTH_STATES_DEVICE;
            }
            CHECK_EQ(berth_plan_get_training_tier(p.plan, 0, &tier), BERTH_OK);
            CHECK_EQ(berth_plan_get_tier(p.plan, 0, &device), BERTH_OK);
            if (away > 0)
                CHECK_EQ(kept, planned_best_sum(bytes, count, kept + device.free));
            mixed += away > 0 && away < count;
        }
        planned_end(&p);
    }
    CHECK(mixed > 3);
}

/* A memory that all is at home in, and exactly full: no room is kept for pages that visit
 * it, which would be more than the states. With less, something is brought. */
static void
test_all_at_home(void)
{
    const char *const folder = planned_llama(1, true);
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    uint64_t budget = 1024 * MIB;

    train.lora_rank = 512;
    train.lora_targets = "q_proj";
    for (int turn = 0; turn < 3; turn++) {
        char max_memory[64];
        berth_plan_options options;
        berth_plan_tier tier;
        planned p;

        (void)snprintf(max_memory, sizeof max_memory, "0=%llu,cpu=1GiB",
                       (unsigned long long)budget);
        options = planned_train_options(&train, max_memory);
        planned_begin(&p, folder, &options);
        if (CHECK_EQ(p.status, BERTH_OK)) {
            CHECK_EQ(p.summary.streamed_bytes > 0, turn == 2);
            CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
            budget -= turn == 0 ? tier.free : 1;
        }
        planned_end(&p);
    }
}

/* -------------------------------------------------------------------------- names */

/* Adapters are called after a module, where the tensor's name has one. */
static void
test_names(void)
{
    static const struct {
        uint32_t berth;
        uint8_t part;
        size_t capacity;
        const char *name;
    } cases[] = {
        { 0, BERTHI_TRAINED_WHOLE, 64, ".weight" },
        { 0, BERTHI_TRAINED_LORA_A, 64, ".weight.lora_A.weight" },
        { 1, BERTHI_TRAINED_WHOLE, 64, "a.weight" },
        { 1, BERTHI_TRAINED_LORA_B, 64, "a.lora_B.weight" },
        { 1, BERTHI_TRAINED_LORA_B, 16, "a.lora_B.weight" },
        { 1, BERTHI_TRAINED_LORA_B, 15, "a.lora_B.weigh" },
        { 1, BERTHI_TRAINED_LORA_B, 9, "a.lora_B" },
        { 1, BERTHI_TRAINED_LORA_B, 8, "a.lora_" }, /* the stored name is cut, too */
        { 1, BERTHI_TRAINED_LORA_B, 4, "a.l" },
        { 1, BERTHI_TRAINED_LORA_B, 2, "a" },
        { 1, BERTHI_TRAINED_LORA_B, 1, "" },
        { 3, BERTHI_TRAINED_LORA_A, 9, "a.weight" },
        { 3, BERTHI_TRAINED_LORA_A, 12, "a.weights.l" },
        { 2, BERTHI_TRAINED_LORA_A, 64, "weight.lora_A.weight" },
        { 3, BERTHI_TRAINED_LORA_A, 64, "a.weights.lora_A.weight" },
    };
    berth_plan *plan = NULL;
    given g;

    given_begin(&g, "layer l 0\n.weight 1 d\na.weight 1 d\nweight 1 d\na.weights 1 d\n");
    given_tier(&g, BERTHI_TIER_GPU, GIVEN_NONE, 0, 1, 10);
    CHECK_EQ(berthi_plan_make(given_context, &g.input, &plan, NULL), BERTH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const berthi_trained trained = { .berth = cases[i].berth, .part = cases[i].part };
        char name[64];

        berthi_trained_name(plan, &trained, name, cases[i].capacity);
        CHECK_STR(name, cases[i].name);
    }
    berthi_plan_free(plan);
}

/* -------------------------------------------------------------------------- faults */

typedef struct sizes {
    uint32_t tiers;
    uint64_t parameters;
} sizes;

static berth_status
train_again(void *user, berth_context *context, berth_error *error)
{
    const sizes *const s = user;
    berth_plan plan = { .context = context, .summary = { .tier_count = s->tiers } };
    bool is_there;

    berthi_arena_init(&plan.arena, context, BERTHI_PURPOSE_OBJECT, 4096);
    is_there = berthi_plan_can_train(&plan, s->parameters);
    CHECK((plan.training != NULL) == is_there);
    berthi_arena_fini(&plan.arena);
    return is_there ? BERTH_OK : berthi_fail_memory(error, "training");
}

/* A list that has no memory while the other has some: each in turn is the large one. */
static void
test_no_memory(void)
{
    sizes large[] = { { 1, 1000 }, { 1000, 1 } };

    for (int i = 0; i < 2; i++) {
        const fault_counts counts = fault_loop("training", train_again, &large[i]);

        CHECK_EQ(counts.survived, 0);
        CHECK_GE(counts.memory, 2 + 2);
    }
}

/* -------------------------------------------------------------------------- times */

static void
test_times(void)
{
    const char *const folder = planned_llama(2, true);
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=190MiB,cpu=1GiB");
    berth_plan_training training;
    berth_plan_training_tier tier;
    uint64_t update = 0;
    uint64_t link = 0;
    planned p;

    options.links = "0=1GB/s,0.memory=100GB/s";
    planned_begin(&p, folder, &options);
    if (!CHECK_EQ(p.status, BERTH_OK)) {
        T_NOTE("%s", p.error.message);
        planned_end(&p);
        return;
    }
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK_EQ(berth_plan_get_training_tier(p.plan, 0, &tier), BERTH_OK);
    for (uint64_t i = 0; i < training.parameter_count; i++) {
        berth_plan_parameter parameter;

        CHECK_EQ(berth_plan_get_parameter(p.plan, i, &parameter, NULL, 0), BERTH_OK);
        /* The value is read and written, the gradient read: bf16. */
        update += 2 * parameter.states + 6 * parameter.rows * parameter.columns;
        link += parameter.place != BERTH_STATES_DEVICE ? parameter.states : 0;
    }
    CHECK(link > 0);
    CHECK_EQ(tier.update_bytes, update);
    CHECK_EQ(tier.link_bytes, link);
    CHECK_EQ(training.link_bytes, link);
    CHECK(training.update_seconds == (double)update / 100e9);
    CHECK(training.link_seconds == (double)link / 1e9);
    CHECK(training.seconds == training.link_seconds);
    CHECK_EQ(training.bound, 1);
    CHECK_EQ(training.bound_tier, 0);
    planned_end(&p);
    options = planned_train_options(&train, "0=4GiB,cpu=1GiB");
    options.links = "0=1GB/s,0.memory=100GB/s";
    planned_begin(&p, folder, &options);
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK_EQ(training.link_bytes, 0);
    CHECK(training.seconds == training.update_seconds && training.bound == 0);
    planned_end(&p);
}

/* Sums are of what the plan has now, whatever it had; a rate of a file may be 0. */
static void
test_sums_anew(void)
{
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=190MiB,cpu=1GiB");
    berth_plan_training training;
    uint64_t update;
    planned p;

    planned_begin(&p, planned_llama(2, true), &options);
    if (!CHECK_EQ(p.status, BERTH_OK)) {
        planned_end(&p);
        return;
    }
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK(training.states[BERTH_STATES_HOST] > 0 && training.link_seconds > 0);
    for (uint64_t i = 0; i < training.parameter_count; i++)
        p.plan->training->trained[i].place = BERTH_STATES_DEVICE;
    berthi_plan_sum(p.plan);
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK_EQ(training.states[BERTH_STATES_HOST], 0);
    CHECK_EQ(training.link_bytes, 0);
    CHECK(training.link_seconds == 0 && training.seconds == training.update_seconds);
    CHECK_EQ(training.bound, 0);
    update = p.plan->training->tiers[0].update_bytes;
    p.plan->tiers[0].memory_rate *= 2;
    berthi_plan_sum(p.plan);
    CHECK_EQ(p.plan->training->tiers[0].update_bytes, update);
    CHECK(p.plan->training->about.update_seconds == training.update_seconds / 2);
    CHECK(p.plan->training->about.seconds == training.seconds / 2);
    p.plan->tiers[0].memory_rate = 0;
    berthi_plan_sum(p.plan);
    CHECK(p.plan->training->about.update_seconds == (double)update);
    planned_end(&p);
}

/* ---------------------------------------------------------------------------- use */

static uint64_t
rounded(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* What autocast has cast stays until the pass ends. */
static void
test_casts(void)
{
    static const char *const kept[] = { "activations", "cast_cache", NULL };
    static const char *const casts[] = { "cast_cache", NULL };
    const char *const folder = planned_llama(2, false);

    for (int32_t method = BERTH_TRAIN_FULL; method <= BERTH_TRAIN_LORA; method++)
        for (int32_t precision = BERTH_TRAIN_PURE; precision <= BERTH_TRAIN_MASTER;
             precision++) {
            const berth_train_options train =
                planned_train(method, precision, "paged_adamw_8bit");
            berth_plan_options options = planned_train_options(&train, "0=4GiB,cpu=1GiB");
            berth_plan_tier tier;
            planned p;

            planned_begin(&p, folder, &options);
            CHECK_EQ(p.status, BERTH_OK);
            CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
            CHECK_EQ(tier.cache, estimated(&p, folder, &train, kept));
            CHECK((estimated(&p, folder, &train, casts) > 0)
                  == (precision == BERTH_TRAIN_AUTOCAST));
            planned_end(&p);
        }
}

/* Of a model that is computed in f32 nothing is cast. */
static void
test_no_casts(void)
{
    const char *const folder = planned_llama(2, false);
    uint64_t caches[2];

    for (int i = 0; i < 2; i++) {
        const berth_train_options train =
            planned_train(BERTH_TRAIN_FULL, i == 0 ? BERTH_TRAIN_PURE : BERTH_TRAIN_AUTOCAST,
                          "paged_adamw_8bit");
        berth_plan_options options = planned_train_options(&train, "0=8GiB,cpu=1GiB");
        berth_plan_tier tier;
        planned p;

        options.dtype = BERTH_F32;
        planned_begin(&p, folder, &options);
        CHECK_EQ(p.status, BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
        caches[i] = tier.cache;
        planned_end(&p);
    }
    CHECK_EQ(caches[0], caches[1]);
}

/* What a runtime will take of the reserve. */
static void
test_reserve(void)
{
    static const char *const runtime[] = { "runtime_context", "workspace", "fragmentation",
                                           NULL };
    const char *const folder = planned_llama(2, false);
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=32GiB,cpu=1GiB");
    berth_plan_tier tier;
    planned p;

    options.reserve_share = 0;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
    CHECK_EQ(tier.reserve_needed, estimated(&p, folder, &train, runtime));
    planned_end(&p);
}

/* Of a quantized base a weight at a time is decoded, and some of what comes and goes is
 * lost. */
static void
test_decoded(void)
{
    static const char *const runtime[] = { "runtime_context", "workspace", "fragmentation",
                                           NULL };
    static const char *const other[] = { "recomputed", "final_norm", "head_and_loss",
                                         "dequantized_weight", "batch_buffers", NULL };
    static const char *const decoded[] = { "dequantized_weight", NULL };
    static const struct {
        const char *type;
        int32_t encoding;
        int32_t double_quant;
    } cases[] = {
        { "native", BERTH_ENCODING_NATIVE, 0 }, { "int8", BERTH_ENCODING_INT8, 0 },
        { "nf4", BERTH_ENCODING_NF4, 0 },       { "nf4", BERTH_ENCODING_NF4, 1 },
        { "fp4", BERTH_ENCODING_FP4, 0 },       { "fp4", BERTH_ENCODING_FP4, 1 },
    };
    const char *const folder = planned_llama(2, false);
    const berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_8bit");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const type = cases[i].type;
        const int32_t twice = cases[i].double_quant;
        berth_plan_options options = planned_train_options(&train, "0=32GiB,cpu=1GiB");
        berth_plan_tier tier;
        planned p;

        options.reserve_share = 0;
        options.type = cases[i].encoding;
        options.double_quant = twice;
        planned_begin(&p, folder, &options);
        CHECK_EQ(p.status, BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
        CHECK_EQ(tier.reserve_needed, estimated_as(&p, folder, &train, runtime, type, twice));
        CHECK_EQ(tier.activations,
                 rounded(estimated_as(&p, folder, &train, other, type, twice)));
        CHECK((estimated_as(&p, folder, &train, decoded, type, twice) > 0) == (i > 0));
        planned_end(&p);
    }
}

/* What layers keep for their backward pass, and what else an estimate has. */
static void
test_kept(void)
{
    static const char *const kept[] = { "activations", "checkpoints", "cast_cache", NULL };
    static const char *const other[] = { "recomputed", "final_norm", "head_and_loss",
                                         "dequantized_weight", "batch_buffers", NULL };
    const char *const folder = planned_llama(5, false);
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_8bit");

    for (uint64_t every = 0; every < 4; every++) {
        berth_plan_options options = planned_train_options(&train, "0=4GiB,cpu=1GiB");
        berth_plan_layer layer;
        berth_plan_tier tier;
        uint64_t bytes = 0;
        planned p;

        train.checkpoint_every = every;
        planned_begin(&p, folder, &options);
        CHECK_EQ(p.status, BERTH_OK);
        CHECK_EQ(berth_plan_get_tier(p.plan, 0, &tier), BERTH_OK);
        CHECK_EQ(tier.cache, estimated(&p, folder, &train, kept));
        CHECK_EQ(tier.activations, rounded(estimated(&p, folder, &train, other)));
        for (uint32_t l = 0; berth_plan_get_layer(p.plan, l, &layer) == BERTH_OK; l++) {
            bytes += layer.cache_bytes;
            CHECK(layer.cache_bytes > 0 || strstr(layer.name, ".layers.") == NULL
                  || every > 1);
        }
        CHECK_EQ(bytes, tier.cache);
        CHECK_EQ(berth_plan_get_layer(p.plan, planned_layer(&p, "model.layers.0"), &layer),
                 BERTH_OK);
        CHECK(layer.cache_bytes > 0);
        planned_end(&p);
    }
}

/* A base that is streamed: with more memory it fits as well, pages of states included. */
static void
check_streamed_base(const char *folder, const char *targets)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_32bit");
    uint32_t streamed = 0;
    bool has_fitted = false;

    train.lora_rank = 512;
    train.lora_targets = targets;
    for (uint64_t mib = 60; mib < 420; mib += 6) {
        char max_memory[64];
        berth_plan_options options;
        planned p;

        (void)snprintf(max_memory, sizeof max_memory, "0=%lluMiB,cpu=1GiB",
                       (unsigned long long)mib);
        options = planned_train_options(&train, max_memory);
        planned_begin(&p, folder, &options);
        if (!CHECK(p.status == BERTH_OK || !has_fitted))
            T_NOTE("%s: %s", max_memory, p.error.message);
        if (p.status == BERTH_OK) {
            has_fitted = true;
            streamed += p.summary.streamed_bytes > 0;
            planned_check(&p);
            planned_check_optimizer(&p, "sim", 1);
        }
        planned_end(&p);
    }
    CHECK(streamed > 5);
}

static void
test_streamed_base(void)
{
    check_streamed_base(planned_llama(3, false), NULL);
}

/* Slots of experts leave room for what training needs. */
static void
test_streamed_experts(void)
{
    check_streamed_base(planned_moe(4, 8), "q_proj,k_proj,v_proj,o_proj");
}

/* ---------------------------------------------------------------------- adapters */

/* Shapes of the first two parameters, and whether the plan is taken with A that wide. */
static void
check_adapters(const char *folder, const char *target, uint64_t inputs, uint64_t outputs)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "adamw_32bit");
    berth_plan_options options = planned_train_options(&train, "0=64MiB,cpu=1GiB");
    berth_plan_parameter parameter;
    planned p;

    train.lora_targets = target;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(berth_plan_get_parameter(p.plan, 0, &parameter, NULL, 0), BERTH_OK);
    CHECK_EQ(parameter.rows, 8);
    CHECK_EQ(parameter.columns, inputs);
    CHECK_EQ(berth_plan_get_parameter(p.plan, 1, &parameter, NULL, 0), BERTH_OK);
    CHECK_EQ(parameter.rows, outputs);
    CHECK_EQ(parameter.columns, 8);
    planned_check(&p);
    /* Each adapter has one of the two sides, not either. */
    p.plan->training->trained[0].columns = outputs;
    CHECK_EQ(berth_plan_check(p.plan, p.context, p.checkpoint, NULL, NULL, NULL, &p.error),
             BERTH_EINTEGRITY);
    CHECK_CONTAINS(p.error.message, "has a parameter of another shape");
    p.plan->training->trained[0].columns = inputs;
    p.plan->training->trained[1].rows = inputs;
    CHECK_EQ(berth_plan_check(p.plan, p.context, p.checkpoint, NULL, NULL, NULL, &p.error),
             BERTH_EINTEGRITY);
    planned_end(&p);
}

/* A is as wide as the inputs; a plain Conv1D has them first, a quantized one last. */
static void
test_sides_of_adapters(void)
{
    berth_plan_options convert = loaded_options(NULL);
    const char *const gpt2 = loaded_gpt2("BF16", 64, 1);

    check_adapters(loaded_llama(1, "BF16", 1), "down_proj", 704, 256);
    check_adapters(gpt2, "c_attn", 64, 192);
    convert.type = BERTH_ENCODING_NF4;
    check_adapters(loaded_quantized(gpt2, &convert), "c_attn", 64, 192);
}

/* Whose linear layers are of a class made from one: no quantizer of this era takes them. */
static const char *
falcon(void)
{
    static const struct {
        const char *name;
        uint64_t shape[2];
    } weights[] = {
        { "word_embeddings.weight", { 512, 128 } },
        { "h.0.self_attention.query_key_value.weight", { 160, 128 } },
        { "h.0.self_attention.dense.weight", { 128, 128 } },
        { "h.0.mlp.dense_h_to_4h.weight", { 512, 128 } },
        { "h.0.mlp.dense_4h_to_h.weight", { 128, 512 } },
        { "h.0.input_layernorm.weight", { 128 } },
        { "h.0.input_layernorm.bias", { 128 } },
        { "ln_f.weight", { 128 } },
        { "ln_f.bias", { 128 } },
    };
    const char *const folder = fixture_folder();
    fixture_builder *const builder = fixture_begin();

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        fixture_add_sparse(builder, fixture_format("transformer.%s", weights[i].name), "BF16",
                           weights[i].shape[1] > 0 ? 2 : 1, weights[i].shape);
    fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder),
                 "{\"architectures\": [\"FalconForCausalLM\"], \"model_type\": \"falcon\", "
                 "\"torch_dtype\": \"bfloat16\", \"vocab_size\": 512, \"hidden_size\": 128, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
                 "\"multi_query\": true, \"parallel_attn\": true, \"bias\": false}");
    return folder;
}

/* Adapters are for these as well: as many as the estimate has. */
static void
test_adapters_of_derived_layers(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "adamw_32bit");
    berth_plan_options options = planned_train_options(&train, "0=64MiB,cpu=1GiB");
    const char *const folder = falcon();
    berth_plan_training training;
    planned p;

    check_adapters(folder, "dense_h_to_4h", 128, 512);
    train.lora_targets = NULL;
    planned_begin(&p, folder, &options);
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK_EQ(training.parameter_count, 8);
    CHECK_EQ(training.elements, 8 * (160 + 128 + 128 + 128 + 512 + 128 + 128 + 512));
    planned_end(&p);
    check_agreement(folder, "0=64MiB,cpu=1GiB", "sim:64MiB", 1, &train);
}

/* Its struct_size stays: a caller may go on with it. */
static void
check_no_group(const planned *p, int32_t place)
{
    berth_optimizer_group group;

    memset(&group, 0xAB, sizeof group);
    CHECK_EQ(berth_plan_get_group(p->plan, place, &group), BERTH_EINVAL);
    CHECK_EQ(group.struct_size, sizeof group);
    group.struct_size = 0;
    CHECK(planned_is_zero(&group, sizeof group));
}

/* QLoRA: a frozen base in 4 bits, adapters and states beside it. */
static void
test_qlora(void)
{
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_AUTOCAST, "paged_adamw_8bit");
    berth_plan_options options = planned_train_options(&train, "0=1GiB,cpu=1GiB");
    berth_plan_training training;
    berth_plan_training_tier tier;
    berth_plan_parameter parameter;
    char name[256];
    planned p;

    train.lora_targets = "q_proj,v_proj";
    options.type = BERTH_ENCODING_NF4;
    planned_begin(&p, planned_llama(2, false), &options);
    CHECK_EQ(p.status, BERTH_OK);
    planned_check(&p);
    CHECK_EQ(berth_plan_get_training(p.plan, &training), BERTH_OK);
    CHECK_EQ(training.parameter_count, 2 * 2 * 2);
    CHECK_EQ(training.elements, 2 * 2 * 2 * 8 * 1024);
    CHECK_EQ(training.rank, 8);
    CHECK_STR(training.targets, "q_proj,v_proj");
    CHECK_EQ(berth_plan_get_training_tier(p.plan, 0, &tier), BERTH_OK);
    CHECK_EQ(tier.adapters, 4 * training.elements);
    CHECK_EQ(tier.gradients, 4 * training.elements);
    CHECK_EQ(berth_plan_get_parameter(p.plan, 1, &parameter, name, sizeof name), BERTH_OK);
    CHECK_STR(name, "model.layers.0.self_attn.q_proj.lora_B.weight");
    CHECK_EQ(parameter.rows, 1024);
    CHECK_EQ(parameter.columns, 8);
    CHECK_EQ(parameter.dtype, BERTH_F32);
    PLANNED_REFUSES(berth_plan_get_parameter(p.plan, 8, &parameter, NULL, 0), parameter);
    PLANNED_REFUSES(berth_plan_get_training_tier(p.plan, 2, &tier), tier);
    check_no_group(&p, -1);
    check_no_group(&p, BERTH_STATES_PLACE_COUNT);
    planned_end(&p);
}

/* The same input gives the same plan; a plan for inference says nothing of training. */
static void
test_same(void)
{
    const char *const folder = planned_llama(2, false);
    const berth_train_options train =
        planned_train(BERTH_TRAIN_FULL, BERTH_TRAIN_MASTER, "paged_lion_8bit");
    berth_plan_options options =
        planned_train_options(&train, "0=420MiB,1=200MiB,cpu=1GiB,disk=inf");
    berth_plan_training training;
    berth_plan_training_tier tier;
    berth_plan_parameter parameter;
    char *texts[2];
    planned p;

    for (int i = 0; i < 2; i++) {
        planned_begin(&p, folder, &options);
        CHECK_EQ(p.status, BERTH_OK);
        texts[i] = p.plan != NULL ? planned_text(p.plan, NULL) : NULL;
        planned_end(&p);
    }
    if (texts[0] != NULL && texts[1] != NULL)
        CHECK_STR(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    options.train = NULL;
    planned_begin(&p, folder, &options);
    PLANNED_REFUSES(berth_plan_get_training(p.plan, &training), training);
    PLANNED_REFUSES(berth_plan_get_training_tier(p.plan, 0, &tier), tier);
    PLANNED_REFUSES(berth_plan_get_parameter(p.plan, 0, &parameter, NULL, 0), parameter);
    check_no_group(&p, 0);
    planned_end(&p);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_agreement);
    T_RUN(test_vectors);
    T_RUN(test_budgets);
    T_RUN(test_places);
    T_RUN(test_all_at_home);
    given_start();
    T_RUN(test_names);
    given_end();
    T_RUN(test_no_memory);
    T_RUN(test_times);
    T_RUN(test_sums_anew);
    T_RUN(test_casts);
    T_RUN(test_no_casts);
    T_RUN(test_reserve);
    T_RUN(test_decoded);
    T_RUN(test_kept);
    T_RUN(test_streamed_base);
    T_RUN(test_streamed_experts);
    T_RUN(test_sides_of_adapters);
    T_RUN(test_adapters_of_derived_layers);
    T_RUN(test_qlora);
    T_RUN(test_same);
    T_MAIN_END;
}
