/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_rules.c - any bytes as a file of rules
 *
 * What is accepted is printed, one rule a line, and the print must give the same
 * rules, print alike, and decide alike for a small model.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quant/glob.h"
#include "quant/rules.h"
#include "tests/fuzz/require.h"

/* Prints the rules; free() it. */
static char *
print(const berthi_rules_file *file, size_t *out_length)
{
    size_t length = 0;
    char *text;

    for (uint32_t i = 0; i < file->count; i++)
        length += strlen(file->rules[i].text) + 1;
    text = malloc(length + 1);
    REQUIRE(text != NULL);
    length = 0;
    for (uint32_t i = 0; i < file->count; i++) {
        const size_t own = strlen(file->rules[i].text);

        memcpy(text + length, file->rules[i].text, own);
        text[length + own] = '\n';
        length += own + 1;
    }
    *out_length = length;
    return text;
}

static void
check_same(const berthi_rules_file *a, const berthi_rules_file *b)
{
    REQUIRE(a->count == b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const berthi_rule *const left = &a->rules[i];
        const berthi_rule *const right = &b->rules[i];

        REQUIRE(strcmp(left->glob, right->glob) == 0);
        REQUIRE(strcmp(left->text, right->text) == 0);
        REQUIRE(berthi_glob_check(left->glob) == NULL);
        REQUIRE(left->action == right->action && left->ranks == right->ranks
                && left->dtypes == right->dtypes && left->is_optional == right->is_optional
                && left->axis_count == right->axis_count);
        REQUIRE(memcmp(left->axes, right->axes, sizeof left->axes) == 0);
        REQUIRE(i == 0 || left->line > a->rules[i - 1].line);
        REQUIRE(right->line == i + 1);
    }
}

/* --------------------------------------------------------------- a small model */

static const struct {
    const char *name;
    uint64_t shape[3];
    uint32_t rank;
    int32_t dtype;
} tensors[] = {
    { "lm_head.weight", { 32, 16, 0 }, 2, BERTH_BF16 },
    { "model.embed_tokens.weight", { 32, 16, 0 }, 2, BERTH_F16 },
    { "model.layers.0.mlp.experts.gate_up_proj", { 2, 16, 32 }, 3, BERTH_BF16 },
    { "model.layers.0.self_attn.q_proj.weight", { 16, 16, 0 }, 2, BERTH_F32 },
    { "model.layers.10.self_attn.q_proj.weight", { 0, 16, 0 }, 2, BERTH_BF16 },
    { "model.layers.10.self_attn.ids", { 16, 0, 0 }, 1, BERTH_I64 },
    { "model.norm.weight", { 16, 0, 0 }, 1, BERTH_BF16 },
};
#define TENSOR_COUNT (sizeof tensors / sizeof *tensors)

static void
get(void *user, uint32_t position, berthi_model_tensor *out)
{
    (void)user;
    *out = (berthi_model_tensor){ .name = tensors[position].name,
                                  .name_length = strlen(tensors[position].name),
                                  .shape = tensors[position].shape,
                                  .rank = tensors[position].rank,
                                  .elements = 1,
                                  .dtype = tensors[position].dtype };
    for (uint32_t i = 0; i < out->rank; i++)
        out->elements *= out->shape[i];
}

static const berthi_model_source source = { NULL, TENSOR_COUNT, get };

static void
decide(berth_context *context, const berthi_architecture *architecture,
       const berthi_rules_file *file, berthi_decision out[TENSOR_COUNT])
{
    const berthi_rules_options options = { .era = BERTHI_ERA_HF5,
                                           .type = BERTH_ENCODING_NF4,
                                           .dtype = BERTH_BF16,
                                           .file = file };
    berthi_rules *rules;
    berth_error error;
    char text[64];

    REQUIRE(berthi_rules_create(context, &options, architecture, &source, &rules, &error)
            == BERTH_OK);
    for (uint32_t i = 0; i < TENSOR_COUNT; i++) {
        out[i] = berthi_rules_decide(rules, i);
        REQUIRE(out[i].number
                < berthi_rules_numbers(rules, (berthi_cause)out[i].cause));
        REQUIRE(out[i].encoding == BERTH_ENCODING_NATIVE || tensors[i].rank >= 2);
        berthi_rules_explain(rules, &out[i], text, sizeof text);
        REQUIRE(strlen(text) < sizeof text);
    }
    (void)berthi_rules_check(rules, &error);
    berthi_rules_destroy(rules);
}

static void
check_decisions(berth_context *context, const berthi_rules_file *a,
                const berthi_rules_file *b)
{
    const berthi_architecture_options options = { .class_name = "LlamaForCausalLM",
                                                  .model_type = "",
                                                  .config_file = "",
                                                  .era = BERTHI_ERA_HF5,
                                                  .dtype = BERTH_BF16 };
    berthi_decision first[TENSOR_COUNT];
    berthi_decision second[TENSOR_COUNT];
    berthi_architecture *architecture;
    berth_error error;

    REQUIRE(berthi_architecture_create(context, &options, &source, &architecture, &error)
            == BERTH_OK);
    decide(context, architecture, a, first);
    decide(context, architecture, b, second);
    for (uint32_t i = 0; i < TENSOR_COUNT; i++)
        REQUIRE(first[i].encoding == second[i].encoding
                && first[i].cause == second[i].cause
                && first[i].number == second[i].number);
    berthi_architecture_destroy(architecture);
}

static void
check_rules(berth_context *context, const uint8_t *data, size_t size)
{
    berthi_rules_file file;
    berthi_rules_file again;
    berth_error error;
    size_t length;
    char *text;

    if (berthi_rules_file_parse(context, (const char *)data, size, "fuzz", &file, &error)
        != BERTH_OK) {
        REQUIRE(error.reason == BERTH_REASON_RULES && error.message[0] != '\0');
        REQUIRE((error.has & BERTH_HAS_POSITION) == 0 || error.position <= size);
        REQUIRE(file.rules == NULL && file.count == 0);
        return;
    }
    text = print(&file, &length);
    if (length <= BERTHI_RULES_LIMIT) {
        REQUIRE(berthi_rules_file_parse(context, text, length, "again", &again, &error)
                == BERTH_OK);
        check_same(&file, &again);
        check_decisions(context, &file, &again);
        berthi_rules_file_fini(&again);
    }
    free(text);
    berthi_rules_file_fini(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    berth_memory_summary memory;
    berth_context *context;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    check_rules(context, data, size);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
