/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_api.c - estimates as users of the library see them. */
#include <stdlib.h>
#include <string.h>

#include "loader/berth.h"
#include "placement/estimate.h"
#include "tests/asked.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define GIB (UINT64_C(1) << 30)

/* ------------------------------------------------------------------------ answers */

static void
test_beyond_counts(void)
{
    berth_estimate_part part;
    berth_estimate_claim claim;
    berth_estimate_fit fit;
    berth_estimate_advice advice;
    berth_estimate_length length;
    asked a;

    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    CHECK_EQ(berth_estimate_get_part(a.estimate, a.summary.part_count, &part),
             BERTH_EINVAL);
    CHECK(part.key == NULL);
    CHECK_EQ(berth_estimate_get_claim(a.estimate, a.summary.claim_count, &claim),
             BERTH_EINVAL);
    CHECK(claim.table == NULL);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, a.summary.fit_count, &fit), BERTH_EINVAL);
    CHECK(fit.type == NULL);
    CHECK_EQ(berth_estimate_get_advice(a.estimate, 0, &advice), BERTH_EINVAL);
    CHECK(advice.what == NULL);
    CHECK_EQ(berth_estimate_get_length(a.estimate, 0, &length), BERTH_EINVAL);
    CHECK(length.name == NULL);
    CHECK(berth_estimate_get_note(a.estimate, a.summary.note_count) == NULL);
    asked_end(&a);
    CHECK_STR(berth_optimizer_name(0), "adamw_torch");
    CHECK(berth_optimizer_name(1000) == NULL);
}

/* Lines as they are, and what they add up to. */
static void
test_parts(void)
{
    berth_estimate_part part;
    uint64_t device = 0;
    uint64_t host = 0;
    berth_estimate_options options;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.optimizer = "paged_adamw_8bit";
    train.lora_targets = "q_proj,v_proj";
    train.method = BERTH_TRAIN_LORA;
    train.checkpoint_every = 2;
    train.accumulation = 4;
    options.type = "nf4";
    options.double_quant = 1;
    options.train = &train;
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-2-70b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    for (uint32_t i = 0; i < a.summary.part_count; i++) {
        CHECK_EQ(berth_estimate_get_part(a.estimate, i, &part), BERTH_OK);
        CHECK_GT(part.bytes, 0);
        CHECK(part.reason[0] != '\0' && part.name[0] != '\0' && part.basis[0] != '\0');
        device += part.place == BERTH_PLACE_DEVICE ? part.bytes : 0;
        host += part.place == BERTH_PLACE_HOST ? part.bytes : 0;
    }
    CHECK_EQ(device, a.summary.device_bytes);
    CHECK_EQ(host, a.summary.host_bytes);
    CHECK_GT(host, asked_part(&a, "paged_states"));
    CHECK_EQ(berth_estimate_get_part(a.estimate, 0, &part), BERTH_OK);
    CHECK_STR(part.key, "linear_weights");
    CHECK_STR(part.dtype, "nf4+double-quant");
    CHECK_STR(part.basis, "exact");
    CHECK_EQ(part.place, BERTH_PLACE_DEVICE);
    CHECK_EQ(a.summary.trained, 80 * UINT64_C(16) * (8192 + 8192 + 8192 + 1024));
    CHECK_EQ(a.summary.fit_count, 0); /* types are for inference */
    CHECK_EQ(asked_part(&a, "gradients"), 2 * a.summary.trained);
    asked_end(&a);
}

/* One row a type, one column a context; equal rows once; the asked type is there. */
static void
test_table(void)
{
    static const uint64_t contexts[] = { 1024, 8192 };
    static const char *const types[] = { "native", "int8", "nf4", "nf4+double-quant",
                                         "fp4" };
    berth_estimate_options options;
    berth_estimate_fit fit;
    uint64_t shorter;
    asked a;

    berth_estimate_options_init(&options);
    options.contexts = contexts;
    options.context_count = 2;
    options.context = 8192;
    options.type = "fp4";
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context_count, 2);
    T_REQUIRE(CHECK_EQ(a.summary.fit_count, 5));
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_EQ(berth_estimate_get_fit(a.estimate, i, &fit), BERTH_OK);
        CHECK_STR(fit.type, types[i]);
        CHECK_EQ(fit.fits, 0);
        CHECK_EQ(fit.context, 0);
        CHECK_EQ(fit.devices, 0);
        CHECK_LT(fit.bytes[0], fit.bytes[1]);
    }
    CHECK_EQ(fit.bytes[1], a.summary.device_bytes);
    /* One that is shorter than the prompt is computed at once. */
    options.context = 1024;
    options.prompt = 2048;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    shorter = a.summary.device_bytes;
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 4, &fit), BERTH_OK);
    CHECK_EQ(fit.bytes[0], a.summary.device_bytes);
    options.context = 8192;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 4, &fit), BERTH_OK);
    CHECK_EQ(fit.bytes[1], a.summary.device_bytes);
    options.contexts = NULL;
    options.context_count = 0;
    options.context = 1024;
    options.prompt = 0;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(shorter, a.summary.device_bytes);
    asked_end(&a);
    /* f16 files are not the same in bf16, byte by byte they are. */
    T_REQUIRE(asked_open(&a, asked_config_folder("gpt2"), NULL) == BERTH_OK);
    options.type = NULL;
    options.context = 512;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context_count, 1);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 0, &fit), BERTH_OK);
    CHECK_EQ(fit.bytes[0], a.summary.device_bytes);
    asked_end(&a);
}

static void
test_budgets(void)
{
    static const uint64_t two[] = { 24 * GIB, 24 * GIB };
    berth_estimate_options options;
    berth_estimate_advice advice;
    berth_estimate_fit fit;
    asked a;

    berth_estimate_options_init(&options);
    options.budgets = two;
    options.budget_count = 1;
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-70b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.has_budget, 1);
    CHECK_EQ(a.summary.usable_bytes, 24 * GIB - (24 * GIB + 9) / 10);
    CHECK_EQ(a.summary.fits, 0);
    CHECK_EQ(a.summary.can_fit, 1);
    CHECK_EQ(a.summary.best_fit, -1);
    T_REQUIRE(a.summary.advice_count > 0);
    CHECK_EQ(berth_estimate_get_advice(a.estimate, a.summary.advice_count - 1, &advice),
             BERTH_OK);
    CHECK_EQ(advice.fits, 1);
    CHECK_EQ(advice.bytes, a.summary.advised_bytes);
    CHECK_GT(advice.saved, 0);
    CHECK(advice.cost[0] != '\0');
    options.budget_count = 2;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.best_fit, 3);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 3, &fit), BERTH_OK);
    CHECK_STR(fit.type, "nf4+double-quant");
    CHECK_EQ(fit.fits, 1);
    CHECK_EQ(fit.devices, 2);
    CHECK_GT(fit.context, 4096);
    options.type = "nf4";
    options.double_quant = 1;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 1);
    CHECK_EQ(a.summary.can_fit, 1);
    CHECK_EQ(a.summary.advice_count, 0);
    CHECK_EQ(a.summary.advised_bytes, a.summary.device_bytes);
    /* Nothing helps a device without room for the runtime. */
    options.budget_count = 1;
    options.budgets = (const uint64_t[]){ GIB / 4 };
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.can_fit, 0);
    asked_end(&a);
}

static void
test_lengths(void)
{
    static const char text[] = "100\n200\n300\n400\n";
    static const char *const names[] = { "p50", "p95", "p99", "max" };
    static const uint64_t tokens[] = { 200, 400, 400, 400 };
    static const uint64_t two[] = { 12 * GIB, 12 * GIB };
    berth_estimate_options options;
    berth_estimate_length length;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    options.tokens = text;
    options.tokens_bytes = sizeof text - 1;
    options.batch = 2;
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context, 400);
    CHECK_EQ(a.summary.sequences, 4);
    CHECK_EQ(a.summary.tokens, 1000);
    CHECK_EQ(a.summary.shortest, 100);
    CHECK_EQ(a.summary.longest, 400);
    CHECK_EQ(a.summary.mean, 250);
    CHECK_EQ(a.summary.padded, 1200);
    CHECK_EQ(a.summary.sorted, 1200);
    CHECK_EQ(a.summary.packs, 3);
    CHECK_EQ(a.summary.length_count, 4);
    options.budgets = (const uint64_t[]){ 24 * GIB };
    options.budget_count = 1;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(berth_estimate_get_length(a.estimate, i, &length), BERTH_OK);
        CHECK_STR(length.name, names[i]);
        CHECK_EQ(length.tokens, tokens[i]);
        CHECK_GT(length.batch, 1);
    }
    /* The batch that is found fits, and one more does not. */
    options.context = 400;
    options.batch = length.batch;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 1);
    options.batch++;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 0);
    /* So it is with several devices, each with layers, activations and a runtime of its own. */
    options.budgets = two;
    options.budget_count = 2;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(berth_estimate_get_length(a.estimate, 3, &length), BERTH_OK);
    CHECK_GT(length.batch, 1);
    options.batch = length.batch;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 1);
    options.batch++;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 0);
    options.budgets = (const uint64_t[]){ 24 * GIB };
    options.budget_count = 1;
    /* Training: packed batches have what the list has on the average. */
    berth_train_options_init(&train);
    train.is_packed = 1;
    options.train = &train;
    options.batch = 2;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "batch_buffers"), 500 * 24);
    train.is_packed = 0;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "batch_buffers"), 800 * 24);
    asked_end(&a);
}

/* What is published for a model is told beside ours. */
static void
test_claims(void)
{
    berth_estimate_options options;
    berth_estimate_claim claim;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.optimizer = "adamw_32bit";
    options.train = &train;
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-2-70b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    T_REQUIRE(a.summary.claim_count > 0);
    CHECK_EQ(berth_estimate_get_claim(a.estimate, 0, &claim), BERTH_OK);
    CHECK_STR(claim.table, "AdamW of a 70B model");
    CHECK_EQ(claim.claimed, 560000000000);
    CHECK_EQ(claim.bytes, 8 * UINT64_C(68976648192));
    CHECK_EQ(a.summary.trained, 68976648192);
    CHECK_CONTAINS(claim.reason, "68976648192");
    asked_end(&a);
}

/* ------------------------------------------------------------------------ options */

static void
refuse(asked *a, const berth_estimate_options *options, const char *argument,
       const char *words)
{
    CHECK_EQ(asked_estimate(a, options), BERTH_EINVAL);
    CHECK_EQ(a->error.reason, BERTH_REASON_ARGUMENT);
    if (!CHECK(strstr(a->error.message, argument) != NULL
               || strcmp(a->error.tensor, argument) == 0))
        T_NOTE("%s: %s", argument, a->error.message);
    CHECK_CONTAINS(a->error.message, words);
}

static berth_estimate_options
plain(void)
{
    berth_estimate_options options;

    berth_estimate_options_init(&options);
    return options;
}

static void
test_refused_options(void)
{
    static const uint64_t zero[] = { 0, 0 };
    static const uint64_t some[] = { 24 * GIB, 24 * GIB };
    berth_estimate_options o;
    asked a;

    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
#define REFUSE(argument, words, ...)                                                   \
    do {                                                                               \
        o = plain();                                                                   \
        __VA_ARGS__;                                                                   \
        refuse(&a, &o, argument, words);                                               \
    } while (0)
    REFUSE("type", "is none of native", o.type = "nf5");
    REFUSE("double_quant", "needs type nf4", o.type = "int8", o.double_quant = 1);
    REFUSE("dtype", "is not bf16", o.dtype = BERTH_I8);
    REFUSE("cache_type", "is none of", o.cache_type = "nf4");
    REFUSE("block_size", "is no power", o.block_size = 48);
    REFUSE("prompt", "is longer", o.context = 8, o.prompt = 9);
    REFUSE("fragmentation_percent", "more than 100", o.fragmentation_percent = 101);
    REFUSE("prompt", "is longer", o.context = 8, o.contexts = some, o.context_count = 2,
           o.prompt = 24 * GIB + 1);
    REFUSE("contexts", "is NULL", o.context_count = 1);
    REFUSE("contexts", "of 0 tokens", o.context_count = 1, o.contexts = zero);
    REFUSE("contexts", "more than 64", o.context_count = 65, o.contexts = some);
    REFUSE("budgets", "is NULL", o.budget_count = 1);
    REFUSE("budgets", "more than 1024", o.budget_count = 1025, o.budgets = some);
    REFUSE("budget", "is 0 bytes", o.budget_count = 1, o.budgets = zero);
    REFUSE("reserve_percent", "more than 100", o.budget_count = 1, o.budgets = some,
           o.reserve_percent = 101);
    REFUSE("", "no line has a length", o.tokens = "", o.tokens_bytes = 0);
    REFUSE("", "2^64", o.batch = UINT64_MAX);
#undef REFUSE
    asked_end(&a);
}

static void
test_refused_training(void)
{
    static const uint64_t two[] = { 24 * GIB, 24 * GIB };
    berth_estimate_options o = plain();
    berth_train_options train;
    asked a;

    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
    o.train = &train;
#define REFUSE(argument, words, ...)                                                   \
    do {                                                                               \
        berth_train_options_init(&train);                                              \
        __VA_ARGS__;                                                                   \
        refuse(&a, &o, argument, words);                                               \
    } while (0)
    REFUSE("is_packed", "needs the lengths", train.is_packed = 1);
    REFUSE("optimizer", "is no name", train.optimizer = "adam9");
    REFUSE("method", "is none of full and LoRA", train.method = 2);
    REFUSE("precision", "is none of pure, autocast and master", train.precision = 3);
    REFUSE("x_proj", "no linear layer", train.method = BERTH_TRAIN_LORA,
           train.lora_targets = "x_proj");
    o.type = "nf4";
    REFUSE("type", "trained with adapters", train.method = BERTH_TRAIN_FULL);
    o.budgets = two;
    o.budget_count = 2;
    REFUSE("budgets", "one device", train.method = BERTH_TRAIN_LORA);
#undef REFUSE
    asked_end(&a);
}

/* What is computed in follows the type, what is stored the dtype. */
static void
test_dtypes(void)
{
    berth_estimate_options o = plain();
    asked a;

    T_REQUIRE(asked_open(&a, asked_config_folder("llama-2-7b"), NULL) == BERTH_OK);
    o.type = "f32";
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_weights(&a), 4 * UINT64_C(6738415616));
    CHECK_EQ(asked_part(&a, "kv_cache"), 2 * 4096 * UINT64_C(524288));
    o.type = NULL;
    o.dtype = BERTH_F32;
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_weights(&a), 4 * UINT64_C(6738415616));
    o.cache_type = "int8";
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "kv_cache"), 4096 * UINT64_C(524288) / 2 * 9 / 8);
    o = plain();
    o.type = "fp4";
    o.double_quant = 1;
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "other_weights"), 2 * (UINT64_C(6738415616) - 6476005376));
    o.fragmentation_percent = 0;
    o.runtime_bytes = 0;
    o.workspace_bytes = 0;
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "runtime_context"), 0);
    CHECK_EQ(asked_part(&a, "workspace"), 0);
    CHECK_EQ(asked_part(&a, "fragmentation"), 0);
    o.is_eager = 1;
    o.has_all_logits = 1;
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "logits"), 4096 * UINT64_C(32000) * 4);
    CHECK_EQ(asked_part(&a, "attention_scores"), 32 * UINT64_C(4096) * 4096 * 6);
    asked_end(&a);
    T_REQUIRE(asked_open(&a, asked_config_folder("deepseek-v3"), NULL) == BERTH_OK);
    o = plain();
    o.expands_latents = 1;
    T_REQUIRE(asked_estimate(&a, &o) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "kv_cache"), 4096 * UINT64_C(4997120));
    asked_end(&a);
}

static void
test_arguments(void)
{
    berth_estimate_options options = plain();
    berth_estimate *estimate = (berth_estimate *)&options;
    berth_shape *shape = (berth_shape *)&options;
    berth_error error;
    asked a;

    T_REQUIRE(asked_open(&a, asked_config_folder("gpt2"), NULL) == BERTH_OK);
    CHECK_EQ(berth_shape_open(NULL, "x", NULL, &shape, &error), BERTH_EINVAL);
    CHECK(shape == NULL);
    CHECK_EQ(berth_shape_open(a.context, NULL, NULL, &shape, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_shape_open(a.context, "", NULL, &shape, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "is empty");
    CHECK_EQ(berth_shape_open(a.context, "x", NULL, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_shape_open(a.context, "/nowhere", NULL, &shape, NULL), BERTH_ENOENT);
    CHECK_EQ(berth_estimate_create(NULL, a.shape, NULL, &estimate, &error), BERTH_EINVAL);
    CHECK(estimate == NULL);
    CHECK_EQ(berth_estimate_create(a.context, NULL, NULL, &estimate, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_estimate_create(a.context, a.shape, NULL, NULL, &error), BERTH_EINVAL);
    /* An older, shorter struct: what it lacks is 0. */
    options.struct_size = offsetof(berth_estimate_options, tokens);
    CHECK_EQ(berth_estimate_create(a.context, a.shape, &options, &estimate, NULL),
             BERTH_OK);
    berth_estimate_destroy(estimate);
    options.type = "?";
    options.struct_size = sizeof options;
    CHECK_EQ(berth_estimate_create(a.context, a.shape, &options, &estimate, NULL),
             BERTH_EINVAL);
    berth_estimate_destroy(NULL);
    berth_shape_close(NULL);
    asked_end(&a);
}

/* ------------------------------------------------------------------------- faults */

static berth_status
estimate_once(void *user, berth_context *context, berth_error *error)
{
    static const uint64_t contexts[] = { 64, 128 };
    berth_estimate_options options = plain();
    berth_estimate *estimate = NULL;
    berth_shape *shape = NULL;
    berth_status status = berth_shape_open(context, user, NULL, &shape, error);

    CHECK_EQ(status == BERTH_OK, shape != NULL);
    options.contexts = contexts;
    options.context_count = 2;
    options.budgets = (const uint64_t[]){ GIB };
    options.budget_count = 1;
    options.tokens = "1\n2\n";
    options.tokens_bytes = 4;
    if (status == BERTH_OK)
        status = berth_estimate_create(context, shape, &options, &estimate, error);
    CHECK_EQ(status == BERTH_OK, estimate != NULL);
    berth_estimate_destroy(estimate);
    berth_shape_close(shape);
    return status;
}

static void
test_faults(void)
{
    const char *const folder = asked_config_folder("gpt2");
    fault_counts counts;

    counts = fault_loop("headers", estimate_once,
                        (void *)(uintptr_t)asked_small_folder("", true, "false"));
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 5);
    CHECK_LE(counts.survived, 6);
    fixture_index(fixture_format("%s/model.safetensors.index.json", folder), 1000,
                  "a model-00001-of-00001.safetensors\n");
    counts = fault_loop("config", estimate_once, (void *)(uintptr_t)folder);
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 5);
    /* What the weights' absence hangs on is looked at twice. */
    CHECK_LE(counts.survived, 24);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_beyond_counts);
    T_RUN(test_parts);
    T_RUN(test_table);
    T_RUN(test_budgets);
    T_RUN(test_lengths);
    T_RUN(test_claims);
    T_RUN(test_refused_options);
    T_RUN(test_refused_training);
    T_RUN(test_dtypes);
    T_RUN(test_arguments);
    T_RUN(test_faults);
    T_MAIN_END;
}
