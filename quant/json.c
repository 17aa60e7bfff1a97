/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - the gate in front of cJSON, and the way around its numbers.
 *
 *   text --copy--> scanner: grammar, depth, unique keys, no NUL  (the gate)
 *   text --translate--> every number as a string behind MARK --> cJSON --> tree
 *
 * MARK is a byte that well-formed UTF-8 never holds, so no string of the text
 * can be taken for a number. After the gate cJSON has nothing left to refuse:
 * when it returns no tree, memory has run out.
 *
 * cJSON also writes the place of its last error into a global of its own. That
 * is a race between threads in theory; nobody in berth reads it.
 */
#include "quant/json.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "kernels/utf8.h"
#include "quant/heapsort.h"
#include "quant/scan.h"

#define MARK '\xff'

_Static_assert(BERTHI_JSON_NONFINITE == BERTHI_SCAN_NONFINITE, "flags are handed on");

struct berthi_json {
    berth_context *context;
    cJSON *root;
};

_Static_assert(sizeof(berthi_scan_text) <= BERTHI_HEAPSORT_ELEMENT, "a key is sorted");

/* ------------------------------------------------------------- unique keys */

static int
compare_keys(const void *left, const void *right)
{
    const berthi_scan_text *const a = left;
    const berthi_scan_text *const b = right;
    const uint64_t shorter = berthi_min_u64(a->length, b->length);
    const int order = memcmp(a->bytes, b->bytes, (size_t)shorter);

    if (order != 0)
        return order;
    return (a->length > b->length) - (a->length < b->length);
}

/* Of two equal keys the later one in the text, or NULL. */
static const berthi_scan_text *
find_repeated(berthi_scan_text *keys, uint64_t count)
{
    berthi_heapsort(keys, count, sizeof *keys, compare_keys);
    for (uint64_t i = 1; i < count; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0)
            return keys[i].bytes > keys[i - 1].bytes ? &keys[i] : &keys[i - 1];
    return NULL;
}

/* ------------------------------------------------------------------ the gate */

typedef struct gate {
    berthi_scan scan;
    berthi_scan_text *keys; /* of the open objects, outermost first */
    uint64_t key_count;
    uint64_t values;
    uint64_t numbers;
    uint64_t first_key[BERTHI_SCAN_DEPTH]; /* of an open object, in `keys` */
    bool is_object[BERTHI_SCAN_DEPTH];
    uint32_t depth;
    const char *problem; /* found here, not by the scanner */
    uint64_t problem_at;
} gate;

static bool
gate_refuse(gate *g, const char *problem, const char *at)
{
    g->problem = problem;
    g->problem_at = (uint64_t)(at - g->scan.text);
    return false;
}

static bool
gate_can_take_text(gate *g, const berthi_scan_text *text)
{
    if (text->length > 0 && memchr(text->bytes, 0, (size_t)text->length) != NULL)
        return gate_refuse(g, "a string holds NUL", text->bytes);
    return true;
}

static void
gate_enter(gate *g, bool is_object)
{
    g->is_object[g->depth] = is_object;
    g->first_key[g->depth] = g->key_count;
    g->depth++;
}

/* One value; of a container only its beginning. */
static bool
gate_can_take_value(gate *g)
{
    berthi_scan_text text;
    bool truth;

    if (++g->values > BERTHI_JSON_VALUES)
        return gate_refuse(g, "more values than a small document may have",
                           g->scan.text + g->scan.position);
    switch (berthi_scan_peek(&g->scan)) {
    case BERTHI_SCAN_OBJECT:
        if (!berthi_scan_can_enter_object(&g->scan))
            return false;
        gate_enter(g, true);
        return true;
    case BERTHI_SCAN_ARRAY:
        if (!berthi_scan_can_enter_array(&g->scan))
            return false;
        gate_enter(g, false);
        return true;
    case BERTHI_SCAN_STRING:
        return berthi_scan_can_read_string(&g->scan, &text)
               && gate_can_take_text(g, &text);
    case BERTHI_SCAN_NUMBER:
        g->numbers++;
        return berthi_scan_can_read_number(&g->scan, &text);
    case BERTHI_SCAN_TRUE:
    case BERTHI_SCAN_FALSE: return berthi_scan_can_read_bool(&g->scan, &truth);
    case BERTHI_SCAN_NULL: return berthi_scan_can_read_null(&g->scan);
    default: return berthi_scan_can_skip(&g->scan); /* says what is wrong */
    }
}

/* Ends the innermost container; an object's keys are all known now. */
static bool
gate_can_leave(gate *g)
{
    const uint64_t first = g->first_key[--g->depth];
    const berthi_scan_text *const repeated =
        find_repeated(g->keys + first, g->key_count - first);

    g->key_count = first;
    if (repeated != NULL)
        return gate_refuse(g, "a key stands twice in one object", repeated->bytes);
    return true;
}

/* True when another value comes next in the open containers. */
static bool
gate_has_next(gate *g)
{
    berthi_scan_text key;

    while (g->depth > 0) {
        if (!g->is_object[g->depth - 1]) {
            if (berthi_scan_has_next_element(&g->scan))
                return true;
        } else if (berthi_scan_has_next_member(&g->scan, &key)) {
            g->keys[g->key_count++] = key;
            return gate_can_take_text(g, &key);
        }
        if (g->scan.problem != NULL || !gate_can_leave(g))
            return false;
    }
    return false;
}

/* Reads all of the text. False: `problem` of the gate or of its scanner says why. */
static bool
gate_can_pass(gate *g)
{
    do {
        if (!gate_can_take_value(g))
            return false;
    } while (gate_has_next(g));
    return g->problem == NULL && berthi_scan_can_finish(&g->scan);
}

/* ----------------------------------------------------------------- translate */

static bool
is_number_begin(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == 'N' || c == 'I';
}

static bool
is_number_end(char c)
{
    return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\t' || c == '\n'
           || c == '\r';
}

/* From the opening quote to behind the closing one. */
static uint64_t
string_end(const char *text, uint64_t at)
{
    for (at++; text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at + 1;
}

/* Copies text that has passed the gate; numbers become marked strings. */
static uint64_t
translate(const char *text, uint64_t bytes, char *out)
{
    uint64_t written = 0;
    uint64_t at = 0;

    while (at < bytes) {
        const uint64_t begin = at;
        const bool is_number = is_number_begin(text[at]);

        if (is_number)
            while (at < bytes && !is_number_end(text[at]))
                at++;
        else
            at = text[at] == '"' ? string_end(text, at) : at + 1;
        if (is_number) {
            out[written++] = '"';
            out[written++] = MARK;
        }
        memcpy(out + written, text + begin, (size_t)(at - begin));
        written += at - begin;
        if (is_number)
            out[written++] = '"';
    }
    return written;
}

/* -------------------------------------------------------------------- parsing */

/* Upper bound of the number of keys: each is followed by a colon. */
static uint64_t
count_colons(const char *text, uint64_t bytes)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < bytes; i++)
        count += text[i] == ':';
    return count;
}

/* Runs the gate over a copy of the text: scanning unescapes in place. */
static berth_status
check_text(berth_context *context, const char *text, uint64_t bytes, uint32_t flags,
           const berthi_json_origin *origin, uint64_t *out_numbers, berth_error *error)
{
    const uint64_t keys = berthi_min_u64(count_colons(text, bytes), BERTHI_JSON_VALUES);
    char *const copy = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, bytes);
    berth_status status = BERTH_OK;
    gate g;

    memset(&g, 0, sizeof g);
    g.keys = berthi_memory_array(context, BERTHI_PURPOSE_SCRATCH, keys, sizeof *g.keys);
    if (copy == NULL || g.keys == NULL) {
        status = berthi_fail_memory(error, "reading a document");
        goto out;
    }
    memcpy(copy, text, (size_t)bytes);
    berthi_scan_init(&g.scan, copy, bytes, flags);
    if (!gate_can_pass(&g)) {
        const bool is_mine = g.problem != NULL;
        const uint64_t at = is_mine ? g.problem_at : g.scan.problem_at;

        status = berthi_fail(error, origin->reason,
                             &(berthi_about){ .file = origin->file,
                                              .has = BERTH_HAS_POSITION,
                                              .position = at },
                             "not JSON as berth reads it: %s",
                             is_mine ? g.problem : g.scan.problem);
    }
    *out_numbers = g.numbers;
out:
    berthi_memory_free(context, BERTHI_PURPOSE_SCRATCH, g.keys, keys * sizeof *g.keys);
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, copy, bytes);
    return status;
}

/* Size and encoding, then everything that the gate knows. */
static berth_status
check_document(berth_context *context, const char *text, uint64_t bytes, uint32_t flags,
               const berthi_json_origin *origin, uint64_t *out_numbers,
               berth_error *error)
{
    berthi_about about = { .file = origin->file };

    if (bytes > BERTHI_JSON_LIMIT) {
        about.has = BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL;
        about.expected = BERTHI_JSON_LIMIT;
        about.actual = bytes;
        return berthi_fail(error, origin->reason, &about,
                           "larger than a small document may be");
    }
    about.position = berthi_utf8_check((const unsigned char *)text, (size_t)bytes);
    if (about.position != bytes) {
        about.has = BERTH_HAS_POSITION;
        return berthi_fail(error, origin->reason, &about, "not UTF-8");
    }
    return check_text(context, text, bytes, flags, origin, out_numbers, error);
}

berth_status
berthi_json_parse(berth_context *context, const char *text, uint64_t bytes,
                  uint32_t flags, const berthi_json_origin *origin, berthi_json **out,
                  berth_error *error)
{
    berthi_json *document;
    char *translated = NULL;
    uint64_t numbers = 0;
    uint64_t capacity = 0;
    berth_status status;

    *out = NULL;
    status = check_document(context, text, bytes, flags, origin, &numbers, error);
    if (status != BERTH_OK)
        return status;
    document = berthi_memory_zalloc(context, BERTHI_PURPOSE_DOCUMENT, sizeof *document);
    if (document == NULL)
        goto no_memory;
    document->context = context;
    capacity = bytes + 3 * numbers; /* quote, mark, quote */
    translated = berthi_memory_alloc(context, BERTHI_PURPOSE_DOCUMENT, capacity);
    if (translated == NULL)
        goto no_memory;
    document->root = cJSON_ParseWithLength(translated,
                                           (size_t)translate(text, bytes, translated));
    if (document->root == NULL)
        goto no_memory;
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, translated, capacity);
    *out = document;
    return BERTH_OK;

no_memory:
    berthi_memory_free(context, BERTHI_PURPOSE_DOCUMENT, translated, capacity);
    berthi_json_destroy(document);
    return berthi_fail_memory(error, "reading a document");
}

void
berthi_json_destroy(berthi_json *document)
{
    if (document == NULL)
        return;
    cJSON_Delete(document->root);
    berthi_memory_free(document->context, BERTHI_PURPOSE_DOCUMENT, document,
                       sizeof *document);
}

/* --------------------------------------------------------------------- asking */

static const cJSON *
item_of(const berthi_json_value *value)
{
    return (const cJSON *)value;
}

static const berthi_json_value *
value_of(const cJSON *item)
{
    return (const berthi_json_value *)item;
}

const berthi_json_value *
berthi_json_root(const berthi_json *document)
{
    return value_of(document->root);
}

berthi_json_kind
berthi_json_kind_of(const berthi_json_value *value)
{
    const cJSON *const item = item_of(value);

    if (cJSON_IsObject(item))
        return BERTHI_JSON_OBJECT;
    if (cJSON_IsArray(item))
        return BERTHI_JSON_ARRAY;
    if (cJSON_IsString(item))
        return item->valuestring[0] == MARK ? BERTHI_JSON_NUMBER : BERTHI_JSON_STRING;
    if (cJSON_IsBool(item))
        return BERTHI_JSON_BOOL;
    return cJSON_IsNull(item) ? BERTHI_JSON_NULL : BERTHI_JSON_ABSENT;
}

const berthi_json_value *
berthi_json_get(const berthi_json_value *value, const char *key)
{
    if (berthi_json_kind_of(value) != BERTHI_JSON_OBJECT)
        return NULL;
    return value_of(cJSON_GetObjectItemCaseSensitive(item_of(value), key));
}

const berthi_json_value *
berthi_json_find(const berthi_json_value *value, const char *key)
{
    const berthi_json_value *const member = berthi_json_get(value, key);

    return berthi_json_kind_of(member) == BERTHI_JSON_NULL ? NULL : member;
}

const berthi_json_value *
berthi_json_first(const berthi_json_value *value)
{
    return value == NULL ? NULL : value_of(item_of(value)->child);
}

const berthi_json_value *
berthi_json_next(const berthi_json_value *value)
{
    return value == NULL ? NULL : value_of(item_of(value)->next);
}

uint32_t
berthi_json_count(const berthi_json_value *value)
{
    uint32_t count = 0;

    for (const berthi_json_value *at = berthi_json_first(value); at != NULL;
         at = berthi_json_next(at))
        count++;
    return count;
}

const char *
berthi_json_key(const berthi_json_value *value)
{
    return value == NULL ? NULL : item_of(value)->string;
}

bool
berthi_json_can_read_string(const berthi_json_value *value, const char **out)
{
    if (berthi_json_kind_of(value) != BERTHI_JSON_STRING)
        return false;
    *out = item_of(value)->valuestring;
    return true;
}

/* A scanner over the text of a number. */
static bool
is_number_text(const berthi_json_value *value, berthi_scan *scan)
{
    char *text;

    if (berthi_json_kind_of(value) != BERTHI_JSON_NUMBER)
        return false;
    text = item_of(value)->valuestring + 1;
    berthi_scan_init(scan, text, strlen(text), BERTHI_SCAN_NONFINITE);
    return true;
}

bool
berthi_json_can_read_unsigned(const berthi_json_value *value, uint64_t *out)
{
    berthi_scan scan;
    uint64_t number;

    if (!is_number_text(value, &scan) || !berthi_scan_can_read_unsigned(&scan, &number))
        return false;
    *out = number;
    return true;
}

bool
berthi_json_can_read_double(const berthi_json_value *value, double *out)
{
    berthi_scan scan;

    return is_number_text(value, &scan) && berthi_scan_can_read_double(&scan, out);
}

bool
berthi_json_can_read_bool(const berthi_json_value *value, bool *out)
{
    if (berthi_json_kind_of(value) != BERTHI_JSON_BOOL)
        return false;
    *out = cJSON_IsTrue(item_of(value)) != 0;
    return true;
}

bool
berthi_json_can_read_number(const berthi_json_value *value, const char **out)
{
    if (berthi_json_kind_of(value) != BERTHI_JSON_NUMBER)
        return false;
    *out = item_of(value)->valuestring + 1;
    return true;
}
