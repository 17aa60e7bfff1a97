/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rules.c - which tensor gets which encoding: against what the real library
 * wrote and recorded (tests/data/models), against what was found by trying its
 * releases with experts, and the user's own rules.
 */
#include "quant/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fault.h"
#include "tests/models.h"
#include "tests/ruled.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

/* ------------------------------------------------------- the library's own words */

/* q: quantized; t: after transposition; b, h, f: stored as BF16, F16, F32. */
static char
letter_of(const berthi_decision *decision)
{
    if (decision->encoding != BERTH_ENCODING_NATIVE)
        return decision->is_transposed ? 't' : 'q';
    return decision->dtype == BERTH_BF16 ? 'b' : decision->dtype == BERTH_F16 ? 'h' : 'f';
}

static void
check_variant(ruled *s, const char *line)
{
    char name[64];
    char encoding[16];
    char dtype[16];
    char skips[128];
    char expected[256];
    char actual[256] = "";
    berthi_rules_options options;

    T_REQUIRE(sscanf(line, "variant %63s %15s %15s %127s %255s", name, encoding, dtype,
                     skips, expected) == 5);
    s->m.dtype = berthi_format_dtype_word(dtype);
    options = ruled_skips(s, BERTHI_ERA_HF5, skips);
    options.type = strcmp(encoding, "nf4") == 0   ? BERTH_ENCODING_NF4
                   : strcmp(encoding, "fp4") == 0 ? BERTH_ENCODING_FP4
                                                  : BERTH_ENCODING_INT8;
    ruled_set(s, options, NULL);
    T_REQUIRE(s->m.tensor_count < sizeof actual);
    for (uint32_t i = 0; i < s->m.tensor_count; i++) {
        const berthi_decision decision = berthi_rules_decide(s->rules, i);

        actual[i] = letter_of(&decision);
        CHECK(decision.encoding == BERTH_ENCODING_NATIVE
              || decision.encoding == options.type);
        CHECK_EQ(decision.is_per_expert, false);
    }
    if (!CHECK_STR(actual, expected))
        T_NOTE("%s %s", s->m.class_name, line);
}

static void
test_golden(void)
{
    static const char *const files[] = { "llama.txt", "qwen3.txt", "gpt2.txt",
                                         "mixtral.txt", "opt.txt", "t5.txt" };
    uint32_t variants = 0;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ruled s = ruled_load(context, files[i]);

        for (uint32_t k = 0; k < s.m.line_count; k++, variants++)
            check_variant(&s, s.m.lines[k]);
        ruled_end(&s);
    }
    CHECK_EQ(variants, 24);
}

static uint32_t
count_skips(ruled *s, berthi_era era)
{
    uint32_t count;

    ruled_set(s, (berthi_rules_options){ .era = era }, NULL);
    (void)berthi_rules_skips(s->rules, &count);
    return count;
}

/* No head, nothing tied, no last parameter: no entry, not one for "". */
static void
test_no_skips(void)
{
    ruled s = ruled_read(context, "class Unheard\nconfig {}\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++)
        CHECK_EQ(count_skips(&s, (berthi_era)era), 0);
    ruled_end(&s);
}

static void
test_skip_hits(void)
{
    ruled s = ruled_load(context, "llama.txt");
    const berthi_skip *skips;
    uint32_t count;

    ruled_set(&s, ruled_skips(&s, BERTHI_ERA_HF5, "o_proj,nothing,model.layers.0.self_attn"),
              NULL);
    (void)ruled_count(&s);
    skips = berthi_rules_skips(s.rules, &count);
    T_REQUIRE(CHECK_EQ(count, 3));
    CHECK_EQ(skips[0].origin, BERTHI_SKIP_USER);
    CHECK_STR(skips[1].text, "nothing");
    CHECK_EQ(berthi_rules_find_idle_skip(s.rules, 0), 1);
    CHECK_EQ(berthi_rules_find_idle_skip(s.rules, 2), BERTHI_NO_SKIP);
    CHECK_EQ(berthi_rules_find_idle_skip(s.rules, 3), BERTHI_NO_SKIP);
    ruled_end(&s);
}

static int
compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, without repetitions, commas between them. */
static void
write_skips(const ruled *s, char *out, size_t capacity)
{
    const char *sorted[64];
    uint32_t count;
    const berthi_skip *const skips = berthi_rules_skips(s->rules, &count);
    size_t length = 0;

    T_REQUIRE(count <= 64);
    out[0] = '\0';
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = skips[i].text;
    qsort(sorted, count, sizeof *sorted, compare_texts);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0)
            length += (size_t)snprintf(out + length, capacity - length, "%s%s",
                                       length > 0 ? "," : "", sorted[i]);
}

/* The lists that 5.23 and 4.57 made for real models. */
static void
test_recorded_skips(void)
{
    char *const text = model_file("skips.txt");
    const char *at = text;
    uint32_t lists = 0;
    ruled s = { .context = context };

    while (model_read(context, &at, &s.m)) {
        char era[16];
        char given[128];
        char expected[512];
        char actual[512];
        berthi_era number = BERTHI_ERA_HF5;

        T_REQUIRE(s.m.line_count == 1);
        T_REQUIRE(sscanf(s.m.lines[0], "skips %15s %127s %511s", era, given, expected) == 3);
        CHECK(berthi_era_can_parse(era, &number));
        ruled_set(&s, ruled_skips(&s, number, given), NULL);
        write_skips(&s, actual, sizeof actual);
        if (!CHECK_STR(actual, expected))
            T_NOTE("%s %s", s.m.class_name, era);
        ruled_end(&s);
        lists++;
    }
    CHECK_EQ(lists, 48);
    free(text);
}

/* ----------------------------------------------------------------------- experts */

static void
test_experts(void)
{
    static const char w1[] = "model.layers.0.block_sparse_moe.experts.0.w1.weight";
    static const char gate[] = "model.layers.0.block_sparse_moe.gate.weight";
    ruled s = ruled_load(context, "mixtral.txt");
    uint32_t linear;

    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    ruled_check(&s, w1, "fused experts");
    ruled_check(&s, gate, "no linear layer");
    linear = ruled_count(&s);
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .takes_experts = true },
              NULL);
    ruled_check(&s, w1, "experts");
    ruled_check(&s, gate, "no linear layer");
    CHECK_EQ(ruled_decide(&s, w1).is_per_expert, false);
    CHECK_EQ(ruled_count(&s), linear + 2 * 3 * 3);
    /* In 4.x every expert was a linear layer, and so was the router. */
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF4 }, NULL);
    ruled_check(&s, w1, "linear layer");
    CHECK_EQ(ruled_is_quantized(&s, gate), true);
    /* Entries are matched against the names in memory. */
    ruled_set(&s, ruled_skips(&s, BERTHI_ERA_HF5, "model.layers.0.mlp"), NULL);
    ruled_check(&s, w1, "fused experts");
    ruled_end(&s);
    s = ruled_load(context, "mixtral.txt");
    {
        berthi_rules_options options =
            ruled_skips(&s, BERTHI_ERA_HF5, "model.layers.0.mlp.experts");

        options.takes_experts = true;
        ruled_set(&s, options, NULL);
    }
    ruled_check(&s, w1, "skip list: model.layers.0.mlp.experts");
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.1.block_sparse_moe.experts.0.w1.weight"), true);
    ruled_end(&s);
}

static void
test_stacked_experts(void)
{
    static const char stack[] = "model.layers.0.mlp.experts.gate_up_proj";
    ruled s = ruled_read(context, "class GptOssForCausalLM\ntype gpt_oss\nconfig {}\n"
                         "BF16 4x16x32 model.layers.0.mlp.experts.gate_up_proj\n"
                         "BF16 4x32 model.layers.0.mlp.experts.gate_up_proj_bias\n"
                         "BF16 4x16 model.layers.0.mlp.router.weight\n"
                         "BF16 16x16 model.layers.0.self_attn.q_proj.weight\n");
    berthi_decision decision;

    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    ruled_check(&s, stack, "fused experts");
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .takes_experts = true },
              NULL);
    decision = ruled_decide(&s, stack);
    CHECK_EQ(decision.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(decision.is_per_expert, true);
    CHECK_EQ(decision.cause, BERTHI_CAUSE_EXPERTS);
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.0.mlp.experts.gate_up_proj_bias"), false);
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.0.mlp.router.weight"), false);
    /* Rows of matrices only. */
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .takes_experts = true,
                                          .type = BERTH_ENCODING_INT8 }, NULL);
    ruled_check(&s, stack, "shape");
    CHECK_EQ(ruled_decide(&s, stack).is_per_expert, false);
    CHECK_EQ(ruled_decide(&s, "model.layers.0.self_attn.q_proj.weight").encoding,
             BERTH_ENCODING_INT8);
    ruled_end(&s);
}

/* ------------------------------------------------------ not loaded as it is stored */

/* Each class that the library rearranges weights of, one of them, and what gets it. */
static const struct {
    const char *class_name;
    const char *weight;
    const char *skips; /* beside automatic ones: ends of names, "v_proj" of "qkv_proj", too */
} remade[] = {
    { "GteForMaskedLM", "gte.encoder.layer.0.attention.qkv_proj.weight",
      "q_proj,k_proj,v_proj" },
    { "GteForMaskedLM", "gte.encoder.layer.0.mlp.up_gate_proj.weight",
      "gate_proj,up_proj" },
    { "HrmTextForCausalLM", "model.H_module.layers.0.attn.gqkv_proj.weight",
      "gate_proj,q_proj,k_proj,v_proj" },
    { "HrmTextForCausalLM", "model.L_module.layers.0.mlp.gate_up_proj.weight",
      "gate_proj,up_proj" },
    { "InklingForConditionalGeneration", "model.llm.layers.0.mlp.w13_dn.weight",
      "gate_proj,up_proj,w13_dn" },
    { "JinaEmbeddingsV3ForMaskedLM", "roberta.encoder.layers.0.mixer.Wqkv.weight",
      "q_proj,k_proj,v_proj,Wqkv" },
    { "Kimi_K25ForConditionalGeneration", "vision_tower.encoder.blocks.0.wqkv.weight",
      "q_proj,k_proj,v_proj,wqkv" },
    { "MiniMaxM3SparseForConditionalGeneration",
      "language_model.model.layers.0.mlp.gate_proj.weight", "gate_up_proj,gate_proj" },
    { "MiniMaxM3SparseForConditionalGeneration",
      "language_model.model.layers.0.mlp.up_proj.weight", "gate_up_proj,up_proj" },
    { "MiniMaxM3SparseForConditionalGeneration",
      "language_model.model.layers.0.block_sparse_moe.shared_experts.gate_proj.weight",
      "gate_up_proj,gate_proj" },
    { "MiniMaxM3SparseForConditionalGeneration",
      "language_model.model.layers.0.block_sparse_moe.shared_experts.up_proj.weight",
      "gate_up_proj,up_proj" },
    { "MistralLarge4ForConditionalGeneration",
      "vision_encoder.transformer.layers.0.attention.wk.weight", "k_proj,wk" },
    { "MistralLarge4ForConditionalGeneration",
      "vision_encoder.transformer.layers.0.attention.wq.weight", "q_proj,wq" },
    { "Molmo2ForConditionalGeneration",
      "model.transformer.blocks.0.self_attn.att_proj.weight",
      "q_proj,k_proj,v_proj,att_proj" },
    { "Molmo2ForConditionalGeneration", "model.transformer.blocks.0.mlp.ff_proj.weight",
      "gate_proj,up_proj,ff_proj" },
    { "Nemotron3_5TranscribeForConditionalGeneration",
      "ctc_timestamp.decoder.transformer.layers.0.attn.w_qkv.weight",
      "q_proj,k_proj,v_proj,w_qkv" },
    { "NemotronH_Omni_Reasoning_V3",
      "vision_model.radio_model.model.blocks.0.attn.qkv.weight",
      "q_proj,k_proj,v_proj,qkv" },
    { "NomicBertForMaskedLM", "nomic_bert.encoder.layers.0.attn.Wqkv.weight",
      "q_proj,k_proj,v_proj,Wqkv" },
    { "QianfanOCRForConditionalGeneration", "vision_model.encoder.layers.0.attn.qkv.weight",
      "q_proj,k_proj,v_proj,qkv" },
    { "Step3p7ForConditionalGeneration",
      "vision_model.transformer.resblocks.0.attn.in_proj_weight", "q_proj,k_proj,v_proj" },
    { "UnlimitedOcrForConditionalGeneration",
      "model.vision_model.transformer.layers.0.self_attn.qkv_proj.weight",
      "q_proj,k_proj,v_proj" },
};

/* The list without the automatic entries, which come first. */
static void
check_spelt_behind(ruled *s, const char *expected)
{
    berthi_skip_words words;
    berth_error error;
    char text[512] = "";
    size_t length = 0;
    uint32_t count;
    const berthi_skip *const skips = berthi_rules_skips(s->rules, &count);
    uint32_t own = 0;

    for (uint32_t i = 0; i < count; i++)
        own += skips[i].origin != BERTHI_SKIP_FP32; /* which loaders add by themselves */
    (void)ruled_count(s);
    T_REQUIRE(CHECK_EQ(berthi_rules_spell_skips(s->rules, &words, &error), BERTH_OK));
    CHECK(words.is_other);
    T_REQUIRE(CHECK(words.count >= own));
    for (uint32_t i = own; i < words.count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                   i > own ? "," : "", words.texts[i]);
    if (!CHECK_STR(text, expected))
        T_NOTE("%s", s->m.class_name);
}

/* Left plain, and so are all modules that get it; a rule of the user's is followed. */
static void
test_remade(void)
{
    for (size_t i = 0; i < sizeof remade / sizeof *remade; i++) {
        char text[512];
        ruled s;

        snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 24x8 %s\n"
                 "BF16 8x8 vision_encoder.transformer.layers.1.attention.wv.weight\n",
                 remade[i].class_name, remade[i].weight);
        s = ruled_read(context, text);
        ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
        ruled_check(&s, remade[i].weight, "not loaded as stored");
        check_spelt_behind(&s, remade[i].skips);
        ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5_0 }, NULL);
        CHECK_EQ(ruled_is_quantized(&s, remade[i].weight), false);
        ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, "quantize *\n");
        CHECK_EQ(ruled_is_quantized(&s, remade[i].weight), true);
        ruled_end(&s);
    }
}

/* What is encoded on its way into memory no loader has to divide, join or find again. */
static void
test_remade_in_memory(void)
{
    static const char in_proj[] =
        "vision_model.transformer.resblocks.0.attn.in_proj_weight";
    berthi_rules_options options = { .takes_remade = true };
    ruled s;

    for (size_t i = 0; i < sizeof remade / sizeof *remade; i++) {
        char text[512];

        snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 24x8 %s\n",
                 remade[i].class_name, remade[i].weight);
        s = ruled_read(context, text);
        options = ruled_skips(&s, BERTHI_ERA_HF5, "[]");
        options.takes_remade = true;
        ruled_set(&s, options, NULL);
        if (!CHECK_EQ(ruled_is_quantized(&s, remade[i].weight), true))
            T_NOTE("%s", remade[i].weight);
        ruled_end(&s);
    }
    s = ruled_read(context, "class DeepseekV4ForCausalLM\nconfig {}\nBF16 8x8 head.weight\n");
    options = ruled_skips(&s, BERTHI_ERA_HF5, "[]");
    options.type = BERTH_ENCODING_INT8;
    options.takes_remade = true;
    ruled_set(&s, options, NULL);
    CHECK_EQ(ruled_is_quantized(&s, "head.weight"), true);
    ruled_end(&s);
    /* INT8 calls its statistics by the module, which this name does not tell. */
    s = ruled_read(context, "class Step3p7ForConditionalGeneration\nconfig {}\n"
                   "BF16 24x8 vision_model.transformer.resblocks.0.attn.in_proj_weight\n");
    options = ruled_skips(&s, BERTHI_ERA_HF5, "[]");
    options.type = BERTH_ENCODING_INT8;
    options.takes_remade = true;
    ruled_set(&s, options, NULL);
    ruled_check(&s, in_proj, "not loaded as stored");
    ruled_end(&s);
}

/* What INT8 has beside a weight is looked for by another module's name; 4 bits have theirs. */
static void
test_alone(void)
{
    static const char *const cases[][2] = {
        { "DeepseekV4ForCausalLM", "head.weight" },
        { "Inkling2ForCausalLM", "model.llm.unembed.weight" },
        { "Inkling2ForConditionalGeneration", "model.llm.unembed.weight" },
        { "InklingForConditionalGeneration", "model.llm.unembed.weight" },
        { "UnlimitedOcrForConditionalGeneration", "model.projector.layers.weight" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_rules_options options;
        char text[512];
        ruled s;

        snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 8x8 %s\n", cases[i][0],
                 cases[i][1]);
        s = ruled_read(context, text);
        options = ruled_skips(&s, BERTHI_ERA_HF5, "[]");
        ruled_set(&s, options, NULL);
        if (!CHECK_EQ(ruled_is_quantized(&s, cases[i][1]), true))
            T_NOTE("%s", cases[i][0]);
        options.type = BERTH_ENCODING_INT8;
        ruled_set(&s, options, NULL);
        ruled_check(&s, cases[i][1], "not loaded as stored");
        options.era = BERTHI_ERA_HF4;
        ruled_set(&s, options, NULL);
        CHECK_EQ(ruled_is_quantized(&s, cases[i][1]), true);
        ruled_end(&s);
    }
}

/* 4.x has none of these classes, and layers of other names are loaded as they are. */
static void
test_not_remade(void)
{
    static const char fused[] = "nomic_bert.encoder.layers.0.attn.Wqkv.weight";
    static const char text_q[] = "layers.0.attention.wq.weight";
    ruled s = ruled_read(context, "class NomicBertForMaskedLM\nconfig {}\n"
                         "BF16 24x8 nomic_bert.encoder.layers.0.attn.Wqkv.weight\n"
                         "BF16 8x8 nomic_bert.encoder.layers.0.attn.out_proj.weight\n"
                         "BF16 8x8 nomic_bert.layers.1.self_attn.q_proj.weight\n");

    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF4 }, NULL);
    CHECK_EQ(ruled_is_quantized(&s, fused), true);
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    CHECK_EQ(ruled_is_quantized(&s, "nomic_bert.encoder.layers.0.attn.out_proj.weight"), true);
    CHECK_EQ(ruled_is_quantized(&s, "nomic_bert.layers.1.self_attn.q_proj.weight"), true);
    /* Where one layer's are quantized the others have their whole names. */
    check_spelt_behind(&s, "nomic_bert.layers.0.self_attn.q_proj,k_proj,v_proj,Wqkv");
    ruled_end(&s);
    s = ruled_read(context, "class MistralLarge4ForConditionalGeneration\nconfig {}\n"
                   "BF16 8x8 layers.0.attention.wq.weight\n"
                   "BF16 8x8 vision_encoder.transformer.layers.0.attention.wv.weight\n");
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    CHECK_EQ(ruled_is_quantized(&s, text_q), true);
    CHECK_EQ(ruled_is_quantized(&s, "vision_encoder.transformer.layers.0.attention.wv.weight"),
             true);
    ruled_end(&s);
}

/* ------------------------------------------------- layers that share their weights */

#define SHARED(n) "model.layers." #n ".shared_transformer."
#define OWN(n) "BF16 8x8 model.layers." #n ".linear.weight\n"

/* Files hold one copy of what Zamba's layers share, and none says who the others are. */
static void
test_shared_by_layers(void)
{
    static const char text[] =
        "class Zamba2ForCausalLM\nconfig {\"num_mem_blocks\": %u}\n"
        "BF16 9x8 model.embed_tokens.weight\n" OWN(9) OWN(10) OWN(11)
        "BF16 8x8 " SHARED(9) "self_attn.q_proj.weight\n"
        "BF16 4x8 " SHARED(9) "feed_forward.gate_up_proj_adapter_list.0.0.weight\n"
        "BF16 4x8 " SHARED(9) "feed_forward.gate_up_proj_adapter_list.1.0.weight\n"
        "BF16 8x8 " SHARED(10) "self_attn.k_proj.weight\n";
    static const char *const firsts[] = {
        SHARED(9) "self_attn.q_proj.weight",
        SHARED(9) "feed_forward.gate_up_proj_adapter_list.0.0.weight",
        SHARED(9) "feed_forward.gate_up_proj_adapter_list.1.0.weight",
    };
    static const struct {
        uint32_t blocks;
        bool is_first_plain;
        bool is_second_plain;
    } cases[] = { { 1, true, true }, { 2, true, false }, { 3, false, false } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char filled[sizeof text + 16];
        ruled s;

        snprintf(filled, sizeof filled, text, cases[i].blocks);
        s = ruled_read(context, filled);
        ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
        CHECK_EQ(ruled_is_quantized(&s, "model.layers.9.linear.weight"), true);
        for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++)
            CHECK_EQ(!ruled_is_quantized(&s, firsts[k]), cases[i].is_first_plain);
        if (cases[i].blocks > 1) /* else that layer is none of its own */
            CHECK_EQ(!ruled_is_quantized(&s, SHARED(10) "self_attn.k_proj.weight"),
                     cases[i].is_second_plain);
        ruled_end(&s);
    }
}

/* -------------------------------------------------------------- other obstacles */

static void
test_obstacles(void)
{
    ruled s = ruled_read(context, "class LlamaForCausalLM\ntype llama\nconfig {}\n"
                         "I64 16x16 model.layers.0.self_attn.q_proj.weight\n"
                         "F64 16x16 model.layers.0.self_attn.k_proj.weight\n"
                         "BF16 0x16 model.layers.0.self_attn.v_proj.weight\n"
                         "F8_E4M3 16x16 model.layers.0.self_attn.o_proj.weight\n"
                         "F32 16x16 model.layers.0.mlp.up_proj.weight\n"
                         "BF16 16x16x2 model.layers.0.mlp.down_proj.weight\n");

    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    ruled_check(&s, "model.layers.0.self_attn.q_proj.weight", "dtype");
    ruled_check(&s, "model.layers.0.self_attn.o_proj.weight", "dtype");
    ruled_check(&s, "model.layers.0.self_attn.v_proj.weight", "shape");
    ruled_check(&s, "model.layers.0.mlp.down_proj.weight", "no linear layer");
    CHECK_EQ(ruled_decide(&s, "model.layers.0.self_attn.q_proj.weight").dtype, BERTH_I64);
    /* Floats are first loaded as the model's dtype. */
    CHECK_EQ(ruled_decide(&s, "model.layers.0.mlp.up_proj.weight").dtype, BERTH_BF16);
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.0.mlp.up_proj.weight"), true);
    /* But those that nobody can cast. */
    ruled_check(&s, "model.layers.0.self_attn.k_proj.weight", "dtype");
    CHECK_EQ(ruled_decide(&s, "model.layers.0.self_attn.k_proj.weight").dtype, BERTH_F64);
    ruled_end(&s);
}

/* ----------------------------------------------------------------- user's rules */

static void
test_rules_order(void)
{
    ruled s = ruled_load(context, "llama.txt");

    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
              "int8 *.self_attn.*           # attention in eight bits\n"
              "keep *.layers.1.mlp.*\n"
              "auto *.up_proj.weight\n"
              "fp4  model.layers.0.mlp.gate_proj.weight\n"
              "quantize lm_head.weight\n"
              "keep *.mlp.down_proj.weight\n");
    CHECK_EQ(ruled_decide(&s, "model.layers.0.self_attn.q_proj.weight").encoding,
             BERTH_ENCODING_INT8);
    ruled_check(&s, "model.layers.0.self_attn.q_proj.weight",
                "rule line 1: int8 *.self_attn.*");
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.1.mlp.up_proj.weight"), false);
    ruled_check(&s, "model.layers.0.mlp.up_proj.weight", "linear layer");
    CHECK_EQ(ruled_decide(&s, "model.layers.0.mlp.gate_proj.weight").encoding,
             BERTH_ENCODING_FP4);
    CHECK_EQ(ruled_decide(&s, "lm_head.weight").encoding, BERTH_ENCODING_NF4);
    ruled_check(&s, "lm_head.weight", "rule line 5: quantize lm_head.weight");
    ruled_check(&s, "model.layers.0.mlp.down_proj.weight",
                "rule line 6: keep *.mlp.down_proj.weight");
    /* A rule that quantizes does not take what cannot be quantized. */
    ruled_check(&s, "model.norm.weight", "no linear layer");
    ruled_end(&s);
}

static void
test_conditions(void)
{
    ruled s = ruled_read(context, "class LlamaForCausalLM\ntype llama\nconfig {}\n"
                         "BF16 16x32 a.weight\nF32 16x64 b.weight\n"
                         "BF16 4x16x32 c.weight\nBF16 16 d.weight\n"
                         "F16 8x33 e.weight\nBF16 - f\n");
    static const struct {
        const char *rule;
        const char *expected; /* of a to f: which the rule has decided */
    } cases[] = {
        { "fp4 *", "abc-e-" },
        { "int8 *", "ab--e-" },
        { "keep *", "abcdef" },
        { "keep * rank=1", "---d--" },
        { "keep * rank=0,3", "--c--f" },
        { "keep * rank=2", "ab--e-" },
        { "keep * shape=16x32", "a-----" },
        { "keep * shape=16x*", "ab----" },
        { "keep * shape=16x33+", "-b----" },
        { "keep * shape=16x32+", "ab----" },
        { "keep * shape=8+x33", "----e-" },
        { "keep * shape=9+x33 optional", "------" },
        { "keep * shape=*x*x*", "--c---" },
        { "keep * shape=*", "---d--" },
        { "keep * dtype=bf16", "a-cd-f" },
        { "keep * dtype=f32,float16", "-b--e-" },
        { "keep * dtype=bf16 rank=2,3", "a-c---" },
        { "keep ?.weight", "abcde-" },
        { "keep [!a-d]*", "----ef" },
        { "keep a.weight", "a-----" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char actual[7] = "------";
        berth_error error;

        ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, cases[i].rule);
        for (uint32_t k = 0; k < 6; k++)
            if (berthi_rules_decide(s.rules, k).cause == BERTHI_CAUSE_RULE)
                actual[k] = (char)('a' + (int)k);
        if (!CHECK_STR(actual, cases[i].expected))
            T_NOTE("%s", cases[i].rule);
        CHECK_EQ(berthi_rules_check(s.rules, &error), BERTH_OK);
    }
    ruled_end(&s);
}

static void
test_keep_and_only(void)
{
    static const char *const keep[] = { "*.q_proj.weight", "lm_*" };
    static const char *const only[] = { "*.layers.0.*", "*.up_proj.weight" };
    ruled s = ruled_load(context, "llama.txt");
    berth_error error;

    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .keep = keep,
                                          .keep_count = 2, .only = only, .only_count = 2 },
              "quantize *.k_proj.weight\nint8 *.q_proj.weight optional\n");
    ruled_check(&s, "model.layers.0.self_attn.q_proj.weight", "keep: *.q_proj.weight");
    ruled_check(&s, "lm_head.weight", "keep: lm_*");
    ruled_check(&s, "model.layers.1.self_attn.k_proj.weight",
                "not among the only ones");
    ruled_check(&s, "model.layers.0.self_attn.k_proj.weight",
                "rule line 1: quantize *.k_proj.weight");
    ruled_check(&s, "model.layers.1.mlp.gate_proj.weight", "not among the only ones");
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.1.mlp.up_proj.weight"), true);
    /* What is not quantized anyway has its own cause. */
    ruled_check(&s, "model.norm.weight", "no linear layer");
    CHECK_EQ(berthi_rules_check(s.rules, &error), BERTH_OK);
    ruled_end(&s);
}

/* ---------------------------------------------------------------------- GPT-2 */

static void
test_conv1d(void)
{
    ruled s = ruled_load(context, "gpt2.txt");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        ruled_set(&s, (berthi_rules_options){ .era = (berthi_era)era },
                  "int8 *.c_fc.weight\nkeep *.1.*.c_proj.weight");
        CHECK_EQ(ruled_decide(&s, "transformer.h.0.attn.c_attn.weight").is_transposed, true);
        CHECK_EQ(ruled_decide(&s, "transformer.h.0.mlp.c_fc.weight").is_transposed, true);
        CHECK_EQ(ruled_decide(&s, "transformer.h.1.mlp.c_proj.weight").is_transposed, false);
        CHECK_EQ(ruled_decide(&s, "transformer.wte.weight").is_transposed, false);
    }
    ruled_end(&s);
}

/* --------------------------------------------------------------------- failures */

#define LONG_SKIPS 32

static berth_status
do_everything(void *user, berth_context *fresh, berth_error *error)
{
    static const char *const keep[] = { "*.q_proj.*" };
    static const char *const only[] = { "model.*" };
    static const char text[] = "int8 *.self_attn.*\nkeep lm_head.weight rank=2 # why\n";
    const model *const m = user;
    const berthi_architecture_options layout = model_options(m, BERTHI_ERA_HF5);
    berthi_rules_options options = { .era = BERTHI_ERA_HF5, .dtype = BERTH_BF16,
                                     .type = BERTH_ENCODING_NF4, .keep = keep,
                                     .keep_count = 1, .only = only, .only_count = 1 };
    /* So long that they need blocks of memory of their own. */
    char long_skip[1024];
    const char *skips[LONG_SKIPS];
    berthi_architecture *architecture = NULL;
    berthi_rules *rules = NULL;
    berthi_skip_words skips_spelt;
    berthi_rules_file file;
    berth_status status =
        berthi_rules_file_parse(fresh, text, strlen(text), "f", &file, error);

    CHECK(status == BERTH_OK || file.rules == NULL);
    options.file = &file;
    memset(long_skip, 'a', sizeof long_skip);
    long_skip[sizeof long_skip - 1] = '\0';
    for (size_t i = 0; i < LONG_SKIPS; i++)
        skips[i] = long_skip;
    options.has_skips = true;
    options.skips = skips;
    options.skip_count = LONG_SKIPS;
    if (status == BERTH_OK)
        status = berthi_architecture_create(fresh, &layout, &m->source, &architecture, error);
    CHECK_EQ(status == BERTH_OK, architecture != NULL);
    if (status == BERTH_OK)
        status = berthi_rules_create(fresh, &options, architecture, &m->source, &rules, error);
    CHECK_EQ(status == BERTH_OK, rules != NULL);
    for (uint32_t i = 0; i < m->source.count && status == BERTH_OK; i++)
        (void)berthi_rules_decide(rules, i);
    if (status == BERTH_OK)
        status = berthi_rules_spell_skips(rules, &skips_spelt, error);
    berthi_rules_destroy(rules);
    berthi_architecture_destroy(architecture);
    berthi_rules_file_fini(&file);
    return status;
}

static void
test_faults(void)
{
    ruled s = ruled_load(context, "t5.txt");
    const fault_counts counts = fault_loop("rules", do_everything, &s.m);

    CHECK_EQ(counts.survived, 0);
    CHECK_GT(counts.memory, 20);
    ruled_end(&s);
    berthi_rules_destroy(NULL);
}

/* The last test: nothing is left of the others. */
static void
test_all_given_back(void)
{
    vacant_check_memory(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_golden);
    T_RUN(test_recorded_skips);
    T_RUN(test_no_skips);
    T_RUN(test_skip_hits);
    T_RUN(test_experts);
    T_RUN(test_stacked_experts);
    T_RUN(test_remade);
    T_RUN(test_remade_in_memory);
    T_RUN(test_alone);
    T_RUN(test_not_remade);
    T_RUN(test_shared_by_layers);
    T_RUN(test_obstacles);
    T_RUN(test_rules_order);
    T_RUN(test_conditions);
    T_RUN(test_keep_and_only);
    T_RUN(test_conv1d);
    T_RUN(test_faults);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
