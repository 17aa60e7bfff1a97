/* SPDX-License-Identifier: Apache-2.0 */
/* plan_map.c - a device map imitated, or read from a file; see plan_map.h. */
#include "loader/plan_map.h"

#include <string.h>

#include "loader/document.h"
#include "loader/findings.h"
#include "placement/imitate.h"
#include "quant/dequantize.h"

#define MAP_LIMIT UINT64_C(67108864) /* bytes of the file */
#define CONFIG_SKIPS "llm_int8_skip_modules"

/* The one who listens to remarks. */
static void
listen(const berthi_recipe *recipe, const berth_plan_options *options,
       berthi_findings *out)
{
    const berth_open_options none = { .finding = options->finding,
                                      .finding_user = options->finding_user };

    berthi_findings_init(out, recipe->context, &none);
}

void
berthi_plan_remark_model(const berthi_recipe *recipe, const berth_plan_options *options)
{
    const char *const class_name = recipe->checkpoint->config.architecture;
    char shown[BERTHI_SHOWN_CAPACITY];
    berthi_findings findings;

    if (!recipe->architecture->is_approximate)
        return;
    listen(recipe, options, &findings);
    berthi_findings_shown(class_name, strlen(class_name), shown);
    if (recipe->architecture->class_name[0] == '\0')
        berthi_findings_remark(&findings, BERTH_SEVERITY_WARNING,
                               BERTH_REASON_ARCHITECTURES_JSON, NULL,
                               "%s: the order of layers is guessed from the names of "
                               "tensors", recipe->config == NULL   ? "there is no config.json"
                                          : class_name[0] == '\0' ? "config.json names no class"
                                                                  : shown);
    else
        berthi_findings_remark(&findings, BERTH_SEVERITY_WARNING,
                               BERTH_REASON_ARCHITECTURES_JSON, NULL,
                               "the checkpoint has tensors that the description of %s "
                               "does not know: where they run is guessed",
                               recipe->architecture->class_name);
    berthi_findings_fini(&findings);
}

void
berthi_plan_remark_skips(const berthi_recipe *recipe, const berth_plan_options *options)
{
    berthi_findings findings;

    listen(recipe, options, &findings);
    berthi_recipe_remark_skips(recipe, &findings);
    berthi_findings_fini(&findings);
}

/* ------------------------------------------------------------------ a map's file */

static void
tell_stray(void *user, const char *path, uint64_t length, const char *problem)
{
    const berthi_about about = { .tensor = path, .tensor_length = (size_t)length };

    berthi_findings_remark(user, BERTH_SEVERITY_WARNING, BERTH_REASON_DEVICE_MAP, &about,
                           "%s", problem);
}

static berth_status
read_map(const berthi_recipe *recipe, const berth_plan_options *options,
         berthi_device_map *out, berth_error *error)
{
    berthi_findings findings;
    berthi_document document;
    berth_status status =
        berthi_document_read(recipe->context, options->device_map, MAP_LIMIT,
                             BERTH_REASON_DEVICE_MAP, "a device map", &document, error);

    if (status == BERTH_OK)
        status = berthi_device_map_parse(recipe->context, document.text, document.bytes,
                                         options->device_map, out, error);
    berthi_document_fini(&document);
    if (status != BERTH_OK)
        return status;
    listen(recipe, options, &findings);
    status = berthi_device_map_check(out, recipe->architecture, options->device_map,
                                     tell_stray, &findings, error);
    berthi_findings_fini(&findings);
    return status;
}

/* ------------------------------------------------------------------- the counting */

/* What an imitation is asked for; `skips` points into options or config.json. */
typedef struct imitating {
    const berthi_recipe *recipe;
    const berth_plan_options *options;
    berthi_plan_mode mode;
    berthi_count_options count;
    berthi_budgets budgets;
    const char **config_skips; /* config_count of them, or NULL */
    uint32_t config_count;
} imitating;

/* Of a weight that berth does not decode, whose shape is that of its codes; NULL: none. */
static const char *
find_foreign(const berthi_classify_result *quantized)
{
    for (uint32_t i = 0; i < quantized->count; i++) {
        const berthi_quantized *const record = berthi_classify_record(quantized, i);

        if (!berthi_decoder_is_there(record))
            return record->method;
    }
    return NULL;
}

/* Loaders take the quantization that a checkpoint has; config.json need not tell it. */
static berth_status
find_encoding(imitating *i, berth_error *error)
{
    const berth_checkpoint *const checkpoint = i->recipe->checkpoint;
    const berthi_config *const config = &checkpoint->config;
    const char *const foreign = find_foreign(&checkpoint->quantized);

    i->count.encoding = i->options->type;
    if (i->options->type != BERTH_ENCODING_NATIVE
        || (!config->has_quantization && foreign == NULL))
        return BERTH_OK;
    if (foreign != NULL || strcmp(config->quant_method, "bitsandbytes") != 0)
        return berthi_fail(error, BERTH_REASON_UNSUPPORTED, NULL,
                           "what transformers counts for weights that are quantized by %s "
                           "is not known to berth: leave mode out, or give a device map",
                           foreign != NULL ? foreign : config->quant_method);
    if (config->loads_8bit)
        i->count.encoding = BERTH_ENCODING_INT8;
    else
        i->count.encoding = strcmp(config->quant_type, "fp4") == 0 ? BERTH_ENCODING_FP4
                                                                   : BERTH_ENCODING_NF4;
    return BERTH_OK;
}

static const berthi_json_value *
find_config_skips(const berthi_recipe *recipe)
{
    static const char quantization[] = "quantization_config";
    const berthi_json_value *const root =
        recipe->config != NULL ? berthi_json_root(recipe->config) : NULL;
    const berthi_json_value *found = berthi_json_get(root, quantization);

    if (berthi_json_kind_of(found) != BERTHI_JSON_OBJECT)
        found = berthi_json_get(berthi_json_get(root, "text_config"), quantization);
    return berthi_json_get(found, CONFIG_SKIPS);
}

/* The list that a quantized checkpoint was made with. */
static berth_status
take_config_skips(imitating *i, berth_error *error)
{
    const berthi_json_value *const list = find_config_skips(i->recipe);

    if (berthi_json_kind_of(list) != BERTHI_JSON_ARRAY)
        return BERTH_OK;
    for (const berthi_json_value *v = berthi_json_first(list); v != NULL;
         v = berthi_json_next(v))
        i->config_count++;
    i->config_skips =
        berthi_memory_array(i->recipe->context, BERTHI_PURPOSE_SCRATCH, i->config_count,
                            sizeof *i->config_skips);
    if (i->config_skips == NULL)
        return berthi_fail_memory(error, "the list of modules that are not quantized");
    for (const berthi_json_value *v = berthi_json_first(list); v != NULL;
         v = berthi_json_next(v))
        if (!berthi_json_can_read_string(v, &i->config_skips[i->count.skip_count++]))
            return berthi_fail(error, BERTH_REASON_CONFIG_JSON, NULL,
                               CONFIG_SKIPS " holds something that is no name");
    i->count.has_skips = true;
    i->count.skips = i->config_skips;
    return BERTH_OK;
}

static void
free_config_skips(imitating *i)
{
    if (i->config_skips != NULL)
        berthi_memory_free(i->recipe->context, BERTHI_PURPOSE_SCRATCH, i->config_skips,
                           i->config_count * sizeof *i->config_skips);
}

static berth_status
decide_counting(imitating *i, berth_error *error)
{
    berth_status status;

    i->count.era = i->recipe->era;
    i->count.dtype = i->recipe->dtype;
    i->count.has_skips = i->options->has_skips != 0;
    i->count.skips = i->options->skip_modules;
    i->count.skip_count = i->options->skip_count;
    status = find_encoding(i, error);
    if (status == BERTH_OK && i->options->type == BERTH_ENCODING_NATIVE
        && i->count.encoding != BERTH_ENCODING_NATIVE && !i->count.has_skips)
        status = take_config_skips(i, error);
    return status;
}

/* ------------------------------------------------------------------- the budgets */

/* What that release finds on this machine; this version drives no GPU. */
static berth_status
find_budgets(imitating *i, berth_error *error)
{
    berthi_budget_machine machine = { .gpu_count = 0 };
    berth_host host;
    berth_status status;

    if (i->options->max_memory != NULL)
        return berthi_budgets_parse(i->options->max_memory, &i->budgets, error);
    status = berth_host_get(i->recipe->context, &host, error);
    if (status != BERTH_OK)
        return status;
    if (host.memory_available == UINT64_MAX)
        return berthi_fail_argument(error, "max_memory", "is not given, and how much "
                                    "memory is free is not known");
    machine.host_available = host.memory_available;
    berthi_budgets_default(i->recipe->era, &machine, &i->budgets);
    return BERTH_OK;
}

/* ---------------------------------------------------------------- the imitation */

static void
tell_remarks(const imitating *i, const berthi_imitation *made, const berthi_tree *tree)
{
    berthi_findings findings;
    char text[BERTH_MESSAGE_CAPACITY];

    listen(i->recipe, i->options, &findings);
    for (uint32_t k = 0;
         berthi_imitation_has_remark(made, tree, k, text, sizeof text); k++)
        berthi_findings_remark(&findings, BERTH_SEVERITY_WARNING, BERTH_REASON_NO_FIT,
                               NULL, "%s", text);
    berthi_findings_fini(&findings);
}

/* Plans know GPUs by numbers from 0 on, and no mps. */
static berth_status
check_devices(const berthi_imitation *made, berth_error *error)
{
    char name[BERTHI_BUDGET_NAME];

    for (uint32_t i = 0; i < made->budgets.count; i++) {
        const berthi_budget *const budget = &made->budgets.items[i];

        if (budget->kind != BERTHI_BUDGET_MPS && budget->number >= 0
            && budget->number <= UINT32_MAX)
            continue;
        berthi_budget_name(budget, name);
        return berthi_fail(error, BERTH_REASON_ARGUMENT,
                           &(berthi_about){ .tensor = "max_memory",
                                            .tensor_length = strlen("max_memory") },
                           "names %s, which is no device of a plan", name);
    }
    return BERTH_OK;
}

static berthi_tier
tier_of(const berthi_budget *budget)
{
    switch (budget->kind) {
    case BERTHI_BUDGET_CPU: return (berthi_tier){ BERTHI_TIER_CPU, 0 };
    case BERTHI_BUDGET_DISK: return (berthi_tier){ BERTHI_TIER_DISK, 0 };
    case BERTHI_BUDGET_GPU:
    case BERTHI_BUDGET_MPS: break;
    }
    return (berthi_tier){ BERTHI_TIER_GPU, (uint32_t)budget->number };
}

static berth_status
make_map(const imitating *i, const berthi_imitation *made, berthi_device_map *out,
         berth_error *error)
{
    berth_context *const context = i->recipe->context;
    berthi_map_line *const lines = berthi_memory_array(
        context, BERTHI_PURPOSE_SCRATCH, made->placed_count, sizeof *lines);
    berth_status status;

    if (lines == NULL)
        return berthi_fail_memory(error, "a device map");
    for (uint32_t k = 0; k < made->placed_count; k++)
        lines[k] = (berthi_map_line){
            .path = made->placed[k].path,
            .path_length = made->placed[k].path_length,
            .tier = tier_of(&made->budgets.items[made->placed[k].device]),
        };
    status = berthi_device_map_make(context, lines, made->placed_count, out, error);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, lines,
                       made->placed_count * sizeof *lines);
    return status;
}

static berth_status
imitate(const imitating *i, berthi_device_map *out, berth_error *error)
{
    const berthi_imitate_options options = {
        .era = i->recipe->era,
        .mode = i->mode,
        .budgets = &i->budgets,
        .is_quantized = i->count.encoding != BERTH_ENCODING_NATIVE,
        .has_cpu_offload = i->options->cpu_offload != 0,
        .has_buffer_offload = i->options->buffer_offload != 0,
    };
    berthi_imitation made = { .placed_count = 0 };
    berthi_tree tree;
    berth_status status = berthi_tree_count(i->recipe->context, i->recipe->architecture,
                                            &i->count, &tree, error);

    if (status != BERTH_OK)
        goto done;
    status = berthi_imitate(i->recipe->context, &tree, &options, &made, error);
    if (status != BERTH_OK)
        goto done;
    tell_remarks(i, &made, &tree);
    status = berthi_imitation_check(&made, error);
    if (status == BERTH_OK)
        status = check_devices(&made, error);
    if (status == BERTH_OK)
        status = make_map(i, &made, out, error);
done:
    if (made.context != NULL)
        berthi_imitation_fini(&made);
    berthi_tree_fini(&tree);
    return status;
}

berth_status
berthi_plan_map(const berthi_recipe *recipe, const berth_plan_options *options,
                berthi_device_map *out, berth_error *error)
{
    imitating i = { .recipe = recipe, .options = options };
    berth_status status;

    memset(out, 0, sizeof *out);
    if (options->device_map != NULL)
        return read_map(recipe, options, out, error);
    if (options->mode == NULL || !berthi_plan_mode_can_parse(options->mode, &i.mode))
        return berthi_fail_argument(error, "mode", "is none of auto, balanced, "
                                                   "balanced_low_0 and sequential");
    status = decide_counting(&i, error);
    if (status == BERTH_OK)
        status = find_budgets(&i, error);
    if (status == BERTH_OK)
        status = imitate(&i, out, error);
    free_config_skips(&i);
    return status;
}
