/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - the gate in front of cJSON, exact numbers, and asking the tree. */
#include "quant/json.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/comma.h"
#include "tests/fault.h"
#include "tests/fence.h"
#include "tests/t.h"

static const berthi_json_origin origin = { BERTH_REASON_CONFIG_JSON, "dir/config.json" };

static berth_context *context;

static berthi_json *
parse_bytes(const char *text, size_t bytes, uint32_t flags)
{
    berthi_json *document = NULL;
    berth_error error;

    if (!CHECK_EQ(berthi_json_parse(context, text, bytes, flags, &origin, &document,
                                    &error), BERTH_OK))
        T_NOTE("%s: %s", text, error.message);
    return document;
}

static berthi_json *
parse(const char *text)
{
    return parse_bytes(text, strlen(text), 0);
}

static bool
is_refused_bytes(const char *text, size_t bytes, uint64_t position, const char *why)
{
    berthi_json *document = (berthi_json *)&context;
    berth_error error;
    bool held = CHECK_EQ(berthi_json_parse(context, text, bytes, 0, &origin, &document,
                                           &error), BERTH_EFORMAT);

    held = CHECK(document == NULL) && held;
    held = CHECK_EQ(error.reason, BERTH_REASON_CONFIG_JSON) && held;
    held = CHECK_STR(error.file, "dir/config.json") && held;
    held = CHECK_CONTAINS(error.message, why) && held;
    held = CHECK_EQ(error.has, BERTH_HAS_POSITION) && held;
    return CHECK_EQ(error.position, position) && held;
}

static void
check_refused(const char *text, uint64_t position, const char *why)
{
    if (!is_refused_bytes(text, strlen(text), position, why))
        T_NOTE("text: %s", text);
}

/* ------------------------------------------------------------------- asking */

static void
test_kinds(void)
{
    berthi_json *const d = parse(" {\"o\": {}, \"a\": [], \"s\": \"x\", \"n\": -1.5e3, "
                                 "\"t\": true, \"f\": false, \"z\": null} \n");
    const berthi_json_value *const root = berthi_json_root(d);
    bool truth = false;
    double number = 0;
    const char *text = "";

    CHECK_EQ(berthi_json_kind_of(root), BERTHI_JSON_OBJECT);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "o")), BERTHI_JSON_OBJECT);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "a")), BERTHI_JSON_ARRAY);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "s")), BERTHI_JSON_STRING);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "n")), BERTHI_JSON_NUMBER);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "t")), BERTHI_JSON_BOOL);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "f")), BERTHI_JSON_BOOL);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "z")), BERTHI_JSON_NULL);
    CHECK_EQ(berthi_json_kind_of(berthi_json_get(root, "q")), BERTHI_JSON_ABSENT);
    CHECK(berthi_json_can_read_bool(berthi_json_get(root, "t"), &truth));
    CHECK(truth);
    CHECK(berthi_json_can_read_bool(berthi_json_get(root, "f"), &truth));
    CHECK(!truth);
    CHECK(berthi_json_can_read_double(berthi_json_get(root, "n"), &number));
    CHECK(number == -1500.0);
    CHECK(berthi_json_can_read_string(berthi_json_get(root, "s"), &text));
    CHECK_STR(text, "x");
    berthi_json_destroy(d);
}

/* Each reader takes its own kind only and changes nothing otherwise. */
static void
test_readers_refuse_other_kinds(void)
{
    berthi_json *const d = parse("[{}, [], \"7\", 7, true, null]");
    const berthi_json_value *v = berthi_json_first(berthi_json_root(d));
    unsigned strings = 0;
    unsigned numbers = 0;
    unsigned integers = 0;
    unsigned truths = 0;

    for (unsigned i = 0; i <= 6; i++, v = berthi_json_next(v)) {
        const char *text = "kept";
        double number = 3;
        uint64_t integer = 4;
        bool truth = false;

        strings += berthi_json_can_read_string(v, &text);
        numbers += berthi_json_can_read_double(v, &number);
        integers += berthi_json_can_read_unsigned(v, &integer);
        truths += berthi_json_can_read_bool(v, &truth);
        CHECK_STR(text, i == 2 ? "7" : "kept");
        CHECK(number == (i == 3 ? 7.0 : 3.0));
        CHECK_EQ(integer, i == 3 ? 7 : 4);
        CHECK_EQ(truth, i == 4);
        CHECK(berthi_json_get(v, "x") == NULL);
    }
    CHECK(v == NULL);
    CHECK_EQ(strings, 1);
    CHECK_EQ(numbers, 1);
    CHECK_EQ(integers, 1);
    CHECK_EQ(truths, 1);
    berthi_json_destroy(d);
}

static void
test_absent_values(void)
{
    CHECK_EQ(berthi_json_kind_of(NULL), BERTHI_JSON_ABSENT);
    CHECK(berthi_json_get(NULL, "x") == NULL);
    CHECK(berthi_json_first(NULL) == NULL);
    CHECK(berthi_json_next(NULL) == NULL);
    CHECK(berthi_json_key(NULL) == NULL);
    berthi_json_destroy(NULL);
}

static void
test_iteration(void)
{
    berthi_json *const d = parse("{\"b\": 1, \"a\": [2, 3], \"c\": {\"d\": 4}}");
    const berthi_json_value *const root = berthi_json_root(d);
    const berthi_json_value *v = berthi_json_first(root);
    uint64_t n = 0;

    CHECK_STR(berthi_json_key(root), NULL);
    CHECK_STR(berthi_json_key(v), "b");
    CHECK(berthi_json_first(v) == NULL);
    v = berthi_json_next(v);
    CHECK_STR(berthi_json_key(v), "a");
    CHECK_STR(berthi_json_key(berthi_json_first(v)), NULL);
    CHECK(berthi_json_can_read_unsigned(berthi_json_next(berthi_json_first(v)), &n));
    CHECK_EQ(n, 3);
    CHECK(berthi_json_next(berthi_json_next(berthi_json_first(v))) == NULL);
    v = berthi_json_next(v);
    CHECK_STR(berthi_json_key(v), "c");
    CHECK(berthi_json_next(v) == NULL);
    berthi_json_destroy(d);
}

/* cJSON's own look-up would take another case. */
static void
test_names_are_exact(void)
{
    berthi_json *const d = parse("{\"Key\": 1, \"key\": 2, \"\": 3, \"k\\u00e9\": 4}");
    const berthi_json_value *const root = berthi_json_root(d);
    uint64_t n = 0;

    CHECK(berthi_json_can_read_unsigned(berthi_json_get(root, "key"), &n));
    CHECK_EQ(n, 2);
    CHECK(berthi_json_get(root, "KEY") == NULL);
    CHECK(berthi_json_can_read_unsigned(berthi_json_get(root, ""), &n));
    CHECK_EQ(n, 3);
    CHECK(berthi_json_can_read_unsigned(berthi_json_get(root, "k\xc3\xa9"), &n));
    CHECK_EQ(n, 4);
    berthi_json_destroy(d);
}

static void
test_root_of_any_kind(void)
{
    static const char *const texts[] = { "7", "\"x\"", "null", "true", "[]", " {} ", "-0.0" };
    static const berthi_json_kind kinds[] = { BERTHI_JSON_NUMBER, BERTHI_JSON_STRING,
                                              BERTHI_JSON_NULL,   BERTHI_JSON_BOOL,
                                              BERTHI_JSON_ARRAY,  BERTHI_JSON_OBJECT,
                                              BERTHI_JSON_NUMBER };

    for (unsigned i = 0; i < 7; i++) {
        berthi_json *const d = parse(texts[i]);

        CHECK_EQ(berthi_json_kind_of(berthi_json_root(d)), kinds[i]);
        berthi_json_destroy(d);
    }
}

/* ------------------------------------------------------------------ numbers */

static void
test_unsigned_is_exact(void)
{
    berthi_json *const d = parse("[9007199254740993,18446744073709551615,0,"
                                 "18446744073709551616,-1,1.0,1e2,-0]");
    const berthi_json_value *v = berthi_json_first(berthi_json_root(d));
    uint64_t n = 0;

    CHECK(berthi_json_can_read_unsigned(v, &n));
    CHECK_EQ(n, UINT64_C(9007199254740993));
    v = berthi_json_next(v);
    CHECK(berthi_json_can_read_unsigned(v, &n));
    CHECK_EQ(n, UINT64_MAX);
    v = berthi_json_next(v);
    CHECK(berthi_json_can_read_unsigned(v, &n));
    CHECK_EQ(n, 0);
    for (n = 17, v = berthi_json_next(v); v != NULL; v = berthi_json_next(v)) {
        CHECK(!berthi_json_can_read_unsigned(v, &n));
        CHECK_EQ(n, 17);
    }
    berthi_json_destroy(d);
}

static void
test_numbers_end_at_space(void)
{
    berthi_json *const d = parse("[1\t,2\n,3\r,4 ,5]");
    const berthi_json_value *v = berthi_json_first(berthi_json_root(d));
    uint64_t expected;

    for (expected = 1; v != NULL; expected++, v = berthi_json_next(v)) {
        uint64_t n = 0;

        CHECK(berthi_json_can_read_unsigned(v, &n));
        CHECK_EQ(n, expected);
    }
    CHECK_EQ(expected, 6);
    berthi_json_destroy(d);
}

/* The text need not end in NUL: what stands behind it is not read. */
static void
test_numbers_end_with_the_text(void)
{
    berthi_json *const d = parse_bytes("12345", 2, 0);
    uint64_t n = 0;

    CHECK(berthi_json_can_read_unsigned(berthi_json_root(d), &n));
    CHECK_EQ(n, 12);
    berthi_json_destroy(d);
}

static void
test_nonfinite(void)
{
    const char *const text = "{\"a\": NaN, \"b\": Infinity, \"c\":-Infinity,\"d\":[NaN]}";
    berthi_json *const d = parse_bytes(text, strlen(text), BERTHI_JSON_NONFINITE);
    const berthi_json_value *const root = berthi_json_root(d);
    double number = 0;

    CHECK(berthi_json_can_read_double(berthi_json_get(root, "a"), &number));
    CHECK(isnan(number));
    CHECK(berthi_json_can_read_double(berthi_json_get(root, "b"), &number));
    CHECK(number > DBL_MAX);
    CHECK(berthi_json_can_read_double(berthi_json_get(root, "c"), &number));
    CHECK(number < -DBL_MAX);
    berthi_json_destroy(d);
    check_refused("[NaN]", 1, "");
}

/* A number is told from a string that looks like one, whatever the string holds. */
static void
test_strings_are_no_numbers(void)
{
    berthi_json *const d = parse("[\"12\", \"NaN\", \"\\u00ff12\", \"\", \"-1,]}\\\"\\\\\", "
                                 "\"\\ud83d\\ude00\"]");
    static const char *const texts[] = { "12", "NaN", "\xc3\xbf\x31\x32", "", "-1,]}\"\\",
                                         "\xf0\x9f\x98\x80" };
    const berthi_json_value *v = berthi_json_first(berthi_json_root(d));
    unsigned i;

    for (i = 0; v != NULL; i++, v = berthi_json_next(v)) {
        const char *text = NULL;

        CHECK(berthi_json_can_read_string(v, &text));
        CHECK_STR(text, texts[i]);
    }
    CHECK_EQ(i, 6);
    berthi_json_destroy(d);
}

static void
test_locale(void)
{
    berthi_json *d;
    double number = 0;

    if (!comma_is_set())
        T_SKIP("no locale with a decimal comma can be had");
    d = parse("[1.5]");
    CHECK(berthi_json_can_read_double(berthi_json_first(berthi_json_root(d)), &number));
    CHECK(number == 1.5);
    berthi_json_destroy(d);
    setlocale(LC_NUMERIC, "C");
}

/* ------------------------------------------------------------------- the gate */

static void
test_refuses_what_is_no_json(void)
{
    check_refused("", 0, "");
    check_refused("{\"a\": 1} x", 9, "");
    check_refused("{\"a\": 1,}", 8, "");
    check_refused("[1 2]", 3, "");
    check_refused("[01]", 2, "");
    check_refused("{\"a\" 1}", 5, "");
    check_refused("// x\n{}", 0, "");
    check_refused("\xef\xbb\xbf{}", 0, "");
    check_refused("[1", 2, "");
    check_refused("{'a': 1}", 1, "");
    check_refused("[tru]", 1, "");
    check_refused("[nul]", 1, "");
    check_refused("\"\\ud800\"", 1, "");
}

static void
test_refuses_what_is_no_utf8(void)
{
    check_refused("{\"a\": \"\xc3\"}", 7, "not UTF-8");
    check_refused("\xff", 0, "not UTF-8");
}

static void
test_refuses_repeated_keys(void)
{
    check_refused("{\"a\": 1, \"a\": 2}", 10, "a key stands twice");
    check_refused("{\"a\": 1, \"\\u0061\": 2}", 10, "a key stands twice");
    check_refused("[{\"x\": {\"b\": 1, \"a\": 2, \"b\": 3}}]", 25, "a key stands twice");
    check_refused("{\"z\": 1, \"a\": 1, \"a\": 2}", 18, "a key stands twice");
    check_refused("{\"a\": 1, \"a\": 2, \"z\": 1}", 10, "a key stands twice");
    check_refused("{\"\": 1, \"\": 2}", 9, "a key stands twice");
}

/* The same key in other objects, and keys that only begin alike, are fine. */
static void
test_accepts_equal_keys_elsewhere(void)
{
    berthi_json *d = parse("{\"a\": {\"a\": {\"a\": 1}}, \"b\": {\"a\": 2}, \"aa\": [{\"a\": "
                           "1}, {\"a\": 2}], \"ab\": 1, \"A\": 0}");

    CHECK(berthi_json_get(berthi_json_root(d), "ab") != NULL);
    berthi_json_destroy(d);
}

/* `count` members in an order that is neither sorted nor reversed. */
static char *
make_members(unsigned count, unsigned repeated)
{
    char *const text = malloc(count * 16 + 64);
    char *at = text;

    *at++ = '{';
    for (unsigned i = 0; i < count; i++)
        at += sprintf(at, "\"k%u\":%u,", i * 7919 % count, i);
    at += sprintf(at, "\"%c%u\":0}", repeated < count ? 'k' : 'z', repeated);
    return text;
}

static void
test_many_keys(void)
{
    enum { COUNT = 5000 };
    char *text = make_members(COUNT, COUNT);
    berthi_json *const d = parse(text);
    unsigned found = 0;

    for (const berthi_json_value *v = berthi_json_first(berthi_json_root(d)); v != NULL;
         v = berthi_json_next(v))
        found++;
    CHECK_EQ(found, COUNT + 1);
    berthi_json_destroy(d);
    free(text);
    for (unsigned i = 0; i < COUNT; i += 499) {
        berthi_json *none;
        berth_error error;

        text = make_members(COUNT, i);
        CHECK_EQ(berthi_json_parse(context, text, strlen(text), 0, &origin, &none, &error),
                 BERTH_EFORMAT);
        CHECK_CONTAINS(error.message, "a key stands twice");
        free(text);
    }
}

/* Every order of a few keys: the sort that finds twins must not miss one. */
static void
test_repeated_key_in_any_place(void)
{
    for (unsigned length = 2; length <= 7; length++)
        for (unsigned a = 0; a < length; a++)
            for (unsigned b = a + 1; b < length; b++) {
                char text[256] = "{";
                char *at = text + 1;
                berthi_json *none;

                for (unsigned i = 0; i < length; i++)
                    at += sprintf(at, "%s\"%c\":1", i > 0 ? "," : "",
                                  (int)('a' + (i == b ? a : i) * 3 % 7));
                sprintf(at, "}");
                CHECK_EQ(berthi_json_parse(context, text, strlen(text), 0, &origin, &none,
                                           NULL), BERTH_EFORMAT);
            }
}

static void
test_refuses_nul(void)
{
    check_refused("{\"a\": \"x\\u0000y\"}", 7, "a string holds NUL");
    check_refused("{\"a\\u0000\": 1}", 2, "a string holds NUL");
    CHECK(is_refused_bytes("[\0]", 3, 1, ""));
}

static char *
make_nested(unsigned depth)
{
    char *const text = malloc(depth * 2 + 1);

    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    text[depth * 2] = '\0';
    return text;
}

static void
test_depth(void)
{
    char *text = make_nested(127);

    berthi_json_destroy(parse(text));
    free(text);
    text = make_nested(128);
    check_refused(text, 127, "");
    free(text);
}

/* {"":{"": ... 1 ... }} */
static char *
make_nested_objects(unsigned depth)
{
    char *const text = malloc(depth * 5 + 2);
    char *at = text;

    for (unsigned i = 0; i < depth; i++, at += 4)
        memcpy(at, "{\"\":", 4);
    *at++ = '1';
    memset(at, '}', depth);
    at[depth] = '\0';
    return text;
}

static void
test_depth_of_objects(void)
{
    char *text = make_nested_objects(127);

    berthi_json_destroy(parse(text));
    free(text);
    text = make_nested_objects(128);
    check_refused(text, 4 * 127, "");
    free(text);
}

static void
test_size_limit(void)
{
    char *const text = malloc(BERTHI_JSON_LIMIT + 1);
    berthi_json *none;
    berth_error error;

    memset(text, ' ', BERTHI_JSON_LIMIT + 1);
    memcpy(text, "{}", 2);
    berthi_json_destroy(parse_bytes(text, BERTHI_JSON_LIMIT, 0));
    CHECK_EQ(berthi_json_parse(context, text, BERTHI_JSON_LIMIT + 1, 0, &origin, &none,
                               &error), BERTH_EFORMAT);
    CHECK_CONTAINS(error.message, "larger than a small document");
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.expected, BERTHI_JSON_LIMIT);
    CHECK_EQ(error.actual, BERTHI_JSON_LIMIT + 1);
    CHECK_STR(error.file, "dir/config.json");
    free(text);
}

static void
test_value_limit(void)
{
    const size_t inner = BERTHI_JSON_VALUES - 1; /* the array is a value, too */
    char *const text = malloc(2 * inner + 3);

    text[0] = '[';
    for (size_t i = 0; i < inner; i++)
        memcpy(text + 1 + 2 * i, "0,", 2);
    text[2 * inner] = ']';
    berthi_json_destroy(parse_bytes(text, 2 * inner + 1, 0));
    memcpy(text + 2 * inner, ",0]", 3);
    is_refused_bytes(text, 2 * inner + 3, 2 * inner + 1, "more values");
    free(text);
}

/* Keys are counted by colons: texts full of them must not confuse that. */
static void
test_colons(void)
{
    berthi_json *const d = parse("{\"::\": \":::\", \"x\": [\":\"]}");
    const char *text = "";

    CHECK(berthi_json_can_read_string(berthi_json_get(berthi_json_root(d), "::"), &text));
    CHECK_STR(text, ":::");
    berthi_json_destroy(d);
}

/* While cJSON works: the object and the text, each number with two quotes and a mark. */
static void
test_memory_of_numbers(void)
{
    static const char text[] = "[1,23,[-4.5e6],7]";
    berth_context *own = NULL;
    berthi_json *d = NULL;
    berth_memory_summary memory;

    T_REQUIRE(berth_context_create(NULL, &own, NULL) == BERTH_OK);
    CHECK_EQ(berthi_json_parse(own, text, sizeof text - 1, 0, &origin, &d, NULL),
             BERTH_OK);
    berth_context_memory(own, &memory);
    CHECK_EQ(memory.current_bytes, 2 * sizeof(void *));
    CHECK_EQ(memory.peak_bytes, 2 * sizeof(void *) + sizeof text - 1 + 3 * 4);
    berthi_json_destroy(d);
    berth_context_destroy(own);
}

/* Texts that end in a string, a number, a bracket: all fits where it is put. */
static void
test_room_for_the_end(void)
{
    static const char *const texts[] = { "\"x\"", "12", "[\"x\",1]", "[1,2]", "{\"a\":1}",
                                         "\"\\\\\"", "true", "\"\"" };
    berth_context *const own = fence_context();

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        berthi_json *d = NULL;

        CHECK_EQ(berthi_json_parse(own, texts[i], strlen(texts[i]), 0, &origin, &d, NULL),
                 BERTH_OK);
        berthi_json_destroy(d);
    }
    berth_context_destroy(own);
    CHECK_EQ(fence_broken(), 0);
}

/* ------------------------------------------------------------------- failures */

static berth_status
parse_once(void *user, berth_context *its_context, berth_error *error)
{
    static const char text[] = "{\"a\": [1, 2.5, \"x\"], \"b\": {\"c\": null}}";
    berthi_json *document = (berthi_json *)&context;
    const berth_status status = berthi_json_parse(its_context, text, sizeof text - 1, 0,
                                                  &origin, &document, error);

    (void)user;
    if (status != BERTH_OK)
        CHECK(document == NULL);
    berthi_json_destroy(document);
    return status;
}

static void
test_every_allocation_fails(void)
{
    const fault_counts counts = fault_loop("json", parse_once, NULL);

    CHECK_EQ(counts.memory, 2 * 4); /* copy, keys, document, translation */
    CHECK_EQ(counts.survived, 0);
}

/* cJSON's own allocations, through its hooks: the library never sets those. */
static unsigned calls_left;
static unsigned live_blocks;

static void *
failing_malloc(size_t bytes)
{
    if (calls_left == 0)
        return NULL;
    calls_left--;
    live_blocks++;
    return malloc(bytes);
}

static void
counting_free(void *memory)
{
    live_blocks -= memory != NULL;
    free(memory);
}

static void
test_every_allocation_of_cjson_fails(void)
{
    cJSON_Hooks hooks = { failing_malloc, counting_free };
    berth_status status = BERTH_ENOMEM;
    unsigned runs = 0;

    cJSON_InitHooks(&hooks);
    for (; status != BERTH_OK && runs < 1000; runs++) {
        berth_error error;

        calls_left = runs;
        status = parse_once(NULL, context, &error);
        CHECK(status == BERTH_OK || status == BERTH_ENOMEM);
        CHECK_EQ(error.status, status == BERTH_OK ? error.status : BERTH_ENOMEM);
        CHECK_EQ(live_blocks, 0);
    }
    cJSON_InitHooks(NULL);
    CHECK_GT(runs, 10);
    CHECK_LT(runs, 1000);
    T_NOTE("%u runs, each with one allocation of cJSON more", runs);
}

int
main(int argc, char **argv)
{
    berth_memory_summary memory;

    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_kinds);
    T_RUN(test_readers_refuse_other_kinds);
    T_RUN(test_absent_values);
    T_RUN(test_iteration);
    T_RUN(test_names_are_exact);
    T_RUN(test_root_of_any_kind);
    T_RUN(test_unsigned_is_exact);
    T_RUN(test_numbers_end_at_space);
    T_RUN(test_numbers_end_with_the_text);
    T_RUN(test_nonfinite);
    T_RUN(test_strings_are_no_numbers);
    T_RUN(test_locale);
    T_RUN(test_refuses_what_is_no_json);
    T_RUN(test_refuses_what_is_no_utf8);
    T_RUN(test_refuses_repeated_keys);
    T_RUN(test_accepts_equal_keys_elsewhere);
    T_RUN(test_many_keys);
    T_RUN(test_repeated_key_in_any_place);
    T_RUN(test_refuses_nul);
    T_RUN(test_depth);
    T_RUN(test_depth_of_objects);
    T_RUN(test_size_limit);
    T_RUN(test_value_limit);
    T_RUN(test_colons);
    T_RUN(test_memory_of_numbers);
    T_RUN(test_room_for_the_end);
    T_RUN(test_every_allocation_fails);
    T_RUN(test_every_allocation_of_cjson_fails);
    berth_context_memory(context, &memory);
    CHECK_EQ(memory.current_bytes, 0);
    berth_context_destroy(context);
    T_MAIN_END;
}
