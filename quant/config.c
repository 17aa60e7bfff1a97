/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - config.json, member by member; see config.h. */
#include "quant/config.h"

#include <stdio.h>
#include <string.h>

#include "quant/format.h"
#include "quant/json.h"

#define ARENA_BLOCK 1024u

/* A config.json on its way into `config`; the first failure stays. */
typedef struct reading {
    berthi_config *config;
    const char *file;
    berth_error *error;
    berth_status status;
} reading;

static void
refuse(reading *r, const char *member, const char *wanted)
{
    if (r->status == BERTH_OK)
        r->status = berthi_fail(r->error, BERTH_REASON_CONFIG_JSON,
                                &(berthi_about){ .file = r->file },
                                "member \"%s\" is not %s", member, wanted);
}

static void
keep_text(reading *r, const char *text, const char **out)
{
    const char *const copy = berthi_arena_text(&r->config->arena, text, strlen(text));

    if (copy != NULL)
        *out = copy;
    else if (r->status == BERTH_OK)
        r->status = berthi_fail_memory(r->error, "reading config.json");
}

static void
take_text(reading *r, const berthi_json_value *object, const char *member,
          const char **out)
{
    const berthi_json_value *const value = berthi_json_find(object, member);
    const char *text;

    if (value == NULL)
        return;
    if (berthi_json_can_read_string(value, &text))
        keep_text(r, text, out);
    else
        refuse(r, member, "a string");
}

/* True when the member is there. */
static bool
has_taken_bool(reading *r, const berthi_json_value *object, const char *member, bool *out)
{
    const berthi_json_value *const value = berthi_json_find(object, member);

    if (value == NULL)
        return false;
    if (!berthi_json_can_read_bool(value, out))
        refuse(r, member, "true or false");
    return true;
}

static void
take_architecture(reading *r, const berthi_json_value *root)
{
    const berthi_json_value *const value = berthi_json_find(root, "architectures");
    const berthi_json_value *const first = berthi_json_first(value);
    const char *text;

    if (value == NULL)
        return;
    if (berthi_json_kind_of(value) != BERTHI_JSON_ARRAY)
        refuse(r, "architectures", "an array");
    else if (first != NULL && !berthi_json_can_read_string(first, &text))
        refuse(r, "architectures", "an array of strings");
    else if (first != NULL)
        keep_text(r, text, &r->config->architecture);
}

/* transformers 5 writes "dtype", earlier ones "torch_dtype"; some "torch.bfloat16". */
static void
take_dtype(reading *r, const berthi_json_value *object)
{
    berthi_config *const config = r->config;

    take_text(r, object, "dtype", &config->dtype_name);
    if (config->dtype_name[0] == '\0')
        take_text(r, object, "torch_dtype", &config->dtype_name);
    if (strncmp(config->dtype_name, "torch.", 6) == 0)
        config->dtype_name += 6;
    config->dtype = berthi_format_torch_dtype(config->dtype_name,
                                              strlen(config->dtype_name));
}

static void
take_ties(reading *r, const berthi_json_value *object)
{
    bool ties = false;

    if (has_taken_bool(r, object, "tie_word_embeddings", &ties))
        r->config->ties_embeddings = ties;
}

/* [rows, columns] of an FP8 block; both at least 1. */
static void
take_block(reading *r, const berthi_json_value *object)
{
    const berthi_json_value *const value = berthi_json_find(object, "weight_block_size");
    const berthi_json_value *const rows = berthi_json_first(value);
    const berthi_json_value *const columns = berthi_json_next(rows);
    uint64_t sizes[2];

    if (value == NULL) {
        r->config->has_no_block = berthi_json_get(object, "weight_block_size") != NULL;
        return;
    }
    if (berthi_json_kind_of(value) != BERTHI_JSON_ARRAY
        || !berthi_json_can_read_unsigned(rows, &sizes[0])
        || !berthi_json_can_read_unsigned(columns, &sizes[1])
        || berthi_json_next(columns) != NULL || sizes[0] == 0 || sizes[1] == 0
        || sizes[0] > UINT32_MAX || sizes[1] > UINT32_MAX) {
        refuse(r, "weight_block_size", "two positive integers");
        return;
    }
    r->config->block_rows = (uint32_t)sizes[0];
    r->config->block_columns = (uint32_t)sizes[1];
}

/* As it is spelled; transformers takes no integer for it, others do. */
static void
take_threshold(reading *r, const berthi_json_value *object)
{
    const char *number;
    char text[32];
    size_t digits;

    if (!berthi_json_can_read_number(berthi_json_get(object, "llm_int8_threshold"), &number))
        return;
    digits = strspn(number, "0123456789");
    if (strpbrk(number, ".eE") != NULL) {
        keep_text(r, number, &r->config->int8_threshold);
    } else if (number[digits] == '\0' && digits + sizeof ".0" <= sizeof text) {
        snprintf(text, sizeof text, "%s.0", number);
        keep_text(r, text, &r->config->int8_threshold);
    }
}

static void
take_quantization(reading *r, const berthi_json_value *object)
{
    berthi_config *const config = r->config;
    const char *format;

    if (object == NULL)
        return;
    if (berthi_json_kind_of(object) != BERTHI_JSON_OBJECT) {
        refuse(r, "quantization_config", "an object");
        return;
    }
    config->has_quantization = true;
    take_text(r, object, "quant_method", &config->quant_method);
    take_block(r, object);
    /* Other methods' members may mean anything: taken where the type fits. */
    if (berthi_json_can_read_string(berthi_json_get(object, "format"), &format))
        keep_text(r, format, &config->quant_format);
    berthi_json_can_read_unsigned(berthi_json_get(object, "bits"), &config->bits);
    has_taken_bool(r, object, "load_in_4bit", &config->loads_4bit);
    has_taken_bool(r, object, "load_in_8bit", &config->loads_8bit);
    has_taken_bool(r, object, "bnb_4bit_use_double_quant", &config->uses_double);
    take_text(r, object, "bnb_4bit_quant_type", &config->quant_type);
    take_text(r, object, "bnb_4bit_quant_storage", &config->quant_storage);
    take_text(r, object, "bnb_4bit_compute_dtype", &config->compute_dtype);
    take_threshold(r, object);
    /* The first files of bitsandbytes did not name their method. */
    if (config->quant_method[0] == '\0' && (config->loads_4bit || config->loads_8bit))
        config->quant_method = "bitsandbytes";
    config->scheme = berthi_scheme_read(object, config->quant_method);
}

/* Other models have a "decoder", too, which need not be one of words. */
static bool
is_t5gemma(const berthi_json_value *root)
{
    const char *type = "";

    return berthi_json_can_read_string(berthi_json_find(root, "model_type"), &type)
           && strcmp(type, "t5gemma") == 0;
}

const berthi_json_value *
berthi_config_find_language(const berthi_json_value *root)
{
    static const char *const nests[] = { "decoder", "text_config", "llm_config",
                                         "language_config" };
    const berthi_json_value *const thinker = berthi_json_find(root, "thinker_config");
    const size_t first = is_t5gemma(root) ? 0 : 1;

    if (thinker != NULL)
        root = thinker;
    for (size_t i = first; i < sizeof nests / sizeof *nests; i++) {
        const berthi_json_value *const nest = berthi_json_get(root, nests[i]);

        if (berthi_json_kind_of(nest) == BERTHI_JSON_OBJECT)
            return nest;
    }
    return root;
}

static void
take_all(reading *r, const berthi_json_value *root)
{
    const berthi_json_value *const language = berthi_json_find(root, "text_config");
    const berthi_json_value *quantization = berthi_json_find(root, "quantization_config");
    berthi_config *const config = r->config;

    if (berthi_json_kind_of(root) != BERTHI_JSON_OBJECT) {
        r->status = berthi_fail(r->error, BERTH_REASON_CONFIG_JSON,
                                &(berthi_about){ .file = r->file }, "not an object");
        return;
    }
    take_architecture(r, root);
    take_text(r, root, "model_type", &config->model_type);
    take_dtype(r, root);
    if (config->dtype_name[0] == '\0')
        take_dtype(r, berthi_config_find_language(root));
    take_ties(r, root);
    if (config->ties_embeddings < 0)
        take_ties(r, language);
    if (quantization == NULL)
        quantization = berthi_json_find(language, "quantization_config");
    take_quantization(r, quantization);
    take_text(r, root, "transformers_version", &config->transformers_version);
    take_text(r, root, "expert_dtype", &config->expert_dtype);
    take_text(r, root, "transformers_weights", &config->weights_file);
}

void
berthi_config_init(berthi_config *config, berth_context *context)
{
    memset(config, 0, sizeof *config);
    berthi_arena_init(&config->arena, context, BERTHI_PURPOSE_DOCUMENT, ARENA_BLOCK);
    config->architecture = "";
    config->model_type = "";
    config->dtype_name = "";
    config->dtype = BERTHI_NO_DTYPE;
    config->ties_embeddings = -1;
    config->transformers_version = "";
    config->weights_file = "";
    config->expert_dtype = "";
    config->quant_method = "";
    config->quant_format = "";
    config->quant_type = "";
    config->quant_storage = "";
    config->compute_dtype = "";
    config->int8_threshold = "";
}

berth_status
berthi_config_parse(berth_context *context, const char *text, uint64_t bytes,
                    const char *file, berthi_config *out, berth_error *error)
{
    reading r = { .config = out, .file = file, .error = error };
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, file };
    berthi_json *document;

    berthi_config_init(out, context);
    r.status = berthi_json_parse(context, text, bytes, BERTHI_JSON_NONFINITE, &origin,
                                 &document, error);
    if (r.status != BERTH_OK)
        return r.status;
    take_all(&r, berthi_json_root(document));
    berthi_json_destroy(document);
    if (r.status != BERTH_OK) {
        berthi_config_fini(out);
        berthi_config_init(out, context);
    }
    return r.status;
}

void
berthi_config_fini(berthi_config *config)
{
    berthi_arena_fini(&config->arena);
}
