/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_write.c - walks the document twice: once to count, once to write.
 *
 * The walk keeps the open containers in an array: no recursion. Members of the
 * open objects lie behind each other in `members`, each object's sorted.
 */
#include "quant/config_write.h"

#include <string.h>

#include "kernels/text.h"
#include "kernels/utf8.h"
#include "quant/config.h"
#include "quant/format.h"
#include "quant/heapsort.h"
#include "quant/json.h"
#include "quant/json_text.h"
#include "quant/scan.h"

#define QUANTIZATION "quantization_config"
#define INDENT "  "

/* One of an object. Without a value it is written from what was asked for. */
typedef struct member {
    const char *key;
    const berthi_json_value *value;
} member;

_Static_assert(sizeof(member) <= BERTHI_HEAPSORT_ELEMENT, "members are sorted");

/* An open container. */
typedef struct frame {
    const berthi_json_value *element; /* of an array: the next one; NULL: the end */
    uint64_t first;                   /* of an object: its members, and the next one */
    uint64_t next;
    uint64_t end;
    bool is_object;
    bool is_config;
    bool has_written;
} frame;

typedef struct writing {
    const berthi_quantization *what;
    const char *dtype;
    berthi_json_text text;
    member *members;
    uint64_t member_count;
    frame frames[BERTHI_SCAN_DEPTH];
    uint32_t depth;
} writing;

/* ---------------------------------------------------------------------- text */

static void
put_words(writing *w, const char *words)
{
    berthi_json_text_add_words(&w->text, words);
}

static void
put_line(writing *w, uint32_t depth)
{
    put_words(w, "\n");
    for (uint32_t i = 0; i < depth; i++)
        put_words(w, INDENT);
}

static void
put_string(writing *w, const char *text)
{
    berthi_json_text_add_string(&w->text, text, strlen(text), BERTHI_JSON_ASCII);
}

/* What stands between two values, in front of the second. */
static void
put_separator(writing *w, bool *has_written, uint32_t depth)
{
    if (*has_written)
        put_words(w, ",");
    *has_written = true;
    put_line(w, depth);
}

static void
put_key(writing *w, const char *key)
{
    put_string(w, key);
    put_words(w, ": ");
}

/* ------------------------------------------------------- quantization_config */

/* The members of the new one stand below it, which stands in the document. */
#define SETTING_DEPTH 2u

static void
put_setting(writing *w, bool *has_written, const char *key, const char *raw)
{
    put_separator(w, has_written, SETTING_DEPTH);
    put_key(w, key);
    put_words(w, raw);
}

static void
put_setting_string(writing *w, bool *has_written, const char *key, const char *text)
{
    put_setting(w, has_written, key, "");
    put_string(w, text);
}

static void
put_skips(writing *w, bool *has_written)
{
    const berthi_quantization *const q = w->what;
    bool has_entry = false;

    put_setting(w, has_written, "llm_int8_skip_modules",
                !q->has_skips           ? "null"
                : q->skip_count == 0 ? "[]"
                                     : "[");
    if (!q->has_skips || q->skip_count == 0)
        return;
    for (uint32_t i = 0; i < q->skip_count; i++) {
        put_separator(w, &has_entry, SETTING_DEPTH + 1);
        put_string(w, q->skips[i]);
    }
    put_line(w, SETTING_DEPTH);
    put_words(w, "]");
}

static const char *
truth(bool value)
{
    return value ? "true" : "false";
}

/* All members, alphabetically, those without meaning with their defaults. */
static void
put_quantization(writing *w)
{
    const berthi_quantization *const q = w->what;
    const bool is_8bit = q->encoding == BERTH_ENCODING_INT8;
    const char *const storage = berthi_format_torch_name(is_8bit ? BERTH_U8 : q->storage);
    bool has_written = false;

    put_words(w, "{");
    put_setting(w, &has_written, "_load_in_4bit", truth(!is_8bit));
    put_setting(w, &has_written, "_load_in_8bit", truth(is_8bit));
    put_setting_string(w, &has_written, "bnb_4bit_compute_dtype",
                       q->compute_dtype != NULL ? q->compute_dtype : "float32");
    put_setting_string(w, &has_written, "bnb_4bit_quant_storage",
                       storage != NULL ? storage : "uint8");
    put_setting_string(w, &has_written, "bnb_4bit_quant_type",
                       q->encoding == BERTH_ENCODING_NF4 ? "nf4" : "fp4");
    put_setting(w, &has_written, "bnb_4bit_use_double_quant",
                truth(!is_8bit && q->is_double));
    put_setting(w, &has_written, "llm_int8_enable_fp32_cpu_offload", "false");
    put_setting(w, &has_written, "llm_int8_has_fp16_weight", "false");
    put_skips(w, &has_written);
    put_setting(w, &has_written, "llm_int8_threshold",
                q->int8_threshold != NULL ? q->int8_threshold : "6.0");
    put_setting(w, &has_written, "load_in_4bit", truth(!is_8bit));
    put_setting(w, &has_written, "load_in_8bit", truth(is_8bit));
    put_setting_string(w, &has_written, "quant_method", "bitsandbytes");
    put_line(w, SETTING_DEPTH - 1);
    put_words(w, "}");
}

/* ------------------------------------------------------------------- members */

static bool
is_dtype_key(const char *key)
{
    return strcmp(key, "dtype") == 0 || strcmp(key, "torch_dtype") == 0;
}

/* Says how or where weights are stored, and no longer does. */
static bool
is_dropped(const char *key, const berthi_json_value *value)
{
    const char *text;

    if (strcmp(key, QUANTIZATION) == 0 || strcmp(key, "transformers_weights") == 0)
        return true;
    if (strcmp(key, "compression_config") == 0)
        return berthi_json_get(value, "quant_method") != NULL;
    return strcmp(key, "expert_dtype") == 0 && berthi_json_can_read_string(value, &text)
           && strcmp(text, "fp4") == 0;
}

static void
add_member(writing *w, const char *key, const berthi_json_value *value)
{
    w->members[w->member_count].key = key;
    w->members[w->member_count++].value = value;
}

static int
compare_members(const void *a, const void *b)
{
    return strcmp(((const member *)a)->key, ((const member *)b)->key);
}

/* Puts what is to be written of an object behind the members of those around it. */
static void
gather_members(writing *w, const berthi_json_value *object, bool is_config)
{
    const uint64_t first = w->member_count;
    const bool is_root = w->depth == 0;
    /* Any other config may be one that transformers does not know as such. */
    const bool is_model = is_root || berthi_json_get(object, "model_type") != NULL;
    bool has_dtype = false;

    for (const berthi_json_value *value = berthi_json_first(object); value != NULL;
         value = berthi_json_next(value)) {
        const char *const key = berthi_json_key(value);

        has_dtype |= is_dtype_key(key);
        if (!is_config || !is_dropped(key, value))
            add_member(w, key, value);
    }
    if (is_root && w->what != NULL)
        add_member(w, QUANTIZATION, NULL);
    if (is_config && is_model && w->dtype != NULL && !has_dtype)
        add_member(w, "dtype", NULL);
    berthi_heapsort(w->members + first, w->member_count - first, sizeof *w->members,
                    compare_members);
}

/* -------------------------------------------------------------------- values */

static void
put_leaf(writing *w, const berthi_json_value *value)
{
    const char *text;
    bool is_true;

    if (berthi_json_can_read_string(value, &text))
        put_string(w, text);
    else if (berthi_json_can_read_number(value, &text))
        put_words(w, text);
    else if (berthi_json_can_read_bool(value, &is_true))
        put_words(w, truth(is_true));
    else
        put_words(w, "null");
}

/* Writes a value, or the beginning of a container, which is then open. */
static void
put_value(writing *w, const berthi_json_value *value, bool is_config)
{
    const berthi_json_kind kind = berthi_json_kind_of(value);
    frame opened = { .is_object = kind == BERTHI_JSON_OBJECT, .is_config = is_config };
    bool is_empty;

    if (kind != BERTHI_JSON_OBJECT && kind != BERTHI_JSON_ARRAY) {
        put_leaf(w, value);
        return;
    }
    if (opened.is_object) {
        opened.first = w->member_count;
        gather_members(w, value, is_config);
        opened.next = opened.first;
        opened.end = w->member_count;
        is_empty = opened.first == opened.end;
    } else {
        opened.element = berthi_json_first(value);
        is_empty = opened.element == NULL;
    }
    put_words(w, opened.is_object ? "{" : "[");
    if (is_empty)
        put_words(w, opened.is_object ? "}" : "]");
    else
        w->frames[w->depth++] = opened;
}

/* The config of a model inside: called so, or (encoder, decoder) typed so. */
static bool
is_inner_config(const member *m)
{
    return berthi_json_get(m->value, "model_type") != NULL
           || berthi_text_ends(berthi_text_of(m->key), "_config");
}

static void
put_member(writing *w, const member *m, bool is_config)
{
    put_key(w, m->key);
    if (is_config && w->dtype != NULL && is_dtype_key(m->key))
        put_string(w, w->dtype);
    else if (m->value == NULL)
        put_quantization(w);
    else
        put_value(w, m->value, is_config && is_inner_config(m));
}

/* Ends the innermost container. */
static void
leave(writing *w)
{
    const frame *const f = &w->frames[--w->depth];

    put_line(w, w->depth);
    put_words(w, f->is_object ? "}" : "]");
    if (f->is_object)
        w->member_count = f->first;
}

/* The next value of the innermost container, or its end. */
static void
step(writing *w)
{
    frame *const f = &w->frames[w->depth - 1];

    if (f->is_object ? f->next == f->end : f->element == NULL) {
        leave(w);
        return;
    }
    put_separator(w, &f->has_written, w->depth);
    if (f->is_object) {
        put_member(w, &w->members[f->next++], f->is_config);
    } else {
        const berthi_json_value *const element = f->element;

        f->element = berthi_json_next(element);
        put_value(w, element, false);
    }
}

/* Hands the whole text to `put`; NULL: only counts. It cannot fail. */
static uint64_t
put_document(writing *w, const berthi_json_value *root, berthi_json_put put, void *user)
{
    uint64_t bytes;

    berthi_json_text_begin(&w->text, put, user, NULL);
    w->member_count = 0;
    put_value(w, root, true);
    while (w->depth > 0)
        step(w);
    put_words(w, "\n");
    (void)berthi_json_text_end(&w->text, &bytes);
    return bytes;
}

/* -------------------------------------------------------------------- checks */

/*
 * Members that can be open at once: each has a colon, but for a dtype in every
 * open object and the new quantization_config.
 */
static uint64_t
member_capacity(const char *text, uint64_t bytes)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < bytes; i++)
        count += text[i] == ':';
    return berthi_min_u64(count, BERTHI_JSON_VALUES) + BERTHI_SCAN_DEPTH + 1;
}

static berth_status
check_skips(const berthi_quantization *what, berth_error *error)
{
    for (uint32_t i = 0; what != NULL && i < what->skip_count; i++) {
        const size_t length = strlen(what->skips[i]);

        if (berthi_utf8_check((const unsigned char *)what->skips[i], length) != length)
            return berthi_fail_argument(error, "skip_modules", "is not UTF-8");
    }
    return BERTH_OK;
}

static berth_status
fail_large(const char *file, uint64_t bytes, berth_error *error)
{
    return berthi_fail(error, BERTH_REASON_CONFIG_JSON,
                       &(berthi_about){ .file = file,
                                        .has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL
                                               | BERTH_HAS_BYTES,
                                        .expected = BERTHI_CONFIG_LIMIT, .actual = bytes },
                       "larger than a config.json may be when it is written anew");
}

/* Counts, then writes; w->members are there. */
static berth_status
write_document(writing *w, berth_context *context, const berthi_json_value *root,
               const char *file, char **out_text, uint64_t *out_bytes,
               berth_error *error)
{
    const uint64_t bytes = put_document(w, root, NULL, NULL);

    if (bytes > BERTHI_CONFIG_LIMIT)
        return fail_large(file, bytes, error);
    *out_text = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, bytes);
    if (*out_text == NULL)
        return berthi_fail_memory(error, "writing config.json");
    *out_bytes = put_document(w, root, berthi_json_put_memory, *out_text);
    return BERTH_OK;
}

berth_status
berthi_config_rewrite(berth_context *context, const berthi_config_text *config,
                      const berthi_quantization *what, const char *dtype, char **out_text,
                      uint64_t *out_bytes, berth_error *error)
{
    const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, config->file };
    const uint64_t capacity = member_capacity(config->text, config->bytes);
    writing w = { .what = what, .dtype = dtype };
    const berthi_json_value *root;
    berthi_json *document;
    berth_status status = check_skips(what, error);

    *out_text = NULL;
    *out_bytes = 0;
    if (status == BERTH_OK)
        status = berthi_json_parse(context, config->text, config->bytes,
                                   BERTHI_JSON_NONFINITE, &origin, &document, error);
    if (status != BERTH_OK)
        return status;
    root = berthi_json_root(document);
    w.members = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, capacity,
                                    sizeof *w.members);
    if (w.members == NULL)
        status = berthi_fail_memory(error, "writing config.json");
    else if (berthi_json_kind_of(root) != BERTHI_JSON_OBJECT)
        status = berthi_fail(error, BERTH_REASON_CONFIG_JSON,
                             &(berthi_about){ .file = config->file }, "not an object");
    else
        status = write_document(&w, context, root, config->file, out_text, out_bytes,
                                error);
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, w.members,
                       capacity * sizeof *w.members);
    berthi_json_destroy(document);
    return status;
}
