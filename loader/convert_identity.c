/* SPDX-License-Identifier: Apache-2.0 */
/* convert_identity.c - what tells one conversion from another, as lines of a text. */
#include <string.h>

#include "loader/convert_job.h"
#include "loader/digest.h"
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
                                     weight->is_turned };

        crc = berthi_digest_crc32(crc, weight->name, weight->name_length);
        crc = berthi_digest_crc32(crc, decided, sizeof decided);
    }
    return crc;
}

static berth_status
spell_identity(const berthi_convert *convert, berthi_json_put put, void *user,
               uint64_t *out_bytes, berth_error *error)
{
    const berth_convert_options *const options = &convert->options;
    const berth_checkpoint *const c = convert->checkpoint;
    const char *const type = berth_encoding_name(options->type);
    berthi_json_text text;

    berthi_json_text_begin(&text, put, user, error);
    spell_words(&text, "type", &type, 1);
    if (options->type != BERTH_ENCODING_NATIVE) {
        const char *const storage = berth_dtype_name(options->storage);

        spell_number(&text, "block size", options->block_size);
        spell_number(&text, "double quantization", options->double_quant != 0);
        spell_words(&text, "storage", &storage, 1);
        if (options->has_skips)
            spell_number(&text, "modules to skip", options->skip_count);
        spell_words(&text, "module to skip", options->skip_modules, options->skip_count);
    }
    if (options->compute_dtype != NULL)
        spell_words(&text, "compute dtype", &options->compute_dtype, 1);
    spell_number(&text, "bytes of a shard", options->max_shard_bytes);
    spell_number(&text, "decisions", digest_recipe(convert));
    for (uint32_t i = 0; i < c->shard_count; i++) {
        spell_words(&text, "source", &c->shards[i].name, 1);
        spell_number(&text, "bytes", c->shards[i].file.identity.bytes);
        spell_number(&text, "modified",
                     (uint64_t)c->shards[i].file.identity.mtime_ns);
    }
    return berthi_json_text_end(&text, out_bytes);
}

static berth_status
put_identity(void *user, const char *bytes, uint64_t size, uint64_t offset,
             berth_error *error)
{
    char *const text = user;

    (void)error;
    memcpy(text + offset, bytes, size);
    return BERTH_OK;
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
    return spell_identity(convert, put_identity, convert->identity, NULL, error);
}
