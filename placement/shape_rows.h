/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape_rows.h - what the rows of the table of model types are written with, between
 * shape_family.c (models that only write) and shape_readers.c (models that read a text
 * from both sides, by themselves or before they write).
 */
#ifndef BERTH_PLACEMENT_SHAPE_ROWS_H
#define BERTH_PLACEMENT_SHAPE_ROWS_H

#include <stddef.h>

#include "placement/shape.h"

extern const berthi_family berthi_family_readers[];
extern const size_t berthi_family_reader_count;

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
static const berthi_family_names modernbert_decoder = { "q_proj", "k_proj", "v_proj", "Wo",
                                                        NULL,     "Wi",     "Wo" };
static const berthi_family_names ctrl = { "Wq", "Wk", "Wv", "dense", NULL, "0", "2" };
static const berthi_family_names xlnet = { "q", "k", "v", "o", NULL, "layer_1", "layer_2" };
static const berthi_family_names funnel = { "q_head", "k_head",   "v_head",  "post_proj",
                                            NULL,     "linear_1", "linear_2" };
static const berthi_family_names prophetnet = { "query_proj", "key_proj",     "value_proj",
                                                "out_proj",   NULL,           "intermediate",
                                                "output" };
static const berthi_family_names xlstm = { NULL,           NULL,      NULL,       NULL,
                                           "proj_up_gate", "proj_up", "proj_down" };
static const berthi_family_names rwkv = { NULL, NULL, NULL, NULL, NULL, "key", "value" };
static const berthi_family_names lfm3 = { "q_proj", "k_proj", "v_proj", "o_proj",
                                          "w1",     "w3",     "w2" };
static const berthi_family_names moshi = { "linear", "linear", "linear", "linear",
                                           NULL,     "fc1",    "fc2" };
static const berthi_family_names jetmoe = { NULL, NULL,           NULL,           NULL,
                                            NULL, "input_linear", "output_linear" };
static const berthi_family_names granite = { "q_proj", "k_proj",       "v_proj", "o_proj",
                                             NULL,     "input_linear", "output_linear" };
static const berthi_family_names minimax_m3 = { "q_proj",    "k_proj",       "v_proj",   "o_proj",
                                                "gate_proj", "gate_up_proj", "down_proj" };
static const berthi_family_names mpnet = { "q", "k", "v", "o", NULL, "dense", "dense" };

#define F(flag) BERTHI_FAMILY_##flag
#define T(trait) BERTHI_TRAIT_##trait
#define NAMES(...) (const char *const[]) { __VA_ARGS__, NULL }
#define BIASES (F(QKV_BIAS) | F(MLP_BIAS) | F(NORM_BIAS))
#define GPT2_FLAGS \
    (F(PLAIN_MLP) | BIASES | F(POSITIONS) | F(TIES) | F(CLASSIC) | F(FUSED_QKV))
/* BERT has its norms behind the halves of a layer, so one behind the words; others before. */
#define NORM_FIRST_FLAGS \
    (F(PLAIN_MLP) | BIASES | F(POSITIONS) | F(TIES) | F(CLASSIC) | F(BOTH_WAYS) | F(TWO_BIASES))
#define BERT_FLAGS (NORM_FIRST_FLAGS | F(WORD_NORM) | F(NO_LAST_NORM))
#define XLM_FLAGS ((BERT_FLAGS & ~F(TWO_BIASES)) | F(NO_TYPES))
#define XLM_TRAITS (T(BARE_HEAD) | T(BARE_LABELS) | T(LANGUAGES))
#define BART_FLAGS (F(PLAIN_MLP) | BIASES | F(TIES) | F(CLASSIC) | F(ENCODER))
/* With a bias of the logits, which is kept beside the model. */
#define LOGITS_FLAGS (BART_FLAGS | F(POSITIONS) | F(HEAD_BIAS))
#define GPTJ_FLAGS (F(PLAIN_MLP) | F(MLP_BIAS) | F(NORM_BIAS) | F(HEAD_BIAS) | F(CLASSIC))
#define QWEN3_5_FLAGS (F(HEAD_NORMS) | F(SHARED_GATE) | F(QUERY_GATE) | F(SPLIT_DELTA))

#endif
