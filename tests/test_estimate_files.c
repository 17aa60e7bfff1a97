/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_files.c - estimates of what headers of files say of their weights. */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include <stdlib.h>
#include <string.h>

#include "loader/berth.h"
#include "placement/estimate.h"
#include "tests/asked.h"
#include "tests/fixture.h"
#include "tests/models.h"
#include "tests/t.h"

/* What small configurations leave out, because only estimates ask for it. */
static const char *
whole_config(const char *text)
{
    static const char *const members[] = { "vocab_size", "hidden_size", "intermediate_size",
                                           "num_attention_heads", "num_hidden_layers" };
    static const int values[] = { 64, 64, 48, 4, 2 };
    const char *config = fixture_format("%s", text + 1);

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (strstr(text, fixture_format("\"%s\":", members[i])) == NULL)
            config = fixture_format("\"%s\": %d, %s", members[i], values[i], config);
    return fixture_format("{%s", config);
}

/* The first model of tests/data/models/NAME.txt as files. */
static const char *
model_folder(const char *name)
{
    const char *const folder = fixture_folder();
    char *const text = model_file(fixture_format("%s.txt", name));
    char *const lines = calloc(1, strlen(text) + 64);
    char *rest = NULL;

    strcpy(lines, "[model.safetensors]\n");
    for (char *line = strtok_r(text, "\n", &rest); line != NULL && strcmp(line, "end") != 0;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "config ", 7) == 0)
            fixture_text(fixture_format("%s/config.json", folder), whole_config(line + 7));
        else if (line[0] >= 'A' && line[0] <= 'Z')
            strcat(strcat(lines, line), "\n");
    }
    fixture_model(folder, lines);
    free(lines);
    free(text);
    return folder;
}

/* ------------------------------------------------------------------------ headers */

/* What quantizing would write, to the byte. */
static uint64_t
converted_bytes(const char *folder, int32_t type, bool is_double, bool takes_experts)
{
    berth_convert_report report = { 0 };
    berth_convert_options options;
    berth_checkpoint *checkpoint;
    berth_context *context;
    berth_error error;
    berth_job *job;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berth_checkpoint_open(context, folder, NULL, &checkpoint, &error), BERTH_OK);
    berth_convert_options_init(&options);
    options.output = fixture_format("%s/out", fixture_folder());
    options.type = type;
    options.double_quant = is_double;
    options.takes_experts = takes_experts;
    options.dry_run = 1;
    options.report = &report;
    if (!CHECK_EQ(berth_convert_start(context, checkpoint, &options, &job, &error),
                  BERTH_OK))
        T_NOTE("%s", error.message);
    else
        CHECK_EQ(berth_job_finish(job, &error), BERTH_OK);
    berth_checkpoint_close(checkpoint);
    berth_context_destroy(context);
    return report.planned_bytes;
}

static void
check_types(asked *a, const char *folder, bool takes_experts)
{
    static const struct {
        const char *type;
        int32_t encoding;
        bool is_double;
    } rows[] = { { "nf4", BERTH_ENCODING_NF4, false },
                 { "nf4", BERTH_ENCODING_NF4, true },
                 { "fp4", BERTH_ENCODING_FP4, true },
                 { "int8", BERTH_ENCODING_INT8, false } };
    berth_estimate_options options;

    berth_estimate_options_init(&options);
    options.keeps_experts = !takes_experts;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        options.type = rows[i].type;
        options.double_quant = rows[i].is_double;
        T_REQUIRE(asked_estimate(a, &options) == BERTH_OK);
        /* The offset of a double quantization is written with 1 to 24 digits. */
        CHECK_LE(asked_weights(a) - converted_bytes(folder, rows[i].encoding,
                                                    rows[i].is_double, takes_experts) + 256,
                 512);
    }
}

static void
test_headers(void)
{
    static const char *const names[] = { "llama", "mixtral", "gpt2", "qwen3", "opt" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *const folder = model_folder(names[i]);
        asked a;

        if (!CHECK_EQ(asked_open(&a, folder, NULL), BERTH_OK)) {
            T_NOTE("%s: %s", names[i], a.error.message);
            asked_end(&a);
            continue;
        }
        CHECK_EQ(a.model.has_headers, 1);
        CHECK_STR(a.model.path, folder);
        T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
        CHECK_EQ(asked_weights(&a), a.model.tensor_bytes);
        check_types(&a, folder, false);
        if (strcmp(names[i], "mixtral") == 0)
            check_types(&a, folder, true);
        asked_end(&a);
    }
}

/* Conv1D in int8 lies turned already: its row maxima are as many as there are. */
static void
test_turned_headers(void)
{
    const char *const folder = fixture_folder();
    berth_estimate_options options;
    asked a;

    fixture_model(folder, "[model.safetensors]\n"
                          "I8 96x32 transformer.h.0.mlp.c_fc.weight\n"
                          "F32 96 transformer.h.0.mlp.c_fc.SCB\n"
                          "U8 - transformer.h.0.mlp.c_fc.weight_format = 0\n"
                          "BF16 32 transformer.ln_f.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 whole_config("{\"architectures\": [\"GPT2LMHeadModel\"], "
                              "\"model_type\": \"gpt2\"}"));
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    berth_estimate_options_init(&options);
    options.type = "int8";
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(asked_weights(&a), a.model.tensor_bytes);
    asked_end(&a);
}

/* What a class keeps in f32 beside quantized weights, when others have 16 bits. */
static void
test_kept_float32(void)
{
    static const struct {
        const char *type;
        int32_t dtype;
        uint64_t last, other; /* bytes of a value */
    } rows[] = { { "native", -1, 2, 2 },         { "native", BERTH_BF16, 2, 2 },
                 { "native", BERTH_F16, 2, 2 },  { "native", BERTH_F32, 4, 4 },
                 { "int8", BERTH_F16, 4, 2 },    { "int8", BERTH_BF16, 2, 2 } };
    const char *const folder = fixture_folder();
    berth_estimate_options options;
    asked a;

    fixture_model(folder,
                  "[model.safetensors]\n"
                  "BF16 64x144 decoder.block.0.layer.2.DenseReluDense.wo.weight\n"
                  "BF16 64 decoder.final_layer_norm.weight\n");
    fixture_text(fixture_format("%s/config.json", folder),
                 whole_config("{\"architectures\": [\"T5ForConditionalGeneration\"], "
                              "\"model_type\": \"t5\", \"dtype\": \"bfloat16\", "
                              "\"d_model\": 64, \"d_ff\": 144, \"d_kv\": 16, "
                              "\"num_heads\": 4, \"num_layers\": 1}"));
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berth_estimate_options_init(&options);
        options.type = rows[i].type;
        options.dtype = rows[i].dtype;
        T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
        CHECK_EQ(asked_weights(&a), 64 * 144 * rows[i].last + 64 * rows[i].other);
    }
    asked_end(&a);
}

/* What a configuration alone is told to take, quantized and not. */
static void
check_linears(const char *config, const char *type, uint64_t linears, uint64_t others)
{
    const char *const folder = fixture_folder();
    berth_estimate_options options;
    asked a;

    fixture_text(fixture_format("%s/config.json", folder), config);
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    berth_estimate_options_init(&options);
    options.type = type;
    options.dtype = BERTH_F16;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(asked_part(&a, "linear_weights"), linears);
    CHECK_EQ(asked_part(&a, "other_weights"), others);
    asked_end(&a);
}

/* Classes whose linear layers are not quantized, or not all. */
static void
test_plain_classes(void)
{
    static const char *const falcon =
        "{\"model_type\": \"falcon\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"vocab_size\": 100, \"multi_query\": true}";
    static const char *const t5 =
        "{\"model_type\": \"%s\", \"d_model\": 64, \"d_ff\": 176, \"d_kv\": 16, "
        "\"num_heads\": 4, \"num_layers\": 2, \"vocab_size\": 100}";
    /* A layer of each side has 3 attentions in all, and 2 matrices wi. */
    const uint64_t kept = 4 * 64 * 176;
    const uint64_t linears = 2 * (3 * 4 * 64 * 64 + 2 * 64 * 176);
    const uint64_t maxima = 2 * 4 * (3 * 4 * 64 + 2 * 176);
    const uint64_t formats = 2 * (3 * 4 + 2);
    const uint64_t rest = 2 * (64 * (100 + 2 * (2 + 3) + 2) + 2 * 32 * 4);

    check_linears(falcon, "nf4", 0,
                  2 * (64 * (100 + 2 * 2 + 2) + 2 * 64 * (64 + 2 * 16 + 64 + 2 * 256)));
    check_linears(fixture_format(t5, "t5"), "int8", linears + maxima + formats,
                  4 * kept + rest);
    check_linears(fixture_format(t5, "mt5"), "f16", 2 * linears, 2 * kept + rest);
}

/* Experts that a class stores in one tensor a matrix are not quantized to int8. */
static void
test_stacked_classes(void)
{
    static const char *const mixtral =
        "{\"model_type\": \"%s\", \"hidden_size\": 64, \"intermediate_size\": 96, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 100, "
        "\"num_key_value_heads\": 4, \"num_local_experts\": 3, "
        "\"num_experts_per_tok\": 2, \"tie_word_embeddings\": true}";
    const uint64_t heads = 2 * 4 * (64 * 64 + 4 * 64 + 1);
    const uint64_t values = 2 * 3 * 3 * 64 * 96;
    const uint64_t maxima = 2 * 3 * 4 * (2 * 96 + 64);
    const uint64_t rest = 2 * 64 * (100 + 2 * (2 + 3) + 1);

    check_linears(fixture_format(mixtral, "mixtral"), "int8",
                  heads + values + maxima + 2 * 3 * 3, rest);
    check_linears(fixture_format(mixtral, "granitemoe"), "int8", heads + 2 * values, rest);
}

#define SMALL_LAYER (UINT64_C(128) * 128 * 2 + 64 * 128 * 2 + 256 * 128 * 3)
#define SMALL (2 * (SMALL_LAYER + 2 * 128) + 2 * 500 * 128 + 128)

static void
test_small(void)
{
    const char *const folder = asked_small_folder("", false, "false");
    berth_estimate_options options;
    berth_train_options train;
    uint64_t device_bytes;
    uint64_t trained;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.method = BERTH_TRAIN_LORA;
    options.train = &train;
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL);
    CHECK_EQ(a.model.tensor_bytes, 2 * SMALL);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context, 256);
    CHECK_EQ(asked_part(&a, "linear_weights"), 2 * 2 * SMALL_LAYER);
    device_bytes = a.summary.device_bytes;
    trained = a.summary.trained;
    CHECK_EQ(trained, 2 * 16 * (256 + 192 + 192 + 256 + 384 * 3));
    asked_end(&a);
    fixture_remove(fixture_format("%s/model.safetensors", folder));
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.has_headers, 0);
    CHECK_EQ(a.model.parameters, SMALL);
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.trained, trained);
    CHECK_EQ(a.summary.device_bytes, device_bytes);
    asked_end(&a);
}

/* A tied head counts once, layers beyond config.json's are remarked, nf4 is as it is. */
static void
test_odd_headers(void)
{
    const char *folder = asked_small_folder("", false, "true");
    berth_estimate_options options;
    asked a;

    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL - 500 * 128);
    asked_end(&a);
    folder = asked_small_folder("BF16 128x128 model.layers.2.self_attn.q_proj.weight\n"
                                "BF16 128 model.layers.2.input_layernorm.weight\n",
                                false, "false");
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL + 128 * 128 + 128);
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    T_REQUIRE(a.summary.note_count == 1);
    CHECK_CONTAINS(berth_estimate_get_note(a.estimate, 0),
                   "2 weights are of layers beyond the 2 of config.json");
    asked_end(&a);
    folder = asked_small_folder("", true, "false");
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL);
    T_REQUIRE(asked_estimate(&a, NULL) == BERTH_OK);
    CHECK_EQ(asked_weights(&a), a.model.tensor_bytes);
    berth_estimate_options_init(&options);
    options.type = "bf16"; /* dequantized */
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(asked_weights(&a), 2 * SMALL);
    options.type = "nf4";
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_LE(asked_weights(&a) - a.model.tensor_bytes + 2048, 4096); /* state blobs */
    asked_end(&a);
}

/* Quantized by a method that berth only names: as it is, and as nothing else. */
static void
test_foreign(void)
{
    const char *const folder = fixture_folder();
    berth_estimate_options options;
    berth_estimate_fit fit;
    asked a;

    fixture_text(fixture_format("%s/config.json", folder),
                 fixture_format(ASKED_SMALL_CONFIG, "false, \"quantization_config\": "
                                              "{\"quant_method\": \"gptq\", \"bits\": 4}"));
    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "BF16 500x128 model.embed_tokens.weight\n"
                 "I32 16x128 model.layers.0.self_attn.q_proj.qweight\n"
                 "I32 1x16 model.layers.0.self_attn.q_proj.qzeros\n"
                 "F16 1x128 model.layers.0.self_attn.q_proj.scales\n"
                 "I32 128 model.layers.0.self_attn.q_proj.g_idx\n");
    T_REQUIRE(asked_open(&a, folder, NULL) == BERTH_OK);
    berth_estimate_options_init(&options);
    options.budgets = (const uint64_t[]){ 1 };
    options.budget_count = 1;
    T_REQUIRE(asked_estimate(&a, &options) == BERTH_OK);
    CHECK_EQ(asked_weights(&a), a.model.tensor_bytes);
    CHECK_EQ(a.summary.fit_count, 1);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 0, &fit), BERTH_OK);
    CHECK_STR(fit.type, "native");
    for (uint32_t i = 0; i < a.summary.advice_count; i++) {
        berth_estimate_advice advice;

        CHECK_EQ(berth_estimate_get_advice(a.estimate, i, &advice), BERTH_OK);
        CHECK(strstr(advice.what, "weights of") == NULL);
    }
    options.type = "nf4";
    CHECK_EQ(asked_estimate(&a, &options), BERTH_EUNSUPPORTED);
    CHECK_EQ(a.error.reason, BERTH_REASON_QUANT_METHOD);
    CHECK_CONTAINS(a.error.message, "only type native");
    asked_end(&a);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_headers);
    T_RUN(test_turned_headers);
    T_RUN(test_kept_float32);
    T_RUN(test_plain_classes);
    T_RUN(test_stacked_classes);
    T_RUN(test_small);
    T_RUN(test_odd_headers);
    T_RUN(test_foreign);
    T_MAIN_END;
}
