/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate_api.c - shapes and estimates as users of the library see them. */
#define _POSIX_C_SOURCE 200809L /* strtok_r */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/berth.h"
#include "placement/estimate.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/models.h"
#include "tests/t.h"

#define GIB (UINT64_C(1) << 30)

/* A shape and its estimate. */
typedef struct asked {
    berth_context *context;
    berth_shape *shape;
    berth_estimate *estimate;
    berth_shape_summary model;
    berth_estimate_summary summary;
    berth_error error;
} asked;

static berth_status
open_shape(asked *a, const char *path, const berth_open_options *options)
{
    berth_status status;

    memset(a, 0, sizeof *a);
    CHECK_EQ(berth_context_create(NULL, &a->context, NULL), BERTH_OK);
    status = berth_shape_open(a->context, path, options, &a->shape, &a->error);
    CHECK_EQ(status, a->error.status);
    CHECK_EQ(status == BERTH_OK, a->shape != NULL);
    if (status == BERTH_OK)
        berth_shape_get(a->shape, &a->model);
    return status;
}

static berth_status
ask(asked *a, const berth_estimate_options *options)
{
    berth_status status;

    berth_estimate_destroy(a->estimate);
    status = berth_estimate_create(a->context, a->shape, options, &a->estimate, &a->error);
    CHECK_EQ(status, a->error.status);
    CHECK_EQ(status == BERTH_OK, a->estimate != NULL);
    if (status == BERTH_OK)
        berth_estimate_get(a->estimate, &a->summary);
    return status;
}

static void
end(asked *a)
{
    berth_memory_summary memory;

    berth_estimate_destroy(a->estimate);
    berth_shape_close(a->shape);
    berth_context_memory(a->context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(a->context);
}

/* Bytes of a part; 0 where there is none. */
static uint64_t
part_of(const asked *a, const char *key)
{
    berth_estimate_part part;

    for (uint32_t i = 0; i < a->summary.part_count; i++) {
        CHECK_EQ(berth_estimate_get_part(a->estimate, i, &part), BERTH_OK);
        if (strcmp(part.key, key) == 0)
            return part.bytes;
    }
    return 0;
}

static uint64_t
weights_of(const asked *a)
{
    return part_of(a, "linear_weights") + part_of(a, "other_weights");
}

static const char *
config_of(const char *name)
{
    return fixture_format("tests/data/configs/%s.json", name);
}

/* A folder with nothing but the config.json of this name. */
static const char *
config_folder(const char *name)
{
    const char *const folder = fixture_folder();

    fixture_copy(config_of(name), fixture_format("%s/config.json", folder));
    return folder;
}

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

/* ------------------------------------------------------------------------ opening */

static void
test_config_alone(void)
{
    asked a;

    T_REQUIRE(open_shape(&a, config_folder("llama-2-7b"), NULL) == BERTH_OK);
    CHECK_STR(a.model.model_type, "llama");
    CHECK_STR(a.model.family, "llama");
    CHECK_EQ(a.model.has_headers, 0);
    CHECK_EQ(a.model.dtype, BERTH_F16);
    CHECK_EQ(a.model.parameters, 6738415616);
    CHECK_EQ(a.model.layers, 32);
    CHECK_EQ(a.model.encoder_layers, 0);
    CHECK_EQ(a.model.hidden, 4096);
    CHECK_EQ(a.model.vocabulary, 32000);
    CHECK_EQ(a.model.positions, 4096);
    CHECK_EQ(a.model.experts, 0);
    CHECK_EQ(a.model.tensor_bytes, 0);
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    CHECK_EQ(a.summary.context, 4096);
    CHECK_EQ(a.summary.batch, 1);
    CHECK_EQ(a.summary.has_budget, 0);
    CHECK_EQ(a.summary.best_fit, -1);
    CHECK_EQ(weights_of(&a), 2 * UINT64_C(6738415616));
    CHECK_EQ(part_of(&a, "kv_cache"), 4096 * UINT64_C(524288));
    end(&a);
}

/* A config.json by its own name, here or elsewhere. */
static void
test_config_path(void)
{
    const char *const folder = config_folder("deepseek-v3");
    char weights[8 + 8827];
    asked a;

    T_REQUIRE(open_shape(&a, fixture_format("%s/config.json", folder), NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, 671026419200);
    CHECK_EQ(a.model.experts, 256);
    CHECK_EQ(a.model.experts_used, 8);
    CHECK_STR(a.model.path, fixture_format("%s/config.json", folder));
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    CHECK_EQ(part_of(&a, "kv_cache"), 4096 * UINT64_C(70272));
    end(&a);
    /* Called otherwise; what lies beside it is of no interest. */
    fixture_text(fixture_format("%s/config.json", folder), "{");
    fixture_copy(config_of("gpt2"), fixture_format("%s/other.json", folder));
    T_REQUIRE(open_shape(&a, fixture_format("%s/other.json", folder), NULL) == BERTH_OK);
    CHECK_STR(a.model.path, fixture_format("%s/other.json", folder));
    CHECK_EQ(a.model.parameters, 124439808);
    end(&a);
    CHECK_EQ(open_shape(&a, fixture_format("%s/x.index.json", folder), NULL),
             BERTH_ENOENT);
    end(&a);
    /* By what is in it, unless it has the name of weights. */
    fixture_copy(config_of("gpt2"), fixture_format("%s/cfg", folder));
    T_REQUIRE(open_shape(&a, fixture_format("%s/cfg", folder), NULL) == BERTH_OK);
    CHECK_STR(a.model.path, fixture_format("%s/cfg", folder));
    CHECK_EQ(a.model.parameters, 124439808);
    end(&a);
    fixture_copy(config_of("gpt2"), fixture_format("%s/cfg.safetensors", folder));
    CHECK_EQ(open_shape(&a, fixture_format("%s/cfg.safetensors", folder), NULL),
             BERTH_EFORMAT);
    CHECK_EQ(a.error.reason, BERTH_REASON_JSON_BODY);
    end(&a);
    /* Weights with a header of 8827 bytes: its length begins as an object does. */
    memset(weights, ' ', sizeof weights);
    memcpy(weights, "{\"\0\0\0\0\0\0{}", 10);
    fixture_write(fixture_format("%s/weights", folder), weights, sizeof weights);
    CHECK_EQ(open_shape(&a, fixture_format("%s/weights", folder), NULL), BERTH_EFORMAT);
    CHECK_STR(a.error.file, fixture_format("%s/config.json", folder));
    end(&a);
    fixture_write(fixture_format("%s/empty", folder), "", 0);
    CHECK_EQ(open_shape(&a, fixture_format("%s/empty", folder), NULL), BERTH_EFORMAT);
    end(&a);
}

/* config.json says nothing of a variant that is not there. */
static void
test_variant(void)
{
    const char *const folder = config_folder("gpt2");
    berth_open_options options;
    asked a;

    berth_open_options_init(&options);
    options.variant = "fp16";
    CHECK_EQ(open_shape(&a, folder, &options), BERTH_ENOENT);
    end(&a);
    fixture_index(fixture_format("%s/model.safetensors.index.fp16.json", folder), 1,
                  "lm_head.weight model.fp16-00001-of-00001.safetensors\n");
    CHECK_EQ(open_shape(&a, folder, &options), BERTH_OK);
    CHECK_EQ(a.model.has_headers, 0);
    end(&a);
}

/* Budgets of people have units. */
static void
test_budgets_without_units(void)
{
    static const uint64_t budgets[] = { UINT64_C(24) << 30, 24, 1024 };
    berth_estimate_options options;
    asked a;

    berth_estimate_options_init(&options);
    options.budgets = budgets;
    options.budget_count = 3;
    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    T_REQUIRE(a.summary.note_count == 1);
    CHECK_STR(berth_estimate_get_note(a.estimate, 0),
              "a device has 24 B: a number without a unit is bytes");
    options.budget_count = 1;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.note_count, 0);
    end(&a);
}

/* The answer has a note on experts. */
static bool
tells_of_experts(const asked *a)
{
    for (uint32_t i = 0; i < a->summary.note_count; i++)
        if (strstr(berth_estimate_get_note(a->estimate, i), "quantized experts are counted"))
            return true;
    return false;
}

/* Whatever was asked for, the table has types of weights that are quantized. */
static void
test_quantized_experts(void)
{
    berth_estimate_options options;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    T_REQUIRE(open_shape(&a, config_folder("deepseek-v3"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK(tells_of_experts(&a));
    options.type = "nf4";
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK(tells_of_experts(&a));
    options.keeps_experts = 1;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK(!tells_of_experts(&a));
    /* What can be advised of LoRA is QLoRA, of a full training nothing that is quantized. */
    berth_estimate_options_init(&options);
    options.train = &train;
    train.method = BERTH_TRAIN_LORA;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK(tells_of_experts(&a));
    train.method = BERTH_TRAIN_FULL;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK(!tells_of_experts(&a));
    end(&a);
    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    CHECK(!tells_of_experts(&a));
    end(&a);
}

static void
test_index_alone(void)
{
    const char *const folder = config_folder("llama-3-8b");
    asked a;

    fixture_index(fixture_format("%s/model.safetensors.index.json", folder), 16060522496,
                  "lm_head.weight model-00001-of-00001.safetensors\n");
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.has_headers, 0);
    CHECK_EQ(a.model.tensor_bytes, 16060522496);
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    T_REQUIRE(a.summary.note_count == 2);
    CHECK_STR(berth_estimate_get_note(a.estimate, 0),
              "not all weights are there: model-00001-of-00001.safetensors: the index names "
              "this shard, but it is not there");
    CHECK_STR(berth_estimate_get_note(a.estimate, 1),
              "weights are counted from config.json: 16060522496 B as they are stored; the "
              "index promises 16060522496 B");
    CHECK(berth_estimate_get_note(a.estimate, 2) == NULL);
    end(&a);
    fixture_text(fixture_format("%s/model.safetensors.index.json", folder), "{");
    CHECK_EQ(open_shape(&a, folder, NULL), BERTH_EFORMAT);
    CHECK_EQ(a.error.reason, BERTH_REASON_INDEX_JSON);
    end(&a);
}

static void
test_hub(void)
{
    const char *const cache = fixture_folder();
    berth_open_options options;
    asked a;

    fixture_hub(cache, "org/name", FIXTURE_COMMIT, config_folder("gpt2"));
    fixture_hub_ref(cache, "org/name", "main", FIXTURE_COMMIT);
    berth_open_options_init(&options);
    options.hub_cache = cache;
    T_REQUIRE(open_shape(&a, "org/name", &options) == BERTH_OK);
    CHECK_EQ(a.model.parameters, 124439808);
    CHECK_CONTAINS(a.model.path, FIXTURE_COMMIT);
    /* No longer than the model is made for. */
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    CHECK_EQ(a.summary.context, 1024);
    end(&a);
    CHECK_EQ(open_shape(&a, "org/other", &options), BERTH_ENOENT);
    end(&a);
}

static void
refuse_shape(const char *path, berth_status status, berth_reason reason, const char *words)
{
    asked a;

    CHECK_EQ(open_shape(&a, path, NULL), status);
    CHECK_EQ(a.error.reason, (int32_t)reason);
    CHECK_CONTAINS(a.error.message, words);
    end(&a);
}

static void
test_refused_shapes(void)
{
    const char *folder = fixture_folder();

    refuse_shape(fixture_format("%s/nowhere", folder), BERTH_ENOENT,
                 BERTH_REASON_NOT_FOUND, "");
    refuse_shape(fixture_format("%s/config.json", folder), BERTH_ENOENT,
                 BERTH_REASON_NOT_FOUND, "");
    refuse_shape(folder, BERTH_ENOENT, BERTH_REASON_NOT_FOUND, "");
    fixture_file(fixture_format("%s/model.safetensors", folder), "F32 2 a.weight\n");
    refuse_shape(folder, BERTH_ENOENT, BERTH_REASON_NOT_FOUND,
                 "an estimate needs the model's config.json, and there is none");
    fixture_text(fixture_format("%s/config.json", folder), "{\"model_type\": \"x\"}");
    refuse_shape(folder, BERTH_EFORMAT, BERTH_REASON_CONFIG_JSON, "\"hidden_size\"");
    fixture_text(fixture_format("%s/config.json", folder), "{");
    refuse_shape(folder, BERTH_EFORMAT, BERTH_REASON_CONFIG_JSON, "");
    folder = config_folder("gpt2");
    fixture_text(fixture_format("%s/model.safetensors", folder), "<!DOCTYPE html><html>");
    refuse_shape(folder, BERTH_EFORMAT, BERTH_REASON_HTML, "");
    folder = config_folder("gpt2");
    fixture_file(fixture_format("%s/adapter_model.safetensors", folder),
                 "F32 2x2 base_model.model.h.0.attn.c_attn.lora_A.weight\n");
    refuse_shape(folder, BERTH_EUNSUPPORTED, BERTH_REASON_UNSUPPORTED,
                 "these are the weights of an adapter");
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
        T_REQUIRE(ask(a, &options) == BERTH_OK);
        /* The offset of a double quantization is written with 1 to 24 digits. */
        CHECK_LE(weights_of(a) - converted_bytes(folder, rows[i].encoding,
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

        if (!CHECK_EQ(open_shape(&a, folder, NULL), BERTH_OK)) {
            T_NOTE("%s: %s", names[i], a.error.message);
            end(&a);
            continue;
        }
        CHECK_EQ(a.model.has_headers, 1);
        CHECK_STR(a.model.path, folder);
        T_REQUIRE(ask(&a, NULL) == BERTH_OK);
        CHECK_EQ(weights_of(&a), a.model.tensor_bytes);
        check_types(&a, folder, false);
        if (strcmp(names[i], "mixtral") == 0)
            check_types(&a, folder, true);
        end(&a);
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
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    berth_estimate_options_init(&options);
    options.type = "int8";
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(weights_of(&a), a.model.tensor_bytes);
    end(&a);
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
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        berth_estimate_options_init(&options);
        options.type = rows[i].type;
        options.dtype = rows[i].dtype;
        T_REQUIRE(ask(&a, &options) == BERTH_OK);
        CHECK_EQ(weights_of(&a), 64 * 144 * rows[i].last + 64 * rows[i].other);
    }
    end(&a);
}

/* What a configuration alone is told to take, quantized and not. */
static void
check_linears(const char *config, const char *type, uint64_t linears, uint64_t others)
{
    const char *const folder = fixture_folder();
    berth_estimate_options options;
    asked a;

    fixture_text(fixture_format("%s/config.json", folder), config);
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    berth_estimate_options_init(&options);
    options.type = type;
    options.dtype = BERTH_F16;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(part_of(&a, "linear_weights"), linears);
    CHECK_EQ(part_of(&a, "other_weights"), others);
    end(&a);
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

/* A small Llama: what headers say is what config.json says. */
#define SMALL_CONFIG                                                                  \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "          \
    "\"dtype\": \"bfloat16\", \"hidden_size\": 128, \"intermediate_size\": 256, "      \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "                         \
    "\"num_hidden_layers\": 2, \"vocab_size\": 500, \"max_position_embeddings\": 256, " \
    "\"tie_word_embeddings\": %s}"

static void
add_small(fixture_builder *b, const char *prefix, bool is_quantized)
{
    static const struct {
        const char *name;
        uint64_t shape[2];
    } linears[] = { { "self_attn.q_proj", { 128, 128 } }, { "self_attn.k_proj", { 64, 128 } },
                    { "self_attn.v_proj", { 64, 128 } },  { "self_attn.o_proj", { 128, 128 } },
                    { "mlp.gate_proj", { 256, 128 } },    { "mlp.up_proj", { 256, 128 } },
                    { "mlp.down_proj", { 128, 256 } } };
    static const char *const norms[] = { "input_layernorm", "post_attention_layernorm" };
    static const uint64_t norm[] = { 128 };

    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        const char *const name =
            fixture_format("%s%s.weight", prefix, linears[i].name);

        if (is_quantized)
            fixture_add_nf4(b, name, linears[i].shape[0], linears[i].shape[1], false);
        else
            fixture_add(b, name, "BF16", 2, linears[i].shape, NULL);
    }
    for (size_t i = 0; i < 2; i++)
        fixture_add(b, fixture_format("%s%s.weight", prefix, norms[i]), "BF16", 1, norm,
                    NULL);
}

static const char *
small_folder(const char *extra, bool is_quantized, const char *ties)
{
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    fixture_text(fixture_format("%s/config.json", folder),
                 fixture_format(SMALL_CONFIG, ties));
    fixture_add_lines(b, "BF16 500x128 model.embed_tokens.weight\n"
                         "BF16 500x128 lm_head.weight\nBF16 128 model.norm.weight\n");
    fixture_add_lines(b, extra);
    add_small(b, "model.layers.0.", is_quantized);
    add_small(b, "model.layers.1.", is_quantized);
    fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    return folder;
}

#define SMALL_LAYER (UINT64_C(128) * 128 * 2 + 64 * 128 * 2 + 256 * 128 * 3)
#define SMALL (2 * (SMALL_LAYER + 2 * 128) + 2 * 500 * 128 + 128)

static void
test_small(void)
{
    const char *const folder = small_folder("", false, "false");
    berth_estimate_options options;
    berth_train_options train;
    uint64_t device_bytes;
    uint64_t trained;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.method = BERTH_TRAIN_LORA;
    options.train = &train;
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL);
    CHECK_EQ(a.model.tensor_bytes, 2 * SMALL);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context, 256);
    CHECK_EQ(part_of(&a, "linear_weights"), 2 * 2 * SMALL_LAYER);
    device_bytes = a.summary.device_bytes;
    trained = a.summary.trained;
    CHECK_EQ(trained, 2 * 16 * (256 + 192 + 192 + 256 + 384 * 3));
    end(&a);
    fixture_remove(fixture_format("%s/model.safetensors", folder));
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.has_headers, 0);
    CHECK_EQ(a.model.parameters, SMALL);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.trained, trained);
    CHECK_EQ(a.summary.device_bytes, device_bytes);
    end(&a);
}

/* A tied head counts once, layers beyond config.json's are remarked, nf4 is as it is. */
static void
test_odd_headers(void)
{
    const char *folder = small_folder("", false, "true");
    berth_estimate_options options;
    asked a;

    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL - 500 * 128);
    end(&a);
    folder = small_folder("BF16 128x128 model.layers.2.self_attn.q_proj.weight\n"
                          "BF16 128 model.layers.2.input_layernorm.weight\n",
                          false, "false");
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL + 128 * 128 + 128);
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    T_REQUIRE(a.summary.note_count == 1);
    CHECK_CONTAINS(berth_estimate_get_note(a.estimate, 0),
                   "2 weights are of layers beyond the 2 of config.json");
    end(&a);
    folder = small_folder("", true, "false");
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    CHECK_EQ(a.model.parameters, SMALL);
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    CHECK_EQ(weights_of(&a), a.model.tensor_bytes);
    berth_estimate_options_init(&options);
    options.type = "bf16"; /* dequantized */
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(weights_of(&a), 2 * SMALL);
    options.type = "nf4";
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_LE(weights_of(&a) - a.model.tensor_bytes + 2048, 4096); /* state blobs */
    end(&a);
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
                 fixture_format(SMALL_CONFIG, "false, \"quantization_config\": "
                                              "{\"quant_method\": \"gptq\", \"bits\": 4}"));
    fixture_file(fixture_format("%s/model.safetensors", folder),
                 "BF16 500x128 model.embed_tokens.weight\n"
                 "I32 16x128 model.layers.0.self_attn.q_proj.qweight\n"
                 "I32 1x16 model.layers.0.self_attn.q_proj.qzeros\n"
                 "F16 1x128 model.layers.0.self_attn.q_proj.scales\n"
                 "I32 128 model.layers.0.self_attn.q_proj.g_idx\n");
    T_REQUIRE(open_shape(&a, folder, NULL) == BERTH_OK);
    berth_estimate_options_init(&options);
    options.budgets = (const uint64_t[]){ 1 };
    options.budget_count = 1;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(weights_of(&a), a.model.tensor_bytes);
    CHECK_EQ(a.summary.fit_count, 1);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 0, &fit), BERTH_OK);
    CHECK_STR(fit.type, "native");
    for (uint32_t i = 0; i < a.summary.advice_count; i++) {
        berth_estimate_advice advice;

        CHECK_EQ(berth_estimate_get_advice(a.estimate, i, &advice), BERTH_OK);
        CHECK(strstr(advice.what, "weights of") == NULL);
    }
    options.type = "nf4";
    CHECK_EQ(ask(&a, &options), BERTH_EUNSUPPORTED);
    CHECK_EQ(a.error.reason, BERTH_REASON_QUANT_METHOD);
    CHECK_CONTAINS(a.error.message, "only type native");
    end(&a);
}

/* ------------------------------------------------------------------------ answers */

static void
test_beyond_counts(void)
{
    berth_estimate_part part;
    berth_estimate_claim claim;
    berth_estimate_fit fit;
    berth_estimate_advice advice;
    berth_estimate_length length;
    asked a;

    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, NULL) == BERTH_OK);
    CHECK_EQ(berth_estimate_get_part(a.estimate, a.summary.part_count, &part),
             BERTH_EINVAL);
    CHECK(part.key == NULL);
    CHECK_EQ(berth_estimate_get_claim(a.estimate, a.summary.claim_count, &claim),
             BERTH_EINVAL);
    CHECK(claim.table == NULL);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, a.summary.fit_count, &fit), BERTH_EINVAL);
    CHECK(fit.type == NULL);
    CHECK_EQ(berth_estimate_get_advice(a.estimate, 0, &advice), BERTH_EINVAL);
    CHECK(advice.what == NULL);
    CHECK_EQ(berth_estimate_get_length(a.estimate, 0, &length), BERTH_EINVAL);
    CHECK(length.name == NULL);
    CHECK(berth_estimate_get_note(a.estimate, a.summary.note_count) == NULL);
    end(&a);
    CHECK_STR(berth_optimizer_name(0), "adamw_torch");
    CHECK(berth_optimizer_name(1000) == NULL);
}

/* Lines as they are, and what they add up to. */
static void
test_parts(void)
{
    berth_estimate_part part;
    uint64_t device = 0;
    uint64_t host = 0;
    berth_estimate_options options;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.optimizer = "paged_adamw_8bit";
    train.lora_targets = "q_proj,v_proj";
    train.method = BERTH_TRAIN_LORA;
    train.checkpoint_every = 2;
    train.accumulation = 4;
    options.type = "nf4";
    options.double_quant = 1;
    options.train = &train;
    T_REQUIRE(open_shape(&a, config_folder("llama-2-70b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    for (uint32_t i = 0; i < a.summary.part_count; i++) {
        CHECK_EQ(berth_estimate_get_part(a.estimate, i, &part), BERTH_OK);
        CHECK_GT(part.bytes, 0);
        CHECK(part.reason[0] != '\0' && part.name[0] != '\0' && part.basis[0] != '\0');
        device += part.place == BERTH_PLACE_DEVICE ? part.bytes : 0;
        host += part.place == BERTH_PLACE_HOST ? part.bytes : 0;
    }
    CHECK_EQ(device, a.summary.device_bytes);
    CHECK_EQ(host, a.summary.host_bytes);
    CHECK_GT(host, part_of(&a, "paged_states"));
    CHECK_EQ(berth_estimate_get_part(a.estimate, 0, &part), BERTH_OK);
    CHECK_STR(part.key, "linear_weights");
    CHECK_STR(part.dtype, "nf4+double-quant");
    CHECK_STR(part.basis, "exact");
    CHECK_EQ(part.place, BERTH_PLACE_DEVICE);
    CHECK_EQ(a.summary.trained, 80 * UINT64_C(16) * (8192 + 8192 + 8192 + 1024));
    CHECK_EQ(a.summary.fit_count, 0); /* types are for inference */
    CHECK_EQ(part_of(&a, "gradients"), 2 * a.summary.trained);
    end(&a);
}

/* One row a type, one column a context; equal rows once; the asked type is there. */
static void
test_table(void)
{
    static const uint64_t contexts[] = { 1024, 8192 };
    static const char *const types[] = { "native", "int8", "nf4", "nf4+double-quant",
                                         "fp4" };
    berth_estimate_options options;
    berth_estimate_fit fit;
    uint64_t shorter;
    asked a;

    berth_estimate_options_init(&options);
    options.contexts = contexts;
    options.context_count = 2;
    options.context = 8192;
    options.type = "fp4";
    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context_count, 2);
    T_REQUIRE(CHECK_EQ(a.summary.fit_count, 5));
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_EQ(berth_estimate_get_fit(a.estimate, i, &fit), BERTH_OK);
        CHECK_STR(fit.type, types[i]);
        CHECK_EQ(fit.fits, 0);
        CHECK_EQ(fit.context, 0);
        CHECK_EQ(fit.devices, 0);
        CHECK_LT(fit.bytes[0], fit.bytes[1]);
    }
    CHECK_EQ(fit.bytes[1], a.summary.device_bytes);
    /* One that is shorter than the prompt is computed at once. */
    options.context = 1024;
    options.prompt = 2048;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    shorter = a.summary.device_bytes;
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 4, &fit), BERTH_OK);
    CHECK_EQ(fit.bytes[0], a.summary.device_bytes);
    options.context = 8192;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 4, &fit), BERTH_OK);
    CHECK_EQ(fit.bytes[1], a.summary.device_bytes);
    options.contexts = NULL;
    options.context_count = 0;
    options.context = 1024;
    options.prompt = 0;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(shorter, a.summary.device_bytes);
    end(&a);
    /* f16 files are not the same in bf16, byte by byte they are. */
    T_REQUIRE(open_shape(&a, config_folder("gpt2"), NULL) == BERTH_OK);
    options.type = NULL;
    options.context = 512;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context_count, 1);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 0, &fit), BERTH_OK);
    CHECK_EQ(fit.bytes[0], a.summary.device_bytes);
    end(&a);
}

static void
test_budgets(void)
{
    static const uint64_t two[] = { 24 * GIB, 24 * GIB };
    berth_estimate_options options;
    berth_estimate_advice advice;
    berth_estimate_fit fit;
    asked a;

    berth_estimate_options_init(&options);
    options.budgets = two;
    options.budget_count = 1;
    T_REQUIRE(open_shape(&a, config_folder("llama-3-70b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.has_budget, 1);
    CHECK_EQ(a.summary.usable_bytes, 24 * GIB - (24 * GIB + 9) / 10);
    CHECK_EQ(a.summary.fits, 0);
    CHECK_EQ(a.summary.can_fit, 1);
    CHECK_EQ(a.summary.best_fit, -1);
    T_REQUIRE(a.summary.advice_count > 0);
    CHECK_EQ(berth_estimate_get_advice(a.estimate, a.summary.advice_count - 1, &advice),
             BERTH_OK);
    CHECK_EQ(advice.fits, 1);
    CHECK_EQ(advice.bytes, a.summary.advised_bytes);
    CHECK_GT(advice.saved, 0);
    CHECK(advice.cost[0] != '\0');
    options.budget_count = 2;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.best_fit, 3);
    CHECK_EQ(berth_estimate_get_fit(a.estimate, 3, &fit), BERTH_OK);
    CHECK_STR(fit.type, "nf4+double-quant");
    CHECK_EQ(fit.fits, 1);
    CHECK_EQ(fit.devices, 2);
    CHECK_GT(fit.context, 4096);
    options.type = "nf4";
    options.double_quant = 1;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 1);
    CHECK_EQ(a.summary.can_fit, 1);
    CHECK_EQ(a.summary.advice_count, 0);
    CHECK_EQ(a.summary.advised_bytes, a.summary.device_bytes);
    /* Nothing helps a device without room for the runtime. */
    options.budget_count = 1;
    options.budgets = (const uint64_t[]){ GIB / 4 };
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.can_fit, 0);
    end(&a);
}

static void
test_lengths(void)
{
    static const char text[] = "100\n200\n300\n400\n";
    static const char *const names[] = { "p50", "p95", "p99", "max" };
    static const uint64_t tokens[] = { 200, 400, 400, 400 };
    static const uint64_t two[] = { 12 * GIB, 12 * GIB };
    berth_estimate_options options;
    berth_estimate_length length;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    options.tokens = text;
    options.tokens_bytes = sizeof text - 1;
    options.batch = 2;
    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.context, 400);
    CHECK_EQ(a.summary.sequences, 4);
    CHECK_EQ(a.summary.tokens, 1000);
    CHECK_EQ(a.summary.shortest, 100);
    CHECK_EQ(a.summary.longest, 400);
    CHECK_EQ(a.summary.mean, 250);
    CHECK_EQ(a.summary.padded, 1200);
    CHECK_EQ(a.summary.sorted, 1200);
    CHECK_EQ(a.summary.packs, 3);
    CHECK_EQ(a.summary.length_count, 4);
    options.budgets = (const uint64_t[]){ 24 * GIB };
    options.budget_count = 1;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(berth_estimate_get_length(a.estimate, i, &length), BERTH_OK);
        CHECK_STR(length.name, names[i]);
        CHECK_EQ(length.tokens, tokens[i]);
        CHECK_GT(length.batch, 1);
    }
    /* The batch that is found fits, and one more does not. */
    options.context = 400;
    options.batch = length.batch;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 1);
    options.batch++;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 0);
    /* So it is with several devices, each with layers, activations and a runtime of its own. */
    options.budgets = two;
    options.budget_count = 2;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(berth_estimate_get_length(a.estimate, 3, &length), BERTH_OK);
    CHECK_GT(length.batch, 1);
    options.batch = length.batch;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 1);
    options.batch++;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(a.summary.fits, 0);
    options.budgets = (const uint64_t[]){ 24 * GIB };
    options.budget_count = 1;
    /* Training: packed batches have what the list has on the average. */
    berth_train_options_init(&train);
    train.is_packed = 1;
    options.train = &train;
    options.batch = 2;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(part_of(&a, "batch_buffers"), 500 * 24);
    train.is_packed = 0;
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    CHECK_EQ(part_of(&a, "batch_buffers"), 800 * 24);
    end(&a);
}

/* What is published for a model is told beside ours. */
static void
test_claims(void)
{
    berth_estimate_options options;
    berth_estimate_claim claim;
    berth_train_options train;
    asked a;

    berth_estimate_options_init(&options);
    berth_train_options_init(&train);
    train.optimizer = "adamw_32bit";
    options.train = &train;
    T_REQUIRE(open_shape(&a, config_folder("llama-2-70b"), NULL) == BERTH_OK);
    T_REQUIRE(ask(&a, &options) == BERTH_OK);
    T_REQUIRE(a.summary.claim_count > 0);
    CHECK_EQ(berth_estimate_get_claim(a.estimate, 0, &claim), BERTH_OK);
    CHECK_STR(claim.table, "AdamW of a 70B model");
    CHECK_EQ(claim.claimed, 560000000000);
    CHECK_EQ(claim.bytes, 8 * UINT64_C(68976648192));
    CHECK_EQ(a.summary.trained, 68976648192);
    CHECK_CONTAINS(claim.reason, "68976648192");
    end(&a);
}

/* ------------------------------------------------------------------------ options */

static void
refuse(asked *a, const berth_estimate_options *options, const char *argument,
       const char *words)
{
    CHECK_EQ(ask(a, options), BERTH_EINVAL);
    CHECK_EQ(a->error.reason, BERTH_REASON_ARGUMENT);
    if (!CHECK(strstr(a->error.message, argument) != NULL
               || strcmp(a->error.tensor, argument) == 0))
        T_NOTE("%s: %s", argument, a->error.message);
    CHECK_CONTAINS(a->error.message, words);
}

static berth_estimate_options
plain(void)
{
    berth_estimate_options options;

    berth_estimate_options_init(&options);
    return options;
}

static void
test_refused_options(void)
{
    static const uint64_t zero[] = { 0, 0 };
    static const uint64_t some[] = { 24 * GIB, 24 * GIB };
    berth_estimate_options o;
    asked a;

    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
#define REFUSE(argument, words, ...)                                                   \
    do {                                                                               \
        o = plain();                                                                   \
        __VA_ARGS__;                                                                   \
        refuse(&a, &o, argument, words);                                               \
    } while (0)
    REFUSE("type", "is none of native", o.type = "nf5");
    REFUSE("double_quant", "needs type nf4", o.type = "int8", o.double_quant = 1);
    REFUSE("dtype", "is not bf16", o.dtype = BERTH_I8);
    REFUSE("cache_type", "is none of", o.cache_type = "nf4");
    REFUSE("block_size", "is no power", o.block_size = 48);
    REFUSE("prompt", "is longer", o.context = 8, o.prompt = 9);
    REFUSE("fragmentation_percent", "more than 100", o.fragmentation_percent = 101);
    REFUSE("prompt", "is longer", o.context = 8, o.contexts = some, o.context_count = 2,
           o.prompt = 24 * GIB + 1);
    REFUSE("contexts", "is NULL", o.context_count = 1);
    REFUSE("contexts", "of 0 tokens", o.context_count = 1, o.contexts = zero);
    REFUSE("contexts", "more than 64", o.context_count = 65, o.contexts = some);
    REFUSE("budgets", "is NULL", o.budget_count = 1);
    REFUSE("budgets", "more than 1024", o.budget_count = 1025, o.budgets = some);
    REFUSE("budget", "is 0 bytes", o.budget_count = 1, o.budgets = zero);
    REFUSE("reserve_percent", "more than 100", o.budget_count = 1, o.budgets = some,
           o.reserve_percent = 101);
    REFUSE("", "no line has a length", o.tokens = "", o.tokens_bytes = 0);
    REFUSE("", "2^64", o.batch = UINT64_MAX);
#undef REFUSE
    end(&a);
}

static void
test_refused_training(void)
{
    static const uint64_t two[] = { 24 * GIB, 24 * GIB };
    berth_estimate_options o = plain();
    berth_train_options train;
    asked a;

    T_REQUIRE(open_shape(&a, config_folder("llama-3-8b"), NULL) == BERTH_OK);
    o.train = &train;
#define REFUSE(argument, words, ...)                                                   \
    do {                                                                               \
        berth_train_options_init(&train);                                              \
        __VA_ARGS__;                                                                   \
        refuse(&a, &o, argument, words);                                               \
    } while (0)
    REFUSE("is_packed", "needs the lengths", train.is_packed = 1);
    REFUSE("optimizer", "is no name", train.optimizer = "adam9");
    REFUSE("method", "is none of full and LoRA", train.method = 2);
    REFUSE("precision", "is none of pure, autocast and master", train.precision = 3);
    REFUSE("x_proj", "no linear layer", train.method = BERTH_TRAIN_LORA,
           train.lora_targets = "x_proj");
    o.type = "nf4";
    REFUSE("type", "trained with adapters", train.method = BERTH_TRAIN_FULL);
    o.budgets = two;
    o.budget_count = 2;
    REFUSE("budgets", "one device", train.method = BERTH_TRAIN_LORA);
#undef REFUSE
    end(&a);
}

/* What is computed in follows the type, what is stored the dtype. */
static void
test_dtypes(void)
{
    berth_estimate_options o = plain();
    asked a;

    T_REQUIRE(open_shape(&a, config_folder("llama-2-7b"), NULL) == BERTH_OK);
    o.type = "f32";
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(weights_of(&a), 4 * UINT64_C(6738415616));
    CHECK_EQ(part_of(&a, "kv_cache"), 2 * 4096 * UINT64_C(524288));
    o.type = NULL;
    o.dtype = BERTH_F32;
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(weights_of(&a), 4 * UINT64_C(6738415616));
    o.cache_type = "int8";
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(part_of(&a, "kv_cache"), 4096 * UINT64_C(524288) / 2 * 9 / 8);
    o = plain();
    o.type = "fp4";
    o.double_quant = 1;
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(part_of(&a, "other_weights"), 2 * (UINT64_C(6738415616) - 6476005376));
    o.fragmentation_percent = 0;
    o.runtime_bytes = 0;
    o.workspace_bytes = 0;
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(part_of(&a, "runtime_context"), 0);
    CHECK_EQ(part_of(&a, "workspace"), 0);
    CHECK_EQ(part_of(&a, "fragmentation"), 0);
    o.is_eager = 1;
    o.has_all_logits = 1;
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(part_of(&a, "logits"), 4096 * UINT64_C(32000) * 4);
    CHECK_EQ(part_of(&a, "attention_scores"), 32 * UINT64_C(4096) * 4096 * 6);
    end(&a);
    T_REQUIRE(open_shape(&a, config_folder("deepseek-v3"), NULL) == BERTH_OK);
    o = plain();
    o.expands_latents = 1;
    T_REQUIRE(ask(&a, &o) == BERTH_OK);
    CHECK_EQ(part_of(&a, "kv_cache"), 4096 * UINT64_C(4997120));
    end(&a);
}

static void
test_arguments(void)
{
    berth_estimate_options options = plain();
    berth_estimate *estimate = (berth_estimate *)&options;
    berth_shape *shape = (berth_shape *)&options;
    berth_error error;
    asked a;

    T_REQUIRE(open_shape(&a, config_folder("gpt2"), NULL) == BERTH_OK);
    CHECK_EQ(berth_shape_open(NULL, "x", NULL, &shape, &error), BERTH_EINVAL);
    CHECK(shape == NULL);
    CHECK_EQ(berth_shape_open(a.context, NULL, NULL, &shape, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_shape_open(a.context, "", NULL, &shape, &error), BERTH_EINVAL);
    CHECK_CONTAINS(error.message, "is empty");
    CHECK_EQ(berth_shape_open(a.context, "x", NULL, NULL, &error), BERTH_EINVAL);
    CHECK_EQ(berth_shape_open(a.context, "/nowhere", NULL, &shape, NULL), BERTH_ENOENT);
    CHECK_EQ(berth_estimate_create(NULL, a.shape, NULL, &estimate, &error), BERTH_EINVAL);
    CHECK(estimate == NULL);
    CHECK_EQ(berth_estimate_create(a.context, NULL, NULL, &estimate, NULL), BERTH_EINVAL);
    CHECK_EQ(berth_estimate_create(a.context, a.shape, NULL, NULL, &error), BERTH_EINVAL);
    /* An older, shorter struct: what it lacks is 0. */
    options.struct_size = offsetof(berth_estimate_options, tokens);
    CHECK_EQ(berth_estimate_create(a.context, a.shape, &options, &estimate, NULL),
             BERTH_OK);
    berth_estimate_destroy(estimate);
    options.type = "?";
    options.struct_size = sizeof options;
    CHECK_EQ(berth_estimate_create(a.context, a.shape, &options, &estimate, NULL),
             BERTH_EINVAL);
    berth_estimate_destroy(NULL);
    berth_shape_close(NULL);
    end(&a);
}

/* ------------------------------------------------------------------------- faults */

static berth_status
estimate_once(void *user, berth_context *context, berth_error *error)
{
    static const uint64_t contexts[] = { 64, 128 };
    berth_estimate_options options = plain();
    berth_estimate *estimate = NULL;
    berth_shape *shape = NULL;
    berth_status status = berth_shape_open(context, user, NULL, &shape, error);

    CHECK_EQ(status == BERTH_OK, shape != NULL);
    options.contexts = contexts;
    options.context_count = 2;
    options.budgets = (const uint64_t[]){ GIB };
    options.budget_count = 1;
    options.tokens = "1\n2\n";
    options.tokens_bytes = 4;
    if (status == BERTH_OK)
        status = berth_estimate_create(context, shape, &options, &estimate, error);
    CHECK_EQ(status == BERTH_OK, estimate != NULL);
    berth_estimate_destroy(estimate);
    berth_shape_close(shape);
    return status;
}

static void
test_faults(void)
{
    const char *const folder = config_folder("gpt2");
    fault_counts counts;

    counts = fault_loop("headers", estimate_once,
                        (void *)(uintptr_t)small_folder("", true, "false"));
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 5);
    CHECK_LE(counts.survived, 6);
    fixture_index(fixture_format("%s/model.safetensors.index.json", folder), 1000,
                  "a model-00001-of-00001.safetensors\n");
    counts = fault_loop("config", estimate_once, (void *)(uintptr_t)folder);
    CHECK_GT(counts.memory, 10);
    CHECK_GT(counts.system, 5);
    /* What the weights' absence hangs on is looked at twice. */
    CHECK_LE(counts.survived, 24);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_config_alone);
    T_RUN(test_config_path);
    T_RUN(test_variant);
    T_RUN(test_budgets_without_units);
    T_RUN(test_quantized_experts);
    T_RUN(test_index_alone);
    T_RUN(test_hub);
    T_RUN(test_refused_shapes);
    T_RUN(test_headers);
    T_RUN(test_turned_headers);
    T_RUN(test_kept_float32);
    T_RUN(test_plain_classes);
    T_RUN(test_stacked_classes);
    T_RUN(test_small);
    T_RUN(test_odd_headers);
    T_RUN(test_foreign);
    T_RUN(test_beyond_counts);
    T_RUN(test_parts);
    T_RUN(test_table);
    T_RUN(test_budgets);
    T_RUN(test_lengths);
    T_RUN(test_claims);
    T_RUN(test_refused_options);
    T_RUN(test_refused_training);
    T_RUN(test_dtypes);
    T_RUN(test_arguments);
    T_RUN(test_faults);
    T_MAIN_END;
}
