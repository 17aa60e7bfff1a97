/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_remake.c - weights that 5.x does not load as they are stored: of one it makes
 * those of several modules, of two that of one, or moves its rows. That can be done with
 * numbers. Codes it treats as if they were numbers, and drops what belongs to them: what is
 * quantized cannot be loaded. See architecture_build.h.
 *
 * From the library's own table, conversion_mapping.py; fused experts are not here.
 */
#include "quant/architecture_build.h"

static const char *const deepseek_v4[] = { "DeepseekV4ForCausalLM", NULL };
static const char *const gte[] = { "GteForMaskedLM", NULL };
static const char *const hrm[] = { "HrmTextForCausalLM", NULL };
static const char *const inkling[] = { "InklingForConditionalGeneration", NULL };
static const char *const jina[] = { "JinaEmbeddingsV3ForMaskedLM", NULL };
static const char *const kimi[] = { "Kimi_K25ForConditionalGeneration", NULL };
static const char *const minimax[] = { "MiniMaxM3SparseForConditionalGeneration", NULL };
static const char *const mistral[] = { "MistralLarge4ForConditionalGeneration", NULL };
static const char *const molmo[] = { "Molmo2ForConditionalGeneration", NULL };
static const char *const nomic[] = { "NomicBertForMaskedLM", NULL };
static const char *const of_unembed[] = { "Inkling2ForCausalLM",
                                          "Inkling2ForConditionalGeneration",
                                          "InklingForConditionalGeneration", NULL };
static const char *const qianfan[] = { "QianfanOCRForConditionalGeneration", NULL };
static const char *const radio[] = { "NemotronH_Omni_Reasoning_V3", NULL };
static const char *const step[] = { "Step3p7ForConditionalGeneration", NULL };
static const char *const transcribe[] = { "Nemotron3_5TranscribeForConditionalGeneration",
                                          NULL };
static const char *const unlimited[] = { "UnlimitedOcrForConditionalGeneration", NULL };

/* Last parts of modules' names. */
static const char *const gate_up[] = { "gate_proj", "up_proj", NULL };
static const char *const gate_qkv[] = { "gate_proj", "q_proj", "k_proj", "v_proj", NULL };
static const char *const k[] = { "k_proj", NULL };
static const char *const q[] = { "q_proj", NULL };
static const char *const qkv[] = { "q_proj", "k_proj", "v_proj", NULL };
static const char *const whole_gate_up[] = { "gate_up_proj", NULL };

static const struct {
    const char *const *classes;
    const char *end; /* of the name in the checkpoint: whole parts, '*' for numbers */
    berthi_words modules;
} remakings[] = {
    { gte, "attention.qkv_proj.weight", qkv },
    { gte, "mlp.up_gate_proj.weight", gate_up },
    { hrm, "attn.gqkv_proj.weight", gate_qkv },
    { hrm, "mlp.gate_up_proj.weight", gate_up },
    { inkling, "mlp.w13_dn.weight", gate_up },
    { jina, "mixer.Wqkv.weight", qkv },
    { kimi, "wqkv.weight", qkv },
    { minimax, "mlp.gate_proj.weight", whole_gate_up },
    { minimax, "mlp.up_proj.weight", whole_gate_up },
    { minimax, "shared_experts.gate_proj.weight", whole_gate_up },
    { minimax, "shared_experts.up_proj.weight", whole_gate_up },
    { mistral, "vision_encoder.transformer.layers.*.attention.wk.weight", k },
    { mistral, "vision_encoder.transformer.layers.*.attention.wq.weight", q },
    { molmo, "mlp.ff_proj.weight", gate_up },
    { molmo, "self_attn.att_proj.weight", qkv },
    { nomic, "attn.Wqkv.weight", qkv },
    { qianfan, "attn.qkv.weight", qkv },
    { radio, "attn.qkv.weight", qkv },
    { step, "attn.in_proj_weight", qkv },
    { transcribe, "attn.w_qkv.weight", qkv },
    { unlimited, "self_attn.qkv_proj.weight", qkv },
};

/*
 * Renamed with "weight" at the end of the pattern: "SCB" beside it keeps the module's name
 * of the checkpoint, which no module of the model has.
 */
static const struct {
    const char *const *classes;
    const char *end;
} alone[] = {
    { deepseek_v4, "head.weight" },
    { of_unembed, "llm.unembed.weight" },
    { unlimited, "model.projector.layers.weight" },
};

/* The name ends so, from the begin of one of its parts on. */
static bool
ends_as(berthi_text name, const char *end)
{
    for (uint64_t at = 0; at < name.length; at++)
        if ((at == 0 || name.bytes[at - 1] == '.')
            && berthi_build_is_match(end, name.bytes + at, name.length - at))
            return true;
    return false;
}

static bool
has_remade(const char *class_name)
{
    bool has_any = false;

    for (size_t i = 0; i < sizeof remakings / sizeof *remakings && !has_any; i++)
        has_any = berthi_build_is_among(remakings[i].classes, class_name);
    for (size_t i = 0; i < sizeof alone / sizeof *alone && !has_any; i++)
        has_any = berthi_build_is_among(alone[i].classes, class_name);
    return has_any;
}

bool
berthi_build_has_remade(const berthi_build *build)
{
    const build_scope *scope = build->scopes;

    if (build->options->era == BERTHI_ERA_HF4)
        return false;
    while (scope != NULL && !has_remade(scope->class_name))
        scope = scope->next;
    return scope != NULL;
}

berthi_words
berthi_build_remade(const char *class_name, berthi_text name)
{
    for (size_t i = 0; i < sizeof remakings / sizeof *remakings; i++)
        if (berthi_build_is_among(remakings[i].classes, class_name)
            && ends_as(name, remakings[i].end))
            return remakings[i].modules;
    return NULL;
}

bool
berthi_build_is_alone(const char *class_name, berthi_text name)
{
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (berthi_build_is_among(alone[i].classes, class_name)
            && ends_as(name, alone[i].end))
            return true;
    return false;
}
