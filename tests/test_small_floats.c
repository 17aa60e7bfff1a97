/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_small_floats.c - weights that are 8-bit floats without scales, as a cast to
 * float8_e4m3fn leaves them: converted, planned, loaded and estimated as a model of bf16 with
 * the same values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/t.h"
#include "tests/weights.h"

#define HIDDEN 64u
#define INNER  90u
#define WORDS  48u
#define BERTHS 16u

typedef struct making {
    fixture_builder *builder;
    uint64_t seed;
    bool is_small; /* else bf16 with the same values */
} making;

/* Sign, four bits of exponent, three of mantissa; no infinities. */
static uint16_t
bf16_of(uint8_t code)
{
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    const float magnitude = exponent == 0 ? ldexpf((float)mantissa, -9)
                                          : ldexpf((float)(8 + mantissa), exponent - 10);
    const float value = code & 0x80 ? -magnitude : magnitude;
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void
add(making *m, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = { rows, columns };
    const uint64_t count = rows * (columns == 0 ? 1 : columns);
    uint8_t *const codes = weights_alloc(count);
    uint16_t *const values = weights_alloc(count * sizeof *values);

    m->seed++;
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = (uint8_t)(weights_random(&m->seed) >> 24);
        if ((codes[i] & 0x7F) == 0x7F) /* a NaN has many codes */
            codes[i] ^= 1;
        values[i] = bf16_of(codes[i]);
    }
    fixture_add(m->builder, name, m->is_small ? "F8_E4M3" : "BF16", columns == 0 ? 1 : 2,
                shape, m->is_small ? (const void *)codes : (const void *)values);
    free(codes);
    free(values);
}

static const char *
make_named(bool is_small, const char *file)
{
    static const char *const squares[] = { "q_proj", "k_proj", "v_proj", "o_proj" };
    const char *const folder = fixture_folder();
    making m = { .builder = fixture_begin(), .seed = 11, .is_small = is_small };

    add(&m, "model.embed_tokens.weight", WORDS, HIDDEN);
    for (uint32_t i = 0; i < 4; i++)
        add(&m, fixture_format("model.layers.0.self_attn.%s.weight", squares[i]), HIDDEN,
            HIDDEN);
    add(&m, "model.layers.0.mlp.gate_proj.weight", INNER, HIDDEN);
    add(&m, "model.layers.0.mlp.up_proj.weight", INNER, HIDDEN);
    add(&m, "model.layers.0.mlp.down_proj.weight", HIDDEN, INNER);
    add(&m, "model.layers.0.input_layernorm.weight", HIDDEN, 0);
    add(&m, "model.layers.0.post_attention_layernorm.weight", HIDDEN, 0);
    add(&m, "model.norm.weight", HIDDEN, 0);
    add(&m, "lm_head.weight", WORDS, HIDDEN);
    (void)fixture_finish(m.builder, fixture_format("%s/%s", folder, file));
    fixture_text(fixture_format("%s/config.json", folder),
                 fixture_format(
                     "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                     "\"hidden_size\": %u, \"intermediate_size\": %u, "
                     "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
                     "\"num_key_value_heads\": 4, \"vocab_size\": %u, "
                     "\"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}",
                     HIDDEN, INNER, WORDS));
    return folder;
}

static const char *
make(bool is_small)
{
    return make_named(is_small, "model.safetensors");
}

static bool
has_same(const char *folder, const char *other, const char *name)
{
    return fixture_is_same_file(fixture_format("%s/%s", folder, name),
                                fixture_format("%s/%s", other, name));
}

typedef struct way {
    int32_t type;
    int32_t dtype;
    int32_t double_quant;
} way;

static const way ways[] = {
    { BERTH_ENCODING_NF4, -1, 1 },         { BERTH_ENCODING_FP4, BERTH_F16, 0 },
    { BERTH_ENCODING_INT8, -1, 0 },        { BERTH_ENCODING_NATIVE, BERTH_BF16, 0 },
    { BERTH_ENCODING_NATIVE, BERTH_F32, 0 },
};

#define WAYS (sizeof ways / sizeof ways[0])

static berth_plan_options
options_of(const way *w)
{
    berth_plan_options options = loaded_options("cpu=64MiB");

    options.type = w->type;
    options.dtype = w->dtype;
    options.double_quant = w->double_quant;
    return options;
}

static void
test_converted(void)
{
    static const way plain = { BERTH_ENCODING_NATIVE, -1, 0 };
    const char *const small = make(true);
    const char *const large = make(false);

    for (size_t i = 0; i < WAYS + 1; i++) {
        const berth_plan_options options = options_of(i < WAYS ? &ways[i] : &plain);
        const char *const a = loaded_quantized(small, &options);
        const char *const b = loaded_quantized(large, &options);

        if (!CHECK(has_same(a, b, "model.safetensors"))
            || !CHECK(has_same(a, b, "config.json")))
            T_NOTE("way %zu", i);
    }
}

/* What is kept from being quantized is decoded all the same: nothing computes in 8 bits. */
static void
test_kept(void)
{
    static const char *const keep[] = { "*.q_proj.weight" };
    berth_plan_options options = options_of(&ways[0]);
    const char *a;

    options.keep = keep;
    options.keep_count = 1;
    a = loaded_quantized(make(true), &options);
    CHECK(has_same(a, loaded_quantized(make(false), &options), "model.safetensors"));
}

/* So many tensors, all of this dtype. */
static void
check_dtypes(const char *folder, int32_t dtype, uint64_t expected)
{
    berth_checkpoint_summary summary;
    berth_checkpoint *checkpoint;
    berth_context *context;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    T_REQUIRE(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL) == BERTH_OK);
    berth_checkpoint_get(checkpoint, &summary);
    CHECK_EQ(summary.tensor_count, expected);
    for (uint64_t i = 0; i < summary.tensor_count; i++) {
        berth_tensor tensor;

        CHECK_EQ(berth_checkpoint_tensor(checkpoint, i, &tensor), BERTH_OK);
        CHECK_EQ(tensor.dtype, dtype);
    }
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
}

/* Of one shard by itself the scales may lie in another: what is stored stays. */
static void
test_lone_shard(void)
{
    static const char file[] = "model-00001-of-00002.safetensors";
    const char *const path = fixture_format("%s/%s", make_named(true, file), file);

    for (size_t i = 0; i < WAYS; i++) {
        const berth_plan_options options = options_of(&ways[i]);

        check_dtypes(loaded_quantized(path, &options), BERTH_F8_E4M3, 12);
    }
}

/* Digests of all berths; the number of them. `out_bytes`: of them all. */
static uint64_t
load(const char *folder, berth_plan_options options, const char *words, uint32_t *digests,
     uint64_t *out_bytes)
{
    uint64_t count = 0;
    loaded l;

    *out_bytes = 0;
    if (words != NULL)
        options.max_memory = "0=64MiB";
    loaded_begin(&l, folder, &options, words);
    loaded_load(&l);
    if (!CHECK_EQ(l.status, BERTH_OK))
        T_NOTE("%s", l.error.message);
    if (l.status == BERTH_OK && CHECK_LE(l.p.summary.berth_count, BERTHS)) {
        count = l.p.summary.berth_count;
        for (uint64_t i = 0; i < count; i++)
            CHECK_EQ(berth_model_digest(l.model, i, &digests[i], &l.error), BERTH_OK);
        CHECK_EQ(loaded_see_checked(&l, NULL), BERTH_OK);
        *out_bytes = l.report.allocated_bytes;
    }
    loaded_end(&l);
    return count;
}

static void
test_loaded(void)
{
    static const char *const words[] = { NULL, "sim:64MiB" };
    const char *const small = make(true);
    const char *const large = make(false);

    for (size_t i = 0; i < 2 * WAYS; i++) {
        const berth_plan_options options = options_of(&ways[i / 2]);
        uint32_t a[BERTHS] = { 0 };
        uint32_t b[BERTHS] = { 0 };
        uint64_t a_bytes;
        uint64_t b_bytes;
        const uint64_t count = load(small, options, words[i % 2], a, &a_bytes);

        CHECK_EQ(load(large, options, words[i % 2], b, &b_bytes), count);
        CHECK_EQ(a_bytes, b_bytes);
        if (!CHECK_MEM(a, b, count * sizeof *a))
            T_NOTE("way %zu", i);
    }
}

/* Rows and columns that are decoded as they are gathered. */
static void
test_loaded_by_ranks(void)
{
    static const char *const words[] = { NULL, "sim:64MiB" };
    const char *const small = make(true);
    const char *const large = make(false);

    for (size_t i = 0; i < 4 * WAYS; i++) {
        berth_plan_options options = options_of(&ways[i / 4]);
        uint32_t a[BERTHS] = { 0 };
        uint32_t b[BERTHS] = { 0 };
        uint64_t a_bytes;
        uint64_t b_bytes;
        uint64_t count;

        options.rank = i / 2 % 2;
        options.ranks = 2;
        count = load(small, options, words[i % 2], a, &a_bytes);
        CHECK_EQ(count, 12);
        CHECK_EQ(load(large, options, words[i % 2], b, &b_bytes), count);
        CHECK_EQ(a_bytes, b_bytes);
        if (!CHECK_MEM(a, b, count * sizeof *a))
            T_NOTE("way %zu", i);
    }
}

/* As they are stored: half as much. */
static void
test_loaded_as_stored(void)
{
    static const way plain = { BERTH_ENCODING_NATIVE, -1, 0 };
    const char *const small = make(true);
    uint32_t digests[BERTHS];
    uint64_t small_bytes;
    uint64_t large_bytes;

    CHECK_EQ(load(small, options_of(&plain), NULL, digests, &small_bytes), 12);
    CHECK_EQ(load(make(false), options_of(&plain), NULL, digests, &large_bytes), 12);
    CHECK_LE(small_bytes, large_bytes / 2 + 12 * 256);
}

static uint64_t
estimated_bytes(const char *folder, const char *type)
{
    berth_context *context;
    berth_estimate_options options;
    berth_estimate_summary summary = { .part_count = 0 };
    berth_estimate *estimate = NULL;
    berth_shape *shape = NULL;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, &error), BERTH_OK);
    berth_estimate_options_init(&options);
    options.type = type;
    if (CHECK_EQ(berth_shape_open(context, folder, NULL, &shape, &error), BERTH_OK)
        && CHECK_EQ(berth_estimate_create(context, shape, &options, &estimate, &error),
                    BERTH_OK))
        berth_estimate_get(estimate, &summary);
    berth_estimate_destroy(estimate);
    berth_shape_close(shape);
    berth_context_destroy(context);
    return summary.device_bytes;
}

static void
test_estimated(void)
{
    static const char *const types[] = { "nf4", "int8", "bf16", "f32" };
    const char *const small = make(true);
    const char *const large = make(false);

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!CHECK_EQ(estimated_bytes(small, types[i]), estimated_bytes(large, types[i])))
            T_NOTE("%s", types[i]);
    CHECK_LT(estimated_bytes(small, NULL), estimated_bytes(large, NULL));
}

/*
 * A plan of somebody's that has them as another dtype of 8 bits: bf16, which they are decoded to,
 * would be twice as large as their berth.
 */
static void
test_edited(void)
{
    static const char behind[] = "self_attn.q_proj.weight";
    static const char from[] = "\"F8_E4M3\"";
    berth_plan_options options = loaded_options("cpu=64MiB");
    const char *edited;
    const char *at;
    char *text;
    loaded l;

    loaded_begin(&l, make(true), &options, NULL);
    text = planned_text(l.p.plan, NULL);
    at = strstr(text, behind);
    at = at != NULL ? strstr(at, from) : NULL;
    T_REQUIRE(at != NULL);
    edited = fixture_format("%.*s\"I8\"%s", (int)(at - text), text, at + sizeof from - 1);
    berth_plan_destroy(l.p.plan);
    l.p.plan = NULL;
    T_REQUIRE(berth_plan_parse(l.p.context, edited, strlen(edited), "edited", &l.p.plan, NULL)
              == BERTH_OK);
    loaded_load(&l);
    CHECK_EQ(l.status, BERTH_EINTEGRITY);
    CHECK_CONTAINS(l.error.message, "that it cannot be loaded as");
    free(text);
    loaded_end(&l);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_converted);
    T_RUN(test_kept);
    T_RUN(test_lone_shard);
    T_RUN(test_loaded);
    T_RUN(test_loaded_by_ranks);
    T_RUN(test_loaded_as_stored);
    T_RUN(test_estimated);
    T_RUN(test_edited);
    T_MAIN_END;
}
