/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rules_skips.c - lists of modules to skip: what they match, against what was
 * found by trying the real library's releases with single ones, and what config.json
 * is told so that it skips the same.
 */
#include "quant/rules.h"

#include <stdio.h>
#include <string.h>

#include "tests/models.h"
#include "tests/ruled.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

/* -------------------------------------------------------- what skip lists match */

/* Twelve layers, so that 1 is the beginning of 10 and 11. */
static ruled
long_llama(void)
{
    char text[16384];
    size_t length = 0;

    length += (size_t)snprintf(text, sizeof text,
                               "class LlamaForCausalLM\ntype llama\nconfig {}\n"
                               "BF16 32x16 model.embed_tokens.weight\n"
                               "BF16 32x16 lm_head.weight\nBF16 16 model.norm.weight\n");
    for (int i = 0; i < 12; i++)
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "BF16 16x16 model.layers.%d.self_attn.o_proj.weight\n"
                                   "BF16 16x16 model.layers.%d.mlp.gate.weight\n"
                                   "BF16 16x16 model.layers.%d.mlp.gate_proj.weight\n"
                                   "BF16 16x16 model.layers.%d.shared_mlp.fc1.weight\n",
                                   i, i, i, i);
    return ruled_read(context, text);
}

static uint32_t
count_with(ruled *s, berthi_era era, const char *skips)
{
    ruled_set(s, ruled_skips(s, era, skips), NULL);
    return ruled_count(s);
}

static void
test_matching(void)
{
    /* Of 49 linear layers: 12 x 4 and the head. */
    static const struct {
        const char *skips;
        uint32_t hf4;
        uint32_t hf5_14;
        uint32_t hf5;
    } cases[] = {
        { "[]", 49, 49, 49 },
        { "auto", 48, 48, 48 },
        { "lm_head", 48, 48, 48 },
        { "model.layers.1", 45, 37, 45 }, /* 10 and 11, too, before 5.21 */
        { "model.layers.1.", 49, 37, 37 }, /* a dot is any character: 10. and 11., too */
        { "model.layers.11", 45, 45, 45 },
        { "fc1", 37, 37, 37 },            /* a component and a suffix */
        { "proj", 49, 25, 25 },           /* a suffix without a boundary */
        { "gate_proj", 37, 37, 37 },
        { "shared_mlp", 37, 49, 49 },     /* in the middle: only 4.x */
        { "mlp", 13, 49, 49 },            /* "shared_mlp." holds "mlp." */
        { "mlp.gate", 49, 37, 37 },
        { "model.layers.0.mlp.gate", 48, 47, 48 },
        { "model", 1, 1, 1 },             /* every layer, not the head */
        { "mod", 49, 1, 49 },
        { "model.layers.[01]", 49, 33, 41 },
        { "model.layers.(3|5)\\.mlp", 49, 45, 45 },
        { ".*fc1", 49, 37, 37 },
        { "odel.layers.1", 45, 49, 49 },  /* a part, but not at the beginning */
        { "model.layers.1.self_attn.o_proj", 48, 48, 48 },
        { "model-layers-1", 49, 49, 49 },
        { "model.layers.1.self_attn.o_proj.weight", 49, 49, 49 },
        { "fc1,gate_proj", 25, 25, 25 },
    };
    ruled s = long_llama();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t expected[] = {
            [BERTHI_ERA_HF4] = cases[i].hf4,
            [BERTHI_ERA_HF5_0] = cases[i].hf5_14,
            [BERTHI_ERA_HF5_14] = cases[i].hf5_14,
            [BERTHI_ERA_HF5] = cases[i].hf5,
        };

        for (int era = 0; era < BERTHI_ERA_COUNT; era++)
            if (!CHECK_EQ(count_with(&s, (berthi_era)era, cases[i].skips), expected[era]))
                T_NOTE("%s: skips %s", berthi_era_name((berthi_era)era), cases[i].skips);
    }
    ruled_end(&s);
}

/* "" is at the end of every name, and before every dot. */
static void
test_empty_entry(void)
{
    ruled s = long_llama();
    const char *const skips[] = { "" };

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        ruled_set(&s, (berthi_rules_options){ .era = (berthi_era)era, .has_skips = true,
                                              .skips = skips, .skip_count = 1 }, NULL);
        CHECK_EQ(ruled_count(&s), era == BERTHI_ERA_HF4 ? 1 : 0);
    }
    ruled_end(&s);
}

static void
test_bad_entries(void)
{
    static const char *const bad[] = { "layers.(1", "*", "a**", "x{2}", "(?=a)", "\\b" };
    ruled s = long_llama();

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const berthi_rules_options options = { .era = BERTHI_ERA_HF5, .has_skips = true,
                                               .skips = &bad[i], .skip_count = 1 };
        berth_error error;

        CHECK_EQ(ruled_try(&s, options, NULL, &error), BERTH_EINVAL);
        CHECK(s.rules == NULL);
        CHECK_EQ(error.reason, BERTH_REASON_RULES);
        CHECK_CONTAINS(error.message, "no pattern");
        CHECK_NE(error.tensor[0], '\0');
    }
    /* 4.x compares texts. */
    CHECK_EQ(count_with(&s, BERTHI_ERA_HF4, "layers.(1"), 49);
    ruled_end(&s);
}

static void
test_falcon(void)
{
    ruled s = ruled_read(context,
                         "class FalconForCausalLM\ntype falcon\nconfig {}\n"
                         "BF16 32x16 transformer.word_embeddings.weight\n"
                         "BF16 48x16 transformer.h.0.self_attention.query_key_value.weight\n"
                         "BF16 16x16 transformer.h.0.self_attention.dense.weight\n"
                         "BF16 64x16 transformer.h.0.mlp.dense_h_to_4h.weight\n"
                         "BF16 16x64 transformer.h.0.mlp.dense_4h_to_h.weight\n"
                         "BF16 16 transformer.ln_f.weight\n");

    CHECK_EQ(count_with(&s, BERTHI_ERA_HF5, "auto"), 0);
    CHECK_EQ(count_with(&s, BERTHI_ERA_HF5_14, "auto"), 0);
    CHECK_EQ(count_with(&s, BERTHI_ERA_HF5_0, "auto"), 4);
    CHECK_EQ(count_with(&s, BERTHI_ERA_HF4, "auto"), 4);
    ruled_check(&s, "transformer.word_embeddings.weight", "no linear layer");
    ruled_end(&s);
}

/* Under [] a tied head shares the unquantized embedding; an untied one is quantized. */
static void
test_heads(void)
{
    static const char text[] = "class Qwen3ForCausalLM\ntype qwen3\nconfig "
                               "{\"tie_word_embeddings\": %s}\n"
                               "BF16 32x16 model.embed_tokens.weight\n"
                               "BF16 32x16 lm_head.weight\n"
                               "BF16 16x16 model.layers.0.mlp.up_proj.weight\n";
    char lines[512];
    ruled s;

    snprintf(lines, sizeof lines, text, "true");
    s = ruled_read(context, lines);
    ruled_set(&s, ruled_skips(&s, BERTHI_ERA_HF5, "[]"), NULL);
    CHECK_EQ(ruled_is_quantized(&s, "lm_head.weight"), false);
    ruled_check(&s, "lm_head.weight", "tied");
    CHECK_EQ(ruled_is_quantized(&s, "model.layers.0.mlp.up_proj.weight"), true);
    CHECK_EQ(ruled_is_quantized(&s, "model.embed_tokens.weight"), false);
    ruled_end(&s);

    snprintf(lines, sizeof lines, text, "false");
    s = ruled_read(context, lines);
    ruled_set(&s, ruled_skips(&s, BERTHI_ERA_HF5, "[]"), NULL);
    CHECK_EQ(ruled_is_quantized(&s, "lm_head.weight"), true);
    ruled_set(&s, ruled_skips(&s, BERTHI_ERA_HF5, "auto"), NULL);
    ruled_check(&s, "lm_head.weight", "skip list: lm_head (output head)");
    ruled_check(&s, "model.layers.0.mlp.up_proj.weight", "linear layer");
    ruled_end(&s);
}

/* T5's wo: never quantized; float32 in a float16 model, and in 4.x whenever quantized. */
static void
test_float32_modules(void)
{
    static const char wo[] = "decoder.block.0.layer.2.DenseReluDense.wo.weight";
    static const struct {
        int32_t dtype;
        berthi_era era;
        int32_t stored;
    } cases[] = {
        { BERTH_BF16, BERTHI_ERA_HF5, BERTH_BF16 }, { BERTH_F16, BERTHI_ERA_HF5, BERTH_F32 },
        { BERTH_F32, BERTHI_ERA_HF5, BERTH_F32 },   { BERTH_BF16, BERTHI_ERA_HF4, BERTH_F32 },
        { BERTH_F16, BERTHI_ERA_HF4, BERTH_F32 },   { BERTH_F16, BERTHI_ERA_HF5_0, BERTH_F32 },
    };
    ruled s = ruled_load(context, "t5.txt");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.m.dtype = cases[i].dtype;
        /* The list is added to the user's, too. */
        ruled_set(&s, ruled_skips(&s, cases[i].era, "shared"), NULL);
        CHECK_EQ(ruled_decide(&s, wo).encoding, BERTH_ENCODING_NATIVE);
        CHECK_EQ(ruled_decide(&s, wo).dtype, cases[i].stored);
        ruled_check(&s, wo, "skip list: wo (kept in float32)");
        CHECK_EQ(ruled_decide(&s, "decoder.block.0.layer.2.DenseReluDense.wi_0.weight").encoding,
                 BERTH_ENCODING_NF4);
        CHECK_EQ(ruled_decide(&s, "shared.weight").dtype, cases[i].dtype);
    }
    ruled_end(&s);
}

/* A layer with a dtype of its own has it only while it is not quantized. */
static void
test_own_dtype(void)
{
    static const char gate[] = "model.layers.0.mlp.gate.wg.weight";
    const char *const keep[] = { "*.wg.weight" };
    ruled s = ruled_read(context, "class HunYuanMoEV1ForCausalLM\nconfig {}\ndtype bfloat16\n"
                         "BF16 4x4 model.layers.0.mlp.gate.wg.weight\n"
                         "BF16 4 model.norm.weight\n");

    ruled_set(&s, ruled_skips(&s, BERTHI_ERA_HF5, "auto"), NULL);
    CHECK_EQ(s.architecture->parameter_of[0]->dtype, BERTH_F32);
    CHECK_EQ(ruled_decide(&s, gate).encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(ruled_decide(&s, gate).dtype, BERTH_BF16);
    ruled_set(&s, (berthi_rules_options){ .keep = keep, .keep_count = 1 }, NULL);
    CHECK_EQ(ruled_decide(&s, gate).encoding, BERTH_ENCODING_NATIVE);
    CHECK_EQ(ruled_decide(&s, gate).dtype, BERTH_F32);
    ruled_end(&s);
}

static void
test_strict_float32(void)
{
    ruled s = ruled_read(context, "class DeepseekV3ForCausalLM\ntype deepseek_v3\nconfig {}\n"
                         "F32 8 model.layers.0.mlp.gate.e_score_correction_bias\n"
                         "BF16 8x8 model.layers.0.self_attn.o_proj.weight\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        ruled_set(&s, (berthi_rules_options){ .era = (berthi_era)era }, NULL);
        CHECK_EQ(ruled_decide(&s, "model.layers.0.mlp.gate.e_score_correction_bias").dtype,
                 BERTH_F32);
        CHECK_EQ(ruled_decide(&s, "model.layers.0.self_attn.o_proj.weight").dtype, BERTH_BF16);
    }
    ruled_end(&s);
}

/* -------------------------------------------------------- what config.json is told */

/* The list after all decisions, commas between; "-": that of the options. */
static void
check_spelt(ruled *s, berthi_rules_options options, const char *file,
            const char *expected)
{
    berthi_skip_words words;
    berth_error error;
    char text[512] = "";
    size_t length = 0;

    ruled_set(s, options, file);
    (void)ruled_count(s);
    memset(&words, 0xa5, sizeof words);
    T_REQUIRE(CHECK_EQ(berthi_rules_spell_skips(s->rules, &words, &error), BERTH_OK));
    for (uint32_t i = 0; words.is_other && i < words.count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                   i > 0 ? "," : "", words.texts[i]);
    CHECK_STR(words.is_other ? text : "-", expected);
}

static berthi_rules_options
keeping(const char *const *glob)
{
    return (berthi_rules_options){ .keep = glob, .keep_count = 1 };
}

/* As transformers quantizes: its own list says it, in every release. */
static void
test_spelt_as_asked(void)
{
    static const char *const files[] = { "llama.txt", "qwen3.txt", "gpt2.txt",
                                         "mixtral.txt", "opt.txt", "t5.txt" };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ruled s = ruled_load(context, files[i]);

        for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
            check_spelt(&s, (berthi_rules_options){ .era = (berthi_era)era }, NULL, "-");
            check_spelt(&s, ruled_skips(&s, (berthi_era)era, "q_proj,nothing"), NULL, "-");
        }
        ruled_end(&s);
    }
}

static void
test_spelt_plain_layers(void)
{
    static const char *const one[] = { "*.1.mlp.up_proj.weight" };
    static const char *const kind[] = { "*.up_proj.weight" };
    static const char *const norm[] = { "model.norm.weight" };
    static const char *const only[] = { "*.mlp.*" };
    ruled s = ruled_load(context, "llama.txt");

    check_spelt(&s, keeping(one), NULL, "lm_head,model.layers.1.mlp.up_proj");
    check_spelt(&s, keeping(kind), NULL, "lm_head,up_proj");
    check_spelt(&s, keeping(norm), NULL, "-");
    check_spelt(&s, (berthi_rules_options){ .only = only, .only_count = 1 }, NULL,
                "lm_head,k_proj,o_proj,q_proj,v_proj");
    check_spelt(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                "keep *.0.self_attn.*\n",
                "lm_head,model.layers.0.self_attn.k_proj,model.layers.0.self_attn.o_proj,"
                "model.layers.0.self_attn.q_proj,model.layers.0.self_attn.v_proj");
    /* Of a user's list what stays, and in its order. */
    check_spelt(&s, ruled_skips(&s, BERTHI_ERA_HF5, "nothing,down_proj,lm_head"),
                "keep *.gate_proj.weight\n", "nothing,down_proj,lm_head,gate_proj");
    ruled_end(&s);
}

/* Entries that stand for something quantized go; others of their layers come in. */
static void
test_spelt_quantized_layers(void)
{
    ruled s = ruled_load(context, "llama.txt");

    check_spelt(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                "quantize lm_head.weight\n", "");
    check_spelt(&s, ruled_skips(&s, BERTHI_ERA_HF5, "q_proj,lm_head"),
                "quantize *.0.self_attn.q_proj.weight\n",
                "lm_head,model.layers.1.self_attn.q_proj");
    ruled_end(&s);
    /* What loaders keep in float32 they do not ask the list for. */
    s = ruled_load(context, "t5.txt");
    check_spelt(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                "quantize decoder.block.0.layer.2.DenseReluDense.wo.weight\n", "-");
    ruled_end(&s);
}

/* Names that are almost the beginning of another one are told apart at every byte. */
static void
test_spelt_names_alike(void)
{
    static const char *const port[] = { "m.port.weight" };
    ruled s = ruled_read(context, "class Unheard\ntype unheard\nconfig {}\n"
                         "BF16 16x16 m.port.weight\nBF16 16x16 sort.proj.weight\n"
                         "BF16 16x16 part.proj.weight\nBF16 16x16 pond.proj.weight\n"
                         "BF16 16 z.norm.weight\n");
    berthi_rules_options options = keeping(port);

    options.era = BERTHI_ERA_HF5;
    check_spelt(&s, options, NULL, "z.norm,port");
    ruled_end(&s);
}

/* A name that begins another one's is a pattern where that is not told apart. */
static void
test_spelt_prefixes(void)
{
    static const char *const gate[] = { "model.layers.3.mlp.gate.weight" };
    ruled s = long_llama();
    berthi_rules_options options = keeping(gate);

    options.era = BERTHI_ERA_HF5;
    check_spelt(&s, options, NULL, "lm_head,model.layers.3.mlp.gate");
    options.era = BERTHI_ERA_HF4;
    check_spelt(&s, options, NULL, "lm_head,model.layers.3.mlp.gate");
    options.era = BERTHI_ERA_HF5_0;
    check_spelt(&s, options, NULL, "lm_head,model.layers.3.mlp.gate$");
    ruled_end(&s);
}

static void
check_unused(ruled *s, berthi_rules_options options, const char *file,
             const char *subject, const char *message)
{
    berth_error error;

    ruled_set(s, options, file);
    (void)ruled_count(s);
    CHECK_EQ(berthi_rules_check(s->rules, &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_RULE_UNUSED);
    CHECK_STR(error.tensor, subject);
    CHECK_STR(error.file, file != NULL ? "my.rules" : "");
    CHECK_CONTAINS(error.message, message);
    /* Without the error, too. */
    CHECK_EQ(berthi_rules_check(s->rules, NULL), BERTH_EINVAL);
}

static void
test_unused(void)
{
    static const char *const globs[] = { "lm_head.weight", "nothing" };
    ruled s = ruled_load(context, "llama.txt");
    berth_error error;

    check_unused(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                 "keep lm_head.weight\n\nkeep nothing.*\n", "nothing.*",
                 "the rule in line 3 matches no tensor");
    /* Taken by an earlier rule. */
    check_unused(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                 "keep lm_head.weight\nint8 lm_*\n", "lm_*", "line 2");
    check_unused(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .keep = globs,
                                             .keep_count = 2 }, NULL, "nothing",
                 "what is kept");
    check_unused(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .only = globs,
                                             .only_count = 2 }, NULL, "lm_head.weight",
                 "what alone is quantized");
    ruled_set(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
              "keep nothing optional\nauto *\n");
    (void)ruled_count(&s);
    CHECK_EQ(berthi_rules_check(s.rules, &error), BERTH_OK);
    ruled_end(&s);
}

static void
test_bad_globs(void)
{
    const char *const bad[] = { "a", "b[" };
    ruled s = ruled_load(context, "llama.txt");
    berth_error error;

    CHECK_EQ(ruled_try(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .keep = bad,
                                                   .keep_count = 2 }, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_RULES);
    CHECK_STR(error.tensor, "b[");
    CHECK_CONTAINS(error.message, "keep");
    CHECK_CONTAINS(error.message, "a [ without ]");
    CHECK_EQ(ruled_try(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .only = bad + 1,
                                                   .only_count = 1 }, NULL, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "only");
    ruled_end(&s);
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
    T_RUN(test_matching);
    T_RUN(test_empty_entry);
    T_RUN(test_bad_entries);
    T_RUN(test_falcon);
    T_RUN(test_heads);
    T_RUN(test_float32_modules);
    T_RUN(test_own_dtype);
    T_RUN(test_strict_float32);
    T_RUN(test_spelt_as_asked);
    T_RUN(test_spelt_plain_layers);
    T_RUN(test_spelt_quantized_layers);
    T_RUN(test_spelt_names_alike);
    T_RUN(test_spelt_prefixes);
    T_RUN(test_unused);
    T_RUN(test_bad_globs);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
