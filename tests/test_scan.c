/* SPDX-License-Identifier: Apache-2.0 */
/* test_scan.c - the JSON scanner: grammar, values, positions, depth. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/scan.h"
#include "tests/t.h"

/* A scanner over a buffer of exactly the text's size. */
typedef struct subject {
    berthi_scan scan;
    char *text;
    size_t length;
} subject;

static subject
begin_bytes(const char *text, size_t length, uint32_t flags)
{
    subject s = { .text = malloc(length > 0 ? length : 1), .length = length };

    memcpy(s.text, text, length);
    berthi_scan_init(&s.scan, s.text, length, flags);
    return s;
}

static subject
begin(const char *text)
{
    return begin_bytes(text, strlen(text), 0);
}

static void
end(subject *s)
{
    free(s->text);
}

/* Skips one value; the text must stay as it was. */
static bool
is_json_bytes(const char *text, size_t length, uint32_t flags)
{
    subject s = begin_bytes(text, length, flags);
    const bool is_ok = berthi_scan_can_skip(&s.scan) && berthi_scan_can_finish(&s.scan);

    CHECK_MEM(s.text, text, length);
    CHECK_EQ(is_ok, s.scan.problem == NULL);
    CHECK(s.scan.problem_at <= length);
    end(&s);
    return is_ok;
}

static bool
is_json(const char *text)
{
    return is_json_bytes(text, strlen(text), 0);
}

/* ------------------------------------------------------------------ grammar */

static void
test_accepts(void)
{
    static const char *const texts[] = {
        "{}", "[]", "null", "true", "false", "0", "-0", "1", "-1", "10", "0.5", "-0.5",
        "1e5", "1E5", "1e+5", "1e-5", "1.25E-3", "\"\"", "\"a\"", "  1  ",
        "\t\r\n 1 \t\r\n",
        "[1,2,3]", "[ 1 , 2 ]", "[[],[[]],{}]", "{\"a\":1}",
        "{ \"a\" : 1 , \"b\" : [ ] }",
        "{\"a\":{\"b\":{\"c\":[{}]}},\"d\":0}", "{\"a\":1,\"a\":2}", "\"\\u0041\"",
        "\"\\ud83d\\ude00\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\x7f\"",
        "\"\xc3\xa9\"",
        "123456789012345678901234567890", "1e-400", "0e400", "0.0e99999999999999999999",
        "-0e99999999999999999999", "1e308", "[true,false,null]", "\"\\uABCDx\\uabcd\"",
        "{\"\":\"\"}", "1.7976931348623157e308", "1e-99999999999999999999",
        "17976931348623157000e289", "0.0000000000000000000000001e333",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!CHECK(is_json(texts[i])))
            T_NOTE("refused: %s", texts[i]);
}

static void
test_refuses(void)
{
    static const char *const texts[] = {
        "", " ", "{", "}", "[", "]", "{]", "[}", "{}{}", "{},", "[],", "1 2", "nul",
        "nulll",
        "tru", "truee", "fals", "True", "NULL", "{\"a\"}", "{\"a\":}", "{\"a\" 1}",
        "{a:1}",
        "{'a':1}", "{\"a\":1,}", "{,}", "{\"a\":1 \"b\":2}", "[1,]", "[,1]", "[,]",
        "[1 2]",
        "[1,,2]", "[1", "[1,", "{\"a\":1", "{\"a\":", "{\"a", "{1:2}", "[1}", "{\"a\":1]",
        "01", "-01", "00", "+1", ".5", "1.", "1.e5", "1e", "1e+", "1e-", "-", "--1", "1-",
        "0x2",
        "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e309",
        "1.7976931348623159e308",
        "1e99999999999999999999", "0.1e310", "\"", "\"a", "\"\\", "\"\\u", "\"\\u123\"",
        "\"\\u12G4\"", "\"\\u12g4\"", "\"\\u1/34\"", "\"\\u1:34\"", "\"\\u@123\"",
        "\"\\x41\"", "\"\\q\"", "\"\\'\"",
        "\"\\U0041\"", "\"\\ud800\"", "\"\\ude00\"", "\"\\ud83dx\"", "\"\\ud83d\\u0041\"",
        "\"\\ud83d\\ud83d\"", "\"\\ud83d\\ue000\"", "\"\\ud83d\\udbff\"",
        "\"\\ud83d\\n\"",
        "\"\\ude00\\ud83d\"", "\"\\ud83dxude00\"", "\"\\ud83d\\xde00\"", "\"\n\"",
        "\"\x1f\"", "\"\x01\"", "/* */1", "1//", "\v1",
        "\f1", "1\v",
        "\xc2\xa0[]", "\xef\xbb\xbf{}", "{\"a\":1}x", "{\"\\ud800\":1}", "[\"\\q\"]",
        "[tru]",
        "[nul]", "[fals]", "[1.]", "?", "{\"a\":?}", "[\"a\",?]", "{\"a\":[}",
        "\"\\ud83d\\ude0",
        "\"\\ud83d\\", "\"\\ud83d",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!CHECK(!is_json(texts[i])))
            T_NOTE("accepted: %s", texts[i]);
    CHECK(!is_json_bytes("1\0", 2, 0));
    CHECK(!is_json_bytes("\"\0\"", 3, 0));
}

/* Every proper prefix of a text with everything in it is refused. */
static void
test_prefixes(void)
{
    static const char text[] = " {\"k\\n\" : [1.5e+3, \"\\ud83d\\ude00\", true, false , null,{}],"
                               "\"z\":{\"a\":[-0,[ ]]} } ";
    const size_t whole = strlen(text);

    CHECK(is_json(text));
    CHECK(is_json_bytes(text, whole - 1, 0));
    for (size_t length = 0; length + 1 < whole; length++)
        if (!CHECK(!is_json_bytes(text, length, 0)))
            T_NOTE("accepted a prefix of %zu", length);
}

/* `count` openings, then the closings; what = "[" or "{\"a\":". */
static bool
is_nested(const char *opening, char closing, size_t count)
{
    const size_t width = strlen(opening);
    char *const text = malloc(count * (width + 1) + 1);
    size_t length = 0;
    bool is_ok;

    for (size_t i = 0; i < count; i++, length += width)
        memcpy(text + length, opening, width);
    if (closing == '}')
        text[length++] = '0';
    memset(text + length, closing, count);
    is_ok = is_json_bytes(text, length + count, 0);
    free(text);
    return is_ok;
}

static void
test_depth(void)
{
    CHECK(is_nested("[", ']', 1));
    CHECK(is_nested("[", ']', 64));
    CHECK(is_nested("[", ']', 65));
    CHECK(is_nested("[", ']', 127));
    CHECK(!is_nested("[", ']', 128));
    CHECK(!is_nested("[", ']', 100000));
    CHECK(is_nested("{\"a\":", '}', 64));
    CHECK(is_nested("{\"a\":", '}', 127));
    CHECK(!is_nested("{\"a\":", '}', 128));
    CHECK(is_json("[{\"a\":[{\"a\":[{\"a\":[]}]}]},[{}],{\"b\":[[],{}]}]"));
    CHECK(!is_json("[{\"a\":[{\"a\":[{\"a\":[}]}]}]}"));
}

/* Kinds of containers are remembered beyond the first word of bits. */
static void
test_depth_of_mixed_kinds(void)
{
    char text[1024] = "";
    char closings[128] = "";

    for (size_t i = 0; i < 120; i++) {
        const bool is_object = i % 3 == 0;

        strcat(text, is_object ? "{\"a\":" : "[");
        memmove(closings + 1, closings, strlen(closings) + 1);
        closings[0] = is_object ? '}' : ']';
    }
    strcat(text, "0");
    CHECK(is_json(strcat(text, closings)));
    for (char *at = strchr(text, '0') + 1; *at != '\0'; at++) {
        *at = *at == '}' ? ']' : '}';
        CHECK(!is_json(text));
        *at = *at == '}' ? ']' : '}';
    }
}

static void
test_nonfinite(void)
{
    static const char *const texts[] = { "NaN", "Infinity", "-Infinity",
    "[NaN,-Infinity]" };
    static const char *const wrong[] = { "Na", "nan", "Infinit", "-Inf", "-NaN",
    "+Infinity",
                                         "Nope", "Index", "INF" };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK(is_json_bytes(texts[i], strlen(texts[i]), BERTHI_SCAN_NONFINITE));
        CHECK(!is_json(texts[i]));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(!is_json_bytes(wrong[i], strlen(wrong[i]), BERTHI_SCAN_NONFINITE));
}

/* ------------------------------------------------------------------- values */

static void
check_string(const char *json, const char *expected, size_t length, bool has_nul)
{
    subject s = begin(json);
    berthi_scan_text text = { 0 };

    CHECK(berthi_scan_can_read_string(&s.scan, &text));
    CHECK(berthi_scan_can_finish(&s.scan));
    if (CHECK_EQ(text.length, length))
        CHECK_MEM(text.bytes, expected, length);
    CHECK_EQ(text.has_nul, has_nul);
    CHECK(text.bytes >= s.text && text.bytes + text.length <= s.text + s.length);
    end(&s);
}

static void
test_strings(void)
{
    check_string("\"\"", "", 0, false);
    check_string(" \"abc\" ", "abc", 3, false);
    check_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8, false);
    check_string("\"\\u0041b\\u0043\"", "AbC", 3, false);
    check_string("\"\\u0000\"", "\0", 1, true);
    check_string("\"a\\u0000b\"", "a\0b", 3, true);
    check_string("\"\\u007f\\u0080\\u07ff\\u0800\"", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80",
    8,
                 false);
    check_string("\"\\uffff\\uFFFE\\ue000\\ud7ff\"",
    "\xef\xbf\xbf\xef\xbf\xbe\xee\x80\x80\xed\x9f\xbf",
                 12, false);
    check_string("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4, false);
    check_string("\"\\uD800\\uDC00\"", "\xf0\x90\x80\x80", 4, false);
    check_string("\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf", 4, false);
    check_string("\"\xc3\xa9\\n\xf0\x9f\x98\x80\"", "\xc3\xa9\n\xf0\x9f\x98\x80", 7,
    false);
    check_string("\"0123456789\\n0123456789\\t0123456789\"",
                 "0123456789\n0123456789\t0123456789", 32, false);
}

/* A byte that ends a run, at every distance from the beginning and the end. */
static void
test_strings_of_every_length(void)
{
    for (size_t length = 0; length < 40; length++)
        for (size_t at = 0; at <= length; at++) {
            char json[64] = "\"";
            char expected[64];

            memset(json + 1, 0xC3, length); /* the scanner does not look at UTF-8 */
            json[length + 1] = '"';
            memcpy(expected, json + 1, length);
            if (at < length) {
                json[1 + at] = '\x1f';
                CHECK(!is_json(json));
                json[1 + at] = ' ';
                expected[at] = ' ';
            }
            check_string(json, expected, length, false);
            if (at + 1 < length) {
                json[1 + at] = '\\';
                json[2 + at] = 'n';
                expected[at] = '\n';
                memmove(expected + at + 1, expected + at + 2, length - at - 2);
                check_string(json, expected, length - 1, false);
            }
        }
}

static void
check_plain(const char *json, size_t length, bool is_plain)
{
    const berthi_scan_text plain = { "ab", 2, false };
    subject s = begin_bytes(json, length, 0);

    CHECK_EQ(berthi_scan_has_plain(&s.scan, &plain), is_plain);
    CHECK(s.scan.problem == NULL);
    CHECK_EQ(s.scan.position, is_plain ? length : 0);
    end(&s);
}

static void
test_plain_strings(void)
{
    subject s;

    check_plain(" \n\"ab\"", 6, true);
    check_plain("\"ab\"", 4, true);
    check_plain("\"ab", 3, false);
    check_plain("\"ab'", 4, false);
    check_plain("\"a\"", 3, false);
    check_plain("\"abc\"", 5, false);
    check_plain("\"\\u0061b\"", 9, false);
    check_plain("'ab\"", 4, false);
    check_plain("\"", 1, false);
    check_plain("", 0, false);
    s = begin("\"ab\"");
    CHECK(!berthi_scan_can_enter_array(&s.scan));
    CHECK(!berthi_scan_has_plain(&s.scan, &(berthi_scan_text){ "ab", 2, false }));
    CHECK_STR(s.scan.problem, "not an array");
    end(&s);
}

static void
check_unsigned(const char *json, bool is_ok, uint64_t expected)
{
    subject s = begin(json);
    uint64_t value = 77;

    if (!CHECK_EQ(berthi_scan_can_read_unsigned(&s.scan, &value), is_ok))
        T_NOTE("%s", json);
    CHECK_EQ(value, is_ok ? expected : 77u);
    if (is_ok)
        CHECK(berthi_scan_can_finish(&s.scan));
    end(&s);
}

static void
test_unsigned(void)
{
    static const char *const wrong[] = {
        "-0", "-1", "2.0", "2e0", "20E-1", "-0.0", "18446744073709551616",
        "99999999999999999999",
        "184467440737095516150", "26999999999999999999999999", "\"2\"", "true", "null",
        "02", "+2",
        "", "[2]", "1e400",
    };

    check_unsigned("0", true, 0);
    check_unsigned(" 7 ", true, 7);
    check_unsigned("10", true, 10);
    check_unsigned("9007199254740993", true, UINT64_C(9007199254740993));
    check_unsigned("18446744073709551615", true, UINT64_MAX);
    check_unsigned("18446744073709551610", true, UINT64_MAX - 5);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_unsigned(wrong[i], false, 0);
}

static void
check_double(const char *json, double expected)
{
    subject s = begin_bytes(json, strlen(json), BERTHI_SCAN_NONFINITE);
    double value = -1;

    CHECK(berthi_scan_can_read_double(&s.scan, &value));
    CHECK(berthi_scan_can_finish(&s.scan));
    if (!CHECK(memcmp(&value, &expected, sizeof value) == 0
               || (isnan(value) && isnan(expected))))
        T_NOTE("%s: %a instead of %a", json, value, expected);
    end(&s);
}

static void
test_doubles(void)
{
    static const char *const same[] = {
        "0", "1", "-1", "10", "100", "123456789", "0.1", "0.5", "0.001", "1.5", "-2.25e3",
        "1e22", "1e23",
        "9007199254740993", "9007199254740992.999999999999999999999999", "1e-5", "123e-7",
        "0.00012300e4",
        "2.2250738585072014e-308", "2.2250738585072011e-308", "4.9e-324",
        "2.4703282292062328e-324", "1e-323",
        "5e-324", "1.7976931348623157e308", "1.7976931348623158e308",
        "17976931348623157e292",
        "0.000000000000000000000000000000000000000000001e353",
        "100000000000000000000000000000e279",
        "6.02214076e23", "3.141592653589793238462643383279502884197169399375105820974944",
    };

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        check_double(same[i], strtod(same[i], NULL));
    check_double("-0", -0.0);
    check_double("-0.0e5", -0.0);
    check_double("0e999999999999", 0.0);
    check_double("1e-324", 0.0);
    check_double("2.4703282292062327e-324", 0.0);
    check_double("1e-999999999999999999999", 0.0);
    check_double("-1e-400", -0.0);
    check_double("NaN", (double)NAN);
    check_double("Infinity", (double)INFINITY);
    check_double("-Infinity", -(double)INFINITY);
}

/* The middle between 1 and the next double: digits behind the 770th decide. */
static void
test_double_of_many_digits(void)
{
    static const char middle[] = "1.00000000000000011102230246251565404236316680908203125";
    char json[2000];
    size_t length = strlen(middle);

    check_double(middle, 1.0);
    memcpy(json, middle, length);
    memset(json + length, '0', 1500 - length);
    strcpy(json + 1500, "0");
    check_double(json, 1.0);
    strcpy(json + 1500, "1");
    check_double(json, 1.0 + 0x1p-52);
    /* The same as an integer of more than 1500 digits. */
    memmove(json + 1, json + 2, 1500);
    memcpy(json + 1500, "e-1499", 7);
    check_double(json, 1.0 + 0x1p-52);
}

/* Integers around the largest double, by their digits alone. */
static void
test_long_integers(void)
{
    char json[1001];

    memset(json, '9', sizeof json);
    json[308] = '\0';
    CHECK(is_json(json));
    json[308] = '9';
    json[309] = '\0';
    CHECK(!is_json(json));
    memcpy(json, "17976931348623157", 17); /* the largest double, cut: 309 digits */
    memset(json + 17, '0', 309 - 17);
    CHECK(is_json(json));
    json[309] = '0';
    json[310] = '\0';
    CHECK(!is_json(json));
    memset(json, '9', sizeof json);
    json[1] = '.'; /* a thousand digits that all count, only two can decide */
    json[1000] = '\0';
    check_double(json, 10.0);
}

/* strtod() sets errno for tiny numbers; a caller must not see it. */
static void
test_double_keeps_errno(void)
{
    errno = 42;
    check_double("1e-320", 1e-320);
    check_double("0.25", 0.25);
    CHECK_EQ(errno, 42);
}

static void
check_number(const char *json, const char *expected)
{
    subject s = begin_bytes(json, strlen(json), BERTHI_SCAN_NONFINITE);
    berthi_scan_text text = { 0 };

    CHECK(berthi_scan_can_read_number(&s.scan, &text));
    if (CHECK_EQ(text.length, strlen(expected)))
        CHECK_MEM(text.bytes, expected, text.length);
    CHECK(!text.has_nul);
    end(&s);
}

static void
test_number_texts(void)
{
    berthi_scan_text text;
    subject s;

    check_number(" 1,", "1");
    check_number("-0.50e+07]", "-0.50e+07");
    check_number("-Infinity ", "-Infinity");
    check_number("NaN", "NaN");
    s = begin("\"1\"");
    CHECK(!berthi_scan_can_read_number(&s.scan, &text));
    end(&s);
}

static void
test_bool_and_null(void)
{
    subject s = begin("[true, false ,null]");
    bool value = false;

    CHECK(berthi_scan_can_enter_array(&s.scan));
    CHECK(berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_read_bool(&s.scan, &value));
    CHECK(value);
    CHECK(berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_read_bool(&s.scan, &value));
    CHECK(!value);
    CHECK(berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_read_null(&s.scan));
    CHECK(!berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_finish(&s.scan));
    end(&s);
    s = begin("null");
    CHECK(!berthi_scan_can_read_bool(&s.scan, &value));
    CHECK_STR(s.scan.problem, "not true or false");
    end(&s);
    s = begin("true");
    CHECK(!berthi_scan_can_read_null(&s.scan));
    CHECK_STR(s.scan.problem, "not null");
    end(&s);
}

static void
test_peek(void)
{
    static const struct {
        const char *text;
        berthi_scan_kind kind;
    } cases[] = {
        { " {", BERTHI_SCAN_OBJECT }, { "\n[", BERTHI_SCAN_ARRAY }, { "\t\"",
        BERTHI_SCAN_STRING },
        { "\r-", BERTHI_SCAN_NUMBER }, { "0", BERTHI_SCAN_NUMBER }, { "9",
        BERTHI_SCAN_NUMBER },
        { "t", BERTHI_SCAN_TRUE }, { "f", BERTHI_SCAN_FALSE }, { "n", BERTHI_SCAN_NULL },
        { "", BERTHI_SCAN_NONE }, { " ", BERTHI_SCAN_NONE }, { "]", BERTHI_SCAN_NONE },
        { "/", BERTHI_SCAN_NONE }, { ":", BERTHI_SCAN_NONE }, { "N", BERTHI_SCAN_NONE },
        { "I", BERTHI_SCAN_NONE }, { "+", BERTHI_SCAN_NONE },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        subject s = begin(cases[i].text);

        CHECK_EQ(berthi_scan_peek(&s.scan), cases[i].kind);
        CHECK_EQ(berthi_scan_peek(&s.scan), cases[i].kind);
        CHECK(s.scan.problem == NULL);
        end(&s);
    }
}

/* --------------------------------------------------------------- containers */

/* A walk as every caller does it, with every kind of value. */
static void
test_walk(void)
{
    subject s = begin("{\"a\":[1,[ ],2], \"\\u0062\" :{\"c\":\"x\"},\"d\":{},\"e\":-1}");
    berthi_scan *const scan = &s.scan;
    berthi_scan_text key;
    berthi_scan_text text;
    uint64_t value;

    T_REQUIRE(berthi_scan_can_enter_object(scan));
    CHECK(berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_text_is(&key, "a"));
    CHECK(!berthi_scan_text_is(&key, "b"));
    CHECK(!berthi_scan_text_is(&key, "aa"));
    CHECK(!berthi_scan_text_is(&key, ""));
    CHECK(berthi_scan_can_enter_array(scan));
    CHECK(berthi_scan_has_next_element(scan));
    CHECK(berthi_scan_can_read_unsigned(scan, &value));
    CHECK_EQ(value, 1u);
    CHECK(berthi_scan_has_next_element(scan));
    CHECK(berthi_scan_can_enter_array(scan));
    CHECK_EQ(scan->depth, 3u);
    CHECK(!berthi_scan_has_next_element(scan));
    CHECK(berthi_scan_has_next_element(scan));
    CHECK(berthi_scan_can_read_unsigned(scan, &value));
    CHECK_EQ(value, 2u);
    CHECK(!berthi_scan_has_next_element(scan));
    CHECK(berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_text_is(&key, "b"));
    CHECK(berthi_scan_can_enter_object(scan));
    CHECK(berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_can_read_string(scan, &text));
    CHECK(berthi_scan_text_is(&text, "x"));
    CHECK(!berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_text_is(&key, "d"));
    CHECK(berthi_scan_can_enter_object(scan));
    CHECK(!berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_has_next_member(scan, &key));
    CHECK(berthi_scan_can_skip(scan));
    CHECK(!berthi_scan_has_next_member(scan, &key));
    CHECK(scan->problem == NULL);
    CHECK_EQ(scan->depth, 0u);
    CHECK(berthi_scan_can_finish(scan));
    end(&s);
}

/* A value inside a container can be skipped, and the walk goes on behind it. */
static void
test_skip_inside(void)
{
    subject s = begin("[{\"a\":[1,{\"b\":[]}]},5]");
    uint64_t value = 0;

    CHECK(berthi_scan_can_enter_array(&s.scan));
    CHECK(berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_skip(&s.scan));
    CHECK_EQ(s.scan.depth, 1u);
    CHECK(berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_read_unsigned(&s.scan, &value));
    CHECK_EQ(value, 5u);
    CHECK(!berthi_scan_has_next_element(&s.scan));
    CHECK(berthi_scan_can_finish(&s.scan));
    end(&s);
}

static void
test_unclosed_is_not_finished(void)
{
    subject s = begin("[");

    CHECK(berthi_scan_can_enter_array(&s.scan));
    CHECK(!berthi_scan_can_finish(&s.scan));
    end(&s);
}

/* ----------------------------------------------------------------- problems */

static void
test_positions(void)
{
    static const struct {
        const char *text;
        uint64_t at;
        const char *problem;
    } cases[] = {
        { "", 0, "not a value" },
        { "  ?", 2, "not a value" },
        { "[1 2]", 3, "a comma or the end is missing" },
        { "[1,]", 3, "not a value" },
        { "{\"a\":1,}", 7, "a key is missing" },
        { "{\"a\" 1}", 5, "a colon is missing" },
        { "{} x", 3, "something stands behind the end" },
        { "\"abc", 4, "a string without end" },
        { "\"ab\x01\"", 3, "a control character in a string" },
        { "\"ab\\q\"", 3, "an unknown escape" },
        { "\"ab\\u12\"", 3, "\\u without four hexadecimal digits" },
        { "\"ab\\ud800\"", 3, "an unpaired surrogate" },
        { "[01]", 2, "a number with a leading zero" },
        { "[-]", 2, "a digit is missing in a number" },
        { "[1.]", 3, "a digit is missing behind a point" },
        { "[1e]", 3, "a digit is missing in an exponent" },
        { "[ -1e999]", 2, "a number beyond the range of a double" },
        { "[tru]", 1, "not a value" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        subject s = begin(cases[i].text);

        CHECK(!berthi_scan_can_skip(&s.scan) || !berthi_scan_can_finish(&s.scan));
        CHECK_STR(s.scan.problem, cases[i].problem);
        if (!CHECK_EQ(s.scan.problem_at, cases[i].at))
            T_NOTE("%s", cases[i].text);
        end(&s);
    }
}

static void
check_unsigned_problem(const char *json, const char *problem, uint64_t at)
{
    subject s = begin(json);
    uint64_t value;

    CHECK(!berthi_scan_can_read_unsigned(&s.scan, &value));
    CHECK_STR(s.scan.problem, problem);
    CHECK_EQ(s.scan.problem_at, at);
    end(&s);
}

static void
test_unsigned_positions(void)
{
    check_unsigned_problem(" 2.5", "not an unsigned integer", 1);
    check_unsigned_problem(" -2", "not an unsigned integer", 1);
    check_unsigned_problem(" 18446744073709551616", "an integer beyond 64 bits", 1);
    check_unsigned_problem(" x", "not an unsigned integer", 1);
}

/* After the first problem nothing works any more, and the problem stays. */
static void
test_problem_stays(void)
{
    subject s = begin("[5,5,5]");
    berthi_scan *const scan = &s.scan;
    berthi_scan_text text;
    uint64_t value;
    double number;
    bool flag;

    CHECK(berthi_scan_can_enter_array(scan));
    CHECK(berthi_scan_has_next_element(scan));
    CHECK(!berthi_scan_refuse(scan, "first"));
    CHECK(!berthi_scan_refuse(scan, "second"));
    CHECK(!berthi_scan_can_enter_array(scan));
    CHECK(!berthi_scan_can_enter_object(scan));
    CHECK(!berthi_scan_has_next_element(scan));
    CHECK(!berthi_scan_has_next_member(scan, &text));
    CHECK(!berthi_scan_can_read_string(scan, &text));
    CHECK(!berthi_scan_can_read_unsigned(scan, &value));
    CHECK(!berthi_scan_can_read_number(scan, &text));
    CHECK(!berthi_scan_can_read_double(scan, &number));
    CHECK(!berthi_scan_can_read_bool(scan, &flag));
    CHECK(!berthi_scan_can_read_null(scan));
    CHECK(!berthi_scan_can_skip(scan));
    CHECK(!berthi_scan_can_finish(scan));
    CHECK_EQ(berthi_scan_peek(scan), BERTHI_SCAN_NONE);
    CHECK_STR(scan->problem, "first");
    CHECK_EQ(scan->problem_at, 1u);
    CHECK_EQ(scan->position, 1u);
    end(&s);
}

static void
test_wrong_kinds(void)
{
    subject s = begin("1");
    berthi_scan_text text;

    CHECK(!berthi_scan_can_enter_object(&s.scan));
    CHECK_STR(s.scan.problem, "not an object");
    end(&s);
    s = begin("1");
    CHECK(!berthi_scan_can_enter_array(&s.scan));
    CHECK_STR(s.scan.problem, "not an array");
    end(&s);
    s = begin("1");
    CHECK(!berthi_scan_can_read_string(&s.scan, &text));
    CHECK_STR(s.scan.problem, "not a string");
    end(&s);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_accepts);
    T_RUN(test_refuses);
    T_RUN(test_prefixes);
    T_RUN(test_depth);
    T_RUN(test_depth_of_mixed_kinds);
    T_RUN(test_nonfinite);
    T_RUN(test_strings);
    T_RUN(test_strings_of_every_length);
    T_RUN(test_plain_strings);
    T_RUN(test_unsigned);
    T_RUN(test_doubles);
    T_RUN(test_double_of_many_digits);
    T_RUN(test_long_integers);
    T_RUN(test_double_keeps_errno);
    T_RUN(test_number_texts);
    T_RUN(test_bool_and_null);
    T_RUN(test_peek);
    T_RUN(test_walk);
    T_RUN(test_skip_inside);
    T_RUN(test_unclosed_is_not_finished);
    T_RUN(test_positions);
    T_RUN(test_unsigned_positions);
    T_RUN(test_problem_stays);
    T_RUN(test_wrong_kinds);
    T_MAIN_END;
}
