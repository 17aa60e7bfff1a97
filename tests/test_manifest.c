/* SPDX-License-Identifier: Apache-2.0 */
/* test_manifest.c - the manifest's exact text, and everything its reader refuses. */
#include "loader/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>

#include "kernels/sys.h"
#include "tests/fault.h"
#include "tests/fixture.h"
#include "tests/t.h"

static berth_context *context;

/* ------------------------------------------------------------------- helpers */

/* Text that grows; also what the writer hands on, in order. */
typedef struct text {
    char *bytes;
    size_t length;
    size_t capacity;
    uint64_t calls;
    uint64_t fails_at; /* the call that fails; 0: none */
} text;

static void
append(text *t, const char *bytes, size_t length)
{
    if (t->length + length + 1 > t->capacity) {
        t->capacity = 2 * (t->length + length + 1);
        t->bytes = realloc(t->bytes, t->capacity);
        if (t->bytes == NULL)
            exit(1);
    }
    memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
    t->bytes[t->length] = '\0';
}

static berth_status
put_text(void *user, const char *bytes, uint64_t size, uint64_t offset,
         berth_error *error)
{
    text *const t = user;

    if (++t->calls == t->fails_at)
        return berthi_fail(error, BERTH_REASON_DISK_FULL, NULL, "full");
    CHECK_EQ(offset, t->length);
    CHECK_LE(size, BERTHI_JSON_TEXT_BUFFER);
    append(t, bytes, (size_t)size);
    return BERTH_OK;
}

/* What the reader saw, as text: one line a shard, one a tensor. */
typedef struct seen {
    text lines;
    uint64_t calls;
    uint64_t fails_at;
} seen;

static berth_status
note(seen *s, const char *name, uint64_t length, uint64_t bytes, uint32_t crc32,
     berth_error *error)
{
    char numbers[64];
    char printed[256];

    if (++s->calls == s->fails_at)
        return berthi_fail(error, BERTH_REASON_DIGEST, NULL, "the visitor says no");
    berth_text_escape(name, (size_t)length, printed, sizeof printed);
    append(&s->lines, printed, strlen(printed));
    snprintf(numbers, sizeof numbers, " %llu %08x;", (unsigned long long)bytes, crc32);
    append(&s->lines, numbers, strlen(numbers));
    return BERTH_OK;
}

static berth_status
see_shard(void *user, const berthi_manifest_shard *shard, berth_error *error)
{
    append(&((seen *)user)->lines, "#", 1);
    return note(user, shard->file, shard->file_length, shard->bytes,
                shard->header_crc32, error);
}

static berth_status
see_tensor(void *user, const berthi_manifest_tensor *tensor, berth_error *error)
{
    return note(user, tensor->name, tensor->name_length, 0, tensor->crc32, error);
}

static berth_status
see_job(void *user, const char *job, uint64_t length, berth_error *error)
{
    append(&((seen *)user)->lines, "!", 1);
    return note(user, job, length, length, 0, error);
}

static berth_status
see_source(void *user, const berthi_manifest_source *source, berth_error *error)
{
    append(&((seen *)user)->lines, "<", 1);
    return note(user, source->file, source->file_length, source->bytes, 0, error);
}

static berth_status
see_source_tensor(void *user, const berthi_manifest_tensor *tensor, berth_error *error)
{
    append(&((seen *)user)->lines, "-", 1);
    return note(user, tensor->name, tensor->name_length, 0, tensor->crc32, error);
}

static berth_status
see_file(void *user, const berthi_manifest_file *file, berth_error *error)
{
    append(&((seen *)user)->lines, "+", 1);
    return note(user, file->file, file->file_length, file->bytes, file->crc32, error);
}

static berthi_manifest_visitor
see(seen *s)
{
    return (berthi_manifest_visitor){ s, see_shard, see_tensor, see_job, see_source,
                                      see_source_tensor, see_file };
}

/* Parses a copy of the text; `lines` may be NULL. */
static berth_status
parse(const char *document, size_t length, const char *lines, berth_error *error)
{
    seen s = { .calls = 0 };
    const berthi_manifest_visitor visitor = see(&s);
    char *const copy = malloc(length > 0 ? length : 1);
    berth_status status;

    if (copy == NULL)
        exit(1);
    memcpy(copy, document, length);
    append(&s.lines, "", 0);
    status = berthi_manifest_parse(copy, length, "m.json", &visitor, error);
    if (lines != NULL)
        CHECK_STR(s.lines.bytes, lines);
    free(copy);
    free(s.lines.bytes);
    return status;
}

#define HEAD "{\"schema_version\": 1, \"writer\": \"w\", \"shards\": ["
#define SHARD(file) \
    "{\"file\":\"" file "\",\"bytes\":9,\"header_crc32\":\"00000001\",\"tensor_crc32\":{"
#define TAIL "]}"

static void
check_accepted(const char *document, const char *lines)
{
    berth_error error = { .status = 0 };

    CHECK_EQ(parse(document, strlen(document), lines, &error), BERTH_OK);
    CHECK_STR(error.message, "");
}

static void
check_refused_as(const char *document, berth_reason reason, const char *message,
                 uint64_t position)
{
    berth_error error;

    CHECK_EQ(parse(document, strlen(document), NULL, &error),
             berthi_reason_status((int32_t)reason));
    CHECK_EQ(error.reason, reason);
    CHECK_STR(error.file, "m.json");
    CHECK_CONTAINS(error.message, message);
    CHECK_EQ(error.has & BERTH_HAS_POSITION, BERTH_HAS_POSITION);
    CHECK_EQ(error.position, position);
}

/* With the position right behind the part of the text that ends in `behind`. */
static void
check_refused(const char *before, const char *behind, const char *message)
{
    check_refused_as(fixture_format("%s%s", before, behind), BERTH_REASON_MANIFEST_JSON,
                     message, strlen(before));
}

/* ------------------------------------------------------------------- writing */

static void
add_shard(berthi_manifest_writer *writer, const char *file, uint64_t bytes,
          uint32_t crc32)
{
    const berthi_manifest_shard shard = { file, strlen(file), bytes, crc32 };

    berthi_manifest_add_shard(writer, &shard);
}

static void
add_tensor(berthi_manifest_writer *writer, const char *name, uint64_t length,
           uint32_t crc32)
{
    const berthi_manifest_tensor tensor = { name, length, crc32 };

    berthi_manifest_add_tensor(writer, &tensor);
}

static void
test_exact_text(void)
{
    berthi_manifest_writer writer;
    text out = { .length = 0 };
    uint64_t bytes;

    berthi_manifest_begin(&writer, put_text, &out, NULL);
    add_shard(&writer, "a.safetensors", 1234567890123456789u, 0xABCDEF01u);
    add_tensor(&writer, "one", 3, 1);
    add_tensor(&writer, "two", 3, 0xFFFFFFFFu);
    add_shard(&writer, "b", 0, 0);
    add_shard(&writer, "c", UINT64_MAX, 0x10u);
    add_tensor(&writer, "", 0, 0);
    CHECK_EQ(berthi_manifest_end(&writer, &bytes), BERTH_OK);
    CHECK_EQ(bytes, out.length);
    CHECK_STR(out.bytes, fixture_format(
        "{\n"
        "\"schema_version\": 1,\n"
        "\"writer\": \"berth %s\",\n"
        "\"shards\": [\n"
        "{\"file\": \"a.safetensors\", \"bytes\": 1234567890123456789, "
        "\"header_crc32\": \"abcdef01\", \"tensor_crc32\": {\n"
        "\"one\": \"00000001\",\n"
        "\"two\": \"ffffffff\"\n"
        "}},\n"
        "{\"file\": \"b\", \"bytes\": 0, \"header_crc32\": \"00000000\", "
        "\"tensor_crc32\": {}},\n"
        "{\"file\": \"c\", \"bytes\": 18446744073709551615, "
        "\"header_crc32\": \"00000010\", \"tensor_crc32\": {\n"
        "\"\": \"00000000\"\n"
        "}}\n"
        "]\n"
        "}\n", berth_version()));
    check_accepted(out.bytes,
                   "#a.safetensors 1234567890123456789 abcdef01;one 0 00000001;"
                   "two 0 ffffffff;#b 0 00000000;#c 18446744073709551615 00000010;"
                   " 0 00000000;");
    free(out.bytes);
}

#define PREFACE "{\"schema_version\": 1, \"writer\": \"w\", "
#define SOURCE(file) "{\"file\":\"" file "\",\"bytes\":9,\"tensor_crc32\":{"
#define NO_SHARDS HEAD "], \"sources\": ["

static void
test_of_a_conversion(void)
{
    const berthi_manifest_source first = { "m", 1, 77 };
    const berthi_manifest_source second = { "n\"", 2, 0 };
    berthi_manifest_writer writer;
    text out = { .length = 0 };

    berthi_manifest_begin(&writer, put_text, &out, NULL);
    berthi_manifest_add_job(&writer, "type nf4\n", 9);
    add_shard(&writer, "a", 5, 6);
    add_tensor(&writer, "t", 1, 1);
    berthi_manifest_add_source(&writer, &first);
    add_tensor(&writer, "t", 1, 2);
    add_tensor(&writer, "u", 1, 3);
    berthi_manifest_add_source(&writer, &second);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    CHECK_STR(out.bytes, fixture_format(
        "{\n"
        "\"schema_version\": 1,\n"
        "\"writer\": \"berth %s\",\n"
        "\"job\": \"type nf4\\n\",\n"
        "\"shards\": [\n"
        "{\"file\": \"a\", \"bytes\": 5, \"header_crc32\": \"00000006\", "
        "\"tensor_crc32\": {\n"
        "\"t\": \"00000001\"\n"
        "}}\n"
        "],\n"
        "\"sources\": [\n"
        "{\"file\": \"m\", \"bytes\": 77, \"tensor_crc32\": {\n"
        "\"t\": \"00000002\",\n"
        "\"u\": \"00000003\"\n"
        "}},\n"
        "{\"file\": \"n\\\"\", \"bytes\": 0, \"tensor_crc32\": {}}\n"
        "]\n"
        "}\n", berth_version()));
    check_accepted(out.bytes, "!type nf4\\x0a 9 00000000;#a 5 00000006;t 0 00000001;"
                              "<m 77 00000000;-t 0 00000002;-u 0 00000003;"
                              "<n\" 0 00000000;");
    free(out.bytes);

    /* The shards are never left out. */
    out = (text){ .length = 0 };
    berthi_manifest_begin(&writer, put_text, &out, NULL);
    berthi_manifest_add_source(&writer, &first);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    CHECK_CONTAINS(out.bytes, "\",\n\"shards\": [],\n\"sources\": [\n{\"file\": \"m\", ");
    check_accepted(out.bytes, "<m 77 00000000;");
    free(out.bytes);
}

static void
test_of_a_conversion_refuses(void)
{
    check_accepted(NO_SHARDS "]}", "");
    check_accepted(NO_SHARDS SOURCE("a") "}}, " SOURCE("b") "}}]}",
                   "<a 9 00000000;<b 9 00000000;");
    /* A source may be called as a shard is. */
    check_accepted(HEAD SHARD("a") "}}], \"sources\": [" SOURCE("a") "}}]}",
                   "#a 9 00000001;<a 9 00000000;");
    check_refused(HEAD "]", ", \"job\": \"j\"}", "the next member has no meaning");
    check_refused(HEAD "], \"sources\": []", ", \"more\": 1}",
                  "the next member has no meaning");
    check_refused(HEAD "], \"sources\": ", "{}}", "");
    check_refused(NO_SHARDS, "1]}", "");
    check_refused(NO_SHARDS "{", "}]}", "the next member should be \"file\"");
    check_refused(NO_SHARDS "{\"file\":\"a\",\"bytes\":9",
                  ",\"header_crc32\":\"00000001\"}]}",
                  "the next member should be \"tensor_crc32\"");
    check_refused(NO_SHARDS SOURCE("a") "\"t\":\"0\"", "}}]}",
                  "a crc32 without eight digits");
    check_refused(NO_SHARDS SOURCE("a") "}", ", \"x\": 1}]}",
                  "the next member has no meaning");
    check_refused(NO_SHARDS SOURCE("b") "}}, {\"file\":\"a\"", ",\"bytes\":9}]}",
                  "not in bytewise order of names");
    check_refused(PREFACE "\"job\": ", "1, \"shards\": []}", "");
    check_refused(PREFACE "\"job\": \"\"", ", \"job\": \"\"}",
                  "the next member should be \"shards\"");
    check_refused(PREFACE "\"job\": \"\"", "}", "the next member should be \"shards\"");
}

static void
test_other_files(void)
{
    const berthi_manifest_source source = { "m", 1, 77 };
    const berthi_manifest_file first = { "a\"b.json", 8, UINT64_MAX, 0x89abcdef };
    const berthi_manifest_file second = { "c/d", 3, 0, 0 };
    berthi_manifest_writer writer;
    text out = { .length = 0 };

    berthi_manifest_begin(&writer, put_text, &out, NULL);
    add_shard(&writer, "a", 5, 6);
    add_tensor(&writer, "t", 1, 1);
    berthi_manifest_add_source(&writer, &source);
    berthi_manifest_add_file(&writer, &first);
    berthi_manifest_add_file(&writer, &second);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    CHECK_CONTAINS(out.bytes, "\"sources\": [\n"
                              "{\"file\": \"m\", \"bytes\": 77, \"tensor_crc32\": {}}\n"
                              "],\n"
                              "\"files\": [\n"
                              "{\"file\": \"a\\\"b.json\", \"bytes\": 18446744073709551615, "
                              "\"crc32\": \"89abcdef\"},\n"
                              "{\"file\": \"c/d\", \"bytes\": 0, \"crc32\": \"00000000\"}\n"
                              "]\n}\n");
    check_accepted(out.bytes, "#a 5 00000006;t 0 00000001;<m 77 00000000;"
                              "+a\"b.json 18446744073709551615 89abcdef;"
                              "+c/d 0 00000000;");
    free(out.bytes);

    /* Without sources, and without anything else. */
    out = (text){ .length = 0 };
    berthi_manifest_begin(&writer, put_text, &out, NULL);
    berthi_manifest_add_file(&writer, &second);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    CHECK_CONTAINS(out.bytes, "\",\n\"shards\": [],\n\"files\": [\n{\"file\": \"c/d\", ");
    check_accepted(out.bytes, "+c/d 0 00000000;");
    free(out.bytes);
}

#define NO_SOURCES HEAD "], \"files\": ["
#define OTHER(file) "{\"file\":\"" file "\",\"bytes\":9,\"crc32\":\"00000001\""

static void
test_other_files_refuses(void)
{
    check_accepted(NO_SOURCES "]}", "");
    check_accepted(HEAD "], \"sources\": [], \"files\": []}", "");
    check_accepted(NO_SOURCES OTHER("a") "}, " OTHER("b") "}]}",
                   "+a 9 00000001;+b 9 00000001;");
    check_refused(NO_SOURCES "]", ", \"sources\": []}", "the next member has no meaning");
    check_refused(NO_SOURCES "]", ", \"files\": []}", "the next member has no meaning");
    check_refused(HEAD "], \"sources\": []", ", \"sources\": []}",
                  "the next member has no meaning");
    check_refused(NO_SOURCES "{\"file\":\"a\",\"bytes\":9", "}]}",
                  "the next member should be \"crc32\"");
    check_refused(NO_SOURCES OTHER("a"), ", \"x\": 1}]}", "the next member has no meaning");
    check_refused(NO_SOURCES OTHER("b") "}, {\"file\":\"a\"", ",\"bytes\":9}]}",
                  "not in bytewise order of names");
    check_refused(NO_SOURCES, "1]}", "");
}

/* Who wants nothing is told nothing. */
static void
test_no_visitor(void)
{
    char document[] = "{\"schema_version\": 1, \"writer\": \"w\", \"job\": \"j\", "
                      "\"shards\": [" SHARD("a") "\"t\":\"00000000\"}}], \"sources\": ["
                      SOURCE("a") "\"t\":\"00000000\"}}], \"files\": [" OTHER("a") "}]}";

    CHECK_EQ(berthi_manifest_parse(document, strlen(document), "m",
                                   &(berthi_manifest_visitor){ .user = NULL }, NULL),
             BERTH_OK);
}

static void
test_empty(void)
{
    berthi_manifest_writer writer;
    text out = { .length = 0 };

    berthi_manifest_begin(&writer, put_text, &out, NULL);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    CHECK_STR(out.bytes, fixture_format("{\n\"schema_version\": 1,\n\"writer\": "
                                        "\"berth %s\",\n\"shards\": []\n}\n",
                                        berth_version()));
    check_accepted(out.bytes, "");
    free(out.bytes);
}

static void
test_escapes(void)
{
    static const char name[] = "q\"\\/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9\0z";
    berthi_manifest_writer writer;
    text out = { .length = 0 };

    berthi_manifest_begin(&writer, put_text, &out, NULL);
    add_shard(&writer, "\na\nb", 1, 2);
    add_tensor(&writer, name, sizeof name - 1, 3);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    CHECK_CONTAINS(out.bytes, "{\"file\": \"\\na\\nb\",");
    CHECK_CONTAINS(out.bytes, "\n\"q\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9"
                              "\\u0000z\": \"00000003\"\n");
    check_accepted(out.bytes, "#\\x0aa\\x0ab 1 00000002;q\"\\\\/\\x08\\x0c\\x0a\\x0d\\x09\\x01"
                              "\\x1f\\x7f\xc3\xa9\\x00z 0 00000003;");
    free(out.bytes);
}

/* Counting gives the size of the text; digests do not change it. */
static uint64_t
write_many(text *out, uint32_t crc32)
{
    berthi_manifest_writer writer;
    char name[3000];
    uint64_t bytes;

    memset(name, 'x', sizeof name);
    berthi_manifest_begin(&writer, out != NULL ? put_text : NULL, out, NULL);
    add_shard(&writer, "s", 1, crc32);
    for (uint64_t i = 1; i < sizeof name; i += 37)
        add_tensor(&writer, name, i, crc32);
    CHECK_EQ(berthi_manifest_end(&writer, &bytes), BERTH_OK);
    return bytes;
}

static void
test_counts_first(void)
{
    text out = { .length = 0 };
    text other = { .length = 0 };
    const uint64_t bytes = write_many(NULL, 0);

    CHECK_EQ(write_many(&out, 0xFFFFFFFFu), bytes);
    CHECK_EQ(out.length, bytes);
    CHECK_EQ(out.calls, out.length / BERTHI_JSON_TEXT_BUFFER + 1);
    /* The same input gives the same bytes. */
    CHECK_EQ(write_many(&other, 0xFFFFFFFFu), bytes);
    CHECK_MEM(other.bytes, out.bytes, out.length);
    CHECK_EQ(parse(out.bytes, out.length, NULL, NULL), BERTH_OK);
    free(out.bytes);
    free(other.bytes);
}

/* Texts that end around the end of the buffer: its last bytes come, too. */
static void
test_ends_of_the_buffer(void)
{
    static char name[2 * BERTHI_JSON_TEXT_BUFFER];
    uint64_t length = BERTHI_JSON_TEXT_BUFFER;

    memset(name, 'x', sizeof name);
    for (int more = 0; more < 8; more++, length++) {
        berthi_manifest_writer writer;
        text out = { .length = 0 };
        uint64_t bytes;

        for (int counted = 1; counted >= 0; counted--) {
            berthi_manifest_begin(&writer, counted ? NULL : put_text, &out, NULL);
            add_shard(&writer, "s", 1, 2);
            add_tensor(&writer, name, length, 3);
            CHECK_EQ(berthi_manifest_end(&writer, &bytes), BERTH_OK);
            if (counted && more == 0) /* now four bytes less than full */
                length += BERTHI_JSON_TEXT_BUFFER - 4 - bytes % BERTHI_JSON_TEXT_BUFFER;
        }
        CHECK_EQ((bytes + 4) % BERTHI_JSON_TEXT_BUFFER, more);
        CHECK_EQ(out.length, bytes);
        CHECK_STR(out.bytes + out.length - 7, "}}\n]\n}\n");
        free(out.bytes);
    }
}

static void
test_writer_keeps_the_first_failure(void)
{
    text out = { .fails_at = 1 };
    berthi_manifest_writer writer;
    berth_error error;

    append(&out, "", 0);
    berthi_manifest_begin(&writer, put_text, &out, &error);
    for (int i = 0; i < 2000; i++)
        add_shard(&writer, "shard", 1, 2);
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_EIO);
    CHECK_STR(error.message, "full");
    CHECK_EQ(out.calls, 1);
    CHECK_EQ(out.length, 0);
    free(out.bytes);
}

/* ------------------------------------------------------------------- reading */

static void
test_accepts_any_white_space(void)
{
    check_accepted(HEAD TAIL, "");
    check_accepted(" \t\r\n{ \"schema_version\" :1 ,\"writer\":\"\",\"shards\":[ ]\n}\n ",
                   "");
    check_accepted(HEAD SHARD("a") "}}" TAIL, "#a 9 00000001;");
    check_accepted(HEAD SHARD("a") "\"t\":\"0123abcd\"}}," SHARD("b") "}}" TAIL,
                   "#a 9 00000001;t 0 0123abcd;#b 9 00000001;");
    /* The same tensor in two shards is the checkpoint's business. */
    check_accepted(HEAD SHARD("a") "\"t\":\"00000000\"}}," SHARD("b")
                   "\"t\":\"00000000\"}}" TAIL,
                   "#a 9 00000001;t 0 00000000;#b 9 00000001;t 0 00000000;");
    check_accepted("{\"\\u0073chema_version\":1,\"writer\":\"w\",\"shards\":[]}", "");
}

static void
test_refuses_versions(void)
{
    berth_error error;
    const char *const later = "{\"schema_version\": 2, \"anything\": true}";
    const char *const huge = "{\"schema_version\": 18446744073709551615";

    CHECK_EQ(parse(later, strlen(later), "", &error), BERTH_EUNSUPPORTED);
    CHECK_EQ(error.reason, BERTH_REASON_UNSUPPORTED);
    CHECK_STR(error.message, "schema_version 2 needs a newer berth");
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    CHECK_EQ(error.expected, 1);
    CHECK_EQ(error.actual, 2);
    CHECK_STR(error.file, "m.json");
    CHECK_EQ(parse(huge, strlen(huge), "", &error), BERTH_EUNSUPPORTED);
    check_refused("{\"schema_version\": 0", "}", "no schema version 0");
    check_refused_as("{\"schema_version\": \"1\"}", BERTH_REASON_MANIFEST_JSON, "", 19);
    check_refused_as("{\"schema_version\": 1.0}", BERTH_REASON_MANIFEST_JSON, "", 19);
    check_refused_as("{\"schema_version\": -1}", BERTH_REASON_MANIFEST_JSON, "", 19);
}

static void
test_refuses_other_members(void)
{
    check_refused("{", "}", "\"schema_version\"");
    check_refused("{", "\"writer\": \"w\"}", "\"schema_version\"");
    check_refused("{\"schema_version\": 1", ", \"shards\": []}", "\"writer\"");
    check_refused("{\"schema_version\": 1, \"writer\": \"\"", "}", "\"shards\"");
    check_refused("{\"schema_version\": 1", ", \"schema_version\": 1}", "\"writer\"");
    check_refused(HEAD "]", ", \"more\": 1}", "the next member");
    check_refused(HEAD "{", "}]}", "\"file\"");
    check_refused(HEAD "{\"file\":\"a\"", "}]}", "\"bytes\"");
    check_refused(HEAD "{\"file\":\"a\",\"bytes\":1", "}]}", "\"header_crc32\"");
    check_refused(HEAD "{\"file\":\"a\",\"bytes\":1,\"header_crc32\":\"00000000\"",
                  ",\"tensors\":{}}]}", "\"tensor_crc32\"");
    check_refused(HEAD SHARD("a") "}", ",\"packed_crc32\":{}}]}", "the next member");
}

static void
test_refuses_bad_crcs(void)
{
    static const char *const bad[] = { "0000000",  "000000000", "",         "0000000A",
                                       "0000000g", "0000000/",  "0000000:", "0000000`",
                                       " 0000000", "0x000000" };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_refused(fixture_format(HEAD SHARD("a") "\"t\":\"%s\"", bad[i]), "}}]}",
                      "crc32");
        check_refused(fixture_format(HEAD "{\"file\":\"a\",\"bytes\":1,"
                                          "\"header_crc32\":\"%s\"",
                                     bad[i]),
                      ",\"tensor_crc32\":{}}]}", "crc32");
    }
}

static void
test_refuses_disorder(void)
{
    berth_error error;

    check_refused_as(HEAD SHARD("b") "}}," SHARD("a") "}}" TAIL,
                     BERTH_REASON_MANIFEST_JSON, "order",
                     strlen(HEAD SHARD("b") "}},{\"file\":\"a\""));
    check_refused_as(HEAD SHARD("b") "}}," SHARD("b") "}}" TAIL, BERTH_REASON_DUPLICATE,
                     "twice", strlen(HEAD SHARD("b") "}},{\"file\":\"a\""));
    check_refused_as(HEAD SHARD("a") "\"t\":\"00000000\",\"s\":\"00000000\"}}" TAIL,
                     BERTH_REASON_MANIFEST_JSON, "order",
                     strlen(HEAD SHARD("a") "\"t\":\"00000000\",\"s\":\"00000000\""));
    check_refused_as(HEAD SHARD("a") "\"t\":\"00000000\",\"\\u0074\":\"00000000\"}}" TAIL,
                     BERTH_REASON_DUPLICATE, "twice",
                     strlen(HEAD SHARD("a") "\"t\":\"00000000\",\"\\u0074\":\"00000000\""));
    /* Bytewise: a prefix first, then by unsigned bytes. */
    check_accepted(HEAD SHARD("a") "\"\":\"00000000\",\"B\":\"00000000\","
                   "\"a\":\"00000000\",\"a.10\":\"00000000\",\"a.2\":\"00000000\","
                   "\"\xc3\xa9\":\"00000000\"}}" TAIL, NULL);
    /* Named, and escaped. */
    CHECK_EQ(parse(HEAD SHARD("\\u001b[31m") "}}," SHARD("\\u001b[31m") "}}" TAIL,
                   strlen(HEAD SHARD("\\u001b[31m") "}}," SHARD("\\u001b[31m") "}}" TAIL),
                   NULL, &error), BERTH_EFORMAT);
    CHECK_STR(error.tensor, "\\x1b[31m");
}

static void
test_refuses_bad_json(void)
{
    static const char *const whole =
        HEAD SHARD("a") "\"t\":\"0123abcd\"}}," SHARD("b") "}}" TAIL;
    berth_error error;

    CHECK_EQ(parse(whole, strlen(whole), NULL, NULL), BERTH_OK);
    for (size_t cut = 0; cut < strlen(whole); cut++) {
        CHECK_EQ(parse(whole, cut, NULL, &error), BERTH_EFORMAT);
        CHECK_EQ(error.reason, BERTH_REASON_MANIFEST_JSON);
        CHECK_LE(error.position, cut);
        CHECK_NE(error.message[0], '\0');
    }
    check_refused(HEAD TAIL, "x", "");
    check_refused(HEAD TAIL " ", "{}", "");
    check_refused("", "[]", "");
    check_refused("", "null", "");
    check_refused(HEAD, "1]}", "");
    check_refused(HEAD SHARD("a") "\"t\":", "null}}]}", "");
    check_refused(HEAD "{\"file\":", "null}]}", "");
    check_refused(HEAD "{\"file\":\"a\",\"bytes\":", "-1}]}", "");
    check_refused(HEAD "{\"file\":\"a\",\"bytes\":", "18446744073709551616}]}", "");
    check_refused("{\"schema_version\": 1, \"writer\": ", "1}", "");
    check_refused("{\"schema_version\": 1, \"writer\": \"w\", \"shards\": ", "{}}", "");
}

static void
test_refuses_other_encodings(void)
{
    const char *const bytes = HEAD SHARD("\xc3\xa9\xff") "}}" TAIL;

    check_refused_as(bytes, BERTH_REASON_MANIFEST_JSON, "not UTF-8",
                     (uint64_t)(strchr(bytes, '\xff') - bytes));
    check_refused_as("\xff\xfe", BERTH_REASON_MANIFEST_JSON, "not UTF-8", 0);
}

/* The visitor's failure is the result, and nothing more is visited. */
static void
test_visitor_stops(void)
{
    static const char document[] =
        PREFACE "\"job\": \"j\", \"shards\": [" SHARD("a") "\"t\":\"0123abcd\"}},"
        SHARD("b")
        "}}], \"sources\": [" SOURCE("c") "\"t\":\"0123abcd\"}}], \"files\": ["
        OTHER("d") "}" TAIL;

    for (uint64_t at = 1; at <= 7; at++) {
        seen s = { .fails_at = at };
        const berthi_manifest_visitor visitor = see(&s);
        char copy[sizeof document];
        berth_error error;

        memcpy(copy, document, sizeof document);
        CHECK_EQ(berthi_manifest_parse(copy, sizeof document - 1, "m", &visitor, &error),
                 BERTH_EINTEGRITY);
        CHECK_STR(error.message, "the visitor says no");
        CHECK_EQ(s.calls, at);
        free(s.lines.bytes);
    }
}

/* --------------------------------------------------------------------- files */

static berth_status
read_file(berth_context *with, const char *path, const char *lines, berth_error *error)
{
    seen s = { .calls = 0 };
    const berthi_manifest_visitor visitor = see(&s);
    berth_status status;

    append(&s.lines, "", 0);
    status = berthi_manifest_read(with, berthi_manifest_at(path), &visitor, error);
    if (lines != NULL && status == BERTH_OK)
        CHECK_STR(s.lines.bytes, lines);
    free(s.lines.bytes);
    return status;
}

static void
test_reads_files(void)
{
    const char *const folder = fixture_folder();
    const char *const path = fixture_format("%s/m.json", folder);
    berth_error error;

    fixture_text(path, HEAD SHARD("a") "}}" TAIL);
    CHECK_EQ(read_file(context, path, "#a 9 00000001;", &error), BERTH_OK);
    fixture_text(path, "{");
    CHECK_EQ(read_file(context, path, NULL, &error), BERTH_EFORMAT);
    CHECK_STR(error.file, path);
    fixture_text(path, "");
    CHECK_EQ(read_file(context, path, NULL, &error), BERTH_EFORMAT);
    CHECK_EQ(read_file(context, fixture_format("%s/no", folder), NULL, &error),
             BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_FOUND);
    CHECK_EQ(read_file(context, folder, NULL, &error), BERTH_ENOENT);
    CHECK_EQ(error.reason, BERTH_REASON_NOT_REGULAR);
    CHECK_EQ(mkfifo(fixture_format("%s/pipe", folder), 0600), 0);
    CHECK_EQ(read_file(context, fixture_format("%s/pipe", folder), NULL, &error),
             BERTH_ENOENT);
}

static void
test_refuses_huge_files(void)
{
    const char *const path = fixture_format("%s/m.json", fixture_folder());
    berth_memory_summary memory;
    berth_error error;

    fixture_text(path, "");
    fixture_extend(path, BERTHI_MANIFEST_LIMIT + 1);
    CHECK_EQ(read_file(context, path, NULL, &error), BERTH_EFORMAT);
    CHECK_EQ(error.reason, BERTH_REASON_MANIFEST_JSON);
    CHECK_EQ(error.expected, BERTHI_MANIFEST_LIMIT);
    CHECK_EQ(error.actual, BERTHI_MANIFEST_LIMIT + 1);
    CHECK_EQ(error.has, BERTH_HAS_EXPECTED | BERTH_HAS_ACTUAL);
    berth_context_memory(context, &memory);
    CHECK_LT(memory.peak_bytes, 1000000);
}

/* One of exactly that size is read: here, into more memory than there is. */
static void
test_largest_file(void)
{
    const char *const path = fixture_format("%s/m.json", fixture_folder());
    berth_context *small = NULL;
    berth_context_options options;
    berth_error error;

    berth_context_options_init(&options);
    options.memory_limit = BERTHI_MANIFEST_LIMIT - 1;
    T_REQUIRE(berth_context_create(&options, &small, NULL) == BERTH_OK);
    fixture_text(path, "");
    fixture_extend(path, BERTHI_MANIFEST_LIMIT);
    CHECK_EQ(read_file(small, path, NULL, &error), BERTH_ENOMEM);
    berth_context_destroy(small);
}

/* Processor time to read a manifest of so many shards, 10,000 tensors each. */
static double
seconds_to_parse(int shards)
{
    berthi_manifest_writer writer;
    text out = { .length = 0 };
    clock_t start;
    double seconds;

    berthi_manifest_begin(&writer, put_text, &out, NULL);
    for (int shard = 0; shard < shards; shard++) {
        add_shard(&writer, fixture_format("model-%05d.safetensors", shard), 1, 2);
        for (int i = 0; i < 10000; i++) {
            char name[64];
            const int length = snprintf(name, sizeof name,
                                        "model.layers.%05d.mlp.experts.weight", i);

            add_tensor(&writer, name, (uint64_t)length, (uint32_t)i);
        }
    }
    CHECK_EQ(berthi_manifest_end(&writer, NULL), BERTH_OK);
    start = clock();
    CHECK_EQ(parse(out.bytes, out.length, NULL, NULL), BERTH_OK);
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    T_NOTE("%d tensors, %zu bytes: %.1f ms", shards * 10000, out.length, seconds * 1e3);
    free(out.bytes);
    return seconds;
}

/* Linear: ten times the tensors take ten times as long, not a hundred times. */
static void
test_many_tensors(void)
{
    const double one = seconds_to_parse(1);

    CHECK(seconds_to_parse(10) < 30 * one + 0.02);
}

static berth_status
read_once(void *user, berth_context *with, berth_error *error)
{
    return read_file(with, user, NULL, error);
}

static void
test_faults(void)
{
    const char *const path = fixture_format("%s/m.json", fixture_folder());
    fault_counts counts;

    fixture_text(path, HEAD SHARD("a") "\"t\":\"0123abcd\"}}" TAIL);
    counts = fault_loop("reading a manifest", read_once, (void *)(uintptr_t)path);
    CHECK_EQ(counts.survived, 0);
    CHECK_GE(counts.memory, 2);
    CHECK_GE(counts.system, 8);
}

int
main(int argc, char **argv)
{
    T_MAIN_BEGIN(argc, argv);
    if (berth_context_create(NULL, &context, NULL) != BERTH_OK)
        return 1;
    T_RUN(test_exact_text);
    T_RUN(test_of_a_conversion);
    T_RUN(test_of_a_conversion_refuses);
    T_RUN(test_other_files);
    T_RUN(test_other_files_refuses);
    T_RUN(test_no_visitor);
    T_RUN(test_empty);
    T_RUN(test_escapes);
    T_RUN(test_counts_first);
    T_RUN(test_ends_of_the_buffer);
    T_RUN(test_writer_keeps_the_first_failure);
    T_RUN(test_accepts_any_white_space);
    T_RUN(test_refuses_versions);
    T_RUN(test_refuses_other_members);
    T_RUN(test_refuses_bad_crcs);
    T_RUN(test_refuses_disorder);
    T_RUN(test_refuses_bad_json);
    T_RUN(test_refuses_other_encodings);
    T_RUN(test_visitor_stops);
    T_RUN(test_reads_files);
    T_RUN(test_refuses_huge_files);
    T_RUN(test_largest_file);
    T_RUN(test_many_tensors);
    T_RUN(test_faults);
    berth_context_destroy(context);
    T_MAIN_END;
}
