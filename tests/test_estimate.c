/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate.c - weights, caches and lines, against numbers worked out by other means. */
#include "placement/estimate.h"

#include <string.h>

#include "tests/estimated.h"
#include "tests/fixture.h"
#include "tests/t.h"

static berthi_estimate_options
options_of(const estimated *e, int32_t type)
{
    berthi_estimate_options options;

    berthi_estimate_options_init(&options, &e->shape);
    options.type = type;
    options.dtype = BERTH_BF16;
    options.cache_type = BERTHI_CACHE_BF16;
    return options;
}

static berthi_weight_sums
sums_of(const estimated *e, int32_t type)
{
    const berthi_estimate_options options = options_of(e, type);
    berthi_weight_sums sums;

    berthi_estimate_weights(&e->model, &options, &sums);
    return sums;
}

static berthi_estimate
estimate(const estimated *e, const berthi_estimate_options *options)
{
    berthi_estimate out;
    berth_error error;

    if (!CHECK_EQ(berthi_estimate_inference(&e->model, options, &out, &error), BERTH_OK))
        T_NOTE("%s", error.message);
    return out;
}

/* ----------------------------------------------------------------------- weights */

/*
 * In 10^-3 GB: linear layers of the blocks in 16, 8, 4.5 and 4.127 bits a weight, the rest
 * in 16. These numbers leave out code tables and blobs, and for int8 the row maxima, too: so
 * does the comparison.
 */
static void
test_table_of_weights(void)
{
    static const struct {
        const char *name;
        uint64_t bf16;
        uint64_t int8;
        uint64_t nf4;
        uint64_t nested;
    } rows[] = {
        { "llama-2-7b", 13477, 7001, 4168, 3866 },
        { "llama-2-13b", 26032, 13344, 7793, 7201 },
        { "llama-2-70b", 137953, 69502, 39555, 36363 },
        { "llama-3-8b", 16061, 9081, 6028, 5702 },
        { "llama-3-70b", 141107, 72656, 42709, 39517 },
        { "llama-3.1-405b", 811707, 410060, 234340, 215611 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const estimated *const e = estimated_config(rows[i].name);
        const berthi_weight_sums bf16 = sums_of(e, BERTHI_TYPE_BF16);
        const berthi_weight_sums int8 = sums_of(e, BERTHI_TYPE_INT8);
        const berthi_weight_sums nf4 = sums_of(e, BERTHI_TYPE_NF4);
        const berthi_weight_sums nested = sums_of(e, BERTHI_TYPE_NF4_DOUBLE);

        if (!CHECK_EQ(estimated_mb(bf16.total), rows[i].bf16)
            || !CHECK_EQ(estimated_mb(int8.values), rows[i].int8)
            || !CHECK_EQ(estimated_mb(nf4.values + nf4.statistics), rows[i].nf4)
            || !CHECK_EQ(estimated_mb(nested.values + nested.statistics), rows[i].nested))
            T_NOTE("%s", rows[i].name);
        /* Tables and blobs are below 0.03 %, row maxima below 0.1 %. */
        CHECK_LT(nf4.tables, nf4.total / 3000);
        CHECK_LT(int8.statistics, int8.total / 1000);
        CHECK_EQ(nf4.quantized, int8.quantized);
        CHECK_EQ(bf16.quantized, 0);
        CHECK_EQ(bf16.statistics + bf16.tables, 0);
        CHECK_EQ(nf4.total, nf4.values + nf4.statistics + nf4.tables);
        CHECK_EQ(nf4.total, nf4.first + nf4.last + nf4.layers[0] * e->shape.layers);
    }
}

/* Of a model that has nothing else. */
static uint64_t
bytes_of(const estimated *e, const berthi_weight *weight, const berthi_estimate_options *options)
{
    berthi_estimate_model model = e->model;
    berthi_weight_sums sums;

    model.weights = weight;
    model.weight_count = 1;
    berthi_estimate_weights(&model, options, &sums);
    return sums.total;
}

/* To the byte: codes, absmax, tables and state of one weight of 4096 x 4096. */
static void
test_one_weight(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    const berthi_weight w = { .module = "q_proj", .role = BERTHI_WEIGHT_LINEAR,
                              .dtype = BERTH_BF16, .rank = 2,
                              .shape = { 4096, 4096 }, .count = 1 };
    const uint64_t n = 4096 * 4096;
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NF4);
    uint64_t state = bytes_of(e, &w, &options) - n / 2 - n / 64 * 4 - 64;

    CHECK_GT(state, 50); /* the blob's text */
    CHECK_LT(state, 150);
    options.type = BERTHI_TYPE_NF4_DOUBLE;
    state = bytes_of(e, &w, &options) - n / 2 - n / 64 - n / 64 / 256 * 4 - 1088;
    CHECK_GT(state, 100);
    CHECK_LT(state, 250);
    options.type = BERTHI_TYPE_INT8;
    CHECK_EQ(bytes_of(e, &w, &options), n + 4 * 4096 + 1);
    options.type = BERTHI_TYPE_F32;
    CHECK_EQ(bytes_of(e, &w, &options), 4 * n);
    options.type = BERTHI_TYPE_F16;
    CHECK_EQ(bytes_of(e, &w, &options), 2 * n);
    options.type = BERTHI_TYPE_NATIVE;
    CHECK_EQ(bytes_of(e, &w, &options), 2 * n);
}

static void
test_types(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    berthi_weight integers = { .module = "x", .role = BERTHI_WEIGHT_LINEAR,
                               .dtype = BERTH_I32, .rank = 2, .shape = { 8, 8 },
                               .count = 1 };
    const berthi_weight norm = { .module = "norm", .role = BERTHI_WEIGHT_OTHER,
                                 .dtype = BERTH_F32, .rank = 1, .shape = { 8, 0 },
                                 .count = 1 };
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NF4);

    CHECK_EQ(sums_of(e, BERTHI_TYPE_FP4).total, sums_of(e, BERTHI_TYPE_NF4).total);
    CHECK_EQ(sums_of(e, BERTHI_TYPE_FP4_DOUBLE).total,
             sums_of(e, BERTHI_TYPE_NF4_DOUBLE).total);
    CHECK_EQ(sums_of(e, BERTHI_TYPE_F32).total, 2 * sums_of(e, BERTHI_TYPE_F16).total);
    /* What is no float stays; what is not quantized becomes the dtype. */
    CHECK_EQ(bytes_of(e, &integers, &options), 256);
    CHECK_EQ(bytes_of(e, &norm, &options), 16);
    options.dtype = BERTH_F32;
    CHECK_EQ(bytes_of(e, &norm, &options), 32);
    options.type = BERTHI_TYPE_NATIVE;
    options.dtype = BERTH_BF16;
    CHECK_EQ(bytes_of(e, &norm, &options), 32);
    options.type = BERTHI_TYPE_BF16;
    CHECK_EQ(bytes_of(e, &norm, &options), 16);
    integers.dtype = BERTH_BF16;
    integers.shape[0] = 0; /* nothing to quantize: plain */
    options.type = BERTHI_TYPE_NF4;
    CHECK_EQ(bytes_of(e, &integers, &options), 0);
}

static void
test_experts(void)
{
    const estimated *const e = estimated_config("mixtral-8x7b-v0.1");
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NF4);
    berthi_weight_sums sums;

    berthi_estimate_weights(&e->model, &options, &sums);
    CHECK_EQ(sums.quantized, 46439333888);
    /* Six of eight experts are idle, each 3 * 4096 * 14336 weights of 32 layers. */
    CHECK_EQ(estimated_mb(sums.idle), 19025);
    options.keeps_experts = true;
    berthi_estimate_weights(&e->model, &options, &sums);
    CHECK_EQ(sums.quantized, 46439333888 - UINT64_C(8) * 3 * 4096 * 14336 * 32);
    /* transformers 5, too, leaves experts alone: 91.4 GB with half a byte for the rest. */
    CHECK_EQ(estimated_mb(sums.total), 91476);
    CHECK_EQ(sums.largest, UINT64_C(4096) * 14336);
}

/* Before the layers and behind them. */
static void
test_ends(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    const uint64_t table = UINT64_C(128256) * 4096 * 2;
    const berthi_weight_sums sums = sums_of(e, BERTHI_TYPE_BF16);

    CHECK_EQ(sums.first, table);
    CHECK_EQ(sums.last, table + 4096 * 2);
    CHECK_EQ(sums.first + sums.last + 32 * sums.layers[0], sums.total);
}

static void
test_overflow(void)
{
    const estimated *const e = estimated_config("llama-3-8b");
    const berthi_weight huge = { .module = "q_proj", .role = BERTHI_WEIGHT_LINEAR,
                                 .dtype = BERTH_BF16, .rank = 2,
                                 .shape = { UINT64_C(1) << 32, UINT64_C(1) << 32 },
                                 .count = 1 };
    berthi_weight many = huge;
    berthi_estimate_model model = e->model;
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);
    berthi_estimate out;
    berth_error error;

    CHECK_EQ(bytes_of(e, &huge, &options), UINT64_MAX);
    model.weights = &many;
    model.weight_count = 1;
    many.shape[1] = 1;
    many.count = UINT64_C(1) << 32;
    CHECK_EQ(berthi_estimate_inference(&model, &options, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "with weights of linear layers the estimate is beyond");
    CHECK_EQ(out.line_count, 0);
    options.batch = UINT64_C(1) << 60;
    CHECK_EQ(berthi_estimate_inference(&e->model, &options, &out, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "with KV cache the estimate is beyond 2^64 bytes");
}

/* ------------------------------------------------------------------------- cache */

static uint64_t
cache_of(const char *name, int32_t type, bool expands, uint64_t tokens)
{
    const estimated *const e = estimated_config(name);
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);

    options.cache_type = type;
    options.expands_latents = expands;
    return berthi_cache_sequence(&e->shape, &options, tokens);
}

/* Bytes of a token in bf16. */
static void
test_caches(void)
{
    const int32_t bf16 = BERTHI_CACHE_BF16;

    CHECK_EQ(cache_of("llama-2-7b", bf16, false, 1), 524288);
    CHECK_EQ(cache_of("llama-2-13b", bf16, false, 1), 819200);
    CHECK_EQ(cache_of("llama-2-70b", bf16, false, 1), 327680);
    CHECK_EQ(cache_of("llama-3-70b", bf16, false, 1), 327680);
    CHECK_EQ(estimated_mb(cache_of("llama-3-70b", bf16, false, 8192)), 2684);
    CHECK_EQ(estimated_mb(cache_of("llama-3-70b", bf16, false, 131072)), 42950);
    CHECK_EQ(cache_of("llama-3-8b", bf16, false, 1), 131072);
    CHECK_EQ(cache_of("llama-3.1-405b", bf16, false, 1), 516096);
    CHECK_EQ(cache_of("deepseek-v3", bf16, false, 1), 70272);
    CHECK_EQ(cache_of("deepseek-v3", bf16, true, 1), 4997120);
    CHECK_EQ(cache_of("mistral-7b-v0.1", bf16, false, 1), 131072);
    CHECK_EQ(cache_of("mistral-7b-v0.1", bf16, false, 4096), 536870912);
    CHECK_EQ(cache_of("mistral-7b-v0.1", bf16, false, 4097), 536870912);
    CHECK_EQ(cache_of("mistral-7b-v0.1", bf16, false, UINT64_C(1) << 40), 536870912);
    /* Half of Gemma 2's layers stop at 4096; 5 of 34 of Gemma 3 go on. */
    CHECK_EQ(cache_of("gemma-2-9b", bf16, false, 8192), 8192 * (21 * 4096 + 21 * 8192));
    CHECK_EQ(cache_of("gemma-3-4b", bf16, false, 2048), 4096 * (29 * 1024 + 5 * 2048));
    CHECK_EQ(cache_of("gpt-oss-20b", bf16, false, 1000), 2048 * (12 * 128 + 12 * 1000));
    CHECK_EQ(cache_of("qwen3-next-80b-a3b", bf16, false, 1), 12 * 2048);
    CHECK_EQ(cache_of("gpt2", bf16, false, 1), 2 * 768 * 2 * 12);
}

/* What small models of the library's classes keep. */
static void
test_odd_caches(void)
{
    const estimated *e = estimated_text(
        "{\"model_type\": \"minimax_m3_vl_text\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 8, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 16, \"intermediate_size\": 96, \"vocab_size\": 100, "
        "\"index_n_heads\": 2, \"index_head_dim\": 16, \"sparse_attention_config\": "
        "{\"sparse_attention_freq\": [0, 0, 0, 1, 1, 1, 1, 1]}}");
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);

    options.cache_type = BERTHI_CACHE_BF16;
    CHECK_EQ(berthi_cache_sequence(&e->shape, &options, 40), 2 * (10240 + 10240 + 3200));
    e = estimated_text(
        "{\"model_type\": \"mimo_v2_flash\", \"hidden_size\": 64, "
        "\"num_hidden_layers\": 8, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 24, \"v_head_dim\": 16, \"intermediate_size\": 96, "
        "\"vocab_size\": 100, \"sliding_window\": 8}");
    CHECK_EQ(berthi_cache_sequence(&e->shape, &options, 40), 2 * (8448 + 5632));
}

static void
test_cache_types(void)
{
    CHECK_EQ(cache_of("llama-3-8b", BERTHI_CACHE_F32, false, 3), 3 * 262144);
    CHECK_EQ(cache_of("llama-3-8b", BERTHI_CACHE_F16, false, 3), 3 * 131072);
    CHECK_EQ(cache_of("llama-3-8b", BERTHI_CACHE_FP8, false, 3), 3 * 65536);
    /* 1 + 2 * 2 / 32 and 0.5 + 2 * 2 / 32 bytes an element */
    CHECK_EQ(cache_of("llama-3-8b", BERTHI_CACHE_INT8, false, 3), 3 * 73728);
    CHECK_EQ(cache_of("llama-3-8b", BERTHI_CACHE_INT4, false, 3), 3 * 40960);
    CHECK_EQ(berthi_cache_size(BERTHI_CACHE_INT8, 33), 33 + 8);
    CHECK_EQ(berthi_cache_size(BERTHI_CACHE_INT4, 33), 17 + 8);
    CHECK_EQ(berthi_cache_size(BERTHI_CACHE_BF16, UINT64_C(1) << 63), UINT64_MAX);
}

/* ------------------------------------------------------------------------- words */

static void
test_words(void)
{
    CHECK_STR(berthi_type_name(BERTHI_TYPE_NF4_DOUBLE), "nf4+double-quant");
    CHECK_STR(berthi_type_name(BERTHI_TYPE_COUNT), "unknown");
    CHECK_STR(berthi_type_name(-1), "unknown");
    CHECK_STR(berthi_cache_type_name(BERTHI_CACHE_INT4), "int4");
    CHECK_STR(berthi_cache_type_name(BERTHI_CACHE_COUNT), "unknown");
    CHECK_EQ(berthi_type_find("bfloat16"), BERTHI_TYPE_BF16);
    CHECK_EQ(berthi_type_find("fp16"), BERTHI_TYPE_F16);
    CHECK_EQ(berthi_type_find("fp32"), BERTHI_TYPE_F32);
    CHECK_EQ(berthi_type_find("native"), BERTHI_TYPE_NATIVE);
    CHECK_EQ(berthi_type_find("int8"), BERTHI_TYPE_INT8);
    CHECK_EQ(berthi_type_find("int9"), -1);
    CHECK_EQ(berthi_cache_type_find("e4m3"), BERTHI_CACHE_FP8);
    CHECK_EQ(berthi_cache_type_find("fp8"), BERTHI_CACHE_FP8);
    CHECK_EQ(berthi_cache_type_find("float32"), BERTHI_CACHE_F32);
    CHECK_EQ(berthi_cache_type_find("bf16"), BERTHI_CACHE_BF16);
    CHECK_EQ(berthi_cache_type_find("f16"), BERTHI_CACHE_F16);
    CHECK_EQ(berthi_cache_type_find("nf4"), -1);
    CHECK(berthi_type_is_quantized(BERTHI_TYPE_INT8));
    CHECK(berthi_type_is_quantized(BERTHI_TYPE_FP4_DOUBLE));
    CHECK(!berthi_type_is_quantized(BERTHI_TYPE_F16));
    CHECK(!berthi_type_is_quantized(BERTHI_TYPE_COUNT));
    CHECK_STR(berthi_part_key(BERTHI_PART_CACHE), "kv_cache");
    CHECK_STR(berthi_part_name(BERTHI_PART_CACHE), "KV cache");
    CHECK_STR(berthi_part_name(BERTHI_PART_COUNT), "unknown");
    CHECK_STR(berthi_basis_name(BERTHI_BASIS_MEASURED), "measured");
    CHECK_STR(berthi_basis_name(4), "unknown");
}

/* ------------------------------------------------------------------------- lines */

static void
test_lines(void)
{
    static const int32_t order[] =
        { BERTHI_PART_LINEARS, BERTHI_PART_OTHERS,        BERTHI_PART_CACHE,
          BERTHI_PART_ACTIVATIONS, BERTHI_PART_LOGITS,    BERTHI_PART_CONTEXT,
          BERTHI_PART_WORKSPACE, BERTHI_PART_FRAGMENTATION, BERTHI_PART_DECODE,
          BERTHI_PART_CACHE_READ, BERTHI_PART_WEIGHT_READ };
    const estimated *const e = estimated_config("llama-3-8b");
    const berthi_estimate_options options = options_of(e, BERTHI_TYPE_NF4);
    const berthi_estimate out = estimate(e, &options);
    const uint64_t peak = 2 * 4096 + 4096 + 3 * 14336;
    uint64_t sum = 0;

    T_REQUIRE(out.line_count == sizeof order / sizeof *order);
    for (uint32_t i = 0; i < out.line_count; i++) {
        CHECK_EQ(out.lines[i].part, order[i]);
        CHECK_EQ(out.lines[i].place,
                 i < 8 ? BERTHI_PLACE_DEVICE : BERTHI_PLACE_NOWHERE);
        CHECK(out.lines[i].reason[0] != '\0');
        sum += i < 8 ? out.lines[i].bytes : 0;
    }
    CHECK_EQ(out.device_bytes, sum);
    CHECK_EQ(out.host_bytes, 0);
    CHECK_EQ(out.note_count, 0);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CACHE), UINT64_C(4096) * 131072);
    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_LINEARS)->dtype, "nf4");
    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_OTHERS)->dtype, "bf16");
    CHECK_STR(berthi_estimate_find(&out, BERTHI_PART_CACHE)->reason,
              "131072 B for the first token; 1 sequence of 4096 tokens");
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_LINEARS)->basis, BERTHI_BASIS_EXACT);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->basis,
             BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS), 4096 * 2 * peak);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_DECODE), 2 * peak);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOGITS), 4 * 128256);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CONTEXT), 512 << 20);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_WORKSPACE), 32 << 20);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_FRAGMENTATION),
             ((4096 * 2 * peak + 4 * 128256) * 5 + 99) / 100);
    CHECK(berthi_estimate_find(&out, BERTHI_PART_SCORES) == NULL);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_SCORES), 0);
}

/* Of a sequence of 100 tokens: a model of Gemma 4's kind, its last layers without keys. */
static uint64_t
shared_cache(const char *more)
{
    const estimated *const e = estimated_text(
        fixture_format("{\"model_type\": \"gemma4_text\", \"hidden_size\": 64, "
                       "\"num_hidden_layers\": 6, \"num_attention_heads\": 4, "
                       "\"num_key_value_heads\": 2, \"head_dim\": 16, "
                       "\"sliding_window\": 8, \"intermediate_size\": 128, "
                       "\"vocab_size\": 100%s}", more));
    const berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);

    return berthi_cache_sequence(&e->shape, &options, 100);
}

/* Five layers look back 8 tokens, the last one sees all, with wider heads. */
static void
test_shared_caches(void)
{
    const uint64_t window = 8 * 2 * (16 + 16) * 2;

    CHECK_EQ(shared_cache(""), 5 * window + 100 * 2 * (512 + 512) * 2);
    CHECK_EQ(shared_cache(", \"global_head_dim\": 32"), 5 * window + 100 * 2 * (32 + 32) * 2);
    CHECK_EQ(shared_cache(", \"num_global_key_value_heads\": 1"),
             5 * window + 100 * 2 * (512 + 512) * 2);
    CHECK_EQ(shared_cache(", \"num_global_key_value_heads\": 1, \"attention_k_eq_v\": true"),
             5 * window + 100 * (512 + 512) * 2);
    CHECK_EQ(shared_cache(", \"num_kv_shared_layers\": 3"), 3 * window);
    CHECK_EQ(shared_cache(", \"per_layer_config\": {\"05\": {\"head_dim\": 48}, "
                          "\"1\": {\"num_key_value_heads\": 4}}"),
             6 * window + 100 * 2 * (48 + 48) * 2);
}

/* On what the sizes of weights rest, for a shape and a type. */
static int32_t
basis_of(const char *more, int32_t type, bool has_headers)
{
    estimated *const e = estimated_text(
        fixture_format("{\"hidden_size\": 64, \"num_hidden_layers\": 2, "
                       "\"num_attention_heads\": 4, \"intermediate_size\": 128, "
                       "\"vocab_size\": 100, %s}", more));
    const berthi_estimate_options options = options_of(e, type);
    berthi_estimate out;

    e->model.has_headers = has_headers;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_OTHERS)->basis,
             berthi_estimate_find(&out, BERTHI_PART_LINEARS)->basis);
    return berthi_estimate_find(&out, BERTHI_PART_LINEARS)->basis;
}

/* "exact" is said of sizes that are known: by a row of the class, or by headers. */
static void
test_basis_of_weights(void)
{
    static const char known[] = "\"model_type\": \"llama\"";
    static const char unknown[] = "\"model_type\": \"new\"";
    static const char odd[] = "\"model_type\": \"llama\", \"layer_types\": [\"x\", \"x\"]";
    static const char stored[] = "\"model_type\": \"llama\", \"quantization_config\": {}";
    static const char beside[] = "\"model_type\": \"llama\", \"vision_config\": {}";
    static const char other[] =
        "\"model_type\": \"llama\", \"architectures\": [\"LlamaForMultipleChoice\"]";
    static const char same[] =
        "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"]";
    static const char around[] = "\"text_config\": {\"model_type\": \"llama\"}";

    CHECK_EQ(basis_of(known, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_EXACT);
    CHECK_EQ(basis_of(unknown, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(basis_of(unknown, BERTHI_TYPE_NF4, false), BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(basis_of(unknown, BERTHI_TYPE_NATIVE, true), BERTHI_BASIS_EXACT);
    CHECK_EQ(basis_of(odd, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(basis_of(stored, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(basis_of(stored, BERTHI_TYPE_NF4, false), BERTHI_BASIS_EXACT);
    CHECK_EQ(basis_of(stored, BERTHI_TYPE_NATIVE, true), BERTHI_BASIS_EXACT);
    CHECK_EQ(basis_of(beside, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(basis_of(beside, BERTHI_TYPE_NATIVE, true), BERTHI_BASIS_EXACT);
    CHECK_EQ(basis_of(other, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_ESTIMATE);
    CHECK_EQ(basis_of(same, BERTHI_TYPE_NATIVE, false), BERTHI_BASIS_EXACT);
    CHECK_EQ(basis_of(around, BERTHI_TYPE_NF4, false), BERTHI_BASIS_ESTIMATE);
}

/* The attention is the larger half where i is small. */
static void
test_attention_is_larger(void)
{
    const estimated *const e = estimated_text(
        "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, "
        "\"num_key_value_heads\": 4, \"head_dim\": 32, \"intermediate_size\": 16, "
        "\"vocab_size\": 100}");
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);
    berthi_estimate out;

    options.batch = 3;
    options.context = 10;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS),
             3 * 10 * 2 * (2 * 64 + 64 + (8 + 2 * 4) * 32 + 8 * 32));
    CHECK_EQ(out.note_count, 1);
    CHECK_CONTAINS(out.notes[0], "guessed, as those of a gated decoder");
    options.is_eager = true;
    options.has_all_logits = true;
    options.dtype = BERTH_F32;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_SCORES), 3 * 8 * 10 * 10 * 8);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOGITS), 3 * 10 * 100 * 4);
    options.prompt = 4;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_SCORES), 3 * 8 * 4 * 10 * 8);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOGITS), 3 * 4 * 100 * 4);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS), 3 * 4 * 4 * 960);
    options.prompt = 1;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS), 3 * 4 * 960);
    options.prompt = 11; /* more than the context is all of it */
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS), 3 * 10 * 4 * 960);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOGITS), 3 * 10 * 100 * 4);
}

static void
test_states_and_cross(void)
{
    const estimated *e = estimated_config("qwen3-next-80b-a3b");
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NF4);
    berthi_estimate out;

    options.batch = 2;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_STATES),
             2 * 36 * (524288 * 4 + 32768 * 2));
    CHECK_EQ(out.note_count, 1);
    CHECK_CONTAINS(out.notes[0], "quantized experts are counted one by one");
    e = estimated_text("{\"model_type\": \"t5\", \"vocab_size\": 100, \"d_model\": 64, "
                       "\"d_kv\": 8, \"d_ff\": 128, \"num_layers\": 3, "
                       "\"num_decoder_layers\": 2, \"num_heads\": 4, "
                       "\"feed_forward_proj\": \"gated-gelu\"}");
    T_REQUIRE(e != NULL);
    CHECK_EQ(e->shape.mlp_matrices, 3);
    options = options_of(e, BERTHI_TYPE_NATIVE);
    options.source = 5;
    options.context = 7;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CACHE), 2 * 7 * 2 * 4 * 8 * 2);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CROSS), 2 * 5 * 2 * 4 * 8 * 2);
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->reason,
                   "prefill of 7 tokens");
    options.source = 0; /* as many as the context */
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CROSS), 2 * 7 * 2 * 4 * 8 * 2);
}

/* Of DeepSeek V4: the window, and entries behind it, of which some have an index's key. */
static void
test_compressed_cache(void)
{
    const estimated *const e = estimated_text(
        "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 32, "
        "\"q_lora_rank\": 16, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
        "\"o_groups\": 2, \"moe_intermediate_size\": 24, \"vocab_size\": 100, "
        "\"sliding_window\": 8, \"index_head_dim\": 16, \"compress_ratios\": [0, 4, 128, 4]}");
    const uint64_t window = 8 * 32 * 2;
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);
    berthi_estimate out;

    options.context = 1000;
    options.batch = 3;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CACHE),
             3 * (4 * window + 2 * 250 * (32 + 16) * 2 + 7 * 32 * 2));
    options.context = 3; /* no entry is whole */
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_CACHE), 3 * 4 * 3 * 32 * 2);
}

/* An encoder's input may be longer than what is decoded, and is computed at once. */
static void
test_encoders(void)
{
    const estimated *const e = estimated_text(
        "{\"model_type\": \"t5\", \"vocab_size\": 100, \"d_model\": 64, \"d_kv\": 8, "
        "\"d_ff\": 128, \"num_layers\": 3, \"num_decoder_layers\": 2, \"num_heads\": 4}");
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);
    const uint64_t peak = 2 * 64 + 64 + 2 * 128;
    const uint64_t linears = 4 * 64 * 32; /* of one attention, as many as of the other */
    const uint64_t decoder = 2 * (2 * linears + 2 * 64 * 128 + 3 * 64);
    berthi_estimate out;

    options.source = 50;
    options.context = 7;
    options.is_eager = options.has_all_logits = true;
    out = estimate(e, &options);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_ACTIVATIONS), 50 * peak * 2);
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_ACTIVATIONS)->reason,
                   "input of 50 tokens");
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_SCORES), 4 * 50 * 50 * 6);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_LOGITS), 7 * 100 * 4);
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_DECODE), peak * 2);
    /* With the words, tied, and both final norms. */
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_WEIGHT_READ),
             2 * (decoder + 100 * 64 + 2 * 64 + 2 * 32 * 4));
}

static void
test_notes(void)
{
    const estimated *e = estimated_config("deepseek-v3");
    berthi_estimate_options options = options_of(e, BERTHI_TYPE_NATIVE);
    berthi_estimate_model model;
    berthi_estimate out = estimate(e, &options);

    CHECK_EQ(out.note_count, 1);
    CHECK_CONTAINS(out.notes[0], "quantized already: native is counted as bf16");
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_CACHE)->reason,
                   "; latents, as dedicated servers keep them");
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_WEIGHT_READ)->reason,
                   "experts that a token does not take");
    /* 37 billion of 671 are active: all but embeddings and 248 of 256 experts. */
    CHECK_EQ(estimated_mb(berthi_estimate_bytes(&out, BERTHI_PART_WEIGHT_READ)), 73251);
    model = e->model;
    model.has_headers = true;
    CHECK_EQ(berthi_estimate_inference(&model, &options, &out, NULL), BERTH_OK);
    CHECK_EQ(out.note_count, 0);
    e = estimated_config("gemma-3-4b");
    options = options_of(e, BERTHI_TYPE_NATIVE);
    out = estimate(e, &options);
    CHECK_EQ(out.note_count, 1);
    CHECK_CONTAINS(out.notes[0], "only the language model is counted");
    CHECK_EQ(berthi_estimate_find(&out, BERTHI_PART_LINEARS)->basis, BERTHI_BASIS_ESTIMATE);
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_CACHE)->reason, "windows");
    CHECK_CONTAINS(berthi_estimate_find(&out, BERTHI_PART_LINEARS)->reason,
                   "matrices inside the layers");
    CHECK_EQ(berthi_estimate_bytes(&out, BERTHI_PART_WEIGHT_READ), 2 * 3880263168);
}

/* ----------------------------------------------------------------------- refusals */

typedef void (*change)(berthi_estimate_options *options);

static void no_type(berthi_estimate_options *o) { o->type = BERTHI_TYPE_COUNT; }
static void less_type(berthi_estimate_options *o) { o->type = -1; }
static void no_cache(berthi_estimate_options *o) { o->cache_type = BERTHI_CACHE_COUNT; }
static void less_cache(berthi_estimate_options *o) { o->cache_type = -1; }
static void no_dtype(berthi_estimate_options *o) { o->dtype = BERTH_I8; }
static void no_block(berthi_estimate_options *o) { o->block_size = 48; }
static void no_context(berthi_estimate_options *o) { o->context = 0; }
static void no_batch(berthi_estimate_options *o) { o->batch = 0; }
static void lost(berthi_estimate_options *o) { o->fragmentation_percent = 101; }

static void
test_refusals(void)
{
    static const struct {
        change make;
        const char *name;
    } rows[] = { { no_type, "`type`" },          { less_type, "`type`" },
                 { no_cache, "cache_type" },   { less_cache, "cache_type" },
                 { no_dtype, "dtype" },        { no_block, "block_size" },
                 { no_context, "context" },    { no_batch, "batch" },
                 { lost, "fragmentation_percent" } };
    const estimated *const e = estimated_config("llama-3-8b");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berthi_estimate_options options = options_of(e, BERTHI_TYPE_NF4);
        berthi_estimate out;
        berth_error error;

        memset(&out, 0xff, sizeof out);
        rows[i].make(&options);
        CHECK_EQ(berthi_estimate_inference(&e->model, &options, &out, &error),
                 BERTH_EINVAL);
        CHECK_EQ(error.reason, BERTH_REASON_ARGUMENT);
        CHECK_CONTAINS(error.message, rows[i].name);
        CHECK_EQ(out.line_count, 0);
    }
}

static void
test_defaults(void)
{
    const estimated *const e = estimated_config("llama-2-7b");
    berthi_estimate_options options;

    berthi_estimate_options_init(&options, &e->shape);
    CHECK_EQ(options.type, BERTHI_TYPE_NATIVE);
    CHECK_EQ(options.dtype, BERTH_F16);
    CHECK_EQ(options.cache_type, BERTHI_CACHE_F16);
    CHECK_EQ(options.block_size, 64);
    CHECK_EQ(options.context, 4096);
    CHECK_EQ(options.batch, 1);
    CHECK_EQ(options.fragmentation_percent, 5);
    berthi_estimate_options_init(&options, &estimated_config("gemma-2-9b")->shape);
    CHECK_EQ(options.cache_type, BERTHI_CACHE_F32);
    berthi_estimate_options_init(&options, &estimated_config("llama-3-8b")->shape);
    CHECK_EQ(options.cache_type, BERTHI_CACHE_BF16);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_table_of_weights);
    T_RUN(test_one_weight);
    T_RUN(test_types);
    T_RUN(test_experts);
    T_RUN(test_ends);
    T_RUN(test_overflow);
    T_RUN(test_caches);
    T_RUN(test_odd_caches);
    T_RUN(test_cache_types);
    T_RUN(test_words);
    T_RUN(test_lines);
    T_RUN(test_shared_caches);
    T_RUN(test_basis_of_weights);
    T_RUN(test_attention_is_larger);
    T_RUN(test_states_and_cross);
    T_RUN(test_compressed_cache);
    T_RUN(test_encoders);
    T_RUN(test_notes);
    T_RUN(test_refusals);
    T_RUN(test_defaults);
    T_MAIN_END;
}
