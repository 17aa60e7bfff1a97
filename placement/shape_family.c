/* SPDX-License-Identifier: Apache-2.0 */
/* shape_family.c - the table of model types; see shape_family.h. */
#include "placement/shape_family.h"

#include <string.h>

static const berthi_family_names llama = { "q_proj",    "k_proj",  "v_proj",   "o_proj",
                                           "gate_proj", "up_proj", "down_proj" };
static const berthi_family_names phi3 = { "qkv_proj", NULL,           NULL,       "o_proj",
                                          NULL,       "gate_up_proj", "down_proj" };
static const berthi_family_names phi = { "q_proj", "k_proj", "v_proj", "dense",
                                         NULL,     "fc1",    "fc2" };
static const berthi_family_names gpt2 = { "c_attn", NULL,   NULL, "c_proj",
                                          NULL,     "c_fc", "c_proj" };
static const berthi_family_names neox = { "query_key_value", NULL,
                                          NULL,              "dense",
                                          NULL,              "dense_h_to_4h",
                                          "dense_4h_to_h" };
static const berthi_family_names opt = { "q_proj", "k_proj", "v_proj", "out_proj",
                                         NULL,     "fc1",    "fc2" };
static const berthi_family_names bert = { "query", "key",   "value", "dense",
                                          NULL,    "dense", "dense" };
static const berthi_family_names star = { "q_proj", "k_proj", "v_proj", "o_proj",
                                          NULL,     "c_fc",   "c_proj" };
static const berthi_family_names fused_up = { "q_proj", "k_proj",       "v_proj",   "o_proj",
                                              NULL,     "gate_up_proj", "down_proj" };
static const berthi_family_names nano = { "q_proj", "k_proj", "v_proj", "o_proj",
                                          NULL,     "fc1",    "fc2" };
static const berthi_family_names gptj = { "q_proj", "k_proj", "v_proj", "out_proj",
                                          NULL,     "fc_in",  "fc_out" };
static const berthi_family_names codegen = { "qkv_proj", NULL,    NULL,    "out_proj",
                                             NULL,       "fc_in", "fc_out" };
static const berthi_family_names gpt_neo = { "q_proj", "k_proj", "v_proj", "out_proj",
                                             NULL,     "c_fc",   "c_proj" };
static const berthi_family_names mpt = { "Wqkv", NULL,      NULL,       "out_proj",
                                         NULL,   "up_proj", "down_proj" };
static const berthi_family_names t5 = { "q", "k", "v", "o", "wi_0", "wi", "wo" };
static const berthi_family_names mixtral = { "q_proj", "k_proj", "v_proj", "o_proj",
                                             "w1",     "w3",     "w2" };
static const berthi_family_names lfm2 = { "q_proj", "k_proj", "v_proj", "out_proj",
                                          "w1",     "w3",     "w2" };
static const berthi_family_names albert = { "query", "key", "value",     "dense",
                                            NULL,    "ffn", "ffn_output" };
static const berthi_family_names deberta = { "in_proj", NULL,    NULL,   "dense",
                                             NULL,      "dense", "dense" };
static const berthi_family_names deberta_v2 = { "query_proj", "key_proj", "value_proj", "dense",
                                                NULL,         "dense",    "dense" };
static const berthi_family_names distilbert = { "q_lin", "k_lin", "v_lin", "out_lin",
                                                NULL,    "lin1",  "lin2" };
static const berthi_family_names modernbert = { "Wqkv", NULL, NULL, "Wo", NULL, "Wi", "Wo" };
static const berthi_family_names mpnet = { "q", "k", "v", "o", NULL, "dense", "dense" };

#define F(flag) BERTHI_FAMILY_##flag
#define BIASES (F(QKV_BIAS) | F(MLP_BIAS) | F(NORM_BIAS))
#define GPT2_FLAGS \
    (F(PLAIN_MLP) | BIASES | F(POSITIONS) | F(TIES) | F(CLASSIC) | F(FUSED_QKV))
/* BERT has its norms behind the halves of a layer, so one behind the words; others before. */
#define NORM_FIRST_FLAGS \
    (F(PLAIN_MLP) | BIASES | F(POSITIONS) | F(TIES) | F(CLASSIC) | F(BOTH_WAYS) | F(TWO_BIASES))
#define BERT_FLAGS (NORM_FIRST_FLAGS | F(WORD_NORM) | F(NO_LAST_NORM))
#define BART_FLAGS (F(PLAIN_MLP) | BIASES | F(TIES) | F(CLASSIC) | F(ENCODER))
#define GPTJ_FLAGS (F(PLAIN_MLP) | F(MLP_BIAS) | F(NORM_BIAS) | F(HEAD_BIAS) | F(CLASSIC))
#define QWEN3_5_FLAGS (F(HEAD_NORMS) | F(SHARED_GATE) | F(QUERY_GATE) | F(SPLIT_DELTA))

/* Everybody else's: Llama's layer, and no defaults. */
static const berthi_family other = { .model_type = "other", .names = &llama, .norms = 2 };

static const berthi_family families[] = {
    { .model_type = "llama", .names = &llama, .norms = 2, .heads = 32, .hidden = 4096,
      .intermediate = 11008, .layers = 32, .vocabulary = 32000 },
    { .model_type = "albert", .names = &albert, .norms = 2,
      .flags = BERT_FLAGS | F(NARROW) | F(SHARED_LAYERS) },
    { .model_type = "apertus", .names = &llama, .flags = F(PLAIN_MLP) | F(HEAD_NORMS),
      .norms = 2, .numbers = 2 },
    { .model_type = "arcee", .names = &llama, .flags = F(PLAIN_MLP), .norms = 2 },
    { .model_type = "bamba", .names = &llama, .flags = F(LISTED), .norms = 2 },
    { .model_type = "bart", .names = &opt, .norms = 2,
      .flags = BART_FLAGS | F(POSITIONS) | F(TWO_ROWS) | F(WORD_NORM) | F(NO_LAST_NORM) },
    { .model_type = "bert", .names = &bert, .flags = BERT_FLAGS, .norms = 2 },
    { .model_type = "bloom", .names = &neox, .norms = 2,
      .flags = F(PLAIN_MLP) | BIASES | F(TIES) | F(CLASSIC) | F(FUSED_QKV) | F(WORD_NORM) },
    { .model_type = "camembert", .names = &bert, .flags = BERT_FLAGS | F(PADDED), .norms = 2 },
    { .model_type = "codegen", .names = &codegen, .flags = GPTJ_FLAGS | F(FUSED_QKV),
      .norms = 1 },
    { .model_type = "cohere", .names = &llama, .norms = 1,
      .flags = F(TIES) | F(WIDE_NORMS) | F(ASKED_NORMS) },
    { .model_type = "cohere2", .names = &llama, .flags = F(TIES), .norms = 1,
      .window = BERTHI_WINDOW_PATTERN, .pattern = 4 },
    { .model_type = "data2vec-text", .names = &bert, .flags = BERT_FLAGS | F(PADDED),
      .norms = 2 },
    { .model_type = "deberta", .names = &deberta, .norms = 2,
      .flags = BERT_FLAGS | F(FUSED_QKV) | F(PLAIN_KEYS) | F(NO_TYPES) | F(DISTANCES) },
    { .model_type = "deberta-v2", .names = &deberta_v2, .norms = 2,
      .flags = BERT_FLAGS | F(NO_TYPES) | F(DISTANCES) },
    { .model_type = "deepseek_v2", .names = &llama, .norms = 2 },
    { .model_type = "deepseek_v3", .names = &llama, .flags = F(CORRECTION), .norms = 2 },
    { .model_type = "distilbert", .names = &distilbert, .norms = 2,
      .flags = (BERT_FLAGS & ~F(TWO_BIASES)) | F(NO_TYPES) },
    { .model_type = "electra", .names = &bert, .norms = 2,
      .flags = (BERT_FLAGS & ~F(TWO_BIASES)) | F(NARROW) },
    { .model_type = "ernie", .names = &bert, .flags = BERT_FLAGS, .norms = 2 },
    { .model_type = "esm", .names = &bert, .norms = 2,
      .flags = (NORM_FIRST_FLAGS & ~F(TWO_BIASES)) | F(PADDED) | F(NO_TYPES) | F(CONTACTS) },
    { .model_type = "eurobert", .names = &llama, .norms = 2,
      .flags = F(BOTH_WAYS) | F(NO_TYPES) | F(PLAIN_HEAD) },
    { .model_type = "exaone4", .names = &llama, .flags = F(HEAD_NORMS), .norms = 2,
      .window = BERTHI_WINDOW_PATTERN, .pattern = 4 },
    { .model_type = "falcon", .names = &neox, .norms = 1,
      .flags = F(PLAIN_MLP) | F(NORM_BIAS) | F(TIES) | F(FUSED_QKV) | F(USE_BIAS) },
    { .model_type = "falcon_mamba", .names = &llama, .flags = F(TIES) | F(ALL_STATE),
      .norms = 1 },
    { .model_type = "flex_olmo", .names = &llama, .flags = F(WIDE_NORMS), .norms = 2 },
    { .model_type = "gemma", .names = &llama, .flags = F(TIES), .norms = 2 },
    { .model_type = "gemma2", .names = &llama, .flags = F(TIES), .norms = 4,
      .window = BERTHI_WINDOW_PATTERN, .pattern = 2 },
    { .model_type = "gemma3", .names = &llama, .flags = F(TIES) | F(HEAD_NORMS),
      .norms = 4, .window = BERTHI_WINDOW_PATTERN, .pattern = 6, .heads = 8,
      .kv_heads = 4, .head_dim = 256, .vocabulary = 262208 },
    { .model_type = "gemma3_text", .names = &llama, .flags = F(TIES) | F(HEAD_NORMS),
      .norms = 4, .window = BERTHI_WINDOW_PATTERN, .pattern = 6, .heads = 8,
      .kv_heads = 4, .head_dim = 256, .vocabulary = 262208 },
    { .model_type = "gemma3n_text", .names = &llama, .norms = 4,
      .flags = F(TIES) | F(HEAD_NORMS) | F(ALTUP), .window = BERTHI_WINDOW_PATTERN,
      .pattern = 5 },
    { .model_type = "gemma4_text", .names = &llama, .norms = 4,
      .flags = F(TIES) | F(HEAD_NORMS) | F(BESIDE) | F(GLOBAL_HEADS),
      .window = BERTHI_WINDOW_PATTERN, .pattern = 6 },
    { .model_type = "glm", .names = &fused_up, .flags = F(BIAS_QKV_ONLY) | F(FUSED_UP),
      .norms = 2 },
    { .model_type = "glm4", .names = &fused_up, .flags = F(BIAS_QKV_ONLY) | F(FUSED_UP),
      .norms = 4 },
    { .model_type = "glm4_moe", .names = &llama, .norms = 2,
      .flags = F(CORRECTION) | F(BIAS_QKV_ONLY) | F(HEAD_NORMS) | F(ASKED_NORMS) },
    { .model_type = "gpt2", .names = &gpt2, .flags = GPT2_FLAGS, .norms = 2 },
    { .model_type = "gpt_bigcode", .names = &gpt2, .flags = GPT2_FLAGS, .norms = 2 },
    { .model_type = "gpt_neo", .names = &gpt_neo, .norms = 2,
      .flags = F(PLAIN_MLP) | F(MLP_BIAS) | F(NORM_BIAS) | F(OUTPUT_BIAS) | F(POSITIONS)
               | F(TIES) | F(CLASSIC) },
    { .model_type = "gpt_neox", .names = &neox, .norms = 2,
      .flags = F(PLAIN_MLP) | BIASES | F(CLASSIC) | F(FUSED_QKV) },
    { .model_type = "gpt_oss", .names = &fused_up, .norms = 2,
      .flags = F(QKV_BIAS) | F(SINKS) | F(EXPERT_BIAS) | F(FUSED_UP),
      .window = BERTHI_WINDOW_PATTERN, .pattern = 2 },
    { .model_type = "gptj", .names = &gptj, .flags = GPTJ_FLAGS, .norms = 1 },
    { .model_type = "granite", .names = &llama, .norms = 2 },
    { .model_type = "granitemoe", .names = &llama, .norms = 2 },
    { .model_type = "granitemoehybrid", .names = &llama, .flags = F(SHARED_IS_DENSE),
      .norms = 2 },
    { .model_type = "granitemoeshared", .names = &llama, .flags = F(SHARED_IS_DENSE),
      .norms = 2 },
    { .model_type = "jais2", .names = &llama, .flags = F(PLAIN_MLP) | BIASES, .norms = 2 },
    { .model_type = "jina_embeddings_v3", .names = &nano, .norms = 2,
      .flags = BERT_FLAGS & ~F(POSITIONS) },
    { .model_type = "kimi_k2", .names = &llama, .flags = F(CORRECTION), .norms = 2 },
    { .model_type = "lfm2", .names = &lfm2, .flags = F(HEAD_NORMS) | F(TIES) | F(LISTED),
      .norms = 2 },
    { .model_type = "llama4_text", .names = &llama, .flags = F(SHARED_IS_EXPERT),
      .norms = 2, .window = BERTHI_WINDOW_PATTERN, .pattern = 4 },
    { .model_type = "longformer", .names = &bert, .norms = 2,
      .flags = BERT_FLAGS | F(PADDED) | F(GLOBAL_QKV) },
    { .model_type = "m2m_100", .names = &opt, .flags = BART_FLAGS, .norms = 2 },
    { .model_type = "mamba", .names = &llama, .flags = F(TIES) | F(ALL_STATE), .norms = 1 },
    { .model_type = "mamba2", .names = &llama, .flags = F(ALL_STATE) | F(MAMBA2), .norms = 1 },
    { .model_type = "mbart", .names = &opt, .norms = 2,
      .flags = BART_FLAGS | F(POSITIONS) | F(TWO_ROWS) | F(WORD_NORM) },
    { .model_type = "megatron-bert", .names = &bert, .norms = 2,
      .flags = NORM_FIRST_FLAGS },
    { .model_type = "minimax_m2", .names = &llama, .flags = F(WIDE_NORMS) | F(CORRECTION),
      .norms = 2 },
    { .model_type = "mistral", .names = &llama, .norms = 2, .window = BERTHI_WINDOW_ALL,
      .heads = 32, .kv_heads = 8, .hidden = 4096, .intermediate = 14336, .layers = 32,
      .vocabulary = 32000 },
    { .model_type = "mixtral", .names = &mixtral, .norms = 2,
      .window = BERTHI_WINDOW_ALL },
    { .model_type = "modernbert", .names = &modernbert, .norms = 2,
      .flags = F(TIES) | F(BOTH_WAYS) | F(NO_TYPES) | F(BARE_TRANSFORM) | F(FUSED_QKV)
               | F(FUSED_UP) },
    { .model_type = "mpnet", .names = &mpnet, .norms = 2,
      .flags = BERT_FLAGS | F(PADDED) | F(NO_TYPES) | F(RELATIVE) },
    { .model_type = "mpt", .names = &mpt, .norms = 2,
      .flags = F(PLAIN_MLP) | F(TIES) | F(CLASSIC) | F(FUSED_QKV) },
    { .model_type = "mt5", .names = &t5, .flags = F(TIES) | F(ENCODER) | F(RELATIVE),
      .norms = 2 },
    { .model_type = "nanochat", .names = &nano, .flags = F(PLAIN_MLP) | F(BARE_NORMS) },
    { .model_type = "nemotron", .names = &llama, .flags = F(PLAIN_MLP) | F(NORM_BIAS),
      .norms = 2 },
    { .model_type = "nomic_bert", .names = &llama, .norms = 2,
      .flags = F(NORM_BIAS) | F(TIES) | F(BOTH_WAYS) | F(WORD_NORM) | F(NO_LAST_NORM) },
    { .model_type = "olmo", .names = &llama, .flags = F(BARE_NORMS) },
    { .model_type = "olmo2", .names = &llama, .flags = F(WIDE_NORMS), .norms = 2 },
    { .model_type = "olmo3", .names = &llama, .flags = F(WIDE_NORMS), .norms = 2,
      .window = BERTHI_WINDOW_PATTERN, .pattern = 4 },
    { .model_type = "olmoe", .names = &llama, .flags = F(WIDE_NORMS), .norms = 2 },
    { .model_type = "opt", .names = &opt, .norms = 2,
      .flags = F(PLAIN_MLP) | BIASES | F(POSITIONS) | F(TWO_ROWS) | F(TIES) | F(CLASSIC) },
    { .model_type = "persimmon", .names = &neox, .norms = 2,
      .flags = F(PLAIN_MLP) | BIASES | F(FUSED_QKV) | F(HEAD_NORMS) },
    { .model_type = "phi", .names = &phi, .norms = 1,
      .flags = F(PLAIN_MLP) | BIASES | F(HEAD_BIAS) | F(HEAD_NORMS) | F(ASKED_NORMS) },
    { .model_type = "phi3", .names = &phi3, .flags = F(FUSED_QKV) | F(FUSED_UP),
      .norms = 2, .window = BERTHI_WINDOW_ALL },
    { .model_type = "phimoe", .names = &llama, .flags = F(NORM_BIAS), .norms = 2,
      .window = BERTHI_WINDOW_ALL },
    { .model_type = "qwen2", .names = &llama, .norms = 2, .window = BERTHI_WINDOW_UPPER,
      .flags = F(QKV_BIAS) | F(BIAS_QKV_ONLY) },
    { .model_type = "qwen2_5_vl", .names = &llama, .norms = 2,
      .flags = F(QKV_BIAS) | F(BIAS_QKV_ONLY) },
    { .model_type = "qwen2_moe", .names = &llama, .norms = 2,
      .window = BERTHI_WINDOW_UPPER,
      .flags = F(QKV_BIAS) | F(BIAS_QKV_ONLY) | F(SHARED_GATE) },
    { .model_type = "qwen2_vl", .names = &llama, .norms = 2,
      .flags = F(QKV_BIAS) | F(BIAS_QKV_ONLY) },
    { .model_type = "qwen3", .names = &llama, .norms = 2, .window = BERTHI_WINDOW_UPPER,
      .flags = F(HEAD_NORMS) },
    { .model_type = "qwen3_5", .names = &llama, .flags = QWEN3_5_FLAGS, .norms = 2 },
    { .model_type = "qwen3_5_moe", .names = &llama, .flags = QWEN3_5_FLAGS, .norms = 2 },
    { .model_type = "qwen3_5_moe_text", .names = &llama, .flags = QWEN3_5_FLAGS,
      .norms = 2 },
    { .model_type = "qwen3_5_text", .names = &llama, .flags = QWEN3_5_FLAGS, .norms = 2 },
    { .model_type = "qwen3_moe", .names = &llama, .norms = 2,
      .window = BERTHI_WINDOW_UPPER, .flags = F(HEAD_NORMS) },
    { .model_type = "qwen3_next", .names = &llama, .norms = 2,
      .flags = F(HEAD_NORMS) | F(SHARED_GATE) | F(QUERY_GATE) },
    { .model_type = "roberta", .names = &bert, .flags = BERT_FLAGS | F(PADDED), .norms = 2 },
    { .model_type = "roberta-prelayernorm", .names = &bert, .norms = 2,
      .flags = (BERT_FLAGS & ~F(NO_LAST_NORM)) | F(PADDED) },
    { .model_type = "seed_oss", .names = &llama, .flags = F(BIAS_QKV_ONLY), .norms = 2 },
    { .model_type = "smollm3", .names = &llama, .flags = F(TIES), .norms = 2 },
    { .model_type = "stablelm", .names = &llama, .norms = 2,
      .flags = F(NORM_BIAS) | F(BIAS_QKV_ONLY) | F(WIDE_NORMS) | F(ASKED_NORMS)
               | F(BESIDE_HALVES) },
    { .model_type = "starcoder2", .names = &star, .norms = 2,
      .window = BERTHI_WINDOW_ALL,
      .flags = F(PLAIN_MLP) | BIASES | F(TIES) | F(USE_BIAS) },
    { .model_type = "t5", .names = &t5, .flags = F(TIES) | F(ENCODER) | F(RELATIVE),
      .norms = 2 },
    { .model_type = "whisper", .names = &opt, .norms = 2,
      .flags = BART_FLAGS | F(POSITIONS) | F(AUDIO) | F(PLAIN_KEYS) },
    { .model_type = "xlm-roberta", .names = &bert, .flags = BERT_FLAGS | F(PADDED),
      .norms = 2 },
    { .model_type = "xlm-roberta-xl", .names = &bert, .norms = 2,
      .flags = NORM_FIRST_FLAGS | F(PADDED) },
};

const berthi_family *
berthi_family_find(const char *model_type, bool *is_known)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        *is_known = strcmp(families[i].model_type, model_type) == 0;
        if (*is_known)
            return &families[i];
    }
    return &other;
}
