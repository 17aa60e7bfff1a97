/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_header_details.c - what a header's tables hold, what its errors say,
 * and in which order problems win.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/safetensors.h"
#include "loader/varint.h"
#include "tests/fault.h"
#include "tests/header_case.h"
#include "tests/t.h"

#define T(name, dtype, shape, offsets)                                                    \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define G "{" T("a", "F32", "[2]", "[0,8]") "}"

/* One parse, with its own context. */
typedef struct parsed {
    berth_context *context;
    berthi_header header;
    berth_error error;
    berth_status status;
} parsed;

static parsed
parse_bytes(const char *text, uint64_t length, uint64_t data_bytes)
{
    char *const copy = malloc(length > 0 ? length : 1);
    parsed p;

    memset(&p, 0, sizeof p);
    CHECK_EQ(berth_context_create(NULL, &p.context, NULL), BERTH_OK);
    memcpy(copy, text, length);
    p.status = berthi_header_parse(p.context, copy, length, data_bytes, "dir/f", &p.header,
                                   &p.error);
    CHECK(p.status == BERTH_OK
          || header_case_is_shown(copy, length, p.header.blamed.name, p.header.blamed.length,
                                  &p.error));
    free(copy);
    return p;
}

static parsed
parse(const char *text, uint64_t data_bytes)
{
    return parse_bytes(text, strlen(text), data_bytes);
}

static void
finish(parsed *p)
{
    berth_memory_summary memory;

    berthi_header_fini(&p->header);
    berth_context_memory(p->context, &memory);
    CHECK_EQ(memory.current_bytes, 0u);
    berth_context_destroy(p->context);
}

/* ------------------------------------------------------------------- errors */

/* What one error must say; numbers count when their bit is in `has`. */
typedef struct saying {
    const char *header;
    uint64_t data_bytes;
    berth_reason reason;
    const char *tensor;
    const char *message;
    uint32_t has;
    uint64_t position;
    uint64_t expected;
    uint64_t actual;
} saying;

#define AT BERTH_HAS_POSITION
#define BOTH (BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL)
#define SIZES (BOTH | BERTH_HAS_BYTES)

static const saying sayings[] = {
    { "{\"a\":\"\xff\"}", 0, BERTH_REASON_HEADER_UTF8, "", "the header is not UTF-8", AT, 8 + 6,
      0, 0 },
    { "{} x", 0, BERTH_REASON_HEADER_JSON, "", "something stands behind the end", AT, 8 + 3, 0,
      0 },
    { "{" T("t\\n", "F99", "[]", "[0,0]") "," T("u", "f32", "[]", "[0,0]") "}", 0,
      BERTH_REASON_UNSUPPORTED, "t\\x0a", "an unknown dtype \"F99\"", AT, 8 + 17, 0, 0 },
    { "{" T("t", "F\\n\\\"9", "[]", "[0,0]") "}", 0, BERTH_REASON_UNSUPPORTED, "t",
      "an unknown dtype \"F\\x0a\"9\"", AT, 8 + 15, 0, 0 },
    /* Damage comes first, wherever it is. */
    { "{\"t\":{\"dtype\":\"F99\"}}", 0, BERTH_REASON_HEADER_JSON, "t",
      "a tensor without dtype, shape or data_offsets", AT, 8 + 20, 0, 0 },
    { "{" T("t", "F99", "[]", "[0,0]") ",}", 0, BERTH_REASON_HEADER_JSON, "",
      "a key is missing", AT, 8 + 53, 0, 0 },
    { "{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, BERTH_REASON_HEADER_JSON, "t",
      "dtype, shape or data_offsets a second time", AT, 8 + 28, 0, 0 },
    { "{\"t\":{\"shape\":[1,-1]}}", 0, BERTH_REASON_HEADER_JSON, "t", "not an unsigned integer",
      AT, 8 + 17, 0, 0 },
    { "{\"t\":{\"data_offsets\":[1]}}", 0, BERTH_REASON_HEADER_JSON, "t",
      "data_offsets are not two numbers", AT, 8 + 24, 0, 0 },
    { "{\"t\":{\"data_offsets\":[1,2,3]}}", 0, BERTH_REASON_HEADER_JSON, "t",
      "data_offsets are not two numbers", AT, 8 + 26, 0, 0 },
    { "{\"t\":{\"dtype\":\"F32\"}}", 0, BERTH_REASON_HEADER_JSON, "t",
      "a tensor without dtype, shape or data_offsets", AT, 8 + 20, 0, 0 },
    { "{" T("t", "F32", "[2]", "[0,8]") ",\"__metadata__\":{},\"__metadata__\":{}}", 8,
      BERTH_REASON_HEADER_JSON, "", "a second __metadata__", AT, 8 + 87, 0, 0 },
    { "{\"__metadata__\":{\"k\":1}}", 0, BERTH_REASON_HEADER_JSON, "", "not a string", AT,
      8 + 21, 0, 0 },
    { "{" T("a", "F32", "[2]", "[0,8]") "," T("b\\u0000", "F32", "[]", "[8,12]") "}", 12,
      BERTH_REASON_NAME, "b\\x00", "a name or key contains U+0000", AT, 8 + 55, 0, 0 },
    { "{\"__metadata__\":{\"\":\"\",\"\\u0000k\":\"\"}}", 0, BERTH_REASON_NAME, "\\x00k",
      "a name or key contains U+0000", AT, 8 + 24, 0, 0 },
    { "{" T("b", "F32", "[2]", "[0,8]") ","
      T("a", "F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"
        ",1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[8,12]") "}",
      12, BERTH_REASON_RANK, "a", "it has too many dimensions", AT | BOTH, 8 + 55, 64, 66 },
    { "{" T("a", "U8", "[0]", "[0,0]") "," T("a", "U8", "[1]", "[0,1]") "}", 1,
      BERTH_REASON_DUPLICATE, "a", "the header has this tensor more than once", 0, 0, 0, 0 },
    { "{\"__metadata__\":{\"k\":\"1\",\"j\":\"\",\"k\":\"1\"}}", 0, BERTH_REASON_DUPLICATE, "k",
      "__metadata__ has this key more than once", 0, 0, 0, 0 },
    { "{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[5,9]") "}", 9,
      BERTH_REASON_OFFSET, "b", "no tensor covers the bytes before it", BOTH, 0, 4, 5 },
    { "{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[3,7]") "}", 7,
      BERTH_REASON_OFFSET, "b", "it overlaps the tensor before it", BOTH, 0, 4, 3 },
    { "{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[4,3]") "}", 7,
      BERTH_REASON_OFFSET, "b", "it ends before it begins", BOTH, 0, 4, 3 },
    { "{" T("a", "U8", "[18446744073709551615,2]", "[0,4]") "}", 4, BERTH_REASON_OVERFLOW, "a",
      "its size in bits does not fit 64 bits", 0, 0, 0, 0 },
    { "{" T("a", "F6_E2M3", "[3]", "[0,2]") "}", 2, BERTH_REASON_SUBBYTE, "a",
      "its bits do not fill whole bytes", BERTH_HAS_ACTUAL, 0, 0, 18 },
    { "{" T("a", "F16", "[3,5]", "[0,28]") "}", 28, BERTH_REASON_SIZE_MISMATCH, "a",
      "dtype and shape need another number of bytes", SIZES, 0, 30, 28 },
    { G, 5, BERTH_REASON_COVERAGE, "", "the data section is 3 bytes short", SIZES, 0, 8, 5 },
    { G, 19, BERTH_REASON_COVERAGE, "", "the data section is 11 bytes too long", SIZES, 0, 8,
      19 },
    { "{}", 1, BERTH_REASON_COVERAGE, "", "the data section is 1 bytes too long", SIZES, 0, 0,
      1 },
};

static void
check_numbers(const berth_error *error, uint32_t has, uint64_t position, uint64_t expected,
              uint64_t actual)
{
    CHECK_EQ(error->has, has);
    if ((has & BERTH_HAS_POSITION) != 0)
        CHECK_EQ(error->position, position);
    if ((has & BERTH_HAS_EXPECTED) != 0)
        CHECK_EQ(error->expected, expected);
    if ((has & BERTH_HAS_ACTUAL) != 0)
        CHECK_EQ(error->actual, actual);
}

static void
test_sayings(void)
{
    for (size_t i = 0; i < sizeof sayings / sizeof sayings[0]; i++) {
        const saying *const s = &sayings[i];
        parsed p = parse(s->header, s->data_bytes);

        if (!CHECK_EQ(p.error.reason, (int32_t)s->reason))
            T_NOTE("%s", s->header);
        CHECK_STR(p.error.file, "dir/f");
        CHECK_STR(p.error.tensor, s->tensor);
        CHECK_STR(p.error.message, s->message);
        check_numbers(&p.error, s->has, s->position, s->expected, s->actual);
        finish(&p);
    }
}

static void
check_length(uint64_t n, uint64_t file_bytes, berth_reason reason, uint64_t expected,
             uint64_t actual)
{
    uint8_t prefix[8];
    uint64_t bytes = 99;
    berth_error error;
    berth_status status;

    berthi_error_clear(&error);
    for (unsigned i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(n >> 8 * i);
    status = berthi_header_length(prefix, file_bytes, "dir/f", &bytes, &error);
    CHECK_EQ(status, berthi_reason_status((int32_t)reason));
    CHECK_EQ(error.reason, (int32_t)reason);
    CHECK_EQ(bytes, status == BERTH_OK ? n : 0u);
    if (status == BERTH_OK)
        return;
    CHECK_STR(error.file, "dir/f");
    check_numbers(&error, SIZES, 0, expected, actual);
}

static void
test_length(void)
{
    check_length(0, 0, BERTH_REASON_HEADER_TOO_SMALL, 8, 0);
    check_length(0, 7, BERTH_REASON_HEADER_TOO_SMALL, 8, 7);
    check_length(0, 8, BERTH_REASON_NONE, 0, 0);
    check_length(1, 8, BERTH_REASON_HEADER_LENGTH, 1, 0);
    check_length(1, 9, BERTH_REASON_NONE, 0, 0);
    check_length(100000000, 9, BERTH_REASON_HEADER_LENGTH, 100000000, 1);
    check_length(100000000, 100000007, BERTH_REASON_HEADER_LENGTH, 100000000, 99999999);
    check_length(100000000, 100000008, BERTH_REASON_NONE, 0, 0);
    check_length(100000001, UINT64_MAX, BERTH_REASON_HEADER_TOO_LARGE, 100000000, 100000001);
    check_length(UINT64_MAX, 8, BERTH_REASON_HEADER_TOO_LARGE, 100000000, UINT64_MAX);
    check_length(UINT64_C(0x0102030405060708), 8, BERTH_REASON_HEADER_TOO_LARGE, 100000000,
                 UINT64_C(0x0102030405060708));
    check_length(0x01020304, 0x01020304 + 8, BERTH_REASON_NONE, 0, 0);
}

/* Several problems in one header: the one that must win, and whom it names. */
static void
test_order_of_problems(void)
{
    static const struct {
        const char *header;
        uint64_t data_bytes;
        berth_reason reason;
        const char *tensor;
    } cases[] = {
        /* UTF-8 before JSON, wherever it is */
        { "}\xff", 0, BERTH_REASON_HEADER_UTF8, "" },
        /* JSON before all that needs the whole text */
        { "{" T("\\u0000", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[0,8]") ","
          T("a", "F32", "[2]", "[0,8]") "}x",
          8, BERTH_REASON_HEADER_JSON, "" },
        /* name before duplicate, in both orders of the text */
        { "{" T("a", "U8", "[0]", "[0,0]") "," T("a", "U8", "[0]", "[0,0]") ","
          T("\\u0000", "U8", "[0]", "[0,0]") "}",
          0, BERTH_REASON_NAME, "\\x00" },
        /* the first of two names */
        { "{" T("x\\u0000", "U8", "[0]", "[0,0]") "," T("b\\u0000", "U8", "[0]", "[0,0]") "}", 0,
          BERTH_REASON_NAME, "x\\x00" },
        /* duplicate before offset and coverage */
        { "{" T("a", "U8", "[1]", "[5,6]") "," T("a", "U8", "[1]", "[7,8]") "}", 0,
          BERTH_REASON_DUPLICATE, "a" },
        /* neighbours only */
        { "{" T("b", "U8", "[0]", "[0,0]") "," T("c", "U8", "[0]", "[0,0]") ","
          T("a", "U8", "[0]", "[0,0]") "," T("c", "U8", "[0]", "[0,0]") "}",
          0, BERTH_REASON_DUPLICATE, "c" },
        /* the first in order of names */
        { "{" T("z", "U8", "[0]", "[0,0]") "," T("z", "U8", "[0]", "[0,0]") ","
          T("y", "U8", "[0]", "[0,0]") "," T("y", "U8", "[0]", "[0,0]") "}",
          0, BERTH_REASON_DUPLICATE, "y" },
        /* the first tensor in order of offsets, not of the text */
        { "{" T("b", "U8", "[9]", "[4,8]") "," T("a", "F4", "[1]", "[0,4]") "}", 8,
          BERTH_REASON_SUBBYTE, "a" },
        /* begin hides overflow; overflow hides sub-byte; sub-byte hides size */
        { "{" T("a", "F4", "[18446744073709551615,3]", "[1,4]") "}", 4, BERTH_REASON_OFFSET,
          "a" },
        { "{" T("a", "F4", "[18446744073709551615,3]", "[0,4]") "}", 4, BERTH_REASON_OVERFLOW,
          "a" },
        { "{" T("a", "F4", "[3]", "[0,4]") "}", 9, BERTH_REASON_SUBBYTE, "a" },
        { "{" T("a", "F4", "[4]", "[0,4]") "}", 9, BERTH_REASON_SIZE_MISMATCH, "a" },
        /* a tie of begin goes by end, then by name */
        { "{" T("c", "U8", "[4]", "[0,4]") "," T("b", "U8", "[9]", "[0,2]") "}", 4,
          BERTH_REASON_SIZE_MISMATCH, "b" },
        { "{" T("c", "U8", "[9]", "[0,4]") "," T("b", "U8", "[9]", "[0,4]") "}", 4,
          BERTH_REASON_SIZE_MISMATCH, "b" },
        { "{" T("b", "U8", "[4]", "[0,4]") "," T("c", "U8", "[4]", "[0,4]") "}", 4,
          BERTH_REASON_OFFSET, "c" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parsed p = parse(cases[i].header, cases[i].data_bytes);

        if (!CHECK_EQ(p.error.reason, (int32_t)cases[i].reason))
            T_NOTE("%s", cases[i].header);
        CHECK_STR(p.error.tensor, cases[i].tensor);
        finish(&p);
    }
}

/* Every beginning of a header is refused, at a position inside it. */
static void
test_truncations(void)
{
    static const char text[] =
        " {\"__metadata__\" : {\"k\":\"v\\n\"},\"\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[2 ,1],"
        "\"data_offsets\":[0,8],\"x\":[{\"y\":1.5e3},true]}," T("b", "U8", "[]", "[8,9]") "}";

    for (uint64_t length = 0; length < sizeof text - 1; length++) {
        parsed p = parse_bytes(text, length, 9);

        CHECK(p.error.reason == BERTH_REASON_HEADER_JSON
              || p.error.reason == BERTH_REASON_HEADER_UTF8);
        CHECK(p.error.position >= 8 && p.error.position <= 8 + length);
        finish(&p);
    }
}

/* ------------------------------------------------------------------- tables */

static void
check_entry(const berthi_header *header, uint64_t number, const char *name, berth_dtype dtype,
            uint64_t begin, uint64_t end, uint32_t rank, const uint64_t *shape)
{
    const berthi_entry *const entry = &header->entries[number];
    uint64_t actual[BERTHI_MAX_RANK];

    CHECK_STR(berthi_entry_name(header->text, entry), name);
    CHECK_EQ(entry->name_length, strlen(name));
    CHECK_EQ(entry->dtype, dtype);
    CHECK_EQ(entry->begin, begin);
    CHECK_EQ(entry->end, end);
    if (!CHECK_EQ(entry->rank, rank))
        return;
    berthi_entry_shape(header->text, entry, actual);
    for (uint32_t i = 0; i < rank; i++)
        CHECK_EQ(actual[i], shape[i]);
}

/* Metadata in the middle, members in other orders, extents out of order. */
static void
test_tables(void)
{
    parsed p = parse("{" T("b", "F32", "[2,3]", "[20,44]")
                     ",\"__metadata__\":{\"z\":\"1\",\"a\":\"x\\u0000y\",\"\":\"\"},"
                     "\"a\\u002e\\\"\":{\"shape\":[4, 1 ],\"data_offsets\":[ 0,16],\"x\":[1],"
                     "\"dtype\":\"I32\"},"
                     T("\xc3\xa9", "F4", "[8]", "[16,20]")
                     "," T("B", "BOOL", "[]", "[44,45]") "}",
                     45);
    berthi_pair pair;

    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.header.entry_count, 4u);
    CHECK_EQ(p.header.tensor_bytes, 45u);
    check_entry(&p.header, 0, "a.\"", BERTH_I32, 0, 16, 2, (uint64_t[]){ 4, 1 });
    check_entry(&p.header, 1, "\xc3\xa9", BERTH_F4, 16, 20, 1, (uint64_t[]){ 8 });
    check_entry(&p.header, 2, "b", BERTH_F32, 20, 44, 2, (uint64_t[]){ 2, 3 });
    check_entry(&p.header, 3, "B", BERTH_BOOL, 44, 45, 0, NULL);
    CHECK_EQ(p.header.by_name[0], 3u);
    CHECK_EQ(p.header.by_name[1], 0u);
    CHECK_EQ(p.header.by_name[2], 2u);
    CHECK_EQ(p.header.by_name[3], 1u);
    CHECK_EQ(p.header.pair_count, 3u);
    pair = berthi_header_pair(&p.header, 0);
    CHECK_STR(pair.key, "");
    CHECK_EQ(pair.key_length, 0u);
    CHECK_EQ(pair.value_length, 0u);
    pair = berthi_header_pair(&p.header, 1);
    CHECK_STR(pair.key, "a");
    CHECK_EQ(pair.key_length, 1u);
    CHECK_EQ(pair.value_length, 3u);
    CHECK_MEM(pair.value, "x\0y", 4);
    pair = berthi_header_pair(&p.header, 2);
    CHECK_STR(pair.key, "z");
    CHECK_STR(pair.value, "1");
    /* names and dims, and of each pair two NULs and one length: nothing more */
    CHECK_EQ(p.header.text_bytes, (3 + 2 + 1 + 1) + 4u + 5 + (1 + 1 + 3 + 1) + 3 * 3u);
    finish(&p);
}

/* Dims around every length of their encoding come back as they were. */
static void
test_dims(void)
{
    for (unsigned bit = 0; bit < 64; bit++)
        for (int delta = -1; delta <= 1; delta++) {
            const uint64_t dim = (UINT64_C(1) << bit) + (uint64_t)delta;
            char text[200];
            parsed p;

            sprintf(text,
                    "{\"a\":{\"dtype\":\"U8\",\"shape\":[0,%" PRIu64 ",%" PRIu64
                    "],\"data_offsets\":[0,0]}}",
                    dim, UINT64_MAX - dim);
            p = parse(text, 0);
            CHECK_EQ(p.status, BERTH_OK);
            check_entry(&p.header, 0, "a", BERTH_U8, 0, 0, 3,
                        (uint64_t[]){ 0, dim, UINT64_MAX - dim });
            CHECK_EQ(berthi_entry_elements(p.header.text, &p.header.entries[0]), 0u);
            finish(&p);
        }
}

static void
check_varint(uint64_t value, uint64_t bytes)
{
    char text[BERTHI_VARINT_CAPACITY + 1];
    uint64_t back = ~value;

    memset(text, 0x55, sizeof text);
    CHECK_EQ(berthi_varint_write(text, value) - text, bytes);
    CHECK_EQ(text[bytes], 0x55);
    CHECK_EQ(berthi_varint_read(text, &back) - text, bytes);
    CHECK_EQ(back, value);
}

static void
test_varint(void)
{
    check_varint(0, 1);
    check_varint(127, 1);
    check_varint(128, 2);
    check_varint(16383, 2);
    check_varint(16384, 3);
    check_varint(UINT64_MAX / 2, 9);
    check_varint(UINT64_MAX / 2 + 1, 10);
    check_varint(UINT64_MAX, 10);
}

/* Names of every length, so that records meet every length of their numbers. */
static void
test_name_lengths(void)
{
    static char text[1 << 20];
    static char name[1 << 15];

    for (size_t length = 1; length < sizeof name; length = length * 2 - length / 3 + 1) {
        char *at = text;
        parsed p;

        memset(name, 'n', length);
        name[length] = '\0';
        at += sprintf(at, "{\"__metadata__\":{\"%s\":\"%s\",\"k\":\"%s\"}", name, name, name);
        for (int i = 0; i < 3; i++)
            at += sprintf(at, ",\"%s%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                          name, i, i, i + 1);
        sprintf(at, "}");
        p = parse(text, 3);
        if (CHECK_EQ(p.status, BERTH_OK)) {
            CHECK_STR(header_case_table_problem(&p.header, 3), NULL);
            CHECK_EQ(p.header.entries[2].name_length, length + 1);
            CHECK_STR(berthi_header_pair(&p.header, 0).value, name);
            CHECK_STR(berthi_header_pair(&p.header, 1).value, name);
        }
        finish(&p);
    }
}

/* Six characters become one: what is unescaped never meets what is to be read. */
static void
test_unescaping(void)
{
    parsed p = parse("{\"\\u0062\":{\"dt\\u0079pe\":\"\\u0055\\u0038\",\"sh\\u0061pe\":[],"
                     "\"data\\u005foffsets\":[0,1]},"
                     "\"__meta\\u0064ata__\":{\"\\ud83d\\ude00\":\"\\\\\\\"\",\"\\t\":\"\\u20ac\"},"
                     T("\\/\\b\\f\\n\\r\\t", "U8", "[1]", "[1,2]") "}",
                     2);

    T_REQUIRE(p.status == BERTH_OK);
    check_entry(&p.header, 0, "b", BERTH_U8, 0, 1, 0, NULL);
    check_entry(&p.header, 1, "/\b\f\n\r\t", BERTH_U8, 1, 2, 1, (uint64_t[]){ 1 });
    CHECK_EQ(p.header.pair_count, 2u);
    CHECK_STR(berthi_header_pair(&p.header, 0).key, "\t");
    CHECK_STR(berthi_header_pair(&p.header, 0).value, "\xe2\x82\xac");
    CHECK_STR(berthi_header_pair(&p.header, 1).key, "\xf0\x9f\x98\x80");
    CHECK_STR(berthi_header_pair(&p.header, 1).value, "\\\"");
    finish(&p);
}

/* Bits: leading space, other trailing, unknown member, null metadata, out of order. */
static void
check_flags(const char *text, uint64_t data_bytes, const char *flags)
{
    parsed p = parse(text, data_bytes);
    const char actual[] = { p.header.has_leading_space ? 'L' : '-',
                            p.header.has_other_trailing ? 'T' : '-',
                            p.header.has_unknown_member ? 'U' : '-',
                            p.header.has_null_metadata ? 'N' : '-',
                            p.header.is_out_of_order ? 'O' : '-', '\0' };

    CHECK_EQ(p.status, BERTH_OK);
    CHECK_STR(actual, flags);
    finish(&p);
}

static void
test_strict_flags(void)
{
    check_flags(G, 8, "-----");
    check_flags(G "   ", 8, "-----");
    check_flags(" " G, 8, "L----");
    check_flags("\n" G, 8, "L----");
    check_flags(G " \n", 8, "-T---");
    check_flags(G "\t ", 8, "-T---");
    check_flags("{ " T("a", "F32", "[2]", "[0,8]") "}", 8, "-----");
    check_flags("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}", 1,
                "--U--");
    check_flags("{\"__metadata__\":null}", 0, "---N-");
    check_flags("{\"__metadata__\":{}}", 0, "-----");
    check_flags("{" T("b", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2,
                "-----");
    check_flags("{" T("a", "U8", "[1]", "[1,2]") "," T("b", "U8", "[1]", "[0,1]") "}", 2,
                "----O");
    check_flags("{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") ","
                T("c", "U8", "[1]", "[1,2]") "}", 3, "----O");
    check_flags("{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[0]", "[0,0]") "}", 1,
                "----O");
    check_flags("{" T("a", "U8", "[0]", "[0,0]") "," T("b", "U8", "[1]", "[0,1]") "}", 1,
                "-----");
    check_flags("{" T("b", "U8", "[0]", "[0,0]") "," T("a", "U8", "[0]", "[0,0]") "}", 0,
                "-----");
}

static void
test_name_compare(void)
{
    CHECK_EQ(berthi_name_compare("", 0, "", 0), 0);
    CHECK_EQ(berthi_name_compare("ab", 2, "ab", 2), 0);
    CHECK_LT(berthi_name_compare("", 0, "a", 1), 0);
    CHECK_GT(berthi_name_compare("a", 1, "", 0), 0);
    CHECK_LT(berthi_name_compare("a", 1, "ab", 2), 0);
    CHECK_GT(berthi_name_compare("b", 1, "ab", 2), 0);
    CHECK_GT(berthi_name_compare("\xc3\xa9", 2, "z", 1), 0);
    CHECK_LT(berthi_name_compare("a.10", 4, "a.2", 3), 0);
}

/* The same order from every place on that is the same, and where they part. */
static void
test_name_order_behind(void)
{
    static const char *const names[] = { "", "a", "ab", "abcdefgh", "abcdefgh\x01",
                                         "abcdefghi", "abcdefghijklmnop",
                                         "abcdefghijklmnoq", "abcdefgh\xc3\xa9", "b" };
    const size_t count = sizeof names / sizeof names[0];

    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            const size_t length = strlen(names[i]);
            uint64_t same = 0;

            while (same < length && names[i][same] == names[j][same])
                same++;
            for (uint64_t from = 0; from <= same; from++) {
                uint64_t shared = from;
                const int order = berthi_name_compare_behind(
                    names[i], length, names[j], strlen(names[j]), &shared);

                CHECK_EQ(shared, same);
                CHECK_EQ((order > 0) - (order < 0), (i > j) - (i < j));
            }
        }
}

/* What is known to be the same is not read again. */
static void
test_name_order_reads_behind_only(void)
{
    uint64_t shared = 3;

    CHECK_GT(berthi_name_compare_behind("aaazzz", 6, "bbbzz", 5, &shared), 0);
    CHECK_EQ(shared, 5);
}

/* Tensors without bytes lie between others, by name. */
static void
test_order_of_empty_tensors(void)
{
    static const char *const expected[] = { "b", "aa", "ma", "mb", "c", "na", "nb", "nc",
                                            "d" };
    parsed p = parse("{" T("nc", "U8", "[0]", "[2,2]") "," T("c", "U8", "[1]", "[1,2]") ","
                     T("nb", "U8", "[0]", "[2,2]") "," T("mb", "U8", "[0]", "[1,1]") ","
                     T("b", "U8", "[1]", "[0,1]") "," T("d", "U8", "[1]", "[2,3]") ","
                     T("ma", "U8", "[0]", "[1,1]") "," T("na", "U8", "[0]", "[2,2]") ","
                     T("aa", "U8", "[0]", "[1,1]") "}", 3);

    T_REQUIRE(p.status == BERTH_OK);
    CHECK_EQ(p.header.entry_count, 9);
    for (size_t i = 0; i < 9; i++)
        CHECK_STR(berthi_entry_name(p.header.text, &p.header.entries[i]), expected[i]);
    finish(&p);
}

/* A failed parse may get no error to fill. */
static void
test_no_error_struct(void)
{
    char text[] = "{";
    berthi_header header;
    berth_context *context;
    uint64_t bytes;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berthi_header_parse(context, text, 1, 0, "f", &header, NULL), BERTH_EFORMAT);
    CHECK_EQ(berthi_header_length(NULL, 0, "f", &bytes, NULL), BERTH_EFORMAT);
    berth_context_destroy(context);
}

/* --------------------------------------------------------- memory and faults */

/* Whether a header with b, a and ab in the order of extents has these `count` names. */
static void
check_listed(const char *names, uint64_t names_bytes, const uint32_t *places,
             uint64_t count, bool is_as_listed)
{
    char text[] = "{" T("b", "U8", "[1]", "[0,1]") "," T("ab", "U8", "[1]", "[2,3]") ","
                  T("a", "U8", "[1]", "[1,2]") "}";
    char *const copy = malloc(names_bytes); /* nothing behind it may be read */
    const berthi_name_list list = { copy, names_bytes, places, count };
    parsed p = { .status = BERTH_OK };

    memcpy(copy, names, names_bytes);
    T_REQUIRE(berth_context_create(NULL, &p.context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_header_parse_listed(p.context, text, sizeof text - 1, 3, &list, "f",
                                        &p.header, NULL),
             BERTH_OK);
    CHECK_EQ(p.header.is_as_listed, is_as_listed);
    CHECK_EQ(p.header.by_name[0], is_as_listed ? 0u : 1u);
    CHECK_EQ(p.header.by_name[1], is_as_listed ? 1u : 2u);
    CHECK_EQ(p.header.by_name[2], is_as_listed ? 2u : 0u);
    finish(&p);
    free(copy);
}

/* Names that stand as somebody else lists them are not sorted. */
static void
test_listed(void)
{
    static const uint32_t places[] = { 2, 0, 4, 7 };

    check_listed("a\0b\0ab", 7, places, 3, true);
    check_listed("a\0b\0ab\0", 8, places, 4, false);
    check_listed("a\0b\0ab", 7, places, 2, false);
    check_listed("a\0b\0ab", 7, places, 0, false);
    check_listed("a\0b\0ab", 6, places, 3, false);
    check_listed("a\0b\0abc", 8, places, 3, false);
    check_listed("a\0b\0a\0", 7, places, 3, false);
    check_listed("b\0a\0ab", 7, places, 3, false);
    check_listed("b\0a\0ab", 7, (const uint32_t[]){ 0, 2, 4 }, 3, true);
}

/* A name that occurs twice cannot be as listed. */
static void
test_listed_duplicates(void)
{
    static const uint32_t places[] = { 0, 2 };
    const berthi_name_list list = { "a\0b", 4, places, 2 };
    char text[] = "{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}";
    berth_context *context;
    berthi_header header;
    berth_error error;

    T_REQUIRE(berth_context_create(NULL, &context, NULL) == BERTH_OK);
    CHECK_EQ(berthi_header_parse_listed(context, text, sizeof text - 1, 2, &list, "f",
                                        &header, &error),
             BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_DUPLICATE);
    berth_context_destroy(context);
}

/* Four tables of the exact size; a byte an item to sort names and keys, in order here. */
static void
test_allocations(void)
{
    berth_memory_summary memory;
    parsed p = parse("{\"__metadata__\":{\"a\":\"b\"}," T("a", "U8", "[1]", "[0,1]") ","
                     T("b", "U8", "[1]", "[1,2]") "}", 2);

    berth_context_memory(p.context, &memory);
    CHECK_EQ(memory.allocations, 4u + 2u);
    CHECK_EQ(memory.peak_bytes, memory.current_bytes + 2);
    CHECK_EQ(memory.current_bytes, 2 * (sizeof(berthi_entry) + 4) + 4 + p.header.text_bytes);
    CHECK_EQ(sizeof(berthi_entry), 40u);
    finish(&p);
}

/* A refused text allocates nothing, whatever it promises. */
static void
test_refused_text_allocates_nothing(void)
{
    berth_memory_summary memory;
    parsed p = parse("{" T("a", "U8", "[18446744073709551615]", "[0,18446744073709551615]"), 2);

    berth_context_memory(p.context, &memory);
    CHECK_EQ(memory.allocations, 0u);
    finish(&p);
}

static berth_status
parse_with_faults(void *user, berth_context *context, berth_error *error)
{
    char text[] = "{\"__metadata__\":{\"b\":\"1\",\"c\":\"2\",\"a\":\"3\"},"
                  T("b", "U8", "[1]", "[2,3]") "," T("a", "U8", "[1]", "[0,1]") ","
                  T("c", "U8", "[1]", "[1,2]") "}";
    berthi_header header;
    const berth_status status = berthi_header_parse(context, text, sizeof text - 1, 3, "f",
                                                    &header, error);

    (void)user;
    if (status == BERTH_OK)
        CHECK_STR(header_case_table_problem(&header, 3), NULL);
    else
        CHECK(header.entries == NULL && header.text == NULL && header.context == NULL
              && header.entry_count == 0);
    berthi_header_fini(&header);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("header", parse_with_faults, NULL);

    CHECK_EQ(counts.memory, 2 * 10u); /* 4 tables, 3 sorts; once and from then on */
    CHECK_EQ(counts.survived, 0u);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_sayings);
    T_RUN(test_length);
    T_RUN(test_order_of_problems);
    T_RUN(test_truncations);
    T_RUN(test_tables);
    T_RUN(test_dims);
    T_RUN(test_varint);
    T_RUN(test_name_lengths);
    T_RUN(test_unescaping);
    T_RUN(test_strict_flags);
    T_RUN(test_name_compare);
    T_RUN(test_name_order_behind);
    T_RUN(test_name_order_reads_behind_only);
    T_RUN(test_order_of_empty_tensors);
    T_RUN(test_no_error_struct);
    T_RUN(test_listed);
    T_RUN(test_listed_duplicates);
    T_RUN(test_allocations);
    T_RUN(test_refused_text_allocates_nothing);
    T_RUN(test_faults);
    T_MAIN_END;
}
