/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - decisions; the skip list and its matching are in rules_skip.c, what is said
 * of decisions in rules_report.c.
 */
#include "quant/rules_parts.h"

#include <string.h>

#include "kernels/number.h"
#include "quant/glob.h"
#include "quant/stored.h"

#define ARENA_BLOCK 4096u

/* ------------------------------------------------------------------ creating */

berth_status
berthi_rules_lack_memory(berth_error *error)
{
    return berthi_fail_memory(error, "preparing the rules");
}

static berth_status
take_globs(berthi_rules *rules, berthi_rules_globs *out, const char *const *texts,
           uint32_t count, const char *option, berth_error *error)
{
    out->count = count;
    out->texts = berthi_arena_alloc(&rules->arena, count * sizeof *out->texts, 8);
    out->hits = berthi_arena_alloc(&rules->arena, count * sizeof *out->hits, 8);
    if (out->texts == NULL || out->hits == NULL)
        return berthi_rules_lack_memory(error);
    for (uint32_t i = 0; i < count; i++) {
        const char *const problem = berthi_glob_check(texts[i]);

        if (problem != NULL)
            return berthi_fail(error, BERTH_REASON_RULES,
                               &(berthi_about){ .tensor = texts[i],
                                                .tensor_length = strlen(texts[i]) },
                               "a glob of %s that is none: %s", option, problem);
        out->hits[i] = 0;
        out->texts[i] = berthi_arena_text(&rules->arena, texts[i], strlen(texts[i]));
        if (out->texts[i] == NULL)
            return berthi_rules_lack_memory(error);
    }
    return BERTH_OK;
}

static berth_status
take_options(berthi_rules *rules, const berthi_rules_options *options, berth_error *error)
{
    const uint32_t count = options->file != NULL ? options->file->count : 0;
    berth_status status = take_globs(rules, &rules->keep, options->keep,
                                     options->keep_count, "keep", error);

    if (status == BERTH_OK)
        status = take_globs(rules, &rules->only, options->only, options->only_count,
                            "only", error);
    if (status != BERTH_OK)
        return status;
    rules->rule_hits = berthi_arena_alloc(&rules->arena, count * sizeof(uint64_t), 8);
    rules->is_quantized =
        berthi_arena_alloc(&rules->arena, rules->source.count * sizeof(bool), 1);
    if (rules->rule_hits == NULL || rules->is_quantized == NULL)
        return berthi_rules_lack_memory(error);
    memset(rules->rule_hits, 0, count * sizeof(uint64_t));
    memset(rules->is_quantized, 0, rules->source.count * sizeof(bool));
    return BERTH_OK;
}

berth_status
berthi_rules_create(berth_context *context, const berthi_rules_options *options,
                    const berthi_architecture *architecture,
                    const berthi_model_source *source, berthi_rules **out,
                    berth_error *error)
{
    berthi_rules *const made =
        berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *made);
    berth_status status;

    *out = NULL;
    if (made == NULL)
        return berthi_rules_lack_memory(error);
    made->options = *options;
    made->architecture = architecture;
    made->source = *source;
    berthi_arena_init(&made->arena, context, BERTHI_PURPOSE_OBJECT, ARENA_BLOCK);
    status = take_options(made, options, error);
    if (status == BERTH_OK)
        status = berthi_skip_list_create(&made->arena, options, architecture,
                                         &made->skips, error);
    if (status == BERTH_OK)
        status = berthi_skip_list_float32(&made->arena, options, architecture,
                                          &made->float32, error);
    if (status != BERTH_OK) {
        berthi_rules_destroy(made);
        return status;
    }
    *out = made;
    return BERTH_OK;
}

void
berthi_rules_destroy(berthi_rules *rules)
{
    berth_context *context;

    if (rules == NULL)
        return;
    context = rules->arena.context;
    berthi_skip_list_fini(&rules->skips);
    berthi_skip_list_fini(&rules->float32);
    berthi_arena_fini(&rules->arena);
    berthi_memory_free(context, BERTHI_PURPOSE_OBJECT, rules, sizeof *rules);
}

/* ------------------------------------------------------------------- deciding */

/* A tensor on its way to a decision. */
typedef struct candidate {
    berthi_model_tensor tensor;
    const berthi_parameter *parameter;
    berthi_decision decision;
    bool is_kept_float32;
} candidate;

/* Not quantized, because of this. */
static void
leave(candidate *c, berthi_cause cause, uint32_t number)
{
    c->decision.encoding = BERTH_ENCODING_NATIVE;
    c->decision.cause = (int32_t)cause;
    c->decision.number = number;
    c->decision.is_transposed = false;
    c->decision.is_per_expert = false;
}

static void
quantize(candidate *c, int32_t encoding, berthi_cause cause, uint32_t number)
{
    c->decision.encoding = encoding;
    c->decision.cause = (int32_t)cause;
    c->decision.number = number;
    c->decision.is_transposed = c->parameter->is_conv1d;
    c->decision.is_per_expert = c->tensor.rank == 3;
}

/* A layer that is quantized is made anew, without a dtype of its own. */
static void
quantize_layer(const berthi_rules *rules, candidate *c)
{
    quantize(c, rules->options.type, BERTHI_CAUSE_LINEAR, 0);
    if (!c->is_kept_float32)
        c->decision.dtype = rules->options.dtype;
}

/* What no encoding can do: NOT_FLOAT, SHAPE, or -1. */
static int32_t
find_obstacle(const candidate *c, int32_t encoding)
{
    const uint32_t rank = c->tensor.rank;

    if (!berthi_is_number(c->decision.dtype))
        return BERTHI_CAUSE_NOT_FLOAT;
    if (c->tensor.elements == 0
        || (rank != 2 && (rank != 3 || encoding == BERTH_ENCODING_INT8)))
        return BERTHI_CAUSE_SHAPE;
    return -1;
}

/* The first glob that matches; UINT32_MAX: none. */
static uint32_t
find_glob(const berthi_rules_globs *list, const berthi_model_tensor *tensor)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (berthi_glob_is_match(list->texts[i], tensor->name, tensor->name_length))
            return i;
    return UINT32_MAX;
}

static int32_t
rule_encoding(const berthi_rules *rules, const berthi_rule *rule)
{
    switch (rule->action) {
    case BERTHI_ACTION_NF4: return BERTH_ENCODING_NF4;
    case BERTHI_ACTION_FP4: return BERTH_ENCODING_FP4;
    case BERTHI_ACTION_INT8: return BERTH_ENCODING_INT8;
    case BERTHI_ACTION_QUANTIZE: return rules->options.type;
    default: return BERTH_ENCODING_NATIVE;
    }
}

static bool
has_shape(const berthi_rule *rule, const berthi_model_tensor *tensor)
{
    if (rule->axis_count == 0)
        return true;
    if (rule->axis_count != tensor->rank)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < rule->axes[i].minimum
            || tensor->shape[i] > rule->axes[i].maximum)
            return false;
    return true;
}

static bool
is_rule_match(const berthi_rules *rules, const berthi_rule *rule, const candidate *c)
{
    const berthi_model_tensor *const tensor = &c->tensor;
    const int32_t encoding = rule_encoding(rules, rule);

    return (rule->ranks == 0
            || (tensor->rank < 32 && (rule->ranks >> tensor->rank & 1) != 0))
           && (rule->dtypes == 0 || (rule->dtypes >> tensor->dtype & 1) != 0)
           && has_shape(rule, tensor)
           && (encoding == BERTH_ENCODING_NATIVE || find_obstacle(c, encoding) < 0)
           && berthi_glob_is_match(rule->glob, tensor->name, tensor->name_length);
}

/* The user's rules; false when they leave it to the era. */
static bool
can_follow_rules(berthi_rules *rules, candidate *c)
{
    const berthi_rules_file *const file = rules->options.file;

    for (uint32_t i = 0; file != NULL && i < file->count; i++) {
        const berthi_rule *const rule = &file->rules[i];
        const int32_t encoding = rule_encoding(rules, rule);

        if (!is_rule_match(rules, rule, c))
            continue;
        rules->rule_hits[i]++;
        if (rule->action == BERTHI_ACTION_AUTO)
            return false;
        if (encoding == BERTH_ENCODING_NATIVE)
            leave(c, BERTHI_CAUSE_RULE, i);
        else
            quantize(c, encoding, BERTHI_CAUSE_RULE, i);
        return true;
    }
    return false;
}

/* Codes that loaders would not find again, or would take for numbers to divide or join. */
static bool
is_remade(const berthi_rules *rules, const candidate *c)
{
    const int32_t type = rules->options.type;

    if (rules->options.takes_remade)
        return c->parameter->remade != NULL
               && !berthi_stored_can_name(c->tensor.name, c->tensor.name_length, type);
    return c->parameter->remade != NULL
           || (c->parameter->is_alone && type == BERTH_ENCODING_INT8);
}

/* As that release of transformers does it. */
static void
follow_era(berthi_rules *rules, candidate *c)
{
    const berthi_parameter *const parameter = c->parameter;
    const bool is_layer = berthi_skip_is_layer(rules->architecture, parameter);
    const int32_t obstacle = find_obstacle(c, rules->options.type);
    uint32_t skip;

    if (parameter->tie != NULL)
        leave(c, BERTHI_CAUSE_TIED, 0);
    else if (!is_layer && !parameter->is_experts)
        leave(c, BERTHI_CAUSE_NOT_LINEAR, 0);
    else if (!is_layer && !rules->options.takes_experts)
        leave(c, BERTHI_CAUSE_FUSED, 0);
    else if (obstacle >= 0)
        leave(c, (berthi_cause)obstacle, 0);
    else if ((skip = berthi_skip_list_find(&rules->skips, parameter)) != BERTHI_NO_SKIP)
        leave(c, BERTHI_CAUSE_SKIPPED, skip);
    else if (is_remade(rules, c))
        leave(c, BERTHI_CAUSE_REMADE, 0);
    else if (is_layer)
        quantize_layer(rules, c);
    else
        quantize(c, rules->options.type, BERTHI_CAUSE_EXPERTS, 0);
}

/* Quantized only if one of the globs agrees. */
static void
restrict_to_only(berthi_rules *rules, candidate *c)
{
    const uint32_t only = find_glob(&rules->only, &c->tensor);

    if (rules->only.count == 0 || c->decision.encoding == BERTH_ENCODING_NATIVE)
        return;
    if (only == UINT32_MAX)
        leave(c, BERTHI_CAUSE_ONLY, 0);
    else
        rules->only.hits[only]++;
}

berthi_decision
berthi_rules_decide(berthi_rules *rules, uint32_t position)
{
    candidate c = { .parameter = rules->architecture->parameter_of[position] };
    uint32_t keep;

    rules->source.get(rules->source.user, position, &c.tensor);
    /* A load casts 64-bit floats, too; nothing here can, so that they stay what they are. */
    c.decision.dtype =
        berthi_is_number(c.tensor.dtype) ? c.parameter->dtype : c.tensor.dtype;
    c.is_kept_float32 =
        berthi_is_number(c.decision.dtype)
        && berthi_skip_list_find(&rules->float32, c.parameter) != BERTHI_NO_SKIP;
    if (c.is_kept_float32)
        c.decision.dtype = BERTH_F32;
    keep = find_glob(&rules->keep, &c.tensor);
    if (keep != UINT32_MAX) {
        rules->keep.hits[keep]++;
        leave(&c, BERTHI_CAUSE_KEEP, keep);
    } else if (!can_follow_rules(rules, &c)) {
        follow_era(rules, &c);
    }
    restrict_to_only(rules, &c);
    rules->is_quantized[position] = c.decision.encoding != BERTH_ENCODING_NATIVE;
    return c.decision;
}
