/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rules.c - which tensor gets which encoding: against what the real library
 * wrote and recorded (tests/data/models), against what was found by trying its
 * releases with single skip lists and experts, and the user's own rules.
 */
#include "quant/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fault.h"
#include "tests/models.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

/* A model, its layout and rules over it. */
typedef struct setting {
    model m;
    berthi_architecture *architecture;
    berthi_rules *rules;
    berthi_rules_file file;
    const char *skips[16];
    char words[512];
} setting;

static setting
read_setting(const char *text)
{
    setting s;

    memset(&s, 0, sizeof s);
    CHECK(model_read(context, &text, &s.m));
    return s;
}

static setting
load_setting(const char *name)
{
    char *const text = model_file(name);
    const setting s = read_setting(text);

    free(text);
    return s;
}

static void
end_rules(setting *s)
{
    berthi_rules_destroy(s->rules);
    berthi_architecture_destroy(s->architecture);
    berthi_rules_file_fini(&s->file);
    s->rules = NULL;
    s->architecture = NULL;
    memset(&s->file, 0, sizeof s->file);
}

static void
end_setting(setting *s)
{
    end_rules(s);
    model_fini(&s->m);
}

/* New rules over the model; `file` is a text of rules or NULL. */
static berth_status
try_rules(setting *s, berthi_rules_options options, const char *file, berth_error *error)
{
    end_rules(s);
    if (file != NULL) {
        CHECK_EQ(berthi_rules_file_parse(context, file, strlen(file), "my.rules", &s->file,
                                         error), BERTH_OK);
        options.file = &s->file;
    }
    if (options.type == BERTH_ENCODING_NATIVE)
        options.type = BERTH_ENCODING_NF4;
    options.dtype = s->m.dtype;
    s->architecture = model_architecture(context, &s->m, options.era);
    return berthi_rules_create(context, &options, s->architecture, &s->m.source, &s->rules,
                               error);
}

static void
set_rules(setting *s, berthi_rules_options options, const char *file)
{
    berth_error error;

    if (!CHECK_EQ(try_rules(s, options, file, &error), BERTH_OK))
        T_NOTE("%s: %s", error.tensor, error.message);
}

/* "auto", "[]" or entries with commas. */
static berthi_rules_options
with_skips(setting *s, berthi_era era, const char *list)
{
    berthi_rules_options options = { .era = era };

    snprintf(s->words, sizeof s->words, "%s", list);
    options.has_skips = strcmp(list, "auto") != 0;
    options.skips = s->skips;
    if (options.has_skips && strcmp(list, "[]") != 0)
        for (char *at = strtok(s->words, ","); at != NULL; at = strtok(NULL, ","))
            s->skips[options.skip_count++] = at;
    return options;
}

static berthi_decision
decide(setting *s, const char *name)
{
    return berthi_rules_decide(s->rules, model_position(&s->m, name));
}

static bool
is_quantized(setting *s, const char *name)
{
    return decide(s, name).encoding != BERTH_ENCODING_NATIVE;
}

static uint32_t
count_quantized(setting *s)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->m.tensor_count; i++)
        count += berthi_rules_decide(s->rules, i).encoding != BERTH_ENCODING_NATIVE;
    return count;
}

static void
check_explained(setting *s, const char *name, const char *expected)
{
    const berthi_decision decision = decide(s, name);
    char text[256];

    berthi_rules_explain(s->rules, &decision, text, sizeof text);
    CHECK_STR(text, expected);
}

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
check_variant(setting *s, const char *line)
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
    options = with_skips(s, BERTHI_ERA_HF5, skips);
    options.type = strcmp(encoding, "nf4") == 0   ? BERTH_ENCODING_NF4
                   : strcmp(encoding, "fp4") == 0 ? BERTH_ENCODING_FP4
                                                  : BERTH_ENCODING_INT8;
    set_rules(s, options, NULL);
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
        setting s = load_setting(files[i]);

        for (uint32_t k = 0; k < s.m.line_count; k++, variants++)
            check_variant(&s, s.m.lines[k]);
        end_setting(&s);
    }
    CHECK_EQ(variants, 24);
}

static uint32_t
count_skips(setting *s, berthi_era era)
{
    uint32_t count;

    set_rules(s, (berthi_rules_options){ .era = era }, NULL);
    (void)berthi_rules_skips(s->rules, &count);
    return count;
}

/* No head, nothing tied, no last parameter: no entry, not one for "". */
static void
test_no_skips(void)
{
    setting s = read_setting("class Unheard\nconfig {}\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++)
        CHECK_EQ(count_skips(&s, (berthi_era)era), 0);
    end_setting(&s);
}

static void
test_skip_hits(void)
{
    setting s = load_setting("llama.txt");
    const berthi_skip *skips;
    uint32_t count;

    set_rules(&s, with_skips(&s, BERTHI_ERA_HF5, "o_proj,nothing,model.layers.0.self_attn"),
              NULL);
    (void)count_quantized(&s);
    skips = berthi_rules_skips(s.rules, &count);
    T_REQUIRE(CHECK_EQ(count, 3));
    CHECK_EQ(skips[0].origin, BERTHI_SKIP_USER);
    CHECK_STR(skips[1].text, "nothing");
    CHECK_EQ(berthi_rules_find_idle_skip(s.rules, 0), 1);
    CHECK_EQ(berthi_rules_find_idle_skip(s.rules, 2), BERTHI_NO_SKIP);
    CHECK_EQ(berthi_rules_find_idle_skip(s.rules, 3), BERTHI_NO_SKIP);
    end_setting(&s);
}

static int
compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, without repetitions, commas between them. */
static void
write_skips(const setting *s, char *out, size_t capacity)
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
    setting s;

    memset(&s, 0, sizeof s);
    while (model_read(context, &at, &s.m)) {
        char era[16];
        char given[128];
        char expected[512];
        char actual[512];
        berthi_era number = BERTHI_ERA_HF5;

        T_REQUIRE(s.m.line_count == 1);
        T_REQUIRE(sscanf(s.m.lines[0], "skips %15s %127s %511s", era, given, expected) == 3);
        CHECK(berthi_era_can_parse(era, &number));
        set_rules(&s, with_skips(&s, number, given), NULL);
        write_skips(&s, actual, sizeof actual);
        if (!CHECK_STR(actual, expected))
            T_NOTE("%s %s", s.m.class_name, era);
        end_setting(&s);
        lists++;
    }
    CHECK_EQ(lists, 48);
    free(text);
}

/* -------------------------------------------------------- what skip lists match */

/* Twelve layers, so that 1 is the beginning of 10 and 11. */
static setting
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
    return read_setting(text);
}

static uint32_t
count_with(setting *s, berthi_era era, const char *skips)
{
    set_rules(s, with_skips(s, era, skips), NULL);
    return count_quantized(s);
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
    setting s = long_llama();

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
    end_setting(&s);
}

/* "" is at the end of every name, and before every dot. */
static void
test_empty_entry(void)
{
    setting s = long_llama();
    const char *const skips[] = { "" };

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        set_rules(&s, (berthi_rules_options){ .era = (berthi_era)era, .has_skips = true,
                                              .skips = skips, .skip_count = 1 }, NULL);
        CHECK_EQ(count_quantized(&s), era == BERTHI_ERA_HF4 ? 1 : 0);
    }
    end_setting(&s);
}

static void
test_bad_entries(void)
{
    static const char *const bad[] = { "layers.(1", "*", "a**", "x{2}", "(?=a)", "\\b" };
    setting s = long_llama();

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const berthi_rules_options options = { .era = BERTHI_ERA_HF5, .has_skips = true,
                                               .skips = &bad[i], .skip_count = 1 };
        berth_error error;

        CHECK_EQ(try_rules(&s, options, NULL, &error), BERTH_EINVAL);
        CHECK(s.rules == NULL);
        CHECK_EQ(error.reason, BERTH_REASON_RULES);
        CHECK_CONTAINS(error.message, "no pattern");
        CHECK_NE(error.tensor[0], '\0');
    }
    /* 4.x compares texts. */
    CHECK_EQ(count_with(&s, BERTHI_ERA_HF4, "layers.(1"), 49);
    end_setting(&s);
}

static void
test_falcon(void)
{
    setting s = read_setting(
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
    check_explained(&s, "transformer.word_embeddings.weight", "no linear layer");
    end_setting(&s);
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
    setting s;

    snprintf(lines, sizeof lines, text, "true");
    s = read_setting(lines);
    set_rules(&s, with_skips(&s, BERTHI_ERA_HF5, "[]"), NULL);
    CHECK_EQ(is_quantized(&s, "lm_head.weight"), false);
    check_explained(&s, "lm_head.weight", "tied");
    CHECK_EQ(is_quantized(&s, "model.layers.0.mlp.up_proj.weight"), true);
    CHECK_EQ(is_quantized(&s, "model.embed_tokens.weight"), false);
    end_setting(&s);

    snprintf(lines, sizeof lines, text, "false");
    s = read_setting(lines);
    set_rules(&s, with_skips(&s, BERTHI_ERA_HF5, "[]"), NULL);
    CHECK_EQ(is_quantized(&s, "lm_head.weight"), true);
    set_rules(&s, with_skips(&s, BERTHI_ERA_HF5, "auto"), NULL);
    check_explained(&s, "lm_head.weight", "skip list: lm_head (output head)");
    check_explained(&s, "model.layers.0.mlp.up_proj.weight", "linear layer");
    end_setting(&s);
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
    setting s = load_setting("t5.txt");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.m.dtype = cases[i].dtype;
        /* The list is added to the user's, too. */
        set_rules(&s, with_skips(&s, cases[i].era, "shared"), NULL);
        CHECK_EQ(decide(&s, wo).encoding, BERTH_ENCODING_NATIVE);
        CHECK_EQ(decide(&s, wo).dtype, cases[i].stored);
        check_explained(&s, wo, "skip list: wo (kept in float32)");
        CHECK_EQ(decide(&s, "decoder.block.0.layer.2.DenseReluDense.wi_0.weight").encoding,
                 BERTH_ENCODING_NF4);
        CHECK_EQ(decide(&s, "shared.weight").dtype, cases[i].dtype);
    }
    end_setting(&s);
}

/* A layer with a dtype of its own has it only while it is not quantized. */
static void
test_own_dtype(void)
{
    static const char gate[] = "model.layers.0.mlp.gate.wg.weight";
    const char *const keep[] = { "*.wg.weight" };
    setting s = read_setting("class HunYuanMoEV1ForCausalLM\nconfig {}\ndtype bfloat16\n"
                             "BF16 4x4 model.layers.0.mlp.gate.wg.weight\n"
                             "BF16 4 model.norm.weight\n");

    set_rules(&s, with_skips(&s, BERTHI_ERA_HF5, "auto"), NULL);
    CHECK_EQ(s.architecture->parameter_of[0]->dtype, BERTH_F32);
    CHECK_EQ(decide(&s, gate).encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(decide(&s, gate).dtype, BERTH_BF16);
    set_rules(&s, (berthi_rules_options){ .keep = keep, .keep_count = 1 }, NULL);
    CHECK_EQ(decide(&s, gate).encoding, BERTH_ENCODING_NATIVE);
    CHECK_EQ(decide(&s, gate).dtype, BERTH_F32);
    end_setting(&s);
}

static void
test_strict_float32(void)
{
    setting s = read_setting("class DeepseekV3ForCausalLM\ntype deepseek_v3\nconfig {}\n"
                             "F32 8 model.layers.0.mlp.gate.e_score_correction_bias\n"
                             "BF16 8x8 model.layers.0.self_attn.o_proj.weight\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        set_rules(&s, (berthi_rules_options){ .era = (berthi_era)era }, NULL);
        CHECK_EQ(decide(&s, "model.layers.0.mlp.gate.e_score_correction_bias").dtype,
                 BERTH_F32);
        CHECK_EQ(decide(&s, "model.layers.0.self_attn.o_proj.weight").dtype, BERTH_BF16);
    }
    end_setting(&s);
}

/* ----------------------------------------------------------------------- experts */

static void
test_experts(void)
{
    static const char w1[] = "model.layers.0.block_sparse_moe.experts.0.w1.weight";
    static const char gate[] = "model.layers.0.block_sparse_moe.gate.weight";
    setting s = load_setting("mixtral.txt");
    uint32_t linear;

    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    check_explained(&s, w1, "fused experts");
    check_explained(&s, gate, "no linear layer");
    linear = count_quantized(&s);
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .takes_experts = true },
              NULL);
    check_explained(&s, w1, "experts");
    check_explained(&s, gate, "no linear layer");
    CHECK_EQ(decide(&s, w1).is_per_expert, false);
    CHECK_EQ(count_quantized(&s), linear + 2 * 3 * 3);
    /* In 4.x every expert was a linear layer, and so was the router. */
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF4 }, NULL);
    check_explained(&s, w1, "linear layer");
    CHECK_EQ(is_quantized(&s, gate), true);
    /* Entries are matched against the names in memory. */
    set_rules(&s, with_skips(&s, BERTHI_ERA_HF5, "model.layers.0.mlp"), NULL);
    check_explained(&s, w1, "fused experts");
    end_setting(&s);
    s = load_setting("mixtral.txt");
    {
        berthi_rules_options options =
            with_skips(&s, BERTHI_ERA_HF5, "model.layers.0.mlp.experts");

        options.takes_experts = true;
        set_rules(&s, options, NULL);
    }
    check_explained(&s, w1, "skip list: model.layers.0.mlp.experts");
    CHECK_EQ(is_quantized(&s, "model.layers.1.block_sparse_moe.experts.0.w1.weight"), true);
    end_setting(&s);
}

static void
test_stacked_experts(void)
{
    static const char stack[] = "model.layers.0.mlp.experts.gate_up_proj";
    setting s = read_setting("class GptOssForCausalLM\ntype gpt_oss\nconfig {}\n"
                             "BF16 4x16x32 model.layers.0.mlp.experts.gate_up_proj\n"
                             "BF16 4x32 model.layers.0.mlp.experts.gate_up_proj_bias\n"
                             "BF16 4x16 model.layers.0.mlp.router.weight\n"
                             "BF16 16x16 model.layers.0.self_attn.q_proj.weight\n");
    berthi_decision decision;

    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    check_explained(&s, stack, "fused experts");
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .takes_experts = true },
              NULL);
    decision = decide(&s, stack);
    CHECK_EQ(decision.encoding, BERTH_ENCODING_NF4);
    CHECK_EQ(decision.is_per_expert, true);
    CHECK_EQ(decision.cause, BERTHI_CAUSE_EXPERTS);
    CHECK_EQ(is_quantized(&s, "model.layers.0.mlp.experts.gate_up_proj_bias"), false);
    CHECK_EQ(is_quantized(&s, "model.layers.0.mlp.router.weight"), false);
    /* Rows of matrices only. */
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .takes_experts = true,
                                          .type = BERTH_ENCODING_INT8 }, NULL);
    check_explained(&s, stack, "shape");
    CHECK_EQ(decide(&s, stack).is_per_expert, false);
    CHECK_EQ(decide(&s, "model.layers.0.self_attn.q_proj.weight").encoding,
             BERTH_ENCODING_INT8);
    end_setting(&s);
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
check_spelt_behind(setting *s, const char *expected)
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
    (void)count_quantized(s);
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
        setting s;

        snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 24x8 %s\n"
                 "BF16 8x8 vision_encoder.transformer.layers.1.attention.wv.weight\n",
                 remade[i].class_name, remade[i].weight);
        s = read_setting(text);
        set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
        check_explained(&s, remade[i].weight, "not loaded as stored");
        check_spelt_behind(&s, remade[i].skips);
        set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5_0 }, NULL);
        CHECK_EQ(is_quantized(&s, remade[i].weight), false);
        set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, "quantize *\n");
        CHECK_EQ(is_quantized(&s, remade[i].weight), true);
        end_setting(&s);
    }
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
        setting s;

        snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 8x8 %s\n", cases[i][0],
                 cases[i][1]);
        s = read_setting(text);
        options = with_skips(&s, BERTHI_ERA_HF5, "[]");
        set_rules(&s, options, NULL);
        if (!CHECK_EQ(is_quantized(&s, cases[i][1]), true))
            T_NOTE("%s", cases[i][0]);
        options.type = BERTH_ENCODING_INT8;
        set_rules(&s, options, NULL);
        check_explained(&s, cases[i][1], "not loaded as stored");
        options.era = BERTHI_ERA_HF4;
        set_rules(&s, options, NULL);
        CHECK_EQ(is_quantized(&s, cases[i][1]), true);
        end_setting(&s);
    }
}

/* 4.x has none of these classes, and layers of other names are loaded as they are. */
static void
test_not_remade(void)
{
    static const char fused[] = "nomic_bert.encoder.layers.0.attn.Wqkv.weight";
    static const char text_q[] = "layers.0.attention.wq.weight";
    setting s = read_setting("class NomicBertForMaskedLM\nconfig {}\n"
                             "BF16 24x8 nomic_bert.encoder.layers.0.attn.Wqkv.weight\n"
                             "BF16 8x8 nomic_bert.encoder.layers.0.attn.out_proj.weight\n"
                             "BF16 8x8 nomic_bert.layers.1.self_attn.q_proj.weight\n");

    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF4 }, NULL);
    CHECK_EQ(is_quantized(&s, fused), true);
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    CHECK_EQ(is_quantized(&s, "nomic_bert.encoder.layers.0.attn.out_proj.weight"), true);
    CHECK_EQ(is_quantized(&s, "nomic_bert.layers.1.self_attn.q_proj.weight"), true);
    /* Where one layer's are quantized the others have their whole names. */
    check_spelt_behind(&s, "nomic_bert.layers.0.self_attn.q_proj,k_proj,v_proj,Wqkv");
    end_setting(&s);
    s = read_setting("class MistralLarge4ForConditionalGeneration\nconfig {}\n"
                     "BF16 8x8 layers.0.attention.wq.weight\n"
                     "BF16 8x8 vision_encoder.transformer.layers.0.attention.wv.weight\n");
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    CHECK_EQ(is_quantized(&s, text_q), true);
    CHECK_EQ(is_quantized(&s, "vision_encoder.transformer.layers.0.attention.wv.weight"),
             true);
    end_setting(&s);
}

/* -------------------------------------------------------------- other obstacles */

static void
test_obstacles(void)
{
    setting s = read_setting("class LlamaForCausalLM\ntype llama\nconfig {}\n"
                             "I64 16x16 model.layers.0.self_attn.q_proj.weight\n"
                             "F64 16x16 model.layers.0.self_attn.k_proj.weight\n"
                             "BF16 0x16 model.layers.0.self_attn.v_proj.weight\n"
                             "F8_E4M3 16x16 model.layers.0.self_attn.o_proj.weight\n"
                             "F32 16x16 model.layers.0.mlp.up_proj.weight\n"
                             "BF16 16x16x2 model.layers.0.mlp.down_proj.weight\n");

    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, NULL);
    check_explained(&s, "model.layers.0.self_attn.q_proj.weight", "dtype");
    check_explained(&s, "model.layers.0.self_attn.o_proj.weight", "dtype");
    check_explained(&s, "model.layers.0.self_attn.v_proj.weight", "shape");
    check_explained(&s, "model.layers.0.mlp.down_proj.weight", "no linear layer");
    CHECK_EQ(decide(&s, "model.layers.0.self_attn.q_proj.weight").dtype, BERTH_I64);
    /* Floats are first loaded as the model's dtype. */
    CHECK_EQ(decide(&s, "model.layers.0.mlp.up_proj.weight").dtype, BERTH_BF16);
    CHECK_EQ(is_quantized(&s, "model.layers.0.mlp.up_proj.weight"), true);
    /* But those that nobody can cast. */
    check_explained(&s, "model.layers.0.self_attn.k_proj.weight", "dtype");
    CHECK_EQ(decide(&s, "model.layers.0.self_attn.k_proj.weight").dtype, BERTH_F64);
    end_setting(&s);
}

/* ----------------------------------------------------------------- user's rules */

static void
test_rules_order(void)
{
    setting s = load_setting("llama.txt");

    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
              "int8 *.self_attn.*           # attention in eight bits\n"
              "keep *.layers.1.mlp.*\n"
              "auto *.up_proj.weight\n"
              "fp4  model.layers.0.mlp.gate_proj.weight\n"
              "quantize lm_head.weight\n"
              "keep *.mlp.down_proj.weight\n");
    CHECK_EQ(decide(&s, "model.layers.0.self_attn.q_proj.weight").encoding,
             BERTH_ENCODING_INT8);
    check_explained(&s, "model.layers.0.self_attn.q_proj.weight",
                    "rule line 1: int8 *.self_attn.*");
    CHECK_EQ(is_quantized(&s, "model.layers.1.mlp.up_proj.weight"), false);
    check_explained(&s, "model.layers.0.mlp.up_proj.weight", "linear layer");
    CHECK_EQ(decide(&s, "model.layers.0.mlp.gate_proj.weight").encoding,
             BERTH_ENCODING_FP4);
    CHECK_EQ(decide(&s, "lm_head.weight").encoding, BERTH_ENCODING_NF4);
    check_explained(&s, "lm_head.weight", "rule line 5: quantize lm_head.weight");
    check_explained(&s, "model.layers.0.mlp.down_proj.weight",
                    "rule line 6: keep *.mlp.down_proj.weight");
    /* A rule that quantizes does not take what cannot be quantized. */
    check_explained(&s, "model.norm.weight", "no linear layer");
    end_setting(&s);
}

static void
test_conditions(void)
{
    setting s = read_setting("class LlamaForCausalLM\ntype llama\nconfig {}\n"
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

        set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 }, cases[i].rule);
        for (uint32_t k = 0; k < 6; k++)
            if (berthi_rules_decide(s.rules, k).cause == BERTHI_CAUSE_RULE)
                actual[k] = (char)('a' + (int)k);
        if (!CHECK_STR(actual, cases[i].expected))
            T_NOTE("%s", cases[i].rule);
        CHECK_EQ(berthi_rules_check(s.rules, &error), BERTH_OK);
    }
    end_setting(&s);
}

static void
test_keep_and_only(void)
{
    static const char *const keep[] = { "*.q_proj.weight", "lm_*" };
    static const char *const only[] = { "*.layers.0.*", "*.up_proj.weight" };
    setting s = load_setting("llama.txt");
    berth_error error;

    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .keep = keep,
                                          .keep_count = 2, .only = only, .only_count = 2 },
              "quantize *.k_proj.weight\nint8 *.q_proj.weight optional\n");
    check_explained(&s, "model.layers.0.self_attn.q_proj.weight", "keep: *.q_proj.weight");
    check_explained(&s, "lm_head.weight", "keep: lm_*");
    check_explained(&s, "model.layers.1.self_attn.k_proj.weight",
                    "not among the only ones");
    check_explained(&s, "model.layers.0.self_attn.k_proj.weight",
                    "rule line 1: quantize *.k_proj.weight");
    check_explained(&s, "model.layers.1.mlp.gate_proj.weight", "not among the only ones");
    CHECK_EQ(is_quantized(&s, "model.layers.1.mlp.up_proj.weight"), true);
    /* What is not quantized anyway has its own cause. */
    check_explained(&s, "model.norm.weight", "no linear layer");
    CHECK_EQ(berthi_rules_check(s.rules, &error), BERTH_OK);
    end_setting(&s);
}

/* -------------------------------------------------------- what config.json is told */

/* The list after all decisions, commas between; "-": that of the options. */
static void
check_spelt(setting *s, berthi_rules_options options, const char *file,
            const char *expected)
{
    berthi_skip_words words;
    berth_error error;
    char text[512] = "";
    size_t length = 0;

    set_rules(s, options, file);
    (void)count_quantized(s);
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
        setting s = load_setting(files[i]);

        for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
            check_spelt(&s, (berthi_rules_options){ .era = (berthi_era)era }, NULL, "-");
            check_spelt(&s, with_skips(&s, (berthi_era)era, "q_proj,nothing"), NULL, "-");
        }
        end_setting(&s);
    }
}

static void
test_spelt_plain_layers(void)
{
    static const char *const one[] = { "*.1.mlp.up_proj.weight" };
    static const char *const kind[] = { "*.up_proj.weight" };
    static const char *const norm[] = { "model.norm.weight" };
    static const char *const only[] = { "*.mlp.*" };
    setting s = load_setting("llama.txt");

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
    check_spelt(&s, with_skips(&s, BERTHI_ERA_HF5, "nothing,down_proj,lm_head"),
                "keep *.gate_proj.weight\n", "nothing,down_proj,lm_head,gate_proj");
    end_setting(&s);
}

/* Entries that stand for something quantized go; others of their layers come in. */
static void
test_spelt_quantized_layers(void)
{
    setting s = load_setting("llama.txt");

    check_spelt(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                "quantize lm_head.weight\n", "");
    check_spelt(&s, with_skips(&s, BERTHI_ERA_HF5, "q_proj,lm_head"),
                "quantize *.0.self_attn.q_proj.weight\n",
                "lm_head,model.layers.1.self_attn.q_proj");
    end_setting(&s);
    /* What loaders keep in float32 they do not ask the list for. */
    s = load_setting("t5.txt");
    check_spelt(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
                "quantize decoder.block.0.layer.2.DenseReluDense.wo.weight\n", "-");
    end_setting(&s);
}

/* Names that are almost the beginning of another one are told apart at every byte. */
static void
test_spelt_names_alike(void)
{
    static const char *const port[] = { "m.port.weight" };
    setting s = read_setting("class Unheard\ntype unheard\nconfig {}\n"
                             "BF16 16x16 m.port.weight\nBF16 16x16 sort.proj.weight\n"
                             "BF16 16x16 part.proj.weight\nBF16 16x16 pond.proj.weight\n"
                             "BF16 16 z.norm.weight\n");
    berthi_rules_options options = keeping(port);

    options.era = BERTHI_ERA_HF5;
    check_spelt(&s, options, NULL, "z.norm,port");
    end_setting(&s);
}

/* A name that begins another one's is a pattern where that is not told apart. */
static void
test_spelt_prefixes(void)
{
    static const char *const gate[] = { "model.layers.3.mlp.gate.weight" };
    setting s = long_llama();
    berthi_rules_options options = keeping(gate);

    options.era = BERTHI_ERA_HF5;
    check_spelt(&s, options, NULL, "lm_head,model.layers.3.mlp.gate");
    options.era = BERTHI_ERA_HF4;
    check_spelt(&s, options, NULL, "lm_head,model.layers.3.mlp.gate");
    options.era = BERTHI_ERA_HF5_0;
    check_spelt(&s, options, NULL, "lm_head,model.layers.3.mlp.gate$");
    end_setting(&s);
}

static void
check_unused(setting *s, berthi_rules_options options, const char *file,
             const char *subject, const char *message)
{
    berth_error error;

    set_rules(s, options, file);
    (void)count_quantized(s);
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
    setting s = load_setting("llama.txt");
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
    set_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5 },
              "keep nothing optional\nauto *\n");
    (void)count_quantized(&s);
    CHECK_EQ(berthi_rules_check(s.rules, &error), BERTH_OK);
    end_setting(&s);
}

static void
test_bad_globs(void)
{
    const char *const bad[] = { "a", "b[" };
    setting s = load_setting("llama.txt");
    berth_error error;

    CHECK_EQ(try_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .keep = bad,
                                                   .keep_count = 2 }, NULL, &error),
             BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_RULES);
    CHECK_STR(error.tensor, "b[");
    CHECK_CONTAINS(error.message, "keep");
    CHECK_CONTAINS(error.message, "a [ without ]");
    CHECK_EQ(try_rules(&s, (berthi_rules_options){ .era = BERTHI_ERA_HF5, .only = bad + 1,
                                                   .only_count = 1 }, NULL, &error),
             BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "only");
    end_setting(&s);
}

/* ---------------------------------------------------------------------- GPT-2 */

static void
test_conv1d(void)
{
    setting s = load_setting("gpt2.txt");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        set_rules(&s, (berthi_rules_options){ .era = (berthi_era)era },
                  "int8 *.c_fc.weight\nkeep *.1.*.c_proj.weight");
        CHECK_EQ(decide(&s, "transformer.h.0.attn.c_attn.weight").is_transposed, true);
        CHECK_EQ(decide(&s, "transformer.h.0.mlp.c_fc.weight").is_transposed, true);
        CHECK_EQ(decide(&s, "transformer.h.1.mlp.c_proj.weight").is_transposed, false);
        CHECK_EQ(decide(&s, "transformer.wte.weight").is_transposed, false);
    }
    end_setting(&s);
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
    setting s = load_setting("t5.txt");
    const fault_counts counts = fault_loop("rules", do_everything, &s.m);

    CHECK_EQ(counts.survived, 0);
    CHECK_GT(counts.memory, 20);
    end_setting(&s);
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
    T_RUN(test_matching);
    T_RUN(test_empty_entry);
    T_RUN(test_bad_entries);
    T_RUN(test_falcon);
    T_RUN(test_heads);
    T_RUN(test_float32_modules);
    T_RUN(test_own_dtype);
    T_RUN(test_strict_float32);
    T_RUN(test_experts);
    T_RUN(test_stacked_experts);
    T_RUN(test_remade);
    T_RUN(test_alone);
    T_RUN(test_not_remade);
    T_RUN(test_obstacles);
    T_RUN(test_rules_order);
    T_RUN(test_conditions);
    T_RUN(test_keep_and_only);
    T_RUN(test_spelt_as_asked);
    T_RUN(test_spelt_plain_layers);
    T_RUN(test_spelt_quantized_layers);
    T_RUN(test_spelt_names_alike);
    T_RUN(test_spelt_prefixes);
    T_RUN(test_unused);
    T_RUN(test_bad_globs);
    T_RUN(test_conv1d);
    T_RUN(test_faults);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
