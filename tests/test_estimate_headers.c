/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_estimate_headers.c - small models of all model types that the library saves: what an
 * estimate says from config.json alone is what it says of the headers, part by part. The
 * models are interop/estimate_headers.py's, which asks the library itself what it
 * quantizes.
 */
#define _XOPEN_SOURCE 700

#include <stdlib.h>
#include <string.h>

#include "loader/berth.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define RANKS 8

static berth_context *context;

/* As both are asked for. */
typedef struct way {
    const char *type; /* NULL: as stored */
    int32_t dtype;
    int32_t double_quant;
    uint32_t block_size;
    int32_t keeps_experts;
    int32_t method; /* berth_train_method, or INFERENCE */
} way;

#define INFERENCE (-1)

static const way ways[] = {
    { NULL, -1, 0, 0, 1, INFERENCE },
    { NULL, BERTH_F16, 0, 0, 1, INFERENCE },
    { "nf4", BERTH_BF16, 0, 0, 0, INFERENCE },
    { "nf4", BERTH_F16, 1, 0, 1, INFERENCE },
    { "fp4", BERTH_BF16, 1, 256, 0, INFERENCE },
    { "fp4", BERTH_F16, 0, 4096, 1, INFERENCE },
    { "int8", BERTH_F16, 0, 0, 0, INFERENCE },
    { "int8", BERTH_BF16, 0, 0, 1, INFERENCE },
    { NULL, BERTH_BF16, 0, 0, 1, BERTH_TRAIN_LORA },
    { NULL, BERTH_F16, 0, 0, 1, BERTH_TRAIN_FULL },
    { "nf4", BERTH_BF16, 0, 0, 0, BERTH_TRAIN_LORA },
};

/* Whose estimates differ still: places of Marian are made, not saved. */
static const char *const others[] = { "marian" };

/* -------------------------------------------------------------------- the models */

static void
add_tensor(fixture_builder *builder, const char *name, const char *dtype, const char *shape)
{
    uint64_t sizes[RANKS];
    uint32_t rank = 0;
    char *end;

    for (; *shape != '-' && *shape != '\0' && rank < RANKS; shape = end + (*end == 'x'))
        sizes[rank++] = strtoull(shape, &end, 10);
    fixture_add_sparse(builder, name, dtype, rank, sizes);
}

/* "layers.0-1.mlp.experts.0-2.up" is six names. */
static void
add_range(fixture_builder *builder, const char *name, const char *dtype, const char *shape)
{
    const char *dash = strchr(name, '-');
    uint64_t first;
    uint64_t last;
    const char *begin = dash;
    char *end;

    while (dash != NULL && (dash[1] < '0' || dash[1] > '9'))
        begin = dash = strchr(dash + 1, '-');
    if (dash == NULL) {
        add_tensor(builder, name, dtype, shape);
        return;
    }
    while (begin > name && begin[-1] != '.')
        begin--;
    first = strtoull(begin, NULL, 10);
    last = strtoull(dash + 1, &end, 10);
    for (uint64_t i = first; i <= last; i++)
        add_range(builder,
                  fixture_format("%.*s%llu%s", (int)(begin - name), name,
                                 (unsigned long long)i, end),
                  dtype, shape);
}

/* Its headers in `folder`; gives what follows it. */
static char *
make(char *lines, const char *folder)
{
    fixture_builder *const builder = fixture_begin();

    while (*lines != '\0' && strncmp(lines, "model ", 6) != 0) {
        char *const end = lines + strcspn(lines, "\n");
        char *dtype;
        char *shape;

        *end = '\0';
        dtype = strchr(lines, ' ');
        *dtype++ = '\0';
        shape = strchr(dtype, ' ');
        *shape++ = '\0';
        add_range(builder, lines, dtype, shape);
        lines = end + 1;
    }
    fixture_finish(builder, fixture_format("%s/model.safetensors", folder));
    return lines;
}

/* --------------------------------------------------------------------- comparing */

static berth_estimate *
estimate_of(const berth_shape *shape, const way *w)
{
    berth_estimate_options options;
    berth_train_options train;
    berth_estimate *estimate = NULL;
    berth_error error;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.method = w->method;
    options.type = w->type;
    options.dtype = w->dtype;
    options.double_quant = w->double_quant;
    options.block_size = w->block_size;
    options.keeps_experts = w->keeps_experts;
    options.context = 1;
    options.train = w->method == INFERENCE ? NULL : &train;
    if (!CHECK_EQ(berth_estimate_create(context, shape, &options, &estimate, &error),
                  BERTH_OK))
        T_NOTE("%s", error.message);
    return estimate;
}

/* False: some part is of another size, be it one that is only read. */
static bool
is_same(const berth_estimate *a, const berth_estimate *b, const char **key)
{
    berth_estimate_summary first;
    berth_estimate_summary second;
    berth_estimate_part one;
    berth_estimate_part other;

    berth_estimate_get(a, &first);
    berth_estimate_get(b, &second);
    *key = "parts";
    for (uint32_t i = 0; i < first.part_count && i < second.part_count; i++) {
        CHECK_EQ(berth_estimate_get_part(a, i, &one), BERTH_OK);
        CHECK_EQ(berth_estimate_get_part(b, i, &other), BERTH_OK);
        *key = one.key;
        if (strcmp(one.key, other.key) != 0 || one.bytes != other.bytes)
            return false;
    }
    return first.part_count == second.part_count;
}

static bool
is_other(const char *model_type)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], model_type) == 0)
            return true;
    return false;
}

static void
compare(const char *folder, const char *bare)
{
    berth_shape *headers = NULL;
    berth_shape *config = NULL;
    berth_shape_summary summary;
    berth_error error;
    bool is_all_same = true;

    if (!CHECK_EQ(berth_shape_open(context, folder, NULL, &headers, &error), BERTH_OK)
        || !CHECK_EQ(berth_shape_open(context, bare, NULL, &config, &error), BERTH_OK)) {
        T_NOTE("%s", error.message);
        berth_shape_close(headers);
        return;
    }
    berth_shape_get(config, &summary);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        berth_estimate *const a = estimate_of(headers, &ways[i]);
        berth_estimate *const b = estimate_of(config, &ways[i]);
        const char *key = "";

        if (a != NULL && b != NULL && !is_same(a, b, &key)) {
            if (is_all_same && !is_other(summary.model_type))
                T_NOTE("%s, way %zu: %s", summary.model_type, i, key);
            is_all_same = false;
        }
        berth_estimate_destroy(a);
        berth_estimate_destroy(b);
    }
    if (!CHECK_EQ(is_all_same, !is_other(summary.model_type)))
        T_NOTE("%s", summary.model_type);
    berth_shape_close(headers);
    berth_shape_close(config);
}

static void
test_all_types(void)
{
    char *const text = fixture_read("tests/data/headers.txt", NULL);
    char *at = text;
    uint32_t count = 0;

    while (CHECK(at != NULL) && strncmp(at, "model ", 6) == 0) {
        const char *const folder = fixture_folder();
        const char *const bare = fixture_folder();
        const char *const config = at + strlen("model ");

        at += strcspn(at, "\n");
        *at++ = '\0';
        fixture_text(fixture_format("%s/config.json", folder), config);
        fixture_text(fixture_format("%s/config.json", bare), config);
        at = make(at, folder);
        compare(folder, bare);
        count++;
    }
    CHECK_EQ(*at, '\0');
    CHECK_EQ(count, 206);
    free(text);
}

/* Bytes of a part; 0: there is none. */
static uint64_t
part_bytes(const berth_estimate *estimate, const char *key)
{
    berth_estimate_part part;

    for (uint32_t i = 0; berth_estimate_get_part(estimate, i, &part) == BERTH_OK; i++)
        if (strcmp(part.key, key) == 0)
            return part.bytes;
    return 0;
}

/* KV caches of a plan of the same model. */
static uint64_t
planned_cache(const char *folder, int32_t *out_dtype)
{
    berth_plan_options options;
    berth_plan_summary summary;
    berth_plan_tier tier = { .cache = 0 };
    berth_checkpoint *checkpoint;
    berth_plan *plan = NULL;

    berth_plan_options_init(&options);
    options.max_memory = "cpu=1GiB";
    *out_dtype = -1;
    if (!CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, NULL), BERTH_OK))
        return 0;
    if (CHECK_EQ(berth_plan_create(context, checkpoint, &options, &plan, NULL), BERTH_OK)) {
        berth_plan_get(plan, &summary);
        *out_dtype = summary.cache_dtype;
        CHECK_EQ(berth_plan_get_tier(plan, 0, &tier), BERTH_OK);
    }
    berth_plan_destroy(plan);
    berth_checkpoint_close(checkpoint);
    return tier.cache;
}

#define SIZES                                                                             \
    "\"hidden_size\": 16, \"intermediate_size\": 32, \"num_hidden_layers\": 1, "           \
    "\"num_attention_heads\": 2, \"vocab_size\": 8"
#define NUMBERS "\"model_type\": \"llama\", " SIZES

/* Old models, GPT-2 among them, have no dtype in config.json: it is that of their files. */
static void
test_dtype_is_that_of_the_files(void)
{
    static const struct {
        const char *said; /* in config.json */
        const char *lines;
        int32_t dtype;
    } cases[] = {
        { "", "F32 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_F32 },
        { "", "F16 8x16 model.embed_tokens.weight\nF16 16 model.norm.weight\n", BERTH_F16 },
        { "", "BF16 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_BF16 },
        { "\"dtype\": \"bfloat16\", ",
          "F32 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_BF16 },
        { "\"torch_dtype\": \"float16\", ",
          "F32 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_F16 },
        /* The object of the language model may say it; what is outside of that counts first. */
        { "\"llm_config\": {\"torch_dtype\": \"float16\", " NUMBERS "}, ",
          "F32 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_F16 },
        { "\"thinker_config\": {\"text_config\": {\"dtype\": \"float16\", " NUMBERS "}}, ",
          "F32 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_F16 },
        { "\"dtype\": \"float32\", \"text_config\": {\"dtype\": \"float16\", " NUMBERS "}, ",
          "BF16 8x16 model.embed_tokens.weight\nF32 16 model.norm.weight\n", BERTH_F32 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const folder = fixture_folder();
        berth_shape *shape;
        berth_shape_summary summary;
        berth_estimate *estimate;
        int32_t dtype;
        uint64_t cache;

        fixture_text(fixture_format("%s/config.json", folder),
                     fixture_format("{%s\"architectures\": [\"LlamaForCausalLM\"], "
                                    "\"tie_word_embeddings\": true, " NUMBERS "}",
                                    cases[i].said));
        fixture_file(fixture_format("%s/model.safetensors", folder),
                     fixture_format("%sBF16 16 model.layers.0.input_layernorm.weight\n",
                                    cases[i].lines));
        if (cases[i].said[0] != '\0') { /* the same from it alone */
            T_REQUIRE(CHECK_EQ(berth_shape_open(context,
                                                fixture_format("%s/config.json", folder), NULL,
                                                &shape, NULL),
                               BERTH_OK));
            berth_shape_get(shape, &summary);
            CHECK_EQ(summary.dtype, cases[i].dtype);
            berth_shape_close(shape);
        }
        T_REQUIRE(CHECK_EQ(berth_shape_open(context, folder, NULL, &shape, NULL), BERTH_OK));
        berth_shape_get(shape, &summary);
        if (!CHECK_EQ(summary.dtype, cases[i].dtype))
            T_NOTE("%s", cases[i].said);
        if (CHECK_EQ(berth_estimate_create(context, shape, NULL, &estimate, NULL), BERTH_OK)) {
            cache = planned_cache(folder, &dtype);
            CHECK_EQ(dtype, cases[i].dtype);
            CHECK_GT(cache, 0);
            CHECK_EQ(part_bytes(estimate, "kv_cache"), cache);
            berth_estimate_destroy(estimate);
        }
        berth_shape_close(shape);
    }
}

/* Weights as modules hold them, where rows can be divided or joined so; all else as stored. */
static void
test_rows_of_modules(void)
{
    static const char nomic[] =
        "{\"architectures\": [\"NomicBertForMaskedLM\"], \"model_type\": \"nomic_bert\", "
        SIZES "}";
    static const char minimax[] =
        "{\"architectures\": [\"MiniMaxM3SparseForConditionalGeneration\"], "
        "\"model_type\": \"minimax_m3_vl\", \"text_config\": {"
        "\"model_type\": \"minimax_m3_vl_text\", " SIZES "}}";
    static const struct {
        const char *model;
        const char *lines;
        uint64_t trained; /* of adapters of rank 1: rows and columns of each module */
    } cases[] = {
        { nomic, "BF16 48x16 nomic_bert.encoder.layers.0.attn.Wqkv.weight\n",
          3 * (16 + 16) },
        { nomic, "BF16 50x16 nomic_bert.encoder.layers.0.attn.Wqkv.weight\n", 50 + 16 },
        { minimax,
          "BF16 32x16 language_model.model.layers.0.mlp.gate_proj.weight\n"
          "BF16 32x16 language_model.model.layers.0.mlp.up_proj.weight\n",
          64 + 16 },
        { minimax,
          "BF16 32x16 language_model.model.layers.0.mlp.gate_proj.weight\n"
          "BF16 32x8 language_model.model.layers.0.mlp.up_proj.weight\n",
          32 + 16 + 32 + 8 },
        { minimax,
          "BF16 32x16 language_model.model.layers.0.mlp.gate_proj.weight\n"
          "F32 32x16 language_model.model.layers.0.mlp.up_proj.weight\n",
          2 * (32 + 16) },
        { minimax, "BF16 32x16 language_model.model.layers.0.mlp.up_proj.weight\n",
          32 + 16 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const folder = fixture_folder();
        berth_shape *shape;
        berth_estimate_options options;
        berth_train_options train;
        berth_estimate *estimate;
        berth_estimate_summary summary;

        fixture_text(fixture_format("%s/config.json", folder), cases[i].model);
        fixture_file(fixture_format("%s/model.safetensors", folder), cases[i].lines);
        T_REQUIRE(CHECK_EQ(berth_shape_open(context, folder, NULL, &shape, NULL), BERTH_OK));
        berth_estimate_options_init(&options);
        berth_train_options_init(&train);
        train.method = BERTH_TRAIN_LORA;
        train.lora_rank = 1;
        options.dtype = BERTH_BF16;
        options.train = &train;
        if (CHECK_EQ(berth_estimate_create(context, shape, &options, &estimate, NULL),
                     BERTH_OK)) {
            berth_estimate_get(estimate, &summary);
            CHECK_EQ(summary.trained, cases[i].trained);
            berth_estimate_destroy(estimate);
        }
        berth_shape_close(shape);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    T_RUN(test_all_types);
    T_RUN(test_dtype_is_that_of_the_files);
    T_RUN(test_rows_of_modules);
    berth_context_destroy(context);
    T_MAIN_END;
}
