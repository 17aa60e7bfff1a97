/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_recipe.c - what becomes of each tensor: as which dtype it is read,
 * whether it is turned, copied, quantized, and as what it is stored.
 */
#include "loader/recipe.h"

#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

#define A "model.layers.0.a.weight"
#define B "model.layers.1.b.weight"
#define GPT2 "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}\n"

/* A recipe, with what it borrows. */
typedef struct made {
    berth_context *context;
    berth_checkpoint *checkpoint;
    berthi_recipe recipe;
    berth_error error;
    berth_status status;
} made;

static berth_convert_options
options_of(int32_t type)
{
    berth_convert_options options;

    berth_convert_options_init(&options);
    options.output = "out";
    options.type = type;
    options.storage = BERTH_U8;
    options.block_size = 64;
    return options;
}

static void
begin(made *m, const char *lines, const char *config, const berth_convert_options *options)
{
    const char *const folder = fixture_folder();

    memset(m, 0, sizeof *m);
    fixture_model(folder, fixture_format("[model.safetensors]\n%s", lines));
    if (config != NULL)
        fixture_text(fixture_format("%s/config.json", folder), config);
    CHECK_EQ(berth_context_create(NULL, &m->context, NULL), BERTH_OK);
    m->status = berth_checkpoint_open(m->context, folder, NULL, &m->checkpoint, &m->error);
    if (CHECK_EQ(m->status, BERTH_OK))
        m->status = berthi_recipe_init(&m->recipe, m->context, m->checkpoint, options,
                                       &m->error);
}

static void
end(made *m)
{
    berth_memory_summary memory;

    berthi_recipe_fini(&m->recipe);
    berthi_recipe_fini(&m->recipe); /* all zero now */
    berth_checkpoint_close(m->checkpoint);
    berth_context_memory(m->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(m->context);
}

static const berthi_recipe_weight *
find(const made *m, const char *name)
{
    for (uint32_t i = 0; i < m->recipe.weight_count; i++) {
        const berthi_recipe_weight *const weight = &m->recipe.weights[i];

        if (weight->name_length == strlen(name)
            && memcmp(weight->name, name, weight->name_length) == 0)
            return weight;
    }
    T_NOTE("no %s", name);
    return NULL;
}

static void
check_weight(const made *m, const char *name, int32_t encoding, int32_t dtype,
             bool is_copied, uint32_t outputs)
{
    const berthi_recipe_weight *const weight = find(m, name);

    if (!CHECK(weight != NULL))
        return;
    if (!CHECK_EQ(weight->storage.encoding, encoding)
        || !CHECK_EQ(weight->storage.dtype, dtype)
        || !CHECK_EQ(weight->is_copied, is_copied)
        || !CHECK_EQ(weight->output_count, outputs))
        T_NOTE("%s", name);
    for (uint32_t i = 0; i < outputs; i++) {
        const berthi_recipe_output *const output =
            &m->recipe.outputs[weight->first_output + i];

        CHECK_EQ(output->weight, (uint32_t)(weight - m->recipe.weights));
        CHECK_EQ(output->role, encoding == BERTH_ENCODING_NATIVE
                                   ? BERTHI_ROLE_VALUES
                                   : m->recipe.outputs[weight->first_output + i].role);
    }
}

static const char *const plain = "BF16 33x70 " A "\nF32 8x64 " B
                                 "\nF32 9 model.norm.weight\nI64 3 model.ids\n"
                                 "F16 2x2 model.layers.2.c.weight\nF64 2 model.f64\n";

static void
test_native_is_copied(void)
{
    const berth_convert_options options = options_of(BERTH_ENCODING_NATIVE);
    made m;

    begin(&m, plain, NULL, &options);
    CHECK_EQ(m.status, BERTH_OK);
    CHECK_EQ(m.recipe.weight_count, 6);
    CHECK_EQ(m.recipe.output_count, 6);
    CHECK_EQ(m.recipe.quantized_count, 0);
    CHECK_EQ(m.recipe.parameters, 33 * 70 + 8 * 64 + 9 + 3 + 4 + 2);
    CHECK(m.recipe.rules == NULL);
    check_weight(&m, A, BERTH_ENCODING_NATIVE, BERTH_BF16, true, 1);
    check_weight(&m, B, BERTH_ENCODING_NATIVE, BERTH_F32, true, 1);
    check_weight(&m, "model.ids", BERTH_ENCODING_NATIVE, BERTH_I64, true, 1);
    check_weight(&m, "model.f64", BERTH_ENCODING_NATIVE, BERTH_F64, true, 1);
    end(&m);
}

static void
test_native_is_cast(void)
{
    berth_convert_options options = options_of(BERTH_ENCODING_NATIVE);
    made m;

    options.dtype = BERTH_F16;
    begin(&m, plain, NULL, &options);
    check_weight(&m, A, BERTH_ENCODING_NATIVE, BERTH_F16, false, 1);
    check_weight(&m, B, BERTH_ENCODING_NATIVE, BERTH_F16, false, 1);
    check_weight(&m, "model.layers.2.c.weight", BERTH_ENCODING_NATIVE, BERTH_F16, true, 1);
    check_weight(&m, "model.ids", BERTH_ENCODING_NATIVE, BERTH_I64, true, 1);
    check_weight(&m, "model.f64", BERTH_ENCODING_NATIVE, BERTH_F64, true, 1);
    end(&m);
}

static void
test_quantized(void)
{
    static const uint32_t outputs[] = { 4, 6 };
    made m;

    for (int is_double = 0; is_double < 2; is_double++) {
        berth_convert_options options = options_of(BERTH_ENCODING_NF4);

        options.double_quant = is_double;
        begin(&m, plain, NULL, &options);
        check_weight(&m, A, BERTH_ENCODING_NF4, BERTH_BF16, false, outputs[is_double]);
        check_weight(&m, "model.norm.weight", BERTH_ENCODING_NATIVE, BERTH_BF16, false, 1);
        CHECK_EQ(m.recipe.dtype, BERTH_BF16); /* the first float there is */
        CHECK_GE(m.recipe.quantized_count, 2);
        for (uint32_t i = 0; i < m.recipe.output_count; i++)
            CHECK_EQ(m.recipe.tensors[i].is_late,
                     is_double && m.recipe.outputs[i].role == BERTHI_ROLE_STATE);
        end(&m);
    }
    const berth_convert_options rows = options_of(BERTH_ENCODING_INT8);

    begin(&m, plain, NULL, &rows);
    check_weight(&m, A, BERTH_ENCODING_INT8, BERTH_BF16, false, 3);
    end(&m);
}

/* Asked for, configured, or float16 as 4.x has it. */
static void
test_dtype_of_the_model(void)
{
    static const char *const config =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"dtype\": \"float16\", "
        "\"model_type\": \"llama\", \"tie_word_embeddings\": false}\n";
    berth_convert_options options = options_of(BERTH_ENCODING_NF4);
    made m;

    begin(&m, plain, config, &options);
    CHECK_EQ(m.recipe.dtype, BERTH_F16);
    end(&m);
    options.dtype = BERTH_F32;
    begin(&m, plain, config, &options);
    CHECK_EQ(m.recipe.dtype, BERTH_F32);
    end(&m);
    options.dtype = -1;
    options.like = "hf4";
    begin(&m, plain, FIXTURE_CONFIG, &options);
    CHECK_EQ(m.recipe.dtype, BERTH_F16);
    end(&m);
    options.like = "hf5";
    begin(&m, "I64 3 model.ids\nF64 2 model.f64\n", NULL, &options);
    CHECK_EQ(m.recipe.dtype, BERTH_BF16);
    end(&m);
}

/* What is reported of all tensors is what all of them take in the files. */
static void
check_coverage(const made *m)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < m->recipe.output_count; i++)
        bytes += m->recipe.tensors[i].bytes;
    CHECK_EQ(m->recipe.coverage.all.stored_bytes, bytes);
}

static void
check_turned(const char *lines, const char *config, int32_t type, bool is_turned)
{
    const berth_convert_options options = options_of(type);
    const berthi_recipe_weight *weight;
    made m;

    begin(&m, lines, config, &options);
    CHECK_EQ(m.status, BERTH_OK);
    weight = find(&m, "transformer.h.0.mlp.c_fc.weight");
    if (!CHECK(weight != NULL) || !CHECK_EQ(weight->is_turned, is_turned))
        T_NOTE("%d %s", type, lines);
    if (weight != NULL && type == BERTH_ENCODING_INT8) {
        const berthi_layout_tensor *const tensor =
            &m.recipe.tensors[weight->first_output];

        CHECK_EQ(tensor->shape[0], is_turned ? 12 : 8);
        CHECK_EQ(tensor->shape[1], is_turned ? 8 : 12);
        check_coverage(&m);
    }
    end(&m);
}

static void
test_turned(void)
{
    static const char *const stored = "BF16 8x12 transformer.h.0.mlp.c_fc.weight\n"
                                      "BF16 4 transformer.ln_f.weight\n";
    static const char *const rows = "I8 8x12 transformer.h.0.mlp.c_fc.weight\n"
                                    "F32 8 transformer.h.0.mlp.c_fc.SCB\n"
                                    "U8 - transformer.h.0.mlp.c_fc.weight_format = 0\n"
                                    "BF16 4 transformer.ln_f.weight\n";

    check_turned(stored, GPT2, BERTH_ENCODING_NF4, true);
    check_turned(stored, GPT2, BERTH_ENCODING_INT8, true);
    check_turned(stored, GPT2, BERTH_ENCODING_NATIVE, false);
    check_turned(stored, FIXTURE_CONFIG, BERTH_ENCODING_NATIVE, false);
    check_turned(rows, GPT2, BERTH_ENCODING_NATIVE, true);
    check_turned(rows, GPT2, BERTH_ENCODING_INT8, false);
    check_turned(rows, GPT2, BERTH_ENCODING_NF4, false);
}

/* The shards that transformers makes of a model whose experts it fuses. */
static void
test_fused_pieces(void)
{
#define EXPERTS "model.layers.0.block_sparse_moe.experts."
    static const char *const expected[][2] = {
        { "lm_head.weight", "0" },
        { "model.embed_tokens.weight", "1" },
        { "model.layers.0.input_layernorm.weight", "2" },
        { EXPERTS "0.w2.weight", "3" }, { EXPERTS "1.w2.weight", "3" },
        { EXPERTS "0.w1.weight", "4" }, { EXPERTS "1.w1.weight", "4" },
        { EXPERTS "0.w3.weight", "5" }, { EXPERTS "1.w3.weight", "5" },
        { "model.layers.0.block_sparse_moe.gate.weight", "6" },
        { "model.norm.weight", "6" },
    };
    const berth_convert_options options = options_of(BERTH_ENCODING_NATIVE);
    const berthi_layout_options layout_options = { .max_shard_bytes = 70 };
    berthi_layout *layout = NULL;
    made m;

    begin(&m, "BF16 8x4 lm_head.weight\nBF16 8x4 model.embed_tokens.weight\n"
          "BF16 4 model.layers.0.input_layernorm.weight\n"
          "BF16 4x4 " EXPERTS "0.w1.weight\nBF16 4x4 " EXPERTS "1.w1.weight\n"
          "BF16 4x4 " EXPERTS "0.w2.weight\nBF16 4x4 " EXPERTS "1.w2.weight\n"
          "BF16 4x4 " EXPERTS "0.w3.weight\nBF16 4x4 " EXPERTS "1.w3.weight\n"
          "BF16 2x4 model.layers.0.block_sparse_moe.gate.weight\nBF16 4 model.norm.weight\n",
          "{\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": \"mixtral\"}",
          &options);
#undef EXPERTS
    T_REQUIRE(CHECK_EQ(m.status, BERTH_OK));
    T_REQUIRE(CHECK_EQ(berthi_layout_create(m.context, m.recipe.tensors,
                                            m.recipe.output_count, &layout_options, &layout,
                                            &m.error), BERTH_OK));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const berthi_recipe_weight *const weight = find(&m, expected[i][0]);

        T_REQUIRE(CHECK(weight != NULL));
        if (!CHECK_EQ(m.recipe.tensors[weight->first_output].shard,
                      (uint32_t)(expected[i][1][0] - '0')))
            T_NOTE("%s", expected[i][0]);
    }
    berthi_layout_destroy(layout);
    end(&m);
}

static void
test_names_of_mxfp4(void)
{
    const berth_convert_options options = options_of(BERTH_ENCODING_NATIVE);
    made m;

    begin(&m,
          "U8 2x48x3x16 model.layers.0.experts.x_blocks\n"
          "U8 2x48x3 model.layers.0.experts.x_scales\nBF16 3x3 " B "\n",
          NULL, &options);
    CHECK_EQ(m.status, BERTH_OK);
    CHECK_EQ(m.recipe.weight_count, 2);
    check_weight(&m, "model.layers.0.experts.x", BERTH_ENCODING_NATIVE, BERTH_BF16, false,
                 1);
    end(&m);
}

/* Loaders cannot divide codes, which nobody has to do with those that lie in memory alone. */
static void
test_remade(void)
{
    static const char fused[] = "nomic_bert.encoder.layers.0.attn.Wqkv.weight";
    const berth_convert_options options = options_of(BERTH_ENCODING_NF4);
    berthi_recipe in_memory;
    made m;

    begin(&m,
          "BF16 96x32 nomic_bert.encoder.layers.0.attn.Wqkv.weight\n"
          "BF16 32x32 nomic_bert.encoder.layers.0.attn.out_proj.weight\n",
          "{\"architectures\": [\"NomicBertForMaskedLM\"], "
          "\"model_type\": \"nomic_bert\"}\n",
          &options);
    CHECK_EQ(m.status, BERTH_OK);
    check_weight(&m, fused, BERTH_ENCODING_NATIVE, BERTH_BF16, true, 1);
    T_REQUIRE(CHECK_EQ(berthi_recipe_init_decided(&in_memory, m.context, m.checkpoint,
                                                  &options, NULL, &m.error),
                       BERTH_OK));
    CHECK_EQ(in_memory.quantized_count, 2);
    CHECK_EQ(in_memory.output_count, 0);
    berthi_recipe_fini(&in_memory);
    end(&m);
}

/* Wide codes hold whole elements only; the name of row maxima needs a "weight". */
static void
test_refusals(void)
{
    berth_convert_options options = options_of(BERTH_ENCODING_NF4);
    made m;

    options.storage = BERTH_F32;
    begin(&m, "BF16 3x5 " A "\nBF16 3x3 " B "\n", NULL, &options);
    CHECK_EQ(m.status, BERTH_EUNSUPPORTED);
    CHECK_STR(m.error.tensor, A);
    CHECK(m.recipe.context == NULL);
    end(&m);
    options = options_of(BERTH_ENCODING_NF4);
    options.like = "hf6";
    begin(&m, plain, NULL, &options);
    CHECK_EQ(m.status, BERTH_EINVAL);
    end(&m);
}

static berth_status
make_one(void *user, berth_context *context, berth_error *error)
{
    const berth_convert_options options = options_of(BERTH_ENCODING_NF4);
    berth_checkpoint *checkpoint;
    berthi_recipe recipe;
    berth_status status = berth_checkpoint_open(context, user, NULL, &checkpoint, error);

    if (status != BERTH_OK)
        return status;
    status = berthi_recipe_init(&recipe, context, checkpoint, &options, error);
    if (status == BERTH_OK)
        CHECK_GE(recipe.quantized_count, 2);
    else
        CHECK(recipe.context == NULL);
    berthi_recipe_fini(&recipe);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void
test_faults(void)
{
    char folder[4096];

    snprintf(folder, sizeof folder, "%s", fixture_folder());
    fixture_model(folder, fixture_format("[model.safetensors]\n%s", plain));
    fixture_text(fixture_format("%s/config.json", folder), FIXTURE_CONFIG);
    CHECK_GT(fault_loop("recipe", make_one, folder).memory, 20);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_native_is_copied);
    T_RUN(test_native_is_cast);
    T_RUN(test_quantized);
    T_RUN(test_dtype_of_the_model);
    T_RUN(test_turned);
    T_RUN(test_fused_pieces);
    T_RUN(test_names_of_mxfp4);
    T_RUN(test_remade);
    T_RUN(test_refusals);
    T_RUN(test_faults);
    T_MAIN_END;
}
