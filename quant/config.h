/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what berth needs of config.json, checked.
 *
 * Unknown members are ignored. A member that is null counts as absent. Members
 * that are used must have their type; anything else is CONFIG_JSON. Multimodal
 * models keep their language model's settings in "text_config": ties and
 * quantization_config are looked for there when the top level has none, and the dtype
 * wherever the language model is.
 */
#ifndef BERTH_QUANT_CONFIG_H
#define BERTH_QUANT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base.h"
#include "kernels/memory.h"
#include "quant/json.h"
#include "quant/scheme.h"

/* Texts end in NUL and are "" where the file does not say. */
typedef struct berthi_config {
    berthi_arena arena;         /* of all texts */
    const char *architecture;   /* first of "architectures" */
    const char *model_type;
    const char *dtype_name;     /* "dtype" or "torch_dtype", without "torch." */
    int32_t dtype;              /* berth_dtype, or -1: absent, "auto" or unknown */
    int32_t ties_embeddings;    /* "tie_word_embeddings"; -1: absent */
    const char *transformers_version;
    const char *weights_file;   /* "transformers_weights", nothing checked */
    const char *expert_dtype;   /* "fp4": DeepSeek's packed experts */

    bool has_quantization;      /* there is a quantization_config */
    const char *quant_method;   /* inferred as "bitsandbytes" from load_in_* */
    const char *quant_format;   /* "format" of compressed-tensors */
    uint32_t block_rows;        /* weight_block_size [bm, bn]; 0: absent */
    uint32_t block_columns;
    bool has_no_block;          /* it is there, and null: scales of whole tensors */
    uint64_t bits;              /* GPTQ, AWQ: of one packed value; 0: absent */
    bool loads_4bit;            /* bitsandbytes */
    bool loads_8bit;
    bool uses_double;           /* bnb_4bit_use_double_quant */
    const char *quant_type;     /* bnb_4bit_quant_type */
    const char *quant_storage;  /* bnb_4bit_quant_storage */
    const char *compute_dtype;  /* bnb_4bit_compute_dtype */
    const char *int8_threshold; /* llm_int8_threshold, a JSON number that is no integer */
    berthi_scheme scheme;       /* of other methods' matrices */
} berthi_config;

/* Larger documents are refused: config.json has a few kilobytes. */
#define BERTHI_CONFIG_LIMIT UINT64_C(16777216) /* = BERTHI_JSON_LIMIT */

/*
 * The object of the language model: the first that is there, or the root. Qwen's Omni models
 * have it one deeper, beside a model that talks; T5Gemma's is a decoder beside its encoder.
 */
const berthi_json_value *berthi_config_find_language(const berthi_json_value *root);

/*
 * Parses `bytes` of config.json. `file` is for messages. Every failure but
 * NO_MEMORY is CONFIG_JSON, with the position when the text is no JSON and with
 * the member when its type is wrong. Free with berthi_config_fini(). On failure
 * `out` is as after _init.
 */
berth_status berthi_config_parse(berth_context *context, const char *text, uint64_t bytes,
                                 const char *file, berthi_config *out,
                                 berth_error *error);
/* A model without config.json: every text "", every number absent. */
void berthi_config_init(berthi_config *config, berth_context *context);
void berthi_config_fini(berthi_config *config);

#endif
