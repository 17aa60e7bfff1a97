/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_open.c - shapes from a configuration, an index or a hub alone. */
#include <string.h>

#include "loader/berth.h"
#include "placement/estimate.h"
#include "tests/asked.h"
#include "tests/fixture.h"
#include "tests/models.h"
#include "tests/t.h"

/* ------------------------------------------------------------------------ opening */

static void
test_config_alone(void)
{
    asked a;

    T_REQUIRE(asked_open(&a, asked_config_folder("llama-2-7b"), NULL) == BERTH_OK);
    CHECK_STR(a.model.model_type, "llama");
    CHECK_STR(a.model.family, "llama");
    CHECK_EQ(a.model.has_headers, 0);
    CHECK_EQ(a.model.dtype, BERTH_F16);
    CHECK_EQ(a.model.parameters, 6738415616);
    CHECK_EQ(a.model.layers, 32);
    CHECK_EQ(a.model.encoder_layers, 0);
    CHECK_EQ(a.model.hidden, 4096);
    CHECK_EQ(a.model.vocabulary, 32000);
    CHECK_EQ(a.model.positions, 4096);
    CHECK_EQ(a.model.experts, 0);
    CHECK_EQ(a.model.tensor_bytes, 0);
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    CHECK_EQ(a.summary.context, 4096);
    CHECK_EQ(a.summary.batch, 1);
    CHECK_EQ(a.summary.has_budget, 0);
    CHECK_EQ(a.summary.best_fit, -1);
    CHECK_EQ(asked_weights(&a), 2 * UINT64_C(6738415616));
    CHECK_EQ(asked_part(&a, "kv_cache"), 4096 * UINT64_C(524288));
    asked_end(&a);
}

/* A config.json by its own name, here or elsewhere. */
static void
test_config_path(void)
{
    const char *const folder = asked_config_folder("deepseek-v3");
    char weights[8 + 8827];
    asked a;

    T_REQUIRE(asked_open(&a, fixture_format("%s/config.json", folder), NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, 671026419200);
    CHECK_EQ(a.model.experts, 256);
    CHECK_EQ(a.model.experts_used, 8);
    CHECK_STR(a.model.path, fixture_format("%s/config.json", folder));
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "kv_cache"), 4096 * UINT64_C(70272));
    asked_end(&a);
    /* Called otherwise; what lies beside it is of no interest. */
    fixture_text(fixture_format("%s/config.json", folder), "{");
    fixture_copy(asked_config("gpt2"), fixture_format("%s/other.json", folder));
    T_REQUIRE(asked_open(&a, fixture_format("%s/other.json", folder), NULL) == BERTH_OK);
    CHECK_STR(a.model.path, fixture_format("%s/other.json", folder));
    CHECK_EQ(a.model.parameters, 124439808);
    asked_end(&a);
    CHECK_EQ(asked_open(&a, fixture_format("%s/x.index.json", folder), NULL),
             BERTH_ENOENT);
    asked_end(&a);
    /* By what is in it, unless it has the name of weights. */
    fixture_copy(asked_config("gpt2"), fixture_format("%s/cfg", folder));
    T_REQUIRE(asked_open(&a, fixture_format("%s/cfg", folder), NULL) == BERTH_OK);
    CHECK_STR(a.model.path, fixture_format("%s/cfg", folder));
    CHECK_EQ(a.model.parameters, 124439808);
    asked_end(&a);
    fixture_copy(asked_config("gpt2"), fixture_format("%s/cfg.safetensors", folder));
    CHECK_EQ(asked_open(&a, fixture_format("%s/cfg.safetensors", folder), NULL),
             BERTH_EFORMAT);
    CHECK_EQ(a.error.reason, BERTH_REASON_JSON_BODY);
    asked_end(&a);
    /* Weights with a header of 8827 bytes: its length begins as an object does. */
    memset(weights, ' ', sizeof weights);
    memcpy(weights, "{\"\0\0\0\0\0\0{}", 10);
    fixture_write(fixture_format("%s/weights", folder), weights, sizeof weights);
    CHECK_EQ(asked_open(&a, fixture_format("%s/weights", folder), NULL), BERTH_EFORMAT);
    CHECK_STR(a.error.file, fixture_format("%s/config.json", folder));
    asked_end(&a);
    fixture_write(fixture_format("%s/empty", folder), "", 0);
    CHECK_EQ(asked_open(&a, fixture_format("%s/empty", folder), NULL), BERTH_EFORMAT);
    asked_end(&a);
}

/* config.json says nothing of a variant that is not there. */
static void
test_variant(void)
{
    const char *const folder = asked_config_folder("gpt2");
    berth_open_options options;
    asked a;

    berth_open_options_init(&options);
    options.variant = "fp16";
    CHECK_EQ(asked_open(&a, folder, &options), BERTH_ENOENT);
    asked_end(&a);
    fixture_index(fixture_format("%s/model.safetensors.index.fp16.json", folder), 1,
                  "lm_head.weight model.fp16-00001-of-00001.safetensors\n");
    CHECK_EQ(asked_open(&a, folder, &options), BERTH_OK);
    CHECK_EQ(a.model.has_headers, 0);
    asked_end(&a);
}

/* Budgets of people have units. */
static void
test_budgets_without_units(void)
{
    static const uint64_t budgets[] = { UINT64_C(24) << 30, 24, 1024 };
    berth_estimate_options options;
    asked a;

    berth_estimate_options_init(&options);
    options.budgets = budgets;
    options.budget_count = 3;
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    T_REQUIRE(a.summary.note_count == 1);
    CHECK_STR(berth_estimate_get_note(a.estimate, 0),
              "a device has 24 B: a number without a unit is bytes");
    options.budget_count = 1;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.note_count, 0);
    asked_end(&a);
}

/* The answer has a note on experts. */
static bool
tells_of_experts(const asked *a)
{
    for (uint32_t i = 0; i < a->summary.note_count; i++)
        if (strstr(berth_estimate_get_note(a->estimate, i), "quantized experts are counted"))
            return true;
    return false;
}

/* Whatever was asked for, the table has types of weights that are quantized. */
static void
test_quantized_experts(void)
{
    berth_estimate_options options;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    T_REQUIRE(asked_open(&a, asked_config_folder("deepseek-v3"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK(tells_of_experts(&a));
    options.type = "nf4";
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK(tells_of_experts(&a));
    options.keeps_experts = 1;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK(!tells_of_experts(&a));
    /* What can be advised of LoRA is QLoRA, of a full training nothing that is quantized. */
    berth_estimate_options_init(&options);
    options.train = &train;
    train.method = BERTH_TRAIN_LORA;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK(tells_of_experts(&a));
    train.method = BERTH_TRAIN_FULL;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK(!tells_of_experts(&a));
    asked_end(&a);
    T_REQUIRE(asked_open(&a, asked_config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    CHECK(!tells_of_experts(&a));
    asked_end(&a);
}

static void
test_index_alone(void)
{
    const char *const folder = asked_config_folder("llama-3-8b");
    asked a;

    fixture_index(fixture_format("%s/model.safetensors.index.json", folder), 16060522496,
                  "lm_head.weight model-00001-of-00001.safetensors\n");
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.has_headers, 0);
    CHECK_EQ(a.model.tensor_bytes, 16060522496);
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    T_REQUIRE(a.summary.note_count == 2);
    CHECK_STR(berth_estimate_get_note(a.estimate, 0),
              "not all weights are there: model-00001-of-00001.safetensors: the index names "
              "this shard, but it is not there");
    CHECK_STR(berth_estimate_get_note(a.estimate, 1),
              "weights are counted from config.json: 16060522496 B as they are stored; the "
              "index promises 16060522496 B");
    CHECK(berth_estimate_get_note(a.estimate, 2) == NULL);
    asked_end(&a);
    fixture_text(fixture_format("%s/model.safetensors.index.json", folder), "{");
    CHECK_EQ(asked_open(&a, folder, NULL), BERTH_EFORMAT);
    CHECK_EQ(a.error.reason, BERTH_REASON_INDEX_JSON);
    asked_end(&a);
}

static void
test_hub(void)
{
    const char *const cache = fixture_folder();
    berth_open_options options;
    asked a;

    fixture_hub(cache, "org/name", FIXTURE_COMMIT, asked_config_folder("gpt2"));
    fixture_hub_ref(cache, "org/name", "main", FIXTURE_COMMIT);
    berth_open_options_init(&options);
    options.hub_cache = cache;
    T_REQUIRE(asked_open(&a, "org/name", &options) == BERTH_OK);
    CHECK_EQ(a.model.parameters, 124439808);
    CHECK_CONTAINS(a.model.path, FIXTURE_COMMIT);
    /* No longer than the model is made for. */
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    CHECK_EQ(a.summary.context, 1024);
    asked_end(&a);
    CHECK_EQ(asked_open(&a, "org/other", &options), BERTH_ENOENT);
    asked_end(&a);
}

static void
refuse_shape(const char *path, berth_status status, berth_reason reason, const char *words)
{
    asked a;

    CHECK_EQ(asked_open(&a, path, NULL), status);
    CHECK_EQ(a.error.reason, (int32_t)reason);
    CHECK_CONTAINS(a.error.message, words);
    asked_end(&a);
}

static void
test_refused_shapes(void)
{
    const char *folder = fixture_folder();

    refuse_shape(fixture_format("%s/nowhere", folder), BERTH_ENOENT,
                 BERTH_REASON_NOT_FOUND, "");
    refuse_shape(fixture_format("%s/config.json", folder), BERTH_ENOENT,
                 BERTH_REASON_NOT_FOUND, "");
    refuse_shape(folder, BERTH_ENOENT, BERTH_REASON_NOT_FOUND, "");
    fixture_file(fixture_format("%s/model.safetensors", folder), "F32 2 a.weight\n");
    refuse_shape(folder, BERTH_ENOENT, BERTH_REASON_NOT_FOUND,
                 "an estimate needs the model's config.json, and there is none");
    fixture_text(fixture_format("%s/config.json", folder), "{\"model_type\": \"x\"}");
    refuse_shape(folder, BERTH_EFORMAT, BERTH_REASON_CONFIG_JSON, "\"hidden_size\"");
    fixture_text(fixture_format("%s/config.json", folder), "{");
    refuse_shape(folder, BERTH_EFORMAT, BERTH_REASON_CONFIG_JSON, "");
    folder = asked_config_folder("gpt2");
    fixture_text(fixture_format("%s/model.safetensors", folder), "<!DOCTYPE html><html>");
    refuse_shape(folder, BERTH_EFORMAT, BERTH_REASON_HTML, "");
    folder = asked_config_folder("gpt2");
    fixture_file(fixture_format("%s/adapter_model.safetensors", folder),
                 "F32 2x2 base_model.model.h.0.attn.c_attn.lora_A.weight\n");
    refuse_shape(folder, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED,
                 "these are the weights of an adapter");
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_config_alone);
    T_RUN(test_config_path);
    T_RUN(test_variant);
    T_RUN(test_budgets_without_units);
    T_RUN(test_quantized_experts);
    T_RUN(test_index_alone);
    T_RUN(test_hub);
    T_RUN(test_refused_shapes);
    T_MAIN_END;
}
