/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_refuse.c - numbers of config.json that are refused, and their bounds. */
#include <string.h>
#include "tests/estimated_shape.h"
#include "tests/fixture.h"
#include "tests/t.h"

static void
test_refusals(void)
{
    static const struct {
        const char *text;
        const char *why;
    } rows[] = {
        { "[]", "not an object" },
        { "{}", "member \"hidden_size\" is missing, not a whole number from 1 to 1048576; "
                "another name of it is not known for this model_type" },
        { "{\"model_type\": \"qwen3\", \"hidden_size\": 64}",
          "member \"num_hidden_layers\" is missing, not a whole number from 1 to 4096" },
        { TINY(", \"model_type\": 7"), "member \"model_type\" is 7, not a string" },
        { TINY(", \"model_type\": {}"), "member \"model_type\" is not a string" },
        { TINY(", \"head_dim\": -1"),
          "member \"head_dim\" is -1, not a whole number from 1 to 65536" },
        { TINY(", \"head_dim\": 0"), "member \"head_dim\" is 0, not" },
        { TINY(", \"head_dim\": 65537"), "member \"head_dim\" is 65537, not" },
        { TINY(", \"head_dim\": 16.5"), "member \"head_dim\" is 16.5, not" },
        { TINY(", \"head_dim\": 18446744073709551616"), "is 18446744073709551616, not" },
        { TINY(", \"head_dim\": NaN"), "is NaN, not" },
        { TINY(", \"head_dim\": \"16\""), "member \"head_dim\" is not a whole number" },
        { TINY(", \"num_key_value_heads\": 5"), "\"num_key_value_heads\" is 5, not a whole "
                                                "number from 1 to 4" },
        { TINY(", \"max_position_embeddings\": 1e9"), "\"max_position_embeddings\"" },
        { TINY(", \"tie_word_embeddings\": 1"), "is 1, not true or false" },
        { TINY(", \"tie_word_embeddings\": \"a\""), "is not true or false" },
        { COMPRESSED(", \"compress_ratios\": [0, 4, 128]"),
          "member \"compress_ratios\" is not a list of tokens for each layer" },
        { COMPRESSED(", \"compress_ratios\": [0, 4, 128, 65537]"),
          "member \"compress_ratios\" is not a list of tokens for each layer" },
        { COMPRESSED(", \"compress_rates\": {\"heavily_compressed_attention\": 0}"),
          "member \"heavily_compressed_attention\" is 0, not" },
        { TINY(", \"layer_types\": [\"full_attention\"]"),
          "member \"layer_types\" is not a list with one entry for each layer" },
        { TINY(", \"layer_types\": 1"), "\"layer_types\"" },
        { TINY(", \"layer_types\": [1, 2, 3, 4]"),
          "member \"layer_types\" is not a list of strings" },
        { TINY(", \"layer_types\": [\"sliding_attention\", \"a\", \"b\", \"c\"]"),
          "\"sliding_window\" is missing" },
        { TINY(", \"sliding_window\": 0, \"layer_types\": [\"sliding_attention\", \"a\", \"b\", "
               "\"c\"]"),
          "\"sliding_window\" is 0, not a number of tokens" },
        { TINY(", \"model_type\": \"qwen3\", \"sliding_window\": 8, \"use_sliding_window\": "
               "false, \"layer_types\": [\"sliding_attention\", \"a\", \"b\", \"c\"]"),
          "\"use_sliding_window\" is not true, and \"layer_types\" has windows" },
        { TINY(", \"num_key_value_heads\": [2, 5]"),
          "member \"num_key_value_heads\" is not a list of whole numbers" },
        { TINY(", \"model_type\": \"qwen3_next\", \"layer_types\": [\"mamba\", \"a\", \"b\", "
               "\"c\"]"),
          "\"linear_num_value_heads\" is missing" },
        { TINY(", \"block_auto_adjust_ff_dim\": true, \"block_multiple_of\": 0, "
               "\"block_ffn_dim_multiplier\": 1.5"),
          "\"block_multiple_of\" is 0, not a whole number" },
        { TINY(", \"block_auto_adjust_ff_dim\": true, \"block_ffn_dim_multiplier\": 17"),
          "\"block_ffn_dim_multiplier\" is 17, not a number up to 16" },
        { "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
          "\"vocab_size\": 100, \"intermediate_size\": [8, 0]}",
          "member \"intermediate_size\" is not a list of whole numbers" },
        { "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
          "\"vocab_size\": 100, \"intermediate_size\": []}",
          "member \"intermediate_size\" is not a list of whole numbers" },
        { TINY(", \"per_layer_config\": {\"02\": {\"head_dim\": 0}}"),
          "member \"head_dim\" is 0, not" },
        { TINY(", \"model_type\": \"lfm2\", \"full_attn_idxs\": [-1]"),
          "member \"full_attn_idxs\" is not a list of layers" },
        { TINY(", \"num_experts\": 4, \"mlp_only_layers\": [\"x\"]"),
          "\"mlp_only_layers\"" },
        { TINY(", \"num_experts\": 4, \"num_experts_per_tok\": 5"),
          "\"num_experts_per_tok\" is 5, not a whole number from 1 to 4" },
        { TINY(", \"kv_lora_rank\": 8"), "\"qk_rope_head_dim\" is missing" },
        { TINY(", \"model_type\": \"t5_gemma_module\""), "\"num_hidden_layers\" is missing" },
        { TINY(", \"model_type\": \"t5_gemma_module\", \"encoder\": {\"hidden_size\": 8, "
               "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 9, "
               "\"num_key_value_heads\": 3}"),
          "\"num_key_value_heads\" is 3, not a whole number from 1 to 2" },
        { "{\"hidden_size\": 8, \"num_hidden_layers\": 4097}",
          "\"num_hidden_layers\" is 4097, not a whole number from 1 to 4096" },
        { "{\"hidden_size\": 1048577}", "\"hidden_size\" is 1048577" },
        { "{\"hidden_size\": 8, \"num_hidden_layers\": 1, \"vocab_size\": 4294967296}",
          "\"vocab_size\" is 4294967296, not a whole number from 1 to 4294967295" },
        { "{\"hidden_size\": 8, \"num_hidden_layers\": 1, \"vocab_size\": 9, "
          "\"num_attention_heads\": 9, \"intermediate_size\": 8}",
          "\"head_dim\" is missing" },
        { "{\"n_embd\": -8}", "\"n_embd\" is -8" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool is_refused = estimated_text(rows[i].text) == NULL;
        const berth_error *const error = estimated_error();

        if (!CHECK(is_refused) || !CHECK_EQ(error->reason, BERTH_REASON_CONFIG_JSON)
            || !CHECK_STR(error->file, "m/config.json")
            || !CHECK_CONTAINS(error->message, rows[i].why))
            T_NOTE("%s", rows[i].text);
    }
    CHECK(estimated_text("{\"model_type\": \"qwen3\"}") == NULL);
    CHECK(strstr(estimated_error()->message, "another name") == NULL);
}

/* True when the number is refused, with the bounds; others may be for other reasons. */
static bool
is_out_of_bounds(const char *text, const char *key, uint64_t number, const char *bounds)
{
    const char *const whole =
        fixture_format("%.*s, \"%s\": %llu}", (int)strlen(text) - 1, text, key,
                       (unsigned long long)number);

    return estimated_text(whole) == NULL
           && strstr(estimated_error()->message, fixture_format("\"%s\" is", key)) != NULL
           && CHECK_CONTAINS(estimated_error()->message, bounds);
}

/* Each number that config.json may have, and the least and the most that it may be. */
static void
test_bounds(void)
{
    static const char heads[] = TINY("");
    static const char latent[] = TINY(", \"kv_lora_rank\": 8");
    static const char ropes[] = TINY(", \"kv_lora_rank\": 8, \"qk_rope_head_dim\": 8");
    static const char values[] = TINY(", \"kv_lora_rank\": 8, \"qk_rope_head_dim\": 8, "
                                      "\"qk_nope_head_dim\": 8");
    static const char mamba[] = "{\"model_type\": \"mamba\", \"hidden_size\": 64, "
                                "\"num_hidden_layers\": 4, \"vocab_size\": 100}";
    static const char delta[] = TINY(", \"linear_num_value_heads\": 8");
    static const char mamba2[] = TINY(", \"mamba_d_state\": 8");
    static const char second[] = "{\"model_type\": \"mamba2\", \"hidden_size\": 64, "
                                 "\"num_hidden_layers\": 4, \"vocab_size\": 100}";
    static const char sound[] = "{\"model_type\": \"whisper\", \"d_model\": 64, "
                                "\"num_layers\": 4, \"num_heads\": 4, \"d_ff\": 9, "
                                "\"vocab_size\": 100}";
    static const char sparse[] = TINY(", \"num_experts\": 6");
    static const char distant[] = TINY(", \"model_type\": \"deberta-v2\", "
                                       "\"relative_attention\": true");
    static const struct {
        const char *text;
        const char *key;
        uint64_t least;
        uint64_t most;
    } rows[] = {
        { "{\"num_hidden_layers\": 4}", "hidden_size", 1, 1048576 },
        { "{\"hidden_size\": 64}", "num_hidden_layers", 1, 4096 },
        { "{\"hidden_size\": 64, \"num_hidden_layers\": 4}", "vocab_size", 1, UINT32_MAX },
        { heads, "max_position_embeddings", 0, UINT64_C(1) << 40 },
        { "{\"hidden_size\": 64, \"num_hidden_layers\": 4, \"vocab_size\": 100}",
          "num_attention_heads", 1, 65536 },
        { heads, "num_key_value_heads", 1, 4 },
        { heads, "head_dim", 1, 65536 },
        { heads, "kv_lora_rank", 0, 65536 },
        { latent, "q_lora_rank", 0, 65536 },
        { latent, "qk_rope_head_dim", 1, 65536 },
        { ropes, "qk_nope_head_dim", 1, 65536 },
        { values, "v_head_dim", 1, 65536 },
        { "{\"hidden_size\": 64, \"num_hidden_layers\": 4, \"vocab_size\": 100, "
          "\"num_attention_heads\": 4}",
          "intermediate_size", 1, 16777216 },
        { mamba, "expand", 1, 64 },
        { mamba, "intermediate_size", 1, 16777216 },
        { mamba, "state_size", 1, 65536 },
        { mamba, "conv_kernel", 1, 4096 },
        { mamba, "time_step_rank", 1, 16777216 },
        { heads, "linear_num_value_heads", 1, 4096 },
        { delta, "linear_value_head_dim", 1, 4096 },
        { delta, "linear_num_key_heads", 1, 4096 },
        { delta, "linear_key_head_dim", 1, 4096 },
        { delta, "linear_conv_kernel_dim", 1, 65536 },
        { heads, "mamba_d_state", 1, 65536 },
        { mamba2, "mamba_n_heads", 1, 4096 },
        { mamba2, "mamba_n_groups", 1, 4096 },
        { mamba2, "mamba_d_conv", 1, 4096 },
        { mamba2, "mamba_expand", 1, 64 },
        { heads, "conv_L_cache", 1, 4096 },
        { heads, "attention_chunk_size", 1, UINT64_C(1) << 40 },
        { heads, "sliding_window", 0, UINT64_C(1) << 40 },
        { TINY(", \"model_type\": \"bert\""), "type_vocab_size", 0, 65536 },
        { TINY(", \"model_type\": \"ernie\", \"use_task_id\": true"), "task_type_vocab_size",
          0, 65536 },
        { TINY(", \"model_type\": \"electra\""), "embedding_size", 1, 1048576 },
        { TINY(", \"model_type\": \"neomme\""), "patch_size", 1, 4096 },
        { TINY(", \"model_type\": \"neomme\""), "embedding_rank", 1, 1048576 },
        { TINY(", \"model_type\": \"albert\""), "num_hidden_groups", 1, 4096 },
        { TINY(", \"model_type\": \"albert\""), "inner_group_num", 1, 4096 },
        { distant, "position_buckets", 0, UINT64_C(1) << 40 },
        { distant, "max_relative_positions", 0, UINT64_C(1) << 40 },
        { distant, "conv_kernel_size", 0, 4096 },
        { heads, "vocab_size_per_layer_input", 0, UINT32_MAX },
        { TINY(", \"vocab_size_per_layer_input\": 9"), "hidden_size_per_layer_input", 0, 65536 },
        { heads, "num_kv_shared_layers", 0, 4 },
        { TINY(", \"model_type\": \"gemma4_text\""), "global_head_dim", 1, 65536 },
        { TINY(", \"model_type\": \"gemma4_text\", \"attention_k_eq_v\": true"),
          "num_global_key_value_heads", 1, 4 },
        { TINY(", \"model_type\": \"gemma3n_text\""), "altup_num_inputs", 1, 64 },
        { TINY(", \"model_type\": \"gemma3n_text\""), "laurel_rank", 1, 16777216 },
        { sound, "max_source_positions", 1, UINT64_C(1) << 40 },
        { sound, "num_mel_bins", 1, 65536 },
        { second, "conv_kernel", 1, 4096 },
        { second, "expand", 1, 64 },
        { second, "num_heads", 1, 4096 },
        { second, "n_groups", 1, 4096 },
        { second, "state_size", 1, 65536 },
        { TINY(", \"block_auto_adjust_ff_dim\": true"), "block_multiple_of", 1, 16777216 },
        { TINY(", \"model_type\": \"gemma2\", \"sliding_window\": 8"),
          "sliding_window_pattern", 1, 4096 },
        { TINY(", \"model_type\": \"qwen2\", \"sliding_window\": 8"), "max_window_layers", 0,
          4096 },
        { sparse, "num_experts_per_tok", 1, 6 },
        { sparse, "moe_intermediate_size", 1, 16777216 },
        { sparse, "shared_expert_intermediate_size", 0, 16777216 },
        { sparse, "intermediate_size_mlp", 1, 16777216 },
        { sparse, "first_k_dense_replace", 0, 4096 },
        { sparse, "moe_layer_freq", 1, 4096 },
        { sparse, "decoder_sparse_step", 1, 4096 },
        { sparse, "interleave_moe_layer_step", 1, 4096 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const bounds =
            fixture_format("from %llu to %llu", (unsigned long long)rows[i].least,
                           (unsigned long long)rows[i].most);
        bool is_right = CHECK(is_out_of_bounds(rows[i].text, rows[i].key, rows[i].most + 1,
                                               bounds));

        if (rows[i].least > 0)
            is_right = CHECK(is_out_of_bounds(rows[i].text, rows[i].key,
                                              rows[i].least - 1, bounds))
                       && is_right;
        is_right = CHECK(!is_out_of_bounds(rows[i].text, rows[i].key, rows[i].least, ""))
                   && is_right;
        is_right = CHECK(!is_out_of_bounds(rows[i].text, rows[i].key, rows[i].most, ""))
                   && is_right;
        if (!is_right)
            T_NOTE("%s: %s", rows[i].key, estimated_error()->message);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_refusals);
    T_RUN(test_bounds);
    T_MAIN_END;
}
