/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_classify.c - tensors put together from names, dtypes and shapes that mean
 * something to some layout: four bytes each. The first byte chooses config.json.
 *
 * Every tensor is marked once at most and leads to a record that lists it; the
 * values that are counted are those of the records and of what is plain; going
 * on after an error changes no verdict.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "tests/fuzz/require.h"
#include "tests/tensors.h"

#define MAX_TENSORS 24
#define COUNT(table) (sizeof table / sizeof *table)

static const char *const stems[] = { "", "a.", "a.b.", "a-" };
static const char *const leaves[] = {
    "weight", "bias", "weight.absmax", "weight.quant_map", "weight.nested_absmax",
    "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4",
    "weight.quant_state.bitsandbytes__fp4", "SCB", "weight_format", "weight_scale_inv",
    "weight_scale", "scale", "x_blocks", "x_scales", "x", "qweight", "qzeros", "scales",
    "g_idx", "weight_packed", "input_scale", "activation_scale", "weight.more",
    "weight.absmax.quant_state.bitsandbytes__nf4", "weight.absmax.absmax",
    "weight.absmax.quant_map",
};
static const int32_t dtypes[] = { BERTH_U8, BERTH_F32, BERTH_BF16, BERTH_I8, BERTH_F8_E4M3,
                                  BERTH_F8_E8M0, BERTH_I32, BERTH_F8_E5M2, BERTH_F16,
                                  BERTH_F4 };
static const char *const configs[] = {
    NULL, "{}", "{\"quantization_config\": {}}",
    "{\"quantization_config\": {\"quant_method\": \"fp8\"}}",
    "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [4, 8]}}",
    "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}",
    "{\"quantization_config\": {\"quant_method\": \"hqq\"}}",
    "{\"quantization_config\": {\"load_in_4bit\": true}}",
};
static const struct {
    uint32_t rank;
    uint64_t shape[4];
} shapes[] = {
    { 0, { 0 } },        { 1, { 1 } },       { 1, { 2 } },       { 1, { 16 } },
    { 1, { 256 } },      { 2, { 64, 1 } },   { 2, { 2, 64 } },   { 2, { 1, 1 } },
    { 2, { 2, 1 } },     { 2, { 1, 2 } },    { 3, { 2, 2, 64 } }, { 3, { 2, 3, 4 } },
    { 4, { 2, 3, 4, 16 } }, { 1, { 0 } },    { 2, { 8, 8 } },    { 1, { 64 } },
};
#define NF4 "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
#define FP4 "{\"quant_type\": \"fp4\", \"blocksize\": 64, \"dtype\": \"float16\", "
#define NESTED                                                                             \
    ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": 0.5}"

static const char *const states[] = {
    NF4 "\"shape\": [2, 64]}",
    FP4 "\"shape\": [128]}",
    NF4 "\"shape\": [2, 64]" NESTED,
    NF4 "\"shape\": [16]}",
    NF4 "}",
};

static void
add(tensors *t, const uint8_t *choice)
{
    const unsigned shape = choice[3] % COUNT(shapes);
    const int32_t dtype = dtypes[choice[2] % COUNT(dtypes)];
    char name[128];
    uint64_t elements;
    uint64_t bytes;

    snprintf(name, sizeof name, "%s%s", stems[choice[0] % COUNT(stems)],
             leaves[choice[1] % COUNT(leaves)]);
    if (tensors_find(t, name) != NULL)
        return;
    if (strstr(name, "quant_state") != NULL && choice[2] % 8 != 0) {
        const char *const text = states[choice[3] % COUNT(states)];

        tensors_add_one(t, name, BERTH_U8, 1, (const uint64_t[]){ strlen(text) }, text);
        return;
    }
    /* The header's parser lets nothing pass that ends inside a byte. */
    if (berthi_format_can_count(shapes[shape].shape, shapes[shape].rank, &elements)
        && berthi_format_can_size(dtype, elements, &bytes))
        tensors_add_one(t, name, dtype, shapes[shape].rank, shapes[shape].shape, NULL);
}

static bool
is_listed(const berthi_quantized *record, uint32_t position)
{
    if (record->weight == position)
        return true;
    for (uint32_t i = 0; i < record->companion_count; i++)
        if (record->companions[i] == position)
            return true;
    return false;
}

static void
check(const tensors *t)
{
    uint64_t parameters = 0;
    uint32_t members = 0;
    bool has_gptq = false;

    for (uint32_t i = 0; i < t->count; i++) {
        const tensors_one *const one = &t->all[i];

        REQUIRE(one->marks == (one->encoding != BERTH_ENCODING_NATIVE));
        if (one->marks == 0) {
            parameters += one->elements;
            continue;
        }
        REQUIRE(one->record < t->result.count);
        REQUIRE(is_listed(berthi_classify_record(&t->result, one->record), i));
        members++;
    }
    for (uint32_t i = 0; i < t->result.count; i++) {
        const berthi_quantized *const q = berthi_classify_record(&t->result, i);
        uint64_t bytes = t->all[q->weight].bytes;
        uint64_t elements;

        REQUIRE(t->all[q->weight].encoding == q->encoding);
        REQUIRE(t->all[q->weight].record == i);
        REQUIRE(q->method[0] != '\0');
        REQUIRE(berthi_format_can_count(q->shape, q->rank, &elements));
        REQUIRE(elements == q->elements);
        for (uint32_t k = 0; k < q->companion_count; k++)
            bytes += t->all[q->companions[k]].bytes;
        REQUIRE(bytes == q->total_bytes);
        members -= 1u + q->companion_count;
        parameters += elements;
        has_gptq = has_gptq || strstr(t->all[q->weight].name, "qweight") != NULL;
    }
    REQUIRE(members == 0);
    REQUIRE(parameters == t->result.parameter_count || has_gptq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const config = size > 0 ? configs[data[0] % COUNT(configs)] : NULL;
    tensors *const t = tensors_create("");
    berth_memory_summary memory;
    berth_context *context;
    berth_status status;

    REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    for (size_t i = 1; i + 4 <= size && t->count < MAX_TENSORS; i += 4)
        add(t, data + i);
    status = tensors_run(t, context, config, true);
    if (status == BERTH_OK)
        check(t);
    else
        REQUIRE(status == BERTH_EFORMAT && t->result.blocks == NULL);
    REQUIRE(tensors_run(t, context, config, false) == status);
    tensors_destroy(t);
    berth_context_memory(context, &memory);
    REQUIRE(memory.current_bytes == 0);
    berth_context_destroy(context);
    return 0;
}
