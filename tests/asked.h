/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asked.h - shapes and their estimates in tests, as users of the library ask for them.
 */
#ifndef BERTH_TESTS_ASKED_H
#define BERTH_TESTS_ASKED_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/berth.h"

/* A shape and its estimate. */
typedef struct asked {
    berth_context *context;
    berth_shape *shape;
    berth_estimate *estimate;
    berth_shape_summary model;
    berth_estimate_summary summary;
    berth_error error;
} asked;

berth_status asked_open(asked *a, const char *path, const berth_open_options *options);
berth_status asked_estimate(asked *a, const berth_estimate_options *options);
void asked_end(asked *a);

/* Bytes of a part; 0 where there is none. */
uint64_t asked_part(const asked *a, const char *key);
uint64_t asked_weights(const asked *a);
const char *asked_config(const char *name);

/* A folder with nothing but the config.json of this name. */
const char *asked_config_folder(const char *name);

/* A small Llama: what headers say is what config.json says. */
#define ASKED_SMALL_CONFIG                                                             \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "          \
    "\"dtype\": \"bfloat16\", \"hidden_size\": 128, \"intermediate_size\": 256, "      \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "                         \
    "\"num_hidden_layers\": 2, \"vocab_size\": 500, \"max_position_embeddings\": 256, " \
    "\"tie_word_embeddings\": %s}"

const char *asked_small_folder(const char *extra, bool is_quantized, const char *ties);

#endif
