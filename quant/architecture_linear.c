/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_linear.c - what kind of layer a parameter belongs to. See
 * architecture_build.h.
 *
 * A description lists what is not exactly a linear layer ("not_linear"). Three
 * things that it does not say are in tables here: which of those are of a class
 * derived from a linear layer (4.x and 5.0 to 5.4 quantize them; later releases ask
 * for exactly the class of linear layers); which blocks hold GPT-2's Conv1D; and the
 * names of embeddings that a class has in other configurations, or in another place
 * than the class that is described.
 */
#include "quant/architecture_build.h"
#include "quant/format.h"

/* Weights of classes derived from a linear layer, by class of the model. */
static const struct {
    const char *class_prefix; /* "": any */
    const char *suffix;       /* whole components */
} linear_kinds[] = {
    { "FalconFor", "self_attention.query_key_value.weight" }, /* FalconLinear */
    { "FalconFor", "self_attention.dense.weight" },
    { "FalconFor", "mlp.dense_h_to_4h.weight" },
    { "FalconFor", "mlp.dense_4h_to_h.weight" },
    { "Llama4", "feed_forward.router.weight" },            /* Llama4Router */
    { "PhimoeFor", "mlp.router.weight" },                  /* PhimoeTopKRouter */
    { "IdeficsFor", "lm_head.weight" },                    /* IdeficsDecoupledLinear */
    { "DeepseekV4For", "self_attn.o_a_proj.weight" },      /* DeepseekV4GroupedLinear */
    { "", "out_proj.weight" }, /* of torch's attention: NonDynamicallyQuantizableLinear */
};

/* Linear layers in these are Conv1D, which stores its weight transposed. */
static const struct {
    const char *block; /* class of the block, or NULL */
    const char *model; /* begin of config.json's class, or NULL */
} conv1d_homes[] = {
    { "GPT2Block", NULL },
    { NULL, "OpenAIGPT" },
    { NULL, "GPT2" },
    { NULL, "ImageGPT" },
    { NULL, "DecisionTransformer" },
};
static const char *const conv1d_names[] = {
    "c_attn.weight",
    "q_attn.weight",
    "c_proj.weight",
    "c_fc.weight",
};

/* Modules that are embeddings wherever they stand, and lists of such. */
static const char *const embedding_names[] = {
    "embed_tokens",       "embed_positions",         "shared", "word_embeddings", "embed",
    "position_embedding", "token_type_embeddings",   "wte",    "position_embeddings",
    "wpe",                "relative_attention_bias",
};

static bool
has_suffix(berthi_text name, const char *suffix)
{
    const uint64_t length = strlen(suffix);

    return berthi_text_ends(name, suffix)
           && (name.length == length || name.bytes[name.length - length - 1] == '.');
}

static bool
has_word(berthi_text name, const char *word)
{
    const uint64_t length = strlen(word);

    for (uint64_t i = 0; i + length <= name.length; i++)
        if (memcmp(name.bytes + i, word, (size_t)length) == 0)
            return true;
    return false;
}

static bool
is_linear_kind(const char *class_name, berthi_text name)
{
    for (size_t i = 0; i < sizeof linear_kinds / sizeof *linear_kinds; i++)
        if (strncmp(class_name, linear_kinds[i].class_prefix,
                    strlen(linear_kinds[i].class_prefix)) == 0
            && has_suffix(name, linear_kinds[i].suffix))
            return true;
    return false;
}

/* The path of the module whose weight it is, without an index at its end. */
static berthi_text
find_module(berthi_text name)
{
    berthi_text last;
    berthi_text module = berthi_build_split(name, &last);
    const berthi_text list = berthi_build_split(module, &last);

    return last.length > 0 && build_is_digit(last.bytes[0]) ? list : module;
}

static bool
is_embedding(berthi_text name)
{
    const berthi_text module = find_module(name);

    for (size_t i = 0; i < sizeof embedding_names / sizeof *embedding_names; i++)
        if (has_suffix(module, embedding_names[i]))
            return true;
    return false;
}

/* The output of torch's attention, which is known by its other weight. */
static bool
is_torch_attention(const berthi_build *build, berthi_text name)
{
    static const char output[] = "out_proj.weight";
    static const char input[] = "in_proj_weight";
    const uint64_t kept = name.length - berthi_min_u64(name.length, strlen(output));
    build_range near;

    if (!has_suffix(name, output))
        return false;
    near = berthi_build_below(build, (berthi_text){ name.bytes, kept - (kept > 0) });
    for (uint32_t i = near.first; i < near.end; i++) {
        const berthi_text other = build_name(build->made->parameters[i]);

        if (other.length == kept + strlen(input) && has_suffix(other, input))
            return true;
    }
    return false;
}

/*
 * Without a description: what other layers than linear ones are called, by the
 * name of the module alone; everything else is one. Patches are embedded by
 * linear layers, where that takes a matrix.
 */
static bool
is_guessed_linear(berthi_text name)
{
    static const char *const others[] = { "embed", "wte", "wpe", "norm", "router" };
    berthi_text module;

    (void)berthi_build_split(find_module(name), &module);
    if (has_word(module, "patch_embed") || has_word(module, "linear"))
        return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has_word(module, others[i]))
            return false;
    return !has_suffix(name, "gate.weight");
}

bool
berthi_build_is_linear(const berthi_build *build, berthi_text name, bool *out_kind)
{
    berthi_text rest;
    const build_scope *const scope = berthi_build_scope(build, name, &rest);
    const berthi_json_value *at;
    const char *pattern;

    *out_kind = false;
    if (is_embedding(name))
        return false;
    if (!build->made->is_named && is_torch_attention(build, name)) {
        *out_kind = true;
        return false;
    }
    if (scope->entry == NULL)
        return is_guessed_linear(name);
    at = berthi_json_first(berthi_build_member(scope, "not_linear"));
    for (; at != NULL; at = berthi_json_next(at))
        if (berthi_json_can_read_string(at, &pattern)
            && berthi_build_is_within(scope, pattern, rest)) {
            *out_kind = is_linear_kind(scope->class_name, name);
            return false;
        }
    return true;
}

static bool
is_floating(int32_t dtype)
{
    return dtype == BERTH_F16 || dtype == BERTH_BF16 || dtype == BERTH_F32
           || dtype == BERTH_F64;
}

/* Floating parameters take the dtype of the load; a few have one of their own. */
static int32_t
find_dtype(const berthi_build *build, const berthi_parameter *parameter)
{
    berthi_text rest;
    const build_scope *const scope =
        berthi_build_scope(build, build_name(parameter), &rest);
    const berthi_json_value *at;

    if (!is_floating(parameter->dtype))
        return parameter->dtype;
    at = berthi_json_first(berthi_build_member(scope, "dtypes"));
    for (; at != NULL; at = berthi_json_next(at)) {
        const char *word;
        int32_t dtype;

        if (!berthi_build_is_within(scope, berthi_json_key(at), rest)
            || !berthi_json_can_read_string(at, &word))
            continue;
        dtype = berthi_format_torch_dtype(word, strlen(word));
        if (dtype != BERTHI_NO_DTYPE)
            return dtype;
    }
    return build->options->dtype;
}

/* JetMoE's MLPs are made of nothing else, and do not say so. */
static bool
is_of_experts(berthi_text name)
{
    return has_word(name, "experts") || has_suffix(name, "mlp.input_linear.weight")
           || has_suffix(name, "mlp.output_linear.weight");
}

void
berthi_build_describe_parameter(const berthi_build *build, berthi_parameter *parameter)
{
    const berthi_text name = { parameter->name, parameter->name_length };

    parameter->dtype = find_dtype(build, parameter);
    parameter->is_linear = false;
    parameter->is_linear_kind = false;
    if (parameter->rank == 2 && name.length > strlen("weight")
        && has_suffix(name, "weight"))
        parameter->is_linear =
            berthi_build_is_linear(build, name, &parameter->is_linear_kind);
    parameter->is_experts = !parameter->is_linear && is_of_experts(name)
                            && (parameter->rank == 3 || parameter->piece_count > 1);
}

static bool
is_conv1d_home(const berthi_build *build, const berthi_parameter *parameter)
{
    const berthi_module *const block = berthi_module_block(parameter->module);

    for (size_t i = 0; i < sizeof conv1d_homes / sizeof *conv1d_homes; i++) {
        const char *const home = conv1d_homes[i].block;

        if (home != NULL
                ? block != NULL && strcmp(block->class_name, home) == 0
                : strncmp(build->options->class_name, conv1d_homes[i].model,
                          strlen(conv1d_homes[i].model)) == 0)
            return true;
    }
    return false;
}

void
berthi_build_mark_conv1d(berthi_build *build)
{
    for (uint32_t i = 0; i < build->made->parameter_count; i++) {
        berthi_parameter *const parameter = build->made->parameters[i];
        const berthi_text name = { parameter->name, parameter->name_length };

        if (!parameter->is_linear || parameter->module == NULL
            || !is_conv1d_home(build, parameter))
            continue;
        for (size_t k = 0; k < sizeof conv1d_names / sizeof *conv1d_names; k++)
            if (has_suffix(name, conv1d_names[k]))
                parameter->is_conv1d = true;
    }
}
