/* SPDX-License-Identifier: Apache-2.0 */
/* config_values.c - typed look-ups in a model's config.json by dotted keys. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/digits.h"
#include "loader/checkpoint.h"

#define MEMBER_CAPACITY 256u /* of one part of a key */

struct berth_config {
    berth_context *context;
    berthi_json *document;
};

/* ------------------------------------------------------------------- opening */

berth_status
berth_config_open(berth_context *context, const berth_checkpoint *checkpoint,
                  berth_config **out_config, berth_error *error)
{
    berth_config *config;
    berth_status status;

    berthi_error_clear(error);
    if (out_config == NULL)
        return berthi_fail_argument(error, "out_config", "is NULL");
    *out_config = NULL;
    if (context == NULL)
        return berthi_fail_argument(error, "context", "is NULL");
    if (checkpoint == NULL)
        return berthi_fail_argument(error, "checkpoint", "is NULL");
    config = berthi_memory_zalloc(context, BERTHI_PURPOSE_OBJECT, sizeof *config);
    if (config == NULL)
        return berthi_fail_memory(error, "a configuration");
    config->context = context;
    status = berthi_checkpoint_parse_config(checkpoint, context, &config->document, error);
    if (status == BERTH_OK && config->document == NULL)
        status = berthi_fail(error, BERTH_REASON_NOT_FOUND,
                             &(berthi_about){ .file = checkpoint->config_path },
                             "the model has no such file");
    if (status == BERTH_OK)
        *out_config = config;
    else
        berth_config_close(config);
    return status;
}

void
berth_config_close(berth_config *config)
{
    if (config == NULL)
        return;
    berthi_json_destroy(config->document);
    berthi_memory_free(config->context, BERTHI_PURPOSE_OBJECT, config, sizeof *config);
}

/* ---------------------------------------------------------------------- keys */

/*
 * The next part of a key, its backslashes resolved; *key moves behind it and its
 * dot, to NULL behind the last one. False: longer than any member is.
 */
static bool
can_take_part(const char **key, char part[MEMBER_CAPACITY])
{
    const char *at = *key;
    size_t length = 0;

    while (*at != '\0' && *at != '.') {
        if (*at == '\\' && at[1] != '\0')
            at++;
        if (length + 1 == MEMBER_CAPACITY)
            return false;
        part[length++] = *at++;
    }
    part[length] = '\0';
    *key = *at == '.' ? at + 1 : NULL;
    return true;
}

/* The element of this number, in plain digits without leading zeros. */
static const berthi_json_value *
find_element(const berthi_json_value *array, const char *digits)
{
    const berthi_json_value *value = berthi_json_first(array);
    uint64_t number;

    if ((digits[0] == '0' && digits[1] != '\0')
        || !berthi_digits_can_parse(digits, strlen(digits), BERTHI_JSON_VALUES, &number))
        return NULL;
    for (; value != NULL && number > 0; number--)
        value = berthi_json_next(value);
    return value;
}

/* NULL: the key leads nowhere. "" is the document itself. */
static const berthi_json_value *
find(const berth_config *config, const char *key)
{
    const berthi_json_value *value = berthi_json_root(config->document);
    char part[MEMBER_CAPACITY];

    if (key[0] == '\0')
        return value;
    while (value != NULL && key != NULL) {
        if (!can_take_part(&key, part))
            return NULL;
        value = berthi_json_kind_of(value) == BERTHI_JSON_ARRAY
                    ? find_element(value, part)
                    : berthi_json_get(value, part);
    }
    return value;
}

static int32_t
public_kind(berthi_json_kind kind)
{
    switch (kind) {
    case BERTHI_JSON_OBJECT: return BERTH_CONFIG_OBJECT;
    case BERTHI_JSON_ARRAY: return BERTH_CONFIG_ARRAY;
    case BERTHI_JSON_STRING: return BERTH_CONFIG_STRING;
    case BERTHI_JSON_NUMBER: return BERTH_CONFIG_NUMBER;
    case BERTHI_JSON_BOOL: return BERTH_CONFIG_BOOL;
    case BERTHI_JSON_NULL: return BERTH_CONFIG_NULL;
    default: return BERTH_CONFIG_ABSENT;
    }
}

int32_t
berth_config_kind_of(const berth_config *config, const char *key)
{
    if (config == NULL || key == NULL)
        return BERTH_CONFIG_ABSENT;
    return public_kind(berthi_json_kind_of(find(config, key)));
}

/* -------------------------------------------------------------------- values */

static berthi_about
about(const char *key)
{
    return (berthi_about){ .tensor = key, .tensor_length = strlen(key) };
}

static berth_status
fail_kind(const char *key, const char *wanted, berth_error *error)
{
    const berthi_about key_about = about(key);

    return berthi_fail(error, BERTH_REASON_ARGUMENT, &key_about,
                       "is no %s in the model's config.json", wanted);
}

/* What lies under `key`: something, and not null. */
static berth_status
look_up(const berth_config *config, const char *key, const void *out,
        const berthi_json_value **value, berth_error *error)
{
    berthi_about key_about;
    berthi_json_kind kind;

    berthi_error_clear(error);
    *value = NULL;
    if (config == NULL)
        return berthi_fail_argument(error, "config", "is NULL");
    if (key == NULL)
        return berthi_fail_argument(error, "key", "is NULL");
    if (out == NULL)
        return berthi_fail_argument(error, "out", "is NULL");
    *value = find(config, key);
    kind = berthi_json_kind_of(*value);
    if (kind != BERTHI_JSON_ABSENT && kind != BERTHI_JSON_NULL)
        return BERTH_OK;
    key_about = about(key);
    return berthi_fail(error, BERTH_REASON_NOT_FOUND, &key_about,
                       kind == BERTHI_JSON_NULL ? "is null in the model's config.json"
                                                : "is not in the model's config.json");
}

berth_status
berth_config_string(const berth_config *config, const char *key, const char **out,
                    berth_error *error)
{
    const berthi_json_value *value;
    berth_status status;

    if (out != NULL)
        *out = NULL;
    status = look_up(config, key, out, &value, error);
    if (status == BERTH_OK && !berthi_json_can_read_string(value, out))
        status = fail_kind(key, "text", error);
    return status;
}

/* Digits are exact; anything else that is whole is so as a double. */
static bool
can_read_integer(const berthi_json_value *value, int64_t *out)
{
    const char *text;
    uint64_t magnitude;
    bool is_negative;
    double number;

    if (!berthi_json_can_read_number(value, &text))
        return false;
    is_negative = *text == '-';
    text += is_negative ? 1 : 0;
    if (!berthi_digits_can_take(&text, text + strlen(text), UINT64_MAX, &magnitude))
        return false;
    if (*text == '\0') {
        if (magnitude > (uint64_t)INT64_MAX + (is_negative ? 1 : 0))
            return false;
        *out = is_negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
        return true;
    }
    if (!berthi_json_can_read_double(value, &number) || !(fabs(number) < 0x1p63)
        || trunc(number) != number)
        return false;
    *out = (int64_t)number;
    return true;
}

berth_status
berth_config_integer(const berth_config *config, const char *key, int64_t *out,
                     berth_error *error)
{
    const berthi_json_value *value;
    int64_t number = 0;
    berth_status status;

    if (out != NULL)
        *out = 0;
    status = look_up(config, key, out, &value, error);
    if (status == BERTH_OK && !can_read_integer(value, &number))
        status = fail_kind(key, "whole number of 64 bits", error);
    if (status == BERTH_OK)
        *out = number;
    return status;
}

berth_status
berth_config_double(const berth_config *config, const char *key, double *out,
                    berth_error *error)
{
    const berthi_json_value *value;
    berth_status status;

    if (out != NULL)
        *out = 0;
    status = look_up(config, key, out, &value, error);
    if (status == BERTH_OK && !berthi_json_can_read_double(value, out))
        status = fail_kind(key, "number", error);
    return status;
}

berth_status
berth_config_bool(const berth_config *config, const char *key, int32_t *out,
                  berth_error *error)
{
    const berthi_json_value *value;
    bool is_true = false;
    berth_status status;

    if (out != NULL)
        *out = 0;
    status = look_up(config, key, out, &value, error);
    if (status == BERTH_OK && !berthi_json_can_read_bool(value, &is_true))
        status = fail_kind(key, "true or false", error);
    if (status == BERTH_OK)
        *out = is_true;
    return status;
}

berth_status
berth_config_length(const berth_config *config, const char *key, uint64_t *out,
                    berth_error *error)
{
    const berthi_json_value *value;
    berthi_json_kind kind;
    berth_status status;

    if (out != NULL)
        *out = 0;
    status = look_up(config, key, out, &value, error);
    if (status != BERTH_OK)
        return status;
    kind = berthi_json_kind_of(value);
    if (kind != BERTHI_JSON_ARRAY && kind != BERTHI_JSON_OBJECT)
        return fail_kind(key, "list or object", error);
    for (value = berthi_json_first(value); value != NULL; value = berthi_json_next(value))
        (*out)++;
    return BERTH_OK;
}

berth_status
berth_config_member(const berth_config *config, const char *key, uint64_t number,
                    const char **out, berth_error *error)
{
    const berthi_json_value *value;
    berth_status status;

    if (out != NULL)
        *out = NULL;
    status = look_up(config, key, out, &value, error);
    if (status != BERTH_OK)
        return status;
    if (berthi_json_kind_of(value) != BERTHI_JSON_OBJECT)
        return fail_kind(key, "object", error);
    value = berthi_json_first(value);
    for (; value != NULL && number > 0; number--)
        value = berthi_json_next(value);
    if (value == NULL)
        return berthi_fail_argument(error, "number", "is beyond the last member");
    *out = berthi_json_key(value);
    return BERTH_OK;
}
