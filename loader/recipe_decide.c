/* SPDX-License-Identifier: Apache-2.0 */
/* recipe_decide.c - what each weight is to be stored as, and the sum of it. */
#include <string.h>

#include "kernels/number.h"
#include "loader/document.h"
#include "loader/recipe_weight.h"
#include "quant/format.h"

#define CAUSE_CAPACITY 512u

/* ------------------------------------------------------------------- decisions */

static berth_status
read_rules(berthi_recipe *recipe, const char *path, berth_error *error)
{
    berthi_document document;
    berth_status status =
        berthi_document_read(recipe->context, path, BERTHI_RULES_LIMIT, BERTH_REASON_RULES,
                             "a file of rules", &document, error);

    if (status == BERTH_OK)
        status = berthi_rules_file_parse(recipe->context, document.text, document.bytes,
                                         path, &recipe->rules_file, error);
    berthi_document_fini(&document);
    return status;
}

static berth_status
make_rules(berthi_recipe *recipe, const berthi_model_source *source,
           const berth_convert_options *options, berth_error *error)
{
    const berthi_rules_options rules = {
        .era = recipe->era,
        .type = options->type,
        .dtype = recipe->dtype,
        .has_skips = options->has_skips != 0,
        .skips = options->skip_modules,
        .skip_count = options->skip_count,
        .takes_experts = options->takes_experts != 0,
        .takes_remade = !recipe->is_written,
        .keep = options->keep,
        .keep_count = options->keep_count,
        .only = options->only,
        .only_count = options->only_count,
        .file = options->rules != NULL ? &recipe->rules_file : NULL,
    };
    berth_status status = BERTH_OK;

    if (options->rules != NULL)
        status = read_rules(recipe, options->rules, error);
    if (status == BERTH_OK)
        status = berthi_rules_create(recipe->context, &rules, recipe->architecture,
                                     source, &recipe->rules, error);
    if (status == BERTH_OK)
        status = berthi_coverage_init(&recipe->coverage, recipe->context, recipe->rules,
                                      error);
    return status;
}

/* Floats become other floats; everything else stays. */
static int32_t
cast_dtype(int32_t stored, int32_t wanted)
{
    return berthi_is_number(stored) && berthi_is_number(wanted) ? wanted
                                                                                  : stored;
}

/* How a weight is stored when nothing is to be quantized. */
static berthi_storage
plain_storage(const berthi_recipe *recipe, const berthi_recipe_weight *weight,
              uint32_t position, bool is_cast)
{
    const int32_t stored = berthi_recipe_values_dtype(recipe, weight);
    const int32_t loaded = recipe->architecture->parameter_of[position]->dtype;

    return (berthi_storage){ .encoding = BERTH_ENCODING_NATIVE,
                             .dtype = is_cast ? cast_dtype(stored, loaded) : stored };
}

static berthi_storage
decided_storage(const berthi_recipe *recipe, const berthi_recipe_weight *weight,
                const berth_convert_options *options, const berthi_decision *decision)
{
    const int32_t stored = berthi_recipe_values_dtype(recipe, weight);

    return (berthi_storage){
        .encoding = decision->encoding,
        .dtype = cast_dtype(stored, decision->dtype),
        .storage = options->storage,
        .block_size = options->block_size,
        .is_double = options->double_quant != 0,
    };
}

/* bitsandbytes holds Conv1D as [columns, rows]; plain numbers are [rows, columns]. */
bool
berthi_recipe_is_turned(const berthi_recipe *recipe, uint32_t position, int32_t encoding)
{
    const berthi_recipe_weight *const weight = &recipe->weights[position];
    const bool will_be = encoding != BERTH_ENCODING_NATIVE;
    const berthi_quantized *record;
    bool was_turned;

    if (!recipe->architecture->parameter_of[position]->is_conv1d || weight->rank != 2)
        return false;
    record = berthi_recipe_record(recipe, weight);
    was_turned = record != NULL && record->encoding <= BERTH_ENCODING_INT8;
    return was_turned != will_be;
}

bool
berthi_recipe_has_inputs_first(const berthi_recipe *recipe, uint32_t position)
{
    return recipe->architecture->parameter_of[position]->is_conv1d
           && berthi_recipe_record(recipe, &recipe->weights[position]) == NULL;
}

/* Blocks do not run across experts: then each can be taken out of the stack. */
static bool
is_cut_by_experts(const berthi_recipe_weight *weight, const berthi_decision *decision)
{
    return decision->is_per_expert && weight->shape[0] > 0
           && weight->elements / weight->shape[0] % weight->storage.block_size != 0;
}

/* What would help: blocks that an expert has a whole number of, if there are such. */
static const char *
refusal_of_cut(const berthi_recipe_weight *weight)
{
    const uint64_t elements = weight->elements / weight->shape[0];
    const uint64_t largest = elements & (~elements + 1); /* power of two that divides them */

    return berthi_format_is_block_size(largest)
               ? "a block would hold values of two experts: choose a smaller block size"
               : "a block of any size would hold values of two experts: keep it as it is";
}

/* Plain numbers that stay what they are. */
static bool
is_unchanged(const berthi_recipe *recipe, const berthi_recipe_weight *weight)
{
    return weight->storage.encoding == BERTH_ENCODING_NATIVE
           && weight->storage.dtype == berthi_recipe_entry(recipe, weight)->dtype;
}

static berth_status
fail_storage(const berthi_recipe *recipe, const berthi_recipe_weight *weight,
             const char *why, berth_error *error)
{
    const berthi_about about = berthi_recipe_about(recipe, weight);

    return berthi_fail(error, BERTH_REASON_UNSUPPORTED, &about,
                       "cannot be stored as %s: %s",
                       berth_encoding_name(weight->storage.encoding), why);
}

/* Why the weight cannot be stored as it was decided; NULL: it can. */
static const char *
find_refusal(const berthi_recipe_weight *weight, const berthi_decision *decision)
{
    if (!berthi_stored_can_name(weight->name, weight->name_length,
                                weight->storage.encoding))
        return "the last part of its name is not \"weight\"";
    if (is_cut_by_experts(weight, decision))
        return refusal_of_cut(weight);
    return berthi_stored_refusal(&weight->storage, weight->shape, weight->rank);
}

static berth_status
decide_by_rules(berthi_recipe *recipe, uint32_t position,
                const berth_convert_options *options, berthi_decision *decision,
                berth_error *error)
{
    berthi_recipe_weight *const weight = &recipe->weights[position];
    const char *why;

    *decision = berthi_rules_decide(recipe->rules, position);
    weight->storage = decided_storage(recipe, weight, options, decision);
    if (weight->storage.encoding == BERTH_ENCODING_NATIVE)
        return BERTH_OK;
    recipe->quantized_count++;
    why = find_refusal(weight, decision);
    return why == NULL ? BERTH_OK : fail_storage(recipe, weight, why, error);
}

/* As the library counts: no buffers, 4-bit codes as two values a byte. */
static uint64_t
count_parameters(const berthi_recipe *recipe, uint32_t position,
                 const berthi_stored *first)
{
    const berthi_recipe_weight *const weight = &recipe->weights[position];
    const int32_t encoding = weight->storage.encoding;

    if (recipe->architecture->parameter_of[position]->is_buffer)
        return 0;
    if (berthi_format_is_4bit(encoding))
        return first->bytes * 2;
    return weight->elements;
}

/* Sums up what was decided for a weight. */
static void
count(berthi_recipe *recipe, uint32_t position, const berthi_decision *decision)
{
    berthi_recipe_weight *const weight = &recipe->weights[position];
    berthi_stored stored[BERTHI_STORED_MAX];
    berthi_model_tensor tensor;
    uint64_t source_bytes = 0;
    uint64_t turned[2];
    uint64_t stored_bytes = 0;

    /* As it will lie: INT8 has a maximum for each of those rows. */
    weight->output_count = berthi_stored_list(&weight->storage,
                                              berthi_recipe_stored_shape(weight, turned),
                                              weight->rank, stored);
    recipe->output_capacity += weight->output_count;
    recipe->parameters += count_parameters(recipe, position, &stored[0]);
    recipe->kept_count += berthi_recipe_is_kept(weight);
    if (recipe->rules == NULL)
        return;
    for (uint32_t i = 0; i < weight->output_count; i++)
        stored_bytes += stored[i].bytes;
    berthi_recipe_get_tensor(recipe, position, &tensor);
    (void)berthi_format_can_size(weight->storage.dtype, weight->elements, &source_bytes);
    berthi_coverage_add(&recipe->coverage, &tensor, decision, source_bytes, stored_bytes);
    if (berthi_recipe_is_kept(weight))
        berthi_coverage_keep(&recipe->coverage, decision);
}

static berth_status
decide(berthi_recipe *recipe, uint32_t position, const berth_convert_options *options,
       berth_error *error)
{
    berthi_recipe_weight *const weight = &recipe->weights[position];
    berthi_decision decision;
    berth_status status = BERTH_OK;

    if (recipe->rules != NULL)
        status = decide_by_rules(recipe, position, options, &decision, error);
    else
        weight->storage = plain_storage(recipe, weight, position, options->dtype >= 0);
    if (status != BERTH_OK)
        return status;
    weight->is_turned =
        berthi_recipe_is_turned(recipe, position, weight->storage.encoding);
    if (weight->record == BERTHI_NO_RECORD)
        weight->is_copied = is_unchanged(recipe, weight);
    else if (weight->storage.encoding != BERTH_ENCODING_NATIVE) /* else it is decoded */
        weight->is_copied = berthi_recipe_can_keep(recipe, weight);
    count(recipe, position, &decision);
    return BERTH_OK;
}

void
berthi_recipe_remark_skips(const berthi_recipe *recipe, berthi_findings *findings)
{
    const berthi_rules *const rules = recipe->rules;
    const berthi_skip *skips;
    uint32_t count;

    if (rules == NULL)
        return;
    skips = berthi_rules_skips(rules, &count);
    for (uint32_t i = berthi_rules_find_idle_skip(rules, 0); i != BERTHI_NO_SKIP;
         i = berthi_rules_find_idle_skip(rules, i + 1))
        berthi_findings_remark(findings, BERTH_SEVERITY_NOTE, BERTH_REASON_RULE_UNUSED,
                               &(berthi_about){ .tensor = skips[i].text,
                                                .tensor_length = strlen(skips[i].text) },
                               "the model has no such module to skip");
}

static berth_status
check_rules(const berthi_recipe *recipe, const berth_convert_options *options,
            berth_error *error)
{
    berth_status status = berthi_rules_check(recipe->rules, error);

    if (status == BERTH_OK && options->reject_skips != 0)
        status = berthi_rules_check_skips(recipe->rules, error);
    if (status != BERTH_OK || options->min_coverage == 0)
        return status;
    status = berthi_coverage_check(&recipe->coverage, recipe->rules, options->min_coverage,
                                   error);
    /* What left out too much is what its caller has to know now. */
    if (status != BERTH_OK)
        berthi_recipe_tell(recipe, options->coverage, options->coverage_user);
    return status;
}

berth_status
berthi_recipe_decide(berthi_recipe *recipe, const berthi_model_source *source,
                     const berth_convert_options *options, berth_error *error)
{
    berth_status status = BERTH_OK;

    if (options->type != BERTH_ENCODING_NATIVE)
        status = make_rules(recipe, source, options, error);
    for (uint32_t i = 0; i < recipe->weight_count && status == BERTH_OK; i++)
        status = decide(recipe, i, options, error);
    if (status == BERTH_OK && recipe->rules != NULL)
        status = check_rules(recipe, options, error);
    if (status == BERTH_OK && recipe->rules != NULL)
        status = berthi_rules_spell_skips(recipe->rules, &recipe->skips, error);
    return status;
}

/* ------------------------------------------------------------------- reporting */

static void
tell_line(const berthi_coverage_line *from, int32_t encoding, const char *cause,
          berth_coverage_function tell, void *user)
{
    const berth_coverage line = {
        .cause = cause,
        .encoding = encoding,
        .tensors = from->tensors,
        .parameters = from->parameters,
        .source_bytes = from->source_bytes,
        .stored_bytes = from->stored_bytes,
        .kept = from->kept,
    };

    if (from->tensors > 0)
        tell(user, &line);
}

void
berthi_recipe_tell(const berthi_recipe *recipe, berth_coverage_function tell, void *user)
{
    const berthi_coverage *const coverage = &recipe->coverage;

    if (recipe->rules == NULL || tell == NULL)
        return;
    for (int32_t i = BERTH_ENCODING_NATIVE; i <= BERTH_ENCODING_INT8; i++)
        tell_line(&coverage->encodings[i], i, "", tell, user);
    for (uint32_t i = 0; i < coverage->first[BERTHI_CAUSE_COUNT]; i++) {
        const berthi_coverage_detail *const detail = &coverage->details[i];
        char cause[CAUSE_CAPACITY];

        if (detail->line.tensors == 0)
            continue; /* its decision was never made */
        berthi_rules_explain(recipe->rules, &detail->decision, cause, sizeof cause);
        tell_line(&detail->line, detail->decision.encoding, cause, tell, user);
    }
}
