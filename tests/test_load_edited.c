/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_edited.c - plans of which one value was edited, at random: what --check takes is
 * loaded, with the bytes that it has to have, and what it refuses is not.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/sliced.h"
#include "tests/stacked.h"
#include "tests/t.h"
#include "tests/weights.h"

#define EDITS 400 /* of each plan */

/* Weights in every way that berth leaves them: FP8 with and without scales, FP4, GPTQ. */
static const char tensors[] =
    "BF16 64x32 model.embed_tokens.weight\n"
    "BF16 32 model.layers.0.input_layernorm.weight\n"
    "F8_E4M3 32x32 model.layers.0.self_attn.q_proj.weight\n"
    "F32 2x2 model.layers.0.self_attn.q_proj.weight_scale_inv\n"
    "F8_E4M3 64x32 model.layers.0.mlp.up_proj.weight\n"
    "F32 4x2 model.layers.0.mlp.up_proj.weight_scale_inv\n"
    "I8 32x32 model.layers.0.mlp.down_proj.weight\n"
    "F8_E8M0 32x2 model.layers.0.mlp.down_proj.scale\n"
    "BF16 64x32 model.layers.0.mlp.gate_proj.weight\n"
    "F64 32x32 model.layers.0.self_attn.o_proj.weight\n"
    "BF16 32 model.norm.weight\n"
    "BF16 64x32 lm_head.weight\n";

static const char bare[] = "BF16 64x32 model.embed_tokens.weight\n"
                           "F8_E4M3 32x32 model.layers.0.self_attn.q_proj.weight\n"
                           "BF16 64x32 model.layers.0.mlp.up_proj.weight\n"
                           "I32 4x32 model.layers.0.self_attn.v_proj.qweight\n"
                           "I32 1x4 model.layers.0.self_attn.v_proj.qzeros\n"
                           "F16 1x32 model.layers.0.self_attn.v_proj.scales\n"
                           "BF16 32 model.norm.weight\n";

#define NUMBERS                                                                           \
    "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "             \
    "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 1, "         \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": 64, "       \
    "\"torch_dtype\": \"bfloat16\""

/* Halves of each expert, of a matrix, and of one whose rows have scales; columns of others. */
#define SCALED_HALVES                                              \
    "F8_E4M3 64x64 model.layers.1.shared_mlp.input_linear.weight\n" \
    "F32 64x1 model.layers.1.shared_mlp.input_linear.weight_scale\n"

static const char halves[] =
    "BF16 40x64 model.embed_tokens.weight\n"
    "BF16 64 model.layers.0.input_layernorm.weight\n"
    "BF16 64x64 model.layers.0.self_attn.q_proj.weight\n"
    "BF16 64x64 model.layers.0.self_attn.o_proj.weight\n"
    "BF16 3x128x64 model.layers.0.block_sparse_moe.input_linear.weight\n"
    "BF16 3x64x64 model.layers.0.block_sparse_moe.output_linear.weight\n"
    "BF16 3x64 model.layers.0.block_sparse_moe.router.layer.weight\n"
    "BF16 128x64 model.layers.0.shared_mlp.input_linear.weight\n"
    "BF16 64x64 model.layers.0.shared_mlp.output_linear.weight\n"
    "BF16 64 model.norm.weight\n"
    "BF16 40x64 lm_head.weight\n";

#define HALVES                                                                            \
    "{\"architectures\": [\"GraniteMoeSharedForCausalLM\"], "                             \
    "\"model_type\": \"granitemoeshared\", \"hidden_size\": 64, "                         \
    "\"intermediate_size\": 64, \"shared_intermediate_size\": 64, "                       \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                              \
    "\"num_key_value_heads\": 4, \"vocab_size\": 40, \"num_local_experts\": 3, "          \
    "\"num_experts_per_tok\": 2, \"torch_dtype\": \"bfloat16\"}"

static const char *
make(const char *lines, const char *config)
{
    const char *const folder = fixture_folder();

    (void)fixture_file(fixture_format("%s/model.safetensors", folder), lines);
    fixture_text(fixture_format("%s/config.json", folder), config);
    return folder;
}

/* ------------------------------------------------------------------------------ edits */

/* What stands in a plan behind `key`: one of `words`, or a number. */
typedef struct value_kind {
    const char *key;
    const char *words[20];
} value_kind;

static const value_kind kinds[] = {
    { "encoding",
      { "\"native\"", "\"nf4\"", "\"fp4\"", "\"int8\"", "\"fp8\"", "\"fp4_packed\"",
        "\"mxfp4\"", "\"foreign\"", "\"statistics\"" } },
    { "dtype",
      { "\"BF16\"", "\"F16\"", "\"F32\"", "\"F64\"", "\"F8_E4M3\"", "\"F8_E5M2\"", "\"I8\"",
        "\"U8\"", "\"I32\"", "\"F4\"", "\"BOOL\"", "\"F8_E8M0\"" } },
    { "type", { "\"native\"", "\"nf4\"", "\"fp4\"", "\"int8\"", "\"fp8\"" } },
    { "double_quant", { "true", "false" } },
    { "of", { "\"rows\"", "\"columns\"", "\"depths\"", "\"none\"" } },
    { "tier", { "\"cpu\"", "\"cuda:0\"", "\"disk\"" } },
    { "home", { "\"cpu\"", "\"cuda:0\"", "\"disk\"" } },
    { "bytes", { NULL } },
    { "offset", { NULL } },
    { "number", { NULL } },
    { "first", { NULL } },
    { "count", { NULL } },
    { "parts", { NULL } },
    { "rank", { NULL } },
    { "ranks", { NULL } },
    { "block_size", { NULL } },
    { "weights", { NULL } },
    { "cache", { NULL } },
};

#define KINDS (sizeof kinds / sizeof *kinds)

static uint64_t
number_near(uint64_t value, uint64_t *state)
{
    switch (weights_random(state) % 10) {
    case 0: return 0;
    case 1: return value + 1;
    case 2: return value - 1;
    case 3: return value * 2;
    case 4: return value / 2;
    case 5: return value + 256;
    case 6: return value - 256;
    case 7: return 16;
    case 8: return UINT64_MAX;
    default: return weights_random(state) % 4096;
    }
}

/* Behind the n-th of `key`, counted from 0; NULL: there are not so many. */
static const char *
find_value(const char *text, const char *key, uint32_t n)
{
    const char *const pattern = fixture_format("\"%s\": ", key);

    for (const char *at = strstr(text, pattern); at != NULL; at = strstr(at + 1, pattern))
        if (n-- == 0)
            return at + strlen(pattern);
    return NULL;
}

/* Equal parts for a slice that has them or not, or NULL where there is no slice. */
static const char *
add_parts(const char *text, uint64_t *state)
{
    uint32_t places = 0;
    const char *end;

    while (find_value(text, "count", places) != NULL)
        places++;
    if (places == 0)
        return NULL;
    end = find_value(text, "count", (uint32_t)(weights_random(state) % places));
    end += strcspn(end, ",}\n");
    return fixture_format("%.*s, \"parts\": %llu%s", (int)(end - text), text,
                          (unsigned long long)number_near(2, state), end);
}

/* The text with another value behind one key, or NULL where it has no such key. */
static const char *
edit(const char *text, uint64_t *state)
{
    const uint64_t chosen = weights_random(state) % (KINDS + 1);
    const value_kind *const kind = &kinds[chosen % KINDS];
    uint32_t places = 0;
    uint32_t words = 0;
    const char *value;
    const char *end;

    if (chosen == KINDS)
        return add_parts(text, state);
    while (find_value(text, kind->key, places) != NULL)
        places++;
    while (kind->words[words] != NULL)
        words++;
    if (places == 0)
        return NULL;
    value = find_value(text, kind->key, (uint32_t)(weights_random(state) % places));
    end = value + strcspn(value, ",}\n");
    if (words == 0)
        return fixture_format("%.*s%llu%s", (int)(value - text), text,
                              (unsigned long long)number_near(strtoull(value, NULL, 10), state),
                              end);
    return fixture_format("%.*s%s%s", (int)(value - text), text,
                          kind->words[weights_random(state) % words], end);
}

/* ------------------------------------------------------------------------------ loads */

typedef struct tally {
    const char *memory; /* that plans are checked for */
    uint32_t parsed;
    uint32_t checked;
    uint32_t loaded;
} tally;

static void
try_plan(loaded *l, const char *text, tally *t)
{
    berth_plan *const before = l->p.plan;
    berth_check_report report;
    berth_status checked;
    berth_plan *plan = NULL;

    if (berth_plan_parse(l->p.context, text, strlen(text), "edited", &plan, NULL) != BERTH_OK)
        return;
    t->parsed++;
    checked = berth_plan_check(plan, l->p.context, l->p.checkpoint, t->memory, NULL, NULL, NULL);
    t->checked += checked == BERTH_OK;
    l->p.plan = plan;
    loaded_load(l);
    if (l->status == BERTH_OK) {
        t->loaded++;
        if (!CHECK(checked == BERTH_OK || checked == BERTH_ENOFIT))
            T_NOTE("loaded, and refused by the check: %s", text);
        CHECK_EQ(loaded_see_checked(l, &report), BERTH_OK);
        if (!CHECK_EQ(report.mismatches, 0))
            T_NOTE("%s", text);
    } else if (!CHECK(checked != BERTH_OK || l->status == BERTH_ENOFIT
                      || l->status == BERTH_EUNSUPPORTED)) {
        T_NOTE("taken by the check, and not loaded: %s: %s", l->error.message, text);
    }
    berth_model_destroy(l->model);
    l->model = NULL;
    l->p.plan = before;
    berth_plan_destroy(plan);
}

static void
try_edits(const char *folder, berth_plan_options options, const char *words, uint64_t seed)
{
    tally t = { .memory = options.max_memory };
    uint64_t state = seed;
    char *text;
    loaded l;

    loaded_begin(&l, folder, &options, words);
    T_REQUIRE(l.p.status == BERTH_OK);
    text = planned_text(l.p.plan, NULL);
    try_plan(&l, text, &t);
    CHECK_EQ(t.loaded, 1);
    for (uint32_t i = 0; i < EDITS; i++) {
        const char *const edited = edit(text, &state);

        if (edited != NULL)
            try_plan(&l, edited, &t);
    }
    T_NOTE("%u edits: %u parsed, %u checked, %u loaded", EDITS, t.parsed, t.checked, t.loaded);
    free(text);
    loaded_end(&l);
}

static void
test_scaled(void)
{
    const char *const folder =
        make(tensors, "{" NUMBERS ", \"quantization_config\": {\"quant_method\": \"fp8\", "
                      "\"weight_block_size\": [16, 16]}}");

    try_edits(folder, sliced_options("cpu=64MiB", 0, 0), NULL, 1);
    try_edits(folder, sliced_options("0=64MiB,cpu=64MiB", 0, 0), "sim:64MiB", 2);
    try_edits(folder, sliced_options("cpu=64MiB", 1, 2), NULL, 3);
}

static void
test_bare(void)
{
    const char *const folder = make(bare, "{" NUMBERS "}");
    berth_plan_options options = sliced_options("cpu=64MiB", 0, 0);

    try_edits(folder, options, NULL, 4);
    options.dtype = BERTH_F32;
    try_edits(folder, options, NULL, 5);
}

static void
test_encoded(void)
{
    berth_plan_options options = loaded_options(NULL);
    const char *const source = sliced_make(&sliced_blocks);
    const char *folder;

    options.type = BERTH_ENCODING_NF4;
    folder = loaded_quantized(source, &options);
    try_edits(folder, sliced_options("cpu=64MiB", 0, 0), NULL, 6);
    try_edits(folder, sliced_options("cpu=64MiB", 1, 2), NULL, 7);
    options = sliced_options("0=64MiB,cpu=64MiB", 1, 2);
    options.type = BERTH_ENCODING_NF4;
    try_edits(source, options, "sim:64MiB", 8);
}

/* What ranks have of halves, of stacks, and of what is stored turned in groups. */
static void
test_parts(void)
{
    const stacked_sizes groups = {
        .layers = 1, .experts = 3, .hidden = 64, .inner = 64, .is_mxfp4 = true
    };
    berth_plan_options options = sliced_options("0=64MiB,cpu=64MiB", 1, 2);

    try_edits(make(fixture_format("%s%s", halves, SCALED_HALVES), HALVES),
              sliced_options("cpu=64MiB", 1, 2), NULL, 9);
    options.type = BERTH_ENCODING_NF4;
    options.takes_experts = 1;
    try_edits(make(halves, HALVES), options, "sim:64MiB", 10);
    try_edits(stacked_make(&groups), sliced_options("cpu=64MiB", 1, 2), NULL, 11);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_scaled);
    T_RUN(test_bare);
    T_RUN(test_encoded);
    T_RUN(test_parts);
    T_MAIN_END;
}
