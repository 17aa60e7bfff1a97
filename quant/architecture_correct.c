/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_correct.c - names of checkpoints that descriptions tell too coarsely, or
 * not at all: they know what the library saves, not all that it reads. See
 * architecture_build.h.
 */
#include "quant/architecture_build.h"

/* ------------------------------------------------------------- groups of classes */

/* With CLIP or SigLIP, which their checkpoints, as 4.x, have in a module of its own. */
static const char *const of_tower[] = {
    "AyaVisionForConditionalGeneration", "Gemma3ForConditionalGeneration",
    "LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration", "LlavaOnevisionForConditionalGeneration",
    "PaliGemmaForConditionalGeneration", "VipLlavaForConditionalGeneration", NULL,
};
static const char *const of_own_tower[] = {
    "AyaVisionForConditionalGeneration", "Cohere2VisionForConditionalGeneration",
    "Gemma3ForConditionalGeneration", "Granite4VisionForConditionalGeneration",
    "Lfm2VlForConditionalGeneration", "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration", "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration", "PaliGemmaForConditionalGeneration",
    "VipLlavaForConditionalGeneration", NULL,
};
static const char *const of_model[] = {
    "DeepseekVLForConditionalGeneration", "DeepseekVLHybridForConditionalGeneration",
    "ModernVBertForMaskedLM", "UltraVBertForMaskedLM", NULL,
};

/* Their texts are called as the whole model, so that a name of 5.x begins as an old one. */
static const char *const of_plain_text[] = {
    "HunYuanVLForConditionalGeneration", "PaddleOCRVLForConditionalGeneration",
    "Qwen2VLForConditionalGeneration", "Qwen2_5OmniThinkerForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration", NULL,
};
static const char *const of_visual[] = {
    "PaddleOCRVLForConditionalGeneration", "Qwen2VLForConditionalGeneration",
    "Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", NULL,
};

static const char *const of_sam[] = {
    "DeepseekOcr2ForConditionalGeneration", "UnlimitedOcrForConditionalGeneration", NULL,
};
static const char *const deepseek_v4[] = { "DeepseekV4ForCausalLM", NULL };
static const char *const ernie[] = { "Ernie4_5_VLMoeForConditionalGeneration", NULL };
static const char *const inkling[] = { "InklingForConditionalGeneration", NULL };
static const char *const hunyuan[] = { "HunYuanVLForConditionalGeneration", NULL };
static const char *const kimi[] = { "Kimi_K25ForConditionalGeneration", NULL };
static const char *const minimax[] = { "MiniMaxM3SparseForConditionalGeneration", NULL };
static const char *const nemotron[] = { "NemotronH_Omni_Reasoning_V3", NULL };
static const char *const omni_thinker[] = { "Qwen2_5OmniThinkerForConditionalGeneration",
                                            NULL };
static const char *const paddle[] = { "PaddleOCRVLForConditionalGeneration", NULL };
static const char *const pi0[] = { "PI0ForConditionalGeneration", NULL };
static const char *const qianfan[] = { "QianfanOCRForConditionalGeneration", NULL };
static const char *const swin[] = { "swin", NULL };
static const char *const t5gemma2[] = { "T5Gemma2ForConditionalGeneration", NULL };
static const char *const video_llava[] = { "VideoLlavaForConditionalGeneration", NULL };

/* Towers, by type, whose layers have moved: descriptions have no names of towers. */
static const char *const of_vit[] = { "audio-spectrogram-transformer", "vit", "vit_mae",
                                      "vit_msn", "vivit", NULL };

/* --------------------------------------------------------------------- the lines */

/* Of lines that fit equally well, the first one counts: these stand before "names". */
typedef struct line {
    const char *const *classes;
    build_correction names;
} line;

/* Of 5.x alone. */
static const line newer[] = {
    { of_tower, { "vision_tower.vision_model", "model.vision_tower" } },
    { of_own_tower, { "model.vision_tower.vision_model", "model.vision_tower" } },
    { of_model, { "model.vision_model.vision_model", "model.vision_model" } },
    { pi0, { "model.vlm.vision_tower.vision_model", "model.vlm.vision_tower" } },
    { pi0, { "paligemma_with_expert.paligemma.model.vision_tower.vision_model",
             "model.vlm.vision_tower" } },
    { t5gemma2, { "model.encoder.vision_tower.vision_model",
                  "model.encoder.vision_tower" } },
    { video_llava, { "image_tower.vision_model", "model.image_tower" } },
    { video_llava, { "video_tower.vision_model", "model.video_tower" } },
    { video_llava, { "model.image_tower.vision_model", "model.image_tower" } },
    { video_llava, { "model.video_tower.vision_model", "model.video_tower" } },

    { of_vit, { "encoder.layer", "layers" } },
    { of_vit, { "encoder.layer.*.attention.attention.key", "layers.*.attention.k_proj" } },
    { of_vit, { "encoder.layer.*.attention.attention.query",
                "layers.*.attention.q_proj" } },
    { of_vit, { "encoder.layer.*.attention.attention.value",
                "layers.*.attention.v_proj" } },
    { of_vit, { "encoder.layer.*.attention.output.dense", "layers.*.attention.o_proj" } },
    { of_vit, { "encoder.layer.*.intermediate.dense", "layers.*.mlp.fc1" } },
    { of_vit, { "encoder.layer.*.output.dense", "layers.*.mlp.fc2" } },
    { swin, { "encoder.layers.*.blocks.*.attention.output.dense",
              "encoder.layers.*.blocks.*.attention.o_proj" } },
    { swin, { "encoder.layers.*.blocks.*.attention.self.key",
              "encoder.layers.*.blocks.*.attention.k_proj" } },
    { swin, { "encoder.layers.*.blocks.*.attention.self.query",
              "encoder.layers.*.blocks.*.attention.q_proj" } },
    { swin, { "encoder.layers.*.blocks.*.attention.self.relative_position_bias_table",
              "encoder.layers.*.blocks.*.attention.relative_position_bias"
              ".relative_position_bias_table" } },
    { swin, { "encoder.layers.*.blocks.*.attention.self.value",
              "encoder.layers.*.blocks.*.attention.v_proj" } },
    { swin, { "encoder.layers.*.blocks.*.intermediate.dense",
              "encoder.layers.*.blocks.*.mlp.fc1" } },
    { swin, { "encoder.layers.*.blocks.*.output.dense",
              "encoder.layers.*.blocks.*.mlp.fc2" } },
};
#define NEWER_COUNT (uint32_t)(sizeof newer / sizeof *newer)

static const line corrections[] = {
    /* What has the model's name keeps it. */
    { of_plain_text, { "model.language_model", "model.language_model" } },
    { of_visual, { "model.visual", "model.visual" } },
    { hunyuan, { "model.vision_tower", "model.vision_tower" } },
    { omni_thinker, { "model.audio_tower", "model.audio_tower" } },
    { paddle, { "model.projector", "model.projector" } },

    /* Several modules are not one. */
    { deepseek_v4, { "model.norm", "model.norm" } },
    { ernie, { "model.resampler_model.spatial_linear.0",
               "model.resampler_model.spatial_linear.fc1" } },
    { ernie, { "model.resampler_model.spatial_linear.2",
               "model.resampler_model.spatial_linear.fc2" } },
    { ernie, { "model.resampler_model.temporal_linear.0",
               "model.resampler_model.temporal_linear.fc1" } },
    { ernie, { "model.resampler_model.temporal_linear.2",
               "model.resampler_model.temporal_linear.fc2" } },
    { hunyuan, { "vit.perceive.proj.0", "model.vision_tower.patch_merger.proj_conv" } },
    { kimi, { "mm_projector.proj.0", "model.mm_projector.in_proj" } },
    { nemotron, { "mlp1.0", "multi_modal_projector.layer_norm" } },
    { nemotron, { "mlp1.1", "multi_modal_projector.linear_1" } },
    { of_sam, { "model.sam_model.neck.0", "model.vision_tower.sam_encoder.neck.conv1" } },
    { of_sam, { "model.sam_model.neck.1",
                "model.vision_tower.sam_encoder.neck.layer_norm1" } },
    { of_sam, { "model.sam_model.neck.2", "model.vision_tower.sam_encoder.neck.conv2" } },
    { qianfan, { "mlp1.0", "model.multi_modal_projector.layer_norm" } },
    { qianfan, { "mlp1.1", "model.multi_modal_projector.linear_1" } },

    /* The library saves these under names that no published checkpoint has. */
    { kimi, { "language_model.model.layers", "model.language_model.layers" } },
    { kimi, { "language_model.model.layers.*.mlp.experts.*.down_proj.weight",
              "model.language_model.layers.*.mlp.experts.down_proj" } },
    { kimi, { "language_model.model.layers.*.mlp.experts.*.gate_proj.weight",
              "model.language_model.layers.*.mlp.experts.gate_up_proj" } },
    { kimi, { "language_model.model.layers.*.mlp.experts.*.up_proj.weight",
              "model.language_model.layers.*.mlp.experts.gate_up_proj" } },
    { qianfan, { "language_model.model.layers", "model.language_model.layers" } },

    /* Layers without experts, which the described configuration has none of. */
    { inkling, { "model.llm.layers.*.mlp.w13_dn",
                 "model.language_model.layers.*.mlp.gate_proj" } },
    { inkling, { "model.llm.layers.*.mlp.w2_md",
                 "model.language_model.layers.*.mlp.down_proj" } },
    { minimax, { "language_model.model.layers.*.mlp.down_proj",
                 "model.language_model.layers.*.mlp.down_proj" } },
    { minimax, { "language_model.model.layers.*.mlp.gate_proj",
                 "model.language_model.layers.*.mlp.gate_up_proj" } },
    { minimax, { "language_model.model.layers.*.mlp.up_proj",
                 "model.language_model.layers.*.mlp.gate_up_proj" } },
};
#define CORRECTION_COUNT (uint32_t)(sizeof corrections / sizeof *corrections)

bool
berthi_build_is_among(berthi_words classes, const char *class_name)
{
    for (; *classes != NULL; classes++)
        if (strcmp(*classes, class_name) == 0)
            return true;
    return false;
}

const build_correction *
berthi_build_correction(berthi_era era, const char *class_name, uint32_t *position)
{
    const bool is_old = era == BERTHI_ERA_HF4;

    while (*position < CORRECTION_COUNT + NEWER_COUNT) {
        const uint32_t at = (*position)++;
        const line *const l =
            at < CORRECTION_COUNT ? &corrections[at] : &newer[at - CORRECTION_COUNT];

        if ((at < CORRECTION_COUNT || !is_old)
            && berthi_build_is_among(l->classes, class_name))
            return &l->names;
    }
    return NULL;
}
