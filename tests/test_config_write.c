/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_config_write.c - config.json written anew.
 *
 * tests/data/quant/MODEL/VARIANT/config.json were written by transformers. Where
 * the recorded checkpoints lie beside this tree, all of theirs are compared, too.
 */
#define _POSIX_C_SOURCE 200809L

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/config.h"
#include "quant/config_write.h"
#include "quant/format.h"
#include "quant/json.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define DATA "tests/data/quant"
#define GOLDEN "../shared/golden/quant"
#define FILE_NAME "m/config.json"
/* As what is rewritten. */
#define IN(text, bytes) ((berthi_config_text){ text, bytes, FILE_NAME })

static berth_context *context;

static const berthi_quantization nf4 = { .encoding = BERTH_ENCODING_NF4,
                                         .storage = BERTH_U8 };

/* The rewritten text with a NUL behind it; free() it. NULL: it was refused. */
static char *
rewrite(const char *text, const berthi_quantization *what, const char *dtype)
{
    berth_error error;
    uint64_t bytes;
    char *out;
    char *copy;

    if (!CHECK_EQ(berthi_config_rewrite(context, &IN(text, strlen(text)), what,
                                        dtype, &out, &bytes, &error), BERTH_OK)) {
        T_NOTE("%s: %s", text, error.message);
        return NULL;
    }
    copy = calloc(1, (size_t)bytes + 1);
    memcpy(copy, out, (size_t)bytes);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, out, bytes);
    return copy;
}

static void
check(const char *text, const berthi_quantization *what, const char *dtype,
      const char *expected)
{
    char *const out = rewrite(text, what, dtype);

    if (!CHECK_STR(out, expected))
        T_NOTE("from %s", text);
    free(out);
}

/* ------------------------------------------------------------------- recorded */

/* What the variant's own configuration says, its skip list included. */
typedef struct variant {
    berthi_quantization what;
    berthi_config config;
    berthi_json *document;
    const char *skips[16];
} variant;

static void
variant_read(variant *v, const char *text)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, FILE_NAME };
    const berthi_json_value *skips;

    memset(v, 0, sizeof *v);
    CHECK_EQ(berthi_config_parse(context, text, strlen(text), FILE_NAME, &v->config,
                                 NULL), BERTH_OK);
    CHECK_EQ(berthi_json_parse(context, text, strlen(text), 0, &origin, &v->document,
                               NULL), BERTH_OK);
    v->what.encoding = v->config.loads_8bit ? BERTH_ENCODING_INT8
                       : strcmp(v->config.quant_type, "nf4") == 0
                           ? BERTH_ENCODING_NF4
                           : BERTH_ENCODING_FP4;
    v->what.is_double = v->config.uses_double;
    v->what.storage = berthi_format_torch_dtype(v->config.quant_storage,
                                                strlen(v->config.quant_storage));
    v->what.compute_dtype = v->config.compute_dtype;
    skips = berthi_json_get(berthi_json_get(berthi_json_root(v->document),
                                            "quantization_config"),
                            "llm_int8_skip_modules");
    v->what.has_skips = berthi_json_kind_of(skips) == BERTHI_JSON_ARRAY;
    v->what.skips = v->skips;
    for (skips = berthi_json_first(skips); skips != NULL; skips = berthi_json_next(skips))
        CHECK(berthi_json_can_read_string(skips, &v->skips[v->what.skip_count++]));
}

static void
variant_free(variant *v)
{
    berthi_json_destroy(v->document);
    berthi_config_fini(&v->config);
}

/* There and back. The recorded models differ from their source in dtype at most. */
static void
check_variant(const char *source, const char *quantized)
{
    variant v;
    berthi_config config;

    variant_read(&v, quantized);
    CHECK_EQ(berthi_config_parse(context, source, strlen(source), FILE_NAME, &config,
                                 NULL), BERTH_OK);
    if (strcmp(config.dtype_name, v.config.dtype_name) == 0)
        check(source, &v.what, NULL, quantized);
    check(source, &v.what, v.config.dtype_name, quantized);
    check(quantized, &v.what, NULL, quantized);
    check(quantized, NULL, config.dtype_name, source);
    berthi_config_fini(&config);
    variant_free(&v);
}

/* Counts the variants below `root`. */
static unsigned
check_folders(const char *root)
{
    unsigned count = 0;
    glob_t found;

    if (glob(fixture_format("%s/*/*/config.json", root), 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *const path = found.gl_pathv[i];
        const char *const model = path + strlen(root) + 1;
        char *const text = fixture_read(path, NULL);
        char *const source =
            fixture_read(fixture_format("%s/%.*s/source/config.json", root,
                                        (int)strcspn(model, "/"), model), NULL);

        if (strcmp(text, source) == 0) {
            check(text, NULL, NULL, text);
        } else {
            check_variant(source, text);
            count++;
        }
        free(source);
        free(text);
    }
    globfree(&found);
    return count;
}

static void
test_data(void)
{
    CHECK_EQ(check_folders(DATA), 6);
}

static void
test_recorded(void)
{
    const unsigned count = check_folders(GOLDEN);

    if (count == 0)
        T_SKIP("the recorded checkpoints are not there");
    CHECK_EQ(count, 24);
}

/* ----------------------------------------------------------------------- text */

static void
test_sorted_and_indented(void)
{
    check("{}", NULL, NULL, "{}\n");
    check(" {\"b\":[1,2],\"a\":{\"d\":{},\"c\":[]}, \"aa\": [[], {}, [3], {\"x\": []}]}", NULL,
          NULL,
          "{\n"
          "  \"a\": {\n"
          "    \"c\": [],\n"
          "    \"d\": {}\n"
          "  },\n"
          "  \"aa\": [\n"
          "    [],\n"
          "    {},\n"
          "    [\n"
          "      3\n"
          "    ],\n"
          "    {\n"
          "      \"x\": []\n"
          "    }\n"
          "  ],\n"
          "  \"b\": [\n"
          "    1,\n"
          "    2\n"
          "  ]\n"
          "}\n");
    /* The end of a list takes nothing from the object around it. */
    check("{\"d\": 5, \"c\": 4, \"b\": {\"z\": 3, \"y\": 2, \"x\": 1}, \"a\": [0]}", NULL, NULL,
          "{\n"
          "  \"a\": [\n"
          "    0\n"
          "  ],\n"
          "  \"b\": {\n"
          "    \"x\": 1,\n"
          "    \"y\": 2,\n"
          "    \"z\": 3\n"
          "  },\n"
          "  \"c\": 4,\n"
          "  \"d\": 5\n"
          "}\n");
    /* Bytewise, which for UTF-8 is by code point. */
    check("{\"_b\": 1, \"Z\": 2, \"a\": 3, \"\\u00e9\": 4, \"\\ud83d\\ude00\": 5, "
          "\"\\uff5e\": 6, \"\": 7, \"a b\": 8, \"A\": 9}", NULL, NULL,
          "{\n"
          "  \"\": 7,\n"
          "  \"A\": 9,\n"
          "  \"Z\": 2,\n"
          "  \"_b\": 1,\n"
          "  \"a\": 3,\n"
          "  \"a b\": 8,\n"
          "  \"\\u00e9\": 4,\n"
          "  \"\\uff5e\": 6,\n"
          "  \"\\ud83d\\ude00\": 5\n"
          "}\n");
}

static void
test_values_stay(void)
{
    check("{\"a\": 1e-06, \"b\": 1E+5, \"c\": -0, \"d\": 10000.0, \"e\": NaN, "
          "\"f\": -Infinity, \"g\": 18446744073709551616, \"h\": true, \"i\": false, "
          "\"j\": null, \"k\": \"\\u0041\\/\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u007f\\u00fc\"}",
          NULL, NULL,
          "{\n"
          "  \"a\": 1e-06,\n"
          "  \"b\": 1E+5,\n"
          "  \"c\": -0,\n"
          "  \"d\": 10000.0,\n"
          "  \"e\": NaN,\n"
          "  \"f\": -Infinity,\n"
          "  \"g\": 18446744073709551616,\n"
          "  \"h\": true,\n"
          "  \"i\": false,\n"
          "  \"j\": null,\n"
          "  \"k\": \"A/\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u007f\\u00fc\"\n"
          "}\n");
}

/* Every order of members gives the same text. */
static void
test_any_order(void)
{
    static const char *const keys[] = { "a", "b", "c", "d", "e", "f", "g" };
    enum { COUNT = sizeof keys / sizeof *keys };
    size_t order[COUNT];
    unsigned tried = 0;

    for (unsigned code = 0; code < 5040; code++) {
        char text[256] = "{";
        unsigned left = code;

        /* The code-th permutation, digit by digit. */
        for (size_t i = 0; i < COUNT; i++)
            order[i] = i;
        for (size_t i = 0; i < COUNT; i++) {
            const size_t at = i + left % (COUNT - i);
            const size_t kept = order[at];

            left /= (unsigned)(COUNT - i);
            order[at] = order[i];
            order[i] = kept;
            strcat(text, i > 0 ? ", \"" : "\"");
            strcat(text, keys[kept]);
            strcat(text, "\": 0");
        }
        strcat(text, "}");
        check(text, NULL, NULL,
              "{\n  \"a\": 0,\n  \"b\": 0,\n  \"c\": 0,\n  \"d\": 0,\n  \"e\": 0,\n"
              "  \"f\": 0,\n  \"g\": 0\n}\n");
        tried++;
    }
    CHECK_EQ(tried, 5040);
}

/* -------------------------------------------------------- quantization_config */

#define QUANTIZED(load4, load8, storage, type, is_double, skips)                          \
    "  \"quantization_config\": {\n"                                                      \
    "    \"_load_in_4bit\": " load4 ",\n"                                                 \
    "    \"_load_in_8bit\": " load8 ",\n"                                                 \
    "    \"bnb_4bit_compute_dtype\": \"float32\",\n"                                      \
    "    \"bnb_4bit_quant_storage\": \"" storage "\",\n"                                  \
    "    \"bnb_4bit_quant_type\": \"" type "\",\n"                                        \
    "    \"bnb_4bit_use_double_quant\": " is_double ",\n"                                 \
    "    \"llm_int8_enable_fp32_cpu_offload\": false,\n"                                  \
    "    \"llm_int8_has_fp16_weight\": false,\n"                                          \
    "    \"llm_int8_skip_modules\": " skips ",\n"                                         \
    "    \"llm_int8_threshold\": 6.0,\n"                                                  \
    "    \"load_in_4bit\": " load4 ",\n"                                                  \
    "    \"load_in_8bit\": " load8 ",\n"                                                  \
    "    \"quant_method\": \"bitsandbytes\"\n"                                            \
    "  }"
#define NF4 QUANTIZED("true", "false", "uint8", "nf4", "false", "null")

static void
test_settings(void)
{
    static const char *const names[] = { "lm_head", "caf\xc3\xa9" };
    berthi_quantization q = nf4;
    char *text;

    check("{}", &q, NULL, "{\n" NF4 "\n}\n");
    q.has_skips = true;
    check("{}", &q, NULL,
          "{\n" QUANTIZED("true", "false", "uint8", "nf4", "false", "[]") "\n}\n");
    q.skips = names;
    q.skip_count = 2;
    q.is_double = true;
    q.storage = BERTH_F32;
    q.encoding = BERTH_ENCODING_FP4;
    check("{}", &q, NULL,
          "{\n" QUANTIZED("true", "false", "float32", "fp4", "true",
                          "[\n      \"lm_head\",\n      \"caf\\u00e9\"\n    ]") "\n}\n");
    /* What means nothing for 8 bits has its default. */
    q.encoding = BERTH_ENCODING_INT8;
    q.has_skips = false;
    check("{}", &q, NULL,
          "{\n" QUANTIZED("false", "true", "uint8", "fp4", "false", "null") "\n}\n");
    q = nf4;
    q.compute_dtype = "bfloat16";
    text = rewrite("{}", &q, NULL);
    CHECK_CONTAINS(text, "\"bnb_4bit_compute_dtype\": \"bfloat16\",\n");
    free(text);
    q.int8_threshold = "0.0";
    text = rewrite("{}", &q, NULL);
    CHECK_CONTAINS(text, "\"llm_int8_threshold\": 0.0,\n");
    free(text);
    /* A dtype that torch cannot name is nothing to write. */
    q.storage = BERTH_F4;
    text = rewrite("{}", &q, NULL);
    CHECK_CONTAINS(text, "\"bnb_4bit_quant_storage\": \"uint8\",\n");
    free(text);
}

static void
test_other_methods_go(void)
{
    static const char source[] =
        "{\"a\": 1, \"expert_dtype\": \"fp4\", \"quantization_config\": {\"quant_method\": "
        "\"fp8\", \"weight_block_size\": [128, 128], \"x\": {\"y\": [{}]}}, \"z\": 2}";

    check(source, &nf4, NULL, "{\n  \"a\": 1,\n" NF4 ",\n  \"z\": 2\n}\n");
    check(source, NULL, NULL, "{\n  \"a\": 1,\n  \"z\": 2\n}\n");
    check("{\"quantization_config\": null}", NULL, NULL, "{}\n");
    check("{\"quantization_config\": 5}", &nf4, NULL, "{\n" NF4 "\n}\n");
    /* An earlier name of it, which some loaders still look for. */
    check("{\"compression_config\": {\"quant_method\": \"compressed-tensors\"}, \"z\": 2}", NULL,
          NULL, "{\n  \"z\": 2\n}\n");
    check("{\"compression_config\": 1}", NULL, NULL, "{\n  \"compression_config\": 1\n}\n");
    /* The file with the weights has the usual name from then on. */
    check("{\"a\": 1, \"transformers_weights\": \"w.safetensors\"}", NULL, NULL,
          "{\n  \"a\": 1\n}\n");
    /* Another word or kind is not known to be about storage. */
    check("{\"expert_dtype\": \"bf16\"}", NULL, NULL, "{\n  \"expert_dtype\": \"bf16\"\n}\n");
    check("{\"expert_dtype\": 4}", NULL, NULL, "{\n  \"expert_dtype\": 4\n}\n");
}

static void
test_multimodal(void)
{
    static const char source[] =
        "{\"dtype\": \"bfloat16\", \"text_config\": {\"dtype\": \"bfloat16\", "
        "\"inner_config\": {\"torch_dtype\": null, \"quantization_config\": {\"a\": 1}}, "
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}}, "
        "\"_config\": {\"dtype\": 1}, \"config\": {\"dtype\": 2, "
        "\"quantization_config\": 3}, \"list_config\": [{\"dtype\": 4}]}";

    check(source, &nf4, "float16",
          "{\n"
          "  \"_config\": {\n"
          "    \"dtype\": \"float16\"\n"
          "  },\n"
          "  \"config\": {\n"
          "    \"dtype\": 2,\n"
          "    \"quantization_config\": 3\n"
          "  },\n"
          "  \"dtype\": \"float16\",\n"
          "  \"list_config\": [\n"
          "    {\n"
          "      \"dtype\": 4\n"
          "    }\n"
          "  ],\n" NF4 ",\n"
          "  \"text_config\": {\n"
          "    \"dtype\": \"float16\",\n"
          "    \"inner_config\": {\n"
          "      \"torch_dtype\": \"float16\"\n"
          "    }\n"
          "  }\n"
          "}\n");
    /* A config whose last member went is empty. */
    check("{\"text_config\": {\"quantization_config\": {}}, \"v_config\": {}}", NULL, NULL,
          "{\n  \"text_config\": {},\n  \"v_config\": {}\n}\n");
    /* Below something that is no config nothing is one. */
    check("{\"a\": {\"text_config\": {\"dtype\": 1}}, \"dtype\": 2}", NULL, "float16",
          "{\n  \"a\": {\n    \"text_config\": {\n      \"dtype\": 1\n    }\n  },\n"
          "  \"dtype\": \"float16\"\n}\n");
}

/* What has a type is a model, which has a dtype; nothing is added when none is asked for. */
static void
test_inner_models(void)
{
    static const char source[] =
        "{\"a_config\": {\"b_config\": {\"model_type\": \"b\"}, \"model_type\": \"a\"}, "
        "\"c_config\": {\"n\": 1}, \"decoder\": {\"model_type\": \"d\"}, \"dtype\": 2, "
        "\"rope\": {\"e\": {\"model_type\": \"e\"}}, \"t_config\": {\"model_type\": \"t\", "
        "\"torch_dtype\": null}}";
    char *const kept = rewrite(source, NULL, NULL);

    check(source, NULL, "float16",
          "{\n"
          "  \"a_config\": {\n"
          "    \"b_config\": {\n"
          "      \"dtype\": \"float16\",\n"
          "      \"model_type\": \"b\"\n"
          "    },\n"
          "    \"dtype\": \"float16\",\n"
          "    \"model_type\": \"a\"\n"
          "  },\n"
          "  \"c_config\": {\n"
          "    \"n\": 1\n"
          "  },\n"
          "  \"decoder\": {\n"
          "    \"dtype\": \"float16\",\n"
          "    \"model_type\": \"d\"\n"
          "  },\n"
          "  \"dtype\": \"float16\",\n"
          "  \"rope\": {\n"
          "    \"e\": {\n"
          "      \"model_type\": \"e\"\n"
          "    }\n"
          "  },\n"
          "  \"t_config\": {\n"
          "    \"model_type\": \"t\",\n"
          "    \"torch_dtype\": \"float16\"\n"
          "  }\n"
          "}\n");
    CHECK(kept != NULL && strstr(kept, "float16") == NULL);
    free(kept);
    /* As many members as colons, and one in every open object. */
    check("{\"a\":{\"model_type\":0,\"a\":{\"model_type\":0,\"a\":{\"model_type\":0}}}}", NULL, "f",
          "{\n  \"a\": {\n    \"a\": {\n      \"a\": {\n        \"dtype\": \"f\",\n"
          "        \"model_type\": 0\n      },\n      \"dtype\": \"f\",\n"
          "      \"model_type\": 0\n    },\n    \"dtype\": \"f\",\n    \"model_type\": 0\n"
          "  },\n  \"dtype\": \"f\"\n}\n");
}

static void
test_dtypes(void)
{
    check("{\"torch_dtype\": \"bfloat16\"}", NULL, "float32",
          "{\n  \"torch_dtype\": \"float32\"\n}\n");
    check("{\"dtype\": null, \"torch_dtype\": \"torch.float16\"}", NULL, "float32",
          "{\n  \"dtype\": \"float32\",\n  \"torch_dtype\": \"float32\"\n}\n");
    check("{\"z\": 1, \"a\": 2}", NULL, "float32",
          "{\n  \"a\": 2,\n  \"dtype\": \"float32\",\n  \"z\": 1\n}\n");
    /* Of the whole model it is said, of its parts only where it was. */
    check("{\"text_config\": {}, \"v_config\": {\"dtype\": \"auto\"}}", NULL, "float16",
          "{\n  \"dtype\": \"float16\",\n  \"text_config\": {},\n"
          "  \"v_config\": {\n    \"dtype\": \"float16\"\n  }\n}\n");
    check("{\"torch_dtype\": \"bfloat16\"}", NULL, NULL,
          "{\n  \"torch_dtype\": \"bfloat16\"\n}\n");
    check("{\"dtype\": {\"a\": 1}}", NULL, "float16", "{\n  \"dtype\": \"float16\"\n}\n");
}

/* -------------------------------------------------------------------- refusals */

static void
check_refused(const char *text, uint64_t bytes, const char *why)
{
    char *out = (char *)context;
    uint64_t out_bytes = 1;
    berth_error error;

    CHECK_EQ(berthi_config_rewrite(context, &IN(text, bytes), &nf4, NULL, &out,
                                   &out_bytes, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_STR(error.file, FILE_NAME);
    CHECK_CONTAINS(error.message, why);
    CHECK(out == NULL);
    CHECK_EQ(out_bytes, 0);
}

static void
test_refused(void)
{
    check_refused("[]", 2, "not an object");
    check_refused("1", 1, "not an object");
    check_refused("{\"a\": 1", 7, "not JSON as berth reads it");
    check_refused("", 0, "not JSON as berth reads it");
    check_refused("{\"a\": 1, \"a\": 2}", 16, "a key stands twice");
    check_refused("{\"a\": \"\xff\"}", 10, "not UTF-8");
}

/* A list as deep as may be, each line of which is indented by 252 blanks. */
static void
test_too_large(void)
{
    enum { DEEP = 126, VALUES = 70000 };
    char *const text = calloc(1, 2 * DEEP + 2 * VALUES + 64);
    size_t length = (size_t)sprintf(text, "{\"a\": ");
    uint64_t expected;
    berth_error error;
    uint64_t bytes;
    char *out;

    memset(text + length, '[', DEEP);
    length += DEEP;
    for (int i = 0; i < VALUES; i++)
        length += (size_t)sprintf(text + length, i > 0 ? ",1" : "1");
    memset(text + length, ']', DEEP);
    length += DEEP;
    text[length++] = '}';
    CHECK_EQ(berthi_config_rewrite(context, &IN(text, length), NULL, NULL, &out,
                                   &bytes, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_CONFIG_JSON);
    CHECK_CONTAINS(error.message, "written anew");
    CHECK_EQ(error.expected, BERTHI_CONFIG_LIMIT);
    expected = strlen("{\n  \"a\": ") + strlen("\n}\n");
    /* A bracket; in its list the next one's line feed and blanks; its end's. */
    for (unsigned depth = 1; depth <= DEEP; depth++)
        expected += 1 + (depth < DEEP ? 1 + 2 * (depth + 1) : 0) + 1 + 2 * depth + 1;
    /* Comma, line feed, blanks, digit; the first has no comma. */
    expected += VALUES * (1 + 1 + 2 * (DEEP + 1) + 1) - 1;
    CHECK_EQ(error.actual, expected);
    CHECK(out == NULL);
    free(text);
}

static void
test_bad_skips(void)
{
    static const char *const names[] = { "good", "b\xff" };
    berthi_quantization q = nf4;
    berth_error error;
    uint64_t bytes;
    char *out;

    q.has_skips = true;
    q.skips = names;
    q.skip_count = 2;
    CHECK_EQ(berthi_config_rewrite(context, &IN("{}", 2), &q, NULL, &out, &bytes,
                                   &error), BERTH_EINVAL);
    CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
    CHECK_CONTAINS(error.message, "skip_modules");
    CHECK_CONTAINS(error.message, "is not UTF-8");
    CHECK(out == NULL);
}

/* ---------------------------------------------------------------------- faults */

static berth_status
rewrite_once(void *user, berth_context *its, berth_error *error)
{
    static const char text[] = "{\"b\": [1, {\"c\": 2}], \"a\": \"x\", \"dtype\": 1}";
    char *out;
    uint64_t bytes;
    const berth_status status =
        berthi_config_rewrite(its, &IN(text, sizeof text - 1), &nf4, "float16", &out,
                              &bytes, error);

    (void)user;
    if (status == BERTH_OK)
        berthi_memory_free(its, BERTHI_PURPOSE_DOCUMENT, out, bytes);
    else
        CHECK(out == NULL && bytes == 0);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("rewrite", rewrite_once, NULL);

    CHECK_GE(counts.memory, 8);
    CHECK_EQ(counts.survived, 0);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_data);
    T_RUN(test_recorded);
    T_RUN(test_sorted_and_indented);
    T_RUN(test_values_stay);
    T_RUN(test_any_order);
    T_RUN(test_settings);
    T_RUN(test_other_methods_go);
    T_RUN(test_multimodal);
    T_RUN(test_inner_models);
    T_RUN(test_dtypes);
    T_RUN(test_refused);
    T_RUN(test_too_large);
    T_RUN(test_bad_skips);
    T_RUN(test_faults);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
