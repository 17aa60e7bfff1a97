/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_shape.c - config.json as numbers: published parameters, refusals. */
#include "placement/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/estimated.h"
#include "tests/fixture.h"
#include "tests/t.h"

/* Parameters in all, and in matrices inside layers. */
typedef struct counts {
    uint64_t all;
    uint64_t linear;
} counts;

static counts
count(const estimated *e)
{
    counts c = { 0, 0 };

    for (uint32_t i = 0; i < e->weights.count; i++) {
        const berthi_weight *const w = &e->weights.items[i];
        const uint64_t n = w->count * w->shape[0] * (w->rank == 2 ? w->shape[1] : 1);

        CHECK_GT(n, 0); /* what is not there is not in the list */
        c.all += n;
        if (w->role == BERTHI_WEIGHT_LINEAR || w->role == BERTHI_WEIGHT_EXPERT)
            c.linear += n;
    }
    return c;
}

#define WHISPER(width, layers, heads, inner, words, bands)                               \
    "{\"model_type\": \"whisper\", \"d_model\": " width ", \"encoder_layers\": " layers    \
    ", \"decoder_layers\": " layers ", \"encoder_attention_heads\": " heads               \
    ", \"decoder_attention_heads\": " heads ", \"encoder_ffn_dim\": " inner               \
    ", \"decoder_ffn_dim\": " inner ", \"vocab_size\": " words ", \"num_mel_bins\": " bands \
    ", \"max_source_positions\": 1500, \"max_target_positions\": 448, "                  \
    "\"num_hidden_layers\": " layers "}"

/*
 * Published numbers of parameters, by model cards and index files. Towers and layers for
 * multi-token prediction are not among them.
 */
static void
test_published_parameters(void)
{
    static const struct {
        const char *name;
        uint64_t all;
        uint64_t linear;
    } rows[] = {
        { "llama-2-7b", 6738415616, 6476005376 },
        { "llama-2-13b", 13015864320, 12687769600 },
        { "llama-2-70b", 68976648192, 68451041280 },
        { "llama-3-8b", 8030261248, 6979321856 },
        { "llama-3-70b", 70553706496, 68451041280 },
        { "llama-3.1-405b", 405853388800, 401646551040 },
        { "mistral-7b-v0.1", 7241732096, 6979321856 },
        { "mixtral-8x7b-v0.1", 46702792704, 46439333888 },
        { "gemma-2-9b", 9241705984, 8323596288 },
        { "gemma-3-4b", 3880263168, 3208642560 },
        { "deepseek-v3", 671026419200, 669065609216 },
        { "deepseek-v2-lite", 15706484224, 15283519488 },
        { "qwen3-30b-a3b", 30532122624, 29896998912 },
        { "qwen3-next-80b-a3b", 79674391296, 79000240128 },
        { "gpt-oss-20b", 20914757184, 19747307520 },
        { "gpt2", 124439808, 84934656 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_config(rows[i].name);

        if (!CHECK_EQ(count(e).all, rows[i].all)
            || !CHECK_EQ(count(e).linear, rows[i].linear) || !CHECK(e->shape.is_known))
            T_NOTE("%s", rows[i].name);
    }
}

/* Numbers of the trees that transformers makes of these configurations. */
static void
test_parameters_of_families(void)
{
    static const struct {
        const char *text;
        uint64_t all;
    } rows[] = {
        { "{\"model_type\": \"cohere\", \"vocab_size\": 256000, \"hidden_size\": 8192, "
          "\"intermediate_size\": 22528, \"num_hidden_layers\": 40, "
          "\"num_attention_heads\": 64, \"num_key_value_heads\": 64}", 34980831232 },
        { "{\"model_type\": \"falcon\", \"vocab_size\": 65024, \"hidden_size\": 4544, "
          "\"num_hidden_layers\": 32, \"num_attention_heads\": 71, \"multi_query\": true, "
          "\"new_decoder_architecture\": false, \"bias\": false}", 6921720704 },
        { "{\"model_type\": \"gpt_neox\", \"vocab_size\": 50432, \"hidden_size\": 6144, "
          "\"intermediate_size\": 24576, \"num_hidden_layers\": 44, "
          "\"num_attention_heads\": 64, \"tie_word_embeddings\": false}", 20554567680 },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 1600, \"n_layer\": 48, \"n_head\": 25, "
          "\"vocab_size\": 50257, \"n_positions\": 1024, \"n_inner\": null}", 1557611200 },
        { "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 3072, "
          "\"intermediate_size\": 8192, \"num_hidden_layers\": 28, \"head_dim\": 128, "
          "\"num_attention_heads\": 24, \"num_key_value_heads\": 8, "
          "\"tie_word_embeddings\": true}", 3212749824 },
        { "{\"model_type\": \"olmo2\", \"vocab_size\": 100352, \"hidden_size\": 4096, "
          "\"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32, \"tie_word_embeddings\": false}", 7298617344 },
        { "{\"model_type\": \"opt\", \"vocab_size\": 50272, \"hidden_size\": 5120, "
          "\"ffn_dim\": 20480, \"num_hidden_layers\": 40, \"num_attention_heads\": 40, "
          "\"max_position_embeddings\": 2048}", 12853473280 },
        { "{\"model_type\": \"phi3\", \"vocab_size\": 32064, \"hidden_size\": 3072, "
          "\"intermediate_size\": 8192, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32, \"num_key_value_heads\": 32}", 3821079552 },
        { "{\"model_type\": \"qwen2\", \"vocab_size\": 151936, \"hidden_size\": 896, "
          "\"intermediate_size\": 4864, \"num_hidden_layers\": 24, "
          "\"num_attention_heads\": 14, \"num_key_value_heads\": 2, "
          "\"tie_word_embeddings\": true}", 494032768 },
        { "{\"model_type\": \"qwen3\", \"vocab_size\": 151936, \"hidden_size\": 4096, "
          "\"intermediate_size\": 12288, \"num_hidden_layers\": 36, \"head_dim\": 128, "
          "\"num_attention_heads\": 32, \"num_key_value_heads\": 8}", 8190735360 },
        { "{\"model_type\": \"starcoder2\", \"vocab_size\": 49152, \"hidden_size\": 4608, "
          "\"intermediate_size\": 18432, \"num_hidden_layers\": 32, \"use_bias\": true, "
          "\"num_attention_heads\": 36, \"num_key_value_heads\": 4}", 7173923840 },
        { "{\"model_type\": \"t5\", \"vocab_size\": 32128, \"d_model\": 1024, "
          "\"d_kv\": 128, \"d_ff\": 16384, \"num_layers\": 24, "
          "\"num_decoder_layers\": 24, \"num_heads\": 32}", 2851598336 },
        { "{\"model_type\": \"bert\", \"vocab_size\": 30522, \"hidden_size\": 768, "
          "\"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
          "\"num_attention_heads\": 12, \"max_position_embeddings\": 512, "
          "\"type_vocab_size\": 2}", 109514298 },
        { "{\"model_type\": \"roberta\", \"vocab_size\": 50265, \"hidden_size\": 768, "
          "\"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
          "\"num_attention_heads\": 12, \"max_position_embeddings\": 514, "
          "\"type_vocab_size\": 1}", 124697433 },
        /* LongCat-Flash: of 768 experts that are chosen among, 256 have no weights */
        { "{\"model_type\": \"longcat_flash\", \"vocab_size\": 131072, "
          "\"hidden_size\": 6144, \"num_layers\": 28, \"num_attention_heads\": 64, "
          "\"ffn_hidden_size\": 12288, \"expert_ffn_hidden_size\": 2048, "
          "\"n_routed_experts\": 512, \"zero_expert_num\": 256, \"moe_topk\": 12, "
          "\"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, "
          "\"qk_nope_head_dim\": 128, \"v_head_dim\": 128}", 560664980480 },
        { WHISPER("384", "4", "6", "1536", "51865", "80"), 37760640 },
        { WHISPER("1280", "32", "20", "5120", "51866", "128"), 1543490560 },
        { "{\"model_type\": \"qwen2_vl\", \"vocab_size\": 152064, \"hidden_size\": 3584, "
          "\"intermediate_size\": 18944, \"num_hidden_layers\": 28, "
          "\"num_attention_heads\": 28, \"num_key_value_heads\": 4, "
          "\"vision_config\": {}}", 7615616512 },
        /* mamba-130m: 24 layers of 768, a state of 16, a convolution of 4 */
        { "{\"model_type\": \"mamba\", \"vocab_size\": 50280, \"hidden_size\": 768, "
          "\"num_hidden_layers\": 24, \"state_size\": 16, \"expand\": 2, "
          "\"time_step_rank\": 48, \"conv_kernel\": 4, "
          "\"intermediate_size\": 1536}", 129135360 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(rows[i].text);

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(count(e).all, rows[i].all))
            T_NOTE("%s", rows[i].text);
    }
}

/* ------------------------------------------------------------------------ layers */

static void
check_kind(const berthi_layer *k, uint64_t layers, int32_t attention, uint64_t window,
           uint64_t experts)
{
    CHECK_EQ(k->count, layers);
    CHECK_EQ(k->attention, attention);
    CHECK_EQ(k->window, window);
    CHECK_EQ(k->experts, experts);
}

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
    check_kind(&s->kinds[0], 80, BERTHI_ATTENTION_HEADS, 0, 0);
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
    check_kind(&s->kinds[0], 32, BERTHI_ATTENTION_HEADS, 4096, 0);
    s = &estimated_config("gemma-2-9b")->shape;
    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 21, BERTHI_ATTENTION_HEADS, 4096, 0);
    check_kind(&s->kinds[1], 21, BERTHI_ATTENTION_HEADS, 0, 0);
    s = &estimated_config("gemma-3-4b")->shape;
    CHECK_EQ(s->kind_count, 2);
    CHECK(s->has_tower);
    check_kind(&s->kinds[0], 29, BERTHI_ATTENTION_HEADS, 1024, 0);
    check_kind(&s->kinds[1], 5, BERTHI_ATTENTION_HEADS, 0, 0);
    s = &estimated_config("gpt-oss-20b")->shape;
    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 12, BERTHI_ATTENTION_HEADS, 128, 32);
    check_kind(&s->kinds[1], 12, BERTHI_ATTENTION_HEADS, 0, 32);
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
    check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_LATENT, 0, 0);
    check_kind(&s->kinds[1], 58, BERTHI_ATTENTION_LATENT, 0, 256);
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
    check_kind(&s->kinds[0], 32, BERTHI_ATTENTION_HEADS, 0, 8);
    CHECK_EQ(s->kinds[0].expert_intermediate, 14336);
}

static void
test_states(void)
{
    const berthi_shape *s = &estimated_config("qwen3-next-80b-a3b")->shape;

    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 36, BERTHI_ATTENTION_STATE, 0, 512);
    check_kind(&s->kinds[1], 12, BERTHI_ATTENTION_HEADS, 0, 512);
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
    check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
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
    check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    check_kind(&s->kinds[1], 1, BERTHI_ATTENTION_LATENT, 0, 0);
    check_kind(&s->kinds[2], 2, BERTHI_ATTENTION_STATE, 0, 8);
    CHECK_EQ(s->kinds[0].state_elements, 3 * 16 * 16);
    CHECK_EQ(s->kinds[0].convolution_elements, 3 * 3 * 16 * 4);
    s = &estimated_text(
        "{\"model_type\": \"kimi_linear\", \"hidden_size\": 64, \"num_hidden_layers\": 9, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"kv_lora_rank\": 16, \"qk_rope_head_dim\": 8, \"qk_nope_head_dim\": 16, "
        "\"v_head_dim\": 12}")->shape;
    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 7, BERTHI_ATTENTION_STATE, 0, 0);
    s = &estimated_text(
        "{\"model_type\": \"mimo_v2_flash\", \"hidden_size\": 64, \"num_hidden_layers\": 8, "
        "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 24, "
        "\"v_head_dim\": 16, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"n_routed_experts\": 8, \"sliding_window\": 16}")->shape;
    CHECK_EQ(s->kind_count, 3);
    check_kind(&s->kinds[0], 1, BERTHI_ATTENTION_HEADS, 0, 0);
    check_kind(&s->kinds[1], 6, BERTHI_ATTENTION_HEADS, 16, 8);
    check_kind(&s->kinds[2], 1, BERTHI_ATTENTION_HEADS, 0, 8);
    CHECK_EQ(s->kinds[1].kv_heads, 4);
    CHECK_EQ(s->kinds[1].value_dim, 16);
    CHECK_EQ(s->kinds[2].kv_heads, 2);
    s = &estimated_text(
        "{\"model_type\": \"minimax\", \"hidden_size\": 64, \"num_hidden_layers\": 5, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"head_dim\": 24}")->shape;
    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[1].state_elements, 4 * 24 * 24);
    CHECK_EQ(s->kinds[1].convolution_elements, 0);
    s = &estimated_text(
        "{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"mamba_d_state\": 16, "
        "\"mamba_n_heads\": 8, \"intermediate_size\": 128, \"vocab_size\": 100}")->shape;
    CHECK_EQ(s->kind_count, 1);
    check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_STATE, 0, 0);
    s = &estimated_text(
        "{\"model_type\": \"gemma4_text\", \"hidden_size\": 64, \"num_hidden_layers\": 8, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100, "
        "\"head_dim\": 16, \"global_head_dim\": 32, \"sliding_window\": 8}")->shape;
    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 6, BERTHI_ATTENTION_HEADS, 8, 0);
    check_kind(&s->kinds[1], 2, BERTHI_ATTENTION_HEADS, 0, 0);
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
    check_kind(&s->kinds[0], 3, BERTHI_ATTENTION_LATENT, 0, 8);
    check_kind(&s->kinds[1], 3, BERTHI_ATTENTION_LATENT, 0, 0);
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
        check_kind(&s->kinds[i], 1, BERTHI_ATTENTION_HEADS, 0, i == 1 || i == 2 ? 8 : 0);
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

#define TINY(more)                                                                        \
    "{\"hidden_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "         \
    "\"intermediate_size\": 128, \"vocab_size\": 100" more "}"

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

/*
 * Each type of the table, from the defaults of its configuration, and variants of some:
 * what the library's own class has in all. Made by tests/interop/estimate_families.py.
 */
static void
test_families(void)
{
    char *const texts = fixture_read("tests/data/families.txt", NULL);
    uint32_t families = 0;

    for (char *line = texts; *line != '\0'; families++) {
        char *const end = strchr(line, '\n');
        char *config;
        const uint64_t parameters = strtoull(line, &config, 10);
        const estimated *e;

        T_REQUIRE(end != NULL);
        *end = '\0';
        e = estimated_text(config + 1);
        if (!CHECK(e != NULL) || !CHECK_EQ(count(e).all, parameters)
            || !CHECK(e->shape.is_known && !e->shape.has_unknown_layers))
            T_NOTE("%.300s", strstr(config, "model_type"));
        line = end + 1;
    }
    CHECK_GE(families, 70);
    free(texts);
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

    check_kind(&s->kinds[0], 12, BERTHI_ATTENTION_NONE, 0, 0);
    CHECK_EQ(s->kind_count, 1);
    CHECK_EQ(s->positions, 512);
    CHECK_EQ(s->learned_positions, 514);
    CHECK_EQ(s->token_types, 1);
    /* Nor does it matter how far they see: a file may say it in other words. */
    s = &estimated_text(TINY(", \"model_type\": \"modernbert\", \"local_attention\": 128, "
                             "\"layer_types\": [\"full_attention\", \"sliding_attention\", "
                             "\"sliding_attention\", \"full_attention\"]"))->shape;
    check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_NONE, 0, 0);
    CHECK_EQ(s->kind_count, 1);
    CHECK_EQ(s->token_types, 0);
    /* All layers are one, which is stored once. */
    s = &estimated_text(TINY(", \"model_type\": \"albert\""))->shape;
    CHECK_EQ(s->layer_sets, 1);
    CHECK_EQ(s->embedding, 128);
    check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_NONE, 0, 0);
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
    check_kind(&s->kinds[1], 32, BERTHI_ATTENTION_HEADS, 0, 0);
    s = &estimated_text("{\"model_type\": \"whisper\", \"d_model\": 64, "
                        "\"encoder_layers\": 3, \"decoder_layers\": 2, "
                        "\"decoder_attention_heads\": 4, \"decoder_ffn_dim\": 128, "
                        "\"vocab_size\": 100, \"num_hidden_layers\": 3}")->shape;
    CHECK_EQ(s->encoder_layers, 3);
    CHECK_EQ(s->layers, 2);
    CHECK_EQ(s->sound_bands, 80);
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
    check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    check_kind(&s->kinds[1], 1, BERTHI_ATTENTION_NONE, 0, 0);
    check_kind(&s->kinds[2], 1, BERTHI_ATTENTION_HEADS, 0, 0);
    check_kind(&s->kinds[3], 1, BERTHI_ATTENTION_NONE, 0, 4);
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
    check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[0].state_elements, 32 * 8);
    s = &estimated_text(TINY(", \"model_type\": \"recurrent_gemma\", \"block_types\": "
                             "[\"recurrent\", \"attention\"], "
                             "\"attention_window_size\": 8"))->shape;
    CHECK_EQ(s->kind_count, 2);
    check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    check_kind(&s->kinds[1], 2, BERTHI_ATTENTION_HEADS, 8, 0);
    CHECK_EQ(s->kinds[0].state_elements, 64); /* one for each of its width */
    CHECK_EQ(s->kinds[0].convolution_elements, 64 * 4);
    /* No norm of an MLP that is not there. */
    e = estimated_text(TINY(", \"model_type\": \"bitnet\", \"num_experts\": 4"));
    T_REQUIRE(e != NULL);
    for (uint32_t i = 0; i < e->weights.count; i++)
        CHECK_GE(e->weights.items[i].shape[0], 1);
    /* Numbers of experts in a model that has none. */
    s = &estimated_text(TINY(", \"num_experts\": 16384, \"is_moe\": false"))->shape;
    check_kind(&s->kinds[0], 4, BERTHI_ATTENTION_HEADS, 0, 0);
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

static void
test_unknown(void)
{
    const estimated *e = estimated_text(TINY(", \"model_type\": \"new\", "
                                             "\"layer_types\": [\"x\", \"full_attention\", "
                                             "\"full_attention\", \"full_attention\"]"));

    T_REQUIRE(e != NULL);
    CHECK(!e->shape.is_known);
    CHECK(e->shape.has_unknown_layers);
    CHECK_EQ(e->shape.kind_count, 1);
    CHECK_STR(berthi_shape_family_name(&e->shape), "other");
    CHECK_EQ(e->shape.kinds[0].kv_heads, 4);
    CHECK_EQ(e->shape.kinds[0].key_dim, 16);
    /* 4 layers of 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64, 2 * 6400, 64 */
    CHECK_EQ(count(e).all, 4 * (16384 + 24576 + 128) + 12800 + 64);
    /* Widths by layer: the most that they can be. */
    e = estimated_text("{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": 100, "
                       "\"num_attention_heads\": 4, \"intermediate_size\": [8, 24]}");
    T_REQUIRE(e != NULL);
    CHECK(e->shape.has_unknown_layers);
    CHECK_EQ(e->shape.kinds[0].intermediate, 24);
    /* Heads and experts, too; the same for all is as one number. */
    e = estimated_text(TINY(", \"model_type\": \"llama\", \"num_key_value_heads\": [2, 1, 4, 2]"));
    T_REQUIRE(e != NULL);
    CHECK(e->shape.has_unknown_layers);
    CHECK_EQ(e->shape.kinds[0].kv_heads, 4);
    e = estimated_text(TINY(", \"model_type\": \"hunyuan_v1_moe\", \"num_experts\": 4, "
                            "\"moe_topk\": [2, 2, 2, 2], \"moe_intermediate_size\": [8, 8]"));
    T_REQUIRE(e != NULL);
    CHECK(!e->shape.has_unknown_layers);
    CHECK_EQ(e->shape.kinds[0].experts_used, 2);
    CHECK_EQ(e->shape.kinds[0].expert_intermediate, 8);
    e = estimated_text(TINY(", \"block_ff_dim\": 96")); /* LFM2's own name of it goes first */
    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.kinds[0].intermediate, 96);
    /* A state whose sizes have other names here is no reason to refuse all. */
    e = estimated_text(TINY(", \"model_type\": \"new\", "
                            "\"layer_types\": [\"linear_attention\", \"full_attention\", "
                            "\"full_attention\", \"full_attention\"]"));
    T_REQUIRE(e != NULL);
    CHECK(e->shape.has_unknown_layers);
    check_kind(&e->shape.kinds[0], 4, BERTHI_ATTENTION_HEADS, 0, 0);
}

/* Words narrower than what is between the layers, and no norm behind them. */
static void
test_narrow_words(void)
{
    const estimated *const e = estimated_text(
        "{\"model_type\": \"opt\", \"vocab_size\": 50272, \"hidden_size\": 1024, "
        "\"ffn_dim\": 4096, \"num_hidden_layers\": 24, \"num_attention_heads\": 16, "
        "\"word_embed_proj_dim\": 512, \"max_position_embeddings\": 2048, "
        "\"do_layer_norm_before\": false}");

    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.embedding, 512);
    CHECK_EQ(count(e).all, 331196416); /* of facebook/opt-350m */
}

/* Where the language model's numbers and ties are looked for. */
static void
test_nested(void)
{
    const estimated *e =
        estimated_text("{\"model_type\": \"llava\", \"hidden_size\": 7, "
                       "\"text_config\": {\"model_type\": \"llama\", "
                       "\"vocab_size\": 32064}, \"vision_config\": {}}");

    T_REQUIRE(e != NULL);
    CHECK(e->shape.is_known && e->shape.has_tower && !e->shape.ties_embeddings);
    CHECK_EQ(e->shape.hidden, 4096);
    CHECK_EQ(e->shape.vocabulary, 32064);
    CHECK_EQ(e->shape.layers, 32);
    CHECK_EQ(e->shape.kinds[0].intermediate, 11008);
    e = estimated_text("{\"model_type\": \"x\", \"tie_word_embeddings\": true, "
                       "\"dtype\": \"float16\", "
                       "\"llm_config\": " TINY(", \"tie_word_embeddings\": false") "}");
    T_REQUIRE(e != NULL);
    CHECK(e->shape.ties_embeddings);
    CHECK_EQ(e->shape.dtype, BERTH_F16);
    e = estimated_text("{\"audio_config\": {}, "
                       "\"text_config\": " TINY(", \"tie_word_embeddings\": true, "
                                                "\"quantization_config\": {}") "}");
    T_REQUIRE(e != NULL);
    CHECK(e->shape.ties_embeddings && e->shape.has_tower && e->shape.is_quantized);
    e = estimated_text("{\"model_type\": \"qwen2_5_omni\", \"talker_config\": {\"x\": 1}, "
                       "\"thinker_config\": {\"model_type\": \"y\", \"text_config\": "
                       TINY(", \"model_type\": \"qwen2_5_omni_text\"") "}}");
    T_REQUIRE(e != NULL);
    CHECK(e->shape.is_known && e->shape.has_tower && e->shape.is_inner);
    CHECK(e->shape.has_attention_bias);
    CHECK_EQ(estimated_text(TINY(", \"dtype\": \"torch.float32\""))->shape.dtype,
             BERTH_F32);
    CHECK_EQ(estimated_text(TINY(", \"dtype\": \"auto\""))->shape.dtype, BERTH_BF16);
}

/* What stands beside the language model or around it goes by many names. */
static void
test_beside(void)
{
    static const struct {
        const char *more;
        bool has_tower;
    } rows[] = {
        { "\"rope_config\": {\"factor\": 2}", false },
        { "\"quantization_config\": {\"quant_method\": \"fp8\"}", false },
        { "\"encoder\": {\"model_type\": \"x\"}", false },
        { "\"other_config\": null", false },
        { "\"encoder_config\": {\"model_type\": \"granite_speech_encoder\"}", true },
        { "\"acoustic_tokenizer_encoder_config\": {\"model_type\": \"x\"}", true },
        { "\"qformer_config\": {\"model_type\": \"blip_2_qformer\"}", true },
        { "\"vision_config\": {}", true },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *e = estimated_text(
            fixture_format("{\"text_config\": %s, %s}", TINY(""), rows[i].more));

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.has_tower, rows[i].has_tower) || !CHECK(e->shape.is_inner))
            T_NOTE("%s", rows[i].more);
        e = estimated_text(fixture_format("{%s, %s", rows[i].more, &TINY("")[1]));
        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.has_tower, rows[i].has_tower) || !CHECK(!e->shape.is_inner))
            T_NOTE("%s", rows[i].more);
    }
}

#define COMPRESSED(more)                                                                 \
    "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "    \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 32, "           \
    "\"q_lora_rank\": 16, \"o_groups\": 2, \"o_lora_rank\": 8, \"n_routed_experts\": 4, "   \
    "\"num_experts_per_tok\": 2, \"n_shared_experts\": 1, \"moe_intermediate_size\": 24, "  \
    "\"vocab_size\": 100, \"sliding_window\": 8, \"index_n_heads\": 2, "                    \
    "\"index_head_dim\": 16, \"hc_mult\": 2" more "}"

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
        CHECK(t == 0 || count(e).all == all);
        all = count(e).all;
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
    check_kind(&s->kinds[0], 2, BERTHI_ATTENTION_STATE, 0, 0);
    check_kind(&s->kinds[1], 2, BERTHI_ATTENTION_HEADS, 0, 0);
    CHECK_EQ(s->kinds[0].intermediate, 0);
    CHECK_EQ(s->kinds[1].key_dim, 2 * 64 / 4);
    CHECK_EQ(s->kinds[1].state_elements, s->kinds[0].state_elements);
    CHECK_GT(s->kinds[1].state_elements, 0);
    CHECK(!s->has_unknown_layers);
    s = &estimated_text(TINY(", \"model_type\": \"zamba2\""))->shape;
    CHECK(s->has_unknown_layers); /* which of them are not said */
}

/* A model may end in something else than a head of words. */
static void
test_class(void)
{
    static const struct {
        const char *name;
        bool is_other;
        uint64_t head; /* what it has more than the model without one */
    } rows[] = {
        { "LlamaForCausalLM", false, 6400 }, { "GPT2LMHeadModel", false, 6400 },
        { "MarianMTModel", false, 6400 },    { "LlamaModel", false, 0 },
        { "Qwen2_5OmniModel", false, 6400 },
        { "LlamaForSequenceClassification", false, 2 * 64 },
        { "LlamaForTokenClassification", false, 2 * 64 + 2 },
        { "LlamaForQuestionAnswering", false, 2 * 64 + 2 },
        { "GPT2DoubleHeadsModel", true, 0 },
        { "BertForPreTraining", true, 6400 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(
            fixture_format("{\"architectures\": [\"%s\"], %s", rows[i].name, &TINY("")[1]));

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.is_other_class, rows[i].is_other)
            || !CHECK_EQ(count(e).all, 4 * (16384 + 24576 + 128) + 6400 + 64 + rows[i].head))
            T_NOTE("%s", rows[i].name);
    }
}

/* Where an answer begins and ends is told by two labels, or by what is not known. */
static void
test_answers(void)
{
    static const struct {
        const char *type;
        const char *more;
        uint64_t labels;
    } rows[] = {
        { "bert", "", 2 },
        { "bert", ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 3 },
        { "qwen3", ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 2 },
        { "funnel", "", 2 },
        { "mpnet", "", 2 },
        { "tapas", "", 0 },
        { "big_bird", "", 0 },
        { "xlnet", "", 0 },
        { "xlm", "", 0 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_text(fixture_format(
            "{\"model_type\": \"%s\", \"architectures\": [\"TheForQuestionAnswering\"]%s, %s",
            rows[i].type, rows[i].more, &TINY("")[1]));

        T_REQUIRE(e != NULL);
        if (!CHECK_EQ(e->shape.labels, rows[i].labels)
            || !CHECK_EQ(e->shape.is_other_class, rows[i].labels == 0)
            || !CHECK(!e->shape.has_head))
            T_NOTE("%s", rows[i].type);
    }
}

/* OPT's words may be narrower than its layers, and so is what the last of them gives. */
static void
test_narrow_labels(void)
{
    static const char *const classes[] = { "OPTForSequenceClassification",
                                           "OPTForQuestionAnswering" };
    uint64_t base = 0;

    for (size_t i = 0; i < 3; i++) {
        const estimated *const e = estimated_text(fixture_format(
            "{\"model_type\": \"opt\", \"word_embed_proj_dim\": 32, "
            "\"architectures\": [\"%s\"], %s",
            i == 0 ? "OPTModel" : classes[i - 1], &TINY("")[1]));

        T_REQUIRE(e != NULL);
        if (i == 0)
            base = count(e).all;
        else
            CHECK_EQ(count(e).all - base, 2 * 32 + (i == 2 ? 2 : 0));
    }
}

/* ---------------------------------------------------------------------- refusals */

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

/* --------------------------------------------------------------------- bounds */

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

/* Numbers that config.json leaves out, as transformers has them. */
static void
test_left_out(void)
{
    static const struct {
        const char *model_type;
        uint64_t norms;
    } norms[] = {
        { "bamba", 2 }, { "cohere", 1 }, { "cohere2", 1 },
        { "deepseek_v2", 2 }, { "deepseek_v3", 2 }, { "falcon", 1 }, { "gemma", 2 },
        { "gemma2", 4 }, { "gemma3", 4 }, { "gemma3_text", 4 }, { "glm4_moe", 2 },
        { "gpt_neox", 2 }, { "gpt_oss", 2 }, { "granite", 2 }, { "kimi_k2", 2 },
        { "lfm2", 2 }, { "llama4_text", 2 }, { "mistral", 2 }, { "mixtral", 2 },
        { "olmo2", 2 }, { "olmo3", 2 }, { "opt", 2 }, { "phi", 1 }, { "phi3", 2 },
        { "qwen2", 2 }, { "qwen2_moe", 2 }, { "qwen2_5_vl", 2 }, { "qwen2_vl", 2 },
        { "qwen3", 2 }, { "qwen3_moe", 2 }, { "qwen3_next", 2 }, { "smollm3", 2 },
        { "starcoder2", 2 },
    };
    const berthi_shape *s = &estimated_text("{\"model_type\": \"llama\"}")->shape;

    CHECK_EQ(s->kinds[0].heads, 32);
    CHECK_EQ(s->kinds[0].kv_heads, 32);
    CHECK_EQ(s->hidden, 4096);
    CHECK_EQ(s->layers, 32);
    CHECK_EQ(s->vocabulary, 32000);
    CHECK_EQ(s->kinds[0].intermediate, 11008);
    s = &estimated_text("{\"model_type\": \"mistral\"}")->shape;
    CHECK_EQ(s->kinds[0].heads, 32);
    CHECK_EQ(s->kinds[0].kv_heads, 8);
    CHECK_EQ(s->hidden, 4096);
    CHECK_EQ(s->layers, 32);
    CHECK_EQ(s->vocabulary, 32000);
    CHECK_EQ(s->kinds[0].intermediate, 14336);
    for (uint32_t i = 0; i < 2; i++) {
        s = &estimated_text(fixture_format("{\"model_type\": \"%s\", \"hidden_size\": 64, "
                                           "\"num_hidden_layers\": 6, \"sliding_window\": 8, "
                                           "\"intermediate_size\": 128}",
                                           i == 0 ? "gemma3" : "gemma3_text"))->shape;
        CHECK_EQ(s->kinds[0].heads, 8);
        CHECK_EQ(s->kinds[0].kv_heads, 4);
        CHECK_EQ(s->kinds[0].key_dim, 256);
        CHECK_EQ(s->vocabulary, 262208);
        CHECK_EQ(s->kinds[0].count, 5);
    }
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        s = &estimated_text(fixture_format("{\"model_type\": \"%s\", \"hidden_size\": 64, "
                                           "\"num_hidden_layers\": 6, \"vocab_size\": 9, "
                                           "\"num_attention_heads\": 4, "
                                           "\"sliding_window\": 8, "
                                           "\"intermediate_size\": 128}",
                                           norms[i].model_type))->shape;
        if (!CHECK_EQ(s->layer_norms, norms[i].norms) || !CHECK(s->is_known))
            T_NOTE("%s", norms[i].model_type);
    }
    /* A sixteenth of the hidden size, rounded up; twice as wide as it. */
    s = &estimated_text("{\"model_type\": \"mamba\", \"hidden_size\": 257, "
                        "\"num_hidden_layers\": 1, \"vocab_size\": 9}")->shape;
    CHECK_EQ(s->state.step_rank, 17);
    CHECK_EQ(s->state.inner, 514);
    CHECK_EQ(s->state.key_dim, 16);
    CHECK_EQ(s->state.kernel, 4);
    s = &estimated_text("{\"model_type\": \"mamba\", \"hidden_size\": 256, \"expand\": 3, "
                        "\"time_step_rank\": \"auto\", \"num_hidden_layers\": 1, "
                        "\"vocab_size\": 9}")->shape;
    CHECK_EQ(s->state.step_rank, 16);
    CHECK_EQ(s->state.inner, 768);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_published_parameters);
    T_RUN(test_parameters_of_families);
    T_RUN(test_dense);
    T_RUN(test_multi_query);
    T_RUN(test_classic);
    T_RUN(test_windows);
    T_RUN(test_experts);
    T_RUN(test_states);
    T_RUN(test_first_layers);
    T_RUN(test_marks);
    T_RUN(test_rules);
    T_RUN(test_families);
    T_RUN(test_many_kinds);
    T_RUN(test_many_weights);
    T_RUN(test_many_weights_of_zaya);
    T_RUN(test_too_many_own);
    T_RUN(test_both_ways);
    T_RUN(test_sound);
    T_RUN(test_halves);
    T_RUN(test_index);
    T_RUN(test_shared_index);
    T_RUN(test_unknown);
    T_RUN(test_narrow_words);
    T_RUN(test_nested);
    T_RUN(test_beside);
    T_RUN(test_compressed);
    T_RUN(test_shared);
    T_RUN(test_class);
    T_RUN(test_answers);
    T_RUN(test_narrow_labels);
    T_RUN(test_refusals);
    T_RUN(test_bounds);
    T_RUN(test_left_out);
    T_MAIN_END;
}
