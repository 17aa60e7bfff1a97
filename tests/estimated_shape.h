/* SPDX-License-Identifier: Apache-2.0 */
/*
 * estimated_shape.h - for tests of shapes: small models as texts, sums over their
 * weights, and what a kind of layers has to be.
 */
#ifndef BERTH_TESTS_ESTIMATED_SHAPE_H
#define BERTH_TESTS_ESTIMATED_SHAPE_H

#include "tests/estimated.h"

#define TINY(more)                                                                        \
    "{\"hidden_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "         \
    "\"intermediate_size\": 128, \"vocab_size\": 100" more "}"

#define COMPRESSED(more)                                                                 \
    "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "    \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 32, "           \
    "\"q_lora_rank\": 16, \"o_groups\": 2, \"o_lora_rank\": 8, \"n_routed_experts\": 4, "   \
    "\"num_experts_per_tok\": 2, \"n_shared_experts\": 1, \"moe_intermediate_size\": 24, "  \
    "\"vocab_size\": 100, \"sliding_window\": 8, \"index_n_heads\": 2, "                    \
    "\"index_head_dim\": 16, \"hc_mult\": 2" more "}"

#define WHISPER(width, layers, heads, inner, words, bands)                               \
    "{\"model_type\": \"whisper\", \"d_model\": " width ", \"encoder_layers\": " layers    \
    ", \"decoder_layers\": " layers ", \"encoder_attention_heads\": " heads               \
    ", \"decoder_attention_heads\": " heads ", \"encoder_ffn_dim\": " inner               \
    ", \"decoder_ffn_dim\": " inner ", \"vocab_size\": " words ", \"num_mel_bins\": " bands \
    ", \"max_source_positions\": 1500, \"max_target_positions\": 448, "                  \
    "\"num_hidden_layers\": " layers "}"

/* Parameters in all, and in matrices inside layers. */
typedef struct estimated_counts {
    uint64_t all;
    uint64_t linear;
} estimated_counts;

estimated_counts estimated_count(const estimated *e);
/* Checks them. */
void estimated_check_kind(const berthi_layer *k, uint64_t layers, int32_t attention,
                          uint64_t window, uint64_t experts);

#endif
