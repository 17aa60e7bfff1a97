/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_kinds.c - config.json as numbers: what layers of each kind have. */
#include <string.h>
#include "placement/estimate_lines.h"
#include "tests/estimated_shape.h"
#include "tests/fixture.h"
#include "tests/t.h"

static void
test_dense(void)
{
    const berthi_shape *const s = &estimated_config("llama-3-70b")->shape;

    CHECK_STR(berthi_shape_family_name(s), "llama");
    CHECK_EQ(s->dtype, BERTH_BF16);
    CHECK_EQ(s->hidden, 8192);
    CHECK_EQ(s->vocabulary, 128256);
    CHECK_EQ(s->positions, 8192);
    CHECK_EQ(s->learned_positions, 0);
    CHECK_EQ(s->layers, 80);
    CHECK_EQ(s->encoder_layers, 0);
    CHECK_EQ(s->layer_norms, 2);
    CHECK_EQ(s->mlp_matrices, 3);
    CHECK(!s->ties_embeddings);
    CHECK(!s->has_tower);
    CHECK(!s->is_quantized);
    CHECK(!berthi_shape_is_classic(s));
    CHECK_EQ(s->kind_count, 1);
    estimated_check_kind(&s->kinds[0], 80, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[0].heads, 64);
    CHECK_EQ(s->kinds[0].kv_heads, 8);
    CHECK_EQ(s->kinds[0].key_dim, 128);
    CHECK_EQ(s->kinds[0].value_dim, 128);
    CHECK_EQ(s->kinds[0].intermediate, 28672);
}

/* One of keys and of values, or as many as there are heads, whatever else is said. */
static void
test_multi_query(void)
{
    static const char one[] =
        "{\"model_type\": \"gpt_bigcode\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, "
        "\"vocab_size\": 100, \"num_key_value_heads\": 1, \"multi_query\": true}";
    static const char all[] =
        "{\"model_type\": \"gpt_bigcode\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, "
        "\"vocab_size\": 100, \"num_key_value_heads\": 1, \"multi_query\": false}";

    CHECK_EQ(estimated_text(one)->shape.kinds[0].kv_heads, 1);
    CHECK_EQ(estimated_text(all)->shape.kinds[0].kv_heads, 4);
}

static void
test_classic(void)
{
    const berthi_shape *const s = &estimated_config("gpt2")->shape;

    CHECK(berthi_shape_is_classic(s));
    CHECK(s->ties_embeddings);
    CHECK_EQ(s->positions, 1024);
    CHECK_EQ(s->learned_positions, 1024);
    CHECK_EQ(s->mlp_matrices, 2);
    CHECK_EQ(s->kinds[0].intermediate, 3072);
    CHECK_EQ(s->kinds[0].kv_heads, 12);
    CHECK_EQ(estimated_config("llama-2-7b")->shape.dtype, BERTH_F16);
    CHECK_EQ(estimated_config("gemma-2-9b")->shape.dtype, BERTH_F32);
}

static void
test_windows(void)
{
    const berthi_shape *s = &estimated_config("mistral-7b-v0.1")->shape;

    CHECK_EQ(s->kind_count, 1);
    estimated_check_kind(&s->kinds[0], 32, BERTHI_ATTENTION_HEADS, 4096, 0);
    s = &estimated_config("gemma-2-9b")->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 21, BERTHI_ATTENTION_HEADS, 4096, 0);
    estimated_check_kind(&s->kinds[1], 21, BERTHI_ATTENTION_HEADS, 0, 0);
    s = &estimated_config("gemma-3-4b")->shape;
    CHECK_EQ(s->kind_count, 2);
    CHECK(s->has_tower);
    estimated_check_kind(&s->kinds[0], 29, BERTHI_ATTENTION_HEADS, 1024, 0);
    estimated_check_kind(&s->kinds[1], 5, BERTHI_ATTENTION_HEADS, 0, 0);
    s = &estimated_config("gpt-oss-20b")->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 12, BERTHI_ATTENTION_HEADS, 128, 32);
    estimated_check_kind(&s->kinds[1], 12, BERTHI_ATTENTION_HEADS, 0, 32);
    CHECK_EQ(s->kinds[0].experts_used, 4);
    CHECK_EQ(s->kinds[0].expert_intermediate, 2880);
    CHECK(s->is_quantized);
}

static void
test_experts(void)
{
    const berthi_shape *s = &estimated_config("deepseek-v3")->shape;

    CHECK_EQ(s->kind_count, 2);
    CHECK_EQ(s->latent_rank, 512);
    CHECK_EQ(s->query_rank, 1536);
    CHECK_EQ(s->rope_dim, 64);
    estimated_check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_LATENT, 0, 0);
    estimated_check_kind(&s->kinds[1], 58, BERTHI_ATTENTION_LATENT, 0, 256);
    CHECK_EQ(s->kinds[0].intermediate, 18432);
    CHECK_EQ(s->kinds[1].intermediate, 0);
    CHECK_EQ(s->kinds[1].experts_used, 8);
    CHECK_EQ(s->kinds[1].expert_intermediate, 2048);
    CHECK_EQ(s->kinds[1].shared_intermediate, 2048);
    CHECK_EQ(s->kinds[1].key_dim, 192);
    CHECK_EQ(s->kinds[1].value_dim, 128);
    CHECK_EQ(s->kinds[1].kv_heads, 128);
    s = &estimated_config("deepseek-v2-lite")->shape;
    CHECK_EQ(s->query_rank, 0);
    CHECK_EQ(s->kinds[1].shared_intermediate, 2816);
    s = &estimated_config("mixtral-8x7b-v0.1")->shape;
    CHECK_EQ(s->kind_count, 1);
    estimated_check_kind(&s->kinds[0], 32, BERTHI_ATTENTION_HEADS, 0, 8);
    CHECK_EQ(s->kinds[0].expert_intermediate, 14336);
}

static void
test_states(void)
{
    const berthi_shape *s = &estimated_config("qwen3-next-80b-a3b")->shape;

    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 36, BERTHI_ATTENTION_STATE, 0, 512);
    estimated_check_kind(&s->kinds[1], 12, BERTHI_ATTENTION_HEADS, 0, 512);
    CHECK_EQ(s->kinds[0].heads, 0);
    CHECK_EQ(s->kinds[0].state_elements, 32 * 128 * 128);
    CHECK_EQ(s->kinds[0].convolution_elements, (2 * 16 * 128 + 32 * 128) * 4);
    CHECK_EQ(s->kinds[0].shared_intermediate, 512);
    s = &estimated_text(
             "{\"model_type\": \"lfm2\", \"hidden_size\": 64, \"num_hidden_layers\": 3, "
             "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
             "\"conv_L_cache\": 3, "
             "\"layer_types\": [\"conv\", \"full_attention\", \"conv\"]}")->shape;
    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    CHECK_EQ(s->kinds[0].convolution_elements, 192);
    CHECK_EQ(s->kinds[0].state_elements, 0);
    s = &estimated_text(
             "{\"model_type\": \"bamba\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
             "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
             "\"mamba_d_state\": 16, \"mamba_n_heads\": 8, \"mamba_n_groups\": 2, "
             "\"mamba_d_conv\": 4, \"mamba_expand\": 2, "
             "\"layer_types\": [\"mamba\", \"attention\"]}")->shape;
    CHECK_EQ(s->kinds[0].state_elements, 128 * 16);
    CHECK_EQ(s->kinds[0].convolution_elements, (128 + 2 * 2 * 16) * 4);
}

/* What a token is at once in a layer with a state, whether it has a convolution or not. */
static void
test_state_widths(void)
{
    static const struct {
        const char *more;
        uint64_t width;
    } rows[] = {
        /* queries, keys and values, a gate and what is found: each as wide as the values */
        { ", \"model_type\": \"minimax\", \"head_dim\": 24, \"layer_types\": "
          "[\"linear_attention\", \"linear_attention\", \"linear_attention\", "
          "\"linear_attention\"]", 5 * 4 * 24 },
        /* queries and keys half as wide, and two gates more for each head */
        { ", \"model_type\": \"xlstm\", \"num_heads\": 4, \"num_blocks\": 4",
          2 * 32 + 64 + 2 * 4 + 2 * 64 },
        { ", \"model_type\": \"rwkv\", \"attention_hidden_size\": 80", 2 * 80 + 2 * 80 },
        { ", \"model_type\": \"mamba2\", \"num_heads\": 8, \"head_dim\": 16, "
          "\"n_groups\": 2, \"state_size\": 32", 128 + 2 * 2 * 32 + 2 * 128 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(
            fixture_format("%.*s%s}", (int)sizeof TINY("") - 2, TINY(""), rows[i].more));

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.kinds[0].attention, BERTHI_ATTENTION_STATE)
            || !CHECK_EQ(berthi_layer_attention_width(&e->shape, &e->shape.kinds[0]),
                         rows[i].width))
            T_NOTE("%s", rows[i].more);
    }
}

/* What an encoder's layers see is not kept; the positions that no token has do not count. */
static void
test_both_ways(void)
{
    const berthi_shape *s =
        &estimated_text("{\"model_type\": \"xlm-roberta\", \"vocab_size\": 250002, "
                        "\"hidden_size\": 768, \"intermediate_size\": 3072, "
                        "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, "
                        "\"max_position_embeddings\": 514, \"type_vocab_size\": 1}")
             ->shape;

    estimated_check_kind(&s->kinds[0], 12, BERTHI_ATTENTION_NONE, 0, 0);
    CHECK_EQ(s->kind_count, 1);
    CHECK_EQ(s->positions, 512);
    CHECK_EQ(s->learned_positions, 514);
    CHECK_EQ(s->token_types, 1);
    /* Nor does it matter how far they see: a file may say it in other words. */
    s = &estimated_text(TINY(", \"model_type\": \"modernbert\", \"local_attention\": 128, "
                             "\"layer_types\": [\"full_attention\", \"sliding_attention\", "
                             "\"sliding_attention\", \"full_attention\"]"))->shape;
    estimated_check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_NONE, 0, 0);
    CHECK_EQ(s->kind_count, 1);
    CHECK_EQ(s->token_types, 0);
    /* All layers are one, which is stored once. */
    s = &estimated_text(TINY(", \"model_type\": \"albert\""))->shape;
    CHECK_EQ(s->layer_sets, 1);
    CHECK_EQ(s->embedding, 128);
    estimated_check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_NONE, 0, 0);
}

/* Encoder and decoder may have different numbers of layers. */
static void
test_sound(void)
{
    const berthi_shape *s =
        &estimated_text(WHISPER("1280", "32", "20", "5120", "51866", "128"))->shape;

    CHECK(s->is_known);
    CHECK_EQ(s->encoder_layers, 32);
    CHECK_EQ(s->encoder_positions, 1500);
    CHECK_EQ(s->positions, 448);
    CHECK_EQ(s->kind_count, 2);
    CHECK(s->kinds[0].is_encoder && s->kinds[1].has_cross);
    estimated_check_kind(&s->kinds[1], 32, BERTHI_ATTENTION_HEADS, 0, 0);
    s = &estimated_text("{\"model_type\": \"whisper\", \"d_model\": 64, "
                        "\"encoder_layers\": 3, \"decoder_layers\": 2, "
                        "\"decoder_attention_heads\": 4, \"decoder_ffn_dim\": 128, "
                        "\"vocab_size\": 100, \"num_hidden_layers\": 3}")->shape;
    CHECK_EQ(s->encoder_layers, 3);
    CHECK_EQ(s->layers, 2);
    CHECK_EQ(s->sound_bands, 80);
}

/* What is behind the window, and who chooses experts: as published files say it, and later ones. */
static void
test_compressed(void)
{
    static const char *const texts[] = {
        COMPRESSED(", \"num_hash_layers\": 1, \"compress_ratios\": [0, 4, 128, 4, 0]"),
        COMPRESSED(", \"layer_types\": [\"sliding_attention\", "
                   "\"compressed_sparse_attention\", \"heavily_compressed_attention\", "
                   "\"compressed_sparse_attention\"], "
                   "\"mlp_layer_types\": [\"hash_moe\", \"moe\", \"moe\", \"moe\"]"),
    };
    static const uint64_t entries[] = { 0, 4, 128 };
    const berthi_shape *s;
    uint64_t all = 0;

    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        const estimated *const e = estimated_text(texts[t]);

        T_REQUIRE(e != NULL);
        s = &e->shape;
        T_REQUIRE(CHECK_EQ(s->kind_count, 3));
        CHECK(!s->has_unknown_layers);
        for (uint32_t k = 0; k < 3; k++) {
            CHECK_EQ(s->kinds[k].window, 8);
            CHECK_EQ(s->kinds[k].entry_tokens, entries[k]);
            CHECK_EQ(s->kinds[k].has_index, k == 1);
            CHECK_EQ(s->kinds[k].has_word_experts, k == 0);
            CHECK_EQ(s->kinds[k].experts, 4);
            CHECK_EQ(s->kinds[k].count, k == 1 ? 2 : 1);
        }
        /* Which words choose which experts is no number that is computed with. */
        for (uint32_t i = 0; i < e->weights.count; i++)
            CHECK_EQ(e->weights.items[i].dtype == BERTH_I64,
                     strcmp(e->weights.items[i].module, "tid2eid") == 0);
        CHECK(t == 0 || estimated_count(e).all == all);
        all = estimated_count(e).all;
    }
    /* Without a list: two that see all entries, then each kind in turn. */
    s = &estimated_text(COMPRESSED(", \"compress_rate_csa\": 2, \"compress_rate_hca\": 64"))->shape;
    CHECK_EQ(s->kind_count, 2);
    CHECK_EQ(s->kinds[0].entry_tokens, 64);
    CHECK_EQ(s->kinds[0].count, 3);
    CHECK(s->kinds[0].has_word_experts && !s->kinds[1].has_word_experts);
    CHECK_EQ(s->kinds[1].entry_tokens, 2);
    CHECK(s->kinds[1].has_index);
    s = &estimated_text(COMPRESSED(", \"layer_types\": [\"x\", \"sliding_attention\", "
                                   "\"sliding_attention\", \"sliding_attention\"]"))->shape;
    CHECK(s->has_unknown_layers);
}

/* Zamba: a state everywhere, and before some of them attention of twice the width. */
static void
test_shared(void)
{
    const berthi_shape *s =
        &estimated_text(TINY(", \"model_type\": \"zamba2\", \"layers_block_type\": "
                             "[\"mamba\", \"hybrid\", \"linear_attention\", \"hybrid\"]"))->shape;

    CHECK_EQ(s->kind_count, 2);
    estimated_check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    estimated_check_kind(&s->kinds[1], 2, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[0].intermediate, 0);
    CHECK_EQ(s->kinds[1].key_dim, 2 * 64 / 4);
    CHECK_EQ(s->kinds[1].state_elements, s->kinds[0].state_elements);
    CHECK_GT(s->kinds[1].state_elements, 0);
    CHECK(!s->has_unknown_layers);
    s = &estimated_text(TINY(", \"model_type\": \"zamba2\""))->shape;
    CHECK(s->has_unknown_layers); /* which of them are not said */
}

/* Its shared experts are fused; those that a router chooses have tensors of their own. */
static void
test_minimax_m3_experts(void)
{
    const estimated *const e = estimated_text(
        "{\"model_type\": \"minimax_m3_vl\", \"text_config\": {"
        "\"model_type\": \"minimax_m3_vl_text\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 16, \"intermediate_size\": 48, \"dense_intermediate_size\": 128, "
        "\"shared_intermediate_size\": 80, \"num_local_experts\": 4, "
        "\"num_experts_per_tok\": 2, \"n_shared_experts\": 1, \"vocab_size\": 100}}");
    uint64_t experts = 0;

    T_REQUIRE(e != NULL);
    for (uint32_t i = 0; i < e->weights.count; i++) {
        const berthi_weight *const w = &e->weights.items[i];

        if (w->role != BERTHI_WEIGHT_EXPERT)
            continue;
        experts += w->count;
        CHECK_EQ(w->stack, 0);
        CHECK_EQ(w->shape[0] * w->shape[1], 64 * 48);
    }
    CHECK_EQ(experts, 2 * 4 * 3);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_dense);
    T_RUN(test_multi_query);
    T_RUN(test_classic);
    T_RUN(test_windows);
    T_RUN(test_experts);
    T_RUN(test_states);
    T_RUN(test_state_widths);
    T_RUN(test_both_ways);
    T_RUN(test_sound);
    T_RUN(test_compressed);
    T_RUN(test_shared);
    T_RUN(test_minimax_m3_experts);
    T_MAIN_END;
}
