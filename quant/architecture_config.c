/* SPDX-License-Identifier: Apache-2.0 */
/*
 * architecture_config.c - what descriptions and config.json say: members as
 * they are in this era, values by dotted path, expressions of them. See
 * architecture_build.h.
 */
#include <math.h>

#include "quant/architecture_build.h"
#include "quant/scan.h"

#define EXPRESSION_CAPACITY 128u
#define STAR_CAPACITY 256u
/* Values that an expression asks for, those of its defaults included. */
#define EXPRESSION_STEPS 64u
#define EXPRESSION_DEPTH 8u

/* -------------------------------------------------------------- descriptions */

static const berthi_json_value *
find_in(const berthi_json_value *object, const char *member, const char *key)
{
    return berthi_json_find(berthi_json_find(object, member), key);
}

const berthi_json_value *
berthi_build_describe(berthi_build *build, const berthi_catalogue_entry *entry)
{
    const berthi_json_origin origin = { BERTH_REASON_ARCHITECTURES_JSON, "" };
    build_document *document = build->documents;

    while (document != NULL && document->entry != entry)
        document = document->next;
    if (document != NULL)
        return berthi_json_root(document->json);
    document = berthi_build_alloc(build, 1, sizeof *document);
    if (document == NULL)
        return NULL;
    build->status = berthi_json_parse(build->context, build->catalogue->text + entry->body,
                                      entry->body_length, 0, &origin, &document->json,
                                      build->error);
    if (build->status != BERTH_OK)
        return NULL;
    document->entry = entry;
    document->next = build->documents;
    build->documents = document;
    return berthi_json_root(document->json);
}

/* -------------------------------------------------------------- config.json */

/* The member of this name, which has a length. */
static const berthi_json_value *
get_component(const berthi_json_value *object, const char *name, size_t length)
{
    char word[EXPRESSION_CAPACITY];

    if (length >= sizeof word)
        return NULL;
    memcpy(word, name, length);
    word[length] = '\0';
    return berthi_json_find(object, word);
}

const berthi_json_value *
berthi_build_part(const build_scope *scope, const char *path)
{
    const berthi_json_value *at = scope->config;

    while (*path != '\0' && at != NULL) {
        const size_t length = strcspn(path, ".");

        at = get_component(at, path, length);
        path += length + (path[length] == '.');
    }
    return at;
}

/* Rotary settings moved into objects of their own. */
static const berthi_json_value *
find_value(const berthi_json_value *object, const char *key)
{
    static const char *const places[] = { "rope_parameters", "rope_scaling" };
    const berthi_json_value *value = berthi_json_find(object, key);

    for (size_t i = 0; i < sizeof places / sizeof *places && value == NULL; i++)
        value = find_in(object, places[i], key);
    return value;
}

const berthi_json_value *
berthi_build_config(const build_scope *scope, const char *path)
{
    const berthi_json_value *at = scope->config;
    const berthi_json_value *value;

    for (;;) {
        const size_t length = strcspn(path, ".");
        const berthi_json_value *part;

        if (path[length] == '\0')
            break;
        part = get_component(at, path, length);
        /* Older files have the text model's values at the top. */
        if (part != NULL || length != strlen("text_config")
            || memcmp(path, "text_config", length) != 0)
            at = part;
        path += length + 1;
    }
    value = find_value(at, path);
    if (value == NULL && strcmp(path, "partial_rotary_factor") == 0)
        value = find_value(at, "rotary_pct");
    return value;
}

/* --------------------------------------------------------------- expressions */

/*
 *   expression = sum | product      sum = key ("+" | "-") digits
 *   product = factor { ("*" | "/") factor }      factor = number | key
 *
 * A key is a path in config.json; a default may be an expression of others, to
 * a bounded depth.
 */
typedef struct evaluation {
    const build_scope *scope;
    uint32_t steps;
} evaluation;

/* A number from an expression such as "head_dim*0.5"; false: not known. */
static bool can_evaluate(evaluation *e, const char *text, uint32_t depth, double *out);

static bool
can_read_number(const char *text, double *out)
{
    char copy[EXPRESSION_CAPACITY];
    const size_t length = strlen(text);
    berthi_scan scan;

    if (length >= sizeof copy)
        return false;
    memcpy(copy, text, length + 1);
    berthi_scan_init(&scan, copy, length, 0);
    return berthi_scan_can_read_double(&scan, out) && berthi_scan_can_finish(&scan);
}

static const berthi_json_value *
get_default(const build_scope *scope, const char *key)
{
    const berthi_json_value *const older = find_in(scope->older, "defaults", key);

    return older != NULL ? older : find_in(scope->entry, "defaults", key);
}

/* The value of a key: config.json's, else the default. */
static bool
can_get_number(evaluation *e, const char *key, uint32_t depth, double *out)
{
    const berthi_json_value *value = berthi_build_config(e->scope, key);
    const char *text;
    bool truth;

    if (value == NULL)
        value = get_default(e->scope, key);
    if (berthi_json_can_read_double(value, out))
        return true;
    if (berthi_json_can_read_bool(value, &truth)) {
        *out = truth;
        return true;
    }
    return berthi_json_can_read_string(value, &text) && depth < EXPRESSION_DEPTH
           && can_evaluate(e, text, depth + 1, out);
}

static bool
can_get_factor(evaluation *e, const char *text, size_t length, uint32_t depth, double *out)
{
    char word[EXPRESSION_CAPACITY];

    if (length == 0 || length >= sizeof word || ++e->steps > EXPRESSION_STEPS)
        return false;
    memcpy(word, text, length);
    word[length] = '\0';
    return can_read_number(word, out) || can_get_number(e, word, depth, out);
}

/* Where the last "+ digits" or "- digits" begins; NULL when the text does not end so. */
static const char *
find_addend(const char *text)
{
    const char *const end = text + strlen(text);
    const char *at = end;

    while (at > text && at[-1] >= '0' && at[-1] <= '9')
        at--;
    if (at == end || at - text < 2 || (at[-1] != '+' && at[-1] != '-'))
        return NULL;
    return at - 1;
}

static bool
can_evaluate(evaluation *e, const char *text, uint32_t depth, double *out)
{
    const char *const addend = find_addend(text);
    double factor;
    char operation = '*';

    *out = 1;
    if (addend != NULL) {
        double number;

        if (!can_get_factor(e, text, (size_t)(addend - text), depth, out)
            || !can_read_number(addend + 1, &number))
            return false;
        *out += *addend == '-' ? -number : number;
        return true;
    }
    for (;;) {
        const size_t length = strcspn(text, "*/");

        if (!can_get_factor(e, text, length, depth, &factor))
            return false;
        *out = operation == '*' ? *out * factor : *out / factor;
        if (text[length] == '\0')
            return true;
        operation = text[length];
        text += length + 1;
    }
}

/* ------------------------------------------------------------- buffer sizes */

/* Appends to a text of `capacity` with a NUL; false when it does not fit. */
static bool
can_append(char *out, size_t capacity, const char *bytes, uint64_t length)
{
    const size_t used = strlen(out);

    if (length >= capacity - used)
        return false;
    memcpy(out + used, bytes, (size_t)length);
    out[used + (size_t)length] = '\0';
    return true;
}

/* Length of "original_" where the component is a copy of the table "inv_freq". */
static uint64_t
copy_prefix(const char *component, uint64_t length, uint64_t *out_at)
{
    static const char copy[] = "original_inv_freq";

    if (!berthi_text_ends((berthi_text){ component, length }, copy))
        return 0;
    *out_at = length - strlen(copy);
    return strlen("original_");
}

/*
 * What the description calls it: components of digits become '*', an unchanged copy
 * counts as the table itself.
 */
static bool
can_write_star(const build_scope *scope, berthi_text name, char *out, size_t capacity)
{
    uint64_t at = 0;

    out[0] = '\0';
    if (scope->base.length > 0
        && (!can_append(out, capacity, scope->base.bytes, scope->base.length)
            || !can_append(out, capacity, ".", 1)))
        return false;
    for (;;) {
        const char *const component = name.bytes + at;
        uint64_t length = 0;
        uint64_t digits = 0;
        uint64_t cut = 0;
        uint64_t skipped;

        for (; at + length < name.length && component[length] != '.'; length++)
            digits += component[length] >= '0' && component[length] <= '9';
        skipped = copy_prefix(component, length, &cut);
        if (digits > 0 && digits == length) {
            if (!can_append(out, capacity, "*", 1))
                return false;
        } else if (!can_append(out, capacity, component, cut)
                   || !can_append(out, capacity, component + cut + skipped,
                                  length - cut - skipped)) {
            return false;
        }
        at += length;
        if (at == name.length)
            return true;
        at++;
        if (!can_append(out, capacity, ".", 1))
            return false;
    }
}

/* The expression for the axis of a buffer of the scope; NULL. */
static const char *
find_dim(const build_scope *scope, berthi_text buffer, uint32_t axis)
{
    char star[STAR_CAPACITY];
    const berthi_json_value *at;
    const char *expression;

    if (!can_write_star(scope, buffer, star, sizeof star))
        return NULL;
    at = find_in(scope->older, "dims", star);
    if (at == NULL)
        at = find_in(scope->entry, "dims", star);
    if (at == NULL)
        return berthi_build_lacking_size(scope->class_name, star, axis);
    at = berthi_json_first(at);
    while (axis-- > 0)
        at = berthi_json_next(at);
    return berthi_json_can_read_string(at, &expression) ? expression : NULL;
}

bool
berthi_build_can_size(const berthi_build *build, berthi_text buffer, uint32_t axis,
                      uint64_t *out)
{
    berthi_text rest;
    const build_scope *const scope = berthi_build_scope(build, buffer, &rest);
    const char *const expression = find_dim(scope, rest, axis);
    evaluation e = { scope, 0 };
    double value;

    if (expression == NULL || !can_evaluate(&e, expression, 0, &value))
        return false;
    value = ceil(value);
    /* Not written as two refusals: NaN compares false. */
    if (!(value >= 0 && value <= 9007199254740992.0))
        return false;
    *out = (uint64_t)value;
    return true;
}
