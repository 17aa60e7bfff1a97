/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_report.c - what is said when all has been decided: rules, globs and entries that
 * stand for nothing, the list of what to skip, and why a tensor is what it is.
 */
#include "quant/rules_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/text.h"

static const char *const cause_names[BERTHI_CAUSE_COUNT] = {
#define BERTHI_CAUSE_NAME(identifier, words) words,
    BERTHI_CAUSES(BERTHI_CAUSE_NAME)
#undef BERTHI_CAUSE_NAME
};

static berth_status
fail_unused(const berthi_about *about, const char *what, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_RULE_UNUSED, about,
                       "%s matches no tensor, or only what was decided before it", what);
}

static berth_status
check_globs(const berthi_rules_globs *list, const char *what, berth_error *error)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->hits[i] == 0)
            return fail_unused(&(berthi_about){ .tensor = list->texts[i],
                                                .tensor_length = strlen(list->texts[i]) },
                               what, error);
    return BERTH_OK;
}

berth_status
berthi_rules_check(const berthi_rules *rules, berth_error *error)
{
    const berthi_rules_file *const file = rules->options.file;
    berth_status status = check_globs(&rules->keep, "this glob of what is kept", error);

    if (status == BERTH_OK)
        status = check_globs(&rules->only, "this glob of what alone is quantized", error);
    for (uint32_t i = 0; status == BERTH_OK && file != NULL && i < file->count; i++) {
        const berthi_rule *const rule = &file->rules[i];
        char what[48];

        snprintf(what, sizeof what, "the rule in line %" PRIu32, rule->line);
        if (rules->rule_hits[i] == 0 && !rule->is_optional)
            status = fail_unused(&(berthi_about){ .file = file->name,
                                                  .tensor = rule->glob,
                                                  .tensor_length = strlen(rule->glob) },
                                 what, error);
    }
    return status;
}

uint32_t
berthi_rules_find_idle_skip(const berthi_rules *rules, uint32_t entry)
{
    const uint32_t count = rules->options.has_skips ? rules->options.skip_count : 0;

    for (; entry < count; entry++)
        if (!berthi_skip_list_has_match(&rules->skips, entry, rules->architecture))
            return entry;
    return BERTHI_NO_SKIP;
}

berth_status
berthi_rules_check_skips(const berthi_rules *rules, berth_error *error)
{
    const uint32_t entry = berthi_rules_find_idle_skip(rules, 0);
    const char *text;

    if (entry == BERTHI_NO_SKIP)
        return BERTH_OK;
    text = rules->skips.skips[entry].text;
    return berthi_fail(error, BERTH_REASON_RULE_UNUSED,
                       &(berthi_about){ .tensor = text, .tensor_length = strlen(text) },
                       "the model has no such module to skip");
}

const berthi_parameter *
berthi_rules_find_torn(const berthi_rules *rules)
{
    const berthi_architecture *const a = rules->architecture;

    if (!rules->options.has_skips)
        return NULL;
    for (const berthi_module *module = a->root; module != NULL;
         module = berthi_module_after(module))
        for (const berthi_parameter *p = module->parameters; p != NULL; p = p->next)
            if (p->tie != NULL && berthi_skip_is_layer(a, p)
                && !berthi_skip_is_layer(a, p->tie)
                && berthi_skip_list_find(&rules->skips, p) == BERTHI_NO_SKIP)
                return p;
    return NULL;
}

berth_status
berthi_rules_spell_skips(berthi_rules *rules, berthi_skip_words *out, berth_error *error)
{
    const berthi_skip_model model = { rules->architecture, &rules->source,
                                      rules->is_quantized };
    berth_context *const context = rules->arena.context;
    const uint64_t capacity = berthi_skip_layers_most(&model);
    berthi_skip_layer *const layers = berthi_memory_array(
        context, BERTHI_PURPOSE_SCRATCH, capacity, sizeof *layers);
    uint32_t count;
    berth_status status;

    memset(out, 0, sizeof *out);
    if (layers == NULL)
        return berthi_rules_lack_memory(error);
    if (berthi_skip_layers_can_list(&model, &rules->arena, layers, &count))
        status = berthi_skip_list_spell(&rules->skips, &rules->arena, layers, count, out,
                                        error);
    else
        status = berthi_rules_lack_memory(error);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, layers,
                       capacity * sizeof *layers);
    return status;
}

const berthi_skip *
berthi_rules_skips(const berthi_rules *rules, uint32_t *out_count)
{
    *out_count = rules->skips.count;
    return rules->skips.skips;
}

uint32_t
berthi_rules_numbers(const berthi_rules *rules, berthi_cause cause)
{
    switch (cause) {
    case BERTHI_CAUSE_KEEP: return rules->keep.count;
    case BERTHI_CAUSE_RULE:
        return rules->options.file != NULL ? rules->options.file->count : 0;
    case BERTHI_CAUSE_SKIPPED: return rules->skips.count;
    default: return 1;
    }
}

static const char *
origin_words(berthi_skip_origin origin)
{
    switch (origin) {
    case BERTHI_SKIP_TIED: return " (tied)";
    case BERTHI_SKIP_LAST: return " (last parameter)";
    case BERTHI_SKIP_HEAD: return " (output head)";
    case BERTHI_SKIP_FP32: return " (kept in float32)";
    default: return "";
    }
}

void
berthi_rules_explain(const berthi_rules *rules, const berthi_decision *decision, char *text,
                     size_t capacity)
{
    const char *const name = cause_names[decision->cause];
    const char *what = "";
    const char *more = "";
    char escaped[256];

    if (decision->cause == BERTHI_CAUSE_KEEP) {
        what = rules->keep.texts[decision->number];
    } else if (decision->cause == BERTHI_CAUSE_RULE) {
        const berthi_rule *const rule = &rules->options.file->rules[decision->number];

        berth_text_escape(rule->text, strlen(rule->text), escaped, sizeof escaped);
        snprintf(text, capacity, "%s line %" PRIu32 ": %s", name, rule->line, escaped);
        return;
    } else if (decision->cause == BERTHI_CAUSE_SKIPPED) {
        const berthi_skip *const skip = &rules->skips.skips[decision->number];

        what = skip->text;
        more = origin_words(skip->origin);
    }
    berth_text_escape(what, strlen(what), escaped, sizeof escaped);
    snprintf(text, capacity, "%s%s%s%s", name, *what != '\0' ? ": " : "", escaped, more);
}
