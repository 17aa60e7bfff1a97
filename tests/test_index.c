/* SPDX-License-Identifier: Apache-2.0 */
/* test_index.c - the index: what is accepted, the path rule, tables, errors. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/index.h"
#include "tests/fault.h"
#include "tests/header_case.h"
#include "tests/t.h"

typedef struct parsed {
    berth_context *context;
    berthi_index index;
    berth_error error;
    berth_status status;
} parsed;

static parsed
parse_bytes(const char *text, uint64_t length)
{
    char *const copy = malloc(length > 0 ? length : 1);
    parsed p;

    memset(&p, 0, sizeof p);
    CHECK_EQ(berth_context_create(NULL, &p.context, NULL), BERTH_OK);
    memcpy(copy, text, length);
    p.status = berthi_index_parse(p.context, copy, length, "dir/i", &p.index, &p.error);
    CHECK(p.status == BERTH_OK
          || header_case_is_shown(copy, length, p.index.blamed.name, p.index.blamed.length,
                                  &p.error));
    if (length > 0)
        memset(copy, 0xEE, length); /* nothing may refer to the text */
    free(copy);
    return p;
}

static parsed
parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static void
finish(parsed *p)
{
    berth_memory_summary memory;

    berthi_index_fini(&p->index);
    CHECK(p->index.text == NULL && p->index.context == NULL && p->index.entry_count == 0);
    berthi_index_fini(&p->index);
    berth_context_memory(p->context, &memory);
    CHECK_EQ(memory.current_bytes, 0u);
    berth_context_destroy(p->context);
}

/* "name>shard name>shard ..." in order of names. */
static void
describe(const berthi_index *index, char *out)
{
    *out = '\0';
    for (uint64_t i = 0; i < index->entry_count; i++)
        out += sprintf(out, "%s%s>%s", i == 0 ? "" : " ", index->text + index->entries[i].name,
                       index->text + index->shards[index->entries[i].shard]);
}

static void
check_accepted(const char *text, const char *description, uint32_t shard_count)
{
    parsed p = parse(text);
    char actual[1000];

    if (!CHECK_EQ(p.status, BERTH_OK))
        T_NOTE("%s: %s at %" PRIu64, text, p.error.message, p.error.position);
    describe(&p.index, actual);
    CHECK_STR(actual, description);
    CHECK_EQ(p.index.shard_count, shard_count);
    for (uint64_t i = 0; i < p.index.entry_count; i++)
        CHECK_EQ(p.index.entries[i].name_length,
                 strlen(p.index.text + p.index.entries[i].name));
    for (uint32_t i = 1; i < p.index.shard_count; i++)
        CHECK_LT(strcmp(p.index.text + p.index.shards[i - 1],
                        p.index.text + p.index.shards[i]), 0);
    finish(&p);
}

#define A "a.safetensors"
#define B "b.safetensors"
#define C "c.safetensors"
#define MAP(pairs) "{\"weight_map\":{" pairs "}}"

static void
test_accepts(void)
{
    check_accepted(MAP("\"t\":\"" A "\""), "t>" A, 1);
    check_accepted(MAP("\"\":\"" A "\""), ">" A, 1);
    check_accepted(MAP("\"t\":\"" B "\",\"s\":\"" A "\",\"u\":\"" B "\""),
                   "s>" A " t>" B " u>" B, 2);
    check_accepted(MAP("\"a\":\"" C "\",\"b\":\"" C "\",\"c\":\"" A "\",\"d\":\"" A "\",\"e\":\"" C
                       "\",\"f\":\"" B "\""),
                   "a>" C " b>" C " c>" A " d>" A " e>" C " f>" B, 3);
    check_accepted("{\"metadata\":{\"total_size\":12},\"weight_map\":{\"t\":\"" A "\"}}",
                   "t>" A, 1);
    check_accepted("{\"x\":[1,{\"weight_map\":2}],\"weight_map\":{\"t\":\"" A "\"},\"y\":\"z\"}",
                   "t>" A, 1);
    check_accepted(" {\n \"weight_map\" : { \"t\" : \"" A "\" } , \"metadata\" : null }\n", "t>" A,
                   1);
    check_accepted(MAP("\"\\u0074\\n\":\"\\u0061.safetensors\""), "t\n>" A, 1);
    check_accepted("{\"\\u0077eight_map\":{\"t\":\"" A "\"}}", "t>" A, 1);
    check_accepted(MAP("\"a.10\":\"" A "\",\"a.2\":\"" A "\",\"B\":\"" A "\""),
                   "B>" A " a.10>" A " a.2>" A, 1);
}

/* Most shards stand as the one before: what is escaped must not pass for that. */
static void
test_repeated_shards(void)
{
    check_accepted(MAP("\"s\":\"\\u0061.safetensors\",\"t\":\"" A "\",\"u\" :\t\"" A "\""),
                   "s>" A " t>" A " u>" A, 1);
    check_accepted(MAP("\"s\":\"" A "\",\"t\":\"\\u0061.safetensors\",\"u\":\"" A "\""),
                   "s>" A " t>" A " u>" A, 1);
    check_accepted(MAP("\"s\":\"\\\"" A "\",\"t\":\"\\\"" A "\""), "s>\"" A " t>\"" A, 1);
    check_accepted(MAP("\"s\":\"" A "\",\"t\":\"" A ".safetensors\",\"u\":\"" A "\""),
                   "s>" A " t>" A ".safetensors u>" A, 2);
}

/* accelerate takes a map without the wrapper. */
static void
test_bare_map(void)
{
    check_accepted("{\"t\":\"" A "\",\"s\":\"" B "\"}", "s>" B " t>" A, 2);
    check_accepted("{\"metadata\":\"" A "\"}", "metadata>" A, 1);
    /* what only looked like one is forgotten, whatever it was */
    check_accepted("{\"format\":\"pt\",\"format\":\"../x\",\"n\\u0000\":\"\",\"weight_map\":"
                   "{\"t\":\"" A "\"},\"z\":\"pt\"}",
                   "t>" A, 1);
}

/* ------------------------------------------------------------------- errors */

#define AT BERTH_HAS_POSITION

static const struct {
    const char *text;
    berth_reason reason;
    const char *tensor;
    const char *message;
    uint32_t has;
    uint64_t position;
} refused[] = {
    { "", BERTH_REASON_INDEX_JSON, "", "not an object", AT, 0 },
    { "[]", BERTH_REASON_INDEX_JSON, "", "not an object", AT, 0 },
    { "\xef\xbb\xbf{}", BERTH_REASON_INDEX_JSON, "", "not an object", AT, 0 },
    { "{\"a\":\"\xff\"}", BERTH_REASON_INDEX_JSON, "", "the index is not UTF-8", AT, 6 },
    { "{}", BERTH_REASON_INDEX_JSON, "", "names no tensor", AT, 2 },
    { MAP(""), BERTH_REASON_INDEX_JSON, "", "names no tensor", AT, 17 },
    { "{\"metadata\":{}}", BERTH_REASON_INDEX_JSON, "", "no weight_map", AT, 15 },
    { "{\"t\":\"" A "\",\"s\":1}", BERTH_REASON_INDEX_JSON, "", "no weight_map", AT, 27 },
    { "{\"t\":\"" A "\"} x", BERTH_REASON_INDEX_JSON, "", "something stands behind the end", AT,
      22 },
    { "{\"weight_map\":[]}", BERTH_REASON_INDEX_JSON, "", "not an object", AT, 14 },
    { "{\"weight_map\":\"" A "\"}", BERTH_REASON_INDEX_JSON, "", "not an object", AT, 14 },
    { MAP("\"t\":1"), BERTH_REASON_INDEX_JSON, "t", "not a string", AT, 19 },
    { MAP("\"t\":null"), BERTH_REASON_INDEX_JSON, "t", "not a string", AT, 19 },
    { MAP("\"s\":\"" A "\",\"t\":[]"), BERTH_REASON_INDEX_JSON, "t", "not a string", AT, 39 },
    { MAP("\"t\":\"" A "\"") "}", BERTH_REASON_INDEX_JSON, "",
      "something stands behind the end", AT, 36 },
    { "{\"weight_map\":{\"t\":\"" A "\"},\"weight_map\":{\"t\":\"" A "\"}}",
      BERTH_REASON_INDEX_JSON, "", "a second weight_map", AT, 49 },
    { "{\"weight_map\":{\"t\":\"" A "\"", BERTH_REASON_INDEX_JSON, "",
      "a comma or the end is missing", AT, 34 },
    { "{\"metadata\":{\"total_size\":1e999},\"weight_map\":{\"t\":\"" A "\"}}",
      BERTH_REASON_INDEX_JSON, "", "a number beyond the range of a double", AT, 26 },
    { "{\"metadata\":{\"x\":01},\"weight_map\":{\"t\":\"" A "\"}}", BERTH_REASON_INDEX_JSON, "",
      "a number with a leading zero", AT, 18 },
    { MAP("\"t\":\"" A "\"},\"x\":{\"y\":NaN"), BERTH_REASON_INDEX_JSON, "", "not a value", AT,
      45 },
    { "{\"x\":{\"y\":[}},\"weight_map\":{\"t\":\"" A "\"}}", BERTH_REASON_INDEX_JSON, "",
      "not a value", AT, 11 },
    { MAP("\"t\\u0000\":\"" A "\""), BERTH_REASON_NAME, "t\\x00", "a name contains U+0000", AT,
      16 },
    { MAP("\"t\":\"" A "\",\"s\":\"" A "\",\"t\":\"" B "\""), BERTH_REASON_DUPLICATE, "t",
      "the index has this tensor more than once", 0, 0 },
    { MAP("\"t\":\"" A "\",\"\\u0074\":\"" A "\""), BERTH_REASON_DUPLICATE, "t",
      "the index has this tensor more than once", 0, 0 },
    { MAP("\"t\":\"../x.safetensors\""), BERTH_REASON_PATH, "t",
      "the shard name \"../x.safetensors\" has a component `.` or `..`", AT, 20 },
    { MAP("\"s\":\"" A "\",\"t\":\"a\\nb\""), BERTH_REASON_PATH, "t",
      "the shard name \"a\\x0ab\" contains a control character", AT, 40 },
    { MAP("\"t\":\"\""), BERTH_REASON_PATH, "t",
      "the shard name \"\" is not 1 to 1024 bytes long", AT, 20 },
    { MAP("\"t\":\"" A "\",\"u\":\"\",\"v\":\"\""), BERTH_REASON_PATH, "u",
      "the shard name \"\" is not 1 to 1024 bytes long", AT, 40 },
    { "{\"t\":\"pt\"}", BERTH_REASON_PATH, "t",
      "the shard name \"pt\" does not end in .safetensors", AT, 6 },
    /* the shard of s without its backslash is none */
    { MAP("\"s\":\"\\\"" A "\",\"t\":\"\"" A "\""), BERTH_REASON_INDEX_JSON, "",
      "a comma or the end is missing", AT, 43 },
    /* JSON first, then the first in the text, duplicates last */
    { MAP("\"t\\u0000\":\"x\"") "}", BERTH_REASON_INDEX_JSON, "",
      "something stands behind the end", AT, 30 },
    { MAP("\"t\":\"x\",\"s\\u0000\":\"" A "\""), BERTH_REASON_PATH, "t",
      "the shard name \"x\" does not end in .safetensors", AT, 20 },
    { MAP("\"s\\u0000\":\"" A "\",\"t\":\"x\""), BERTH_REASON_NAME, "s\\x00",
      "a name contains U+0000", AT, 16 },
    { MAP("\"t\":\"" A "\",\"t\":\"x\""), BERTH_REASON_PATH, "t",
      "the shard name \"x\" does not end in .safetensors", AT, 40 },
};

static void
test_refuses(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        parsed p = parse(refused[i].text);

        if (!CHECK_EQ(p.error.reason, (int32_t)refused[i].reason))
            T_NOTE("%s", refused[i].text);
        CHECK_EQ(p.status, BERTH_EFORMAT);
        CHECK_STR(p.error.file, "dir/i");
        CHECK_STR(p.error.tensor, refused[i].tensor);
        CHECK_STR(p.error.message, refused[i].message);
        CHECK_EQ(p.error.has, refused[i].has);
        if (!CHECK_EQ(p.error.position, refused[i].position))
            T_NOTE("%s", refused[i].text);
        CHECK(p.index.entries == NULL && p.index.shards == NULL && !p.index.has_total_size);
        finish(&p);
    }
}

static void
test_truncations(void)
{
    static const char text[] = " {\"metadata\" : {\"total_size\":1.0e3, \"x\":[]},\n"
                               "\"weight_map\":{\"t\\n\":\"" A "\" ,\"\xc3\xa9\":\"" B "\"} }";

    for (uint64_t length = 0; length < sizeof text - 1; length++) {
        parsed p = parse_bytes(text, length);

        CHECK_EQ(p.error.reason, (int32_t)BERTH_REASON_INDEX_JSON);
        CHECK_LE(p.error.position, length);
        finish(&p);
    }
}

/* ------------------------------------------------------------------ metadata */

static void
check_total(const char *value, bool has_total, uint64_t total)
{
    char text[300];
    parsed p;

    sprintf(text, "{\"metadata\":{\"total_parameters\":7,\"total_size\":%s,\"format\":\"pt\"},"
                  "\"weight_map\":{\"t\":\"" A "\"}}", value);
    p = parse(text);
    CHECK_EQ(p.status, BERTH_OK);
    if (!CHECK_EQ(p.index.has_total_size, has_total))
        T_NOTE("%s", value);
    CHECK_EQ(p.index.total_size, total);
    finish(&p);
}

static void
test_total_size(void)
{
    check_total("0", true, 0);
    check_total("14483464192", true, UINT64_C(14483464192));
    check_total("9007199254740993", true, UINT64_C(9007199254740993));
    check_total("18446744073709551615", true, UINT64_MAX);
    check_total("14483464192.0", true, UINT64_C(14483464192));
    check_total("1.5e3", true, 1500);
    check_total("-0.0", true, 0);
    check_total("18446744073709549568.0", true, UINT64_C(18446744073709549568));
    check_total("18446744073709551616", false, 0);
    check_total("1e30", false, 0);
    check_total("12.125", false, 0);
    check_total("-5", false, 0);
    check_total("\"12\"", false, 0);
    check_total("null", false, 0);
    check_total("[1]", false, 0);
    check_total("12,\"total_size\":13", true, 13);
    check_total("12,\"total_size\":null", false, 0);
}

static void
test_no_total_size(void)
{
    parsed p = parse("{\"total_size\":5,\"weight_map\":{\"t\":\"" A "\"},\"metadata\":[]}");

    CHECK_EQ(p.status, BERTH_OK);
    CHECK(!p.index.has_total_size);
    finish(&p);
}

/* ----------------------------------------------------------------- path rule */

static void
check_path(const char *name, const char *problem)
{
    char *const copy = malloc(strlen(name) + 1);

    memcpy(copy, name, strlen(name));
    if (!CHECK_STR(berthi_shard_name_problem(copy, strlen(name)), problem))
        T_NOTE("%s", name);
    free(copy);
}

/* `count` times `piece`, then `end`. */
static const char *
repeat(char *out, const char *piece, size_t count, const char *end)
{
    char *at = out;

    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%s", piece);
    sprintf(at, "%s", end);
    return out;
}

static void
test_paths(void)
{
    static const char suffix[] = "does not end in .safetensors";
    static const char dots[] = "has a component `.` or `..`";
    static const char empty[] = "has an empty component";
    static const char control[] = "contains a control character";
    static const char foreign[] = "contains a backslash or a colon";
    static const char length[] = "is not 1 to 1024 bytes long";
    static const char component[] = "has a component of more than 255 bytes";
    char text[2000];

    check_path("model-00001-of-00002.safetensors", NULL);
    check_path("sub/x.safetensors", NULL);
    check_path("a/b/c/x.safetensors", NULL);
    check_path(".safetensors", NULL);
    check_path("...safetensors", NULL);
    check_path(".../x.safetensors", NULL);
    check_path("..x/.y/x.safetensors", NULL);
    check_path("\xc3\xa9 \x7f.safetensors", NULL);
    check_path("a/b/c/d/x.safetensors", "has more than 4 components");
    check_path("", length);
    check_path("/x.safetensors", "is an absolute path");
    check_path("//x.safetensors", "is an absolute path");
    check_path("a//x.safetensors", empty);
    check_path("a/x.safetensors/", empty);
    check_path("./x.safetensors", dots);
    check_path("../x.safetensors", dots);
    check_path("a/../x.safetensors", dots);
    check_path("a/./x.safetensors", dots);
    check_path("a/..", dots);
    check_path("a/.", dots);
    check_path("..", dots);
    check_path("x\\y.safetensors", foreign);
    check_path("c:x.safetensors", foreign);
    check_path("\x1fx.safetensors", control);
    check_path("x\n.safetensors", control);
    check_path("\xff.safetensors", "is not UTF-8");
    check_path("x.safetensors.bin", suffix);
    check_path("x.bin", suffix);
    check_path("pytorch_model-00001-of-00002.bin", suffix);
    check_path("safetensors", suffix);
    check_path("x.Safetensors", suffix);
    check_path("xsafetensors", suffix);
    check_path(repeat(text, "x", 243, ".safetensors"), NULL);
    check_path(repeat(text, "x", 244, ".safetensors"), component);
    repeat(text, "x", 255, "/x.safetensors");
    check_path(text, NULL);
    repeat(text, "x", 256, "/x.safetensors");
    check_path(text, component);
    CHECK_STR(berthi_shard_name_problem("x\0.safetensors", 14), control);
}

/* Four components of 255 bytes; whatever is longer breaks one rule or the other. */
static void
test_longest_path(void)
{
    char text[1025];

    memset(text, 'x', sizeof text);
    for (size_t i = 255; i < 1023; i += 256)
        text[i] = '/';
    memcpy(text + 1023 - 12, ".safetensors", 12);
    CHECK_STR(berthi_shard_name_problem(text, 1023), NULL);
    CHECK_STR(berthi_shard_name_problem(text, 1024),
              "has a component of more than 255 bytes");
    CHECK_STR(berthi_shard_name_problem(text, 1025), "is not 1 to 1024 bytes long");
}

/* --------------------------------------------------------------------- large */

/* Many names and shards: `stride` decides in which order they come. */
static void
check_large(uint64_t count, uint64_t shards, uint64_t stride)
{
    char *const text = malloc(count * 64 + 100);
    char *at = text + sprintf(text, "{\"weight_map\":{");
    parsed p;

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = i * stride % count;

        at += sprintf(at, "%s\"t%07" PRIu64 "\":\"m-%05" PRIu64 ".safetensors\"", i == 0 ? "" : ",",
                      number, number * 31 % shards);
    }
    at += sprintf(at, "}}");
    p = parse_bytes(text, (uint64_t)(at - text));
    CHECK_EQ(p.status, BERTH_OK);
    CHECK_EQ(p.index.entry_count, count);
    CHECK_EQ(p.index.shard_count, shards);
    for (uint64_t i = 0; i < p.index.entry_count; i++) {
        char name[32];

        sprintf(name, "t%07" PRIu64, i);
        if (!CHECK_STR(p.index.text + p.index.entries[i].name, name)
            || !CHECK_EQ(p.index.entries[i].shard, i * 31 % shards))
            break;
    }
    finish(&p);
    free(text);
}

static void
test_large(void)
{
    check_large(1000, 1, 1);
    check_large(1000, 7, 1);
    check_large(1000, 1000, 1);
    check_large(5003, 163, 4999);
    check_large(20011, 20011, 7919);
}

static void
test_too_large(void)
{
    char text[] = "{}";
    berth_context *context;
    berthi_index index;
    berth_error error;

    CHECK_EQ(berth_context_create(NULL, &context, NULL), BERTH_OK);
    CHECK_EQ(berthi_index_parse(context, text, BERTHI_INDEX_LIMIT + 1, "i", &index, &error),
             BERTH_EFORMAT);
    CHECK_EQ(error.reason, (int32_t)BERTH_REASON_INDEX_JSON);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.expected, 100000000u);
    CHECK_EQ(error.actual, 100000001u);
    berth_context_destroy(context);
}

/* Tables of the exact size; of a sorted index no scratch is left and little used. */
static void
test_allocations(void)
{
    berth_memory_summary memory;
    parsed p = parse(MAP("\"s\":\"" A "\",\"t\":\"" A "\",\"u\":\"" B "\""));

    berth_context_memory(p.context, &memory);
    CHECK_EQ(p.index.text_bytes, 3 * 2 + 2 * sizeof A);
    CHECK_EQ(memory.current_bytes, p.index.text_bytes + 3 * sizeof(berthi_index_entry) + 2 * 8
                                       + 3 * 4 + (2 + 1) * 4);
    CHECK_EQ(memory.peak_bytes, memory.current_bytes + 3 * (4 + 1));
    finish(&p);
}

static berth_status
parse_with_faults(void *user, berth_context *context, berth_error *error)
{
    char text[] = MAP("\"b\":\"" B "\",\"c\":\"" A "\",\"a\":\"" C "\",\"d\":\"" B "\"");
    berthi_index index;
    const berth_status status =
        berthi_index_parse(context, text, sizeof text - 1, "i", &index, error);

    (void)user;
    CHECK_EQ(index.entry_count, status == BERTH_OK ? 4u : 0u);
    CHECK_EQ(index.text != NULL, status == BERTH_OK);
    berthi_index_fini(&index);
    return status;
}

static void
test_faults(void)
{
    const fault_counts counts = fault_loop("index", parse_with_faults, NULL);

    /* runs and their sort's two, three tables, order and its sort's two; once and
       from then on */
    CHECK_EQ(counts.memory, 2 * 11u);
    CHECK_EQ(counts.survived, 0u);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    T_RUN(test_accepts);
    T_RUN(test_repeated_shards);
    T_RUN(test_bare_map);
    T_RUN(test_refuses);
    T_RUN(test_truncations);
    T_RUN(test_total_size);
    T_RUN(test_no_total_size);
    T_RUN(test_paths);
    T_RUN(test_longest_path);
    T_RUN(test_large);
    T_RUN(test_too_large);
    T_RUN(test_allocations);
    T_RUN(test_faults);
    T_MAIN_END;
}
