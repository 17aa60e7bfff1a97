/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_safetensors.c - the verdict on each of many headers and files. It is that of the
 * safetensors library, which all of them were given to, unless berth is stricter on purpose:
 * names and keys that stand twice, entries as arrays, dtypes as objects, U+0000 in a name,
 * more than 64 dims.
 *
 * The letter of a case says what it is about, as do the titles below. The large ones are
 * built smaller here and in full in test_big_headers.c. What errors say is in
 * test_header_details.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/safetensors.h"
#include "tests/header_case.h"
#include "tests/t.h"

#define ACCEPT BERTH_REASON_NONE
#define TOO_SMALL BERTH_REASON_HEADER_TOO_SMALL
#define TOO_LARGE BERTH_REASON_HEADER_TOO_LARGE
#define LENGTH BERTH_REASON_HEADER_LENGTH
#define UTF8 BERTH_REASON_HEADER_UTF8
#define JSON BERTH_REASON_HEADER_JSON
#define OFFSET BERTH_REASON_OFFSET
#define TOO_MUCH BERTH_REASON_OVERFLOW
#define SUBBYTE BERTH_REASON_SUBBYTE
#define MISMATCH BERTH_REASON_SIZE_MISMATCH
#define COVERAGE BERTH_REASON_COVERAGE
#define DUPLICATE BERTH_REASON_DUPLICATE
#define NAME BERTH_REASON_NAME
#define RANK BERTH_REASON_RANK

/* T: an entry; A: the members of a F32 [2] at [0,8]; G: the usual header. */
#define T(name, dtype, shape, offsets)                                                    \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"
#define G "{" T("a", "F32", "[2]", "[0,8]") "}"
/* A U8 tensor; an entry with one more member; with metadata before; with a name. */
#define U(name, count, offsets) T(name, "U8", "[" count "]", offsets)
#define EXTRA(value) "{\"a\":{" A ",\"x\":" value "}}"
#define META(value) "{\"__metadata__\":" value "," T("a", "F32", "[2]", "[0,8]") "}"
#define NAMED(name) "{" T(name, "F32", "[2]", "[0,8]") "}"
#define DTYPE(value) "{\"a\":{\"dtype\":" value ",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define SHAPE(value) "{" T("a", "F32", value, "[0,8]") "}"
#define ONE(dtype, shape, offsets) "{" T("a", dtype, shape, offsets) "}"
#define OFFSETS(value) "{" T("a", "U8", "[4]", value) "}"

typedef struct header_case {
    const char *id;
    const char *header;
    uint64_t length;
    uint64_t data_bytes;
    berth_reason reason;
} header_case;

#define CASE(id, header, data_bytes, reason)                                              \
    { id, header, sizeof header - 1, data_bytes, reason }

static void
run_cases(const header_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const header_case *const c = &cases[i];

        header_case_check(c->id, c->header, c->length, c->data_bytes, c->reason);
    }
}
#define RUN_CASES(cases) run_cases(cases, sizeof cases / sizeof cases[0])

/* ------------------------------------------------------- L: length, file kind */

/* A whole file: the prefix and what follows, `more` zero bytes behind. */
typedef struct file_case {
    const char *id;
    const char *bytes;
    uint64_t length;
    uint64_t more;
    berth_reason reason;
} file_case;

#define FILE_CASE(id, bytes, more, reason) { id, bytes, sizeof bytes - 1, more, reason }
#define N54 "\x36\0\0\0\0\0\0\0"
#define UTF16_G                                                                           \
    "{\0\"\0a\0\"\0:\0{\0\"\0d\0t\0y\0p\0e\0\"\0:\0\"\0F\0003\0002\0\"\0,\0"

static const file_case file_cases[] = {
    FILE_CASE("L01", "", 0, TOO_SMALL),
    FILE_CASE("L02", "", 7, TOO_SMALL),
    FILE_CASE("L03", "", 8, JSON),
    FILE_CASE("L04", "\1\0\0\0\0\0\0\0", 0, LENGTH),
    FILE_CASE("L05", "\2\0\0\0\0\0\0\0{}", 0, ACCEPT),
    FILE_CASE("L06", "\377\377\377\377\377\377\377\377" G, 8, TOO_LARGE),
    FILE_CASE("L07", "\x01\xe1\xf5\x05\0\0\0\0" G, 8, TOO_LARGE),
    FILE_CASE("L08", "\x00\xe1\xf5\x05\0\0\0\0" G, 8, LENGTH),
    FILE_CASE("L10", "\0\0\0\0\0\0\0\x80" G, 8, TOO_LARGE),
    FILE_CASE("L11", "\0\0\0\0\0\0\0\x36" G, 8, TOO_LARGE),
    FILE_CASE("L12", "\x37\0\0\0\0\0\0\0" G, 0, LENGTH),
    FILE_CASE("L13", "\x35\0\0\0\0\0\0\0" G, 8, JSON),
    FILE_CASE("L14", "\x3a\0\0\0\0\0\0\0" G, 8, JSON),
    FILE_CASE("L15", "\1\0\0\0\0\0\0\0{", 0, JSON),
    FILE_CASE("L16", "\x39\0\0\0\0\0\0\0\xef\xbb\xbf" G, 8, JSON),
    FILE_CASE("L17", "\x28\0\0\0\0\0\0\0" UTF16_G, 8, JSON),
    FILE_CASE("L18", N54 G, 8, ACCEPT),
    FILE_CASE("L20", "version https://git-lfs.github.com/spec/v1\noid sha256:", 70, TOO_LARGE),
    FILE_CASE("L21", "PK\3\4", 60, LENGTH),
    FILE_CASE("L22", "GGUF\3\0\0\0", 60, TOO_LARGE),
    FILE_CASE("L23", "<!DOCTYPE html><html></html>", 0, TOO_LARGE),
    FILE_CASE("L24", "\x80\2}q\0X\5\0\0\0", 40, TOO_LARGE),
    FILE_CASE("L26", "\x8\0\0\0\0\0\0\0        ", 0, JSON),
};

static void
test_files(void)
{
    for (size_t i = 0; i < sizeof file_cases / sizeof file_cases[0]; i++) {
        const file_case *const c = &file_cases[i];
        char *const bytes = calloc(1, c->length + c->more + 1);

        memcpy(bytes, c->bytes, c->length);
        header_case_check_file(c->id, bytes, c->length + c->more, c->reason);
        free(bytes);
    }
}

/* L09 and L19: the limit itself is allowed; a small header in front of spaces. */
static void
test_padded(void)
{
    static const uint64_t padded[] = { 55, 56, 64, 4096, 1000000 };

    for (size_t i = 0; i < sizeof padded / sizeof padded[0]; i++) {
        char *const text = malloc(padded[i]);

        memset(text, ' ', padded[i]);
        memcpy(text, G, sizeof G - 1);
        header_case_check("L09", text, padded[i], 8, ACCEPT);
        memset(text, ' ', padded[i]);
        memcpy(text + padded[i] - (sizeof G - 1), G, sizeof G - 1);
        header_case_check("L09", text, padded[i], 8, ACCEPT);
        free(text);
    }
}

/* -------------------------------------------------------- J, K, P: JSON syntax */

static const header_case syntax_cases[] = {
    CASE("J01", "[]", 0, JSON),
    CASE("J02", "null", 0, JSON),
    CASE("J03", "1", 0, JSON),
    CASE("J04", "\"\"", 0, JSON),
    CASE("J28", "true", 0, JSON),
    CASE("J05", "{}{}", 0, JSON),
    CASE("J06", "{},", 0, JSON),
    CASE("J07", "{" T("a", "F32", "[2]", "[0,8]") ",}", 8, JSON),
    CASE("J08", "{/* */" T("a", "F32", "[2]", "[0,8]") "}", 8, JSON),
    CASE("J09", "{'a':{" A "}}", 8, JSON),
    CASE("J21", "{a:{" A "}}", 8, JSON),
    CASE("J10", " " G, 8, ACCEPT),
    CASE("J11", "\t\r\n " G, 8, ACCEPT),
    CASE("J12",
         " { \"a\" : { \"dtype\" : \"F32\" , \"shape\" : [ 2 ] ,"
         "\n\t\"data_offsets\"\r:\r[ 0 , 8 ] } } ",
         8, ACCEPT),
    CASE("J13", G " \t\r\n", 8, ACCEPT),
    CASE("J14", G "\0\0\0", 8, JSON),
    CASE("J15", G "\v", 8, JSON),
    CASE("J16", G "\f", 8, JSON),
    CASE("J17", G "\xc2\xa0", 8, JSON),
    CASE("J18", G "x", 8, JSON),
    CASE("J19", "{" T("a", "F32", "[2]", "[0,8]") T("b", "F32", "[2]", "[8,16]") "}", 16,
         JSON),
    CASE("J20", "{" T("a", "F32", "[2]", "[0,8]"), 8, JSON),
    CASE("J22", "{\"a\":NaN}", 8, JSON),
    CASE("J23", "{\"a\":null}", 8, JSON),
    CASE("J24", "{\"a\":1}", 8, JSON),
    CASE("J25", "{\"a\":\"x\"}", 8, JSON),
    CASE("J26", "{\"a\":{}}", 8, JSON),
    CASE("J27", "{\"a\":[]}", 8, JSON),
    CASE("J29", "{\"a\"}", 8, JSON),
    CASE("J30", "{\"a\":}", 8, JSON),
    CASE("P01", EXTRA("1e400"), 8, JSON),
    CASE("P02", EXTRA("-1e400"), 8, JSON),
    CASE("P03", EXTRA("1e-400"), 8, ACCEPT),
    CASE("P04", EXTRA("\"\\ud800\""), 8, JSON),
    CASE("P05", EXTRA("\"\\q\""), 8, JSON),
    CASE("P06", EXTRA("01"), 8, JSON),
    CASE("P07", EXTRA("NaN"), 8, JSON),
    CASE("P08", EXTRA("[1,]"), 8, JSON),
    CASE("P09", EXTRA("\"\1\""), 8, JSON),
    CASE("P10", EXTRA("1E5"), 8, ACCEPT),
    CASE("P11", EXTRA("-0"), 8, ACCEPT),
    CASE("P12", EXTRA("123456789012345678901234567890"), 8, ACCEPT),
    CASE("P14", EXTRA("{\"a\":1,\"a\":2}"), 8, ACCEPT),
    CASE("P15", EXTRA("tru"), 8, JSON),
    CASE("P17", EXTRA("-"), 8, JSON),
    CASE("P18", EXTRA("1."), 8, JSON),
    CASE("P19", EXTRA(".5"), 8, JSON),
};

static void
test_syntax(void)
{
    RUN_CASES(syntax_cases);
}

/* `before`, then `count` times `opening`, `count` times `closing`, then `after`. */
static void
check_nested(const char *id, const char *before, const char *opening, char closing,
             uint64_t count, const char *after, berth_reason reason)
{
    const uint64_t width = strlen(opening);
    char *const text = malloc(strlen(before) + count * (width + 1) + strlen(after) + 1);
    char *at = text;

    at += sprintf(at, "%s", before);
    for (uint64_t i = 0; i < count; i++, at += width)
        memcpy(at, opening, width);
    memset(at, closing, closing != '\0' ? count : 0);
    at += closing != '\0' ? count : 0;
    at += sprintf(at, "%s", after);
    header_case_check(id, text, (uint64_t)(at - text), 8, reason);
    free(text);
}

static void
test_nesting(void)
{
    static const struct {
        const char *id;
        uint64_t count;
        berth_reason reason;
    } arrays[] = {
        { "K04", 125, ACCEPT }, { "K05", 126, JSON },  { "K06", 127, JSON },
        { "K07", 128, JSON },   { "K08", 129, JSON },  { "K09", 130, JSON },
        { "K10", 1000, JSON },  { "K11", 100000, JSON },
    };

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        check_nested(arrays[i].id, "{\"a\":{" A ",\"x\":", "[", ']', arrays[i].count, "}}",
                     arrays[i].reason);
    check_nested("K12", "", "[", ']', 126, "", JSON);
    check_nested("K13", "", "[", ']', 127, "", JSON);
    check_nested("K14", "", "[", ']', 128, "", JSON);
    check_nested("K15", "", "[", ']', 100000, "", JSON);
    check_nested("K16", "", "{\"a\":", '}', 100000, "", JSON);
    check_nested("K17", "", "[", '\0', 1000000, "", JSON);
}

/* ------------------------------------------------------------------ U: strings */

static const header_case string_cases[] = {
    CASE("U01", NAMED("\xff"), 8, UTF8),
    CASE("U02", NAMED("\xc0\x80"), 8, UTF8),
    CASE("U03", NAMED("\xed\xa0\x80"), 8, UTF8),
    CASE("U04", NAMED("\xf4\x90\x80\x80"), 8, UTF8),
    CASE("U05", G "\xe2\x82", 8, UTF8),
    CASE("U06", NAMED("\xc3\xa9\xf0\x9f\x98\x80"), 8, ACCEPT),
    CASE("U07", NAMED("\\ud83d\\ude00"), 8, ACCEPT),
    CASE("U08", NAMED("\\ud83d"), 8, JSON),
    CASE("U09", NAMED("\\ude00"), 8, JSON),
    CASE("U10", NAMED("\\ud83dx"), 8, JSON),
    CASE("U11", NAMED("\\ud83d\\u0041"), 8, JSON),
    CASE("U12", NAMED("\\u0000"), 8, NAME),
    CASE("U13", NAMED("\0"), 8, JSON),
    CASE("U14", NAMED("\n"), 8, JSON),
    CASE("U15", NAMED("\x7f"), 8, ACCEPT),
    CASE("U16", NAMED(""), 8, ACCEPT),
    CASE("U17", NAMED("\\/\\b\\f\\n\\r\\t\\\"\\\\"), 8, ACCEPT),
    CASE("U18", NAMED("\\x41"), 8, JSON),
    CASE("U19", NAMED("\\u00G0"), 8, JSON),
    CASE("U20", NAMED("\\u12"), 8, JSON),
    CASE("U21", NAMED("\\U0041"), 8, JSON),
    CASE("U22", NAMED("\\'"), 8, JSON),
    CASE("U24", NAMED("\xef\xbf\xbe"), 8, ACCEPT),
    CASE("U25", NAMED("../../etc/passwd"), 8, ACCEPT),
    CASE("U26", EXTRA("\"\xff\""), 8, UTF8),
};

static void
test_strings(void)
{
    char *const name = malloc(1000000);

    RUN_CASES(string_cases);
    memset(name, 'x', 1000000);
    header_case_check_entry("U23", name, 1000000, "F32", "[2]", "[0,8]", 8, ACCEPT);
    free(name);
}

/* --------------------------------------------------------------- D: duplicates */

static const header_case duplicate_cases[] = {
    CASE("D01", "{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[0,8]") "}", 8,
         DUPLICATE),
    CASE("D02", "{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[2]", "[0,8]") "}", 8,
         DUPLICATE),
    CASE("D03", "{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[1]", "[0,4]") "}", 8,
         DUPLICATE),
    CASE("D04", "{" T("a", "F32", "[2]", "[0,8]") "," T("\\u0061", "F32", "[2]", "[0,8]") "}",
         8, DUPLICATE),
    CASE("D05", "{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[8,16]") "}", 16,
         DUPLICATE),
    CASE("D06", "{\"__metadata__\":{}," T("a", "F32", "[2]", "[0,8]") ",\"__metadata__\":{}}",
         8, JSON),
    CASE("D12", "{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", 0, JSON),
    CASE("D07", META("{\"k\":\"1\",\"k\":\"2\"}"), 8, DUPLICATE),
    CASE("D08", "{\"a\":{\"dtype\":\"F32\"," A "}}", 8, JSON),
    CASE("D09", "{\"a\":{\"shape\":[2]," A "}}", 8, JSON),
    CASE("D10", "{\"a\":{\"data_offsets\":[0,8]," A "}}", 8, JSON),
    CASE("D11", "{\"a\":{" A ",\"x\":1,\"x\":2}}", 8, ACCEPT),
    CASE("D13", "{" T("a", "F32", "[2]", "[0,8]") ",\"a\":5}", 8, JSON),
    CASE("D14", "{\"a\":5," T("a", "F32", "[2]", "[0,8]") "}", 8, JSON),
    /* null counts as the first of two */
    CASE("D06 null", "{\"__metadata__\":null,\"__metadata__\":{}}", 0, JSON),
};

static void
test_duplicates(void)
{
    RUN_CASES(duplicate_cases);
}

/* ----------------------------------------------------------------- M: metadata */

static const header_case metadata_cases[] = {
    CASE("M01", META("{}"), 8, ACCEPT),
    CASE("M11", META("{\"\":\"\"}"), 8, ACCEPT),
    CASE("M12", META("{\"format\":\"pt\"}"), 8, ACCEPT),
    CASE("M14", META("{\"k\":\"\\u0000\"}"), 8, ACCEPT),
    CASE("M18", "{" T("a", "F32", "[2]", "[0,8]") ",\"__metadata__\":{\"k\":\"v\"}}", 8, ACCEPT),
    CASE("M19", "{\"\\u005f_metadata__\":{\"k\":\"v\"}," T("a", "F32", "[2]", "[0,8]") "}", 8,
         ACCEPT),
    CASE("M02", META("null"), 8, ACCEPT),
    CASE("M23", "{\"__metadata__\":null}", 0, ACCEPT),
    CASE("M03", META("[]"), 8, JSON),
    CASE("M04", META("\"x\""), 8, JSON),
    CASE("M05", META("1"), 8, JSON),
    CASE("M13", META("[[\"k\",\"v\"]]"), 8, JSON),
    CASE("M15", META("true"), 8, JSON),
    CASE("M16", META("false"), 8, JSON),
    CASE("M06", META("{\"k\":1}"), 8, JSON),
    CASE("M07", META("{\"k\":null}"), 8, JSON),
    CASE("M08", META("{\"k\":true}"), 8, JSON),
    CASE("M09", META("{\"k\":{}}"), 8, JSON),
    CASE("M10", META("{\"k\":[\"x\"]}"), 8, JSON),
    CASE("M17", META("{" A "}"), 8, JSON),
    CASE("M20", "{\"__METADATA__\":{}," T("a", "F32", "[2]", "[0,8]") "}", 8, JSON),
    CASE("M21", "{\"__metadata__\":{\"k\":\"v\"}}", 0, ACCEPT),
    CASE("M key", META("{\"k\\u0000\":\"v\"}"), 8, NAME),
};

static void
test_metadata(void)
{
    const uint64_t length = 5000000;
    char *const text = malloc(length + 100);
    char *at = text;

    RUN_CASES(metadata_cases);
    at += sprintf(at, "{\"__metadata__\":{\"k\":\"");
    memset(at, 'v', length);
    at += length;
    at += sprintf(at, "\"}}");
    header_case_check("M22", text, (uint64_t)(at - text), 0, ACCEPT);
    free(text);
}

/* ------------------------------------------------------------------- E: entries */

static const header_case entry_cases[] = {
    CASE("E01", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, JSON),
    CASE("E02", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, JSON),
    CASE("E03", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, JSON),
    CASE("E04", "{\"a\":{\"data_offsets\":[0,8],\"shape\":[2],\"dtype\":\"F32\"}}", 8, ACCEPT),
    CASE("E05", EXTRA("{\"y\":[1,{\"z\":null}]}"), 8, ACCEPT),
    CASE("E06", "{\"a\":[\"F32\",[2],[0,8]]}", 8, JSON),
    CASE("E07", "{\"a\":[\"F32\",[2],[0,8],1]}", 8, JSON),
    CASE("E08", DTYPE("\"f32\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E09", DTYPE("\"F128\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E10", DTYPE("\" F32\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E16", DTYPE("\"F8_E4M3FN\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E26", DTYPE("\"C128\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E27", DTYPE("\"\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E28", DTYPE("\"F32\\u0000\""), 8, BERTH_REASON_UNSUPPORTED),
    CASE("E11", DTYPE("17"), 8, JSON),
    CASE("E13", DTYPE("null"), 8, JSON),
    CASE("E14", DTYPE("[\"F32\"]"), 8, JSON),
    CASE("E25", DTYPE("1"), 8, JSON),
    CASE("E12", DTYPE("{\"F32\":null}"), 8, JSON),
    CASE("E21", DTYPE("{\"F32\":1}"), 8, JSON),
    CASE("E24", DTYPE("{\"F32\":{}}"), 8, JSON),
    CASE("E29", DTYPE("{\"F32\":[]}"), 8, JSON),
    CASE("E15", DTYPE("\"\\u004632\""), 8, ACCEPT),
    CASE("E19", "{\"a\":{\"\\u0064type\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         ACCEPT),
    CASE("E17", ONE("F8_E4M3FNUZ", "[8]", "[0,8]"), 8, ACCEPT),
    CASE("E18", "{\"a\":{\"Dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, JSON),
    CASE("E20", "{\"a\":{" A ",\"sh\\u0061pe\":[2]}}", 8, JSON),
    CASE("E22", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{\"0\":0,\"1\":8}}}",
         8, JSON),
    CASE("E23", "{\"a\":{\"0\":\"F32\",\"1\":[2],\"2\":[0,8]}}", 8, JSON),
};

static void
test_entries(void)
{
    RUN_CASES(entry_cases);
}

/* ------------------------------------------------------------------- N: numbers */

static const header_case number_cases[] = {
    CASE("N01", SHAPE("2"), 8, JSON),
    CASE("N18", SHAPE("{}"), 8, JSON),
    CASE("N19", SHAPE("null"), 8, JSON),
    CASE("N20", SHAPE("\"[2]\""), 8, JSON),
    CASE("N02", SHAPE("[2.0]"), 8, JSON),
    CASE("N03", SHAPE("[2e0]"), 8, JSON),
    CASE("N22", SHAPE("[0.2e1]"), 8, JSON),
    CASE("N29", SHAPE("[20E-1]"), 8, JSON),
    CASE("N04", SHAPE("[-2]"), 8, JSON),
    CASE("N05", SHAPE("[-0]"), 8, JSON),
    CASE("N30", SHAPE("[-0.0]"), 8, JSON),
    CASE("N06", SHAPE("[\"2\"]"), 8, JSON),
    CASE("N07", SHAPE("[null]"), 8, JSON),
    CASE("N08", SHAPE("[[2]]"), 8, JSON),
    CASE("N09", SHAPE("[true]"), 8, JSON),
    CASE("N10", SHAPE("[02]"), 8, JSON),
    CASE("N12", SHAPE("[+2]"), 8, JSON),
    CASE("N13", SHAPE("[0x2]"), 8, JSON),
    CASE("N14", SHAPE("[2.]"), 8, JSON),
    CASE("N11", SHAPE("[18446744073709551616,0]"), 8, JSON),
    CASE("N23", SHAPE("[99999999999999999999999999]"), 8, JSON),
    CASE("N15", SHAPE("[1e400]"), 8, JSON),
    CASE("N16", SHAPE("[2,]"), 8, JSON),
    CASE("N17", SHAPE("[,2]"), 8, JSON),
    CASE("N21", SHAPE("[2 1]"), 8, JSON),
    CASE("N24", SHAPE("[ ]"), 8, MISMATCH),
    CASE("N27", SHAPE("[0,2]"), 8, MISMATCH),
    CASE("N28", SHAPE("[9007199254740993,0]"), 8, MISMATCH),
    CASE("N25", SHAPE("[1,2]"), 8, ACCEPT),
    CASE("N26", SHAPE("[2,1,1,1,1,1,1,1,1,1,1]"), 8, ACCEPT),
    /* the same limits where every common writer's form is read in one go */
    CASE("N11 end", OFFSETS("[0,18446744073709551616]"), 4, JSON),
    CASE("N10 begin", OFFSETS("[00,4]"), 4, JSON),
    CASE("N10 end", OFFSETS("[0,04]"), 4, JSON),
    CASE("N max", SHAPE("[18446744073709551615,0]"), 8, MISMATCH),
};

static void
test_numbers(void)
{
    RUN_CASES(number_cases);
}

/* A tensor of so many bytes, in digits. */
static void
check_digits(const char *digits, uint64_t bytes, bool is_integer)
{
    berth_context *context;
    berthi_header header;
    char text[120];
    const int length = sprintf(text, ONE("U8", "[%s]", "[0,%s]"), digits, digits);

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_header_parse(context, text, (uint64_t)length, bytes, "f", &header, NULL)
                 == BERTH_OK,
             is_integer);
    if (is_integer) {
        CHECK_EQ(header.entries[0].end, bytes);
        CHECK_EQ(berthi_entry_elements(header.text, &header.entries[0]), bytes);
    }
    berthi_header_fini(&header);
    berth_context_destroy(context);
}

/* Integers of every length, and what is next to a digit at each of their places. */
static void
test_digits(void)
{
    char digits[] = "1098765432109876543";

    for (size_t length = sizeof digits - 1; length > 0; length--) {
        uint64_t bytes;

        digits[length] = '\0';
        bytes = strtoull(digits, NULL, 10);
        check_digits(digits, bytes, true);
        for (size_t at = 0; at < length; at++) {
            const char digit = digits[at];

            digits[at] = '0' - 1;
            check_digits(digits, bytes, false);
            digits[at] = '9' + 1;
            check_digits(digits, bytes, false);
            digits[at] = digit;
        }
    }
}

/* -------------------------------------------------------------------- S: shapes */

#define P61 "2305843009213693952"   /* 2^61 */
#define P61M1 "2305843009213693951" /* 2^61 - 1 */
#define P63 "9223372036854775808"
#define P64M1 "18446744073709551615"

static const header_case shape_cases[] = {
    CASE("S01", ONE("F32", "[]", "[0,4]"), 4, ACCEPT),
    CASE("S02", ONE("F32", "[0]", "[0,0]"), 0, ACCEPT),
    CASE("S03", ONE("F32", "[2,0]", "[0,0]"), 0, ACCEPT),
    CASE("S04", ONE("F32", "[" P63 ",2,0]", "[0,0]"), 0, TOO_MUCH),
    CASE("S05", ONE("F32", "[" P63 ",0,2]", "[0,0]"), 0, ACCEPT),
    CASE("S06", ONE("F32", "[0," P64M1 "," P64M1 "]", "[0,0]"), 0, ACCEPT),
    CASE("S07", ONE("F32", "[2,18446744073709551614]", "[0,16]"), 16, TOO_MUCH),
    CASE("S08", ONE("F32", "[2,9223372036854775807]", "[0,16]"), 16, TOO_MUCH),
    CASE("S09", ONE("U8", "[" P61 "]", "[0,0]"), 0, TOO_MUCH),
    CASE("S10", ONE("U8", "[" P61M1 "]", "[0," P61M1 "]"), 0, COVERAGE),
    CASE("S11", ONE("U8", "[" P61M1 "]", "[0,8]"), 8, MISMATCH),
    CASE("S12", ONE("F32", "[4294967296,4294967296]", "[0,0]"), 0, TOO_MUCH),
    CASE("S13", ONE("F32", "[4294967297,4294967297]", "[0,4]"), 4, TOO_MUCH),
    CASE("S14", ONE("F64", "[2305843009213693953]", "[0,8]"), 8, TOO_MUCH),
    CASE("S15", ONE("F32", "[3]", "[0,8]"), 8, MISMATCH),
    CASE("S16", ONE("F32", "[1]", "[0,8]"), 8, MISMATCH),
    CASE("S18", ONE("F32", "[" P64M1 "]", "[0,0]"), 0, TOO_MUCH),
    CASE("S19", ONE("F4", "[4611686018427387904]", "[0,0]"), 0, TOO_MUCH),
    CASE("S20", ONE("F32", "[0]", "[0,4]"), 4, MISMATCH),
    CASE("S21", ONE("F32", "[2]", "[0,0]"), 0, MISMATCH),
    CASE("S22", ONE("F32", "[]", "[0,0]"), 0, MISMATCH),
};

/* An F32 with `rank` ones. */
static void
check_rank(uint64_t rank, bool is_spaced, berth_reason reason)
{
    char *const shape = malloc(rank * 3 + 3);
    char *at = shape;

    *at++ = '[';
    for (uint64_t i = 0; i < rank; i++)
        at += sprintf(at, "%s1", i == 0 ? "" : is_spaced ? ", " : ",");
    at += sprintf(at, "]");
    header_case_check_entry("S17", "a", 1, "F32", shape, "[0,4]", 4, reason);
    free(shape);
}

static void
test_shapes(void)
{
    RUN_CASES(shape_cases);
    check_rank(63, false, ACCEPT);
    check_rank(64, false, ACCEPT);
    check_rank(65, false, RANK);
    check_rank(64, true, ACCEPT);
    check_rank(65, true, RANK);
    check_rank(255, false, RANK);
    check_rank(256, false, RANK);
    check_rank(256 + 64, true, RANK);
    check_rank(100000, false, RANK);
}

/* ---------------------------------------------------------- B: sub-byte, dtypes */

static const header_case dtype_cases[] = {
    CASE("B01", ONE("F4", "[1]", "[0,1]"), 1, SUBBYTE),
    CASE("B04", ONE("F4", "[]", "[0,1]"), 1, SUBBYTE),
    CASE("B07", ONE("F4", "[3]", "[0,2]"), 2, SUBBYTE),
    CASE("B02", ONE("F4", "[2]", "[0,1]"), 1, ACCEPT),
    CASE("B03", ONE("F4", "[2,1]", "[0,1]"), 1, ACCEPT),
    CASE("B05", ONE("F4", "[0]", "[0,0]"), 0, ACCEPT),
    CASE("B06", ONE("F4", "[2]", "[0,2]"), 2, MISMATCH),
    CASE("B08", ONE("F6_E2M3", "[4]", "[0,3]"), 3, ACCEPT),
    CASE("B09", ONE("F6_E3M2", "[4]", "[0,3]"), 3, ACCEPT),
    CASE("B10", ONE("F6_E2M3", "[1]", "[0,1]"), 1, SUBBYTE),
    CASE("B11", ONE("F6_E2M3", "[2]", "[0,2]"), 2, SUBBYTE),
    CASE("B12", ONE("F6_E3M2", "[8]", "[0,8]"), 8, MISMATCH),
    CASE("B13", ONE("F8_E8M0", "[8]", "[0,8]"), 8, ACCEPT),
    CASE("B14", ONE("C64", "[1]", "[0,8]"), 8, ACCEPT),
    CASE("B15", ONE("BOOL", "[8]", "[0,8]"), 8, ACCEPT),
    CASE("B18", ONE("F8_E4M3", "[8]", "[0,8]"), 8, ACCEPT),
    CASE("B19", ONE("F8_E5M2", "[8]", "[0,8]"), 8, ACCEPT),
    CASE("B20", ONE("F8_E5M2FNUZ", "[8]", "[0,8]"), 8, ACCEPT),
    CASE("B23", ONE("BF16", "[4]", "[0,8]"), 8, ACCEPT),
    CASE("B24", ONE("U16", "[4]", "[0,8]"), 8, ACCEPT),
    CASE("B25", ONE("U32", "[2]", "[0,8]"), 8, ACCEPT),
    CASE("B26", ONE("U64", "[1]", "[0,8]"), 8, ACCEPT),
    CASE("B28", ONE("I64", "[1]", "[0,8]"), 8, ACCEPT),
    CASE("B16", ONE("F6", "[4]", "[0,3]"), 3, BERTH_REASON_UNSUPPORTED),
    CASE("B17", ONE("F4_E2M1", "[2]", "[0,1]"), 1, BERTH_REASON_UNSUPPORTED),
    CASE("B21", ONE("I4", "[2]", "[0,1]"), 1, BERTH_REASON_UNSUPPORTED),
    CASE("B22", ONE("U4", "[2]", "[0,1]"), 1, BERTH_REASON_UNSUPPORTED),
    CASE("B27", ONE("bool", "[8]", "[0,8]"), 8, BERTH_REASON_UNSUPPORTED),
};

/* Every dtype of the format, with eight elements. */
static void
test_dtypes(void)
{
    RUN_CASES(dtype_cases);
    for (int32_t dtype = 0; dtype < BERTH_DTYPE_COUNT; dtype++) {
        char offsets[32];

        sprintf(offsets, "[0,%" PRIu32 "]", berth_dtype_bits(dtype));
        header_case_check_entry(berth_dtype_name(dtype), "a", 1, berth_dtype_name(dtype),
                                "[8]", offsets, berth_dtype_bits(dtype), ACCEPT);
    }
}

/* ------------------------------------------------------------------- O: offsets */

/* Eight tensors of 2^61-1 bytes. */
#define HUGE_ONES                                                                         \
    U("a", P61M1, "[0," P61M1 "]") ","                                                    \
    U("b", P61M1, "[" P61M1 ",4611686018427387902]") ","                                  \
    U("c", P61M1, "[4611686018427387902,6917529027641081853]") ","                        \
    U("d", P61M1, "[6917529027641081853,9223372036854775804]") ","                        \
    U("e", P61M1, "[9223372036854775804,11529215046068469755]") ","                       \
    U("f", P61M1, "[11529215046068469755,13835058055282163706]") ","                      \
    U("g", P61M1, "[13835058055282163706,16140901064495857657]") ","                      \
    U("h", P61M1, "[16140901064495857657,18446744073709551608]") ","

static const header_case offset_cases[] = {
    CASE("O01", "{" U("a", "4", "[4,8]") "}", 8, OFFSET),
    CASE("O02", "{" U("a", "4", "[0,4]") "," U("b", "4", "[5,9]") "}", 9, OFFSET),
    CASE("O03", "{" U("a", "4", "[0,4]") "," U("b", "4", "[3,7]") "}", 7, OFFSET),
    CASE("O04", "{" U("a", "4", "[0,4]") "," U("b", "4", "[0,4]") "}", 4, OFFSET),
    CASE("O05", "{" U("a", "4", "[8,4]") "}", 8, OFFSET),
    CASE("O06", "{" U("a", "4", "[0,4]") "}", 3, COVERAGE),
    CASE("O07", "{" U("a", "4", "[0,4]") "}", 5, COVERAGE),
    CASE("O08", "{" U("b", "4", "[4,8]") "," U("a", "4", "[0,4]") "}", 8, ACCEPT),
    CASE("O09", "{" U("a", "4", "[0,4]") "," U("e", "0", "[4,4]") "," U("b", "4", "[4,8]") "}",
         8, ACCEPT),
    CASE("O10", "{" U("a", "4", "[0,4]") "," U("e", "0", "[4,4]") "}", 4, ACCEPT),
    CASE("O13", "{" U("a", "0", "[0,0]") "," U("b", "0", "[0,0]") "}", 0, ACCEPT),
    CASE("O11", "{" U("a", "8", "[0,8]") "," U("e", "0", "[4,4]") "}", 8, OFFSET),
    CASE("O12", "{" U("e", "0", "[4,4]") "}", 0, OFFSET),
    CASE("O15", "{" U("e", "0", "[4,4]") "}", 4, OFFSET),
    CASE("O14", "{}", 4, COVERAGE),
    CASE("O16", OFFSETS("[0]"), 4, JSON),
    CASE("O17", OFFSETS("[0,4,4]"), 4, JSON),
    CASE("O18", OFFSETS("[]"), 4, JSON),
    CASE("O22", OFFSETS("null"), 4, JSON),
    CASE("O19", OFFSETS("[0,4.0]"), 4, JSON),
    CASE("O20", OFFSETS("[\"0\",\"4\"]"), 4, JSON),
    CASE("O21", OFFSETS("[-4,0]"), 4, JSON),
    CASE("O23", OFFSETS("[0," P64M1 "]"), 4, MISMATCH),
    CASE("O24", "{" U("a", "0", "[" P64M1 "," P64M1 "]") "}", 0, OFFSET),
    CASE("O25", "{" HUGE_ONES U("i", "7", "[18446744073709551608," P64M1 "]") "}", 0, COVERAGE),
    CASE("O26",
         "{" HUGE_ONES U("i", "7", "[18446744073709551608," P64M1 "]") ","
         U("j", "2", "[" P64M1 ",1]") "}",
         0, OFFSET),
    CASE("O28", "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F64", "[1]", "[8,16]") "}", 16,
         ACCEPT),
    CASE("O29", "{" U("a", "1", "[0,1]") "," T("b", "F64", "[1]", "[1,9]") "}", 9, ACCEPT),
};

/* O27: 1000 names on the same bytes. */
static void
test_offsets(void)
{
    char *const text = malloc(1000 * 80);
    char *at = text;

    RUN_CASES(offset_cases);
    for (int i = 0; i < 1000; i++)
        at += sprintf(at,
                      "%c\"n%d\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}",
                      i == 0 ? '{' : ',', i);
    *at++ = '}';
    header_case_check("O27", text, (uint64_t)(at - text), 16, OFFSET);
    free(text);
}

/* ------------------------------------------------------------------- X, R: load */

/* The patterns of the large headers, a thousandth of their size. */
static void
test_load_patterns(void)
{
    static const struct {
        header_load load;
        berth_reason reason;
    } loads[] = {
        { HEADER_LOAD_X01, ACCEPT }, { HEADER_LOAD_X02, ACCEPT }, { HEADER_LOAD_R1, ACCEPT },
        { HEADER_LOAD_R2, ACCEPT },  { HEADER_LOAD_R3, RANK },    { HEADER_LOAD_R4, ACCEPT },
        { HEADER_LOAD_R6, DUPLICATE }, { HEADER_LOAD_R7, ACCEPT },
    };

    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        uint64_t data_bytes;
        uint64_t length;
        char *const text = header_load_create(loads[i].load, 1000, &length, &data_bytes);

        header_case_check(header_load_name(loads[i].load), text, length, data_bytes,
                          loads[i].reason);
        free(text);
    }
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_files);
    T_RUN(test_padded);
    T_RUN(test_syntax);
    T_RUN(test_nesting);
    T_RUN(test_strings);
    T_RUN(test_duplicates);
    T_RUN(test_metadata);
    T_RUN(test_entries);
    T_RUN(test_numbers);
    T_RUN(test_digits);
    T_RUN(test_shapes);
    T_RUN(test_dtypes);
    T_RUN(test_offsets);
    T_RUN(test_load_patterns);
    T_MAIN_END;
}
