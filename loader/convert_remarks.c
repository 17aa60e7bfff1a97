/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_remarks.c - what a conversion does though it may not be what was meant:
 * part of a model, a model that no loader knows, nothing that is quantized, a tied head that
 * is not skipped, experts that stay as they are, codes of what is no layer, two widths in one
 * model.
 */
#include <inttypes.h>
#include <string.h>

#include "loader/convert_job.h"
#include "loader/findings.h"
#include "loader/index.h"
#include "loader/listing.h"
#include "loader/weights.h"
#include "quant/rules_skip.h"

static void
remark_config(berthi_convert *convert, berthi_findings *findings)
{
    const bool is_plain = convert->options.type == BERTH_ENCODING_NATIVE;

    if (convert->checkpoint->config_text != NULL)
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_CONFIG_JSON,
                           &(berthi_about){ .file = convert->checkpoint->config_path },
                           "there is none: layers are guessed from the names of their "
                           "tensors, and loaders will not know %s",
                           is_plain ? "the model" : "that the new weights are quantized");
}

/* ------------------------------------------------------------ a shard of several */

/* "any-00002-of-00003.safetensors" is one of 3; 1 for other names. */
static uint32_t
count_by_name(const char *name)
{
    uint32_t number;
    uint32_t count;
    size_t stem_length;

    return berthi_weights_is_numbered(name, &number, &count, &stem_length) && count > 0
               ? count
               : 1;
}

/* How many shards the index has, if it names this file; else 1. */
static uint32_t
count_in_index(const berthi_index *index, const char *name)
{
    for (uint32_t i = 0; i < index->shard_count; i++)
        if (strcmp(index->text + index->shards[i], name) == 0)
            return index->shard_count;
    return 1;
}

/* An index that cannot be read says nothing about the file that was named. */
static uint32_t
count_by_index(berthi_convert *convert, const char *name)
{
    berthi_location *const location = &convert->location;
    berthi_index index;
    berth_error ignored;
    bool has_index = false;
    char *text;
    uint64_t bytes;
    uint32_t count = 1;

    if (berthi_location_has(location, BERTHI_INDEX_NAME, &has_index, &ignored) != BERTH_OK
        || !has_index
        || berthi_location_read(location, BERTHI_INDEX_NAME, BERTHI_INDEX_LIMIT,
                                BERTH_REASON_INDEX_JSON, &text, &bytes, &ignored)
               != BERTH_OK)
        return 1;
    if (berthi_index_parse(convert->context, text, bytes, BERTHI_INDEX_NAME, &index,
                           &ignored)
        == BERTH_OK)
        count = count_in_index(&index, name);
    berthi_index_fini(&index);
    berthi_memory_free(convert->context, BERTHI_PURPOSE_HEADER, text, bytes);
    return count;
}

static void
remark_part(berthi_convert *convert, berthi_findings *findings)
{
    const char *const name = convert->location.file;
    uint32_t count;

    if (name == NULL)
        return;
    count = count_by_name(name);
    if (count == 1)
        count = count_by_index(convert, name);
    if (count == 1)
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_PARTIAL,
                           &(berthi_about){ .file = convert->checkpoint->path },
                           "is one of %" PRIu32 " shards: only what is in it is converted",
                           count);
}

/* --------------------------------------------------------------------- weights */

typedef bool weight_test(const berthi_convert *convert, uint32_t weight);

/* How many weights are meant, and the first of them as what a remark is about. */
static uint32_t
count_weights(const berthi_convert *convert, weight_test *is_meant, berthi_about *about)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < convert->recipe.weight_count; i++) {
        const berthi_recipe_weight *const weight = &convert->recipe.weights[i];

        if (is_meant(convert, i) && count++ == 0)
            *about = (berthi_about){ .file = convert->checkpoint->path,
                                     .tensor = weight->name,
                                     .tensor_length = weight->name_length };
    }
    return count;
}

/* As by rules of a release that knows no linear layer in the model's class. */
static void
remark_none(berthi_convert *convert, berthi_findings *findings)
{
    if (convert->recipe.rules == NULL || !berthi_coverage_is_none(&convert->recipe.coverage))
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_MIN_COVERAGE,
                           &(berthi_about){ .file = convert->checkpoint->path },
                           "none of its weights is quantized: the rules leave out all of "
                           "them");
}

/* An automatic list has all that is tied. */
static void
remark_tied(berthi_convert *convert, berthi_findings *findings)
{
    const berthi_parameter *const torn = convert->recipe.rules != NULL
                                             ? berthi_rules_find_torn(convert->recipe.rules)
                                             : NULL;

    if (torn == NULL || convert->checkpoint->config_text == NULL)
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_UNSUPPORTED,
                           &(berthi_about){ .file = convert->checkpoint->path,
                                            .tensor = torn->name,
                                            .tensor_length = (size_t)torn->name_length },
                           "is the embedding once more, which is not quantized, and no "
                           "module to skip names it: transformers makes a quantized layer of "
                           "it, and does not run the model");
}

/* --------------------------------------------------------------------- experts */

static bool
is_left_stack(const berthi_convert *convert, uint32_t weight)
{
    const berthi_recipe *const recipe = &convert->recipe;

    return recipe->architecture->parameter_of[weight]->is_experts
           && recipe->weights[weight].rank == 3
           && recipe->weights[weight].storage.encoding == BERTH_ENCODING_NATIVE;
}

/* Stacks of matrices have no place in the layout of int8. */
static void
remark_experts(berthi_convert *convert, berthi_findings *findings)
{
    berthi_about about;
    uint32_t count;

    if (convert->options.type != BERTH_ENCODING_INT8 || convert->options.takes_experts == 0)
        return;
    count = count_weights(convert, is_left_stack, &about);
    if (count == 0)
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_UNSUPPORTED,
                           &about,
                           "is one of %" PRIu32 " stacks of experts that stay as they are: "
                           "int8 is for matrices, nf4 and fp4 take experts",
                           count);
}

/* ---------------------------------------------------------------------- no layers */

/* Quantized by a rule of the user's: a release quantizes layers, and experts if asked. */
static bool
is_no_layer(const berthi_convert *convert, uint32_t weight)
{
    const berthi_recipe *const recipe = &convert->recipe;
    const berthi_parameter *const p = recipe->architecture->parameter_of[weight];
    const int32_t encoding = recipe->weights[weight].storage.encoding;

    if (encoding == BERTH_ENCODING_NATIVE
        || (p->is_experts && convert->options.takes_experts != 0))
        return false;
    return !berthi_skip_is_layer(recipe->architecture, p) || p->remade != NULL
           || (p->is_alone && encoding == BERTH_ENCODING_INT8);
}

/* It makes quantized layers of linear ones alone. */
static void
remark_no_layers(berthi_convert *convert, berthi_findings *findings)
{
    berthi_about about;
    uint32_t count;

    if (convert->recipe.rules == NULL || convert->checkpoint->config_text == NULL)
        return;
    count = count_weights(convert, is_no_layer, &about);
    if (count == 0)
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_UNSUPPORTED,
                           &about,
                           "is one of %" PRIu32 " weights that rules quantize and "
                           "transformers has no quantized layers for: berth reads the model, "
                           "transformers does not",
                           count);
}

/* --------------------------------------------------------------------- mixtures */

static bool
has_other_width(const berthi_convert *convert, uint32_t weight)
{
    const int32_t encoding = convert->recipe.weights[weight].storage.encoding;

    return encoding != BERTH_ENCODING_NATIVE
           && (encoding == BERTH_ENCODING_INT8)
                  != (convert->options.type == BERTH_ENCODING_INT8);
}

/* quantization_config has a word for INT8 and one for 4 bits, and takes one of them. */
static void
remark_mixture(berthi_convert *convert, berthi_findings *findings)
{
    const bool is_int8 = convert->options.type == BERTH_ENCODING_INT8;
    berthi_about about;
    uint32_t count;

    if (convert->checkpoint->config_text == NULL)
        return;
    count = count_weights(convert, has_other_width, &about);
    if (count == 0)
        return;
    berthi_findings_remark(findings, BERTH_SEVERITY_WARNING, BERTH_REASON_UNSUPPORTED,
                           &about,
                           "is one of %" PRIu32 " weights in %s, while config.json can "
                           "promise %s alone: berth reads the model, transformers does "
                           "not run it",
                           count, is_int8 ? "4 bits" : "8 bits",
                           is_int8 ? "8 bits" : "4 bits");
}

void
berthi_convert_remark(berthi_convert *convert)
{
    berthi_findings findings;

    if (convert->options.part > 1) /* the first says it for all */
        return;
    berthi_findings_init(&findings, convert->context,
                         &(berth_open_options){ .finding = convert->options.finding,
                                                .finding_user =
                                                    convert->options.finding_user });
    remark_config(convert, &findings);
    berthi_recipe_remark_skips(&convert->recipe, &findings);
    remark_part(convert, &findings);
    remark_none(convert, &findings);
    remark_tied(convert, &findings);
    remark_experts(convert, &findings);
    remark_no_layers(convert, &findings);
    remark_mixture(convert, &findings);
    berthi_findings_fini(&findings);
}
