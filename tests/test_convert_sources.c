/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert_sources.c - quantized checkpoints as sources: decoded, quantized
 * anew, turned; against whole tensors done the slow way, and against what they
 * were before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/converted.h"
#include "tests/fixture.h"
#include "tests/t.h"
#include "tests/weights.h"

#define FP8 "{\"quantization_config\": {\"quant_method\": \"fp8\"}}"
#define FP8_BLOCK(block)                                                                  \
    "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": " block \
    "}}"
#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define PLAIN "BF16 33x70 model.layers.2.c.weight\nF32 9 model.norm.weight\n"

typedef struct target {
    int32_t type;
    int32_t dtype;
    int32_t double_quant;
    uint32_t block_size;
    uint64_t unit_values;
    uint64_t max_shard_bytes;
} target;

static const target targets[] = {
    { BERTH_ENCODING_NATIVE, -1, 0, 0, 2 << 20, 0 },
    { BERTH_ENCODING_NATIVE, BERTH_BF16, 0, 0, 100, 0 },
    { BERTH_ENCODING_NATIVE, BERTH_F16, 0, 0, 1000, 4096 },
    { BERTH_ENCODING_NATIVE, BERTH_F32, 0, 0, 333, 0 },
    { BERTH_ENCODING_NF4, -1, 1, 64, 512, 0 },
    { BERTH_ENCODING_NF4, BERTH_F32, 0, 32, 64, 4096 },
    { BERTH_ENCODING_FP4, BERTH_F16, 1, 128, 300, 8192 },
    { BERTH_ENCODING_INT8, -1, 0, 0, 200, 0 },
    { BERTH_ENCODING_INT8, BERTH_BF16, 0, 0, 5000, 5000 },
};

/* To every target; the number of weights that were decoded or quantized. */
static uint32_t
check_source(const char *model)
{
    uint32_t weights = 0;

    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        const target *const t = &targets[i];
        int32_t changed = -1;
        converted c;

        converted_begin(&c, fixture_format("%s/out", fixture_folder()), t->type);
        c.options.dtype = t->dtype;
        c.options.double_quant = t->double_quant;
        c.options.block_size = t->block_size;
        c.options.max_shard_bytes = t->max_shard_bytes;
        c.options.workers = 1 + (uint32_t)i % 3;
        converted_shrink(&c, t->unit_values);
        if (CHECK_EQ(converted_run(&c, model), BERTH_OK))
            changed = converted_matches_oracle(&c, model);
        if (!CHECK_GE(changed, 0) || !converted_is_verified(c.options.output))
            T_NOTE("%s, target %d: %s %s", model, (int)i, c.error.tensor,
                   c.error.message);
        CHECK_LE(c.peak, c.report.planned_memory);
        weights += changed > 0 ? (uint32_t)changed : 0;
        fixture_remove(c.options.output);
    }
    return weights;
}

typedef struct source {
    const char *name;
    const char *lines;
    const char *config; /* NULL: none */
} source;

static const source sources[] = {
    { "blocks of 128, partial ones", "F8_E4M3 192x200 " A "\nF32 2x2 " A "_scale_inv\n",
      FP8 },
    { "two weights, BF16 scales",
      "F8_E4M3 300x129 " A "\nBF16 3x2 " A "_scale_inv\nF8_E4M3 256x384 " B
      "\nBF16 2x3 " B "_scale_inv\n",
      FP8 },
    { "powers of two as scales", "F8_E4M3 130x260 " A "\nF8_E8M0 2x3 " A "_scale_inv\n",
      FP8 },
    { "scales as bytes", "F8_E4M3 130x260 " A "\nU8 2x3 " A "_scale_inv\n", FP8 },
    { "small blocks", "F8_E4M3 100x70 " A "\nF32 2x3 " A "_scale_inv\n",
      FP8_BLOCK("[64, 32]") },
    { "one scale", "F8_E4M3 65x63 " A "\nF32 - " A "_scale_inv\n", FP8 },
    { "rows", "F8_E4M3 65x63 " A "\nF32 65x1 " A "_scale\n", NULL },
    { "packed FP4", "I8 64x64 " A "\nF8_E8M0 64x4 " A "_scale_inv\n", NULL },
};

static void
test_scaled_sources(void)
{
    uint32_t weights = 0;

    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        const char *const folder = fixture_folder();

        fixture_model(folder, fixture_format("[model.safetensors]\n%s" PLAIN,
                                             sources[i].lines));
        if (sources[i].config != NULL)
            fixture_text(fixture_format("%s/config.json", folder), sources[i].config);
        if (!CHECK_GT(weights += check_source(folder), 0))
            T_NOTE("%s", sources[i].name);
    }
    T_NOTE("%u weights of %d kinds of sources", weights,
           (int)(sizeof sources / sizeof sources[0]));
}

/* Experts are pieces of their own, and the values are turned against the bytes. */
static void
test_mxfp4(void)
{
    const char *const folder = fixture_folder();

    fixture_model(folder,
                  "[model.safetensors]\nU8 5x48x3x16 model.layers.0.experts.x_blocks\n"
                  "U8 5x48x3 model.layers.0.experts.x_scales\n" PLAIN);
    T_NOTE("%u weights", check_source(folder));
}

static void
test_bitsandbytes(void)
{
    uint32_t weights = 0;

    for (int is_double = 0; is_double < 2; is_double++) {
        const char *const folder = fixture_folder();
        fixture_builder *const b = fixture_begin();

        fixture_add_nf4(b, A, 65, 63, is_double != 0);
        fixture_add_nf4(b, B, 1, 1, is_double != 0);
        fixture_add_nf4(b, "model.layers.3.d.weight", 200, 96, is_double != 0);
        fixture_add_lines(b, PLAIN);
        fixture_finish(b, fixture_format("%s/model.safetensors", folder));
        weights += check_source(folder);
    }
    T_NOTE("%u weights", weights);
}

static void
test_int8_source(void)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    fixture_add_int8(b, "model.layers.0.a", 65, 63);
    fixture_add_int8(b, "model.layers.1.b", 3, 700);
    fixture_add_lines(b, PLAIN);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    T_NOTE("%u weights", check_source(folder));
}

/* ----------------------------------------------------------- there and back again */

static void
convert(const char *from, const char *to, int32_t type, int32_t dtype, int32_t is_double)
{
    converted c;

    converted_begin(&c, to, type);
    c.options.dtype = dtype;
    c.options.double_quant = is_double;
    converted_shrink(&c, 4096);
    if (!CHECK_EQ(converted_run(&c, from), BERTH_OK))
        T_NOTE("%s: %s %s", from, c.error.tensor, c.error.message);
}

static const char *
out(void)
{
    return fixture_format("%s/out", fixture_folder());
}

static bool
is_same(const char *a, const char *b)
{
    size_t a_bytes;
    size_t b_bytes;
    char *const a_text = fixture_read(fixture_format("%s/model.safetensors", a), &a_bytes);
    char *const b_text = fixture_read(fixture_format("%s/model.safetensors", b), &b_bytes);
    const bool is_equal = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;

    free(a_text);
    free(b_text);
    return is_equal;
}

/* A model of BF16 weights. */
static const char *
make_plain(const char *name, uint64_t rows, uint64_t columns, const char *config)
{
    const char *const folder = fixture_folder();
    const uint64_t shape[2] = { rows, columns };
    fixture_builder *const b = fixture_begin();

    for (uint64_t i = 0; i < 3; i++) {
        void *const values = weights_values(BERTH_BF16, rows * columns, i + 1, false);

        fixture_add(b, fixture_format(name, (int)i), "BF16", 2, shape, values);
        free(values);
    }
    fixture_add_lines(b, "BF16 5 model.norm.weight\n@format pt\n");
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), config);
    return folder;
}

/*
 * The largest value of a block is its absmax, as it is in the codes: decoded and
 * quantized again, single absmax gives the same codes. Doubly quantized absmax
 * are no values of BF16, and rows of INT8 are divided by 127: no promise there.
 * FP4 loses the sign of its zeros the first time.
 */
static void
test_the_same_codes_again(void)
{
    const char *const model =
        make_plain("model.layers.%d.a.weight", 60, 77, FIXTURE_CONFIG);
    static const int32_t types[] = { BERTH_ENCODING_NF4, BERTH_ENCODING_FP4 };

    for (int i = 0; i < 2; i++) {
        const char *const first = out();
        const char *const plain = out();
        const char *const second = out();
        const char *const plain_again = out();
        const char *const third = out();

        convert(model, first, types[i], -1, 0);
        convert(first, plain, BERTH_ENCODING_NATIVE, BERTH_BF16, 0);
        convert(plain, second, types[i], -1, 0);
        convert(second, plain_again, BERTH_ENCODING_NATIVE, BERTH_BF16, 0);
        convert(plain_again, third, types[i], -1, 0);
        CHECK_EQ(is_same(first, second), types[i] == BERTH_ENCODING_NF4);
        CHECK(is_same(second, third));
        CHECK(!is_same(model, plain));
    }
}

static void
check_compute_dtype(const char *from, int32_t type, const char *given, const char *expected)
{
    converted c;
    char *config;

    converted_begin(&c, out(), type);
    c.options.compute_dtype = given;
    CHECK_EQ(converted_run(&c, from), BERTH_OK);
    config = fixture_read(fixture_format("%s/config.json", c.options.output), NULL);
    CHECK_CONTAINS(config, fixture_format("\"bnb_4bit_compute_dtype\": \"%s\"", expected));
    free(config);
}

/* What a quantized source says stays, unless something else is asked for. */
static void
test_compute_dtype(void)
{
    const char *const model = make_plain("model.layers.%d.a.weight", 6, 64, FIXTURE_CONFIG);
    const char *const quantized = out();
    const char *const plain = out();
    converted c;

    converted_begin(&c, quantized, BERTH_ENCODING_NF4);
    c.options.compute_dtype = "bfloat16";
    CHECK_EQ(converted_run(&c, model), BERTH_OK);
    convert(quantized, plain, BERTH_ENCODING_NATIVE, -1, 0);
    check_compute_dtype(model, BERTH_ENCODING_NF4, NULL, "float32");
    check_compute_dtype(quantized, BERTH_ENCODING_FP4, NULL, "bfloat16");
    check_compute_dtype(quantized, BERTH_ENCODING_INT8, NULL, "bfloat16");
    check_compute_dtype(quantized, BERTH_ENCODING_NF4, "float16", "float16");
    check_compute_dtype(plain, BERTH_ENCODING_NF4, NULL, "float32");
}

/* Where its products set columns apart is said by a quantized source, too. */
static void
test_int8_threshold(void)
{
    static const char written[] = "\"llm_int8_threshold\": 6.0";
    const char *const model = make_plain("model.layers.%d.a.weight", 6, 64, FIXTURE_CONFIG);
    const char *const quantized = out();
    const char *const path = fixture_format("%s/config.json", quantized);
    converted c;
    char *config;
    char *place;

    convert(model, quantized, BERTH_ENCODING_INT8, -1, 0);
    config = fixture_read(path, NULL);
    place = strstr(config, written);
    if (CHECK(place != NULL))
        place[sizeof written - 4] = '4';
    fixture_text(path, config);
    free(config);
    converted_begin(&c, out(), BERTH_ENCODING_INT8);
    CHECK_EQ(converted_run(&c, quantized), BERTH_OK);
    config = fixture_read(fixture_format("%s/config.json", c.options.output), NULL);
    CHECK_CONTAINS(config, "\"llm_int8_threshold\": 4.0");
    free(config);
}

/* What config.json says of codes is untrue of the numbers in them. */
static void
test_dtype_of_codes(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/config.json", folder);
    converted c;
    char *config;

    fixture_model(folder, "[model.safetensors]\nF8_E4M3 4x8 a.weight\nF32 4x1 a.weight_scale\n");
    fixture_text(path, "{\"dtype\": \"float8_e4m3fn\", \"quantization_config\": "
                       "{\"quant_method\": \"fp8\"}}\n");
    for (int i = 0; i < 2; i++) {
        converted_begin(&c, out(), BERTH_ENCODING_NATIVE);
        c.options.dtype = i == 0 ? -1 : BERTH_F32;
        CHECK_EQ(converted_run(&c, folder), BERTH_OK);
        config = fixture_read(fixture_format("%s/config.json", c.options.output), NULL);
        CHECK_CONTAINS(config, i == 0 ? "\"dtype\": \"bfloat16\""
                                      : "\"dtype\": \"float32\"");
        free(config);
    }
}

/* The same shapes and names as before; only the values are others. */
static void
test_decoded_is_the_original_architecture(void)
{
    static const char *const names[] = { "model.layers.%d.a.weight",
                                         "transformer.h.%d.mlp.c_fc.weight" };
    static const char *const configs[] = {
        FIXTURE_CONFIG,
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}\n",
    };

    for (int i = 0; i < 2; i++) {
        const char *const model = make_plain(names[i], 48, 100, configs[i]);
        const char *const quantized = out();
        const char *const plain = out();
        size_t bytes;
        char *a;
        char *b;

        convert(model, quantized, BERTH_ENCODING_INT8, -1, 0);
        convert(quantized, plain, BERTH_ENCODING_NATIVE, BERTH_BF16, 0);
        a = fixture_read(fixture_format("%s/model.safetensors", model), &bytes);
        b = fixture_read(fixture_format("%s/model.safetensors", plain), NULL);
        CHECK_EQ(bytes, fixture_size(fixture_format("%s/model.safetensors", plain)));
        CHECK_MEM(a, b, 8); /* the same length of header */
        CHECK(strstr(b + 8, "[48,100]") != NULL);
        CHECK(memcmp(a, b, bytes) != 0);
        free(a);
        free(b);
        b = fixture_read(fixture_format("%s/config.json", plain), NULL);
        CHECK(strstr(b, "quantization_config") == NULL);
        free(b);
        b = fixture_read(fixture_format("%s/model.safetensors", quantized), NULL);
        CHECK_EQ(strstr(b + 8, "[100,48]") != NULL, i == 1);
        free(b);
    }
}

/* GPT-2's weights lie the other way round; of small strips each reads all. */
static void
test_turned_in_strips(void)
{
    static const char *const config =
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}\n";
    static const uint64_t shapes[][2] = { { 48, 144 }, { 7, 5 }, { 65, 63 }, { 100, 1 },
                                          { 1, 100 } };
    uint32_t weights = 0;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const char *const model =
            make_plain("transformer.h.%d.attn.c_attn.weight", shapes[i][0], shapes[i][1],
                       config);
        const char *const quantized = out();

        weights += check_source(model);
        convert(model, quantized, BERTH_ENCODING_NF4, -1, 1);
        weights += check_source(quantized);
        fixture_remove(quantized);
        convert(model, quantized, BERTH_ENCODING_INT8, -1, 0);
        weights += check_source(quantized);
    }
    T_NOTE("%u weights", weights);
}

/* ---------------------------------------------------------------- mixed encodings */

#define MIXED_CONFIG(members)                                                             \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"dtype\": \"bfloat16\", "                  \
    "\"model_type\": \"llama\", \"quantization_config\": {" members                       \
    "}, \"tie_word_embeddings\": false}\n"

/* What config.json may say of the same tensors: each time something else is untrue. */
static const char *const mixed_configs[] = {
    MIXED_CONFIG("\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", "
                 "\"quant_method\": \"bitsandbytes\""),
    MIXED_CONFIG("\"load_in_8bit\": true, \"quant_method\": \"bitsandbytes\""),
    MIXED_CONFIG("\"load_in_4bit\": true, \"load_in_8bit\": true"),
    MIXED_CONFIG("\"load_in_4bit\": true, \"llm_int8_skip_modules\": "
                 "[\"model.layers.0.a\", \"b\", \"model.layers.3\"]"),
    MIXED_CONFIG("\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"fp4\", "
                 "\"bnb_4bit_quant_storage\": \"bfloat16\", "
                 "\"bnb_4bit_use_double_quant\": true"),
    MIXED_CONFIG("\"quant_method\": \"fp8\""),
    FIXTURE_CONFIG,
};

/* Both kinds of NF4, INT8, FP8 beside scales, and a layer that is not quantized. */
static const char *
make_mixed(const char *config)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    fixture_add_nf4(b, A, 65, 63, false);
    fixture_add_nf4(b, B, 40, 96, true);
    fixture_add_int8(b, "model.layers.3.d", 30, 50);
    fixture_add_lines(b, "F8_E4M3 256x96 model.layers.4.e.weight\n"
                         "F32 2x1 model.layers.4.e.weight_scale_inv\n" PLAIN);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), config);
    return folder;
}

/* A weight is quantized as its statistics say, whatever config.json does. */
static void
test_mixed_encodings(void)
{
    const char *first = NULL;
    uint32_t weights = 0;

    for (size_t i = 0; i < sizeof mixed_configs / sizeof mixed_configs[0]; i++) {
        const char *const model = make_mixed(mixed_configs[i]);
        const char *const plain = out();
        converted c;
        char *config;

        if (i == 0)
            weights = check_source(model);
        convert(model, plain, BERTH_ENCODING_NATIVE, BERTH_BF16, 0);
        config = fixture_read(fixture_format("%s/config.json", plain), NULL);
        CHECK(strstr(config, "quantization_config") == NULL);
        free(config);
        first = first == NULL ? plain : first;
        CHECK(is_same(plain, first));
        /* Of five weights each one goes on as it is that is stored so already. */
        converted_begin(&c, out(), BERTH_ENCODING_NF4);
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_EQ(c.report.quantized, 5);
        CHECK_EQ(c.report.kept, 1);
        converted_begin(&c, out(), BERTH_ENCODING_INT8);
        CHECK_EQ(converted_run(&c, model), BERTH_OK);
        CHECK_EQ(c.report.kept, 1);
    }
    T_NOTE("%u weights", weights);
}

int
main(int argc, char **argv)
{
    fixture_use_memory();
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_scaled_sources);
    T_RUN(test_mxfp4);
    T_RUN(test_bitsandbytes);
    T_RUN(test_int8_source);
    T_RUN(test_the_same_codes_again);
    T_RUN(test_compute_dtype);
    T_RUN(test_int8_threshold);
    T_RUN(test_dtype_of_codes);
    T_RUN(test_decoded_is_the_original_architecture);
    T_RUN(test_turned_in_strips);
    T_RUN(test_mixed_encodings);
    T_MAIN_END;
}
