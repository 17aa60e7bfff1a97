/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.h - models for tests of architectures and rules: class, config.json
 * and tensors in lines, and what is expected of them.
 *
 *     class LlamaForCausalLM
 *     type llama
 *     config {"num_hidden_layers": 2}
 *     dtype bfloat16
 *     BF16 160x64 lm_head.weight          dtype, dims ("-": a scalar), name
 *     other words ...                     expectations, kept as they are
 *     end                                 optional; the next model follows
 *
 * A line that begins with a dtype of safetensors is a tensor. Whatever fails
 * here ends the program.
 */
#ifndef BERTH_TESTS_MODELS_H
#define BERTH_TESTS_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/architecture.h"

typedef struct model {
    char class_name[128];
    char model_type[128];
    int32_t dtype;
    berthi_json *document; /* of config.json; NULL: none */
    berthi_model_tensor *tensors;
    uint32_t tensor_count;
    char **lines; /* expectations */
    uint32_t line_count;
    berthi_model_source source;
} model;

/* From a text; *text moves behind "end". False at its end. Free with model_fini(). */
bool model_read(berth_context *context, const char **text, model *out);
/* The text of tests/data/models/NAME; free() it. */
char *model_file(const char *name);
void model_fini(model *m);
/* The position of the tensor; ends the program when there is none. */
uint32_t model_position(const model *m, const char *name);
/* Lays it out; ends the program when that fails. */
berthi_architecture *model_architecture(berth_context *context, const model *m,
                                        berthi_era era);
berthi_architecture_options model_options(const model *m, berthi_era era);

#endif
