/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_foreign.c - weights of methods that berth names and does not decode: planned,
 * loaded and streamed as they are stored, each with what belongs to it; no encoding and no
 * dtype of berth's for them.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/loaded.h"
#include "tests/planned_train.h"
#include "tests/t.h"
#include "tests/weights.h"

#define LAYERS 4
#define CONFIG                                                                            \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "            \
    "\"hidden_size\": 256, \"intermediate_size\": 704, \"num_hidden_layers\": 4, "       \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 128, "      \
    "\"torch_dtype\": \"float16\"%s}"

#define PARTS 4

/* The tensors that a matrix of this size is stored as, the codes first. */
typedef struct method {
    const char *name;
    const char *config; /* behind the rest of it */
    const char *shapes[PARTS];
    const char *suffixes[PARTS]; /* NULL: there are no more */
} method;

#define GPTQ                                                                              \
    { "I32 32x256", "I32 2x32", "F16 2x256", "I32 256" },                                 \
    {                                                                                     \
        "qweight", "qzeros", "scales", "g_idx"                                            \
    }

static const method methods[] = {
    { "gptq", ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}", GPTQ },
    { "gptq", "", GPTQ },
    { "awq",
      ", \"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4}",
      { "I32 256x32", "I32 2x32", "F16 2x256" },
      { "qweight", "qzeros", "scales" } },
    { "compressed-tensors",
      ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
      "\"format\": \"pack-quantized\"}",
      { "I32 256x32", "F16 256x2", "I64 2" },
      { "weight_packed", "weight_scale", "weight_shape" } },
};

#define METHODS (sizeof methods / sizeof methods[0])

static const char *
make(const method *m)
{
    static const char *const matrices[] = { "q_proj", "k_proj", "v_proj", "o_proj" };
    const char *const folder = fixture_folder();
    fixture_builder *const b = fixture_begin();

    fixture_add_lines(b, "F16 128x256 model.embed_tokens.weight\nF16 128x256 lm_head.weight\n"
                         "F16 256 model.norm.weight\n");
    for (int i = 0; i < LAYERS; i++) {
        fixture_add_lines(b, fixture_format("F16 256 model.layers.%d.input_layernorm.weight\n",
                                            i));
        for (int k = 0; k < 4 * PARTS; k++)
            if (m->suffixes[k % PARTS] != NULL)
                fixture_add_lines(
                    b, fixture_format("%s model.layers.%d.self_attn.%s.%s\n",
                                      m->shapes[k % PARTS], i, matrices[k / PARTS],
                                      m->suffixes[k % PARTS]));
    }
    (void)fixture_finish(b, fixture_format("%s/model.safetensors", folder));
    fixture_text(fixture_format("%s/config.json", folder), fixture_format(CONFIG, m->config));
    return folder;
}

/* In whatever order: a tensor of the file as it is there. */
static void
check_part(const loaded *l, const berth_model_part *part, uint64_t number, bool is_host)
{
    berth_tensor t;
    void *bytes;

    T_REQUIRE(berth_checkpoint_tensor(l->p.checkpoint, number, &t) == BERTH_OK);
    CHECK_EQ(part->bytes, t.bytes);
    CHECK_EQ(part->dtype, t.dtype);
    if (!is_host)
        return;
    bytes = weights_alloc(t.bytes);
    CHECK_EQ(berth_checkpoint_read(l->p.checkpoint, number, 0, UINT64_MAX, bytes, t.bytes,
                                   NULL),
             BERTH_OK);
    CHECK_MEM(part->memory, bytes, t.bytes);
    free(bytes);
}

/* A weight has its layer, and what it is stored as. */
static void
check_weight(const loaded *l, const method *m, bool is_host)
{
    const char *const name =
        fixture_format("model.layers.2.self_attn.k_proj.%s", m->suffixes[0]);
    const uint64_t berth = berth_model_find(l->model, name, strlen(name));
    berth_model_tensor tensor;
    uint32_t parts = 0;

    while (parts < PARTS && m->suffixes[parts] != NULL)
        parts++;
    T_REQUIRE(berth != BERTH_NO_TENSOR);
    CHECK_EQ(berth_model_get_tensor(l->model, berth, &tensor), BERTH_OK);
    CHECK_EQ(tensor.encoding, BERTH_ENCODING_FOREIGN);
    CHECK_EQ(tensor.layer, planned_layer(&l->p, "model.layers.2"));
    CHECK_EQ(tensor.part_count, parts);
    for (uint32_t i = 0; i < tensor.part_count; i++)
        check_part(l, &tensor.parts[i], i == 0 ? tensor.tensor : tensor.parts[i].tensor,
                   is_host);
}

static void
check_load(const char *folder, const method *m, int32_t dtype, const char *memory,
           const char *words)
{
    berth_plan_options options = loaded_options(memory);
    loaded l;

    options.dtype = dtype;
    loaded_begin(&l, folder, &options, words);
    T_REQUIRE(l.p.status == BERTH_OK);
    loaded_load(&l);
    if (CHECK_EQ(l.status, BERTH_OK)) {
        check_weight(&l, m, words == NULL);
        CHECK_EQ(loaded_see_checked(&l, NULL), BERTH_OK);
        CHECK_EQ(l.report.planned_bytes, l.report.allocated_bytes);
    } else {
        T_NOTE("%s: %s", m->name, l.error.message);
    }
    loaded_end(&l);
}

static void
test_loaded(void)
{
    for (size_t i = 0; i < METHODS; i++) {
        const char *const folder = make(&methods[i]);

        check_load(folder, &methods[i], -1, "cpu=64MiB", NULL);
        check_load(folder, &methods[i], BERTH_BF16, "cpu=64MiB", NULL);
        check_load(folder, &methods[i], -1, "0=64MiB", "sim:64MiB");
    }
}

/* Layers that do not stay on the device, from host memory and from the files. */
static void
test_streamed(void)
{
    for (size_t i = 0; i < METHODS; i++) {
        loaded_attempt attempt = { .folder = make(&methods[i]),
                                   .max_memory = "0=620KiB,cpu=200KiB,disk=inf",
                                   .words = "sim:64MiB",
                                   .has_passes = true };
        berth_context *context;
        berth_error error;

        T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
        if (!CHECK_EQ(loaded_once(&attempt, context, &error), BERTH_OK))
            T_NOTE("%s: %s", methods[i].name, error.message);
        berth_context_destroy(context);
    }
}

static void
check_refused(const method *m, berth_plan_options options, berth_reason reason)
{
    planned p;

    planned_begin(&p, make(m), &options);
    CHECK_EQ(p.status, BERTH_EUNSUPPORTED);
    CHECK_EQ(p.error.reason, reason);
    CHECK_CONTAINS(p.error.message, m->name);
    planned_end(&p);
}

/*
 * Their values are not known: nor is what adapters of them have for rows and columns, or what
 * transformers counts for them.
 */
static void
test_refused(void)
{
    static const method shortened = { "mlx", "", { "U32 256x32", "F16 256x4", "F16 256x4" },
                                      { "weight", "scales", "biases" } };
    berth_plan_options encoded = loaded_options("cpu=64MiB");
    berth_train_options train =
        planned_train(BERTH_TRAIN_LORA, BERTH_TRAIN_PURE, "paged_adamw_8bit");
    berth_plan_options imitated = loaded_options("0=1GiB,cpu=1GiB");
    const berth_plan_options adapted = planned_train_options(&train, "0=1GiB,cpu=1GiB");

    encoded.type = BERTH_ENCODING_NF4;
    imitated.mode = "auto";
    for (size_t i = 0; i < METHODS; i++) {
        check_refused(&methods[i], encoded, BERTH_REASON_QUANT_METHOD);
        check_refused(&methods[i], adapted, BERTH_REASON_QUANT_METHOD);
        check_refused(&methods[i], imitated, BERTH_REASON_UNSUPPORTED);
    }
    check_refused(&shortened, imitated, BERTH_REASON_UNSUPPORTED);
    check_refused(&shortened, adapted, BERTH_REASON_QUANT_METHOD);
    train.method = BERTH_TRAIN_FULL;
    check_refused(&shortened, adapted, BERTH_REASON_QUANT_METHOD);
}

/* A plan of somebody's that has them decoded, or encoded. */
static void
test_edited(void)
{
    static const char *const others[] = { "\"native\", \"dtype\": \"I32\"",
                                          "\"nf4\", \"dtype\": \"BF16\"",
                                          "\"foreign\", \"dtype\": \"F64\"" };
    static const char from[] = "\"foreign\", \"dtype\": \"BF16\"";
    berth_plan_options options = loaded_options("cpu=64MiB");
    planned p;
    char *text;
    const char *at;

    planned_begin(&p, make(&methods[0]), &options);
    T_REQUIRE(p.status == BERTH_OK);
    text = planned_text(p.plan, NULL);
    at = strstr(text, from);
    T_REQUIRE(at != NULL);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const char *const edited = fixture_format("%.*s%s%s", (int)(at - text), text,
                                                  others[i], at + sizeof from - 1);
        berth_plan *plan;

        T_REQUIRE(berth_plan_parse(p.context, edited, strlen(edited), "edited", &plan, NULL)
                  == BERTH_OK);
        CHECK_EQ(berth_plan_check(plan, p.context, p.checkpoint, "", NULL, NULL, &p.error),
                 BERTH_EINTEGRITY);
        CHECK_CONTAINS(p.error.message, "that it cannot be loaded as");
        berth_plan_destroy(plan);
    }
    free(text);
    planned_end(&p);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_loaded);
    T_RUN(test_streamed);
    T_RUN(test_refused);
    T_RUN(test_edited);
    T_MAIN_END;
}
