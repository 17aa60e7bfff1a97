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

/* Methods of which nothing is known, and what is no quantization_config at all. */
static void
test_unknown(void)
{
    static const char *const ones[] = { "{\"quant_method\": \"gptq\", \"bits\": 4}",
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
    T_RUN(test_unknown);
    T_RUN(test_experts);
    T_RUN(test_recorded);
    T_MAIN_END;
}
