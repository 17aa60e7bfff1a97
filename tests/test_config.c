/* SPDX-License-Identifier: Apache-2.0 */
/* test_config.c - what is read from config.json, and what is refused. */
#include "quant/config.h"

#include <string.h>

#include "quant/json.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

static berth_context *context;

/* Parses; the caller ends it with berthi_config_fini(). */
static berthi_config
parse(const char *text)
{
    berthi_config config;
    berth_error error;

    if (!CHECK_EQ(berthi_config_parse(context, text, strlen(text), "m/config.json",
                                      &config, &error), BERTH_OK))
        T_NOTE("%s: %s", text, error.message);
    return config;
}

/* Refused, and the config is as if there were none. */
static void
check_refused(const char *text, berth_reason reason, const char *why)
{
    berthi_config config;
    berth_error error;

    CHECK_EQ(berthi_config_parse(context, text, strlen(text), "m/config.json", &config,
                                 &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, reason);
    CHECK_STR(error.file, "m/config.json");
    if (!CHECK_CONTAINS(error.message, why))
        T_NOTE("text: %s", text);
    CHECK_STR(config.architecture, "");
    CHECK_EQ(config.dtype, -1);
    CHECK_EQ(config.has_quantization, false);
    CHECK(config.arena.blocks == NULL);
    berthi_config_fini(&config);
}

static void
check_absent(const berthi_config *c)
{
    CHECK_STR(c->architecture, "");
    CHECK_STR(c->model_type, "");
    CHECK_STR(c->dtype_name, "");
    CHECK_EQ(c->dtype, -1);
    CHECK_EQ(c->ties_embeddings, -1);
    CHECK_STR(c->transformers_version, "");
    CHECK_STR(c->weights_file, "");
    CHECK_STR(c->expert_dtype, "");
    CHECK_EQ(c->has_quantization, false);
    CHECK_STR(c->quant_method, "");
    CHECK_STR(c->quant_format, "");
    CHECK_EQ(c->block_rows, 0);
    CHECK_EQ(c->block_columns, 0);
    CHECK_EQ(c->bits, 0);
    CHECK_EQ(c->loads_4bit, false);
    CHECK_EQ(c->loads_8bit, false);
    CHECK_EQ(c->uses_double, false);
    CHECK_STR(c->quant_type, "");
    CHECK_STR(c->quant_storage, "");
    CHECK_STR(c->compute_dtype, "");
}

static void
test_nothing_said(void)
{
    berthi_config c;

    berthi_config_init(&c, context);
    check_absent(&c);
    berthi_config_fini(&c);
    c = parse("{}");
    check_absent(&c);
    berthi_config_fini(&c);
    c = parse("{\"architectures\": null, \"model_type\": null, \"dtype\": null, "
              "\"torch_dtype\": null, \"tie_word_embeddings\": null, "
              "\"quantization_config\": null, \"transformers_version\": null, "
              "\"transformers_weights\": null, \"expert_dtype\": null, "
              "\"text_config\": null}");
    check_absent(&c);
    berthi_config_fini(&c);
    c = parse("{\"architectures\": []}");
    check_absent(&c);
    berthi_config_fini(&c);
}

static void
test_plain_model(void)
{
    berthi_config c = parse(
        "{\"architectures\": [\"LlamaForCausalLM\", \"Other\"], \"model_type\": \"llama\","
        " \"dtype\": \"bfloat16\", \"tie_word_embeddings\": false, "
        "\"transformers_version\": \"5.23.0\", \"transformers_weights\": \"sub/w.safetensors\","
        " \"expert_dtype\": \"fp4\", \"rope\": {\"x\": [1, 2.5e-3]}, \"hidden\": 64}");

    CHECK_STR(c.architecture, "LlamaForCausalLM");
    CHECK_STR(c.model_type, "llama");
    CHECK_STR(c.dtype_name, "bfloat16");
    CHECK_EQ(c.dtype, BERTH_BF16);
    CHECK_EQ(c.ties_embeddings, 0);
    CHECK_STR(c.transformers_version, "5.23.0");
    CHECK_STR(c.weights_file, "sub/w.safetensors");
    CHECK_STR(c.expert_dtype, "fp4");
    CHECK_EQ(c.has_quantization, false);
    berthi_config_fini(&c);
}

static void
test_dtypes(void)
{
    static const struct {
        const char *text;
        const char *name;
        int32_t dtype;
    } cases[] = {
        { "{\"torch_dtype\": \"float16\"}", "float16", BERTH_F16 },
        { "{\"torch_dtype\": \"torch.float32\"}", "float32", BERTH_F32 },
        { "{\"dtype\": \"bfloat16\", \"torch_dtype\": \"float16\"}", "bfloat16", BERTH_BF16 },
        { "{\"dtype\": null, \"torch_dtype\": \"float16\"}", "float16", BERTH_F16 },
        { "{\"dtype\": \"auto\"}", "auto", -1 },
        /* A decoder beside its encoder, and what others call so. */
        { "{\"model_type\": \"t5gemma\", \"encoder\": {\"dtype\": \"float32\"}, "
          "\"decoder\": {\"dtype\": \"float16\"}}",
          "float16", BERTH_F16 },
        { "{\"model_type\": \"t5gemma\", \"dtype\": \"bfloat16\", "
          "\"decoder\": {\"dtype\": \"float16\"}}",
          "bfloat16", BERTH_BF16 },
        { "{\"model_type\": \"t5gemma\", \"decoder\": 1}", "", -1 },
        { "{\"model_type\": \"encoder-decoder\", \"decoder\": {\"dtype\": \"float16\"}}",
          "", -1 },
        { "{\"text_config\": {\"dtype\": \"bfloat16\"}}", "bfloat16", BERTH_BF16 },
        { "{\"text_config\": {\"torch_dtype\": \"float16\"}}", "float16", BERTH_F16 },
        { "{\"dtype\": \"float32\", \"text_config\": {\"dtype\": \"bfloat16\"}}", "float32",
          BERTH_F32 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_config c = parse(cases[i].text);

        CHECK_STR(c.dtype_name, cases[i].name);
        CHECK_EQ(c.dtype, cases[i].dtype);
        berthi_config_fini(&c);
    }
}

static void
test_ties(void)
{
    static const struct {
        const char *text;
        int32_t ties;
    } cases[] = {
        { "{\"tie_word_embeddings\": true}", 1 },
        { "{\"tie_word_embeddings\": false}", 0 },
        { "{\"text_config\": {\"tie_word_embeddings\": true}}", 1 },
        { "{\"text_config\": {\"tie_word_embeddings\": false}}", 0 },
        { "{\"tie_word_embeddings\": false, \"text_config\": {\"tie_word_embeddings\": true}}",
          0 },
        { "{\"text_config\": {}}", -1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_config c = parse(cases[i].text);

        CHECK_EQ(c.ties_embeddings, cases[i].ties);
        berthi_config_fini(&c);
    }
}

static void
test_bitsandbytes(void)
{
    berthi_config c = parse(
        "{\"quantization_config\": {\"_load_in_4bit\": true, "
        "\"bnb_4bit_compute_dtype\": \"float32\", \"bnb_4bit_quant_storage\": \"uint8\", "
        "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": true, "
        "\"llm_int8_skip_modules\": null, \"llm_int8_threshold\": 6.0, "
        "\"load_in_4bit\": true, \"load_in_8bit\": false, "
        "\"quant_method\": \"bitsandbytes\"}}");

    CHECK_EQ(c.has_quantization, true);
    CHECK_STR(c.quant_method, "bitsandbytes");
    CHECK_EQ(c.loads_4bit, true);
    CHECK_EQ(c.loads_8bit, false);
    CHECK_EQ(c.uses_double, true);
    CHECK_STR(c.quant_type, "nf4");
    CHECK_STR(c.quant_storage, "uint8");
    CHECK_STR(c.compute_dtype, "float32");
    CHECK_STR(c.int8_threshold, "6.0");
    berthi_config_fini(&c);
}

/* A float, as transformers wants it, or none. */
static void
test_threshold(void)
{
    static const char *const texts[][2] = {
        { "0.0", "0.0" },     { "5", "5.0" },  { "1e1", "1e1" },  { "2.50", "2.50" },
        { "\"6.0\"", "" }, { "null", "" }, { "true", "" },    { "NaN", "" },
        { "-5", "" },
        { "12345678901234567890123456789", "12345678901234567890123456789.0" },
        { "123456789012345678901234567890", "" },
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        berthi_config c = parse(fixture_format(
            "{\"quantization_config\": {\"llm_int8_threshold\": %s}}", texts[i][0]));

        CHECK_STR(c.int8_threshold, texts[i][1]);
        berthi_config_fini(&c);
    }
}

/* Very old files do not name the method. */
static void
test_inferred_method(void)
{
    berthi_config c = parse("{\"quantization_config\": {\"load_in_4bit\": true}}");

    CHECK_STR(c.quant_method, "bitsandbytes");
    CHECK_EQ(c.loads_4bit, true);
    berthi_config_fini(&c);
    c = parse("{\"quantization_config\": {\"load_in_8bit\": true}}");
    CHECK_STR(c.quant_method, "bitsandbytes");
    CHECK_EQ(c.loads_8bit, true);
    berthi_config_fini(&c);
    c = parse("{\"quantization_config\": {\"load_in_8bit\": false}}");
    CHECK_STR(c.quant_method, "");
    CHECK_EQ(c.has_quantization, true);
    berthi_config_fini(&c);
    c = parse("{\"quantization_config\": {\"load_in_4bit\": true, \"quant_method\": \"x\"}}");
    CHECK_STR(c.quant_method, "x");
    berthi_config_fini(&c);
}

static void
test_other_methods(void)
{
    berthi_config c = parse("{\"quantization_config\": {\"quant_method\": \"fp8\", "
                            "\"weight_block_size\": [128, 64]}}");

    CHECK_STR(c.quant_method, "fp8");
    CHECK_EQ(c.block_rows, 128);
    CHECK_EQ(c.block_columns, 64);
    berthi_config_fini(&c);
    c = parse("{\"text_config\": {\"quantization_config\": {\"quant_method\": "
              "\"compressed-tensors\", \"format\": \"pack-quantized\", "
              "\"weight_block_size\": null}}}");
    CHECK_STR(c.quant_method, "compressed-tensors");
    CHECK_STR(c.quant_format, "pack-quantized");
    CHECK_EQ(c.block_rows, 0);
    berthi_config_fini(&c);
    c = parse("{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}");
    CHECK_EQ(c.bits, 4);
    berthi_config_fini(&c);
    /* In a foreign method these may mean anything. */
    c = parse("{\"quantization_config\": {\"quant_method\": \"z\", \"bits\": \"a\", "
              "\"format\": 3}}");
    CHECK_EQ(c.bits, 0);
    CHECK_STR(c.quant_format, "");
    berthi_config_fini(&c);
}

static void
test_block_limits(void)
{
    berthi_config c = parse("{\"quantization_config\": {\"weight_block_size\": "
                            "[4294967295, 1]}}");

    CHECK_EQ(c.block_rows, UINT32_MAX);
    CHECK_EQ(c.block_columns, 1);
    berthi_config_fini(&c);
    c = parse("{\"quantization_config\": {\"weight_block_size\": [1, 4294967295]}}");
    CHECK_EQ(c.block_rows, 1);
    CHECK_EQ(c.block_columns, UINT32_MAX);
    berthi_config_fini(&c);
}

static void
test_wrong_types(void)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        { "[]", "not an object" },
        { "7", "not an object" },
        { "{\"architectures\": \"x\"}", "\"architectures\" is not an array" },
        { "{\"architectures\": [1]}", "\"architectures\" is not an array of strings" },
        { "{\"model_type\": 1}", "\"model_type\" is not a string" },
        { "{\"dtype\": {}}", "\"dtype\" is not a string" },
        { "{\"torch_dtype\": 1}", "\"torch_dtype\" is not a string" },
        { "{\"tie_word_embeddings\": 1}", "\"tie_word_embeddings\" is not true or false" },
        { "{\"transformers_version\": 5}", "\"transformers_version\" is not a string" },
        { "{\"quantization_config\": \"fp8\"}", "\"quantization_config\" is not an object" },
        { "{\"quantization_config\": {\"quant_method\": 1}}", "\"quant_method\" is not" },
        { "{\"quantization_config\": {\"load_in_4bit\": 1}}", "\"load_in_4bit\" is not" },
        { "{\"quantization_config\": {\"load_in_8bit\": \"\"}}", "\"load_in_8bit\" is not" },
        { "{\"quantization_config\": {\"bnb_4bit_use_double_quant\": 0}}", "double_quant" },
        { "{\"quantization_config\": {\"bnb_4bit_quant_type\": 4}}", "quant_type" },
        { "{\"quantization_config\": {\"bnb_4bit_quant_storage\": []}}", "quant_storage" },
        { "{\"quantization_config\": {\"bnb_4bit_compute_dtype\": {}}}", "compute_dtype" },
        { "{\"expert_dtype\": 4}", "\"expert_dtype\" is not a string" },
        { "{\"transformers_weights\": []}", "\"transformers_weights\" is not a string" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].text, BERTH_REASON_CONFIG_JSON, cases[i].why);
}

static void
test_wrong_blocks(void)
{
    static const char *const blocks[] = {
        "128",           "[128]",       "[128, 128, 128]", "[128, 0]",        "[0, 128]",
        "[128, \"128\"]", "[-1, 128]",   "[1.5, 128]",      "[]",              "{\"a\": 1}",
        "[4294967296, 1]", "[1, 4294967296]", "{\"a\": 1, \"b\": 2}",
    };

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        check_refused(fixture_format("{\"quantization_config\": {\"weight_block_size\": %s}}",
                                     blocks[i]),
                      BERTH_REASON_CONFIG_JSON, "two positive integers");
}

static void
test_no_json(void)
{
    berthi_config config;
    berth_error error;
    const char *const text = "{\"model_type\": \"llama\",\n \"x\": 01}";

    check_refused(text, BERTH_REASON_CONFIG_JSON, "not JSON");
    berthi_config_parse(context, text, strlen(text), "c", &config, &error);
    CHECK_EQ(error.has, BERTH_HAS_POSITION);
    CHECK_EQ(error.position, 31);
    check_refused("<html>", BERTH_REASON_CONFIG_JSON, "not JSON");
    check_refused("", BERTH_REASON_CONFIG_JSON, "not JSON");
    check_refused("{\"a\": 1, \"a\": 2}", BERTH_REASON_CONFIG_JSON, "twice");
}

/* Python writes these into config.json: Mamba's time_step_limit. */
static void
test_nonfinite(void)
{
    berthi_config c = parse("{\"time_step_limit\": [0.0, Infinity], \"x\": -Infinity, "
                            "\"y\": NaN, \"model_type\": \"mamba2\"}");

    CHECK_STR(c.model_type, "mamba2");
    berthi_config_fini(&c);
}

/* The first thing that is wrong is the one that is told. */
static void
test_first_problem_stays(void)
{
    check_refused("{\"model_type\": 1, \"dtype\": 2, \"transformers_weights\": \"/x\"}",
                  BERTH_REASON_CONFIG_JSON, "\"model_type\"");
}

static void
test_long_texts(void)
{
    char text[6000];
    berthi_config c;

    memset(text, 'x', sizeof text);
    memcpy(text, "{\"model_type\": \"", 16);
    memcpy(text + sizeof text - 3, "\"}", 3);
    c = parse(text);
    CHECK_EQ(strlen(c.model_type), sizeof text - 16 - 3);
    berthi_config_fini(&c);
}

static berth_status
parse_once(void *user, berth_context *its_context, berth_error *error)
{
    static const char text[] = "{\"architectures\": [\"A\"], \"dtype\": \"float16\", "
                               "\"quantization_config\": {\"quant_method\": \"fp8\", "
                               "\"format\": \"f\"}, \"transformers_version\": \"5\"}";
    berthi_config config;
    const berth_status status = berthi_config_parse(its_context, text, sizeof text - 1, "c",
                                                    &config, error);

    (void)user;
    CHECK_STR(config.architecture, status == BERTH_OK ? "A" : "");
    berthi_config_fini(&config);
    return status;
}

static void
test_every_allocation_fails(void)
{
    const fault_counts counts = fault_loop("config", parse_once, NULL);

    CHECK_EQ(counts.memory, 2 * 5);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_nothing_said);
    T_RUN(test_plain_model);
    T_RUN(test_dtypes);
    T_RUN(test_ties);
    T_RUN(test_bitsandbytes);
    T_RUN(test_threshold);
    T_RUN(test_inferred_method);
    T_RUN(test_other_methods);
    T_RUN(test_block_limits);
    T_RUN(test_wrong_types);
    T_RUN(test_wrong_blocks);
    T_RUN(test_no_json);
    T_RUN(test_nonfinite);
    T_RUN(test_first_problem_stays);
    T_RUN(test_long_texts);
    T_RUN(test_every_allocation_fails);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
