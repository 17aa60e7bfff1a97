/* SPDX-License-Identifier: Apache-2.0 */
/* test_llama_config.c - what the decoder takes from config.json, and what it refuses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/t.h"
#include "tools/llama_config.h"

#define COUNTS                                                                             \
    "\"num_hidden_layers\": 4, \"hidden_size\": 64, \"num_attention_heads\": 8, "          \
    "\"intermediate_size\": 96, \"vocab_size\": 100"

/* Reads a config.json of this text; free() what comes back. */
static llama_config *
read_config(const char *text, berth_status *status, berth_error *error)
{
    const char *const folder = fixture_folder();
    llama_config *const config = malloc(sizeof *config);
    berth_context *context;
    berth_checkpoint *checkpoint;

    fixture_model(folder, "[model.safetensors]\nF32 2 a\n");
    fixture_text(fixture_format("%s/config.json", folder), text);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL), BERTH_OK);
    *status = llama_config_read(context, checkpoint, config, error);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return config;
}

static llama_config *
read_good(const char *members)
{
    berth_error error;
    berth_status status;
    llama_config *const config =
        read_config(fixture_format("{%s, " COUNTS "}", members), &status, &error);

    if (!CHECK_EQ(status, BERTH_OK))
        t_note("%s: %s %s", members, error.tensor, error.message);
    return config;
}

static void
check_refused(const char *text, berth_status expected, const char *subject)
{
    berth_error error = { .status = BERTH_OK };
    berth_status status;
    llama_config *const config = read_config(text, &status, &error);

    if (!CHECK_EQ(status, expected) || !CHECK_EQ(error.status, expected)
        || !CHECK_STR(error.file, "config.json")
        || !CHECK_EQ(strncmp(error.message, subject, strlen(subject)), 0))
        t_note("%s: %s", text, error.message);
    free(config);
}

/* ------------------------------------------------------------------------- families */

static void
test_llama(void)
{
    llama_config *const c = read_good(
        "\"model_type\": \"llama\", \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5, "
        "\"rope_theta\": 500000.0, \"max_position_embeddings\": 4096, "
        "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\"");

    CHECK_EQ(c->layers, 4);
    CHECK_EQ(c->hidden, 64);
    CHECK_EQ(c->heads, 8);
    CHECK_EQ(c->kv_heads, 2);
    CHECK_EQ(c->head_dim, 8);
    CHECK_EQ(c->inner, 96);
    CHECK_EQ(c->vocab, 100);
    CHECK_EQ(c->positions, 4096);
    CHECK(c->norm_epsilon == 1e-5f);
    CHECK(c->is_tied);
    CHECK(!c->has_head_norms);
    CHECK_EQ(c->rope.scaling, LLAMA_SCALING_NONE);
    CHECK(c->rope.theta == 500000);
    CHECK(c->rope.attention == 1);
    CHECK_EQ(c->expert_names, LLAMA_EXPERTS_NONE);
    CHECK_EQ(c->window, 0);
    CHECK(!c->slides[0] && !c->is_sparse[0]);
    free(c);
}

static void
test_defaults(void)
{
    static const struct {
        const char *type;
        uint32_t kv_heads;
        uint32_t head_dim;
        double theta;
        float epsilon;
        bool has_head_norms;
        uint32_t window;
        bool slides;
    } cases[] = {
        { "llama", 8, 8, 10000, 1e-6f, false, 0, false },
        { "mistral", 8, 8, 10000, 1e-6f, false, 4096, true },
        { "mixtral", 8, 8, 1e6, 1e-5f, false, 0, false },
        { "qwen3_moe", 4, 8, 10000, 1e-6f, true, 0, false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        llama_config *const c =
            read_good(fixture_format("\"model_type\": \"%s\"", cases[i].type));

        CHECK_EQ(c->kv_heads, cases[i].kv_heads);
        CHECK_EQ(c->head_dim, cases[i].head_dim);
        CHECK(c->rope.theta == cases[i].theta);
        CHECK(c->norm_epsilon == cases[i].epsilon);
        CHECK_EQ(c->has_head_norms, cases[i].has_head_norms);
        CHECK_EQ(c->window, cases[i].window);
        CHECK_EQ(c->slides[3], cases[i].slides);
        CHECK(!c->is_tied);
        free(c);
    }
}

/* As models say that have no groups: not the number of the family. */
static void
test_heads_of_keys_that_are_null(void)
{
    llama_config *const c =
        read_good("\"model_type\": \"qwen2\", \"num_key_value_heads\": null");

    CHECK_EQ(c->kv_heads, 8);
    free(c);
}

/* LLM.int8()'s default where it is not said; what is no magnitude sets none apart. */
static void
test_int8_thresholds(void)
{
    static const struct {
        const char *members;
        float threshold;
    } cases[] = {
        { "", 6 },
        { ", \"quantization_config\": null", 6 },
        { ", \"quantization_config\": {\"load_in_8bit\": true}", 6 },
        { ", \"quantization_config\": {\"llm_int8_threshold\": null}", 6 },
        { ", \"quantization_config\": {\"llm_int8_threshold\": 4.5}", 4.5f },
        { ", \"quantization_config\": {\"llm_int8_threshold\": 5}", 5 },
        { ", \"quantization_config\": {\"llm_int8_threshold\": 0.0}", 0 },
        { ", \"quantization_config\": {\"llm_int8_threshold\": -1}", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        llama_config *const c =
            read_good(fixture_format("\"model_type\": \"llama\"%s", cases[i].members));

        if (!CHECK(c->int8_threshold == cases[i].threshold))
            t_note("%s: %g", cases[i].members, (double)c->int8_threshold);
        free(c);
    }
    check_refused("{\"model_type\": \"llama\", " COUNTS
                  ", \"quantization_config\": {\"llm_int8_threshold\": Infinity}}",
                  BERTH_EFORMAT, "quantization_config.llm_int8_threshold");
}

static void
test_windows(void)
{
    static const struct {
        const char *members;
        uint32_t window;
        const char *slides; /* of the four layers */
    } cases[] = {
        { "\"model_type\": \"mistral\", \"sliding_window\": null", 0, "0000" },
        { "\"model_type\": \"mistral\", \"sliding_window\": 7", 7, "1111" },
        { "\"model_type\": \"mixtral\", \"sliding_window\": 9", 9, "1111" },
        { "\"model_type\": \"llama\", \"sliding_window\": 9", 0, "0000" },
        { "\"model_type\": \"qwen2\", \"num_key_value_heads\": 4, \"sliding_window\": 9",
          0, "0000" },
        { "\"model_type\": \"qwen2\", \"num_key_value_heads\": 4, \"sliding_window\": 9, "
          "\"use_sliding_window\": true, \"max_window_layers\": 3",
          9, "0001" },
        { "\"model_type\": \"qwen3\", \"num_key_value_heads\": 4, \"sliding_window\": 9, "
          "\"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\", "
          "\"full_attention\", \"sliding_attention\", \"full_attention\"]",
          9, "1010" },
        { "\"model_type\": \"qwen3_moe\", \"sliding_window\": 9, "
          "\"use_sliding_window\": true",
          9, "1111" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        llama_config *const c = read_good(cases[i].members);
        char slides[5] = "";

        for (int layer = 0; layer < 4; layer++)
            slides[layer] = c->slides[layer] ? '1' : '0';
        CHECK_EQ(c->window, cases[i].window);
        if (!CHECK_STR(slides, cases[i].slides))
            t_note("case %zu", i);
        free(c);
    }
}

static void
test_experts(void)
{
    llama_config *c = read_good("\"model_type\": \"mixtral\", \"num_local_experts\": 6, "
                                "\"num_experts_per_tok\": 3");

    CHECK_EQ(c->expert_names, LLAMA_EXPERTS_MIXTRAL);
    CHECK_EQ(c->experts, 6);
    CHECK_EQ(c->experts_used, 3);
    CHECK_EQ(c->expert_inner, 96);
    CHECK(c->is_renormalised);
    CHECK(c->is_sparse[0] && c->is_sparse[3]);
    free(c);
    c = read_good("\"model_type\": \"qwen3_moe\", \"num_experts\": 16, "
                  "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 24, "
                  "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [0, 3]");
    CHECK_EQ(c->expert_names, LLAMA_EXPERTS_QWEN);
    CHECK_EQ(c->experts, 16);
    CHECK_EQ(c->experts_used, 4);
    CHECK_EQ(c->expert_inner, 24);
    CHECK(!c->is_renormalised);
    CHECK(!c->is_sparse[0] && c->is_sparse[1] && !c->is_sparse[2] && !c->is_sparse[3]);
    free(c);
    /* As transformers writes it since 5.0; where both stand there, Qwen's own name counts. */
    c = read_good("\"model_type\": \"qwen3_moe\", \"num_local_experts\": 12");
    CHECK_EQ(c->experts, 12);
    free(c);
    c = read_good("\"model_type\": \"qwen3_moe\", \"num_local_experts\": 12, "
                  "\"num_experts\": 16");
    CHECK_EQ(c->experts, 16);
    free(c);
    c = read_good("\"model_type\": \"qwen3_moe\", \"norm_topk_prob\": true");
    CHECK_EQ(c->experts, 128);
    CHECK_EQ(c->experts_used, 8);
    CHECK_EQ(c->expert_inner, 768);
    CHECK(c->is_renormalised && c->is_sparse[0]);
    free(c);
}

/* ------------------------------------------------------------------------ positions */

static void
test_rope_llama3(void)
{
    llama_config *const c = read_good(
        "\"model_type\": \"llama\", \"rope_theta\": 500000, \"rope_scaling\": {"
        "\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}");

    CHECK_EQ(c->rope.scaling, LLAMA_SCALING_LLAMA3);
    CHECK(c->rope.theta == 500000 && c->rope.factor == 8 && c->rope.low_factor == 1
          && c->rope.high_factor == 4 && c->rope.positions == 8192);
    free(c);
}

static void
test_rope_linear(void)
{
    llama_config *c = read_good(
        "\"model_type\": \"llama\", \"max_position_embeddings\": 4096, "
        "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}");

    CHECK_EQ(c->rope.scaling, LLAMA_SCALING_LINEAR);
    CHECK(c->rope.factor == 2.5);
    free(c);
    /* How long it may get is of no interest to it. */
    c = read_good("\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", "
                  "\"factor\": 4}");
    CHECK(c->rope.factor == 4 && c->rope.positions == 0);
    free(c);
}

static void
test_rope_yarn(void)
{
    llama_config *c = read_good(
        "\"model_type\": \"qwen3\", \"num_key_value_heads\": 8, "
        "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1000000, "
        "\"factor\": 4, \"original_max_position_embeddings\": 32768}");

    CHECK_EQ(c->head_dim, 128);
    CHECK_EQ(c->rope.scaling, LLAMA_SCALING_YARN);
    CHECK(c->rope.theta == 1e6 && c->rope.factor == 4 && c->rope.positions == 32768);
    CHECK(fabs(c->rope.attention - (0.1 * log(4) + 1)) < 1e-12);
    CHECK(c->rope.beta_fast == 32 && c->rope.beta_slow == 1 && c->rope.is_truncated);
    free(c);
    c = read_good("\"model_type\": \"llama\", \"max_position_embeddings\": 1024, "
                  "\"rope_scaling\": {\"rope_type\": \"yarn\", \"mscale\": 2, "
                  "\"mscale_all_dim\": 1, \"beta_fast\": 16, \"beta_slow\": 2, "
                  "\"truncate\": false, \"original_max_position_embeddings\": 128}");
    CHECK(c->rope.factor == 8); /* from the two lengths */
    CHECK(fabs(c->rope.attention - (0.2 * log(8) + 1) / (0.1 * log(8) + 1)) < 1e-12);
    CHECK(c->rope.beta_fast == 16 && c->rope.beta_slow == 2 && !c->rope.is_truncated);
    free(c);
    c = read_good("\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"yarn\", "
                  "\"attention_factor\": 1.5, \"factor\": 2, "
                  "\"original_max_position_embeddings\": 128}");
    CHECK(c->rope.attention == 1.5);
    free(c);
}

/* Which of two places transformers takes a number from. */
static void
test_rope_places(void)
{
    llama_config *c = read_good(
        "\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"default\", "
        "\"rope_theta\": 777}, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}");

    CHECK_EQ(c->rope.scaling, LLAMA_SCALING_LINEAR);
    CHECK(c->rope.factor == 4 && c->rope.theta == 10000);
    free(c);
    c = read_good("\"model_type\": \"llama\", \"rope_scaling\": {}, "
                  "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 777}");
    CHECK(c->rope.scaling == LLAMA_SCALING_NONE && c->rope.theta == 777);
    free(c);
    c = read_good("\"model_type\": \"llama\", \"original_max_position_embeddings\": 64, "
                  "\"max_position_embeddings\": 512, \"rope_scaling\": {\"type\": \"yarn\", "
                  "\"original_max_position_embeddings\": 128}");
    CHECK(c->rope.positions == 64 && c->rope.factor == 8);
    free(c);
    c = read_good("\"model_type\": \"llama\", \"max_position_embeddings\": 512, "
                  "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 0, "
                  "\"beta_slow\": 0}");
    CHECK(c->rope.beta_fast == 32 && c->rope.beta_slow == 1 && c->rope.positions == 512);
    free(c);
}

/* -------------------------------------------------------------------------- refusals */

static void
test_refuses_other_models(void)
{
    check_refused("{\"model_type\": \"gpt2\"}", BERTH_EUNSUPPORTED, "gpt2");
    check_refused("{}", BERTH_EUNSUPPORTED, "model_type");
    check_refused("{\"model_type\": \"llama\", \"hidden_act\": \"gelu\", " COUNTS "}",
                  BERTH_EUNSUPPORTED, "gelu");
    check_refused("{\"model_type\": \"llama\", \"partial_rotary_factor\": 0.5, " COUNTS "}",
                  BERTH_EUNSUPPORTED, "partial_rotary_factor");
    check_refused("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"dynamic\", "
                  "\"factor\": 2}, " COUNTS "}",
                  BERTH_EUNSUPPORTED, "dynamic");
}

static void
test_refuses_numbers(void)
{
    static const struct {
        const char *members;
        const char *subject;
    } cases[] = {
        { "\"num_hidden_layers\": 0", "num_hidden_layers" },
        { "\"num_hidden_layers\": 1025", "num_hidden_layers" },
        { "\"hidden_size\": -1", "hidden_size" },
        { "\"num_attention_heads\": 0", "num_attention_heads" },
        { "\"num_key_value_heads\": 3", "num_key_value_heads" },
        { "\"num_key_value_heads\": 0", "num_key_value_heads" },
        { "\"head_dim\": 7", "head_dim" },
        { "\"intermediate_size\": 0", "intermediate_size" },
        { "\"vocab_size\": 0", "vocab_size" },
        { "\"rms_norm_eps\": -1", "rms_norm_eps" },
        { "\"rope_theta\": 0", "rope_parameters" },
        { "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}", "rope_parameters" },
        { "\"max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"linear\"}",
          "rope_parameters" },
        { "\"max_position_embeddings\": 64, \"rope_scaling\": {\"rope_type\": \"yarn\"}",
          "rope_parameters" },
        { "\"rope_scaling\": {\"rope_type\": \"llama3\", "
          "\"original_max_position_embeddings\": 64}",
          "rope_parameters" },
        { "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
          "\"low_freq_factor\": 4, \"high_freq_factor\": 4, "
          "\"original_max_position_embeddings\": 64}",
          "rope_parameters" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[] = "{\"model_type\": \"llama\", " COUNTS "}";
        const char *const key =
            fixture_format("%.*s", (int)strcspn(cases[i].members, ":"), cases[i].members);
        char *const at = strstr(text, key);

        /* The first of equal members must not win: the good one gets another name. */
        if (at != NULL)
            at[1] = '_';
        check_refused(fixture_format("{%s, %s", cases[i].members, text + 1), BERTH_EFORMAT,
                      cases[i].subject);
    }
    check_refused("{\"model_type\": \"mixtral\", \"num_experts_per_tok\": 9, " COUNTS "}",
                  BERTH_EFORMAT, "num_experts_per_tok");
    check_refused("{\"model_type\": \"mixtral\", \"num_local_experts\": 65537, " COUNTS "}",
                  BERTH_EFORMAT, "num_experts_per_tok");
    check_refused("{\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 0, " COUNTS "}",
                  BERTH_EFORMAT, "num_experts_per_tok");
    /* No matrix of theirs has a column then. */
    check_refused("{\"model_type\": \"qwen3_moe\", \"moe_intermediate_size\": 0, " COUNTS "}",
                  BERTH_EFORMAT, "moe_intermediate_size");
}

static void
test_refuses_kinds(void)
{
    berth_error error;
    berth_status status;

    free(read_config("{\"model_type\": \"llama\", \"rms_norm_eps\": \"x\", " COUNTS "}",
                     &status, &error));
    CHECK_EQ(status, BERTH_EINVAL);
    free(read_config("{\"model_type\": \"qwen2\", \"num_key_value_heads\": 8, "
                     "\"use_sliding_window\": 3, " COUNTS "}",
                     &status, &error));
    CHECK_EQ(status, BERTH_EINVAL);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_llama);
    T_RUN(test_defaults);
    T_RUN(test_heads_of_keys_that_are_null);
    T_RUN(test_int8_thresholds);
    T_RUN(test_windows);
    T_RUN(test_experts);
    T_RUN(test_rope_llama3);
    T_RUN(test_rope_linear);
    T_RUN(test_rope_yarn);
    T_RUN(test_rope_places);
    T_RUN(test_refuses_other_models);
    T_RUN(test_refuses_numbers);
    T_RUN(test_refuses_kinds);
    T_MAIN_END;
}
