/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify_foreign.c - weights of methods that berth names and never decodes:
 * GPTQ, AWQ, quanto, MLX, compressed-tensors and whatever word config.json has. They can
 * be listed and verified all the same: structure and sizes are plain safetensors.
 */
#include <string.h>

#include "quant/classify_walk.h"
#include "quant/format.h"

static const char *const decoded_methods[] = { "", "bitsandbytes", "fp8", "fbgemm_fp8",
                                               "mxfp4" };

bool
berthi_classify_is_foreign(const char *method)
{
    for (size_t i = 0; i < sizeof decoded_methods / sizeof *decoded_methods; i++)
        if (strcmp(method, decoded_methods[i]) == 0)
            return false;
    return true;
}

/* "gptq", "compressed-tensors nvfp4-pack-quantized": kept as long as the records. */
static const char *
copy_method(berthi_walk *walk, const char *method, const char *format)
{
    const size_t length = strlen(method);
    const size_t format_length = strlen(format);
    char *const text = berthi_arena_alloc(&walk->out->arena,
                                          length + 1 + format_length + 1, 1);

    if (text == NULL) {
        berthi_walk_stop(walk,
                         berthi_fail_memory(walk->error, "listing quantized weights"));
        return NULL;
    }
    memcpy(text, method, length + 1);
    if (format_length > 0) {
        text[length] = ' ';
        memcpy(text + length + 1, format, format_length + 1);
    }
    return text;
}

/* What the weight's method is called: config.json's word before the sign's. */
static const char *
method_of(berthi_walk *walk, const char *sign)
{
    const berthi_config *const config = walk->config;

    if (!walk->is_foreign)
        return sign;
    if (walk->config_method == NULL)
        walk->config_method = copy_method(walk, config->quant_method,
                                          config->quant_format);
    return walk->config_method;
}

/* Foreign layouts are not checked: what another weight has taken stays there. */
static void
collect(berthi_walk *walk, berthi_group *group, berthi_text prefix, const char *suffix)
{
    const berthi_member member =
        berthi_walk_find(walk, group->weight.position, prefix, suffix);

    if (member.is_there && !berthi_walk_is_claimed(walk, member.position))
        berthi_walk_collect(walk, group, &member);
}

static void
add(berthi_walk *walk, const berthi_group *group, const char *sign)
{
    const berthi_member *const weight = &group->weight;
    const char *const method = method_of(walk, sign);
    uint64_t shape[BERTH_MAX_RANK];
    berthi_quantized *record;

    if (method == NULL)
        return;
    berthi_walk_shape(walk, weight, shape);
    record = berthi_walk_add(walk, group, BERTH_ENCODING_FOREIGN, shape,
                             weight->tensor.rank);
    if (record == NULL)
        return;
    record->method = method;
    walk->foreign++;
    if (walk->foreign_method == NULL)
        walk->foreign_method = method;
}

/* What was counted as one value is several, where config.json says of how many bits. */
static void
count_packed(berthi_walk *walk, const berthi_member *weight)
{
    const uint64_t bits = walk->config->bits;
    const uint64_t stored = berth_dtype_bits(weight->tensor.dtype);

    if (bits != 0 && bits < stored)
        walk->out->parameter_count += weight->tensor.elements * stored / bits
                                      - weight->tensor.elements;
}

static bool
has(const berthi_walk *walk, const berthi_member *weight, const char *name)
{
    return berthi_walk_find(walk, weight->position, berthi_walk_module(weight), name)
        .is_there;
}

/* I32 as most have it; other whole numbers (AWQ's I16, Nunchaku's I8) beside scales. */
static bool
is_qweight(const berthi_walk *walk, const berthi_member *weight)
{
    switch (weight->tensor.dtype) {
    case BERTH_I32: return true;
    case BERTH_I16:
    case BERTH_U16:
    case BERTH_U32:
    case BERTH_I8:
    case BERTH_U8:
        return weight->tensor.rank >= 2
               && (has(walk, weight, "scales") || has(walk, weight, "wscales"));
    default: return false;
    }
}

/* M.qweight with its qzeros and scales; GPTQ has g_idx, AWQ has not. False: it is none. */
bool
berthi_classify_gptq(berthi_walk *walk, const berthi_member *weight)
{
    static const char *const names[] = { "qzeros", "scales", "g_idx", "wscales", "wzeros" };
    const berthi_text module = berthi_walk_module(weight);
    const char *sign = "awq";
    berthi_group group;

    if (!is_qweight(walk, weight))
        return false;
    if (has(walk, weight, "g_idx"))
        sign = "gptq";
    else if (has(walk, weight, "wscales"))
        sign = "packed with scales";
    berthi_walk_group(walk, weight, &group);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        collect(walk, &group, module, names[i]);
    add(walk, &group, sign);
    count_packed(walk, weight);
    return true;
}

/*
 * P._data, packed P._data._data, beside P._scale: a tensor of optimum-quanto, whose models
 * have nothing about it in config.json. `owner` is P or P._data with a dot. False: it is none.
 */
bool
berthi_classify_quanto(berthi_walk *walk, const berthi_member *weight, berthi_text owner)
{
    static const char packed[] = "._data.";
    const size_t length = sizeof packed - 1;
    berthi_group group;

    if (weight->tensor.dtype != BERTH_I8 && weight->tensor.dtype != BERTH_U8
        && !berthi_classify_is_float8(weight->tensor.dtype))
        return false;
    if (owner.length > length && berthi_text_ends(owner, packed))
        owner.length -= length - 1;
    if (!berthi_walk_find(walk, weight->position, owner, "_scale").is_there)
        return false;
    berthi_walk_group(walk, weight, &group);
    collect(walk, &group, owner, "_scale");
    collect(walk, &group, owner, "_shift");
    add(walk, &group, "quanto");
    return true;
}

/* M.weight with its scales, and biases or none; config.json names no method. */
void
berthi_classify_mlx(berthi_walk *walk, const berthi_member *weight)
{
    const berthi_text module = berthi_walk_module(weight);
    berthi_group group;

    if (weight->tensor.dtype != BERTH_U32 || weight->tensor.rank < 2
        || !berthi_walk_is_weight(weight)
        || !berthi_walk_find(walk, weight->position, module, "scales").is_there)
        return;
    berthi_walk_group(walk, weight, &group);
    collect(walk, &group, module, "scales");
    collect(walk, &group, module, "biases");
    add(walk, &group, "mlx");
    count_packed(walk, weight);
}

/* P or P_packed with scales of whatever names, as compressed-tensors has them. */
void
berthi_classify_foreign(berthi_walk *walk, const berthi_member *weight, const char *sign)
{
    static const char *const of_weight[] = { "_scale", "_scale_inv", "_scale_2",
                                             "_global_scale", "_zero_point", "_g_idx",
                                             "_shape" };
    static const char *const of_module[] = { "scale", BERTHI_OTHER_SCALES };
    const berthi_text module = berthi_walk_module(weight);
    berthi_text stem;
    berthi_group group;

    if (!berthi_walk_has_suffix(&weight->tensor, "_packed", &stem))
        stem = berthi_walk_name(weight);
    berthi_walk_group(walk, weight, &group);
    for (size_t i = 0; i < sizeof of_weight / sizeof *of_weight; i++)
        collect(walk, &group, stem, of_weight[i]);
    for (size_t i = 0; berthi_walk_is_weight(weight)
                       && i < sizeof of_module / sizeof *of_module; i++)
        collect(walk, &group, module, of_module[i]);
    add(walk, &group, sign);
}
