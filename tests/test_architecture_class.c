/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_architecture_class.c - which class lays a model out, what the model calls
 * the checkpoint's tensors, and what is guessed where no class is known.
 */
#include "quant/architecture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/described.h"
#include "tests/fixture.h"
#include "tests/models.h"
#include "tests/t.h"
#include "tests/vacant.h"

static berth_context *context;

/* --------------------------------------------------------- names and the class */

static void
test_names(void)
{
    char *const text = model_file("mixtral.txt");
    model m = described_read(context, text);
    berthi_architecture *a = model_architecture(context, &m, BERTHI_ERA_HF5);
    const berthi_parameter *fused;
    char name[256];

    described_check(a, &m);
    CHECK_STR(described_name(a, &m, "model.layers.1.block_sparse_moe.gate.weight", name),
              "model.layers.1.mlp.gate.weight");
    CHECK_STR(described_name(a, &m, "model.layers.1.block_sparse_moe.experts.2.w2.weight", name),
              "model.layers.1.mlp.experts.down_proj");
    CHECK_STR(described_name(a, &m, "model.norm.weight", name), "model.norm.weight");
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
    CHECK_STR(described_name(a, &m, "model.layers.1.block_sparse_moe.experts.2.w2.weight", name),
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
    model m = described_read(context,
                             fixture_format("class %s\nBF16 4x4 %s\nBF16 4x4 lm_head.weight\n",
                                            c->class_name, c->name));
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF4);
    char name[256];

    CHECK_STR(described_name(a, &m, c->name, name),
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
    model m = described_read(context,
                             "class GPT2LMHeadModel\nBF16 8x4 wte.weight\n"
                             "BF16 4x12 h.0.attn.c_attn.weight\nBF16 4 ln_f.bias\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);
    char name[256];

    described_check(a, &m);
    CHECK_STR(described_name(a, &m, "h.0.attn.c_attn.weight", name),
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
        model m = described_read(context, "dtype bfloat16\n");
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
    model m = described_read(context,
                             "class LlamaForCausalLM\nBF16 4x4 model.layers.0.mlp.up.weight\n"
                             "BF16 4x4 score.weight\nBF16 4 model.extra\n"
                             "BF16 4 model.layers.bias\nBF16 4 model.more.deep.er\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);
    const berthi_parameter *score;

    described_check(a, &m);
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
    model m = described_read(context,
                             "class Unheard\nconfig {\"tie_word_embeddings\": true}\n"
                             "BF16 8x4 lm_head.weight\nBF16 4 net.norm.weight\n"
                             "BF16 4x4 net.blocks.10.norm.weight\nBF16 4x4 net.blocks.2.x.weight\n"
                             "BF16 4x4 net.blocks.0.mlp.experts.0.weight\n"
                             "BF16 4x4 net.blocks.0.mlp.experts.1.weight\n"
                             "BF16 4x4 net.adapter.weight\nBF16 8x4 net.embed.weight\n");
    berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);
    size_t i = 0;

    described_check(a, &m);
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
    model m = described_read(context,
                             "class Unheard\nconfig {\"tie_word_embeddings\": true}\n"
                             "BF16 8x4 net.embed.weight\nBF16 4 net.wte.bias\n");
    berthi_architecture *a = model_architecture(context, &m, BERTHI_ERA_HF5);
    const berthi_parameter *head;

    described_check(a, &m);
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
    m = described_read(context, "class Unheard\nBF16 8x4 embed_out.weight\n");
    a = model_architecture(context, &m, BERTHI_ERA_HF5);
    CHECK_STR(a->head, "embed_out");
    berthi_architecture_destroy(a);
    model_fini(&m);
    /* Nothing at all. */
    m = described_read(context, "class Unheard\nconfig {}\n");
    a = model_architecture(context, &m, BERTHI_ERA_HF4);
    described_check(a, &m);
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
        m = described_read(context, text);
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
        m = described_read(context, text);
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
        m = described_read(context, text);
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
    m = described_read(context, text);
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
        model m = described_read(context,
                                 fixture_format("class %s\nconfig %s\nBF16 4x4 %s\n",
                                                cases[i].class_name, cases[i].config,
                                                cases[i].stored));
        berthi_architecture *const a = model_architecture(context, &m, BERTHI_ERA_HF5);

        CHECK_STR(described_name(a, &m, cases[i].stored, name), cases[i].name);
        berthi_architecture_destroy(a);
        model_fini(&m);
    }
}

/* Three modules that were described as one: each has its tensor, and is what it is. */
static void
test_one_of_three(void)
{
    static const char *const names[] = { "mlp1.0.weight", "mlp1.1.weight", "mlp1.3.weight" };
    model m = described_read(context,
                             "class QianfanOCRForConditionalGeneration\nconfig {}\n"
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
            model m = described_read(context,
                                     fixture_format("class %s\nconfig {}\nBF16 4x4 %s\n",
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
    model m = described_read(context,
                             "class MarianMTModel\ntype marian\n"
                             "config {\"max_position_embeddings\": 6, \"d_model\": 4}\n"
                             "BF16 5x4 model.encoder.embed_positions.weight\n"
                             "BF16 9x4 model.shared.weight\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        berthi_architecture *const a = model_architecture(context, &m, (berthi_era)era);
        const berthi_parameter *const there = described_find(a, stored);
        const berthi_parameter *const made = described_find(a, unstored);

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
    model m = described_read(context,
                             "class FalconMambaForCausalLM\ntype falcon_mamba\n"
                             "config {\"hidden_size\": 8, \"expand\": 3}\n"
                             "BF16 24 backbone.layers.0.mixer.D\n");

    for (int era = 0; era < BERTHI_ERA_COUNT; era++) {
        berthi_architecture *const a = model_architecture(context, &m, (berthi_era)era);
        const berthi_parameter *const norm =
            described_find(a, era == BERTHI_ERA_HF4
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
            m = described_read(context, text);
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
    T_RUN(test_all_given_back);
    berth_context_destroy(context);
    T_MAIN_END;
}
