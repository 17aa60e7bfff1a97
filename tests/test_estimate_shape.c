/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_estimate_shape.c - config.json as numbers: parameters in all, where they are
 * looked for, and what a file leaves out.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/estimated_shape.h"
#include "tests/fixture.h"
#include "tests/t.h"

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
        { "qwen3-next-80b-a3b", 79674391296, 79000338432 },
        { "gpt-oss-20b", 20914757184, 19747307520 },
        { "gpt2", 124439808, 84934656 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_config(rows[i].name);

        if (!CHECK_EQ(estimated_count(e).all, rows[i].all)
            || !CHECK_EQ(estimated_count(e).linear, rows[i].linear) || !CHECK(e->shape.is_known))
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
        if (!CHECK_EQ(estimated_count(e).all, rows[i].all))
            T_NOTE("%s", rows[i].text);
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
        if (!CHECK(e != NULL) || !CHECK_EQ(estimated_count(e).all, parameters)
            || !CHECK(e->shape.is_known && !e->shape.has_unknown_layers))
            T_NOTE("%.300s", strstr(config, "model_type"));
        line = end + 1;
    }
    CHECK_GE(families, 70);
    free(texts);
}

/* Without elements or a name. */
static uint32_t
count_empty(const estimated *e)
{
    uint32_t empty = 0;

    for (uint32_t i = 0; i < e->weights.count; i++) {
        const berthi_weight *const w = &e->weights.items[i];

        empty += w->count == 0 || w->shape[0] == 0 || (w->rank == 2 && w->shape[1] == 0)
                 || w->module == NULL;
    }
    return empty;
}

/* Layers of these are made in a way of their own, in which there are no experts. */
static bool
ignores_experts(const char *config)
{
    return strstr(config, "\"mobilebert\"") != NULL || strstr(config, "\"convbert\"") != NULL
           || strstr(config, "\"squeezebert\"") != NULL;
}

/* The same with numbers of other classes: whatever comes of it, what is empty is no weight. */
static void
test_numbers_apart(void)
{
    static const char *const added[] = {
        "\"num_local_experts\": 32",
        "\"feed_forward_proj\": \"gated-gelu\"",
        "\"num_local_experts\": 2, \"decoder_sparse_step\": 2",
        "\"kv_lora_rank\": 8, \"qk_rope_head_dim\": 8",
        ("\"linear_num_value_heads\": 8, \"layer_types\": [\"linear_attention\", "
         "\"linear_attention\"], \"num_hidden_layers\": 2"),
    };
    char *const texts = fixture_read("tests/data/families.txt", NULL);
    uint32_t ignoring = 0;

    for (char *line = texts; *line != '\0';) {
        char *const end = strchr(line, '\n');
        char *config;
        const uint64_t parameters = strtoull(line, &config, 10);

        *end = '\0';
        for (size_t i = 0; i < sizeof added / sizeof *added; i++) {
            const estimated *const e =
                estimated_text(fixture_format("{%s, %s", added[i], config + 2));
            const bool is_ignored = i == 0 && ignores_experts(config);

            ignoring += is_ignored;
            if (e != NULL
                && (!CHECK_EQ(count_empty(e), 0)
                    || (is_ignored && !CHECK_EQ(estimated_count(e).all, parameters))))
                T_NOTE("%s: %.300s", added[i], strstr(config, "model_type"));
        }
        line = end + 1;
    }
    CHECK_GE(ignoring, 20);
    free(texts);
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
    CHECK_EQ(estimated_count(e).all, 4 * (16384 + 24576 + 128) + 12800 + 64);
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
    estimated_check_kind(&e->shape.kinds[0], 4, BERTHI_ATTENTION_HEADS, 0, 0);
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
    CHECK_EQ(estimated_count(e).all, 331196416); /* of facebook/opt-350m */
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
        { "\"attn_config\": {\"model_type\": \"\"}", false },
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
    T_RUN(test_families);
    T_RUN(test_numbers_apart);
    T_RUN(test_unknown);
    T_RUN(test_narrow_words);
    T_RUN(test_nested);
    T_RUN(test_beside);
    T_RUN(test_left_out);
    T_MAIN_END;
}
