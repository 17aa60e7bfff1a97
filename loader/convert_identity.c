/* SPDX-License-Identifier: Apache-2.0 */
/* convert_identity.c - what tells one conversion from another, as lines of a text. */
#include <string.h>

#include "kernels/digest.h"
#include "loader/convert_job.h"
#include "quant/era.h"
#include "quant/json_text.h"

static void
spell_words(berthi_json_text *text, const char *name, const char *const *words,
            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        berthi_json_text_add_words(text, name);
        berthi_json_text_add_words(text, " ");
        berthi_json_text_add_escaped(text, words[i], strlen(words[i]), BERTHI_JSON_ASCII);
        berthi_json_text_add_words(text, "\n");
    }
}

static void
spell_number(berthi_json_text *text, const char *name, uint64_t number)
{
    berthi_json_text_add_words(text, name);
    berthi_json_text_add_words(text, " ");
    berthi_json_text_add_number(text, number);
    berthi_json_text_add_words(text, "\n");
}

/* The decisions, whatever rules, globs and release they come from. */
static uint32_t
digest_recipe(const berthi_convert *convert)
{
    const berthi_recipe *const recipe = &convert->recipe;
    uint32_t crc = 0;

    for (uint32_t i = 0; i < recipe->weight_count; i++) {
        const berthi_recipe_weight *const weight = &recipe->weights[i];
        const uint32_t decided[] = { weight->name_length,
                                     (uint32_t)weight->storage.encoding,
                                     (uint32_t)weight->storage.dtype,
                                     weight->is_turned
                                         + 2u * berthi_recipe_is_kept(weight) };

        crc = berthi_digest_crc32(crc, weight->name, weight->name_length);
        crc = berthi_digest_crc32(crc, decided, sizeof decided);
    }
    return crc;
}

static void
spell_word(berthi_json_text *text, const char *name, const char *word)
{
    spell_words(text, name, &word, 1);
}

/* Their number first: a list that is longer is told as such. */
static void
spell_list(berthi_json_text *text, const char *names, const char *name,
           const char *const *words, uint32_t count)
{
    spell_number(text, names, count);
    spell_words(text, name, words, count);
}

static void
spell_rules(berthi_json_text *text, const berthi_rules_file *file)
{
    spell_number(text, "rules", file->count);
    for (uint32_t i = 0; i < file->count; i++)
        spell_word(text, "rule", file->rules[i].text);
}

/* Which weights are quantized, and to what. */
static void
spell_quantization(berthi_json_text *text, const berthi_convert *convert)
{
    const berth_convert_options *const options = &convert->options;

    /* Rules may ask for 4-bit weights whatever the others are. */
    if (options->type != BERTH_ENCODING_INT8 || convert->recipe.rules_file.count > 0) {
        spell_number(text, "block size", options->block_size);
        spell_number(text, "double quantization", options->double_quant != 0);
        spell_word(text, "storage", berth_dtype_name(options->storage));
    }
    spell_word(text, "like", berthi_era_name(convert->recipe.era));
    spell_number(text, "experts", options->takes_experts != 0);
    if (options->has_skips)
        spell_list(text, "modules to skip", "module to skip", options->skip_modules,
                   options->skip_count);
    else
        spell_word(text, "modules to skip", "automatic");
    spell_list(text, "globs to keep", "keep", options->keep, options->keep_count);
    spell_list(text, "globs of the only ones", "only", options->only, options->only_count);
    spell_rules(text, &convert->recipe.rules_file);
    spell_word(text, "compute dtype", berthi_convert_compute_dtype(convert));
}

static void
spell_source(berthi_json_text *text, const berth_checkpoint *c)
{
    for (uint32_t i = 0; i < c->shard_count; i++) {
        spell_word(text, "source", c->shards[i].name);
        spell_number(text, "bytes", c->shards[i].file.identity.bytes);
        spell_number(text, "modified", (uint64_t)c->shards[i].file.identity.mtime_ns);
    }
}

/*
 * A line for each option, in words: of two jobs that differ the first line that
 * does is shown. The decisions stand for whatever words leave out.
 */
static berth_status
spell_identity(const berthi_convert *convert, berthi_json_put put, void *user,
               uint64_t *out_bytes, berth_error *error)
{
    const berth_convert_options *const options = &convert->options;
    const bool is_plain = options->type == BERTH_ENCODING_NATIVE;
    berthi_json_text text;

    berthi_json_text_begin(&text, put, user, error);
    spell_word(&text, "type", is_plain ? "plain" : berth_encoding_name(options->type));
    spell_word(&text, "dtype",
               options->dtype >= 0 ? berth_dtype_name(options->dtype) : "of the model");
    if (!is_plain)
        spell_quantization(&text, convert);
    spell_number(&text, "bytes of a shard", options->max_shard_bytes);
    spell_source(&text, convert->checkpoint);
    spell_number(&text, "decisions", digest_recipe(convert));
    return berthi_json_text_end(&text, out_bytes);
}

berth_status
berthi_convert_identify(berthi_convert *convert, berth_error *error)
{
    berth_status status =
        spell_identity(convert, NULL, NULL, &convert->identity_bytes, error);

    if (status != BERTH_OK)
        return status;
    convert->identity_bytes++; /* NUL */
    convert->identity = berthi_memory_zalloc(convert->context, BERTHI_PURPOSE_DOCUMENT,
                                             convert->identity_bytes);
    if (convert->identity == NULL)
        return berthi_fail_memory(error, "starting a conversion");
    return spell_identity(convert, berthi_json_put_memory, convert->identity, NULL, error);
}
