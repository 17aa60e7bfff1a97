/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_architecture.c - models laid out: against trees that the executable
 * description of architectures.json made (tests/data/models/trees.txt), every
 * class there is, and small descriptions of our own.
 */
#include "quant/architecture.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/architecture_build.h"
#include "quant/format.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/models.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

static model
read_model(const char *text)
{
    model m;

    CHECK(model_read(context, &text, &m));
    return m;
}

/* ------------------------------------------------------------------ invariants */

static bool
is_end_of(const char *end, uint64_t end_length, const char *whole, uint64_t length)
{
    return end_length <= length
           && memcmp(whole + length - end_length, end, (size_t)end_length) == 0;
}

static void
check_module(const berthi_module *module, uint64_t *tensors)
{
    const berthi_module *child = module->children;
    const berthi_parameter *last = NULL;

    CHECK(is_end_of(module->name, module->name_length, module->path, module->path_length));
    CHECK_EQ(module->kind == BERTHI_MODULE_BLOCK, module->class_name != NULL);
    CHECK(!module->is_never_split || module->kind == BERTHI_MODULE_BLOCK);
    for (; child != NULL; child = child->next) {
        CHECK(child->parent == module);
        CHECK(child->next != NULL || child == module->last_child);
        CHECK_EQ(child->path_length, module->path_length + (module->path_length > 0)
                                         + child->name_length);
    }
    for (const berthi_parameter *p = module->parameters; p != NULL; p = p->next) {
        CHECK(p->module == module && !p->is_buffer);
        last = p;
        (*tensors)++;
    }
    CHECK(last == module->last_parameter);
    last = NULL;
    for (const berthi_parameter *p = module->buffers; p != NULL; p = p->next) {
        CHECK(p->module == module && p->is_buffer && !p->is_linear);
        last = p;
        (*tensors)++;
    }
    CHECK(last == module->last_buffer);
}

/* Whatever the model: each tensor is in one place, and found there. */
static void
check_whole(const berthi_architecture *a, const model *m)
{
    uint64_t tensors = 0;
    uint64_t modules = 0;

    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at)) {
        check_module(at, &tensors);
        T_REQUIRE(CHECK_LT(++modules, 100000));
    }
    CHECK_GE(tensors, a->parameter_count);
    for (uint32_t i = 0; i < a->parameter_count; i++) {
        const berthi_parameter *const p = a->parameters[i];

        T_REQUIRE(CHECK(p->module != NULL));
        CHECK(berthi_architecture_find(a, p->name, p->name_length) == p);
        CHECK(!p->is_conv1d || p->is_linear);
        CHECK(!(p->is_linear && p->is_linear_kind));
    }
    CHECK_EQ(a->tensor_count, m->tensor_count);
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        uint32_t piece = a->parameter_of[i]->first_piece;
        uint32_t pieces = 0;
        bool is_among = false;

        for (; piece != BERTHI_NO_POSITION; piece = a->next_piece[piece], pieces++)
            is_among = is_among || piece == i;
        CHECK(is_among);
        CHECK_EQ(pieces, a->parameter_of[i]->piece_count);
    }
}

/* ----------------------------------------------------------------------- trees */

typedef struct report {
    char *lines[4096];
    uint32_t count;
} report;

__attribute__((format(printf, 2, 3))) static void
say(report *r, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    T_REQUIRE(CHECK_LT(r->count, 4096));
    r->lines[r->count] = malloc(strlen(line) + 1);
    T_REQUIRE(CHECK(r->lines[r->count] != NULL));
    strcpy(r->lines[r->count++], line);
}

static void
end_report(report *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        free(r->lines[i]);
    r->count = 0;
}

static const char *
word_or_dash(const char *text)
{
    return *text != '\0' ? text : "-";
}

/* In 4.x a tied parameter is its source: whether it is linear means nothing. */
static void
report_tensor(report *r, const berthi_architecture *a, const berthi_parameter *p)
{
    const bool is_shared = p->tie != NULL;

    say(r, "%c %.*s %s %" PRIu64 " %s %s%.*s", p->is_buffer ? 'B' : 'P',
        (int)p->name_length, p->name, berthi_format_torch_name(p->dtype), p->elements,
        is_shared && a->era == BERTHI_ERA_HF4 ? "x" : p->is_linear ? "1" : "0",
        is_shared ? "tie:" : "-", is_shared ? (int)p->tie->name_length : 0,
        is_shared ? p->tie->name : "");
}

static int
compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Modules as they are registered, then everything else sorted. */
static void
report_architecture(report *r, const berthi_architecture *a)
{
    uint32_t modules;

    r->count = 0;
    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at))
        if (at->kind != BERTHI_MODULE_INNER
            && (at->class_name == NULL || strcmp(at->class_name, "?") != 0))
            say(r, "M %.*s %s %d", at->path_length > 0 ? (int)at->path_length : 1,
                at->path_length > 0 ? at->path : "-",
                at->class_name != NULL ? at->class_name : "-", at->is_never_split);
    modules = r->count;
    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at)) {
        for (const berthi_parameter *p = at->parameters; p != NULL; p = p->next)
            report_tensor(r, a, p);
        for (const berthi_parameter *p = at->buffers; p != NULL; p = p->next)
            report_tensor(r, a, p);
    }
    for (uint32_t i = 0; i < a->tie_count; i++)
        say(r, "T %s %s", a->ties[i].target, a->ties[i].source);
    say(r, "H %s", word_or_dash(a->head));
    say(r, "L %s", word_or_dash(a->last_name));
    qsort(r->lines + modules, r->count - modules, sizeof *r->lines, compare_lines);
}

/* The first line of the expectations is the era; the rest as reported, sorted alike. */
static void
check_tree(const model *m)
{
    static report r;
    berthi_architecture *a;
    berthi_era era = BERTHI_ERA_HF5;
    uint32_t modules = 1;

    T_REQUIRE(m->line_count > 1 && strncmp(m->lines[0], "era ", 4) == 0);
    CHECK(berthi_era_can_parse(m->lines[0] + 4, &era));
    while (modules < m->line_count && m->lines[modules][0] == 'M')
        modules++;
    qsort(m->lines + modules, m->line_count - modules, sizeof *m->lines, compare_lines);
    a = model_architecture(context, m, era);
    check_whole(a, m);
    CHECK(a->is_named);
    report_architecture(&r, a);
    CHECK_EQ(r.count, m->line_count - 1);
    for (uint32_t i = 0; i < r.count && i + 1 < m->line_count; i++)
        if (!CHECK_STR(r.lines[i], m->lines[i + 1])) {
            T_NOTE("%s %s", m->class_name, m->lines[0]);
            break;
        }
    end_report(&r);
    berthi_architecture_destroy(a);
}

static void
test_trees(void)
{
    char *const text = model_file("trees.txt");
    const char *at = text;
    uint32_t trees = 0;
    model m;

    while (model_read(context, &at, &m)) {
        check_tree(&m);
        model_fini(&m);
        trees++;
    }
    CHECK_EQ(trees, 29);
    free(text);
}

/* ----------------------------------------------------------------- every class */

static char *
class_text(const berthi_catalogue_entry *entry)
{
    static char lines[65536];
    const berthi_catalogue *const c = berthi_catalogue_builtin();
    const berthi_json_origin origin = { BERTH_REASON_ARCHITECTURES_JSON, "" };
    const berthi_json_value *at;
    berthi_json *document;
    berth_error error;
    size_t length = (size_t)snprintf(lines, sizeof lines, "class %.*s\n",
                                     (int)entry->name_length, c->text + entry->name);

    CHECK_EQ(berthi_json_parse(context, c->text + entry->body, entry->body_length, 0,
                               &origin, &document, &error), BERTH_OK);
    at = berthi_json_first(berthi_json_get(berthi_json_root(document), "not_linear"));
    for (; at != NULL; at = berthi_json_next(at)) {
        const char *name = "";

        CHECK(berthi_json_can_read_string(at, &name));
        length += (size_t)snprintf(lines + length, sizeof lines - length, "BF16 4x4 ");
        for (; *name != '\0'; name++)
            lines[length++] = *name == '*' ? '2' : *name;
        lines[length++] = '\n';
    }
    lines[length] = '\0';
    berthi_json_destroy(document);
    return lines;
}

/* Without a tensor, and with all that its description names. */
static void
test_every_class(void)
{
    const berthi_catalogue *const c = berthi_catalogue_builtin();
    uint64_t modules = 0;

    for (uint32_t i = 0; i < c->class_count; i++) {
        model m = read_model(class_text(&c->entries[i]));
        const uint32_t count = m.tensor_count;

        for (int era = 0; era < 2 * BERTHI_ERA_COUNT; era++) {
            berthi_architecture *a;

            m.tensor_count = era % 2 == 0 ? count : 0;
            m.source.count = m.tensor_count;
            a = model_architecture(context, &m, (berthi_era)(era / 2));
            CHECK_STR(a->class_name, m.class_name);
            check_whole(a, &m);
            for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at))
                modules++;
            berthi_architecture_destroy(a);
        }
        m.tensor_count = count;
        model_fini(&m);
    }
    T_NOTE("%" PRIu32 " classes, %" PRIu64 " modules", c->class_count, modules);
}

/* --------------------------------------------------------- names and the class */

static const char *
model_name(const berthi_architecture *a, const model *m, const char *name, char *out)
{
    const berthi_parameter *const p = a->parameter_of[model_position(m, name)];

    snprintf(out, 256, "%.*s", (int)p->name_length, p->name);
    return out;
}

static void
test_names(void)
{
    char *const text = model_file("mixtral.txt");
    model m = read_model(text);
    berthi_architecture *a = model_architecture(context, &m, BERTHI_ERA_HF5);
    const berthi_parameter *fused;
    char name[256];

    check_whole(a, &m);
    CHECK_STR(model_name(a, &m, "model.layers.1.block_sparse_moe.gate.weight", name),
              "model.layers.1.mlp.gate.weight");
    CHECK_STR(model_name(a, &m, "model.layers.1.block_sparse_moe.experts.2.w2.weight", name),
              "model.layers.1.mlp.experts.down_proj");
    CHECK_STR(model_name(a, &m, "model.norm.weight", name), "model.norm.weight");
    fused = berthi_architecture_find(a, "model.layers.1.mlp.experts.gate_up_proj", 39);
    T_REQUIRE(CHECK(fused != NULL));
    CHECK_EQ(fused->piece_count, 6);
    CHECK_EQ(fused->elements, 6 * 48 * 64);
    CHECK_EQ(fused->first_piece,
             model_position(&m, "model.layers.1.block_sparse_moe.experts.0.w1.weight"));
    CHECK_EQ(a->next_piece[fused->first_piece],
             model_position(&m, "model.layers.1.block_sparse_moe.experts.0.w3.weight"));
    CHECK(fused->is_experts && !fused->is_linear);
    CHECK_STR(berthi_module_block(fused->module)->class_name, "MixtralDecoderLayer");
    CHECK(berthi_module_block(fused->module)->is_never_split);
    CHECK(berthi_module_block(a->root) == NULL);
    CHECK(berthi_architecture_find(a, "model.layers.1.mlp.experts", 26) == NULL);
    CHECK(berthi_architecture_find(a, "nothing", 7) == NULL);
    CHECK(berthi_architecture_find(a, "model.nothing.weight", 20) == NULL);
    CHECK(berthi_architecture_find(a, "", 0) == NULL);
    berthi_architecture_destroy(a);
    a = model_architecture(context, &m, BERTHI_ERA_HF4);
    CHECK_STR(model_name(a, &m, "model.layers.1.block_sparse_moe.experts.2.w2.weight", name),
              "model.layers.1.block_sparse_moe.experts.2.w2.weight");
    berthi_architecture_destroy(a);
    model_fini(&m);
    free(text);
}

/* A tensor of the checkpoint, and what 4.x calls it in the model; NULL: the same. */
typedef struct called {
    const char *class_name;
    const char *name;
    const char *expected;
} called;

static void
check_called(const called *c)
{
    /* With others as checkpoints have them, so that no prefix seems to lack. */
    model m = read_model(fixture_format("class %s\nBF16 4x4 %s\nBF16 4x4 lm_head.weight\n",
                                        c->class_name, c->name));
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF4);
    char name[256];

    CHECK_STR(model_name(a, &m, c->name, name),
              c->expected != NULL ? c->expected : c->name);
    berthi_architecture_destroy(a);
    model_fini(&m);
}

/* Parts of multimodal models had moved in 4.52 already; experts and heads had not. */
static void
test_older_names(void)
{
    static const char gemma3[] = "Gemma3ForConditionalGeneration";
    static const char llava[] = "LlavaForConditionalGeneration";
    static const char qwen[] = "Qwen2VLForConditionalGeneration";
    static const called all[] = {
        { gemma3, "language_model.model.layers.3.self_attn.q_proj.weight",
          "model.language_model.layers.3.self_attn.q_proj.weight" },
        { gemma3, "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
          "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight" },
        { gemma3, "multi_modal_projector.mm_input_projection_weight",
          "model.multi_modal_projector.mm_input_projection_weight" },
        { gemma3, "model.language_model.layers.3.self_attn.q_proj.weight", NULL },
        { gemma3, "model.vision_tower.vision_model.post_layernorm.weight", NULL },
        { llava, "language_model.model.embed_tokens.weight",
          "model.language_model.embed_tokens.weight" },
        { llava, "language_model.lm_head.weight", "lm_head.weight" },
        { llava, "vision_tower.vision_model.embeddings.patch_embedding.weight",
          "model.vision_tower.vision_model.embeddings.patch_embedding.weight" },
        { llava, "vision_tower.patch_conv.weight", "model.vision_tower.patch_conv.weight" },
        { llava, "multi_modal_projector.linear_2.weight",
          "model.multi_modal_projector.linear_2.weight" },
        { qwen, "model.layers.1.mlp.up_proj.weight",
          "model.language_model.layers.1.mlp.up_proj.weight" },
        { qwen, "model.norm.weight", "model.language_model.norm.weight" },
        { qwen, "visual.blocks.1.attn.qkv.weight", "model.visual.blocks.1.attn.qkv.weight" },
        { qwen, "visual.merger.mlp.0.weight", "model.visual.merger.mlp.0.weight" },
        { qwen, "model.visual.blocks.1.attn.qkv.weight", NULL },
        { qwen, "model.language_model.norm.weight", NULL },
        { "GPTNeoXForCausalLM", "embed_out.weight", NULL },
        { "MixtralForCausalLM", "model.layers.1.block_sparse_moe.gate.weight", NULL },
        { "Qwen3MoeForCausalLM", "model.layers.1.mlp.experts.2.up_proj.weight", NULL },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_called(&all[i]);
}

/* A checkpoint of the bare model lacks the prefix. */
static void
test_bare_model(void)
{
    model m = read_model("class GPT2LMHeadModel\nBF16 8x4 wte.weight\n"
                         "BF16 4x12 h.0.attn.c_attn.weight\nBF16 4 ln_f.bias\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);
    char name[256];

    check_whole(a, &m);
    CHECK_STR(model_name(a, &m, "h.0.attn.c_attn.weight", name),
              "transformer.h.0.attn.c_attn.weight");
    CHECK_EQ(a->parameter_of[model_position(&m, "h.0.attn.c_attn.weight")]->is_conv1d, true);
    CHECK_EQ(a->is_approximate, false);
    CHECK_EQ(a->tie_count, 1);
    berthi_architecture_destroy(a);
    model_fini(&m);
}

static void
test_class_choice(void)
{
    static const struct {
        const char *class_name;
        const char *model_type;
        const char *chosen;
        bool is_named;
    } cases[] = {
        { "LlamaForCausalLM", "mistral", "LlamaForCausalLM", true },
        { "LlamaForSequenceClassification", "llama", "LlamaForCausalLM", false },
        { "", "opt", "OPTForCausalLM", false },
        { "Unknown", "unknown", "", false },
        { "", "", "", false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = read_model("dtype bfloat16\n");
        berthi_architecture *a;

        snprintf(m.class_name, sizeof m.class_name, "%s", cases[i].class_name);
        snprintf(m.model_type, sizeof m.model_type, "%s", cases[i].model_type);
        a = model_architecture(context, &m, BERTHI_ERA_HF5);
        CHECK_STR(a->class_name, cases[i].chosen);
        CHECK_EQ(a->is_named, cases[i].is_named);
        CHECK_EQ(a->is_approximate, !cases[i].is_named);
        berthi_architecture_destroy(a);
        model_fini(&m);
    }
}

/* What a description does not know is kept, behind what it knows. */
static void
test_unknown_tensors(void)
{
    model m = read_model("class LlamaForCausalLM\nBF16 4x4 model.layers.0.mlp.up.weight\n"
                         "BF16 4x4 score.weight\nBF16 4 model.extra\n"
                         "BF16 4 model.layers.bias\nBF16 4 model.more.deep.er\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);
    const berthi_parameter *score;

    check_whole(a, &m);
    CHECK_EQ(a->is_approximate, true);
    score = berthi_architecture_find(a, "score.weight", 12);
    T_REQUIRE(CHECK(score != NULL));
    CHECK(score->is_linear);
    CHECK(score->module == a->root->last_child);
    berthi_architecture_destroy(a);
    model_fini(&m);
}

/* ------------------------------------------------------------- without a class */

static void
test_guess(void)
{
    static const char *const order[] = {
        "", "net", "net.embed", "net.adapter", "net.blocks", "net.blocks.0",
        "net.blocks.0.mlp", "net.blocks.0.mlp.experts", "net.blocks.0.mlp.experts.0",
        "net.blocks.0.mlp.experts.1", "net.blocks.2", "net.blocks.2.x", "net.blocks.10",
        "net.blocks.10.norm", "net.norm", "lm_head",
    };
    model m = read_model("class Unheard\nconfig {\"tie_word_embeddings\": true}\n"
                         "BF16 8x4 lm_head.weight\nBF16 4 net.norm.weight\n"
                         "BF16 4x4 net.blocks.10.norm.weight\nBF16 4x4 net.blocks.2.x.weight\n"
                         "BF16 4x4 net.blocks.0.mlp.experts.0.weight\n"
                         "BF16 4x4 net.blocks.0.mlp.experts.1.weight\n"
                         "BF16 4x4 net.adapter.weight\nBF16 8x4 net.embed.weight\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);
    size_t i = 0;

    check_whole(a, &m);
    CHECK_EQ(a->is_approximate, true);
    CHECK_STR(a->head, "lm_head");
    CHECK_EQ(a->tie_count, 0); /* the head is there: nobody knows that it is tied */
    for (const berthi_module *at = a->root; at != NULL; at = berthi_module_after(at), i++) {
        T_REQUIRE(CHECK_LT(i, sizeof order / sizeof *order));
        CHECK_EQ(at->path_length, strlen(order[i]));
        CHECK_MEM(at->path, order[i], strlen(order[i]));
        CHECK_EQ(at->kind == BERTHI_MODULE_BLOCK,
                 strncmp(order[i], "net.blocks.", 11) == 0 && strchr(order[i] + 11, '.') == NULL);
        CHECK_EQ(at->is_never_split, at->kind == BERTHI_MODULE_BLOCK);
    }
    CHECK_EQ(i, sizeof order / sizeof *order);
    CHECK(a->parameter_of[model_position(&m, "net.adapter.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "net.blocks.2.x.weight")]->is_linear);
    CHECK(!a->parameter_of[model_position(&m, "net.embed.weight")]->is_linear);
    CHECK(!a->parameter_of[model_position(&m, "net.blocks.10.norm.weight")]->is_linear);
    berthi_architecture_destroy(a);
    model_fini(&m);
}

static void
test_guessed_tie(void)
{
    model m = read_model("class Unheard\nconfig {\"tie_word_embeddings\": true}\n"
                         "BF16 8x4 net.embed.weight\nBF16 4 net.wte.bias\n");
    berthi_architecture *a = model_architecture(context, &m, BERTHI_ERA_HF5);
    const berthi_parameter *head;

    check_whole(a, &m);
    CHECK_STR(a->head, "lm_head");
    T_REQUIRE(CHECK_EQ(a->tie_count, 1));
    CHECK_STR(a->ties[0].source, "net.embed.weight");
    head = berthi_architecture_find(a, "lm_head.weight", 14);
    T_REQUIRE(CHECK(head != NULL));
    CHECK(head->tie == a->parameter_of[0]);
    CHECK(a->parameter_of[0]->is_tie_source);
    CHECK_EQ(head->elements, 32);
    CHECK_EQ(head->first_piece, BERTHI_NO_POSITION);
    CHECK_STR(a->last_name, "lm_head.weight");
    berthi_architecture_destroy(a);
    model_fini(&m);
    m = read_model("class Unheard\nBF16 8x4 embed_out.weight\n");
    a = model_architecture(context, &m, BERTHI_ERA_HF5);
    CHECK_STR(a->head, "embed_out");
    berthi_architecture_destroy(a);
    model_fini(&m);
    /* Nothing at all. */
    m = read_model("class Unheard\nconfig {}\n");
    a = model_architecture(context, &m, BERTHI_ERA_HF4);
    check_whole(a, &m);
    CHECK_STR(a->head, "");
    CHECK_STR(a->last_name, "");
    berthi_architecture_destroy(a);
    model_fini(&m);
}

/* Linear layers of classes that nobody describes, or in other configurations. */
static void
test_linear_names(void)
{
    static const struct {
        const char *class_name;
        const char *name;
        bool is_linear;
        bool is_kind;
        bool is_conv1d;
    } cases[] = {
        { "DebertaForMaskedLM", "deberta.embeddings.token_type_embeddings.weight", 0, 0, 0 },
        { "DebertaForMaskedLM", "deberta.encoder.token_type.weight", 1, 0, 0 },
        { "Unheard", "a.shared.weight", 0, 0, 0 },
        { "Unheard", "a.unshared.weight", 1, 0, 0 },
        { "Unheard", "shared.weight", 0, 0, 0 },
        { "Unheard", "embed_tokens.12.weight", 0, 0, 0 },
        { "Unheard", "embed.12.x.weight", 1, 0, 0 },
        { "Unheard", "x.embeddings.dense.weight", 1, 0, 0 },
        { "Unheard", "x.my_embedding.weight", 0, 0, 0 },
        { "Unheard", "x.my_embedding.3.weight", 0, 0, 0 },
        { "Unheard", "x.patch_embedding.weight", 1, 0, 0 },
        { "Unheard", "x.linear_embeddings.weight", 1, 0, 0 },
        { "Unheard", "router.x.weight", 1, 0, 0 },
        { "Unheard", "x.router.weight", 0, 0, 0 },
        { "Unheard", "x.gate.weight", 0, 0, 0 },
        { "Unheard", "h.0.attn.c_attn.weight", 1, 0, 0 },
        { "ImageGPTModel", "h.0.attn.c_attn.weight", 1, 0, 1 },
        { "ImageGPTModel", "h.0.attn.q_proj.weight", 1, 0, 0 },
        { "DecisionTransformerModel", "encoder.h.0.mlp.c_fc.weight", 1, 0, 1 },
        { "OpenAIGPTForSequenceClassification", "h.0.mlp.c_proj.weight", 1, 0, 1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        berthi_architecture *a;
        model m;

        snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 4x4 %s\n",
                 cases[i].class_name, cases[i].name);
        m = read_model(text);
        a = model_architecture(context, &m, BERTHI_ERA_HF5);
        if (!CHECK_EQ(a->parameter_of[0]->is_linear, cases[i].is_linear)
            || !CHECK_EQ(a->parameter_of[0]->is_linear_kind, cases[i].is_kind)
            || !CHECK_EQ(a->parameter_of[0]->is_conv1d, cases[i].is_conv1d))
            T_NOTE("%s", text);
        berthi_architecture_destroy(a);
        model_fini(&m);
    }
}

/* torch's attention is told by its input weight, its output is no plain linear layer. */
static void
test_torch_attention(void)
{
    static const char *const inputs[] = { "a.in_proj_weight", "a.b.in_proj_weight",
                                          "in_proj_weight", "a.my_in_proj_weight" };

    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        char text[256];
        berthi_architecture *a;
        const berthi_parameter *output;
        model m;

        snprintf(text, sizeof text, "class Unheard\nconfig {}\nBF16 9x4 %s\n"
                 "BF16 4x4 a.out_proj.weight\n", inputs[i]);
        m = read_model(text);
        a = model_architecture(context, &m, BERTHI_ERA_HF5);
        output = a->parameter_of[1];
        if (!CHECK_EQ(output->is_linear, i != 0) || !CHECK_EQ(output->is_linear_kind, i == 0))
            T_NOTE("%s", text);
        berthi_architecture_destroy(a);
        model_fini(&m);
    }
}

/* What counts as the last parameter of a class that nobody describes. */
static void
test_guessed_last(void)
{
    static const struct {
        const char *class_name;
        const char *tensors;
        const char *last;
    } cases[] = {
        { "MistralForSequenceClassification",
          "BF16 4x4 model.layers.0.mlp.up_proj.weight\nBF16 4 model.norm.weight\n"
          "BF16 2x4 score.weight\n", "score.weight" },
        { "Unheard", "BF16 2x4 a.z.weight\nBF16 2x4 classifier.weight\n",
          "classifier.weight" },
        { "Unheard", "BF16 2 classifier.bias\nBF16 2x4 classifier.weight\n",
          "classifier.bias" },
        { "Unheard", "BF16 4x4 text_projection.weight\nBF16 4x4 visual_projection.weight\n",
          "text_projection.weight" },
        { "Unheard", "BF16 4x4 b.weight\nBF16 4x4 c.weight\n", "c.weight" },
        { "Unheard", "BF16 4 c.bias\nBF16 4x4 c.weight\n", "c.bias" },
        /* A layer: the norms, or the way back from what is not attention. */
        { "Unheard", "BF16 4x4 l.0.mlp.down_proj.weight\nBF16 4x4 l.0.self_attn.q.weight\n"
          "BF16 4x4 l.1.mlp.down_proj.weight\nBF16 4x4 l.1.self_attn.q.weight\n",
          "l.1.mlp.down_proj.weight" },
        { "Unheard", "BF16 4x4 l.0.mlp.fc2.weight\nBF16 4x4 l.0.self_attn.q.weight\n",
          "l.0.mlp.fc2.weight" },
        { "Unheard", "BF16 4x4 l.0.mlp.fc2.weight\nBF16 4 l.0.norm1.weight\n"
          "BF16 4x4 l.0.self_attn.q.weight\n", "" },
        { "Unheard", "BF16 4 l.0.x.LayerNorm.weight\nBF16 4x4 l.0.y.weight\n", "" },
        { "Unheard", "BF16 4x4 l.0.x.weight\nBF16 4x4 l.0.y.weight\n", "" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        berthi_architecture *a;
        model m;

        snprintf(text, sizeof text, "class %s\ntype mistral\nconfig {}\n%s",
                 cases[i].class_name, cases[i].tensors);
        if (i > 0)
            snprintf(text, sizeof text, "class %s\nconfig {}\n%s", cases[i].class_name,
                     cases[i].tensors);
        m = read_model(text);
        a = model_architecture(context, &m, BERTHI_ERA_HF5);
        if (!CHECK_STR(a->last_name, cases[i].last))
            T_NOTE("%s", text);
        berthi_architecture_destroy(a);
        model_fini(&m);
    }
}

/* One tensor of a class, and what the model calls it. */
static void
check_name(const char *class_name, const char *stored, berthi_era era, const char *name)
{
    char text[512];
    const berthi_parameter *p;
    berthi_architecture *a;
    model m;

    snprintf(text, sizeof text, "class %s\nconfig {}\nBF16 4x4 %s\n", class_name, stored);
    m = read_model(text);
    a = model_architecture(context, &m, era);
    p = a->parameter_of[0];
    if (!CHECK_EQ(p->name_length, strlen(name))
        || !CHECK_MEM(p->name, name, strlen(name)))
        T_NOTE("%s of %s is %.*s", stored, class_name, (int)p->name_length, p->name);
    berthi_architecture_destroy(a);
    model_fini(&m);
}

/* What descriptions tell too coarsely, and names that the library reads but never saves. */
static void
test_corrections(void)
{
    static const char *const cases[][3] = {
        { "DeepseekOcr2ForConditionalGeneration", "model.sam_model.neck.0.weight",
          "model.vision_tower.sam_encoder.neck.conv1.weight" },
        { "DeepseekV4ForCausalLM", "model.norm.weight", "model.norm.weight" },
        { "DeepseekV4ForCausalLM", "model.layers.0.attn.norm.weight",
          "model.layers.0.self_attn.kv_norm.weight" },
        { "Ernie4_5_VLMoeForConditionalGeneration",
          "model.resampler_model.spatial_linear.0.weight",
          "model.resampler_model.spatial_linear.fc1.weight" },
        { "Ernie4_5_VLMoeForConditionalGeneration",
          "model.resampler_model.temporal_linear.2.weight",
          "model.resampler_model.temporal_linear.fc2.weight" },
        { "Ernie4_5_VLMoeForConditionalGeneration",
          "model.resampler_model.temporal_linear.3.weight",
          "model.resampler_model.temporal_linear.ln.weight" },
        { "HunYuanVLForConditionalGeneration", "vit.perceive.proj.0.weight",
          "model.vision_tower.patch_merger.proj_conv.weight" },
        { "HunYuanVLForConditionalGeneration", "vit.perceive.proj.2.weight",
          "model.vision_tower.patch_merger.proj_out.weight" },
        { "HunYuanVLForConditionalGeneration", "model.vision_tower.layers.0.mlp.fc1.weight",
          "model.vision_tower.layers.0.mlp.fc1.weight" },
        { "Kimi_K25ForConditionalGeneration", "mm_projector.proj.0.weight",
          "model.mm_projector.in_proj.weight" },
        { "Kimi_K25ForConditionalGeneration", "mm_projector.proj.2.weight",
          "model.mm_projector.out_proj.weight" },
        { "Kimi_K25ForConditionalGeneration",
          "language_model.model.layers.3.self_attn.o_proj.weight",
          "model.language_model.layers.3.self_attn.o_proj.weight" },
        { "Kimi_K25ForConditionalGeneration",
          "language_model.model.layers.3.mlp.experts.7.up_proj.weight",
          "model.language_model.layers.3.mlp.experts.gate_up_proj" },
        { "NemotronH_Omni_Reasoning_V3", "mlp1.0.weight",
          "multi_modal_projector.layer_norm.weight" },
        { "NemotronH_Omni_Reasoning_V3", "mlp1.3.weight",
          "multi_modal_projector.linear_2.weight" },
        { "UnlimitedOcrForConditionalGeneration", "model.sam_model.neck.1.weight",
          "model.vision_tower.sam_encoder.neck.layer_norm1.weight" },
        { "UnlimitedOcrForConditionalGeneration", "model.sam_model.neck.2.weight",
          "model.vision_tower.sam_encoder.neck.conv2.weight" },
        { "UnlimitedOcrForConditionalGeneration", "model.sam_model.neck.3.weight",
          "model.vision_tower.sam_encoder.neck.layer_norm2.weight" },
        { "QianfanOCRForConditionalGeneration", "mlp1.1.weight",
          "model.multi_modal_projector.linear_1.weight" },
        { "QianfanOCRForConditionalGeneration",
          "language_model.model.layers.2.mlp.up_proj.weight",
          "model.language_model.layers.2.mlp.up_proj.weight" },
        { "InklingForConditionalGeneration", "model.llm.layers.0.mlp.w2_md.weight",
          "model.language_model.layers.0.mlp.down_proj.weight" },
        { "InklingForConditionalGeneration", "model.llm.layers.0.mlp.w13_dn.weight",
          "model.language_model.layers.0.mlp.gate_proj.weight" },
        { "MiniMaxM3SparseForConditionalGeneration",
          "language_model.model.layers.0.mlp.down_proj.weight",
          "model.language_model.layers.0.mlp.down_proj.weight" },
        { "MiniMaxM3SparseForConditionalGeneration",
          "language_model.model.layers.0.mlp.up_proj.weight",
          "model.language_model.layers.0.mlp.gate_up_proj.weight" },
        { "LlavaForConditionalGeneration",
          "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
          "model.vision_tower.encoder.layers.0.mlp.fc1.weight" },
        { "Gemma3ForConditionalGeneration",
          "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
          "model.vision_tower.encoder.layers.0.mlp.fc1.weight" },
        { "Lfm2VlForConditionalGeneration",
          "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
          "model.vision_tower.encoder.layers.0.mlp.fc1.weight" },
        { "DeepseekVLForConditionalGeneration",
          "model.vision_model.vision_model.encoder.layers.0.mlp.fc1.weight",
          "model.vision_model.encoder.layers.0.mlp.fc1.weight" },
        { "VideoLlavaForConditionalGeneration",
          "image_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
          "model.image_tower.encoder.layers.0.mlp.fc1.weight" },
        { "Qwen2_5_VLForConditionalGeneration",
          "model.language_model.layers.0.mlp.up_proj.weight",
          "model.language_model.layers.0.mlp.up_proj.weight" },
        { "Qwen2_5_VLForConditionalGeneration", "model.visual.blocks.0.attn.proj.weight",
          "model.visual.blocks.0.attn.proj.weight" },
        { "Qwen2_5_VLForConditionalGeneration", "model.layers.0.mlp.up_proj.weight",
          "model.language_model.layers.0.mlp.up_proj.weight" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_name(cases[i][0], cases[i][1], BERTHI_ERA_HF5, cases[i][2]);
    /* 4.x has that module itself. */
    check_name("LlavaForConditionalGeneration",
               "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", BERTHI_ERA_HF4,
               "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight");
}

/* Towers whose layers have moved, where they are not what the class has by default. */
static void
test_tower_names(void)
{
    static const struct {
        const char *class_name;
        const char *config;
        const char *stored;
        const char *name;
    } cases[] = {
        { "LlavaForConditionalGeneration", "{\"vision_config\": {\"model_type\": \"vit\"}}",
          "vision_tower.encoder.layer.0.attention.attention.query.weight",
          "model.vision_tower.layers.0.attention.q_proj.weight" },
        { "LlavaForConditionalGeneration", "{\"vision_config\": {\"model_type\": \"vit\"}}",
          "vision_tower.encoder.layer.12.layernorm_after.weight",
          "model.vision_tower.layers.12.layernorm_after.weight" },
        { "VisionEncoderDecoderModel", "{\"encoder\": {\"model_type\": \"swin\"}}",
          "encoder.encoder.layers.0.blocks.1.attention.self.key.weight",
          "encoder.encoder.layers.0.blocks.1.attention.k_proj.weight" },
        { "VisionEncoderDecoderModel", "{\"encoder\": {\"model_type\": \"donut-swin\"}}",
          "encoder.encoder.layers.0.blocks.1.output.dense.weight",
          "encoder.encoder.layers.0.blocks.1.output.dense.weight" },
        { "VisionEncoderDecoderModel", "{\"encoder\": {\"model_type\": \"vit\"}}",
          "encoder.encoder.layer.1.output.dense.weight", "encoder.layers.1.mlp.fc2.weight" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[256];
        model m = read_model(fixture_format("class %s\nconfig %s\nBF16 4x4 %s\n",
                                            cases[i].class_name, cases[i].config,
                                            cases[i].stored));
        berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);

        CHECK_STR(model_name(a, &m, cases[i].stored, name), cases[i].name);
        berthi_architecture_destroy(a);
        model_fini(&m);
    }
}

/* Three modules that were described as one: each has its tensor, and is what it is. */
static void
test_one_of_three(void)
{
    static const char *const names[] = { "mlp1.0.weight", "mlp1.1.weight", "mlp1.3.weight" };
    model m = read_model("class QianfanOCRForConditionalGeneration\nconfig {}\n"
                         "BF16 4 mlp1.0.weight\nBF16 4x4 mlp1.1.weight\n"
                         "BF16 4x4 mlp1.3.weight\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const berthi_parameter *const p = a->parameter_of[model_position(&m, names[i])];

        CHECK_EQ(p->piece_count, 1);
        CHECK_EQ(p->is_linear, i > 0);
    }
    berthi_architecture_destroy(a);
    model_fini(&m);
}

static const berthi_parameter *
find_parameter(const berthi_architecture *a, const char *name)
{
    return berthi_architecture_find(a, name, strlen(name));
}

/* What 5.x does not load as it is stored; 4.x has the modules of the checkpoint. */
static void
test_remade(void)
{
    static const struct {
        const char *class_name;
        const char *name;
        const char *module; /* the first one; NULL: it is loaded as it is stored */
        bool is_alone;
    } cases[] = {
        { "GteForMaskedLM", "encoder.layer.0.attention.qkv_proj.weight", "q_proj", false },
        { "GteForMaskedLM", "encoder.layer.0.mlp.up_gate_proj.weight", "gate_proj", false },
        { "GteForMaskedLM", "encoder.layer.0.my_attention.qkv_proj.weight", NULL, false },
        { "UnlimitedOcrForConditionalGeneration", "model.projector.layers.weight", NULL, true },
        { "UnlimitedOcrForConditionalGeneration", "model.layers.0.mlp.up_proj.weight", NULL,
          false },
        { "DeepseekV4ForCausalLM", "head.weight", NULL, true },
        { "LlamaForCausalLM", "head.weight", NULL, false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
            const bool is_old = era == BERTHI_ERA_HF4;
            const char *const module = is_old ? NULL : cases[i].module;
            model m = read_model(fixture_format("class %s\nconfig {}\nBF16 4x4 %s\n",
                                                cases[i].class_name, cases[i].name));
            berthi_architecture *const a =
                model_architecture(context, &m, (berthi_era)era);
            const berthi_parameter *const p = a->parameter_of[0];

            CHECK_EQ(p->remade != NULL, module != NULL);
            if (p->remade != NULL && module != NULL)
                CHECK_STR(p->remade[0], module);
            CHECK_EQ(p->is_alone, cases[i].is_alone && !is_old);
            berthi_architecture_destroy(a);
            model_fini(&m);
        }
}

/* Marian makes its positions by itself; older files have them all the same. */
static void
test_unstored_parameters(void)
{
    static const char stored[] = "model.encoder.embed_positions.weight";
    static const char unstored[] = "model.decoder.embed_positions.weight";
    model m = read_model("class MarianMTModel\ntype marian\n"
                         "config {\"max_position_embeddings\": 6, \"d_model\": 4}\n"
                         "BF16 5x4 model.encoder.embed_positions.weight\n"
                         "BF16 9x4 model.shared.weight\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        berthi_architecture *const a = model_architecture(context, &m, (berthi_era)era);
        const berthi_parameter *const there = find_parameter(a, stored);
        const berthi_parameter *const made = find_parameter(a, unstored);

        if (CHECK(there != NULL && made != NULL)) {
            CHECK_EQ(there->elements, 20);
            CHECK_EQ(there->piece_count, 1);
            CHECK_EQ(made->elements, 24);
            CHECK_EQ(made->first_piece, BERTHI_NO_POSITION);
            CHECK(!there->is_buffer && !made->is_buffer && !made->is_linear);
        }
        CHECK(!a->is_approximate);
        berthi_architecture_destroy(a);
    }
    model_fini(&m);
}

/* The norm of a step of time is as wide as the state, whose width follows from others. */
static void
test_falcon_mamba(void)
{
    model m = read_model("class FalconMambaForCausalLM\ntype falcon_mamba\n"
                         "config {\"hidden_size\": 8, \"expand\": 3}\n"
                         "BF16 24 backbone.layers.0.mixer.D\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        berthi_architecture *const a = model_architecture(context, &m, (berthi_era)era);
        const berthi_parameter *const norm =
            find_parameter(a, era == BERTHI_ERA_HF4
                                  ? "backbone.layers.0.mixer.dt_rms"
                                  : "backbone.layers.0.mixer.dt_layernorm.weight");

        if (CHECK(norm != NULL))
            CHECK_EQ(norm->elements, 24);
        berthi_architecture_destroy(a);
    }
    model_fini(&m);
}

/* OPT inside of another model has what it has alone, in its order. */
static void
test_inner_opt(void)
{
    static const char *const classes[] = { "Blip2ForConditionalGeneration",
                                           "InstructBlipForConditionalGeneration",
                                           "InstructBlipVideoForConditionalGeneration" };
    static const char decoder[] = "language_model.model.decoder.layers";

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
            char found[256] = "";
            char text[1024];
            const berthi_module *module;
            berthi_architecture *a;
            model m;

            snprintf(text, sizeof text,
                     "class %s\nconfig {\"text_config\": {\"model_type\": \"opt\"}}\n"
                     "BF16 4x4 %s.0.fc1.weight\n"
                     "BF16 4x4 language_model.model.decoder.embed_tokens.weight\n"
                     "BF16 4 language_model.model.decoder.final_layer_norm.weight\n"
                     "BF16 4x4 language_model.model.decoder.project_in.weight\n"
                     "BF16 4x4 language_model.model.decoder.project_out.weight\n",
                     classes[i], decoder);
            m = read_model(text);
            a = model_architecture(context, &m, (berthi_era)era);
            module = a->parameter_of[0]->module;
            while (module->parent != NULL && module->kind != BERTHI_MODULE_LIST)
                module = module->parent;
            T_REQUIRE(CHECK(module->parent != NULL));
            for (module = module->parent->children; module != NULL; module = module->next)
                snprintf(found + strlen(found), sizeof found - strlen(found), " %.*s",
                         (int)module->name_length, module->name);
            CHECK_STR(found, " embed_tokens project_out project_in final_layer_norm layers");
            berthi_architecture_destroy(a);
            model_fini(&m);
        }
}

/* ------------------------------------------------------ descriptions of our own */

/* A description of class X, and a model of it. */
static berth_status
lay_out(const char *description, const char *lines, model *m, berthi_catalogue **catalogue,
        berthi_architecture **out, berth_error *error)
{
    char text[4096];
    berthi_architecture_options options;

    snprintf(text, sizeof text, "{\"architectures\": {\"X\": %s}}", description);
    CHECK_EQ(berthi_catalogue_create(context, text, strlen(text), "x.json", catalogue, error),
             BERTH_OK);
    *m = read_model(lines);
    snprintf(m->class_name, sizeof m->class_name, "X");
    options = model_options(m, BERTHI_ERA_HF5);
    options.catalogue = *catalogue;
    return berthi_architecture_create(context, &options, &m->source, out, error);
}

static void
end_layout(model *m, berthi_catalogue *catalogue, berthi_architecture *a)
{
    berthi_architecture_destroy(a);
    berthi_catalogue_destroy(context, catalogue);
    model_fini(m);
}

/* Elements of the buffer "r.t" whose size is the expression. */
static uint64_t
buffer_size(const char *expression, const char *defaults, const char *config)
{
    char description[1024];
    char lines[1024];
    berthi_catalogue *catalogue;
    const berthi_parameter *t = NULL;
    berthi_architecture *a;
    uint64_t size = UINT64_MAX;
    berth_error error;
    model m;

    snprintf(description, sizeof description,
             "{\"base\": \"\", \"no_split\": [], \"tree\": [{\"n\": \"r\", \"k\": \"np\", "
             "\"b\": [[\"t\", \"float32\", [7], false]]}], \"dims\": {\"r.t\": [\"%s\"]}, "
             "\"defaults\": %s}", expression, defaults);
    snprintf(lines, sizeof lines, "config %s\n", config);
    if (CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_OK))
        t = berthi_architecture_find(a, "r.t", 3);
    if (CHECK(t != NULL))
        size = t->elements;
    end_layout(&m, catalogue, a);
    return size;
}

/* The paths of the tree in registration order. */
static void
check_paths(const char *description, const char *lines, const char *paths)
{
    char found[256] = "";
    size_t length = 0;
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    if (CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_OK))
        for (const berthi_module *at = a->root->children; at != NULL;
             at = berthi_module_after(at))
            length += (size_t)snprintf(found + length, sizeof found - length, " %.*s",
                                       (int)at->path_length, at->path);
    CHECK_STR(found, paths);
    end_layout(&m, catalogue, a);
}

/* An order tells where optional children are; it need not have all the others. */
static void
test_order_with_gaps(void)
{
    static const char lines[] = "config {}\nF32 4 r.a.weight\nF32 4 r.b.weight\n"
                                "F32 4 r.c.weight\nF32 4 r.d.weight\nF32 4 r.o.weight\n";
    static const struct {
        const char *order;
        const char *paths;
    } cases[] = {
        { "\"a\", \"o\", \"b\", \"c\", \"d\"", " r r.a r.o r.b r.c r.d" },
        { "\"a\", \"o\", \"c\", \"d\"", " r r.a r.b r.o r.c r.d" },
        { "\"o\", \"d\"", " r r.a r.b r.c r.o r.d" },
        { "\"c\", \"o\"", " r r.a r.b r.c r.d r.o" },
        { "\"o\"", " r r.a r.b r.c r.d r.o" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char description[512];

        snprintf(description, sizeof description,
                 "{\"tree\": [{\"n\": \"r\", \"ch\": [\"a\", \"b\", \"c\", \"d\"]}], "
                 "\"optional\": {\"r\": {\"order\": [%s], \"only_sometimes\": [\"o\"]}}}",
                 cases[i].order);
        check_paths(description, lines, cases[i].paths);
    }
}

/* A module of modules without tensors is there, one whose tensors are missing is not. */
static void
test_bare_modules(void)
{
    check_paths("{\"tree\": [{\"n\": \"r\", \"ch\": [{\"n\": \"pool\", \"k\": \"0\"}, "
                "{\"n\": \"s\", \"ch\": [{\"n\": \"rot\", \"k\": \"np\"}]}]}, "
                "{\"n\": \"w\", \"ch\": [\"a\", {\"n\": \"act\", \"k\": \"0\"}]}, "
                "{\"n\": \"p\", \"p\": [\"t\"], \"ch\": [{\"n\": \"act\", \"k\": \"0\"}]}, "
                "{\"n\": \"e\", \"ch\": []}, \"h\"]}",
                "config {}\nF32 4 h.weight\n", " r r.pool r.s r.s.rot h");
}

/* Elements of a list are counted by whole numbers, of parameters that are elements, too. */
static void
test_counted_elements(void)
{
    static const char list[] =
        "{\"tree\": [{\"n\": \"a\", \"list\": [\"A\"], \"len\": \"n\"}]}";

    check_paths(list, "config {}\nF32 4 a.1.w\nF32 4 a.7x.w\n", " a a.0 a.1 a.7x");
    check_paths(list, "config {}\nF32 4 a.0.w\nF32 4 a.2\n", " a a.0 a.1 a.2");
    check_paths(list, "config {\"n\": 3}\nF32 4 a.0.w\n", " a a.0");
}

static void
test_expressions(void)
{
    static const struct {
        const char *expression;
        const char *defaults;
        const char *config;
        uint64_t size; /* 7: not known */
    } cases[] = {
        { "a", "{}", "{\"a\": 5}", 5 },
        { "a", "{}", "{}", 7 },
        { "a", "{}", "{\"a\": null}", 7 },
        { "a", "{\"a\": 9}", "{}", 9 },
        { "a", "{\"a\": 9}", "{\"a\": 5}", 5 },
        { "a*0.5", "{}", "{\"a\": 5}", 3 },
        { "a/b", "{}", "{\"a\": 9, \"b\": 2}", 5 },
        { "a/b*4", "{}", "{\"a\": 6, \"b\": 3}", 8 },
        { "2*3", "{}", "{}", 6 },
        { "a+2", "{}", "{\"a\": 5}", 7 },
        { "a+12", "{}", "{\"a\": 5}", 17 },
        { "a+10", "{}", "{\"a\": 5}", 15 },
        { "a-1", "{}", "{\"a\": 5}", 4 },
        { "a-9", "{}", "{\"a\": 5}", 7 },
        { "a/b", "{}", "{\"a\": 6, \"b\": 0}", 7 },
        { "a*b", "{\"b\": \"c*2\", \"c\": 3}", "{\"a\": 2}", 12 },
        { "a", "{\"a\": \"b\", \"b\": \"a\"}", "{}", 7 },
        { "a", "{\"a\": \"a*a\"}", "{}", 7 },
        { "a", "{}", "{\"a\": \"b\", \"b\": 4}", 4 },
        { "a", "{}", "{\"a\": true}", 1 },
        { "a", "{}", "{\"a\": [1]}", 7 },
        { "a", "{}", "{\"a\": -1}", 7 },
        { "a", "{}", "{\"a\": NaN}", 7 },
        { "a", "{}", "{\"a\": 1e300}", 7 },
        { "a", "{}", "{\"a\": 9007199254740992}", UINT64_C(9007199254740992) },
        { "a*2", "{}", "{\"a\": 9007199254740992}", 7 },
        { "a", "{}", "{\"a\": 0}", 0 },
        { "s.a", "{}", "{\"s\": {\"a\": 5}}", 5 },
        { "s.a", "{}", "{\"a\": 5}", 7 },
        { "s.a", "{\"s.a\": 3}", "{\"s\": 1}", 3 },
        { "text_config.a", "{}", "{\"a\": 5}", 5 },
        { "text_config.a", "{}", "{\"a\": 5, \"text_config\": {}}", 7 },
        { "x.text_config.a", "{}", "{\"x\": {\"a\": 5}}", 5 },
        { "a", "{}", "{\"rope_parameters\": {\"a\": 5}, \"rope_scaling\": {\"a\": 4}}", 5 },
        { "a", "{}", "{\"rope_scaling\": {\"a\": 4}}", 4 },
        { "partial_rotary_factor*8", "{}", "{\"rotary_pct\": 0.25}", 2 },
        { "partial_rotary_factor*8", "{}",
          "{\"rotary_pct\": 0.25, \"partial_rotary_factor\": 0.5}", 4 },
        { "", "{}", "{}", 7 },
        { "*", "{}", "{}", 7 },
        { "a*", "{}", "{\"a\": 5}", 7 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!CHECK_EQ(buffer_size(cases[i].expression, cases[i].defaults, cases[i].config),
                      cases[i].size))
            T_NOTE("%s %s %s", cases[i].expression, cases[i].defaults, cases[i].config);
}

/* ----------------------------------------------------------------------- fused */

/* Each parameter and, behind a colon, the tensors that it is made of. */
static void
check_fused(const char *description, const char *tensors, const char *expected)
{
    char lines[2048] = "config {}\n";
    char names[64][64];
    char found[2048] = "";
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    size_t used = strlen(lines);
    uint32_t count = 0;
    int length;
    model m;

    for (; sscanf(tensors, "%63s%n", names[count], &length) == 1; tensors += length)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "BF16 2x4 %s\n",
                                 names[count++]);
    CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_OK);
    T_REQUIRE(a != NULL);
    used = 0;
    for (uint32_t i = 0; i < a->parameter_count; i++) {
        const berthi_parameter *const p = a->parameters[i];

        used += (size_t)snprintf(found + used, sizeof found - used, "%s%.*s:",
                                 i > 0 ? " " : "", (int)p->name_length, p->name);
        for (uint32_t k = p->first_piece; k != BERTHI_NO_POSITION; k = a->next_piece[k]) {
            CHECK(a->parameter_of[k] == p);
            used += (size_t)snprintf(found + used, sizeof found - used, "%s%s",
                                     k != p->first_piece ? "," : "", names[k]);
        }
        CHECK_EQ(p->elements, 8 * p->piece_count);
    }
    CHECK_STR(found, expected);
    end_layout(&m, catalogue, a);
}

/* Tensors whose names differ in an index that the model drops are one parameter. */
static void
test_fused(void)
{
    static const char two[] = "{\"names\": [[\"e.*.w\", \"e.w\"], [\"e.*.u\", \"e.w\"], "
                              "[\"e.*.v\", \"e.v\"]]}";

    check_fused(two, "e.0.u e.0.v e.0.w e.1.u e.1.v e.1.w e.10.v",
                "e.v:e.0.v,e.1.v,e.10.v e.w:e.0.u,e.0.w,e.1.u,e.1.w");
    /* No index, more than one, what stands beside it. */
    check_fused(two, "e..w e.0.w e.1.w e.1.w.b e.1.0.w e.x.w e.1x.w f.1.w e.2.w",
                "e..w:e..w e.1.0.w:e.1.0.w e.1x.w:e.1x.w e.w:e.0.w,e.1.w,e.2.w "
                "e.w.b:e.1.w.b e.x.w:e.x.w f.1.w:f.1.w");
    /* Indices that stay. */
    check_fused("{\"names\": [[\"l.*.e.*.w\", \"m.*.w\"]]}",
                "l.0.e.0.w l.0.e.1.w l.1.e.0.w l.1.e.1.w l.10.e.0.w",
                "m.0.w:l.0.e.0.w,l.0.e.1.w m.1.w:l.1.e.0.w,l.1.e.1.w m.10.w:l.10.e.0.w");
    check_fused("{\"names\": [[\"l.*.w\", \"m.*.w\"]]}", "l.0.w l.1.w",
                "m.0.w:l.0.w m.1.w:l.1.w");
    /* Parts of a component are no indices. */
    check_fused("{\"names\": [[\"l.*.e_*.w\", \"l.w\"]]}", "l.0.e_0.w l.0.e_1.w l.1.e_0.w",
                "l.w:l.0.e_0.w,l.0.e_1.w,l.1.e_0.w");
    check_fused("{\"names\": [[\"l.*.e_*\", \"m.e_*\"]]}", "l.0.e_0 l.0.e_1 l.1.e_0",
                "m.e_*:l.0.e_0,l.0.e_1,l.1.e_0");
    /* One index is called otherwise. */
    check_fused("{\"names\": [[\"e.1.w\", \"z\"], [\"e.*.w\", \"y\"]]}",
                "e.0.w e.1.w e.2.w", "y:e.0.w,e.2.w z:e.1.w");
    /* Names without the prefix of the whole model. */
    check_fused("{\"base\": \"m\", \"tree\": [{\"n\": \"m\", \"ch\": [\"e\"]}], "
                "\"names\": [[\"m.e.*.w\", \"m.e.w\"]]}",
                "e.0.w e.1.w e.12.w", "m.e.w:e.0.w,e.1.w,e.12.w");
}

/* More kinds of tensors than are kept in mind, and the same ones again. */
static void
test_fused_kinds(void)
{
    check_fused("{\"names\": [[\"e.*.a\", \"a\"], [\"e.*.b\", \"b\"], [\"e.*.c\", \"c\"], "
                "[\"e.*.d\", \"d\"], [\"e.*.e\", \"e\"], [\"e.*.f\", \"f\"], [\"e.*.g\", "
                "\"g\"], [\"e.*.h\", \"h\"], [\"e.*.i\", \"a\"], [\"e.*.j\", \"j\"]]}",
                "e.0.a e.0.b e.0.c e.0.d e.0.e e.0.f e.0.g e.0.h e.0.i e.0.j e.1.a e.1.b "
                "e.1.c e.1.d e.1.e e.1.f e.1.g e.1.h e.1.i e.1.j e.2.a",
                "a:e.0.a,e.0.i,e.1.a,e.1.i,e.2.a b:e.0.b,e.1.b c:e.0.c,e.1.c d:e.0.d,e.1.d "
                "e:e.0.e,e.1.e f:e.0.f,e.1.f g:e.0.g,e.1.g h:e.0.h,e.1.h j:e.0.j,e.1.j");
}

static void
check_refused(const char *description, const char *lines, berth_reason reason,
              const char *why)
{
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_EFORMAT);
    CHECK(a == NULL);
    CHECK_EQ(error.reason, reason);
    if (!CHECK_CONTAINS(error.message, why))
        T_NOTE("%s", description);
    end_layout(&m, catalogue, a);
}

static void
test_bad_descriptions(void)
{
    static const struct {
        const char *description;
        const char *why;
    } cases[] = {
        { "{\"tree\": [{\"n\": \"a\", \"k\": \"np\", \"b\": [[\"t\"]]}]}", "a buffer is not" },
        { "{\"buffers\": [[\"t\", \"float32\", [1], 0]]}", "a buffer is not" },
        { "{\"buffers\": [[\"t\", \"float33\", [1], false]]}", "of no dtype" },
        { "{\"buffers\": [[\"t\", \"float32\", [-1], false]]}", "a buffer's shape" },
        { "{\"tree\": [{\"n\": \"a\", \"list\": [], \"len\": 1}]}", "without a class" },
        { "{\"tree\": [{\"n\": \"a\", \"list\": [1], \"len\": 1}]}", "without a class" },
        { "{\"tied\": {\"a\": 1}}", "no text" },
        { "{\"base\": \"a\", \"tree\": [\"a\"], \"names\": [[\"a\"]]}", "no pair" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].description, "config {}\nBF16 4 b.c\n",
                      BERTH_REASON_ARCHITECTURES_JSON, cases[i].why);
}

static void
test_impossible_models(void)
{
    static const char list[] =
        "{\"tree\": [{\"n\": \"a\", \"list\": [\"A\"], \"len\": \"n\"}]}";
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    CHECK_EQ(lay_out(list, "config {\"n\": 16384}\n", &m, &catalogue, &a, &error), BERTH_OK);
    end_layout(&m, catalogue, a);
    check_refused(list, "config {\"n\": 16385}\n", BERTH_REASON_ARCHITECTURE,
                  "more elements than a list");
    check_refused(list, "config {\"n\": 18446744073709551615}\n", BERTH_REASON_ARCHITECTURE,
                  "more elements than a list");
    check_refused(list, "config {}\nBF16 4 a.16384.x\n", BERTH_REASON_ARCHITECTURE,
                  "more elements than a list");
    check_refused(list, "config {}\nBF16 4 a.99999999999999999999999.x\n",
                  BERTH_REASON_ARCHITECTURE, "more elements than a list");
    CHECK_EQ(lay_out(list, "config {}\nBF16 4 a.16383.x\n", &m, &catalogue, &a, &error),
             BERTH_OK);
    end_layout(&m, catalogue, a);
    check_refused("{\"buffers\": [[\"t\", \"int8\", [9007199254740992, 4096], false]]}",
                  "config {}\n", BERTH_REASON_ARCHITECTURE, "impossible size");
    /* A number that is none is no length. */
    CHECK_EQ(lay_out(list, "config {\"n\": \"x\"}\n", &m, &catalogue, &a, &error), BERTH_OK);
    CHECK(a->root->children != NULL && a->root->children->children == NULL);
    end_layout(&m, catalogue, a);
}

/* A sub-model that config.json says holds one of its type, and so on. */
static void
test_endless_model(void)
{
    static const char text[] =
        "{\"architectures\": {\"X\": {\"model_types\": [\"t\"], \"base\": \"a\", \"no_split\": "
        "[], \"tree\": [{\"n\": \"a\", \"sub\": \"s\", \"sub_type\": \"other\", \"ch\": "
        "[{\"n\": \"a\", \"sub\": \"s\", \"sub_type\": \"other\", \"ch\": [\"b\"]}]}]}}}";
    char lines[4096] = "class X\nconfig ";
    berthi_architecture_options options;
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    for (int i = 0; i < 80; i++)
        strcat(lines, "{\"model_type\": \"t\", \"s\": ");
    strcat(lines, "{}");
    for (int i = 0; i < 80; i++)
        strcat(lines, "}");
    strcat(lines, "\nBF16 4 a");
    for (int i = 0; i < 80; i++)
        strcat(lines, ".a");
    strcat(lines, ".b\n");
    CHECK_EQ(berthi_catalogue_create(context, text, strlen(text), "x", &catalogue, &error),
             BERTH_OK);
    m = read_model(lines);
    options = model_options(&m, BERTHI_ERA_HF5);
    options.catalogue = catalogue;
    CHECK_EQ(berthi_architecture_create(context, &options, &m.source, &a, &error),
             BERTH_EFORMAT);
    CHECK_CONTAINS(error.message, "without end");
    CHECK_STR(error.file, "config.json");
    end_layout(&m, catalogue, a);
}

/* ------------------------------------------------------- sub-models of other types */

/* A class with a tower and a base model of text. */
static const char with_base[] =
    "{\"base\": \"m\", \"no_split\": [\"AL\"], \"tie_default\": false, \"tie_from\": \"t\", "
    "\"tied\": {\"h.weight\": \"m.t.e.weight\", \"m.t.x.weight\": \"m.t.e.weight\"}, "
    "\"head\": \"h\", \"last\": [\"h.weight\", \"m.t.z.weight\"], \"fp32\": [\"u\"], "
    "\"names\": [[\"t.b\", \"m.t\"], [\"v\", \"m.v\"], [\"m.t.e.old\", \"m.t.e.new\"]], "
    "\"not_linear\": [\"m.t.e.weight\", \"m.t.l.*.x.weight\"], \"tree\": [{\"n\": \"m\", \"ch\": "
    "[{\"n\": \"v\", \"sub\": \"v\", \"sub_type\": \"va\", \"ch\": [\"a\"]}, "
    "{\"n\": \"t\", \"sub\": \"t\", \"sub_type\": \"ta\", \"ch\": [\"e\", {\"n\": \"l\", "
    "\"list\": [\"AL\"], \"len\": \"t.n\"}, \"z\"]}]}, \"h\"]}";

/* One that has a model of text with its head. */
static const char with_head[] =
    "{\"base\": \"\", \"no_split\": [], \"head\": \"d.h\", \"last\": [\"d.h.weight\", null], "
    "\"tree\": [{\"n\": \"d\", \"sub\": \"t\", \"sub_type\": \"ta\", \"ch\": "
    "[{\"n\": \"a\", \"ch\": [\"e\"]}, \"h\"]}]}";

/* Classes of text by type, and a tower. */
static const char others[] =
    "\"A\": {\"model_types\": [\"ta\"], \"group\": \"causal-lm\", \"base\": \"a\", "
    "\"no_split\": [], \"tree\": [{\"n\": \"a\", \"ch\": [\"e\"]}, \"h\"]}, "

    "\"B\": {\"model_types\": [\"tb\"], \"group\": \"causal-lm\", \"base\": \"b\", "
    "\"no_split\": [\"BL\"], \"tie_default\": true, \"fp32\": [\"g\", \"w\"], "
    "\"tied\": {\"hb.weight\": \"b.e.weight\", \"b.y.weight\": \"b.e.weight\"}, "
    "\"head\": \"hb\", \"last\": [\"hb.weight\", \"b.g.weight\"], "
    "\"names\": [[\"b.l.*.x.*.w\", \"b.l.*.x.w\"], [\"b.e.older\", \"b.e.newer\"]], "
    "\"not_linear\": [\"b.e.weight\", \"b.l.*.gate.weight\"], "
    "\"dtypes\": {\"b.g.weight\": \"float32\"}, \"dims\": {\"b.r.f\": [\"d*2\"]}, "
    "\"defaults\": {\"d\": \"n+1\"}, \"unit_order\": [\"q.weight\", \"gate.weight\"], "
    "\"optional\": {\"b\": {\"order\": [\"e\", \"o\", \"g\", \"l\", \"r\"], "
    "\"only_sometimes\": [\"o\"]}}, "
    "\"tree\": [{\"n\": \"b\", \"ch\": [\"e\", \"g\", {\"n\": \"l\", \"list\": [\"BL\"], "
    "\"len\": \"n\"}, {\"n\": \"r\", \"k\": \"np\", \"b\": [[\"f\", \"float32\", [7], "
    "false]]}]}, \"hb\"]}, "

    "\"C\": {\"model_types\": [\"tc\"], \"group\": \"encoder\", \"base\": \"c\", "
    "\"no_split\": [], \"not_linear\": [\"e.weight\"], \"tree\": [\"z\", \"e\"]}}, "

    "\"towers\": {\"vb\": {\"class\": \"V\", \"no_split\": [\"VL\"], \"params\": [\"p\"], "
    "\"buffers\": [[\"s\", \"int64\", [3], false]], \"not_linear\": [\"k.weight\"], "
    "\"optional\": {\"\": {\"order\": [\"k\", \"o\", \"d\"], \"only_sometimes\": [\"o\"]}}, "
    "\"tree\": [\"k\", \"d\"]}";

/* A model of the class with these sub-models. */
static void
lay_out_others(const char *description, const char *lines, berthi_era era, model *m,
               berthi_catalogue **catalogue, berthi_architecture **out)
{
    char text[8192];
    berthi_architecture_options options;
    berth_error error;

    *out = NULL;
    snprintf(text, sizeof text, "{\"architectures\": {\"X\": %s, %s}}", description, others);
    T_REQUIRE(CHECK_EQ(berthi_catalogue_create(context, text, strlen(text), "x.json",
                                               catalogue, &error), BERTH_OK));
    *m = read_model(lines);
    options = model_options(m, era);
    options.class_name = "X";
    options.catalogue = *catalogue;
    CHECK_EQ(berthi_architecture_create(context, &options, &m->source, out, &error),
             BERTH_OK);
    T_REQUIRE(*out != NULL);
    check_whole(*out, m);
}

/* The paths of modules in registration order, those inside of blocks too. */
static void
check_order(const berthi_architecture *a, const char *paths)
{
    char found[512] = "";
    size_t length = 0;

    for (const berthi_module *at = a->root->children; at != NULL; at = berthi_module_after(at))
        length += (size_t)snprintf(found + length, sizeof found - length, " %.*s",
                                   (int)at->path_length, at->path);
    CHECK_STR(found, paths);
}

static bool
has_text(berthi_words words, const char *text)
{
    while (*words != NULL && strcmp(*words, text) != 0)
        words++;
    return *words != NULL;
}

/* All that the descriptions of the other types say holds where these stand. */
static void
test_other_types(void)
{
    static const char lines[] =
        "config {\"n\": 9, \"t\": {\"model_type\": \"tb\", \"n\": 2}, "
        "\"v\": {\"model_type\": \"vb\"}}\n"
        "BF16 4x4 h.weight\nBF16 4x4 t.b.e.weight\nBF16 4 t.b.e.older\n"
        "BF16 4 m.t.e.old\nBF16 4 t.b.g.weight\n"
        "BF16 2x4 t.b.l.0.x.0.w\nBF16 2x4 t.b.l.0.x.1.w\nBF16 4x4 t.b.l.0.gate.weight\n"
        "BF16 4x4 t.b.l.0.q.weight\nBF16 4x4 t.b.l.1.x.weight\nBF16 4x4 t.b.o.weight\n"
        "BF16 4x4 v.k.weight\nBF16 4x4 v.d.weight\nBF16 4x4 v.o.weight\nBF16 4 v.p\n";
    berthi_catalogue *catalogue;
    const berthi_parameter *p;
    berthi_architecture *a;
    char name[256];
    model m;

    lay_out_others(with_base, lines, BERTHI_ERA_HF5, &m, &catalogue, &a);
    T_REQUIRE(a != NULL);
    CHECK(!a->is_approximate);
    check_order(a, " m m.v m.v.k m.v.o m.v.d m.t m.t.e m.t.o m.t.g m.t.l m.t.l.0 m.t.l.0.q "
                   "m.t.l.0.gate m.t.l.0.x m.t.l.1 m.t.l.1.x m.t.r m.t.y h");
    CHECK_STR(model_name(a, &m, "t.b.e.older", name), "m.t.e.newer");
    CHECK_STR(model_name(a, &m, "m.t.e.old", name), "m.t.e.old"); /* the usual type's */
    CHECK_STR(model_name(a, &m, "t.b.l.0.x.1.w", name), "m.t.l.0.x.w");
    CHECK_EQ(a->parameter_of[model_position(&m, "t.b.l.0.x.1.w")]->piece_count, 2);
    CHECK(!a->parameter_of[model_position(&m, "t.b.e.weight")]->is_linear);
    CHECK(!a->parameter_of[model_position(&m, "t.b.l.0.gate.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "t.b.l.0.q.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "t.b.l.1.x.weight")]->is_linear);
    CHECK(!a->parameter_of[model_position(&m, "v.k.weight")]->is_linear);
    CHECK(a->parameter_of[model_position(&m, "v.d.weight")]->is_linear);
    CHECK_EQ(a->parameter_of[model_position(&m, "t.b.g.weight")]->dtype, BERTH_F32);
    p = find_parameter(a, "m.t.r.f");
    if (CHECK(p != NULL))
        CHECK_EQ(p->elements, 6);
    p = find_parameter(a, "m.v.s");
    if (CHECK(p != NULL))
        CHECK_EQ(p->elements, 3);
    CHECK(berthi_module_block(find_parameter(a, "m.t.l.1.x.weight")->module)->is_never_split);
    CHECK(has_text(a->fp32, "u") && has_text(a->fp32, "g") && has_text(a->fp32, "w"));
    CHECK_STR(a->head, "h");
    CHECK_STR(a->last_name, "h.weight");
    CHECK_EQ(a->tie_count, 2); /* by the default of the type that is there */
    CHECK(find_parameter(a, "h.weight")->tie == find_parameter(a, "m.t.e.weight"));
    CHECK(find_parameter(a, "m.t.y.weight")->tie == find_parameter(a, "m.t.e.weight"));
    CHECK(find_parameter(a, "m.t.x.weight") == NULL);
    end_layout(&m, catalogue, a);
    lay_out_others(with_base, lines, BERTHI_ERA_HF4, &m, &catalogue, &a);
    T_REQUIRE(a != NULL);
    CHECK_STR(a->last_name, "m.t.g.weight");
    end_layout(&m, catalogue, a);
}

/* Not tied, where the part says so; as many layers as that says. */
static void
test_other_settings(void)
{
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    model m;

    lay_out_others(
        with_base,
        "config {\"n\": 9, \"t\": {\"model_type\": \"tb\", \"n\": 2, "
        "\"tie_word_embeddings\": false}}\nBF16 4x4 h.weight\nBF16 4x4 m.t.e.weight\n",
        BERTHI_ERA_HF5, &m, &catalogue, &a);
    T_REQUIRE(a != NULL);
    CHECK_EQ(a->tie_count, 0);
    check_order(a, " m m.t m.t.e m.t.l m.t.l.0 m.t.l.1 m.t.r h");
    end_layout(&m, catalogue, a);
}

/* As a class with its head; of a group of base models; of a type that nobody describes. */
static void
test_other_kinds(void)
{
    static const struct {
        const char *description;
        const char *lines;
        const char *paths;
        const char *head;
        const char *last;
        uint32_t ties;
        bool is_approximate;
    } cases[] = {
        { with_head, "config {\"t\": {\"model_type\": \"tb\", \"n\": 1}}\n"
          "BF16 4x4 d.b.e.weight\nBF16 4x4 d.b.l.0.gate.weight\nBF16 4x4 d.hb.weight\n",
          " d d.b d.b.e d.b.l d.b.l.0 d.b.l.0.gate d.b.r d.b.y d.hb", "d.hb", "d.hb.weight", 2,
          false },
        { with_head, "config {\"t\": {\"model_type\": \"tc\"}}\n"
          "BF16 4x4 d.e.weight\nBF16 4x4 d.z.weight\n",
          " d d.z d.e", "", "d.e.weight", 0, false },
        { with_base, "config {\"t\": {\"model_type\": \"tc\"}}\n"
          "BF16 4x4 m.t.e.weight\nBF16 4x4 m.t.z.weight\nBF16 4x4 h.weight\n",
          " m m.t m.t.z m.t.e h", "h", "h.weight", 0, false },
        { with_base, "config {\"t\": {\"model_type\": \"td\"}}\n"
          "BF16 4x4 m.t.e.weight\nBF16 4x4 m.t.q.weight\nBF16 4x4 h.weight\n",
          " m m.t m.t.e m.t.l m.t.q h", "h", "h.weight", 0, true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        model m;

        lay_out_others(cases[i].description, cases[i].lines, BERTHI_ERA_HF5, &m, &catalogue,
                       &a);
        T_REQUIRE(a != NULL);
        check_order(a, cases[i].paths);
        CHECK_STR(a->head, cases[i].head);
        CHECK_STR(a->last_name, cases[i].last);
        CHECK_EQ(a->tie_count, cases[i].ties);
        CHECK_EQ(a->is_approximate, cases[i].is_approximate);
        end_layout(&m, catalogue, a);
    }
}

static void
test_renames(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tree\": [{\"n\": \"n\", \"ch\": [\"x\"]}], "
        "\"names\": [[\"a\", \"n.x\"], [\"a.*.c\", \"n.*.d.*.e\"], [\"a.*.c.f\", \"g\"], "
        "[\"b*\", \"h\"]]}";
    static const char *const expected[][2] = {
        { "a", "n.x" },           { "a.q", "n.x.q" },      { "ab.q", "ab.q" },
        { "a.7.c", "n.7.d.0.e" }, { "a.12.c.w", "n.12.d.0.e.w" },
        { "a.12.cc", "n.x.12.cc" }, { "a.1.c.f.w", "g.w" }, { "b5.k", "h.k" },
        { "bx.k", "bx.k" },
    };
    char lines[1024] = "config {}\n";
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    char name[256];
    model m;

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        strcat(lines, "BF16 4 ");
        strcat(lines, expected[i][0]);
        strcat(lines, "\n");
    }
    T_REQUIRE(CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_OK));
    check_whole(a, &m);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK_STR(model_name(a, &m, expected[i][0], name), expected[i][1]);
    end_layout(&m, catalogue, a);
}

/* A child that a flag of config.json switches on or off. */
static void
test_flags(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tree\": [{\"n\": \"a\", \"ch\": [\"b\", "
        "{\"n\": \"on\", \"k\": \"0\"}]}], \"optional\": {\"a\": {\"order\": [\"off\", "
        "\"on\", \"b\"], \"only_sometimes\": [\"off\", \"on\"], \"when\": {\"on\": "
        "\"f\", \"off\": \"!f\"}}}}";
    static const struct {
        const char *lines;
        const char *children; /* of "a", in order */
    } cases[] = {
        { "config {\"f\": true}\nBF16 4 a.b.weight\n", "on b" },
        { "config {\"f\": 1}\nBF16 4 a.b.weight\n", "on b" },
        { "config {\"f\": false}\nBF16 4 a.b.weight\n", "off b" },
        { "config {\"f\": 0}\nBF16 4 a.b.weight\n", "off b" },
        { "config {}\nBF16 4 a.b.weight\n", "on b" },
        { "config {\"f\": true}\nBF16 4 a.b.weight\nBF16 4 a.off.weight\n", "off on b" },
        { "config {\"f\": false}\nBF16 4 a.b.weight\nBF16 4 a.on.weight\n", "off on b" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        char children[64] = "";
        berth_error error;
        model m;

        T_REQUIRE(CHECK_EQ(lay_out(description, cases[i].lines, &m, &catalogue, &a, &error),
                           BERTH_OK));
        T_REQUIRE(CHECK(a->root->children != NULL));
        for (const berthi_module *at = a->root->children->children; at != NULL; at = at->next)
            snprintf(children + strlen(children), sizeof children - strlen(children), "%s%.*s",
                     children[0] != '\0' ? " " : "", (int)at->name_length, at->name);
        if (!CHECK_STR(children, cases[i].children))
            T_NOTE("%s", cases[i].lines);
        end_layout(&m, catalogue, a);
    }
}

/* Kinds of elements by their marks: class and buffers. */
static void
test_kinds(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [\"B\"], \"tree\": [{\"n\": \"l\", \"list\": "
        "[\"A\", \"B\", \"C\"], \"len\": \"n\", \"marks\": [null, \"x.*.w\", \"y.w\"], "
        "\"ub_kinds\": [[\"y.w\", [[\"t\", \"float32\", [3], false]]], [null, "
        "[[\"t\", \"bool\", [5], false]]]]}]}";
    static const char *const classes[] = { "A", "B", "C" };
    static const uint64_t sizes[] = { 5, 5, 3 };
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    const berthi_module *at;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(lay_out(description, "config {}\nBF16 4 l.0.z.w\nBF16 4 l.1.x.7.w\n"
                               "BF16 4 l.1.y.ww\nBF16 4 l.2.y.w\n", &m, &catalogue, &a,
                               &error), BERTH_OK));
    check_whole(a, &m);
    at = a->root->children->children;
    for (size_t i = 0; i < 3; i++, at = at->next) {
        T_REQUIRE(CHECK(at != NULL && at->buffers != NULL));
        CHECK_STR(at->class_name, classes[i]);
        CHECK_EQ(at->is_never_split, i == 1);
        CHECK_EQ(at->buffers->elements, sizes[i]);
        CHECK_EQ(at->buffers->dtype, i == 2 ? BERTH_F32 : BERTH_BOOL);
    }
    CHECK(at == NULL);
    end_layout(&m, catalogue, a);
    /* Without marks: by the sequence, then the first one. */
    T_REQUIRE(CHECK_EQ(lay_out("{\"tree\": [{\"n\": \"l\", \"list\": [\"A\", \"B\"], "
                               "\"len\": 3, \"seq\": [1, 0]}]}", "config {}\n", &m,
                               &catalogue, &a, &error), BERTH_OK));
    at = a->root->children->children;
    CHECK_STR(at->class_name, "B");
    CHECK_STR(at->next->class_name, "A");
    CHECK_STR(at->next->next->class_name, "A");
    end_layout(&m, catalogue, a);
}

/* How much of a name a pattern takes; all of the pattern must be there. */
static void
test_match(void)
{
    static const struct {
        const char *pattern;
        const char *name;
        uint64_t length; /* UINT64_MAX: no match */
    } cases[] = {
        { "", "", 0 },           { "", "a", 0 },
        { "a.*.b", "a.1.b", 5 }, { "a.*.b", "a.123.b.c", 7 },
        { "a.*", "a.12", 4 },    { "a.*.b", "a.1", UINT64_MAX },
        { "a.*", "a.", UINT64_MAX }, { "a", "", UINT64_MAX },
        { "a.*", "a.x", UINT64_MAX }, { "a.*.b", "a.1.c", UINT64_MAX },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!CHECK_EQ(berthi_build_match(cases[i].pattern, cases[i].name,
                                         strlen(cases[i].name)), cases[i].length))
            T_NOTE("%s: %s", cases[i].pattern, cases[i].name);
}

/* Sizes of buffers in elements of a list stand once: a component of digits is a star. */
static void
test_star_sizes(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], "
        "\"tree\": [{\"n\": \"l\", \"list\": [\"A\"], \"len\": 12, "
        "\"ub\": [[\"inv_freq\", \"float32\", [7], false], "
        "[\"2b\", \"float32\", [7], false], "
        "[\"original_inv_freq\", \"float32\", [7], false]]}], "
        "\"dims\": {\"l.*.inv_freq\": [\"n\"], \"l.*.2b\": [\"n+1\"], \"l.*.*\": [\"n+2\"]}}";
    static const struct {
        const char *name;
        uint64_t elements;
    } buffers[] = {
        { "l.0.inv_freq", 5 }, { "l.9.inv_freq", 5 }, { "l.11.inv_freq", 5 }, { "l.11.2b", 6 },
        { "l.10.original_inv_freq", 5 }, /* an unchanged copy is as large as the table itself */
    };
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(lay_out(description, "config {\"n\": 5}\n", &m, &catalogue, &a,
                               &error), BERTH_OK));
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        const char *const name = buffers[i].name;
        const berthi_parameter *const p = berthi_architecture_find(a, name, strlen(name));

        if (!CHECK(p != NULL) || !CHECK_EQ(p->elements, buffers[i].elements))
            T_NOTE("%s", name);
    }
    end_layout(&m, catalogue, a);
}

/* Who says that the head is tied: the top level, else the sub-model that is named. */
static void
test_tie_flags(void)
{
    static const struct {
        const char *from;
        const char *config;
        uint32_t ties;
    } cases[] = {
        { "", "{}", 0 },
        { "", "{\"tie_word_embeddings\": true}", 1 },
        { "", "{\"text_config\": {\"tie_word_embeddings\": true}}", 0 },
        { ", \"tie_from\": \"text_config\"", "{}", 0 },
        { ", \"tie_from\": \"text_config\"",
          "{\"text_config\": {\"tie_word_embeddings\": true}}", 1 },
        { ", \"tie_from\": \"text_config\"",
          "{\"vision_config\": {\"tie_word_embeddings\": true}}", 0 },
        { ", \"tie_from\": \"text_config\"",
          "{\"tie_word_embeddings\": false, "
          "\"text_config\": {\"tie_word_embeddings\": true}}", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        berth_error error;
        char description[512];
        char lines[512];
        model m;

        snprintf(description, sizeof description,
                 "{\"base\": \"\", \"no_split\": [], \"tie_default\": false, \"tree\": [], "
                 "\"tied\": {\"head.weight\": \"embed.weight\"}%s}", cases[i].from);
        snprintf(lines, sizeof lines, "config %s\nBF16 4x4 embed.weight\n", cases[i].config);
        T_REQUIRE(CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_OK));
        if (!CHECK_EQ(a->tie_count, cases[i].ties))
            T_NOTE("%s%s", cases[i].config, cases[i].from);
        end_layout(&m, catalogue, a);
    }
}

/* Ties over indices: all alike to the lowest number; each to that of its number. */
static void
test_star_ties(void)
{
    static const char description[] =
        "{\"base\": \"\", \"no_split\": [], \"tie_default\": true, \"tree\": [], \"tied\": "
        "{\"m.*.s.*.w\": \"m.*.s.*.w\", \"t.*.x.*.v\": \"m.*.s.*.v\"}}";
    static const char lines[] =
        "config {}\nBF16 4x4 m.10.s.1.w\nBF16 4x4 m.9.s.11.w\nBF16 4x4 m.9.s.2.w\n"
        "BF16 4x4 m.10.s.0.w\nBF16 4x4 m.3.s.45.v\n";
    static const char *const tied[] = { "m.10.s.1.w", "m.9.s.11.w", "m.10.s.0.w" };
    berthi_catalogue *catalogue;
    berthi_architecture *a;
    const berthi_parameter *p;
    berth_error error;
    model m;

    T_REQUIRE(CHECK_EQ(lay_out(description, lines, &m, &catalogue, &a, &error), BERTH_OK));
    check_whole(a, &m);
    CHECK_EQ(a->tie_count, 4);
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++) {
        p = berthi_architecture_find(a, tied[i], strlen(tied[i]));
        T_REQUIRE(CHECK(p != NULL && p->tie != NULL));
        CHECK(p->tie == a->parameter_of[2]); /* m.9.s.2.w */
    }
    CHECK(a->parameter_of[2]->tie == NULL);
    CHECK(a->parameter_of[2]->is_tie_source);
    p = berthi_architecture_find(a, "t.3.x.45.v", 10);
    T_REQUIRE(CHECK(p != NULL));
    CHECK(p->tie == a->parameter_of[4]);
    CHECK_EQ(p->elements, 16);
    CHECK(!berthi_architecture_find(a, "m.3.s.45.v", 10)->is_buffer);
    end_layout(&m, catalogue, a);
}

/* The last parameter by a pattern: the highest numbers, and a bias where there is one. */
static void
test_last(void)
{
    static const struct {
        const char *last;
        const char *expected;
    } cases[] = {
        { "\"l.*.b.*.w\"", "l.10.b.9.w" },
        { "\"h.weight\"", "h.bias" },
        { "\"l.*.nothing\"", "l.*.nothing" },
        { "\"k.weight\"", "k.weight" },
        { "null", "h.weight" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char description[512];
        berthi_catalogue *catalogue;
        berthi_architecture *a;
        berth_error error;
        model m;

        snprintf(description, sizeof description,
                 "{\"base\": \"\", \"tree\": [{\"n\": \"l\", \"list\": [\"A\"], "
                 "\"len\": 1}, \"k\", \"h\"], \"last\": [%s, null]}", cases[i].last);
        T_REQUIRE(CHECK_EQ(lay_out(description, "config {}\nBF16 4 l.9.b.10.w\n"
                                   "BF16 4 l.10.b.9.w\nBF16 4 l.10.b.3.w\nBF16 4 h.weight\n"
                                   "BF16 4 h.bias\nBF16 4 k.weight\n", &m, &catalogue, &a,
                                   &error), BERTH_OK));
        CHECK_STR(a->last_name, cases[i].expected);
        end_layout(&m, catalogue, a);
    }
}

/* ---------------------------------------------------------------------- faults */

static berth_status
create_once(void *user, berth_context *fresh, berth_error *error)
{
    const model *const m = user;
    const berthi_architecture_options options = model_options(m, BERTHI_ERA_HF5);
    berthi_architecture *a;
    const berth_status status =
        berthi_architecture_create(fresh, &options, &m->source, &a, error);

    CHECK_EQ(status == BERTH_OK, a != NULL);
    berthi_architecture_destroy(a);
    return status;
}

static void
test_faults(void)
{
    char *const text = model_file("trees.txt");
    const char *at = text;
    model m;

    while (model_read(context, &at, &m)) {
        if (strcmp(m.class_name, "LlavaForConditionalGeneration") == 0
            || strcmp(m.class_name, "Qwen4ExpForCausalLM") == 0
            || strcmp(m.class_name, "DiffusionGemmaForBlockDiffusion") == 0)
            CHECK_EQ(fault_loop(m.class_name, create_once, &m).survived, 0);
        model_fini(&m);
    }
    free(text);
    berthi_architecture_destroy(NULL);
}

/* The last test: nothing is left of the others. */
static void
test_all_given_back(void)
{
    vacant_check_memory(context);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_trees);
    T_RUN(test_every_class);
    T_RUN(test_names);
    T_RUN(test_older_names);
    T_RUN(test_bare_model);
    T_RUN(test_class_choice);
    T_RUN(test_unknown_tensors);
    T_RUN(test_guess);
    T_RUN(test_guessed_tie);
    T_RUN(test_linear_names);
    T_RUN(test_torch_attention);
    T_RUN(test_guessed_last);
    T_RUN(test_corrections);
    T_RUN(test_tower_names);
    T_RUN(test_one_of_three);
    T_RUN(test_remade);
    T_RUN(test_unstored_parameters);
    T_RUN(test_falcon_mamba);
    T_RUN(test_inner_opt);
    T_RUN(test_order_with_gaps);
    T_RUN(test_bare_modules);
    T_RUN(test_counted_elements);
    T_RUN(test_expressions);
    T_RUN(test_fused);
    T_RUN(test_fused_kinds);
    T_RUN(test_bad_descriptions);
    T_RUN(test_impossible_models);
    T_RUN(test_endless_model);
    T_RUN(test_other_types);
    T_RUN(test_other_settings);
    T_RUN(test_other_kinds);
    T_RUN(test_renames);
    T_RUN(test_flags);
    T_RUN(test_kinds);
    T_RUN(test_match);
    T_RUN(test_star_sizes);
    T_RUN(test_tie_flags);
    T_RUN(test_star_ties);
    T_RUN(test_last);
    T_RUN(test_faults);
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
