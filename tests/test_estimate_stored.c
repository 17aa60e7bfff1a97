/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_estimate_stored.c - weights that are quantized already, of config.json alone: the
 * bytes that published files have, and those that headers of recorded ones tell.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "loader/berth.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define GOLDEN "../shared/golden/quant"

typedef struct bytes {
    uint64_t linears;
    uint64_t others;
    char note[256]; /* the first one, or "" */
} bytes;

/* As the files are; zeroes where there is no estimate. */
static bytes
estimate(const char *path)
{
    berth_context *context = NULL;
    berth_estimate *made = NULL;
    berth_shape *shape = NULL;
    berth_estimate_options options;
    berth_estimate_summary summary;
    berth_estimate_part part;
    bytes out = { .note = "" };

    berth_estimate_options_init(&options);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_shape_open(context, path, NULL, &shape, NULL), BERTH_OK);
    if (shape != NULL)
        CHECK_EQ(berth_estimate_create(context, shape, &options, &made, NULL), BERTH_OK);
    if (made != NULL) {
        berth_estimate_get(made, &summary);
        for (uint32_t i = 0; i < summary.part_count; i++) {
            CHECK_EQ(berth_estimate_get_part(made, i, &part), BERTH_OK);
            if (strcmp(part.key, "linear_weights") == 0)
                out.linears = part.bytes;
            if (strcmp(part.key, "other_weights") == 0)
                out.others = part.bytes;
        }
        if (summary.note_count > 0)
            snprintf(out.note, sizeof out.note, "%s", berth_estimate_get_note(made, 0));
    }
    berth_estimate_destroy(made);
    berth_shape_close(shape);
    berth_context_destroy(context);
    return out;
}

/* DeepSeek-V3's matrices and their scales; all of gpt-oss-20b, as its index says. */
static void
test_published(void)
{
    bytes b = estimate("tests/data/configs/deepseek-v3.json");

    CHECK_EQ(b.linears, UINT64_C(669228962144));
    CHECK_CONTAINS(b.note, "native is counted so; their own bytes need headers");
    b = estimate("tests/data/configs/gpt-oss-20b.json");
    CHECK_EQ(b.linears + b.others, UINT64_C(13761264768));
}

/* ------------------------------------------------------------------ one layer */

#define LLAMA                                                                            \
    "\"model_type\": \"llama\", \"hidden_size\": 200, \"intermediate_size\": 300, "      \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 10"
#define MATRICES (4 * 200 * 200 + 3 * 200 * 300)

static bytes
estimate_llama(const char *quantization)
{
    const char *const path = fixture_format("%s/config.json", fixture_folder());

    fixture_text(path, fixture_format("{" LLAMA ", \"quantization_config\": %s}",
                                      quantization));
    return estimate(path);
}

/* Scales of blocks of 128 by 128, of others, of whole tensors. */
static void
test_fp8(void)
{
    CHECK_EQ(estimate_llama("{\"quant_method\": \"fp8\"}").linears,
             MATRICES + 4 * (4 * 2 * 2 + 3 * 2 * 3));
    CHECK_EQ(estimate_llama("{\"quant_method\": \"fp8\", "
                            "\"weight_block_size\": [100, 50]}").linears,
             MATRICES + 4 * (4 * 2 * 4 + 2 * 3 * 4 + 2 * 6));
    CHECK_EQ(estimate_llama("{\"quant_method\": \"fp8\", "
                            "\"weight_block_size\": null}").linears,
             MATRICES + 4 * 7);
}

/* ------------------------------------------------------- methods of others */

#define GPTQ_NUMBERS "\"quant_method\": \"gptq\", \"bits\": "

/*
 * Rows and columns of LLAMA: 200 x 200 four times, 300 x 200 twice, 200 x 300. Names and shapes
 * are those that the methods' own libraries write.
 */
static void
test_integers(void)
{
    /* qweight, scales of f16, qzeros of 25 and of 38 words, g_idx; groups of 100, of all. */
    CHECK_EQ(estimate_llama("{" GPTQ_NUMBERS "4, \"group_size\": 100}").linears,
             MATRICES / 2 + 2 * (4 * 200 * 2 + 2 * 300 * 2 + 200 * 3)
                 + 4 * (4 * 25 * 2 + 2 * 38 * 2 + 25 * 3) + 4 * (6 * 200 + 300)
                 + 200 * 2); /* 300 codes are 38 words, not 37.5 */
    CHECK_EQ(estimate_llama("{" GPTQ_NUMBERS "8, \"group_size\": -1}").linears,
             MATRICES + 2 * (4 * 200 + 2 * 300 + 200) + (4 * 200 + 2 * 300 + 200)
                 + 4 * (6 * 200 + 300));
    /* 3 bits: 200 of them are 19 words, 300 are 29. */
    CHECK_EQ(estimate_llama("{" GPTQ_NUMBERS "3, \"group_size\": null}").linears,
             4 * (4 * 200 * 19 + 2 * 300 * 19 + 200 * 29) + 2 * (4 * 200 + 2 * 300 + 200)
                 + 4 * (4 * 19 + 2 * 29 + 19) + 4 * (6 * 200 + 300));
    /* Words along the outputs, no order; 128 where nothing is said. */
    CHECK_EQ(estimate_llama("{\"quant_method\": \"awq\"}").linears,
             4 * (4 * 200 * 25 + 2 * 200 * 38 + 300 * 25)
                 + 2 * (4 * 200 * 2 + 2 * 300 * 2 + 200 * 3)
                 + 4 * (4 * 25 * 2 + 2 * 38 * 2 + 25 * 3));
    CHECK_EQ(estimate_llama("{\"quant_method\": \"awq\", \"w_bit\": 4, "
                            "\"q_group_size\": 100}").linears,
             estimate_llama("{\"quant_method\": \"awq\", \"bits\": 4, "
                            "\"group_size\": 100}").linears);
}

static bytes
estimate_groups(const char *format, const char *weights, const char *inputs)
{
    return estimate_llama(fixture_format(
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"%s\", \"config_groups\": "
        "{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {%s}, "
        "\"input_activations\": %s}}}", format, weights, inputs));
}

static void
test_compressed(void)
{
    const uint64_t channels = 4 * 200 + 2 * 300 + 200;
    const char *const four = "\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", "
                             "\"group_size\": 100, \"symmetric\": ";

    /* weight_packed, weight_scale of bf16, weight_shape; weight_zero_point; weight_g_idx. */
    CHECK_EQ(estimate_groups("pack-quantized", fixture_format("%strue", four), "null").linears,
             MATRICES / 2 + 2 * (4 * 200 * 2 + 2 * 300 * 2 + 200 * 3) + 16 * 7
                 + 200 * 2);
    CHECK_EQ(estimate_groups("pack-quantized",
                             fixture_format("%sfalse, \"actorder\": \"group\"", four),
                             "null").linears
                 - estimate_groups("pack-quantized", fixture_format("%strue", four),
                                   "null").linears,
             4 * (4 * 25 * 2 + 2 * 38 * 2 + 25 * 3) + 4 * (6 * 200 + 300));
    /* Another word for the same. */
    CHECK_EQ(estimate_groups("pack-quantized",
                             fixture_format("%strue, \"actorder\": \"dynamic\"", four),
                             "null").linears,
             estimate_groups("pack-quantized",
                             fixture_format("%strue, \"actorder\": \"group\"", four),
                             "null").linears);
    /* 200 codes of 3 bits are 19 words, 300 are 29: they go on in the next one. */
    CHECK_EQ(estimate_groups("pack-quantized",
                             "\"num_bits\": 3, \"strategy\": \"channel\", "
                             "\"symmetric\": false", "null").linears,
             4 * (4 * 200 * 19 + 2 * 300 * 19 + 200 * 29) + 2 * channels + 16 * 7
                 + 4 * (4 * 19 + 2 * 29 + 19));
    /* FP8 and int8: a scale for each row, for the matrix, for blocks. */
    CHECK_EQ(estimate_groups("float-quantized", "\"num_bits\": 8, \"strategy\": \"channel\"",
                             "{\"dynamic\": true}").linears,
             MATRICES + 2 * channels);
    CHECK_EQ(estimate_groups("int-quantized", "\"num_bits\": 8, \"strategy\": \"tensor\", "
                             "\"group_size\": 100",
                             "null").linears,
             MATRICES + 2 * 7);
    CHECK_EQ(estimate_groups("naive-quantized",
                             "\"num_bits\": 8, \"strategy\": \"block\", "
                             "\"block_structure\": [100, 50]", "null").linears,
             MATRICES + 2 * (4 * 2 * 4 + 2 * 3 * 4 + 2 * 6));
    /* Nibbles, a byte for each 16, and f32 for all: of the inputs, too, unless it is made. */
    CHECK_EQ(estimate_groups("nvfp4-pack-quantized",
                             "\"num_bits\": 4, \"strategy\": \"tensor_group\", "
                             "\"group_size\": 16", "{\"dynamic\": \"local\"}").linears,
             MATRICES / 2 + (4 * 200 * 13 + 2 * 300 * 13 + 200 * 19) + 8 * 7);
    CHECK_EQ(estimate_groups("nvfp4-pack-quantized",
                             "\"num_bits\": 4, \"strategy\": \"tensor_group\", "
                             "\"group_size\": 16", "null").linears,
             MATRICES / 2 + (4 * 200 * 13 + 2 * 300 * 13 + 200 * 19) + 4 * 7);
    CHECK_EQ(estimate_groups("nvfp4-pack-quantized",
                             "\"num_bits\": 4, \"strategy\": \"tensor_group\", "
                             "\"group_size\": 16", "{\"dynamic\": true}").linears,
             MATRICES / 2 + (4 * 200 * 13 + 2 * 300 * 13 + 200 * 19) + 4 * 7);
    CHECK_EQ(estimate_groups("mxfp4-pack-quantized",
                             "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 32",
                             "null").linears,
             MATRICES / 2 + 4 * 200 * 7 + 2 * 300 * 7 + 200 * 10);
    /* What no release has, or sparse ones: values. */
    CHECK_EQ(estimate_groups("marlin-24", fixture_format("%strue", four), "null").linears,
             MATRICES * 2);
    CHECK_EQ(estimate_groups("float-quantized", "\"num_bits\": 16", "null").linears,
             MATRICES * 2);
    CHECK_EQ(estimate_groups("pack-quantized", "\"num_bits\": 9", "null").linears,
             MATRICES * 2);
    /* A group that has a format of its own. */
    CHECK_EQ(estimate_llama("{\"quant_method\": \"compressed-tensors\", \"format\": "
                            "\"mixed-precision\", \"config_groups\": {\"group_0\": "
                            "{\"format\": \"float-quantized\", \"weights\": {\"num_bits\": 8, "
                            "\"strategy\": \"channel\"}}}}").linears,
             MATRICES + 2 * channels);
}

static void
test_modelopt(void)
{
    CHECK_EQ(estimate_llama("{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}").linears,
             MATRICES + 8 * 7);
    CHECK_EQ(estimate_llama("{\"quant_method\": \"modelopt\", "
                            "\"quant_algo\": \"NVFP4\"}").linears,
             MATRICES / 2 + (4 * 200 * 13 + 2 * 300 * 13 + 200 * 19) + 8 * 7);
    CHECK_EQ(estimate_llama("{\"quant_method\": \"modelopt\", "
                            "\"quant_algo\": \"W4A8_AWQ\"}").linears,
             MATRICES * 2);
}

/* Members that are not what the method's own classes write: never more than absent ones. */
static void
test_odd_members(void)
{
    static const char *const odd[] = {
        "{\"quant_method\": \"gptq\", \"bits\": \"4\", \"group_size\": {}}",
        "{\"quant_method\": \"compressed-tensors\"}",
        "{\"quant_method\": \"compressed-tensors\", \"config_groups\": []}",
        "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": 1}}",
        "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": []}}",
        "{\"quant_method\": \"modelopt\"}",
        "{\"quant_method\": \"awq\", \"bits\": 4000000000}",
    };

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (!CHECK_EQ(estimate_llama(odd[i]).linears, MATRICES * 2))
            T_NOTE("%s", odd[i]);
    /* Groups of more columns than there are. */
    CHECK_EQ(estimate_llama("{" GPTQ_NUMBERS "8, \"group_size\": 4294967295}").linears,
             estimate_llama("{" GPTQ_NUMBERS "8, \"group_size\": -1}").linears);
}

/* Methods of which nothing is known, and what is no quantization_config at all. */
static void
test_unknown(void)
{
    static const char *const ones[] = { "{\"quant_method\": \"gptq\", \"bits\": 9}",
                                        "{\"quant_method\": \"mxfp4\"}",
                                        "{\"quant_method\": \"bitsandbytes\"}", "{}" };
    bytes b;

    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        b = estimate_llama(ones[i]);
        CHECK_EQ(b.linears, MATRICES * 2); /* of MXFP4 only experts */
        CHECK_CONTAINS(b.note, i == 1 ? "counted so" : "counted as bf16 values");
    }
    b = estimate_llama("\"fp8\"");
    CHECK_EQ(b.linears, MATRICES * 2);
    CHECK_STR(b.note, "");
}

#define MIXTRAL                                                                          \
    "{\"model_type\": \"mixtral\", \"hidden_size\": 128, \"intermediate_size\": 256, "     \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "     \
    "\"num_local_experts\": 2, \"vocab_size\": 10"

/* Two experts of 3 matrices in a layer: linear ones with transformers 4, a tensor with 5. */
static void
test_experts(void)
{
    const char *const path = fixture_format("%s/config.json", fixture_folder());
    const uint64_t experts = 2 * 3 * 128 * 256;
    uint64_t linears[2];

    for (uint32_t i = 0; i < 2; i++) {
        fixture_text(path, fixture_format(MIXTRAL ", \"transformers_version\": \"%s\", "
                                          "\"quantization_config\": {\"load_in_8bit\": true}}",
                                          i == 0 ? "4.57.1" : "5.2.0"));
        linears[i] = estimate(path).linears;
    }
    /* A byte a value with a maximum for each row, or two bytes. */
    CHECK_EQ(linears[1] - linears[0], experts - 2 * (4 * (128 + 2 * 256) + 3));
    fixture_text(path, MIXTRAL ", \"expert_dtype\": \"fp4\", "
                               "\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    CHECK_EQ(estimate(path).linears, 4 * (128 * 128 + 4) + experts / 2 + experts / 32);
}

/* ------------------------------------------------------------------- recorded */

/* config.json without the files beside it; blobs of state are guessed to a few bytes. */
static void
test_recorded(void)
{
    static const char *const models[] = {
        "llama/nf4", "llama/nf4_dq", "llama/fp4",   "llama/fp4_dq",   "llama/int8", "qwen3/int8",
        "gpt2/nf4",  "gpt2/int8",    "opt/nf4_dq",  "mixtral/nf4_dq", "mixtral/int8",
    };
    const char *const path = fixture_format("%s/config.json", fixture_folder());

    if (access(GOLDEN "/README.md", R_OK) != 0)
        T_SKIP("the recorded checkpoints are not at hand");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *const folder = fixture_format(GOLDEN "/%s", models[i]);
        bytes whole;
        bytes alone;

        fixture_copy(fixture_format("%s/config.json", folder), path);
        whole = estimate(folder);
        alone = estimate(path);
        CHECK_GE(alone.linears, whole.linears);
        if (!CHECK_LE(alone.linears, whole.linears + 64))
            T_NOTE("%s", models[i]);
        CHECK_EQ(alone.others, whole.others);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_published);
    T_RUN(test_fp8);
    T_RUN(test_integers);
    T_RUN(test_compressed);
    T_RUN(test_modelopt);
    T_RUN(test_odd_members);
    T_RUN(test_unknown);
    T_RUN(test_experts);
    T_RUN(test_recorded);
    T_MAIN_END;
}
