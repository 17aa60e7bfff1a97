/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_layers.c - config.json as numbers: which layers are of which kind. */
#include <stdio.h>
#include <string.h>
#include "tests/estimated_shape.h"
#include "tests/fixture.h"
#include "tests/t.h"

/* Layers that no list names: which of them have a state, and which are windows. */
static void
test_first_layers(void)
{
    const berthi_shape *s = &estimated_text(
        "{\"model_type\": \"kimi_linear\", \"hidden_size\": 64, \"num_hidden_layers\": 6, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"kv_lora_rank\": 16, \"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, "
        "\"v_head_dim\": 12, \"num_experts\": 8, \"moe_intermediate_size\": 32, "
        "\"first_k_dense_replace\": 3, \"linear_attn_config\": {\"head_dim\": 16, "
        "\"num_heads\": 3, \"full_attn_layers\": [3, 6]}}")->shape;

    CHECK_EQ(s->kind_count, 4);
    estimated_check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    estimated_check_kind(&s->kinds[1], 1, BERTHI_ATTENTION_LATENT, 0, 0);
    estimated_check_kind(&s->kinds[2], 2, BERTHI_ATTENTION_STATE, 0, 8);
    CHECK_EQ(s->kinds[0].state_elements, 3 * 16 * 16);
    CHECK_EQ(s->kinds[0].convolution_elements, 3 * 3 * 16 * 4);
    s = &estimated_text(
        "{\"model_type\": \"kimi_linear\", \"hidden_size\": 64, \"num_hidden_layers\": 9, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"kv_lora_rank\": 16, \"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, "
        "\"v_head_dim\": 12}")->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 7, BERTHI_ATTENTION_STATE, 0, 0);
    s = &estimated_text(
        "{\"model_type\": \"mimo_v2_flash\", \"hidden_size\": 64, \"num_hidden_layers\": 8, "
        "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 24, "
        "\"v_head_dim\": 16, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"n_routed_experts\": 8, \"sliding_window\": 16}")->shape;
    CHECK_EQ(s->kind_count, 3);
    estimated_check_kind(&s->kinds[0], 1, BERTHI_ATTENTION_HEADS, 0, 0);
    estimated_check_kind(&s->kinds[1], 6, BERTHI_ATTENTION_HEADS, 16, 8);
    estimated_check_kind(&s->kinds[2], 1, BERTHI_ATTENTION_HEADS, 0, 8);
    CHECK_EQ(s->kinds[1].kv_heads, 4);
    CHECK_EQ(s->kinds[1].value_dim, 16);
    CHECK_EQ(s->kinds[2].kv_heads, 2);
    s = &estimated_text(
        "{\"model_type\": \"minimax\", \"hidden_size\": 64, \"num_hidden_layers\": 5, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"head_dim\": 24}")->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[1].state_elements, 4 * 24 * 24);
    CHECK_EQ(s->kinds[1].convolution_elements, 0);
    s = &estimated_text(
        "{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"mamba_d_state\": 16, "
        "\"mamba_n_heads\": 8, \"intermediate_size\": 128, \"vocab_size\": 100}")->shape;
    CHECK_EQ(s->kind_count, 1);
    estimated_check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_STATE, 0, 0);
    s = &estimated_text(
        "{\"model_type\": \"gemma4_text\", \"hidden_size\": 64, \"num_hidden_layers\": 8, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"head_dim\": 16, \"global_head_dim\": 32, \"sliding_window\": 8}")->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 6, BERTHI_ATTENTION_HEADS, 8, 0);
    estimated_check_kind(&s->kinds[1], 2, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->layer_kinds[5], 1);
    CHECK_EQ(s->layer_kinds[7], 1);
    s = &estimated_text(
        "{\"model_type\": \"longcat_flash\", \"hidden_size\": 64, \"num_layers\": 3, "
        "\"num_attention_heads\": 4, \"ffn_hidden_size\": 96, \"vocab_size\": 100, "
        "\"kv_lora_rank\": 16, \"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, "
        "\"v_head_dim\": 12, \"n_routed_experts\": 8, \"zero_expert_num\": 4, "
        "\"expert_ffn_hidden_size\": 32}")->shape;
    CHECK_EQ(s->layers, 6);
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_LATENT, 0, 8);
    estimated_check_kind(&s->kinds[1], 3, BERTHI_ATTENTION_LATENT, 0, 0);
    CHECK_EQ(s->kinds[0].shared_intermediate, 96);
    CHECK_EQ(s->kinds[1].intermediate, 96);
    CHECK_EQ(s->layer_kinds[4], 0);
    CHECK_EQ(s->idle_experts, 4);
}

#define INDEXED(more)                                                                     \
    "{\"model_type\": \"minimax_m3_vl_text\", \"hidden_size\": 64, "                       \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "     \
    "\"intermediate_size\": 32, \"dense_intermediate_size\": 80, \"vocab_size\": 100, "      \
    "\"num_local_experts\": 8" more "}"

/* Which layers have experts, and an index of blocks, as 0 and 1 for each. */
static void
test_marks(void)
{
    const estimated *e = estimated_text(INDEXED(
        ", \"moe_layer_freq\": [0, 1, 1, 0], \"sparse_attention_config\": "
        "{\"sparse_num_index_heads\": 2, \"sparse_index_dim\": 24, "
        "\"sparse_attention_freq\": [0, 0, 1, 1]}"));
    const berthi_shape *const s = &e->shape;

    CHECK_EQ(s->kind_count, 4);
    for (uint32_t i = 0; i < s->kind_count; i++) {
        estimated_check_kind(&s->kinds[i], 1, BERTHI_ATTENTION_HEADS, 0, i == 1 || i == 2 ? 8 : 0);
        CHECK_EQ(s->kinds[i].has_index, i >= 2);
    }
    CHECK(!s->has_unknown_layers);
    CHECK_EQ(s->kinds[0].intermediate, 80);
    CHECK_EQ(s->index_heads, 2);
    CHECK_EQ(s->index_dim, 24);
    e = estimated_text(INDEXED(""));
    CHECK_EQ(e->shape.kind_count, 1);
    CHECK(!e->shape.kinds[0].has_index);
    CHECK(estimated_text(INDEXED(", \"moe_layer_freq\": [0, 1]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "one entry for each layer");
    CHECK(estimated_text(INDEXED(", \"moe_layer_freq\": [0, 1, 2, 1]")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "0 or 1 for each layer");
}

/* Which layers are which, by every rule that config.json has for it. */
static void
test_rules(void)
{
    static const struct {
        const char *text;
        uint64_t first;  /* layers of the first kind */
        uint64_t window; /* of the first kind */
        uint64_t experts;
        uint32_t kinds;
    } rows[] = {
        { TINY(""), 4, 0, 0, 1 },
        { TINY(", \"sliding_window\": 8"), 4, 0, 0, 1 },
        { TINY(", \"model_type\": \"mistral\", \"sliding_window\": 8"), 4, 8, 0, 1 },
        { TINY(", \"model_type\": \"mistral\", \"sliding_window\": null"), 4, 0, 0, 1 },
        { TINY(", \"model_type\": \"qwen2\", \"sliding_window\": 8, "
               "\"max_window_layers\": 1"), 4, 0, 0, 1 },
        { TINY(", \"model_type\": \"qwen2\", \"sliding_window\": 8, "
               "\"max_window_layers\": 1, \"use_sliding_window\": true"), 1, 0, 0, 2 },
        { TINY(", \"model_type\": \"gemma3_text\", \"sliding_window\": 8, "
               "\"sliding_window_pattern\": 2"), 2, 8, 0, 2 },
        { TINY(", \"model_type\": \"gemma3_text\", \"sliding_window\": 8, "
               "\"_sliding_window_pattern\": 4"), 3, 8, 0, 2 },
        { TINY(", \"model_type\": \"cohere2\", \"sliding_window\": 8"), 3, 8, 0, 2 },
        { TINY(", \"sliding_window\": 8, \"layer_types\": [\"full_attention\", "
               "\"sliding_attention\", \"full_attention\", \"full_attention\"]"),
          3, 0, 0, 2 },
        { TINY(", \"attention_chunk_size\": 16, \"layer_types\": [\"chunked_attention\", "
               "\"chunked_attention\", \"chunked_attention\", \"full_attention\"]"),
          3, 16, 0, 2 },
        { TINY(", \"model_type\": \"llama4_text\", \"attention_chunk_size\": 16"),
          3, 16, 0, 2 },
        { TINY(", \"num_experts\": 6"), 4, 0, 6, 1 },
        { TINY(", \"num_local_experts\": 6, \"first_k_dense_replace\": 1"), 1, 0, 0, 2 },
        { TINY(", \"num_experts\": 6, \"mlp_only_layers\": [0, 3]"), 2, 0, 0, 2 },
        { TINY(", \"num_experts\": 6, \"decoder_sparse_step\": 4"), 3, 0, 0, 2 },
        { TINY(", \"num_experts\": 6, \"interleave_moe_layer_step\": 2"), 2, 0, 0, 2 },
        { TINY(", \"n_routed_experts\": 6, \"moe_layer_freq\": 3"), 2, 0, 6, 2 },
        { TINY(", \"moe_num_experts\": 6, \"moe_layer_end_index\": 2"), 3, 0, 6, 2 },
        { TINY(", \"num_local_experts\": 6, \"moe_layers\": [0, 2, 3], "
               "\"interleave_moe_layer_step\": 2"), 3, 0, 6, 2 },
        { TINY(", \"num_local_experts\": 6, \"moe_layers\": []"), 4, 0, 0, 1 },
        { TINY(", \"moe_num_experts\": 6, \"moe_layer_end_index\": -1"), 4, 0, 6, 1 },
        { TINY(", \"num_experts\": 6, \"mlp_layer_types\": [\"sparse\", \"dense\", "
               "\"dense\", \"dense\"]"), 1, 0, 6, 2 },
        { TINY(", \"num_experts\": 0"), 4, 0, 0, 1 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(rows[i].text);
        bool is_right = CHECK(e != NULL);

        if (e != NULL) {
            is_right = CHECK_EQ(e->shape.kind_count, rows[i].kinds)
                       && CHECK_EQ(e->shape.kinds[0].count, rows[i].first)
                       && CHECK_EQ(e->shape.kinds[0].window, rows[i].window)
                       && CHECK_EQ(e->shape.kinds[0].experts, rows[i].experts);
        }
        if (!is_right)
            T_NOTE("%s: %s", rows[i].text, estimated_error()->message);
    }
}

/* Layers may be as different from each other as a file says, within limits. */
static void
test_many_kinds(void)
{
    char own[1024] = "";
    size_t length = 0;
    const estimated *e;

    for (unsigned i = 1; i <= 22; i++) {
        length += (size_t)snprintf(own + length, sizeof own - length,
                                   "%s\"%02u\": {\"head_dim\": %u}", i > 1 ? ", " : "", i,
                                   8 * i);
        e = estimated_text(fixture_format(
            "{\"model_type\": \"gemma4_text\", \"hidden_size\": 64, \"num_hidden_layers\": 24, "
            "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
            "\"sliding_window\": null, \"global_head_dim\": 1000, "
            "\"per_layer_config\": {%s}}", own));
        CHECK_EQ(e == NULL, i >= BERTHI_LAYER_KINDS);
        if (e != NULL)
            CHECK_EQ(e->shape.kind_count, i + 1);
        else
            CHECK_CONTAINS(estimated_error()->message, "\"per_layer_config\" is not for as few");
    }
}

/* Attention, a state, experts and tables in each of the most kinds of layers: there is room. */
static void
test_many_weights(void)
{
    char own[1024] = "";
    size_t length = 0;
    const estimated *e;

    for (unsigned i = 1; i < BERTHI_LAYER_KINDS; i++)
        length += (size_t)snprintf(own + length, sizeof own - length,
                                   "%s\"%u\": {\"head_dim\": %u}", i > 1 ? ", " : "", i, 8 * i);
    e = estimated_text(fixture_format(
        "{\"model_type\": \"falcon_h1\", \"hidden_size\": 64, \"num_hidden_layers\": 24, "
        "\"num_attention_heads\": 4, \"head_dim\": 1000, \"intermediate_size\": 128, "
        "\"vocab_size\": 100, \"attention_bias\": true, \"mlp_bias\": true, "
        "\"norm_bias\": true, \"projectors_bias\": true, \"mamba_proj_bias\": true, "
        "\"mamba_rms_norm\": true, \"mamba_n_heads\": 4, \"num_experts\": 4, "
        "\"moe_latent_size\": 8, \"n_shared_experts\": 1, "
        "\"vocab_size_per_layer_input\": 9, \"hidden_size_per_layer_input\": 9, "
        "\"per_layer_config\": {%s}}", own));
    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.kind_count, BERTHI_LAYER_KINDS);
    CHECK_GE(e->weights.count, BERTHI_LAYER_KINDS * 31);
    CHECK(e->weights.count <= BERTHI_WEIGHT_KINDS && !e->weights.is_cut);
}

/* The same by heads of each layer, of a class with many weights in each. */
static void
test_many_weights_of_zaya(void)
{
    char heads[256] = "";
    size_t length = 0;
    const estimated *e;

    for (unsigned i = 1; i <= BERTHI_LAYER_KINDS; i++)
        length += (size_t)snprintf(heads + length, sizeof heads - length, "%s%u",
                                   i > 1 ? ", " : "", i);
    e = estimated_text(fixture_format(
        "{\"model_type\": \"zaya\", \"hidden_size\": 64, \"num_hidden_layers\": %u, "
        "\"num_attention_heads\": 4, \"head_dim\": 16, \"intermediate_size\": 128, "
        "\"vocab_size\": 100, \"attention_bias\": true, \"mlp_bias\": true, "
        "\"norm_bias\": true, \"num_experts\": 4, \"moe_latent_size\": 8, "
        "\"n_shared_experts\": 1, \"q_lora_rank\": 8, \"kv_lora_rank\": 8, "
        "\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 8, "
        "\"index_n_heads\": 2, \"index_head_dim\": 8, "
        "\"vocab_size_per_layer_input\": 9, \"hidden_size_per_layer_input\": 9, "
        "\"num_attention_heads_per_layer\": [%s]}",
        BERTHI_LAYER_KINDS, heads));
    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.kind_count, BERTHI_LAYER_KINDS);
    CHECK_GE(e->weights.count, BERTHI_LAYER_KINDS * 40 + 1);
    CHECK(e->weights.count <= BERTHI_WEIGHT_KINDS && !e->weights.is_cut);
}

/* An object for each layer of no model: it is not gone through layer by layer. */
static void
test_too_many_own(void)
{
    static char text[80000];
    size_t length = (size_t)snprintf(text, sizeof text, "%.*s, \"per_layer_config\": {\"0\": {}",
                                     (int)sizeof TINY("") - 2, TINY(""));

    for (unsigned i = 1; i <= 4096; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, ", \"%u\": {}", i);
    snprintf(text + length, sizeof text - length, "}}");
    CHECK(estimated_text(text) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "\"per_layer_config\" is not for as few layers");
}

/* Layers that are attention, a state, an MLP or experts, by letters; others are two at once. */
static void
test_halves(void)
{
    static const char nemotron[] =
        "{\"model_type\": \"nemotron_h\", \"hidden_size\": 64, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 128, "
        "\"vocab_size\": 100, \"mamba_num_heads\": 8, \"mamba_head_dim\": 16, "
        "\"n_groups\": 2, \"ssm_state_size\": 32, \"n_routed_experts\": 4, "
        "\"moe_intermediate_size\": 24, \"hybrid_override_pattern\": \"%s\"%s}";
    const estimated *e = estimated_text(fixture_format(nemotron, "M-*EM", ""));
    static char long_pattern[4098];
    const berthi_shape *s;

    T_REQUIRE(e != NULL);
    s = &e->shape;
    CHECK_EQ(s->layers, 5);
    CHECK_EQ(s->kind_count, 4);
    estimated_check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    estimated_check_kind(&s->kinds[1], 1, BERTHI_ATTENTION_NONE, 0, 0);
    estimated_check_kind(&s->kinds[2], 1, BERTHI_ATTENTION_HEADS, 0, 0);
    estimated_check_kind(&s->kinds[3], 1, BERTHI_ATTENTION_NONE, 0, 4);
    CHECK_EQ(s->kinds[0].state_elements, 8 * 16 * 32);
    CHECK_EQ(s->kinds[2].intermediate, 0);
    CHECK(estimated_text(fixture_format(nemotron, "M-*E", ", \"num_hidden_layers\": 5")) == NULL);
    CHECK_CONTAINS(estimated_error()->message,
                   "\"hybrid_override_pattern\" is not a letter for each layer");
    memset(long_pattern, 'M', sizeof long_pattern - 1);
    CHECK(estimated_text(fixture_format(nemotron, long_pattern, "")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "not a whole number from 1 to 4096");
    e = estimated_text(fixture_format(nemotron, "M?", ""));
    CHECK(e != NULL && e->shape.has_unknown_layers);
    s = &estimated_text(TINY(", \"model_type\": \"falcon_h1\", \"mamba_d_ssm\": 32, "
                             "\"mamba_d_state\": 8, \"mamba_n_heads\": 4"))->shape;
    estimated_check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[0].state_elements, 32 * 8);
    s = &estimated_text(TINY(", \"model_type\": \"recurrent_gemma\", \"block_types\": "
                             "[\"recurrent\", \"attention\"], "
                             "\"attention_window_size\": 8"))->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    estimated_check_kind(&s->kinds[1], 2, BERTHI_ATTENTION_HEADS, 8, 0);
    CHECK_EQ(s->kinds[0].state_elements, 64); /* one for each of its width */
    CHECK_EQ(s->kinds[0].convolution_elements, 64 * 4);
    /* No norm of an MLP that is not there. */
    e = estimated_text(TINY(", \"model_type\": \"bitnet\", \"num_experts\": 4"));
    T_REQUIRE(e != NULL);
    for (uint32_t i = 0; i < e->weights.count; i++)
        CHECK_GE(e->weights.items[i].shape[0], 1);
    /* Numbers of experts in a model that has none. */
    s = &estimated_text(TINY(", \"num_experts\": 16384, \"is_moe\": false"))->shape;
    estimated_check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_HEADS, 0, 0);
}

/* Heads that choose tokens for the others, in each layer or not. */
static void
test_index(void)
{
    static const char latent[] =
        TINY(", \"model_type\": \"deepseek_v32\", \"kv_lora_rank\": 32, \"q_lora_rank\": 48, "
             "\"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, \"v_head_dim\": 16, "
             "\"index_n_heads\": 4, \"index_head_dim\": 24, \"layer_types\": "
             "[\"indexed_attention\", \"indexed_attention\", \"indexed_attention\", "
             "\"indexed_attention\"], \"%s\": %s");
    static const char list[] = "indexer_types";
    const estimated *e =
        estimated_text(fixture_format(latent, list, "[\"full\", \"full\", \"full\", \"full\"]"));
    berthi_estimate_options options;

    T_REQUIRE(e != NULL);
    CHECK(e->shape.is_known && !e->shape.has_unknown_layers);
    berthi_estimate_options_init(&options, &e->shape);
    CHECK_EQ(berthi_cache_sequence(&e->shape, &options, 1), 4 * (24 + 32 + 8) * 2);
    options.expands_latents = true;
    CHECK_EQ(berthi_cache_sequence(&e->shape, &options, 1), 4 * (24 + 4 * (24 + 16)) * 2);
    CHECK(estimated_text(fixture_format(latent, list, "[\"full\"]")) == NULL);
    e = estimated_text(fixture_format(latent, list, "[\"full\", \"full\", \"new\", \"full\"]"));
    CHECK(e != NULL && e->shape.has_unknown_layers);
}

/* Layers that take what the one before them chose have none, and keep no keys of theirs. */
static void
test_shared_index(void)
{
    static const char latent[] =
        TINY(", \"model_type\": \"glm_moe_dsa\", \"kv_lora_rank\": 32, \"q_lora_rank\": 48, "
             "\"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, \"v_head_dim\": 16, "
             "\"index_n_heads\": 4, \"index_head_dim\": 24, %s");
    static const char *const ways[] = {
        "\"indexer_types\": [\"full\", \"full\", \"shared\", \"full\"]",
        "\"index_topk_pattern\": \"FFSF\"",
        "\"index_topk_pattern\": [\"full\", \"full\", \"shared\", \"full\"]",
        "\"index_topk_freq\": 2",
    };
    berthi_estimate_options options;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const estimated *const e = estimated_text(fixture_format(latent, ways[i]));

        T_REQUIRE(e != NULL);
        CHECK(!e->shape.has_unknown_layers);
        CHECK_EQ(e->shape.kind_count, 2);
        CHECK_EQ(e->shape.kinds[0].count, 3);
        CHECK(e->shape.kinds[0].has_index && !e->shape.kinds[1].has_index);
        CHECK_EQ(e->shape.layer_kinds[2], 1);
        berthi_estimate_options_init(&options, &e->shape);
        CHECK_EQ(berthi_cache_sequence(&e->shape, &options, 1),
                 (3 * 24 + 4 * (32 + 8)) * 2);
    }
    CHECK(estimated_text(fixture_format(latent, "\"index_topk_pattern\": \"FF\"")) == NULL);
    CHECK_CONTAINS(estimated_error()->message, "is not a letter for each layer");
}

static uint64_t
read_for_token(const char *steps)
{
    const estimated *const e = estimated_text(
        fixture_format("{\"model_type\": \"switch_transformers\", \"d_model\": 64, "
                       "\"vocab_size\": 100, \"num_experts\": 8, \"num_layers\": 6, "
                       "\"num_decoder_layers\": 4, \"num_heads\": 4, \"d_ff\": 128%s}",
                       steps));
    berthi_estimate_options options;
    berthi_estimate estimate;

    if (!CHECK(e != NULL))
        return 0;
    berthi_estimate_options_init(&options, &e->shape);
    CHECK_EQ(berthi_estimate_inference(&e->model, &options, &estimate, NULL), BERTH_OK);
    return berthi_estimate_bytes(&estimate, BERTHI_PART_WEIGHT_READ);
}

/* Nothing of an encoder is read for a token, whether it has experts or not. */
static void
test_encoder_experts_are_not_read(void)
{
    const uint64_t dense = read_for_token(", \"encoder_sparse_step\": 0");

    CHECK(dense > 0);
    CHECK_EQ(read_for_token(", \"encoder_sparse_step\": 2"), dense);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_first_layers);
    T_RUN(test_marks);
    T_RUN(test_rules);
    T_RUN(test_many_kinds);
    T_RUN(test_many_weights);
    T_RUN(test_many_weights_of_zaya);
    T_RUN(test_too_many_own);
    T_RUN(test_halves);
    T_RUN(test_index);
    T_RUN(test_shared_index);
    T_RUN(test_encoder_experts_are_not_read);
    T_MAIN_END;
}
